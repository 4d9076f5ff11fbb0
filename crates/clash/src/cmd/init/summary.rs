//! A policy on one screen: the programs in each sandbox, and the commands that ask or are
//! denied. It comes from the compiled policy, so it cannot differ from the decisions.

use clash_policy::Effect;
use clash_policy::ir::IrError;
use clash_policy::rule::{
    KeySubject, Layer, LayerKind, LayerSettings, MatchBranch, MatchNode, PolicyRule,
};

use crate::policy::LoadedPolicy;

/// A row is one line of a terminal; the text of the policy has all names.
const ROW_COLUMNS: usize = 78;
/// Columns for the first column of a row, for example `runs in git_checkout_safe`.
const HEAD_COLUMNS: usize = 30;
/// Rows about sandboxes.
const MOST_SANDBOXES: usize = 9;

/// The rows of the screen: an effect, and its commands. Only rules about commands, of the
/// user's and the project's policy.
pub(super) fn rows(policy: &LoadedPolicy) -> Result<Vec<(String, String)>, IrError> {
    let layers = policy.ir().to_layers()?;
    let written = |layer: &&Layer| matches!(layer.kind, LayerKind::User | LayerKind::Project);
    let mut seen = SummaryRows::default();
    let mut default = (Effect::Ask, "project".to_owned());
    for Layer { settings, groups, .. } in layers.iter().filter(written) {
        let LayerSettings { default: rule, default_sandbox, .. } = settings;
        if let Some(rule) = rule {
            default.0 = rule.effect;
        }
        if let Some(name) = default_sandbox {
            default.1.clone_from(name);
        }
        let branches = groups.iter().flat_map(|group| &group.branches);
        for MatchBranch { key, then } in branches {
            let is_shell = key.patterns.iter().any(|pattern| pattern.to_string() == "Bash");
            match then {
                MatchNode::Tree(below) if key.subject == KeySubject::Tool && is_shell => {
                    seen.note(below, "", &default.1);
                }
                _ => {}
            }
        }
    }
    Ok(seen.rows(&default))
}

/// The commands of a policy by their effect.
#[derive(Default)]
struct SummaryRows {
    /// The programs that run without asking, by sandbox.
    runs: Vec<(String, Vec<String>)>,
    asked: Vec<String>,
    denied: Vec<String>,
}

impl SummaryRows {
    /// Records every rule below, with the words of its keys in front.
    fn note(&mut self, branches: &[MatchBranch], words: &str, default: &str) {
        for MatchBranch { key, then } in branches {
            let names: Vec<String> = key.patterns.iter().map(ToString::to_string).collect();
            let is_rest = names.iter().all(|name| name == "**");
            let whole = |name: &str| match (words, is_rest) {
                ("", _) => name.to_owned(),
                (words, true) => words.to_owned(),
                (words, false) => format!("{words} {name}"),
            };
            match then {
                // A row names each program, but only the shortest name of an option.
                MatchNode::Tree(below) if words.is_empty() => {
                    names.iter().for_each(|name| self.note(below, name, default));
                }
                MatchNode::Tree(below) => {
                    self.note(below, &whole(&names.join("|")), default);
                }
                MatchNode::Rule(rule) => {
                    let is_option = names.iter().any(|name| name.starts_with('-'));
                    let said: Vec<String> = match names.iter().min_by_key(|name| name.len()) {
                        Some(shortest) if is_option => vec![whole(shortest)],
                        _ => names.iter().map(|name| whole(name)).collect(),
                    };
                    said.into_iter().for_each(|words| self.record(words, rule, default));
                }
            }
        }
    }

    /// Records one command under the effect of its rule, once.
    fn record(
        &mut self,
        words: String,
        PolicyRule { effect, sandbox, .. }: &PolicyRule,
        default: &str,
    ) {
        let into = match effect {
            Effect::Ask => &mut self.asked,
            Effect::Deny => &mut self.denied,
            Effect::Allow => {
                let sandbox = sandbox.as_deref().unwrap_or(default);
                let at = self.runs.iter().position(|(name, _)| name == sandbox);
                let at = at.unwrap_or_else(|| {
                    self.runs.push((sandbox.to_owned(), Vec::new()));
                    self.runs.len() - 1
                });
                let Some((_, into)) = self.runs.get_mut(at) else { return };
                into
            }
        };
        if !into.contains(&words) {
            into.push(words);
        }
    }

    /// A row for each of the first sandboxes (the others are only counted), for asks, for
    /// denials, and for everything else.
    fn rows(self, (effect, sandbox): &(Effect, String)) -> Vec<(String, String)> {
        let mut rows = Vec::new();
        let others = self.runs.len().saturating_sub(MOST_SANDBOXES);
        for (sandbox, programs) in self.runs.iter().take(MOST_SANDBOXES) {
            rows.push((format!("runs in {sandbox}"), in_short(programs)));
        }
        if others > 0 {
            let what =
                format!("in {others} more {}", if others == 1 { "sandbox" } else { "sandboxes" });
            rows.push(("runs elsewhere".to_owned(), what));
        }
        for (word, commands) in [("asks about", &self.asked), ("denies", &self.denied)] {
            if !commands.is_empty() {
                rows.push((word.to_owned(), in_short(commands)));
            }
        }
        let rest = match effect {
            Effect::Allow => "runs",
            Effect::Ask => "is asked about, and runs",
            Effect::Deny => "is denied",
        };
        let place = if *effect == Effect::Deny { String::new() } else { format!(" in {sandbox}") };
        rows.push(("everything else".to_owned(), format!("{rest}{place}")));
        rows
    }
}

/// As many names as fit into a row, and the number of the others.
fn in_short(names: &[String]) -> String {
    let room = ROW_COLUMNS - HEAD_COLUMNS;
    let whole = names.join(", ");
    if whole.chars().count() <= room {
        return whole;
    }
    let mut shown = String::new();
    let mut count = 0;
    for name in names {
        let more = format!(" and {} more", names.len());
        if count > 0 && shown.chars().count() + name.chars().count() + 2 + more.len() > room {
            break;
        }
        shown.push_str(if count > 0 { ", " } else { "" });
        shown.push_str(name);
        count += 1;
    }
    format!("{shown} and {} more", names.len() - count)
}
