//! Mistakes and probable mistakes in a policy, each with its place and a hint.

use std::fmt;

use clash_policy::PolicySpan;

/// A mistake: the policy does not compile. `Display` shows the source line with a marker
/// below it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct CompileError {
    pub message: String,
    pub span: PolicySpan,
    /// The source line at the span, if there is one.
    pub line: Option<String>,
    pub hint: Option<String>,
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PolicySpan { file, line, column } = &self.span;
        if *line == 0 {
            write!(f, "{file}: {}", self.message)?;
        } else {
            write!(f, "{file}:{line}:{column}: {}", self.message)?;
        }
        if let Some(text) = &self.line {
            let number = line.to_string();
            let gutter = " ".repeat(number.len());
            let indent = " ".repeat((*column as usize).saturating_sub(1));
            write!(f, "\n{gutter} |\n{number} | {text}\n{gutter} | {indent}^")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n\nhint: {hint}")?;
        }
        Ok(())
    }
}

/// A probable mistake: the policy compiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyWarning {
    /// A short name for the kind of warning, for scripts.
    pub kind: &'static str,
    pub message: String,
    pub span: PolicySpan,
    pub hint: Option<String>,
}

impl PolicyWarning {
    pub(crate) fn new(kind: &'static str, message: impl Into<String>, span: &PolicySpan) -> Self {
        Self { kind, message: message.into(), span: span.clone(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
