//! What the policy says about an action, for hook, launcher and `explain` alike.

use std::path::Path;

use clash_policy::decide::{DecideError, Decision};
use clash_policy::{Action, Caps, Input, World};
use clash_sandbox::disk::Disk;

use crate::dirs::Dirs;
use crate::policy::{Policy, PolicyError};

#[derive(Debug, thiserror::Error)]
pub(crate) enum DecisionError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Decide(#[from] DecideError),
}

/// Decides an action of a session in `project`.
pub(crate) fn decide(
    dirs: &Dirs,
    project: &Path,
    action: &Action,
) -> Result<Decision, DecisionError> {
    let policy = Policy::load(dirs, project)?;
    let disk = Disk::default();
    let places = dirs.places(project, &disk);
    // Commands are confined by the kernel; only paths are judged here.
    let (cage, baseline) = match &action.input {
        Input::Files(_) => (dirs.cage(project, &disk), readable_by_tools()),
        Input::Script(_) | Input::Hosts(_) | Input::Fields(_) => (Vec::new(), Vec::new()),
    };
    let world = World { places: &places, links: &disk, baseline: &baseline, cage: &cage };
    Ok(clash_policy::decide(policy.ir().map_err(PolicyError::from)?, action, &world)?)
}

/// The system baseline for tools that run in the agent's own process. Without
/// /proc: what the kernel keeps from a sandboxed process there (environments,
/// memory), it would show to the agent.
fn readable_by_tools() -> Vec<(&'static str, Caps)> {
    let kept = |path: &str| !path.starts_with("/proc") && !path.starts_with("/dev");
    let entries = clash_sandbox::baseline::ENTRIES.iter().filter(|entry| kept(entry.path));
    entries.map(|entry| (entry.path, entry.caps)).collect()
}
