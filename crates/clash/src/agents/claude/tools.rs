//! Claude Code's tools as actions. What a tool touches is read from the shape
//! of its input: an unknown one with a `command` or a path is judged by it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clash_policy::path::{Links, normalise};
use clash_policy::{Action, Caps, Input};
use clash_sandbox::disk::Disk;
use serde_json::{Map, Value};

use super::Message;

/// Tools that are themselves a question to the user and touch nothing.
const PROMPTS: &[&str] = &["AskUserQuestion", "EnterPlanMode", "ExitPlanMode"];

pub(crate) fn is_prompt(tool: &str) -> bool {
    PROMPTS.contains(&tool)
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    #[error("the input of {tool} has no text in `{field}`")]
    Field { tool: String, field: &'static str },
    #[error("the input of {tool} names several paths")]
    SeveralPaths { tool: String },
    #[error("{tool}: {source}")]
    Url { tool: String, source: clash_net::name::NameError },
}

/// What the tool call wants.
pub(crate) fn action(message: &Message, home: &Path) -> Result<Action, ToolError> {
    let (tool, input) = (message.tool_name.as_str(), &message.tool_input);
    let server = tool.starts_with("mcp__");
    // Monitor runs commands like Bash; whatever else has a command does too.
    let runs_command = input.contains_key("command") && !server;
    if runs_command || tool == "Bash" || tool == "Monitor" {
        let script = field(tool, input, "command")?;
        return Ok(Action::script("claude", &message.permission_mode, script));
    }
    Ok(Action {
        agent: "claude".to_owned(),
        tool: tool.to_owned(),
        mode: message.permission_mode.clone(),
        input: match tool {
            _ if server => Input::Other,
            "WebFetch" => {
                let host = clash_net::name::host_of_url(field(tool, input, "url")?);
                Input::Host(
                    host.map_err(|source| ToolError::Url { tool: tool.to_owned(), source })?,
                )
            }
            _ => match file(tool, input)? {
                Some((path, needs)) => {
                    let path = absolute(&path, Path::new(&message.cwd), home);
                    let (disk, tidied) = (Disk::default(), normalise(&path));
                    // The tool may drop a link together with the `..` behind it.
                    if disk.real(&path) != disk.real(&tidied) {
                        return Err(ToolError::SeveralPaths { tool: tool.to_owned() });
                    }
                    Input::File { path: disk.real(&path), needs }
                }
                None => Input::Other,
            },
        },
    })
}

fn field<'a>(
    tool: &str,
    input: &'a Map<String, Value>,
    field: &'static str,
) -> Result<&'a str, ToolError> {
    let text = input.get(field).and_then(Value::as_str);
    text.ok_or_else(|| ToolError::Field { tool: tool.to_owned(), field })
}

/// The path a file tool works on and what it needs there.
fn file(tool: &str, input: &Map<String, Value>) -> Result<Option<(String, Caps)>, ToolError> {
    let text = |name| input.get(name).and_then(Value::as_str);
    let given = ["file_path", "notebook_path", "path"].into_iter().filter_map(text);
    if given.collect::<BTreeSet<_>>().len() > 1 {
        return Err(ToolError::SeveralPaths { tool: tool.to_owned() });
    }
    let needs = match tool {
        "Read" | "NotebookRead" | "LS" => Caps::READ,
        "Write" => Caps::WRITE.union(Caps::CREATE),
        "Edit" | "MultiEdit" | "NotebookEdit" => Caps::READ.union(Caps::WRITE),
        "Glob" | "Grep" => {
            let base = text("path").unwrap_or(".");
            let pattern = if tool == "Glob" { text("pattern").unwrap_or_default() } else { "" };
            return Ok(Some((under(base, fixed_part(pattern)), Caps::READ)));
        }
        // An unknown tool that names a file may do anything to it.
        _ => match text("file_path").or(text("notebook_path")) {
            Some(path) => return Ok(Some((path.to_owned(), Caps::ALL.without(Caps::EXECUTE)))),
            None => return Ok(None),
        },
    };
    let path = text("file_path").or(text("notebook_path")).or(text("path"));
    let missing = || ToolError::Field { tool: tool.to_owned(), field: "file_path" };
    Ok(Some((path.ok_or_else(missing)?.to_owned(), needs)))
}

/// The directories of a glob before its first wildcard: `../x/*.rs` looks in
/// `../x`, whatever its base.
fn fixed_part(pattern: &str) -> &str {
    // Behind a wildcard these could lead anywhere.
    let climbs =
        pattern.split('/').any(|part| part == "..") && pattern.contains(['*', '?', '[', '{']);
    let leaps = pattern.contains('{')
        && pattern.split_once('{').is_some_and(|(_, rest)| rest.contains('/'));
    let plain_climb = pattern.trim_start_matches("../").split('/').all(|part| part != "..");
    if (climbs && !plain_climb) || leaps {
        return "/";
    }
    let wild = pattern.find(['*', '?', '[', '{']).unwrap_or(pattern.len());
    let before = pattern.get(..wild).unwrap_or_default();
    before.rfind('/').and_then(|slash| before.get(..=slash)).unwrap_or_default()
}

fn under(base: &str, rest: &str) -> String {
    if rest.starts_with('/') || rest.starts_with('~') {
        rest.to_owned()
    } else {
        format!("{base}/{rest}")
    }
}

fn absolute(path: &str, cwd: &Path, home: &Path) -> PathBuf {
    match path.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            home.join(rest.trim_start_matches('/'))
        }
        _ => cwd.join(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn input(tool: &str, input: Value) -> Result<Input, ToolError> {
        let text = json!({
            "session_id": "s", "hook_event_name": "PreToolUse", "cwd": "/work/app",
            "tool_name": tool, "tool_input": input,
        });
        let (_, message) = super::super::parse(text.to_string().as_bytes()).unwrap();
        action(&message, Path::new("/home/u")).map(|action| action.input)
    }

    fn path(tool: &str, given: Value) -> String {
        match input(tool, given).unwrap() {
            Input::File { path, needs } => format!("{} {needs}", path.display()),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn file_tools_name_the_resolved_path_and_what_they_need() {
        assert_eq!(path("Read", json!({"file_path": "src/../a.rs"})), "/work/app/a.rs r");
        assert_eq!(path("Write", json!({"file_path": "/x//y", "content": ""})), "/x/y wc");
        assert_eq!(path("Edit", json!({"file_path": "~/.bashrc"})), "/home/u/.bashrc rw");
        assert_eq!(
            path("NotebookEdit", json!({"notebook_path": "n.ipynb"})),
            "/work/app/n.ipynb rw"
        );
        assert_eq!(path("Glob", json!({"pattern": "**/*.rs"})), "/work/app r");
        assert_eq!(path("Glob", json!({"pattern": "../../etc/*"})), "/etc r");
        assert_eq!(path("Glob", json!({"pattern": "/home/u/.ssh/id_*"})), "/home/u/.ssh r");
        assert_eq!(path("Glob", json!({"pattern": "c*/../../h/.ssh/*"})), "/ r");
        assert_eq!(path("Glob", json!({"pattern": "{/etc,x}/*"})), "/ r");
        assert_eq!(path("Grep", json!({"pattern": "x", "path": "/var"})), "/var r");
        assert_eq!(path("FancyEdit", json!({"file_path": "z"})), "/work/app/z rwcd");
    }

    #[test]
    fn anything_with_a_command_is_a_script() {
        let script = Input::Script("make".into());
        for tool in ["Bash", "Monitor", "Brandnew"] {
            assert_eq!(input(tool, json!({"command": "make"})).unwrap(), script, "{tool}");
        }
        assert!(input("Bash", json!({"command": 7})).is_err());
        assert!(input("Brandnew", json!({"command": ["make"]})).is_err());
        assert!(input("Edit", json!({"file_path": "a", "notebook_path": "b"})).is_err());
        assert_eq!(input("mcp__db__query", json!({"command": "x"})).unwrap(), Input::Other);
    }

    #[test]
    fn web_tools_name_the_host() {
        let host = |url: &str| input("WebFetch", json!({"url": url}));
        assert_eq!(host("https://Docs.rs/x").unwrap(), Input::Host("docs.rs".into()));
        assert!(host("https://docs.rs@evil.test/").is_err());
    }
}
