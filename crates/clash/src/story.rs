//! The story of an action: all records of the trace about one tool call, joined.
//!
//! The agent's id of the call joins them. A client without such ids tells only the tool at
//! the end of a call; that record joins the last action of the same tool that has no end yet.

use std::collections::VecDeque;

use serde::Serialize;
use serde_json::{Value, json};

use crate::trace::{BlockEvidence, TraceEvent, TraceRecord};

/// The records of one action that a story keeps; a command can try for ever.
const MAX_KEPT_RECORDS: usize = 1000;

/// One action with everything that happened to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActionStory {
    /// The number of its first record.
    pub(crate) first: u64,
    pub(crate) time: u64,
    pub(crate) session: String,
    pub(crate) agent: String,
    pub(crate) call: String,
    pub(crate) tool: String,
    pub(crate) what: String,
    pub(crate) effect: String,
    pub(crate) sandbox: String,
    pub(crate) rule: String,
    pub(crate) reason: String,
    pub(crate) outcome: Outcome,
    pub(crate) duration_ms: Option<u64>,
    pub(crate) blocks: Vec<TraceRecord>,
    pub(crate) connections: Vec<TraceRecord>,
    pub(crate) alarms: Vec<String>,
    pub(crate) records: Vec<TraceRecord>,
    pid: Option<u32>,
    has_exit: bool,
    has_decision: bool,
}

/// How the action ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) enum Outcome {
    /// The trace does not say: it still runs, it was not run, or the client says nothing.
    #[default]
    Unknown,
    Exit(i32),
    Signal(i32),
    /// The agent reports success, without a status.
    Done,
    /// The agent reports an error, without a status.
    Failed(String),
}

impl Outcome {
    pub(crate) fn word(&self) -> String {
        match self {
            Self::Unknown => String::new(),
            Self::Exit(0) | Self::Done => "ok".to_owned(),
            Self::Exit(status) => format!("exit {status}"),
            Self::Signal(signal) => format!("signal {signal}"),
            Self::Failed(_) => "failed".to_owned(),
        }
    }

    pub(crate) fn is_failure(&self) -> bool {
        !matches!(self, Self::Unknown | Self::Done | Self::Exit(0))
    }
}

impl ActionStory {
    /// A story with only the place and time of its first record.
    fn begin(record: &TraceRecord) -> Self {
        Self {
            first: record.n,
            time: record.time,
            session: record.session.clone(),
            call: record.call.clone().unwrap_or_default(),
            pid: record.pid,
            ..Self::default()
        }
    }

    /// The id by which `clash log show` finds the action.
    pub(crate) fn id(&self) -> String {
        let short: String = self.session.chars().take(8).collect();
        format!("{short}.{}", self.first)
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.effect == "deny" || self.real_blocks().next().is_some() || !self.alarms.is_empty()
    }

    /// The blocks without those that were foreseen and did not keep the command from success.
    fn real_blocks(&self) -> impl Iterator<Item = &TraceRecord> {
        let is_fine = matches!(self.outcome, Outcome::Exit(0) | Outcome::Done);
        let is_foreseen = |record: &&TraceRecord| {
            record.block.as_ref().is_some_and(|block| block.known == BlockEvidence::Foreseen)
        };
        self.blocks.iter().filter(move |record| !is_fine || !is_foreseen(record))
    }

    /// Adds a record of the same action. The first decision counts, unless a later one
    /// denies. The end counts only of the process that the first launch names, not of
    /// commands behind doors. A block of the same path counts once.
    fn add(&mut self, record: TraceRecord) {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        if let Some(agent) = &record.agent {
            self.agent.clone_from(agent);
        }
        match record.event {
            TraceEvent::Decision => {
                // The launcher decides again. Its refusal is stricter; otherwise the first
                // record has the reason that the user saw.
                if !self.has_decision || record.effect.as_deref() == Some("deny") {
                    self.effect = text(&record.effect);
                    self.reason = text(&record.reason);
                    self.rule = text(&record.rule);
                }
                if !self.has_decision {
                    self.what = text(&record.what);
                    self.tool = text(&record.tool);
                    self.sandbox = text(&record.sandbox);
                }
                self.has_decision = true;
            }
            TraceEvent::Launch | TraceEvent::Door => {
                if self.what.is_empty() {
                    self.what = text(&record.what);
                }
                if self.sandbox.is_empty() {
                    self.sandbox = text(&record.sandbox);
                }
            }
            TraceEvent::End if self.pid.is_none() || self.pid == record.pid => {
                self.outcome = end_of(&record);
            }
            TraceEvent::Exit => self.exit(&record),
            TraceEvent::Block => {
                let is_known = self.blocks.iter().any(|known| {
                    let same = |a: &TraceRecord| a.block.as_ref().map(|it| it.what.clone());
                    same(known) == same(&record)
                });
                if !is_known {
                    self.blocks.push(record.clone());
                }
            }
            TraceEvent::Connection => self.connections.push(record.clone()),
            TraceEvent::Alarm => self.alarms.push(text(&record.reason)),
            _ => {
                if self.what.is_empty() {
                    self.what = text(&record.what);
                }
                if self.effect.is_empty() {
                    self.effect = record.effect.clone().unwrap_or_default();
                }
            }
        }
        // The first launch is that of the action itself; later ones are behind doors.
        if record.event == TraceEvent::Launch && self.pid.is_none() {
            self.pid = record.pid;
        }
        if self.records.len() < MAX_KEPT_RECORDS {
            self.records.push(record);
        }
    }

    /// Notes the end that the agent reports. A status or signal that the launcher saw counts
    /// more.
    fn exit(&mut self, record: &TraceRecord) {
        self.has_exit = true;
        self.duration_ms = record.duration_ms.or(self.duration_ms);
        if matches!(self.outcome, Outcome::Exit(_) | Outcome::Signal(_)) {
            return;
        }
        self.outcome = match (record.status, record.ok) {
            (Some(status), _) => Outcome::Exit(status),
            (None, Some(true)) => Outcome::Done,
            (None, _) => Outcome::Failed(record.reason.clone().unwrap_or_default()),
        };
    }

    /// The blocks in one line, for example `read ~/.ssh/id_ed25519`.
    pub(crate) fn blocked_line(&self) -> Option<String> {
        let blocks: Vec<&TraceRecord> = self.real_blocks().collect();
        let (first, more) = blocks.split_first()?;
        let block = first.block.as_ref()?;
        let needs = block.needs.as_deref().map(|needs| format!("{needs} ")).unwrap_or_default();
        let mut line = format!("blocked: {needs}{}", block.what);
        if block.known == BlockEvidence::Inferred {
            line.push_str(" (inferred)");
        }
        if !more.is_empty() {
            line.push_str(&format!(" and {} more", more.len()));
        }
        Some(line)
    }

    /// Why the action was refused, as a whole or in part.
    pub(crate) fn blocked_reason(&self) -> String {
        let of_block = || self.real_blocks().next().and_then(|record| record.reason.clone());
        if self.effect == "deny" {
            return self.reason.clone();
        }
        of_block().or_else(|| self.alarms.first().cloned()).unwrap_or_default()
    }

    /// The fields of `--json` for one action, without its records.
    pub(crate) fn as_json(&self) -> Value {
        json!({
            "id": self.id(), "session": self.session, "n": self.first, "time": self.time,
            "agent": self.agent, "call": self.call, "tool": self.tool, "what": self.what,
            "effect": self.effect, "sandbox": self.sandbox, "rule": self.rule,
            "reason": self.reason,
            "status": match self.outcome { Outcome::Exit(status) => Some(status), _ => None },
            "signal": match self.outcome { Outcome::Signal(signal) => Some(signal), _ => None },
            "outcome": self.outcome.word(),
            "duration_ms": self.duration_ms, "blocks": self.blocks,
            "connections": self.connections, "alarms": self.alarms,
        })
    }
}

/// The outcome in a record of the launcher.
fn end_of(record: &TraceRecord) -> Outcome {
    match (record.status, record.signal) {
        (Some(status), _) => Outcome::Exit(status),
        (None, Some(signal)) => Outcome::Signal(signal),
        (None, None) => Outcome::Failed(record.reason.clone().unwrap_or_default()),
    }
}

/// Joins the records of one session. It holds a bounded number of stories: an action that
/// began long ago counts as complete.
#[derive(Debug, Default)]
pub(crate) struct StoryJoiner {
    open: VecDeque<ActionStory>,
}

const MAX_OPEN_STORIES: usize = 512;

impl StoryJoiner {
    /// Adds a record. Returns a story that is complete, if one has become so.
    pub(crate) fn add(&mut self, record: TraceRecord) -> Option<ActionStory> {
        let at = self.place_of(&record);
        match at.and_then(|at| self.open.get_mut(at)) {
            Some(story) => story.add(record),
            None => {
                let mut story = ActionStory::begin(&record);
                story.add(record);
                self.open.push_back(story);
            }
        }
        (self.open.len() > MAX_OPEN_STORIES).then(|| self.open.pop_front())?
    }

    /// All stories that are left, in the order of their beginning.
    pub(crate) fn finish(self) -> VecDeque<ActionStory> {
        self.open
    }

    pub(crate) fn stories(&self) -> impl DoubleEndedIterator<Item = &ActionStory> {
        self.open.iter()
    }

    /// The open story to which a record belongs: by its call, else by its process, else (an
    /// exit) the last one with the same tool. `None` if it begins a story.
    fn place_of(&self, record: &TraceRecord) -> Option<usize> {
        let call = record.call.as_deref().filter(|call| !call.is_empty());
        let rfind = |is: &dyn Fn(&ActionStory) -> bool| self.open.iter().rposition(is);
        // A client may give two actions the same id.
        let is_other = |story: &ActionStory| {
            let is_new = record.event == TraceEvent::Decision && record.tool.is_some();
            is_new && story.has_decision && Some(story.what.as_str()) != record.what.as_deref()
        };
        if let Some(call) = call {
            return rfind(&|story| story.call == call)
                .filter(|at| !self.open.get(*at).is_some_and(is_other));
        }
        match record.event {
            TraceEvent::Exit => rfind(&|story| {
                !story.has_exit && Some(story.tool.as_str()) == record.tool.as_deref()
            }),
            TraceEvent::Block | TraceEvent::End | TraceEvent::Connection => {
                rfind(&|story| record.pid.is_some() && story.pid == record.pid)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(event: TraceEvent, call: &str) -> TraceRecord {
        let call = Some(call.to_owned()).filter(|call| !call.is_empty());
        TraceRecord { call, tool: Some("Bash".into()), ..TraceRecord::of_event(event) }
    }

    #[test]
    fn an_action_is_one_story_with_its_real_exit_status() {
        let mut joiner = StoryJoiner::default();
        let decision = TraceRecord {
            effect: Some("allow".into()),
            what: Some("make".into()),
            ..record(TraceEvent::Decision, "a")
        };
        let launch = |pid| TraceRecord { pid: Some(pid), ..record(TraceEvent::Launch, "a") };
        let end = |pid, status| TraceRecord {
            pid: Some(pid),
            status: Some(status),
            ..record(TraceEvent::End, "a")
        };
        let exit = TraceRecord { ok: Some(true), ..record(TraceEvent::Exit, "a") };
        // The second launch is behind a door and ends before the first.
        for record in [decision, launch(1), launch(2), end(2, 7), end(1, 3), exit] {
            assert!(joiner.add(record).is_none());
        }
        let stories = joiner.finish();
        assert_eq!(stories.len(), 1);
        assert_eq!(stories[0].outcome, Outcome::Exit(3));
        assert_eq!((stories[0].what.as_str(), stories[0].effect.as_str()), ("make", "allow"));
    }

    #[test]
    fn an_end_without_an_id_joins_the_last_open_action() {
        let mut joiner = StoryJoiner::default();
        joiner.add(record(TraceEvent::Decision, "a"));
        joiner.add(record(TraceEvent::Decision, "b"));
        joiner.add(TraceRecord { ok: Some(false), ..record(TraceEvent::Exit, "") });
        joiner.add(TraceRecord { ok: Some(true), ..record(TraceEvent::Exit, "") });
        let words: Vec<String> = joiner.finish().iter().map(|it| it.outcome.word()).collect();
        assert_eq!(words, ["ok", "failed"]);
    }
}
