//! The reasons why a launch fails, one variant for each thing that can fail.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use super::phase::LaunchPhase;
#[cfg(target_os = "linux")]
use crate::linux::bpf::BpfError;

/// A message begins with the phase, except where the command itself is the reason.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("`{}` has a NUL byte in it", .0.to_string_lossy())]
    NulByte(OsString),
    #[cfg(target_os = "linux")]
    #[error("prepare: assembling the seccomp filter")]
    FilterAssembly(#[source] BpfError),
    #[error("prepare: limiting core files")]
    CoreLimit(#[source] io::Error),
    #[error("prepare: making a pseudo-terminal")]
    Terminal(#[source] io::Error),
    #[error("prepare: changing to the working directory `{}`", path.display())]
    WorkingDirectory { path: PathBuf, source: io::Error },
    #[error("prepare: making a temporary directory for the command")]
    TemporaryDirectory(#[source] io::Error),
    #[error("prepare: starting to copy standard output and error to files")]
    OutputCopy(#[source] io::Error),
    #[error("prepare: replacing a directory on stdin, stdout or stderr")]
    Stdio(#[source] io::Error),
    #[error("prepare: making the Landlock ruleset")]
    Ruleset(#[source] io::Error),
    #[error("prepare: marking inherited descriptors close-on-exec")]
    Descriptors(#[source] io::Error),
    #[error("prepare: opening the granted path `{}`", path.display())]
    Grant { path: PathBuf, source: io::Error },
    #[error("prepare: the helper process ended too early")]
    Helper,
    #[error("prepare: making a cgroup")]
    Cgroup(#[source] io::Error),
    #[error("prepare: opening the settings of process numbers")]
    ProcessNumbers(#[source] io::Error),
    #[error("prepare: making sockets for served ports")]
    ServedPort { source: io::Error },
    #[error("prepare: starting the process that forwards ports")]
    Forwarder(#[source] io::Error),
    #[error("prepare: starting the gate to the network")]
    Gate(#[source] io::Error),
    #[error("prepare: reading the command's memory, which a sandbox around this one forbids")]
    MemoryAccess(#[source] io::Error),
    #[error("prepare: starting the process that answers doors")]
    Broker(#[source] io::Error),
    #[error("prepare: opening /proc for the monitor")]
    Monitor(#[source] io::Error),
    #[error("this system has no sandbox that clash can use")]
    Unsupported,
    #[error("isolate: making new namespaces")]
    Namespaces(#[source] io::Error),
    #[error("isolate: mapping the user in the new user namespace")]
    UserMap(#[source] io::Error),
    #[error("isolate: blocking signals")]
    SignalBlock(#[source] io::Error),
    #[error("isolate: starting the monitor's thread")]
    MonitorThread(#[source] io::Error),
    #[error("mount: making the room's root")]
    RoomRoot(#[source] io::Error),
    #[error("mount: {step}")]
    MountStep { step: String, source: io::Error },
    #[error("mount: entering the room's root")]
    EnterRoot(#[source] io::Error),
    #[error("connect: making a network namespace")]
    NetworkNamespace(#[source] io::Error),
    #[error("connect: switching on the loopback interface")]
    Loopback(#[source] io::Error),
    #[error("connect: listening on port {port} of the room's loopback")]
    ReachedPort { port: u16, source: io::Error },
    #[error("spawn: hiding the launcher's memory")]
    MemoryHiding(#[source] io::Error),
    #[error("spawn: making a process namespace")]
    ProcessNamespace(#[source] io::Error),
    #[error("spawn: starting the process that ends the sandbox with the launcher")]
    Keeper(#[source] io::Error),
    #[error("spawn: delivering signals that arrived during the launch")]
    SignalDelivery(#[source] io::Error),
    #[error("spawn: starting the command's process")]
    Process(#[source] io::Error),
    #[error("spawn: limiting the number of processes")]
    ProcessLimit(#[source] io::Error),
    #[error("spawn: ending the command with its parent")]
    ParentDeath(#[source] io::Error),
    #[error("spawn: working directory `{}`, which is not part of the sandbox", path.display())]
    HiddenWorkingDirectory { path: PathBuf, source: io::Error },
    #[error("restrict: setting resource limits")]
    ResourceLimits(#[source] io::Error),
    #[error("restrict: setting no_new_privs")]
    NoNewPrivs(#[source] io::Error),
    #[error("restrict: entering the Landlock domain")]
    Landlock(#[source] io::Error),
    #[error("restrict: dropping capabilities")]
    Capabilities(#[source] io::Error),
    #[error("restrict: installing the seccomp filter")]
    Seccomp(#[source] io::Error),
    #[error("restrict: watching the command's calls, which a sandbox around this one already does")]
    AlreadyWatched,
    #[error("restrict: resetting signals")]
    SignalReset(#[source] io::Error),
    /// Shells report this as 127.
    #[error("`{}` not found", program.to_string_lossy())]
    NotFound { program: OsString },
    /// Shells report this as 126.
    #[error("`{}` cannot be executed", program.to_string_lossy())]
    NotExecutable { program: OsString, source: io::Error },
    #[error("attend: waiting for the command")]
    Waiting(#[source] io::Error),
    #[error("cannot prepare for processes that outlive the command")]
    KeeperLine(#[source] io::Error),
    #[error("the command was ended after {seconds} s, the sandbox's limit")]
    OutOfTime { seconds: u64 },
    #[error("`{}` is not changed: a shell runs it later, so it keeps its text", path.display())]
    KeptScript { path: PathBuf },
}

impl LaunchError {
    /// The phase in which the error occurs.
    pub fn phase(&self) -> LaunchPhase {
        #[cfg(target_os = "linux")]
        if matches!(self, Self::FilterAssembly(_)) {
            return LaunchPhase::Prepare;
        }
        match self {
            Self::Namespaces(_)
            | Self::UserMap(_)
            | Self::SignalBlock(_)
            | Self::MonitorThread(_) => LaunchPhase::Isolate,
            Self::RoomRoot(_) | Self::MountStep { .. } | Self::EnterRoot(_) => LaunchPhase::Mount,
            Self::NetworkNamespace(_) | Self::Loopback(_) | Self::ReachedPort { .. } => {
                LaunchPhase::Connect
            }
            Self::MemoryHiding(_)
            | Self::ProcessNamespace(_)
            | Self::Keeper(_)
            | Self::SignalDelivery(_)
            | Self::Process(_)
            | Self::ProcessLimit(_)
            | Self::ParentDeath(_)
            | Self::HiddenWorkingDirectory { .. } => LaunchPhase::Spawn,
            Self::ResourceLimits(_)
            | Self::NoNewPrivs(_)
            | Self::Landlock(_)
            | Self::Capabilities(_)
            | Self::Seccomp(_)
            | Self::AlreadyWatched
            | Self::SignalReset(_)
            | Self::NotFound { .. }
            | Self::NotExecutable { .. } => LaunchPhase::Restrict,
            Self::KeeperLine(_) => LaunchPhase::Isolate,
            Self::Waiting(_) | Self::OutOfTime { .. } | Self::KeptScript { .. } => {
                LaunchPhase::Attend
            }
            _ => LaunchPhase::Prepare,
        }
    }
}
