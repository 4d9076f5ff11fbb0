//! Rooms that are kept for further commands behind the doors of one broker.
//!
//! The launcher of a room stays when its command has ended, if nothing is left in the room.
//! It gives the broker a socket. The process that answers a later visit claims the room and
//! sends the command through that socket. A room has one command at a time.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, SendAncillaryBuffer,
    SendAncillaryMessage, Shutdown, SocketFlags, SocketType, shutdown, socketpair,
};

use super::super::sys;

/// The kept rooms of one broker, at most.
const MAX_KEPT_ROOMS: usize = 8;
/// The time in which a room becomes free after its command.
const MAX_REST_WAIT: Duration = Duration::from_millis(10);
const REST_PAUSE: Duration = Duration::from_micros(20);

/// The states of the rooms, in memory that the broker, all processes that answer visits and
/// all launchers behind the doors share. No room's process has this memory.
type SlotTable = &'static [AtomicI32; 1024];

// Another state is the number of the process that has claimed the room. It sends its command
// only if the claim still holds.
const FREE: i32 = 0;
const BUSY: i32 = -3;
/// The command has ended, and the launcher looks whether it has left anything.
const RESTING: i32 = -2;
const IDLE: i32 = -1;

/// The slot of one kept room.
#[derive(Clone, Copy, Debug)]
struct RoomSlot {
    table: SlotTable,
    at: usize,
}

impl RoomSlot {
    fn set(self, state: i32) {
        if let Some(slot) = self.table.get(self.at) {
            slot.store(state, Ordering::Release);
        }
    }

    fn state(self) -> i32 {
        self.table.get(self.at).map_or(FREE, |slot| slot.load(Ordering::Acquire))
    }

    /// Changes the state if it is `from`.
    fn change(self, from: i32, to: i32) -> bool {
        let (set, other) = (Ordering::AcqRel, Ordering::Acquire);
        self.table
            .get(self.at)
            .is_some_and(|slot| slot.compare_exchange(from, to, set, other).is_ok())
    }
}

/// The rooms that a broker knows.
#[derive(Debug)]
pub(crate) struct KeptRooms {
    rooms: Vec<KeptRoom>,
    table: SlotTable,
    /// Launchers send their rooms here.
    to_broker: OwnedFd,
    registrations: OwnedFd,
}

/// A kept room, as the broker and those who answer visits know it.
#[derive(Debug)]
pub struct KeptRoom {
    slot: RoomSlot,
    tag: u64,
    seal: u64,
    launcher: i32,
    pub(super) socket: OwnedFd,
}

impl KeptRooms {
    pub(crate) fn new() -> io::Result<Self> {
        let (to_broker, registrations) = packets()?;
        let table = sys::shared_numbers()?;
        Ok(Self { rooms: Vec::new(), table, to_broker, registrations })
    }

    pub(crate) fn registrations(&self) -> &OwnedFd {
        &self.registrations
    }

    /// Takes one registration.
    pub(crate) fn register(&mut self) {
        let mut bytes = [0_u8; 32];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let length = sys::receive(self.registrations.as_raw_fd(), &mut bytes, &mut control);
        let mut files = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let socket = files.next().and_then(|mut files| files.next());
        let ([at, tag, seal, launcher], []) = bytes.as_chunks::<8>() else { return };
        let (Ok(32), Some(socket)) = (length, socket) else { return };
        let [at, launcher] = [at, launcher].map(|number| u64::from_le_bytes(*number));
        let (Ok(at), Ok(launcher)) = (usize::try_from(at), i32::try_from(launcher)) else { return };
        self.rooms.push(KeptRoom {
            slot: RoomSlot { table: self.table, at },
            tag: u64::from_le_bytes(*tag),
            seal: u64::from_le_bytes(*seal),
            launcher,
            socket,
        });
    }

    /// Forgets the rooms of a launcher that has ended.
    pub(crate) fn forget(&mut self, launcher: i32) {
        self.rooms.retain(|room| {
            let is_over = room.launcher == launcher;
            if is_over {
                room.slot.set(FREE);
            }
            !is_over
        });
    }

    /// Claims a free room with this tag. Waits a moment for one whose command has just ended.
    pub(crate) fn claim(&mut self, tag: u64) -> Option<KeptRoom> {
        let end = Instant::now() + MAX_REST_WAIT;
        loop {
            let fits = |room: &KeptRoom| room.tag == tag && room.slot.change(IDLE, sys::own_pid());
            if let Some(at) = self.rooms.iter().position(fits) {
                return Some(self.rooms.swap_remove(at));
            }
            let rests = |room: &KeptRoom| room.tag == tag && room.slot.state() == RESTING;
            if !self.rooms.iter().any(rests) || Instant::now() >= end {
                return None;
            }
            std::thread::sleep(REST_PAUSE);
        }
    }

    /// The offer for a launcher that this process starts. `report` is the launcher's end of
    /// the socket over which it tells about its command.
    pub(crate) fn offer(&self, report: OwnedFd) -> io::Result<KeepOffer> {
        let to_broker = rustix::io::fcntl_dupfd_cloexec(&self.to_broker, 3)?;
        Ok(KeepOffer { to_broker, report, table: self.table, tag: 0, seal: 0 })
    }
}

impl KeptRoom {
    /// A number that tells the plan of the room from other plans.
    pub fn seal(&self) -> u64 {
        self.seal
    }

    /// Ends the room, which no command is in.
    pub fn retire(self) {
        if self.take() {
            let _ = shutdown(&self.socket, Shutdown::Both);
        }
    }

    /// True if the claim of this process still holds. No other process gets the room then.
    pub(super) fn take(&self) -> bool {
        self.slot.change(sys::own_pid(), BUSY)
    }
}

impl Drop for KeptRoom {
    /// Gives a claimed room back, if nothing was sent to it.
    fn drop(&mut self) {
        self.slot.change(sys::own_pid(), IDLE);
    }
}

/// The broker's offer to keep a room.
#[derive(Debug)]
pub struct KeepOffer {
    to_broker: OwnedFd,
    report: OwnedFd,
    table: SlotTable,
    tag: u64,
    seal: u64,
}

impl KeepOffer {
    /// Only commands with the same tag can use the room.
    pub fn with_tag(self, tag: u64) -> Self {
        Self { tag, ..self }
    }

    /// Only commands whose plan has the same seal use the room.
    pub fn with_seal(self, seal: u64) -> Self {
        Self { seal, ..self }
    }

    /// The same offer with the descriptors of [`Self::descriptors`] at other numbers.
    pub(super) fn with_descriptors(self, placed: Vec<OwnedFd>) -> Option<Self> {
        let Self { to_broker, report, table, tag, seal } = self;
        // Their numbers may belong to other files now.
        std::mem::forget((to_broker, report));
        let mut placed = placed.into_iter();
        let (to_broker, report) = (placed.next()?, placed.next()?);
        Some(Self { to_broker, report, table, tag, seal })
    }

    pub(super) fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        Ok(vec![self.to_broker.try_clone()?, self.report.try_clone()?])
    }

    /// Registers the room of this process, which has a command. `None` if the broker keeps
    /// enough rooms.
    pub(crate) fn register(&self) -> Option<KeptPlace> {
        let slot = (0..MAX_KEPT_ROOMS)
            .map(|at| RoomSlot { table: self.table, at })
            .find(|slot| slot.change(FREE, BUSY))?;
        let placed = self.send(slot);
        if placed.is_none() {
            slot.set(FREE);
        }
        placed
    }

    fn send(&self, slot: RoomSlot) -> Option<KeptPlace> {
        let (own, of_broker) = packets().ok()?;
        let report = self.report.try_clone().ok()?;
        let launcher = u64::try_from(sys::own_pid()).ok()?;
        let words = [u64::try_from(slot.at).ok()?, self.tag, self.seal, launcher];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = [of_broker.as_fd()];
        let sent = control.push(SendAncillaryMessage::ScmRights(&files))
            && sys::send(self.to_broker.as_raw_fd(), &bytes, &mut control).is_ok();
        sent.then_some(KeptPlace { slot, requests: own, report })
    }
}

/// The launcher's side of a kept room.
#[derive(Debug)]
pub(crate) struct KeptPlace {
    slot: RoomSlot,
    /// The commands arrive here. The other end closes when the broker ends.
    pub(crate) requests: OwnedFd,
    /// For facts about the first command.
    pub(crate) report: OwnedFd,
}

impl KeptPlace {
    /// The sockets of a place: the launcher's end and the broker's, both made in the network
    /// of the room.
    pub(crate) const SOCKETS: u64 = 2;

    /// The command has ended, and the room is not ready for another one yet.
    pub(crate) fn rest(&self) {
        self.slot.set(RESTING);
    }

    /// The room is ready for another command.
    pub(crate) fn wait(&self) {
        self.slot.set(IDLE);
    }

    /// Ends a claim that is as old as the last look: its process has ended or does not go on.
    /// Returns the present claim.
    pub(crate) fn look_at_claim(&self, last: Option<i32>) -> Option<i32> {
        let claim = Some(self.slot.state()).filter(|state| *state > 0)?;
        if last == Some(claim) {
            self.slot.change(claim, IDLE);
        }
        Some(claim)
    }
}

impl Drop for KeptPlace {
    /// The broker sets the slot free when it forgets the room.
    fn drop(&mut self) {
        self.slot.set(BUSY);
    }
}

pub(super) fn packets() -> io::Result<(OwnedFd, OwnedFd)> {
    let (unix, packets) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socketpair(unix, packets, SocketFlags::CLOEXEC, None)?)
}

/// Sends one message with descriptors.
pub(super) fn send_with(
    socket: &OwnedFd,
    bytes: &[u8],
    files: &[BorrowedFd<'_>],
) -> rustix::io::Result<()> {
    let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(rustix::io::Errno::NOBUFS);
    }
    sys::send(socket.as_raw_fd(), bytes, &mut control)
}
