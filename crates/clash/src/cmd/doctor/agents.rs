//! Whether each agent really asks clash, and whether clash answers.

use std::io::Write;
use std::process::{Command, Stdio};

use super::super::install::{is_current, is_here, read};
use super::{Finding, Page, Scene};
use crate::agents::wired::{Scope, State, Wired};
use crate::agents::{AGENTS, Agent, Confines, guard};
use crate::exit;

/// One section for every agent that is wired or could be.
pub(super) fn sections(scene: &Scene) -> Page {
    let found: Page = AGENTS.iter().map(|agent| (agent.title, look(scene, agent))).collect();
    let some = found.iter().any(|(_, findings)| !findings.is_empty());
    if some {
        return found;
    }
    let none = Finding::note("no agent asks clash, and none is found on this machine");
    vec![("agents", vec![none.fix(Some("clash install --agent AGENT".to_owned()))])]
}

fn look(scene: &Scene, agent: &Agent) -> Vec<Finding> {
    let Scene { dirs, project, .. } = scene;
    let install = || Some(format!("clash install --agent {}", agent.name));
    let mut findings = Vec::new();
    let mut present = false;
    for wired in (agent.files)(dirs, &Scope::User) {
        present |= wiring(&wired, agent, &mut findings);
    }
    let machine = dirs.clone().of_machine();
    for wired in (agent.files)(&machine, &Scope::Managed) {
        let text = read(&wired.file).unwrap_or_default();
        if matches!(wired.edit.state(&text), Ok(State::Present(_))) {
            wiring(&wired, agent, &mut findings);
        }
    }
    if !present {
        return findings;
    }
    if !is_current(dirs) {
        let other = "agents call another version of clash than this one";
        findings.push(Finding::note(other).fix(install()));
    }
    findings.push(match self_test(&guard::line(dirs, agent.name, &agent.abilities)) {
        Ok(()) => {
            Finding::good("the installed hook answers, and blocks what it does not understand")
        }
        Err(what) => Finding::bad(what).fix(install()),
    });
    let launcher = match agent.abilities.confines {
        Confines::ShellPrefix => Some(dirs.shell_launcher()),
        Confines::Shell => Some(dirs.agents_shell()),
        Confines::Rewrite | Confines::RewriteAlways | Confines::Instruct => None,
    };
    if let Some(launcher) = launcher.filter(|path| !path.exists()) {
        let missing =
            format!("the launcher {} is missing, so no command can run", launcher.display());
        findings.push(Finding::bad(missing).fix(install()));
    }
    let cwd = std::env::current_dir().unwrap_or_default();
    if let Some(problem) = agent.against(dirs, project, &cwd) {
        let fix =
            "remove it from the project's settings; until then `clash run` starts nothing here"
                .to_owned();
        findings.push(Finding::bad(problem).fix(Some(fix)));
    }
    findings
}

/// Whether clash is in this file; says so, and what is wrong with it.
fn wiring(wired: &Wired, agent: &Agent, findings: &mut Vec<Finding>) -> bool {
    let file = wired.file.display();
    let text = match read(&wired.file) {
        Ok(text) => text,
        Err(failure) => {
            findings.push(Finding::bad(failure.message).fix(failure.hint));
            return false;
        }
    };
    match wired.edit.state(&text) {
        Err(error) => {
            let hint = error.hint().map(str::to_owned);
            findings.push(Finding::bad(format!("{file}: {error}")).fix(hint));
            true
        }
        Ok(State::Absent) => {
            // Nobody is told about agents they do not have.
            if is_here(agent) || !text.is_empty() {
                let fix = format!("clash install --agent {}", agent.name);
                findings.push(Finding::note(format!("not installed in {file}")).fix(Some(fix)));
            }
            false
        }
        Ok(State::Present(wrong)) => {
            if wrong.is_empty() {
                findings.push(Finding::good(format!("installed in {file}")));
            }
            let bad =
                |p: crate::agents::Problem| Finding::bad(format!("{file}: {}", p.what)).fix(p.fix);
            findings.extend(wrong.into_iter().map(bad));
            true
        }
    }
}

/// Runs the installed line the way the client does, with junk: it must block.
fn self_test(line: &str) -> Result<(), String> {
    let run = || -> std::io::Result<std::process::Output> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", line])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // The hook may have answered before it has read everything.
            let _ = stdin.write_all(b"{\"hook_event_name\":");
        }
        child.wait_with_output()
    };
    let output = run().map_err(|error| format!("the installed hook cannot be run: {error}"))?;
    let blocks = output.status.code() == Some(i32::from(exit::BLOCKED)) && output.stdout.is_empty();
    let answered = String::from_utf8_lossy(&output.stderr).contains("clash: blocked");
    match (blocks, answered) {
        (true, true) => Ok(()),
        (true, false) => Err("the installed hook fails, so every action is blocked".to_owned()),
        _ => Err(format!("the installed hook did not block junk: {}", output.status)),
    }
}
