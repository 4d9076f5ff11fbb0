//! Rules that decide no action, because another rule always decides first.

use clash_policy::decide::reached;
use clash_policy::ir::{IrImage, encode};
use clash_policy::path::PolicyPlaces;
use clash_policy::rule::{Layer, MatchKey, PolicyRule};
use clash_policy::{JudgeContext, PolicySpan};

use super::own;
use super::witness::actions;
use crate::diagnostic::PolicyWarning;
use crate::leaves::rule_leaves;

/// Warns about a rule of the user's files if each example action for it reaches another
/// rule first.
pub(super) fn warnings(layer: &Layer) -> Vec<PolicyWarning> {
    let image = encode(std::slice::from_ref(layer), &[], 0);
    let opened = IrImage::open(&image, 0).ok().and_then(|ir| ir.layers().next()?.ok());
    let Some(flat) = opened else { return Vec::new() };
    let places = PolicyPlaces::imagined();
    let world = JudgeContext::without_disk(&places);
    let mut found = Vec::new();
    for (number, group) in layer.groups.iter().enumerate() {
        let leaves = rule_leaves(&group.branches).into_iter();
        for (keys, rule) in leaves.filter(|(_, rule)| own(&rule.span)) {
            let Some(subject) = keys.first().map(|key| key.subject) else { continue };
            let mut first = None;
            // One action that reaches the rule is enough. An action that the lint cannot
            // make up, or that reaches no rule, proves nothing.
            let comes = actions(&keys, &places).is_none_or(|mut actions| {
                actions.any(|action| match reached(&flat, number, subject, &action, &world) {
                    Ok(Some(span)) if span != rule.span => {
                        first = first.take().or(Some(span));
                        false
                    }
                    _ => true,
                })
            });
            if let Some(decides) = first.filter(|_| !comes) {
                found.push(never(&keys, rule, &decides));
            }
        }
    }
    found
}

/// The warning about a rule that is never reached.
fn never(keys: &[&MatchKey], rule: &PolicyRule, decides: &PolicySpan) -> PolicyWarning {
    let names = |key: &&MatchKey| {
        let patterns: Vec<String> = key.patterns.iter().map(|p| format!("{p}")).collect();
        patterns.join("|")
    };
    let trail: Vec<String> = keys.iter().map(names).collect();
    let message = format!(
        "never reached: for `{}` the rule at {decides} decides before this {}",
        trail.join(" > "),
        rule.effect
    );
    PolicyWarning::new("unreachable", message, &rule.span)
        .hint("the more specific key decides, and of the same key the stricter rule")
}
