//! `clash log show`: the whole story of one action.

use std::path::PathBuf;

use clash_history::day_and_time;

use super::{find_session, traced_sessions};
use crate::cmd::unless_closed;
use crate::dirs::Dirs;
use crate::remedy::Remedy;
use crate::say::one_line;
use crate::story::{ActionStory, StoryJoiner};
use crate::trace::{self, BlockEvidence, TraceEvent, TraceRecord};
use crate::ui::{CommandOutput, Failure, TextTone};

/// Tell the whole story of one action
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The action, as `clash log` prints its id, for example `3f2a9c10.17`
    id: String,
    /// Print JSON: the action and its records
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Prints one action with all its records. Reads the traces of every session to find it.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let dirs = Dirs::from_env()?;
        let story = find_story(&traced_sessions(&dirs)?, &self.id)?;
        if self.json {
            let mut value = story.as_json();
            if let Some(object) = value.as_object_mut() {
                let records = serde_json::to_value(&story.records)?;
                object.insert("records".to_owned(), records);
            }
            return unless_closed(out.json(&value));
        }
        unless_closed(tell(out, &story))
    }
}

/// The action with an id as `clash log` prints it.
pub(crate) fn find_story(sessions: &[PathBuf], id: &str) -> Result<ActionStory, Failure> {
    let unknown = || {
        Failure::new(format!("there is no action `{id}`")).hint(format!(
            "`{}` prints the id of each action at the beginning of its row",
            Remedy::Log
        ))
    };
    let (session, number) = id.rsplit_once('.').ok_or_else(unknown)?;
    let number: u64 = number.parse().map_err(|_| unknown())?;
    let session = find_session(sessions, session)?;
    let mut joiner = StoryJoiner::default();
    let is = |story: &ActionStory| {
        story.first == number || story.records.iter().any(|record| record.n == number)
    };
    for (record, _) in trace::read(&session)? {
        if let Some(story) = joiner.add(record).filter(is) {
            return Ok(story);
        }
    }
    joiner.finish().into_iter().find(is).ok_or_else(unknown)
}

/// Prints everything known about one action, and its records.
fn tell(out: &mut CommandOutput, story: &ActionStory) -> std::io::Result<()> {
    let mut line = |name: &str, text: &str| {
        let name = out.tone(TextTone::Strong, &format!("{name:<9}"));
        if text.is_empty() { Ok(()) } else { out.line(format!("{name} {text}").trim_end()) }
    };
    line("action", &story.id())?;
    line("time", &day_and_time(story.time))?;
    line("session", &story.session)?;
    line("agent", &story.agent)?;
    line("tool", &story.tool)?;
    line("what", &one_line(&story.what))?;
    line("decision", &story.effect)?;
    line("because", &one_line(&story.reason))?;
    line("rule", &story.rule)?;
    line("sandbox", &story.sandbox)?;
    line("ended", &ended(story))?;
    for record in &story.blocks {
        line("blocked", &one_line(record.reason.as_deref().unwrap_or_default()))?;
        if let Some(block) = &record.block {
            let by = serde_word(&block.by);
            let known = match block.known {
                BlockEvidence::Seen => format!("the {by} refused it"),
                BlockEvidence::Foreseen => "its words show it".to_owned(),
                BlockEvidence::Inferred => "inferred from the command's output".to_owned(),
                BlockEvidence::Other => "written by a newer version".to_owned(),
            };
            line("", &format!("  known: {known}"))?;
            if let Some(grant) = &block.grant {
                line("", &format!("  to allow it: {grant}"))?;
            }
        }
    }
    for record in &story.connections {
        if let Some(connection) = &record.connection {
            let effect = record.effect.as_deref().unwrap_or("allow");
            line("network", &format!("{effect} {}:{}", connection.host, connection.port))?;
        }
    }
    for alarm in &story.alarms {
        line("alarm", &one_line(alarm))?;
    }
    line("records", &story.records.len().to_string())?;
    for record in &story.records {
        let text = step(record);
        out.line(format!("  {:>6}  {}  {text}", record.n, day_and_time(record.time)))?;
    }
    Ok(())
}

/// The end of the action and its duration; empty if unknown.
fn ended(story: &ActionStory) -> String {
    let mut text = story.outcome.word();
    if let Some(duration) = story.duration_ms {
        text.push_str(&format!(" after {duration} ms"));
    }
    text.trim().to_owned()
}

/// A word of the format, for example `monitor`.
fn serde_word(value: &impl serde::Serialize) -> String {
    let word = serde_json::to_value(value).ok();
    word.and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

/// One record of an action in one line.
fn step(record: &TraceRecord) -> String {
    let text = |field: &Option<String>| field.as_deref().map(one_line).unwrap_or_default();
    let rest = match record.event {
        TraceEvent::Decision => format!("{} {}", text(&record.effect), text(&record.reason)),
        TraceEvent::Launch | TraceEvent::Door => {
            format!("{} in sandbox {}", text(&record.what), text(&record.sandbox))
        }
        TraceEvent::End => match (record.status, record.signal) {
            (Some(status), _) => format!("exit status {status}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => text(&record.reason),
        },
        TraceEvent::Exit if record.ok == Some(true) => "the agent reports success".to_owned(),
        TraceEvent::Exit => format!("the agent reports: {}", text(&record.reason)),
        _ => {
            let said = text(&record.reason);
            if said.is_empty() { text(&record.what) } else { said }
        }
    };
    format!("{:<10} {rest}", record.event.word()).trim_end().to_owned()
}
