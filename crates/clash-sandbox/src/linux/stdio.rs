//! Standard input and the terminal settings of a command.
//!
//! With a descriptor that is open only for reading, a command could still change the file:
//! `fchmod`, `futimens`. In a room the launcher opens the file again through a read-only
//! mount. It keeps the file position, and sets it back afterwards: a script that goes on
//! reading its input then continues where the command stopped.
//!
//! When the command ends, the launcher restores the terminal settings.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, SeekFrom, fcntl_getfl, fstat, open, seek};
use rustix::stdio::{dup2_stdin, stdin};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use super::mounts;

/// State to restore when the command has ended.
#[derive(Debug)]
pub(crate) struct InheritedStdio {
    input: Option<OwnedFd>,
    terminal: Option<Termios>,
    /// Files of the host, each with the path of the file that the command writes.
    returned: Vec<(PathBuf, OwnedFd)>,
}

impl InheritedStdio {
    /// Without a room. Opens the file again only if it is also open for writing.
    pub(crate) fn guard_roomless() -> Self {
        let again = |flags: OFlags| {
            is_writable_input().then(|| open("/proc/self/fd/0", flags, Mode::empty()).ok())?
        };
        Self { terminal: None, input: read_only_input(again), returned: Vec::new() }
    }

    /// Call this in the room's mount namespace, before its root is entered.
    pub(crate) fn guard(returned: &[PathBuf]) -> Self {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let host = |path: &PathBuf| Some((path.clone(), open(path, flags, Mode::empty()).ok()?));
        let returned = returned.iter().filter_map(host).collect();
        let again = |flags: OFlags| {
            let name = std::fs::read_link("/proc/self/fd/0").ok()?;
            let tree = mounts::read_only(&name).ok();
            // The file has no name. Without a mount, it can at least not be written.
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

/// A returned file contains one path, so no more than this is copied.
const MAX_RETURNED_BYTES: usize = 8 << 10;

/// Copies a small file of the room to the host's file, and removes it.
fn give_back(path: &Path, host: &OwnedFd) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let own = open(path, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&own)?.st_mode) == FileType::RegularFile {
        let mut content = vec![0; MAX_RETURNED_BYTES];
        let length = rustix::io::read(&own, &mut content)?;
        rustix::io::write(host, content.get(..length).unwrap_or_default())?;
    }
    rustix::fs::unlink(path)
}

/// Replaces a file on standard input. A file that is no longer found under its name stays
/// as it is.
fn read_only_input(again: impl FnOnce(OFlags) -> Option<OwnedFd>) -> Option<OwnedFd> {
    let (meta, flags) = (fstat(stdin()).ok()?, fcntl_getfl(stdin()).ok()?);
    let file = FileType::from_raw_mode(meta.st_mode) == FileType::RegularFile;
    if !file || flags & OFlags::RWMODE == OFlags::WRONLY || flags.contains(OFlags::PATH) {
        return None;
    }
    // A file that is also open for writing is opened only for reading.
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
