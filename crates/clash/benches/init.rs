//! What `clash init --quick` costs in a tree of 100,000 files, against `find` in the
//! same tree. Processor time, because it hardly depends on what else the machine does.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark is a program for people"
)]
//!
//! ```text
//! cargo build --release -p clash-compile --target x86_64-unknown-linux-musl
//! cargo bench -p clash --bench init --target x86_64-unknown-linux-musl
//! ```

#[expect(dead_code, reason = "shared with benchmarks that compare programs")]
mod support;

use std::fs;

use support::{BenchMachine, bench_rounds, processor_time};

const ROUNDS: usize = 5;

fn main() {
    if bench_rounds(1).is_none() {
        return;
    }
    let place = BenchMachine::new("");
    fs::remove_file(place.home().join(".clash/policy.star")).unwrap();
    fs::write(place.project().join("Cargo.toml"), "").unwrap();
    for dir in 0..100 {
        let dir = place.project().join(format!("data/{dir}"));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..1000 {
            fs::write(dir.join(format!("file-{file}.txt")), "").unwrap();
        }
    }
    let clash = env!("CARGO_BIN_EXE_clash");
    let init = [clash, "init", "--quick", "--dry-run", "--agent", "none"];
    let least = |words: &[&str]| (0..ROUNDS).map(|_| processor_time(&place, words)).min().unwrap();
    let (find, init) = (least(&["/usr/bin/find", "."]), least(&init));
    println!(
        "clash init --quick, 100,000 files: {:.3} s of processor time; find: {:.3} s; ratio {:.2}",
        init as f64 / 1e3,
        find as f64 / 1e3,
        init as f64 / find as f64
    );
}
