//! The messages about mistakes: the line, the column and a hint with the nearest correct
//! form.

use crate::support::{SourceTexts, layer_of, mistake};

#[test]
fn an_unknown_name_suggests_the_nearest() {
    insta::assert_snapshot!(mistake("x = 1\nwhen({\"Bash\": {\"git\": alow()}})"), @r#"
    /p/policy.star:2:23: variable `alow` not found, did you mean `allow`?
      |
    2 | when({"Bash": {"git": alow()}})
      |                       ^
    "#);
}

#[test]
fn a_value_of_the_wrong_type_is_named() {
    insta::assert_snapshot!(mistake("settings(default_sandbox = 3)"), @r#"
    /p/policy.star:1:28: expected a sandbox, found int `3`
      |
    1 | settings(default_sandbox = 3)
      |                            ^

    hint: a sandbox is sandbox(…), or loaded: load("@clash//sandboxes.star", "project")
    "#);
    insta::assert_snapshot!(mistake("when([1])"), @r#"
    /p/policy.star:1:7: expected a dict of keys and effects, found int `1`
      |
    1 | when([1])
      |       ^
    "#);
    insta::assert_snapshot!(mistake("when(\"Bash\")"), @r#"
    /p/policy.star:1:6: expected a dict of keys and effects, found string `Bash`
      |
    1 | when("Bash")
      |      ^
    "#);
    insta::assert_snapshot!(mistake("sandbox(name = \"x\", fs = {3: allow()})"), @r#"
    /p/policy.star:1:27: `3` cannot be a path key
      |
    1 | sandbox(name = "x", fs = {3: allow()})
      |                           ^

    hint: path keys are strings, subpath(), literal(), glob() and regex()
    "#);
    insta::assert_snapshot!(mistake("when({\n  \"Bash\": {\n    \"git\": {\n      4: allow(),\n    },\n  },\n})"), @r#"
    /p/policy.star:4:7: `4` cannot be a key here
      |
    4 |       4: allow(),
      |       ^

    hint: keys are strings, tuples of strings, tool(), mode(), agent(), glob(), regex(), default()
    "#);
    insta::assert_snapshot!(mistake("when({\"Bash\": allow(\"r\")})"), @r#"
    /p/policy.star:1:15: capabilities belong to the file rules of a sandbox, not to a rule
      |
    1 | when({"Bash": allow("r")})
      |               ^

    hint: write allow(sandbox = …) here and allow("rx") inside sandbox(fs = {…})
    "#);
    insta::assert_snapshot!(mistake("s = sandbox(\"s\", protect = \".x\")"), @r#"
    /p/policy.star:1:5: protect takes a list of paths, found `.x`
      |
    1 | s = sandbox("s", protect = ".x")
      |     ^

    hint: protect = [".husky", "scripts/deploy.sh"]
    "#);
}

#[test]
fn a_plain_string_gets_a_hint_for_the_right_key() {
    insta::assert_snapshot!(mistake("sandbox(\"s\", {\"github.com\": allow()})"), @r#"
    /p/policy.star:1:15: `github.com` is a plain string and no path
      |
    1 | sandbox("s", {"github.com": allow()})
      |               ^

    hint: a host is domain("github.com"), a path path("$PWD/github.com")
    "#);
    insta::assert_snapshot!(mistake("sandbox(\"s\", fs = {\n  \"$HOME/*.key\": deny(),\n})"), @r#"
    /p/policy.star:2:3: `$HOME/*.key` contains a wildcard but is a plain string
      |
    2 |   "$HOME/*.key": deny(),
      |   ^

    hint: write glob("$HOME/*.key"), or literal("$HOME/*.key")
    "#);
}

#[test]
fn a_key_without_an_effect_has_its_place() {
    insta::assert_snapshot!(mistake("when({\n  \"Bash\": {\n    \"git\": None,\n  },\n})"), @r#"
    /p/policy.star:3:12: a key has no effect
      |
    3 |     "git": None,
      |            ^

    hint: an effect is allow(…), deny(…) or ask(…)
    "#);
    insta::assert_snapshot!(mistake("when({\n  \"Bash\": {\"git\": {}},\n})"), @r#"
    /p/policy.star:2:12: the dict below `git` is empty
      |
    2 |   "Bash": {"git": {}},
      |            ^

    hint: give an effect, or keys and their effects
    "#);
}

#[test]
fn a_sandbox_defined_twice_names_both_places() {
    insta::assert_snapshot!(mistake("sandbox(\"a\")\n\nsandbox(\"a\")"), @r#"
    /p/policy.star:3:1: sandbox `a` is defined twice
      |
    3 | sandbox("a")
      | ^

    hint: it was first defined at /p/policy.star:1
    "#);
}

#[test]
fn an_unknown_capability_lists_the_letters() {
    insta::assert_snapshot!(mistake("s = sandbox(\"s\", fs = {\n  \"$PWD\": allow(\"rq\"),\n})"), @r#"
    /p/policy.star:2:11: `q` is not a capability
      |
    2 |   "$PWD": allow("rq"),
      |           ^

    hint: the letters are r (read), w (write), c (create), d (delete), x (execute)
    "#);
}

#[test]
fn an_impossible_pattern_says_why() {
    insta::assert_snapshot!(mistake("s = sandbox(\"s\", fs = {\n  glob(\"$PWD/a**b\"): allow(),\n})"), @r#"
    /p/policy.star:2:8: `$PWD/a**b` can match no path: `**` stands alone between slashes; within a name use `*`
      |
    2 |   glob("$PWD/a**b"): allow(),
      |        ^
    "#);
    insta::assert_snapshot!(mistake("s = sandbox(\"s\", fs = {\n  \"$HOME\": {glob(\"a//b\"): allow()},\n})"), @r#"
    /p/policy.star:2:18: `a//b` can match no path: it contains an empty name
      |
    2 |   "$HOME": {glob("a//b"): allow()},
      |                  ^
    "#);
    insta::assert_snapshot!(mistake("when({\"Bash\": {regex(\"a(\"): deny()}})"), @r#"
    /p/policy.star:1:22: `a(` is no regular expression that can be used: unclosed group
      |
    1 | when({"Bash": {regex("a("): deny()}})
      |                      ^
    "#);
}

#[test]
fn a_failing_expectation_names_both_places() {
    insta::assert_snapshot!(mistake("when({\"Bash\": {\"git\": allow()}})\nexpect(deny, \"git push\")"), @r#"
    /p/policy.star:2:1: expected deny, but it is allow
      |
    2 | expect(deny, "git push")
      | ^

    hint: the rule Bash > git at /p/policy.star:1 decides
    "#);
}

#[test]
fn an_unknown_variable_suggests_one() {
    insta::assert_snapshot!(mistake("s = sandbox(\"s\", fs = {\n  \"$CARGO_HOM/x\": allow(),\n})"), @r#"
    /p/policy.star:2:3: `$CARGO_HOM` is no variable of a policy
      |
    2 |   "$CARGO_HOM/x": allow(),
      |   ^

    hint: did you mean `$CARGO_HOME`?
    "#);
}

#[test]
fn a_wrong_host_port_or_limit_gets_a_hint() {
    insta::assert_snapshot!(mistake("s = sandbox(\"s\", net = [\n  \"github.com\",\n  \"https://x.test/a\",\n])"), @r#"
    /p/policy.star:3:3: `https://x.test/a` is no host name
      |
    3 |   "https://x.test/a",
      |   ^

    hint: write the name alone: "x.test"
    "#);
    insta::assert_snapshot!(mistake("s = sandbox(\"s\", limits = {\n  \"memory\": \"4X\",\n})"), @r#"
    /p/policy.star:2:13: `4X` is no limit for memory
      |
    2 |   "memory": "4X",
      |             ^

    hint: a size is "512M", "4G" or a number of bytes
    "#);
    insta::assert_snapshot!(mistake("s = sandbox(\"s\", limits = {\"memroy\": \"4G\"})"), @r#"
    /p/policy.star:1:28: there is no limit `memroy`
      |
    1 | s = sandbox("s", limits = {"memroy": "4G"})
      |                            ^

    hint: did you mean `memory`?
    "#);
    insta::assert_snapshot!(mistake("when({\"WebFetch\": {\"https://github.com\": allow()}})"), @r#"
    /p/policy.star:1:20: `https://github.com` is no host name
      |
    1 | when({"WebFetch": {"https://github.com": allow()}})
      |                    ^

    hint: write the name alone: "github.com"
    "#);
    insta::assert_snapshot!(mistake("s = sandbox(\"s\", env = {\"A\": ask()})"), @r#"
    /p/policy.star:1:30: clash cannot ask about a variable
      |
    1 | s = sandbox("s", env = {"A": ask()})
      |                              ^

    hint: use allow() or deny()
    "#);
    insta::assert_snapshot!(mistake("localhost(ports = [99999])"), @r#"
    /p/policy.star:1:20: `99999` is no port
      |
    1 | localhost(ports = [99999])
      |                    ^

    hint: a port is a number from 1 to 65535
    "#);
}

#[test]
fn settings_given_twice_or_with_a_wrong_word_are_mistakes() {
    insta::assert_snapshot!(mistake("settings(default = ask())\n\nsettings(default = deny())"), @r#"
    /p/policy.star:3:1: settings() is called twice
      |
    3 | settings(default = deny())
      | ^

    hint: it was first called at /p/policy.star:1
    "#);
    insta::assert_snapshot!(mistake("settings(on_sandbox_violation = \"wait\")"), @r#"
    /p/policy.star:1:33: `wait` is no value of on_sandbox_violation
      |
    1 | settings(on_sandbox_violation = "wait")
      |                                 ^

    hint: on_sandbox_violation is "stop", "workaround" or "smart"
    "#);
}

#[test]
fn an_unknown_argument_suggests_one() {
    insta::assert_snapshot!(mistake("s = sandbox(\"s\", nett = allow())"), @r#"
    /p/policy.star:1:18: sandbox() takes no `nett`
      |
    1 | s = sandbox("s", nett = allow())
      |                  ^

    hint: did you mean `net`?
    "#);
    insta::assert_snapshot!(mistake("allow(sandbx = 1)"), @r#"
    /p/policy.star:1:7: allow() takes no `sandbx`
      |
    1 | allow(sandbx = 1)
      |       ^

    hint: did you mean `sandbox`?
    "#);
}

#[test]
fn an_impossible_load_has_its_place() {
    insta::assert_snapshot!(mistake("load(\"@clash//rst.star\", \"rust_full\")"), @r#"
    /p/policy.star:1:1: there is no module `@clash//rst.star`
      |
    1 | load("@clash//rst.star", "rust_full")
      | ^

    hint: did you mean `@clash//rust.star`?
    "#);
    insta::assert_snapshot!(mistake("load(\"@clash//rust.star\", \"rust_ful\")"), @r#"
    /p/policy.star:1:27: module has no symbol `rust_ful`, did you mean `rust_full`?
      |
    1 | load("@clash//rust.star", "rust_ful")
      |                           ^
    "#);
    insta::assert_snapshot!(mistake("load(\"nope.star\", \"x\")"), @r#"
    /p/policy.star:1:1: cannot read `/p/nope.star`: entity not found
      |
    1 | load("nope.star", "x")
      | ^
    "#);
    insta::assert_snapshot!(mistake("load(\"policy.star\", \"x\")"), @r#"
    /p/policy.star:1:1: `/p/policy.star` loads itself
      |
    1 | load("policy.star", "x")
      | ^
    "#);
}

#[test]
fn a_policy_at_a_limit_stops_at_its_line() {
    insta::assert_snapshot!(mistake("def f():\n  for i in range(2000000000):\n    pass\nf()"), @r#"
    /p/policy.star:2:3: the policy takes too long to evaluate
      |
    2 |   for i in range(2000000000):
      |   ^

    hint: a policy is a short program: look for a loop that does not end
    "#);
    insta::assert_snapshot!(mistake("def f(x):\n  return f(x + 1)\n\nf(0)"), @r#"
    /p/policy.star:2:10: the policy calls itself too deeply
      |
    2 |   return f(x + 1)
      |          ^

    hint: a policy is a short program: look for a function that calls itself
    "#);
    insta::assert_snapshot!(mistake("x = [0]\ndef f(x):\n  for i in range(60):\n    x = x + x\nf(x)"), @r#"
    /p/policy.star:4:5: the policy needs too much memory to evaluate
      |
    4 |     x = x + x
      |     ^

    hint: look for a list or string that grows in a loop
    "#);
    insta::assert_snapshot!(mistake("x = \"a\"\ndef f(x):\n  for i in range(60):\n    x += x\n  return x\ny = f(x)"), @r#"
    /p/policy.star:4:5: the policy needs too much memory to evaluate
      |
    4 |     x += x
      |     ^

    hint: look for a list or string that grows in a loop
    "#);
    insta::assert_snapshot!(mistake("x = [i for i in range(2000000000)]"), @r#"
    /p/policy.star:1:1: the policy takes too long to evaluate
      |
    1 | x = [i for i in range(2000000000)]
      | ^

    hint: a policy is a short program: look for a loop that does not end
    "#);
    insta::assert_snapshot!(mistake("x = [[j for j in range(1000)] for i in range(1000000)]"), @r#"
    /p/policy.star:1:1: the policy takes too long to evaluate
      |
    1 | x = [[j for j in range(1000)] for i in range(1000000)]
      | ^

    hint: a policy is a short program: look for a loop that does not end
    "#);
}

#[test]
fn a_deny_that_can_never_match_is_a_mistake() {
    insta::assert_snapshot!(mistake("when({\"Bash\": {\"/usr/bin/git\": deny()}})"), @r#"
    /p/policy.star:1:16: `/usr/bin/git` can match no command
      |
    1 | when({"Bash": {"/usr/bin/git": deny()}})
      |                ^

    hint: a program is matched by its name: "git"
    "#);
    insta::assert_snapshot!(mistake("when({\"Bash\": {\n  \"git && rm\": deny()}})"), @r#"
    /p/policy.star:2:3: `&&` in `git && rm` joins commands
      |
    2 |   "git && rm": deny()}})
      |   ^

    hint: a key matches one command; clash decides each command of a script on its own
    "#);
    insta::assert_snapshot!(mistake("when({\"git push\": deny()})"), @r#"
    /p/policy.star:1:7: `git push` is no tool
      |
    1 | when({"git push": deny()})
      |       ^

    hint: a command stands below Bash: {"Bash": {"git push": …}}
    "#);
}

/// The error of a policy with files beside it.
fn mistake_in(files: &[(&'static str, &str)]) -> String {
    let files = files.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
    layer_of(&SourceTexts(files)).unwrap_err().to_string()
}

#[test]
fn files_that_load_each_other_are_stopped_at_the_load() {
    insta::assert_snapshot!(mistake_in(&[
        ("/p/policy.star", "load(\"a.star\", \"x\")"),
        ("/p/a.star", "# first\nload(\"b.star\", \"x\")"),
        ("/p/b.star", "load(\"a.star\", \"x\")"),
    ]), @r#"
    /p/b.star:1:1: `/p/a.star` loads itself by way of `/p/b.star`
      |
    1 | load("a.star", "x")
      | ^
    "#);
}

#[test]
fn too_long_a_chain_of_loads_is_a_mistake() {
    const NAMES: [&str; 20] = [
        "/p/policy.star",
        "/p/1.star",
        "/p/2.star",
        "/p/3.star",
        "/p/4.star",
        "/p/5.star",
        "/p/6.star",
        "/p/7.star",
        "/p/8.star",
        "/p/9.star",
        "/p/10.star",
        "/p/11.star",
        "/p/12.star",
        "/p/13.star",
        "/p/14.star",
        "/p/15.star",
        "/p/16.star",
        "/p/17.star",
        "/p/18.star",
        "/p/19.star",
    ];
    let files = NAMES.iter().enumerate();
    let files = files.map(|(at, name)| (*name, format!("load(\"{}.star\", \"x\")", at + 1)));
    let said = layer_of(&SourceTexts(files.collect())).unwrap_err().to_string();
    insta::assert_snapshot!(said, @r#"
    /p/15.star:1:1: `/p/16.star` is loaded 16 files deep
      |
    1 | load("16.star", "x")
      | ^
    "#);
}
