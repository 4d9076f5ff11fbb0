//! Reads the lines of a trace one after another, with one buffer.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

const BUFFER_BYTES: usize = 256 * 1024;

/// A line that is longer is no record.
const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;

/// Calls `each` for every line, without its end.
pub(crate) fn each_line(file: &Path, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    each_line_with_end(file, |line| each(line.strip_suffix(b"\n").unwrap_or(line)))
}

/// Calls `each` for every line, with its end if it has one. The middle of a line longer than
/// [`MAX_LINE_BYTES`] may be missing.
pub(super) fn each_line_with_end(file: &Path, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, File::open(file)?);
    let mut long = Vec::new();
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            if !long.is_empty() {
                each(&long);
            }
            return Ok(());
        }
        let mut used = 0;
        for end in memchr::memchr_iter(b'\n', buffer) {
            let line = buffer.get(used..=end).unwrap_or_default();
            if long.is_empty() {
                each(line);
            } else {
                long.extend_from_slice(line);
                each(&long);
                long.clear();
            }
            used = end + 1;
        }
        let rest = buffer.get(used..).unwrap_or_default();
        if long.len() < MAX_LINE_BYTES {
            long.extend_from_slice(rest);
        }
        let length = buffer.len();
        reader.consume(length);
    }
}
