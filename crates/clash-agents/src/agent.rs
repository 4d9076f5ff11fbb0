//! One adapter per agent: its JSON to what policies talk about, an answer to its
//! JSON, and how it is wired.
//!
//! An adapter is data and pure functions, one file an agent, and a line in
//! [`AGENTS`]. The hook drives it; nothing else knows an agent by name.
//! What a client cannot do is said in its [`Abilities`], and clash goes the other
//! way: who cannot ask is told no with the way on, who cannot be made to run a
//! command in its sandbox is told no as well.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clash_policy::{Action, ToolInput};
use serde_json::{Map, Value};

use crate::context::UserContext;
use crate::tool_input::{CallContext, RealPaths, ToolError};
use crate::wiring::{Scope, State, Wired};
use crate::{amazon_q, claude, cline, codex, copilot, cursor, droid, gemini, opencode, pi, qwen};

/// Every agent clash knows.
pub static AGENTS: &[&Agent] = &[
    &claude::AGENT,
    &codex::AGENT,
    &gemini::AGENT,
    &qwen::AGENT,
    &droid::AGENT,
    &opencode::OPENCODE,
    &opencode::KILO,
    &copilot::AGENT,
    &cline::AGENT,
    &pi::AGENT,
    &amazon_q::Q,
    &amazon_q::KIRO,
    &cursor::AGENT,
];

/// The agent of this name, as in `clash hook NAME`.
pub fn named(name: &str) -> Option<&'static Agent> {
    AGENTS.iter().copied().find(|agent| agent.name == name)
}

/// The agent whose program this is.
pub fn run_by(program: &OsStr) -> Option<&'static Agent> {
    let name = Path::new(program).file_name()?;
    AGENTS.iter().copied().find(|agent| name == agent.abilities.program)
}

/// A message and what it is about.
pub type Parsed = Result<(Event, Message), MessageError>;

/// The tool's name in policies and what the call works on. `None`: a question to
/// the user, which touches nothing.
pub type Wanted = Result<Option<(String, ToolInput)>, ToolError>;

/// What a call was understood as, in a line: for the adapters' tests.
#[cfg(test)]
pub(crate) fn shown(wanted: Option<(String, ToolInput)>) -> String {
    match wanted {
        Some((name, ToolInput::Script(script))) => format!("{name} {script}"),
        Some((name, ToolInput::Files(files))) => {
            let seen = files.iter().map(|f| format!(" {} {}", f.path.display(), f.needs));
            format!("{name}{}", seen.collect::<String>())
        }
        Some((name, ToolInput::Hosts(hosts))) => format!("{name} {}", hosts[0].host),
        Some((name, ToolInput::Fields(_))) => name,
        None => "nothing".to_owned(),
    }
}

/// One agent: what it can do, and the functions that speak for it.
#[derive(Debug)]
pub struct Agent {
    /// As in `clash hook NAME` and `--agent NAME`.
    pub name: &'static str,
    /// As people call it.
    pub title: &'static str,
    pub abilities: Abilities,
    /// A message of the client. What it does not understand is an error, which
    /// blocks.
    pub parse: fn(&[u8]) -> Parsed,
    /// A message of the client about a command, for trying out an installation.
    pub sample: fn(&Sample<'_>) -> Value,
    pub call: fn(&Message, &CallContext<'_>) -> Wanted,
    /// The tool's input with another command in it. `None`: it cannot be changed.
    pub rewrite: fn(&Message, &str) -> Option<Map<String, Value>>,
    /// The answer in the client's words.
    pub reply: fn(Event, Answer) -> Reply,
    /// The files an installation consists of.
    pub files: fn(&UserContext, &Scope) -> Vec<Wired>,
    /// What steers this agent, for a project: no sandbox and no tool changes it.
    pub steers: fn(&UserContext, &Path) -> Vec<PathBuf>,
    /// What the files of a project do against clash, in one line.
    pub hostile: fn(&UserContext, &Path) -> Option<String>,
}

impl Agent {
    /// What the tool call wants; `None` where it is itself a question.
    pub fn action(
        &self,
        message: &Message,
        home: &Path,
        paths: &dyn RealPaths,
    ) -> Result<Option<Action>, ToolError> {
        let context = CallContext { cwd: Path::new(&message.cwd), home, paths };
        let call = (self.call)(message, &context)?;
        Ok(call.map(|(tool, input)| Action {
            agent: self.name.to_owned(),
            tool,
            mode: message.mode.clone(),
            input,
        }))
    }

    /// Whether clash is in any of the settings this agent reads in a project.
    pub fn is_wired(&self, user: &UserContext, project: &Path) -> bool {
        let machine = user.for_machine();
        let project = Scope::Project(project.to_path_buf());
        let scopes = [(user, Scope::User), (user, project), (&machine, Scope::Managed)];
        let mut files = scopes.iter().flat_map(|(user, scope)| (self.files)(user, scope));
        files.any(|wired| {
            let text = std::fs::read_to_string(&wired.file).unwrap_or_default();
            matches!(wired.edit.state(&text), Ok(State::Present(_)))
        })
    }

    /// The agent's own sandbox, where the user's settings leave it on.
    pub fn own_sandbox(&self, user: &UserContext) -> Option<Problem> {
        (self.files)(user, &Scope::User).iter().find_map(|wired| {
            let text = std::fs::read_to_string(&wired.file).ok()?;
            wired.edit.own_sandbox(&text).ok()?.problem(self)
        })
    }

    /// What works against clash where the agent is started: clients read the
    /// settings of that directory, of the project's, or of both.
    pub fn against(&self, user: &UserContext, project: &Path, cwd: &Path) -> Option<String> {
        [project, cwd].into_iter().find_map(|dir| (self.hostile)(user, dir))
    }
}

/// A command that a client would send to its hook.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    pub session: &'a str,
    pub cwd: &'a str,
    pub script: &'a str,
}

/// What a client can do, seen by running it; `docs/agents.md` shows it.
#[derive(Debug)]
pub struct Abilities {
    /// Its program, as it is found on the search path.
    pub program: &'static str,
    /// The first version these facts hold for.
    pub oldest: [u32; 3],
    pub asks: Asks,
    pub confines: Confines,
    /// The variable that tells hooks the project of the session.
    pub project: Option<&'static str>,
    /// The variable that tells commands their session.
    pub session: Option<&'static str>,
    /// True if the client honours another path in the input of a file tool.
    pub moves_files: bool,
    /// How answers on standard output begin: anything else is none.
    pub openings: &'static [&'static str],
}

/// Whether the client can put a question of clash to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// It asks, and takes a question that nobody can answer for a no.
    Yes,
    /// It asks where somebody sits in front of it, and must not be made to
    /// elsewhere.
    Attended,
    /// It would run the tool.
    No,
}

/// How a command gets into its sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confines {
    /// The client starts every shell through clash.
    ShellPrefix,
    /// Clash is the shell the client is set to.
    Shell,
    /// The hook puts clash in front of the command.
    Rewrite,
    /// As before; and since a refusal ends the client's task, a refused command
    /// becomes one that says why, which the model can read.
    RewriteAlways,
    /// The client ignores a rewritten command: the hook refuses the bare one and
    /// tells the model the line to run instead.
    Instruct,
}

/// What a hook is called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    BeforeTool,
    /// The client is about to ask the user itself.
    Question,
    AfterTool,
    AfterFailure,
    SessionStart,
    SessionEnd,
    /// A settings file changed while the session runs.
    SettingsChange,
}

/// One message of a client. Fields that an event does not have are empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    pub session: String,
    pub cwd: String,
    /// The permission mode, in the client's word.
    pub mode: String,
    /// The tool in the client's word.
    pub tool: String,
    pub input: Map<String, Value>,
    /// The client's id of the tool call; empty where it has none.
    pub call: String,
    /// What a tool call that ended said, as far as it is text.
    pub output: String,
    /// The text of the file that a tool call has read, where the client says it.
    pub content: Option<String>,
    pub error: Option<String>,
    pub duration_ms: Option<u64>,
    /// What kind of settings changed.
    pub source: String,
}

impl Message {
    /// The command the tool runs, under the name most clients give it.
    pub fn command(&self) -> Option<&str> {
        ["command", "cmd"].iter().find_map(|key| self.input.get(*key)?.as_str())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    #[error("the message is not valid JSON of a hook: {0}")]
    Json(#[from] serde_json::Error),
    #[error("`{0}` is not an event clash knows")]
    UnknownEvent(String),
    #[error("the message has no `{0}`")]
    Missing(&'static str),
}

/// A name from a message, safe to print and not too long.
pub(crate) fn printable(name: &str) -> String {
    const MAX_CHARS: usize = 120;
    name.chars().take(MAX_CHARS).flat_map(char::escape_default).collect()
}

/// What clash answers, before it is put into the words of a client.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Allow {
        reason: String,
        updated_input: Option<Map<String, Value>>,
    },
    Ask {
        reason: String,
        updated_input: Option<Map<String, Value>>,
    },
    Deny {
        reason: String,
    },
    /// Nothing to say: the client goes on as if there were no hook.
    Silent,
    /// A word to the model, which changes nothing.
    Context(String),
    /// A word to the user and the model, which changes nothing.
    Note(String),
}

/// What a hook leaves: at most one document on standard output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    pub document: Option<Value>,
    /// With this the exit status is 2, which blocks.
    pub blocks: Option<String>,
}

impl Reply {
    pub fn silent() -> Self {
        Self::default()
    }

    pub fn document(document: Value) -> Self {
        Self { document: Some(document), blocks: None }
    }

    /// Exit status 2, the reason on standard error and nothing on standard
    /// output: the one refusal nearly every client honours in every mode.
    pub fn blocked(reason: String) -> Self {
        Self { document: None, blocks: Some(reason) }
    }
}

/// Something that weakens an installation, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub what: String,
    pub fix: Option<String>,
}

/// What works against clash in a project's files, for any agent: a session of
/// one must not be able to prepare one of another.
pub fn steering_paths(user: &UserContext, project: &Path) -> Vec<PathBuf> {
    AGENTS.iter().flat_map(|agent| (agent.steers)(user, project)).collect()
}
