//! Checks the policies in force: clash can use them, and the user trusts them.

use clash_policy::rule::LayerKind;

use super::{DoctorContext, DoctorFinding};
use crate::policy::PolicyFiles;
use crate::remedy::Remedy;

/// A finding for each policy file and its trust. Only the failure, if the policies do not
/// compile.
pub(super) fn look(scene: &DoctorContext) -> Vec<DoctorFinding> {
    let DoctorContext { dirs, project, .. } = scene;
    let mut findings = Vec::new();
    let compiled = PolicyFiles::in_force(dirs, project, None).compile().map_err(|error| {
        DoctorFinding::bad(format!("every action is denied: {error}")).fix(error.hint())
    });
    let layers = compiled.and_then(|policy| {
        policy.ir().to_layers().map_err(|error| DoctorFinding::bad(error.to_string()))
    });
    let layers = match layers {
        Ok(layers) => layers,
        Err(finding) => return vec![finding],
    };
    let written = layers.iter().filter(|layer| layer.kind != LayerKind::BuiltIn);
    for layer in written.clone() {
        let what = format!("{} policy {}", layer.kind.word(), layer.origin);
        findings.push(if layer.trusted {
            DoctorFinding::good(what)
        } else {
            let what = format!("{what} is not trusted: its allows count as ask");
            DoctorFinding::note(what).fix(Remedy::Trust.to_string())
        });
    }
    if dirs.user_policies.iter().all(|path| path.exists()) {
        let second = dirs.user_policies[1].display();
        let what = format!("{second} is not used: there is another user policy");
        findings.push(DoctorFinding::note(what));
    }
    if written.count() == 0 {
        let what = "no policy file: every action asks, approved commands run in sandbox project";
        findings.push(DoctorFinding::note(what).fix(Remedy::Init.to_string()));
    }
    findings.push(DoctorFinding::good("it compiles"));
    findings
}
