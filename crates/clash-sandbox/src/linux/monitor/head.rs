//! `HEAD` of a repository, and directories that would become a repository.
//!
//! Git takes `.git` for a repository only if it has `objects`, `refs` and a valid `HEAD`.
//! Otherwise git searches upwards, and takes any directory with these three names for a
//! bare repository. It then obeys the `config` there. With `commondir` beside `HEAD`, git
//! looks for the other two names in another directory.
//!
//! So the monitor keeps `HEAD` valid. Git changes `HEAD` by renaming `HEAD.lock`. The
//! monitor checks the content and renames a copy instead (`lock_file.rs`).
//!
//! The monitor also refuses to complete the three names in any directory, except in a
//! repository that the command makes itself.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clash_policy::FileCaps;
use clash_policy::path::NoLinks;
use clash_policy::protect::REPOSITORY;
use rustix::fs::{AtFlags, RenameFlags, statat, unlinkat};
use rustix::io::Errno;

use super::act::{ActResult, HeldName, MonitorWorker, exists};
use super::lock_file::{COPY, read_beside};
use super::turn::LockTurn;
use crate::repository::is_complete;

const HEAD: &[u8] = b"HEAD";
const LOCK: &[u8] = b"HEAD.lock";
/// Names that git looks for in a repository.
const PARTS: [&[u8]; 4] = [HEAD, OBJECTS, REFS, COMMON];
const OBJECTS: &[u8] = b"objects";
const REFS: &[u8] = b"refs";
/// Names the directory in which git looks for `objects` and `refs`.
const COMMON: &[u8] = b"commondir";
/// Names in a repository that git obeys: settings and hooks.
const OBEYED: [&[u8]; 4] = [b"config", b"config.worktree", COMMON, b"hooks"];
const MAX_HEAD_BYTES: u64 = 4096;

impl MonitorWorker {
    /// True if a path is a `HEAD` that has to stay valid.
    pub(super) fn is_kept_head(&self, path: &Path) -> bool {
        is_named(path, HEAD)
            && self.watch.rights.kept(path, FileCaps::DELETE, &NoLinks).is_some()
            && !self.fresh.covers(path)
    }

    /// Puts a checked copy of `HEAD.lock` in the place of `HEAD`, and removes `HEAD.lock`.
    /// `EACCES` for a rename of another kind, and if git would not take the content for a
    /// `HEAD`.
    pub(super) fn replace_head(
        &mut self,
        from: &HeldName,
        to: &HeldName,
        flags: RenameFlags,
    ) -> ActResult {
        let change = FileCaps::CREATE.union(FileCaps::DELETE);
        self.check_lock_rename(from, to, flags, LOCK, change)?;
        let (content, mode) = read_beside(from, from.bare(), MAX_HEAD_BYTES)?;
        if !is_valid(&content) {
            return Err(Errno::ACCESS);
        }
        let _turn = self.completes_no_repository(to)?;
        let new = !exists(to);
        self.put_copy(to, content.as_bytes(), mode)?;
        if new {
            self.fresh.file(&to.path);
        }
        unlinkat(&from.dir, from.bare(), AtFlags::empty())
    }

    /// Refuses a name that would turn its directory into a repository. The caller of this
    /// function makes the name before it drops the turn, so two rooms cannot each make one
    /// part at the same time.
    pub(super) fn completes_no_repository(&self, at: &HeldName) -> Result<Option<LockTurn>, Errno> {
        if !is_part(at) {
            return Ok(None);
        }
        let turn = self.turns.alone()?;
        self.check_completing(at)?;
        Ok(Some(turn))
    }

    /// As `completes_no_repository`, for a caller that already has an exclusive turn.
    pub(super) fn check_completing(&self, at: &HeldName) -> ActResult {
        if !is_part(at) || exists(at) {
            return Ok(());
        }
        let dir = at.path.parent().unwrap_or(Path::new("/"));
        let there = |part: &[u8]| statat(&at.dir, part, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let then = |part: &[u8]| at.bare().eq_ignore_ascii_case(part) || there(part);
        let completes_bare_repository = is_complete(|part| then(part.as_bytes()))
            && !is_complete(|part| there(part.as_bytes()));
        let refused = completes_bare_repository && self.repositories_count(dir);
        if refused { Err(Errno::ACCESS) } else { Ok(()) }
    }

    /// True if a path is a file that git obeys in a bare repository, or the monitor's copy
    /// of a `HEAD`. Commands may write neither.
    pub(super) fn is_of_bare_repository(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().as_bytes();
        let Some(dir) = path.parent() else { return false };
        if name.starts_with(COPY.as_bytes()) {
            return true;
        }
        let obeyed = |name: &[u8]| OBEYED.iter().any(|part| name.eq_ignore_ascii_case(part));
        let bare = |dir: &Path| {
            let there = |part: &str| dir.join(part).symlink_metadata().is_ok();
            is_complete(there) && self.repositories_count(dir)
        };
        obeyed(name) && bare(dir) || is_named(dir, b"hooks") && dir.parent().is_some_and(bare)
    }

    /// True if the list of persistence paths protects repositories in a directory. It does
    /// not in a repository with a work tree, or in one that the command has made.
    fn repositories_count(&self, dir: &Path) -> bool {
        let rights = &self.watch.rights;
        let made = rights.new_repositories() && self.fresh.is_new(dir);
        !made
            && !is_named(dir, REPOSITORY.as_bytes())
            && !self.fresh.covers(&dir.join("x"))
            && rights.kept(&dir.join(REPOSITORY), FileCaps::CHANGE, &NoLinks).is_some()
    }
}

/// True if git looks for this name in a repository.
pub(super) fn is_part(at: &HeldName) -> bool {
    PARTS.iter().any(|part| at.bare().eq_ignore_ascii_case(part))
}

fn is_named(path: &Path, name: &[u8]) -> bool {
    path.file_name().is_some_and(|last| last.as_bytes().eq_ignore_ascii_case(name))
}

/// True if git takes this content for a `HEAD`: the name of a reference, or an object id.
fn is_valid(text: &str) -> bool {
    let Some(line) = text.strip_suffix('\n') else { return false };
    match line.strip_prefix("ref: ") {
        Some(name) => {
            let plain = |c: char| !c.is_control() && !c.is_whitespace();
            name.strip_prefix("refs/").is_some_and(|rest| !rest.is_empty())
                && name.chars().all(plain)
                && !name.split('/').any(|part| matches!(part, "" | "." | ".."))
        }
        None => {
            let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            matches!(line.len(), 40 | 64) && line.bytes().all(hex)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_names_a_reference_or_an_object() {
        let id = "0123456789abcdef0123456789abcdef01234567\n";
        for valid in ["ref: refs/heads/main\n", "ref: refs/heads/a/b-c.d\n", id] {
            assert!(is_valid(valid), "{valid:?}");
        }
        for other in [
            "",
            "\n",
            "ref: refs/heads/main",
            "ref: refs/\n",
            "ref: refs/../../x\n",
            "ref: /etc/passwd\n",
            "ref: refs/a b\n",
            "ref: refs/a\nref: refs/b\n",
            "0123\n",
            "x",
        ] {
            assert!(!is_valid(other), "{other:?}");
        }
    }
}
