//! The directory in which a session began, by real path, device and inode.
//!
//! A command can remove the project and leave a link in its place; the next command
//! would then get the rights of `$PWD` at the link's target. So the record of the session
//! names the directory, and every hook and every launch compares.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, fstat, fstatfs, openat};

/// The identity of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProjectRoot {
    /// Without links.
    pub(crate) path: PathBuf,
    device: u64,
    inode: u64,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RootError {
    #[error(
        "the project {} cannot be opened: {source}; put it back, or start a new session",
        path.display()
    )]
    Gone { path: PathBuf, source: io::Error },
    #[error(
        "the project {} is another directory than the one this session began in; a command may \
         have replaced it: look at it with `ls -ld {}`, then start a new session",
        path.display(), path.display()
    )]
    Replaced { path: PathBuf },
}

const HEADER: &str = "clash root 1";

/// `f_type` of FUSE, whose file systems may give a file another inode number each time.
const FUSE: u64 = 0x6573_5546;

impl ProjectRoot {
    /// The directory that a path leads to now. Fails if it cannot be opened.
    pub(crate) fn find(path: &Path) -> Result<Self, RootError> {
        let failed = |source| RootError::Gone { path: path.to_path_buf(), source };
        let dir = open(path, OFlags::empty()).map_err(failed)?;
        let real = real_path(&dir).map_err(failed)?;
        let (device, inode) = device_and_inode(&dir).map_err(failed)?;
        Ok(Self { path: real, device, inode })
    }

    /// Fails unless the path still leads to this directory without a link anywhere on it. On
    /// FUSE only the path counts: its inode numbers may change.
    pub(crate) fn check(&self) -> Result<(), RootError> {
        let path = || self.path.clone();
        let opened = open(&self.path, OFlags::NOFOLLOW);
        let dir = opened.map_err(|source| match source.kind() {
            // With `O_NOFOLLOW` and `O_DIRECTORY` the kernel refuses a link this way.
            io::ErrorKind::NotADirectory => RootError::Replaced { path: path() },
            _ => RootError::Gone { path: path(), source },
        })?;
        let failed = |source| RootError::Gone { path: path(), source };
        let same = device_and_inode(&dir).map_err(failed)? == (self.device, self.inode)
            || fstatfs(&dir).is_ok_and(|fs| fs.f_type as u64 == FUSE);
        if same && real_path(&dir).map_err(failed)? == self.path {
            Ok(())
        } else {
            Err(RootError::Replaced { path: path() })
        }
    }

    /// The record of the session.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{HEADER}\n{} {}\n", self.device, self.inode).into_bytes();
        bytes.extend(self.path.as_os_str().as_bytes());
        bytes
    }

    /// Reads a record. `None` if another version wrote it or it is damaged.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(HEADER.as_bytes())?.strip_prefix(b"\n")?;
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let (numbers, path) = rest.split_at(end);
        let (device, inode) = std::str::from_utf8(numbers).ok()?.split_once(' ')?;
        let path = path.strip_prefix(b"\n").filter(|path| path.starts_with(b"/"))?;
        let path = std::ffi::OsString::from_vec(path.to_vec()).into();
        Some(Self { path, device: device.parse().ok()?, inode: inode.parse().ok()? })
    }
}

/// Opens a directory with `O_PATH`.
fn open(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?)
}

/// Device and inode.
fn device_and_inode(dir: &OwnedFd) -> io::Result<(u64, u64)> {
    let stat = fstat(dir)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// The path of an open directory, as the kernel names it.
fn real_path(dir: &OwnedFd) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn project() -> (tempfile::TempDir, PathBuf, ProjectRoot) {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("up/app")).unwrap();
        fs::create_dir_all(base.join("keys/app")).unwrap();
        let root = ProjectRoot::find(&base.join("up/app")).unwrap();
        root.check().unwrap();
        (dir, base, root)
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let (_dir, _, root) = project();
        assert_eq!(ProjectRoot::from_bytes(&root.to_bytes()), Some(root));
        for bytes in [&b""[..], b"/home/u/app", b"clash root 1\n1 2\nrelative", b"clash root 2\n"] {
            assert_eq!(ProjectRoot::from_bytes(bytes), None);
        }
    }

    #[test]
    fn a_project_behind_a_link_is_kept_by_its_real_path() {
        let (_dir, base, root) = project();
        symlink(base.join("up"), base.join("way")).unwrap();
        assert_eq!(ProjectRoot::find(&base.join("way/app")).unwrap(), root);
    }

    #[test]
    fn every_replacement_of_the_root_is_noticed() {
        let replace: [fn(&Path); 4] = [
            |base| symlink(base.join("keys"), base.join("up/app")).unwrap(),
            |base| fs::rename(base.join("keys/app"), base.join("up/app")).unwrap(),
            |base| fs::write(base.join("up/app"), "").unwrap(),
            |_| {},
        ];
        for replace in replace {
            let (_dir, base, root) = project();
            fs::rename(base.join("up/app"), base.join("away")).unwrap();
            replace(&base);
            assert!(root.check().is_err());
        }
    }

    #[test]
    fn a_link_above_the_root_is_noticed() {
        let (_dir, base, root) = project();
        fs::rename(base.join("up"), base.join("away")).unwrap();
        symlink("away", base.join("up")).unwrap();
        assert!(matches!(root.check(), Err(RootError::Replaced { .. })));
    }
}
