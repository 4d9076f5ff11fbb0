//! The decision engine against the specification: a slow and obvious evaluator,
//! and what must hold for any policy.

mod reference;

use clash_policy::decide::{Cause, Decision};
use clash_policy::ir::{Ir, encode};
use clash_policy::judge::World;
use clash_policy::path::{NoLinks, Places};
use clash_policy::rule::Layer;
use clash_policy::{Action, Caps};
use proptest::prelude::*;
use reference::generate::{self, action, policy};
use reference::{Outcome, Part, Why};

fn in_world<T>(test: impl FnOnce(&World<'_>) -> T) -> T {
    let places = Places {
        project: "/h/app".into(),
        home: "/h".into(),
        tmp: "/tmp".into(),
        vars: Vec::new(),
    };
    let cage = ["/h/.own".into()];
    let baseline = [("/usr", Caps::READ.union(Caps::EXECUTE))];
    test(&World { places: &places, links: &NoLinks, baseline: &baseline, cage: &cage })
}

fn decided(image: &[u8], action: &Action) -> Decision {
    let ir = Ir::open(image, 7).unwrap();
    in_world(|world| clash_policy::decide(ir, action, world).unwrap())
}

fn outcome(decision: &Decision) -> Outcome {
    let part = |part: &clash_policy::decide::Part| Part {
        effect: part.effect,
        sandbox: part.sandbox.clone(),
        why: match &part.cause {
            Cause::Rule { span, .. } => Why::Rule(span.line),
            Cause::Default { span, .. } => Why::Default(span.line),
            Cause::Inert => Why::Inert,
            Cause::Cage => Why::Cage,
        },
        judged: part
            .judged
            .as_ref()
            .map(|judged| (judged.effect, judged.rule.as_ref().map(|(_, span)| span.line))),
    };
    Outcome {
        effect: decision.effect,
        sandbox: decision.sandbox.as_ref().map(|sandbox| sandbox.name.clone()),
        conflict: decision.conflict.is_some(),
        parts: decision.parts.iter().map(part).collect(),
    }
}

fn cases(most: u32) -> ProptestConfig {
    let asked = std::env::var("CLASH_CASES").ok().and_then(|n| n.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(most), failure_persistence: None, ..Default::default() }
}

fn image(layers: &[Layer]) -> Vec<u8> {
    encode(layers, &[], 7)
}

proptest! {
    #![proptest_config(cases(4_000))]

    /// Effect, sandbox and the deciding rule of every part, on 120,000 pairs.
    #[test]
    fn the_engine_decides_what_the_specification_says(
        layers in policy(),
        actions in proptest::collection::vec(action(), 30),
    ) {
        let image = image(&layers);
        for action in &actions {
            let expected = in_world(|world| reference::decide(&layers, action, world));
            prop_assert_eq!(outcome(&decided(&image, action)), expected, "{:?}", action);
        }
    }
}
