//! Checks that this machine can enforce the sandboxes of the policy.

use super::super::sandbox::{PlannedSandbox, plan_all, sandboxes};
use super::{DoctorContext, DoctorFinding};
use crate::policy::LoadedPolicy;

/// The number of sandboxes that can be enforced here, and one finding for each other: bad for
/// the default sandbox, else a note. Nothing if the policy does not load, which the policy
/// section shows.
pub(super) fn look(scene: &DoctorContext) -> Vec<DoctorFinding> {
    let DoctorContext { dirs, project, host, .. } = scene;
    let Ok(policy) = LoadedPolicy::load(dirs, project, None) else { return Vec::new() };
    let known = match sandboxes(&policy) {
        Ok(known) => known,
        Err(failure) => return vec![DoctorFinding::bad(failure.message).fix(failure.hint)],
    };
    let planned = plan_all(dirs, project, &known, host);
    let used = policy
        .ir()
        .to_layers()
        .ok()
        .and_then(|layers| layers.into_iter().find_map(|layer| layer.settings.default_sandbox));
    let held = planned.iter().filter(|one| one.outcome.is_ok()).count();
    let mut findings =
        vec![DoctorFinding::good(format!("{held} of {} can be enforced here", planned.len()))];
    let mut shown: Vec<Option<String>> = Vec::new();
    for PlannedSandbox { name, outcome } in planned {
        if let Err(refused) = outcome {
            let default = used.as_ref() == Some(&name);
            let grade = if default { DoctorFinding::bad } else { DoctorFinding::note };
            let known = shown.contains(&refused.fix) && !default;
            let fix = if known { None } else { refused.fix.clone() };
            shown.push(refused.fix);
            findings.push(grade(format!("{name}: {}", refused.what)).fix(fix));
        }
    }
    findings
}
