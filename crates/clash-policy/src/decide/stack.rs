//! The layers of a policy, and the precedence among their rules.

use crate::action::HostUse;
use crate::effect::Effect;
use crate::ir::{IrError, IrImage, LayerRef, RuleRef, SandboxRef};
use crate::rule::LayerKind;

use super::facts::MatchFacts;
use super::walk::{self, MatchedRule, TreeAnswer};
use super::{DecideError, DecisionCause, OverruledRule};

/// The ruling about one command or tool call.
pub(super) struct PartRuling<'a> {
    pub(super) effect: Effect,
    /// `None`: it runs in the sandbox of the rest of the script.
    pub(super) sandbox: Option<SandboxRef<'a>>,
    /// The rule names the sandbox.
    pub(super) names_sandbox: bool,
    /// The rule has a key about paths, also one that covers a whole tree.
    pub(super) names_path: bool,
    pub(super) cause: DecisionCause,
    pub(super) overruled: Vec<OverruledRule>,
    /// As [`super::DecisionPart::steered`].
    pub(super) steered: Option<String>,
    /// As [`super::DecisionPart::asked_hosts`].
    pub(super) asked_hosts: Vec<HostUse>,
}

impl PartRuling<'_> {
    /// An allow for a command that starts no program.
    pub(super) fn inert() -> Self {
        Self::without_sandbox(Effect::Allow, DecisionCause::Inert)
    }

    /// An allow for a file that the shell opens and no rule matches.
    pub(super) fn opened() -> Self {
        Self::without_sandbox(Effect::Allow, DecisionCause::Opened)
    }

    /// A deny for a file of the cage.
    pub(super) fn caged() -> Self {
        Self::without_sandbox(Effect::Deny, DecisionCause::Cage)
    }

    /// A ruling of this cause alone, in no sandbox.
    fn without_sandbox(effect: Effect, cause: DecisionCause) -> Self {
        Self {
            effect,
            sandbox: None,
            names_sandbox: false,
            names_path: false,
            cause,
            overruled: Vec::new(),
            steered: None,
            asked_hosts: Vec::new(),
        }
    }
}

/// The layers of a policy that count, with the default of all of them.
pub(super) struct DecidingLayers<'a> {
    layers: Vec<LayerRef<'a>>,
    default: (Effect, LayerKind, RuleRef<'a>),
    default_sandbox: SandboxRef<'a>,
}

impl<'a> DecidingLayers<'a> {
    /// Reads the layers of an image. The default effect and sandbox are those of the first
    /// trusted layer that sets them. A default of a managed or untrusted layer can only
    /// make the effect stricter. `harness_defaults = False` removes the built-in layer.
    pub(super) fn read(ir: IrImage<'a>) -> Result<Self, IrError> {
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
        // The built-in layer always sets both; an image without them is damaged.
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

    /// Finds the matching rules of all layers and applies the precedence. A certain rule of
    /// a trusted layer always counts. A doubtful rule, or a rule of an untrusted layer,
    /// counts only if it is stricter than the others, or without others at least as strict
    /// as `nothing`, the effect without a rule. `None` if no rule counts. `named_only`
    /// ignores rules that name no command.
    ///
    /// The sandbox is always that of the trusted layers.
    pub(super) fn rule(
        &self,
        facts: &MatchFacts<'_>,
        named_only: bool,
        nothing: Effect,
    ) -> Result<Option<PartRuling<'a>>, DecideError> {
        let mut claims = Vec::new();
        for (at, layer) in self.layers.iter().enumerate() {
            let TreeAnswer { certain, doubtful } = walk::layer(layer, facts, named_only)?;
            for found in certain.into_iter().chain(doubtful) {
                claims.push(LayerClaim::new(at, layer, found)?);
            }
        }
        let trusted = || claims.iter().filter(|claim| claim.trusted);
        let certain = || trusted().filter(|claim| !claim.found.doubtful);
        let mut best = prevailing(certain());
        for doubtful in trusted().filter(|claim| claim.found.doubtful) {
            let mut outcome: Vec<&LayerClaim<'a>> =
                certain().filter(|claim| claim.at != doubtful.at).chain([doubtful]).collect();
            outcome.sort_by_key(|claim| claim.at);
            let would = prevailing(outcome.into_iter());
            best = would.filter(|would| tightens(would, best, nothing)).or(best);
        }
        // An untrusted layer can only tighten. Its sandbox may be too wide, so the
        // sandbox of the trusted layers stays.
        let room = best.map_or_else(|| self.default_room(), |claim| self.claimed_sandbox(claim));
        for claim in claims.iter().filter(|claim| !claim.trusted) {
            best = Some(claim).filter(|claim| tightens(claim, best, nothing)).or(best);
        }
        best.map(|claim| ruling(claim, room, &claims)).transpose()
    }

    /// The effect if no rule matches.
    pub(super) fn default_effect(&self) -> Effect {
        self.default.0
    }

    /// The sandbox of a claim: its own, or the default one.
    fn claimed_sandbox(&self, claim: &LayerClaim<'a>) -> ChosenSandbox<'a> {
        ChosenSandbox {
            sandbox: claim.sandbox.unwrap_or(self.default_sandbox),
            named: claim.sandbox.is_some(),
        }
    }

    /// The sandbox that the default rule names, or the default one.
    fn default_room(&self) -> ChosenSandbox<'a> {
        let named = self.default.2.sandbox().ok().flatten();
        ChosenSandbox { sandbox: named.unwrap_or(self.default_sandbox), named: named.is_some() }
    }

    /// The ruling if no rule matches: the default effect of the strongest layer that sets
    /// one, in the default sandbox.
    pub(super) fn by_default(&self) -> PartRuling<'a> {
        let (effect, layer, rule) = self.default;
        let room = self.default_room();
        PartRuling {
            effect,
            sandbox: Some(room.sandbox),
            names_sandbox: room.named,
            names_path: false,
            cause: DecisionCause::Default {
                layer,
                span: rule.span().unwrap_or_default(),
                reason: rule.reason().ok().flatten().map(str::to_owned),
            },
            overruled: Vec::new(),
            steered: None,
            asked_hosts: Vec::new(),
        }
    }

    pub(super) fn default_sandbox(&self) -> SandboxRef<'a> {
        self.default_sandbox
    }
}

/// A sandbox; `named` is true if a rule names it.
struct ChosenSandbox<'a> {
    sandbox: SandboxRef<'a>,
    named: bool,
}

/// A matching rule of one layer, with the data that the precedence needs.
struct LayerClaim<'a> {
    at: usize,
    kind: LayerKind,
    trusted: bool,
    effect: Effect,
    /// An allow that counts as ask, because the layer is not trusted.
    lowered: bool,
    sandbox: Option<SandboxRef<'a>>,
    found: MatchedRule<'a>,
}

impl<'a> LayerClaim<'a> {
    /// The claim of a rule. In an untrusted layer an allow becomes an ask, and no sandbox
    /// counts.
    fn new(at: usize, layer: &LayerRef<'a>, found: MatchedRule<'a>) -> Result<Self, IrError> {
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

/// The trusted claim that prevails if all of these apply, in the precedence that [`super`]
/// states. The claims come in the order of their layers.
fn prevailing<'c, 'a: 'c>(
    claims: impl Iterator<Item = &'c LayerClaim<'a>>,
) -> Option<&'c LayerClaim<'a>> {
    let mut floor: Option<&LayerClaim<'a>> = None;
    let mut chosen: Option<&LayerClaim<'a>> = None;
    // An allow of a managed policy holds only if no other layer matches.
    let mut managed_allow = None;
    for claim in claims {
        match (claim.kind, claim.effect) {
            (LayerKind::Managed, Effect::Allow) => managed_allow = Some(claim),
            (LayerKind::Managed, _) => floor = Some(claim),
            // Only the session can lift a deny of the user.
            (LayerKind::User, Effect::Deny)
                if chosen.is_none_or(|known| known.kind != LayerKind::Session) =>
            {
                chosen = Some(claim);
            }
            _ => chosen = chosen.or(Some(claim)),
        }
    }
    let chosen = chosen.or(managed_allow);
    floor.filter(|floor| chosen.is_none_or(|chosen| floor.effect > chosen.effect)).or(chosen)
}

/// True if a claim is stricter than the known one, or at least as strict as `nothing`
/// if there is none.
fn tightens(claim: &LayerClaim<'_>, known: Option<&LayerClaim<'_>>, nothing: Effect) -> bool {
    known.map_or(claim.effect >= nothing, |known| claim.effect > known.effect)
}

/// The ruling of the claim that prevailed, with one overruled rule for each other layer.
fn ruling<'a>(
    claim: &LayerClaim<'a>,
    room: ChosenSandbox<'a>,
    claims: &[LayerClaim<'a>],
) -> Result<PartRuling<'a>, DecideError> {
    let mut overruled: Vec<OverruledRule> = Vec::new();
    for other in claims.iter().filter(|other| other.at != claim.at) {
        // One entry for each layer: its stricter claim, which comes last.
        overruled.retain(|known| known.layer != other.kind);
        overruled.push(OverruledRule {
            layer: other.kind,
            effect: other.effect,
            trail: other.found.shown(),
            span: other.found.rule.span()?,
        });
    }
    Ok(PartRuling {
        effect: claim.effect,
        sandbox: Some(room.sandbox),
        names_sandbox: room.named,
        names_path: claim.found.names_path(),
        cause: DecisionCause::Rule {
            layer: claim.kind,
            trail: claim.found.shown(),
            span: claim.found.rule.span()?,
            reason: claim.found.rule.reason()?.map(str::to_owned),
            untrusted: claim.lowered,
            doubtful: claim.found.doubtful,
        },
        overruled,
        steered: None,
        asked_hosts: Vec::new(),
    })
}
