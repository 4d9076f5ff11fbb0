//! Linked worktrees that the command removes.
//!
//! Where the policy permits to make repositories, `git worktree remove` may remove a
//! worktree of the project's repository, although its files are persistence paths. It may
//! also remove the records of a worktree that is gone. Until the removal is complete, the
//! monitor lets no such file be made again, so the command cannot change one by removing
//! and making it.

use std::path::{Path, PathBuf};

use clash_policy::FileCaps;
use clash_policy::path::LinkResolver;

use crate::plan::rights::SandboxRights;
use crate::worktree;

#[derive(Debug, Default)]
pub(super) struct LeavingWorktrees {
    trees: Vec<PathBuf>,
}

impl LeavingWorktrees {
    /// True if the command may remove a protected path, because it belongs to a linked
    /// worktree.
    pub(super) fn may_go(
        &mut self,
        path: &Path,
        rights: &SandboxRights,
        links: &dyn LinkResolver,
    ) -> bool {
        rights.new_repositories()
            && rights.permits(path, FileCaps::DELETE)
            && rights.kept_by_link(path, FileCaps::DELETE, links).is_none()
            && (self.covers(path) || self.finds(path, &rights.places.project))
    }

    fn covers(&self, path: &Path) -> bool {
        self.trees.iter().any(|tree| path.starts_with(tree))
    }

    /// Finds the worktree of a path. If the worktree is gone, its directory below
    /// `.git/worktrees` is meant.
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

    /// True if a name must not be made, because the command has just removed it.
    pub(super) fn refuses(&self, path: &Path, rights: &SandboxRights) -> bool {
        let kept = || rights.kept(path, FileCaps::CHANGE, &clash_policy::path::NoLinks).is_some();
        self.covers(path) && kept()
    }

    /// Forgets a worktree whose directory the command has removed: the removal is complete.
    pub(super) fn gone(&mut self, dir: &Path) {
        self.trees.retain(|tree| tree != dir);
    }
}
