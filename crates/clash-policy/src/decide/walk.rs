//! Walks the match trees of a layer for one command, tool, path or host.
//!
//! The result has two rules: the most specific rule whose keys certainly match, and the
//! strictest more specific deny or ask whose keys might match after the shell has
//! expanded the words. So denies over-match and allows under-match: for `git $x`, a
//! deny of `git push` counts and an allow of it does not.

use crate::effect::Effect;
use crate::ir::{EdgeMatcher, EdgeRef, GroupRef, IrError, LayerRef, NodeRef, RuleRef};
use crate::rule::KeySubject;

use super::edges::{MatchedEdges, TreePosition, WildKeys, find_matching_edges};
use super::facts::MatchFacts;
use super::{DecideError, DecideResult};

/// A rule whose keys match, or might match if it is doubtful. The trail has its keys, from
/// the root.
pub(super) struct MatchedRule<'a> {
    pub(super) rule: RuleRef<'a>,
    pub(super) trail: Vec<EdgeRef<'a>>,
    pub(super) doubtful: bool,
}

impl MatchedRule<'_> {
    /// The keys for people, as in `["Bash", "git", "push"]`.
    pub(super) fn shown(&self) -> Vec<String> {
        self.trail.iter().map(shown).collect()
    }

    /// True if a key is a path pattern, also one that covers a whole tree.
    pub(super) fn names_path(&self) -> bool {
        self.trail.iter().any(|edge| edge.matcher == EdgeMatcher::Path)
    }
}

/// True if no key of a rule names a word or an option of a command.
fn is_catch_all(trail: &[EdgeRef<'_>]) -> bool {
    let names = |edge: &EdgeRef<'_>| {
        matches!(edge.subject, KeySubject::Word | KeySubject::Option)
            && edge.matcher != EdgeMatcher::Any
    };
    !trail.iter().any(names)
}

/// One key for people.
fn shown(edge: &EdgeRef<'_>) -> String {
    match (edge.matcher, edge.subject) {
        (EdgeMatcher::Any, _) => "**".to_owned(),
        (EdgeMatcher::Regex, _) => format!("regex({})", edge.text),
        (_, KeySubject::Mode) => format!("mode {}", edge.text),
        (_, KeySubject::Agent) => format!("agent {}", edge.text),
        (_, KeySubject::End) => "(end)".to_owned(),
        _ => edge.text.to_owned(),
    }
}

/// The matching rules of a layer, or of one of its trees.
#[derive(Default)]
pub(super) struct TreeAnswer<'a> {
    /// The rule that certainly applies.
    pub(super) certain: Option<MatchedRule<'a>>,
    /// A stricter rule that may apply instead.
    pub(super) doubtful: Option<MatchedRule<'a>>,
}

impl<'a> TreeAnswer<'a> {
    /// The stricter of two certain rules, and the stricter of two doubtful ones.
    fn combine(self, other: Self) -> DecideResult<Self> {
        let certain = stricter(self.certain, other.certain)?;
        let doubtful = stricter(self.doubtful, other.doubtful)?;
        Self { certain, doubtful }.settled()
    }

    /// Drops the doubtful rule if it is not stricter than the certain one.
    fn settled(self) -> DecideResult<Self> {
        let Self { certain: Some(certain), doubtful: Some(doubtful) } = &self else {
            return Ok(self);
        };
        let settled = doubtful.rule.effect()? <= certain.rule.effect()?;
        Ok(if settled { Self { doubtful: None, ..self } } else { self })
    }

    /// The doubtful rule, which is stricter if there is one, or the certain one.
    pub(super) fn strictest(self) -> Option<MatchedRule<'a>> {
        self.doubtful.or(self.certain)
    }
}

/// The matching rules of a layer. Groups, and in them tools, modes and agents, are
/// independent: the strictest holds. `named_only` ignores rules that name no command.
pub(super) fn layer<'a>(
    layer: &LayerRef<'a>,
    facts: &MatchFacts<'_>,
    named_only: bool,
) -> DecideResult<TreeAnswer<'a>> {
    let mut said = TreeAnswer::default();
    for group in layer.groups()? {
        let group = group?;
        for subject in KeySubject::ROOT {
            said = said.combine(branch(&group, subject, facts, named_only)?)?;
        }
    }
    Ok(said)
}

/// The matching rules below the root keys about one subject. A command with too many
/// readings is an error.
pub(super) fn branch<'a>(
    group: &GroupRef<'a>,
    subject: KeySubject,
    facts: &MatchFacts<'_>,
    named_only: bool,
) -> DecideResult<TreeAnswer<'a>> {
    let root = group.root()?;
    let mut walk = TreeWalk {
        facts,
        named_only,
        said: TreeAnswer::default(),
        trail: Vec::new(),
        left: MAX_VISITED_NODES,
    };
    walk.explore(&root, TreePosition::default(), Some(subject), true)?;
    walk.said.settled()
}

/// The rule with the stricter effect; the first of two with the same effect.
fn stricter<'a>(
    a: Option<MatchedRule<'a>>,
    b: Option<MatchedRule<'a>>,
) -> DecideResult<Option<MatchedRule<'a>>> {
    Ok(match (a, b) {
        (Some(a), Some(b)) => Some(if b.rule.effect()? > a.rule.effect()? { b } else { a }),
        (a, b) => a.or(b),
    })
}

/// The compiler makes no deeper trees.
const MAX_TREE_DEPTH: usize = 200;

/// A command that needs more visits is an error: the agent would wait too long.
const MAX_VISITED_NODES: usize = 20_000;

/// One walk finds both rules. It tries keys from the most to the least specific, up to
/// the first rule that certainly applies. Earlier rules may apply instead; of these,
/// only a stricter one counts. Each field of an input is decided on its own.
struct TreeWalk<'x, 'a> {
    facts: &'x MatchFacts<'x>,
    named_only: bool,
    said: TreeAnswer<'a>,
    trail: Vec<EdgeRef<'a>>,
    /// The number of nodes that may still be visited.
    left: usize,
}

impl<'a> TreeWalk<'_, 'a> {
    /// Visits a node. True if a rule below certainly applies, provided that the keys
    /// above match: less specific keys beside it then do not count. `only` restricts
    /// the keys of this node, not of the nodes below. `sure` is true if the keys above
    /// certainly match.
    fn explore(
        &mut self,
        node: &NodeRef<'a>,
        place: TreePosition,
        only: Option<KeySubject>,
        sure: bool,
    ) -> DecideResult<bool> {
        self.left = self.left.checked_sub(1).ok_or(DecideError::TooManyReadings)?;
        if let Some(rule) = node.rule()? {
            if self.named_only && is_catch_all(&self.trail) {
                return Ok(false);
            }
            let found = MatchedRule { rule, trail: self.trail.clone(), doubtful: !sure };
            if sure {
                self.said.certain = stricter(self.said.certain.take(), Some(found))?;
            } else if rule.effect()? > Effect::Allow {
                self.said.doubtful = stricter(self.said.doubtful.take(), Some(found))?;
            }
            return Ok(true);
        }
        if self.trail.len() >= MAX_TREE_DEPTH {
            return Err(IrError::Damaged.into());
        }
        let MatchedEdges { literal, others, wild } = find_matching_edges(node, self.facts, place)?;
        let mut passed = None;
        let mut fields = Vec::new();
        let last = literal.len();
        for (at, step) in literal.into_iter().chain(others).enumerate() {
            let field = step.field();
            let other = only.is_some_and(|only| only != step.edge.subject);
            if other || (!fields.is_empty() && field.is_none_or(|field| fields.contains(&field))) {
                continue;
            }
            let upto = (at < last).then_some(step.order());
            self.explore_wild(node, &wild, &mut passed, upto)?;
            let below = step.edge.node()?;
            if !step.sure && below.strictest()? <= self.doubt()? {
                continue;
            }
            self.trail.push(step.edge);
            let decides = self.explore(&below, step.next, None, sure && step.sure)?;
            self.trail.pop();
            match field {
                Some(field) if decides => fields.push(field),
                _ if decides && step.sure => return Ok(true),
                _ => {}
            }
        }
        if fields.is_empty() {
            self.explore_wild(node, &wild, &mut passed, None)?;
        }
        Ok(!fields.is_empty())
    }

    /// The strictest effect of the doubtful rules found so far.
    fn doubt(&self) -> DecideResult<Effect> {
        let known = self.said.doubtful.as_ref().map(|found| found.rule.effect()).transpose()?;
        Ok(known.unwrap_or(Effect::Allow))
    }

    /// Visits literal keys when each of them could match, if a rule below is stricter
    /// than the known ones. Only keys behind `passed` and before `upto` are visited.
    fn explore_wild(
        &mut self,
        node: &NodeRef<'a>,
        wild: &[Option<WildKeys>],
        passed: &mut Option<(u32, u32)>,
        upto: Option<(u32, u32)>,
    ) -> DecideResult<()> {
        let before = |edge: &EdgeRef<'_>| upto.is_none_or(|upto| (edge.rank, edge.order) < upto);
        loop {
            let least = match self.doubt()? {
                Effect::Allow => Effect::Ask,
                Effect::Ask => Effect::Deny,
                Effect::Deny => return Ok(()),
            };
            let mut nearest: Option<(EdgeRef<'a>, TreePosition)> = None;
            for WildKeys { subject, next } in wild.iter().flatten() {
                let edge = node.next_doubt(*subject, least, *passed)?.filter(before);
                let order = |edge: &EdgeRef<'_>| (edge.rank, edge.order);
                if let Some(edge) = edge
                    && nearest.is_none_or(|(known, _)| order(&edge) < order(&known))
                {
                    nearest = Some((edge, *next));
                }
            }
            let Some((edge, next)) = nearest else { return Ok(()) };
            *passed = Some((edge.rank, edge.order));
            self.trail.push(edge);
            self.explore(&edge.node()?, next, None, false)?;
            self.trail.pop();
        }
    }
}
