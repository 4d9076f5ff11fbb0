//! `clash run`: runs a whole agent in a room of its own.
//!
//! The room is a sandbox of the policy (`agent`), with the agent's program and its own
//! state, but without the right to change the settings that steer it. If clash is
//! installed for the agent, clash works in the room as well: it reads policies, writes the
//! records of sessions, and makes a room inside the room for every action. An action then
//! has only the rights that both rooms grant. Clash does not start an agent in a project
//! whose settings switch its hooks off.
//!
//! Limit: the agent itself can create a settings file that does not exist when clash makes
//! the room, because there is nothing to mount on. Its actions cannot.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};

use clash_policy::path::LinkResolver;
use clash_policy::protect::{KeepMode, entries};
use clash_policy::{Effect, FileCaps, FsRule, PathPattern, Sandbox, WriteTarget};
use clash_sandbox::disk::Disk;
use clash_sandbox::host;
use clash_sandbox::launch;
use clash_sandbox::plan::nesting::NestingError;
use clash_sandbox::plan::{GrantReason, PathGrant, PlanRequest, SandboxPlan, TemporaryPaths, plan};

use super::dirs_and_project;
use crate::compiler::compiler_path;
use crate::dirs::{Dirs, create_private};
use crate::doors::door_program;
use crate::in_force::PolicySandboxes;
use crate::launcher::{self, HostileSettingsError, LauncherError, refuse_hostile_settings};
use crate::policy::LoadedPolicy;
use crate::remedy::Remedy;
use crate::session::sessions_dir;
use crate::ui::Failure;
use crate::{env, exit};
use clash_agents::homes::{self, AgentHome};
use clash_agents::{self as agents, Agent};

/// Run a whole agent in a sandbox
///
/// The agent and everything it starts see the project, the paths that the sandbox grants and
/// the agent's own state. They do not see keys, other projects and processes outside. If
/// clash is installed for the agent, the policy still decides each of its actions, and each
/// has a sandbox of its own inside. For any other agent this room is the only sandbox.
///
/// Exit status: the agent's own; 1 if settings of the project work against clash, 125 if
/// clash cannot set up the room, 126 if the program cannot be executed, 127 if it is not
/// found.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sandbox of the room
    #[arg(long, value_name = "NAME", default_value = "agent")]
    sandbox: String,
    /// The project (`$PWD` of policies); found from the working directory if not given
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// Print nothing about the room
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
    /// Compiles the policy, plans the room and becomes the agent. Returns only on failure.
    /// Refuses an unrestricted sandbox, and an agent that the project's settings keep from
    /// asking clash.
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let (dirs, project) = dirs_and_project(self.project)?;
        let [name, args @ ..] = self.command.as_slice() else {
            return Err(Failure { status: exit::USAGE, ..Failure::new("no agent to run") });
        };
        // Compiled before clash makes the room, where the compiled policy can only be read.
        let policy = LoadedPolicy::load(&dirs, &project, None)?;
        let sandbox = match launcher::sandbox_named(&policy, &self.sandbox) {
            Ok(sandbox) => sandbox,
            Err(error) => return Ok(launcher::report(&error)),
        };
        if sandbox.unrestricted {
            return Err(Failure::new(format!("sandbox {} is unrestricted", sandbox.name)));
        }
        let Some(program) = find_program(name) else {
            return Err(Failure {
                status: exit::NOT_FOUND,
                ..Failure::new(format!("`{}` not found", name.to_string_lossy()))
            });
        };
        let (env, _) = clash_sandbox::environment::scrub(env::all(), &sandbox.env);
        let known = agents::find_agent_by_program(name);
        let wired = known.filter(|agent| agent.is_wired(&dirs.for_agents(), &project));
        let who = Path::new(name).file_name().unwrap_or(name).to_string_lossy();
        let title = known.map_or(who.as_ref(), |agent| agent.title);
        check_settings(title, wired, &dirs, &project)?;
        let room =
            AgentRoom::new(&dirs, &project, homes::find_home(name), &program, wired.is_some())?;
        let (plan, nesting) = match room.plan(&sandbox, wired.is_some()) {
            Ok(planned) => planned,
            Err(error) => return Ok(launcher::report(&error)),
        };
        if !self.quiet {
            let how = how_confined(nesting.as_ref(), known);
            let _ =
                writeln!(std::io::stderr(), "clash: {who} runs in sandbox {}; {how}", plan.sandbox);
        }
        let command = launch::LaunchCommand {
            program: program.into_os_string(),
            args: args.to_vec(),
            env,
            cwd: None,
            ..launch::LaunchCommand::default()
        };
        let error = launch::run(&plan, &command, launch::LaunchHelper::default());
        Ok(launcher::report(&LauncherError::Launch { sandbox: plan.sandbox, error }))
    }
}

/// Fails if settings of the project or of the working directory work against clash. Most
/// clients obey a file that switches their hooks off without telling the user.
fn check_settings(
    title: &str,
    wired: Option<&Agent>,
    dirs: &Dirs,
    project: &Path,
) -> Result<(), Failure> {
    for dir in [project, &std::env::current_dir()?] {
        refuse_hostile_settings(dirs, dir, wired).map_err(|error| {
            Failure::new(format!("{title} is not started: {error}"))
                .hint(HostileSettingsError::HINT)
        })?;
    }
    Ok(())
}

/// Says how clash confines the agent's actions inside the room. Without a nesting, clash
/// does not see them.
fn how_confined(nesting: Option<&Result<(), NestingError>>, known: Option<&Agent>) -> String {
    match (nesting, known) {
        (Some(Ok(())), _) => "each action is judged and confined on its own inside".into(),
        (Some(Err(NestingError::Root)), _) => "each action is judged and confined on its own \
             inside, but root gets no rooms in a room: commands that need one, such as those \
             that write, are refused; run it as a user"
            .into(),
        (Some(Err(why)), _) => format!(
            "each action is judged and confined on its own inside, without a room of its own: {why}"
        ),
        (None, Some(Agent { name, .. })) => format!(
            "its actions are not judged, this room is all that confines them; `{}` has them judged",
            Remedy::Install { agent: (*name).to_owned() }
        ),
        (None, None) => "its actions are not judged, this room is all that confines them".into(),
    }
}

/// The room of an agent: the paths that it needs besides its sandbox.
struct AgentRoom<'a> {
    dirs: &'a Dirs,
    project: &'a Path,
    /// The agent's own state.
    state: Vec<PathBuf>,
    /// The settings in that state, which the agent may only read.
    fixed: Vec<PathBuf>,
    /// Other paths to read and programs to execute.
    grants: Vec<PathGrant>,
    /// The project's own caches, if the room itself writes there. The actions of an agent
    /// that clash is installed for have them in rooms of their own.
    caches: Option<PathBuf>,
}

const RUN: FileCaps = FileCaps::READ.union(FileCaps::EXECUTE);

impl<'a> AgentRoom<'a> {
    /// Collects the paths of the room. Creates the agent's state directories and, if clash is
    /// installed for the agent, those of clash.
    fn new(
        dirs: &'a Dirs,
        project: &'a Path,
        agent: Option<&AgentHome>,
        program: &Path,
        wired: bool,
    ) -> Result<Self, Failure> {
        let (state, fixed, grants) = (Vec::new(), Vec::new(), Vec::new());
        let disk = Disk::default();
        let caches = (!wired).then(|| dirs.caches_of(project, &disk));
        let mut room = Self { dirs, project, state, fixed, grants, caches };
        for place in agent.iter().flat_map(|home| home.places(&dirs.for_agents())) {
            if !place.is_file {
                // The agent itself would create it on its first start.
                create_private(&place.path).map_err(|error| {
                    Failure::new(format!("cannot create {}: {error}", place.path.display()))
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
            room.grant_own_places()?;
        }
        Ok(room)
    }

    /// Grants rights to a path by its real path. A missing path needs no grant.
    fn grant(&mut self, path: &Path, caps: FileCaps) {
        if let Ok(path) = path.canonicalize() {
            self.grants.push(PathGrant { path, caps, why: GrantReason::Launcher });
        }
    }

    /// Grants the paths that clash itself needs in the room. Sessions, caches and doors can
    /// be written; policies, clash's programs and the records of trust can only be read.
    /// Fails if a policy is a link.
    fn grant_own_places(&mut self) -> Result<(), Failure> {
        let sessions = sessions_dir(self.dirs);
        create_private(&sessions)?;
        self.grant(&sessions, FileCaps::ALL);
        let caches = self.dirs.caches_of(self.project, &Disk::default());
        for made in [caches, self.dirs.doors()] {
            create_private(&made)?;
            self.grant(&made, FileCaps::ALL);
        }
        for name in ["bin", "host", "trust"] {
            self.grant(&self.dirs.state.join(name), RUN);
        }
        for own in [std::env::current_exe()?, compiler_path(), door_program()] {
            self.grant(&own, RUN);
        }
        let policies = self.dirs.user_policies.clone();
        for policy in policies.iter().filter(|path| path.exists()) {
            // The room does not show the target of the link, so another policy would be in
            // force there.
            if policy.symlink_metadata()?.is_symlink() {
                return Err(Failure::new(format!("{} is a link", policy.display())).hint(
                    "put the policy itself in that place: an agent's room shows no link's target",
                ));
            }
        }
        let mut around: Vec<&Path> = policies.iter().filter_map(|path| path.parent()).collect();
        around.extend([self.dirs.cache.as_path(), Path::new("/etc/clash")]);
        for dir in around {
            let entries = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
            let projects = self.dirs.project_caches();
            for entry in entries.filter(|entry| entry.path() != projects) {
                self.grant(&entry.path(), FileCaps::READ);
            }
        }
        // A policy may take over rules from these settings.
        let settings = agents::settings_for_policies(&self.dirs.for_agents());
        for name in ["settings.json", "settings.local.json"] {
            let path = settings.join(name);
            if path.exists() && !self.fixed.contains(&path) {
                self.fixed.push(path);
            }
        }
        Ok(())
    }

    /// The plan. For an agent that clash is installed for, also whether rooms can be made
    /// inside; if not because of names or namespaces, the plan confines more instead.
    fn plan(
        mut self,
        sandbox: &Sandbox,
        wired: bool,
    ) -> Result<(SandboxPlan, Option<Result<(), NestingError>>), LauncherError> {
        self.grants.retain(|grant| !grant.path.starts_with("/usr"));
        if !wired {
            return Ok((self.plan_for(sandbox.clone())?, None));
        }
        let mut plan = self.plan_for(self.with_held_paths(sandbox.clone()))?;
        match plan.with_rooms_inside() {
            // Launchers inside make no rooms anyway, so the plan without rooms inside is
            // used, which confines more.
            Err(why @ (NestingError::NoRoom | NestingError::Names(_))) => {
                Ok((self.plan_for(sandbox.clone())?, Some(Err(why))))
            }
            nesting => Ok((plan, Some(nesting))),
        }
    }

    /// The sandbox with its persistence paths as rules that mounts can enforce: a room with
    /// rooms inside has no other mechanism. The rooms of the actions protect persistence
    /// paths that do not exist yet.
    fn with_held_paths(&self, mut sandbox: Sandbox) -> Sandbox {
        let protect = std::mem::take(&mut sandbox.protect);
        sandbox.protect.standard = false;
        let whole = |keep| matches!(keep, KeepMode::Always | KeepMode::Existing);
        let plain = entries(&protect).filter(|entry| whole(entry.keep));
        for entry in plain.filter(|entry| !entry.path.contains('*')) {
            let path = self.project.join(entry.path);
            let linked = path.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
            if path.exists() && !linked {
                deny_changes(&mut sandbox, &path);
            }
        }
        sandbox
    }

    /// Plans the sandbox with the agent's state and its read-only settings. The cage leaves
    /// them out: it would hide the agent's own state from the agent.
    fn plan_for(&self, mut sandbox: Sandbox) -> Result<SandboxPlan, LauncherError> {
        let disk = Disk::default();
        for path in &self.state {
            add_rule(&mut sandbox, path, Effect::Allow, FileCaps::ALL);
        }
        for path in &self.fixed {
            add_rule(&mut sandbox, path, Effect::Allow, FileCaps::READ);
            deny_changes(&mut sandbox, path);
        }
        let mut cage = self.dirs.cage(self.project, &disk);
        let fixed: Vec<PathBuf> = self.fixed.iter().map(|path| disk.real(path)).collect();
        let state: Vec<PathBuf> = self.state.iter().map(|path| disk.real(path)).collect();
        cage.retain(|path| {
            !state.iter().any(|state| path.starts_with(state)) && !fixed.contains(path)
        });
        let places = self.dirs.places_unseen(self.project, &disk);
        let request = PlanRequest {
            sandbox: &sandbox,
            places: &places,
            cage: &self.dirs.cage_paths(cage),
            disk: &disk,
            extra: &self.grants,
            in_force: &PolicySandboxes { dirs: self.dirs, project: self.project, session: None },
            temporary: TemporaryPaths { session: None, host: &self.dirs.tmp },
            caches: self.caches.as_deref(),
            doors: &[],
        };
        let host = host::with_limit_facts(self.dirs.host(), &sandbox.limits);
        plan(&request, &host).map_err(|refusal| LauncherError::NoPlan {
            sandbox: sandbox.name.clone(),
            refusal: Box::new(refusal),
        })
    }
}

/// Denies changes of a path.
fn deny_changes(sandbox: &mut Sandbox, path: &Path) {
    add_rule(sandbox, path, Effect::Deny, FileCaps::CHANGE);
}

/// Adds a rule for a path and everything below it. A path that is not UTF-8 gets none.
fn add_rule(sandbox: &mut Sandbox, path: &Path, effect: Effect, caps: FileCaps) {
    let Some(path) = path.to_str() else { return };
    let pattern = PathPattern::Subpath { path: path.to_owned(), follow_worktrees: false };
    let span = sandbox.span.clone();
    sandbox.fs.push(FsRule { pattern, effect, caps, writes: WriteTarget::InPlace, span });
}

/// The program that a shell would start, without links. `None` if there is none. A path with
/// a `/` counts even if it is not executable.
fn find_program(name: &OsStr) -> Option<PathBuf> {
    let named = Path::new(name);
    if named.components().count() > 1 {
        return named.canonicalize().ok().filter(|path| path.is_file());
    }
    let path = env::path_list();
    path.iter().map(|dir| dir.join(named)).find(|path| is_program(path))?.canonicalize().ok()
}

/// True for a file with an execute bit.
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path)
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The directories in which the program and its interpreter are installed.
fn installation(program: &Path, home: &Path) -> Vec<PathBuf> {
    let mut found = vec![installation_dir(program, home)];
    if let Some(interpreter) = interpreter(program) {
        found.push(installation_dir(&interpreter, home));
    }
    found
}

/// The directory that belongs to a program: the outermost `node_modules`, the directory above
/// `bin`, or its own. Only the program itself if that directory is shared, for example
/// `/usr/local`, or contains the home.
fn installation_dir(program: &Path, home: &Path) -> PathBuf {
    let modules = program.ancestors().filter(|dir| dir.ends_with("node_modules")).last();
    let dir = program.parent().unwrap_or(program);
    let prefix = dir.parent().filter(|_| dir.ends_with("bin"));
    let own = modules.or(prefix).unwrap_or(dir);
    let home = home.canonicalize().unwrap_or_else(|_| home.to_path_buf());
    let shared = [Path::new("/usr/local"), Path::new("/opt"), &home.join(".local")];
    let too_wide = home.starts_with(own) || shared.contains(&own);
    if too_wide { program.to_path_buf() } else { own.to_path_buf() }
}

/// The interpreter in the `#!` line of a script; for `env`, the program that it starts.
/// `None` for another file, or if it is not found.
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
    find_program(OsStr::new(named))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_is_the_directory_of_the_program() {
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
            assert_eq!(installation_dir(Path::new(program), home), Path::new(expected));
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
        assert_eq!(of("#!/usr/bin/env -S sh -e"), find_program(OsStr::new("sh")));
        assert_eq!(of("no script"), None);
    }
}
