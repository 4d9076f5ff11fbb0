//! `clash session`: the sessions of agents.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Subcommand;
use clash_history::day_and_time;
use serde_json::{Value, json};

use super::log::{ActionFilter, StoryQuery, find_session, row, traced_sessions};
use super::unless_closed;
use crate::dirs::Dirs;
use crate::session::Session;
use crate::ui::{CommandOutput, Failure, TextTone};

/// List the sessions of agents, or show one
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: SessionVerb,
}

#[derive(Debug, Subcommand)]
enum SessionVerb {
    /// List the sessions, the newest last
    List {
        /// Print JSON, one object a line
        #[arg(long)]
        json: bool,
    },
    /// Show one session: its agent, project, numbers and refusals
    Show {
        /// The id of the session or its beginning; the newest if not given
        id: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The numbers of one session.
#[derive(Debug, Default)]
struct SessionSummary {
    name: String,
    agent: String,
    project: String,
    first: u64,
    last: u64,
    actions: u64,
    effects: BTreeMap<String, u64>,
    failed: u64,
    blocked: u64,
    connections: u64,
}

impl SessionSummary {
    /// Reads a whole trace and counts its actions.
    fn of(dirs: &Dirs, dir: &Path) -> Result<Self, Failure> {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut this = Self { name: name.clone(), ..Self::default() };
        if let Ok(session) = Session::open_named(dirs, &name) {
            this.agent.clone_from(&session.agent);
            this.project = session.project.display().to_string();
        }
        let filter = ActionFilter::default();
        let mut query = StoryQuery { filter: &filter, last: None, parsed: 0 };
        query.run(&[dir.to_path_buf()], &mut |story| {
            if this.first == 0 {
                this.first = story.time;
            }
            this.last = this.last.max(story.records.last().map_or(story.time, |it| it.time));
            if story.tool.is_empty() {
                return Ok(());
            }
            this.actions += 1;
            *this.effects.entry(story.effect.clone()).or_default() += 1;
            this.failed += u64::from(story.outcome.is_failure());
            this.blocked += u64::from(story.is_blocked());
            this.connections += story.connections.len() as u64;
            Ok(())
        })?;
        Ok(this)
    }

    fn as_json(&self) -> Value {
        json!({
            "session": self.name, "agent": self.agent, "project": self.project,
            "first": self.first, "last": self.last, "actions": self.actions,
            "effects": self.effects, "failed": self.failed, "blocked": self.blocked,
            "connections": self.connections,
        })
    }
}

impl Args {
    /// Lists the sessions with a trace, oldest first, or shows one: by id, otherwise the
    /// newest. Reads each trace as a whole; changes nothing.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let dirs = Dirs::from_env()?;
        let sessions = traced_sessions(&dirs)?;
        match self.verb {
            SessionVerb::List { json } => {
                for dir in &sessions {
                    let summary = SessionSummary::of(&dirs, dir)?;
                    unless_closed(list_line(out, &summary, json))?;
                }
                if sessions.is_empty() && !json {
                    unless_closed(out.line("no agent has run with clash yet"))?;
                }
                Ok(crate::exit::OK)
            }
            SessionVerb::Show { id, json } => {
                let dir = match (&id, sessions.last()) {
                    (Some(id), _) => find_session(&sessions, id)?,
                    (None, Some(newest)) => newest.clone(),
                    (None, None) => return Err(Failure::new("no agent has run with clash yet")),
                };
                let summary = SessionSummary::of(&dirs, &dir)?;
                if json {
                    return unless_closed(out.json(&summary.as_json()));
                }
                unless_closed(show(out, &summary, &dir))
            }
        }
    }
}

/// Prints a session in one line.
fn list_line(out: &mut CommandOutput, summary: &SessionSummary, json: bool) -> std::io::Result<()> {
    if json {
        return out.verbatim(summary.as_json().to_string());
    }
    let SessionSummary { name, agent, project, last, actions, blocked, .. } = summary;
    out.line(format!(
        "{}  {name}  {agent:<10} {actions:>5} actions, {blocked} blocked  {project}",
        day_and_time(*last)
    ))
}

/// Prints a session, and its last 20 blocked actions.
fn show(out: &mut CommandOutput, summary: &SessionSummary, dir: &Path) -> std::io::Result<()> {
    let effects: Vec<String> =
        summary.effects.iter().map(|(effect, count)| format!("{count} {effect}")).collect();
    let lines = [
        ("session", summary.name.clone()),
        ("agent", summary.agent.clone()),
        ("project", summary.project.clone()),
        ("began", day_and_time(summary.first)),
        ("last", day_and_time(summary.last)),
        ("actions", format!("{} ({})", summary.actions, effects.join(", "))),
        ("failed", summary.failed.to_string()),
        ("blocked", summary.blocked.to_string()),
    ];
    for (name, text) in lines {
        let name = out.tone(TextTone::Strong, &format!("{name:<9}"));
        out.line(format!("{name} {text}"))?;
    }
    let filter = ActionFilter::blocked();
    let mut query = StoryQuery { filter: &filter, last: Some(20), parsed: 0 };
    query.run(&[dir.to_path_buf()], &mut |story| {
        let text = row(out, story);
        out.line(text)
    })
}
