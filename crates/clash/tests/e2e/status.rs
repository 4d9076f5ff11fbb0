//! `clash status`: one screen about what holds here.

use serde_json::Value;

use crate::support::{Machine, Who, as_each_user};

const POLICY: &str = r#"
load("@clash//sandboxes.star", "readonly")

settings(default = deny(), default_sandbox = readonly)
when({"Bash": {"sudo": deny(reason = "not on this machine")}})
"#;

/// The output of `clash status` with `~` for the home, without the lines about the machine.
fn shown(m: &Machine) -> String {
    let ran = m.clash(["status"]).succeeds();
    let lines = ran.stdout.lines().filter(|line| !line.starts_with("machine "));
    let text: Vec<String> = lines.map(str::to_owned).collect();
    text.join("\n").replace(&m.home().display().to_string(), "~")
}

#[test]
fn an_empty_machine_names_the_missing_parts() {
    let m = Machine::new(Who::Me);
    insta::assert_snapshot!(shown(&m), @r"
    project   ~/app
    policy    none of your own
    default   ask, in sandbox project
    agents    none found; `clash install --agent claude` puts clash in front of one
    blocked   nothing so far
    ");
}

#[test]
fn layers_default_agents_and_refusals_are_shown() {
    insta::allow_duplicates!(as_each_user(|m| {
        let m = m.policy(POLICY);
        m.write("app/.clash/policy.star", "when({\"Bash\": {\"ls\": allow()}})\n");
        m.clash(["install", "--agent", "claude"]).succeeds();
        m.bash("sudo reboot").is("deny", "not on this machine");
        let text = shown(&m);
        let (before, blocked) = text.split_once("blocked ").unwrap();
        insta::assert_snapshot!(before.trim_end(), @r"
        project   ~/app
        policy    project (~/app/.clash/policy.star, not trusted: it can only tighten)
                  user (~/.clash/policy.star)
        default   deny, in sandbox readonly (~/.clash/policy.star:4)
        agents    Claude Code: wired; commands are confined
        ");
        assert!(
            blocked.contains("`sudo reboot` is denied (rule at ~/.clash/policy.star:5)"),
            "{blocked}"
        );
        let ran = m.clash(["status", "--json"]).succeeds();
        let value: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(value["policy"]["default"], "deny");
        assert_eq!(value["policy"]["layers"][0]["trusted"], false);
        assert_eq!(value["agents"][0]["state"], "wired");
        assert_eq!(value["blocked"][0]["what"], "sudo reboot");
        assert_eq!(value["machine"]["seccomp"], true);
        assert_eq!(value["machine"]["inside_clash"], Value::Null);
    }));
}

#[test]
fn a_broken_policy_is_the_first_thing_to_know() {
    let m = Machine::new(Who::Me).policy("when(\n");
    let ran = m.clash(["status"]).exits(1).says("policy    every action is denied");
    assert!(!ran.stdout.contains("default "), "{ran:?}");
    let value: Value =
        serde_json::from_str(&m.clash(["status", "--json"]).exits(1).stdout).unwrap();
    assert_eq!(value["policy"]["ok"], false);
}

/// The status line has the last block and sandbox of its own session, and no claim more.
#[test]
fn the_status_line_says_what_the_trace_says() {
    let m = Machine::new(Who::Me).policy(POLICY);
    let line = |message: &str| {
        let mut command = m.command(crate::support::clash());
        command.arg("statusline");
        let child = crate::support::feed(command, message.as_bytes());
        crate::support::Ran::from(child.wait_with_output().unwrap()).succeeds().stdout
    };
    assert_eq!(line("no json"), "clash: this session is not known\n");
    let message = r#"{"session_id": "test-session", "model": {"id": "x"}}"#;
    assert_eq!(line(message), "clash: no command in a sandbox yet\n");
    m.bash("sudo reboot\u{1b}[2J").is("deny", "not on this machine");
    let shown = line(message);
    assert!(shown.contains("denied: sudo reboot"), "{shown}");
    assert!(shown.ends_with("(clash allow --last)\n") && !shown.contains('\u{1b}'), "{shown:?}");
    assert_eq!(line(r#"{"session_id": "other"}"#), "clash: no command in a sandbox yet\n");
}
