//! The command of a launch.

use std::ffi::OsString;
use std::os::fd::{OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;

/// The program, its arguments and its environment. `env` is complete and already scrubbed.
#[derive(Clone, Debug, Default)]
pub struct LaunchCommand {
    /// Searched for in the `PATH` of `env` unless it has a slash.
    pub program: OsString,
    /// Without the program itself.
    pub args: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub cwd: Option<PathBuf>,
    pub door: Option<CommandOfDoor>,
    /// The file of the program, if the room has a door in its place.
    pub file: Option<Arc<OwnedFd>>,
}

/// A command behind a door. It has the descriptors of its visitor, which belong to another
/// room already, so the launcher does not replace them.
#[derive(Clone, Debug)]
pub struct CommandOfDoor {
    /// The name under which the visitor was started.
    pub name: OsString,
    /// The working directory in the room.
    pub cwd: PathBuf,
    /// Descriptors from 3 on that the command keeps.
    pub descriptors: Vec<RawFd>,
}
