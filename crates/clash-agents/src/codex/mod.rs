//! Codex CLI: its messages, its replies and its settings.
//!
//! Seen with version 0.166. It uses Claude Code's words and is stricter: after an unknown
//! field, a missing reason or an `ask` it runs the tool. So clash refuses with the exit
//! status and never asks. The hook puts clash in front of commands. The client itself
//! carries out `apply_patch`, also as a lone here-document in a shell command: there the
//! hook judges the paths.
//!
//! No hook sees `write_stdin` into a running command, which stays in its sandbox, or
//! searches on the model's server.

mod config;
mod own_sandbox;

use std::path::{Path, PathBuf};

use super::claude_like::{self, ClaudeDialect};
use super::wiring::guard;
use super::wiring::{ClashCall, HookCommand, InstallScope, SettingsError, WholeFile, WiredFile};
use super::{
    Agent, AgentAbilities, AgentExtras, ConfinementMethod, HookEvent, HookMessage, QuestionSupport,
    ToolUseResult, patch,
};
use crate::context::{UserContext, settings_roots};
use crate::tool_input::CallContext;
use crate::variables;

pub(crate) static AGENT: Agent = Agent {
    name: "codex",
    title: "Codex CLI",
    abilities: AgentAbilities {
        program: "codex",
        oldest: [0, 160, 0],
        asks: QuestionSupport::No,
        confines: ConfinementMethod::Rewrite,
        project: None,
        session: None,
        moves_files: false,
        openings: &["{\"hookSpecificOutput\":"],
    },
    parse: |input| DIALECT.parse(input),
    sample: |sample| claude_like::sample("PreToolUse", "Bash", sample),
    call,
    rewrite: claude_like::rewrite,
    reply: |event, answer| DIALECT.reply(event, answer),
    files,
    steers,
    hostile,
    extras: AgentExtras {
        command_rules: crate::own_rules::codex_rules,
        history: Some(home),
        importable,
        ..AgentExtras::NONE
    },
};

/// Without the end of a session: `codex exec` does not report it.
const EVENTS: &[(&str, HookEvent, bool)] = &[
    ("PreToolUse", HookEvent::BeforeTool, false),
    ("PostToolUse", HookEvent::AfterTool, false),
    ("PermissionRequest", HookEvent::Question, false),
    ("SessionStart", HookEvent::SessionStart, false),
];

const DIALECT: ClaudeDialect =
    ClaudeDialect { events: EVENTS, deny_by_document: false, system_message: false };

/// A patch is judged by its paths, also one in a lone here-document of a command.
fn call(message: &HookMessage, context: &CallContext<'_>) -> ToolUseResult {
    let text = message.command().unwrap_or_default();
    if message.tool == "apply_patch" {
        return patch::patched_files(&message.tool, text, context).map(Some);
    }
    if let Some((dir, patch)) = patch::find_in_shell(text) {
        let cwd = dir.map_or_else(|| context.cwd.to_path_buf(), |dir| context.cwd.join(dir));
        return patch::patched_files("apply_patch", patch, &CallContext { cwd: &cwd, ..*context })
            .map(Some);
    }
    if message.tool == "request_user_input" {
        return Ok(None);
    }
    claude_like::call(message, context)
}

/// The directory of the client's settings.
pub(super) fn home(user: &UserContext) -> PathBuf {
    user.path_variable(variables::CODEX_HOME).unwrap_or_else(|| user.home.join(".codex"))
}

/// The settings of the user, or a whole file for the machine. There are none for a project.
fn files(user: &UserContext, scope: &InstallScope) -> Vec<WiredFile> {
    let line = guard::hook_line(user, AGENT.name, &AGENT.abilities);
    match scope {
        InstallScope::User => {
            let file = home(user).join("config.toml");
            let edit = config::CodexHooks { file: file.clone(), line };
            vec![WiredFile { file, edit: Box::new(edit) }]
        }
        // Each user would have to trust its hooks in their own settings.
        InstallScope::Project(_) => Vec::new(),
        InstallScope::Managed => {
            let edit = WholeFile {
                agent: AGENT.name,
                text: config::requirements(&line, &user.state),
                mark: config::MARK,
                calls: ClashCall::Toml,
            };
            let file = PathBuf::from("/etc/codex/requirements.toml");
            vec![WiredFile { file, edit: Box::new(edit) }]
        }
    }
}

/// `config.toml` and the files in `rules`, of the user and of the project.
fn importable(user: &UserContext, project: &Path) -> Vec<PathBuf> {
    let dirs = [home(user), project.join(".codex")];
    let mut files = dirs.each_ref().map(|dir| dir.join("config.toml")).to_vec();
    for dir in dirs {
        let entries = std::fs::read_dir(dir.join("rules")).into_iter().flatten().flatten();
        let mut rules: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        rules.retain(|path| path.extension().is_some_and(|extension| extension == "rules"));
        rules.sort();
        files.extend(rules);
    }
    files
}

/// The commands in a TOML text that judge tool calls.
pub(super) fn commands(text: &str) -> Result<Vec<HookCommand>, SettingsError> {
    config::commands(text)
}

/// The directories with the client's settings.
fn steers(user: &UserContext, project: &Path) -> Vec<PathBuf> {
    let mut paths = vec![home(user), "/etc/codex".into()];
    paths.extend(of_project(project));
    paths
}

/// The client reads `.codex` of every directory up to the root of the repository.
fn of_project(project: &Path) -> Vec<PathBuf> {
    settings_roots(project).into_iter().map(|root| root.join(".codex")).collect()
}

/// A line about a project's settings that switch every hook off. A trusted project can do
/// that, also to those of the machine, and `codex exec` trusts a project without an entry.
fn hostile(user: &UserContext, project: &Path) -> Option<String> {
    let own = home(user);
    of_project(project).into_iter().filter(|dir| *dir != own).find_map(|dir| {
        let file = dir.join("config.toml");
        let what = config::against_clash(&file)?;
        Some(format!("{}: {what}", file.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HookAnswer, HookReply};
    use clash_policy::ToolInput;

    const PRE: &str = r#"{"session_id":"01a1e287","turn_id":"t","transcript_path":"/t","cwd":"/p","hook_event_name":"PreToolUse","model":"m","permission_mode":"bypassPermissions","tool_name":"Bash","tool_input":{"command":"ls"},"tool_use_id":"call_1_0"}"#;

    #[test]
    fn settings_to_import_are_found_where_the_client_keeps_them() {
        let mut user = crate::test_support::imagined_user("/home/u");
        user.variable = |name| (name == variables::CODEX_HOME).then(|| "/data/codex".into());
        let files = importable(&user, Path::new("/p"));
        let expected = ["/data/codex/config.toml", "/p/.codex/config.toml"];
        assert_eq!(files, expected.map(PathBuf::from));
    }

    /// The tool and input that clash judges for a call with this `command`.
    fn wanted(tool: &str, command: &str) -> Option<(String, ToolInput)> {
        let mut message = DIALECT.parse(PRE.as_bytes()).unwrap().1;
        message.tool = tool.into();
        message.input.insert("command".into(), command.into());
        call(&message, &CallContext::imagined("/p")).unwrap()
    }

    fn files(wanted: Option<(String, ToolInput)>) -> Vec<String> {
        let Some((_, ToolInput::Files(files))) = wanted else { return vec![format!("{wanted:?}")] };
        files.iter().map(|file| file.path.display().to_string()).collect()
    }

    #[test]
    fn a_patch_is_judged_by_its_paths_else_it_is_a_script() {
        let body = "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch";
        assert_eq!(files(wanted("apply_patch", body)), ["/p/a"]);
        assert_eq!(
            files(wanted("Bash", &format!("cd sub && apply_patch <<'EOF'\n{body}\nEOF"))),
            ["/p/sub/a"]
        );
        let other = format!("apply_patch <<'EOF'\n{body}\nEOF\nid");
        assert_eq!(wanted("Bash", &other), Some(("Bash".into(), ToolInput::Script(other.clone()))));
    }

    #[test]
    fn a_question_is_never_put_and_a_refusal_is_the_exit_status() {
        let reply = DIALECT.reply(HookEvent::BeforeTool, HookAnswer::Deny { reason: "no".into() });
        assert_eq!(reply, HookReply::blocked("no".into()));
        assert_eq!(AGENT.abilities.asks, QuestionSupport::No);
    }

    #[test]
    fn a_rewritten_command_comes_with_known_fields_only() {
        let (_, message) = DIALECT.parse(PRE.as_bytes()).unwrap();
        let updated_input = claude_like::rewrite(&message, "wrapped");
        let allow = HookAnswer::Allow { reason: "r".into(), updated_input };
        let reply = DIALECT.reply(HookEvent::BeforeTool, allow).document.unwrap().to_string();
        insta::assert_snapshot!(reply, @r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","permissionDecisionReason":"r","updatedInput":{"command":"wrapped"}}}"#);
    }
}
