//! Measures commands behind doors, against plain processes and `clash exec`.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark is a program for people"
)]
//!
//! Every round runs each script once. The time of one command is the difference between a
//! script with many of them and one with fewer.
//!
//! ```text
//! cargo build --release -p clash-compile -p clash-door --target x86_64-unknown-linux-musl
//! cargo bench -p clash --bench doors --target x86_64-unknown-linux-musl
//! ```

#[expect(dead_code, reason = "shared with benchmarks that measure other things")]
mod support;

use std::time::{Duration, Instant};

use support::{BenchMachine, bench_rounds};

const CLASH: &str = env!("CARGO_BIN_EXE_clash");
/// `true` has a sandbox of its own. `uname` has no rule, and so no door.
const POLICY: &str = r#"
load("@clash//sandboxes.star", "project")
settings(default = allow(), default_sandbox = project)
tools = sandbox(name = "tools", default = deny(), fs = {subpath("$PWD"): allow(FULL), "$TMPDIR": allow(FULL)})
when({"Bash": {"true": allow(sandbox = tools)}})
"#;
/// The commands of a script with many.
const MANY: u32 = 40;

fn main() {
    let Some(rounds) = bench_rounds(100) else { return };
    let mut place = BenchMachine::new(POLICY);
    let clash = place.as_plain_user(CLASH);
    let many = |program: &str, count: u32| format!("{program} >/dev/null;").repeat(count as usize);
    // `cat` makes the shell's sandbox the default one. `: ` keeps the shell from executing the
    // last command in its own place.
    let script = |commands: String| format!("cat </dev/null | cat; {commands} :");
    let piped = |program: &str, count: u32| {
        script(many(program, count).replace(">/dev/null", "</dev/null"))
    };
    let shell = |text: &str| place.command("/bin/sh", &["-c", text]);
    let room = |text: &str| place.command(&clash, &["exec", "--", "/bin/sh", "-c", text]);
    let same = |text: &str| {
        place.command(&clash, &["sandbox", "exec", "project", "--", "/bin/sh", "-c", text])
    };
    let texts = [0, 1, 1 + MANY].map(|count| piped("/bin/true", count));
    let others = [0, MANY].map(|count| piped("/bin/uname", count));
    let commands: Vec<Box<dyn Fn() -> std::process::Command>> = vec![
        Box::new(|| shell(&texts[1])),
        Box::new(|| shell(&texts[2])),
        Box::new(|| place.command(&clash, &["exec", "--", "/bin/true"])),
        Box::new(|| room(&texts[0])),
        Box::new(|| room(&texts[1])),
        Box::new(|| room(&texts[2])),
        Box::new(|| room(&others[0])),
        Box::new(|| room(&others[1])),
        Box::new(|| same(&others[0])),
        Box::new(|| same(&others[1])),
    ];
    let mut times = vec![Vec::new(); commands.len()];
    for round in 0..rounds + 5 {
        for (command, times) in commands.iter().zip(&mut times) {
            let mut command = command();
            let start = Instant::now();
            let status = command.stdout(std::process::Stdio::null()).status().unwrap();
            assert!(status.success());
            if round >= 5 {
                times.push(start.elapsed());
            }
        }
    }
    times.iter_mut().for_each(|times| times.sort());
    for (name, percent) in [("min", 0), ("p10", 10), ("median", 50)] {
        let at = |index: usize| times[index][(rounds - 1) * percent / 100];
        let between =
            |few: usize, many: usize, count: u32| at(many).saturating_sub(at(few)) / count;
        let bare = between(0, 1, MANY);
        let ratio = |time: Duration, to: Duration| time.as_secs_f64() / to.as_secs_f64();
        println!("{name:>6}: bare /bin/true {bare:?}, clash exec {:.2}", ratio(at(2), bare));
        println!("        first door {:.2} × clash exec", ratio(between(3, 4, 1), at(2)));
        println!("        further door {:.2} × bare", ratio(between(4, 5, MANY), bare));
        let (with, without) = (between(6, 7, MANY), between(8, 9, MANY));
        println!(
            "        a process without a door {:.2} × in a room without doors",
            ratio(with, without)
        );
    }
}
