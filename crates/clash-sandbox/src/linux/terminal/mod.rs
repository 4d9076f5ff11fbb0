//! A pseudo-terminal for the command.
//!
//! A process that holds the user's terminal can do more than write to it. It can ask the
//! terminal questions, and the terminal types the answers into the next shell. It can read
//! and set the clipboard. It can leave the terminal in a state in which passwords are
//! echoed. So if stdin, stdout or stderr is a terminal, the command gets a pseudo-terminal
//! instead. A relay passes keys on unchanged, and output through [`screen`]. Pipes and
//! files stay as they are.
//!
//! There are three processes:
//!
//! - The *relay* is the process that the user started. It stays in its session and process
//!   group, so the shell's job control sees the same job. It stops when the command stops,
//!   and ends as the command ended.
//! - The *leader* has a session of its own, with the pseudo-terminal. The command thereby
//!   has a parent in the same session; without one the kernel would not let it stop.
//! - The third becomes the command, or the room's launcher, in the foreground of that
//!   session.
//!
//! Keys go through the line discipline of the inner terminal, which turns ^C, ^\ and ^Z
//! into signals for the command. The relay sends the same signals to its own process group,
//! because the other commands of a pipeline are there. Keys typed ahead while a command
//! runs belong to the command, whether it reads them or not.

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
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcgetwinsize,
    tcsetattr, tcsetpgrp, tcsetwinsize,
};

use super::supervise::{CommandEnd, ended};
use super::sys::{self, ArrivedSignal, ForkSide};
use crate::plan::SandboxPlan;
use crate::plan::room::{MountStep, RoomInterior};
use screen::ScreenFilter;

/// Bytes per read, and the maximum of typed bytes kept for a command that does not read.
const RELAY_CHUNK_BYTES: usize = 64 * 1024;

/// Gives the calling process a pseudo-terminal in place of the user's terminal. `held` says
/// which standard streams are terminals; with none, nothing happens. Returns in the process
/// that is to become the command. The calling process itself stays as the relay and ends with
/// the command.
pub(crate) fn separate_terminal(held: [bool; 3]) -> io::Result<()> {
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
        ForkSide::Parent(leader) => {
            drop(inner);
            let screen = ScreenFilter::new(size.ws_row);
            TerminalRelay {
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
        ForkSide::Child => {
            drop(master);
            lead(&inner, held)?;
            sys::set_mask(&mask)
        }
    }
}

/// True if the caller has a controlling terminal that is on none of its standard streams. The
/// command could open it as /dev/tty, and no filter would apply.
pub(crate) fn has_unused_terminal(held: [bool; 3]) -> bool {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    held == [false; 3] && rustix::fs::open(TTY, flags, Mode::empty()).is_ok()
}

/// The plan without /dev/tty: no grant, and a mount over it where Landlock does not restrict
/// files. Signals of the terminal's keys still reach the command, which stays in its process
/// group.
pub(crate) fn without_terminal(plan: &SandboxPlan) -> SandboxPlan {
    let mut plan = plan.clone();
    let is_other = |path: &Path| path != Path::new(TTY);
    plan.baseline.retain(|(entry, _)| is_other(Path::new(entry.path)));
    if let Some(watch) = &mut plan.watch {
        watch.rights.baseline.retain(|(path, _)| is_other(path));
    }
    if let Some(room) = &mut plan.room
        && room.inside == RoomInterior::Rooms
    {
        // Landlock does not restrict this room's files, so a mount covers the terminal.
        let devices = room.steps.iter().position(|step| *step == MountStep::Devices);
        let cover = MountStep::Cover { path: TTY.into(), file: true, shows: Vec::new() };
        room.steps.insert(devices.map_or(room.steps.len(), |at| at + 1), cover);
    }
    plan
}

const TTY: &str = "/dev/tty";

fn die_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Makes a session with the pseudo-terminal and starts the process that becomes the command.
/// Returns only there; the leader stays in [`look_after`].
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
        ForkSide::Parent(child) => look_after(inner.as_fd(), child),
        ForkSide::Child => {
            die_with_parent()?;
            rustix::process::setpgid(None, None)?;
            // Signals are blocked, so the terminal does not stop this process for the call.
            Ok(tcsetpgrp(inner, getpid())?)
        }
    }
}

/// The leader: stops and continues with the command, and ends as it ended. Passes signals on
/// to it.
fn look_after(inner: BorrowedFd<'_>, child: libc::pid_t) -> ! {
    loop {
        match poll_child(child) {
            Some(ChildChange::Ended(end)) => end.repeat(),
            Some(ChildChange::Stopped) => {
                // The leader's process group has no parent in its session. Only `SIGSTOP`
                // can stop such a group.
                sys::kill(sys::own_pid(), libc::SIGSTOP);
                if let Some(group) = Pid::from_raw(child) {
                    let _ = tcsetpgrp(inner, group);
                    let _ = rustix::process::kill_process_group(group, Signal::CONT);
                }
            }
            None => match sys::next_signal(None) {
                Ok(arrived) => forward_signal(arrived, child),
                Err(_) => sys::exit_now(125),
            },
        }
    }
}

/// Passes a signal on to the child if a process sent it. The terminal's own signals reach the
/// child without help.
fn forward_signal(arrived: Option<ArrivedSignal>, child: libc::pid_t) {
    if let Some(arrived) = arrived
        && arrived.from_process
        && !matches!(arrived.signal, libc::SIGCHLD | libc::SIGCONT)
    {
        sys::kill(child, arrived.signal);
    }
}

enum ChildChange {
    Ended(CommandEnd),
    Stopped,
}

/// The change of a child's state since the last call; `None` if there is none. A child that
/// cannot be waited for counts as ended with status 125.
fn poll_child(child: libc::pid_t) -> Option<ChildChange> {
    loop {
        match waitpid(Pid::from_raw(child), WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((_, status))) => return change_of_status(status),
            Ok(None) => return None,
            Err(Errno::INTR) => {}
            Err(_) => return Some(ChildChange::Ended(CommandEnd::Exit(125))),
        }
    }
}

fn change_of_status(status: WaitStatus) -> Option<ChildChange> {
    ended(status)
        .map(ChildChange::Ended)
        .or_else(|| status.stopped().then_some(ChildChange::Stopped))
}

/// The process between the two terminals.
struct TerminalRelay {
    outer: OwnedFd,
    master: OwnedFd,
    /// The settings of the outer terminal at the start.
    before: Termios,
    screen: ScreenFilter,
    leader: libc::pid_t,
    /// Keys that the command has not read yet.
    typed: Vec<u8>,
    /// True while the outer terminal is in raw mode.
    raw: bool,
    /// True if the outer terminal has hung up.
    gone: bool,
}

/// The interval at which a background job looks whether the shell has brought it to the
/// foreground.
const FOREGROUND_POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

impl TerminalRelay {
    /// Relays until the command ends, and ends as it ended. On an error, restores the terminal,
    /// kills the leader and exits with 125.
    fn run(mut self) -> ! {
        match self.relay() {
            Ok(end) => end.repeat(),
            Err(_) => {
                self.restore_terminal();
                sys::kill(self.leader, libc::SIGKILL);
                sys::exit_now(125)
            }
        }
    }

    /// Passes keys, output and signals between the two terminals until the command ends, and
    /// returns its end. Takes keys only while this process is in the foreground; looks for
    /// that from time to time.
    fn relay(&mut self) -> io::Result<CommandEnd> {
        let signals = sys::signals()?;
        rustix::io::ioctl_fionbio(&self.master, true)?;
        self.come_forward();
        let mut open = true;
        loop {
            let reading = self.raw && self.typed.len() < RELAY_CHUNK_BYTES;
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
            // A terminal that has hung up would always be ready.
            let watched = if self.gone { fds.get_mut(..2).unwrap_or_default() } else { &mut fds };
            // A background job gets no event when the shell brings it to the foreground, so
            // poll with a timeout.
            let timeout = (!self.raw && !self.gone).then_some(&FOREGROUND_POLL);
            let idle = match poll(watched, timeout) {
                Ok(ready) => ready == 0,
                Err(Errno::INTR) => false,
                Err(error) => return Err(error.into()),
            };
            let [signal, output, keys] = fds.map(|fd| fd.revents());
            if idle {
                self.come_forward();
            }
            if output.contains(PollFlags::OUT) {
                self.write_keys();
            }
            if open && output.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                open = self.pass_output()?;
            }
            if keys.contains(PollFlags::IN) {
                self.read_keys();
            } else if keys.intersects(PollFlags::HUP | PollFlags::ERR) {
                self.hang_up();
            }
            if signal.contains(PollFlags::IN)
                && let Some(end) = self.handle_signal(&signals)?
            {
                return Ok(end);
            }
        }
    }

    /// Hangs up the command's terminal, because the user's terminal is gone.
    fn hang_up(&mut self) {
        self.raw = false;
        self.gone = true;
        sys::kill(self.leader, libc::SIGHUP);
    }

    /// Handles one blocked signal. Returns the end of the command if it has ended. Signals
    /// from processes go to the leader; a stop of the command stops this process as well.
    fn handle_signal(&mut self, signals: &OwnedFd) -> io::Result<Option<CommandEnd>> {
        let Some(arrived) = sys::held_signal(signals)? else { return Ok(None) };
        match arrived.signal {
            libc::SIGCHLD => match poll_child(self.leader) {
                Some(ChildChange::Ended(end)) => {
                    while self.pass_output()? {}
                    self.restore_terminal();
                    // Reaps the processes started before the command. Some systems have no
                    // init process that would.
                    while let Ok(Some(_)) = waitpid(None, WaitOptions::NOHANG) {}
                    return Ok(Some(end));
                }
                Some(ChildChange::Stopped) => {
                    self.restore_terminal();
                    sys::take(libc::SIGTSTP);
                    self.come_forward();
                    sys::kill(self.leader, libc::SIGCONT);
                }
                None => {}
            },
            libc::SIGWINCH => self.resize(),
            libc::SIGCONT => self.come_forward(),
            // A key pressed before raw mode. The outer terminal signalled only the relay's
            // process group.
            signal @ (libc::SIGINT | libc::SIGQUIT | libc::SIGTSTP) if !arrived.from_process => {
                sys::kill(self.leader, signal);
            }
            signal if arrived.from_process && !arrived.from_self => sys::kill(self.leader, signal),
            _ => {}
        }
        Ok(None)
    }

    /// True if this is the terminal's foreground job, or the terminal has no job control.
    fn in_front(&self) -> bool {
        tcgetpgrp(&self.outer)
            .map_or(true, |group| group.as_raw_nonzero().get() == sys::own_group())
    }

    /// Puts the outer terminal into raw mode, if this job is in the foreground.
    fn come_forward(&mut self) {
        self.resize();
        if !self.raw && self.in_front() {
            if let Ok(before) = tcgetattr(&self.outer) {
                self.before = before;
            }
            self.raw = true;
            self.set_raw_mode();
        }
    }

    /// Restores the outer terminal: first the modes that the command switched, then the
    /// settings from the start, if this job is in the foreground.
    fn restore_terminal(&mut self) {
        let mut left = Vec::new();
        self.screen.restore_modes(&mut left);
        let _ = write_all(&self.outer, &left);
        if std::mem::take(&mut self.raw) && self.in_front() {
            let _ = tcsetattr(&self.outer, OptionalActions::Drain, &self.before);
        }
    }

    /// Gives the inner terminal the size of the outer one.
    fn resize(&mut self) {
        if let Ok(size) = tcgetwinsize(&self.outer) {
            let _ = tcsetwinsize(&self.master, size);
            self.screen.resize(size.ws_row);
        }
    }

    /// Sets raw input on the outer terminal while this job is in the foreground. Output
    /// settings are those that the command wants, because other commands of the pipeline may
    /// write to the same terminal.
    fn set_raw_mode(&self) {
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

    /// Passes one chunk of the command's output through the filter to the outer terminal.
    /// Returns `false` at the end, or if no output is there now. Hangs up if the outer
    /// terminal takes no more.
    fn pass_output(&mut self) -> io::Result<bool> {
        let mut chunk = vec![0_u8; RELAY_CHUNK_BYTES];
        let length = match rustix::io::read(&self.master, &mut chunk) {
            Ok(length) => length,
            Err(Errno::INTR | Errno::AGAIN) => 0,
            Err(_) => return Ok(false),
        };
        let mut shown = Vec::with_capacity(length);
        self.screen.filter(chunk.get(..length).unwrap_or_default(), &mut shown);
        self.set_raw_mode();
        if !self.gone && write_all(&self.outer, &shown).is_err() {
            self.hang_up();
        }
        Ok(length > 0)
    }

    /// Reads keys from the outer terminal and passes them on. An error or end means that the
    /// job is in the background now, or the terminal is gone: then raw mode counts as lost.
    fn read_keys(&mut self) {
        let mut chunk = [0_u8; 4096];
        match rustix::io::read(&self.outer, &mut chunk) {
            Ok(0) => self.raw = false,
            Ok(length) => {
                let keys = chunk.get(..length).unwrap_or_default();
                self.signal_own_group(keys);
                self.typed.extend(keys);
                self.write_keys();
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => self.raw = false,
        }
    }

    /// Sends the signals of ^C, ^\ and ^Z to this process group, as the inner terminal has
    /// them set. In raw mode the outer terminal does not.
    fn signal_own_group(&self, keys: &[u8]) {
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

    /// Writes as many kept keys as the inner terminal takes now. The others stay.
    fn write_keys(&mut self) {
        if let Ok(length) = rustix::io::write(&self.master, &self.typed) {
            self.typed.drain(..length.min(self.typed.len()));
        }
    }
}

/// Writes all bytes; waits if the descriptor takes none now.
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
