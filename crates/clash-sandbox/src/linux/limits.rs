//! Resource limits of a command. Each limit applies to one process, except the number of
//! processes, which the kernel counts per user and user namespace.
//!
//! The kernel does not count root's processes. For root, the launcher limits the process
//! numbers of the room: since Linux 6.14 each process namespace can have its own range.

use std::os::fd::OwnedFd;

use clash_policy::ResourceLimits;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lowers the limits of the calling process and its later children: address space, processes,
/// CPU time and file size. Never raises one. `grouped` leaves memory to a cgroup.
pub(crate) fn set_limits(limits: &ResourceLimits, grouped: bool) -> rustix::io::Result<()> {
    for (resource, limit) in [
        (Resource::As, limits.memory_bytes.filter(|_| !grouped)),
        (Resource::Nproc, limits.processes),
        (Resource::Cpu, limits.cpu_seconds),
        (Resource::Fsize, limits.file_size_bytes),
    ] {
        let Some(wanted) = limit else { continue };
        // Never above the present hard limit: raising it needs a capability.
        let most = getrlimit(resource).maximum.map_or(wanted, |hard| hard.min(wanted));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(())
}

/// Prevents core files of the calling process and its children. The kernel writes core
/// files itself, past Landlock and the monitor, into the working directory. A limit of one
/// byte is smaller than any core file. Unlike a limit of zero, it also stops the kernel
/// from starting the program in `core_pattern`.
pub(crate) fn no_core_files() -> rustix::io::Result<()> {
    const MAX_CORE_BYTES: u64 = 1;
    let set = |most| setrlimit(Resource::Core, Rlimit { current: Some(most), maximum: Some(most) });
    // A plain user whose hard limit is zero may not raise it.
    set(MAX_CORE_BYTES).or_else(|_| set(0))
}

/// The kernel uses numbers below this only once (`RESERVED_PIDS`), so the room's numbers
/// start above them.
const RESERVED_PIDS: u64 = 300;

/// Opens the host's settings of process numbers, while its /proc can still be reached.
pub(crate) fn open_number_settings() -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, c"/proc/sys/kernel", flags, Mode::empty())
}

/// Limits the process numbers in the namespace of the calling process, so that at most `most`
/// processes and threads exist. The caller needs rights over that namespace.
pub(crate) fn limit_process_numbers(settings: &OwnedFd, most: u64) -> rustix::io::Result<()> {
    let end =
        RESERVED_PIDS.saturating_add(most.saturating_sub(1)).clamp(RESERVED_PIDS + 1, 1 << 22);
    for (file, value) in [(c"ns_last_pid", RESERVED_PIDS), (c"pid_max", end)] {
        let fd = openat(settings, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&fd, value.to_string().as_bytes())?;
    }
    Ok(())
}
