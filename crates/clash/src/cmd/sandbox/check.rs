//! `clash sandbox check`: plans every sandbox of the policy, for this host or for a
//! simulated one.

use std::path::Path;

use clash_policy::Sandbox;
use clash_sandbox::facts::HostFacts;
use serde_json::{Value, json};

use super::{plan, unless_closed};
use crate::dirs::Dirs;
use crate::exit;
use crate::ui::{CommandOutput, Failure, ProgressLine, TextTone};

/// The result of planning one sandbox: its tier, or the refusal.
pub(crate) struct PlannedSandbox {
    pub(crate) name: String,
    pub(crate) outcome: Result<&'static str, RefusedSandbox>,
}

/// The reason of a refusal, the line of the rule and the fix.
pub(crate) struct RefusedSandbox {
    pub(crate) what: String,
    at: Option<String>,
    pub(crate) fix: Option<String>,
}

/// Plans every sandbox for this host. An unrestricted one counts as planned.
pub(crate) fn plan_all(
    dirs: &Dirs,
    project: &Path,
    sandboxes: &[Sandbox],
    host: &HostFacts,
) -> Vec<PlannedSandbox> {
    let one = |sandbox: &Sandbox| {
        let outcome = if sandbox.unrestricted {
            Ok("unrestricted: confines nothing")
        } else {
            plan::plan_sandbox(dirs, project, sandbox, host, &[]).map(|(made, _)| plan::tier(&made))
        };
        let outcome = outcome.map_err(|refusal| {
            let (at, fix) = (refusal.span().map(ToString::to_string), refusal.hint());
            RefusedSandbox { what: Failure::from(refusal).message, at, fix }
        });
        PlannedSandbox { name: sandbox.name.clone(), outcome }
    };
    sandboxes.iter().map(one).collect()
}

/// Plans every sandbox and prints the outcomes. Exit status 1 if one is refused.
pub(super) fn run(
    out: &mut CommandOutput,
    dirs: &Dirs,
    project: &Path,
    sandboxes: &[Sandbox],
    host: &HostFacts,
    json: bool,
) -> Result<u8, Failure> {
    let progress = ProgressLine::start("planning");
    let planned = plan_all(dirs, project, sandboxes, host);
    drop(progress);
    unless_closed(if json { out.json(&as_json(&planned)) } else { print_outcomes(out, &planned) })?;
    let all = planned.iter().all(|one| one.outcome.is_ok());
    Ok(if all { exit::OK } else { exit::FAILED })
}

/// Prints the tier or the refusal of each sandbox. A fix that several need is printed once.
fn print_outcomes(out: &mut CommandOutput, planned: &[PlannedSandbox]) -> std::io::Result<()> {
    let width = planned.iter().map(|one| one.name.len()).max().unwrap_or(0);
    let mut shown = Vec::new();
    for PlannedSandbox { name, outcome } in planned {
        match outcome {
            Ok(tier) => out
                .line(format!("{}       {name:<width$}  {tier}", out.tone(TextTone::Good, "ok")))?,
            Err(RefusedSandbox { what, fix, .. }) => {
                out.line(format!(
                    "{}  {name:<width$}  {what}",
                    out.tone(TextTone::Bad, "refused")
                ))?;
                // Many sandboxes may need the same fix.
                if let Some(fix) = fix.as_ref().filter(|fix| !shown.contains(fix)) {
                    shown.push(fix);
                    out.line(format!(
                        "         {}",
                        out.tone(TextTone::Care, &format!("fix: {fix}"))
                    ))?;
                }
            }
        }
    }
    let refused = planned.iter().filter(|one| one.outcome.is_err()).count();
    if refused > 0 {
        out.line(format!(
            "\n{refused} of {} cannot be enforced here, so nothing runs in them",
            planned.len()
        ))?;
    }
    Ok(())
}

/// The fields of `--json`: for each sandbox its tier or the reason of the refusal.
fn as_json(planned: &[PlannedSandbox]) -> Value {
    let one = |PlannedSandbox { name, outcome }: &PlannedSandbox| match outcome {
        Ok(tier) => json!({"sandbox": name, "ok": true, "tier": tier}),
        Err(RefusedSandbox { what, at, fix }) => {
            json!({"sandbox": name, "ok": false, "refusal": what, "at": at, "fix": fix})
        }
    };
    json!({
        "ok": planned.iter().all(|one| one.outcome.is_ok()),
        "sandboxes": planned.iter().map(one).collect::<Vec<_>>(),
    })
}
