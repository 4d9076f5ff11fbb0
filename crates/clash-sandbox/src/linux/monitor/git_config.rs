//! `config` of a repository, `config.worktree` and `.gitmodules`. Git changes each by renaming
//! a lock file, for example `config.lock`. The monitor compares the two files setting by
//! setting (`repository/config_change.rs`) and renames a copy (`lock_file.rs`).

use std::path::Path;

use clash_policy::FileCaps;
use clash_policy::path::NoLinks;
use clash_policy::protect::{REPOSITORY, is_in_submodule};
use rustix::fs::{AtFlags, RenameFlags, statat, unlinkat};
use rustix::io::Errno;

use super::act::{ActResult, HeldName, MonitorWorker};
use super::lock_file::read_beside;
use crate::repository::{judge_config_change, judge_submodule_list, judge_worktree_config};

const LOCK_SUFFIX: &[u8] = b".lock";
const PACKED_REFS: &str = "packed-refs";
const MAX_CONFIG_BYTES: u64 = 1 << 20;
const MAX_PACKED_BYTES: u64 = 64 << 20;

impl MonitorWorker {
    /// True if a path is a settings file of a repository that existed before the command, or
    /// the list of submodules.
    pub(super) fn is_kept_config(&self, path: &Path) -> bool {
        settings_kind(path).is_some()
            && self.watch.rights.kept(path, FileCaps::CHANGE, &NoLinks).is_some()
            && !self.fresh.covers(path)
    }

    /// Renames a judged copy of the lock file to git's settings file, and removes the lock
    /// file. A new `config.worktree` or `.gitmodules` is fine where repositories may be made.
    /// `EACCES` if the rename is not git's own, if the sandbox may not change both files, or
    /// if a setting changed that no command may change.
    pub(super) fn replace_config(
        &mut self,
        from: &HeldName,
        to: &HeldName,
        flags: RenameFlags,
    ) -> ActResult {
        let kind = settings_kind(&to.path).ok_or(Errno::ACCESS)?;
        let lock = [to.bare(), LOCK_SUFFIX].concat();
        self.check_lock_rename(from, to, flags, &lock, FileCaps::CHANGE)?;
        let _turn = self.turns.alone()?;
        let (new, mode) = read_beside(from, from.bare(), MAX_CONFIG_BYTES)?;
        let old = match read_beside(to, to.bare(), MAX_CONFIG_BYTES) {
            // A repository has `config`; the other two may be new.
            Err(Errno::NOENT)
                if kind != SettingsKind::Repository && self.watch.rights.new_repositories() =>
            {
                String::new()
            }
            Err(Errno::NOENT) => return Err(self.note_refusal(&to.path, FileCaps::CREATE)),
            old => old?.0,
        };
        let judged = match kind {
            SettingsKind::Repository => {
                judge_config_change(&old, &new, |branch| has_branch(to, branch))
            }
            SettingsKind::Worktree => judge_worktree_config(&old, &new),
            SettingsKind::Submodules => judge_submodule_list(&old, &new),
        };
        if judged.is_err() {
            return Err(self.note_refusal(&to.path, FileCaps::WRITE));
        }
        self.put_copy(to, new.as_bytes(), mode)?;
        unlinkat(&from.dir, from.bare(), AtFlags::empty())
    }
}

/// Files with settings of git that a rename of its lock file may change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SettingsKind {
    /// `config` of the project's repository, or of a submodule's.
    Repository,
    /// `config.worktree` of a repository or of a linked worktree.
    Worktree,
    /// `.gitmodules`.
    Submodules,
}

/// The kind of git's settings that a path has by its name. Looks at no file.
fn settings_kind(path: &Path) -> Option<SettingsKind> {
    let dir = path.parent()?;
    fn name(at: Option<&Path>) -> Option<&str> {
        at.and_then(Path::file_name).and_then(|name| name.to_str())
    }
    let repository = name(Some(dir)) == Some(REPOSITORY);
    let linked = name(dir.parent()) == Some("worktrees")
        && name(dir.parent().and_then(Path::parent)) == Some(REPOSITORY);
    match name(Some(path))? {
        "config" if repository || is_in_submodule(dir) => Some(SettingsKind::Repository),
        "config.worktree" if repository || linked => Some(SettingsKind::Worktree),
        ".gitmodules" => Some(SettingsKind::Submodules),
        _ => None,
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
