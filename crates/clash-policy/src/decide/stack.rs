//! The layers of a policy in force, and which of them prevails.

use crate::effect::Effect;
use crate::ir::{Ir, IrError, LayerRef, RuleRef, SandboxRef};
use crate::rule::LayerKind;

use super::facts::Facts;
use super::walk::{self, Found};
use super::{Cause, DecideError, Overruled};

/// What one command or tool call came to, before it is shown.
pub(super) struct Ruling<'a> {
    pub(super) effect: Effect,
    /// `None`: nothing said so, it runs where the rest of the script runs.
    pub(super) sandbox: Option<SandboxRef<'a>>,
    /// Whether the rule itself says which sandbox.
    pub(super) names_sandbox: bool,
    pub(super) cause: Cause,
    pub(super) overruled: Vec<Overruled>,
}

impl Ruling<'_> {
    pub(super) fn inert() -> Self {
        Self::without_sandbox(Effect::Allow, Cause::Inert)
    }

    pub(super) fn caged() -> Self {
        Self::without_sandbox(Effect::Deny, Cause::Cage)
    }

    fn without_sandbox(effect: Effect, cause: Cause) -> Self {
        Self { effect, sandbox: None, names_sandbox: false, cause, overruled: Vec::new() }
    }

    fn as_overruled(&self) -> Option<Overruled> {
        let Cause::Rule { layer, trail, span, .. } = &self.cause else { return None };
        let (effect, trail, span) = (self.effect, trail.clone(), span.clone());
        Some(Overruled { layer: *layer, effect, trail, span })
    }
}

pub(super) struct Stack<'a> {
    layers: Vec<LayerRef<'a>>,
    default: (Effect, LayerKind, RuleRef<'a>),
    default_sandbox: SandboxRef<'a>,
}

impl<'a> Stack<'a> {
    pub(super) fn read(ir: Ir<'a>) -> Result<Self, IrError> {
        let mut layers = ir.layers().collect::<Result<Vec<_>, _>>()?;
        let (mut default, mut default_sandbox, mut harness) = (None, None, None);
        let mut floor = Effect::Allow;
        for layer in &layers {
            let kind = layer.kind()?;
            let trusted = layer.trusted()?;
            if let Some(rule) = layer.default()? {
                let effect = rule.effect()?;
                if !trusted || kind == LayerKind::Managed {
                    floor = floor.max(effect);
                }
                if trusted && default.is_none() {
                    default = Some((effect, kind, rule));
                }
            }
            if trusted {
                default_sandbox = default_sandbox.or(layer.default_sandbox()?);
                harness = harness.or(layer.harness_defaults()?);
            }
        }
        // The built-in layer always sets both; a stack without them is damaged.
        let (effect, kind, rule) = default.ok_or(IrError::Damaged)?;
        if harness == Some(false) {
            let mut kept = Vec::new();
            for layer in layers {
                if layer.kind()? != LayerKind::BuiltIn {
                    kept.push(layer);
                }
            }
            layers = kept;
        }
        Ok(Self {
            layers,
            default: (effect.max(floor), kind, rule),
            default_sandbox: default_sandbox.ok_or(IrError::Damaged)?,
        })
    }

    /// Asks every layer and applies their precedence. `named_only` leaves out
    /// rules that are about every command alike.
    pub(super) fn rule(
        &self,
        facts: &Facts<'_>,
        named_only: bool,
    ) -> Result<Option<Ruling<'a>>, DecideError> {
        let mut said = Vec::new();
        for layer in &self.layers {
            let found = walk::layer(layer, facts)?;
            if let Some(found) = found.filter(|found| !named_only || !found.is_catch_all()) {
                let (kind, trusted) = (layer.kind()?, layer.trusted()?);
                said.push(self.ruling(kind, trusted, found)?);
            }
        }
        Ok(self.prevailing(said))
    }

    fn prevailing(&self, said: Vec<(LayerKind, bool, Ruling<'a>)>) -> Option<Ruling<'a>> {
        let mut floor: Option<Ruling<'a>> = None;
        let mut chosen: Option<(LayerKind, Ruling<'a>)> = None;
        let mut overruled = Vec::new();
        // What a managed policy allows is what holds where nobody says more.
        let mut managed_allow = None;
        for (kind, trusted, ruling) in said {
            let managed = kind == LayerKind::Managed;
            if !trusted || (managed && ruling.effect > Effect::Allow) {
                let (kept, lost) = stricter(floor, ruling);
                floor = Some(kept);
                overruled.extend(lost);
                continue;
            }
            if managed {
                managed_allow = Some((kind, ruling));
                continue;
            }
            // A deny of the user is lifted by the session alone.
            let user_deny = kind == LayerKind::User && ruling.effect == Effect::Deny;
            let prevails = match &chosen {
                None => true,
                Some((known, _)) => user_deny && *known != LayerKind::Session,
            };
            let lost = if prevails {
                chosen.replace((kind, ruling)).map(|(_, lost)| lost)
            } else {
                Some(ruling)
            };
            overruled.extend(lost);
        }
        let chosen = chosen.or(managed_allow).map(|(_, ruling)| ruling);
        let sandbox = chosen.as_ref().and_then(|ruling| ruling.sandbox);
        let names_sandbox = chosen.as_ref().is_some_and(|ruling| ruling.names_sandbox);
        let (ruling, lost) = match (floor, chosen) {
            (None, chosen) => (chosen, None),
            (Some(floor), Some(chosen)) => {
                let (kept, lost) = stricter(Some(chosen), floor);
                (Some(kept), lost)
            }
            (Some(floor), None) if floor.effect >= self.default.0 => (Some(floor), None),
            (Some(floor), None) => (None, Some(floor)),
        };
        overruled.extend(lost);
        ruling.map(|ruling| Ruling {
            sandbox: ruling.sandbox.or(sandbox).or(Some(self.default_sandbox)),
            names_sandbox: ruling.names_sandbox || names_sandbox,
            overruled: overruled.iter().filter_map(Ruling::as_overruled).collect(),
            ..ruling
        })
    }

    fn ruling(
        &self,
        layer: LayerKind,
        trusted: bool,
        found: Found<'a>,
    ) -> Result<(LayerKind, bool, Ruling<'a>), IrError> {
        let effect = found.rule.effect()?;
        let untrusted = !trusted && effect == Effect::Allow;
        // A sandbox that came with the repository is no limit to rely on: such a
        // rule has none, and the one that would hold without it stays.
        let named = if trusted { found.rule.sandbox()? } else { None };
        let sandbox = if trusted { named.or(Some(self.default_sandbox)) } else { None };
        let ruling = Ruling {
            effect: if untrusted { Effect::Ask } else { effect },
            sandbox,
            names_sandbox: named.is_some(),
            cause: Cause::Rule {
                layer,
                trail: found.shown(),
                span: found.rule.span()?,
                reason: found.rule.reason()?.map(str::to_owned),
                untrusted,
                doubtful: found.doubtful,
            },
            overruled: Vec::new(),
        };
        Ok((layer, trusted, ruling))
    }

    pub(super) fn by_default(&self) -> Ruling<'a> {
        let (effect, layer, rule) = self.default;
        let named = rule.sandbox().ok().flatten();
        Ruling {
            effect,
            sandbox: Some(named.unwrap_or(self.default_sandbox)),
            names_sandbox: named.is_some(),
            cause: Cause::Default {
                layer,
                span: rule.span().unwrap_or_default(),
                reason: rule.reason().ok().flatten().map(str::to_owned),
            },
            overruled: Vec::new(),
        }
    }
}

/// The stricter of two, the earlier if they are equal, and the other one.
fn stricter<'a>(known: Option<Ruling<'a>>, other: Ruling<'a>) -> (Ruling<'a>, Option<Ruling<'a>>) {
    match known {
        Some(known) if known.effect >= other.effect => (known, Some(other)),
        Some(known) => (other, Some(known)),
        None => (other, None),
    }
}
