use proptest::prelude::*;

use crate::support::{comments, tokens};
use clash_syntax::diff;
use clash_syntax::edit::{EditError, RuleKey, remove, set};

const POLICY: &str = r#"# My rules.
load("@clash//sandboxes.star", "git_safe", "project")

when({
    # Tools of the shell.
    "Bash": {
        ("cargo", "rustc"): allow(),  # toolchain
        "git": {
            # never
            "push": {("--force", "-f"): deny(reason = "rewriting shared history")},
            ("push", "fetch", "pull"): allow(sandbox = git_safe),
            glob("**"): allow(sandbox = git_safe),
        },
        "npm run": {"build": allow()},
        "sudo": deny(),
    },
    "WebFetch": {"docs.rs": allow()},
    mode("plan"): {("Write", "Bash"): ask()},
})
"#;

/// A path of keys: words between slashes, and `name=arg` for a call.
fn path(text: &str) -> Vec<RuleKey> {
    text.split('/')
        .map(|word| match word.split_once('=') {
            Some((name, arg)) => RuleKey::call(name, arg),
            None => RuleKey::str(word),
        })
        .collect()
}

/// The lines that change when a rule gets an effect.
fn setting(source: &str, rule: &str, effect: &str) -> String {
    let edited = set(source, &path(rule), effect).unwrap_or_else(|error| panic!("{error}"));
    changes(source, &edited.source)
}

/// The lines that change when a rule is removed.
fn removing(source: &str, rule: &str) -> String {
    let edited = remove(source, &path(rule)).unwrap_or_else(|error| panic!("{error}"));
    changes(source, &edited.source)
}

/// The diff without its head and context.
fn changes(old: &str, new: &str) -> String {
    let diff = diff(old, new, "p");
    let lines = diff.lines().skip(2).filter(|line| line.starts_with(['+', '-']));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_rule_goes_next_to_similar_rules() {
    insta::assert_snapshot!(setting(POLICY, "Bash/git/rebase", "ask()"), @r#"+            "rebase": ask(),"#);
    insta::assert_snapshot!(setting(POLICY, "Bash/docker", "deny(reason='no')"), @r#"+        "docker": deny(reason = "no"),"#);
    insta::assert_snapshot!(setting(POLICY, "Read", "allow()"), @r#"+    "Read": allow(),"#);
    insta::assert_snapshot!(setting(POLICY, "WebFetch/example.io", "allow()"), @r#"
    -    "WebFetch": {"docs.rs": allow()},
    +    "WebFetch": {"docs.rs": allow(), "example.io": allow()},
    "#);
    insta::assert_snapshot!(setting(POLICY, "Bash/npm/run/test", "allow()"), @r#"
    -        "npm run": {"build": allow()},
    +        "npm run": {"build": allow(), "test": allow()},
    "#);
    insta::assert_snapshot!(setting(POLICY, "mode=plan/Read", "allow()"), @r#"
    -    mode("plan"): {("Write", "Bash"): ask()},
    +    mode("plan"): {("Write", "Bash"): ask(), "Read": allow()},
    "#);
}

#[test]
fn a_rule_that_exists_changes_in_its_place() {
    insta::assert_snapshot!(setting(POLICY, "Bash/sudo", "ask()"), @r#"
    -        "sudo": deny(),
    +        "sudo": ask(),
    "#);
    assert_eq!(setting(POLICY, "Bash/sudo", "deny()"), "");
    insta::assert_snapshot!(setting(POLICY, "Bash/git", "ask()"), @r#"
    -            glob("**"): allow(sandbox = git_safe),
    +            glob("**"): ask(),
    "#);
    insta::assert_snapshot!(setting(POLICY, "Bash/git/push", "ask()"), @r#"
    -            "push": {("--force", "-f"): deny(reason = "rewriting shared history")},
    +            "push": {
    +                ("--force", "-f"): deny(reason = "rewriting shared history"),
    +                glob("**"): ask(),
    +            },
    "#);
}

#[test]
fn one_of_a_tuple_is_split_out() {
    insta::assert_snapshot!(setting(POLICY, "Bash/git/fetch", "ask()"), @r#"
    -            ("push", "fetch", "pull"): allow(sandbox = git_safe),
    +            "fetch": ask(),
    +            ("push", "pull"): allow(sandbox = git_safe),
    "#);
    insta::assert_snapshot!(setting(POLICY, "Bash/cargo", "ask()"), @r#"
    -        ("cargo", "rustc"): allow(),  # toolchain
    +        "cargo": ask(),
    +        "rustc": allow(),  # toolchain
    "#);
    // What a tuple says about the rest still holds beside the literal key.
    insta::assert_snapshot!(setting(POLICY, "Bash/cargo/publish", "deny()"), @r#"+        "cargo": {"publish": deny()},"#);
}

#[test]
fn an_effect_becomes_a_branch_that_keeps_it() {
    insta::assert_snapshot!(setting(POLICY, "Bash/sudo/ls", "allow()"), @r#"
    -        "sudo": deny(),
    +        "sudo": {"ls": allow(), glob("**"): deny()},
    "#);
}

#[test]
fn a_sandbox_is_loaded_when_it_is_named() {
    insta::assert_snapshot!(setting(POLICY, "Bash/sudo", "allow(sandbox = git_full)"), @r#"
    -load("@clash//sandboxes.star", "git_safe", "project")
    +load("@clash//sandboxes.star", "git_full", "git_safe", "project")
    -        "sudo": deny(),
    +        "sudo": allow(sandbox = git_full),
    "#);
    insta::assert_snapshot!(setting(POLICY, "Bash/sudo", "allow(sandbox = rust_full)"), @r#"
    +load("@clash//rust.star", "rust_full")
    -        "sudo": deny(),
    +        "sudo": allow(sandbox = rust_full),
    "#);
    insta::assert_snapshot!(setting("\"\"\"Doc.\"\"\"\n", "Read", "allow(sandbox = project)"), @r#"
    +
    +load("@clash//sandboxes.star", "project")
    +
    +when({
    +    "Read": allow(sandbox = project),
    +})
    "#);
    let own = "mine = sandbox(name = \"mine\")\n";
    assert!(!setting(own, "Read", "allow(sandbox = mine)").contains("load"));
    assert_eq!(
        set(POLICY, &path("Read"), "allow(sandbox = nowhere)"),
        Err(EditError::Sandbox { name: "nowhere".into() })
    );
}

#[test]
fn without_a_tree_that_can_be_read_a_new_one_is_appended() {
    for source in [
        "",
        "policy(\"x\", merge(a, b))\n",
        "when({\"Bash\": git_rules})\n",
        "when({GIT: allow()})\n",
        "when({k: deny() for k in names})\n",
        "if OS == \"linux\":\n    when({\"Bash\": {\"git\": allow()}})\n",
    ] {
        let new = set(source, &path("Bash/git"), "ask()").unwrap().source;
        assert!(new.starts_with(source), "{new}");
        assert!(new.ends_with("when({\n    \"Bash\": {\"git\": ask()},\n})\n"), "{new}");
    }
    // The shape of the posts: another entry at the root would touch other lines.
    let hugged = "when({\"Bash\": {\n    \"git\": allow(),\n}})\n";
    insta::assert_snapshot!(setting(hugged, "Read", "allow()"), @r#"
    +
    +when({
    +    "Read": allow(),
    +})
    "#);
    insta::assert_snapshot!(setting(hugged, "Bash/ls", "allow()"), @r#"+    "ls": allow(),"#);
}

#[test]
fn older_keys_are_understood() {
    let old = "policy(\"x\", {\n    tool(\"Bash\"): {\"git\": allow()},\n    Tool([\"Read\", \"Glob\"]): allow(),\n    Mode(\"plan\"): deny(),\n})\n";
    insta::assert_snapshot!(setting(old, "Bash/ls", "allow()"), @r#"
    -    tool("Bash"): {"git": allow()},
    +    tool("Bash"): {"git": allow(), "ls": allow()},
    "#);
    insta::assert_snapshot!(setting(old, "Read", "ask()"), @r#"
    -    Tool(["Read", "Glob"]): allow(),
    +    "Read": ask(),
    +    Tool(["Glob"]): allow(),
    "#);
    insta::assert_snapshot!(setting(old, "mode=plan", "ask()"), @r#"
    -    Mode("plan"): deny(),
    +    Mode("plan"): ask(),
    "#);
}

#[test]
fn lines_that_grow_too_long_are_spread() {
    let source = "when({\n    \"WebFetch\": {\"one.example.com\": allow(), \"two.example.com\": allow(), \"three.example.com\": ask()},\n})\n";
    insta::assert_snapshot!(setting(source, "WebFetch/four.example.com", "deny()"), @r#"
    -    "WebFetch": {"one.example.com": allow(), "two.example.com": allow(), "three.example.com": ask()},
    +    "WebFetch": {
    +        "one.example.com": allow(),
    +        "two.example.com": allow(),
    +        "three.example.com": ask(),
    +        "four.example.com": deny(),
    +    },
    "#);
}

#[test]
fn missing_commas_are_added_and_last_comments_stay() {
    let source = "when({\n  \"a\": allow(),\n  \"b\": allow()  # last\n  # end\n})\n";
    insta::assert_snapshot!(setting(source, "c", "deny()"), @r#"
    -  "b": allow()  # last
    +  "b": allow(),  # last
    +  "c": deny(),
    "#);
}

#[test]
fn removal_takes_the_comment_and_empty_dicts() {
    insta::assert_snapshot!(removing(POLICY, "Bash/sudo"), @r#"-        "sudo": deny(),"#);
    insta::assert_snapshot!(removing(POLICY, "Bash/git"), @r#"-            glob("**"): allow(sandbox = git_safe),"#);
    insta::assert_snapshot!(removing(POLICY, "Bash/git/push/-f"), @r#"
    -            "push": {("--force", "-f"): deny(reason = "rewriting shared history")},
    +            "push": {"--force": deny(reason = "rewriting shared history")},
    "#);
    insta::assert_snapshot!(removing(POLICY, "Bash/npm/run/build"), @r#"-        "npm run": {"build": allow()},"#);
    insta::assert_snapshot!(removing(POLICY, "Bash/cargo"), @r#"
    -        ("cargo", "rustc"): allow(),  # toolchain
    +        "rustc": allow(),  # toolchain
    "#);
    let commented =
        "# head\n\n# why\nwhen({\n    # reason\n    \"a\": allow(),  # same line\n})\n\nx = 1\n";
    insta::assert_snapshot!(removing(commented, "a"), @r##"
    -# why
    -when({
    -    # reason
    -    "a": allow(),  # same line
    -})
    -
    "##);
}

#[test]
fn a_rule_goes_next_to_the_end_of_a_command() {
    let policy = "when({\"Bash\": {\"npm\": {\n    end(): allow(),\n}}})\n";
    insta::assert_snapshot!(setting(policy, "Bash/npm/test", "allow()"), @r#"
    +    "test": allow(),
    "#);
}

#[test]
fn an_edit_that_is_impossible_names_its_reason() {
    let problem = |source: &str, rule: &str| remove(source, &path(rule)).unwrap_err().to_string();
    insta::assert_snapshot!(problem(POLICY, "Bash/ls"), @r#"there is no rule for `"Bash"` → `"ls"`"#);
    insta::assert_snapshot!(problem(POLICY, "WebFetch"), @r#"line 17: `"WebFetch"` has no rule of its own, only rules below it"#);
    insta::assert_snapshot!(problem("x = 1\nwhen({\"Bash\": rules})\n", "Bash/ls"), @r#"line 2: `rules` is computed, so `"Bash"` → `"ls"` may come from there; edit it by hand"#);
    insta::assert_snapshot!(problem("policy(\"x\", merge(\n    a, b))\n", "Bash"), @r#"line 1: `merge(` is computed, so `"Bash"` may come from there; edit it by hand"#);
    insta::assert_snapshot!(problem("when({(\"a\", \"b\"): {\"c\": deny()}})\n", "a/c"), @"line 1: this rule is shared with others; edit it by hand");
    insta::assert_snapshot!(problem("when({", "a"), @"the policy does not parse: 1:7: expected an expression, found the end of the file");
    let effect = |text: &str| set("", &path("a"), text).unwrap_err().to_string();
    insta::assert_snapshot!(effect("x; y"), @r#"`x; y` is not an effect like `allow()` or `deny(reason = "…")`"#);
    insta::assert_snapshot!(effect("allow() # c"), @r#"`allow() # c` is not an effect like `allow()` or `deny(reason = "…")`"#);
    assert_eq!(set("", &[], "allow()"), Err(EditError::NoPath));
}

#[test]
fn an_edit_lists_the_changed_lines() {
    let edited = set(POLICY, &path("Bash/cargo"), "ask()").unwrap();
    assert_eq!((edited.added, edited.removed), (vec![7, 8], vec![7]));
}

#[test]
fn a_key_is_spelled_so_that_it_cannot_become_code() {
    let new = set("", &[RuleKey::str("a\"): allow(), (\"\\\n")], "deny()").unwrap().source;
    insta::assert_snapshot!(new, @r#"
    when({
        "a\"): allow(), (\"\\\n": deny(),
    })
    "#);
}

/// A dict of a small policy, in several ways of writing.
fn dict() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec!["\"a\"", "(\"b\", \"c\")", "\"d e\"", "glob(\"x*\")"]);
    let effect = prop::sample::select(vec!["allow()", "deny(reason = \"no\")", "ask", "rules"]);
    let leaf = effect.prop_map(str::to_owned);
    leaf.prop_recursive(3, 12, 4, move |inner| {
        let entry = (key.clone(), inner, 0..6u8);
        prop::collection::vec(entry, 1..4).prop_map(|entries| {
            let mut seen = Vec::new();
            let mut text = "{".to_owned();
            for (key, value, layout) in entries {
                if seen.contains(&key) {
                    continue;
                }
                seen.push(key);
                text.push_str(match layout {
                    0 | 1 => "\n    ",
                    2 => "\n  # about it\n  ",
                    3 => "\n\n\t",
                    _ => " ",
                });
                text.push_str(&format!("{key}: {value},"));
                text.push_str(if layout == 1 { "  # behind\n" } else { "" });
            }
            text + "\n}"
        })
    })
    .prop_filter("a dict", |text| text.starts_with('{'))
}

proptest! {
    #[test]
    fn adding_and_removing_a_rule_changes_nothing_else(
        first in dict(), second in dict(), name in prop::sample::select(vec!["when(", "policy(\"p\", "]),
        rule in prop::sample::select(vec![
            "new", "a/new", "b/new", "a/b/new", "Bash/d/e/new", "Bash/new", "a/a/a/a/a/new", "d e/new/x",
        ]),
    ) {
        let source = format!("# top\n{name}{first})\n\nwhen({{\"Bash\": {second}}})\n");
        let added = set(&source, &path(rule), "ask(reason = \"new\")").unwrap();
        let old = comments(&source);
        prop_assert_eq!(comments(&added.source), old.clone());
        let removed = remove(&added.source, &path(rule)).unwrap();
        prop_assert_eq!(tokens(&removed.source), tokens(&source), "{}\n---\n{}", source, added.source);
        // Setting it again finds it: nothing is written twice.
        let again = set(&added.source, &path(rule), "ask(reason = \"new\")").unwrap();
        prop_assert_eq!(again.source, added.source);
    }
}

#[test]
fn in_an_empty_policy_the_sandbox_is_loaded_before_it_is_used() {
    let path = [RuleKey::str("Bash"), RuleKey::str("cargo")];
    let edited = set("", &path, "allow(sandbox = rust_full)").unwrap();
    insta::assert_snapshot!(edited.source, @r#"
    load("@clash//rust.star", "rust_full")

    when({
        "Bash": {"cargo": allow(sandbox = rust_full)},
    })
    "#);
}
