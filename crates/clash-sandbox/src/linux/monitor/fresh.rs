//! Paths that this room has made itself and may therefore change, although they are
//! persistence paths.
//!
//! These are new repositories and linked worktrees, if the policy permits to make them. A
//! directory that the room has made for a repository belongs to it. So do files that the
//! list of persistence paths permits to make once, or together with their directory.
//!
//! The record holds path, device and inode. After a rename inside the room the monitor
//! forgets everything below the old and the new path. If a process outside puts another
//! directory under a remembered name, the inode differs and the record does not count.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clash_policy::protect::{REPOSITORY, is_in_submodule};
use rustix::fs::lstat;

use super::act::identity;
use crate::below::PathMap;

/// Beyond this number the monitor records nothing more. A path without a record is
/// protected like any other.
const MAX_RECORDED_PATHS: usize = 20_000;

/// Device and inode.
type Inode = (u64, u64);

#[derive(Debug)]
pub(super) struct OwnCreations {
    repositories: bool,
    directories: PathMap<Inode>,
    /// The room made everything below these directories.
    trees: BTreeMap<PathBuf, Inode>,
    files: PathMap<Inode>,
    inode_of: fn(&Path) -> Option<Inode>,
}

impl OwnCreations {
    pub(super) fn new(repositories: bool) -> Self {
        Self::with(repositories, |path| lstat(path).ok().as_ref().map(identity))
    }

    fn with(repositories: bool, inode_of: fn(&Path) -> Option<Inode>) -> Self {
        let (directories, files) = (PathMap::default(), PathMap::default());
        Self { repositories, directories, trees: BTreeMap::new(), files, inode_of }
    }

    /// Records a directory that the room has just made. Where the policy permits to make
    /// repositories, a new `.git` also makes the new directory around it a tree of the room,
    /// and a new submodule's directory is one itself. Records nothing beyond
    /// `MAX_RECORDED_PATHS`.
    pub(super) fn directory(&mut self, path: &Path) {
        let Some(inode) =
            (self.inode_of)(path).filter(|_| self.directories.len() < MAX_RECORDED_PATHS)
        else {
            return;
        };
        if self.repositories && path.file_name().is_some_and(|name| name == REPOSITORY) {
            let around = path.parent().filter(|parent| self.is_new(parent));
            self.tree(around.unwrap_or(path));
        } else if self.repositories && is_new_submodule(path) {
            self.tree(path);
        }
        self.directories.insert(path, inode);
    }

    /// Records a file that the room has just made. If it is the `.git` of a new linked
    /// worktree, also records the worktree, where the policy permits to make repositories.
    /// Records nothing if the file is gone, and beyond `MAX_RECORDED_PATHS`: the file is then
    /// protected like any other.
    pub(super) fn file(&mut self, path: &Path) {
        let Some(inode) = (self.inode_of)(path).filter(|_| self.files.len() < MAX_RECORDED_PATHS)
        else {
            return;
        };
        // A linked worktree has a file `.git` instead of a repository.
        if self.repositories
            && path.file_name().is_some_and(|name| name == REPOSITORY)
            && self.made_around(path)
            && let Some(dir) = path.parent()
        {
            self.tree(dir);
        }
        self.files.insert(path, inode);
    }

    /// Notes a directory as one that this room has made with a repository. Nothing if it does
    /// not exist.
    fn tree(&mut self, dir: &Path) {
        if let Some(inode) = (self.inode_of)(dir) {
            self.trees.insert(dir.to_path_buf(), inode);
        }
    }

    /// True if this room has made a directory and everything in it.
    pub(super) fn is_new(&self, dir: &Path) -> bool {
        self.directories.get(dir).is_some_and(|inode| self.is_still(dir, *inode))
    }

    /// True if this room has made a repository in a directory, or around it.
    pub(super) fn has_repository(&self, dir: &Path) -> bool {
        self.trees.keys().any(|tree| tree.starts_with(dir) || dir.starts_with(tree))
    }

    /// Forgets a removed name. A directory whose repository is gone is protected like any
    /// other.
    pub(super) fn removed(&mut self, path: &Path) {
        if path.file_name().is_some_and(|name| name == REPOSITORY) {
            let around = path.parent().unwrap_or(path);
            self.trees.retain(|tree, _| tree != path && tree != around);
            self.files.remove(path);
        }
    }

    /// True if the room has made the directory that contains a path.
    pub(super) fn made_around(&self, path: &Path) -> bool {
        path.parent().is_some_and(|dir| self.is_new(dir))
    }

    /// True if the room has made this file, or the repository or worktree around the path.
    pub(super) fn covers(&self, path: &Path) -> bool {
        self.files.get(path).is_some_and(|inode| self.is_still(path, *inode))
            || (self.trees.iter())
                .any(|(tree, inode)| path.starts_with(tree) && self.is_still(tree, *inode))
    }

    /// Updates the record after the command has renamed a file over one that it made.
    pub(super) fn replaced(&mut self, path: &Path) {
        if let Some(inode) = self.files.get(path).and_then(|_| (self.inode_of)(path)) {
            self.files.insert(path, inode);
        }
    }

    /// Forgets a path after a rename from it or to it.
    pub(super) fn moved(&mut self, path: &Path) {
        // The directories above now hold something that the room did not make.
        self.trees.retain(|known, _| !known.starts_with(path) && !path.starts_with(known));
        self.directories.forget(path);
        path.ancestors().for_each(|above| self.directories.remove(above));
        self.files.forget(path);
    }

    /// True if a name still leads to the object that the room has made.
    fn is_still(&self, path: &Path, inode: Inode) -> bool {
        (self.inode_of)(path) == Some(inode)
    }
}

/// True for a directory in `.git/modules` that is not in the repository of a submodule.
fn is_new_submodule(path: &Path) -> bool {
    is_in_submodule(path)
        && path
            .ancestors()
            .skip(1)
            .take_while(|above| is_in_submodule(above))
            .all(|above| lstat(above.join("HEAD")).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On an imagined disk, where nothing is ever replaced.
    fn fresh(repositories: bool) -> OwnCreations {
        OwnCreations::with(repositories, |_| Some((1, 1)))
    }

    #[test]
    fn a_directory_replaced_from_outside_is_not_its_makers() {
        let dir = tempfile::tempdir().unwrap();
        let [clone, file] = ["clone", "bin/activate"].map(|name| dir.path().join(name));
        let mut fresh = OwnCreations::new(true);
        for path in [&clone, &clone.join(REPOSITORY), &dir.path().join("bin")] {
            std::fs::create_dir(path).unwrap();
            fresh.directory(path);
        }
        std::fs::write(&file, "").unwrap();
        fresh.file(&file);
        let config = clone.join(".git/config");
        assert!(fresh.covers(&config) && fresh.covers(&file) && fresh.is_new(&clone));
        for path in [&clone, &dir.path().join("bin")] {
            std::fs::rename(path, path.with_extension("old")).unwrap();
            std::fs::create_dir(path).unwrap();
        }
        std::fs::create_dir(clone.join(REPOSITORY)).unwrap();
        std::fs::write(&file, "").unwrap();
        assert!(!fresh.covers(&config) && !fresh.covers(&file) && !fresh.is_new(&clone));
    }

    #[test]
    fn a_file_that_its_maker_renames_another_over_stays_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let [file, other] = ["made", "other"].map(|name| dir.path().join(name));
        let mut fresh = OwnCreations::new(false);
        for path in [&file, &other] {
            std::fs::write(path, "").unwrap();
        }
        fresh.file(&file);
        std::fs::rename(&other, &file).unwrap();
        assert!(!fresh.covers(&file));
        fresh.replaced(&file);
        assert!(fresh.covers(&file));
    }

    #[test]
    fn a_new_repository_belongs_to_its_maker() {
        let mut fresh = fresh(true);
        fresh.directory(Path::new("/p/clone"));
        fresh.directory(Path::new("/p/clone/.git"));
        fresh.directory(Path::new("/p/old/.git"));
        let covers = |path: &str| fresh.covers(Path::new(path));
        assert!(covers("/p/clone/.git/config") && covers("/p/clone/.vscode/settings.json"));
        assert!(covers("/p/old/.git/config") && !covers("/p/old/.vscode/settings.json"));
        assert!(!covers("/p/.git/config"));
    }

    #[test]
    fn a_new_worktree_is_its_makers_if_its_directory_is_new() {
        let mut fresh = fresh(true);
        fresh.directory(Path::new("/p/wt"));
        fresh.file(Path::new("/p/wt/.git"));
        fresh.file(Path::new("/p/old/.git"));
        assert!(fresh.covers(Path::new("/p/wt/.gitattributes")));
        assert!(!fresh.covers(Path::new("/p/old/.gitattributes")));
        assert!(fresh.made_around(Path::new("/p/wt/x")));
        assert!(!fresh.made_around(Path::new("/p/old/x")));
    }

    #[test]
    fn forbidden_new_repositories_are_not_remembered() {
        let mut fresh = fresh(false);
        fresh.directory(Path::new("/p/x/.git"));
        assert!(!fresh.covers(Path::new("/p/x/.git/config")));
    }

    #[test]
    fn a_renamed_directory_is_forgotten_with_everything_below() {
        let mut fresh = fresh(true);
        fresh.directory(Path::new("/p/x/.git"));
        fresh.file(Path::new("/p/x/v/bin/activate"));
        fresh.moved(Path::new("/p/x"));
        assert!(!fresh.covers(Path::new("/p/x/.git/config")));
        assert!(!fresh.covers(Path::new("/p/x/v/bin/activate")));
    }

    #[test]
    fn what_was_moved_into_a_new_directory_is_not_its_makers() {
        let mut fresh = fresh(true);
        fresh.directory(Path::new("/p/new"));
        fresh.moved(Path::new("/p/new/old"));
        fresh.directory(Path::new("/p/new/.git"));
        assert!(fresh.covers(Path::new("/p/new/.git/config")));
        assert!(!fresh.covers(Path::new("/p/new/old/.git/config")));
    }
}
