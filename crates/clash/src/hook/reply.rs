//! Sends the answer in the words of the agent.

use std::io::Write;

use clash_agents::{
    Agent, ConfinementMethod, HookAnswer, HookEvent, HookMessage, HookReply, ToolError,
};
use clash_policy::{Action, ToolInput};
use clash_shell::shell_quoted;
use serde_json::Value;

use crate::dirs::Dirs;
use crate::exit;
use crate::held_path::HeldPaths;

/// The command that prints a refusal is these two texts with the quoted reason between.
const PRINTS_REFUSAL: &str = "printf '%s\\n'";
const ENDS_REFUSED: &str = " >&2; exit 126";

/// Sends the answer in the client's words and returns the exit status. If it cannot be
/// written, the status blocks the call.
pub(super) fn send(
    agent: &Agent,
    event: HookEvent,
    message: &HookMessage,
    answer: HookAnswer,
) -> u8 {
    let answer = match answer {
        HookAnswer::Deny { reason } if event == HookEvent::BeforeTool => {
            deny(agent, message, reason)
        }
        answer => answer,
    };
    match (agent.reply)(event, answer) {
        HookReply { blocks: Some(reason), .. } => block(&reason),
        HookReply { document: Some(document), .. } => match print(&document) {
            Ok(()) => exit::OK,
            Err(_) => exit::BLOCKED,
        },
        HookReply { document: None, blocks: None } => exit::OK,
    }
}

/// Blocks by exit status 2. Some clients take the status for a refusal only if standard
/// error has a text.
pub(super) fn block(reason: &str) -> u8 {
    let _ = writeln!(std::io::stderr(), "{reason}");
    exit::BLOCKED
}

/// A refusal. For a client whose task ends at a refusal, it is a command that prints the
/// reason, so that the model reads it and goes on.
fn deny(agent: &Agent, message: &HookMessage, reason: String) -> HookAnswer {
    let command = || {
        if agent.abilities.confines != ConfinementMethod::RewriteAlways {
            return None;
        }
        let home = Dirs::from_env().ok()?.home;
        let is_command = matches!(
            agent.action(message, &home, &HeldPaths),
            Ok(Some(Action { input: ToolInput::Script(_), .. })) | Err(ToolError::SeveralCommands)
        );
        let line = format!("{PRINTS_REFUSAL} {}{ENDS_REFUSED}", shell_quoted(&reason));
        is_command.then(|| (agent.rewrite)(message, &line))?
    };
    match command() {
        Some(input) => HookAnswer::Allow { reason, updated_input: Some(input) },
        None => HookAnswer::Deny { reason },
    }
}

/// True for a command that prints a refusal and does nothing else.
pub(super) fn is_refusal(script: &str) -> bool {
    let quoted =
        script.strip_prefix(PRINTS_REFUSAL).and_then(|rest| rest.strip_suffix(ENDS_REFUSED));
    quoted.map(str::trim).is_some_and(|text| {
        let inner = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
        inner.is_some_and(|inner| shell_quoted(&inner.replace(r"'\''", "'")) == text)
    })
}

fn print(reply: &Value) -> std::io::Result<()> {
    let mut text = reply.to_string();
    text.push('\n');
    let mut stdout = std::io::stdout();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
