//! Shells that a client starts through `clash-shell`.
//!
//! The client hands one string to `clash-shell`. For a command of the agent the string is
//! the command inside the client's own lines, and the policy must judge the command.

use std::path::{Path, PathBuf};

use crate::context::UserContext;

/// How to launch the shells of one client.
#[derive(Debug)]
pub struct ShellWrapper {
    /// The variable that names the program in front of the client's shell.
    pub prefix_variable: &'static str,
    /// A variable and a value that mark a command of the agent, for a trial.
    pub agent_mark: (&'static str, &'static str),
    /// True if the agent asked for the command. Otherwise settings did, for example a
    /// hook of the user.
    pub is_agent_command: fn(&UserContext) -> bool,
    /// Why clash cannot launch here: the client's own sandbox is around this process.
    pub own_sandbox: fn(&UserContext) -> Option<&'static str>,
    /// Takes the client's lines off the string of a session. `None`: the string is not
    /// exactly what the client writes, so the launcher must judge the whole string.
    pub unwrap: fn(&UserContext, Option<&str>, &str) -> Option<WrappedCommand>,
    /// The client's program, which its lines may run.
    pub client_program: fn(&UserContext) -> Option<PathBuf>,
    /// The directory of a session's output from commands in the background, for a project.
    /// The client tells models to read it there.
    pub background_outputs: fn(&UserContext, &Path, &str) -> Option<PathBuf>,
}

/// A command without the client's lines around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedCommand {
    /// The agent's own command, unquoted. The client may have changed it a little: it
    /// turns `>nul` into `>/dev/null`.
    pub script: String,
    /// The file to which the client's last line writes the working directory. The client
    /// reads it when the command has ended, and then removes it.
    pub cwd_file: Option<PathBuf>,
    /// The files that the client's first lines read.
    pub sources: Vec<PathBuf>,
    /// The session's environment, which the client copies into the string and which runs
    /// before the script.
    pub session_env: Option<String>,
}
