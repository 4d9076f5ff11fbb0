//! Resolves a path by opening it.
//!
//! To follow a path name by name takes many calls, and a command in the background can
//! exchange a directory and a link between two of them. So the kernel follows the path in
//! one call, with `O_PATH`, for which inotify sends no event. The real path is that of the
//! open file. Resolved name by name, the path must be the same.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use clash_agents::{PathLookupError, RealPaths};
use clash_policy::path::LinkResolver;
use clash_sandbox::disk::Disk;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};

use crate::caseless::is_caseless;

/// The paths of this machine, each opened before it is resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldPaths;

impl RealPaths for HeldPaths {
    fn is_caseless(&self, path: &Path) -> bool {
        is_caseless(&Disk::default().real(path))
    }

    fn resolve(&self, path: &Path, caseless: bool) -> Result<PathBuf, PathLookupError> {
        resolve_held(path, caseless)
    }
}

/// The real path. The part that does not exist stays as it is. Fails if the open file is
/// elsewhere than the path name by name: a command is exchanging it. A path that may not be
/// opened is resolved by name alone: the agent cannot open it either.
fn resolve_held(path: &Path, caseless: bool) -> Result<PathBuf, PathLookupError> {
    let by_name = Disk::default().real(path);
    let same = |held: &Path, named: &Path| {
        let folded = |path: &Path| path.to_string_lossy().to_lowercase();
        held == named || caseless && folded(held) == folded(named)
    };
    let failed = |source| PathLookupError::Look { path: path.to_path_buf(), source };
    let moves = || PathLookupError::Moves(path.to_path_buf());
    match open_path(path, OFlags::empty()) {
        Ok(file) if same(&path_of_file(&file).map_err(failed)?, &by_name) => Ok(by_name),
        Ok(_) => Err(moves()),
        Err(error) if is_absent(&error) => {
            let Some((there, dir)) = open_nearest(&by_name).map_err(failed)? else {
                return Ok(by_name);
            };
            let held = path_of_file(&dir).map_err(failed)?;
            if same(&held, there) { Ok(by_name) } else { Err(moves()) }
        }
        Err(_) => Ok(by_name),
    }
}

/// Device and inode of the nearest existing directory around a real path; `None` if it may
/// not be opened.
pub(crate) fn directory_of(real: &Path) -> io::Result<Option<(u64, u64)>> {
    let Some((_, dir)) = open_nearest(real.parent().unwrap_or(real))? else { return Ok(None) };
    let stat = fstat(&dir)?;
    Ok(Some((stat.st_dev, stat.st_ino)))
}

/// The longest existing part of a real path, opened without following a link. `None` if it
/// may not be opened.
fn open_nearest(real: &Path) -> io::Result<Option<(&Path, OwnedFd)>> {
    for there in real.ancestors() {
        match open_path(there, OFlags::NOFOLLOW) {
            Ok(file) => return Ok(Some((there, file))),
            Err(error) if is_absent(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Opens a path with `O_PATH`.
fn open_path(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, flags | OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// The path of an open file, as the kernel names it now.
fn path_of_file(file: &OwnedFd) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_open_file_and_its_names_agree() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("a/b")).unwrap();
        fs::write(base.join("a/file"), "").unwrap();
        symlink("a", base.join("link")).unwrap();
        symlink("a/none/x", base.join("dangling")).unwrap();
        symlink("loop", base.join("loop")).unwrap();
        for (path, expected) in [
            ("a/file", "a/file"),
            ("link/file", "a/file"),
            ("link/b/../file", "a/file"),
            ("link/new/x", "a/new/x"),
            ("dangling", "a/none/x"),
            ("a/file/below", "a/file/below"),
        ] {
            let real = resolve_held(&base.join(path), false).unwrap();
            assert_eq!(real, base.join(expected), "{path}");
        }
        let _ = resolve_held(&base.join("loop"), false);
    }

    #[test]
    fn a_new_file_has_the_inode_of_its_nearest_directory() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let inode = fs::metadata(&base).unwrap().ino();
        for path in ["new", "new/deep/x"] {
            assert_eq!(directory_of(&base.join(path)).unwrap().unwrap().1, inode, "{path}");
        }
    }
}
