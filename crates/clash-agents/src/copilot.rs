//! GitHub Copilot CLI: its messages, its replies and its settings.
//!
//! Seen with version 1.0.102, which has words of its own (camelCase). A message does not
//! name its event. The client blocks if a hook fails, is killed or is missing. It does not
//! block if a hook hangs or prints nonsense, so the guard turns both into a failure. It
//! takes a question that no user can answer for a no.
//!
//! The client matches `--deny-tool shell(…)` against the rewritten command and would miss
//! it. If it was started with such rules, the hook denies everything until the policy has
//! the rule.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::wiring::guard;
use super::wiring::{ClashCall, InstallScope, WholeFile, WiredFile};
use super::{
    Agent, AgentAbilities, AgentExtras, ConfinementMethod, HookAnswer, HookEvent, HookMessage,
    HookReply, MessageError, ParsedMessage, QuestionSupport, ToolUseResult, attended, claude_like,
    patch, plugin,
};
use crate::context::{UserContext, settings_roots};
use crate::project_settings::hostile_key;
use crate::tool_input::{self, CallContext, ToolError};
use crate::variables;

pub(crate) static AGENT: Agent = Agent {
    name: "copilot",
    title: "Copilot CLI",
    abilities: AgentAbilities {
        program: "copilot",
        oldest: [1, 0, 0],
        asks: QuestionSupport::Yes,
        confines: ConfinementMethod::Rewrite,
        project: Some(variables::COPILOT_PROJECT_DIR),
        session: None,
        moves_files: true,
        openings: &["{\"permissionDecision\":", "{\"modifiedArgs\":", "{\"additionalContext\":"],
    },
    parse,
    sample: |sample| {
        json!({
            "sessionId": sample.session, "timestamp": 0, "cwd": sample.cwd, "toolName": "bash",
            "toolArgs": {"command": sample.script},
        })
    },
    call,
    rewrite: claude_like::rewrite,
    reply,
    files,
    steers,
    hostile,
    extras: AgentExtras::NONE,
};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CopilotMessage {
    session_id: String,
    cwd: String,
    tool_name: String,
    #[serde(default)]
    tool_args: Value,
    /// Only after the tool has run.
    tool_result: Option<Value>,
}

/// The field for a patch, which the client sends as a bare text.
const PATCH: &str = "patch";

/// The message names no event: with a result it comes after the tool, or after its failure.
/// Arguments may be an object, a text with an object, or the bare text of a patch.
fn parse(input: &[u8]) -> ParsedMessage {
    let sent: CopilotMessage = serde_json::from_slice(input)?;
    let (event, result) = match sent.tool_result {
        None => (HookEvent::BeforeTool, Value::Null),
        Some(result) if result.get("resultType") == Some(&json!("failure")) => {
            (HookEvent::AfterFailure, result)
        }
        Some(result) => (HookEvent::AfterTool, result),
    };
    if sent.tool_name.is_empty() || sent.cwd.is_empty() {
        return Err(MessageError::Missing("toolName"));
    }
    let input = match sent.tool_args {
        Value::Object(input) => input,
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(Value::Object(input)) => input,
            _ => Map::from_iter([(PATCH.to_owned(), Value::String(text))]),
        },
        Value::Null => Map::new(),
        _ => return Err(MessageError::Missing("toolArgs")),
    };
    let message = HookMessage {
        session: sent.session_id,
        cwd: sent.cwd,
        tool: sent.tool_name,
        input,
        output: claude_like::collect_texts(&result),
        ..HookMessage::default()
    };
    Ok((event, message))
}

/// Tools that touch nothing but the client, or a command that is already confined, with
/// their names in policies.
const INTERNAL_TOOLS: &[(&str, &str)] = &[
    ("ask_user", "AskUserQuestion"),
    ("fetch_copilot_cli_documentation", "ToolSearch"),
    ("list_agents", "ListAgents"),
    ("list_bash", "BashOutput"),
    ("read_agent", "TaskOutput"),
    ("read_bash", "BashOutput"),
    ("report_intent", "TodoWrite"),
    ("skill", "Skill"),
    ("stop_bash", "KillShell"),
    ("task", "Task"),
    ("update_todo", "TodoWrite"),
    ("write_agent", "Task"),
];

/// The tool use in the words of policies. A tool `server-name` is a tool of a server. A patch
/// without its text is an error. `None` for a question to the user.
fn call(message: &HookMessage, context: &CallContext<'_>) -> ToolUseResult {
    let (tool, input) = (message.tool.as_str(), &message.input);
    if let Some((_, name)) = INTERNAL_TOOLS.iter().find(|(known, _)| *known == tool) {
        return if tool == "ask_user" {
            Ok(None)
        } else {
            plugin::read_fields(name, input, context)
        };
    }
    match tool {
        "bash" => plugin::read_renamed("Bash", input, &[], context),
        "apply_patch" => match input.get(PATCH).or(input.get("input")).and_then(Value::as_str) {
            Some(text) => patch::patched_files(tool, text, context).map(Some),
            None => Err(ToolError::Field { tool: tool.to_owned(), field: "input" }),
        },
        "create" | "edit" | "str_replace" | "view" => {
            plugin::read_renamed(tool, input, &[("path", "file_path")], context)
        }
        "glob" => searched("Glob", input, context),
        "grep" | "rg" => searched("Grep", input, context),
        "web_fetch" | "web_search" => plugin::read_renamed(tool, input, &[], context),
        // `server-tool`, or a tool that clash does not know yet.
        _ => match tool.split_once('-') {
            Some((server, name)) => {
                plugin::read_fields(&format!("mcp__{server}__{name}"), input, context)
            }
            None => tool_input::read_tool_use(tool, input, context).map(Some),
        },
    }
}

/// A search in `paths` or `path`: one path or a list. Without one it is the working
/// directory; a path that is no text is an error.
fn searched(tool: &str, input: &Map<String, Value>, context: &CallContext<'_>) -> ToolUseResult {
    use clash_policy::ToolInput;
    let texts: Vec<Value> = match input.get("paths").or(input.get("path")) {
        None | Some(Value::Null) => vec![json!(".")],
        Some(Value::Array(paths)) => paths.clone(),
        Some(path) => vec![path.clone()],
    };
    let mut found = Vec::new();
    for path in texts {
        let Value::String(path) = path else {
            return Err(ToolError::Field { tool: tool.to_owned(), field: "paths" });
        };
        let mut one = input.clone();
        one.remove("paths");
        one.insert("path".to_owned(), Value::String(path));
        match tool_input::read_tool_use(tool, &one, context)? {
            (_, ToolInput::Files(files)) => found.extend(files),
            _ => return Err(ToolError::Field { tool: tool.to_owned(), field: "paths" }),
        }
    }
    Ok(Some((tool.to_owned(), ToolInput::Files(found))))
}

/// A decision before a tool. Afterwards the model can only get a text.
fn reply(event: HookEvent, answer: HookAnswer) -> HookReply {
    if event != HookEvent::BeforeTool {
        return match answer {
            HookAnswer::Note(text)
            | HookAnswer::Context(text)
            | HookAnswer::Deny { reason: text } => {
                HookReply::document(json!({"additionalContext": text}))
            }
            HookAnswer::Allow { .. } | HookAnswer::Ask { .. } | HookAnswer::Silent => {
                HookReply::silent()
            }
        };
    }
    let (decision, reason, modified) = match answer {
        HookAnswer::Allow { reason, updated_input } => ("allow", reason, updated_input),
        HookAnswer::Ask { reason, updated_input } => ("ask", reason, updated_input),
        HookAnswer::Deny { reason } => ("deny", reason, None),
        HookAnswer::Silent | HookAnswer::Note(_) | HookAnswer::Context(_) => {
            return HookReply::silent();
        }
    };
    let mut document = json!({"permissionDecision": decision, "permissionDecisionReason": reason});
    if let (Some(modified), Some(document)) = (modified, document.as_object_mut()) {
        document.insert("modifiedArgs".to_owned(), Value::Object(modified));
    }
    HookReply::document(document)
}

/// The directory of the client's settings.
fn home(user: &UserContext) -> PathBuf {
    user.path_variable(variables::COPILOT_HOME).unwrap_or_else(|| user.home.join(".copilot"))
}

/// One file with hooks, for the user only: none for another scope.
fn files(user: &UserContext, scope: &InstallScope) -> Vec<WiredFile> {
    // The client obeys a project's file only if the user trusts the folder.
    if *scope != InstallScope::User {
        return Vec::new();
    }
    let line = guard::hook_line(user, AGENT.name, &AGENT.abilities);
    let hook = json!([{"type": "command", "bash": line, "timeoutSec": 30}]);
    let hooks = json!({"version": 1, "hooks": {"preToolUse": hook, "postToolUse": hook}});
    let edit = WholeFile {
        agent: AGENT.name,
        text: format!("{hooks:#}\n"),
        mark: " hook copilot) ||",
        calls: ClashCall::Json,
    };
    vec![WiredFile { file: home(user).join("hooks/clash.json"), edit: Box::new(edit) }]
}

/// The files and directories with settings, agents, hooks, skills and servers of the
/// client.
fn steers(user: &UserContext, project: &Path) -> Vec<PathBuf> {
    let own = [".github/agents", ".github/copilot", ".github/hooks", ".github/skills", ".mcp.json"];
    let own = own.iter().map(|name| project.join(name));
    std::iter::once(home(user)).chain(own).collect()
}

/// A line about settings of a project that switch every hook off, also those of Claude
/// Code, which the client reads too. Also about rules for commands with which the client
/// was started (see above): reads the arguments of the client in `/proc`.
fn hostile(user: &UserContext, project: &Path) -> Option<String> {
    let started = attended::ancestor_arguments(AGENT.abilities.program).unwrap_or_default();
    if hides_rules(&started) {
        let what = "--deny-tool shell(…) does not see commands in their sandboxes";
        return Some(format!("{what}: put the rule into your policy instead"));
    }
    // If the home is a repository, these are the user's own.
    let roots = settings_roots(project).into_iter().filter(|root| *root != user.home);
    let dirs = roots.flat_map(|root| [".github/copilot", ".claude"].map(|dir| root.join(dir)));
    let mut files =
        dirs.flat_map(|dir| ["settings.json", "settings.local.json"].map(|name| dir.join(name)));
    files.find_map(|file| {
        hostile_key(&file, "may switch every hook off", |key| key == "disableAllHooks")
    })
}

/// True if the client was started with `--deny-tool` about `shell`.
fn hides_rules(args: &[String]) -> bool {
    let denies = |pair: &[String]| match pair {
        [option, value] => option == "--deny-tool" && value.contains("shell"),
        _ => false,
    };
    args.windows(2).any(denies)
        || args.iter().any(|arg| arg.starts_with("--deny-tool=") && arg.contains("shell"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{no_part_is_a_message, tool_use, tool_uses};

    const RECORDED: &str = include_str!("../tests/fixtures/copilot/hooks.jsonl");

    #[test]
    fn every_recorded_message_is_understood() {
        assert_eq!(
            tool_uses(&AGENT, RECORDED),
            [
                "Bash echo hi > out.txt; cat out.txt",
                "Read /work/app/out.txt r",
                "Edit /work/app/w.txt wc",
                "Grep /work/app r",
                "Glob /work/app r",
                "WebFetch 127.0.0.1",
            ]
        );
    }

    #[test]
    fn a_message_cut_short_is_an_error() {
        let line = RECORDED.lines().next().unwrap();
        no_part_is_a_message(&AGENT, line);
        assert!(
            parse(line.replace("\"toolName\":\"bash\"", "\"toolName\":\"\"").as_bytes()).is_err()
        );
    }

    #[test]
    fn tools_of_servers_searches_and_unknown_commands_are_judged() {
        let shown = |message: &str| tool_use(&AGENT, message).unwrap();
        let message = |tool: &str, args: Value| {
            json!({"sessionId": "s", "timestamp": 1, "cwd": "/work/app", "toolName": tool, "toolArgs": args})
                .to_string()
        };
        assert_eq!(shown(&message("lab-shout", json!({"command": "x"}))), "mcp__lab__shout");
        let paths = json!({"pattern": "x", "paths": ["a", "/etc"]});
        assert_eq!(shown(&message("rg", paths)), "Grep /work/app/a r /etc r");
        assert_eq!(shown(&message("brandnew", json!({"command": "make"}))), "Bash make");
    }

    #[test]
    fn rules_of_the_command_line_are_noticed() {
        let args = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(hides_rules(&args("copilot -p x --deny-tool shell(rm)")));
        assert!(hides_rules(&args("copilot --deny-tool=write,shell(git:push)")));
        assert!(!hides_rules(&args("copilot -p shell --deny-tool write --allow-tool shell(ls)")));
    }

    #[test]
    fn answers_have_the_fields_that_copilot_reads() {
        let said = |answer| reply(HookEvent::BeforeTool, answer).document.unwrap().to_string();
        let deny = HookAnswer::Deny { reason: "no".into() };
        insta::assert_snapshot!(said(deny), @r#"{"permissionDecision":"deny","permissionDecisionReason":"no"}"#);
        let input = json!({"command": "x"}).as_object().cloned();
        let allow = HookAnswer::Allow { reason: "ok".into(), updated_input: input };
        insta::assert_snapshot!(said(allow), @r#"{"modifiedArgs":{"command":"x"},"permissionDecision":"allow","permissionDecisionReason":"ok"}"#);
    }
}
