//! Appends records to a trace.
//!
//! The lock on the head file makes writers take turns. Under the lock a writer appends one
//! line and replaces the head. If the disk takes only a part of a line, the writer removes
//! that part again. If a writer dies between the two steps, the next one finds that the file
//! is longer than the head says, and follows the chain from there.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, fstat, ftruncate, openat, renameat, statat,
    unlinkat,
};
use rustix::io::{Errno, pread, pwrite};

use super::chain::{self, ChainState};
use super::segments::{
    HEAD, MAX_SEGMENT_BYTES, MAX_SEGMENTS, TraceHead, lock, older_name, open_in,
};
use super::{FILE, TraceRecord};
use crate::session::Session;

/// The open files of a trace. A launcher keeps it when it enters a room, where the path of
/// the trace leads nowhere.
#[derive(Debug)]
pub(crate) struct TraceWriter {
    session: String,
    dir: OwnedFd,
    head: OwnedFd,
    newest: OwnedFd,
    /// The segment that `newest` is.
    segment: u64,
}

const APPEND: OFlags = OFlags::RDWR.union(OFlags::APPEND).union(OFlags::CREATE);

impl TraceWriter {
    /// Opens the trace of a session for appending. Creates its files.
    pub(crate) fn open(session: &Session) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, &session.dir, flags, Mode::empty())?;
        let head = open_in(&dir, HEAD, OFlags::RDWR | OFlags::CREATE)?;
        let newest = open_in(&dir, FILE, APPEND)?;
        let segment = read_head(&head)?.segment;
        Ok(Self { session: session.name.clone(), dir, head, newest, segment })
    }

    /// Appends one record. The record is in the trace if this succeeds, and only then.
    pub(crate) fn append(&mut self, record: TraceRecord) -> io::Result<()> {
        let record = record.kept();
        lock(&self.head, FlockOperation::NonBlockingLockExclusive)?;
        let done = self.append_locked(record);
        let _ = rustix::fs::flock(&self.head, FlockOperation::Unlock);
        done
    }

    /// Appends a record while the head is locked: follows lines that another process added,
    /// begins a new segment if the file is large, and writes the new head.
    fn append_locked(&mut self, mut record: TraceRecord) -> io::Result<()> {
        let mut head = read_head(&self.head)?;
        // Another process has begun a new segment since this one was opened, perhaps between
        // the opening of the file and the reading of its head.
        if head.segment != self.segment || !self.is_newest()? {
            self.newest = open_in(&self.dir, FILE, APPEND)?;
            self.segment = head.segment;
        }
        let size = file_size(&self.newest)?;
        let mut state = ChainState { count: head.count, digest: head.digest, gap: Vec::new() };
        if size > head.size {
            let missed = read_from(&self.newest, head.size, size)?;
            // A line that breaks the chain was not written by clash. The chain continues
            // from the head, so that a check finds the place.
            let _ = state.follow(&missed);
        }
        if size >= MAX_SEGMENT_BYTES && state.gap.is_empty() {
            self.begin_segment(&mut head, &state)?;
        }
        let start = file_size(&self.newest)?;
        if state.gap.last().is_some_and(|byte| *byte != b'\n') {
            state.gap.push(b'\n');
        }
        record.n = state.count + 1;
        record.session.clone_from(&self.session);
        let object = serde_json::to_vec(&record)?;
        let (mut line, digest) = chain::line(&object, state.digest, &state.gap);
        let ends_torn = start > head.size && !ends_with_newline(&self.newest, start)?;
        if ends_torn {
            line.insert(0, b'\n');
        }
        self.write_whole(&line, start)?;
        head.count = record.n;
        head.digest = digest;
        head.size = start + line.len() as u64;
        let text = head.to_text();
        if pwrite(&self.head, text.as_bytes(), 0)? != text.len() {
            return Err(io::Error::other("the disk takes records only in part"));
        }
        Ok(())
    }

    /// Writes the line, or nothing: what a full disk took in part is removed again.
    fn write_whole(&self, line: &[u8], start: u64) -> io::Result<()> {
        let written = loop {
            match rustix::io::write(&self.newest, line) {
                Err(Errno::INTR) => {}
                other => break other,
            }
        };
        match written {
            Ok(length) if length == line.len() => Ok(()),
            Ok(_) => {
                ftruncate(&self.newest, start)?;
                Err(Errno::NOSPC.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// True if the open file is still the newest segment.
    fn is_newest(&self) -> io::Result<bool> {
        let own = fstat(&self.newest)?;
        Ok(match statat(&self.dir, FILE, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(now) => (now.st_dev, now.st_ino) == (own.st_dev, own.st_ino),
            Err(_) => false,
        })
    }

    /// Makes the newest segment an older one, and removes the oldest if there are too many.
    fn begin_segment(&mut self, head: &mut TraceHead, state: &ChainState) -> io::Result<()> {
        let segment = head.segment + 1;
        renameat(&self.dir, FILE, &self.dir, older_name(segment))?;
        self.newest = open_in(&self.dir, FILE, APPEND)?;
        self.segment = segment;
        *head = TraceHead { segment, size: 0, count: state.count, digest: state.digest, ..*head };
        if let Some(oldest) = segment.checked_sub(MAX_SEGMENTS - 1).filter(|oldest| *oldest > 0) {
            let name = older_name(oldest);
            let file = open_in(&self.dir, &name, OFlags::RDONLY)?;
            let (dropped, base) = last_record(&file)?;
            (head.dropped, head.base) = (dropped, base);
            unlinkat(&self.dir, name, AtFlags::empty())?;
        }
        // A writer that dies now must not leave a head that belongs to the older segment.
        pwrite(&self.head, head.to_text().as_bytes(), 0)?;
        Ok(())
    }
}

/// The head of the trace; a new one if the file is empty. Fails if it is damaged.
fn read_head(file: &OwnedFd) -> io::Result<TraceHead> {
    let mut space = [0; 512];
    let length = pread(file, &mut space, 0)?;
    let text = std::str::from_utf8(space.get(..length).unwrap_or_default()).unwrap_or_default();
    if text.is_empty() {
        return Ok(TraceHead::NEW);
    }
    TraceHead::from_text(text).ok_or_else(|| io::Error::other("the file `trace.head` was changed"))
}

fn file_size(file: &OwnedFd) -> io::Result<u64> {
    Ok(u64::try_from(fstat(file)?.st_size).unwrap_or_default())
}

/// True if the last byte is a newline. False for an empty file.
fn ends_with_newline(file: &OwnedFd, size: u64) -> io::Result<bool> {
    let mut last = [0];
    pread(file, &mut last, size.saturating_sub(1))?;
    Ok(last == *b"\n")
}

/// The bytes from `start` to `end`; fewer if the file ends before.
fn read_from(file: &OwnedFd, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(end - start).unwrap_or_default()];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match pread(file, rest, start + filled as u64) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// The number and digest of the last record of a segment.
fn last_record(file: &OwnedFd) -> io::Result<(u64, chain::ChainDigest)> {
    let size = file_size(file)?;
    let bytes = read_from(file, 0, size)?;
    let mut lines = bytes.split(|byte| *byte == b'\n').rev();
    let found = lines.find_map(|line| {
        let (body, digest) = chain::split(line)?;
        Some((chain::number(body)?, digest))
    });
    found.ok_or_else(|| io::Error::other("an older part of the trace was changed"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::path::Path;

    use super::super::chain::{ChainReport, verify};
    use super::super::{TraceEvent, file_of, read, segments};
    use super::*;

    fn record(session: &Session, what: &str) -> TraceRecord {
        TraceRecord { what: Some(what.into()), ..TraceRecord::new(session, TraceEvent::Decision) }
    }

    fn whats(dir: &Path) -> Vec<String> {
        read(dir).unwrap().into_iter().filter_map(|(record, _)| record.what).collect()
    }

    fn whole(records: u64, others: u64) -> ChainReport {
        ChainReport::Whole { records, dropped: 0, others }
    }

    #[test]
    fn a_torn_line_and_older_records_stay_in_the_chain() {
        let dir = tempfile::tempdir().unwrap();
        let session = Session::imagined(dir.path());
        let old =
            "{\"v\":1,\"time\":1,\"session\":\"s\",\"event\":\"decision\",\"what\":\"old\"}\n";
        fs::write(file_of(dir.path()), old).unwrap();
        record(&session, "one").append(&session).unwrap();
        let mut torn = fs::File::options().append(true).open(file_of(dir.path())).unwrap();
        torn.write_all(b"{\"v\":2,\"ti").unwrap();
        record(&session, "two\nlines").append(&session).unwrap();
        record(&session, "three").append(&session).unwrap();
        assert_eq!(whats(dir.path()), ["old", "one", "two\nlines", "three"]);
        assert_eq!(verify(dir.path()).unwrap(), whole(3, 2));
    }

    #[test]
    fn a_record_whose_writer_died_before_the_head_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let session = Session::imagined(dir.path());
        record(&session, "one").append(&session).unwrap();
        let head = fs::read(dir.path().join(HEAD)).unwrap();
        record(&session, "two").append(&session).unwrap();
        fs::write(dir.path().join(HEAD), head).unwrap();
        assert_eq!(verify(dir.path()).unwrap(), whole(2, 0));
        record(&session, "three").append(&session).unwrap();
        assert_eq!(verify(dir.path()).unwrap(), whole(3, 0));
    }

    #[test]
    fn every_change_of_a_trace_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let session = Session::imagined(dir.path());
        for what in ["one", "two", "three"] {
            record(&session, what).append(&session).unwrap();
        }
        let file = file_of(dir.path());
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let joined = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect();
        let [one, two, three] = [lines[0], lines[1], lines[2]];
        let changed: [String; 7] = [
            text.replace("two", "TWO"),
            joined(&[one, three]),
            joined(&[two, three]),
            joined(&[one, two]),
            joined(&[one, three, two]),
            joined(&[one, two, two, three]),
            String::new(),
        ];
        for other in changed {
            fs::write(&file, &other).unwrap();
            let report = verify(dir.path()).unwrap();
            assert!(matches!(report, ChainReport::Broken { .. }), "{other}: {report:?}");
        }
        fs::write(&file, &text).unwrap();
        assert_eq!(verify(dir.path()).unwrap(), whole(3, 0));
        fs::remove_file(dir.path().join(HEAD)).unwrap();
        assert!(matches!(verify(dir.path()).unwrap(), ChainReport::Broken { .. }));
    }

    #[test]
    fn a_large_trace_gets_segments_and_loses_the_oldest() {
        let dir = tempfile::tempdir().unwrap();
        let session = Session::imagined(dir.path());
        let mut writer = TraceWriter::open(&session).unwrap();
        let mut held = TraceWriter::open(&session).unwrap();
        let long = "words ".repeat(10_000);
        let per_segment = MAX_SEGMENT_BYTES / long.len() as u64 + 1;
        for _ in 0..per_segment * (MAX_SEGMENTS + 2) {
            writer.append(record(&session, &long)).unwrap();
        }
        // A writer that was open all the time finds the newest segment.
        held.append(record(&session, "last")).unwrap();
        let files = segments::files(dir.path());
        assert_eq!(files.len() as u64, MAX_SEGMENTS);
        let ChainReport::Whole { records, dropped, others } = verify(dir.path()).unwrap() else {
            panic!("broken");
        };
        assert!(dropped > 0 && others == 0);
        assert_eq!(records + dropped, per_segment * (MAX_SEGMENTS + 2) + 1);
        assert_eq!(whats(dir.path()).last().unwrap(), "last");
        fs::remove_file(&files[0]).unwrap();
        assert!(matches!(verify(dir.path()).unwrap(), ChainReport::Broken { .. }));
    }

    #[test]
    fn secrets_do_not_reach_the_trace() {
        let dir = tempfile::tempdir().unwrap();
        let session = Session::imagined(dir.path());
        record(&session, "PGPASSWORD=hunter2 psql -h db").append(&session).unwrap();
        assert_eq!(whats(dir.path()), ["PGPASSWORD=[secret] psql -h db"]);
    }
}
