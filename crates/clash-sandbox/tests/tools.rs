//! Real programs behind a room's gate: each works with only its host allowed, and fails soon
//! without it (`gate/tools.py`).
//!
//! Needs unshare(1), ip(8), nsenter(1), openssl and /usr/bin/python3. A program that is not
//! installed is skipped. Slow, so it runs with `CLASH_NIGHTLY=1` only.
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

use std::path::Path;
use std::process::Command;

use support::room;

fn programs_work_behind_the_gate(prefix: &[&str]) {
    let is_root = rustix::process::getuid().is_root();
    let spaces: &[&str] = if is_root { &["-n", "-m"] } else { &["-U", "-r", "-n", "-m"] };
    for needed in ["ip", "nsenter", "openssl", "/usr/bin/python3"] {
        if Command::new(needed).arg("--help").output().is_err() {
            eprintln!("SKIPPED (no {needed}): programs behind the gate");
            return;
        }
    }
    let rig = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gate/tools.py");
    let mut command = Command::new("unshare");
    command.args(spaces).arg("/usr/bin/python3").arg(rig).arg(room()).args(prefix);
    let output = command.output().unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{report}\n{}", String::from_utf8_lossy(&output.stderr));
    let bad: Vec<&str> = report.lines().filter(|line| line.contains(": broken")).collect();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    for line in report.lines().filter(|line| line.contains(": skipped")) {
        eprintln!("SKIPPED {line}");
    }
    let good = report.lines().filter(|line| line.contains(": ok")).count();
    assert!(good >= 2, "no program ran:\n{report}");
}

fn is_nightly() -> bool {
    let nightly = std::env::var_os("CLASH_NIGHTLY").is_some();
    if !nightly {
        eprintln!("SKIPPED (not nightly): programs behind the gate");
    }
    nightly
}

#[test]
fn programs_of_a_plain_user_reach_only_their_host() {
    if is_nightly() {
        let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        let is_root = rustix::process::getuid().is_root();
        programs_work_behind_the_gate(if is_root { &user } else { &[] });
    }
}

#[test]
fn programs_of_root_reach_only_their_host() {
    if is_nightly() && rustix::process::getuid().is_root() {
        programs_work_behind_the_gate(&[]);
    }
}
