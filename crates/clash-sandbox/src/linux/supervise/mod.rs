//! The launcher as the parent of a running command.
//!
//! The launcher has made a process namespace for its children. Its first child is process 1
//! of the room, which only waits. Its second child is the command. So the launcher itself
//! receives the command's exit status, death by signal and stops, and repeats them.
//!
//! The command stays in the launcher's process group and session, so the terminal talks to
//! it directly. The launcher passes on signals that a process sends to the launcher alone.
//! Signals of the terminal or the kernel to the group have already arrived. `SIGSTOP`
//! cannot be blocked, so stopping the launcher that way leaves the command running.
//!
//! Process 1 waits for a pipe that only the launcher holds, and when process 1 ends, the
//! kernel kills the processes of its namespace. So the room ends when the launcher is killed.
//! When the command ends and other processes are left, the launcher leaves the room to a
//! keeper ([`keeper`]), which then holds the pipe. If the policy says that the room ends with
//! its command, or without a ledger of rooms, every other process ends with the command.
//!
//! Without a room, the guard process is the command's parent ([`guard`]). It reports the
//! events of the command.

mod guard;
mod keeper;
mod processes;

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, RawDir, SeekFrom, openat, seek};
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, WaitStatus, wait, waitid, waitpid};
use rustix::thread::Timespec;

use super::cgroup::RoomCgroup;
use super::doors::DoorBroker;
use super::monitor::ScriptDrafts;
use super::outputs::OutputCopier;
use super::ports::PortCrossing;
use super::scratch::ScratchDirectory;
use super::stdio::InheritedStdio;
use super::sys;
use crate::launch::error::LaunchError;
use crate::witness::{self, ObservedEnd};
use guard::{CommandEvent, GuardHandle};
pub(crate) use keeper::{KeeperLine, KeeperOffer, KeeperPost, KeeperStart, OuterRequest};

/// Ends all processes that the command leaves behind.
#[derive(Debug)]
pub(crate) struct RoomKeeper {
    kind: KeeperKind,
    ports: Option<PortCrossing>,
    pub(crate) group: Option<RoomCgroup>,
    outputs: Option<OutputCopier>,
    doors: Option<DoorBroker>,
}

#[derive(Debug)]
enum KeeperKind {
    /// The room's process 1, and the pipe whose other end it waits for.
    First { pid: Option<Pid>, alive: Option<OwnedFd> },
    /// Without a room: the guard, whose children they become. The temporary directory is
    /// removed after them.
    Children { guard: GuardHandle, scratch: Option<ScratchDirectory> },
}

impl RoomKeeper {
    /// Starts process 1 in the process namespace of the launcher's children.
    pub(crate) fn start(
        mut ports: Option<PortCrossing>,
        group: Option<RoomCgroup>,
    ) -> Result<Self, LaunchError> {
        let failed = |error: Errno| LaunchError::Keeper(error.into());
        let (wait, alive) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(failed)?;
        let given = Box::leak(Box::new(wait.as_raw_fd()));
        let pid = sys::run_beside(keep, given).map_err(LaunchError::Keeper)?;
        let kind = KeeperKind::First { pid: Pid::from_raw(pid), alive: Some(alive) };
        if let Some(ports) = &mut ports {
            ports.serve()?;
        }
        Ok(Self { kind, ports, group, outputs: None, doors: None })
    }

    /// The keeper of a command without a room.
    pub(crate) fn of_children(
        group: Option<RoomCgroup>,
        scratch: Option<ScratchDirectory>,
    ) -> Result<Self, LaunchError> {
        let guard = GuardHandle::new().map_err(LaunchError::Keeper)?;
        let kind = KeeperKind::Children { guard, scratch };
        Ok(Self { kind, ports: None, group, outputs: None, doors: None })
    }

    /// Adds the copying of output files. The end of the room then waits until everything is
    /// copied.
    pub(crate) fn with_outputs(self, outputs: Option<OutputCopier>) -> Self {
        Self { outputs, ..self }
    }

    /// Adds the broker of the doors. The end of the room then ends the commands behind them.
    pub(crate) fn with_doors(self, doors: Option<DoorBroker>) -> Self {
        Self { doors, ..self }
    }

    /// Runs `job` in a new process, and waits until that process has become the command or
    /// ended.
    pub(crate) fn run_until_exec(&self, job: impl FnMut()) -> io::Result<libc::pid_t> {
        match &self.kind {
            KeeperKind::First { .. } => sys::run_until_exec(job),
            KeeperKind::Children { guard, .. } => guard.run_until_exec(job),
        }
    }

    /// Ends the room while the command still runs. In a room the command is a child of the
    /// launcher. The kernel lets process 1 end only after the launcher has reaped the
    /// command.
    pub(crate) fn end_with(&mut self, child: libc::pid_t) {
        if matches!(self.kind, KeeperKind::First { .. }) {
            sys::kill(child, libc::SIGKILL);
            while matches!(waitpid(Pid::from_raw(child), WaitOptions::empty()), Err(Errno::INTR)) {}
        }
        self.end();
    }

    /// Reads the events of the command. Stops the launcher when the command stops.
    fn look_after(&self, child: libc::pid_t) -> Option<CommandEnd> {
        let guard = match &self.kind {
            KeeperKind::First { .. } => return look_after(child),
            KeeperKind::Children { guard, .. } => guard,
        };
        loop {
            match guard.next_event()? {
                CommandEvent::Exited(code) => return Some(CommandEnd::Exit(code)),
                CommandEvent::Died(signal) => return Some(CommandEnd::Signal(signal)),
                CommandEvent::Stopped(signal) => sys::take(signal),
            }
        }
    }

    /// True if a room has no process but process 1.
    pub(crate) fn is_free(&self) -> bool {
        matches!(self.kind, KeeperKind::First { .. }) && alone()
    }

    /// Leaves the room to a keeper if processes are left in it, or ends the room. The keeper
    /// does not get the descriptors of the launcher's caller.
    pub(crate) fn end_or_leave(
        mut self,
        heir: Option<KeeperOffer<'_>>,
        deadline: Option<Instant>,
        inherited: &InheritedStdio,
    ) {
        let Some(KeeperOffer { line, given }) = heir else { return self.end() };
        let outputs = self.outputs.take();
        let held = outputs.iter().flat_map(OutputCopier::descriptors);
        let closed = held.chain(inherited.descriptors()).chain(given.iter().copied()).collect();
        if let Err(mut keeper) = self.leave(line, deadline, closed) {
            keeper.outputs = outputs;
            keeper.end();
        }
    }

    /// Ends the room. Process 1 ends, the kernel kills the processes of its namespace, and
    /// all are gone when this returns. If process 1 is alone, there is nothing to wait for.
    /// It then ends after the launcher, and takes the room down while the caller already
    /// continues.
    pub(crate) fn end(&mut self) {
        // Dropped last.
        let outputs = self.outputs.take();
        if let Some(ports) = &mut self.ports {
            ports.end_inside();
        }
        match &mut self.kind {
            KeeperKind::First { .. } if alone() => {}
            KeeperKind::First { pid, alive } => {
                *alive = None;
                if let Some(pid) = pid {
                    sys::kill(pid.as_raw_nonzero().get(), libc::SIGKILL);
                }
                reap_until(*pid);
            }
            KeeperKind::Children { guard, scratch } => {
                guard.end();
                // The guard may have been killed before.
                let remover = scratch.as_ref().and_then(|scratch| scratch.remover);
                end_children(&[remover, outputs.as_ref().and_then(|outputs| outputs.relay)]);
                *scratch = None;
            }
        }
        if let Some(doors) = self.doors.take() {
            doors.end();
        }
        self.ports = None;
        self.group = None;
    }
}

/// True if process 1 is the only process of the room. The launcher's root is already the
/// room's. The list of process 1's children is not enough: with `CLONE_PARENT` the command
/// can make children of the launcher. And the seccomp listener reports its end before a
/// process has closed its files.
fn alone() -> bool {
    /// The offset at which /proc begins to list processes. If it is another, the first
    /// entry is not process 1.
    const PROCESSES: u64 = 258;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(processes) = openat(CWD, c"/proc", flags, Mode::empty()) else { return false };
    if seek(&processes, SeekFrom::Start(PROCESSES)) != Ok(PROCESSES) {
        return false;
    }
    let mut space = [const { MaybeUninit::uninit() }; 256];
    let mut listed = RawDir::new(&processes, &mut space);
    let first = listed.next().is_some_and(|it| it.is_ok_and(|it| it.file_name() == c"1"));
    first && listed.next().is_none()
}

/// Waits for process 1. The kernel lets it end when all other processes of the room are
/// reaped. The launcher's own children are among them.
fn reap_until(first: Option<Pid>) {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, _))) if Some(pid) == first => return,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Kills and reaps all children except `but`. The children of a killed child become
/// children of the launcher.
fn end_children(but: &[Option<Pid>]) {
    let own = rustix::process::getpid().as_raw_nonzero();
    let list = format!("/proc/self/task/{own}/children");
    while let Ok(children) = std::fs::read_to_string(&list) {
        let children = children.split_whitespace().flat_map(str::parse::<i32>);
        // A child that is just being reaped has the number 0. A signal to 0 would reach the
        // whole process group.
        let is_meant = |pid: &i32| *pid > 0 && !but.contains(&Pid::from_raw(*pid));
        let children: Vec<i32> = children.filter(is_meant).collect();
        if children.is_empty() {
            return;
        }
        for child in children {
            sys::kill(child, libc::SIGKILL);
            while matches!(waitpid(Pid::from_raw(child), WaitOptions::empty()), Err(Errno::INTR)) {}
        }
    }
}

/// Process 1. It must not touch `errno`, allocate or panic.
fn keep(launcher: &RawFd) {
    sys::forget_children();
    // The end of the launcher wakes this process, and the end must not wait for it.
    sys::use_batch_scheduling();
    let _ = rustix::process::chdir(c"/");
    // Closes everything except the pipe. The caller of the launcher may wait for the end of
    // its output, so this process must not hold it.
    sys::close_all_but(*launcher);
    sys::was_released(*launcher);
    // Ending a room keeps a CPU busy as long as building it. The kernel often wakes the
    // caller of the launcher on the same CPU, so process 1 lets it run first.
    let _ = rustix::thread::nanosleep(&END_DELAY);
}

const END_DELAY: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000 };

/// A room with a command in it.
pub(crate) struct AttendedRoom<'a> {
    pub(crate) keeper: RoomKeeper,
    /// True if the room may take another command when this one has ended.
    pub(crate) is_kept: &'a dyn Fn() -> bool,
}

/// The end of the wait for a command whose end the launcher does not repeat.
pub(crate) enum AttendedEnd {
    Failed(LaunchError),
    /// No process is left in the room, and it can take another command.
    Free(Box<RoomKeeper>, CommandEnd),
}

/// Waits for the command and repeats its end: exits with its status or dies by its signal.
/// Returns only on failure, when the time is up, if the room is kept, or if the command
/// succeeded but did not see that its change of a script was refused.
pub(crate) fn attend(
    room: AttendedRoom<'_>,
    inherited: &InheritedStdio,
    child: libc::pid_t,
    heir: Option<KeeperOffer<'_>>,
    wall: Option<u64>,
    drafts: Option<&ScriptDrafts>,
) -> AttendedEnd {
    let AttendedRoom { mut keeper, is_kept } = room;
    let failed = |error| AttendedEnd::Failed(LaunchError::Waiting(error));
    if matches!(keeper.kind, KeeperKind::First { .. }) {
        let _ = rustix::process::chdir(c"/");
    }
    let wall_time = wall.map(Duration::from_secs);
    // A stop of the command also stops the launcher, so a timer has to continue it.
    if let Some(Err(error)) = wall_time.map(sys::continue_after) {
        keeper.end_with(child);
        return failed(error);
    }
    let deadline = wall_time.map(|time| Instant::now() + time);
    loop {
        if let Some(end) = keeper.look_after(child) {
            witness::ended(end.observed());
            let unseen = drafts.and_then(ScriptDrafts::unseen);
            if unseen.is_none() && keeper.is_free() && is_kept() {
                inherited.put_back();
                return AttendedEnd::Free(Box::new(keeper), end);
            }
            keeper.end_or_leave(heir, deadline, inherited);
            inherited.put_back();
            if matches!(end, CommandEnd::Exit(0))
                && let Some(path) = unseen
            {
                return AttendedEnd::Failed(LaunchError::KeptScript { path });
            }
            end.repeat();
        }
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        match sys::next_signal(left) {
            Ok(Some(arrived)) => pass_on(arrived, child),
            Ok(None) => {
                witness::ended(ObservedEnd::OutOfTime);
                keeper.end_with(child);
                inherited.put_back();
                let seconds = wall.unwrap_or_default();
                return AttendedEnd::Failed(LaunchError::OutOfTime { seconds });
            }
            Err(error) => {
                keeper.end_with(child);
                return failed(error);
            }
        }
    }
}

/// The end of the command.
pub(crate) enum CommandEnd {
    Exit(i32),
    Signal(i32),
}

impl CommandEnd {
    pub(crate) fn observed(&self) -> ObservedEnd {
        match self {
            Self::Exit(code) => ObservedEnd::Exit(*code),
            Self::Signal(signal) => ObservedEnd::Signal(*signal),
        }
    }

    /// Ends this process as the command ended.
    pub(crate) fn repeat(self) -> ! {
        match self {
            Self::Exit(code) => sys::exit_now(code),
            Self::Signal(signal) => {
                sys::no_core_dump();
                sys::take(signal);
                // The signal is ignored or did not end this process. A shell reports the
                // same status.
                sys::exit_now(128 + signal)
            }
        }
    }
}

/// As `Keeper::look_after`, for a child of this process. A child that cannot be waited for
/// counts as ended with 125.
fn look_after(child: libc::pid_t) -> Option<CommandEnd> {
    let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
    loop {
        match waitpid(Pid::from_raw(child), options) {
            Ok(Some((_, status))) => {
                if let Some(end) = ended(status) {
                    return Some(end);
                }
                if let Some(signal) = status.stopping_signal() {
                    sys::take_unless(signal, || goes_on(child));
                }
            }
            Ok(None) => return None,
            Err(Errno::INTR) => {}
            Err(_) => return Some(CommandEnd::Exit(125)),
        }
    }
}

/// A change of a child of this process.
pub(crate) enum ChildChange {
    Ended(CommandEnd),
    Stopped,
}

/// The next change of a child, without waiting. A child that cannot be waited for counts as
/// ended with 125.
pub(crate) fn next_change(child: libc::pid_t) -> Option<ChildChange> {
    let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
    loop {
        match waitpid(Pid::from_raw(child), options) {
            Ok(Some((_, status))) => {
                return match ended(status) {
                    Some(end) => Some(ChildChange::Ended(end)),
                    None => Some(ChildChange::Stopped),
                };
            }
            Ok(None) => return None,
            Err(Errno::INTR) => {}
            Err(_) => return Some(ChildChange::Ended(CommandEnd::Exit(125))),
        }
    }
}

/// True if a stopped child has continued or ended.
fn goes_on(child: libc::pid_t) -> bool {
    let Some(child) = Pid::from_raw(child) else { return false };
    let changes = WaitIdOptions::CONTINUED | WaitIdOptions::EXITED;
    let look = changes | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(child), look), Ok(Some(_)))
}

/// The end of a process, or `None` if it only stopped or continued.
pub(crate) fn ended(status: WaitStatus) -> Option<CommandEnd> {
    let exit = status.exit_status().map(CommandEnd::Exit);
    exit.or_else(|| status.terminating_signal().map(CommandEnd::Signal))
}

/// Passes a signal from another process on to the command. Leaves out `SIGCHLD`, and signals
/// of the terminal, which the command gets itself.
pub(crate) fn pass_on(arrived: sys::ArrivedSignal, child: libc::pid_t) {
    let own_business = arrived.signal == libc::SIGCHLD;
    if own_business || !arrived.from_process {
        return;
    }
    sys::kill(child, arrived.signal);
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::ForkSide;

    /// A launcher and its command in one process. The launcher sees the stop of a command
    /// that has continued since.
    fn looks_late(signal: libc::c_int) -> i32 {
        // The parent of this process group is in the same session. Otherwise the kernel
        // would not stop it.
        let ready = rustix::process::setpgid(None, None).is_ok() && sys::hold_signals().is_ok();
        let Ok(ForkSide::Parent(child)) = sys::fork().inspect(|fork| {
            if matches!(fork, ForkSide::Child) {
                sys::take(libc::SIGSTOP);
                sys::exit_now(0);
            }
        }) else {
            return 1;
        };
        let pid = Pid::from_raw(child);
        let stopped = waitpid(pid, WaitOptions::UNTRACED);
        sys::kill(child, libc::SIGCONT);
        while !goes_on(child) {
            std::thread::yield_now();
        }
        sys::take_unless(signal, || goes_on(child));
        let ended = waitpid(pid, WaitOptions::empty());
        if ready && stopped.is_ok() && ended.is_ok() { 7 } else { 1 }
    }

    #[test]
    fn a_stop_that_is_over_does_not_stop_the_launcher() {
        for signal in [libc::SIGTSTP, libc::SIGSTOP] {
            let launcher = match sys::fork().unwrap() {
                ForkSide::Child => sys::exit_now(looks_late(signal)),
                ForkSide::Parent(launcher) => launcher,
            };
            let (_, status) =
                waitpid(Pid::from_raw(launcher), WaitOptions::UNTRACED).unwrap().unwrap();
            if status.stopped() {
                sys::kill(launcher, libc::SIGKILL);
                waitpid(Pid::from_raw(launcher), WaitOptions::empty()).unwrap();
            }
            assert_eq!(status.exit_status(), Some(7), "{signal}");
        }
    }
}
