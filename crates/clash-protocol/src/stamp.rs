//! The state of a policy's input file. The compiler records it in the image, and
//! `clash` compares it to find out whether a cached image is stale.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use clash_policy::fnv::fnv_hash;
use clash_policy::ir::SourceStamp;

/// The version of clash in an image. Another version of clash compiles anew.
pub const BUILD_STAMP: u64 = fnv_hash(crate::CLASH_VERSION.as_bytes());

/// The state of the file at `path` with links followed; `None` if there is no file.
///
/// # Errors
/// If `stat` fails for another reason than an absent file.
pub fn stamp_file(path: &Path) -> io::Result<Option<SourceStamp>> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some(SourceStamp {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_has_another_stamp() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.star");
        assert_eq!(stamp_file(&file).unwrap(), None);
        fs::write(&file, "a").unwrap();
        let before = stamp_file(&file).unwrap();
        assert!(before.is_some_and(|stamp| stamp.size == 1));
        assert_eq!(stamp_file(&file).unwrap(), before);
        fs::write(&file, "ab").unwrap();
        assert_ne!(stamp_file(&file).unwrap(), before);
        assert_eq!(stamp_file(&file.join("below a file")).unwrap(), None);
    }
}
