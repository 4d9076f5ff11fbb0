//! The files of a tool call as they were judged, for the hook that runs after the call.
//!
//! The agent opens a file itself, after the hook has answered. In between, a command in
//! the background can exchange a directory and a link. The kernel refuses links that the
//! sandbox does not allow; the hook notices links that it allows. After the call the path
//! must lead to the same file, and the text that the tool gave to the model must be the text
//! of that file.
//!
//! Limits: if the command takes the exchange back before the second look, the hook
//! notices it only if the client reports the text that it has read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clash_policy::FileUse;
use serde::{Deserialize, Serialize};

use crate::dirs::write_private;
use crate::held_path::directory_of;
use crate::session::{Session, SessionError};
use clash_agents::HookMessage;
use clash_policy::fnv::fnv_hash;

const DIR: &str = "judged";

const VERSION: u32 = 1;

/// Longer files are not compared.
const MAX_TEXT_BYTES: u64 = 8 << 20;

/// The record of one call.
#[derive(Debug, Serialize, Deserialize)]
struct JudgedFiles {
    v: u32,
    files: Vec<JudgedFile>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct JudgedFile {
    real: PathBuf,
    /// Device and inode of the nearest existing directory; `None` if it cannot be opened.
    directory: Option<(u64, u64)>,
}

impl JudgedFile {
    /// The identity of the file's directory now.
    fn note(file: &FileUse) -> io::Result<Self> {
        Ok(Self { real: file.path.clone(), directory: directory_of(&file.path)? })
    }
}

/// Notes the files of a call that the hook allows or asks about.
pub(crate) fn note(
    session: &Session,
    message: &HookMessage,
    files: &[FileUse],
) -> Result<(), SessionError> {
    let file = record_path(session, message);
    let state = |source| SessionError::State { path: file.clone(), source };
    let files = files.iter().map(JudgedFile::note).collect::<io::Result<_>>().map_err(state)?;
    let text = serde_json::to_vec(&JudgedFiles { v: VERSION, files });
    write_private(&file, &text.map_err(|error| state(error.into()))?).map_err(state)
}

/// The difference between the files of a call now and when they were judged, as a sentence
/// for the user. Removes the record. `None` if there is no difference, or no record that this
/// version can read.
pub(crate) fn find_difference(
    session: &Session,
    message: &HookMessage,
    files: &[FileUse],
) -> Option<String> {
    let noted = record_path(session, message);
    let text = fs::read(&noted).ok()?;
    let _ = fs::remove_file(&noted);
    let judged: JudgedFiles = serde_json::from_slice(&text).ok()?;
    if judged.v != VERSION {
        return None;
    }
    for (before, now) in judged.files.iter().zip(files) {
        let shown = before.real.display();
        if before.real != now.path {
            return Some(format!(
                "{} was judged as {shown} and leads to {} now: a command may have put a link \
                 in its way",
                message.tool,
                now.path.display()
            ));
        }
        // A directory that cannot be opened any more has changed too.
        let directory = directory_of(&now.path).ok();
        if before.directory.is_some() && directory != Some(before.directory) {
            // The tool itself may have created the directories of a new file.
            let made = fs::symlink_metadata(&now.path).is_ok() && message.content.is_none();
            if !made {
                return Some(format!("the directory of {shown} was exchanged during the call"));
            }
        }
    }
    let [only] = judged.files.as_slice() else { return None };
    let given = message.content.as_deref()?;
    (!is_text_of(given, &only.real)).then(|| {
        format!(
            "the text that {} gave to the model is not that of {}: another file was read, or \
             that one was changed at this moment",
            message.tool,
            only.real.display()
        )
    })
}

/// Forgets all calls, at the end of a session.
pub(crate) fn discard_all(session: &Session) {
    let _ = fs::remove_dir_all(session.dir.join(DIR));
}

/// The record's path: named after the call's id, or without one after the call itself.
fn record_path(session: &Session, message: &HookMessage) -> PathBuf {
    let key = match message.call.as_str() {
        "" => format!("{}{:?}", message.tool, message.input),
        call => call.to_owned(),
    };
    session.dir.join(DIR).join(format!("{:016x}", fnv_hash(key.as_bytes())))
}

/// True if the start of every line of a text occurs in the file, in the same order. A client
/// may leave lines out, cut long ones and change how they end. True also for files that
/// cannot be compared: missing, too long, or UTF-16.
fn is_text_of(given: &str, file: &Path) -> bool {
    const ENOUGH_CHARS: usize = 200;
    let Ok(meta) = fs::symlink_metadata(file) else { return true };
    if !meta.is_file() || meta.len() > MAX_TEXT_BYTES {
        return true;
    }
    let Ok(bytes) = fs::read(file) else { return true };
    // A client decodes UTF-16, so its lines differ from the bytes on the disk.
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return true;
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines = given.trim_start_matches('\u{feff}').lines().map(str::trim);
    let starts = lines.map(|line| {
        let end = line.char_indices().nth(ENOUGH_CHARS).map_or(line.len(), |(at, _)| at);
        line.get(..end).unwrap_or(line)
    });
    // Both are in the order of the file.
    let mut rest = text.as_ref();
    starts.filter(|line| !line.is_empty()).all(|line| match rest.split_once(line) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use clash_policy::FileCaps;

    use super::*;

    #[test]
    fn a_directory_that_became_a_link_is_a_difference() {
        let base = tempfile::tempdir().unwrap();
        let session = Session::imagined(base.path());
        let dir = base.path().join("dir");
        fs::create_dir(&dir).unwrap();
        let path = dir.join("sub/file");
        let file = FileUse { path, needs: FileCaps::READ, caseless: false };
        let message = HookMessage::default();
        let judged = || note(&session, &message, std::slice::from_ref(&file)).unwrap();
        let found = || find_difference(&session, &message, std::slice::from_ref(&file));
        judged();
        assert_eq!(found(), None);
        judged();
        fs::remove_dir(&dir).unwrap();
        std::os::unix::fs::symlink("dir", &dir).unwrap();
        assert!(found().unwrap().contains("was exchanged during the call"));
    }

    #[test]
    fn a_text_is_recognised_by_its_lines() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "one\r\n  two\nthree\n").unwrap();
        for text in ["one\n  two\nthree\n", "  two", "", "two\nthree", "\u{feff}one"] {
            assert!(is_text_of(text, &file), "{text:?}");
        }
        for text in ["four", "one\nfour", "three\none"] {
            assert!(!is_text_of(text, &file), "{text:?}");
        }
    }
}
