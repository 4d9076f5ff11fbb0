//! Policies that compile, and their decisions.

use std::io;
use std::path::Path;

use clash_lang::{SourceReader, compile};
use clash_policy::rule::LayerKind;
use clash_policy::{Action, Effect, ir};

use crate::support::{PUBLISHED_SANDBOX, SourceTexts, decision, layer, layer_of, mistake, on};

/// The effect, sandbox and cause of a policy's decision about a script.
fn decided(policy: &str, script: &str) -> (Effect, String, String) {
    decision(&layer(policy).unwrap(), &Action::script("claude", "default", script))
}

/// A generated policy of the same article.
const PUBLISHED_POLICY: &str = r#"
load("@clash//sandboxes.star", "project")
load("@clash//rust.star", "rust_full")
load("@clash//sandboxes.star", "git_safe", "git_full")
when({"Bash": {
("cargo", "rustc", "rustup"): allow(sandbox = rust_full),
"git": allow(sandbox = git_full),
}})
"#;

#[test]
fn a_published_rust_sandbox_compiles_rule_by_rule() {
    let layer = layer(PUBLISHED_SANDBOX).unwrap();
    let sandbox = &layer.sandboxes[0];
    let rules: Vec<_> =
        sandbox.fs.iter().map(|r| format!("{} {} {}", r.pattern, r.effect, r.caps)).collect();
    insta::assert_snapshot!(format!("{} {:?} {:?}\n{}", sandbox.name, sandbox.default, sandbox.net, rules.join("\n")), @r"
    rust_full Ask Allow
    $PWD/** allow rwcdx
    $HOME/.cargo/** allow rwcdx
    $HOME/.rustup/** allow rwcdx
    $TMPDIR/** allow rwcdx
    ");
    assert!(matches!(
        &sandbox.fs[0].pattern,
        clash_policy::PathPattern::Subpath { follow_worktrees: true, .. }
    ));
}

#[test]
fn a_published_policy_routes_its_commands() {
    let (effect, sandbox, cause) = decided(PUBLISHED_POLICY, "cargo build");
    assert_eq!((effect, sandbox.as_str()), (Effect::Allow, "rust_full"));
    assert_eq!(cause, "Bash > cargo /p/policy.star:6");
    assert_eq!(decided(PUBLISHED_POLICY, "git push").1, "git_full");
    let (effect, sandbox, _) = decided(PUBLISHED_POLICY, "npm test");
    assert_eq!((effect, sandbox.as_str()), (Effect::Ask, "project"));
}

#[test]
fn several_when_calls_are_one_tree() {
    let policy = r#"
when({"Bash": {glob("**"): deny()}})
when({"Bash": {"git": allow()}})
when({"Bash": {"git": {"push": deny()}}})
when({"Bash": {"git push": {"--dry-run": ask()}}})
"#;
    assert_eq!(decided(policy, "git status").0, Effect::Allow);
    assert_eq!(decided(policy, "git push").0, Effect::Deny);
    assert_eq!(decided(policy, "make").0, Effect::Deny);
}

#[test]
fn an_effect_needs_no_parentheses() {
    let policy = r#"when({"Bash": {"make": allow, "sudo": deny(reason = "no root")}})"#;
    assert_eq!(decided(policy, "make").0, Effect::Allow);
    assert_eq!(decided(policy, "sudo ls").0, Effect::Deny);
}

#[test]
fn only_files_beside_the_policy_can_be_loaded() {
    let files = |load: &str| {
        SourceTexts(vec![
            ("/p/policy.star", format!("load(\"{load}\", \"x\")\nsettings(default_sandbox = x)")),
            ("/p/team.star", "x = sandbox(name = \"x\")".to_owned()),
            ("/etc/x.star", "x = sandbox(name = \"x\")".to_owned()),
        ])
    };
    let try_load = |load: &str| compile("/p/policy.star", LayerKind::User, true, &files(load));
    assert_eq!(try_load("team.star").unwrap().layer.settings.default_sandbox.as_deref(), Some("x"));
    assert!(try_load("/etc/x.star").is_err() && try_load("../etc/x.star").is_err());
}

#[test]
fn an_error_shows_its_line_and_a_hint() {
    insta::assert_snapshot!(mistake("x = 1\nwhen({\"Bash\": {\"git\": alow()}})"), @r#"
    /p/policy.star:2:23: variable `alow` not found, did you mean `allow`?
      |
    2 | when({"Bash": {"git": alow()}})
      |                       ^
    "#);
    insta::assert_snapshot!(mistake("when({\"Bash\": {\"git\": \"allow\"}})"), @r#"
    /p/policy.star:1:23: expected an effect, found string `allow`
      |
    1 | when({"Bash": {"git": "allow"}})
      |                       ^

    hint: without quotes: allow()
    "#);
    insta::assert_snapshot!(mistake("sandbox(name = \"x\", fs = {\"src\": allow()})"), @r#"
    /p/policy.star:1:27: `src` is a relative path
      |
    1 | sandbox(name = "x", fs = {"src": allow()})
      |                           ^

    hint: start it with $PWD, $HOME, $TMPDIR or /: "$PWD/src"
    "#);
    insta::assert_snapshot!(mistake("a = allow(\"rz\")"), @r#"
    /p/policy.star:1:5: `z` is not a capability
      |
    1 | a = allow("rz")
      |     ^

    hint: the letters are r (read), w (write), c (create), d (delete), x (execute)
    "#);
    insta::assert_snapshot!(mistake("when({\"Bash\": allow(sandbox = \"project\")})"), @r#"
    /p/policy.star:1:15: there is no sandbox `project`
      |
    1 | when({"Bash": allow(sandbox = "project")})
      |               ^

    hint: load("@clash//sandboxes.star", "project") or project = sandbox(…)
    "#);
    insta::assert_snapshot!(mistake("x = sandbox(name = \"x\")\ny = sandbox(name = \"x\")"), @r#"
    /p/policy.star:2:5: sandbox `x` is defined twice
      |
    2 | y = sandbox(name = "x")
      |     ^

    hint: it was first defined at /p/policy.star:1
    "#);
    insta::assert_snapshot!(mistake("when({\"Bash\": {"), @r#"
    /p/policy.star:1:16: parse error: unexpected new line, expected expression
      |
    1 | when({"Bash": {
      |                ^
    "#);
}

#[test]
fn every_library_module_compiles() {
    for module in clash_lang::docs(None).unwrap().modules {
        compile(&module.name, LayerKind::BuiltIn, true, &SourceTexts::default()).unwrap();
    }
}

/// A policy with every argument of `sandbox()` but the older `tree`.
const WHOLE_SANDBOX: &str = r#"
base = sandbox("base", fs = {"$PWD": cow()}, limits = {"memory": "4G", "wall": "30m"})
s = sandbox(
    name = "s",
    doc = "what it is for",
    extends = base,
    default = ask(),
    fs = {
        "$HOME": {literal(".gitconfig"): allow("r"), glob("*"): deny("w")},
        glob("**/.env"): deny(),
        "/srv": {regex(r".*\.log"): ask("r")},
    },
    net = {
        "github.com": allow(),
        exact("docs.rs:443"): allow(),
        "*.corp.test": ask(),
        "10.0.0.0/8": deny(),
        localhost(8080): allow(),
        default(): ask(),
    },
    serve = [3000, 5173],
    env = {("GITHUB_TOKEN", "CI_*"): allow(), "AWS_*": deny()},
    limits = {"processes": 500, "cpu": "10m", "file_size": "2G", "files": 9000},
    protect = [".husky"],
    unprotect = [".vscode"],
    lifetime = "detached",
    doors = ["git"],
)
settings(default_sandbox = s, on_sandbox_violation = "smart", harness_defaults = False)
policy("p", {"Bash": {"a": {end(): allow(sandbox = s)}}, mode("plan"): ask(reason = "why")},
       default = deny(reason = "no rule"), doc = "of the policy")
"#;

#[test]
fn every_argument_of_sandbox_reaches_the_layer() {
    let layer = layer(WHOLE_SANDBOX).unwrap();
    let image = ir::encode(std::slice::from_ref(&layer), &[], 7);
    let again = ir::IrImage::open(&image, 7).unwrap().to_layers().unwrap();
    assert_eq!(again, std::slice::from_ref(&layer));
    let s = layer.sandboxes.iter().find(|sandbox| sandbox.name == "s").unwrap();
    let fs: Vec<_> =
        s.fs.iter()
            .map(|r| {
                format!(
                    "{} {} {} {}",
                    r.effect,
                    r.caps,
                    r.pattern,
                    r.writes != clash_policy::WriteTarget::InPlace
                )
            })
            .collect();
    insta::assert_snapshot!(fs.join("\n"), @r"
    allow rwcdx $PWD/** true
    allow r $HOME/.gitconfig false
    deny w $HOME/* false
    deny rwcdx /**/.env false
    ask r /srv/regex(.*\.log) false
    ");
    let clash_policy::NetworkAccess::Hosts { rules, default } = &s.net else {
        panic!("{:?}", s.net)
    };
    let net: Vec<_> = rules.iter().map(|r| format!("{} {r}", r.effect)).collect();
    insta::assert_snapshot!(format!("{}\n{default}", net.join("\n")), @r"
    allow github.com
    allow exactly docs.rs:443
    ask *.corp.test
    deny 10.0.0.0/8
    allow localhost:8080
    ask
    ");
    let env: Vec<_> = s.env.iter().map(|r| format!("{} {}", r.name, r.effect)).collect();
    assert_eq!(env, ["GITHUB_TOKEN allow", "CI_* allow", "AWS_* deny"]);
    assert_eq!(
        s.limits.named().map(|(_, limit)| limit.unwrap()),
        [4 << 30, 500, 600, 1800, 2 << 30, 9000]
    );
    assert_eq!((s.serve.as_slice(), s.doc.as_str()), (&[3000, 5173][..], "what it is for"));
    assert_eq!(s.lifetime, Some(clash_policy::ProcessLifetime::Detached));
    assert_eq!(s.doors, ["git"]);
    assert!(s.protect.standard);
    assert_eq!(
        (&s.protect.also[..], &s.protect.except[..]),
        (&[".husky".to_owned()][..], &[".vscode".to_owned()][..])
    );
    assert_eq!(layer.groups[0].doc, "of the policy");
    let default = layer.settings.default.unwrap();
    assert_eq!((default.effect, default.reason.as_deref()), (Effect::Deny, Some("no rule")));
}

/// A policy on a machine with settings of Claude Code.
struct ImportedSettings(&'static str);

impl SourceReader for ImportedSettings {
    fn read(&self, _: &Path) -> io::Result<String> {
        Ok(self.0.to_owned())
    }

    fn claude_settings(&self, user: bool, project: bool) -> Vec<(String, String)> {
        let own = r#"
settings(default = allow())
claude = sandbox(name = "claude", fs = {"$PWD": allow()})
when({"Bash": {"git": {"push": deny()}, "npm": allow(sandbox = claude)}})
"#;
        let shared = r#"policy("shared", {"Bash": {"make": deny()}})"#;
        let all =
            [(user, "~/.claude/settings.json", own), (project, ".claude/settings.json", shared)];
        let said = all.into_iter().filter(|(wanted, ..)| *wanted);
        said.map(|(_, origin, text)| (origin.to_owned(), text.to_owned())).collect()
    }
}

#[test]
fn claude_settings_become_policies_of_their_own() {
    let policy = r#"
load("@clash//claude_compat.star", "from_claude_settings")
settings(default = deny())
policy("x", merge(from_claude_settings(), {"Bash": {("git", "make"): allow()}}))
"#;
    let layer = layer_of(&ImportedSettings(policy)).unwrap();
    for (script, expected) in [
        ("git log", Effect::Allow),
        ("git push", Effect::Deny),
        ("make", Effect::Deny),
        ("npm test", Effect::Allow),
        ("ls", Effect::Deny),
    ] {
        assert_eq!(on(&layer, script).0, expected, "{script}");
    }
    assert_eq!(on(&layer, "npm test").1, "claude");
    let only_project = layer_of(&ImportedSettings("from_claude_settings(user = False)")).unwrap();
    assert_eq!(on(&only_project, "make").0, Effect::Deny);
    assert_eq!(on(&only_project, "git push").0, Effect::Ask);
    assert!(
        layer_of(&SourceTexts(vec![("/p/policy.star", "from_claude_settings()".to_owned())]))
            .is_ok()
    );
}

#[test]
fn an_error_in_settings_names_the_settings_file() {
    struct BrokenSettings;
    impl SourceReader for BrokenSettings {
        fn read(&self, _: &Path) -> io::Result<String> {
            Ok("from_claude_settings()".to_owned())
        }
        fn claude_settings(&self, _: bool, _: bool) -> Vec<(String, String)> {
            vec![("settings.json".to_owned(), "when({\"Bash\": 3})".to_owned())]
        }
    }
    insta::assert_snapshot!(layer_of(&BrokenSettings).unwrap_err(), @r#"
    settings.json:1:15: expected an effect, found int `3`
      |
    1 | when({"Bash": 3})
      |               ^

    hint: an effect is allow(…), deny(…) or ask(…)
    "#);
}

#[test]
fn an_expectation_counts_the_rules_of_everywhere() {
    let policy = r#"
everywhere(fs = {glob("$PWD/**/.env"): deny()})
s = sandbox("s", fs = {"$PWD": allow()})
when({"Read": allow(sandbox = s)})
expect(allow, tool = "Read", path = "src/main.rs")
expect(deny, tool = "Read", path = "src/.env")
"#;
    assert_eq!(layer(policy).map(|_| ()), Ok(()));
}
