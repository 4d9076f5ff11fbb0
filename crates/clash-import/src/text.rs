//! Text of the imported file, as comments, messages and patterns show it.

use clash_syntax::draft::one_line;

/// Longer texts are cut in comments and messages.
const MAX_SHOWN_CHARS: usize = 200;

/// The text on one line, cut to [`MAX_SHOWN_CHARS`].
pub(crate) fn shown(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => one_line(text.get(..end).unwrap_or(text)) + "…",
        None => one_line(text),
    }
}

/// A regular expression that matches exactly `text`.
pub(crate) fn regex_escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if !c.is_alphanumeric() && !matches!(c, '_' | ' ' | '/' | ':' | '=' | ',' | '@' | '%') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(shown(&"x".repeat(200)), "x".repeat(200));
        assert_eq!(shown(&"é\n".repeat(200)), "é\\n".repeat(100) + "…");
    }
}
