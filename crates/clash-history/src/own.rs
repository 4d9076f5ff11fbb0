//! clash's own traces: `sessions/<id>/trace.jsonl`, in the format of
//! `docs/formats.md`. The directory of a session is in its file `root`.

use std::io::{self, BufRead};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::join::WaitingCalls;
use crate::{CallId, CallOutcome, CallSink, ReadTally, SeenCall, lines};

#[derive(Deserialize)]
struct TraceLine {
    #[serde(default)]
    v: u32,
    #[serde(default)]
    time: Option<u64>,
    #[serde(default)]
    session: String,
    #[serde(default)]
    event: String,
    #[serde(default)]
    agent: Option<String>,
    #[serde(default)]
    call: Option<String>,
    #[serde(default)]
    tool: Option<String>,
    #[serde(default)]
    what: Option<String>,
    #[serde(default)]
    effect: Option<String>,
    #[serde(default)]
    ok: Option<bool>,
}

const TRACE_VERSION: u32 = 2;

/// Passes on the decisions of a trace, each with its outcome. A refused call, and one
/// without an id, is passed on at once. Records of a newer version are counted as foreign.
pub(crate) fn read(
    path: &Path,
    from: impl BufRead,
    agents: &[&'static str],
    tally: &mut ReadTally,
    each: &mut CallSink<'_>,
) -> io::Result<ControlFlow<()>> {
    let cwd = path.parent().and_then(project);
    let mut waiting = WaitingCalls::default();
    let mut foreign = 0;
    let flow = lines::each(from, tally, |record: TraceLine| {
        if record.v > TRACE_VERSION {
            foreign += 1;
            return ControlFlow::Continue(());
        }
        let id = record.call.unwrap_or_default();
        match (record.event.as_str(), record.tool, record.what) {
            ("decision", Some(tool), Some(what)) => {
                let refused = record.effect.as_deref() == Some("deny");
                let seen = SeenCall {
                    when: record.time,
                    agent: known_agent(agents, record.agent.as_deref()),
                    call: CallId { session: record.session, id: id.clone() },
                    cwd: cwd.clone(),
                    input: input(&tool, what),
                    tool,
                    outcome: if refused { CallOutcome::Refused } else { CallOutcome::Unknown },
                };
                // When the client asks about a call, clash records the decision again.
                let repeated = id.is_empty() && waiting.has(&seen.tool, &seen.input);
                match (refused || id.is_empty(), repeated) {
                    (_, true) => ControlFlow::Continue(()),
                    (true, false) => each(seen),
                    (false, false) => waiting.call(seen, each),
                }
            }
            ("exit", ..) => {
                let outcome =
                    if record.ok == Some(true) { CallOutcome::Ran } else { CallOutcome::Failed };
                waiting.result(&id, outcome, each)
            }
            _ => ControlFlow::Continue(()),
        }
    })?;
    tally.foreign += foreign;
    if flow.is_break() { Ok(flow) } else { Ok(waiting.end(each)) }
}

/// The project of a session: the third part of its file `root`. Older versions have it
/// alone in `project`.
fn project(session: &Path) -> Option<PathBuf> {
    let read = |name: &str| std::fs::read_to_string(session.join(name)).ok();
    let root = read("root").and_then(|text| text.splitn(3, '\n').nth(2).map(str::to_owned));
    root.or_else(|| read("project")).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// The agent by its name, or `unknown`: a trace may name an agent that this version of
/// clash does not know.
fn known_agent(agents: &[&'static str], name: Option<&str>) -> &'static str {
    let known = agents.iter().find(|known| Some(**known) == name);
    known.copied().unwrap_or("unknown")
}

/// The tool's input. A trace holds the subject of the decision; for the tools that policies
/// know, the input follows from it. Empty for other tools.
fn input(tool: &str, what: String) -> Map<String, Value> {
    use clash_policy::tool::{ToolKind, canonical};
    let (name, kind) = canonical(tool);
    let field = match kind {
        ToolKind::Shell => "command",
        ToolKind::File if matches!(name, "Glob" | "Grep" | "LS") => "path",
        ToolKind::File => "file_path",
        ToolKind::Host if name == "WebFetch" && what != tool => {
            let url = format!("https://{what}/");
            return Map::from_iter([("url".to_owned(), Value::String(url))]);
        }
        ToolKind::Host | ToolKind::Other => return Map::new(),
    };
    Map::from_iter([(field.to_owned(), Value::String(what))])
}
