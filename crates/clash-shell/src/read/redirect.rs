//! Redirections. The text of a here-document is announced here and read by
//! [`super::heredoc`].

use std::cell::OnceCell;
use std::rc::Rc;

use super::super::ast::{RawWord, RedirNode, RedirOperator, WordPart};
use super::grammar::UNEXPECTED;
use super::heredoc::PendingHereDocument;
use super::words::WordPlace;
use super::{ParseOutcome, ScriptParser, is_name};

/// Operators with the descriptor they change. A longer operator comes before its
/// prefix.
const OPERATORS: &[(&str, RedirOperator, Option<u32>)] = &[
    ("&>>", RedirOperator::Append, None),
    ("&>", RedirOperator::Write, None),
    ("<<<", RedirOperator::HereString, Some(0)),
    ("<<-", RedirOperator::HereDocument, Some(0)),
    ("<<", RedirOperator::HereDocument, Some(0)),
    ("<>", RedirOperator::ReadWrite, Some(0)),
    ("<&", RedirOperator::DupIn, Some(0)),
    (">>", RedirOperator::Append, Some(1)),
    (">|", RedirOperator::Clobber, Some(1)),
    (">&", RedirOperator::DupOut, Some(1)),
    ("<", RedirOperator::Read, Some(0)),
    (">", RedirOperator::Write, Some(1)),
];

impl ScriptParser<'_> {
    /// A redirection, if one starts here.
    pub(super) fn redirection(&mut self) -> ParseOutcome<Option<RedirNode>> {
        self.peek();
        let start = self.at;
        let fd = self.descriptor()?;
        let numbered = self.at > start;
        let both = !numbered && self.sees("&>");
        if (!matches!(self.peek(), b'<' | b'>') && !both) || self.sees_process() {
            self.at = start;
            return Ok(None);
        }
        let found = OPERATORS.iter().find(|row| self.sees(row.0));
        let &(operator, kind, default) = found.ok_or(UNEXPECTED)?;
        self.eat(operator);
        self.bash_only |= both || kind == RedirOperator::HereString;
        self.blanks();
        if self.ends_word() && !self.sees_process() {
            return Err("a redirection has no target");
        }
        let target = self.word(WordPlace::Argument)?;
        let mut body = None;
        if kind == RedirOperator::HereDocument {
            let cell = Rc::new(OnceCell::new());
            body = Some(Rc::clone(&cell));
            let (delimiter, quoted) = delimiter(&target, self.slice(target.start, target.end))?;
            self.pending.push(PendingHereDocument {
                delimiter,
                quoted,
                strip_tabs: operator == "<<-",
                at: self.at,
                body: cell,
            });
        }
        Ok(Some(RedirNode { fd: if numbered { fd } else { default }, kind, target, body }))
    }

    /// The number in front of an operator. `{name}` is skipped: the shell chooses the
    /// number.
    fn descriptor(&mut self) -> ParseOutcome<Option<u32>> {
        let start = self.at;
        if self.peek() == b'{' {
            self.at += 1;
            let name = self.name();
            let names = is_name(&name) && self.eat("}") && matches!(self.peek(), b'<' | b'>');
            if names && !self.sees_process() {
                self.bash_only = true;
            } else {
                self.at = start;
            }
            return Ok(None);
        }
        let mut number = None;
        while self.peek().is_ascii_digit() {
            let digit = u32::from(self.byte(self.at) - b'0');
            number = Some(number.unwrap_or(0u32).saturating_mul(10).saturating_add(digit));
            self.at += 1;
        }
        // Without an operator behind it, the number is a word: `kill 2195639`.
        if number.is_some_and(|n| n > 1 << 20) && matches!(self.peek(), b'<' | b'>') {
            return Err("a descriptor is too large");
        }
        Ok(number)
    }
}

/// The word that ends a here-document; true if a part of it is quoted. A word with an
/// expansion or a newline is an error.
fn delimiter(target: &RawWord, source: &str) -> ParseOutcome<(String, bool)> {
    let mut text = String::new();
    let mut quoted = false;
    for part in &target.parts {
        match part {
            WordPart::Text(piece) => text.push_str(piece),
            WordPart::Quoted(piece) => {
                quoted = true;
                text.push_str(piece);
            }
            _ => return Err("the end of a here-document is not plain"),
        }
    }
    // A lone `$` is plain text in a delimiter; every other use is refused.
    if source.contains(['$', '`', '\n']) {
        return Err("the end of a here-document is not plain");
    }
    Ok((text, quoted))
}
