//! Reads the facts about a visitor from the kernel and from its messages.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use clash_door::{DoorRequest, MAX_DESCRIPTORS_PER_MESSAGE, MAX_MESSAGE_BYTES};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};

use super::super::sys;
use super::DoorVisit;
use crate::door::{DoorVisitor, VisitorProcess};

/// A visitor that sends nothing for this time has no door.
const MAX_SILENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// The kernel gives a process at most this much for its arguments and its environment.
const MAX_ARGUMENT_BYTES: u64 = 8 * 1024 * 1024;
const MAX_DESCRIPTORS: usize = 4096;
/// The messages with descriptors, at most. A message may have none.
const MAX_MESSAGES: usize = 2 * MAX_DESCRIPTORS / MAX_DESCRIPTORS_PER_MESSAGE;
/// The chain of callers that is shown.
const MAX_CALLERS: usize = 8;

impl DoorVisit {
    /// Reads the facts about the visitor. Fails if the visitor has ended or breaks the rules
    /// of the messages.
    pub fn read(&self) -> io::Result<DoorVisitor> {
        let VisitMessages { descriptors, blocked_signals, started } = self.messages()?;
        let of = |name: &str| PathBuf::from(format!("/proc/{}/{name}", self.pid));
        let arguments = strings(&of("cmdline"))?;
        let environment = strings(&of("environ"))?.into_iter().filter_map(pair).collect();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held_directory = open(of("cwd"), flags, Mode::empty())?;
        let working_directory = fs::read_link(of("cwd"))?;
        let door = fs::read_link(of("exe"))?;
        let status = fs::read_to_string(of("status"))?;
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map(str::trim)
        };
        let hexadecimal = |name: &str| u64::from_str_radix(field(name)?, 16).ok();
        let umask = field("Umask").and_then(|umask| u32::from_str_radix(umask, 8).ok());
        let group = rustix::process::getpgid(rustix::process::Pid::from_raw(self.pid))?;
        let visitor = DoorVisitor {
            door,
            arguments,
            environment,
            working_directory,
            held_directory,
            process: VisitorProcess {
                group: group.as_raw_nonzero().get(),
                umask: umask.ok_or_else(unreadable)?,
                ignored_signals: hexadecimal("SigIgn").ok_or_else(unreadable)?,
                blocked_signals,
                limits: sys::resource_limits(self.pid)?,
            },
            descriptors,
            started,
            callers: callers(self.pid),
        };
        // This check comes last: everything above was read from the process that opened the
        // door, and from no other with its number.
        if self.has_ended() { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(visitor) }
    }

    /// True if the visiting process has ended.
    pub fn has_ended(&self) -> bool {
        let mut ends = [PollFd::new(&self.process, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut ends, Some(&now)) != Ok(0)
    }

    /// Receives all descriptors of the visitor, with their numbers there, its blocked signals,
    /// and the path that it wanted to start. Fails after [`MAX_SILENCE`] without a message, for a message that is not
    /// understood or too long, and for more than [`MAX_DESCRIPTORS`] or [`MAX_MESSAGES`].
    fn messages(&self) -> io::Result<VisitMessages> {
        let mut all = Vec::new();
        let mut started = None;
        for _ in 0..MAX_MESSAGES {
            let mut ready = [PollFd::new(&self.socket, PollFlags::IN)];
            if poll(&mut ready, Some(&MAX_SILENCE))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let mut bytes = [0_u8; MAX_MESSAGE_BYTES];
            let space = rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS_PER_MESSAGE));
            let mut space = vec![MaybeUninit::uninit(); space];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let parts = &mut [IoSliceMut::new(&mut bytes)];
            let received = match recvmsg(&self.socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)
            {
                Ok(received) => received,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let length = received.bytes;
            let is_cut = received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
            let message = bytes.get(..length).and_then(DoorRequest::decode);
            let (numbers, blocked_signals, is_last) = match message {
                Some(DoorRequest::Descriptors { numbers, blocked_signals, is_last }) => {
                    (numbers, blocked_signals, is_last)
                }
                Some(DoorRequest::Started { path }) if started.is_none() && all.is_empty() => {
                    started = Some(OsString::from_vec(path));
                    continue;
                }
                _ => return Err(unreadable()),
            };
            let given = control.drain().filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(files) => Some(files),
                _ => None,
            });
            let given: Vec<OwnedFd> = given.flatten().collect();
            let counts = !is_cut
                && given.len() == numbers.len()
                && all.len() + given.len() <= MAX_DESCRIPTORS
                && numbers.iter().all(|number| *number >= 0);
            if !counts {
                return Err(unreadable());
            }
            // A room gets connected sockets of the host's network. In another sandbox no
            // monitor might prevent a second connect.
            if given.iter().any(sys::is_internet_socket_here) {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            all.extend(numbers.into_iter().zip(given));
            if is_last {
                return Ok(VisitMessages { descriptors: all, blocked_signals, started });
            }
        }
        Err(unreadable())
    }
}

/// The messages of a visitor before its command starts.
struct VisitMessages {
    descriptors: Vec<(RawFd, OwnedFd)>,
    blocked_signals: u64,
    started: Option<OsString>,
}

impl DoorVisitor {
    /// True if a kept room can take the visitor's command: its standard streams are pipes,
    /// sockets or /dev/null. For files and terminals a room has rules of its own.
    pub fn may_share_room(&self) -> bool {
        const NULL: (u32, u32) = (1, 3);
        (0..=2).all(|number| {
            let stream = self.descriptors.iter().find(|(fd, _)| *fd == number);
            stream.and_then(|(_, fd)| fstat(fd).ok()).is_some_and(|meta| {
                let device = (libc::major(meta.st_rdev), libc::minor(meta.st_rdev));
                match FileType::from_raw_mode(meta.st_mode) {
                    FileType::Fifo | FileType::Socket => true,
                    FileType::CharacterDevice => device == NULL,
                    _ => false,
                }
            })
        })
    }

    /// The soft and hard resource limits.
    pub fn limits(&self) -> &[(u64, u64)] {
        &self.process.limits
    }
}

fn unreadable() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// The strings of a file of /proc, each with a NUL byte at its end. Fails for more than
/// [`MAX_ARGUMENT_BYTES`], or if the last NUL byte is missing.
fn strings(path: &Path) -> io::Result<Vec<OsString>> {
    use io::Read;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_ARGUMENT_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_ARGUMENT_BYTES {
        return Err(unreadable());
    }
    let Some((0, text)) = bytes.split_last() else {
        return if bytes.is_empty() { Ok(Vec::new()) } else { Err(unreadable()) };
    };
    Ok(text.split(|byte| *byte == 0).map(|text| OsString::from_vec(text.to_vec())).collect())
}

/// Splits `NAME=value`. `None` without an `=` after the first byte.
fn pair(text: OsString) -> Option<(OsString, OsString)> {
    let bytes = text.into_vec();
    // The first byte belongs to the name, also if it is `=`.
    let equals = bytes.iter().skip(1).position(|byte| *byte == b'=')? + 1;
    let (name, value) = bytes.split_at(equals);
    let value = value.get(1..).unwrap_or_default();
    Some((OsString::from_vec(name.to_vec()), OsString::from_vec(value.to_vec())))
}

/// The names of the programs above a process, outermost first, up to a program of clash, at
/// most [`MAX_CALLERS`].
fn callers(pid: i32) -> Vec<String> {
    let mut names = Vec::new();
    let mut process = pid;
    while names.len() < MAX_CALLERS {
        let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else { break };
        // The process name in parentheses may contain any character, also `)`.
        let Some((name, rest)) = stat.rsplit_once(')') else { break };
        let parent = rest.split_whitespace().nth(1).and_then(|parent| parent.parse().ok());
        if process != pid
            && let Some((_, name)) = name.split_once('(')
        {
            if name.starts_with("clash") {
                break;
            }
            names.push(name.to_owned());
        }
        let Some(parent) = parent.filter(|parent| *parent > 1) else { break };
        process = parent;
    }
    names.reverse();
    names
}
