//! Resolves paths on this disk: follows links, and tells whether a path exists.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::CWD;

use clash_policy::ProtectSettings;
use clash_policy::path::{LinkResolver, ProtectedLink, is_normal};

use crate::aliases::LinkAliases;

use crate::baseline::{BASELINE_ENTRIES, BaselineEntry};

/// The real disk. It follows symlinks one component at a time: a link whose target does not
/// exist yet still leads to the place of a write. It remembers results, because the paths
/// of one call share directories. A `Disk` lives for one call, so no result gets old.
#[derive(Debug, Default)]
pub struct Disk {
    /// Keyed by text, because `Path` compares and hashes component by component.
    seen: RefCell<HashMap<OsString, ResolvedPath, BuildHasherDefault<FastHasher>>>,
    baseline: OnceCell<Vec<Option<Cow<'static, Path>>>>,
    /// Directories whose names are all known, as hashes. If two names have the same hash,
    /// the lookup goes to the disk.
    listed: RefCell<Vec<(PathBuf, Vec<u64>)>>,
}

/// A resolved path.
#[derive(Clone, Debug)]
struct ResolvedPath {
    /// The real path; `None` in the usual case that it equals the given path.
    moved: Option<PathBuf>,
    exists: bool,
}

/// Directories that the kernel fills. Links in them do not matter here.
pub(crate) const KERNEL_DIRECTORIES: [&str; 3] = ["/dev", "/proc", "/sys"];

/// The kernel follows as many links.
const MAX_LINKS: usize = 40;

impl LinkResolver for Disk {
    fn real(&self, path: &Path) -> PathBuf {
        self.resolve(path).moved.unwrap_or_else(|| path.to_path_buf())
    }

    fn git_is_steered(&self, dir: &Path, project: &Path, subcommand: &str) -> Option<String> {
        crate::repository::find_steering(&self.real(dir), &self.real(project), subcommand)
    }

    fn remote_addresses(&self, project: &Path, words: &[&str]) -> Vec<String> {
        crate::repository::remote_addresses(&self.real(project), words)
    }

    fn aliases(&self, path: &Path, root: &Path, protect: &ProtectSettings) -> Vec<ProtectedLink> {
        let mut aliases = LinkAliases::default();
        aliases.look_on_way(path, root, protect);
        aliases.leading_to(path)
    }
}

impl Disk {
    /// A disk that knows the places of the baseline's entries already, in the order of the
    /// table.
    pub(crate) fn with_baseline(places: Vec<Option<Cow<'static, Path>>>) -> Self {
        let disk = Self::default();
        let _ = disk.baseline.set(places);
        disk
    }

    /// The real path of each entry of the baseline, in the order of the table. `None` for an
    /// entry that this machine does not have. Entries in /dev, /proc and /sys are not looked
    /// up.
    pub(crate) fn baseline_places(&self) -> Vec<Option<Cow<'static, Path>>> {
        let place = |path: &'static str| {
            let named = Path::new(path);
            if KERNEL_DIRECTORIES.iter().any(|dir| named.starts_with(dir)) {
                return Some(Cow::Borrowed(named));
            }
            let real = self.real(named);
            self.has(named).then(|| match real == named {
                true => Cow::Borrowed(named),
                false => Cow::Owned(real),
            })
        };
        BASELINE_ENTRIES.iter().map(|entry| place(entry.path)).collect()
    }

    /// The baseline entries that this machine has, with their real paths.
    pub(crate) fn baseline(&self) -> impl Iterator<Item = (&'static BaselineEntry, &Path)> {
        let places = self.baseline.get_or_init(|| self.baseline_places());
        BASELINE_ENTRIES
            .iter()
            .zip(places)
            .filter_map(|(entry, place)| Some((entry, place.as_deref()?)))
    }

    /// The real paths of the existing directories in which names were looked up so far, with
    /// repetitions.
    pub(crate) fn looked_into(&self) -> Vec<PathBuf> {
        let seen = self.seen.borrow();
        let dirs = seen.keys().filter_map(|path| split(Path::new(path)));
        let dirs: Vec<PathBuf> = dirs.map(|(dir, _)| dir.to_path_buf()).collect();
        drop(seen);
        dirs.iter().map(|dir| self.real(dir)).filter(|dir| self.has(dir)).collect()
    }

    /// Reads the names of a directory once, so that names that it lacks cost no further call.
    /// Does nothing if it has more than 200 names or cannot be read. For a caller that will
    /// ask for many names, most of which do not exist.
    pub fn list(&self, dir: &Path) {
        let dir = self.real(dir);
        if let Some(names) = names_in(&dir) {
            self.listed.borrow_mut().push((dir, names));
        }
    }

    /// True if a listed directory has no such name. False if unknown.
    fn lacks(&self, path: &Path) -> bool {
        let listed = self.listed.borrow();
        let Some((dir, name)) = split(path).filter(|_| !listed.is_empty()) else { return false };
        let names = listed.iter().find(|(known, _)| known.as_os_str() == dir.as_os_str());
        names.is_some_and(|(_, names)| !names.contains(&hash(name.as_bytes())))
    }

    /// True if a path exists, after following links. A path that the user may not look at
    /// counts as existing.
    pub fn has(&self, path: &Path) -> bool {
        self.resolve(path).exists
    }

    /// The links on the way to a path, each by its real path, and the end of the way. Always
    /// read from the disk. After 40 links, the rest of the way is taken as it is.
    pub fn links_on(&self, path: &Path) -> (Vec<PathBuf>, PathBuf) {
        walk(path, MAX_LINKS, read_link)
    }

    /// The links in a directory itself, not below it; empty if it cannot be read.
    pub fn links_in(&self, dir: &Path) -> Vec<PathBuf> {
        if self.has(dir) { links_in(&self.real(dir)).unwrap_or_default() } else { Vec::new() }
    }

    /// Resolves a path, which need not be normal: `..` and `.` are handled as in the kernel.
    fn resolve(&self, path: &Path) -> ResolvedPath {
        let links = Cell::new(MAX_LINKS);
        if is_normal(path) {
            return self.resolve_normal(path, &links);
        }
        let (real, exists) = self.follow_target(PathBuf::from("/"), path, &links);
        ResolvedPath { moved: Some(real), exists }
    }

    /// Resolves a normal path, from the end, so that a known directory ends the search.
    /// `links` counts how many more links may be followed; at 0 the path counts as missing. A
    /// path that cannot be looked at (no permission) counts as existing.
    fn resolve_normal(&self, path: &Path, links: &Cell<usize>) -> ResolvedPath {
        let Some((parent, name)) = split(path) else {
            return ResolvedPath { moved: None, exists: true };
        };
        if let Some(known) = self.seen.borrow().get(path.as_os_str()) {
            return known.clone();
        }
        let above = self.resolve_normal(parent, links);
        let moved = above.moved.map(|parent| parent.join(name));
        // Below a missing directory there are no links.
        if !above.exists || links.get() == 0 {
            return ResolvedPath { moved, exists: false };
        }
        let here = moved.as_deref().unwrap_or(path);
        if self.lacks(here) {
            return ResolvedPath { moved, exists: false };
        }
        let found = match read_link(here) {
            Ok(target) => {
                links.set(links.get() - 1);
                let dir = here.parent().unwrap_or(Path::new("/")).to_path_buf();
                let (real, exists) = self.follow_target(dir, &target, links);
                ResolvedPath { moved: Some(real), exists }
            }
            Err(error) => {
                let absent =
                    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
                ResolvedPath { moved, exists: !absent }
            }
        };
        self.seen.borrow_mut().insert(path.as_os_str().to_owned(), found.clone());
        found
    }

    /// Follows the text of a link in `dir`. As in the kernel, `..` leaves the real
    /// directory, whatever link led into it.
    fn follow_target(&self, dir: PathBuf, target: &Path, links: &Cell<usize>) -> (PathBuf, bool) {
        let mut place = (if target.is_absolute() { "/".into() } else { dir }, true);
        for part in target.components() {
            match part {
                Component::ParentDir => drop(place.0.pop()),
                Component::Normal(name) => {
                    place.0.push(name);
                    let spot = self.resolve_normal(&place.0, links);
                    place = (spot.moved.unwrap_or(place.0), spot.exists);
                }
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        place
    }
}

/// A fast hash. No attacker gains from slowing down this map, and a hash byte by byte would
/// take as long as the lookups that it saves.
#[derive(Debug, Default)]
struct FastHasher(u64);

impl Hasher for FastHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut last = [0; 8];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        for word in words.iter().chain([&last]) {
            let mixed =
                (self.0.rotate_left(5) ^ u64::from_ne_bytes(*word)).wrapping_mul(HASH_FACTOR);
            self.0 = mixed ^ (mixed >> 32);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The hash of a name in lower case. Some directories ignore case, and a listed name in
/// another case may then be found.
fn hash(name: &[u8]) -> u64 {
    let mut folded = [0; 256];
    folded.iter_mut().zip(name).for_each(|(to, from)| *to = from.to_ascii_lowercase());
    let mut quick = FastHasher::default();
    quick.write(folded.get(..name.len()).unwrap_or(&folded));
    quick.finish()
}

/// The hashes of the names in a directory. `None` if it cannot be read or has more than 200
/// names. Does not use `std::fs::read_dir`, for which musl
/// would set up its allocator.
#[cfg(target_os = "linux")]
fn names_in(dir: &Path) -> Option<Vec<u64>> {
    use rustix::fs::{Mode, OFlags, RawDir, openat};
    const MAX_LISTED_NAMES: usize = 200;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let dir = openat(CWD, dir, flags, Mode::empty()).ok()?;
    let mut space = [const { MaybeUninit::uninit() }; 8192];
    let mut entries = RawDir::new(&dir, &mut space);
    let mut names = Vec::with_capacity(MAX_LISTED_NAMES);
    while let Some(entry) = entries.next() {
        if names.len() == MAX_LISTED_NAMES {
            return None;
        }
        names.push(hash(entry.ok()?.file_name().to_bytes()));
    }
    Some(names)
}

#[cfg(not(target_os = "linux"))]
fn names_in(_: &Path) -> Option<Vec<u64>> {
    None
}

/// The links in a directory; `None` if it cannot be read. Does not use
/// `std::fs::read_dir`, as above.
#[cfg(target_os = "linux")]
fn links_in(dir: &Path) -> Option<Vec<PathBuf>> {
    use rustix::fs::{FileType, Mode, OFlags, RawDir, openat};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let opened = openat(CWD, dir, flags, Mode::empty()).ok()?;
    let mut space = [const { MaybeUninit::uninit() }; 4096];
    let mut entries = RawDir::new(&opened, &mut space);
    let mut links = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry.ok()?;
        // Some file systems do not report the type of an entry.
        if matches!(entry.file_type(), FileType::Symlink | FileType::Unknown) {
            links.push(dir.join(OsStr::from_bytes(entry.file_name().to_bytes())));
        }
    }
    links.retain(|path| read_link(path).is_ok());
    Some(links)
}

#[cfg(not(target_os = "linux"))]
fn links_in(_: &Path) -> Option<Vec<PathBuf>> {
    None
}

const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The directory and the name of a normal path. Works on bytes: iterating over components
/// took longer than the system call.
fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    let bytes = path.as_os_str().as_bytes();
    let at = bytes.iter().rposition(|byte| *byte == b'/')?;
    let (parent, name) = bytes.split_at(at);
    let name = name.strip_prefix(b"/").filter(|name| !name.is_empty())?;
    let parent = if parent.is_empty() { b"/" } else { parent };
    Some((Path::new(OsStr::from_bytes(parent)), OsStr::from_bytes(name)))
}

/// Does not use `std::fs::read_link`, which allocates a buffer although few paths are
/// links.
fn read_link(path: &Path) -> io::Result<PathBuf> {
    let mut buffer = [const { MaybeUninit::uninit() }; 4096];
    let (target, _) = rustix::fs::readlinkat_raw(CWD, path, &mut buffer)?;
    Ok(PathBuf::from(OsStr::from_bytes(target)))
}

/// The links on the way to a path, each by its real path, and the end of the way.
fn walk(
    path: &Path,
    most: usize,
    read_link: impl Fn(&Path) -> io::Result<PathBuf>,
) -> (Vec<PathBuf>, PathBuf) {
    let parts = |path: &Path| -> Vec<OsString> {
        let known =
            |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
        path.components().filter(known).map(|part| part.as_os_str().to_owned()).rev().collect()
    };
    let (mut links, mut here, mut left) = (Vec::new(), PathBuf::from("/"), parts(path));
    while let Some(part) = left.pop() {
        if part == ".." {
            here.pop();
            continue;
        }
        here.push(part);
        if links.len() == most {
            continue;
        }
        if let Ok(target) = read_link(&here) {
            links.push(here.clone());
            if target.is_absolute() {
                here = PathBuf::from("/");
            } else {
                here.pop();
            }
            left.extend(parts(&target));
        }
    }
    (links, here)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_even_where_the_target_does_not_exist() {
        let dir = tempfile::tempdir().unwrap();
        let base = Disk::default().real(dir.path());
        symlink("/nowhere/target", base.join("dangling")).unwrap();
        symlink("../up", base.join("relative")).unwrap();
        symlink("loop", base.join("loop")).unwrap();
        assert_eq!(Disk::default().real(&base.join("dangling")), Path::new("/nowhere/target"));
        assert_eq!(
            Disk::default().real(&base.join("relative/x")),
            base.parent().unwrap().join("up/x")
        );
        assert_eq!(Disk::default().real(&base.join("new/./a/../b")), base.join("new/b"));
        let _ = Disk::default().real(&base.join("loop"));
    }

    #[test]
    fn what_is_there_is_told_from_what_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let base = Disk::default().real(dir.path());
        symlink("nowhere", base.join("dangling")).unwrap();
        let disk = Disk::default();
        for (path, there) in [("", true), ("/.", true), ("/dangling", false), ("/none", false)] {
            let path = PathBuf::from(format!("{}{path}", base.display()));
            assert_eq!(disk.has(&path), there, "{}", path.display());
        }
        assert!(disk.has(Path::new("/")) && disk.has(Path::new("/usr/./bin/..")));
        assert_eq!(disk.real(Path::new("/")), Path::new("/"));
        assert_eq!(disk.real(&base.join("none/below")), base.join("none/below"));
    }

    #[test]
    fn a_directory_whose_names_are_known_gives_the_same_answers() {
        let dir = tempfile::tempdir().unwrap();
        let base = Disk::default().real(dir.path());
        std::fs::create_dir(base.join("inner")).unwrap();
        symlink("inner", base.join("link")).unwrap();
        let disk = Disk::default();
        disk.list(&base.join("link/.."));
        disk.list(&base.join("none"));
        for path in ["inner", "link", "link/below", "none", "none/below", "inner/none"] {
            let path = base.join(path);
            assert_eq!(disk.has(&path), path.exists(), "{}", path.display());
            assert_eq!(disk.real(&path), Disk::default().real(&path));
        }
        assert!(disk.lacks(&base.join("none")) && !disk.lacks(&base.join("inner")));
        let long = base.join("n".repeat(300));
        assert!(!disk.lacks(&base.join("INNER")) && disk.lacks(&long));
        for number in 0..250 {
            std::fs::create_dir(base.join(number.to_string())).unwrap();
        }
        let disk = Disk::default();
        disk.list(&base);
        assert!(disk.listed.borrow().is_empty() && disk.has(&base.join("249")));
    }

    #[test]
    fn parent_of_a_link_is_the_parent_of_its_target() {
        let dir = tempfile::tempdir().unwrap();
        let base = Disk::default().real(dir.path());
        std::fs::create_dir(base.join("inner")).unwrap();
        symlink("/usr/bin", base.join("inner/link")).unwrap();
        symlink("inner/link/..", base.join("up")).unwrap();
        assert_eq!(Disk::default().real(&base.join("inner/link/../x")), Path::new("/usr/x"));
        assert_eq!(Disk::default().real(&base.join("up")), Path::new("/usr"));
    }
}
