//! Processes that a command leaves in the background go on in their room.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Machine, Ran, Who, as_each_user, clash};

const POLICY: &str = r#"
load("@clash//sandboxes.star", "project")
settings(default = allow(), default_sandbox = project)
_own = {subpath("$PWD"): allow(FULL), "$TMPDIR": allow(FULL)}
tools = sandbox(name = "tools", default = deny(), fs = _own)
ends = sandbox(name = "ends", default = deny(), fs = _own, detach = False)
short = sandbox(name = "short", default = deny(), fs = _own, limits = {"wall": "2"})
when({"Bash": {
    "python3": allow(sandbox = tools),
    "perl": allow(sandbox = ends),
    "awk": allow(sandbox = short),
}})
"#;

const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A shell loop that writes a line every 50 ms.
const GROWS: &str = "(while :; do echo x >> grow; sleep 0.05; done) > /dev/null 2>&1 &";

fn exec(m: &Machine, script: &str) -> Ran {
    let mut clash = m.command(clash());
    Ran::of(clash.env("PATH", SYSTEM_PATH).args(["exec", "--", "bash", "-c", script]))
}

fn rooms(m: &Machine) -> Vec<Value> {
    let listed = m.clash(["ps", "--json"]).succeeds();
    serde_json::from_str(&listed.stdout).unwrap_or_else(|_| panic!("{listed:?}"))
}

/// Waits until a condition holds. The time is only a bound for a test that fails.
#[track_caller]
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn size(path: impl AsRef<Path>) -> u64 {
    fs::metadata(path).map_or(0, |meta| meta.len())
}

#[track_caller]
fn grows(m: &Machine) {
    let file = m.project().join("grow");
    let before = size(&file);
    eventually("the file grows", || size(&file) > before);
}

/// The processes with this text in their command line or environment.
fn processes(text: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_meant = |pid: &u32| {
        let parts = ["cmdline", "environ"];
        parts.iter().any(|part| {
            let bytes = fs::read(format!("/proc/{pid}/{part}")).unwrap_or_default();
            *pid != std::process::id() && String::from_utf8_lossy(&bytes).contains(text)
        })
    };
    pids.filter(is_meant).collect()
}

#[track_caller]
fn nothing_is_left(m: &Machine) {
    let home = m.home().display().to_string();
    eventually("every process has ended", || processes(&home).is_empty());
    assert_eq!(rooms(m), [] as [Value; 0]);
    let left = fs::read_dir(m.state().join("rooms")).into_iter().flatten().flatten();
    assert_eq!(left.map(|entry| entry.path()).collect::<Vec<_>>(), [] as [PathBuf; 0]);
}

#[test]
fn a_background_process_goes_on_until_it_is_stopped() {
    as_each_user(|m| {
        let m = m.policy(POLICY);
        m.write("secret", "hidden\n");
        let script = format!(
            "{GROWS} (until test -e ask; do sleep 0.05; done; cat ~/secret; touch .envrc; \
             touch made) > said 2>&1 & exit 3"
        );
        exec(&m, &script).exits(3);
        let listed = rooms(&m);
        let [room] = listed.as_slice() else { panic!("{listed:?}") };
        assert_eq!(room["sandbox"], "project");
        assert!(room["command"].as_str().unwrap().contains("grow"), "{room}");
        assert!(room["processes"].as_u64().unwrap() >= 2, "{room}");
        grows(&m);
        // It is confined and watched as before.
        m.write("app/ask", "");
        eventually("it made a file", || m.project().join("made").exists());
        let said = fs::read_to_string(m.project().join("said")).unwrap();
        assert!(said.contains("secret") && !said.contains("hidden"), "{said}");
        assert!(!m.project().join(".envrc").exists());
        let id = room["id"].as_str().unwrap();
        m.clash(["ps"]).succeeds().says(id);
        m.clash(["stop", "nothing"]).exits(1).says("there is no room `nothing`");
        m.clash(["stop", id]).succeeds().says("has ended");
        nothing_is_left(&m);
    });
}

#[test]
fn a_room_ends_with_its_last_process() {
    as_each_user(|m| {
        let m = m.policy(POLICY);
        exec(&m, "(until test -e end; do sleep 0.05; done) > /dev/null 2>&1 &").succeeds();
        assert_eq!(rooms(&m).len(), 1);
        m.write("app/end", "");
        eventually("the room has ended", || rooms(&m).is_empty());
        nothing_is_left(&m);
    });
}

#[test]
fn a_room_without_detach_ends_with_its_command() {
    as_each_user(|m| {
        let m = m.policy(POLICY);
        let run = |args: &[&str]| Ran::of(m.command(clash()).env("PATH", SYSTEM_PATH).args(args));
        run(&["exec", "--", "perl", "-e", "fork and exit 4; sleep 600"]).exits(4);
        run(&["sandbox", "exec", "tools", "--", "sh", "-c", "sleep 600 > /dev/null 2>&1 &"]);
        nothing_is_left(&m);
    });
}

#[test]
fn a_room_in_the_background_has_its_wall_limit() {
    as_each_user(|m| {
        let m = m.policy(POLICY);
        let program = "BEGIN { system(\"sleep 600 > /dev/null 2>&1 &\") }";
        let mut clash = m.command(clash());
        Ran::of(clash.env("PATH", SYSTEM_PATH).args(["exec", "--", "awk", program])).succeeds();
        eventually("its time is up", || rooms(&m).is_empty());
        nothing_is_left(&m);
    });
}

#[test]
fn killing_the_keeper_ends_the_room() {
    as_each_user(|m| {
        let m = m.policy(POLICY);
        for signal in ["KILL", "TERM", "STOP"] {
            exec(&m, &format!("{GROWS} python3 -c 'import time; time.sleep(600)' &>/dev/null &"))
                .succeeds();
            let keeper = rooms(&m)[0]["keeper"].to_string();
            Ran::of(m.command("kill").args([&format!("-{signal}"), &keeper])).succeeds();
            if signal == "STOP" {
                m.clash(["stop", "--all"]).succeeds();
            }
            nothing_is_left(&m);
        }
    });
}

#[test]
fn the_streams_of_a_background_process_are_as_outside() {
    as_each_user(|m| {
        let m = m.policy(POLICY);
        // A reader of the pipe waits for the process in the background.
        let ran = exec(&m, "(sleep 0.5; echo late) & echo early").succeeds();
        assert_eq!(ran.stdout, "early\nlate\n");
        // A file gets the text later. The launcher does not wait.
        let out = fs::File::create(m.project().join("out")).unwrap();
        let script = "(until test -e say; do sleep 0.05; done; echo late) & echo early";
        let mut launcher = m.command(clash());
        launcher.args(["exec", "--", "bash", "-c", script]).stdout(out).stderr(Stdio::null());
        assert!(launcher.status().unwrap().success());
        let text = || fs::read_to_string(m.project().join("out")).unwrap();
        assert_eq!(text(), "early\n");
        m.write("app/say", "");
        eventually("the file has the text", || text() == "early\nlate\n");
        nothing_is_left(&m);
    });
}

#[test]
fn commands_behind_doors_go_on_in_the_background() {
    as_each_user(|m| {
        let m = m.policy(POLICY);
        let server = "import socket; s = socket.socket(); s.bind((\"127.0.0.1\", 0)); s.listen(); \
                      open(\"port\", \"w\").write(str(s.getsockname()[1])); s.accept()";
        exec(&m, &format!("python3 -c '{server}' > /dev/null 2>&1 & cat /dev/null")).succeeds();
        eventually("it listens", || size(m.project().join("port")) > 0);
        let port: u64 =
            fs::read_to_string(m.project().join("port")).unwrap().trim().parse().unwrap();
        eventually("the port is listed", || rooms(&m)[0]["ports"] == json!([port]));
        // A process that the command behind the door leaves has the room of that command.
        let daemon = "import os, time; os.fork() or (os.close(0), os.close(1), os.close(2), \
                      time.sleep(600))";
        let ran = exec(&m, &format!("python3 -c '{daemon}'; echo $?; cat /dev/null"));
        assert_eq!(ran.stdout, "0\n", "{ran:?}");
        let sandboxes: Vec<Value> = rooms(&m).iter().map(|room| room["sandbox"].clone()).collect();
        assert_eq!(sandboxes, ["project", "tools"]);
        m.clash(["stop", "--all"]).succeeds();
        nothing_is_left(&m);
    });
}

fn bash(m: &Machine, session: &str, script: &str) -> Value {
    let mut message = m.message("PreToolUse", "Bash", json!({"command": script}));
    message["session_id"] = session.into();
    let answer: Value = serde_json::from_str(&m.hook(&message).succeeds().stdout).unwrap();
    let line = answer["hookSpecificOutput"]["updatedInput"]["command"].as_str().unwrap();
    let mut shell = m.command("sh");
    Ran::of(shell.env("CLAUDE_CODE_SESSION_ID", session).args(["-c", line])).succeeds();
    let mut message = m.message("PostToolUse", "Bash", json!({"command": line}));
    message["session_id"] = session.into();
    message["tool_response"] = json!({"stdout": "", "stderr": ""});
    let told = m.hook(&message).succeeds().stdout;
    serde_json::from_str(&told).unwrap_or_default()
}

#[test]
fn the_agent_hears_once_and_the_sessions_end_stops_its_rooms() {
    as_each_user(|m| {
        let m = m.policy(POLICY);
        let told = |answer: &Value| {
            answer["hookSpecificOutput"]["additionalContext"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let first = told(&bash(&m, "one", &format!("{GROWS} true")));
        let id = rooms(&m)[0]["id"].as_str().unwrap().to_owned();
        assert!(first.contains(&format!("clash stop {id}")), "{first}");
        let other = told(&bash(&m, "two", "(sleep 600) > /dev/null 2>&1 & true"));
        assert!(other.contains("sleep 600") && !other.contains(&id), "{other}");
        assert_eq!(told(&bash(&m, "one", "true")), "");
        grows(&m);
        let trace = m.clash(["log", "--records", "--json", "--session", "one"]).stdout;
        assert!(trace.contains("room_start") && trace.contains(&id), "{trace}");
        let mut end = m.message("SessionEnd", "", json!({}));
        end["session_id"] = "one".into();
        m.hook(&end).succeeds();
        eventually("the room of the session has ended", || rooms(&m).len() == 1);
        assert_eq!(rooms(&m)[0]["session"], "two");
        m.clash(["stop", "--session", "two"]).succeeds();
        nothing_is_left(&m);
    });
}

/// Two hundred with `CLASH_NIGHTLY=1`.
#[test]
fn many_rooms_are_left_and_stopped() {
    let count = if std::env::var_os("CLASH_NIGHTLY").is_some() { 200 } else { 12 };
    let m = Machine::new(Who::Me).policy(POLICY);
    for _ in 0..count {
        exec(&m, "sleep 600 > /dev/null 2>&1 & true").succeeds();
    }
    assert_eq!(rooms(&m).len(), count);
    m.clash(["stop", "--all"]).succeeds();
    nothing_is_left(&m);
}
