//! OpenCode, and Kilo, which is made from it. A plugin judges every tool call, and every
//! command goes through clash because clash is the shell they are set to.
//!
//! Seen with OpenCode 1.18.33 and Kilo 7.7.7. The client skips a plugin that does not load,
//! without a message; the shell then runs nothing, because no hook has reported the
//! session. The client replaces a shell that does not exist, without a message; the plugin
//! then cannot reach clash either, and refuses. The command stays as it is, so the client's
//! own `permission` rules see it.
//!
//! Limits: a plugin of a project runs inside the client, where only `clash run` confines
//! it. The client cannot put a question of clash to the user.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::wiring::json_edit::JsonSyntax;
use super::wiring::one_key::OneKey;
use super::wiring::{ClashCall, InstallScope, WholeFile, WiredFile};
use super::{
    Agent, AgentAbilities, AgentExtras, ConfinementMethod, HookMessage, ToolUseResult, claude_like,
    patch, plugin,
};
use crate::context::UserContext;
use crate::tool_input::{CallContext, ToolError};
use crate::variables;

pub(crate) static OPENCODE: Agent = Agent {
    name: "opencode",
    title: "OpenCode",
    abilities: AgentAbilities { program: "opencode", oldest: [1, 18, 0], ..ABILITIES },
    parse: plugin::parse,
    sample: plugin::sample,
    call,
    rewrite: claude_like::rewrite,
    reply: plugin::reply,
    files: |user, scope| {
        files(user, scope, &OpencodeNames { agent: "opencode", plugins: "plugins" })
    },
    steers: |user, project| steers(user, project, "opencode"),
    hostile: |_, project| hostile(project, "opencode"),
    extras: AgentExtras {
        history: Some(|user| {
            let data = user.path_variable(variables::XDG_DATA_HOME);
            data.unwrap_or_else(|| user.home.join(".local/share")).join("opencode")
        }),
        ..AgentExtras::NONE
    },
};

pub(crate) static KILO: Agent = Agent {
    name: "kilo",
    title: "Kilo",
    abilities: AgentAbilities { program: "kilo", oldest: [7, 7, 0], ..ABILITIES },
    parse: plugin::parse,
    sample: plugin::sample,
    call,
    rewrite: claude_like::rewrite,
    reply: plugin::reply,
    files: |user, scope| files(user, scope, &OpencodeNames { agent: "kilo", plugins: "plugin" }),
    steers: |user, project| steers(user, project, "kilo"),
    hostile: |_, project| hostile(project, "kilo"),
    extras: AgentExtras::NONE,
};

const ABILITIES: AgentAbilities = AgentAbilities {
    confines: ConfinementMethod::Shell,
    project: Some(plugin::PROJECT),
    session: Some(variables::CLASH_SESSION),
    moves_files: true,
    openings: plugin::OPENINGS,
    ..AgentAbilities::MINIMAL
};

/// The names that differ between the two clients.
struct OpencodeNames {
    agent: &'static str,
    plugins: &'static str,
}

/// Tools that touch nothing but the client, with their names in policies.
const INTERNAL_TOOLS: &[(&str, &str)] = &[
    ("batch", "Task"),
    ("invalid", "ToolSearch"),
    ("plan_enter", "TodoWrite"),
    ("plan_exit", "TodoWrite"),
    ("skill", "Skill"),
    ("task", "Task"),
    ("todoread", "TodoWrite"),
    ("todowrite", "TodoWrite"),
];

const FILES: &[&str] = &["edit", "glob", "grep", "list", "multiedit", "read", "write"];

fn call(message: &HookMessage, context: &CallContext<'_>) -> ToolUseResult {
    let (tool, input) = (message.tool.as_str(), &message.input);
    let fields = |name: &str| plugin::read_fields(name, input, context);
    match tool {
        "bash" => plugin::read_renamed("Bash", input, &[], context),
        "question" => Ok(None),
        "apply_patch" | "patch" => match input.get("patchText").and_then(Value::as_str) {
            Some(text) => patch::patched_files(tool, text, context).map(Some),
            None => Err(ToolError::Field { tool: tool.to_owned(), field: "patchText" }),
        },
        "webfetch" | "websearch" => plugin::read_renamed(tool, input, &[], context),
        // It starts commands without the shell, and so without clash.
        "background_process" => match input.get("command") {
            Some(_) => Err(ToolError::Elsewhere { tool: tool.to_owned(), instead: "bash" }),
            None => fields("BashOutput"),
        },
        _ if FILES.contains(&tool) => {
            plugin::read_renamed(tool, input, &[("filePath", "file_path")], context)
        }
        _ => match INTERNAL_TOOLS.iter().find(|(known, _)| *known == tool) {
            Some((_, name)) => fields(name),
            // A server's tool, or a tool that clash does not know yet.
            None => fields(&match tool.split_once('_') {
                Some((server, name)) => format!("mcp__{server}__{name}"),
                None => tool.to_owned(),
            }),
        },
    }
}

fn config(user: &UserContext, agent: &str) -> PathBuf {
    let base =
        user.path_variable(variables::XDG_CONFIG_HOME).unwrap_or_else(|| user.home.join(".config"));
    base.join(agent)
}

fn files(user: &UserContext, scope: &InstallScope, names: &OpencodeNames) -> Vec<WiredFile> {
    if *scope != InstallScope::User {
        return Vec::new();
    }
    let OpencodeNames { agent, plugins } = *names;
    let config = config(user, agent);
    let text = plugin::plugin_text(include_str!("opencode/clash.js"), user, agent);
    let with_comments = config.join(format!("{agent}.jsonc"));
    let settings =
        if with_comments.exists() { with_comments } else { config.join(format!("{agent}.json")) };
    let shell = OneKey {
        agent,
        key: "shell",
        value: user.agents_shell().to_string_lossy().into_owned(),
        ours: "/clash-sh",
        starts_commands: true,
        syntax: JsonSyntax::Jsonc,
    };
    vec![
        WiredFile {
            file: config.join(plugins).join("clash.js"),
            edit: Box::new(WholeFile { agent, text, mark: plugin::MARK, calls: ClashCall::Plugin }),
        },
        WiredFile { file: settings, edit: Box::new(shell) },
    ]
}

fn steers(user: &UserContext, project: &Path, agent: &str) -> Vec<PathBuf> {
    vec![
        config(user, agent),
        project.join(format!(".{agent}")),
        project.join(format!("{agent}.json")),
        project.join(format!("{agent}.jsonc")),
    ]
}

/// A line about a project's settings that name another shell: its commands would not go
/// through clash.
fn hostile(project: &Path, agent: &str) -> Option<String> {
    let names = ["json", "jsonc"].map(|ending| format!("{agent}.{ending}"));
    let dirs = [project.to_path_buf(), project.join(format!(".{agent}"))];
    let files = dirs.iter().flat_map(|dir| names.iter().map(|name| dir.join(name)));
    files.into_iter().find_map(|file| {
        // The client accepts more than JSON. A search in the text also finds the setting in
        // a form that clash cannot parse.
        let text = std::fs::read_to_string(&file).ok()?;
        text.contains("\"shell\"").then(|| format!("{}: sets the shell", file.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HookEvent;

    const RECORDED: &str = include_str!("../tests/fixtures/opencode/calls.jsonl");

    fn wanted(tool: &str, input: Value) -> String {
        let context = CallContext::imagined("/work/app");
        let input = input.as_object().unwrap().clone();
        let message = HookMessage { tool: tool.to_owned(), input, ..HookMessage::default() };
        call(&message, &context)
            .map_or_else(|error| format!("error: {error}"), crate::test_support::shown)
    }

    #[test]
    fn every_recorded_call_is_understood() {
        let context = CallContext::imagined("/work/app");
        for line in RECORDED.lines() {
            let (event, message) = plugin::parse(line.as_bytes()).unwrap();
            assert_eq!(event, HookEvent::BeforeTool);
            assert!(call(&message, &context).unwrap().is_some(), "{line}");
        }
    }

    #[test]
    fn tools_are_judged_by_what_they_touch() {
        use serde_json::json;
        let patch = "*** Begin Patch\n*** Add File: x\n+1\n*** End Patch";
        for (tool, input, expected) in [
            ("bash", json!({"command": "ls"}), "Bash ls"),
            ("write", json!({"filePath": "a", "content": ""}), "Write /work/app/a wc"),
            ("edit", json!({"filePath": "/etc/x"}), "Edit /etc/x rw"),
            ("patch", json!({"patchText": patch}), "Edit /work/app/x wc"),
            ("webfetch", json!({"url": "https://docs.rs/x"}), "WebFetch docs.rs"),
            ("task", json!({"prompt": "p", "command": "x"}), "Task"),
            ("lab_shout", json!({"command": "x"}), "mcp__lab__shout"),
            ("question", json!({}), "nothing"),
        ] {
            assert_eq!(wanted(tool, input), expected);
        }
        for (tool, input) in [
            ("bash", json!({})),
            ("write", json!({"content": ""})),
            ("patch", json!({"patchText": ""})),
            ("background_process", json!({"action": "start", "command": "sleep 9"})),
        ] {
            assert!(wanted(tool, input).starts_with("error"), "{tool}");
        }
    }

    #[test]
    fn a_project_that_sets_the_shell_is_hostile() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(hostile(dir.path(), "opencode"), None);
        std::fs::create_dir(dir.path().join(".opencode")).unwrap();
        let file = dir.path().join(".opencode/opencode.jsonc");
        std::fs::write(file, "{ // ours\n \"shell\": \"/bin/sh\" }").unwrap();
        assert!(hostile(dir.path(), "opencode").unwrap().contains("sets the shell"));
    }
}
