//! Walking a layer's match trees with one command, tool, path or host.
//!
//! Two walks answer together. The *sure* walk follows only keys that certainly
//! match and stops at the most specific rule. The *possible* walk follows every
//! key that might match once the shell has expanded its words, as long as
//! nothing more specific is certain, and keeps the strictest deny or ask. So
//! denies over-match and allows under-match.

use crate::effect::Effect;
use crate::ir::{EdgeRef, GroupRef, LayerRef, Matcher, NodeRef, RuleRef};
use crate::rule::Subject;

use super::DecideError;
use super::edges::{Place, steps};
use super::facts::Facts;

type Result<T> = std::result::Result<T, DecideError>;

pub(super) struct Found<'a> {
    pub(super) rule: RuleRef<'a>,
    pub(super) trail: Vec<EdgeRef<'a>>,
    pub(super) doubtful: bool,
}

impl Found<'_> {
    /// Whether the rule is about every command alike and names none.
    pub(super) fn is_catch_all(&self) -> bool {
        let names = |edge: &EdgeRef<'_>| {
            matches!(edge.subject, Subject::Word | Subject::Option) && edge.matcher != Matcher::Any
        };
        !self.trail.iter().any(names)
    }

    pub(super) fn shown(&self) -> Vec<String> {
        self.trail.iter().map(shown).collect()
    }
}

fn shown(edge: &EdgeRef<'_>) -> String {
    match (edge.matcher, edge.subject) {
        (Matcher::Any, _) => "**".to_owned(),
        (Matcher::Regex, _) => format!("regex({})", edge.text),
        (_, Subject::Mode) => format!("mode {}", edge.text),
        (_, Subject::Agent) => format!("agent {}", edge.text),
        (_, Subject::End) => "(end)".to_owned(),
        _ => edge.text.to_owned(),
    }
}

/// What the layer says, or `None` if no rule of it is about this. Groups, and
/// in them tools, modes and agents, are independent: the strictest holds.
pub(super) fn layer<'a>(layer: &LayerRef<'a>, facts: &Facts<'_>) -> Result<Option<Found<'a>>> {
    let mut strictest: Option<Found<'a>> = None;
    for group in layer.groups()? {
        let group = group?;
        for subject in Subject::ROOT {
            strictest = stricter(strictest, branch(&group, subject, facts)?)?;
        }
    }
    Ok(strictest)
}

/// What the keys about one subject at the root of a tree say.
pub(super) fn branch<'a>(
    group: &GroupRef<'a>,
    subject: Subject,
    facts: &Facts<'_>,
) -> Result<Option<Found<'a>>> {
    let root = group.root()?;
    let only = Some(subject);
    let sure = sure(&root, facts, Place::default(), only, &mut Vec::new())?;
    if !facts.doubtful() {
        return Ok(sure);
    }
    let mut doubts = Doubts { facts, strictest: None, trail: Vec::new() };
    doubts.explore(&root, Place::default(), only)?;
    stricter(sure, doubts.strictest)
}

fn stricter<'a>(a: Option<Found<'a>>, b: Option<Found<'a>>) -> Result<Option<Found<'a>>> {
    Ok(match (a, b) {
        (Some(a), Some(b)) => Some(if b.rule.effect()? > a.rule.effect()? { b } else { a }),
        (a, b) => a.or(b),
    })
}

/// The most specific rule that certainly applies. A branch that leads nowhere
/// is passed over. `only` restricts the keys looked at here, not below.
fn sure<'a>(
    node: &NodeRef<'a>,
    facts: &Facts<'_>,
    place: Place,
    only: Option<Subject>,
    trail: &mut Vec<EdgeRef<'a>>,
) -> Result<Option<Found<'a>>> {
    if let Some(rule) = node.rule()? {
        return Ok(Some(Found { rule, trail: trail.clone(), doubtful: false }));
    }
    for step in steps(node, facts, place)? {
        if !step.sure || only.is_some_and(|only| only != step.edge.subject) {
            continue;
        }
        trail.push(step.edge);
        let found = sure(&step.edge.node()?, facts, step.next, None, trail)?;
        trail.pop();
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The strictest deny or ask that could apply.
struct Doubts<'x, 'a> {
    facts: &'x Facts<'x>,
    strictest: Option<Found<'a>>,
    trail: Vec<EdgeRef<'a>>,
}

impl<'a> Doubts<'_, 'a> {
    /// Returns whether some rule below certainly applies, so that nothing less
    /// specific beside it can.
    fn explore(&mut self, node: &NodeRef<'a>, place: Place, only: Option<Subject>) -> Result<bool> {
        if let Some(rule) = node.rule()? {
            let effect = rule.effect()?;
            let known = self.strictest.as_ref().map(|found| found.rule.effect()).transpose()?;
            if effect > Effect::Allow && known.is_none_or(|known| effect > known) {
                self.strictest = Some(Found { rule, trail: self.trail.clone(), doubtful: true });
            }
            return Ok(true);
        }
        for step in steps(node, self.facts, place)? {
            if only.is_some_and(|only| only != step.edge.subject) {
                continue;
            }
            self.trail.push(step.edge);
            let decides = self.explore(&step.edge.node()?, step.next, None)?;
            self.trail.pop();
            if decides && step.sure {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
