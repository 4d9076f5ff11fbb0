//! Simple commands: assignments, words and redirections in any order.

use super::super::ast::{AssignNode, AssignedValue, RawWord, ScriptNode, SimpleCommand, WordPart};
use super::grammar::UNEXPECTED;
use super::words::WordPlace;
use super::{ParseOutcome, ScriptParser, is_name};

/// Builtins whose arguments are read like assignments.
const DECLARES: &[&str] = &["declare", "typeset", "local", "export", "readonly", "alias"];

impl ScriptParser<'_> {
    /// A simple command, or the definition of a function `name() …`. An error if nothing is
    /// there.
    pub(super) fn simple(&mut self) -> ParseOutcome<ScriptNode> {
        self.peek();
        let mut simple = SimpleCommand { start: self.at, ..SimpleCommand::default() };
        let mut declares = false;
        loop {
            simple.end = self.at;
            self.blanks();
            if let Some(redir) = self.redirection()? {
                simple.redirs.push(redir);
                continue;
            }
            match self.peek() {
                0 | b'\n' | b';' | b'&' | b'|' | b')' => break,
                b'(' => return self.defined(&simple),
                _ => {}
            }
            let first = simple.words.is_empty();
            if (first || declares)
                && let Some(assign) = self.assignment()?
            {
                if first {
                    simple.assigns.push(assign);
                } else {
                    simple.words.push(self.declared(assign));
                }
                continue;
            }
            let word = self.word(if first { WordPlace::Program } else { WordPlace::Argument })?;
            declares |= word.bare().is_some_and(|w| DECLARES.contains(&w));
            simple.words.push(word);
        }
        if simple.words.is_empty() && simple.assigns.is_empty() && simple.redirs.is_empty() {
            return Err(UNEXPECTED);
        }
        Ok(ScriptNode::Simple(simple))
    }

    /// `name()` and the function behind it.
    fn defined(&mut self, simple: &SimpleCommand) -> ParseOutcome<ScriptNode> {
        let [name] = simple.words.as_slice() else { return Err(UNEXPECTED) };
        if !simple.assigns.is_empty() || !simple.redirs.is_empty() {
            return Err(UNEXPECTED);
        }
        self.at += 1;
        self.blanks();
        if !self.eat(")") {
            return Err(UNEXPECTED);
        }
        self.function(name)
    }

    /// The argument of a declaration, turned back into a word.
    fn declared(&self, assign: AssignNode) -> RawWord {
        let sign = if assign.append { "+=" } else { "=" };
        let mut parts = vec![WordPart::Quoted(assign.name)];
        if let Some(subscript) = assign.subscript {
            parts.push(WordPart::Quoted("[".to_owned()));
            parts.push(WordPart::Arith { parts: subscript });
            parts.push(WordPart::Quoted("]".to_owned()));
        }
        parts.push(WordPart::Quoted(sign.to_owned()));
        match assign.value {
            AssignedValue::Word(raw) => parts.extend(raw.parts.into_iter().map(quoted)),
            AssignedValue::Array(words) => parts.push(WordPart::Array(words)),
        }
        RawWord { parts, start: self.at, end: self.at }
    }

    /// `name=value`, `name+=value`, `name[i]=value`, `name=(…)`.
    fn assignment(&mut self) -> ParseOutcome<Option<AssignNode>> {
        let start = self.at;
        let name = self.name();
        let mut subscript = None;
        if is_name(&name) && self.peek() == b'[' {
            self.at += 1;
            let open = self.at;
            subscript = Some(self.subscript()?);
            if !self.sees("=") && !self.sees("+=") {
                self.reread(open)?;
            }
        }
        let append = self.sees("+=");
        if !is_name(&name) || !(self.eat("+=") || self.eat("=")) {
            self.at = start;
            return Ok(None);
        }
        self.bash_only |= append || subscript.is_some();
        let value = match self.peek() {
            b'(' => {
                self.bash_only = true;
                self.at += 1;
                AssignedValue::Array(self.array()?)
            }
            _ if self.ends_word() && !self.sees_process() => {
                AssignedValue::Word(RawWord { parts: Vec::new(), start: self.at, end: self.at })
            }
            _ => AssignedValue::Word(self.word(WordPlace::Argument)?),
        };
        Ok(Some(AssignNode { name, subscript, append, value }))
    }

    /// Checks that a subscript without an assignment can be read again as a pattern:
    /// both readings must find the same parts in it.
    fn reread(&self, start: usize) -> ParseOutcome<()> {
        if self.slice(start, self.at).contains([' ', '\t', '$', '`']) {
            return Err("a word holds a subscript");
        }
        Ok(())
    }

    /// The words of `(…)` up to the closing parenthesis. A key `[k]=` is a word of its own.
    fn array(&mut self) -> ParseOutcome<Vec<RawWord>> {
        self.enter()?;
        let mut words = Vec::new();
        loop {
            self.newlines()?;
            if self.eat(")") {
                self.leave();
                return Ok(words);
            }
            let mut key = None;
            let start = self.at;
            if self.peek() == b'[' {
                self.at += 1;
                key = Some(self.subscript()?);
                if !(self.eat("+=") || self.eat("=")) {
                    self.reread(start)?;
                    self.at = start;
                    key = None;
                }
            }
            if let Some(parts) = key {
                words.push(RawWord { parts: vec![WordPart::Arith { parts }], start, end: self.at });
                if self.ends_word() {
                    continue;
                }
            }
            words.push(self.word(WordPlace::Argument)?);
        }
    }
}

/// The part as if it were quoted: in a declaration the value is neither split nor globbed. A
/// text with `~` or `{` stays, because bash may still expand these.
fn quoted(part: WordPart) -> WordPart {
    match part {
        WordPart::Text(text) if !text.contains(['~', '{']) => WordPart::Quoted(text),
        WordPart::Param { name, .. } => WordPart::Param { name, quoted: true },
        WordPart::Command { body, .. } => WordPart::Command { body, quoted: true },
        other => other,
    }
}
