//! Claude Code: its messages, its replies and its settings.
//!
//! Seen with version 2.1.325. The client honours a deny in every permission mode. It
//! ignores an answer that is not exactly one JSON document and then runs the tool, so only
//! the reply may reach standard output. Exit status 2 with a text on standard error blocks
//! every event.

mod shell_prefix;
mod wrapper;

use std::path::{Path, PathBuf};

use serde_json::json;

use super::claude_like::{self, ClaudeDialect};
use super::wiring::guard;
use super::wiring::hook_entries::{self, CommandForm, HookEntries, HookFormat};
use super::wiring::{InstallScope, WholeFile, WiredFile};
use super::{
    Agent, AgentAbilities, AgentExtras, ConfinementMethod, HookEvent, HookMessage, QuestionSupport,
    ToolUseResult,
};
use crate::context::{UserContext, settings_roots};
use crate::tool_input::CallContext;
use crate::variables;

pub(crate) static AGENT: Agent = Agent {
    name: "claude",
    title: "Claude Code",
    abilities: AgentAbilities {
        program: "claude",
        oldest: [2, 1, 0],
        asks: QuestionSupport::Yes,
        confines: ConfinementMethod::ShellPrefix,
        project: Some(variables::CLAUDE_PROJECT_DIR),
        session: Some(variables::CLAUDE_CODE_SESSION_ID),
        moves_files: true,
        openings: &["{\"hookSpecificOutput\":", "{\"decision\":", "{\"systemMessage\":"],
    },
    parse: |input| DIALECT.parse(input),
    sample: |sample| claude_like::sample("PreToolUse", "Bash", sample),
    call,
    rewrite: claude_like::rewrite,
    reply: |event, answer| DIALECT.reply(event, answer),
    files,
    steers,
    hostile: hostile_settings,
    extras: AgentExtras {
        shell_wrapper: Some(&wrapper::WRAPPER),
        refuse_settings_change,
        history: Some(home),
        importable,
        ..AgentExtras::NONE
    },
};

const EVENTS: &[(&str, HookEvent, bool)] = &[
    ("PreToolUse", HookEvent::BeforeTool, true),
    ("PostToolUse", HookEvent::AfterTool, true),
    ("PostToolUseFailure", HookEvent::AfterFailure, true),
    ("PermissionRequest", HookEvent::Question, true),
    ("ConfigChange", HookEvent::SettingsChange, false),
    ("SessionStart", HookEvent::SessionStart, false),
    ("SessionEnd", HookEvent::SessionEnd, false),
];

const DIALECT: ClaudeDialect =
    ClaudeDialect { events: EVENTS, deny_by_document: true, system_message: true };

/// `onFailure` makes the client block if the hook fails. Older clients ignore it; there the
/// guard in the command line blocks.
pub(crate) static FORMAT: HookFormat = HookFormat {
    agent: "claude",
    events: EVENTS,
    form: CommandForm::Exec,
    timeout: 30,
    members: &[("onFailure", "block")],
    prefix: true,
    comments: false,
    off: &[(&["disableAllHooks"], true)],
    off_lists: &[],
};

/// Tools that ask the user something and touch nothing.
const QUESTION_TOOLS: &[&str] = &["AskUserQuestion", "EnterPlanMode", "ExitPlanMode"];

/// A question to the user touches nothing.
fn call(message: &HookMessage, context: &CallContext<'_>) -> ToolUseResult {
    if QUESTION_TOOLS.contains(&message.tool.as_str()) {
        return Ok(None);
    }
    claude_like::call(message, context)
}

/// The settings of the user or of a project, or a whole file for the machine.
fn files(user: &UserContext, scope: &InstallScope) -> Vec<WiredFile> {
    let hook_command = guard::hook_line(user, AGENT.name, &AGENT.abilities);
    let prefix = Some(user.shell_launcher());
    let wiring = HookEntries { format: &FORMAT, hook_command, prefix };
    let file = match scope {
        InstallScope::User => home(user).join("settings.json"),
        // The repository must not have it: the launcher's path is the user's own.
        InstallScope::Project(project) => project.join(".claude/settings.local.json"),
        InstallScope::Managed => {
            let file = PathBuf::from("/etc/claude-code/managed-settings.json");
            let members = json!({"allowManagedHooksOnly": true, "disableAllHooks": false});
            let edit = WholeFile::managed(&wiring, members);
            return vec![WiredFile { file, edit: Box::new(edit) }];
        }
    };
    vec![WiredFile { file, edit: Box::new(wiring) }]
}

/// The directory of the client's settings.
pub(crate) fn home(user: &UserContext) -> PathBuf {
    user.path_variable(variables::CLAUDE_CONFIG_DIR).unwrap_or_else(|| user.home.join(".claude"))
}

/// The `.claude` directories that the client reads for a project.
fn claude_dirs(project: &Path) -> Vec<PathBuf> {
    settings_roots(project).into_iter().map(|root| root.join(".claude")).collect()
}

/// The files and directories with settings, hooks, commands, skills and servers of the
/// client.
fn steers(user: &UserContext, project: &Path) -> Vec<PathBuf> {
    const STEERING_NAMES: [&str; 7] = [
        "settings.json",
        "settings.local.json",
        "hooks",
        "skills",
        "commands",
        "agents",
        "plugins",
    ];
    let mut paths = Vec::new();
    for base in claude_dirs(project).into_iter().chain([home(user)]) {
        paths.extend(STEERING_NAMES.iter().map(|name| base.join(name)));
    }
    paths.extend([
        user.home.join(".claude.json"),
        home(user).join(".claude.json"),
        project.join(".mcp.json"),
    ]);
    paths
}

/// A line about a project's settings that switch hooks off, remove the shell prefix, or
/// make the client's shell run code before the launcher.
fn hostile_settings(user: &UserContext, project: &Path) -> Option<String> {
    // If the home is a repository, these files include the user's own.
    let users_own = home(user).join("settings.json");
    let files = claude_dirs(project)
        .into_iter()
        .flat_map(|dir| ["settings.json", "settings.local.json"].map(|name| dir.join(name)));
    files.filter(|file| *file != users_own).find_map(|file| {
        foreign_prefix(&file, user).or_else(|| hook_entries::hostile(&file, &users_own, &FORMAT))
    })
}

/// A line about a shell prefix that is a program of clash, but not of this installation. A
/// file that cannot be read has none here; [`hook_entries::hostile`] reports it.
fn foreign_prefix(file: &Path, user: &UserContext) -> Option<String> {
    let found = hook_entries::inspect(&std::fs::read_to_string(file).ok()?, &FORMAT).ok()?;
    let foreign = found.prefix.filter(|prefix| !user.is_shell_launcher(prefix))?;
    Some(format!("{}: sets the shell prefix to {}", file.display(), foreign.display()))
}

/// Why a change of settings is refused during a session; `None` if it comes into force at
/// once. Refused are a project's settings: a command of this session may have written them,
/// and a hook in them would run outside of every sandbox. The user's own settings are
/// refused only if they switch clash off, managed ones and skills never.
fn refuse_settings_change(user: &UserContext, source: &str) -> Option<String> {
    match source {
        "policy_settings" | "skills" => None,
        "user_settings" => off_switch(&home(user).join("settings.json"))
            .map(|what| format!("the user's settings: {what}")),
        _ => Some("settings of a project come into force with the next session".to_owned()),
    }
}

/// The settings with permission rules, and those of the sandbox runtime that the client
/// uses for its own sandbox.
fn importable(user: &UserContext, project: &Path) -> Vec<PathBuf> {
    vec![
        home(user).join("settings.json"),
        project.join(".claude/settings.json"),
        project.join(".claude/settings.local.json"),
        user.home.join(".srt-settings.json"),
    ]
}

/// A line about a change of the user's own settings during a session, if the change switches
/// clash off: the file is missing or cannot be parsed, a setting works against clash, or an
/// entry of clash is gone.
fn off_switch(own: &Path) -> Option<String> {
    let Ok(text) = std::fs::read_to_string(own) else {
        return Some("can no longer be read, and clash is installed there".to_owned());
    };
    match hook_entries::inspect(&text, &FORMAT) {
        Ok(found) => match found.problems.iter().find(|problem| !problem.is_users_own()) {
            Some(problem) => Some(hook_entries::describe(problem)),
            None if !found.is_complete(&FORMAT) => Some("no longer has clash in it".to_owned()),
            None => None,
        },
        // The client ignores a file it cannot read, with all its hooks.
        Err(error) => Some(format!("cannot be used any more: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HookAnswer, HookReply};

    const PRE: &str = r#"{"session_id":"s1","transcript_path":"/t","cwd":"/p","permission_mode":"default","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"ls","description":"d"},"tool_use_id":"toolu_1"}"#;

    #[test]
    fn a_real_message_is_understood() {
        let (event, message) = DIALECT.parse(PRE.as_bytes()).unwrap();
        assert_eq!(event, HookEvent::BeforeTool);
        assert_eq!(message.input["command"], "ls");
        assert_eq!(message.call, "toolu_1");
    }

    #[test]
    fn a_cut_or_changed_message_is_an_error() {
        for cut in 0..PRE.len() {
            assert!(DIALECT.parse(&PRE.as_bytes()[..cut]).is_err());
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
            assert!(DIALECT.parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn answers_are_in_the_words_of_their_event() {
        let deny = || HookAnswer::Deny { reason: "no".into() };
        let shown = |event, answer| {
            DIALECT.reply(event, answer).document.map(|v| v.to_string()).unwrap_or_default()
        };
        insta::assert_snapshot!(shown(HookEvent::BeforeTool, deny()), @r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no"}}"#);
        insta::assert_snapshot!(shown(HookEvent::Question, deny()), @r#"{"hookSpecificOutput":{"decision":{"behavior":"deny","message":"no"},"hookEventName":"PermissionRequest"}}"#);
        insta::assert_snapshot!(shown(HookEvent::SettingsChange, deny()), @r#"{"decision":"block","reason":"no"}"#);
        insta::assert_snapshot!(shown(HookEvent::AfterTool, HookAnswer::Note("look".into())), @r#"{"hookSpecificOutput":{"additionalContext":"look","hookEventName":"PostToolUse"},"systemMessage":"look"}"#);
        assert_eq!(
            DIALECT.reply(
                HookEvent::Question,
                HookAnswer::Ask { reason: String::new(), updated_input: None }
            ),
            HookReply::silent()
        );
        assert_eq!(DIALECT.reply(HookEvent::BeforeTool, HookAnswer::Silent), HookReply::silent());
    }
}
