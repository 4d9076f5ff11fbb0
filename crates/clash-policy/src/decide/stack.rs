//! The layers of a policy in force, and which of them prevails.

use crate::effect::Effect;
use crate::ir::{Ir, IrError, LayerRef, RuleRef, SandboxRef};
use crate::rule::LayerKind;

use super::facts::Facts;
use super::walk::{self, Found, Said};
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

    pub(super) fn opened() -> Self {
        Self::without_sandbox(Effect::Allow, Cause::Opened)
    }

    pub(super) fn caged() -> Self {
        Self::without_sandbox(Effect::Deny, Cause::Cage)
    }

    fn without_sandbox(effect: Effect, cause: Cause) -> Self {
        Self { effect, sandbox: None, names_sandbox: false, cause, overruled: Vec::new() }
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

    /// Asks every layer and applies their precedence; `None` where no rule has
    /// more to say than the default. `named_only` leaves out rules that are about
    /// every command alike, and with them the default.
    ///
    /// A rule that may or may not apply cannot lift what holds if it does not:
    /// the answer is the strictest that any outcome gives.
    pub(super) fn rule(
        &self,
        facts: &Facts<'_>,
        named_only: bool,
    ) -> Result<Option<Ruling<'a>>, DecideError> {
        let mut claims = Vec::new();
        for (at, layer) in self.layers.iter().enumerate() {
            let Said { certain, doubtful } = walk::layer(layer, facts, named_only)?;
            for found in certain.into_iter().chain(doubtful) {
                claims.push(Claim::new(at, layer, found)?);
            }
        }
        let certain = claims.iter().filter(|claim| !claim.found.doubtful);
        let mut best = self.prevailing(certain);
        for doubtful in claims.iter().filter(|claim| claim.found.doubtful) {
            let others = claims.iter().filter(|c| c.at != doubtful.at && !c.found.doubtful);
            let mut outcome: Vec<&Claim<'a>> = others.chain([doubtful]).collect();
            outcome.sort_by_key(|claim| claim.at);
            let would = self.prevailing(outcome.into_iter());
            let nothing = if named_only { Effect::Allow } else { self.default.0 };
            let known = best.as_ref().map_or(nothing, |(claim, _)| claim.effect);
            let stricter = |(claim, _): &(&Claim<'a>, _)| claim.effect > known;
            let equal = |(claim, _): &(&Claim<'a>, _)| best.is_none() && claim.effect == known;
            if would.as_ref().is_some_and(|would| stricter(would) || equal(would)) {
                best = would;
            }
        }
        best.map(|(claim, sandbox)| self.ruling(claim, sandbox, &claims)).transpose()
    }

    /// The claim that holds, given that all of these apply, and where it runs.
    fn prevailing<'c>(
        &self,
        claims: impl Iterator<Item = &'c Claim<'a>>,
    ) -> Option<(&'c Claim<'a>, Room<'a>)>
    where
        'a: 'c,
    {
        let mut floor: Option<&Claim<'a>> = None;
        let mut chosen: Option<&Claim<'a>> = None;
        // What a managed policy allows is what holds where nobody says more.
        let mut managed_allow = None;
        for claim in claims {
            let managed = claim.kind == LayerKind::Managed;
            if !claim.trusted || (managed && claim.effect > Effect::Allow) {
                floor = stricter(floor, claim);
            } else if managed {
                managed_allow = Some(claim);
            } else {
                // A deny of the user is lifted by the session alone.
                let user_deny = claim.kind == LayerKind::User && claim.effect == Effect::Deny;
                let lifted = chosen.is_some_and(|c| !user_deny || c.kind == LayerKind::Session);
                chosen = if lifted { chosen } else { Some(claim) };
            }
        }
        let chosen = chosen.or(managed_allow);
        let winner = match (floor, chosen) {
            (Some(floor), Some(_)) => stricter(chosen, floor),
            (Some(floor), None) => Some(floor).filter(|floor| floor.effect >= self.default.0),
            (None, chosen) => chosen,
        };
        winner.map(|winner| (winner, self.room(winner, chosen)))
    }

    /// A sandbox that came with the repository is no limit to rely on: such a
    /// rule has none, and the one that would hold without it stays.
    fn room(&self, winner: &Claim<'a>, chosen: Option<&Claim<'a>>) -> Room<'a> {
        let of = |claim: &Claim<'a>| Room {
            sandbox: claim.sandbox.unwrap_or(self.default_sandbox),
            named: claim.sandbox.is_some(),
        };
        match (winner.trusted, chosen) {
            (true, _) => of(winner),
            (false, Some(chosen)) => of(chosen),
            (false, None) => self.default_room(),
        }
    }

    fn default_room(&self) -> Room<'a> {
        let named = self.default.2.sandbox().ok().flatten();
        Room { sandbox: named.unwrap_or(self.default_sandbox), named: named.is_some() }
    }

    fn ruling(
        &self,
        claim: &Claim<'a>,
        room: Room<'a>,
        claims: &[Claim<'a>],
    ) -> Result<Ruling<'a>, DecideError> {
        let mut overruled: Vec<Overruled> = Vec::new();
        for other in claims.iter().filter(|other| other.at != claim.at) {
            // Of one layer what is stricter, which comes last.
            overruled.retain(|known| known.layer != other.kind);
            overruled.push(Overruled {
                layer: other.kind,
                effect: other.effect,
                trail: other.found.shown(),
                span: other.found.rule.span()?,
            });
        }
        Ok(Ruling {
            effect: claim.effect,
            sandbox: Some(room.sandbox),
            names_sandbox: room.named,
            cause: Cause::Rule {
                layer: claim.kind,
                trail: claim.found.shown(),
                span: claim.found.rule.span()?,
                reason: claim.found.rule.reason()?.map(str::to_owned),
                untrusted: claim.lowered,
                doubtful: claim.found.doubtful,
            },
            overruled,
        })
    }

    pub(super) fn by_default(&self) -> Ruling<'a> {
        let (effect, layer, rule) = self.default;
        let room = self.default_room();
        Ruling {
            effect,
            sandbox: Some(room.sandbox),
            names_sandbox: room.named,
            cause: Cause::Default {
                layer,
                span: rule.span().unwrap_or_default(),
                reason: rule.reason().ok().flatten().map(str::to_owned),
            },
            overruled: Vec::new(),
        }
    }
}

/// A sandbox, and whether a rule names it.
struct Room<'a> {
    sandbox: SandboxRef<'a>,
    named: bool,
}

/// What one layer says, as it counts among the layers.
struct Claim<'a> {
    at: usize,
    kind: LayerKind,
    trusted: bool,
    effect: Effect,
    /// An allow that counts as ask, because nobody trusts the layer yet.
    lowered: bool,
    sandbox: Option<SandboxRef<'a>>,
    found: Found<'a>,
}

impl<'a> Claim<'a> {
    fn new(at: usize, layer: &LayerRef<'a>, found: Found<'a>) -> Result<Self, IrError> {
        let (trusted, effect) = (layer.trusted()?, found.rule.effect()?);
        let lowered = !trusted && effect == Effect::Allow;
        Ok(Self {
            at,
            kind: layer.kind()?,
            trusted,
            effect: if lowered { Effect::Ask } else { effect },
            lowered,
            sandbox: if trusted { found.rule.sandbox()? } else { None },
            found,
        })
    }
}

/// The stricter of two, the earlier if they are equal.
fn stricter<'c, 'a>(known: Option<&'c Claim<'a>>, other: &'c Claim<'a>) -> Option<&'c Claim<'a>> {
    known.filter(|known| known.effect >= other.effect).or(Some(other))
}
