//! The outer thread, and how it hands the calls of the room to a keeper.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, openat};
use rustix::io::Errno;

use super::act::{MonitorJob, MonitorWorker};
use super::sockets::ConnectWorker;
use super::{HOLD, MonitorInputs, MonitorState, hand_on, is_over, starts, thread, work};
use crate::linux::landlock::LandlockRuleset;
use crate::linux::supervise::{KeeperPost, KeeperStart, OuterRequest};
use crate::linux::sys::{self, ForkSide};

/// The time for calls that threads of their own carry out.
const MAX_CONNECT_TIME: Duration = Duration::from_millis(200);
/// The outer thread, the worker and the handover refer to the shared state.
const OWN_REFERENCES: usize = 3;

/// The thread outside the command's Landlock domain.
pub(crate) struct OuterThread {
    pub(super) shared: Arc<MonitorState>,
    pub(super) ruleset: LandlockRuleset,
    pub(super) root: bool,
    pub(super) worker: Arc<Mutex<MonitorWorker>>,
    pub(super) inner: InnerThread,
    pub(super) connects: ConnectWorker,
}

/// The inner thread. Many commands change nothing, so it starts with the first call.
pub(super) enum InnerThread {
    Idle,
    Running { jobs: Sender<MonitorJob>, thread: JoinHandle<()> },
}

impl OuterThread {
    /// Answers calls until the room ends, a keeper answers them, or the room has another
    /// command, whose parts are returned. Starts the inner thread with the first call. Forks
    /// the keeper when the launcher asks for it. `None` on an error; then every later watched
    /// call fails.
    pub(super) fn serve(&mut self, keeper: Option<&KeeperPost>) -> Option<MonitorInputs> {
        if let Some(keeper) = keeper {
            keeper.settle();
        }
        loop {
            match sys::next_notice(&self.shared.listener) {
                Ok(notice) if notice.number == libc::SYS_execve => {
                    starts::lead_to_door(&self.shared, &notice);
                }
                Ok(notice) => {
                    self.start_inner();
                    let InnerThread::Running { jobs, .. } = &self.inner else { return None };
                    hand_on(&self.shared, &notice, &self.worker, jobs, &mut self.connects);
                }
                // The caller was killed meanwhile, or no process is left. In the second
                // case the thread sleeps until its process exits. Closing descriptors first
                // would only delay the exit.
                Err(Errno::NOENT) => {
                    if is_over(&self.shared.listener) {
                        return self.sleep(keeper, None);
                    }
                }
                Err(Errno::INTR) => match keeper.and_then(KeeperPost::next_request) {
                    Some(OuterRequest::Keep(start)) => self.hand_over(*start),
                    Some(request) if is_over(&self.shared.listener) => {
                        return self.sleep(keeper, Some(request));
                    }
                    Some(_) | None => {}
                },
                Err(_) => return None,
            }
        }
    }

    /// Waits for requests after the last process of the command.
    fn sleep(
        &mut self,
        keeper: Option<&KeeperPost>,
        first: Option<OuterRequest>,
    ) -> Option<MonitorInputs> {
        let mut next = first;
        while let Some(request) =
            next.take().or_else(|| keeper.and_then(KeeperPost::wait_for_request))
        {
            match request {
                OuterRequest::Keep(start) => self.hand_over(*start),
                OuterRequest::Rest(rested) => {
                    self.pause();
                    // A thread that still carries out a call of the last command holds the
                    // state too.
                    if Arc::strong_count(&self.shared) < OWN_REFERENCES {
                        let _ = rested.send(());
                    }
                }
                OuterRequest::Watch(inputs) => return Some(*inputs),
            }
        }
        loop {
            std::thread::park();
        }
    }

    /// Starts the inner thread if it does not run.
    fn start_inner(&mut self) {
        if matches!(self.inner, InnerThread::Running { .. }) {
            return;
        }
        let (jobs, received) = channel();
        let (shared, ruleset, root) = (self.shared.clone(), self.ruleset.clone(), self.root);
        let worker = self.worker.clone();
        let started = thread().spawn(move || work(&shared, &worker, &ruleset, root, &received));
        if let Ok(thread) = started {
            self.inner = InnerThread::Running { jobs, thread };
        }
    }

    /// Lets the inner thread finish its calls and end.
    fn pause(&mut self) {
        if let InnerThread::Running { jobs, thread } =
            std::mem::replace(&mut self.inner, InnerThread::Idle)
        {
            drop(jobs);
            let _ = thread.join();
        }
    }

    /// Forks the keeper. At this moment no call is half done: the inner thread has ended, and
    /// further calls wait in the kernel. This thread forks because its children are in the
    /// host's process namespace, unlike those of the launcher's main thread.
    fn hand_over(&mut self, start: KeeperStart) {
        self.pause();
        let shared = self.shared.clone();
        // A `connect` that a thread carries out is answered first. It takes long only if the
        // server does not accept; such a call is then never answered.
        let is_busy = || Arc::strong_count(&shared) > OWN_REFERENCES + shared.waiting_opens().len();
        let end = Instant::now() + MAX_CONNECT_TIME;
        while is_busy() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        // No other thread holds the lock at the moment of the fork.
        let waiting = shared.waiting_opens();
        match sys::fork() {
            Ok(ForkSide::Child) => {
                drop(waiting);
                start.become_keeper(Some(self))
            }
            Ok(ForkSide::Parent(keeper)) => {
                start.report(keeper);
                loop {
                    std::thread::park();
                }
            }
            Err(_) => start.refuse(),
        }
    }

    /// Answers calls in a new thread of the keeper. The fork took no other thread along, and
    /// the held `/proc/self/fd` is still that of the launcher. So this puts the keeper's own
    /// in its place, forgets the old inner thread, and starts a new one at once if an open
    /// waits. `ancestor` is the process from which the processes of the sandbox descend.
    /// After an error no call is answered.
    pub(crate) fn resume(&mut self, ancestor: libc::pid_t) -> std::io::Result<()> {
        let own = openat(&self.shared.processes, "self/fd", HOLD, Mode::empty())?;
        sys::replace_descriptor(self.shared.held.as_fd(), own.as_fd())?;
        self.shared.ancestor.store(ancestor, Ordering::Relaxed);
        self.shared.inner.store(0, Ordering::Relaxed);
        self.shared.inner_cpu.store(-1, Ordering::Relaxed);
        let mut outer = Self {
            shared: self.shared.clone(),
            ruleset: self.ruleset.clone(),
            root: self.root,
            worker: self.worker.clone(),
            inner: InnerThread::Idle,
            connects: ConnectWorker::default(),
        };
        if !outer.shared.waiting_opens().is_empty() {
            outer.start_inner();
        }
        thread().spawn(move || drop(outer.serve(None))).map(drop)
    }
}
