//! What a command may use up. Each limit is per process, except the number of
//! processes, which the kernel counts per user and user namespace.

use clash_policy::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lowers the limits of the calling process and of what it starts.
pub(crate) fn set(limits: &Limits) -> rustix::io::Result<()> {
    for (resource, limit) in [
        (Resource::As, limits.memory_bytes),
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
