//! The words between clash and the plugins it writes for agents that take code
//! instead of commands: OpenCode, Kilo, pi.
//!
//! A plugin sends `{"event", "session", "cwd", "tool", "input", "call"}` and lets
//! the tool run only for `{"decision": "allow"}`; with an `input` in it, that
//! takes the place of the tool's. Whatever else comes back, or nothing within
//! twenty seconds, is a refusal: the plugin's own code says so.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Answer, Event, Message, MessageError, Parsed, Reply, Sample, Wanted};
use crate::context::UserContext;
use crate::tool_input::{self, CallContext};

/// How answers begin.
pub(crate) const OPENINGS: &[&str] = &["{\"decision\":", "{\"note\":"];

/// Stands in every plugin clash has written.
pub(crate) const MARK: &str = "// clash decides every tool call of this agent.";

/// The variable in which a plugin tells the hook its project.
pub(crate) const PROJECT: &str = "CLASH_PROJECT";

const EVENTS: &[(&str, Event)] = &[
    ("before", Event::BeforeTool),
    ("after", Event::AfterTool),
    ("failed", Event::AfterFailure),
    ("start", Event::SessionStart),
    ("end", Event::SessionEnd),
];

#[derive(Debug, Deserialize)]
struct Sent {
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

pub(crate) fn parse(input: &[u8]) -> Parsed {
    let sent: Sent = serde_json::from_slice(input)?;
    let event = EVENTS.iter().find(|(name, _)| *name == sent.event);
    let (_, event) =
        event.ok_or_else(|| MessageError::UnknownEvent(crate::agent::printable(&sent.event)))?;
    if *event == Event::BeforeTool && sent.tool.is_empty() {
        return Err(MessageError::Missing("tool"));
    }
    if sent.cwd.is_empty() {
        return Err(MessageError::Missing("cwd"));
    }
    let message = Message {
        session: sent.session,
        cwd: sent.cwd,
        tool: sent.tool,
        input: sent.input,
        call: sent.call,
        output: sent.output,
        ..Message::default()
    };
    Ok((*event, message))
}

/// A message of the plugin about a command.
pub(crate) fn sample(sample: &Sample<'_>) -> Value {
    json!({
        "event": "before", "session": sample.session, "cwd": sample.cwd, "tool": "bash",
        "input": {"command": sample.script}, "call": "trial",
    })
}

pub(crate) fn reply(event: Event, answer: Answer) -> Reply {
    if event != Event::BeforeTool {
        return match answer {
            Answer::Note(text) | Answer::Context(text) | Answer::Deny { reason: text } => {
                Reply::document(json!({"note": text}))
            }
            Answer::Allow { .. } | Answer::Ask { .. } | Answer::Silent => Reply::silent(),
        };
    }
    let (decision, reason, input) = match answer {
        Answer::Allow { reason, updated_input } => ("allow", reason, updated_input),
        Answer::Ask { reason, updated_input } => ("ask", reason, updated_input),
        Answer::Deny { reason } => ("deny", reason, None),
        Answer::Silent | Answer::Note(_) | Answer::Context(_) => ("allow", String::new(), None),
    };
    let mut document = json!({"decision": decision, "reason": reason});
    if let (Some(input), Some(document)) = (input, document.as_object_mut()) {
        document.insert("input".to_owned(), Value::Object(input));
    }
    Reply::document(document)
}

/// The text of a plugin with the paths of this installation in it.
pub(crate) fn written(body: &str, user: &UserContext, agent: &str) -> String {
    let text = |path: std::path::PathBuf| json!(path.to_string_lossy()).to_string();
    [include_str!("plugin/ask.js"), body]
        .join("\n")
        .replace("\"@CLASH@\"", &text(user.installed("clash")))
        .replace("\"@SHELL@\"", &text(user.agents_shell()))
        .replace("@AGENT@", agent)
}

/// A tool's input under the names clash knows.
pub(crate) fn read(
    tool: &str,
    input: &Map<String, Value>,
    renamed: &[(&str, &str)],
    context: &CallContext<'_>,
) -> Wanted {
    let name = |key: &String| {
        let new = renamed.iter().find(|(old, _)| old == key).map(|(_, new)| (*new).to_owned());
        new.unwrap_or_else(|| key.clone())
    };
    let input = input.iter().map(|(key, value)| (name(key), value.clone())).collect();
    tool_input::read(tool, &input, context).map(Some)
}

/// A tool that is known by its fields, whatever they are called.
pub(crate) fn fields(name: &str, input: &Map<String, Value>, context: &CallContext<'_>) -> Wanted {
    let (_, input) = tool_input::read("mcp__", input, context)?;
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
        assert_eq!((event, message.command()), (Event::BeforeTool, Some("ls")));
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
    fn only_an_allow_says_allow() {
        let said = |answer| reply(Event::BeforeTool, answer).document.unwrap().to_string();
        let deny = Answer::Deny { reason: "no".into() };
        insta::assert_snapshot!(said(deny), @r#"{"decision":"deny","reason":"no"}"#);
        let ask = Answer::Ask { reason: "why".into(), updated_input: None };
        insta::assert_snapshot!(said(ask), @r#"{"decision":"ask","reason":"why"}"#);
        let input = json!({"command": "x"}).as_object().cloned();
        let allow = Answer::Allow { reason: "ok".into(), updated_input: input };
        insta::assert_snapshot!(said(allow), @r#"{"decision":"allow","input":{"command":"x"},"reason":"ok"}"#);
        assert_eq!(
            reply(Event::AfterTool, Answer::Note("look".into())).document,
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
