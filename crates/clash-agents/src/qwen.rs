//! Qwen Code: its messages, its replies and its settings.
//!
//! Seen with version 0.24. It uses Claude Code's words, but ignores a rewritten input and
//! runs the bare command. So the hook refuses every bare command and names the line that
//! runs it in its sandbox. The model runs that line, and the hook knows it by the approval
//! in it. A refusal is the exit status with a text.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::claude_like::{self, ClaudeDialect};
use super::wiring::guard;
use super::wiring::hook_entries::{self, CommandForm, HookEntries, HookFormat};
use super::wiring::{InstallScope, WholeFile, WiredFile};
use super::{
    Agent, AgentAbilities, AgentExtras, ConfinementMethod, HookEvent, HookMessage, QuestionSupport,
    ToolUseResult,
};
use crate::context::UserContext;
use crate::tool_input::CallContext;
use crate::variables;

pub(crate) static AGENT: Agent = Agent {
    name: "qwen",
    title: "Qwen Code",
    abilities: AgentAbilities {
        program: "qwen",
        oldest: [0, 20, 0],
        asks: QuestionSupport::Yes,
        confines: ConfinementMethod::Instruct,
        project: Some(variables::QWEN_PROJECT_DIR),
        session: None,
        moves_files: false,
        openings: &["{\"hookSpecificOutput\":", "{\"systemMessage\":"],
    },
    parse: |input| DIALECT.parse(input),
    sample: |sample| claude_like::sample("PreToolUse", "run_shell_command", sample),
    call,
    rewrite: |_, _| None,
    reply: |event, answer| DIALECT.reply(event, answer),
    files,
    steers,
    hostile,
    extras: AgentExtras::NONE,
};

const EVENTS: &[(&str, HookEvent, bool)] = &[
    ("PreToolUse", HookEvent::BeforeTool, false),
    ("PostToolUse", HookEvent::AfterTool, false),
    ("PostToolUseFailure", HookEvent::AfterFailure, false),
    ("SessionStart", HookEvent::SessionStart, false),
    ("SessionEnd", HookEvent::SessionEnd, false),
];

const DIALECT: ClaudeDialect =
    ClaudeDialect { events: EVENTS, deny_by_document: false, system_message: true };

/// The time is in seconds. The client reads a number from 1000 on as milliseconds.
static FORMAT: HookFormat = HookFormat {
    agent: "qwen",
    events: EVENTS,
    form: CommandForm::Shell,
    timeout: 30,
    members: &[("name", "clash")],
    prefix: false,
    comments: true,
    off: &[(&["disableAllHooks"], true), (&["hooksConfig", "enabled"], false)],
    off_lists: &[&["hooksConfig", "disabled"]],
};

/// Tools that ask the user something and touch nothing.
const QUESTION_TOOLS: &[&str] = &["ask_user_question", "exit_plan_mode", "enter_plan_mode"];

/// As for Claude Code. A command runs in its own `directory`, relative to the session's.
fn call(message: &HookMessage, context: &CallContext<'_>) -> ToolUseResult {
    if QUESTION_TOOLS.contains(&message.tool.as_str()) {
        return Ok(None);
    }
    let dir = message.input.get("directory").and_then(Value::as_str);
    match dir.filter(|_| message.command().is_some()) {
        Some(dir) => {
            let context = CallContext { cwd: &context.cwd.join(dir), ..*context };
            claude_like::call(message, &context)
        }
        None => claude_like::call(message, context),
    }
}

/// The directory of the client's settings.
fn home(user: &UserContext) -> PathBuf {
    user.path_variable(variables::QWEN_HOME).unwrap_or_else(|| user.home.join(".qwen"))
}

/// The settings of the user, of a project, or a whole file for the machine.
fn files(user: &UserContext, scope: &InstallScope) -> Vec<WiredFile> {
    let hook_command = guard::hook_line(user, AGENT.name, &AGENT.abilities);
    let wiring = HookEntries { format: &FORMAT, hook_command, prefix: None };
    let file = match scope {
        InstallScope::User => home(user).join("settings.json"),
        InstallScope::Project(project) => project.join(".qwen/settings.json"),
        InstallScope::Managed => {
            let edit = WholeFile::managed(&wiring, json!({"disableAllHooks": false}));
            let file = PathBuf::from("/etc/qwen-code/settings.json");
            return vec![WiredFile { file, edit: Box::new(edit) }];
        }
    };
    vec![WiredFile { file, edit: Box::new(wiring) }]
}

/// The directories with the client's settings: of the user, the project and the machine.
fn steers(user: &UserContext, project: &Path) -> Vec<PathBuf> {
    vec![home(user), project.join(".qwen"), "/etc/qwen-code".into()]
}

/// A line about a project's settings that switch hooks off.
fn hostile(user: &UserContext, project: &Path) -> Option<String> {
    let own = home(user).join("settings.json");
    hook_entries::hostile(&project.join(".qwen/settings.json"), &own, &FORMAT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HookAnswer, HookReply};
    use clash_policy::ToolInput;

    const PRE: &str = r#"{"session_id":"3703676b-4e91","transcript_path":"/t","cwd":"/p","hook_event_name":"PreToolUse","timestamp":"2026","permission_mode":"yolo","prompt_id":"3703676b########0","tool_name":"run_shell_command","tool_input":{"command":"ls","description":"d","is_background":false},"tool_use_id":"toolu_1","tool_call_id":"call_1_0"}"#;

    #[test]
    fn a_real_message_is_understood_with_both_its_ids() {
        let (event, message) = DIALECT.parse(PRE.as_bytes()).unwrap();
        assert_eq!((event, message.call.as_str()), (HookEvent::BeforeTool, "toolu_1"));
        let wanted = call(&message, &CallContext::imagined("/p"));
        assert_eq!(wanted.unwrap(), Some(("Bash".into(), ToolInput::Script("ls".into()))));
    }

    #[test]
    fn a_refusal_is_the_exit_status() {
        let reply = DIALECT.reply(HookEvent::BeforeTool, HookAnswer::Deny { reason: "no".into() });
        assert_eq!(reply, HookReply::blocked("no".into()));
    }
}
