//! `clash sandbox check` and `clash sandbox test`, which try whether this machine enforces a
//! policy.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::support::{Machine, Ran, Who, as_each_user, clash, copy_program, eventually, is_root};

const POLICY: &str = r#"
load("@clash//sandboxes.star", "project")

settings(default = ask(), default_sandbox = project)

sandbox(name = "part", fs = {"$PWD": allow(FULL), "$PWD/secret": deny(), "$HOME/notes": allow("r")})
"#;

/// All files and directories below a directory, with the text of the files. Leaves out
/// `.local` and `.cache`, where clash has its own files.
fn tree(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with(".local") || path.ends_with(".cache") {
            continue;
        }
        if path.is_dir() {
            found.extend(tree(&path));
        }
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        found.push((path, text));
    }
    found.sort();
    found
}

/// Writes files of the project, notes, and credentials.
fn write_users_files(m: &Machine) {
    m.write("notes/today", "text");
    m.write("app/secret/key", "text");
    m.write("app/main.rs", "text");
    m.write(".ssh/id_ed25519", "text");
    m.write(".netrc", "text");
    m.write(".claude/settings.json", "{}");
}

#[test]
fn sandbox_test_agrees_with_the_rules_and_leaves_no_files() {
    as_each_user(|m| {
        let m = m.policy(POLICY);
        write_users_files(&m);
        let before = tree(m.home().parent().unwrap());
        for name in ["project", "readonly", "git_safe", "part"] {
            let ran = m.clash(["sandbox", "test", name, "--json"]).exits(0);
            let value: Value = serde_json::from_str(&ran.stdout).unwrap();
            assert_eq!((&value["ok"], &value["sandbox"]), (&Value::Bool(true), &name.into()));
            let trials = value["trials"].as_array().unwrap();
            let seen = |what: &str, seen: &str| {
                assert!(
                    trials.iter().any(|trial| {
                        trial["what"].as_str().unwrap().contains(what) && trial["seen"] == seen
                    }),
                    "{name}: no {seen} `{what}` in {value:#}"
                );
            };
            let project = m.project().display().to_string();
            seen(&format!("read a file in {project}"), "allowed");
            seen(&format!("read a file in {}", m.home().join(".ssh").display()), "blocked");
            seen(".netrc", "blocked");
            seen("reach a TCP port", "blocked");
            seen("reach a UDP port", "blocked");
            seen("abstract socket", "blocked");
            seen("signal a process", "blocked");
            seen("environment of a process", "blocked");
            seen("settings.json to write", "blocked");
            seen("CLASH_TEST_TOKEN", "blocked");
            let may_write = if name == "readonly" { "blocked" } else { "allowed" };
            for act in ["write a file in", "create a file in", "delete a file in"] {
                seen(&format!("{act} {project}"), may_write);
            }
            if name == "part" {
                seen(&format!("read a file in {project}/secret"), "blocked");
                seen(&format!("create a file in {project}/secret"), "blocked");
                seen(&format!("read a file in {}/notes", m.home().display()), "allowed");
                seen(&format!("write a file in {}/notes", m.home().display()), "blocked");
            }
        }
        assert_eq!(tree(m.home().parent().unwrap()), before);
    });
}

#[test]
fn the_network_is_open_where_the_policy_opens_it() {
    as_each_user(|m| {
        let m = m.policy("sandbox(name = \"online\", fs = {\"$PWD\": allow(RO)}, net = allow())\n");
        let ran = m.clash(["sandbox", "test", "online"]).exits(0);
        let ran = ran.says("allowed  reach a TCP port of this machine");
        ran.says("allowed  reach a UDP port of this machine").says("blocked  signal");
    });
}

#[test]
fn a_disagreement_is_said_and_is_a_failure() {
    let m = Machine::new(if is_root() { Who::Nobody } else { Who::Me });
    let m = m.policy("sandbox(name = \"s\", fs = {literal(\"$HOME/locked\"): allow(\"r\")})\n");
    let locked = m.write("locked", "text");
    std::fs::set_permissions(&locked, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    let ran = m.clash(["sandbox", "test", "s"]).exits(1);
    let line = "WRONG  blocked  read ~/locked  (~/.clash/policy.star:1): the policy allows it, \
                but: Permission denied";
    ran.says(line).says("1 not as the policy says");
}

#[test]
fn a_test_that_is_killed_leaves_nothing_either() {
    let m = Machine::new(Who::Me).policy(POLICY).settled();
    write_users_files(&m);
    m.clash(["sandbox", "test", "project"]).exits(0);
    let before = tree(m.home().parent().unwrap());
    for round in 0..8 {
        let mut command = m.command(clash());
        command.args(["sandbox", "test", "project"]).stdout(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(8 * round));
        let _ = child.kill();
        child.wait().unwrap();
    }
    eventually("everything is gone", || tree(m.home().parent().unwrap()) == before);
}

#[test]
fn unrestricted_and_unknown_sandboxes_cannot_be_tried() {
    let m = Machine::new(Who::Me);
    m.clash(["sandbox", "test", "unrestricted"]).exits(1).says("is unrestricted");
    let misspelt = m.clash(["sandbox", "test", "projct"]).exits(1);
    misspelt.says("there is no sandbox `projct`").says("did you mean `project`?");
    m.clash(["sandbox", "exec", "projct", "--", "true"]).exits(125).says("did you mean `project`?");
}

#[test]
fn sandbox_check_plans_for_this_host_and_for_others() {
    as_each_user(|m| {
        let m = m.policy(POLICY);
        m.clash(["sandbox", "check", "project"]).exits(0).says("ok       project  in a room");
        m.clash(["sandbox", "check", "readonly"]).exits(0).says("ok       readonly  direct tier");
        let old = m.clash(["sandbox", "check", "--simulate", "abi=1"]).exits(1);
        old.says("refused  part").says("Landlock ABI 1 is too old").says("fix: use Linux 6.12");
        let none = m.clash(["sandbox", "check", "--json", "--simulate", "abi=0"]).exits(1);
        let value: Value = serde_json::from_str(&none.stdout).unwrap();
        assert_eq!(value["ok"], false);
        for one in value["sandboxes"].as_array().unwrap() {
            let free = one["sandbox"] == "unrestricted";
            assert_eq!(one["ok"], free, "{one}");
            assert!(free || one["refusal"].as_str().unwrap().contains("no Landlock"));
            assert!(free || !one["fix"].as_str().unwrap().is_empty());
        }
    });
}

/// On every host there is a plan, or a refusal that names the fix.
#[test]
fn a_plan_for_another_host_is_a_plan_or_a_refusal_with_its_fix() {
    let m = Machine::new(Who::Me).policy(POLICY).settled();
    let mut hosts: Vec<String> = (1..=7).map(|abi| format!("abi={abi}")).collect();
    hosts.extend(["no-userns", "container", "root"].map(str::to_owned));
    for host in hosts {
        for name in ["project", "readonly", "part"] {
            let ran = m.clash(["sandbox", "plan", name, "--json", "--simulate", &host]);
            match ran.code {
                Some(0) => {
                    let value: Value = serde_json::from_str(&ran.stdout).unwrap();
                    assert_eq!(value["sandbox"], name);
                    assert!(value["report"].as_array().unwrap().len() > 5, "{host} {name}");
                }
                _ => drop(
                    ran.exits(125).says(&format!("sandbox {name} cannot be set up")).says("hint:"),
                ),
            }
        }
    }
    m.clash(["sandbox", "plan", "readonly", "--simulate", "no-userns"])
        .exits(0)
        .says("direct tier");
    let two = ["sandbox", "plan", "project", "--simulate", "root", "--simulate", "abi=7"];
    m.clash(two).exits(0).says("made by root");
    let junk = m.clash(["sandbox", "plan", "project", "--simulate", "windows"]).exits(1);
    junk.says("`windows` is no host that can be simulated").says("known are no-userns");
}

#[test]
fn a_refusal_names_the_rule_the_facility_and_the_fix() {
    let m = Machine::new(Who::Me).policy(POLICY);
    m.write("app/secret/key", "text");
    let place = format!("{}:6: ", m.home().join(".clash/policy.star").display());
    let ran =
        m.clash(["sandbox", "plan", "part", "--simulate", "no-userns", "--simulate", "abi=2"]);
    let ran = ran.exits(125);
    assert!(ran.stderr.contains("Landlock ABI 2 is too old"), "{ran:?}");
    let ran = m.clash(["sandbox", "check", "part", "--simulate", "no-userns"]);
    if ran.code == Some(1) {
        assert!(ran.stdout.contains(&place), "{ran:?}");
        ran.says("no user namespaces (simulated)").says("fix:");
    }
}

#[test]
fn the_host_is_probed_once_and_a_damaged_record_is_renewed() {
    as_each_user(|m| {
        let record = m.state().join("host");
        m.clash(["sandbox", "exec", "readonly", "--", "true"]).exits(0);
        let first = std::fs::read_to_string(&record).unwrap();
        assert!(first.starts_with("clash host 7\n") && first.ends_with("\nend\n"), "{first}");
        // Whatever is tried again is written again.
        let stamp = |path: &Path| std::fs::metadata(path).unwrap().modified().unwrap();
        let before = stamp(&record);
        m.clash(["sandbox", "exec", "readonly", "--", "true"]).exits(0);
        assert_eq!(stamp(&record), before);
        for junk in ["", "junk", first.trim_end_matches("end\n"), &first.replace("rooms", "roams")]
        {
            std::fs::write(&record, junk).unwrap();
            m.clash(["sandbox", "exec", "readonly", "--", "true"]).exits(0);
            assert_eq!(std::fs::read_to_string(&record).unwrap(), first);
        }
    });
}

#[test]
fn a_command_knows_its_sandbox_by_name() {
    as_each_user(|m| {
        let script = "printf %s \"$CLASH_SANDBOX\"";
        assert_eq!(m.inside("readonly", script).exits(0).stdout, "readonly");
        let lying = ["sandbox", "exec", "readonly", "--", "sh", "-c", script];
        let mut command = m.command(clash());
        assert_eq!(Ran::of(command.env("CLASH_SANDBOX", "x").args(lying)).stdout, "readonly");
    });
}

#[test]
fn clash_inside_clash_adds_a_second_sandbox() {
    as_each_user(|m| {
        for name in ["clash", "clash-compile", "clash-door"] {
            let (from, to) = (clash().with_file_name(name), m.project().join(name));
            if std::fs::hard_link(&from, &to).is_err() {
                copy_program(&from, &to);
            }
        }
        let own = m.project().join("clash").display().to_string();
        let inside = |outer: &str, args: &[&str]| {
            let outer = ["sandbox", "exec", outer, "--", own.as_str()];
            m.clash(outer.into_iter().chain(args.iter().copied()))
        };
        let script = "printf %s $CLASH_SANDBOX; touch x";
        let inner = ["sandbox", "exec", "readonly", "--", "sh", "-c", script];
        // This one only takes rights away, and an inner one takes more.
        let status = inside("readonly", &["status"]).exits(0);
        status.says("no rooms").says("inside clash's sandbox readonly");
        inside("readonly", &["sandbox", "check", "readonly"]).exits(0).says("direct tier");
        assert_eq!(inside("readonly", &inner).fails().stdout, "readonly");
        // This one carries calls out in the place of its commands, against which an
        // inner one could not hold.
        let refused = inside("project", &inner).exits(125);
        refused.says("a sandbox around this one answers").says("hint: what runs here is confined");
        assert!(!m.project().join("x").exists());
    });
}

#[test]
fn names_denied_by_a_regex_are_tried_with_and_without_a_room() {
    as_each_user(|m| {
        let m = m.policy(
            r#"
sandbox(
    name = "keys",
    fs = {
        subpath("$PWD"): allow(FULL),
        "$PWD": {regex(".*[.]key[0-9]"): deny()},
    },
)
"#,
        );
        for host in [&[][..], &["--simulate", "no-userns"]] {
            let ran = m.clash(["sandbox", "test", "keys"].into_iter().chain(host.iter().copied()));
            ran.exits(0).says("create .key0 in").says("all as the policy says");
        }
    });
}
