//! Phase `mount`: builds the room's mount tree and enters it.
//!
//! No process is in the room yet. If the launcher is killed here, nothing is left behind.

use super::LaunchError;
use super::phases::{LaunchResult, ParentContext};
use super::prepare::GrantFilling;
use crate::linux::mounts::{MountTree, RoomParts};

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

fn build(parent: &ParentContext<'_>, parts: RoomParts) -> LaunchResult<MountTree> {
    let steps = parent.steps_before_proc;
    let mut tree =
        MountTree::new(parts, steps).map_err(|error| LaunchError::RoomRoot(error.into()))?;
    steps.iter().try_for_each(|step| tree.do_step(step))?;
    Ok(tree)
}

pub(super) fn enter(parent: &ParentContext<'_>, tree: &MountTree) -> LaunchResult<()> {
    let Some(room) = parent.room else { return Ok(()) };
    tree.enter(room.inside).map_err(|error| LaunchError::EnterRoot(error.into()))
}
