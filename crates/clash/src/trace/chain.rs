//! The hash chain: every record has a digest over itself and the digest before it.
//!
//! The digest of a record is BLAKE3 over the digest before it (32 bytes), all bytes between
//! the end of the record before it and its own line, and its line up to `,"chain":`. So a
//! changed, removed, added or moved line breaks the chain at that place. The bytes between
//! two records are a line that was torn by a crash, or records of version 1.
//!
//! The head file names the number and digest of the last record. So the chain also shows
//! that records at the end are missing.

use std::io;
use std::path::Path;

use super::segments::{self, TraceHead};

/// The field at the end of every line, up to the digest.
const FIELD: &[u8] = b",\"chain\":\"";
const END: &[u8] = b"\"}";
const DIGEST_BYTES: usize = 32;

/// A digest of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChainDigest(pub(super) [u8; DIGEST_BYTES]);

impl ChainDigest {
    /// The digest before the first record.
    pub(super) const START: Self = Self([0; DIGEST_BYTES]);

    pub(super) fn hex(self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    pub(super) fn from_hex(text: &[u8]) -> Option<Self> {
        blake3::Hash::from_hex(text).ok().map(|hash| Self(*hash.as_bytes()))
    }

    /// The digest of a record whose line begins with `body`.
    pub(super) fn next(self, gap: &[u8], body: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0).update(gap).update(body);
        Self(*hasher.finalize().as_bytes())
    }
}

/// The line of a record: its JSON object with the digest as the last field.
pub(super) fn line(object: &[u8], before: ChainDigest, gap: &[u8]) -> (Vec<u8>, ChainDigest) {
    let body = object.strip_suffix(b"}").unwrap_or(object);
    let digest = before.next(gap, body);
    let line = [body, FIELD, digest.hex().as_bytes(), END, b"\n"].concat();
    (line, digest)
}

/// A line of the trace without its digest, and the digest. `None` for other lines.
pub(super) fn split(line: &[u8]) -> Option<(&[u8], ChainDigest)> {
    let line = line.strip_suffix(END)?;
    let at = line.len().checked_sub(DIGEST_BYTES * 2)?;
    let (body, digest) = line.split_at_checked(at)?;
    Some((body.strip_suffix(FIELD)?, ChainDigest::from_hex(digest)?))
}

/// The number of a record, from the first fields of its line.
pub(super) fn number(body: &[u8]) -> Option<u64> {
    let at = memchr::memmem::find(body.get(..64.min(body.len()))?, b"\"n\":")?;
    let digits = body.get(at + 4..)?;
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    std::str::from_utf8(digits.get(..end)?).ok()?.parse().ok()
}

/// The chain after some lines.
#[derive(Clone, Debug)]
pub(super) struct ChainState {
    pub(super) count: u64,
    pub(super) digest: ChainDigest,
    /// The bytes since the last record.
    pub(super) gap: Vec<u8>,
}

impl ChainState {
    /// Adds the bytes of a part of a file. Returns the number of records before the first
    /// line that breaks the chain, if there is one.
    pub(super) fn follow(&mut self, bytes: &[u8]) -> Result<(), u64> {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let whole = line.strip_suffix(b"\n").and_then(split);
            let Some((body, digest)) = whole else {
                self.gap.extend_from_slice(line);
                continue;
            };
            let is_next = number(body) == Some(self.count + 1);
            if !is_next || self.digest.next(&self.gap, body) != digest {
                return Err(self.count);
            }
            *self = Self { count: self.count + 1, digest, gap: Vec::new() };
        }
        Ok(())
    }
}

/// The result of a check of a whole trace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChainReport {
    /// All records are there, unchanged and in order.
    Whole {
        records: u64,
        /// Records that clash itself removed because the trace was too large.
        dropped: u64,
        /// Lines that are no record: torn by a crash, or of an older version.
        others: u64,
    },
    Broken {
        /// The last record before the break.
        after: u64,
        why: &'static str,
    },
}

/// Checks the trace of a session against its head. A trace of an older version without a head
/// counts as whole. The caller must hold no lock on it.
pub(crate) fn verify(session: &Path) -> io::Result<ChainReport> {
    let (_lock, head) = segments::lock_for_reading(session)?;
    let Some(head) = head else {
        let files = segments::files(session);
        let records = super::read(session)?;
        let is_old = records.iter().all(|(record, _)| record.v == 1);
        return Ok(match (files.is_empty(), is_old) {
            (false, true) => {
                let others = records.len() as u64;
                ChainReport::Whole { records: 0, dropped: 0, others }
            }
            (false, false) => {
                ChainReport::Broken { after: 0, why: "the file `trace.head` is missing" }
            }
            (true, _) => ChainReport::Broken { after: 0, why: "there is no trace" },
        });
    };
    let TraceHead { dropped, base, .. } = head;
    let mut state = ChainState { count: dropped, digest: base, gap: Vec::new() };
    let mut others = 0;
    for file in segments::files(session) {
        let mut broken = None;
        super::scan::each_line_with_end(&file, |line| {
            if broken.is_none() {
                others += u64::from(line.strip_suffix(b"\n").and_then(split).is_none());
                broken = state.follow(line).err();
            }
        })?;
        if let Some(after) = broken {
            let why = "the next line was changed, or lines before it are missing";
            return Ok(ChainReport::Broken { after, why });
        }
    }
    if state.count < head.count {
        let why = "records at the end are missing";
        return Ok(ChainReport::Broken { after: state.count, why });
    }
    if state.count == head.count && state.digest != head.digest {
        let why = "the end differs from the file `trace.head`";
        return Ok(ChainReport::Broken { after: state.count, why });
    }
    Ok(ChainReport::Whole { records: state.count - dropped, dropped, others })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_splits_into_its_parts() {
        let (line, digest) = line(br#"{"v":2,"n":17,"what":"x"}"#, ChainDigest::START, b"");
        let whole = line.strip_suffix(b"\n").unwrap();
        let (body, found) = split(whole).unwrap();
        assert_eq!(found, digest);
        assert_eq!(number(body), Some(17));
        assert!(serde_json::from_slice::<serde_json::Value>(whole).is_ok());
        assert_eq!(split(b"{}"), None);
        assert_eq!(split(b""), None);
    }
}
