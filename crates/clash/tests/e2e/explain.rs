//! The texts that users read: `explain`, `sandbox`, help.

use crate::support::{Machine, Who};

const POLICY: &str = r#"load("@clash//rust.star", "rust_full")
when({
    "Bash": {
        "cargo": allow(sandbox = rust_full),
        "git push": {"--force": deny(reason = "rewriting shared history")},
    },
    "WebFetch": {"docs.rs": allow()},
})
"#;

/// The output, with `~` for the home, which differs between runs.
fn shown(m: &Machine, args: &[&str]) -> String {
    let ran = m.clash(args.iter().copied());
    let text = format!("{}{}", ran.stdout, ran.stderr);
    text.replace(&m.home().display().to_string(), "~")
        .lines()
        .map(|l| format!("{}\n", l.trim_end()))
        .collect()
}

/// The output without its last part, which is the output of `clash sandbox show` for the
/// sandbox of the decision.
#[track_caller]
fn before_sandbox(m: &Machine, sandbox: &str, args: &[&str]) -> String {
    let (whole, last) = (shown(m, args), shown(m, &["sandbox", "show", sandbox]));
    // `sandbox show` also lists the doors of the policy.
    let last = last.split("doors\n").next().unwrap();
    let before = whole.strip_suffix(last).and_then(|text| text.strip_suffix('\n'));
    before.unwrap_or_else(|| panic!("{whole}\ndoes not end with\n{last}")).to_owned()
}

#[test]
fn a_command_is_explained_with_its_rule_and_its_sandbox() {
    let m = Machine::new(Who::Me).policy(POLICY);
    insta::assert_snapshot!(before_sandbox(&m, "rust_full", &["explain", "bash", "cd x && cargo build"]), @r"
    allow: `cargo build` is allowed (rule at ~/.clash/policy.star:4)

    commands:
      allow  cd x  [needs no rule of its own]
      allow  cargo build  [user Bash > cargo at ~/.clash/policy.star:4, sandbox rust_full]
    ");
    insta::assert_snapshot!(shown(&m, &["explain", "bash", "git -C . push --force"]), @r"
    deny: `git -C . push --force` is denied (rule at ~/.clash/policy.star:5): rewriting shared history

    commands:
      deny   git -C . push --force  [user Bash > git > push > --force at ~/.clash/policy.star:5]
    ");
    insta::assert_snapshot!(before_sandbox(&m, "project", &["explain", "bash", "echo $(date)"]), @r"
    ask: `date` needs your approval: no rule matches it, the default is ask

    commands:
      ask    date  [default of the built-in policy at @clash//default.star:7, sandbox project]
      allow  echo $(date)  [needs no rule of its own]
    ");
}

#[test]
fn files_and_pages_are_explained_too() {
    let m = Machine::new(Who::Me).policy(POLICY);
    insta::assert_snapshot!(before_sandbox(&m, "project", &["explain", "read", "../notes.txt"]), @r"
    ask: `~/notes.txt` needs your approval: sandbox project does not grant read there

    because:
      ask    ~/notes.txt  [default of the built-in policy at @clash//default.star:7, sandbox project]
             sandbox project says ask read by its default
    ");
    insta::assert_snapshot!(shown(&m, &["explain", "read", "../.ssh/id_ed25519"]), @r"
    deny: `~/.ssh/id_ed25519` is denied: it holds ssh keys, and no rule names it

    because:
      deny   ~/.ssh/id_ed25519  [default of the built-in policy at @clash//default.star:7]
             sandbox project says deny read by the list of credentials (ssh keys)
    ");
    insta::assert_snapshot!(shown(&m, &["explain", "webfetch", "https://docs.rs/serde"]), @r"
    allow: `docs.rs` is allowed (rule at ~/.clash/policy.star:7)

    because:
      allow  docs.rs  [user WebFetch > docs.rs at ~/.clash/policy.star:7, sandbox project]
    ");
    insta::assert_snapshot!(shown(&m, &["explain", "write", ".claude/settings.json"]), @r"
    deny: `~/app/.claude/settings.json` is denied: it steers the agent or clash itself, which no sandbox may change

    because:
      deny   ~/app/.claude/settings.json  [clash's own]
    ");
    insta::assert_snapshot!(shown(&m, &["explain", "webfetch", "ftp://x"]), @"clash: WebFetch: `ftp://x` is not an http or https URL");
}

#[test]
fn json_says_the_same() {
    let m = Machine::new(Who::Me).policy(POLICY);
    let text = m.clash(["explain", "--json", "bash", "cargo build"]).succeeds().stdout;
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["effect"], "allow");
    assert_eq!(value["sandbox"]["name"], "rust_full");
    assert_eq!(value["parts"][0]["rule"]["keys"], serde_json::json!(["Bash", "cargo"]));
    for args in [["sandbox", "list"], ["sandbox", "show"], ["sandbox", "plan"]] {
        let name = if args[1] == "list" { None } else { Some("project") };
        let text = m.clash(args.into_iter().chain(name).chain(["--json"])).succeeds().stdout;
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
    }
}

#[test]
fn sandboxes_can_be_looked_at() {
    let m = Machine::new(Who::Me);
    insta::assert_snapshot!(shown(&m, &["sandbox", "show", "rust_full"]), @r"
    sandbox rust_full (@clash//rust.star:24): cargo, rustc and rustup: the project, the Rust toolchain, the network.
      allow rwcdx  $PWD/**
      allow rwcdx  $TMPDIR/**
      allow r      $HOME/.gitconfig
      allow r      $HOME/.config/git/attributes
      allow r      $HOME/.config/git/config
      allow r      $HOME/.config/git/ignore
      cache rwcdx  $CARGO_HOME/registry/**
      cache rwcdx  $CARGO_HOME/git/**
      allow rx     $CARGO_HOME/bin/**
      masked r, without secrets  $CARGO_HOME/config.toml
      masked r, without secrets  $CARGO_HOME/config
      allow rx     $RUSTUP_HOME/**
      cache rwcdx  $SCCACHE_DIR/**
      allow rx     the system's programs and libraries
      ask   rwcdx  every other path: commands are blocked, file tools ask
      allow        network
      serve        3000, 3001, 4000, 4200, 4321, 5000, 5173, 8000, 8080, 8081, 8888, 9000
    ");
    insta::assert_snapshot!(shown(&m, &["sandbox", "show", "project"]), @r"
    sandbox project (@clash//sandboxes.star:9): The project and the session's temporary directory; no network.
      allow rwcdx  $PWD/**
      allow rwcdx  $TMPDIR/**
      allow r      $HOME/.gitconfig
      allow r      $HOME/.config/git/attributes
      allow r      $HOME/.config/git/config
      allow r      $HOME/.config/git/ignore
      allow rx     the system's programs and libraries
      ask   rwcdx  every other path: commands are blocked, file tools ask
      deny         network
    ");
    insta::assert_snapshot!(shown(&m, &["sandbox", "show", "rust"]), @r"
    clash: there is no sandbox `rust`

    hint: known are agent, asked_web, git_checkout_safe, git_full, git_hooks, git_rebase_safe, git_safe, online, project, readonly, rust_full, rust_global, rust_safe, unrestricted, workspace
    ");
    m.clash(["sandbox", "plan", "project"]).succeeds().says("landlock").says("seccomp");
}

#[test]
fn a_project_that_is_the_home_is_refused() {
    let m = Machine::new(Who::Me);
    let home = m.home().display().to_string();
    let ran = m.clash(["sandbox", "exec", "project", "--project", &home, "--", "true"]);
    ran.exits(125).says("is the home directory or above it").says("hint:");
}

#[test]
fn help_names_every_command() {
    let m = Machine::new(Who::Me);
    let help = m.clash(["--help"]).succeeds().stdout;
    for verb in [
        "install",
        "uninstall",
        "status",
        "doctor",
        "explain",
        "policy",
        "fmt",
        "trust",
        "log",
        "sandbox",
        "exec",
        "hook",
    ] {
        assert!(help.contains(verb), "{verb}");
        m.clash([verb, "--help"]).succeeds().says("Usage:");
    }
    m.clash(["frobnicate"]).exits(2);
}

#[test]
fn a_command_can_be_given_as_words_or_as_one_text() {
    let m = Machine::new(Who::Me);
    let said = |args: &[&str]| m.clash([&["explain"], args].concat()).succeeds().stdout;
    let whole = said(&["bash", "cargo build"]);
    assert_eq!(said(&["cargo build"]), whole);
    assert_eq!(said(&["bash", "cargo", "build"]), whole);
    assert_eq!(said(&["cargo", "build"]), whole);
    assert_eq!(said(&["bash", "--", "cargo", "build"]), whole);
    assert!(said(&["echo", "a b"]).contains("'a b'"));
}
