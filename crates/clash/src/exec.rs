//! The launcher's entry: from a command to the room it runs in.
//!
//! It never trusts that a hook ran. The command is decided here again, by the
//! same policy; an approval left by the hook only answers an *ask*. Then the
//! plan is made and this very process becomes the command.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};

use clash_policy::decide::Decision;
use clash_policy::{Action, Caps, Effect, Sandbox, World, steering};
use clash_sandbox::facts::{HostFacts, RoomSupport};
use clash_sandbox::host::{self, HostRecord};
use clash_sandbox::launch::{self, Ahead, LaunchError};
use clash_sandbox::plan::cache::has_caches;
use clash_sandbox::plan::{Cage, Grant, Refusal, Request, Temporary, Why, plan};

use crate::agents;
use crate::agents::claude::{self, shell_prefix};
use crate::approval::{Approval, ApprovalError};
use crate::cmd::no_such;
use crate::decision::{self, DecisionError, Scene};
use crate::dirs::{Dirs, NoHome, project_of};
use crate::in_force::PolicySandboxes;
use crate::policy::{LoadedPolicy, PolicyError};
use crate::session::{Session, SessionError};
use crate::ssh_agent::{self, LentAgent};
use crate::temporary::{self, Held};
use crate::trace::{self, Record, TraceError};
use crate::{env, exit, say};
use clash_agents::shell_quoted;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecError {
    #[error("usage: clash exec [--approval ID] -- COMMAND [ARG …]")]
    Usage,
    #[error("cannot find the working directory: {0}")]
    WorkingDirectory(std::io::Error),
    #[error(transparent)]
    NoHome(#[from] NoHome),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Decision(#[from] DecisionError),
    #[error(transparent)]
    Approval(#[from] ApprovalError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("{0}")]
    Refused(String),
    #[error("sandbox {sandbox} cannot be set up: {refusal}")]
    NoPlan { sandbox: String, refusal: Box<Refusal> },
    #[error("sandbox {sandbox}: {error}")]
    Launch { sandbox: String, error: LaunchError },
    #[error("no hook of clash ran in this session of the agent, so nothing of it is decided")]
    NoSession,
    #[error("there is no sandbox `{name}`")]
    NoSandbox { name: String, known: Vec<String> },
    #[error("the shell string of the agent is not text")]
    NotText,
    #[error("cannot prepare {}: {source}", path.display())]
    CwdFile { path: PathBuf, source: std::io::Error },
    #[error("cannot make the session's temporary directory in {}: {source}", path.display())]
    Temporary { path: PathBuf, source: std::io::Error },
}

impl ExecError {
    fn status(&self) -> u8 {
        match self {
            Self::Usage => exit::USAGE,
            Self::Refused(_) | Self::Approval(_) | Self::NoSession => exit::REFUSED,
            Self::Session(SessionError::Root(_)) => exit::REFUSED,
            Self::Launch { error: LaunchError::OutOfTime { .. }, .. } => exit::OUT_OF_TIME,
            Self::Launch { error: LaunchError::NotFound { .. }, .. } => exit::NOT_FOUND,
            Self::Launch { error: LaunchError::NotExecutable { .. }, .. } => exit::REFUSED,
            _ => exit::NO_SANDBOX,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NoPlan { refusal, .. } => refusal.hint(),
            Self::NoSession => {
                Some("something switches its hooks off; `clash doctor` says what".to_owned())
            }
            Self::NoSandbox { name, known } => {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                Some(no_such(name, &known))
            }
            Self::Launch { error: LaunchError::NotExecutable { .. }, sandbox } => {
                Some(format!("`clash sandbox show {sandbox}` lists what it may execute"))
            }
            _ => None,
        }
    }
}

/// A launch only comes back when it failed.
fn status(result: Result<Never, ExecError>) -> u8 {
    match result {
        Ok(never) => match never {},
        Err(error) => report(&error),
    }
}

/// Says what went wrong, with its cause, and gives the exit status.
pub(crate) fn report(error: &ExecError) -> u8 {
    let mut text = format!("clash: {error}");
    let mut source = match error {
        ExecError::Launch { error, .. } => std::error::Error::source(error),
        ExecError::NoPlan { refusal, .. } => std::error::Error::source(refusal.as_ref()),
        other => std::error::Error::source(other),
    };
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    if let Some(hint) = error.hint() {
        text.push_str(&format!("\n\nhint: {hint}"));
    }
    let _ = writeln!(std::io::stderr(), "{text}");
    error.status()
}

/// `clash exec …`
pub(crate) fn main(args: &[OsString]) -> u8 {
    status(exec(args))
}

/// `clash-shell STRING`, put by the agent in front of everything its shell runs.
pub(crate) fn shell_main(args: &[OsString]) -> u8 {
    status(shell(args))
}

/// `clash-sh -c SCRIPT`, the shell that an agent is set to.
pub(crate) fn sh_main(args: &[OsString]) -> u8 {
    status(sh(args))
}

/// `clash sandbox exec NAME -- COMMAND …`, where the user says which sandbox.
/// `None`: the arguments are for the parser, which knows how to complain.
pub(crate) fn sandbox_main(args: &[OsString]) -> Option<u8> {
    let [name, rest @ ..] = args else { return None };
    let command = match rest {
        [dashes, command @ ..] if dashes == "--" => command,
        command => command,
    };
    let name = name.to_str().filter(|name| !name.starts_with('-'))?;
    if command.first().is_none_or(|word| word.as_encoded_bytes().starts_with(b"-")) {
        return None;
    }
    let dirs = Dirs::from_env().ok()?;
    let project = project_of(&std::env::current_dir().ok()?, &dirs.home);
    Some(in_named(dirs, None, &project, name, command))
}

/// The host may be another than this one, which makes the planner choose other
/// mechanisms for the same rules.
pub(crate) fn in_named(
    dirs: Dirs,
    host: Option<HostFacts>,
    project: &Path,
    name: &str,
    command: &[OsString],
) -> u8 {
    let run = || {
        let [program, args @ ..] = command else { return Err(ExecError::Usage) };
        let sandbox = named(&LoadedPolicy::load(&dirs, project, None)?, name)?;
        let room = Room { dirs, session: None, project: project.to_path_buf() };
        room.launch_on(host, "", &sandbox, &[], program, args)
    };
    status(run())
}

/// A sandbox of the policy by its name.
pub(crate) fn named(policy: &LoadedPolicy, name: &str) -> Result<Sandbox, ExecError> {
    let mut known = Vec::new();
    for sandbox in policy.sandboxes().map_err(PolicyError::from)? {
        let this = sandbox.name().map_err(PolicyError::from)?;
        if this == name {
            return Ok(sandbox.to_sandbox().map_err(PolicyError::from)?);
        }
        known.push(this.to_owned());
    }
    known.sort();
    Err(ExecError::NoSandbox { name: name.to_owned(), known })
}

type Never = std::convert::Infallible;

fn exec(args: &[OsString]) -> Result<Never, ExecError> {
    let (approval, command) = match args {
        [option, id, dashes, command @ ..] if option == "--approval" && dashes == "--" => {
            (Some(id.to_str().ok_or(ExecError::Usage)?), command)
        }
        [dashes, command @ ..] if dashes == "--" => (None, command),
        [first, ..] if !first.as_encoded_bytes().starts_with(b"-") => (None, args),
        _ => return Err(ExecError::Usage),
    };
    let [program, arguments @ ..] = command else { return Err(ExecError::Usage) };
    match approval {
        Some(id) => {
            let script =
                program.to_str().filter(|_| arguments.is_empty()).ok_or(ExecError::Usage)?;
            approved_script(id, script)
        }
        None => {
            let room = Room::here()?;
            let words: Vec<String> =
                command.iter().map(|word| shell_quoted(&word.to_string_lossy())).collect();
            let decision = room.decide(&words.join(" "), "")?;
            let sandbox = room.settle(&words.join(" "), decision, None)?;
            room.launch(&words.join(" "), &sandbox, &[], program, arguments)
        }
    }
}

fn shell(args: &[OsString]) -> Result<Never, ExecError> {
    let [string] = args else { return Err(ExecError::Usage) };
    let string = string.to_str().ok_or(ExecError::NotText)?;
    let room = Room::here()?;
    // Only commands of the agent are wrapped; what a project's settings start
    // could look like a wrapper and is taken as it stands.
    let by_agent = env::text(env::AI_AGENT).is_some_and(|agent| agent.ends_with("_agent"));
    if by_agent && room.session.is_none() {
        return Err(ExecError::NoSession);
    }
    // There it can neither read settings nor make rooms, and would say so about each.
    if env::text(env::SANDBOX_RUNTIME).is_some() {
        return Err(ExecError::Refused(
            "Claude Code's own sandbox is around this command, where clash cannot do its work: \
             switch `sandbox` off in its settings, clash confines every command"
                .to_owned(),
        ));
    }
    if let Some(problem) = claude::hostile_settings(&room.dirs.for_agents(), &room.project) {
        return Err(ExecError::Refused(format!(
            "nothing can be confined in this project: {problem}"
        )));
    }
    let parsed = || {
        let plain = shell_prefix::parse(string);
        plain.or_else(|| shell_prefix::parse_with_session_env(string, &room.session_env()))
    };
    let call = if by_agent { parsed().filter(|call| is_in_place(call, &room.dirs)) } else { None };
    let script = call.as_ref().map_or(string, |call| call.script.as_str());
    let approval = match &room.session {
        Some(session) => Approval::take_any(session, script)?,
        None => None,
    };
    let mode = approval.as_ref().map_or("", |approval| approval.mode.as_str());
    let mut decision = room.decide(script, mode)?;
    if !by_agent && decision.effect == Effect::Ask {
        // A hook or a server from the settings: the user who wrote them there
        // has answered, and it still runs in the sandbox.
        decision.effect = Effect::Allow;
    }
    let sandbox = room.settle(script, decision, approval)?;
    let mut extra = match &call {
        Some(call) => wrapper_grants(call)?,
        None => Vec::new(),
    };
    let outputs = room.session.as_ref().and_then(|session| {
        claude::background_outputs(&room.dirs.for_agents(), &session.project, &session.id)
            .filter(|_| script.contains(&session.id))
    });
    extra.extend(outputs.map(|path| Grant { path, caps: Caps::READ, why: Why::Launcher }));
    let (shell, argument) = (shell_program(), OsString::from("-c"));
    room.launch(script, &sandbox, &extra, &shell, &[argument, OsString::from(string)])
}

/// Nothing runs without a session: where the agent's plugin did not load, nothing
/// else it does is judged either.
fn sh(args: &[OsString]) -> Result<Never, ExecError> {
    let [option, script] = args else { return Err(ExecError::Usage) };
    let script = script.to_str().filter(|_| option == "-c").ok_or(ExecError::Usage)?;
    let id = env::text(env::CLASH_SESSION).ok_or(ExecError::NoSession)?;
    let room = Room::of(Some(&id))?;
    let session = room.session.as_ref().ok_or(ExecError::NoSession)?;
    let agent = agents::named(&session.agent);
    if let Some(problem) =
        agent.and_then(|agent| (agent.hostile)(&room.dirs.for_agents(), &room.project))
    {
        let why = format!("nothing can be confined in this project: {problem}");
        return Err(ExecError::Refused(why));
    }
    let approval = Approval::take_any(session, script)?;
    let mode = approval.as_ref().map_or("", |approval| approval.mode.as_str());
    let decision = room.decide(script, mode)?;
    let sandbox = room.settle(script, decision, approval)?;
    room.launch(script, &sandbox, &[], &shell_program(), &["-c".into(), script.into()])
}

/// What the client's own lines around the script touch: files it sources, the
/// client itself (its snapshots replace `grep`, `rg` and `find` with it), and the
/// file it reads the final working directory from. The last is created here,
/// because a grant needs a file to hold on to. Its name can be guessed, so
/// whatever another command left under it is removed and never followed.
fn wrapper_grants(call: &shell_prefix::Call) -> Result<Vec<Grant>, ExecError> {
    let grant = |path: &Path, caps| Grant { path: path.to_path_buf(), caps, why: Why::Launcher };
    let sources = call.sources.iter().filter(|path| path.exists());
    let mut grants: Vec<Grant> = sources.map(|path| grant(path, Caps::READ)).collect();
    let client = env::path(env::CLAUDE_CODE_EXECPATH).and_then(|path| path.canonicalize().ok());
    let own = client.filter(|path| is_program(path));
    grants.extend(own.map(|path| grant(&path, Caps::READ.union(Caps::EXECUTE))));
    if let Some(path) = &call.cwd_file {
        let failed = |source| ExecError::CwdFile { path: path.clone(), source };
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed(error));
            }
            _ => {}
        }
        std::fs::File::options().write(true).create_new(true).open(path).map_err(failed)?;
        grants.push(grant(path, Caps::READ.union(Caps::WRITE)));
    }
    Ok(grants)
}

/// The variable that names the client is no secret keeper: only what may be
/// executed anyway is granted through it.
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path)
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Whether the wrapper's files lie where the client keeps them.
fn is_in_place(call: &shell_prefix::Call, dirs: &Dirs) -> bool {
    let in_dir = |path: &PathBuf, dir: &Path| path.parent() == Some(dir);
    let snapshots = dirs.claude.join("shell-snapshots");
    let temporary = [dirs.tmp.as_path(), Path::new("/tmp")];
    call.sources.iter().all(|path| in_dir(path, &snapshots))
        && call.cwd_file.iter().all(|path| temporary.iter().any(|dir| in_dir(path, dir)))
}

fn shell_program() -> OsString {
    let known = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name == "bash" || name == "zsh") && path.exists()
    };
    let fallback =
        || ["/bin/bash", "/usr/bin/bash"].into_iter().map(PathBuf::from).find(|p| p.exists());
    let shell = env::path(env::SHELL).filter(known).or_else(fallback);
    shell.unwrap_or_else(|| PathBuf::from("/bin/sh")).into_os_string()
}

/// Where a command is about to run, before its sandbox is known.
struct Room {
    dirs: Dirs,
    session: Option<Session>,
    project: PathBuf,
}

/// The script a hook put behind `clash exec --approval SESSION.SLIP`.
fn approved_script(id: &str, script: &str) -> Result<Never, ExecError> {
    let unknown = || ApprovalError::Unknown(id.chars().take(60).collect());
    let (session, slip) = id.split_once('.').ok_or_else(unknown)?;
    let room = Room::of(Some(session))?;
    let session = room.session.as_ref().ok_or_else(unknown)?;
    // Where the client says whose a command is, that must agree.
    let told = agents::named(&session.agent).and_then(|agent| agent.abilities.session);
    if told.is_some_and(|variable| env::text(variable).as_deref() != Some(&session.id)) {
        return Err(unknown().into());
    }
    let approval = Approval::take(session, slip, script)?;
    let decision = room.decide(script, &approval.mode)?;
    let sandbox = room.settle(script, decision, Some(approval))?;
    room.launch(script, &sandbox, &[], &shell_program(), &["-c".into(), script.into()])
}

impl Room {
    fn here() -> Result<Self, ExecError> {
        Self::of(env::text(env::CLAUDE_CODE_SESSION_ID).as_deref())
    }

    fn of(session: Option<&str>) -> Result<Self, ExecError> {
        let dirs = Dirs::from_env()?;
        let session = match session.map(|id| Session::open(&dirs, id)) {
            Some(Ok(session)) => Some(session),
            Some(Err(SessionError::Unknown(_) | SessionError::BadId(_))) | None => None,
            Some(Err(error)) => return Err(error.into()),
        };
        let dirs = match &session {
            Some(session) => dirs.in_session(&session.dir),
            None => dirs,
        };
        let project = match &session {
            Some(session) => {
                session.check_root().or_else(|error| {
                    let reason = Some(error.to_string());
                    Record { reason, ..Record::new(session, trace::Event::Alarm) }
                        .append(session)?;
                    Err(ExecError::Session(error.into()))
                })?;
                session.project.clone()
            }
            None => {
                let here = std::env::current_dir().map_err(ExecError::WorkingDirectory)?;
                project_of(&here, &dirs.home)
            }
        };
        Ok(Self { dirs, session, project })
    }

    /// The lines the client copies in front of every command of the session.
    fn session_env(&self) -> String {
        let read = |path: PathBuf| std::fs::read_to_string(path).ok();
        let mut files: Vec<PathBuf> = self
            .session
            .iter()
            .filter_map(|s| {
                std::fs::read_dir(self.dirs.claude.join("session-env").join(&s.id)).ok()
            })
            .flatten()
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .collect();
        files.sort();
        let texts = env::path(env::CLAUDE_ENV_FILE).into_iter().chain(files).filter_map(read);
        texts.map(|text| text.trim().to_owned()).collect::<Vec<_>>().join("\n")
    }

    fn decide(&self, script: &str, mode: &str) -> Result<Decision, ExecError> {
        let agent = self.session.as_ref().map_or("terminal", |session| session.agent.as_str());
        let action = Action::script(agent, mode, script);
        let session = self.session.as_ref().map(|session| session.dir.as_path());
        // Without a working directory no relative name is resolved.
        let cwd = std::env::current_dir().unwrap_or_default();
        let scene = Scene { project: &self.project, session, cwd: &cwd };
        Ok(decision::decide(&self.dirs, scene, &action)?)
    }

    /// The sandbox of a decision that lets the command run.
    fn settle(
        &self,
        script: &str,
        decision: Decision,
        approval: Option<Approval>,
    ) -> Result<Sandbox, ExecError> {
        let reason = say::reason(&decision);
        let refused = |why: &str| {
            self.trace(trace::Event::Decision, script, Some((Effect::Deny, &reason)), None)?;
            Err(ExecError::Refused(format!("{reason}{why}")))
        };
        let Some(sandbox) = decision.sandbox else { return refused("") };
        match (decision.effect, approval) {
            (Effect::Deny, _) => refused(""),
            (Effect::Allow, _) => Ok(sandbox),
            (Effect::Ask, Some(approval)) if approval.sandbox == sandbox.name => Ok(sandbox),
            (Effect::Ask, Some(_)) => refused(", and the policy changed since it was given"),
            (Effect::Ask, None) => refused(", and there is nobody to ask here"),
        }
    }

    fn trace(
        &self,
        event: trace::Event,
        script: &str,
        effect: Option<(Effect, &str)>,
        sandbox: Option<&str>,
    ) -> Result<(), ExecError> {
        let Some(session) = &self.session else { return Ok(()) };
        let record = Record {
            what: Some(script.to_owned()),
            effect: effect.map(|(effect, _)| effect.to_string()),
            reason: effect.map(|(_, reason)| reason.to_owned()),
            sandbox: sandbox.map(str::to_owned),
            pid: Some(std::process::id()),
            ..Record::new(session, event)
        };
        Ok(record.append(session)?)
    }

    /// Plans the sandbox and becomes the command.
    fn launch(
        &self,
        what: &str,
        sandbox: &Sandbox,
        extra: &[Grant],
        program: &OsStr,
        args: &[OsString],
    ) -> Result<Never, ExecError> {
        self.launch_on(None, what, sandbox, extra, program, args)
    }

    fn launch_on(
        &self,
        host: Option<HostFacts>,
        what: &str,
        sandbox: &Sandbox,
        extra: &[Grant],
        program: &OsStr,
        args: &[OsString],
    ) -> Result<Never, ExecError> {
        if sandbox.unrestricted {
            return self.launch_unconfined(what, &sandbox.name, program, args);
        }
        let (ahead, host) = match host {
            Some(host) if host.rooms == RoomSupport::Unprivileged => (Ahead::start(sandbox), host),
            Some(host) => (Ahead::default(), host),
            None => self.begin(sandbox),
        };
        // Held until the command has ended: this process stays until then.
        let tmp = self.temporary(sandbox)?;
        let disk = host.disk();
        let agent = self.lend_agent(what, sandbox, &host);
        let narrowed = agent.as_ref().map(|_| ssh_agent::without_shared_tmp(sandbox));
        let sandbox = narrowed.as_ref().unwrap_or(sandbox);
        let mut extra = extra.to_vec();
        extra.extend(agent.iter().map(|agent| Grant {
            path: agent.socket.clone(),
            caps: Caps::READ.union(Caps::WRITE),
            why: Why::Launcher,
        }));
        let extra = extra.as_slice();
        let places = self.dirs.places_unseen(&self.project, &disk);
        let session = self.session.as_ref().map(|session| session.dir.as_path());
        let in_force = PolicySandboxes { dirs: &self.dirs, project: &self.project, session };
        crate::caches::make_missing(sandbox, &places, &disk, &in_force);
        let cage = Cage { paths: self.dirs.cage(&self.project, &disk) };
        let held = tmp.as_ref().map(|held| held.path.as_path());
        let temporary = Temporary { session: held, host: &self.dirs.tmp };
        let caches = has_caches(sandbox).then(|| self.dirs.caches_of(&self.project, &disk));
        let request = Request {
            sandbox,
            places: &places,
            cage: &cage,
            disk: &disk,
            extra,
            in_force: &in_force,
            temporary,
            caches: caches.as_deref(),
        };
        let host = host::with_limit_facts(host, &sandbox.limits);
        let plan = plan(&request, &host).map_err(|refusal| ExecError::NoPlan {
            sandbox: sandbox.name.clone(),
            refusal: Box::new(refusal),
        })?;
        let (mut env, _) = clash_sandbox::environment::scrub(env::all(), &sandbox.env);
        let world = World {
            places: &places,
            cwd: &self.project,
            links: &disk,
            baseline: &[],
            cage: &[],
            lent: None,
        };
        if steering::reads_credentials(sandbox, &world) {
            env.retain(|(name, value)| !clash_sandbox::environment::names_program(name, value));
        }
        env.retain(|(name, _)| name != env::CLASH_SANDBOX && name != steering::SSH_AGENT_SOCKET);
        if let Some(agent) = &agent {
            env.push((steering::SSH_AGENT_SOCKET.into(), agent.socket.clone().into()));
        }
        env.push((env::CLASH_SANDBOX.into(), sandbox.name.clone().into()));
        // A room shows the home at its real path alone.
        if self.dirs.home != places.home {
            env::name_home(&mut env, &self.dirs.home, &places.home);
        }
        self.trace(trace::Event::Launch, what, None, Some(&sandbox.name))?;
        let command =
            launch::Command { program: program.to_owned(), args: args.to_vec(), env, cwd: None };
        let error = launch::run(&plan, &command, ahead);
        Err(ExecError::Launch { sandbox: sandbox.name.clone(), error })
    }

    /// The agent of ssh, where the sandbox wants it and a room can have it.
    fn lend_agent(&self, what: &str, sandbox: &Sandbox, host: &HostFacts) -> Option<LentAgent> {
        if !ssh_agent::is_wanted(sandbox, what, &self.project, &self.dirs) {
            return None;
        }
        let lent = if matches!(host.rooms, RoomSupport::Impossible { .. }) {
            Err("this machine has no user namespaces, so no socket can be lent".to_owned())
        } else if ssh_agent::mentions_tmp(what, &self.dirs.tmp) {
            Err("the command uses the temporary directory, where other sockets are".to_owned())
        } else {
            ssh_agent::lend(&self.dirs)
        };
        lent.map_err(|why| {
            let sandbox = &sandbox.name;
            let _ =
                writeln!(std::io::stderr(), "clash: sandbox {sandbox} gets no key of ssh: {why}");
        })
        .ok()
    }

    /// The session's temporary directory, if the sandbox uses it.
    fn temporary(&self, sandbox: &Sandbox) -> Result<Option<Held>, ExecError> {
        let session = self.session.as_ref().filter(|_| temporary::is_used_by(sandbox));
        let held = session.map(|session| temporary::hold(&session.dir)).transpose();
        held.map_err(|source| ExecError::Temporary { path: self.dirs.state.clone(), source })
    }

    /// What is on record of this machine is believed for as long as it takes to see
    /// whether it is still true.
    fn begin(&self, sandbox: &Sandbox) -> (Ahead, HostFacts) {
        let file = self.dirs.host_record();
        let recorded = HostRecord::read(&file);
        let ahead =
            if recorded.promises_rooms() { Ahead::start(sandbox) } else { Ahead::default() };
        (ahead, recorded.facts())
    }

    /// Becomes the command without any confinement, because a trusted policy
    /// says so by name.
    fn launch_unconfined(
        &self,
        what: &str,
        sandbox: &str,
        program: &OsStr,
        args: &[OsString],
    ) -> Result<Never, ExecError> {
        use std::os::unix::process::CommandExt;
        self.trace(trace::Event::Launch, what, None, Some(sandbox))?;
        let source = std::process::Command::new(program).args(args).exec();
        let program = program.to_owned();
        let error = match source.kind() {
            std::io::ErrorKind::NotFound => LaunchError::NotFound { program },
            _ => LaunchError::NotExecutable { program, source },
        };
        Err(ExecError::Launch { sandbox: sandbox.to_owned(), error })
    }
}
