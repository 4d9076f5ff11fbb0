//! Cline CLI: a program in its hooks directory judges every tool call.
//!
//! Seen with version 3.0.65. The client ignores exit codes: only `{"cancel": true}` stops a
//! call. It also ends the task, so the user reads the reason and the model does not.
//! Therefore the hook replaces a refused command by one that prints the reason. If clash
//! itself fails, the program that clash writes prints the refusal. A call with several
//! commands is refused: one launcher cannot run them.
//!
//! Limits: the client runs a project's `.clinerules/hooks` without a question and outside
//! of every sandbox. It cannot put a question of clash to the user.

use std::path::{Path, PathBuf};

use clash_policy::{FileCaps, ToolInput};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::wiring::guard;
use super::wiring::{ClashCall, InstallScope, WholeFile, WiredFile};
use super::{
    Agent, AgentAbilities, AgentExtras, ConfinementMethod, HookAnswer, HookEvent, HookMessage,
    HookReply, MessageError, ParsedMessage, QuestionSupport, ToolUseResult, claude_like, patch,
    plugin,
};
use crate::context::UserContext;
use crate::tool_input::{self, CallContext, ToolError};
use crate::variables;

pub(crate) static AGENT: Agent = Agent {
    name: "cline",
    title: "Cline",
    abilities: AgentAbilities {
        program: "cline",
        oldest: [3, 0, 0],
        asks: QuestionSupport::No,
        confines: ConfinementMethod::RewriteAlways,
        project: None,
        session: None,
        moves_files: false,
        openings: &["{\"cancel\":", "{\"contextModification\":"],
    },
    parse,
    sample: |sample| {
        let call = json!({
            "id": "trial", "name": "run_commands", "input": {"commands": [sample.script]},
        });
        json!({
            "hookName": "tool_call", "taskId": sample.session, "workspaceRoots": [sample.cwd],
            "tool_call": call,
        })
    },
    call,
    rewrite,
    reply,
    files,
    steers,
    hostile: |_, _| None,
    extras: AgentExtras::NONE,
};

#[derive(Debug, Deserialize)]
struct ClineMessage {
    #[serde(rename = "hookName")]
    hook: String,
    #[serde(rename = "taskId")]
    task: String,
    #[serde(rename = "workspaceRoots", default)]
    roots: Vec<String>,
    #[serde(alias = "tool_result")]
    tool_call: Option<ClineToolCall>,
}

#[derive(Debug, Deserialize)]
struct ClineToolCall {
    #[serde(default)]
    id: String,
    name: String,
    #[serde(default)]
    input: Map<String, Value>,
    #[serde(default)]
    output: Value,
}

/// Only the events before and after a tool are known. The first workspace is the directory.
fn parse(input: &[u8]) -> ParsedMessage {
    let sent: ClineMessage = serde_json::from_slice(input)?;
    let event = match sent.hook.as_str() {
        "tool_call" => HookEvent::BeforeTool,
        "tool_result" => HookEvent::AfterTool,
        other => return Err(MessageError::unknown_event(other)),
    };
    let cwd = sent.roots.into_iter().next().ok_or(MessageError::Missing("workspaceRoots"))?;
    let call = sent.tool_call.ok_or(MessageError::Missing("tool_call"))?;
    let message = HookMessage {
        session: sent.task,
        cwd,
        tool: call.name,
        input: call.input,
        call: call.id,
        output: claude_like::collect_texts(&call.output),
        ..HookMessage::default()
    };
    Ok((event, message))
}

/// Tools that touch nothing but the client, with their names in policies.
const INTERNAL_TOOLS: &[(&str, &str)] = &[
    ("attempt_completion", "TodoWrite"),
    ("skills", "Skill"),
    ("spawn_agent", "Task"),
    ("submit_and_exit", "TodoWrite"),
];

/// The tool use in the words of policies. A call with several commands is an error, and so is
/// a tool without the field that says what it touches. `None` for a question to the user.
fn call(message: &HookMessage, context: &CallContext<'_>) -> ToolUseResult {
    let (tool, input) = (message.tool.as_str(), &message.input);
    if let Some((_, name)) = INTERNAL_TOOLS.iter().find(|(known, _)| *known == tool) {
        return plugin::read_fields(name, input, context);
    }
    match tool {
        "ask_question" => Ok(None),
        "run_commands" => {
            let script = match input.get("commands").and_then(Value::as_array).map(Vec::as_slice) {
                Some([Value::String(script)]) => script.clone(),
                Some([_, _, ..]) => return Err(ToolError::SeveralCommands),
                _ => return Err(ToolError::Field { tool: tool.to_owned(), field: "commands" }),
            };
            Ok(Some(("Bash".to_owned(), ToolInput::Script(script))))
        }
        "read_files" => {
            let paths = text_of_each(tool, input, "files", "path")?;
            let read = |path: &String| tool_input::file_use(tool, path, FileCaps::READ, context);
            let files = paths.iter().map(read).collect::<Result<_, _>>()?;
            Ok(Some(("Read".to_owned(), ToolInput::Files(files))))
        }
        "editor" => {
            let path = input.get("path").and_then(Value::as_str);
            let path = path.ok_or_else(|| ToolError::Field { tool: tool.into(), field: "path" })?;
            let needs = FileCaps::READ.union(FileCaps::WRITE).union(FileCaps::CREATE);
            let file = tool_input::file_use(tool, path, needs, context)?;
            Ok(Some(("Edit".to_owned(), ToolInput::Files(vec![file]))))
        }
        "apply_patch" => match input.get("input").and_then(Value::as_str) {
            Some(text) => patch::patched_files(tool, text, context).map(Some),
            None => Err(ToolError::Field { tool: tool.to_owned(), field: "input" }),
        },
        "search_codebase" => {
            let file = tool_input::file_use(tool, ".", FileCaps::READ, context)?;
            Ok(Some(("Grep".to_owned(), ToolInput::Files(vec![file]))))
        }
        "fetch_web_content" => {
            let wrong = |source| ToolError::Url { tool: tool.to_owned(), source };
            let urls = text_of_each(tool, input, "requests", "url")?;
            let hosts = urls.iter().map(|url| tool_input::host_use(url).map_err(wrong));
            Ok(Some(("WebFetch".to_owned(), ToolInput::Hosts(hosts.collect::<Result<_, _>>()?))))
        }
        _ => match tool.split_once("__") {
            Some((server, name)) if server != "mcp" => {
                plugin::read_fields(&format!("mcp__{server}__{name}"), input, context)
            }
            _ => tool_input::read_tool_use(tool, input, context).map(Some),
        },
    }
}

/// One text field of every object in a list; an item may also be the text itself. A missing
/// list or text is an error.
fn text_of_each(
    tool: &str,
    input: &Map<String, Value>,
    list: &'static str,
    field: &'static str,
) -> Result<Vec<String>, ToolError> {
    let missing = || ToolError::Field { tool: tool.to_owned(), field };
    let items = input.get(list).and_then(Value::as_array).ok_or_else(missing)?;
    let text = |item: &Value| {
        let text = item.as_str().or_else(|| item.get(field).and_then(Value::as_str));
        text.map(str::to_owned).ok_or_else(missing)
    };
    items.iter().map(text).collect()
}

/// The input with one command.
fn rewrite(_: &HookMessage, command: &str) -> Option<Map<String, Value>> {
    Some(Map::from_iter([("commands".to_owned(), json!([command]))]))
}

/// Before a tool, a deny or a question cancels the call; every other answer lets it run.
/// Afterwards the model can only get a text.
fn reply(event: HookEvent, answer: HookAnswer) -> HookReply {
    if event != HookEvent::BeforeTool {
        return match answer {
            HookAnswer::Note(text)
            | HookAnswer::Context(text)
            | HookAnswer::Deny { reason: text } => {
                HookReply::document(json!({"cancel": false, "contextModification": text}))
            }
            HookAnswer::Allow { .. } | HookAnswer::Ask { .. } | HookAnswer::Silent => {
                HookReply::document(json!({"cancel": false}))
            }
        };
    }
    HookReply::document(match answer {
        HookAnswer::Allow { updated_input: Some(input), .. } => {
            json!({"cancel": false, "overrideInput": input})
        }
        HookAnswer::Allow { .. }
        | HookAnswer::Silent
        | HookAnswer::Note(_)
        | HookAnswer::Context(_) => {
            json!({"cancel": false})
        }
        HookAnswer::Ask { reason, .. } | HookAnswer::Deny { reason } => {
            json!({"cancel": true, "errorMessage": reason})
        }
    })
}

/// The directory of the client's settings.
fn home(user: &UserContext) -> PathBuf {
    user.path_variable(variables::CLINE_DIR).unwrap_or_else(|| user.home.join(".cline"))
}

const MARK: &str = "# clash decides every tool call of Cline.";

/// Two programs in the user's hooks directory. If clash fails, they print the refusal.
fn files(user: &UserContext, scope: &InstallScope) -> Vec<WiredFile> {
    if *scope != InstallScope::User {
        return Vec::new();
    }
    let line = guard::hook_line(user, AGENT.name, &AGENT.abilities);
    let text = format!(
        "#!/bin/sh\n{MARK} Written by `clash install --agent cline`.\n\
         o=$({{ {line}; }} 2>/dev/null) || o=\n\
         case $o in '{{\"cancel\":'*'}}') printf '%s\\n' \"$o\";;\n\
         *) printf '%s\\n' '{{\"cancel\":true,\"errorMessage\":\"clash: the hook failed, so this is blocked; run clash doctor\"}}';; esac\n"
    );
    let wired = |name: &str| {
        let file = home(user).join("hooks").join(name);
        let calls = ClashCall::Itself(file.clone());
        let edit = WholeFile { agent: AGENT.name, text: text.clone(), mark: MARK, calls };
        WiredFile { file, edit: Box::new(edit) }
    };
    ["PreToolUse", "PostToolUse"].map(wired).into()
}

/// The directories with the client's settings and rules.
fn steers(user: &UserContext, project: &Path) -> Vec<PathBuf> {
    vec![home(user), project.join(".cline"), project.join(".clinerules")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{no_part_is_a_message, tool_use, tool_uses};

    const RECORDED: &str = include_str!("../tests/fixtures/cline/hooks.jsonl");

    /// A message of the client before a call of this tool.
    fn message(tool: &str, input: Value) -> String {
        json!({
            "hookName": "tool_call", "taskId": "conv_1", "workspaceRoots": ["/work/app"],
            "tool_call": {"id": "c", "name": tool, "input": input},
        })
        .to_string()
    }

    #[test]
    fn every_recorded_message_is_understood() {
        assert_eq!(
            tool_uses(&AGENT, RECORDED),
            [
                "Bash echo hi > out.txt; cat out.txt",
                "Read /work/app/out.txt r",
                "Edit /work/app/w.txt rwc",
            ]
        );
    }

    #[test]
    fn a_call_that_cannot_be_judged_is_an_error() {
        for (tool, input) in [
            ("run_commands", json!({"commands": ["ls", "id"]})),
            ("run_commands", json!({"commands": []})),
            ("run_commands", json!({"commands": [{"command": "ls"}]})),
            ("run_commands", json!({})),
            ("read_files", json!({"files": [{"start_line": 1}]})),
            ("editor", json!({})),
            ("fetch_web_content", json!({"requests": [{"url": "https://a@b/"}]})),
        ] {
            assert!(tool_use(&AGENT, &message(tool, input)).is_err(), "{tool}");
        }
        no_part_is_a_message(&AGENT, RECORDED.lines().next().unwrap());
    }

    #[test]
    fn a_deny_cancels_and_an_allow_overrides_the_input() {
        let said = |answer| reply(HookEvent::BeforeTool, answer).document.unwrap().to_string();
        let deny = HookAnswer::Deny { reason: "no".into() };
        insta::assert_snapshot!(said(deny), @r#"{"cancel":true,"errorMessage":"no"}"#);
        let input = rewrite(&HookMessage::default(), "x");
        let allow = HookAnswer::Allow { reason: "ok".into(), updated_input: input };
        insta::assert_snapshot!(said(allow), @r#"{"cancel":false,"overrideInput":{"commands":["x"]}}"#);
    }
}
