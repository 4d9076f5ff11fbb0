//! A visit to a door, and the service that answers it.

use std::os::fd::OwnedFd;

use super::KeptRooms;

/// Decides about visits to doors. Its answers run outside every sandbox.
pub trait DoorService {
    /// Answers one visit, in a process of its own. The process ends when this returns.
    fn open(&self, visit: DoorVisit);
}

/// A process of a room at a door.
#[derive(Debug)]
pub struct DoorVisit {
    /// The socket to the visitor.
    pub(crate) socket: OwnedFd,
    /// The visiting process. Its number stays valid as long as this descriptor reports no
    /// end.
    pub(crate) process: OwnedFd,
    pub(crate) pid: i32,
    /// The rooms that are kept for further commands.
    pub(crate) rooms: KeptRooms,
}
