//! Measures programs side by side: every round runs each of them once, so that other load
//! on the machine affects all of them alike.

use std::fs;
use std::io::{IsTerminal, stderr};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const NOBODY: u32 = 65_534;

/// The number of rounds: `CLASH_BENCH_ROUNDS`, or the default. `None` under `cargo test`,
/// which runs benchmarks too and must not measure.
pub(crate) fn bench_rounds(default: usize) -> Option<usize> {
    let testing = std::env::args().any(|arg| arg == "--test");
    let given = std::env::var("CLASH_BENCH_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    (!testing).then(|| given.unwrap_or(default))
}

/// A home with a policy and a project.
pub(crate) struct BenchMachine {
    pub(crate) dir: tempfile::TempDir,
    /// Further variables that commands see.
    pub(crate) variables: Vec<(&'static str, PathBuf)>,
    /// True if commands run as another user than root.
    plain_user: bool,
}

impl BenchMachine {
    /// Makes the directories and the policy, and waits until the cache accepts it.
    pub(crate) fn new(policy: &str) -> Self {
        let compiler = Path::new(env!("CARGO_BIN_EXE_clash")).with_file_name("clash-compile");
        assert!(
            compiler.exists(),
            "{} is missing: run `cargo build --release -p clash-compile` for the same target",
            compiler.display()
        );
        let dir = tempfile::tempdir().unwrap();
        let place = Self { dir, variables: Vec::new(), plain_user: false };
        for dir in ["home/.clash", "home/app", "tmp"] {
            fs::create_dir_all(place.dir.path().join(dir)).unwrap();
        }
        fs::write(place.home().join(".clash/policy.star"), policy).unwrap();
        // The cache does not accept a policy that is younger than this.
        std::thread::sleep(Duration::from_millis(200));
        place
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.home().join("app")
    }

    /// Runs all later commands as a plain user, whose rooms need a user namespace, even if
    /// root runs the benchmark. Returns a copy of the program that this user can reach.
    pub(crate) fn as_plain_user(&mut self, clash: &str) -> String {
        let bin = self.dir.path().join("bin");
        fs::create_dir(&bin).unwrap();
        for name in ["clash", "clash-compile", "clash-door"] {
            fs::copy(Path::new(clash).with_file_name(name), bin.join(name)).unwrap();
        }
        fs::set_permissions(self.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        self.plain_user = fs::metadata(&bin).unwrap().uid() == 0;
        if self.plain_user {
            for dir in ["home", "home/.clash", "home/app", "tmp"] {
                chown(self.dir.path().join(dir), Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        // The cache does not accept a compiler that is younger than this.
        std::thread::sleep(Duration::from_millis(200));
        bin.join("clash").display().to_string()
    }

    /// A program in the project with a small environment and no output.
    pub(crate) fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .env("HOME", self.home())
            .env("TMPDIR", self.dir.path().join("tmp"))
            .env("PATH", "/usr/bin:/bin")
            .env("LC_ALL", "C")
            .envs(self.variables.iter().map(|(name, path)| (name, path)))
            .current_dir(self.project())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            // For a file on standard error every launch starts a process that copies.
            .stderr(if stderr().is_terminal() { Stdio::inherit() } else { Stdio::null() });
        if self.plain_user {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }
}

/// A command to measure, and its times.
pub(crate) struct MeasuredCommand<'a> {
    name: &'static str,
    make: Box<dyn Fn() -> Command + 'a>,
    times: Vec<Duration>,
}

impl<'a> MeasuredCommand<'a> {
    pub(crate) fn new(name: &'static str, make: impl Fn() -> Command + 'a) -> Self {
        Self { name, make: Box::new(make), times: Vec::new() }
    }

    /// Runs the command once, which has to succeed, and returns its time.
    pub(crate) fn run(&self) -> Duration {
        let mut command = (self.make)();
        let start = Instant::now();
        let status = command.status().unwrap();
        let took = start.elapsed();
        assert!(status.success(), "{} failed: {status}", self.name);
        took
    }

    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        self.times[(self.times.len() - 1) * percent / 100]
    }
}

/// Runs the variants in turn and prints each against the first.
pub(crate) fn compare(
    title: &str,
    rounds: usize,
    mut variants: Vec<MeasuredCommand<'_>>,
    between: impl Fn(),
) {
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

/// The processor time of a command and its children in milliseconds, as the shell's `times`
/// reports it.
pub(crate) fn processor_time(place: &BenchMachine, words: &[&str]) -> u64 {
    let script = "\"$@\" >/dev/null || exit 1; times";
    let output = place.command("/bin/bash", &[&["-c", script, "bash"], words].concat());
    let output = { output }.stdout(Stdio::piped()).output().unwrap();
    assert!(output.status.success(), "{words:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    // 0m0.012s 0m0.034s, of the shell and then of its children
    let line = text.lines().nth(1).unwrap();
    let milliseconds = |time: &str| -> u64 {
        let (minutes, seconds) = time.trim_end_matches('s').split_once('m').unwrap();
        let (whole, part) = seconds.split_once('.').unwrap();
        let [minutes, whole, part] = [minutes, whole, part].map(|n| n.parse::<u64>().unwrap());
        (minutes * 60 + whole) * 1000 + part
    };
    line.split(' ').map(milliseconds).sum()
}

/// Removes the files of a directory: approvals that a launcher would have taken.
pub(crate) fn clear(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let _ = fs::remove_file(entry.unwrap().path());
    }
}
