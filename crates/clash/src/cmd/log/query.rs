//! Finds actions in traces.
//!
//! A filter first looks for bytes in the lines, without reading them as JSON: a line that
//! has none of them belongs to no action that the filter accepts. Only the records of the
//! other actions are read. So a query takes time for the size of the traces and memory for
//! the actions that it shows.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use memchr::memmem::Finder;

use crate::story::{ActionStory, StoryJoiner};
use crate::trace::{TraceRecord, scan, segments};

/// The actions to show.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ActionFilter {
    /// Only actions of this agent, for example `claude`
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Only actions with this effect: allow, ask or deny
    #[arg(long, value_name = "EFFECT", value_parser = ["allow", "ask", "deny"])]
    effect: Option<String>,
    /// Only actions in this sandbox
    #[arg(long, value_name = "NAME")]
    sandbox: Option<String>,
    /// Only actions that name or were refused this path, or one below it
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Only actions that name, reached or were refused this host
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Only actions that were refused, as a whole or in part
    #[arg(long)]
    blocked: bool,
    /// Only actions since this time: `2026-11-18`, `2026-11-18T10:00:00Z`, `30m`, `2h`, `3d`
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    since: Option<u64>,
}

/// A time in milliseconds: a date, a time, or an age such as `2h`. A date counts from
/// midnight UTC.
fn parse_since(text: &str) -> Result<u64, String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    let ago = |unit: &str, milliseconds: u64| {
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(now.saturating_sub(count.saturating_mul(milliseconds)))
    };
    let units = [("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    units
        .into_iter()
        .find_map(|(unit, milliseconds)| ago(unit, milliseconds))
        .or_else(|| clash_history::parse_time(text))
        .or_else(|| clash_history::parse_time(&format!("{text}T00:00:00Z")))
        .ok_or_else(|| "for example 2026-11-18, 2026-11-18T10:00:00Z, 30m, 2h or 3d".to_owned())
}

impl ActionFilter {
    pub(crate) fn blocked() -> Self {
        Self { blocked: true, ..Self::default() }
    }

    /// True if any filter is given.
    pub(crate) fn is_set(&self) -> bool {
        let Self { agent, effect, sandbox, path, host, blocked, since } = self;
        let texts = [agent, effect, sandbox, path, host];
        texts.into_iter().any(Option::is_some) || *blocked || since.is_some()
    }

    /// True if an action fits every part of the filter.
    pub(crate) fn accepts(&self, story: &ActionStory) -> bool {
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == found)
        };
        let in_sandbox = |wanted: &String| {
            story.sandbox == *wanted
                || story.records.iter().any(|it| it.sandbox.as_deref() == Some(wanted))
        };
        is(&self.agent, &story.agent)
            && is(&self.effect, &story.effect)
            && self.sandbox.as_ref().is_none_or(in_sandbox)
            && self.path.as_ref().is_none_or(|path| mentions(story, path))
            && self.host.as_ref().is_none_or(|host| mentions(story, host))
            && (!self.blocked || story.is_blocked())
            && self.since.is_none_or(|since| story.time >= since)
    }

    /// Texts of which a line of every accepted action has at least one. Empty if all lines
    /// have to be read.
    fn needles(&self) -> Vec<String> {
        let json = |text: &str| {
            let quoted = serde_json::to_string(text).unwrap_or_default();
            quoted.trim_matches('"').to_owned()
        };
        if let Some(text) = self.path.as_ref().or(self.host.as_ref()) {
            return vec![json(text.trim_start_matches("~/"))];
        }
        if self.blocked {
            let events = ["\"event\":\"block\"", "\"event\":\"alarm\"", "\"effect\":\"deny\""];
            return events.map(str::to_owned).to_vec();
        }
        if let Some(effect) = &self.effect {
            return vec![format!("\"effect\":\"{effect}\"")];
        }
        if let Some(sandbox) = &self.sandbox {
            return vec![format!("\"sandbox\":\"{}\"", json(sandbox))];
        }
        self.agent.iter().map(|agent| format!("\"agent\":\"{}\"", json(agent))).collect()
    }
}

/// True if a text of the story has this one as a path or host.
fn mentions(story: &ActionStory, text: &str) -> bool {
    let text = text.trim_end_matches('/');
    let bare = text.trim_start_matches("~/");
    let has = |found: &str| found.contains(text) || found.contains(bare);
    let connects = story.connections.iter().filter_map(|it| it.connection.as_ref());
    let blocks = story.blocks.iter().filter_map(|it| it.block.as_ref());
    has(&story.what)
        || blocks.map(|block| &block.what).any(|what| has(what))
        || connects.map(|it| &it.host).any(|host| has(host))
}

/// One query over the traces of sessions.
#[derive(Debug)]
pub(crate) struct StoryQuery<'a> {
    pub(crate) filter: &'a ActionFilter,
    /// Only this number of actions, the last ones.
    pub(crate) last: Option<usize>,
    /// The number of records that were read as JSON.
    pub(crate) parsed: u64,
}

/// Receives the actions in the order of their beginning, session by session.
pub(crate) type StorySink<'a> = dyn FnMut(&ActionStory) -> io::Result<()> + 'a;

impl StoryQuery<'_> {
    /// Calls `each` for the actions of these sessions that fit the filter, in order; with
    /// `last`, only for the last ones.
    pub(crate) fn run(&mut self, sessions: &[PathBuf], each: &mut StorySink<'_>) -> io::Result<()> {
        let mut last: VecDeque<ActionStory> = VecDeque::new();
        let most = self.last;
        for session in sessions {
            self.session(session, &mut |story| match most {
                None => each(&story),
                Some(count) => {
                    last.push_back(story);
                    if last.len() > count {
                        last.pop_front();
                    }
                    Ok(())
                }
            })?;
        }
        last.iter().try_for_each(each)
    }

    /// Calls `each` for the actions of one session that fit the filter. Parses only lines
    /// that may belong to one.
    fn session(
        &mut self,
        session: &Path,
        each: &mut dyn FnMut(ActionStory) -> io::Result<()>,
    ) -> io::Result<()> {
        let files = recent(session, self.filter.since);
        let wanted = wanted(&files, &self.filter.needles())?;
        if wanted.as_ref().is_some_and(WantedCalls::is_empty) {
            return Ok(());
        }
        let mut joiner = StoryJoiner::default();
        let mut result = Ok(());
        let filter = self.filter;
        let mut give = |story: ActionStory| {
            if result.is_ok() && filter.accepts(&story) {
                result = each(story);
            }
        };
        for file in &files {
            scan::each_line(file, |line| {
                if wanted.as_ref().is_some_and(|wanted| !wanted.has(line)) {
                    return;
                }
                self.parsed += 1;
                if let Ok(record) = serde_json::from_slice::<TraceRecord>(line)
                    && let Some(complete) = joiner.add(record)
                {
                    give(complete);
                }
            })?;
        }
        joiner.finish().into_iter().for_each(give);
        result
    }
}

/// The calls with a line that has one of the needles; `None` without needles.
fn wanted(files: &[PathBuf], needles: &[String]) -> io::Result<Option<WantedCalls>> {
    if needles.is_empty() {
        return Ok(None);
    }
    let finders: Vec<Finder<'_>> = needles.iter().map(Finder::new).collect();
    let mut found = WantedCalls::default();
    for file in files {
        scan::each_line(file, |line| {
            if finders.iter().any(|finder| finder.find(line).is_some()) {
                found.add(line);
            }
        })?;
    }
    Ok(Some(found))
}

/// The files of a session that have records since this time.
fn recent(session: &Path, since: Option<u64>) -> Vec<PathBuf> {
    let mut files = segments::files(session);
    if let Some(since) = since {
        let after = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(since);
        files.retain(|file| {
            let changed = std::fs::metadata(file).and_then(|meta| meta.modified());
            changed.is_ok_and(|changed| changed >= after)
        });
    }
    files
}

/// The calls to which the found lines belong.
#[derive(Debug, Default)]
struct WantedCalls {
    calls: HashSet<Vec<u8>>,
    /// Processes of launchers without a call, and tools of records without both.
    others: HashSet<Vec<u8>>,
}

impl WantedCalls {
    /// Adds the action to which a line of the trace belongs.
    fn add(&mut self, line: &[u8]) {
        match field(line, b"\"call\":\"") {
            Some(call) => self.calls.insert(call.to_vec()),
            None => self.others.insert(other_key(line).to_vec()),
        };
    }

    fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.others.is_empty()
    }

    /// True if a line may belong to a wanted action.
    fn has(&self, line: &[u8]) -> bool {
        match field(line, b"\"call\":\"") {
            Some(call) => self.calls.contains(call),
            None => {
                !self.others.is_empty() && self.others.contains(other_key(line))
                    // A client without ids of calls reports the end without one.
                    || !self.calls.is_empty() && field(line, b"\"event\":\"") == Some(b"exit")
            }
        }
    }
}

/// The process of a record without a call; without a process, its number.
fn other_key(line: &[u8]) -> &[u8] {
    let pid = memchr::memmem::rfind(line, b"\"pid\":").and_then(|at| line.get(at + 6..));
    let number =
        pid.or_else(|| memchr::memmem::find(line, b"\"n\":").and_then(|at| line.get(at..)));
    let rest = number.unwrap_or(line);
    let end = rest.iter().position(|byte| matches!(byte, b',' | b'}')).unwrap_or(rest.len());
    rest.get(..end).unwrap_or(rest)
}

/// The text behind a name among the first fields of a line.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    /// Version, number, time, event and call.
    const HEAD_BYTES: usize = 256;
    let head = line.get(..HEAD_BYTES.min(line.len()))?;
    let at = memchr::memmem::find(head, name)? + name.len();
    let rest = line.get(at..)?;
    rest.get(..memchr::memchr(b'"', rest)?)
}
