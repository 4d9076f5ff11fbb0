//! Real agent clients, offline, against a scripted model: what the tests of each
//! client share.
//!
//! Nothing here trusts a reply of clash. The tests look at files on the disk, at
//! the tool results the client sent back to the model, and at the trace.
//!
//! Needs the client (for example `CLASH_TEST_CODEX=/path/to/codex`) and `python3`, for the
//! scripted model in `tests/agents`. A test that misses one of these says so and is
//! skipped.
//!
//! One session of a client is a list of [`Step`]s, each with the abilities it
//! shows; the table in `docs/agents.md` is made from them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Machine, Ran, Who, clash, eventually, program, skipped, test_file};

/// What a client is shown to do, in the order of the table's columns.
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

    /// As the column is headed.
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

/// How one client is started and talked to.
pub(crate) struct Client {
    /// As in `clash install --agent NAME`.
    pub(crate) name: &'static str,
    /// Writes the settings the client needs apart from clash. The model's address
    /// is not known yet: `127.0.0.1:PORT` stands for it.
    pub(crate) configure: fn(&Machine),
    /// The files in which [`Client::configure`] wrote the address.
    pub(crate) with_port: &'static [&'static str],
    /// Arguments and environment that make it do what the model says.
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
    /// Whether the model must repeat a command in the form it was told.
    pub(crate) instructed: bool,
}

/// A server with one tool, which notes every call, and what it sees of the secret.
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

/// What the model calls in the conversation whose task has this word in it, which
/// is the one of a subagent.
const SUBTASK: &str = "SUBTASK";

/// What a script of a subagent or in the background leaves: what it saw of the
/// secret, and that it is over.
pub(crate) fn look(name: &str) -> String {
    format!("cat ~/.ssh/id_ed25519 > {name}.txt 2>&1; echo over > {name}.over")
}

/// Waits for such a script.
pub(crate) fn wait(name: &str) -> String {
    format!("until cat {name}.over; do sleep 0.5; done")
}

#[track_caller]
pub(crate) fn saw_nothing(m: &Machine, name: &str) {
    assert!(m.project().join(format!("{name}.over")).exists());
    let seen = fs::read_to_string(m.project().join(format!("{name}.txt"))).unwrap();
    assert!(out_of_reach(&seen), "{seen}");
}

/// Shows who is running: in a sandbox the key is out of reach, and so are those of
/// the client's service.
pub(crate) const WHERE_AM_I: &str = "echo made > made.txt; cat ~/.ssh/id_ed25519; grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status; echo keys[$ANTHROPIC_API_KEY$COPILOT_PROVIDER_API_KEY$FACTORY_API_KEY$GEMINI_API_KEY$OPENAI_API_KEY]";

/// The command of the server `lab`, for settings.
pub(crate) fn server(m: &Machine) -> Value {
    let log = m.project().join("shouted");
    json!({"command": "python3", "args": [m.project().join("server.py"), log]})
}

impl Client {
    /// pi knows no servers.
    fn has_servers(&self) -> bool {
        self.name != "pi"
    }

    /// OpenCode does not tell the model how a command ended.
    fn tells_status(&self) -> bool {
        !matches!(self.name, "kilo" | "opencode")
    }

    /// The client's program. `None`, and a word about it, where something is
    /// missing.
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

    /// A script in its sandbox: where the model has to repeat it, two calls.
    fn scripted(&self, script: &str) -> Vec<Value> {
        let bare = (self.shell)(script);
        if self.instructed { vec![bare, (self.shell)(AS_TOLD)] } else { vec![bare] }
    }

    /// What a subagent does: one thing that it may, and one that it may not.
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

    /// The same without clash.
    pub(crate) fn bare(&self, who: Who) -> Machine {
        let m = Machine::new(who).policy(POLICY);
        m.write(".ssh/id_ed25519", SECRET);
        m.write("app/server.py", SERVER);
        (self.configure)(&m);
        m
    }
}

/// A client that is here.
pub(crate) struct Here<'a> {
    pub(crate) client: &'a Client,
    pub(crate) program: PathBuf,
    model: PathBuf,
}

impl Here<'_> {
    /// Lets the model ask for one tool call per turn and gives back what became
    /// of them.
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

    /// The same where the client may end before the model has said everything.
    pub(crate) fn attempt(&self, m: &Machine, calls: &[Value], inner: &[Value]) -> (Talk, Ran) {
        let model = Model::start(&self.model, m, calls, inner);
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

    /// One session with everything a client must do, and at its end with a hook
    /// that is broken in every way there is.
    pub(crate) fn keeps_its_promises(&self) -> Machine {
        let m = self.client.installed(Who::Me);
        m.write("app/keep.txt", "keep");
        breakable(&m);
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

/// Puts a program in the place of the one that hooks call which fails as it is
/// told by the command, and is clash otherwise. The launcher stays whole, so that
/// what blocks is the hook's guard.
fn breakable(m: &Machine) {
    let own = m.state().join("bin/clash");
    fs::remove_file(&own).unwrap();
    for launcher in ["clash-sh", "clash-shell"].map(|name| m.state().join("bin").join(name)) {
        fs::remove_file(&launcher).unwrap();
        symlink(clash(), &launcher).unwrap();
    }
    let stub = format!(
        "#!/bin/sh\ninput=$(cat)\ncase $input in *mode-fails*) exit 1;; *mode-crashes*) kill -SEGV $$;; \
         *mode-is-killed*) kill -KILL $$;; *mode-hangs*) exec sleep 60;; *mode-chatters*) echo debug; echo '{{}}'; exit;; \
         *mode-goes*) rm '{}'; exit 1;; esac\nprintf %s \"$input\" | {} \"$@\"\n",
        own.display(),
        clash().display()
    );
    program(&own, &stub);
    impatient(m);
}

/// The last finds no program at all.
const BROKEN: [&str; 7] =
    ["fails", "crashes", "is-killed", "hangs", "chatters", "goes", "is-missing"];

/// The limit in a command line made impatient.
pub(crate) const IMPATIENT: &str = " -k 1 5 ";

/// Makes every installed command line wait five seconds instead of twenty.
fn impatient(m: &Machine) {
    let mut found = 0;
    for file in [
        ".claude/settings.json",
        ".cline/hooks/PreToolUse",
        ".codex/config.toml",
        ".config/kilo/plugin/clash.js",
        ".config/opencode/plugins/clash.js",
        ".copilot/hooks/clash.json",
        ".factory/settings.json",
        ".gemini/settings.json",
        ".pi/agent/extensions/clash.ts",
        ".qwen/settings.json",
    ] {
        let file = m.home().join(file);
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let hasty = text.replace(" -k 1 20 ", IMPATIENT).replace("LIMIT = 20000", "LIMIT = 5000");
        if hasty != text {
            fs::write(&file, hasty).unwrap();
            found += 1;
        }
    }
    assert!(found > 0);
}

/// One call of the session, what it shows, and how that is seen.
pub(crate) struct Step {
    pub(crate) shows: &'static [Shows],
    pub(crate) call: Value,
    pub(crate) check: Check,
}

type Check = fn(&Machine, &ToolResult);

/// What every client must do.
pub(crate) fn steps(client: &Client, m: &Machine) -> Vec<Step> {
    let mut steps = vec![
        Step {
            shows: &[Shows::Deny],
            call: (client.shell)("rm keep.txt"),
            check: |m, result| {
                result.refused("nothing is deleted here").refused("policy.star:7");
                assert!(m.project().join("keep.txt").exists());
            },
        },
        Step {
            shows: &[Shows::Edit],
            call: (client.write)(&m.outside().join("x"), "x"),
            check: |m, result| {
                result.refused("does not grant");
                assert!(!m.outside().join("x").exists());
            },
        },
        Step {
            shows: &[Shows::Edit],
            call: (client.write)(&m.project().join(".claude/settings.json"), "{}"),
            check: |m, result| {
                result.refused("steers the agent or clash itself");
                assert!(!m.project().join(".claude").exists());
            },
        },
        Step {
            shows: &[Shows::Edit],
            call: (client.write)(&m.project().join("written.txt"), "written"),
            check: |m, result| {
                let text = fs::read_to_string(m.project().join("written.txt"));
                assert_eq!(text.unwrap_or_default().trim_end(), "written", "{result:?}");
            },
        },
    ];
    if client.has_servers() {
        steps.extend([
            Step {
                shows: &[Shows::Mcp],
                call: (client.shout)("abc"),
                check: |_, result| {
                    result.says("ABC");
                },
            },
            Step {
                shows: &[Shows::Mcp],
                call: (client.shout)("xyz"),
                check: |m, result| {
                    result.refused("not that word");
                    assert_eq!(fs::read_to_string(m.project().join("shouted")).unwrap(), "abc\n");
                },
            },
        ]);
    }
    let commands: [(&'static [Shows], &str, Check); 3] = [
        (&[Shows::Allow, Shows::Rewrite], WHERE_AM_I, |m, result| {
            result.was_sandboxed();
            assert_eq!(fs::read_to_string(m.project().join("made.txt")).unwrap(), "made\n");
        }),
        (
            &[Shows::Rewrite],
            "printf 'a  \"b\"\\n  $c\\n'; exit 7",
            if client.tells_status() { output_and_status } else { output },
        ),
        (&[Shows::Ask], "touch asked.txt", |m, result| {
            result.refused("needs your approval");
            assert!(!m.project().join("asked.txt").exists());
        }),
    ];
    for (shows, script, check) in commands {
        let call = (client.shell)(script);
        if client.instructed {
            // The bare command never runs.
            let told: Check = |m, result| {
                result.refused("with exactly this command: ");
                assert!(!m.project().join("asked.txt").exists());
            };
            steps.push(Step { shows: &[], call, check: told });
            steps.push(Step { shows, call: (client.shell)(AS_TOLD), check });
        } else {
            steps.push(Step { shows, call, check });
        }
    }
    if let Some(fetch) = client.fetch {
        steps.push(Step {
            shows: &[Shows::Web],
            call: fetch("http://evil.test/x"),
            check: |_, result| {
                result.refused("not that host");
            },
        });
    }
    if let Some(delegate) = client.delegate {
        steps.push(Step {
            shows: &[Shows::Subagent],
            call: delegate(SUBTASK),
            check: |m, _| saw_nothing(m, "sub"),
        });
    }
    if let Some(background) = client.background {
        let mut call = background(&look("behind"));
        let saw: Check = |m, _| saw_nothing(m, "behind");
        if client.instructed {
            steps.push(Step { shows: &[], call, check: |_, _| () });
            call = background(AS_TOLD);
        }
        steps.push(Step { shows: &[], call, check: |_, _| () });
        let waits = client.scripted(&wait("behind"));
        steps.extend(waits.into_iter().map(|call| Step {
            shows: &[Shows::Background],
            call,
            check: saw,
        }));
    }
    for how in BROKEN {
        steps.push(Step {
            shows: &[Shows::FailClosed],
            call: (client.shell)(&format!("echo mode-{how} > broken")),
            check: |m, result| {
                // Copilot has its own word for it.
                let refused = ["blocked", "Denied"].iter().any(|said| result.text.contains(said));
                assert!(refused && !m.project().join("broken").exists(), "{result:?}");
            },
        });
    }
    steps
}

/// Where the model's script has these it says what it was told: the last line it
/// was told to run, the last id of something that goes on.
pub(crate) const AS_TOLD: &str = "AS-TOLD";
pub(crate) const THE_ID: &str = "THE-ID";

/// The scripted model, which says what it was told where its script says so.
const OBEDIENT: &str = r#"
import importlib.util, re, sys
spec = importlib.util.spec_from_file_location("mockllm", sys.argv.pop(1))
model = importlib.util.module_from_spec(spec)
spec.loader.exec_module(model)
patterns = {
    "AS-TOLD": "with exactly this command: (.*)",
    "THE-ID": "(?:background with ID:|session ID) (\w+)",
}
told = dict.fromkeys(patterns, "")
def listening(read):
    def listen(body):
        seen = read(body)
        for result in seen[2]:
            for name, pattern in patterns.items():
                found = re.search(pattern, result["text"])
                if found:
                    told[name] = found.group(1)
        return seen
    return listen
for name in ("read_anthropic", "read_responses", "read_chat", "read_gemini"):
    setattr(model, name, listening(getattr(model, name)))
def as_told(value):
    if not isinstance(value, str) or value not in told:
        return value
    return int(told[value]) if told[value].isdigit() else told[value]
pick = model.pick
def obey(first, turn):
    conversation, said = pick(first, turn)
    for call in said.get("calls", []):
        call["input"] = {key: as_told(value) for key, value in call.get("input", {}).items()}
    return conversation, said
model.pick = obey
model.main()
"#;

fn output(_: &Machine, result: &ToolResult) {
    result.says("a  \"b\"\n  $c");
}

fn output_and_status(_: &Machine, result: &ToolResult) {
    result.says("a  \"b\"\n  $c").says("7");
}

/// The scripted model, listening on the loopback until it is dropped.
struct Model {
    server: Child,
    dir: tempfile::TempDir,
}

impl Model {
    fn start(program: &Path, m: &Machine, calls: &[Value], inner: &[Value]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let turns = |calls: &[Value]| -> Vec<Value> {
            // Several calls of one turn are a list.
            let turn = |call: &Value| if call.is_array() { call.clone() } else { json!([call]) };
            calls.iter().map(|call| json!({"calls": turn(call)})).collect()
        };
        let conversations = json!([
            {"match": SUBTASK, "turns": turns(inner)}, {"match": "", "turns": turns(calls)},
        ]);
        let script = dir.path().join("script.json");
        fs::write(&script, json!({"conversations": conversations}).to_string()).unwrap();
        // Nothing on record is a record, too.
        fs::write(dir.path().join("log"), "").unwrap();
        let server = Command::new("python3")
            .args(["-c", OBEDIENT])
            .arg(program)
            .arg("--script")
            .arg(script)
            .arg("--log")
            .arg(dir.path().join("log"))
            .arg("--port-file")
            .arg(dir.path().join("port"))
            .arg("--cwd")
            .arg(m.project())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let model = Self { server, dir };
        eventually("the scripted model listens", || !model.port().is_empty());
        model
    }

    fn port(&self) -> String {
        fs::read_to_string(self.dir.path().join("port")).unwrap_or_default()
    }

    /// What the client answered to each call, in the model's order.
    fn talk(&self, program: &Path) -> Talk {
        let mut read = Command::new("python3");
        read.arg(program).arg("--results").arg(self.dir.path().join("log"));
        let mut ids: Vec<String> = Vec::new();
        let mut talk = Talk { results: Vec::new(), inner: Vec::new() };
        for line in Ran::of(&mut read).succeeds().stdout.lines() {
            let value: Value = serde_json::from_str(line).unwrap();
            let id = value["id"].as_str().unwrap().to_owned();
            // The client may send a request twice.
            if ids.contains(&id) {
                continue;
            }
            ids.push(id);
            let text = value["text"].as_str().unwrap().to_owned();
            let result = ToolResult { error: value["error"].as_bool(), text };
            let own = if value["conv"] == 0 { &mut talk.inner } else { &mut talk.results };
            own.push(result);
        }
        talk
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// One run of the client.
pub(crate) struct Talk {
    pub(crate) results: Vec<ToolResult>,
    /// What a subagent's model was told.
    pub(crate) inner: Vec<ToolResult>,
}

/// What the model was told about one call.
#[derive(Debug)]
pub(crate) struct ToolResult {
    /// Some protocols have no such mark.
    pub(crate) error: Option<bool>,
    pub(crate) text: String,
}

impl ToolResult {
    #[track_caller]
    pub(crate) fn ran(&self) -> &Self {
        assert_ne!(self.error, Some(true), "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn refused(&self, reason: &str) -> &Self {
        assert_ne!(self.error, Some(false), "{self:?}");
        self.says(reason)
    }

    #[track_caller]
    pub(crate) fn says(&self, text: &str) -> &Self {
        assert!(self.text.contains(text), "no `{text}` in {self:?}");
        self
    }

    /// The two marks of a sandbox that the kernel itself puts on a process. A
    /// container may have set them too; the secret tells these apart.
    #[track_caller]
    pub(crate) fn was_sandboxed(&self) -> &Self {
        assert!(out_of_reach(&self.text), "{self:?}");
        self.says("NoNewPrivs:\t1").says("Seccomp:\t2").says("keys[]")
    }
}

/// A room does not show what it does not grant; the direct tier refuses it.
pub(crate) fn out_of_reach(text: &str) -> bool {
    !text.contains(SECRET)
        && ["Permission denied", "No such file"].iter().any(|said| text.contains(said))
}

pub(crate) fn made(m: &Machine) -> bool {
    m.project().join("made.txt").exists()
}

/// The trace of what the model asked for. When a client starts the server `lab`,
/// and whether before the session is over, is no business of the model's.
pub(crate) fn story(m: &Machine) -> Vec<Value> {
    let of_server =
        |record: &Value| record["what"].as_str().is_some_and(|what| what.contains("app/server.py"));
    m.trace().into_iter().filter(|record| !of_server(record)).collect()
}

/// The records of one kind in it.
pub(crate) fn records(m: &Machine, event: &str) -> Vec<Value> {
    story(m).into_iter().filter(|record| record["event"] == event).collect()
}
