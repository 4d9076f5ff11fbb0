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

/// The text with these edits. `None` if ranges overlap, leave the text or cut a character:
/// text of the user could be lost.
pub(crate) fn apply_edits(text: &str, mut edits: Vec<TextEdit>) -> Option<String> {
    edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
    let mut edited = String::with_capacity(text.len());
    let mut at = 0;
    for edit in edits {
        edited.push_str(text.get(at..edit.range.start)?);
        text.get(edit.range.clone())?;
        edited.push_str(&edit.text);
        at = edit.range.end;
    }
    edited.push_str(text.get(at..)?);
    Some(edited)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(text: &str, ranges: &[Range<usize>]) -> Option<String> {
        let edits = ranges.iter().map(|range| TextEdit { range: range.clone(), text: "x".into() });
        apply_edits(text, edits.collect())
    }

    #[test]
    fn text_outside_of_the_ranges_stays() {
        assert_eq!(edited("aäb", &[]).as_deref(), Some("aäb"));
        assert_eq!(edited("aäb", &[3..4, 0..0]).as_deref(), Some("xaäx"));
        assert_eq!(edited("aäb", &[1..1, 1..3]).as_deref(), Some("axxb"));
    }

    #[test]
    fn edits_that_could_lose_text_are_refused() {
        for (start, end) in [(0, 2), (2, 3), (2, 2), (0, 9), (9, 9), (3, 1)] {
            let edit = TextEdit::remove(Range { start, end });
            assert_eq!(apply_edits("aäb", vec![edit]), None, "{start}..{end}");
        }
        assert_eq!(edited("aäb", &[0..3, 1..4]), None);
    }
}
