//! The differences between two policies. Both policies decide the witnesses of both,
//! and sandboxes are compared by their grants and not by their text.

use crate::action::{FileUse, ToolInput};
use crate::decide::{DecideError, Decision, DecisionCause, decide};
use crate::effect::{Effect, FileCaps};
use crate::ir::IrImage;
use crate::judge::{JudgeContext, judge};
use crate::rule::Layer;
use crate::sandbox::{ProcessLifetime, ResourceLimits, Sandbox, WriteTarget};
use crate::span::PolicySpan;
use crate::witness::{self, PolicyWitness};

/// The direction of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RightsChange {
    More,
    Less,
    /// More in one respect and less in another.
    Different,
}

impl RightsChange {
    pub const fn word(self) -> &'static str {
        match self {
            Self::More => "more",
            Self::Less => "less",
            Self::Different => "different",
        }
    }

    /// Compares two levels of strictness, where a greater number is stricter. `None` if
    /// they are equal.
    fn between(old: impl Into<u8>, new: impl Into<u8>) -> Option<Self> {
        match new.into().cmp(&old.into()) {
            std::cmp::Ordering::Less => Some(Self::More),
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some(Self::Less),
        }
    }
}

/// The differences that [`compare`] found.
#[derive(Clone, Debug, Default)]
pub struct PolicyComparison {
    pub actions: Vec<ActionChange>,
    /// Of sandboxes with the same name.
    pub sandboxes: Vec<SandboxChange>,
    /// `false`: there were too many witnesses, and some were not compared.
    pub complete: bool,
}

impl PolicyComparison {
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty() && self.sandboxes.is_empty()
    }

    /// True if a difference gives more rights in some respect, even if it takes other
    /// rights away. Says nothing about witnesses that an incomplete comparison left out.
    pub fn widens(&self) -> bool {
        let grants = self.sandboxes.iter().flat_map(|sandbox| &sandbox.grants);
        self.actions.iter().any(|action| action.change != RightsChange::Less)
            || grants.into_iter().any(|grant| grant.change != RightsChange::Less)
    }
}

/// An action that is decided differently.
#[derive(Clone, Debug)]
pub struct ActionChange {
    pub witness: PolicyWitness,
    pub change: RightsChange,
    pub old: ComparedDecision,
    pub new: ComparedDecision,
}

/// A decision and the place of its rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparedDecision {
    pub effect: Effect,
    /// The sandbox of a command that may run.
    pub sandbox: Option<String>,
    /// The rule that decided, a rule of a sandbox or a default among them; `None` if no rule
    /// was needed.
    pub place: Option<PolicySpan>,
}

/// Two sandboxes with the same name and different grants.
#[derive(Clone, Debug)]
pub struct SandboxChange {
    pub name: String,
    /// The place of the new one.
    pub place: PolicySpan,
    pub grants: Vec<GrantChange>,
}

/// A changed grant of a sandbox. `old` and `new` are words for people, for example `allow`,
/// `standard` or `limited`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantChange {
    pub change: RightsChange,
    pub what: ComparedGrant,
    pub old: &'static str,
    pub new: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ComparedGrant {
    /// A path as a policy writes it.
    Path {
        path: String,
        caps: FileCaps,
    },
    Host {
        host: String,
        port: u16,
    },
    Variable(String),
    Port(u16),
    Limit(&'static str),
    /// A persistence path that commands may change.
    Protection(String),
    /// A program that runs in the sandbox of its own rule.
    Door(String),
    /// Processes that outlive the command.
    Outliving,
    /// Confinement as a whole: `unrestricted` or not.
    Confinement,
}

/// Compares two policies on one machine. Each is given as its image and as its layers, of
/// the same content. A sandbox that only one policy has is not reported by itself, but
/// every command that runs in it is.
pub fn compare(
    old: (IrImage<'_>, &[Layer]),
    new: (IrImage<'_>, &[Layer]),
    context: &JudgeContext<'_>,
) -> Result<PolicyComparison, DecideError> {
    let (witnesses, complete) = witness::actions(old.1.iter().chain(new.1), context.places);
    let mut known = ComparedSandboxes::default();
    let mut actions = Vec::new();
    for witness in witnesses {
        let before = decide(old.0, &witness.action, context)?;
        let after = decide(new.0, &witness.action, context)?;
        let change = match RightsChange::between(before.effect as u8, after.effect as u8) {
            Some(change) => Some(change),
            None => known.change_of_room(&witness, &before, &after, context)?,
        };
        if let Some(change) = change {
            let (old, new) = (outcome(&witness, &before), outcome(&witness, &after));
            actions.push(ActionChange { witness, change, old, new });
        }
    }
    let mut sandboxes = Vec::new();
    let named = nameable(new.1);
    for before in nameable(old.1) {
        let Some(after) = named.iter().find(|after| after.name == before.name) else { continue };
        let grants = grants(before, after, context)?;
        if !grants.is_empty() {
            let (name, place) = (after.name.clone(), after.span.clone());
            sandboxes.push(SandboxChange { name, place, grants });
        }
    }
    Ok(PolicyComparison { actions, sandboxes, complete })
}

/// The sandboxes that rules can name: those of trusted layers. Of several with one name,
/// the first counts.
fn nameable(layers: &[Layer]) -> Vec<&Sandbox> {
    let mut known: Vec<&Sandbox> = Vec::new();
    for sandbox in layers.iter().filter(|layer| layer.trusted).flat_map(|layer| &layer.sandboxes) {
        if known.iter().all(|other| other.name != sandbox.name) {
            known.push(sandbox);
        }
    }
    known
}

/// The sandbox in which the command of a witness runs; `None` for a denied command and for
/// other tools.
fn room<'a>(witness: &PolicyWitness, decision: &'a Decision) -> Option<&'a Sandbox> {
    // For files and hosts the sandbox has already changed the effect.
    let runs =
        matches!(witness.action.input, ToolInput::Script(_)) && decision.effect < Effect::Deny;
    decision.sandbox.as_ref().filter(|_| runs)
}

/// The decision and the place of its rule. If the sandbox made the answer stricter, the
/// place is the rule of the sandbox.
fn outcome(witness: &PolicyWitness, decision: &Decision) -> ComparedDecision {
    let part = decision.decisive();
    let judged = part.and_then(|part| {
        part.judged.as_ref().filter(|it| it.effect == part.effect && it.effect > Effect::Allow)
    });
    let by_sandbox = judged.and_then(|judged| judged.rule.as_ref()).map(|(_, span)| span.clone());
    let place = match part.map(|part| &part.cause) {
        Some(DecisionCause::Rule { span, .. } | DecisionCause::Default { span, .. }) => {
            Some(span.clone())
        }
        _ => None,
    };
    ComparedDecision {
        effect: decision.effect,
        sandbox: room(witness, decision).map(|sandbox| sandbox.name.clone()),
        place: by_sandbox.or(place),
    }
}

/// Pairs of sandboxes that were compared before: many actions share few sandboxes.
#[derive(Default)]
struct ComparedSandboxes(Vec<(Sandbox, Sandbox, Option<RightsChange>)>);

impl ComparedSandboxes {
    /// The change of a command's rights if it runs in a sandbox of another name. `None` for
    /// a sandbox of the same name: its changes are reported once, and not for every command.
    fn change_of_room(
        &mut self,
        witness: &PolicyWitness,
        before: &Decision,
        after: &Decision,
        context: &JudgeContext<'_>,
    ) -> Result<Option<RightsChange>, DecideError> {
        let (Some(old), Some(new)) = (room(witness, before), room(witness, after)) else {
            return Ok(None);
        };
        if old.name == new.name {
            return Ok(None);
        }
        if let Some((_, _, change)) = self.0.iter().find(|(a, b, _)| a == old && b == new) {
            return Ok(*change);
        }
        let changes = grants(old, new, context)?;
        let has = |wanted| changes.iter().any(|grant| grant.change == wanted);
        let change = match (has(RightsChange::More), has(RightsChange::Less)) {
            (true, true) => Some(RightsChange::Different),
            (true, false) => Some(RightsChange::More),
            (false, true) => Some(RightsChange::Less),
            (false, false) => None,
        };
        self.0.push((old.clone(), new.clone(), change));
        Ok(change)
    }
}

/// The differences between the grants of two sandboxes. If one of them is unrestricted,
/// only that difference is reported.
pub fn grants(
    old: &Sandbox,
    new: &Sandbox,
    context: &JudgeContext<'_>,
) -> Result<Vec<GrantChange>, DecideError> {
    if old.unrestricted || new.unrestricted {
        let word = |sandbox: &Sandbox| if sandbox.unrestricted { "none" } else { "confined" };
        let change = RightsChange::between(!old.unrestricted, !new.unrestricted);
        let what = ComparedGrant::Confinement;
        return Ok(change
            .map(|change| GrantChange { change, what, old: word(old), new: word(new) })
            .into_iter()
            .collect());
    }
    let mut changes = Vec::new();
    let mut note = |what: ComparedGrant, old: GrantStrictness, new: GrantStrictness| {
        if let Some(change) = RightsChange::between(old as u8, new as u8) {
            changes.push(GrantChange { change, what, old: old.word(), new: new.word() });
        }
    };
    note_path_changes(old, new, context, &mut note)?;
    for (host, port) in witness::hosts(&[old, new]) {
        let held = |sandbox: &Sandbox| GrantStrictness::from(sandbox.net.judge(&host, port).0);
        note(ComparedGrant::Host { host: host.clone(), port }, held(old), held(new));
    }
    for rule in old.env.iter().chain(&new.env) {
        // Without a rule the built-in list decides, which withholds secrets.
        let held = |sandbox: &Sandbox| {
            let found = sandbox.env.iter().find(|other| other.name == rule.name);
            found.map_or(GrantStrictness::Standard, |rule| rule.effect.into())
        };
        note(ComparedGrant::Variable(rule.name.clone()), held(old), held(new));
    }
    for port in old.serve.iter().chain(&new.serve) {
        let held = |sandbox: &Sandbox| GrantStrictness::yes(sandbox.serve.contains(port));
        note(ComparedGrant::Port(*port), held(old), held(new));
    }
    for program in old.doors.iter().chain(&new.doors) {
        let held = |sandbox: &Sandbox| GrantStrictness::yes(sandbox.doors.contains(program));
        note(ComparedGrant::Door(program.clone()), held(old), held(new));
    }
    note_protection_changes(old, new, &mut note);
    let outlives = |sandbox: &Sandbox| match sandbox.lifetime {
        Some(ProcessLifetime::Detached) | None => GrantStrictness::Standard,
        Some(ProcessLifetime::Action) => GrantStrictness::Deny,
    };
    note(ComparedGrant::Outliving, outlives(old), outlives(new));
    let mut changes = without_repetitions(changes);
    for ((name, before), (_, after)) in old.limits.named().into_iter().zip(new.limits.named()) {
        let standard = if name == "files" {
            ResourceLimits::STANDARD_FILES
        } else {
            ResourceLimits::UNLIMITED
        };
        let [before, after] = [before, after].map(|limit| limit.unwrap_or(standard));
        let change = match (before, after) {
            (before, after) if after > before => RightsChange::More,
            (before, after) if after < before => RightsChange::Less,
            _ => continue,
        };
        let word = |limit| if limit == ResourceLimits::UNLIMITED { "unlimited" } else { "limited" };
        let what = ComparedGrant::Limit(name);
        changes.push(GrantChange { change, what, old: word(before), new: word(after) });
    }
    Ok(changes)
}

/// Notes the differences between the protected persistence paths.
fn note_protection_changes(
    old: &Sandbox,
    new: &Sandbox,
    note: &mut impl FnMut(ComparedGrant, GrantStrictness, GrantStrictness),
) {
    let standard = |sandbox: &Sandbox| GrantStrictness::yes(!sandbox.protect.standard);
    note(ComparedGrant::Protection("the standard list".to_owned()), standard(old), standard(new));
    for name in old.protect.also.iter().chain(&new.protect.also) {
        let held = |sandbox: &Sandbox| GrantStrictness::yes(!sandbox.protect.also.contains(name));
        note(ComparedGrant::Protection(name.clone()), held(old), held(new));
    }
    for name in old.protect.except.iter().chain(&new.protect.except) {
        let held = |sandbox: &Sandbox| GrantStrictness::yes(sandbox.protect.except.contains(name));
        note(ComparedGrant::Protection(name.clone()), held(old), held(new));
    }
}

/// The strictness of a grant, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrantStrictness {
    Allow,
    /// Allowed, but writes go to an overlay.
    Cow,
    /// Allowed, but writes go to a cache of the project.
    Cache,
    /// The behaviour without any rule.
    Standard,
    Ask,
    Deny,
}

impl GrantStrictness {
    const fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Cow => "cow",
            Self::Cache => "cache",
            Self::Standard => "standard",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }

    const fn yes(on: bool) -> Self {
        if on { Self::Allow } else { Self::Deny }
    }
}

impl From<Effect> for GrantStrictness {
    fn from(effect: Effect) -> Self {
        match effect {
            Effect::Allow => Self::Allow,
            Effect::Ask => Self::Ask,
            Effect::Deny => Self::Deny,
        }
    }
}

/// Notes paths with changed grants: one example for each pair of deciding rules, with all
/// capabilities that change in the same way.
fn note_path_changes(
    old: &Sandbox,
    new: &Sandbox,
    context: &JudgeContext<'_>,
    note: &mut impl FnMut(ComparedGrant, GrantStrictness, GrantStrictness),
) -> Result<(), DecideError> {
    type GrantPair = (Option<usize>, Option<usize>, GrantStrictness, GrantStrictness);
    let mut shown: Vec<(GrantPair, FileCaps)> = Vec::new();
    for (text, path) in witness::paths(&[old, new], context.places) {
        let mut found: Vec<(GrantPair, FileCaps)> = Vec::new();
        for cap in FileCaps::each() {
            let file = FileUse { path: path.clone(), needs: cap, caseless: false };
            let (old_rule, before) = held(old, &file, context)?;
            let (new_rule, after) = held(new, &file, context)?;
            let alike = (old_rule, new_rule, before, after);
            match found.iter_mut().find(|(known, _)| *known == alike) {
                _ if before == after => {}
                Some((_, caps)) => *caps = caps.union(cap),
                None => found.push((alike, cap)),
            }
        }
        for entry in found {
            if !shown.contains(&entry) {
                let ((_, _, before, after), caps) = entry;
                note(ComparedGrant::Path { path: text.clone(), caps }, before, after);
                shown.push(entry);
            }
        }
    }
    Ok(())
}

/// The strictness of a sandbox for one capability of a file, and the index of its rule that
/// decided.
fn held(
    sandbox: &Sandbox,
    file: &FileUse,
    context: &JudgeContext<'_>,
) -> Result<(Option<usize>, GrantStrictness), DecideError> {
    let verdict = judge(sandbox, file, context).map_err(|source| DecideError::Path {
        sandbox: sandbox.name.clone(),
        span: sandbox.span.clone(),
        source,
    })?;
    let rule = verdict.rule.and_then(|index| sandbox.fs.get(index));
    let rule = rule.filter(|rule| rule.effect == Effect::Allow && rule.caps.contains(file.needs));
    let changes = file.needs.intersects(FileCaps::CHANGE);
    let held = match rule.filter(|_| changes).map(|rule| rule.writes) {
        Some(WriteTarget::Session) if verdict.effect == Effect::Allow => GrantStrictness::Cow,
        Some(WriteTarget::Project) if verdict.effect != Effect::Deny => GrantStrictness::Cache,
        _ => verdict.effect.into(),
    };
    Ok((verdict.rule, held))
}

/// The changes without repetitions, in the same order.
fn without_repetitions(changes: Vec<GrantChange>) -> Vec<GrantChange> {
    let mut kept: Vec<GrantChange> = Vec::new();
    for change in changes {
        if !kept.contains(&change) {
            kept.push(change);
        }
    }
    kept
}

#[cfg(test)]
mod tests;
