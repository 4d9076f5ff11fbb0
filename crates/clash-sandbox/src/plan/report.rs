//! The report of a plan as data: the mechanism that holds each rule, and why it is enough.
//! The binary prints it; no decision depends on it.

use std::fmt;

/// The lines of a report. Drops them unless made by `listening`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanReport {
    pub lines: Vec<ReportLine>,
    listens: bool,
}

/// One line: a rule or subject, the mechanism that holds it, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportLine {
    /// The rule in the policy's words with its position, or the subject of the line.
    pub rule: String,
    /// `landlock`, `seccomp`, …; [`ReportLine::NOTHING`] if no mechanism holds it.
    pub mechanism: &'static str,
    pub why: String,
}

impl ReportLine {
    /// The mechanism of a line that describes a gap.
    pub const NOTHING: &'static str = "none";

    pub(crate) fn new(
        rule: impl Into<String>,
        mechanism: &'static str,
        why: impl Into<String>,
    ) -> Self {
        Self { rule: rule.into(), mechanism, why: why.into() }
    }
}

impl PlanReport {
    /// A report that collects lines. The default one drops them.
    pub(crate) fn listening() -> Self {
        Self { lines: Vec::new(), listens: true }
    }

    /// Adds a line. A launch needs no report, and making the lines would take a large part
    /// of the planning time.
    pub(crate) fn say(&mut self, line: impl FnOnce() -> ReportLine) {
        if self.listens {
            self.lines.push(line());
        }
    }
}

impl fmt::Display for ReportLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} | {} | {}", self.rule, self.mechanism, self.why)
    }
}

impl fmt::Display for PlanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
