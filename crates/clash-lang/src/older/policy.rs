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

/// What `policy()` returns. Its rules hold as soon as it is called; the value is
/// there for the forms that hand policies on.
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

/// The rules of both hold. A policy of the library holds only once it is joined
/// to one, so it is told.
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

#[starlark_module]
fn policy_methods(builder: &mut MethodsBuilder) {
    /// The rules of both policies; of several that match, the strictest holds.
    fn merge<'v>(
        this: Value<'v>,
        other: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        joined(this, other, eval)
    }

    /// The rules of both policies; of several that match, the strictest holds.
    fn update<'v>(
        this: Value<'v>,
        other: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        joined(this, other, eval)
    }
}

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

    /// Hosts and what holds for them: in the `net` of a sandbox, or among the
    /// rules of a policy for what the agent itself fetches (older form; today
    /// `net` takes the dict itself, and rules stand below `"WebFetch"`).
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

    /// The permissions of the Claude Code settings, the user's own and the
    /// project's. They hold as policies of their own, so nothing else in the file
    /// can relax what they refuse; what is returned is empty.
    fn from_claude_settings<'v>(
        #[starlark(default = true)] user: bool,
        #[starlark(default = true)] project: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let import = SettingsImport { user, project };
        CollectedPolicy::of(eval)?.imports.borrow_mut().push(import);
        Ok(eval.heap().alloc(Dict::new(SmallMap::new())))
    }
}
