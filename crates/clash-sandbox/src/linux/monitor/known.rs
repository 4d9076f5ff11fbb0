//! Facts about calling processes that stay the same between two calls.
//!
//! The monitor keeps the `/proc` directory of each calling thread open, which saves the
//! search for its number. The directory belongs to one process: if the process has ended,
//! every look into it fails, also if another process has got its number.
//!
//! The kernel shows the umask only in `status`, together with fifty other lines. So the
//! monitor remembers it. The filter hands over every `umask` call, and each makes the
//! monitor forget all umasks. The kernel carries out the call a moment later. A umask that
//! the monitor reads in between is not remembered.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, openat};

/// When the map is full, the monitor clears it.
const MAX_KNOWN_CALLERS: usize = 64;
/// After this time, the kernel has carried out a `umask` call.
const UMASK_SETTLES_AFTER: Duration = Duration::from_millis(100);
/// No umask is as large.
const UNKNOWN: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct KnownCaller {
    /// `/proc/TID`.
    pub(super) dir: OwnedFd,
    /// Its pidfd, if the monitor has needed it.
    pub(super) process: OnceLock<OwnedFd>,
    umask: AtomicU32,
}

#[derive(Debug, Default)]
pub(super) struct KnownCallers(Mutex<CallerMap>);

#[derive(Debug, Default)]
struct CallerMap {
    callers: HashMap<i32, Arc<KnownCaller>>,
    last_umask_call: Option<Instant>,
}

impl KnownCallers {
    /// The known facts about a thread, or new ones; `None` if it has ended. Forgets all if
    /// there are too many.
    pub(super) fn caller(&self, processes: &OwnedFd, tid: i32) -> Option<Arc<KnownCaller>> {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = map.callers.get(&tid) {
            return Some(known.clone());
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(processes, tid.to_string(), flags, Mode::empty()).ok()?;
        if map.callers.len() >= MAX_KNOWN_CALLERS {
            map.callers.clear();
        }
        let known =
            Arc::new(KnownCaller { dir, process: OnceLock::new(), umask: AtomicU32::new(UNKNOWN) });
        map.callers.insert(tid, known.clone());
        Some(known)
    }

    /// Forgets a caller that has ended.
    pub(super) fn forget(&self, tid: i32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).callers.remove(&tid);
    }

    /// Forgets every known umask, because a process is about to change one.
    pub(super) fn forget_umasks(&self) {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        map.last_umask_call = Some(Instant::now());
        for known in map.callers.values() {
            known.umask.store(UNKNOWN, Ordering::Relaxed);
        }
    }

    /// Remembers a umask, unless one may be about to change.
    pub(super) fn remember_umask(&self, known: &KnownCaller, umask: u32) {
        let map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if map.last_umask_call.is_none_or(|call| call.elapsed() > UMASK_SETTLES_AFTER) {
            known.umask.store(umask, Ordering::Relaxed);
        }
    }
}

impl KnownCaller {
    pub(super) fn umask(&self) -> Option<u32> {
        Some(self.umask.load(Ordering::Relaxed)).filter(|umask| *umask != UNKNOWN)
    }
}
