//! Finds the statements of a TOML text, so that an edit can change a single one.
//!
//! A statement is a table header, a key with its value, or any other line. Its byte range
//! includes the line end. An edit replaces ranges; every other byte stays.
//!
//! `toml_edit` 0.25.17 does not serve: it loses bytes that it did not have to change. It
//! writes `\r\n` as `\n`, drops a byte order mark, adds a missing last line end and turns
//! `a.b = 1, c = 2, a.d = 3` (a line each) into `a.b, a.d, c`. `toml_parser`, from which
//! `toml` itself is made, gives the ranges.

use std::ops::Range;

use toml::de::{DeTable, DeValue};
use toml_parser::Source;
use toml_parser::parser::{Event, EventKind, parse_document};

use super::SettingsError;
use super::text_edit::{TextEdit, apply_edits};

/// A valid TOML text and its statements, in order.
#[derive(Debug)]
pub(crate) struct TomlText<'a> {
    text: &'a str,
    statements: Vec<TomlStatement>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TomlStatement {
    /// With the line end and the comment on the same line.
    pub(crate) range: Range<usize>,
    pub(crate) kind: TomlStatementKind,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TomlStatementKind {
    /// `[path]`, or `[[path]]` where `list` is set.
    Header { path: Vec<String>, list: bool },
    /// `key = value`, with the value's range.
    Pair { key: Vec<String>, value: Range<usize> },
    /// A comment or an empty line.
    Other,
}

/// A table header and its keys. The first section has no header.
#[derive(Debug)]
pub(crate) struct TomlSection<'t> {
    pub(crate) path: &'t [String],
    pub(crate) list: bool,
    pub(crate) header: Option<&'t TomlStatement>,
    pub(crate) pairs: Vec<&'t TomlStatement>,
}

/// Parses a text as data, without its byte order mark. A text that is no TOML is an error.
pub(crate) fn parse_table(text: &str) -> Result<DeTable<'_>, SettingsError> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let parsed = DeTable::parse(text);
    parsed
        .map(toml::Spanned::into_inner)
        .map_err(|error| SettingsError::Toml(error.message().to_owned()))
}

const BYTE_ORDER_MARK: char = '\u{feff}';

impl<'a> TomlText<'a> {
    /// Reads a text; a text that is no TOML is an error.
    pub(crate) fn parse(text: &'a str) -> Result<Self, SettingsError> {
        parse_table(text)?;
        let start = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len_utf8() } else { 0 };
        let body = text.get(start..).unwrap_or_default();
        let tokens = Source::new(body).lex().into_vec();
        let mut scan = TomlScan { text: body, offset: start, ..TomlScan::default() };
        parse_document(&tokens, &mut |event: Event| scan.take(&event), &mut ());
        scan.end(body.len());
        Ok(Self { text, statements: scan.found })
    }

    /// The text of a range.
    pub(crate) fn slice(&self, range: &Range<usize>) -> &'a str {
        self.text.get(range.clone()).unwrap_or_default()
    }

    pub(crate) fn statements(&self) -> &[TomlStatement] {
        &self.statements
    }

    /// The keys by their table headers, in order. The first section has no header.
    pub(crate) fn sections(&self) -> Vec<TomlSection<'_>> {
        let first = TomlSection { path: &[], list: false, header: None, pairs: Vec::new() };
        let mut sections = vec![first];
        for statement in &self.statements {
            match &statement.kind {
                TomlStatementKind::Header { path, list } => {
                    let header = Some(statement);
                    sections.push(TomlSection { path, list: *list, header, pairs: Vec::new() });
                }
                TomlStatementKind::Pair { .. } => {
                    if let Some(section) = sections.last_mut() {
                        section.pairs.push(statement);
                    }
                }
                TomlStatementKind::Other => {}
            }
        }
        sections
    }

    /// The string value of this key in this section; `None` if it is missing or no string.
    pub(crate) fn string(&self, section: &TomlSection<'_>, name: &str) -> Option<String> {
        let pair = section.pairs.iter().find(|pair| pair.is_key(name))?;
        let table = DeTable::parse(self.slice(&pair.range)).ok()?.into_inner();
        match table.get(name)?.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            _ => None,
        }
    }

    /// The line end of this text.
    pub(crate) fn newline(&self) -> &'static str {
        if self.text.contains("\r\n") { "\r\n" } else { "\n" }
    }

    /// The text with these edits; an error if they overlap.
    pub(crate) fn apply(&self, edits: Vec<TextEdit>) -> Result<String, SettingsError> {
        apply_edits(self.text, edits).ok_or(SettingsError::UnsafeEdits)
    }
}

impl TomlStatement {
    /// The edit that removes the statement.
    pub(crate) fn removed(&self) -> TextEdit {
        TextEdit::remove(self.range.clone())
    }

    /// True if the statement sets this key, which is not dotted.
    pub(crate) fn is_key(&self, name: &str) -> bool {
        matches!(&self.kind, TomlStatementKind::Pair { key, .. } if key.as_slice() == [name])
    }
}

/// Cuts a text at the line ends outside of values.
#[derive(Debug, Default)]
struct TomlScan<'a> {
    text: &'a str,
    /// The number of bytes before `text`.
    offset: usize,
    found: Vec<TomlStatement>,
    start: usize,
    /// Open brackets of arrays and inline tables.
    depth: usize,
    header: Option<bool>,
    keys: Vec<String>,
    value: Option<usize>,
    value_end: usize,
}

impl TomlScan<'_> {
    /// Follows one event of the parser: collects the keys, the value and the brackets of the
    /// current statement, and ends it at a line end outside brackets.
    fn take(&mut self, event: &Event) {
        let span = event.span();
        match event.kind() {
            EventKind::StdTableOpen => self.header = Some(false),
            EventKind::ArrayTableOpen => self.header = Some(true),
            EventKind::SimpleKey if self.depth == 0 && self.value.is_none() => {
                self.keys
                    .extend(read_key(self.text.get(span.start()..span.end()).unwrap_or_default()));
            }
            EventKind::KeyValSep if self.depth == 0 => self.value = Some(span.end()),
            EventKind::ArrayOpen | EventKind::InlineTableOpen => self.depth += 1,
            EventKind::ArrayClose | EventKind::InlineTableClose => {
                self.depth = self.depth.saturating_sub(1);
                self.value_end = span.end();
            }
            EventKind::Scalar => self.value_end = span.end(),
            EventKind::Newline if self.depth == 0 => self.end(span.end()),
            _ => {}
        }
    }

    /// Ends the statement at `at`, which is behind its line end, and begins the next.
    fn end(&mut self, at: usize) {
        if at == self.start {
            return;
        }
        let keys = std::mem::take(&mut self.keys);
        let kind = match (self.header.take(), self.value.take()) {
            (Some(list), _) => TomlStatementKind::Header { path: keys, list },
            (None, Some(value)) => {
                let text = self.text.get(value..self.value_end).unwrap_or_default();
                let value = self.value_end - text.trim_start().len();
                let value = value + self.offset..self.value_end + self.offset;
                TomlStatementKind::Pair { key: keys, value }
            }
            (None, None) => TomlStatementKind::Other,
        };
        let range = self.start + self.offset..at + self.offset;
        self.found.push(TomlStatement { range, kind });
        self.start = at;
    }
}

/// A key without its quotes and escapes.
fn read_key(written: &str) -> Option<String> {
    let line = format!("{written} = 0");
    let table = DeTable::parse(&line).ok()?.into_inner();
    table.keys().next().map(|key| key.get_ref().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\u{feff}# top\r\na = [ # x\r\n 1,\r\n]\r\nb.\"c d\" = { e = \"[x]\" } # y\r\n\r\n[ t . u ] # z\r\nk = '''\r\n[no]\r\n'''\r\n[[l]]\r\n";

    #[test]
    fn every_byte_belongs_to_one_statement() {
        let text = TomlText::parse(TEXT).unwrap();
        let mut at = '\u{feff}'.len_utf8();
        for statement in text.statements() {
            assert_eq!(statement.range.start, at);
            at = statement.range.end;
        }
        assert_eq!(at, TEXT.len());
        assert_eq!(text.apply(Vec::new()).unwrap(), TEXT);
    }

    #[test]
    fn headers_and_keys_are_found_with_their_values() {
        let text = TomlText::parse(TEXT).unwrap();
        let shown: Vec<String> = text
            .statements()
            .iter()
            .map(|statement| match &statement.kind {
                TomlStatementKind::Header { path, list } => format!("{} {list}", path.join("/")),
                TomlStatementKind::Pair { key, value } => {
                    format!("{} = {}", key.join("/"), text.slice(value))
                }
                TomlStatementKind::Other => "-".to_owned(),
            })
            .collect();
        assert_eq!(
            shown,
            [
                "-",
                "a = [ # x\r\n 1,\r\n]",
                "b/c d = { e = \"[x]\" }",
                "-",
                "t/u false",
                "k = '''\r\n[no]\r\n'''",
                "l true",
            ]
        );
        assert_eq!(text.sections().len(), 3);
    }

    #[test]
    fn a_statement_goes_and_its_neighbours_stay() {
        let text = TomlText::parse(TEXT).unwrap();
        let gone: Vec<TextEdit> =
            text.statements().iter().skip(1).take(1).map(TomlStatement::removed).collect();
        assert_eq!(text.apply(gone).unwrap(), TEXT.replacen("a = [ # x\r\n 1,\r\n]\r\n", "", 1));
        assert!(TomlText::parse("a = ").is_err());
    }
}
