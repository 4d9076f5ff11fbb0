//! `clash trust`: the user trusts the policy of a repository.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::policy::shown;
use crate::support::{Machine, Ran, Who, as_each_user, clash, copy_program};

const PROJECT: &str = "load(\"more.star\", \"what\")\nwhen({\"Bash\": {\"make\": what}})\n";

/// A machine whose project has a policy of two files.
fn with_project_policy() -> Machine {
    let m = Machine::new(Who::Me);
    m.write("app/.clash/policy.star", PROJECT);
    m.write("app/.clash/more.star", "what = allow()\n");
    m
}

#[test]
fn a_policy_and_its_effect_are_shown_before_trust() {
    let m = with_project_policy();
    m.bash("make").is("ask", "not trusted");
    insta::assert_snapshot!(shown(&m, &["trust", "--yes"]), @r#"
    .clash/policy.star:
      load("more.star", "what")
      when({"Bash": {"make": what}})

    .clash/more.star:
      what = allow()

    Trusted, it would change what is permitted:
    more permitted
      Bash make: ask in project (~/app/.clash/more.star:1) → allow in project (~/app/.clash/more.star:1), and 1 like it

    ~/app is trusted
    "#);
    m.bash("make").is("allow", "more.star:1");
    insta::assert_snapshot!(shown(&m, &["trust", "--yes"]), @"~/app is trusted already");
}

#[test]
fn any_change_ends_trust_and_is_shown() {
    let m = with_project_policy();
    m.clash(["trust", "--yes"]).succeeds();
    for (file, text) in [
        ("app/.clash/more.star", "what = allow()\n# more\n"),
        ("app/.clash/policy.star", "when({\"Bash\": {\"make\": allow()}})\n"),
    ] {
        m.write(file, text);
        m.bash("make").is("ask", "not trusted");
        m.clash(["trust", "--yes"]).succeeds().says("--- .clash/");
        m.bash("make").is("allow", "");
    }
    // The same text under another name is another policy.
    let m = with_project_policy();
    m.clash(["trust", "--yes"]).succeeds();
    m.write("app/.clash/policy.star", &PROJECT.replace("more.star", "same.star"));
    fs::rename(m.project().join(".clash/more.star"), m.project().join(".clash/same.star")).unwrap();
    m.bash("make").is("ask", "not trusted");
}

#[test]
fn trust_is_for_the_project_it_was_given_for() {
    let m = with_project_policy();
    m.clash(["trust", "--yes"]).succeeds();
    for file in ["policy.star", "more.star"] {
        let text = fs::read_to_string(m.project().join(".clash").join(file)).unwrap();
        m.write(format!("other/.clash/{file}"), &text);
    }
    let other = m.outside().display().to_string();
    m.clash(["explain", "--project", &other, "bash", "make"]).says("not trusted");
    m.clash(["trust", &other, "--yes"]).succeeds();
    m.clash(["explain", "--project", &other, "bash", "make"]).says("allow:");
}

#[test]
fn trust_can_be_listed_and_taken_back() {
    let m = with_project_policy();
    insta::assert_snapshot!(shown(&m, &["trust", "--list"]), @"no project is trusted");
    m.clash(["trust", "--revoke"]).exits(1).says("is not trusted");
    m.clash(["trust", "--yes"]).succeeds();
    let list = || -> Value {
        serde_json::from_str(&m.clash(["trust", "--list", "--json"]).succeeds().stdout).unwrap()
    };
    assert_eq!(list()[0]["state"], "trusted");
    assert_eq!(list()[0]["project"], m.project().display().to_string());
    m.write("app/.clash/more.star", "what = deny()\n");
    assert_eq!(list()[0]["state"], "changed");
    m.clash(["trust", "--list"]).succeeds().says("changed");
    m.clash(["trust", "--revoke"]).succeeds();
    assert_eq!(list(), serde_json::json!([]));
    // The user can also revoke the trust in a policy that no longer exists.
    m.clash(["trust", "--yes"]).succeeds();
    fs::remove_dir_all(m.project().join(".clash")).unwrap();
    assert_eq!(list()[0]["state"], "gone");
    let project = m.project().display().to_string();
    m.clash(["trust", "--revoke", &project]).succeeds();
}

#[test]
fn without_a_yes_nothing_is_trusted() {
    let m = with_project_policy();
    m.clash(["trust"]).exits(1).says("clash cannot ask").says("hint: `--yes`");
    assert!(!m.state().join("trust").exists());
}

#[test]
fn trust_records_are_private_and_a_damaged_one_gives_no_trust() {
    let m = with_project_policy();
    m.clash(["trust", "--yes"]).succeeds();
    let dir = m.state().join("trust");
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    let files: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
    // A damaged record gives no trust.
    fs::write(files[0].path(), "{").unwrap();
    m.bash("make").is("ask", "not trusted");
}

#[test]
fn policies_with_links_out_or_errors_cannot_be_trusted() {
    let m = with_project_policy();
    let elsewhere = m.write("other/policy.star", "when({\"Bash\": allow()})");
    let policy = m.project().join(".clash/policy.star");
    fs::remove_file(&policy).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &policy).unwrap();
    m.clash(["trust", "--yes"]).exits(1).says("this policy cannot be trusted").says("cannot read");
    fs::remove_file(&policy).unwrap();
    m.clash(["trust", "--yes"]).exits(1).says("there is no policy");
    m.write("app/.clash/policy.star", "alow()");
    m.clash(["trust", "--yes"]).exits(1).says("did you mean `allow`");
    assert!(!m.state().join("trust").exists());
}

#[test]
fn a_text_that_hides_a_part_of_itself_is_spelled_out() {
    let m = with_project_policy();
    m.write("app/.clash/more.star", "what = allow() # \u{202e}\u{1b}[2K\u{61c}\u{e0041}\n");
    let text = m.clash(["trust", "--yes"]).succeeds().stdout;
    assert!(
        text.contains(r"# \u{202e}\u{1b}[2K\u{61c}\u{e0041}") && !text.contains('\u{1b}'),
        "{text}"
    );
}

#[test]
fn inside_a_sandbox_nothing_can_be_trusted() {
    as_each_user(|m| {
        m.write("app/.clash/policy.star", "when({\"Bash\": {\"make\": allow()}})");
        // The program can run there. It fails because the state directory is out of reach.
        let bin = m.project().join("bin");
        m.make_dir(&bin);
        for name in ["clash", "clash-compile", "clash-door"] {
            copy_program(clash().with_file_name(name), bin.join(name));
        }
        m.make_dir(m.state());
        let inside = |script: &str| -> Ran { m.inside("project", script) };
        inside("bin/clash --version").succeeds();
        inside("bin/clash trust --yes").fails();
        inside(&format!("mkdir -p {}", m.state().join("trust").display())).fails();
        assert!(!m.state().join("trust").exists());
        m.bash("make").is("ask", "not trusted");
        // A record in another state directory does not count for this one.
        inside("XDG_STATE_HOME=$PWD/state bin/clash trust --yes");
        m.bash("make").is("ask", "not trusted");
    });
}

/// As long as the user does not trust the project, its allow turns the user's allow into an
/// ask.
#[test]
fn the_change_is_shown_against_the_policy_in_force() {
    let user = "when({\"Bash\": {\"npm\": {glob(\"**\"): allow()}}})\n";
    let m = Machine::new(Who::Me).policy(user);
    m.write("app/.clash/policy.star", "when({\"Bash\": {\"npm\": {\"test\": allow()}}})\n");
    m.bash("npm test").is("ask", "");
    let ran =
        m.clash(["trust", "--yes"]).succeeds().says("more permitted").says("Bash npm test: ask");
    assert!(!ran.stdout.contains("change nothing"), "{ran:?}");
    m.bash("npm test").is("allow", "");
}
