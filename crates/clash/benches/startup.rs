//! What clash costs, as ratios measured side by side.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark is a program for people"
)]
//!
//! Every round runs each variant once, in turn, so that whatever else the
//! machine does hits all of them alike; a ratio compares the same percentile of
//! two variants of one run. Absolute times are printed for orientation only.
//!
//! ```text
//! cargo bench -p clash --target x86_64-unknown-linux-musl
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const CLASH: &str = env!("CARGO_BIN_EXE_clash");
const TRUE: &str = "/bin/true";
const POLICY: &str = r#"
load("@clash//rust.star", "rust_full")
load("@clash//sandboxes.star", "git_full")
when({"Bash": {("cargo", "rustc", "rustup"): allow(sandbox = rust_full), "git": allow(sandbox = git_full), "true": allow()}})
"#;

fn main() {
    // `cargo test` builds and calls benches too; it is not the place to measure.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let rounds =
        std::env::var("CLASH_BENCH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    let place = Place::new();
    println!("program: {CLASH}\n{rounds} interleaved rounds\n");
    hook(&place, rounds);
    launch(&place, rounds);
}

/// A home with a policy and a session that has begun.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap() };
        for dir in ["home/.clash", "home/app", "tmp"] {
            fs::create_dir_all(place.dir.path().join(dir)).unwrap();
        }
        fs::write(place.home().join(".clash/policy.star"), POLICY).unwrap();
        // A policy just written is not cached yet.
        std::thread::sleep(Duration::from_millis(200));
        place
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    fn project(&self) -> PathBuf {
        self.home().join("app")
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .env("HOME", self.home())
            .env("TMPDIR", self.dir.path().join("tmp"))
            .env("PATH", "/usr/bin:/bin")
            .current_dir(self.project())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit());
        command
    }
}

/// One thing to measure: how to make a fresh command for it.
struct Variant<'a> {
    name: &'static str,
    make: Box<dyn Fn() -> Command + 'a>,
    times: Vec<Duration>,
}

impl<'a> Variant<'a> {
    fn new(name: &'static str, make: impl Fn() -> Command + 'a) -> Self {
        Self { name, make: Box::new(make), times: Vec::new() }
    }

    fn run(&self) -> Duration {
        let mut command = (self.make)();
        let start = Instant::now();
        let status = command.status().unwrap();
        let took = start.elapsed();
        assert!(status.success(), "{} failed: {status}", self.name);
        took
    }

    fn percentile(&self, percent: usize) -> Duration {
        self.times[(self.times.len() - 1) * percent / 100]
    }
}

/// Runs the variants in turn and prints each against the first.
fn compare(title: &str, rounds: usize, mut variants: Vec<Variant<'_>>, between: impl Fn()) {
    const WARM_UP: usize = 10;
    for round in 0..rounds + WARM_UP {
        for variant in &mut variants {
            let took = variant.run();
            if round >= WARM_UP {
                variant.times.push(took);
            }
            between();
        }
    }
    for variant in &mut variants {
        variant.times.sort();
    }
    println!("{title}");
    println!(
        "  {:<44} {:>8} {:>8} {:>8}   ratio: {:>5} {:>5} {:>6}",
        "", "min µs", "p10", "median", "min", "p10", "median"
    );
    let (base, rest) = variants.split_first().unwrap();
    for variant in std::iter::once(base).chain(rest) {
        let us = |d: Duration| d.as_secs_f64() * 1e6;
        let ratio = |p| us(variant.percentile(p)) / us(base.percentile(p));
        println!(
            "  {:<44} {:>8.0} {:>8.0} {:>8.0}          {:>5.2} {:>5.2} {:>6.2}",
            variant.name,
            us(variant.percentile(0)),
            us(variant.percentile(10)),
            us(variant.percentile(50)),
            ratio(0),
            ratio(10),
            ratio(50)
        );
    }
    println!();
}

fn hook(place: &Place, rounds: usize) {
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
        Variant::new("/bin/true (dynamic C)", || from_file(place.command(TRUE, &[]))),
        Variant::new("clash hook claude, warm cache, traced", || {
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
        "not what was to be measured"
    );
}

/// Approvals the launcher would have taken.
fn clear(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let _ = fs::remove_file(entry.unwrap().path());
    }
}

fn launch(place: &Place, rounds: usize) {
    let project = place.project().display().to_string();
    let mut variants = vec![
        Variant::new("/bin/true", || place.command(TRUE, &[])),
        Variant::new("clash sandbox exec readonly, direct tier", || {
            place.command(CLASH, &["sandbox", "exec", "readonly", "--", TRUE])
        }),
        Variant::new("clash sandbox exec rust_full, room", || {
            place.command(CLASH, &["sandbox", "exec", "rust_full", "--", TRUE])
        }),
        Variant::new("clash sandbox exec project, room, own network", || {
            place.command(CLASH, &["sandbox", "exec", "project", "--", TRUE])
        }),
        Variant::new("clash exec (decided by the policy)", || {
            place.command(CLASH, &["exec", "--", TRUE])
        }),
    ];
    if Command::new("bwrap").arg("--version").output().is_ok_and(|out| out.status.success()) {
        variants.push(Variant::new("bwrap --unshare-all, ro root, rw project", || {
            let args = [
                "--unshare-all",
                "--die-with-parent",
                "--ro-bind",
                "/",
                "/",
                "--dev",
                "/dev",
                "--proc",
                "/proc",
                "--tmpfs",
                "/tmp",
                "--bind",
                &project,
                &project,
                TRUE,
            ];
            place.command("/usr/bin/bwrap", &args)
        }));
    } else {
        println!("bwrap is not installed, so it is not compared");
    }
    compare("a sandboxed /bin/true", rounds, variants, || {});
}
