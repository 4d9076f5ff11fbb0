//! The methods `.allow()`, `.deny()` and `.ask()`, which end a path or a rule.

use clash_policy::Effect;
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneOr;

use super::{paths, rules};
use crate::builders::span_here;
use crate::language_error::LanguageError;

/// The arguments of an ending: read, write and execute, and the sandbox.
struct EndingArgs<'v> {
    caps: [NoneOr<bool>; 3],
    sandbox: NoneOr<Value<'v>>,
}

/// Gives a path or the start of a rule its effect. A sandbox at a path, and capabilities at
/// a rule, are errors.
fn end<'v>(
    this: Value<'v>,
    effect: Effect,
    args: EndingArgs<'v>,
    eval: &Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    if !rules::begins_rule(this) {
        if !matches!(args.sandbox, NoneOr::None) {
            return Err(LanguageError::new("a file rule has no sandbox of its own").into());
        }
        let path = paths::end(this, effect, args.caps, span_here(eval))?;
        return Ok(eval.heap().alloc(path));
    }
    if args.caps.iter().any(|cap| !matches!(cap, NoneOr::None)) {
        return Err(LanguageError::new("capabilities belong to paths, not to a rule").into());
    }
    rules::end(this, effect, args.sandbox, eval)
}

/// Registers the endings as methods of path values and rule values.
#[starlark_module]
pub(super) fn endings(builder: &mut MethodsBuilder) {
    /// Allows a path with the capabilities named, or else with all; or a rule in the
    /// sandbox given.
    fn allow<'v>(
        this: Value<'v>,
        #[starlark(require = named, default = NoneOr::None)] read: NoneOr<bool>,
        #[starlark(require = named, default = NoneOr::None)] write: NoneOr<bool>,
        #[starlark(require = named, default = NoneOr::None)] execute: NoneOr<bool>,
        #[starlark(require = named, default = NoneOr::None)] sandbox: NoneOr<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        end(this, Effect::Allow, EndingArgs { caps: [read, write, execute], sandbox }, eval)
    }

    /// Refuses a path for the capabilities named, or else for all; or a rule.
    fn deny<'v>(
        this: Value<'v>,
        #[starlark(require = named, default = NoneOr::None)] read: NoneOr<bool>,
        #[starlark(require = named, default = NoneOr::None)] write: NoneOr<bool>,
        #[starlark(require = named, default = NoneOr::None)] execute: NoneOr<bool>,
        #[starlark(require = named, default = NoneOr::None)] sandbox: NoneOr<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        end(this, Effect::Deny, EndingArgs { caps: [read, write, execute], sandbox }, eval)
    }

    /// Asks about a path for the capabilities named, or else for all; or about a rule,
    /// which runs in the sandbox given once approved.
    fn ask<'v>(
        this: Value<'v>,
        #[starlark(require = named, default = NoneOr::None)] read: NoneOr<bool>,
        #[starlark(require = named, default = NoneOr::None)] write: NoneOr<bool>,
        #[starlark(require = named, default = NoneOr::None)] execute: NoneOr<bool>,
        #[starlark(require = named, default = NoneOr::None)] sandbox: NoneOr<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        end(this, Effect::Ask, EndingArgs { caps: [read, write, execute], sandbox }, eval)
    }
}
