//! `clash sandbox plan`: for each rule, the mechanism that enforces it and the reason.

use std::path::Path;

use clash_policy::Sandbox;
use clash_sandbox::disk::Disk;
use clash_sandbox::facts::HostFacts;
use clash_sandbox::host;
use clash_sandbox::plan::report::{PlanReport, ReportLine};
use clash_sandbox::plan::{
    PathGrant, PlanError, PlanRequest, SandboxPlan, TemporaryPaths, plan_with_report,
};
use serde_json::{Value, json};

use super::unless_closed;
use crate::dirs::Dirs;
use crate::exit;
use crate::in_force::PolicySandboxes;
use crate::ui::{CommandOutput, Failure, TextTone};

/// Plans the sandbox and prints the report. Fails with the refusal.
pub(super) fn run(
    out: &mut CommandOutput,
    dirs: &Dirs,
    project: &Path,
    sandbox: &Sandbox,
    host: &HostFacts,
    json: bool,
) -> Result<u8, Failure> {
    let (plan, report) = plan_sandbox(dirs, project, sandbox, host, &[])
        .map_err(|refusal| refusal_failure(sandbox, refusal))?;
    unless_closed(if json {
        out.json(&as_json(&plan, &report))
    } else {
        print_plan(out, &plan, &report)
    })
}

/// Plans a sandbox as outside a session, with these needs of the launcher. Reads the disk;
/// makes nothing.
pub(super) fn plan_sandbox(
    dirs: &Dirs,
    project: &Path,
    sandbox: &Sandbox,
    host: &HostFacts,
    extra: &[PathGrant],
) -> Result<(SandboxPlan, PlanReport), PlanError> {
    let disk = Disk::default();
    let places = dirs.places_unseen(project, &disk);
    let cage = dirs.cage_paths(dirs.cage(project, &disk));
    let temporary = TemporaryPaths { session: None, host: &dirs.tmp };
    let in_force = PolicySandboxes { dirs, project, session: None };
    let caches = dirs.caches_of(project, &disk);
    let (places, cage, disk, in_force) = (&places, &cage, &disk, &in_force);
    let caches = Some(caches.as_path());
    let doors = &[];
    let request =
        PlanRequest { sandbox, places, cage, disk, extra, in_force, temporary, caches, doors };
    let host = host::with_limit_facts(host.clone(), &sandbox.limits);
    plan_with_report(&request, &host)
}

/// The failure about a sandbox that cannot be set up, with status 125.
pub(super) fn refusal_failure(sandbox: &Sandbox, refusal: PlanError) -> Failure {
    let hint = refusal.hint();
    let Failure { message, .. } = Failure::from(refusal);
    let message = format!("sandbox {} cannot be set up: {message}", sandbox.name);
    Failure { hint, status: exit::NO_SANDBOX, message }
}

/// The tier of a plan in a few words.
pub(super) fn tier(plan: &SandboxPlan) -> &'static str {
    match (&plan.room, &plan.watch) {
        (None, None) => "direct tier",
        (None, Some(_)) => "watched, without a room",
        (Some(room), _) if room.user_namespace => "in a room of its own",
        (Some(_), _) => "in a room of its own, made by root",
    }
}

/// Prints the tier, and the mechanism and reason for each rule.
fn print_plan(
    out: &mut CommandOutput,
    plan: &SandboxPlan,
    report: &PlanReport,
) -> std::io::Result<()> {
    let (name, tier, abi) = (&plan.sandbox, tier(plan), plan.landlock_abi);
    out.line(format!("sandbox {name}, {tier}: Landlock ABI {abi} and seccomp"))?;
    out.line("")?;
    for line in &report.lines {
        let tone =
            if line.mechanism == ReportLine::NOTHING { TextTone::Care } else { TextTone::Good };
        let mechanism = out.tone(tone, line.mechanism);
        out.line(format!("{}\n    {mechanism}: {}", line.rule, line.why))?;
    }
    Ok(())
}

/// The fields of `--json`: the grants, the baseline, the room's steps and the report.
fn as_json(plan: &SandboxPlan, report: &PlanReport) -> Value {
    let lines: Vec<Value> = report
        .lines
        .iter()
        .map(|line| json!({"rule": line.rule, "mechanism": line.mechanism, "why": line.why}))
        .collect();
    let grants: Vec<Value> = plan
        .grants
        .iter()
        .map(|grant| json!({"path": grant.path, "caps": grant.caps.to_string(), "why": grant.why.to_string()}))
        .collect();
    let baseline: Vec<Value> = plan
        .baseline
        .iter()
        .map(
            |(entry, caps)| json!({"path": entry.path, "caps": caps.to_string(), "why": entry.why}),
        )
        .collect();
    let room = plan.room.as_ref().map(|room| {
        let steps: Vec<String> = room.steps.iter().map(ToString::to_string).collect();
        json!({
            "user_namespace": room.user_namespace, "own_network": room.own_network,
            "unix_sockets": room.unix_sockets, "steps": steps,
        })
    });
    json!({"sandbox": plan.sandbox, "room": room, "baseline": baseline, "landlock_abi": plan.landlock_abi, "grants": grants, "report": lines})
}
