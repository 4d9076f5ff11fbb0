//! The reasons why a launch fails.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

#[cfg(target_os = "linux")]
use crate::linux::bpf::BpfError;

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("`{}` has a NUL byte in it", .0.to_string_lossy())]
    NulByte(OsString),
    #[error("step 1, a terminal of its own")]
    Terminal(#[source] io::Error),
    #[error("step 1, working directory `{}`", path.display())]
    WorkingDirectory { path: PathBuf, source: io::Error },
    #[error("step 1, a temporary directory of the command's own")]
    Scratch(#[source] io::Error),
    #[error("step 1, copying standard output and error to files")]
    Outputs(#[source] io::Error),
    #[error("step 2, opening the granted path `{}`", path.display())]
    Grant { path: PathBuf, source: io::Error },
    #[error("step 2, building the Landlock ruleset")]
    Ruleset(#[source] io::Error),
    #[error("step 2, the process that helps ended too early")]
    Helper,
    #[error("step 3, closing inherited descriptors")]
    Descriptors(#[source] io::Error),
    #[error("step 4, new namespaces")]
    Namespaces(#[source] io::Error),
    #[error("step 4, the user's identity in the new namespace")]
    Identity(#[source] io::Error),
    #[error("step 4, the loopback interface")]
    Loopback(#[source] io::Error),
    #[error("step 4, port {port} of the loopback interface")]
    Port { port: u16, source: io::Error },
    #[error("step 4, starting the process that forwards ports")]
    Forwarder(#[source] io::Error),
    #[error("step 6, starting the room's process 1")]
    Keeper(#[source] io::Error),
    #[error("step 6, starting the command's process")]
    Process(#[source] io::Error),
    #[error("step 5, the room's root")]
    Root(#[source] io::Error),
    #[error("step 5, {step}")]
    View { step: String, source: io::Error },
    #[error("step 5, entering the room")]
    Enter(#[source] io::Error),
    #[error("step 6, working directory `{}`, which is not part of the sandbox", path.display())]
    NotInRoom { path: PathBuf, source: io::Error },
    #[error("step 7, limits")]
    Limits(#[source] io::Error),
    #[error("step 8, no_new_privs")]
    NoNewPrivs(#[source] io::Error),
    #[error("step 9, entering the Landlock domain")]
    Landlock(#[source] io::Error),
    #[error("step 10, dropping capabilities")]
    Capabilities(#[source] io::Error),
    #[cfg(target_os = "linux")]
    #[error("step 11, assembling the seccomp filter")]
    Filter(#[source] BpfError),
    #[error("step 11, installing the seccomp filter")]
    Seccomp(#[source] io::Error),
    #[error("step 11, watching the command's calls, which a sandbox around this one already does")]
    AlreadyWatched,
    #[error(
        "step 6, seeing what the command's calls are about, which a sandbox around this one forbids"
    )]
    Unseen(#[source] io::Error),
    #[error("step 12, signals")]
    Signals(#[source] io::Error),
    /// Shells report this as 127.
    #[error("`{}` not found", program.to_string_lossy())]
    NotFound { program: OsString },
    /// Shells report this as 126.
    #[error("`{}` cannot be executed", program.to_string_lossy())]
    NotExecutable { program: OsString, source: io::Error },
    #[error("the command was ended after {seconds} s, the sandbox's limit")]
    OutOfTime { seconds: u64 },
    #[error("step 13, starting the monitor")]
    Monitor(#[source] io::Error),
    #[error("waiting for the command")]
    Waiting(#[source] io::Error),
    #[error("the process that was to become the command ended before it did")]
    Vanished,
    #[error("this system has no sandbox that clash can use")]
    Unsupported,
}
