//! Masks settings files in which a line has a name and a value: INI, properties, and the
//! parts of YAML and TOML that package managers write.

use std::ops::Range;

use super::MaskSyntax;
use super::canvas::MaskCanvas;
use super::names::{is_harmless_value, is_secret_name};

/// Hides the value of each setting with a secret name, in comments too.
pub(super) fn mask_lines(canvas: &mut MaskCanvas<'_>, syntax: MaskSyntax) {
    let mut reader = LineReader { canvas, syntax, section: false, open: OpenValue::None };
    let mut at = 0;
    for line in reader.canvas.text().split_inclusive(|b| *b == b'\n') {
        let end = at + line.trim_ascii_end().len();
        reader.line(at..end);
        at += line.len();
    }
}

/// A secret value that goes on in the next line.
enum OpenValue {
    None,
    /// In all lines with more than these spaces. `named` lines have names of their own,
    /// which stay.
    Indented {
        spaces: usize,
        named: bool,
    },
    /// In the next line, because this one ends with a backslash.
    Continued,
    /// Up to this quote.
    Quoted(&'static [u8]),
    /// Up to the bracket that closes so many.
    Bracketed(usize),
}

struct LineReader<'a, 'b> {
    canvas: &'a mut MaskCanvas<'b>,
    syntax: MaskSyntax,
    /// True below a heading with a secret name.
    section: bool,
    open: OpenValue,
}

impl LineReader<'_, '_> {
    fn is_yaml(&self) -> bool {
        matches!(self.syntax, MaskSyntax::Yaml | MaskSyntax::BundlerYaml)
    }

    /// True if quotes and brackets have a meaning.
    fn is_structured(&self) -> bool {
        self.is_yaml() || self.syntax == MaskSyntax::Toml
    }

    fn line(&mut self, line: Range<usize>) {
        let start = line.start + self.spaces_at(line.start, line.end);
        match std::mem::replace(&mut self.open, OpenValue::None) {
            OpenValue::Continued => return self.hide_plain(start..line.end, 0),
            OpenValue::Quoted(quote) => {
                let close = self.find_close(start..line.end, quote);
                self.canvas.hide(start..close.unwrap_or(line.end));
                match close {
                    None => self.open = OpenValue::Quoted(quote),
                    Some(close) => self.pairs(close + quote.len()..line.end, line.start),
                }
                return;
            }
            OpenValue::Bracketed(depth) => return self.bracketed(start..line.end, depth),
            // The items of a list in YAML may stand below the first letter of its name.
            OpenValue::Indented { spaces, named }
                if start == line.end
                    || start - line.start > spaces
                    || self.is_yaml()
                        && start - line.start == spaces
                        && self.canvas.slice(start..line.end).starts_with(b"- ") =>
            {
                self.open = OpenValue::Indented { spaces, named };
                return self.indented(start..line.end, named);
            }
            OpenValue::Indented { .. } | OpenValue::None => {}
        }
        let marks = |b: &u8| b.is_ascii_whitespace() || b"#;!".contains(b);
        let text = self.canvas.slice(start..line.end);
        let body = start + text.iter().take_while(|b| marks(b)).count();
        let heads = matches!(self.syntax, MaskSyntax::Ini | MaskSyntax::Toml);
        if heads && self.canvas.slice(body..line.end).starts_with(b"[") {
            self.section = is_secret_name(self.canvas.slice(body..line.end));
            return;
        }
        self.pairs(body..line.end, line.start);
    }

    /// One more line of a secret value.
    fn indented(&mut self, text: Range<usize>, named: bool) {
        let bytes = self.canvas.slice(text.clone());
        let dash = bytes.iter().take_while(|b| b"- ".contains(b)).count();
        let name_ends = bytes.windows(2).position(|pair| pair == b": ");
        let only_name = bytes.ends_with(b":");
        let is_name = |b: &u8| b.is_ascii_alphanumeric() || b"_-.\"'/:@".contains(b);
        match name_ends {
            _ if named && only_name && bytes.iter().skip(dash).all(is_name) => {}
            Some(at) if named && bytes.iter().take(at).skip(dash).all(is_name) => {
                self.value(text.start + at + 1..text.end, 0, false);
                self.open = OpenValue::Indented { spaces: 0, named };
            }
            _ => self.canvas.hide(text.start + dash..text.end),
        }
    }

    /// Hides the values of the secret names in a line. The first one may reach to the end of
    /// the line; one inside another value ends at a space.
    fn pairs(&mut self, body: Range<usize>, line: usize) {
        let spaces = self.spaces_at(line, body.end);
        let mut assigned = false;
        let mut at = body.start;
        while at < body.end {
            let byte = self.canvas.slice(at..at + 1).first().copied().unwrap_or_default();
            let next = self.canvas.slice(at + 1..body.end).first();
            let separates = match byte {
                b'=' => true,
                b':' if self.is_yaml() => next.is_none_or(u8::is_ascii_whitespace),
                b':' => self.syntax != MaskSyntax::Toml,
                b' ' | b'\t' => self.syntax == MaskSyntax::Properties && !assigned,
                _ => false,
            };
            if !separates {
                at += 1;
                continue;
            }
            let is_secret = self.section && !assigned
                || self.is_secret(body.start..at)
                || !assigned && self.is_address_of_bundler(body.start..at);
            if is_secret {
                let Some(end) = self.value(at + 1..body.end, spaces, assigned) else { return };
                at = end.max(at + 1);
            } else {
                at += 1;
            }
            // The separators of npm's addresses, `//host/:_auth=`, are no assignments.
            assigned |= byte == b'=' || byte == b':' && self.is_yaml();
        }
    }

    /// True if the name at the end of `before` is that of a secret.
    fn is_secret(&self, before: Range<usize>) -> bool {
        let text = self.canvas.slice(before).trim_ascii_end();
        let text = text.strip_suffix(b"[]").unwrap_or(text);
        let text = text.trim_ascii_end();
        let text = text.strip_suffix(b"\"").or(text.strip_suffix(b"'")).unwrap_or(text);
        let is_part = |b: &u8| b.is_ascii_alphanumeric() || b"_-.".contains(b) || !b.is_ascii();
        let start = text.iter().rposition(|b| !is_part(b)).map_or(0, |at| at + 1);
        let name = text.get(start..).unwrap_or_default();
        is_secret_name(name) || self.syntax == MaskSyntax::BundlerYaml && names_a_host(name)
    }

    /// True if a name of Bundler is an address, for example `BUNDLE_HTTPS://GEMS__CORP__COM/`:
    /// its value is a user with a password.
    fn is_address_of_bundler(&self, name: Range<usize>) -> bool {
        let name = self.canvas.slice(name).trim_ascii();
        self.syntax == MaskSyntax::BundlerYaml
            && name.windows(3).any(|part| part == b"://")
            && !name.trim_ascii_start().starts_with(b"BUNDLE_MIRROR__")
    }

    /// Hides a value, which begins in `text`. Returns the place behind it, or `None` if
    /// nothing else can be in this line. An `inner` value ends at a space.
    fn value(&mut self, text: Range<usize>, spaces: usize, inner: bool) -> Option<usize> {
        let start = text.start + self.spaces_at(text.start, text.end);
        let bytes = self.canvas.slice(start..text.end);
        let first = bytes.first().copied();
        match first {
            None => {
                self.open = OpenValue::Indented { spaces, named: true };
                return None;
            }
            Some(b'|' | b'>') if self.is_yaml() => {
                self.open = OpenValue::Indented { spaces, named: false };
                return None;
            }
            Some(b'[' | b'{') if self.is_structured() => {
                self.bracketed(start..text.end, 0);
                return None;
            }
            Some(b'"' | b'\'') if self.is_structured() => {
                return self.quoted(start..text.end);
            }
            _ => {}
        }
        if self.syntax == MaskSyntax::Toml {
            // Without quotes there are only numbers, dates and switches.
            return Some(start);
        }
        if inner {
            let quote = first.filter(|b| b"\"'".contains(b));
            let start = start + usize::from(quote.is_some());
            let bytes = self.canvas.slice(start..text.end);
            let is_end = |b: &u8| match quote {
                Some(quote) => *b == quote,
                None => b.is_ascii_whitespace() || b"\"'&,;}]".contains(b),
            };
            let end = start + bytes.iter().position(is_end).unwrap_or(bytes.len());
            if !is_harmless_value(self.canvas.slice(start..end)) {
                self.canvas.hide(start..end);
            }
            return Some(end);
        }
        self.hide_plain(start..text.end, spaces);
        None
    }

    /// Hides a value without quotes, to the end of its line.
    fn hide_plain(&mut self, text: Range<usize>, spaces: usize) {
        let bytes = self.canvas.slice(text.clone());
        let bare = |bytes: &[u8]| {
            let comment = bytes.windows(2).position(|pair| pair == b" #");
            is_harmless_value(bytes.get(..comment.unwrap_or(bytes.len())).unwrap_or_default())
        };
        if bare(bytes) {
            return;
        }
        let quote = bytes.first().filter(|b| b"\"'".contains(b));
        let is_quoted = bytes.len() > 1 && quote.is_some() && bytes.last() == quote;
        let inside = if is_quoted { text.start + 1..text.end - 1 } else { text.clone() };
        if is_harmless_value(self.canvas.slice(inside.clone())) {
            return;
        }
        let slashes = bytes.iter().rev().take_while(|b| **b == b'\\').count();
        if slashes % 2 == 1 && !self.is_structured() {
            // The backslash stays, and with it the next line.
            self.canvas.hide(inside.start..inside.end - 1);
            self.open = OpenValue::Continued;
            return;
        }
        self.canvas.hide(inside);
        self.open = OpenValue::Indented { spaces, named: false };
    }

    /// Hides the text between quotes, and a comment behind it. Returns the place behind the
    /// closing quote.
    fn quoted(&mut self, text: Range<usize>) -> Option<usize> {
        let bytes = self.canvas.slice(text.clone());
        let quotes: [&'static [u8]; 4] = [b"\"\"\"", b"'''", b"\"", b"'"];
        let is_toml = self.syntax == MaskSyntax::Toml;
        let quote = quotes
            .into_iter()
            .find(|quote| bytes.starts_with(quote) && (quote.len() == 1 || is_toml))?;
        let start = text.start + quote.len();
        let Some(close) = self.find_close(start..text.end, quote) else {
            self.canvas.hide(start..text.end);
            self.open = OpenValue::Quoted(quote);
            return None;
        };
        if is_harmless_value(self.canvas.slice(start..close)) {
            return Some(close + quote.len());
        }
        self.canvas.hide(start..close);
        let behind = close + quote.len();
        let rest = self.canvas.slice(behind..text.end);
        if let Some(comment) = rest.iter().position(|b| *b == b'#') {
            self.canvas.hide(behind + comment + 1..text.end);
            return None;
        }
        Some(behind)
    }

    /// The place of the closing quote. In YAML a doubled single quote is a part of the text.
    fn find_close(&self, text: Range<usize>, quote: &[u8]) -> Option<usize> {
        let mut at = text.start;
        while at < text.end {
            let rest = self.canvas.slice(at..text.end);
            let escaped = rest.starts_with(b"\\") && quote.starts_with(b"\"");
            let doubled = rest.starts_with(b"''") && quote == b"'" && self.is_yaml();
            if escaped || doubled {
                at += 2;
            } else if rest.starts_with(quote) {
                return Some(at);
            } else {
                at += 1;
            }
        }
        None
    }

    /// Hides texts and words between brackets, but not the names before `=` and `:`. Goes on
    /// in the next line while a bracket is open.
    fn bracketed(&mut self, text: Range<usize>, mut depth: usize) {
        let mut at = text.start;
        while at < text.end {
            let rest = self.canvas.slice(at..text.end);
            let Some(first) = rest.first().copied() else { break };
            match first {
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth = depth.saturating_sub(1),
                b'"' | b'\'' => match self.quoted(at..text.end) {
                    Some(end) => {
                        at = end.max(at + 1);
                        continue;
                    }
                    // An open text, or a comment: the reader of lines goes on.
                    None if matches!(self.open, OpenValue::Quoted(_)) => return,
                    None => break,
                },
                _ if first.is_ascii_whitespace() || b",:=".contains(&first) => {}
                _ => {
                    let is_end = |b: &u8| b.is_ascii_whitespace() || b",]}\"'".contains(b);
                    let length = rest.iter().position(is_end).unwrap_or(rest.len()).max(1);
                    let word = self.canvas.slice(at..at + length);
                    let behind = self.canvas.slice(at + length..text.end).trim_ascii_start();
                    let is_name = word.ends_with(b":") || behind.starts_with(b"=");
                    if !is_name && !is_harmless_value(word) {
                        self.canvas.hide(at..at + length);
                    }
                    at += length;
                    continue;
                }
            }
            at += 1;
        }
        if depth > 0 {
            self.open = OpenValue::Bracketed(depth);
        }
    }

    fn spaces_at(&self, at: usize, end: usize) -> usize {
        self.canvas.slice(at..end).iter().take_while(|b| b.is_ascii_whitespace()).count()
    }
}

/// True for a name of Bundler that stands for a host, for example `BUNDLE_GEMS__CORP__COM`.
/// Names of builds, mirrors and local copies have two underscores too.
fn names_a_host(name: &[u8]) -> bool {
    const OTHERS: &[&[u8]] = &[b"BUNDLE_BUILD__", b"BUNDLE_MIRROR__", b"BUNDLE_LOCAL__"];
    let name = name.to_ascii_uppercase();
    name.windows(2).any(|pair| pair == b"__") && !OTHERS.iter().any(|it| name.starts_with(it))
}
