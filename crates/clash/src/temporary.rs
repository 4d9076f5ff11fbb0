//! The temporary directory of a session: one directory below clash's state that every
//! room of the session shows as /tmp.
//!
//! A launcher holds a shared lock on it while its command runs. The sweep removes the
//! directory only with the exclusive lock, so it never removes one in use. It renames the
//! directory first: a launcher that starts meanwhile creates a new one.
//!
//! File tools of an agent run outside the rooms. The hook moves their paths below /tmp
//! into this directory, so that `/tmp/x` is one file to commands and file tools.

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clash_policy::path::{is_below, normalise};
use clash_policy::{FileCaps, Sandbox, ToolInput};

use crate::dirs::Dirs;
use crate::session::{Session, sessions_dir};

/// The name of the directory in that of the session.
const NAME: &str = "tmp";

/// The start of the name of a directory that is being removed.
const REMOVED: &str = "tmp.removed-";

/// With the sticky bit: the monitor lets commands make named pipes only in directories
/// that have it.
const MODE: u32 = 0o1700;

/// The sweep removes the directory of a session that has no new record for this time.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3 * 24 * 60 * 60);

/// The session's directory with a shared lock: no sweep removes it while this value lives.
#[derive(Debug)]
pub(crate) struct HeldTmp {
    /// Without links.
    pub(crate) path: PathBuf,
    _lock: File,
}

/// The temporary directory of the session with this directory.
pub(crate) fn session_tmp(session: &Path) -> PathBuf {
    session.join(NAME)
}

/// True if a rule of the sandbox names `$TMPDIR`.
pub(crate) fn is_used_by(sandbox: &Sandbox) -> bool {
    sandbox.fs.iter().any(|rule| rule.pattern.fixed().starts_with("$TMPDIR"))
}

/// Creates the directory of a session if it does not exist, locks it, and gives it the right
/// mode. Fails if something else than a directory has its name.
pub(crate) fn hold(session: &Path) -> io::Result<HeldTmp> {
    let path = session_tmp(session);
    for _ in 0..16 {
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let named = fs::symlink_metadata(&path)?;
        if !named.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let lock = File::open(&path)?;
        let held = lock.metadata()?;
        if held.mode() & 0o7777 != MODE {
            lock.set_permissions(Permissions::from_mode(MODE))?;
        }
        lock.lock_shared()?;
        let again = fs::symlink_metadata(&path).ok();
        if again.is_some_and(|now| (now.dev(), now.ino()) == (held.dev(), held.ino())) {
            return Ok(HeldTmp { path: fs::canonicalize(&path)?, _lock: lock });
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// Removes the temporary directory of a session unless a command uses it: then, and if it is
/// missing, does nothing.
pub(crate) fn remove(session: &Path) -> io::Result<()> {
    let path = session_tmp(session);
    let Ok(lock) = File::open(&path) else { return Ok(()) };
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(()),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let away = session.join(format!("{REMOVED}{}", std::process::id()));
    fs::rename(&path, &away)?;
    drop(lock);
    clash_sandbox::launch::remove_tree(&away)
}

/// Removes the directories of sessions without a new record for days, and those whose
/// removal was interrupted.
pub(crate) fn sweep(dirs: &Dirs) {
    let Ok(sessions) = fs::read_dir(sessions_dir(dirs)) else { return };
    for session in sessions.flatten().map(|entry| entry.path()) {
        for entry in fs::read_dir(&session).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(REMOVED.as_bytes()) {
                let _ = clash_sandbox::launch::remove_tree(&entry.path());
            } else if name == NAME && is_forgotten(&session) {
                let _ = remove(&session);
            }
        }
    }
}

/// True if the session has no new record for days.
fn is_forgotten(session: &Path) -> bool {
    let modified = |path: PathBuf| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let last = modified(crate::trace::file_of(session)).max(modified(session.to_path_buf()));
    let age = last.and_then(|last| SystemTime::now().duration_since(last).ok());
    age.is_some_and(|age| age > FORGOTTEN_AFTER)
}

/// The paths by which commands in the session's rooms name its directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TmpNames<'a> {
    pub(crate) dirs: &'a Dirs,
    pub(crate) project: &'a Path,
    /// The session's directory without links.
    pub(crate) session: &'a Path,
}

impl TmpNames<'_> {
    /// The path in the session's directory that a command in a room reaches by `path`.
    /// `None` if the room shows the host's file there, or none.
    pub(crate) fn meaning(&self, path: &Path) -> Option<PathBuf> {
        let path = normalise(path);
        let others = [self.project, &self.dirs.home, self.session, &self.dirs.state];
        if others.iter().any(|other| is_below(&path, other)) {
            return None;
        }
        // The host's `$TMPDIR` may be below /tmp.
        let names = [&self.dirs.tmp, Path::new("/tmp"), Path::new("/var/tmp")];
        let name = names.into_iter().find(|name| is_below(&path, name))?;
        let below = path.strip_prefix(name).ok()?;
        Some(if below.as_os_str().is_empty() {
            self.session.to_path_buf()
        } else {
            self.session.join(below)
        })
    }

    /// The path in the session's directory that a file tool of the agent means by `path`. It
    /// reaches the host's files too: a read means the host's file (`None`) if the session's
    /// directory has none of that name.
    pub(crate) fn meaning_to_tools(&self, path: &Path, needs: FileCaps) -> Option<PathBuf> {
        let moved = self.meaning(path)?;
        let only_on_host = !needs.intersects(FileCaps::CHANGE)
            && fs::symlink_metadata(&moved).is_err()
            && fs::symlink_metadata(path).is_ok();
        (!only_on_host || moved == self.session).then_some(moved)
    }

    /// True for a file that the client itself keeps for this session, for example the
    /// output of a command in the background: it is in a directory that has the
    /// session's id as its name. Commands cannot make one: they see another /tmp.
    pub(crate) fn is_clients_own(&self, path: &Path, session: &Session) -> bool {
        self.meaning(path).is_some() && path.iter().any(|part| part == session.name.as_str())
    }
}

/// The meaning of a file tool's call about /tmp.
#[derive(Debug)]
pub(crate) enum TmpMeaning {
    /// A file that the client keeps: judged as if it were in the session's directory.
    ClientsOwn(ToolInput),
    /// Files in the session's directory.
    InSession,
}

/// Finds out whether a call of a file tool means the session's directory; `None` if it does
/// not.
pub(crate) fn find_tmp_meaning(
    names: &TmpNames<'_>,
    session: &Session,
    input: &ToolInput,
) -> Option<TmpMeaning> {
    let ToolInput::Files(files) = input else { return None };
    let reads = |caps: FileCaps| !caps.intersects(FileCaps::CHANGE);
    let own = |file: &clash_policy::FileUse| {
        reads(file.needs) && names.is_clients_own(&file.path, session) && file.path.exists()
    };
    if !files.is_empty() && files.iter().all(own) {
        let judged = files.iter().cloned().map(|mut file| {
            file.path = names.meaning(&file.path).unwrap_or(file.path);
            file
        });
        return Some(TmpMeaning::ClientsOwn(ToolInput::Files(judged.collect())));
    }
    let moved =
        |file: &clash_policy::FileUse| names.meaning_to_tools(&file.path, file.needs).is_some();
    files.iter().any(moved).then_some(TmpMeaning::InSession)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn the_directory_is_private_and_comes_back_with_its_content() {
        let dir = session();
        let held = hold(dir.path()).unwrap();
        fs::write(held.path.join("a"), "1").unwrap();
        fs::set_permissions(&held.path, Permissions::from_mode(0o777)).unwrap();
        let again = hold(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(again.path.join("a")).unwrap(), "1");
        assert_eq!(fs::metadata(&again.path).unwrap().mode() & 0o7777, MODE);
    }

    #[test]
    fn a_directory_in_use_is_not_removed() {
        let dir = session();
        let held = hold(dir.path()).unwrap();
        remove(dir.path()).unwrap();
        assert!(held.path.exists());
        drop(held);
        remove(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn removal_follows_no_link_and_passes_closed_modes() {
        let (dir, other) = (session(), session());
        fs::write(other.path().join("kept"), "").unwrap();
        let held = hold(dir.path()).unwrap();
        std::os::unix::fs::symlink(other.path(), held.path.join("link")).unwrap();
        fs::create_dir(held.path.join("closed")).unwrap();
        fs::write(held.path.join("closed/x"), "").unwrap();
        fs::set_permissions(held.path.join("closed"), Permissions::from_mode(0o000)).unwrap();
        drop(held);
        remove(dir.path()).unwrap();
        assert!(other.path().join("kept").exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
