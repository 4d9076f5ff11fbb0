//! Amazon Q Developer CLI and Kiro CLI. The facts come from their documentation: clash was
//! never run with these clients.
//!
//! Hooks belong to an agent file of the client, and clash writes one called `clash`. A hook
//! that exits with status 2 blocks the call, and the model reads its standard error. After
//! any other failure the client runs the tool, so the guard turns every failure into status
//! 2. The client takes no other command, so the hook tells the model the line to run
//! instead. Messages name no session, so every directory is one session.
//!
//! Limits: the client asks clash only in sessions with that agent (`--agent clash`, or the
//! setting `chat.defaultAgent`).

use std::path::PathBuf;

use clash_policy::fnv::fnv_hash;
use clash_policy::{FileCaps, ToolInput};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::wiring::guard;
use super::wiring::json_edit::JsonSyntax;
use super::wiring::one_key::OneKey;
use super::wiring::{
    ClashCall, HookCommand, InstallScope, SettingsEdit, SettingsError, WholeFile, WiredFile,
    WiringState,
};
use super::{
    Agent, AgentAbilities, AgentExtras, HookAnswer, HookEvent, HookMessage, HookReply,
    MessageError, ParsedMessage, SampleCall, ToolUseResult, claude_like, plugin,
};
use crate::context::UserContext;
use crate::project_settings::read_if_present;
use crate::tool_input::{self, CallContext, ToolError};

pub(crate) static Q: Agent = Agent {
    name: "q",
    title: "Amazon Q",
    abilities: AgentAbilities { program: "q", oldest: [1, 16, 0], ..AgentAbilities::MINIMAL },
    parse,
    sample,
    call,
    rewrite: |_, _| None,
    reply,
    files: |user, scope| match scope {
        InstallScope::User => vec![agent_file(user, &Q, user.home.join(".aws/amazonq/cli-agents"))],
        InstallScope::Project(project) => {
            vec![agent_file(user, &Q, project.join(".amazonq/cli-agents"))]
        }
        InstallScope::Managed => Vec::new(),
    },
    steers: |user, project| vec![user.home.join(".aws/amazonq"), project.join(".amazonq")],
    hostile: |user, project| shadowed(user, &Q, project.join(".amazonq/cli-agents")),
    extras: AgentExtras::NONE,
};

pub(crate) static KIRO: Agent = Agent {
    name: "kiro",
    title: "Kiro CLI",
    abilities: AgentAbilities {
        program: "kiro-cli",
        oldest: [1, 20, 0],
        ..AgentAbilities::MINIMAL
    },
    parse,
    sample,
    call,
    rewrite: |_, _| None,
    reply,
    files: |user, scope| match scope {
        InstallScope::User => vec![
            agent_file(user, &KIRO, user.home.join(".kiro/agents")),
            WiredFile {
                file: user.home.join(".kiro/settings/cli.json"),
                edit: Box::new(OneKey {
                    agent: "kiro",
                    key: "chat.defaultAgent",
                    value: "clash".to_owned(),
                    ours: "clash",
                    starts_commands: false,
                    syntax: JsonSyntax::Strict,
                }),
            },
        ],
        InstallScope::Project(project) => {
            vec![agent_file(user, &KIRO, project.join(".kiro/agents"))]
        }
        InstallScope::Managed => Vec::new(),
    },
    steers: |user, project| vec![user.home.join(".kiro"), project.join(".kiro")],
    hostile: |user, project| shadowed(user, &KIRO, project.join(".kiro/agents")),
    extras: AgentExtras::NONE,
};

#[derive(Debug, Deserialize)]
struct AmazonQMessage {
    hook_event_name: String,
    cwd: String,
    #[serde(default)]
    session_id: String,
    #[serde(default)]
    tool_name: String,
    #[serde(default)]
    tool_input: Map<String, Value>,
    #[serde(default)]
    tool_response: Value,
}

/// Only the events before and after a tool are known. Without a session id, the directory
/// stands for the session.
fn parse(input: &[u8]) -> ParsedMessage {
    let sent: AmazonQMessage = serde_json::from_slice(input)?;
    let event = match sent.hook_event_name.as_str() {
        "preToolUse" => HookEvent::BeforeTool,
        "postToolUse" => HookEvent::AfterTool,
        other => return Err(MessageError::unknown_event(other)),
    };
    if sent.tool_name.is_empty() || sent.cwd.is_empty() {
        return Err(MessageError::Missing("tool_name"));
    }
    let session = if sent.session_id.is_empty() {
        format!("q-{:016x}", fnv_hash(sent.cwd.as_bytes()))
    } else {
        sent.session_id
    };
    let message = HookMessage {
        session,
        cwd: sent.cwd,
        tool: sent.tool_name,
        input: sent.tool_input,
        output: claude_like::collect_texts(&sent.tool_response),
        ..HookMessage::default()
    };
    Ok((event, message))
}

/// A message before a shell command.
fn sample(sample: &SampleCall<'_>) -> Value {
    json!({
        "hook_event_name": "preToolUse", "cwd": sample.cwd, "session_id": sample.session,
        "tool_name": "execute_bash", "tool_input": {"command": sample.script},
    })
}

/// The tool use in the words of policies. Paths at any depth of the input of a reading tool
/// count; a tool for files without a path is an error. A tool `@server/name` is a tool of a
/// server.
fn call(message: &HookMessage, context: &CallContext<'_>) -> ToolUseResult {
    let (tool, input) = (message.tool.as_str(), &message.input);
    let missing = |field| ToolError::Field { tool: tool.to_owned(), field };
    match tool {
        "execute_bash" | "execute_cmd" | "shell" => {
            plugin::read_renamed("Bash", input, &[], context)
        }
        "fs_read" | "read" => {
            let mut paths = Vec::new();
            collect_paths(&Value::Object(input.clone()), &mut paths);
            if paths.is_empty() {
                return Err(missing("path"));
            }
            let read = |path: &String| tool_input::file_use(tool, path, FileCaps::READ, context);
            let files = paths.iter().map(read).collect::<Result<_, _>>()?;
            Ok(Some(("Read".to_owned(), ToolInput::Files(files))))
        }
        // The field `command` names an operation on the file, for example `create`.
        "fs_write" | "write" => {
            let path = input.get("path").and_then(Value::as_str).ok_or_else(|| missing("path"))?;
            let needs = FileCaps::READ.union(FileCaps::WRITE).union(FileCaps::CREATE);
            let file = tool_input::file_use(tool, path, needs, context)?;
            Ok(Some(("Write".to_owned(), ToolInput::Files(vec![file]))))
        }
        "delegate" | "use_subagent" => plugin::read_fields("Task", input, context),
        "introspect" | "thinking" | "todo_list" => plugin::read_fields("TodoWrite", input, context),
        _ => match tool.strip_prefix('@').and_then(|name| name.split_once('/')) {
            Some((server, name)) => {
                plugin::read_fields(&format!("mcp__{server}__{name}"), input, context)
            }
            None => tool_input::read_tool_use(tool, input, context).map(Some),
        },
    }
}

/// Every text in `path`, `paths` and `image_paths`, at any depth of the input.
fn collect_paths(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                match (key.as_str(), value) {
                    ("path", Value::String(path)) => found.push(path.clone()),
                    ("paths" | "image_paths", Value::Array(paths)) => {
                        found.extend(paths.iter().filter_map(Value::as_str).map(str::to_owned));
                    }
                    _ => collect_paths(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_paths(item, found)),
        _ => {}
    }
}

/// A deny or a question before a tool is exit status 2. The client gets nothing else.
fn reply(event: HookEvent, answer: HookAnswer) -> HookReply {
    match answer {
        HookAnswer::Deny { reason } | HookAnswer::Ask { reason, .. }
            if event == HookEvent::BeforeTool =>
        {
            HookReply::blocked(reason)
        }
        _ => HookReply::silent(),
    }
}

/// The wired file for the agent of clash in a directory of agents.
fn agent_file(user: &UserContext, agent: &'static Agent, dir: PathBuf) -> WiredFile {
    let (file, edit) = agent_definition(user, agent, dir);
    WiredFile { file, edit: Box::new(edit) }
}

/// The file in a directory of agents that defines the agent of clash, and its content.
fn agent_definition(
    user: &UserContext,
    agent: &'static Agent,
    dir: PathBuf,
) -> (PathBuf, AgentFile) {
    let line = guard::hook_line(user, agent.name, &agent.abilities);
    let hook = json!([{"matcher": "*", "command": line, "timeout_ms": 30_000}]);
    let text = json!({
        "name": "clash",
        "description": "The usual agent, with every tool call decided by clash",
        "tools": ["*"],
        "includeMcpJson": true,
        "useLegacyMcpJson": true,
        "resources": ["file://AGENTS.md", "file://README.md"],
        "hooks": {"preToolUse": hook, "postToolUse": hook},
    });
    let mark = if agent.name == "q" { " hook q) ||" } else { " hook kiro) ||" };
    let whole =
        WholeFile { agent: agent.name, text: format!("{text:#}\n"), mark, calls: ClashCall::Json };
    (dir.join("clash.json"), AgentFile { whole })
}

/// The agent that clash defines. The client may add to it, for example with
/// `q mcp add --agent clash`: such members stay.
#[derive(Debug)]
struct AgentFile {
    whole: WholeFile,
}

impl AgentFile {
    /// The members of a JSON object; none if the text is no object.
    fn members(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// True if the file has the hooks of clash and members that clash did not write.
    fn is_extended(&self, text: &str) -> bool {
        let ours = Self::members(&self.whole.text);
        let added = |(key, value): (&String, &Value)| {
            key != HOOKS && ours.get(key).is_none_or(|own| own != value)
        };
        text.contains(self.whole.mark) && Self::members(text).iter().any(added)
    }

    /// True if the hooks are exactly those that this clash writes.
    fn has_our_hooks(&self, text: &str) -> bool {
        Self::members(text).get(HOOKS) == Self::members(&self.whole.text).get(HOOKS)
    }
}

/// The member that calls clash.
const HOOKS: &str = "hooks";

impl SettingsEdit for AgentFile {
    /// As for a whole file; but a file that the user has extended keeps the user's members
    /// and gets clash's hooks.
    fn install(&self, text: &str) -> Result<String, SettingsError> {
        if !self.is_extended(text) {
            return self.whole.install(text);
        }
        if self.has_our_hooks(text) {
            return Ok(text.to_owned());
        }
        let mut members = Self::members(text);
        members.extend(Self::members(&self.whole.text).remove_entry(HOOKS));
        Ok(format!("{:#}\n", Value::Object(members)))
    }

    /// As for a whole file; but a file that the user has extended only loses the hooks, all
    /// of them.
    fn uninstall(&self, text: &str) -> Result<String, SettingsError> {
        if !self.is_extended(text) {
            return self.whole.uninstall(text);
        }
        let mut members = Self::members(text);
        members.remove(HOOKS);
        Ok(format!("{:#}\n", Value::Object(members)))
    }

    /// As for a whole file; but members of the user are no problem.
    fn state(&self, text: &str) -> Result<WiringState, SettingsError> {
        if self.is_extended(text) && self.has_our_hooks(text) {
            return Ok(WiringState::Present(Vec::new()));
        }
        self.whole.state(text)
    }

    fn commands(&self, text: &str) -> Result<Vec<HookCommand>, SettingsError> {
        self.whole.commands(text)
    }
}

/// A line about a project's agent of the same name: the client uses it instead of the
/// user's. An agent with exactly the hooks of clash is an installation for the project.
/// `None` if there is no such file; a file that cannot be read counts as foreign.
fn shadowed(user: &UserContext, agent: &'static Agent, dir: PathBuf) -> Option<String> {
    let (file, own) = agent_definition(user, agent, dir);
    let text = match read_if_present(&file) {
        Ok(bytes) => String::from_utf8(bytes?).ok(),
        Err(_) => None,
    };
    let is_ours = text.is_some_and(|text| own.has_our_hooks(&text));
    (!is_ours).then(|| format!("{}: takes the place of the agent clash", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{imagined_user, no_part_is_a_message, tool_uses};

    /// Messages from their documentation.
    const DOCUMENTED: &str = include_str!("../tests/fixtures/q/documented.jsonl");

    #[test]
    fn every_documented_message_is_understood() {
        assert_eq!(
            tool_uses(&Q, DOCUMENTED),
            [
                "Bash ls -la",
                "Read /work/app/docs/hooks.md r",
                "Read /work/app/a.png r /work/app/b.png r",
                "Write /work/app/new.txt rwc",
                "mcp__postgres__query",
                "use_aws",
            ]
        );
    }

    #[test]
    fn messages_of_one_directory_are_one_session() {
        let line = DOCUMENTED.lines().next().unwrap();
        let session = |line: &str| parse(line.as_bytes()).unwrap().1.session;
        assert_eq!(session(line), session(DOCUMENTED.lines().nth(1).unwrap()));
        assert_ne!(session(line), session(&line.replace("/work/app", "/work/other")));
        no_part_is_a_message(&Q, line);
        assert!(parse(line.replace("preToolUse", "agentSpawn").as_bytes()).is_err());
    }

    #[test]
    fn a_deny_or_question_blocks_and_an_allow_is_silent() {
        let deny = HookAnswer::Deny { reason: "no".into() };
        assert_eq!(reply(HookEvent::BeforeTool, deny).blocks.as_deref(), Some("no"));
        let ask = HookAnswer::Ask { reason: "why".into(), updated_input: None };
        assert_eq!(reply(HookEvent::BeforeTool, ask).blocks.as_deref(), Some("why"));
        let allow = HookAnswer::Allow { reason: String::new(), updated_input: None };
        assert_eq!(reply(HookEvent::BeforeTool, allow), HookReply::silent());
    }

    #[test]
    fn only_an_agent_with_the_hooks_of_clash_may_take_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let user = imagined_user(dir.path().join("home"));
        let agents = dir.path().join("agents");
        std::fs::create_dir(&agents).unwrap();
        let told = || shadowed(&user, &Q, agents.clone());
        assert_eq!(told(), None);
        let (file, own) = agent_definition(&user, &Q, agents.clone());
        let extended = own.whole.text.replace("\"tools\"", "\"mcpServers\": {}, \"tools\"");
        for ours in [own.whole.text.as_bytes(), extended.as_bytes()] {
            std::fs::write(&file, ours).unwrap();
            assert_eq!(told(), None);
        }
        let pretends = r#"{"name": "clash", "description": "clash' hook q) ||", "hooks": {}}"#;
        for other in [&b"{}"[..], pretends.as_bytes(), b"\xff"] {
            std::fs::write(&file, other).unwrap();
            assert!(told().is_some(), "{}", String::from_utf8_lossy(other));
        }
    }
}
