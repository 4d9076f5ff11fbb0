//! Notices when a command changes files that steer the agent or clash.
//!
//! The direct tier cannot protect a file inside a directory it lets a command
//! write. What it cannot prevent, the user is told: the state of those files is
//! noted when the session begins and compared after every command.

use std::fs;
use std::path::PathBuf;

use clash_policy::path::is_below;
use clash_sandbox::disk::Disk;

use crate::dirs::Dirs;
use crate::session::Session;
use crate::stamp;

const FILE: &str = "watched.json";

/// What is watched, with its state in words that only compare.
type States = Vec<(PathBuf, String)>;

fn states(dirs: &Dirs, session: &Session) -> States {
    let disk = Disk::default();
    let inside = |path: &PathBuf| is_below(path, &session.project);
    let watched = dirs.cage(&session.project, &disk).into_iter().filter(inside);
    watched.map(|path| (path.clone(), format!("{:?}", stamp::of(&path)))).collect()
}

/// Notes the state of everything; what fails here only costs a later notice.
pub(crate) fn remember(dirs: &Dirs, session: &Session) {
    store(session, &states(dirs, session));
}

fn store(session: &Session, states: &States) {
    if let Ok(text) = serde_json::to_vec(states) {
        let _ = fs::write(session.dir.join(FILE), text);
    }
}

/// What has changed since it was noted last, and notes it anew.
pub(crate) fn changed(dirs: &Dirs, session: &Session) -> Vec<PathBuf> {
    let now = states(dirs, session);
    let before = fs::read(session.dir.join(FILE)).ok();
    let before: Option<States> = before.and_then(|text| serde_json::from_slice(&text).ok());
    let differs = |(path, state): &&(PathBuf, String)| {
        let known = before.as_ref().and_then(|b| b.iter().find(|(other, _)| other == path));
        known.is_some_and(|(_, other)| other != state)
    };
    let changed: Vec<PathBuf> = now.iter().filter(differs).map(|(path, _)| path.clone()).collect();
    if before.is_none() || !changed.is_empty() {
        store(session, &now);
    }
    changed
}
