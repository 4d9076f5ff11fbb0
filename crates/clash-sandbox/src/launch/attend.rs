//! Phase `attend`: gives the listener to the monitor, waits for the command and repeats its end.

use std::ffi::c_long;
use std::sync::Arc;

use crate::linux::monitor::{MonitorInputs, ScriptDrafts, WaitingMonitor, identity_of_stream};
use crate::linux::stdio::InheritedStdio;
use crate::linux::supervise::{self, AttendedEnd, AttendedRoom, KeeperOffer};
use crate::linux::sys::{self, SocketDiagnosis};
use crate::plan::SandboxPlan;

/// The parts that the command's own start has left to do.
pub(super) struct StartedCommand<'a> {
    pub(super) pid: libc::pid_t,
    pub(super) listener: c_long,
    pub(super) monitor: Option<WaitingMonitor>,
    pub(super) diagnosis: Option<Arc<SocketDiagnosis>>,
    pub(super) stdio: &'a InheritedStdio,
    pub(super) heir: Option<KeeperOffer<'a>>,
}

/// Returns only if the command's time is up, if the room is kept for another command, or on
/// failure.
pub(super) fn attend(
    plan: &SandboxPlan,
    room: AttendedRoom<'_>,
    command: StartedCommand<'_>,
) -> AttendedEnd {
    let StartedCommand { pid, listener, monitor, diagnosis, stdio, heir } = command;
    // The command may already run; its watched calls wait.
    let drafts = monitor.zip(sys::listener(listener)).map(|(monitor, listener)| {
        let own = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        let streams = own.into_iter().filter_map(identity_of_stream).collect();
        let drafts = ScriptDrafts::default();
        let inputs = MonitorInputs { listener, diagnosis, stdio: streams, drafts: drafts.clone() };
        monitor.start(inputs);
        drafts
    });
    let wall = plan.limits.wall_seconds;
    supervise::attend(room, stdio, pid, heir, wall, drafts.as_ref())
}

/// The room's own unix sockets, if it has some. Call this in the room's network namespace.
pub(super) fn diagnosis(plan: &SandboxPlan) -> Option<Arc<SocketDiagnosis>> {
    let own_sockets = plan.room.as_ref().is_some_and(|room| room.own_sockets);
    own_sockets.then(SocketDiagnosis::new).and_then(Result::ok).map(Arc::new)
}
