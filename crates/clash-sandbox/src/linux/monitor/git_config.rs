//! `config` of a repository. Git changes it by renaming `config.lock`. The monitor compares
//! the two files setting by setting (`repository/config_change.rs`) and renames a copy, so a
//! process that still has the lock file open changes nothing.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use clash_policy::FileCaps;
use clash_policy::path::NoLinks;
use clash_policy::protect::REPOSITORY;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, fstat, openat, statat, unlinkat};
use rustix::io::Errno;

use super::act::{ActResult, HeldName, MonitorWorker};
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

    /// Renames a judged copy of `config.lock` to `config`.
    pub(super) fn replace_config(
        &mut self,
        from: &HeldName,
        to: &HeldName,
        flags: RenameFlags,
    ) -> ActResult {
        let rights = &self.watch.rights;
        let change = FileCaps::CHANGE;
        let of_git = flags.is_empty()
            && from.bare() == LOCK
            && from.path.parent() == to.path.parent()
            && rights.permits(&from.path, change)
            && rights.permits(&to.path, change)
            && rights.kept_by_link(&to.path, change, &self.links).is_none();
        if !of_git {
            return Err(Errno::ACCESS);
        }
        let _turn = self.turns.alone()?;
        let (new, mode) = read_file(from, from.bare(), MAX_CONFIG_BYTES)?;
        let (old, _) = read_file(to, CONFIG.as_bytes(), MAX_CONFIG_BYTES)?;
        judge_config_change(&old, &new, |branch| has_branch(to, branch))
            .map_err(|_| Errno::ACCESS)?;
        self.put_copy(to, new.as_bytes(), mode)?;
        unlinkat(&from.dir, from.bare(), AtFlags::empty())
    }
}

/// The text and mode of a regular file beside `at`.
fn read_file(at: &HeldName, name: &[u8], most: u64) -> Result<(String, Mode), Errno> {
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

/// True if a repository has a branch, or cannot tell.
fn has_branch(config: &HeldName, branch: &str) -> bool {
    let loose = statat(&config.dir, format!("refs/heads/{branch}"), AtFlags::SYMLINK_NOFOLLOW);
    if !matches!(loose, Err(Errno::NOENT)) {
        return true;
    }
    match read_file(config, PACKED_REFS.as_bytes(), MAX_PACKED_BYTES) {
        Ok((packed, _)) => {
            let name = format!("refs/heads/{branch}");
            packed.lines().any(|line| line.split(' ').nth(1) == Some(&name))
        }
        Err(Errno::NOENT) => statat(&config.dir, "reftable", AtFlags::empty()).is_ok(),
        Err(_) => true,
    }
}
