//! The installation for Claude Code: clash changes only its own entries, and removes them.

use crate::support::{Machine, Ran, Who, as_each_user};

fn install(m: &Machine) -> Ran {
    m.clash(["install", "--agent", "claude"])
}

const SETTINGS: &str = "{\n\t\"model\": \"opus\",   \"hooks\": {\"PreToolUse\": [{\"matcher\":\"Bash\",\"hooks\":[{\"type\":\"command\",\"command\":\"lint\"}]}]},\n\t\"unknown\": [1,\n2]\n}";

#[test]
fn everything_else_stays_byte_for_byte() {
    as_each_user(|m| {
        let file = m.write(".claude/settings.json", SETTINGS);
        let read = || std::fs::read_to_string(&file).unwrap();
        install(&m).succeeds();
        let once = read();
        assert!(
            once.contains("hook claude") && once.contains("clash-shell") && once.contains("lint")
        );
        install(&m).succeeds().says("already");
        assert_eq!(read(), once);
        assert_eq!(crate::support::backups(&m), [SETTINGS]);
        m.clash(["uninstall", "--agent", "claude"]).succeeds();
        assert_eq!(read(), SETTINGS);
        m.clash(["uninstall", "--agent", "claude"]).succeeds().says("not installed");
        let left: Vec<_> = std::fs::read_dir(file.parent().unwrap())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(left, ["settings.json"]);
    });
}

#[test]
fn a_dry_run_changes_nothing_and_a_broken_file_is_left_alone() {
    let m = Machine::new(Who::Me);
    m.clash(["install", "--agent", "claude", "--dry-run"]).succeeds().says("hook claude");
    assert!(!m.home().join(".claude").exists());
    let file = m.write(".claude/settings.json", "{\"model\": \"x\", // note\n}");
    install(&m).exits(1).says("hint:");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "{\"model\": \"x\", // note\n}");
}

#[test]
fn the_settings_directory_can_be_elsewhere() {
    let m = Machine::new(Who::Me);
    let elsewhere = m.home().join("cfg");
    let mut command = m.command(crate::support::clash());
    command.env("CLAUDE_CONFIG_DIR", &elsewhere).args(["install", "--agent", "claude"]);
    Ran::of(&mut command).succeeds();
    assert!(elsewhere.join("settings.json").exists() && !m.home().join(".claude").exists());
}

#[test]
fn a_file_that_was_not_there_is_not_there_afterwards() {
    let m = Machine::new(Who::Me);
    install(&m).succeeds();
    m.clash(["uninstall", "--agent", "claude"]).succeeds();
    assert_eq!(std::fs::read_dir(m.home().join(".claude")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(m.state().join("bin")).unwrap().count(), 0);
}

#[test]
fn agents_call_a_copy_that_no_sandbox_can_change() {
    as_each_user(|m| {
        install(&m).succeeds();
        let copy = m.state().join("bin/clash");
        assert_eq!(std::fs::read(&copy).unwrap(), std::fs::read(crate::support::clash()).unwrap());
        m.make_dir(m.home().join(".cargo/bin"));
        m.make_dir(m.home().join(".rustup"));
        m.inside("rust_full", &format!("echo x > {}", copy.display())).fails();
        m.inside("rust_full", &format!("rm {}", copy.display())).fails();
        m.clash(["doctor"]).exits(0);
        std::fs::write(&copy, "old").unwrap();
        m.clash(["doctor"]).exits(1).says("another version of clash");
    });
}

/// The command line that clash has installed as a hook.
fn installed_line(m: &Machine) -> String {
    let text = std::fs::read_to_string(m.home().join(".claude/settings.json")).unwrap();
    let settings: serde_json::Value = serde_json::from_str(&text).unwrap();
    let hook = &settings["hooks"]["PreToolUse"][0]["hooks"][0];
    assert_eq!(
        (hook["command"].as_str(), hook["onFailure"].as_str()),
        (Some("/bin/sh"), Some("block"))
    );
    hook["args"][1].as_str().unwrap().to_owned()
}

#[test]
fn the_guard_blocks_if_the_program_fails() {
    let m = Machine::new(Who::Me);
    install(&m).succeeds();
    let line = installed_line(&m);
    let program = m.state().join("bin/clash").display().to_string();
    let broken = m.tmp().join("clash");
    let with = |script: &str| {
        crate::support::program(&broken, &format!("#!/bin/sh\n{script}\n"));
        let line = line.replace(&program, &broken.display().to_string()).replace(" 20 ", " 1 ");
        Ran::of(m.command("/bin/sh").args(["-c", &line]))
    };
    for failure in [
        "exit 1",
        "kill -SEGV $$",
        "kill -KILL $$",
        "sleep 30",
        "echo junk",
        "echo debug; echo '{\"hookSpecificOutput\":{}}'",
        "echo '{\"hookSpecificOutput\":{}}'; echo debug",
        "echo '[]'",
    ] {
        let ran = with(failure);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{failure}: {ran:?}");
        assert!(ran.stderr.contains("blocked"), "{failure}: {ran:?}");
    }
    std::fs::remove_file(&broken).unwrap();
    let missing = line.replace(&program, &broken.display().to_string());
    Ran::of(m.command("/bin/sh").args(["-c", &missing])).exits(2).says("blocked");
    let answer = "{\"hookSpecificOutput\":{\"hookEventName\":\"PreToolUse\"}}";
    assert_eq!(with(&format!("echo '{answer}'")).succeeds().stdout, answer);
    assert_eq!(with("exit 0").succeeds().stdout, "");
    // The real program, through the same line: an empty message is not valid.
    Ran::of(m.command("/bin/sh").args(["-c", &line])).exits(2).says("blocked");
}

#[test]
fn doctor_names_problems_and_their_fixes() {
    let m = Machine::new(Who::Me);
    m.clash(["doctor"]).exits(0).says("no agent asks clash");
    install(&m).succeeds();
    m.clash(["doctor"]).exits(0).says("the installed hook answers").says("landlock");
    m.write("app/.claude/settings.local.json", "{\"disableAllHooks\": true}");
    m.clash(["doctor"])
        .exits(1)
        .says("switches every hook off")
        .says("remove it from the project's settings");
    let json = m.clash(["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(report["ok"], false);
    std::fs::remove_file(m.project().join(".claude/settings.local.json")).unwrap();
    std::fs::remove_file(m.state().join("bin/clash-shell")).unwrap();
    m.clash(["doctor"]).exits(1).says("is missing");
    let m = m.policy("nonsense(");
    m.clash(["doctor"]).exits(1).says("every action is denied");
}
