//! What reading 100,000 actions of a history costs: replayed against a policy, and
//! learned from. Half of the actions differ from all others.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark is a program for people"
)]
//!
//! ```text
//! cargo bench -p clash --bench history
//! ```

#[expect(dead_code, reason = "shared with benchmarks that compare programs")]
mod support;

use std::fs;
use std::io::{BufWriter, Write};
use std::time::Instant;

use support::{BenchMachine, bench_rounds};

const ACTIONS: usize = 100_000;

const POLICY: &str = r#"
load("@clash//sandboxes.star", "project", "git_safe")
settings(default = ask(), default_sandbox = project)
when({
    "Bash": {
        ("make", "ls", "cat", "grep"): allow(),
        "git": {"push": deny(), glob("**"): allow(sandbox = git_safe)},
    },
    "Read": allow(sandbox = project),
})
"#;

fn main() {
    if bench_rounds(1).is_none() {
        return;
    }
    let place = BenchMachine::new(POLICY);
    let dir = place.home().join(".claude/projects/p");
    fs::create_dir_all(&dir).unwrap();
    let mut file = BufWriter::new(fs::File::create(dir.join("s.jsonl")).unwrap());
    let output = "x".repeat(300);
    for n in 0..ACTIONS {
        let command = match n % 5 {
            0 => "make test 2>&1 | tail -20".to_owned(),
            1 => "git status && git diff --stat".to_owned(),
            2 => format!("grep -rn word{n} src | head"),
            3 => format!("cd dir{n} && cat file{n}.rs > out{n}"),
            _ => format!("python3 script{n}.py"),
        };
        let cwd = place.project();
        let head = format!(r#""timestamp":"2026-11-10T10:00:00Z","cwd":"{}""#, cwd.display());
        writeln!(
            file,
            r#"{{"type":"assistant",{head},"message":{{"content":[{{"type":"tool_use","id":"t{n}","name":"Bash","input":{{"command":"{command}"}}}}]}}}}
{{"type":"user",{head},"message":{{"content":[{{"type":"tool_result","tool_use_id":"t{n}","is_error":false,"content":"{output}"}}]}}}}"#
        )
        .unwrap();
    }
    file.flush().unwrap();
    for args in [&["policy", "backtest"][..], &["init", "--from-trace", "latest"]] {
        let start = Instant::now();
        let status = place.command(env!("CARGO_BIN_EXE_clash"), args).status().unwrap();
        let took = start.elapsed();
        assert!(status.success(), "{args:?}");
        let each = took.as_secs_f64() * 1e6 / ACTIONS as f64;
        println!("{ACTIONS} actions, clash {}: {took:.2?}, {each:.1} µs each", args.join(" "));
    }
}
