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
use crate::context::{UserContext, settings_roots};
use crate::project_settings::{hostile_key, read_if_present};
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
    files: |user, scope| files(user, scope, &OPENCODE_NAMES),
    steers: |user, project| steers(user, project, &OPENCODE_NAMES),
    hostile: |user, project| hostile(user, project, &OPENCODE_NAMES),
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
    files: |user, scope| files(user, scope, &KILO_NAMES),
    steers: |user, project| steers(user, project, &KILO_NAMES),
    hostile: |user, project| hostile(user, project, &KILO_NAMES),
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
    /// The directories of settings in a project.
    project_dirs: &'static [&'static str],
    /// The settings files in a project and in these directories.
    project_files: &'static [&'static str],
}

const OPENCODE_NAMES: OpencodeNames = OpencodeNames {
    agent: "opencode",
    plugins: "plugins",
    project_dirs: &[".opencode"],
    project_files: &["opencode.json", "opencode.jsonc"],
};

/// Kilo also reads the files of OpenCode.
const KILO_NAMES: OpencodeNames = OpencodeNames {
    agent: "kilo",
    plugins: "plugin",
    project_dirs: &[".kilo", ".kilocode"],
    project_files: &["kilo.json", "kilo.jsonc", "opencode.json", "opencode.jsonc"],
};

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

/// A tool `server_name` is a tool of a server. A background process with a command is an
/// error.
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

/// The directory of the client's settings.
fn config(user: &UserContext, agent: &str) -> PathBuf {
    let base =
        user.path_variable(variables::XDG_CONFIG_HOME).unwrap_or_else(|| user.home.join(".config"));
    base.join(agent)
}

/// The plugin, and the shell in the settings file that exists. Only for the user.
fn files(user: &UserContext, scope: &InstallScope, names: &OpencodeNames) -> Vec<WiredFile> {
    if *scope != InstallScope::User {
        return Vec::new();
    }
    let OpencodeNames { agent, plugins, .. } = *names;
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

/// The user's settings, and the settings files and directories of a project.
fn steers(user: &UserContext, project: &Path, names: &OpencodeNames) -> Vec<PathBuf> {
    let own = names.project_dirs.iter().chain(names.project_files).map(|name| project.join(name));
    std::iter::once(config(user, names.agent)).chain(own).collect()
}

/// A line about a project's settings that name another shell: its commands would not go
/// through clash. Looks in the project and above it, up to the root of the repository.
fn hostile(user: &UserContext, project: &Path, names: &OpencodeNames) -> Option<String> {
    // If the home is a repository, these are the user's own.
    let roots = settings_roots(project).into_iter().filter(|root| *root != user.home);
    let dirs = roots.flat_map(|root| {
        let below: Vec<PathBuf> = names.project_dirs.iter().map(|dir| root.join(dir)).collect();
        std::iter::once(root).chain(below)
    });
    let mut files = dirs.flat_map(|dir| names.project_files.iter().map(move |name| dir.join(name)));
    files.find_map(|file| {
        let setting = hostile_key(&file, "sets the shell", |key| {
            key == "shell" || SUBSTITUTIONS.iter().any(|start| key.contains(start))
        });
        setting.or_else(|| odd_substitution(&file))
    })
}

/// Before the client parses its settings, it replaces `{env:NAME}` by a variable and
/// `{file:PATH}` by the escaped content of a file, wherever they stand in the text. For
/// example, `"sh{env:UNSET}ell"` becomes `"shell"`.
const SUBSTITUTIONS: [&str; 2] = ["{env:", "{file:"];

/// A line about a substitution that reaches over the end of a string or of a comment:
/// behind it, the client reads other keys than clash. `None` for a file that cannot be
/// read.
fn odd_substitution(file: &Path) -> Option<String> {
    let bytes = read_if_present(file).ok().flatten()?;
    let text = String::from_utf8_lossy(&bytes);
    let is_odd = SUBSTITUTIONS.iter().any(|start| {
        text.split(start).skip(1).any(|rest| {
            let name = rest.split('}').next().unwrap_or(rest);
            name.contains(['"', '\n', '*'])
        })
    });
    is_odd.then(|| format!("{}: has a substitution that clash cannot read", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HookEvent;
    use crate::test_support::imagined_user;

    const RECORDED: &str = include_str!("../tests/fixtures/opencode/calls.jsonl");

    /// The tool use that clash judges for a call, as text; or the error.
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

    /// The client reads the shell from each of these files and texts, or may read it there
    /// after it has replaced `{env:…}` and `{file:…}` (OpenCode 1.18.33).
    #[test]
    fn a_project_that_sets_the_shell_is_hostile() {
        for (file, text) in [
            ("app/.opencode/opencode.jsonc", "{ // ours\n \"shell\": \"/bin/sh\" }"),
            ("app/opencode.json", r#"{"\u0073hell": "/bin/sh"}"#),
            ("app/opencode.json", r#"{"sh{env:UNSET}ell": "/bin/sh"}"#),
            ("app/opencode.json", r#"{"{file:./name}": "/bin/sh"}"#),
            ("app/opencode.json", r#"{"username": "{env:", "x": "}"}"#),
            ("opencode.json", r#"{"shell": "/bin/sh"}"#),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let project = dir.path().join("app");
            std::fs::create_dir_all(project.join(".opencode")).unwrap();
            std::fs::create_dir(dir.path().join(".git")).unwrap();
            assert_eq!(hostile(&imagined_user("/home/u"), &project, &OPENCODE_NAMES), None);
            std::fs::write(dir.path().join(file), text).unwrap();
            assert!(
                hostile(&imagined_user("/home/u"), &project, &OPENCODE_NAMES).is_some(),
                "{file} {text}"
            );
        }
    }

    /// As seen with Kilo 7.7.7.
    #[test]
    fn settings_of_opencode_count_for_kilo() {
        for file in ["opencode.json", ".kilocode/kilo.jsonc", ".kilo/opencode.json", "kilo.json"] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, r#"{"shell": "/bin/sh"}"#).unwrap();
            let told = hostile(&imagined_user("/home/u"), dir.path(), &KILO_NAMES);
            assert!(told.unwrap_or_default().contains("sets the shell"), "{file}");
        }
    }

    #[test]
    fn usual_settings_are_not_hostile() {
        let dir = tempfile::tempdir().unwrap();
        let text = r#"{"model": "x", "provider": {"y": {"options": {"apiKey": "{env:KEY}"}}},
            "instructions": ["{file:./docs/shell.md}"], "permission": {"bash": "ask"}, }"#;
        std::fs::write(dir.path().join("opencode.jsonc"), text).unwrap();
        assert_eq!(hostile(&imagined_user("/home/u"), dir.path(), &OPENCODE_NAMES), None);
    }
}
