//! Carries a plan out and runs the command.
//!
//! A launch has seven phases ([`LaunchPhase`]), each in a file of its name. `docs/launch.md`
//! describes them in the same order. Every error belongs to one phase.
//!
//! In the direct tier the calling process restricts itself and becomes the command. With a
//! room or a monitor it stays as the parent of the command's process, and ends as the
//! command ended.
//!
//! A failed launch undoes nothing: the process is then partly restricted, and can only report
//! the error and exit.

#[cfg(target_os = "linux")]
mod again;
#[cfg(target_os = "linux")]
mod attend;
pub(crate) mod command;
#[cfg(target_os = "linux")]
mod connect;
pub(crate) mod error;
#[cfg(target_os = "linux")]
mod helper;
#[cfg(target_os = "linux")]
mod isolate;
#[cfg(target_os = "linux")]
mod mount;
pub(crate) mod phase;
#[cfg(target_os = "linux")]
mod phases;
#[cfg(target_os = "linux")]
mod prepare;
#[cfg(target_os = "linux")]
mod restrict;
#[cfg(target_os = "linux")]
mod spawn;

use std::io;
use std::sync::Arc;

use clash_policy::Sandbox;

pub use command::{CommandOfDoor, LaunchCommand};
pub use error::LaunchError;
pub use phase::LaunchPhase;

use crate::gate::GateService;
use crate::plan::SandboxPlan;
use crate::room_ledger::RoomLedger;
use crate::visit::{DoorService, KeepOffer};

/// A process that makes the namespaces of a room while the launcher plans.
#[derive(Debug, Default)]
pub struct LaunchHelper {
    #[cfg(target_os = "linux")]
    helper: Option<helper::HelperProcess>,
}

impl LaunchHelper {
    /// Call this as soon as the sandbox is known, before any thread starts, and only if user
    /// namespaces are likely to work.
    #[cfg(target_os = "linux")]
    pub fn start(sandbox: &Sandbox) -> Self {
        use crate::plan::NetworkNeed;
        let network = crate::plan::namespaces(sandbox).map(|need| match need {
            NetworkNeed::Host => helper::HelperNetwork::Host,
            NetworkNeed::Closed => helper::HelperNetwork::Closed,
            NetworkNeed::Gated { ports } => helper::HelperNetwork::Gated { ports },
        });
        Self { helper: network.and_then(helper::HelperProcess::start) }
    }

    #[cfg(not(target_os = "linux"))]
    pub fn start(_: &Sandbox) -> Self {
        Self::default()
    }
}

/// Closes every descriptor of the caller except the standard streams. A command gets none of
/// them, and a keeper must not hold them after the command. Call this before the process has
/// opened any file.
#[cfg(target_os = "linux")]
pub fn close_inherited_descriptors() {
    crate::linux::sys::close_all_but_these(&mut [0, 1, 2]);
}

#[cfg(not(target_os = "linux"))]
pub fn close_inherited_descriptors() {}

/// Removes a directory that commands have written, whatever modes it has. Follows no link.
#[cfg(target_os = "linux")]
pub fn remove_tree(path: &std::path::Path) -> io::Result<()> {
    crate::linux::scratch::remove_tree(path)
}

#[cfg(not(target_os = "linux"))]
pub fn remove_tree(path: &std::path::Path) -> io::Result<()> {
    std::fs::remove_dir_all(path)
}

/// Removes one cache of a project, a directory of the project's. `false` if a running
/// command uses it.
#[cfg(target_os = "linux")]
pub fn clear_cache(own: &std::path::Path) -> io::Result<bool> {
    crate::linux::overlay::clear(own)
}

#[cfg(not(target_os = "linux"))]
pub fn clear_cache(own: &std::path::Path) -> io::Result<bool> {
    std::fs::remove_dir_all(own).map(|()| true)
}

/// Runs the command inside the plan. Returns only on failure.
pub fn run(plan: &SandboxPlan, command: &LaunchCommand, ahead: LaunchHelper) -> LaunchError {
    run_with_services(plan, command, ahead, LaunchServices::default())
}

/// Services outside the room that the command's processes may use.
#[derive(Clone, Default)]
pub struct LaunchServices<'a> {
    /// For the doors of the plan.
    pub doors: Option<&'a dyn DoorService>,
    /// For the records and questions of the plan's gate.
    pub gate: Option<&'a dyn GateService>,
    /// The directory in which the rooms of a session find each other's servers. Made if it is
    /// missing.
    pub servers: Option<&'a std::path::Path>,
    /// Records the room if it outlives its command. Without a ledger, the room ends with
    /// its command.
    pub ledger: Option<Arc<dyn RoomLedger>>,
    /// The broker's offer to keep the room of a command behind a door.
    pub keep: Option<&'a KeepOffer>,
}

impl std::fmt::Debug for LaunchServices<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let given =
            [self.doors.is_some(), self.gate.is_some(), self.ledger.is_some(), self.keep.is_some()];
        f.debug_tuple("LaunchServices").field(&given).finish()
    }
}

/// As [`run`], with services outside the room.
#[cfg(target_os = "linux")]
pub fn run_with_services(
    plan: &SandboxPlan,
    command: &LaunchCommand,
    ahead: LaunchHelper,
    services: LaunchServices<'_>,
) -> LaunchError {
    match phases::run(plan, command, ahead.helper, services) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

#[cfg(not(target_os = "linux"))]
pub fn run_with_services(
    _: &SandboxPlan,
    _: &LaunchCommand,
    _: LaunchHelper,
    _: LaunchServices<'_>,
) -> LaunchError {
    LaunchError::Unsupported
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The launch fails in `prepare`, before anything is restricted, so this can run in the
    /// test process itself.
    #[test]
    fn a_directory_replaced_by_a_link_is_not_granted() {
        use crate::plan::{GrantReason, NetworkMode, PathGrant};
        use clash_policy::{FileCaps, PolicySpan};

        let dir = tempfile::tempdir().unwrap();
        let path = std::fs::canonicalize(dir.path()).unwrap().join("public");
        std::os::unix::fs::symlink("/etc", &path).unwrap();
        let grant = PathGrant {
            path: path.clone(),
            caps: FileCaps::READ,
            why: GrantReason::Rule(PolicySpan::default()),
        };
        let plan = SandboxPlan {
            sandbox: "t".into(),
            baseline: Vec::new(),
            grants: vec![grant],
            net: NetworkMode::Deny,
            landlock_abi: crate::linux::sys::landlock_abi(),
            root: false,
            room: None,
            watch: None,
            limits: clash_policy::ResourceLimits::default(),
            group: None,
            scratch: None,
            redirects: Vec::new(),
        };
        let command = LaunchCommand { program: "true".into(), ..LaunchCommand::default() };
        let error = run(&plan, &command, LaunchHelper::default());
        assert!(matches!(error, LaunchError::Grant { path: p, .. } if p == path));
    }
}
