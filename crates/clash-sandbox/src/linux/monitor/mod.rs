//! Carries calls out in the command's place, so that rules hold for names that
//! do not exist yet, for patterns, and where nothing can be mounted.
//!
//! The filter hands over the calls that change names, modes, owners and times,
//! opens for writing and, where the plan says so, all opens. Nothing that was
//! read from the caller's memory is ever left to the kernel to read again: the
//! path is read once, followed here to a directory that is held open, judged by
//! where that directory really is, and the call is made relative to it, without
//! following links. The caller gets the descriptor, or the error.
//!
//! Two threads of the launcher do it. The *outer* one reads the caller's memory
//! and opens its working directory and descriptors, for which it has to be
//! outside the command's Landlock domain. The *inner* one judges and acts, inside
//! a domain with the same rules and with no more capabilities than the command:
//! what it is tricked into is still held by the kernel. One call at a time is
//! judged and made, so nothing in the room is renamed in between; opens that may
//! block (fifos, terminals, leases) wait in threads of their own.
//!
//! Limits. Other people, and other rooms on the same tree, can rename a directory
//! between judging and acting: both then act on the directory that was judged. A
//! hard link to a file that is denied by a pattern and was there before is
//! another name. What is refused is `EACCES`; a directory that cannot become
//! another without changing what holds below it is `EXDEV`, so that `mv` copies,
//! and each file is judged. `openat2` is `ENOSYS`. If the launcher dies, every
//! watched call is `ENOSYS`.

mod act;
mod call;
mod caller;
mod common;
mod folding;
mod fresh;
mod head;
mod leaving;
mod links;
mod metadata;
mod moving;
mod names;
mod open;
mod place;
mod quota;
mod rename;
mod turn;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, gettid, sched_getcpu, sched_setaffinity};

use super::caps;
use super::landlock::{self, Ruleset};
use super::sys::{self, Notice};
use crate::plan::{Processes, Watch};
use crate::plan::sight::{Shown, Sight};
use act::{Job, Worker};
use caller::Caller;
use turn::Turns;

const HOLD: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// What both threads work with.
#[derive(Debug)]
struct Shared {
    listener: OwnedFd,
    /// The inner thread, once it runs.
    inner: AtomicI32,
    /// The processes as the launcher knows them: a room's own /proc has other
    /// numbers, and the launcher is not in it.
    processes: OwnedFd,
    /// Below them, what this process itself holds open.
    held: OwnedFd,
    reads: bool,
    of: Processes,
    sight: Option<Sight>,
}

impl Shared {
    fn refuse(&self, id: u64, error: Errno) {
        sys::answer(&self.listener, id, -i64::from(error.raw_os_error()));
    }
}

/// Everything the monitor needs, gathered while the launcher is still outside.
#[derive(Debug)]
pub(crate) struct Monitor {
    processes: OwnedFd,
    ruleset: Ruleset,
    watch: Watch,
    turns: Turns,
    root: bool,
}

impl Monitor {
    /// To be called outside the room, whose /proc has other numbers.
    pub(crate) fn new(ruleset: Ruleset, watch: &Watch, root: bool) -> Result<Self, Errno> {
        let processes = openat(CWD, "/proc", HOLD, Mode::empty())?;
        let mut watch = watch.clone();
        // Whoever has a file can be told its name.
        if let Some(sight) = &mut watch.sight {
            let held = openat(&processes, "self/fd", HOLD, Mode::empty())?;
            for fd in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
                if let Some(path) = place::real(&held, fd)? {
                    sight.tree(&path, Shown::Writable);
                }
            }
        }
        let turns = Turns::open(&watch.rights.places.home);
        Ok(Self { processes, ruleset, watch, turns, root })
    }

    /// Starts the outer thread, which waits for the listener. To be called in the room's
    /// other namespaces and with all signals held, but before a process namespace is made
    /// for the launcher's children: after that the kernel lets it start no more threads.
    pub(crate) fn wait(self) -> std::io::Result<Waiting> {
        let (listener, given) = channel();
        thread().spawn(move || self.receive(&given))?;
        Ok(Waiting { listener })
    }

    /// The outer thread. If it ends, the listener closes and nothing is permitted.
    fn receive(self, given: &Receiver<OwnedFd>) {
        let Self { processes, ruleset, mut watch, turns, root } = self;
        let (reads, of, sight) = (watch.reads, watch.processes, watch.sight.take());
        let Ok(held) = openat(&processes, "self/fd", HOLD, Mode::empty()) else { return };
        // Without less than it has, the caller's paths could be followed where the
        // caller may not go.
        if caps::keep_for_looking(root).is_err() {
            return;
        }
        let Ok(listener) = given.recv() else { return };
        sys::stay_on_one_processor(&listener);
        let inner = AtomicI32::new(0);
        let shared = Arc::new(Shared { listener, inner, processes, held, reads, of, sight });
        // Many commands change nothing: the inner thread starts with the first call.
        let (jobs, received) = channel();
        let mut inner = Some((shared.clone(), watch, turns, ruleset, received));
        loop {
            match sys::next_notice(&shared.listener) {
                Ok(notice) => {
                    if let Some((shared, watch, turns, ruleset, received)) = inner.take()
                        && thread()
                            .spawn(move || {
                                let worker = |shared: &Arc<Shared>| {
                                    Worker::new(shared.clone(), watch, turns)
                                };
                                work(&shared, worker, &ruleset, root, &received);
                            })
                            .is_err()
                    {
                        return;
                    }
                    hand_on(&shared, &notice, &jobs);
                }
                // Whoever called was killed meanwhile; or nobody is left to call. Then this
                // thread goes with its process: putting things away first would keep that
                // one waiting.
                Err(Errno::NOENT) => {
                    if is_over(&shared.listener) {
                        loop {
                            std::thread::park();
                        }
                    }
                }
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }
}

/// A monitor that has nothing to answer yet.
#[derive(Debug)]
pub(crate) struct Waiting {
    listener: Sender<OwnedFd>,
}

impl Waiting {
    pub(crate) fn start(self, listener: OwnedFd) {
        // One that has gone drops the listener, and every watched call fails.
        let _ = self.listener.send(listener);
    }
}

/// Whether no process is left that the filter holds for.
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

fn hand_on(shared: &Shared, notice: &Notice, jobs: &Sender<Job>) {
    if shared.sight.is_some() && metadata::answer(shared, notice) {
        return;
    }
    let refusal = match prepare(shared, notice) {
        Ok(job) => {
            here(shared);
            jobs.send(job).err().map(|_| Errno::ACCESS)
        }
        Err(error) => Some(error),
    };
    if let Some(error) = refusal {
        shared.refuse(notice.id, error);
    }
}

/// Has the inner thread run on this processor, where the caller was: waking another one
/// costs more than the call, and would take the caller along.
fn here(shared: &Shared) {
    let inner = Pid::from_raw(shared.inner.load(Ordering::Relaxed));
    if let Some(inner) = inner {
        let mut this = CpuSet::new();
        this.set(sched_getcpu());
        let _ = sched_setaffinity(Some(inner), &this);
    }
}

/// Everything that has to be known of the caller.
fn prepare(shared: &Shared, notice: &Notice) -> Result<Job, Errno> {
    let caller = Caller::new(shared, notice.pid);
    let call = call::read(&caller, notice)?;
    let act = place::locate(&caller, call, shared.sight.as_ref(), shared.reads)?;
    // Only now is it certain that all of it was the caller's and not that of a
    // process which got its number.
    if !sys::is_valid(&shared.listener, notice.id) {
        return Err(Errno::SRCH);
    }
    Ok(Job { id: notice.id, act })
}

/// The inner thread.
fn work(
    shared: &Arc<Shared>,
    worker: impl FnOnce(&Arc<Shared>) -> Worker,
    ruleset: &Ruleset,
    root: bool,
    jobs: &Receiver<Job>,
) {
    let confined = rustix::thread::set_no_new_privs(true).is_ok()
        && landlock::enter(ruleset).is_ok()
        && caps::drop_all(root).is_ok();
    shared.inner.store(gettid().as_raw_nonzero().get(), Ordering::Relaxed);
    let mut worker = worker(shared);
    for job in jobs {
        if confined {
            worker.carry_out(job);
        } else {
            shared.refuse(job.id, Errno::ACCESS);
        }
    }
}
