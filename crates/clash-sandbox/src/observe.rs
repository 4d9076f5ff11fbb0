//! Runs a command and sees what it uses: files it opens, changes and executes,
//! names it looks up, addresses it connects to.
//!
//! Observing is not enforcing. Every call is let go on as it was made, and what is
//! read of its arguments may have changed when the kernel reads them; a program
//! that wants to hide something from its observer can. What no system call of the
//! list does is not seen: what is only looked at (`stat`), what goes through
//! io_uring, names a program looks up over a connection of its own (DNS over TLS,
//! a resolver behind a Unix socket, Go's resolver).
//!
//! The command runs in a plan's sandbox, or with no other confinement than
//! `no_new_privs`: programs with the set-user-id bit do not gain rights.

#[cfg(target_os = "linux")]
mod dns;
#[cfg(target_os = "linux")]
mod tracer;

use std::net::SocketAddr;
use std::path::PathBuf;

use clash_policy::Caps;

use crate::launch::{Command, LaunchError};
use crate::plan::Plan;

/// Something the command used. Each is told once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Observed {
    /// A file that was there, or that the command made.
    File {
        path: PathBuf,
        caps: Caps,
    },
    /// It connected, or tried to.
    Address(SocketAddr),
    UnixSocket(PathBuf),
    /// A name whose address it asked for.
    Name(String),
    /// It waits for connections on this port.
    Port(u16),
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
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
    /// As the process that was to become the command reported it.
    #[error("{message}")]
    NotStarted { message: String, status: i32 },
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("this system has no way to observe a command that clash can use")]
    Unsupported,
}

/// Runs the command to its end and tells what it uses, as it happens.
#[cfg(target_os = "linux")]
pub fn run(
    plan: Option<&Plan>,
    command: &Command,
    each: &mut dyn FnMut(Observed),
) -> Result<End, ObserveError> {
    tracer::run(plan, command, each)
}

#[cfg(not(target_os = "linux"))]
pub fn run(
    _: Option<&Plan>,
    _: &Command,
    _: &mut dyn FnMut(Observed),
) -> Result<End, ObserveError> {
    Err(ObserveError::Unsupported)
}
