//! Reports facts about a running command: refused accesses and its end.
//!
//! The launcher sets a witness before it launches. The monitor and the launcher's own
//! waiting call it from inside the room, where no path leads to a file of clash: a witness
//! writes to files that it holds open. It must return soon; the command waits meanwhile.

use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use clash_policy::FileCaps;

/// An access that the monitor refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedAccess {
    /// The real path.
    pub path: PathBuf,
    /// The rights that the call needs.
    pub needs: FileCaps,
}

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObservedEnd {
    Exit(i32),
    Signal(i32),
    /// Its time was up.
    OutOfTime,
}

/// Receives facts about one running command.
pub trait CommandWitness: Send + Sync {
    fn refused(&self, access: &RefusedAccess);
    fn ended(&self, end: ObservedEnd);

    /// The room has another command, which this process started.
    fn renew(&self, _starter: u32) {}
}

static WITNESS: RwLock<Option<Arc<dyn CommandWitness>>> = RwLock::new(None);

/// Sets the witness of the next launch of this process. `None` for a launch without one:
/// a launcher behind a door begins with the witness of the outer one.
pub fn set(witness: Option<Arc<dyn CommandWitness>>) {
    if let Ok(mut place) = WITNESS.write() {
        // The process behind a door has closed the files of the outer witness, and their
        // numbers may belong to other files now. So the old one is never dropped.
        std::mem::forget(std::mem::replace(&mut *place, witness));
    }
}

fn witness() -> Option<Arc<dyn CommandWitness>> {
    WITNESS.read().ok()?.clone()
}

pub(crate) fn refused(access: &RefusedAccess) {
    if let Some(witness) = witness() {
        witness.refused(access);
    }
}

pub(crate) fn renew(starter: u32) {
    if let Some(witness) = witness() {
        witness.renew(starter);
    }
}

pub(crate) fn ended(end: ObservedEnd) {
    if let Some(witness) = witness() {
        witness.ended(end);
    }
}
