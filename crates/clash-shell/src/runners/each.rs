//! Programs that run a command once per item: `find -exec`, `xargs`, `parallel`.

use super::super::{ShellWord, all_known};
use super::options::{OptionTable, TakenOptions, without_dashes};
use super::{RunnerCommands, UNKNOWN_OPTION, UNKNOWN_PROGRAM, UNKNOWN_TEXT, shells};

/// The word after the program has replaced a mark such as `{}` in it: only the text before
/// the mark is known.
fn replaced(word: &ShellWord, mark: &str) -> ShellWord {
    match word.known().and_then(|text| text.split_once(mark)) {
        Some((before, _)) => ShellWord::Partial(before.to_owned()),
        None => word.clone(),
    }
}

/// The commands of `-exec`, `-execdir`, `-ok` and `-okdir`. Unknown words that may be such
/// an option hide a command.
pub(super) fn find(args: &[ShellWord]) -> RunnerCommands {
    let mut through = RunnerCommands::new("find");
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
        let words: Vec<ShellWord> =
            rest.iter().take(end).map(|word| replaced(word, "{}")).collect();
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

/// The command of `xargs`, with an unknown number of words behind it or in the place of the
/// mark.
pub(super) fn xargs(args: &[ShellWord]) -> RunnerCommands {
    #[rustfmt::skip]
    const OPTIONS: OptionTable = OptionTable {
        flags: "0rtpxo",
        valued: "nPLsdaEIJR",
        long: &[
            "null", "no-run-if-empty", "verbose", "interactive", "exit", "open-tty", "show-limits",
        ],
        long_valued: &[
            "max-args", "max-procs", "max-lines", "max-chars", "delimiter", "arg-file", "eof",
            "process-slot-var",
        ],
    };
    let mut through = RunnerCommands { feeds: true, ..RunnerCommands::transparent("xargs") };
    let mut args = args;
    let mut mark: Option<String> = None;
    loop {
        // Options whose value can only be attached.
        if let [ShellWord::Known(first), rest @ ..] = args {
            let replace = first.strip_prefix("-i").or_else(|| first.strip_prefix("--replace"));
            if let Some(given) = replace {
                let given = given.trim_start_matches('=');
                mark = Some(if given.is_empty() { "{}" } else { given }.to_owned());
            }
            if replace.is_some() || first.starts_with("-e") || first.starts_with("-l") {
                args = rest;
                continue;
            }
        }
        let (found, rest) = match OPTIONS.take(args) {
            TakenOptions::Operand => break,
            TakenOptions::Options(found, rest) => (found, rest),
            TakenOptions::Unknown if args.first().is_some_and(|w| w.known().is_none()) => {
                return through.hidden(UNKNOWN_PROGRAM);
            }
            TakenOptions::Unknown => return through.hidden(UNKNOWN_OPTION),
        };
        for (_, value) in found.into_iter().filter(|(name, _)| matches!(name.as_str(), "I" | "J")) {
            match value {
                Some(ShellWord::Known(text)) => mark = Some(text),
                _ => return through.hidden(UNKNOWN_PROGRAM),
            }
        }
        args = rest;
    }
    args = without_dashes(args);
    if args.is_empty() {
        return through;
    }
    let words = match &mark {
        Some(mark) => args.iter().map(|word| replaced(word, mark)).collect(),
        None => [args, &[ShellWord::Unknown]].concat(),
    };
    if words.first().and_then(ShellWord::known).is_none() {
        through = through.hidden(UNKNOWN_PROGRAM);
    }
    through.program(&words)
}

/// The command of GNU `parallel`. Its words are given to a shell again, so words that are
/// not plain are a text or hidden.
pub(super) fn parallel(args: &[ShellWord]) -> RunnerCommands {
    #[rustfmt::skip]
    const OPTIONS: OptionTable = OptionTable {
        flags: "0krtuX",
        valued: "jnaNPd",
        long: &[
            "keep-order", "null", "line-buffer", "lb", "ungroup", "verbose", "dry-run", "progress",
            "bar", "eta", "no-notice", "will-cite", "halt-on-error", "no-run-if-empty",
        ],
        long_valued: &[
            "jobs", "max-procs", "max-args", "delay", "timeout", "retries", "colsep", "joblog",
            "halt", "arg-file", "delimiter",
        ],
    };
    let through = RunnerCommands { feeds: true, ..RunnerCommands::transparent("parallel") };
    let mut args = args;
    loop {
        match OPTIONS.take(args) {
            TakenOptions::Operand => break,
            TakenOptions::Options(_, rest) => args = rest,
            TakenOptions::Unknown => return through.hidden(UNKNOWN_OPTION),
        }
    }
    let separator =
        |word: &ShellWord| matches!(word.known(), Some(":::" | "::::" | ":::+" | "::::+"));
    let end = args.iter().position(separator).unwrap_or(args.len());
    let template = args.get(..end).unwrap_or_default();
    if template.is_empty() {
        return through.hidden("it runs lines that are not known");
    }
    let Some(known) = all_known(template) else { return through.hidden(UNKNOWN_PROGRAM) };
    let plain = |w: &&str| {
        let mark = w.starts_with('{') && w.ends_with('}');
        mark || w.bytes().all(|b| b.is_ascii_alphanumeric() || b"_./=:,@%+-".contains(&b))
    };
    if known.iter().all(plain) {
        let mut words: Vec<ShellWord> = known
            .iter()
            .map(|w| {
                if w.starts_with('{') {
                    ShellWord::Unknown
                } else {
                    ShellWord::Known((*w).to_owned())
                }
            })
            .collect();
        words.push(ShellWord::Unknown);
        through.program(&words)
    } else if known.iter().any(|w| w.contains('{')) {
        through.hidden(UNKNOWN_TEXT)
    } else {
        through.running(shells::joined(template))
    }
}
