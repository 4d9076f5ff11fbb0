use super::*;
use clash_policy::decide::DecisionCause;
use clash_policy::path::{NoLinks, PolicyPlaces};
use clash_policy::{Action, Effect, JudgeContext, decide, ir};

/// Files by name, as a policy's `load()` would find them.
#[derive(Default)]
pub(super) struct Files(pub(super) Vec<(&'static str, String)>);

impl SourceReader for Files {
    fn read(&self, path: &Path) -> io::Result<String> {
        let found = self.0.iter().find(|(name, _)| Path::new(name) == path);
        found.map(|(_, text)| text.clone()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

pub(super) fn layer(policy: &str) -> Result<Layer, CompileError> {
    layer_of(&Files(vec![("/p/policy.star", policy.to_owned())]))
}

pub(super) fn layer_of(files: &dyn SourceReader) -> Result<Layer, CompileError> {
    compile("/p/policy.star", LayerKind::User, true, files).map(|compiled| compiled.layer)
}

/// What a layer says about `git push`, `plan: git push`, `Read $PWD/x`,
/// `fetch https://x.test` or the name of any other tool.
pub(super) fn on(layer: &Layer, what: &str) -> (Effect, String, String) {
    let (mode, what) = what
        .split_once(": ")
        .filter(|(mode, _)| mode.chars().all(char::is_alphanumeric))
        .unwrap_or(("default", what));
    let (first, rest) = what.split_once(' ').unwrap_or((what, ""));
    let tool = clash_policy::tool::canonical(first).0;
    let about = |script, tool, path, url| {
        let about =
            expect::ExpectArgs { script, tool, path, url, input: None, mode, agent: "claude" };
        about.action().unwrap()
    };
    let is_tool = first.starts_with(char::is_uppercase) || first.starts_with("mcp__");
    let action = match first {
        "fetch" => about(None, None, None, Some(rest)),
        _ if is_tool && rest.is_empty() => about(None, Some(tool), None, None),
        _ if is_tool => about(None, Some(tool), Some(rest), None),
        _ => about(Some(what), None, None, None),
    };
    decision(layer, &action)
}

fn decision(layer: &Layer, action: &Action) -> (Effect, String, String) {
    let built_in = compile(library::BUILT_IN, LayerKind::BuiltIn, true, &Files::default()).unwrap();
    let bytes = ir::encode(&[layer.clone(), built_in.layer], &[], 0);
    let places = PolicyPlaces::imagined();
    let world = JudgeContext {
        places: &places,
        cwd: &places.project,
        links: &NoLinks,
        baseline: &[],
        cage: &[],
        lent: None,
    };
    let decision = decide(ir::IrImage::open(&bytes, 0).unwrap(), action, &world).unwrap();
    let cause = match &decision.decisive().unwrap().cause {
        DecisionCause::Rule { span, trail, .. } => {
            format!("{} {span}", trail.join(" > "))
        }
        other => format!("{other:?}"),
    };
    (decision.effect, decision.sandbox.map(|s| s.name).unwrap_or_default(), cause)
}

pub(super) fn mistake(policy: &str) -> String {
    layer(policy).unwrap_err().to_string()
}

fn decided(policy: &str, script: &str) -> (Effect, String, String) {
    decision(&layer(policy).unwrap(), &Action::script("claude", "default", script))
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
fn every_library_module_compiles() {
    for name in library::names() {
        compile(name, LayerKind::BuiltIn, true, &Files::default()).unwrap();
    }
}

#[test]
fn everything_a_sandbox_says_arrives_in_the_image() {
    let policy = r#"
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
)
settings(default_sandbox = s, on_sandbox_violation = "smart", harness_defaults = False)
policy("p", {"Bash": {"a": {end(): allow(sandbox = s)}}, mode("plan"): ask(reason = "why")},
       default = deny(reason = "no rule"), doc = "of the policy")
"#;
    let layer = layer(policy).unwrap();
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
    assert!(s.protect.standard);
    assert_eq!(
        (&s.protect.also[..], &s.protect.except[..]),
        (&[".husky".to_owned()][..], &[".vscode".to_owned()][..])
    );
    assert_eq!(layer.groups[0].doc, "of the policy");
    let default = layer.settings.default.unwrap();
    assert_eq!((default.effect, default.reason.as_deref()), (Effect::Deny, Some("no rule")));
}

/// A machine where Claude Code has settings.
struct Imported(&'static str);

impl SourceReader for Imported {
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
fn the_permissions_of_claude_code_stand_beside_the_policy() {
    let policy = r#"
load("@clash//claude_compat.star", "from_claude_settings")
settings(default = deny())
policy("x", merge(from_claude_settings(), {"Bash": {("git", "make"): allow()}}))
"#;
    let layer = layer_of(&Imported(policy)).unwrap();
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
    let only_project = layer_of(&Imported("from_claude_settings(user = False)")).unwrap();
    assert_eq!(on(&only_project, "make").0, Effect::Deny);
    assert_eq!(on(&only_project, "git push").0, Effect::Ask);
    assert!(
        layer_of(&Files(vec![("/p/policy.star", "from_claude_settings()".to_owned())])).is_ok()
    );
}

#[test]
fn a_mistake_in_an_import_is_shown_there() {
    struct Broken;
    impl SourceReader for Broken {
        fn read(&self, _: &Path) -> io::Result<String> {
            Ok("from_claude_settings()".to_owned())
        }
        fn claude_settings(&self, _: bool, _: bool) -> Vec<(String, String)> {
            vec![("settings.json".to_owned(), "when({\"Bash\": 3})".to_owned())]
        }
    }
    insta::assert_snapshot!(layer_of(&Broken).unwrap_err(), @r#"
    settings.json:1:15: expected an effect, found int `3`
      |
    1 | when({"Bash": 3})
      |               ^

    hint: an effect is allow(…), deny(…) or ask(…)
    "#);
}
