//! Gemini CLI's chats: `tmp/<project>/chats/session-*.jsonl`, and the single
//! document `session-*.json` of earlier versions. Seen with version 0.61.0.
//!
//! A message is written again when its calls have ended, so calls are told apart
//! by their ids. The directory is in a file beside `chats`.

use std::collections::HashSet;
use std::io::{self, BufRead};
use std::ops::ControlFlow;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::join::without_texts;
use crate::{CallId, CallOutcome, CallSink, ReadTally, SeenCall, lines, time};

/// A line: a message, a change of the conversation, or its head.
#[derive(Default, Deserialize)]
#[serde(default)]
struct GeminiLine {
    #[serde(rename = "sessionId")]
    session: Option<String>,
    #[serde(rename = "toolCalls")]
    calls: Vec<GeminiCall>,
    #[serde(rename = "$set")]
    set: Option<GeminiUpdate>,
    /// Of the single document.
    messages: Vec<GeminiMessage>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GeminiUpdate {
    messages: Vec<GeminiMessage>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GeminiMessage {
    #[serde(rename = "toolCalls")]
    calls: Vec<GeminiCall>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GeminiCall {
    id: String,
    name: String,
    args: Map<String, Value>,
    status: String,
    timestamp: Option<String>,
    result: Option<Value>,
}

/// Passes on the calls of a chat that have ended, each once. Also reads the file with the
/// project root beside `chats`.
pub(crate) fn read(
    path: &Path,
    mut from: impl BufRead,
    tally: &mut ReadTally,
    each: &mut CallSink<'_>,
) -> io::Result<ControlFlow<()>> {
    let root = path.parent().and_then(Path::parent).map(|dir| dir.join(".project_root"));
    let root = root.and_then(|file| std::fs::read_to_string(file).ok());
    let cwd = root.map(|text| text.trim().to_owned()).filter(|text| text.starts_with('/'));
    let mut known = HashSet::new();
    let mut session = String::new();
    let mut take = |line: GeminiLine| {
        let set = line.set.unwrap_or_default();
        session = line.session.unwrap_or(std::mem::take(&mut session));
        let messages = line.messages.into_iter().chain(set.messages);
        for call in line.calls.into_iter().chain(messages.flat_map(|message| message.calls)) {
            let ended =
                !matches!(call.status.as_str(), "" | "scheduled" | "executing" | "validating");
            if !ended || !known.insert(call.id.clone()) {
                continue;
            }
            each(SeenCall {
                when: call.timestamp.as_deref().and_then(time::parse),
                agent: "gemini",
                call: CallId { session: session.clone(), id: call.id.clone() },
                cwd: cwd.as_ref().map(Into::into),
                outcome: outcome(&call),
                tool: call.name,
                input: without_texts(call.args),
            })?;
        }
        ControlFlow::Continue(())
    };
    if path.extension().is_some_and(|it| it == "jsonl") {
        return lines::each(from, tally, take);
    }
    match serde_json::from_reader::<_, GeminiLine>(&mut from) {
        Ok(document) => Ok(take(document)),
        Err(error) if error.is_io() => Err(error.into()),
        Err(error) => {
            let foreign = u64::from(error.is_data());
            tally.foreign += foreign;
            tally.broken += 1 - foreign;
            Ok(ControlFlow::Continue(()))
        }
    }
}

/// The outcome of a call. A command that failed is a success to the client; the text of its
/// result has the exit code.
fn outcome(call: &GeminiCall) -> CallOutcome {
    match call.status.as_str() {
        "success" => {}
        "cancelled" => return CallOutcome::Refused,
        "error" => return CallOutcome::Failed,
        _ => return CallOutcome::Unknown,
    }
    let text =
        call.result.as_ref().and_then(|result| result.pointer("/0/functionResponse/response"));
    let text = text.and_then(|response| response.get("output")).and_then(Value::as_str);
    let failed = text.is_some_and(|text| {
        let mut codes = text.lines().filter_map(|line| line.strip_prefix("Exit Code: "));
        codes.any(|code| code.trim() != "0" && code.trim() != "(none)")
    });
    if failed { CallOutcome::Failed } else { CallOutcome::Ran }
}
