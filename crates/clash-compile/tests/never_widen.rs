//! Imports and upgrades never permit more. The tests compare the decisions of the
//! original with the decisions of the compiled new text.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io;
use std::path::Path;

use clash_import::{ImportFormat, ImportSource, SettingsBase, import_as};
use clash_lang::{BUILT_IN, SourceReader, compile};
use clash_oracle::{self as oracle, Dice, OracleAction as Theirs, OraclePlaces as TheirPlaces};
use clash_policy::compare::compare;
use clash_policy::ir::{self, IrImage};
use clash_policy::rule::{Layer, LayerKind};
use clash_policy::{
    Action, Effect, FileCaps, FileUse, HostUse, JudgeContext, PolicyPlaces, ToolInput, decide,
    witness,
};

const PLACES: TheirPlaces<'_> =
    TheirPlaces { project: "/home/u/proj", home: "/home/u", settings: "/home/u/proj" };

struct Text<'a>(&'a str);

impl SourceReader for Text<'_> {
    fn read(&self, _: &Path) -> io::Result<String> {
        Ok(self.0.to_owned())
    }
}

/// A policy on its own above the built-in rules.
struct Compiled {
    layers: Vec<Layer>,
    image: Vec<u8>,
    places: PolicyPlaces,
}

impl Compiled {
    /// Compiles a text as the user's policy; fails if it does not compile.
    fn of(text: &str) -> Self {
        let layer = |file, kind| {
            let compiled = compile(file, kind, true, &Text(text));
            compiled.unwrap_or_else(|error| panic!("{error}\n{text}")).layer
        };
        let layers = vec![layer("/p.star", LayerKind::User), layer(BUILT_IN, LayerKind::BuiltIn)];
        let image = ir::encode(&layers, &[], 0);
        let places = PolicyPlaces {
            project: PLACES.project.into(),
            home: PLACES.home.into(),
            ..PolicyPlaces::imagined()
        };
        Self { layers, image, places }
    }

    fn ir(&self) -> IrImage<'_> {
        IrImage::open(&self.image, 0).unwrap()
    }

    fn world(&self) -> JudgeContext<'_> {
        JudgeContext::without_disk(&self.places)
    }

    /// The effect of the compiled policy on an action of the oracle.
    fn decides(&self, action: &Theirs) -> Effect {
        let file = |path: &String, needs| {
            ToolInput::Files(vec![FileUse { path: path.into(), needs, caseless: false }])
        };
        let (tool, input) = match action {
            Theirs::Command(words) => ("Bash", ToolInput::Script(words.join(" "))),
            Theirs::Read(path) => ("Read", file(path, FileCaps::READ)),
            Theirs::Edit(path) => ("Edit", file(path, FileCaps::READ.union(FileCaps::WRITE))),
            Theirs::Fetch(host) => {
                ("WebFetch", ToolInput::Hosts(vec![HostUse { host: host.clone(), port: 443 }]))
            }
            Theirs::Tool(name) => (name.as_str(), ToolInput::Fields(Vec::new())),
        };
        let (agent, mode) = ("claude".to_owned(), "default".to_owned());
        let action = Action { agent, mode, tool: tool.to_owned(), input };
        decide(self.ir(), &action, &self.world()).unwrap().effect
    }
}

/// The policy that becomes of a file, compiled.
fn imported(format: ImportFormat, text: &str) -> Compiled {
    let source = ImportSource { name: "f", bytes: text.as_bytes(), base: SettingsBase::Project };
    Compiled::of(&import_as(format, &source).unwrap().source)
}

#[test]
fn an_import_from_claude_code_permits_no_more() {
    let (mut allowed, mut restricted) = (0, 0);
    for seed in 0..250 {
        let mut dice = Dice::new(seed);
        let claude = dice.claude_lists();
        let policy = imported(ImportFormat::Claude, &claude.settings());
        for _ in 0..40 {
            let action = dice.action(&PLACES);
            let (theirs, ours) = (claude.decide(&action, &PLACES), policy.decides(&action));
            allowed += usize::from(ours == Effect::Allow);
            restricted += usize::from(theirs == Some(Effect::Deny));
            // The same words in another order are the same command to clash.
            let respelled = || match &action {
                Theirs::Command(words) => oracle::respellings(words).into_iter().any(|words| {
                    let other = Theirs::Command(words);
                    claude.decide(&other, &PLACES) == Some(Effect::Allow)
                }),
                _ => false,
            };
            let no_more =
                ours >= theirs.unwrap_or(Effect::Ask) || (theirs.is_none() && respelled());
            assert!(no_more, "{action:?}: theirs {theirs:?}, ours {ours:?}\n{claude:?}");
        }
    }
    assert!(allowed > 100 && restricted > 100, "{allowed} {restricted}");
}

#[test]
fn an_import_from_codex_permits_no_more() {
    let mut allowed = 0;
    for seed in 0..250 {
        let mut dice = Dice::new(seed);
        let rules = dice.prefix_rules();
        let policy = imported(ImportFormat::CodexRules, &oracle::codex_rules(&rules));
        let allows: Vec<_> =
            rules.iter().filter(|rule| rule.decision == Effect::Allow).cloned().collect();
        for _ in 0..40 {
            let words = dice.words(5);
            let theirs = oracle::decide_codex(&rules, &words);
            let ours = policy.decides(&Theirs::Command(words.clone()));
            allowed += usize::from(ours == Effect::Allow);
            let respelled = || {
                oracle::respellings(&words)
                    .iter()
                    .any(|w| oracle::decide_codex(&allows, w).is_some())
            };
            let no_more =
                ours >= theirs.unwrap_or(Effect::Ask) || (theirs.is_none() && respelled());
            assert!(no_more, "{words:?}: theirs {theirs:?}, ours {ours:?}\n{rules:?}");
        }
    }
    assert!(allowed > 100, "{allowed}");
}

/// Policies with older forms in them.
const OLDER: &[&str] = &[
    r#"
load("@clash//sandboxes.star", "project")
policy("x", {
    tool("Bash"): {"git": {"push": {("--force", "-f"): deny()}, glob("**"): allow(sandbox = project)}},
    tool(["Read", "Glob"]): allow(sandbox = project),
    mode("plan"): {tool("Write"): deny()},
    tool(regex("mcp__.*")): ask(),
})
"#,
    "when({tool((\"WebFetch\",)): {\"docs.rs\": allow(), domain(\"*.github.com\"): ask()}})\n",
];

#[test]
fn an_upgrade_and_a_layout_decide_every_witness_alike() {
    for old in OLDER {
        let upgraded = clash_syntax::upgrade::upgrade(old).unwrap();
        assert!(!upgraded.changes.is_empty(), "{old}");
        let formatted = clash_syntax::fmt::format(old).unwrap();
        for new in [&upgraded.source, &formatted] {
            let (before, after) = (Compiled::of(old), Compiled::of(new));
            let (witnesses, complete) = witness::actions(before.layers.iter(), &before.places);
            assert!(complete && witnesses.len() > 20);
            let found = compare(
                (before.ir(), &before.layers),
                (after.ir(), &after.layers),
                &before.world(),
            );
            assert!(found.unwrap().is_empty(), "{old}\n{new}");
        }
    }
}
