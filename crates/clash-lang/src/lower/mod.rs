//! From Starlark values to rules and sandboxes. The meaning of a key depends on its
//! position: below `Bash` a string is a word of a command, below `Read` a path.

mod fs;
mod limits;
mod net;
mod rules;
mod tree;

use clash_policy::rule::PolicyRule;
use clash_policy::{Effect, PolicySpan, WriteTarget};
use starlark::values::Value;
use starlark::values::dict::DictRef;
use starlark::values::tuple::TupleRef;

use crate::collected::CollectedPolicy;
use crate::language_error::{LanguageError, LanguageResult};
use crate::value::{EffectValue, SandboxUse, SandboxValue};

pub(crate) use fs::{fs_rules, join, sandbox_default, sandbox_tree};
pub(crate) use limits::{detach, door_names, env, lifetime, limits, relative_paths};
pub(crate) use net::{net, port};
pub(crate) use rules::rules;

/// The running call, and the policy collected so far.
pub(crate) struct LoweringScope<'a> {
    pub(crate) span: &'a PolicySpan,
    pub(crate) collected: &'a CollectedPolicy,
}

/// An effect as a call (`allow()`) or as a bare name (`allow`). A string is an error.
pub(crate) fn effect(value: Value<'_>, place: &PolicySpan) -> LanguageResult<EffectValue> {
    if let Some(effect) = EffectValue::from_value(value) {
        return Ok(effect.clone());
    }
    let text = value.to_str();
    let named = match text.as_str() {
        "allow" => Some(Effect::Allow),
        "ask" => Some(Effect::Ask),
        "deny" => Some(Effect::Deny),
        _ => None,
    };
    let is_function = value.get_type() == "function";
    match named {
        Some(effect) if is_function => Ok(EffectValue::bare(effect, place)),
        Some(_) => Err(not_an_effect(value).hint(format!("without quotes: {text}()")).near(text)),
        None if is_function && (text == "cow" || text == "cache") => {
            let writes = if text == "cow" { WriteTarget::Session } else { WriteTarget::Project };
            Ok(EffectValue { writes, ..EffectValue::bare(Effect::Allow, place) })
        }
        None if is_function && text == "masked" => {
            let deny = EffectValue::bare(Effect::Deny, place);
            Ok(EffectValue { writes: WriteTarget::Masked, ..deny })
        }
        None => Err(not_an_effect(value)),
    }
}

/// An effect where older policies also write its name as a string.
pub(crate) fn loose_effect(value: Value<'_>, place: &PolicySpan) -> LanguageResult<EffectValue> {
    let named = match value.unpack_str() {
        Some("allow") => Effect::Allow,
        Some("ask") => Effect::Ask,
        Some("deny") => Effect::Deny,
        _ => return effect(value, place),
    };
    Ok(EffectValue::bare(named, place))
}

/// The error for any value where an effect should stand.
fn not_an_effect(value: Value<'_>) -> LanguageError {
    if value.is_none() {
        return LanguageError::new("a key has no effect")
            .hint("an effect is allow(…), deny(…) or ask(…)")
            .near("None");
    }
    LanguageError::new(format!(
        "expected an effect, found {} `{}`",
        value.get_type(),
        value.to_str()
    ))
    .hint("an effect is allow(…), deny(…) or ask(…)")
    .near(value.to_str())
}

/// The rule at a leaf of a tree.
pub(crate) fn rule(value: Value<'_>, scope: &LoweringScope<'_>) -> LanguageResult<PolicyRule> {
    rule_of(effect(value, scope.span)?, scope)
}

/// The rule for actions that no other rule matches.
pub(crate) fn default_rule(
    value: Value<'_>,
    scope: &LoweringScope<'_>,
) -> LanguageResult<PolicyRule> {
    rule_of(loose_effect(value, scope.span)?, scope)
}

/// The rule with this effect, and its sandbox recorded as used. Capabilities, `cow()` and
/// `cache()` are errors here.
fn rule_of(effect: EffectValue, scope: &LoweringScope<'_>) -> LanguageResult<PolicyRule> {
    if effect.writes != WriteTarget::InPlace {
        return Err(LanguageError::new(format!("{effect} belongs to the file rules of a sandbox"))
            .at(&effect.span)
            .hint(format!(
                "write allow(sandbox = …) here and {effect} inside sandbox(fs = {{…}})"
            )));
    }
    if effect.caps.is_some() {
        return Err(LanguageError::new(
            "capabilities belong to the file rules of a sandbox, not to a rule",
        )
        .at(&effect.span)
        .hint("write allow(sandbox = …) here and allow(\"rx\") inside sandbox(fs = {…})"));
    }
    let sandbox = effect.sandbox.as_ref().map(|used| scope.collected.using(used, &effect.span));
    Ok(PolicyRule { effect: effect.effect, sandbox, reason: effect.reason, span: effect.span })
}

/// A sandbox, or the name of one. Whether the name is defined is checked when the policy is
/// complete.
pub(crate) fn sandbox_arg(value: Value<'_>) -> LanguageResult<SandboxUse> {
    if let Some(sandbox) = SandboxValue::from_value(value) {
        return Ok(SandboxUse::Value(sandbox.0.clone()));
    }
    match value.unpack_str() {
        Some(name) => Ok(SandboxUse::Named(name.to_owned())),
        None => Err(LanguageError::new(format!(
            "expected a sandbox, found {} `{}`",
            value.get_type(),
            value.to_str()
        ))
        .hint("a sandbox is sandbox(…), or loaded: load(\"@clash//sandboxes.star\", \"project\")")
        .near(value.to_str())),
    }
}

/// The entries of a dict; any other value is an error that says `what` was expected.
fn dict_entries<'v>(value: Value<'v>, what: &str) -> LanguageResult<Vec<(Value<'v>, Value<'v>)>> {
    let dict = DictRef::from_value(value).ok_or_else(|| {
        LanguageError::new(format!(
            "expected {what}, found {} `{}`",
            value.get_type(),
            value.to_str()
        ))
        .near(value.to_str())
    })?;
    Ok(dict.iter().collect())
}

/// The alternatives of a tuple key, or the key itself. An empty tuple is an error.
fn alternatives(key: Value<'_>) -> LanguageResult<Vec<Value<'_>>> {
    let Some(tuple) = TupleRef::from_value(key) else { return Ok(vec![key]) };
    let several: Vec<Value<'_>> = tuple.iter().collect();
    if several.is_empty() {
        return Err(LanguageError::new("an empty tuple matches nothing"));
    }
    Ok(several)
}
