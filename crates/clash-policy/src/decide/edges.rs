//! The keys of one tree node that match, or could match once the shell has
//! expanded its words, most specific first: single literals, tuples, globs and
//! expressions by their literal prefix, then whatever-is-there.
//!
//! Literal keys are looked up, not scanned: the cost of a decision must not grow
//! with the policy. Where a word could be any, all literal keys could match; they
//! are not steps of their own, see [`Wild`].

use std::collections::BTreeSet;

use crate::ir::{EdgeRef, Matcher, NodeRef};
use crate::judge::closeness;
use crate::pattern::host_matches;
use crate::rule::{ONLY_HOST, Subject};
use clash_shell::{Next, Word, next_significant};

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

impl Step<'_> {
    /// Where a literal key stands among the others of its node.
    pub(super) fn order(&self) -> (u32, u32) {
        (self.edge.rank, self.edge.order)
    }

    /// The field of the input that the key names.
    pub(super) fn field(&self) -> Option<usize> {
        self.next
            .field
            .filter(|_| self.edge.subject == Subject::Field && self.edge.matcher != Matcher::Any)
    }
}

/// The keys of a node that match.
pub(super) struct Steps<'a> {
    /// Literal keys.
    pub(super) literal: Vec<Step<'a>>,
    /// Less specific than all of them.
    pub(super) others: Vec<Step<'a>>,
    pub(super) wild: [Option<Wild>; 2],
}

/// Every literal key about a subject could match.
#[derive(Clone, Copy)]
pub(super) struct Wild {
    pub(super) subject: Subject,
    pub(super) next: Place,
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

pub(super) fn steps<'a>(node: &NodeRef<'a>, facts: &Facts<'_>, place: Place) -> Result<Steps<'a>> {
    let mut steps = Vec::new();
    let words = next_words(facts, place);
    for Candidate { text, next, sure } in &words.known {
        let next = behind(place, *next);
        let found = node.exact(Subject::Word, text)?;
        steps.extend(found.into_iter().map(|edge| Step { edge, next, sure: *sure }));
    }
    let mut any_word = None;
    if let Some(open) = &words.open {
        let next = open.place(place);
        if open.prefix.is_empty() {
            any_word = Some(next);
        } else {
            for edge in node.starting(Subject::Word, open.prefix)? {
                steps.push(Step { edge: edge?, next, sure: false });
            }
        }
    }
    let any_option = option_steps(node, facts, place, &mut steps)?.then_some(place);
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
    steps.sort_by_key(|step| step.order());
    let sure = |edge| Step { edge, next: place, sure: true };
    let mut others: Vec<_> = host_edges(node, facts)?.into_iter().map(sure).collect();
    path_steps(node, facts, place, &mut others)?;
    for edge in node.patterns()? {
        let edge = edge?;
        pattern_steps(edge, facts, place, &words, &mut others)?;
    }
    let wild = |subject, next: Option<Place>| next.map(|next| Wild { subject, next });
    let wild = [wild(Subject::Word, any_word), wild(Subject::Option, any_option)];
    Ok(Steps { literal: steps, others, wild })
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
        if offset > LOOK_AHEAD {
            return Words { known, open: Some(Open { prefix: "", next, wild: true }) };
        }
        if !program && word.prefix().starts_with(['-', '+']) {
            after_option = true;
            continue;
        }
        let text = match word {
            Word::Known(text) => text,
            // A program in the home is known by its last name all the same.
            Word::Home(rest) if program => rest,
            _ => {
                let prefix = match word {
                    // It may be the option's value, and another word what comes next.
                    _ if after_option => "",
                    Word::Home(_) => "/",
                    other if program => base_name(other.prefix()),
                    other => other.prefix(),
                };
                // One word of which nothing is known may be an option.
                let option = !program && prefix.is_empty();
                let wild = !word.is_one() || after_option || option;
                let open = Open { prefix, next, wild };
                return Words { known, open: Some(open) };
            }
        };
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

/// Returns whether any option at all could be among the words.
fn option_steps<'a>(
    node: &NodeRef<'a>,
    facts: &Facts<'_>,
    place: Place,
    steps: &mut Vec<Step<'a>>,
) -> Result<bool> {
    if facts.opaque || node.starting(Subject::Option, "")?.next().is_none() {
        return Ok(false);
    }
    let mut found: Vec<(EdgeRef<'a>, bool)> = Vec::new();
    let any = each_option(facts, place, |option| {
        let (text, sure) = match option {
            Form::Whole(text, sure) => (text, sure),
            // What is known of it may be the option already, and a value.
            Form::Start(start) => {
                for (at, _) in start.char_indices().skip(3) {
                    let leading = start.get(..at).unwrap_or_default();
                    let edges = node.exact(Subject::Option, leading)?;
                    found.extend(edges.into_iter().map(|edge| (edge, false)));
                }
                (start, false)
            }
        };
        for edge in node.exact(Subject::Option, text)? {
            found.push((edge, sure));
        }
        // Many programs take a long option abbreviated.
        if text.len() > 2 && text.starts_with("--") {
            for edge in node.starting(Subject::Option, text)? {
                found.push((edge?, false));
            }
        }
        Ok(())
    })?;
    found.extend(bundles(node, facts, place)?.into_iter().map(|edge| (edge, false)));
    // An option that stands there twice is there for certain if one of them is.
    found.sort_by_key(|(edge, sure)| (edge.text, edge.order, !sure));
    found.dedup_by_key(|(edge, _)| (edge.text, edge.order));
    steps.extend(found.into_iter().map(|(edge, sure)| Step { edge, next: place, sure }));
    Ok(any)
}

/// An option among the words, as a key may name it.
#[derive(Clone, Copy)]
enum Form<'x> {
    /// The option, and whether it certainly is one.
    Whole(&'x str, bool),
    /// A long option that begins like this.
    Start(&'x str),
}

/// Hands over the forms of every option among the remaining words. Returns
/// whether there may be others.
fn each_option(
    facts: &Facts<'_>,
    place: Place,
    mut form: impl FnMut(Form<'_>) -> Result<()>,
) -> Result<bool> {
    let rest = facts.words.get(place.options..).unwrap_or_default();
    // Behind a word that may have become many, it is not known which options are
    // left: the next word of a rule may be one that stands behind them.
    let (mut any, mut ended) = (place.wild, place.wild);
    for word in rest {
        match (word, word.prefix()) {
            (Word::Known(word), _) => {
                if word.starts_with('-') && word.len() > 1 {
                    let mut whole = |one: &String| form(Form::Whole(one, !ended));
                    option_forms(word).iter().try_for_each(&mut whole)?;
                }
                ended |= word == "--";
            }
            (Word::Home(_), _) => {}
            (_, start) if start.len() > 2 && start.starts_with("--") => match start.split_once('=')
            {
                Some((name, _)) => form(Form::Whole(name, false))?,
                None => form(Form::Start(start))?,
            },
            // Short options may be bundled behind what is known of the word.
            (_, start) => any |= start.is_empty() || start.starts_with('-'),
        }
    }
    Ok(any)
}

/// Keys of several letters: `-rf` may be written `-fr` or `-r -f`. Where it is the
/// name of one option, its letters are hardly all there.
fn bundles<'a>(node: &NodeRef<'a>, facts: &Facts<'_>, place: Place) -> Result<Vec<EdgeRef<'a>>> {
    let rest = facts.words.get(place.options..).unwrap_or_default();
    let short = |word: &&str| word.starts_with('-') && !word.starts_with("--");
    let words = rest.iter().filter_map(Word::known).filter(short);
    let letters: BTreeSet<char> = words.flat_map(|word| word.chars().skip(1)).collect();
    let mut found = Vec::new();
    for first in &letters {
        for edge in node.starting(Subject::Option, &format!("-{first}"))? {
            let edge = edge?;
            let all = edge.text.chars().skip(1).all(|letter| letters.contains(&letter));
            if all && edge.text.chars().count() > 2 {
                found.push(edge);
            }
        }
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
    forms.sort_unstable();
    forms.dedup();
    forms
}

/// Whether no word remains: certainly, perhaps, or not.
fn ends(facts: &Facts<'_>, place: Place) -> Option<bool> {
    let rest = facts.words.get(place.at..).unwrap_or_default();
    // Behind a word that may have become many, what is left may have been had already.
    let more = !place.wild && rest.iter().any(|word| word.known().is_some());
    if facts.opaque || more {
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
            let mut found = None;
            let any = each_option(facts, place, |option| {
                match option {
                    Form::Whole(form, sure) if edge.matches_text(form)? => {
                        found = Some(sure || found == Some(true));
                    }
                    Form::Whole(..) => {}
                    Form::Start(_) => found = found.or(Some(false)),
                }
                Ok(())
            })?;
            if let Some(sure) = found.or(any.then_some(false)) {
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
