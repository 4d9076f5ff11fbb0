//! Builds the mount tree of a room.
//!
//! All work goes through descriptors and the mount API of Linux 5.12, so no text is parsed
//! and no path is looked up twice. A tree is cloned, gets its attributes while no process
//! can see it, and is then attached. The root of the room is one tmpfs. It stays writable
//! as a mount. Landlock permits writes only to its scratch directories, and it ends with
//! the room.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clash_policy::FileCaps;
use clash_policy::path::is_below;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, mkdirat, mknodat, openat, openat2, statat,
    symlinkat, unlinkat,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree, unmount,
};
use rustix::process::{chroot, fchdir, pivot_root};

use super::network::resolver_text;
use super::overlay::{self, CacheMount};
use super::sys::{self, ATTR_NODEV, ATTR_NOEXEC, ATTR_NOSUID, ATTR_RDONLY};
use crate::launch::error::LaunchError;
use crate::plan::room::{CoveredPlace, MountAccess, MountStep, RoomInterior};

type MountResult<T> = Result<T, Errno>;

const HOLD: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const NEVER_LINKS: ResolveFlags = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS);
pub(crate) const ROOM_DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// The directory on the room's root with the empty files and directories that cover others.
const COVERS: &str = ".covers";

/// The parts that every room has, before they are attached.
#[derive(Debug)]
pub(crate) struct RoomParts {
    pub(crate) root: OwnedFd,
    /// One for each device of the host. `None` if the device is missing or already
    /// attached.
    pub(crate) devices: [Option<OwnedFd>; ROOM_DEVICES.len()],
    pub(crate) terminals: Option<OwnedFd>,
    /// The shared trees, in the order of [`SHARED_TREES`].
    pub(crate) shown: [CopiedTree; SHARED_TREES.len()],
}

/// A copy of a tree of the host.
#[derive(Debug)]
pub(crate) enum CopiedTree {
    Missing,
    /// The copy is not attached yet.
    Loose(OwnedFd),
    InPlace,
}

/// Trees of the host that nearly every room shows, and their access.
pub(crate) const SHARED_TREES: [(&str, MountAccess); 4] = [
    ("/usr", MountAccess { write: false, execute: true }),
    ("/etc", MountAccess { write: false, execute: false }),
    ("/opt", MountAccess { write: false, execute: true }),
    ("/sys/devices/system", MountAccess { write: false, execute: false }),
];

impl RoomParts {
    /// Makes the root, the devices and the pseudo-terminals, and copies the shared trees.
    /// Call this in a mount namespace of the room: it makes all mounts there private. Does
    /// not allocate.
    pub(crate) fn make() -> MountResult<Self> {
        sys::make_private(c"/").map_err(errno)?;
        let root = make_filesystem("tmpfs", &[("mode", "755")], MountAttrFlags::MOUNT_ATTR_NODEV)?;
        mkdirat(&root, COVERS, Mode::from_raw_mode(0o711))?;
        mkdirat(&root, "dev", Mode::from_raw_mode(0o755))?;
        let host = openat(CWD, "/dev", HOLD, Mode::empty())?;
        let dev = openat(&root, "dev", HOLD, Mode::empty())?;
        let mut devices = [const { None }; ROOM_DEVICES.len()];
        for (name, device) in ROOM_DEVICES.iter().zip(&mut devices) {
            let Ok(tree) = clone_tree(&host, *name) else { continue };
            // A read-only mount still permits writes to the device, but no change of its
            // node.
            sys::set_mount(&tree, ATTR_RDONLY | ATTR_NOSUID | ATTR_NOEXEC).map_err(errno)?;
            make_file(&dev, *name)?;
            *device = attach_or_keep(tree, &dev, name);
        }
        for (name, target) in [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
            ("ptmx", "pts/ptmx"),
        ] {
            symlinkat(target, &dev, name)?;
        }
        mkdirat(&dev, "pts", Mode::from_raw_mode(0o755))?;
        mkdirat(&dev, "shm", Mode::from_raw_mode(0o1777))?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let terminals =
            make_filesystem("devpts", &[("mode", "620"), ("ptmxmode", "666")], attributes)?;
        let shown =
            SHARED_TREES.map(|(path, access)| copy_shared_tree(&root, Path::new(path), access));
        let terminals = attach_or_keep(terminals, &dev, "pts");
        Ok(Self { root, devices, terminals, shown })
    }
}

/// Attaches a mount now, if the kernel permits it: since Linux 6.15 it permits mounts on a
/// root that is itself not attached. Otherwise returns the mount for later.
fn attach_or_keep(tree: OwnedFd, dir: &OwnedFd, name: &str) -> Option<OwnedFd> {
    attach(&tree, dir, Path::new(name)).is_err().then_some(tree)
}

/// Copies a tree of the host and makes its mount point on the new root. Attaches it if the
/// kernel permits that now. A missing tree or a link counts as missing.
fn copy_shared_tree(root: &OwnedFd, path: &Path, access: MountAccess) -> CopiedTree {
    let Ok(tree) = copy_tree(path, access) else { return CopiedTree::Missing };
    let below_root = path.as_os_str().as_bytes().iter().skip(1);
    let ends = below_root.enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at + 1);
    let whole = path.as_os_str().len();
    let made = ends.chain([whole]).try_for_each(|end| {
        let dir = path.as_os_str().as_bytes().get(1..end).unwrap_or_default();
        ignore_existing(mkdirat(root, dir, Mode::from_raw_mode(0o755)))
    });
    match made.and_then(|()| attach(&tree, root, relative(path))) {
        Ok(()) => CopiedTree::InPlace,
        Err(_) => CopiedTree::Loose(tree),
    }
}

/// A copy of the host's tree at a path with this access, not attached. Fails if the path has
/// a link in it.
fn copy_tree(path: &Path, access: MountAccess) -> MountResult<OwnedFd> {
    let source = openat2(CWD, path, HOLD, Mode::empty(), NEVER_LINKS)?;
    let tree = clone_tree(&source, "")?;
    set_access(&tree, access)?;
    Ok(tree)
}

/// A mount tree under construction.
#[derive(Debug)]
pub(crate) struct MountTree {
    root: OwnedFd,
    devices: [Option<OwnedFd>; ROOM_DEVICES.len()],
    terminals: Option<OwnedFd>,
    shown: [CopiedTree; SHARED_TREES.len()],
    covers: u32,
    /// Locks on the project's caches. The kernel releases them when the launcher ends.
    locks: Vec<OwnedFd>,
    caches: Vec<PathBuf>,
}

/// The place of the old root until it is unmounted.
const OLD_ROOT: &str = ".covers/host";

impl MountTree {
    /// Attaches the new root over the old one; lookups still start at the old one. Removes
    /// shared trees that no step of the plan wants.
    pub(crate) fn new(parts: RoomParts, steps: &[MountStep]) -> MountResult<Self> {
        let RoomParts { root, devices, terminals, shown } = parts;
        attach(&root, CWD, Path::new("/"))?;
        let mut view = Self {
            root,
            devices,
            terminals,
            shown,
            covers: 0,
            locks: Vec::new(),
            caches: Vec::new(),
        };
        for ((path, access), copied) in SHARED_TREES.iter().zip(&mut view.shown) {
            let wanted = MountStep::Bind { path: PathBuf::from(path), access: *access };
            if steps.contains(&wanted) {
                continue;
            }
            let path = relative(Path::new(path));
            match std::mem::replace(copied, CopiedTree::Missing) {
                CopiedTree::Missing => {}
                CopiedTree::Loose(_) => remove_directories(&view.root, path)?,
                CopiedTree::InPlace => {
                    fchdir(&view.root)?;
                    unmount(path, UnmountFlags::DETACH)?;
                    remove_directories(&view.root, path)?;
                }
            }
        }
        Ok(view)
    }

    /// Carries out one step. The error names it.
    pub(crate) fn do_step(&mut self, step: &MountStep) -> Result<(), LaunchError> {
        let done = match step {
            MountStep::Directory { at } => self.make_directory(at, 0o755),
            MountStep::File { at } => self.make_mount_file(at),
            MountStep::Link { at, to } => symlinkat(to, &self.root, relative(at)),
            MountStep::Scratch { at } => self.make_directory(at, 0o1777),
            MountStep::ScratchMount { at } => self.mount_scratch(at),
            MountStep::Show { from, at, access } => {
                copy_tree(from, *access).and_then(|tree| attach(&tree, &self.root, relative(at)))
            }
            MountStep::Point { at, file } => self.make_point(at, *file),
            MountStep::Resolver { at } => self.mount_text(at, resolver_text().as_bytes(), 0o444),
            MountStep::Masked { at, text } => self.mount_text(at, text, 0o400),
            MountStep::Bind { path, access } => self.mount_host_tree(path, *access),
            MountStep::Cache { path, own, caps, overlay } => {
                self.mount_cache(path, own, *caps, *overlay)
            }
            MountStep::Doors { at, doors, names, over, overlay } => {
                self.mount_doors(at, doors, names, *over, *overlay)
            }
            MountStep::Rebind { path, access } => self.mount_with_less_access(path, *access),
            MountStep::Cover { path, file, shows } => self.mount_cover(path, *file, shows),
            MountStep::Devices => self.attach_devices(),
            MountStep::Processes { maps } => self.mount_processes(*maps),
        };
        done.map_err(|error| LaunchError::MountStep {
            step: step.to_string(),
            source: error.into(),
        })
    }

    /// Opens a place in the tree for a Landlock rule or a mount. Fails if the path has a link
    /// in it.
    pub(crate) fn open(&self, path: &Path) -> MountResult<OwnedFd> {
        openat2(&self.root, relative(path), HOLD, Mode::empty(), NEVER_LINKS)
    }

    /// Makes the tree the root of this process and its children.
    ///
    /// `pivot_root` would look at every process of the host, and unmounting the old root
    /// would wait for the kernel. Each takes longer than all mounts together. So the old
    /// root stays below the new one. No path and no descriptor leads there, and the command
    /// may neither unmount nor `chroot`. A room with rooms inside may mount and lives
    /// longer, so it gets no old root at all.
    pub(crate) fn enter(&self, inside: RoomInterior) -> MountResult<()> {
        if inside == RoomInterior::Rooms {
            mkdirat(&self.root, OLD_ROOT, Mode::from_raw_mode(0o755))?;
            fchdir(&self.root)?;
            pivot_root(".", OLD_ROOT)?;
            return unmount(Path::new("/").join(OLD_ROOT).as_path(), UnmountFlags::DETACH);
        }
        fchdir(&self.root)?;
        chroot(".")
    }

    /// Makes a directory on the room's root. One that exists, or that a shared tree already
    /// needs, is fine.
    fn make_directory(&self, at: &Path, mode: u32) -> MountResult<()> {
        let in_place = |((path, _), copied): (&(&str, MountAccess), &CopiedTree)| {
            matches!(copied, CopiedTree::InPlace) && is_below(Path::new(path), at)
        };
        if SHARED_TREES.iter().zip(&self.shown).any(in_place) {
            return Ok(());
        }
        match mkdirat(&self.root, relative(at), Mode::from_raw_mode(mode)) {
            Err(Errno::EXIST) => Ok(()),
            made => made,
        }
    }

    /// Makes an empty file in the tree, as a mount point.
    fn make_mount_file(&self, at: &Path) -> MountResult<()> {
        make_file(&self.root, relative(at))
    }

    /// Makes a mount point in a directory that commands may write. Removes a file or link
    /// that a command left under this name. Fails if a directory with content is in the place
    /// of a file.
    fn make_point(&self, at: &Path, file: bool) -> MountResult<()> {
        let (Some(parent), Some(name)) = (at.parent(), at.file_name()) else {
            return Err(Errno::INVAL);
        };
        let dir = self.open(parent)?;
        let wanted = if file { FileType::RegularFile } else { FileType::Directory };
        match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) == wanted => return Ok(()),
            Ok(found) => {
                let directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
                unlinkat(
                    &dir,
                    name,
                    if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() },
                )?;
            }
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        if file {
            return make_file(&dir, name);
        }
        ignore_existing(mkdirat(&dir, name, Mode::from_raw_mode(0o700)))
    }

    /// Mounts an empty writable directory of the room over a path.
    fn mount_scratch(&mut self, at: &Path) -> MountResult<()> {
        let place = self.open(at)?;
        let own = self.next_cover();
        mkdirat(&self.root, &own, Mode::from_raw_mode(0o1777))?;
        let tree = clone_tree(&self.root, &own)?;
        set_access(&tree, MountAccess { write: true, execute: true })?;
        attach_to(&tree, &place)
    }

    fn next_cover(&mut self) -> PathBuf {
        self.covers += 1;
        Path::new(COVERS).join(self.covers.to_string())
    }

    /// Mounts the host's tree at the same path, unless the shared copy with this access is
    /// already there.
    fn mount_host_tree(&mut self, path: &Path, access: MountAccess) -> MountResult<()> {
        let wanted = (path.as_os_str(), access);
        let ready =
            SHARED_TREES.iter().position(|(path, access)| (OsStr::new(path), *access) == wanted);
        match ready.and_then(|at| self.shown.get(at)) {
            Some(CopiedTree::InPlace) => Ok(()),
            Some(CopiedTree::Loose(tree)) => attach(tree, &self.root, relative(path)),
            Some(CopiedTree::Missing) | None => {
                attach(&copy_tree(path, access)?, &self.root, relative(path))
            }
        }
    }

    /// Mounts the project's own cache over the shared one: as an overlay, as a plain
    /// directory, or the shared one read-only if no directory can be made.
    fn mount_cache(
        &mut self,
        path: &Path,
        own: &Path,
        caps: FileCaps,
        overlay: bool,
    ) -> MountResult<()> {
        let place = self.open(path)?;
        let execute = caps.contains(FileCaps::EXECUTE);
        let (tree, write) = match overlay::mount_project_cache(path, own, overlay) {
            CacheMount::Overlay { tree, lock } => {
                self.locks.push(lock);
                (tree, true)
            }
            CacheMount::Plain(dir) => {
                (copy_tree(&dir, MountAccess { write: true, execute })?, true)
            }
            CacheMount::Missing => (copy_tree(path, MountAccess { write: false, execute })?, false),
        };
        set_access(&tree, MountAccess { write, execute })?;
        self.caches.push(path.to_path_buf());
        attach_to(&tree, &place)
    }

    /// Mounts doors over programs. If the room does not show the directory, only the doors
    /// are there. Otherwise one overlay shows doors and programs, or a mount for each door
    /// where the kernel makes no overlay.
    fn mount_doors(
        &self,
        at: &Path,
        doors: &Path,
        names: &[String],
        over: bool,
        overlay: bool,
    ) -> MountResult<()> {
        const ACCESS: MountAccess = MountAccess { write: false, execute: true };
        let place = self.open(at)?;
        if !over {
            return attach_to(&copy_tree(doors, ACCESS)?, &place);
        }
        if overlay && let Ok(tree) = overlay::make_door_overlay(doors, &place) {
            set_access(&tree, ACCESS)?;
            return attach_to(&tree, &place);
        }
        for name in names {
            let target = openat(&place, name.as_str(), HOLD | OFlags::NOFOLLOW, Mode::empty())?;
            attach_to(&copy_tree(&doors.join(name), ACCESS)?, &target)?;
        }
        Ok(())
    }

    /// Opens a place to mount on. `None` if the project's cache does not have the path.
    /// Then nothing is there to restrict, and the monitor lets no command make it.
    fn open_if_shown(&self, path: &Path) -> MountResult<Option<OwnedFd>> {
        match self.open(path) {
            Err(Errno::NOENT) if self.caches.iter().any(|cache| is_below(path, cache)) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Mounts a place of the tree over itself with less access; does nothing if the room does
    /// not show it.
    fn mount_with_less_access(&self, path: &Path, access: MountAccess) -> MountResult<()> {
        let Some(place) = self.open_if_shown(path)? else { return Ok(()) };
        let tree = clone_tree(&place, "")?;
        set_access(&tree, access)?;
        attach_to(&tree, &place)
    }

    /// Mounts something empty over a path; does nothing if the room does not show it. A file
    /// is covered by a device node that no process can open. A covered directory gets mount
    /// points for `shows`.
    fn mount_cover(&mut self, path: &Path, file: bool, shows: &[CoveredPlace]) -> MountResult<()> {
        let Some(place) = self.open_if_shown(path)? else { return Ok(()) };
        let own = self.next_cover();
        if file {
            // A device node on a `nodev` mount. No process can open it, not even root, and
            // every user can make this one (0:0).
            mknodat(&self.root, &own, FileType::CharacterDevice, Mode::empty(), 0)?;
        } else {
            let mode = if shows.is_empty() { 0 } else { 0o711 };
            mkdirat(&self.root, &own, Mode::from_raw_mode(mode))?;
        }
        for shown in shows {
            let inner = own.join(&shown.below);
            let above = shown.below.ancestors().skip(1).filter(|dir| !dir.as_os_str().is_empty());
            let mut above: Vec<PathBuf> = above.map(|dir| own.join(dir)).collect();
            above.reverse();
            for dir in above {
                ignore_existing(mkdirat(&self.root, &dir, Mode::from_raw_mode(0o711)))?;
            }
            if shown.file {
                make_file(&self.root, &inner)?;
            } else {
                ignore_existing(mkdirat(&self.root, &inner, Mode::from_raw_mode(0o711)))?;
            }
        }
        let tree = clone_tree(&self.root, &own)?;
        set_access(&tree, MountAccess { write: false, execute: false })?;
        attach_to(&tree, &place)
    }

    /// Mounts a file of the room with this text over a path; does nothing if the room does
    /// not show it.
    fn mount_text(&mut self, at: &Path, text: &[u8], mode: u32) -> MountResult<()> {
        let Some(place) = self.open_if_shown(at)? else { return Ok(()) };
        let own = self.next_cover();
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&self.root, &own, flags, Mode::from_raw_mode(mode))?;
        let mut rest = text;
        while !rest.is_empty() {
            let written = rustix::io::write(&file, rest)?;
            rest = rest.get(written..).unwrap_or_default();
        }
        drop(file);
        let tree = clone_tree(&self.root, &own)?;
        set_access(&tree, MountAccess { write: false, execute: false })?;
        attach_to(&tree, &place)
    }

    /// Attaches the devices that were cloned from the host, and the room's pseudo-terminals,
    /// in /dev.
    fn attach_devices(&self) -> MountResult<()> {
        let dev = openat(&self.root, "dev", HOLD, Mode::empty())?;
        let left = ROOM_DEVICES.iter().zip(&self.devices).chain([(&"pts", &self.terminals)]);
        for (name, tree) in left {
            if let Some(tree) = tree {
                attach(tree, &dev, Path::new(name))?;
            }
        }
        Ok(())
    }

    /// Mounts /proc with the room's own processes, read-only unless inner rooms write their
    /// maps.
    fn mount_processes(&self, maps: bool) -> MountResult<()> {
        self.make_directory(Path::new("/proc"), 0o555)?;
        let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        if !maps {
            attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
        }
        attach(&make_filesystem("proc", &[], attributes)?, &self.root, Path::new("proc"))
    }
}

/// Removes an empty directory on the room's root, and its parents that become empty. A
/// missing one is fine.
fn remove_directories(root: &OwnedFd, path: &Path) -> MountResult<()> {
    for dir in path.ancestors().filter(|dir| !dir.as_os_str().is_empty()) {
        match unlinkat(root, dir, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => break,
            Err(Errno::NOENT) => {}
            removed => removed?,
        }
    }
    Ok(())
}

/// A read-only copy of the mount at `path`.
pub(crate) fn copy_read_only(path: &Path) -> MountResult<OwnedFd> {
    copy_tree(path, MountAccess { write: false, execute: false })
}

/// A plan's absolute path, relative to the root of the tree.
fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// An existing file or directory is fine.
fn ignore_existing(made: MountResult<()>) -> MountResult<()> {
    match made {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

fn make_file(dir: impl AsFd, at: impl rustix::path::Arg) -> MountResult<()> {
    ignore_existing(mknodat(dir, at, FileType::RegularFile, Mode::from_raw_mode(0o644), 0))
}

/// A new file system of this kind, not attached. Set-user-id bits never have an effect.
fn make_filesystem(
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> MountResult<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value)?;
    }
    fsconfig_create(&context)?;
    let attributes = attributes | MountAttrFlags::MOUNT_ATTR_NOSUID;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// A copy of a mount tree, not attached.
fn clone_tree(dir: impl AsFd, path: impl rustix::path::Arg) -> MountResult<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    open_tree(dir, path, flags)
}

/// Sets the access of every mount of a tree. Set-user-id bits and device nodes never have an
/// effect.
fn set_access(tree: &OwnedFd, access: MountAccess) -> MountResult<()> {
    let mut attributes = ATTR_NOSUID | ATTR_NODEV;
    if !access.write {
        attributes |= ATTR_RDONLY;
    }
    if !access.execute {
        attributes |= ATTR_NOEXEC;
    }
    sys::set_mount(tree, attributes).map_err(errno)
}

/// Attaches a tree at a path below a directory.
fn attach(tree: &OwnedFd, dir: impl AsFd, at: &Path) -> MountResult<()> {
    move_mount(tree, "", dir, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Attaches a tree at an open place.
fn attach_to(tree: &OwnedFd, place: &OwnedFd) -> MountResult<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", place, "", flags)
}
