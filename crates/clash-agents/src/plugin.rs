//! The words between clash and the plugins it writes, for clients that take code instead of
//! commands: OpenCode, Kilo, pi.
//!
//! A plugin sends `{"event", "session", "cwd", "tool", "input", "call"}`. It lets the tool
//! run after `{"decision": "allow"}`; an `input` in the answer replaces the tool's. After
//! `{"decision": "ask"}` pi asks its user, if it has a user interface, and lets the tool
//! run after a yes; OpenCode and Kilo refuse. Each plugin refuses after any other answer, and
//! if none comes within twenty seconds.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    HookAnswer, HookEvent, HookMessage, HookReply, MessageError, ParsedMessage, SampleCall,
    ToolUseResult,
};
use crate::context::UserContext;
use crate::tool_input::{self, CallContext};

/// The beginnings of valid answers.
pub(crate) const OPENINGS: &[&str] = &["{\"decision\":", "{\"note\":"];

/// In every plugin that clash wrote.
pub(crate) const MARK: &str = "// clash decides every tool call of this agent.";

/// The variable in which a plugin tells the hook its project.
pub(crate) const PROJECT: &str = "CLASH_PROJECT";

const EVENTS: &[(&str, HookEvent)] = &[
    ("before", HookEvent::BeforeTool),
    ("after", HookEvent::AfterTool),
    ("failed", HookEvent::AfterFailure),
    ("start", HookEvent::SessionStart),
    ("end", HookEvent::SessionEnd),
];

#[derive(Debug, Deserialize)]
struct PluginMessage {
    event: String,
    session: String,
    cwd: String,
    #[serde(default)]
    tool: String,
    #[serde(default)]
    input: Map<String, Value>,
    #[serde(default)]
    call: String,
    #[serde(default)]
    output: String,
}

/// Reads a message. One without its event, session or directory is an error, and so is one
/// before a tool call without the tool.
pub(crate) fn parse(input: &[u8]) -> ParsedMessage {
    let sent: PluginMessage = serde_json::from_slice(input)?;
    let event = EVENTS.iter().find(|(name, _)| *name == sent.event);
    let (_, event) = event.ok_or_else(|| MessageError::unknown_event(&sent.event))?;
    if *event == HookEvent::BeforeTool && sent.tool.is_empty() {
        return Err(MessageError::Missing("tool"));
    }
    if sent.cwd.is_empty() {
        return Err(MessageError::Missing("cwd"));
    }
    let message = HookMessage {
        session: sent.session,
        cwd: sent.cwd,
        tool: sent.tool,
        input: sent.input,
        call: sent.call,
        output: sent.output,
        ..HookMessage::default()
    };
    Ok((*event, message))
}

/// A message of the plugin about a command.
pub(crate) fn sample(sample: &SampleCall<'_>) -> Value {
    json!({
        "event": "before", "session": sample.session, "cwd": sample.cwd, "tool": "bash",
        "input": {"command": sample.script}, "call": "trial",
    })
}

/// A decision before a tool: only a deny or a question stops it. Afterwards the model can
/// only get a text.
pub(crate) fn reply(event: HookEvent, answer: HookAnswer) -> HookReply {
    if event != HookEvent::BeforeTool {
        return match answer {
            HookAnswer::Note(text)
            | HookAnswer::Context(text)
            | HookAnswer::Deny { reason: text } => HookReply::document(json!({"note": text})),
            HookAnswer::Allow { .. } | HookAnswer::Ask { .. } | HookAnswer::Silent => {
                HookReply::silent()
            }
        };
    }
    let (decision, reason, input) = match answer {
        HookAnswer::Allow { reason, updated_input } => ("allow", reason, updated_input),
        HookAnswer::Ask { reason, updated_input } => ("ask", reason, updated_input),
        HookAnswer::Deny { reason } => ("deny", reason, None),
        HookAnswer::Silent | HookAnswer::Note(_) | HookAnswer::Context(_) => {
            ("allow", String::new(), None)
        }
    };
    let mut document = json!({"decision": decision, "reason": reason});
    if let (Some(input), Some(document)) = (input, document.as_object_mut()) {
        document.insert("input".to_owned(), Value::Object(input));
    }
    HookReply::document(document)
}

/// The text of a plugin for this installation: the shared part and the body, with the paths
/// of clash filled in.
pub(crate) fn plugin_text(body: &str, user: &UserContext, agent: &str) -> String {
    let text = |path: std::path::PathBuf| json!(path.to_string_lossy()).to_string();
    [include_str!("plugin/ask.js"), body]
        .join("\n")
        .replace("\"@CLASH@\"", &text(user.installed("clash")))
        .replace("\"@SHELL@\"", &text(user.agents_shell()))
        .replace("@AGENT@", agent)
}

/// A tool use, with the fields under the names clash knows.
pub(crate) fn read_renamed(
    tool: &str,
    input: &Map<String, Value>,
    renamed: &[(&str, &str)],
    context: &CallContext<'_>,
) -> ToolUseResult {
    let name = |key: &String| {
        let new = renamed.iter().find(|(old, _)| old == key).map(|(_, new)| (*new).to_owned());
        new.unwrap_or_else(|| key.clone())
    };
    let input = input.iter().map(|(key, value)| (name(key), value.clone())).collect();
    tool_input::read_tool_use(tool, &input, context).map(Some)
}

/// A tool that policies match by its fields, whatever their names are.
pub(crate) fn read_fields(
    name: &str,
    input: &Map<String, Value>,
    context: &CallContext<'_>,
) -> ToolUseResult {
    let (_, input) = tool_input::read_tool_use("mcp__", input, context)?;
    Ok(Some((name.to_owned(), input)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BEFORE: &str = r#"{"event":"before","session":"ses_1","cwd":"/p","tool":"bash","input":{"command":"ls"},"call":"c1"}"#;

    #[test]
    fn a_message_is_understood_whole_or_not_at_all() {
        let (event, message) = parse(BEFORE.as_bytes()).unwrap();
        assert_eq!((event, message.command()), (HookEvent::BeforeTool, Some("ls")));
        for cut in 0..BEFORE.len() {
            assert!(parse(&BEFORE.as_bytes()[..cut]).is_err());
        }
        for bad in [
            BEFORE.replace("before", "befor"),
            BEFORE.replace(r#""tool":"bash","#, ""),
            BEFORE.replace("/p", ""),
            BEFORE.replace(r#"{"command":"ls"}"#, r#""ls""#),
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn decisions_and_notes_have_the_words_of_the_plugins() {
        let said = |answer| reply(HookEvent::BeforeTool, answer).document.unwrap().to_string();
        let deny = HookAnswer::Deny { reason: "no".into() };
        insta::assert_snapshot!(said(deny), @r#"{"decision":"deny","reason":"no"}"#);
        let ask = HookAnswer::Ask { reason: "why".into(), updated_input: None };
        insta::assert_snapshot!(said(ask), @r#"{"decision":"ask","reason":"why"}"#);
        let input = json!({"command": "x"}).as_object().cloned();
        let allow = HookAnswer::Allow { reason: "ok".into(), updated_input: input };
        insta::assert_snapshot!(said(allow), @r#"{"decision":"allow","input":{"command":"x"},"reason":"ok"}"#);
        assert_eq!(
            reply(HookEvent::AfterTool, HookAnswer::Note("look".into())).document,
            Some(json!({"note": "look"}))
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
