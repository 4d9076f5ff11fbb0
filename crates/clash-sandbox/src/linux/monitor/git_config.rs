//! `config` of a repository. Git changes it by renaming `config.lock`. The monitor compares
//! the two files setting by setting (`repository/config_change.rs`) and renames a copy
//! (`lock_file.rs`).

use std::path::Path;

use clash_policy::FileCaps;
use clash_policy::path::NoLinks;
use clash_policy::protect::REPOSITORY;
use rustix::fs::{AtFlags, RenameFlags, statat, unlinkat};
use rustix::io::Errno;

use super::act::{ActResult, HeldName, MonitorWorker};
use super::lock_file::read_beside;
use crate::repository::judge_config_change;

const CONFIG: &str = "config";
const LOCK: &[u8] = b"config.lock";
const PACKED_REFS: &str = "packed-refs";
const MAX_CONFIG_BYTES: u64 = 1 << 20;
const MAX_PACKED_BYTES: u64 = 64 << 20;

impl MonitorWorker {
    /// True if a path is the `config` of a repository that existed before the command.
    pub(super) fn is_kept_config(&self, path: &Path) -> bool {
        let in_repository = path.parent().and_then(Path::file_name) == Some(REPOSITORY.as_ref());
        path.file_name() == Some(CONFIG.as_ref())
            && in_repository
            && self.watch.rights.kept(path, FileCaps::DELETE, &NoLinks).is_some()
            && !self.fresh.covers(path)
    }

    /// Renames a judged copy of `config.lock` to `config`, and removes `config.lock`.
    /// `EACCES` if the rename is not git's own, if the sandbox may not change both files, or
    /// if a setting changed that no command may change.
    pub(super) fn replace_config(
        &mut self,
        from: &HeldName,
        to: &HeldName,
        flags: RenameFlags,
    ) -> ActResult {
        self.check_lock_rename(from, to, flags, LOCK, FileCaps::CHANGE)?;
        let _turn = self.turns.alone()?;
        let (new, mode) = read_beside(from, from.bare(), MAX_CONFIG_BYTES)?;
        let (old, _) = read_beside(to, CONFIG.as_bytes(), MAX_CONFIG_BYTES)?;
        judge_config_change(&old, &new, |branch| has_branch(to, branch))
            .map_err(|_| Errno::ACCESS)?;
        self.put_copy(to, new.as_bytes(), mode)?;
        unlinkat(&from.dir, from.bare(), AtFlags::empty())
    }
}

/// True if a repository has a branch, or cannot tell.
fn has_branch(config: &HeldName, branch: &str) -> bool {
    let loose = statat(&config.dir, format!("refs/heads/{branch}"), AtFlags::SYMLINK_NOFOLLOW);
    if !matches!(loose, Err(Errno::NOENT)) {
        return true;
    }
    match read_beside(config, PACKED_REFS.as_bytes(), MAX_PACKED_BYTES) {
        Ok((packed, _)) => {
            let name = format!("refs/heads/{branch}");
            packed.lines().any(|line| line.split(' ').nth(1) == Some(&name))
        }
        Err(Errno::NOENT) => statat(&config.dir, "reftable", AtFlags::empty()).is_ok(),
        Err(_) => true,
    }
}
