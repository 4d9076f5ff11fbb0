//! Adds to and takes from a JSON text without touching the rest of it.
//!
//! A settings file belongs to the user: their order, indentation and line ends
//! stay. So this finds the byte range of every value and edits the text there;
//! nothing is parsed and printed again.
//!
//! Taking out what was put in gives back the same bytes, without a note of
//! what was there before:
//!
//! - an item joins others as `,` + white space + item right behind the last of
//!   them, and leaves with the comma before it;
//! - an item in an empty container of the user's is set off by a space behind
//!   the bracket (`{␠⏎  "a": 1⏎}`, two where the closing bracket had a line of
//!   its own): it says that the container was there, and is to stay empty; one
//!   without it was ours, and goes too.
//!
//! Limits: JSON as RFC 8259 has it, with comments and trailing commas where the
//! client takes them ([`JsonSyntax`]).

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

/// A JSON text and where its values are.
#[derive(Debug)]
pub(crate) struct Document<'a> {
    text: &'a str,
    /// The same bytes with every comment blanked.
    plain: Cow<'a, str>,
    pub(crate) root: Node,
}

/// One value and its place in the text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Node {
    span: Range<usize>,
    pub(crate) kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Object(Vec<Member>),
    Array(Vec<Node>),
    String(String),
    True,
    False,
    /// A number or `null`: of no interest here.
    Other,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) key: String,
    start: usize,
    pub(crate) value: Node,
}

/// What a client reads as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonSyntax {
    Strict,
    /// With `//` and `/* */` comments.
    Comments,
    /// With comments, and with a comma behind the last item.
    Jsonc,
}

/// Why a text is not JSON. Lines and columns count from one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The client reads strict JSON and would ignore the whole file.
    #[error("comment in line {line}, which JSON does not have")]
    Comment { line: usize },
    #[error("comma before a closing bracket in line {line}, which JSON does not have")]
    TrailingComma { line: usize },
    #[error("not JSON: {message}")]
    Syntax { message: String },
}

/// A key that stands twice in one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Twice {
    pub(crate) offset: usize,
}

impl<'a> Document<'a> {
    pub(crate) fn parse(text: &'a str, syntax: JsonSyntax) -> Result<Self, JsonError> {
        let plain = match syntax {
            JsonSyntax::Strict => Cow::Borrowed(text),
            JsonSyntax::Comments => Cow::Owned(blanked(text)),
            JsonSyntax::Jsonc => Cow::Owned(without_trailing_commas(&blanked(text))),
        };
        let json = plain.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&plain);
        if let Err(error) = serde_json::from_str::<Value>(json) {
            return Err(explain(json, &error));
        }
        // From here on the text is known to be JSON, nested at most 128 deep.
        let mut scan = Scan { text: &plain, at: plain.len() - json.len() };
        let root =
            scan.value().ok_or_else(|| JsonError::Syntax { message: "unreadable text".into() })?;
        Ok(Self { text, plain, root })
    }

    pub(crate) fn line(&self, offset: usize) -> usize {
        self.text.bytes().take(offset).filter(|b| *b == b'\n').count() + 1
    }

    /// What stands there, comments left out.
    fn slice(&self, range: Range<usize>) -> &str {
        self.plain.get(range).unwrap_or_default()
    }

    /// A value as it is written, and what follows it, comments and all.
    pub(crate) fn written(&self, node: &Node) -> (&'a str, &'a str) {
        let value = self.text.get(node.span.clone()).unwrap_or_default();
        (value, self.text.get(node.span.end..).unwrap_or_default())
    }

    /// Another text in the place of a value and of so much behind it.
    pub(crate) fn replace(&self, node: &Node, behind: usize, text: String) -> Edit {
        Edit { range: node.span.start..node.span.end + behind, text }
    }

    fn newline(&self) -> &'static str {
        if self.text.contains("\r\n") { "\r\n" } else { "\n" }
    }

    /// White space at the start of the line that `offset` is in.
    fn indent_at(&self, offset: usize) -> &str {
        let line = self.slice(0..offset).rsplit('\n').next().unwrap_or_default();
        let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        line.strip_suffix(line.trim_start_matches(is_space)).unwrap_or_default()
    }

    /// White space before the item that starts at `offset`.
    fn space_before(&self, offset: usize) -> &str {
        let before = self.slice(0..offset);
        before.strip_prefix(before.trim_end_matches(is_space)).unwrap_or_default()
    }

    /// One step of indentation, as the first item of the root shows it.
    fn indent_unit(&self) -> &str {
        let first = self.root.items().first().map(|item| item.start);
        let space = first.map(|start| self.space_before(start)).unwrap_or_default();
        match space.rsplit_once('\n') {
            Some((_, indent)) if !indent.is_empty() => indent,
            _ => "  ",
        }
    }

    fn is_one_line(&self) -> bool {
        !self.root.items().is_empty() && !self.slice(self.root.span.clone()).contains('\n')
    }

    /// Puts `items` behind the last one of `container`.
    pub(crate) fn append(&self, container: &Node, items: &[Item]) -> Vec<Edit> {
        if let Some(last) = container.items().last() {
            let space = self.space_before(last.start);
            let layout = match space.rsplit_once('\n') {
                Some((_, indent)) => self.lines(indent),
                None => Layout::Inline { gap: space },
            };
            let text = items.iter().map(|item| format!(",{}{}", layout.gap(), item.print(&layout)));
            return vec![Edit { range: last.end..last.end, text: text.collect() }];
        }
        let (inside, close) = container.inside();
        let outer = self.indent_at(container.span.start);
        let indent = format!("{outer}{}", self.indent_unit());
        let one_line = self.is_one_line();
        let layout = if one_line { Layout::Inline { gap: "" } } else { self.lines(&indent) };
        let items: Vec<_> =
            items.iter().map(|item| format!("{}{}", layout.gap(), item.print(&layout))).collect();
        let has_lines = self.slice(inside..close).contains(['\n', '\r']);
        let mark = if has_lines && !one_line { "  " } else { " " };
        let mut edits =
            vec![Edit { range: inside..inside, text: format!("{mark}{}", items.join(",")) }];
        if !one_line && !has_lines {
            edits.push(Edit { range: close..close, text: format!("{}{outer}", self.newline()) });
        }
        edits
    }

    fn lines<'l>(&'l self, indent: &'l str) -> Layout<'l> {
        Layout::Lines {
            newline: self.newline(),
            indent: indent.to_owned(),
            unit: self.indent_unit(),
        }
    }

    /// Takes the items at `gone` out of `container`, or says that nothing of it
    /// would be left and that it was not the user's.
    pub(crate) fn remove(&self, container: &Node, gone: &[usize]) -> Removal {
        let items = container.items();
        if gone.is_empty() {
            return Removal::Edits(Vec::new());
        }
        if gone.len() < items.len() {
            return Removal::Edits(self.remove_some(&items, gone));
        }
        let (inside, close) = container.inside();
        let Some(last) = items.last() else { return Removal::All };
        let Some(filled) = self.slice(inside..last.end).strip_prefix(' ') else {
            return Removal::All;
        };
        let mut edits = vec![Edit { range: inside..last.end, text: String::new() }];
        // A closing line of its own was added behind what stood in the brackets.
        if filled.starts_with(self.newline())
            && let Some(at) = self.slice(last.end..close).find(self.newline())
        {
            edits.push(Edit { range: last.end + at..close, text: String::new() });
        }
        Removal::Edits(edits)
    }

    fn remove_some(&self, items: &[Range<usize>], gone: &[usize]) -> Vec<Edit> {
        let mut edits = Vec::new();
        let mut kept: Option<&Range<usize>> = None;
        for (index, item) in items.iter().enumerate() {
            if !gone.contains(&index) {
                kept = Some(item);
                continue;
            }
            let range = match (kept, items.get(index + 1)) {
                (Some(before), _) => {
                    // Each removed item takes the comma before it.
                    let from =
                        index.checked_sub(1).and_then(|i| items.get(i)).unwrap_or(before).end;
                    from..item.end
                }
                (None, Some(after)) => item.start..after.start,
                (None, None) => item.clone(),
            };
            edits.push(Edit { range, text: String::new() });
        }
        edits
    }

    /// The text with nothing between the root's brackets but comments. `None`: the
    /// text has no comment.
    pub(crate) fn emptied(&self) -> Option<Edit> {
        if self.text == self.plain {
            return None;
        }
        let (inside, close) = self.root.inside();
        let pieces = pieces(self.text.get(inside..close)?);
        let comments = pieces.into_iter().filter(|(is_comment, _)| *is_comment);
        let newline = self.newline();
        let mut comments: String =
            comments.map(|(_, text)| format!("{newline}  {}", text.trim_end())).collect();
        if !comments.is_empty() {
            comments.push_str(newline);
        }
        Some(Edit { range: inside..close, text: comments })
    }

    pub(crate) fn apply(&self, mut edits: Vec<Edit>) -> String {
        edits.sort_by_key(|edit| edit.range.start);
        let mut text = String::with_capacity(self.text.len());
        let mut at = 0;
        for edit in edits {
            text.push_str(self.text.get(at..edit.range.start).unwrap_or_default());
            text.push_str(&edit.text);
            at = edit.range.end;
        }
        text.push_str(self.text.get(at..).unwrap_or_default());
        text
    }
}

impl Node {
    /// Where the value starts.
    pub(crate) fn offset(&self) -> usize {
        self.span.start
    }

    /// The value of `key`; an error when it stands twice.
    pub(crate) fn get(&self, key: &str) -> Result<Option<&Node>, Twice> {
        let mut found = None;
        for member in self.members() {
            if member.key == key && found.replace(&member.value).is_some() {
                return Err(Twice { offset: member.start });
            }
        }
        Ok(found)
    }

    pub(crate) fn members(&self) -> &[Member] {
        if let Kind::Object(members) = &self.kind { members } else { &[] }
    }

    pub(crate) fn elements(&self) -> &[Node] {
        if let Kind::Array(elements) = &self.kind { elements } else { &[] }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        if let Kind::String(text) = &self.kind { Some(text) } else { None }
    }

    pub(crate) fn is_object(&self) -> bool {
        matches!(self.kind, Kind::Object(_))
    }

    pub(crate) fn is_array(&self) -> bool {
        matches!(self.kind, Kind::Array(_))
    }

    /// Behind the opening bracket and before the closing one.
    fn inside(&self) -> (usize, usize) {
        (self.span.start + 1, self.span.end.saturating_sub(1))
    }

    /// Ranges of the members or elements.
    fn items(&self) -> Vec<Range<usize>> {
        match &self.kind {
            Kind::Object(members) => members.iter().map(|m| m.start..m.value.span.end).collect(),
            Kind::Array(elements) => elements.iter().map(|e| e.span.clone()).collect(),
            _ => Vec::new(),
        }
    }
}

/// What [`Document::remove`] found.
#[derive(Debug)]
pub(crate) enum Removal {
    Edits(Vec<Edit>),
    /// The container was ours: take it out where it stands.
    All,
}

/// One replacement.
#[derive(Debug)]
pub(crate) struct Edit {
    range: Range<usize>,
    text: String,
}

/// A new member (with a key) or element (without).
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) key: Option<&'static str>,
    pub(crate) value: New,
}

/// A value to be written.
#[derive(Debug, Clone)]
pub(crate) enum New {
    Object(Vec<(&'static str, New)>),
    Array(Vec<New>),
    String(String),
    Number(u32),
    True,
}

enum Layout<'a> {
    Lines { newline: &'static str, indent: String, unit: &'a str },
    Inline { gap: &'a str },
}

impl Layout<'_> {
    /// What stands before an item.
    fn gap(&self) -> String {
        match self {
            Self::Lines { newline, indent, .. } => format!("{newline}{indent}"),
            Self::Inline { gap } => (*gap).to_owned(),
        }
    }

    fn deeper(&self) -> Self {
        match self {
            Self::Lines { newline, indent, unit } => {
                Self::Lines { newline, indent: format!("{indent}{unit}"), unit }
            }
            Self::Inline { gap } => Self::Inline { gap },
        }
    }
}

impl Item {
    fn print(&self, layout: &Layout<'_>) -> String {
        match self.key {
            Some(key) => member(key, &self.value, layout),
            None => self.value.print(layout),
        }
    }
}

fn member(key: &str, value: &New, layout: &Layout<'_>) -> String {
    let colon = if matches!(layout, Layout::Inline { gap: "" }) { ":" } else { ": " };
    format!("{}{colon}{}", quote(key), value.print(layout))
}

impl New {
    fn print(&self, layout: &Layout<'_>) -> String {
        let inner = layout.deeper();
        let (open, close, items): (_, _, Vec<String>) = match self {
            Self::String(text) => return quote(text),
            Self::Number(number) => return number.to_string(),
            Self::True => return "true".to_owned(),
            Self::Array(elements) if elements.iter().all(|e| matches!(e, Self::String(_))) => {
                let words: Vec<_> = elements.iter().map(|e| e.print(layout)).collect();
                return format!("[{}]", words.join(", "));
            }
            Self::Array(elements) => ('[', ']', elements.iter().map(|e| e.print(&inner)).collect()),
            Self::Object(members) => {
                ('{', '}', members.iter().map(|(key, value)| member(key, value, &inner)).collect())
            }
        };
        match layout {
            Layout::Lines { .. } => {
                let items: Vec<_> = items.iter().map(|i| format!("{}{i}", inner.gap())).collect();
                format!("{open}{}{}{close}", items.join(","), layout.gap())
            }
            Layout::Inline { gap } => format!("{open}{}{close}", items.join(&format!(",{gap}"))),
        }
    }
}

fn quote(text: &str) -> String {
    Value::from(text).to_string()
}

const BYTE_ORDER_MARK: char = '\u{feff}';

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

/// The text with `//` and `/* */` comments turned into as many spaces; line ends
/// stay where they are.
pub(crate) fn blanked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (is_comment, piece) in pieces(text) {
        if is_comment {
            let blank = |b: u8| if b == b'\n' || b == b'\r' { char::from(b) } else { ' ' };
            out.extend(piece.bytes().map(blank));
        } else {
            out.push_str(piece);
        }
    }
    out
}

/// A text without comments, with each comma before a closing bracket turned into a
/// space.
fn without_trailing_commas(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let end = if c == '"' { string_end(rest) } else { c.len_utf8() };
        let (piece, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
        let closes = after.trim_start_matches(is_space).starts_with([']', '}']);
        // A comma without an item before it is a mistake, and stays one.
        let behind_item = !out.trim_end_matches(is_space).ends_with(['[', '{', ',']);
        out.push_str(if c == ',' && closes && behind_item { " " } else { piece });
        rest = after;
    }
    out
}

/// The text in order, cut into comments and everything else.
fn pieces(text: &str) -> Vec<(bool, &str)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let end = match c {
            '"' => string_end(rest),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => {
                rest.get(2..).and_then(|in_it| in_it.find("*/")).map_or(rest.len(), |at| at + 4)
            }
            c => c.len_utf8(),
        };
        let (piece, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
        found.push((c == '/' && end > 1, piece));
        rest = after;
    }
    found
}

/// Behind the closing quote of the string that starts the text.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Says what a text that looks like JSON has too much.
fn explain(json: &str, error: &serde_json::Error) -> JsonError {
    let line = error.line();
    let message = error.to_string();
    let rest = json
        .split('\n')
        .nth(line.saturating_sub(1))
        .and_then(|text| text.get(error.column().saturating_sub(1)..))
        .unwrap_or_default();
    if rest.starts_with("//") || rest.starts_with("/*") {
        JsonError::Comment { line }
    } else if message.starts_with("trailing comma") {
        JsonError::TrailingComma { line }
    } else {
        JsonError::Syntax { message }
    }
}

/// Finds values in a text that is known to be JSON.
struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) -> Option<u8> {
        while self.peek().is_some_and(|b| is_space(char::from(b))) {
            self.at += 1;
        }
        self.peek()
    }

    fn value(&mut self) -> Option<Node> {
        let first = self.skip_space()?;
        let start = self.at;
        let kind = match first {
            b'{' => Kind::Object(self.list(b'}', Self::member)?),
            b'[' => Kind::Array(self.list(b']', Self::value)?),
            b'"' => Kind::String(self.string()?),
            _ => {
                while self.peek().is_some_and(|b| !is_space(char::from(b)) && !b",]}".contains(&b))
                {
                    self.at += 1;
                }
                match first {
                    b't' => Kind::True,
                    b'f' => Kind::False,
                    _ => Kind::Other,
                }
            }
        };
        Some(Node { span: start..self.at, kind })
    }

    fn list<T>(&mut self, close: u8, item: fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut items = Vec::new();
        self.at += 1;
        if self.skip_space()? == close {
            self.at += 1;
            return Some(items);
        }
        loop {
            items.push(item(self)?);
            let next = self.skip_space()?;
            self.at += 1;
            if next == close {
                return Some(items);
            }
        }
    }

    fn member(&mut self) -> Option<Member> {
        self.skip_space()?;
        let start = self.at;
        let key = self.string()?;
        self.skip_space()?;
        self.at += 1;
        Some(Member { key, start, value: self.value()? })
    }

    fn string(&mut self) -> Option<String> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        serde_json::from_str(self.text.get(start..self.at)?).ok()
    }
}
