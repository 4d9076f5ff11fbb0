//! Simple commands: assignments, words and redirections in any order.

use super::super::ast::{Assign, AssignValue, Node, Part, Raw, Simple};
use super::grammar::UNEXPECTED;
use super::words::Place;
use super::{Parsed, Parser, is_name};

/// Builtins whose arguments are read like assignments.
const DECLARES: &[&str] = &["declare", "typeset", "local", "export", "readonly", "alias"];

impl Parser<'_> {
    pub(super) fn simple(&mut self) -> Parsed<Node> {
        self.peek();
        let mut simple = Simple { start: self.at, ..Simple::default() };
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
            let word = self.word(if first { Place::Program } else { Place::Argument })?;
            declares |= word.bare().is_some_and(|w| DECLARES.contains(&w));
            simple.words.push(word);
        }
        if simple.words.is_empty() && simple.assigns.is_empty() && simple.redirs.is_empty() {
            return Err(UNEXPECTED);
        }
        Ok(Node::Simple(simple))
    }

    /// `name()` and the function behind it.
    fn defined(&mut self, simple: &Simple) -> Parsed<Node> {
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

    /// The argument of a declaration, as the word it is.
    fn declared(&self, assign: Assign) -> Raw {
        let sign = if assign.append { "+=" } else { "=" };
        let mut parts = vec![Part::Quoted(assign.name)];
        if let Some(subscript) = assign.subscript {
            parts.push(Part::Quoted("[".to_owned()));
            parts.push(Part::Arith { parts: subscript });
            parts.push(Part::Quoted("]".to_owned()));
        }
        parts.push(Part::Quoted(sign.to_owned()));
        match assign.value {
            AssignValue::Word(raw) => parts.extend(raw.parts.into_iter().map(quoted)),
            AssignValue::Array(words) => parts.push(Part::Array(words)),
        }
        Raw { parts, start: self.at, end: self.at }
    }

    /// `name=value`, `name+=value`, `name[i]=value`, `name=(…)`.
    fn assignment(&mut self) -> Parsed<Option<Assign>> {
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
                AssignValue::Array(self.array()?)
            }
            _ if self.ends_word() && !self.sees_process() => {
                AssignValue::Word(Raw { parts: Vec::new(), start: self.at, end: self.at })
            }
            _ => AssignValue::Word(self.word(Place::Argument)?),
        };
        Ok(Some(Assign { name, subscript, append, value }))
    }

    /// Whether a subscript that turned out to assign nothing can be read again
    /// as a pattern: only if both readings find the same in it.
    fn reread(&self, start: usize) -> Parsed<()> {
        if self.slice(start, self.at).contains([' ', '\t', '$', '`']) {
            return Err("a word holds a subscript");
        }
        Ok(())
    }

    fn array(&mut self) -> Parsed<Vec<Raw>> {
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
                words.push(Raw { parts: vec![Part::Arith { parts }], start, end: self.at });
                if self.ends_word() {
                    continue;
                }
            }
            words.push(self.word(Place::Argument)?);
        }
    }
}

/// In a declaration the value is not split or globbed.
fn quoted(part: Part) -> Part {
    match part {
        Part::Text(text) if !text.contains(['~', '{']) => Part::Quoted(text),
        Part::Param { name, .. } => Part::Param { name, quoted: true },
        Part::Command { body, .. } => Part::Command { body, quoted: true },
        other => other,
    }
}
