//! The condition of a room's own places: whether a command has left anything in them.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, lstat, openat, statfs};

/// Everything in which one command could leave something for the next command of a kept
/// room, besides processes and places that all rooms of the sandbox share. Two equal values
/// mean that nothing was left.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RoomCondition {
    places: Vec<PlaceCondition>,
    /// The sockets in the room's network. A process elsewhere may hold one that it was given.
    sockets: Option<u64>,
}

#[derive(Debug, PartialEq, Eq)]
struct PlaceCondition {
    mode: u32,
    changed: (i64, i64),
    free_blocks: u64,
    free_files: u64,
}

impl RoomCondition {
    /// Reads the condition of places in the room. `processes` is the host's /proc, for a room
    /// with a network of its own. `None` if the kernel does not tell.
    pub(crate) fn read(own: &[PathBuf], processes: Option<&OwnedFd>) -> Option<Self> {
        let place = |path: &PathBuf| {
            let (meta, tree) = (lstat(path).ok()?, statfs(path).ok()?);
            Some(PlaceCondition {
                mode: meta.st_mode,
                changed: (meta.st_ctime, i64::try_from(meta.st_ctime_nsec).ok()?),
                free_blocks: tree.f_bfree,
                free_files: tree.f_ffree,
            })
        };
        let root = PathBuf::from("/");
        let places = std::iter::once(&root).chain(own).map(place).collect::<Option<_>>()?;
        let sockets = match processes {
            Some(processes) => Some(count_sockets(processes)?),
            None => None,
        };
        Some(Self { places, sockets })
    }

    /// The condition with more sockets, which the launcher itself has made since.
    pub(crate) fn with_sockets(self, more: u64) -> Self {
        Self { sockets: self.sockets.map(|count| count.saturating_add(more)), ..self }
    }
}

/// The sockets in the network namespace of the calling thread.
fn count_sockets(processes: &OwnedFd) -> Option<u64> {
    let name = "thread-self/net/sockstat";
    let file = openat(processes, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0_u8; 512];
    let length = rustix::io::read(&file, &mut text[..]).ok()?;
    let text = std::str::from_utf8(text.get(..length)?).ok()?;
    text.lines().next()?.strip_prefix("sockets: used ")?.trim().parse().ok()
}
