//! The processes of a room on the real kernel, as root and as a plain user: their end, their
//! signals and their limits.
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::*;

#[test]
fn other_processes_cannot_be_seen() {
    project(|world| {
        let mut sleeper = Command::new("/bin/sleep");
        sleeper.arg("60").env("TOKEN", "SECRET");
        let mut sleeper = world.prepare(sleeper).spawn().unwrap();
        let pid = sleeper.id();
        fails(&world, &format!("kill -0 {pid}"));
        fails(&world, &format!("ls /proc/{pid}"));
        fails(&world, "cat /proc/1/environ");
        fails(&world, "kill -KILL 1");
        fails(&world, "echo 1 > /proc/sys/kernel/core_uses_pid");
        fails(&world, "test -w /proc/sys/kernel/core_pattern");
        fails(&world, "cat /proc/kallsyms");
        assert_eq!(works(&world, "echo $$"), "2");
        assert!(sleeper.try_wait().unwrap().is_none());
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    });
}

#[test]
fn nothing_outlives_a_launcher_that_is_killed() {
    project(|world| {
        let prefix = world.prefix();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).args([
            "sh",
            "-c",
            "while :; do echo x >> beat; sleep 0.05; done",
        ]);
        let mut launcher = world.prepare(command).spawn().unwrap();
        let beat = world.path("home/app/beat");
        let start = Instant::now();
        while !beat.exists() && start.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(20));
        }
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        std::thread::sleep(Duration::from_millis(200));
        let before = fs::metadata(&beat).unwrap().len();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(fs::metadata(&beat).unwrap().len(), before);
    });
}

#[test]
fn signals_to_the_launcher_reach_the_command() {
    project(|world| {
        let prefix = world.prefix();
        let mut command = Command::new(&prefix[0]);
        command
            .args(&prefix[1..])
            .args([
                "sh",
                "-c",
                "trap 'echo got; exit 9' TERM; echo ready; while :; do sleep 0.05; done",
            ])
            .stdout(Stdio::piped());
        let mut launcher = world.prepare(command).spawn().unwrap();
        let mut output = BufReader::new(launcher.stdout.take().unwrap());
        let mut line = String::new();
        BufRead::read_line(&mut output, &mut line).unwrap();
        assert_eq!(line, "ready\n");
        let pid = launcher.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut output, &mut rest).unwrap();
        assert_eq!((rest.as_str(), launcher.wait().unwrap().code()), ("got\n", Some(9)));
    });
}

#[test]
fn the_end_of_the_command_is_the_end_of_the_launcher() {
    project(|world| {
        for (script, code, signal) in [
            ("exit 0", Some(0), None),
            ("exit 42", Some(42), None),
            ("kill -TERM $$", None, Some(15)),
            ("kill -SEGV $$", None, Some(11)),
            ("kill -KILL $$", None, Some(9)),
        ] {
            let status = world.sh(script).status;
            assert_eq!((status.code(), status.signal()), (code, signal), "{script}");
        }
        assert_eq!(world.run(&["no-such-program"]).status.code(), Some(127));
        write(&world, "home/app/data", "");
        assert_eq!(world.run(&["./data"]).status.code(), Some(126));
    });
}

#[test]
fn limits_on_time_file_size_and_memory_hold() {
    if python_is_missing() {
        return;
    }
    project(|world| {
        let world = world.option(&["--limit", "wall", "1"]);
        let start = Instant::now();
        let output = world.sh("sleep 30");
        assert_eq!(output.status.code(), Some(124), "{}", text(&output));
        assert!(start.elapsed() < Duration::from_secs(10));
        let world =
            world.option(&["--limit", "file_size", "1000", "--limit", "memory", "400000000"]);
        fails(&world, "head -c 2000 /dev/zero > big");
        works(&world, "head -c 900 /dev/zero > small");
        let output = world.run(&[PYTHON, "-c", "import mmap; mmap.mmap(-1, 1 << 30)"]);
        assert!(!output.status.success());
    });
}

#[test]
fn the_process_limit_holds_for_every_user() {
    project(|world| {
        let world = world.option(&["--limit", "processes", "20"]);
        fails(&world, "for i in $(seq 40); do sleep 1 & done");
        works(&world, "for i in $(seq 10); do sleep 0.1 & done; wait");
    });
}
