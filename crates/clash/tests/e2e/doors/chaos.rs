//! Kills and stops of every process around doors, at random moments.
//!
//! Runs with `CLASH_NIGHTLY=1`, or with `CLASH_TEST_CHAOS`, the number of blows (default 250 for
//! each user). `CLASH_TEST_SEED` repeats a run. A run can still find a launcher that waits for
//! ever after the kill of one of its own processes.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime};

use super::{SYSTEM_PATH, exec_script};
use crate::support::{Machine, Ran, as_each_user, clash, eventually, skipped};

const CHAOS_POLICY: &str = r#"
load("@clash//sandboxes.star", "project")
settings(default = allow(), default_sandbox = project)
_own = {subpath("$PWD"): allow(FULL), "$TMPDIR": allow(FULL)}
tools = sandbox(name = "tools", default = deny(), fs = _own, lifetime = "action")
other = sandbox(name = "other", default = deny(), fs = _own)
when({"Bash": {"perl": allow(sandbox = other), "tac": allow(sandbox = tools)}})
"#;

/// Doors in new rooms and in kept ones, one after the other and at the same time. A command
/// writes a file at its very end, and the shell writes the status that it got.
const WORK: &str = r#"
step() { perl -e 'select undef, undef, undef, 0.02; open F, ">", "done.'$1'"; close F'; echo "$1 $?"; }
for i in 1 2 3 4; do step a$i; done
for i in 1 2 3; do echo $i | perl -pe 'select undef, undef, undef, 0.01' | tac >/dev/null; done
for i in 1 2 3; do step b$i & done; wait
for i in 1 2; do step c$i; done
"#;

/// A small generator of numbers. A run can be repeated by its seed.
struct ChaosNumbers(u64);

impl ChaosNumbers {
    fn new() -> Self {
        let given = std::env::var("CLASH_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Self(given.unwrap_or(now.as_nanos() as u64) | 1)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

fn children_of(pid: u32) -> Vec<u32> {
    let mut all = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let pids = list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok());
        // A child that is just being reaped has the number 0, and a signal to 0 would reach
        // the process group of the tests.
        all.extend(pids.filter(|pid| *pid > 1));
    }
    all
}

/// The process and everything below it.
fn tree_of(pid: u32) -> Vec<u32> {
    let (mut all, mut left) = (Vec::new(), vec![pid]);
    while let Some(pid) = left.pop() {
        all.push(pid);
        left.extend(children_of(pid));
    }
    all
}

fn signal(name: &str, pids: &[u32]) {
    let pids = pids.iter().map(u32::to_string);
    let words = [name.to_owned()].into_iter().chain(pids);
    let _ = std::process::Command::new("kill").args(words).stderr(Stdio::null()).status();
}

/// The processes of this machine: those with its home in their environment or arguments.
fn processes_of(m: &Machine) -> Vec<(u32, String)> {
    let home = m.home().display().to_string();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let text = |pid: u32, part: &str| {
        let bytes = fs::read(format!("/proc/{pid}/{part}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    };
    let own = |pid: &u32| {
        *pid != std::process::id()
            && (text(*pid, "environ").contains(&home) || text(*pid, "cmdline").contains(&home))
    };
    pids.filter(own).map(|pid| (pid, text(pid, "cmdline") + &text(pid, "stat"))).collect()
}

fn start(m: &Machine) -> Child {
    let mut command = m.command(clash());
    command.env("PATH", SYSTEM_PATH).args(["exec", "--", "bash", "-c", WORK]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Waits for the end of the launcher. A stopped process is none of the reasons to wait.
fn ended(child: &mut Child, m: &Machine, blows: &[String]) {
    let end = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "it hangs after {blows:?}: {:#?}", processes_of(m));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn no_kill_or_stop_leaves_an_orphan_or_a_wrong_status() {
    let all = std::env::var("CLASH_TEST_CHAOS").ok().and_then(|all| all.parse().ok());
    let is_wanted = all.is_some() || std::env::var_os("CLASH_NIGHTLY").is_some();
    if !is_wanted {
        return skipped("kills and stops of every process around doors, without CLASH_NIGHTLY=1");
    }
    let all: usize = all.unwrap_or(250);
    as_each_user(|m| {
        let m = m.policy(CHAOS_POLICY);
        // A first run prepares the doors.
        exec_script(&m, "perl -e ''; tac /dev/null").succeeds();
        let mut numbers = ChaosNumbers::new();
        let seed = numbers.0;
        let mut dealt = 0;
        while dealt < all {
            for entry in fs::read_dir(m.project()).unwrap().flatten() {
                let _ = fs::remove_file(entry.path());
            }
            let mut child = start(&m);
            let mut blows = vec![format!("seed {seed}")];
            for _ in 0..1 + numbers.below(3) {
                std::thread::sleep(Duration::from_millis(numbers.below(180) as u64));
                let tree = tree_of(child.id());
                let victim = tree[numbers.below(tree.len())];
                let name = fs::read_to_string(format!("/proc/{victim}/comm")).unwrap_or_default();
                let kill = numbers.below(2) == 0;
                signal(if kill { "-KILL" } else { "-STOP" }, &[victim]);
                blows.push(format!("{victim} {} {kill}", name.trim()));
                dealt += 1;
                if !kill {
                    std::thread::sleep(Duration::from_millis(numbers.below(60) as u64));
                    if numbers.below(4) == 0 {
                        signal("-KILL", &[victim]);
                    }
                    signal("-CONT", &[victim]);
                    // A stop of a command also stops its door, as without clash.
                    std::thread::sleep(Duration::from_millis(20));
                    signal("-CONT", &tree_of(child.id()));
                }
            }
            // What still stops is due to a blow, so the end needs a last push.
            for _ in 0..3 {
                std::thread::sleep(Duration::from_millis(30));
                signal("-CONT", &tree_of(child.id()));
            }
            ended(&mut child, &m, &blows);
            check(&m, child, &blows);
        }
    });
}

/// Checks that no process is left, and that every command with status 0 has done its work.
fn check(m: &Machine, child: Child, blows: &[String]) {
    let ran = Ran::from(child.wait_with_output().unwrap());
    let statuses: BTreeMap<&str, &str> =
        ran.stdout.lines().filter_map(|line| line.split_once(' ')).collect();
    for (step, status) in &statuses {
        let is_done = m.project().join(format!("done.{step}")).exists();
        assert!(["0", "126", "137"].contains(status), "{step} {status} {blows:?} {ran:?}");
        assert!(*status != "0" || is_done, "{step} did nothing: {blows:?} {ran:?}");
    }
    // A part of the shell that is killed takes its line with it.
    let is_whole = statuses.len() == 9 || blows.iter().any(|blow| blow.contains("bash"));
    assert!(ran.code != Some(0) || is_whole, "{blows:?} {ran:?}");
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let left = processes_of(m);
        if left.is_empty() {
            break;
        }
        assert!(Instant::now() < end, "left after {blows:?}: {left:#?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    eventually("the next script runs", || {
        let ran = exec_script(m, "perl -e 'print 1'; tac /dev/null");
        ran.stdout == "1"
    });
}
