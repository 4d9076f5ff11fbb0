//! Messages and answers in Claude Code's words, which other clients use too.
//!
//! Seen with Claude Code 2.1.325, Codex 0.166, Qwen Code 0.24 and Droid 0.215. They honour
//! different parts of it: each client has its own [`ClaudeDialect`].

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    HookAnswer, HookEvent, HookMessage, HookReply, MessageError, ParsedMessage, SampleCall,
    ToolUseResult,
};
use crate::tool_input::{self, CallContext};

/// The part of Claude Code's words that one client honours.
#[derive(Debug)]
pub(crate) struct ClaudeDialect {
    /// Event names, their meaning, and whether the event takes a matcher.
    pub(crate) events: &'static [(&'static str, HookEvent, bool)],
    /// True if a refusal is a document: the model then reads only the reason. Otherwise a
    /// refusal is the exit status, which no other hook can weaken.
    pub(crate) deny_by_document: bool,
    /// True if the client shows a `systemMessage` to the user.
    pub(crate) system_message: bool,
}

/// A message as the client sends it. Unknown fields are ignored.
#[derive(Debug, Deserialize)]
struct ClaudeMessage {
    session_id: String,
    hook_event_name: String,
    #[serde(default)]
    cwd: String,
    #[serde(default)]
    permission_mode: String,
    #[serde(default)]
    tool_name: String,
    #[serde(default)]
    tool_input: Map<String, Value>,
    #[serde(default)]
    tool_use_id: String,
    #[serde(default)]
    tool_response: Value,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    duration_ms: Option<u64>,
    #[serde(default)]
    source: String,
}

/// A message about a command, in the words of Claude Code.
pub(crate) fn sample(event: &str, tool: &str, sample: &SampleCall<'_>) -> Value {
    json!({
        "session_id": sample.session, "transcript_path": "/dev/null", "cwd": sample.cwd,
        "permission_mode": "default", "hook_event_name": event, "tool_name": tool,
        "tool_input": {"command": sample.script}, "tool_use_id": "trial",
    })
}

impl ClaudeDialect {
    /// An unknown event, and a message about a tool without its name or directory, are
    /// errors.
    pub(crate) fn parse(&self, input: &[u8]) -> ParsedMessage {
        let sent: ClaudeMessage = serde_json::from_slice(input)?;
        let event = self
            .event(&sent.hook_event_name)
            .ok_or_else(|| MessageError::unknown_event(&sent.hook_event_name))?;
        let about_tool = matches!(event, HookEvent::BeforeTool | HookEvent::Question);
        if about_tool && sent.tool_name.is_empty() {
            return Err(MessageError::Missing("tool_name"));
        }
        if about_tool && sent.cwd.is_empty() {
            return Err(MessageError::Missing("cwd"));
        }
        let message = HookMessage {
            session: sent.session_id,
            cwd: sent.cwd,
            mode: sent.permission_mode,
            tool: sent.tool_name,
            input: sent.tool_input,
            call: sent.tool_use_id,
            output: collect_texts(&sent.tool_response),
            content: file_content(&sent.tool_response),
            error: sent.error,
            duration_ms: sent.duration_ms,
            source: sent.source,
            ..HookMessage::default()
        };
        Ok((event, message))
    }

    /// The meaning of an event name; `None` if the client does not send it.
    fn event(&self, name: &str) -> Option<HookEvent> {
        self.events.iter().find(|(known, ..)| *known == name).map(|(_, event, _)| *event)
    }

    /// The client's name for an event; empty if it has none.
    fn name(&self, event: HookEvent) -> &'static str {
        self.events.iter().find(|(_, known, _)| *known == event).map_or("", |(name, ..)| name)
    }

    /// The answer in the client's words; silent for an event that the client does not have.
    pub(crate) fn reply(&self, event: HookEvent, answer: HookAnswer) -> HookReply {
        if self.name(event).is_empty() {
            return HookReply::silent();
        }
        let document = match event {
            HookEvent::BeforeTool => self.before_tool(answer),
            HookEvent::Question => question(answer),
            HookEvent::SettingsChange => match answer {
                HookAnswer::Deny { reason } => Some(json!({"decision": "block", "reason": reason})),
                _ => None,
            },
            HookEvent::AfterTool
            | HookEvent::AfterFailure
            | HookEvent::SessionStart
            | HookEvent::SessionEnd => self.note(event, answer),
        };
        match document {
            Some(Value::String(reason)) => HookReply::blocked(reason),
            document => HookReply { document, blocks: None },
        }
    }

    /// The document of an answer. A bare text means: block with the exit status.
    fn before_tool(&self, answer: HookAnswer) -> Option<Value> {
        let (decision, reason, updated) = match answer {
            HookAnswer::Deny { reason } if !self.deny_by_document => {
                return Some(Value::String(reason));
            }
            HookAnswer::Allow { reason, updated_input } => ("allow", reason, updated_input),
            HookAnswer::Ask { reason, updated_input } => ("ask", reason, updated_input),
            HookAnswer::Deny { reason } => ("deny", reason, None),
            HookAnswer::Silent => return None,
            HookAnswer::Note(text) | HookAnswer::Context(text) if self.system_message => {
                return Some(json!({"systemMessage": text}));
            }
            HookAnswer::Note(_) | HookAnswer::Context(_) => return None,
        };
        let mut output = json!({
            "hookEventName": self.name(HookEvent::BeforeTool),
            "permissionDecision": decision,
            "permissionDecisionReason": reason,
        });
        if let (Some(updated), Some(output)) = (updated, output.as_object_mut()) {
            output.insert("updatedInput".to_owned(), Value::Object(updated));
        }
        Some(json!({"hookSpecificOutput": output}))
    }

    /// The document for an event at which the client can no longer refuse.
    fn note(&self, event: HookEvent, answer: HookAnswer) -> Option<Value> {
        let (text, to_user) = match answer {
            HookAnswer::Note(text) | HookAnswer::Deny { reason: text } => {
                (text, self.system_message)
            }
            HookAnswer::Context(text) => (text, false),
            HookAnswer::Allow { .. } | HookAnswer::Ask { .. } | HookAnswer::Silent => return None,
        };
        // SessionEnd has no output of its own.
        if event == HookEvent::SessionEnd {
            return to_user.then(|| json!({"systemMessage": text}));
        }
        let output = json!({"hookEventName": self.name(event), "additionalContext": text});
        Some(if to_user {
            json!({"systemMessage": text, "hookSpecificOutput": output})
        } else {
            json!({"hookSpecificOutput": output})
        })
    }
}

/// The client is about to ask the user. A rule that allows or denies answers for the user;
/// otherwise the user answers.
fn question(answer: HookAnswer) -> Option<Value> {
    let decision = match answer {
        HookAnswer::Allow { .. } => json!({"behavior": "allow"}),
        HookAnswer::Deny { reason } => json!({"behavior": "deny", "message": reason}),
        HookAnswer::Ask { .. }
        | HookAnswer::Silent
        | HookAnswer::Note(_)
        | HookAnswer::Context(_) => return None,
    };
    Some(
        json!({"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}),
    )
}

/// The tool use, for clients that name tools and fields as Claude Code does.
pub(crate) fn call(message: &HookMessage, context: &CallContext<'_>) -> ToolUseResult {
    tool_input::read_tool_use(&message.tool, &message.input, context).map(Some)
}

/// The input with another command.
pub(crate) fn rewrite(message: &HookMessage, command: &str) -> Option<Map<String, Value>> {
    let mut input = message.input.clone();
    input.insert("command".to_owned(), Value::String(command.to_owned()));
    Some(input)
}

/// The text of a file: `{"type": "text", "file": {"content": …}}`.
fn file_content(response: &Value) -> Option<String> {
    let is_text = response.get("type").and_then(Value::as_str) == Some("text");
    let content = response.pointer("/file/content").and_then(Value::as_str);
    content.filter(|_| is_text).map(str::to_owned)
}

/// Every text inside a value, a line each. Keys, numbers and truth values are left out.
pub(crate) fn collect_texts(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(collect_texts).collect::<Vec<_>>().join("\n"),
        Value::Object(members) => {
            members.values().map(collect_texts).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}
