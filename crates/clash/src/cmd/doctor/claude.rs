//! Whether Claude Code really asks clash, and whether clash answers.

use std::io::Write;
use std::process::{Command, Stdio};

use super::super::install::{is_current, read, settings_file, wiring};
use super::{Finding, Grade, Scene};
use crate::agents::claude::settings::{self, Problem, Stale};
use crate::exit;

pub(super) fn look(scene: &Scene) -> Vec<Finding> {
    let Scene { dirs, project } = scene;
    let file = settings_file(dirs);
    let text = match read(&file) {
        Ok(text) => text,
        Err(failure) => return vec![Finding::bad(failure.message).fix(failure.hint)],
    };
    let mut findings = Vec::new();
    let mut say = |grade, what: String, fix: Option<String>| {
        findings.push(Finding::new(grade, what).fix(fix));
    };
    let install = || Some("clash install --agent claude".to_owned());
    match settings::inspect(&text) {
        Err(error) => {
            say(Grade::Bad, format!("{}: {error}", file.display()), error.hint().map(str::to_owned))
        }
        Ok(installed) if installed.hooks.is_empty() && installed.prefix.is_none() => {
            say(Grade::Note, format!("not installed in {}", file.display()), install());
            return findings;
        }
        Ok(installed) => {
            let wiring = wiring(dirs);
            let stale = installed.stale(&wiring);
            if installed.is_complete() && stale.is_empty() {
                say(Grade::Good, format!("installed in {}", file.display()), None);
            }
            for one in stale {
                let what = match one {
                    Stale::Hook { event, found } => format!("the {event} hook runs `{found}`"),
                    Stale::Prefix { found } => format!("the shell prefix is {}", found.display()),
                };
                say(Grade::Bad, format!("{what}, which is not this clash"), install());
            }
            for problem in installed.problems.iter().filter(|problem| !problem.is_users_own()) {
                say(
                    Grade::Bad,
                    format!("{}: {}", file.display(), settings::describe(problem)),
                    problem_fix(problem),
                );
            }
            if !is_current(dirs) {
                let what = "agents call another version of clash than this one".to_owned();
                say(Grade::Note, what, install());
            }
            match self_test(&wiring.hook_command) {
                Ok(()) => say(
                    Grade::Good,
                    "the installed hook answers, and blocks what it does not understand".to_owned(),
                    None,
                ),
                Err(what) => say(Grade::Bad, what, install()),
            }
        }
    }
    let launcher = dirs.shell_launcher();
    if !launcher.exists() {
        say(
            Grade::Bad,
            format!("the launcher {} is missing, so no command can run", launcher.display()),
            install(),
        );
    }
    if let Some(problem) = crate::agents::claude::hostile_settings(dirs, project) {
        say(Grade::Bad, problem, Some("remove it from the project's settings".to_owned()));
    }
    findings
}

fn problem_fix(problem: &Problem) -> Option<String> {
    match problem {
        Problem::HooksDisabled { .. } => Some("remove `disableAllHooks`".to_owned()),
        Problem::ForeignPrefix { .. } => {
            Some("remove `CLAUDE_CODE_SHELL_PREFIX` from `env`".to_owned())
        }
        Problem::GroundInEnv { name, .. } => Some(format!("remove `{name}` from `env`")),
        Problem::MissingEvents(_) | Problem::MissingPrefix => {
            Some("clash install --agent claude".to_owned())
        }
        Problem::Malformed(error) => error.hint().map(str::to_owned),
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
