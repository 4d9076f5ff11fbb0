//! What holds for every agent and any message or answer.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{AGENTS, Agent, Answer, Asks, Confines, Event, Reply};
use crate::tool_input::NoLinkPaths;
use std::path::Path;

/// What a client makes of a reply to the question whether a tool may run, as the
/// clients were seen to read it.
#[derive(Debug, PartialEq)]
enum Understood {
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
    /// Nothing was said: the client runs the tool, or asks by rules of its own.
    Nothing,
}

fn understood(reply: &Reply) -> Understood {
    if let Some(reason) = &reply.blocks {
        assert!(reply.document.is_none(), "{reply:?}");
        return Understood::Deny { reason: reason.clone() };
    }
    let Some(document) = &reply.document else { return Understood::Nothing };
    // Through text, as it goes over the pipe.
    let document: Value = serde_json::from_str(&document.to_string()).unwrap();
    let output = document.get("hookSpecificOutput").unwrap_or(&document);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    // Cline knows only this, and an allow of Cline's or Cursor's has no reason.
    let cancel = document["cancel"].as_bool().map(|cancel| if cancel { "deny" } else { "allow" });
    let said = [
        (text(&document["decision"]), text(&document["reason"])),
        (text(&output["permissionDecision"]), text(&output["permissionDecisionReason"])),
        (text(&document["permission"]), text(&document["agent_message"]).or(Some(String::new()))),
        (cancel.map(str::to_owned), text(&document["errorMessage"]).or(Some(String::new()))),
    ];
    let mut said = said.into_iter().filter_map(|(decision, reason)| Some((decision?, reason)));
    let Some((decision, reason)) = said.next() else { return Understood::Nothing };
    let reason = reason.expect("every decision has its reason");
    let inputs = ["updatedInput", "tool_input", "input", "modifiedArgs", "overrideInput"];
    let input = inputs.iter().find_map(|name| output.get(*name)?.as_object().cloned());
    match decision.as_str() {
        "allow" => Understood::Allow { reason, input },
        "ask" => Understood::Ask { reason, input },
        "deny" => Understood::Deny { reason },
        other => panic!("no client knows `{other}`"),
    }
}

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

/// A message that looks like one, with anything in it.
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

fn input() -> impl Strategy<Value = Option<Map<String, Value>>> {
    let some = (".{0,20}", json()).prop_map(|(command, other)| {
        let mut input = Map::new();
        input.insert("command".to_owned(), Value::from(command));
        input.insert("other".to_owned(), other);
        input
    });
    prop::option::of(some)
}

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

    /// A shell tool whose command is not understood must not pass for a tool
    /// without one.
    #[test]
    fn what_has_a_command_is_never_judged_as_something_harmless(message in message()) {
        let text = message.to_string();
        each(|agent| {
            let Ok((Event::BeforeTool, message)) = (agent.parse)(text.as_bytes()) else { return };
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
            let reply = |answer| understood(&(agent.reply)(Event::BeforeTool, answer));
            let deny = Answer::Deny { reason: reason.clone() };
            assert_eq!(reply(deny), Understood::Deny { reason: reason.clone() });
            let input = input.clone().filter(|_| agent.abilities.confines != Confines::Instruct);
            let allow = Answer::Allow { reason: reason.clone(), updated_input: input.clone() };
            match reply(allow) {
                Understood::Allow { reason: said, input: given } => {
                    assert!(said == reason || said.is_empty(), "{}: {said}", agent.name);
                    assert_eq!(given, input, "{}", agent.name);
                }
                // Amazon Q's hooks can only refuse.
                Understood::Nothing => assert!(["q", "kiro"].contains(&agent.name)),
                other => panic!("{}: {other:?}", agent.name),
            }
            if agent.abilities.asks != Asks::No {
                let ask = Answer::Ask { reason: reason.clone(), updated_input: input.clone() };
                assert_eq!(reply(ask), Understood::Ask { reason: reason.clone(), input });
            }
        });
    }

    #[test]
    fn nothing_but_an_allow_allows(text in ".{0,40}") {
        each(|agent| {
            for answer in [Answer::Silent, Answer::Note(text.clone()), Answer::Context(text.clone())] {
                let understood = understood(&(agent.reply)(Event::BeforeTool, answer));
                // There a hook that says nothing is a failed one.
                let must_speak = ["opencode", "kilo", "pi", "cline", "cursor"].contains(&agent.name);
                let nothing = Understood::Allow { reason: String::new(), input: None };
                assert!(understood == Understood::Nothing || (must_speak && understood == nothing));
            }
        });
    }

    /// The guard blocks what does not begin like one of these.
    #[test]
    fn every_document_begins_as_the_guard_expects(text in ".{0,40}", input in input()) {
        const EVENTS: [Event; 7] = [
            Event::BeforeTool, Event::Question, Event::AfterTool, Event::AfterFailure,
            Event::SessionStart, Event::SessionEnd, Event::SettingsChange,
        ];
        let answers = [
            Answer::Allow { reason: text.clone(), updated_input: input.clone() },
            Answer::Ask { reason: text.clone(), updated_input: input },
            Answer::Deny { reason: text.clone() },
            Answer::Silent,
            Answer::Context(text.clone()),
            Answer::Note(text),
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
