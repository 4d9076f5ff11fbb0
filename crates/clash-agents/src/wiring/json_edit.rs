//! Adds items to a JSON text and removes them. Every other byte stays as it is.
//!
//! A settings file belongs to the user, with its order, indentation and line ends. So this
//! module finds the byte range of every value and edits the text there. It never prints a
//! parsed document.
//!
//! A removal after an addition gives back the same bytes, without a record of the old text:
//!
//! - a new item goes behind the last one, as `,` + white space + item. Its removal also
//!   removes the comma before it;
//! - a new item in an empty container of the user gets a space behind the bracket
//!   (`{␠⏎  "a": 1⏎}`, two if the closing bracket had a line of its own). The space says that
//!   the container was there and stays. A container without it is clash's and goes too.
//!
//! No crate serves. `jsonc-parser` 0.34 was the candidate: it keeps comments and commas, but
//! for 11 of 21 texts its removal does not give back the bytes before its addition. For
//! example `{"a":1}` comes back as three lines, `{ }` as `{}`. It refuses a byte order mark
//! and accepts `{'a':1}` and `{"a":1 "b":2}`, which clients with strict JSON do not read.
//!
//! Limits: JSON of RFC 8259, with comments and trailing commas where the client accepts
//! them ([`JsonSyntax`]).

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

use super::SettingsError;
use super::json_items::JsonLayout;
pub(crate) use super::json_items::{NewItem, NewValue};
use super::text_edit::{TextEdit, apply_edits};

/// A JSON text and the places of its values.
#[derive(Debug)]
pub(crate) struct JsonDocument<'a> {
    text: &'a str,
    /// The same text with a space for every byte of a comment.
    plain: Cow<'a, str>,
    pub(crate) root: JsonNode,
}

/// One value and its place in the text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct JsonNode {
    span: Range<usize>,
    pub(crate) kind: JsonKind,
}

/// The kind of a value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum JsonKind {
    Object(Vec<JsonMember>),
    Array(Vec<JsonNode>),
    String(String),
    True,
    False,
    /// A number or `null`, which clash never reads.
    Other,
}

/// A key and its value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct JsonMember {
    pub(crate) key: String,
    start: usize,
    pub(crate) value: JsonNode,
}

/// The syntax that a client accepts.
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
    /// The client accepts only strict JSON and would ignore the whole file.
    #[error("comment in line {line}, which JSON does not have")]
    Comment { line: usize },
    #[error("comma before a closing bracket in line {line}, which JSON does not have")]
    TrailingComma { line: usize },
    #[error("not JSON: {message}")]
    Syntax { message: String },
}

/// The place of a key that its object has twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DuplicateKeyAt {
    pub(crate) offset: usize,
}

impl<'a> JsonDocument<'a> {
    /// Reads a text; one that is no JSON of this syntax is an error. A key may stand twice:
    /// [`JsonNode::get`] reports it.
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
        // From here on the text is known to be JSON, at most 128 levels deep.
        let mut scan = JsonScan { text: &plain, at: plain.len() - json.len() };
        let root =
            scan.value().ok_or_else(|| JsonError::Syntax { message: "unreadable text".into() })?;
        Ok(Self { text, plain, root })
    }

    /// The line of an offset, from one.
    pub(crate) fn line(&self, offset: usize) -> usize {
        self.text.bytes().take(offset).filter(|b| *b == b'\n').count() + 1
    }

    /// The text of a range, without comments.
    fn slice(&self, range: Range<usize>) -> &str {
        self.plain.get(range).unwrap_or_default()
    }

    /// A value as it is written, and the rest of the text behind it.
    pub(crate) fn written(&self, node: &JsonNode) -> (&'a str, &'a str) {
        let value = self.text.get(node.span.clone()).unwrap_or_default();
        (value, self.text.get(node.span.end..).unwrap_or_default())
    }

    /// Replaces a value, and so many bytes behind it.
    pub(crate) fn replace(&self, node: &JsonNode, behind: usize, text: String) -> TextEdit {
        TextEdit { range: node.span.start..node.span.end + behind, text }
    }

    /// The line end of this text.
    fn newline(&self) -> &'static str {
        if self.text.contains("\r\n") { "\r\n" } else { "\n" }
    }

    /// The white space at the start of the line of `offset`.
    fn indent_at(&self, offset: usize) -> &str {
        let line = self.slice(0..offset).rsplit('\n').next().unwrap_or_default();
        let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        line.strip_suffix(line.trim_start_matches(is_space)).unwrap_or_default()
    }

    /// The white space before the item at `offset`.
    fn space_before(&self, offset: usize) -> &str {
        let before = self.slice(0..offset);
        before.strip_prefix(before.trim_end_matches(is_space)).unwrap_or_default()
    }

    /// One step of indentation, by the first item of the root.
    fn indent_unit(&self) -> &str {
        let first = self.root.items().first().map(|item| item.start);
        let space = first.map(|start| self.space_before(start)).unwrap_or_default();
        match space.rsplit_once('\n') {
            Some((_, indent)) if !indent.is_empty() => indent,
            _ => "  ",
        }
    }

    /// True if the root has items and all of them stand on one line.
    fn is_one_line(&self) -> bool {
        !self.root.items().is_empty() && !self.slice(self.root.span.clone()).contains('\n')
    }

    /// Adds `items` behind the last one of `container`. In an empty container, a space
    /// behind the bracket marks that the container is the user's.
    pub(crate) fn append(&self, container: &JsonNode, items: &[NewItem]) -> Vec<TextEdit> {
        if let Some(last) = container.items().last() {
            let space = self.space_before(last.start);
            let layout = match space.rsplit_once('\n') {
                Some((_, indent)) => self.lines(indent),
                None => JsonLayout::Inline { gap: space },
            };
            let text = items.iter().map(|item| format!(",{}{}", layout.gap(), item.print(&layout)));
            return vec![TextEdit::insert(last.end, text.collect())];
        }
        let (inside, close) = container.inside();
        let outer = self.indent_at(container.span.start);
        let indent = format!("{outer}{}", self.indent_unit());
        let one_line = self.is_one_line();
        let layout = if one_line { JsonLayout::Inline { gap: "" } } else { self.lines(&indent) };
        let items: Vec<_> =
            items.iter().map(|item| format!("{}{}", layout.gap(), item.print(&layout))).collect();
        let has_lines = self.slice(inside..close).contains(['\n', '\r']);
        let mark = if has_lines && !one_line { "  " } else { " " };
        let mut edits = vec![TextEdit::insert(inside, format!("{mark}{}", items.join(",")))];
        if !one_line && !has_lines {
            edits.push(TextEdit::insert(close, format!("{}{outer}", self.newline())));
        }
        edits
    }

    /// A layout with one item on each line.
    fn lines<'l>(&'l self, indent: &'l str) -> JsonLayout<'l> {
        JsonLayout::Lines {
            newline: self.newline(),
            indent: indent.to_owned(),
            unit: self.indent_unit(),
        }
    }

    /// Removes the items at `gone` from `container`, or says that the whole container is
    /// clash's: all its items go, and it has no mark of [`Self::append`].
    pub(crate) fn remove(&self, container: &JsonNode, gone: &[usize]) -> ItemRemoval {
        let items = container.items();
        if gone.is_empty() {
            return ItemRemoval::Edits(Vec::new());
        }
        if gone.len() < items.len() {
            return ItemRemoval::Edits(self.remove_some(&items, gone));
        }
        let (inside, close) = container.inside();
        let Some(last) = items.last() else { return ItemRemoval::All };
        let Some(filled) = self.slice(inside..last.end).strip_prefix(' ') else {
            return ItemRemoval::All;
        };
        let mut edits = vec![TextEdit::remove(inside..last.end)];
        // Clash added a line end before the closing bracket.
        if filled.starts_with(self.newline())
            && let Some(at) = self.slice(last.end..close).find(self.newline())
        {
            edits.push(TextEdit::remove(last.end + at..close));
        }
        ItemRemoval::Edits(edits)
    }

    /// Removes items, each with the comma before it, while others stay.
    fn remove_some(&self, items: &[Range<usize>], gone: &[usize]) -> Vec<TextEdit> {
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
            edits.push(TextEdit::remove(range));
        }
        edits
    }

    /// Removes everything between the brackets of the root but comments. `None`: the text
    /// has no comment.
    pub(crate) fn emptied(&self) -> Option<TextEdit> {
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
        Some(TextEdit { range: inside..close, text: comments })
    }

    /// The text with these edits; an error if they overlap.
    pub(crate) fn apply(&self, edits: Vec<TextEdit>) -> Result<String, SettingsError> {
        apply_edits(self.text, edits).ok_or(SettingsError::UnsafeEdits)
    }
}

impl JsonNode {
    /// The offset of the value.
    pub(crate) fn offset(&self) -> usize {
        self.span.start
    }

    /// The value of `key`, or an error if the object has the key twice.
    pub(crate) fn get(&self, key: &str) -> Result<Option<&JsonNode>, DuplicateKeyAt> {
        let mut found = None;
        for member in self.members() {
            if member.key == key && found.replace(&member.value).is_some() {
                return Err(DuplicateKeyAt { offset: member.start });
            }
        }
        Ok(found)
    }

    /// The members of an object; none for other values.
    pub(crate) fn members(&self) -> &[JsonMember] {
        if let JsonKind::Object(members) = &self.kind { members } else { &[] }
    }

    /// The elements of an array; none for other values.
    pub(crate) fn elements(&self) -> &[JsonNode] {
        if let JsonKind::Array(elements) = &self.kind { elements } else { &[] }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        if let JsonKind::String(text) = &self.kind { Some(text) } else { None }
    }

    pub(crate) fn is_object(&self) -> bool {
        matches!(self.kind, JsonKind::Object(_))
    }

    pub(crate) fn is_array(&self) -> bool {
        matches!(self.kind, JsonKind::Array(_))
    }

    /// The offsets behind the opening bracket and before the closing one.
    fn inside(&self) -> (usize, usize) {
        (self.span.start + 1, self.span.end.saturating_sub(1))
    }

    /// The ranges of the members or elements.
    fn items(&self) -> Vec<Range<usize>> {
        match &self.kind {
            JsonKind::Object(members) => {
                members.iter().map(|m| m.start..m.value.span.end).collect()
            }
            JsonKind::Array(elements) => elements.iter().map(|e| e.span.clone()).collect(),
            _ => Vec::new(),
        }
    }
}

/// The result of [`JsonDocument::remove`].
#[derive(Debug)]
pub(crate) enum ItemRemoval {
    Edits(Vec<TextEdit>),
    /// The container is clash's: remove it from its own container.
    All,
}

const BYTE_ORDER_MARK: char = '\u{feff}';

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

/// The text with a space for every byte of `//` and `/* */` comments. Line ends stay.
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

/// A text without comments, with a space for each comma before a closing bracket.
fn without_trailing_commas(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let end = if c == '"' { string_end(rest) } else { c.len_utf8() };
        let (piece, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
        let closes = after.trim_start_matches(is_space).starts_with([']', '}']);
        // A comma without an item before it is an error and stays.
        let behind_item = !out.trim_end_matches(is_space).ends_with(['[', '{', ',']);
        out.push_str(if c == ',' && closes && behind_item { " " } else { piece });
        rest = after;
    }
    out
}

/// The text in pieces: each comment, each string and each other character, and true for
/// comments.
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

/// The offset behind the closing quote of the string at the start of the text.
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

/// The error for a text that is no JSON; comments and trailing commas have errors of their
/// own.
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

/// Finds the values of a text that is known to be JSON; comments and trailing commas were
/// blanked before.
struct JsonScan<'a> {
    text: &'a str,
    at: usize,
}

impl JsonScan<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Skips white space and gives the next byte.
    fn skip_space(&mut self) -> Option<u8> {
        while self.peek().is_some_and(|b| is_space(char::from(b))) {
            self.at += 1;
        }
        self.peek()
    }

    /// Reads one value. Takes any other word for a literal without looking at its letters:
    /// serde has parsed the text before.
    fn value(&mut self) -> Option<JsonNode> {
        let first = self.skip_space()?;
        let start = self.at;
        let kind = match first {
            b'{' => JsonKind::Object(self.list(b'}', Self::member)?),
            b'[' => JsonKind::Array(self.list(b']', Self::value)?),
            b'"' => JsonKind::String(self.string()?),
            _ => {
                while self.peek().is_some_and(|b| !is_space(char::from(b)) && !b",]}".contains(&b))
                {
                    self.at += 1;
                }
                match first {
                    b't' => JsonKind::True,
                    b'f' => JsonKind::False,
                    _ => JsonKind::Other,
                }
            }
        };
        Some(JsonNode { span: start..self.at, kind })
    }

    /// Reads items up to the closing bracket.
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

    /// Reads a key and its value.
    fn member(&mut self) -> Option<JsonMember> {
        self.skip_space()?;
        let start = self.at;
        let key = self.string()?;
        self.skip_space()?;
        self.at += 1;
        Some(JsonMember { key, start, value: self.value()? })
    }

    /// Reads a string without its quotes and escapes.
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
