//! `clash policy check`: every mistake and every warning, with its file and line.

use std::path::PathBuf;

use clash_policy::Sandbox;
use clash_policy::steering::SandboxWidening;
use clash_protocol::report::{CompileReport, PolicyFinding};
use clash_sandbox::plan;
use serde_json::{Value, json};

use super::files;
use crate::cmd::unless_closed;
use crate::dirs::Dirs;
use crate::doors::{NamedDoor, named_doors};
use crate::exit;
use crate::policy::LoadedPolicy;
use crate::ui::{CommandOutput, Failure, TextTone};

/// Show mistakes and warnings of the policies in force
///
/// Compiles every layer anew and shows mistakes and warnings.
///
/// A policy with a mistake does not compile, for example because an expect() fails. Until you
/// correct it, clash denies every action. A warning marks text that compiles but probably
/// does not mean what you intended. Exit status: 0 without mistakes, 1 with one.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Check this file alone, as the user's policy
    file: Option<PathBuf>,
    /// Fail on warnings too
    #[arg(long)]
    strict: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The project; found from the working directory if not given
    #[arg(long, value_name = "DIR", conflicts_with = "file")]
    project: Option<PathBuf>,
}

impl Args {
    /// Compiles the policies and prints mistakes and warnings. Exit status 1 if there is a
    /// mistake or, with `--strict`, a warning.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let (policy, mut report) = files(self.file.as_deref(), self.project)?.check()?;
        report.warnings.extend(policy.iter().flat_map(warn_unenforceable));
        report.warnings.extend(policy.iter().flat_map(warn_widening_doors));
        let CompileReport { mistakes, warnings, .. } = &report;
        let ok = mistakes.is_empty() && (!self.strict || warnings.is_empty());
        unless_closed(if self.json {
            let as_json = |found: &[PolicyFinding]| found.iter().map(as_json).collect::<Vec<_>>();
            let (mistakes, warnings) = (as_json(mistakes), as_json(warnings));
            out.json(&json!({"ok": ok, "mistakes": mistakes, "warnings": warnings}))
        } else {
            print_report(out, &report)
        })?;
        Ok(if ok { exit::OK } else { exit::FAILED })
    }
}

/// A finding as JSON, without the text for people.
fn as_json(found: &PolicyFinding) -> Value {
    let PolicyFinding { kind, layer, message, file, line, column, hint, text: _ } = found;
    json!({
        "kind": kind, "layer": layer, "message": message, "file": file, "line": line,
        "column": column, "hint": hint,
    })
}

/// A warning for each sandbox with a rule that this version cannot enforce. Clash refuses
/// every command in such a sandbox.
fn warn_unenforceable(policy: &LoadedPolicy) -> Vec<PolicyFinding> {
    let sandboxes = policy.owned_sandboxes().unwrap_or_default();
    let finding = |sandbox: Sandbox| {
        let refusal = plan::unenforceable(&sandbox)?;
        let span = sandbox.span;
        let message = format!("sandbox `{}` cannot be used: {refusal}", sandbox.name);
        let hint = refusal.hint();
        let mut text = format!("{span}: {message}");
        if let Some(hint) = &hint {
            text.push_str(&format!("\n\nhint: {hint}"));
        }
        Some(PolicyFinding {
            kind: "cannot-be-enforced".to_owned(),
            layer: String::new(),
            message,
            file: span.file,
            line: span.line,
            column: span.column,
            hint,
            text,
        })
    };
    sandboxes.into_iter().filter_map(finding).collect()
}

/// A warning for each door that gives a command more than its caller has: credentials, or the
/// network. The default sandbox opens all doors, so only doors that a sandbox names count.
fn warn_widening_doors(policy: &LoadedPolicy) -> Vec<PolicyFinding> {
    let doors = Dirs::from_env().ok().and_then(|dirs| named_doors(&dirs, policy).ok());
    let widening = doors.unwrap_or_default().into_iter().filter_map(|door| {
        let gain = match door.widening? {
            SandboxWidening::Credentials => "credentials",
            SandboxWidening::Network => "the network",
            SandboxWidening::Repositories => return None,
        };
        let NamedDoor { program, room, behind, .. } = door;
        let span = room.span;
        let message = format!(
            "the door `{program}` of sandbox `{}` leads to `{behind}`, which adds {gain}",
            room.name
        );
        Some(PolicyFinding {
            kind: "widening-door".to_owned(),
            layer: String::new(),
            text: format!("{span}: {message}"),
            message,
            file: span.file,
            line: span.line,
            column: span.column,
            hint: None,
        })
    });
    widening.collect()
}

/// Prints every mistake, then every warning, then their numbers.
fn print_report(
    out: &mut CommandOutput,
    CompileReport { mistakes, warnings, .. }: &CompileReport,
) -> std::io::Result<()> {
    let all = mistakes.iter().map(|found| ("mistake", TextTone::Bad, found));
    let all = all.chain(warnings.iter().map(|found| ("warning", TextTone::Care, found)));
    for (word, tone, PolicyFinding { text, .. }) in all {
        let word = out.tone(tone, word);
        out.line(format!("{word}: {text}\n"))?;
    }
    let count = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    };
    out.line(match (mistakes.len(), warnings.len()) {
        (0, 0) => "no mistakes, no warnings".to_owned(),
        (0, found) => format!("no mistakes, {}", count(found, "warning")),
        (found, 0) => format!("{}: every action is denied", count(found, "mistake")),
        (found, more) => {
            format!(
                "{}, {}: every action is denied",
                count(found, "mistake"),
                count(more, "warning")
            )
        }
    })
}
