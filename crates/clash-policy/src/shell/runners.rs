//! Programs that run what they are given in a way of their own: shells, and
//! those that take a command as a text or in the middle of their arguments.

use super::Word;
use super::walk::{Lookup, Stdin};
use super::wrappers::{Inner, Taken, Through, UNKNOWN_OPTION, UNKNOWN_PROGRAM, option};

/// A command text for `sh -c`.
fn text(word: Option<&Word>, args: Option<Vec<Word>>) -> Inner {
    match word {
        Some(Word::Known(text)) => Inner::Text { text: text.clone(), args, plain: true },
        _ => Inner::Hidden("it runs a text that is not known"),
    }
}

/// Words a program joins with blanks and gives to a shell.
fn joined(words: &[Word]) -> Inner {
    let known: Option<Vec<&str>> = words.iter().map(Word::known).collect();
    match known {
        Some(words) => Inner::Text { text: words.join(" "), args: None, plain: true },
        None => Inner::Hidden("it runs a text that is not known"),
    }
}

pub(super) fn find(args: &[Word]) -> Through {
    let mut through = Through::new("find");
    if args.iter().any(|word| !word.is_one()) {
        through = through.hidden("its arguments may run programs");
    }
    let mut rest = args;
    while let Some((word, after)) = rest.split_first() {
        rest = after;
        if !matches!(word.known(), Some("-exec" | "-execdir" | "-ok" | "-okdir")) {
            continue;
        }
        let end = rest.iter().position(|word| matches!(word.known(), Some(";" | "+")));
        let Some(end) = end else { return through.hidden(UNKNOWN_PROGRAM) };
        let placed = |word: &Word| match word {
            Word::Known(text) if text.contains("{}") => {
                Word::Partial(text.split("{}").next().unwrap_or_default().to_owned())
            }
            word => word.clone(),
        };
        let words: Vec<Word> = rest.iter().take(end).map(placed).collect();
        through = through.program(&words);
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    // A word that is not known may be `-exec` itself.
    let ends = args.iter().any(|word| matches!(word.known(), Some(";" | "+")));
    if ends && args.iter().any(|word| word.known().is_none() && word.prefix().is_empty()) {
        through = through.hidden("its arguments may run programs");
    }
    through
}

pub(super) fn xargs(args: &[Word]) -> Through {
    let mut through = Through { transparent: true, feeds: true, ..Through::new("xargs") };
    let mut args = args;
    let mut replaced: Option<String> = None;
    loop {
        let optional = args.first().and_then(Word::known).and_then(|w| {
            let rest = w.strip_prefix("-i").or_else(|| w.strip_prefix("--replace"))?;
            Some(rest.trim_start_matches('=').to_owned())
        });
        let attached = |w: &str| w.starts_with("-e") || w.starts_with("-l");
        if let Some(text) = optional {
            replaced = Some(if text.is_empty() { "{}".to_owned() } else { text });
            args = args.get(1..).unwrap_or_default();
            continue;
        }
        if args.first().and_then(Word::known).is_some_and(attached) {
            args = args.get(1..).unwrap_or_default();
            continue;
        }
        let long = [
            "null",
            "no-run-if-empty",
            "verbose",
            "interactive",
            "exit",
            "open-tty",
            "show-limits",
        ];
        let valued = [
            "max-args",
            "max-procs",
            "max-lines",
            "max-chars",
            "delimiter",
            "arg-file",
            "eof",
            "process-slot-var",
        ];
        match option(args, "0rtpxo", "nPLsdaEIJR", &long, &valued) {
            Taken::Operand => break,
            Taken::Option(count, found) => {
                for (name, value) in found {
                    if matches!(name.as_str(), "I" | "J") {
                        match value {
                            Some(Word::Known(text)) => replaced = Some(text),
                            _ => return through.hidden(UNKNOWN_PROGRAM),
                        }
                    }
                }
                args = args.get(count..).unwrap_or_default();
            }
            Taken::Unknown if args.first().is_some_and(|w| w.known().is_none()) => {
                return through.hidden(UNKNOWN_PROGRAM);
            }
            Taken::Unknown => return through.hidden(UNKNOWN_OPTION),
        }
    }
    if args.first().and_then(Word::known) == Some("--") {
        args = args.get(1..).unwrap_or_default();
    }
    if args.is_empty() {
        return through;
    }
    let mut words: Vec<Word> = args.to_vec();
    match &replaced {
        Some(mark) => {
            for word in &mut words {
                if let Word::Known(text) = word
                    && let Some((before, _)) = text.split_once(mark.as_str())
                {
                    *word = Word::Partial(before.to_owned());
                }
            }
        }
        None => words.push(Word::Unknown),
    }
    if words.first().and_then(Word::known).is_none() {
        through = through.hidden(UNKNOWN_PROGRAM);
    }
    through.program(&words)
}

pub(super) fn parallel(args: &[Word]) -> Through {
    let mut through = Through { transparent: true, feeds: true, ..Through::new("parallel") };
    let mut args = args;
    loop {
        let long = [
            "keep-order",
            "null",
            "line-buffer",
            "lb",
            "ungroup",
            "verbose",
            "dry-run",
            "progress",
            "bar",
            "eta",
            "no-notice",
            "will-cite",
            "halt-on-error",
            "no-run-if-empty",
        ];
        let valued = [
            "jobs",
            "max-procs",
            "max-args",
            "delay",
            "timeout",
            "retries",
            "colsep",
            "joblog",
            "halt",
            "arg-file",
            "delimiter",
        ];
        match option(args, "0krtuX", "jnaNPd", &long, &valued) {
            Taken::Operand => break,
            Taken::Option(count, _) => args = args.get(count..).unwrap_or_default(),
            Taken::Unknown => return through.hidden(UNKNOWN_OPTION),
        }
    }
    let separator = |word: &Word| matches!(word.known(), Some(":::" | "::::" | ":::+" | "::::+"));
    let end = args.iter().position(separator).unwrap_or(args.len());
    let template = args.get(..end).unwrap_or_default();
    if template.is_empty() {
        return through.hidden("it runs lines that are not known");
    }
    let known: Option<Vec<&str>> = template.iter().map(Word::known).collect();
    let Some(known) = known else { return through.hidden(UNKNOWN_PROGRAM) };
    let plain = |w: &&str| {
        let mark = w.starts_with('{') && w.ends_with('}');
        mark || w.bytes().all(|b| b.is_ascii_alphanumeric() || b"_./=:,@%+-".contains(&b))
    };
    if known.iter().all(plain) {
        let mut words: Vec<Word> = known
            .iter()
            .map(|w| if w.starts_with('{') { Word::Unknown } else { Word::Known((*w).to_owned()) })
            .collect();
        words.push(Word::Unknown);
        through = through.program(&words);
    } else {
        through.inner.push(if known.iter().any(|w| w.contains('{')) {
            Inner::Hidden("it runs a text that is not known")
        } else {
            joined(template)
        });
    }
    through
}

pub(super) fn flock(args: &[Word]) -> Through {
    let mut through = Through { transparent: true, ..Through::new("flock") };
    let mut args = args;
    let mut file = false;
    loop {
        let long = [
            "shared",
            "exclusive",
            "unlock",
            "nonblock",
            "nb",
            "close",
            "no-fork",
            "verbose",
            "fcntl",
        ];
        match option(
            args,
            "sxeunoFv",
            "wEc",
            &long,
            &["timeout", "wait", "conflict-exit-code", "command"],
        ) {
            Taken::Operand if !file => {
                if !args.first().is_none_or(Word::is_one) {
                    return through.hidden(UNKNOWN_PROGRAM);
                }
                file = true;
                args = args.get(1..).unwrap_or_default();
            }
            Taken::Operand => break,
            Taken::Option(count, found) => {
                for (name, value) in found {
                    if matches!(name.as_str(), "c" | "command") {
                        through.inner.push(text(value.as_ref(), None));
                    }
                }
                args = args.get(count..).unwrap_or_default();
            }
            Taken::Unknown
                if !file && args.first().is_some_and(|w| w.is_one() && w.known().is_none()) =>
            {
                file = true;
                args = args.get(1..).unwrap_or_default();
            }
            Taken::Unknown => return through.hidden(UNKNOWN_OPTION),
        }
    }
    through.program(args)
}

pub(super) fn watch(args: &[Word]) -> Through {
    let mut through = Through { transparent: true, ..Through::new("watch") };
    let mut args = args;
    let mut exec = false;
    loop {
        let long = [
            "beep",
            "color",
            "no-color",
            "differences",
            "errexit",
            "chgexit",
            "precise",
            "no-title",
            "no-wrap",
            "exec",
        ];
        match option(args, "bcCdegprtwx", "nq", &long, &["interval", "equexit"]) {
            Taken::Operand => break,
            Taken::Option(count, found) => {
                exec |= found.iter().any(|(name, _)| matches!(name.as_str(), "x" | "exec"));
                args = args.get(count..).unwrap_or_default();
            }
            Taken::Unknown => return through.hidden(UNKNOWN_OPTION),
        }
    }
    if args.first().and_then(Word::known) == Some("--") {
        args = args.get(1..).unwrap_or_default();
    }
    if exec {
        return through.program(args);
    }
    if !args.is_empty() {
        through.inner.push(joined(args));
    }
    through
}

pub(super) fn script(args: &[Word]) -> Through {
    let mut through = Through { transparent: true, ..Through::new("script") };
    let mut args = args;
    loop {
        let long = ["append", "return", "flush", "force", "quiet"];
        let valued =
            ["command", "echo", "log-in", "log-out", "log-io", "log-timing", "output-limit"];
        match option(args, "aefq", "cEIBOTom", &long, &valued) {
            Taken::Operand => match args.split_first() {
                // The file comes before or after the options.
                Some((file, rest)) if file.known() != Some("--") => args = rest,
                _ => break,
            },
            Taken::Option(count, found) => {
                for (name, value) in found {
                    if matches!(name.as_str(), "c" | "command") {
                        through.inner.push(text(value.as_ref(), None));
                    }
                }
                args = args.get(count..).unwrap_or_default();
            }
            Taken::Unknown => return through.hidden(UNKNOWN_OPTION),
        }
    }
    if through.inner.is_empty() {
        return through.hidden("it starts a shell");
    }
    through
}

pub(super) fn su(args: &[Word]) -> Through {
    let mut through = Through::new("su");
    let mut args = args;
    loop {
        match args.first().and_then(Word::known) {
            None if args.is_empty() => break,
            None => return through.hidden(UNKNOWN_PROGRAM),
            Some("-") => args = args.get(1..).unwrap_or_default(),
            Some(word) if !word.starts_with('-') => args = args.get(1..).unwrap_or_default(),
            Some("--") => return through.hidden(UNKNOWN_OPTION),
            Some(_) => match option(
                args,
                "lmpfP",
                "cgGsu",
                &["login", "preserve-environment", "pty"],
                &["command", "group", "shell", "user", "session-command"],
            ) {
                Taken::Option(count, found) => {
                    for (name, value) in found {
                        if name == "c" || name.ends_with("command") {
                            through.inner.push(text(value.as_ref(), None));
                        }
                        if name == "s" || name == "shell" {
                            through = through.hidden("it starts a shell");
                        }
                    }
                    args = args.get(count..).unwrap_or_default();
                }
                _ => return through.hidden(UNKNOWN_OPTION),
            },
        }
    }
    if through.inner.is_empty() {
        return through.hidden("it starts a shell");
    }
    through
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
    let mut through = Through { transparent: true, feeds: true, ..Through::new(by) };
    let mut args = args;
    let (mut command, mut reads) = (false, false);
    while let Some((word, rest)) = args.split_first() {
        let Some(option) = word.known() else {
            return through.hidden(if command {
                "it runs a text that is not known"
            } else {
                UNKNOWN_PROGRAM
            });
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
    let plain = !matches!(by, "bash");
    let script = match (command, args.split_first()) {
        (true, Some((Word::Known(text), rest))) => {
            let args = rest.get(1..).unwrap_or_default().to_vec();
            Some((text.clone(), Some(args)))
        }
        (true, Some(_)) => return through.hidden("it runs a text that is not known"),
        (true, None) => return through,
        (false, Some(_)) if !reads => return through.hidden("it runs a script file"),
        (false, _) => match stdin {
            Stdin::Text(text) => Some((text.clone(), None)),
            _ => return through.hidden("it runs what it reads"),
        },
    };
    let Some((text, args)) = script else { return through };
    if by == "fish" || (by == "zsh" && !same_in_zsh(&text)) {
        return through.hidden("another shell reads it differently than bash");
    }
    through.inner.push(Inner::Text { text, args, plain });
    through
}

/// Texts that zsh certainly reads as bash does.
fn same_in_zsh(text: &str) -> bool {
    const WORDS: &[&str] =
        &["noglob", "nocorrect", "repeat", "foreach", "-", "end", "always", "exec"];
    let plain = |b: u8| b.is_ascii_alphanumeric() || b" \n_./:,@%+-'\";&|".contains(&b);
    text.bytes().all(plain) && !text.split_ascii_whitespace().any(|word| WORDS.contains(&word))
}

/// `git` and others that give their own arguments to a text for `sh -c`.
pub(super) fn with_arguments(text: &str, args: &[Word]) -> Inner {
    let text = format!("{text} \"$@\"");
    Inner::Text { text, args: Some(args.to_vec()), plain: true }
}

pub(super) fn command_text(text: &str) -> Inner {
    Inner::Text { text: text.to_owned(), args: None, plain: true }
}

pub(super) fn programs(words: &[Word]) -> Inner {
    Inner::Command { words: words.to_vec(), lookup: Lookup::Programs }
}
