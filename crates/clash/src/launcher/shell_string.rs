//! The string that a client hands to `clash-shell`, and the files that its lines around the
//! script touch.

use std::path::Path;

use clash_agents::{ShellWrapper, UserContext, WrappedCommand};
use clash_policy::FileCaps;
use clash_sandbox::plan::{GrantReason, PathGrant};

use super::LauncherError;
use super::context::LaunchContext;

/// A shell string, and the command in it if the client put its own lines around one.
pub(super) struct ShellString<'a> {
    whole: &'a str,
    wrapped: Option<WrappedCommand>,
    wrapper: &'a ShellWrapper,
    user: UserContext,
    context: &'a LaunchContext,
}

impl<'a> ShellString<'a> {
    /// Only commands of the agent are wrapped. A hook or a server from settings could write
    /// a string that looks wrapped, so the launcher judges its string whole.
    pub(super) fn read(
        whole: &'a str,
        context: &'a LaunchContext,
        wrapper: &'a ShellWrapper,
    ) -> Self {
        let user = context.dirs.for_agents();
        let session = context.session.as_ref().map(|session| session.name.as_str());
        let by_agent = (wrapper.is_agent_command)(&user);
        let wrapped = by_agent.then(|| (wrapper.unwrap)(&user, session, whole)).flatten();
        Self { whole, wrapped, wrapper, user, context }
    }

    /// The command of the agent, without the client's own lines around it.
    pub(super) fn script(&self) -> &str {
        self.wrapped.as_ref().map_or(self.whole, |command| command.script.as_str())
    }

    /// The grants for the client's own lines, and for the output of commands in the
    /// background if the script names its session.
    pub(super) fn grants(&self) -> Result<Vec<PathGrant>, LauncherError> {
        let mut grants = match &self.wrapped {
            Some(command) => self.wrapper_grants(command)?,
            None => Vec::new(),
        };
        let outputs = self.context.session.as_ref().and_then(|session| {
            (self.wrapper.background_outputs)(&self.user, &session.project, &session.name)
                .filter(|_| self.script().contains(&session.name))
        });
        grants.extend(outputs.map(|path| PathGrant {
            path,
            caps: FileCaps::READ,
            why: GrantReason::Launcher,
        }));
        Ok(grants)
    }

    /// The grants for the files that the client sources, for the client itself, which its
    /// lines may run, and for the file that it reads the final working directory from. The
    /// last is created here, because a grant needs a file. A command can guess its name, so
    /// a file or link of that name is removed first.
    fn wrapper_grants(&self, command: &WrappedCommand) -> Result<Vec<PathGrant>, LauncherError> {
        let grant = |path: &Path, caps| PathGrant {
            path: path.to_path_buf(),
            caps,
            why: GrantReason::Launcher,
        };
        let sources = command.sources.iter().filter(|path| path.exists());
        let mut grants: Vec<PathGrant> = sources.map(|path| grant(path, FileCaps::READ)).collect();
        let client = (self.wrapper.client_program)(&self.user);
        grants.extend(client.map(|path| grant(&path, FileCaps::READ.union(FileCaps::EXECUTE))));
        if let Some(path) = &command.cwd_file {
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
}
