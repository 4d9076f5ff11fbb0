//! The doors of a room: mounts over directories with programs.

use clash_policy::FileCaps;
use clash_policy::path::is_below;

use super::MountPlanner;
use crate::plan::room::MountStep;

impl MountPlanner<'_> {
    /// Adds the mounts of the doors. A directory gets none if commands may change it, or if
    /// it lies unseen inside a mounted tree, where no mount point can be made: its programs
    /// then run in the room.
    pub(super) fn add_doors(&mut self) {
        for directory in self.sources.request.doors {
            let at = &directory.at;
            let caps = self.sources.caps(at, false);
            if caps.intersects(FileCaps::CHANGE) {
                continue;
            }
            let over = !caps.is_empty();
            if !over {
                let inside = |step: &MountStep| matches!(step, MountStep::Bind { path, .. } | MountStep::Cover { path, .. } | MountStep::Cache { path, .. } if is_below(at, path));
                if self.steps.iter().any(inside) {
                    continue;
                }
                self.add_directory(at);
            }
            self.steps.push(MountStep::Doors {
                at: at.clone(),
                doors: directory.doors.clone(),
                names: directory.names.clone(),
                over,
                overlay: self.overlay,
            });
        }
    }
}
