//! The builder forms of earlier versions: paths and rules put together with
//! methods instead of dicts. They end in the same dicts and file rules as the
//! forms of today; what they could say and these cannot is a mistake.

mod endings;
mod paths;
mod policy;
mod rules;

use starlark::environment::{GlobalsBuilder, MethodsBuilder};

pub(crate) use paths::PathValue;
pub(crate) use policy::PolicyValue;
pub(crate) use rules::{RuleStart, match_tree_names};

pub(crate) fn names(builder: &mut GlobalsBuilder) {
    paths::names(builder);
    policy::names(builder);
    rules::names(builder);
}

/// Keys that a path or a rule can begin with.
pub(crate) fn key_methods(builder: &mut MethodsBuilder) {
    paths::directories(builder);
    rules::places(builder);
    endings::endings(builder);
}
