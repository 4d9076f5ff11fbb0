//! The match tree that is being written: keys, leaves, and their text.
//!
//! One tree holds leaves of one effect only. A shorter path therefore stands
//! for everything below it, and joining entries never has to weigh them.

use std::collections::BTreeMap;

use crate::Effect;
use crate::text::{literal, shown};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Text(String),
    Glob(String),
    Regex(String),
    Exact(String),
    Subpath(String),
    Localhost(Vec<u16>),
    Mode(String),
    /// No further word of a command.
    End,
    AnyOf(Vec<Key>),
}

impl Key {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn any_of(keys: impl IntoIterator<Item = Self>) -> Self {
        let mut known: Vec<Self> = Vec::new();
        for key in keys {
            if !known.contains(&key) {
                known.push(key);
            }
        }
        match <[Self; 1]>::try_from(known) {
            Ok([only]) => only,
            Err(several) => Self::AnyOf(several),
        }
    }

    pub(crate) fn names(names: &[&str]) -> Self {
        Self::any_of(names.iter().map(|name| Self::text(*name)))
    }

    pub(crate) fn written(&self) -> String {
        let call = |name: &str, text: &str| format!("{name}({})", literal(text));
        match self {
            Self::Text(text) => literal(text),
            Self::Glob(text) => call("glob", text),
            Self::Regex(text) => call("regex", text),
            Self::Exact(text) => call("exact", text),
            Self::Subpath(text) => call("subpath", text),
            Self::Mode(text) => call("mode", text),
            Self::Localhost(ports) => {
                let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                format!("localhost(ports = [{}])", ports.join(", "))
            }
            Self::End => "end()".to_owned(),
            Self::AnyOf(keys) => {
                let keys: Vec<String> = keys.iter().map(Self::written).collect();
                let comma = if keys.len() == 1 { "," } else { "" };
                format!("({}{comma})", keys.join(", "))
            }
        }
    }
}

/// Where a rule came from, and what to say when it decides.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct ImportedRule {
    pub(crate) notes: Vec<String>,
    pub(crate) reason: Option<String>,
    /// The variable that holds the sandbox.
    pub(crate) sandbox: Option<String>,
}

impl ImportedRule {
    pub(crate) fn from(note: impl Into<String>) -> Self {
        Self { notes: vec![note.into()], ..Self::default() }
    }
}

#[derive(Clone, Debug)]
enum TreeNode {
    Leaf(ImportedRule),
    Tree(RuleTree),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RuleTree {
    branches: Vec<(Key, TreeNode)>,
    at: BTreeMap<Key, usize>,
}

impl RuleTree {
    pub(crate) fn is_empty(&self) -> bool {
        self.branches.is_empty()
    }

    pub(crate) fn insert(&mut self, path: &[Key], leaf: ImportedRule) {
        let Some((key, rest)) = path.split_first() else { return };
        let next = self.branches.len();
        let at = *self.at.entry(key.clone()).or_insert(next);
        if at == next {
            let node = if rest.is_empty() { TreeNode::Leaf(leaf) } else { below(rest, leaf) };
            self.branches.push((key.clone(), node));
            return;
        }
        let Some((_, node)) = self.branches.get_mut(at) else { return };
        match node {
            TreeNode::Leaf(known) => known.notes.extend(leaf.notes),
            TreeNode::Tree(tree) if rest.is_empty() => {
                let mut leaf = leaf;
                tree.notes(&mut leaf.notes);
                *node = TreeNode::Leaf(leaf);
            }
            TreeNode::Tree(tree) => tree.insert(rest, leaf),
        }
    }

    fn notes(&self, all: &mut Vec<String>) {
        for (_, node) in &self.branches {
            match node {
                TreeNode::Leaf(leaf) => all.extend(leaf.notes.iter().cloned()),
                TreeNode::Tree(tree) => tree.notes(all),
            }
        }
    }

    pub(crate) fn write(&self, effect: Effect, depth: usize, out: &mut String) {
        let indent = "    ".repeat(depth);
        for (key, node) in &self.branches {
            match node {
                TreeNode::Leaf(leaf) => {
                    for note in &leaf.notes {
                        out.push_str(&format!("{indent}# {}\n", shown(note)));
                    }
                    let effect = called(effect, leaf);
                    out.push_str(&format!("{indent}{}: {effect},\n", key.written()));
                }
                TreeNode::Tree(tree) => {
                    out.push_str(&format!("{indent}{}: {{\n", key.written()));
                    tree.write(effect, depth + 1, out);
                    out.push_str(&format!("{indent}}},\n"));
                }
            }
        }
    }
}

fn below(path: &[Key], leaf: ImportedRule) -> TreeNode {
    let mut tree = RuleTree::default();
    tree.insert(path, leaf);
    TreeNode::Tree(tree)
}

fn called(effect: Effect, leaf: &ImportedRule) -> String {
    let sandbox = leaf.sandbox.as_ref().map(|name| format!("sandbox = {name}"));
    let reason = leaf.reason.as_ref().map(|text| format!("reason = {}", literal(text)));
    let args: Vec<String> = sandbox.into_iter().chain(reason).collect();
    format!("{}({})", effect.word(), args.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(entries: &[&[&str]]) -> String {
        let mut tree = RuleTree::default();
        for path in entries {
            let keys: Vec<Key> = path.iter().map(|word| Key::text(*word)).collect();
            tree.insert(&keys, ImportedRule::from(path.join(" ")));
        }
        let mut out = String::new();
        tree.write(Effect::Deny, 0, &mut out);
        out
    }

    #[test]
    fn paths_share_their_beginning() {
        insta::assert_snapshot!(written(&[&["git", "push"], &["rm"], &["git", "reset"]]), @r#"
        "git": {
            # git push
            "push": deny(),
            # git reset
            "reset": deny(),
        },
        # rm
        "rm": deny(),
        "#);
    }

    #[test]
    fn a_shorter_path_stands_for_the_longer_ones_in_either_order() {
        for entries in [&[&["git"][..], &["git", "push"]], &[&["git", "push"][..], &["git"]]] {
            let text = written(entries);
            assert_eq!(text.matches("deny()").count(), 1, "{text}");
            assert!(text.contains("# git\n") && text.contains("# git push\n"), "{text}");
        }
    }
}
