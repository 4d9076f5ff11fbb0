//! What a command inherits besides its rights: standard input and the terminal.
//!
//! A file that somebody hands over for reading can be changed through its
//! descriptor all the same: `fchmod`, `futimens`. In a room the same file is
//! opened once more through a read-only mount. The position in it is taken over
//! before and given back afterwards, so that a script which goes on reading its
//! input goes on where the command stopped.
//!
//! The settings of a terminal are put back as they were when the command ends.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, SeekFrom, fcntl_getfl, fstat, open, seek};
use rustix::stdio::{dup2_stdin, stdin};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use super::mounts;

/// What to put back when the command has ended.
#[derive(Debug)]
pub(crate) struct Inherited {
    input: Option<OwnedFd>,
    terminal: Option<Termios>,
    /// Files of the host, each with the name of the one that the command writes.
    returned: Vec<(PathBuf, OwnedFd)>,
}

impl Inherited {
    /// Without a room: only a file that is open for writing too is opened again, through
    /// the descriptor.
    pub(crate) fn guard_roomless() -> Self {
        let again = |flags: OFlags| {
            is_writable_input().then(|| open("/proc/self/fd/0", flags, Mode::empty()).ok())?
        };
        Self { terminal: None, input: read_only_input(again), returned: Vec::new() }
    }

    /// To be called in the room's mount namespace, before its view is entered.
    pub(crate) fn guard(returned: &[PathBuf]) -> Self {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let host = |path: &PathBuf| Some((path.clone(), open(path, flags, Mode::empty()).ok()?));
        let returned = returned.iter().filter_map(host).collect();
        let again = |flags: OFlags| {
            let name = std::fs::read_link("/proc/self/fd/0").ok()?;
            let tree = mounts::read_only(&name).ok();
            // A file without a name: without a mount it can at least not be written.
            let at = tree.as_ref().map_or(0, std::os::fd::AsRawFd::as_raw_fd);
            open(format!("/proc/self/fd/{at}"), flags, Mode::empty()).ok()
        };
        Self { terminal: tcgetattr(stdin()).ok(), input: read_only_input(again), returned }
    }

    pub(crate) fn put_back(&self) {
        if let Some(before) = &self.terminal {
            let _ = tcsetattr(stdin(), OptionalActions::Now, before);
        }
        if let Some(input) = &self.input
            && let Ok(at) = seek(stdin(), SeekFrom::Current(0))
        {
            let _ = seek(input, SeekFrom::Start(at));
        }
        for (path, host) in &self.returned {
            let _ = give_back(path, host);
        }
    }
}

/// True if standard input is a file that is open for reading and writing.
pub(crate) fn is_writable_input() -> bool {
    let (Ok(meta), Ok(flags)) = (fstat(stdin()), fcntl_getfl(stdin())) else { return false };
    FileType::from_raw_mode(meta.st_mode) == FileType::RegularFile
        && flags & OFlags::RWMODE == OFlags::RDWR
}

/// No more of a returned file is copied: it holds one path.
const MOST_RETURNED: usize = 8 << 10;

/// Copies a small file of the room to the host's, and removes it.
fn give_back(path: &Path, host: &OwnedFd) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let own = open(path, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&own)?.st_mode) == FileType::RegularFile {
        let mut content = vec![0; MOST_RETURNED];
        let length = rustix::io::read(&own, &mut content)?;
        rustix::io::write(host, content.get(..length).unwrap_or_default())?;
    }
    rustix::fs::unlink(path)
}

/// Replaces a file on standard input. What cannot
/// be found under its name any more is left as it is.
fn read_only_input(again: impl FnOnce(OFlags) -> Option<OwnedFd>) -> Option<OwnedFd> {
    let (meta, flags) = (fstat(stdin()).ok()?, fcntl_getfl(stdin()).ok()?);
    let file = FileType::from_raw_mode(meta.st_mode) == FileType::RegularFile;
    if !file || flags & OFlags::RWMODE == OFlags::WRONLY || flags.contains(OFlags::PATH) {
        return None;
    }
    // One that is open for writing too is given for reading.
    let flags = (flags & !OFlags::RWMODE) | OFlags::RDONLY;
    let again = again((flags & !OFlags::CREATE) | OFlags::CLOEXEC)?;
    let same = fstat(&again).ok()?;
    if (same.st_dev, same.st_ino) != (meta.st_dev, meta.st_ino) {
        return None;
    }
    let at = seek(stdin(), SeekFrom::Current(0)).ok()?;
    seek(&again, SeekFrom::Start(at)).ok()?;
    let before = rustix::io::fcntl_dupfd_cloexec(stdin(), 3).ok()?;
    dup2_stdin(&again).ok()?;
    Some(before)
}
