//! Opens files for the caller.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, MutexGuard, PoisonError};

use clash_policy::FileCaps;
use rustix::fs::{
    FileType, MemfdFlags, Mode, OFlags, SealFlags, Stat, fcntl_add_seals, fcntl_setfl, fstat,
    memfd_create, openat,
};
use rustix::io::Errno;
use rustix::process::umask;

use super::super::sys;
use super::MonitorState;
use super::act::{HeldName, MonitorWorker, SET_ID, identity, itself};
use super::caller::shares_terminal;
use super::place::{CallPlace, real};
use super::turn::LockTurn;

/// The path by which the monitor judges all of the caller's own entries in `/proc`.
const OWN_PROCESS: &str = "/proc/self";
/// Device major number of null, zero, full and random. Opening them never blocks.
const MEMORY_DEVICES: u32 = 1;
/// `/dev/tty`: each process that opens it gets its own controlling terminal.
const OWN_TERMINAL: (u32, u32) = (5, 0);
/// Opens that may block at the same time.
const MAX_WAITING_OPENS: usize = 200;
/// Attempts to make or open a name that other processes keep making and removing.
const MAX_OPEN_TRIES: u32 = 16;

/// An open that may block, and the file that it is about.
#[derive(Debug)]
pub(super) struct WaitingOpen {
    object: OwnedFd,
    request: OpenRequest,
}

impl MonitorState {
    pub(super) fn waiting_opens(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<WaitingOpen>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MonitorWorker {
    /// Opens a file for the command and answers the call. An open that may block waits in a
    /// thread of its own.
    pub(super) fn open(&mut self, id: u64, at: CallPlace, request: OpenRequest) {
        let opened = match at {
            CallPlace::Opened(_) if request.writes() => Err(Errno::ACCESS),
            CallPlace::Opened(file) => {
                self.check(Path::new(OWN_PROCESS), request.needs()).map(|()| OpenState::Done(file))
            }
            CallPlace::Object(object) => self.open_object(object, &request),
            CallPlace::Name { .. } => self.open_name(at, &request),
        };
        match opened {
            Ok(OpenState::Done(file)) => give(&self.shared, id, file, &request),
            Ok(OpenState::Device(file)) => give_at_once(&self.shared, id, &file, &request),
            Ok(OpenState::MayBlock(object)) => {
                let waiting = Arc::new(WaitingOpen { object, request });
                let mut all = self.shared.waiting_opens();
                if all.len() >= MAX_WAITING_OPENS {
                    return self.shared.refuse(id, Errno::AGAIN);
                }
                all.insert(id, waiting.clone());
                drop(all);
                self.wait_for(id, waiting);
            }
            Err(error) => self.refuse(id, error),
        }
    }

    /// Waits for an open in a thread of its own, and answers the call.
    fn wait_for(&self, id: u64, waiting: Arc<WaitingOpen>) {
        let shared = self.shared.clone();
        let waiter = std::thread::Builder::new().stack_size(64 * 1024);
        let started = waiter.spawn(move || {
            let WaitingOpen { object, request } = &*waiting;
            match reopen(&shared, object, request) {
                Ok(file) => give(&shared, id, file, request),
                Err(error) => shared.refuse(id, error),
            }
            shared.waiting_opens().remove(&id);
        });
        if started.is_err() {
            self.shared.waiting_opens().remove(&id);
            self.shared.refuse(id, Errno::AGAIN);
        }
    }

    /// Waits again for the opens of a launcher that has ended. Its threads ended with it.
    pub(super) fn resume_waiting(&self) {
        let all: Vec<_> =
            self.shared.waiting_opens().iter().map(|(id, open)| (*id, open.clone())).collect();
        for (id, waiting) in all {
            self.wait_for(id, waiting);
        }
    }

    /// Opens a name in a directory, or makes the file if the call says so and the rules
    /// permit it. Fails with `EAGAIN` if other processes keep making and removing it, and
    /// with `ELOOP` for a link.
    fn open_name(&mut self, at: CallPlace, request: &OpenRequest) -> Result<OpenState, Errno> {
        let at = self.name(at, Errno::INVAL)?;
        // A trailing slash would make the kernel follow a link.
        let bare = at.leaf.strip_suffix(b"/").unwrap_or(&at.leaf);
        let hold = if bare == at.leaf { HOLD } else { HOLD | OFlags::DIRECTORY };
        let exclusive = request.has(libc::O_CREAT | libc::O_EXCL);
        // The kernel reports an existing name when the monitor makes the file.
        if exclusive && let Ok(_turn) = self.may_make(&at, request) {
            return self.make(&at, request).map(OpenState::Done);
        }
        for _ in 0..MAX_OPEN_TRIES {
            let held = openat(&at.dir, bare, hold | OFlags::NOFOLLOW, Mode::empty());
            match held {
                Ok(_) if exclusive => return Err(Errno::EXIST),
                Ok(object) => {
                    // A link has replaced the file since the outer thread looked at it.
                    let meta = fstat(&object)?;
                    if FileType::from_raw_mode(meta.st_mode) == FileType::Symlink {
                        return Err(Errno::LOOP);
                    }
                    return self.open_found(&at.path, object, &meta, request);
                }
                Err(Errno::NOENT) if request.has(libc::O_CREAT) => {
                    let _turn = self.may_make(&at, request)?;
                    match self.make(&at, request) {
                        Err(Errno::EXIST) => {}
                        made => return made.map(OpenState::Done),
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(Errno::AGAIN)
    }

    /// Refuses a file that the command may not make. The caller of this function makes the
    /// file before it drops the turn.
    fn may_make(&self, at: &HeldName, request: &OpenRequest) -> Result<Option<LockTurn>, Errno> {
        if request.mode & (SET_ID | libc::S_ISVTX) != 0 {
            return Err(Errno::PERM);
        }
        let needs = FileCaps::CREATE.union(request.needs());
        self.check_making(&at.path, needs, FileCaps::CREATE)?;
        if at.leaf.ends_with(b"/") {
            return Err(Errno::ISDIR);
        }
        self.completes_no_repository(at)
    }

    /// Makes a file with `O_EXCL`, so that it is certainly new.
    fn make(&mut self, at: &HeldName, request: &OpenRequest) -> Result<OwnedFd, Errno> {
        self.quota.check()?;
        if self.is_common(&at.path) {
            return self.make_common(at, request.umask, request.mode);
        }
        umask(Mode::from_raw_mode(request.umask));
        let flags = request.open_flags() | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = openat(&at.dir, &at.leaf, flags, Mode::from_raw_mode(request.mode))?;
        self.quota.made_one();
        if self.watch.rights.kept(&at.path, FileCaps::WRITE, &self.links).is_some() {
            self.fresh.file(&at.path);
        }
        Ok(file)
    }

    /// Opens an object again that the caller already holds. The caller's own standard
    /// streams, with no more access than given, and objects without a path are opened without
    /// a look at the rules.
    fn open_object(&mut self, object: OwnedFd, request: &OpenRequest) -> Result<OpenState, Errno> {
        let meta = fstat(&object)?;
        let this = identity(&meta);
        let own =
            self.stdio.iter().any(|(known, given)| *known == this && request.is_within(*given));
        match real(&self.shared.held, &object)? {
            Some(path) if !own => self.open_found(&path, object, &meta, request),
            _ => self.open_checked(object, &meta, request),
        }
    }

    /// Opens an existing file or directory if the rules permit the access; a kept script is
    /// opened as a draft. Makes a file without a name for `O_TMPFILE`. Refuses device nodes
    /// outside /dev.
    fn open_found(
        &self,
        path: &Path,
        object: OwnedFd,
        meta: &Stat,
        request: &OpenRequest,
    ) -> Result<OpenState, Errno> {
        if request.has(libc::O_TMPFILE) {
            // `O_TMPFILE`: a file without a name, in a directory.
            if request.mode & (SET_ID | libc::S_ISVTX) != 0 {
                return Err(Errno::PERM);
            }
            let needs = FileCaps::CREATE.union(request.needs());
            self.check(&path.join("unnamed"), needs)?;
            umask(Mode::from_raw_mode(request.umask));
            let (flags, mode) = (request.open_flags(), Mode::from_raw_mode(request.mode));
            let made = openat(&self.shared.held, itself(&object), flags, mode);
            return made.map(OpenState::Done);
        }
        if request.only_reads()
            && let Some(text) = self.watch.masks.get(path)
        {
            return self.open_masked(text, request).map(OpenState::Done);
        }
        if let Err(refusal) = self.check(path, request.needs()) {
            let draft = self.draft_of_script(path, &object, meta, request);
            return draft.map(OpenState::Done).ok_or(refusal);
        }
        // In the watched tier no `nodev` mount disables device nodes.
        let device = [FileType::CharacterDevice, FileType::BlockDevice];
        if device.contains(&FileType::from_raw_mode(meta.st_mode)) && !path.starts_with("/dev") {
            return Err(Errno::ACCESS);
        }
        self.open_checked(object, meta, request)
    }

    /// A file in memory with the text of a masked copy, open for reading alone. It cannot be
    /// changed, not even under its name in /proc, and not be executed.
    fn open_masked(&self, text: &[u8], request: &OpenRequest) -> Result<OwnedFd, Errno> {
        if request.has(libc::O_DIRECTORY) {
            return Err(Errno::NOTDIR);
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("masked", flags)?;
        let mut rest = text;
        while !rest.is_empty() {
            let written = rustix::io::write(&file, rest)?;
            rest = rest.get(written..).unwrap_or_default();
        }
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&file, seals)?;
        openat(&self.shared.held, itself(&file), request.open_flags(), Mode::empty())
    }

    /// Opens an object that the rules permit. An object whose opening may block, for example
    /// a pipe, is left to another thread. Refuses /dev/tty of another session.
    fn open_checked(
        &self,
        object: OwnedFd,
        meta: &Stat,
        request: &OpenRequest,
    ) -> Result<OpenState, Errno> {
        let device = (libc::major(meta.st_rdev), libc::minor(meta.st_rdev));
        match FileType::from_raw_mode(meta.st_mode) {
            FileType::RegularFile => return self.open_regular(object, request),
            FileType::Directory => {}
            FileType::CharacterDevice if device.0 == MEMORY_DEVICES => {
                return reopen(&self.shared, &object, request).map(OpenState::Device);
            }
            // The monitor's controlling terminal is the caller's only if both are in the
            // same session.
            FileType::CharacterDevice
                if device == OWN_TERMINAL && !shares_terminal(request.caller) =>
            {
                return Err(Errno::NXIO);
            }
            _ => return Ok(OpenState::MayBlock(object)),
        }
        reopen(&self.shared, &object, request).map(OpenState::Done)
    }

    /// Opens a regular file without waiting. If another process holds a lease on it, a
    /// thread of its own waits.
    fn open_regular(&self, object: OwnedFd, request: &OpenRequest) -> Result<OpenState, Errno> {
        let flags = request.open_flags() | OFlags::NONBLOCK;
        match openat(&self.shared.held, itself(&object), flags, Mode::empty()) {
            Err(Errno::AGAIN) if !request.has(libc::O_NONBLOCK) => Ok(OpenState::MayBlock(object)),
            opened => {
                let file = opened?;
                if !request.has(libc::O_NONBLOCK) {
                    let kept = OFlags::APPEND | OFlags::DIRECT | OFlags::NOATIME;
                    fcntl_setfl(&file, flags & kept)?;
                }
                Ok(OpenState::Done(file))
            }
        }
    }
}

/// The state of an open.
enum OpenState {
    Done(OwnedFd),
    /// The file is open and cannot be executed.
    Device(OwnedFd),
    /// The monitor has judged the file and holds it. Opening it may wait until another
    /// process opens the other end.
    MayBlock(OwnedFd),
}

/// The arguments of an open.
#[derive(Debug)]
pub(super) struct OpenRequest {
    pub(super) flags: i32,
    pub(super) mode: u32,
    pub(super) umask: u32,
    /// The calling thread.
    pub(super) caller: i32,
    pub(super) reads: bool,
}

impl OpenRequest {
    fn has(&self, flags: i32) -> bool {
        self.flags & flags == flags
    }

    fn writes(&self) -> bool {
        self.flags & (libc::O_ACCMODE | libc::O_TRUNC | libc::O_CREAT) != 0
    }

    fn only_reads(&self) -> bool {
        !self.writes() && self.flags & libc::O_PATH == 0
    }

    /// True if the program writes the whole file, and the descriptor stays its own.
    pub(super) fn writes_anew(&self) -> bool {
        self.flags & libc::O_ACCMODE == libc::O_WRONLY
            && self.has(libc::O_TRUNC | libc::O_CLOEXEC)
            && !self.has(libc::O_APPEND)
    }

    /// True if a descriptor with the access `given` already permits this open.
    fn is_within(&self, given: OFlags) -> bool {
        given == OFlags::RDWR
            || OFlags::from_bits_retain(self.flags.cast_unsigned()) & OFlags::RWMODE == given
                && (given == OFlags::WRONLY || !self.has(libc::O_TRUNC))
    }

    /// The rights that the open needs. Reading counts only if reads are watched.
    fn needs(&self) -> FileCaps {
        let (reads, writes) = match self.flags & libc::O_ACCMODE {
            libc::O_RDONLY => (true, false),
            libc::O_WRONLY => (false, true),
            _ => (true, true),
        };
        let mut needs = FileCaps::NONE;
        // Without watched reads, the kernel alone enforces the rules about reading.
        if reads && self.reads {
            needs = needs.union(FileCaps::READ);
        }
        if writes || self.has(libc::O_TRUNC) {
            needs = needs.union(FileCaps::WRITE);
        }
        needs
    }

    /// The flags that remain when the name has been resolved.
    fn open_flags(&self) -> OFlags {
        let settled = libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let flags = (self.flags & !settled).cast_unsigned();
        // The monitor's threads never take a controlling terminal.
        OFlags::from_bits_retain(flags) | OFlags::CLOEXEC | OFlags::NOCTTY
    }
}

const HOLD: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Opens a held object again, with the caller's flags.
fn reopen(
    shared: &MonitorState,
    object: &OwnedFd,
    request: &OpenRequest,
) -> Result<OwnedFd, Errno> {
    openat(&shared.held, itself(object), request.open_flags(), Mode::empty())
}

/// Installs the descriptor and answers in one call, so that the kernel wakes the caller
/// once.
fn give_at_once(shared: &MonitorState, id: u64, file: &OwnedFd, request: &OpenRequest) {
    if let Err(error) = sys::answer_with(&shared.listener, id, file, request.has(libc::O_CLOEXEC)) {
        shared.refuse(id, error);
    }
}

/// Hands over a file. The monitor closes its own descriptor before the caller continues if
/// the file is open for writing. The caller may want to execute the file, and the kernel
/// refuses that (`ETXTBSY`) while any process has it open for writing.
fn give(shared: &MonitorState, id: u64, file: OwnedFd, request: &OpenRequest) {
    if !request.writes() {
        return give_at_once(shared, id, &file, request);
    }
    let given = sys::give(&shared.listener, id, &file, request.has(libc::O_CLOEXEC));
    drop(file);
    match given {
        Ok(number) => sys::answer(&shared.listener, id, i64::from(number)),
        Err(error) => shared.refuse(id, error),
    }
}
