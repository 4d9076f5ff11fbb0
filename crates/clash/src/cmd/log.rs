//! `clash log`: the actions of agents, from the traces of their sessions.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clash_history::day_and_time;

use super::unless_closed;
use crate::dirs::Dirs;
use crate::session::{name_of, sessions_dir};
use crate::trace::{self, TraceEvent, TraceRecord};
use crate::ui::{CommandOutput, Failure, TextTone};
use crate::{exit, say};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The session to show; the newest if not given
    #[arg(long, value_name = "ID", conflicts_with = "all")]
    session: Option<String>,
    /// Show all sessions, oldest first
    #[arg(long)]
    all: bool,
    /// Print the records as JSON, one object a line
    #[arg(long)]
    json: bool,
    /// Show only the last N records
    #[arg(short = 'n', long, value_name = "N")]
    last: Option<usize>,
    /// Show new records as they arrive
    #[arg(short, long, conflicts_with = "all")]
    follow: bool,
}

impl Args {
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let dirs = Dirs::from_env()?;
        let mut files = traces(&dirs)?;
        if let Some(id) = &self.session {
            let escaped = name_of(id);
            let is_meant = |name: &OsStr| name == id.as_str() || name == escaped.as_str();
            files
                .retain(|file| file.parent().and_then(|dir| dir.file_name()).is_some_and(is_meant));
            if files.is_empty() {
                return Err(Failure::new(format!("there is no session `{id}`"))
                    .hint("`clash log --all` shows every session"));
            }
        } else if !self.all {
            files = files.pop().into_iter().collect();
        }
        let Some(newest) = files.last().cloned() else {
            return Err(Failure::new("no agent has run with clash yet").hint(
                "`clash install --agent claude` puts clash between Claude Code and its actions",
            ));
        };
        unless_closed(self.show(out, &files, newest))?;
        Ok(exit::OK)
    }

    fn show(&self, out: &mut CommandOutput, files: &[PathBuf], newest: PathBuf) -> io::Result<()> {
        let mut records = Vec::new();
        for file in files {
            records.extend(trace::read(file)?);
        }
        let skip = self.last.map_or(0, |last| records.len().saturating_sub(last));
        for (record, line) in records.iter().skip(skip) {
            self.record(out, record, line)?;
        }
        if !self.follow {
            return Ok(());
        }
        let mut seen = trace::read(&newest)?.len();
        loop {
            if out.is_closed() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(200));
            let records = trace::read(&newest)?;
            for (record, line) in records.iter().skip(seen) {
                self.record(out, record, line)?;
            }
            seen = records.len();
        }
    }

    fn record(&self, out: &mut CommandOutput, record: &TraceRecord, line: &str) -> io::Result<()> {
        if self.json {
            return out.verbatim(line);
        }
        let text = shown(out, record);
        out.line(text)
    }
}

/// The trace files, sorted by their last change, oldest first.
pub(crate) fn traces(dirs: &Dirs) -> Result<Vec<PathBuf>, Failure> {
    let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
    let entries = match fs::read_dir(sessions_dir(dirs)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    for entry in entries {
        let file = trace::file_of(&entry?.path());
        if let Ok(changed) = fs::metadata(&file).and_then(|meta| meta.modified()) {
            files.push((changed, file));
        }
    }
    files.sort();
    Ok(files.into_iter().map(|(_, file)| file).collect())
}

fn shown(out: &CommandOutput, record: &TraceRecord) -> String {
    let effect = record.effect.as_deref().unwrap_or(record.event.word());
    let tone = match (record.event, effect, record.ok) {
        (TraceEvent::Alarm, ..) | (_, "deny", _) | (_, _, Some(false)) => TextTone::Bad,
        (_, "ask", _) => TextTone::Care,
        (_, "allow", _) => TextTone::Good,
        _ => TextTone::Faint,
    };
    let subject = match record.event {
        TraceEvent::Exit if record.ok == Some(true) => "ok".to_owned(),
        // The end of a reason is the fix.
        TraceEvent::Exit | TraceEvent::Alarm => {
            say::one_line(record.reason.as_deref().unwrap_or("failed"))
        }
        _ => say::brief(record.what.as_deref().unwrap_or_default()),
    };
    let word = out.tone(tone, &format!("{effect:<8}"));
    let mut line = format!(
        "{}  {word}  {:<10} {:<12} {}",
        day_and_time(record.time),
        record.tool.as_deref().unwrap_or("-"),
        record.sandbox.as_deref().unwrap_or("-"),
        subject,
    );
    if let Some(rule) = record.rule.as_deref().filter(|_| record.event == TraceEvent::Decision) {
        line.push_str(&out.tone(TextTone::Faint, &format!("  ({rule})")));
    }
    line.trim_end().to_owned()
}
