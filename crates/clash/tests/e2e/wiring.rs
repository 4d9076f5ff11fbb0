//! "Confined" is said after a trial with the command in the agent's settings, and
//! never otherwise.

use std::fs;
use std::path::PathBuf;

use crate::support::{Machine, Ran, Who, as_each_user, clash, program};

const ALLOW: &str = r#"
load("@clash//sandboxes.star", "project")
settings(default = allow(), default_sandbox = project)
"#;

/// Every agent, and the file with the hook that judges its tool calls.
const AGENTS: [(&str, &str); 13] = [
    ("claude", ".claude/settings.json"),
    ("codex", ".codex/config.toml"),
    ("gemini", ".gemini/settings.json"),
    ("qwen", ".qwen/settings.json"),
    ("droid", ".factory/settings.json"),
    ("opencode", ".config/opencode/plugins/clash.js"),
    ("kilo", ".config/kilo/plugin/clash.js"),
    ("copilot", ".copilot/hooks/clash.json"),
    ("cline", ".cline/hooks/PreToolUse"),
    ("pi", ".pi/agent/extensions/clash.ts"),
    ("q", ".aws/amazonq/cli-agents/clash.json"),
    ("kiro", ".kiro/agents/clash.json"),
    ("cursor", ".cursor/hooks.json"),
];

/// A machine that allows everything, with clash installed for the agent.
fn installed(m: Machine, agent: &str) -> Machine {
    let m = m.policy(ALLOW);
    m.clash(["install", "--agent", agent, "--yes"]).succeeds().says("a trial command ran in");
    m
}

/// Checks that `clash status` says `not confined` of an agent, and of none that its commands
/// are confined.
fn is_not_confined(m: &Machine, case: &str) -> Ran {
    let status = m.clash(["status"]);
    let agents: Vec<&str> = status.stdout.lines().filter(|line| line.contains(": ")).collect();
    assert!(!status.stdout.contains("commands are confined"), "{case}: {agents:?}");
    assert!(status.stdout.contains("not confined"), "{case}: {agents:?}");
    status
}

/// Checks that `clash doctor` fails and that no trial ran in a sandbox.
fn doctor_finds_none_confined(m: &Machine, case: &str) {
    let doctor = m.clash(["doctor"]).exits(1);
    assert!(!doctor.stdout.contains("which ran in sandbox"), "{case}: {doctor:?}");
}

#[test]
fn confined_is_said_of_every_agent_after_a_trial() {
    as_each_user(|m| {
        let m = m.policy(ALLOW);
        for (agent, _) in AGENTS {
            m.clash(["install", "--agent", agent, "--yes"]).succeeds().says("a trial command ran");
        }
        let status = m.clash(["status"]).succeeds();
        let confined = status.stdout.matches("wired; commands are confined").count();
        assert_eq!(confined, AGENTS.len(), "{status:?}");
        m.clash(["doctor"]).exits(0).says("it let `true` through, which ran in sandbox project");
        // Trials leave nothing.
        let sessions = fs::read_dir(m.state().join("sessions")).into_iter().flatten().flatten();
        assert_eq!(sessions.filter(|entry| entry.path().is_dir()).count(), 0);
        assert!(status.stdout.contains("nothing so far"), "{status:?}");
    });
}

#[test]
fn broken_settings_are_never_confined() {
    for (agent, file) in AGENTS {
        let m = installed(Machine::new(Who::Me), agent);
        let file = m.home().join(file);
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{{\"a\": = \n{text}")).unwrap();
        is_not_confined(&m, agent);
        doctor_finds_none_confined(&m, agent);
    }
    let m = Machine::new(Who::Me).policy(ALLOW);
    m.write(".claude/settings.json", "{\"model\": ");
    m.clash(["install", "--agent", "claude"]).exits(1).says("not JSON");
    let status = m.clash(["status"]).succeeds();
    status.says("Claude Code: its settings cannot be used; not confined").says("not JSON");
    m.clash(["doctor"]).exits(1).says("not JSON");
}

#[test]
fn settings_that_cannot_be_read_are_never_confined() {
    let m = installed(Machine::new(Who::Nobody), "claude");
    let file = m.home().join(".claude/settings.json");
    if fs::metadata(&file).is_err() {
        return;
    }
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    is_not_confined(&m, "unreadable").says("cannot read");
}

#[test]
fn a_missing_or_other_program_is_never_confined() {
    for (agent, _) in AGENTS {
        let m = installed(Machine::new(Who::Me), agent);
        let own = m.state().join("bin/clash");
        fs::remove_file(&own).unwrap();
        is_not_confined(&m, agent);
        doctor_finds_none_confined(&m, agent);
        // It answers nothing, and blocks nothing.
        program(&own, "#!/bin/sh\ncat > /dev/null\n");
        is_not_confined(&m, agent);
        program(&own, "#!/bin/sh\ncat > /dev/null; echo '{\"decision\":\"allow\"}'\n");
        is_not_confined(&m, agent);
    }
}

/// The line in the settings counts, and not the one that clash would write.
#[test]
fn the_line_in_the_settings_is_the_one_that_is_tried() {
    for (agent, file) in AGENTS {
        let m = installed(Machine::new(Who::Me), agent);
        let file = m.home().join(file);
        let text = fs::read_to_string(&file).unwrap();
        let own = m.state().join("bin/clash").display().to_string();
        fs::write(&file, text.replace(&own, "/nowhere/clash")).unwrap();
        is_not_confined(&m, agent);
    }
}

#[test]
fn install_goes_on_after_a_broken_agent_and_sums_up() {
    let m = Machine::new(Who::Me).policy(ALLOW);
    let bin: PathBuf = m.home().join("bin");
    m.make_dir(&bin);
    for (name, version) in [("claude", "2.1.325"), ("gemini", "0.61.0"), ("droid", "0.215.0")] {
        program(bin.join(name), &format!("#!/bin/sh\necho {version}\n"));
    }
    m.write(".claude/settings.json", "{\"model\": ");
    let mut command = m.command(clash());
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display())).arg("install");
    let ran = Ran::of(&mut command).exits(1);
    let text = format!("{}{}", ran.stdout, ran.stderr);
    let text = text.replace(&m.home().display().to_string(), "~");
    insta::assert_snapshot!(text, @r"
    Claude Code: not installed
      ~/.claude/settings.json: not JSON: EOF while parsing a value at line 1 column 10
      hint: correct the file, or move it away, and try again
    changed ~/.gemini/settings.json
    Gemini CLI: clash now decides; a trial command ran in sandbox project
    changed ~/.factory/settings.json
    Factory Droid: clash now decides; a trial command ran in sandbox project
    Running sessions keep their old settings: start a new one.
    clash: 1 of 3 agents are not installed: Claude Code

    hint: follow the hint of each, then install again
    ");
}

/// The output of a command with `~` for the home.
fn shown(m: &Machine, ran: &Ran) -> String {
    let text = format!("{}{}", ran.stdout, ran.stderr);
    text.replace(&m.home().display().to_string(), "~")
}

/// Three agents: one in order, one with its own sandbox on, one with broken settings.
#[test]
fn status_and_doctor_show_the_state_of_each_agent() {
    insta::allow_duplicates!(as_each_user(|m| {
        let m = m.policy(ALLOW);
        let install = |args: &[&str]| shown(&m, &m.clash([&["install", "--agent"], args].concat()));
        insta::assert_snapshot!(install(&["claude"]), @r"
        changed ~/.claude/settings.json
        Claude Code: clash now decides; a trial command ran in sandbox project
        Running sessions keep their old settings: start a new one.
        ");
        insta::assert_snapshot!(install(&["claude"]), @r"
        clash is in ~/.claude/settings.json already
        Claude Code: clash decides; a trial command ran in sandbox project
        ");
        insta::assert_snapshot!(install(&["codex"]), @r#"
        clash: Codex CLI has a sandbox of its own (sandbox_mode is not set). No command of clash can start in it.
        The change in ~/.codex/config.toml:
          sandbox_mode = "danger-full-access"
        Clash then confines every command, and `clash uninstall` puts the old value back.

        hint: `--yes` makes the change; `--keep-sandbox` installs without it
        "#);
        insta::assert_snapshot!(install(&["codex", "--keep-sandbox"]), @r"
        changed ~/.codex/config.toml
        Codex CLI: clash now decides; a trial command ran in sandbox project
        Codex CLI's own sandbox is on (`sandbox_mode` is not set): no command can start in it
        Running sessions keep their old settings: start a new one.
        ");
        install(&["gemini"]);
        m.write(".gemini/settings.json", "{ x");
        let status = shown(&m, &m.clash(["status"]));
        let agents: Vec<&str> = status
            .lines()
            .skip_while(|line| !line.starts_with("agents"))
            .take_while(|line| !line.starts_with("machine"))
            .collect();
        insta::assert_snapshot!(agents.join("\n"), @r"
        agents    Claude Code: wired; commands are confined
                  Codex CLI: wired; no command can start
                    Codex CLI's own sandbox is on (`sandbox_mode` is not set): no command can start in it
                    fix: clash install --agent codex
                  Gemini CLI: its settings cannot be used; not confined
                    ~/.gemini/settings.json: not JSON: key must be a string at line 1 column 3
                    fix: correct the file, or move it away, and try again
        ");
        let doctor = shown(&m, &m.clash(["doctor"]).exits(1));
        let (_, agents) = doctor.split_once("\nClaude Code\n").unwrap();
        insta::assert_snapshot!(agents, @r"
          ok     installed in ~/.claude/settings.json
          ok     the installed hook answers, and blocks what it does not understand
          ok     it let `true` through, which ran in sandbox project

        Codex CLI
          ok     installed in ~/.codex/config.toml
          ok     the installed hook answers, and blocks what it does not understand
          ok     it let `true` through, which ran in sandbox project
          wrong  Codex CLI's own sandbox is on (`sandbox_mode` is not set): no command can start in it
                 fix: clash install --agent codex

        Gemini CLI
          wrong  ~/.gemini/settings.json: not JSON: key must be a string at line 1 column 3
                 fix: correct the file, or move it away, and try again
        ");
    }));
}
