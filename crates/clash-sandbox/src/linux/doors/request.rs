//! The message that brings a command to a kept room.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage};

use super::super::sys;
use super::kept::send_with;
use crate::door::{DoorVisitor, KeptCommand};

/// A longer command gets a room of its own.
const MAX_REQUEST_BYTES: usize = 64 * 1024;
/// The kernel accepts 253 descriptors in one message, two of which are clash's own.
const MAX_GIVEN_DESCRIPTORS: usize = 250;

/// A command as the launcher of a kept room receives it.
#[derive(Debug)]
pub(crate) struct RoomRequest {
    pub(crate) group: i32,
    pub(crate) umask: u32,
    pub(crate) ignored_signals: u64,
    pub(crate) blocked_signals: u64,
    /// The process that answers the visit.
    pub(crate) follower: u32,
    pub(crate) shown: String,
    pub(crate) program: OsString,
    pub(crate) name: OsString,
    pub(crate) cwd: PathBuf,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) file: Option<OwnedFd>,
    /// The numbers that the descriptors get, and the descriptors.
    pub(crate) given: Vec<(RawFd, OwnedFd)>,
    /// The way to the follower.
    pub(crate) report: OwnedFd,
}

/// The bytes of the message; `None` if it is too long.
pub(super) fn encode_request(visitor: &DoorVisitor, command: &KeptCommand) -> Option<Vec<u8>> {
    let process = &visitor.process;
    let mut bytes = Vec::with_capacity(8192);
    let mut number = |value: u64| bytes.extend(value.to_le_bytes());
    number(u64::from(process.group.cast_unsigned()));
    number(process.umask.into());
    number(process.ignored_signals);
    number(process.blocked_signals);
    number(std::process::id().into());
    number(command.file.is_some().into());
    number(visitor.descriptors.len() as u64);
    for (fd, _) in &visitor.descriptors {
        number(u64::from(fd.cast_unsigned()));
    }
    number(command.args.len() as u64);
    number(command.env.len() as u64);
    let fixed = [command.shown.as_bytes(), command.program.as_bytes(), command.name.as_bytes()];
    let cwd = command.cwd.as_os_str().as_bytes();
    let args = command.args.iter().map(|arg| arg.as_bytes());
    let env = command.env.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
    for text in fixed.into_iter().chain([cwd]).chain(args).chain(env) {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text);
    }
    let fits =
        bytes.len() <= MAX_REQUEST_BYTES && visitor.descriptors.len() <= MAX_GIVEN_DESCRIPTORS;
    fits.then_some(bytes)
}

/// Sends the message with its descriptors. False if the launcher has ended.
pub(super) fn send_request(
    socket: &OwnedFd,
    bytes: &[u8],
    visitor: &DoorVisitor,
    command: &KeptCommand,
    report: &OwnedFd,
) -> bool {
    let given = visitor.descriptors.iter().map(|(_, fd)| fd);
    let files = [report].into_iter().chain(&command.file).chain(given);
    let files: Vec<_> = files.map(AsFd::as_fd).collect();
    send_with(socket, bytes, &files).is_ok()
}

impl RoomRequest {
    /// Receives a command. `None` if the other end has closed or sent something else.
    pub(crate) fn receive(socket: &OwnedFd) -> Option<Self> {
        let mut bytes = vec![0_u8; MAX_REQUEST_BYTES];
        let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let length = sys::receive(socket.as_raw_fd(), &mut bytes, &mut control).ok()?;
        let files = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let files: Vec<OwnedFd> = files.flatten().collect();
        Self::read(&mut MessageReader(bytes.get(..length)?), files)
    }

    fn read(message: &mut MessageReader<'_>, files: Vec<OwnedFd>) -> Option<Self> {
        let group = message.small()?.cast_signed();
        let umask = message.small()?;
        let (ignored_signals, blocked_signals) = (message.number()?, message.number()?);
        let follower = message.small()?;
        let has_file = message.number()? == 1;
        let count = usize::try_from(message.number()?).ok()?;
        if count > MAX_GIVEN_DESCRIPTORS || files.len() != 1 + usize::from(has_file) + count {
            return None;
        }
        let numbers: Vec<RawFd> =
            (0..count).map(|_| Some(message.small()?.cast_signed())).collect::<Option<_>>()?;
        let mut files = files.into_iter();
        let report = files.next()?;
        let file = if has_file { Some(files.next()?) } else { None };
        let given = numbers.into_iter().zip(files).collect();
        let (arguments, variables) = (message.number()?, message.number()?);
        let shown = String::from_utf8(message.text()?.into_vec()).ok()?;
        let (program, name, cwd) = (message.text()?, message.text()?, message.text()?.into());
        let args = (0..arguments).map(|_| message.text()).collect::<Option<_>>()?;
        let pair = |message: &mut MessageReader<'_>| Some((message.text()?, message.text()?));
        let env = (0..variables).map(|_| pair(message)).collect::<Option<_>>()?;
        Some(Self {
            group,
            umask,
            ignored_signals,
            blocked_signals,
            follower,
            shown,
            program,
            name,
            cwd,
            args,
            env,
            file,
            given,
            report,
        })
    }
}

/// The part of a message that is not read yet.
struct MessageReader<'a>(&'a [u8]);

impl MessageReader<'_> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    fn text(&mut self) -> Option<OsString> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(OsString::from_vec(text.to_vec()))
    }
}
