//! Shells, and programs that hand a text to one.

use super::super::walk::Stdin;
use super::super::{Word, all_known};
use super::options::{Options, Taken, without_dashes};
use super::{Inner, STARTS_SHELL, Through, UNKNOWN_OPTION, UNKNOWN_PROGRAM, UNKNOWN_TEXT};

/// Words a program joins with blanks and gives to a shell.
pub(super) fn joined(words: &[Word]) -> Inner {
    match all_known(words) {
        Some(words) => Inner::Text { text: words.join(" "), args: None, plain: true },
        None => Inner::Hidden(UNKNOWN_TEXT),
    }
}

/// The texts given to options of these names.
fn texts(found: &[(String, Option<Word>)], names: &[&str], through: &mut Through) {
    let given = found.iter().filter(|(name, _)| names.contains(&name.as_str()));
    through.inner.extend(given.map(|(_, value)| Inner::text(value.as_ref())));
}

pub(super) fn flock(args: &[Word]) -> Through {
    #[rustfmt::skip]
    const OPTIONS: Options = Options {
        flags: "sxeunoFv",
        valued: "wEc",
        long: &[
            "shared", "exclusive", "unlock", "nonblock", "nb", "close", "no-fork", "verbose",
            "fcntl",
        ],
        long_valued: &["timeout", "wait", "conflict-exit-code", "command"],
    };
    let mut through = Through::transparent("flock");
    let mut args = args;
    // The file to lock, with options before and behind it.
    let mut file = false;
    loop {
        match (OPTIONS.take(args), args.split_first()) {
            (Taken::Options(found, rest), _) => {
                texts(&found, &["c", "command"], &mut through);
                args = rest;
            }
            (Taken::Operand, _) if file => break,
            (Taken::Unknown, Some((word, _)))
                if file || !word.is_one() || word.known().is_some() =>
            {
                return through.hidden(UNKNOWN_OPTION);
            }
            (_, first) => {
                file = true;
                args = first.map_or(&[], |(_, rest)| rest);
            }
        }
    }
    through.program(args)
}

pub(super) fn watch(args: &[Word]) -> Through {
    #[rustfmt::skip]
    const OPTIONS: Options = Options {
        flags: "bcCdegprtwx",
        valued: "nq",
        long: &[
            "beep", "color", "no-color", "differences", "errexit", "chgexit", "precise", "no-title",
            "no-wrap", "exec",
        ],
        long_valued: &["interval", "equexit"],
    };
    let through = Through::transparent("watch");
    let mut args = args;
    let mut exec = false;
    loop {
        match OPTIONS.take(args) {
            Taken::Operand => break,
            Taken::Options(found, rest) => {
                exec |= found.iter().any(|(name, _)| matches!(name.as_str(), "x" | "exec"));
                args = rest;
            }
            Taken::Unknown => return through.hidden(UNKNOWN_OPTION),
        }
    }
    match without_dashes(args) {
        [] => through,
        args if exec => through.program(args),
        args => through.running(joined(args)),
    }
}

pub(super) fn script(args: &[Word]) -> Through {
    const OPTIONS: Options = Options {
        flags: "aefq",
        valued: "cEIBOTom",
        long: &["append", "return", "flush", "force", "quiet"],
        long_valued: &[
            "command",
            "echo",
            "log-in",
            "log-out",
            "log-io",
            "log-timing",
            "output-limit",
        ],
    };
    let mut through = Through::transparent("script");
    let mut args = args;
    loop {
        match OPTIONS.take(args) {
            Taken::Operand => match args.split_first() {
                // The file comes before or after the options.
                Some((file, rest)) if file.known() != Some("--") => args = rest,
                _ => break,
            },
            Taken::Options(found, rest) => {
                texts(&found, &["c", "command"], &mut through);
                args = rest;
            }
            Taken::Unknown => return through.hidden(UNKNOWN_OPTION),
        }
    }
    if through.inner.is_empty() { through.hidden(STARTS_SHELL) } else { through }
}

pub(super) fn su(args: &[Word]) -> Through {
    const OPTIONS: Options = Options {
        flags: "lmpfP",
        valued: "cgGsu",
        long: &["login", "preserve-environment", "pty"],
        long_valued: &["command", "group", "shell", "user", "session-command"],
    };
    let mut through = Through::new("su");
    let mut args = args;
    while let Some((first, rest)) = args.split_first() {
        args = match (OPTIONS.take(args), first.known()) {
            (_, None) => return through.hidden(UNKNOWN_PROGRAM),
            (Taken::Unknown, _) | (_, Some("--")) => return through.hidden(UNKNOWN_OPTION),
            (Taken::Operand, _) => rest,
            (Taken::Options(found, rest), _) => {
                texts(&found, &["c", "command", "session-command"], &mut through);
                if found.iter().any(|(name, _)| matches!(name.as_str(), "s" | "shell")) {
                    through = through.hidden(STARTS_SHELL);
                }
                rest
            }
        };
    }
    if through.inner.is_empty() { through.hidden(STARTS_SHELL) } else { through }
}

/// A shell: the text behind `-c`, a script file, or what it reads.
pub(super) fn shell(name: &str, args: &[Word], stdin: &Stdin) -> Through {
    let by = match name {
        "bash" | "rbash" => "bash",
        "zsh" => "zsh",
        "fish" => "fish",
        "dash" => "dash",
        _ => "sh",
    };
    let through = Through { feeds: true, ..Through::transparent(by) };
    let mut args = args;
    let (mut command, mut reads) = (false, false);
    while let Some((word, rest)) = args.split_first() {
        let Some(option) = word.known() else {
            return through.hidden(if command { UNKNOWN_TEXT } else { UNKNOWN_PROGRAM });
        };
        match option {
            "--" | "-" => {
                args = rest;
                break;
            }
            "--version" | "--help" => return through,
            "--norc" | "--noprofile" | "--login" | "--posix" | "--restricted" | "--verbose" => {}
            _ if option.starts_with("--") => return through.hidden(UNKNOWN_OPTION),
            _ if option.starts_with(['-', '+']) => {
                let letters = option.get(1..).unwrap_or_default();
                if !letters.chars().all(|c| "abcefhlmnosuvxBCEPTO".contains(c)) {
                    return through.hidden(UNKNOWN_OPTION);
                }
                command |= letters.contains('c') && option.starts_with('-');
                reads |= letters.contains('s');
                // Each takes the next word.
                let values = letters.chars().filter(|c| matches!(c, 'o' | 'O')).count();
                let named = rest.get(..values).unwrap_or_default();
                let plain = [
                    "pipefail", "errexit", "nounset", "xtrace", "noglob", "extglob", "nullglob",
                    "globstar",
                ];
                if !named.iter().all(|w| w.known().is_some_and(|w| plain.contains(&w))) {
                    return through.hidden(UNKNOWN_OPTION);
                }
                args = rest.get(values..).unwrap_or_default();
                continue;
            }
            _ => break,
        }
        args = rest;
    }
    let (text, args) = match (command, args.split_first()) {
        (true, Some((Word::Known(text), rest))) => {
            (text.clone(), Some(rest.get(1..).unwrap_or_default().to_vec()))
        }
        (true, Some(_)) => return through.hidden(UNKNOWN_TEXT),
        (true, None) => return through,
        (false, Some((Word::Known(file), rest))) if !reads => {
            return through.program(&script_file(file, rest));
        }
        (false, Some(_)) if !reads => return through.hidden("it runs a script file"),
        (false, _) => match stdin {
            Stdin::Text(text) => (text.clone(), None),
            _ => return through.hidden("it runs what it reads"),
        },
    };
    if by == "fish" || (by == "zsh" && !same_in_zsh(&text)) {
        return through.hidden("another shell reads it differently than bash");
    }
    through.running(Inner::Text { text, args, plain: by != "bash" })
}

/// A script file is a program like any other: `bash build.sh -q` runs `./build.sh -q`.
/// With a slash in it the name is a path and never a program on `PATH`.
fn script_file(file: &str, args: &[Word]) -> Vec<Word> {
    let path = if file.contains('/') { file.to_owned() } else { format!("./{file}") };
    std::iter::once(Word::Known(path)).chain(args.iter().cloned()).collect()
}

/// Texts that zsh certainly reads as bash does.
fn same_in_zsh(text: &str) -> bool {
    const WORDS: &[&str] =
        &["noglob", "nocorrect", "repeat", "foreach", "-", "end", "always", "exec"];
    let plain = |b: u8| b.is_ascii_alphanumeric() || b" \n_./:,@%+-'\";&|".contains(&b);
    text.bytes().all(plain) && !text.split_ascii_whitespace().any(|word| WORDS.contains(&word))
}
