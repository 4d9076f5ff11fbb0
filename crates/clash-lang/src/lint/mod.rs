//! Probable mistakes: rules that decide no action, sandboxes that open credentials,
//! denies without effect. The lint looks only at the user's own files and imagines the
//! directories, so a warning depends on the policy alone. In doubt it does not warn.

mod reach;
mod sandboxes;
mod witness;

use clash_policy::rule::{Layer, PolicyRule};
use clash_policy::{Effect, PolicySpan};

use crate::diagnostic::PolicyWarning;

/// The warnings about a layer. `used` are the sandboxes that rules or other sandboxes
/// use.
pub(crate) fn warnings(layer: &Layer, used: &[String]) -> Vec<PolicyWarning> {
    let mut found = Vec::new();
    if let Some(rule) = layer.settings.default.as_ref().filter(|rule| own(&rule.span)) {
        found.extend(open_default(rule));
    }
    found.extend(reach::warnings(layer));
    found.extend(sandboxes::warnings(layer, used));
    found
}

/// True if a place is in a file of the user and not of the library.
fn own(span: &PolicySpan) -> bool {
    !span.file.starts_with('@')
}

/// A warning if the policy's default is `allow`.
fn open_default(rule: &PolicyRule) -> Option<PolicyWarning> {
    (rule.effect == Effect::Allow).then(|| {
        PolicyWarning::new(
            "open-default",
            "every action that no rule matches is allowed",
            &rule.span,
        )
        .hint("with default = ask() the user decides, and each answer can become a rule")
    })
}
