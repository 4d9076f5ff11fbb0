//! Policies as values, `match()`, `domains()` and `from_claude_settings()`.
#![expect(
    unsafe_code,
    reason = "Starlark's derives implement its unsafe marker trait; none is written by hand"
)]
#![expect(unused_qualifications, clippy::panic, reason = "likewise in derived code")]

use std::fmt;

use allocative::Allocative;
use starlark::collections::SmallMap;
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::values::dict::{Dict, DictRef};
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, starlark_value,
};
use starlark::{starlark_module, starlark_simple_value};

use crate::collected::{CollectedPolicy, SettingsImport};
use crate::language_error::LanguageError;
use crate::value::KeyValue;

/// The value of `policy()`. The call itself records the rules; older forms pass the
/// value on.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct PolicyValue;
starlark_simple_value!(PolicyValue);

starlark::methods_static!(POLICY_METHODS = policy_methods);

#[starlark_value(type = "policy")]
impl<'v> StarlarkValue<'v> for PolicyValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(POLICY_METHODS.methods())
    }
}

impl fmt::Display for PolicyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("policy(…)")
    }
}

/// Joins two policies: the rules of both count. A policy of the library counts only once it
/// is joined, so its own `update` is called. Another value is an error.
fn joined<'v>(
    this: Value<'v>,
    other: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    if PolicyValue::from_value(other).is_some() {
        return Ok(this);
    }
    match other.get_attr("update", eval.heap())? {
        Some(update) => eval.eval_function(update, &[this], &[]),
        None => Err(LanguageError::new(format!(
            "expected a policy, found {} `{}`",
            other.get_type(),
            other.to_str()
        ))
        .into()),
    }
}

/// Registers the methods of a policy value: `merge` and `update`, which do the same.
#[starlark_module]
fn policy_methods(builder: &mut MethodsBuilder) {
    /// The rules of both policies; if several match, the strictest decides.
    fn merge<'v>(
        this: Value<'v>,
        other: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        joined(this, other, eval)
    }

    /// The rules of both policies; if several match, the strictest decides.
    fn update<'v>(
        this: Value<'v>,
        other: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        joined(this, other, eval)
    }
}

/// Registers the older forms of policies as globals.
#[starlark_module]
pub(super) fn names(builder: &mut GlobalsBuilder) {
    /// A tree of rules for the `rules` of a policy (older form; today the tree is
    /// given to `when()` or `policy()` itself).
    fn r#match<'v>(tree: Value<'v>) -> starlark::Result<Value<'v>> {
        if DictRef::from_value(tree).is_none() {
            let found = tree.to_str();
            return Err(LanguageError::new(format!("match() takes a dict, found `{found}`"))
                .near(found)
                .into());
        }
        Ok(tree)
    }

    /// A dict of hosts and effects: for the `net` of a sandbox, or for the agent's own
    /// `WebFetch` in a list of rules (older form; today `net` takes the dict itself,
    /// and rules for hosts stand below `"WebFetch"`).
    fn domains<'v>(
        hosts: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let dict = DictRef::from_value(hosts).ok_or_else(|| {
            LanguageError::new(format!("domains() takes a dict, found `{}`", hosts.to_str()))
                .hint("domains({\"github.com\": allow()})")
        })?;
        let mut typed = SmallMap::new();
        for (key, effect) in dict.iter() {
            let key = match key.unpack_str() {
                Some("*" | "**") => heap.alloc(KeyValue::Network),
                Some(name) => heap.alloc(KeyValue::Domain(name.to_owned())),
                None => key,
            };
            typed.insert_hashed(key.get_hashed()?, effect);
        }
        Ok(heap.alloc(Dict::new(typed)))
    }

    /// Takes over the permissions in Claude Code's settings, the user's and the
    /// project's. They become policies of their own, so no other rule of the file
    /// can relax a refusal of theirs. Returns an empty dict.
    fn from_claude_settings<'v>(
        #[starlark(default = true)] user: bool,
        #[starlark(default = true)] project: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let import = SettingsImport { user, project };
        CollectedPolicy::from_evaluator(eval)?.imports.borrow_mut().push(import);
        Ok(eval.heap().alloc(Dict::new(SmallMap::new())))
    }
}
