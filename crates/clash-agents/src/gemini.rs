//! Gemini CLI: what its hooks send and what they understand.
//!
//! Seen with version 0.61. It has words of its own; Claude's are ignored, and the
//! tool runs. A refusal is the exit status with a text. A question where nobody
//! sits in front of it hangs for ever, so it is only put where somebody does.
//! The rewritten input must be the whole one.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::claude_like::{self, texts};
use super::wiring::guard;
use super::wiring::hook_entries::{self, Form, Shape, Wiring};
use super::wiring::{Scope, WholeFile, Wired};
use super::{
    Abilities, Agent, Answer, Asks, Confines, Event, Message, MessageError, Parsed, Reply, Wanted,
};
use crate::context::UserContext;
use crate::tool_input::{self, CallContext, ToolError};
use crate::variables;

pub(crate) static AGENT: Agent = Agent {
    name: "gemini",
    title: "Gemini CLI",
    abilities: Abilities {
        program: "gemini",
        oldest: [0, 50, 0],
        asks: Asks::Attended,
        confines: Confines::Rewrite,
        project: Some(variables::GEMINI_PROJECT_DIR),
        session: None,
        moves_files: true,
        openings: &["{\"decision\":", "{\"hookSpecificOutput\":", "{\"systemMessage\":"],
    },
    parse,
    sample: |sample| claude_like::sample("BeforeTool", "run_shell_command", sample),
    call,
    rewrite: claude_like::rewrite,
    reply,
    files,
    steers,
    hostile,
};

const EVENTS: &[(&str, Event, bool)] = &[
    ("BeforeTool", Event::BeforeTool, false),
    ("AfterTool", Event::AfterTool, false),
    ("SessionStart", Event::SessionStart, false),
    ("SessionEnd", Event::SessionEnd, false),
];

/// Hooks are switched off by their name, too; the time is in milliseconds.
static SHAPE: Shape = Shape {
    agent: "gemini",
    events: EVENTS,
    form: Form::Shell,
    timeout: 30_000,
    members: &[("name", "clash")],
    prefix: false,
    comments: true,
    off: &[(&["hooksConfig", "enabled"], false)],
    off_lists: &[&["hooksConfig", "disabled"]],
};

#[derive(Debug, Deserialize)]
struct Sent {
    session_id: String,
    hook_event_name: String,
    #[serde(default)]
    cwd: String,
    #[serde(default)]
    tool_name: String,
    #[serde(default)]
    tool_input: Map<String, Value>,
    #[serde(default)]
    tool_response: Value,
    #[serde(default)]
    mcp_context: Option<Server>,
}

/// Whose tool it is.
#[derive(Debug, Deserialize)]
struct Server {
    server_name: String,
    tool_name: String,
}

fn parse(input: &[u8]) -> Parsed {
    let sent: Sent = serde_json::from_slice(input)?;
    let known = EVENTS.iter().find(|(name, ..)| *name == sent.hook_event_name);
    let (_, event, _) = known.ok_or_else(|| {
        MessageError::UnknownEvent(crate::agent::printable(&sent.hook_event_name))
    })?;
    if *event == Event::BeforeTool && sent.tool_name.is_empty() {
        return Err(MessageError::Missing("tool_name"));
    }
    if *event == Event::BeforeTool && sent.cwd.is_empty() {
        return Err(MessageError::Missing("cwd"));
    }
    let tool = match sent.mcp_context {
        Some(server) => format!("mcp__{}__{}", server.server_name, server.tool_name),
        None => sent.tool_name,
    };
    let message = Message {
        session: sent.session_id,
        cwd: sent.cwd,
        tool,
        input: sent.tool_input,
        output: texts(&sent.tool_response),
        ..Message::default()
    };
    Ok((*event, message))
}

/// Tools that are themselves a question to the user and touch nothing.
const PROMPTS: &[&str] = &["ask_user", "enter_plan_mode", "exit_plan_mode"];

fn call(message: &Message, context: &CallContext<'_>) -> Wanted {
    if PROMPTS.contains(&message.tool.as_str()) {
        return Ok(None);
    }
    let text = |key: &str| message.input.get(key).and_then(Value::as_str);
    match message.tool.as_str() {
        // The addresses stand somewhere in the prompt.
        "web_fetch" if text("url").is_none() => {
            let hosts = tool_input::hosts_in("web_fetch", text("prompt").unwrap_or_default())?;
            if hosts.is_empty() {
                return Err(ToolError::Field { tool: message.tool.clone(), field: "prompt" });
            }
            Ok(Some(("WebFetch".to_owned(), clash_policy::ToolInput::Hosts(hosts))))
        }
        "run_shell_command" => {
            let cwd = text("dir_path").or(text("directory")).unwrap_or(".");
            let context = CallContext { cwd: &context.cwd.join(cwd), ..*context };
            claude_like::call(message, &context)
        }
        _ => claude_like::call(message, context),
    }
}

fn reply(event: Event, answer: Answer) -> Reply {
    let name = EVENTS.iter().find(|(_, known, _)| *known == event).map_or("", |(name, ..)| name);
    let decided = |decision: &str, reason: String, input: Option<Map<String, Value>>| {
        let mut document = json!({"decision": decision, "reason": reason});
        if let (Some(input), Some(document)) = (input, document.as_object_mut()) {
            let output = json!({"hookEventName": name, "tool_input": input});
            document.insert("hookSpecificOutput".to_owned(), output);
        }
        Reply::document(document)
    };
    let context = |text: String| {
        Reply::document(
            json!({"hookSpecificOutput": {"hookEventName": name, "additionalContext": text}}),
        )
    };
    match (event, answer) {
        (Event::BeforeTool, Answer::Allow { reason, updated_input }) => {
            decided("allow", reason, updated_input)
        }
        (Event::BeforeTool, Answer::Ask { reason, updated_input }) => {
            decided("ask", reason, updated_input)
        }
        (Event::BeforeTool, Answer::Deny { reason }) => Reply::blocked(reason),
        (Event::AfterTool | Event::SessionStart, Answer::Context(text)) => context(text),
        (
            Event::AfterTool | Event::SessionStart,
            Answer::Note(text) | Answer::Deny { reason: text },
        ) => Reply::document(json!({
            "systemMessage": text,
            "hookSpecificOutput": {"hookEventName": name, "additionalContext": text},
        })),
        (_, Answer::Note(text) | Answer::Deny { reason: text }) => {
            Reply::document(json!({"systemMessage": text}))
        }
        (_, Answer::Allow { .. } | Answer::Ask { .. } | Answer::Silent | Answer::Context(_)) => {
            Reply::silent()
        }
    }
}

pub(super) fn home(user: &UserContext) -> PathBuf {
    user.path_variable(variables::GEMINI_CLI_HOME)
        .unwrap_or_else(|| user.home.clone())
        .join(".gemini")
}

fn files(user: &UserContext, scope: &Scope) -> Vec<Wired> {
    let hook_command = guard::line(user, AGENT.name, &AGENT.abilities);
    let wiring = Wiring { shape: &SHAPE, hook_command, prefix: None };
    let file = match scope {
        Scope::User => home(user).join("settings.json"),
        Scope::Project(project) => project.join(".gemini/settings.json"),
        Scope::Managed => {
            let members = json!({"hooksConfig": {"enabled": true}});
            let edit = WholeFile::managed(&wiring, members);
            let file = PathBuf::from("/etc/gemini-cli/settings.json");
            return vec![Wired { file, edit: Box::new(edit) }];
        }
    };
    vec![Wired { file, edit: Box::new(wiring) }]
}

fn steers(user: &UserContext, project: &Path) -> Vec<PathBuf> {
    vec![home(user), project.join(".gemini"), "/etc/gemini-cli".into()]
}

fn hostile(user: &UserContext, project: &Path) -> Option<String> {
    let own = home(user).join("settings.json");
    hook_entries::hostile(&project.join(".gemini/settings.json"), &own, &SHAPE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clash_policy::{HostUse, ToolInput};

    const SHELL: &str = r#"{"session_id":"daef7586-f7c4","transcript_path":"/t","cwd":"/p","hook_event_name":"BeforeTool","timestamp":"2026-11-16T04:05:00.000Z","tool_name":"run_shell_command","tool_input":{"command":"ls","description":"d","dir_path":"sub"}}"#;
    const SERVER: &str = r#"{"session_id":"daef7586-f7c4","transcript_path":"/t","cwd":"/p","hook_event_name":"BeforeTool","timestamp":"2026-11-16T04:05:00.000Z","tool_name":"mcp_lab_shout","tool_input":{"text":"abc"},"mcp_context":{"server_name":"lab","tool_name":"shout","command":"python3","args":["x"]}}"#;

    fn wanted(text: &str) -> Wanted {
        let (_, message) = parse(text.as_bytes()).unwrap();
        call(&message, &CallContext::imagined("/p"))
    }

    #[test]
    fn real_messages_are_understood() {
        assert_eq!(wanted(SHELL).unwrap(), Some(("Bash".into(), ToolInput::Script("ls".into()))));
        let (tool, _) = wanted(SERVER).unwrap().unwrap();
        assert_eq!(tool, "mcp__lab__shout");
        assert!(parse(SHELL.replace("BeforeTool", "BeforeTools").as_bytes()).is_err());
        assert!(parse(SHELL.replace(r#""cwd":"/p","#, "").as_bytes()).is_err());
    }

    #[test]
    fn every_address_in_the_prompt_of_a_fetch_is_judged() {
        let fetch = |prompt: &str| {
            let input = json!({"prompt": prompt}).to_string();
            let text = SHELL
                .replace("run_shell_command", "web_fetch")
                .replace(r#"{"command":"ls","description":"d","dir_path":"sub"}"#, &input);
            wanted(&text)
        };
        let host = |host: &str, port| HostUse { host: host.into(), port };
        assert_eq!(
            fetch("compare https://docs.rs/x and (http://evil.test:8080/y)").unwrap().unwrap().1,
            ToolInput::Hosts(vec![host("docs.rs", 443), host("evil.test", 8080)])
        );
        assert!(fetch("no address").is_err());
    }

    #[test]
    fn answers_are_in_its_own_words() {
        let (_, message) = parse(SHELL.as_bytes()).unwrap();
        let updated_input = claude_like::rewrite(&message, "wrapped");
        let allow = Answer::Allow { reason: "r".into(), updated_input };
        let said = reply(Event::BeforeTool, allow).document.unwrap().to_string();
        insta::assert_snapshot!(said, @r#"{"decision":"allow","hookSpecificOutput":{"hookEventName":"BeforeTool","tool_input":{"command":"wrapped","description":"d","dir_path":"sub"}},"reason":"r"}"#);
        let deny = reply(Event::BeforeTool, Answer::Deny { reason: "no".into() });
        assert_eq!(deny, Reply::blocked("no".into()));
    }
}
