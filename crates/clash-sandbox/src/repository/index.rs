//! Other repositories in the index. When git fetches or pulls, it enters each that is
//! checked out, whether or not `.gitmodules` names it.

use std::fs;
use std::path::{Path, PathBuf};

/// A larger index is not read.
const MAX_INDEX_BYTES: u64 = 128 << 20;

/// The mode of an entry that is another repository.
const GITLINK: u32 = 0o160_000;

/// The paths of other repositories in the index of a git directory. Empty if there is no
/// index. `None` if any part of it is not certainly understood.
pub(super) fn gitlinks(git_dir: &Path, hash_bytes: usize) -> Option<Vec<PathBuf>> {
    let path = git_dir.join("index");
    match fs::symlink_metadata(&path) {
        Ok(meta) if meta.is_file() && meta.len() <= MAX_INDEX_BYTES => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Some(Vec::new()),
        _ => return None,
    }
    parse_index(&fs::read(path).ok()?, hash_bytes)
}

/// Reads an index of version 2 to 4. `None` for a split or sparse index, which has entries
/// elsewhere, and for damaged bytes.
fn parse_index(bytes: &[u8], hash_bytes: usize) -> Option<Vec<PathBuf>> {
    use std::os::unix::ffi::OsStrExt;
    let version = number(bytes, 4)?;
    let mut left = number(bytes, 8)?;
    if bytes.get(..4)? != b"DIRC" || !(2..=4).contains(&version) {
        return None;
    }
    let mut found = Vec::new();
    let mut name: Vec<u8> = Vec::new();
    let mut at = 12;
    while left > 0 {
        let start = at;
        let mode = number(bytes, start + 24)?;
        let flags = start + 40 + hash_bytes;
        let extended = bytes.get(flags)? & 0x40 != 0;
        at = flags + if extended { 4 } else { 2 };
        if version == 4 {
            let stripped = variable_number(bytes, &mut at)?;
            name.truncate(name.len().checked_sub(stripped)?);
        } else {
            name.clear();
        }
        let rest = bytes.get(at..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        name.extend_from_slice(rest.get(..end)?);
        at += end + 1;
        if version < 4 {
            // NUL bytes fill each entry to a multiple of eight.
            at = start + (at - start).div_ceil(8) * 8;
        }
        if mode == GITLINK {
            found.push(PathBuf::from(std::ffi::OsStr::from_bytes(&name)));
        }
        left -= 1;
    }
    let end = bytes.len().checked_sub(hash_bytes)?;
    while at < end {
        if matches!(bytes.get(at..at + 4)?, b"link" | b"sdir") {
            return None;
        }
        at += 8 + usize::try_from(number(bytes, at + 4)?).ok()?;
    }
    Some(found)
}

/// Four bytes in network byte order.
fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(four.try_into().ok()?))
}

/// Git's encoding of offsets: seven bits per byte, and each further byte adds one.
fn variable_number(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let mut value: usize = 0;
    loop {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value = value.checked_add(usize::from(byte & 0x7f))?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
        value = value.checked_add(1)?.checked_mul(128)?;
    }
}
