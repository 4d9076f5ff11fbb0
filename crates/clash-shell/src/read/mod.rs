//! From the text of a script to its tree, as bash reads it.
//!
//! A text that bash might read differently is an error, and the whole text is then opaque.
//!
//! The methods of [`ScriptParser`] are named after the construct that they read. Each
//! begins at the current position, behind the keyword or sign that its caller has read, and
//! leaves the position behind the construct. A method that gives an `Option` reads nothing
//! if the construct does not begin here.
//!
//! An unquoted backslash before a newline joins two lines, even inside an operator or a
//! name. So the parser reads every byte through [`ScriptParser::peek`], which skips such
//! pairs.

mod compound;
mod dollar;
mod escapes;
mod grammar;
mod heredoc;
mod redirect;
mod simple;
mod words;

use std::rc::Rc;

use super::ast::ScriptTree;
use heredoc::PendingHereDocument;

pub(super) use grammar::RESERVED;

const UNCLOSED: &str = "a quote, brace or parenthesis is not closed";

pub(super) const NESTED: &str = "it is nested too deeply";

/// A script that nests deeper is opaque: the analysis recurses, and scripts written by
/// people stay far below.
pub(super) const MAX_NESTED_CONSTRUCTS: usize = 200;

type ParseOutcome<T> = Result<T, &'static str>;

/// A text and the position of the next byte.
struct ScriptParser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    /// Here-documents whose text begins after the next newline.
    pending: Vec<PendingHereDocument>,
    bash_only: bool,
    /// The text has a backslash before a newline.
    joins: bool,
}

/// Bytes that end a word.
fn is_meta(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'<' | b'>' | b'(' | b')')
}

/// True for a name of a variable: letters, digits and `_`, no digit first.
pub(super) fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Reads a whole text that stands inside `depth` constructs. A NUL byte, a construct that
/// is not closed, and more than [`MAX_NESTED_CONSTRUCTS`] nested constructs are errors.
pub(super) fn parse(text: &str, depth: usize) -> Result<ScriptTree, &'static str> {
    if text.contains('\0') {
        return Err("it holds a NUL byte");
    }
    let mut parser = ScriptParser::new(text, depth);
    let list = parser.whole()?;
    Ok(ScriptTree { text: Rc::from(text), list, bash_only: parser.bash_only })
}

impl<'a> ScriptParser<'a> {
    /// A parser at the start of a text.
    fn new(text: &'a str, depth: usize) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            at: 0,
            depth,
            pending: Vec::new(),
            bash_only: false,
            joins: text.contains("\\\n"),
        }
    }

    /// A parser for a part of the same text, with its own here-documents.
    fn within(&self, start: usize, end: usize) -> Self {
        let text = self.text.get(..end).unwrap_or_default();
        Self {
            text,
            bytes: text.as_bytes(),
            at: start,
            depth: self.depth,
            pending: Vec::new(),
            bash_only: false,
            joins: self.joins,
        }
    }

    /// Enters a construct. The caller calls [`ScriptParser::leave`] unless it fails.
    fn enter(&mut self) -> ParseOutcome<()> {
        self.depth += 1;
        if self.depth > MAX_NESTED_CONSTRUCTS { Err(NESTED) } else { Ok(()) }
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }

    /// The byte at a position, or 0 behind the end: the text has no NUL.
    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    /// The next byte, after joined lines.
    fn peek(&mut self) -> u8 {
        if self.joins {
            self.at = self.joined(self.at);
        }
        self.byte(self.at)
    }

    /// The position behind joined lines that begin at `at`.
    fn joined(&self, mut at: usize) -> usize {
        while self.byte(at) == b'\\' && self.byte(at + 1) == b'\n' {
            at += 2;
        }
        at
    }

    /// Skips `text` if it comes next, also across joined lines.
    fn eat(&mut self, text: &str) -> bool {
        match self.matches(text) {
            Some(end) => {
                self.at = end;
                true
            }
            None => false,
        }
    }

    /// True if `text` comes next, also across joined lines.
    fn sees(&self, text: &str) -> bool {
        self.matches(text).is_some()
    }

    /// The position behind `text` if it comes next.
    fn matches(&self, text: &str) -> Option<usize> {
        let mut at = self.at;
        for wanted in text.bytes() {
            if self.joins {
                at = self.joined(at);
            }
            if self.byte(at) != wanted {
                return None;
            }
            at += 1;
        }
        Some(at)
    }

    /// The text between two positions; empty if one of them is outside.
    fn slice(&self, start: usize, end: usize) -> &'a str {
        self.text.get(start..end).unwrap_or_default()
    }

    /// Takes bytes while they are ordinary. The result has whole characters, because
    /// every byte that stops it is ASCII.
    fn run(&mut self, ordinary: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at;
        let rest = self.bytes.get(start..).unwrap_or_default();
        self.at += rest.iter().position(|b| !ordinary(*b)).unwrap_or(rest.len());
        self.slice(start, self.at)
    }

    /// Skips blanks, and a comment up to its newline.
    fn blanks(&mut self) {
        while matches!(self.peek(), b' ' | b'\t') {
            self.at += 1;
        }
        if self.byte(self.at) == b'#' {
            self.run(|b| b != b'\n');
        }
    }

    /// Skips one closing byte; an error if another byte comes next.
    fn closes(&mut self, with: u8) -> ParseOutcome<()> {
        if self.byte(self.at) != with {
            return Err(UNCLOSED);
        }
        self.at += 1;
        Ok(())
    }

    /// Takes the character at the current position.
    fn character(&mut self) -> Option<&'a str> {
        let c = self.text.get(self.at..)?.chars().next()?;
        let start = self.at;
        self.at += c.len_utf8();
        Some(self.slice(start, self.at))
    }

    /// True if `<(` or `>(` comes next.
    fn sees_process(&self) -> bool {
        self.sees("<(") || self.sees(">(")
    }

    /// A name, possibly across joined lines.
    fn name(&mut self) -> String {
        let mut name = String::new();
        loop {
            match self.peek() {
                b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'0'..=b'9' => {
                    name += self.run(|b| b.is_ascii_alphanumeric() || b == b'_');
                }
                _ => return name,
            }
        }
    }
}
