//! The command of a launch.

use std::ffi::OsString;
use std::path::PathBuf;

/// The program, its arguments and its environment. `env` is complete and already scrubbed.
#[derive(Clone, Debug, Default)]
pub struct LaunchCommand {
    /// Searched for in the `PATH` of `env` unless it has a slash.
    pub program: OsString,
    /// Without the program itself.
    pub args: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub cwd: Option<PathBuf>,
}
