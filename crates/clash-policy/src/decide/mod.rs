//! From an action to a Decision: the effect, the sandbox, and every step that
//! led there. One implementation serves the hook, the launcher and `explain`.
//!
//! Order of the layers: what a managed policy denies or asks cannot be relaxed;
//! then the session, then a deny of the user, then the project, then the user,
//! then the built-in rules, then the default. An untrusted project layer can
//! only make things stricter.

mod walk;

use crate::action::{Action, Input};
use crate::effect::{Caps, Effect};
use crate::ir::{Ir, IrError, LayerRef, SandboxRef};
use crate::judge::{Verdict, World, judge, steers_agent};
use crate::path::{PathError, is_below};
use crate::rule::LayerKind;
use crate::sandbox::Sandbox;
use crate::shell::{self, Command};
use crate::span::Span;

use walk::{Facts, Found};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecideError {
    #[error(transparent)]
    Ir(#[from] IrError),
    #[error("sandbox `{sandbox}` ({span}): {source}")]
    Path { sandbox: String, span: Span, source: PathError },
}

/// The answer and how it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub effect: Effect,
    /// Where an allowed or approved action runs.
    pub sandbox: Option<Sandbox>,
    /// One per command of a script; one for any other tool. Never empty.
    pub parts: Vec<Part>,
    /// Commands of the script that belong in different sandboxes.
    pub conflict: Option<Conflict>,
}

/// What was decided about one command, path or host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The command or path as people would write it.
    pub what: String,
    pub effect: Effect,
    pub sandbox: Option<String>,
    pub cause: Cause,
    /// Why the command could not be looked into.
    pub opaque: Option<&'static str>,
    /// What the sandbox said about the path of a file tool.
    pub file: Option<FileVerdict>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    Rule {
        layer: LayerKind,
        trail: Vec<String>,
        span: Span,
        reason: Option<String>,
        /// An allow of a project nobody trusted yet, counted as ask.
        untrusted: bool,
        /// The rule may or may not match: the shell decides when it runs.
        doubtful: bool,
    },
    Default {
        layer: LayerKind,
        span: Span,
    },
    /// A shell builtin that starts no program.
    Inert,
    /// The path is clash's own or steers the agent.
    Cage,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileVerdict {
    pub effect: Effect,
    pub caps: Caps,
    /// The sandbox rule that decided; `None` for the sandbox's default.
    pub rule: Option<(String, Span)>,
}

/// Two commands of one script that are given different sandboxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub first: (String, String),
    pub second: (String, String),
}

impl Decision {
    /// The part that made the answer what it is.
    pub fn decisive(&self) -> Option<&Part> {
        let strictest = |part: &&Part| part.effect == self.effect;
        let ruled = self.parts.iter().filter(|part| part.cause != Cause::Inert).find(strictest);
        ruled.or(self.parts.first())
    }
}

/// Decides an action against an opened policy.
pub fn decide(ir: Ir<'_>, action: &Action, world: &World<'_>) -> Result<Decision, DecideError> {
    let stack = Stack::read(ir)?;
    match &action.input {
        Input::Script(script) => stack.script(action, &shell::commands(script)),
        Input::File { path, needs } => stack.file(action, path, *needs, world),
        Input::Host(host) => stack.single(action, Some(host), host.clone()),
        Input::Other => stack.single(action, None, action.tool.clone()),
    }
}

/// What one command or tool call came to, before it is shown.
struct Ruling<'a> {
    effect: Effect,
    /// `None`: nothing said so, it runs where the rest of the script runs.
    sandbox: Option<SandboxRef<'a>>,
    cause: Cause,
}

struct Stack<'a> {
    layers: Vec<LayerRef<'a>>,
    default: (Effect, LayerKind, Span),
    default_sandbox: SandboxRef<'a>,
}

impl<'a> Stack<'a> {
    fn read(ir: Ir<'a>) -> Result<Self, IrError> {
        let layers = ir.layers().collect::<Result<Vec<_>, _>>()?;
        let (mut default, mut default_sandbox) = (None, None);
        let mut floor = Effect::Allow;
        for layer in &layers {
            let kind = layer.kind()?;
            let trusted = layer.trusted()?;
            if let Some((effect, span)) = layer.default()? {
                if !trusted || kind == LayerKind::Managed {
                    floor = floor.max(effect);
                }
                if trusted && default.is_none() {
                    default = Some((effect, kind, span));
                }
            }
            if trusted && default_sandbox.is_none() {
                default_sandbox = layer.default_sandbox()?;
            }
        }
        // The built-in layer always sets both; a stack without them is damaged.
        let (effect, kind, span) = default.ok_or(IrError::Damaged)?;
        Ok(Self {
            layers,
            default: (effect.max(floor), kind, span),
            default_sandbox: default_sandbox.ok_or(IrError::Damaged)?,
        })
    }

    /// Asks every layer and applies their precedence.
    fn rule(&self, facts: &Facts<'_>) -> Result<Option<Ruling<'a>>, IrError> {
        let mut floor: Option<Ruling<'a>> = None;
        let mut chosen: Option<Ruling<'a>> = None;
        let mut user_deny = None;
        for layer in &self.layers {
            let kind = layer.kind()?;
            let Some(found) = walk::layer(layer, facts)? else { continue };
            let ruling = self.ruling(kind, layer.trusted()?, found)?;
            let binds = (kind == LayerKind::Managed && ruling.effect > Effect::Allow)
                || !layer.trusted()?;
            if binds {
                floor = Some(stricter(floor, ruling));
            } else if kind == LayerKind::User && ruling.effect == Effect::Deny {
                user_deny = Some(ruling);
            } else if chosen.is_none() && kind != LayerKind::Managed {
                chosen = Some(ruling);
            }
        }
        let session_chose = matches!(
            &chosen,
            Some(Ruling { cause: Cause::Rule { layer: LayerKind::Session, .. }, .. })
        );
        if !session_chose {
            chosen = user_deny.or(chosen);
        }
        let chosen_sandbox = chosen.as_ref().and_then(|ruling| ruling.sandbox);
        let ruling = match (floor, chosen) {
            (None, chosen) => chosen,
            (Some(floor), Some(chosen)) => Some(stricter(Some(chosen), floor)),
            (Some(floor), None) if floor.effect >= self.default.0 => Some(floor),
            (Some(_), None) => None,
        };
        Ok(ruling.map(|ruling| Ruling {
            sandbox: ruling.sandbox.or(chosen_sandbox).or(Some(self.default_sandbox)),
            ..ruling
        }))
    }

    fn ruling(
        &self,
        layer: LayerKind,
        trusted: bool,
        found: Found<'a>,
    ) -> Result<Ruling<'a>, IrError> {
        let effect = found.rule.effect()?;
        let untrusted = !trusted && effect == Effect::Allow;
        // A sandbox that came with the repository is no limit to rely on: such a
        // rule has none, and the one that would hold without it stays.
        let named = if trusted {
            Some(found.rule.sandbox()?.unwrap_or(self.default_sandbox))
        } else {
            None
        };
        Ok(Ruling {
            effect: if untrusted { Effect::Ask } else { effect },
            sandbox: named,
            cause: Cause::Rule {
                layer,
                trail: found.trail,
                span: found.rule.span()?,
                reason: found.rule.reason()?.map(str::to_owned),
                untrusted,
                doubtful: found.doubtful,
            },
        })
    }

    fn by_default(&self) -> Ruling<'a> {
        let (effect, layer, span) = self.default.clone();
        Ruling {
            effect,
            sandbox: Some(self.default_sandbox),
            cause: Cause::Default { layer, span },
        }
    }

    fn script(&self, action: &Action, commands: &[Command]) -> Result<Decision, DecideError> {
        let mut rulings = Vec::with_capacity(commands.len());
        for command in commands {
            let ruling = self.rule(&Facts::command(action, command))?;
            rulings.push(ruling.unwrap_or_else(|| {
                if shell::is_inert(command) {
                    Ruling { effect: Effect::Allow, sandbox: None, cause: Cause::Inert }
                } else {
                    self.by_default()
                }
            }));
        }
        if rulings.iter().all(|ruling| ruling.sandbox.is_none()) {
            rulings = commands.iter().map(|_| self.by_default()).collect();
        }
        let whats: Vec<String> = commands.iter().map(|c| c.text.clone()).collect();
        let mut decision = self.combine(rulings, whats)?;
        for (part, command) in decision.parts.iter_mut().zip(commands) {
            part.opaque = command.opaque;
        }
        Ok(decision)
    }

    fn single(
        &self,
        action: &Action,
        host: Option<&str>,
        what: String,
    ) -> Result<Decision, DecideError> {
        let ruling = self.rule(&Facts::tool(action, host))?.unwrap_or_else(|| self.by_default());
        self.combine(vec![ruling], vec![what])
    }

    fn combine(
        &self,
        rulings: Vec<Ruling<'a>>,
        whats: Vec<String>,
    ) -> Result<Decision, DecideError> {
        let effect = rulings.iter().map(|r| r.effect).max().unwrap_or(Effect::Deny);
        let mut room: Option<(SandboxRef<'a>, &String)> = None;
        let mut conflict = None;
        let mut parts = Vec::with_capacity(rulings.len());
        for (ruling, what) in rulings.into_iter().zip(&whats) {
            let name = ruling.sandbox.map(|s| s.name()).transpose()?.map(str::to_owned);
            match (ruling.sandbox, room) {
                (Some(sandbox), None) => room = Some((sandbox, what)),
                (Some(sandbox), Some((first, first_what)))
                    if sandbox != first && conflict.is_none() && effect < Effect::Deny =>
                {
                    conflict = Some(Conflict {
                        first: (first_what.clone(), first.name()?.to_owned()),
                        second: (what.clone(), sandbox.name()?.to_owned()),
                    });
                }
                _ => {}
            }
            let (effect, cause) = (ruling.effect, ruling.cause);
            parts.push(Part {
                what: what.clone(),
                effect,
                sandbox: name,
                cause,
                opaque: None,
                file: None,
            });
        }
        let sandbox = room.map(|(sandbox, _)| sandbox.to_sandbox()).transpose()?;
        // One room has one sandbox: running both commands in either would give
        // one of them rights that were not meant for it.
        let effect = if conflict.is_some() { Effect::Deny } else { effect };
        Ok(Decision { effect, sandbox, parts, conflict })
    }

    fn file(
        &self,
        action: &Action,
        path: &std::path::Path,
        needs: Caps,
        world: &World<'_>,
    ) -> Result<Decision, DecideError> {
        let what = path.display().to_string();
        let in_cage = world.cage.iter().any(|own| is_below(path, own))
            || steers_agent(path, &world.places.project);
        if in_cage && needs.intersects(Caps::CHANGE) {
            let ruling = Ruling { effect: Effect::Deny, sandbox: None, cause: Cause::Cage };
            return self.combine(vec![ruling], vec![what]);
        }
        let mut decision = self.single(action, None, what)?;
        if let Some(sandbox) = &decision.sandbox {
            let verdict =
                judge(sandbox, path, needs, world).map_err(|source| DecideError::Path {
                    sandbox: sandbox.name.clone(),
                    span: sandbox.span.clone(),
                    source,
                })?;
            let shown = file_verdict(sandbox, &verdict);
            decision.effect = decision.effect.max(verdict.effect);
            for part in &mut decision.parts {
                part.effect = decision.effect;
                part.file = Some(shown.clone());
            }
        }
        Ok(decision)
    }
}

fn file_verdict(sandbox: &Sandbox, verdict: &Verdict) -> FileVerdict {
    let rule = verdict.rule.and_then(|index| sandbox.fs.get(index));
    FileVerdict {
        effect: verdict.effect,
        caps: verdict.caps,
        rule: rule.map(|rule| (rule.pattern.to_string(), rule.span.clone())),
    }
}

fn stricter<'a>(known: Option<Ruling<'a>>, other: Ruling<'a>) -> Ruling<'a> {
    match known {
        Some(known) if known.effect >= other.effect => known,
        _ => other,
    }
}

#[cfg(test)]
mod tests;
