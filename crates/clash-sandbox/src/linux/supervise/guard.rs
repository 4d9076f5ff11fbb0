//! The parent process of a command without a process namespace (the *guard*).
//!
//! Orphans of the command become children of the guard, because it is a subreaper and an
//! ancestor. When the launcher ends, however it ends, the guard kills all of them.
//!
//! The guard shares the launcher's memory and descriptors, so starting the command through
//! it is no different, and it reports there what the command did. It has its own session,
//! so signals to the launcher's session and keys do not reach it.
//!
//! After the start of the command, code in the guard must not touch `errno`, allocate or
//! panic: the launcher's thread runs at the same time with the same thread-local memory. If
//! the guard is killed, the kernel kills the command with it, and the launcher ends the
//! remaining processes.

use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process, pidfd_open,
    set_child_subreaper, wait, waitpid,
};

use crate::linux::sys;

/// Memory that the launcher and the guard share.
#[derive(Debug)]
struct GuardBoard {
    launcher: Pid,
    /// A pidfd of the launcher, to poll for its end. A death signal would not do: the last
    /// thread of the launcher to die may be in a Landlock domain that forbids signals.
    alive: OwnedFd,
    signals: OwnedFd,
    /// The process id of the guard; 0 before it exists.
    guard: AtomicI32,
    /// The last event of the command that the launcher has not read.
    event: AtomicI32,
    /// The launcher asks the guard to end all processes.
    over: AtomicBool,
    /// The number of a pipe that a keeper holds; -1 without a keeper. When the launcher has
    /// ended, the guard waits for the end of this pipe.
    leash: AtomicI32,
}

/// An event in the life of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandEvent {
    Exited(i32),
    Died(i32),
    Stopped(i32),
}

const NO_EVENT: i32 = -1;
const DIED: i32 = 0x100;
const STOPPED: i32 = 0x200;

impl CommandEvent {
    /// The event of a wait status; `None` if the process only continued.
    fn from_status(status: WaitStatus) -> Option<Self> {
        let exited = status.exit_status().map(Self::Exited);
        let died = || status.terminating_signal().map(Self::Died);
        exited.or_else(died).or_else(|| status.stopping_signal().map(Self::Stopped))
    }

    /// The event as one number, for the shared board.
    fn encode(self) -> i32 {
        match self {
            Self::Exited(code) => code & 0xff,
            Self::Died(signal) => DIED | signal,
            Self::Stopped(signal) => STOPPED | signal,
        }
    }

    /// The event of [`Self::encode`]; `None` for no event.
    fn decode(number: i32) -> Option<Self> {
        match number {
            NO_EVENT => None,
            stopped if stopped & STOPPED != 0 => Some(Self::Stopped(stopped & 0xff)),
            died if died & DIED != 0 => Some(Self::Died(died & 0xff)),
            code => Some(Self::Exited(code)),
        }
    }
}

/// The launcher's handle of the guard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuardHandle {
    board: &'static GuardBoard,
}

impl GuardHandle {
    /// Makes the board that launcher and guard share. Makes the launcher the new parent of
    /// orphans.
    pub(crate) fn new() -> io::Result<Self> {
        // If the guard is killed, orphans become children of the launcher.
        set_child_subreaper(Some(getpid()))?;
        let board = GuardBoard {
            launcher: getpid(),
            alive: pidfd_open(getpid(), PidfdFlags::empty())?,
            signals: sys::signals()?,
            guard: AtomicI32::new(0),
            event: AtomicI32::new(NO_EVENT),
            over: AtomicBool::new(false),
            leash: AtomicI32::new(-1),
        };
        Ok(Self { board: Box::leak(Box::new(board)) })
    }

    /// As [`sys::run_until_exec`], but `job` runs in a child of the guard. All signals must
    /// be blocked.
    pub(crate) fn run_until_exec(self, job: impl FnMut()) -> io::Result<libc::pid_t> {
        let (guard, child) = sys::run_behind(job, self.board, settle, watch)?;
        self.board.guard.store(guard, Ordering::Relaxed);
        Ok(child)
    }

    /// The event since the last call.
    pub(crate) fn next_event(self) -> Option<CommandEvent> {
        let event = CommandEvent::decode(self.board.event.swap(NO_EVENT, Ordering::AcqRel));
        if event.is_some() || !self.is_gone() {
            return event;
        }
        // The guard may have stored an event before it ended.
        let last = CommandEvent::decode(self.board.event.swap(NO_EVENT, Ordering::AcqRel));
        last.or(Some(CommandEvent::Died(libc::SIGKILL)))
    }

    /// True if the command, which has ended, has left processes.
    pub(crate) fn has_children(self) -> bool {
        let Some(guard) = self.guard() else { return false };
        let guard = guard.as_raw_nonzero();
        let list = std::fs::read_to_string(format!("/proc/{guard}/task/{guard}/children"));
        list.is_ok_and(|list| !list.trim().is_empty())
    }

    /// Lets the guard wait for the end of this pipe when the launcher has ended. Returns the
    /// guard. The guard has the launcher's descriptors, so the number of the pipe is enough.
    pub(crate) fn change_master(self, leash: OwnedFd) -> io::Result<Pid> {
        let guard = self.guard().filter(|_| !self.is_gone()).ok_or(Errno::SRCH)?;
        self.board.leash.store(leash.into_raw_fd(), Ordering::Release);
        Ok(guard)
    }

    fn guard(self) -> Option<Pid> {
        Pid::from_raw(self.board.guard.load(Ordering::Relaxed))
    }

    /// True if the guard has ended. Forgets it then.
    fn is_gone(self) -> bool {
        let Some(guard) = self.guard() else { return false };
        let gone =
            !matches!(waitpid(Some(guard), WaitOptions::NOHANG), Ok(None) | Err(Errno::INTR));
        if gone {
            self.board.guard.store(0, Ordering::Relaxed);
        }
        gone
    }

    /// Ends the command and all processes that it left behind, and waits until they are
    /// gone.
    pub(crate) fn end(self) {
        let Some(guard) = self.guard().filter(|_| !self.is_gone()) else { return };
        self.board.over.store(true, Ordering::Release);
        let _ = kill_process(guard, Signal::HUP);
        while matches!(waitpid(Some(guard), WaitOptions::empty()), Err(Errno::INTR)) {}
        self.board.guard.store(0, Ordering::Relaxed);
    }
}

impl GuardBoard {
    /// True if the launcher has ended.
    fn is_alone(&self) -> bool {
        let mut alive = [PollFd::new(&self.alive, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut alive, Some(&now)).is_ok_and(|ended| ended > 0)
    }
}

/// True if the command may start.
fn settle(board: &GuardBoard) -> bool {
    set_child_subreaper(Some(getpid())).is_ok() && !board.is_alone()
}

/// Reports the command's events, until the launcher is gone or asks for the end. Then kills
/// all children.
fn watch(board: &GuardBoard, command: libc::pid_t) {
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir(c"/");
    let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
    loop {
        while let Ok(Some(_)) = sys::held_signal(&board.signals) {}
        while let Ok(Some((child, status))) = wait(options) {
            if child.as_raw_nonzero().get() == command
                && let Some(event) = CommandEvent::from_status(status)
            {
                board.event.store(event.encode(), Ordering::Release);
                let _ = kill_process(board.launcher, Signal::CHILD);
            }
        }
        let leash = board.leash.load(Ordering::Acquire);
        if board.over.load(Ordering::Acquire) || board.is_alone() && leash < 0 {
            return end_children();
        }
        if board.is_alone() {
            return watch_for_keeper(board, leash);
        }
        let ends = [&board.signals, &board.alive];
        let _ = poll(&mut ends.map(|end| PollFd::new(end, PollFlags::IN)), None);
    }
}

/// Waits until no process is left, or until the keeper has ended. The launcher has ended, so
/// the descriptors belong to the guard alone.
fn watch_for_keeper(board: &GuardBoard, leash: RawFd) {
    sys::close_all_but_these(&mut [leash, board.signals.as_raw_fd()]);
    loop {
        while let Ok(Some(_)) = sys::held_signal(&board.signals) {}
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        if sys::ends_or_signals(leash, &board.signals) {
            return end_children();
        }
    }
}

/// Kills and reaps all children. The children of a killed child become children of the
/// guard.
fn end_children() {
    let mut list = [0_u8; 4096];
    loop {
        match wait(WaitOptions::NOHANG) {
            Err(Errno::INTR) | Ok(Some(_)) => continue,
            Err(_) => return,
            Ok(None) => {}
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let Ok(file) = openat(CWD, c"/proc/thread-self/children", flags, Mode::empty()) else {
            return;
        };
        let Ok(length) = rustix::io::read(&file, &mut list) else { return };
        drop(file);
        for child in numbers(list.get(..length).unwrap_or_default()) {
            let _ = Pid::from_raw(child).map(|child| kill_process(child, Signal::KILL));
        }
        let _ = wait(WaitOptions::empty());
    }
}

/// The numbers that are followed by a space. The last number may be incomplete.
fn numbers(list: &[u8]) -> impl Iterator<Item = i32> {
    let whole = list.iter().rposition(|byte| *byte == b' ').unwrap_or(0);
    let list = list.get(..whole).unwrap_or_default();
    list.split(|byte| *byte == b' ').filter_map(|number| {
        let digit = |number: i32, digit: &u8| {
            let value = digit.checked_sub(b'0').filter(|value| *value < 10)?;
            number.checked_mul(10)?.checked_add(value.into())
        };
        number.iter().try_fold(0, digit).filter(|number| *number > 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_cut_is_left_out() {
        let list = |text: &str| numbers(text.as_bytes()).collect::<Vec<_>>();
        assert_eq!(list("12 345 67"), [12, 345]);
        assert_eq!(list("12 345 67 "), [12, 345, 67]);
        assert_eq!(list("12"), [0; 0]);
        assert_eq!(list(""), [0; 0]);
        assert_eq!(list("0 1 x 99999999999 7 "), [7]);
    }

    #[test]
    fn news_arrives_as_it_was_sent() {
        for event in [
            CommandEvent::Exited(0),
            CommandEvent::Exited(255),
            CommandEvent::Died(9),
            CommandEvent::Stopped(20),
        ] {
            assert_eq!(CommandEvent::decode(event.encode()), Some(event));
        }
        assert_eq!(CommandEvent::decode(NO_EVENT), None);
    }
}
