//! Walking a layer's match tree with one command, tool or host.
//!
//! Two walks answer together. The *sure* walk follows only keys that certainly
//! match and stops at the most specific rule. The *possible* walk follows every
//! key that might match once the shell has expanded its words, and keeps the
//! strictest deny or ask. So denies over-match and allows under-match.

use crate::action::Action;
use crate::effect::Effect;
use crate::ir::{EdgeRef, IrError, LayerRef, Matcher, NodeRef, RuleRef};
use crate::pattern::{glob_matches, host_matches};
use crate::rule::Subject;
use crate::shell::{Command, Word};

type Result<T> = std::result::Result<T, IrError>;

/// Everything a key can be compared with.
pub(super) struct Facts<'x> {
    action: &'x Action,
    words: &'x [Word],
    opaque: bool,
    host: Option<&'x str>,
}

impl<'x> Facts<'x> {
    pub(super) fn command(action: &'x Action, command: &'x Command) -> Self {
        Self { action, words: &command.words, opaque: command.opaque.is_some(), host: None }
    }

    pub(super) fn tool(action: &'x Action, host: Option<&'x str>) -> Self {
        Self { action, words: &[], opaque: false, host }
    }

    fn text(&self, subject: Subject) -> Option<&str> {
        match subject {
            Subject::Tool => Some(&self.action.tool),
            Subject::Mode => Some(&self.action.mode),
            Subject::Agent => Some(&self.action.agent),
            Subject::Host => self.host,
            Subject::Word | Subject::Option => None,
        }
    }

    /// Whether the words could turn out to be something else than they look.
    fn doubtful(&self) -> bool {
        let program = self.words.first().and_then(Word::known);
        program.is_some_and(|p| p.contains('/'))
            || self.words.iter().any(|w| w.known().is_none_or(|w| w.starts_with(['-', '+'])))
    }
}

pub(super) struct Found<'a> {
    pub(super) rule: RuleRef<'a>,
    pub(super) trail: Vec<String>,
    pub(super) doubtful: bool,
}

/// What the layer says, or `None` if no rule of it is about this.
pub(super) fn layer<'a>(layer: &LayerRef<'a>, facts: &Facts<'_>) -> Result<Option<Found<'a>>> {
    let root = layer.root()?;
    let mut strictest: Option<Found<'a>> = None;
    for edge in root_edges(&root, facts)? {
        let found = below(&edge, facts)?;
        strictest = stricter(strictest, found)?;
    }
    Ok(strictest)
}

/// Root branches are independent: each one that matches is followed.
fn root_edges<'a>(root: &NodeRef<'a>, facts: &Facts<'_>) -> Result<Vec<EdgeRef<'a>>> {
    let mut edges = Vec::new();
    for subject in [Subject::Tool, Subject::Mode, Subject::Agent] {
        if let Some(text) = facts.text(subject) {
            edges.extend(root.exact(subject, text)?);
        }
    }
    for edge in root.patterns()? {
        let edge = edge?;
        if plain_match(&edge, facts) {
            edges.push(edge);
        }
    }
    Ok(edges)
}

fn plain_match(edge: &EdgeRef<'_>, facts: &Facts<'_>) -> bool {
    let Some(text) = facts.text(edge.subject) else { return false };
    match edge.matcher {
        Matcher::Any => true,
        Matcher::Glob => glob_matches(edge.text, text),
        Matcher::Literal => edge.text == text,
    }
}

fn below<'a>(edge: &EdgeRef<'a>, facts: &Facts<'_>) -> Result<Option<Found<'a>>> {
    let trail = vec![shown(edge)];
    let node = edge.node()?;
    let sure = sure(&node, facts, 0, &trail)?;
    if !facts.doubtful() {
        return Ok(sure);
    }
    let mut doubts = Doubts { facts, strictest: None };
    doubts.explore(&node, Place { at: 0, wild: false }, &trail)?;
    stricter(sure, doubts.strictest)
}

fn stricter<'a>(a: Option<Found<'a>>, b: Option<Found<'a>>) -> Result<Option<Found<'a>>> {
    Ok(match (a, b) {
        (Some(a), Some(b)) => Some(if b.rule.effect()? > a.rule.effect()? { b } else { a }),
        (a, b) => a.or(b),
    })
}

fn shown(edge: &EdgeRef<'_>) -> String {
    match edge.matcher {
        Matcher::Any => "**".to_owned(),
        Matcher::Literal | Matcher::Glob => edge.text.to_owned(),
    }
}

fn extended(trail: &[String], edge: &EdgeRef<'_>) -> Vec<String> {
    trail.iter().cloned().chain([shown(edge)]).collect()
}

/// The most specific rule that certainly applies. A branch that leads nowhere
/// is passed over.
fn sure<'a>(
    node: &NodeRef<'a>,
    facts: &Facts<'_>,
    at: usize,
    trail: &[String],
) -> Result<Option<Found<'a>>> {
    if let Some(rule) = node.rule()? {
        return Ok(Some(Found { rule, trail: trail.to_vec(), doubtful: false }));
    }
    for (edge, next) in sure_edges(node, facts, at)? {
        if let Some(found) = sure(&edge.node()?, facts, next, &extended(trail, &edge))? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Edges that certainly match, most specific first, with the word to go on at.
fn sure_edges<'a>(
    node: &NodeRef<'a>,
    facts: &Facts<'_>,
    at: usize,
) -> Result<Vec<(EdgeRef<'a>, usize)>> {
    let mut edges = Vec::new();
    let word = if facts.opaque { None } else { sure_word(facts.words, at) };
    if let Some((word, next)) = word {
        edges.extend(node.exact(Subject::Word, word)?.into_iter().map(|edge| (edge, next)));
    }
    if node.looks_at(Subject::Option)? {
        for option in options(facts.words, at) {
            for form in option_forms(option) {
                edges
                    .extend(node.exact(Subject::Option, &form)?.into_iter().map(|edge| (edge, at)));
            }
        }
    }
    for subject in [Subject::Tool, Subject::Mode, Subject::Agent] {
        if let Some(text) = facts.text(subject) {
            edges.extend(node.exact(subject, text)?.into_iter().map(|edge| (edge, at)));
        }
    }
    edges.sort_by_key(|(edge, _)| (edge.rank, edge.order));
    edges.extend(host_edges(node, facts)?.into_iter().map(|edge| (edge, at)));
    for edge in node.patterns()? {
        let edge = edge?;
        let next = match (edge.subject, edge.matcher) {
            (Subject::Word, Matcher::Any) => Some(facts.words.len()),
            (Subject::Word, _) => {
                word.filter(|(word, _)| glob_matches(edge.text, word)).map(|(_, next)| next)
            }
            (Subject::Host, Matcher::Any) => Some(at),
            _ => plain_match(&edge, facts).then_some(at),
        };
        edges.extend(next.map(|next| (edge, next)));
    }
    Ok(edges)
}

/// Hosts match by suffix, so the literal keys for the name and each of its
/// parents are looked up, the longest first.
fn host_edges<'a>(node: &NodeRef<'a>, facts: &Facts<'_>) -> Result<Vec<EdgeRef<'a>>> {
    let Some(host) = facts.host else { return Ok(Vec::new()) };
    let mut edges = Vec::new();
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

/// The next significant word if it is certain: known, not an option, and for a
/// program not something that merely has the name of one.
fn sure_word(words: &[Word], at: usize) -> Option<(&str, usize)> {
    let word = words.get(at)?.known()?;
    if at == 0 {
        let name = match word.rsplit_once('/') {
            None => word,
            Some(("/bin" | "/usr/bin" | "/sbin" | "/usr/sbin" | "/usr/local/bin", name)) => name,
            Some(_) => return None,
        };
        return Some((name, 1));
    }
    (!word.starts_with(['-', '+'])).then_some((word, at + 1))
}

/// The remaining option words, up to `--`.
fn options(words: &[Word], at: usize) -> impl Iterator<Item = &str> {
    let rest = words.get(at..).unwrap_or_default();
    rest.iter()
        .filter_map(Word::known)
        .take_while(|word| *word != "--")
        .filter(|word| word.starts_with('-') && word.len() > 1)
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

/// Beyond this many words a command is taken to hold any word.
const LOOK_AHEAD: usize = 64;

/// How far a possible walk has come.
#[derive(Clone, Copy)]
struct Place {
    at: usize,
    /// A word the shell decides stands before this place, and may have become
    /// any number of words.
    wild: bool,
}

/// The strictest deny or ask that could apply.
struct Doubts<'x, 'a> {
    facts: &'x Facts<'x>,
    strictest: Option<Found<'a>>,
}

impl<'a> Doubts<'_, 'a> {
    fn explore(&mut self, node: &NodeRef<'a>, place: Place, trail: &[String]) -> Result<()> {
        if let Some(rule) = node.rule()? {
            let effect = rule.effect()?;
            let known = self.strictest.as_ref().map(|found| found.rule.effect()).transpose()?;
            if effect > Effect::Allow && known.is_none_or(|known| effect > known) {
                self.strictest = Some(Found { rule, trail: trail.to_vec(), doubtful: true });
            }
            return Ok(());
        }
        // `**` and `default()` are what applies when nothing else does: the
        // sure walk has them, and a doubt about them is no doubt.
        let named = |edge: &EdgeRef<'_>| edge.matcher != Matcher::Any;
        for edge in node.literals()?.chain(node.patterns()?) {
            let edge = edge?;
            for next in self.could_match(&edge, place).filter(|_| named(&edge)) {
                self.explore(&edge.node()?, next, &extended(trail, &edge))?;
            }
        }
        Ok(())
    }

    /// Where to go on if the edge could match from here.
    fn could_match(&self, edge: &EdgeRef<'_>, place: Place) -> std::option::IntoIter<Place> {
        let next = match edge.subject {
            Subject::Word => self.could_be_word(edge, place),
            Subject::Option => self.could_be_option(edge.text, place).then_some(place),
            Subject::Host => None,
            Subject::Tool | Subject::Mode | Subject::Agent => {
                plain_match(edge, self.facts).then_some(place)
            }
        };
        next.into_iter()
    }

    fn rest(&self, place: Place) -> &[Word] {
        self.facts.words.get(place.at..).unwrap_or_default()
    }

    /// The next significant word stands behind options, each of which may have
    /// taken the word after it as its value.
    fn could_be_word(&self, edge: &EdgeRef<'_>, place: Place) -> Option<Place> {
        if place.wild {
            return Some(place);
        }
        let is = |name: &str| match edge.matcher {
            Matcher::Literal => edge.text == name,
            Matcher::Glob | Matcher::Any => glob_matches(edge.text, name),
        };
        let mut after_option = false;
        for (offset, word) in self.rest(place).iter().enumerate() {
            let next = Place { at: place.at + offset + 1, wild: false };
            match word.known() {
                None => return Some(Place { wild: true, ..next }),
                Some(_) if offset > LOOK_AHEAD => return Some(Place { wild: true, ..next }),
                Some(program) if place.at == 0 => {
                    return is(program.rsplit('/').next().unwrap_or(program)).then_some(next);
                }
                Some(option) if option.starts_with(['-', '+']) => after_option = true,
                Some(word) if is(word) => return Some(next),
                Some(_) if after_option => after_option = false,
                Some(_) => return None,
            }
        }
        None
    }

    fn could_be_option(&self, option: &str, place: Place) -> bool {
        // Many programs take a long option abbreviated.
        let abbreviates =
            |form: &str| form.len() > 2 && option.starts_with("--") && option.starts_with(form);
        place.wild
            || self.rest(place).iter().any(|word| match word.known() {
                None => true,
                Some(word) => {
                    option_forms(word).iter().any(|form| form == option || abbreviates(form))
                }
            })
    }
}
