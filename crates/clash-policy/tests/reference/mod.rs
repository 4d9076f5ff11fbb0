//! The specification as a slow and obvious evaluator: it looks at every rule of every
//! tree, with every reading of the words. Works on the owned policy and shares nothing
//! with the engine but the analysis of scripts, the text matchers and the filling in of
//! variables.
//!
//! Not covered: files that redirections open, commands run elsewhere, and commands
//! that an agent can steer.

pub(crate) mod files;
pub(crate) mod generate;
mod keys;

use clash_policy::judge::JudgeContext;
use clash_policy::rule::{
    KeySubject, Layer, LayerKind, MatchBranch, MatchKey, MatchNode, PolicyRule,
};
use clash_policy::sandbox::Sandbox;
use clash_policy::{Action, Effect, FileCaps, FileUse, InputField, ToolInput};
use clash_shell::ShellCommand;

/// One thing to decide: a command, path, host or tool input.
#[derive(Clone, Copy)]
pub(crate) struct ReferenceSubject<'a> {
    pub(crate) action: &'a Action,
    pub(crate) context: &'a JudgeContext<'a>,
    pub(crate) command: Option<&'a ShellCommand>,
    pub(crate) host: Option<&'a str>,
    pub(crate) file: Option<&'a FileUse>,
    pub(crate) fields: &'a [InputField],
}

/// Why a part has its effect. Rules are named by their lines, which are unique in a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReferenceCause {
    /// By the line of the rule.
    Rule(u32),
    Default(u32),
    Inert,
    Cage,
}

/// The decision about one command, path or host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReferencePart {
    pub(crate) effect: Effect,
    pub(crate) sandbox: Option<String>,
    pub(crate) why: ReferenceCause,
    /// The answer of the sandbox about the path or host, and the line of its rule.
    pub(crate) judged: Option<(Effect, Option<u32>)>,
}

/// The decision about a whole action. `mix` says that its commands belong in different
/// sandboxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReferenceDecision {
    pub(crate) effect: Effect,
    pub(crate) sandbox: Option<String>,
    pub(crate) mix: bool,
    pub(crate) parts: Vec<ReferencePart>,
}

/// Decides an action. The layers must contain a trusted default and default sandbox.
pub(crate) fn decide(
    layers: &[Layer],
    action: &Action,
    context: &JudgeContext<'_>,
) -> ReferenceDecision {
    let policy = ReferencePolicy::new(layers);
    let thing =
        ReferenceSubject { action, context, command: None, host: None, file: None, fields: &[] };
    match &action.input {
        ToolInput::Script(script) => policy.script(&clash_shell::find_commands(script), thing),
        ToolInput::Files(files) if !files.is_empty() => {
            let one = |file| policy.file(file, ReferenceSubject { file: Some(file), ..thing });
            together(files.iter().map(one).collect(), false)
        }
        ToolInput::Hosts(hosts) if !hosts.is_empty() => {
            let parts = hosts.iter().map(|host| {
                let thing = ReferenceSubject { host: Some(&host.host), ..thing };
                let (mut part, named) = policy.ruled(thing);
                if named {
                    let sandbox = policy.sandbox(&part);
                    part.judged = sandbox.map(|s| files::host(s, &host.host, host.port));
                }
                part
            });
            together(parts.collect(), false)
        }
        ToolInput::Fields(fields) => {
            together(vec![policy.ruled(ReferenceSubject { fields, ..thing }).0], true)
        }
        ToolInput::Files(_) | ToolInput::Hosts(_) => together(vec![policy.ruled(thing).0], true),
    }
}

/// The strictest part decides. If commands of one room do not agree on its sandbox, it is
/// the default one (`script` sets it).
fn together(mut parts: Vec<ReferencePart>, one_room: bool) -> ReferenceDecision {
    for part in &mut parts {
        if let Some((effect, _)) = part.judged {
            part.effect = part.effect.max(effect);
        }
    }
    let strictest = parts.iter().map(|part| part.effect).max().unwrap();
    let rooms: Vec<&String> = parts.iter().filter_map(|part| part.sandbox.as_ref()).collect();
    let sandbox = rooms.first().map(|room| (*room).clone());
    let differ = rooms.iter().any(|room| Some(*room) != sandbox.as_ref());
    let mix = one_room && differ && strictest < Effect::Deny;
    ReferenceDecision { effect: strictest, sandbox, mix, parts }
}

/// A matching rule with its layer.
#[derive(Clone, Copy)]
struct ReferenceClaim<'a> {
    kind: LayerKind,
    trusted: bool,
    rule: &'a PolicyRule,
}

impl ReferenceClaim<'_> {
    /// The effect of the rule; at least ask in an untrusted layer.
    fn effect(&self) -> Effect {
        if self.trusted { self.rule.effect } else { self.rule.effect.max(Effect::Ask) }
    }
}

/// The layers with their settings worked out.
struct ReferencePolicy<'a> {
    layers: Vec<&'a Layer>,
    /// The default rule, and the effect after layers that can only tighten.
    default: (&'a PolicyRule, Effect),
    default_sandbox: &'a str,
    all: &'a [Layer],
}

impl<'a> ReferencePolicy<'a> {
    /// Finds the first trusted default, which untrusted layers can tighten, and drops the
    /// built-in layer if `harness_defaults` is false.
    fn new(all: &'a [Layer]) -> Self {
        let trusted = || all.iter().filter(|layer| layer.trusted);
        let default = trusted().find_map(|layer| layer.settings.default.as_ref()).unwrap();
        let tightened = all
            .iter()
            .filter(|layer| !layer.trusted)
            .filter_map(|layer| layer.settings.default.as_ref())
            .map(|rule| rule.effect)
            .fold(default.effect, Effect::max);
        let harness = trusted().find_map(|layer| layer.settings.harness_defaults).unwrap_or(true);
        Self {
            layers: all.iter().filter(|l| harness || l.kind != LayerKind::BuiltIn).collect(),
            default: (default, tightened),
            default_sandbox: trusted()
                .find_map(|layer| layer.settings.default_sandbox.as_deref())
                .unwrap(),
            all,
        }
    }

    /// The sandbox that a part names.
    fn sandbox(&self, part: &ReferencePart) -> Option<&'a Sandbox> {
        let name = part.sandbox.as_ref()?;
        self.all.iter().flat_map(|layer| &layer.sandboxes).find(|s| s.name == *name)
    }

    /// The default as a part, and whether it names its sandbox itself.
    fn by_default(&self) -> (ReferencePart, bool) {
        let (rule, effect) = self.default;
        let sandbox = rule.sandbox.as_deref();
        let part = ReferencePart {
            effect,
            sandbox: Some(sandbox.unwrap_or(self.default_sandbox).to_owned()),
            why: ReferenceCause::Default(rule.span.line),
            judged: None,
        };
        (part, sandbox.is_some())
    }

    /// Decides each command. Commands that need no rule run in the sandbox of the others;
    /// if all sandboxes are open, it is the one of the default.
    fn script(&self, commands: &[ShellCommand], thing: ReferenceSubject<'_>) -> ReferenceDecision {
        let needs_none = |command: &ShellCommand| {
            clash_shell::is_inert(command) || clash_shell::is_filter(command)
        };
        let nothing_else = commands.iter().all(needs_none);
        let mut parts: Vec<ReferencePart> = Vec::new();
        for command in commands {
            let thing = ReferenceSubject { command: Some(command), ..thing };
            let beside = needs_none(command) && !nothing_else;
            let nothing = if needs_none(command) { Effect::Allow } else { self.default.1 };
            parts.push(match self.rule(thing, beside, nothing) {
                // It runs in the sandbox of the other commands of the script.
                Some((part, false)) if beside => ReferencePart { sandbox: None, ..part },
                Some((part, _)) => part,
                None if needs_none(command) => {
                    let effect = Effect::Allow;
                    ReferencePart {
                        effect,
                        sandbox: None,
                        why: ReferenceCause::Inert,
                        judged: None,
                    }
                }
                None => self.by_default().0,
            });
        }
        if parts.iter().all(|part| part.sandbox.is_none()) {
            let room = self.by_default().0.sandbox;
            for part in parts.iter_mut().filter(|part| part.effect == Effect::Allow) {
                part.sandbox = room.clone();
            }
        }
        let mut decision = together(parts, true);
        if decision.mix {
            decision.sandbox = Some(self.default_sandbox.to_owned());
        }
        decision
    }

    /// Decides one path by its rule and the sandbox's answer. A change below the cage is
    /// denied.
    fn file(&self, file: &FileUse, thing: ReferenceSubject<'_>) -> ReferencePart {
        if file.needs.intersects(FileCaps::CHANGE) && files::is_caged(file, thing.context) {
            return ReferencePart {
                effect: Effect::Deny,
                sandbox: None,
                why: ReferenceCause::Cage,
                judged: None,
            };
        }
        let (mut part, _) = self.ruled(thing);
        part.judged = self.sandbox(&part).map(|s| files::judge(s, file, thing.context));
        part
    }

    /// The rule that decides, or the default; and whether it names its sandbox itself.
    fn ruled(&self, thing: ReferenceSubject<'_>) -> (ReferencePart, bool) {
        self.rule(thing, false, self.default.1).unwrap_or_else(|| self.by_default())
    }

    /// The strictest answer of all outcomes. In each outcome, every layer gives its
    /// certain rule or its possible rule.
    fn rule(
        &self,
        thing: ReferenceSubject<'_>,
        named_only: bool,
        nothing: Effect,
    ) -> Option<(ReferencePart, bool)> {
        let said = |trusted| -> Vec<[Option<ReferenceClaim<'a>>; 2]> {
            let layers = self.layers.iter().filter(move |layer| layer.trusted == trusted);
            layers
                .map(|layer| {
                    let claim = |rule| ReferenceClaim { kind: layer.kind, trusted, rule };
                    layer_says(layer, thing, named_only).map(|rule| rule.map(claim))
                })
                .collect()
        };
        let untrusted = said(false);
        let said = said(true);
        let doubtful: Vec<usize> = (0..said.len()).filter(|at| said[*at][1].is_some()).collect();
        let mut outcomes: Vec<u32> = (0..1 << doubtful.len()).collect();
        outcomes.sort_by_key(|outcome: &u32| (outcome.count_ones(), *outcome));
        let mut strictest: Option<(ReferencePart, bool)> = None;
        for outcome in outcomes {
            let claims: Vec<ReferenceClaim<'a>> = said
                .iter()
                .enumerate()
                .filter_map(|(at, [certain, possible])| {
                    let bit = doubtful.iter().position(|doubt| *doubt == at);
                    let taken = bit.is_some_and(|bit| outcome & (1 << bit) != 0);
                    if taken { *possible } else { *certain }
                })
                .collect();
            let Some(answer) = self.prevailing(&claims) else { continue };
            let stricter = match &strictest {
                Some((known, _)) => answer.0.effect > known.effect,
                // If the first outcome has no rule, the default holds in it.
                None => outcome == 0 || answer.0.effect >= nothing,
            };
            if stricter {
                strictest = Some(answer);
            }
        }
        // An untrusted layer can only tighten, and gives no sandbox.
        for claim in untrusted.into_iter().flatten().flatten() {
            let known = strictest.as_ref().map(|(part, _)| part.effect);
            if known.map_or(claim.effect() >= nothing, |known| claim.effect() > known) {
                let (part, named) = strictest.unwrap_or_else(|| self.by_default());
                let why = ReferenceCause::Rule(claim.rule.span.line);
                strictest = Some((ReferencePart { effect: claim.effect(), why, ..part }, named));
            }
        }
        strictest
    }

    /// Managed denies and asks cannot be relaxed; then the session; then a deny of the
    /// user; then the project, the user, the built-in rules; then an allow of a managed
    /// policy.
    fn prevailing(&self, claims: &[ReferenceClaim<'a>]) -> Option<(ReferencePart, bool)> {
        let of = |kind| claims.iter().find(move |claim| claim.kind == kind);
        let user_deny = of(LayerKind::User).filter(|claim| claim.rule.effect == Effect::Deny);
        let managed = of(LayerKind::Managed);
        let chosen = of(LayerKind::Session)
            .or(user_deny)
            .or(of(LayerKind::Project))
            .or(of(LayerKind::User))
            .or(of(LayerKind::BuiltIn))
            .or(managed);
        let relaxes = |managed: &&ReferenceClaim<'_>| {
            chosen.is_none_or(|chosen| managed.rule.effect > chosen.rule.effect)
        };
        let winner = managed.filter(relaxes).or(chosen)?;
        let sandbox = winner.rule.sandbox.as_deref();
        let part = ReferencePart {
            effect: winner.effect(),
            sandbox: Some(sandbox.unwrap_or(self.default_sandbox).to_owned()),
            why: ReferenceCause::Rule(winner.rule.span.line),
            judged: None,
        };
        Some((part, sandbox.is_some()))
    }
}

/// The certain rule of a layer, and a stricter rule that may apply instead.
fn layer_says<'a>(
    layer: &'a Layer,
    thing: ReferenceSubject<'_>,
    named_only: bool,
) -> [Option<&'a PolicyRule>; 2] {
    let (mut certain, mut possible) = (Vec::new(), Vec::new());
    for group in &layer.groups {
        for subject in [KeySubject::Tool, KeySubject::Mode, KeySubject::Agent] {
            // The most specific readings decide. A reading does not count if a more
            // specific one applies whenever it does.
            let mut counting: Vec<RuleReading<'a>> = Vec::new();
            for reading in readings(&group.branches, subject, thing, named_only) {
                if !counting.iter().any(|earlier| earlier.leaves_no(&reading)) {
                    counting.push(reading);
                }
            }
            for reading in counting {
                if reading.sure() {
                    certain.push(reading.rule);
                } else if reading.rule.effect > Effect::Allow {
                    possible.push(reading.rule);
                }
            }
        }
    }
    let certain = strictest(&certain);
    let possible = strictest(&possible)
        .filter(|rule| certain.is_none_or(|certain| rule.effect > certain.effect));
    [certain, possible]
}

/// The first of the strictest.
fn strictest<'a>(rules: &[&'a PolicyRule]) -> Option<&'a PolicyRule> {
    let most = rules.iter().map(|rule| rule.effect).max()?;
    rules.iter().find(|rule| rule.effect == most).copied()
}

/// One way in which a rule's keys match, outermost first.
struct RuleReading<'a> {
    steps: Vec<keys::KeyMatch>,
    rule: &'a PolicyRule,
}

impl RuleReading<'_> {
    /// True if no step is doubtful.
    fn sure(&self) -> bool {
        self.steps.iter().all(|step| step.sure)
    }

    /// True if this more specific reading is certain whenever the other one is
    /// possible: all its doubtful steps are common to both. Keys about two fields do
    /// not replace each other.
    fn leaves_no(&self, other: &Self) -> bool {
        let common = self.steps.iter().zip(&other.steps).take_while(|(a, b)| a == b).count();
        let field = |reading: &Self| reading.steps.get(common).and_then(|step| step.field);
        let independent =
            field(self).is_some() && field(other).is_some() && field(self) != field(other);
        !independent && self.steps[common..].iter().all(|step| step.sure)
    }
}

/// All readings of all rules below root keys about one subject, the most
/// specific first.
fn readings<'a>(
    root: &'a [MatchBranch],
    subject: KeySubject,
    thing: ReferenceSubject<'_>,
    named_only: bool,
) -> Vec<RuleReading<'a>> {
    let mut rules: Vec<(Vec<(usize, &MatchKey)>, &PolicyRule)> = Vec::new();
    collect(root, &mut Vec::new(), &mut rules);
    let mut found = Vec::new();
    for (path, rule) in rules {
        let catch_all = !path.iter().any(|(_, key)| keys::names_a_command(key));
        if path[0].1.subject != subject || (named_only && catch_all) {
            continue;
        }
        let mut ways = vec![(Vec::new(), keys::KeyProgress::default())];
        for (order, key) in path {
            ways = ways
                .into_iter()
                .flat_map(|(steps, state): (Vec<keys::KeyMatch>, _)| {
                    keys::ways(key, order, state, thing).into_iter().map(move |(step, next)| {
                        let mut steps = steps.clone();
                        steps.push(step);
                        (steps, next)
                    })
                })
                .collect();
        }
        found.extend(ways.into_iter().map(|(steps, _)| RuleReading { steps, rule }));
    }
    found.sort_by(|a, b| {
        let ranks = |r: &RuleReading<'_>| r.steps.iter().map(|s| s.rank).collect::<Vec<_>>();
        ranks(a).cmp(&ranks(b))
    });
    found
}

/// Adds all rules with the keys above each and their indices.
fn collect<'a>(
    branches: &'a [MatchBranch],
    above: &mut Vec<(usize, &'a MatchKey)>,
    out: &mut Vec<(Vec<(usize, &'a MatchKey)>, &'a PolicyRule)>,
) {
    for (order, branch) in branches.iter().enumerate() {
        above.push((order, &branch.key));
        match &branch.then {
            MatchNode::Rule(rule) => out.push((above.clone(), rule)),
            MatchNode::Tree(below) => collect(below, above, out),
        }
        above.pop();
    }
}
