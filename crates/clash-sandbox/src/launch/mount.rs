//! Phase `mount`: builds the room's mount tree and enters it.
//!
//! No process is in the room yet. If the launcher is killed here, nothing is left behind.

use super::LaunchError;
use super::phases::{LaunchResult, ParentContext};
use super::prepare::GrantFilling;
use crate::linux::mounts::{MountTree, RoomParts};

/// Builds the mount tree of the room and adds the remaining grants. Enters the tree, unless
/// rooms can be made inside: then the caller enters it last. `None` without a room.
pub(super) fn mount(
    parent: &ParentContext<'_>,
    parts: Option<RoomParts>,
    filling: &GrantFilling<'_>,
) -> LaunchResult<Option<MountTree>> {
    let tree = parts.map(|parts| build(parent, parts)).transpose()?;
    filling.add_rest()?;
    if let Some(tree) = tree.as_ref().filter(|_| !parent.enters_last) {
        enter(parent, tree)?;
    }
    Ok(tree)
}

/// Makes the tree from its parts, and carries out the steps before the mount of /proc.
fn build(parent: &ParentContext<'_>, parts: RoomParts) -> LaunchResult<MountTree> {
    let steps = parent.steps_before_proc;
    let mut tree =
        MountTree::new(parts, steps).map_err(|error| LaunchError::RoomRoot(error.into()))?;
    steps.iter().try_for_each(|step| tree.do_step(step))?;
    Ok(tree)
}

/// Makes the tree the root of this process. Does nothing without a room.
pub(super) fn enter(parent: &ParentContext<'_>, tree: &MountTree) -> LaunchResult<()> {
    let Some(room) = parent.room else { return Ok(()) };
    tree.enter(room.inside).map_err(|error| LaunchError::EnterRoot(error.into()))
}
