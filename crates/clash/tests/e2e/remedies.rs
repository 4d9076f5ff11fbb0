//! Every command that a message prints works as it is printed. `remedy.rs` has all of them;
//! each kind is provoked here in a fresh home, run at a terminal, and checked by its effect.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Machine, Ran, Who, as_each_user, clash, eventually, is_root};
use crate::trace::blocks::act;

/// Provokes a message in a fresh home and runs its command.
type RemedyTest = fn(Machine);

/// The beginning of each printed command, and a test of it.
const KINDS: &[(&str, RemedyTest)] = &[
    ("clash allow --last", allow_last),
    ("clash answer", answer),
    ("clash asks", asks),
    ("clash doctor", doctor),
    ("clash doctor --fix", doctor_fix),
    ("clash explain bash \"git push\"", commands_in_the_policy),
    ("clash init", init),
    ("clash init --posture", init_replace),
    ("clash install --agent", install),
    ("clash log", log),
    ("clash log --follow", log_follow),
    ("clash policy allow", policy_allow),
    ("clash policy docs", policy_docs),
    ("clash policy show", policy_show),
    ("clash policy undo", policy_undo),
    ("clash ps", ps),
    ("clash request", request),
    ("clash sandbox allow", sandbox_allow),
    ("clash sandbox list", sandbox_list),
    ("clash sandbox show", commands_in_the_policy),
    ("clash session list", session_list),
    ("clash stop", stop),
    ("clash trust", trust),
    ("clash uninstall", uninstall),
    ("clash uninstall --purge", uninstall_purge),
    ("clash watch", watch),
];

/// A command that asks only while it runs.
const HIDDEN: [&str; 4] = ["exec", "--", "awk", "BEGIN { exit system(\"rm -r build\") }"];

/// A home with the policy that `clash init --quick` makes for a git project.
fn fresh(m: Machine) -> Machine {
    m.write("app/README", "read me\n");
    m.write("notes.txt", "notes\n");
    m.write("app/build/out.o", "x\n");
    Ran::of(m.command("git").args(["init", "-q", "."])).succeeds();
    m.clash(["init", "--quick", "--yes"]).succeeds();
    m
}

/// The command in a message that begins like this, up to a backtick or the end of the line.
fn printed(text: &str, beginning: &str) -> String {
    let json: Value = serde_json::from_str(text).unwrap_or_default();
    let context = json["hookSpecificOutput"]["additionalContext"].as_str();
    let text = context.or(json["systemMessage"].as_str()).unwrap_or(text);
    let (_, rest) =
        text.split_once(beginning).unwrap_or_else(|| panic!("no `{beginning}` in: {text}"));
    let rest = rest.lines().next().unwrap_or_default();
    let line = format!("{beginning}{rest}");
    line.split('`').next().unwrap().trim().to_owned()
}

/// Types a printed command at a terminal, unchanged, and then the answers.
fn type_in(m: &Machine, line: &str, answers: &str) -> Ran {
    let bin = m.home().join(".local/bin");
    m.make_dir(&bin);
    let _ = std::os::unix::fs::symlink(clash(), bin.join("clash"));
    let mut shell = m.command("script");
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display());
    shell.env("PATH", path).env("TERM", "xterm").args(["-qec", line, "/dev/null"]);
    let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(answers.as_bytes()).unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    drop(input);
    ran
}

/// Every kind of remedy has a test, and no other file prints a command.
#[test]
fn every_printed_command_has_a_test() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let remedies = fs::read_to_string(crates.join("clash/src/remedy.rs")).unwrap();
    let shown = remedies.split("#[cfg(test)]").next().unwrap();
    let beginnings: BTreeSet<&str> = shown
        .split("(f, \"clash ")
        .chain(shown.split("write_str(\"clash "))
        .skip(1)
        .filter_map(|rest| rest.split(['{', ')']).next())
        .filter(|rest| !rest.contains('\n') && !rest.contains("fmt"))
        .map(|rest| rest.trim_end_matches('"').trim_end_matches('\\').trim())
        .collect();
    let tested: BTreeSet<String> = KINDS
        .iter()
        .map(|(kind, _)| kind.trim_start_matches("clash ").replace("\"git push\"", "\\\"git push"))
        .collect();
    let untested: Vec<_> = beginnings.iter().filter(|it| !tested.contains(**it)).collect();
    assert!(beginnings.len() > 20 && untested.is_empty(), "{untested:?} of {beginnings:?}");

    let verbs = m_verbs();
    let mut others = Vec::new();
    for file in sources(&crates.join("clash/src")) {
        let text = fs::read_to_string(&file).unwrap();
        let is_profile = |line: &&str| !line.contains("# Written by") && !line.contains("about = ");
        if file.ends_with("remedy.rs") || file.ends_with("hook/request.rs") {
            continue;
        }
        let text = text.split("#[cfg(test)]").next().unwrap();
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in lines.filter(|line| !line.contains("usage: ")).filter(is_profile) {
            let found = verbs.iter().any(|verb| line.contains(&format!("`clash {verb}")));
            if found {
                others.push(format!("{}: {line}", file.display()));
            }
        }
    }
    assert!(others.is_empty(), "these belong into remedy.rs: {others:#?}");
}

/// The verbs of `clash --help`.
fn m_verbs() -> Vec<String> {
    let help = Machine::new(Who::Me).clash(["--help"]).stdout;
    let verbs = help.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let verbs = verbs.filter_map(|line| line.split_whitespace().next()).map(str::to_owned);
    let verbs: Vec<String> = verbs.filter(|verb| !verb.starts_with('-')).collect();
    assert!(verbs.len() > 15, "{help}");
    verbs
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let (dirs, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let mut files: Vec<_> =
        files.into_iter().filter(|it| it.extension().is_some_and(|it| it == "rs")).collect();
    files.extend(dirs.iter().flat_map(|dir| sources(dir)));
    files
}

#[test]
fn every_printed_command_works() {
    let who = if is_root() { Who::Nobody } else { Who::Me };
    let mut failed = Vec::new();
    let wanted = std::env::var("CLASH_TEST_REMEDY").ok();
    for (kind, test) in KINDS {
        if wanted.as_ref().is_some_and(|wanted| wanted != kind) {
            continue;
        }
        eprintln!("{kind}");
        let ran = std::panic::catch_unwind(|| test(Machine::new(who)));
        if ran.is_err() {
            failed.push(kind);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

/// A child that ends with the test.
struct EndedChild(std::process::Child);

impl Drop for EndedChild {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn allow_last(m: Machine) {
    let m = fresh(m);
    let said = m.clash(["request", "--read", "x", "--", "cat", "x"]).stderr;
    let line = printed(&said, "clash allow --last");
    m.bash("npm ci").is("ask", "needs your approval");
    type_in(&m, &line, "p\ny\n").succeeds().says("now allow");
    m.bash("npm ci").is("allow", "");
    // Words that no rule can name.
    let steered = m.bash("sh -c \"$UNKNOWN\"").is("ask", "clash allow --last");
    type_in(&m, &printed(&steered.reason, "clash allow --last"), "o\n").succeeds();
    m.bash("sh -c \"$UNKNOWN\"").is("allow", "");
}

fn answer(m: Machine) {
    let m = fresh(m);
    let follow = m.command(clash()).args(["asks", "--follow"]).stdout(Stdio::null()).spawn();
    let _follow = EndedChild(follow.unwrap());
    eventually("a listener is registered", || m.state().join("questions/listener").exists());
    std::thread::sleep(Duration::from_millis(200));
    let mut hidden = m.command(clash()).args(HIDDEN).spawn().unwrap();
    eventually("a question waits", || m.clash(["asks"]).stdout.contains("clash answer"));
    let shown = m.clash(["asks"]).stdout;
    type_in(&m, &printed(&shown, "clash answer"), "").succeeds().says("allowed once");
    assert!(hidden.wait().unwrap().success());
    assert!(!m.project().join("build").exists());
}

fn asks(m: Machine) {
    let m = fresh(m);
    let said = m.clash(["answer", "none", "once"]).fails().stderr;
    type_in(&m, &printed(&said, "clash asks"), "").succeeds().says("no question waits");
}

fn doctor(m: Machine) {
    let m = fresh(m);
    m.bash("ls").is("allow", "");
    let after = m.message("PostToolUse", "Bash", json!({"command": "ls"}));
    let said = m.hook(&after).stdout;
    type_in(&m, &printed(&said, "clash doctor"), "").says("it compiles");
}

fn doctor_fix(m: Machine) {
    // Only a machine with AppArmor prints it; it must be harmless elsewhere.
    type_in(&m, "clash doctor --fix", "n\n").says("room");
}

fn commands_in_the_policy(m: Machine) {
    let m = fresh(m);
    let text = fs::read_to_string(m.home().join(".config/clash/policy.star")).unwrap();
    type_in(&m, &printed(&text, "clash sandbox show"), "").succeeds().says("project");
    type_in(&m, &printed(&text, "clash explain bash"), "").succeeds().says("git push");
}

fn init(m: Machine) {
    let said = m.clash(["doctor"]).stdout;
    type_in(&m, &printed(&said, "clash init"), "\n\n\nyes\n");
    m.clash(["policy", "check"]).succeeds();
    assert!(m.home().join(".config/clash/policy.star").exists());
}

fn init_replace(m: Machine) {
    let m = fresh(m);
    let said = m.clash(["init", "--quick", "--posture", "strict", "--yes"]).fails().stderr;
    type_in(&m, &printed(&said, "clash init --posture"), "\n\nyes\n");
    let text = fs::read_to_string(m.home().join(".config/clash/policy.star")).unwrap();
    assert!(text.contains("(strict)"), "{text}");
}

fn install(m: Machine) {
    let m = fresh(m);
    let said = m.clash(["log"]).fails().stderr;
    type_in(&m, &printed(&said, "clash install --agent"), "y\n").says("clash now decides");
}

fn log(m: Machine) {
    let m = fresh(m);
    m.bash("ls").is("allow", "");
    let said = m.clash(["log", "show", "test-ses.9999"]).fails().stderr;
    type_in(&m, &printed(&said, "clash log"), "").succeeds().says("ls");
}

fn log_follow(m: Machine) {
    let m = fresh(m);
    m.bash("ls").is("allow", "");
    let said = m.clash(["watch"]).fails().stderr;
    let line = printed(&said, "clash log --follow");
    type_in(&m, &format!("timeout 2 {line}"), "").says("ls");
}

fn policy_allow(m: Machine) {
    let m = fresh(m);
    for script in ["git push origin main", "npm ci", "rm -r build", "find . -delete"] {
        let asked = m.bash(script).is("ask", "needs your approval");
        let line = printed(&asked.reason, "clash policy allow");
        type_in(&m, &line, "y\n").succeeds().says("now allow");
        m.bash(script).is("allow", "");
    }
    m.clash(["explain", "bash", "git push"]).says("sandbox git_full");
    for (tool, input) in [
        ("WebFetch", json!({"url": "https://docs.rs/x", "prompt": "p"})),
        ("mcp__db__query", json!({"sql": "select 1"})),
    ] {
        let asked = m.asks(tool, input.clone()).is("ask", "needs your approval");
        type_in(&m, &printed(&asked.reason, "clash policy allow --tool"), "y\n").succeeds();
        m.asks(tool, input).is("allow", "");
    }
    // A command behind a door, which nobody watches.
    let m = fresh(Machine::new(m.who));
    let refused = m.clash(HIDDEN).fails();
    type_in(&m, &printed(&refused.stderr, "clash policy allow --sandbox"), "y\n").succeeds();
    m.clash(HIDDEN).succeeds();
    // A rule of the project's policy, which no rule of the user lifts.
    m.write("app/.clash/policy.star", "when({\"Bash\": {\"curl\": deny()}})\n");
    let denied = m.bash("curl localhost").is("deny", "is denied");
    let line = printed(&denied.reason, "clash policy allow --scope project");
    type_in(&m, &line, "y\n").succeeds();
    type_in(&m, "clash trust", "y\n").succeeds();
    m.bash("curl localhost").is("allow", "is allowed");
}

/// The allowed command reaches this port of this machine, and no other.
#[test]
fn allowing_curl_localhost_reaches_localhost() {
    as_each_user(|m| {
        let m = fresh(m);
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = other.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for mut connection in server.incoming().flatten() {
                let mut head = [0; 512];
                let _ = std::io::Read::read(&mut connection, &mut head);
                let _ = connection.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello\n");
            }
        });
        let place = format!("localhost:{port}");
        type_in(&m, &format!("clash policy allow curl {place}"), "y\n").succeeds();
        m.clash(["exec", "--", "curl", &place, "-s"]).succeeds().says("hello");
        // The rule is about this address, and its sandbox reaches no other.
        m.bash(&format!("curl localhost:{closed}")).is("ask", "needs your approval");
        let sandbox = format!("project_localhost_{port}");
        let script = format!("curl -s -m 3 localhost:{closed}");
        assert_ne!(m.inside(&sandbox, &script).code, Some(0));
        drop(other);
    });
}

/// The expectations that init writes never keep the user from a stricter rule.
#[test]
fn a_stricter_rule_never_fails_by_an_expectation() {
    for posture in ["strict", "moderate", "permissive"] {
        let m = Machine::new(Who::Me);
        Ran::of(m.command("git").args(["init", "-q", "."])).succeeds();
        m.clash(["init", "--quick", "--yes", "--posture", posture]).succeeds();
        for words in [["git", "push"], ["git", "status"], ["git", "--version"], ["rm", "x"]] {
            for effect in ["ask", "deny"] {
                let before = m.bash(&words.join(" ")).effect;
                if before == "deny" || before == effect {
                    continue;
                }
                m.clash(["policy", effect, "--yes", "--", words[0], words[1]]).succeeds();
                m.bash(&words.join(" ")).is(effect, "");
            }
        }
    }
}

fn policy_docs(m: Machine) {
    let said = m.clash(["policy", "docs", "zzzzzzzz"]).fails().stderr;
    type_in(&m, &printed(&said, "clash policy docs"), "").succeeds().says("sandbox ");
}

fn policy_show(m: Machine) {
    Ran::of(m.command("git").args(["init", "-q", "."])).succeeds();
    let said = m.clash(["init", "--quick", "--yes"]).succeeds().stdout;
    type_in(&m, &printed(&said, "clash policy show"), "").succeeds().says("default: ask");
}

fn policy_undo(m: Machine) {
    Ran::of(m.command("git").args(["init", "-q", "."])).succeeds();
    let said = m.clash(["init", "--quick", "--yes"]).succeeds().stdout;
    type_in(&m, &printed(&said, "clash policy undo"), "y\n").succeeds().says("taken back");
    assert!(!m.home().join(".config/clash/policy.star").exists());
}

fn ps(m: Machine) {
    let said = m.clash(["stop", "none"]).fails().stderr;
    type_in(&m, &printed(&said, "clash ps"), "").succeeds().says("no room runs");
}

fn request(m: Machine) {
    let m = fresh(m);
    let done = act(&m, "a", "cat ~/notes.txt");
    let line = printed(&done.told, "clash request");
    assert!(line.ends_with(" -- cat ~/notes.txt"), "{line}");
    m.bash(&line).is("ask", "read");
    assert_eq!(act(&m, "b", &line).status, 0);
}

fn sandbox_allow(m: Machine) {
    let m = fresh(m);
    for (call, script) in [("a", "cat ~/notes.txt"), ("b", "touch ~/made.txt")] {
        let done = act(&m, call, script);
        assert_ne!(done.status, 0, "{script}");
        let typed = type_in(&m, &printed(&done.told, "clash sandbox allow"), "y\n").succeeds();
        let again = act(&m, &format!("{call}2"), script);
        assert_eq!(again.status, 0, "{typed:?} {}", again.row);
    }
    // A file tool.
    let file = m.write("other file.txt", "x\n");
    let asked = m.asks("Read", json!({"file_path": file})).is("ask", "does not grant");
    type_in(&m, &printed(&asked.reason, "clash sandbox allow"), "y\n").succeeds();
    m.asks("Read", json!({"file_path": file})).is("allow", "");
}

fn sandbox_list(m: Machine) {
    let m = fresh(m);
    let said = m.clash(["sandbox", "show", "projct"]).fails().stderr;
    type_in(&m, &printed(&said, "clash sandbox list"), "").succeeds().says("project");
}

fn session_list(m: Machine) {
    let m = fresh(m);
    m.bash("ls").is("allow", "");
    let said = m.clash(["log", "--session", "none"]).fails().stderr;
    type_in(&m, &printed(&said, "clash session list"), "").succeeds().says("test-ses");
}

fn stop(m: Machine) {
    if !is_root() {
        return crate::support::skipped("rooms in the background");
    }
    let m = fresh(m);
    m.clash(["policy", "allow", "--yes", "sleep"]).succeeds();
    let done = act(&m, "a", "sleep 300 >/dev/null 2>&1 &");
    type_in(&m, &printed(&done.told, "clash stop"), "").succeeds().says("has ended");
    m.clash(["ps"]).says("no room runs");
}

fn trust(m: Machine) {
    let m = fresh(m);
    m.write("app/.clash/policy.star", "when({\"Bash\": {\"npm\": allow()}})\n");
    let asked = m.bash("npm ci").is("ask", "not trusted");
    type_in(&m, &printed(&asked.reason, "clash trust"), "y\n").succeeds().says("is trusted");
    m.bash("npm ci").is("allow", "");
}

fn uninstall(m: Machine) {
    let m = fresh(m);
    m.clash(["install", "--agent", "claude", "--yes"]).succeeds();
    type_in(&m, "clash uninstall", "y\n").succeeds().says("clash is out of");
}

fn uninstall_purge(m: Machine) {
    let m = fresh(m);
    m.clash(["install", "--agent", "claude", "--yes"]).succeeds();
    let said = m.clash(["uninstall"]).succeeds().stdout;
    type_in(&m, &printed(&said, "clash uninstall --purge"), "y\ny\n").succeeds();
    assert!(!m.state().exists());
}

fn watch(m: Machine) {
    let m = fresh(m);
    let refused = m.clash(HIDDEN).fails();
    let line = printed(&refused.stderr, "clash watch");
    assert_eq!(line, "clash watch");
}
