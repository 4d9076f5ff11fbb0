//! Measures the gate beside a direct connection (`gate.py`).
//!
//! ```text
//! cargo bench -p clash-sandbox --bench gate
//! ```
//!
//! Needs unshare(1), ip(8), nsenter(1) and /usr/bin/python3; squid and socat are compared if
//! they are installed. `CLASH_BENCH_ROUNDS` sets the number of rounds.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark for people")]

use std::path::Path;
use std::process::Command;

fn main() {
    if !std::env::args().any(|word| word == "--bench") {
        return;
    }
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Cargo builds no example for a benchmark.
    let build = ["build", "--release", "-p", "clash-sandbox", "--example", "room"];
    let built = Command::new(env!("CARGO")).args(build).current_dir(directory).status();
    assert!(built.unwrap().success());
    let own = std::env::current_exe().unwrap();
    let room = own.ancestors().nth(2).unwrap().join("examples/room");
    let rounds = std::env::var("CLASH_BENCH_ROUNDS").unwrap_or_else(|_| "7".to_owned());
    let spaces: &[&str] = match rustix::process::getuid().is_root() {
        true => &["-n", "-m"],
        false => &["-U", "-r", "-n", "-m"],
    };
    let mut command = Command::new("unshare");
    command.args(spaces).arg("/usr/bin/python3").arg(directory.join("benches/gate.py"));
    let status = command.arg(room).arg(rounds).status().unwrap();
    println!("{status}");
}
