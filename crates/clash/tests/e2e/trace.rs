//! The trace has every record, whole and in order.

pub(crate) mod blocks;

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
    let rows: Vec<&str> = text.lines().filter(|line| line.contains("Bash")).collect();
    assert_eq!(rows.len(), 1, "one row for one action: {text}");
    assert!(rows[0].contains("allow  exit 2   Bash       project      make"), "{text}");
    assert_eq!(m.clash(["log", "-n", "1"]).stdout.lines().count(), 1);
    let id = rows[0].split_whitespace().next().unwrap();
    let story = m.clash(["log", "show", id]).succeeds().stdout;
    for part in ["what      make", "decision  allow", "ended     exit 2 after 12 ms", "Exit code 2"]
    {
        assert!(story.contains(part), "no `{part}` in {story}");
    }
    m.clash(["log", "show", "test-ses.999"]).exits(1).says("no action");
    m.clash(["session", "list"]).succeeds().says("1 actions");
    m.clash(["session", "show"]).succeeds().says("test-session");
    m.clash(["log", "verify"]).succeeds().says("5 records, unchanged and in order");
}

#[test]
fn filters_choose_actions() {
    let m = Machine::new(Who::Me)
        .policy("when({\"Bash\": {\"make\": allow(), \"git\": deny()}, \"Read\": allow(), \"WebFetch\": deny()})");
    let call = |n: usize, tool: &str, input: serde_json::Value| {
        let mut message = m.message("PreToolUse", tool, input);
        message["tool_use_id"] = json!(format!("call-{n}"));
        m.hook(&message);
    };
    call(1, "Bash", json!({"command": "make one"}));
    call(2, "Bash", json!({"command": "git push"}));
    call(3, "Read", json!({"file_path": m.project().join("src/x.rs")}));
    call(4, "WebFetch", json!({"url": "https://docs.rs/x"}));
    let whats = |args: &[&str]| -> Vec<String> {
        let ran = m.clash(["log", "--json"].iter().chain(args)).succeeds();
        let rows = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
        rows.map(|row: serde_json::Value| row["what"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(whats(&[]).len(), 4);
    assert_eq!(whats(&["--blocked"]), ["git push", "docs.rs"]);
    assert_eq!(
        whats(&["--effect", "allow"]),
        ["make one".to_owned(), m.project().join("src/x.rs").display().to_string()]
    );
    assert_eq!(whats(&["--host", "docs.rs"]), ["docs.rs"]);
    assert_eq!(whats(&["--path", "src"]).len(), 1);
    assert!(whats(&["--sandbox", "project"]).contains(&"make one".to_owned()));
    assert_eq!(whats(&["--sandbox", "nowhere"]).len(), 0);
    assert_eq!(whats(&["--agent", "codex"]).len(), 0);
    assert_eq!(whats(&["--agent", "claude"]).len(), 4);
    assert_eq!(whats(&["--since", "1h", "-n", "1"]), ["docs.rs"]);
    assert_eq!(whats(&["--since", "2999-01-01"]).len(), 0);
    m.clash(["log", "--since", "soon"]).exits(2).says("2h or 3d");
}

#[test]
fn verify_finds_a_changed_shortened_or_removed_trace() {
    let m = Machine::new(Who::Me).policy("when({\"Bash\": allow()})");
    for n in 0..3 {
        m.bash(&format!("make {n}"));
    }
    let file = m.state().join("sessions/test-session/trace.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    m.clash(["log", "verify"]).succeeds();
    std::fs::write(&file, text.replace("make 1", "make 9")).unwrap();
    m.clash(["log", "verify"]).exits(1).says("after record 1");
    let lines: Vec<&str> = text.lines().collect();
    std::fs::write(&file, format!("{}\n{}\n", lines[0], lines[1])).unwrap();
    m.clash(["log", "verify", "--json"]).exits(1).says("records at the end are missing");
    std::fs::remove_file(&file).unwrap();
    m.clash(["log", "verify"]).exits(1).says("broken");
}

#[test]
fn a_full_disk_denies_with_the_reason() {
    if !crate::support::is_root() {
        return crate::support::skipped("a full disk, because only root can mount a small one");
    }
    let m = Machine::new(Who::Me).policy("when({\"Bash\": allow()})");
    m.bash("make");
    let message = m.message("PreToolUse", "Bash", json!({"command": "make".repeat(2000)}));
    let script = format!(
        "set -e; cp -r {state} {copy}; mount -t tmpfs -o size=300k none {state}; \
         cp -r {copy}/sessions {state}; dd if=/dev/zero of={state}/fill 2>/dev/null || true; \
         exec {clash} hook claude",
        state = m.state().display(),
        copy = m.tmp().join("copy").display(),
        clash = clash().display(),
    );
    let mut hook = m.command("unshare");
    hook.args(["-m", "sh", "-c", &script]);
    let child = crate::support::feed(hook, message.to_string().as_bytes());
    let ran = crate::support::Ran::from(child.wait_with_output().unwrap());
    let answer = crate::support::Answer::of(&ran);
    answer.is("deny", "No space left on device");
}

#[test]
fn a_read_only_state_denies_with_the_reason() {
    if !crate::support::is_root() {
        return crate::support::skipped("a read-only state, because only root can mount one");
    }
    let m = Machine::new(Who::Me).policy("when({\"Bash\": allow()})");
    m.bash("make");
    let message = m.message("PreToolUse", "Bash", json!({"command": "make"}));
    let script = format!(
        "set -e; mount --bind {state} {state}; mount -o remount,bind,ro {state}; \
         exec {clash} hook claude",
        state = m.state().display(),
        clash = clash().display(),
    );
    let mut hook = m.command("unshare");
    hook.args(["-m", "sh", "-c", &script]);
    let child = crate::support::feed(hook, message.to_string().as_bytes());
    let ran = crate::support::Ran::from(child.wait_with_output().unwrap());
    crate::support::Answer::of(&ran).is("deny", "Read-only file system");
}

#[test]
fn a_followed_log_streams_records_as_they_arrive() {
    use std::io::{BufRead, BufReader};
    let m = Machine::new(Who::Me).policy("when({\"Bash\": allow()})");
    m.bash("make first");
    let mut log = m.command(clash());
    log.args(["log", "--records", "--json", "--follow"]).stdout(Stdio::piped());
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
    const HOOKS: usize = 200;
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
        let ran = crate::support::Ran::from(child.wait_with_output().unwrap());
        crate::support::Answer::of(&ran).is("allow", "is allowed");
    }
    let whats: Vec<String> =
        m.trace().iter().map(|r| r["what"].as_str().unwrap().chars().take(8).collect()).collect();
    assert_eq!(whats.len(), HOOKS + 1);
    m.clash(["log", "verify"]).succeeds().says("201 records, unchanged and in order");
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
