//! Checks that each agent asks clash and that clash answers.

use super::super::install::{is_current, is_here};
use super::super::wiring::trial::{HARMLESS, TrialOutcome};
use super::super::wiring::{AgentWiring, SettingsContent, SettingsFile};
use super::{DoctorContext, DoctorFinding, DoctorPage};
use crate::remedy::Remedy;
use clash_agents::wiring::InstallScope;
use clash_agents::{AGENTS, Agent, ConfinementMethod, WiringProblem};

/// One section for every known agent; without findings if the agent is neither wired nor
/// found. If none has findings, one section with a note.
pub(super) fn sections(scene: &DoctorContext) -> DoctorPage {
    let found: DoctorPage =
        AGENTS.iter().map(|agent| (agent.title, check_agent(scene, agent))).collect();
    let some = found.iter().any(|(_, findings)| !findings.is_empty());
    if some {
        return found;
    }
    let none = DoctorFinding::note("no agent asks clash, and none is found on this machine");
    vec![(
        "agents",
        vec![none.fix(Some(
            Remedy::Install { agent: clash_agents::DEFAULT_AGENT.to_owned() }.to_string(),
        ))],
    )]
}

/// The findings about one agent; none if it is neither wired nor on this machine. Runs the
/// agent's hooks if its settings are sound.
fn check_agent(scene: &DoctorContext, agent: &Agent) -> Vec<DoctorFinding> {
    let DoctorContext { dirs, project, .. } = scene;
    let install = || Some(Remedy::Install { agent: agent.name.to_owned() }.to_string());
    let mut findings = Vec::new();
    let wiring = AgentWiring::read(dirs, agent, &InstallScope::User);
    findings.extend(check_settings_files(&wiring, agent));
    let machine = dirs.clone().of_machine();
    let managed = AgentWiring::read(&machine, agent, &InstallScope::Managed);
    if managed.is_wired() {
        findings.extend(check_settings_files(&managed, agent));
    }
    if !wiring.is_wired() {
        return findings;
    }
    if !is_current(dirs) {
        let other = "agents call another version of clash than this one";
        findings.push(DoctorFinding::note(other).fix(install()));
    }
    // The agent may not follow broken settings, so a trial would prove nothing.
    if wiring.problems(agent).is_empty() {
        findings.extend(try_hooks(scene, agent, &wiring));
    }
    let launcher = match agent.abilities.confines {
        ConfinementMethod::ShellPrefix => Some(dirs.for_agents().shell_launcher()),
        ConfinementMethod::Shell => Some(dirs.for_agents().agents_shell()),
        ConfinementMethod::Rewrite
        | ConfinementMethod::RewriteAlways
        | ConfinementMethod::Instruct => None,
    };
    if let Some(launcher) = launcher.filter(|path| !path.exists()) {
        let missing =
            format!("the launcher {} is missing, so no command can run", launcher.display());
        findings.push(DoctorFinding::bad(missing).fix(install()));
    }
    if let Some(WiringProblem { what, fix }) = wiring.own_sandbox {
        findings.push(DoctorFinding::bad(what).fix(fix));
    }
    let cwd = std::env::current_dir().unwrap_or_default();
    if let Some(problem) = agent.against(&dirs.for_agents(), project, &cwd) {
        let fix = "remove it from the project's settings; until then no whole agent can run here"
            .to_owned();
        findings.push(DoctorFinding::bad(problem).fix(Some(fix)));
    }
    findings
}

/// Runs the hooks in the settings with junk, which they must block, then with a harmless
/// command.
fn try_hooks(scene: &DoctorContext, agent: &Agent, wiring: &AgentWiring) -> Vec<DoctorFinding> {
    let fix = || Some(Remedy::Install { agent: agent.name.to_owned() }.to_string());
    if let Err(what) = wiring.blocks_junk(&scene.project) {
        return vec![DoctorFinding::bad(what).fix(fix())];
    }
    let answers = "the installed hook answers, and blocks what it does not understand";
    let judged = match wiring.try_out(&scene.dirs, agent, &scene.project) {
        TrialOutcome::Ran { sandbox } => DoctorFinding::good(format!(
            "it let `{HARMLESS}` through, which ran in sandbox {sandbox}"
        )),
        TrialOutcome::Refused { reason } => {
            DoctorFinding::good(format!("it refused `{HARMLESS}`: {reason}"))
        }
        TrialOutcome::Failed(what) => return vec![DoctorFinding::bad(what).fix(fix())],
    };
    vec![DoctorFinding::good(answers), judged]
}

/// A finding for each settings file, and for each problem in them. Files of an agent that is
/// not on this machine are not mentioned.
fn check_settings_files(wiring: &AgentWiring, agent: &Agent) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    for SettingsFile { path, content } in &wiring.files {
        let file = path.display();
        let is_well = matches!(content, SettingsContent::Wired { problems } if problems.is_empty());
        if is_well {
            findings.push(DoctorFinding::good(format!("installed in {file}")));
        }
        let is_absent = matches!(content, SettingsContent::Missing | SettingsContent::Others);
        let is_known = is_here(agent) || matches!(content, SettingsContent::Others);
        if is_absent && !wiring.is_wired() && is_known {
            let fix = Remedy::Install { agent: agent.name.to_owned() }.to_string();
            findings.push(DoctorFinding::note(format!("not installed in {file}")).fix(Some(fix)));
        }
    }
    let bad = |WiringProblem { what, fix }: WiringProblem| DoctorFinding::bad(what).fix(fix);
    findings.extend(wiring.problems(agent).into_iter().map(bad));
    findings
}
