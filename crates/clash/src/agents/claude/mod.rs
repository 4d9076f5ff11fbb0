//! Claude Code: what its hooks send and what they understand.
//!
//! Seen with version 2.1.325. A deny is honoured in every permission mode; an
//! answer that is not exactly one JSON document is ignored and the tool runs,
//! so nothing but the reply may ever reach standard output. Exit status 2 with
//! a text on standard error blocks whatever the event.

mod json_edit;
pub(crate) mod replace_file;
pub(crate) mod settings;
pub(crate) mod shell_prefix;
mod tools;

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::dirs::{Dirs, claude_dirs};
pub(crate) use tools::{action, is_prompt};

/// The events clash is installed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    PreToolUse,
    PermissionRequest,
    PostToolUse,
    PostToolUseFailure,
    SessionStart,
    SessionEnd,
    ConfigChange,
}

impl Event {
    /// Names as the client writes them, and whether the event takes a matcher.
    pub(crate) const ALL: [(&'static str, Self, bool); 7] = [
        ("PreToolUse", Self::PreToolUse, true),
        ("PostToolUse", Self::PostToolUse, true),
        ("PostToolUseFailure", Self::PostToolUseFailure, true),
        ("PermissionRequest", Self::PermissionRequest, true),
        ("ConfigChange", Self::ConfigChange, false),
        ("SessionStart", Self::SessionStart, false),
        ("SessionEnd", Self::SessionEnd, false),
    ];

    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, ..)| *known == name).map(|(_, event, _)| *event)
    }
}

/// One message from the client. Fields that an event does not have are empty.
#[derive(Debug, Deserialize)]
pub(crate) struct Message {
    pub(crate) session_id: String,
    pub(crate) hook_event_name: String,
    #[serde(default)]
    pub(crate) cwd: String,
    #[serde(default)]
    pub(crate) permission_mode: String,
    #[serde(default)]
    pub(crate) tool_name: String,
    #[serde(default)]
    pub(crate) tool_input: Map<String, Value>,
    #[serde(default)]
    pub(crate) tool_use_id: String,
    /// What a failed tool call reported.
    #[serde(default)]
    pub(crate) error: Option<String>,
    #[serde(default)]
    pub(crate) duration_ms: Option<u64>,
    /// What kind of settings a ConfigChange is about.
    #[serde(default)]
    pub(crate) source: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum MessageError {
    #[error("the message is not valid JSON of a hook: {0}")]
    Json(#[from] serde_json::Error),
    #[error("`{0}` is not an event clash knows")]
    UnknownEvent(String),
    #[error("the message has no `{0}`")]
    Missing(&'static str),
}

/// Reads a message and its event.
pub(crate) fn parse(input: &[u8]) -> Result<(Event, Message), MessageError> {
    let message: Message = serde_json::from_slice(input)?;
    let event = Event::named(&message.hook_event_name)
        .ok_or_else(|| MessageError::UnknownEvent(crate::say::brief(&message.hook_event_name)))?;
    let about_tool = matches!(event, Event::PreToolUse | Event::PermissionRequest);
    if about_tool && message.tool_name.is_empty() {
        return Err(MessageError::Missing("tool_name"));
    }
    if about_tool && message.cwd.is_empty() {
        return Err(MessageError::Missing("cwd"));
    }
    Ok((event, message))
}

/// What clash answers, before it is put into the words of an event.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    Allow {
        reason: String,
        updated_input: Option<Map<String, Value>>,
    },
    Ask {
        reason: String,
        updated_input: Option<Map<String, Value>>,
    },
    Deny {
        reason: String,
    },
    /// Nothing to say: the client goes on as if there were no hook.
    Silent,
    /// A word to the user and the model, which changes nothing.
    Note(String),
}

/// The one JSON document for standard output; `None` where silence is the
/// answer.
pub(crate) fn reply(event: Event, answer: Answer) -> Option<Value> {
    match event {
        Event::PreToolUse => pre_tool_use(answer),
        Event::PermissionRequest => permission_request(answer),
        Event::ConfigChange => match answer {
            Answer::Deny { reason } => Some(json!({"decision": "block", "reason": reason})),
            _ => None,
        },
        Event::PostToolUse
        | Event::PostToolUseFailure
        | Event::SessionStart
        | Event::SessionEnd => note(event, answer),
    }
}

fn pre_tool_use(answer: Answer) -> Option<Value> {
    let (decision, reason, updated) = match answer {
        Answer::Allow { reason, updated_input } => ("allow", reason, updated_input),
        Answer::Ask { reason, updated_input } => ("ask", reason, updated_input),
        Answer::Deny { reason } => ("deny", reason, None),
        Answer::Silent => return None,
        Answer::Note(text) => return Some(json!({"systemMessage": text})),
    };
    let mut output = json!({
        "hookEventName": "PreToolUse",
        "permissionDecision": decision,
        "permissionDecisionReason": reason,
    });
    if let (Some(updated), Some(output)) = (updated, output.as_object_mut()) {
        output.insert("updatedInput".to_owned(), Value::Object(updated));
    }
    Some(json!({"hookSpecificOutput": output}))
}

/// The client is about to ask the user: a rule that decides takes that from
/// them, anything else leaves the question to them.
fn permission_request(answer: Answer) -> Option<Value> {
    let decision = match answer {
        Answer::Allow { .. } => json!({"behavior": "allow"}),
        Answer::Deny { reason } => json!({"behavior": "deny", "message": reason}),
        Answer::Ask { .. } | Answer::Silent | Answer::Note(_) => return None,
    };
    Some(
        json!({"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}),
    )
}

/// Events where nothing can be refused any more.
fn note(event: Event, answer: Answer) -> Option<Value> {
    let text = match answer {
        Answer::Note(text) | Answer::Deny { reason: text } => text,
        Answer::Allow { .. } | Answer::Ask { .. } | Answer::Silent => return None,
    };
    let name = Event::ALL.iter().find(|(_, known, _)| *known == event).map(|(name, ..)| *name);
    // SessionEnd knows no output of its own.
    if event == Event::SessionEnd {
        return Some(json!({"systemMessage": text}));
    }
    Some(json!({
        "systemMessage": text,
        "hookSpecificOutput": {"hookEventName": name, "additionalContext": text},
    }))
}

/// What the settings that come with a project do against clash: switch hooks
/// off, take the shell prefix away, or make the client's own shell run code
/// before the launcher is reached.
pub(crate) fn hostile_settings(dirs: &Dirs, project: &Path) -> Option<String> {
    // Where the home is a repository, the user's own file is among them.
    let users_own = dirs.claude.join("settings.json");
    let files = claude_dirs(project)
        .into_iter()
        .flat_map(|dir| ["settings.json", "settings.local.json"].map(|name| dir.join(name)));
    files.filter(|file| *file != users_own).find_map(|file| {
        let what = hostile(&file)?;
        Some(format!("{}: {what}", file.display()))
    })
}

fn hostile(file: &Path) -> Option<String> {
    use std::io::ErrorKind;
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return None;
        }
        Err(error) => return Some(format!("clash cannot read it and the client may: {error}")),
    };
    match settings::inspect(&text) {
        Ok(found) if found.prefix.is_some() => Some("sets the shell prefix".to_owned()),
        Ok(found) => found.problems.iter().find(|p| p.is_hostile()).map(settings::describe),
        Err(error) => Some(format!("clash cannot read it and the client may: {error}")),
    }
}

/// What the user's own settings file, changed while a session runs, would do to
/// clash.
pub(crate) fn off_switch(own: &Path) -> Option<String> {
    let Ok(text) = std::fs::read_to_string(own) else {
        return Some("can no longer be read, and clash is installed there".to_owned());
    };
    match settings::inspect(&text) {
        Ok(found) => match found.problems.iter().find(|problem| !problem.is_users_own()) {
            Some(problem) => Some(settings::describe(problem)),
            None if !found.is_complete() => Some("no longer has clash in it".to_owned()),
            None => None,
        },
        // The client passes over a file it cannot read, and so its hooks.
        Err(error) => Some(format!("cannot be used any more: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRE: &str = r#"{"session_id":"s1","transcript_path":"/t","cwd":"/p","permission_mode":"default","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"ls","description":"d"},"tool_use_id":"toolu_1"}"#;

    #[test]
    fn a_real_message_is_understood() {
        let (event, message) = parse(PRE.as_bytes()).unwrap();
        assert_eq!(event, Event::PreToolUse);
        assert_eq!(message.tool_input["command"], "ls");
        assert_eq!(message.tool_use_id, "toolu_1");
    }

    #[test]
    fn what_is_not_a_message_is_an_error() {
        for cut in 0..PRE.len() {
            assert!(parse(&PRE.as_bytes()[..cut]).is_err());
        }
        for bad in [
            "null",
            "[]",
            "{}",
            &PRE.replace("PreToolUse", "PreToolUsed"),
            &PRE.replace(r#""tool_name":"Bash","#, ""),
            &PRE.replace(r#""cwd":"/p","#, ""),
            &PRE.replace(r#"{"command":"ls","description":"d"}"#, r#""ls""#),
            &PRE.replace(r#""session_id":"s1""#, r#""session_id":1"#),
            &format!("{PRE}{PRE}"),
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn answers_are_in_the_words_of_their_event() {
        let deny = || Answer::Deny { reason: "no".into() };
        let shown = |event, answer| reply(event, answer).map(|v| v.to_string()).unwrap_or_default();
        insta::assert_snapshot!(shown(Event::PreToolUse, deny()), @r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no"}}"#);
        insta::assert_snapshot!(shown(Event::PermissionRequest, deny()), @r#"{"hookSpecificOutput":{"decision":{"behavior":"deny","message":"no"},"hookEventName":"PermissionRequest"}}"#);
        insta::assert_snapshot!(shown(Event::ConfigChange, deny()), @r#"{"decision":"block","reason":"no"}"#);
        insta::assert_snapshot!(shown(Event::PostToolUse, Answer::Note("look".into())), @r#"{"hookSpecificOutput":{"additionalContext":"look","hookEventName":"PostToolUse"},"systemMessage":"look"}"#);
        assert_eq!(
            reply(
                Event::PermissionRequest,
                Answer::Ask { reason: String::new(), updated_input: None }
            ),
            None
        );
        assert_eq!(reply(Event::PreToolUse, Answer::Silent), None);
    }
}
