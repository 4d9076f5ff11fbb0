use super::*;
use crate::ir::encode;
use crate::net::{HostPattern, NetRule, NetworkAccess};
use crate::path::PolicyPlaces;
use crate::rule::{
    KeyPattern, KeySubject, Layer, LayerGroup, LayerSettings, MatchBranch, MatchKey, MatchNode,
    PolicyRule,
};
use crate::sandbox::{FsRule, PathPattern, WriteTarget};

/// Grants the project and asks about every other path; no network.
fn sandbox(name: &str) -> Sandbox {
    let rule = |path: &str, caps| FsRule {
        pattern: PathPattern::Subpath { path: path.into(), follow_worktrees: false },
        effect: Effect::Allow,
        caps,
        writes: WriteTarget::InPlace,
        span: PolicySpan::default(),
    };
    Sandbox { default: Effect::Ask, fs: vec![rule("$PWD", FileCaps::ALL)], ..Sandbox::named(name) }
}

/// `**` is any text; other texts with `*` are globs, except hosts.
fn key(subject: KeySubject, texts: &[&str]) -> MatchKey {
    let pattern = |text: &&str| match *text {
        "**" => KeyPattern::Any,
        text if text.contains('*') && subject != KeySubject::Host => KeyPattern::Glob(text.into()),
        text => KeyPattern::Literal(text.into()),
    };
    MatchKey { subject, patterns: texts.iter().map(pattern).collect() }
}

fn leaf(subject: KeySubject, texts: &[&str], effect: Effect, sandbox: Option<&str>) -> MatchBranch {
    MatchBranch { key: key(subject, texts), then: MatchNode::Rule(rule(effect, sandbox)) }
}

/// A rule without a reason and a place.
fn rule(effect: Effect, sandbox: Option<&str>) -> PolicyRule {
    PolicyRule {
        effect,
        sandbox: sandbox.map(Into::into),
        reason: None,
        span: PolicySpan::default(),
    }
}

fn tree(subject: KeySubject, texts: &[&str], below: Vec<MatchBranch>) -> MatchBranch {
    MatchBranch { key: key(subject, texts), then: MatchNode::Tree(below) }
}

/// A trusted layer with the sandboxes `project`, `git` and `rust`.
fn layer(kind: LayerKind, branches: Vec<MatchBranch>) -> Layer {
    Layer {
        kind,
        origin: kind.word().into(),
        trusted: true,
        settings: LayerSettings::default(),
        groups: vec![LayerGroup { branches, ..LayerGroup::default() }],
        sandboxes: vec![sandbox("project"), sandbox("git"), sandbox("rust")],
    }
}

/// The lowest layer: asks by default, in the sandbox `project`.
fn built_in() -> Layer {
    let settings = LayerSettings {
        default: Some(rule(Effect::Ask, None)),
        default_sandbox: Some("project".into()),
        ..LayerSettings::default()
    };
    Layer { settings, ..layer(LayerKind::BuiltIn, vec![]) }
}

/// Decides an action in the project `/home/u/app`, without a disk.
fn run(layers: &[Layer], action: &Action) -> Decision {
    let bytes = encode(layers, &[], 0);
    let ir = IrImage::open(&bytes, 0).unwrap();
    let places = PolicyPlaces {
        project: "/home/u/app".into(),
        home: "/home/u".into(),
        tmp: "/tmp".into(),
        vars: vec![],
    };
    let cage = ["/home/u/app/.claude/settings.json".into()];
    let context = JudgeContext { cage: &cage, ..JudgeContext::without_disk(&places) };
    decide(ir, action, &context).unwrap()
}

/// The effect and the sandbox for a script.
fn bash(layers: &[Layer], script: &str) -> (Effect, Option<String>) {
    let decision = run(layers, &Action::script("claude", "default", script));
    (decision.effect, decision.sandbox.map(|s| s.name))
}

/// `{"git": {"push": {("--force", "-f"): deny}, ("push", "fetch"): allow(git), **: allow(git)}, "cargo": allow(rust), "sudo": deny}`
fn policy() -> Vec<Layer> {
    use Effect::{Allow, Deny};
    use KeySubject::{Option, Tool, Word};
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
fn the_most_specific_rule_decides_and_dead_ends_are_skipped() {
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
    assert_eq!(bash(&p, "echo hi"), (Effect::Allow, Some("project".to_owned())));
    assert_eq!(bash(&p, "A=1; cd x; test -d y"), (Effect::Allow, Some("project".to_owned())));
    assert_eq!(bash(&p, "echo $(cargo build)").0, Effect::Allow);
    assert_eq!(bash(&p, "echo $(sudo reboot)").0, Effect::Deny);
}

#[test]
fn commands_of_two_sandboxes_run_in_the_default_one() {
    let decision =
        run(&policy(), &Action::script("claude", "default", "cargo build && git status"));
    assert_eq!(decision.effect, Effect::Allow);
    assert_eq!(decision.sandbox.unwrap().name, "project");
    assert_eq!(decision.mix.unwrap().second, ("git status".to_owned(), "git".to_owned()));
}

#[test]
fn an_environment_is_activated_in_the_default_sandbox() {
    let p = policy();
    let room = |script: &str| bash(&p, script);
    assert_eq!(room("source .venv/bin/activate"), (Effect::Allow, Some("project".to_owned())));
    // The content of the file is not known, so it never runs in the sandbox of another command.
    let mixed = room(". .venv/bin/activate && cargo build");
    assert_eq!(mixed, (Effect::Allow, Some("project".to_owned())));
    assert_eq!(room("source ./setup.sh").0, Effect::Ask);
    assert_eq!(room("source $X/bin/activate").0, Effect::Ask);
    assert_eq!(room(". .venv/bin/activate; sudo reboot").0, Effect::Deny);
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
fn a_session_precedes_the_user_and_a_project_lifts_no_deny() {
    use Effect::{Allow, Ask, Deny};
    let says = |kind, effect| {
        layer(
            kind,
            vec![tree(
                KeySubject::Tool,
                &["Bash"],
                vec![leaf(KeySubject::Word, &["make"], effect, None)],
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
    let allow = leaf(KeySubject::Tool, &["Bash"], Effect::Allow, None);
    let untrusted = Layer { trusted: false, ..layer(LayerKind::Project, vec![allow]) };
    let mut strict = built_in();
    strict.settings.default = Some(rule(Effect::Deny, None));
    assert_eq!(bash(&[untrusted, strict], "make").0, Effect::Deny);
}

#[test]
fn file_tools_are_judged_by_the_sandbox_and_the_cage_is_closed() {
    let allow = leaf(KeySubject::Tool, &["Read", "Write"], Effect::Allow, Some("project"));
    let layers = [layer(LayerKind::User, vec![allow]), built_in()];
    let effect = |path: &str, needs| {
        let input = ToolInput::Files(vec![FileUse { path: path.into(), needs, caseless: false }]);
        let action =
            Action { input, tool: "Write".into(), ..Action::script("claude", "default", "") };
        run(&layers, &action).effect
    };
    assert_eq!(effect("/home/u/app/src/a.rs", FileCaps::WRITE), Effect::Allow);
    assert_eq!(effect("/home/u/.bashrc", FileCaps::WRITE), Effect::Ask);
    assert_eq!(effect("/home/u/app/.claude/settings.json", FileCaps::WRITE), Effect::Deny);
    assert_eq!(effect("/home/u/app/.claude/settings.json", FileCaps::READ), Effect::Allow);
}

#[test]
fn hosts_match_by_their_longest_name() {
    let below = vec![
        leaf(KeySubject::Host, &["github.com"], Effect::Allow, None),
        leaf(KeySubject::Host, &["gist.github.com"], Effect::Deny, None),
        leaf(KeySubject::Host, &["*.docs.rs"], Effect::Allow, None),
    ];
    let layers =
        [layer(LayerKind::User, vec![tree(KeySubject::Tool, &["WebFetch"], below)]), built_in()];
    let effect = |host: &str| {
        let action = Action {
            input: ToolInput::Hosts(vec![HostUse { host: host.into(), port: 443 }]),
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
                leaf(KeySubject::Tool, &["Bash"], Effect::Allow, None),
                tree(
                    KeySubject::Mode,
                    &["plan"],
                    vec![leaf(KeySubject::Tool, &["Bash", "Write"], Effect::Ask, None)],
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
        vec![tree(
            KeySubject::Tool,
            &["Bash"],
            vec![leaf(KeySubject::Word, &["npm"], effect, sandbox)],
        )]
    };
    let untrusted =
        Layer { trusted: false, ..layer(LayerKind::Project, npm(Effect::Ask, Some("git"))) };
    let user = layer(LayerKind::User, npm(Effect::Allow, Some("rust")));
    let (effect, sandbox) = bash(&[untrusted, user, built_in()], "npm test");
    assert_eq!((effect, sandbox.as_deref()), (Effect::Ask, Some("rust")));
}

fn user(branches: Vec<MatchBranch>) -> [Layer; 2] {
    [layer(LayerKind::User, branches), built_in()]
}

fn bash_tree(below: Vec<MatchBranch>) -> Vec<MatchBranch> {
    vec![tree(KeySubject::Tool, &["Bash"], below)]
}

fn tool(name: &str, input: ToolInput) -> Action {
    Action { tool: name.into(), input, ..Action::script("claude", "default", "") }
}

#[test]
fn among_tools_the_most_specific_key_decides() {
    let layers = user(vec![
        leaf(KeySubject::Tool, &["**"], Effect::Deny, None),
        leaf(KeySubject::Tool, &["mcp__*"], Effect::Ask, None),
        leaf(KeySubject::Tool, &["mcp__db"], Effect::Allow, None),
    ]);
    let effect = |name| run(&layers, &tool(name, ToolInput::Fields(vec![]))).effect;
    assert_eq!(effect("mcp__db"), Effect::Allow);
    assert_eq!(effect("mcp__other"), Effect::Ask);
    assert_eq!(effect("Fancy"), Effect::Deny);
}

#[test]
fn policies_are_independent_and_the_strictest_holds() {
    let allows = LayerGroup {
        branches: bash_tree(vec![leaf(KeySubject::Word, &["make"], Effect::Allow, None)]),
        ..LayerGroup::default()
    };
    let asks = LayerGroup {
        branches: bash_tree(vec![leaf(KeySubject::Word, &["**"], Effect::Ask, None)]),
        ..LayerGroup::default()
    };
    let both = Layer { groups: vec![allows, asks], ..layer(LayerKind::User, vec![]) };
    assert_eq!(bash(&[both, built_in()], "make").0, Effect::Ask);
}

#[test]
fn an_option_below_any_word_is_searched_everywhere() {
    let layers = user(bash_tree(vec![tree(
        KeySubject::Word,
        &["git"],
        vec![
            tree(
                KeySubject::Word,
                &["**"],
                vec![leaf(KeySubject::Option, &["--force"], Effect::Deny, None)],
            ),
            leaf(KeySubject::Word, &["**"], Effect::Allow, None),
        ],
    )]));
    assert_eq!(bash(&layers, "git push origin --force").0, Effect::Deny);
    assert_eq!(bash(&layers, "git push origin").0, Effect::Allow);
}

#[test]
fn bundled_options_are_found_in_any_order() {
    let force = vec![leaf(KeySubject::Option, &["-rf"], Effect::Deny, None)];
    let layers = user(bash_tree(vec![
        tree(KeySubject::Word, &["rm"], force),
        leaf(KeySubject::Word, &["rm"], Effect::Allow, None),
    ]));
    for script in ["rm -rf x", "rm -fr x", "rm -r -f x", "rm -rvf x"] {
        assert_eq!(bash(&layers, script).0, Effect::Deny, "{script}");
    }
    assert_eq!(bash(&layers, "rm -r x").0, Effect::Allow);
}

#[test]
fn the_end_of_a_command_is_a_key() {
    let test = vec![leaf(KeySubject::End, &[""], Effect::Allow, None)];
    let layers = user(bash_tree(vec![tree(
        KeySubject::Word,
        &["npm"],
        vec![tree(KeySubject::Word, &["test"], test)],
    )]));
    assert_eq!(bash(&layers, "npm test").0, Effect::Allow);
    for longer in ["npm test x", "npm test --watch", "npm test $X", "npm"] {
        assert_eq!(bash(&layers, longer).0, Effect::Ask, "{longer}");
    }
}

#[test]
fn a_certain_more_specific_rule_ends_all_doubt() {
    let layers = user(bash_tree(vec![
        leaf(KeySubject::Word, &["pytest"], Effect::Allow, None),
        leaf(KeySubject::Word, &["py*"], Effect::Deny, None),
    ]));
    assert_eq!(bash(&layers, "pytest -x tests").0, Effect::Allow);
    assert_eq!(bash(&layers, "python -x").0, Effect::Deny);
}

#[test]
fn modes_can_be_keys_below_a_tool() {
    let layers = user(bash_tree(vec![
        leaf(KeySubject::Mode, &["plan"], Effect::Deny, None),
        leaf(KeySubject::Word, &["make"], Effect::Allow, None),
    ]));
    assert_eq!(bash(&layers, "make").0, Effect::Allow);
    assert_eq!(run(&layers, &Action::script("claude", "plan", "ls")).effect, Effect::Deny);
}

#[test]
fn paths_are_keys_below_file_tools() {
    let path = |pattern, effect| MatchBranch {
        key: MatchKey { subject: KeySubject::Path, patterns: vec![KeyPattern::Path(pattern)] },
        then: MatchNode::Rule(rule(effect, Some("project"))),
    };
    let subpath = |path: &str| PathPattern::Subpath { path: path.into(), follow_worktrees: false };
    let lock = PathPattern::Glob { prefix: "$PWD".into(), pattern: "**/secrets".into() };
    let layers = user(vec![tree(
        KeySubject::Tool,
        &["Read"],
        vec![
            path(subpath("$PWD"), Effect::Allow),
            path(subpath("$PWD/private"), Effect::Deny),
            path(lock, Effect::Deny),
        ],
    )]);
    let effect = |path: &str| {
        let file = FileUse { path: path.into(), needs: FileCaps::READ, caseless: false };
        run(&layers, &tool("Read", ToolInput::Files(vec![file]))).effect
    };
    assert_eq!(effect("/home/u/app/src/a.rs"), Effect::Allow);
    assert_eq!(effect("/home/u/app/private/a"), Effect::Deny);
    assert_eq!(effect("/home/u/app/a/secrets"), Effect::Deny);
    assert_eq!(effect("/home/u/app/a/secrets/key"), Effect::Deny);
    assert_eq!(effect("/home/u/app-evil/x"), Effect::Ask);
}

#[test]
fn of_several_paths_the_strictest_answer_holds() {
    let layers = user(vec![leaf(KeySubject::Tool, &["Edit"], Effect::Allow, Some("project"))]);
    let file = |path: &str| FileUse { path: path.into(), needs: FileCaps::WRITE, caseless: false };
    let files = vec![file("/home/u/app/a"), file("/home/u/app/.clash/policy.star")];
    let decision = run(&layers, &tool("Edit", ToolInput::Files(files)));
    assert_eq!((decision.effect, decision.parts.len()), (Effect::Deny, 2));
    assert_eq!(decision.decisive().unwrap().cause, DecisionCause::Cage);
}

#[test]
fn one_denied_element_of_a_list_denies_the_tool_call() {
    let below = vec![tree(
        KeySubject::Field,
        &["db.name"],
        vec![
            leaf(KeySubject::Value, &["prod"], Effect::Deny, None),
            leaf(KeySubject::Value, &["test*"], Effect::Allow, None),
        ],
    )];
    let layers = user(vec![tree(KeySubject::Tool, &["mcp__*"], below)]);
    let effect = |values: &[&str]| {
        let values = values.iter().map(|v| (*v).into()).collect();
        let fields = vec![crate::action::InputField { name: "db.name".into(), values }];
        run(&layers, &tool("mcp__db__query", ToolInput::Fields(fields))).effect
    };
    assert_eq!(effect(&["prod"]), Effect::Deny);
    assert_eq!(effect(&["test1", "test2"]), Effect::Allow);
    assert_eq!(effect(&["test1", "prod"]), Effect::Deny);
    assert_eq!(effect(&["test1", "other"]), Effect::Ask);
    assert_eq!(effect(&[]), Effect::Ask);
}

#[test]
fn a_host_is_judged_by_a_sandbox_that_the_rule_names() {
    let mut net = sandbox("net");
    net.net = NetworkAccess::Hosts {
        rules: vec![NetRule {
            host: HostPattern::Name("docs.rs".into()),
            ports: vec![],
            effect: Effect::Allow,
            span: PolicySpan::default(),
        }],
        default: Effect::Deny,
    };
    let fetch = |sandbox| {
        let mut layers = user(vec![leaf(KeySubject::Tool, &["WebFetch"], Effect::Allow, sandbox)]);
        layers[0].sandboxes.push(net.clone());
        let host = |host: &str| HostUse { host: host.into(), port: 443 };
        let effect =
            |name: &str| run(&layers, &tool("WebFetch", ToolInput::Hosts(vec![host(name)]))).effect;
        (effect("docs.rs"), effect("x.test"))
    };
    assert_eq!(fetch(Some("net")), (Effect::Allow, Effect::Deny));
    assert_eq!(fetch(None), (Effect::Allow, Effect::Allow));
}

#[test]
fn rules_about_every_command_count_for_programs_only() {
    let layers = user(bash_tree(vec![
        leaf(KeySubject::Word, &["cargo"], Effect::Allow, None),
        leaf(KeySubject::Word, &["**"], Effect::Deny, None),
        leaf(KeySubject::Word, &["export"], Effect::Ask, None),
    ]));
    assert_eq!(bash(&layers, "cd x && cargo build").0, Effect::Allow);
    assert_eq!(bash(&layers, "export A=1 && cargo build").0, Effect::Ask);
    assert_eq!(bash(&layers, "cd x").0, Effect::Deny);
    assert_eq!(bash(&layers, "cd x && make").0, Effect::Deny);
}

#[test]
fn the_default_has_a_sandbox_and_built_in_rules_can_be_off() {
    let mut top = layer(LayerKind::User, vec![]);
    top.settings.default = Some(rule(Effect::Allow, Some("rust")));
    assert_eq!(bash(&[top.clone(), built_in()], "x"), (Effect::Allow, Some("rust".to_owned())));
    let mut harness = built_in();
    harness.groups[0].branches = vec![leaf(KeySubject::Tool, &["Task"], Effect::Deny, None)];
    let task = tool("Task", ToolInput::Fields(vec![]));
    assert_eq!(run(&[top.clone(), harness.clone()], &task).effect, Effect::Deny);
    top.settings.harness_defaults = Some(false);
    assert_eq!(run(&[top, harness], &task).effect, Effect::Allow);
}

#[test]
fn overruled_rules_are_reported() {
    let make = |effect| bash_tree(vec![leaf(KeySubject::Word, &["make"], effect, None)]);
    let layers = [
        layer(LayerKind::Managed, make(Effect::Ask)),
        layer(LayerKind::Project, make(Effect::Allow)),
        layer(LayerKind::User, make(Effect::Deny)),
        built_in(),
    ];
    let decision = run(&layers, &Action::script("claude", "default", "make"));
    assert_eq!(decision.effect, Effect::Deny);
    let told: Vec<_> = decision.parts[0].overruled.iter().map(|o| (o.layer, o.effect)).collect();
    assert_eq!(told, [(LayerKind::Managed, Effect::Ask), (LayerKind::Project, Effect::Allow)]);
}

#[test]
fn an_untrusted_project_leaves_the_sandbox_of_the_default() {
    let untrusted = Layer {
        trusted: false,
        ..layer(
            LayerKind::Project,
            bash_tree(vec![leaf(KeySubject::Word, &["x"], Effect::Ask, None)]),
        )
    };
    let mut narrow = built_in();
    narrow.settings.default = Some(rule(Effect::Ask, Some("rust")));
    let rust = (Effect::Ask, Some("rust".to_owned()));
    assert_eq!(bash(&[narrow.clone()], "x"), rust);
    assert_eq!(bash(&[untrusted, narrow], "x"), rust);
}

#[test]
fn every_field_of_an_input_is_decided() {
    let values = || {
        vec![
            leaf(KeySubject::Value, &["*secret*"], Effect::Deny, None),
            leaf(KeySubject::Value, &["**"], Effect::Allow, None),
        ]
    };
    let both = vec![tree(KeySubject::Field, &["file", "path"], values())];
    let each = vec![
        tree(KeySubject::Field, &["path"], values()),
        tree(KeySubject::Field, &["file"], values()),
    ];
    for below in [both, each] {
        let layers = user(vec![tree(KeySubject::Tool, &["mcp__fs"], below)]);
        let effect = |path: &str, file: &str| {
            let field = |name: &str, v: &str| crate::InputField {
                name: name.into(),
                values: vec![v.to_owned()],
            };
            let fields = vec![field("path", path), field("file", file)];
            run(&layers, &tool("mcp__fs", ToolInput::Fields(fields))).effect
        };
        assert_eq!(effect("a", "b"), Effect::Allow);
        assert_eq!(effect("a", "secret"), Effect::Deny);
        assert_eq!(effect("secret", "a"), Effect::Deny);
    }
}

mod doubt;
