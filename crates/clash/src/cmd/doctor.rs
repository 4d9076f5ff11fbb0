//! `clash doctor`: what this machine can enforce, what is installed, what is
//! wrong and how to put it right.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clash_sandbox::probe::{Outcome, probe};
use serde_json::{Value, json};

use super::install::{is_current, read};
use super::{project, unless_closed};
use crate::agents::wired::{Scope, State};
use crate::agents::{AGENTS, Agent, Confines, Problem, guard};
use crate::dirs::{Dirs, MANAGED_POLICY};
use crate::exit;
use crate::policy::Files;
use crate::ui::{Failure, Out, Tone};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The project to look at; found from the working directory if not given
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// Everything as JSON
    #[arg(long)]
    json: bool,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grade {
    Good,
    /// Worth knowing, nothing is broken.
    Note,
    /// Something does not protect as it should.
    Bad,
}

impl Grade {
    fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Note => "note",
            Self::Bad => "wrong",
        }
    }
}

struct Finding {
    section: &'static str,
    grade: Grade,
    what: String,
    fix: Option<String>,
}

const MACHINE: &str = "this machine";
const POLICY: &str = "policy";

impl Args {
    pub(crate) fn run(self, out: &mut Out) -> Result<u8, Failure> {
        let (dirs, project) = project(self.project)?;
        let mut findings = machine();
        findings.extend(policy(&dirs, &project));
        findings.extend(agents(&dirs, &project)?);
        let shown = if self.json { out.json(&as_json(&findings)) } else { text(out, &findings) };
        unless_closed(shown)?;
        let wrong = findings.iter().any(|finding| finding.grade == Grade::Bad);
        Ok(if wrong { exit::FAILED } else { exit::OK })
    }
}

fn text(out: &mut Out, findings: &[Finding]) -> std::io::Result<()> {
    let mut section = "";
    for finding in findings {
        if finding.section != section {
            if !section.is_empty() {
                out.line("")?;
            }
            section = finding.section;
            out.line(out.tone(Tone::Strong, section))?;
        }
        let tone = match finding.grade {
            Grade::Good => Tone::Good,
            Grade::Note => Tone::Faint,
            Grade::Bad => Tone::Bad,
        };
        let word = out.tone(tone, &format!("{:<5}", finding.grade.word()));
        out.line(format!("  {word}  {}", finding.what))?;
        if let Some(fix) = &finding.fix {
            out.line(format!("         {}", out.tone(Tone::Care, &format!("fix: {fix}"))))?;
        }
    }
    Ok(())
}

fn as_json(findings: &[Finding]) -> Value {
    let one = |f: &Finding| json!({"section": f.section, "state": f.grade.word(), "what": f.what, "fix": f.fix});
    json!({
        "ok": findings.iter().all(|f| f.grade != Grade::Bad),
        "findings": findings.iter().map(one).collect::<Vec<_>>(),
    })
}

/// What every sandbox of this version stands on; the rest is for later tiers.
const NEEDED: &[&str] = &["landlock", "seccomp filter"];

fn machine() -> Vec<Finding> {
    let needed = |name: &str| NEEDED.contains(&name);
    let items = probe().items.into_iter();
    items
        .map(|item| {
            let (grade, happened, fix) = match item.outcome {
                Outcome::Works => (Grade::Good, String::new(), None),
                Outcome::Missing { what_happened, hint } if needed(item.name) => {
                    (Grade::Bad, format!(" ({what_happened})"), hint)
                }
                Outcome::Missing { what_happened, hint } => {
                    (Grade::Note, format!(" ({what_happened})"), hint)
                }
            };
            let what = format!("{}: {}{happened}", item.name, item.detail);
            Finding { section: MACHINE, grade, what, fix }
        })
        .collect()
}

fn policy(dirs: &Dirs, project: &Path) -> Vec<Finding> {
    let finding = |grade, what: String, fix| Finding { section: POLICY, grade, what, fix };
    let mut findings = Vec::new();
    let managed = PathBuf::from(MANAGED_POLICY);
    let mut candidates = vec![("managed", managed)];
    candidates.extend(dirs.project_policy(project).map(|path| ("project", path)));
    candidates.extend(dirs.user_policies.iter().map(|path| ("user", path.clone())));
    let present: Vec<_> = candidates.into_iter().filter(|(_, path)| path.exists()).collect();
    for (kind, path) in &present {
        let trust = if *kind == "project" { ", not trusted: its allows count as ask" } else { "" };
        findings.push(finding(
            Grade::Good,
            format!("{kind} policy {}{trust}", path.display()),
            None,
        ));
    }
    if present.iter().filter(|(kind, _)| *kind == "user").count() > 1 {
        let second = dirs.user_policies[1].display();
        findings.push(finding(
            Grade::Note,
            format!("{second} is not used: there is another user policy"),
            None,
        ));
    }
    if present.is_empty() {
        let what = "no policy file: every action asks, approved commands run in sandbox project";
        let fix = format!("write rules into {}", dirs.user_policies[0].display());
        findings.push(finding(Grade::Note, what.to_owned(), Some(fix)));
    }
    match Files::of(dirs, project, None).compile() {
        Ok(_) => findings.push(finding(Grade::Good, "it compiles".to_owned(), None)),
        Err(error) => {
            let fix = error.hint();
            findings.push(finding(Grade::Bad, format!("every action is denied: {error}"), fix));
        }
    }
    findings
}

fn agents(dirs: &Dirs, project: &Path) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    for agent in AGENTS {
        findings.extend(agent_findings(dirs, project, agent)?);
    }
    Ok(findings)
}

fn agent_findings(dirs: &Dirs, project: &Path, agent: &Agent) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    let mut say = |grade, what: String, fix: Option<String>| {
        findings.push(Finding { section: agent.title, grade, what, fix })
    };
    let install = || Some(format!("clash install --agent {}", agent.name));
    let mut present = false;
    for wired in (agent.files)(dirs, &Scope::User) {
        let file = wired.file.display();
        match wired.edit.state(&read(&wired.file)?) {
            Err(error) => {
                say(Grade::Bad, format!("{file}: {error}"), error.hint().map(str::to_owned));
            }
            Ok(State::Absent) => say(Grade::Note, format!("not installed in {file}"), install()),
            Ok(State::Present(wrong)) => {
                present = true;
                if wrong.is_empty() {
                    say(Grade::Good, format!("installed in {file}"), None);
                }
                for Problem { what, fix } in wrong {
                    say(Grade::Bad, format!("{file}: {what}"), fix);
                }
            }
        }
    }
    if !present {
        return Ok(findings);
    }
    if !is_current(dirs) {
        let what = "agents call another version of clash than this one".to_owned();
        say(Grade::Note, what, install());
    }
    match self_test(&guard::line(dirs, agent.name, &agent.abilities)) {
        Ok(()) => say(
            Grade::Good,
            "the installed hook answers, and blocks what it does not understand".to_owned(),
            None,
        ),
        Err(what) => say(Grade::Bad, what, install()),
    }
    let launcher = dirs.shell_launcher();
    if agent.abilities.confines == Confines::ShellPrefix && !launcher.exists() {
        say(
            Grade::Bad,
            format!("the launcher {} is missing, so no command can run", launcher.display()),
            install(),
        );
    }
    if let Some(problem) = (agent.hostile)(dirs, project) {
        say(Grade::Bad, problem, Some("remove it from the project's settings".to_owned()));
    }
    Ok(findings)
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
