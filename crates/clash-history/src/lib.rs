//! Reads the actions of agents from the histories that they keep and from clash's own
//! traces, and selects rules from them.
//!
//! Histories are hostile input: a model wrote their calls, and its commands printed their
//! results. So a reader keeps only the calls that wait for their result, limits the length
//! of a line, and counts and skips records that it does not understand.
//!
//! Evidence only selects among fixed rules; it never makes a new one. The tables of
//! [`known`] hold every program, subcommand and place that a learned policy may name. Of
//! all others, clash reports only the number.
#![forbid(unsafe_code)]

mod claude;
mod codex;
pub mod evidence;
mod find;
mod gemini;
mod hide;
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
pub use hide::hide_secrets;
pub use time::{day, day_and_time, parse as parse_time};

/// One call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenCall {
    /// Milliseconds since 1970.
    pub when: Option<u64>,
    /// The agent's name in policies.
    pub agent: &'static str,
    /// Identifies the call.
    pub call: CallId,
    pub cwd: Option<PathBuf>,
    /// The agent's own name of the tool.
    pub tool: String,
    pub input: Map<String, Value>,
    pub outcome: CallOutcome,
}

/// The session of a call, and its id there. Either may be empty if the history lacks it.
/// clash and the agent may both record the same call, and an agent may write a resumed
/// session again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallId {
    pub session: String,
    pub id: String,
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    Ran,
    Failed,
    /// A rule or the user refused it.
    Refused,
    /// The history does not say.
    Unknown,
}

/// Counts of the records that were read or skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadTally {
    pub files: u64,
    pub calls: u64,
    /// Lines that are not JSON, for example cut off in the middle.
    pub broken: u64,
    /// Lines that are too long to be read.
    pub too_long: u64,
    /// Records of an unknown schema.
    pub foreign: u64,
    /// Files that could not be read to their end.
    pub unreadable: u64,
}

impl ReadTally {
    /// Adds the counts of another file.
    pub fn add(&mut self, other: Self) {
        self.files += other.files;
        self.calls += other.calls;
        self.broken += other.broken;
        self.too_long += other.too_long;
        self.foreign += other.foreign;
        self.unreadable += other.unreadable;
    }

    /// True if no record was skipped.
    pub fn is_complete(&self) -> bool {
        self.broken + self.too_long + self.foreign + self.unreadable == 0
    }
}

/// Receives the calls one by one, and may end the reading.
pub type CallSink<'a> = dyn FnMut(SeenCall) -> ControlFlow<()> + 'a;

/// Reads histories one after the other, until `each` breaks. A call of clash's own trace
/// has the agent `unknown` unless `agents` has its agent. A history that cannot be read is
/// counted and skipped.
pub fn read(
    histories: &[HistoryFile],
    agents: &[&'static str],
    each: &mut CallSink<'_>,
) -> ReadTally {
    let mut tally = ReadTally::default();
    for history in histories {
        let mut found = ReadTally { files: 1, ..ReadTally::default() };
        let mut counted = |seen: SeenCall| {
            found.calls += 1;
            each(seen)
        };
        let (result, rest) = history.read(agents, &mut counted);
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
