//! A terminal of the command's own.
//!
//! Whoever holds the user's terminal can do more than write to it: it can be
//! asked questions whose answers are typed into the next shell, it holds the
//! clipboard, it can be left in a state in which passwords are echoed. So where
//! standard input, output or error is a terminal, the command gets a
//! pseudo-terminal in its place, and a relay passes on what is typed as it is and
//! what is written through [`screen`]. Pipes and files are untouched.
//!
//! Three processes, each for a reason:
//!
//! - the *relay* is the process that was started. It stays in its session and
//!   process group, so the shell's job control sees the job it knows. It stops
//!   when the command stops and ends as the command ended.
//! - the *leader* has a session of its own, with the pseudo-terminal. It is there
//!   so that the command has a parent in the same session; without one the kernel
//!   would not let it be stopped.
//! - the third goes on and becomes the command, or the room's launcher, in the
//!   foreground of that session.
//!
//! What is typed goes through the line discipline of the inner terminal, which
//! makes signals of ^C, ^\ and ^Z for the command; the same signals go to the
//! relay's own process group, where the other ends of a pipeline are. What is
//! typed ahead while a command runs is the command's, read or not.

mod screen;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, waitpid};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stderr, stdin, stdout};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcgetpgrp,
    tcgetwinsize, tcsetattr, tcsetpgrp, tcsetwinsize,
};

use super::supervise::{End, ended};
use super::sys::{self, Arrived, Fork};
use crate::plan::Plan;
use crate::plan::room::{Inside, Step};
use screen::Screen;

/// As much as is read at a time, and as much typing as is kept for a command that
/// does not read.
const CHUNK: usize = 64 * 1024;

/// Gives the calling process a terminal of its own if it has the user's. Returns
/// in the process that is to become the command; the one that called stays behind
/// as the relay and ends when the command has ended.
pub(crate) fn apart() -> io::Result<()> {
    let held = [stdin(), stdout(), stderr()].map(isatty);
    let Some(outer) =
        [stdin(), stdout(), stderr()].into_iter().zip(held).find_map(|(fd, is)| is.then_some(fd))
    else {
        return Ok(());
    };
    let outer = rustix::io::fcntl_dupfd_cloexec(outer, 3)?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    unlockpt(&master)?;
    let inner = ioctl_tiocgptpeer(&master, flags)?;
    let before = tcgetattr(&outer)?;
    tcsetattr(&inner, OptionalActions::Now, &before)?;
    let size = tcgetwinsize(&outer)?;
    tcsetwinsize(&inner, size)?;
    let mask = sys::hold_signals()?;
    match sys::fork()? {
        Fork::Parent(leader) => {
            drop(inner);
            let screen = Screen::new(size.ws_row);
            Relay {
                outer,
                master,
                before,
                screen,
                leader,
                typed: Vec::new(),
                raw: false,
                gone: false,
            }
            .run()
        }
        Fork::Child => {
            drop(master);
            lead(&inner, held)?;
            sys::set_mask(&mask)
        }
    }
}

/// True if the caller has a terminal that is on none of its standard streams: it would
/// be the command's /dev/tty, and nothing would filter what is written there.
pub(crate) fn is_behind() -> bool {
    let held = [stdin(), stdout(), stderr()].into_iter().any(isatty);
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    !held && rustix::fs::open(TTY, flags, Mode::empty()).is_ok()
}

/// The plan without the controlling terminal. Signals of its keys still reach the
/// command, which stays in its process group.
pub(crate) fn hidden(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    let is_other = |path: &Path| path != Path::new(TTY);
    plan.baseline.retain(|(entry, _)| is_other(Path::new(entry.path)));
    if let Some(watch) = &mut plan.watch {
        watch.rights.baseline.retain(|(path, _)| is_other(path));
    }
    if let Some(room) = &mut plan.room
        && room.inside == Inside::Rooms
    {
        // Landlock does not hold its files.
        let devices = room.steps.iter().position(|step| *step == Step::Devices);
        let cover = Step::Cover { path: TTY.into(), file: true, shows: Vec::new() };
        room.steps.insert(devices.map_or(room.steps.len(), |at| at + 1), cover);
    }
    plan
}

const TTY: &str = "/dev/tty";

fn die_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Takes the terminal and starts the process that goes on. Returns only there.
fn lead(inner: &OwnedFd, held: [bool; 3]) -> io::Result<()> {
    die_with_parent()?;
    rustix::process::setsid()?;
    rustix::process::ioctl_tiocsctty(inner)?;
    for (held, put) in held.into_iter().zip([
        dup2_stdin::<&OwnedFd>,
        dup2_stdout::<&OwnedFd>,
        dup2_stderr::<&OwnedFd>,
    ]) {
        if held {
            put(inner)?;
        }
    }
    match sys::fork()? {
        Fork::Parent(child) => look_after(inner.as_fd(), child),
        Fork::Child => {
            die_with_parent()?;
            rustix::process::setpgid(None, None)?;
            // Held signals keep the terminal from stopping us for this.
            Ok(tcsetpgrp(inner, getpid())?)
        }
    }
}

/// The leader: stops as the command does, ends as it does.
fn look_after(inner: BorrowedFd<'_>, child: libc::pid_t) -> ! {
    loop {
        match state_of(child) {
            Some(Change::Ended(end)) => end.repeat(),
            Some(Change::Stopped) => {
                // A process group without a parent in its session, as ours is,
                // can be stopped by nothing else.
                sys::kill(sys::own_pid(), libc::SIGSTOP);
                if let Some(group) = Pid::from_raw(child) {
                    let _ = tcsetpgrp(inner, group);
                    let _ = rustix::process::kill_process_group(group, Signal::CONT);
                }
            }
            None => match sys::next_signal(None) {
                Ok(arrived) => pass_on(arrived, child),
                Err(_) => sys::exit_now(125),
            },
        }
    }
}

fn pass_on(arrived: Option<Arrived>, child: libc::pid_t) {
    if let Some(arrived) = arrived
        && arrived.from_process
        && !matches!(arrived.signal, libc::SIGCHLD | libc::SIGCONT)
    {
        sys::kill(child, arrived.signal);
    }
}

enum Change {
    Ended(End),
    Stopped,
}

/// What happened to a child since the last look.
fn state_of(child: libc::pid_t) -> Option<Change> {
    loop {
        match waitpid(Pid::from_raw(child), WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((_, status))) => return change(status),
            Ok(None) => return None,
            Err(Errno::INTR) => {}
            Err(_) => return Some(Change::Ended(End::Exit(125))),
        }
    }
}

fn change(status: WaitStatus) -> Option<Change> {
    ended(status).map(Change::Ended).or_else(|| status.stopped().then_some(Change::Stopped))
}

/// The process between the two terminals.
struct Relay {
    outer: OwnedFd,
    master: OwnedFd,
    /// The outer terminal's settings when we came.
    before: Termios,
    screen: Screen,
    leader: libc::pid_t,
    /// What was typed and not yet taken.
    typed: Vec<u8>,
    /// Whether keys come to us one by one.
    raw: bool,
    /// Whether the outer terminal has been hung up.
    gone: bool,
}

const A_MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

impl Relay {
    fn run(mut self) -> ! {
        match self.relay() {
            Ok(end) => end.repeat(),
            Err(_) => {
                self.give_back();
                sys::kill(self.leader, libc::SIGKILL);
                sys::exit_now(125)
            }
        }
    }

    fn relay(&mut self) -> io::Result<End> {
        let signals = sys::signals()?;
        rustix::io::ioctl_fionbio(&self.master, true)?;
        self.come_forward();
        let mut open = true;
        loop {
            let reading = self.raw && self.typed.len() < CHUNK;
            let mut from_command = PollFlags::IN;
            if !self.typed.is_empty() {
                from_command |= PollFlags::OUT;
            }
            let nothing = PollFlags::empty();
            let mut fds = [
                PollFd::new(&signals, PollFlags::IN),
                PollFd::new(&self.master, if open { from_command } else { nothing }),
                PollFd::new(&self.outer, if reading { PollFlags::IN } else { nothing }),
            ];
            // What was hung up would be ready for ever.
            let watched = if self.gone { fds.get_mut(..2).unwrap_or_default() } else { &mut fds };
            // Nobody tells a job that runs in the background when it is brought forward.
            let patience = (!self.raw && !self.gone).then_some(&A_MOMENT);
            let nobody = match poll(watched, patience) {
                Ok(ready) => ready == 0,
                Err(Errno::INTR) => false,
                Err(error) => return Err(error.into()),
            };
            let [signal, output, keys] = fds.map(|fd| fd.revents());
            if nobody {
                self.come_forward();
            }
            if output.contains(PollFlags::OUT) {
                self.type_in();
            }
            if open && output.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                open = self.show()?;
            }
            if keys.contains(PollFlags::IN) {
                self.read_keys();
            } else if keys.intersects(PollFlags::HUP | PollFlags::ERR) {
                self.hang_up();
            }
            if signal.contains(PollFlags::IN)
                && let Some(end) = self.signal(&signals)?
            {
                return Ok(end);
            }
        }
    }

    /// The user's terminal is gone, and so is the command's.
    fn hang_up(&mut self) {
        self.raw = false;
        self.gone = true;
        sys::kill(self.leader, libc::SIGHUP);
    }

    /// One signal that was held.
    fn signal(&mut self, signals: &OwnedFd) -> io::Result<Option<End>> {
        let Some(arrived) = sys::held_signal(signals)? else { return Ok(None) };
        match arrived.signal {
            libc::SIGCHLD => match state_of(self.leader) {
                Some(Change::Ended(end)) => {
                    while self.show()? {}
                    self.give_back();
                    // Who was started before us has ended too; some systems have
                    // nobody who would take note of that after us.
                    while let Ok(Some(_)) = waitpid(None, WaitOptions::NOHANG) {}
                    return Ok(Some(end));
                }
                Some(Change::Stopped) => {
                    self.give_back();
                    sys::take(libc::SIGTSTP);
                    self.come_forward();
                    sys::kill(self.leader, libc::SIGCONT);
                }
                None => {}
            },
            libc::SIGWINCH => self.resize(),
            libc::SIGCONT => self.come_forward(),
            // A key from before the keyboard was ours: only our group was told.
            signal @ (libc::SIGINT | libc::SIGQUIT | libc::SIGTSTP) if !arrived.from_process => {
                sys::kill(self.leader, signal);
            }
            signal if arrived.from_process && !arrived.from_self => sys::kill(self.leader, signal),
            _ => {}
        }
        Ok(None)
    }

    /// Whether the user is talking to us: we are the terminal's foreground job, or
    /// it has no jobs.
    fn in_front(&self) -> bool {
        tcgetpgrp(&self.outer)
            .map_or(true, |group| group.as_raw_nonzero().get() == sys::own_group())
    }

    /// Takes the keyboard if it is ours to take.
    fn come_forward(&mut self) {
        self.resize();
        if !self.raw && self.in_front() {
            if let Ok(before) = tcgetattr(&self.outer) {
                self.before = before;
            }
            self.raw = true;
            self.agree();
        }
    }

    /// Gives the terminal back as it was.
    fn give_back(&mut self) {
        let mut left = Vec::new();
        self.screen.leave(&mut left);
        let _ = write_all(&self.outer, &left);
        if std::mem::take(&mut self.raw) && self.in_front() {
            let _ = tcsetattr(&self.outer, OptionalActions::Drain, &self.before);
        }
    }

    fn resize(&mut self) {
        if let Ok(size) = tcgetwinsize(&self.outer) {
            let _ = tcsetwinsize(&self.master, size);
            self.screen.resize(size.ws_row);
        }
    }

    /// Keys come as they are; output is treated as the command wants it treated,
    /// since others of our pipeline may write to the same terminal.
    fn agree(&self) {
        let Ok(inner) = tcgetattr(&self.master) else { return };
        let mut wanted = self.before.clone();
        wanted.make_raw();
        wanted.output_modes = inner.output_modes;
        let now = tcgetattr(&self.outer);
        if self.raw
            && now.is_ok_and(|now| {
                now.output_modes != wanted.output_modes || now.local_modes != wanted.local_modes
            })
        {
            let _ = tcsetattr(&self.outer, OptionalActions::Drain, &wanted);
        }
    }

    /// Passes output on; `false` when no more will come, or none is there now.
    fn show(&mut self) -> io::Result<bool> {
        let mut chunk = vec![0_u8; CHUNK];
        let length = match rustix::io::read(&self.master, &mut chunk) {
            Ok(length) => length,
            Err(Errno::INTR | Errno::AGAIN) => 0,
            Err(_) => return Ok(false),
        };
        let mut shown = Vec::with_capacity(length);
        self.screen.pass(chunk.get(..length).unwrap_or_default(), &mut shown);
        self.agree();
        if !self.gone && write_all(&self.outer, &shown).is_err() {
            self.hang_up();
        }
        Ok(length > 0)
    }

    fn read_keys(&mut self) {
        let mut chunk = [0_u8; 4096];
        match rustix::io::read(&self.outer, &mut chunk) {
            Ok(0) => self.raw = false,
            Ok(length) => {
                let keys = chunk.get(..length).unwrap_or_default();
                self.tell_pipeline(keys);
                self.typed.extend(keys);
                self.type_in();
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            // No longer in the foreground, or the terminal is gone.
            Err(_) => self.raw = false,
        }
    }

    /// The outer terminal makes no signals of keys now, so we do.
    fn tell_pipeline(&self, keys: &[u8]) {
        let Ok(inner) = tcgetattr(&self.master) else { return };
        if !inner.local_modes.contains(LocalModes::ISIG) {
            return;
        }
        for (code, signal) in [
            (SpecialCodeIndex::VINTR, Signal::INT),
            (SpecialCodeIndex::VQUIT, Signal::QUIT),
            (SpecialCodeIndex::VSUSP, Signal::TSTP),
        ] {
            if keys.contains(&inner.special_codes[code]) && inner.special_codes[code] != 0 {
                let _ = rustix::process::kill_current_process_group(signal);
            }
        }
    }

    fn type_in(&mut self) {
        if let Ok(length) = rustix::io::write(&self.master, &self.typed) {
            self.typed.drain(..length.min(self.typed.len()));
        }
    }
}

fn write_all(fd: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(fd, PollFlags::OUT)], None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
