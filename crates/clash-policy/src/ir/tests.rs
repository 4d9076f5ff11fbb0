use super::*;
use crate::effect::{Caps, Effect};
use crate::net::{HostPattern, Net, NetRule};
use crate::regex::Regex;
use crate::rule::{
    Branch, Group, Key, Layer, LayerKind, Node, OnViolation, Pattern, Rule, Settings, Subject,
};
use crate::sandbox::{EnvRule, FsRule, Lifetime, Limits, PathPattern, Protect, Sandbox, Writes};
use crate::span::Span;
use proptest::prelude::*;

fn span(line: u32) -> Span {
    Span { file: "policy.star".into(), line, column: 5 }
}

fn sandbox() -> Sandbox {
    let host = |host, effect| NetRule { host, ports: vec![443], effect, span: span(5) };
    let everywhere = HostPattern::Addresses { base: "10.0.0.0".parse().unwrap(), bits: 8 };
    let local = HostPattern::Addresses { base: "::1".parse().unwrap(), bits: 128 };
    let regex = Regex { pattern: "x+".into(), automaton: vec![1, 2, 3] };
    Sandbox {
        unrestricted: true,
        net: Net::Hosts {
            rules: vec![
                host(HostPattern::Exact("a.test".into()), Effect::Allow),
                host(HostPattern::Name("*.b.test".into()), Effect::Ask),
                host(everywhere, Effect::Deny),
                host(local, Effect::Deny),
                host(HostPattern::Localhost, Effect::Allow),
            ],
            default: Effect::Ask,
        },
        serve: vec![3000],
        env: vec![EnvRule { name: "AWS_*".into(), effect: Effect::Deny, span: span(6) }],
        limits: Limits { memory_bytes: Some(1 << 40), wall_seconds: Some(9), ..Limits::default() },
        lifetime: Some(Lifetime::Detached),
        protect: Protect { standard: false, also: vec!["x".into()], except: vec!["y".into()] },
        doc: "a box".into(),
        span: span(1),
        fs: vec![
            FsRule {
                pattern: PathPattern::Regex { prefix: "$HOME".into(), regex },
                effect: Effect::Allow,
                caps: Caps::READ,
                writes: Writes::Session,
                span: span(4),
            },
            FsRule {
                pattern: PathPattern::Literal("/a".into()),
                effect: Effect::Ask,
                caps: Caps::CHANGE,
                writes: Writes::InPlace,
                span: span(4),
            },
            FsRule {
                pattern: PathPattern::Subpath { path: "$PWD".into(), follow_worktrees: true },
                effect: Effect::Allow,
                caps: Caps::ALL,
                writes: Writes::InPlace,
                span: span(2),
            },
            FsRule {
                pattern: PathPattern::Glob { prefix: "$HOME".into(), pattern: "**/.env".into() },
                effect: Effect::Deny,
                caps: Caps::READ,
                writes: Writes::InPlace,
                span: span(3),
            },
        ],
        ..Sandbox::named("box")
    }
}

fn layer() -> Layer {
    let rule = |effect, line| Rule {
        effect,
        sandbox: Some("box".into()),
        reason: Some("why".into()),
        span: span(line),
    };
    let leaf = |subject, patterns: Vec<Pattern>, line| Branch {
        key: Key { subject, patterns },
        then: Node::Rule(rule(Effect::Allow, line)),
    };
    let text = |text: &str| Pattern::Literal(text.into());
    let words = vec![
        leaf(Subject::Word, vec![text("cargo"), text("git")], 7),
        Branch {
            key: Key { subject: Subject::Word, patterns: vec![text("git")] },
            then: Node::Rule(rule(Effect::Deny, 8)),
        },
        leaf(Subject::Option, vec![text("--force"), text("-f")], 9),
        leaf(Subject::Word, vec![Pattern::Glob("te*t".into())], 10),
        leaf(
            Subject::Word,
            vec![Pattern::Regex(Regex { pattern: "a|b".into(), automaton: vec![9; 20] })],
            11,
        ),
        leaf(Subject::Path, vec![Pattern::Path(PathPattern::Children("$PWD".into()))], 12),
        leaf(Subject::Host, vec![Pattern::Host(HostPattern::Localhost)], 13),
        leaf(Subject::End, vec![text("")], 14),
        leaf(Subject::Word, vec![Pattern::Any], 15),
    ];
    let bash = Branch {
        key: Key { subject: Subject::Tool, patterns: vec![text("Bash")] },
        then: Node::Tree(words),
    };
    let strict = Group { name: "strict".into(), doc: "says no".into(), branches: vec![] };
    Layer {
        kind: LayerKind::User,
        origin: "policy.star".into(),
        trusted: true,
        settings: Settings {
            default: Some(rule(Effect::Ask, 4)),
            default_sandbox: Some("box".into()),
            on_sandbox_violation: Some(OnViolation::Smart),
            harness_defaults: Some(false),
            everywhere: vec![],
        },
        groups: vec![Group { branches: vec![bash], ..Group::default() }, strict],
        sandboxes: vec![sandbox()],
    }
}

fn image() -> Vec<u8> {
    let stamp = Stamp { device: 1, inode: 1 << 40, size: 3, modified_ns: u64::MAX, changed_ns: 5 };
    let inputs =
        [Input { path: "/a".into(), stamp: Some(stamp) }, Input { path: "/b".into(), stamp: None }];
    encode(&[layer()], &inputs, 42)
}

#[test]
fn what_was_written_is_read_back() {
    let bytes = image();
    let ir = Ir::open(&bytes, 42).unwrap();
    let inputs: Vec<_> = ir.inputs().map(|i| i.unwrap().to_input().unwrap()).collect();
    assert_eq!(inputs[0].stamp.unwrap().inode, 1 << 40);
    assert_eq!(inputs[1], Input { path: "/b".into(), stamp: None });
    assert_eq!(ir.to_layers(), Ok(vec![layer()]));
}

#[test]
fn literal_keys_are_looked_up_single_ones_first() {
    let bytes = image();
    let layer = Ir::open(&bytes, 42).unwrap().layers().next().unwrap().unwrap();
    let root = layer.groups().unwrap().next().unwrap().unwrap().root().unwrap();
    let bash = root.exact(Subject::Tool, "Bash").unwrap()[0].node().unwrap();
    let git = bash.exact(Subject::Word, "git").unwrap();
    assert_eq!(git.iter().map(|edge| edge.rank).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(git[0].node().unwrap().rule().unwrap().unwrap().effect(), Ok(Effect::Deny));
    assert!(bash.exact(Subject::Word, "npm").unwrap().is_empty());
    assert_eq!(bash.starting(Subject::Option, "").unwrap().count(), 2);
}

#[test]
fn another_build_is_refused() {
    assert_eq!(Ir::open(&image(), 43).err(), Some(IrError::OtherVersion));
    assert_eq!(Ir::open(b"junk", 42).err(), Some(IrError::NotIr));
}

proptest! {
    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed(at in 0usize..4000, bit in 0u8..8, cut in any::<bool>()) {
        let mut bytes = image();
        let at = at % bytes.len();
        if cut { bytes.truncate(at) } else { bytes[at] ^= 1 << bit }
        prop_assert!(Ir::open(&bytes, 42).is_err());
    }
}
