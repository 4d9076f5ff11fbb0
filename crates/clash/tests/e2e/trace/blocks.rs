//! Blocks: what the trace and the model hear about them, and how the user grants them.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Answer, Machine, Ran, Who, as_each_user, test_file};

const POLICY: &str = r#"
load("@clash//sandboxes.star", "project")
settings(default = allow(), default_sandbox = project)
when({"Bash": {"git": {"push": deny(reason = "the release script pushes")}}})
"#;

fn machine(m: Machine) -> Machine {
    let m = m.policy(POLICY);
    for (path, text) in [
        (".ssh/id_ed25519", "key\n"),
        (".aws/credentials", "key\n"),
        (".npmrc", "token\n"),
        ("notes.txt", "notes\n"),
        ("other/secret.txt", "secret\n"),
        ("app/src/main.py", "print(1)\n"),
        ("app/broken.py", "def (:\n"),
        ("app/broken.sh", "if then\n"),
        ("app/data.json", "{\"a\": 1}\n"),
        ("app/locked", "locked\n"),
        (
            "app/Makefile",
            "fails:\n\tfalse\nshow-secret:\n\tcat ~/notes.txt\ninstall-home:\n\tcp data.json ~/made.json\ndeploy:\n\tsh -c 'git push origin main'\n",
        ),
    ] {
        m.write(path, text);
    }
    let run = |script: &str| Ran::of(m.command("sh").args(["-c", script])).succeeds();
    run(
        "git init -q . && git config user.email a@b.c && git config user.name a && git add data.json && git commit -qm one && chmod 000 locked",
    );
    m
}

/// One action of an agent, from the hook before it to the hook after it.
pub(crate) struct DoneAction {
    /// The text that the model gets after the action, or instead of it.
    pub(crate) told: String,
    pub(crate) row: Value,
    pub(crate) status: i32,
}

pub(crate) fn act(m: &Machine, call: &str, script: &str) -> DoneAction {
    let mut message = m.message("PreToolUse", "Bash", json!({"command": script}));
    message["tool_use_id"] = json!(call);
    let ran = m.hook(&message);
    let answer = Answer::of(&ran);
    let mut told = answer.reason.clone();
    let mut status = -1;
    if answer.effect != "deny" {
        let line = answer.updated.as_ref().unwrap()["command"].as_str().unwrap().to_owned();
        let mut shell = m.command("bash");
        shell
            .env("CLAUDE_CODE_SESSION_ID", "test-session")
            .args(["-c", &format!("{{ {line}\n}} 2>&1")]);
        let ran = Ran::of(&mut shell);
        status = ran.code.unwrap_or(255);
        let event = if status == 0 { "PostToolUse" } else { "PostToolUseFailure" };
        let mut after = m.message(event, "Bash", json!({"command": line}));
        after["tool_use_id"] = json!(call);
        if status == 0 {
            after["tool_response"] = json!({"stdout": ran.stdout, "stderr": ""});
        } else {
            after["error"] = json!(format!("Exit code {status}\n{}", ran.stdout));
        }
        told = m.hook(&after).stdout;
    }
    let log = m.clash(["log", "--json"]).succeeds();
    let mut rows = log.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let row = rows.rfind(|row| row["call"] == call).unwrap_or_default();
    DoneAction { told, row, status }
}

fn is_blocked(row: &Value) -> bool {
    row["blocks"].as_array().is_some_and(|blocks| !blocks.is_empty())
}

/// Ordinary failures are no blocks, and blocks are found.
#[test]
fn blocks_are_told_from_ordinary_failures() {
    let m = machine(Machine::new(Who::Nobody)).settled();
    let set = fs::read_to_string(test_file("blocks/failures.tsv")).unwrap();
    let (mut right, mut missed, mut wrong, mut count) = (0, Vec::new(), Vec::new(), 0);
    for (number, line) in set.lines().enumerate() {
        let (label, script) = line.split_once('\t').unwrap();
        let done = act(&m, &format!("call-{number}"), script);
        count += 1;
        match (label == "blocked", is_blocked(&done.row)) {
            (true, true) => right += 1,
            (true, false) => missed.push(format!("{script}: {}", done.row)),
            (false, true) => wrong.push(format!("{script}: {}", done.row["blocks"])),
            (false, false) => {}
        }
    }
    let precision = f64::from(right) / (f64::from(right) + wrong.len() as f64);
    let recall = f64::from(right) / (f64::from(right) + missed.len() as f64);
    let numbers = format!("{count} failures, precision {precision:.3}, recall {recall:.3}");
    eprintln!("{numbers}\nmissed: {missed:#?}\nwrong: {wrong:#?}");
    assert!(count >= 100, "{numbers}");
    assert!(precision >= 0.95 && recall >= 0.95, "{numbers}");
}

#[test]
fn a_block_is_in_the_log_and_its_command_grants_it() {
    as_each_user(|m| {
        let m = machine(m);
        for (call, script, what, needs) in [
            ("a", "cat ~/notes.txt", "~/notes.txt", "read"),
            ("b", "python3 -c \"open('$HOME/new.txt', 'w')\"", "~/new.txt", "change"),
            ("c", "echo x > .envrc", "~/app/.envrc", "change"),
        ] {
            let done = act(&m, call, script);
            assert_ne!(done.status, 0, "{script}");
            let block = &done.row["blocks"][0]["block"];
            assert_eq!(block["what"], what, "{}", done.row);
            assert_eq!(block["needs"], needs, "{}", done.row);
            assert!(
                done.told.contains("clash blocked this: sandbox project does not"),
                "{}",
                done.told
            );
            let shown = m.clash(["log", "--blocked"]).succeeds().stdout;
            assert!(shown.contains(&format!("blocked: {needs} {what}")), "{shown}");
            m.clash(["status"]).says(what);
            // The printed command, as a user types it.
            let grant = block["grant"].as_str().unwrap();
            assert!(done.told.contains(grant), "{}", done.told);
            let typed = grant.replacen("clash", &crate::support::clash().display().to_string(), 1);
            Ran::of(m.command("sh").args(["-c", &format!("{typed} --yes")])).succeeds();
            let again = act(&m, &format!("{call}2"), script);
            assert_eq!(again.status, 0, "{script}: {}", again.row);
            assert!(!is_blocked(&again.row), "{}", again.row);
        }
        m.clash(["log", "verify"]).succeeds();
    });
}

#[test]
fn a_denied_command_three_levels_down_is_in_the_log() {
    as_each_user(|m| {
        let m = machine(m);
        let done = act(&m, "a", "make deploy");
        let block = &done.row["blocks"][0];
        assert_eq!(block["block"]["kind"], "command", "{}", done.row);
        assert_eq!(block["block"]["what"], "git push origin main");
        assert!(block["reason"].as_str().unwrap().contains("the release script pushes"), "{block}");
        assert_eq!(done.row["effect"], "allow");
        assert!(done.told.contains("git push origin main"), "{}", done.told);
    });
}

#[test]
fn a_foreseen_block_is_said_with_the_same_sentence() {
    let m = machine(Machine::new(Who::Me));
    let sentence = "sandbox project does not read `~/.ssh/id_ed25519`: none of its rules grants it";
    m.clash(["explain", "cat ~/.ssh/id_ed25519"]).succeeds().says(sentence);
    m.clash(["explain", "cat ~/.ssh/id_ed25519"])
        .says("to allow it: clash sandbox allow project r ~/.ssh/id_ed25519");
    m.bash("cat ~/.ssh/id_ed25519").is("allow", sentence);
    let done = act(&m, "a", "cat ~/.ssh/id_ed25519");
    assert!(done.told.contains(sentence), "{}", done.told);
    assert_eq!(done.row["blocks"].as_array().unwrap().len(), 1, "{}", done.row);
    // What a sandbox grants is not foreseen as a block.
    for fine in
        ["cat data.json", "cat src/main.py", "cat /etc/hostname", "cat ~/missing", "echo ~/.npmrc"]
    {
        assert!(!m.bash(fine).reason.contains("foresees"), "{fine}");
    }
    m.bash("curl http://docs.rs/").is("allow", "sandbox project does not reach `docs.rs`");
}

#[test]
fn the_last_refusal_is_allowed_once_for_a_session_or_for_good() {
    let m = machine(Machine::new(Who::Nobody));
    // Once.
    act(&m, "a", "cat ~/notes.txt");
    m.clash(["allow", "--last"]).exits(1).says("--once");
    m.clash(["allow", "--last", "--once", "--yes"]).succeeds().says("wants to read `~/notes.txt`");
    assert_eq!(act(&m, "b", "cat ~/notes.txt").status, 0);
    assert_ne!(act(&m, "c", "cat ~/notes.txt").status, 0, "once is once");
    // For the session.
    m.clash(["allow", "--last", "--session", "--yes"]).succeeds();
    assert_eq!(act(&m, "d", "cat ~/notes.txt").status, 0);
    let policy = fs::read_to_string(m.home().join(".clash/policy.star")).unwrap();
    assert_eq!(policy, POLICY, "the user's policy stays");
    // For good: a refused command.
    let refused = act(&m, "e", "git push");
    assert_eq!(refused.row["effect"], "deny");
    m.clash(["allow", "--last", "--policy", "--yes"]).succeeds().says("git push");
    m.bash("git push").is("allow", "is allowed");
    m.clash(["policy", "undo", "--yes"]).succeeds();
    m.bash("git push").is("deny", "the release script pushes");
    // A denied command, once.
    m.clash(["allow", "--last", "--once", "--yes"]).succeeds();
    m.bash("git push").is("allow", "the user allowed it once");
    m.bash("git push").is("deny", "the release script pushes");
}

#[test]
fn an_agent_gives_itself_no_right() {
    as_each_user(|m| {
        let m = machine(m);
        for script in [
            "clash allow --last --once --yes",
            "clash sandbox allow project r ~/.ssh --yes",
            "/usr/bin/clash policy allow --yes -- git push",
            "clash trust --yes",
        ] {
            m.bash(script).is("deny", "only the user gives rights");
        }
        // Hidden from the hook, the sandbox holds.
        let own = crate::support::clash().display().to_string();
        let hidden = format!("X={own}; cp $X ./k && ./k sandbox allow project r ~/.ssh --yes");
        let before = fs::read_to_string(m.home().join(".clash/policy.star")).unwrap();
        act(&m, "a", &hidden);
        act(&m, "b", &format!("env -u CLASH_SANDBOX {}", hidden));
        assert_eq!(fs::read_to_string(m.home().join(".clash/policy.star")).unwrap(), before);
        assert!(!m.home().join(".config/clash").exists());
    });
}

#[test]
fn a_request_is_a_question_and_a_yes_holds_once() {
    as_each_user(|m| {
        let m = machine(m);
        let script = "clash request --read ~/notes.txt -- cat ~/notes.txt";
        let answer = m.bash(script).is(
            "ask",
            "Claude Code asks for one more right, once: to read `~/notes.txt` for `cat ",
        );
        // The client runs the line only after a yes.
        let line = answer.updated.unwrap()["command"].as_str().unwrap().to_owned();
        let run = |line: &str| {
            let mut shell = m.command("bash");
            Ran::of(shell.env("CLAUDE_CODE_SESSION_ID", "test-session").args(["-c", line]))
        };
        let ran = run(&line).succeeds();
        assert_eq!(ran.stdout, "notes\n");
        run(&line).fails();
        // A no leaves nothing behind that a later command could use.
        m.bash(script).is("ask", "one more right");
        let plain = act(&m, "plain", "cat ~/notes.txt");
        assert_ne!(plain.status, 0);
        // A neighbouring file stays out of reach.
        let answer = m.bash("clash request --read ~/notes.txt -- cat ~/notes.txt ~/.npmrc");
        let line = answer.updated.unwrap()["command"].as_str().unwrap().to_owned();
        let ran = run(&line).fails();
        assert_eq!(ran.stdout, "notes\n", "{ran:?}");
        for never in [
            "clash request --write ~/.clash/policy.star -- true",
            "clash request --write .claude/settings.json -- true",
        ] {
            m.bash(never).is("deny", "cannot be asked for");
        }
        m.bash("clash request --read x -- git push").is("deny", "the release script pushes");
        m.bash("clash request --read x; make").is("deny", "a request is one command");
        m.clash(["request", "--read", "x", "--", "true"]).exits(1).says("no hook");
    });
}

#[test]
fn a_right_that_would_not_work_is_refused() {
    let m = machine(Machine::new(Who::Me));
    let allow = |args: &[&str]| m.clash(["sandbox", "allow"].iter().chain(args).chain(&["--yes"]));
    allow(&["nope", "r", "~/x"]).exits(1).says("there is no sandbox `nope`");
    let policy = m.home().join(".clash/policy.star");
    let before = fs::read_to_string(&policy).unwrap();
    allow(&["project", "rw", policy.to_str().unwrap()]).exits(1).says("nothing was changed");
    assert_eq!(fs::read_to_string(&policy).unwrap(), before);
    allow(&["project", "r", "~/.npmrc"]).succeeds().says("now sandbox project may read `~/.npmrc`");
    m.inside("project", "cat ~/.npmrc").succeeds();
    m.inside("project", "cat ~/notes.txt").fails();
    m.clash(["policy", "undo", "--yes"]).succeeds();
    m.inside("project", "cat ~/.npmrc").fails();
}

#[test]
fn a_project_grants_nothing_to_the_users_sandboxes() {
    let m = machine(Machine::new(Who::Me));
    m.write("app/.clash/policy.star", "grant(\"project\", fs = {\"$HOME/.ssh\": allow(\"r\")})\n");
    m.clash(["trust", "--yes"]);
    m.inside("project", "cat ~/.ssh/id_ed25519").fails();
}
