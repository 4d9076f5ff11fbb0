//! Measures what a hook call and a launch cost, as ratios side by side.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark is a program for people"
)]
//!
//! Every round runs each command once, so that other load on the machine affects all of
//! them alike. A ratio compares the same percentile of two commands of one run. Absolute
//! times are only for orientation.
//!
//! ```text
//! cargo build --release -p clash-compile --target x86_64-unknown-linux-musl
//! cargo bench -p clash --target x86_64-unknown-linux-musl
//! ```

#[expect(dead_code, reason = "shared with benchmarks that measure other things")]
mod support;

use std::fs;
use std::process::Command;

use support::{BenchMachine, MeasuredCommand, bench_rounds, clear, compare};

const CLASH: &str = env!("CARGO_BIN_EXE_clash");
const TRUE: &str = "/bin/true";
const POLICY: &str = r#"
load("@clash//rust.star", "rust_full")
load("@clash//sandboxes.star", "git_full")
when({"Bash": {("cargo", "rustc", "rustup"): allow(sandbox = rust_full), "git": allow(sandbox = git_full), "true": allow()}})
# Only rules that namespaces and mounts enforce, as with bubblewrap.
_walls = {subpath("$PWD"): allow(FULL), "$TMPDIR": allow(FULL)}
sandbox(name = "walls", default = deny(), fs = _walls, net = allow(), protect = False)
sandbox(name = "walls_net", default = deny(), fs = _walls, net = deny(), protect = False)
"#;

fn main() {
    let Some(rounds) = bench_rounds(300) else { return };
    let place = BenchMachine::new(POLICY);
    println!("program: {CLASH}\n{rounds} interleaved rounds\n");
    hook(&place, rounds);
    let mut place = BenchMachine::new(POLICY);
    let clash = place.as_plain_user(CLASH);
    launch(&place, &clash, rounds);
}

/// Compares a hook call with `/bin/true`, and checks that every call was allowed and traced.
fn hook(place: &BenchMachine, rounds: usize) {
    let message = place.dir.path().join("message.json");
    let text = format!(
        r#"{{"session_id":"bench","transcript_path":"/t","cwd":"{}","permission_mode":"default","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{{"command":"cargo build --release","description":"build"}},"tool_use_id":"toolu_1"}}"#,
        place.project().display()
    );
    fs::write(&message, text).unwrap();
    let from_file = |mut command: Command| {
        command.stdin(fs::File::open(&message).unwrap());
        command
    };
    let approvals = place.home().join(".local/state/clash/sessions/bench/approvals");
    let variants = vec![
        MeasuredCommand::new("/bin/true (dynamic C)", || from_file(place.command(TRUE, &[]))),
        MeasuredCommand::new("clash hook claude, warm cache, traced", || {
            from_file(place.command(CLASH, &["hook", "claude"]))
        }),
    ];
    compare("one hook decision", rounds, variants, || clear(&approvals));
    let trace =
        fs::read_to_string(place.home().join(".local/state/clash/sessions/bench/trace.jsonl"))
            .unwrap();
    assert!(trace.lines().count() >= rounds, "decisions were not traced");
    assert!(
        trace.lines().all(|line| line.contains(r#""effect":"allow""#)),
        "the hook did not allow every call"
    );
}

/// Bubblewrap gives the same isolation as a room with a network namespace, without Landlock
/// and seccomp.
const BUBBLEWRAP: &str = "/usr/bin/bwrap";

/// Compares launches in several sandboxes with `/bin/true` and bubblewrap.
fn launch(place: &BenchMachine, clash: &str, rounds: usize) {
    let project = place.project().display().to_string();
    let inside = |sandbox: &str| place.command(clash, &["sandbox", "exec", sandbox, "--", TRUE]);
    let bubblewrap = |unshare: &[&str]| {
        let view = ["--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"];
        let rest = ["--tmpfs", "/tmp", "--bind", &project, &project, TRUE];
        place.command(BUBBLEWRAP, &[unshare, &view, &rest].concat())
    };
    let mut variants = vec![
        MeasuredCommand::new("/bin/true", || place.command(TRUE, &[])),
        MeasuredCommand::new("clash sandbox exec readonly, direct tier", || inside("readonly")),
        MeasuredCommand::new("clash, user, mount, pid and ipc namespaces", || inside("walls")),
        MeasuredCommand::new("the same and a network namespace", || inside("walls_net")),
        MeasuredCommand::new("clash sandbox exec rust_full, with its monitor", || {
            inside("rust_full")
        }),
        MeasuredCommand::new("clash sandbox exec project, and a network", || inside("project")),
        MeasuredCommand::new("clash exec (decided by the policy)", || {
            place.command(clash, &["exec", "--", TRUE])
        }),
    ];
    if fs::exists(BUBBLEWRAP).unwrap() {
        variants.push(MeasuredCommand::new("bwrap, user, mount, pid and ipc namespaces", || {
            bubblewrap(&["--unshare-user", "--unshare-pid", "--unshare-ipc"])
        }));
        variants
            .push(MeasuredCommand::new("bwrap --unshare-all", || bubblewrap(&["--unshare-all"])));
    } else {
        println!("bwrap is not installed, so it is not compared");
    }
    compare("a sandboxed /bin/true, as a plain user", rounds, variants, || {});
}
