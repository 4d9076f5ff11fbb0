//! Commands that change policies. Clash shows and compiles a change before it writes it,
//! and `clash policy undo` takes it back.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::policy::shown;
use crate::support::{Machine, Ran, Who, clash, copy_program};

const POLICY: &str = "\
# Mine.
when({
    \"Bash\": {
        \"git\": ask(),  # always look
    },
})
";

/// The text of the user's policy.
fn text(m: &Machine) -> String {
    fs::read_to_string(m.home().join(".clash/policy.star")).unwrap()
}

#[test]
fn a_rule_is_added_where_it_belongs_and_everything_else_stays() {
    let m = Machine::new(Who::Me).policy(POLICY);
    insta::assert_snapshot!(shown(&m, &["policy", "allow", "cargo", "build", "--sandbox", "rust_full", "-y"]), @r#"
    --- ~/.clash/policy.star
    +++ ~/.clash/policy.star
    @@ -1,6 +1,9 @@
    +load("@clash//rust.star", "rust_full")
    +
     # Mine.
     when({
         "Bash": {
             "git": ask(),  # always look
    +        "cargo": {"build": allow(sandbox = rust_full)},
         },
     })
    now allow: `cargo build` is allowed (rule at ~/.clash/policy.star:7)
    "#);
    m.clash(["policy", "deny", "--reason", "mine", "--yes", "--", "git", "push", "--force"])
        .succeeds()
        .says("now deny: `git push --force` is denied (rule at");
    m.bash("git push origin --force").is("deny", "mine");
    m.bash("git push").is("ask", "policy.star");
    m.clash(["policy", "remove", "--yes", "--", "git", "push", "--force"]).succeeds();
    m.bash("git push origin --force").is("ask", "policy.star");
    assert!(text(&m).contains("# always look"), "{}", text(&m));
}

#[test]
fn rules_for_other_tools_name_paths_hosts_and_fields() {
    let m = Machine::new(Who::Me).policy(POLICY);
    let rule = |args: &[&str]| {
        m.clash(["policy"].iter().chain(args).chain(&["--yes"])).succeeds();
    };
    rule(&["deny", "--tool", "Read", "$HOME/.ssh"]);
    rule(&["allow", "--tool", "WebFetch", "docs.rs"]);
    rule(&["allow", "--tool", "mcp__db__query"]);
    rule(&["deny", "--tool", "mcp__db__query", "sql", "drop *"]);
    let ask = |tool: &str, input| m.asks(tool, input);
    ask("Read", serde_json::json!({"file_path": m.home().join(".ssh/id")}))
        .is("deny", "policy.star");
    ask("WebFetch", serde_json::json!({"url": "https://docs.rs/x"})).is("allow", "policy.star");
    ask("mcp__db__query", serde_json::json!({"sql": "select"})).is("allow", "policy.star");
    ask("mcp__db__query", serde_json::json!({"sql": "drop table"})).is("deny", "policy.star");
}

#[test]
fn a_first_rule_makes_the_policy_file_and_undo_removes_it() {
    let m = Machine::new(Who::Me);
    m.clash(["policy", "allow", "make", "--sandbox", "project", "--yes"]).succeeds();
    let made = m.home().join(".config/clash/policy.star");
    assert!(fs::read_to_string(&made).unwrap().starts_with("load(\"@clash//sandboxes.star\""));
    m.bash("make").is("allow", "policy.star");
    m.clash(["policy", "undo", "--yes"]).succeeds();
    assert!(!made.exists());
}

#[test]
fn nothing_is_written_without_a_yes() {
    let m = Machine::new(Who::Me).policy(POLICY);
    m.clash(["policy", "allow", "make"])
        .exits(1)
        .says("+        \"make\"")
        .says("clash cannot ask");
    m.clash(["policy", "allow", "make", "--dry-run"]).exits(0).says("+        \"make\"");
    assert_eq!(text(&m), POLICY);
    // A word that begins with a dash is an option, unless `--` stands before the words.
    m.clash(["policy", "allow", "make", "-z"]).exits(2).says("unexpected argument '-z'");
    assert_eq!(text(&m), POLICY);
    m.clash(["policy", "allow", "make", "-y"]).succeeds();
    assert!(text(&m).contains("\"make\": allow()"), "{}", text(&m));
}

#[test]
fn a_rule_that_would_not_hold_is_refused_with_the_reason() {
    let m = Machine::new(Who::Me).policy(
        "when({\"Bash\": {\"cargo\": deny()}})\npolicy(\"p\", {\"Bash\": {\"rm\": deny()}})\n",
    );
    let before = text(&m);
    insta::assert_snapshot!(shown(&m, &["policy", "allow", "--scope", "project", "cargo", "-y"]), @"clash: nothing was changed: it would be deny all the same: `cargo` is denied (rule at ~/.clash/policy.star:1)");
    assert!(!m.project().join(".clash").exists());
    m.clash(["policy", "allow", "--tool", "Read", "$HOME/.ssh/id", "-y"])
        .exits(1)
        .says("it would be ask all the same")
        .says("does not grant read");
    m.clash(["policy", "allow", "--sandbox", "nowhere", "x", "-y"])
        .exits(1)
        .says("the sandbox `nowhere` is not defined");
    m.clash(["policy", "allow", "ls | sh", "-y"]).exits(1).says("needs a shell to be read");
    m.clash(["policy", "remove", "nothing", "-y"]).exits(1).says("there is no rule for");
    assert_eq!(text(&m), before);
    // Clash does not change a policy that does not compile.
    let m = m.policy("when({\"Bash\": {\"x\": alow()}})\n");
    m.clash(["policy", "allow", "y", "-y"]).exits(1).says("did you mean `allow`");
    assert!(!text(&m).contains('y'.to_string().as_str()) || !text(&m).contains("\"y\""));
}

#[test]
fn a_change_keeps_the_link_and_the_mode_of_the_file() {
    let m = Machine::new(Who::Me);
    let real = m.write("dotfiles/policy.star", POLICY);
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    m.make_dir(m.home().join(".clash"));
    let link = m.home().join(".clash/policy.star");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    m.clash(["policy", "allow", "make", "--yes"]).succeeds();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains("make"));
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn undo_goes_back_step_by_step_and_not_over_an_edit_by_hand() {
    let m = Machine::new(Who::Me).policy(POLICY);
    m.clash(["policy", "undo", "--yes"]).exits(1).says("no change to take back");
    m.clash(["policy", "allow", "a", "--yes"]).succeeds();
    let one = text(&m);
    m.clash(["policy", "allow", "b", "--yes"]).succeeds();
    m.clash(["policy", "undo", "--dry-run"]).exits(0).says("-        \"b\"");
    m.clash(["policy", "undo", "--yes"]).succeeds().says("taken back");
    assert_eq!(text(&m), one);
    let m = m.policy(&format!("{one}# by hand\n"));
    m.clash(["policy", "undo", "--yes"]).exits(1).says("was changed since");
    let m = m.policy(&one);
    m.clash(["policy", "undo", "--yes"]).succeeds();
    assert_eq!(text(&m), POLICY);
}

#[test]
fn a_project_rule_needs_trust_and_a_session_rule_does_not() {
    let m = Machine::new(Who::Me);
    m.clash(["policy", "allow", "--scope", "project", "make", "-y"])
        .succeeds()
        .says("not trusted: `clash trust`");
    m.bash("make").is("ask", "not trusted");
    m.clash(["policy", "allow", "--scope", "session", "make", "-y"]).exits(1).says("--session");
    let args = ["policy", "allow", "--scope", "session", "--session", "test-session", "ls", "-y"];
    m.clash(args).succeeds();
    m.bash("ls").is("allow", "sessions/test-session/policy.star");
    m.clash(["policy", "allow", "--scope", "session", "--session", "../x", "ls", "-y"])
        .exits(1)
        .says("there is no session `../x`");
}

#[test]
fn inside_a_sandbox_no_rule_can_be_made_that_permits() {
    let m = Machine::new(Who::Me).policy(POLICY);
    let bin = m.project().join("bin");
    m.make_dir(&bin);
    for name in ["clash", "clash-compile", "clash-door"] {
        copy_program(clash().with_file_name(name), bin.join(name));
    }
    m.inside("project", "bin/clash policy allow make --yes").fails();
    m.inside("project", "bin/clash policy allow --scope project make --yes");
    assert_eq!(text(&m), POLICY);
    // The command can make a policy file of its own project, but that permits nothing.
    m.bash("make").is("ask", "");
}

#[test]
fn fmt_checks_and_changes_the_layout() {
    let m = Machine::new(Who::Me).policy("when({'Bash':{'a':allow(),\n 'b':deny()}})  # x\n");
    m.clash(["fmt", "--check"]).exits(1).says(".clash/policy.star");
    m.clash(["fmt"]).succeeds();
    m.clash(["policy", "fmt", "--check"]).exits(0);
    assert!(text(&m).ends_with("# x\n"), "{}", text(&m));
    m.write("app/wrong.star", "when({");
    m.clash(["fmt", "wrong.star"]).exits(1).says("cannot be formatted");
    m.clash(["fmt", "none.star"]).exits(1).says("there is no policy");
}

const SETTINGS: &str = r#"{"permissions": {
    "deny": ["Bash(git push --force:*)", "nonsense rule"],
    "allow": ["Bash(npm run test)"]
}}"#;

#[test]
fn an_import_is_printed_with_the_rules_it_cannot_express() {
    let m = Machine::new(Who::Me);
    m.clash(["policy", "import"]).exits(1).says("no settings to import");
    m.write(".claude/settings.json", SETTINGS);
    insta::assert_snapshot!(shown(&m, &["policy", "import"]), @r##"
    # Imported from ~/.claude/settings.json (Claude Code settings).
    #
    # NOT ENFORCED: these restrictions could not be expressed.
    #   permissions.deny[1]: `nonsense rule`: it is not `Tool` or `Tool(…)`

    load("@clash//node.star", "node_full")

    settings(default = ask())

    policy("imported denies", {
        "Bash": {
            "git": {
                "push": {
                    # permissions.deny[0]: Bash(git push --force:*)
                    "--force": deny(),
                },
            },
        },
    })

    policy("imported allows", {
        "Bash": {
            "npm": {
                "run": {
                    "test": {
                        # permissions.allow[0]: Bash(npm run test)
                        end(): allow(sandbox = node_full),
                    },
                },
            },
        },
    })

    # ~/.claude/settings.json (Claude Code settings): 1 not enforced, 0 left out, 0 stricter
    #   NOT ENFORCED: permissions.deny[1]: `nonsense rule`: it is not `Tool` or `Tool(…)`
    "##);
    m.clash(["policy", "import", "--from", "codex"]).exits(1).says("no settings to import");
    let json: serde_json::Value =
        serde_json::from_str(&m.clash(["policy", "import", "--json"]).succeeds().stdout).unwrap();
    assert_eq!(json[0]["not_expressed"][0]["effect"], "deny");
}

#[test]
fn an_import_is_written_beside_the_policy_and_loaded_there() {
    let m = Machine::new(Who::Me).policy(
        "load(\"@clash//sandboxes.star\", \"project\")\n\nsettings(default_sandbox = project)\n",
    );
    let before = text(&m);
    m.write(".claude/settings.json", SETTINGS);
    m.write(".codex/rules/a.rules", "prefix_rule(pattern = [\"gh\"], decision = \"forbidden\")\n");
    m.clash(["policy", "import", "--write"]).exits(1).says("NOT ENFORCED").says("clash cannot ask");
    assert_eq!(text(&m), before);
    let ran: Ran = m.clash(["policy", "import", "--write", "--yes"]).succeeds();
    assert!(ran.stdout.contains("+load(\"imported_claude.star\", imported_claude = \"imported\")"));
    m.bash("git push --force").is("deny", "imported_claude.star");
    m.bash("npm run test").is("allow", "imported_claude.star");
    m.bash("gh pr list").is("deny", "imported_codex.star");
    m.clash(["policy", "import", "--write", "--yes"]).succeeds().says("nothing to change");
    m.clash(["policy", "undo", "--yes"]).succeeds();
    assert_eq!(text(&m), before);
    assert!(!m.home().join(".clash/imported_claude.star").exists());
}

#[test]
fn an_expectation_never_forbids_a_stricter_rule() {
    let text = "settings(default = ask())\nexpect(ask, \"git push --force\")\n";
    let m = Machine::new(Who::Me).policy(text);
    m.clash(["policy", "deny", "--yes", "--", "git", "push", "--force"]).succeeds();
    m.bash("git push --force").is("deny", "");
    m.clash(["policy", "check"]).says("expected ask, but it is deny");
    m.clash(["policy", "allow", "--yes", "--", "ls"]).succeeds();
    // Clash still refuses a more lenient rule.
    let m = Machine::new(Who::Me).policy(text);
    m.clash(["policy", "allow", "--yes", "--", "git", "push", "--force"])
        .exits(1)
        .says("expected ask, but it is allow");
}

#[test]
fn without_a_session_id_the_error_lists_the_sessions() {
    let m = Machine::new(Who::Me);
    let deny = ["policy", "deny", "--scope", "session", "--yes", "--", "git", "push"];
    m.clash(deny).exits(1).says("no agent has run with clash yet");
    m.bash("ls");
    m.clash(deny).exits(1).says("name it with `--session`").says("test-session");
}
