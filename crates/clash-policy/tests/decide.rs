//! The decision engine against the specification, a slow and obvious evaluator, and
//! properties of every policy.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test fails by panicking"
)]

mod reference;

use clash_policy::decide::{Decision, DecisionCause};
use clash_policy::ir::{IrImage, encode};
use clash_policy::judge::JudgeContext;
use clash_policy::net::{NetRule, NetworkAccess};
use clash_policy::path::PolicyPlaces;
use clash_policy::rule::{Layer, LayerKind, MatchBranch, MatchNode};
use clash_policy::sandbox::FsRule;
use clash_policy::{Action, Effect, FileCaps};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use reference::generate::{self, TreeLevel, action, policy};
use reference::{ReferenceCause, ReferenceDecision, ReferencePart};

/// Runs a test with an imagined project in `/h/app`, `/h/.own` out of reach, and `/usr`
/// readable.
fn in_context<T>(test: impl FnOnce(&JudgeContext<'_>) -> T) -> T {
    let places = PolicyPlaces {
        project: "/h/app".into(),
        home: "/h".into(),
        tmp: "/tmp".into(),
        vars: Vec::new(),
    };
    let cage = ["/h/.own".into()];
    let baseline = [("/usr", FileCaps::READ.union(FileCaps::EXECUTE))];
    test(&JudgeContext { baseline: &baseline, cage: &cage, ..JudgeContext::without_disk(&places) })
}

/// The decision of the engine in that context.
fn decided(ir: IrImage<'_>, action: &Action) -> Decision {
    in_context(|context| clash_policy::decide(ir, action, context).unwrap())
}

/// The engine's decision in the form of the reference: rules by their lines.
fn outcome(decision: &Decision) -> ReferenceDecision {
    let part = |part: &clash_policy::decide::DecisionPart| ReferencePart {
        effect: part.effect,
        sandbox: part.sandbox.clone(),
        why: match &part.cause {
            DecisionCause::Rule { span, .. } => ReferenceCause::Rule(span.line),
            DecisionCause::Default { span, .. } => ReferenceCause::Default(span.line),
            DecisionCause::Inert | DecisionCause::Opened => ReferenceCause::Inert,
            DecisionCause::Cage => ReferenceCause::Cage,
        },
        judged: part
            .judged
            .as_ref()
            .map(|judged| (judged.effect, judged.rule.as_ref().map(|(_, span)| span.line))),
    };
    ReferenceDecision {
        effect: decision.effect,
        sandbox: decision.sandbox.as_ref().map(|sandbox| sandbox.name.clone()),
        mix: decision.mix.is_some(),
        parts: decision.parts.iter().map(part).collect(),
    }
}

/// The number of cases: `CLASH_CASES` from the environment, or else `most`.
fn cases(most: u32) -> ProptestConfig {
    let asked = std::env::var("CLASH_CASES").ok().and_then(|n| n.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(most), failure_persistence: None, ..Default::default() }
}

/// The image of the layers with the version number 7.
fn image(layers: &[Layer]) -> Vec<u8> {
    encode(layers, &[], 7)
}

proptest! {
    #![proptest_config(cases(2_000))]

    /// Effect, sandbox and the deciding rule of every part, on 120,000 pairs.
    #[test]
    fn the_engine_decides_what_the_specification_says(
        layers in policy(),
        actions in vec(action(), 60),
    ) {
        let image = image(&layers);
        let ir = IrImage::open(&image, 7).unwrap();
        for action in &actions {
            let expected = in_context(|context| reference::decide(&layers, action, context));
            let decision = decided(ir, action);
            if decision.parts.iter().any(|part| part.steered.is_some()) {
                prop_assert!(decision.effect >= expected.effect, "{:?}{}", action, shown(&layers));
                continue;
            }
            prop_assert_eq!(outcome(&decision), expected, "{:?}{}", action, shown(&layers));
        }
    }
}

/// A policy as text, for the message of a failing test.
fn shown(layers: &[Layer]) -> String {
    fn tree(branches: &[MatchBranch], above: &str, out: &mut String) {
        for MatchBranch { key, then } in branches {
            let patterns: Vec<String> = key.patterns.iter().map(ToString::to_string).collect();
            let here = format!("{above} {:?}({})", key.subject, patterns.join("|"));
            match then {
                MatchNode::Tree(below) => tree(below, &here, out),
                MatchNode::Rule(rule) => {
                    let at = rule.span.line;
                    *out += &format!("  {at}: {here} -> {} {:?}\n", rule.effect, rule.sandbox);
                }
            }
        }
    }
    let mut out = String::new();
    for layer in layers {
        let default = layer.settings.default.as_ref().map(|rule| (rule.effect, &rule.sandbox));
        out += &format!("\n{:?} trusted {} default {default:?}\n", layer.kind, layer.trusted);
        for group in &layer.groups {
            tree(&group.branches, "", &mut out);
        }
    }
    out
}

/// The effect of each action.
fn effects(layers: &[Layer], actions: &[Action]) -> Vec<Effect> {
    let image = image(layers);
    let ir = IrImage::open(&image, 7).unwrap();
    actions.iter().map(|action| decided(ir, action).effect).collect()
}

/// A branch whose rules all deny.
fn denying() -> impl Strategy<Value = MatchBranch> {
    let at = [
        TreeLevel::Top,
        TreeLevel::Word,
        TreeLevel::Host,
        TreeLevel::Path,
        TreeLevel::Field,
        TreeLevel::Value,
    ];
    proptest::sample::select(at.to_vec()).prop_flat_map(|at| generate::branch(2, at)).prop_map(
        |mut branch| {
            generate::each_rule(std::slice::from_mut(&mut branch), &mut |rule| {
                rule.effect = Effect::Deny;
                rule.sandbox = None;
            });
            branch
        },
    )
}

/// Puts a branch somewhere into a tree, at some depth.
fn insert(into: &mut Vec<MatchBranch>, branch: MatchBranch, way: &[Index]) {
    let Some((here, deeper)) = way.split_first() else { return into.push(branch) };
    let at = here.index(into.len() + 1);
    match into.get_mut(at).map(|branch| &mut branch.then) {
        Some(MatchNode::Tree(below)) if !deeper.is_empty() => insert(below, branch, deeper),
        _ => into.insert(at, branch),
    }
}

/// The layers with sorted alternatives of tuples: their order has no meaning.
fn unordered(layers: &[Layer]) -> Vec<Layer> {
    fn sort(branches: &mut [MatchBranch]) {
        for branch in branches {
            branch.key.patterns.sort_by_key(|pattern| format!("{pattern:?}"));
            if let MatchNode::Tree(below) = &mut branch.then {
                sort(below);
            }
        }
    }
    let mut layers = layers.to_vec();
    for group in layers.iter_mut().flat_map(|layer| &mut layer.groups) {
        sort(&mut group.branches);
    }
    layers
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn adding_a_deny_never_permits_more(
        layers in policy(),
        deny in denying(),
        (layer, group) in any::<(Index, Index)>(),
        way in vec(any::<Index>(), 1..4),
        actions in vec(action(), 20),
    ) {
        let before = effects(&layers, &actions);
        let mut more = layers.clone();
        let groups = &mut layer.get_mut(&mut more).groups;
        insert(&mut group.get_mut(groups).branches, deny, &way);
        for (at, after) in effects(&more, &actions).into_iter().enumerate() {
            prop_assert!(after >= before[at], "{:?}: {} -> {after}", actions[at], before[at]);
        }
    }

    #[test]
    fn adding_a_deny_to_a_sandbox_never_permits_more(
        layers in policy(),
        fs in generate::fs_rule(),
        host in generate::host_patterns(),
        (layer, sandbox, at) in any::<(Index, Index, Index)>(),
        actions in vec(action(), 20),
    ) {
        let before = effects(&layers, &actions);
        let mut more = layers.clone();
        let sandbox = sandbox.get_mut(&mut layer.get_mut(&mut more).sandboxes);
        let index = at.index(sandbox.fs.len() + 1);
        sandbox.fs.insert(index, FsRule { effect: Effect::Deny, ..fs });
        if let NetworkAccess::Hosts { rules, .. } = &mut sandbox.net {
            let (effect, ports) = (Effect::Deny, Vec::new());
            let rule = NetRule { host, ports, effect, span: Default::default() };
            rules.insert(at.index(rules.len() + 1), rule);
        }
        for (at, after) in effects(&more, &actions).into_iter().enumerate() {
            prop_assert!(after >= before[at], "{:?}: {} -> {after}", actions[at], before[at]);
        }
    }

    #[test]
    fn an_untrusted_project_never_widens_nor_picks_the_sandbox(
        mut layers in policy(),
        untrusted in generate::layer(LayerKind::Project),
        actions in vec(action(), 20),
    ) {
        layers.retain(|layer| layer.kind != LayerKind::Project);
        let mut more = layers.clone();
        let at = more.iter().filter(|layer| layer.kind < LayerKind::Project).count();
        more.insert(at, Layer { trusted: false, ..untrusted });
        generate::number(&mut more);
        let (before, after) = (image(&layers), image(&more));
        let (before, after) = (IrImage::open(&before, 7).unwrap(), IrImage::open(&after, 7).unwrap());
        for action in &actions {
            let (before, after) = (decided(before, action), decided(after, action));
            prop_assert!(
                after.effect >= before.effect,
                "{action:?}\n{before:#?}\n{after:#?}{}",
                shown(&more)
            );
            if after.effect < Effect::Deny {
                for (before, after) in before.parts.iter().zip(&after.parts) {
                    let same = before.sandbox.is_none() || before.sandbox == after.sandbox;
                    prop_assert!(same, "{action:?}\n{before:?}\n{after:?}{}", shown(&more));
                }
                // A script of several sandboxes runs in the default one, which is the user's.
                if after.mix.is_none() {
                    let name = |decision: Decision| decision.sandbox.map(|sandbox| sandbox.name);
                    prop_assert_eq!(name(before), name(after), "{:?}{}", action, shown(&more));
                }
            }
        }
    }

    /// The shell may turn an unknown word into any words, or none.
    #[test]
    fn no_expansion_reaches_a_stricter_rule(
        mut layers in policy(),
        scripts in vec(vec(generate::command(), 1..3), 8),
        words in vec(vec(proptest::sample::select(vec!["git", "push", "a", "ls", "-f", "--force"]), 0..3), 6),
    ) {
        // An untrusted allow counts as ask, which is no restriction of a rule.
        layers.iter_mut().for_each(|layer| layer.trusted = true);
        let image = image(&layers);
        let ir = IrImage::open(&image, 7).unwrap();
        let parts = |script: &str| decided(ir, &Action::script("claude", "plan", script)).parts;
        let strictest = |script: &str| parts(script).iter().map(|part| part.effect).max().unwrap();
        // A steered command asks because of its sandbox, and not because of a rule.
        let strictest_by_rules = |script: &str| {
            let effects = parts(script).into_iter().filter(|part| part.steered.is_none());
            effects.map(|part| part.effect).max().unwrap_or(Effect::Allow)
        };
        for script in scripts {
            let script = script.join(" && ");
            let undecided = strictest(&script);
            for words in &words {
                let words = words.join(" ");
                let expanded = script.replace("$X", &words).replace('*', &words);
                // A list needs a command on both sides.
                let expanded = format!("{expanded} ").replace("&&  &&", "&&");
                // Other commands that a script runs (an alias, a hook) are found only
                // with their arguments.
                let count = |script: &str| clash_shell::find_commands(script).len();
                if count(&expanded) != count(&script) {
                    continue;
                }
                let stricter = strictest_by_rules(&expanded);
                let why = || outcome(&decided(ir, &Action::script("claude", "plan", &expanded)));
                prop_assert!(
                    stricter <= undecided,
                    "{script} ({undecided}): {expanded} ({stricter}){}{:?}",
                    shown(&layers),
                    why()
                );
            }
        }
    }

    #[test]
    fn an_image_reads_back_as_it_was_written(layers in policy()) {
        let image = image(&layers);
        let read = IrImage::open(&image, 7).unwrap().to_layers().unwrap();
        prop_assert_eq!(unordered(&read), unordered(&layers));
    }

    #[test]
    fn damage_is_found_and_a_resealed_image_never_hangs(
        layers in policy(),
        damage in vec((any::<Index>(), any::<u8>()), 1..6),
        actions in vec(action(), 6),
    ) {
        let whole = image(&layers);
        let mut damaged = whole.clone();
        for (at, byte) in damage {
            let at = at.index(damaged.len());
            damaged[at] = byte;
        }
        prop_assert!(damaged == whole || IrImage::open(&damaged, 7).is_err());
        clash_policy::ir::reseal(&mut damaged, 7);
        let ir = IrImage::open(&damaged, 7).unwrap();
        let _ = ir.to_layers();
        for action in &actions {
            let _ = in_context(|context| clash_policy::decide(ir, action, context));
        }
    }
}
