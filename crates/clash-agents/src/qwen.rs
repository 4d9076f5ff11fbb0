//! Qwen Code: what its hooks send and what they understand.
//!
//! Seen with version 0.24. Claude's words, but a rewritten input is ignored and
//! the bare command runs. So a bare command is always refused, with the line that
//! runs it in its sandbox; the model runs that line, and the hook knows it by the
//! approval in it. A refusal is the exit status with a text.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::claude_like::{self, Dialect};
use super::wiring::guard;
use super::wiring::hook_entries::{self, Form, Shape, Wiring};
use super::wiring::{Scope, WholeFile, Wired};
use super::{Abilities, Agent, Asks, Confines, Event, Message, Wanted};
use crate::context::UserContext;
use crate::tool_input::CallContext;
use crate::variables;

pub(crate) static AGENT: Agent = Agent {
    name: "qwen",
    title: "Qwen Code",
    abilities: Abilities {
        program: "qwen",
        oldest: [0, 20, 0],
        asks: Asks::Yes,
        confines: Confines::Instruct,
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
};

const EVENTS: &[(&str, Event, bool)] = &[
    ("PreToolUse", Event::BeforeTool, false),
    ("PostToolUse", Event::AfterTool, false),
    ("PostToolUseFailure", Event::AfterFailure, false),
    ("SessionStart", Event::SessionStart, false),
    ("SessionEnd", Event::SessionEnd, false),
];

const DIALECT: Dialect = Dialect { events: EVENTS, deny_by_document: false, system_message: true };

/// Seconds: from a thousand on the client reads milliseconds.
static SHAPE: Shape = Shape {
    agent: "qwen",
    events: EVENTS,
    form: Form::Shell,
    timeout: 30,
    members: &[("name", "clash")],
    prefix: false,
    comments: true,
    off: &[(&["disableAllHooks"], true), (&["hooksConfig", "enabled"], false)],
    off_lists: &[&["hooksConfig", "disabled"]],
};

/// Tools that are themselves a question to the user and touch nothing.
const PROMPTS: &[&str] = &["ask_user_question", "exit_plan_mode", "enter_plan_mode"];

fn call(message: &Message, context: &CallContext<'_>) -> Wanted {
    if PROMPTS.contains(&message.tool.as_str()) {
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

fn home(user: &UserContext) -> PathBuf {
    user.path_variable(variables::QWEN_HOME).unwrap_or_else(|| user.home.join(".qwen"))
}

fn files(user: &UserContext, scope: &Scope) -> Vec<Wired> {
    let hook_command = guard::line(user, AGENT.name, &AGENT.abilities);
    let wiring = Wiring { shape: &SHAPE, hook_command, prefix: None };
    let file = match scope {
        Scope::User => home(user).join("settings.json"),
        Scope::Project(project) => project.join(".qwen/settings.json"),
        Scope::Managed => {
            let edit = WholeFile::managed(&wiring, json!({"disableAllHooks": false}));
            let file = PathBuf::from("/etc/qwen-code/settings.json");
            return vec![Wired { file, edit: Box::new(edit) }];
        }
    };
    vec![Wired { file, edit: Box::new(wiring) }]
}

fn steers(user: &UserContext, project: &Path) -> Vec<PathBuf> {
    vec![home(user), project.join(".qwen"), "/etc/qwen-code".into()]
}

fn hostile(user: &UserContext, project: &Path) -> Option<String> {
    let own = home(user).join("settings.json");
    hook_entries::hostile(&project.join(".qwen/settings.json"), &own, &SHAPE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, Reply};
    use clash_policy::ToolInput;

    const PRE: &str = r#"{"session_id":"3703676b-4e91","transcript_path":"/t","cwd":"/p","hook_event_name":"PreToolUse","timestamp":"2026","permission_mode":"yolo","prompt_id":"3703676b########0","tool_name":"run_shell_command","tool_input":{"command":"ls","description":"d","is_background":false},"tool_use_id":"toolu_1","tool_call_id":"call_1_0"}"#;

    #[test]
    fn a_real_message_is_understood_with_both_its_ids() {
        let (event, message) = DIALECT.parse(PRE.as_bytes()).unwrap();
        assert_eq!((event, message.call.as_str()), (Event::BeforeTool, "toolu_1"));
        let wanted = call(&message, &CallContext::imagined("/p"));
        assert_eq!(wanted.unwrap(), Some(("Bash".into(), ToolInput::Script("ls".into()))));
    }

    #[test]
    fn a_refusal_is_the_exit_status() {
        let reply = DIALECT.reply(Event::BeforeTool, Answer::Deny { reason: "no".into() });
        assert_eq!(reply, Reply::blocked("no".into()));
    }
}
