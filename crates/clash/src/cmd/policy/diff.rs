//! `clash policy diff`: the actions that become more or less permitted, with examples.

use std::io;
use std::path::PathBuf;

use clash_policy::compare::{
    ActionChange, ComparedDecision, ComparedGrant, GrantChange, PolicyComparison, RightsChange,
    SandboxChange, compare,
};
use clash_policy::{JudgeContext, PolicyPlaces};
use serde_json::{Value, json};

use super::single_file;
use crate::cmd::unless_closed;
use crate::decision::readable_by_tools;
use crate::policy::LoadedPolicy;
use crate::say;
use crate::ui::{CommandOutput, Failure, TextTone};

/// Show the actions that another policy permits more or less
///
/// Compares the decisions of two policies, not their text.
///
/// Clash compiles each file alone above the built-in rules. It makes example actions for
/// everything that either policy names and for things that neither names, and decides them by
/// both. It compares the grants of sandboxes with the same name. The paths are those of an
/// imagined machine. Prints nothing if it finds no difference.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    old: PathBuf,
    new: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Compiles both policies and prints their differences. Runs and changes nothing.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let (old, new) = (single_file(&self.old)?.compile()?, single_file(&self.new)?.compile()?);
        let found = differences(&old, &new)?;
        unless_closed(if self.json {
            out.json(&as_json(&found))
        } else {
            print_comparison(out, &found)
        })
    }
}

/// The differences between the decisions of two policies, on an imagined machine.
pub(in crate::cmd) fn differences(
    old: &LoadedPolicy,
    new: &LoadedPolicy,
) -> Result<PolicyComparison, Failure> {
    let (places, baseline) = (PolicyPlaces::imagined(), readable_by_tools());
    let world = JudgeContext { baseline: &baseline, ..JudgeContext::without_disk(&places) };
    let (old, new) = (old.ir(), new.ir());
    Ok(compare((old, &old.to_layers()?), (new, &new.to_layers()?), &world)?)
}

/// Prints the changed actions and grants. Nothing if there is no difference.
pub(in crate::cmd) fn print_comparison(
    out: &mut CommandOutput,
    found: &PolicyComparison,
) -> io::Result<()> {
    let titles = [
        (RightsChange::More, "more permitted", TextTone::Care),
        (RightsChange::Less, "less permitted", TextTone::Good),
        (RightsChange::Different, "in another sandbox, which grants more and less", TextTone::Care),
    ];
    for (change, title, tone) in titles {
        let changed: Vec<&ActionChange> =
            found.actions.iter().filter(|action| action.change == change).collect();
        if !changed.is_empty() {
            out.line(out.tone(tone, title))?;
            print_actions(out, &changed)?;
        }
    }
    for sandbox in &found.sandboxes {
        print_grants(out, sandbox)?;
    }
    if !found.complete {
        out.line("these policies tell more actions apart than were looked at")?;
    }
    Ok(())
}

/// Prints one example for all actions with the same rules and decisions.
fn print_actions(out: &mut CommandOutput, changed: &[&ActionChange]) -> io::Result<()> {
    let mut alike: Vec<(&ActionChange, usize)> = Vec::new();
    for action in changed {
        let same = |(known, _): &&mut (&ActionChange, usize)| {
            (&known.old, &known.new, &known.witness.action.tool)
                == (&action.old, &action.new, &action.witness.action.tool)
        };
        match alike.iter_mut().find(same) {
            Some((_, count)) => *count += 1,
            None => alike.push((action, 0)),
        }
    }
    for (ActionChange { witness, old, new, .. }, others) in alike {
        let more = match others {
            0 => String::new(),
            1 => ", and 1 like it".to_owned(),
            others => format!(", and {others} like it"),
        };
        out.line(format!(
            "  {}: {} → {}{more}",
            say::brief(&witness.shown),
            describe_decision(old),
            describe_decision(new)
        ))?;
    }
    Ok(())
}

/// The effect, the sandbox and the line of the rule.
fn describe_decision(ComparedDecision { effect, sandbox, place }: &ComparedDecision) -> String {
    let sandbox = sandbox.as_ref().map_or_else(String::new, |name| format!(" in {name}"));
    let place = place.as_ref().map_or_else(String::new, |span| format!(" ({span})"));
    format!("{effect}{sandbox}{place}")
}

/// Prints the changed grants of one sandbox.
fn print_grants(out: &mut CommandOutput, sandbox: &SandboxChange) -> io::Result<()> {
    out.line(format!("sandbox {} ({})", out.tone(TextTone::Strong, &sandbox.name), sandbox.place))?;
    sandbox.grants.iter().try_for_each(|GrantChange { change, what, old, new }| {
        out.line(format!(
            "  {}: {}: {old} → {new}",
            change.word(),
            say::brief(&describe_grant(what))
        ))
    })
}

/// A compared grant in words.
fn describe_grant(what: &ComparedGrant) -> String {
    match what {
        ComparedGrant::Path { path, caps } => format!("{path} ({})", say::words(*caps)),
        ComparedGrant::Host { host, port } => format!("host {host}:{port}"),
        ComparedGrant::Variable(name) => format!("variable ${name}"),
        ComparedGrant::Port(port) => format!("serving port {port}"),
        ComparedGrant::Limit(name) => format!("limit {name}"),
        ComparedGrant::Protection(name) => format!("changing protected paths ({name})"),
        ComparedGrant::Door(program) => format!("door of {program}"),
        ComparedGrant::Outliving => "processes that outlive the command".to_owned(),
        ComparedGrant::Confinement => "confinement".to_owned(),
    }
}

/// The changed actions and grants.
pub(in crate::cmd) fn as_json(found: &PolicyComparison) -> Value {
    let outcome = |it: &ComparedDecision| {
        let at = it.place.as_ref().map(ToString::to_string);
        json!({"effect": it.effect.word(), "sandbox": it.sandbox, "at": at})
    };
    let actions: Vec<Value> = found
        .actions
        .iter()
        .map(|it| {
            let (action, what) = (&it.witness.action, &it.witness.shown);
            json!({
                "change": it.change.word(), "what": what, "tool": action.tool,
                "mode": action.mode, "agent": action.agent,
                "old": outcome(&it.old), "new": outcome(&it.new),
            })
        })
        .collect();
    let sandboxes: Vec<Value> = found
        .sandboxes
        .iter()
        .map(|it| {
            let grants = it.grants.iter().map(|one| {
                json!({
                    "change": one.change.word(), "what": describe_grant(&one.what),
                    "old": one.old, "new": one.new,
                })
            });
            json!({
                "name": it.name, "at": it.place.to_string(), "grants": grants.collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({"actions": actions, "sandboxes": sandboxes, "complete": found.complete})
}
