//! What a command may use up. Each limit is per process, except the number of
//! processes, which the kernel counts per user and user namespace.
//!
//! Root is never counted. For root the room's process numbers are made to run out
//! instead: since Linux 6.14 each process namespace can have its own range.

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

/// Numbers below this are given out once and not again, so the room's begin
/// behind them.
const RESERVED: u64 = 300;

/// Leaves numbers for so many processes, threads included, in the calling
/// process's namespace. Needs the host's /proc and rights over the namespace.
pub(crate) fn number_processes(most: u64) -> rustix::io::Result<()> {
    let end = RESERVED.saturating_add(most.saturating_sub(1)).clamp(RESERVED + 1, 1 << 22);
    for (file, value) in
        [(c"/proc/sys/kernel/ns_last_pid", RESERVED), (c"/proc/sys/kernel/pid_max", end)]
    {
        let fd = openat(CWD, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&fd, value.to_string().as_bytes())?;
    }
    Ok(())
}
