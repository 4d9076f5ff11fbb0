//! The names a policy can use without `load()`.
#![expect(clippy::too_many_arguments, reason = "they are the keyword arguments of the language")]

use std::sync::Arc;

use clash_policy::{Caps, Effect, Net, Sandbox, Span};
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::{NoneOr, NoneType};

use crate::lower::{self, Mistake};
use crate::merge;
use crate::value::{Collected, EffectValue, KeyValue, SandboxValue};

pub(crate) fn span_here(eval: &Evaluator<'_, '_, '_>) -> Span {
    eval.call_stack_top_location().map(|place| span_of(&place)).unwrap_or_default()
}

pub(crate) fn span_of(place: &starlark::codemap::FileSpan) -> Span {
    let begin = place.resolve_span().begin;
    Span {
        file: place.filename().to_owned(),
        line: u32::try_from(begin.line + 1).unwrap_or(u32::MAX),
        column: u32::try_from(begin.column + 1).unwrap_or(u32::MAX),
    }
}

fn collected<'a>(eval: &Evaluator<'_, 'a, '_>) -> starlark::Result<&'a Collected> {
    eval.extra
        .and_then(|extra| extra.downcast_ref::<Collected>())
        .ok_or_else(|| Mistake::new("this can only be called while a policy is compiled").into())
}

/// The arguments `allow`, `deny` and `ask` share.
struct EffectArgs<'v> {
    caps: NoneOr<&'v str>,
    each: [(Caps, bool); 5],
    sandbox: NoneOr<Value<'v>>,
    reason: NoneOr<&'v str>,
}

fn effect_value(
    effect: Effect,
    args: EffectArgs<'_>,
    eval: &Evaluator<'_, '_, '_>,
) -> starlark::Result<EffectValue> {
    let words =
        args.each.iter().filter(|(_, on)| *on).fold(Caps::NONE, |all, (cap, _)| all.union(*cap));
    let caps = match args.caps {
        NoneOr::Other(letters) => Some(Caps::parse(letters).map_err(|letter| {
            Mistake::new(format!("`{letter}` is not a capability"))
                .hint("the letters are r (read), w (write), c (create), d (delete), x (execute)")
        })?),
        NoneOr::None => (!words.is_empty()).then_some(words),
    };
    let sandbox = match args.sandbox {
        NoneOr::None => None,
        NoneOr::Other(value) => Some(lower::sandbox_arg(value)?),
    };
    let reason = args.reason.into_option().map(str::to_owned);
    Ok(EffectValue { effect, caps, sandbox, reason, span: span_here(eval) })
}

#[starlark_module]
pub(crate) fn names(builder: &mut GlobalsBuilder) {
    const FULL: &str = "rwcdx";
    const RW: &str = "rwcx";
    const RO: &str = "rx";
    const OS: &str = std::env::consts::OS;
    const ARCH: &str = std::env::consts::ARCH;

    /// Lets it happen, in a sandbox.
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
        let each = each_cap(read, write, create, delete, execute);
        effect_value(Effect::Allow, EffectArgs { caps, each, sandbox, reason }, eval)
    }

    /// Refuses it.
    fn deny<'v>(
        #[starlark(default = NoneOr::None)] caps: NoneOr<&'v str>,
        #[starlark(require = named, default = false)] read: bool,
        #[starlark(require = named, default = false)] write: bool,
        #[starlark(require = named, default = false)] create: bool,
        #[starlark(require = named, default = false)] delete: bool,
        #[starlark(require = named, default = false)] execute: bool,
        #[starlark(require = named, default = NoneOr::None)] reason: NoneOr<&'v str>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<EffectValue> {
        let each = each_cap(read, write, create, delete, execute);
        effect_value(Effect::Deny, EffectArgs { caps, each, sandbox: NoneOr::None, reason }, eval)
    }

    /// Asks the user; once approved it runs in the sandbox.
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
        let each = each_cap(read, write, create, delete, execute);
        effect_value(Effect::Ask, EffectArgs { caps, each, sandbox, reason }, eval)
    }

    /// A tool by its name.
    fn tool(name: &str) -> starlark::Result<KeyValue> {
        Ok(KeyValue::Tool(name.to_owned()))
    }

    /// A permission mode of the agent.
    fn mode(name: &str) -> starlark::Result<KeyValue> {
        Ok(KeyValue::Mode(name.to_owned()))
    }

    /// An agent by its name.
    fn agent(name: &str) -> starlark::Result<KeyValue> {
        Ok(KeyValue::Agent(name.to_owned()))
    }

    /// Whatever no other key matches.
    fn default() -> starlark::Result<KeyValue> {
        Ok(KeyValue::Default)
    }

    /// `*` within a name, `**` for whatever remains.
    fn glob(pattern: &str) -> starlark::Result<KeyValue> {
        Ok(KeyValue::Glob(pattern.to_owned()))
    }

    /// Exactly this text or path.
    fn literal(text: &str) -> starlark::Result<KeyValue> {
        Ok(KeyValue::Literal(text.to_owned()))
    }

    /// A path and everything below it.
    fn subpath(
        path: &str,
        #[starlark(require = named, default = false)] follow_worktrees: bool,
    ) -> starlark::Result<KeyValue> {
        Ok(KeyValue::Subpath { path: path.to_owned(), follow_worktrees })
    }

    /// Declares what a command may touch.
    fn sandbox<'v>(
        name: &str,
        #[starlark(require = named, default = NoneOr::None)] default: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] fs: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] net: NoneOr<Value<'v>>,
        #[starlark(require = named, default = "")] doc: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<SandboxValue> {
        let span = span_here(eval);
        let default = match default {
            NoneOr::None => Effect::Deny,
            NoneOr::Other(value) => lower::effect(value, &span)?.effect,
        };
        let net = match net {
            NoneOr::None => Net::Deny,
            NoneOr::Other(value) => lower::net(value, &span)?,
        };
        let fs = match fs {
            NoneOr::None => Vec::new(),
            NoneOr::Other(value) => lower::fs_rules(value, &span)?,
        };
        let sandbox =
            Sandbox { name: name.to_owned(), default, fs, net, doc: doc.to_owned(), span };
        let sandbox = Arc::new(sandbox);
        define(collected(eval)?, &sandbox)?;
        Ok(SandboxValue(sandbox))
    }

    /// Rules: a tree of keys that ends in effects.
    fn when<'v>(tree: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<NoneType> {
        let branches = lower::tree(tree, &span_here(eval))?;
        let collected = collected(eval)?;
        let known = collected.branches.take();
        collected.branches.replace(merge::branches(known, branches));
        Ok(NoneType)
    }

    /// What holds where no rule matches.
    fn settings<'v>(
        #[starlark(require = named, default = NoneOr::None)] default: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] default_sandbox: NoneOr<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let span = span_here(eval);
        let collected = collected(eval)?;
        let mut settings = collected.settings.borrow_mut();
        if let NoneOr::Other(value) = default {
            let value = lower::effect(value, &span)?;
            settings.default = Some((value.effect, value.span));
        }
        if let NoneOr::Other(value) = default_sandbox {
            let sandbox = lower::sandbox_arg(value)?;
            settings.default_sandbox = Some(sandbox.name.clone());
        }
        Ok(NoneType)
    }
}

fn each_cap(
    read: bool,
    write: bool,
    create: bool,
    delete: bool,
    execute: bool,
) -> [(Caps, bool); 5] {
    [
        (Caps::READ, read),
        (Caps::WRITE, write),
        (Caps::CREATE, create),
        (Caps::DELETE, delete),
        (Caps::EXECUTE, execute),
    ]
}

fn define(collected: &Collected, sandbox: &Arc<Sandbox>) -> starlark::Result<()> {
    let mut known = collected.sandboxes.borrow_mut();
    if let Some(first) = known.iter().find(|s| s.name == sandbox.name) {
        let mistake = Mistake::new(format!("sandbox `{}` is defined twice", sandbox.name))
            .hint(format!("it was first defined at {}", first.span));
        return Err(mistake.into());
    }
    known.push(sandbox.clone());
    Ok(())
}
