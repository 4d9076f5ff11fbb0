//! Changes to a text in place. A new item in brackets is written like the items around
//! it.

use crate::layout::{INDENT_COLUMNS, MAX_LINE_COLUMNS};
use crate::lex::{ByteSpan, TokenKind};
use crate::tree::{BracketRange, SyntaxTree};

/// Replacements of ranges of one source, none overlapping another.
#[derive(Debug, Default)]
pub(crate) struct TextSplices(Vec<(ByteSpan, String)>);

impl TextSplices {
    pub(crate) fn replace(&mut self, span: ByteSpan, text: impl Into<String>) {
        self.0.push((span, text.into()));
    }

    pub(crate) fn insert(&mut self, at: usize, text: impl Into<String>) {
        self.replace(ByteSpan::new(at, at), text);
    }

    /// Like `insert`, but before other insertions at the same offset.
    pub(crate) fn insert_first(&mut self, at: usize, text: impl Into<String>) {
        self.0.insert(0, (ByteSpan::new(at, at), text.into()));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The source with all replacements.
    pub(crate) fn apply(mut self, source: &str) -> String {
        self.0.sort_by_key(|(span, _)| *span);
        let mut out = String::with_capacity(source.len() + 64);
        let mut end = 0;
        for (span, text) in &self.0 {
            out.push_str(ByteSpan::new(end, span.start.max(end)).text_in(source));
            out.push_str(text);
            end = span.end.max(end);
        }
        out.push_str(source.get(end..).unwrap_or_default());
        out
    }
}

/// The items in a pair of brackets, by place.
pub(crate) struct BracketItems {
    pub(crate) brackets: BracketRange,
    pub(crate) spans: Vec<ByteSpan>,
}

impl BracketItems {
    /// The end of the last item, or the start of the brackets.
    pub(crate) fn last_end(&self) -> usize {
        self.spans.last().map_or(self.brackets.inner.start, |span| span.end)
    }
}

/// The lines of a file, and the comments and commas around an offset.
pub(crate) struct SourceLines<'a> {
    pub(crate) file: &'a SyntaxTree,
}

impl SourceLines<'_> {
    fn text(&self, from: usize, to: usize) -> &str {
        ByteSpan::new(from, to).text_in(self.file.source())
    }

    pub(crate) fn line_start(&self, at: usize) -> usize {
        self.text(0, at).rfind('\n').map_or(0, |newline| newline + 1)
    }

    /// The end of the line of `at`, without its line end.
    pub(crate) fn line_end(&self, at: usize) -> usize {
        let rest = self.file.source().get(at..).unwrap_or_default();
        let line = rest.split('\n').next().unwrap_or_default();
        at + line.strip_suffix('\r').unwrap_or(line).len()
    }

    /// The start of the line after the one of `at`.
    pub(crate) fn next_line(&self, at: usize) -> usize {
        let rest = self.file.source().get(at..).unwrap_or_default();
        rest.find('\n').map_or(self.file.source().len(), |newline| at + newline + 1)
    }

    /// The spaces at the start of the line of `at`.
    pub(crate) fn indent(&self, at: usize) -> &str {
        let start = self.line_start(at);
        let line = self.text(start, self.line_end(at));
        let spaces = line.len() - line.trim_start_matches([' ', '\t']).len();
        self.text(start, start + spaces)
    }

    /// True if only spaces stand before `at` on its line.
    pub(crate) fn begins_line(&self, at: usize) -> bool {
        self.text(self.line_start(at), at).trim().is_empty()
    }

    /// The start of the first line of the comments right above the line of `at`.
    pub(crate) fn comments_above(&self, at: usize) -> usize {
        let mut start = self.line_start(at);
        while start > 0 {
            let above = self.line_start(start - 1);
            let first = above + self.indent(above).len();
            if !self.is_comment(first) {
                break;
            }
            start = above;
        }
        start
    }

    /// True if a comment begins at this offset.
    fn is_comment(&self, at: usize) -> bool {
        let tokens = self.file.tokens();
        let next = tokens.partition_point(|token| token.span.start < at);
        let token =
            tokens.get(next..).unwrap_or_default().iter().find(|t| t.span.start < t.span.end);
        token.is_some_and(|t| t.kind == TokenKind::Comment && t.span.start == at)
    }

    /// After the comment that ends the line of `at`, if one does; `at` otherwise.
    fn after_comment(&self, at: usize) -> usize {
        let spaces = self.text(at, self.line_end(at));
        let comment = at + spaces.len() - spaces.trim_start_matches([' ', '\t']).len();
        if self.is_comment(comment) { self.line_end(at) } else { at }
    }

    /// True if only spaces follow on the line.
    fn at_line_end(&self, at: usize) -> bool {
        self.text(at, self.line_end(at)).trim().is_empty()
    }

    /// True if the items of the brackets are spread over lines.
    pub(crate) fn is_spread(&self, items: &BracketItems) -> bool {
        let mut end = items.brackets.inner.start;
        for span in &items.spans {
            if self.text(end, span.start).contains('\n') {
                return true;
            }
            end = span.end;
        }
        self.text(end, items.brackets.inner.end).contains('\n')
    }

    /// True if the range holds a comment.
    pub(crate) fn has_comments(&self, within: ByteSpan) -> bool {
        let tokens = self.file.tokens();
        let first = tokens.partition_point(|token| token.span.start < within.start);
        let inside = tokens.get(first..).unwrap_or_default();
        let mut inside = inside.iter().take_while(|token| token.span.start < within.end);
        inside.any(|token| token.kind == TokenKind::Comment)
    }

    /// After the comma that follows an item, or after the item.
    fn after_comma(&self, span: ByteSpan, limit: usize) -> usize {
        let tokens = self.file.tokens();
        let first = tokens.partition_point(|token| token.span.start < span.end);
        let mut rest = tokens.get(first..).unwrap_or_default().iter();
        let next = rest.find(|token| !token.kind.is_trivia());
        match next {
            Some(t) if t.span.start < limit && self.file.text(t.span) == "," => t.span.end,
            _ => span.end,
        }
    }

    /// Puts an item into brackets, before the item numbered `at` or at the end.
    pub(crate) fn put(&self, items: &BracketItems, at: usize, text: &str, out: &mut TextSplices) {
        if self.is_spread(items) {
            self.put_on_line(items, at, text, out);
        } else {
            self.put_inline(items, at, text, out);
        }
    }

    /// Puts an item on the line of the brackets. If the line becomes too long, each item
    /// gets a line.
    fn put_inline(&self, items: &BracketItems, at: usize, text: &str, out: &mut TextSplices) {
        let inner = items.brackets.inner;
        let width = |text: &str| text.chars().count();
        let line = self.text(self.line_start(inner.start), self.line_end(inner.start));
        let breakable = !self.text(inner.start, inner.end).contains('\n');
        if breakable && width(line) + width(text) + 2 > MAX_LINE_COLUMNS {
            let indent = self.indent(inner.start);
            let mut texts: Vec<&str> = items.spans.iter().map(|s| self.file.text(*s)).collect();
            texts.insert(at.min(texts.len()), text);
            let step = " ".repeat(INDENT_COLUMNS);
            let lines: String = texts.iter().map(|t| format!("\n{indent}{step}{t},")).collect();
            out.replace(inner, format!("{lines}\n{indent}"));
            return;
        }
        match (items.spans.get(at), items.spans.last()) {
            (Some(next), _) => out.insert(next.start, format!("{text}, ")),
            (None, Some(last)) => out.insert(last.end, format!(", {text}")),
            (None, None) => out.insert(inner.start, text),
        }
    }

    /// Puts an item on a line of its own, indented like the others, with the commas that
    /// are missing.
    fn put_on_line(&self, items: &BracketItems, at: usize, text: &str, out: &mut TextSplices) {
        let inner = items.brackets.inner;
        let own_line = items.spans.iter().find(|span| self.begins_line(span.start));
        let step = " ".repeat(INDENT_COLUMNS);
        let indent = match own_line {
            Some(span) => self.indent(span.start).to_owned(),
            None => format!("{}{step}", self.indent(inner.start)),
        };
        if let Some(next) = items.spans.get(at) {
            match self.begins_line(next.start) {
                true => {
                    let line = self.comments_above(next.start).max(self.next_line(inner.start));
                    out.insert(line, format!("{indent}{text},\n"));
                }
                false => out.insert(next.start, format!("{text}, ")),
            }
            return;
        }
        let Some(last) = items.spans.last() else {
            out.insert(self.line_start(inner.end), format!("{indent}{text},\n"));
            return;
        };
        let comma = self.after_comma(*last, inner.end);
        let end = self.after_comment(comma);
        let missing = if items.brackets.trailing_comma { "" } else { "," };
        if !self.at_line_end(end) {
            let again = if items.brackets.trailing_comma { "," } else { "" };
            out.insert(comma, format!("{missing}\n{indent}{text}{again}"));
        } else if comma == end {
            out.insert(end, format!("{missing}\n{indent}{text},"));
        } else {
            out.insert(comma, missing);
            out.insert(end, format!("\n{indent}{text},"));
        }
    }

    /// Takes an item out of its brackets, with its comma and the comments that are its own.
    pub(crate) fn take(&self, items: &BracketItems, at: usize, out: &mut TextSplices) {
        let inner = items.brackets.inner;
        let Some(span) = items.spans.get(at).copied() else { return };
        let comma = self.after_comma(span, inner.end);
        let end = self.after_comment(comma);
        if self.begins_line(span.start) && self.at_line_end(end) && self.line_end(end) < inner.end {
            let first = self.comments_above(span.start).max(self.next_line(inner.start));
            let from = first.min(self.line_start(span.start));
            let to = self.next_line(end);
            out.replace(ByteSpan::new(self.without_blank(from, to, inner.end), to), "");
            return;
        }
        let before = at.checked_sub(1).and_then(|before| items.spans.get(before));
        match before {
            Some(before) if at + 1 == items.spans.len() => {
                let gap = ByteSpan::new(before.end, span.start);
                let from = if self.has_comments(gap) { span.start } else { before.end };
                let to = if from == span.start { comma } else { span.end };
                out.replace(ByteSpan::new(from, to), "");
            }
            _ => {
                let rest = self.text(comma, self.line_end(comma));
                let spaces = rest.len() - rest.trim_start_matches([' ', '\t']).len();
                out.replace(ByteSpan::new(span.start, comma + spaces), "");
            }
        }
    }

    /// The start of a range to remove: one empty line earlier if two empty lines would
    /// meet, or if one would end up right before the closing bracket.
    fn without_blank(&self, from: usize, to: usize, close: usize) -> usize {
        let above = self.line_start(from.saturating_sub(1));
        let blank = |start: usize| self.text(start, self.line_end(start)).trim().is_empty();
        let follows = blank(to) || self.line_start(close) == to;
        if from > 0 && blank(above) && follows { above } else { from }
    }
}
