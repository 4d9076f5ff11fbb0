//! Programs at the end of a pipe that touch nothing: they read the output of the
//! command before them and print a part of it. `cargo test 2>&1 | tail -20` needs a
//! decision about cargo and none about tail.

use super::{CommandPosition, ShellCommand, ShellWord};

/// The arguments a filter may have: letters of options without a value, letters of
/// options with a value (in the next word or behind the letter), and a number of other
/// words.
struct FilterProgram {
    name: &'static str,
    flags: &'static str,
    valued: &'static str,
    words: usize,
}

const fn filter(
    name: &'static str,
    flags: &'static str,
    valued: &'static str,
    words: usize,
) -> FilterProgram {
    FilterProgram { name, flags, valued, words }
}

/// Only forms that name no file. An option that opens one (`sort -o`, `grep -f`)
/// or runs a program is in no list.
const FILTERS: &[FilterProgram] = &[
    filter("awk", "", "Fv", 1),
    filter("cat", "AbEensTtuv", "", 0),
    filter("column", "te", "sc", 0),
    filter("cut", "sz", "bcdf", 0),
    filter("egrep", "aEFGHILZbchilnoqsvwxyz", "ABCem", 1),
    filter("fgrep", "aEFGHILZbchilnoqsvwxyz", "ABCem", 1),
    filter("fold", "bs", "w", 0),
    filter("grep", "aEFGHILPZbchilnoqsvwxyz", "ABCem", 1),
    filter("head", "0123456789qvz", "cn", 0),
    filter("less", "EFGIKMNQRSXegimnrs", "", 0),
    filter("mawk", "", "Fv", 1),
    filter("more", "", "", 0),
    filter("nl", "p", "bdfhilnsvw", 0),
    filter("rev", "", "", 0),
    filter("rg", "FHINSUacilnopqsvwx", "ABCEegmr", 1),
    filter("sed", "Enrsuz", "e", 1),
    filter("sort", "MRVbdfghinrsuz", "kt", 0),
    filter("tac", "br", "s", 0),
    filter("tail", "0123456789qvz", "cn", 0),
    filter("tr", "Ccdst", "", 2),
    filter("uniq", "Dcdiuz", "fsw", 0),
    filter("wc", "Lclmw", "", 0),
];

/// True if a command of a pipeline only reads its standard input and prints a part of it.
/// False if a word is unknown, if an option is not in the list, or if it names a file.
/// Redirections do not count here; a decision about their files is made apart.
pub fn is_filter(command: &ShellCommand) -> bool {
    let piped = command.position.contains(&CommandPosition::Pipeline);
    if command.opaque.is_some() || !piped || !command.assignments.is_empty() {
        return false;
    }
    let words: Option<Vec<&str>> = command.words.iter().map(ShellWord::known).collect();
    let Some((program, rest)) = words.as_deref().and_then(|words| words.split_first()) else {
        return false;
    };
    let Some(filter) = FILTERS.iter().find(|filter| filter.name == *program) else { return false };
    let mut others = 0;
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        match word.strip_prefix('-') {
            Some("") | None if !filter.takes(word) => return false,
            Some("") | None => others += 1,
            Some(letters) => match filter.option(letters) {
                Some(OptionTakes::Nothing) => {}
                // A pattern given as an option leaves no place for another.
                Some(OptionTakes::Next) => {
                    let Some(value) = rest.next() else { return false };
                    if letters.ends_with('e') && !filter.takes(value) {
                        return false;
                    }
                    others += usize::from(letters.ends_with('e'));
                }
                None => return false,
            },
        }
    }
    others <= filter.words
}

enum OptionTakes {
    Nothing,
    Next,
}

impl FilterProgram {
    /// True if a word that is no option names no file and no program. Scripts of `sed` and
    /// `awk` can do both.
    fn takes(&self, word: &str) -> bool {
        match self.name {
            "sed" => is_plain_sed(word),
            "awk" | "mawk" => is_plain_awk(word),
            _ => true,
        }
    }

    /// `None` if the option is not on the lists of this program.
    fn option(&self, letters: &str) -> Option<OptionTakes> {
        for (at, letter) in letters.char_indices() {
            if self.valued.contains(letter) {
                let ends = at + letter.len_utf8() == letters.len();
                return Some(if ends { OptionTakes::Next } else { OptionTakes::Nothing });
            }
            if !self.flags.contains(letter) {
                return None;
            }
        }
        Some(OptionTakes::Nothing)
    }
}

/// True if a script of `sed` only prints, removes and replaces lines.
fn is_plain_sed(script: &str) -> bool {
    let mut rest = script.trim_start_matches([';', ' ']);
    while !rest.is_empty() {
        let Some(after) = skip_address(rest) else { return false };
        let mut letters = after.chars();
        let after = match letters.next() {
            Some('p' | 'd' | 'q' | '=') => Some(letters.as_str()),
            Some('s') => letters.next().and_then(|mark| skip_replacement(letters.as_str(), mark)),
            _ => None,
        };
        let Some(after) = after.map(|after| after.trim_start_matches(' ')) else { return false };
        if !after.is_empty() && !after.starts_with([';', '\n']) {
            return false;
        }
        rest = after.trim_start_matches([';', ' ', '\n']);
    }
    true
}

/// The rest behind `3`, `3,5`, `$`, `/x/` or `/x/,/y/`.
fn skip_address(script: &str) -> Option<&str> {
    let one = |text: &'_ str| -> Option<usize> {
        match text.strip_prefix('/') {
            Some(pattern) => end_of_part(pattern, '/').map(|end| end + 1),
            None => Some(
                text.len()
                    - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '$').len(),
            ),
        }
    };
    let rest = script.get(one(script)?..)?;
    let rest = match rest.strip_prefix(',') {
        Some(second) => second.get(one(second.trim_start_matches('+'))?..)?,
        None => rest,
    };
    Some(rest.trim_start_matches([' ', '!']))
}

/// The rest behind the two parts and the flags of a replacement. The flags `e` and `w` run a
/// program and write a file.
fn skip_replacement(text: &str, mark: char) -> Option<&str> {
    if mark.is_alphanumeric() || mark == '\\' || mark == '\n' {
        return None;
    }
    let text = text.get(end_of_part(text, mark)?..)?;
    let text = text.get(end_of_part(text, mark)?..)?;
    Some(
        text.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, 'g' | 'p' | 'i' | 'I')),
    )
}

/// The position behind the next mark without a backslash before it.
fn end_of_part(text: &str, mark: char) -> Option<usize> {
    let mut escaped = false;
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if letter == mark => return Some(at + mark.len_utf8()),
            _ => {}
        }
    }
    None
}

/// True if a program of `awk` opens nothing and runs nothing.
fn is_plain_awk(program: &str) -> bool {
    !program.contains(['|', '>', '<', '@'])
        && !["system", "getline", "close", "ARGV"].iter().any(|word| program.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find_commands;

    /// True if the last command of a script is a filter.
    fn last_is_filter(script: &str) -> bool {
        is_filter(find_commands(script).last().unwrap())
    }

    #[test]
    fn programs_that_only_read_a_pipe_are_filters() {
        for script in [
            "make | tail -20",
            "make 2>&1 | tail -n 20",
            "make | head -c 400",
            "make | grep -n TODO",
            "make | grep -A3 -B 2 -e x",
            "make | sort -u -k2,2 -t :",
            "make | wc -l",
            "make | cut -d: -f1",
            "make | tr -d '\\n'",
            "make | cat",
            "git log | sed -n 1,5p",
            "git log | sed -n '/a/,/b/p;s/x/y/g' ",
            "git log | sed -E 's#a/b#c#'",
            "git log | awk '{print $1}'",
            "git log | awk -F: '$1 == 2 {print $2}'",
            "git log | rg -n fix",
            "git log | less -R",
        ] {
            assert!(last_is_filter(script), "{script}");
        }
    }

    #[test]
    fn a_large_number_is_an_argument_and_no_descriptor() {
        for script in ["kill 2195639", "gh run view 16157320174", "echo 99999999999 > f"] {
            let commands = find_commands(script);
            assert!(commands.iter().all(|command| command.opaque.is_none()), "{script}");
        }
        assert!(find_commands("echo 99999999999> f").iter().any(|it| it.opaque.is_some()));
    }

    #[test]
    fn programs_that_open_a_file_are_no_filters() {
        for script in [
            "tail -20",
            "make | tail -20 log",
            "make | tail -f",
            "make | sort -o out",
            "make | sort --compress-program=x",
            "make | grep -f patterns",
            "make | sed 's/x/y/e'",
            "make | sed 's/x/y/w out'",
            "make | sed -n 'w out'",
            "make | sed '1e ls'",
            "make | sed -i s/x/y/",
            "make | sed -e p -e 'r f'",
            "make | sed s/x/y/ file",
            "make | awk '{print > \"f\"}'",
            "make | awk '{system(\"x\")}'",
            "make | awk '{print | \"sh\"}'",
            "make | awk -f prog",
            "make | awk '{print}' file",
            "make | rg --pre=x y",
            "make | rg x dir",
            "make | less file",
            "make | grep x file",
            "make | grep -e x file",
            "make | grep -r x",
            "make | cat /etc/passwd",
            "make | tail $X",
            "make | ./tail",
            "make | LD_PRELOAD=x tail",
            "make | xargs rm",
            "make | uniq - out",
            "make | tr a b c",
            "make | cut -f",
        ] {
            assert!(!last_is_filter(script), "{script}");
        }
    }
}
