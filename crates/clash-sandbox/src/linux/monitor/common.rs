//! `commondir` of a linked worktree: the file that tells git where `config` and `hooks`
//! are.
//!
//! `git worktree add` always writes the same content. So the monitor writes that content
//! itself and hands `/dev/null` to the command. No command can write other content.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;

use clash_policy::FileCaps;
use clash_policy::path::NoLinks;
use clash_policy::protect::REPOSITORY;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::umask;

use super::act::{HeldName, MonitorWorker};

const CONTENT: &[u8] = b"../..\n";

impl MonitorWorker {
    /// True if a path is `commondir` of a linked worktree, in a repository that existed
    /// before the command.
    pub(super) fn is_common(&self, path: &Path) -> bool {
        let is = |above: usize, name: &str| {
            let dir = path.ancestors().nth(above);
            dir.and_then(Path::file_name).is_some_and(|last| last.eq_ignore_ascii_case(name))
        };
        let repository = || path.ancestors().nth(3).unwrap_or(path);
        is(0, "commondir")
            && is(2, "worktrees")
            && is(3, REPOSITORY)
            && !self.fresh.covers(&repository().join("x"))
            && self.watch.rights.kept(path, FileCaps::WRITE, &NoLinks).is_some()
    }

    /// Makes the file with its content, and hands `/dev/null` to the caller.
    pub(super) fn make_common(
        &mut self,
        at: &HeldName,
        mask: u32,
        mode: u32,
    ) -> Result<OwnedFd, Errno> {
        let nowhere = openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        self.quota.check()?;
        umask(Mode::from_raw_mode(mask));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = openat(&at.dir, at.bare(), flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode))?;
        self.quota.made_one();
        // The command may remove the file again: `git worktree add` does so if it fails.
        self.fresh.file(&at.path);
        File::from(file).write_all(CONTENT).map_err(|_| Errno::IO)?;
        Ok(nowhere)
    }
}
