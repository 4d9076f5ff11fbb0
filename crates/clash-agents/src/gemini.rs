//! Gemini CLI: its messages, its replies and its settings.
//!
//! Seen with version 0.61. It has words of its own, ignores Claude Code's and then runs the
//! tool. A refusal is the exit status with a text. A question waits for ever if no user
//! sits at the terminal, so clash asks only if one does. A rewritten input must be
//! complete.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::claude_like::{self, collect_texts};
use super::wiring::guard;
use super::wiring::hook_entries::{self, CommandForm, HookEntries, HookFormat};
use super::wiring::{InstallScope, WholeFile, WiredFile};
use super::{
    Agent, AgentAbilities, AgentExtras, ConfinementMethod, HookAnswer, HookEvent, HookMessage,
    HookReply, MessageError, ParsedMessage, QuestionSupport, ToolUseResult,
};
use crate::context::UserContext;
use crate::tool_input::{self, CallContext, ToolError};
use crate::variables;

pub(crate) static AGENT: Agent = Agent {
    name: "gemini",
    title: "Gemini CLI",
    abilities: AgentAbilities {
        program: "gemini",
        oldest: [0, 50, 0],
        asks: QuestionSupport::Attended,
        confines: ConfinementMethod::Rewrite,
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
    extras: AgentExtras {
        command_rules: crate::own_rules::gemini_rules,
        // The history is in the home, also where a variable moves the settings.
        history: Some(|user| user.home.join(".gemini")),
        ..AgentExtras::NONE
    },
};

const EVENTS: &[(&str, HookEvent, bool)] = &[
    ("BeforeTool", HookEvent::BeforeTool, false),
    ("AfterTool", HookEvent::AfterTool, false),
    ("SessionStart", HookEvent::SessionStart, false),
    ("SessionEnd", HookEvent::SessionEnd, false),
];

/// Settings can also switch a hook off by its name. The time is in milliseconds.
static FORMAT: HookFormat = HookFormat {
    agent: "gemini",
    events: EVENTS,
    form: CommandForm::Shell,
    timeout: 30_000,
    members: &[("name", "clash")],
    prefix: false,
    comments: true,
    off: &[(&["hooksConfig", "enabled"], false)],
    off_lists: &[&["hooksConfig", "disabled"]],
};

#[derive(Debug, Deserialize)]
struct GeminiMessage {
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
    mcp_context: Option<GeminiServer>,
}

/// The server of a tool.
#[derive(Debug, Deserialize)]
struct GeminiServer {
    server_name: String,
    tool_name: String,
}

/// A tool of a server gets the name `mcp__SERVER__TOOL`.
fn parse(input: &[u8]) -> ParsedMessage {
    let sent: GeminiMessage = serde_json::from_slice(input)?;
    let known = EVENTS.iter().find(|(name, ..)| *name == sent.hook_event_name);
    let (_, event, _) = known.ok_or_else(|| MessageError::unknown_event(&sent.hook_event_name))?;
    if *event == HookEvent::BeforeTool && sent.tool_name.is_empty() {
        return Err(MessageError::Missing("tool_name"));
    }
    if *event == HookEvent::BeforeTool && sent.cwd.is_empty() {
        return Err(MessageError::Missing("cwd"));
    }
    let tool = match sent.mcp_context {
        Some(server) => format!("mcp__{}__{}", server.server_name, server.tool_name),
        None => sent.tool_name,
    };
    let message = HookMessage {
        session: sent.session_id,
        cwd: sent.cwd,
        tool,
        input: sent.tool_input,
        output: collect_texts(&sent.tool_response),
        ..HookMessage::default()
    };
    Ok((*event, message))
}

/// Tools that ask the user something and touch nothing.
const QUESTION_TOOLS: &[&str] = &["ask_user", "enter_plan_mode", "exit_plan_mode"];

/// A fetch without `url` is judged by every address in its prompt; none is an error. A
/// command runs in its own directory.
fn call(message: &HookMessage, context: &CallContext<'_>) -> ToolUseResult {
    if QUESTION_TOOLS.contains(&message.tool.as_str()) {
        return Ok(None);
    }
    let text = |key: &str| message.input.get(key).and_then(Value::as_str);
    match message.tool.as_str() {
        // The addresses are anywhere in the prompt.
        "web_fetch" if text("url").is_none() => {
            let hosts = tool_input::find_hosts("web_fetch", text("prompt").unwrap_or_default())?;
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

/// A deny before a tool is exit status 2; an allow or a question is a document. Afterwards
/// the client can only show a text.
fn reply(event: HookEvent, answer: HookAnswer) -> HookReply {
    let name = EVENTS.iter().find(|(_, known, _)| *known == event).map_or("", |(name, ..)| name);
    let decided = |decision: &str, reason: String, input: Option<Map<String, Value>>| {
        let mut document = json!({"decision": decision, "reason": reason});
        if let (Some(input), Some(document)) = (input, document.as_object_mut()) {
            let output = json!({"hookEventName": name, "tool_input": input});
            document.insert("hookSpecificOutput".to_owned(), output);
        }
        HookReply::document(document)
    };
    let context = |text: String| {
        HookReply::document(
            json!({"hookSpecificOutput": {"hookEventName": name, "additionalContext": text}}),
        )
    };
    match (event, answer) {
        (HookEvent::BeforeTool, HookAnswer::Allow { reason, updated_input }) => {
            decided("allow", reason, updated_input)
        }
        (HookEvent::BeforeTool, HookAnswer::Ask { reason, updated_input }) => {
            decided("ask", reason, updated_input)
        }
        (HookEvent::BeforeTool, HookAnswer::Deny { reason }) => HookReply::blocked(reason),
        (HookEvent::AfterTool | HookEvent::SessionStart, HookAnswer::Context(text)) => {
            context(text)
        }
        (
            HookEvent::AfterTool | HookEvent::SessionStart,
            HookAnswer::Note(text) | HookAnswer::Deny { reason: text },
        ) => HookReply::document(json!({
            "systemMessage": text,
            "hookSpecificOutput": {"hookEventName": name, "additionalContext": text},
        })),
        (_, HookAnswer::Note(text) | HookAnswer::Deny { reason: text }) => {
            HookReply::document(json!({"systemMessage": text}))
        }
        (
            _,
            HookAnswer::Allow { .. }
            | HookAnswer::Ask { .. }
            | HookAnswer::Silent
            | HookAnswer::Context(_),
        ) => HookReply::silent(),
    }
}

/// The directory of the client's settings.
pub(super) fn home(user: &UserContext) -> PathBuf {
    user.path_variable(variables::GEMINI_CLI_HOME)
        .unwrap_or_else(|| user.home.clone())
        .join(".gemini")
}

/// The settings of the user, of a project, or a whole file for the machine.
fn files(user: &UserContext, scope: &InstallScope) -> Vec<WiredFile> {
    let hook_command = guard::hook_line(user, AGENT.name, &AGENT.abilities);
    let wiring = HookEntries { format: &FORMAT, hook_command, prefix: None };
    let file = match scope {
        InstallScope::User => home(user).join("settings.json"),
        InstallScope::Project(project) => project.join(".gemini/settings.json"),
        InstallScope::Managed => {
            let members = json!({"hooksConfig": {"enabled": true}});
            let edit = WholeFile::managed(&wiring, members);
            let file = PathBuf::from("/etc/gemini-cli/settings.json");
            return vec![WiredFile { file, edit: Box::new(edit) }];
        }
    };
    vec![WiredFile { file, edit: Box::new(wiring) }]
}

/// The directories with the client's settings.
fn steers(user: &UserContext, project: &Path) -> Vec<PathBuf> {
    vec![home(user), project.join(".gemini"), "/etc/gemini-cli".into()]
}

/// A line about a project's settings that switch hooks off.
fn hostile(user: &UserContext, project: &Path) -> Option<String> {
    let own = home(user).join("settings.json");
    hook_entries::hostile(&project.join(".gemini/settings.json"), &own, &FORMAT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clash_policy::{HostUse, ToolInput};

    const SHELL: &str = r#"{"session_id":"daef7586-f7c4","transcript_path":"/t","cwd":"/p","hook_event_name":"BeforeTool","timestamp":"2026-11-16T04:05:00.000Z","tool_name":"run_shell_command","tool_input":{"command":"ls","description":"d","dir_path":"sub"}}"#;
    const SERVER: &str = r#"{"session_id":"daef7586-f7c4","transcript_path":"/t","cwd":"/p","hook_event_name":"BeforeTool","timestamp":"2026-11-16T04:05:00.000Z","tool_name":"mcp_lab_shout","tool_input":{"text":"abc"},"mcp_context":{"server_name":"lab","tool_name":"shout","command":"python3","args":["x"]}}"#;

    fn wanted(text: &str) -> ToolUseResult {
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
    fn answers_have_the_fields_that_gemini_reads() {
        let (_, message) = parse(SHELL.as_bytes()).unwrap();
        let updated_input = claude_like::rewrite(&message, "wrapped");
        let allow = HookAnswer::Allow { reason: "r".into(), updated_input };
        let said = reply(HookEvent::BeforeTool, allow).document.unwrap().to_string();
        insta::assert_snapshot!(said, @r#"{"decision":"allow","hookSpecificOutput":{"hookEventName":"BeforeTool","tool_input":{"command":"wrapped","description":"d","dir_path":"sub"}},"reason":"r"}"#);
        let deny = reply(HookEvent::BeforeTool, HookAnswer::Deny { reason: "no".into() });
        assert_eq!(deny, HookReply::blocked("no".into()));
    }
}
