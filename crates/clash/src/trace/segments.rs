//! The files of a trace: its head, the newest segment and the older ones.
//!
//! A trace that has grown large gets a new segment. Clash keeps some segments of a session
//! and removes the oldest; the head then has the digest that the remaining ones begin with.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;

use super::chain::ChainDigest;

/// A segment that is larger than this is followed by a new one.
pub(super) const MAX_SEGMENT_BYTES: u64 = if cfg!(test) { 256 * 1024 } else { 8 * 1024 * 1024 };

/// The segments of one session, at most.
pub(super) const MAX_SEGMENTS: u64 = 8;

/// Clash forgets traces of sessions that had no record for this time.
const KEPT_FOR: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// The traces of all sessions together; the oldest sessions go first.
const MAX_TOTAL_BYTES: u64 = 1024 * 1024 * 1024;

pub(super) const HEAD: &str = "trace.head";

/// The state of a trace after its last record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceHead {
    /// The number of the newest segment's predecessor; 0 if there is only one segment.
    pub(super) segment: u64,
    /// The number of the last record.
    pub(super) count: u64,
    /// The length of the newest segment.
    pub(super) size: u64,
    pub(super) digest: ChainDigest,
    /// The number of the last record that was removed with an old segment, and its digest.
    pub(super) dropped: u64,
    pub(super) base: ChainDigest,
}

impl TraceHead {
    pub(super) const NEW: Self = Self {
        segment: 0,
        count: 0,
        size: 0,
        digest: ChainDigest::START,
        dropped: 0,
        base: ChainDigest::START,
    };

    /// One line of constant length, so that a new head overwrites the old one.
    pub(super) fn to_text(self) -> String {
        let Self { segment, count, size, digest, dropped, base } = self;
        let (digest, base) = (digest.hex(), base.hex());
        format!(
            "clash trace 2 {segment:010} {count:020} {size:020} {digest} {dropped:020} {base}\n"
        )
    }

    /// Reads the head of a trace. `None` if it is not exactly as this version writes it.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let mut words = text.strip_prefix("clash trace 2 ")?.strip_suffix('\n')?.split(' ');
        let mut next = || words.next();
        let (segment, count, size) = (next()?, next()?, next()?);
        let digest = ChainDigest::from_hex(next()?.as_bytes())?;
        let dropped = next()?.parse().ok()?;
        let base = ChainDigest::from_hex(next()?.as_bytes())?;
        Some(Self {
            segment: segment.parse().ok()?,
            count: count.parse().ok()?,
            size: size.parse().ok()?,
            digest,
            dropped,
            base,
        })
    }
}

/// The name of an older segment.
pub(super) fn older_name(segment: u64) -> String {
    format!("trace.{segment:010}.jsonl")
}

/// The files of a session's trace that exist, oldest first. Empty if the directory cannot be
/// read.
pub(crate) fn files(session: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(session).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_older = |name: &String| {
        let middle = name.strip_prefix("trace.").and_then(|name| name.strip_suffix(".jsonl"));
        middle.is_some_and(|it| !it.is_empty() && it.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut older: Vec<String> = names.filter(is_older).collect();
    older.sort();
    let newest = super::file_of(session);
    let newest = newest.exists().then_some(newest);
    older.iter().map(|name| session.join(name)).chain(newest).collect()
}

/// Waits until no other process writes, and returns the head. The lock ends with the
/// descriptor.
pub(super) fn lock_for_reading(session: &Path) -> io::Result<(Option<OwnedFd>, Option<TraceHead>)> {
    let file = match fs::File::open(session.join(HEAD)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((None, None)),
        Err(error) => return Err(error),
    };
    lock(&file, FlockOperation::NonBlockingLockShared)?;
    let text = io::read_to_string(&file)?;
    let head = TraceHead::from_text(&text);
    let head = head.ok_or_else(|| io::Error::other("the file `trace.head` was changed"))?;
    Ok((Some(file.into()), Some(head)))
}

/// The time for which a process waits for the lock of a trace. A writer holds it for some
/// microseconds.
const MAX_LOCK_TIME: Duration = Duration::from_secs(20);

/// Locks the head. Fails if another process keeps the lock, for example because it was
/// stopped in this moment.
pub(super) fn lock(head: impl std::os::fd::AsFd, how: FlockOperation) -> io::Result<()> {
    const PAUSE: Duration = Duration::from_micros(200);
    let mut began = None;
    loop {
        match flock(&head, how) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => {
                let began = *began.get_or_insert_with(Instant::now);
                if began.elapsed() > MAX_LOCK_TIME {
                    return Err(io::Error::other("another process keeps the trace locked"));
                }
                std::thread::sleep(PAUSE);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Opens a file of the trace in the held directory of a session.
pub(super) fn open_in(dir: &OwnedFd, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(openat(dir, name, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, mode)?)
}

/// Removes the traces that are too old, and the oldest ones if all together are too large.
/// The rest of a session's state stays. Errors are left for the next time.
pub(crate) fn forget_old(sessions: &Path, but: &Path) {
    let mut known: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(sessions).into_iter().flatten().flatten() {
        let session = entry.path();
        let metas = files(&session).into_iter().filter_map(|file| fs::metadata(file).ok());
        let (mut last, mut size) = (None, 0);
        for meta in metas {
            last = last.max(meta.modified().ok());
            size += meta.len();
        }
        if let Some(last) = last.filter(|_| session != but) {
            known.push((last, size, session));
        }
    }
    known.sort_by_key(|(last, ..)| std::cmp::Reverse(*last));
    let mut total = 0;
    for (last, size, session) in known {
        total += size;
        let age = SystemTime::now().duration_since(last).unwrap_or_default();
        if age > KEPT_FOR || total > MAX_TOTAL_BYTES {
            for file in files(&session) {
                let _ = fs::remove_file(file);
            }
            let _ = fs::remove_file(session.join(HEAD));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_reads_back_and_has_one_length() {
        let other = TraceHead { count: u64::MAX, size: 9, segment: 3, ..TraceHead::NEW };
        for head in [TraceHead::NEW, other] {
            assert_eq!(TraceHead::from_text(&head.to_text()), Some(head));
            assert_eq!(head.to_text().len(), TraceHead::NEW.to_text().len());
        }
        assert_eq!(TraceHead::from_text("clash trace 3 \n"), None);
    }

    #[test]
    fn old_traces_are_forgotten_and_the_own_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        let old = SystemTime::now() - KEPT_FOR * 2;
        for name in ["a", "b", "own"] {
            let session = dir.path().join(name);
            fs::create_dir(&session).unwrap();
            let file = fs::File::create(session.join("trace.jsonl")).unwrap();
            if name != "b" {
                file.set_modified(old).unwrap();
            }
            fs::write(session.join("root"), "").unwrap();
        }
        forget_old(dir.path(), &dir.path().join("own"));
        let left = |name: &str| !files(&dir.path().join(name)).is_empty();
        assert!(!left("a") && left("b") && left("own"));
        assert!(dir.path().join("a/root").exists());
    }
}
