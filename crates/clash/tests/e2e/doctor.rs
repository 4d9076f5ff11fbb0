//! `clash doctor`: what it says about policies, sandboxes and clash's own files,
//! and `--fix`. What it says about agents is with their tests.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::support::{Machine, Who, as_each_user};

#[test]
fn every_section_is_there_as_text_and_as_json() {
    as_each_user(|m| {
        let ran = m.clash(["doctor"]).exits(0);
        for line in ["\nthis machine\n", "\npolicy\n", "\nsandboxes\n", "\nclash's own files\n"] {
            assert!(format!("\n{}", ran.stdout).contains(line), "{line}: {ran:?}");
        }
        for item in [
            "Linux ",
            "landlock: ABI",
            "room: ",
            "seccomp listener",
            "cgroup",
            "overlayfs",
            "reflink",
        ] {
            assert!(ran.stdout.contains(item), "{item}: {ran:?}");
        }
        let value: Value =
            serde_json::from_str(&m.clash(["doctor", "--json"]).exits(0).stdout).unwrap();
        assert_eq!(value["ok"], true);
        let findings = value["findings"].as_array().unwrap();
        let about = |section: &str| findings.iter().filter(|one| one["section"] == section).count();
        assert!(about("this machine") > 10 && about("sandboxes") > 0);
    });
}

#[test]
fn an_untrusted_project_is_a_note_and_a_trusted_one_is_well() {
    let m = Machine::new(Who::Me);
    m.write("app/.clash/policy.star", "when({\"Bash\": {\"ls\": allow()}})\n");
    let ran = m.clash(["doctor"]).exits(0).says("is not trusted: its allows count as ask");
    ran.says("fix: clash trust");
    m.clash(["trust", "--yes"]).succeeds();
    let ran = m.clash(["doctor"]).exits(0);
    assert!(!ran.stdout.contains("not trusted"), "{ran:?}");
}

#[test]
fn state_that_others_can_write_is_wrong() {
    let m = Machine::new(Who::Me);
    m.clash(["doctor"]).exits(0);
    std::fs::set_permissions(m.state(), PermissionsExt::from_mode(0o777)).unwrap();
    m.clash(["doctor"]).exits(1).says("can be written by others").says("fix: chmod go-w");
}

#[test]
fn a_record_that_lies_is_noticed_and_renewed() {
    let m = Machine::new(Who::Me);
    m.clash(["doctor"]).exits(0);
    let record = m.state().join("host");
    let true_one = std::fs::read_to_string(&record).unwrap();
    let lie = true_one.replace("notify works", "notify missing it is a lie");
    assert_ne!(lie, true_one);
    std::fs::write(&record, lie).unwrap();
    m.clash(["doctor"]).exits(0).says("was no longer true");
    assert_eq!(std::fs::read_to_string(&record).unwrap(), true_one);
}

#[test]
fn a_default_sandbox_that_cannot_be_enforced_is_wrong() {
    let text = "sandbox(name = \"odd\", fs = {\"$NOWHERE/x\": allow(\"r\")})\n";
    let m = Machine::new(Who::Me).policy(text);
    // Such a policy does not compile, and that is what is said.
    m.clash(["doctor"]).exits(1).says("every action is denied");
    let rules = "fs = {\"$PWD/link\": allow(\"r\")}";
    let text = format!("settings(default_sandbox = sandbox(name = \"trap\", {rules}))\n");
    let m = Machine::new(Who::Me).policy(&text);
    std::os::unix::fs::symlink("/etc", m.project().join("link")).unwrap();
    m.clash(["doctor"]).exits(1).says("wrong  trap: ").says("fix:");
}

#[test]
fn there_is_nothing_to_fix_where_rooms_can_be_made() {
    as_each_user(|m| {
        if m.clash(["sandbox", "check", "git_safe"]).stdout.contains("in a room") {
            m.clash(["doctor", "--fix"]).exits(0).says("nothing to fix");
            m.clash(["doctor", "--fix", "--dry-run"]).exits(0).says("nothing to fix");
        } else {
            crate::support::skipped("doctor --fix on a machine that needs no fix: it needs one");
        }
        m.clash(["doctor", "--dry-run"]).exits(2);
        m.clash(["doctor", "--fix", "--json"]).exits(2);
    });
}
