//! The warnings about probable mistakes.

use clash_lang::compile;
use clash_policy::rule::LayerKind;

use crate::support::{POLICY_FILE, PUBLISHED_SANDBOX, SourceTexts};

/// The warnings about a policy, a line each.
fn warned(policy: &'static str) -> String {
    let compiled =
        compile(POLICY_FILE, LayerKind::User, true, &SourceTexts::policy(policy)).unwrap();
    let shown = compiled.warnings.iter().map(|w| {
        let hint = w.hint.as_deref().unwrap_or_default();
        format!("{}:{} {}: {} / {hint}", w.span.line, w.span.column, w.kind, w.message)
    });
    shown.collect::<Vec<_>>().join("\n")
}

#[test]
fn an_unreachable_rule_is_found() {
    insta::assert_snapshot!(warned(r#"
when({"Bash": {
    "git": {
        ("push", "fetch"): allow(),
        "push": deny(),
        "fetch": ask(),
    },
    ("cargo", "make"): allow(),
    "make": deny(),
}})
"#), @"4:28 unreachable: never reached: for `Bash > git > push|fetch` the rule at /p/policy.star:5 decides before this allow / the more specific key decides, and of the same key the stricter rule");
}

#[test]
fn a_rule_that_opens_credentials_is_found() {
    insta::assert_snapshot!(warned(r#"
s = sandbox("s", fs = {"$HOME": allow("r"), "$HOME/.ssh": deny(), "$PWD": allow()})
t = sandbox("t", fs = {"$HOME": {".aws": allow("r"), ".cargo/registry": allow()}})
when({"Bash": {"a": allow(sandbox = s), "b": allow(sandbox = t)}})
"#), @r#"
    2:33 credentials: `$HOME/**` opens `~/.gnupg`, `~/.aws`, `~/.azure` and 27 more / grant a narrower path, or add "$HOME/.gnupg": deny()
    3:42 credentials: `$HOME/.aws/**` opens `~/.aws` / grant a narrower path, or add "$HOME/.aws": deny()
    "#);
}

#[test]
fn a_deny_without_effect_is_found() {
    insta::assert_snapshot!(warned(r#"
s = sandbox("s", fs = {
    "$PWD": allow(),
    "$PWD/.env": deny(),
    "$HOME/.ssh": deny(),
    "/etc": deny(),
})
when({"Bash": allow(sandbox = s)})
"#), @"5:19 redundant-deny: this deny can never matter: sandbox `s` allows nothing at `$HOME/.ssh/**` / the default of the sandbox denies it already");
}

#[test]
fn open_defaults_and_unused_sandboxes_are_found() {
    insta::assert_snapshot!(warned(r#"
s = sandbox("s", default = allow())
base = sandbox("base", fs = {"$PWD": allow()})
t = sandbox("t", extends = base)
settings(default = allow(), default_sandbox = t)
"#), @r"
    5:20 open-default: every action that no rule matches is allowed / with default = ask() the user decides, and each answer can become a rule
    2:5 open-sandbox: sandbox `s` allows every path that no key names / default = deny() or ask(), and a key for each path that is needed
    2:5 unused-sandbox: sandbox `s` is never used / name it in a rule: allow(sandbox = s)
    ");
}

#[test]
fn two_different_when_calls_are_found() {
    insta::assert_snapshot!(warned(r#"
when({"Bash": {"git": allow()}})
when({"Bash": {"git": ask()}})
"#), @"2:23 overlapping: allow is overruled by ask at /p/policy.star:3 / two when() calls say different things about the same key; the stricter holds");
}

/// A policy as users write it. The formatter's tests use the same file.
const EXAMPLE: &str = include_str!("example.star");

#[test]
fn good_policies_have_no_warnings() {
    assert_eq!(warned(EXAMPLE), "");
    assert_eq!(
        warned(
            r#"
load("@clash//sandboxes.star", "project")
load("@clash//rust.star", "rust_full")
load("@clash//sandboxes.star", "git_safe", "git_full")
when({"Bash": {
("cargo", "rustc", "rustup"): allow(sandbox = rust_full),
"git": allow(sandbox = git_full),
}})
"#
        ),
        ""
    );
    assert_eq!(
        warned(
            r#"
when({
    "Bash": {"rm": {("-r", "-f"): deny()}, "npm run": {"test*": allow()}, "x": {end(): allow()}},
    "Read": {"$PWD": allow(), glob("**/.env"): deny(), "$HOME/.config": ask()},
    "mcp__*": {"path": {"/tmp/*": allow()}},
    tool(): ask(),
    agent("codex"): {"Bash": {"git": deny(), glob("**"): ask()}},
    "WebFetch": {exact("a.test"): allow(), "10.0.0.0/8": deny(), glob("**"): ask()},
})
"#
        ),
        ""
    );
}

#[test]
fn a_published_sandbox_opens_only_the_token_of_cargo() {
    insta::assert_snapshot!(warned(PUBLISHED_SANDBOX), @r#"8:20 credentials: `$HOME/.cargo/**` opens `~/.cargo/credentials.toml` / grant a narrower path, or add "$HOME/.cargo/credentials.toml": deny()"#);
}

/// Modules with a sandbox that opens credentials on purpose.
const OPENS_CREDENTIALS: &[&str] =
    &["@clash//git.star", "@clash//github.star", "@clash//kubernetes.star"];

#[test]
fn the_library_has_no_warnings_as_a_user_policy() {
    for (name, source) in clash_lang::modules() {
        // As if the module were a file of the user.
        let files = SourceTexts::policy(source);
        let compiled = compile("/p/policy.star", LayerKind::User, true, &files);
        let warnings = compiled.unwrap_or_else(|error| panic!("{name}: {error}")).warnings;
        let kinds: Vec<_> = warnings
            .iter()
            // For example, git_full exists to use keys.
            .filter(|w| w.kind != "credentials" || !OPENS_CREDENTIALS.contains(&name))
            .collect();
        assert!(kinds.is_empty(), "{name}: {kinds:?}");
    }
}

#[test]
fn amazon_q_is_known_by_the_name_it_has_in_clash() {
    assert_eq!(warned(r#"when({agent("q"): {"Bash": {"ls": allow()}}})"#), "");
}

#[test]
fn a_credential_that_everywhere_denies_is_not_opened() {
    let policy = r#"
everywhere(fs = {"$HOME/.aws": deny()})
s = sandbox("s", fs = {"$HOME/.aws": allow("r")})
when({"Bash": {"a": allow(sandbox = s)}})
"#;
    assert_eq!(warned(policy), "");
}
