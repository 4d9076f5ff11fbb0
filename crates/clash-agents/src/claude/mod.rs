//! Claude Code: what its hooks send and what they understand.
//!
//! Seen with version 2.1.325. A deny is honoured in every permission mode; an
//! answer that is not exactly one JSON document is ignored and the tool runs,
//! so nothing but the reply may ever reach standard output. Exit status 2 with
//! a text on standard error blocks whatever the event.

pub mod shell_prefix;

use std::path::{Path, PathBuf};

use serde_json::json;

use super::claude_like::{self, Dialect};
use super::wiring::guard;
use super::wiring::hook_entries::{self, Form, Shape, Wiring};
use super::wiring::{Scope, WholeFile, Wired};
use super::{Abilities, Agent, Asks, Confines, Event, Message, Wanted};
use crate::context::{UserContext, settings_roots};
use crate::tool_input::CallContext;
use crate::variables;

pub(crate) static AGENT: Agent = Agent {
    name: "claude",
    title: "Claude Code",
    abilities: Abilities {
        program: "claude",
        oldest: [2, 1, 0],
        asks: Asks::Yes,
        confines: Confines::ShellPrefix,
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
};

/// Where the client writes what commands in the background say. Models are told to
/// read it there.
pub fn background_outputs(user: &UserContext, project: &Path, session: &str) -> Option<PathBuf> {
    let own = user.tmp.join(format!("claude-{}", user.user_id));
    let name = project.to_str()?;
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let project: String = name.chars().map(plain).collect();
    let outputs = own.join(project).join(session).join("tasks");
    outputs.is_dir().then_some(outputs)
}

const EVENTS: &[(&str, Event, bool)] = &[
    ("PreToolUse", Event::BeforeTool, true),
    ("PostToolUse", Event::AfterTool, true),
    ("PostToolUseFailure", Event::AfterFailure, true),
    ("PermissionRequest", Event::Question, true),
    ("ConfigChange", Event::SettingsChange, false),
    ("SessionStart", Event::SessionStart, false),
    ("SessionEnd", Event::SessionEnd, false),
];

const DIALECT: Dialect = Dialect { events: EVENTS, deny_by_document: true, system_message: true };

/// `onFailure` makes the client block when the hook cannot answer; older clients
/// ignore it and rely on the guard in the command line.
pub(crate) static SHAPE: Shape = Shape {
    agent: "claude",
    events: EVENTS,
    form: Form::Exec,
    timeout: 30,
    members: &[("onFailure", "block")],
    prefix: true,
    comments: false,
    off: &[(&["disableAllHooks"], true)],
    off_lists: &[],
};

/// Tools that are themselves a question to the user and touch nothing.
const PROMPTS: &[&str] = &["AskUserQuestion", "EnterPlanMode", "ExitPlanMode"];

fn call(message: &Message, context: &CallContext<'_>) -> Wanted {
    if PROMPTS.contains(&message.tool.as_str()) {
        return Ok(None);
    }
    claude_like::call(message, context)
}

fn files(user: &UserContext, scope: &Scope) -> Vec<Wired> {
    let hook_command = guard::line(user, AGENT.name, &AGENT.abilities);
    let prefix = Some(user.shell_launcher());
    let wiring = Wiring { shape: &SHAPE, hook_command, prefix };
    let file = match scope {
        Scope::User => home(user).join("settings.json"),
        // The launcher's path is the user's own, so it is not for the repository.
        Scope::Project(project) => project.join(".claude/settings.local.json"),
        Scope::Managed => {
            let file = PathBuf::from("/etc/claude-code/managed-settings.json");
            let members = json!({"allowManagedHooksOnly": true, "disableAllHooks": false});
            let edit = WholeFile::managed(&wiring, members);
            return vec![Wired { file, edit: Box::new(edit) }];
        }
    };
    vec![Wired { file, edit: Box::new(wiring) }]
}

/// The directory of the client's settings.
pub fn home(user: &UserContext) -> PathBuf {
    user.path_variable(variables::CLAUDE_CONFIG_DIR).unwrap_or_else(|| user.home.join(".claude"))
}

/// The `.claude` directories that the client reads for a project.
fn claude_dirs(project: &Path) -> Vec<PathBuf> {
    settings_roots(project).into_iter().map(|root| root.join(".claude")).collect()
}

/// What the client reads settings, hooks, commands and servers from.
fn steers(user: &UserContext, project: &Path) -> Vec<PathBuf> {
    const NAMES: [&str; 7] = [
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
        paths.extend(NAMES.iter().map(|name| base.join(name)));
    }
    paths.extend([
        user.home.join(".claude.json"),
        home(user).join(".claude.json"),
        project.join(".mcp.json"),
    ]);
    paths
}

/// What the settings that come with a project do against clash: switch hooks
/// off, take the shell prefix away, or make the client's own shell run code
/// before the launcher is reached.
pub fn hostile_settings(user: &UserContext, project: &Path) -> Option<String> {
    // Where the home is a repository, the user's own file is among them.
    let users_own = home(user).join("settings.json");
    let files = claude_dirs(project)
        .into_iter()
        .flat_map(|dir| ["settings.json", "settings.local.json"].map(|name| dir.join(name)));
    files.filter(|file| *file != users_own).find_map(|file| {
        foreign_prefix(&file, user).or_else(|| hook_entries::hostile(&file, &users_own, &SHAPE))
    })
}

/// A project may bring clash's own prefix, and no other program of that name.
fn foreign_prefix(file: &Path, user: &UserContext) -> Option<String> {
    let found = hook_entries::inspect(&std::fs::read_to_string(file).ok()?, &SHAPE).ok()?;
    let foreign = found.prefix.filter(|prefix| !user.is_shell_launcher(prefix))?;
    Some(format!("{}: sets the shell prefix to {}", file.display(), foreign.display()))
}

/// What the user's own settings file, changed while a session runs, would do to
/// clash.
pub fn off_switch(own: &Path) -> Option<String> {
    let Ok(text) = std::fs::read_to_string(own) else {
        return Some("can no longer be read, and clash is installed there".to_owned());
    };
    match hook_entries::inspect(&text, &SHAPE) {
        Ok(found) => match found.problems.iter().find(|problem| !problem.is_users_own()) {
            Some(problem) => Some(hook_entries::describe(problem)),
            None if !found.is_complete(&SHAPE) => Some("no longer has clash in it".to_owned()),
            None => None,
        },
        // The client passes over a file it cannot read, and so its hooks.
        Err(error) => Some(format!("cannot be used any more: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, Reply};

    const PRE: &str = r#"{"session_id":"s1","transcript_path":"/t","cwd":"/p","permission_mode":"default","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"ls","description":"d"},"tool_use_id":"toolu_1"}"#;

    #[test]
    fn a_real_message_is_understood() {
        let (event, message) = DIALECT.parse(PRE.as_bytes()).unwrap();
        assert_eq!(event, Event::BeforeTool);
        assert_eq!(message.input["command"], "ls");
        assert_eq!(message.call, "toolu_1");
    }

    #[test]
    fn what_is_not_a_message_is_an_error() {
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
        let deny = || Answer::Deny { reason: "no".into() };
        let shown = |event, answer| {
            DIALECT.reply(event, answer).document.map(|v| v.to_string()).unwrap_or_default()
        };
        insta::assert_snapshot!(shown(Event::BeforeTool, deny()), @r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no"}}"#);
        insta::assert_snapshot!(shown(Event::Question, deny()), @r#"{"hookSpecificOutput":{"decision":{"behavior":"deny","message":"no"},"hookEventName":"PermissionRequest"}}"#);
        insta::assert_snapshot!(shown(Event::SettingsChange, deny()), @r#"{"decision":"block","reason":"no"}"#);
        insta::assert_snapshot!(shown(Event::AfterTool, Answer::Note("look".into())), @r#"{"hookSpecificOutput":{"additionalContext":"look","hookEventName":"PostToolUse"},"systemMessage":"look"}"#);
        assert_eq!(
            DIALECT
                .reply(Event::Question, Answer::Ask { reason: String::new(), updated_input: None }),
            Reply::silent()
        );
        assert_eq!(DIALECT.reply(Event::BeforeTool, Answer::Silent), Reply::silent());
    }
}
