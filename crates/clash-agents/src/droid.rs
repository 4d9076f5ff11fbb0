//! Factory Droid: its messages, its replies and its settings.
//!
//! Seen with version 0.215. It uses Claude Code's words, with tools of its own. Calls have
//! no id, and it does not report a command that failed. It runs a tool after an `ask`, so
//! clash never asks. A refusal is the exit status.

use std::path::{Path, PathBuf};

use super::claude_like::{self, ClaudeDialect};
use super::wiring::guard;
use super::wiring::hook_entries::{self, CommandForm, HookEntries, HookFormat};
use super::wiring::{InstallScope, WiredFile};
use super::{
    Agent, AgentAbilities, AgentExtras, ConfinementMethod, HookEvent, HookMessage, QuestionSupport,
    ToolUseResult, patch,
};
use crate::context::UserContext;
use crate::tool_input::{self, CallContext};
use crate::variables;

pub(crate) static AGENT: Agent = Agent {
    name: "droid",
    title: "Factory Droid",
    abilities: AgentAbilities {
        program: "droid",
        oldest: [0, 200, 0],
        asks: QuestionSupport::No,
        confines: ConfinementMethod::Rewrite,
        project: Some(variables::FACTORY_PROJECT_DIR),
        session: None,
        moves_files: true,
        openings: &["{\"hookSpecificOutput\":", "{\"systemMessage\":"],
    },
    parse: |input| DIALECT.parse(input),
    sample: |sample| claude_like::sample("PreToolUse", "Execute", sample),
    call,
    rewrite: claude_like::rewrite,
    reply: |event, answer| DIALECT.reply(event, answer),
    files,
    steers,
    hostile,
    extras: AgentExtras { command_rules: crate::own_rules::droid_rules, ..AgentExtras::NONE },
};

const EVENTS: &[(&str, HookEvent, bool)] = &[
    ("PreToolUse", HookEvent::BeforeTool, true),
    ("PostToolUse", HookEvent::AfterTool, true),
    ("SessionStart", HookEvent::SessionStart, false),
    ("SessionEnd", HookEvent::SessionEnd, false),
];

const DIALECT: ClaudeDialect =
    ClaudeDialect { events: EVENTS, deny_by_document: false, system_message: true };

static FORMAT: HookFormat = HookFormat {
    agent: "droid",
    events: EVENTS,
    form: CommandForm::Shell,
    timeout: 30,
    members: &[],
    prefix: false,
    comments: true,
    off: &[(&["hooksDisabled"], true)],
    off_lists: &[],
};

/// A field `input` or `patch` with a patch is judged by its paths. A tool `server___name`
/// is a tool of a server.
fn call(message: &HookMessage, context: &CallContext<'_>) -> ToolUseResult {
    if message.tool == "AskUser" {
        return Ok(None);
    }
    let patch = ["input", "patch"].iter().find_map(|key| message.input.get(*key)?.as_str());
    if let Some(patch) = patch.filter(|text| patch::is_patch(text)) {
        return patch::patched_files(&message.tool, patch, context).map(Some);
    }
    match message.tool.split_once("___") {
        Some((server, tool)) => {
            tool_input::read_tool_use(&format!("mcp__{server}__{tool}"), &message.input, context)
                .map(Some)
        }
        None => claude_like::call(message, context),
    }
}

/// The directory of the client's settings.
pub(super) fn home(user: &UserContext) -> PathBuf {
    user.path_variable(variables::FACTORY_HOME_OVERRIDE)
        .unwrap_or_else(|| user.home.clone())
        .join(".factory")
}

/// The settings of the user or of a project. There are none for the machine.
fn files(user: &UserContext, scope: &InstallScope) -> Vec<WiredFile> {
    let file = match scope {
        InstallScope::User => home(user).join("settings.json"),
        InstallScope::Project(project) => project.join(".factory/settings.json"),
        InstallScope::Managed => return Vec::new(),
    };
    let hook_command = guard::hook_line(user, AGENT.name, &AGENT.abilities);
    let wiring = HookEntries { format: &FORMAT, hook_command, prefix: None };
    vec![WiredFile { file, edit: Box::new(wiring) }]
}

/// The directories with the client's settings.
fn steers(user: &UserContext, project: &Path) -> Vec<PathBuf> {
    vec![home(user), project.join(".factory")]
}

/// A line about a project's settings that switch hooks off.
fn hostile(user: &UserContext, project: &Path) -> Option<String> {
    let own = home(user).join("settings.json");
    hook_entries::hostile(&project.join(".factory/settings.json"), &own, &FORMAT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clash_policy::ToolInput;

    const PRE: &str = r#"{"session_id":"d5b676a6-95e6","transcript_path":"/t","cwd":"/p","permission_mode":"auto-high","hook_event_name":"PreToolUse","tool_name":"Execute","tool_input":{"command":"ls","riskLevelReason":"t","riskLevel":"low"}}"#;

    /// The tool and input that clash judges for a call.
    fn wanted(tool: &str, input: serde_json::Value) -> (String, ToolInput) {
        let mut message = DIALECT.parse(PRE.as_bytes()).unwrap().1;
        message.tool = tool.into();
        message.input = input.as_object().unwrap().clone();
        call(&message, &CallContext::imagined("/p")).unwrap().unwrap()
    }

    #[test]
    fn tools_of_droid_have_the_names_of_policies() {
        use serde_json::json;
        let named = |tool: &str, input| wanted(tool, input).0;
        assert_eq!(named("Execute", json!({"command": "ls"})), "Bash");
        assert_eq!(named("Create", json!({"file_path": "/x", "content": ""})), "Write");
        assert_eq!(named("LS", json!({"directory_path": "/x"})), "LS");
        assert_eq!(named("FetchUrl", json!({"url": "https://docs.rs"})), "WebFetch");
        assert_eq!(named("lab___shout", json!({"text": "a"})), "mcp__lab__shout");
        let patch = "*** Begin Patch\n*** Delete File: /etc/x\n*** End Patch";
        assert_eq!(named("ApplyPatch", json!({"input": patch})), "Edit");
    }
}
