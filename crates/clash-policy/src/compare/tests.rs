use super::*;
use crate::net::NetworkAccess;
use crate::path::PolicyPlaces;
use crate::sandbox::{FsRule, PathPattern};

fn rule(path: &str, effect: Effect, caps: &str) -> FsRule {
    let pattern = PathPattern::Subpath { path: path.to_owned(), follow_worktrees: false };
    let caps = FileCaps::parse(caps).unwrap();
    FsRule { pattern, effect, caps, writes: WriteTarget::InPlace, span: PolicySpan::default() }
}

/// The differences between two sandboxes, one text each.
fn shown(old: &Sandbox, new: &Sandbox) -> Vec<String> {
    let places = PolicyPlaces::imagined();
    let context = JudgeContext::without_disk(&places);
    let text = |grant: GrantChange| {
        let GrantChange { change, what, old, new } = grant;
        format!("{} {what:?} {old}→{new}", change.word())
    };
    grants(old, new, &context).unwrap().into_iter().map(text).collect()
}

#[test]
fn a_sandbox_is_compared_by_its_grants() {
    let old = Sandbox { fs: vec![rule("$PWD", Effect::Allow, "rwcdx")], ..Sandbox::named("s") };
    let other = Sandbox { doc: "words".into(), ..old.clone() };
    assert_eq!(shown(&old, &other), Vec::<String>::new());
    let mut wider = old.clone();
    wider.fs.push(rule("$HOME/.ssh", Effect::Allow, "r"));
    wider.net = NetworkAccess::Allow;
    let found = shown(&old, &wider);
    assert!(
        found.contains(
            &"more Path { path: \"$HOME/.ssh/id_ed25519\", caps: FileCaps(1) } deny→allow".into()
        ),
        "{found:#?}"
    );
    assert!(found.iter().any(|text| text.starts_with("more Host")), "{found:#?}");
    assert!(shown(&wider, &old).iter().all(|text| text.starts_with("less")));
}

#[test]
fn a_right_that_is_written_twice_is_no_difference() {
    let old = Sandbox { fs: vec![rule("$PWD", Effect::Allow, "rwcdx")], ..Sandbox::named("s") };
    let mut twice = old.clone();
    twice.fs.push(rule("$PWD/src", Effect::Allow, "r"));
    assert_eq!(shown(&old, &twice), Vec::<String>::new());
}

#[test]
fn without_confinement_nothing_else_matters() {
    let none = Sandbox { unrestricted: true, ..Sandbox::named("none") };
    assert_eq!(shown(&Sandbox::named("s"), &none), ["more Confinement confined→none"]);
}

#[test]
fn a_door_is_a_grant() {
    let old = Sandbox::named("s");
    let new = Sandbox { doors: vec!["git".into()], ..old.clone() };
    assert_eq!(shown(&old, &new), ["more Door(\"git\") deny→allow"]);
    assert_eq!(shown(&new, &old), ["less Door(\"git\") allow→deny"]);
}

use crate::action::Action;
use crate::ir;
use crate::rule::{
    KeyPattern, KeySubject, LayerGroup, LayerKind, LayerSettings, MatchBranch, MatchKey, MatchNode,
    PolicyRule,
};
use proptest::prelude::*;

fn effect() -> impl Strategy<Value = Effect> {
    prop_oneof![Just(Effect::Allow), Just(Effect::Ask), Just(Effect::Deny)]
}

/// A key of a short command: words `a` and `b`, a pattern or the option `--c`.
fn key() -> impl Strategy<Value = MatchKey> {
    let literal = |text: &str| KeyPattern::Literal(text.to_owned());
    let word = KeySubject::Word;
    prop_oneof![
        Just(MatchKey { subject: word, patterns: vec![literal("a")] }),
        Just(MatchKey { subject: word, patterns: vec![literal("b")] }),
        Just(MatchKey { subject: word, patterns: vec![literal("a"), literal("b")] }),
        Just(MatchKey { subject: word, patterns: vec![KeyPattern::Glob("a*".into())] }),
        Just(MatchKey { subject: word, patterns: vec![KeyPattern::Any] }),
        Just(MatchKey { subject: KeySubject::Option, patterns: vec![literal("--c")] }),
    ]
}

/// Small trees of rules about commands.
fn tree() -> impl Strategy<Value = Vec<MatchBranch>> {
    let rule = |effect| {
        MatchNode::Rule(PolicyRule {
            effect,
            sandbox: None,
            reason: None,
            span: PolicySpan::default(),
        })
    };
    let leaf = effect().prop_map(rule);
    let node = leaf.prop_recursive(3, 12, 3, |inner| {
        prop::collection::vec((key(), inner), 1..3).prop_map(branches)
    });
    prop::collection::vec((key(), node), 1..4).prop_map(|it| match branches(it) {
        MatchNode::Tree(tree) => tree,
        MatchNode::Rule(_) => Vec::new(),
    })
}

/// A dict has each key once.
fn branches(entries: Vec<(MatchKey, MatchNode)>) -> MatchNode {
    let mut tree: Vec<MatchBranch> = Vec::new();
    for (key, then) in entries {
        // No key can match behind `**`.
        let dead = key.patterns.contains(&KeyPattern::Any) && matches!(then, MatchNode::Tree(_));
        if !dead && tree.iter().all(|branch| branch.key != key) {
            tree.push(MatchBranch { key, then });
        }
    }
    MatchNode::Tree(tree)
}

/// A policy of one layer with this tree below `Bash`, which asks by default.
fn stack(tree: Vec<MatchBranch>) -> Vec<Layer> {
    let bash =
        MatchKey { subject: KeySubject::Tool, patterns: vec![KeyPattern::Literal("Bash".into())] };
    let branches = vec![MatchBranch { key: bash, then: MatchNode::Tree(tree) }];
    let default = PolicyRule {
        effect: Effect::Ask,
        sandbox: None,
        reason: None,
        span: PolicySpan { file: "default".into(), line: 1, column: 1 },
    };
    vec![Layer {
        kind: LayerKind::User,
        origin: "p".into(),
        trusted: true,
        settings: LayerSettings {
            default: Some(default),
            default_sandbox: Some("s".into()),
            ..LayerSettings::default()
        },
        groups: vec![LayerGroup { branches, ..LayerGroup::default() }],
        sandboxes: vec![Sandbox::named("s")],
    }]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn witnesses_find_every_difference_of_short_commands(old in tree(), new in tree()) {
        let (old, new) = (stack(old), stack(new));
        let images = (ir::encode(&old, &[], 0), ir::encode(&new, &[], 0));
        let (before, after) = (IrImage::open(&images.0, 0).unwrap(), IrImage::open(&images.1, 0).unwrap());
        let places = PolicyPlaces::imagined();
        let context = JudgeContext::without_disk(&places);
        prop_assert!(compare((before, &old), (before, &old), &context).unwrap().is_empty());
        let found = compare((before, &old), (after, &new), &context).unwrap();
        let words = ["", " a", " b", " --c", " z"];
        for at in 1..125_usize {
            let word = |digit: usize| words[digit % 5];
            let script = [word(at), word(at / 5), word(at / 25)].concat();
            let action = Action::script("claude", "default", script.trim());
            let old = decide(before, &action, &context).unwrap().effect;
            let new = decide(after, &action, &context).unwrap().effect;
            prop_assert!(old == new || !found.is_empty(), "{script}");
            prop_assert!(new >= old || found.widens(), "{script}");
        }
    }
}
