//! The hook fails closed, and answers in the words of the client.

use serde_json::json;

use crate::support::{Answer, Machine, Ran, Who, as_each_user, feed, is_root, skipped};

const POLICY: &str = r#"
load("@clash//rust.star", "rust_full")
load("@clash//sandboxes.star", "git_full", "project")
settings(default = ask(), default_sandbox = project)
when({
    "Bash": {
        ("cargo", "rustc", "rustup"): allow(sandbox = rust_full),
        "git": {"push": deny(reason = "pushing is mine"), glob("**"): allow(sandbox = git_full)},
    },
    ("Read", "Write", "Edit"): allow(sandbox = project),
    "WebFetch": {"docs.rs": allow()},
})
"#;

fn machine() -> Machine {
    Machine::new(Who::Me).policy(POLICY)
}

#[test]
fn commands_are_decided_by_the_policy() {
    let m = machine();
    m.bash("cargo build").is("allow", "policy.star:7");
    m.bash("git push origin main").is("deny", "pushing is mine");
    m.bash("npm test").is("ask", "no rule matches it");
    m.bash("cargo build && git status").is("allow", "policy.star:7");
    m.bash("cargo build && $X").is("deny", "pushing is mine");
}

#[test]
fn file_tools_are_judged_on_the_path_a_write_would_reach() {
    let m = machine();
    let write = |path: &str| m.asks("Write", json!({"file_path": path, "content": "x"}));
    let project = m.project();
    write("src/new.rs").is("allow", "policy.star");
    write("../other/x").is("ask", "does not grant");
    write(&format!("{}-evil/x", project.display())).is("ask", "does not grant");
    std::os::unix::fs::symlink(m.outside().join("target"), project.join("link")).unwrap();
    write("link").is("ask", "does not grant");
    for caged in [
        ".claude/settings.json",
        ".claude/skills/x/SKILL.md",
        ".claude/output-styles/x.md",
        ".clash/policy.star",
        ".mcp.json",
        "sub/.claude/settings.json",
        "sub/.mcp.json",
        "sub/.codex/config.toml",
        ".gemini/settings.json",
        "sub/.qwen/settings.json",
        ".factory/settings.json",
        ".claude/worktrees/a/.claude/settings.json",
    ] {
        write(caged).is("deny", "steers the agent or clash itself");
    }
    write(".claude/worktrees/a/src/main.rs").is("allow", "");
    write("link/../x").is("deny", "several paths");
    write(&m.state().join("sessions/x").display().to_string()).is("deny", "steers");
    m.asks("Read", json!({"file_path": "/usr/include/stdio.h"})).is("allow", "");
    m.asks("Read", json!({"file_path": "/proc/self/environ"})).is("ask", "does not grant");
    m.asks("Read", json!({"file_path": m.home().join("notes.txt")}))
        .is("ask", "does not grant read");
    m.asks("Read", json!({"file_path": m.home().join(".ssh/id_ed25519")}))
        .is("deny", "it holds ssh keys");
}

#[test]
fn hosts_are_decided_by_their_one_spelling() {
    let m = machine();
    let fetch = |url: &str| m.asks("WebFetch", json!({"url": url, "prompt": "x"}));
    fetch("https://docs.rs/serde").is("allow", "policy.star");
    fetch("https://evil.test/").is("ask", "no rule");
    fetch("https://docs.rs@evil.test/").is("deny", "credentials");
    fetch("file:///etc/passwd").is("deny", "not an http");
}

#[test]
fn without_a_policy_everything_asks_in_the_project_sandbox() {
    let m = Machine::new(Who::Me);
    let answer = m.bash("make").is("ask", "the default is ask");
    assert!(answer.updated.unwrap()["command"].as_str().unwrap().contains("exec --approval"));
    assert_eq!(m.trace()[0]["sandbox"], "project");
}

#[test]
fn the_command_is_wrapped_unless_the_shell_prefix_does_it() {
    let m = machine();
    let wrapped = m.bash("cargo 'x y'").updated.unwrap();
    assert!(wrapped["command"].as_str().unwrap().ends_with(r"-- 'cargo '\''x y'\'''"), "{wrapped}");
    m.clash(["install", "--agent", "claude"]).succeeds();
    let message = m.message("PreToolUse", "Bash", json!({"command": "cargo build"}));
    let mut hook = m.command(crate::support::clash());
    hook.env("CLAUDE_CODE_SHELL_PREFIX", m.state().join("bin/clash-shell"));
    assert_eq!(Answer::of(&hook_answer(hook, &message.to_string())).updated, None);
}

/// Runs `clash hook claude PreToolUse` with this input.
fn hook_answer(mut command: std::process::Command, input: &str) -> Ran {
    command.args(["hook", "claude", "PreToolUse"]);
    Ran::from(feed(command, input.as_bytes()).wait_with_output().unwrap())
}

#[test]
fn input_that_is_no_message_is_blocked() {
    let m = machine();
    let good = m.message("PreToolUse", "Bash", json!({"command": "cargo build"})).to_string();
    let mut bad: Vec<Vec<u8>> =
        (0..good.len()).step_by(7).map(|cut| good.as_bytes()[..cut].to_vec()).collect();
    bad.extend([
        b"\xff\xfe{}".to_vec(),
        good.replace("cargo build", "cargo \u{1}").into_bytes(),
        good.replace("PreToolUse", "PreToolUsage").into_bytes(),
        good.replace(&m.project().display().to_string(), "relative/dir").into_bytes(),
        good.replace(r#"{"command":"cargo build"}"#, "[]").into_bytes(),
        good.replace(r#"{"command":"cargo build"}"#, "{}").into_bytes(),
        format!("{good}{good}").into_bytes(),
        format!("{}{}", good, " ".repeat(1 << 20)).into_bytes(),
        "[".repeat(100_000).into_bytes(),
    ]);
    for input in bad {
        let answer = Answer::of(&m.hook_raw(&input));
        assert_eq!(
            answer.effect,
            "deny",
            "{:?}",
            String::from_utf8_lossy(&input).chars().take(80).collect::<String>()
        );
        assert!(!answer.reason.trim().is_empty());
    }
    m.clash(["hook", "claude"]).exits(2).says("blocked");
    m.clash(["hook", "nobody"]).exits(2).says("known are claude");
}

#[test]
fn a_broken_policy_denies_everything_and_names_its_line() {
    let m = machine().policy("when({\"Bash\": {\"git\": alow()}})");
    m.bash("ls").is("deny", "policy.star:1:23");
    m.asks("Read", json!({"file_path": "x"})).is("deny", "did you mean `allow`");
}

#[test]
fn a_policy_that_eats_all_memory_or_never_ends_is_stopped() {
    let m = machine().policy("def f():\n  x = [1]\n  for i in range(60):\n    x = x + x\nf()");
    m.bash("ls").is("deny", "policy.star:4:5: the policy needs too much memory");
    let m = m.policy("def f():\n  for i in range(1000000000):\n    pass\nf()");
    m.bash("ls").is("deny", "the policy takes too long").is("deny", "policy.star:2");
    let m = m.policy("y = 1\nx = \"a\" * 2000000000");
    m.bash("ls").is("deny", "needs too much memory").is("deny", "policy.star:1 or just after");
    let grows =
        "def f(x):\n  for i in range(60):\n    x = x.replace(\"a\", x + x + \"a\" + x)\nf(\"a\")";
    let m = m.policy(grows);
    m.bash("ls").is("deny", "policy.star:3");
}

#[test]
fn a_missing_compiler_denies() {
    let m = machine();
    let alone = m.tmp().join("clash");
    crate::support::copy_program(crate::support::clash(), &alone);
    let message = m.message("PreToolUse", "Bash", json!({"command": "cargo build"}));
    Answer::of(&hook_answer(m.command(&alone), &message.to_string())).is("deny", "policy compiler");
}

#[test]
fn an_unreadable_policy_denies() {
    as_each_user(|m| {
        m.make_dir(m.home().join(".clash/policy.star"));
        m.bash("ls").is("deny", "policy.star");
        std::fs::remove_dir(m.home().join(".clash/policy.star")).unwrap();
        let fifo = m.home().join(".clash/policy.star");
        assert!(std::process::Command::new("mkfifo").arg(fifo).status().unwrap().success());
        m.bash("ls").is("deny", "not a regular file");
    });
    if is_root() {
        let m = Machine::new(Who::Nobody).policy(POLICY);
        use std::os::unix::fs::PermissionsExt;
        let path = m.home().join(".clash/policy.star");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o000)).unwrap();
        m.bash("cargo build").is("deny", "cannot read the policy");
    } else {
        skipped("a policy without read permission, because the tests do not run as root");
    }
}

#[test]
fn a_state_directory_that_cannot_be_written_denies() {
    as_each_user(|m| {
        m.write(".local/state/clash", "a file where the directory should be");
        m.bash("ls").is("deny", "state directory");
    });
}

#[test]
fn a_trace_that_cannot_be_written_denies() {
    let m = machine();
    m.bash("cargo build").is("allow", "");
    let trace = m.state().join("sessions/test-session/trace.jsonl");
    std::fs::remove_file(&trace).unwrap();
    std::fs::create_dir(&trace).unwrap();
    m.bash("cargo build").is("deny", "cannot write the trace");
}

#[test]
fn a_damaged_cache_is_ignored_and_a_changed_policy_is_noticed() {
    let m = machine().settled();
    m.bash("cargo build").is("allow", "");
    let dir = m.home().join(".cache/clash/policy");
    let cached = std::fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
    let mut image = std::fs::read(&cached).unwrap();
    let middle = image.len() / 2;
    image[middle] ^= 1;
    std::fs::write(&cached, image).unwrap();
    m.bash("cargo build").is("allow", "");
    let m = m.policy("when({\"Bash\": deny()})");
    m.bash("cargo build").is("deny", "policy.star:1");
}

#[test]
fn a_warm_cache_is_not_written_anew() {
    let m = machine().settled();
    m.bash("cargo build").is("allow", "");
    let dir = m.home().join(".cache/clash/policy");
    let cached = std::fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
    let before = std::fs::metadata(&cached).unwrap().modified().unwrap();
    for _ in 0..3 {
        m.bash("cargo build").is("allow", "");
    }
    assert_eq!(std::fs::metadata(&cached).unwrap().modified().unwrap(), before);
}

#[test]
fn a_projects_own_policy_can_only_tighten() {
    let m = machine();
    m.write("app/.clash/policy.star", "when({\"Bash\": {\"make\": allow(), \"cargo\": deny()}})");
    m.bash("make").is("ask", "not trusted");
    m.bash("cargo build").is("deny", "policy.star:1");
}

#[test]
fn questions_of_the_client_itself_pass() {
    let m = machine();
    let ran = m.hook(&m.message("PreToolUse", "AskUserQuestion", json!({"questions": []})));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""));
    m.asks("TodoWrite", json!({"todos": []})).is("allow", "@clash//default.star");
    m.asks("mcp__db__query", json!({"sql": "drop table x"})).is("ask", "no rule");
}

#[test]
fn a_permission_request_is_answered_only_with_no() {
    let m = machine();
    let request =
        |script: &str| m.hook(&m.message("PermissionRequest", "Bash", json!({"command": script})));
    assert!(request("git push").stdout.contains(r#""behavior":"deny""#));
    assert_eq!(request("npm test").stdout, "");
    assert_eq!(request("cargo build").stdout, "");
}

#[test]
fn a_project_with_hostile_settings_gets_no_commands() {
    let m = machine();
    for (settings, word) in [
        (r#"{"env": {"BASH_ENV": "./evil.sh"}}"#, "BASH_ENV"),
        (r#"{"env": {"CLAUDE_CODE_SHELL_PREFIX": ""}}"#, "takes the shell prefix away"),
        (r#"{"disableAllHooks": true}"#, "switches every hook off"),
        (r#"{"env": {"CLAUDE_CODE_SHELL_PREFIX": "/p/clash-x"}}"#, "sets the shell prefix"),
        (r#"{"env": {}, "env": {"BASH_ENV": "x"}}"#, "clash cannot read it"),
        (r#"{"hooks": [], "env": {"BASH_ENV": "x"}}"#, "clash cannot read it"),
    ] {
        m.write("app/.claude/settings.json", settings);
        m.bash("cargo build").is("deny", word);
        let after = m.message("PostToolUse", "Bash", json!({"command": "cargo build"}));
        assert!(m.hook(&after).stdout.contains("work against clash"));
    }
    std::fs::write(m.project().join(".claude/settings.json"), b"{\"a\": \"\xff\"}").unwrap();
    m.bash("cargo build").is("deny", "clash cannot read it");
    m.write("app/.claude/settings.json", r#"{"hooks": {"Stop": "malformed"}}"#);
    m.bash("cargo build").is("allow", "");
    // The client reads those of the repository around the project too, which may
    // be the home with the user's own.
    m.write(".git/HEAD", "");
    m.clash(["install", "--agent", "claude"]).succeeds();
    m.bash("cargo build").is("allow", "");
    m.write(".claude/settings.local.json", r#"{"disableAllHooks": true}"#);
    m.bash("cargo build").is("deny", "switches every hook off");
}

#[test]
fn a_projects_policy_that_is_a_link_is_not_read() {
    let m = machine();
    let secret = m.write("other/secret", "machine host login me password hunter2");
    m.make_dir(m.project().join(".clash"));
    let policy = m.project().join(".clash/policy.star");
    std::os::unix::fs::symlink(&secret, &policy).unwrap();
    let answer = m.bash("cargo build").is("deny", "policy.star");
    assert!(!answer.reason.contains("hunter2") && !answer.reason.contains("host"), "{answer:?}");
    std::fs::remove_file(&policy).unwrap();
    m.write("app/.clash/policy.star", "load(\"k.star\", \"x\")");
    std::os::unix::fs::symlink(&secret, m.project().join(".clash/k.star")).unwrap();
    let answer = m.bash("cargo build").is("deny", "k.star");
    assert!(!answer.reason.contains("hunter2"), "{answer:?}");
}

#[test]
fn settings_that_would_switch_clash_off_are_not_put_into_force() {
    let m = machine();
    m.clash(["install", "--agent", "claude"]).succeeds();
    let own = m.home().join(".claude/settings.json");
    let change = |source: &str| {
        let mut message = m.message("ConfigChange", "", json!({}));
        message["source"] = json!(source);
        m.hook(&message).stdout
    };
    assert_eq!(change("user_settings"), "");
    assert_eq!(change("skills"), "");
    for source in ["project_settings", "local_settings", "something_new"] {
        assert!(change(source).contains(r#""decision":"block""#), "{source}");
    }
    std::fs::write(&own, "{}").unwrap();
    assert!(change("user_settings").contains("no longer has clash"));
}

#[test]
fn a_command_that_changes_steering_files_is_reported() {
    let m = machine();
    m.hook(&m.message("SessionStart", "", json!({})));
    let after = || m.hook(&m.message("PostToolUse", "Bash", json!({"command": "x"}))).stdout;
    assert_eq!(after(), "");
    m.write("app/.claude/settings.local.json", r#"{"hooks": {}}"#);
    assert!(after().contains("settings.local.json changed during this command"));
    assert_eq!(after(), "");
    assert!(m.trace().iter().any(|record| record["event"] == "alarm"));
}

#[test]
fn a_denial_for_a_broken_policy_is_on_record() {
    let m = machine().policy("nonsense(");
    m.bash("cargo build").is("deny", "policy.star:1");
    let record = &m.trace()[0];
    assert_eq!((&record["effect"], &record["what"]), (&json!("deny"), &json!("cargo build")));
}
