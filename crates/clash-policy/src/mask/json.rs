//! Masks texts and numbers of a JSON document below secret names.

use super::MaskError;
use super::canvas::MaskCanvas;
use super::names::{is_harmless_value, is_secret_name};

/// Deeper documents are no settings.
const MAX_DEPTH: usize = 64;

/// Hides each value below a secret name, or every value if `all`. Anything but one JSON
/// value is an error.
pub(super) fn mask_json(canvas: &mut MaskCanvas<'_>, all: bool) -> Result<(), MaskError> {
    let mut reader = JsonReader { canvas, at: 0 };
    reader.skip_space();
    if reader.peek().is_none() {
        return Ok(());
    }
    reader.value(all, 0)?;
    reader.skip_space();
    reader.peek().is_none().then_some(()).ok_or(MaskError::Malformed)
}

struct JsonReader<'a, 'b> {
    canvas: &'a mut MaskCanvas<'b>,
    at: usize,
}

impl JsonReader<'_, '_> {
    fn peek(&self) -> Option<u8> {
        self.canvas.text().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|b| b.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn take(&mut self, wanted: u8) -> Result<(), MaskError> {
        if self.peek() != Some(wanted) {
            return Err(MaskError::Malformed);
        }
        self.at += 1;
        Ok(())
    }

    /// Reads one value, and hides it if `secret`.
    fn value(&mut self, secret: bool, depth: usize) -> Result<(), MaskError> {
        if depth > MAX_DEPTH {
            return Err(MaskError::Malformed);
        }
        self.skip_space();
        match self.peek().ok_or(MaskError::Malformed)? {
            b'{' => self.members(b'}', secret, depth),
            b'[' => self.members(b']', secret, depth),
            b'"' => {
                let inside = self.string()?;
                if secret && !is_harmless_value(self.canvas.slice(inside.clone())) {
                    self.canvas.hide(inside);
                }
                Ok(())
            }
            _ => {
                let is_end = |b: &u8| b.is_ascii_whitespace() || b",]}".contains(b);
                let rest = self.canvas.text().get(self.at..).unwrap_or_default();
                let length = rest.iter().position(is_end).unwrap_or(rest.len());
                let word = rest.get(..length).unwrap_or_default();
                let is_word = matches!(word, b"true" | b"false" | b"null");
                let is_number = !word.is_empty()
                    && word.iter().all(|b| b.is_ascii_digit() || b"+-.eE".contains(b));
                if !is_word && !is_number {
                    return Err(MaskError::Malformed);
                }
                if secret && word.iter().all(u8::is_ascii_digit) {
                    self.canvas.hide(self.at..self.at + length);
                }
                self.at += length;
                Ok(())
            }
        }
    }

    /// Reads the members of an object, or the items of an array.
    fn members(&mut self, close: u8, secret: bool, depth: usize) -> Result<(), MaskError> {
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(());
        }
        loop {
            let mut named = false;
            if close == b'}' {
                self.skip_space();
                let name = self.string()?;
                let name = self.canvas.slice(name);
                // An escape may hide a name, so it counts as secret.
                named = is_secret_name(name) || name.contains(&b'\\');
                self.skip_space();
                self.take(b':')?;
            }
            self.value(secret || named, depth + 1)?;
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(found) if found == close => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(MaskError::Malformed),
            }
        }
    }

    /// Reads a text, and returns the range between its quotes.
    fn string(&mut self) -> Result<std::ops::Range<usize>, MaskError> {
        self.take(b'"')?;
        let start = self.at;
        loop {
            match self.peek().ok_or(MaskError::Malformed)? {
                b'\\' => self.at += 2,
                b'"' => break,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        Ok(start..self.at - 1)
    }
}
