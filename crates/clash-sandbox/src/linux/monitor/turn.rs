//! Lets the monitors of several rooms take turns, where two changes that are each
//! fine would together make a link that leads out: one room makes `a/b/l -> ../..`
//! while another moves `a/b` up. Or one room makes `HEAD` and another `commondir`.
//!
//! The lock is the host's own home directory, opened before the launcher enters the
//! room. It needs no file, and a room that is not granted all of the home cannot
//! open it. A room that can may keep others waiting, for [`PATIENCE`] each time.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;

const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_micros(200);

#[derive(Debug)]
pub(super) struct Turns(Option<Arc<OwnedFd>>);

/// The lock, until it is dropped. A call takes one only: the first that is dropped
/// gives up the lock.
#[derive(Debug)]
pub(super) struct Turn(Arc<OwnedFd>);

impl Turns {
    /// Opens the lock: the home, or the root where there is no home.
    pub(super) fn open(home: &Path) -> Self {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, home, flags, Mode::empty());
        Self(dir.or_else(|_| openat(CWD, "/", flags, Mode::empty())).ok().map(Arc::new))
    }

    /// For renaming a file: no link takes its place meanwhile.
    pub(super) fn shared(&self) -> Result<Turn, Errno> {
        self.wait(FlockOperation::NonBlockingLockShared)
    }

    /// For making a link or a part of a repository, and renaming one or a directory: nothing is renamed meanwhile.
    pub(super) fn alone(&self) -> Result<Turn, Errno> {
        self.wait(FlockOperation::NonBlockingLockExclusive)
    }

    fn wait(&self, operation: FlockOperation) -> Result<Turn, Errno> {
        let file = self.0.as_ref().ok_or(Errno::ACCESS)?;
        let end = Instant::now() + PATIENCE;
        loop {
            match flock(file, operation) {
                Ok(()) => return Ok(Turn(file.clone())),
                Err(Errno::AGAIN | Errno::INTR) if Instant::now() < end => {
                    std::thread::sleep(PAUSE);
                }
                Err(_) => return Err(Errno::ACCESS),
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}
