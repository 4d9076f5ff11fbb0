//! Capabilities: what a root shell in a sandbox must not keep.
//!
//! A plain user has none and this is one system call. For root everything goes
//! but `CAP_DAC_OVERRIDE`: in containers the project often belongs to another
//! user id, and root without it could not even read its own work. It widens
//! nothing here, for Landlock bounds the files whatever the modes say.
//!
//! With no_new_privs set before, `execve` by uid 0 gives back no more than the
//! permitted set (the kernel intersects the new set with the old one), so what
//! is dropped stays dropped. The bounding set goes too where this process may
//! lower it: in a room, and as root.

use rustix::io::Result;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set,
    set_capabilities,
};

/// Drops what this process must not hand to the command.
pub(crate) fn drop_all(root: bool) -> Result<()> {
    let held = capabilities(None)?;
    let keep = if root { CapabilitySet::DAC_OVERRIDE } else { CapabilitySet::empty() };
    let permitted = held.permitted & keep;
    // With an empty bounding set, what is inheritable is all that `execve` leaves
    // to root, and nothing can be made inheritable any more.
    let inheritable = permitted;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        set_capabilities(None, CapabilitySets { inheritable, ..held })?;
        for capability in CapabilitySet::all().iter() {
            match remove_capability_from_bounding_set(capability) {
                // Newer than this kernel.
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                Err(error) => return Err(error),
            }
        }
    }
    // Lowering permitted and inheritable lowers the ambient set with them.
    let wanted = CapabilitySets { effective: permitted, permitted, inheritable };
    if held == wanted { Ok(()) } else { set_capabilities(None, wanted) }
}

/// Leaves what it takes to look into the command's processes, and what these have
/// themselves. For the calling thread alone.
pub(crate) fn keep_for_looking(root: bool) -> Result<()> {
    let held = capabilities(None)?;
    let own = if root { CapabilitySet::DAC_OVERRIDE } else { CapabilitySet::empty() };
    let permitted = held.permitted & (own | CapabilitySet::SYS_PTRACE);
    let wanted =
        CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() };
    if held == wanted { Ok(()) } else { set_capabilities(None, wanted) }
}

/// How many capabilities this process may use.
pub(crate) fn count() -> Result<u32> {
    Ok(capabilities(None)?.permitted.bits().count_ones())
}
