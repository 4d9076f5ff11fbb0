//! Development servers: one action starts a server, the next one fetches its page. Only
//! commands of the same session and the user's own programs reach it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use crate::claude_client::{CLAUDE, bash as call, installed};
use crate::support::{Machine, Ran, Who, as_each_user, eventually};

const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A policy whose servers listen on this port.
fn policy(port: u16) -> String {
    format!(
        r#"
load("@clash//sandboxes.star", "project")
settings(default = allow(), default_sandbox = project)
servers = sandbox(name = "servers", extends = project, serve = [{port}])
web = sandbox(name = "web", extends = project, net = {{default(): ask()}}, serve = [{port}])
when({{"Bash": {{
    "python3": allow(sandbox = servers),
    "curl": allow(sandbox = web),
}}}})
"#
    )
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The answer of the hook in a session.
fn asked(m: &Machine, session: &str, script: &str) -> Value {
    let mut message = m.message("PreToolUse", "Bash", json!({"command": script}));
    message["session_id"] = session.into();
    let ran = m.hook(&message);
    let document: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    document["hookSpecificOutput"].clone()
}

/// Runs a script as the client does after its hook, or after the user's yes.
fn run(m: &Machine, session: &str, script: &str) -> Ran {
    let answer = asked(m, session, script);
    let line = answer["updatedInput"]["command"].as_str().unwrap_or_else(|| panic!("{answer}"));
    let mut shell = m.command("sh");
    shell.env("CLAUDE_CODE_SESSION_ID", session).env("PATH", SYSTEM_PATH);
    Ran::of(shell.args(["-c", line]))
}

/// A server that goes on after its action.
fn start(m: &Machine, session: &str, port: u16, address: &str) {
    m.write("app/page", "the page\n");
    let serve = format!("python3 -m http.server --bind {address} {port} > log 2>&1 &");
    run(m, session, &serve).succeeds();
}

fn stop_all(m: &Machine) {
    m.clash(["stop", "--all"]).succeeds();
}

fn fetch(m: &Machine, session: &str, port: u16) -> Ran {
    run(m, session, &format!("curl -sS -m 10 http://localhost:{port}/page"))
}

/// The answer of a port of this machine to the user's own programs.
fn from_browser(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    stream.write_all(b"GET /page HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

#[test]
fn the_next_action_and_the_browser_reach_a_server() {
    as_each_user(|m| {
        let port = free_port();
        let m = m.policy(&policy(port));
        for address in ["127.0.0.1", "::1", "0.0.0.0"] {
            start(&m, "one", port, address);
            eventually("the browser sees the page", || {
                from_browser(port).is_some_and(|text| text.contains("the page"))
            });
            fetch(&m, "one", port).succeeds().says("the page");
            stop_all(&m);
            assert!(from_browser(port).is_none(), "the port stays open");
            let refused = fetch(&m, "one", port);
            assert!(refused.code != Some(0), "{refused:?}");
        }
    });
}

#[test]
fn another_session_and_other_services_are_not_reached() {
    as_each_user(|m| {
        let (port, other) = (free_port(), TcpListener::bind("127.0.0.1:0").unwrap());
        let m = m.policy(&policy(port));
        start(&m, "one", port, "127.0.0.1");
        eventually("the server is there", || from_browser(port).is_some());
        let strange = fetch(&m, "two", port);
        assert!(strange.code != Some(0) && !strange.stdout.contains("page"), "{strange:?}");
        // A service of the user: asked about, and refused without a yes.
        let other = other.local_addr().unwrap().port();
        let answer = asked(&m, "one", &format!("curl http://localhost:{other}/"));
        assert_eq!(answer["permissionDecision"], "ask", "{answer}");
        let reason = answer["permissionDecisionReason"].as_str().unwrap();
        assert!(reason.contains(&format!("it reaches localhost:{other}")), "{reason}");
        stop_all(&m);
    });
}

#[test]
fn a_taken_port_is_told_and_the_session_reaches_the_server() {
    as_each_user(|m| {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let m = m.policy(&policy(port));
        let serve = format!(
            "python3 -c 'import socket,time; s = socket.create_server((\"127.0.0.1\", {port})); time.sleep(2)'"
        );
        let ran = run(&m, "one", &serve).succeeds();
        assert!(ran.stderr.contains(&format!("port {port} of this machine is taken")), "{ran:?}");
        run(&m, "one", "python3 -c 'print(1)'").succeeds();
        start(&m, "one", port, "127.0.0.1");
        let page = || fetch(&m, "one", port).stdout.contains("the page");
        eventually("the session sees the page", page);
        stop_all(&m);
    });
}

/// A yes to the command is a yes to the host that its words name, for this command.
#[test]
fn a_question_names_the_host_and_a_yes_opens_it_once() {
    as_each_user(|m| {
        let service = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = service.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in service.incoming() {
                let Ok(mut stream) = stream else { continue };
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nservice");
            }
        });
        let m = m.policy(&policy(1));
        let script = format!("curl -sS -m 5 http://localhost:{port}/");
        let answer = asked(&m, "one", &script);
        assert_eq!(answer["permissionDecision"], "ask", "{answer}");
        run(&m, "one", &script).succeeds().says("service");
        // The words of this one name another port.
        let other = run(&m, "one", &format!("curl -sS -m 5 http://localhost:{}/", free_port()));
        assert!(other.code != Some(0), "{other:?}");
        assert_eq!(asked(&m, "one", "curl https://docs.test/x")["permissionDecision"], "ask");
        m.clash(["explain", "bash", "curl https://docs.test/x"]).succeeds().says("docs.test");
        m.clash(["explain", "bash", "curl http://localhost:1/x"]).succeeds().says("allow");
    });
}

#[test]
fn the_real_claude_serves_in_one_action_and_fetches_in_the_next() {
    let Some(claude) = CLAUDE.here() else { return };
    let port = free_port();
    let m = installed(Who::Me).policy(&policy(port));
    m.write("app/page", "the page\n");
    let serve = format!("python3 -m http.server {port} > log 2>&1 & sleep 2");
    let get = format!("curl -sS -m 10 http://localhost:{port}/page");
    let talk = claude.run(&m, &[call(&serve), call(&get)]);
    talk.results[1].says("the page");
    eventually("the server ends with the session", || from_browser(port).is_none());
}
