//! What a plan rests on, as data: which mechanism holds each rule and why that
//! is enough. The binary prints it; nothing decides by reading it.

use std::fmt;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub lines: Vec<Line>,
    listens: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The rule in the policy's words, with its place, or what it is about.
    pub rule: String,
    /// `landlock`, `seccomp`, …; [`Line::NOTHING`] when nothing holds it.
    pub mechanism: &'static str,
    pub why: String,
}

impl Line {
    /// The mechanism of a line that states a limit.
    pub const NOTHING: &'static str = "none";

    pub(crate) fn new(
        rule: impl Into<String>,
        mechanism: &'static str,
        why: impl Into<String>,
    ) -> Self {
        Self { rule: rule.into(), mechanism, why: why.into() }
    }
}

impl Report {
    /// Collects what is said; the default one does not listen.
    pub(crate) fn listening() -> Self {
        Self { lines: Vec::new(), listens: true }
    }

    /// Launching needs no report, and writing one is a good part of planning.
    pub(crate) fn say(&mut self, line: impl FnOnce() -> Line) {
        if self.listens {
            self.lines.push(line());
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} | {} | {}", self.rule, self.mechanism, self.why)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
