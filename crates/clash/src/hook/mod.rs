//! One hook call, from standard input to the answer. Read this first.
//!
//! | module | job |
//! |---|---|
//! | [`receive`] | reads the message of the agent |
//! | [`before`] | decides a tool call before the agent runs it |
//! | [`tmp_paths`] | moves the paths of file tools from /tmp to the session's directory |
//! | [`launcher_line`] | writes the line that runs a command in its sandbox, and reads it again |
//! | [`after`] | checks after a tool call that it ran as decided |
//! | [`session_events`] | the start and the end of a session, changed settings |
//! | [`request`] | answers the agent's request for one more right |
//! | [`reply`] | sends the answer |
//!
//! Every error ends in a block. If the message was understood, the answer is a deny in
//! the agent's own words. Otherwise the exit status is 2, with the reason on standard
//! error, which blocks any event. A hook that cannot write its trace does not allow
//! either: the trace has every action that runs.

mod after;
mod before;
mod launcher_line;
mod receive;
mod reply;
mod request;
mod session_events;
mod tmp_paths;

use std::cell::Cell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clash_agents::{AGENTS, Agent, HookAnswer, HookEvent, HookMessage, MessageError, ToolError};
use clash_policy::decide::Decision;
use clash_policy::{Action, Effect};

use crate::approval::ApprovalError;
use crate::decision::{self, DecisionContext, DecisionError};
use crate::dirs::{Dirs, NoHomeError};
use crate::env;
use crate::held_path::HeldPaths;
use crate::launcher::HostileSettingsError;
use crate::session::{Session, SessionError};
use crate::trace::{TraceError, TraceEvent, TraceRecord};

#[derive(Debug, thiserror::Error)]
enum HookError {
    #[error("usage: clash hook AGENT; known are {}", known_agents())]
    Usage,
    #[error("cannot read the message: {0}")]
    Read(std::io::Error),
    #[error("the message is larger than 1 MiB")]
    TooLarge,
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error(transparent)]
    NoHome(#[from] NoHomeError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Decision(#[from] DecisionError),
    #[error(transparent)]
    Approval(#[from] ApprovalError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    HostileSettings(#[from] HostileSettingsError),
    #[error(
        "the path leads elsewhere than a moment ago: a command in the background may be setting \
         a trap"
    )]
    Moves,
    #[error("the command is longer than 100 KiB: write it into a file and run that")]
    TooLong,
    #[error("the command calls clash itself: give the plain command, clash puts it in its sandbox")]
    CallsLauncher,
    #[error("a request is one command and nothing else: {}", request::USAGE)]
    Request,
    #[error("only the user gives rights: tell the user the command to run")]
    OnlyUser,
    #[error("cannot make an id for the trace: {0}")]
    Random(std::io::Error),
    #[error("cannot find out where clash itself is: {0}")]
    OwnPath(std::io::Error),
    #[error("cannot make the session's temporary directory: {0}")]
    Temporary(std::io::Error),
}

fn known_agents() -> String {
    let names: Vec<&str> = AGENTS.iter().map(|agent| agent.name).collect();
    names.join(", ")
}

/// Answers one hook call and returns the exit status.
pub(crate) fn main(args: &[OsString]) -> u8 {
    let (agent, event, message) = match receive::receive(args) {
        Ok(received) => received,
        Err(error) => return reply::block(&format!("clash: blocked: {error}")),
    };
    let answer = handle(agent, event, &message)
        .unwrap_or_else(|error| HookAnswer::Deny { reason: format!("clash: {error}") });
    reply::send(agent, event, &message, answer)
}

/// Enters the session of a message and answers the event. When a session starts, the
/// directory that is now at the project's path becomes the recorded project, also if it is
/// another one than before, for example after a new `git clone`. After `clear` and `compact`
/// the old record holds, so an exchanged directory is refused.
fn handle(
    agent: &'static Agent,
    event: HookEvent,
    message: &HookMessage,
) -> Result<HookAnswer, HookError> {
    let dirs = Dirs::from_env()?;
    let project = project_of_message(agent, message)?;
    let mut session = Session::enter(&dirs, &message.session, agent.name, &project)?;
    let goes_on = matches!(message.source.as_str(), "clear" | "compact");
    if event == HookEvent::SessionStart && !goes_on {
        session.resume()?;
    }
    let session = session;
    let dirs = dirs.in_session(&session.dir);
    let action_id = action_id(event, message)?;
    let is_permitted = Cell::new(false);
    let call = HookCall { agent, dirs: &dirs, session: &session, message, action_id, is_permitted };
    match event {
        HookEvent::BeforeTool => call.before_or_deny(),
        HookEvent::Question => call.check_project().and_then(|()| call.question()),
        HookEvent::AfterTool | HookEvent::AfterFailure => call.after(event),
        HookEvent::SessionStart => call.session_start(),
        HookEvent::SessionEnd => call.session_end(),
        HookEvent::SettingsChange => Ok(call.settings_change()),
    }
}

/// The id that joins the records of one action: the agent's id of the call, or a random one
/// if the agent gives none. Events after the call then have no id.
fn action_id(event: HookEvent, message: &HookMessage) -> Result<String, HookError> {
    if event == HookEvent::BeforeTool && message.call.is_empty() {
        return crate::approval::random_name().map_err(HookError::Random);
    }
    Ok(message.call.clone())
}

/// The project of a new session. The record of a known session has its own.
fn project_of_message(agent: &Agent, message: &HookMessage) -> Result<PathBuf, MessageError> {
    let cwd = || Some(PathBuf::from(&message.cwd)).filter(|cwd| cwd.is_absolute());
    let told = agent.abilities.project.and_then(env::path);
    told.or_else(cwd).ok_or(MessageError::Missing("cwd"))
}

/// One call of a hook: the agent, its session and its message.
struct HookCall<'a> {
    agent: &'static Agent,
    dirs: &'a Dirs,
    session: &'a Session,
    message: &'a HookMessage,
    action_id: String,
    /// True if the user has allowed this one command with `clash allow --once`.
    is_permitted: Cell<bool>,
}

impl HookCall<'_> {
    /// Fails, with an alarm, unless the project is the directory in which the session
    /// began.
    fn check_project(&self) -> Result<(), HookError> {
        self.session.check_root().or_else(|error| {
            let reason = Some(error.to_string());
            TraceRecord { reason, ..self.new_record(TraceEvent::Alarm) }.append(self.session)?;
            Err(SessionError::from(error).into())
        })
    }

    /// The decision of the policy in force about an action of this session.
    fn decide(&self, action: &Action) -> Result<Decision, HookError> {
        let scene = DecisionContext {
            project: &self.session.project,
            session: Some(&self.session.dir),
            cwd: Path::new(&self.message.cwd),
        };
        Ok(decision::decide(self.dirs, scene, action)?)
    }

    /// The action of a tool call; `None` for a question to the user.
    fn action(&self) -> Result<Option<Action>, ToolError> {
        self.agent.action(self.message, &self.dirs.home, &HeldPaths)
    }

    /// A record of the trace about this tool call.
    fn new_record(&self, event: TraceEvent) -> TraceRecord {
        let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        TraceRecord {
            agent: Some(self.agent.name.to_owned()),
            call: said(&self.action_id),
            tool: said(&self.message.tool),
            ..TraceRecord::new(self.session, event)
        }
    }

    /// Appends an alarm to the trace and tells the user.
    fn raise_alarm(&self, text: String) -> Result<HookAnswer, HookError> {
        let alarm =
            TraceRecord { reason: Some(text.clone()), ..self.new_record(TraceEvent::Alarm) };
        alarm.append(self.session)?;
        Ok(HookAnswer::Note(text))
    }

    /// Decides a tool call. An error is appended to the trace like any other denial,
    /// unless the trace itself cannot be written.
    fn before_or_deny(&self) -> Result<HookAnswer, HookError> {
        self.check_project().and_then(|()| self.before()).or_else(|error| {
            let record = TraceRecord {
                what: Some(self.message.command().unwrap_or(&self.message.tool).to_owned()),
                effect: Some(Effect::Deny.to_string()),
                reason: Some(error.to_string()),
                ..self.new_record(TraceEvent::Decision)
            };
            record.append(self.session)?;
            if matches!(error, HookError::Moves | HookError::Tool(ToolError::Moves { .. })) {
                self.raise_alarm(error.to_string())?;
            }
            Err(error)
        })
    }
}
