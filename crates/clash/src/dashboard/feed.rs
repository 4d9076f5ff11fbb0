//! Reads the state of the screen from clash's files, and carries out answers.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use super::keys::DashboardAnswer;
use super::model::{DashboardModel, ShownBlock, ShownConnection};
use crate::dirs::Dirs;
use crate::questions::{self, LiveAnswer, WaitingQuestion};
use crate::rooms;
use crate::session::sessions_dir;
use crate::story::{ActionStory, StoryJoiner};
use crate::trace::{self, TraceEvent, TraceRecord};

/// A session with a record in this time counts as running.
const RUNNING_TIME: Duration = Duration::from_secs(600);
/// Sessions of which the screen shows actions, the newest ones.
const MAX_SESSIONS: usize = 8;
/// Lines that a list keeps.
const MAX_LINES: usize = 500;

/// The files behind the screen.
pub(super) struct DashboardFeed {
    dirs: Dirs,
    /// The records at the end of each trace, with the size and time at which they were read.
    read: HashMap<PathBuf, ReadTrace>,
}

struct ReadTrace {
    size: u64,
    changed: SystemTime,
    records: Vec<TraceRecord>,
}

impl DashboardFeed {
    pub(super) fn new(dirs: Dirs) -> Self {
        Self { dirs, read: HashMap::new() }
    }

    /// Reads everything that has changed. Only traces with new records are read again.
    pub(super) fn refresh(&mut self, model: &mut DashboardModel) {
        match questions::waiting(&self.dirs) {
            Ok(waiting) => model.questions = waiting,
            Err(error) => model.notice = error.to_string(),
        }
        model.rooms = rooms::list(&self.dirs);
        model.rooms.reverse();
        let traces = self.newest_traces();
        let now = SystemTime::now();
        let is_running =
            |changed: &SystemTime| now.duration_since(*changed).is_ok_and(|age| age < RUNNING_TIME);
        model.sessions = traces.iter().filter(|(_, changed, _)| is_running(changed)).count();
        let known = |path: &PathBuf| traces.iter().any(|(session, ..)| session == path);
        self.read.retain(|path, _| known(path));
        let mut is_changed = false;
        for (session, changed, size) in traces {
            is_changed |= self.read_trace(session, changed, size);
        }
        if is_changed {
            self.fill(model);
        }
        model.select(0);
    }

    /// The newest traces, each with the time of its last record and its size.
    fn newest_traces(&self) -> Vec<(PathBuf, SystemTime, u64)> {
        let mut found = Vec::new();
        for entry in fs::read_dir(sessions_dir(&self.dirs)).into_iter().flatten().flatten() {
            let session = entry.path();
            let Ok(meta) = fs::metadata(trace::file_of(&session)) else { continue };
            let Ok(changed) = meta.modified() else { continue };
            found.push((session, changed, meta.len()));
        }
        found.sort_by_key(|(_, changed, _)| std::cmp::Reverse(*changed));
        found.truncate(MAX_SESSIONS);
        found
    }

    /// Reads a trace again if it has changed. Returns true then.
    fn read_trace(&mut self, session: PathBuf, changed: SystemTime, size: u64) -> bool {
        let known = self.read.get(&session);
        if known.is_some_and(|known| known.size == size && known.changed == changed) {
            return false;
        }
        let records = trace::read_end(&session).unwrap_or_default();
        self.read.insert(session, ReadTrace { size, changed, records });
        true
    }

    /// Joins the records to the lists of the screen.
    fn fill(&self, model: &mut DashboardModel) {
        model.actions.clear();
        model.connections.clear();
        model.blocks.clear();
        for trace in self.read.values() {
            let mut joiner = StoryJoiner::default();
            for record in &trace.records {
                note(model, record);
                joiner.add(record.clone());
            }
            let shown = |story: &ActionStory| !story.what.is_empty() || !story.tool.is_empty();
            model.actions.extend(joiner.finish().into_iter().filter(shown));
        }
        model.actions.sort_by_key(|story| std::cmp::Reverse((story.time, story.first)));
        model.connections.sort_by_key(|it| std::cmp::Reverse(it.time));
        model.blocks.sort_by_key(|it| std::cmp::Reverse(it.time));
        model.actions.truncate(MAX_LINES);
        model.connections.truncate(MAX_LINES);
        model.blocks.truncate(MAX_LINES);
    }

    /// Carries out an answer of the user, and notes its result on the screen.
    pub(super) fn answer(&self, model: &mut DashboardModel, id: &str, answer: DashboardAnswer) {
        let Some(question) = model.questions.iter().find(|question| question.id == id) else {
            return;
        };
        let rule = match answer {
            DashboardAnswer::Rule => match write_rule(question) {
                Ok(said) => Some(said),
                // Without the rule the question stays open: the user meant more than once.
                Err(why) => {
                    model.notice = why;
                    return;
                }
            },
            DashboardAnswer::Live(_) => None,
        };
        let live = match answer {
            DashboardAnswer::Live(live) => live,
            DashboardAnswer::Rule => LiveAnswer::Once,
        };
        model.notice = match (questions::answer(&self.dirs, id, live), live, rule) {
            (Err(error), ..) => error.to_string(),
            (Ok(_), _, Some(said)) => said,
            (Ok(_), LiveAnswer::Once, _) => "allowed once".to_owned(),
            (Ok(_), LiveAnswer::Session, _) => "allowed for this session".to_owned(),
            (Ok(_), LiveAnswer::Deny, _) => "denied".to_owned(),
        };
    }
}

/// Notes the connection or block of a record.
fn note(model: &mut DashboardModel, record: &TraceRecord) {
    let action = record.what.clone().unwrap_or_default();
    match (record.event, &record.connection, &record.block) {
        (TraceEvent::Connection, Some(connection), _) => model.connections.push(ShownConnection {
            time: record.time,
            program: action,
            effect: record.effect.clone().unwrap_or_default(),
            connection: connection.clone(),
        }),
        (TraceEvent::Block, _, Some(block)) => model.blocks.push(ShownBlock {
            time: record.time,
            action,
            what: block.what.clone(),
            sentence: record.reason.clone().unwrap_or_default(),
            grant: block.grant.clone(),
        }),
        _ => {}
    }
}

/// Runs the command that a message would print for the question, and gives back its result.
fn write_rule(question: &WaitingQuestion) -> Result<String, String> {
    let line = question.question.remedy.as_ref().ok_or("no rule can name this command")?;
    let commands = clash_shell::find_commands(line);
    let words = commands.first().map(|command| command.words.as_slice()).unwrap_or_default();
    let words: Option<Vec<&str>> = words.iter().skip(1).map(|word| word.known()).collect();
    let words = words.filter(|words| words.len() > 2).ok_or("no rule can name this command")?;
    let (verb, rest) = words.split_at(2);
    let ran = Command::new(beside("clash"))
        .args(verb)
        .arg("--yes")
        .args((verb == ["policy", "allow"]).then_some("--drop-expectations"))
        .args(rest)
        .current_dir(project_of(question))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run clash: {error}"))?;
    let text =
        String::from_utf8_lossy(if ran.status.success() { &ran.stdout } else { &ran.stderr });
    let said = text.lines().rfind(|line| line.starts_with("now ") || line.starts_with("clash: "));
    let said = said.unwrap_or("the rule is written").to_owned();
    if ran.status.success() { Ok(said) } else { Err(said) }
}

fn project_of(question: &WaitingQuestion) -> &Path {
    &question.question.project
}

/// A program of clash, in the directory of this one.
fn beside(name: &str) -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name(name)
}
