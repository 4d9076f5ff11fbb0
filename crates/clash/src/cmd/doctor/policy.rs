//! Which policies hold here, and whether they can be used.

use std::path::PathBuf;

use super::{Finding, Scene};
use crate::dirs::MANAGED_POLICY;
use crate::policy::Files;

pub(super) fn look(scene: &Scene) -> Vec<Finding> {
    let Scene { dirs, project } = scene;
    let mut findings = Vec::new();
    let managed = PathBuf::from(MANAGED_POLICY);
    let mut candidates = vec![("managed", managed)];
    candidates.extend(dirs.project_policy(project).map(|path| ("project", path)));
    candidates.extend(dirs.user_policies.iter().map(|path| ("user", path.clone())));
    let present: Vec<_> = candidates.into_iter().filter(|(_, path)| path.exists()).collect();
    for (kind, path) in &present {
        let trust = if *kind == "project" { ", not trusted: its allows count as ask" } else { "" };
        findings.push(Finding::good(format!("{kind} policy {}{trust}", path.display())));
    }
    if present.iter().filter(|(kind, _)| *kind == "user").count() > 1 {
        let second = dirs.user_policies[1].display();
        let what = format!("{second} is not used: there is another user policy");
        findings.push(Finding::note(what));
    }
    if present.is_empty() {
        let what = "no policy file: every action asks, approved commands run in sandbox project";
        let fix = format!("write rules into {}", dirs.user_policies[0].display());
        findings.push(Finding::note(what).fix(fix));
    }
    findings.push(match Files::of(dirs, project, None).compile() {
        Ok(_) => Finding::good("it compiles"),
        Err(error) => Finding::bad(format!("every action is denied: {error}")).fix(error.hint()),
    });
    findings
}
