//! Formats text for people: breaks lines at the terminal's width and writes paths below
//! the home directory as `~/…`. Data for programs (`--json`, the text of a policy) is never
//! formatted here.

use std::borrow::Cow;
use std::os::fd::AsFd;
use std::path::PathBuf;

use crate::env;

/// The number of columns: `COLUMNS`, or the terminal's width. `None` in a pipe and for fewer
/// than [`NARROWEST`] columns: then clash breaks no line.
pub(crate) fn columns(stream: impl AsFd) -> Option<usize> {
    let said = env::text(env::COLUMNS).and_then(|text| text.parse().ok());
    let of_terminal = || {
        let size = rustix::termios::tcgetwinsize(stream).ok()?;
        Some(usize::from(size.ws_col))
    };
    said.or_else(of_terminal).filter(|columns| *columns >= NARROWEST)
}

/// A narrower text is harder to read than a long line, so clash breaks no line there.
const NARROWEST: usize = 20;

/// The paths of the user's home directory: the value of `HOME`, and its target without links.
#[derive(Clone, Debug, Default)]
pub(crate) struct HomeNames(Vec<String>);

impl HomeNames {
    /// The home of `HOME` and its real path; none if `HOME` is not set.
    pub(crate) fn from_env() -> Self {
        let Some(home) = env::path(env::HOME) else { return Self::default() };
        let real = home.canonicalize().ok();
        Self::from_paths([Some(home), real].into_iter().flatten())
    }

    fn from_paths(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let named = paths.into_iter().filter_map(|path| path.to_str().map(str::to_owned));
        let mut names: Vec<String> =
            named.map(|name| name.trim_end_matches('/').to_owned()).collect();
        names.retain(|name| !name.is_empty());
        names.dedup();
        Self(names)
    }

    /// The text with paths below the home directory as `~/…`. A path in quotes, or after
    /// `=` and `:`, stays as it is, because a shell does not expand `~` there.
    pub(crate) fn shorten<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(text);
        for home in &self.0 {
            if text.contains(home.as_str()) {
                text = Cow::Owned(replace_home(&text, home));
            }
        }
        text
    }
}

/// Replaces one home path by `~` where a path begins and ends.
fn replace_home(text: &str, home: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(home) {
        let (before, from) = rest.split_at(at);
        let after = from.get(home.len()..).unwrap_or_default();
        out.push_str(before);
        let begins =
            out.chars().next_back().is_none_or(|c| c.is_whitespace() || "(`[,".contains(c));
        let ends = |c: char| c.is_whitespace() || "/)`],;:".contains(c);
        let is_home = begins && after.chars().next().is_none_or(ends);
        out.push_str(if is_home { "~" } else { home });
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Breaks each line between words, so that it has at most `columns` columns. The text after
/// a break is indented to the last column of a table, for example
///
/// ```text
/// agents    Claude Code: wired; commands
///           are confined
/// ```
pub(crate) fn wrap(text: &str, columns: usize) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| wrap_line(line, columns)).collect();
    lines.join("\n")
}

/// Breaks one line. A word that is longer than a line stays whole.
fn wrap_line(line: &str, columns: usize) -> String {
    if width(line) <= columns {
        return line.to_owned();
    }
    let indent = " ".repeat(hanging_indent(line, columns));
    let mut out = String::new();
    let mut used = 0;
    let mut is_first = true;
    for (gap, word) in words(line, columns) {
        let wide = width(word);
        if !is_first && used + gap.len() + wide > columns && used > indent.len() {
            out.push('\n');
            out.push_str(&indent);
            used = indent.len();
        } else {
            out.push_str(gap);
            used += gap.len();
        }
        out.push_str(word);
        used += wide;
        is_first = false;
    }
    out
}

/// The spaces before each word, and the word. A command in backticks is one word, so that
/// the user can copy it, unless it is longer than a line.
fn words(line: &str, columns: usize) -> Vec<(&str, &str)> {
    let mut words = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let start = rest.len() - rest.trim_start_matches(' ').len();
        let (gap, from) = rest.split_at(start);
        let end = end_of_word(from, columns);
        let (word, after) = from.split_at(end);
        words.push((gap, word));
        rest = after;
    }
    words
}

/// The end of the first word, in bytes. Spaces inside a short command in backticks do not end
/// it.
fn end_of_word(text: &str, columns: usize) -> usize {
    let mut in_command = false;
    for (at, c) in text.char_indices() {
        match c {
            '`' if in_command => in_command = false,
            '`' => {
                let inner = text.get(at + 1..).unwrap_or_default();
                in_command = inner.find('`').is_some_and(|end| end + 2 < columns / 2);
            }
            ' ' if !in_command => return at,
            _ => {}
        }
    }
    text.len()
}

/// The indentation after a break: behind the last gap of two or more spaces in the first
/// half of the line, or two columns more than the line's own indentation.
fn hanging_indent(line: &str, columns: usize) -> usize {
    let begin = line.len() - line.trim_start_matches(' ').len();
    let mut at = 0;
    let mut gap = 0;
    let mut found = None;
    let mut in_code = false;
    for c in line.chars() {
        match c {
            '\u{1b}' => in_code = true,
            'm' if in_code => in_code = false,
            _ if in_code => {}
            ' ' => {
                gap += 1;
                at += 1;
            }
            _ => {
                if gap >= 2 && at > begin && at <= columns / 2 {
                    found = Some(at);
                }
                gap = 0;
                at += 1;
            }
        }
    }
    found.unwrap_or((begin + 2).min(columns / 2))
}

/// The number of columns of a text, without the codes of its tones.
fn width(text: &str) -> usize {
    let mut columns = 0;
    let mut in_code = false;
    for c in text.chars() {
        match c {
            '\u{1b}' => in_code = true,
            'm' if in_code => in_code = false,
            _ if in_code => {}
            _ => columns += 1,
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        HomeNames::from_paths(["/home/u".into(), "/data/u".into()]).shorten(text).into_owned()
    }

    #[test]
    fn paths_below_the_home_begin_with_a_tilde() {
        assert_eq!(shown("wrote /home/u/.clash/policy.star"), "wrote ~/.clash/policy.star");
        assert_eq!(shown("(rule at /data/u/p.star:3)"), "(rule at ~/p.star:3)");
        assert_eq!(shown("/home/u: `/home/u/x`"), "~: `~/x`");
    }

    #[test]
    fn other_paths_and_quoted_ones_stay() {
        for text in [
            "/home/user/x",
            "/mnt/home/u/x",
            "HOME=/home/u",
            "a:/home/u/bin",
            "'/home/u/x y'",
            "\"/home/u/x\"",
        ] {
            assert_eq!(shown(text), text);
        }
        assert_eq!(HomeNames::from_paths(["/".into()]).shorten("/etc"), "/etc");
    }

    #[test]
    fn lines_break_between_words_and_keep_their_column() {
        insta::assert_snapshot!(
            wrap("agents    Claude Code: wired; commands are confined\nshort", 30),
            @r"
        agents    Claude Code: wired;
                  commands are
                  confined
        short
        "
        );
        assert_eq!(
            wrap("  a bb ccc dddd eeee ffff gggg", 20),
            "  a bb ccc dddd eeee\n    ffff gggg"
        );
    }

    #[test]
    fn a_command_in_backticks_is_not_broken() {
        assert_eq!(
            wrap("to undo it all run `clash policy undo` now", 40),
            "to undo it all run `clash policy undo`\n  now"
        );
        assert_eq!(
            wrap("to undo the change run `clash undo x` now", 34),
            "to undo the change run\n  `clash undo x` now"
        );
    }

    #[test]
    fn tones_take_no_columns_and_long_words_stay_whole() {
        let toned = "\u{1b}[1mnote\u{1b}[0m  twenty columns";
        assert_eq!(wrap(toned, 20), toned);
        assert_eq!(
            wrap("see /a/very/long/path/to/a/file now", 20),
            "see\n  /a/very/long/path/to/a/file\n  now"
        );
    }

    proptest::proptest! {
        #[test]
        fn wrapping_loses_no_word(text in "[ -~]{0,120}", columns in 20_usize..100) {
            let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            proptest::prop_assert_eq!(plain(&wrap(&text, columns)), plain(&text));
        }
    }
}
