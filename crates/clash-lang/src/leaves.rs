//! The rules of a tree, each with the keys above it, outermost first.

use clash_policy::rule::{MatchBranch, MatchKey, MatchNode, PolicyRule};

/// A rule and the keys above it, outermost first.
pub(crate) type RuleLeaf<'a> = (Vec<&'a MatchKey>, &'a PolicyRule);

/// All rules of a tree, in the order of the source.
pub(crate) fn rule_leaves(branches: &[MatchBranch]) -> Vec<RuleLeaf<'_>> {
    let mut leaves = Vec::new();
    collect(branches, &mut Vec::new(), &mut leaves);
    leaves
}

/// Adds the rules of a tree; `above` are the keys so far.
fn collect<'a>(
    branches: &'a [MatchBranch],
    above: &mut Vec<&'a MatchKey>,
    leaves: &mut Vec<RuleLeaf<'a>>,
) {
    for branch in branches {
        above.push(&branch.key);
        match &branch.then {
            MatchNode::Rule(rule) => leaves.push((above.clone(), rule)),
            MatchNode::Tree(below) => collect(below, above, leaves),
        }
        above.pop();
    }
}
