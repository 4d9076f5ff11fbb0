//! The entries of the launcher: how each reads its arguments and finds its session.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clash_agents::agent_with_shell_wrapper;
use clash_policy::Sandbox;
use clash_sandbox::facts::HostFacts;
use clash_sandbox::launch;
use clash_shell::command_line;

use super::confine::GivenParts;
use super::context::LaunchContext;
use super::error::status;
use super::refuse_hostile_settings;
use super::shell_string::ShellString;
use super::{ApprovalSource, LauncherError, Never, RequestedCommand, StartedBy};
use crate::approval::ApprovalError;
use crate::dirs::{Dirs, project_of};
use crate::policy::{LoadedPolicy, PolicyError};
use crate::{env, ui};

/// `clash exec …`
pub(crate) fn exec_main(args: &[OsString]) -> u8 {
    launch::close_inherited_descriptors();
    status(exec(args))
}

/// `clash-shell STRING`: the agent puts it in front of every command of its shell.
pub(crate) fn shell_main(args: &[OsString]) -> u8 {
    launch::close_inherited_descriptors();
    status(shell(args))
}

/// `clash-sh -c SCRIPT`: the shell that an agent is set to.
pub(crate) fn sh_main(args: &[OsString]) -> u8 {
    launch::close_inherited_descriptors();
    status(sh(args))
}

/// `clash sandbox exec NAME -- COMMAND …`, where the user names the sandbox. Returns
/// `None` for arguments that only the command line parser can judge.
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
    Some(launch_in_named(dirs, None, &project, name, command))
}

/// Runs a command in the sandbox of this name. For another host than this one the planner
/// chooses other mechanisms for the same rules.
pub(crate) fn launch_in_named(
    dirs: Dirs,
    host: Option<HostFacts>,
    project: &Path,
    name: &str,
    command: &[OsString],
) -> u8 {
    let run = || {
        let [program, args @ ..] = command else { return Err(LauncherError::Usage) };
        refuse_hostile_settings(&dirs, project, None)?;
        let sandbox = sandbox_named(&LoadedPolicy::load(&dirs, project, None)?, name)?;
        let (project, action) = (project.to_path_buf(), OnceCell::new());
        let context = LaunchContext { dirs, session: None, project, action };
        // This entry is for trying a sandbox out.
        let command =
            RequestedCommand { may_detach: false, ..RequestedCommand::new("", program, args) };
        context.confine(host, &sandbox, &[], &command, None, GivenParts::own())
    };
    status(run())
}

/// The sandbox of this name in the policy, the strongest layer first. The error for an
/// unknown name lists the known ones.
pub(crate) fn sandbox_named(policy: &LoadedPolicy, name: &str) -> Result<Sandbox, LauncherError> {
    let mut known = Vec::new();
    for sandbox in policy.sandboxes().map_err(PolicyError::from)? {
        let this = sandbox.name().map_err(PolicyError::from)?;
        if this == name {
            return Ok(sandbox.to_sandbox().map_err(PolicyError::from)?);
        }
        known.push(this.to_owned());
    }
    known.sort();
    Err(LauncherError::NoSandbox { name: name.to_owned(), known })
}

/// Runs `clash exec`: a command, or with `--approval` a script that the hook approved. Only a
/// person at a terminal, outside a session, can be asked.
fn exec(args: &[OsString]) -> Result<Never, LauncherError> {
    let (approval, command) = match args {
        [option, id, dashes, command @ ..] if option == "--approval" && dashes == "--" => {
            (Some(id.to_str().ok_or(LauncherError::Usage)?), command)
        }
        [dashes, command @ ..] if dashes == "--" => (None, command),
        [first, ..] if !first.as_encoded_bytes().starts_with(b"-") => (None, args),
        _ => return Err(LauncherError::Usage),
    };
    let [program, arguments @ ..] = command else { return Err(LauncherError::Usage) };
    if let Some(id) = approval {
        let script = program.to_str().filter(|_| arguments.is_empty());
        return approved_script(id, script.ok_or(LauncherError::Usage)?);
    }
    let context = LaunchContext::for_session(env::client_session().as_deref())?;
    let words: Vec<String> =
        command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let line = command_line(&words);
    let command = RequestedCommand::new(&line, program, arguments);
    let agent = context.agent();
    let is_person = context.session.is_none() && ui::can_ask();
    let started_by = if is_person { StartedBy::Person } else { StartedBy::Caller };
    context.launch(&command, agent, &ApprovalSource::None, started_by, &no_grants)
}

/// The script that a hook put behind `clash exec --approval SESSION.SLIP --`.
fn approved_script(id: &str, script: &str) -> Result<Never, LauncherError> {
    let unknown = || ApprovalError::Unknown(id.chars().take(60).collect());
    let (session, slip) = id.split_once('.').ok_or_else(unknown)?;
    let context = LaunchContext::for_session_named(Some(session))?;
    let session = context.session.as_ref().ok_or_else(unknown)?;
    // A client that names the session of its commands must name this one.
    let told = context.agent().and_then(|agent| agent.abilities.session);
    if told.is_some_and(|variable| env::text(variable).unwrap_or_default() != session.id) {
        return Err(unknown().into());
    }
    run_script(&context, script, &ApprovalSource::Slip(slip))
}

/// Runs nothing without a session: if the agent's plugin did not load, clash judges no
/// other action of that agent either.
fn sh(args: &[OsString]) -> Result<Never, LauncherError> {
    let [option, script] = args else { return Err(LauncherError::Usage) };
    let script = script.to_str().filter(|_| option == "-c").ok_or(LauncherError::Usage)?;
    let id = env::text(env::CLASH_SESSION).ok_or(LauncherError::NoSession)?;
    let context = LaunchContext::for_session(Some(&id))?;
    if context.session.is_none() {
        return Err(LauncherError::NoSession);
    }
    run_script(&context, script, &ApprovalSource::ForScript)
}

/// Runs a script with the shell, as the policy decides.
fn run_script(
    context: &LaunchContext,
    script: &str,
    source: &ApprovalSource<'_>,
) -> Result<Never, LauncherError> {
    let (program, args) = (shell_program(), ["-c".into(), script.into()]);
    let command = RequestedCommand::new(script, &program, &args);
    context.launch(&command, context.agent(), source, StartedBy::Caller, &no_grants)
}

/// Runs `clash-shell` with the whole command line of an agent. Refuses a command of the agent
/// outside a session, and one inside the agent's own sandbox.
fn shell(args: &[OsString]) -> Result<Never, LauncherError> {
    let [string] = args else { return Err(LauncherError::Usage) };
    let string = string.to_str().ok_or(LauncherError::NotText)?;
    let (agent, wrapper) = agent_with_shell_wrapper().ok_or(LauncherError::Usage)?;
    let context = LaunchContext::for_session(env::client_session().as_deref())?;
    let user = context.dirs.for_agents();
    let by_agent = (wrapper.is_agent_command)(&user);
    if by_agent && context.session.is_none() {
        return Err(LauncherError::NoSession);
    }
    // There clash can neither read settings nor make rooms.
    if let Some(why) = (wrapper.own_sandbox)(&user) {
        return Err(LauncherError::Refused(why.to_owned()));
    }
    let read = ShellString::read(string, &context, wrapper);
    let (program, args) = (shell_program(), ["-c".into(), string.into()]);
    let command = RequestedCommand::new(read.script(), &program, &args);
    let started_by = if by_agent { StartedBy::Caller } else { StartedBy::Settings };
    let source = ApprovalSource::ForScript;
    context.launch(&command, Some(agent), &source, started_by, &|| read.grants())
}

fn no_grants() -> Result<Vec<clash_sandbox::plan::PathGrant>, LauncherError> {
    Ok(Vec::new())
}

/// The user's shell if it is bash or zsh, otherwise bash, otherwise sh.
fn shell_program() -> OsString {
    let known = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name == "bash" || name == "zsh") && path.exists()
    };
    let fallback =
        || ["/bin/bash", "/usr/bin/bash"].into_iter().map(PathBuf::from).find(|p| p.exists());
    let shell = env::path(env::SHELL).filter(known).or_else(fallback);
    shell.unwrap_or_else(|| PathBuf::from("/bin/sh")).into_os_string()
}
