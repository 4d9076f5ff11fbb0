//! Properties of every agent, for any message and any answer.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{AGENTS, Agent, ConfinementMethod, HookAnswer, HookEvent, HookReply, QuestionSupport};
use crate::tool_input::NoLinkPaths;
use std::path::Path;

/// The effect of a reply on the client, as seen in the real clients.
#[derive(Debug, PartialEq)]
enum UnderstoodReply {
    Allow {
        reason: String,
        input: Option<Map<String, Value>>,
    },
    Ask {
        reason: String,
        input: Option<Map<String, Value>>,
    },
    Deny {
        reason: String,
    },
    /// No decision: the client runs the tool, or asks by its own rules.
    Nothing,
}

/// Reads a reply as the real clients do.
fn understood(reply: &HookReply) -> UnderstoodReply {
    if let Some(reason) = &reply.blocks {
        assert!(reply.document.is_none(), "{reply:?}");
        return UnderstoodReply::Deny { reason: reason.clone() };
    }
    let Some(document) = &reply.document else { return UnderstoodReply::Nothing };
    // The reply is text in the pipe.
    let document: Value = serde_json::from_str(&document.to_string()).unwrap();
    let output = document.get("hookSpecificOutput").unwrap_or(&document);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    // Cline knows only `cancel`. An allow of Cline or Cursor has no reason.
    let cancel = document["cancel"].as_bool().map(|cancel| if cancel { "deny" } else { "allow" });
    let said = [
        (text(&document["decision"]), text(&document["reason"])),
        (text(&output["permissionDecision"]), text(&output["permissionDecisionReason"])),
        (text(&document["permission"]), text(&document["agent_message"]).or(Some(String::new()))),
        (cancel.map(str::to_owned), text(&document["errorMessage"]).or(Some(String::new()))),
    ];
    let mut said = said.into_iter().filter_map(|(decision, reason)| Some((decision?, reason)));
    let Some((decision, reason)) = said.next() else { return UnderstoodReply::Nothing };
    let reason = reason.expect("every decision has its reason");
    let inputs = ["updatedInput", "tool_input", "input", "modifiedArgs", "overrideInput"];
    let input = inputs.iter().find_map(|name| output.get(*name)?.as_object().cloned());
    match decision.as_str() {
        "allow" => UnderstoodReply::Allow { reason, input },
        "ask" => UnderstoodReply::Ask { reason, input },
        "deny" => UnderstoodReply::Deny { reason },
        other => panic!("no client knows `{other}`"),
    }
}

/// Random JSON with the keys and texts that adapters read.
fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        "(\\.\\./|/|~/|[a-z]){0,6}".prop_map(Value::from),
        Just(json!("*** Begin Patch\n*** Add File: x\n")),
        Just(json!("https://docs.rs/")),
    ];
    let keys = prop_oneof![
        Just("session_id"),
        Just("hook_event_name"),
        Just("cwd"),
        Just("tool_name"),
        Just("tool_input"),
        Just("tool_response"),
        Just("command"),
        Just("file_path"),
        Just("path"),
        Just("pattern"),
        Just("url"),
        Just("prompt"),
        Just("mcp_context"),
    ];
    leaf.prop_recursive(3, 24, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(keys.clone(), inner, 0..6).prop_map(|members| {
                let members = members.into_iter().map(|(key, value)| (key.to_owned(), value));
                Value::Object(members.collect())
            }),
        ]
    })
}

/// A message of the right form with any content.
fn message() -> impl Strategy<Value = Value> {
    let events = prop_oneof![
        Just("PreToolUse"),
        Just("BeforeTool"),
        Just("PostToolUse"),
        Just("AfterTool"),
        Just("PermissionRequest"),
        Just("SessionStart"),
        Just("ConfigChange"),
    ];
    let tools = prop_oneof![
        Just("Bash".to_owned()),
        Just("run_shell_command".to_owned()),
        Just("apply_patch".to_owned()),
        Just("web_fetch".to_owned()),
        Just("Glob".to_owned()),
        Just("lab___shout".to_owned()),
        "[A-Za-z_]{1,12}",
    ];
    (events, tools, json(), json()).prop_map(|(event, tool, input, other)| {
        let mut message = json!({
            "session_id": "s", "cwd": "/p", "hook_event_name": event, "tool_name": tool,
            "tool_input": input,
        });
        if let (Some(message), Value::Object(more)) = (message.as_object_mut(), other) {
            message.extend(more);
        }
        message
    })
}

/// A rewritten input, or none.
fn input() -> impl Strategy<Value = Option<Map<String, Value>>> {
    let some = (".{0,20}", json()).prop_map(|(command, other)| {
        let mut input = Map::new();
        input.insert("command".to_owned(), Value::from(command));
        input.insert("other".to_owned(), other);
        input
    });
    prop::option::of(some)
}

/// Calls a test for every agent.
fn each(test: impl Fn(&'static Agent)) {
    AGENTS.iter().for_each(|agent| test(agent));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        each(|agent| drop((agent.parse)(&bytes)));
    }

    #[test]
    fn a_message_is_understood_or_refused(message in prop_oneof![message(), json()]) {
        let text = message.to_string();
        each(|agent| {
            if let Ok((_, message)) = (agent.parse)(text.as_bytes()) {
                let _ = agent.action(&message, Path::new("/home/u"), &NoLinkPaths);
            }
        });
    }

    /// A shell tool with a command in another form must not pass for a tool without a
    /// command.
    #[test]
    fn a_tool_with_a_command_is_never_judged_as_harmless(message in message()) {
        let text = message.to_string();
        each(|agent| {
            let Ok((HookEvent::BeforeTool, message)) = (agent.parse)(text.as_bytes()) else { return };
            let server = message.tool.starts_with("mcp__") || message.tool.contains("___");
            if server || !message.input.contains_key("command") {
                return;
            }
            if let Ok(Some(action)) = agent.action(&message, Path::new("/home/u"), &NoLinkPaths) {
                let patched = matches!(action.input, clash_policy::ToolInput::Files(_));
                let script = matches!(action.input, clash_policy::ToolInput::Script(_));
                let text = message.command().unwrap_or_default();
                assert!(script || (patched && text.contains("*** ")), "{}: {action:?}", agent.name);
            }
        });
    }

    #[test]
    fn an_answer_is_read_back_as_what_it_is(reason in ".{0,40}", input in input()) {
        each(|agent| {
            let reply = |answer| understood(&(agent.reply)(HookEvent::BeforeTool, answer));
            let deny = HookAnswer::Deny { reason: reason.clone() };
            assert_eq!(reply(deny), UnderstoodReply::Deny { reason: reason.clone() });
            let input = input.clone().filter(|_| agent.abilities.confines != ConfinementMethod::Instruct);
            let allow = HookAnswer::Allow { reason: reason.clone(), updated_input: input.clone() };
            match reply(allow) {
                UnderstoodReply::Allow { reason: said, input: given } => {
                    assert!(said == reason || said.is_empty(), "{}: {said}", agent.name);
                    assert_eq!(given, input, "{}", agent.name);
                }
                // A hook of Amazon Q can only refuse.
                UnderstoodReply::Nothing => assert!(["q", "kiro"].contains(&agent.name)),
                other => panic!("{}: {other:?}", agent.name),
            }
            if agent.abilities.asks != QuestionSupport::No {
                let ask = HookAnswer::Ask { reason: reason.clone(), updated_input: input.clone() };
                assert_eq!(reply(ask), UnderstoodReply::Ask { reason: reason.clone(), input });
            }
        });
    }

    #[test]
    fn an_answer_without_a_decision_refuses_and_rewrites_nothing(text in ".{0,40}") {
        each(|agent| {
            for answer in [HookAnswer::Silent, HookAnswer::Note(text.clone()), HookAnswer::Context(text.clone())] {
                let understood = understood(&(agent.reply)(HookEvent::BeforeTool, answer));
                // These clients take silence for a failure of the hook.
                let must_speak = ["opencode", "kilo", "pi", "cline", "cursor"].contains(&agent.name);
                let nothing = UnderstoodReply::Allow { reason: String::new(), input: None };
                assert!(understood == UnderstoodReply::Nothing || (must_speak && understood == nothing));
            }
        });
    }

    /// The guard blocks every output with another beginning.
    #[test]
    fn every_document_begins_as_the_guard_expects(text in ".{0,40}", input in input()) {
        const EVENTS: [HookEvent; 7] = [
            HookEvent::BeforeTool, HookEvent::Question, HookEvent::AfterTool, HookEvent::AfterFailure,
            HookEvent::SessionStart, HookEvent::SessionEnd, HookEvent::SettingsChange,
        ];
        let answers = [
            HookAnswer::Allow { reason: text.clone(), updated_input: input.clone() },
            HookAnswer::Ask { reason: text.clone(), updated_input: input },
            HookAnswer::Deny { reason: text.clone() },
            HookAnswer::Silent,
            HookAnswer::Context(text.clone()),
            HookAnswer::Note(text),
        ];
        each(|agent| for event in EVENTS {
            for answer in &answers {
                let Some(document) = (agent.reply)(event, answer.clone()).document else { continue };
                let shown = document.to_string();
                let opens = agent.abilities.openings.iter().any(|opening| shown.starts_with(opening));
                assert!(opens && shown.ends_with('}'), "{}: {shown}", agent.name);
            }
        });
    }
}
