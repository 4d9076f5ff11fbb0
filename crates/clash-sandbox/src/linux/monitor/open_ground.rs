//! Calls that the outer thread may carry out itself.
//!
//! The inner thread is in a Landlock domain, so that a mistake in its judgement does not
//! exceed the command's rights. Landlock grants whole trees. Below a tree that may be
//! changed in every way, Landlock refuses none of the calls here, and the mounts of the room
//! are the same for both threads. Landlock restricts changes of modes, owners and times
//! nowhere. The judgement is the same in both threads.

use std::path::PathBuf;

use clash_policy::path::is_below;
use clash_policy::{Effect, FileCaps, PathPattern, WriteTarget};

use super::MonitorState;
use super::act::{MonitorWorker, ResolvedCall};
use super::place::{CallPlace, real};
use crate::plan::ProcView;
use crate::plan::rights::SandboxRights;

/// The trees that the command may change in every way, by a rule or because they are the
/// room's own.
pub(super) fn open_trees(shared: &MonitorState, rights: &SandboxRights) -> Vec<PathBuf> {
    // Without a room, no mount restricts the outer thread.
    if shared.of != ProcView::OfTheRoom || shared.sight.is_some() || shared.reads {
        return Vec::new();
    }
    let granted = rights.sandbox.fs.iter().filter(|rule| {
        rule.effect == Effect::Allow
            && rule.caps.contains(FileCaps::CHANGE)
            && rule.writes == WriteTarget::InPlace
            && matches!(rule.pattern, PathPattern::Subpath { .. })
    });
    let granted = granted.map(|rule| PathBuf::from(rule.pattern.fixed()));
    granted.chain(rights.own.iter().cloned()).filter(|tree| tree.is_absolute()).collect()
}

impl MonitorWorker {
    /// True if Landlock would not refuse a call, whatever the monitor judges.
    pub(super) fn is_on_open_ground(&self, act: &mut ResolvedCall) -> bool {
        let at = match act {
            ResolvedCall::Open { at, reads: false, .. }
            | ResolvedCall::Mkdir { at, .. }
            | ResolvedCall::Unlink { at, .. } => at,
            ResolvedCall::Chmod { .. }
            | ResolvedCall::Chown { .. }
            | ResolvedCall::Times { .. } => return !self.open_trees.is_empty(),
            _ => return false,
        };
        let CallPlace::Name { dir, path, .. } = at else { return false };
        if path.is_none() {
            *path = real(&self.shared.held, &*dir).ok().flatten();
        }
        path.as_ref().is_some_and(|path| self.open_trees.iter().any(|tree| is_below(path, tree)))
    }
}
