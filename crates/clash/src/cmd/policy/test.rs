//! `clash policy test`: compares the decisions of policies with written expectations.
//!
//! A table has one action a line: the effect, the tool and its input, for example
//! `deny Bash git push --force`. `sandbox=`, `mode=` and `agent=` may stand between effect
//! and tool.

use std::path::{Path, PathBuf};

use clash_policy::tool::{ToolKind, canonical};
use clash_policy::{Action, Effect};
use clash_sandbox::disk::Disk;
use serde_json::{Map, Value, json};

use super::single_file;
use crate::cmd::{dirs_and_project, unless_closed};
use crate::decision::{DecisionContext, decide_by};
use crate::dirs::Dirs;
use crate::exit;
use crate::held_path::HeldPaths;
use crate::policy::{LoadedPolicy, PolicyFiles};
use crate::say;
use crate::ui::{CommandOutput, Failure, TextTone};
use clash_agents::tool_input::{self, CallContext};

/// Test the expectations in policies, and tables of actions
///
/// Compiles the policies, which checks every expect() in them, and decides every action of
/// the tables.
///
/// A line of a table is `EFFECT [sandbox=NAME] [mode=NAME] [agent=NAME] TOOL INPUT`. The
/// input is a script for Bash, a path for file tools (it may begin with $PWD, $HOME or ~), a
/// URL for WebFetch, and JSON for any other tool. `#` begins a comment. Exit status: 0 if
/// every decision is as expected, 1 if not.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The policies, each tested alone; the policies in force if not given
    files: Vec<PathBuf>,
    /// A table of actions; may be repeated
    #[arg(long, value_name = "FILE")]
    table: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The project; found from the working directory if not given
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
}

/// A decision that differs from its expectation.
struct FailedExpectation {
    policy: String,
    /// The file and line of the expectation.
    at: String,
    text: String,
}

impl Args {
    /// Compiles each policy, which runs its expectations, and decides every action of the
    /// tables by it. Prints the failures. A mistake in a policy counts as a failure.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let (dirs, project) = dirs_and_project(self.project)?;
        let mut cases = Vec::new();
        for table in &self.table {
            cases.extend(read_table(table, &dirs, &project)?);
        }
        let mut policies = Vec::new();
        for file in &self.files {
            policies.push((file.display().to_string(), single_file(file)?));
        }
        if policies.is_empty() {
            let name = "the policies in force".to_owned();
            policies.push((name, PolicyFiles::in_force(&dirs, &project, None)));
        }
        let mut failed = Vec::new();
        let mut ran = TestCounts { expectations: 0, actions: cases.len() * policies.len() };
        for (policy, files) in &policies {
            let (compiled, report) = files.check()?;
            ran.expectations += report.expectations;
            failed.extend(report.mistakes.into_iter().map(|mistake| {
                let at = format!("{}:{}", mistake.file, mistake.line);
                FailedExpectation { policy: policy.clone(), at, text: mistake.text }
            }));
            let Some(compiled) = compiled else { continue };
            for case in &cases {
                if let Some(text) = case.check(&compiled, &dirs, &project)? {
                    failed.push(FailedExpectation {
                        policy: policy.clone(),
                        at: case.at.clone(),
                        text,
                    });
                }
            }
        }
        unless_closed(if self.json {
            out.json(&as_json(&ran, &failed))
        } else {
            print_results(out, &ran, &policies, &failed)
        })?;
        Ok(if failed.is_empty() { exit::OK } else { exit::FAILED })
    }
}

/// The number of tested expectations and actions.
struct TestCounts {
    expectations: usize,
    actions: usize,
}

/// One line of a table.
struct TableCase {
    at: String,
    effect: Effect,
    sandbox: Option<String>,
    action: Action,
}

impl TableCase {
    /// Decides the action. Returns the difference to the expected effect or sandbox, or
    /// `None`.
    fn check(
        &self,
        policy: &LoadedPolicy,
        dirs: &Dirs,
        project: &Path,
    ) -> Result<Option<String>, Failure> {
        let decision =
            decide_by(policy, dirs, DecisionContext::outside_sessions(project), &self.action)?;
        let reason = || say::reason(&decision);
        if decision.effect != self.effect {
            let (wanted, found) = (self.effect, decision.effect);
            return Ok(Some(format!("expected {wanted}, but it is {found}: {}", reason())));
        }
        let found = decision.sandbox.as_ref().map_or("none", |sandbox| sandbox.name.as_str());
        let other = self.sandbox.as_ref().filter(|wanted| *wanted != found);
        Ok(other.map(|name| format!("expected sandbox {name}, but it is {found}: {}", reason())))
    }
}

/// The cases of a table. Empty lines and comments are skipped. Fails with the file and line
/// of the first line that is not understood.
fn read_table(file: &Path, dirs: &Dirs, project: &Path) -> Result<Vec<TableCase>, Failure> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::new(format!("cannot read the table {name}: {error}")))?;
    let mut cases = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = format!("{name}:{}", number + 1);
        let case = read_line(line, at.clone(), dirs, project).map_err(|failure| Failure {
            message: format!("{at}: {}", failure.message),
            ..failure
        })?;
        cases.push(case);
    }
    Ok(cases)
}

/// Reads `EFFECT [sandbox=NAME] [mode=NAME] [agent=NAME] TOOL INPUT`.
fn read_line(line: &str, at: String, dirs: &Dirs, project: &Path) -> Result<TableCase, Failure> {
    let word = |text: &str| {
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        (word.to_owned(), rest.trim_start().to_owned())
    };
    let (first, mut rest) = word(line);
    let effects = [Effect::Allow, Effect::Ask, Effect::Deny];
    let effect = effects.into_iter().find(|effect| effect.word() == first).ok_or_else(|| {
        Failure::new(format!("`{}` is no effect", say::brief(&first)))
            .hint("a line is an effect, a tool and its input: deny Bash git push --force")
    })?;
    let (mut sandbox, mut mode, mut agent) =
        (None, "default".to_owned(), clash_agents::DEFAULT_AGENT.to_owned());
    let tool = loop {
        let (next, after) = word(&rest);
        rest = after;
        match next.split_once('=') {
            Some(("sandbox", name)) => sandbox = Some(name.to_owned()),
            Some(("mode", name)) => name.clone_into(&mut mode),
            Some(("agent", name)) => name.clone_into(&mut agent),
            _ if next.is_empty() => return Err(Failure::new("there is no tool")),
            _ => break next,
        }
    };
    let input = tool_fields(&tool, &rest, dirs, project)?;
    let from = CallContext { cwd: project, home: &dirs.home, paths: &HeldPaths };
    let (tool, input) = tool_input::read_tool_use(&tool, &input, &from)?;
    Ok(TableCase { at, effect, sandbox, action: Action { agent, tool, mode, input } })
}

/// The rest of a line as the fields of the tool: a script, a path with variables filled in, a
/// URL, or a JSON object. An empty rest is no fields.
fn tool_fields(
    tool: &str,
    rest: &str,
    dirs: &Dirs,
    project: &Path,
) -> Result<Map<String, Value>, Failure> {
    let field = |name: &str, value: String| Map::from_iter([(name.to_owned(), value.into())]);
    let (name, kind) = canonical(tool);
    Ok(match kind {
        ToolKind::Shell => field("command", rest.to_owned()),
        ToolKind::Host if name == "WebFetch" => field("url", rest.to_owned()),
        ToolKind::File => {
            let path = match rest.strip_prefix('$') {
                Some(_) => {
                    let places = dirs.places(project, &Disk::default());
                    places.expand(rest)?.to_string_lossy().into_owned()
                }
                None => rest.to_owned(),
            };
            // These tools have another name for the path.
            let name = if matches!(name, "Glob" | "Grep") { "path" } else { "file_path" };
            field(name, path)
        }
        ToolKind::Host | ToolKind::Other if rest.is_empty() => Map::new(),
        ToolKind::Host | ToolKind::Other => serde_json::from_str(rest).map_err(|error| {
            Failure::new(format!("the input of {tool} is a JSON object: {error}"))
        })?,
    })
}

/// Prints each failure, and the numbers of policies, expectations and actions.
fn print_results(
    out: &mut CommandOutput,
    ran: &TestCounts,
    policies: &[(String, PolicyFiles)],
    failed: &[FailedExpectation],
) -> std::io::Result<()> {
    for FailedExpectation { policy, at, text } in failed {
        let word = out.tone(TextTone::Bad, "failed");
        let policy = if policies.len() > 1 { format!(" ({policy})") } else { String::new() };
        // The text of a compiler's mistake begins with its file and line.
        let at = if text.starts_with(at.as_str()) { String::new() } else { format!("{at}: ") };
        out.line(format!("{word}: {at}{text}{policy}"))?;
    }
    let (policies, failed) = (policies.len(), failed.len());
    let plural = |count: usize, one: &str, many: &str| {
        format!("{count} {}", if count == 1 { one } else { many })
    };
    out.line(format!(
        "{}, {}, {}: {failed} failed",
        plural(policies, "policy", "policies"),
        plural(ran.expectations, "expectation", "expectations"),
        plural(ran.actions, "action of tables", "actions of tables"),
    ))
}

fn as_json(ran: &TestCounts, failed: &[FailedExpectation]) -> Value {
    let failures: Vec<Value> = failed
        .iter()
        .map(|it| json!({"policy": it.policy, "at": it.at, "message": it.text}))
        .collect();
    json!({"ok": failed.is_empty(), "expectations": ran.expectations, "actions": ran.actions, "failures": failures})
}
