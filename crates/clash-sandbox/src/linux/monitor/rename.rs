//! Renames and hard links. The monitor judges a file under its new name as well.

use std::os::fd::OwnedFd;
use std::path::Path;

use clash_policy::FileCaps;
use rustix::fs::{
    AtFlags, FileType, RenameFlags, Stat, fstat, linkat, readlinkat_raw, renameat_with, unlinkat,
};
use rustix::io::Errno;

use super::act::{ActResult, HeldName, MonitorWorker, exists, itself, look};
use super::former::{ClimbSet, climb_of};
use super::head::is_part;
use super::place::{CallPlace, real};

impl MonitorWorker {
    /// Renames a file or directory, or exchanges two, if the rules permit it for both names.
    /// `EXDEV` if a file would gain rights, or if the rights below a directory differ between
    /// the names. A rename to `HEAD` or `config` of a repository is that of a judged copy.
    pub(super) fn rename(&mut self, from: CallPlace, to: CallPlace, flags: u32) -> ActResult {
        let [from, to] = [self.name(from, Errno::BUSY)?, self.name(to, Errno::BUSY)?];
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if flags.contains(RenameFlags::WHITEOUT) {
            return Err(Errno::PERM);
        }
        if self.is_kept_head(&to.path) {
            return self.replace_head(&from, &to, flags);
        }
        if self.is_kept_config(&to.path) {
            return self.replace_config(&from, &to, flags);
        }
        let source = look(&from)?;
        let target = look(&to).ok();
        let both = FileCaps::CREATE.union(FileCaps::DELETE);
        self.check(&from.path, if exchange { both } else { FileCaps::DELETE })?;
        self.check(&to.path, if target.is_some() { both } else { FileCaps::CREATE })?;
        if self.repository_stays(&from) || exchange && self.repository_stays(&to) {
            return Err(Errno::ACCESS);
        }
        self.no_gain(&from.path, &to.path)?;
        if exchange {
            self.no_gain(&to.path, &from.path)?;
        }
        // By name: after the rename the name means another file.
        let own = self.fresh.covers(&to.path);
        let back = target.as_ref().filter(|_| exchange);
        let directory = is_directory(&source) || back.is_some_and(is_directory);
        if directory
            && from.path != to.path
            && (!self.watch.rights.alike_below(&from.path, &to.path)
                || [&from, &to].iter().any(|at| self.links.0.borrow().lead_below(&at.path)))
        {
            return Err(Errno::XDEV);
        }
        self.rename_in_turn(&from, &to, flags, &source, target.as_ref())?;
        if target.is_some() && !exchange && from.path != to.path {
            self.quota.removed_one();
        }
        if directory {
            for path in [&from.path, &to.path] {
                self.links.0.get_mut().forget_moved(path);
                self.fresh.moved(path);
            }
        } else if own {
            self.fresh.replaced(&to.path);
        }
        Ok(())
    }

    /// Judges the links that get another place, and renames. Meanwhile no other room makes
    /// or renames a link, also not in the place of a renamed file.
    fn rename_in_turn(
        &self,
        from: &HeldName,
        to: &HeldName,
        flags: RenameFlags,
        source: &Stat,
        target: Option<&Stat>,
    ) -> ActResult {
        let back = target.filter(|_| flags.contains(RenameFlags::EXCHANGE));
        let links = is_link(source) || target.is_some_and(is_link);
        let directory = is_directory(source) || back.is_some_and(is_directory);
        let _turn = match links || directory || is_part(to) {
            true => self.turns.alone()?,
            false => self.turns.shared()?,
        };
        // Another room may have exchanged the file meanwhile.
        if !is_same(from, source) || back.is_some_and(|target| !is_same(to, target)) {
            return Err(Errno::XDEV);
        }
        if links || directory {
            let [from_path, to_path] = [self.path_now(from)?, self.path_now(to)?];
            if from_path != from.path || to_path != to.path {
                return Err(Errno::XDEV);
            }
        }
        self.check_completing(to)?;
        self.may_take(source, from, to)?;
        if let Some(target) = back {
            self.may_take(target, to, from)?;
        }
        if links {
            let climbs = climb_at(&from.dir, from.bare()) | climb_at(&to.dir, to.bare());
            for dir in [&from.dir, &to.dir] {
                self.turns.former.note(dir, climbs)?;
            }
        }
        renameat_with(&from.dir, &from.leaf, &to.dir, &to.leaf, flags)
    }

    /// Removes a name that is no directory. If another room puts a link there meanwhile,
    /// that room has recorded the link.
    pub(super) fn remove_file(&self, dir: &OwnedFd, name: &[u8]) -> ActResult {
        let _turn = match climb_at(dir, name) {
            0 => None,
            _ => {
                let turn = self.turns.alone()?;
                self.turns.former.note(dir, climb_at(dir, name))?;
                Some(turn)
            }
        };
        unlinkat(dir, name, AtFlags::empty())
    }

    /// Refuses a new place for a link that would lead to a denied place from there, and for
    /// a directory with such a link.
    fn may_take(&self, source: &Stat, from: &HeldName, to: &HeldName) -> ActResult {
        if is_link(source) {
            self.no_way_in(&to.path)?;
            let text = text_of(&from.dir, from.bare())?;
            return self.may_lead(&to.path, &text);
        }
        if is_directory(source) && from.path != to.path {
            return self.may_move(from, to);
        }
        Ok(())
    }

    /// Makes a hard link. The new name must not give more rights on the file (`EXDEV`). A
    /// hard link of a symbolic link is judged like a new one.
    pub(super) fn link(&mut self, from: &OwnedFd, to: CallPlace) -> ActResult {
        let to = self.name(to, Errno::EXIST)?;
        if exists(&to) {
            return Err(Errno::EXIST);
        }
        self.check(&to.path, FileCaps::CREATE)?;
        if let Some(path) = real(&self.shared.held, from)? {
            self.no_gain(&path, &to.path)?;
        }
        let links = is_link(&fstat(from)?);
        let turn = if links || is_part(&to) { Some(self.turns.alone()?) } else { None };
        self.check_completing(&to)?;
        if links {
            self.no_way_in(&to.path)?;
            let text = text_of(from, b"")?;
            self.may_lead(&self.path_now(&to)?, &text)?;
            self.turns.former.note(&to.dir, climb_of(&text))?;
        }
        let flags = AtFlags::SYMLINK_FOLLOW;
        let linked = linkat(&self.shared.held, itself(from), &to.dir, &to.leaf, flags);
        drop(turn);
        linked
    }

    /// Refuses a new name that would give more rights on the same file.
    fn no_gain(&self, from: &Path, to: &Path) -> ActResult {
        let content = FileCaps::READ.union(FileCaps::WRITE).union(FileCaps::EXECUTE);
        let gained = self.caps(to).intersect(content).without(self.caps(from));
        if gained.is_empty() { Ok(()) } else { Err(Errno::XDEV) }
    }
}

fn is_link(meta: &Stat) -> bool {
    FileType::from_raw_mode(meta.st_mode) == FileType::Symlink
}

fn is_directory(meta: &Stat) -> bool {
    FileType::from_raw_mode(meta.st_mode) == FileType::Directory
}

fn is_same(at: &HeldName, seen: &Stat) -> bool {
    look(at).is_ok_and(|now| (now.st_dev, now.st_ino) == (seen.st_dev, seen.st_ino))
}

/// The climb of a link; none if the name is no link.
fn climb_at(dir: &OwnedFd, name: &[u8]) -> ClimbSet {
    text_of(dir, name).map_or(0, |text| climb_of(&text))
}

/// The text of a link, by its name in a directory, or of the held link itself if the name
/// is empty.
pub(super) fn text_of(dir: &OwnedFd, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut buffer = [0_u8; libc::PATH_MAX as usize];
    let length = readlinkat_raw(dir, name, &mut buffer)?;
    Ok(buffer.get(..length).unwrap_or_default().to_vec())
}
