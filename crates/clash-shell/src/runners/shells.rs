//! Shells, and programs that hand a text to one.

use super::super::walk::StandardInput;
use super::super::{ShellWord, all_known};
use super::options::{OptionTable, TakenOptions, without_dashes};
use super::{
    InnerCommand, RunnerCommands, STARTS_SHELL, UNKNOWN_OPTION, UNKNOWN_PROGRAM, UNKNOWN_TEXT,
};

/// Words a program joins with blanks and gives to a shell; hidden if a word is unknown.
pub(super) fn joined(words: &[ShellWord]) -> InnerCommand {
    match all_known(words) {
        Some(words) => InnerCommand::Text { text: words.join(" "), args: None, plain: true },
        None => InnerCommand::Hidden(UNKNOWN_TEXT),
    }
}

/// Adds the texts given to options of these names.
fn texts(found: &[(String, Option<ShellWord>)], names: &[&str], through: &mut RunnerCommands) {
    let given = found.iter().filter(|(name, _)| names.contains(&name.as_str()));
    through.inner.extend(given.map(|(_, value)| InnerCommand::text(value.as_ref())));
}

/// The command of `flock`: behind the file to lock, or given with `-c`.
pub(super) fn flock(args: &[ShellWord]) -> RunnerCommands {
    #[rustfmt::skip]
    const OPTIONS: OptionTable = OptionTable {
        flags: "sxeunoFv",
        valued: "wEc",
        long: &[
            "shared", "exclusive", "unlock", "nonblock", "nb", "close", "no-fork", "verbose",
            "fcntl",
        ],
        long_valued: &["timeout", "wait", "conflict-exit-code", "command"],
    };
    let mut through = RunnerCommands::transparent("flock");
    let mut args = args;
    // The file to lock, with options before and behind it.
    let mut file = false;
    loop {
        match (OPTIONS.take(args), args.split_first()) {
            (TakenOptions::Options(found, rest), _) => {
                texts(&found, &["c", "command"], &mut through);
                args = rest;
            }
            (TakenOptions::Operand, _) if file => break,
            (TakenOptions::Unknown, Some((word, _)))
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

/// The command of `watch`, which a shell reads unless `-x` is given.
pub(super) fn watch(args: &[ShellWord]) -> RunnerCommands {
    #[rustfmt::skip]
    const OPTIONS: OptionTable = OptionTable {
        flags: "bcCdegprtwx",
        valued: "nq",
        long: &[
            "beep", "color", "no-color", "differences", "errexit", "chgexit", "precise", "no-title",
            "no-wrap", "exec",
        ],
        long_valued: &["interval", "equexit"],
    };
    let through = RunnerCommands::transparent("watch");
    let mut args = args;
    let mut exec = false;
    loop {
        match OPTIONS.take(args) {
            TakenOptions::Operand => break,
            TakenOptions::Options(found, rest) => {
                exec |= found.iter().any(|(name, _)| matches!(name.as_str(), "x" | "exec"));
                args = rest;
            }
            TakenOptions::Unknown => return through.hidden(UNKNOWN_OPTION),
        }
    }
    match without_dashes(args) {
        [] => through,
        args if exec => through.program(args),
        args => through.running(joined(args)),
    }
}

/// The command of `script -c`; without one it starts a shell.
pub(super) fn script(args: &[ShellWord]) -> RunnerCommands {
    const OPTIONS: OptionTable = OptionTable {
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
    let mut through = RunnerCommands::transparent("script");
    let mut args = args;
    loop {
        match OPTIONS.take(args) {
            TakenOptions::Operand => match args.split_first() {
                // The file comes before or after the options.
                Some((file, rest)) if file.known() != Some("--") => args = rest,
                _ => break,
            },
            TakenOptions::Options(found, rest) => {
                texts(&found, &["c", "command"], &mut through);
                args = rest;
            }
            TakenOptions::Unknown => return through.hidden(UNKNOWN_OPTION),
        }
    }
    if through.inner.is_empty() { through.hidden(STARTS_SHELL) } else { through }
}

/// The command of `su -c`; without one, or with another shell, it starts a shell.
pub(super) fn su(args: &[ShellWord]) -> RunnerCommands {
    const OPTIONS: OptionTable = OptionTable {
        flags: "lmpfP",
        valued: "cgGsu",
        long: &["login", "preserve-environment", "pty"],
        long_valued: &["command", "group", "shell", "user", "session-command"],
    };
    let mut through = RunnerCommands::new("su");
    let mut args = args;
    while let Some((first, rest)) = args.split_first() {
        args = match (OPTIONS.take(args), first.known()) {
            (_, None) => return through.hidden(UNKNOWN_PROGRAM),
            (TakenOptions::Unknown, _) | (_, Some("--")) => return through.hidden(UNKNOWN_OPTION),
            (TakenOptions::Operand, _) => rest,
            (TakenOptions::Options(found, rest), _) => {
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

/// A shell: it runs the text behind `-c`, a script file, or its standard input. A text is
/// hidden if it is unknown, and if zsh or fish may read it differently than bash.
pub(super) fn shell(name: &str, args: &[ShellWord], stdin: &StandardInput) -> RunnerCommands {
    let by = match name {
        "bash" | "rbash" => "bash",
        "zsh" => "zsh",
        "fish" => "fish",
        "dash" => "dash",
        _ => "sh",
    };
    let through = RunnerCommands { feeds: true, ..RunnerCommands::transparent(by) };
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
        (true, Some((ShellWord::Known(text), rest))) => {
            (text.clone(), Some(rest.get(1..).unwrap_or_default().to_vec()))
        }
        (true, Some(_)) => return through.hidden(UNKNOWN_TEXT),
        (true, None) => return through,
        (false, Some((ShellWord::Known(file), rest))) if !reads => {
            return through.program(&script_file(file, rest));
        }
        (false, Some(_)) if !reads => return through.hidden("it runs a script file"),
        (false, _) => match stdin {
            StandardInput::Text(text) => (text.clone(), None),
            _ => return through.hidden("it runs what it reads"),
        },
    };
    if by == "fish" || (by == "zsh" && !same_in_zsh(&text)) {
        return through.hidden("another shell reads it differently than bash");
    }
    through.running(InnerCommand::Text { text, args, plain: by != "bash" })
}

/// A script file is a program like any other: `bash build.sh -q` runs `./build.sh -q`.
/// With a slash, the name is a path and never a program on `PATH`.
fn script_file(file: &str, args: &[ShellWord]) -> Vec<ShellWord> {
    let path = if file.contains('/') { file.to_owned() } else { format!("./{file}") };
    std::iter::once(ShellWord::Known(path)).chain(args.iter().cloned()).collect()
}

/// True for texts that zsh certainly reads as bash does: plain words, quotes and
/// separators.
fn same_in_zsh(text: &str) -> bool {
    const WORDS: &[&str] =
        &["noglob", "nocorrect", "repeat", "foreach", "-", "end", "always", "exec"];
    let plain = |b: u8| b.is_ascii_alphanumeric() || b" \n_./:,@%+-'\";&|".contains(&b);
    text.bytes().all(plain) && !text.split_ascii_whitespace().any(|word| WORDS.contains(&word))
}
