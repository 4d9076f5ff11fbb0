//! The match tree of one effect, filled rule by rule.
//!
//! Because a tree holds one effect only, a shorter path stands for every path below
//! it: a deny of `git` replaces a deny of `git push`, and no entry has to be compared
//! with another.

use std::collections::BTreeMap;

use clash_policy::Effect;
use clash_syntax::draft::{EffectDraft, KeyDraft, RuleBody, RuleDraft};

use crate::text::shown;

/// One imported rule: the entries it came from, and its reason and sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct ImportedRule {
    pub(crate) notes: Vec<String>,
    pub(crate) reason: Option<String>,
    /// The variable that holds the sandbox.
    pub(crate) sandbox: Option<String>,
}

impl ImportedRule {
    pub(crate) fn noting(note: impl Into<String>) -> Self {
        Self { notes: vec![note.into()], ..Self::default() }
    }
}

/// A rule, or further keys.
#[derive(Clone, Debug)]
enum TreeNode {
    Leaf(ImportedRule),
    Tree(RuleTree),
}

/// The keys of one level, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleTree {
    branches: Vec<(KeyDraft, TreeNode)>,
    /// The index of each key in `branches`.
    index: BTreeMap<KeyDraft, usize>,
}

impl RuleTree {
    pub(crate) fn is_empty(&self) -> bool {
        self.branches.is_empty()
    }

    /// Adds a rule below these keys; nothing without a key. A rule at a shorter path takes
    /// the place of all below it and collects their notes. Below an existing rule, only the
    /// note is added to that.
    pub(crate) fn insert(&mut self, path: &[KeyDraft], rule: ImportedRule) {
        let Some((key, rest)) = path.split_first() else { return };
        let next = self.branches.len();
        let at = *self.index.entry(key.clone()).or_insert(next);
        if at == next {
            let node = if rest.is_empty() { TreeNode::Leaf(rule) } else { tree_of(rest, rule) };
            self.branches.push((key.clone(), node));
            return;
        }
        let Some((_, node)) = self.branches.get_mut(at) else { return };
        match node {
            TreeNode::Leaf(known) => known.notes.extend(rule.notes),
            TreeNode::Tree(tree) if rest.is_empty() => {
                let mut rule = rule;
                tree.collect_notes(&mut rule.notes);
                *node = TreeNode::Leaf(rule);
            }
            TreeNode::Tree(tree) => tree.insert(rest, rule),
        }
    }

    /// Adds the notes of all rules below.
    fn collect_notes(&self, all: &mut Vec<String>) {
        for (_, node) in &self.branches {
            match node {
                TreeNode::Leaf(rule) => all.extend(rule.notes.iter().cloned()),
                TreeNode::Tree(tree) => tree.collect_notes(all),
            }
        }
    }

    /// The tree as rules of a draft, all with this effect.
    pub(crate) fn rules(&self, effect: Effect) -> Vec<RuleDraft> {
        let rule = |(key, node): &(KeyDraft, TreeNode)| {
            let (comment, body) = match node {
                TreeNode::Leaf(ImportedRule { notes, reason, sandbox }) => {
                    let (reason, sandbox) = (reason.clone(), sandbox.clone());
                    let comment = notes.iter().map(|note| shown(note)).collect();
                    (comment, RuleBody::Effect(EffectDraft { effect, sandbox, reason }))
                }
                TreeNode::Tree(tree) => (Vec::new(), RuleBody::Below(tree.rules(effect))),
            };
            RuleDraft { comment, key: key.clone(), body }
        };
        self.branches.iter().map(rule).collect()
    }
}

/// A tree with one rule.
fn tree_of(path: &[KeyDraft], rule: ImportedRule) -> TreeNode {
    let mut tree = RuleTree::default();
    tree.insert(path, rule);
    TreeNode::Tree(tree)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clash_syntax::draft::{NamedPolicy, PolicyDraft};

    /// A deny policy with these paths of words, as text.
    fn written(entries: &[&[&str]]) -> String {
        let mut tree = RuleTree::default();
        for path in entries {
            let keys: Vec<KeyDraft> = path.iter().map(|word| KeyDraft::text(*word)).collect();
            tree.insert(&keys, ImportedRule::noting(path.join(" ")));
        }
        let policy = NamedPolicy { name: "p".into(), rules: tree.rules(Effect::Deny) };
        PolicyDraft { policies: vec![policy], ..PolicyDraft::default() }.text().unwrap()
    }

    #[test]
    fn paths_share_their_beginning() {
        insta::assert_snapshot!(written(&[&["git", "push"], &["rm"], &["git", "reset"]]), @r#"
        policy("p", {
            "git": {
                # git push
                "push": deny(),
                # git reset
                "reset": deny(),
            },
            # rm
            "rm": deny(),
        })
        "#);
    }

    #[test]
    fn a_shorter_path_replaces_longer_ones_in_either_order() {
        for entries in [&[&["git"][..], &["git", "push"]], &[&["git", "push"][..], &["git"]]] {
            let text = written(entries);
            assert_eq!(text.matches("deny()").count(), 1, "{text}");
            assert!(text.contains("# git\n") && text.contains("# git push\n"), "{text}");
        }
    }
}
