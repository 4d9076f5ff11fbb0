//! Masks texts and attributes of an XML document below secret names.

use std::ops::Range;

use super::MaskError;
use super::canvas::MaskCanvas;
use super::names::{is_harmless_value, is_secret_name};

/// Elements below which everything is secret, in lower case.
const SECRET_ELEMENTS: &[&str] = &["apikeys", "packagesourcecredentials", "server"];
/// Elements in them that are not.
const OPEN_ELEMENTS: &[&str] = &["id", "filepermissions", "directorypermissions"];
/// Deeper documents are no settings.
const MAX_DEPTH: usize = 64;

/// Hides each text and each attribute below a secret name. A document that is not well
/// formed is an error, and so is one with entities of its own.
pub(super) fn mask_xml(canvas: &mut MaskCanvas<'_>) -> Result<(), MaskError> {
    let mut reader = XmlReader { canvas, open: Vec::new(), lenient: false };
    let end = reader.canvas.text().len();
    reader.nodes(0..end)?;
    reader.open.is_empty().then_some(()).ok_or(MaskError::Malformed)
}

struct XmlReader<'a, 'b> {
    canvas: &'a mut MaskCanvas<'b>,
    /// The open elements, and whether their content is secret.
    open: Vec<(Vec<u8>, bool)>,
    /// True in a comment, which need not be well formed.
    lenient: bool,
}

impl XmlReader<'_, '_> {
    fn is_secret(&self) -> bool {
        self.open.last().is_some_and(|(_, secret)| *secret)
    }

    fn find(&self, wanted: &[u8], text: Range<usize>) -> Option<usize> {
        let bytes = self.canvas.slice(text.clone());
        Some(text.start + bytes.windows(wanted.len()).position(|it| it == wanted)?)
    }

    /// The end of a part with this last text. A comment may end before.
    fn end_of(&self, wanted: &[u8], text: Range<usize>) -> Result<usize, MaskError> {
        match self.find(wanted, text.clone()) {
            Some(at) => Ok(at + wanted.len()),
            None if self.lenient => Ok(text.end),
            None => Err(MaskError::Malformed),
        }
    }

    fn nodes(&mut self, text: Range<usize>) -> Result<(), MaskError> {
        let mut at = text.start;
        while at < text.end {
            let next = self.find(b"<", at..text.end).unwrap_or(text.end);
            self.text(at..next);
            if next == text.end {
                break;
            }
            let rest = self.canvas.slice(next..text.end);
            at = if rest.starts_with(b"<!--") {
                let end = self.end_of(b"-->", next + 4..text.end)?;
                self.comment(next + 4..end.saturating_sub(3))?;
                end
            } else if rest.starts_with(b"<![CDATA[") {
                let end = self.end_of(b"]]>", next..text.end)?;
                self.text(next + b"<![CDATA[".len()..end.saturating_sub(3));
                end
            } else if rest.starts_with(b"<?") {
                self.end_of(b"?>", next..text.end)?
            } else if rest.starts_with(b"<!") {
                let end = self.end_of(b">", next..text.end)?;
                if self.canvas.slice(next..end).contains(&b'[') {
                    return Err(MaskError::Malformed);
                }
                end
            } else {
                let end = self.end_of_tag(next..text.end)?;
                self.tag(next + 1..end)?;
                end
            };
        }
        Ok(())
    }

    /// A comment often has settings that are switched off.
    fn comment(&mut self, text: Range<usize>) -> Result<(), MaskError> {
        let (depth, lenient) = (self.open.len(), self.lenient);
        self.lenient = true;
        self.nodes(text)?;
        self.open.truncate(depth);
        self.lenient = lenient;
        Ok(())
    }

    /// The place behind a tag. A quoted attribute may have `>` in it.
    fn end_of_tag(&self, text: Range<usize>) -> Result<usize, MaskError> {
        let mut quote = None;
        for (at, byte) in self.canvas.slice(text.clone()).iter().enumerate() {
            match (byte, quote) {
                (b'"' | b'\'', None) => quote = Some(*byte),
                (b'"' | b'\'', Some(open)) if open == *byte => quote = None,
                (b'>', None) => return Ok(text.start + at + 1),
                _ => {}
            }
        }
        if self.lenient { Ok(text.end) } else { Err(MaskError::Malformed) }
    }

    /// Hides a text, without the spaces around it.
    fn text(&mut self, text: Range<usize>) {
        let bytes = self.canvas.slice(text.clone());
        if self.is_secret() && !is_harmless_value(bytes) {
            self.canvas.hide(text);
        }
    }

    /// Reads one tag, from behind `<` to behind `>`.
    fn tag(&mut self, text: Range<usize>) -> Result<(), MaskError> {
        let bytes = self.canvas.slice(text.clone());
        if let Some(name) = bytes.strip_prefix(b"/") {
            let name = name.strip_suffix(b">").unwrap_or(name).trim_ascii();
            return match self.open.last() {
                Some((open, _)) if open == name => {
                    self.open.pop();
                    Ok(())
                }
                _ if self.lenient => Ok(()),
                _ => Err(MaskError::Malformed),
            };
        }
        let is_end = |b: &u8| b.is_ascii_whitespace() || b"/>".contains(b);
        let length = bytes.iter().position(is_end).unwrap_or(bytes.len());
        let name = bytes.get(..length).unwrap_or_default();
        let local = name.rsplit(|b| *b == b':').next().unwrap_or(name);
        let lower = String::from_utf8_lossy(local).to_ascii_lowercase();
        let listed = |names: &[&str]| names.contains(&lower.as_str());
        let is_open = self.is_secret()
            && self.open.last().is_some_and(|(outer, _)| outer.eq_ignore_ascii_case(b"server"))
            && listed(OPEN_ELEMENTS);
        let secret =
            !is_open && (self.is_secret() || listed(SECRET_ELEMENTS) || is_secret_name(local));
        self.attributes(text.start + length..text.end, secret);
        if !bytes.trim_ascii_end().ends_with(b"/>") {
            if self.open.len() >= MAX_DEPTH {
                return Err(MaskError::Malformed);
            }
            self.open.push((name.to_vec(), secret));
        }
        Ok(())
    }

    /// Hides the attributes with a secret name, and those beside a name that is the value of
    /// an attribute: `<add key="Password" value="abc"/>`.
    fn attributes(&mut self, text: Range<usize>, secret: bool) {
        let names = |name: &[u8]| {
            ["key", "name", "id"].iter().any(|it| name.eq_ignore_ascii_case(it.as_bytes()))
        };
        let all = self.split_attributes(text);
        let beside = all
            .iter()
            .any(|(name, value)| names(name) && is_secret_name(self.canvas.slice(value.clone())));
        for (name, value) in all {
            let hides = !names(&name) && (secret || beside || is_secret_name(&name));
            if hides && !is_harmless_value(self.canvas.slice(value.clone())) {
                self.canvas.hide(value);
            }
        }
    }

    /// The names of attributes with the places of their values.
    fn split_attributes(&self, text: Range<usize>) -> Vec<(Vec<u8>, Range<usize>)> {
        let mut found = Vec::new();
        let mut at = text.start;
        while let Some(equals) = self.find(b"=", at..text.end) {
            let name = self.canvas.slice(at..equals).trim_ascii().to_vec();
            let rest = self.canvas.slice(equals + 1..text.end);
            let gap = rest.iter().take_while(|b| b.is_ascii_whitespace()).count();
            let start = equals + 1 + gap;
            let value = self.canvas.slice(start..text.end);
            let (start, length) = match value.first() {
                Some(quote @ (b'"' | b'\'')) => {
                    let inside = value.get(1..).unwrap_or_default();
                    let close = inside.iter().position(|b| b == quote);
                    (start + 1, close.unwrap_or(inside.len()))
                }
                _ => {
                    let is_end = |b: &u8| b.is_ascii_whitespace() || *b == b'>';
                    (start, value.iter().position(is_end).unwrap_or(value.len()))
                }
            };
            found.push((name, start..start + length));
            at = start + length + 1;
        }
        found
    }
}
