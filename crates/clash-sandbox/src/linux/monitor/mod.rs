//! Carries out system calls for the command, so that rules hold for names that do not exist
//! yet, for patterns, and where nothing can be mounted.
//!
//! The seccomp filter hands over calls that change names, modes, owners and times, opens
//! for writing and, if the plan says so, all opens. The monitor reads a path from the
//! caller's memory once, follows it to a directory that it holds open, and judges the real
//! path of that directory. Then it makes the call relative to the directory, without
//! following links. The kernel never reads the caller's memory again. The caller gets the
//! descriptor or the error.
//!
//! Two threads of the launcher do this. The *outer* thread reads the caller's memory and
//! opens its working directory and descriptors. For this it has to be outside the command's
//! Landlock domain. The *inner* thread judges and acts. It is in a Landlock domain with the
//! same rules and has no more capabilities than the command, so a mistake in its judgement
//! does not exceed the command's own rights. It handles one call at a time, so the room
//! renames nothing in between. Opens that may block (fifos, terminals, leases) wait in
//! threads of their own. Where Landlock would permit every change, the outer thread acts
//! itself while the inner thread waits: a change of threads costs more than most calls
//! (`open_ground.rs`).
//!
//! Limits. Other users, and other rooms on the same tree, can rename a directory between
//! judging and acting; the monitor then acts on the directory that it judged. A hard link
//! that existed before is another name for a file, even if a pattern denies the first name.
//! A refused call gets `EACCES`. A directory gets `EXDEV` if a rename would change the
//! rules for the files below it; `mv` then copies, and the monitor judges each file.
//! `openat2` gets `ENOSYS`. If the launcher dies, every watched call gets `ENOSYS`.

mod act;
mod call;
mod caller;
mod common;
mod descriptors;
mod drafts;
mod folding;
mod former;
mod fresh;
mod git_config;
mod handover;
mod head;
mod known;
mod leaving;
mod links;
mod lock_file;
mod metadata;
mod moving;
mod names;
mod open;
mod open_ground;
mod outer;
mod place;
mod quota;
mod rename;
mod sockets;
mod starts;
mod turn;

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use clash_door::DoorRequest;
use clash_net::HostRules;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{CpuSet, gettid, sched_getcpu, sched_setaffinity};

use super::caps;
use super::doors::DoorLine;
use super::landlock::{self, LandlockRuleset};
use super::supervise::KeeperPost;
use super::sys::{self, SeccompNotice, SocketDiagnosis};
use crate::plan::sight::{TreeVisibility, VisiblePaths};
use crate::plan::{ProcView, WatchPlan};
use act::{CommandNotes, MonitorJob, MonitorWorker};
pub(crate) use act::{StreamIdentity, identity_of_stream};
use caller::CallingProcess;
pub(crate) use drafts::ScriptDrafts;
pub(crate) use handover::HandoverLine;
use known::KnownCallers;
use open::WaitingOpen;
use outer::InnerThread;
pub(crate) use outer::OuterThread;
use sockets::ConnectWorker;
use starts::LedProcesses;
use turn::RoomLock;

const HOLD: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// State that both threads use.
#[derive(Debug)]
struct MonitorState {
    listener: OwnedFd,
    /// The thread id of the inner thread; 0 before it runs.
    inner: AtomicI32,
    /// The host's `/proc`. A room's own `/proc` has other numbers and does not show the
    /// launcher.
    processes: Arc<OwnedFd>,
    /// `/proc/self/fd` of the monitor.
    held: Arc<OwnedFd>,
    reads: bool,
    of: ProcView,
    sight: Option<VisiblePaths>,
    doors: Option<Arc<DoorLine>>,
    /// As [`WatchPlan::door_paths`].
    door_paths: Vec<String>,
    project: PathBuf,
    led: LedProcesses,
    /// The room's own unix sockets.
    diagnosis: Option<Arc<SocketDiagnosis>>,
    /// Orders sockets for connections that need no relay.
    handover: Option<Arc<HandoverLine>>,
    /// The rules about addresses, without a room.
    connects: Option<HostRules>,
    known: KnownCallers,
    /// The jobs that the inner thread has not finished.
    unfinished: AtomicUsize,
    /// The CPU of the inner thread; -1 before it has one.
    inner_cpu: AtomicI32,
    /// The process from which all processes of the sandbox descend.
    ancestor: AtomicI32,
    /// The opens that may block and are not answered yet, by the number of their call.
    waiting: Mutex<BTreeMap<u64, Arc<WaitingOpen>>>,
}

impl MonitorState {
    fn refuse(&self, id: u64, error: Errno) {
        sys::answer(&self.listener, id, -i64::from(error.raw_os_error()));
    }
}

/// Everything the monitor needs, collected while the launcher is still outside the room.
#[derive(Debug)]
pub(crate) struct CallMonitor {
    processes: OwnedFd,
    ruleset: LandlockRuleset,
    watch: WatchPlan,
    turns: RoomLock,
    root: bool,
    doors: Option<DoorLine>,
    handover: Option<HandoverLine>,
}

impl CallMonitor {
    /// Opens /proc and the files that rooms share, and makes the files of the standard
    /// streams visible in the watched tier. Starts no thread. Call this outside the room,
    /// whose `/proc` has other numbers.
    pub(crate) fn new(
        ruleset: LandlockRuleset,
        watch: &WatchPlan,
        root: bool,
        doors: Option<DoorLine>,
    ) -> Result<Self, Errno> {
        let processes = openat(CWD, "/proc", HOLD, Mode::empty())?;
        let mut watch = watch.clone();
        // A process that has a file as stdio may see its path too.
        if let Some(sight) = &mut watch.sight {
            let held = openat(&processes, "self/fd", HOLD, Mode::empty())?;
            for fd in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
                if let Some(path) = place::real(&held, fd)? {
                    sight.set_tree(&path, TreeVisibility::Writable);
                }
            }
        }
        let turns = RoomLock::open(&watch.rights.places.home, watch.former_links.as_deref());
        let handover = None;
        Ok(Self { processes, ruleset, watch, turns, root, doors, handover })
    }

    /// Lets programs have connected sockets of the host's network.
    pub(crate) fn with_handover(self, handover: Option<HandoverLine>) -> Self {
        Self { handover, ..self }
    }

    /// Starts the outer thread, which waits for the listener. Call this in the room's other
    /// namespaces, with all signals blocked, and before `unshare(CLONE_NEWPID)`. After that
    /// the kernel lets the launcher start no more threads.
    pub(crate) fn wait(self, keeper: Option<KeeperPost>) -> std::io::Result<WaitingMonitor> {
        let (inputs, given) = channel();
        thread().spawn(move || self.receive(&given, keeper))?;
        Ok(WaitingMonitor { inputs })
    }

    /// The outer thread. It attends to one command after the other, and keeps no fact about
    /// an earlier one. If it ends, the listener closes and every watched call fails.
    fn receive(self, given: &Receiver<MonitorInputs>, keeper: Option<KeeperPost>) {
        let Self { processes, ruleset, mut watch, turns, root, doors, handover } = self;
        let (reads, of, sight) = (watch.reads, watch.processes, watch.sight.take());
        let door_paths = std::mem::take(&mut watch.door_paths);
        let project = watch.rights.places.project.clone();
        let Ok(held) = openat(&processes, "self/fd", HOLD, Mode::empty()) else { return };
        // With all its capabilities, root's monitor could follow paths that the caller may
        // not follow.
        if caps::keep_monitor_capabilities(root).is_err() {
            return;
        }
        let (processes, held) = (Arc::new(processes), Arc::new(held));
        let (turns, doors) = (Arc::new(turns), doors.map(Arc::new));
        let handover = handover.map(Arc::new);
        let rules = watch.connects.take().map(HostRules::new);
        let mut next = given.recv().ok();
        while let Some(MonitorInputs { listener, diagnosis, stdio, drafts }) = next.take() {
            sys::wake_on_same_cpu(&listener);
            let shared = Arc::new(MonitorState {
                listener,
                inner: AtomicI32::new(0),
                processes: processes.clone(),
                held: held.clone(),
                reads,
                of,
                sight: sight.clone(),
                doors: doors.clone(),
                door_paths: door_paths.clone(),
                project: project.clone(),
                led: LedProcesses::default(),
                diagnosis,
                handover: handover.clone(),
                connects: rules.clone(),
                known: KnownCallers::default(),
                unfinished: AtomicUsize::new(0),
                inner_cpu: AtomicI32::new(-1),
                ancestor: AtomicI32::new(sys::own_pid()),
                waiting: Mutex::default(),
            });
            let notes = CommandNotes { stdio, drafts };
            let worker = MonitorWorker::new(shared.clone(), watch.clone(), turns.clone(), notes);
            let worker = Arc::new(Mutex::new(worker));
            let (ruleset, inner) = (ruleset.clone(), InnerThread::Idle);
            let connects = ConnectWorker::default();
            let mut outer = OuterThread { shared, ruleset, root, worker, inner, connects };
            next = outer.serve(keeper.as_ref());
        }
    }
}

/// The parts of a monitor that exist only when the command has started.
#[derive(Debug)]
pub(crate) struct MonitorInputs {
    pub(crate) listener: OwnedFd,
    /// Made in the room's network namespace.
    pub(crate) diagnosis: Option<Arc<SocketDiagnosis>>,
    pub(crate) stdio: Vec<StreamIdentity>,
    pub(crate) drafts: ScriptDrafts,
}

/// A monitor that waits for its listener.
#[derive(Debug)]
pub(crate) struct WaitingMonitor {
    inputs: Sender<MonitorInputs>,
}

impl WaitingMonitor {
    /// Gives the monitor its listener. From then on it answers calls.
    pub(crate) fn start(self, inputs: MonitorInputs) {
        // If the outer thread has ended, the listener is dropped and every watched call
        // fails.
        let _ = self.inputs.send(inputs);
    }
}

/// True if no process with the filter is left.
fn is_over(listener: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut ends = [PollFd::new(listener, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ends, Some(&now)).is_ok()
        && ends.iter().any(|end| end.revents().contains(PollFlags::HUP))
}

fn thread() -> std::thread::Builder {
    std::thread::Builder::new().stack_size(256 * 1024)
}

/// Handles one call in the outer thread: lets `umask` continue, answers calls about metadata,
/// and carries a call out itself if no job waits and the call is on open ground. All others
/// go to the inner thread. A call that cannot be read is refused.
fn hand_on(
    shared: &Arc<MonitorState>,
    notice: &SeccompNotice,
    worker: &Mutex<MonitorWorker>,
    jobs: &Sender<MonitorJob>,
    connects: &mut ConnectWorker,
) {
    if notice.number == libc::SYS_umask {
        shared.known.forget_umasks();
        // The call has only a number as argument, and every umask is permitted.
        let _ = sys::let_go_on(shared.listener.as_raw_fd(), notice.id);
        return;
    }
    if notice.number == libc::SYS_connect {
        if let Err(error) = sockets::connect(shared, notice, connects) {
            shared.refuse(notice.id, error);
        }
        return;
    }
    if shared.sight.is_some() && metadata::answer(shared, notice) {
        return;
    }
    let refusal = match prepare(shared, notice) {
        Ok(None) => None,
        Ok(Some(mut job)) => {
            // With no job left, the inner thread waits, and calls are still handled one by
            // one.
            if shared.unfinished.load(Ordering::Acquire) == 0 {
                let mut worker = worker.lock().unwrap_or_else(PoisonError::into_inner);
                if worker.is_on_open_ground(&mut job.act) {
                    return worker.carry_out(job);
                }
            }
            shared.unfinished.fetch_add(1, Ordering::Release);
            pin_to_current_cpu(shared);
            jobs.send(job).err().map(|_| Errno::ACCESS)
        }
        Err(error) => Some(error),
    };
    if let Some(error) = refusal {
        shared.refuse(notice.id, error);
    }
}

/// Pins the inner thread to the current CPU, on which the caller runs too. Waking another
/// CPU costs more than the call itself, and the caller would move there as well.
fn pin_to_current_cpu(shared: &MonitorState) {
    let inner = Pid::from_raw(shared.inner.load(Ordering::Relaxed));
    let cpu = sched_getcpu();
    let number = i32::try_from(cpu).unwrap_or(-1);
    if let Some(inner) = inner
        && shared.inner_cpu.swap(number, Ordering::Relaxed) != number
    {
        let mut this = CpuSet::new();
        this.set(cpu);
        let _ = sched_setaffinity(Some(inner), &this);
    }
}

/// Reads and resolves everything that the call is about. `None` if the call is answered
/// already.
fn prepare(shared: &MonitorState, notice: &SeccompNotice) -> Result<Option<MonitorJob>, Errno> {
    let caller = CallingProcess::of_notice(shared, notice);
    let call = call::read(&caller, notice)?;
    if let Some(doors) = &shared.doors
        && call.opens_door()
    {
        return answer_door(shared, notice, doors).map(|()| None);
    }
    if let Some(done) = descriptors::change_open_file(&caller, &call) {
        done?;
        sys::answer(&shared.listener, notice.id, 0);
        return Ok(None);
    }
    let act = place::locate(&caller, call, shared.sight.as_ref(), shared.reads)?;
    // This check comes last. It proves that the calling process was still there while the
    // monitor read its memory, and that no other process had its number.
    if !sys::is_valid(&shared.listener, notice.id) {
        return Err(Errno::SRCH);
    }
    Ok(Some(MonitorJob { id: notice.id, act }))
}

/// Gives the caller a socket whose other end is with the broker.
fn answer_door(
    shared: &MonitorState,
    notice: &SeccompNotice,
    doors: &DoorLine,
) -> Result<(), Errno> {
    let (inside, outside) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let pid = Pid::from_raw(notice.pid).ok_or(Errno::SRCH)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    if !sys::is_valid(&shared.listener, notice.id) {
        return Err(Errno::SRCH);
    }
    if let Some(path) = shared.led.take(notice.pid) {
        let request = DoorRequest::Started { path };
        send(&inside, &request.encode(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    }
    doors.announce(notice.pid, &outside, &process)?;
    sys::answer_with(&shared.listener, notice.id, &inside, true)
}

/// The inner thread. Confines itself like the command, then carries out the jobs. If it
/// cannot confine itself, it refuses them all.
fn work(
    shared: &MonitorState,
    worker: &Mutex<MonitorWorker>,
    ruleset: &LandlockRuleset,
    root: bool,
    jobs: &Receiver<MonitorJob>,
) {
    let confined = rustix::thread::set_no_new_privs(true).is_ok()
        && landlock::enter(ruleset).is_ok()
        && caps::drop_capabilities(root).is_ok();
    shared.inner.store(gettid().as_raw_nonzero().get(), Ordering::Relaxed);
    let lock = || worker.lock().unwrap_or_else(PoisonError::into_inner);
    if confined {
        lock().sweep_copies();
        lock().resume_waiting();
    }
    for job in jobs {
        if confined {
            lock().carry_out(job);
        } else {
            shared.refuse(job.id, Errno::ACCESS);
        }
        shared.unfinished.fetch_sub(1, Ordering::Release);
    }
}
