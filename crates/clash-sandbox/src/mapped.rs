//! Maps a file instead of reading it. Every hook call reads a few places of the compiled
//! policy; reading all of a large one would take longer than the rest of the call.

use std::fs::File;
use std::io;
use std::path::Path;

/// The bytes of a file that is only replaced, never written to.
#[derive(Debug)]
pub struct MappedFile {
    #[cfg(target_os = "linux")]
    bytes: crate::linux::sys::FileMapping,
    #[cfg(not(target_os = "linux"))]
    bytes: Vec<u8>,
}

impl MappedFile {
    /// Maps the whole file. An empty file is fine.
    #[cfg(target_os = "linux")]
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        Ok(Self { bytes: crate::linux::sys::map(&file, length)? })
    }

    #[cfg(not(target_os = "linux"))]
    pub fn open(path: &Path) -> io::Result<Self> {
        use std::io::Read;
        let mut bytes = Vec::new();
        File::open(path)?.read_to_end(&mut bytes)?;
        Ok(Self { bytes })
    }

    /// The content of the file.
    pub fn bytes(&self) -> &[u8] {
        #[cfg(target_os = "linux")]
        return self.bytes.bytes();
        #[cfg(not(target_os = "linux"))]
        return &self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_has_all_bytes_and_a_missing_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        for text in ["", "a", &"b".repeat(10_000)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(MappedFile::open(&path).unwrap().bytes(), text.as_bytes());
        }
        assert!(MappedFile::open(&dir.path().join("none")).is_err());
    }
}
