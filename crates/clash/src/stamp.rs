//! The state of a policy's input file, shared by the program that compiles and
//! the one that checks whether what was compiled still holds.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use clash_policy::ir::Stamp;

/// Which program an image belongs to; another one compiles anew.
pub(crate) const BUILD: u64 = sum(env!("CARGO_PKG_VERSION").as_bytes());

/// A number for a name, the same in every version (FNV-1a). Not a defence:
/// whoever is named twice is only asked again.
pub(crate) const fn sum(bytes: &[u8]) -> u64 {
    let mut sum: u64 = 0xcbf2_9ce4_8422_2325;
    let mut at = 0;
    while at < bytes.len() {
        #[expect(clippy::indexing_slicing, reason = "bounded by the loop")]
        let byte = bytes[at];
        sum = (sum ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3);
        at += 1;
    }
    sum
}

/// `None`: there is no such file.
pub(crate) fn of(path: &Path) -> io::Result<Option<Stamp>> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some(Stamp {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified_ns: nanoseconds(meta.mtime(), meta.mtime_nsec()),
            changed_ns: nanoseconds(meta.ctime(), meta.ctime_nsec()),
        })),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn nanoseconds(seconds: i64, rest: i64) -> u64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest) as u64
}
