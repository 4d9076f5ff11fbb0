use super::*;
use clash_policy::decide::Cause;
use clash_policy::path::{NoLinks, Places};
use clash_policy::{Action, Effect, World, decide, ir};

/// Files by name, as a policy's `load()` would find them.
#[derive(Default)]
struct Files(Vec<(&'static str, String)>);

impl Sources for Files {
    fn read(&self, path: &Path) -> io::Result<String> {
        let found = self.0.iter().find(|(name, _)| Path::new(name) == path);
        found.map(|(_, text)| text.clone()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn layer(policy: &str) -> Result<Layer, Diagnostic> {
    let files = Files(vec![("/p/policy.star", policy.to_owned())]);
    compile("/p/policy.star", LayerKind::User, true, &files).map(|compiled| compiled.layer)
}

fn mistake(policy: &str) -> String {
    layer(policy).unwrap_err().to_string()
}

fn decided(policy: &str, script: &str) -> (Effect, String, String) {
    let built_in = compile(library::BUILT_IN, LayerKind::BuiltIn, true, &Files::default()).unwrap();
    let bytes = ir::encode(&[layer(policy).unwrap(), built_in.layer], &[], 0);
    let places = Places::imagined();
    let world = World { places: &places, links: &NoLinks, baseline: &[], cage: &[] };
    let action = Action::script("claude", "default", script);
    let decision = decide(ir::Ir::open(&bytes, 0).unwrap(), &action, &world).unwrap();
    let cause = match &decision.decisive().unwrap().cause {
        Cause::Rule { span, trail, .. } => {
            format!("{} {span}", trail.join(" > "))
        }
        other => format!("{other:?}"),
    };
    (decision.effect, decision.sandbox.unwrap().name, cause)
}

/// The sandbox of the post that introduced ecosystem presets, as it stands there.
const RUST_FULL: &str = r#"
rust_full = sandbox(
name = "rust_full",
default = ask(),
fs = {
subpath("$PWD", follow_worktrees=True): allow(FULL),
"$HOME": {
glob(".cargo/**"): allow(),
glob(".rustup/**"): allow(),
},
glob("$TMPDIR/**"): allow(),
},
net = allow(),
)
"#;

/// The generated policy of the same post.
const GENERATED: &str = r#"
load("@clash//sandboxes.star", "project")
load("@clash//rust.star", "rust_full")
load("@clash//sandboxes.star", "git_safe", "git_full")
when({"Bash": {
("cargo", "rustc", "rustup"): allow(sandbox = rust_full),
"git": allow(sandbox = git_full),
}})
"#;

#[test]
fn the_rust_sandbox_of_the_post_compiles_to_what_it_says() {
    let layer = layer(RUST_FULL).unwrap();
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
fn the_generated_policy_of_the_post_routes_its_commands() {
    let (effect, sandbox, cause) = decided(GENERATED, "cargo build");
    assert_eq!((effect, sandbox.as_str()), (Effect::Allow, "rust_full"));
    assert_eq!(cause, "Bash > cargo /p/policy.star:6");
    assert_eq!(decided(GENERATED, "git push").1, "git_full");
    let (effect, sandbox, _) = decided(GENERATED, "npm test");
    assert_eq!((effect, sandbox.as_str()), (Effect::Ask, "project"));
}

#[test]
fn several_whens_are_one_tree() {
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
fn effects_may_be_given_uncalled_and_reasons_are_kept() {
    let policy = r#"when({"Bash": {"make": allow, "sudo": deny(reason = "no root")}})"#;
    assert_eq!(decided(policy, "make").0, Effect::Allow);
    assert_eq!(decided(policy, "sudo ls").0, Effect::Deny);
}

#[test]
fn a_file_beside_the_policy_can_be_loaded_and_nothing_else() {
    let files = |load: &str| {
        Files(vec![
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
fn mistakes_point_at_the_line_and_say_what_would_be_right() {
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
fn a_policy_that_does_not_end_is_stopped() {
    for policy in [
        "def f():\n  for i in range(2000000000):\n    pass\nf()",
        "def f(x):\n  return f(x + 1)\nf(0)",
        "load(\"policy.star\", \"x\")",
    ] {
        assert!(layer(policy).is_err(), "{policy}");
    }
}

#[test]
fn every_library_module_compiles() {
    for (name, _) in library::modules() {
        compile(name, LayerKind::BuiltIn, true, &Files::default()).unwrap();
    }
}
