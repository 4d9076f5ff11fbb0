//! A lock between the monitors of several rooms.
//!
//! Two changes that are each fine can together make a link that leads out. For example, one
//! room makes `a/b/l -> ../..` while another moves `a/b` up. Or one room makes `HEAD` and
//! another makes `commondir`.
//!
//! The lock is `flock` on the host's home directory, opened before the launcher enters the
//! room. It needs no file, and a room without rights on all of the home cannot open it. A
//! room that can open it may make others wait, at most [`MAX_LOCK_WAIT`] each time.
//!
//! The monitors also share a record of removed links (`former.rs`).

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;

use super::former::FormerLinks;

const MAX_LOCK_WAIT: Duration = Duration::from_secs(5);
const LOCK_RETRY_PAUSE: Duration = Duration::from_micros(200);

#[derive(Debug)]
pub(super) struct RoomLock {
    lock: Option<Arc<OwnedFd>>,
    pub(super) former: FormerLinks,
}

/// Holds the lock until it is dropped. One call takes one turn: dropping any of its turns
/// would release the lock.
#[derive(Debug)]
pub(super) struct LockTurn(Arc<OwnedFd>);

impl RoomLock {
    /// Opens the lock: the home directory, or the root if there is no home. Opens the
    /// record of removed links too.
    pub(super) fn open(home: &Path, former: Option<&Path>) -> Self {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, home, flags, Mode::empty());
        let lock = dir.or_else(|_| openat(CWD, "/", flags, Mode::empty())).ok().map(Arc::new);
        Self { lock, former: FormerLinks::open(former) }
    }

    /// A turn for renaming a file. Meanwhile no link can take its place.
    pub(super) fn shared(&self) -> Result<LockTurn, Errno> {
        self.wait(FlockOperation::NonBlockingLockShared)
    }

    /// A turn for making, renaming or removing a link, for renaming a directory, and for a
    /// part of a repository.
    /// Meanwhile no other monitor renames anything.
    pub(super) fn alone(&self) -> Result<LockTurn, Errno> {
        self.wait(FlockOperation::NonBlockingLockExclusive)
    }

    /// Waits for the lock, at most [`MAX_LOCK_WAIT`]. Fails with `EACCES` after that, and
    /// without a lock file.
    fn wait(&self, operation: FlockOperation) -> Result<LockTurn, Errno> {
        let file = self.lock.as_ref().ok_or(Errno::ACCESS)?;
        let end = Instant::now() + MAX_LOCK_WAIT;
        loop {
            match flock(file, operation) {
                Ok(()) => return Ok(LockTurn(file.clone())),
                Err(Errno::AGAIN | Errno::INTR) if Instant::now() < end => {
                    std::thread::sleep(LOCK_RETRY_PAUSE);
                }
                Err(_) => return Err(Errno::ACCESS),
            }
        }
    }
}

impl Drop for LockTurn {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}
