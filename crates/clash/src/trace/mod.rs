//! The trace: the events of a session, one JSON object a line. Clash only appends to it.
//!
//! | module | job |
//! |---|---|
//! | this one | the records, and the texts that they keep |
//! | [`writer`] | appends records: ordered, chained, whole |
//! | [`chain`] | the hash chain over the lines, and its check |
//! | [`segments`] | the files of a trace, and how long clash keeps them |
//! | [`scan`] | reads many records fast |
//!
//! The format is in `docs/formats.md`. The hook writes a record before it answers: the trace
//! has the answer even if the process is killed right after.

pub(crate) mod chain;
pub(crate) mod scan;
pub(crate) mod segments;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::session::Session;
pub(crate) use writer::TraceWriter;

/// The version of the format. It grows when a field changes its meaning; readers skip
/// fields that they do not know.
pub(crate) const VERSION: u32 = 2;

const FILE: &str = "trace.jsonl";

/// The newest file of a session's trace.
pub(crate) fn file_of(session: &Path) -> PathBuf {
    session.join(FILE)
}

/// One line of a trace. The event determines which fields it has.
///
/// The order of the fields is part of the format: [`scan`] finds the first ones by their
/// place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TraceRecord {
    pub(crate) v: u32,
    /// The number of the record in its session, from 1 on. Records of version 1 have none.
    #[serde(default)]
    pub(crate) n: u64,
    /// Milliseconds since 1970.
    pub(crate) time: u64,
    pub(crate) event: TraceEvent,
    /// The agent's id of the tool call, which joins the records of one action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<String>,
    pub(crate) session: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<String>,
    /// The script, path, host or tool name that the record is about.
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
    pub(crate) block: Option<BlockedAccess>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) connection: Option<TracedConnection>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pid: Option<u32>,
    /// True if the tool call succeeded, as the agent reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ok: Option<bool>,
    /// The exit status of the command, as its launcher saw it or the agent reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<i32>,
    /// The signal that ended the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<i32>,
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
    /// The launcher saw the end of a command.
    End,
    /// A tool call ended, as the agent reports it.
    Exit,
    /// An access was refused.
    Block,
    /// A command reached the network through the gate.
    Connection,
    /// A room began to run.
    RoomStart,
    RoomEnd,
    /// A command came to a door.
    Door,
    /// A question waits for the user.
    Question,
    /// The user answered a question.
    Answer,
    /// The user granted a right.
    Grant,
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
            Self::End => "ended",
            Self::Exit => "exit",
            Self::Block => "block",
            Self::Connection => "connection",
            Self::RoomStart => "room",
            Self::RoomEnd => "room end",
            Self::Door => "door",
            Self::Question => "question",
            Self::Answer => "answer",
            Self::Grant => "grant",
            Self::Alarm => "alarm",
            Self::Unknown => "unknown",
        }
    }
}

/// An access that was refused. The record's `reason` is the sentence about it, `sandbox` and
/// `rule` say by what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BlockedAccess {
    pub(crate) kind: BlockKind,
    /// The path, host, socket or command.
    pub(crate) what: String,
    /// The rights that were missing, for example `read`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) needs: Option<String>,
    /// The part of clash that refused it: `policy`, `broker`, `monitor`, `gate`, `kernel`.
    pub(crate) by: RefusingPart,
    pub(crate) known: BlockEvidence,
    /// The program that tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) program: Option<String>,
    /// The command with which the user grants it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) grant: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BlockKind {
    File,
    /// A file that another program runs or obeys later.
    Persistence,
    Link,
    Host,
    Socket,
    Command,
    Limit,
    #[serde(other)]
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RefusingPart {
    Policy,
    Broker,
    Monitor,
    Gate,
    Kernel,
    #[serde(other)]
    Other,
}

/// How clash knows about a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BlockEvidence {
    /// The part that refused it says so.
    Seen,
    /// The words of the command show it, before it runs.
    Foreseen,
    /// The output of the command shows it.
    Inferred,
    #[serde(other)]
    Other,
}

/// A connection that a gate opened or refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TracedConnection {
    pub(crate) host: String,
    pub(crate) port: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sent: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) received: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot write the trace {}: {source}", path.display())]
pub(crate) struct TraceError {
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

/// The trace cuts longer texts.
const MAX_TEXT_BYTES: usize = 64 * 1024;

impl TraceRecord {
    pub(crate) fn new(session: &Session, event: TraceEvent) -> Self {
        Self { session: session.name.clone(), ..Self::of_event(event) }
    }

    /// A record of this event, now, with nothing else.
    pub(crate) fn of_event(event: TraceEvent) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let time = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        Self { v: VERSION, time, event, ..Self::default() }
    }

    /// Appends the record to its session's trace.
    pub(crate) fn append(self, session: &Session) -> Result<(), TraceError> {
        let failed = |source| TraceError { path: file_of(&session.dir), source };
        TraceWriter::open(session).map_err(failed)?.append(self).map_err(failed)
    }

    /// The record as the trace keeps it: without secrets, and with long texts cut.
    fn kept(mut self) -> Self {
        let block = self.block.iter_mut().flat_map(|block| {
            [Some(&mut block.what), block.program.as_mut(), block.grant.as_mut()]
        });
        let texts = [self.what.as_mut(), self.reason.as_mut()];
        for text in texts.into_iter().chain(block).flatten() {
            cut(text);
            if let Some(hidden) = clash_history::hide_secrets(text) {
                *text = hidden;
            }
        }
        self
    }
}

/// Cuts a text to [`MAX_TEXT_BYTES`], and marks it with `…`.
fn cut(text: &mut String) {
    if text.len() > MAX_TEXT_BYTES {
        let at = text.floor_char_boundary(MAX_TEXT_BYTES);
        text.truncate(at);
        text.push('…');
    }
}

/// The complete records of a session's trace, each with its line, oldest first. Lines that
/// are no record are skipped.
pub(crate) fn read(session: &Path) -> io::Result<Vec<(TraceRecord, String)>> {
    let mut records = Vec::new();
    for file in segments::files(session) {
        scan::each_line(&file, |line| {
            let line = String::from_utf8_lossy(line);
            if let Ok(record) = serde_json::from_str::<TraceRecord>(&line) {
                records.push((record, line.into_owned()));
            }
        })?;
    }
    Ok(records)
}

/// The records in the last 256 KiB of a session's newest segment, oldest first. Lines that
/// are cut or damaged are left out. An error if the session has no trace.
pub(crate) fn read_end(session: &Path) -> io::Result<Vec<TraceRecord>> {
    use std::io::{Read, Seek, SeekFrom};
    const END_BYTES: u64 = 256 * 1024;
    let mut file = std::fs::File::open(file_of(session))?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(END_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    // The first line may be cut.
    let lines = bytes.split(|byte| *byte == b'\n');
    Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_a_newer_version_is_unknown() {
        let line = r#"{"v":9,"time":1,"session":"s","event":"teleport","new":[1]}"#;
        let record: TraceRecord = serde_json::from_str(line).unwrap();
        assert_eq!(record.event, TraceEvent::Unknown);
        let line = r#"{"v":9,"time":1,"session":"s","event":"block","block":{"kind":"star","what":"x","by":"moon","known":"told"}}"#;
        let record: TraceRecord = serde_json::from_str(line).unwrap();
        assert_eq!(record.block.unwrap().kind, BlockKind::Other);
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let mut text = "é".repeat(MAX_TEXT_BYTES);
        cut(&mut text);
        assert!(text.len() <= MAX_TEXT_BYTES + 3 && text.ends_with('…'));
    }
}
