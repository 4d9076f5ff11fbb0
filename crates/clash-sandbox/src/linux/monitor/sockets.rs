//! `connect`, in rooms that have unix sockets of their own.
//!
//! A unix socket on a path has the rights of its server. A process outside may have made one
//! in the project. So a command connects only to a socket that was made in the network
//! namespace of its own room. The kernel tells which these are (`sock_diag`), and the monitor
//! compares the inode that it holds open. Abstract names belong to a network namespace
//! anyway.
//!
//! The monitor connects in the caller's place, on a copy of the caller's descriptor. If the
//! kernel carried the call out itself, another thread could exchange the address or the
//! descriptor. So this holds for internet sockets too. A connect may block, so other threads
//! carry it out.
//!
//! A socket of another network namespace is refused: it comes from another room, or it was
//! handed over (`handover.rs`) and may not be connected again.
//!
//! The server sees the user of the caller as its peer, and the number of the launcher
//! instead of the caller's. Datagram sockets could send to any path without `connect`, so the
//! filter permits none.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SendError, Sender, channel};

use clash_net::HostRules;
use clash_net::rules::AddressVerdict;
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;

use super::super::sys::{self, SeccompNotice, SocketFacts};
use super::MonitorState;
use super::act::itself;
use super::call::CallPath;
use super::caller::CallingProcess;
use super::handover::{self, HandoverAttempt};
use super::place::{CallPlace, PathFinder, hold};

/// Connects that may wait at the same time.
const MAX_WAITING_CONNECTS: usize = 200;
/// `sizeof(struct sockaddr_storage)`; the kernel accepts no longer address.
const MAX_ADDRESS_BYTES: usize = 128;
/// The bytes before the path in `struct sockaddr_un`.
const FAMILY_BYTES: usize = 2;

/// Answers a `connect` from a thread of the worker, because it may block. A unix socket must be
/// one of this room, and the caller's socket must be in the room's network; otherwise
/// `EACCES`. Beyond `MAX_WAITING_CONNECTS` it is `EAGAIN`. The error is returned and the call
/// not answered if it fails before.
pub(super) fn connect(
    shared: &Arc<MonitorState>,
    notice: &SeccompNotice,
    worker: &mut ConnectWorker,
) -> Result<(), Errno> {
    let caller = CallingProcess::of_notice(shared, notice);
    let [fd, at, length, ..] = notice.args;
    let length = length as u32 as usize;
    if length > MAX_ADDRESS_BYTES {
        return Err(Errno::INVAL);
    }
    let fd = fd as u32 as i32;
    let socket = match caller.same_descriptor(fd) {
        Some(socket) => socket,
        None => caller.descriptor(fd)?,
    };
    let facts = SocketFacts::of(&socket)?;
    let address = caller.bytes(at, length)?;
    if let Some(rules) = &shared.connects {
        judge_address(rules, facts.domain, &address)?;
        let target = ConnectTarget::Address(address);
        return start(shared, notice, worker, socket, target, None);
    }
    let target = match unix_path(&facts, &address) {
        Some(path) => ConnectTarget::Socket(find_own_socket(shared, &caller, path)?),
        None => ConnectTarget::Address(address),
    };
    if !shared.diagnosis.as_ref().is_some_and(|own| own.is_of_same_network(&facts)) {
        // A program may connect again to learn that it is connected.
        let is_connected = rustix::net::getpeername(&socket).is_ok();
        return Err(if is_connected { Errno::ISCONN } else { Errno::ACCESS });
    }
    let attempt = match &target {
        ConnectTarget::Address(to) => {
            HandoverAttempt::new(shared, notice.pid, fd, facts.domain, to)
        }
        ConnectTarget::Socket(_) => None,
    };
    start(shared, notice, worker, socket, target, attempt)
}

/// Without a room, each address needs a rule. One about a range of addresses gives no port of
/// the loopback, and the address without a host stands for the loopback.
fn judge_address(rules: &HostRules, domain: i32, address: &[u8]) -> Result<(), Errno> {
    let to = handover::read_address(domain, address).ok_or(Errno::ACCESS)?;
    let (host, port) = (to.ip().to_canonical(), to.port());
    let is_granted = rules.judge_address(host, port, &[]) == AddressVerdict::Granted;
    let is_local = host.is_loopback() || host.is_unspecified();
    let fits = !is_local || host.is_loopback() && rules.reaches_loopback(port);
    if is_granted && fits { Ok(()) } else { Err(Errno::CONNREFUSED) }
}

/// Lets the worker connect.
fn start(
    shared: &Arc<MonitorState>,
    notice: &SeccompNotice,
    worker: &mut ConnectWorker,
    socket: OwnedFd,
    target: ConnectTarget,
    attempt: Option<HandoverAttempt>,
) -> Result<(), Errno> {
    if !sys::is_valid(&shared.listener, notice.id) {
        return Err(Errno::SRCH);
    }
    if Arc::strong_count(shared) > MAX_WAITING_CONNECTS {
        return Err(Errno::AGAIN);
    }
    let (shared, id) = (shared.clone(), notice.id);
    worker.run(move || {
        let handed_over = attempt.and_then(|attempt| attempt.carry_out(&shared, id, &socket));
        let done = handed_over.unwrap_or_else(|| target.connect(&shared, &socket));
        // A program that the caller starts next must find no copy of its descriptor.
        drop(socket);
        match done {
            Ok(()) => sys::answer(&shared.listener, id, 0),
            Err(error) => shared.refuse(id, error),
        }
    })
}

type ConnectJob = Box<dyn FnOnce() + Send>;

/// The thread that connects. Most programs connect one socket at a time, and a new thread
/// costs more than the call. Further connects at the same time get threads of their own.
#[derive(Debug, Default)]
pub(super) struct ConnectWorker {
    jobs: Option<Sender<ConnectJob>>,
    /// True while the thread has a job.
    busy: Arc<AtomicBool>,
}

impl ConnectWorker {
    fn run(&mut self, job: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
        let thread = std::thread::Builder::new().stack_size(64 * 1024);
        if self.busy.swap(true, Ordering::AcqRel) {
            return thread.spawn(job).map(drop).map_err(|_| Errno::AGAIN);
        }
        let mut job: ConnectJob = Box::new(job);
        if let Some(jobs) = &self.jobs {
            match jobs.send(job) {
                Ok(()) => return Ok(()),
                Err(SendError(back)) => job = back,
            }
        }
        let (jobs, received) = channel::<ConnectJob>();
        let busy = self.busy.clone();
        let started = thread.spawn(move || {
            for job in received {
                job();
                busy.store(false, Ordering::Release);
            }
        });
        started.map_err(|_| Errno::AGAIN)?;
        jobs.send(job).map_err(|_| Errno::AGAIN)?;
        self.jobs = Some(jobs);
        Ok(())
    }
}

enum ConnectTarget {
    Socket(OwnedFd),
    Address(Vec<u8>),
}

impl ConnectTarget {
    /// Connects the caller's socket. May block. Changes the working directory of this thread
    /// alone.
    fn connect(&self, shared: &MonitorState, socket: &OwnedFd) -> Result<(), Errno> {
        match self {
            Self::Address(address) => sys::connect_to(socket, address),
            Self::Socket(object) => {
                // The host's /proc/self/fd has no path in the room, so this thread goes there.
                sys::use_own_directory()?;
                rustix::process::fchdir(&shared.held)?;
                sys::connect_to_path(socket, itself(object).as_bytes())
            }
        }
    }
}

/// The path in the address of a unix socket. `None` for an abstract name and for other
/// families, where the kernel finds no path.
fn unix_path<'a>(facts: &SocketFacts, address: &'a [u8]) -> Option<&'a [u8]> {
    let path = address.get(FAMILY_BYTES..)?;
    if facts.domain != libc::AF_UNIX || path.first().is_none_or(|first| *first == 0) {
        return None;
    }
    path.split(|byte| *byte == 0).next()
}

/// Holds a socket that was made in the caller's own network namespace.
fn find_own_socket(
    shared: &MonitorState,
    caller: &CallingProcess<'_>,
    path: &[u8],
) -> Result<OwnedFd, Errno> {
    let spot = CallPath { dir: libc::AT_FDCWD, path: Some(path.to_vec()) };
    let place = PathFinder::looking(caller, shared.sight.as_ref()).find(spot, true)?;
    let object = match place.shown(Errno::NOENT)? {
        CallPlace::Opened(_) => return Err(Errno::CONNREFUSED),
        place => hold(place)?,
    };
    let meta = fstat(&object)?;
    if FileType::from_raw_mode(meta.st_mode) != FileType::Socket {
        return Err(Errno::CONNREFUSED);
    }
    let own = shared.diagnosis.as_ref().ok_or(Errno::ACCESS)?;
    if own.has_socket(meta.st_dev, meta.st_ino)? { Ok(object) } else { Err(Errno::ACCESS) }
}
