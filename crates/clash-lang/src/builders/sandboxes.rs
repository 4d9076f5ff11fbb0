//! The builders of sandboxes: `sandbox`, `grant`, `everywhere`, `no_sandbox`.
#![expect(clippy::too_many_arguments, reason = "they are the keyword arguments of the language")]

use std::sync::Arc;

use clash_policy::rule::SandboxGrant;
use clash_policy::{Effect, FsRule, NetworkAccess, ProtectSettings, Sandbox, WriteTarget};
use starlark::environment::{GlobalsBuilder, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::list::UnpackList;
use starlark::values::none::{NoneOr, NoneType};

use super::span_here;
use crate::collected::CollectedPolicy;
use crate::draft::{ExplicitFields, SandboxDraft};
use crate::language_error::{LanguageError, LanguageResult};
use crate::lower;
use crate::value::{SandboxUse, SandboxValue};

/// Registers the builders of sandboxes as globals of every policy. Each checks its arguments
/// and records the sandbox or the grant in the [`CollectedPolicy`].
#[starlark_module]
pub(super) fn names(builder: &mut GlobalsBuilder) {
    /// Declares the rights of a command. `fs` has the paths, `default` is for every
    /// path that no key of `fs` matches. `net` is the network, `serve` the ports that
    /// the host may connect to, `env` the variables, `limits` the resources.
    /// With `detach = False`, processes in the background end with the command that
    /// started them; otherwise they go on until the session ends or `clash stop`.
    /// `lifetime` is the older form of it, `"action"` or `"detached"`; both must agree.
    /// `tree` is the older form of files, hosts and default in one dict; `fs` adds to it,
    /// `default` and `net` replace its answers. `protect` makes more
    /// paths read-only that steer programs outside, for example `.husky`; `unprotect`
    /// removes paths from that list. `doors` names programs that run in the sandboxes
    /// of their own rules when a command of this sandbox starts them. `extends` starts from
    /// another sandbox value; the other arguments go on top. Without a name, the sandbox is
    /// named after its line. A second sandbox of the same name is an error.
    fn sandbox<'v>(
        #[starlark(default = NoneOr::None)] name: NoneOr<&'v str>,
        #[starlark(default = NoneOr::None)] tree: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] default: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] fs: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] net: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] serve: NoneOr<UnpackList<Value<'v>>>,
        #[starlark(require = named, default = NoneOr::None)] env: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] limits: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] lifetime: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] detach: NoneOr<bool>,
        #[starlark(require = named, default = NoneOr::None)] protect: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] unprotect: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] doors: NoneOr<UnpackList<String>>,
        #[starlark(require = named, default = NoneOr::None)] doc: NoneOr<&'v str>,
        #[starlark(require = named, default = NoneOr::None)] extends: NoneOr<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<SandboxValue> {
        let span = span_here(eval);
        let name = match name {
            NoneOr::Other(name) => name.to_owned(),
            NoneOr::None => format!("sandbox_line_{}", span.line),
        };
        if name.is_empty() {
            return Err(LanguageError::new("a sandbox needs a name").into());
        }
        let mut draft = SandboxDraft {
            sandbox: Sandbox {
                doc: doc.into_option().unwrap_or_default().to_owned(),
                span: span.clone(),
                ..Sandbox::named(name)
            },
            said: ExplicitFields::default(),
        };
        if let NoneOr::Other(tree) = tree {
            lower::sandbox_tree(tree, &span, &mut draft)?;
        }
        if let NoneOr::Other(value) = default {
            draft.sandbox.default = lower::sandbox_default(value, &span)?;
            draft.said.default = true;
        }
        if let NoneOr::Other(value) = fs {
            draft.sandbox.fs.extend(lower::fs_rules(value, &span)?);
        }
        if let NoneOr::Other(value) = net {
            draft.sandbox.net = lower::net(value, &span)?;
            draft.said.net = true;
        }
        if let NoneOr::Other(ports) = serve {
            let ports = ports.items.into_iter().map(lower::port).collect::<Result<Vec<_>, _>>();
            draft.sandbox.serve = ports?;
        }
        if let NoneOr::Other(value) = env {
            draft.sandbox.env = lower::env(value, &span)?;
        }
        if let NoneOr::Other(value) = limits {
            draft.sandbox.limits = lower::limits(value)?;
        }
        if let NoneOr::Other(value) = lifetime {
            draft.sandbox.lifetime = Some(lower::lifetime(value)?);
        }
        if let NoneOr::Other(detach) = detach {
            draft.sandbox.lifetime = Some(lower::detach(detach, draft.sandbox.lifetime)?);
        }
        if let Some(protect) = protection(protect, unprotect)? {
            draft.sandbox.protect = protect;
            draft.said.protect = true;
        }
        if let NoneOr::Other(doors) = doors {
            draft.sandbox.doors = lower::door_names(doors.items)?;
        }
        if let NoneOr::Other(value) = extends {
            draft = based_on(value, &draft, CollectedPolicy::from_evaluator(eval)?)?;
        }
        let draft = Arc::new(draft);
        CollectedPolicy::from_evaluator(eval)?.define(&draft)?;
        Ok(SandboxValue(draft))
    }

    /// Adds rights to a sandbox that another file or layer defines, for example to one of
    /// the library: `grant("project", fs = {"$HOME/.npmrc": allow("r")})`. `net` is a list
    /// of hosts, `unprotect` removes entries from the list of persistence paths. A
    /// project's policy adds rights only to its own sandboxes.
    fn grant<'v>(
        sandbox: Value<'v>,
        #[starlark(require = named, default = NoneOr::None)] fs: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] net: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] unprotect: NoneOr<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let (span, collected) = (span_here(eval), CollectedPolicy::from_evaluator(eval)?);
        let mut grant = SandboxGrant {
            sandbox: lower::sandbox_arg(sandbox)?.name().to_owned(),
            fs: Vec::new(),
            net: Vec::new(),
            unprotect: Vec::new(),
            span: span.clone(),
        };
        if let NoneOr::Other(value) = fs {
            grant.fs = lower::fs_rules(value, &span)?;
        }
        if let NoneOr::Other(value) = net {
            let NetworkAccess::Hosts { rules, default: Effect::Deny } = lower::net(value, &span)?
            else {
                return Err(LanguageError::new("grant() adds hosts to a sandbox")
                    .hint("net is a list of hosts: grant(\"project\", net = [\"docs.rs\"])")
                    .into());
            };
            grant.net = rules;
        }
        let is_allow = |effect: Effect| effect == Effect::Allow;
        if !grant.fs.iter().all(|rule| is_allow(rule.effect))
            || !grant.net.iter().all(|rule| is_allow(rule.effect))
        {
            return Err(LanguageError::new("grant() can only allow")
                .hint("everywhere() denies in every sandbox")
                .into());
        }
        if let Some(settings) = protection(NoneOr::None, unprotect)? {
            grant.unprotect = settings.except;
        }
        collected.hear(&span);
        collected.building_on_name(&grant.sandbox);
        collected.grants.borrow_mut().push(grant);
        Ok(NoneType)
    }

    /// File rules for every sandbox, also those of the library. They can only deny or
    /// ask: `everywhere(fs = {glob("$PWD/**/.env"): deny()})`.
    fn everywhere<'v>(
        #[starlark(require = named)] fs: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let (span, collected) = (span_here(eval), CollectedPolicy::from_evaluator(eval)?);
        let rules = lower::fs_rules(fs, &span)?;
        let widens =
            |rule: &&FsRule| rule.effect == Effect::Allow || rule.writes == WriteTarget::Masked;
        if let Some(wide) = rules.iter().find(widens) {
            return Err(LanguageError::new("everywhere() cannot allow anything")
                .hint("give the right to the sandboxes that need it")
                .at(&wide.span)
                .into());
        }
        collected.hear(&span);
        collected.everywhere.borrow_mut().extend(rules);
        Ok(NoneType)
    }

    /// No confinement at all. A rule must name it: `allow(sandbox = unrestricted)`.
    fn no_sandbox<'v>(eval: &mut Evaluator<'v, '_, '_>) -> starlark::Result<SandboxValue> {
        let sandbox = Sandbox {
            unrestricted: true,
            default: Effect::Allow,
            net: NetworkAccess::Allow,
            protect: ProtectSettings { standard: false, ..ProtectSettings::default() },
            doc: "No sandbox: the command runs with all rights of the user.".to_owned(),
            span: span_here(eval),
            ..Sandbox::named("unrestricted")
        };
        let draft = Arc::new(SandboxDraft { sandbox, said: ExplicitFields::default() });
        CollectedPolicy::from_evaluator(eval)?.define(&draft)?;
        Ok(SandboxValue(draft))
    }
}

/// The meaning of `protect` and `unprotect`; `None` if neither is given. `protect = False`
/// switches the standard list off.
fn protection(
    protect: NoneOr<Value<'_>>,
    unprotect: NoneOr<Value<'_>>,
) -> LanguageResult<Option<ProtectSettings>> {
    let mut result = ProtectSettings::default();
    let said = !matches!((&protect, &unprotect), (NoneOr::None, NoneOr::None));
    if let NoneOr::Other(value) = protect {
        match value.unpack_bool() {
            Some(on) => result.standard = on,
            None => result.also = lower::relative_paths(value, "protect")?,
        }
    }
    if let NoneOr::Other(value) = unprotect {
        result.except = lower::relative_paths(value, "unprotect")?;
    }
    Ok(said.then_some(result))
}

/// The draft on top of the sandbox that it extends. `unrestricted` and a mere name cannot
/// be extended.
fn based_on(
    value: Value<'_>,
    draft: &SandboxDraft,
    collected: &CollectedPolicy,
) -> LanguageResult<SandboxDraft> {
    match lower::sandbox_arg(value)? {
        SandboxUse::Value(base) if base.sandbox.unrestricted => {
            Err(LanguageError::new("a sandbox cannot extend `unrestricted`"))
        }
        SandboxUse::Value(base) => {
            collected.building_on(&base);
            Ok(base.overlaid(draft))
        }
        SandboxUse::Named(name) => Err(LanguageError::new(format!(
            "extends needs the sandbox itself, found its name `{name}`"
        ))
        .hint(format!("write extends = {name}"))
        .near(name)),
    }
}

/// Registers the one method of a sandbox value: `a.update(b)`, which makes and records a new
/// sandbox.
#[starlark_module]
pub(crate) fn sandbox_methods(builder: &mut MethodsBuilder) {
    /// This sandbox under its own name, with the settings of the other one on top.
    fn update<'v>(
        this: &SandboxValue,
        other: &SandboxValue,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<SandboxValue> {
        let mut draft = this.0.overlaid(&other.0);
        draft.sandbox.name = this.0.sandbox.name.clone();
        draft.sandbox.span = span_here(eval);
        let draft = Arc::new(draft);
        let collected = CollectedPolicy::from_evaluator(eval)?;
        collected.building_on(&other.0);
        collected.redefine(&draft);
        Ok(SandboxValue(draft))
    }
}
