//! `clash run`: a whole agent in a room of its own.
//!
//! The room is a sandbox of the policy (`agent`) and what the agent needs beyond
//! it: its own state, without the settings that steer it, and its program. Where
//! clash is told of the agent's actions, clash works in there as well: it reads
//! its policies, writes the records of sessions, and makes a room inside the room
//! for every action, which so gets what both grant. A project that keeps the agent
//! from asking is found before the agent starts, which it then does not.
//!
//! Settings that do not exist when the room is made can be made by the agent
//! itself: there is nothing to mount on. Its actions still cannot.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};

use clash_policy::path::Links;
use clash_policy::protect::{Keep, entries};
use clash_policy::{Caps, Effect, FsRule, PathPattern, Sandbox, Writes};
use clash_sandbox::disk::Disk;
use clash_sandbox::host;
use clash_sandbox::launch;
use clash_sandbox::plan::nesting::NoNesting;
use clash_sandbox::plan::{Cage, Grant, Plan, Request, Temporary, Why, plan};

use super::project;
use crate::agents::homes::{self, Home};
use crate::agents::{self, Agent};
use crate::compiler::compiler_path;
use crate::dirs::{Dirs, create_private};
use crate::exec::{self, ExecError};
use crate::in_force::PolicySandboxes;
use crate::policy::LoadedPolicy;
use crate::session::sessions_dir;
use crate::ui::Failure;
use crate::{env, exit};

/// The agent and everything it starts see the project, what the sandbox grants and
/// the agent's own state; keys, other projects and processes outside are not there.
/// Actions of an agent that clash is installed for are still judged and confined
/// one by one inside; those of any other agent are confined by this room alone.
///
/// Exit status: the agent's own; 125 if the room cannot be set up, 126 if the
/// program cannot be executed, 127 if it is not found.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sandbox of the room
    #[arg(long, value_name = "NAME", default_value = "agent")]
    sandbox: String,
    /// The project (`$PWD` of policies); found from the working directory if not given
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// Say nothing about the room
    #[arg(long, short)]
    quiet: bool,
    /// The agent and its arguments
    #[arg(
        trailing_var_arg = true,
        required = true,
        allow_hyphen_values = true,
        value_name = "AGENT"
    )]
    command: Vec<OsString>,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let (dirs, project) = project(self.project)?;
        let [name, args @ ..] = self.command.as_slice() else {
            return Err(Failure { status: exit::USAGE, ..Failure::new("no agent to run") });
        };
        // Before the room is made: what is compiled now is only read inside.
        let policy = LoadedPolicy::load(&dirs, &project, None)?;
        let sandbox = match exec::named(&policy, &self.sandbox) {
            Ok(sandbox) => sandbox,
            Err(error) => return Ok(exec::report(&error)),
        };
        if sandbox.unrestricted {
            return Err(Failure::new(format!("sandbox {} is no room", sandbox.name)));
        }
        let Some(program) = find(name) else {
            return Err(Failure {
                status: exit::NOT_FOUND,
                ..Failure::new(format!("`{}` not found", name.to_string_lossy()))
            });
        };
        let (env, _) = clash_sandbox::environment::scrub(env::all(), &sandbox.env);
        let known = agents::run_by(name);
        let wired = known.filter(|agent| agent.is_wired(&dirs.for_agents(), &project));
        if let Some(agent) = wired {
            refuse_unasked(agent, &dirs, &project)?;
        }
        let room = Room::new(&dirs, &project, homes::of(name), &program, wired.is_some())?;
        let (plan, nesting) = match room.plan(&sandbox, wired.is_some()) {
            Ok(planned) => planned,
            Err(error) => return Ok(exec::report(&error)),
        };
        if !self.quiet {
            let who = Path::new(name).file_name().unwrap_or(name).to_string_lossy();
            let how = how(nesting.as_ref(), known);
            let _ =
                writeln!(std::io::stderr(), "clash: {who} runs in sandbox {}; {how}", plan.sandbox);
        }
        let command = launch::Command {
            program: program.into_os_string(),
            args: args.to_vec(),
            env,
            cwd: None,
        };
        let error = launch::run(&plan, &command, launch::Ahead::default());
        Ok(exec::report(&ExecError::Launch { sandbox: plan.sandbox, error }))
    }
}

/// Most clients obey a project that switches their hooks off and do not say so;
/// then no action would be judged.
fn refuse_unasked(agent: &Agent, dirs: &Dirs, project: &Path) -> Result<(), Failure> {
    let Some(problem) = agent.against(&dirs.for_agents(), project, &std::env::current_dir()?)
    else {
        return Ok(());
    };
    Err(Failure::new(format!("{} is not started, it might not ask clash: {problem}", agent.title))
        .hint("look at that file, which came with the project, and remove it or what it says"))
}

/// How actions fare inside; `None` is an agent that clash hears nothing of.
fn how(nesting: Option<&Result<(), NoNesting>>, known: Option<&Agent>) -> String {
    match (nesting, known) {
        (Some(Ok(())), _) => "each action is judged and confined on its own inside".into(),
        (Some(Err(NoNesting::Root)), _) => "each action is judged and confined on its own \
             inside, but root gets no rooms in a room: commands that need one, such as those \
             that write, are refused; run it as a user"
            .into(),
        (Some(Err(why)), _) => format!(
            "each action is judged and confined on its own inside, without a room of its own: {why}"
        ),
        (None, Some(Agent { name, .. })) => format!(
            "its actions are not judged, this room is all that confines them; \
             `clash install --agent {name}` has them judged"
        ),
        (None, None) => "its actions are not judged, this room is all that confines them".into(),
    }
}

/// What the room needs besides its sandbox.
struct Room<'a> {
    dirs: &'a Dirs,
    project: &'a Path,
    /// The agent's own state, and what of it stays as it is.
    state: Vec<PathBuf>,
    fixed: Vec<PathBuf>,
    /// What can be read, and for programs executed, besides.
    grants: Vec<Grant>,
    /// The project's own caches, if the room itself writes there. The actions of an
    /// agent that asks clash have them in rooms of their own.
    caches: Option<PathBuf>,
}

const RUN: Caps = Caps::READ.union(Caps::EXECUTE);

impl<'a> Room<'a> {
    fn new(
        dirs: &'a Dirs,
        project: &'a Path,
        agent: Option<&Home>,
        program: &Path,
        wired: bool,
    ) -> Result<Self, Failure> {
        let (state, fixed, grants) = (Vec::new(), Vec::new(), Vec::new());
        let disk = Disk::default();
        let caches = (!wired).then(|| dirs.caches_of(project, &disk));
        let mut room = Self { dirs, project, state, fixed, grants, caches };
        for place in agent.iter().flat_map(|home| home.places(&dirs.for_agents())) {
            if !place.file {
                // As the agent itself would on its first start.
                create_private(&place.path).map_err(|error| {
                    Failure::new(format!("cannot make {}: {error}", place.path.display()))
                })?;
            }
            if place.path.exists() {
                room.state.push(place.path.clone());
                room.fixed.extend(place.settings.iter().filter(|path| path.exists()).cloned());
            }
        }
        for path in installation(program, &dirs.home) {
            room.grant(&path, RUN);
        }
        if wired {
            room.own_places()?;
        }
        Ok(room)
    }

    fn grant(&mut self, path: &Path, caps: Caps) {
        // What is not there needs no grant.
        if let Ok(path) = path.canonicalize() {
            self.grants.push(Grant { path, caps, why: Why::Launcher });
        }
    }

    /// What clash itself needs to work in the room. Policies can be read there and
    /// not written; so can everything an approval would not be enough for.
    fn own_places(&mut self) -> Result<(), Failure> {
        let sessions = sessions_dir(self.dirs);
        create_private(&sessions)?;
        self.grant(&sessions, Caps::ALL);
        let caches = self.dirs.caches_of(self.project, &Disk::default());
        create_private(&caches)?;
        self.grant(&caches, Caps::ALL);
        for name in ["bin", "host", "trust"] {
            self.grant(&self.dirs.state.join(name), RUN);
        }
        for own in [std::env::current_exe()?, compiler_path()] {
            self.grant(&own, RUN);
        }
        let policies = self.dirs.user_policies.clone();
        for policy in policies.iter().filter(|path| path.exists()) {
            // Behind a link it would not be there, and another policy in force.
            if policy.symlink_metadata()?.is_symlink() {
                return Err(Failure::new(format!("{} is a link", policy.display()))
                    .hint("in an agent's room only a policy that lies in its place can be seen"));
            }
        }
        let mut around: Vec<&Path> = policies.iter().filter_map(|path| path.parent()).collect();
        around.extend([self.dirs.cache.as_path(), Path::new("/etc/clash")]);
        for dir in around {
            let entries = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
            let projects = self.dirs.project_caches();
            for entry in entries.filter(|entry| entry.path() != projects) {
                self.grant(&entry.path(), Caps::READ);
            }
        }
        // Policies may build on them, whoever the agent is.
        for name in ["settings.json", "settings.local.json"] {
            let path = self.dirs.claude.join(name);
            if path.exists() && !self.fixed.contains(&path) {
                self.fixed.push(path);
            }
        }
        Ok(())
    }

    /// The plan, and for an agent that asks clash whether rooms can be made inside.
    fn plan(
        mut self,
        sandbox: &Sandbox,
        wired: bool,
    ) -> Result<(Plan, Option<Result<(), NoNesting>>), ExecError> {
        self.grants.retain(|grant| !grant.path.starts_with("/usr"));
        if !wired {
            return Ok((self.plan_for(sandbox.clone())?, None));
        }
        let mut plan = self.plan_for(self.protected(sandbox.clone()))?;
        match plan.with_rooms_inside() {
            // The plan as it was holds more, where launchers inside get nothing by
            // its not doing so.
            Err(why @ (NoNesting::NoRoom | NoNesting::Names(_))) => {
                Ok((self.plan_for(sandbox.clone())?, Some(Err(why))))
            }
            nesting => Ok((plan, Some(nesting))),
        }
    }

    /// Persistence paths as rules of their own, which mounts can hold: a room with
    /// rooms inside has nothing else. Those that do not exist yet are held by the
    /// rooms of the actions.
    fn protected(&self, mut sandbox: Sandbox) -> Sandbox {
        let protect = std::mem::take(&mut sandbox.protect);
        sandbox.protect.standard = false;
        let whole = |keep| matches!(keep, Keep::Always | Keep::Existing);
        let plain = entries(&protect).filter(|entry| whole(entry.keep));
        for entry in plain.filter(|entry| !entry.path.contains('*')) {
            let path = self.project.join(entry.path);
            let linked = path.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
            if path.exists() && !linked {
                hold(&mut sandbox, &path);
            }
        }
        sandbox
    }

    fn plan_for(&self, mut sandbox: Sandbox) -> Result<Plan, ExecError> {
        let disk = Disk::default();
        for path in &self.state {
            rule(&mut sandbox, path, Effect::Allow, Caps::ALL);
        }
        for path in &self.fixed {
            rule(&mut sandbox, path, Effect::Allow, Caps::READ);
            hold(&mut sandbox, path);
        }
        // The cage of an action would hide the agent's own state from it.
        let mut cage = self.dirs.cage(self.project, &disk);
        let fixed: Vec<PathBuf> = self.fixed.iter().map(|path| disk.real(path)).collect();
        let state: Vec<PathBuf> = self.state.iter().map(|path| disk.real(path)).collect();
        cage.retain(|path| {
            !state.iter().any(|state| path.starts_with(state)) && !fixed.contains(path)
        });
        let places = self.dirs.places_unseen(self.project, &disk);
        let request = Request {
            sandbox: &sandbox,
            places: &places,
            cage: &Cage { paths: cage },
            disk: &disk,
            extra: &self.grants,
            in_force: &PolicySandboxes { dirs: self.dirs, project: self.project, session: None },
            temporary: Temporary { session: None, host: &self.dirs.tmp },
            caches: self.caches.as_deref(),
        };
        let host = host::with_limit_facts(self.dirs.host(), &sandbox.limits);
        plan(&request, &host).map_err(|refusal| ExecError::NoPlan {
            sandbox: sandbox.name.clone(),
            refusal: Box::new(refusal),
        })
    }
}

/// Nothing changes there.
fn hold(sandbox: &mut Sandbox, path: &Path) {
    rule(sandbox, path, Effect::Deny, Caps::CHANGE);
}

fn rule(sandbox: &mut Sandbox, path: &Path, effect: Effect, caps: Caps) {
    let Some(path) = path.to_str() else { return };
    let pattern = PathPattern::Subpath { path: path.to_owned(), follow_worktrees: false };
    let span = sandbox.span.clone();
    sandbox.fs.push(FsRule { pattern, effect, caps, writes: Writes::InPlace, span });
}

/// The program that a shell would start, with every link resolved.
fn find(name: &OsStr) -> Option<PathBuf> {
    let named = Path::new(name);
    if named.components().count() > 1 {
        return named.canonicalize().ok().filter(|path| path.is_file());
    }
    let path = env::path_list();
    path.iter().map(|dir| dir.join(named)).find(|path| is_program(path))?.canonicalize().ok()
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path)
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Where the program and its interpreter are installed: what lies around them is
/// theirs, unless it is the user's whole home or the system.
fn installation(program: &Path, home: &Path) -> Vec<PathBuf> {
    let mut found = vec![around(program, home)];
    if let Some(interpreter) = interpreter(program) {
        found.push(around(&interpreter, home));
    }
    found
}

fn around(program: &Path, home: &Path) -> PathBuf {
    let modules = program.ancestors().filter(|dir| dir.ends_with("node_modules")).last();
    let dir = program.parent().unwrap_or(program);
    let prefix = dir.parent().filter(|_| dir.ends_with("bin"));
    let own = modules.or(prefix).unwrap_or(dir);
    let home = home.canonicalize().unwrap_or_else(|_| home.to_path_buf());
    let shared = [Path::new("/usr/local"), Path::new("/opt"), &home.join(".local")];
    let too_wide = home.starts_with(own) || shared.contains(&own);
    if too_wide { program.to_path_buf() } else { own.to_path_buf() }
}

/// What `#!` names, `env` looked through.
fn interpreter(program: &Path) -> Option<PathBuf> {
    use std::io::Read;
    let mut start = [0; 256];
    let mut file = std::fs::File::open(program).ok()?;
    let read = file.read(&mut start).ok()?;
    let start = String::from_utf8_lossy(start.get(..read)?).into_owned();
    let mut words = start.strip_prefix("#!")?.lines().next()?.split_whitespace();
    let first = words.next()?;
    let named = match Path::new(first).file_name() {
        Some(name) if name == "env" => words.find(|word| !word.starts_with('-'))?,
        _ => first,
    };
    find(OsStr::new(named))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_is_what_lies_around_the_program_and_no_more() {
        let home = Path::new("/home/u");
        for (program, expected) in [
            ("/opt/x/lib/node_modules/@a/b/cli.js", "/opt/x/lib/node_modules"),
            ("/x/node_modules/a/node_modules/b/c.js", "/x/node_modules"),
            ("/home/u/.venv/bin/aider", "/home/u/.venv"),
            ("/home/u/.local/bin/goose", "/home/u/.local/bin/goose"),
            ("/home/u/.local/share/claude/versions/2.1", "/home/u/.local/share/claude/versions"),
            ("/home/u/agent", "/home/u/agent"),
            ("/usr/local/bin/pi", "/usr/local/bin/pi"),
        ] {
            assert_eq!(around(Path::new(program), home), Path::new(expected));
        }
    }

    #[test]
    fn the_interpreter_is_found_through_env() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("agent");
        let of = |first: &str| {
            std::fs::write(&script, format!("{first}\nrest\n")).unwrap();
            interpreter(&script)
        };
        let shell = Path::new("/bin/sh").canonicalize().ok();
        assert_eq!(of("#!/bin/sh -e"), shell);
        assert_eq!(of("#!/usr/bin/env -S sh -e"), find(OsStr::new("sh")));
        assert_eq!(of("no script"), None);
    }
}
