//! Words: quotes, expansions and what stands between them.
//!
//! A backslash before a newline joins two lines wherever it is not quoted, even
//! inside an operator or a name, so every look at the text goes through
//! [`Parser::peek`], which passes over it.

use std::rc::Rc;

use super::ast::{Body, Expansion, List, Operation, Part, Raw, Script};
use super::heredoc::Pending;

pub(super) type Parsed<T> = Result<T, &'static str>;

/// Constructs inside each other beyond this are not followed: the analysis
/// recurses, and no person nests like that.
pub(super) const MAX_DEPTH: usize = 200;

pub(super) const UNCLOSED: &str = "a quote, brace or parenthesis is not closed";
const NESTED: &str = "it is nested too deeply";

pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    bytes: &'a [u8],
    pub(super) at: usize,
    pub(super) depth: usize,
    /// Here-documents whose text begins after the next newline.
    pub(super) pending: Vec<Pending>,
    pub(super) bash_only: bool,
    /// Whether lines are joined anywhere.
    joins: bool,
}

/// Where a word ends and what it may hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The program of a command, where `x(` defines a function.
    Program,
    Argument,
    /// A pattern of `case` or an operand of `[[`.
    Pattern,
    /// The right side of `=~`, where parentheses and bars are text.
    Regex,
}

pub(super) fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, depth: usize) -> Self {
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

    /// A parser for a part of the same text.
    pub(super) fn within(&self, start: usize, end: usize) -> Self {
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

    pub(super) fn enter(&mut self) -> Parsed<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(NESTED) } else { Ok(()) }
    }

    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    /// The byte at a place, 0 behind the end. A script holds no NUL.
    pub(super) fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    /// The next byte, after joined lines.
    pub(super) fn peek(&mut self) -> u8 {
        if self.joins {
            self.at = self.joined(self.at);
        }
        self.byte(self.at)
    }

    fn joined(&self, mut at: usize) -> usize {
        while self.byte(at) == b'\\' && self.byte(at + 1) == b'\n' {
            at += 2;
        }
        at
    }

    /// Eats the text if it stands here, however its lines are joined.
    pub(super) fn eat(&mut self, text: &str) -> bool {
        match self.matches(text) {
            Some(end) => {
                self.at = end;
                true
            }
            None => false,
        }
    }

    pub(super) fn sees(&self, text: &str) -> bool {
        self.matches(text).is_some()
    }

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

    pub(super) fn slice(&self, start: usize, end: usize) -> &'a str {
        self.text.get(start..end).unwrap_or_default()
    }

    /// Takes bytes while they are ordinary; always whole characters, because
    /// every byte that stops it is ASCII.
    fn run(&mut self, ordinary: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at;
        let rest = self.bytes.get(start..).unwrap_or_default();
        self.at += rest.iter().position(|b| !ordinary(*b)).unwrap_or(rest.len());
        self.slice(start, self.at)
    }

    pub(super) fn blanks(&mut self) {
        while matches!(self.peek(), b' ' | b'\t') {
            self.at += 1;
        }
        if self.byte(self.at) == b'#' {
            self.run(|b| b != b'\n');
        }
    }

    pub(super) fn word(&mut self, place: Place) -> Parsed<Raw> {
        let start = self.at;
        // Nearly every word has one part; a long script has many words.
        let mut parts = Vec::with_capacity(1);
        loop {
            let b = self.peek();
            match b {
                0 if self.at >= self.bytes.len() => break,
                b' ' | b'\t' | b'\n' => break,
                b'|' if place == Place::Regex => self.literal(&mut parts, 1),
                b';' | b'&' | b'|' => break,
                b'<' | b'>' => {
                    if self.byte(self.joined(self.at + 1)) != b'(' {
                        break;
                    }
                    self.bash_only = true;
                    self.at = self.joined(self.at + 1) + 1;
                    parts.push(Part::Process(self.nested_list()?));
                }
                b'(' if place == Place::Regex => {
                    self.literal(&mut parts, 1);
                    self.group(&mut parts)?;
                }
                b'(' => {
                    let extended = matches!(parts.last(), Some(Part::Text(text))
                        if text.ends_with(['?', '*', '+', '@', '!']));
                    if !extended {
                        break;
                    }
                    // Without `extglob`, `!(x)` runs x.
                    if place == Place::Program {
                        return Err("a pattern stands in the place of a program");
                    }
                    self.bash_only = true;
                    self.at += 1;
                    let mut inner = Vec::new();
                    self.group(&mut inner)?;
                    parts.push(Part::Pattern(inner));
                }
                b')' => break,
                _ => self.piece(&mut parts)?,
            }
        }
        if self.at == start {
            return Err("a word is missing");
        }
        Ok(Raw { parts, start, end: self.at })
    }

    fn literal(&mut self, parts: &mut Vec<Part>, len: usize) {
        let text = self.slice(self.at, self.at + len);
        push_text(parts, text);
        self.at += len;
    }

    /// Up to the closing parenthesis of a pattern or regular expression.
    fn group(&mut self, parts: &mut Vec<Part>) -> Parsed<()> {
        self.enter()?;
        loop {
            match self.peek() {
                0 if self.at >= self.bytes.len() => return Err(UNCLOSED),
                b')' => {
                    self.literal(parts, 1);
                    self.leave();
                    return Ok(());
                }
                b'(' => {
                    self.literal(parts, 1);
                    self.group(parts)?;
                }
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'<' | b'>' => self.literal(parts, 1),
                _ => self.piece(parts)?,
            }
        }
    }

    /// One quoted, expanded or plain piece of a word.
    fn piece(&mut self, parts: &mut Vec<Part>) -> Parsed<()> {
        match self.peek() {
            b'\\' => {
                self.at += 1;
                let c = self.text.get(self.at..).and_then(|rest| rest.chars().next());
                let c = c.ok_or("it ends in a backslash")?;
                push_quoted(parts, self.slice(self.at, self.at + c.len_utf8()));
                self.at += c.len_utf8();
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
            _ => {
                let text = self.run(|b| {
                    !matches!(
                        b,
                        b' ' | b'\t'
                            | b'\n'
                            | b';'
                            | b'&'
                            | b'|'
                            | b'<'
                            | b'>'
                            | b'('
                            | b')'
                            | b'\\'
                            | b'\''
                            | b'"'
                            | b'$'
                            | b'`'
                            | b'['
                            | b']'
                            | b'{'
                            | b'}'
                    )
                });
                if text.is_empty() {
                    self.literal(parts, 1);
                } else {
                    push_text(parts, text);
                }
            }
        }
        Ok(())
    }

    fn closes(&mut self, with: u8) -> Parsed<()> {
        if self.byte(self.at) != with || self.at >= self.bytes.len() {
            return Err(UNCLOSED);
        }
        self.at += 1;
        Ok(())
    }

    fn double_quoted(&mut self, parts: &mut Vec<Part>) -> Parsed<()> {
        self.enter()?;
        push_quoted(parts, "");
        loop {
            match self.peek() {
                0 if self.at >= self.bytes.len() => return Err(UNCLOSED),
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
    fn quoted_piece(&mut self, parts: &mut Vec<Part>, close: u8) -> Parsed<()> {
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
    pub(super) fn here_text(&mut self, end: usize) -> Parsed<Vec<Part>> {
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
    fn nested_list(&mut self) -> Parsed<List> {
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

    fn dollar(&mut self, parts: &mut Vec<Part>, quoted: bool) -> Parsed<()> {
        self.at += 1;
        let b = self.peek();
        match b {
            b'(' => {
                self.at += 1;
                if self.peek() == b'(' {
                    self.at += 1;
                    parts.push(Part::Arith { parts: self.arithmetic()? });
                } else {
                    parts.push(Part::Command { body: Body::Here(self.nested_list()?), quoted });
                }
            }
            b'{' => {
                self.at += 1;
                let part = self.braces(quoted)?;
                parts.push(part);
            }
            b'[' => return Err("it holds arithmetic in square brackets"),
            b'\'' if !quoted => {
                self.bash_only = true;
                self.at += 1;
                self.escaped_string(parts)?;
            }
            b'"' if !quoted => {
                self.bash_only = true;
                self.at += 1;
                self.double_quoted(parts)?;
            }
            b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!' | b'0'..=b'9' => {
                let name = char::from(b).to_string();
                self.at += 1;
                parts.push(Part::Param { name, quoted });
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let name = self.name();
                parts.push(Part::Param { name, quoted });
            }
            _ => push_quoted(parts, "$"),
        }
        Ok(())
    }

    /// A name, which lines may be joined in.
    pub(super) fn name(&mut self) -> String {
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

    /// `$((…))`, `((…))`: up to both closing parentheses.
    pub(super) fn arithmetic(&mut self) -> Parsed<Vec<Part>> {
        self.bash_only = true;
        let mut parts = Vec::new();
        let mut open = 0usize;
        self.enter()?;
        loop {
            match self.peek() {
                0 if self.at >= self.bytes.len() => return Err(UNCLOSED),
                b')' if open > 0 => {
                    open -= 1;
                    self.literal(&mut parts, 1);
                }
                b')' => {
                    if !self.eat("))") {
                        return Err("it could be arithmetic or a subshell");
                    }
                    self.leave();
                    return Ok(parts);
                }
                b'(' => {
                    open += 1;
                    self.literal(&mut parts, 1);
                }
                _ => self.arithmetic_piece(&mut parts)?,
            }
        }
    }

    fn arithmetic_piece(&mut self, parts: &mut Vec<Part>) -> Parsed<()> {
        match self.peek() {
            b'\'' | b'\\' | b'#' => {
                // A base (`16#ff`) is the only sane use of these.
                let base = self.byte(self.at) == b'#'
                    && self.at.checked_sub(1).is_some_and(|at| self.byte(at).is_ascii_digit());
                if !base {
                    return Err("its arithmetic holds quotes");
                }
                self.literal(parts, 1);
                Ok(())
            }
            b'"' => {
                self.at += 1;
                self.double_quoted(parts)
            }
            b'$' => self.dollar(parts, true),
            b'`' => self.backticks(parts, true),
            b'{' | b'}' => Err("its arithmetic holds braces"),
            _ => {
                let text = self.run(|b| {
                    !matches!(
                        b,
                        b'(' | b')'
                            | b'\''
                            | b'\\'
                            | b'#'
                            | b'"'
                            | b'$'
                            | b'`'
                            | b'{'
                            | b'}'
                            | b'['
                            | b']'
                    )
                });
                if text.is_empty() {
                    self.literal(parts, 1);
                } else {
                    push_text(parts, text);
                }
                Ok(())
            }
        }
    }

    /// A subscript from behind its opening bracket through the closing one.
    pub(super) fn subscript(&mut self) -> Parsed<Vec<Part>> {
        let mut parts = Vec::new();
        let mut open = 0usize;
        self.enter()?;
        loop {
            match self.peek() {
                0 if self.at >= self.bytes.len() => return Err(UNCLOSED),
                b'[' => {
                    open += 1;
                    self.literal(&mut parts, 1);
                }
                b']' if open == 0 => {
                    self.at += 1;
                    self.leave();
                    return Ok(parts);
                }
                b']' => {
                    open -= 1;
                    self.literal(&mut parts, 1);
                }
                b'\n' | b';' | b'&' | b'|' | b'<' | b'>' | b'(' | b')' => {
                    return Err("a subscript holds an operator");
                }
                b' ' | b'\t' => self.literal(&mut parts, 1),
                _ => self.piece(&mut parts)?,
            }
        }
    }

    /// What stands between `${` and `}`.
    fn braces(&mut self, quoted: bool) -> Parsed<Part> {
        const ODD: &str = "it holds an expansion that is not understood";
        self.enter()?;
        let first = self.peek();
        let mut prefix = 0;
        if matches!(first, b'#' | b'!') && self.byte(self.joined(self.at + 1)) != b'}' {
            prefix = first;
            self.at += 1;
        }
        let name = match self.peek() {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => self.name(),
            b'0'..=b'9' => self.run(|b| b.is_ascii_digit()).to_owned(),
            b @ (b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!') => {
                self.at += 1;
                char::from(b).to_string()
            }
            _ => return Err(ODD),
        };
        let mut subscript = None;
        if self.peek() == b'[' {
            self.bash_only = true;
            self.at += 1;
            subscript = Some(self.subscript()?);
        }
        let operation = match (prefix, self.peek()) {
            (0, b'}') if subscript.is_none() => {
                self.at += 1;
                self.leave();
                return Ok(Part::Param { name, quoted });
            }
            (0, b'}') => Operation::None,
            (b'#', b'}') => Operation::Length,
            (b'!', b'}') if subscript.is_some() => Operation::Names,
            (b'!', b'}') => Operation::Indirect,
            (b'!', b'@' | b'*') => {
                self.at += 1;
                if self.peek() != b'}' {
                    return Err("it evaluates the value of a variable");
                }
                Operation::Names
            }
            (0, operator) => {
                self.at += 1;
                let colon = operator == b':';
                let operator = match self.peek() {
                    b @ (b'-' | b'=' | b'?' | b'+') if colon => {
                        self.at += 1;
                        b
                    }
                    _ => operator,
                };
                match operator {
                    b'-' | b'+' | b'?' => Operation::Default {
                        test: operator,
                        empty_too: colon,
                        word: self.brace_word(quoted, false)?,
                    },
                    b'=' => Operation::Assign { word: self.brace_word(quoted, false)? },
                    b':' => {
                        self.bash_only = true;
                        Operation::Slice(self.brace_word(true, true)?)
                    }
                    b'#' | b'%' => Operation::Edit(self.brace_word(quoted, true)?),
                    b'/' | b'^' | b',' => {
                        self.bash_only = true;
                        Operation::Edit(self.brace_word(quoted, true)?)
                    }
                    b'@' => {
                        self.bash_only = true;
                        let which = self.peek();
                        self.at += 1;
                        Operation::Transform(which)
                    }
                    _ => return Err(ODD),
                }
            }
            _ => return Err(ODD),
        };
        if self.peek() != b'}' {
            return Err(ODD);
        }
        self.at += 1;
        self.leave();
        Ok(Part::Expansion(Box::new(Expansion { name, quoted, subscript, operation })))
    }

    /// The word of an expansion, up to its closing brace.
    fn brace_word(&mut self, quoted: bool, pattern: bool) -> Parsed<Vec<Part>> {
        let mut parts = Vec::new();
        loop {
            match self.peek() {
                0 if self.at >= self.bytes.len() => return Err(UNCLOSED),
                b'}' => return Ok(parts),
                b'{' => return Err("it holds braces in an expansion"),
                // Whether this quotes depends on the mode bash runs in.
                b'\'' if quoted && !pattern => {
                    return Err("it holds a quote inside a quoted expansion");
                }
                b'\\' if quoted => {
                    // Taken off or not, it never starts anything.
                    self.at += 1;
                    if self.at >= self.bytes.len() {
                        return Err(UNCLOSED);
                    }
                    let c = self.text.get(self.at..).and_then(|rest| rest.chars().next());
                    let len = c.map_or(1, char::len_utf8);
                    push_quoted(&mut parts, self.slice(self.at, self.at + len));
                    self.at += len;
                }
                b'$' => self.dollar(&mut parts, quoted)?,
                b'`' => self.backticks(&mut parts, quoted)?,
                b'<' | b'>' if self.byte(self.joined(self.at + 1)) == b'(' => {
                    return Err("it holds a process substitution inside an expansion");
                }
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'<' | b'>' | b'(' | b')' => {
                    self.literal(&mut parts, 1);
                }
                _ => self.piece(&mut parts)?,
            }
        }
    }

    fn backticks(&mut self, parts: &mut Vec<Part>, quoted: bool) -> Parsed<()> {
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        loop {
            match self.byte(self.at) {
                0 if self.at >= self.bytes.len() => return Err(UNCLOSED),
                b'`' => break,
                b'\\' => {
                    escaped = true;
                    self.at += 2;
                }
                _ => self.at += 1,
            }
        }
        let end = self.at;
        if !self.pending.is_empty() && self.slice(start, end).contains('\n') {
            return Err("a substitution stands between a here-document and its text");
        }
        self.enter()?;
        let body = if escaped {
            let text = unescape_backticks(self.slice(start, end), quoted);
            let script = parse_nested(&text, self.depth)?;
            self.bash_only |= script.bash_only;
            Body::Unescaped(Box::new(script))
        } else {
            let mut inner = self.within(start, end);
            let list = inner.whole()?;
            self.bash_only |= inner.bash_only;
            Body::Here(list)
        };
        self.leave();
        self.at = end + 1;
        parts.push(Part::Command { body, quoted });
        Ok(())
    }

    /// `$'…'`
    fn escaped_string(&mut self, parts: &mut Vec<Part>) -> Parsed<()> {
        let mut bytes = Vec::new();
        loop {
            match self.byte(self.at) {
                0 if self.at >= self.bytes.len() => return Err(UNCLOSED),
                b'\'' => break,
                b'\\' => {
                    self.at += 1;
                    self.escape(&mut bytes)?;
                }
                b => {
                    bytes.push(b);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        let text = String::from_utf8(bytes).map_err(|_| "an escape gives no text")?;
        push_quoted(parts, &text);
        Ok(())
    }

    fn escape(&mut self, bytes: &mut Vec<u8>) -> Parsed<()> {
        const ODD: &str = "it holds an escape that is not understood";
        let b = self.byte(self.at);
        self.at += 1;
        let simple = match b {
            b'a' => 7,
            b'b' => 8,
            b'e' | b'E' => 27,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'\\' | b'\'' | b'"' | b'?' => b,
            b'0'..=b'7' => {
                self.at -= 1;
                let value = self.digits(8, 3);
                return match u8::try_from(value & 0xff) {
                    Ok(0) | Err(_) => Err(ODD),
                    Ok(byte) => {
                        bytes.push(byte);
                        Ok(())
                    }
                };
            }
            b'x' | b'u' | b'U' => {
                let most = match b {
                    b'x' => 2,
                    b'u' => 4,
                    _ => 8,
                };
                let value = self.digits(16, most);
                if b == b'x' {
                    bytes.push(u8::try_from(value).ok().filter(|v| *v != 0).ok_or(ODD)?);
                } else {
                    let c = char::from_u32(value).filter(|c| *c != '\0').ok_or(ODD)?;
                    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                return Ok(());
            }
            _ => return Err(ODD),
        };
        bytes.push(simple);
        Ok(())
    }

    fn digits(&mut self, radix: u32, most: usize) -> u32 {
        let mut value = 0u32;
        for _ in 0..most {
            let Some(digit) = char::from(self.byte(self.at)).to_digit(radix) else { break };
            value = value.wrapping_mul(radix) + digit;
            self.at += 1;
        }
        value
    }
}

fn unescape_backticks(text: &str, quoted: bool) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let dropped = c == '\\'
            && chars.peek().is_some_and(|n| matches!(n, '$' | '`' | '\\') || (quoted && *n == '"'));
        if dropped {
            plain.extend(chars.next());
        } else {
            plain.push(c);
        }
    }
    plain
}

/// A text of its own, such as the argument of `eval`.
pub(super) fn parse_nested(text: &str, depth: usize) -> Parsed<Script> {
    let mut parser = Parser::new(text, depth);
    parser.enter()?;
    let list = parser.whole()?;
    Ok(Script { text: Rc::from(text), list, bash_only: parser.bash_only })
}

pub(super) fn push_text(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut() {
        Some(Part::Text(last)) => last.push_str(text),
        _ => parts.push(Part::Text(text.to_owned())),
    }
}

pub(super) fn push_quoted(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut() {
        Some(Part::Quoted(last)) => last.push_str(text),
        _ => parts.push(Part::Quoted(text.to_owned())),
    }
}
