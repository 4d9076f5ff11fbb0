//! `clash sandbox test`: compares the rules of a sandbox with the results of trials in it.
//!
//! The expected result comes from the policy's judge, which does not look at the plan. The
//! seen result comes from a process in the sandbox. Several processes of clash take part
//! (`parts.rs`): one enters the sandbox as any command does, and one removes all files
//! even if the others are killed.

use std::io;
use std::path::Path;

use clash_policy::Sandbox;
use serde_json::{Value, json};

use super::act::TrialAct;
use super::trials::{SandboxTrial, TrialSetup};
use super::{SimulatedHost, parts, plan, unless_closed};
use crate::dirs::Dirs;
use crate::exit;
use crate::ui::{CommandOutput, Failure, ProgressLine, TextTone};

/// A trial with its result.
struct TrialResult {
    trial: SandboxTrial,
    /// The error of the system, if the act failed.
    said: Option<String>,
}

impl TrialResult {
    /// True if the result is as the policy expects.
    fn agrees(&self) -> bool {
        self.trial.allowed == self.said.is_none()
    }
}

/// Plans the sandbox, tries its rules in it, and prints the results. Makes files in the
/// user's directories and removes them.
pub(super) fn run(
    out: &mut CommandOutput,
    dirs: &Dirs,
    project: &Path,
    sandbox: &Sandbox,
    simulate: &SimulatedHost,
    json: bool,
) -> Result<u8, Failure> {
    if sandbox.unrestricted {
        return Err(Failure::new(format!(
            "sandbox {} is unrestricted, so there is nothing to try",
            sandbox.name
        )));
    }
    let host = simulate.host(dirs)?;
    let (planned, _) = plan::plan_sandbox(dirs, project, sandbox, &host, &[])
        .map_err(|refusal| plan::refusal_failure(sandbox, refusal))?;
    let progress = ProgressLine::start("trying");
    let seen = run_trials(dirs, project, sandbox, simulate)?;
    drop(progress);
    let wrong = seen.iter().filter(|seen| !seen.agrees()).count();
    unless_closed(if json {
        out.json(&as_json(sandbox, &seen))
    } else {
        print_results(out, &sandbox.name, plan::tier(&planned), &seen)
    })?;
    Ok(if wrong == 0 { exit::OK } else { exit::FAILED })
}

/// Prints a line for each trial; a wrong one with the system's error.
fn print_results(
    out: &mut CommandOutput,
    name: &str,
    tier: &str,
    seen: &[TrialResult],
) -> io::Result<()> {
    out.line(format!("sandbox {name}, {tier}"))?;
    for one in seen {
        let word = if one.said.is_none() { "allowed" } else { "blocked" };
        let (mark, tone) =
            if one.agrees() { ("ok", TextTone::Good) } else { ("WRONG", TextTone::Bad) };
        let mut line =
            format!("  {}  {word}  {}", out.tone(tone, &format!("{mark:<5}")), one.trial.what);
        if let Some(at) = &one.trial.at {
            line.push_str(&out.tone(TextTone::Faint, &format!("  ({at})")));
        }
        if !one.agrees() {
            match &one.said {
                Some(said) => line.push_str(&format!(": the policy allows it, but: {said}")),
                None => line.push_str(": the policy does not allow it"),
            }
        }
        out.line(line)?;
    }
    let wrong = seen.iter().filter(|one| !one.agrees()).count();
    out.line(match wrong {
        0 => format!("{} tried, all as the policy says", seen.len()),
        wrong => format!("{} tried, {wrong} not as the policy says", seen.len()),
    })
}

/// The fields of `--json`: each trial with the expected and the seen result.
fn as_json(sandbox: &Sandbox, seen: &[TrialResult]) -> Value {
    let word = |allowed: bool| if allowed { "allowed" } else { "blocked" };
    let one = |one: &TrialResult| {
        json!({
            "what": one.trial.what, "act": one.trial.act, "at": one.trial.at,
            "expected": word(one.trial.allowed), "seen": word(one.said.is_none()),
            "said": one.said, "agrees": one.agrees(),
        })
    };
    json!({
        "sandbox": sandbox.name, "ok": seen.iter().all(TrialResult::agrees),
        "trials": seen.iter().map(one).collect::<Vec<_>>(),
    })
}

/// Prepares the trials, performs them in the sandbox and removes their files.
fn run_trials(
    dirs: &Dirs,
    project: &Path,
    sandbox: &Sandbox,
    simulate: &SimulatedHost,
) -> Result<Vec<TrialResult>, Failure> {
    let mut trials = TrialSetup::new(dirs, project, sandbox)?;
    let list = trials.take();
    let acts: Vec<&TrialAct> = list.iter().map(|trial| &trial.act).collect();
    let answers = parts::perform_in_sandbox(project, &sandbox.name, simulate, &acts)?;
    Ok(list
        .into_iter()
        .zip(answers)
        .map(|(trial, said)| check_on_disk(TrialResult { trial, said }))
        .collect())
}

/// A room may have a directory of its own under a path of the machine. A file that an act
/// created or deleted only there counts as blocked.
fn check_on_disk(seen: TrialResult) -> TrialResult {
    let elsewhere = match &seen.trial.act {
        TrialAct::Create(path) => !path.exists(),
        TrialAct::Delete(path) => path.exists(),
        _ => false,
    };
    let said =
        seen.said.or_else(|| elsewhere.then(|| "it happened only inside the room".to_owned()));
    TrialResult { said, ..seen }
}
