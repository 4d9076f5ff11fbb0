//! Further commands in a room that is kept.
//!
//! Namespaces, mount tree, Landlock ruleset and filter stay. Each command gets a process that
//! restricts itself anew, an ipc namespace of its own, and a monitor that knows nothing of
//! earlier commands. A room has one command at a time, and only while no process, file,
//! socket or mode of an earlier one is left in it.

use std::ffi::{CString, OsStr, c_long};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use clash_door::{DoorReply, DoorRequest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{Pid, getppid, setpgid};

use super::phases::{CommandContext, LaunchResult};
use super::{CommandOfDoor, LaunchCommand, LaunchError, restrict};
use crate::linux::doors::{KeptPlace, RoomCondition, RoomRequest};
use crate::linux::monitor::{MonitorInputs, ScriptDrafts, identity_of_stream};
use crate::linux::stdio::InheritedStdio;
use crate::linux::supervise::{self, ChildChange, CommandEnd, KeeperLine, KeeperOffer, RoomKeeper};
use crate::linux::sys::{self, ProcessStack, SocketDiagnosis};
use crate::linux::target::ExecTarget;
use crate::plan::SandboxPlan;
use crate::plan::room::{MountStep, RoomInterior};
use crate::witness;

/// True if a room of this plan can take a second command. Rooms with parts that belong to one
/// command, or that other rooms wait for, cannot: a cgroup, a time limit, a range of process
/// numbers, ports, a gate, caches, returned files.
pub(super) fn may_keep(plan: &SandboxPlan) -> bool {
    let Some(room) = &plan.room else { return false };
    let is_shared =
        |step: &MountStep| matches!(step, MountStep::Cache { .. } | MountStep::Resolver { .. });
    room.ports.is_empty()
        && room.returned.is_empty()
        && room.inside == RoomInterior::Commands
        && !room.steps.iter().any(is_shared)
        && plan.group.is_none()
        && plan.limits.wall_seconds.is_none()
        && !(plan.root && plan.limits.processes.is_some())
        && plan.redirects.is_empty()
}

/// The condition of the room's own places, read by the command's process just before it
/// restricts itself.
pub(super) fn condition(plan: &SandboxPlan, line: &KeeperLine) -> Option<RoomCondition> {
    let room = plan.room.as_ref()?;
    RoomCondition::read(&room.own(), room.own_network.then(|| line.processes()))
}

/// A launcher whose room takes further commands.
pub(super) struct KeptLauncher<'a> {
    pub(super) launch: CommandContext<'a>,
    pub(super) line: &'a KeeperLine,
    pub(super) place: KeptPlace,
    /// The condition before the first command.
    pub(super) condition: RoomCondition,
    pub(super) diagnosis: Option<Arc<SocketDiagnosis>>,
    /// Descriptors from 3 on that the first command had.
    pub(super) given: &'a [RawFd],
}

/// The pause between looks at the parent and at claims of the room.
const LOOK_PAUSE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
const FIRST_LOOK_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

impl KeptLauncher<'_> {
    /// Reports the end of the first command, and serves further ones until the broker ends.
    pub(super) fn serve(self, mut keeper: RoomKeeper, end: &CommandEnd) -> ! {
        let follower = getppid();
        self.place.rest();
        // After the report the process that answered the first visit ends.
        if let Ok((mut stack, signals)) = self.leave_caller()
            && sys::outlive_parent().is_ok()
            && tell(&self.place.report, reply_of(end))
        {
            loop {
                let _ = setpgid(None, None);
                if !self.is_clean(&keeper) {
                    break;
                }
                self.place.wait();
                let Some(request) = self.next_request(follower) else { break };
                while let Ok(Some(_)) = sys::held_signal(&signals) {}
                keeper = self.run(keeper, request, &mut stack, &signals);
            }
        }
        keeper.end();
        sys::exit_now(0)
    }

    /// Lets go of everything that belongs to the first command and its caller.
    fn leave_caller(&self) -> io::Result<(ProcessStack, OwnedFd)> {
        let null = open_null()?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        sys::close_descriptors(self.given);
        Ok((ProcessStack::new()?, sys::signals()?))
    }

    /// True if the last command has left nothing in the room, and the monitor has finished
    /// with it.
    fn is_clean(&self, keeper: &RoomKeeper) -> bool {
        self.line.rest()
            && keeper.is_free()
            && condition(self.launch.plan, self.line).is_some_and(|now| now == self.condition)
    }

    /// Waits for a command; `None` if the broker has ended. When the process that answered
    /// the first visit has ended, the broker is this process's parent.
    fn next_request(&self, follower: Option<Pid>) -> Option<RoomRequest> {
        let (mut claim, mut pause, mut is_bound) = (None, FIRST_LOOK_PAUSE, false);
        loop {
            let mut ready = [PollFd::new(&self.place.requests, PollFlags::IN)];
            match poll(&mut ready, Some(&pause)) {
                Ok(0) => {}
                Ok(_) => return RoomRequest::receive(&self.place.requests),
                Err(Errno::INTR) => continue,
                Err(_) => return None,
            }
            // A broker that has ended before closes the socket.
            if !is_bound && getppid() != follower {
                is_bound = sys::die_with_parent().is_ok();
            }
            pause = LOOK_PAUSE;
            claim = self.place.look_at_claim(claim);
        }
    }

    /// Runs one command to its end, and gives the keeper of the room back. Ends this process
    /// if the room cannot take another command.
    fn run(
        &self,
        mut keeper: RoomKeeper,
        mut request: RoomRequest,
        stack: &mut ProcessStack,
        signals: &OwnedFd,
    ) -> RoomKeeper {
        witness::renew(request.follower);
        self.line.ledger().rename(&request.shown);
        let joined_group = setpgid(None, Pid::from_raw(request.group)).is_ok();
        let mut listener: c_long = 0;
        let Some(child) = self.start(&mut request, stack, &mut listener) else {
            // The process that answers the visit sees that its socket closes, and makes a new
            // room.
            keeper.end();
            sys::exit_now(0)
        };
        let drafts = ScriptDrafts::default();
        let is_watched = match sys::listener(listener) {
            Some(listener) if self.launch.plan.watch.is_some() => {
                let streams = request.given.iter().filter(|(number, _)| *number <= 2);
                let stdio = streams.filter_map(|(_, fd)| identity_of_stream(fd)).collect();
                let (diagnosis, drafts) = (self.diagnosis.clone(), drafts.clone());
                self.line.watch(MonitorInputs { listener, diagnosis, stdio, drafts })
            }
            _ => self.launch.plan.watch.is_none(),
        };
        // A pipe would otherwise stay open after the command has closed it. Standard error
        // may get a message at the end.
        request.given.retain(|(number, _)| *number == 2);
        let report = &request.report;
        if !is_watched || !tell(report, DoorReply::Started { joined_group }) {
            keeper.end_with(child);
            sys::exit_now(0);
        }
        let Some(end) = self.attend(child, report, signals) else {
            keeper.end_with(child);
            sys::exit_now(0);
        };
        witness::ended(end.observed());
        self.place.rest();
        let unseen = drafts.unseen().filter(|_| matches!(end, CommandEnd::Exit(0)));
        if unseen.is_none() && keeper.is_free() {
            request.given.clear();
            tell(report, reply_of(&end));
            return keeper;
        }
        let heir = KeeperOffer { line: self.line, given: &[] };
        let errors = request.given.first().map(|(_, fd)| fd);
        if let (Some(path), Some(errors)) = (&unseen, errors) {
            let text = format!("clash: {}\n", LaunchError::KeptScript { path: path.clone() });
            let _ = rustix::io::write(errors, text.as_bytes());
        }
        request.given.clear();
        keeper.end_or_leave(Some(heir), None, &InheritedStdio::none());
        tell(report, if unseen.is_some() { DoorReply::Exited(126) } else { reply_of(&end) });
        sys::exit_now(0)
    }

    /// Starts the command. `None` if it does not run, for whatever reason.
    fn start(
        &self,
        request: &mut RoomRequest,
        stack: &mut ProcessStack,
        listener: &mut c_long,
    ) -> Option<libc::pid_t> {
        for number in 0..=2 {
            if !request.given.iter().any(|(given, _)| *given == number) {
                request.given.push((number, open_null().ok()?));
            }
        }
        let above = request.given.iter().map(|(number, _)| *number).fold(2, RawFd::max) + 1;
        let file = request.file.take();
        let file = file.map(|file| rustix::io::fcntl_dupfd_cloexec(&file, above)).transpose();
        let file = file.ok()?.map(Arc::new);
        let kept: Vec<RawFd> = file.iter().map(|file| file.as_raw_fd()).collect();
        let cwd = CString::new(request.cwd.clone().into_os_string().into_vec()).ok()?;
        let door = CommandOfDoor {
            name: std::mem::take(&mut request.name),
            cwd: std::mem::take(&mut request.cwd),
            descriptors: Vec::new(),
        };
        let command = LaunchCommand {
            program: std::mem::take(&mut request.program),
            args: std::mem::take(&mut request.args),
            env: std::mem::take(&mut request.env),
            cwd: None,
            door: Some(door),
            file,
        };
        let target = ExecTarget::new(&command).ok()?;
        let launch = CommandContext { command: &command, target: &target, ..self.launch };
        let given: Vec<(RawFd, RawFd)> =
            request.given.iter().map(|(number, fd)| (*number, fd.as_raw_fd())).collect();
        let RoomRequest { umask, ignored_signals, blocked_signals, .. } = *request;
        let (mut stop, mut failure) = (None, None);
        let started = stack.run_until_exec(|| {
            // The listener is in the table that this process shares until now.
            let release = || {
                sys::own_descriptors()?;
                sys::place_numbers(&given, above, &kept)?;
                sys::set_ignored_signals(ignored_signals);
                // A stop before `execve` would make the launcher wait, so it is sent later.
                stop = sys::held_stop();
                sys::set_blocked_signals(blocked_signals)
            };
            failure = Some(match settle(&cwd, umask) {
                Ok(()) => restrict::become_command(launch, listener, release),
                Err(error) => error,
            });
        });
        let child = started.ok().filter(|_| failure.is_none())?;
        if let Some(signal) = stop {
            sys::kill(child, signal);
        }
        Some(child)
    }

    /// Waits for the end of the command, reports its stops and passes signals on. `None` if
    /// the process that answers the visit, or the broker, has ended.
    fn attend(
        &self,
        child: libc::pid_t,
        report: &OwnedFd,
        signals: &OwnedFd,
    ) -> Option<CommandEnd> {
        loop {
            match supervise::next_change(child) {
                Some(ChildChange::Ended(end)) => return Some(end),
                Some(ChildChange::Stopped) => {
                    tell(report, DoorReply::Stopped);
                    continue;
                }
                None => {}
            }
            let mut ready = [
                PollFd::new(signals, PollFlags::IN),
                PollFd::new(report, PollFlags::IN),
                PollFd::new(&self.place.requests, PollFlags::empty()),
            ];
            if !matches!(poll(&mut ready, None), Ok(_) | Err(Errno::INTR)) {
                return None;
            }
            let [_, reported, broker_ended] = ready.map(|fd| !fd.revents().is_empty());
            while let Ok(Some(arrived)) = sys::held_signal(signals) {
                supervise::pass_on(arrived, child);
            }
            if broker_ended || reported && !pass_message_on(report, child) {
                return None;
            }
        }
    }
}

/// Passes a signal on that arrives as a message. False if the other end has closed.
fn pass_message_on(report: &OwnedFd, child: libc::pid_t) -> bool {
    let mut bytes = [0_u8; 16];
    match recv(report, &mut bytes, RecvFlags::DONTWAIT) {
        Ok((length, _)) => match bytes.get(..length).and_then(DoorRequest::decode) {
            Some(DoorRequest::Signal(signal)) => {
                sys::kill(child, signal);
                true
            }
            _ => false,
        },
        Err(Errno::AGAIN | Errno::INTR) => true,
        Err(_) => false,
    }
}

/// Work of the command's own process before it restricts itself.
fn settle(cwd: &CString, mask: u32) -> LaunchResult<()> {
    let hidden = |source: io::Error| LaunchError::HiddenWorkingDirectory {
        path: PathBuf::from(OsStr::from_bytes(cwd.as_bytes())),
        source,
    };
    // Objects of System V and message queues of an earlier command stay behind.
    sys::unshare(libc::CLONE_NEWIPC).map_err(LaunchError::Namespaces)?;
    rustix::process::umask(Mode::from_raw_mode(mask));
    rustix::process::chdir(cwd).map_err(|error| hidden(error.into()))?;
    // The caller may have put a link in the place of a directory.
    let now = rustix::process::getcwd(Vec::new()).map_err(|error| hidden(error.into()))?;
    if now == *cwd { Ok(()) } else { Err(hidden(Errno::NOENT.into())) }
}

fn open_null() -> io::Result<OwnedFd> {
    Ok(openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Tells the process that answers the visit. False if it has ended.
fn tell(report: &OwnedFd, reply: DoorReply) -> bool {
    send(report, &reply.encode(), SendFlags::NOSIGNAL).is_ok()
}

fn reply_of(end: &CommandEnd) -> DoorReply {
    match end {
        CommandEnd::Exit(code) => DoorReply::Exited(*code as u8),
        CommandEnd::Signal(signal) => DoorReply::Killed(*signal as u8),
    }
}
