//! Mounts a project's own cache over a shared one.
//!
//! An overlay shows the shared cache and keeps all changes in the project's directory. It
//! is mounted `volatile`: otherwise the kernel would sync the whole file system at the end
//! of each command. If a power failure has damaged a cache, the user can remove it with
//! `clash cache clear`.
//!
//! The kernel does not support two overlays with one upper directory. So the launcher locks
//! the directory as long as it lives. A second command of the project at the same time gets
//! an upper directory of its own on top. It sees the project's cache, and its changes are
//! dropped later.
//!
//! Where no overlay can be mounted (a home on overlayfs, another mount inside the shared
//! cache), the project's directory itself is mounted. It starts empty. The same happens if
//! the shared cache is empty or missing. If no directory can be made either, the shared
//! cache is read-only.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, ResolveFlags, fcntl_lock, openat, openat2, unlinkat,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};

use super::scratch;
use crate::plan::cache;

type OverlayResult<T> = Result<T, Errno>;

/// The number of further commands of one project that can use one cache at the same time.
const MAX_PARALLEL_COMMANDS: u32 = 32;

/// A mount of the project's cache, not yet attached.
#[derive(Debug)]
pub(crate) enum CacheMount {
    /// The overlay, and its lock, which must stay open as long as the room lives.
    Overlay { tree: OwnedFd, lock: OwnedFd },
    /// A plain directory to bind.
    Plain(PathBuf),
    /// No directory can be made.
    Missing,
}

/// Prepares the mount of the project's cache `own` over the shared one, and makes its
/// directories. A plain directory is enough if the shared cache is empty, and has to be if
/// `overlay` is false or no overlay can be mounted.
pub(crate) fn mount_project_cache(shared: &Path, own: &Path, overlay: bool) -> CacheMount {
    let upper = own.join("upper");
    if make_directory(&upper).is_err() {
        return CacheMount::Missing;
    }
    // An overlay over an empty directory would look the same, and is much slower.
    if cache::is_empty_directory(shared) {
        return CacheMount::Plain(upper);
    }
    if overlay && let Ok((tree, lock)) = lock_and_mount(shared, own) {
        return CacheMount::Overlay { tree, lock };
    }
    let plain = own.join("plain");
    if make_directory(&plain).is_ok() { CacheMount::Plain(plain) } else { CacheMount::Missing }
}

fn make_directory(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// The overlay and its lock. If another command of the project has the lock, an overlay on
/// top of the project's cache, whose changes are dropped. `EBUSY` if 32 further commands run.
fn lock_and_mount(shared: &Path, own: &Path) -> OverlayResult<(OwnedFd, OwnedFd)> {
    let shared = open_without_links(shared)?;
    if let Some(lock) = try_lock(own)? {
        return Ok((make_overlay(&[&shared], own)?, lock));
    }
    let below = open_without_links(&own.join("upper"))?;
    for number in 1..=MAX_PARALLEL_COMMANDS {
        let besides = own.join("besides").join(number.to_string());
        make_directory(&besides).map_err(errno)?;
        let Some(lock) = try_lock(&besides)? else { continue };
        // An old copy would hide newer files of the project's cache.
        for left in ["upper", "work"] {
            let _ = scratch::remove_tree(&besides.join(left));
        }
        return Ok((make_overlay(&[&below, &shared], &besides)?, lock));
    }
    Err(Errno::BUSY)
}

/// Locks a directory. `None` if another launcher has the lock. The kernel releases it when
/// this process ends.
fn try_lock(dir: &Path) -> OverlayResult<Option<OwnedFd>> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(CWD, dir.join("lock"), flags, Mode::from_raw_mode(0o600))?;
    match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(None),
        Err(error) => Err(error),
    }
}

/// An overlay of these directories with its changes in `own/upper`, not attached. Makes
/// `own/upper` and `own/work` if they are missing, and empties `work` after an overlay that
/// was not unmounted.
fn make_overlay(lower: &[&OwnedFd], own: &Path) -> OverlayResult<OwnedFd> {
    let [upper, work] = ["upper", "work"].map(|name| own.join(name));
    for dir in [&upper, &work] {
        make_directory(dir).map_err(errno)?;
    }
    if remove_volatile_mark(&open_without_links(&work)?).is_err() {
        let _ = scratch::remove_tree(&work);
        make_directory(&work).map_err(errno)?;
    }
    let (upper, work) = (open_without_links(&upper)?, open_without_links(&work)?);
    // By descriptor, because a path may contain the characters that separate options.
    let named = |dir: &OwnedFd| format!("/proc/self/fd/{}", dir.as_raw_fd());
    let lower: Vec<String> = lower.iter().map(|dir| named(dir)).collect();
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for flag in ["userxattr", "volatile"] {
        fsconfig_set_flag(&context, flag)?;
    }
    for (key, value) in [
        ("lowerdir", lower.join(":")),
        ("upperdir", named(&upper)),
        ("workdir", named(&work)),
        ("index", "off".to_owned()),
        ("xino", "off".to_owned()),
    ] {
        fsconfig_set_string(&context, key, value)?;
    }
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// A read-only overlay of a directory with doors over a directory with programs.
pub(crate) fn make_door_overlay(doors: &Path, programs: &OwnedFd) -> OverlayResult<OwnedFd> {
    let doors = open_without_links(doors)?;
    let named = |dir: &OwnedFd| format!("/proc/self/fd/{}", dir.as_raw_fd());
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_flag(&context, "userxattr")?;
    let lower = [named(&doors), named(programs)].join(":");
    fsconfig_set_string(&context, "lowerdir", lower)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Removes the mark of an ended volatile mount. The kernel refuses a new mount while the
/// mark exists.
fn remove_volatile_mark(work: &OwnedFd) -> OverlayResult<()> {
    for (mark, flags) in [
        ("work/incompat/volatile/dirty", AtFlags::empty()),
        ("work/incompat/volatile", AtFlags::REMOVEDIR),
        ("work/incompat", AtFlags::REMOVEDIR),
    ] {
        match unlinkat(work, mark, flags) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Opens a directory without following links.
fn open_without_links(dir: &Path) -> OverlayResult<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(CWD, dir, flags, Mode::empty(), resolve)
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Removes the project's cache `own`. `false` if a running command uses it, or if something
/// could not be removed.
pub(crate) fn clear(own: &Path) -> io::Result<bool> {
    let Some(_lock) = try_lock(own)? else { return Ok(false) };
    let mut besides: Vec<OwnedFd> = Vec::new();
    for entry in fs::read_dir(own.join("besides")).into_iter().flatten().flatten() {
        match try_lock(&entry.path())? {
            Some(lock) => besides.push(lock),
            None => return Ok(false),
        }
    }
    let _ = scratch::remove_tree(own);
    Ok(!own.exists())
}
