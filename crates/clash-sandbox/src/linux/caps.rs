//! Drops capabilities, so that root in a sandbox keeps no special rights.
//!
//! A plain user has no capabilities, and this is one system call. Root keeps only
//! `CAP_DAC_OVERRIDE`: in containers the project often belongs to another user id, and root
//! could not read it otherwise. Landlock still restricts the files, whatever their modes
//! say.
//!
//! no_new_privs is already set. `execve` by uid 0 then gives back no more than the
//! permitted set, because the kernel intersects the new set with the old one. The bounding
//! set is dropped too where this process may lower it: in a room, and as root.

use rustix::io;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set,
    set_capabilities,
};

/// Drops every capability of the calling thread that the command must not have. `root` is
/// true if the command runs as root, which keeps `CAP_DAC_OVERRIDE`.
pub(crate) fn drop_capabilities(root: bool) -> io::Result<()> {
    let held = capabilities(None)?;
    let keep = if root { CapabilitySet::DAC_OVERRIDE } else { CapabilitySet::empty() };
    let permitted = held.permitted & keep;
    // With an empty bounding set, `execve` leaves root only the inheritable capabilities.
    // No process can make more of them inheritable.
    let inheritable = permitted;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        set_capabilities(None, CapabilitySets { inheritable, ..held })?;
        for capability in CapabilitySet::all().iter() {
            match remove_capability_from_bounding_set(capability) {
                // `EINVAL`: this kernel does not know the capability.
                Ok(()) | Err(io::Errno::INVAL) => {}
                Err(error) => return Err(error),
            }
        }
    }
    // The kernel lowers the ambient set together with the permitted and inheritable sets.
    let wanted = CapabilitySets { effective: permitted, permitted, inheritable };
    if held == wanted { Ok(()) } else { set_capabilities(None, wanted) }
}

/// Drops every capability of the calling thread except `CAP_SYS_PTRACE`, with which the
/// monitor reads the command's processes, and for root `CAP_DAC_OVERRIDE`, which those
/// processes have too.
pub(crate) fn keep_monitor_capabilities(root: bool) -> io::Result<()> {
    let held = capabilities(None)?;
    let own = if root { CapabilitySet::DAC_OVERRIDE } else { CapabilitySet::empty() };
    let permitted = held.permitted & (own | CapabilitySet::SYS_PTRACE);
    let wanted =
        CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() };
    if held == wanted { Ok(()) } else { set_capabilities(None, wanted) }
}

/// The number of permitted capabilities of this process.
pub(crate) fn count_permitted() -> io::Result<u32> {
    Ok(capabilities(None)?.permitted.bits().count_ones())
}
