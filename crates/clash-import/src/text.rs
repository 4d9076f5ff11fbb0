//! Text that came from elsewhere, written so that it stays what it is: a string
//! that cannot leave its literal, and a comment that cannot leave its line.

use std::fmt::Write;

/// A Starlark string literal that reads back as exactly `text`.
pub(crate) fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if hidden(c) => escape(&mut out, c),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// For comments and messages: one line, nothing that a terminal obeys or that
/// makes a line look different from what it is.
pub(crate) fn shown(text: &str) -> String {
    const MAX_SHOWN_CHARS: usize = 200;
    let mut out = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == MAX_SHOWN_CHARS {
            out.push('…');
            break;
        }
        match c {
            '\n' => out.push_str("\\n"),
            c if hidden(c) => escape(&mut out, c),
            c => out.push(c),
        }
    }
    out
}

/// Control characters, and those that reorder or hide text.
fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{e0000}'..='\u{e007f}')
}

fn escape(out: &mut String, c: char) {
    let code = u32::from(c);
    // Writing to a String cannot fail.
    let _ = if code > 0xffff { write!(out, "\\U{code:08x}") } else { write!(out, "\\u{code:04x}") };
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
    use proptest::prelude::*;

    /// What a Starlark reader makes of the literal, and that nothing is left over.
    fn read_back(literal: &str) -> Option<String> {
        let file = clash_syntax::SyntaxTree::parse(literal).ok()?;
        let [statement] = file.statements() else { return None };
        let clash_syntax::StatementKind::Expr(expr) = &statement.kind else { return None };
        expr.string().map(str::to_owned)
    }

    #[test]
    fn hostile_strings_stay_inside_their_quotes() {
        for text in [
            "\"",
            "\"\"\"",
            "\\",
            "\\\"",
            "\n",
            "\r\n",
            "\0",
            "')\nallow()",
            "\\u0041",
            "\u{202e}x",
            "{x}",
            "\u{85}",
        ] {
            assert_eq!(read_back(&literal(text)).as_deref(), Some(text), "{}", literal(text));
        }
    }

    #[test]
    fn a_comment_is_one_line() {
        assert_eq!(shown("a\nb\r\0\u{2028}"), "a\\nb\\u000d\\u0000\\u2028");
    }

    proptest! {
        #[test]
        fn any_string_reads_back_as_itself(text in any::<String>()) {
            prop_assert_eq!(read_back(&literal(&text)), Some(text));
        }

        #[test]
        fn any_ascii_reads_back_as_itself(text in "[\\x00-\\x7f]{0,24}") {
            prop_assert_eq!(read_back(&literal(&text)), Some(text));
        }

        #[test]
        fn no_comment_leaves_its_line(text in any::<String>()) {
            prop_assert!(!shown(&text).chars().any(char::is_control));
        }
    }
}
