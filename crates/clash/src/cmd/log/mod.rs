//! `clash log`: the actions of agents, from the traces of their sessions.

mod query;
mod show;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Subcommand;
use clash_history::day_and_time;

pub(crate) use query::{ActionFilter, StoryQuery};
pub(crate) use show::find_story;

use super::unless_closed;
use crate::dirs::Dirs;
use crate::remedy::Remedy;
use crate::session::{name_of, sessions_dir};
use crate::story::{ActionStory, StoryJoiner};
use crate::trace::chain::{ChainReport, verify};
use crate::trace::{self, segments};
use crate::ui::{CommandOutput, Failure, TextTone};
use crate::{exit, say};

/// Show the actions of agents
///
/// Shows the actions of agents, one row each: its id, the time, the decision, how it ended,
/// the tool, the sandbox, the action, and the accesses that were blocked.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<LogVerb>,
    /// The session to show, or the beginning of its id; the newest if not given
    #[arg(long, value_name = "ID", conflicts_with = "all")]
    session: Option<String>,
    /// Show all sessions, oldest first
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filter: ActionFilter,
    /// Print JSON, one object a line for each action
    #[arg(long)]
    json: bool,
    /// Show the records of the trace instead of actions
    #[arg(long)]
    records: bool,
    /// Show only the last N
    #[arg(short = 'n', long, value_name = "N")]
    last: Option<usize>,
    /// Show new ones as they arrive
    #[arg(short, long, conflicts_with = "all")]
    follow: bool,
}

#[derive(Debug, Subcommand)]
enum LogVerb {
    Show(show::Args),
    Verify(VerifyArgs),
}

/// Check that no record was changed, removed or added
#[derive(Debug, clap::Args)]
struct VerifyArgs {
    /// The session to check; all if not given
    session: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Prints the chosen actions, or runs a verb below `log`. Without an id and a filter,
    /// these are the actions of the current session; with a filter or `--all`, of every
    /// session.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        match self.verb {
            Some(LogVerb::Show(args)) => return args.run(out),
            Some(LogVerb::Verify(args)) => return args.run(out),
            None => {}
        }
        let dirs = Dirs::from_env()?;
        let everywhere = self.all || (self.session.is_none() && self.filter.is_set());
        let chosen = chosen(&dirs, self.session.as_deref(), everywhere)?;
        unless_closed(self.show(out, &chosen))?;
        Ok(exit::OK)
    }

    /// Prints the actions or the records of these sessions, and then, with `--follow`, those
    /// that the newest session adds.
    fn show(&self, out: &mut CommandOutput, sessions: &[PathBuf]) -> io::Result<()> {
        if self.records {
            self.show_records(out, sessions)?;
        } else {
            let mut query = StoryQuery { filter: &self.filter, last: self.last, parsed: 0 };
            query.run(sessions, &mut |story| self.row(out, story))?;
        }
        match sessions.last() {
            Some(newest) if self.follow => self.follow(out, newest),
            _ => Ok(()),
        }
    }

    /// Prints the records as they are in the trace, with `-n` the last ones.
    fn show_records(&self, out: &mut CommandOutput, sessions: &[PathBuf]) -> io::Result<()> {
        let mut records = Vec::new();
        for session in sessions {
            records.extend(trace::read(session)?);
        }
        let skip = self.last.map_or(0, |last| records.len().saturating_sub(last));
        records.iter().skip(skip).try_for_each(|(_, line)| out.verbatim(line))
    }

    /// Shows new records or actions five times a second, until the reader closes the pipe.
    /// Shows nothing of before. An action appears again when more is known about it.
    fn follow(&self, out: &mut CommandOutput, session: &Path) -> io::Result<()> {
        let mut joiner = StoryJoiner::default();
        let mut seen = 0;
        let mut shown: Vec<(u64, usize)> = Vec::new();
        let mut is_first = true;
        loop {
            let records = trace::read(session)?;
            for (record, line) in records.into_iter().skip(seen) {
                seen += 1;
                if self.records && !is_first {
                    out.verbatim(line)?;
                }
                joiner.add(record);
            }
            let matching = joiner.stories().filter(|story| self.filter.accepts(story));
            for story in matching {
                let state = (story.first, story.records.len());
                if !shown.contains(&state) {
                    shown.retain(|(first, _)| *first != story.first);
                    shown.push(state);
                    if !is_first && !self.records {
                        self.row(out, story)?;
                    }
                }
            }
            is_first = false;
            if out.is_closed() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn row(&self, out: &mut CommandOutput, story: &ActionStory) -> io::Result<()> {
        if self.json {
            return out.verbatim(story.as_json().to_string());
        }
        let text = row(out, story);
        out.line(text)
    }
}

/// One action in one line: id, time, effect, end, tool, sandbox and text, then what was
/// blocked or the rule.
pub(crate) fn row(out: &CommandOutput, story: &ActionStory) -> String {
    let tone = match story.effect.as_str() {
        _ if story.is_blocked() => TextTone::Bad,
        "ask" => TextTone::Care,
        "allow" => TextTone::Good,
        _ => TextTone::Faint,
    };
    let or = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let effect = match story.effect.as_str() {
        "" => story.records.first().map_or("-", |record| record.event.word()),
        effect => effect,
    };
    let word = out.tone(tone, &format!("{effect:<6}"));
    let ended = story.outcome.word();
    let ended_tone = if story.outcome.is_failure() { TextTone::Bad } else { TextTone::Faint };
    let ended = out.tone(ended_tone, &format!("{ended:<8}"));
    let mut line = format!(
        "{:<13} {}  {word} {ended} {:<10} {:<12} {}",
        story.id(),
        day_and_time(story.time),
        or(&story.tool),
        or(&story.sandbox),
        say::brief(&story.what),
    );
    let mut notes: Vec<String> = story.blocked_line().into_iter().collect();
    if story.effect == "deny" {
        notes.push(say::brief(&story.reason));
    }
    notes.extend(story.alarms.first().map(|alarm| say::brief(alarm)));
    if !story.connections.is_empty() {
        notes.push(format!("{} connections", story.connections.len()));
    }
    if !notes.is_empty() {
        line.push_str(&out.tone(TextTone::Bad, &format!("  [{}]", notes.join("; "))));
    } else if !story.rule.is_empty() {
        line.push_str(&out.tone(TextTone::Faint, &format!("  ({})", story.rule)));
    }
    line.trim_end().to_owned()
}

/// The directories of the chosen sessions, oldest first: one by its id, all, or the newest.
/// Fails if there is none.
fn chosen(dirs: &Dirs, session: Option<&str>, all: bool) -> Result<Vec<PathBuf>, Failure> {
    let sessions = traced_sessions(dirs)?;
    if let Some(id) = session {
        return find_session(&sessions, id).map(|found| vec![found]);
    }
    let Some(newest) = sessions.last().cloned() else {
        return Err(Failure::new("no agent has run with clash yet").hint(format!(
            "`{}` puts clash between an agent and its actions",
            Remedy::Install { agent: clash_agents::DEFAULT_AGENT.to_owned() }
        )));
    };
    Ok(if all { sessions } else { vec![newest] })
}

/// The session with this id, or the one whose id begins so. Fails if there is none, or if
/// several begin so.
pub(crate) fn find_session(sessions: &[PathBuf], id: &str) -> Result<PathBuf, Failure> {
    let escaped = name_of(id);
    let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let is = |path: &&PathBuf| name(path).is_some_and(|name| name == id || name == escaped);
    if let Some(found) = sessions.iter().find(is) {
        return Ok(found.clone());
    }
    let begins = |path: &&PathBuf| !id.is_empty() && name(path).is_some_and(|n| n.starts_with(id));
    let found: Vec<&PathBuf> = sessions.iter().filter(begins).collect();
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(Failure::new(format!("there is no session `{id}`"))
            .hint(format!("`{}` shows every session", Remedy::SessionList))),
        _ => Err(Failure::new(format!("several sessions begin with `{id}`"))
            .hint(format!("`{}` shows every session", Remedy::SessionList))),
    }
}

/// The directories of all sessions with a trace, sorted by its last change, oldest first.
pub(crate) fn traced_sessions(dirs: &Dirs) -> Result<Vec<PathBuf>, Failure> {
    let mut sessions: Vec<(SystemTime, PathBuf)> = Vec::new();
    let entries = match fs::read_dir(sessions_dir(dirs)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    for entry in entries {
        let session = entry?.path();
        let file = trace::file_of(&session);
        if let Ok(changed) = fs::metadata(&file).and_then(|meta| meta.modified()) {
            sessions.push((changed, session));
        }
    }
    sessions.sort();
    Ok(sessions.into_iter().map(|(_, session)| session).collect())
}

impl VerifyArgs {
    /// Checks the chain of each trace, or of the session named, and prints a line for each.
    /// Status 1 if one is broken; a trace that cannot be read is an error. Changes nothing.
    fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let dirs = Dirs::from_env()?;
        let mut sessions = traces_or_heads(&dirs)?;
        if let Some(id) = &self.session {
            sessions = vec![find_session(&sessions, id)?];
        }
        let mut is_whole = true;
        for session in sessions {
            let name = session.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let report = verify(&session).map_err(|error| {
                Failure::new(format!("the trace of session {name} cannot be checked: {error}"))
            })?;
            is_whole &= matches!(report, ChainReport::Whole { .. });
            let shown = if self.json {
                verified_json(&name, &report)
            } else {
                verified(out, &name, &report)
            };
            unless_closed(if self.json { out.verbatim(shown) } else { out.line(shown) })?;
        }
        Ok(if is_whole { exit::OK } else { exit::FAILED })
    }
}

/// The result of a check in one line.
fn verified(out: &CommandOutput, name: &str, report: &ChainReport) -> String {
    match report {
        ChainReport::Whole { records, dropped, others } => {
            let word = out.tone(TextTone::Good, "whole");
            let mut text = format!("{word}   {name}: {records} records, unchanged and in order");
            if *dropped > 0 {
                text.push_str(&format!("; clash has removed the oldest {dropped}"));
            }
            if *others > 0 {
                text.push_str(&format!("; {others} lines are torn or of an older version"));
            }
            text
        }
        ChainReport::Broken { after, why } => {
            let word = out.tone(TextTone::Bad, "broken");
            format!("{word}  {name}: after record {after}: {why}")
        }
    }
}

/// The result of a check as JSON, on one line.
fn verified_json(name: &str, report: &ChainReport) -> String {
    let value = match report {
        ChainReport::Whole { records, dropped, others } => serde_json::json!({
            "session": name, "whole": true, "records": records, "dropped": dropped,
            "other_lines": others,
        }),
        ChainReport::Broken { after, why } => {
            serde_json::json!({"session": name, "whole": false, "after": after, "why": why})
        }
    };
    value.to_string()
}

/// The sessions with a trace or a head: a removed trace leaves its head.
fn traces_or_heads(dirs: &Dirs) -> Result<Vec<PathBuf>, Failure> {
    let mut sessions = Vec::new();
    for entry in fs::read_dir(sessions_dir(dirs)).into_iter().flatten().flatten() {
        let session = entry.path();
        if !segments::files(&session).is_empty() || session.join("trace.head").exists() {
            sessions.push(session);
        }
    }
    sessions.sort();
    Ok(sessions)
}
