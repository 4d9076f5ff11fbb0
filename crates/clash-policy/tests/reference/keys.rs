//! The ways in which one key can match, and how specific it is.

use clash_policy::pattern::{glob_matches, host_matches};
use clash_policy::rule::{KeyPattern, KeySubject, MatchKey};
use clash_shell::{CommandDirectory, NextWord, ShellWord, next_significant};

use super::ReferenceSubject;
use super::files;

/// The progress of the keys above.
#[derive(Clone, Copy, Default)]
pub(crate) struct KeyProgress {
    /// The number of words that the keys above have matched.
    used: usize,
    /// The index at which the remaining options begin.
    options: usize,
    /// An unknown word comes before, and may be any number of words.
    wild: bool,
    field: Option<usize>,
}

/// Smaller is more specific: the kind of key, its length (twice, for hosts and paths),
/// 1 for one of several alternatives, its index in the source, and the index of the
/// word it matches.
pub(crate) type KeyRank = (u8, i64, i64, u8, usize, usize);

/// One match of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyMatch {
    pub(crate) rank: KeyRank,
    /// The index of the alternative.
    pub(crate) key: usize,
    pub(crate) sure: bool,
    /// The field of the input it names.
    pub(crate) field: Option<usize>,
}

const LITERAL: u8 = 0;
const TUPLE: u8 = 1;
const HOST: u8 = 2;
const PATH: u8 = 3;
const PATTERN: u8 = 4;
const ANY: u8 = 5;

/// True for words and options other than `glob("**")`.
pub(crate) fn names_a_command(key: &MatchKey) -> bool {
    let about = matches!(key.subject, KeySubject::Word | KeySubject::Option);
    about && key.patterns.iter().all(|pattern| *pattern != KeyPattern::Any)
}

/// Every match of one key after the keys above, with the progress behind it.
pub(crate) fn ways(
    key: &MatchKey,
    order: usize,
    state: KeyProgress,
    thing: ReferenceSubject<'_>,
) -> Vec<(KeyMatch, KeyProgress)> {
    let several = key.patterns.len() > 1;
    let mut found = Vec::new();
    for (alternative, pattern) in key.patterns.iter().enumerate() {
        let matches = match key.subject {
            KeySubject::Tool => text(pattern, Some(&thing.action.tool), state),
            KeySubject::Mode => text(pattern, Some(&thing.action.mode), state),
            KeySubject::Agent => text(pattern, Some(&thing.action.agent), state),
            KeySubject::Word => word(pattern, state, thing),
            KeySubject::Option => option(pattern, state, thing),
            KeySubject::End => end(state, thing),
            KeySubject::Host => host(pattern, state, thing),
            KeySubject::Path => path(pattern, state, thing),
            KeySubject::Field => field(pattern, state, thing),
            KeySubject::Value => value(pattern, state, thing),
        };
        for (sure, next) in matches {
            let (kind, length, form) = specificity(key.subject, pattern, several, thing);
            // Among hosts it is the name that counts first.
            let tuple = u8::from(several && kind == HOST);
            let named = key.subject == KeySubject::Field && *pattern != KeyPattern::Any;
            let field = next.field.filter(|_| named);
            let rank = (kind, length, form, tuple, order, field.unwrap_or(next.used));
            found.push((KeyMatch { rank, key: alternative, sure, field }, next));
        }
    }
    found
}

/// The first three parts of the rank: the kind of key, and two lengths as negative numbers.
fn specificity(
    subject: KeySubject,
    pattern: &KeyPattern,
    several: bool,
    thing: ReferenceSubject<'_>,
) -> (u8, i64, i64) {
    match pattern {
        KeyPattern::Any => (ANY, 0, 0),
        KeyPattern::Literal(name) if subject == KeySubject::Host => {
            match (name.strip_prefix('='), name.strip_prefix("*.")) {
                (Some(only), _) => (HOST, -(only.len() as i64), 0),
                (_, Some(below)) => (HOST, -(below.len() as i64), 2),
                _ => (HOST, -(name.len() as i64), 1),
            }
        }
        KeyPattern::Literal(_) if several => (TUPLE, 0, 0),
        KeyPattern::Literal(_) => (LITERAL, 0, 0),
        KeyPattern::Path(path) => {
            let close = thing.file.and_then(|file| files::close(path, file, thing.context));
            let (kind, length) = close.map_or((0, 0), |close| close.rank);
            (PATH, -i64::from(kind), -(length as i64))
        }
        KeyPattern::Glob(glob) => {
            let prefix = glob.chars().take_while(|c| !matches!(c, '*' | '?')).count();
            (PATTERN, -(prefix as i64), 0)
        }
        KeyPattern::Regex(regex) => {
            let plain = |c: &char| c.is_alphanumeric() || matches!(c, '_' | '-' | '/');
            let prefix = regex.pattern.chars().take_while(plain).count();
            let next = regex.pattern.chars().nth(prefix);
            let quantified = next.is_some_and(|c| matches!(c, '*' | '+' | '?' | '{'));
            (PATTERN, -(prefix.saturating_sub(usize::from(quantified)) as i64), 0)
        }
        KeyPattern::Host(_) => (PATTERN, 0, 0),
    }
}

/// The matches of one pattern: whether each is certain, and the progress behind it.
type KeyMatches = Vec<(bool, KeyProgress)>;

/// True if a text pattern matches a whole text. Paths and hosts match no text.
fn is(pattern: &KeyPattern, text: &str) -> bool {
    match pattern {
        KeyPattern::Any => true,
        KeyPattern::Literal(literal) => literal == text,
        KeyPattern::Glob(glob) => glob_matches(glob, text),
        KeyPattern::Regex(regex) => regex.matches(text).unwrap(),
        KeyPattern::Path(_) | KeyPattern::Host(_) => false,
    }
}

/// A certain match if there is a text and the pattern matches it.
fn text(pattern: &KeyPattern, text: Option<&str>, state: KeyProgress) -> KeyMatches {
    text.filter(|text| is(pattern, text)).map(|_| (true, state)).into_iter().collect()
}

/// The words of the command; `None` for an opaque command, none for other tools.
fn words<'a>(thing: ReferenceSubject<'a>) -> Option<&'a [ShellWord]> {
    match thing.command {
        Some(command) if command.opaque.is_some() => None,
        Some(command) => Some(&command.words),
        None => Some(&[]),
    }
}

/// The next significant word. Behind an option it may be the value of the option; then
/// the next word is the one after it.
fn word(pattern: &KeyPattern, state: KeyProgress, thing: ReferenceSubject<'_>) -> KeyMatches {
    if *pattern == KeyPattern::Any {
        let all = thing.command.map_or(0, |command| command.words.len());
        return vec![(true, KeyProgress { used: all, ..state })];
    }
    let Some(words) = words(thing) else { return Vec::new() };
    let behind = |at, wild| KeyProgress { used: at + 1, options: at + 1, wild, ..state };
    if state.wild {
        let next = KeyProgress { options: state.used, ..state };
        return vec![(false, next)];
    }
    let mut found = match next_significant(words, state.used) {
        NextWord::End => Vec::new(),
        NextWord::Sure { index } => {
            let text = words[index].known().unwrap();
            let text = if index == 0 { base_name(text) } else { text };
            Vec::from_iter(is(pattern, text).then_some((true, behind(index, false))))
        }
        NextWord::Unsure => possible(pattern, words, state),
    };
    // A program may also be named by its path.
    if let (0, Some(ShellWord::Known(program))) = (state.used, words.first())
        && program.contains('/')
        && is(pattern, program)
    {
        let at_start = thing.command.is_some_and(|command| command.cwd == CommandDirectory::Start);
        found.push((program.starts_with('/') || at_start, behind(0, false)));
    }
    found
}

/// The name of a program without its directories.
fn base_name(program: &str) -> &str {
    program.split('/').next_back().unwrap()
}

/// The uncertain matches of a word where options may take values, up to the first word that
/// is unknown or cannot be a value.
fn possible(pattern: &KeyPattern, words: &[ShellWord], state: KeyProgress) -> KeyMatches {
    let mut found = Vec::new();
    let mut may_be_value = false;
    for (at, word) in words.iter().enumerate().skip(state.used) {
        let name = |text| if at == 0 { base_name(text) } else { text };
        let behind = KeyProgress { used: at + 1, options: at + 1, ..state };
        if at > 0 && word.prefix().starts_with(['-', '+']) {
            may_be_value = true;
            continue;
        }
        let known = match word {
            ShellWord::Known(text) => Some(text),
            ShellWord::Home(rest) if at == 0 => Some(rest),
            _ => None,
        };
        let Some(text) = known else {
            // An unknown word with this prefix. It may be an option, or none or many
            // words; then a later word may match.
            let could = match pattern {
                // It may be the value of the option.
                _ if may_be_value => true,
                KeyPattern::Literal(literal) if matches!(word, ShellWord::Home(_)) => {
                    literal.starts_with('/')
                }
                KeyPattern::Literal(literal) => literal.starts_with(name(word.prefix())),
                _ => true,
            };
            let one = match word {
                ShellWord::Unknown => false,
                ShellWord::Partial(start) => at == 0 || !start.is_empty(),
                _ => true,
            };
            let wild = may_be_value || !one;
            found.extend(could.then_some((false, KeyProgress { wild, ..behind })));
            break;
        };
        found.extend(is(pattern, name(text)).then_some((false, behind)));
        if !may_be_value {
            break;
        }
        may_be_value = false;
    }
    found
}

/// An option anywhere in the rest, bundled, with a value or abbreviated.
fn option(pattern: &KeyPattern, state: KeyProgress, thing: ReferenceSubject<'_>) -> KeyMatches {
    let Some(words) = words(thing) else { return Vec::new() };
    let rest = words.get(state.options..).unwrap_or_default();
    let abbreviates = |form: &str| match pattern {
        KeyPattern::Literal(long) => {
            long.starts_with("--") && form.len() > 2 && long.starts_with(form)
        }
        _ => false,
    };
    let (mut sure, mut possible, mut ended) = (false, state.wild, false);
    // `-rf` is also `-fr` and `-r -f`.
    if let KeyPattern::Literal(name) = pattern
        && name.starts_with('-')
        && !name.starts_with("--")
        && name.chars().count() > 2
    {
        let short = |word: &&str| word.starts_with('-') && !word.starts_with("--");
        let letters: String = rest.iter().filter_map(ShellWord::known).filter(short).collect();
        possible |= name.chars().all(|letter| letters.contains(letter));
    }
    for word in rest {
        match word {
            ShellWord::Known(word) => {
                if word.starts_with('-') && word.len() > 1 {
                    let name = word.split('=').next().unwrap();
                    let mut forms = vec![word.clone(), name.to_owned()];
                    if !word.starts_with("--") {
                        forms.extend(word.chars().skip(1).map(|letter| format!("-{letter}")));
                    }
                    let named = forms.iter().any(|form| is(pattern, form));
                    // Behind `--` it is an operand for most programs.
                    sure |= named && !ended;
                    possible |= named || forms.iter().any(|form| abbreviates(form));
                }
                ended |= word == "--";
            }
            ShellWord::Home(_) => {}
            ShellWord::Partial(start) if start.starts_with("--") && start.len() > 2 => {
                possible |= match (start.split_once('='), pattern) {
                    (Some((name, _)), _) => is(pattern, name) || abbreviates(name),
                    (None, KeyPattern::Literal(name)) => {
                        name.starts_with(start.as_str()) || start.starts_with(name.as_str())
                    }
                    (None, _) => true,
                };
            }
            ShellWord::Partial(start) => possible |= start.is_empty() || start.starts_with('-'),
            ShellWord::Unknown => possible = true,
        }
    }
    // Behind an unknown word, the option may come before the matched words.
    if sure || possible { vec![(sure && !state.wild, state)] } else { Vec::new() }
}

/// The end of the command: certain if no word is left, possible if only unknown ones are.
fn end(state: KeyProgress, thing: ReferenceSubject<'_>) -> KeyMatches {
    let Some(words) = words(thing) else { return Vec::new() };
    let rest = words.get(state.used..).unwrap_or_default();
    // Behind an unknown word, the rest may be part of it.
    if !state.wild && rest.iter().any(|word| word.known().is_some()) {
        return Vec::new();
    }
    vec![(rest.is_empty() && !state.wild, state)]
}

/// The host of the action; certain or not at all. `=name` leaves out subdomains.
fn host(pattern: &KeyPattern, state: KeyProgress, thing: ReferenceSubject<'_>) -> KeyMatches {
    let matches = match (pattern, thing.host) {
        (KeyPattern::Any, _) => true,
        (_, None) => false,
        (KeyPattern::Literal(name), Some(host)) => match name.strip_prefix('=') {
            Some(only) => only == host,
            None => host_matches(name, host),
        },
        (KeyPattern::Host(pattern), Some(host)) => pattern.matches(host),
        (pattern, Some(host)) => is(pattern, host),
    };
    if matches { vec![(true, state)] } else { Vec::new() }
}

/// The file of the action. A pattern that matches only a directory above it is uncertain.
fn path(pattern: &KeyPattern, state: KeyProgress, thing: ReferenceSubject<'_>) -> KeyMatches {
    match (pattern, thing.file) {
        (KeyPattern::Any, _) => vec![(true, state)],
        (KeyPattern::Path(pattern), Some(file)) => {
            let close = files::close(pattern, file, thing.context);
            close.map(|close| (!close.above, state)).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Every field of the input with this name. Patterns other than any and a literal match
/// none.
fn field(pattern: &KeyPattern, state: KeyProgress, thing: ReferenceSubject<'_>) -> KeyMatches {
    match pattern {
        KeyPattern::Any => vec![(true, state)],
        KeyPattern::Literal(name) => {
            let named = thing.fields.iter().enumerate().filter(|(_, field)| field.name == *name);
            named.map(|(at, _)| (true, KeyProgress { field: Some(at), ..state })).collect()
        }
        _ => Vec::new(),
    }
}

/// A field with several values matches for certain if all of them do.
fn value(pattern: &KeyPattern, state: KeyProgress, thing: ReferenceSubject<'_>) -> KeyMatches {
    let values = match state.field {
        Some(at) => thing.fields[at].values.as_slice(),
        None => &[],
    };
    let next = KeyProgress { field: None, ..state };
    let matching = values.iter().filter(|value| is(pattern, value)).count();
    if *pattern == KeyPattern::Any || matching > 0 {
        vec![(matching == values.len(), next)]
    } else {
        Vec::new()
    }
}
