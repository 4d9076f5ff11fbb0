//! Runs real agent clients offline against a scripted model: the shared part of the tests
//! of each client.
//!
//! The tests do not trust a reply of clash. They look at files on the disk, at the tool
//! results that the client sent to the model, and at the trace.
//!
//! Needs the client (for example `CLASH_TEST_CODEX=/path/to/codex`) and `python3`, for the
//! scripted model in `tests/agents`. A test that misses one of these says so and is
//! skipped.
//!
//! One session of a client is a list of [`steps::ClientStep`]s, each with the abilities
//! that it shows. `abilities.rs` makes the table in `docs/agents.md` from them.

mod broken_hook;
mod model;
mod steps;

pub(crate) use broken_hook::SHORT_LIMIT;
pub(crate) use model::{AS_TOLD, THE_ID, Talk, ToolResult};
pub(crate) use steps::steps;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Machine, Ran, Who, skipped, test_file};
use broken_hook::install_breakable_hook;
use model::ScriptedModel;

/// The abilities that a step shows, in the order of the table's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shows {
    Allow,
    Deny,
    Ask,
    Rewrite,
    FailClosed,
    Edit,
    Mcp,
    Web,
    Subagent,
    Background,
}

impl Shows {
    pub(crate) const ALL: [Self; 10] = [
        Self::Allow,
        Self::Deny,
        Self::Ask,
        Self::Rewrite,
        Self::FailClosed,
        Self::Edit,
        Self::Mcp,
        Self::Web,
        Self::Subagent,
        Self::Background,
    ];

    /// The heading of the column.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Ask => "ask",
            Self::Rewrite => "same output and status",
            Self::FailClosed => "fail closed",
            Self::Edit => "edit",
            Self::Mcp => "MCP",
            Self::Web => "web",
            Self::Subagent => "subagents",
            Self::Background => "background",
        }
    }
}

/// How to start one client, and what its calls look like.
pub(crate) struct Client {
    /// The name in `clash install --agent NAME`.
    pub(crate) name: &'static str,
    /// Writes the settings that the client needs besides clash. `127.0.0.1:PORT` stands for
    /// the address of the model, which is not known yet.
    pub(crate) configure: fn(&Machine),
    /// The files in which [`Client::configure`] wrote the address.
    pub(crate) with_port: &'static [&'static str],
    /// Arguments and environment for a run in which the client obeys the model.
    pub(crate) start: fn(&Machine, &mut Command, &str),
    /// A call of the shell tool.
    pub(crate) shell: fn(&str) -> Value,
    /// A call that writes a file.
    pub(crate) write: fn(&Path, &str) -> Value,
    /// A call of the tool `shout` of the server `lab`.
    pub(crate) shout: fn(&str) -> Value,
    /// A call that fetches a page.
    pub(crate) fetch: Option<fn(&str) -> Value>,
    /// A call that gives a subagent this task and waits for it.
    pub(crate) delegate: Option<fn(&str) -> Value>,
    /// A call that runs a script in the background.
    pub(crate) background: Option<fn(&str) -> Value>,
    /// True if the model has to run the line that clash tells it.
    pub(crate) instructed: bool,
}

/// A server with one tool. It notes every call and whether it can read the secret.
const SERVER: &str = r#"
import json, os, sys
try:
    seen = open(os.path.expanduser("~/.ssh/id_ed25519")).read()
except OSError as error:
    seen = str(error)
open(sys.argv[1] + ".saw", "w").write(seen)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method = message["method"]
    if method == "initialize":
        version = message["params"].get("protocolVersion", "2024-11-05")
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "lab", "version": "1"}}
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        result = {"tools": [{"name": "shout", "description": "shout", "inputSchema": schema}]}
    elif method == "tools/call":
        text = message["params"]["arguments"]["text"]
        open(sys.argv[1], "a").write(text + "\n")
        result = {"content": [{"type": "text", "text": text.upper()}]}
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

pub(crate) const POLICY: &str = r#"
load("@clash//sandboxes.star", "project")
settings(default = ask(), default_sandbox = project)
when({
    "Bash": {
        ("cat", "cd", "cp", "echo", "exit", "grep", "mkdir", "printf", "pwd", "read", "sleep", "true"): allow(),
        "rm": deny(reason = "nothing is deleted here"),
    },
    ("Read", "Write", "Edit", "NotebookEdit", "Skill"): allow(sandbox = project),
    ("Agent", "Task", "TaskStop", "ToolSearch", "agent", "invoke_agent"): allow(),
    "mcp__lab__shout": {"text": {"abc": allow(), glob("**"): deny(reason = "not that word")}},
    "WebFetch": {"docs.rs": allow(), glob("**"): deny(reason = "not that host")},
})
"#;

pub(crate) const SECRET: &str = "secret-key-material";

/// The word in the task of a subagent, by which the model recognises its conversation.
const SUBTASK: &str = "SUBTASK";

/// A script for a subagent or the background. It writes whether it can read the secret,
/// and that it has ended.
pub(crate) fn look(name: &str) -> String {
    format!("cat ~/.ssh/id_ed25519 > {name}.txt 2>&1; echo over > {name}.over")
}

/// Waits for such a script.
pub(crate) fn wait(name: &str) -> String {
    format!("until cat {name}.over; do sleep 0.5; done")
}

/// Checks that the script of [`look`] has ended and could not read the secret.
#[track_caller]
pub(crate) fn saw_nothing(m: &Machine, name: &str) {
    assert!(m.project().join(format!("{name}.over")).exists());
    let seen = fs::read_to_string(m.project().join(format!("{name}.txt"))).unwrap();
    assert!(out_of_reach(&seen), "{seen}");
}

/// Shows whether the command is in a sandbox, where it cannot read the key or the
/// variables of the client's service.
pub(crate) const WHERE_AM_I: &str = "echo made > made.txt; cat ~/.ssh/id_ed25519; grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status; echo keys[$ANTHROPIC_API_KEY$COPILOT_PROVIDER_API_KEY$FACTORY_API_KEY$GEMINI_API_KEY$OPENAI_API_KEY]";

/// The command of the server `lab`, for settings.
pub(crate) fn server(m: &Machine) -> Value {
    let log = m.project().join("shouted");
    json!({"command": "python3", "args": [m.project().join("server.py"), log]})
}

impl Client {
    /// False for pi, which has no servers.
    fn has_servers(&self) -> bool {
        self.name != "pi"
    }

    /// False for OpenCode and Kilo, which do not tell the model the exit status.
    fn tells_status(&self) -> bool {
        !matches!(self.name, "kilo" | "opencode")
    }

    /// The client's program. Prints the reason and returns `None` if something is missing.
    pub(crate) fn here(&self) -> Option<Here<'_>> {
        let variable = format!("CLASH_TEST_{}", self.name.to_uppercase());
        let missing = |what: &str| skipped(&format!("a test with the real {}: {what}", self.name));
        let Some(program) = std::env::var_os(&variable).map(PathBuf::from) else {
            missing(&format!("{variable} is not set"));
            return None;
        };
        let model = test_file("agents/scripted_model.py");
        if !program.exists() {
            missing(&format!("no {}", program.display()));
            return None;
        }
        if !Command::new("python3").arg("--version").output().is_ok_and(|o| o.status.success()) {
            missing("no python3");
            return None;
        }
        Some(Here { client: self, program, model })
    }

    /// The calls that run a script: two, if the model has to run the line that clash tells
    /// it.
    fn scripted(&self, script: &str) -> Vec<Value> {
        let bare = (self.shell)(script);
        if self.instructed { vec![bare, (self.shell)(AS_TOLD)] } else { vec![bare] }
    }

    /// The calls of a subagent: an allowed one and a denied one.
    fn of_subagent(&self) -> Vec<Value> {
        let mut calls = self.scripted(&look("sub"));
        calls.push((self.shell)("rm keep.txt"));
        calls
    }

    /// A machine with a secret, the policy, a server, and clash installed.
    pub(crate) fn installed(&self, who: Who) -> Machine {
        let m = self.bare(who);
        m.clash(["install", "--agent", self.name, "--yes"]).succeeds();
        m
    }

    /// The same machine without clash.
    pub(crate) fn bare(&self, who: Who) -> Machine {
        let m = Machine::new(who).policy(POLICY);
        m.write(".ssh/id_ed25519", SECRET);
        m.write("app/server.py", SERVER);
        (self.configure)(&m);
        m
    }
}

/// A client that is installed on this machine.
pub(crate) struct Here<'a> {
    pub(crate) client: &'a Client,
    pub(crate) program: PathBuf,
    model: PathBuf,
}

impl Here<'_> {
    /// Runs the client with one tool call per turn and returns the results.
    pub(crate) fn run(&self, m: &Machine, calls: &[Value]) -> Talk {
        let (talk, ran) = self.attempt(m, calls, &[]);
        assert_eq!(talk.results.len(), calls.len(), "{:#?}\n{ran:?}", talk.results);
        talk
    }

    /// The same with a subagent that makes calls of its own.
    pub(crate) fn run_with_subagent(&self, m: &Machine, calls: &[Value], inner: &[Value]) -> Talk {
        let (talk, ran) = self.attempt(m, calls, inner);
        assert_eq!(talk.results.len(), calls.len(), "{:#?}\n{ran:?}", talk.results);
        assert_eq!(talk.inner.len(), inner.len(), "{:#?}\n{ran:?}", talk.inner);
        talk
    }

    /// The same, but the client may end before the last turn.
    pub(crate) fn attempt(&self, m: &Machine, calls: &[Value], inner: &[Value]) -> (Talk, Ran) {
        let model = ScriptedModel::start(&self.model, m, calls, inner);
        let port = model.port();
        let files: Vec<PathBuf> =
            self.client.with_port.iter().map(|file| m.home().join(file)).collect();
        let before: Vec<String> =
            files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        for (file, text) in files.iter().zip(&before) {
            fs::write(file, text.replace("127.0.0.1:PORT", &format!("127.0.0.1:{port}"))).unwrap();
        }
        let mut command = m.command("timeout");
        command.args(["-k", "5", "300"]).arg(&self.program).env("TERM", "dumb");
        if let Some(node) = std::env::var_os("CLASH_TEST_NODE").map(PathBuf::from) {
            let dir = node.parent().unwrap().display();
            command.env("PATH", format!("{dir}:/usr/local/bin:/usr/bin:/bin"));
        }
        (self.client.start)(m, &mut command, &format!("http://127.0.0.1:{port}"));
        let ran = Ran::of(&mut command);
        for (file, text) in files.iter().zip(&before) {
            fs::write(file, text).unwrap();
        }
        (model.talk(&self.model), ran)
    }

    /// Runs one session with all steps; the last ones have a broken hook.
    pub(crate) fn keeps_its_promises(&self) -> Machine {
        let m = self.client.installed(Who::Me);
        m.write("app/keep.txt", "keep");
        install_breakable_hook(&m);
        let steps = steps(self.client, &m);
        let calls: Vec<Value> = steps.iter().map(|step| step.call.clone()).collect();
        let inner = if self.client.delegate.is_some() { self.client.of_subagent() } else { vec![] };
        let talk = self.run_with_subagent(&m, &calls, &inner);
        for (step, result) in steps.iter().zip(&talk.results) {
            (step.check)(&m, result);
        }
        if let Some(refused) = talk.inner.last() {
            refused.refused("nothing is deleted here");
            assert!(m.project().join("keep.txt").exists());
        }
        assert_eq!(records(&m, "alarm"), [] as [Value; 0]);
        m
    }
}

/// True if the command could not read the secret. A room does not show the file; the direct
/// tier refuses to open it.
pub(crate) fn out_of_reach(text: &str) -> bool {
    !text.contains(SECRET)
        && ["Permission denied", "No such file"].iter().any(|said| text.contains(said))
}

/// True if a command has made the file of [`WHERE_AM_I`].
pub(crate) fn made(m: &Machine) -> bool {
    m.project().join("made.txt").exists()
}

/// The trace without the records about the server `lab`: the client starts it at a time of
/// its own.
pub(crate) fn story(m: &Machine) -> Vec<Value> {
    let of_server =
        |record: &Value| record["what"].as_str().is_some_and(|what| what.contains("app/server.py"));
    m.trace().into_iter().filter(|record| !of_server(record)).collect()
}

/// The records of one event in it.
pub(crate) fn records(m: &Machine, event: &str) -> Vec<Value> {
    story(m).into_iter().filter(|record| record["event"] == event).collect()
}
