use super::*;
use crate::effect::{Effect, FileCaps};
use crate::net::{HostPattern, NetRule, NetworkAccess};
use crate::regex::PolicyRegex;
use crate::rule::{
    KeyPattern, KeySubject, Layer, LayerGroup, LayerKind, LayerSettings, MatchBranch, MatchKey,
    MatchNode, OnViolation, PolicyRule,
};
use crate::sandbox::{
    EnvRule, FsRule, PathPattern, ProcessLifetime, ProtectSettings, ResourceLimits, Sandbox,
    WriteTarget,
};
use crate::span::PolicySpan;
use proptest::prelude::*;

fn span(line: u32) -> PolicySpan {
    PolicySpan { file: "policy.star".into(), line, column: 5 }
}

/// A sandbox with rules of nearly every kind and every setting.
fn sandbox() -> Sandbox {
    let host = |host, effect| NetRule { host, ports: vec![443], effect, span: span(5) };
    let everywhere = HostPattern::Addresses { base: "10.0.0.0".parse().unwrap(), bits: 8 };
    let local = HostPattern::Addresses { base: "::1".parse().unwrap(), bits: 128 };
    let regex = PolicyRegex { pattern: "x+".into(), automaton: vec![1, 2, 3] };
    Sandbox {
        unrestricted: true,
        net: NetworkAccess::Hosts {
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
        limits: ResourceLimits {
            memory_bytes: Some(1 << 40),
            wall_seconds: Some(9),
            ..ResourceLimits::default()
        },
        lifetime: Some(ProcessLifetime::Detached),
        protect: ProtectSettings {
            standard: false,
            also: vec!["x".into()],
            except: vec!["y".into()],
        },
        doors: vec!["git".into()],
        doc: "a box".into(),
        span: span(1),
        fs: vec![
            FsRule {
                pattern: PathPattern::Regex { prefix: "$HOME".into(), regex },
                effect: Effect::Allow,
                caps: FileCaps::READ,
                writes: WriteTarget::Session,
                span: span(4),
            },
            FsRule {
                pattern: PathPattern::Literal("/a".into()),
                effect: Effect::Ask,
                caps: FileCaps::CHANGE,
                writes: WriteTarget::InPlace,
                span: span(4),
            },
            FsRule {
                pattern: PathPattern::Subpath { path: "$PWD".into(), follow_worktrees: true },
                effect: Effect::Allow,
                caps: FileCaps::ALL,
                writes: WriteTarget::InPlace,
                span: span(2),
            },
            FsRule {
                pattern: PathPattern::Glob { prefix: "$HOME".into(), pattern: "**/.env".into() },
                effect: Effect::Deny,
                caps: FileCaps::READ,
                writes: WriteTarget::InPlace,
                span: span(3),
            },
        ],
        ..Sandbox::named("box")
    }
}

/// A layer with keys of every form, and that sandbox.
fn layer() -> Layer {
    let rule = |effect, line| PolicyRule {
        effect,
        sandbox: Some("box".into()),
        reason: Some("why".into()),
        span: span(line),
    };
    let leaf = |subject, patterns: Vec<KeyPattern>, line| MatchBranch {
        key: MatchKey { subject, patterns },
        then: MatchNode::Rule(rule(Effect::Allow, line)),
    };
    let text = |text: &str| KeyPattern::Literal(text.into());
    let words = vec![
        leaf(KeySubject::Word, vec![text("cargo"), text("git")], 7),
        MatchBranch {
            key: MatchKey { subject: KeySubject::Word, patterns: vec![text("git")] },
            then: MatchNode::Rule(rule(Effect::Deny, 8)),
        },
        leaf(KeySubject::Option, vec![text("--force"), text("-f")], 9),
        leaf(KeySubject::Word, vec![KeyPattern::Glob("te*t".into())], 10),
        leaf(
            KeySubject::Word,
            vec![KeyPattern::Regex(PolicyRegex { pattern: "a|b".into(), automaton: vec![9; 20] })],
            11,
        ),
        leaf(KeySubject::Path, vec![KeyPattern::Path(PathPattern::Children("$PWD".into()))], 12),
        leaf(KeySubject::Host, vec![KeyPattern::Host(HostPattern::Localhost)], 13),
        leaf(KeySubject::End, vec![text("")], 14),
        leaf(KeySubject::Word, vec![KeyPattern::Any], 15),
    ];
    let bash = MatchBranch {
        key: MatchKey { subject: KeySubject::Tool, patterns: vec![text("Bash")] },
        then: MatchNode::Tree(words),
    };
    let strict = LayerGroup { name: "strict".into(), doc: "says no".into(), branches: vec![] };
    Layer {
        kind: LayerKind::User,
        origin: "policy.star".into(),
        trusted: true,
        settings: LayerSettings {
            default: Some(rule(Effect::Ask, 4)),
            default_sandbox: Some("box".into()),
            on_sandbox_violation: Some(OnViolation::Smart),
            harness_defaults: Some(false),
            everywhere: vec![],
            grants: vec![],
        },
        groups: vec![LayerGroup { branches: vec![bash], ..LayerGroup::default() }, strict],
        sandboxes: vec![sandbox()],
    }
}

/// The image of that layer and of two source files, one of which does not exist.
fn image() -> Vec<u8> {
    let stamp =
        SourceStamp { device: 1, inode: 1 << 40, size: 3, modified_ns: u64::MAX, changed_ns: 5 };
    let inputs = [
        SourceFile { path: "/a".into(), stamp: Some(stamp) },
        SourceFile { path: "/b".into(), stamp: None },
    ];
    encode(&[layer()], &inputs, 42)
}

#[test]
fn an_image_reads_back_as_it_was_written() {
    let bytes = image();
    let ir = IrImage::open(&bytes, 42).unwrap();
    let inputs: Vec<_> = ir.inputs().map(|i| i.unwrap().to_input().unwrap()).collect();
    assert_eq!(inputs[0].stamp.unwrap().inode, 1 << 40);
    assert_eq!(inputs[1], SourceFile { path: "/b".into(), stamp: None });
    assert_eq!(ir.to_layers(), Ok(vec![layer()]));
}

#[test]
fn literal_keys_are_looked_up_single_ones_first() {
    let bytes = image();
    let layer = IrImage::open(&bytes, 42).unwrap().layers().next().unwrap().unwrap();
    let root = layer.groups().unwrap().next().unwrap().unwrap().root().unwrap();
    let bash = root.exact(KeySubject::Tool, "Bash").unwrap()[0].node().unwrap();
    let git = bash.exact(KeySubject::Word, "git").unwrap();
    assert_eq!(git.iter().map(|edge| edge.rank).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(git[0].node().unwrap().rule().unwrap().unwrap().effect(), Ok(Effect::Deny));
    assert!(bash.exact(KeySubject::Word, "npm").unwrap().is_empty());
    assert_eq!(bash.starting(KeySubject::Option, "").unwrap().count(), 2);
}

#[test]
fn another_build_is_refused() {
    assert_eq!(IrImage::open(&image(), 43).err(), Some(IrError::OtherVersion));
    assert_eq!(IrImage::open(b"junk", 42).err(), Some(IrError::NotIr));
}

proptest! {
    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed(at in 0usize..4000, bit in 0u8..8, cut in any::<bool>()) {
        let mut bytes = image();
        let at = at % bytes.len();
        if cut { bytes.truncate(at) } else { bytes[at] ^= 1 << bit }
        prop_assert!(IrImage::open(&bytes, 42).is_err());
    }
}
