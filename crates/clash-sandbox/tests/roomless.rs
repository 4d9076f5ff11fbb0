//! What holds where no namespaces can be made: Landlock, seccomp and the monitor.
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
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use support::{World, directly, text};

/// The world, with a temporary directory of its own beside the project.
fn with_tmp(world: World) -> World {
    let tmp = world.path("tmp");
    fs::create_dir(&tmp).unwrap();
    if let Some(id) = world.who {
        std::os::unix::fs::chown(&tmp, Some(id), Some(id)).unwrap();
    }
    let tmp = tmp.display().to_string();
    world.option(&["--tmp", &tmp])
}

fn in_tmp(world: &World) -> Vec<PathBuf> {
    fs::read_dir(world.path("tmp")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn of_the_hosts_processes_each_sees_its_own_entries() {
    directly(|world| {
        let shown = |script: &str| {
            let output = world.sh(script);
            assert!(output.status.success(), "{script}: {}", text(&output));
        };
        shown("cat /proc/self/status /proc/cpuinfo /proc/sys/kernel/osrelease > /dev/null");
        shown("read -r line < /proc/$$/stat; ls /proc/self/fd /proc/self/task > /dev/null");
        shown("cat /proc/$$/cmdline > /dev/null"); // of another, but inside
        shown("cat /proc/mounts > /dev/null; ls /proc/self > /dev/null");
        let outside = std::process::id();
        for hidden in [
            "ls /proc".to_owned(),
            format!("cat /proc/{outside}/cmdline"),
            format!("cd /proc/{outside} && cat cmdline"),
            format!("cd /proc/self && cat ../{outside}/cmdline"),
            "cat /proc/$$/environ".to_owned(),
            "cat /proc/1/stat".to_owned(),
            "cat /proc/net/unix".to_owned(),
            "cat /proc/self/net/unix".to_owned(),
            "head -c1 /proc/kallsyms".to_owned(),
        ] {
            let output = world.sh(&hidden);
            assert!(!output.status.success(), "{hidden} as {:?}", world.who);
            assert!(output.stdout.is_empty(), "{hidden}: {}", text(&output));
        }
    });
}

#[test]
fn a_temporary_directory_of_its_own_is_gone_afterwards() {
    directly(|world| {
        let world = with_tmp(world);
        let kept = world.path("tmp/somebody's");
        fs::write(&kept, "x").unwrap();
        let script = format!(
            "set -e; echo x > $TMPDIR/f; mkdir -p $TMPDIR/a/b; chmod 0 $TMPDIR/a/b $TMPDIR/a
             mktemp > /dev/null; echo $TMPDIR; ! echo y > {0}/other; ! cat \"{0}/somebody's\"; exit 7",
            world.path("tmp").display()
        );
        let output = world.sh(&script);
        assert_eq!(output.status.code(), Some(7), "{}", text(&output));
        let named = text(&output);
        assert!(named.starts_with(&world.path("tmp").display().to_string()), "{named}");
        assert_eq!(in_tmp(&world), [kept]);
    });
}

#[test]
fn a_temporary_directory_goes_also_when_the_launcher_is_killed() {
    directly(|world| {
        let world = with_tmp(world);
        let prefix = world.prefix();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).args([
            "/bin/sh",
            "-c",
            "echo x > $TMPDIR/f; echo up; read -r line",
        ]);
        let mut command = world.prepare(command);
        // The shell itself waits: whatever it started would outlive the launcher.
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!((line.as_str(), in_tmp(&world).len()), ("up\n", 1));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut patience = 600;
        while !in_tmp(&world).is_empty() {
            patience -= 1;
            assert!(patience > 0, "still there");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
}

#[test]
fn nobody_is_told_what_happens_where_nothing_is_granted() {
    if support::python_is_missing() {
        return;
    }
    directly(|world| {
        let told = |path: &Path| {
            let watch = format!(
                "call(libc.inotify_add_watch, libc.inotify_init(), b'{}', 0xfff)",
                path.display()
            );
            support::python(&world, &watch, true)
        };
        assert_eq!(told(&world.project()), 1);
        assert_eq!(told(&world.path("home")), support::EACCES);
    });
}

/// A denied path that was not there when the command started: here every open is
/// looked at, while a room without rules about names leaves reading to its mounts
/// and so shows what somebody outside makes meanwhile.
#[test]
fn a_denied_path_that_others_make_later_cannot_be_read() {
    let read = |world: &World| {
        let late = world.project().join("late");
        let script = "echo up; read -r go; cat late";
        let prefix = world.prefix();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).args(["/bin/sh", "-c", script]);
        let mut command = world.prepare(command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        fs::write(&late, "LATE\n").unwrap();
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        line.clear();
        out.read_line(&mut line).unwrap();
        child.wait().unwrap();
        fs::remove_file(&late).unwrap();
        line
    };
    directly(|world| {
        let late = world.project().join("late").display().to_string();
        let world = world.option(&["--deny-literal", "rwcd", &late]);
        assert_eq!(read(&world), "", "as {:?}", world.who);
    });
    support::everyone(|world| {
        let project = world.project().display().to_string();
        let named = World::beside(&world).option(&["--deny-glob", "rwcd", &project, "**/late"]);
        assert_eq!(read(&named), "", "a rule about names holds in a room too");
    });
}
