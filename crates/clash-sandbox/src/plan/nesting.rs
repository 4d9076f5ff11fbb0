//! Rooms inside a room. The room of a whole agent leaves some facilities to the launchers
//! inside.
//!
//! The kernel permits no mounts inside a Landlock domain with file rules. So a room that
//! has others inside relies on its mounts alone. For a plain user this is enough: mounts
//! that an inner namespace copies stay locked, and can neither be unmounted nor become
//! writable. It is not enough for root. The uid maps of inner namespaces need a writable
//! /proc, and root could change the kernel's settings there. Nor is it enough for rights
//! that mounts cannot express.
//!
//! Such a room has no monitor either: a process can have only one, and the inner rooms need
//! theirs. So it cannot hold rules about names and about paths that do not exist.

use std::path::{Path, PathBuf};

use clash_policy::path::is_below;
use clash_policy::{Effect, FileCaps, PathPattern};

use super::{LANDLOCK_ABI_NEEDED, PathGrant, SandboxPlan};
use crate::plan::room::{MountAccess, MountStep, RoomInterior, RoomPlan};

/// The reason why no rooms can be made inside. The plan itself stays valid; commands
/// launched inside can still use Landlock and seccomp.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NestingError {
    #[error("this machine has no namespaces for rooms")]
    NoRoom,
    #[error("root in a room with rooms inside could change the kernel's settings")]
    Root,
    #[error("Landlock ABI {abi} does not know the limits of a room with rooms inside")]
    LandlockTooOld { abi: u32 },
    #[error("`{caps}` on {} is more than mounts can say", path.display())]
    Partial { path: PathBuf, caps: FileCaps },
    #[error("the rule about `{0}` is about names, which mounts cannot hold")]
    Names(String),
}

impl SandboxPlan {
    /// Gives up the monitor, because a process can have only one, and pins the mounts
    /// instead. Fails, and changes nothing, without a room or if a rule needs the monitor: a
    /// rule about names, or a denied path that does not exist where the command may create
    /// it.
    pub fn without_monitor(&mut self) -> Result<(), NestingError> {
        let room = self.room.as_mut().ok_or(NestingError::NoRoom)?;
        if let Some(watch) = &self.watch {
            let sandbox = &watch.rights.sandbox;
            let makes = |path: &Path| {
                let makes = |g: &&PathGrant| g.caps.contains(FileCaps::CREATE);
                self.grants.iter().filter(makes).any(|g| is_below(path, &g.path))
            };
            let by_name = |rule: &&clash_policy::FsRule| match &rule.pattern {
                PathPattern::Subpath { path, .. } | PathPattern::Literal(path) => {
                    let path = Path::new(path);
                    rule.effect != Effect::Allow && makes(path) && !path.exists()
                }
                _ => true,
            };
            if let Some(rule) = sandbox.fs.iter().find(by_name) {
                return Err(NestingError::Names(rule.pattern.to_string()));
            }
        }
        self.watch = None;
        room.inside = RoomInterior::Monitors;
        pin_mounted_directories(room, &self.grants);
        Ok(())
    }

    /// Lets launchers make rooms inside this one. Fails for root, with an old Landlock, and
    /// for a grant that mounts cannot express, for example `rw` without `cd` on a directory.
    /// After such a failure the plan is still that of [`Self::without_monitor`].
    pub fn with_rooms_inside(&mut self) -> Result<(), NestingError> {
        self.without_monitor()?;
        if self.root {
            return Err(NestingError::Root);
        }
        if self.landlock_abi < LANDLOCK_ABI_NEEDED {
            return Err(NestingError::LandlockTooOld { abi: self.landlock_abi });
        }
        for grant in &self.grants {
            let making = FileCaps::CREATE.union(FileCaps::DELETE);
            let whole = |caps: FileCaps| !grant.caps.intersects(caps) || grant.caps.contains(caps);
            let file = std::fs::metadata(&grant.path).is_ok_and(|meta| !meta.is_dir());
            let changes =
                if file { !grant.caps.intersects(making) } else { whole(FileCaps::CHANGE) };
            if !changes || !grant.caps.contains(FileCaps::READ) {
                let path = grant.path.clone();
                return Err(NestingError::Partial { path, caps: grant.caps });
            }
        }
        let room = self.room.as_mut().ok_or(NestingError::NoRoom)?;
        room.inside = RoomInterior::Rooms;
        // The kernel permits no new proc mount where something is mounted on /proc. Without
        // the covers, /proc shows a plain user nothing more.
        room.steps.retain(|step| {
            !matches!(step, MountStep::Cover { path, .. } | MountStep::Rebind { path, .. }
                if path.starts_with("/proc"))
        });
        for step in &mut room.steps {
            if let MountStep::Processes { maps } = step {
                *maps = true;
            }
        }
        Ok(())
    }
}

/// Puts a mount on each directory between a writable grant and a mount below it. A directory
/// could otherwise be renamed together with the mount inside. In other rooms the monitor
/// prevents that; here a mount point does.
fn pin_mounted_directories(room: &mut RoomPlan, grants: &[PathGrant]) {
    let mut pinned: Vec<PathBuf> = Vec::new();
    let mut steps = Vec::with_capacity(room.steps.len());
    for step in room.steps.drain(..) {
        let at = match &step {
            MountStep::Bind { path, .. }
            | MountStep::Cache { path, .. }
            | MountStep::Rebind { path, .. }
            | MountStep::Cover { path, .. } => Some(path.clone()),
            _ => None,
        };
        let around = |path: &PathBuf| {
            let writable = grants.iter().filter(|g| g.caps.intersects(FileCaps::CHANGE));
            let outer = writable.filter(|g| is_below(path, &g.path) && g.path != *path);
            outer.max_by_key(|g| g.path.as_os_str().len())
        };
        if let Some((path, grant)) = at.and_then(|path| around(&path).map(|g| (path, g))) {
            let between = path.ancestors().skip(1).take_while(|dir| *dir != grant.path);
            let mut between: Vec<&Path> = between.collect();
            between.reverse();
            let execute = grant.caps.contains(FileCaps::EXECUTE);
            for dir in between {
                if !pinned.iter().any(|known| known == dir) {
                    let access = MountAccess { write: true, execute };
                    steps.push(MountStep::Rebind { path: dir.to_path_buf(), access });
                    pinned.push(dir.to_path_buf());
                }
            }
            pinned.push(path);
        }
        steps.push(step);
    }
    room.steps = steps;
}
