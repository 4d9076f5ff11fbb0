//! Text from outside, written so that it stays text: a string cannot leave its
//! literal, and a comment cannot leave its line.

use std::fmt::Write;

use clash_policy::text::is_hidden;

/// A Starlark string literal that reads back as exactly `text`.
pub fn string_literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_hidden(c) => escape(&mut out, c),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The text on one line, for comments and messages. Characters that a terminal
/// obeys, or that hide or reorder text, become escapes.
pub fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            c if is_hidden(c) => escape(&mut out, c),
            c => out.push(c),
        }
    }
    out
}

/// Appends a character as `\uXXXX` or `\UXXXXXXXX`.
fn escape(out: &mut String, c: char) {
    let code = u32::from(c);
    // Writing to a String cannot fail.
    let _ = if code > 0xffff { write!(out, "\\U{code:08x}") } else { write!(out, "\\u{code:04x}") };
}

/// Appends comment lines, each behind `indent` and `# `.
pub(super) fn comment(out: &mut String, lines: &[String], indent: &str) {
    for line in lines {
        let _ = writeln!(out, "{}", format!("{indent}# {}", one_line(line)).trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{StatementKind, SyntaxTree};
    use proptest::prelude::*;

    /// The value that a Starlark reader gets from the literal. `None` if the literal
    /// is more or less than one string.
    fn read_back(literal: &str) -> Option<String> {
        let file = SyntaxTree::parse(literal).ok()?;
        let [statement] = file.statements() else { return None };
        let StatementKind::Expr(expr) = &statement.kind else { return None };
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
            let literal = string_literal(text);
            assert_eq!(read_back(&literal).as_deref(), Some(text), "{literal}");
        }
    }

    #[test]
    fn a_comment_is_one_line() {
        assert_eq!(one_line("a\nb\r\0\u{2028}"), "a\\nb\\u000d\\u0000\\u2028");
    }

    proptest! {
        #[test]
        fn any_string_reads_back_as_itself(text in any::<String>()) {
            prop_assert_eq!(read_back(&string_literal(&text)), Some(text));
        }

        #[test]
        fn any_ascii_reads_back_as_itself(text in "[\\x00-\\x7f]{0,24}") {
            prop_assert_eq!(read_back(&string_literal(&text)), Some(text));
        }

        #[test]
        fn no_comment_leaves_its_line(text in any::<String>()) {
            prop_assert!(!one_line(&text).chars().any(char::is_control));
        }
    }
}
