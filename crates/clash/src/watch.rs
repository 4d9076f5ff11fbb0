//! Notices when a command changes files that steer the agent or clash.
//!
//! The direct tier cannot protect a file in a directory that a command may write. So the
//! hook notes the state of these files when the session begins, compares it after every
//! command, and tells the user about changes. Instructions and pipelines that a branch
//! carries, for example `AGENTS.md`, are compared around each command that may write them:
//! `git checkout` brings those of another commit, which the agent may have made.

use std::fs;
use std::path::PathBuf;

use clash_policy::path::is_below;
use clash_policy::protect;
use clash_sandbox::disk::Disk;

use crate::dirs::Dirs;
use crate::session::Session;
use clash_protocol::stamp::stamp_file;

const WATCHED_FILE: &str = "watched.json";
const CARRIED_FILE: &str = "carried.json";

/// The watched paths, each with its state as text for comparison.
type FileStates = Vec<(PathBuf, String)>;

/// The state of each caged path in the project.
fn caged_states(dirs: &Dirs, session: &Session) -> FileStates {
    let disk = Disk::default();
    let inside = |path: &PathBuf| is_below(path, &session.project);
    let caged = dirs.cage(&session.project, &disk).into_iter().filter(inside);
    caged.map(with_state).collect()
}

/// A path with its stamp, or the error that there is none.
fn with_state(path: PathBuf) -> (PathBuf, String) {
    let state = format!("{:?}", stamp_file(&path));
    (path, state)
}

/// The state of each instruction and pipeline in the project that a branch may carry.
fn carried_states(session: &Session) -> FileStates {
    let carried = protect::carried_by_branches().map(|path| session.project.join(path));
    carried.flat_map(with_entries).map(with_state).collect()
}

/// Notes the instructions and pipelines before a command that may write them.
pub(crate) fn remember_carried(session: &Session) {
    if let Ok(text) = serde_json::to_vec(&carried_states(session)) {
        let _ = fs::write(session.dir.join(CARRIED_FILE), text);
    }
}

/// The instructions and pipelines that changed or appeared since [`remember_carried`]. An
/// entry that is gone from a directory is not among them. Removes the note; empty without
/// one.
pub(crate) fn carried_changed(session: &Session) -> Vec<PathBuf> {
    let file = session.dir.join(CARRIED_FILE);
    let Ok(text) = fs::read(&file) else { return Vec::new() };
    let _ = fs::remove_file(file);
    let before: FileStates = serde_json::from_slice(&text).unwrap_or_default();
    let now = carried_states(session);
    let directory = |path: &PathBuf| now.iter().any(|(other, _)| other.parent() == Some(path));
    let changed = now.iter().filter(|it| !before.contains(it)).map(|(path, _)| path.clone());
    changed.filter(|path| !directory(path)).collect()
}

/// Of a directory, only this many entries are watched.
const MAX_DIRECTORY_ENTRIES: usize = 64;

/// A path, and the entries of a directory.
fn with_entries(path: PathBuf) -> Vec<PathBuf> {
    let entries = fs::read_dir(&path).into_iter().flatten().flatten().take(MAX_DIRECTORY_ENTRIES);
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    all.push(path);
    all
}

/// Notes the state of all watched files. If it fails, the user only misses a later notice.
pub(crate) fn remember_states(dirs: &Dirs, session: &Session) {
    store_states(session, &caged_states(dirs, session));
}

/// Writes the note. A failure is ignored.
fn store_states(session: &Session, states: &FileStates) {
    if let Ok(text) = serde_json::to_vec(states) {
        let _ = fs::write(session.dir.join(WATCHED_FILE), text);
    }
}

/// The files that have changed since they were noted last. Notes their state anew. Empty if
/// there is no note yet.
pub(crate) fn find_changed(dirs: &Dirs, session: &Session) -> Vec<PathBuf> {
    let now = caged_states(dirs, session);
    let before = fs::read(session.dir.join(WATCHED_FILE)).ok();
    let before: Option<FileStates> = before.and_then(|text| serde_json::from_slice(&text).ok());
    let differs = |(path, state): &&(PathBuf, String)| {
        let known = before.as_ref().and_then(|b| b.iter().find(|(other, _)| other == path));
        known.is_some_and(|(_, other)| other != state)
    };
    let changed: Vec<PathBuf> = now.iter().filter(differs).map(|(path, _)| path.clone()).collect();
    if before.is_none() || !changed.is_empty() {
        store_states(session, &now);
    }
    changed
}
