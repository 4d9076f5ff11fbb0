//! What a command may use up. Each limit is per process, except the number of
//! processes, which the kernel counts per user and user namespace.
//!
//! Root is never counted. For root the room's process numbers are made to run out
//! instead: since Linux 6.14 each process namespace can have its own range.

use std::os::fd::OwnedFd;

use clash_policy::Limits;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lowers the limits of the calling process and of what it starts.
/// Memory only where no cgroup holds that limit better.
pub(crate) fn set(limits: &Limits, grouped: bool) -> rustix::io::Result<()> {
    for (resource, limit) in [
        (Resource::As, limits.memory_bytes.filter(|_| !grouped)),
        (Resource::Nproc, limits.processes),
        (Resource::Cpu, limits.cpu_seconds),
        (Resource::Fsize, limits.file_size_bytes),
    ] {
        let Some(wanted) = limit else { continue };
        // Never more than there was: that would need a capability, or give one.
        let most = getrlimit(resource).maximum.map_or(wanted, |hard| hard.min(wanted));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(())
}

/// Keeps the calling process, and all it starts, from leaving core files: the kernel
/// writes them itself, past Landlock and the monitor, into the working directory.
/// One byte is less than any core file needs. It also keeps the kernel from starting
/// the program that `core_pattern` names, which a limit of nothing does not.
pub(crate) fn no_core_files() -> rustix::io::Result<()> {
    const MOST_BYTES: u64 = 1;
    let most = getrlimit(Resource::Core).maximum.map_or(MOST_BYTES, |hard| hard.min(MOST_BYTES));
    setrlimit(Resource::Core, Rlimit { current: Some(most), maximum: Some(most) })
}

/// Numbers below this are given out once and not again, so the room's begin
/// behind them.
const RESERVED: u64 = 300;

/// The host's settings of process numbers, held while they can still be named.
pub(crate) fn process_numbers() -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, c"/proc/sys/kernel", flags, Mode::empty())
}

/// Leaves numbers for so many processes, threads included, in the calling
/// process's namespace, over which it needs rights.
pub(crate) fn number_processes(settings: &OwnedFd, most: u64) -> rustix::io::Result<()> {
    let end = RESERVED.saturating_add(most.saturating_sub(1)).clamp(RESERVED + 1, 1 << 22);
    for (file, value) in [(c"ns_last_pid", RESERVED), (c"pid_max", end)] {
        let fd = openat(settings, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&fd, value.to_string().as_bytes())?;
    }
    Ok(())
}
