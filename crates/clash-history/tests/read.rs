//! Histories as the clients themselves wrote them (`samples/`, shortened), those
//! of earlier versions, and hostile ones.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clash_history::{
    HistoryFile, HistoryRoots, ReadTally, SeenCall, all_histories, histories_below, history_at,
    latest_history, read,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples")
}

/// Every call on a line, and what reading came across.
fn told(histories: &[HistoryFile]) -> (Vec<String>, ReadTally) {
    let mut calls = Vec::new();
    let tally = read(histories, &["claude", "kiro"], &mut |seen: SeenCall| {
        let cwd = seen.cwd.map_or_else(|| "?".to_owned(), |path| path.display().to_string());
        let mut values: Vec<String> = seen.input.values().map(ToString::to_string).collect();
        values.sort();
        let when = if seen.when.is_some() { "" } else { " (no time)" };
        calls.push(format!(
            "{} {cwd} {} {} {:?}{when}",
            seen.agent,
            seen.tool,
            values.join(" "),
            seen.outcome
        ));
        ControlFlow::Continue(())
    });
    (calls, tally)
}

fn sample(path: &str) -> (String, ReadTally) {
    let (calls, tally) = told(&histories_below(&samples().join(path)).unwrap());
    (calls.join("\n"), tally)
}

#[test]
fn a_transcript_of_claude_code_2_1_is_read() {
    let (calls, tally) = sample("claude");
    insta::assert_snapshot!(calls, @r#"
    claude /work/app Bash "build" "cargo build" Failed
    claude /work/app Bash "d" "echo hi > out.txt; cat out.txt" Ran
    claude /work/app Write "/work/app/w.txt" Ran
    claude /work/app Read "/work/app/out.txt" Ran
    claude /work/app Bash "cd /tmp && pwd" "d" Ran
    "#);
    assert!(tally.is_complete(), "{tally:?}");
}

#[test]
fn a_rollout_of_codex_0_166_is_read() {
    let (calls, tally) = sample("codex");
    insta::assert_snapshot!(calls, @r#"
    codex /work/app Bash "echo hi > out.txt; cat out.txt" Ran
    codex /tmp Bash "exit 3" Failed
    "#);
    assert!(tally.is_complete(), "{tally:?}");
}

#[test]
fn a_chat_of_gemini_0_61_is_read() {
    let (calls, tally) = sample("gemini");
    insta::assert_snapshot!(calls, @r#"
    gemini /work/app run_shell_command "d" "echo hi > out.txt; cat out.txt" Ran
    gemini /work/app write_file "/work/app/w.txt" Ran
    gemini /work/app read_file "/work/app/out.txt" Ran
    gemini /work/app run_shell_command "d" "exit 3" Failed
    "#);
    assert!(tally.is_complete(), "{tally:?}");
}

#[test]
fn rows_of_opencode_in_the_log_are_read() {
    let (calls, tally) = sample("opencode");
    insta::assert_snapshot!(calls, @r#"
    opencode /work/app bash "d" "echo hi > out.txt; cat out.txt" Ran
    opencode /work/app write "/work/app/w.txt" Ran
    opencode /work/app bash "d" "exit 3" Failed
    "#);
    assert!(tally.is_complete(), "{tally:?}");
}

/// Writes a history and reads it.
fn written(path: &str, text: &str) -> (Vec<String>, ReadTally) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    told(&histories_below(dir.path()).unwrap())
}

#[test]
fn rollouts_of_earlier_codex_are_read() {
    let lines = [
        json!({"timestamp": "2025-06-01T10:00:00Z", "type": "session_meta", "payload": {"id": "x", "cwd": "/work/app"}}),
        json!({"timestamp": "2025-06-01T10:00:01Z", "type": "response_item", "payload": {"type": "function_call", "name": "shell", "arguments": "{\"command\":[\"bash\",\"-lc\",\"make test\"],\"workdir\":\"/work/app/sub\"}", "call_id": "1"}}),
        json!({"timestamp": "2025-06-01T10:00:02Z", "type": "response_item", "payload": {"type": "function_call_output", "call_id": "1", "output": "{\"output\":\"\",\"metadata\":{\"exit_code\":0}}"}}),
        json!({"timestamp": "2025-06-01T10:00:03Z", "type": "response_item", "payload": {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin Patch\n*** Add File: a.rs\n+x\n*** Update File: b.rs\n*** End Patch", "call_id": "2"}}),
        json!({"timestamp": "2025-06-01T10:00:04Z", "type": "response_item", "payload": {"type": "custom_tool_call_output", "call_id": "2", "output": "Success. Updated the following files:\nA a.rs"}}),
        json!({"timestamp": "2025-06-01T10:00:05Z", "type": "response_item", "payload": {"type": "function_call", "name": "shell", "arguments": "{\"command\":[\"git\",\"push\"]}", "call_id": "3"}}),
    ];
    let text = lines.map(|line| line.to_string()).join("\n");
    let (calls, tally) = written("sessions/2025/rollout-1.jsonl", &text);
    insta::assert_snapshot!(calls.join("\n"), @r#"
    codex /work/app/sub Bash "make test" Ran
    codex /work/app Write "a.rs" Ran
    codex /work/app Edit "b.rs" Ran
    codex /work/app Bash "'git' 'push'" Unknown
    "#);
    assert!(tally.is_complete(), "{tally:?}");
}

#[test]
fn files_of_earlier_gemini_and_opencode_are_read() {
    let chat = json!({"sessionId": "s", "projectHash": "h", "messages": [
        {"type": "user", "content": "x"},
        {"type": "gemini", "content": "", "toolCalls": [
            {"id": "1", "name": "read_file", "args": {"absolute_path": "/work/app/a"}, "status": "success", "timestamp": "2025-06-01T10:00:00Z"},
            {"id": "2", "name": "run_shell_command", "args": {"command": "rm x"}, "status": "cancelled", "timestamp": "2025-06-01T10:00:00Z"},
        ]},
    ]});
    let (calls, _) = written("tmp/p/chats/session-1.json", &chat.to_string());
    insta::assert_snapshot!(calls.join("\n"), @r#"
    gemini ? read_file "/work/app/a" Ran
    gemini ? run_shell_command "rm x" Refused
    "#);
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("storage/session/p/ses_1.json", json!({"id": "ses_1", "directory": "/work/app"})),
        (
            "storage/part/msg_1/prt_1.json",
            json!({"type": "tool", "sessionID": "ses_1", "tool": "bash", "state": {"status": "completed", "input": {"command": "make"}, "metadata": {"exit": 0}, "time": {"start": 5}}}),
        ),
    ] {
        let file = dir.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text.to_string()).unwrap();
    }
    let (calls, _) = told(&histories_below(dir.path()).unwrap());
    assert_eq!(calls, [r#"opencode /work/app bash "make" Ran"#]);
}

#[test]
fn a_trace_of_clash_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let session = dir.path().join("sessions/s1");
    fs::create_dir_all(&session).unwrap();
    fs::write(session.join("project"), "/work/app").unwrap();
    let lines = [
        json!({"v": 1, "time": 1, "session": "s1", "event": "decision", "agent": "claude", "call": "a", "tool": "Bash", "what": "make", "effect": "allow"}),
        json!({"v": 1, "time": 2, "session": "s1", "event": "launch", "what": "make"}),
        json!({"v": 1, "time": 3, "session": "s1", "event": "exit", "call": "a", "ok": true}),
        json!({"v": 1, "time": 4, "session": "s1", "event": "decision", "agent": "claude", "call": "b", "tool": "Bash", "what": "rm x", "effect": "deny"}),
        json!({"v": 1, "time": 5, "session": "s1", "event": "decision", "agent": "claude", "call": "c", "tool": "WebFetch", "what": "docs.rs", "effect": "ask"}),
        json!({"v": 1, "time": 6, "session": "s1", "event": "decision", "agent": "kiro", "call": "d", "tool": "Bash", "what": "ls", "effect": "deny"}),
        json!({"v": 1, "time": 7, "session": "s1", "event": "decision", "agent": "of a later version", "call": "e", "tool": "Bash", "what": "ls", "effect": "deny"}),
        json!({"v": 9, "time": 5, "session": "s1", "event": "decision", "tool": "Bash", "what": "no"}),
    ];
    fs::write(session.join("trace.jsonl"), lines.map(|line| line.to_string()).join("\n")).unwrap();
    let (calls, tally) = told(&histories_below(dir.path()).unwrap());
    insta::assert_snapshot!(calls.join("\n"), @r#"
    claude /work/app Bash "make" Ran
    claude /work/app Bash "rm x" Refused
    kiro /work/app Bash "ls" Refused
    unknown /work/app Bash "ls" Refused
    claude /work/app WebFetch "https://docs.rs/" Unknown
    "#);
    assert_eq!((tally.calls, tally.foreign), (5, 1));
}

#[test]
fn histories_are_found_where_the_agents_keep_them() {
    let roots = HistoryRoots {
        clash: samples().join("none"),
        claude: samples().join("claude"),
        codex: samples().join("codex"),
        gemini: samples().join("gemini"),
        opencode: samples().join("opencode"),
    };
    assert_eq!(all_histories(&roots).len(), 4);
    assert!(latest_history(&roots).is_ok());
    let none = HistoryRoots {
        claude: PathBuf::new(),
        codex: PathBuf::new(),
        gemini: PathBuf::new(),
        opencode: PathBuf::new(),
        ..roots
    };
    assert!(latest_history(&none).is_err());
}

#[test]
fn a_copied_file_is_known_by_how_it_begins() {
    let dir = tempfile::tempdir().unwrap();
    for from in [
        "claude/projects/-work-app/session.jsonl",
        "codex/sessions/2026/11/16/rollout-2026-11-16T03-48-47.jsonl",
        "gemini/tmp/proj/chats/session-2026-11-16T03-49.jsonl",
    ] {
        let copy = dir.path().join("copy.jsonl");
        fs::copy(samples().join(from), &copy).unwrap();
        let (calls, _) = told(&[history_at(&copy).unwrap()]);
        assert!(calls.len() >= 2, "{from}: {calls:?}");
    }
    let other = dir.path().join("notes.txt");
    fs::write(&other, "nothing of the kind").unwrap();
    assert!(history_at(&other).is_err());
}

#[test]
fn broken_huge_and_deep_lines_are_counted_and_skipped() {
    let call = |id: &str| json!({"type": "assistant", "cwd": "/w", "message": {"content": [{"type": "tool_use", "id": id, "name": "Bash", "input": {"command": id}}]}});
    let result = |id: &str, text: String| json!({"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": id, "content": text}]}});
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let text = [
        call("one").to_string(),
        "{\"type\":\"assis".to_owned(),
        result("one", "x".repeat(2_000_000)).to_string(),
        call("two").to_string(),
        result("two", "x".repeat(9_000_000)).to_string(),
        format!("{{\"type\":\"user\",\"message\":{{\"content\":{deep}}}}}"),
        format!("{{\"type\":\"user\",\"extra\":{deep}}}"),
        "{\"type\":7}".to_owned(),
        "\u{0}\u{1b}[2J".to_owned(),
        call("three\u{1b}]0;x\u{7}").to_string(),
    ];
    let (calls, tally) = written("projects/p/s.jsonl", &text.join("\n"));
    let shown: Vec<&str> = calls.iter().map(|call| call.rsplit(' ').nth(2).unwrap()).collect();
    assert_eq!(shown.len(), 3, "{calls:?}");
    assert!(calls[0].contains("Ran") && calls[1].contains("Unknown"), "{calls:?}");
    assert_eq!((tally.too_long, tally.calls), (1, 3));
    assert!(tally.broken >= 2 && tally.foreign >= 1, "{tally:?}");
}

/// JSON with words and keys that the readers look for, among others.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        prop_oneof![
            "assistant",
            "user",
            "tool_use",
            "tool_result",
            "tool",
            "function_call",
            "completed",
            "decision"
        ]
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        let key = prop_oneof![
            "[a-z]{1,6}",
            prop::sample::select(vec![
                "type",
                "message",
                "content",
                "input",
                "name",
                "id",
                "tool_use_id",
                "payload",
                "call_id",
                "arguments",
                "item",
                "toolCalls",
                "args",
                "status",
                "$set",
                "messages",
                "state",
                "metadata",
                "event",
                "what",
                "tool",
                "v",
                "time",
                "timestamp",
                "cwd",
                "action",
                "output",
                "command",
            ])
            .prop_map(str::to_owned),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn no_history_stops_a_reader(
        lines in prop::collection::vec(prop_oneof![any_json().prop_map(|v| v.to_string()), ".{0,80}"], 0..12),
    ) {
        let text = lines.join("\n");
        let dir = tempfile::tempdir().unwrap();
        for path in [
            "projects/p/s.jsonl", "sessions/1/rollout-1.jsonl", "tmp/p/chats/session-1.jsonl",
            "tmp/p/chats/session-2.json", "clash/s1/trace.jsonl", "storage/part/m/p.json", "opencode.db",
        ] {
            let file = dir.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, &text).unwrap();
        }
        let (calls, tally) = told(&histories_below(dir.path()).unwrap());
        prop_assert_eq!(calls.len() as u64, tally.calls);
        prop_assert_eq!(tally.files, 7);
    }
}
