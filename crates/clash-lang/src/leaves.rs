//! The rules of a tree, each with the keys above it.

use clash_policy::rule::{Branch, Key, Node, Rule};

pub(crate) type RuleLeaf<'a> = (Vec<&'a Key>, &'a Rule);

pub(crate) fn of(branches: &[Branch]) -> Vec<RuleLeaf<'_>> {
    let mut leaves = Vec::new();
    collect(branches, &mut Vec::new(), &mut leaves);
    leaves
}

fn collect<'a>(branches: &'a [Branch], above: &mut Vec<&'a Key>, leaves: &mut Vec<RuleLeaf<'a>>) {
    for branch in branches {
        above.push(&branch.key);
        match &branch.then {
            Node::Rule(rule) => leaves.push((above.clone(), rule)),
            Node::Tree(below) => collect(below, above, leaves),
        }
        above.pop();
    }
}
