//! Measures what work costs inside a sandbox: the ratio of its processor time to that of the
//! same work outside.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark is a program for people"
)]
//!
//! It measures processor time, which hardly depends on other load, and prints the median
//! of the ratios. The time to launch `true` in the same sandbox is subtracted: `startup`
//! measures it.
//!
//! ```text
//! cargo build --release -p clash-compile --target x86_64-unknown-linux-musl
//! cargo bench -p clash --bench work --target x86_64-unknown-linux-musl
//! ```

#[expect(dead_code, reason = "shared with benchmarks that measure other things")]
mod support;

use std::fs;
use std::path::PathBuf;

use support::{BenchMachine, bench_rounds, processor_time};

const CLASH: &str = env!("CARGO_BIN_EXE_clash");

/// `rust_full` without its network rules, which need the gate.
const POLICY: &str = r#"
box = sandbox(name = "box", fs = {
    "$PWD": allow("rwcdx"), "$TMPDIR": allow("rwcdx"),
    "$CARGO_HOME": allow("rx"), "$RUSTUP_HOME": allow("rx"),
})
reader = sandbox(name = "reader", fs = {"$PWD": allow("rx")})
when({"Bash": {"true": allow(sandbox = box), "false": allow(sandbox = reader)}})
"#;

/// Prints a table: the time outside, and the ratios in a room and in the direct tier.
fn main() {
    let Some(rounds) = bench_rounds(20) else { return };
    let mut place = BenchMachine::new(POLICY);
    println!("program: {CLASH}\n{rounds} interleaved rounds, processor time\n");
    println!("  {:<34} {:>10} {:>10} {:>10}", "", "native ms", "room", "direct");
    opens(&place, rounds);
    status(&place, rounds);
    build(&mut place, rounds);
    println!("\n  {:<34} {:>10} {:>10}", "wall time", "native ms", "room");
    writes(&place, rounds.div_ceil(2));
}

/// `tar x` of 20,000 files and `cp -r` of the same tree. With `CLASH_BENCH_NPM=DIR`, a
/// project with a lock file whose packages are in npm's cache, also `npm ci --offline`.
fn writes(place: &BenchMachine, rounds: usize) {
    let project = place.project();
    for dir in 0..400 {
        let dir = project.join(format!("from/{}/{dir}", dir % 20));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..50_usize {
            fs::write(dir.join(file.to_string()), "x".repeat(200 + 90 * file)).unwrap();
        }
    }
    let tar = place.command("/usr/bin/tar", &["cf", "from.tar", "from"]).status().unwrap();
    assert!(tar.success());
    let remove = |name: &str| drop(fs::remove_dir_all(project.join(name)));
    let extract = ["/usr/bin/tar", "xf", "from.tar"];
    compare_walls(place, "tar x, 20,000 files", rounds, &extract, || remove("from"));
    let copy = ["/usr/bin/cp", "-r", "from", "to"];
    compare_walls(place, "cp -r, 20,000 files", rounds, &copy, || remove("to"));
    let Some(npm) = std::env::var_os("CLASH_BENCH_NPM").map(PathBuf::from) else { return };
    for file in ["package.json", "package-lock.json"] {
        fs::copy(npm.join(file), project.join(file)).unwrap();
    }
    let cache = npm.join("cache").display().to_string();
    let words = ["/usr/bin/npm", "ci", "--offline", "--no-audit", "--cache", cache.as_str()];
    compare_walls(place, "npm ci --offline", rounds, &words, || remove("node_modules"));
}

/// Prints the median of the ratios of wall times, each of one round.
fn compare_walls(
    place: &BenchMachine,
    name: &str,
    rounds: usize,
    argv: &[&str],
    before: impl Fn(),
) {
    let inside = [&[CLASH, "sandbox", "exec", "box", "--"], argv].concat();
    let run = |words: &[&str]| {
        before();
        let (program, args) = words.split_first().unwrap();
        let start = std::time::Instant::now();
        assert!(place.command(program, args).status().unwrap().success(), "{words:?}");
        start.elapsed().as_secs_f64() * 1e3
    };
    run(argv);
    let mut ratios = Vec::new();
    let mut shortest = f64::INFINITY;
    for _ in 0..rounds {
        let native = run(argv);
        shortest = shortest.min(native);
        ratios.push(run(&inside) / native);
    }
    ratios.sort_by(f64::total_cmp);
    println!("  {name:<34} {shortest:>10.0} {:>10.2}", ratios[ratios.len() / 2]);
}

/// Opens one file 15,000 times, four directories down, and 15,000 files, three
/// directories down.
fn opens(place: &BenchMachine, rounds: usize) {
    let dir = place.project().join("src/a/b/c");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("file"), "x").unwrap();
    // `:` is a builtin, so there is no process per file.
    let script = "i=0; while [ $i -lt 15000 ]; do : < src/a/b/c/file; i=$((i+1)); done";
    compare(place, "15,000 times one file (sh)", rounds, &["/bin/sh", "-c", script], || {});
    if PathBuf::from("/usr/bin/python3").exists() {
        for dir in 0..150 {
            let dir = place.project().join(format!("src/many/{dir}"));
            fs::create_dir_all(&dir).unwrap();
            (0..100).for_each(|file| fs::write(dir.join(file.to_string()), "x").unwrap());
        }
        let script = "import os\nfor d in range(150):\n for f in range(100): os.close(os.open(f'src/many/{d}/{f}', 0))";
        compare(
            place,
            "15,000 files opened (python)",
            rounds,
            &["/usr/bin/python3", "-c", script],
            || {},
        );
    }
    fs::remove_dir_all(place.project().join("src")).unwrap();
}

/// `git status` over 6,000 files, forty times.
fn status(place: &BenchMachine, rounds: usize) {
    if !PathBuf::from("/usr/bin/git").exists() {
        return println!("git is not installed, so `git status` is not measured");
    }
    for dir in 0..60 {
        let dir = place.project().join(format!("tree/{dir}"));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..100 {
            fs::write(dir.join(file.to_string()), "text\n").unwrap();
        }
    }
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let mut command = place.command("/usr/bin/git", &[&identity[..], args].concat());
        assert!(command.status().unwrap().success());
    };
    git(&["init", "-q", "."]);
    git(&["add", "-A"]);
    git(&["commit", "-qm", "all"]);
    let script = "i=0; while [ $i -lt 40 ]; do /usr/bin/git status --short; i=$((i+1)); done";
    let rounds = rounds.div_ceil(2);
    compare(place, "git status, 6,000 files", rounds, &["/bin/sh", "-c", script], || {});
}

/// `cargo build` of a crate without dependencies, from nothing.
fn build(place: &mut BenchMachine, rounds: usize) {
    let Some(home) = std::env::var_os("HOME").map(PathBuf::from) else { return };
    let [cargo_home, rustup_home] = ["CARGO_HOME", "RUSTUP_HOME"].map(|name| {
        let fallback = home.join(format!(".{}", name.split('_').next().unwrap().to_lowercase()));
        std::env::var_os(name).map_or(fallback, Into::into)
    });
    let cargo = cargo_home.join("bin/cargo");
    if !cargo.exists() {
        return println!("cargo is not installed, so a build is not measured");
    }
    let project = place.project();
    fs::create_dir_all(project.join("src")).unwrap();
    let manifest =
        "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    fs::write(project.join("Cargo.toml"), manifest).unwrap();
    let body: String =
        (0..3000).map(|n| format!("pub fn f{n}(x: u64) -> u64 {{ x * {n} }}\n")).collect();
    fs::write(project.join("src/lib.rs"), body).unwrap();
    let target = project.join("target");
    place.variables = vec![("CARGO_HOME", cargo_home), ("RUSTUP_HOME", rustup_home)];
    let argv = [cargo.to_str().unwrap(), "build", "-q", "--offline"];
    compare(place, "cargo build", rounds.div_ceil(2), &argv, || {
        let _ = fs::remove_dir_all(&target);
    });
}

/// Runs a command outside, in a room and, unless it writes, in the direct tier.
fn compare(place: &BenchMachine, name: &str, rounds: usize, argv: &[&str], before: impl Fn()) {
    let inside = |sandbox| [&[CLASH, "sandbox", "exec", sandbox, "--"], argv].concat();
    let mut variants = vec![(argv.to_vec(), Vec::new()), (inside("box"), Vec::new())];
    if !name.starts_with("cargo") {
        variants.push((inside("reader"), Vec::new()));
    }
    for round in 0..=rounds {
        for (words, times) in &mut variants {
            before();
            let took = processor_time(place, words);
            // The first round warms the caches.
            if round > 0 {
                times.push(took as f64 - launching(place, words));
            }
        }
    }
    // Each ratio is of one round: the machine may be slower for several rounds.
    let native = variants[0].1.clone();
    let ratio = |at: usize| {
        let Some((_, times)) = variants.get(at) else { return "-".into() };
        let mut ratios: Vec<f64> =
            times.iter().zip(&native).map(|(took, native)| took / native).collect();
        ratios.sort_by(f64::total_cmp);
        format!("{:.2}", ratios[ratios.len() / 2])
    };
    let shortest = native.iter().copied().fold(f64::INFINITY, f64::min);
    println!("  {name:<34} {shortest:>10.0} {:>10} {:>10}", ratio(1), ratio(2));
}

/// The processor time in milliseconds to launch `true` with the words up to `--`; 0 without a
/// `--`.
fn launching(place: &BenchMachine, words: &[&str]) -> f64 {
    const TIMES: u32 = 10;
    let Some(command) = words.iter().position(|word| *word == "--") else { return 0.0 };
    let repeated = |words: &[&str]| {
        let script = format!("i=0; while [ $i -lt {TIMES} ]; do \"$@\"; i=$((i+1)); done");
        let shell = ["/bin/sh", "-c", &script, "sh"];
        processor_time(place, &[&shell[..], words, &["/bin/true"]].concat()) as f64
    };
    let launch = words.get(..=command).unwrap();
    (repeated(launch) - repeated(&[])) / f64::from(TIMES)
}
