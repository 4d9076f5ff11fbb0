//! Judges a call and makes it, on what is held open.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clash_policy::Caps;
use clash_policy::path::{is_below, normalise};
use clash_policy::protect::Keep;
use rustix::fs::inotify::{WatchFlags, add_watch};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, Uid, chmodat,
    chownat, fcntl_getfl, fcntl_setfl, fstat, ftruncate, linkat, mkdirat, mknodat, openat,
    renameat_with, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::process::umask;

use super::super::sys;
use super::Shared;
use super::call::Times;
use super::caller::shares_terminal;
use super::fresh::Fresh;
use super::leaving::Leaving;
use super::place::{Place, real};
use super::quota::Quota;
use crate::aliases::Remembered;
use crate::names::misleads;
use crate::plan::Watch;

#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: u64,
    pub(super) act: Act,
}

/// A call with everything it is about held open.
#[derive(Debug)]
pub(super) enum Act {
    Open { at: Place, flags: i32, mode: u32, umask: u32, caller: i32, reads: bool },
    Mkdir { at: Place, mode: u32, umask: u32 },
    Mknod { at: Place, mode: u32, umask: u32, device: u64 },
    Unlink { at: Place, directory: bool },
    Rename { from: Place, to: Place, flags: u32 },
    Link { from: OwnedFd, to: Place },
    Symlink { target: Vec<u8>, at: Place },
    Truncate { at: OwnedFd, length: u64 },
    Chmod { at: OwnedFd, mode: u32 },
    Chown { at: OwnedFd, owner: u32, group: u32 },
    Times { at: OwnedFd, times: Times },
    Notify { at: OwnedFd, through: OwnedFd, mask: u32 },
}

type Done = Result<(), Errno>;

/// A name in a directory that is held open, and where that is.
struct Name {
    dir: OwnedFd,
    /// With the slash that followed it.
    leaf: Vec<u8>,
    path: PathBuf,
}

#[derive(Debug)]
pub(super) struct Worker {
    shared: Arc<Shared>,
    watch: Watch,
    fresh: Fresh,
    links: Remembered,
    leaving: Leaving,
    quota: Quota,
    /// What the command was given as stdin, stdout and stderr, and what for: it may
    /// open these again for that, wherever they are, as far as the kernel lets it.
    stdio: Vec<((u64, u64), OFlags)>,
}

/// What all of a caller's own entries in /proc are judged as.
const OWN_PROCESS: &str = "/proc/self";
const SET_USER_ID: u32 = libc::S_ISUID;
/// The devices that never keep anybody waiting: null, zero, full, random.
const MEMORY_DEVICES: u32 = 1;
/// Whoever opens it gets its own terminal.
const OWN_TERMINAL: (u32, u32) = (5, 0);
/// Opens that may wait for somebody at a time.
const MOST_WAITING: usize = 200;
/// Tries to make or open a name that keeps coming and going.
const TRIES: u32 = 16;

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, watch: Watch) -> Self {
        let own = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        let given = |fd| Some((identity(&fstat(fd).ok()?), fcntl_getfl(fd).ok()? & OFlags::RWMODE));
        let stdio = own.into_iter().filter_map(given).collect();
        let fresh = Fresh::new(watch.rights.new_repositories());
        let (links, leaving) = (Remembered::default(), Leaving::default());
        let quota = Quota::new(watch.files);
        Self { shared, watch, fresh, links, leaving, quota, stdio }
    }

    pub(super) fn carry_out(&mut self, job: Job) {
        let Job { id, act } = job;
        let makes = matches!(
            act,
            Act::Mkdir { .. } | Act::Mknod { .. } | Act::Link { .. } | Act::Symlink { .. }
        );
        let counted = if makes { self.quota.check() } else { Ok(()) };
        let done = match act {
            _ if counted.is_err() => counted,
            Act::Notify { at, through, mask } => {
                return match self.notify(&at, &through, mask) {
                    Ok(number) => sys::answer(&self.shared.listener, id, i64::from(number)),
                    Err(error) => self.shared.refuse(id, error),
                };
            }
            Act::Open { at, flags, mode, umask, caller, reads } => {
                let wish = Wish { flags, mode, umask, caller, reads };
                return self.open(id, at, wish);
            }
            Act::Mkdir { at, mode, umask: mask } => {
                umask(Mode::from_raw_mode(mask));
                self.mkdir(at, mode)
            }
            Act::Mknod { at, mode, umask: mask, device } => {
                umask(Mode::from_raw_mode(mask));
                self.mknod(at, mode, device)
            }
            Act::Unlink { at, directory } => self.unlink(at, directory),
            Act::Rename { from, to, flags } => self.rename(from, to, flags),
            Act::Link { from, to } => self.link(&from, to),
            Act::Symlink { target, at } => {
                self.name(at, Errno::EXIST).and_then(|at| self.symlink(&target, &at))
            }
            Act::Truncate { at, length } => self.truncate(&at, length),
            Act::Chmod { mode, .. } if mode & SET_USER_ID != 0 => Err(Errno::PERM),
            Act::Chmod { at, mode } => self.change(&at).and_then(|()| {
                let mode = Mode::from_raw_mode(mode);
                chmodat(&self.shared.held, itself(&at), mode, AtFlags::empty())
            }),
            Act::Chown { at, owner, group } => self.change(&at).and_then(|()| {
                let owner = (owner != u32::MAX).then(|| Uid::from_raw(owner));
                let group = (group != u32::MAX).then(|| Gid::from_raw(group));
                chownat(&self.shared.held, itself(&at), owner, group, AtFlags::empty())
            }),
            Act::Times { at, times } => self.change(&at).and_then(|()| {
                let [last_access, last_modification] =
                    times.map(|(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec });
                let times = Timestamps { last_access, last_modification };
                utimensat(&self.shared.held, itself(&at), &times, AtFlags::empty())
            }),
        };
        if makes && done.is_ok() {
            self.quota.made_one();
        }
        match done {
            Ok(()) => sys::answer(&self.shared.listener, id, 0),
            Err(error) => self.shared.refuse(id, error),
        }
    }

    /// Refuses what the rules do not permit at a path.
    fn check(&self, path: &Path, needs: Caps) -> Done {
        self.check_making(path, needs, needs)
    }

    /// The same; of what is being made for the first time the list of persistence
    /// paths is asked only about that.
    fn check_making(&self, path: &Path, needs: Caps, kept: Caps) -> Done {
        let rights = &self.watch.rights;
        let name = path.file_name().unwrap_or_default();
        if needs.contains(Caps::CREATE) && misleads(name.as_bytes()) && !rights.is_own(path) {
            return Err(Errno::ILSEQ);
        }
        let own = |keep: Keep| {
            let made = keep == Keep::WithDirectory && self.fresh.made_around(path);
            (made || self.fresh.covers(path))
                && rights.kept_by_link(path, kept, &self.links).is_none()
        };
        let permitted = rights.permits(path, needs)
            && rights.kept(path, kept, &self.links).is_none_or(own)
            && !(kept.contains(Caps::CREATE) && self.leaving.refuses(path, rights));
        if permitted { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// What may be done with a file under a name.
    fn caps(&self, path: &Path) -> Caps {
        let caps = self.watch.rights.caps(path);
        if self.watch.rights.kept_by_link(path, Caps::WRITE, &self.links).is_some() {
            return caps.without(Caps::CHANGE);
        }
        if self.fresh.covers(path) && self.watch.rights.permits(path, Caps::WRITE) {
            caps.union(Caps::WRITE)
        } else {
            caps
        }
    }

    /// A place that has to be a name; `other` is said where it is none.
    fn name(&self, place: Place, other: Errno) -> Result<Name, Errno> {
        let Place::Name { dir, mut leaf, slash, .. } = place else { return Err(other) };
        let mut path = real(&self.shared.held, &dir)?.ok_or(Errno::NOENT)?;
        path.push(std::ffi::OsStr::from_bytes(&leaf));
        if slash {
            leaf.push(b'/');
        }
        Ok(Name { dir, leaf, path })
    }

    /// Modes, owners and times count as content.
    fn change(&self, object: &OwnedFd) -> Done {
        match real(&self.shared.held, object)? {
            Some(path) => self.check(&path, Caps::WRITE),
            None => Ok(()),
        }
    }

    /// Whoever is told what happens at a path reads it.
    fn notify(&self, at: &OwnedFd, through: &OwnedFd, mask: u32) -> Result<i32, Errno> {
        if let Some(path) = real(&self.shared.held, at)? {
            self.check(&path, Caps::READ)?;
        }
        let flags = WatchFlags::from_bits_retain(mask & !libc::IN_DONT_FOLLOW);
        // There is no room here, so this is where the processes are.
        add_watch(through, Path::new("/proc/self/fd").join(itself(at)), flags)
    }

    fn mkdir(&mut self, at: Place, mode: u32) -> Done {
        let at = self.name(at, Errno::EXIST)?;
        // Programs that make all directories of a path look at this error.
        self.check(&at.path, Caps::CREATE)
            .map_err(|refused| if exists(&at) { Errno::EXIST } else { refused })?;
        mkdirat(&at.dir, &at.leaf, Mode::from_raw_mode(mode))?;
        self.links.0.get_mut().made(&at.path);
        self.fresh.directory(&at.path);
        Ok(())
    }

    fn mknod(&mut self, at: Place, mode: u32, device: u64) -> Done {
        if mode & SET_USER_ID != 0 {
            return Err(Errno::PERM);
        }
        let at = self.name(at, Errno::EXIST)?;
        self.check(&at.path, Caps::CREATE)?;
        let kind = match FileType::from_raw_mode(mode) {
            FileType::Unknown => FileType::RegularFile,
            kind => kind,
        };
        mknodat(&at.dir, &at.leaf, kind, Mode::from_raw_mode(mode & 0o7777), device)
    }

    /// A link to where the command itself may do nothing is of use only to somebody
    /// else, who will follow it.
    fn symlink(&self, target: &[u8], at: &Name) -> Done {
        self.check(&at.path, Caps::CREATE)?;
        self.no_way_in(&at.path)?;
        let dir = at.path.parent().unwrap_or(Path::new("/"));
        let leads = normalise(&dir.join(std::ffi::OsStr::from_bytes(target)));
        let any = Caps::each().any(|cap| self.watch.rights.permits(&leads, cap));
        if !any && !is_below(dir, &leads) && !is_below(&leads, dir) {
            return Err(Errno::ACCESS);
        }
        symlinkat(target, &at.dir, &at.leaf)
    }

    /// Refuses a link in the place of a directory of which part is kept, or through
    /// which another link leads.
    fn no_way_in(&self, path: &Path) -> Done {
        let opens = self.watch.rights.opens_way(path) && !self.fresh.covers(path);
        if opens || self.links.0.borrow().lead_below(path) { Err(Errno::ACCESS) } else { Ok(()) }
    }

    fn unlink(&mut self, at: Place, directory: bool) -> Done {
        let at = self.name(at, if directory { Errno::BUSY } else { Errno::ISDIR })?;
        if let Err(refusal) = self.check(&at.path, Caps::DELETE) {
            if !exists(&at) {
                return Err(Errno::NOENT);
            }
            if !self.leaving.may_go(&at.path, &self.watch.rights, &self.links) {
                return Err(refusal);
            }
        }
        let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        unlinkat(&at.dir, &at.leaf, flags)?;
        self.quota.removed_one();
        if directory {
            self.leaving.gone(&at.path);
        }
        Ok(())
    }

    fn rename(&mut self, from: Place, to: Place, flags: u32) -> Done {
        let [from, to] = [self.name(from, Errno::BUSY)?, self.name(to, Errno::BUSY)?];
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if flags.contains(RenameFlags::WHITEOUT) {
            return Err(Errno::PERM);
        }
        let source = look(&from)?;
        let target = look(&to).ok();
        let both = Caps::CREATE.union(Caps::DELETE);
        self.check(&from.path, if exchange { both } else { Caps::DELETE })?;
        self.check(&to.path, if target.is_some() { both } else { Caps::CREATE })?;
        self.no_gain(&from.path, &to.path)?;
        if exchange {
            self.no_gain(&to.path, &from.path)?;
        }
        let moves = |wanted: FileType| {
            let is = |meta: &Stat| FileType::from_raw_mode(meta.st_mode) == wanted;
            is(&source) || exchange && target.as_ref().is_some_and(is)
        };
        let directory = moves(FileType::Directory);
        if directory
            && from.path != to.path
            && (!self.watch.rights.alike_below(&from.path, &to.path)
                || [&from, &to].iter().any(|at| self.links.0.borrow().lead_below(&at.path)))
        {
            return Err(Errno::XDEV);
        }
        if moves(FileType::Symlink) {
            self.no_way_in(&to.path)?;
            if exchange {
                self.no_way_in(&from.path)?;
            }
        }
        renameat_with(&from.dir, &from.leaf, &to.dir, &to.leaf, flags)?;
        if target.is_some() && !exchange && from.path != to.path {
            self.quota.removed_one();
        }
        if directory {
            for path in [&from.path, &to.path] {
                self.links.0.get_mut().moved(path);
                self.fresh.moved(path);
            }
        }
        Ok(())
    }

    fn link(&mut self, from: &OwnedFd, to: Place) -> Done {
        let to = self.name(to, Errno::EXIST)?;
        if exists(&to) {
            return Err(Errno::EXIST);
        }
        self.check(&to.path, Caps::CREATE)?;
        if FileType::from_raw_mode(fstat(from)?.st_mode) == FileType::Symlink {
            self.no_way_in(&to.path)?;
        }
        if let Some(path) = real(&self.shared.held, from)? {
            self.no_gain(&path, &to.path)?;
        }
        let flags = AtFlags::SYMLINK_FOLLOW;
        linkat(&self.shared.held, itself(from), &to.dir, &to.leaf, flags)
    }

    /// A file under another name must not be good for more.
    fn no_gain(&self, from: &Path, to: &Path) -> Done {
        let content = Caps::READ.union(Caps::WRITE).union(Caps::EXECUTE);
        let gained = self.caps(to).intersect(content).without(self.caps(from));
        if gained.is_empty() { Ok(()) } else { Err(Errno::XDEV) }
    }

    fn truncate(&mut self, at: &OwnedFd, length: u64) -> Done {
        match FileType::from_raw_mode(fstat(at)?.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        self.change(at)?;
        // Whoever has a lease on it is not waited for.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.shared.held, itself(at), flags, Mode::empty())?;
        ftruncate(file, length)
    }

    fn open(&mut self, id: u64, at: Place, wish: Wish) {
        let opened = match at {
            Place::Opened(_) if wish.writes() => Err(Errno::ACCESS),
            Place::Opened(file) => {
                self.check(Path::new(OWN_PROCESS), wish.needs()).map(|()| Opening::Done(file))
            }
            Place::Object(object) => self.open_object(object, &wish),
            Place::Name { .. } => self.open_name(at, &wish),
        };
        match opened {
            Ok(Opening::Done(file)) => give(&self.shared, id, file, &wish),
            Ok(Opening::Device(file)) => give_at_once(&self.shared, id, &file, &wish),
            Ok(Opening::MayBlock(object)) => {
                // Whoever waits holds on to what is shared.
                if Arc::strong_count(&self.shared) > MOST_WAITING {
                    return self.shared.refuse(id, Errno::AGAIN);
                }
                let shared = self.shared.clone();
                let waiter = std::thread::Builder::new().stack_size(64 * 1024);
                let waiting = waiter.spawn(move || match reopen(&shared, &object, &wish) {
                    Ok(file) => give(&shared, id, file, &wish),
                    Err(error) => shared.refuse(id, error),
                });
                if waiting.is_err() {
                    self.shared.refuse(id, Errno::AGAIN);
                }
            }
            Err(error) => self.shared.refuse(id, error),
        }
    }

    fn open_name(&mut self, at: Place, wish: &Wish) -> Result<Opening, Errno> {
        let at = self.name(at, Errno::INVAL)?;
        // A slash behind a link would have it followed.
        let bare = at.leaf.strip_suffix(b"/").unwrap_or(&at.leaf);
        let hold = if bare == at.leaf { HOLD } else { HOLD | OFlags::DIRECTORY };
        let exclusive = wish.has(libc::O_CREAT | libc::O_EXCL);
        // The kernel says whether it is there, when it is made.
        if exclusive && self.may_make(&at, wish).is_ok() {
            return self.make(&at, wish).map(Opening::Done);
        }
        for _ in 0..TRIES {
            let held = openat(&at.dir, bare, hold | OFlags::NOFOLLOW, Mode::empty());
            match held {
                Ok(_) if exclusive => return Err(Errno::EXIST),
                Ok(object) => {
                    // One that has become a link since it was looked at.
                    let meta = fstat(&object)?;
                    if FileType::from_raw_mode(meta.st_mode) == FileType::Symlink {
                        return Err(Errno::LOOP);
                    }
                    return self.open_found(&at.path, object, &meta, wish);
                }
                Err(Errno::NOENT) if wish.has(libc::O_CREAT) => {
                    self.may_make(&at, wish)?;
                    match self.make(&at, wish) {
                        Err(Errno::EXIST) => {}
                        made => return made.map(Opening::Done),
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(Errno::AGAIN)
    }

    fn may_make(&self, at: &Name, wish: &Wish) -> Done {
        if wish.mode & SET_USER_ID != 0 {
            return Err(Errno::PERM);
        }
        let needs = Caps::CREATE.union(wish.needs());
        self.check_making(&at.path, needs, Caps::CREATE)?;
        if at.leaf.ends_with(b"/") { Err(Errno::ISDIR) } else { Ok(()) }
    }

    /// Makes a file that may be made. Exclusively, so that it is certainly a new one.
    fn make(&mut self, at: &Name, wish: &Wish) -> Result<OwnedFd, Errno> {
        self.quota.check()?;
        umask(Mode::from_raw_mode(wish.umask));
        let flags = wish.open_flags() | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = openat(&at.dir, &at.leaf, flags, Mode::from_raw_mode(wish.mode))?;
        self.quota.made_one();
        if self.watch.rights.kept(&at.path, Caps::WRITE, &self.links).is_some() {
            self.fresh.file(&at.path);
        }
        Ok(file)
    }

    fn open_object(&mut self, object: OwnedFd, wish: &Wish) -> Result<Opening, Errno> {
        let meta = fstat(&object)?;
        let this = identity(&meta);
        let own = self.stdio.iter().any(|(known, given)| *known == this && wish.is_within(*given));
        match real(&self.shared.held, &object)? {
            Some(path) if !own => self.open_found(&path, object, &meta, wish),
            _ => self.open_checked(object, &meta, wish),
        }
    }

    fn open_found(
        &self,
        path: &Path,
        object: OwnedFd,
        meta: &Stat,
        wish: &Wish,
    ) -> Result<Opening, Errno> {
        if wish.has(libc::O_TMPFILE) {
            // A file without a name, in a directory.
            if wish.mode & SET_USER_ID != 0 {
                return Err(Errno::PERM);
            }
            let needs = Caps::CREATE.union(wish.needs());
            self.check(&path.join("unnamed"), needs)?;
            umask(Mode::from_raw_mode(wish.umask));
            let (flags, mode) = (wish.open_flags(), Mode::from_raw_mode(wish.mode));
            let made = openat(&self.shared.held, itself(&object), flags, mode);
            return made.map(Opening::Done);
        }
        self.check(path, wish.needs())?;
        self.open_checked(object, meta, wish)
    }

    fn open_checked(&self, object: OwnedFd, meta: &Stat, wish: &Wish) -> Result<Opening, Errno> {
        let device = (libc::major(meta.st_rdev), libc::minor(meta.st_rdev));
        match FileType::from_raw_mode(meta.st_mode) {
            FileType::RegularFile => return self.open_regular(object, wish),
            FileType::Directory => {}
            FileType::CharacterDevice if device.0 == MEMORY_DEVICES => {
                return reopen(&self.shared, &object, wish).map(Opening::Device);
            }
            // Ours is the caller's only in the same session.
            FileType::CharacterDevice
                if device == OWN_TERMINAL && !shares_terminal(wish.caller) =>
            {
                return Err(Errno::NXIO);
            }
            _ => return Ok(Opening::MayBlock(object)),
        }
        reopen(&self.shared, &object, wish).map(Opening::Done)
    }

    /// Whoever has a lease on a file may keep others waiting for it.
    fn open_regular(&self, object: OwnedFd, wish: &Wish) -> Result<Opening, Errno> {
        let flags = wish.open_flags() | OFlags::NONBLOCK;
        match openat(&self.shared.held, itself(&object), flags, Mode::empty()) {
            Err(Errno::AGAIN) if !wish.has(libc::O_NONBLOCK) => Ok(Opening::MayBlock(object)),
            opened => {
                let file = opened?;
                if !wish.has(libc::O_NONBLOCK) {
                    let kept = OFlags::APPEND | OFlags::DIRECT | OFlags::NOATIME;
                    fcntl_setfl(&file, flags & kept)?;
                }
                Ok(Opening::Done(file))
            }
        }
    }
}

/// How far an open has got.
enum Opening {
    Done(OwnedFd),
    /// The same, and nobody can execute it.
    Device(OwnedFd),
    /// Judged, and held; opening it may take until somebody opens the other end.
    MayBlock(OwnedFd),
}

/// What an open asks for.
struct Wish {
    flags: i32,
    mode: u32,
    umask: u32,
    /// The thread that asks.
    caller: i32,
    reads: bool,
}

impl Wish {
    fn has(&self, flags: i32) -> bool {
        self.flags & flags == flags
    }

    fn writes(&self) -> bool {
        self.flags & (libc::O_ACCMODE | libc::O_TRUNC | libc::O_CREAT) != 0
    }

    /// Whether a descriptor that was opened so is good for the same.
    fn is_within(&self, given: OFlags) -> bool {
        given == OFlags::RDWR
            || OFlags::from_bits_retain(self.flags.cast_unsigned()) & OFlags::RWMODE == given
                && (given == OFlags::WRONLY || !self.has(libc::O_TRUNC))
    }

    fn needs(&self) -> Caps {
        let (reads, writes) = match self.flags & libc::O_ACCMODE {
            libc::O_RDONLY => (true, false),
            libc::O_WRONLY => (false, true),
            _ => (true, true),
        };
        let mut needs = Caps::NONE;
        // Elsewhere the kernel alone holds what may be read.
        if reads && self.reads {
            needs = needs.union(Caps::READ);
        }
        if writes || self.has(libc::O_TRUNC) {
            needs = needs.union(Caps::WRITE);
        }
        needs
    }

    /// What is left to say once the name has been found.
    fn open_flags(&self) -> OFlags {
        let settled = libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let flags = (self.flags & !settled).cast_unsigned();
        // The terminal of a thread of ours is nobody's business.
        OFlags::from_bits_retain(flags) | OFlags::CLOEXEC | OFlags::NOCTTY
    }
}

const HOLD: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// The very object that is held open, by its name in the directory of these.
fn itself(object: &OwnedFd) -> String {
    object.as_raw_fd().to_string()
}

fn reopen(shared: &Shared, object: &OwnedFd, wish: &Wish) -> Result<OwnedFd, Errno> {
    openat(&shared.held, itself(object), wish.open_flags(), Mode::empty())
}

/// Hands over what needs no second look: the caller is woken once.
fn give_at_once(shared: &Shared, id: u64, file: &OwnedFd, wish: &Wish) {
    if let Err(error) = sys::answer_with(&shared.listener, id, file, wish.has(libc::O_CLOEXEC)) {
        shared.refuse(id, error);
    }
}

/// Hands a file over. One open for writing is closed here before the caller goes
/// on: it may want to execute what it has written, and nobody may then have it
/// open for writing.
fn give(shared: &Shared, id: u64, file: OwnedFd, wish: &Wish) {
    if !wish.writes() {
        return give_at_once(shared, id, &file, wish);
    }
    let given = sys::give(&shared.listener, id, &file, wish.has(libc::O_CLOEXEC));
    drop(file);
    match given {
        Ok(number) => sys::answer(&shared.listener, id, i64::from(number)),
        Err(error) => shared.refuse(id, error),
    }
}

fn look(at: &Name) -> Result<Stat, Errno> {
    let leaf = at.leaf.strip_suffix(b"/").unwrap_or(&at.leaf);
    rustix::fs::statat(&at.dir, leaf, AtFlags::SYMLINK_NOFOLLOW)
}

fn exists(at: &Name) -> bool {
    look(at).is_ok()
}

fn identity(meta: &Stat) -> (u64, u64) {
    (meta.st_dev, meta.st_ino)
}
