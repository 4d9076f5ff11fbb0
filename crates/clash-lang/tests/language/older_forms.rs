//! Policies in every form that Clash 0.5 to 0.7 documented decide as their documentation
//! says.

use clash_policy::rule::LayerKind;
use clash_policy::{Effect, HostPattern, NetworkAccess, PathPattern};

use crate::support::{POLICY_FILE, SourceTexts, layer, layer_of, mistake, on};

use Effect::{Allow, Ask, Deny};

/// Checks the decisions of a policy about commands, paths and hosts.
fn decides(policy: &str, about: &[(&str, Effect)]) {
    let layer = layer(policy).unwrap_or_else(|error| panic!("{error}"));
    check(&layer, about);
}

/// Checks the decisions of a layer.
fn check(layer: &clash_policy::rule::Layer, about: &[(&str, Effect)]) {
    for (what, expected) in about {
        let decision = on(layer, what);
        assert_eq!(decision.0, *expected, "{what}: {decision:?}");
    }
}

/// The sandbox in which a policy runs a script.
fn sandbox(policy: &str, script: &str) -> String {
    on(&layer(policy).unwrap_or_else(|error| panic!("{error}")), script).1
}

const TUTORIAL_POLICY: &str = r#"
load("@clash//builtin.star", "builtins")
load("@clash//std.star", "allow", "ask", "deny", "policy", "sandbox",
     "cwd", "home", "tempdir", "domains", "tool", "cmd")

def main():
    dev_sandbox = sandbox(
        name = "dev",
        default = deny(),
        fs = [
            cwd(follow_worktrees = True).allow(read = True, write = True),
            home().child(".cargo").allow(read = True, write = True),
            home().child(".rustup").allow(read = True),
            tempdir().allow(),
        ],
        net = [
            domains({"github.com": allow(), "docs.rs": allow(), "*.docs.rs": allow()}),
        ],
    )
    return policy(default = ask(), rules = builtins + [
        cwd(follow_worktrees = True).allow(read = True, write = True),
        tool(["Glob", "Grep"]).allow(),
        cmd("git", {
            ("add", "commit", "diff", "log", "status", "branch"): allow(),
            "push": deny(),
            "reset": {"--hard": deny()},
        }),
        cmd("cargo", {
            ("build", "test", "check", "clippy", "fmt"): allow(sandbox = dev_sandbox),
            "publish": deny(),
        }),
    ])
"#;

#[test]
fn the_last_step_of_the_tutorial_with_cmd_and_path_builders() {
    decides(
        TUTORIAL_POLICY,
        &[
            ("cargo test", Allow),
            ("cargo publish", Deny),
            ("git push --force", Deny),
            ("git status", Allow),
            ("git stash", Ask),
            ("git reset --hard", Deny),
            ("npm test", Ask),
            ("Read ~/.ssh/id_rsa", Deny),
            ("Read $PWD/src/main.rs", Allow),
            ("Edit $PWD/src/main.rs", Allow),
            ("Edit ~/.bashrc", Ask),
            ("Agent", Allow),
            ("clash status", Allow),
        ],
    );
    assert_eq!(sandbox(TUTORIAL_POLICY, "cargo test"), "dev");
    let layer = layer(TUTORIAL_POLICY).unwrap();
    let dev = layer.sandboxes.iter().find(|s| s.name == "dev").unwrap();
    let rules: Vec<_> =
        dev.fs.iter().map(|r| format!("{} {} {}", r.effect, r.caps, r.pattern)).collect();
    insta::assert_snapshot!(rules.join("\n"), @r"
    allow rwc $PWD/**
    allow rwc $HOME/.cargo/**
    allow r $HOME/.rustup/**
    allow rwcdx $TMPDIR/**
    ");
    assert_eq!(dev.net.judge("static.docs.rs", 443).0, Allow);
    assert_eq!(dev.net.judge("evil.test", 443).0, Deny);
}

#[test]
fn the_first_steps_of_the_tutorial() {
    let deny_all = r#"
load("@clash//std.star", "deny", "policy")
def main():
    return policy(default = deny())
"#;
    decides(deny_all, &[("ls", Deny), ("Read $PWD/x", Deny)]);
    let reads = r#"
load("@clash//std.star", "deny", "policy", "cwd", "tool")
def main():
    return policy(default = deny(), rules = [
        cwd(follow_worktrees = True).allow(read = True),
        tool(["Glob", "Grep"]).allow(),
    ])
"#;
    decides(
        reads,
        &[
            ("Read $PWD/a", Allow),
            ("Grep $PWD/src", Allow),
            ("Write $PWD/a", Deny),
            ("Read /etc/hosts", Deny),
        ],
    );
    let whens = r#"
load("@clash//std.star", "allow", "deny", "when", "policy", "sandbox", "subpath")
def main():
    project_sandbox = sandbox(
        default = deny(),
        fs = {subpath("$PWD", follow_worktrees = True): allow("rwc")},
    )
    return policy(default = deny(), rules = [
        when({("Read", "Write", "Edit", "Glob", "Grep"): allow(sandbox = project_sandbox)}),
        when({"Bash": {"git": {("add", "status"): allow(), "push": deny()}}}),
    ])
"#;
    decides(
        whens,
        &[
            ("Write $PWD/a", Allow),
            ("Write ~/a", Deny),
            ("git status", Allow),
            ("git push", Deny),
            ("git stash", Deny),
        ],
    );
}

#[test]
fn builders_with_effects_as_arguments_and_exe() {
    let policy = r#"
load("@clash//builtin.star", "base")
load("@clash//std.star", "exe", "policy", "cwd", "domains", "sandbox", "home", "path", "allow", "deny")

def main():
    cargo_env = sandbox(
        default = deny,
        fs = [cwd(read = allow, write = allow), home().child(".ssh", read = allow),
              path(env = "TRANSCRIPT_DIR").recurse().allow(read = True)],
        net = allow,
    )
    my_policy = policy(default = deny, rules = [
        cwd(follow_worktrees = True, read = allow, write = allow),
        exe("git", args = ["push"]).deny(),
        exe("git", args = ["commit"]).ask(),
        exe("git").allow(),
        exe(["cargo", "rustc"]).sandbox(cargo_env).allow(),
        exe("rm", args = ["-rf"]).deny(),
        domains({"github.com": allow, "evil.test": deny}),
    ])
    return my_policy.merge(base)
"#;
    decides(
        policy,
        &[
            ("git push origin main", Deny),
            ("git commit -m x", Ask),
            ("git status", Allow),
            ("cargo build", Allow),
            ("rm -rf x", Deny),
            ("make", Deny),
            ("fetch https://api.github.com/x", Allow),
            ("fetch https://evil.test", Deny),
            ("fetch https://other.test", Deny),
            ("Write $PWD/x", Allow),
            ("Skill", Allow),
        ],
    );
    assert_eq!(sandbox(policy, "cargo build"), "sandbox_line_6");
    let updated = policy.replace("my_policy.merge(base)", "base.update(my_policy)");
    decides(&updated, &[("git push", Deny), ("Skill", Allow)]);
}

#[test]
fn guardrails_hold_under_an_open_default() {
    let policy = r#"
load("@clash//std.star", "exe", "policy")
def main():
    return policy(default = allow, rules = [
        exe("git", args = ["push", "--force"]).deny(),
        exe("git", args = ["reset", "--hard"]).deny(),
        exe("sudo").deny(),
        exe("git", args = ["push"]).ask(),
    ])
"#;
    decides(
        policy,
        &[
            ("git push origin main --force", Deny),
            ("git push", Ask),
            ("git reset --hard HEAD~1", Deny),
            ("sudo ls", Deny),
            ("ls", Allow),
        ],
    );
}

#[test]
fn rules_kept_in_a_file_of_their_own() {
    let files = SourceTexts(vec![
        (
            "/p/policy.star",
            r#"
load("@clash//std.star", "policy", "deny", "domains", "allow")
load("safe_git.star", "safe_git_rules")
def main():
    return policy(default = deny(), rules = safe_git_rules + [domains({"github.com": allow()})])
"#
            .to_owned(),
        ),
        (
            "/p/safe_git.star",
            r#"
load("@clash//std.star", "exe", "when", "deny", "ask", "allow", "match")
safe_git_rules = [
    exe("git", args = ["push"]).deny(),
    match({"Bash": {"git": {"reset": deny()}}}),
    when({"Bash": {"git": {"commit": ask()}}}),
    match({"Bash": {"git": allow()}}),
]
"#
            .to_owned(),
        ),
    ]);
    let layer = layer_of(&files).unwrap();
    check(
        &layer,
        &[
            ("git push", Deny),
            ("git reset", Deny),
            ("git commit", Ask),
            ("git log", Allow),
            ("fetch https://github.com", Allow),
        ],
    );
}

#[test]
fn policies_with_match_and_rules_by_name() {
    let policy = r#"
sandbox(
    name = "node",
    default = deny(),
    fs = {
        subpath("$PWD", follow_worktrees = True): allow("rwc"),
        glob("$TMPDIR/**"): allow(),
    },
    net = allow(),
)
settings(default = ask())
policy("node-dev",
    rules = [
        match({"Bash": {"git": {"push": {"--force": deny()}}}}),
        match({"Bash": {("npm", "npx", "node", "bun"): allow(sandbox = "node"), "git": allow()}}),
        match({("Read", "Glob", "Grep"): allow()}),
        tool("Write").ask(),
    ],
)
"#;
    decides(
        policy,
        &[
            ("git push --force", Deny),
            ("git push", Allow),
            ("npm test", Allow),
            ("make", Ask),
            ("Read $PWD/x", Allow),
            ("Write $PWD/x", Ask),
        ],
    );
    assert_eq!(sandbox(policy, "npm test"), "node");
}

#[test]
fn trees_of_policies_and_sandboxes() {
    let policy = r#"
sandbox("git_github", {
    default(): deny(),
    path("$PWD", worktree = True): allow("rwc"),
    glob("$HOME/.ssh/**"): allow("rx"),
    path("$HOME/.gitconfig"): allow("r"),
    glob("$TMPDIR/**"): allow(),
    domain("github.com"): allow(),
    domain("*.github.com"): allow(),
}, doc = "project, keys and one host")
sandbox("localhost_only", {
    default(): deny(),
    path("$PWD"): allow("r"),
    domain("docs.rs"): allow(),
    localhost(ports = [8080]): allow(),
})
sandbox("open", {default(): deny(), network(): allow()})
settings(default = "deny")
policy("protected", {
    tool("Bash"): {
        "git": {"push": deny(), glob("**"): allow(sandbox = "git_github")},
        "curl": allow(sandbox = "localhost_only"),
        "wget": allow(sandbox = "open"),
    },
    tool(("Read", "Glob", "Grep")): allow(),
}, doc = "trees")
"#;
    decides(
        policy,
        &[
            ("git fetch", Allow),
            ("git push", Deny),
            ("curl http://localhost:8080", Allow),
            ("ls", Deny),
            ("Read $PWD/x", Allow),
        ],
    );
    let layer = layer(policy).unwrap();
    let net = |name: &str| layer.sandboxes.iter().find(|s| s.name == name).unwrap().net.clone();
    assert_eq!(net("git_github").judge("github.com", 443).0, Allow);
    assert_eq!(net("git_github").judge("docs.rs", 443).0, Deny);
    assert_eq!(net("localhost_only").judge("localhost", 8080).0, Allow);
    assert_eq!(net("localhost_only").judge("localhost", 8081).0, Deny);
    assert_eq!(net("open"), NetworkAccess::Allow);
}

#[test]
fn modes_choose_sandboxes() {
    let policy = r#"
load("@clash//builtin.star", "builtins")
load("@clash//sandboxes.star", "readonly", "workspace", "git_safe", "git_full")
load("@clash//claude_compat.star", "from_claude_settings")
policy("default", merge(
    from_claude_settings(),
    builtins,
    {
        mode("plan"): {
            glob("**"): allow(sandbox = readonly),
            tool("Bash"): {"git": {glob("**"): allow(sandbox = git_safe)}},
        },
        (mode("edit"), mode("default")): {
            tool("Bash"): {"git": {glob("**"): allow(sandbox = git_full)}},
        },
        mode("unrestricted"): {glob("**"): allow(sandbox = workspace)},
        Mode("acceptEdits"): {Tool("Read"): allow()},
    },
))
"#;
    assert_eq!(sandbox(policy, "plan: git log"), "git_safe");
    assert_eq!(sandbox(policy, "plan: ls"), "readonly");
    assert_eq!(sandbox(policy, "git push"), "git_full");
    assert_eq!(sandbox(policy, "acceptEdits: git push"), "git_full");
    assert_eq!(sandbox(policy, "bypassPermissions: make"), "workspace");
    decides(policy, &[("acceptEdits: Read $PWD/x", Allow), ("Agent", Allow), ("make", Ask)]);
}

#[test]
fn match_trees_with_conditions_in_order() {
    let policy = r#"
load("@clash//match_tree.star", "exe", "tool", "has_arg", "arg", "field", "policy", "allow",
     "deny", "ask", "or_pat", "mt_regex", "agent")
policy(default = "deny", sandboxes = [], rules = [
    exe("git").on([has_arg("--force").deny(), arg(1, "push").ask(), allow()]),
    exe(or_pat("cargo", mt_regex("cargo-.*"))).allow(),
    tool("mcp__db__query").on([field(["options", "mode"], "write").deny(), allow()]),
    agent("codex").deny(),
])
"#;
    decides(
        policy,
        &[
            ("git push --force", Deny),
            ("git push", Ask),
            ("git log", Allow),
            ("cargo-fuzz run", Allow),
            ("make", Deny),
            ("mcp__db__query", Allow),
        ],
    );
    insta::assert_snapshot!(
        mistake("load(\"@clash//match_tree.star\", \"not_pat\")\nexe(not_pat(\"rm\")).allow()"), @r#"
    /p/policy.star:2:5: not_pat("rm") has no form in a policy
      |
    2 | exe(not_pat("rm")).allow()
      |     ^

    hint: write a rule for the exception and one for glob("**")
    "#);
}

#[test]
fn names_of_std_can_be_loaded() {
    decides(
        "load(\"@clash//std.star\", \"allow\", \"when\", \"FULL\", \"OS\")\nwhen({\"Bash\": allow})",
        &[("ls", Allow)],
    );
}

#[test]
fn chained_paths_become_file_rules() {
    let policy = r#"
s = sandbox(name = "s", fs = [
    home().allow(read = True),
    home().child(".config").child("tool").allow(read = True),
    home().file(".gitconfig").allow(read = True),
    cwd().match(r"src/.*\.rs").allow(write = True),
    cwd().match(r"\.env").deny(),
    home().child(".aws").deny(),
    path("/opt").deny(),
    path("/opt/tool").recurse().allow(read = True, execute = True),
    cwd().recurse().ask(execute = True),
])
settings(default_sandbox = s)
"#;
    let layer = layer(policy).unwrap();
    let rules: Vec<_> = layer.sandboxes[0]
        .fs
        .iter()
        .map(|r| format!("{} {} {}", r.effect, r.caps, r.pattern))
        .collect();
    insta::assert_snapshot!(rules.join("\n"), @r"
    allow r $HOME
    allow r $HOME/.config/tool/**
    allow r $HOME/.gitconfig
    allow wc $PWD/regex(src/.*\.rs)
    deny rwcdx $PWD/regex((?s:.*)(?:\.env)(?s:.*))
    deny rwcdx $HOME/.aws/**
    deny rwcdx /opt/**
    allow rx /opt/tool/**
    ask x $PWD/**
    ");
    assert!(matches!(layer.sandboxes[0].fs[0].pattern, PathPattern::Literal(_)));
}

#[test]
fn net_in_the_older_shapes_keeps_its_effects() {
    let policy = r#"
a = sandbox("a", net = [domains({"github.com": allow, "evil.github.com": deny}), localhost(ports = [3000])])
b = sandbox("b", net = "allow")
c = sandbox("c", net = domains({"*": ask(), "docs.rs": allow}))
d = sandbox("d", default = "ask", net = deny)
"#;
    let layer = layer(policy).unwrap();
    let net = |at: usize| &layer.sandboxes[at].net;
    assert_eq!(net(0).judge("api.github.com", 443).0, Allow);
    assert_eq!(net(0).judge("evil.github.com", 443).0, Deny);
    assert_eq!(net(0).judge("127.0.0.1", 3000).0, Allow);
    assert_eq!(net(0).judge("127.0.0.1", 3001).0, Deny);
    let NetworkAccess::Hosts { rules, .. } = net(0) else { panic!("{:?}", net(0)) };
    assert_eq!(rules[2].host, HostPattern::Localhost);
    assert_eq!(*net(1), NetworkAccess::Allow);
    assert_eq!((net(2).judge("x.test", 443).0, net(2).judge("docs.rs", 443).0), (Ask, Allow));
    assert_eq!((net(3), layer.sandboxes[3].default), (&NetworkAccess::Deny, Ask));
}

#[test]
fn a_rule_that_a_broader_one_before_it_decides_is_a_mistake() {
    insta::assert_snapshot!(
        mistake("policy(rules = [\n  exe(\"git\").deny(),\n  exe(\"git\", args = [\"log\"]).allow(),\n])"), @r#"
    /p/policy.star:3:3: this allow comes after a broader deny, which decides first in a list
      |
    3 |   exe("git", args = ["log"]).allow(),
      |   ^

    hint: put it before the rule at /p/policy.star:2, or write one tree
    "#);
}

#[test]
fn a_rule_without_an_effect_is_a_mistake() {
    insta::assert_snapshot!(mistake("policy(rules = [exe(\"git\")])"), @r#"
    /p/policy.star:1:1: `rule without an effect` has no effect
      |
    1 | policy(rules = [exe("git")])
      | ^

    hint: end it with .allow(), .deny() or .ask()
    "#);
    insta::assert_snapshot!(mistake("s = sandbox(\"s\", fs = [home().child(\".x\")])"), @r#"
    /p/policy.star:1:5: `$HOME/.x` has no effect
      |
    1 | s = sandbox("s", fs = [home().child(".x")])
      |     ^

    hint: end it with .allow(), .deny() or .ask()
    "#);
}

#[test]
fn the_small_examples_decide_as_documented() {
    let permissive = r#"
load("@clash//std.star", "match", "tool", "policy", "allow", "deny", "ask")
def main():
    return policy(
        default = ask(),
        rules = [
            match({"Bash": {"git": {"push": {"--force": deny()}}}}),
            match({"Bash": {("git", "cargo", "npm", "make", "just"): allow()}}),
            tool("Read").allow(),
            tool("Write").allow(),
        ],
    )
"#;
    decides(
        permissive,
        &[
            ("git push --force", Deny),
            ("git push", Allow),
            ("cargo build", Allow),
            ("curl x.test", Ask),
            ("Write $PWD/x", Allow),
        ],
    );
    let paranoid = r#"
settings(default = deny())
policy("paranoid", {
    tool("Bash"): {"git": {("status", "diff", "log"): allow()}},
    tool(("Read", "Glob", "Grep")): allow(),
}, doc = "little")
"#;
    decides(
        paranoid,
        &[("git status", Allow), ("git push", Deny), ("ls", Deny), ("Write $PWD/x", Deny)],
    );
    let read_only = r#"
sandbox(name = "repo_readonly", default = deny(), fs = {subpath("$PWD"): allow("r")})
settings(default = deny())
policy("read-only-repo",
    rules = [
        when({"Bash": allow(sandbox = "repo_readonly")}),
        when({("Read", "Glob", "Grep"): allow()}),
    ],
)
"#;
    decides(read_only, &[("cat x", Allow), ("Read $PWD/x", Allow), ("Write $PWD/x", Deny)]);
    assert_eq!(sandbox(read_only, "cat x"), "repo_readonly");
    let spaced = r#"
policy("default", {
    "Bash": {"git push": deny(), "git": allow(), "rm": {"-rf": deny()}},
    default(): ask(),
})
"#;
    decides(spaced, &[("git push", Deny), ("git log", Allow), ("rm -rf /", Deny), ("x", Ask)]);
}

#[test]
fn main_is_called_beside_settings() {
    let policy = r#"
settings(default = ask())
def main():
    return policy(rules = [exe("git", args = ["push"]).deny()])
"#;
    decides(policy, &[("git push", Deny), ("git log", Ask)]);
    let called = r#"
def main():
    when({"Bash": {"git": deny()}})
main()
"#;
    assert_eq!(layer(called).unwrap().groups.len(), 1);
}

#[test]
fn the_steps_of_the_tutorial_give_no_false_alarm() {
    let files = SourceTexts(vec![("/p/policy.star", TUTORIAL_POLICY.to_owned())]);
    let compiled = clash_lang::compile(POLICY_FILE, LayerKind::User, true, &files).unwrap();
    let said: Vec<_> = compiled.warnings.iter().map(|w| (w.kind, w.message.as_str())).collect();
    assert_eq!(said, [("credentials", "`$HOME/.cargo/**` opens `~/.cargo/credentials.toml`")]);
}
