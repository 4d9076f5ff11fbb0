//! Writes texts as words of a shell.

/// Quotes any text as one word.
pub fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The words of a command as a line that a shell reads as the same words. A word of plain
/// characters stays as it is, so that people can read the line.
pub fn command_line(words: &[String]) -> String {
    let written: Vec<String> = words
        .iter()
        .map(|word| if is_plain(word) { word.clone() } else { shell_quoted(word) })
        .collect();
    written.join(" ")
}

/// One word behind a program, with quotes only if it needs them: `--x=y` stays as it is. As
/// the first word of a command, `x=y` would be an assignment: see [`command_line`].
pub fn quoted_argument(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    let stays = !word.is_empty() && word.chars().all(plain);
    if stays { word.to_owned() } else { shell_quoted(word) }
}

/// True if a word needs no quotes even as the first word of a command. `=` would make an
/// assignment of it, and a keyword begins no command.
fn is_plain(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@+,".contains(c);
    !word.is_empty() && word.chars().all(plain) && !KEYWORDS.contains(&word)
}

const KEYWORDS: &[&str] = &[
    "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in",
    "select", "then", "time", "until", "while",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_means_the_same_words() {
        let line = |words: &[&str]| {
            command_line(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(line(&["git", "push", "--force"]), "git push --force");
        assert_eq!(line(&["echo", "a b", "", "it's"]), r"echo 'a b' '' 'it'\''s'");
        assert_eq!(quoted_argument("a b's"), r"'a b'\''s'");
        assert_eq!(quoted_argument("--x=y"), "--x=y");
        assert_eq!(quoted_argument(""), "''");
        assert_eq!(line(&["A=1", "if", "~", "*", "{"]), "'A=1' 'if' '~' '*' '{'");
    }
}
