//! What can be seen of the disk where nothing can be mounted over the rest: the
//! same as in a room, by path.
//!
//! A room shows what its rules, the baseline and the launcher speak of, with the
//! directories on the way there and nothing else in them. What is denied inside
//! something shown has its name taken by something empty. Here the monitor answers
//! as if it were so. What rules say about names alone takes nothing out of sight,
//! here and there.
//!
//! Limits: of a directory on the way owner, times and number are the real ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clash_policy::Caps;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    places: BTreeMap<PathBuf, Place>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    /// How everything from here down is shown, as far as nothing below says
    /// otherwise.
    tree: Option<Shown>,
    /// Shown itself, because it is on the way to something.
    way: bool,
}

/// How a tree is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Not,
    ReadOnly,
    Writable,
}

impl Shown {
    pub(crate) fn with(caps: Caps) -> Self {
        match caps {
            none if none.is_empty() => Self::Not,
            change if change.intersects(Caps::CHANGE) => Self::Writable,
            _ => Self::ReadOnly,
        }
    }
}

/// How much of a path can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    Seen,
    /// That there is something, and of what kind: the directory it is in is shown.
    Blank,
    /// As if it were not there.
    Hidden,
}

impl Sight {
    /// Shows or hides a path and everything below it.
    pub(crate) fn tree(&mut self, path: &Path, shown: Shown) {
        self.places.entry(path.to_path_buf()).or_default().tree = Some(shown);
        if shown != Shown::Not {
            self.way(path);
        }
    }

    /// Shows a path, without what is below it.
    pub(crate) fn way(&mut self, path: &Path) {
        for dir in path.ancestors() {
            self.places.entry(dir.to_path_buf()).or_default().way = true;
        }
    }

    pub fn of(&self, path: &Path) -> Look {
        let way = self.places.get(path).is_some_and(|place| place.way);
        if way || self.in_tree(path) != Shown::Not {
            Look::Seen
        } else if path.parent().is_some_and(|dir| self.in_tree(dir) != Shown::Not) {
            Look::Blank
        } else {
            Look::Hidden
        }
    }

    /// Whether a room would have it on a mount that cannot be written.
    pub fn is_read_only(&self, path: &Path) -> bool {
        self.in_tree(path) != Shown::Writable
    }

    fn in_tree(&self, path: &Path) -> Shown {
        path.ancestors().find_map(|dir| self.places.get(dir)?.tree).unwrap_or(Shown::Not)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight() -> Sight {
        let mut sight = Sight::default();
        sight.tree(Path::new("/usr"), Shown::ReadOnly);
        sight.tree(Path::new("/home/u/app"), Shown::Writable);
        sight.tree(Path::new("/home/u/app/secret"), Shown::Not);
        sight.tree(Path::new("/home/u/app/secret/deep/shown"), Shown::Writable);
        sight.tree(Path::new("/home/u/app/hidden"), Shown::Not);
        sight.way(Path::new("/tmp"));
        sight
    }

    #[track_caller]
    fn all(look: Look, paths: &[&str]) {
        paths.iter().for_each(|path| assert_eq!(sight().of(Path::new(path)), look, "{path}"));
    }

    #[test]
    fn trees_are_seen_with_the_directories_on_the_way_to_them() {
        all(Look::Seen, &["/", "/usr", "/usr/bin/sh", "/home", "/home/u", "/home/u/app/x", "/tmp"]);
        all(Look::Hidden, &["/etc", "/home/v", "/home/u/.ssh", "/home/u/.ssh/key", "/tmp/x"]);
    }

    #[test]
    fn only_what_may_be_changed_is_not_read_only() {
        let read_only = |path: &str| sight().is_read_only(Path::new(path));
        assert!(read_only("/usr/bin/sh") && read_only("/home/u") && read_only("/tmp"));
        assert!(!read_only("/home/u/app/x") && read_only("/home/u/app/hidden"));
    }

    #[test]
    fn what_is_denied_inside_a_tree_has_its_name_left_and_nothing_below() {
        all(Look::Blank, &["/home/u/app/hidden"]);
        all(Look::Hidden, &["/home/u/app/hidden/key", "/home/u/app/secret/deep/other"]);
    }

    #[test]
    fn what_is_shown_again_inside_what_is_denied_can_be_reached() {
        all(Look::Seen, &["/home/u/app/secret/deep/shown/x", "/home/u/app/secret/deep"]);
    }
}
