//! Codex CLI: what its hooks send and what they understand.
//!
//! Seen with version 0.166. Its words are Claude's with less forgiveness: an
//! unknown field, a missing reason or an `ask` makes it run the tool. So a
//! refusal is always the exit status, and nothing is ever asked. Commands get
//! into their sandbox by rewriting. `apply_patch`, also as a lone heredoc in a
//! shell command, is done by the client itself: there the paths are judged.
//!
//! What no hook sees: `write_stdin` into a running command, which stays in its
//! sandbox, and searches that the model's server runs.

mod config;
mod own_sandbox;
mod sha256;

use std::path::{Path, PathBuf};

use super::claude_like::{self, Dialect};
use super::wiring::guard;
use super::wiring::{Calls, HookCommand, Scope, SettingsError, WholeFile, Wired};
use super::{Abilities, Agent, Asks, Confines, Event, Message, Wanted, patch};
use crate::context::{UserContext, settings_roots};
use crate::tool_input::CallContext;
use crate::variables;

pub(crate) static AGENT: Agent = Agent {
    name: "codex",
    title: "Codex CLI",
    abilities: Abilities {
        program: "codex",
        oldest: [0, 160, 0],
        asks: Asks::No,
        confines: Confines::Rewrite,
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
};

/// Without the end of a session: it is not told to `codex exec`.
const EVENTS: &[(&str, Event, bool)] = &[
    ("PreToolUse", Event::BeforeTool, false),
    ("PostToolUse", Event::AfterTool, false),
    ("PermissionRequest", Event::Question, false),
    ("SessionStart", Event::SessionStart, false),
];

const DIALECT: Dialect = Dialect { events: EVENTS, deny_by_document: false, system_message: false };

fn call(message: &Message, context: &CallContext<'_>) -> Wanted {
    let text = message.command().unwrap_or_default();
    if message.tool == "apply_patch" {
        return patch::touched(&message.tool, text, context).map(Some);
    }
    if let Some((dir, patch)) = patch::in_shell(text) {
        let cwd = dir.map_or_else(|| context.cwd.to_path_buf(), |dir| context.cwd.join(dir));
        return patch::touched("apply_patch", patch, &CallContext { cwd: &cwd, ..*context })
            .map(Some);
    }
    if message.tool == "request_user_input" {
        return Ok(None);
    }
    claude_like::call(message, context)
}

pub(super) fn home(user: &UserContext) -> PathBuf {
    user.path_variable(variables::CODEX_HOME).unwrap_or_else(|| user.home.join(".codex"))
}

fn files(user: &UserContext, scope: &Scope) -> Vec<Wired> {
    let line = guard::line(user, AGENT.name, &AGENT.abilities);
    match scope {
        Scope::User => {
            let file = home(user).join("config.toml");
            let edit = config::Hooks { file: file.clone(), line };
            vec![Wired { file, edit: Box::new(edit) }]
        }
        // Its hooks would have to be trusted in the settings of each user.
        Scope::Project(_) => Vec::new(),
        Scope::Managed => {
            let edit = WholeFile {
                agent: AGENT.name,
                text: config::requirements(&line, &user.state),
                mark: config::MARK,
                calls: Calls::Toml,
            };
            let file = PathBuf::from("/etc/codex/requirements.toml");
            vec![Wired { file, edit: Box::new(edit) }]
        }
    }
}

/// The commands in a TOML text that judge tool calls.
pub(super) fn commands(text: &str) -> Result<Vec<HookCommand>, SettingsError> {
    config::commands(text)
}

fn steers(user: &UserContext, project: &Path) -> Vec<PathBuf> {
    let mut paths = vec![home(user), "/etc/codex".into()];
    paths.extend(of_project(project));
    paths
}

/// The client reads those of every directory up to the root of the repository.
fn of_project(project: &Path) -> Vec<PathBuf> {
    settings_roots(project).into_iter().map(|root| root.join(".codex")).collect()
}

/// A project that is trusted, as one without an entry is in `codex exec`, can
/// switch every hook off, also those of the machine.
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
    use crate::{Answer, Reply};
    use clash_policy::ToolInput;

    const PRE: &str = r#"{"session_id":"01a1e287","turn_id":"t","transcript_path":"/t","cwd":"/p","hook_event_name":"PreToolUse","model":"m","permission_mode":"bypassPermissions","tool_name":"Bash","tool_input":{"command":"ls"},"tool_use_id":"call_1_0"}"#;

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
    fn a_patch_is_judged_by_its_paths_and_anything_else_is_a_script() {
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
        let reply = DIALECT.reply(Event::BeforeTool, Answer::Deny { reason: "no".into() });
        assert_eq!(reply, Reply::blocked("no".into()));
        assert_eq!(AGENT.abilities.asks, Asks::No);
    }

    #[test]
    fn a_rewritten_command_comes_with_an_allow_and_nothing_the_client_does_not_know() {
        let (_, message) = DIALECT.parse(PRE.as_bytes()).unwrap();
        let updated_input = claude_like::rewrite(&message, "wrapped");
        let allow = Answer::Allow { reason: "r".into(), updated_input };
        let reply = DIALECT.reply(Event::BeforeTool, allow).document.unwrap().to_string();
        insta::assert_snapshot!(reply, @r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","permissionDecisionReason":"r","updatedInput":{"command":"wrapped"}}}"#);
    }
}
