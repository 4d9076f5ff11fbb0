//! Renames of directories with everything in them.
//!
//! Before a directory moves, the monitor searches it for links. A directory that this room
//! has made needs no search if it keeps its parent: the monitor judged every link in it,
//! and each leads to the same place as before. A directory that is too large to search does
//! not move: the command gets `EXDEV`, and `mv` copies it name by name.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clash_policy::FileCaps;
use clash_policy::path::NoLinks;
use clash_policy::protect::{KeepMode, REPOSITORY};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat, unlinkat};
use rustix::io::Errno;

use super::act::{ActResult, HeldName, MonitorWorker};
use super::former::{ClimbSet, FormerState, climb_of, climbs_above};
use super::rename::text_of;

/// A search stops after this number of names.
const MAX_SEARCHED_NAMES: usize = 300_000;
/// The search holds each directory on its path open.
const MAX_SEARCH_DEPTH: usize = 128;

const LISTING_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl MonitorWorker {
    /// Refuses to move a directory (`EXDEV`) if something in it would get another meaning at
    /// the new place: a link that leads out, a file of a repository. Reads the whole
    /// directory, except one that this room has made and that keeps its parent.
    pub(super) fn may_move(&self, from: &HeldName, to: &HeldName) -> ActResult {
        let stays = from.path.parent() == to.path.parent();
        if stays && self.fresh.is_new(&from.path) && !self.fresh.has_repository(&from.path) {
            return Ok(());
        }
        let dir = openat(&from.dir, from.bare(), LISTING_FLAGS, Mode::empty())
            .map_err(|_| Errno::XDEV)?;
        let leaves = self.repository_around(&from.path) != self.repository_around(&to.path);
        let mut search = MoveSearch::new(self, &to.path);
        if !stays {
            search.former = match self.turns.former.state() {
                FormerState::Empty => None,
                FormerState::Some => Some(&from.path),
                FormerState::Unknown => return Err(Errno::XDEV),
            };
        }
        search.read(&dir, &mut PathBuf::new(), leaves, 0)?;
        if stays {
            return Ok(());
        }
        // The kernel may have followed a link in this directory to a directory above.
        let climbs = search.climbs;
        self.turns.former.note(&from.dir, climbs)?;
        self.turns.former.note(&to.dir, climbs)
    }

    /// True if a repository has to stay, because its directory still has a file that only a
    /// new repository may have. For example: a clone with `.envrc`, whose `.git` the
    /// command removes.
    pub(super) fn repository_stays(&self, at: &HeldName) -> bool {
        is_repository(at.bare())
            && self.watch.rights.kept(&at.path, FileCaps::DELETE, &NoLinks).is_some()
            && !self.holds_nothing_of_list(&at.dir, at.path.parent().unwrap_or(Path::new("/")))
    }

    /// True if a directory surely has no file that only a new repository may have. False if
    /// it cannot be read, or has too many names.
    fn holds_nothing_of_list(&self, dir: &OwnedFd, path: &Path) -> bool {
        let Ok(dir) = openat(dir, ".", LISTING_FLAGS, Mode::empty()) else { return false };
        let mut search = MoveSearch::new(self, path);
        search.read(&dir, &mut PathBuf::new(), true, 0).is_ok()
    }

    /// Removes a repository that had to stay, when its directory goes.
    pub(super) fn part_with_repository(&mut self, at: &HeldName) {
        let Some(index) = self.parting.iter().position(|dir| *dir == at.path) else { return };
        let hold = LISTING_FLAGS | OFlags::PATH;
        let Ok(dir) = openat(&at.dir, at.bare(), hold, Mode::empty()) else { return };
        if !self.holds_nothing_of_list(&dir, &at.path) {
            return;
        }
        let removed = self.remove_file(&dir, REPOSITORY.as_bytes());
        if removed.or_else(|_| unlinkat(&dir, REPOSITORY, AtFlags::REMOVEDIR)).is_ok() {
            self.parting.swap_remove(index);
            self.fresh.removed(&at.path.join(REPOSITORY));
        }
    }

    /// The nested repository that contains a path. The project's own repository does not
    /// count.
    pub(super) fn repository_around(&self, path: &Path) -> Option<PathBuf> {
        let project = &self.watch.rights.places.project;
        let inside = |dir: &&Path| *dir != project && dir.starts_with(project);
        let mut around = path.ancestors().skip(1).take_while(inside);
        let holds = |dir: &&Path| dir.join(REPOSITORY).symlink_metadata().is_ok();
        around.find(holds).map(Path::to_path_buf)
    }

    /// True if a link would show a file under another name that only a new repository may
    /// have. For example `app -> clone/app`, with `clone/app/.envrc`.
    pub(super) fn is_carried_in(&self, at: &Path, to: &Path) -> bool {
        let Some(around) = self.repository_around(&to.join(REPOSITORY)) else { return false };
        if at.starts_with(&around) {
            return false;
        }
        let Ok(dir) = openat(CWD, to, LISTING_FLAGS, Mode::empty()) else { return false };
        let mut search = MoveSearch::new(self, at);
        search.read(&dir, &mut PathBuf::new(), true, 0).is_err()
    }
}

/// A search through a directory that is to move to `to`.
struct MoveSearch<'a> {
    worker: &'a MonitorWorker,
    to: &'a Path,
    names: usize,
    /// The present place of the directory, if removed links count.
    former: Option<&'a Path>,
    /// The climbs from the directory around the moving one, by all links, also removed ones.
    climbs: ClimbSet,
}

impl<'a> MoveSearch<'a> {
    fn new(worker: &'a MonitorWorker, to: &'a Path) -> Self {
        Self { worker, to, names: MAX_SEARCHED_NAMES, former: None, climbs: 0 }
    }

    /// Searches the directory at `below`, relative to the moving one. `carried` is true in
    /// a repository and on the way out of one. Such a directory may have no persistence
    /// paths.
    fn read(
        &mut self,
        dir: &OwnedFd,
        below: &mut PathBuf,
        carried: bool,
        depth: usize,
    ) -> ActResult {
        if depth > MAX_SEARCH_DEPTH {
            return Err(Errno::XDEV);
        }
        self.judge_former(dir, below, depth)?;
        let mut directories = Vec::new();
        let mut links = Vec::new();
        let mut files = Vec::new();
        let mut nested = false;
        for entry in Dir::read_from(dir).map_err(|_| Errno::XDEV)? {
            let entry = entry.map_err(|_| Errno::XDEV)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            self.names = self.names.checked_sub(1).ok_or(Errno::XDEV)?;
            nested |= is_repository(name);
            match kind(dir, name, entry.file_type()) {
                FileType::Directory => directories.push(name.to_vec()),
                FileType::Symlink => links.push(name.to_vec()),
                _ => files.push(name.to_vec()),
            }
        }
        let carried = carried || nested;
        for name in &links {
            let text = text_of(dir, name).map_err(|_| Errno::XDEV)?;
            let at = self.to.join(&*below).join(OsStr::from_bytes(name));
            self.worker.may_lead(&at, &text).map_err(|_| Errno::XDEV)?;
            self.climbs |= climbs_above(climb_of(&text), depth + 1);
        }
        if carried {
            let mut names = directories.iter().chain(&links).chain(&files);
            if names.any(|name| self.is_of_list(below, name)) {
                return Err(Errno::XDEV);
            }
        }
        for name in directories {
            let inner = openat(dir, name.as_slice(), LISTING_FLAGS, Mode::empty())
                .map_err(|_| Errno::XDEV)?;
            below.push(OsStr::from_bytes(&name));
            // `.git` itself goes with its repository.
            self.read(&inner, below, carried && !is_repository(&name), depth + 1)?;
            below.pop();
        }
        Ok(())
    }

    /// Judges the links that were in a directory a moment ago. The record has only their
    /// climbs. So the whole directory to which they climb has to be fine, or the same as
    /// before.
    fn judge_former(&mut self, dir: &OwnedFd, below: &Path, depth: usize) -> ActResult {
        let Some(from) = self.former else { return Ok(()) };
        let climbs = self.worker.turns.former.climbs(dir).map_err(|_| Errno::XDEV)?;
        if climbs == 0 {
            return Ok(());
        }
        self.climbs |= climbs_above(climbs, depth + 1);
        let [old, new] = [from, self.to].map(|top| top.join(below));
        for ups in (depth + 1..u64::BITS as usize).filter(|ups| climbs >> ups & 1 == 1) {
            if old.ancestors().nth(ups) != new.ancestors().nth(ups) {
                let text = "../".repeat(ups);
                let led = self.worker.may_lead(&new.join("link"), text.as_bytes());
                led.map_err(|_| Errno::XDEV)?;
            }
        }
        Ok(())
    }

    /// True if the list of persistence paths refuses this name at the new place.
    fn is_of_list(&self, below: &Path, name: &[u8]) -> bool {
        let path = self.to.join(below).join(OsStr::from_bytes(name));
        let kept = self.worker.watch.rights.kept(&path, FileCaps::CREATE, &NoLinks);
        !is_repository(name) && kept == Some(KeepMode::Always)
    }
}

fn is_repository(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(REPOSITORY.as_bytes())
}

/// The type of an entry. Some file systems do not report it with the name.
fn kind(dir: &OwnedFd, name: &[u8], said: FileType) -> FileType {
    if said != FileType::Unknown {
        return said;
    }
    let meta = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    meta.map_or(FileType::Unknown, |meta| FileType::from_raw_mode(meta.st_mode))
}
