//! `clash doctor`: what this machine can enforce, what is installed, what is
//! wrong and how to put it right.
//!
//! A page of sections, each found out by one check: a function from where clash
//! looks ([`Scene`]) to what it found. A new check is a file and a line in
//! [`CHECKS`].

mod agents;
mod apparmor;
mod git;
mod machine;
mod own_files;
mod policy;
mod sandboxes;

use std::path::PathBuf;

use clash_sandbox::facts::HostFacts;
use clash_sandbox::host;
use serde_json::{Value, json};

use super::{project, unless_closed};
use crate::dirs::Dirs;
use crate::exit;
use crate::ui::{Failure, Out, Progress, Tone};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The project to look at; found from the working directory if not given
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// Everything as JSON
    #[arg(long, conflicts_with = "fix")]
    json: bool,
    /// Show what would let this machine make rooms, and do it
    ///
    /// On Ubuntu 24.04 and later that is an AppArmor profile for clash. As root it is
    /// installed; otherwise the commands are shown, and run with sudo after a yes.
    #[arg(long)]
    fix: bool,
    /// Only show it
    #[arg(long, requires = "fix")]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short, requires = "fix", conflicts_with = "dry_run")]
    yes: bool,
}

/// What every check is given.
struct Scene {
    dirs: Dirs,
    project: PathBuf,
    /// As found just now.
    host: HostFacts,
    /// As it was on record before.
    recorded: Option<HostFacts>,
}

/// One section of the page. A section in which nothing was found is left out.
struct Check {
    section: &'static str,
    look: fn(&Scene) -> Vec<Finding>,
}

const CHECKS: &[Check] = &[
    Check { section: "this machine", look: machine::look },
    Check { section: "policy", look: policy::look },
    Check { section: "sandboxes", look: sandboxes::look },
    Check { section: "git", look: git::look },
    Check { section: "clash's own files", look: own_files::look },
];

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

    fn tone(self) -> Tone {
        match self {
            Self::Good => Tone::Good,
            Self::Note => Tone::Faint,
            Self::Bad => Tone::Bad,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Finding {
    grade: Grade,
    what: String,
    fix: Option<String>,
}

impl Finding {
    fn new(grade: Grade, what: impl Into<String>) -> Self {
        Self { grade, what: what.into(), fix: None }
    }

    fn good(what: impl Into<String>) -> Self {
        Self::new(Grade::Good, what)
    }

    fn note(what: impl Into<String>) -> Self {
        Self::new(Grade::Note, what)
    }

    fn bad(what: impl Into<String>) -> Self {
        Self::new(Grade::Bad, what)
    }

    fn fix(self, fix: impl Into<Option<String>>) -> Self {
        Self { fix: fix.into(), ..self }
    }
}

type Page = Vec<(&'static str, Vec<Finding>)>;

impl Args {
    pub(crate) fn run(self, out: &mut Out) -> Result<u8, Failure> {
        let (dirs, project) = project(self.project)?;
        let record = dirs.host_record();
        let recorded = host::read_recorded(&record);
        let host = host::probe_and_record(&record);
        if self.fix {
            let how = apparmor::How { dry_run: self.dry_run, yes: self.yes };
            let programs = apparmor::programs(&dirs);
            return apparmor::fix(out, &apparmor::System::own(), &host, &programs, how);
        }
        let scene = Scene { dirs, project, host, recorded };
        let found = CHECKS.iter().map(|check| (check.section, (check.look)(&scene)));
        let mut page: Page = found.collect();
        let progress = Progress::of("trying the agents' hooks");
        page.extend(agents::sections(&scene));
        drop(progress);
        let shown = if self.json { out.json(&as_json(&page)) } else { text(out, &page) };
        unless_closed(shown)?;
        Ok(if is_well(&page) { exit::OK } else { exit::FAILED })
    }
}

fn is_well(page: &Page) -> bool {
    page.iter().flat_map(|(_, found)| found).all(|finding| finding.grade != Grade::Bad)
}

fn text(out: &mut Out, page: &Page) -> std::io::Result<()> {
    let sections = page.iter().filter(|(_, found)| !found.is_empty());
    for (number, (section, found)) in sections.enumerate() {
        if number > 0 {
            out.line("")?;
        }
        out.line(out.tone(Tone::Strong, section))?;
        for Finding { grade, what, fix } in found {
            let word = out.tone(grade.tone(), &format!("{:<5}", grade.word()));
            out.line(format!("  {word}  {what}"))?;
            if let Some(fix) = fix {
                out.line(format!("         {}", out.tone(Tone::Care, &format!("fix: {fix}"))))?;
            }
        }
    }
    Ok(())
}

fn as_json(page: &Page) -> Value {
    let one = |section: &str, f: &Finding| json!({"section": section, "state": f.grade.word(), "what": f.what, "fix": f.fix});
    let findings: Vec<Value> = page
        .iter()
        .flat_map(|(section, found)| found.iter().map(move |finding| one(section, finding)))
        .collect();
    json!({"ok": is_well(page), "findings": findings})
}
