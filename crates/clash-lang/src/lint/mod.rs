//! What compiles and is probably not meant: rules nothing comes to, sandboxes
//! that open credentials, denies that deny nothing. Only the user's own files
//! are looked at, on an imagined machine, so that a warning depends on nothing
//! but the policy. In doubt there is no warning.

mod reach;
mod sandboxes;
mod witness;

use clash_policy::rule::{Layer, PolicyRule};
use clash_policy::{Effect, PolicySpan};

use crate::diagnostic::PolicyWarning;

/// What is worth saying about a layer; `used` are the sandboxes that something
/// refers to.
pub(crate) fn warnings(layer: &Layer, used: &[String]) -> Vec<PolicyWarning> {
    let mut found = Vec::new();
    if let Some(rule) = layer.settings.default.as_ref().filter(|rule| own(&rule.span)) {
        found.extend(open_default(rule));
    }
    found.extend(reach::warnings(layer));
    found.extend(sandboxes::warnings(layer, used));
    found
}

/// Whether a place is in a file of the user and not of the library.
fn own(span: &PolicySpan) -> bool {
    !span.file.starts_with('@')
}

fn open_default(rule: &PolicyRule) -> Option<PolicyWarning> {
    (rule.effect == Effect::Allow).then(|| {
        PolicyWarning::new("open-default", "whatever no rule names is allowed", &rule.span)
            .hint("default = ask() asks about it, and each answer can become a rule")
    })
}

#[cfg(test)]
mod tests;
