//! Messages and answers in Claude Code's words, which other clients took over.
//!
//! Seen with Claude Code 2.1.325, Codex 0.166, Qwen Code 0.24 and Droid 0.215.
//! They differ in what they honour: a client file says which [`Dialect`] it is.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Answer, Event, Message, MessageError, Parsed, Reply, Sample, Wanted};
use crate::tool_input::{self, CallContext};

/// What a client makes of Claude Code's words.
#[derive(Debug)]
pub(crate) struct Dialect {
    /// Event names and whether they take a matcher.
    pub(crate) events: &'static [(&'static str, Event, bool)],
    /// Whether a refusal is said as a document, so that the model sees no more
    /// than the reason. Elsewhere it is the exit status, which nothing weakens.
    pub(crate) deny_by_document: bool,
    /// Whether a word to the user (`systemMessage`) is understood.
    pub(crate) system_message: bool,
}

/// A message as it is sent; unknown fields are none of our business.
#[derive(Debug, Deserialize)]
struct Sent {
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
pub(crate) fn sample(event: &str, tool: &str, sample: &Sample<'_>) -> Value {
    json!({
        "session_id": sample.session, "transcript_path": "/dev/null", "cwd": sample.cwd,
        "permission_mode": "default", "hook_event_name": event, "tool_name": tool,
        "tool_input": {"command": sample.script}, "tool_use_id": "trial",
    })
}

impl Dialect {
    pub(crate) fn parse(&self, input: &[u8]) -> Parsed {
        let sent: Sent = serde_json::from_slice(input)?;
        let event = self.event(&sent.hook_event_name).ok_or_else(|| {
            MessageError::UnknownEvent(crate::agent::printable(&sent.hook_event_name))
        })?;
        let about_tool = matches!(event, Event::BeforeTool | Event::Question);
        if about_tool && sent.tool_name.is_empty() {
            return Err(MessageError::Missing("tool_name"));
        }
        if about_tool && sent.cwd.is_empty() {
            return Err(MessageError::Missing("cwd"));
        }
        let message = Message {
            session: sent.session_id,
            cwd: sent.cwd,
            mode: sent.permission_mode,
            tool: sent.tool_name,
            input: sent.tool_input,
            call: sent.tool_use_id,
            output: texts(&sent.tool_response),
            content: file_content(&sent.tool_response),
            error: sent.error,
            duration_ms: sent.duration_ms,
            source: sent.source,
        };
        Ok((event, message))
    }

    fn event(&self, name: &str) -> Option<Event> {
        self.events.iter().find(|(known, ..)| *known == name).map(|(_, event, _)| *event)
    }

    fn name(&self, event: Event) -> &'static str {
        self.events.iter().find(|(_, known, _)| *known == event).map_or("", |(name, ..)| name)
    }

    pub(crate) fn reply(&self, event: Event, answer: Answer) -> Reply {
        if self.name(event).is_empty() {
            return Reply::silent();
        }
        let document = match event {
            Event::BeforeTool => self.before_tool(answer),
            Event::Question => question(answer),
            Event::SettingsChange => match answer {
                Answer::Deny { reason } => Some(json!({"decision": "block", "reason": reason})),
                _ => None,
            },
            Event::AfterTool | Event::AfterFailure | Event::SessionStart | Event::SessionEnd => {
                self.note(event, answer)
            }
        };
        match document {
            Some(Value::String(reason)) => Reply::blocked(reason),
            document => Reply { document, blocks: None },
        }
    }

    /// A text where the exit status is to block.
    fn before_tool(&self, answer: Answer) -> Option<Value> {
        let (decision, reason, updated) = match answer {
            Answer::Deny { reason } if !self.deny_by_document => {
                return Some(Value::String(reason));
            }
            Answer::Allow { reason, updated_input } => ("allow", reason, updated_input),
            Answer::Ask { reason, updated_input } => ("ask", reason, updated_input),
            Answer::Deny { reason } => ("deny", reason, None),
            Answer::Silent => return None,
            Answer::Note(text) | Answer::Context(text) if self.system_message => {
                return Some(json!({"systemMessage": text}));
            }
            Answer::Note(_) | Answer::Context(_) => return None,
        };
        let mut output = json!({
            "hookEventName": self.name(Event::BeforeTool),
            "permissionDecision": decision,
            "permissionDecisionReason": reason,
        });
        if let (Some(updated), Some(output)) = (updated, output.as_object_mut()) {
            output.insert("updatedInput".to_owned(), Value::Object(updated));
        }
        Some(json!({"hookSpecificOutput": output}))
    }

    /// Events where nothing can be refused any more.
    fn note(&self, event: Event, answer: Answer) -> Option<Value> {
        let (text, to_user) = match answer {
            Answer::Note(text) | Answer::Deny { reason: text } => (text, self.system_message),
            Answer::Context(text) => (text, false),
            Answer::Allow { .. } | Answer::Ask { .. } | Answer::Silent => return None,
        };
        // SessionEnd knows no output of its own.
        if event == Event::SessionEnd {
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

/// The client is about to ask the user: a rule that decides takes that from
/// them, anything else leaves the question to them.
fn question(answer: Answer) -> Option<Value> {
    let decision = match answer {
        Answer::Allow { .. } => json!({"behavior": "allow"}),
        Answer::Deny { reason } => json!({"behavior": "deny", "message": reason}),
        Answer::Ask { .. } | Answer::Silent | Answer::Note(_) | Answer::Context(_) => return None,
    };
    Some(
        json!({"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}),
    )
}

/// The tool's input as it stands, for clients that call things as Claude does.
pub(crate) fn call(message: &Message, context: &CallContext<'_>) -> Wanted {
    tool_input::read(&message.tool, &message.input, context).map(Some)
}

/// The input with another `command` in it.
pub(crate) fn rewrite(message: &Message, command: &str) -> Option<Map<String, Value>> {
    let mut input = message.input.clone();
    input.insert("command".to_owned(), Value::String(command.to_owned()));
    Some(input)
}

/// Every text inside a value, a line each.
/// `{"type": "text", "file": {"content": …}}`
fn file_content(response: &Value) -> Option<String> {
    let is_text = response.get("type").and_then(Value::as_str) == Some("text");
    let content = response.pointer("/file/content").and_then(Value::as_str);
    content.filter(|_| is_text).map(str::to_owned)
}

pub(crate) fn texts(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(texts).collect::<Vec<_>>().join("\n"),
        Value::Object(members) => members.values().map(texts).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}
