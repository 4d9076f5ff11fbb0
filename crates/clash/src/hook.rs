//! One hook call, from standard input to the answer. Read this first.
//!
//! Whatever goes wrong here ends in a block: a deny in the agent's own words
//! where its question was understood, and otherwise exit status 2 with the
//! reason on standard error, which blocks any event. A hook that cannot write
//! its trace does not allow either: what is not on record does not happen.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::PathBuf;

use clash_policy::decide::{Cause, Decision};
use clash_policy::{Action, Effect, Input};
use serde_json::Value;

use crate::agents::claude::{self, Answer, Event, Message, MessageError};
use crate::approval::{Approval, ApprovalError};
use crate::decision::{self, DecisionError};
use crate::dirs::{Dirs, NoHome};
use crate::policy::Policy;
use crate::session::{Session, SessionError};
use crate::trace::{self, Record, TraceError};
use crate::{env, exit, say, watch};

/// No agent sends more; what does is not looked at.
const MAX_INPUT: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub(crate) enum HookError {
    #[error("usage: clash hook AGENT; the only agent known is claude")]
    Usage,
    #[error("cannot read the message: {0}")]
    Read(std::io::Error),
    #[error("the message is larger than 1 MiB")]
    TooLarge,
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error(transparent)]
    Tool(#[from] crate::tool_input::ToolError),
    #[error(transparent)]
    NoHome(#[from] NoHome),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Decision(#[from] DecisionError),
    #[error(transparent)]
    Approval(#[from] ApprovalError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("nothing can be confined in this project: {0}")]
    HostileSettings(String),
    #[error("cannot find out where clash itself is: {0}")]
    OwnPath(std::io::Error),
}

/// Answers one hook call; the value is the exit status.
pub(crate) fn main(args: &[OsString]) -> u8 {
    let (event, result) = match receive(args) {
        Ok((event, message)) => (event, handle(event, &message)),
        Err(error) => return blocked(&error),
    };
    let answer = result.unwrap_or_else(|error| Answer::Deny { reason: format!("clash: {error}") });
    let Some(reply) = claude::reply(event, answer) else { return exit::OK };
    match send(&reply) {
        Ok(()) => exit::OK,
        Err(_) => exit::BLOCKED,
    }
}

fn blocked(error: &HookError) -> u8 {
    let _ = writeln!(std::io::stderr(), "clash: blocked: {error}");
    exit::BLOCKED
}

fn send(reply: &Value) -> std::io::Result<()> {
    let mut text = reply.to_string();
    text.push('\n');
    let mut stdout = std::io::stdout();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// The message and its event. A further argument (the event) is accepted for
/// those who write it into their settings; the message is what counts.
fn receive(args: &[OsString]) -> Result<(Event, Message), HookError> {
    let agent = args.first().and_then(|agent| agent.to_str());
    if agent != Some("claude") || args.len() > 2 {
        return Err(HookError::Usage);
    }
    let mut input = Vec::new();
    std::io::stdin().take(MAX_INPUT + 1).read_to_end(&mut input).map_err(HookError::Read)?;
    if input.len() as u64 > MAX_INPUT {
        return Err(HookError::TooLarge);
    }
    Ok(claude::parse(&input)?)
}

fn handle(event: Event, message: &Message) -> Result<Answer, HookError> {
    let dirs = Dirs::from_env()?;
    let session = Session::enter(&dirs, &message.session_id, &project(message)?)?;
    match event {
        Event::PreToolUse => before_tool(&dirs, &session, message).or_else(|error| {
            // On record like any other denial, unless that is what failed.
            let what = message.tool_input.get("command").and_then(Value::as_str);
            let record = Record {
                what: Some(what.unwrap_or(&message.tool_name).to_owned()),
                effect: Some(Effect::Deny.to_string()),
                reason: Some(error.to_string()),
                ..about(&session, message, trace::Event::Decision)
            };
            record.append(&session)?;
            Err(error)
        }),
        Event::PermissionRequest => on_question(&dirs, &session, message),
        Event::PostToolUse | Event::PostToolUseFailure => {
            after_tool(event, &dirs, &session, message)
        }
        Event::SessionStart => at_start(&dirs, &session),
        Event::SessionEnd => {
            Approval::discard_all(&session);
            Record::new(&session, trace::Event::SessionEnd).append(&session)?;
            Ok(Answer::Silent)
        }
        Event::ConfigChange => Ok(on_config_change(&dirs, message)),
    }
}

/// Only asked when the session is new: afterwards its record counts.
fn project(message: &Message) -> Result<PathBuf, MessageError> {
    let here = || Some(PathBuf::from(&message.cwd)).filter(|cwd| cwd.is_absolute());
    env::path(env::CLAUDE_PROJECT_DIR).or_else(here).ok_or(MessageError::Missing("cwd"))
}

fn decided(
    dirs: &Dirs,
    session: &Session,
    message: &Message,
) -> Result<(Action, Decision), HookError> {
    let action = claude::action(message, &dirs.home)?;
    let decision = decision::decide(dirs, &session.project, &action)?;
    Ok((action, decision))
}

fn before_tool(dirs: &Dirs, session: &Session, message: &Message) -> Result<Answer, HookError> {
    if claude::is_prompt(&message.tool_name) {
        return Ok(Answer::Silent);
    }
    // Not only for commands: a skill may start some of its own.
    if let Some(problem) = claude::hostile_settings(dirs, &session.project) {
        return Err(HookError::HostileSettings(problem));
    }
    let (action, decision) = decided(dirs, session, message)?;
    if !matches!(action.input, Input::Script(_)) {
        // A tool may run commands no hook sees; a question that was answered
        // no must not turn into a yes there.
        Approval::discard_asked(session);
    }
    let mut reason = say::reason(&decision);
    if let Some(way_on) = say::way_on(&decision, dirs) {
        reason = format!("{reason}; {way_on}");
    }
    record(session, message, &action, &decision, &reason).append(session)?;
    let reason = format!("clash: {reason}");
    let updated_input = match (&action.input, decision.effect) {
        (_, Effect::Deny) => return Ok(Answer::Deny { reason }),
        (Input::Script(script), _) => prepare_launch(dirs, session, message, script, &decision)?,
        _ => None,
    };
    Ok(match decision.effect {
        Effect::Allow => Answer::Allow { reason, updated_input },
        Effect::Ask | Effect::Deny => Answer::Ask { reason, updated_input },
    })
}

/// Leaves the approval for the launcher, and puts the launcher in front of the
/// command where the client's own shell prefix does not.
fn prepare_launch(
    dirs: &Dirs,
    session: &Session,
    message: &Message,
    script: &str,
    decision: &Decision,
) -> Result<Option<serde_json::Map<String, Value>>, HookError> {
    let sandbox = decision.sandbox.as_ref().map(|s| s.name.clone()).unwrap_or_default();
    let approval = Approval {
        script: script.to_owned(),
        sandbox,
        call: message.tool_use_id.clone(),
        asked: decision.effect == Effect::Ask,
    };
    let name = approval.leave(session)?;
    if env::path(env::CLAUDE_CODE_SHELL_PREFIX)
        .is_some_and(|prefix| prefix == dirs.shell_launcher())
    {
        return Ok(None);
    }
    let own = std::env::current_exe().map_err(HookError::OwnPath)?;
    let own = shell_quoted(&own.to_string_lossy());
    let command = format!("{own} exec --approval {name} -- {}", shell_quoted(script));
    let mut input = message.tool_input.clone();
    input.insert("command".to_owned(), Value::String(command));
    Ok(Some(input))
}

pub(crate) fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The client is about to ask the user itself: decided rules answer for them.
fn on_question(dirs: &Dirs, session: &Session, message: &Message) -> Result<Answer, HookError> {
    if claude::is_prompt(&message.tool_name) {
        return Ok(Answer::Silent);
    }
    let (action, decision) = decided(dirs, session, message)?;
    let reason = say::reason(&decision);
    record(session, message, &action, &decision, &reason).append(session)?;
    Ok(match decision.effect {
        Effect::Deny => Answer::Deny { reason: format!("clash: {reason}") },
        // An allow was said before this question; the client asks for a
        // reason of its own, which is the user's to answer.
        Effect::Allow | Effect::Ask => Answer::Silent,
    })
}

fn record(
    session: &Session,
    message: &Message,
    action: &Action,
    decision: &Decision,
    reason: &str,
) -> Record {
    let what = match &action.input {
        Input::Script(script) => script.clone(),
        Input::Files(files) => {
            let paths = files.iter().map(|file| file.path.display().to_string());
            paths.collect::<Vec<_>>().join(", ")
        }
        Input::Hosts(hosts) if !hosts.is_empty() => {
            let hosts = hosts.iter().map(|host| host.host.as_str());
            hosts.collect::<Vec<_>>().join(", ")
        }
        Input::Hosts(_) | Input::Fields(_) => action.tool.clone(),
    };
    let rule = match decision.decisive().map(|part| &part.cause) {
        Some(Cause::Rule { span, .. } | Cause::Default { span, .. }) => Some(span.to_string()),
        _ => None,
    };
    Record {
        what: Some(what),
        effect: Some(decision.effect.to_string()),
        sandbox: decision.sandbox.as_ref().map(|sandbox| sandbox.name.clone()),
        rule,
        reason: Some(reason.to_owned()),
        ..about(session, message, trace::Event::Decision)
    }
}

/// A record that says which call of which tool it is about.
fn about(session: &Session, message: &Message, event: trace::Event) -> Record {
    let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    Record {
        agent: Some("claude".to_owned()),
        call: said(&message.tool_use_id),
        tool: said(&message.tool_name),
        ..Record::new(session, event)
    }
}

/// Records how the tool call ended, and checks that a command that was let
/// through really went through the launcher.
fn after_tool(
    event: Event,
    dirs: &Dirs,
    session: &Session,
    message: &Message,
) -> Result<Answer, HookError> {
    let record = Record {
        ok: Some(event == Event::PostToolUse),
        reason: message.error.clone(),
        duration_ms: message.duration_ms,
        ..about(session, message, trace::Event::Exit)
    };
    record.append(session)?;
    if !message.tool_input.contains_key("command") {
        return Ok(Answer::Silent);
    }
    let Some(text) = alarm_after(dirs, session, message)? else { return Ok(Answer::Silent) };
    let alarm =
        Record { reason: Some(text.clone()), ..about(session, message, trace::Event::Alarm) };
    alarm.append(session)?;
    Ok(Answer::Note(text))
}

/// What the user has to know after a command, if anything.
fn alarm_after(
    dirs: &Dirs,
    session: &Session,
    message: &Message,
) -> Result<Option<String>, HookError> {
    // What goes on in the background may not have begun yet.
    let in_background = message.tool_name == "Monitor"
        || message.tool_input.get("run_in_background") == Some(&Value::Bool(true));
    if !in_background && Approval::left_over(session, &message.tool_use_id)? {
        let text = "clash: this command did not run in its sandbox: another hook or setting \
                    replaced it, or it never started; run `clash doctor`";
        return Ok(Some(text.to_owned()));
    }
    if let Some(problem) = claude::hostile_settings(dirs, &session.project) {
        return Ok(Some(format!(
            "clash: settings in this project work against clash: {problem}; \
             remove that before the next session"
        )));
    }
    let changed: Vec<String> =
        watch::changed(dirs, session).iter().map(|path| path.display().to_string()).collect();
    Ok((!changed.is_empty()).then(|| {
        format!(
            "clash: {} changed during this command and will be obeyed by the next session: \
             look at it before you start one",
            changed.join(", ")
        )
    }))
}

fn at_start(dirs: &Dirs, session: &Session) -> Result<Answer, HookError> {
    let record = Record {
        agent: Some("claude".to_owned()),
        what: Some(session.project.display().to_string()),
        ..Record::new(session, trace::Event::SessionStart)
    };
    record.append(session)?;
    watch::remember(dirs, session);
    Ok(match Policy::load(dirs, &session.project) {
        Ok(_) => Answer::Silent,
        Err(error) => Answer::Note(format!("clash: every action is denied: {error}")),
    })
}

/// Settings changed while the session runs. A project's come into force with the
/// next session, because a command of this one may have written them (a hook in
/// them would run outside every sandbox); the user's own unless they switch clash
/// off.
fn on_config_change(dirs: &Dirs, message: &Message) -> Answer {
    match message.source.as_str() {
        "policy_settings" | "skills" => Answer::Silent,
        "user_settings" => match claude::off_switch(&dirs.claude.join("settings.json")) {
            Some(what) => Answer::Deny { reason: format!("clash: the user's settings: {what}") },
            None => Answer::Silent,
        },
        _ => Answer::Deny {
            reason: "clash: settings of a project come into force with the next session".to_owned(),
        },
    }
}
