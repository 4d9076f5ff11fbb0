//! `allow`, `deny`, `ask`, `cow`, `cache`, `masked` and the names of common capabilities.
#![expect(clippy::too_many_arguments, reason = "they are the keyword arguments of the language")]

use clash_policy::{Effect, FileCaps, WriteTarget};
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneOr;

use super::span_here;
use crate::language_error::LanguageError;
use crate::lower::sandbox_arg;
use crate::value::EffectValue;

/// The arguments that `allow`, `deny` and `ask` share.
struct EffectArgs<'v> {
    caps: NoneOr<&'v str>,
    each: [bool; 5],
    sandbox: NoneOr<Value<'v>>,
    reason: NoneOr<&'v str>,
}

/// The effect with its arguments checked. Letters in `caps` come before words such as `read
/// = True`; an empty text of letters is an error.
fn value(
    effect: Effect,
    args: EffectArgs<'_>,
    eval: &Evaluator<'_, '_, '_>,
) -> starlark::Result<EffectValue> {
    let words = FileCaps::each().zip(args.each).filter(|(_, on)| *on);
    let words = words.fold(FileCaps::NONE, |all, (cap, _)| all.union(cap));
    let caps = match args.caps {
        NoneOr::Other(letters) => Some(FileCaps::parse(letters).map_err(|letter| {
            LanguageError::new(format!("`{letter}` is not a capability"))
                .hint("the letters are r (read), w (write), c (create), d (delete), x (execute)")
        })?),
        NoneOr::None => (!words.is_empty()).then_some(words),
    };
    if caps == Some(FileCaps::NONE) {
        return Err(LanguageError::new("no capability is named")
            .hint("leave the argument out for all five, or write letters of \"rwcdx\"")
            .into());
    }
    let sandbox = match args.sandbox {
        NoneOr::None => None,
        NoneOr::Other(value) => Some(sandbox_arg(value)?),
    };
    let reason = args.reason.into_option().map(str::to_owned);
    Ok(EffectValue {
        effect,
        writes: WriteTarget::InPlace,
        caps,
        sandbox,
        reason,
        span: span_here(eval),
    })
}

/// Registers the effects as globals of every policy. Each returns an `EffectValue` with its
/// line and records nothing.
#[starlark_module]
pub(super) fn names(builder: &mut GlobalsBuilder) {
    const FULL: &str = "rwcdx";
    const RW: &str = "rwcx";
    const RO: &str = "rx";
    const OS: &str = std::env::consts::OS;
    const ARCH: &str = std::env::consts::ARCH;

    /// Allows an action. In a rule it runs in `sandbox`, or else in the default
    /// sandbox. Inside `fs` it allows the capabilities given as letters of `rwcdx`,
    /// or else all.
    fn allow<'v>(
        #[starlark(default = NoneOr::None)] caps: NoneOr<&'v str>,
        #[starlark(require = named, default = false)] read: bool,
        #[starlark(require = named, default = false)] write: bool,
        #[starlark(require = named, default = false)] create: bool,
        #[starlark(require = named, default = false)] delete: bool,
        #[starlark(require = named, default = false)] execute: bool,
        #[starlark(require = named, default = NoneOr::None)] sandbox: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] reason: NoneOr<&'v str>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<EffectValue> {
        let each = [read, write, create, delete, execute];
        value(Effect::Allow, EffectArgs { caps, each, sandbox, reason }, eval)
    }

    /// Refuses an action. The agent and the user see the reason.
    fn deny<'v>(
        #[starlark(default = NoneOr::None)] caps: NoneOr<&'v str>,
        #[starlark(require = named, default = false)] read: bool,
        #[starlark(require = named, default = false)] write: bool,
        #[starlark(require = named, default = false)] create: bool,
        #[starlark(require = named, default = false)] delete: bool,
        #[starlark(require = named, default = false)] execute: bool,
        #[starlark(require = named, default = NoneOr::None)] sandbox: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] reason: NoneOr<&'v str>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<EffectValue> {
        let each = [read, write, create, delete, execute];
        // A refused action runs nowhere. The sandbox is checked and then dropped.
        let value = value(Effect::Deny, EffectArgs { caps, each, sandbox, reason }, eval)?;
        Ok(EffectValue { sandbox: None, ..value })
    }

    /// Asks the user. An approved action runs in the sandbox.
    fn ask<'v>(
        #[starlark(default = NoneOr::None)] caps: NoneOr<&'v str>,
        #[starlark(require = named, default = false)] read: bool,
        #[starlark(require = named, default = false)] write: bool,
        #[starlark(require = named, default = false)] create: bool,
        #[starlark(require = named, default = false)] delete: bool,
        #[starlark(require = named, default = false)] execute: bool,
        #[starlark(require = named, default = NoneOr::None)] sandbox: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] reason: NoneOr<&'v str>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<EffectValue> {
        let each = [read, write, create, delete, execute];
        value(Effect::Ask, EffectArgs { caps, each, sandbox, reason }, eval)
    }

    /// Inside `fs`: commands read the real files and write to the session's overlay.
    fn cow<'v>(eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<EffectValue> {
        let allow = EffectValue::bare(Effect::Allow, &span_here(eval));
        Ok(EffectValue { writes: WriteTarget::Session, ..allow })
    }

    /// Inside `fs`, for a directory: commands read the shared cache and write to a
    /// cache of this project alone. The next command finds both.
    fn cache<'v>(eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<EffectValue> {
        let allow = EffectValue::bare(Effect::Allow, &span_here(eval));
        Ok(EffectValue { writes: WriteTarget::Project, ..allow })
    }

    /// Inside `fs`, for the settings file of a package manager: commands read a copy in
    /// which tokens and passwords are replaced, and never the file itself. A rule
    /// `allow("r")` for the same path gives the file.
    fn masked<'v>(eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<EffectValue> {
        let deny = EffectValue::bare(Effect::Deny, &span_here(eval));
        Ok(EffectValue { writes: WriteTarget::Masked, ..deny })
    }
}
