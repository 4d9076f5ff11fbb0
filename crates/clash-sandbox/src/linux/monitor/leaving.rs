//! Linked worktrees that the command takes away. Where the policy lets repositories
//! be made, `git worktree remove` may remove what a worktree of the project's own
//! repository holds, although it is a persistence path, and what the repository keeps
//! of one that is gone. Until it is all gone nothing of it is made again, so that
//! nothing of it is changed.

use std::path::{Path, PathBuf};

use clash_policy::Caps;
use clash_policy::path::Links;

use crate::plan::rights::Rights;
use crate::worktree;

#[derive(Debug, Default)]
pub(super) struct Leaving {
    trees: Vec<PathBuf>,
}

impl Leaving {
    /// Whether something that is kept may be removed after all.
    pub(super) fn may_go(&mut self, path: &Path, rights: &Rights, links: &dyn Links) -> bool {
        rights.new_repositories()
            && rights.permits(path, Caps::DELETE)
            && rights.kept_by_link(path, Caps::DELETE, links).is_none()
            && (self.covers(path) || self.finds(path, &rights.places.project))
    }

    fn covers(&self, path: &Path) -> bool {
        self.trees.iter().any(|tree| path.starts_with(tree))
    }

    /// Finds the worktree that a path is part of. One that is gone first loses its
    /// own directory in the repository then.
    fn finds(&mut self, path: &Path, project: &Path) -> bool {
        let kept = project.join(".git/worktrees");
        let tree = match path.strip_prefix(&kept) {
            Ok(below) => {
                let own = below.iter().next().map(|name| kept.join(name));
                own.filter(|own| worktree::is_abandoned(own, project))
            }
            Err(_) => {
                let around = path.ancestors().skip(1).take_while(|dir| *dir != project);
                let mut inside = around.filter(|dir| dir.starts_with(project));
                inside.find(|dir| worktree::belongs(dir, &kept)).map(Path::to_path_buf)
            }
        };
        self.trees.extend(tree);
        self.covers(path)
    }

    /// Whether a name is not to be made because it has just been taken away.
    pub(super) fn refuses(&self, path: &Path, rights: &Rights) -> bool {
        let kept = || rights.kept(path, Caps::CHANGE, &clash_policy::path::NoLinks).is_some();
        self.covers(path) && kept()
    }

    pub(super) fn gone(&mut self, dir: &Path) {
        self.trees.retain(|tree| tree != dir);
    }
}
