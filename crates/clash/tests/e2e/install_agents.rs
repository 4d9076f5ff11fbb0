//! The installation for every agent: clash changes only the agent's files, and restores them.

use std::fs;
use std::path::Path;

use crate::support::{Machine, Ran, Who, as_each_user, clash, program};

/// An agent, its settings file, and the user's text in it.
const AGENTS: [(&str, &str, &str); 5] = [
    ("claude", ".claude/settings.json", "{\n\t\"model\": \"opus\",   \"unknown\": [1,\n2]\n}"),
    (
        "codex",
        ".codex/config.toml",
        "# mine\nmodel = \"x\" # too\n\n[[hooks.PreToolUse]]\n[[hooks.PreToolUse.hooks]]\ntype = \"command\"\ncommand = \"lint\"\n[projects.\"/p\"]\ntrust_level = \"trusted\"",
    ),
    (
        "gemini",
        ".gemini/settings.json",
        "// mine\n{\n  /* \"hooks\": {} */\n  \"hooks\": {\"BeforeTool\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"lint\"}]}]}, // too\n  \"ui\": {\"theme\": \"x\"} // last\n}\n",
    ),
    (
        "qwen",
        ".qwen/settings.json",
        "{\r\n  \"model\": {\"name\": \"x\"}, // mine\r\n  \"hooks\": {}\r\n}\r\n",
    ),
    ("droid", ".factory/settings.json", "{\"customModels\":[{\"model\":\"x\"}]}"),
];

/// All files below a directory, sorted.
fn files(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            found.extend(files(&entry));
        } else {
            found.push(entry.display().to_string());
        }
    }
    found.sort();
    found
}

#[test]
fn only_the_agents_file_changes_and_comes_back() {
    as_each_user(|m| {
        for (agent, file, text) in AGENTS {
            let file = m.write(file, text);
            let before = files(file.parent().unwrap());
            m.clash(["install", "--agent", agent, "--yes"]).succeeds().says("now decides");
            let once = fs::read_to_string(&file).unwrap();
            assert!(once.contains(&format!("hook {agent}")), "{once}");
            m.clash(["install", "--agent", agent, "--yes"]).succeeds().says("already");
            assert_eq!(fs::read_to_string(&file).unwrap(), once, "{agent}");
            m.clash(["uninstall", "--agent", agent]).succeeds();
            assert_eq!(fs::read_to_string(&file).unwrap(), text, "{agent}");
            assert_eq!(files(file.parent().unwrap()), before, "{agent}");
            m.clash(["uninstall", "--agent", agent]).succeeds().says("not installed");
        }
    });
}

#[test]
fn a_new_file_goes_again_and_a_broken_one_stays() {
    for (agent, file, _) in AGENTS {
        let m = Machine::new(Who::Me);
        m.clash(["install", "--agent", agent, "--dry-run"]).succeeds().says("hook");
        assert!(!m.home().join(file).exists(), "{agent}");
        m.clash(["install", "--agent", agent, "--yes"]).succeeds();
        m.clash(["uninstall", "--agent", agent]).succeeds();
        assert!(!m.home().join(file).exists(), "{agent}");
        let broken = m.write(file, "{\"a\": = ");
        m.clash(["install", "--agent", agent, "--yes"]).exits(1).says("hint:");
        assert_eq!(fs::read_to_string(&broken).unwrap(), "{\"a\": = ", "{agent}");
    }
}

#[test]
fn settings_can_be_elsewhere() {
    for (agent, variable, file) in [
        ("claude", "CLAUDE_CONFIG_DIR", "settings.json"),
        ("codex", "CODEX_HOME", "config.toml"),
        ("gemini", "GEMINI_CLI_HOME", ".gemini/settings.json"),
        ("qwen", "QWEN_HOME", "settings.json"),
        ("droid", "FACTORY_HOME_OVERRIDE", ".factory/settings.json"),
    ] {
        let m = Machine::new(Who::Me);
        let elsewhere = m.home().join("elsewhere");
        let mut command = m.command(clash());
        command.env(variable, &elsewhere).args(["install", "--agent", agent, "--yes"]);
        Ran::of(&mut command).succeeds();
        assert!(elsewhere.join(file).exists(), "{agent}");
        let mut command = m.command(clash());
        command.env(variable, &elsewhere).args(["doctor"]);
        Ran::of(&mut command).exits(0).says("installed in").says("the installed hook answers");
    }
}

#[test]
fn a_projects_settings_can_be_wired_instead() {
    for (agent, file) in [
        ("claude", ".claude/settings.local.json"),
        ("gemini", ".gemini/settings.json"),
        ("qwen", ".qwen/settings.json"),
        ("droid", ".factory/settings.json"),
    ] {
        let m = Machine::new(Who::Me).policy(crate::client::POLICY);
        m.clash(["install", "--agent", agent, "--project"]).succeeds();
        assert!(m.project().join(file).exists(), "{agent}");
        // The entries of clash do not work against clash.
        m.bash("echo x").is("allow", "");
        m.clash(["uninstall", "--agent", agent, "--project"]).succeeds();
        assert!(!m.project().join(file).exists(), "{agent}");
    }
    let m = Machine::new(Who::Me);
    m.clash(["install", "--agent", "codex", "--project"]).exits(1).says("no settings of that kind");
}

/// Writes a program that prints this version of a client, and returns a search path with it.
fn pretend(m: &Machine, name: &str, version: &str) -> String {
    let path = m.write(format!("bin/{name}"), "");
    program(&path, &format!("#!/bin/sh\necho '{version}'\n"));
    format!("{}:/usr/bin:/bin", path.parent().unwrap().display())
}

#[test]
fn a_client_that_is_too_old_is_refused_with_the_reason() {
    for (agent, old, file) in [
        ("claude", "1.0.88 (Claude Code)", ".claude/settings.json"),
        ("codex", "codex-cli 0.40.0", ".codex/config.toml"),
        ("gemini", "0.8.1", ".gemini/settings.json"),
        ("qwen", "0.0.14", ".qwen/settings.json"),
        ("droid", "0.26.0", ".factory/settings.json"),
    ] {
        let m = Machine::new(Who::Me);
        let path = pretend(&m, agent, old);
        let mut command = m.command(clash());
        command.env("PATH", &path).args(["install", "--agent", agent, "--yes"]);
        Ran::of(&mut command).exits(1).says("is too old").says("hint: update");
        assert!(!m.home().join(file).exists(), "{agent}");
    }
}

#[test]
fn without_a_name_every_agent_that_is_here_is_meant() {
    let m = Machine::new(Who::Me);
    let path = pretend(&m, "gemini", "0.61.0");
    pretend(&m, "droid", "0.215.0");
    let mut command = m.command(clash());
    command.env("PATH", &path).args(["install"]);
    let ran = Ran::of(&mut command).succeeds().says("Gemini CLI").says("Factory Droid");
    assert!(!ran.stdout.contains("Claude Code"), "{ran:?}");
    let mut command = m.command(clash());
    command.env("PATH", "/nowhere").args(["install"]);
    Ran::of(&mut command).exits(1).says("no agent is found").says("--agent");
}

#[test]
fn the_programs_stay_as_long_as_any_agent_calls_them() {
    let m = Machine::new(Who::Me);
    m.clash(["install", "--agent", "codex", "--yes"]).succeeds();
    m.clash(["install", "--agent", "gemini"]).succeeds();
    let program = m.state().join("bin/clash");
    m.clash(["uninstall", "--agent", "codex"]).succeeds();
    assert!(program.exists());
    m.clash(["uninstall", "--agent", "gemini"]).succeeds();
    assert!(!program.exists());
}

#[test]
fn doctor_notices_that_codex_does_not_trust_the_hooks_any_more() {
    let m = Machine::new(Who::Me);
    m.clash(["install", "--agent", "codex", "--yes"]).succeeds();
    m.clash(["doctor"]).exits(0).says("installed in");
    let file = m.home().join(".codex/config.toml");
    let text = fs::read_to_string(&file).unwrap();
    let own = "[[hooks.PreToolUse]]\n[[hooks.PreToolUse.hooks]]\ntype = \"command\"\ncommand = \"lint\"\n";
    fs::write(&file, format!("{own}{text}")).unwrap();
    m.clash(["doctor"])
        .exits(1)
        .says("does not trust them any more")
        .says("clash install --agent codex");
    m.clash(["install", "--agent", "codex", "--yes"]).succeeds();
    m.clash(["doctor"]).exits(0);
}
