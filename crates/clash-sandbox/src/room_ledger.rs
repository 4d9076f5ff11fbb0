//! Rooms whose processes go on after their command.
//!
//! When a command ends and leaves processes in the background, its room stays. A *keeper*
//! takes the launcher's place: it carries out watched calls, holds the doors and ports, and
//! ends the room when the last process ends, when it gets `SIGTERM`, or when the time of the
//! room is up. The launcher ends as the command ended.

use std::io;

/// Keeps the record of a room that outlives its command. The keeper calls it, inside the
/// room's namespaces: an implementation uses descriptors that it opened before.
pub trait RoomLedger: Send + Sync {
    /// Records the room. On an error the room ends.
    fn enter(&self, room: &LeftRoom) -> io::Result<()>;

    /// Removes the record.
    fn leave(&self);

    /// The room has another command than at the beginning.
    fn rename(&self, _command: &str) {}
}

/// A room that outlives its command.
#[derive(Clone, Copy, Debug)]
pub struct LeftRoom {
    /// The process that keeps the room. `SIGTERM` ends the room, and so does its death.
    pub keeper: u32,
    /// The process from which the processes of the room descend.
    pub first: u32,
    /// The process from which the commands behind the room's doors descend.
    pub broker: Option<u32>,
}
