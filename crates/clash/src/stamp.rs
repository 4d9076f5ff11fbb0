//! The state of a policy's input file, shared by the program that compiles and
//! the one that checks whether what was compiled still holds.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use clash_policy::ir::Stamp;
pub(crate) use clash_sandbox::fnv::sum;

/// Which program an image belongs to; another one compiles anew.
pub(crate) const BUILD: u64 = sum(env!("CARGO_PKG_VERSION").as_bytes());

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
