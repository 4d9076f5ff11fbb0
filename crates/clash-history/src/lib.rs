//! What agents did, read from the histories they keep themselves and from
//! clash's own traces, and what a policy can learn from it.
//!
//! Histories are hostile input: they hold whatever a model wrote and whatever its
//! commands printed. Nothing of one is held in memory but the calls that wait for
//! their result, a line has a longest length, and what is not understood is
//! counted and passed over, never guessed.
//!
//! Evidence selects among rules that clash would stand behind anyway; it never
//! makes one. Programs, subcommands and places that may appear in a policy are in
//! the tables of [`known`]; of everything else only the number is told.
#![forbid(unsafe_code)]

mod claude;
mod codex;
pub mod evidence;
mod find;
mod gemini;
mod join;
pub mod known;
mod lines;
mod opencode;
mod own;
pub mod policy;
pub mod secret;
mod sqlite;
mod time;
pub mod touched;

use std::ops::ControlFlow;
use std::path::PathBuf;

use serde_json::{Map, Value};

pub use find::{
    HistoryError, HistoryFile, HistoryKind, HistoryRoots, all_histories, histories_below,
    history_at, latest_history,
};
pub use time::{day, parse as parse_time};

/// One call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenCall {
    /// Milliseconds since 1970.
    pub when: Option<u64>,
    /// As policies name it.
    pub agent: &'static str,
    /// What tells it from every other call.
    pub call: CallId,
    pub cwd: Option<PathBuf>,
    /// The tool as the agent calls it.
    pub tool: String,
    pub input: Map<String, Value>,
    pub outcome: CallOutcome,
}

/// The session of a call, and its id there; either may not be known. clash and an
/// agent may both have recorded the same one, and a session that was resumed is
/// often written down again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallId {
    pub session: String,
    pub id: String,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    Ran,
    Failed,
    /// By a rule or by the user.
    Refused,
    /// The history does not say.
    Unknown,
}

/// What reading came across.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadTally {
    pub files: u64,
    pub calls: u64,
    /// Lines that are no JSON: torn, or cut off.
    pub broken: u64,
    /// Lines too long to be looked at.
    pub too_long: u64,
    /// Of a schema that is not known.
    pub foreign: u64,
    /// Files that could not be read to their end.
    pub unreadable: u64,
}

impl ReadTally {
    pub fn add(&mut self, other: Self) {
        self.files += other.files;
        self.calls += other.calls;
        self.broken += other.broken;
        self.too_long += other.too_long;
        self.foreign += other.foreign;
        self.unreadable += other.unreadable;
    }

    /// Whether everything was understood.
    pub fn is_complete(&self) -> bool {
        self.broken + self.too_long + self.foreign + self.unreadable == 0
    }
}

/// Takes what is read, one call at a time; may end the reading.
pub type CallSink<'a> = dyn FnMut(SeenCall) -> ControlFlow<()> + 'a;

/// Reads histories one after the other.
pub fn read(histories: &[HistoryFile], each: &mut CallSink<'_>) -> ReadTally {
    let mut tally = ReadTally::default();
    for history in histories {
        let mut found = ReadTally { files: 1, ..ReadTally::default() };
        let mut counted = |seen: SeenCall| {
            found.calls += 1;
            each(seen)
        };
        let (result, rest) = history.read(&mut counted);
        found.add(rest);
        match result {
            Ok(ControlFlow::Continue(())) => tally.add(found),
            Ok(ControlFlow::Break(())) => {
                tally.add(found);
                break;
            }
            Err(_) => tally.add(ReadTally { unreadable: found.unreadable + 1, ..found }),
        }
    }
    tally
}
