//! The string that Claude Code hands to `clash-shell`, and the files that its lines
//! around the script touch.

use std::path::{Path, PathBuf};

use clash_agents::claude::{self, shell_prefix};
use clash_policy::FileCaps;
use clash_sandbox::plan::{Grant, Why};

use super::LauncherError;
use super::context::LaunchContext;
use crate::dirs::Dirs;
use crate::env;

/// True if the agent itself started the shell. The client wraps only these commands.
/// A hook or a server from settings could write a string that looks like the wrapper, so
/// its string is judged whole. A project cannot set this variable.
pub(super) fn is_from_agent() -> bool {
    env::text(env::AI_AGENT).is_some_and(|agent| agent.ends_with("_agent"))
}

/// In the client's own sandbox clash can neither read settings nor make rooms.
pub(super) fn refuse_own_sandbox() -> Result<(), LauncherError> {
    if env::text(env::SANDBOX_RUNTIME).is_none() {
        return Ok(());
    }
    Err(LauncherError::Refused(
        "Claude Code's own sandbox is around this command, where clash cannot do its work: \
         switch `sandbox` off in its settings, clash confines every command"
            .to_owned(),
    ))
}

/// A shell string, and the wrapper in it if the client wrote one.
pub(super) struct ShellString<'a> {
    whole: &'a str,
    wrapper: Option<shell_prefix::Call>,
    context: &'a LaunchContext,
}

impl<'a> ShellString<'a> {
    pub(super) fn read(whole: &'a str, context: &'a LaunchContext, by_agent: bool) -> Self {
        let parsed = || {
            let plain = shell_prefix::parse(whole);
            plain.or_else(|| shell_prefix::parse_with_session_env(whole, &session_env(context)))
        };
        let in_place = |call: &shell_prefix::Call| is_in_place(call, &context.dirs);
        let wrapper = if by_agent { parsed().filter(in_place) } else { None };
        Self { whole, wrapper, context }
    }

    /// The command of the agent, without the client's own lines around it.
    pub(super) fn script(&self) -> &str {
        self.wrapper.as_ref().map_or(self.whole, |call| call.script.as_str())
    }

    /// The grants for the client's own lines, and for the output of commands in the
    /// background if the script names its session.
    pub(super) fn grants(&self) -> Result<Vec<Grant>, LauncherError> {
        let mut grants = match &self.wrapper {
            Some(call) => wrapper_grants(call)?,
            None => Vec::new(),
        };
        let outputs = self.context.session.as_ref().and_then(|session| {
            let user = self.context.dirs.for_agents();
            claude::background_outputs(&user, &session.project, &session.id)
                .filter(|_| self.script().contains(&session.id))
        });
        grants.extend(outputs.map(|path| Grant { path, caps: FileCaps::READ, why: Why::Launcher }));
        Ok(grants)
    }
}

/// The lines that the client copies in front of every command of the session.
fn session_env(context: &LaunchContext) -> String {
    let read = |path: PathBuf| std::fs::read_to_string(path).ok();
    let mut files: Vec<PathBuf> = context
        .session
        .iter()
        .filter_map(|session| {
            std::fs::read_dir(context.dirs.claude.join("session-env").join(&session.id)).ok()
        })
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect();
    files.sort();
    let texts = env::path(env::CLAUDE_ENV_FILE).into_iter().chain(files).filter_map(read);
    texts.map(|text| text.trim().to_owned()).collect::<Vec<_>>().join("\n")
}

/// The grants for the files that the client sources, for the client itself (its snapshots
/// replace `grep`, `rg` and `find` with it), and for the file that it reads the final
/// working directory from. The last is created here, because a grant needs a file. A
/// command can guess its name, so a file or link of that name is removed first.
fn wrapper_grants(call: &shell_prefix::Call) -> Result<Vec<Grant>, LauncherError> {
    let grant = |path: &Path, caps| Grant { path: path.to_path_buf(), caps, why: Why::Launcher };
    let sources = call.sources.iter().filter(|path| path.exists());
    let mut grants: Vec<Grant> = sources.map(|path| grant(path, FileCaps::READ)).collect();
    let client = env::path(env::CLAUDE_CODE_EXECPATH).and_then(|path| path.canonicalize().ok());
    let own = client.filter(|path| is_program(path));
    grants.extend(own.map(|path| grant(&path, FileCaps::READ.union(FileCaps::EXECUTE))));
    if let Some(path) = &call.cwd_file {
        let failed = |source| LauncherError::CwdFile { path: path.clone(), source };
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed(error));
            }
            _ => {}
        }
        std::fs::File::options().write(true).create_new(true).open(path).map_err(failed)?;
        grants.push(grant(path, FileCaps::READ.union(FileCaps::WRITE)));
    }
    Ok(grants)
}

/// True for a file that may be executed. A command can set the variable that names the
/// client, so it must not lead to a file that is no program.
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path)
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// True if the wrapper's files are in the directories where the client keeps them.
fn is_in_place(call: &shell_prefix::Call, dirs: &Dirs) -> bool {
    let in_dir = |path: &PathBuf, dir: &Path| path.parent() == Some(dir);
    let snapshots = dirs.claude.join("shell-snapshots");
    let temporary = [dirs.tmp.as_path(), Path::new("/tmp")];
    call.sources.iter().all(|path| in_dir(path, &snapshots))
        && call.cwd_file.iter().all(|path| temporary.iter().any(|dir| in_dir(path, dir)))
}
