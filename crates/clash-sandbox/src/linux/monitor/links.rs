//! Symbolic links: where they may lead.
//!
//! The agent's own file tools run outside every room and follow links after the hook
//! has judged a path. So no link may ever lead to a place that the sandbox may not
//! read, whatever is renamed or replaced later. Three rules make that hold at every
//! instant:
//!
//! 1. A link leads, name by name as the kernel follows it, to a place that may be
//!    read, and below which nothing is denied. The same holds for every place it
//!    would lead to if a link on the way were replaced by a directory.
//! 2. `..` stands only at the beginning of a link, before any name that a room could
//!    replace: `../a/b`, not `a/../b`. So a link can climb only from the directory it
//!    is in, and that directory has one parent.
//! 3. A link, or a directory with links in it, that gets another place is judged
//!    again there. Meanwhile no other room makes a link or renames anything
//!    (`turn.rs`).
//!
//! A path that goes through such links alone stays where the sandbox may read: after
//! the first link it is in a tree of which nothing is denied, and further links lead
//! to such trees only.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::read_link;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use clash_policy::Caps;
use rustix::fs::symlinkat;
use rustix::io::Errno;

use super::act::{Done, Name, Worker};

/// As many links as the kernel follows.
const MAX_LINKS: u32 = 40;

/// One part of what is left to follow.
enum Step {
    Up,
    Down(OsString),
    /// Here ends the text of a link that a room could replace.
    LinkEnd,
}

impl Worker {
    pub(super) fn symlink(&self, target: &[u8], at: &Name) -> Done {
        self.check(&at.path, Caps::CREATE)?;
        self.no_way_in(&at.path)?;
        let _turn = self.turns.alone()?;
        self.check_completing(at)?;
        // Another room may have moved the directory before this one had its turn.
        let path = self.path_now(at)?;
        let outside = self.watch.rights.text_for_outside(Path::new(OsStr::from_bytes(target)));
        let target = outside.as_ref().map_or(target, |text| text.as_os_str().as_bytes());
        self.may_lead(&path, target)?;
        symlinkat(target, &at.dir, &at.leaf)
    }

    /// Refuses a link in the place of a directory of which part is kept, or through
    /// which another link leads.
    pub(super) fn no_way_in(&self, path: &Path) -> Done {
        let opens = self.watch.rights.opens_way(path) && !self.fresh.covers(path);
        if opens || self.links.0.borrow().lead_below(path) { Err(Errno::ACCESS) } else { Ok(()) }
    }

    /// Refuses a link with this text at this place if it leads, or could come to
    /// lead, out of what may be read.
    pub(super) fn may_lead(&self, at: &Path, text: &[u8]) -> Done {
        let ends = self.follow(at, text)?;
        let fine = |to: &PathBuf| {
            let covered = self.fresh.covers(to);
            self.is_same_outside(at, text, to)
                && self.watch.rights.may_lead(at, to, covered, &self.links)
                && !self.is_carried_in(at, to)
        };
        if ends.iter().all(fine) { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// Whether a link that leads into the session's temporary directory does so outside
    /// the room too, where /tmp is the host's: only from inside that directory, by a
    /// relative text.
    fn is_same_outside(&self, at: &Path, text: &[u8], to: &Path) -> bool {
        let rights = &self.watch.rights;
        rights
            .tmp_name(to)
            .is_none_or(|name| !text.starts_with(b"/") && rights.tmp_name(at) == Some(name))
    }

    /// Everything that a link leads to, or would if a link on the way were replaced.
    fn follow(&self, at: &Path, text: &[u8]) -> Result<Vec<PathBuf>, Errno> {
        let rights = &self.watch.rights;
        let mut here = at.parent().unwrap_or(Path::new("/")).to_path_buf();
        let mut ends = Vec::with_capacity(1);
        let mut steps = VecDeque::new();
        let mut links = MAX_LINKS;
        // Whether all names so far belong to the system.
        let mut steady = true;
        begin(Path::new(OsStr::from_bytes(text)), &mut here, &mut steps);
        while let Some(step) = steps.pop_front() {
            let name = match step {
                Step::Up if !steady => return Err(Errno::ACCESS),
                Step::Up => {
                    here.pop();
                    continue;
                }
                Step::LinkEnd => {
                    steady = false;
                    continue;
                }
                Step::Down(name) => name,
            };
            here.push(name);
            let changeable = rights.permits(&here, Caps::CREATE);
            let of_system = !changeable && rights.in_baseline(&here);
            // What is there depends on who looks.
            if here.starts_with("/proc") {
                return Err(Errno::ACCESS);
            }
            steady &= of_system;
            let Ok(target) = read_link(&here) else { continue };
            if changeable {
                ends.push(lexical(&here, &steps)?);
            }
            // The kernel follows no more, and the rest is judged when it is made.
            let Some(fewer) = links.checked_sub(1) else { return Ok(ends) };
            links = fewer;
            here.pop();
            if !of_system {
                steps.push_front(Step::LinkEnd);
                steady = true;
            }
            begin(&target, &mut here, &mut steps);
        }
        ends.push(here);
        Ok(ends)
    }
}

/// Puts the text of a link before what is left to follow.
fn begin(text: &Path, here: &mut PathBuf, steps: &mut VecDeque<Step>) {
    if text.is_absolute() {
        *here = PathBuf::from("/");
    }
    let parts: Vec<Step> = text
        .components()
        .filter_map(|part| match part {
            Component::ParentDir => Some(Step::Up),
            Component::Normal(name) => Some(Step::Down(name.to_owned())),
            _ => None,
        })
        .collect();
    parts.into_iter().rev().for_each(|step| steps.push_front(step));
}

/// Where the rest leads if `here` is a directory.
fn lexical(here: &Path, steps: &VecDeque<Step>) -> Result<PathBuf, Errno> {
    let mut path = here.to_path_buf();
    for step in steps {
        match step {
            Step::Down(name) => path.push(name),
            Step::LinkEnd => {}
            Step::Up => return Err(Errno::ACCESS),
        }
    }
    Ok(path)
}
