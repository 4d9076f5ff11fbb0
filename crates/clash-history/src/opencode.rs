//! OpenCode's histories: the database `opencode.db` (seen with version 1.18.33),
//! and the files below `storage` of versions that had none.
//!
//! A call is a `part` of type `tool`; its state holds both input and result.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::join::without_texts;
use crate::lines::MAX_LINE_BYTES;
use crate::sqlite::{SqliteCell, SqliteFile};
use crate::{CallId, CallOutcome, CallSink, ReadTally, SeenCall};

#[derive(Default, Deserialize)]
#[serde(default)]
struct OpencodePart {
    #[serde(rename = "type")]
    kind: String,
    tool: String,
    #[serde(rename = "sessionID")]
    session: String,
    #[serde(rename = "callID")]
    call: String,
    state: PartState,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PartState {
    status: String,
    input: Map<String, Value>,
    metadata: Option<PartMetadata>,
    time: Option<OpencodeTimes>,
    error: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PartMetadata {
    exit: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OpencodeTimes {
    start: Option<u64>,
}

#[derive(Deserialize)]
struct OpencodeSession {
    directory: String,
}

/// Passes on the calls of a database. A missing table or column is counted as foreign.
pub(crate) fn read_database(
    path: &Path,
    tally: &mut ReadTally,
    each: &mut CallSink<'_>,
) -> io::Result<ControlFlow<()>> {
    let database = SqliteFile::open(path)?;
    let mut directories = HashMap::new();
    let sessions = database.rows("session", &["id", "directory"], &mut |row| {
        let mut cells = row.into_iter().map(SqliteCell::text);
        if let (Some(Some(id)), Some(Some(directory))) = (cells.next(), cells.next()) {
            directories.insert(id, directory);
        }
        ControlFlow::Continue(())
    })?;
    let parts = database.rows("part", &["session_id", "data"], &mut |row| {
        let mut cells = row.into_iter().map(SqliteCell::text);
        let (Some(Some(session)), Some(Some(data))) = (cells.next(), cells.next()) else {
            tally.foreign += 1;
            return ControlFlow::Continue(());
        };
        take(data.as_bytes(), &session, &directories, tally, each)
    })?;
    tally.foreign += u64::from(sessions.is_none()) + u64::from(parts.is_none());
    Ok(parts.unwrap_or(ControlFlow::Continue(())))
}

/// Passes on the calls below `storage`. Files that are too long or cannot be read are
/// counted and skipped.
pub(crate) fn read_storage(
    storage: &Path,
    tally: &mut ReadTally,
    each: &mut CallSink<'_>,
) -> io::Result<ControlFlow<()>> {
    let mut directories = HashMap::new();
    for file in two_deep(&storage.join("session"))? {
        let session = fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let id = file.file_stem().map(|name| name.to_string_lossy().into_owned());
        if let (Some(id), Some(OpencodeSession { directory })) = (id, session) {
            directories.insert(id, directory);
        }
    }
    for file in two_deep(&storage.join("part"))? {
        if fs::metadata(&file).is_ok_and(|meta| meta.len() > MAX_LINE_BYTES as u64) {
            tally.too_long += 1;
            continue;
        }
        let Ok(text) = fs::read(&file) else {
            tally.unreadable += 1;
            continue;
        };
        if take(&text, "", &directories, tally, each).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// The JSON files of all directories in a directory, in the order of their names, which
/// begin with their time. None if the directory does not exist.
fn two_deep(dir: &Path) -> io::Result<Vec<std::path::PathBuf>> {
    let mut files = Vec::new();
    let below = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
        below => below?,
    };
    for inner in below {
        if let Ok(entries) = fs::read_dir(inner?.path()) {
            files.extend(entries.flatten().map(|entry| entry.path()));
        }
    }
    files.retain(|file| file.extension().is_some_and(|it| it == "json"));
    files.sort();
    Ok(files)
}

/// Passes on one part if it is a tool call. A part that cannot be read is counted.
fn take(
    text: &[u8],
    session: &str,
    directories: &HashMap<String, String>,
    tally: &mut ReadTally,
    each: &mut CallSink<'_>,
) -> ControlFlow<()> {
    let part: OpencodePart = match serde_json::from_slice(text) {
        Ok(part) => part,
        Err(error) => {
            let foreign = u64::from(error.is_data());
            tally.foreign += foreign;
            tally.broken += 1 - foreign;
            return ControlFlow::Continue(());
        }
    };
    if part.kind != "tool" {
        return ControlFlow::Continue(());
    }
    let session = if session.is_empty() { &part.session } else { session };
    let cwd = directories.get(session).filter(|path| path.starts_with('/'));
    each(SeenCall {
        when: part.state.time.as_ref().and_then(|time| time.start),
        agent: "opencode",
        call: CallId { session: session.to_owned(), id: part.call },
        cwd: cwd.map(Into::into),
        outcome: outcome(&part.state),
        tool: part.tool,
        input: input(part.state.input),
    })
}

/// The outcome of a call by its status, its exit code and the text of its error.
fn outcome(state: &PartState) -> CallOutcome {
    let exit = state.metadata.as_ref().and_then(|it| it.exit.as_ref());
    match state.status.as_str() {
        "completed" => match exit {
            Some(code) if code.as_i64() != Some(0) => CallOutcome::Failed,
            _ => CallOutcome::Ran,
        },
        "error" => {
            let text = state.error.as_ref().and_then(Value::as_str).unwrap_or_default();
            let refused =
                text.contains("rejected permission") || text.contains("prevents you from");
            if refused { CallOutcome::Refused } else { CallOutcome::Failed }
        }
        _ => CallOutcome::Unknown,
    }
}

/// The input with the field names of other agents, without texts to write.
fn input(input: Map<String, Value>) -> Map<String, Value> {
    let named = |(name, value): (String, Value)| {
        let name = if name == "filePath" { "file_path".to_owned() } else { name };
        (name, value)
    };
    without_texts(input.into_iter().map(named).collect())
}
