//! The options of a command line, as GNU programs read them.

use super::super::ShellWord;

/// The options a program has.
pub(super) struct OptionTable {
    /// Short options without a value, and with one.
    pub(super) flags: &'static str,
    pub(super) valued: &'static str,
    /// Long options without a value (or an optional `=value`), and with one.
    pub(super) long: &'static [&'static str],
    pub(super) long_valued: &'static [&'static str],
}

/// The start of a command line.
pub(super) enum TakenOptions<'w> {
    /// No option: the operands begin here.
    Operand,
    /// One word of options by their names, with the value of the last one, and
    /// the words behind them.
    Options(Vec<(String, Option<ShellWord>)>, &'w [ShellWord]),
    /// An option the program may have, or a word that may be one.
    Unknown,
}

/// The words without a leading `--`.
pub(in super::super) fn without_dashes(args: &[ShellWord]) -> &[ShellWord] {
    match args {
        [ShellWord::Known(dashes), rest @ ..] if dashes == "--" => rest,
        args => args,
    }
}

impl OptionTable {
    /// The options in the first word, with the value of the last one. `--` begins the
    /// operands and stays.
    pub(super) fn take<'w>(&self, args: &'w [ShellWord]) -> TakenOptions<'w> {
        let Some((first, rest)) = args.split_first() else { return TakenOptions::Operand };
        let Some(text) = first.known() else { return TakenOptions::Unknown };
        match (text.strip_prefix("--"), text.strip_prefix('-')) {
            (Some(""), _) | (_, Some("") | None) => TakenOptions::Operand,
            (Some(name), _) => self.take_long(name, rest),
            (None, Some(letters)) => self.take_short(letters, rest),
        }
    }

    /// An option such as `--name=value`. Abbreviations are unknown.
    fn take_long<'w>(&self, option: &str, rest: &'w [ShellWord]) -> TakenOptions<'w> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(ShellWord::Known(value.to_owned()))),
            None => (option, None),
        };
        if self.long.contains(&name) || (value.is_some() && self.long_valued.contains(&name)) {
            return TakenOptions::Options(vec![(name.to_owned(), value)], rest);
        }
        match rest.split_first() {
            Some((value, rest)) if value.is_one() && self.long_valued.contains(&name) => {
                TakenOptions::Options(vec![(name.to_owned(), Some(value.clone()))], rest)
            }
            _ => TakenOptions::Unknown,
        }
    }

    /// Bundled letters, such as `-xvf file`.
    fn take_short<'w>(&self, letters: &str, rest: &'w [ShellWord]) -> TakenOptions<'w> {
        let mut found = Vec::new();
        for (at, letter) in letters.char_indices() {
            if self.flags.contains(letter) {
                found.push((letter.to_string(), None));
                continue;
            }
            if !self.valued.contains(letter) {
                return TakenOptions::Unknown;
            }
            let attached = letters.get(at + letter.len_utf8()..).unwrap_or_default();
            let (value, rest) = match rest.split_first() {
                _ if !attached.is_empty() => (ShellWord::Known(attached.to_owned()), rest),
                Some((value, rest)) if value.is_one() => (value.clone(), rest),
                _ => return TakenOptions::Unknown,
            };
            found.push((letter.to_string(), Some(value)));
            return TakenOptions::Options(found, rest);
        }
        TakenOptions::Options(found, rest)
    }
}
