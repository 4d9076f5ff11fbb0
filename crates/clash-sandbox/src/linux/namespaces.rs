//! The namespaces of a room, made by the launcher for itself and its children, or
//! by somebody else for it to join.

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, getgid, getuid};

use super::ahead::Ahead;
use super::mounts::Parts;
use super::sys;
use crate::launch::LaunchError;
use crate::room::Room;

/// What is to be made, ready for somebody who must not allocate.
pub(crate) struct Wanted {
    flags: libc::c_int,
    /// Who we are in there, where that has to be said.
    identity: Option<[String; 2]>,
    network: bool,
}

pub(crate) enum Failed {
    Namespaces(std::io::Error),
    Identity(Errno),
    Loopback(std::io::Error),
}

impl Wanted {
    pub(crate) fn new(uid: Uid, gid: Gid, user: bool, network: bool) -> Self {
        let mut flags = libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
        if user {
            flags |= libc::CLONE_NEWUSER;
        }
        if network {
            flags |= libc::CLONE_NEWNET;
        }
        // Oneself and nobody else.
        let one = |id: u32| format!("{id} {id} 1");
        let identity = user.then(|| [one(uid.as_raw()), one(gid.as_raw())]);
        Self { flags, identity, network }
    }
}

/// Leaves the host's namespaces, but for that of processes. What every room has is
/// made in the new ones.
pub(crate) fn leave_host(room: &Room, ahead: Option<&Ahead>) -> Result<Parts, LaunchError> {
    let ahead = ahead.filter(|_| room.user_namespace);
    if let Some(parts) = ahead.and_then(|ahead| ahead.join(room.own_network)) {
        return Ok(parts);
    }
    let wanted = Wanted::new(getuid(), getgid(), room.user_namespace, room.own_network);
    make(&wanted).map_err(|failed| match failed {
        Failed::Namespaces(error) => LaunchError::Namespaces(error),
        Failed::Identity(error) => LaunchError::Identity(error.into()),
        Failed::Loopback(error) => LaunchError::Loopback(error),
    })?;
    Parts::make().map_err(|error| LaunchError::Root(error.into()))
}

/// Makes them for the calling process, without touching memory that is not its own
/// as long as nothing fails.
pub(super) fn make(wanted: &Wanted) -> Result<(), Failed> {
    sys::unshare(wanted.flags).map_err(Failed::Namespaces)?;
    if let Some([uid, gid]) = &wanted.identity {
        // The kernel wants setgroups given up first.
        for (file, text) in [
            (c"/proc/self/setgroups", "deny"),
            (c"/proc/self/uid_map", uid),
            (c"/proc/self/gid_map", gid),
        ] {
            write(file, text.as_bytes()).map_err(Failed::Identity)?;
        }
    }
    if wanted.network {
        sys::loopback_up().map_err(Failed::Loopback)?;
    }
    Ok(())
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
