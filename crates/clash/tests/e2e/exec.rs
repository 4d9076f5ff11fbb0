//! The launcher passes exit status and signals on, and runs only commands that the policy
//! decided.

use std::fs;

use serde_json::json;

use crate::init::{at_terminal, typed_into};
use crate::support::{Answer, Machine, Ran, Who, as_each_user, clash};

const POLICY: &str = r#"
load("@clash//sandboxes.star", "project")
settings(default = ask(), default_sandbox = project)
when({"Bash": {("sh", "true", "cat"): allow(), "rm": deny(reason = "no")}})
"#;

#[test]
fn exit_status_and_signals_are_the_commands_own() {
    as_each_user(|m| {
        for code in [0, 1, 7, 126, 255] {
            m.inside("project", &format!("exit {code}")).exits(code);
        }
        let killed = m.inside("project", "kill -KILL $$");
        assert_eq!(killed.signal, Some(9), "{killed:?}");
        let terminated = m.inside("project", "kill -TERM $$");
        assert_eq!(terminated.signal, Some(15), "{terminated:?}");
        m.clash(["sandbox", "exec", "project", "--", "no-such-program"])
            .exits(127)
            .says("not found");
        m.clash(["sandbox", "exec", "project", "--", "/etc/passwd"]).exits(126);
        m.clash(["sandbox", "exec", "nowhere", "--", "true"]).exits(125).says("known are");
    });
}

#[test]
fn pipes_options_and_quoting_reach_the_command_untouched() {
    let m = Machine::new(Who::Me);
    let ran = m.clash([
        "sandbox",
        "exec",
        "project",
        "--",
        "printf",
        "%s|",
        "-x",
        "a b",
        "--project",
        "",
    ]);
    assert_eq!(ran.stdout, "-x|a b|--project||");
    let ran = m.inside("project", "yes | head -n 3 | wc -l");
    assert_eq!((ran.stdout.trim(), ran.code), ("3", Some(0)), "{ran:?}");
}

#[test]
fn exec_decides_and_refuses_instead_of_asking() {
    as_each_user(|m| {
        let m = m.policy(POLICY);
        m.clash(["exec", "--", "sh", "-c", "exit 3"]).exits(3);
        m.clash(["exec", "true"]).exits(0);
        m.clash(["exec", "--", "rm", "x"]).exits(126).says("policy.star:4): no");
        m.clash(["exec", "--", "make"]).exits(126).says("clash cannot ask here");
        m.clash(["exec", "--approval", "00", "--", "true"]).exits(126);
        m.clash(["exec", "--approval"]).exits(2);
    });
}

/// Runs clash in the session of the hook's messages.
fn in_session(m: &Machine, args: &[&str]) -> Ran {
    Ran::of(m.command(clash()).env("CLAUDE_CODE_SESSION_ID", "test-session").args(args))
}

/// The words of the `clash exec …` line that the hook put into the command.
fn wrapped(m: &Machine, script: &str) -> Vec<String> {
    let command = m.bash(script).updated.unwrap()["command"].as_str().unwrap().to_owned();
    let (_, rest) = command.split_once(" exec ").unwrap();
    let (id, quoted) = rest.strip_prefix("--approval ").unwrap().split_once(" -- ").unwrap();
    let script = quoted.trim_matches('\'').replace(r"'\''", "'");
    vec!["exec".into(), "--approval".into(), id.into(), "--".into(), script]
}

#[test]
fn an_approved_question_runs_once_and_only_as_it_was_asked() {
    let m = Machine::new(Who::Me).policy(POLICY);
    let words = wrapped(&m, "echo made > made.txt; make --version >/dev/null; exit 4");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut other = words.clone();
    other[4] = "rm -rf .";
    in_session(&m, &other).exits(126).says("differs from the one that the policy decided");
    in_session(&m, &words).exits(4);
    assert!(m.project().join("made.txt").exists());
    in_session(&m, &words).exits(126).says("has no decision with the id");
    // Outside the session the approval is worth nothing.
    let words = wrapped(&m, "make");
    m.clash(&words).exits(126);
}

#[test]
fn a_changed_policy_voids_an_approval() {
    let m = Machine::new(Who::Me).policy(POLICY);
    let words = wrapped(&m, "make");
    let m = m.policy("when({\"Bash\": {\"make\": deny(reason = \"not any more\")}})");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    in_session(&m, &words).exits(126).says("not any more");
}

#[test]
fn a_command_that_went_around_the_launcher_raises_an_alarm() {
    let m = Machine::new(Who::Me).policy(POLICY);
    m.bash("cat x").is("allow", "");
    let background = json!({"command": "cat x", "run_in_background": true});
    assert_eq!(m.hook(&m.message("PostToolUse", "Bash", background)).stdout, "");
    let after = m.message("PostToolUse", "Bash", json!({"command": "cat x"}));
    assert!(m.hook(&after).stdout.contains("did not run in its sandbox"));
    assert!(m.trace().iter().any(|record| record["event"] == "alarm"));
    let words = wrapped(&m, "cat /dev/null");
    in_session(&m, &words.iter().map(String::as_str).collect::<Vec<_>>()).exits(0);
    assert_eq!(m.hook(&after).stdout, "");
}

#[test]
fn the_shell_prefix_runs_the_wrapper_and_judges_its_command() {
    let m = Machine::new(Who::Me).policy(POLICY);
    m.clash(["install", "--agent", "claude"]).succeeds();
    let launcher = m.state().join("bin/clash-shell");
    let snapshot =
        m.write(".claude/shell-snapshots/snapshot-bash-1794779539900-3xw5pr.sh", "export SNAP=1\n");
    let cwd_file = m.tmp().join("claude-3d49-cwd");
    let wrapper = |script: &str| {
        format!(
            r"source {} 2>/dev/null || true && {{ \builtin shopt -u extglob || \builtin setopt NO_EXTENDED_GLOB NO_BARE_GLOB_QUAL NO_BRACE_CCL NO_MAGIC_EQUAL_SUBST; }} >/dev/null 2>&1 || true && {{ \builtin unalias -- 'which'; \builtin unset -f -- 'which'; }} >/dev/null 2>&1 || true && {{ \builtin unalias -- 'unsetenv'; \builtin unset -f -- 'unsetenv'; }} >/dev/null 2>&1 || true && eval '{script}' < /dev/null && pwd -P >| {}",
            snapshot.display(),
            cwd_file.display(),
        )
    };
    let run = |string: &str, agent: &str| {
        let mut command = m.command(&launcher);
        command
            .env("CLAUDE_CODE_SESSION_ID", "test-session")
            .env("AI_AGENT", agent)
            .env("SHELL", "/bin/bash");
        Ran::of(command.arg(string))
    };
    run("sh -c true", "x_agent").exits(126).says("no hook of clash ran in this session");
    m.bash("sh -c true").is("allow", "");
    // A link planted under the guessable name is not followed.
    let victim = m.write("other/victim", "keep");
    std::os::unix::fs::symlink(&victim, &cwd_file).unwrap();
    m.bash("cat ~/.ssh/id").is("allow", "");
    let ran = run(&wrapper("echo snap=$SNAP; cat ~/.ssh/id || echo blocked"), "x_agent").succeeds();
    assert!(ran.stdout.contains("snap=1") && ran.stdout.contains("blocked"), "{ran:?}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "keep");
    assert_eq!(fs::read_to_string(&cwd_file).unwrap().trim(), m.project().to_str().unwrap());
    run(&wrapper("rm x"), "x_agent").exits(126).says("policy.star:4");
    run(&wrapper("make"), "x_agent").exits(126).says("clash cannot ask here");
    // A question answered no is not a yes for a tool that runs commands unseen.
    m.bash("make").is("ask", "");
    m.hook(&m.message("PreToolUse", "Skill", json!({"skill": "evil"})));
    run(&wrapper("make"), "x_agent").exits(126).says("clash cannot ask here");
    // What settings start runs in the sandbox too, without a question.
    run("echo hook > hook.txt", "x_harness").succeeds();
    run(&format!("echo x > {}/x", m.outside().display()), "x_harness").fails();
    run("rm x", "x_harness").exits(126);
}

#[test]
fn the_environment_loses_its_secrets_and_keeps_the_rest() {
    as_each_user(|m| {
        let mut command = m.command(clash());
        command.args(["sandbox", "exec", "project", "--", "env"]);
        for (name, value) in [
            ("GITHUB_TOKEN", "t"),
            ("AWS_SECRET_ACCESS_KEY", "s"),
            ("ANTHROPIC_API_KEY", "k"),
            ("DATABASE_URL", "postgres://u:pw@h/db"),
            ("SSH_AUTH_SOCK", "/s"),
            ("LD_PRELOAD", "x.so"),
            ("BASH_ENV", "x"),
            ("EDITOR", "vi"),
            ("FOO", "bar"),
        ] {
            command.env(name, value);
        }
        let ran = Ran::of(&mut command).succeeds();
        for gone in ["TOKEN", "SECRET", "API_KEY", "DATABASE", "AUTH_SOCK", "PRELOAD", "BASH_ENV"] {
            assert!(!ran.stdout.contains(gone), "{gone}: {ran:?}");
        }
        assert!(ran.stdout.contains("EDITOR=vi") && ran.stdout.contains("FOO=bar"), "{ran:?}");
    });
}

#[test]
fn a_person_at_a_terminal_is_asked_with_the_reason() {
    let m = Machine::new(Who::Me)
        .policy("when({\"Bash\": {\"touch\": ask(reason = \"makes files\")}})");
    let Some(ran) = at_terminal(&m, "exec -- touch made", "n\n") else { return };
    ran.says("needs your approval").says("): makes").says("[y/N]").says("status=126");
    assert!(!m.project().join("made").exists());
    at_terminal(&m, "exec -- touch made", "y\n").unwrap().says("status=0");
    assert!(m.project().join("made").exists());
    m.clash(["exec", "--", "touch", "other"]).exits(126).says("clash cannot ask here");
}

#[test]
fn an_agent_at_a_terminal_is_not_asked() {
    let m = Machine::new(Who::Me).policy("when({\"Bash\": {\"touch\": ask()}})");
    let mut command = m.command("script");
    command.env("AI_AGENT", "x_agent");
    let Some(ran) = typed_into(command, "exec -- touch made", "y\n") else { return };
    ran.says("clash cannot ask here").says("status=126");
    assert!(!m.project().join("made").exists());
}

/// Ids are the agent's own text: each is a session, and none leads out of the state.
#[test]
fn a_session_id_may_be_any_text() {
    as_each_user(|m| {
        let m = m.policy("when({\"Bash\": {\"touch\": ask(), \"cat\": allow()}})");
        let long = "x".repeat(4096);
        let ids = ["a@b", "a/b", "../../escape", "ä ö", ".", "%41", "a.b", "", &long];
        for id in ids {
            let mut message = m.message("PreToolUse", "Bash", json!({"command": "touch made"}));
            message["session_id"] = id.into();
            let answer = Answer::of(&m.hook(&message)).is("ask", "");
            let line = answer.updated.unwrap()["command"].as_str().unwrap().to_owned();
            let mut command = m.command("sh");
            command.env("CLAUDE_CODE_SESSION_ID", id).args(["-c", &line]);
            Ran::of(&mut command).succeeds();
            fs::remove_file(m.project().join("made")).unwrap();
            if !id.is_empty() {
                m.clash(["log", "--session", id]).succeeds().says("touch made");
            }
        }
        let sessions = m.state().join("sessions");
        let named = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let names: Vec<_> = fs::read_dir(sessions).unwrap().map(named).collect();
        let all = names.iter().filter(|name| !name.as_encoded_bytes().starts_with(b"."));
        assert_eq!(all.clone().count(), ids.len(), "{names:?}");
        assert!(all.clone().all(|name| name.len() <= 128), "{names:?}");
    });
}
