//! Runs a command and reports its use of the system: files that it opens, changes and
//! executes, names that it looks up, addresses to which it connects.
//!
//! Observation does not enforce anything. The kernel carries out every call, and may read
//! other arguments than the observer saw. A program can hide from its observer. The
//! observer does not see `stat` and similar calls, io_uring, and names that a program looks
//! up over its own connection (DNS over TLS, a resolver behind a Unix socket, Go's
//! resolver).
//!
//! The command runs in a plan's sandbox, or only with `no_new_privs`: programs with the
//! set-user-id bit then gain no rights.

#[cfg(target_os = "linux")]
mod dns;
#[cfg(target_os = "linux")]
mod tracer;

use std::net::SocketAddr;
use std::path::PathBuf;

use clash_policy::FileCaps;

use crate::launch::{LaunchCommand, LaunchError};
use crate::plan::SandboxPlan;

/// Something that the command used. Each is reported once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Observed {
    /// A file that existed, or that the command made.
    File {
        path: PathBuf,
        caps: FileCaps,
    },
    /// The command connected, or tried to.
    Address(SocketAddr),
    UnixSocket(PathBuf),
    /// A name whose address the command looked up.
    Name(String),
    /// The command listens on this port.
    Port(u16),
}

/// The end of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObservedEnd {
    Exit(i32),
    Signal(i32),
}

#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    #[error("cannot start a process: {0}")]
    Process(std::io::Error),
    #[error("the kernel does not let this process observe another: {0}")]
    Listener(std::io::Error),
    #[error("the observer lost the command: {0}")]
    Lost(std::io::Error),
    /// The report of the process that was to become the command.
    #[error("{message}")]
    NotStarted { message: String, status: i32 },
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("this system has no way to observe a command that clash can use")]
    Unsupported,
}

/// Runs the command to its end, and calls `each` for everything that it uses.
#[cfg(target_os = "linux")]
pub fn run(
    plan: Option<&SandboxPlan>,
    command: &LaunchCommand,
    each: &mut dyn FnMut(Observed),
) -> Result<ObservedEnd, ObserveError> {
    tracer::run(plan, command, each)
}

#[cfg(not(target_os = "linux"))]
pub fn run(
    _: Option<&SandboxPlan>,
    _: &LaunchCommand,
    _: &mut dyn FnMut(Observed),
) -> Result<ObservedEnd, ObserveError> {
    Err(ObserveError::Unsupported)
}
