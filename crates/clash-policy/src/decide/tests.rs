use super::*;
use crate::ir::encode;
use crate::path::{NoLinks, Places};
use crate::rule::{Branch, Group, Key, Layer, Node, Pattern, Rule, Settings, Subject};
use crate::sandbox::{FsRule, PathPattern};

fn sandbox(name: &str) -> Sandbox {
    let rule = |path: &str, caps| FsRule {
        pattern: PathPattern::Subpath { path: path.into(), follow_worktrees: false },
        effect: Effect::Allow,
        caps,
        cow: false,
        span: Span::default(),
    };
    Sandbox { default: Effect::Ask, fs: vec![rule("$PWD", Caps::ALL)], ..Sandbox::named(name) }
}

fn key(subject: Subject, texts: &[&str]) -> Key {
    let pattern = |text: &&str| match *text {
        "**" => Pattern::Any,
        text if text.contains('*') && subject != Subject::Host => Pattern::Glob(text.into()),
        text => Pattern::Literal(text.into()),
    };
    Key { subject, patterns: texts.iter().map(pattern).collect() }
}

fn leaf(subject: Subject, texts: &[&str], effect: Effect, sandbox: Option<&str>) -> Branch {
    Branch { key: key(subject, texts), then: Node::Rule(rule(effect, sandbox)) }
}

fn rule(effect: Effect, sandbox: Option<&str>) -> Rule {
    Rule { effect, sandbox: sandbox.map(Into::into), reason: None, span: Span::default() }
}

fn tree(subject: Subject, texts: &[&str], below: Vec<Branch>) -> Branch {
    Branch { key: key(subject, texts), then: Node::Tree(below) }
}

fn layer(kind: LayerKind, branches: Vec<Branch>) -> Layer {
    Layer {
        kind,
        origin: kind.word().into(),
        trusted: true,
        settings: Settings::default(),
        groups: vec![Group { branches, ..Group::default() }],
        sandboxes: vec![sandbox("project"), sandbox("git"), sandbox("rust")],
    }
}

fn built_in() -> Layer {
    let settings = Settings {
        default: Some(rule(Effect::Ask, None)),
        default_sandbox: Some("project".into()),
        ..Settings::default()
    };
    Layer { settings, ..layer(LayerKind::BuiltIn, vec![]) }
}

fn run(layers: &[Layer], action: &Action) -> Decision {
    let bytes = encode(layers, &[], 0);
    let ir = Ir::open(&bytes, 0).unwrap();
    let places = Places {
        project: "/home/u/app".into(),
        home: "/home/u".into(),
        tmp: "/tmp".into(),
        vars: vec![],
    };
    let cage = ["/home/u/app/.claude/settings.json".into()];
    let world = World { places: &places, links: &NoLinks, baseline: &[], cage: &cage };
    decide(ir, action, &world).unwrap()
}

fn bash(layers: &[Layer], script: &str) -> (Effect, Option<String>) {
    let decision = run(layers, &Action::script("claude", "default", script));
    (decision.effect, decision.sandbox.map(|s| s.name))
}

/// `{"git": {"push": {("--force", "-f"): deny}, ("push", "fetch"): allow(git), **: allow(git)}, "cargo": allow(rust), "sudo": deny}`
fn policy() -> Vec<Layer> {
    use Effect::{Allow, Deny};
    use Subject::{Option, Tool, Word};
    let git = vec![
        tree(Word, &["push"], vec![leaf(Option, &["--force", "-f"], Deny, None)]),
        leaf(Word, &["push", "fetch"], Allow, Some("git")),
        leaf(Word, &["**"], Allow, Some("git")),
    ];
    let below = vec![
        tree(Word, &["git"], git),
        leaf(Word, &["cargo", "rustc"], Allow, Some("rust")),
        leaf(Word, &["sudo"], Deny, None),
    ];
    vec![layer(LayerKind::User, vec![tree(Tool, &["Bash"], below)]), built_in()]
}

#[test]
fn the_most_specific_rule_decides_and_a_dead_branch_is_passed_over() {
    let p = policy();
    let git = Some("git".to_owned());
    assert_eq!(bash(&p, "git push --force origin main").0, Effect::Deny);
    assert_eq!(bash(&p, "git push -uf origin main").0, Effect::Deny);
    assert_eq!(bash(&p, "git push origin main"), (Effect::Allow, git.clone()));
    assert_eq!(bash(&p, "git status"), (Effect::Allow, git));
    assert_eq!(bash(&p, "cargo build"), (Effect::Allow, Some("rust".to_owned())));
    assert_eq!(bash(&p, "npm test"), (Effect::Ask, Some("project".to_owned())));
}

#[test]
fn the_strictest_command_decides_for_the_script() {
    let p = policy();
    assert_eq!(bash(&p, "cargo build && sudo reboot").0, Effect::Deny);
    assert_eq!(bash(&p, "cd x && cargo build && echo done").0, Effect::Allow);
    assert_eq!(bash(&p, "echo hi").0, Effect::Ask);
    assert_eq!(bash(&p, "echo $(cargo build)").0, Effect::Ask);
}

#[test]
fn commands_of_two_sandboxes_do_not_share_a_room() {
    let decision =
        run(&policy(), &Action::script("claude", "default", "cargo build && git status"));
    assert_eq!(decision.effect, Effect::Deny);
    assert_eq!(decision.conflict.unwrap().second, ("git status".to_owned(), "git".to_owned()));
}

#[test]
fn denies_over_match_and_allows_under_match() {
    let p = policy();
    assert_eq!(bash(&p, "git -C . push -f").0, Effect::Deny);
    assert_eq!(bash(&p, "git push $ARGS").0, Effect::Deny);
    assert_eq!(bash(&p, "git push --for").0, Effect::Deny);
    assert_eq!(bash(&p, "$CMD reboot").0, Effect::Deny);
    assert_eq!(bash(&p, "/opt/x/sudo ls").0, Effect::Deny);
    assert_eq!(bash(&p, "./cargo build").0, Effect::Ask);
    assert_eq!(bash(&p, "/usr/bin/cargo build").0, Effect::Allow);
    assert_eq!(bash(&p, "git add $FILE").0, Effect::Allow);
    assert_eq!(bash(&p, "$CARGO build").0, Effect::Deny);
}

#[test]
fn layers_have_their_order() {
    use Effect::{Allow, Ask, Deny};
    let says = |kind, effect| {
        layer(
            kind,
            vec![tree(
                Subject::Tool,
                &["Bash"],
                vec![leaf(Subject::Word, &["make"], effect, None)],
            )],
        )
    };
    let decide = |layers: Vec<Layer>| bash(&layers, "make").0;
    use LayerKind::{Managed, Project, Session, User};
    assert_eq!(decide(vec![says(Managed, Deny), says(Session, Allow), built_in()]), Deny);
    assert_eq!(decide(vec![says(Managed, Allow), says(User, Ask), built_in()]), Ask);
    assert_eq!(decide(vec![says(Session, Allow), says(User, Deny), built_in()]), Allow);
    assert_eq!(decide(vec![says(Project, Allow), says(User, Deny), built_in()]), Deny);
    assert_eq!(decide(vec![says(Project, Allow), says(User, Ask), built_in()]), Allow);
    let untrusted = Layer { trusted: false, ..says(Project, Allow) };
    assert_eq!(decide(vec![untrusted.clone(), says(User, Allow), built_in()]), Ask);
    assert_eq!(decide(vec![untrusted, built_in()]), Ask);
}

#[test]
fn an_untrusted_project_cannot_relax_a_denying_default() {
    let allow = leaf(Subject::Tool, &["Bash"], Effect::Allow, None);
    let untrusted = Layer { trusted: false, ..layer(LayerKind::Project, vec![allow]) };
    let mut strict = built_in();
    strict.settings.default = Some(rule(Effect::Deny, None));
    assert_eq!(bash(&[untrusted, strict], "make").0, Effect::Deny);
}

#[test]
fn file_tools_are_judged_by_the_sandbox_and_the_cage_is_closed() {
    let allow = leaf(Subject::Tool, &["Read", "Write"], Effect::Allow, Some("project"));
    let layers = [layer(LayerKind::User, vec![allow]), built_in()];
    let effect = |path: &str, needs| {
        let input = Input::Files(vec![FileUse { path: path.into(), needs, caseless: false }]);
        let action =
            Action { input, tool: "Write".into(), ..Action::script("claude", "default", "") };
        run(&layers, &action).effect
    };
    assert_eq!(effect("/home/u/app/src/a.rs", Caps::WRITE), Effect::Allow);
    assert_eq!(effect("/home/u/.bashrc", Caps::WRITE), Effect::Ask);
    assert_eq!(effect("/home/u/app/.claude/settings.json", Caps::WRITE), Effect::Deny);
    assert_eq!(effect("/home/u/app/.claude/settings.json", Caps::READ), Effect::Allow);
}

#[test]
fn hosts_match_by_their_longest_name() {
    let below = vec![
        leaf(Subject::Host, &["github.com"], Effect::Allow, None),
        leaf(Subject::Host, &["gist.github.com"], Effect::Deny, None),
        leaf(Subject::Host, &["*.docs.rs"], Effect::Allow, None),
    ];
    let layers =
        [layer(LayerKind::User, vec![tree(Subject::Tool, &["WebFetch"], below)]), built_in()];
    let effect = |host: &str| {
        let action = Action {
            input: Input::Hosts(vec![HostUse { host: host.into(), port: 443 }]),
            tool: "WebFetch".into(),
            ..Action::script("claude", "default", "")
        };
        run(&layers, &action).effect
    };
    assert_eq!(effect("api.github.com"), Effect::Allow);
    assert_eq!(effect("gist.github.com"), Effect::Deny);
    assert_eq!(effect("docs.rs"), Effect::Ask);
    assert_eq!(effect("x.docs.rs"), Effect::Allow);
}

#[test]
fn independent_branches_give_the_strictest() {
    let layers = [
        layer(
            LayerKind::User,
            vec![
                leaf(Subject::Tool, &["Bash"], Effect::Allow, None),
                tree(
                    Subject::Mode,
                    &["plan"],
                    vec![leaf(Subject::Tool, &["Bash", "Write"], Effect::Ask, None)],
                ),
            ],
        ),
        built_in(),
    ];
    assert_eq!(bash(&layers, "make").0, Effect::Allow);
    let plan = Action::script("claude", "plan", "make");
    assert_eq!(run(&layers, &plan).effect, Effect::Ask);
}

#[test]
fn an_untrusted_project_cannot_swap_the_sandbox_of_the_user() {
    let npm = |effect, sandbox| {
        vec![tree(Subject::Tool, &["Bash"], vec![leaf(Subject::Word, &["npm"], effect, sandbox)])]
    };
    let untrusted =
        Layer { trusted: false, ..layer(LayerKind::Project, npm(Effect::Ask, Some("git"))) };
    let user = layer(LayerKind::User, npm(Effect::Allow, Some("rust")));
    let (effect, sandbox) = bash(&[untrusted, user, built_in()], "npm test");
    assert_eq!((effect, sandbox.as_deref()), (Effect::Ask, Some("rust")));
}
