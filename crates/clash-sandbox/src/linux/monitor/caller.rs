//! The process that called, as seen from outside: its memory, its working
//! directory, its descriptors. Everything is looked at once.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use super::super::sys;

const HOLD: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const LONGEST: usize = libc::PATH_MAX as usize;
const PAGE: u64 = 4096;

#[derive(Debug)]
pub(super) struct Caller<'a> {
    processes: &'a OwnedFd,
    /// Of the thread, in the launcher's own process namespace.
    pid: i32,
}

impl<'a> Caller<'a> {
    pub(super) fn new(processes: &'a OwnedFd, pid: i32) -> Self {
        Self { processes, pid }
    }

    /// The text at an address, without its end.
    pub(super) fn text(&self, at: u64) -> Result<Vec<u8>, Errno> {
        let mut text = Vec::with_capacity(128);
        let mut page = [0_u8; PAGE as usize];
        let mut from = at;
        loop {
            // Up to the end of the page: the next one may not be there.
            let left = (PAGE - from % PAGE) as usize;
            let piece = page.get_mut(..left).ok_or(Errno::FAULT)?;
            let read = sys::read_memory(self.pid, from, piece)?;
            let piece = page.get(..read).filter(|piece| !piece.is_empty()).ok_or(Errno::FAULT)?;
            match piece.iter().position(|byte| *byte == 0) {
                Some(end) => text.extend_from_slice(piece.get(..end).unwrap_or_default()),
                None => text.extend_from_slice(piece),
            }
            if text.len() >= LONGEST {
                return Err(Errno::NAMETOOLONG);
            }
            if piece.contains(&0) {
                return Ok(text);
            }
            from = from.checked_add(read as u64).ok_or(Errno::FAULT)?;
        }
    }

    /// Some 64-bit numbers at an address.
    pub(super) fn words<const N: usize>(&self, at: u64) -> Result<[i64; N], Errno> {
        let mut words = [0; N];
        for (index, word) in words.iter_mut().enumerate() {
            let mut bytes = [0_u8; 8];
            let at = at.checked_add(8 * index as u64).ok_or(Errno::FAULT)?;
            if sys::read_memory(self.pid, at, &mut bytes)? != bytes.len() {
                return Err(Errno::FAULT);
            }
            *word = i64::from_ne_bytes(bytes);
        }
        Ok(words)
    }

    /// One of the caller's directories or descriptors, held without any right.
    pub(super) fn directory(&self, dir: i32) -> Result<OwnedFd, Errno> {
        let name = match dir {
            libc::AT_FDCWD => "cwd".to_owned(),
            fd if fd >= 0 => format!("fd/{fd}"),
            _ => return Err(Errno::BADF),
        };
        self.link(&name).map_err(|error| if error == Errno::NOENT { Errno::BADF } else { error })
    }

    /// What a link of the kernel's below the process leads to.
    pub(super) fn link(&self, name: &str) -> Result<OwnedFd, Errno> {
        openat(self.processes, format!("{}/{name}", self.pid), HOLD, Mode::empty())
    }

    /// A file below the process that is no link, for reading.
    pub(super) fn file(&self, name: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(self.processes, format!("{}/{name}", self.pid), flags, Mode::empty())
    }

    /// Which permissions the caller takes from what it makes.
    pub(super) fn umask(&self) -> Result<u32, Errno> {
        let mut status = String::with_capacity(2048);
        let file = self.file("status")?;
        std::fs::File::from(file).read_to_string(&mut status).map_err(|_| Errno::IO)?;
        let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).ok_or(Errno::IO)
    }

    pub(super) fn file_size_limit(&self) -> Result<Option<u64>, Errno> {
        sys::file_size_limit(self.pid)
    }

    /// Whether the caller has the launcher's terminal for its own.
    pub(super) fn shares_terminal(&self) -> bool {
        let [own, theirs] = [0, self.pid].map(|pid| sys::session_of(pid).ok());
        own.is_some() && own == theirs
    }
}

/// Whether a directory shows processes.
pub(super) fn shows_processes(dir: impl AsFd) -> bool {
    rustix::fs::fstatfs(dir).is_ok_and(|fs| fs.f_type == libc::PROC_SUPER_MAGIC)
}
