//! The grammar: lists, pipelines, compound commands, functions, redirections.
//!
//! What is not certainly what bash would make of it is an error, and the whole
//! script is then opaque.

use std::cell::OnceCell;
use std::rc::Rc;

use super::ast::{
    Assign, AssignValue, Chain, Compound, Join, List, Node, Part, Pipeline, Raw, Redir, RedirKind,
    Script, Simple,
};
use super::heredoc::Pending;
use super::lex::{Parsed, Parser, Place, is_name};

const UNEXPECTED: &str = "a word or operator stands where none is expected";
const NOT_CLOSED: &str = "a compound command is not closed";

/// Builtins whose arguments are read like assignments.
const DECLARES: &[&str] = &["declare", "typeset", "local", "export", "readonly", "alias"];

const RESERVED: &[&str] = &[
    "!", "{", "}", "[[", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for",
    "function", "if", "select", "then", "time", "until", "while", "in",
];

pub(super) fn parse(script: &str) -> Parsed<Script> {
    let mut parser = Parser::new(script, 0);
    let list = parser.whole()?;
    Ok(Script { text: Rc::from(script), list, bash_only: parser.bash_only })
}

impl Parser<'_> {
    /// A list that goes on to the end of the text.
    pub(super) fn whole(&mut self) -> Parsed<List> {
        let list = self.list()?;
        if self.at < self.text.len() {
            return Err(UNEXPECTED);
        }
        if !self.pending.is_empty() {
            return Err("a here-document is not closed");
        }
        Ok(list)
    }

    /// Blanks, comments and newlines, with the here-documents after them.
    fn newlines(&mut self) -> Parsed<()> {
        loop {
            self.blanks();
            if self.peek() != b'\n' {
                return Ok(());
            }
            self.at += 1;
            self.read_heredocs()?;
        }
    }

    /// The reserved word that stands here, with the place behind it.
    fn reserved(&mut self) -> Option<(&'static str, usize)> {
        let first = self.peek();
        if !(first.is_ascii_lowercase() || matches!(first, b'!' | b'{' | b'}' | b'[')) {
            return None;
        }
        let start = self.at;
        let likely = RESERVED.iter().filter(|word| word.as_bytes().first() == Some(&first));
        let found = likely.into_iter().find_map(|word| {
            self.at = start;
            (self.eat(word) && self.ends_word()).then_some((*word, self.at))
        });
        self.at = start;
        found
    }

    fn ends_word(&mut self) -> bool {
        let ends = matches!(
            self.peek(),
            b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'<' | b'>' | b'(' | b')'
        );
        ends || self.at >= self.text.len()
    }

    fn takes(&mut self, word: &str) -> Parsed<()> {
        self.newlines()?;
        match self.reserved() {
            Some((found, end)) if found == word => {
                self.at = end;
                Ok(())
            }
            _ => Err(NOT_CLOSED),
        }
    }

    fn at_list_end(&mut self) -> bool {
        if self.at >= self.text.len() || self.peek() == b')' || self.sees(";;") || self.sees(";&") {
            return true;
        }
        let end = ["then", "do", "done", "fi", "elif", "else", "esac", "}"];
        self.reserved().is_some_and(|(word, _)| end.contains(&word))
    }

    pub(super) fn list(&mut self) -> Parsed<List> {
        let mut chains = Vec::new();
        loop {
            self.newlines()?;
            if self.at_list_end() {
                break;
            }
            let mut chain = self.chain()?;
            self.blanks();
            let b = self.peek();
            let (ends, goes_on) = match b {
                b';' if self.sees(";;") || self.sees(";&") => (true, false),
                b';' => (false, true),
                b'&' if self.sees("&&") => return Err(UNEXPECTED),
                b'&' => {
                    chain.background = true;
                    (false, true)
                }
                b'\n' => (false, false),
                _ => (true, false),
            };
            chains.push(chain);
            if goes_on {
                self.at += 1;
            } else if ends {
                break;
            }
        }
        Ok(List { chains })
    }

    fn chain(&mut self) -> Parsed<Chain> {
        let mut links = vec![(Join::First, self.pipeline()?)];
        loop {
            self.blanks();
            let join = if self.eat("&&") {
                Join::And
            } else if self.eat("||") {
                Join::Or
            } else {
                return Ok(Chain { links, background: false });
            };
            self.newlines()?;
            links.push((join, self.pipeline()?));
        }
    }

    fn pipeline(&mut self) -> Parsed<Pipeline> {
        let mut prefixed = false;
        loop {
            self.blanks();
            match self.reserved() {
                Some(("!", end)) => {
                    self.at = end;
                    // With `extglob` it is a pattern.
                    if self.peek() == b'(' {
                        return Err("it could be a pattern or a subshell");
                    }
                }
                Some(("time", end)) => {
                    self.bash_only = true;
                    self.at = end;
                    self.blanks();
                    let start = self.at;
                    if !(self.eat("-p") && self.ends_word()) {
                        self.at = start;
                    }
                    self.blanks();
                    let start = self.at;
                    if !(self.eat("--") && self.ends_word()) {
                        self.at = start;
                    }
                }
                _ => break,
            }
            prefixed = true;
        }
        if prefixed && (self.at_list_end() || matches!(self.peek(), b'\n' | b';')) {
            return Ok(Pipeline::default());
        }
        let mut nodes = vec![self.command()?];
        loop {
            self.blanks();
            if self.sees("||") || !self.eat("|") {
                return Ok(Pipeline { nodes });
            }
            if self.eat("&") {
                self.bash_only = true;
            }
            self.newlines()?;
            nodes.push(self.command()?);
        }
    }

    fn command(&mut self) -> Parsed<Node> {
        self.enter()?;
        self.blanks();
        let node = match self.compound()? {
            Some(node) => node,
            None => self.simple()?,
        };
        self.leave();
        Ok(node)
    }

    /// A compound command with its redirections, if one starts here.
    fn compound(&mut self) -> Parsed<Option<Node>> {
        self.enter()?;
        let node = self.compound_here()?;
        self.leave();
        Ok(node)
    }

    fn compound_here(&mut self) -> Parsed<Option<Node>> {
        self.peek();
        let start = self.at;
        let kind = if self.peek() == b'(' {
            self.at += 1;
            if self.peek() == b'(' {
                self.at += 1;
                Compound::Arith(self.arithmetic()?)
            } else {
                let list = self.list()?;
                self.newlines()?;
                if !self.eat(")") {
                    return Err(NOT_CLOSED);
                }
                Compound::Subshell(list)
            }
        } else {
            let Some((word, end)) = self.reserved() else { return Ok(None) };
            self.at = end;
            match word {
                "{" => {
                    let list = self.list()?;
                    self.takes("}")?;
                    Compound::Group(list)
                }
                "if" => self.if_command()?,
                "while" | "until" => {
                    let condition = self.list()?;
                    Compound::Loop { condition, body: self.do_done()? }
                }
                "for" => self.for_command()?,
                "select" => {
                    self.bash_only = true;
                    self.for_command()?
                }
                "case" => self.case_command()?,
                "[[" => {
                    self.bash_only = true;
                    Compound::Test(self.test_command()?)
                }
                "function" => {
                    self.bash_only = true;
                    self.blanks();
                    let name = self.word(Place::Program)?;
                    self.blanks();
                    if self.eat("(") {
                        self.blanks();
                        if !self.eat(")") {
                            return Err(UNEXPECTED);
                        }
                    }
                    return self.function(&name).map(Some);
                }
                "coproc" => {
                    self.bash_only = true;
                    return self.coproc().map(Some);
                }
                "in" => {
                    self.at = start;
                    return Ok(None);
                }
                _ => return Err(UNEXPECTED),
            }
        };
        let mut redirs = Vec::new();
        loop {
            self.blanks();
            match self.redirection()? {
                Some(redir) => redirs.push(redir),
                None => return Ok(Some(Node::Compound { kind, redirs, start, end: self.at })),
            }
        }
    }

    fn if_command(&mut self) -> Parsed<Compound> {
        let mut arms = Vec::new();
        loop {
            let condition = self.list()?;
            self.takes("then")?;
            arms.push((condition, self.list()?));
            self.newlines()?;
            match self.reserved() {
                Some(("elif", end)) => self.at = end,
                Some(("else", end)) => {
                    self.at = end;
                    let otherwise = Some(self.list()?);
                    self.takes("fi")?;
                    return Ok(Compound::If { arms, otherwise });
                }
                Some(("fi", end)) => {
                    self.at = end;
                    return Ok(Compound::If { arms, otherwise: None });
                }
                _ => return Err(NOT_CLOSED),
            }
        }
    }

    fn do_done(&mut self) -> Parsed<List> {
        self.takes("do")?;
        let body = self.list()?;
        self.takes("done")?;
        Ok(body)
    }

    fn for_command(&mut self) -> Parsed<Compound> {
        self.blanks();
        if self.eat("((") {
            let head = self.arithmetic()?;
            self.blanks();
            self.eat(";");
            let body = self.do_done()?;
            return Ok(Compound::ArithFor { head, body });
        }
        let name = self.word(Place::Argument)?;
        let name = name.bare().filter(|n| is_name(n)).ok_or(UNEXPECTED)?.to_owned();
        self.newlines()?;
        let words = match self.reserved() {
            Some(("in", end)) => {
                self.at = end;
                let mut words = Vec::new();
                loop {
                    self.blanks();
                    match self.peek() {
                        b';' => {
                            self.at += 1;
                            break;
                        }
                        b'\n' => break,
                        _ => words.push(self.word(Place::Argument)?),
                    }
                }
                Some(words)
            }
            _ => {
                self.eat(";");
                None
            }
        };
        let body = self.do_done()?;
        Ok(Compound::For { name, words, body })
    }

    fn case_command(&mut self) -> Parsed<Compound> {
        self.blanks();
        let word = self.word(Place::Argument)?;
        self.takes("in")?;
        let mut arms = Vec::new();
        loop {
            self.newlines()?;
            if let Some(("esac", end)) = self.reserved() {
                self.at = end;
                return Ok(Compound::Case { word, arms });
            }
            if self.eat("(") {
                self.blanks();
            }
            let mut patterns = Vec::new();
            loop {
                self.blanks();
                patterns.push(self.word(Place::Pattern)?);
                self.blanks();
                if self.eat(")") {
                    break;
                }
                if !self.eat("|") {
                    return Err(UNEXPECTED);
                }
            }
            let body = self.list()?;
            arms.push((patterns, body));
            self.newlines()?;
            if self.eat(";;") {
                if self.eat("&") {
                    self.bash_only = true;
                }
            } else if self.eat(";&") {
                self.bash_only = true;
            } else if !matches!(self.reserved(), Some(("esac", _))) {
                return Err(NOT_CLOSED);
            }
        }
    }

    fn test_command(&mut self) -> Parsed<Vec<Raw>> {
        let mut words: Vec<Raw> = Vec::new();
        let mut open = 0usize;
        loop {
            self.newlines()?;
            let start = self.at;
            let regex = words.last().and_then(Raw::bare) == Some("=~");
            let operator = ["&&", "||", "(", ")", "<", ">"].into_iter().find(|operator| {
                let process =
                    matches!(*operator, "<" | ">") && (self.sees("<(") || self.sees(">("));
                !(process || (regex && *operator == "(")) && self.eat(operator)
            });
            if let Some(operator) = operator {
                match operator {
                    "(" => open += 1,
                    ")" => open = open.checked_sub(1).ok_or(UNEXPECTED)?,
                    _ => {}
                }
                let parts = vec![Part::Quoted(operator.to_owned())];
                words.push(Raw { parts, start, end: self.at });
                continue;
            }
            if matches!(self.peek(), b';' | b'&' | b'|') && !regex {
                return Err(UNEXPECTED);
            }
            let word = self.word(if regex { Place::Regex } else { Place::Pattern })?;
            if word.bare() == Some("]]") {
                return if open == 0 { Ok(words) } else { Err(UNEXPECTED) };
            }
            words.push(word);
        }
    }

    fn function(&mut self, name: &Raw) -> Parsed<Node> {
        let name = name.bare().ok_or("the name of a function is not plain")?.to_owned();
        self.newlines()?;
        match self.compound()? {
            Some(body @ Node::Compound { .. }) => Ok(Node::Function { name, body: Rc::new(body) }),
            _ => Err("the body of a function is no compound command"),
        }
    }

    fn coproc(&mut self) -> Parsed<Node> {
        self.blanks();
        let start = self.at;
        let mut name = "COPROC".to_owned();
        if self.reserved().is_none() && self.peek() != b'(' {
            let first = self.word(Place::Program)?;
            self.blanks();
            match (first.bare(), self.peek() == b'(' || self.reserved().is_some()) {
                (Some(given), true) if is_name(given) => name = given.to_owned(),
                (_, true) => return Err(UNEXPECTED),
                (_, false) => {
                    self.at = start;
                    return Ok(Node::Coproc { name, body: Box::new(self.simple()?) });
                }
            }
        }
        match self.compound()? {
            Some(body) => Ok(Node::Coproc { name, body: Box::new(body) }),
            None => Err(UNEXPECTED),
        }
    }

    fn simple(&mut self) -> Parsed<Node> {
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
                0 if self.at >= self.text.len() => break,
                b'\n' | b';' | b'&' | b'|' | b')' => break,
                b'(' => {
                    let [name] = simple.words.as_slice() else { return Err(UNEXPECTED) };
                    if !simple.assigns.is_empty() || !simple.redirs.is_empty() {
                        return Err(UNEXPECTED);
                    }
                    self.at += 1;
                    self.blanks();
                    if !self.eat(")") {
                        return Err(UNEXPECTED);
                    }
                    return self.function(name);
                }
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
            let odd = self.slice(open, self.at).contains([' ', '\t', '$', '`']);
            let assigns = self.sees("=") || self.sees("+=");
            // It would be read a second time as a pattern.
            if !assigns && odd {
                return Err("a word holds a subscript");
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
            _ if self.ends_word() && !self.sees("<(") && !self.sees(">(") => {
                AssignValue::Word(Raw { parts: Vec::new(), start: self.at, end: self.at })
            }
            _ => AssignValue::Word(self.word(Place::Argument)?),
        };
        Ok(Some(Assign { name, subscript, append, value }))
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
                    if self.slice(start, self.at).contains([' ', '\t', '$', '`']) {
                        return Err("a word holds a subscript");
                    }
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

    /// A redirection, if one starts here.
    fn redirection(&mut self) -> Parsed<Option<Redir>> {
        self.peek();
        let start = self.at;
        let mut fd = None;
        if self.peek() == b'{' {
            // `{name}>file`
            self.at += 1;
            let name = self.name();
            if !(is_name(&name) && self.eat("}") && matches!(self.peek(), b'<' | b'>'))
                || self.sees("<(")
                || self.sees(">(")
            {
                self.at = start;
                return Ok(None);
            }
            self.bash_only = true;
        } else {
            let mut number = None;
            while self.peek().is_ascii_digit() {
                let digit = u32::from(self.byte(self.at) - b'0');
                number = Some(number.unwrap_or(0u32).saturating_mul(10).saturating_add(digit));
                self.at += 1;
            }
            if number.is_some_and(|n| n > 1 << 20) {
                return Err("a descriptor is too large");
            }
            fd = number;
        }
        let numbered = self.at > start;
        let both = !numbered && self.sees("&>");
        let process = self.sees("<(") || self.sees(">(");
        if (!matches!(self.peek(), b'<' | b'>') && !both) || process {
            self.at = start;
            return Ok(None);
        }
        let table: &[(&str, RedirKind, Option<u32>)] = &[
            ("&>>", RedirKind::Append, None),
            ("&>", RedirKind::Write, None),
            ("<<<", RedirKind::HereString, Some(0)),
            ("<<-", RedirKind::HereDocument, Some(0)),
            ("<<", RedirKind::HereDocument, Some(0)),
            ("<>", RedirKind::ReadWrite, Some(0)),
            ("<&", RedirKind::DupIn, Some(0)),
            (">>", RedirKind::Append, Some(1)),
            (">|", RedirKind::Clobber, Some(1)),
            (">&", RedirKind::DupOut, Some(1)),
            ("<", RedirKind::Read, Some(0)),
            (">", RedirKind::Write, Some(1)),
        ];
        let Some((operator, kind, default)) = table.iter().find(|row| self.sees(row.0)) else {
            return Err(UNEXPECTED);
        };
        self.eat(operator);
        self.bash_only |= both || *kind == RedirKind::HereString;
        if !numbered {
            fd = *default;
        }
        self.blanks();
        if self.ends_word() && !self.sees("<(") && !self.sees(">(") {
            return Err("a redirection has no target");
        }
        let target = self.word(Place::Argument)?;
        let mut body = None;
        if *kind == RedirKind::HereDocument {
            let cell = Rc::new(OnceCell::new());
            body = Some(Rc::clone(&cell));
            let (delimiter, quoted) = delimiter(&target, self.slice(target.start, target.end))?;
            self.pending.push(Pending {
                delimiter,
                quoted,
                strip_tabs: *operator == "<<-",
                at: self.at,
                body: cell,
            });
        }
        Ok(Some(Redir { fd, kind: *kind, target, body }))
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

fn delimiter(target: &Raw, source: &str) -> Parsed<(String, bool)> {
    let mut text = String::new();
    let mut quoted = false;
    for part in &target.parts {
        match part {
            Part::Text(piece) => text.push_str(piece),
            Part::Quoted(piece) => {
                quoted = true;
                text.push_str(piece);
            }
            _ => return Err("the end of a here-document is not plain"),
        }
    }
    // `$` is text here, but a lone one came out quoted; the others are odd.
    if source.contains(['$', '`', '\n']) {
        return Err("the end of a here-document is not plain");
    }
    Ok((text, quoted))
}
