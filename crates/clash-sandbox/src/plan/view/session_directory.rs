//! The temporary directories of a room: /tmp, /var/tmp and the host's `TMPDIR`. They are the
//! session's directory, or empty directories of the room.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clash_policy::FileCaps;
use clash_policy::path::{LinkResolver, is_below};

use super::{MountPlanner, RightsMark};
use crate::plan::room::{CoveredPlace, MountAccess, MountStep};

/// A place in the session's directory with something of the host mounted on it.
#[derive(Default)]
pub(super) struct SessionPoint {
    pub(super) file: bool,
    /// The host's paths below it. The rest of that directory is the room's own: a command
    /// could otherwise leave files in a home below /tmp for the next one.
    pub(super) shows: Vec<CoveredPlace>,
}

impl MountPlanner<'_> {
    /// Shows the session's directory as /tmp if the rules give any right to it. Otherwise,
    /// and without a session, the room has empty temporary directories of its own.
    pub(super) fn add_temporary_directories(&mut self, marks: &BTreeMap<PathBuf, RightsMark>) {
        let request = self.sources.request;
        let host = request.disk.real(request.temporary.host);
        let session = request.temporary.session;
        match session.map(|session| (session, self.sources.caps(session, false))) {
            Some((session, caps)) if !caps.is_empty() => {
                self.show_session_directory(session, caps, &host, marks)
            }
            _ => self.add_scratch_directories(&host),
        }
    }

    /// Shows the session's directory as /tmp, /var/tmp and the host's `TMPDIR`, except where
    /// a rule shows the host's own directory. The first name is a mount. The others are links
    /// to it, unless something else is mounted below them.
    fn show_session_directory(
        &mut self,
        session: &Path,
        caps: FileCaps,
        host: &Path,
        marks: &BTreeMap<PathBuf, RightsMark>,
    ) {
        let access = MountAccess {
            write: caps.intersects(FileCaps::CHANGE),
            execute: caps.contains(FileCaps::EXECUTE),
        };
        self.session_writable = access.write;
        for name in [Path::new("/tmp"), Path::new("/var/tmp"), host] {
            let inside = self.session_at.iter().any(|other| is_below(name, other));
            let covered = marks.keys().any(|mark| mark != name && is_below(name, mark));
            if covered || self.skeleton_has(name) || !self.sources.caps(name, false).is_empty() {
                continue;
            }
            if inside {
                self.add_session_point(name, false);
                let (from, at) = (session.to_path_buf(), name.to_path_buf());
                self.session_at.push(at.clone());
                self.shown_inside = Some(MountStep::Show { from, at, access });
                continue;
            }
            if let Some(parent) = name.parent() {
                self.add_directory(parent);
            }
            let at = name.to_path_buf();
            match self.session_at.first() {
                Some(first) if !marks.keys().any(|mark| is_below(mark, name)) => {
                    self.skeleton.push(MountStep::Link { at, to: first.clone() });
                }
                _ => {
                    self.skeleton.push(MountStep::Directory { at: at.clone() });
                    self.session_at.push(at.clone());
                    self.skeleton.push(MountStep::Show { from: session.to_path_buf(), at, access });
                }
            }
        }
    }

    /// Records a path of the host that is to be mounted inside a name of the session's
    /// directory. Returns `false`, and records nothing, if the path is outside these names.
    pub(super) fn add_session_point(&mut self, path: &Path, file: bool) -> bool {
        let inside = |at: &&PathBuf| is_below(path, at) && path != at.as_path();
        let closest = self.session_at.iter().filter(inside).max_by_key(|at| at.as_os_str().len());
        let Some((top, below)) = closest.and_then(|at| {
            let below = path.strip_prefix(at).ok()?;
            let first = below.iter().next()?;
            Some((at.join(first), below.strip_prefix(first).unwrap_or(Path::new(""))))
        }) else {
            return false;
        };
        let point = self.points.entry(top).or_default();
        if below.as_os_str().is_empty() {
            point.file = file;
        } else if !point.shows.iter().any(|shown| shown.below == below) {
            point.shows.push(CoveredPlace { below: below.to_path_buf(), file });
        }
        true
    }

    /// Makes /tmp, /var/tmp and the host's `TMPDIR` empty writable directories of the room,
    /// except those to which the rules give any right.
    fn add_scratch_directories(&mut self, tmp: &Path) {
        for place in [Path::new("/tmp"), Path::new("/var/tmp"), tmp] {
            if self.scratch.iter().any(|other| other == place)
                || !self.sources.caps(place, false).is_empty()
            {
                continue;
            }
            if self.scratch.iter().any(|other| is_below(place, other)) {
                self.add_directory(place);
                self.nested.push(place.to_path_buf());
                continue;
            }
            if let Some(parent) = place.parent() {
                self.add_directory(parent);
            }
            self.skeleton.push(MountStep::Scratch { at: place.to_path_buf() });
            self.scratch.push(place.to_path_buf());
        }
    }
}
