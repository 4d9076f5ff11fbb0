//! Words: quotes, plain text and the parts of a word. Expansions are read by
//! [`super::dollar`].

use super::super::ast::{CommandList, RawWord, WordPart};
use super::{ParseOutcome, ScriptParser, UNCLOSED, is_meta};

/// The place of a word, which decides its end and its contents.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WordPlace {
    /// The program of a command, where `x(` defines a function.
    Program,
    Argument,
    /// A pattern of `case` or an operand of `[[`.
    Pattern,
    /// The right side of `=~`, where parentheses and bars are text.
    Regex,
}

impl ScriptParser<'_> {
    /// One word. An error if none begins here.
    pub(super) fn word(&mut self, place: WordPlace) -> ParseOutcome<RawWord> {
        let start = self.at;
        // Nearly every word has one part; a long script has many words.
        let mut parts = Vec::with_capacity(1);
        loop {
            let b = self.peek();
            match b {
                0 => break,
                b' ' | b'\t' | b'\n' => break,
                b'|' if place == WordPlace::Regex => self.literal(&mut parts),
                b';' | b'&' | b'|' => break,
                b'<' | b'>' => {
                    if !(self.eat("<(") || self.eat(">(")) {
                        break;
                    }
                    self.bash_only = true;
                    parts.push(WordPart::Process(self.nested_list()?));
                }
                b'(' if place == WordPlace::Regex => {
                    self.literal(&mut parts);
                    self.group(&mut parts)?;
                }
                b'(' => {
                    let extended = matches!(parts.last(), Some(WordPart::Text(text))
                        if text.ends_with(['?', '*', '+', '@', '!']));
                    if !extended {
                        break;
                    }
                    // Without `extglob`, `!(x)` runs x.
                    if place == WordPlace::Program {
                        return Err("a pattern stands in the place of a program");
                    }
                    self.bash_only = true;
                    self.at += 1;
                    let mut inner = Vec::new();
                    self.group(&mut inner)?;
                    parts.push(WordPart::Pattern(inner));
                }
                b')' => break,
                _ => self.piece(&mut parts)?,
            }
        }
        if self.at == start {
            return Err("a word is missing");
        }
        Ok(RawWord { parts, start, end: self.at })
    }

    /// One byte, as text.
    pub(super) fn literal(&mut self, parts: &mut Vec<WordPart>) {
        push_text(parts, self.slice(self.at, self.at + 1));
        self.at += 1;
    }

    /// Takes ordinary bytes as text, or one byte that is not ordinary.
    pub(super) fn plain(&mut self, parts: &mut Vec<WordPart>, ordinary: impl Fn(u8) -> bool) {
        match self.run(ordinary) {
            "" => self.literal(parts),
            text => push_text(parts, text),
        }
    }

    /// Up to the closing parenthesis of a pattern or regular expression.
    fn group(&mut self, parts: &mut Vec<WordPart>) -> ParseOutcome<()> {
        self.enter()?;
        loop {
            match self.peek() {
                0 => return Err(UNCLOSED),
                b')' => {
                    self.literal(parts);
                    self.leave();
                    return Ok(());
                }
                b'(' => {
                    self.literal(parts);
                    self.group(parts)?;
                }
                b if is_meta(b) => self.literal(parts),
                _ => self.piece(parts)?,
            }
        }
    }

    /// One quoted, expanded or plain piece of a word.
    pub(super) fn piece(&mut self, parts: &mut Vec<WordPart>) -> ParseOutcome<()> {
        match self.peek() {
            b'\\' => {
                self.at += 1;
                push_quoted(parts, self.character().ok_or("it ends in a backslash")?);
            }
            b'\'' => {
                self.at += 1;
                let text = self.run(|b| b != b'\'');
                self.closes(b'\'')?;
                push_quoted(parts, text);
            }
            b'"' => {
                self.at += 1;
                self.double_quoted(parts)?;
            }
            b'$' => self.dollar(parts, false)?,
            b'`' => self.backticks(parts, false)?,
            _ => self.plain(parts, |b| {
                !is_meta(b)
                    && !matches!(b, b'\\' | b'\'' | b'"' | b'$' | b'`' | b'[' | b']' | b'{' | b'}')
            }),
        }
        Ok(())
    }

    /// Text in double quotes, up to the closing one. Gives a quoted part even if it is
    /// empty.
    pub(super) fn double_quoted(&mut self, parts: &mut Vec<WordPart>) -> ParseOutcome<()> {
        self.enter()?;
        push_quoted(parts, "");
        loop {
            match self.peek() {
                0 => return Err(UNCLOSED),
                b'"' => {
                    self.at += 1;
                    self.leave();
                    return Ok(());
                }
                _ => self.quoted_piece(parts, b'"')?,
            }
        }
    }

    /// One piece of a text in which only `$`, backticks and backslashes count.
    fn quoted_piece(&mut self, parts: &mut Vec<WordPart>, close: u8) -> ParseOutcome<()> {
        match self.peek() {
            b'$' => self.dollar(parts, true),
            b'`' => self.backticks(parts, true),
            b'\\' => {
                let next = self.byte(self.at + 1);
                if matches!(next, b'$' | b'`' | b'\\') || (next == close && close == b'"') {
                    self.at += 1;
                    push_quoted(parts, self.slice(self.at, self.at + 1));
                    self.at += 1;
                } else {
                    push_quoted(parts, "\\");
                    self.at += 1;
                }
                Ok(())
            }
            _ => {
                let start = self.at;
                self.run(|b| !matches!(b, b'$' | b'`' | b'\\') && (b != close || close == 0));
                if self.at == start {
                    self.at += 1;
                }
                push_quoted(parts, self.slice(start, self.at));
                Ok(())
            }
        }
    }

    /// The text of a here-document up to `end`.
    pub(super) fn here_text(&mut self, end: usize) -> ParseOutcome<Vec<WordPart>> {
        let mut parts = Vec::new();
        while self.at < end {
            self.peek();
            if self.at >= end {
                break;
            }
            self.quoted_piece(&mut parts, 0)?;
        }
        if self.at > end { Err(UNCLOSED) } else { Ok(parts) }
    }

    /// A list up to its closing parenthesis, with here-documents of its own.
    pub(super) fn nested_list(&mut self) -> ParseOutcome<CommandList> {
        let outer = std::mem::take(&mut self.pending);
        let start = self.at;
        self.enter()?;
        let list = self.list()?;
        self.blanks();
        self.closes(b')')?;
        self.leave();
        if !self.pending.is_empty() {
            return Err("a here-document begins in a substitution and ends outside");
        }
        if !outer.is_empty() && self.slice(start, self.at).contains('\n') {
            return Err("a substitution stands between a here-document and its text");
        }
        self.pending = outer;
        Ok(list)
    }
}

/// Adds unquoted text, to the last part if that is unquoted text too.
fn push_text(parts: &mut Vec<WordPart>, text: &str) {
    match parts.last_mut() {
        Some(WordPart::Text(last)) => last.push_str(text),
        _ => parts.push(WordPart::Text(text.to_owned())),
    }
}

/// Adds quoted text, to the last part if that is quoted text too.
pub(super) fn push_quoted(parts: &mut Vec<WordPart>, text: &str) {
    match parts.last_mut() {
        Some(WordPart::Quoted(last)) => last.push_str(text),
        _ => parts.push(WordPart::Quoted(text.to_owned())),
    }
}
