//! Links with names on the list of persistence paths, for example `.envrc` that leads to
//! `env/dev.sh`, or `.git/hooks` that leads to `tools/hooks`. A tool obeys the target, so
//! the target is protected as if it had the link's name.
//!
//! No call tells which links lead to a file, and a search of whole trees would take too
//! long. So this module reads the directories from the project's root to the changed file,
//! and in each the directories of the list. It finds every link in the root, and every link
//! that leads to its own directory or below. It does not find a link to a neighbour's
//! directory (`a/.envrc` to `b/env.sh`), nor one beyond the first
//! [`MAX_DIRECTORIES_INSIDE`] directories of the list in one directory.
//!
//! A link to a directory of packages counts, whatever its name. Most of the list does not
//! apply below `vendor`, but it applies below `front -> vendor/front`.

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use clash_policy::path::{LinkResolver, ProtectedLink, is_below, normalise};
use clash_policy::{FileCaps, ProtectSettings, protect};

use crate::below::PathMap;

/// The kernel follows as many links.
const MAX_LINKS: usize = 40;
/// Directories of the list that are read below one directory. There are few, except for the
/// submodules of a repository.
const MAX_DIRECTORIES_INSIDE: usize = 200;
/// When the set is full, it is cleared and all directories are read again.
const MAX_DIRECTORIES_SEEN: usize = 100_000;

/// The links found so far.
#[derive(Debug, Default)]
pub(crate) struct LinkAliases {
    names: Option<ListedNames>,
    /// A directory is in the set only together with those above it.
    seen: PathMap,
    found: Vec<ProtectedLink>,
}

impl LinkAliases {
    /// Reads the directories from `root` to a path that is to be changed, except those read
    /// before. If the path is elsewhere, reads only `root`.
    pub(crate) fn look_on_way(&mut self, path: &Path, root: &Path, protect: &ProtectSettings) {
        let strictly = path != root && is_below(path, root);
        let first = if strictly { path.parent().unwrap_or(root) } else { root };
        let dirs = first.ancestors().take_while(|dir| is_below(dir, root));
        let new: Vec<&Path> = dirs.take_while(|dir| !self.seen.contains(dir)).collect();
        if self.seen.len() + new.len() > MAX_DIRECTORIES_SEEN {
            self.seen.clear();
        }
        for dir in new {
            self.read(dir, root, protect);
            self.seen.insert(dir, ());
        }
    }

    /// Counts a directory that the command has just made as read, because it is empty.
    pub(crate) fn note_new_directory(&mut self, dir: &Path) {
        if dir.parent().is_some_and(|above| self.seen.contains(above)) {
            self.seen.insert(dir, ());
        }
    }

    /// Forgets a directory and all below it after a rename from it or to it. Links that stay
    /// inside the directory with their targets are forgotten too, and found again.
    pub(crate) fn forget_moved(&mut self, dir: &Path) {
        self.seen.forget(dir);
        self.found.retain(|alias| !is_below(&alias.at, dir) || !is_below(&alias.to, dir));
    }

    /// The found links that lead to a path or to a directory above it.
    pub(crate) fn leading_to(&self, path: &Path) -> Vec<ProtectedLink> {
        self.found.iter().filter(|alias| is_below(path, &alias.to)).cloned().collect()
    }

    /// True if a target lies strictly below a path, and its link does not.
    pub(crate) fn lead_below(&self, path: &Path) -> bool {
        let inside = |place: &Path| place != path && is_below(place, path);
        self.found.iter().any(|alias| inside(&alias.to) && !inside(&alias.at))
    }

    /// Finds the links in a directory, and in up to [`MAX_DIRECTORIES_INSIDE`] directories of
    /// the list below it. Outside installed packages also links with other names, if they
    /// lead into packages.
    fn read(&mut self, dir: &Path, root: &Path, protect: &ProtectSettings) {
        let mut inside = VecDeque::from([(dir.to_path_buf(), false)]);
        let mut left = MAX_DIRECTORIES_INSIDE;
        while let Some((dir, whole)) = inside.pop_front() {
            let names = self.names.get_or_insert_with(|| ListedNames::from_list(protect));
            let any = whole || dir.file_name().is_some_and(|name| names.any_below(name));
            let mut children = children(&dir, protect);
            let outside = dir.strip_prefix(root).is_ok_and(|dir| !protect::is_in_packages(dir));
            children.retain(|(name, kind)| {
                any || names.has(name) || outside && matches!(kind, EntryKind::Link)
            });
            for (name, kind) in children {
                let path = dir.join(name);
                let Ok(below) = path.strip_prefix(root) else { continue };
                if outside && matches!(kind, EntryKind::Link) && leads_to_packages(&path, root) {
                    self.follow(&path, root);
                    continue;
                }
                let kept = protect::kept(protect, below, 0, FileCaps::CHANGE);
                if kept.is_none() && !protect::begins(protect, below, |_| true) {
                    continue;
                }
                match kind {
                    EntryKind::Link => self.follow(&path, root),
                    EntryKind::Directory if left > 0 => {
                        left -= 1;
                        inside.push_back((path, kept.is_some()));
                    }
                    EntryKind::Directory => {}
                }
            }
        }
    }

    /// Records the target of a link, and every other link on the way there. After
    /// [`MAX_LINKS`] links it gives up, without a target.
    fn follow(&mut self, at: &Path, root: &Path) {
        let mut here = at.parent().unwrap_or(Path::new("/")).to_path_buf();
        let mut names = VecDeque::from([at.file_name().unwrap_or_default().to_owned()]);
        let mut links = MAX_LINKS;
        while let Some(name) = names.pop_front() {
            if name == ".." {
                here.pop();
                continue;
            }
            here.push(name);
            let Ok(target) = fs::read_link(&here) else { continue };
            if here != at {
                self.record_alias(at, &here, root);
            }
            let Some(fewer) = links.checked_sub(1) else { return };
            links = fewer;
            here.pop();
            if target.is_absolute() {
                here = PathBuf::from("/");
            }
            let parts = target.components().filter_map(|part| match part {
                Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
                _ => None,
            });
            for part in parts.collect::<Vec<OsString>>().into_iter().rev() {
                names.push_front(part);
            }
        }
        self.record_alias(at, &here, root);
    }

    /// Records that a link leads to a place. A link to the root or above it would protect
    /// everything, so it is left out.
    fn record_alias(&mut self, at: &Path, to: &Path, root: &Path) {
        let alias = ProtectedLink { at: at.to_path_buf(), to: to.to_path_buf() };
        if !is_below(root, to) && !self.found.contains(&alias) {
            self.found.push(alias);
        }
    }
}

/// True if a link leads to packages of the same tree, for example to `vendor/front`. A link
/// named `node_modules` does not count.
fn leads_to_packages(at: &Path, root: &Path) -> bool {
    let Ok(text) = fs::read_link(at) else { return false };
    let to = at.parent().map(|dir| normalise(&dir.join(text)));
    let below = to.as_deref().and_then(|to| to.strip_prefix(root).ok());
    below.is_some_and(protect::is_in_packages) && !at.ends_with("node_modules")
}

/// The links found so far. The owner makes every change of names itself, so the record
/// stays valid.
#[derive(Debug, Default)]
pub(crate) struct RememberedLinks(pub(crate) RefCell<LinkAliases>);

impl LinkResolver for RememberedLinks {
    /// The monitor makes no decision about commands.
    fn git_is_steered(&self, _: &Path, _: &Path, _: &str) -> Option<String> {
        None
    }

    /// The monitor asks only about real paths.
    fn real(&self, path: &Path) -> PathBuf {
        path.to_path_buf()
    }

    fn aliases(&self, path: &Path, root: &Path, protect: &ProtectSettings) -> Vec<ProtectedLink> {
        let mut known = self.0.borrow_mut();
        known.look_on_way(path, root, protect);
        known.leading_to(path)
    }
}

/// The names of which the list's entries consist, for a quick test.
#[derive(Debug)]
struct ListedNames {
    /// In lower case.
    whole: HashSet<String>,
    /// Names that contain a `*`.
    partly: Vec<String>,
    /// Directories in which any name may be part of an entry.
    before_any: HashSet<String>,
}

impl ListedNames {
    /// Sorts every name of the list's entries into the three sets.
    fn from_list(protect: &ProtectSettings) -> Self {
        let (mut whole, mut partly) = (HashSet::new(), Vec::new());
        let mut before_any = HashSet::new();
        for entry in protect::entries(protect) {
            let mut before = "";
            for part in entry.path.split('/') {
                match part {
                    "*" => drop(before_any.insert(before.to_ascii_lowercase())),
                    part if part.contains('*') => partly.push(part.to_owned()),
                    part => drop(whole.insert(part.to_ascii_lowercase())),
                }
                before = part;
            }
        }
        Self { whole, partly, before_any }
    }

    /// True if a name may be part of an entry. A name that is not UTF-8 gets the full
    /// comparison.
    fn has(&self, name: &OsStr) -> bool {
        let Some(text) = name.to_str() else { return true };
        self.whole.contains(text.to_ascii_lowercase().as_str())
            || self.partly.iter().any(|part| protect::is_named(part, name))
    }

    /// True if any name in a directory of this name may be part of an entry.
    fn any_below(&self, name: &OsStr) -> bool {
        name.to_str().is_none_or(|text| self.before_any.contains(&text.to_ascii_lowercase()))
    }
}

enum EntryKind {
    Link,
    Directory,
}

/// The links and directories in a directory; empty if it does not exist. If reading it is not
/// permitted, each name of the list is looked up.
fn children(dir: &Path, protect: &ProtectSettings) -> Vec<(OsString, EntryKind)> {
    let kind = |file: fs::FileType| {
        let directory = file.is_dir().then_some(EntryKind::Directory);
        if file.is_symlink() { Some(EntryKind::Link) } else { directory }
    };
    match fs::read_dir(dir) {
        Ok(entries) => {
            let known =
                |entry: fs::DirEntry| Some((entry.file_name(), kind(entry.file_type().ok()?)?));
            entries.flatten().filter_map(known).collect()
        }
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Vec::new(),
        Err(_) => {
            let names = protect::entries(protect).flat_map(|entry| entry.path.split('/'));
            let known = |name: &OsStr| {
                let meta = fs::symlink_metadata(dir.join(name)).ok()?;
                Some((name.to_owned(), kind(meta.file_type())?))
            };
            names.map(OsStr::new).filter_map(known).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// The links that lead to a path, in a project with these links.
    fn leading(links: &[(&str, &str)], path: &str) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        for (at, to) in links {
            let at = root.join(at);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            symlink(to, at).unwrap();
        }
        let mut aliases = LinkAliases::default();
        aliases.look_on_way(&root.join(path), &root, &ProtectSettings::default());
        let found = aliases.leading_to(&root.join(path)).into_iter();
        let mut found: Vec<String> =
            found.map(|a| a.at.strip_prefix(&root).unwrap().display().to_string()).collect();
        found.sort();
        found
    }

    #[test]
    fn what_a_link_of_the_list_leads_to_is_known_by_it() {
        assert_eq!(leading(&[(".envrc", "env/dev.sh")], "env/dev.sh"), [".envrc"]);
        assert_eq!(leading(&[(".git/hooks", "../tools/h")], "tools/h/pre-commit"), [".git/hooks"]);
        let deep = [("a/.git/hooks/pre-commit", "../../check.sh")];
        assert_eq!(leading(&deep, "a/check.sh"), ["a/.git/hooks/pre-commit"]);
        assert_eq!(leading(&[(".cargo", "conf")], "conf/config.toml"), [".cargo"]);
        assert_eq!(leading(&[("envrc", "env/dev.sh")], "env/dev.sh"), [""; 0]);
        assert_eq!(leading(&[(".envrc", "env/dev.sh")], "env/other.sh"), [""; 0]);
    }

    /// The quick test must reject only names that are on no list.
    #[test]
    fn a_link_in_the_place_of_any_part_of_any_entry_is_found() {
        for entry in protect::STANDARD {
            let names: Vec<String> =
                entry.path.split('/').map(|part| part.replace('*', "x").to_uppercase()).collect();
            for count in 1..=names.len() {
                let at = format!("sub/{}", names[..count].join("/"));
                let up = "../".repeat(count - 1);
                let found = leading(&[(&at, &format!("{up}other"))], "sub/other/x");
                assert_eq!(found, [at.as_str()], "{}", entry.path);
            }
        }
    }

    #[test]
    fn every_link_on_the_way_counts() {
        let chain = [(".envrc", "env/now/x.sh"), ("env/now", "v1"), ("env/v1/x.sh", "../y.sh")];
        for path in ["env/now", "env/v1/x.sh", "env/y.sh"] {
            assert_eq!(leading(&chain, path), [".envrc"], "{path}");
        }
        assert_eq!(leading(&chain, "env/v1/z"), [""; 0]);
    }

    #[test]
    fn a_link_to_everything_or_to_itself_keeps_nothing() {
        for links in [[(".vscode", ".")], [(".vscode", "..")], [(".vscode", ".vscode")]] {
            assert_eq!(leading(&links, "src/main.rs"), [""; 0], "{links:?}");
        }
    }

    #[test]
    fn a_directory_that_was_moved_is_looked_at_again() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        let protect = ProtectSettings::default();
        let mut aliases = LinkAliases::default();
        fs::create_dir(root.join("a")).unwrap();
        aliases.look_on_way(&root.join("a/x"), &root, &protect);
        symlink("x", root.join("a/.envrc")).unwrap();
        aliases.look_on_way(&root.join("a/x"), &root, &protect);
        assert!(
            aliases.leading_to(&root.join("a/x")).is_empty(),
            "no command inside could make it"
        );
        fs::rename(root.join("a"), root.join("b")).unwrap();
        aliases.forget_moved(&root.join("a"));
        aliases.forget_moved(&root.join("b"));
        aliases.look_on_way(&root.join("b/x"), &root, &protect);
        assert_eq!(aliases.leading_to(&root.join("b/x")).len(), 1);
        assert!(!aliases.lead_below(&root.join("b")), "the link goes with what it leads to");
    }
}
