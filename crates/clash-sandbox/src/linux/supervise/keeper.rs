//! The keeper of a room that outlives its command.
//!
//! The launcher ends with the command, because its caller waits for that. If processes are
//! left in the room, the launcher forks a keeper first. The keeper holds the same
//! descriptors: the pipe of process 1, the seccomp listener, the sockets of broker and
//! forwarders, locks. So nothing in the room notices the change. A thread from before
//! `unshare(CLONE_NEWPID)` forks it: the kernel puts the children of the main thread into
//! the room's process namespace, and those of the other threads into the host's.
//!
//! If the keeper is killed, the pipe closes, and process 1 or the guard ends the room.

use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, wait};

use super::processes::{left_processes, open_process};
use super::{KeeperKind, RoomKeeper, sys};
use crate::linux::doors::keep_processes;
use crate::linux::monitor::{MonitorInputs, OuterThread};
use crate::linux::sys::ForkSide;
use crate::room_ledger::{LeftRoom, RoomLedger};

/// The time in which processes that are about to end do so, for example `tee` after a
/// script.
const MAX_PARTING_TIME: Duration = Duration::from_millis(30);
const PARTING_PAUSE: Duration = Duration::from_millis(2);
/// The time between `SIGTERM` and `SIGKILL` when a room is stopped.
const MAX_STOP_TIME: Duration = Duration::from_secs(2);
/// The time in which killed processes end.
const MAX_END_TIME: Duration = Duration::from_secs(10);
/// The time in which a keeper takes over. Otherwise the room ends.
const MAX_START_TIME: Duration = Duration::from_secs(5);
/// The pause between interrupts of the thread that forks the keeper.
const INTERRUPT_PAUSE: Duration = Duration::from_millis(1);
/// The time in which the monitor finishes with a command that has ended.
const MAX_REST_TIME: Duration = Duration::from_millis(100);
/// The pause between looks at the room if no process can be waited for.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// The number of a thread that is not prepared yet, and of one that cannot be interrupted.
const UNPREPARED_THREAD: i32 = 0;
const NO_THREAD: i32 = -1;

/// The launcher's way to the thread that can fork a keeper.
pub(crate) struct KeeperLine {
    requests: Sender<OuterRequest>,
    /// The number of the thread, once it is prepared for requests.
    thread: Arc<AtomicI32>,
    ledger: Arc<dyn RoomLedger>,
    /// The host's /proc.
    processes: OwnedFd,
}

/// A request to the thread that can fork a keeper.
pub(crate) enum OuterRequest {
    Keep(Box<KeeperStart>),
    /// The command has ended. The answer says that nothing of it is left in the thread.
    Rest(Sender<()>),
    /// The room has another command, to which the monitor attends.
    Watch(Box<MonitorInputs>),
}

/// A way for a room to outlive its command.
#[derive(Clone, Copy)]
pub(crate) struct KeeperOffer<'a> {
    pub(crate) line: &'a KeeperLine,
    /// The descriptors from 3 on that the caller of a door gave to the command.
    pub(crate) given: &'a [RawFd],
}

/// The other end of a [`KeeperLine`].
pub(crate) struct KeeperPost {
    requests: Receiver<OuterRequest>,
    thread: Arc<AtomicI32>,
}

impl KeeperLine {
    /// Call this in the host's namespaces.
    pub(crate) fn new(ledger: Arc<dyn RoomLedger>) -> io::Result<(Self, KeeperPost)> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let processes = openat(CWD, "/proc", flags, Mode::empty())?;
        let (requests, received) = channel();
        let thread = Arc::new(AtomicI32::new(UNPREPARED_THREAD));
        let post = KeeperPost { requests: received, thread: thread.clone() };
        Ok((Self { requests, thread, ledger, processes }, post))
    }

    /// The number of the thread. Waits until the thread is prepared: on a busy machine, a
    /// short command can end before the thread has run at all.
    fn prepared_thread(&self) -> Option<i32> {
        let end = Instant::now() + MAX_START_TIME;
        loop {
            match self.thread.load(Ordering::Acquire) {
                UNPREPARED_THREAD if Instant::now() < end => std::thread::sleep(INTERRUPT_PAUSE),
                UNPREPARED_THREAD | NO_THREAD => return None,
                number => return Some(number),
            }
        }
    }

    /// Waits until the thread has finished with the last command. False if it cannot.
    pub(crate) fn rest(&self) -> bool {
        let (rested, answer) = channel();
        let asked = self.requests.send(OuterRequest::Rest(rested)).is_ok()
            && sys::handle_interrupts().is_ok();
        let end = Instant::now() + MAX_REST_TIME;
        while asked && Instant::now() < end {
            match answer.recv_timeout(INTERRUPT_PAUSE) {
                Ok(()) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
                // The kernel may not have told the thread that the command's filter is gone.
                Err(RecvTimeoutError::Timeout) => {
                    sys::interrupt_thread(self.thread.load(Ordering::Acquire));
                }
            }
        }
        false
    }

    /// Lets the monitor attend to another command. False if its thread has ended.
    pub(crate) fn watch(&self, inputs: MonitorInputs) -> bool {
        self.requests.send(OuterRequest::Watch(Box::new(inputs))).is_ok()
    }

    pub(crate) fn ledger(&self) -> &dyn RoomLedger {
        &*self.ledger
    }

    /// The host's /proc.
    pub(crate) fn processes(&self) -> &OwnedFd {
        &self.processes
    }
}

impl KeeperPost {
    /// Starts a thread that only waits for a request, for a room without a monitor.
    pub(crate) fn wait_in_thread(self) -> io::Result<()> {
        let run = move || {
            self.settle();
            while let Some(request) = self.wait_for_request() {
                match request {
                    OuterRequest::Keep(start) => match sys::fork() {
                        Ok(ForkSide::Child) => start.become_keeper(None),
                        Ok(ForkSide::Parent(keeper)) => start.report(keeper),
                        Err(_) => start.refuse(),
                    },
                    OuterRequest::Rest(rested) => drop(rested.send(())),
                    OuterRequest::Watch(_) => {}
                }
            }
        };
        std::thread::Builder::new().stack_size(128 * 1024).spawn(run).map(drop)
    }

    /// Prepares the calling thread for requests.
    pub(crate) fn settle(&self) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let number = if sys::accept_interrupts().is_ok() { thread } else { NO_THREAD };
        self.thread.store(number, Ordering::Release);
    }

    pub(crate) fn next_request(&self) -> Option<OuterRequest> {
        self.requests.try_recv().ok()
    }

    pub(crate) fn wait_for_request(&self) -> Option<OuterRequest> {
        self.requests.recv().ok()
    }
}

/// Everything that a keeper needs.
pub(crate) struct KeeperStart {
    keeper: RoomKeeper,
    ledger: Arc<dyn RoomLedger>,
    /// Process 1 or the guard, and the broker.
    first: OwnedFd,
    first_number: libc::pid_t,
    broker: Option<(OwnedFd, libc::pid_t)>,
    /// The process namespace of the room.
    namespace: Option<OwnedFd>,
    /// Closing it ends the guard.
    leash: Option<OwnedFd>,
    deadline: Option<Instant>,
    /// Descriptors of the caller, which the keeper must not hold.
    closed: Vec<RawFd>,
    ready: OwnedFd,
    /// Wakes the launcher when the answer is there.
    call: OwnedFd,
    answer: Sender<HandoverAnswer>,
}

/// The answer of the thread that forks: the parts of the room, and the keeper's number.
type HandoverAnswer = (Box<KeeperStart>, Option<libc::pid_t>);

impl KeeperStart {
    /// Tells the launcher that the keeper exists.
    pub(crate) fn report(self, keeper: libc::pid_t) {
        self.send_answer(Some(keeper));
    }

    /// Tells the launcher that there is no keeper.
    pub(crate) fn refuse(self) {
        self.send_answer(None);
    }

    fn send_answer(self, keeper: Option<libc::pid_t>) {
        let (answer, call) = (self.answer.clone(), self.call.try_clone());
        let _ = answer.send((Box::new(self), keeper));
        let _ = call.map(|call| rustix::io::write(call, b"1"));
    }

    /// Turns this process into the keeper, stays until the room has ended, and removes the
    /// room's record. Ends with status 1 if it cannot begin; the launcher then ends the room.
    pub(crate) fn become_keeper(mut self, monitor: Option<&mut OuterThread>) -> ! {
        let status = match self.settle(monitor) {
            Ok(signals) => {
                self.keep(&signals);
                self.ledger.leave();
                0
            }
            // The launcher sees that the pipe closes, and ends the room.
            Err(_) => 1,
        };
        sys::exit_now(status)
    }

    /// Makes this process independent of the launcher and its caller: a session of its own,
    /// `/` as directory, /dev/null as streams, none of the caller's descriptors, signals
    /// held. Then resumes the monitor, writes the room's record, and tells the launcher that
    /// it may end. Returns the descriptor for the held signals.
    fn settle(&self, monitor: Option<&mut OuterThread>) -> io::Result<OwnedFd> {
        let _ = rustix::process::setsid();
        let _ = rustix::process::chdir(c"/");
        let _ = rustix::thread::set_name(c"clash-keeper");
        // The caller may wait for the end of its output, so this process must not hold it.
        let null = openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        sys::close_descriptors(&self.closed);
        sys::hold_signals()?;
        let signals = sys::signals()?;
        if let Some(monitor) = monitor {
            monitor.resume(self.first_number)?;
        }
        self.ledger.enter(&LeftRoom {
            keeper: std::process::id(),
            first: self.first_number.cast_unsigned(),
            broker: self.broker.as_ref().map(|(_, pid)| pid.cast_unsigned()),
        })?;
        rustix::io::write(&self.ready, b"1")?;
        Ok(signals)
    }

    /// Waits until the room is empty, is stopped (SIGTERM or SIGINT) or has no time left, and
    /// ends it. Only a stop gives the processes time to end by themselves.
    fn keep(&mut self, signals: &OwnedFd) {
        loop {
            if is_ended(&self.first, Duration::ZERO) || self.is_empty() {
                break;
            }
            if self.deadline.is_some_and(|at| Instant::now() >= at) {
                break;
            }
            let process = self.live_process();
            let mut watched =
                vec![PollFd::new(&self.first, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
            watched.extend(process.as_ref().map(|process| PollFd::new(process, PollFlags::IN)));
            let is_guarded = self.namespace.is_none();
            let look = (process.is_none() && !is_guarded).then_some(LOOK_PAUSE);
            let left = self.deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let most = [look, left].into_iter().flatten().min();
            let _ = poll(&mut watched, most.map(timespec).as_ref());
            let mut is_stopped = false;
            while let Ok(Some(arrived)) = sys::held_signal(signals) {
                is_stopped |= matches!(arrived.signal, libc::SIGTERM | libc::SIGINT);
            }
            if is_stopped {
                self.terminate();
                break;
            }
        }
        self.end();
    }

    fn is_empty(&self) -> bool {
        self.namespace.is_some() && left_processes(self.keeper.own_processes()).is_empty()
    }

    /// A process of the room that has not ended. When it ends, the keeper looks again.
    fn live_process(&self) -> Option<OwnedFd> {
        let namespace = self.namespace.as_ref()?;
        left_processes(self.keeper.own_processes()).into_iter().find_map(|inside| {
            let number = sys::number_of_process(namespace.as_fd(), inside)?;
            let process = pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()?;
            (!is_ended(&process, Duration::ZERO)).then_some(process)
        })
    }

    /// Sends SIGTERM and SIGCONT to each process of the room, and waits at most
    /// `MAX_STOP_TIME` for their end. Does nothing without a process namespace: the guard
    /// ends its children itself.
    fn terminate(&self) {
        if self.namespace.is_none() {
            return;
        }
        for inside in left_processes(self.keeper.own_processes()) {
            if let Some(process) = open_process(inside) {
                let _ = pidfd_send_signal(&process, Signal::TERM);
                let _ = pidfd_send_signal(&process, Signal::CONT);
            }
        }
        let end = Instant::now() + MAX_STOP_TIME;
        while Instant::now() < end && !self.is_empty() && !is_ended(&self.first, PARTING_PAUSE * 5)
        {
        }
    }

    /// Kills what is left in the room, then ends the broker, the port forwarders, the gate
    /// and the cgroup, and removes the temporary directory. Waits for the end of each, at
    /// most `MAX_END_TIME`.
    fn end(&mut self) {
        let keeper = &mut self.keeper;
        if let Some(ports) = &mut keeper.ports {
            ports.end_inside();
        }
        match &mut keeper.kind {
            KeeperKind::First { alive, .. } => {
                *alive = None;
                let _ = pidfd_send_signal(&self.first, Signal::KILL);
            }
            KeeperKind::Children { .. } => self.leash = None,
        }
        is_ended(&self.first, MAX_END_TIME);
        if let KeeperKind::Children { scratch, .. } = &mut keeper.kind {
            *scratch = None;
        }
        if let Some(doors) = keeper.doors.take() {
            doors.close();
            if let Some((broker, _)) = &self.broker {
                is_ended(broker, MAX_END_TIME);
            }
        }
        keeper.ports = None;
        keeper.group = None;
    }
}

/// True if a process ends within this time.
fn is_ended(process: &OwnedFd, within: Duration) -> bool {
    is_readable(process, within)
}

/// True if a descriptor has something to read, or its end, within this time.
fn is_readable(fd: &OwnedFd, within: Duration) -> bool {
    let mut ready = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut ready, Some(&timespec(within))).is_ok_and(|ready| ready > 0)
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

impl RoomKeeper {
    /// The number of the launcher's own processes in the room: process 1, and the forwarder
    /// of served ports. They started first, so they have the lowest numbers.
    fn own_processes(&self) -> i32 {
        let forwarder = self.ports.as_ref().is_some_and(super::PortCrossing::is_inside);
        1 + i32::from(forwarder)
    }

    /// True if the command has left processes that do not end at once.
    fn has_left_processes(&self) -> bool {
        let is_left = || match &self.kind {
            KeeperKind::First { .. } => !left_processes(self.own_processes()).is_empty(),
            KeeperKind::Children { guard, .. } => guard.has_children(),
        };
        let end = Instant::now() + MAX_PARTING_TIME;
        loop {
            if !is_left() {
                return false;
            }
            if Instant::now() >= end {
                return true;
            }
            // Siblings of the command are children of the launcher.
            if matches!(self.kind, KeeperKind::First { .. }) {
                while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
            }
            std::thread::sleep(PARTING_PAUSE);
        }
    }

    /// Leaves the room to a keeper if the command has left processes in it. Returns the
    /// parts of the room otherwise.
    pub(super) fn leave(
        self,
        line: &KeeperLine,
        deadline: Option<Instant>,
        closed: Vec<RawFd>,
    ) -> Result<(), Box<Self>> {
        if !self.has_left_processes() {
            return Err(Box::new(self));
        }
        let Some(thread) = line.prepared_thread() else { return Err(Box::new(self)) };
        let (answer, answered) = channel();
        let (ready, called, start) = self.prepare_start(line, deadline, closed, answer)?;
        let mut around = start.infrastructure();
        if let Err(unsent) = line.requests.send(OuterRequest::Keep(Box::new(start))) {
            return match unsent.0 {
                OuterRequest::Keep(start) => Err(Box::new(start.keeper)),
                OuterRequest::Rest(_) | OuterRequest::Watch(_) => Ok(()),
            };
        }
        // Until the fork this thread only makes system calls. If it held the lock of the
        // allocator, the keeper could never allocate.
        while !is_readable(&called, INTERRUPT_PAUSE) {
            sys::interrupt_thread(thread);
        }
        // Without an answer the thread has ended, and the room's parts with it: the room
        // ends with the launcher.
        let Ok((start, pid)) = answered.recv() else { return Ok(()) };
        let KeeperStart { ready: told, keeper, first_number: first, .. } = *start;
        let Some(pid) = pid else { return Err(Box::new(keeper)) };
        drop(told);
        let mut byte = [0];
        let is_kept =
            is_readable(&ready, MAX_START_TIME) && rustix::io::read(&ready, &mut byte) == Ok(1);
        if !is_kept {
            sys::kill(pid, libc::SIGKILL);
            return Err(Box::new(keeper));
        }
        if let Some(ports) = &keeper.ports {
            ports.keep(first);
        }
        around.push(pid);
        keep_processes(&around);
        // Dropping the parts would end the room.
        std::mem::forget(keeper);
        Ok(())
    }

    /// Gathers the descriptors that a keeper needs: process 1 or the guard, the broker, two
    /// pipes. Without a room, the guard gets a new pipe to wait for. Returns the end of the
    /// pipe on which the keeper reports, the end on which it is called, and the start itself.
    /// On any failure it gives the keeper back, and the caller ends the room.
    fn prepare_start(
        self,
        line: &KeeperLine,
        deadline: Option<Instant>,
        closed: Vec<RawFd>,
        answer: Sender<HandoverAnswer>,
    ) -> Result<(OwnedFd, OwnedFd, KeeperStart), Box<Self>> {
        let parts = || -> io::Result<_> {
            sys::handle_interrupts()?;
            let (first, leash, namespace) = match &self.kind {
                KeeperKind::First { pid, .. } => {
                    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                    let own = "thread-self/ns/pid_for_children";
                    let namespace = openat(&line.processes, own, flags, Mode::empty())?;
                    (pid.ok_or(Errno::SRCH)?, None, Some(namespace))
                }
                KeeperKind::Children { guard, .. } => {
                    let (held, leash) = pipe_with(PipeFlags::CLOEXEC)?;
                    (guard.change_master(held)?, Some(leash), None)
                }
            };
            let broker = self.doors.as_ref().and_then(|doors| doors.pid);
            let broker = match broker {
                Some(pid) => {
                    let number = pid.as_raw_nonzero().get();
                    Some((pidfd_open(pid, PidfdFlags::empty())?, number))
                }
                None => None,
            };
            let process = pidfd_open(first, PidfdFlags::empty())?;
            let pipes = (pipe_with(PipeFlags::CLOEXEC)?, pipe_with(PipeFlags::CLOEXEC)?);
            Ok((process, first, leash, namespace, broker, pipes))
        };
        let Ok((process, first, leash, namespace, broker, pipes)) = parts() else {
            return Err(Box::new(self));
        };
        let ((ready, told), (called, call)) = pipes;
        let start = KeeperStart {
            keeper: self,
            ledger: line.ledger.clone(),
            first: process,
            first_number: first.as_raw_nonzero().get(),
            broker,
            namespace,
            leash,
            deadline,
            closed,
            ready: told,
            call,
            answer,
        };
        Ok((ready, called, start))
    }
}

impl KeeperStart {
    /// The processes around the room, which the broker of an outer room does not wait for.
    fn infrastructure(&self) -> Vec<libc::pid_t> {
        let mut all = vec![self.first_number];
        all.extend(self.broker.as_ref().map(|(_, pid)| *pid));
        all.extend(self.keeper.ports.iter().flat_map(super::PortCrossing::processes));
        all
    }
}
