//! The histories on this machine as actions a policy can decide.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use clash_history::{HistoryError, HistoryFile, HistoryRoots, ReadTally, SeenCall};
use clash_policy::{Action, ToolInput};
use clash_shell::ShellWord;

use crate::dirs::{Dirs, project_of};
use crate::held_path::HeldPaths;
use crate::session::sessions_dir;
use crate::ui::Failure;
use clash_agents::tool_input::{self, CallContext, ToolError};
use clash_agents::{self as agents, HookMessage};

/// The directories of histories: clash's own sessions and those of each agent.
pub(crate) fn roots(dirs: &Dirs) -> HistoryRoots {
    let user = dirs.for_agents();
    HistoryRoots::new(sessions_dir(dirs), |name| {
        let history = agents::find_agent(name)?.extras.history?;
        Some(history(&user))
    })
}

/// The histories that an option names: `latest`, a file or a directory; without it, all.
/// Fails if there are none.
pub(crate) fn selected_histories(
    dirs: &Dirs,
    what: Option<&str>,
) -> Result<Vec<HistoryFile>, Failure> {
    let found = match what {
        None => {
            let all = clash_history::all_histories(&roots(dirs));
            if all.is_empty() { Err(HistoryError::None) } else { Ok(all) }
        }
        Some("latest") => clash_history::latest_history(&roots(dirs)).map(|one| vec![one]),
        Some(path) if Path::new(path).is_dir() => clash_history::histories_below(Path::new(path))
            .or_else(|_| Ok(vec![clash_history::history_at(Path::new(path))?])),
        Some(path) => clash_history::history_at(Path::new(path)).map(|one| vec![one]),
    };
    found.map_err(|error: HistoryError| {
        let hint = match error {
            HistoryError::None => "clash reads its own traces and the histories of Claude Code, Codex, Gemini CLI and OpenCode",
            _ => "`latest`, a history, or a directory with histories",
        };
        Failure::from(error).hint(hint)
    })
}

/// The names of agents in clash's own traces. A command that the user starts without an agent
/// has the agent `terminal`.
fn names_in_traces() -> Vec<&'static str> {
    agents::AGENTS.iter().map(|agent| agent.name).chain(["terminal"]).collect()
}

/// One action of a history.
#[derive(Debug)]
pub(crate) struct PastAction {
    pub(crate) seen: SeenCall,
    pub(crate) cwd: PathBuf,
    /// The root of the project it took place in.
    pub(crate) project: PathBuf,
    pub(crate) home: PathBuf,
}

impl PastAction {
    /// The action as a hook would have read it. A command that clash had wrapped counts as
    /// the model's own script.
    pub(crate) fn action(&self) -> Result<Action, ToolError> {
        let from = CallContext { cwd: &self.cwd, home: &self.home, paths: &HeldPaths };
        let wanted = match agents::find_agent(self.seen.agent) {
            Some(agent) => {
                let (tool, input) = (self.seen.tool.clone(), self.seen.input.clone());
                (agent.call)(&HookMessage { tool, input, ..HookMessage::default() }, &from)?
            }
            None => None,
        };
        let (tool, input) = match wanted {
            Some(wanted) => wanted,
            None => tool_input::read_tool_use(&self.seen.tool, &self.seen.input, &from)?,
        };
        let input = match input {
            ToolInput::Script(script) => ToolInput::Script(unwrapped(&script).unwrap_or(script)),
            other => other,
        };
        Ok(Action { agent: self.seen.agent.to_owned(), tool, mode: "default".to_owned(), input })
    }
}

/// True if the tool asks the user a question. No policy decides about such a tool.
fn is_question(seen: &SeenCall) -> bool {
    let nowhere = CallContext { cwd: Path::new("/"), home: Path::new("/"), paths: &HeldPaths };
    let message = HookMessage { tool: seen.tool.clone(), ..HookMessage::default() };
    let call = agents::find_agent(seen.agent).map(|agent| (agent.call)(&message, &nowhere));
    matches!(call, Some(Ok(None)))
}

/// The script behind `clash exec --approval ID --`, which some agents keep in
/// their history in place of the model's own script.
fn unwrapped(script: &str) -> Option<String> {
    if !script.contains(" exec --approval ") {
        return None;
    }
    let commands = clash_shell::find_commands(script);
    let words: Option<Vec<&str>> = commands.first()?.words.iter().map(ShellWord::known).collect();
    match words?.as_slice() {
        [program, "exec", "--approval", _, "--", script] if program.ends_with("/clash") => {
            Some((*script).to_owned())
        }
        _ => None,
    }
}

/// Reads histories as actions, those since a time if given, and shows the progress at a
/// terminal. Skips questions to the user and calls that were read already. `each` can end the
/// reading.
pub(crate) fn replay(
    dirs: &Dirs,
    here: &Path,
    histories: &[HistoryFile],
    since: Option<u64>,
    mut each: impl FnMut(&PastAction) -> ControlFlow<()>,
) -> ReadTally {
    let start = since.map(|ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms));
    let recent: Vec<HistoryFile> = histories
        .iter()
        .filter(|it| start.is_none_or(|start| it.changed >= start))
        .cloned()
        .collect();
    let mut projects: HashMap<PathBuf, PathBuf> = HashMap::new();
    let mut progress = ReadProgress::new();
    let mut told = ToldCalls::default();
    let mut questions: HashMap<(&'static str, String), bool> = HashMap::new();
    clash_history::read(&recent, &names_in_traces(), &mut |seen| {
        progress.step();
        if since.is_some_and(|since| seen.when.is_none_or(|when| when < since))
            || *questions
                .entry((seen.agent, seen.tool.clone()))
                .or_insert_with(|| is_question(&seen))
            || told.is_repeated(&seen)
        {
            return ControlFlow::Continue(());
        }
        let cwd = seen.cwd.clone().filter(|cwd| cwd.is_absolute());
        let cwd = cwd.unwrap_or_else(|| here.to_path_buf());
        let project = match projects.get(&cwd) {
            Some(project) => project.clone(),
            None => {
                let project = project_of(&cwd, &dirs.home);
                projects.insert(cwd.clone(), project.clone());
                project
            }
        };
        each(&PastAction { seen, cwd, project, home: dirs.home.clone() })
    })
}

/// Calls that were read already. clash and the agent both record a call, and an agent
/// may write a resumed session again.
#[derive(Default)]
struct ToldCalls {
    known: HashSet<u64>,
}

impl ToldCalls {
    /// True if a call with this id and the same session or time was read before. Records the
    /// call. A call without an id is never repeated.
    fn is_repeated(&mut self, seen: &SeenCall) -> bool {
        let (agent, call) = (seen.agent, &seen.call);
        if call.id.is_empty() {
            return false;
        }
        let mut key = |what: &dyn Fn(&mut DefaultHasher)| {
            let mut hash = DefaultHasher::new();
            (agent, &call.id).hash(&mut hash);
            what(&mut hash);
            !self.known.insert(hash.finish())
        };
        let same_session = !call.session.is_empty() && key(&|hash| (0, &call.session).hash(hash));
        let same_time = seen.when.is_some() && key(&|hash| (1, seen.when).hash(hash));
        same_session || same_time
    }
}

/// Counts actions on standard error, if that is a terminal.
struct ReadProgress {
    shown: bool,
    count: u64,
    last: Instant,
}

impl ReadProgress {
    fn new() -> Self {
        Self { shown: io::stderr().is_terminal(), count: 0, last: Instant::now() }
    }

    fn step(&mut self) {
        self.count += 1;
        if self.shown && self.last.elapsed() > Duration::from_millis(100) {
            self.last = Instant::now();
            let _ = write!(io::stderr(), "\r{} actions read", self.count);
        }
    }
}

impl Drop for ReadProgress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\u{1b}[K");
        }
    }
}

/// The number of skipped records in words; `None` if there are none.
pub(crate) fn not_understood(tally: &ReadTally) -> Option<String> {
    let parts: Vec<String> = [
        (tally.broken, "broken line", "broken lines"),
        (tally.too_long, "line of more than 8 MiB", "lines of more than 8 MiB"),
        (tally.foreign, "record of an unknown kind", "records of an unknown kind"),
        (tally.unreadable, "file that could not be read", "files that could not be read"),
    ]
    .into_iter()
    .filter(|(count, ..)| *count > 0)
    .map(|(count, one, many)| format!("{count} {}", if count == 1 { one } else { many }))
    .collect();
    (!parts.is_empty()).then(|| format!("passed over: {}", parts.join(", ")))
}

/// Parses `30d`, `12h` or `2w` as the time so long before now, in milliseconds since 1970.
pub(crate) fn parse_since(text: &str) -> Result<u64, String> {
    let wrong = || "a number and a unit: 12h, 30d, 2w".to_owned();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let hours = match unit {
        'h' => 1,
        'd' => 24,
        'w' => 24 * 7,
        _ => return Err(wrong()),
    };
    let count: u64 = text.trim_end_matches(unit).parse().map_err(|_| wrong())?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    Ok(now.saturating_sub(count.saturating_mul(hours * 3_600_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapped_command_is_the_command() {
        assert_eq!(
            unwrapped("'/x/bin/clash' exec --approval abc -- 'make '\\''a'\\'''").as_deref(),
            Some("make 'a'")
        );
        assert_eq!(unwrapped("echo exec --approval x"), None);
    }

    #[test]
    fn a_span_of_time_has_a_unit() {
        assert!(parse_since("30d").unwrap() < parse_since("12h").unwrap());
        for wrong in ["", "d", "30", "-1d", "30m"] {
            assert!(parse_since(wrong).is_err(), "{wrong}");
        }
    }
}
