//! The trace has every record, whole and in order.

use std::process::Stdio;

use serde_json::json;

use crate::support::{Machine, Who, clash};

#[test]
fn a_session_is_recorded_from_start_to_end() {
    let m = Machine::new(Who::Me).policy("when({\"Bash\": {\"make\": allow()}})");
    let event = |name: &str| m.hook(&m.message(name, "Bash", json!({})));
    event("SessionStart");
    m.bash("make");
    let mut failed = m.message("PostToolUseFailure", "Bash", json!({"command": "make"}));
    failed["error"] = json!("Exit code 2");
    failed["duration_ms"] = json!(12);
    m.hook(&failed);
    event("SessionEnd");
    let shown: Vec<String> = m
        .trace()
        .iter()
        .map(|r| format!("{} {} {}", r["event"], r["effect"], r["reason"]).replace('"', ""))
        .collect();
    assert_eq!(shown[0], "session_start null null");
    assert!(shown[1].starts_with("decision allow `make` is allowed (rule at"), "{shown:?}");
    assert_eq!(shown[2], "exit null Exit code 2");
    assert!(shown[3].starts_with("alarm") && shown[4].starts_with("session_end"), "{shown:?}");
    let text = m.clash(["log"]).succeeds().stdout;
    assert!(text.contains("allow     Bash       project      make"), "{text}");
    assert_eq!(m.clash(["log", "-n", "1"]).stdout.lines().count(), 1);
}

#[test]
fn a_followed_log_streams_records_as_they_arrive() {
    use std::io::{BufRead, BufReader};
    let m = Machine::new(Who::Me).policy("when({\"Bash\": allow()})");
    m.bash("make first");
    let mut log = m.command(clash());
    log.args(["log", "--json", "--follow"]).stdout(Stdio::piped());
    let mut log = log.spawn().unwrap();
    let mut lines = BufReader::new(log.stdout.take().unwrap()).lines();
    let mut next =
        || -> serde_json::Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["what"], "make first");
    m.bash("make second");
    assert_eq!(next()["what"], "make second");
    log.kill().unwrap();
    log.wait().unwrap();
}

#[test]
fn log_without_sessions_names_the_next_step() {
    let m = Machine::new(Who::Me);
    m.clash(["log"]).exits(1).says("clash install --agent claude");
    m.clash(["log", "--session", "nope"]).exits(1).says("no session `nope`");
}

#[test]
fn records_of_parallel_hooks_do_not_mix() {
    const HOOKS: usize = 60;
    let m = Machine::new(Who::Me).policy("when({\"Bash\": allow()})");
    m.bash("warm");
    let long = "x".repeat(20_000);
    let children: Vec<_> = (0..HOOKS)
        .map(|n| {
            let message =
                m.message("PreToolUse", "Bash", json!({"command": format!("make {n} {long}")}));
            m.start_hook(message.to_string().as_bytes())
        })
        .collect();
    for child in children {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    let whats: Vec<String> =
        m.trace().iter().map(|r| r["what"].as_str().unwrap().chars().take(8).collect()).collect();
    assert_eq!(whats.len(), HOOKS + 1);
    for n in 0..HOOKS {
        assert!(whats.contains(&format!("make {n} {long}").chars().take(8).collect()), "{n}");
    }
}

#[test]
fn an_answer_is_in_the_trace_even_if_the_hook_is_killed() {
    use std::io::Read;
    let m = Machine::new(Who::Me).policy("when({\"Bash\": allow()})");
    for n in 0..20 {
        let message = m.message("PreToolUse", "Bash", json!({"command": format!("make {n}")}));
        let mut child = m.start_hook(message.to_string().as_bytes());
        // The hook has begun to answer: kill it now.
        let mut first = [0];
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        let _ = child.kill();
        let _ = child.wait();
        let found = m.trace().iter().any(|r| r["what"] == format!("make {n}"));
        assert!(found, "the record of call {n} is missing");
    }
}

#[test]
fn the_trace_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let m = Machine::new(Who::Me);
    m.bash("make");
    let mode = std::fs::metadata(m.state()).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}
