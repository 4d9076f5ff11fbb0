//! `clash doctor`: its findings about policies, sandboxes and clash's own files, and
//! `--fix`. The tests of the agents check its findings about agents.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::support::{Machine, Ran, Who, as_each_user, clash, skipped};

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
    // Such a policy does not compile, and doctor says so.
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
            skipped("doctor --fix on a machine that needs no fix: it needs one");
        }
        m.clash(["doctor", "--dry-run"]).exits(2);
        m.clash(["doctor", "--fix", "--json"]).exits(2);
    });
}

/// The test forbids user namespaces and runs clash there without capabilities.
#[test]
fn a_machine_without_namespaces_is_found_out_by_trying() {
    as_each_user(|m| {
        let inside = |args: &str| {
            let own = clash().display();
            let script = format!(
                "echo 0 > /proc/sys/user/max_user_namespaces || exit 77; \
                 exec setpriv --bounding-set=-all --inh-caps=-all {own} {args}"
            );
            Ran::of(m.command("unshare").args(["--user", "--map-root-user", "sh", "-c", &script]))
        };
        m.clash(["status"]).exits(0);
        let status = inside("status");
        if status.code != Some(0) {
            return skipped("a machine without user namespaces, because it cannot be made here");
        }
        status.says("machine   no rooms (new namespaces: No space left on device");
        let doctor = inside("doctor").says("note   room: ").says("No space left on device");
        doctor.says("fix: raise `sysctl user.max_user_namespaces`");
        inside("doctor --fix").exits(1).says("AppArmor is not the reason");
        inside("sandbox check readonly").exits(0).says("direct tier");
        inside("sandbox test readonly").exits(0).says("all as the policy says");
        // The result there does not change the result on this machine.
        let here = m.clash(["status"]).exits(0);
        assert!(!here.stdout.contains("No space left"), "{here:?}");
    });
}

#[test]
fn doctor_names_the_setting_against_bare_repositories() {
    if !std::path::Path::new("/usr/bin/git").exists() {
        return skipped("what doctor says of git, because it is not there");
    }
    as_each_user(|m| {
        let fix = "git config --global safe.bareRepository explicit";
        m.clash(["doctor"]).says(fix);
        let set = m.command("sh").args(["-c", fix]).status().unwrap();
        assert!(set.success());
        let ran = m.clash(["doctor"]).says("safe.bareRepository is explicit");
        assert!(!ran.stdout.contains(fix), "{ran:?}");
    });
}
