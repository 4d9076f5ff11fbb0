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
    filter("cat", "AbEensTtuv", "", 0),
    filter("column", "te", "sc", 0),
    filter("cut", "sz", "bcdf", 0),
    filter("egrep", "aEFGHILZbchilnoqsvwxyz", "ABCem", 1),
    filter("fgrep", "aEFGHILZbchilnoqsvwxyz", "ABCem", 1),
    filter("fold", "bs", "w", 0),
    filter("grep", "aEFGHILPZbchilnoqsvwxyz", "ABCem", 1),
    filter("head", "0123456789qvz", "cn", 0),
    filter("nl", "p", "bdfhilnsvw", 0),
    filter("rev", "", "", 0),
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
            Some("") | None => others += 1,
            Some(letters) => match filter.option(letters) {
                Some(OptionTakes::Nothing) => {}
                // A pattern given as an option leaves no place for another.
                Some(OptionTakes::Next) => {
                    if rest.next().is_none() {
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
        ] {
            assert!(last_is_filter(script), "{script}");
        }
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
