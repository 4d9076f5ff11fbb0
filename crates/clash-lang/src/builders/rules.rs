//! The builders of rules: `when`, `policy`, `settings`, `merge`, `expect`.
#![expect(clippy::too_many_arguments, reason = "they are the keyword arguments of the language")]

use clash_policy::rule::{LayerGroup, OnViolation};
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::{NoneOr, NoneType};
use starlark::values::tuple::UnpackTuple;

use super::span_here;
use crate::collected::CollectedPolicy;
use crate::expect::Expectation;
use crate::language_error::LanguageError;
use crate::lower::{self, LoweringScope};
use crate::older::PolicyValue;
use crate::override_dict;

/// Registers the builders of rules as globals of every policy. Each checks its arguments and
/// records the rules in the [`CollectedPolicy`], with its line.
#[starlark_module]
pub(super) fn names(builder: &mut GlobalsBuilder) {
    /// Rules: a tree of keys that ends in effects. Several calls are one tree.
    fn when<'v>(tree: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        let (span, collected) = (span_here(eval), CollectedPolicy::from_evaluator(eval)?);
        collected.hear(&span);
        let branches = lower::rules(tree, &LoweringScope { span: &span, collected })?;
        collected.add_when(branches);
        Ok(NoneType)
    }

    /// Rules that stand on their own: if several policies match an action, the
    /// strictest decides. `rules` is an older form, a list of rules in order.
    /// Without a name the rules join the tree of the `when()` calls.
    fn policy<'v>(
        #[starlark(default = "")] name: &str,
        #[starlark(default = NoneOr::None)] tree: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] default: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] default_sandbox: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] rules: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] sandboxes: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] doc: NoneOr<&'v str>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<PolicyValue> {
        let (span, collected) = (span_here(eval), CollectedPolicy::from_evaluator(eval)?);
        collected.hear(&span);
        let scope = LoweringScope { span: &span, collected };
        // sandbox() has already recorded each sandbox; the older list adds nothing.
        let _ = sandboxes;
        if let NoneOr::Other(value) = default {
            collected.fall_back_to(lower::default_rule(value, &scope)?);
        }
        if let NoneOr::Other(value) = default_sandbox {
            let sandbox = lower::sandbox_arg(value)?;
            collected.settings.borrow_mut().default_sandbox =
                Some(collected.using(&sandbox, &span));
        }
        let doc = doc.into_option().unwrap_or_default().to_owned();
        for value in [tree, rules] {
            let NoneOr::Other(value) = value else { continue };
            let branches = lower::rules(value, &scope)?;
            if name.is_empty() {
                collected.add_when(branches);
            } else {
                let (name, doc) = (name.to_owned(), doc.clone());
                collected.policies.borrow_mut().push(LayerGroup { name, doc, branches });
            }
        }
        Ok(PolicyValue)
    }

    /// Settings of the whole policy. `default` is the effect where no rule matches,
    /// `default_sandbox` the sandbox of rules that name none. `on_sandbox_violation`
    /// is the advice to the agent after a sandbox blocked something: `"stop"`,
    /// `"workaround"` or `"smart"`. `harness_defaults = False` leaves out the
    /// built-in rules for tools that act only inside the agent.
    fn settings<'v>(
        #[starlark(require = named, default = NoneOr::None)] default: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] default_sandbox: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] on_sandbox_violation: NoneOr<&'v str>,
        #[starlark(require = named, default = NoneOr::None)] harness_defaults: NoneOr<bool>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let (span, collected) = (span_here(eval), CollectedPolicy::from_evaluator(eval)?);
        if let Some(first) = collected.settings_at.replace(Some(span.clone())) {
            return Err(LanguageError::new("settings() is called twice")
                .hint(format!("it was first called at {first}"))
                .into());
        }
        if let NoneOr::Other(value) = default {
            let rule = lower::default_rule(value, &LoweringScope { span: &span, collected })?;
            collected.settings.borrow_mut().default = Some(rule);
        }
        if let NoneOr::Other(value) = default_sandbox {
            let sandbox = lower::sandbox_arg(value)?;
            collected.settings.borrow_mut().default_sandbox =
                Some(collected.using(&sandbox, &span));
        }
        if let NoneOr::Other(word) = on_sandbox_violation {
            let known = OnViolation::ALL.into_iter().find(|on| on.word() == word);
            let mistake = || {
                LanguageError::new(format!("`{word}` is no value of on_sandbox_violation"))
                    .hint("on_sandbox_violation is \"stop\", \"workaround\" or \"smart\"")
                    .near(word)
            };
            let on = known.ok_or_else(mistake)?;
            collected.settings.borrow_mut().on_sandbox_violation = Some(on);
        }
        if let NoneOr::Other(on) = harness_defaults {
            collected.settings.borrow_mut().harness_defaults = Some(on);
        }
        Ok(NoneType)
    }

    /// Merges dicts deeply. If two have the same key, the one further right
    /// counts.
    fn merge<'v>(
        #[starlark(args)] trees: UnpackTuple<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        Ok(override_dict::merge(&trees.items, eval.heap())?)
    }

    /// States a decision of the policy, for example
    /// `expect(deny, "git push --force")`. Each compilation checks it. A stricter
    /// decision is a warning. Instead of a command it can name a `tool` with a
    /// `path`, a `url` or the fields of its `input`.
    fn expect<'v>(
        effect: Value<'v>,
        #[starlark(default = NoneOr::None)] action: NoneOr<&'v str>,
        #[starlark(require = named, default = NoneOr::None)] tool: NoneOr<&'v str>,
        #[starlark(require = named, default = NoneOr::None)] path: NoneOr<&'v str>,
        #[starlark(require = named, default = NoneOr::None)] url: NoneOr<&'v str>,
        #[starlark(require = named, default = NoneOr::None)] input: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] sandbox: NoneOr<Value<'v>>,
        #[starlark(require = named, default = "default")] mode: &'v str,
        #[starlark(require = named, default = "claude")] agent: &'v str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let (span, collected) = (span_here(eval), CollectedPolicy::from_evaluator(eval)?);
        let sandbox = match sandbox {
            NoneOr::None => None,
            NoneOr::Other(value) => Some(lower::sandbox_arg(value)?.name().to_owned()),
        };
        let about = crate::expect::ExpectArgs {
            script: action.into_option(),
            tool: tool.into_option(),
            path: path.into_option(),
            url: url.into_option(),
            input: input.into_option(),
            mode,
            agent,
        };
        let expectation = Expectation {
            effect: lower::effect(effect, &span)?.effect,
            sandbox,
            action: about.action()?,
            span,
        };
        collected.expectations.borrow_mut().push(expectation);
        Ok(NoneType)
    }
}
