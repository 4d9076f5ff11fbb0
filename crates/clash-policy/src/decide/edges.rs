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
use crate::shell::Word;

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

/// The words that may come next.
enum Words<'x> {
    /// One of these.
    Known(Vec<Candidate<'x>>),
    /// One of these, or any word at all, going on at this place.
    Any(Vec<Candidate<'x>>, usize),
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
    let (Words::Known(known) | Words::Any(known, _)) = words;
    if let Words::Any(_, next) = words {
        for edge in node.literals_of(Subject::Word)? {
            let next = Place { wild: true, ..behind(place, *next) };
            steps.push(Step { edge: edge?, next, sure: false });
        }
        return Ok(());
    }
    for Candidate { text, next, sure } in known {
        let next = behind(place, *next);
        let found = node.exact(Subject::Word, text)?;
        steps.extend(found.into_iter().map(|edge| Step { edge, next, sure: *sure }));
    }
    Ok(())
}

fn behind(place: Place, next: usize) -> Place {
    Place { at: next, options: next, ..place }
}

/// The next significant word stands behind options, each of which may have
/// taken the word after it as its value.
fn next_words<'x>(facts: &'x Facts<'_>, place: Place) -> Words<'x> {
    let mut known = Vec::new();
    if facts.opaque {
        return Words::Known(known);
    }
    if place.wild {
        return Words::Any(known, place.at);
    }
    let rest = facts.words.get(place.at..).unwrap_or_default();
    let mut after_option = false;
    for (offset, word) in rest.iter().enumerate() {
        let next = place.at + offset + 1;
        match word.known() {
            None => return Words::Any(known, next),
            Some(_) if offset > LOOK_AHEAD => return Words::Any(known, next),
            Some(program) if place.at == 0 => {
                let (text, sure) = program_name(program);
                known.push(Candidate { text, next, sure });
                break;
            }
            Some(option) if option.starts_with(['-', '+']) => after_option = true,
            Some(text) => {
                known.push(Candidate { text, next, sure: offset == 0 });
                if !after_option {
                    break;
                }
                after_option = false;
            }
        }
    }
    Words::Known(known)
}

/// A program is known by its name; elsewhere than in the system's directories
/// it may be anything that merely has the name.
fn program_name(program: &str) -> (&str, bool) {
    match program.rsplit_once('/') {
        None => (program, true),
        Some(("/bin" | "/usr/bin" | "/sbin" | "/usr/sbin" | "/usr/local/bin", name)) => {
            (name, true)
        }
        Some((_, name)) => (name, false),
    }
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
    let mut ended = false;
    for word in rest {
        let Some(word) = word.known() else {
            found = found.or(Some(false));
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
            let (Words::Known(known) | Words::Any(known, _)) = words;
            for Candidate { text, next, sure } in known {
                if edge.matches_text(text)? {
                    step(behind(place, *next), *sure);
                }
            }
            if let Words::Any(_, next) = words {
                step(Place { wild: true, ..behind(place, *next) }, false);
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
