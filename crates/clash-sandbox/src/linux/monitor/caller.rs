//! The calling process, as the monitor sees it from outside: memory, working directory and
//! descriptors. The monitor reads each of them once.

use std::cell::Cell;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::super::sys::{self, SeccompNotice};
use super::MonitorState;
use super::known::KnownCaller;
use super::place::{self, CallPlace};
use crate::plan::ProcView;

const HOLD: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const MAX_PATH_BYTES: usize = libc::PATH_MAX as usize;
const PAGE_BYTES: u64 = 4096;
/// Process trees of real programs are never this deep.
const MAX_GENERATIONS: usize = 200;
/// The pidfd of one thread, Linux 6.9.
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL.cast_unsigned());

#[derive(Debug)]
pub(super) struct CallingProcess<'a> {
    shared: &'a MonitorState,
    /// The number of the calling thread in the launcher's process namespace.
    pub(super) pid: i32,
    known: Option<Arc<KnownCaller>>,
    /// True if a look into the remembered `/proc` directory has shown that the caller lives.
    lives: Cell<bool>,
    notice: Option<u64>,
}

impl<'a> CallingProcess<'a> {
    pub(super) fn new(shared: &'a MonitorState, pid: i32) -> Self {
        let known = shared.known.caller(&shared.processes, pid);
        Self { shared, pid, known, lives: Cell::new(false), notice: None }
    }

    /// As `new`, for a call that waits for its answer.
    pub(super) fn of_notice(shared: &'a MonitorState, notice: &SeccompNotice) -> Self {
        let mut caller = Self::new(shared, notice.pid);
        caller.notice = Some(notice.id);
        caller
    }

    /// A copy of a descriptor of the caller. It is the caller's own: the pidfd belongs to
    /// one process, and that process had this number while the call waited.
    pub(super) fn same_descriptor(&self, fd: i32) -> Option<OwnedFd> {
        let known = self.known.as_ref()?;
        let process = match known.process.get() {
            Some(process) => process,
            None => {
                let process = pidfd_open(Pid::from_raw(self.pid)?, PIDFD_THREAD).ok()?;
                if !sys::is_valid(&self.shared.listener, self.notice?) {
                    return None;
                }
                known.process.get_or_init(|| process)
            }
        };
        let copy = pidfd_getfd(process, fd, PidfdGetfdFlags::empty());
        if matches!(copy, Err(Errno::SRCH)) {
            self.shared.known.forget(self.pid);
        }
        copy.ok()
    }

    /// True if a name in the caller's `/proc` is the caller's own process. In a room the
    /// caller's `/proc` has other process numbers, so nothing can be compared there.
    pub(super) fn is_named(&self, name: &[u8]) -> bool {
        let number = !name.is_empty() && name.iter().all(u8::is_ascii_digit);
        let Ok(name) = std::str::from_utf8(name) else { return false };
        self.shared.of != ProcView::OfTheRoom
            && number
            && statat(&self.shared.processes, format!("{}/task/{name}", self.pid), AtFlags::empty())
                .is_ok()
    }

    /// The path of a `/proc` directory below the caller's own process, if it is there.
    pub(super) fn place_below(&self, dir: &OwnedFd) -> Option<String> {
        if self.shared.of == ProcView::OfTheRoom || !shows_processes(dir) {
            return None;
        }
        let path = place::real(&self.shared.held, dir).ok()??;
        let below = path.strip_prefix("/proc").ok()?.to_str()?;
        let (process, below) = below.split_once('/').unwrap_or((below, ""));
        self.is_named(process.as_bytes()).then(|| below.to_owned())
    }

    /// Opens a status file of another process of the sandbox, for example `/proc/12/stat`.
    /// `None` for every other file.
    pub(super) fn of_another(&self, dir: &OwnedFd, name: &[u8]) -> Option<Result<OwnedFd, Errno>> {
        const SHOWN: [&[u8]; 5] = [b"stat", b"statm", b"status", b"comm", b"cmdline"];
        if self.shared.of == ProcView::OfTheRoom || !SHOWN.contains(&name) || !shows_processes(dir)
        {
            return None;
        }
        let path = place::real(&self.shared.held, dir).ok()??;
        let process = path.strip_prefix("/proc").ok()?.to_str()?;
        if !self.started_by_launcher(process.parse().ok()?) {
            return None;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Some(openat(dir, name, flags, Mode::empty()))
    }

    /// True if a process belongs to the sandbox.
    pub(super) fn sees(&self, process: i32) -> bool {
        process == self.pid
            || self.is_named(process.to_string().as_bytes())
            || self.started_by_launcher(process)
    }

    /// True if a process descends from the launcher, or from the guard if the launcher has
    /// ended. An orphan does too: it becomes a child of the guard.
    fn started_by_launcher(&self, mut process: i32) -> bool {
        for _ in 0..MAX_GENERATIONS {
            let Some(parent) = self.parent_of(process) else { return false };
            if parent == self.shared.ancestor.load(Ordering::Relaxed) {
                return true;
            }
            process = parent;
        }
        false
    }

    /// The parent of the calling process.
    pub(super) fn parent(&self) -> Option<i32> {
        self.parent_of(self.pid)
    }

    /// The parent of a process; `None` if it has ended or has none but the init process.
    fn parent_of(&self, process: i32) -> Option<i32> {
        let mut stat = String::with_capacity(512);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file =
            openat(&self.shared.processes, format!("{process}/stat"), flags, Mode::empty()).ok()?;
        std::fs::File::from(file).read_to_string(&mut stat).ok()?;
        // The process name in parentheses may contain any character, also `)`.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok().filter(|pid| *pid > 1)
    }

    /// True if the caller may see an entry below its own process. `net` shows the host's
    /// network, which the caller sees only if the plan allows the network.
    fn may_see(&self, below: &str) -> bool {
        let net = |name: &str| name == "net" || name == "net_prio";
        self.shared.of != (ProcView::OfTheHost { net: false }) || !below.split('/').any(net)
    }

    /// The text at an address, up to the NUL byte. `ENAMETOOLONG` from [`MAX_PATH_BYTES`] on,
    /// `EFAULT` for memory that cannot be read.
    pub(super) fn text(&self, at: u64) -> Result<Vec<u8>, Errno> {
        let mut text = Vec::with_capacity(128);
        let mut page = [0_u8; PAGE_BYTES as usize];
        let mut from = at;
        loop {
            // Reads at most to the end of the page: the next page may not be mapped.
            let left = (PAGE_BYTES - from % PAGE_BYTES) as usize;
            let piece = page.get_mut(..left).ok_or(Errno::FAULT)?;
            let read = sys::read_memory(self.pid, from, piece)?;
            let piece = page.get(..read).filter(|piece| !piece.is_empty()).ok_or(Errno::FAULT)?;
            match piece.iter().position(|byte| *byte == 0) {
                Some(end) => text.extend_from_slice(piece.get(..end).unwrap_or_default()),
                None => text.extend_from_slice(piece),
            }
            if text.len() >= MAX_PATH_BYTES {
                return Err(Errno::NAMETOOLONG);
            }
            if piece.contains(&0) {
                return Ok(text);
            }
            from = from.checked_add(read as u64).ok_or(Errno::FAULT)?;
        }
    }

    /// The bytes at an address.
    pub(super) fn bytes(&self, at: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; length];
        if length > 0 && sys::read_memory(self.pid, at, &mut bytes)? != length {
            return Err(Errno::FAULT);
        }
        Ok(bytes)
    }

    /// `N` 64-bit numbers at an address.
    pub(super) fn words<const N: usize>(&self, at: u64) -> Result<[i64; N], Errno> {
        let mut words = [0; N];
        let mut bytes = [[0_u8; 8]; N];
        let all = bytes.as_flattened_mut();
        if sys::read_memory(self.pid, at, all)? != all.len() {
            return Err(Errno::FAULT);
        }
        for (word, bytes) in words.iter_mut().zip(bytes) {
            *word = i64::from_ne_bytes(bytes);
        }
        Ok(words)
    }

    /// The caller's working directory or one of its descriptors, held with `O_PATH`.
    pub(super) fn directory(&self, dir: i32) -> Result<OwnedFd, Errno> {
        let name = match dir {
            libc::AT_FDCWD => "cwd".to_owned(),
            fd if fd >= 0 => format!("fd/{fd}"),
            _ => return Err(Errno::BADF),
        };
        self.link(&name).map_err(|error| if error == Errno::NOENT { Errno::BADF } else { error })
    }

    /// A copy of one of the caller's descriptors, which shares its open file.
    pub(super) fn descriptor(&self, fd: i32) -> Result<OwnedFd, Errno> {
        let process = self.status("Tgid:")?.parse().ok().and_then(Pid::from_raw);
        let process = pidfd_open(process.ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
        pidfd_getfd(process, fd, PidfdGetfdFlags::empty())
    }

    /// The target of a magic link below the caller's process, for example `cwd` or `fd/3`.
    pub(super) fn link(&self, name: &str) -> Result<OwnedFd, Errno> {
        self.open_below(name, HOLD)
    }

    /// Opens an entry of the caller's directory in /proc; an empty name is the directory
    /// itself. Uses the directory that is held open if the caller is known, and otherwise, or
    /// if that fails, looks the process up by its number. Then the number may name a new
    /// process.
    fn open_below(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        if let Some(known) = &self.known
            && !name.is_empty()
        {
            match openat(&known.dir, name, flags, Mode::empty()) {
                Ok(file) => {
                    self.lives.set(true);
                    return Ok(file);
                }
                Err(_) => self.shared.known.forget(self.pid),
            }
        }
        openat(&self.shared.processes, format!("{}/{name}", self.pid), flags, Mode::empty())
    }

    /// Opens a file below the caller's process for reading. The last name may not be a
    /// link.
    pub(super) fn file(&self, name: &str) -> Result<OwnedFd, Errno> {
        if !self.may_see(name) {
            return Err(Errno::ACCESS);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = self.open_below(name, flags);
        // `O_NOFOLLOW` met a magic link to something other than a file, for example a
        // namespace.
        opened.map_err(|error| if error == Errno::LOOP { Errno::ACCESS } else { error })
    }

    /// An entry below the caller's process, held with `O_PATH`. The entry may be a link.
    pub(super) fn entry(&self, name: &str) -> Result<OwnedFd, Errno> {
        if !self.may_see(name) {
            return Err(Errno::ACCESS);
        }
        self.open_below(name, HOLD | OFlags::NOFOLLOW)
    }

    /// The caller's own directory in `/proc`. In a room this is the launcher's view of it,
    /// which differs from the caller's, so the monitor does not hand it out.
    pub(super) fn itself(&self) -> Result<CallPlace, Errno> {
        match self.shared.of {
            ProcView::OfTheRoom => self.link("").map(CallPlace::Object),
            ProcView::OfTheHost { .. } => self.file("").map(CallPlace::Opened),
        }
    }

    /// The number of the calling thread.
    pub(super) fn number(&self) -> i32 {
        self.pid
    }

    /// The directory `/proc/self/fd` of the monitor.
    pub(super) fn held(&self) -> &'a OwnedFd {
        &self.shared.held
    }

    /// The caller's umask, remembered from an earlier call if the process is still the same.
    pub(super) fn umask(&self) -> Result<u32, Errno> {
        if let Some(umask) = self.known.as_ref().and_then(|known| known.umask())
            && self.is_still_there()
        {
            return Ok(umask);
        }
        let umask = u32::from_str_radix(&self.status("Umask:")?, 8).map_err(|_| Errno::IO)?;
        if let Some(known) = &self.known
            && self.lives.get()
        {
            self.shared.known.remember_umask(known, umask);
        }
        Ok(umask)
    }

    /// True if the remembered process still lives, and so is the caller.
    fn is_still_there(&self) -> bool {
        let looks = |known: &Arc<KnownCaller>| statat(&known.dir, "comm", AtFlags::empty()).is_ok();
        self.lives.get() || self.known.as_ref().is_some_and(looks)
    }

    /// One field of the caller's `/proc/PID/status`, among the first 512 bytes. `EIO` if it
    /// is not there.
    pub(super) fn status(&self, line: &str) -> Result<String, Errno> {
        // The fields that the monitor needs are in the first 512 bytes.
        let mut status = [0; 512];
        let length = rustix::io::read(self.file("status")?, &mut status)?;
        let mut lines = status.get(..length).unwrap_or_default().split(|byte| *byte == b'\n');
        let value = lines.find_map(|known| known.strip_prefix(line.as_bytes()));
        let value = value.and_then(|value| std::str::from_utf8(value).ok());
        value.map(|value| value.trim().to_owned()).ok_or(Errno::IO)
    }

    pub(super) fn file_size_limit(&self) -> Result<Option<u64>, Errno> {
        sys::file_size_limit(self.pid)
    }
}

/// True if a process is in the launcher's session and so has the same controlling terminal.
pub(super) fn shares_terminal(pid: i32) -> bool {
    let [own, theirs] = [0, pid].map(|pid| sys::session_of(pid).ok());
    own.is_some() && own == theirs
}

/// True if a directory is in a proc file system.
pub(super) fn shows_processes(dir: impl AsFd) -> bool {
    rustix::fs::fstatfs(dir).is_ok_and(|fs| fs.f_type == libc::PROC_SUPER_MAGIC)
}
