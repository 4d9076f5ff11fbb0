//! Symbolic links: the places to which a command may make them lead.
//!
//! The agent's own file tools run outside every room and follow links after the hook has
//! judged a path. So no link may ever lead to a place that the sandbox may not read,
//! whatever a room renames or replaces later. Four rules hold at every instant:
//!
//! 1. A link leads, name by name as the kernel follows it, to a place that the sandbox may
//!    read, and below which nothing is denied. The same holds for every place to which it
//!    would lead if a directory replaced a link on the way.
//! 2. `..` stands only at the beginning of a link, before any name that a room could
//!    replace: `../a/b`, not `a/../b`. So a link can climb only from its own directory,
//!    which has one parent.
//! 3. A rename judges a link again at its new place, and every link in a directory that
//!    moves. Meanwhile no other room makes a link or renames anything (`turn.rs`).
//! 4. A link that climbs counts for a minute after its removal (`former.rs`). The kernel may
//!    still follow its `..`. For example, `a/b/l -> ../..` would lead out of the project
//!    after `a/b` has moved to `b`.
//!
//! A path through such links stays where the sandbox may read. After the first link it is
//! in a tree without denied places, and further links lead only to such trees.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::read_link;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use clash_policy::FileCaps;
use rustix::fs::symlinkat;
use rustix::io::Errno;

use super::act::{ActResult, HeldName, MonitorWorker};
use super::former::climb_of;

/// The kernel follows as many links.
const MAX_LINKS: u32 = 40;

/// One part of the path that is still to follow.
enum LinkStep {
    Up,
    Down(OsString),
    /// The end of the text of a link that a room could replace.
    LinkEnd,
}

impl MonitorWorker {
    /// Makes a symbolic link, if the sandbox may create the name and `may_lead` permits the
    /// text. A text that names the room's /tmp is written as the session's directory, because
    /// the link is also followed outside. A link that climbs is noted for the time after its
    /// removal.
    pub(super) fn symlink(&self, target: &[u8], at: &HeldName) -> ActResult {
        self.check(&at.path, FileCaps::CREATE)?;
        self.no_way_in(&at.path)?;
        let _turn = self.turns.alone()?;
        self.check_completing(at)?;
        // Another room may have moved the directory before this room had its turn.
        let path = self.path_now(at)?;
        let outside = self.watch.rights.text_for_outside(Path::new(OsStr::from_bytes(target)));
        let target = outside.as_ref().map_or(target, |text| text.as_os_str().as_bytes());
        self.may_lead(&path, target)?;
        self.turns.former.note(&at.dir, climb_of(target))?;
        symlinkat(target, &at.dir, &at.leaf)
    }

    /// Refuses a link in the place of a directory that has protected paths below it, or
    /// through which another link leads.
    pub(super) fn no_way_in(&self, path: &Path) -> ActResult {
        let opens = self.watch.rights.opens_way(path) && !self.fresh.covers(path);
        if opens || self.links.0.borrow().lead_below(path) { Err(Errno::ACCESS) } else { Ok(()) }
    }

    /// Refuses a link with this text at this place if it leads, or could later lead, to a
    /// place that the sandbox may not read.
    pub(super) fn may_lead(&self, at: &Path, text: &[u8]) -> ActResult {
        let ends = self.follow(at, text)?;
        let fine = |to: &PathBuf| {
            let covered = self.fresh.covers(to);
            self.is_same_outside(at, text, to)
                && self.watch.rights.may_lead(at, to, covered, &self.links)
                && !self.is_carried_in(at, to)
        };
        if ends.iter().all(fine) { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// A link into the session's temporary directory must lead to the same place outside
    /// the room, where `/tmp` is the host's. That is so only for a relative link inside
    /// that directory.
    fn is_same_outside(&self, at: &Path, text: &[u8], to: &Path) -> bool {
        let rights = &self.watch.rights;
        rights
            .tmp_name(to)
            .is_none_or(|name| !text.starts_with(b"/") && rights.tmp_name(at) == Some(name))
    }

    /// Every place to which a link leads, or would lead if a directory replaced a link on
    /// the way.
    fn follow(&self, at: &Path, text: &[u8]) -> Result<Vec<PathBuf>, Errno> {
        let rights = &self.watch.rights;
        let mut here = at.parent().unwrap_or(Path::new("/")).to_path_buf();
        let mut ends = Vec::with_capacity(1);
        let mut steps = VecDeque::new();
        let mut links = MAX_LINKS;
        // True while all names so far belong to the system baseline.
        let mut steady = true;
        begin(Path::new(OsStr::from_bytes(text)), &mut here, &mut steps);
        while let Some(step) = steps.pop_front() {
            let name = match step {
                LinkStep::Up if !steady => return Err(Errno::ACCESS),
                LinkStep::Up => {
                    here.pop();
                    continue;
                }
                LinkStep::LinkEnd => {
                    steady = false;
                    continue;
                }
                LinkStep::Down(name) => name,
            };
            here.push(name);
            let changeable = rights.permits(&here, FileCaps::CREATE);
            let of_system = !changeable && rights.in_baseline(&here);
            // `/proc` shows a different content to each process.
            if here.starts_with("/proc") {
                return Err(Errno::ACCESS);
            }
            steady &= of_system;
            let Ok(target) = read_link(&here) else { continue };
            if changeable {
                ends.push(lexical(&here, &steps)?);
            }
            // The kernel follows no more links. The monitor judges the remaining links when
            // a command makes them.
            let Some(fewer) = links.checked_sub(1) else { return Ok(ends) };
            links = fewer;
            here.pop();
            if !of_system {
                steps.push_front(LinkStep::LinkEnd);
                steady = true;
            }
            begin(&target, &mut here, &mut steps);
        }
        ends.push(here);
        Ok(ends)
    }
}

/// Puts the text of a link in front of the remaining steps.
fn begin(text: &Path, here: &mut PathBuf, steps: &mut VecDeque<LinkStep>) {
    if text.is_absolute() {
        *here = PathBuf::from("/");
    }
    let parts: Vec<LinkStep> = text
        .components()
        .filter_map(|part| match part {
            Component::ParentDir => Some(LinkStep::Up),
            Component::Normal(name) => Some(LinkStep::Down(name.to_owned())),
            _ => None,
        })
        .collect();
    parts.into_iter().rev().for_each(|step| steps.push_front(step));
}

/// The end of the remaining steps if `here` is a directory.
fn lexical(here: &Path, steps: &VecDeque<LinkStep>) -> Result<PathBuf, Errno> {
    let mut path = here.to_path_buf();
    for step in steps {
        match step {
            LinkStep::Down(name) => path.push(name),
            LinkStep::LinkEnd => {}
            LinkStep::Up => return Err(Errno::ACCESS),
        }
    }
    Ok(path)
}
