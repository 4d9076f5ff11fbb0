//! Cursor, the editor and `cursor-agent`. The facts come from its documentation: clash was
//! never run with this client.
//!
//! `hooks.json` has an event for commands, for servers, for reading and for every other
//! tool. With `failClosed` a failed hook is a refusal, and so is the guard's status 2. The
//! event of a command can only judge it, so the hook tells the model the line to run
//! instead. Clash asks the user nothing: the effect of a question in this client is
//! unknown.
//!
//! Limits: the client does not send the name of a tool's server, so policies know the tool
//! as `mcp__cursor__TOOL`.

use std::path::{Path, PathBuf};

use clash_policy::{FileCaps, ToolInput};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::wiring::flat_hooks::FlatHooks;
use super::wiring::guard;
use super::wiring::{InstallScope, WiredFile};
use super::{
    Agent, AgentAbilities, AgentExtras, ConfinementMethod, HookAnswer, HookEvent, HookMessage,
    HookReply, MessageError, ParsedMessage, QuestionSupport, ToolUseResult, plugin,
};
use crate::context::UserContext;
use crate::tool_input::{self, CallContext, ToolError};

pub(crate) static AGENT: Agent = Agent {
    name: "cursor",
    title: "Cursor",
    abilities: AgentAbilities {
        program: "cursor-agent",
        // Its versions are dates.
        oldest: [0, 0, 0],
        asks: QuestionSupport::No,
        confines: ConfinementMethod::Instruct,
        project: None,
        session: None,
        moves_files: false,
        openings: &["{\"permission\":", "{\"agent_message\":"],
    },
    parse,
    sample: |sample| {
        json!({
            "hook_event_name": "beforeShellExecution", "conversation_id": sample.session,
            "workspace_roots": [sample.cwd], "cwd": sample.cwd, "command": sample.script,
        })
    },
    call,
    rewrite: |_, _| None,
    reply,
    files,
    steers,
    hostile: |_, _| None,
    extras: AgentExtras::NONE,
};

#[derive(Debug, Deserialize)]
struct CursorMessage {
    hook_event_name: String,
    conversation_id: String,
    #[serde(default)]
    workspace_roots: Vec<String>,
    #[serde(default)]
    cwd: String,
    #[serde(default)]
    command: String,
    #[serde(default)]
    file_path: String,
    #[serde(default)]
    tool_name: String,
    /// An object, or a text with an object.
    #[serde(default)]
    tool_input: Value,
    #[serde(default)]
    tool_use_id: String,
}

static EVENTS: [&str; 4] =
    ["beforeShellExecution", "beforeMCPExecution", "beforeReadFile", "preToolUse"];

/// Each event gives its tool a name of its own. A call that two events report is judged
/// once.
fn parse(input: &[u8]) -> ParsedMessage {
    let sent: CursorMessage = serde_json::from_slice(input)?;
    let root = sent.workspace_roots.into_iter().next().unwrap_or_default();
    let cwd = if sent.cwd.is_empty() { root } else { sent.cwd };
    if cwd.is_empty() {
        return Err(MessageError::Missing("cwd"));
    }
    let one = |key: &str, text: String| Map::from_iter([(key.to_owned(), Value::String(text))]);
    let (tool, input) = match sent.hook_event_name.as_str() {
        "beforeShellExecution" if !sent.command.is_empty() => {
            ("Shell".to_owned(), one("command", sent.command))
        }
        "beforeReadFile" if !sent.file_path.is_empty() => {
            ("Read".to_owned(), one("file_path", sent.file_path))
        }
        "beforeMCPExecution" if !sent.tool_name.is_empty() => {
            (format!("mcp__cursor__{}", sent.tool_name), object(sent.tool_input)?)
        }
        "preToolUse" if !sent.tool_name.is_empty() => match sent.tool_name.as_str() {
            // Other events judge these tools.
            "Shell" | "Read" => (OTHERS.to_owned(), Map::new()),
            name if name.starts_with("MCP:") => (OTHERS.to_owned(), Map::new()),
            name => (name.to_owned(), object(sent.tool_input)?),
        },
        name if EVENTS.contains(&name) => return Err(MessageError::Missing("tool_name")),
        other => return Err(MessageError::unknown_event(other)),
    };
    let message = HookMessage {
        session: sent.conversation_id,
        cwd,
        tool,
        input,
        call: sent.tool_use_id,
        ..HookMessage::default()
    };
    Ok((HookEvent::BeforeTool, message))
}

/// A call that another event judges.
const OTHERS: &str = "judged by another event";

/// The input as an object: itself, or the text of one. Nothing is an empty object, anything
/// else an error.
fn object(input: Value) -> Result<Map<String, Value>, MessageError> {
    match input {
        Value::Object(input) => Ok(input),
        Value::String(text) => Ok(serde_json::from_str(&text)?),
        Value::Null => Ok(Map::new()),
        _ => Err(MessageError::Missing("tool_input")),
    }
}

/// A call that another event judges, and a question to the user, touch nothing here. A
/// deletion is an `Edit` that needs the capability to delete.
fn call(message: &HookMessage, context: &CallContext<'_>) -> ToolUseResult {
    let (tool, input) = (message.tool.as_str(), &message.input);
    match tool {
        OTHERS | "AskQuestion" => Ok(None),
        "Shell" => plugin::read_renamed("Bash", input, &[], context),
        "Delete" => {
            let path = ["file_path", "path"].iter().find_map(|key| input.get(*key)?.as_str());
            let missing = || ToolError::Field { tool: tool.to_owned(), field: "path" };
            let file =
                tool_input::file_use(tool, path.ok_or_else(missing)?, FileCaps::DELETE, context)?;
            Ok(Some(("Edit".to_owned(), ToolInput::Files(vec![file]))))
        }
        "Write" | "Edit" | "StrReplace" | "MultiEdit" => {
            let name = if tool == "Write" { "Write" } else { "Edit" };
            plugin::read_renamed(name, input, &[("path", "file_path")], context)
        }
        _ => tool_input::read_tool_use(tool, input, context).map(Some),
    }
}

/// A deny or a question refuses; every other answer allows.
fn reply(_: HookEvent, answer: HookAnswer) -> HookReply {
    HookReply::document(match answer {
        HookAnswer::Deny { reason } | HookAnswer::Ask { reason, .. } => {
            json!({"permission": "deny", "agent_message": reason, "user_message": reason})
        }
        HookAnswer::Allow { .. }
        | HookAnswer::Silent
        | HookAnswer::Note(_)
        | HookAnswer::Context(_) => {
            json!({"permission": "allow"})
        }
    })
}

/// The hooks of the user, of a project, or of the machine.
fn files(user: &UserContext, scope: &InstallScope) -> Vec<WiredFile> {
    let dir = match scope {
        InstallScope::User => user.home.join(".cursor"),
        InstallScope::Project(project) => project.join(".cursor"),
        InstallScope::Managed => PathBuf::from("/etc/cursor"),
    };
    let line = guard::hook_line(user, AGENT.name, &AGENT.abilities);
    let edit = FlatHooks { agent: AGENT.name, events: &EVENTS, line, timeout: 30 };
    vec![WiredFile { file: dir.join("hooks.json"), edit: Box::new(edit) }]
}

/// The directories with the client's settings.
fn steers(user: &UserContext, project: &Path) -> Vec<PathBuf> {
    vec![user.home.join(".cursor"), project.join(".cursor")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{no_part_is_a_message, tool_uses};

    /// Messages from its documentation.
    const DOCUMENTED: &str = include_str!("../tests/fixtures/cursor/documented.jsonl");

    #[test]
    fn every_documented_message_is_understood() {
        assert_eq!(
            tool_uses(&AGENT, DOCUMENTED),
            [
                "Bash npm install express",
                "mcp__cursor__database_query",
                "Read /work/app/secrets.env r",
                "Write /work/app/main.ts wc",
                "Edit /work/app/old.ts d",
                "nothing",
            ]
        );
    }

    #[test]
    fn no_message_is_half_understood() {
        DOCUMENTED.lines().for_each(|line| no_part_is_a_message(&AGENT, line));
        let line = DOCUMENTED.lines().next().unwrap();
        assert!(parse(line.replace("beforeShellExecution", "beforeShell").as_bytes()).is_err());
        assert!(parse(line.replace("npm install express", "").as_bytes()).is_err());
    }

    #[test]
    fn a_question_of_clash_is_a_deny() {
        let said = |answer| reply(HookEvent::BeforeTool, answer).document.unwrap().to_string();
        let ask = HookAnswer::Ask { reason: "no".into(), updated_input: None };
        insta::assert_snapshot!(said(ask), @r#"{"agent_message":"no","permission":"deny","user_message":"no"}"#);
        let allow = HookAnswer::Allow { reason: String::new(), updated_input: None };
        insta::assert_snapshot!(said(allow), @r#"{"permission":"allow"}"#);
    }
}
