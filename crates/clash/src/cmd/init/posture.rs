//! The postures: the actions that happen without asking. The library's rules give each
//! command a sandbox without network (`X_safe`), one with network (`X_full`), or an ask. A
//! posture makes the rules of a policy from them.
//!
//! Every posture keeps an ask with a reason, with one exception: the permissive posture does
//! not ask about commands that change only the project, for example `rm -r` and
//! `git reset --hard`.

use clap::ValueEnum;
use clash_policy::Effect;

use crate::ecosystems::Ecosystem;
use clash_syntax::draft::{EffectDraft, KeyDraft, RuleBody, RuleDraft};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Posture {
    /// Builds and tests without network; asks about the network
    Strict,
    /// Builds, tests and installs; asks about pushes, destructive and unknown commands
    Moderate,
    /// Runs everything in its sandbox; asks about publishing and rewriting history
    Permissive,
}

impl Posture {
    pub(crate) const ALL: [Self; 3] = [Self::Strict, Self::Moderate, Self::Permissive];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Moderate => "moderate",
            Self::Permissive => "permissive",
        }
    }

    /// The actions that run, that ask and that are blocked, in words.
    pub(crate) fn explained(self) -> [(&'static str, &'static str); 3] {
        match self {
            Self::Strict => [
                ("runs", "reading and editing the project, builds and tests without network"),
                (
                    "asks",
                    "the network, what cannot be undone (rm -r, git reset --hard, git restore), unknown commands",
                ),
                ("blocks", "files outside the project and the toolchains' caches, credentials"),
            ],
            Self::Moderate => [
                ("runs", "the same, and installing dependencies, git fetch and pull"),
                (
                    "asks",
                    "git push, publishing, what cannot be undone (rm -r, git reset --hard, git restore), unknown commands",
                ),
                ("blocks", "files outside the project and the toolchains' caches, credentials"),
            ],
            Self::Permissive => [
                (
                    "runs",
                    "the same, git push, web pages, unknown commands, and what cannot be undone in the project (rm -r src, git reset --hard)",
                ),
                (
                    "asks",
                    "publishing, rewriting history that others have, programs for all projects",
                ),
                ("blocks", "files outside the project and the toolchains' caches, credentials"),
            ],
        }
    }

    /// The library's rules of a toolchain, changed for this posture, shortened, and with
    /// equal rules joined.
    pub(crate) fn applied(
        self,
        rules: Vec<RuleDraft>,
        ecosystem: Option<&Ecosystem>,
    ) -> Vec<RuleDraft> {
        let builds_fetch = ecosystem.is_some_and(|ecosystem| ecosystem.builds_fetch);
        let rules = rules.into_iter().map(|rule| self.change_rule(rule, builds_fetch)).collect();
        together(rules)
    }

    /// Changes the effect of a rule, and of all rules below it.
    fn change_rule(self, rule: RuleDraft, builds_fetch: bool) -> RuleDraft {
        let body = match rule.body {
            RuleBody::Effect(leaf) => RuleBody::Effect(self.change_effect(leaf, builds_fetch)),
            RuleBody::Below(below) => {
                let below: Vec<RuleDraft> =
                    below.into_iter().map(|rule| self.change_rule(rule, builds_fetch)).collect();
                shortened(below)
            }
        };
        RuleDraft { body, ..rule }
    }

    /// The effect of a rule in this posture. Strict asks about the network. Moderate gives
    /// builds that fetch a sandbox with network. Permissive allows what stays in the project,
    /// and asks elsewhere only where the library has a reason.
    fn change_effect(self, leaf: EffectDraft, builds_fetch: bool) -> EffectDraft {
        let full = |name: &String| name.ends_with("_full");
        let reaches_out = leaf.sandbox.as_ref().is_some_and(full);
        let widened = |sandbox: Option<String>| {
            sandbox.map(|name| match name.strip_suffix("_safe") {
                // git_safe hides keys from commands that need none.
                Some(toolchain) if !matches!(toolchain, "git" | "git_checkout" | "git_rebase") => {
                    format!("{toolchain}_full")
                }
                _ => name,
            })
        };
        let project_only =
            leaf.sandbox.as_ref().is_none_or(|name| name.ends_with("_safe") || name == "project");
        match (self, leaf.effect) {
            (Self::Permissive, Effect::Ask) if project_only => {
                EffectDraft { effect: Effect::Allow, reason: None, ..leaf }
            }
            (_, Effect::Ask) if leaf.reason.is_some() => leaf,
            (Self::Strict, Effect::Allow) if reaches_out => {
                EffectDraft { effect: Effect::Ask, ..leaf }
            }
            (Self::Moderate, Effect::Allow) if builds_fetch => {
                EffectDraft { sandbox: widened(leaf.sandbox), ..leaf }
            }
            (Self::Permissive, Effect::Allow | Effect::Ask) => {
                EffectDraft { effect: Effect::Allow, sandbox: widened(leaf.sandbox), ..leaf }
            }
            _ => leaf,
        }
    }
}

/// Leaves out the rules with the same effect and sandbox as the rule for the rest; reasons do
/// not count. If options differ from the rest, all options stay. A single rule is left as its
/// effect.
fn shortened(mut rules: Vec<RuleDraft>) -> RuleBody {
    let rest = rules.iter().find_map(|rule| match (&rule.key, &rule.body) {
        (KeyDraft::Rest, RuleBody::Effect(leaf)) => Some(leaf.clone()),
        _ => None,
    });
    let Some(rest) = rest else { return RuleBody::Below(rules) };
    // Options may come in any order, and the option that asks must win, for example in
    // `git restore --staged --worktree f`.
    let is_option = |key: &KeyDraft| match key {
        KeyDraft::Words(words) => words.iter().any(|word| word.starts_with('-')),
        KeyDraft::AnyOf(keys) => keys.iter().any(|key| key.to_string().contains("\"-")),
        KeyDraft::Localhost(_) | KeyDraft::Rest => false,
    };
    let differs = |rule: &RuleDraft| is_option(&rule.key) && !is_all(&rule.body, &rest);
    let options_differ = rules.iter().any(differs);
    rules.retain(|rule| {
        let counts = options_differ && is_option(&rule.key);
        rule.key == KeyDraft::Rest || counts || !is_all(&rule.body, &rest)
    });
    match rules.as_slice() {
        [_] => RuleBody::Effect(rest),
        _ => RuleBody::Below(rules),
    }
}

/// True if every rule below has the effect `leaf`.
fn is_all(body: &RuleBody, leaf: &EffectDraft) -> bool {
    match body {
        RuleBody::Effect(it) => (it.effect, &it.sandbox) == (leaf.effect, &leaf.sandbox),
        RuleBody::Below(rules) => rules.iter().all(|rule| is_all(&rule.body, leaf)),
    }
}

/// Joins programs with equal rules in one rule, and sorts the words of each.
fn together(rules: Vec<RuleDraft>) -> Vec<RuleDraft> {
    let mut kept: Vec<RuleDraft> = Vec::new();
    for rule in rules {
        let alike = kept.iter_mut().find(|known| known.body == rule.body);
        match (alike.map(|known| &mut known.key), rule.key) {
            (Some(KeyDraft::Words(known)), KeyDraft::Words(words)) => known.extend(words),
            (_, key) => kept.push(RuleDraft { key, ..rule }),
        }
    }
    for rule in &mut kept {
        if let KeyDraft::Words(words) = &mut rule.key {
            words.sort();
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::super::presets::tests::library;
    use super::*;
    use crate::ecosystems::{ECOSYSTEMS, find_ecosystem};
    use clash_syntax::edit::RuleKey;

    /// The words or patterns of a key.
    fn alternatives(key: &KeyDraft) -> Vec<String> {
        match key {
            KeyDraft::Words(words) => words.clone(),
            KeyDraft::AnyOf(keys) => keys
                .iter()
                .map(|key| match key {
                    RuleKey::Str(text) | RuleKey::Call { arg: Some(text), .. } => text.clone(),
                    RuleKey::Call { name, arg: None } => name.clone(),
                })
                .collect(),
            KeyDraft::Localhost(_) | KeyDraft::Rest => Vec::new(),
        }
    }

    /// Every rule below, as `words effect sandbox`.
    fn flat(rules: &[RuleDraft]) -> Vec<(String, EffectDraft)> {
        let mut all = Vec::new();
        for rule in rules {
            let words = match &rule.key {
                KeyDraft::Rest => "**".to_owned(),
                key => alternatives(key).join("|"),
            };
            match &rule.body {
                RuleBody::Effect(leaf) => all.push((words, leaf.clone())),
                RuleBody::Below(below) => all.extend(
                    flat(below).into_iter().map(|(more, leaf)| (format!("{words} {more}"), leaf)),
                ),
            }
        }
        all
    }

    fn all(posture: Posture) -> Vec<(String, EffectDraft)> {
        let library = library();
        let each = |it: &'static Ecosystem| {
            flat(&posture.applied(library.rules(it.name).unwrap(), Some(it)))
        };
        ECOSYSTEMS.iter().flat_map(each).collect()
    }

    #[test]
    fn strict_lets_nothing_reach_out_unasked() {
        for (words, leaf) in all(Posture::Strict) {
            let sandbox = leaf.sandbox.unwrap();
            assert!(
                leaf.effect != Effect::Allow || sandbox.ends_with("_safe"),
                "{words} {sandbox}"
            );
        }
    }

    #[test]
    fn what_acts_beyond_the_project_is_asked_in_every_posture() {
        let beyond =
            |leaf: &EffectDraft| !leaf.sandbox.as_ref().is_some_and(|it| it.ends_with("_safe"));
        let library = library();
        for ecosystem in ECOSYSTEMS {
            let rules = library.rules(ecosystem.name).unwrap();
            for posture in Posture::ALL {
                let applied = posture.applied(rules.clone(), Some(ecosystem));
                for (words, leaf) in flat(&rules)
                    .iter()
                    .filter(|(_, leaf)| leaf.reason.is_some())
                    .filter(|(_, leaf)| posture != Posture::Permissive || beyond(leaf))
                {
                    let words: Vec<&str> =
                        words.split(' ').map(|word| word.split('|').next().unwrap()).collect();
                    let found = found(&applied, &words).map(|leaf| leaf.effect);
                    assert_eq!(found, Some(leaf.effect), "{words:?} {posture:?}");
                }
            }
        }
    }

    /// The effect for a command, by the first key that matches each word.
    fn found<'a>(rules: &'a [RuleDraft], words: &[&str]) -> Option<&'a EffectDraft> {
        let (word, more) = words.split_first()?;
        let names = |rule: &&RuleDraft| match &rule.key {
            KeyDraft::Rest => true,
            key => alternatives(key).iter().any(|known| known == word),
        };
        rules.iter().filter(names).find_map(|rule| match &rule.body {
            RuleBody::Effect(leaf) => Some(leaf),
            RuleBody::Below(below) => found(below, more),
        })
    }

    #[test]
    fn a_posture_changes_where_builds_run() {
        let library = library();
        let cargo = |posture: Posture| {
            let rules = posture.applied(library.rules("rust").unwrap(), find_ecosystem("rust"));
            flat(&rules)
                .into_iter()
                .map(|(words, leaf)| format!("{words}: {}", leaf.source()))
                .collect::<Vec<_>>()
        };
        assert!(
            cargo(Posture::Strict).contains(&"cargo **: allow(sandbox = rust_safe)".to_owned())
        );
        assert!(
            cargo(Posture::Moderate).contains(&"cargo **: allow(sandbox = rust_full)".to_owned())
        );
        let push = |posture: Posture| {
            let rules = posture.applied(library.rules("git").unwrap(), find_ecosystem("git"));
            found(&rules, &["git", "push", "**"]).unwrap().effect
        };
        assert_eq!(push(Posture::Strict), Effect::Ask);
        assert_eq!(push(Posture::Moderate), Effect::Ask);
        assert_eq!(push(Posture::Permissive), Effect::Allow);
    }
}
