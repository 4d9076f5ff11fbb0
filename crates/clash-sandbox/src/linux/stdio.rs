//! Standard input and the terminal settings of a command.
//!
//! With a descriptor that is open only for reading, a command could still change the file:
//! `fchmod`, `futimens`. In a room the launcher opens the file again through a read-only
//! mount. It keeps the file position, and sets it back afterwards: a script that goes on
//! reading its input then continues where the command stopped.
//!
//! When the command ends, the launcher restores the terminal settings.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, SeekFrom, fcntl_getfl, fstat, open, seek};
use rustix::stdio::{dup2_stdin, stderr, stdin, stdout};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcsetattr};

use super::mounts;

/// The device number of /dev/null, /dev/zero and their like.
const MEMORY_DEVICES: u32 = 1;

/// The launcher's standard streams. The launcher asks the kernel once about each, because
/// every launch pays for these calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandardStreams([Option<StreamFacts>; 3]);

/// The kernel's answers about one stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamFacts {
    pub(crate) fd: BorrowedFd<'static>,
    pub(crate) kind: FileType,
    pub(crate) flags: OFlags,
    device_major: u32,
}

impl StreamFacts {
    /// `None` if the stream is closed.
    fn read(fd: BorrowedFd<'static>) -> Option<Self> {
        let (meta, flags) = (fstat(fd).ok()?, fcntl_getfl(fd).ok()?);
        let kind = FileType::from_raw_mode(meta.st_mode);
        Some(Self { fd, kind, flags, device_major: libc::major(meta.st_rdev) })
    }

    /// The access mode: read, write or both.
    pub(crate) fn mode(&self) -> OFlags {
        self.flags & OFlags::RWMODE
    }

    /// True for a terminal. /dev/null and its like are told apart without a further call.
    fn is_terminal(&self) -> bool {
        self.kind == FileType::CharacterDevice
            && self.device_major != MEMORY_DEVICES
            && isatty(self.fd)
    }
}

impl StandardStreams {
    /// Asks the kernel about the three streams.
    pub(crate) fn examine() -> Self {
        Self([stdin(), stdout(), stderr()].map(StreamFacts::read))
    }

    /// Standard input, output and error. `None` for a stream that is closed.
    pub(crate) fn facts(&self) -> [Option<StreamFacts>; 3] {
        self.0
    }

    /// For each stream, whether it is a terminal.
    pub(crate) fn terminals(&self) -> [bool; 3] {
        self.0.map(|stream| stream.is_some_and(|stream| stream.is_terminal()))
    }

    /// True if standard input is a file that is open for reading and writing.
    pub(crate) fn has_writable_input(&self) -> bool {
        self.input_file().is_some_and(|input| input.mode() == OFlags::RDWR)
    }

    fn input_file(&self) -> Option<StreamFacts> {
        let [input, ..] = self.0;
        input.filter(|input| input.kind == FileType::RegularFile)
    }
}

/// State to restore when the command has ended.
#[derive(Debug)]
pub(crate) struct InheritedStdio {
    input: Option<OwnedFd>,
    terminal: Option<Termios>,
    /// Files of the host, each with the path of the file that the command writes.
    returned: Vec<(PathBuf, OwnedFd)>,
}

impl InheritedStdio {
    /// Nothing to restore.
    pub(crate) fn none() -> Self {
        Self { input: None, terminal: None, returned: Vec::new() }
    }

    /// Without a room: opens the input file again for reading only, if it is also open for
    /// writing. Remembers no terminal settings.
    pub(crate) fn guard_roomless(streams: &StandardStreams) -> Self {
        let writable = streams.has_writable_input();
        let again =
            |flags: OFlags| writable.then(|| open("/proc/self/fd/0", flags, Mode::empty()).ok())?;
        Self { terminal: None, input: read_only_input(streams, again), returned: Vec::new() }
    }

    /// With a room: opens the input file again through a read-only mount, remembers the
    /// terminal settings of standard input, and opens the files that get their content back.
    /// Call this in the room's mount namespace, before its root is entered.
    pub(crate) fn guard(returned: &[PathBuf], streams: &StandardStreams) -> Self {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let host = |path: &PathBuf| Some((path.clone(), open(path, flags, Mode::empty()).ok()?));
        let returned = returned.iter().filter_map(host).collect();
        let again = |flags: OFlags| {
            let name = std::fs::read_link("/proc/self/fd/0").ok()?;
            let tree = mounts::copy_read_only(&name).ok();
            // The file has no name. Without a mount, it can at least not be written.
            let at = tree.as_ref().map_or(0, AsRawFd::as_raw_fd);
            open(format!("/proc/self/fd/{at}"), flags, Mode::empty()).ok()
        };
        let [on_terminal, ..] = streams.terminals();
        let terminal = if on_terminal { tcgetattr(stdin()).ok() } else { None };
        Self { terminal, input: read_only_input(streams, again), returned }
    }

    /// The numbers of the files that this value holds.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let returned = self.returned.iter().map(|(_, file)| file);
        self.input.iter().chain(returned).map(AsRawFd::as_raw_fd)
    }

    /// Restores the terminal's settings and the position in the input file, and gives returned
    /// files their content. Errors are ignored.
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
            let _ = return_content(path, host);
        }
    }
}

/// A returned file contains one path, so no more than this is copied.
const MAX_RETURNED_BYTES: usize = 8 << 10;

/// Copies at most [`MAX_RETURNED_BYTES`] of the room's file to the host's file, and removes
/// the room's file. Only a regular file is copied.
fn return_content(path: &Path, host: &OwnedFd) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let own = open(path, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&own)?.st_mode) == FileType::RegularFile {
        let mut content = vec![0; MAX_RETURNED_BYTES];
        let length = rustix::io::read(&own, &mut content)?;
        rustix::io::write(host, content.get(..length).unwrap_or_default())?;
    }
    rustix::fs::unlink(path)
}

/// Replaces a file on standard input by the one that `again` opens, at the same position, and
/// returns the original. `None`, and nothing changes, if the input is no file, is open only
/// for writing, or `again` finds another file.
fn read_only_input(
    streams: &StandardStreams,
    again: impl FnOnce(OFlags) -> Option<OwnedFd>,
) -> Option<OwnedFd> {
    let input = streams.input_file()?;
    let flags = input.flags;
    if input.mode() == OFlags::WRONLY || flags.contains(OFlags::PATH) {
        return None;
    }
    let meta = fstat(stdin()).ok()?;
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
