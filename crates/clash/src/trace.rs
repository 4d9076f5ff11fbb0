//! The trace: the events of a session, one JSON object a line. Clash only appends to it.
//!
//! A record is one `write` to a file opened for appending, so records of hooks that run
//! at the same time do not mix. The hook writes it before it answers: the trace has the
//! answer even if the process is killed right after. If the disk takes a record only in
//! part, the writer ends the line and writes the record again; readers skip such a line.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::session::Session;

/// The version of the format. It grows when a field changes its meaning; readers skip
/// fields that they do not know.
pub(crate) const VERSION: u32 = 1;

const FILE: &str = "trace.jsonl";

/// The trace of a session.
pub(crate) fn file_of(session: &Path) -> PathBuf {
    session.join(FILE)
}

/// One line of a trace. The event determines which fields it has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TraceRecord {
    pub(crate) v: u32,
    /// Milliseconds since 1970.
    pub(crate) time: u64,
    pub(crate) session: String,
    pub(crate) event: TraceEvent,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
    /// The agent's id of the tool call, which joins a decision and its exit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<String>,
    /// The script, path, host or tool name that the decision is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) what: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) effect: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sandbox: Option<String>,
    /// The rule that decided, as `file:line`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rule: Option<String>,
    /// The reason of the decision, or the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pid: Option<u32>,
    /// True if the tool call succeeded, as the agent reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ok: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) duration_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TraceEvent {
    SessionStart,
    SessionEnd,
    Decision,
    /// A command entered its sandbox.
    Launch,
    /// A tool call ended.
    Exit,
    /// A tool call did not happen as the policy decided.
    Alarm,
    /// Written by a newer version.
    #[default]
    #[serde(other)]
    Unknown,
}

impl TraceEvent {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::SessionStart => "start",
            Self::SessionEnd => "end",
            Self::Decision => "decision",
            Self::Launch => "launch",
            Self::Exit => "exit",
            Self::Alarm => "alarm",
            Self::Unknown => "unknown",
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot write the trace {}: {source}", path.display())]
pub(crate) struct TraceError {
    path: PathBuf,
    source: io::Error,
}

/// The trace cuts longer texts.
const MAX_TEXT_BYTES: usize = 64 * 1024;

impl TraceRecord {
    pub(crate) fn new(session: &Session, event: TraceEvent) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            v: VERSION,
            time: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            session: session.name.clone(),
            event,
            ..Self::default()
        }
    }

    /// Appends the record to its session's trace.
    pub(crate) fn append(mut self, session: &Session) -> Result<(), TraceError> {
        let path = session.dir.join(FILE);
        for text in [&mut self.what, &mut self.reason].into_iter().flatten() {
            cut(text);
        }
        let failed = |source| TraceError { path: path.clone(), source };
        let mut line = serde_json::to_vec(&self).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        let file = fs::File::options().append(true).create(true).open(&path);
        append_whole(file.map_err(failed)?, &line).map_err(failed)
    }
}

fn append_whole(mut file: fs::File, line: &[u8]) -> io::Result<()> {
    const ATTEMPTS: usize = 3;
    for _ in 0..ATTEMPTS {
        match file.write(line) {
            Ok(written) if written == line.len() => return Ok(()),
            // End the line, so that the next record is not lost with it.
            Ok(_) => file.write_all(b"\n")?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("the disk takes records only in part"))
}

fn cut(text: &mut String) {
    if text.len() > MAX_TEXT_BYTES {
        let at = text.floor_char_boundary(MAX_TEXT_BYTES);
        text.truncate(at);
        text.push('…');
    }
}

/// The complete records of a trace, each with its line. Lines that are no record are
/// skipped.
pub(crate) fn read(path: &Path) -> io::Result<Vec<(TraceRecord, String)>> {
    let mut records = Vec::new();
    for line in BufReader::new(fs::File::open(path)?).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        if let Ok(record) = serde_json::from_str::<TraceRecord>(&line) {
            records.push((record, line));
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(dir: &Path) -> Session {
        Session::imagined(dir)
    }

    #[test]
    fn torn_lines_do_not_hide_other_records() {
        let dir = tempfile::tempdir().unwrap();
        let session = session(dir.path());
        let record = |what: &str| TraceRecord {
            what: Some(what.into()),
            ..TraceRecord::new(&session, TraceEvent::Decision)
        };
        record("one").append(&session).unwrap();
        let mut torn = fs::File::options().append(true).open(file_of(dir.path())).unwrap();
        torn.write_all(b"{\"v\":1,\"ti\n").unwrap();
        record("two\nlines").append(&session).unwrap();
        let read: Vec<_> =
            read(&file_of(dir.path())).unwrap().into_iter().filter_map(|(r, _)| r.what).collect();
        assert_eq!(read, ["one", "two\nlines"]);
    }

    #[test]
    fn an_event_of_a_newer_version_is_unknown() {
        let line = r#"{"v":9,"time":1,"session":"s","event":"teleport","new":[1]}"#;
        let record: TraceRecord = serde_json::from_str(line).unwrap();
        assert_eq!(record.event, TraceEvent::Unknown);
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let mut text = "é".repeat(MAX_TEXT_BYTES);
        cut(&mut text);
        assert!(text.len() <= MAX_TEXT_BYTES + 3 && text.ends_with('…'));
    }
}
