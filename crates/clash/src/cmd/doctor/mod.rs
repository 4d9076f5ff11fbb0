//! `clash doctor`: the abilities of this machine, the installation, its problems and their
//! fixes.
//!
//! The page has one section per check. A check is a function from the [`DoctorContext`] to
//! findings. For a new check, add a file and a line in [`CHECKS`].

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

use super::{dirs_and_project, unless_closed};
use crate::dirs::Dirs;
use crate::exit;
use crate::ui::{CommandOutput, Failure, ProgressLine, TextTone};

/// Show the abilities of this machine, the installation, and problems
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The project; found from the working directory if not given
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// Print JSON
    #[arg(long, conflicts_with = "fix")]
    json: bool,
    /// Let this machine make rooms
    ///
    /// On Ubuntu 24.04 and later, clash needs an AppArmor profile for this. Root installs
    /// it at once. For other users clash shows the commands, asks, and runs them with sudo.
    #[arg(long)]
    fix: bool,
    /// Show the fix without making it
    #[arg(long, requires = "fix")]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short, requires = "fix", conflicts_with = "dry_run")]
    yes: bool,
}

/// The input of every check.
struct DoctorContext {
    dirs: Dirs,
    project: PathBuf,
    /// The facts from a probe just now.
    host: HostFacts,
    /// The facts on record before the probe.
    recorded: Option<HostFacts>,
}

/// One section of the page. Doctor leaves out a section without findings.
struct DoctorCheck {
    section: &'static str,
    look: fn(&DoctorContext) -> Vec<DoctorFinding>,
}

/// The checks in the order of the page. The agents' sections follow them.
const CHECKS: &[DoctorCheck] = &[
    DoctorCheck { section: "this machine", look: machine::look },
    DoctorCheck { section: "policy", look: policy::look },
    DoctorCheck { section: "sandboxes", look: sandboxes::look },
    DoctorCheck { section: "git", look: git::look },
    DoctorCheck { section: "clash's own files", look: own_files::look },
];

/// The weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FindingGrade {
    Good,
    /// Good to know; nothing is broken.
    Note,
    /// A protection does not work.
    Bad,
}

impl FindingGrade {
    fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Note => "note",
            Self::Bad => "wrong",
        }
    }

    fn tone(self) -> TextTone {
        match self {
            Self::Good => TextTone::Good,
            Self::Note => TextTone::Faint,
            Self::Bad => TextTone::Bad,
        }
    }
}

/// One line of the page.
#[derive(Debug, PartialEq, Eq)]
struct DoctorFinding {
    grade: FindingGrade,
    what: String,
    fix: Option<String>,
}

impl DoctorFinding {
    fn new(grade: FindingGrade, what: impl Into<String>) -> Self {
        Self { grade, what: what.into(), fix: None }
    }

    fn good(what: impl Into<String>) -> Self {
        Self::new(FindingGrade::Good, what)
    }

    fn note(what: impl Into<String>) -> Self {
        Self::new(FindingGrade::Note, what)
    }

    fn bad(what: impl Into<String>) -> Self {
        Self::new(FindingGrade::Bad, what)
    }

    /// Adds the remedy, if there is one.
    fn fix(self, fix: impl Into<Option<String>>) -> Self {
        Self { fix: fix.into(), ..self }
    }
}

/// The sections with their findings.
type DoctorPage = Vec<(&'static str, Vec<DoctorFinding>)>;

impl Args {
    /// Probes this machine and writes the record, runs every check, and prints the findings.
    /// Exit status 1 if one is bad. With `--fix`, installs the AppArmor profile instead.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let (dirs, project) = dirs_and_project(self.project)?;
        let record = dirs.host_record();
        let recorded = host::read_recorded(&record);
        let host = host::probe_and_record(&record);
        if self.fix {
            let how = apparmor::FixOptions { dry_run: self.dry_run, yes: self.yes };
            let programs = apparmor::programs(&dirs);
            return apparmor::fix(out, &apparmor::AppArmorSystem::own(), &host, &programs, how);
        }
        let scene = DoctorContext { dirs, project, host, recorded };
        let found = CHECKS.iter().map(|check| (check.section, (check.look)(&scene)));
        let mut page: DoctorPage = found.collect();
        let progress = ProgressLine::start("trying the agents' hooks");
        page.extend(agents::sections(&scene));
        drop(progress);
        let shown = if self.json { out.json(&as_json(&page)) } else { print_page(out, &page) };
        unless_closed(shown)?;
        Ok(if is_well(&page) { exit::OK } else { exit::FAILED })
    }
}

/// True if no finding is bad.
fn is_well(page: &DoctorPage) -> bool {
    page.iter().flat_map(|(_, found)| found).all(|finding| finding.grade != FindingGrade::Bad)
}

/// Prints each section with findings, and the fix below a finding.
fn print_page(out: &mut CommandOutput, page: &DoctorPage) -> std::io::Result<()> {
    let sections = page.iter().filter(|(_, found)| !found.is_empty());
    for (number, (section, found)) in sections.enumerate() {
        if number > 0 {
            out.line("")?;
        }
        out.line(out.tone(TextTone::Strong, section))?;
        for DoctorFinding { grade, what, fix } in found {
            let word = out.tone(grade.tone(), &format!("{:<5}", grade.word()));
            out.line(format!("  {word}  {what}"))?;
            if let Some(fix) = fix {
                out.line(format!("         {}", out.tone(TextTone::Care, &format!("fix: {fix}"))))?;
            }
        }
    }
    Ok(())
}

/// The page as JSON: `ok` and the list of findings.
fn as_json(page: &DoctorPage) -> Value {
    let one = |section: &str, f: &DoctorFinding| json!({"section": section, "state": f.grade.word(), "what": f.what, "fix": f.fix});
    let findings: Vec<Value> = page
        .iter()
        .flat_map(|(section, found)| found.iter().map(move |finding| one(section, finding)))
        .collect();
    json!({"ok": is_well(page), "findings": findings})
}
