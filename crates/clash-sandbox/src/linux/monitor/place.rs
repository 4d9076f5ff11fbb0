//! Resolves a caller's path to a held directory and a name in it, or to a held object.
//!
//! The kernel resolves the directories of a path in one call. It must not resolve links
//! that depend on the process: `/proc/self` is the caller's, not the monitor's. So the
//! kernel never follows magic links here. The monitor walks a path through `/proc` name by
//! name. Of the caller's own entries it knows those that programs use: descriptors, working
//! directory, root and program.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat_raw,
};
use rustix::io::Errno;

use super::act::ResolvedCall;
use super::call::{CallPath, DecodedCall};
use super::caller::{CallingProcess, shows_processes};
use crate::plan::sight::{PathVisibility, VisiblePaths};

const HOLD: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// The kernel follows as many links.
const MAX_LINKS: u32 = 40;

/// The result of resolving a path.
#[derive(Debug)]
pub(super) enum CallPlace {
    /// A name in a directory. The name may not exist: `exists` is known only if the monitor
    /// had to follow the name.
    Name {
        dir: OwnedFd,
        leaf: Vec<u8>,
        slash: bool,
        exists: bool,
        look: PathVisibility,
        /// The real path of the directory, if it is known.
        path: Option<PathBuf>,
    },
    Object(OwnedFd),
    /// A file in the caller's own part of `/proc`, opened for reading.
    Opened(OwnedFd),
}

/// Resolves every path of a call. Fails with `ENOENT` for a path that is not shown, and with
/// `EACCES` where one is to be made.
pub(super) fn locate(
    caller: &CallingProcess<'_>,
    call: DecodedCall,
    sight: Option<&VisiblePaths>,
    reads: bool,
) -> Result<ResolvedCall, Errno> {
    let finder = PathFinder::new(caller, sight);
    let find = |spot: CallPath, follow| finder.find(spot, follow)?.shown(Errno::NOENT);
    // Where nothing is shown, nothing can be made, whether or not the name exists.
    let new = |spot: CallPath| finder.find(spot, false)?.shown(Errno::ACCESS);
    let object = |spot: CallPath, follow| hold(find(spot, follow)?);
    Ok(match call {
        DecodedCall::Open { at, flags, mode } => {
            let flags = if flags & libc::O_PATH == 0 { flags } else { held_for_reading(flags) };
            let exclusive = flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL;
            let creates = flags & libc::O_CREAT != 0;
            let at = finder
                .find(at, flags & libc::O_NOFOLLOW == 0 && !exclusive)?
                .shown(if creates { Errno::ACCESS } else { Errno::NOENT })?;
            let makes = flags & libc::O_TMPFILE == libc::O_TMPFILE
                || creates && matches!(at, CallPlace::Name { exists: false, .. });
            let umask = if makes { caller.umask()? } else { 0o777 };
            ResolvedCall::Open { at, flags, mode, umask, caller: caller.pid, reads }
        }
        DecodedCall::Mkdir { at, mode } => {
            ResolvedCall::Mkdir { at: new(at)?, mode, umask: caller.umask()? }
        }
        DecodedCall::Mknod { at, mode, device } => {
            ResolvedCall::Mknod { at: new(at)?, mode, umask: caller.umask()?, device }
        }
        DecodedCall::Unlink { at, directory } => {
            ResolvedCall::Unlink { at: find(at, false)?, directory }
        }
        DecodedCall::Rename { from, to, flags } => {
            ResolvedCall::Rename { from: find(from, false)?, to: new(to)?, flags }
        }
        DecodedCall::Link { from, to, follow } => {
            ResolvedCall::Link { from: object(from, follow)?, to: new(to)? }
        }
        DecodedCall::Symlink { target, at } => ResolvedCall::Symlink { target, at: new(at)? },
        DecodedCall::Truncate { at, length } => {
            if caller.file_size_limit()?.is_some_and(|limit| length > limit) {
                return Err(Errno::FBIG);
            }
            ResolvedCall::Truncate { at: object(at, true)?, length }
        }
        DecodedCall::Chmod { at, mode, follow } => {
            ResolvedCall::Chmod { at: object(at, follow)?, mode }
        }
        DecodedCall::Chown { at, owner, group, follow } => {
            ResolvedCall::Chown { at: object(at, follow)?, owner, group }
        }
        DecodedCall::Times { at, times, follow } => {
            ResolvedCall::Times { at: object(at, follow)?, times }
        }
        DecodedCall::Notify { at, through, mask } => {
            let through = caller.descriptor(through)?;
            ResolvedCall::Notify {
                at: object(at, mask & libc::IN_DONT_FOLLOW == 0)?,
                through,
                mask,
            }
        }
    })
}

/// The kernel does not pass on `O_PATH` descriptors. So the monitor opens the file for
/// reading instead, which needs the right to read. `O_NONBLOCK`: the open does not wait.
fn held_for_reading(flags: i32) -> i32 {
    flags & (libc::O_CLOEXEC | libc::O_DIRECTORY | libc::O_NOFOLLOW)
        | libc::O_RDONLY
        | libc::O_NONBLOCK
}

/// Opens the object at a place with `O_PATH`.
pub(super) fn hold(place: CallPlace) -> Result<OwnedFd, Errno> {
    match place {
        CallPlace::Object(object) => Ok(object),
        CallPlace::Opened(_) => Err(Errno::ACCESS),
        CallPlace::Name { dir, leaf, slash, .. } => {
            let flags = if slash { HOLD | OFlags::DIRECTORY } else { HOLD };
            openat(&dir, leaf, flags | OFlags::NOFOLLOW, Mode::empty())
        }
    }
}

impl CallPlace {
    /// The place itself, or the error `hidden` if it is hidden.
    pub(super) fn shown(self, hidden: Errno) -> Result<Self, Errno> {
        match self {
            Self::Name { look: PathVisibility::Hidden, .. } => Err(hidden),
            place => Ok(place),
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct PathFinder<'a> {
    caller: &'a CallingProcess<'a>,
    /// The paths that the command may see, in the watched tier. A path through a hidden
    /// directory ends there.
    sight: Option<&'a VisiblePaths>,
    links: u32,
    /// The call only looks: files in `/proc` need not be readable, and a link that is not
    /// to be followed is itself the object.
    looks: bool,
}

/// A directory on the way, and its relation to `/proc`.
struct WalkPosition {
    dir: OwnedFd,
    own: OwnProc,
    /// True if the directory is known not to be in a proc file system.
    plain: bool,
    /// The real path, if the monitor has looked it up.
    path: Option<PathBuf>,
}

/// The position of a walk in the caller's own part of `/proc`.
#[derive(Clone, PartialEq, Eq)]
enum OwnProc {
    No,
    /// The names below the process.
    Below(String),
}

impl<'a> PathFinder<'a> {
    fn new(caller: &'a CallingProcess<'a>, sight: Option<&'a VisiblePaths>) -> Self {
        Self { caller, sight, links: MAX_LINKS, looks: false }
    }

    /// For calls that look at a path, and open or change nothing.
    pub(super) fn looking(caller: &'a CallingProcess<'a>, sight: Option<&'a VisiblePaths>) -> Self {
        Self { looks: true, ..Self::new(caller, sight) }
    }

    /// Finds the object or the name that the caller's path means. With `follow`, also follows
    /// a link at its end. `ELOOP` after too many links. A hidden name is returned without a
    /// look at the disk.
    pub(super) fn find(mut self, spot: CallPath, follow: bool) -> Result<CallPlace, Errno> {
        let Some(mut path) = spot.path else {
            let object = self.caller.directory(spot.dir)?;
            // The caller can have every other descriptor only because the monitor or its
            // parent gave it.
            if spot.dir == libc::AT_FDCWD {
                self.stay_in_sight(&object)?;
            }
            return Ok(CallPlace::Object(object));
        };
        let mut start = None;
        loop {
            if path.is_empty() {
                return Err(Errno::NOENT);
            }
            let (front, leaf, slash) = split(&path);
            let base = match start.take() {
                None if path.starts_with(b"/") => None,
                None => Some(self.caller.directory(spot.dir)?),
                start => start,
            };
            if matches!(leaf, b"" | b"." | b"..") {
                let here = self.walk_to(base, &path)?;
                return match here.own {
                    OwnProc::Below(below) => self.own_file(&below),
                    OwnProc::No => Ok(CallPlace::Object(here.dir)),
                };
            }
            let here = match base {
                Some(base) if front.is_empty() => self.classify(base),
                base => self.walk_to(base, front)?,
            };
            if let OwnProc::Below(below) = &here.own {
                return self.in_own(below, leaf, follow || slash);
            }
            let leaf = leaf.to_vec();
            let look = self.look(&here, &leaf)?;
            let named =
                |dir, leaf, exists| CallPlace::Name { dir, leaf, slash, exists, look, path: None };
            let asked = follow || slash || !here.plain && shows_processes(&here.dir);
            if look == PathVisibility::Hidden || !asked {
                return Ok(named(here.dir, leaf, false));
            }
            let mut buffer = [0_u8; libc::PATH_MAX as usize];
            let link = readlinkat_raw(&here.dir, leaf.as_slice(), &mut buffer);
            match link {
                Ok(_) if self.looks && !follow && !slash => {
                    return Ok(named(here.dir, leaf, true));
                }
                Ok(_) if !here.plain && shows_processes(&here.dir) => {
                    return self.process_link(here, &leaf);
                }
                Err(_) if self.caller.is_named(&leaf) && is_root_of_proc(&here) => {
                    return self.process_link(here, &leaf);
                }
                Ok(length) if follow || slash => {
                    self.links = self.links.checked_sub(1).ok_or(Errno::LOOP)?;
                    path = buffer.get(..length).unwrap_or_default().to_vec();
                    if slash {
                        path.push(b'/');
                    }
                    start = (!path.starts_with(b"/")).then_some(here.dir);
                }
                Ok(_) | Err(Errno::INVAL) => {
                    if !self.looks
                        && let Some(file) = self.caller.of_another(&here.dir, &leaf)
                    {
                        return file.map(CallPlace::Opened);
                    }
                    return Ok(named(here.dir, leaf, true));
                }
                Err(Errno::NOENT) => {
                    return Ok(named(here.dir, leaf, false));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn classify(&self, dir: OwnedFd) -> WalkPosition {
        let own = self.caller.place_below(&dir).map_or(OwnProc::No, OwnProc::Below);
        WalkPosition { dir, own, plain: false, path: None }
    }

    /// How much of a name in a directory the command may see.
    fn look(&self, here: &WalkPosition, name: &[u8]) -> Result<PathVisibility, Errno> {
        let Some(sight) = self.sight else { return Ok(PathVisibility::Seen) };
        let path = match &here.path {
            Some(path) => path.clone(),
            // A removed directory has no path, so nothing in it can be found.
            None => real(self.caller.held(), &here.dir)?.ok_or(Errno::NOENT)?,
        };
        Ok(self.look_at(sight, &path.join(OsStr::from_bytes(name))))
    }

    /// A process of the sandbox is visible. Every other process is hidden.
    fn look_at(&self, sight: &VisiblePaths, path: &Path) -> PathVisibility {
        match process(path) {
            Some(process) if !self.caller.sees(process) => PathVisibility::Hidden,
            _ => sight.visibility(path),
        }
    }

    /// Refuses a directory that the caller may not see. It can be there only by a call that
    /// is not watched.
    fn stay_in_sight(&self, dir: &OwnedFd) -> Result<(), Errno> {
        let Some(sight) = self.sight else { return Ok(()) };
        match real(self.caller.held(), dir)? {
            Some(path) if self.look_at(sight, &path) != PathVisibility::Seen => Err(Errno::NOENT),
            _ => Ok(()),
        }
    }

    /// The directory at the end of a path, if the path names every directory on the way by
    /// its real name. If the last one is visible, so are all others.
    fn straight(&self, base: Option<&OwnedFd>, path: &[u8], dir: OwnedFd) -> Option<WalkPosition> {
        let Some(sight) = self.sight else {
            return Some(WalkPosition { dir, own: OwnProc::No, plain: true, path: None });
        };
        let at = real(self.caller.held(), &dir).ok()??;
        let mut named = match base {
            None => PathBuf::from("/"),
            Some(base) => real(self.caller.held(), base).ok()??,
        };
        named.extend(parts(path).iter().map(|part| OsStr::from_bytes(part)));
        (named == at && sight.visibility(&at) != PathVisibility::Hidden).then_some(WalkPosition {
            dir,
            own: OwnProc::No,
            plain: true,
            path: Some(at),
        })
    }

    /// The directory at the end of a path. Without a base, the path begins at the root.
    fn walk_to(&mut self, base: Option<OwnedFd>, path: &[u8]) -> Result<WalkPosition, Errno> {
        let flags = HOLD | OFlags::DIRECTORY;
        let resolve = ResolveFlags::NO_MAGICLINKS;
        let from = base.as_ref().map_or(CWD, AsFd::as_fd);
        match openat2(from, path, flags, Mode::empty(), resolve) {
            Ok(dir) if !shows_processes(&dir) => match self.straight(base.as_ref(), path, dir) {
                Some(here) => Ok(here),
                None => self.walk(base.map_or_else(root, Ok)?, path),
            },
            Ok(_) | Err(Errno::LOOP | Errno::NOENT) => self.walk(base.map_or_else(root, Ok)?, path),
            // The kernel's error would tell something about hidden files.
            Err(_) if self.sight.is_some() => self.walk(base.map_or_else(root, Ok)?, path),
            Err(error) => Err(error),
        }
    }

    /// As `walk_to`, name by name. `ENOENT` for a hidden name, `EACCES` for a link of another
    /// process in /proc.
    fn walk(&mut self, base: OwnedFd, path: &[u8]) -> Result<WalkPosition, Errno> {
        let mut here = self.classify(base);
        let mut names: VecDeque<Vec<u8>> = parts(path);
        while let Some(name) = names.pop_front() {
            if let OwnProc::Below(below) = &here.own {
                here = self.step_in_own(below, &name)?;
                continue;
            }
            if name != b".." && self.look(&here, &name)? == PathVisibility::Hidden {
                return Err(Errno::NOENT);
            }
            here.path = None;
            let at_processes = shows_processes(&here.dir);
            if at_processes && self.is_own(&name) && is_root_of_proc(&here) {
                here.own = OwnProc::Below(String::new());
                continue;
            }
            if at_processes && is_link_to_own(&name) && is_root_of_proc(&here) {
                here.own = OwnProc::Below(String::new());
                names.push_front(name);
                continue;
            }
            let mut buffer = [0_u8; libc::PATH_MAX as usize];
            match readlinkat_raw(&here.dir, name.as_slice(), &mut buffer) {
                // Another process, or a link that depends on the calling process.
                Ok(_) if at_processes => return Err(Errno::ACCESS),
                Ok(length) => {
                    self.links = self.links.checked_sub(1).ok_or(Errno::LOOP)?;
                    let target = buffer.get(..length).unwrap_or_default();
                    if target.starts_with(b"/") {
                        here = self.classify(root()?);
                    }
                    for part in parts(target).into_iter().rev() {
                        names.push_front(part);
                    }
                }
                Err(Errno::INVAL) => {
                    let flags = HOLD | OFlags::DIRECTORY | OFlags::NOFOLLOW;
                    here.dir = openat(&here.dir, name, flags, Mode::empty())?;
                }
                Err(error) => return Err(error),
            }
        }
        if here.own == OwnProc::No {
            self.stay_in_sight(&here.dir)?;
        }
        Ok(here)
    }

    /// One step further below the caller's own process. A link there leads out of it, to a
    /// directory; `..` is refused.
    fn step_in_own(&self, below: &str, name: &[u8]) -> Result<WalkPosition, Errno> {
        let name = std::str::from_utf8(name).map_err(|_| Errno::NOENT)?;
        let further = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
        if is_own_link(&further) {
            let dir = self.caller.link(&further)?;
            let kind = FileType::from_raw_mode(fstat(&dir)?.st_mode);
            return match kind {
                FileType::Directory => {
                    Ok(WalkPosition { dir, own: OwnProc::No, plain: false, path: None })
                }
                _ => Err(Errno::NOTDIR),
            };
        }
        if name == ".." {
            return Err(Errno::ACCESS);
        }
        let dir = self.caller.file(&further)?;
        Ok(WalkPosition { dir, own: OwnProc::Below(further), plain: false, path: None })
    }

    /// The last name of a path, below the caller's own process.
    fn in_own(&self, below: &str, leaf: &[u8], follow: bool) -> Result<CallPlace, Errno> {
        let leaf = std::str::from_utf8(leaf).map_err(|_| Errno::NOENT)?;
        let name = if below.is_empty() { leaf.to_owned() } else { format!("{below}/{leaf}") };
        if !is_own_link(&name) || self.looks && !follow {
            return self.own_file(&name);
        }
        let object = self.caller.link(&name)?;
        if name == "cwd" {
            self.stay_in_sight(&object)?;
        }
        Ok(CallPlace::Object(object))
    }

    /// A file in the caller's own entry of /proc: only its place if the call looks at it,
    /// otherwise opened.
    fn own_file(&self, below: &str) -> Result<CallPlace, Errno> {
        if self.looks {
            self.caller.entry(below).map(CallPlace::Object)
        } else {
            self.caller.file(below).map(CallPlace::Opened)
        }
    }

    /// A process or a link at the end of a path, in a proc file system.
    fn process_link(&self, here: WalkPosition, leaf: &[u8]) -> Result<CallPlace, Errno> {
        if !is_root_of_proc(&here) {
            return Err(Errno::ACCESS);
        }
        match leaf {
            leaf if is_link_to_own(leaf) => self.in_own("", leaf, true),
            leaf if self.is_own(leaf) && self.looks => self.own_file(""),
            leaf if self.is_own(leaf) => self.caller.itself(),
            _ => Err(Errno::ACCESS),
        }
    }

    /// True if a name in `/proc` is the caller's own process.
    fn is_own(&self, name: &[u8]) -> bool {
        matches!(name, b"self" | b"thread-self") || self.caller.is_named(name)
    }
}

/// `/proc/mounts` and `/proc/net` lead to the entry of the same name below the process that
/// follows them.
fn is_link_to_own(name: &[u8]) -> bool {
    matches!(name, b"mounts" | b"net")
}

/// The caller's magic links that lead out of `/proc`.
fn is_own_link(below: &str) -> bool {
    let number = |fd: &str| !fd.is_empty() && fd.bytes().all(|byte| byte.is_ascii_digit());
    matches!(below, "cwd" | "root" | "exe") || below.strip_prefix("fd/").is_some_and(number)
}

/// True for the root of a proc file system, where `self` is a magic link.
fn is_root_of_proc(here: &WalkPosition) -> bool {
    fstat(&here.dir).is_ok_and(|meta| meta.st_ino == PROC_ROOT_INODE)
}

const PROC_ROOT_INODE: u64 = 1;

fn root() -> Result<OwnedFd, Errno> {
    openat(CWD, "/", HOLD | OFlags::DIRECTORY, Mode::empty())
}

/// The names of a path, without empty ones and `.`.
fn parts(path: &[u8]) -> VecDeque<Vec<u8>> {
    let parts = path.split(|byte| *byte == b'/');
    parts.filter(|part| !matches!(*part, b"" | b".")).map(<[u8]>::to_vec).collect()
}

/// The directories, the last name, and whether a slash follows it.
fn split(path: &[u8]) -> (&[u8], &[u8], bool) {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let (path, slashes) = path.split_at_checked(end).unwrap_or((path, b""));
    match path.iter().rposition(|byte| *byte == b'/') {
        // The slash stays with the directories: they may be the root.
        Some(at) => {
            let (front, leaf) = path.split_at_checked(at + 1).unwrap_or((path, b""));
            (front, leaf, !slashes.is_empty())
        }
        None => (b"", path, !slashes.is_empty()),
    }
}

/// The process number in a path below `/proc`.
fn process(path: &Path) -> Option<i32> {
    path.strip_prefix("/proc").ok()?.iter().next()?.to_str()?.parse().ok()
}

/// The real path of a held object; `None` if it has no path.
pub(super) fn real(held: &OwnedFd, object: impl AsFd) -> Result<Option<PathBuf>, Errno> {
    use std::os::fd::AsRawFd;
    let fd = object.as_fd();
    let mut buffer = [0_u8; libc::PATH_MAX as usize];
    let name = fd.as_raw_fd().to_string();
    let length = readlinkat_raw(held, name, &mut buffer)?;
    let path = buffer.get(..length).unwrap_or_default();
    if !path.starts_with(b"/") {
        return Ok(None);
    }
    // For a removed file, the kernel appends ` (deleted)`. A file may also really have such
    // a name, so the link count decides.
    if path.ends_with(b" (deleted)") && fstat(fd)?.st_nlink == 0 {
        return Ok(None);
    }
    Ok(Some(OsStr::from_bytes(path).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_before_its_last_name() {
        assert_eq!(split(b"a"), (&b""[..], &b"a"[..], false));
        assert_eq!(split(b"/a"), (&b"/"[..], &b"a"[..], false));
        assert_eq!(split(b"a//b/"), (&b"a//"[..], &b"b"[..], true));
        assert_eq!(split(b"/"), (&b""[..], &b""[..], true));
        assert_eq!(split(b"../.."), (&b"../"[..], &b".."[..], false));
    }

    #[test]
    fn only_links_that_lead_to_files_are_the_callers_own() {
        for link in ["cwd", "exe", "fd/3", "fd/12"] {
            assert!(is_own_link(link), "{link}");
        }
        for other in ["", "fd", "fd/", "fd/x", "task/1/fd/3", "ns/mnt", "map_files/0-1"] {
            assert!(!is_own_link(other), "{other}");
        }
    }
}
