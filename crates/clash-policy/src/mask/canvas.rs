//! A text, and which of its bytes are secret.

use std::ops::Range;

/// A text under a mask that readers extend.
#[derive(Debug)]
pub(super) struct MaskCanvas<'a> {
    text: &'a [u8],
    secret: Vec<bool>,
}

impl<'a> MaskCanvas<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { text, secret: vec![false; text.len()] }
    }

    pub(super) fn text(&self) -> &'a [u8] {
        self.text
    }

    /// The bytes of a range; those beyond the end are left out.
    pub(super) fn slice(&self, range: Range<usize>) -> &'a [u8] {
        let end = range.end.min(self.text.len());
        self.text.get(range.start.min(end)..end).unwrap_or_default()
    }

    /// Marks a range as secret.
    pub(super) fn hide(&mut self, range: Range<usize>) {
        let end = range.end.min(self.secret.len());
        if let Some(bytes) = self.secret.get_mut(range.start.min(end)..end) {
            bytes.fill(true);
        }
    }

    /// The masked text. Spaces and line ends of a secret stay. A run of digits alone
    /// becomes `1`s, so that a number stays a number.
    pub(super) fn finish(self) -> Vec<u8> {
        let mut out = self.text.to_vec();
        let mut at = 0;
        while let Some(hidden) = self.secret.get(at) {
            let run = self.secret.iter().skip(at).take_while(|it| *it == hidden).count();
            if *hidden && let Some(bytes) = out.get_mut(at..at + run) {
                let is_number = bytes.iter().all(u8::is_ascii_digit);
                let fill = if is_number { b'1' } else { b'x' };
                bytes.iter_mut().filter(|b| !b.is_ascii_whitespace()).for_each(|b| *b = fill);
            }
            at += run;
        }
        out
    }
}
