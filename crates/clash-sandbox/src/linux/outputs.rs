//! Standard output and error that lead to files of the host.
//!
//! With a descriptor of the file, a command could do more than append: read the file,
//! truncate it, overwrite earlier content or change its mode. `O_APPEND` does not help,
//! because `fcntl` can remove it. So the command gets a pipe, and a process outside copies
//! from the pipe to the file. It writes through the caller's own descriptor, so position
//! and order are the same as if the command wrote itself.
//!
//! Sockets are treated the same, except connected unix stream sockets, which many programs
//! use as pipes. Any other socket could be connected or sent to another address, past the
//! sandbox's network.
//!
//! The launcher ends when everything written before is in the file. The copying process
//! stays as long as a process holds the pipe.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use clash_policy::ResourceLimits;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, getpeername, sockopt};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use rustix::stdio::{dup2_stderr, dup2_stdout, stderr, stdout};

use super::stdio::{StandardStreams, StreamFacts};
use super::sys::{self, ForkSide};

const COPY_CHUNK_BYTES: usize = 64 * 1024;

/// Copies the command's output to files of the host.
#[derive(Debug)]
pub(crate) struct OutputCopier {
    pub(crate) relay: Option<Pid>,
    /// The original standard output and error.
    before: [Option<OwnedFd>; 2],
    /// Closed when the command has ended.
    running: Option<OwnedFd>,
    /// The copying process closes the other end when everything is copied.
    copied: OwnedFd,
}

/// True if standard output or error has to be copied.
pub(crate) fn is_needed(streams: &StandardStreams) -> bool {
    let [_, out, err] = streams.facts();
    is_copied(out) || is_copied(err)
}

/// True for a stream that can be written and is a regular file, or a socket other than a
/// connected unix stream socket.
fn is_copied(stream: Option<StreamFacts>) -> bool {
    let Some(stream) = stream else { return false };
    if stream.flags.contains(OFlags::PATH) || stream.mode() == OFlags::RDONLY {
        return false;
    }
    match stream.kind {
        FileType::RegularFile => true,
        FileType::Socket => !is_plain_stream(stream.fd),
        _ => false,
    }
}

/// True for a connected unix stream socket.
fn is_plain_stream(fd: BorrowedFd<'_>) -> bool {
    sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(fd) == Ok(SocketType::STREAM)
        && getpeername(fd).is_ok()
}

/// One pipe, and the file to which its content goes.
struct CopiedStream {
    pipe: OwnedFd,
    file: OwnedFd,
}

impl OutputCopier {
    /// Replaces the streams that have to be copied by pipes, and starts the copying process.
    /// `None` if there are none. One pipe serves both streams if they share a file position.
    /// Call this while the launcher has no other thread.
    pub(crate) fn start(
        limits: &ResourceLimits,
        streams: &StandardStreams,
    ) -> io::Result<Option<Self>> {
        let [_, out, err] = streams.facts();
        let wanted = [is_copied(out), is_copied(err)];
        if wanted == [false, false] {
            return Ok(None);
        }
        let keep = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 3);
        let [out, err] = [stdout(), stderr()];
        let out = wanted[0].then(|| keep(out)).transpose()?;
        let err = wanted[1].then(|| keep(err)).transpose()?;
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        let out_pipe = out.as_ref().map(|_| pipe()).transpose()?;
        let together = out.as_ref().zip(err.as_ref()).is_some_and(|(a, b)| is_same(a, b));
        let err_pipe = err.as_ref().filter(|_| !together).map(|_| pipe()).transpose()?;
        let ((waits, running), (copied, copies)) = (pipe()?, pipe()?);
        let mask = sys::hold_signals()?;
        match sys::fork() {
            Ok(ForkSide::Child) => {
                let (out_read, err_read) = (out_pipe.map(|(r, _)| r), err_pipe.map(|(r, _)| r));
                let streams = [(out_read, out), (err_read, err)];
                let streams = streams
                    .into_iter()
                    .filter_map(|(pipe, file)| Some(CopiedStream { pipe: pipe?, file: file? }));
                copy_until_closed(streams.collect(), waits, copies, limits);
                sys::exit_now(0)
            }
            Ok(ForkSide::Parent(pid)) => {
                let put = || -> rustix::io::Result<()> {
                    if let Some((_, write)) = &out_pipe {
                        dup2_stdout(write)?;
                    }
                    match (&err_pipe, together) {
                        (Some((_, write)), _) => dup2_stderr(write)?,
                        (None, true) => dup2_stderr(stdout())?,
                        (None, false) => {}
                    }
                    Ok(())
                };
                let outputs = Self {
                    relay: Pid::from_raw(pid),
                    before: [out, err],
                    running: Some(running),
                    copied,
                };
                put()?;
                sys::set_mask(&mask).map(|()| Some(outputs))
            }
            Err(error) => sys::set_mask(&mask).and(Err(error)),
        }
    }
}

impl OutputCopier {
    /// The numbers of the launcher's descriptors.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let own = [self.running.as_ref(), Some(&self.copied)].into_iter();
        own.chain(self.before.iter().map(Option::as_ref))
            .flatten()
            .map(AsRawFd::as_raw_fd)
            .collect()
    }
}

impl Drop for OutputCopier {
    /// Restores the original streams and waits until everything is copied.
    fn drop(&mut self) {
        let [out, err] = &self.before;
        let _ = out.as_ref().map(dup2_stdout);
        let _ = err.as_ref().map(dup2_stderr);
        // Other processes may still hold this end of the pipe, so its end is not enough.
        let _ = self.running.take().map(|running| rustix::io::write(running, b"e"));
        let mut byte = [0];
        while let Err(Errno::INTR) = rustix::io::read(&self.copied, &mut byte) {}
    }
}

/// True if two descriptors share one file position, or both append to the same file.
fn is_same(one: &OwnedFd, other: &OwnedFd) -> bool {
    let (Ok(a), Ok(b)) = (fstat(one), fstat(other)) else { return false };
    if (a.st_dev, a.st_ino) != (b.st_dev, b.st_ino) {
        return false;
    }
    let appends = |fd| fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::APPEND));
    appends(one) && appends(other) || sys::is_same_description(one.as_fd(), other.as_fd())
}

/// The copying process: copies until no process holds the pipes. Reports when the content up
/// to the end of the command is copied. The limit on file size applies.
fn copy_until_closed(
    mut streams: Vec<CopiedStream>,
    waits: OwnedFd,
    copies: OwnedFd,
    limits: &ResourceLimits,
) {
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir(c"/");
    let _ = super::limits::set_limits(
        &ResourceLimits { file_size_bytes: limits.file_size_bytes, ..ResourceLimits::default() },
        true,
    );
    sys::ignore(libc::SIGXFSZ);
    sys::ignore(libc::SIGPIPE);
    let ends = streams.iter().flat_map(|s| [s.pipe.as_raw_fd(), s.file.as_raw_fd()]);
    let mut kept: Vec<RawFd> = ends.chain([waits.as_raw_fd(), copies.as_raw_fd()]).collect();
    sys::close_all_but_these(&mut kept);
    for stream in &streams {
        let _ = rustix::io::ioctl_fionbio(&stream.pipe, true);
    }
    let (mut waits, mut copies) = (Some(waits), Some(copies));
    while !streams.is_empty() {
        let ended = {
            let ready = PollFlags::IN;
            let mut fds: Vec<PollFd<'_>> =
                streams.iter().map(|s| PollFd::new(&s.pipe, ready)).collect();
            fds.extend(waits.as_ref().map(|fd| PollFd::new(fd, ready)));
            let polled = poll(&mut fds, None);
            polled.is_ok()
                && waits.is_some()
                && fds.last().is_some_and(|fd| !fd.revents().is_empty())
        };
        streams.retain(copy_content);
        if ended {
            waits = None;
            copies = None;
        }
    }
    drop(copies);
}

/// Copies the present content of a pipe. Returns `false` at the end of the pipe, or if the
/// pipe or the file fails.
fn copy_content(stream: &CopiedStream) -> bool {
    let mut chunk = vec![0; COPY_CHUNK_BYTES];
    loop {
        match rustix::io::read(&stream.pipe, &mut chunk) {
            Ok(0) => return false,
            Ok(length) => {
                if !write_all(&stream.file, chunk.get(..length).unwrap_or_default()) {
                    return false;
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return true,
            Err(_) => return false,
        }
    }
}

/// Writes all bytes; waits if the file takes none now. Returns `false` on an error.
fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(file, PollFlags::OUT)], None);
            }
            Err(_) => return false,
        }
    }
    true
}
