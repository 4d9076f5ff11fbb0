//! Judges a call and carries it out on the objects that the outer thread holds open.

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clash_policy::FileCaps;
use clash_policy::protect::KeepMode;
use rustix::fs::inotify::{WatchFlags, add_watch};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, chmodat, chownat,
    fcntl_getfl, fstat, ftruncate, mkdirat, mknodat, openat, unlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::process::umask;

use super::super::sys;
use super::MonitorState;
use super::call::FileTimes;
use super::drafts::ScriptDrafts;
use super::folding::CaseFolding;
use super::fresh::OwnCreations;
use super::leaving::LeavingWorktrees;
use super::names::misleads;
use super::open::OpenRequest;
use super::open_ground::open_trees;
use super::place::{CallPlace, real};
use super::quota::NameQuota;
use super::turn::RoomLock;
use crate::aliases::RememberedLinks;
use crate::plan::WatchPlan;
use crate::witness::{self, RefusedAccess};

#[derive(Debug)]
pub(super) struct MonitorJob {
    pub(super) id: u64,
    pub(super) act: ResolvedCall,
}

/// A call whose paths have all been resolved to held objects.
#[derive(Debug)]
pub(super) enum ResolvedCall {
    Open { at: CallPlace, flags: i32, mode: u32, umask: u32, caller: i32, reads: bool },
    Mkdir { at: CallPlace, mode: u32, umask: u32 },
    Mknod { at: CallPlace, mode: u32, umask: u32, device: u64 },
    Unlink { at: CallPlace, directory: bool },
    Rename { from: CallPlace, to: CallPlace, flags: u32 },
    Link { from: OwnedFd, to: CallPlace },
    Symlink { target: Vec<u8>, at: CallPlace },
    Truncate { at: OwnedFd, length: u64 },
    Chmod { at: OwnedFd, mode: u32 },
    Chown { at: OwnedFd, owner: u32, group: u32 },
    Times { at: OwnedFd, times: FileTimes },
    Notify { at: OwnedFd, through: OwnedFd, mask: u32 },
}

pub(super) type ActResult = Result<(), Errno>;

/// A name in a held directory, and the real path of the name.
pub(super) struct HeldName {
    pub(super) dir: OwnedFd,
    /// Includes a trailing slash, if the caller wrote one.
    pub(super) leaf: Vec<u8>,
    pub(super) path: PathBuf,
}

impl HeldName {
    /// The name without a trailing slash.
    pub(super) fn bare(&self) -> &[u8] {
        self.leaf.strip_suffix(b"/").unwrap_or(&self.leaf)
    }
}

#[derive(Debug)]
pub(super) struct MonitorWorker {
    pub(super) shared: Arc<MonitorState>,
    pub(super) watch: WatchPlan,
    pub(super) turns: Arc<RoomLock>,
    pub(super) fresh: OwnCreations,
    pub(super) links: RememberedLinks,
    folding: CaseFolding,
    leaving: LeavingWorktrees,
    pub(super) quota: NameQuota,
    /// Directories whose repository the command wanted to remove, and where the repository
    /// had to stay.
    pub(super) parting: Vec<PathBuf>,
    /// The files that the command has as stdin, stdout and stderr, with their access modes.
    /// The command may open them again with the same access, wherever they are. The
    /// kernel's own checks still apply.
    pub(super) stdio: Vec<StreamIdentity>,
    pub(super) drafts: ScriptDrafts,
    /// The last access of the present call that the rules do not permit.
    refusal: RefCell<Option<RefusedAccess>>,
    pub(super) open_trees: Vec<PathBuf>,
}

/// Device, inode and access mode of a standard stream.
pub(crate) type StreamIdentity = ((u64, u64), OFlags);

/// The identity of an open descriptor; `None` if it is closed.
pub(crate) fn identity_of_stream(fd: impl AsFd) -> Option<StreamIdentity> {
    Some((identity(&fstat(&fd).ok()?), fcntl_getfl(&fd).ok()? & OFlags::RWMODE))
}

/// Facts about one command.
#[derive(Debug)]
pub(super) struct CommandNotes {
    /// The standard streams, which the command may open again.
    pub(super) stdio: Vec<StreamIdentity>,
    pub(super) drafts: ScriptDrafts,
}

/// A program with these bits runs as another user or group. A directory with `S_ISGID`
/// gives its group to new files.
pub(super) const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;

impl MonitorWorker {
    /// The worker of a plan and a command, which has judged nothing yet. Nothing is known of
    /// earlier commands.
    pub(super) fn new(
        shared: Arc<MonitorState>,
        watch: WatchPlan,
        turns: Arc<RoomLock>,
        notes: CommandNotes,
    ) -> Self {
        let CommandNotes { stdio, drafts } = notes;
        let fresh = OwnCreations::new(watch.rights.new_repositories());
        let (links, leaving) = (RememberedLinks::default(), LeavingWorktrees::default());
        let quota = NameQuota::new(watch.files);
        let open_trees = open_trees(&shared, &watch.rights);
        Self {
            shared,
            watch,
            turns,
            fresh,
            links,
            leaving,
            folding: CaseFolding::default(),
            quota,
            parting: Vec::new(),
            stdio,
            drafts,
            refusal: RefCell::default(),
            open_trees,
        }
    }

    /// Answers a call with an error. If the rules are the reason, the witness hears of it.
    pub(super) fn refuse(&self, id: u64, error: Errno) {
        let refusal = self.refusal.take();
        if let Some(refusal) = refusal.filter(|_| matches!(error, Errno::ACCESS | Errno::XDEV)) {
            witness::refused(&refusal);
        }
        self.shared.refuse(id, error);
    }

    /// Carries out one call of the command, if the rules and the limit on names permit it,
    /// and answers it with its result or an error.
    pub(super) fn carry_out(&mut self, job: MonitorJob) {
        let MonitorJob { id, act } = job;
        self.refusal.take();
        self.folding.release();
        let makes = matches!(
            act,
            ResolvedCall::Mkdir { .. }
                | ResolvedCall::Mknod { .. }
                | ResolvedCall::Link { .. }
                | ResolvedCall::Symlink { .. }
        );
        let counted = if makes { self.quota.check() } else { Ok(()) };
        let done = match act {
            _ if counted.is_err() => counted,
            ResolvedCall::Notify { at, through, mask } => {
                return match self.notify(&at, &through, mask) {
                    Ok(number) => sys::answer(&self.shared.listener, id, i64::from(number)),
                    Err(error) => self.shared.refuse(id, error),
                };
            }
            ResolvedCall::Open { at, flags, mode, umask, caller, reads } => {
                let request = OpenRequest { flags, mode, umask, caller, reads };
                return self.open(id, at, request);
            }
            ResolvedCall::Mkdir { at, mode, umask: mask } => {
                umask(Mode::from_raw_mode(mask));
                self.mkdir(at, mode)
            }
            ResolvedCall::Mknod { at, mode, umask: mask, device } => {
                umask(Mode::from_raw_mode(mask));
                self.mknod(at, mode, device)
            }
            ResolvedCall::Unlink { at, directory } => self.unlink(at, directory),
            ResolvedCall::Rename { from, to, flags } => self.rename(from, to, flags),
            ResolvedCall::Link { from, to } => self.link(&from, to),
            ResolvedCall::Symlink { target, at } => {
                self.name(at, Errno::EXIST).and_then(|at| self.symlink(&target, &at))
            }
            ResolvedCall::Truncate { at, length } => self.truncate(&at, length),
            ResolvedCall::Chmod { at, mode } => self.chmod(&at, mode),
            ResolvedCall::Chown { at, owner, group } => self.change(&at).and_then(|()| {
                let owner = (owner != u32::MAX).then(|| Uid::from_raw(owner));
                let group = (group != u32::MAX).then(|| Gid::from_raw(group));
                chownat(&self.shared.held, itself(&at), owner, group, AtFlags::empty())
            }),
            ResolvedCall::Times { at, times } => self.change(&at).and_then(|()| {
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
            Err(error) => self.refuse(id, error),
        }
    }

    /// Refuses an access that the rules do not permit at a path.
    pub(super) fn check(&self, path: &Path, needs: FileCaps) -> ActResult {
        if needs.intersects(FileCaps::WRITE.union(FileCaps::CREATE)) && self.is_common(path) {
            return Err(self.note_refusal(path, needs));
        }
        self.check_making(path, needs, needs)
    }

    /// Notes the refused access for the record, and returns `EACCES`.
    pub(super) fn note_refusal(&self, path: &Path, needs: FileCaps) -> Errno {
        let path = path.to_path_buf();
        self.refusal.replace(Some(RefusedAccess { path, needs }));
        Errno::ACCESS
    }

    /// As `check`, but asks the list of persistence paths only about `kept`. A new file
    /// needs this: the list may permit to create a name and forbid to write it later.
    pub(super) fn check_making(&self, path: &Path, needs: FileCaps, kept: FileCaps) -> ActResult {
        let rights = &self.watch.rights;
        let name = path.file_name().unwrap_or_default();
        if needs.contains(FileCaps::CREATE) && misleads(name.as_bytes()) && !rights.is_own(path) {
            return Err(Errno::ILSEQ);
        }
        if self.folding.holds_for(path)
            && !self.fresh.covers(path)
            && rights.refuses_folded(path, needs, kept)
        {
            return Err(self.note_refusal(path, needs));
        }
        let own = |keep: KeepMode| {
            let made = keep == KeepMode::WithDirectory && self.fresh.made_around(path);
            (made || self.fresh.covers(path))
                && rights.kept_by_link(path, kept, &self.links).is_none()
        };
        if kept.intersects(FileCaps::WRITE.union(FileCaps::CREATE))
            && self.is_of_bare_repository(path)
        {
            return Err(self.note_refusal(path, needs));
        }
        let permitted = rights.permits(path, needs)
            && rights.kept(path, kept, &self.links).is_none_or(own)
            && !(kept.contains(FileCaps::CREATE) && self.leaving.refuses(path, rights));
        if permitted { Ok(()) } else { Err(self.note_refusal(path, needs)) }
    }

    /// Permits to make a directory where the list of persistence paths refuses only a file.
    fn check_directory(&self, path: &Path) -> ActResult {
        match self.watch.rights.kept(path, FileCaps::CREATE, &self.links) {
            Some(KeepMode::Directory) => self.check_making(path, FileCaps::CREATE, FileCaps::NONE),
            _ => Err(Errno::ACCESS),
        }
    }

    /// The rights on the file at a path, as the monitor judges it: those of the rules,
    /// without every change for a file of a bare or common repository and for the target of a
    /// protected link, and with `w` for a file that this room has made.
    pub(super) fn caps(&self, path: &Path) -> FileCaps {
        let caps = self.watch.rights.caps(path);
        if self.is_of_bare_repository(path)
            || self.is_common(path)
            || self.watch.rights.kept_by_link(path, FileCaps::WRITE, &self.links).is_some()
        {
            return caps.without(FileCaps::CHANGE);
        }
        if self.fresh.covers(path) && self.watch.rights.permits(path, FileCaps::WRITE) {
            caps.union(FileCaps::WRITE)
        } else {
            caps
        }
    }

    /// Turns a place into a name in a directory. Fails with `other` if the place is no
    /// name.
    pub(super) fn name(&self, place: CallPlace, other: Errno) -> Result<HeldName, Errno> {
        let CallPlace::Name { dir, mut leaf, slash, path, .. } = place else { return Err(other) };
        let mut path = match path {
            Some(path) => path,
            None => real(&self.shared.held, &dir)?.ok_or(Errno::NOENT)?,
        };
        self.folding.hold(&dir, &path);
        path.push(std::ffi::OsStr::from_bytes(&leaf));
        if slash {
            leaf.push(b'/');
        }
        Ok(HeldName { dir, leaf, path })
    }

    /// The present path of a name. Another process may have moved the held directory.
    pub(super) fn path_now(&self, at: &HeldName) -> Result<PathBuf, Errno> {
        let dir = real(&self.shared.held, &at.dir)?.ok_or(Errno::NOENT)?;
        Ok(dir.join(std::ffi::OsStr::from_bytes(at.bare())))
    }

    /// Changes a mode. Refuses bits that make a program run as another user or group. A
    /// directory may keep the `S_ISGID` bit that it has from its parent.
    fn chmod(&self, at: &OwnedFd, mode: u32) -> ActResult {
        let meta = fstat(at)?;
        let directory = FileType::from_raw_mode(meta.st_mode) == FileType::Directory;
        let (special, kept) = match directory {
            true => (SET_ID, meta.st_mode & libc::S_ISGID),
            false => (SET_ID | libc::S_ISVTX, 0),
        };
        if mode & special & !kept != 0 {
            return Err(Errno::PERM);
        }
        match self.change(at) {
            Err(_) if self.leaves_script(at, &meta, mode) => return Ok(()),
            changed => changed?,
        }
        chmodat(&self.shared.held, itself(at), Mode::from_raw_mode(mode), AtFlags::empty())
    }

    /// A change of mode, owner or times needs the right to write the content.
    fn change(&self, object: &OwnedFd) -> ActResult {
        match real(&self.shared.held, object)? {
            Some(path) => self.check(&path, FileCaps::WRITE),
            None => Ok(()),
        }
    }

    /// Adds an inotify watch. A process that watches a path learns about its content, so it
    /// needs the right to read.
    fn notify(&self, at: &OwnedFd, through: &OwnedFd, mask: u32) -> Result<i32, Errno> {
        if let Some(path) = real(&self.shared.held, at)? {
            self.check(&path, FileCaps::READ)?;
        }
        let flags = WatchFlags::from_bits_retain(mask & !libc::IN_DONT_FOLLOW);
        // The watched tier has no room, so `/proc` is the host's and shows the descriptors
        // of this process.
        add_watch(through, Path::new("/proc/self/fd").join(itself(at)), flags)
    }

    /// Makes a directory if the rules permit it. `EEXIST` if it is there, before any other
    /// error.
    fn mkdir(&mut self, at: CallPlace, mode: u32) -> ActResult {
        let at = self.name(at, Errno::EXIST)?;
        // Programs such as `mkdir -p` expect `EEXIST` for directories that are there,
        // before any other error.
        self.check(&at.path, FileCaps::CREATE)
            .or_else(|refused| self.check_directory(&at.path).map_err(|_| refused))
            .map_err(|refused| if exists(&at) { Errno::EXIST } else { refused })?;
        let _turn = self.completes_no_repository(&at)?;
        mkdirat(&at.dir, &at.leaf, Mode::from_raw_mode(mode))?;
        self.links.0.get_mut().note_new_directory(&at.path);
        self.fresh.directory(&at.path);
        Ok(())
    }

    /// Makes a file, pipe or socket if the rules permit it. Refuses device nodes, and the
    /// set-id and sticky bits.
    fn mknod(&mut self, at: CallPlace, mode: u32, device: u64) -> ActResult {
        let kind = match FileType::from_raw_mode(mode) {
            FileType::Unknown => FileType::RegularFile,
            // A device node in a project would give direct access to the hardware.
            FileType::CharacterDevice | FileType::BlockDevice => return Err(Errno::ACCESS),
            kind => kind,
        };
        if mode & (SET_ID | libc::S_ISVTX) != 0 {
            return Err(Errno::PERM);
        }
        let at = self.name(at, Errno::EXIST)?;
        self.check(&at.path, FileCaps::CREATE)?;
        let _turn = self.completes_no_repository(&at)?;
        mknodat(&at.dir, &at.leaf, kind, Mode::from_raw_mode(mode & 0o7777), device)
    }

    /// Removes a name if the rules permit it, or if it is part of a worktree that is being
    /// removed. A kept repository in it is only marked, and removed with its directory.
    fn unlink(&mut self, at: CallPlace, directory: bool) -> ActResult {
        let at = self.name(at, if directory { Errno::BUSY } else { Errno::ISDIR })?;
        if let Err(refusal) = self.check(&at.path, FileCaps::DELETE) {
            if !exists(&at) {
                return Err(Errno::NOENT);
            }
            if !self.leaving.may_go(&at.path, &self.watch.rights, &self.links) {
                return Err(refusal);
            }
        }
        if self.repository_stays(&at) {
            // The monitor removes the repository later, together with its directory.
            self.parting.extend(at.path.parent().map(Path::to_path_buf));
            return Ok(());
        }
        if directory {
            self.part_with_repository(&at);
        }
        match directory {
            true => unlinkat(&at.dir, &at.leaf, AtFlags::REMOVEDIR)?,
            false => self.remove_file(&at.dir, &at.leaf)?,
        }
        self.fresh.removed(&at.path);
        self.quota.removed_one();
        if directory {
            self.leaving.gone(&at.path);
        }
        Ok(())
    }

    /// Sets the length of a regular file that may be changed.
    fn truncate(&mut self, at: &OwnedFd, length: u64) -> ActResult {
        match FileType::from_raw_mode(fstat(at)?.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        self.change(at)?;
        // `O_NONBLOCK`: the monitor does not wait for the holder of a lease.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.shared.held, itself(at), flags, Mode::empty())?;
        ftruncate(file, length)
    }
}

/// The name of a held object in `/proc/self/fd`.
pub(super) fn itself(object: &OwnedFd) -> String {
    object.as_raw_fd().to_string()
}

/// The metadata of a name. If it is a link, those of the link itself.
pub(super) fn look(at: &HeldName) -> Result<Stat, Errno> {
    let leaf = at.leaf.strip_suffix(b"/").unwrap_or(&at.leaf);
    rustix::fs::statat(&at.dir, leaf, AtFlags::SYMLINK_NOFOLLOW)
}

pub(super) fn exists(at: &HeldName) -> bool {
    look(at).is_ok()
}

/// Device and inode.
pub(super) fn identity(meta: &Stat) -> (u64, u64) {
    (meta.st_dev, meta.st_ino)
}
