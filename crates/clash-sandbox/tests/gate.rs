//! Attacks on the gate of a room, and uses that must work, against servers in a network
//! namespace of their own (`gate/rig.py`).
//!
//! Needs unshare(1), ip(8), nsenter(1) and /usr/bin/python3. Root runs the room as a plain user
//! and as root; a plain user plays root in a user namespace.
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::panic,
    reason = "helpers of tests"
)]

mod support;

use std::path::Path;
use std::process::Command;

use support::room;

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// Runs all attacks and uses. `None` if this machine cannot.
fn run_rig(prefix: &[&str]) -> Option<String> {
    let works = |program: &str, option: &str| {
        Command::new(program).arg(option).output().is_ok_and(|output| output.status.success())
    };
    for (program, option) in [
        ("ip", "-V"),
        ("nsenter", "--version"),
        ("unshare", "--version"),
        ("/usr/bin/python3", "-V"),
    ] {
        if !works(program, option) {
            eprintln!("SKIPPED (no {program}): attacks on the gate");
            return None;
        }
    }
    let spaces: &[&str] = if is_root() { &["-n", "-m"] } else { &["-U", "-r", "-n", "-m"] };
    if !Command::new("unshare").args(spaces).arg("true").status().unwrap().success() {
        eprintln!("SKIPPED (no namespaces): attacks on the gate");
        return None;
    }
    let rig = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gate/rig.py");
    let mut command = Command::new("unshare");
    command.args(spaces).arg("/usr/bin/python3").arg(rig).arg(room()).args(prefix);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    Some(text)
}

fn check(report: &str) {
    let attacks = report.lines().filter(|line| line.contains(": blocked ")).count();
    let uses = report.lines().filter(|line| line.contains(": ok ")).count();
    let bad = [": escaped ", ": broken ", ": norun "];
    let bad: Vec<&str> =
        report.lines().filter(|line| bad.iter().any(|word| line.contains(word))).collect();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    assert!(attacks >= 100 && uses >= 29, "{attacks} attacks, {uses} uses");
    for record in [
        "allowed.test 93.184.216.35 80 Allowed",
        "evil.test - - Denied(Name)",
        "- 93.184.216.34 80 Denied(Unpinned)",
        "Denied(Foreign(\"evil.test\"))",
        "169.254.169.254 - Denied(Kind(Metadata))",
        "no.test - - Denied(NotApproved)",
    ] {
        assert!(report.contains(record), "no record {record}:\n{report}");
    }
}

#[test]
fn no_attack_passes_the_gate_of_a_plain_user() {
    let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let prefix: &[&str] = if is_root() { &user } else { &[] };
    if let Some(report) = run_rig(prefix) {
        check(&report);
    }
}

#[test]
fn no_attack_passes_the_gate_of_root() {
    if !is_root() {
        eprintln!("SKIPPED (not root): attacks on the gate of root");
        return;
    }
    if let Some(report) = run_rig(&[]) {
        check(&report);
    }
}
