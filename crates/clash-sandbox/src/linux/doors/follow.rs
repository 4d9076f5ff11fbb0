//! Follows a command behind a door, and tells the visitor about its end.
//!
//! Two processes belong to each command that gets a new room. The *follower* answers the visitor, and is in the
//! launcher's process group. The *starter* becomes the command's launcher. It is in the
//! visitor's process group, so the terminal's signals reach the command. In a kept room, the
//! room's launcher takes the place of the starter.

use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use clash_door::{DoorReply, DoorRequest, REFUSED_STATUS};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, send, sendmsg,
};
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, setpgid, waitpid};

use super::super::sys::{self, ForkSide};
use super::DoorVisit;
use super::kept::packets;
use super::request::{encode_request, send_request};
use super::{KeepOffer, KeptRoom};
use crate::door::{DoorVisitor, KeptCommand, VisitorProcess};

/// The time for a message on the visitor's standard error.
const MAX_WRITE_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

impl DoorVisit {
    /// Lets the visitor itself run the program of this file, in its own room.
    pub fn run_here(&self, file: &OwnedFd) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = [file.as_fd()];
        if control.push(SendAncillaryMessage::ScmRights(&files)) {
            let bytes = DoorReply::RunHere.encode();
            let _ =
                sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL);
        }
    }

    /// Lets the visitor itself run the program at this path, in its own room.
    pub fn run_named(&self, path: &OsStr) {
        self.reply(DoorReply::RunHere);
        let _ = send(&self.socket, path.as_encoded_bytes(), SendFlags::NOSIGNAL);
    }

    /// Refuses the visit, with a message on the visitor's standard error.
    pub fn refuse(&self, visitor: &DoorVisitor, message: &str) {
        let error = visitor.descriptors.iter().find(|(fd, _)| *fd == 2);
        if let Some((_, error)) = error {
            // The visitor may have given a pipe that no process reads.
            let mut ready = [PollFd::new(error, PollFlags::OUT)];
            if poll(&mut ready, Some(&MAX_WRITE_TIME)) == Ok(1) {
                let _ = rustix::io::write(error, message.as_bytes());
            }
        }
        self.reply(DoorReply::Exited(REFUSED_STATUS as u8));
    }

    /// Sends a reply to the visitor. Errors are ignored.
    fn reply(&self, reply: DoorReply) {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = send(&self.socket, &reply.encode(), flags);
    }

    /// Starts the command and follows it to its end. `start` runs in a process with the
    /// visitor's descriptors and no others, and in its process group, in the directory `cwd`
    /// of the host. It gets an offer to keep the room, if the room may be kept.
    pub fn follow(
        self,
        visitor: DoorVisitor,
        cwd: &Path,
        start: impl FnOnce(&DoorVisitor, Option<KeepOffer>),
    ) {
        sys::notice_children();
        let offer = packets().and_then(|(own, report)| Ok((own, self.rooms.offer(report)?)));
        let (report, offer) = offer.ok().unzip();
        let starter = match sys::fork() {
            Ok(ForkSide::Parent(starter)) => starter,
            Ok(ForkSide::Child) => {
                match sys::die_with_parent().and_then(|()| settle(&visitor, cwd, offer)) {
                    Ok(offer) => start(&visitor, offer),
                    Err(error) => {
                        let message = format!("clash: the command was not started: {error}\n");
                        let _ = rustix::io::write(rustix::stdio::stderr(), message.as_bytes());
                    }
                }
                sys::exit_now(REFUSED_STATUS)
            }
            Err(_) => return self.refuse(&visitor, "clash: no process can be started\n"),
        };
        let group = visitor.process.group;
        // Both processes do it, so that it is done when either goes on.
        let joined_group = setpgid(Pid::from_raw(starter), Pid::from_raw(group)).is_ok();
        // A pipe would otherwise stay open after the command has closed it.
        drop(visitor);
        drop(offer);
        self.reply(DoorReply::Started { joined_group });
        self.attend(starter, report);
    }

    /// Claims a kept room with this tag; `None` if none is free.
    pub fn claim_room(&mut self, tag: u64) -> Option<KeptRoom> {
        self.rooms.claim(tag)
    }

    /// Runs the command in a kept room and follows it to its end. Gives the visitor back if
    /// the room does not take the command: then nothing of it has run.
    pub fn run_in(
        &self,
        room: KeptRoom,
        visitor: DoorVisitor,
        command: &KeptCommand,
    ) -> Option<DoorVisitor> {
        let (Some(bytes), Ok((report, of_launcher))) =
            (encode_request(&visitor, command), packets())
        else {
            return Some(visitor);
        };
        let is_sent =
            room.take() && send_request(&room.socket, &bytes, &visitor, command, &of_launcher);
        drop(of_launcher);
        if !is_sent {
            return Some(visitor);
        }
        let Some(started @ DoorReply::Started { .. }) = next_reply(&report) else {
            return Some(visitor);
        };
        drop(visitor);
        self.reply(started);
        loop {
            let mut ready = [
                PollFd::new(&self.socket, PollFlags::IN),
                PollFd::new(&report, PollFlags::IN),
                PollFd::new(&self.process, PollFlags::IN),
            ];
            if !matches!(poll(&mut ready, None), Ok(_) | Err(Errno::INTR)) {
                return None;
            }
            let [from_visitor, from_room, visitor_ended] = ready.map(|fd| !fd.revents().is_empty());
            if from_room {
                match next_reply(&report) {
                    Some(DoorReply::Stopped) => self.reply(DoorReply::Stopped),
                    Some(end @ (DoorReply::Exited(_) | DoorReply::Killed(_))) => {
                        self.reply(end);
                        return None;
                    }
                    // The launcher was killed, and the room with it.
                    _ => {
                        self.reply(DoorReply::Killed(libc::SIGKILL as u8));
                        return None;
                    }
                }
            }
            // The launcher ends the command when this end of its socket closes.
            if visitor_ended || from_visitor && !self.pass_signal_to(&report) {
                return None;
            }
        }
    }

    /// Sends a signal of the visitor to the launcher of a kept room. False if the visitor has
    /// ended.
    fn pass_signal_to(&self, report: &OwnedFd) -> bool {
        let mut bytes = [0_u8; 16];
        match recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((length, _)) => match bytes.get(..length) {
                Some(message @ [b'S', ..]) => {
                    send(report, message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok()
                }
                _ => false,
            },
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }

    /// Reports each stop and the end of the started process to the visitor, and sends the
    /// visitor's signals to that process alone, which is the command's launcher. Kills it if
    /// the visitor ends, closes its socket or sends anything but a signal. If the room is
    /// kept, the process outlives its command: `report` then brings the command's end, and
    /// the process is left running. An error of the kernel ends this without a reply and
    /// without a kill.
    fn attend(&self, starter: libc::pid_t, report: Option<OwnedFd>) {
        let Some(pid) = Pid::from_raw(starter) else { return };
        let Ok(signals) = sys::signals() else { return };
        let Ok(ending) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        // After the last report the end of the process is enough.
        let mut report = report.as_ref();
        loop {
            let mut ready = [
                PollFd::new(&self.socket, PollFlags::IN),
                PollFd::new(&signals, PollFlags::IN),
                PollFd::new(&ending, PollFlags::IN),
                PollFd::new(&self.process, PollFlags::IN),
                PollFd::new(report.unwrap_or(&ending), PollFlags::IN),
            ];
            if !matches!(poll(&mut ready, None), Ok(_) | Err(Errno::INTR)) {
                return;
            }
            let [from_visitor, _, _, visitor_ended, reported] =
                ready.map(|fd| !fd.revents().is_empty());
            if reported && let Some(from) = report {
                match next_reply(from) {
                    Some(end @ (DoorReply::Exited(_) | DoorReply::Killed(_))) => {
                        return self.reply(end);
                    }
                    _ => report = None,
                }
            }
            while let Ok(Some(_)) = sys::held_signal(&signals) {}
            let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
            while let Ok(Some((_, status))) = waitpid(Some(pid), options) {
                if let Some(code) = status.exit_status() {
                    return self.reply(DoorReply::Exited(code as u8));
                }
                if let Some(signal) = status.terminating_signal() {
                    return self.reply(DoorReply::Killed(signal as u8));
                }
                if status.stopped() {
                    self.reply(DoorReply::Stopped);
                }
            }
            if visitor_ended || from_visitor && !self.pass_on_signal(starter) {
                sys::kill(starter, libc::SIGKILL);
                let _ = waitpid(Some(pid), WaitOptions::empty());
                return;
            }
        }
    }

    /// Sends a signal of the visitor to the command. False if the visitor has ended.
    fn pass_on_signal(&self, starter: libc::pid_t) -> bool {
        let mut bytes = [0_u8; 16];
        match recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((length, _)) => match bytes.get(..length).and_then(DoorRequest::decode) {
                Some(DoorRequest::Signal(signal)) => {
                    sys::kill(starter, signal);
                    true
                }
                _ => false,
            },
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }
}

/// The next report of a launcher; `None` if it has ended.
fn next_reply(report: &OwnedFd) -> Option<DoorReply> {
    let mut bytes = [0_u8; 8];
    loop {
        match recv(report, &mut bytes, RecvFlags::empty()) {
            Ok((length, _)) => return DoorReply::decode(bytes.get(..length)?),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Gives this process the visitor's process group, umask, descriptors, working directory,
/// ignored and blocked signals, and resource limits. All descriptors of this process are
/// replaced, except those of the offer, which is returned with their new numbers. `SIGCHLD` is
/// never ignored, because a launcher waits for its children. An error if any of it fails,
/// except the process group, which the follower sets too.
fn settle(
    visitor: &DoorVisitor,
    cwd: &Path,
    offer: Option<KeepOffer>,
) -> io::Result<Option<KeepOffer>> {
    let VisitorProcess { group, umask, ignored_signals, blocked_signals, limits } = visitor.process;
    let _ = setpgid(None, Pid::from_raw(group));
    rustix::process::umask(Mode::from_raw_mode(umask));
    let extra = offer.as_ref().map(KeepOffer::descriptors).transpose()?.unwrap_or_default();
    let placed = sys::place_descriptors(&visitor.descriptors, extra)?;
    let offer = offer.and_then(|offer| offer.with_descriptors(placed));
    open_missing_streams()?;
    rustix::process::chdir(cwd)?;
    for signal in 1..=64 {
        let is_ignored = ignored_signals & (1 << (signal - 1)) != 0;
        if is_ignored && signal != libc::SIGCHLD {
            sys::ignore(signal);
        }
    }
    sys::set_resource_limits(&limits)?;
    sys::set_blocked_signals(blocked_signals)?;
    Ok(offer)
}

/// Opens /dev/null in the place of standard streams that the visitor has closed. A launcher
/// would otherwise open its own files under their numbers.
fn open_missing_streams() -> io::Result<()> {
    loop {
        let null: OwnedFd = open("/dev/null", OFlags::RDWR, Mode::empty())?;
        if null.as_raw_fd() > 2 {
            return Ok(());
        }
        std::mem::forget(null);
    }
}
