//! Codex's rollouts: `sessions/<year>/<month>/<day>/rollout-*.jsonl`. Seen with
//! version 0.166.0; the `shell` call and its JSON result are those of earlier
//! versions.
//!
//! A script in code mode (`exec`) is JavaScript; the commands it starts are taken
//! from the records of their execution.

use std::io::{self, BufRead};
use std::ops::ControlFlow;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::join::{WaitingCalls, without_texts};
use crate::{CallId, CallOutcome, CallSink, ReadTally, SeenCall, lines, time};

#[derive(Deserialize)]
struct CodexLine {
    #[serde(default)]
    timestamp: Option<String>,
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    payload: Option<CodexPayload>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CodexPayload {
    #[serde(rename = "type")]
    kind: Option<String>,
    /// Of the session, in its first line.
    id: Option<Value>,
    cwd: Option<Value>,
    call_id: Option<String>,
    name: Option<String>,
    /// A JSON text.
    arguments: Option<String>,
    /// Of a custom tool: a patch, or a script.
    input: Option<Value>,
    output: Option<Value>,
    action: Option<Value>,
    item: Option<Value>,
}

const CODEX_AGENT: &str = "codex";

/// Passes on the calls of a rollout, each with its result. The reader passes on a call
/// without a result at the end of the file.
pub(crate) fn read(
    from: impl BufRead,
    tally: &mut ReadTally,
    each: &mut CallSink<'_>,
) -> io::Result<ControlFlow<()>> {
    let mut rollout = RolloutReader::default();
    let flow = lines::each(from, tally, |line: CodexLine| rollout.line(line, each))?;
    if flow.is_break() { Ok(flow) } else { Ok(rollout.waiting.end(each)) }
}

/// The state while clash reads one rollout.
#[derive(Default)]
struct RolloutReader {
    waiting: WaitingCalls,
    session: String,
    cwd: Option<PathBuf>,
    in_code_mode: bool,
}

impl RolloutReader {
    /// Reads one line: a call, a result, or facts about the session. Calls whose arguments
    /// are no JSON object are skipped.
    fn line(&mut self, line: CodexLine, each: &mut CallSink<'_>) -> ControlFlow<()> {
        let Some(payload) = line.payload else { return ControlFlow::Continue(()) };
        let when = line.timestamp.as_deref().and_then(time::parse);
        if let Some(cwd) = payload.cwd.as_ref().and_then(directory) {
            self.cwd = Some(cwd);
        }
        if line.kind.as_deref() == Some("session_meta") {
            let id = payload.id.as_ref().and_then(Value::as_str);
            self.session = id.unwrap_or_default().to_owned();
        }
        let id = payload.call_id.unwrap_or_default();
        let call = CallId { session: self.session.clone(), id: id.clone() };
        let session_cwd = self.cwd.clone();
        let seen = |tool: String, input, cwd: Option<PathBuf>| SeenCall {
            when,
            agent: CODEX_AGENT,
            call,
            cwd: cwd.or(session_cwd),
            tool,
            input,
            outcome: CallOutcome::Unknown,
        };
        match payload.kind.as_deref() {
            Some("function_call") => {
                let arguments = payload.arguments.as_deref().unwrap_or("{}");
                let Ok(Value::Object(arguments)) = serde_json::from_str(arguments) else {
                    return ControlFlow::Continue(());
                };
                let (tool, input, cwd) = command(payload.name.unwrap_or_default(), arguments);
                self.waiting.call(seen(tool, input, cwd), each)
            }
            Some("local_shell_call") => {
                let Some(Value::Object(action)) = payload.action else {
                    return ControlFlow::Continue(());
                };
                let (tool, input, cwd) = command("shell".to_owned(), action);
                self.waiting.call(seen(tool, input, cwd), each)
            }
            Some("custom_tool_call") => match (payload.name.as_deref(), payload.input) {
                (Some("apply_patch"), Some(Value::String(patch))) => {
                    self.patch(&patch, &seen(String::new(), Map::new(), None), each)
                }
                (Some("exec"), _) => {
                    self.in_code_mode = true;
                    ControlFlow::Continue(())
                }
                _ => ControlFlow::Continue(()),
            },
            Some("function_call_output" | "custom_tool_call_output") => {
                let outcome = payload.output.as_ref().map_or(CallOutcome::Unknown, outcome);
                self.result(&id, outcome, each)
            }
            // With code mode there is no call of its own for a command.
            Some("item_completed") if self.in_code_mode => match payload.item {
                Some(Value::Object(item)) => {
                    executed(item).map_or(ControlFlow::Continue(()), |(input, cwd, outcome)| {
                        each(SeenCall { outcome, ..seen("Bash".to_owned(), input, cwd) })
                    })
                }
                _ => ControlFlow::Continue(()),
            },
            _ => ControlFlow::Continue(()),
        }
    }

    /// Makes one call for each file of a patch.
    fn patch(&mut self, patch: &str, seen: &SeenCall, each: &mut CallSink<'_>) -> ControlFlow<()> {
        for (at, (tool, file)) in patched(patch).into_iter().enumerate() {
            let call = CallId { id: format!("{}#{at}", seen.call.id), ..seen.call.clone() };
            let input = text("file_path", file);
            let of_file = SeenCall { call, tool: tool.to_owned(), input, ..seen.clone() };
            self.waiting.call(of_file, each)?;
        }
        ControlFlow::Continue(())
    }

    /// Gives a result to its call, or to the calls for each file of a patch.
    fn result(
        &mut self,
        id: &str,
        outcome: CallOutcome,
        each: &mut CallSink<'_>,
    ) -> ControlFlow<()> {
        for at in 0..MAX_PATCHED_FILES {
            self.waiting.result(&format!("{id}#{at}"), outcome, each)?;
        }
        self.waiting.result(id, outcome, each)
    }
}

/// A tool input with one text.
fn text(name: &str, value: String) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), Value::String(value))])
}

/// An absolute path, also as `file://`; `None` for other values.
fn directory(value: &Value) -> Option<PathBuf> {
    let text = value.as_str()?;
    Some(PathBuf::from(text.strip_prefix("file://").unwrap_or(text))).filter(|p| p.is_absolute())
}

/// A function call as a call of the tool `Bash`, if it runs a command. Otherwise the tool
/// keeps its name. The directory is the one that the call names.
fn command(
    name: String,
    mut arguments: Map<String, Value>,
) -> (String, Map<String, Value>, Option<PathBuf>) {
    let cwd = ["workdir", "working_directory"].into_iter().find_map(|key| arguments.get(key));
    let cwd = cwd.and_then(directory);
    let script = match arguments.get("cmd").or_else(|| arguments.get("command")) {
        Some(Value::String(script)) => Some(script.clone()),
        Some(Value::Array(argv)) => {
            argv.iter().map(Value::as_str).collect::<Option<_>>().map(script)
        }
        _ => None,
    };
    match script {
        Some(script) => ("Bash".to_owned(), text("command", script), cwd),
        None => {
            arguments.remove("cmd");
            (name, without_texts(arguments), cwd)
        }
    }
}

/// The script behind `bash -c`, or the arguments quoted as one line.
fn script(argv: Vec<&str>) -> String {
    match argv.as_slice() {
        [shell, "-c" | "-lc", script]
            if ["bash", "sh", "zsh"]
                .iter()
                .any(|known| shell.rsplit('/').next() == Some(known)) =>
        {
            (*script).to_owned()
        }
        words => {
            let quoted = words.iter().map(|word| clash_shell::shell_quoted(word));
            quoted.collect::<Vec<_>>().join(" ")
        }
    }
}

/// Further files of a patch are skipped.
const MAX_PATCHED_FILES: usize = 16;

/// The files of a patch, each with the tool that stands for its change; at most
/// [`MAX_PATCHED_FILES`].
fn patched(patch: &str) -> Vec<(&'static str, String)> {
    let file = |line: &str| {
        let (tool, path) = if let Some(path) = line.strip_prefix("*** Add File: ") {
            ("Write", path)
        } else if let Some(path) = line.strip_prefix("*** Move to: ") {
            ("Write", path)
        } else {
            let changed = line.strip_prefix("*** Update File: ");
            ("Edit", changed.or_else(|| line.strip_prefix("*** Delete File: "))?)
        };
        Some((tool, path.trim().to_owned()))
    };
    patch.lines().filter_map(file).take(MAX_PATCHED_FILES).collect()
}

/// The outcome by the text of a result: `Process exited with code 0`, or the same in
/// JSON. Only the head counts, because the command itself wrote the rest.
fn outcome(output: &Value) -> CallOutcome {
    let ended = |code: i64| if code == 0 { CallOutcome::Ran } else { CallOutcome::Failed };
    match output {
        Value::String(text) => {
            if let Ok(Value::Object(document)) = serde_json::from_str::<Value>(text) {
                let code = document.get("metadata").and_then(|it| it.get("exit_code"));
                return code.and_then(Value::as_i64).map_or(CallOutcome::Unknown, ended);
            }
            for line in text.lines().take(6).take_while(|line| *line != "Output:") {
                if let Some(code) = line.strip_prefix("Process exited with code ") {
                    return code.parse().map_or(CallOutcome::Unknown, ended);
                }
                if let Some(code) = line.strip_prefix("Exit code: ") {
                    return code.parse().map_or(CallOutcome::Unknown, ended);
                }
                if line.starts_with("Command blocked by") {
                    return CallOutcome::Refused;
                }
                if line.starts_with("Success. Updated") {
                    return CallOutcome::Ran;
                }
            }
            CallOutcome::Unknown
        }
        Value::Object(document) => match document.get("success") {
            Some(Value::Bool(true)) => CallOutcome::Ran,
            Some(Value::Bool(false)) => CallOutcome::Failed,
            _ => CallOutcome::Unknown,
        },
        _ => CallOutcome::Unknown,
    }
}

type ExecutedCommand = (Map<String, Value>, Option<PathBuf>, CallOutcome);

/// A command that was run, as the record of its end tells it; `None` for other records.
fn executed(item: Map<String, Value>) -> Option<ExecutedCommand> {
    if item.get("type").and_then(Value::as_str) != Some("CommandExecution") {
        return None;
    }
    let argv = item.get("command")?.as_array()?;
    let argv: Vec<&str> = argv.iter().map(Value::as_str).collect::<Option<_>>()?;
    let outcome = match item.get("exit_code").and_then(Value::as_i64) {
        Some(0) => CallOutcome::Ran,
        Some(_) => CallOutcome::Failed,
        None => CallOutcome::Unknown,
    };
    Some((text("command", script(argv)), item.get("cwd").and_then(directory), outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_the_script_they_run() {
        assert_eq!(script(vec!["/bin/bash", "-lc", "ls | wc"]), "ls | wc");
        assert_eq!(script(vec!["git", "commit", "-m", "it's"]), r"'git' 'commit' '-m' 'it'\''s'");
    }

    #[test]
    fn a_patch_names_its_files() {
        let patch = "*** Begin Patch\n*** Add File: a.rs\n+x\n*** Update File: b.rs\n*** Move to: c.rs\n@@\n*** Delete File: d.rs\n*** End Patch";
        let files: Vec<_> =
            patched(patch).into_iter().map(|(tool, f)| format!("{tool} {f}")).collect();
        assert_eq!(files, ["Write a.rs", "Edit b.rs", "Write c.rs", "Edit d.rs"]);
    }

    #[test]
    fn the_output_of_a_command_cannot_fake_its_outcome() {
        let said = |text: &str| outcome(&Value::String(text.to_owned()));
        assert_eq!(said("Chunk ID: 1\nProcess exited with code 0\nOutput:\nx"), CallOutcome::Ran);
        assert_eq!(said("Process exited with code 3\nOutput:\n"), CallOutcome::Failed);
        assert_eq!(
            said("Chunk ID: 1\nOutput:\nProcess exited with code 0\n"),
            CallOutcome::Unknown
        );
        assert_eq!(said(r#"{"output":"","metadata":{"exit_code":0}}"#), CallOutcome::Ran);
        assert_eq!(said("Command blocked by PreToolUse hook: no"), CallOutcome::Refused);
    }
}
