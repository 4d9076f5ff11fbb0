//! From source text to tokens. Spaces, comments and line ends are tokens too, so the
//! texts of all tokens in order are the source.
//!
//! The lexer is more lenient than the evaluator in one point: it takes tabs as spaces,
//! so that the formatter can repair them.

use crate::error::{ParseError, UnlocatedError};
use crate::string::QuoteStyle;

/// A range of bytes of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSpan {
    pub start: usize,
    pub end: usize,
}

impl ByteSpan {
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    pub fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// The text of this range; empty if it is not a range of the source.
    pub fn text_in(self, source: &str) -> &str {
        source.get(self.start..self.end).unwrap_or_default()
    }
}

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Spaces, tabs, and a backslash with the line end it hides.
    Space,
    /// From `#` to before the end of the line.
    Comment,
    /// The end of a line that ends nothing: blank, only a comment, or in brackets.
    Break,
    /// The end of a statement's line; empty where the file ends without one.
    Newline,
    /// A block begins (empty).
    Indent,
    /// A block ends (empty).
    Dedent,
    Name,
    Keyword,
    Number,
    String,
    /// Brackets, operators, commas.
    Mark,
    End,
}

impl TokenKind {
    /// True for tokens that the grammar skips.
    pub fn is_trivia(self) -> bool {
        matches!(self, Self::Space | Self::Comment | Self::Break)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceToken {
    pub kind: TokenKind,
    pub span: ByteSpan,
}

const KEYWORDS: &[&str] = &[
    "and", "break", "continue", "def", "elif", "else", "for", "if", "in", "lambda", "not", "or",
    "pass", "return",
];

const RESERVED_WORDS: &[&str] = &[
    "as", "assert", "async", "await", "class", "del", "except", "finally", "from", "global",
    "import", "is", "nonlocal", "raise", "try", "while", "with", "yield",
];

/// Longest first: the lexer takes the first mark that fits.
const MARKS: &[&str] = &[
    "<<=", ">>=", "//=", "**", "==", "!=", "<=", ">=", "<<", ">>", "//", "+=", "-=", "*=", "/=",
    "%=", "&=", "|=", "^=", "+", "-", "*", "/", "%", "&", "|", "^", "~", "<", ">", "=", "(", ")",
    "[", "]", "{", "}", ",", ":", ";", ".",
];

/// The tokens of a source. The last one is [`TokenKind::End`].
pub(crate) fn lex(source: &str) -> Result<Vec<SourceToken>, UnlocatedError> {
    let mut lexer = SourceLexer {
        source,
        at: 0,
        tokens: Vec::with_capacity(source.len() / 4),
        indents: Vec::new(),
        brackets: 0,
        line_start: true,
    };
    while lexer.at < source.len() {
        lexer.next()?;
    }
    lexer.finish();
    Ok(lexer.tokens)
}

struct SourceLexer<'a> {
    source: &'a str,
    at: usize,
    tokens: Vec<SourceToken>,
    indents: Vec<usize>,
    brackets: usize,
    /// True before the first token of a statement.
    line_start: bool,
}

impl SourceLexer<'_> {
    fn rest(&self) -> &str {
        self.source.get(self.at..).unwrap_or_default()
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.source.as_bytes().get(self.at + ahead).copied()
    }

    /// Adds a token of this length at the current position, and moves behind it.
    fn push(&mut self, kind: TokenKind, length: usize) {
        let span = ByteSpan::new(self.at, self.at + length);
        self.at = span.end;
        self.tokens.push(SourceToken { kind, span });
    }

    fn fault<T>(&self, at: usize, problem: ParseError) -> Result<T, UnlocatedError> {
        Err(UnlocatedError { at, problem })
    }

    /// The number of bytes from here on that satisfy `test`.
    fn run(&self, from: usize, test: impl Fn(u8) -> bool) -> usize {
        let bytes = self.source.as_bytes().get(self.at + from..).unwrap_or_default();
        bytes.iter().take_while(|&&b| test(b)).count()
    }

    /// Length of a line end here, zero if there is none.
    fn line_end(&self, ahead: usize) -> usize {
        match (self.byte(ahead), self.byte(ahead + 1)) {
            (Some(b'\n'), _) => 1,
            (Some(b'\r'), Some(b'\n')) => 2,
            _ => 0,
        }
    }

    /// Adds the next token, and indents before it if it begins a line.
    fn next(&mut self) -> Result<(), UnlocatedError> {
        let spaces = self.run(0, |b| b == b' ' || b == b'\t');
        if spaces > 0 {
            self.push(TokenKind::Space, spaces);
            return Ok(());
        }
        if self.byte(0) == Some(b'\\') && self.line_end(1) > 0 {
            self.push(TokenKind::Space, 1 + self.line_end(1));
            return Ok(());
        }
        if self.byte(0) == Some(b'#') {
            let mut length = self.run(0, |b| b != b'\n');
            if self.byte(length).is_some() && self.byte(length - 1) == Some(b'\r') {
                length -= 1;
            }
            self.push(TokenKind::Comment, length);
            return Ok(());
        }
        let line_end = self.line_end(0);
        if line_end > 0 {
            let ends_nothing = self.line_start || self.brackets > 0;
            let kind = if ends_nothing { TokenKind::Break } else { TokenKind::Newline };
            self.line_start |= self.brackets == 0;
            self.push(kind, line_end);
            return Ok(());
        }
        if self.line_start {
            self.indent()?;
            self.line_start = false;
        }
        self.significant()
    }

    /// Compares this line's indentation with the open blocks, and adds tokens for blocks
    /// that begin and end here. A tab counts as eight columns.
    fn indent(&mut self) -> Result<(), UnlocatedError> {
        // The spaces at the start of the line, without those after a hidden line end.
        let spaces = self.tokens.iter().rev().take_while(|token| token.kind == TokenKind::Space);
        let spaces = spaces.last().map_or("", |token| token.span.text_in(self.source));
        let spaces = spaces.split('\\').next().unwrap_or_default();
        let width = spaces.bytes().map(|b| if b == b'\t' { 8 } else { 1 }).sum::<usize>();
        let open = |lexer: &Self| lexer.indents.last().copied().unwrap_or(0);
        if width > open(self) {
            self.indents.push(width);
            self.push(TokenKind::Indent, 0);
        }
        while width < open(self) {
            self.indents.pop();
            self.push(TokenKind::Dedent, 0);
        }
        if width == open(self) { Ok(()) } else { self.fault(self.at, ParseError::Indentation) }
    }

    /// Adds a string, number, name, keyword or mark. Reserved words of Python are errors.
    fn significant(&mut self) -> Result<(), UnlocatedError> {
        if let Some(length) = self.string()? {
            self.push(TokenKind::String, length);
            return Ok(());
        }
        let first = self.rest().chars().next().unwrap_or_default();
        let starts_number = first.is_ascii_digit()
            || first == '.' && self.byte(1).is_some_and(|b| b.is_ascii_digit());
        if starts_number {
            let length = self.number();
            let text = self.rest().get(..length).unwrap_or_default().to_owned();
            if !is_number(&text) {
                return self.fault(self.at, ParseError::Number(text));
            }
            self.push(TokenKind::Number, length);
            return Ok(());
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let length = self.run(0, |b| b.is_ascii_alphanumeric() || b == b'_');
            let text = self.rest().get(..length).unwrap_or_default();
            if RESERVED_WORDS.contains(&text) {
                return self.fault(self.at, ParseError::Reserved(text.to_owned()));
            }
            let keyword = KEYWORDS.contains(&text);
            self.push(if keyword { TokenKind::Keyword } else { TokenKind::Name }, length);
            return Ok(());
        }
        let Some(mark) = MARKS.iter().find(|mark| self.rest().starts_with(**mark)) else {
            return self.fault(self.at, ParseError::Character(first));
        };
        match *mark {
            "(" | "[" | "{" => self.brackets += 1,
            ")" | "]" | "}" => self.brackets = self.brackets.saturating_sub(1),
            _ => {}
        }
        self.push(TokenKind::Mark, mark.len());
        Ok(())
    }

    /// The length of the text that may be a number.
    fn number(&self) -> usize {
        let word = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'_';
        let mut length = self.run(0, word);
        let hex = self.rest().get(..2).is_some_and(|p| p.eq_ignore_ascii_case("0x"));
        let ends_in_e = |length: usize| matches!(self.byte(length - 1), Some(b'e' | b'E'));
        if !hex && ends_in_e(length) && matches!(self.byte(length), Some(b'+' | b'-')) {
            length += 1 + self.run(length + 1, |b| b.is_ascii_digit());
        }
        length
    }

    /// The length of the string literal that starts here, if one does.
    fn string(&self) -> Result<Option<usize>, UnlocatedError> {
        let Some(open) = QuoteStyle::at(self.source, self.at) else { return Ok(None) };
        let unfinished = UnlocatedError { at: self.at, problem: ParseError::UnfinishedString };
        let mut at = self.at + open.opening;
        // A format string can hold expressions with further strings. A stack instead of
        // recursion keeps hostile nesting cheap.
        let mut stack = vec![LiteralScope::Text(open)];
        while let Some(scope) = stack.last().copied() {
            let Some(byte) = self.source.as_bytes().get(at).copied() else {
                return Err(unfinished);
            };
            match scope {
                LiteralScope::Text(quote) => {
                    if quote.closes(self.source, at) {
                        at += quote.length();
                        stack.pop();
                    } else if byte == b'\\' {
                        at +=
                            if self.source.as_bytes().get(at + 1) == Some(&b'\r') { 3 } else { 2 };
                    } else if byte == b'\n' && !quote.triple {
                        return Err(unfinished);
                    } else if quote.format && byte == b'{' {
                        let escaped = self.source.as_bytes().get(at + 1) == Some(&b'{');
                        at += if escaped { 2 } else { 1 };
                        if !escaped {
                            stack.push(LiteralScope::Expression);
                        }
                    } else {
                        at += 1;
                    }
                }
                LiteralScope::Expression => match byte {
                    b'{' => {
                        stack.push(LiteralScope::Expression);
                        at += 1;
                    }
                    b'}' => {
                        stack.pop();
                        at += 1;
                    }
                    b'#' => return self.fault(at, ParseError::Character('#')),
                    _ => match QuoteStyle::at(self.source, at) {
                        Some(quote) => {
                            at += quote.opening;
                            stack.push(LiteralScope::Text(quote));
                        }
                        None => at += self.run(at - self.at, |b| b.is_ascii_alphanumeric()).max(1),
                    },
                },
            }
        }
        Ok(Some(at - self.at))
    }

    /// Ends the last line and all open blocks.
    fn finish(&mut self) {
        if !self.line_start {
            self.push(TokenKind::Newline, 0);
        }
        for _ in 0..self.indents.len() {
            self.push(TokenKind::Dedent, 0);
        }
        self.push(TokenKind::End, 0);
    }
}

/// A part of a string literal: text, or an expression in a format string.
#[derive(Clone, Copy)]
enum LiteralScope {
    Text(QuoteStyle),
    Expression,
}

/// True for a number as Starlark writes it. `007` is none.
fn is_number(text: &str) -> bool {
    let digits = |text: &str, radix| !text.is_empty() && text.chars().all(|c| c.is_digit(radix));
    let lower = text.to_ascii_lowercase();
    match lower.get(..2) {
        Some("0x") => return digits(lower.get(2..).unwrap_or_default(), 16),
        Some("0o") => return digits(lower.get(2..).unwrap_or_default(), 8),
        Some("0b") => return digits(lower.get(2..).unwrap_or_default(), 2),
        _ => {}
    }
    if digits(&lower, 10) {
        return lower == "0" || !lower.starts_with('0');
    }
    let plain = lower.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'+' | b'-'));
    plain && lower.parse::<f64>().is_ok()
}
