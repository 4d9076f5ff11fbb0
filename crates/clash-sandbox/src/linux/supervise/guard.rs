//! The process between the launcher and a command that has no process namespace of
//! its own: whatever the command leaves behind becomes its child, and when the
//! launcher ends, in whatever way, it ends all of them.
//!
//! It is the command's parent, because the kernel gives orphans to an ancestor. It
//! shares the launcher's memory and descriptors, so that starting the command
//! through it is no different, and tells it there what the command did. It has left
//! the launcher's session: what is sent to that, or typed, does not reach it.
//!
//! After the command has started, nothing here may touch `errno`, allocate or
//! panic: the launcher's thread runs at the same time, with the same thread-local
//! memory. If somebody kills this process, the command is killed with it and the
//! rest falls to the launcher.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process, pidfd_open,
    set_child_subreaper, wait, waitpid,
};

use crate::linux::sys;

/// What the launcher and this process say to each other.
#[derive(Debug)]
struct Board {
    launcher: Pid,
    /// The launcher's own, which can be polled for its end. A signal would not do:
    /// the last of its threads to die may be one whose domain forbids sending any.
    alive: OwnedFd,
    signals: OwnedFd,
    /// The process that waits, once there is one.
    guard: AtomicI32,
    /// What the command did last, unless the launcher has seen it.
    news: AtomicI32,
    /// The launcher wants everybody to end.
    over: AtomicBool,
}

/// What the command did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Exited(i32),
    Died(i32),
    Stopped(i32),
}

const NOTHING: i32 = -1;
const DIED: i32 = 0x100;
const STOPPED: i32 = 0x200;

impl News {
    fn of(status: WaitStatus) -> Option<Self> {
        let exited = status.exit_status().map(Self::Exited);
        let died = || status.terminating_signal().map(Self::Died);
        exited.or_else(died).or_else(|| status.stopping_signal().map(Self::Stopped))
    }

    fn number(self) -> i32 {
        match self {
            Self::Exited(code) => code & 0xff,
            Self::Died(signal) => DIED | signal,
            Self::Stopped(signal) => STOPPED | signal,
        }
    }

    fn from(number: i32) -> Option<Self> {
        match number {
            NOTHING => None,
            stopped if stopped & STOPPED != 0 => Some(Self::Stopped(stopped & 0xff)),
            died if died & DIED != 0 => Some(Self::Died(died & 0xff)),
            code => Some(Self::Exited(code)),
        }
    }
}

/// The launcher's side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    board: &'static Board,
}

impl Guard {
    pub(crate) fn new() -> io::Result<Self> {
        // Should this process be killed, orphans are the launcher's after all.
        set_child_subreaper(Some(getpid()))?;
        let board = Board {
            launcher: getpid(),
            alive: pidfd_open(getpid(), PidfdFlags::empty())?,
            signals: sys::signals()?,
            guard: AtomicI32::new(0),
            news: AtomicI32::new(NOTHING),
            over: AtomicBool::new(false),
        };
        Ok(Self { board: Box::leak(Box::new(board)) })
    }

    /// Has `job` run as [`sys::run_until_exec`] would, in a child of the process
    /// that stays in between. All signals must be held.
    pub(crate) fn run_until_exec(self, job: impl FnMut()) -> io::Result<libc::pid_t> {
        let (guard, child) = sys::run_behind(job, self.board, settle, watch)?;
        self.board.guard.store(guard, Ordering::Relaxed);
        Ok(child)
    }

    /// What the command did since this was last asked.
    pub(crate) fn news(self) -> Option<News> {
        let news = News::from(self.board.news.swap(NOTHING, Ordering::AcqRel));
        if news.is_some() || !self.is_gone() {
            return news;
        }
        // What it had to say may have come in between.
        let last = News::from(self.board.news.swap(NOTHING, Ordering::AcqRel));
        last.or(Some(News::Died(libc::SIGKILL)))
    }

    fn guard(self) -> Option<Pid> {
        Pid::from_raw(self.board.guard.load(Ordering::Relaxed))
    }

    fn is_gone(self) -> bool {
        let Some(guard) = self.guard() else { return false };
        let gone =
            !matches!(waitpid(Some(guard), WaitOptions::NOHANG), Ok(None) | Err(Errno::INTR));
        if gone {
            self.board.guard.store(0, Ordering::Relaxed);
        }
        gone
    }

    /// Ends the command and everybody it left behind, and waits until all are gone.
    pub(crate) fn end(self) {
        let Some(guard) = self.guard().filter(|_| !self.is_gone()) else { return };
        self.board.over.store(true, Ordering::Release);
        let _ = kill_process(guard, Signal::HUP);
        while matches!(waitpid(Some(guard), WaitOptions::empty()), Err(Errno::INTR)) {}
        self.board.guard.store(0, Ordering::Relaxed);
    }
}

impl Board {
    fn is_alone(&self) -> bool {
        let mut alive = [PollFd::new(&self.alive, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut alive, Some(&now)).is_ok_and(|ended| ended > 0)
    }
}

/// Before the command is started: whether it may be.
fn settle(board: &Board) -> bool {
    set_child_subreaper(Some(getpid())).is_ok() && !board.is_alone()
}

/// Until the launcher is gone or wants an end.
fn watch(board: &Board, command: libc::pid_t) {
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir(c"/");
    let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
    loop {
        while let Ok(Some(_)) = sys::held_signal(&board.signals) {}
        while let Ok(Some((child, status))) = wait(options) {
            if child.as_raw_nonzero().get() == command
                && let Some(news) = News::of(status)
            {
                board.news.store(news.number(), Ordering::Release);
                let _ = kill_process(board.launcher, Signal::CHILD);
            }
        }
        if board.is_alone() || board.over.load(Ordering::Acquire) {
            return end_children();
        }
        let ends = [&board.signals, &board.alive];
        let _ = poll(&mut ends.map(|end| PollFd::new(end, PollFlags::IN)), None);
    }
}

/// Kills and forgets all children: each may leave its own to us.
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

/// Numbers that are followed by a space: the last one may have been cut.
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
        for news in [News::Exited(0), News::Exited(255), News::Died(9), News::Stopped(20)] {
            assert_eq!(News::from(news.number()), Some(news));
        }
        assert_eq!(News::from(NOTHING), None);
    }
}
