//! The visible paths in the watched tier, where nothing can be mounted over the invisible
//! ones.
//! They are the same as in a room.
//!
//! A room shows the paths of its rules, the baseline and the launcher, and the directories
//! on the way there, without their other content. Something empty covers a denied path
//! inside a visible one. Here the monitor answers as if this were so. Rules about names
//! alone hide nothing, in both cases.
//!
//! Limits: a directory on the way shows its real owner, times and inode number.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clash_policy::FileCaps;

/// The paths that a command of the watched tier may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VisiblePaths {
    places: BTreeMap<PathBuf, VisiblePlace>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct VisiblePlace {
    /// The visibility of everything from here down, unless a path below says otherwise.
    tree: Option<TreeVisibility>,
    /// True if this directory itself is visible, because it is on the way to another path.
    way: bool,
}

/// The visibility of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TreeVisibility {
    Not,
    ReadOnly,
    Writable,
}

impl TreeVisibility {
    /// A tree is visible if the command has any right on it, and writable if it may change
    /// something there.
    pub(crate) fn for_caps(caps: FileCaps) -> Self {
        match caps {
            none if none.is_empty() => Self::Not,
            change if change.intersects(FileCaps::CHANGE) => Self::Writable,
            _ => Self::ReadOnly,
        }
    }
}

/// How much of a path is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathVisibility {
    Seen,
    /// Only its existence and type, because its directory is visible.
    Blank,
    /// The path seems not to exist.
    Hidden,
}

impl VisiblePaths {
    /// Shows or hides a path and everything below it. A shown path also shows the directories
    /// on the way to it.
    pub(crate) fn set_tree(&mut self, path: &Path, shown: TreeVisibility) {
        self.places.entry(path.to_path_buf()).or_default().tree = Some(shown);
        if shown != TreeVisibility::Not {
            self.show_way(path);
        }
    }

    /// Shows a path and the directories above it, without their other content.
    pub(crate) fn show_way(&mut self, path: &Path) {
        for dir in path.ancestors() {
            self.places.entry(dir.to_path_buf()).or_default().way = true;
        }
    }

    /// How much of this path the command sees.
    pub fn visibility(&self, path: &Path) -> PathVisibility {
        let way = self.places.get(path).is_some_and(|place| place.way);
        if way || self.tree_visibility(path) != TreeVisibility::Not {
            PathVisibility::Seen
        } else if path.parent().is_some_and(|dir| self.tree_visibility(dir) != TreeVisibility::Not)
        {
            PathVisibility::Blank
        } else {
            PathVisibility::Hidden
        }
    }

    /// True if a room would show the path on a read-only mount, or not at all.
    pub fn is_read_only(&self, path: &Path) -> bool {
        self.tree_visibility(path) != TreeVisibility::Writable
    }

    /// The visibility of the closest tree around a path; `Not` if there is none.
    fn tree_visibility(&self, path: &Path) -> TreeVisibility {
        path.ancestors().find_map(|dir| self.places.get(dir)?.tree).unwrap_or(TreeVisibility::Not)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight() -> VisiblePaths {
        let mut sight = VisiblePaths::default();
        sight.set_tree(Path::new("/usr"), TreeVisibility::ReadOnly);
        sight.set_tree(Path::new("/home/u/app"), TreeVisibility::Writable);
        sight.set_tree(Path::new("/home/u/app/secret"), TreeVisibility::Not);
        sight.set_tree(Path::new("/home/u/app/secret/deep/shown"), TreeVisibility::Writable);
        sight.set_tree(Path::new("/home/u/app/hidden"), TreeVisibility::Not);
        sight.show_way(Path::new("/tmp"));
        sight
    }

    #[track_caller]
    fn assert_visibility(look: PathVisibility, paths: &[&str]) {
        paths
            .iter()
            .for_each(|path| assert_eq!(sight().visibility(Path::new(path)), look, "{path}"));
    }

    #[test]
    fn trees_are_seen_with_the_directories_on_the_way_to_them() {
        assert_visibility(
            PathVisibility::Seen,
            &["/", "/usr", "/usr/bin/sh", "/home", "/home/u", "/home/u/app/x", "/tmp"],
        );
        assert_visibility(
            PathVisibility::Hidden,
            &["/etc", "/home/v", "/home/u/.ssh", "/home/u/.ssh/key", "/tmp/x"],
        );
    }

    #[test]
    fn only_what_may_be_changed_is_not_read_only() {
        let read_only = |path: &str| sight().is_read_only(Path::new(path));
        assert!(read_only("/usr/bin/sh") && read_only("/home/u") && read_only("/tmp"));
        assert!(!read_only("/home/u/app/x") && read_only("/home/u/app/hidden"));
    }

    #[test]
    fn a_denied_path_inside_a_tree_shows_only_its_name() {
        assert_visibility(PathVisibility::Blank, &["/home/u/app/hidden"]);
        assert_visibility(
            PathVisibility::Hidden,
            &["/home/u/app/hidden/key", "/home/u/app/secret/deep/other"],
        );
    }

    #[test]
    fn an_allowed_path_inside_a_denied_one_is_visible() {
        assert_visibility(
            PathVisibility::Seen,
            &["/home/u/app/secret/deep/shown/x", "/home/u/app/secret/deep"],
        );
    }
}
