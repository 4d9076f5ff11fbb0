//! Phase `isolate`: leaves the host's namespaces, except those of processes and the network.

use super::phases::{LaunchResult, ParentContext};
use super::{LaunchError, helper};
use crate::linux::monitor::{CallMonitor, WaitingMonitor};
use crate::linux::mounts::RoomParts;
use crate::linux::stdio::{InheritedStdio, StandardStreams};
use crate::linux::supervise::KeeperPost;
use crate::linux::sys;

/// The launcher's state in the room's namespaces.
pub(super) struct IsolatedLauncher {
    /// The parts of the mount tree that every room has.
    pub(super) parts: Option<RoomParts>,
    pub(super) stdio: InheritedStdio,
    /// The caller's signal mask.
    pub(super) mask: sys::SignalMask,
    pub(super) monitor: Option<WaitingMonitor>,
}

/// Leaves the host's namespaces, if the plan has a room, guards the standard streams, blocks
/// the signals, and waits until the monitor's threads run.
pub(super) fn isolate(
    parent: &ParentContext<'_>,
    monitor: Option<CallMonitor>,
    post: Option<KeeperPost>,
    streams: &StandardStreams,
) -> LaunchResult<IsolatedLauncher> {
    let parts = parent.room.map(|room| helper::leave_host(room, parent.helper)).transpose()?;
    let stdio = match parent.room {
        Some(room) => InheritedStdio::guard(&room.returned, streams),
        None => InheritedStdio::guard_roomless(streams),
    };
    let mask = sys::hold_signals().map_err(LaunchError::SignalBlock)?;
    // Before `unshare(CLONE_NEWPID)`, after which the launcher can start no threads.
    let monitor = match (monitor, post) {
        (Some(monitor), post) => monitor.wait(post).map(Some),
        (None, Some(post)) => post.wait_in_thread().map(|()| None),
        (None, None) => Ok(None),
    };
    let monitor = monitor.map_err(LaunchError::MonitorThread)?;
    Ok(IsolatedLauncher { parts, stdio, mask, monitor })
}
