//! `clash sandbox test`: what a sandbox's rules say, against what happens.
//!
//! Expected is what the judge of the policy says, who never looks at the plan;
//! seen is what a process in the sandbox could do. Several processes of clash
//! take part (`parts.rs`), so that the sandbox is entered as any command enters it
//! and nothing is left behind whatever happens.

use std::io;
use std::path::Path;

use clash_policy::Sandbox;
use serde_json::{Value, json};

use super::act::Act;
use super::trials::{Trial, Trials};
use super::{Simulate, parts, plan, unless_closed};
use crate::dirs::Dirs;
use crate::exit;
use crate::ui::{Failure, Out, Progress, Tone};

/// A trial that was made.
struct Seen {
    trial: Trial,
    /// What the system said, if it did not work.
    said: Option<String>,
}

impl Seen {
    fn agrees(&self) -> bool {
        self.trial.allowed == self.said.is_none()
    }
}

pub(super) fn run(
    out: &mut Out,
    dirs: &Dirs,
    project: &Path,
    sandbox: &Sandbox,
    simulate: &Simulate,
    json: bool,
) -> Result<u8, Failure> {
    if sandbox.unrestricted {
        return Err(Failure::new(format!(
            "sandbox {} confines nothing, so there is nothing to try",
            sandbox.name
        )));
    }
    let host = simulate.host(dirs)?;
    let (planned, _) = plan::make(dirs, project, sandbox, &host, &[])
        .map_err(|refusal| plan::refused(sandbox, refusal))?;
    let progress = Progress::of("trying");
    let seen = tried(dirs, project, sandbox, simulate)?;
    drop(progress);
    let wrong = seen.iter().filter(|seen| !seen.agrees()).count();
    unless_closed(if json {
        out.json(&as_json(sandbox, &seen))
    } else {
        show(out, &sandbox.name, plan::tier(&planned), &seen)
    })?;
    Ok(if wrong == 0 { exit::OK } else { exit::FAILED })
}

fn show(out: &mut Out, name: &str, tier: &str, seen: &[Seen]) -> io::Result<()> {
    out.line(format!("sandbox {name}, {tier}"))?;
    for one in seen {
        let word = if one.said.is_none() { "allowed" } else { "blocked" };
        let (mark, tone) = if one.agrees() { ("ok", Tone::Good) } else { ("WRONG", Tone::Bad) };
        let mut line =
            format!("  {}  {word}  {}", out.tone(tone, &format!("{mark:<5}")), one.trial.what);
        if let Some(at) = &one.trial.at {
            line.push_str(&out.tone(Tone::Faint, &format!("  ({at})")));
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

fn as_json(sandbox: &Sandbox, seen: &[Seen]) -> Value {
    let word = |allowed: bool| if allowed { "allowed" } else { "blocked" };
    let one = |one: &Seen| {
        json!({
            "what": one.trial.what, "act": one.trial.act, "at": one.trial.at,
            "expected": word(one.trial.allowed), "seen": word(one.said.is_none()),
            "said": one.said, "agrees": one.agrees(),
        })
    };
    json!({
        "sandbox": sandbox.name, "ok": seen.iter().all(Seen::agrees),
        "trials": seen.iter().map(one).collect::<Vec<_>>(),
    })
}

/// Prepares, tries, and tidies up.
fn tried(
    dirs: &Dirs,
    project: &Path,
    sandbox: &Sandbox,
    simulate: &Simulate,
) -> Result<Vec<Seen>, Failure> {
    let mut trials = Trials::of(dirs, project, sandbox)?;
    let list = trials.take();
    let acts: Vec<&Act> = list.iter().map(|trial| &trial.act).collect();
    let answers = parts::ask(project, &sandbox.name, simulate, &acts)?;
    Ok(list.into_iter().zip(answers).map(|(trial, said)| on_disk(Seen { trial, said })).collect())
}

/// A room has directories of its own under names that the machine has too: what
/// was made or removed there was not made or removed here.
fn on_disk(seen: Seen) -> Seen {
    let elsewhere = match &seen.trial.act {
        Act::Create(path) => !path.exists(),
        Act::Delete(path) => path.exists(),
        _ => false,
    };
    let said = seen.said.or_else(|| elsewhere.then(|| "it happened only inside".to_owned()));
    Seen { said, ..seen }
}
