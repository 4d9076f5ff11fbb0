//! Links that a room has removed a moment ago.
//!
//! The kernel reads the text of a link, for example `../../x`, and then follows `..` from
//! the link's directory. In between, a room may remove the link and move the directory up.
//! `..` then leads higher than the judged link did. The kernel notices such a move only as
//! long as it follows a path without references to the directories (`follow_dotdot_rcu`,
//! Linux 6.18). So a removed link that climbs counts for [`COUNTED_MS`] as if it were still
//! there: a rename of its directory, or of one above, judges it again.
//!
//! The kernel may also stand higher already, where the first `..` led. So the record has an
//! entry for each directory on the way up, with the number of `..` that are left there.
//!
//! The monitors of all rooms of a user share the record: a file in clash's state directory,
//! opened before the launcher enters the room. Only a monitor with an exclusive turn writes
//! it. A new link is recorded as well: another room may be about to remove a file of the
//! same name, without a turn. The file is a hash table of fixed size. If no slot is free, or without a file, no
//! directory gets another parent.

use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, fallocate, fstat, openat};
use rustix::io::{Errno, pread, pwrite};
use rustix::time::{ClockId, clock_gettime};

use super::act::{ActResult, identity};

/// Between reading a link and following its `..`, the kernel waits at most for the journal
/// of the filesystem (for the time of the last access) and for a CPU. With slices of some
/// milliseconds, this is the time of more than ten thousand busy processes. Signals and
/// freezers stop a process only outside the kernel.
const COUNTED_MS: u64 = 60_000;
/// The monitor does not write an entry again that is younger.
const REWRITE_MS: u64 = 1_000;

const RECORD_FORMAT: u64 = u64::from_le_bytes(*b"clashfl1");
const BUCKET_COUNT: u64 = 4096;
const SLOT_BYTES: usize = 32;
/// The first bucket has the header instead of entries.
const BUCKET_BYTES: usize = 16 * SLOT_BYTES;
const FILE_BYTES: u64 = (BUCKET_COUNT + 1) * BUCKET_BYTES as u64;

/// A set of numbers of `..`: bit 2 stands for `../..`. Bit 0 has no meaning.
pub(super) type ClimbSet = u64;
/// More `..` than a set can have.
const BEYOND: ClimbSet = 1 << 63;

/// Device and inode of a directory.
type DirInode = (u64, u64);

/// The shared record.
#[derive(Debug)]
pub(super) struct FormerLinks {
    file: Option<OwnedFd>,
    /// The last time when this monitor wrote the header.
    announced: AtomicU64,
}

/// What the header of the record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormerState {
    /// No entry counts any more.
    Empty,
    Some,
    /// Entries are missing.
    Unknown,
}

impl FormerLinks {
    /// Opens the record, or makes it. If that fails, or without a path, there is no record.
    pub(super) fn open(path: Option<&Path>) -> Self {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |path: &Path| openat(CWD, path, flags, Mode::from_raw_mode(0o600));
        let make = |path: &Path| match open(path) {
            Err(Errno::NOENT) => {
                let dir = path.parent().ok_or(Errno::NOENT)?;
                let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
                made.map_err(|_| Errno::NOENT).and_then(|()| open(path))
            }
            opened => opened,
        };
        Self { file: path.and_then(|path| make(path).ok()), announced: AtomicU64::new(0) }
    }

    /// Records links that climb from a directory. A monitor does this before it makes a link
    /// there and before it removes or moves one. Needs an exclusive turn.
    pub(super) fn note(&self, dir: &OwnedFd, climbs: ClimbSet) -> ActResult {
        self.note_at(dir, climbs, now())
    }

    /// As [`Self::note`], at a time: records the climbs at the directory and, one less each,
    /// at those above it. Without a file does nothing. If a directory above cannot be opened,
    /// or a link climbs too far, the record counts as incomplete for a while.
    fn note_at(&self, dir: &OwnedFd, climbs: ClimbSet, now: u64) -> ActResult {
        let Some(file) = &self.file else { return Ok(()) };
        let mut climbs = climbs & !1;
        if climbs == 0 {
            return Ok(());
        }
        self.announce(file, now)?;
        if climbs & BEYOND != 0 {
            return overflow(file, now);
        }
        let mut above = None;
        while climbs != 0 {
            let here: &OwnedFd = above.as_ref().unwrap_or(dir);
            put(file, identity(&fstat(here)?), climbs, now)?;
            climbs = one_less(climbs);
            if climbs != 0 {
                let hold = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let Ok(parent) = openat(here, "..", hold, Mode::empty()) else {
                    return overflow(file, now);
                };
                above = Some(parent);
            }
        }
        Ok(())
    }

    /// Writes the time into the header, so that monitors look for entries.
    fn announce(&self, file: &OwnedFd, now: u64) -> ActResult {
        if now.saturating_sub(self.announced.load(Ordering::Relaxed)) < REWRITE_MS
            && self.announced.load(Ordering::Relaxed) != 0
        {
            return Ok(());
        }
        let header = match FormerSlot::read_at(file, 0)? {
            // A file without content. Reserves the space, so that removing a link works on
            // a full disk. Not every filesystem can do this.
            None => {
                let _ = fallocate(file, FallocateFlags::empty(), 0, FILE_BYTES);
                FormerSlot([RECORD_FORMAT, 0, 0, 0])
            }
            Some(FormerSlot([0, 0, 0, 0])) => FormerSlot([RECORD_FORMAT, 0, 0, 0]),
            Some(header) => header,
        };
        let FormerSlot([format, _, full, rest]) = header;
        if format == RECORD_FORMAT {
            FormerSlot([format, now, full, rest]).write_at(file, 0)?;
        }
        self.announced.store(now, Ordering::Relaxed);
        Ok(())
    }

    /// Needs a turn.
    pub(super) fn state(&self) -> FormerState {
        self.state_at(now())
    }

    /// The state of the record at a time. Unknown without a file, for another format, and
    /// while an overflow counts.
    fn state_at(&self, now: u64) -> FormerState {
        let Some(file) = &self.file else { return FormerState::Unknown };
        match FormerSlot::read_at(file, 0) {
            Ok(None | Some(FormerSlot([0, 0, 0, 0]))) => FormerState::Empty,
            Ok(Some(FormerSlot([RECORD_FORMAT, _, full, _]))) if counts(full, now) => {
                FormerState::Unknown
            }
            Ok(Some(FormerSlot([RECORD_FORMAT, last, ..]))) => match counts(last, now) {
                true => FormerState::Some,
                false => FormerState::Empty,
            },
            _ => FormerState::Unknown,
        }
    }

    /// The climbs of links that were in a directory.
    pub(super) fn climbs(&self, dir: &OwnedFd) -> Result<ClimbSet, Errno> {
        self.climbs_at(dir, now())
    }

    /// The climbs of removed links that still count for a directory. None without a file.
    fn climbs_at(&self, dir: &OwnedFd, now: u64) -> Result<ClimbSet, Errno> {
        let Some(file) = &self.file else { return Ok(0) };
        let inode = identity(&fstat(dir)?);
        let slots = read_bucket(file, bucket_of(inode))?;
        let own = slots.iter().find(|slot| slot.inode() == inode && slot.counts(now));
        Ok(own.map_or(0, FormerSlot::climbs))
    }
}

/// The climb at the beginning of a link's text.
pub(super) fn climb_of(text: &[u8]) -> ClimbSet {
    let parts = Path::new(std::ffi::OsStr::from_bytes(text)).components();
    let named = parts.filter(|part| *part != Component::CurDir);
    match named.take_while(|part| *part == Component::ParentDir).count() {
        0 => 0,
        ups => u32::try_from(ups).ok().and_then(|ups| 1_u64.checked_shl(ups)).unwrap_or(BEYOND),
    }
}

/// The climbs that are left after `levels` times `..`.
pub(super) fn climbs_above(climbs: ClimbSet, levels: usize) -> ClimbSet {
    (0..levels.min(64)).fold(climbs, |climbs, _| one_less(climbs))
}

fn one_less(climbs: ClimbSet) -> ClimbSet {
    (climbs >> 1 & !1) | climbs & BEYOND
}

/// True if an entry of that time still counts. A later time than now is of another boot.
fn counts(stamp: u64, now: u64) -> bool {
    stamp != 0 && now.checked_sub(stamp).is_some_and(|age| age < COUNTED_MS + REWRITE_MS)
}

/// Milliseconds since the machine started, without the time in which it slept.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let [seconds, nanos] = [time.tv_sec, time.tv_nsec].map(|n| u64::try_from(n).unwrap_or(0));
    (seconds * 1000 + nanos / 1_000_000).max(1)
}

/// Device, inode, climbs and time; in the header: format, last entry, last overflow, zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FormerSlot([u64; 4]);

impl FormerSlot {
    fn inode(&self) -> DirInode {
        let Self([device, inode, ..]) = *self;
        (device, inode)
    }

    fn climbs(&self) -> ClimbSet {
        let Self([_, _, climbs, _]) = *self;
        climbs
    }

    fn counts(&self, now: u64) -> bool {
        let Self([.., stamp]) = *self;
        counts(stamp, now)
    }

    /// Reads four numbers. Missing bytes are zero.
    fn from_bytes(bytes: &[u8]) -> Self {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        }
        Self(words)
    }

    /// The slot at a position; `None` at the end of the file.
    fn read_at(file: &OwnedFd, at: u64) -> Result<Option<Self>, Errno> {
        let mut bytes = [0; SLOT_BYTES];
        let read = pread(file, &mut bytes, at)?;
        Ok((read == SLOT_BYTES).then(|| Self::from_bytes(&bytes)))
    }

    fn write_at(self, file: &OwnedFd, at: u64) -> ActResult {
        let bytes = self.0.map(u64::to_le_bytes).concat();
        if pwrite(file, &bytes, at)? == SLOT_BYTES { Ok(()) } else { Err(Errno::IO) }
    }
}

/// The place of a directory's bucket in the file.
fn bucket_of((device, inode): DirInode) -> u64 {
    // The multiplier of Fibonacci hashing. Its upper bits are spread best.
    let mixed = (inode ^ device.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (1 + (mixed >> 32) % BUCKET_COUNT) * BUCKET_BYTES as u64
}

/// The slots of a bucket; empty ones behind the end of the file.
fn read_bucket(file: &OwnedFd, at: u64) -> Result<Vec<FormerSlot>, Errno> {
    let mut bytes = [0; BUCKET_BYTES];
    // Behind the end of a file without reserved space everything is zero.
    pread(file, &mut bytes, at)?;
    Ok(bytes.chunks_exact(SLOT_BYTES).map(FormerSlot::from_bytes).collect())
}

/// Adds climbs to the entry of a directory. If its bucket is full, the whole record counts as
/// incomplete for a while.
fn put(file: &OwnedFd, inode: DirInode, climbs: ClimbSet, now: u64) -> ActResult {
    let bucket = bucket_of(inode);
    let slots = read_bucket(file, bucket)?;
    let own = slots.iter().position(|slot| slot.inode() == inode && slot.counts(now));
    let free = || slots.iter().position(|slot| !slot.counts(now));
    let Some(place) = own.or_else(free) else { return overflow(file, now) };
    let slot = slots.get(place).copied().unwrap_or_default();
    let FormerSlot([.., before, stamp]) = if own.is_some() { slot } else { FormerSlot::default() };
    if before & climbs == climbs && now.saturating_sub(stamp) < REWRITE_MS {
        return Ok(());
    }
    let (device, inode) = inode;
    let at = bucket + (place * SLOT_BYTES) as u64;
    FormerSlot([device, inode, before | climbs, now]).write_at(file, at)
}

/// Writes into the header that an entry is missing.
fn overflow(file: &OwnedFd, now: u64) -> ActResult {
    match FormerSlot::read_at(file, 0)? {
        Some(FormerSlot([RECORD_FORMAT, last, _, rest])) => {
            FormerSlot([RECORD_FORMAT, last, now, rest]).write_at(file, 0)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct RecordCase {
        dir: tempfile::TempDir,
        links: FormerLinks,
    }

    fn case() -> RecordCase {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
        let links = FormerLinks::open(Some(&dir.path().join("state/record")));
        RecordCase { dir, links }
    }

    impl RecordCase {
        fn hold(&self, below: &str) -> OwnedFd {
            openat(CWD, self.dir.path().join(below), OFlags::PATH, Mode::empty()).unwrap()
        }

        fn climbs(&self, below: &str, now: u64) -> ClimbSet {
            self.links.climbs_at(&self.hold(below), now).unwrap()
        }
    }

    #[test]
    fn a_climb_is_the_beginning_of_a_link() {
        for (text, climb) in [
            ("../x", 2),
            ("./../.././../x", 8),
            ("..", 2),
            ("x/../..", 0),
            ("/../..", 0),
            ("...", 0),
            ("", 0),
        ] {
            assert_eq!(climb_of(text.as_bytes()), climb, "{text}");
        }
        assert_eq!(climb_of("../".repeat(62).as_bytes()), 1 << 62);
        for ups in [63, 64, 1000] {
            assert_eq!(climb_of("../".repeat(ups).as_bytes()), BEYOND);
        }
    }

    #[test]
    fn every_directory_on_the_way_up_is_noted_for_a_while() {
        let case = case();
        assert_eq!(case.links.state_at(5000), FormerState::Empty);
        case.links.note_at(&case.hold("a/b/c"), 0b1010, 5000).unwrap();
        assert_eq!(case.links.state_at(5000), FormerState::Some);
        let found = |now| ["a/b/c", "a/b", "a", ""].map(|dir| case.climbs(dir, now));
        assert_eq!(found(5000), [0b1010, 0b100, 0b10, 0]);
        assert_eq!(found(5000 + COUNTED_MS), [0b1010, 0b100, 0b10, 0]);
        // Later, and after the next boot.
        for now in [5000 + COUNTED_MS + REWRITE_MS, 4999] {
            assert_eq!(found(now), [0; 4]);
            assert_eq!(case.links.state_at(now), FormerState::Empty);
        }
    }

    #[test]
    fn climbs_of_one_directory_add_up_until_they_expire() {
        let case = case();
        let dir = case.hold("a");
        for (climbs, now) in [(2, 5000), (4, 5001), (2, 40_000)] {
            case.links.note_at(&dir, climbs, now).unwrap();
        }
        assert_eq!(case.climbs("a", 40_000 + COUNTED_MS), 6);
        case.links.note_at(&dir, 2, 200_000).unwrap();
        assert_eq!(case.climbs("a", 200_000), 2);
    }

    #[test]
    fn monitors_share_what_they_note() {
        let case = case();
        case.links.note_at(&case.hold("a/b"), 2, 5000).unwrap();
        let other = FormerLinks::open(Some(&case.dir.path().join("state/record")));
        assert_eq!(other.state_at(5001), FormerState::Some);
        assert_eq!(other.climbs_at(&case.hold("a/b"), 5001), Ok(2));
        other.note_at(&case.hold("a"), 2, 6500).unwrap();
        assert_eq!(case.climbs("a", 6500), 2);
    }

    #[test]
    fn a_missing_entry_makes_the_record_unknown() {
        assert_eq!(FormerLinks::open(None).state_at(1), FormerState::Unknown);
        let case = case();
        case.links.note_at(&case.hold("a"), BEYOND, 5000).unwrap();
        assert_eq!(case.links.state_at(5000 + COUNTED_MS), FormerState::Unknown);
        assert_eq!(case.links.state_at(5000 + COUNTED_MS + REWRITE_MS), FormerState::Empty);
        // A bucket without a free slot.
        let file = case.links.file.as_ref().unwrap();
        let same = (0..).map(|inode| (7, inode)).filter(|id| bucket_of(*id) == bucket_of((7, 0)));
        let slots = BUCKET_BYTES / SLOT_BYTES;
        for (count, id) in same.take(slots + 1).enumerate() {
            assert_ne!(case.links.state_at(300_000), FormerState::Unknown, "{count}");
            put(file, id, 2, 300_000).unwrap();
        }
        assert_eq!(case.links.state_at(300_000), FormerState::Unknown);
        // The format of a later version.
        FormerSlot([1, 0, 0, 0]).write_at(file, 0).unwrap();
        assert_eq!(case.links.state_at(900_000), FormerState::Unknown);
        case.links.note_at(&case.hold("a"), 2, 900_000).unwrap();
        assert_eq!(FormerSlot::read_at(file, 0), Ok(Some(FormerSlot([1, 0, 0, 0]))));
    }
}
