//! The scripted model of `tests/agents`, and the tool results that it received.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::{SUBTASK, out_of_reach};
use crate::support::{Machine, Ran, eventually};

/// In the script of the model this stands for the last line that it was told to run.
pub(crate) const AS_TOLD: &str = "AS-TOLD";
/// In the script this stands for the last id of a command in the background.
pub(crate) const THE_ID: &str = "THE-ID";

/// Runs the scripted model, with these two words replaced in its calls.
const OBEDIENT: &str = r#"
import importlib.util, re, sys
spec = importlib.util.spec_from_file_location("scripted_model", sys.argv.pop(1))
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

/// The scripted model, listening on the loopback until it is dropped.
pub(super) struct ScriptedModel {
    server: Child,
    dir: tempfile::TempDir,
}

impl ScriptedModel {
    /// Starts the model with these calls, one turn each, and `inner` for a subagent. Waits
    /// until it listens.
    pub(super) fn start(program: &Path, m: &Machine, calls: &[Value], inner: &[Value]) -> Self {
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
        // The log exists even if the client sends no request.
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

    /// The port; empty until the model listens.
    pub(super) fn port(&self) -> String {
        fs::read_to_string(self.dir.path().join("port")).unwrap_or_default()
    }

    /// The result of each call, in the order of the model.
    pub(super) fn talk(&self, program: &Path) -> Talk {
        let mut read = Command::new("python3");
        read.arg(program).arg("--results").arg(self.dir.path().join("log"));
        let mut ids: Vec<String> = Vec::new();
        let heard = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        let mut talk = Talk { results: Vec::new(), inner: Vec::new(), heard };
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

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The tool results of one run of the client.
pub(crate) struct Talk {
    pub(crate) results: Vec<ToolResult>,
    /// The results that the model of a subagent received.
    pub(crate) inner: Vec<ToolResult>,
    /// Everything that the client sent to the model, as JSON.
    pub(crate) heard: String,
}

/// The result of one call, as the model received it.
#[derive(Debug)]
pub(crate) struct ToolResult {
    /// `None` if the protocol does not mark errors.
    pub(crate) error: Option<bool>,
    pub(crate) text: String,
}

impl ToolResult {
    /// Checks that the result is no error.
    #[track_caller]
    pub(crate) fn ran(&self) -> &Self {
        assert_ne!(self.error, Some(true), "{self:?}");
        self
    }

    /// Checks that the result is an error with this reason.
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

    /// Checks the two marks that the kernel shows for a sandboxed process. A container may
    /// have set them too, so the secret must be out of reach as well.
    #[track_caller]
    pub(crate) fn was_sandboxed(&self) -> &Self {
        assert!(out_of_reach(&self.text), "{self:?}");
        self.says("NoNewPrivs:\t1").says("Seccomp:\t2").says("keys[]")
    }
}
