//! The rules of a policy: a tree, or the older list of rules in order.

use std::sync::Arc;

use clash_policy::rule::{KeyPattern, KeySubject, MatchBranch, MatchKey, MatchNode, PolicyRule};
use clash_policy::{Effect, FileCaps, FsRule, Sandbox};
use starlark::values::Value;
use starlark::values::dict::DictRef;
use starlark::values::list::ListRef;

use super::LoweringScope;
use super::tree::{host_rules, tree};
use crate::draft::{ExplicitFields, SandboxDraft};
use crate::language_error::{LanguageError, LanguageResult};
use crate::leaves::{RuleLeaf, rule_leaves};
use crate::merge;
use crate::older::{PathValue, PolicyValue, RuleStart};
use crate::value::{KeyValue, SandboxUse};

/// Reads a tree or a list of rules.
pub(crate) fn rules(
    value: Value<'_>,
    scope: &LoweringScope<'_>,
) -> LanguageResult<Vec<MatchBranch>> {
    let Some(list) = ListRef::from_value(value) else { return tree(value, scope) };
    let mut items = Vec::new();
    flatten(list, scope, &mut items)?;
    check_order(&items)?;
    let warn = |warning| scope.collected.warn(warning);
    Ok(items.into_iter().fold(Vec::new(), |known, item| merge::branches(known, item, &warn)))
}

/// Reads each item of a list to its branches, those of inner lists in place. `None` and the
/// values of `policy()` are passed over; an item without an effect is an error.
fn flatten(
    list: &ListRef<'_>,
    scope: &LoweringScope<'_>,
    out: &mut Vec<Vec<MatchBranch>>,
) -> LanguageResult<()> {
    for item in list.iter() {
        // A when() in a list has already recorded its rules.
        if item.is_none() || PolicyValue::from_value(item).is_some() {
            continue;
        }
        if let Some(inner) = ListRef::from_value(item) {
            flatten(inner, scope, out)?;
        } else if let Some(path) = PathValue::from_value(item) {
            out.push(file_tools(&path.fs_rules()?, scope)?);
        } else if RuleStart::from_value(item).is_some() || KeyValue::from_value(item).is_some() {
            return Err(LanguageError::new(format!("`{}` has no effect", item.to_str()))
                .hint("end it with .allow(), .deny() or .ask()"));
        } else if is_hosts(item) {
            out.push(host_rules(item, scope)?);
        } else {
            out.push(tree(item, scope)?);
        }
    }
    Ok(())
}

/// True for the value of `domains()`.
fn is_hosts(value: Value<'_>) -> bool {
    let about_hosts = |key: Value<'_>| {
        matches!(KeyValue::from_value(key), Some(KeyValue::Domain(_) | KeyValue::Network))
    };
    DictRef::from_value(value)
        .is_some_and(|dict| dict.iter().next().is_some() && dict.keys().all(about_hosts))
}

const READING_TOOLS: [&str; 4] = ["Read", "Glob", "Grep", "LS"];
const WRITING_TOOLS: [&str; 4] = ["Write", "Edit", "MultiEdit", "NotebookEdit"];

/// The rules for a path in a list of rules. They are for the agent's file tools, and
/// each has a sandbox of its own, so the default sandbox does not matter.
fn file_tools(rules: &[FsRule], scope: &LoweringScope<'_>) -> LanguageResult<Vec<MatchBranch>> {
    let mut branches = Vec::new();
    for rule in rules {
        let sandbox = match rule.effect {
            Effect::Deny => None,
            _ => Some(define_sandbox_for(rule, scope)?),
        };
        for (cap, tools) in [(FileCaps::READ, READING_TOOLS), (FileCaps::WRITE, WRITING_TOOLS)] {
            for tool in tools.into_iter().filter(|_| rule.caps.contains(cap)) {
                let leaf = PolicyRule {
                    effect: rule.effect,
                    sandbox: sandbox.clone(),
                    reason: None,
                    span: rule.span.clone(),
                };
                let key = |subject, pattern| MatchKey { subject, patterns: vec![pattern] };
                let inner = MatchBranch {
                    key: key(KeySubject::Path, KeyPattern::Path(rule.pattern.clone())),
                    then: MatchNode::Rule(leaf),
                };
                let key = key(KeySubject::Tool, KeyPattern::Literal(tool.to_owned()));
                branches.push(MatchBranch { key, then: MatchNode::Tree(vec![inner]) });
            }
        }
    }
    let warn = |warning| scope.collected.warn(warning);
    Ok(merge::branches(Vec::new(), branches, &warn))
}

/// Defines a sandbox with the rights of one path rule, and returns its name. The right
/// to write includes the right to read, because a tool reads a file to edit it.
fn define_sandbox_for(rule: &FsRule, scope: &LoweringScope<'_>) -> LanguageResult<String> {
    let name = format!("{} {} (line {})", rule.caps, rule.pattern, rule.span.line);
    let sandbox = Sandbox {
        doc: "The rights of a path in a list of rules, for file tools.".to_owned(),
        fs: vec![FsRule {
            effect: Effect::Allow,
            caps: rule.caps.union(FileCaps::READ),
            ..rule.clone()
        }],
        span: rule.span.clone(),
        ..Sandbox::named(name)
    };
    let draft = Arc::new(SandboxDraft { sandbox, said: ExplicitFields::default() });
    scope.collected.redefine(&draft);
    Ok(scope.collected.using(&SandboxUse::Value(draft), &rule.span))
}

/// Fails if a rule comes after a broader and stricter one. Older versions took the first
/// rule of a list that matched, so the later rule never decided. In a tree it would.
fn check_order(items: &[Vec<MatchBranch>]) -> LanguageResult<()> {
    let mut earlier: Vec<RuleLeaf<'_>> = Vec::new();
    for item in items {
        let leaves = rule_leaves(item);
        for (keys, rule) in &leaves {
            let first = earlier
                .iter()
                .find(|(broad, known)| known.effect > rule.effect && covers(broad, keys));
            if let Some((_, known)) = first {
                return Err(LanguageError::new(format!(
                    "this {} comes after a broader {}, which decides first in a list",
                    rule.effect, known.effect
                ))
                .hint(format!("put it before the rule at {}, or write one tree", known.span))
                .at(&rule.span));
            }
        }
        earlier.extend(leaves);
    }
    Ok(())
}

/// True if `broad` has fewer keys or wider ones: each of its keys is `**`, or has all
/// alternatives of the key of `keys` at its place. Globs and expressions are compared by
/// their text only, so in doubt it is false.
fn covers(broad: &[&MatchKey], keys: &[&MatchKey]) -> bool {
    let wider = |(broad, key): (&&MatchKey, &&MatchKey)| {
        broad.subject == key.subject
            && (broad.patterns.contains(&KeyPattern::Any)
                || key.patterns.iter().all(|pattern| broad.patterns.contains(pattern)))
    };
    broad != keys && broad.len() <= keys.len() && broad.iter().zip(keys).all(wider)
}
