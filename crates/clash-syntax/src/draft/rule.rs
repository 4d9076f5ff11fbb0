//! Rules of a draft: a key, and an effect or further rules below it.

use std::collections::BTreeSet;
use std::fmt::Write;

use clash_policy::Effect;

use super::quote::comment;
use super::{KeyDraft, string_literal};

/// Rules that belong together, under one comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleGroup {
    pub comment: Vec<String>,
    pub rules: Vec<RuleDraft>,
}

/// One entry of a tree, with its comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleDraft {
    pub comment: Vec<String>,
    pub key: KeyDraft,
    pub body: RuleBody,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleBody {
    Effect(EffectDraft),
    Below(Vec<RuleDraft>),
}

/// The call at the end of a rule, for example `allow(sandbox = project)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectDraft {
    pub effect: Effect,
    /// The variable that holds the sandbox. `None`: the default sandbox.
    pub sandbox: Option<String>,
    pub reason: Option<String>,
}

impl RuleDraft {
    /// A rule about any of these words, without a comment.
    pub fn new(words: &[&str], body: RuleBody) -> Self {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Self { comment: Vec::new(), key: KeyDraft::Words(words), body }
    }
}

impl EffectDraft {
    pub fn new(effect: Effect, sandbox: Option<&str>) -> Self {
        Self { effect, sandbox: sandbox.map(str::to_owned), reason: None }
    }

    /// The effect as a policy writes it.
    pub fn source(&self) -> String {
        let sandbox = self.sandbox.as_ref().map(|name| format!("sandbox = {name}"));
        let reason = self.reason.as_ref().map(|text| format!("reason = {}", string_literal(text)));
        let args: Vec<String> = sandbox.into_iter().chain(reason).collect();
        format!("{}({})", self.effect, args.join(", "))
    }
}

/// Adds the sandboxes that a rule and the rules below it name.
pub(super) fn sandboxes_in(rule: &RuleDraft, named: &mut BTreeSet<String>) {
    match &rule.body {
        RuleBody::Effect(effect) => named.extend(effect.sandbox.clone()),
        RuleBody::Below(rules) => rules.iter().for_each(|rule| sandboxes_in(rule, named)),
    }
}

/// Appends the entries of all groups, with an empty line before each comment.
pub(super) fn write_groups(out: &mut String, groups: &[RuleGroup], indent: &str, rest: &str) {
    for (at, group) in groups.iter().enumerate() {
        if at > 0 && !group.comment.is_empty() {
            out.push('\n');
        }
        comment(out, &group.comment, indent);
        group.rules.iter().for_each(|rule| write_rule(out, rule, indent, rest));
    }
}

/// Appends the entries of a rule: several for a long list of words. `rest` is the spelling
/// of [`KeyDraft::Rest`] here.
pub(super) fn write_rule(out: &mut String, rule: &RuleDraft, indent: &str, rest: &str) {
    comment(out, &rule.comment, indent);
    match &rule.body {
        RuleBody::Effect(effect) => {
            let effect = effect.source();
            for key in rule.key.split_over_lines(indent.len(), &effect) {
                let _ = writeln!(out, "{indent}{}: {effect},", key.source(rest));
            }
        }
        RuleBody::Below(rules) => {
            let _ = writeln!(out, "{indent}{}: {{", rule.key.source(rest));
            let inner = format!("{indent}    ");
            rules.iter().for_each(|rule| write_rule(out, rule, &inner, rest));
            let _ = writeln!(out, "{indent}}},");
        }
    }
}
