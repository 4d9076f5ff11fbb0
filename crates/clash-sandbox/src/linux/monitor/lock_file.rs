//! Files of a repository that git replaces by renaming a lock file, for example `HEAD.lock` to
//! `HEAD`.
//!
//! The monitor reads and judges the lock file and renames a copy instead. A process that still
//! has the lock file open cannot change the copy. The copy has a name during one system call
//! only. If the monitor is killed in that instant, the next monitor removes the copy.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use clash_policy::FileCaps;
use clash_policy::protect::REPOSITORY;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, fstat, linkat, openat, unlinkat};
use rustix::io::Errno;

use super::act::{ActResult, HeldName, MonitorWorker, itself};
use crate::plan::{GrantReason, PathGrant};

/// The name of the monitor's own copy before the rename. Only a monitor with an exclusive
/// turn makes this name, so a copy that it finds is from a monitor that was killed.
pub(super) const COPY: &str = "HEAD.lock-clash";

impl MonitorWorker {
    /// `EACCES` unless a rename is git's own: without flags, from the lock file `lock`, within
    /// one directory, and of files that the sandbox may change.
    pub(super) fn check_lock_rename(
        &self,
        from: &HeldName,
        to: &HeldName,
        flags: RenameFlags,
        lock: &[u8],
        change: FileCaps,
    ) -> ActResult {
        let rights = &self.watch.rights;
        let of_git = flags.is_empty()
            && from.bare() == lock
            && from.path.parent() == to.path.parent()
            && rights.permits(&from.path, change)
            && rights.permits(&to.path, change)
            && rights.kept_by_link(&to.path, change, &self.links).is_none();
        if of_git { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// Puts a file with this content in the place of another. Needs an exclusive turn.
    pub(super) fn put_copy(&self, to: &HeldName, content: &[u8], mode: Mode) -> ActResult {
        let _ = unlinkat(&to.dir, COPY, AtFlags::empty());
        rustix::process::umask(Mode::empty());
        let put = self
            .write_copy(to, content, mode)
            .and_then(|()| rustix::fs::renameat(&to.dir, COPY, &to.dir, to.bare()));
        if put.is_err() {
            let _ = unlinkat(&to.dir, COPY, AtFlags::empty());
        }
        put
    }

    /// Writes the copy. On filesystems with `O_TMPFILE` the name comes last.
    fn write_copy(&self, to: &HeldName, content: &[u8], mode: Mode) -> ActResult {
        let write = |file: &OwnedFd| -> ActResult {
            let mut left = content;
            while !left.is_empty() {
                let written = rustix::io::write(file, left)?;
                left = left.get(written..).unwrap_or_default();
            }
            Ok(())
        };
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        if let Ok(file) = openat(&to.dir, ".", flags | OFlags::TMPFILE, mode) {
            write(&file)?;
            let follow = AtFlags::SYMLINK_FOLLOW;
            return linkat(&self.shared.held, itself(&file), &to.dir, COPY, follow);
        }
        let new = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        write(&openat(&to.dir, COPY, new, mode)?)
    }

    /// Removes the copy that a killed monitor has left in the project's repository.
    pub(super) fn sweep_copies(&self) {
        let rights = &self.watch.rights;
        let of_worktree = |grant: &&PathGrant| {
            let parent = grant.path.parent();
            grant.why == GrantReason::Worktree
                && parent.is_some_and(|dir| dir.ends_with("worktrees"))
        };
        let worktree = rights.given.iter().find(of_worktree).map(|grant| grant.path.clone());
        let copy = worktree.unwrap_or_else(|| rights.places.project.join(REPOSITORY)).join(COPY);
        // The second is a copy of `.gitmodules`.
        for copy in [copy, rights.places.project.join(COPY)] {
            if rustix::fs::lstat(&copy).is_ok()
                && let Ok(_turn) = self.turns.alone()
            {
                let _ = rustix::fs::unlink(&copy);
            }
        }
    }
}

/// The text and mode of a regular file with this name in the directory of `at`. Follows no
/// link. `EACCES` for another kind of file, for one with more than `most` bytes, and for one
/// that is not UTF-8.
pub(super) fn read_beside(at: &HeldName, name: &[u8], most: u64) -> Result<(String, Mode), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(&at.dir, name, flags, Mode::empty())?;
    let meta = fstat(&file)?;
    if FileType::from_raw_mode(meta.st_mode) != FileType::RegularFile {
        return Err(Errno::ACCESS);
    }
    let mut text = String::new();
    let read = File::from(file).take(most + 1).read_to_string(&mut text);
    if read.is_err() || text.len() as u64 > most {
        return Err(Errno::ACCESS);
    }
    Ok((text, Mode::from_raw_mode(meta.st_mode & 0o777)))
}
