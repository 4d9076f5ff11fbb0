use clash_policy::Effect;
use clash_syntax::draft::{
    DraftError, EffectDraft, FileEffect, FileRuleDraft, KeyDraft, PolicyDraft, PolicyModule,
    RuleBody, RuleDraft, RuleGroup, SandboxBase, SandboxDraft, SettingsDraft, library_module,
    load_module, make_module,
};
use clash_syntax::{ExpressionKind, StatementKind, SyntaxTree};

use crate::support::library;

fn allow(sandbox: &str) -> RuleBody {
    RuleBody::Effect(EffectDraft::new(Effect::Allow, Some(sandbox)))
}

fn ask_because(sandbox: &str, reason: &str) -> RuleBody {
    let effect = EffectDraft::new(Effect::Ask, Some(sandbox));
    RuleBody::Effect(EffectDraft { reason: Some(reason.to_owned()), ..effect })
}

#[test]
fn a_draft_becomes_a_policy_with_loads_and_comments() {
    let rest = RuleDraft { comment: vec![], key: KeyDraft::Rest, body: allow("git_safe") };
    let push = RuleDraft::new(&["push"], ask_because("git_full", "others \"see\" it"));
    let draft = PolicyDraft {
        head: vec!["Mine.".into()],
        settings: Some(SettingsDraft {
            comment: vec!["The rest is asked.".into()],
            default: Effect::Ask,
            sandbox: Some("project".into()),
        }),
        commands: vec![
            RuleGroup {
                comment: vec!["git (.git)\nrm -rf /".into()],
                rules: vec![RuleDraft::new(&["git"], RuleBody::Below(vec![push, rest]))],
            },
            RuleGroup {
                comment: vec!["rust".into()],
                rules: vec![RuleDraft {
                    comment: vec!["seen 3 times".into()],
                    ..RuleDraft::new(&["cargo", "rustc"], allow("rust_full"))
                }],
            },
        ],
        tools: vec![RuleGroup {
            comment: vec![],
            rules: vec![RuleDraft::new(&["Read"], allow("project"))],
        }],
        expectations: vec![(Effect::Ask, "git push".into())],
        ..PolicyDraft::default()
    };
    insta::assert_snapshot!(draft.text().unwrap(), @r#"
    # Mine.

    load("@clash//rust.star", "rust_full")
    load("@clash//sandboxes.star", "git_full", "git_safe", "project")

    # The rest is asked.
    settings(default = ask(), default_sandbox = project)

    when({
        "Bash": {
            # git (.git)\nrm -rf /
            "git": {
                "push": ask(sandbox = git_full, reason = "others \"see\" it"),
                glob("**"): allow(sandbox = git_safe),
            },

            # rust
            # seen 3 times
            ("cargo", "rustc"): allow(sandbox = rust_full),
        },
        "Read": allow(sandbox = project),
    })

    expect(ask, "git push")
    "#);
}

#[test]
fn own_sandboxes_are_not_loaded_but_their_bases_are() {
    let cache = FileRuleDraft {
        comment: vec![],
        key: KeyDraft::text("/data/npm"),
        effect: FileEffect::Cache,
    };
    let sandbox = SandboxDraft {
        comment: vec!["npm keeps its cache elsewhere.".into()],
        doc: "node_safe and more.".into(),
        fs: vec![cache],
        ..SandboxDraft::new("node_here", SandboxBase::Extends("node_safe".into()))
    };
    let draft = PolicyDraft {
        sandboxes: vec![sandbox],
        commands: vec![RuleGroup {
            comment: vec![],
            rules: vec![RuleDraft::new(&["npm"], allow("node_here"))],
        }],
        ..PolicyDraft::default()
    };
    insta::assert_snapshot!(draft.text().unwrap(), @r#"
    load("@clash//node.star", "node_safe")

    # npm keeps its cache elsewhere.
    node_here = sandbox(
        name = "node_here",
        doc = "node_safe and more.",
        extends = node_safe,
        fs = {"/data/npm": cache()},
    )

    when({
        "Bash": {
            "npm": allow(sandbox = node_here),
        },
    })
    "#);
}

#[test]
fn many_words_fill_a_few_lines() {
    let words: Vec<String> = (0..30).map(|at| format!("program-{at}")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let rules = vec![RuleDraft::new(&words, allow("project"))];
    let commands = vec![RuleGroup { comment: vec![], rules }];
    let text = PolicyDraft { commands, ..PolicyDraft::default() }.text().unwrap();
    assert_eq!(text.lines().filter(|line| line.contains("program-")).count(), 7, "{text}");
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
}

#[test]
fn a_sandbox_that_no_module_offers_is_refused() {
    let rules = vec![RuleDraft::new(&["x"], allow("nowhere"))];
    let commands = vec![RuleGroup { comment: vec![], rules }];
    let draft = PolicyDraft { commands, ..PolicyDraft::default() };
    assert!(matches!(draft.text(), Err(DraftError::UnknownSandbox(name)) if name == "nowhere"));
}

#[test]
fn a_module_names_its_sandbox_at_each_rule() {
    let source = r#"# Imported from f.

imported = sandbox(name = "imported", fs = {"$PWD": allow("rx")})

settings(default = deny(), default_sandbox = imported)

policy("imported allows", {
    # permissions.allow[0]
    "Bash": allow(),
    "Read": ask(reason = "x"),
    "Write": allow(sandbox = imported),
    "Edit": deny(),
})
"#;
    let PolicyModule { text, denies_by_default } =
        make_module(source, "imported_claude", None).unwrap();
    assert!(denies_by_default);
    insta::assert_snapshot!(text, @r#"
    # Imported from f.

    imported_claude_sandbox = sandbox(name = "imported_claude_sandbox", fs = {"$PWD": allow("rx")})

    policy("imported_claude allows", {
        # permissions.allow[0]
        "Bash": allow(sandbox = imported_claude_sandbox),
        "Read": ask(sandbox = imported_claude_sandbox, reason = "x"),
        "Write": allow(sandbox = imported_claude_sandbox),
        "Edit": deny(),
    })

    imported = True
    "#);
    let without = make_module(source, "x", Some("imported allows")).unwrap().text;
    assert!(!without.contains("policy("), "{without}");
}

#[test]
fn a_module_is_loaded_behind_the_other_loads() {
    let policy = "load(\"a.star\", \"a\")\nwhen(a)\n";
    let once = load_module(policy, "imported_srt").unwrap();
    let load = "load(\"imported_srt.star\", imported_srt = \"imported\")";
    assert_eq!(once, format!("load(\"a.star\", \"a\")\n{load}\nwhen(a)\n"));
    assert_eq!(load_module(&once, "imported_srt").unwrap(), once);
    assert_eq!(load_module("when(a)\n", "imported_srt").unwrap(), format!("{load}\n\nwhen(a)\n"));
}

#[test]
fn every_sandbox_of_the_library_can_be_loaded() {
    for source in &library() {
        let file = SyntaxTree::parse(source).unwrap();
        for statement in file.statements() {
            let StatementKind::Assign { target, value, .. } = &statement.kind else { continue };
            if let (ExpressionKind::Name(name), Some(call)) = (&target.kind, value.call())
                && call.name() == Some("sandbox")
            {
                assert!(library_module(name).is_some(), "{name}");
            }
        }
    }
}
