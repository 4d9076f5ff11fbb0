//! The namespaces of a room, made by the launcher for itself and its children, or
//! by somebody else for it to join.

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{getgid, getuid};

use super::mounts::Parts;
use super::sys;
use crate::launch::LaunchError;
use crate::plan::room::Room;

/// Who we are in a user namespace, ready for somebody who must not allocate.
#[derive(Debug)]
pub(crate) struct Identity([String; 2]);

pub(crate) enum Failed {
    Namespaces(std::io::Error),
    Identity(Errno),
    Loopback(std::io::Error),
}

impl Identity {
    /// Oneself and nobody else.
    pub(crate) fn own() -> Self {
        let one = |id: u32| format!("{id} {id} 1");
        Self([one(getuid().as_raw()), one(getgid().as_raw())])
    }
}

impl From<Failed> for LaunchError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Namespaces(error) => Self::Namespaces(error),
            Failed::Identity(error) => Self::Identity(error.into()),
            Failed::Loopback(error) => Self::Loopback(error),
        }
    }
}

/// Leaves the host's namespaces, except those of processes and the network, and makes the
/// parts that every room has.
pub(crate) fn make_with_parts(room: &Room) -> Result<Parts, LaunchError> {
    let identity = room.user_namespace.then(Identity::own);
    make(identity.as_ref())?;
    Parts::make().map_err(|error| LaunchError::Root(error.into()))
}

/// Makes them for the calling process, without touching memory that is not its own
/// as long as nothing fails.
pub(crate) fn make(identity: Option<&Identity>) -> Result<(), Failed> {
    let flags = libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
    let user = if identity.is_some() { libc::CLONE_NEWUSER } else { 0 };
    sys::unshare(flags | user).map_err(Failed::Namespaces)?;
    if let Some(Identity([uid, gid])) = identity {
        // The kernel wants setgroups given up first.
        for (file, text) in [
            (c"/proc/self/setgroups", "deny"),
            (c"/proc/self/uid_map", uid),
            (c"/proc/self/gid_map", gid),
        ] {
            write(file, text.as_bytes()).map_err(Failed::Identity)?;
        }
    }
    Ok(())
}

/// The same for the network.
pub(crate) fn make_network() -> Result<(), Failed> {
    sys::unshare(libc::CLONE_NEWNET).map_err(Failed::Namespaces)?;
    sys::loopback_up().map_err(Failed::Loopback)
}

/// Makes a process namespace. Who calls this keeps its process id; its next child
/// is the first process of the room.
pub(crate) fn own_processes() -> Result<(), LaunchError> {
    sys::unshare(libc::CLONE_NEWPID).map_err(LaunchError::Namespaces)
}

fn write(file: &std::ffi::CStr, text: &[u8]) -> rustix::io::Result<()> {
    let fd = openat(CWD, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&fd, text).map(drop)
}
