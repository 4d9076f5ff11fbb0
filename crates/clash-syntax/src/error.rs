//! Errors of lexer and parser, with their place in the text.

/// The first place at which a text stops being Starlark. Lines and columns
/// count from one, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {problem}")]
pub struct SyntaxError {
    pub line: usize,
    pub column: usize,
    pub problem: ParseError,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("unexpected character `{0}`")]
    Character(char),
    #[error("this string is not closed")]
    UnfinishedString,
    #[error("this escape sequence does not stand for a character")]
    Escape,
    #[error("`{0}` is not a number")]
    Number(String),
    #[error("`{0}` is reserved and cannot be used")]
    Reserved(String),
    #[error("this line is indented like no line before it")]
    Indentation,
    #[error("expected {expected}, found {found}")]
    Expected { expected: &'static str, found: String },
    #[error("nested deeper than {0} levels")]
    TooDeep(usize),
}

/// An error at a byte offset; [`UnlocatedError::locate`] adds line and column.
#[derive(Debug)]
pub(crate) struct UnlocatedError {
    pub(crate) at: usize,
    pub(crate) problem: ParseError,
}

impl UnlocatedError {
    pub(crate) fn locate(self, source: &str) -> SyntaxError {
        let (line, column) = position(source, self.at);
        SyntaxError { line, column, problem: self.problem }
    }
}

/// Line and column of a byte offset, both from one. An offset outside the text counts as
/// its end.
pub(crate) fn position(source: &str, at: usize) -> (usize, usize) {
    let before = source.get(..at).unwrap_or(source);
    let line = before.matches('\n').count() + 1;
    let last = before.rsplit('\n').next().unwrap_or_default();
    (line, last.chars().count() + 1)
}
