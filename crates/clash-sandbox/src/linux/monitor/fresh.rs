//! Paths that this room has made itself and may therefore change, although they are
//! persistence paths.
//!
//! These are new repositories and linked worktrees, if the policy permits to make them. A
//! directory that the room has made for a repository belongs to it. So do files that the
//! list of persistence paths permits to make once, or together with their directory.
//!
//! The record goes by path. After a rename the monitor forgets everything below the old and
//! the new path, so no other file can take a remembered name.

use std::path::{Path, PathBuf};

use clash_policy::protect::REPOSITORY;

use crate::below::PathSet;

/// Beyond this number the monitor records nothing more. A path without a record is
/// protected like any other.
const MAX_RECORDED_PATHS: usize = 20_000;

#[derive(Debug)]
pub(super) struct OwnCreations {
    repositories: bool,
    directories: PathSet,
    /// The room made everything below these directories.
    trees: Vec<PathBuf>,
    files: PathSet,
}

impl OwnCreations {
    pub(super) fn new(repositories: bool) -> Self {
        let (directories, files) = (PathSet::default(), PathSet::default());
        Self { repositories, directories, trees: Vec::new(), files }
    }

    pub(super) fn directory(&mut self, path: &Path) {
        if self.directories.len() >= MAX_RECORDED_PATHS {
            return;
        }
        if self.repositories && path.file_name().is_some_and(|name| name == REPOSITORY) {
            let around = path.parent().filter(|parent| self.directories.contains(parent));
            self.trees.push(around.unwrap_or(path).to_path_buf());
        }
        self.directories.insert(path);
    }

    pub(super) fn file(&mut self, path: &Path) {
        if self.files.len() >= MAX_RECORDED_PATHS {
            return;
        }
        // A linked worktree has a file `.git` instead of a repository.
        if self.repositories
            && path.file_name().is_some_and(|name| name == REPOSITORY)
            && self.made_around(path)
        {
            self.trees.extend(path.parent().map(Path::to_path_buf));
        }
        self.files.insert(path);
    }

    /// True if this room has made a directory and everything in it.
    pub(super) fn is_new(&self, dir: &Path) -> bool {
        self.directories.contains(dir)
    }

    /// True if this room has made a repository in a directory, or around it.
    pub(super) fn has_repository(&self, dir: &Path) -> bool {
        self.trees.iter().any(|tree| tree.starts_with(dir) || dir.starts_with(tree))
    }

    /// Forgets a removed name. A directory whose repository is gone is protected like any
    /// other.
    pub(super) fn removed(&mut self, path: &Path) {
        if path.file_name().is_some_and(|name| name == REPOSITORY) {
            let around = path.parent().unwrap_or(path);
            self.trees.retain(|tree| tree != path && tree != around);
            self.files.remove(path);
        }
    }

    /// True if the room has made the directory that contains a path.
    pub(super) fn made_around(&self, path: &Path) -> bool {
        path.parent().is_some_and(|dir| self.directories.contains(dir))
    }

    pub(super) fn covers(&self, path: &Path) -> bool {
        self.files.contains(path) || self.trees.iter().any(|tree| path.starts_with(tree))
    }

    /// Forgets a path after a rename from it or to it.
    pub(super) fn moved(&mut self, path: &Path) {
        // The directories above now hold something that the room did not make.
        self.trees.retain(|known| !known.starts_with(path) && !path.starts_with(known));
        self.directories.forget(path);
        path.ancestors().for_each(|above| self.directories.remove(above));
        self.files.forget(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_repository_covers_its_new_directory() {
        let mut fresh = OwnCreations::new(true);
        fresh.directory(Path::new("/p/clone"));
        fresh.directory(Path::new("/p/clone/.git"));
        fresh.directory(Path::new("/p/old/.git"));
        let covers = |path: &str| fresh.covers(Path::new(path));
        assert!(covers("/p/clone/.git/config") && covers("/p/clone/.vscode/settings.json"));
        assert!(covers("/p/old/.git/config") && !covers("/p/old/.vscode/settings.json"));
        assert!(!covers("/p/.git/config"));
    }

    #[test]
    fn a_new_worktree_counts_only_in_a_new_directory() {
        let mut fresh = OwnCreations::new(true);
        fresh.directory(Path::new("/p/wt"));
        fresh.file(Path::new("/p/wt/.git"));
        fresh.file(Path::new("/p/old/.git"));
        assert!(fresh.covers(Path::new("/p/wt/.gitattributes")));
        assert!(!fresh.covers(Path::new("/p/old/.gitattributes")));
        assert!(fresh.made_around(Path::new("/p/wt/x")));
        assert!(!fresh.made_around(Path::new("/p/old/x")));
    }

    #[test]
    fn without_the_right_no_new_repository_is_recorded() {
        let mut fresh = OwnCreations::new(false);
        fresh.directory(Path::new("/p/x/.git"));
        assert!(!fresh.covers(Path::new("/p/x/.git/config")));
    }

    #[test]
    fn a_renamed_directory_is_forgotten_with_everything_below() {
        let mut fresh = OwnCreations::new(true);
        fresh.directory(Path::new("/p/x/.git"));
        fresh.file(Path::new("/p/x/v/bin/activate"));
        fresh.moved(Path::new("/p/x"));
        assert!(!fresh.covers(Path::new("/p/x/.git/config")));
        assert!(!fresh.covers(Path::new("/p/x/v/bin/activate")));
    }

    #[test]
    fn files_moved_into_a_new_directory_are_not_its_own() {
        let mut fresh = OwnCreations::new(true);
        fresh.directory(Path::new("/p/new"));
        fresh.moved(Path::new("/p/new/old"));
        fresh.directory(Path::new("/p/new/.git"));
        assert!(fresh.covers(Path::new("/p/new/.git/config")));
        assert!(!fresh.covers(Path::new("/p/new/old/.git/config")));
    }
}
