//! `HEAD` of a repository, and directories that would become one.
//!
//! Git takes `.git` for a repository only if it holds `objects`, `refs` and a valid
//! `HEAD`. Without one it looks further up, and takes any directory with these three
//! names for a repository without a work tree, whose `config` it obeys. With
//! `commondir` beside `HEAD` git looks for the other two elsewhere. So `HEAD`
//! always stays valid: git changes it by renaming `HEAD.lock`, and the monitor
//! renames a copy instead, with content that it has read and checked. A process that
//! still has the lock file open cannot change the copy. And these names do not
//! come together anywhere but in a repository that the command makes itself.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use clash_policy::Caps;
use clash_policy::path::NoLinks;
use clash_policy::protect::REPOSITORY;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, fstat, openat, statat, unlinkat};
use rustix::io::Errno;

use super::super::sys;
use super::act::{Done, Name, Worker, exists};
use super::turn::Turn;
use crate::repository::is_complete;

const HEAD: &[u8] = b"HEAD";
const LOCK: &[u8] = b"HEAD.lock";
/// How the monitor's own copies are called, until they are renamed.
const COPY: &str = "HEAD.lock-clash-";
/// What git looks for in a directory that may be a repository.
const PARTS: [&[u8]; 4] = [HEAD, OBJECTS, REFS, COMMON];
const OBJECTS: &[u8] = b"objects";
const REFS: &[u8] = b"refs";
/// Names the directory where git looks for `objects` and `refs` instead.
const COMMON: &[u8] = b"commondir";
/// What git obeys in a repository.
const OBEYED: [&[u8]; 4] = [b"config", b"config.worktree", COMMON, b"hooks"];
const LONGEST: usize = 4096;

impl Worker {
    /// Whether a path is a `HEAD` that has to stay valid.
    pub(super) fn is_kept_head(&self, path: &Path) -> bool {
        is_named(path, HEAD)
            && self.watch.rights.kept(path, Caps::DELETE, &NoLinks).is_some()
            && !self.fresh.covers(path)
    }

    /// Renames a copy of `HEAD.lock` to `HEAD`, if that is a valid one.
    pub(super) fn replace_head(&mut self, from: &Name, to: &Name, flags: RenameFlags) -> Done {
        let rights = &self.watch.rights;
        let change = Caps::CREATE.union(Caps::DELETE);
        let of_git = flags.is_empty()
            && from.bare() == LOCK
            && from.path.parent() == to.path.parent()
            && rights.permits(&from.path, change)
            && rights.permits(&to.path, change)
            && rights.kept_by_link(&to.path, change, &self.links).is_none();
        if !of_git {
            return Err(Errno::ACCESS);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let lock = openat(&from.dir, from.bare(), flags, Mode::empty())?;
        let meta = fstat(&lock)?;
        if FileType::from_raw_mode(meta.st_mode) != FileType::RegularFile {
            return Err(Errno::ACCESS);
        }
        let mut content = Vec::with_capacity(128);
        let most = LONGEST as u64 + 1;
        File::from(lock).take(most).read_to_end(&mut content).map_err(|_| Errno::IO)?;
        if !is_valid(&content) {
            return Err(Errno::ACCESS);
        }
        let _turn = self.completes_no_repository(to)?;
        let new = !exists(to);
        self.put_head(to, &content, Mode::from_raw_mode(meta.st_mode & 0o777))?;
        if new {
            self.fresh.file(&to.path);
        }
        unlinkat(&from.dir, from.bare(), AtFlags::empty())
    }

    fn put_head(&self, to: &Name, content: &[u8], mode: Mode) -> Done {
        static COPIES: AtomicU32 = AtomicU32::new(0);
        let number = COPIES.fetch_add(1, Ordering::Relaxed);
        let copy = format!("{COPY}{}-{number}", sys::own_pid());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        rustix::process::umask(Mode::empty());
        let file = openat(&to.dir, copy.as_str(), flags | OFlags::CLOEXEC, mode)?;
        let written = File::from(file).write_all(content).map_err(|_| Errno::IO);
        let put =
            written.and_then(|()| rustix::fs::renameat(&to.dir, copy.as_str(), &to.dir, to.bare()));
        if put.is_err() {
            let _ = unlinkat(&to.dir, copy.as_str(), AtFlags::empty());
        }
        put
    }

    /// Refuses a name that would make a repository of the directory it is in. The
    /// caller makes the name before it drops the turn. So two rooms do not make one
    /// part each at the same time.
    pub(super) fn completes_no_repository(&self, at: &Name) -> Result<Option<Turn>, Errno> {
        if !is_part(at) {
            return Ok(None);
        }
        let turn = self.turns.alone()?;
        self.check_completing(at)?;
        Ok(Some(turn))
    }

    /// The same, for a caller that has a turn alone.
    pub(super) fn check_completing(&self, at: &Name) -> Done {
        if !is_part(at) || exists(at) {
            return Ok(());
        }
        let dir = at.path.parent().unwrap_or(Path::new("/"));
        let there = |part: &[u8]| statat(&at.dir, part, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let then = |part: &[u8]| at.bare().eq_ignore_ascii_case(part) || there(part);
        let completes = is_complete(|part| then(part.as_bytes()))
            && !is_complete(|part| there(part.as_bytes()));
        let refused = completes && self.repositories_count(dir);
        if refused { Err(Errno::ACCESS) } else { Ok(()) }
    }

    /// Whether a path is what git obeys in a repository without a work tree, or the
    /// monitor's copy of a `HEAD`. Neither is for commands to write.
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

    /// Whether the list counts in a directory, other than in a repository with a work
    /// tree and in one that the command makes.
    fn repositories_count(&self, dir: &Path) -> bool {
        let rights = &self.watch.rights;
        let made = rights.new_repositories() && self.fresh.is_new(dir);
        !made
            && !is_named(dir, REPOSITORY.as_bytes())
            && !self.fresh.covers(&dir.join("x"))
            && rights.kept(&dir.join(REPOSITORY), Caps::CHANGE, &NoLinks).is_some()
    }
}

/// Whether a name is one that git looks for in a repository.
pub(super) fn is_part(at: &Name) -> bool {
    PARTS.iter().any(|part| at.bare().eq_ignore_ascii_case(part))
}

fn is_named(path: &Path, name: &[u8]) -> bool {
    path.file_name().is_some_and(|last| last.as_bytes().eq_ignore_ascii_case(name))
}

/// Whether git takes this for a `HEAD`: the name of a reference, or an object.
fn is_valid(content: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(content) else { return false };
    let Some(line) = text.strip_suffix('\n') else { return false };
    if text.len() > LONGEST {
        return false;
    }
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
            assert!(is_valid(valid.as_bytes()), "{valid:?}");
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
            assert!(!is_valid(other.as_bytes()), "{other:?}");
        }
    }
}
