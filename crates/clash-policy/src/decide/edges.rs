//! The keys of one tree node that match, or could match once the shell has
//! expanded its words, most specific first: single literals, tuples, globs and
//! expressions by their literal prefix, then whatever-is-there.
//!
//! Literal keys are looked up, not scanned, as long as the words are known: the
//! cost of a decision must not grow with the policy.

use crate::ir::{EdgeRef, Matcher, NodeRef};
use crate::judge::closeness;
use crate::pattern::host_matches;
use crate::rule::{ONLY_HOST, Subject};
use crate::shell::{Next, Word, next_significant};

use super::DecideError;
use super::facts::Facts;

type Result<T> = std::result::Result<T, DecideError>;

/// How far a walk has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    /// The next word of a command.
    at: usize,
    /// Where its remaining options begin.
    options: usize,
    /// A word the shell decides stands before this place, and may have become
    /// any number of words.
    wild: bool,
    /// The field whose values come next.
    field: Option<usize>,
}

pub(super) struct Step<'a> {
    pub(super) edge: EdgeRef<'a>,
    pub(super) next: Place,
    /// Whether the key matches whatever the shell makes of the words.
    pub(super) sure: bool,
}

/// A word that may come next, with the place behind it.
struct Candidate<'x> {
    text: &'x str,
    next: usize,
    sure: bool,
}

/// The words that may come next: one of the known, or one that the shell decides.
struct Words<'x> {
    known: Vec<Candidate<'x>>,
    open: Option<Open<'x>>,
}

/// Any word that begins with this text.
struct Open<'x> {
    prefix: &'x str,
    next: usize,
    /// It may become any number of words.
    wild: bool,
}

impl Open<'_> {
    fn place(&self, place: Place) -> Place {
        Place { wild: self.wild, ..behind(place, self.next) }
    }
}

/// Beyond this many words a command is taken to hold any word.
const LOOK_AHEAD: usize = 64;

pub(super) fn steps<'a>(
    node: &NodeRef<'a>,
    facts: &Facts<'_>,
    place: Place,
) -> Result<Vec<Step<'a>>> {
    let mut steps = Vec::new();
    let words = next_words(facts, place);
    words_steps(node, place, &words, &mut steps)?;
    option_steps(node, facts, place, &mut steps)?;
    if let Some(sure) = ends(facts, place) {
        let found = node.exact(Subject::End, "")?;
        steps.extend(found.into_iter().map(|edge| Step { edge, next: place, sure }));
    }
    for subject in Subject::ROOT {
        if let Some(text) = facts.text(subject) {
            let found = node.exact(subject, text)?;
            steps.extend(found.into_iter().map(|edge| Step { edge, next: place, sure: true }));
        }
    }
    field_steps(node, facts, place, &mut steps)?;
    steps.sort_by_key(|step| (step.edge.rank, step.edge.order));
    let sure = |edge| Step { edge, next: place, sure: true };
    steps.extend(host_edges(node, facts)?.into_iter().map(sure));
    path_steps(node, facts, place, &mut steps)?;
    for edge in node.patterns()? {
        let edge = edge?;
        pattern_steps(edge, facts, place, &words, &mut steps)?;
    }
    Ok(steps)
}

fn words_steps<'a>(
    node: &NodeRef<'a>,
    place: Place,
    words: &Words<'_>,
    steps: &mut Vec<Step<'a>>,
) -> Result<()> {
    if let Some(open) = &words.open {
        for edge in node.literals_of(Subject::Word)? {
            let edge = edge?;
            if edge.text.starts_with(open.prefix) {
                steps.push(Step { edge, next: open.place(place), sure: false });
            }
        }
    }
    for Candidate { text, next, sure } in &words.known {
        let next = behind(place, *next);
        let found = node.exact(Subject::Word, text)?;
        steps.extend(found.into_iter().map(|edge| Step { edge, next, sure: *sure }));
    }
    Ok(())
}

fn behind(place: Place, next: usize) -> Place {
    Place { at: next, options: next, ..place }
}

fn next_words<'x>(facts: &'x Facts<'_>, place: Place) -> Words<'x> {
    let none = Words { known: Vec::new(), open: None };
    if facts.opaque {
        return none;
    }
    if place.wild {
        return Words { open: Some(Open { prefix: "", next: place.at, wild: true }), ..none };
    }
    let mut words = match next_significant(facts.words, place.at) {
        Next::End => none,
        Next::Sure { index } => match facts.words.get(index).and_then(Word::known) {
            Some(word) => {
                let text = if index == 0 { base_name(word) } else { word };
                Words { known: vec![Candidate { text, next: index + 1, sure: true }], open: None }
            }
            None => none,
        },
        Next::Unsure => possible_words(facts, place),
    };
    if place.at == 0 {
        words.known.extend(program_by_path(facts));
    }
    words
}

/// A key may also name a program by its path, as it is written.
fn program_by_path<'x>(facts: &'x Facts<'_>) -> Option<Candidate<'x>> {
    let text = facts.words.first()?.known().filter(|word| word.contains('/'))?;
    Some(Candidate { text, next: 1, sure: text.starts_with('/') || facts.at_start })
}

/// The next significant word stands behind options, each of which may have
/// taken the word after it as its value.
fn possible_words<'x>(facts: &'x Facts<'_>, place: Place) -> Words<'x> {
    let rest = facts.words.get(place.at..).unwrap_or_default();
    let mut known = Vec::new();
    let mut after_option = false;
    for (offset, word) in rest.iter().enumerate() {
        let next = place.at + offset + 1;
        let program = place.at + offset == 0;
        let Some(text) = word.known().filter(|_| offset <= LOOK_AHEAD) else {
            let prefix = if program { base_name(word.prefix()) } else { word.prefix() };
            let open = Open { prefix, next, wild: !word.is_one() || after_option };
            return Words { known, open: Some(open) };
        };
        if text.starts_with(['-', '+']) && !program {
            after_option = true;
            continue;
        }
        let text = if program { base_name(text) } else { text };
        known.push(Candidate { text, next, sure: false });
        if !after_option {
            break;
        }
        after_option = false;
    }
    Words { known, open: None }
}

/// A program is known by its name, wherever it lies.
fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

fn option_steps<'a>(
    node: &NodeRef<'a>,
    facts: &Facts<'_>,
    place: Place,
    steps: &mut Vec<Step<'a>>,
) -> Result<()> {
    if facts.opaque {
        return Ok(());
    }
    let rest = facts.words.get(place.options..).unwrap_or_default();
    for edge in node.literals_of(Subject::Option)? {
        let edge = edge?;
        if let Some(sure) = has_option(rest, place, |form| Ok(form == edge.text), edge.text)? {
            steps.push(Step { edge, next: place, sure });
        }
    }
    Ok(())
}

/// Whether an option is among the words: certainly, perhaps, or not.
fn has_option(
    rest: &[Word],
    place: Place,
    is: impl Fn(&str) -> Result<bool>,
    name: &str,
) -> Result<Option<bool>> {
    // Many programs take a long option abbreviated.
    let abbreviates =
        |form: &str| form.len() > 2 && name.starts_with("--") && name.starts_with(form);
    let mut found = place.wild.then_some(false);
    if bundled_elsewhere(rest, name) {
        found = Some(false);
    }
    let mut ended = false;
    for word in rest {
        let Some(word) = word.known() else {
            // What begins with something else is no option.
            let prefix = word.prefix();
            let could_be = !matches!(word, Word::Home(_))
                && (prefix.is_empty() || prefix.starts_with('-'))
                && (name.is_empty() || name.starts_with(prefix) || prefix.starts_with(name));
            found = found.or(could_be.then_some(false));
            continue;
        };
        if word.starts_with('-') && word.len() > 1 {
            for form in option_forms(word) {
                if is(&form)? {
                    found = Some(!ended || found == Some(true));
                } else if abbreviates(&form) {
                    found = found.or(Some(false));
                }
            }
        }
        ended |= word == "--";
    }
    Ok(found)
}

/// `-rf` may be written `-fr` or `-r -f`. Where it is the name of one option, its
/// letters are hardly all there.
fn bundled_elsewhere(rest: &[Word], name: &str) -> bool {
    let Some(letters) = name.strip_prefix('-').filter(|l| l.len() > 1 && !l.starts_with('-'))
    else {
        return false;
    };
    let short = |word: &&str| word.starts_with('-') && !word.starts_with("--");
    let words: Vec<&str> = rest.iter().filter_map(Word::known).filter(short).collect();
    letters.chars().all(|letter| words.iter().any(|word| word.contains(letter)))
}

/// `--opt=value` is `--opt`; `-uf` is `-u` and `-f` too.
fn option_forms(word: &str) -> Vec<String> {
    let mut forms = vec![word.to_owned()];
    if let Some((name, _)) = word.split_once('=') {
        forms.push(name.to_owned());
    }
    if !word.starts_with("--") {
        forms.extend(word.chars().skip(1).map(|letter| format!("-{letter}")));
    }
    forms
}

/// Whether no word remains: certainly, perhaps, or not.
fn ends(facts: &Facts<'_>, place: Place) -> Option<bool> {
    let rest = facts.words.get(place.at..).unwrap_or_default();
    if facts.opaque || rest.iter().any(|word| word.known().is_some()) {
        return None;
    }
    Some(rest.is_empty() && !place.wild)
}

fn field_steps<'a>(
    node: &NodeRef<'a>,
    facts: &Facts<'_>,
    place: Place,
    steps: &mut Vec<Step<'a>>,
) -> Result<()> {
    for (at, field) in facts.fields.iter().enumerate() {
        let next = Place { field: Some(at), ..place };
        let found = node.exact(Subject::Field, &field.name)?;
        steps.extend(found.into_iter().map(|edge| Step { edge, next, sure: true }));
    }
    let values = values(facts, place);
    let next = Place { field: None, ..place };
    for (at, value) in values.iter().enumerate() {
        // Each text once.
        if values.iter().take(at).any(|earlier| earlier == value) {
            continue;
        }
        let sure = values.iter().all(|other| other == value);
        let found = node.exact(Subject::Value, value)?;
        steps.extend(found.into_iter().map(|edge| Step { edge, next, sure }));
    }
    Ok(())
}

fn values<'x>(facts: &Facts<'x>, place: Place) -> &'x [String] {
    place.field.and_then(|at| facts.fields.get(at)).map_or(&[], |field| &field.values)
}

/// Hosts match by suffix, so the literal keys for the name and each of its
/// parents are looked up, the longest first.
fn host_edges<'a>(node: &NodeRef<'a>, facts: &Facts<'_>) -> Result<Vec<EdgeRef<'a>>> {
    let Some(host) = facts.host else { return Ok(Vec::new()) };
    let mut edges = node.exact(Subject::Host, &format!("{ONLY_HOST}{host}"))?;
    let mut rest = Some(host);
    while let Some(name) = rest {
        for key in [name.to_owned(), format!("*.{name}")] {
            let found = node.exact(Subject::Host, &key)?;
            edges.extend(found.into_iter().filter(|edge| host_matches(edge.text, host)));
        }
        rest = name.split_once('.').map(|(_, parent)| parent);
    }
    Ok(edges)
}

/// Path keys that match, the closest first. A key that matches a directory
/// around the file refuses what is in it and allows nothing.
fn path_steps<'a>(
    node: &NodeRef<'a>,
    facts: &Facts<'_>,
    place: Place,
    steps: &mut Vec<Step<'a>>,
) -> Result<()> {
    let Some(file) = facts.file else { return Ok(()) };
    let mut found = Vec::new();
    for edge in node.patterns()? {
        let edge = edge?;
        if edge.matcher != Matcher::Path {
            continue;
        }
        let pattern = edge.path()?;
        let close = closeness(&pattern, file, facts.world)
            .map_err(|source| DecideError::PathKey { key: pattern.to_string(), source })?;
        found.extend(close.map(|close| (close, edge)));
    }
    found.sort_by_key(|(close, edge)| (std::cmp::Reverse(close.rank), edge.order));
    steps.extend(found.into_iter().map(|(close, edge)| Step {
        edge,
        next: place,
        sure: !close.above,
    }));
    Ok(())
}

/// Keys with wildcards.
fn pattern_steps<'a>(
    edge: EdgeRef<'a>,
    facts: &Facts<'_>,
    place: Place,
    words: &Words<'_>,
    steps: &mut Vec<Step<'a>>,
) -> Result<()> {
    let mut step = |next, sure| steps.push(Step { edge, next, sure });
    match (edge.subject, edge.matcher) {
        (Subject::Word, Matcher::Any) => {
            step(Place { at: facts.words.len(), ..place }, true);
        }
        (Subject::Word, _) => {
            for Candidate { text, next, sure } in &words.known {
                if edge.matches_text(text)? {
                    step(behind(place, *next), *sure);
                }
            }
            if let Some(open) = &words.open {
                step(open.place(place), false);
            }
        }
        (Subject::Option, _) if !facts.opaque => {
            let rest = facts.words.get(place.options..).unwrap_or_default();
            if let Some(sure) = has_option(rest, place, |form| Ok(edge.matches_text(form)?), "")? {
                step(place, sure);
            }
        }
        (Subject::Host, Matcher::Any) => step(place, true),
        (Subject::Host, Matcher::Host) => {
            let host = edge.host()?;
            if facts.host.is_some_and(|name| host.matches(name)) {
                step(place, true);
            }
        }
        (Subject::Host, _) => {
            if let Some(host) = facts.host
                && edge.matches_text(host)?
            {
                step(place, true);
            }
        }
        (Subject::Path, Matcher::Any) => step(place, true),
        (Subject::Field, Matcher::Any) => step(place, true),
        (Subject::Value, _) => {
            let values = values(facts, place);
            let next = Place { field: None, ..place };
            let (mut any, mut all) = (false, true);
            for value in values {
                let one = edge.matches_text(value)?;
                any |= one;
                all &= one;
            }
            // Whatever-is-there also covers a field without a value.
            if any || edge.matcher == Matcher::Any {
                step(next, all);
            }
        }
        (Subject::Tool | Subject::Mode | Subject::Agent, _) => {
            if let Some(text) = facts.text(edge.subject)
                && edge.matches_text(text)?
            {
                step(place, true);
            }
        }
        (Subject::Option | Subject::Path | Subject::Field | Subject::End, _) => {}
    }
    Ok(())
}
