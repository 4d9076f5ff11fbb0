//! The ways in which one key can match, and how specific it is.

use clash_policy::pattern::{glob_matches, host_matches};
use clash_policy::rule::{Key, Pattern, Subject};
use clash_shell::{Cwd, Next, Word, next_significant};

use super::Thing;
use super::files;

/// How far the keys above have come.
#[derive(Clone, Copy, Default)]
pub(crate) struct State {
    /// Words used up.
    used: usize,
    /// Where the options that may still be named begin.
    options: usize,
    /// The shell decides what comes before, and it may be any number of words.
    wild: bool,
    field: Option<usize>,
}

/// Smaller is more specific: the kind of key, how long it is (twice, for hosts
/// and paths), whether it is one of several, its place in the source, and the
/// place of the word it matches.
pub(crate) type Rank = (u8, i64, i64, u8, usize, usize);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) rank: Rank,
    /// Which alternative of the key.
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

pub(crate) fn names_a_command(key: &Key) -> bool {
    let about = matches!(key.subject, Subject::Word | Subject::Option);
    about && key.patterns.iter().all(|pattern| *pattern != Pattern::Any)
}

pub(crate) fn ways(key: &Key, order: usize, state: State, thing: Thing<'_>) -> Vec<(Step, State)> {
    let several = key.patterns.len() > 1;
    let mut found = Vec::new();
    for (alternative, pattern) in key.patterns.iter().enumerate() {
        let matches = match key.subject {
            Subject::Tool => text(pattern, Some(&thing.action.tool), state),
            Subject::Mode => text(pattern, Some(&thing.action.mode), state),
            Subject::Agent => text(pattern, Some(&thing.action.agent), state),
            Subject::Word => word(pattern, state, thing),
            Subject::Option => option(pattern, state, thing),
            Subject::End => end(state, thing),
            Subject::Host => host(pattern, state, thing),
            Subject::Path => path(pattern, state, thing),
            Subject::Field => field(pattern, state, thing),
            Subject::Value => value(pattern, state, thing),
        };
        for (sure, next) in matches {
            let (kind, length, form) = specificity(key.subject, pattern, several, thing);
            // Among hosts it is the name that counts first.
            let tuple = u8::from(several && kind == HOST);
            let named = key.subject == Subject::Field && *pattern != Pattern::Any;
            let field = next.field.filter(|_| named);
            let rank = (kind, length, form, tuple, order, field.unwrap_or(next.used));
            found.push((Step { rank, key: alternative, sure, field }, next));
        }
    }
    found
}

fn specificity(
    subject: Subject,
    pattern: &Pattern,
    several: bool,
    thing: Thing<'_>,
) -> (u8, i64, i64) {
    match pattern {
        Pattern::Any => (ANY, 0, 0),
        Pattern::Literal(name) if subject == Subject::Host => {
            match (name.strip_prefix('='), name.strip_prefix("*.")) {
                (Some(only), _) => (HOST, -(only.len() as i64), 0),
                (_, Some(below)) => (HOST, -(below.len() as i64), 2),
                _ => (HOST, -(name.len() as i64), 1),
            }
        }
        Pattern::Literal(_) if several => (TUPLE, 0, 0),
        Pattern::Literal(_) => (LITERAL, 0, 0),
        Pattern::Path(path) => {
            let close = thing.file.and_then(|file| files::close(path, file, thing.world));
            let (kind, length) = close.map_or((0, 0), |close| close.rank);
            (PATH, -i64::from(kind), -(length as i64))
        }
        Pattern::Glob(glob) => {
            let prefix = glob.chars().take_while(|c| !matches!(c, '*' | '?')).count();
            (PATTERN, -(prefix as i64), 0)
        }
        Pattern::Regex(regex) => {
            let plain = |c: &char| c.is_alphanumeric() || matches!(c, '_' | '-' | '/');
            let prefix = regex.pattern.chars().take_while(plain).count();
            let next = regex.pattern.chars().nth(prefix);
            let quantified = next.is_some_and(|c| matches!(c, '*' | '+' | '?' | '{'));
            (PATTERN, -(prefix.saturating_sub(usize::from(quantified)) as i64), 0)
        }
        Pattern::Host(_) => (PATTERN, 0, 0),
    }
}

type Ways = Vec<(bool, State)>;

fn is(pattern: &Pattern, text: &str) -> bool {
    match pattern {
        Pattern::Any => true,
        Pattern::Literal(literal) => literal == text,
        Pattern::Glob(glob) => glob_matches(glob, text),
        Pattern::Regex(regex) => regex.matches(text).unwrap(),
        Pattern::Path(_) | Pattern::Host(_) => false,
    }
}

fn text(pattern: &Pattern, text: Option<&str>, state: State) -> Ways {
    text.filter(|text| is(pattern, text)).map(|_| (true, state)).into_iter().collect()
}

/// Words of the command; none for what is no command or cannot be looked into.
fn words<'a>(thing: Thing<'a>) -> Option<&'a [Word]> {
    match thing.command {
        Some(command) if command.opaque.is_some() => None,
        Some(command) => Some(&command.words),
        None => Some(&[]),
    }
}

/// The next significant word. Behind an option it may be the option's value, and
/// then the one after it is meant.
fn word(pattern: &Pattern, state: State, thing: Thing<'_>) -> Ways {
    if *pattern == Pattern::Any {
        let all = thing.command.map_or(0, |command| command.words.len());
        return vec![(true, State { used: all, ..state })];
    }
    let Some(words) = words(thing) else { return Vec::new() };
    let behind = |at, wild| State { used: at + 1, options: at + 1, wild, ..state };
    if state.wild {
        let next = State { options: state.used, ..state };
        return vec![(false, next)];
    }
    let mut found = match next_significant(words, state.used) {
        Next::End => Vec::new(),
        Next::Sure { index } => {
            let text = words[index].known().unwrap();
            let text = if index == 0 { base_name(text) } else { text };
            Vec::from_iter(is(pattern, text).then_some((true, behind(index, false))))
        }
        Next::Unsure => possible(pattern, words, state),
    };
    // A program may also be named by its path.
    if let (0, Some(Word::Known(program))) = (state.used, words.first())
        && program.contains('/')
        && is(pattern, program)
    {
        let at_start = thing.command.is_some_and(|command| command.cwd == Cwd::Start);
        found.push((program.starts_with('/') || at_start, behind(0, false)));
    }
    found
}

fn base_name(program: &str) -> &str {
    program.split('/').next_back().unwrap()
}

fn possible(pattern: &Pattern, words: &[Word], state: State) -> Ways {
    let mut found = Vec::new();
    let mut may_be_value = false;
    for (at, word) in words.iter().enumerate().skip(state.used) {
        let name = |text| if at == 0 { base_name(text) } else { text };
        let behind = State { used: at + 1, options: at + 1, ..state };
        if at > 0 && word.prefix().starts_with(['-', '+']) {
            may_be_value = true;
            continue;
        }
        let known = match word {
            Word::Known(text) => Some(text),
            Word::Home(rest) if at == 0 => Some(rest),
            _ => None,
        };
        let Some(text) = known else {
            // Any word that begins like this. It may be an option, or none or many
            // words, and then what follows is meant.
            let could = match pattern {
                // Or it is the option's value.
                _ if may_be_value => true,
                Pattern::Literal(literal) if matches!(word, Word::Home(_)) => {
                    literal.starts_with('/')
                }
                Pattern::Literal(literal) => literal.starts_with(name(word.prefix())),
                _ => true,
            };
            let one = match word {
                Word::Unknown => false,
                Word::Partial(start) => at == 0 || !start.is_empty(),
                _ => true,
            };
            let wild = may_be_value || !one;
            found.extend(could.then_some((false, State { wild, ..behind })));
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
fn option(pattern: &Pattern, state: State, thing: Thing<'_>) -> Ways {
    let Some(words) = words(thing) else { return Vec::new() };
    let rest = words.get(state.options..).unwrap_or_default();
    let abbreviates = |form: &str| match pattern {
        Pattern::Literal(long) => {
            long.starts_with("--") && form.len() > 2 && long.starts_with(form)
        }
        _ => false,
    };
    let (mut sure, mut possible, mut ended) = (false, state.wild, false);
    // `-rf` is also `-fr` and `-r -f`.
    if let Pattern::Literal(name) = pattern
        && name.starts_with('-')
        && !name.starts_with("--")
        && name.chars().count() > 2
    {
        let short = |word: &&str| word.starts_with('-') && !word.starts_with("--");
        let letters: String = rest.iter().filter_map(Word::known).filter(short).collect();
        possible |= name.chars().all(|letter| letters.contains(letter));
    }
    for word in rest {
        match word {
            Word::Known(word) => {
                if word.starts_with('-') && word.len() > 1 {
                    let name = word.split('=').next().unwrap();
                    let mut forms = vec![word.clone(), name.to_owned()];
                    if !word.starts_with("--") {
                        forms.extend(word.chars().skip(1).map(|letter| format!("-{letter}")));
                    }
                    let named = forms.iter().any(|form| is(pattern, form));
                    // Behind `--` it is an operand for programs that keep the custom.
                    sure |= named && !ended;
                    possible |= named || forms.iter().any(|form| abbreviates(form));
                }
                ended |= word == "--";
            }
            Word::Home(_) => {}
            Word::Partial(start) if start.starts_with("--") && start.len() > 2 => {
                possible |= match (start.split_once('='), pattern) {
                    (Some((name, _)), _) => is(pattern, name) || abbreviates(name),
                    (None, Pattern::Literal(name)) => {
                        name.starts_with(start.as_str()) || start.starts_with(name.as_str())
                    }
                    (None, _) => true,
                };
            }
            Word::Partial(start) => possible |= start.is_empty() || start.starts_with('-'),
            Word::Unknown => possible = true,
        }
    }
    // Behind a word that may be many, the option may stand before what is meant.
    if sure || possible { vec![(sure && !state.wild, state)] } else { Vec::new() }
}

fn end(state: State, thing: Thing<'_>) -> Ways {
    let Some(words) = words(thing) else { return Vec::new() };
    let rest = words.get(state.used..).unwrap_or_default();
    // Behind a word that may be many, the rest may have been meant before.
    if !state.wild && rest.iter().any(|word| word.known().is_some()) {
        return Vec::new();
    }
    vec![(rest.is_empty() && !state.wild, state)]
}

fn host(pattern: &Pattern, state: State, thing: Thing<'_>) -> Ways {
    let matches = match (pattern, thing.host) {
        (Pattern::Any, _) => true,
        (_, None) => false,
        (Pattern::Literal(name), Some(host)) => match name.strip_prefix('=') {
            Some(only) => only == host,
            None => host_matches(name, host),
        },
        (Pattern::Host(pattern), Some(host)) => pattern.matches(host),
        (pattern, Some(host)) => is(pattern, host),
    };
    if matches { vec![(true, state)] } else { Vec::new() }
}

fn path(pattern: &Pattern, state: State, thing: Thing<'_>) -> Ways {
    match (pattern, thing.file) {
        (Pattern::Any, _) => vec![(true, state)],
        (Pattern::Path(pattern), Some(file)) => {
            let close = files::close(pattern, file, thing.world);
            close.map(|close| (!close.above, state)).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn field(pattern: &Pattern, state: State, thing: Thing<'_>) -> Ways {
    match pattern {
        Pattern::Any => vec![(true, state)],
        Pattern::Literal(name) => {
            let named = thing.fields.iter().enumerate().filter(|(_, field)| field.name == *name);
            named.map(|(at, _)| (true, State { field: Some(at), ..state })).collect()
        }
        _ => Vec::new(),
    }
}

/// A field with several values matches for certain if all of them do.
fn value(pattern: &Pattern, state: State, thing: Thing<'_>) -> Ways {
    let values = match state.field {
        Some(at) => thing.fields[at].values.as_slice(),
        None => &[],
    };
    let next = State { field: None, ..state };
    let matching = values.iter().filter(|value| is(pattern, value)).count();
    if *pattern == Pattern::Any || matching > 0 {
        vec![(matching == values.len(), next)]
    } else {
        Vec::new()
    }
}
