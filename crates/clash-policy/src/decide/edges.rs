//! The keys of one tree node that match, or could match after the shell has expanded
//! the words. The most specific come first: single literals, tuples, globs and regular
//! expressions by their literal prefix, then `**`.
//!
//! Literal keys are looked up, not scanned: the cost of a decision must not grow with
//! the policy. If a word is unknown, every literal key could match; [`WildKeys`] stands
//! for all of them.

use std::collections::BTreeSet;

use crate::ir::{EdgeMatcher, EdgeRef, NodeRef};
use crate::judge::closeness;
use crate::pattern::host_matches;
use crate::rule::{KeySubject, ONLY_HOST};
use clash_shell::{NextWord, ShellWord, next_significant};

use super::facts::MatchFacts;
use super::{DecideError, DecideResult};

/// The progress of a walk through the words or fields of an action.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TreePosition {
    /// The next word of a command.
    at: usize,
    /// The index at which the remaining options begin.
    options: usize,
    /// An unknown word comes before this position and may have become any number of
    /// words.
    wild: bool,
    /// The field whose values come next.
    field: Option<usize>,
}

pub(super) struct MatchedEdge<'a> {
    pub(super) edge: EdgeRef<'a>,
    pub(super) next: TreePosition,
    /// The key certainly matches.
    pub(super) sure: bool,
}

impl MatchedEdge<'_> {
    /// The position of a literal key among the keys of its node.
    pub(super) fn order(&self) -> (u32, u32) {
        (self.edge.rank, self.edge.order)
    }

    /// The field of the input that the key names.
    pub(super) fn field(&self) -> Option<usize> {
        self.next.field.filter(|_| {
            self.edge.subject == KeySubject::Field && self.edge.matcher != EdgeMatcher::Any
        })
    }
}

/// The keys of a node that match.
pub(super) struct MatchedEdges<'a> {
    /// Literal keys.
    pub(super) literal: Vec<MatchedEdge<'a>>,
    /// All other keys, less specific than literal ones.
    pub(super) others: Vec<MatchedEdge<'a>>,
    pub(super) wild: [Option<WildKeys>; 2],
}

/// Stands for all literal keys about a subject, each of which could match.
#[derive(Clone, Copy)]
pub(super) struct WildKeys {
    pub(super) subject: KeySubject,
    pub(super) next: TreePosition,
}

/// A word that may come next, with the index behind it.
struct WordCandidate<'x> {
    text: &'x str,
    next: usize,
    sure: bool,
}

/// The words that may come next: one of the known words, or an unknown one.
struct NextWords<'x> {
    known: Vec<WordCandidate<'x>>,
    open: Option<OpenWord<'x>>,
}

/// An unknown word that begins with this text.
struct OpenWord<'x> {
    prefix: &'x str,
    next: usize,
    /// It may become any number of words.
    wild: bool,
}

impl OpenWord<'_> {
    fn place(&self, place: TreePosition) -> TreePosition {
        TreePosition { wild: self.wild, ..behind(place, self.next) }
    }
}

/// The search for the next word behind options looks at this many words. Behind them,
/// any word could come next.
const MAX_LOOK_AHEAD_WORDS: usize = 64;

/// Finds the keys of a node that match the action at `place`, or could match. Each comes with
/// the place behind the values that it takes, and says whether the match is certain. An
/// unknown word makes no list of all literal keys: [`WildKeys`] stands for them.
pub(super) fn find_matching_edges<'a>(
    node: &NodeRef<'a>,
    facts: &MatchFacts<'_>,
    place: TreePosition,
) -> DecideResult<MatchedEdges<'a>> {
    let mut steps = Vec::new();
    let words = next_words(facts, place);
    for WordCandidate { text, next, sure } in &words.known {
        let next = behind(place, *next);
        let found = node.exact(KeySubject::Word, text)?;
        steps.extend(found.into_iter().map(|edge| MatchedEdge { edge, next, sure: *sure }));
    }
    let mut any_word = None;
    if let Some(open) = &words.open {
        let next = open.place(place);
        if open.prefix.is_empty() {
            any_word = Some(next);
        } else {
            for edge in node.starting(KeySubject::Word, open.prefix)? {
                steps.push(MatchedEdge { edge: edge?, next, sure: false });
            }
        }
    }
    let any_option = option_steps(node, facts, place, &mut steps)?.then_some(place);
    if let Some(sure) = ends(facts, place) {
        let found = node.exact(KeySubject::End, "")?;
        steps.extend(found.into_iter().map(|edge| MatchedEdge { edge, next: place, sure }));
    }
    for subject in KeySubject::ROOT {
        if let Some(text) = facts.text(subject) {
            let found = node.exact(subject, text)?;
            steps.extend(found.into_iter().map(|edge| MatchedEdge {
                edge,
                next: place,
                sure: true,
            }));
        }
    }
    field_steps(node, facts, place, &mut steps)?;
    steps.sort_by_key(|step| step.order());
    let sure = |edge| MatchedEdge { edge, next: place, sure: true };
    let mut others: Vec<_> = host_edges(node, facts)?.into_iter().map(sure).collect();
    path_steps(node, facts, place, &mut others)?;
    for edge in node.patterns()? {
        let edge = edge?;
        pattern_steps(edge, facts, place, &words, &mut others)?;
    }
    let wild = |subject, next: Option<TreePosition>| next.map(|next| WildKeys { subject, next });
    let wild = [wild(KeySubject::Word, any_word), wild(KeySubject::Option, any_option)];
    Ok(MatchedEdges { literal: steps, others, wild })
}

/// The position behind a word: words and options continue at `next`.
fn behind(place: TreePosition, next: usize) -> TreePosition {
    TreePosition { at: next, options: next, ..place }
}

/// The words that may come next at a position. None for an opaque command.
fn next_words<'x>(facts: &'x MatchFacts<'_>, place: TreePosition) -> NextWords<'x> {
    let none = NextWords { known: Vec::new(), open: None };
    if facts.opaque {
        return none;
    }
    if place.wild {
        return NextWords {
            open: Some(OpenWord { prefix: "", next: place.at, wild: true }),
            ..none
        };
    }
    let mut words = match next_significant(facts.words, place.at) {
        NextWord::End => none,
        NextWord::Sure { index } => match facts.words.get(index).and_then(ShellWord::known) {
            Some(word) => {
                let text = if index == 0 { base_name(word) } else { word };
                NextWords {
                    known: vec![WordCandidate { text, next: index + 1, sure: true }],
                    open: None,
                }
            }
            None => none,
        },
        NextWord::Unsure => possible_words(facts, place),
    };
    if place.at == 0 {
        words.known.extend(program_by_path(facts));
    }
    words
}

/// A key may also name a program by its path, as in the script.
fn program_by_path<'x>(facts: &'x MatchFacts<'_>) -> Option<WordCandidate<'x>> {
    let text = facts.words.first()?.known().filter(|word| word.contains('/'))?;
    Some(WordCandidate { text, next: 1, sure: text.starts_with('/') || facts.at_start })
}

/// The candidates for the next significant word. Each option before it may have taken
/// the word after it as its value.
fn possible_words<'x>(facts: &'x MatchFacts<'_>, place: TreePosition) -> NextWords<'x> {
    let rest = facts.words.get(place.at..).unwrap_or_default();
    let mut known = Vec::new();
    let mut after_option = false;
    for (offset, word) in rest.iter().enumerate() {
        let next = place.at + offset + 1;
        let program = place.at + offset == 0;
        if offset > MAX_LOOK_AHEAD_WORDS {
            return NextWords { known, open: Some(OpenWord { prefix: "", next, wild: true }) };
        }
        if !program && word.prefix().starts_with(['-', '+']) {
            after_option = true;
            continue;
        }
        let text = match word {
            ShellWord::Known(text) => text,
            // A program in the home is matched by its file name too.
            ShellWord::Home(rest) if program => rest,
            _ => {
                let prefix = match word {
                    // It may be the value of the option before it, and the next word
                    // may come later.
                    _ if after_option => "",
                    ShellWord::Home(_) => "/",
                    other if program => base_name(other.prefix()),
                    other => other.prefix(),
                };
                // An unknown single word may be an option.
                let option = !program && prefix.is_empty();
                let wild = !word.is_one() || after_option || option;
                let open = OpenWord { prefix, next, wild };
                return NextWords { known, open: Some(open) };
            }
        };
        let text = if program { base_name(text) } else { text };
        known.push(WordCandidate { text, next, sure: false });
        if !after_option {
            break;
        }
        after_option = false;
    }
    NextWords { known, open: None }
}

/// The last part of a path: `git` of `/usr/bin/git`.
fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Adds the keys about options. True if any option could be among the words.
fn option_steps<'a>(
    node: &NodeRef<'a>,
    facts: &MatchFacts<'_>,
    place: TreePosition,
    steps: &mut Vec<MatchedEdge<'a>>,
) -> DecideResult<bool> {
    if facts.opaque || node.starting(KeySubject::Option, "")?.next().is_none() {
        return Ok(false);
    }
    let mut found: Vec<(EdgeRef<'a>, bool)> = Vec::new();
    let any = each_option(facts, place, |option| {
        let (text, sure) = match option {
            OptionForm::Whole(text, sure) => (text, sure),
            // The known part may already be the whole option, followed by a value.
            OptionForm::Start(start) => {
                for (at, _) in start.char_indices().skip(3) {
                    let leading = start.get(..at).unwrap_or_default();
                    let edges = node.exact(KeySubject::Option, leading)?;
                    found.extend(edges.into_iter().map(|edge| (edge, false)));
                }
                (start, false)
            }
        };
        for edge in node.exact(KeySubject::Option, text)? {
            found.push((edge, sure));
        }
        // Many programs accept abbreviated long options.
        if text.len() > 2 && text.starts_with("--") {
            for edge in node.starting(KeySubject::Option, text)? {
                found.push((edge?, false));
            }
        }
        Ok(())
    })?;
    found.extend(bundles(node, facts, place)?.into_iter().map(|edge| (edge, false)));
    // Of two equal options, one certain match is enough.
    found.sort_by_key(|(edge, sure)| (edge.text, edge.order, !sure));
    found.dedup_by_key(|(edge, _)| (edge.text, edge.order));
    steps.extend(found.into_iter().map(|(edge, sure)| MatchedEdge { edge, next: place, sure }));
    Ok(any)
}

/// An option among the words, as a key may name it.
#[derive(Clone, Copy)]
enum OptionForm<'x> {
    /// The option; true if it certainly is one.
    Whole(&'x str, bool),
    /// A long option that begins like this.
    Start(&'x str),
}

/// Calls `form` for every form of every option among the remaining words. True if there
/// may be further options.
fn each_option(
    facts: &MatchFacts<'_>,
    place: TreePosition,
    mut form: impl FnMut(OptionForm<'_>) -> DecideResult<()>,
) -> DecideResult<bool> {
    let rest = facts.words.get(place.options..).unwrap_or_default();
    // Behind an unknown word, the remaining options are unknown: the next word of a
    // rule may come behind them.
    let (mut any, mut ended) = (place.wild, place.wild);
    for word in rest {
        match (word, word.prefix()) {
            (ShellWord::Known(word), _) => {
                if word.starts_with('-') && word.len() > 1 {
                    let mut whole = |one: &String| form(OptionForm::Whole(one, !ended));
                    option_forms(word).iter().try_for_each(&mut whole)?;
                }
                ended |= word == "--";
            }
            (ShellWord::Home(_), _) => {}
            (_, start) if start.len() > 2 && start.starts_with("--") => match start.split_once('=')
            {
                Some((name, _)) => form(OptionForm::Whole(name, false))?,
                None => form(OptionForm::Start(start))?,
            },
            // Further short options may follow the known part of the word.
            (_, start) => any |= start.is_empty() || start.starts_with('-'),
        }
    }
    Ok(any)
}

/// Keys of several letters: `-rf` may be written `-fr` or `-r -f`. If the key is one
/// long option with a single dash, all its letters rarely occur together.
fn bundles<'a>(
    node: &NodeRef<'a>,
    facts: &MatchFacts<'_>,
    place: TreePosition,
) -> DecideResult<Vec<EdgeRef<'a>>> {
    let rest = facts.words.get(place.options..).unwrap_or_default();
    let short = |word: &&str| word.starts_with('-') && !word.starts_with("--");
    let words = rest.iter().filter_map(ShellWord::known).filter(short);
    let letters: BTreeSet<char> = words.flat_map(|word| word.chars().skip(1)).collect();
    let mut found = Vec::new();
    for first in &letters {
        for edge in node.starting(KeySubject::Option, &format!("-{first}"))? {
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

/// `Some(true)` if certainly no word remains, `Some(false)` if perhaps none does. `None` if
/// a word remains, and for an opaque command.
fn ends(facts: &MatchFacts<'_>, place: TreePosition) -> Option<bool> {
    let rest = facts.words.get(place.at..).unwrap_or_default();
    // Behind an unknown word, the remaining words may be part of it.
    let more = !place.wild && rest.iter().any(|word| word.known().is_some());
    if facts.opaque || more {
        return None;
    }
    Some(rest.is_empty() && !place.wild)
}

/// Adds the literal keys about fields, and about values of the field at `place`. A key
/// about a value is certain only if all values of the field are equal to it.
fn field_steps<'a>(
    node: &NodeRef<'a>,
    facts: &MatchFacts<'_>,
    place: TreePosition,
    steps: &mut Vec<MatchedEdge<'a>>,
) -> DecideResult<()> {
    for (at, field) in facts.fields.iter().enumerate() {
        let next = TreePosition { field: Some(at), ..place };
        let found = node.exact(KeySubject::Field, &field.name)?;
        steps.extend(found.into_iter().map(|edge| MatchedEdge { edge, next, sure: true }));
    }
    let values = values(facts, place);
    let next = TreePosition { field: None, ..place };
    for (at, value) in values.iter().enumerate() {
        // Each text once.
        if values.iter().take(at).any(|earlier| earlier == value) {
            continue;
        }
        let sure = values.iter().all(|other| other == value);
        let found = node.exact(KeySubject::Value, value)?;
        steps.extend(found.into_iter().map(|edge| MatchedEdge { edge, next, sure }));
    }
    Ok(())
}

/// The values of the field at this position; none if the walk is at no field.
fn values<'x>(facts: &MatchFacts<'x>, place: TreePosition) -> &'x [String] {
    place.field.and_then(|at| facts.fields.get(at)).map_or(&[], |field| &field.values)
}

/// The literal keys about the host, the longest first. Hosts match by suffix, so the keys
/// for the name and for each parent domain are looked up.
fn host_edges<'a>(node: &NodeRef<'a>, facts: &MatchFacts<'_>) -> DecideResult<Vec<EdgeRef<'a>>> {
    let Some(host) = facts.host else { return Ok(Vec::new()) };
    let mut edges = node.exact(KeySubject::Host, &format!("{ONLY_HOST}{host}"))?;
    let mut rest = Some(host);
    while let Some(name) = rest {
        for key in [name.to_owned(), format!("*.{name}")] {
            let found = node.exact(KeySubject::Host, &key)?;
            edges.extend(found.into_iter().filter(|edge| host_matches(edge.text, host)));
        }
        rest = name.split_once('.').map(|(_, parent)| parent);
    }
    Ok(edges)
}

/// The path keys that match, the closest first. A key that matches only a directory
/// above the file can deny or ask, but not allow.
fn path_steps<'a>(
    node: &NodeRef<'a>,
    facts: &MatchFacts<'_>,
    place: TreePosition,
    steps: &mut Vec<MatchedEdge<'a>>,
) -> DecideResult<()> {
    let Some(file) = facts.file else { return Ok(()) };
    let mut found = Vec::new();
    for edge in node.patterns()? {
        let edge = edge?;
        if edge.matcher != EdgeMatcher::Path {
            continue;
        }
        let pattern = edge.path()?;
        let close = closeness(&pattern, file, facts.context)
            .map_err(|source| DecideError::PathKey { key: pattern.to_string(), source })?;
        found.extend(close.map(|close| (close, edge)));
    }
    found.sort_by_key(|(close, edge)| (std::cmp::Reverse(close.rank), edge.order));
    steps.extend(found.into_iter().map(|(close, edge)| MatchedEdge {
        edge,
        next: place,
        sure: !close.above,
    }));
    Ok(())
}

/// Adds a key with wildcards if it matches or could match. Keys about paths are added by
/// [`path_steps`], except `**`.
fn pattern_steps<'a>(
    edge: EdgeRef<'a>,
    facts: &MatchFacts<'_>,
    place: TreePosition,
    words: &NextWords<'_>,
    steps: &mut Vec<MatchedEdge<'a>>,
) -> DecideResult<()> {
    let mut step = |next, sure| steps.push(MatchedEdge { edge, next, sure });
    match (edge.subject, edge.matcher) {
        (KeySubject::Word, EdgeMatcher::Any) => {
            step(TreePosition { at: facts.words.len(), ..place }, true);
        }
        (KeySubject::Word, _) => {
            for WordCandidate { text, next, sure } in &words.known {
                if edge.matches_text(text)? {
                    step(behind(place, *next), *sure);
                }
            }
            if let Some(open) = &words.open {
                step(open.place(place), false);
            }
        }
        (KeySubject::Option, _) if !facts.opaque => {
            let mut found = None;
            let any = each_option(facts, place, |option| {
                match option {
                    OptionForm::Whole(form, sure) if edge.matches_text(form)? => {
                        found = Some(sure || found == Some(true));
                    }
                    OptionForm::Whole(..) => {}
                    OptionForm::Start(_) => found = found.or(Some(false)),
                }
                Ok(())
            })?;
            if let Some(sure) = found.or(any.then_some(false)) {
                step(place, sure);
            }
        }
        (KeySubject::Host, EdgeMatcher::Any) => step(place, true),
        (KeySubject::Host, EdgeMatcher::Host) => {
            let host = edge.host()?;
            if facts.host.is_some_and(|name| host.matches(name)) {
                step(place, true);
            }
        }
        (KeySubject::Host, _) => {
            if let Some(host) = facts.host
                && edge.matches_text(host)?
            {
                step(place, true);
            }
        }
        (KeySubject::Path, EdgeMatcher::Any) => step(place, true),
        (KeySubject::Field, EdgeMatcher::Any) => step(place, true),
        (KeySubject::Value, _) => {
            let values = values(facts, place);
            let next = TreePosition { field: None, ..place };
            let (mut any, mut all) = (false, true);
            for value in values {
                let one = edge.matches_text(value)?;
                any |= one;
                all &= one;
            }
            // `**` also matches a field without a value.
            if any || edge.matcher == EdgeMatcher::Any {
                step(next, all);
            }
        }
        (KeySubject::Tool | KeySubject::Mode | KeySubject::Agent, _) => {
            if let Some(text) = facts.text(edge.subject)
                && edge.matches_text(text)?
            {
                step(place, true);
            }
        }
        (KeySubject::Option | KeySubject::Path | KeySubject::Field | KeySubject::End, _) => {}
    }
    Ok(())
}
