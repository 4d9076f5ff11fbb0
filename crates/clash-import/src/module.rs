//! An imported policy as a module that another policy loads.

use clash_syntax::SyntaxError;
use clash_syntax::draft::{PolicyModule, make_module};

use crate::draft::ALLOWS_POLICY;

/// The rules of an imported policy that go into the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptRules {
    Everything,
    /// Denies and asks: for settings that the user has not accepted, for example those
    /// of an untrusted project.
    Restrictions,
}

/// Turns an imported policy into the module `name`. Without its allows, if only
/// restrictions are kept.
pub fn module(source: &str, name: &str, keep: KeptRules) -> Result<PolicyModule, SyntaxError> {
    make_module(source, name, (keep == KeptRules::Restrictions).then_some(ALLOWS_POLICY))
}
