//! Replacements in a text. Every byte outside of their ranges stays as it is.

use std::ops::Range;

/// One replacement: the bytes of the range become this text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextEdit {
    pub(crate) range: Range<usize>,
    pub(crate) text: String,
}

impl TextEdit {
    pub(crate) fn insert(at: usize, text: String) -> Self {
        Self { range: at..at, text }
    }

    pub(crate) fn remove(range: Range<usize>) -> Self {
        Self { range, text: String::new() }
    }
}

/// The text with these edits, whose ranges do not overlap.
pub(crate) fn apply_edits(text: &str, mut edits: Vec<TextEdit>) -> String {
    edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
    let mut edited = String::with_capacity(text.len());
    let mut at = 0;
    for edit in edits {
        edited.push_str(text.get(at..edit.range.start).unwrap_or_default());
        edited.push_str(&edit.text);
        at = edit.range.end;
    }
    edited.push_str(text.get(at..).unwrap_or_default());
    edited
}
