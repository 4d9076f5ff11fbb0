//! The namespaces of a room, made by the launcher for itself and its children.

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{getgid, getuid};

use super::sys;
use crate::launch::LaunchError;
use crate::room::Room;

/// Leaves the host's namespaces, but for that of processes.
pub(crate) fn leave_host(room: &Room) -> Result<(), LaunchError> {
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    let mut flags = libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
    if room.user_namespace {
        flags |= libc::CLONE_NEWUSER;
    }
    if room.own_network {
        flags |= libc::CLONE_NEWNET;
    }
    sys::unshare(flags).map_err(LaunchError::Namespaces)?;
    if room.user_namespace {
        // Oneself and nobody else. The kernel wants setgroups given up first.
        for (file, text) in [
            (c"/proc/self/setgroups", "deny".to_owned()),
            (c"/proc/self/uid_map", format!("{uid} {uid} 1")),
            (c"/proc/self/gid_map", format!("{gid} {gid} 1")),
        ] {
            write(file, text.as_bytes()).map_err(|e| LaunchError::Identity(e.into()))?;
        }
    }
    if room.own_network {
        sys::loopback_up().map_err(LaunchError::Loopback)?;
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
