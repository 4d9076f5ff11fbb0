//! The forms of Clash 0.5 to 0.7: paths and rules made with methods instead of dicts, for
//! example `cwd().allow()`. Each becomes a dict or file rules of the present language. A
//! form that the present language cannot express is an error.
//!
//! These forms end with the version `OLDER_FORMS_END_VERSION` of clash-syntax, which
//! also rewrites them (`clash fmt --upgrade`).

mod endings;
mod paths;
mod policy;
mod rules;

use starlark::environment::{GlobalsBuilder, MethodsBuilder};

pub(crate) use paths::PathValue;
pub(crate) use policy::PolicyValue;
pub(crate) use rules::{RuleStart, match_tree_names};

/// Adds the names of older forms that need no `load()`.
pub(crate) fn names(builder: &mut GlobalsBuilder) {
    paths::names(builder);
    policy::names(builder);
    rules::names(builder);
}

/// The methods of keys, because a key such as `path()` or `tool()` can begin a path or a
/// rule.
pub(crate) fn key_methods(builder: &mut MethodsBuilder) {
    paths::directories(builder);
    rules::places(builder);
    endings::endings(builder);
}

#[cfg(test)]
mod tests {
    use clash_syntax::upgrade::OLDER_FORMS_END_VERSION;

    fn numbers(version: &str) -> Vec<u32> {
        version.split('.').map(|part| part.parse().unwrap()).collect()
    }

    #[test]
    fn this_module_ends_with_its_version() {
        let own = numbers(env!("CARGO_PKG_VERSION"));
        assert!(own < numbers(OLDER_FORMS_END_VERSION), "remove the forms of Clash 0.5 to 0.7");
    }
}
