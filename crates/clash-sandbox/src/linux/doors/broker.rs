//! The broker: a process outside the room that starts a process for each visit to a door.
//!
//! The launcher starts it before it enters the room's namespaces, because no process can
//! leave them again. It ends with the launcher. It reads no message of the room.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, sendmsg, shutdown,
    socketpair,
};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait, waitpid};

use super::super::sys::{self, ForkSide};
use super::kept::KeptRooms;
use super::{DoorService, DoorVisit};

/// The number of commands behind doors that one room can run at the same time.
const MAX_OPEN_DOORS: usize = 1000;

/// The time in which killed commands end.
const MAX_END_TIME: Duration = Duration::from_secs(1);

/// The way of the monitor to the broker.
#[derive(Debug)]
pub(crate) struct DoorLine {
    socket: OwnedFd,
}

impl DoorLine {
    /// Hands a visit to the broker. Does not wait: if too many visits are pending, the
    /// visitor gets the error.
    pub(crate) fn announce(
        &self,
        pid: i32,
        socket: &OwnedFd,
        process: &OwnedFd,
    ) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let both = [socket.as_fd(), process.as_fd()];
        if !control.push(SendAncillaryMessage::ScmRights(&both)) {
            return Err(Errno::NOBUFS);
        }
        WAS_VISITED.store(true, Ordering::Relaxed);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let text = pid.to_le_bytes();
        sendmsg(&self.socket, &[io::IoSlice::new(&text)], &mut control, flags).map(drop)
    }
}

/// The running broker.
#[derive(Debug)]
pub(crate) struct DoorBroker {
    socket: OwnedFd,
    pub(crate) pid: Option<Pid>,
}

impl DoorBroker {
    /// Lets the broker end all commands behind doors, without waiting.
    pub(crate) fn close(&self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Ends all commands behind doors, and waits for their end. A broker that had no visit
    /// ends by itself after the launcher.
    pub(crate) fn end(&self) {
        if WAS_VISITED.load(Ordering::Relaxed) && shutdown(&self.socket, Shutdown::Both).is_ok() {
            while matches!(waitpid(self.pid, WaitOptions::empty()), Err(Errno::INTR)) {}
        }
    }
}

/// True if the monitor has announced a visit.
static WAS_VISITED: AtomicBool = AtomicBool::new(false);

/// Numbers of processes in memory that a broker shares with all processes behind its doors.
type ProcessTable = &'static [AtomicI32; 1024];

/// The table of the broker behind whose door this process is. A room there can outlive its
/// command. Its processes become children of the broker, which does not wait for them.
static KEPT_PROCESSES: Mutex<Option<ProcessTable>> = Mutex::new(None);

/// Tells the broker of the outer room, if there is one, that these processes go on.
pub(crate) fn keep_processes(numbers: &[i32]) {
    let Some(table) = KEPT_PROCESSES.lock().ok().and_then(|table| *table) else { return };
    for number in numbers {
        let is_free = |slot: &&AtomicI32| {
            let (free, set) = (Ordering::Relaxed, Ordering::Release);
            slot.compare_exchange(0, *number, set, free).is_ok()
        };
        table.iter().find(is_free);
    }
}

/// Starts the broker. Call this before the launcher changes its namespaces or starts
/// threads.
pub(crate) fn start_broker(service: &dyn DoorService) -> io::Result<(DoorLine, DoorBroker)> {
    let (socket, of_broker) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let kept = rustix::io::fcntl_dupfd_cloexec(&socket, 3)?;
    let kept_processes = sys::shared_numbers()?;
    // A launcher behind a door inherits the mark of the outer one.
    WAS_VISITED.store(false, Ordering::Relaxed);
    match sys::fork()? {
        ForkSide::Parent(pid) => {
            Ok((DoorLine { socket }, DoorBroker { socket: kept, pid: Pid::from_raw(pid) }))
        }
        ForkSide::Child => {
            if let Ok(mut current) = KEPT_PROCESSES.lock() {
                *current = Some(kept_processes);
            }
            serve(&of_broker, service, kept_processes);
            sys::exit_now(0)
        }
    }
}

/// The process that answers a visit.
#[derive(Clone, Copy, Debug)]
struct VisitFollower {
    pid: Pid,
    /// The process number of the visitor.
    visitor: i32,
}

/// Receives visits until the launcher ends, and starts a process for each that answers it.
/// Drops a visit if [`MAX_OPEN_DOORS`] are open. A process has one visit at a time: a new one
/// ends the earlier one, so that no process can fill the broker with visits. At the end kills
/// these processes, and waits for everything behind the doors.
fn serve(visits: &OwnedFd, service: &dyn DoorService, kept: ProcessTable) {
    // Signals to the process group are for the command. The end of the launcher closes the
    // socket.
    if sys::hold_signals().is_err() || rustix::process::chdir(c"/").is_err() {
        return;
    }
    sys::notice_children();
    // Orphans of killed followers and launchers become children of the broker, which can
    // then wait for the end of everything behind its doors.
    if rustix::process::set_child_subreaper(Some(rustix::process::getpid())).is_err() {
        return;
    }
    // The caller may wait for the end of its output, so this process must not hold it.
    sys::close_all_but(visits.as_raw_fd());
    let Ok(mut rooms) = KeptRooms::new() else { return };
    let mut followers: Vec<VisitFollower> = Vec::new();
    loop {
        // A room is registered before the visit that could use it.
        if !is_visited(visits, &mut rooms) {
            continue;
        }
        let Some((visit, socket, process)) = next_visit(visits) else { break };
        reap(&mut followers, &mut rooms);
        for earlier in followers.iter().filter(|it| it.visitor == visit) {
            let _ = kill_process(earlier.pid, Signal::KILL);
        }
        // The visitor sees that its socket closes, and ends.
        if followers.len() >= MAX_OPEN_DOORS {
            continue;
        }
        match sys::fork() {
            Ok(ForkSide::Parent(pid)) => {
                let follower = |pid| VisitFollower { pid, visitor: visit };
                followers.extend(Pid::from_raw(pid).map(follower));
            }
            Ok(ForkSide::Child) => {
                if sys::die_with_parent().is_ok() {
                    service.open(DoorVisit { socket, process, pid: visit, rooms });
                }
                sys::exit_now(0);
            }
            // The visitor sees that its socket closes, and ends.
            Err(_) => {}
        }
    }
    for follower in followers {
        let _ = kill_process(follower.pid, Signal::KILL);
    }
    // Kept rooms end when their sockets close.
    drop(rooms);
    wait_for_all(kept);
}

/// Waits until no process behind the doors is left, but not for rooms that outlive their
/// commands.
fn wait_for_all(kept: ProcessTable) {
    let deadline = Instant::now() + MAX_END_TIME;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => {
                let left = deadline.saturating_duration_since(Instant::now());
                let goes_on = |pid: &i32| kept.iter().any(|it| it.load(Ordering::Acquire) == *pid);
                let is_over = own_children().iter().all(goes_on);
                if is_over || left.is_zero() || sys::next_signal(Some(left)).is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

/// The children of this process. One that is just being reaped has the number 0, which is
/// left out: a signal to 0 reaches the whole process group.
fn own_children() -> Vec<i32> {
    let own = sys::own_pid();
    let list = std::fs::read_to_string(format!("/proc/self/task/{own}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(|pid| *pid > 0).collect()
}

/// Waits for a visit or a registration. Takes a registration; true for a visit, or if the
/// launcher has ended.
fn is_visited(visits: &OwnedFd, rooms: &mut KeptRooms) -> bool {
    let mut ready =
        [PollFd::new(rooms.registrations(), PollFlags::IN), PollFd::new(visits, PollFlags::IN)];
    if poll(&mut ready, None).is_err() {
        return false;
    }
    let [registered, visited] = ready.map(|fd| !fd.revents().is_empty());
    if registered {
        rooms.register();
    }
    visited && !registered
}

/// Forgets followers, and launchers of kept rooms, that have ended.
fn reap(followers: &mut Vec<VisitFollower>, rooms: &mut KeptRooms) {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, _))) => {
                followers.retain(|follower| follower.pid != pid);
                rooms.forget(pid.as_raw_nonzero().get());
            }
            Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return,
        }
    }
}

/// The next visit: the visitor's process number, the socket to it and its process. `None` when
/// the launcher has ended.
fn next_visit(visits: &OwnedFd) -> Option<(i32, OwnedFd, OwnedFd)> {
    loop {
        let mut bytes = [0_u8; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let length = sys::receive(visits.as_raw_fd(), &mut bytes, &mut control).ok()?;
        if length == 0 {
            return None;
        }
        let mut given = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let mut files = given.next().into_iter().flatten();
        if let (Some(socket), Some(process)) = (files.next(), files.next()) {
            return Some((i32::from_le_bytes(bytes), socket, process));
        }
    }
}
