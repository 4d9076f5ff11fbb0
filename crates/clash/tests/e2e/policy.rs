//! `clash policy`: its output for users and for scripts.

use serde_json::{Value, json};

use crate::support::{Machine, Ran, Who, clash};

const POLICY: &str = r#"load("@clash//rust.star", "rust_full")
load("@clash//sandboxes.star", "project")
settings(default = ask(), default_sandbox = project)
when({
    "Bash": {
        ("cargo", "rustc"): allow(sandbox = rust_full),
        "git push": {"--force": deny(reason = "rewriting shared history")},
    },
    "WebFetch": {"docs.rs": allow(), exact("x.test"): deny()},
    mode("plan"): {("Write", "Edit"): ask()},
})
policy("keys", {"Read": {path("$HOME/.ssh"): deny()}}, doc = "Nobody reads keys.")
"#;

/// The output, with `~` for the home, which differs between runs.
pub(crate) fn shown(m: &Machine, args: &[&str]) -> String {
    let ran = m.clash(args.iter().copied());
    tidy(m, &format!("{}{}", ran.stdout, ran.stderr))
}

/// The text with `~` for the home, without spaces at line ends.
fn tidy(m: &Machine, text: &str) -> String {
    let text = text.replace(&m.home().display().to_string(), "~");
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The JSON that a command printed. Fails the test if it is none.
fn value(ran: Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"))
}

#[test]
fn check_finds_every_mistake_of_every_layer() {
    let m = Machine::new(Who::Me).policy("when({\"Bash\": {\"git\": alow()}})");
    m.write("app/.clash/policy.star", "sandbox(name = 7)");
    insta::assert_snapshot!(shown(&m, &["policy", "check"]), @r#"
    mistake: ~/app/.clash/policy.star:1:1: type of parameter `name` doesn't match, expected `None | str`, actual `int (repr: 7)`
      |
    1 | sandbox(name = 7)
      | ^

    mistake: ~/.clash/policy.star:1:23: variable `alow` not found, did you mean `allow`?
      |
    1 | when({"Bash": {"git": alow()}})
      |                       ^

    2 mistakes: every action is denied
    "#);
    let found = value(m.clash(["policy", "check", "--json"]).exits(1));
    assert_eq!(found["ok"], false);
    let mistake = &found["mistakes"][1];
    assert_eq!((&mistake["layer"], &mistake["line"]), (&json!("user"), &json!(1)));
    assert_eq!((&mistake["kind"], &mistake["column"]), (&json!("mistake"), &json!(23)));
}

#[test]
fn check_fails_on_warnings_only_if_asked() {
    let m = Machine::new(Who::Me).policy(POLICY);
    insta::assert_snapshot!(shown(&m, &["policy", "check"]), @"no mistakes, no warnings");
    m.clash(["policy", "check", "--strict"]).exits(0);
    // Two calls have the same key: the stricter one wins, perhaps against the intention.
    let twice = m.write(
        "twice.star",
        "when({\"Bash\": {\"ls\": allow()}})\nwhen({\"Bash\": {\"ls\": deny()}})\n",
    );
    let twice = twice.to_str().unwrap();
    m.clash(["policy", "check", twice]).exits(0).says("warning: ").says("1 warning");
    m.clash(["policy", "check", twice, "--strict"]).exits(1);
    let found = value(m.clash(["policy", "check", twice, "--json"]).exits(0));
    assert_eq!(found["warnings"].as_array().unwrap().len(), 1);
    m.clash(["policy", "check", "nowhere.star"])
        .exits(1)
        .says("cannot read the policy nowhere.star");
}

#[test]
fn show_is_a_tree_with_the_place_of_every_rule() {
    let m = Machine::new(Who::Me).policy(POLICY);
    m.write("app/.clash/policy.star", "when({\"Bash\": {\"make\": allow()}})");
    let tree = shown(&m, &["policy", "show"]);
    let (above, built_in) = tree.split_once("built-in (").unwrap();
    assert!(built_in.contains("readonly: "), "{built_in}");
    insta::assert_snapshot!(above, @r"
    project (~/app/.clash/policy.star, not trusted: it can only tighten)
      rules
        Bash
          make: allow (~/app/.clash/policy.star:1)
    user (~/.clash/policy.star)
      settings
        default: ask (~/.clash/policy.star:3)
        default sandbox: project
      rules
        Bash
          cargo, rustc: allow in rust_full (~/.clash/policy.star:6)
          git
            push
              --force: deny: rewriting shared history (~/.clash/policy.star:7)
        WebFetch
          docs.rs: allow (~/.clash/policy.star:9)
          exactly x.test: deny (~/.clash/policy.star:9)
        mode plan
          Edit, Write: ask (~/.clash/policy.star:10)
      policy keys: Nobody reads keys.
        Read
          $HOME/.ssh/**: deny (~/.clash/policy.star:12)
      sandboxes
        rust_full: 13 path rules, others ask; any network (@clash//rust.star:24)
        project: 6 path rules, others ask; no network (@clash//sandboxes.star:9)
    ");
    let user = shown(&m, &["policy", "show", "--layer", "user"]);
    assert!(user.starts_with("user (") && !user.contains("make"), "{user}");
    m.clash(["policy", "show", "--layer", "root"]).exits(2).says("layers are managed, session");
}

#[test]
fn show_as_json_has_the_version_and_the_same_rules() {
    let m = Machine::new(Who::Me).policy(POLICY);
    let shown = value(m.clash(["policy", "show", "--json"]).succeeds());
    assert_eq!(shown["ir"], 7);
    let user = &shown["layers"][0];
    assert_eq!((&user["layer"], &user["trusted"]), (&json!("user"), &json!(true)));
    let push = &user["policies"][0]["tree"][0]["tree"][1];
    assert_eq!(push["keys"], json!(["git"]));
    let force = &push["tree"][0]["tree"][0];
    assert_eq!((&force["about"], &force["rule"]["effect"]), (&json!("option"), &json!("deny")));
    assert_eq!(user["policies"][1]["doc"], "Nobody reads keys.");
}

#[test]
fn explain_names_every_layer_that_had_a_say() {
    let m = Machine::new(Who::Me).policy(POLICY);
    m.write("app/.clash/policy.star", "when({\"Bash\": {\"cargo\": allow()}, \"Read\": ask()})");
    insta::assert_snapshot!(shown(&m, &["policy", "explain", "bash", "git push --force && cargo test"]), @r#"
    deny: `git push --force` is denied (rule at ~/.clash/policy.star:7): rewriting shared history

    commands:
      deny   git push --force  [user Bash > git > push > --force at ~/.clash/policy.star:7]
      ask    cargo test  [project Bash > cargo at ~/app/.clash/policy.star:1, sandbox rust_full]
             overruled: the user policy says allow by Bash > cargo at ~/.clash/policy.star:6
    "#);
    insta::assert_snapshot!(shown(&m, &["explain", "read", "../.ssh/id"]), @r#"
    deny: `~/.ssh/id` is denied (rule at ~/.clash/policy.star:12)

    because:
      deny   ~/.ssh/id  [user Read > $HOME/.ssh/** at ~/.clash/policy.star:12]
             sandbox project says ask read by its default
             overruled: the project policy, which is not trusted, says ask by Read at ~/app/.clash/policy.star:1
    "#);
}

const TABLE: &str = "\
# What must hold, whoever edits the policy.
deny   Bash git push --force
allow  sandbox=rust_full Bash cargo build

deny   Read $HOME/.ssh/id
ask    mode=plan Write $PWD/src/x
allow  WebFetch https://docs.rs/serde
ask    mcp__db__query {\"sql\": \"drop\"}
";

#[test]
fn a_table_of_actions_is_decided_and_failures_name_the_rule() {
    let m = Machine::new(Who::Me).policy(POLICY);
    m.write("app/table", TABLE);
    insta::assert_snapshot!(shown(&m, &["policy", "test", "--table", "table"]), @"1 policy, 0 expectations, 6 actions of tables: 0 failed");
    let m = m.policy(&POLICY.replace("allow(sandbox = rust_full)", "ask()"));
    m.clash(["policy", "test", "--table", "table"]).exits(1);
    insta::assert_snapshot!(shown(&m, &["policy", "test", "--table", "table"]), @r#"
    failed: table:3: expected allow, but it is ask: `cargo build` needs your approval (rule at ~/.clash/policy.star:6)
    1 policy, 0 expectations, 6 actions of tables: 1 failed
    "#);
    let failed = value(m.clash(["policy", "test", "--table", "table", "--json"]).exits(1));
    assert_eq!(failed["failures"][0]["at"], "table:3");
    m.write("app/table", "maybe Bash ls\n");
    m.clash(["policy", "test", "--table", "table"]).exits(1).says("table:1: `maybe` is no effect");
}

#[test]
fn expectations_are_run_for_every_policy_named() {
    let m = Machine::new(Who::Me);
    m.write("app/right.star", "expect(ask, \"ls\")");
    m.write("app/wrong.star", "expect(deny, \"ls\")");
    let text = shown(&m, &["policy", "test", "right.star", "wrong.star"]);
    assert!(text.contains("wrong.star:1:1: expected deny, but it is ask"), "{text}");
    assert!(text.ends_with("2 policies, 1 expectation, 0 actions of tables: 1 failed\n"), "{text}");
}

#[test]
fn diff_names_actions_with_more_and_less_permission() {
    let m = Machine::new(Who::Me);
    m.write("app/old.star", POLICY);
    m.write("app/same.star", &POLICY.replace("(\"cargo\", \"rustc\")", "(\"rustc\", \"cargo\")"));
    assert_eq!(shown(&m, &["policy", "diff", "old.star", "same.star"]), "");
    let new = POLICY
        .replace("allow(sandbox = rust_full)", "allow(sandbox = project)")
        .replace("\"docs.rs\": allow()", "\"docs.rs\": ask()")
        .replace("{\"--force\": deny(reason = \"rewriting shared history\")}", "allow()");
    m.write("app/new.star", &new);
    insta::assert_snapshot!(shown(&m, &["policy", "diff", "old.star", "new.star"]), @r#"
    more permitted
      Bash git push: ask in project (~/app/old.star:3) → allow in project (~/app/new.star:7), and 1 like it
      Bash git push --force: deny (~/app/old.star:7) → allow in project (~/app/new.star:7), and 1 like it
    less permitted
      WebFetch docs.rs: allow (~/app/old.star:9) → ask (~/app/new.star:9)
    in another sandbox, which grants more and less
      Bash cargo: allow in rust_full (~/app/old.star:6) → allow in project (~/app/new.star:6), and 3 like it
    "#);
    let found = value(m.clash(["policy", "diff", "--json", "old.star", "new.star"]).succeeds());
    let force = found["actions"].as_array().unwrap().iter();
    let force = force.into_iter().find(|it| it["what"] == "Bash git push --force").unwrap();
    assert_eq!((&force["change"], &force["old"]["effect"]), (&json!("more"), &json!("deny")));
}

#[test]
fn diff_compares_sandboxes_of_one_name_by_their_grants() {
    let m = Machine::new(Who::Me);
    let policy = |body: &str| {
        format!(
            "s = sandbox(name = \"s\", {body})\nwhen({{\"Bash\": {{\"x\": allow(sandbox = s)}}}})"
        )
    };
    m.write("app/old.star", &policy("fs = {\"$PWD\": allow()}, net = {\"github.com\": allow()}"));
    m.write(
        "app/new.star",
        &policy("fs = {\"$PWD\": allow(\"rx\"), \"$HOME/.aws\": allow(\"r\")}, net = {\"github.com\": allow(), \"example.io\": allow()}"),
    );
    insta::assert_snapshot!(shown(&m, &["policy", "diff", "old.star", "new.star"]), @r#"
    sandbox s (~/app/new.star:1)
      less: $PWD/clash-example (write, create, delete): allow → deny
      less: $PWD/.git/config (write, create, delete): ask → deny
      more: $HOME/.aws (read): deny → allow
      more: host example.io:443: deny → allow
      more: host sub.example.io:443: deny → allow
    "#);
}

#[test]
fn a_policy_that_does_not_end_is_stopped_and_named() {
    let m = Machine::new(Who::Me);
    m.write("loop.star", "def f():\n    for i in range(1000000000):\n        pass\nf()\n");
    let file = m.home().join("loop.star");
    m.clash(["policy".as_ref(), "check".as_ref(), file.as_os_str()]).exits(1).says("loop.star");
    m.write(
        "grow.star",
        "def f():\n    x = [1]\n    for i in range(60):\n        x = x + x\nf()\n",
    );
    let file = m.home().join("grow.star");
    m.clash(["policy".as_ref(), "check".as_ref(), file.as_os_str()]).exits(1).says("grow.star");
}

#[test]
fn a_session_policy_precedes_those_of_project_and_user() {
    let m = Machine::new(Who::Me).policy("when({\"Bash\": {\"make\": deny()}})");
    m.bash("make").is("deny", ".clash/policy.star:1");
    m.write(
        ".local/state/clash/sessions/test-session/policy.star",
        "when({\"Bash\": {\"make\": allow()}})",
    );
    m.bash("make").is("allow", "sessions/test-session/policy.star:1");
    // The policy holds for this session only.
    m.clash(["explain", "bash", "make"]).says("deny:");
    // The launcher decides by it too.
    m.write(
        ".local/state/clash/sessions/test-session/policy.star",
        "when({\"Bash\": {\"uname\": allow()}})",
    );
    let run = |session: Option<&str>| {
        let mut command = m.command(clash());
        session.map(|id| command.env("CLAUDE_CODE_SESSION_ID", id));
        Ran::of(command.args(["exec", "--", "uname"]))
    };
    run(Some("test-session")).succeeds();
    run(None).exits(126);
}

#[test]
fn the_language_documents_itself() {
    let m = Machine::new(Who::Me);
    let all = m.clash(["policy", "docs"]).succeeds().stdout;
    for name in ["sandbox ", "when ", "@clash//rust.star", "rust_full"] {
        assert!(all.contains(name), "{name} in {all}");
    }
    m.clash(["policy", "docs", "git_safe"]).succeeds().says("allow rwcdx $PWD/**");
    m.clash(["policy", "docs", "rust_ful"]).exits(1).says("did you mean `rust_full`?");
    let json = value(m.clash(["policy", "docs", "rust", "--json"]).succeeds());
    assert_eq!(json["modules"][0]["name"], "@clash//rust.star");
}

#[test]
fn client_settings_are_imported_and_a_projects_only_restrict() {
    let m = Machine::new(Who::Me).policy("from_claude_settings()\n");
    m.bash("make").is("ask", "no rule");
    m.write(".claude/settings.json", r#"{"permissions": {"allow": ["Bash(make:*)"]}}"#);
    m.bash("make").is("allow", ".claude/settings.json");
    let project = r#"{"permissions": {"allow": ["Bash(npm:*)"], "deny": ["Bash(make all:*)"]}}"#;
    m.write("app/.claude/settings.json", project);
    m.bash("npm test").is("ask", "no rule");
    m.bash("make all").is("deny", "app/.claude/settings.json");
    m.write("app/.claude/settings.json", r#"{"permissions": {"deny": ["nonsense rule"]}}"#);
    m.clash(["policy", "check"])
        .exits(0)
        .says("this restriction is not enforced: permissions.deny[0]");
    // Clash denies every action if it cannot read the settings.
    m.write(".claude/settings.json", r#"{"permissions": "#);
    m.bash("make").is("deny", "cannot take over");
    // A project's policy does not import the user's settings.
    let m = Machine::new(Who::Me);
    m.write(".claude/settings.json", r#"{"permissions": {"allow": ["Bash(make:*)"]}}"#);
    m.write("app/.clash/policy.star", "from_claude_settings()\n");
    m.bash("make").is("ask", "no rule");
}
