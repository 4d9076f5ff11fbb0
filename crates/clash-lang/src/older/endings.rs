//! `.allow()`, `.deny()` and `.ask()`, with which a path or a rule ends.

use clash_policy::Effect;
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneOr;

use super::{paths, rules};
use crate::builders::span_here;
use crate::language_error::LanguageError;

struct EndingArgs<'v> {
    caps: [NoneOr<bool>; 3],
    sandbox: NoneOr<Value<'v>>,
}

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

#[starlark_module]
pub(super) fn endings(builder: &mut MethodsBuilder) {
    /// Allows it: a path for what is named or else for everything, a rule in the
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

    /// Refuses it: a path for what is named or else for everything.
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

    /// Asks about it: a path for what is named or else for everything, a rule that
    /// once approved runs in the sandbox given.
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
