//! The time of the shell analysis, compared with splitting the same text at blanks.

#![expect(clippy::print_stdout, reason = "a benchmark shows its numbers")]

use std::hint::black_box;
use std::time::{Duration, Instant};

const TYPICAL: &str = r#"cd app && FOO=1 npm test 2>&1 | tail -20; git add -A && git commit -m "$(cat <<'EOF'
Fix what's broken

It was `wrong`.
EOF
)""#;

/// The median time of several runs of `work`.
fn median(times: usize, mut work: impl FnMut()) -> Duration {
    let mut all: Vec<Duration> = (0..times)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .collect();
    all.sort();
    all.get(times / 2).copied().unwrap_or_default()
}

/// The allocator of the released program.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() {
    let line =
        "find . -name '*.py' -print0 | xargs -0 grep -n \"TODO $x\" > out.txt && echo $(date)\n";
    let long = line.repeat(clash_shell::MAX_SCRIPT_BYTES / line.len());
    for (name, script, times) in [("5 commands", TYPICAL, 2000), ("1 MiB", long.as_str(), 9)] {
        let analysis = median(times, || {
            black_box(clash_shell::find_commands(black_box(script)));
        });
        let baseline = median(times, || {
            black_box(black_box(script).split_whitespace().map(str::len).sum::<usize>());
        });
        let ratio = analysis.as_secs_f64() / baseline.as_secs_f64().max(1e-9);
        println!(
            "{name}: {:.1} µs, {ratio:.0} times a split at blanks",
            analysis.as_secs_f64() * 1e6
        );
    }
}
