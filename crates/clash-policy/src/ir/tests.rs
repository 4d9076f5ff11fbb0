use super::*;
use crate::effect::{Caps, Effect};
use crate::rule::{Branch, Key, Layer, LayerKind, Node, Pattern, Rule, Settings, Subject};
use crate::sandbox::{FsRule, Net, PathPattern, Sandbox};
use crate::span::Span;
use proptest::prelude::*;

fn span(line: u32) -> Span {
    Span { file: "policy.star".into(), line, column: 5 }
}

fn sandbox() -> Sandbox {
    Sandbox {
        name: "box".into(),
        default: Effect::Deny,
        net: Net::Allow,
        doc: "a box".into(),
        span: span(1),
        fs: vec![
            FsRule {
                pattern: PathPattern::Subpath { path: "$PWD".into(), follow_worktrees: true },
                effect: Effect::Allow,
                caps: Caps::ALL,
                span: span(2),
            },
            FsRule {
                pattern: PathPattern::Glob { prefix: "$HOME".into(), pattern: "**/.env".into() },
                effect: Effect::Deny,
                caps: Caps::READ,
                span: span(3),
            },
        ],
    }
}

fn image() -> Vec<u8> {
    let rule = |effect, line| {
        Node::Rule(Rule { effect, sandbox: Some("box".into()), reason: None, span: span(line) })
    };
    let key = |subject, texts: &[&str]| Key {
        subject,
        patterns: texts.iter().map(|t| Pattern::Literal((*t).into())).collect(),
    };
    let words = vec![
        Branch { key: key(Subject::Word, &["git", "cargo"]), then: rule(Effect::Allow, 7) },
        Branch { key: key(Subject::Word, &["git"]), then: rule(Effect::Deny, 8) },
    ];
    let layer = Layer {
        kind: LayerKind::User,
        origin: "policy.star".into(),
        trusted: true,
        settings: Settings {
            default: Some((Effect::Ask, span(4))),
            default_sandbox: Some("box".into()),
        },
        branches: vec![Branch { key: key(Subject::Tool, &["Bash"]), then: Node::Tree(words) }],
        sandboxes: vec![sandbox()],
    };
    let stamp = Stamp { device: 1, inode: 1 << 40, size: 3, modified_ns: u64::MAX, changed_ns: 5 };
    let inputs =
        [Input { path: "/a".into(), stamp: Some(stamp) }, Input { path: "/b".into(), stamp: None }];
    encode(&[layer], &inputs, 42)
}

#[test]
fn what_was_written_is_read_back() {
    let bytes = image();
    let ir = Ir::open(&bytes, 42).unwrap();
    let inputs: Vec<_> = ir.inputs().map(|i| i.unwrap().to_input().unwrap()).collect();
    assert_eq!(inputs[0].stamp.unwrap().inode, 1 << 40);
    assert_eq!(inputs[1], Input { path: "/b".into(), stamp: None });
    let layer = ir.layers().next().unwrap().unwrap();
    assert_eq!(layer.kind(), Ok(LayerKind::User));
    assert_eq!(layer.default(), Ok(Some((Effect::Ask, span(4)))));
    assert_eq!(layer.default_sandbox().unwrap().unwrap().to_sandbox(), Ok(sandbox()));
    let bash = layer.root().unwrap().exact(Subject::Tool, "Bash").unwrap()[0].node().unwrap();
    let git = bash.exact(Subject::Word, "git").unwrap();
    assert_eq!(git.iter().map(|edge| edge.rank).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(git[0].node().unwrap().rule().unwrap().unwrap().effect(), Ok(Effect::Deny));
    assert!(bash.exact(Subject::Word, "npm").unwrap().is_empty());
}

#[test]
fn another_build_is_refused() {
    assert_eq!(Ir::open(&image(), 43).err(), Some(IrError::OtherVersion));
    assert_eq!(Ir::open(b"junk", 42).err(), Some(IrError::NotIr));
}

proptest! {
    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed(at in 0usize..2000, bit in 0u8..8, cut in any::<bool>()) {
        let mut bytes = image();
        let at = at % bytes.len();
        if cut { bytes.truncate(at) } else { bytes[at] ^= 1 << bit }
        prop_assert!(Ir::open(&bytes, 42).is_err());
    }
}
