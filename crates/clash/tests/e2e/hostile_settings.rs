//! Every entry of the launcher refuses a command in a project whose settings work against
//! clash, and runs it once the settings are gone.

use std::fs;

use serde_json::json;

use crate::support::{Machine, Ran, Who, clash, feed, program};

const POLICY: &str = r#"
load("@clash//sandboxes.star", "project")
settings(default = ask(), default_sandbox = project)
when({"Bash": {("true", "sh"): allow()}})
"#;

const REFUSAL: &str = "work against clash";

/// A machine with clash installed for Claude Code, and a session of it.
fn machine() -> Machine {
    let m = Machine::new(Who::Me).policy(POLICY);
    m.clash(["install", "--agent", "claude"]).succeeds();
    m.bash("true").is("allow", "");
    m
}

/// Checks that an entry works without the settings, is refused with them, and works again
/// when they are gone.
fn refuses_while_hostile(m: &Machine, file: &str, text: &str, status: i32, run: impl Fn() -> Ran) {
    run().exits(0);
    m.write(format!("app/{file}"), text);
    run().exits(status).says(REFUSAL).says(file);
    fs::remove_file(m.project().join(file)).unwrap();
    run().exits(0);
}

/// As [`refuses_while_hostile`], with settings that switch off all hooks.
fn refuses_while_hooks_are_off(m: &Machine, status: i32, run: impl Fn() -> Ran) {
    refuses_while_hostile(m, ".claude/settings.json", r#"{"disableAllHooks": true}"#, status, run);
}

#[test]
fn exec_refuses_hostile_settings() {
    let m = machine();
    refuses_while_hooks_are_off(&m, 126, || m.clash(["exec", "--", "true"]));
    refuses_while_hooks_are_off(&m, 126, || {
        let mut command = m.command(clash());
        Ran::of(command.env("CLAUDE_CODE_SESSION_ID", "test-session").args(["exec", "true"]))
    });
}

#[test]
fn exec_with_an_approval_refuses_hostile_settings() {
    let m = machine();
    let mut lines = (0..3).map(|_| {
        let updated = m.bash("true").updated.unwrap();
        updated["command"].as_str().unwrap().to_owned()
    });
    // The hook itself refuses in a hostile project, so the approvals come first.
    let lines = std::sync::Mutex::new(lines.by_ref().collect::<Vec<_>>());
    refuses_while_hooks_are_off(&m, 126, || {
        let line = lines.lock().unwrap().pop().unwrap();
        let mut command = m.command("sh");
        Ran::of(command.env("CLAUDE_CODE_SESSION_ID", "test-session").args(["-c", &line]))
    });
}

#[test]
fn the_shell_prefix_refuses_hostile_settings() {
    let m = machine();
    let launcher = m.state().join("bin/clash-shell");
    for (agent, session) in [("x_agent", "test-session"), ("x_harness", "")] {
        refuses_while_hooks_are_off(&m, 126, || {
            let mut command = m.command(&launcher);
            command.env("CLAUDE_CODE_SESSION_ID", session).env("AI_AGENT", agent);
            Ran::of(command.arg("true"))
        });
    }
}

#[test]
fn the_shell_of_an_agent_refuses_hostile_settings() {
    let m = Machine::new(Who::Me).policy(POLICY);
    m.clash(["install", "--agent", "opencode", "--yes"]).succeeds();
    let message = json!({
        "event": "before", "session": "test-session", "call": "call-1", "cwd": m.project(),
        "tool": "bash", "input": {"command": "true"},
    });
    let mut hook = m.command(clash());
    hook.args(["hook", "opencode"]);
    let answer = feed(hook, message.to_string().as_bytes()).wait_with_output().unwrap();
    Ran::from(answer).succeeds();
    let shell = m.state().join("bin/clash-sh");
    for text in
        [r#"{"shell": "/bin/bash"}"#, r#"{"\u0073hell": "x"}"#, r#"{"sh{env:UNSET}ell": "x"}"#]
    {
        refuses_while_hostile(&m, "opencode.json", text, 126, || {
            Ran::of(m.command(&shell).env("CLASH_SESSION", "test-session").args(["-c", "true"]))
        });
    }
}

#[test]
fn sandbox_exec_refuses_hostile_settings() {
    let m = machine();
    refuses_while_hooks_are_off(&m, 126, || m.inside("project", "true"));
    refuses_while_hooks_are_off(&m, 126, || {
        m.clash(["sandbox", "exec", "--simulate", "no-overlay", "project", "--", "true"])
    });
}

#[test]
fn run_refuses_hostile_settings() {
    let m = machine();
    m.write("agents/bin/.keep", "");
    let agent = m.home().join("agents/bin/claude");
    program(&agent, "#!/bin/sh\ntrue\n");
    refuses_while_hooks_are_off(&m, 1, || {
        Ran::of(m.command(clash()).args(["run", "--"]).arg(&agent))
    });
}

#[test]
fn settings_of_an_agent_without_clash_refuse_nothing() {
    let m = Machine::new(Who::Me).policy(POLICY);
    m.write("app/.claude/settings.json", r#"{"disableAllHooks": true}"#);
    m.clash(["exec", "--", "true"]).exits(0);
    m.inside("project", "true").exits(0);
}
