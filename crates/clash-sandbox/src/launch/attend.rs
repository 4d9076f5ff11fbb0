//! Phase `attend`: gives the listener to the monitor, waits for the command and repeats its end.

use std::ffi::c_long;

use super::LaunchError;
use crate::linux::monitor::{MonitorInputs, WaitingMonitor};
use crate::linux::stdio::InheritedStdio;
use crate::linux::supervise::{self, KeeperOffer, RoomKeeper};
use crate::linux::sys::{self, SocketDiagnosis};
use crate::plan::SandboxPlan;

/// Returns only if the command's time is up, or on failure.
pub(super) fn attend(
    plan: &SandboxPlan,
    keeper: RoomKeeper,
    stdio: &InheritedStdio,
    command: libc::pid_t,
    monitor: Option<WaitingMonitor>,
    listener: c_long,
    heir: Option<KeeperOffer<'_>>,
) -> LaunchError {
    // The command may already run; its watched calls wait.
    let drafts = monitor.zip(sys::listener(listener)).map(|(monitor, listener)| {
        // This process is in the room's network namespace.
        let own_sockets = plan.room.as_ref().is_some_and(|room| room.own_sockets);
        let diagnosis = own_sockets.then(SocketDiagnosis::new).and_then(Result::ok);
        monitor.start(MonitorInputs { listener, diagnosis })
    });
    let wall = plan.limits.wall_seconds;
    supervise::attend(keeper, stdio, command, heir, wall, drafts.as_ref())
}
