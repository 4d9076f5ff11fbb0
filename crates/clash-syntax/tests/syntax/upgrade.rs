use proptest::prelude::*;

use crate::support::{comments, library, program};
use clash_syntax::upgrade::upgrade;

/// The upgraded source, what changed, and what stays.
fn upgraded(source: &str) -> String {
    let new = upgrade(source).unwrap_or_else(|error| panic!("{error}\n{source}"));
    let again = upgrade(&new.source).unwrap();
    assert_eq!(again.source, new.source, "not idempotent");
    assert_eq!(again.changes, []);
    assert_eq!(again.left, new.left);
    let mut before = comments(source);
    let mut after = comments(&new.source);
    before.sort();
    after.sort();
    assert_eq!(before, after, "comments lost");
    let mut text = new.source;
    for change in new.changes {
        text.push_str(&format!("{}: {}\n", change.line, change.what));
    }
    for left in new.left {
        text.push_str(&format!("{} stays: {}\n", left.line, left.why));
    }
    text
}

#[test]
fn tools_at_the_root_are_bare_names() {
    insta::assert_snapshot!(upgraded("policy(\"x\", {\n    tool(\"Bash\"): {\"git\": allow()},  # shell\n    Tool([\"Read\", 'Glob']): allow(),\n    tool((\"A\",)): ask(),\n    Mode(\"plan\"): {tool(\"Write\"): deny()},\n    tool(regex(\"mcp.*\")): ask(),\n})\nrules = {Tool(\"Bash\"): allow()}\nwhen(merge({tool(\"A\"): allow()}, rules))\n"), @r#"
    policy("x", {
        "Bash": {"git": allow()},  # shell
        ("Read", "Glob"): allow(),
        "A": ask(),
        mode("plan"): {"Write": deny()},
        tool(regex("mcp.*")): ask(),
    })
    rules = {tool("Bash"): allow()}
    when(merge({"A": allow()}, rules))
    2: `tool(…)` at the root is the bare name
    3: `tool(…)` at the root is the bare name
    4: `tool(…)` at the root is the bare name
    5: `Mode` is `mode`
    5: `tool(…)` at the root is the bare name
    8: `Tool` is `tool`
    9: `tool(…)` at the root is the bare name
    "#);
}

#[test]
fn rules_in_builder_form_become_trees() {
    insta::assert_snapshot!(upgraded("exe(\"git\", args = [\"push\", [\"-f\", \"--force\"]]).deny()\nexe([\"cargo\", \"rustc\"]).sandbox(rust).allow()\ntool([\"Read\", \"Glob\"]).sandbox(x).allow()\ntool(\"Write\").ask(reason = \"look\")\nexe(NAME).allow()\ntool().allow()\nexe(\"a\").cwd(\"/\").allow()\n"), @r#"
    when({"Bash": {"git": {"push": {("-f", "--force"): deny()}}}})
    when({"Bash": {("cargo", "rustc"): allow(sandbox = rust)}})
    when({("Read", "Glob"): allow(sandbox = x)})
    when({"Write": ask(reason = "look")})
    exe(NAME).allow()
    tool().allow()
    exe("a").cwd("/").allow()
    1: a rule in builder form
    2: a rule in builder form
    3: a rule in builder form
    4: a rule in builder form
    5 stays: a program without a name
    6 stays: a tool without a name
    7 stays: an unknown builder
    "#);
}

#[test]
fn path_builders_become_keys() {
    insta::assert_snapshot!(upgraded("s = sandbox(\n    name = \"s\",\n    fs = [\n        # the project\n        cwd(follow_worktrees = True).recurse().allow(read = True, write = True),\n        home().child(\".cargo\").recurse().allow(execute = True, read = True, write = False),  # tools\n        home().child(\".gitconfig\").file().allow(read = True),\n        home().file(\".netrc\").deny(),\n        home().child(\"bin\").allow(),\n        tempdir().recurse().allow(),\n        cwd().match(\"/srv/.*\").deny(),\n        # nothing more\n    ],\n    net = domains({\"github.com\": allow()}),\n)\n"), @r#"
    s = sandbox(
        name = "s",
        fs = {
            # the project
            subpath("$PWD", follow_worktrees = True): allow("rw"),
            subpath("$HOME/.cargo"): allow("rx"),  # tools
            literal("$HOME/.gitconfig"): allow("r"),
            literal("$HOME/.netrc"): deny(),
            glob("$HOME/bin/*"): allow(),
            subpath("$TMPDIR"): allow(),
            regex("/srv/.*"): deny(),
            # nothing more
        },
        net = {"github.com": allow()},
    )
    3: file rules as a list are a dict
    14: `domains({…})` is the dict
    "#);
}

#[test]
fn uncertain_forms_stay_and_are_reported() {
    insta::assert_snapshot!(upgraded("a = sandbox(name = \"a\", fs = [cwd().allow()])\nb = sandbox(name = \"b\", fs = [home().match(\"x\").allow()])\nc = sandbox(name = \"c\", fs = [cwd().recurse().allow(read = True), cwd().recurse().allow(write = True)])\nd = sandbox(name = \"d\", fs = [home().child(\"../x\").recurse().allow()], net = [domains({})])\ne = sandbox(\"e\", {network(): allow(), odd(): deny()})\nf = cwd().recurse()\npolicy(\"p\", rules = [exe(\"git\").allow()])\ng = allow(read = X)\nh = match(rules)\n"), @r#"
    a = sandbox(name = "a", fs = [cwd().allow()])
    b = sandbox(name = "b", fs = [home().match("x").allow()])
    c = sandbox(name = "c", fs = [cwd().recurse().allow(read = True), cwd().recurse().allow(write = True)])
    d = sandbox(name = "d", fs = [home().child("../x").recurse().allow()], net = [domains({})])
    e = sandbox("e", {network(): allow(), odd(): deny()})
    f = cwd().recurse()
    policy("p", rules = [exe("git").allow()])
    g = allow(read = X)
    h = match(rules)
    1 stays: a directory without `child`, `recurse`, `file` or `match`
    2 stays: a pattern that does not name the whole path
    3 stays: two rules for the same path
    4 stays: a path that leaves its directory
    4 stays: `domains` as a part of a network rule
    5 stays: a key that is neither a path nor a host
    6 stays: an older builder that clash cannot rewrite
    7 stays: a list of rules has an order, and a tree has none
    8 stays: a capability that is computed
    9 stays: `match` with an argument that is not a plain dict
    "#);
}

#[test]
fn a_sandbox_as_a_tree_gets_keywords() {
    insta::assert_snapshot!(upgraded("sandbox(\"s\", {\n    default(): deny(),\n    # project\n    path(\"$PWD\", worktree = True): allow(read = True, write = True),\n    path(\"$HOME\"): {path(\".cargo\"): allow(), (path(\"a\"), glob(\"b/*\")): allow(\"r\")},  # home\n    domain(\"github.com\"): allow(),\n    localhost(ports = [80]): allow(),\n    network(): ask(),\n    # end\n}, doc = \"d\")\nsandbox(\"t\", {network(): deny()})\n"), @r##"
    sandbox(
        name = "s",
        default = deny(),
        fs = {
            # project
            subpath("$PWD", follow_worktrees = True): allow("rw"),
            "$HOME": {".cargo": allow(), ("a", glob("b/*")): allow("r")},  # home
            # end
        },
        net = {
            "github.com": allow(),
            localhost(ports = [80]): allow(),
            default(): ask(),
        },
        doc = "d",
    )
    sandbox(
        name = "t",
        net = deny(),
    )
    1: a sandbox as a tree has keyword arguments
    4: capabilities are letters
    5: `path(…)` in file rules is the bare string
    5: `path(…)` in file rules is the bare string
    11: a sandbox as a tree has keyword arguments
    "##);
}

#[test]
fn match_is_its_dict_and_a_comment_inside_keeps_a_form() {
    insta::assert_snapshot!(upgraded("when(match({tool(\"Bash\"): match({\"a\": allow(read = True)})}))\nx = allow(  # why\n    read = True)\n"), @r#"
    when({"Bash": {"a": allow("r")}})
    x = allow(  # why
        read = True,
    )
    1: `match({…})` is the dict
    1: `tool(…)` at the root is the bare name
    1: `match({…})` is the dict
    1: capabilities are letters
    2 stays: a comment stands inside it
    "#);
}

#[test]
fn names_of_the_policy_itself_are_not_older_forms() {
    let source = "def match(x):\n    return x\nwhen(match({\"a\": allow()}))\n";
    assert_eq!(upgrade(source).unwrap().source, source);
}

#[test]
fn the_present_language_stays_as_it_is() {
    for source in &library() {
        let new = upgrade(source).unwrap();
        assert_eq!((new.source.as_str(), new.changes, new.left), (source.as_str(), vec![], vec![]));
    }
}

proptest! {
    #[test]
    fn programs_without_older_forms_stay(source in program()) {
        prop_assert_eq!(upgrade(&source).unwrap().source, source);
    }
}
