//! The namespaces of a room. The launcher or its helper process makes them.

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{getgid, getuid};

use super::mounts::RoomParts;
use super::sys;
use crate::launch::error::LaunchError;
use crate::plan::room::RoomPlan;

/// The uid and gid maps of a user namespace. Made in advance, because the helper process
/// must not allocate.
#[derive(Debug)]
pub(crate) struct IdentityMap([String; 2]);

/// The step that failed.
pub(crate) enum NamespaceError {
    Namespaces(std::io::Error),
    Identity(Errno),
}

impl IdentityMap {
    /// Maps the user and group to themselves, and no others.
    pub(crate) fn own() -> Self {
        let one = |id: u32| format!("{id} {id} 1");
        Self([one(getuid().as_raw()), one(getgid().as_raw())])
    }
}

impl From<NamespaceError> for LaunchError {
    fn from(failed: NamespaceError) -> Self {
        match failed {
            NamespaceError::Namespaces(error) => Self::Namespaces(error),
            NamespaceError::Identity(error) => Self::UserMap(error.into()),
        }
    }
}

/// Leaves the host's namespaces, except those of processes and the network, and makes the
/// parts that every room has.
pub(crate) fn make_with_parts(room: &RoomPlan) -> Result<RoomParts, LaunchError> {
    let identity = room.user_namespace.then(IdentityMap::own);
    make(identity.as_ref())?;
    RoomParts::make().map_err(|error| LaunchError::RoomRoot(error.into()))
}

/// Makes mount and IPC namespaces for the calling process, and with an identity also a user
/// namespace in which only that identity exists. As long as nothing fails, it touches no
/// memory that another process shares.
pub(crate) fn make(identity: Option<&IdentityMap>) -> Result<(), NamespaceError> {
    let flags = libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
    let user = if identity.is_some() { libc::CLONE_NEWUSER } else { 0 };
    sys::unshare(flags | user).map_err(NamespaceError::Namespaces)?;
    if let Some(IdentityMap([uid, gid])) = identity {
        // The kernel requires `deny` in setgroups before gid_map.
        for (file, text) in [
            (c"/proc/self/setgroups", "deny"),
            (c"/proc/self/uid_map", uid),
            (c"/proc/self/gid_map", gid),
        ] {
            write(file, text.as_bytes()).map_err(NamespaceError::Identity)?;
        }
    }
    Ok(())
}

/// Makes a network namespace for the calling process, with the loopback switched on.
pub(crate) fn make_network_namespace() -> Result<(), LaunchError> {
    sys::unshare(libc::CLONE_NEWNET).map_err(LaunchError::NetworkNamespace)?;
    sys::loopback_up().map_err(LaunchError::Loopback)
}

/// `unshare(CLONE_NEWPID)`. The caller keeps its process id; its next child is process 1 of
/// the room.
pub(crate) fn make_process_namespace() -> Result<(), LaunchError> {
    sys::unshare(libc::CLONE_NEWPID).map_err(LaunchError::ProcessNamespace)
}

fn write(file: &std::ffi::CStr, text: &[u8]) -> rustix::io::Result<()> {
    let fd = openat(CWD, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&fd, text).map(drop)
}
