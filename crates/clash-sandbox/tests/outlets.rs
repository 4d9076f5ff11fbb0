//! Ways out of a sandbox that no rule names: core files, the standard streams and the
//! temporary directory. Each case runs as root and as a plain user.
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
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use support::*;

/// Runs a command line in the sandbox, with core files switched on outside.
fn with_core_files(world: &World, script: &str) -> std::process::Output {
    let prefix = world.prefix().join(" ");
    world.bare(&["/bin/sh", "-c", &format!("ulimit -c unlimited; exec {prefix} {script}")])
}

/// The names in a directory, in any order.
fn entries(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Makes `.git/hooks` in the project.
fn make_hooks_directory(world: &World) -> std::path::PathBuf {
    let hooks = world.project().join(".git/hooks");
    fs::create_dir_all(&hooks).unwrap();
    if world.who.is_some() {
        chown(world.project().join(".git"), world.who, world.who).unwrap();
        chown(&hooks, world.who, world.who).unwrap();
    }
    hooks
}

/// True if the kernel writes core files into the working directory. Prints otherwise that the
/// case is skipped.
fn core_files_land_in_the_working_directory() -> bool {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let plain = !pattern.starts_with(['|', '/', '@']);
    if !plain {
        eprintln!("SKIPPED (core_pattern is {pattern}): core files do not land in the project");
    }
    plain
}

#[test]
fn a_crash_leaves_no_core_file_in_any_tier() {
    if !core_files_land_in_the_working_directory() {
        return;
    }
    let crash = "/bin/sh -c 'cd .git/hooks; kill -SEGV $$'";
    in_both_tiers(|world| {
        let hooks = make_hooks_directory(&world);
        let output = with_core_files(&world, crash);
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{}", text(&output));
        assert_eq!(entries(&hooks), [""; 0], "as {:?}", world.who);
        // Without a sandbox the core file appears.
        world.bare(&["/bin/sh", "-c", &format!("ulimit -c unlimited; {crash}")]);
        assert_eq!(entries(&hooks).len(), 1);
    });
    // Where nothing may be written, the launcher becomes the command.
    everyone(|world| {
        let hooks = make_hooks_directory(&world);
        let (room, project) = (world.path("room"), world.project());
        let line = format!(
            "ulimit -c unlimited; exec {} --r {} -- {crash}",
            room.display(),
            project.display()
        );
        let output = world.bare(&["/bin/sh", "-c", &line]);
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{}", text(&output));
        assert_eq!(entries(&hooks), [""; 0], "as {:?}", world.who);
    });
}

#[test]
fn the_limit_of_core_files_cannot_be_raised() {
    in_both_tiers(|world| {
        let raise = "__import__('resource').setrlimit(4, (1 << 20, 1 << 20))";
        let script = format!("{PRELUDE}\ntry: {raise}; print('RAISED')\nexcept Exception: pass");
        let output = world.run(&[PYTHON, "-c", &script]);
        assert_eq!(text(&output), "", "as {:?}", world.who);
        let soft = "__import__('resource').setrlimit(4, (1 << 20, 1))";
        let script = format!("{PRELUDE}\ntry: {soft}; print('RAISED')\nexcept Exception: pass");
        assert_eq!(text(&world.run(&[PYTHON, "-c", &script])), "", "as {:?}", world.who);
    });
}

/// A file of the host that the user may write and no rule names.
fn host_file(world: &World, name: &str, text: &str) -> std::path::PathBuf {
    let path = world.path(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    if world.who.is_some() {
        chown(&path, world.who, world.who).unwrap();
    }
    path
}

#[test]
fn redirections_to_files_are_as_without_a_sandbox() {
    in_each_tier(|world, prefix| {
        for script in [
            "IN /bin/sh -c 'echo a; echo b >&2; echo c' > LOG 2>&1",
            "IN /bin/sh -c 'echo a; echo b >&2' >> LOG 2>> LOG",
            "IN /bin/sh -c 'echo a; echo b >&2' >> LOG 2>&1",
            "IN /bin/sh -c 'echo a >&2; echo b' 2> LOG > /dev/null",
            "{ IN /bin/echo a; echo b; IN /bin/echo c; } > LOG",
            "IN /bin/sh -c 'for i in 1 2 3; do echo $i; echo e$i >&2; done' > LOG 2>&1; echo end >> LOG",
            "IN /usr/bin/head -c 3000000 /dev/zero > LOG; wc -c < LOG >> LOG",
            "IN /bin/sh -c 'exit 7' > LOG; echo $? >> LOG",
            "IN /bin/sh -c 'kill -TERM $$' > LOG; echo $? >> LOG",
            "IN /bin/sh -c 'read a; echo $a' < LOG 1<> LOG",
            "{ IN /bin/sh -c 'read a'; cat; } 0<> LOG > LOG.out; cat LOG.out >> LOG",
        ] {
            let mut results = Vec::new();
            for prefix in ["", prefix] {
                let log = host_file(world, "log", "kept\nsecond\n");
                host_file(world, "log.out", "");
                let script = script.replace("IN", prefix);
                let script = script.replace("LOG", log.to_str().unwrap());
                world.bare(&["/bin/sh", "-c", &script]);
                results.push(fs::read(&log).unwrap());
            }
            let [native, inside] = results.as_slice() else { panic!("two runs") };
            assert!(native == inside, "{prefix} {script}: {}", String::from_utf8_lossy(inside));
        }
        // Without a sandbox this truncates the file.
        let log = host_file(world, "log", "kept\n");
        let script = "/bin/sh -c 'echo a > /dev/stdout; echo b > /dev/stderr'";
        let script = format!("{prefix} {script} >> {} 2>&1", log.display());
        world.bare(&["/bin/sh", "-c", &script]);
        assert_eq!(fs::read_to_string(&log).unwrap(), "kept\na\nb\n", "{prefix}");
    });
}

/// Attempts to do more with a stream than append to it.
const MISUSE: &str = r"
import os, sys, fcntl, mmap
fd = int(sys.argv[1])
def attempt(f):
    try: f()
    except Exception: pass
for again in (fd, None):
    if again is None:
        for flags in (os.O_RDWR, os.O_RDONLY, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY):
            try: again = os.open(f'/proc/self/fd/{fd}', flags | os.O_NONBLOCK)
            except OSError: continue
            break
        else: break
    attempt(lambda: fcntl.fcntl(again, fcntl.F_SETFL, os.O_NONBLOCK))
    attempt(lambda: os.lseek(again, 0, 0))
    attempt(lambda: print('READ', os.read(again, 99)) if fd != 0 else None)
    attempt(lambda: print('READ', os.pread(again, 99, 0)) if fd != 0 else None)
    attempt(lambda: os.pwrite(again, b'OVER', 0))
    attempt(lambda: os.write(again, b'') or os.ftruncate(again, 0))
    attempt(lambda: os.posix_fallocate(again, 0, 1 << 20))
    attempt(lambda: os.fchmod(again, 0o777))
    attempt(lambda: os.utime(again, (0, 0)))
    attempt(lambda: mmap.mmap(again, 4, prot=mmap.PROT_READ | mmap.PROT_WRITE).write(b'OVER'))
";

#[test]
fn a_file_on_a_stream_is_only_added_to() {
    use std::os::unix::fs::MetadataExt;
    in_each_tier(|world, prefix| {
        for (fd, redirection) in [(1, "1<> LOG"), (2, "2<> LOG"), (2, "2>> LOG"), (0, "0<> LOG")] {
            let log = host_file(world, "log", "kept\n");
            let before = fs::metadata(&log).unwrap();
            let misuse = host_file(world, "home/app/misuse.py", MISUSE);
            let script = format!(
                "exec 3<> LOG; cat <&3 > /dev/null; {prefix} {PYTHON} {} {fd} {}",
                misuse.display(),
                // At the end of the file, as after other commands.
                if redirection.contains("<>") {
                    format!("{fd}<&3 3<&-")
                } else {
                    redirection.into()
                },
            );
            let script = script.replace("LOG", log.to_str().unwrap());
            let output = world.bare(&["/bin/sh", "-c", &script]);
            let said = text(&output);
            assert!(!said.contains("READ"), "{prefix} {script}: {said}");
            let left = fs::read_to_string(&log).unwrap();
            assert!(left.starts_with("kept\n"), "{prefix} {script}: {left:?} {said}");
            assert!(!left.contains("READ"), "{prefix} {script}: {left:?}");
            let after = fs::metadata(&log).unwrap();
            assert_eq!(after.mode(), before.mode(), "{prefix} {script}");
            assert!(after.len() < 1000, "{prefix} {script}");
            assert_ne!(after.mtime(), 0, "{prefix} {script}");
            // Without a sandbox the file changes.
            let native = script.replace(prefix, "");
            world.bare(&["/bin/sh", "-c", &native]);
            assert_ne!(fs::metadata(&log).unwrap().mode() & 0o777, before.mode() & 0o777);
        }
    });
}

#[test]
fn a_killed_launcher_leaves_no_copying_process() {
    everyone(|world| {
        let log = host_file(&world, "log", "");
        let prefix = world.prefix().join(" ");
        let name = format!("7{:06}", std::process::id());
        let script = format!(
            "{prefix} /bin/sh -c 'echo up; sleep {name}' > {} & p=$!; \
             until grep -q up {0}; do sleep 0.05; done; kill -KILL $p; wait $p; sleep 0.5; \
             pgrep -f 'room.*{name}'",
            log.display()
        );
        let output = world.bare(&["/bin/sh", "-c", &script]);
        let left = text(&output);
        let left: Vec<&str> = left.lines().filter(|line| line.parse::<u32>().is_ok()).collect();
        // The asking shell has the text on its own command line.
        assert!(left.len() <= 1, "{left:?}");
        assert_eq!(fs::read_to_string(&log).unwrap(), "up\n");
    });
}

#[test]
fn the_number_of_files_a_command_makes_is_limited() {
    in_both_tiers(|world| {
        let world = world.option(&["--limit", "files", "10"]);
        let made = |world: &World| fs::read_dir(world.project()).unwrap().count();
        let output = world.sh("for i in 1 2 3 4 5 6 7 8 9 a b c d; do : > f$i; done; true");
        assert!(text(&output).contains("Disk quota exceeded"), "{}", text(&output));
        assert_eq!(made(&world), 10, "as {:?}", world.who);
        // The same with other calls.
        let world = World { options: world.options.clone(), ..World::new(world.who) };
        let calls = "
for i in range(40):
    try:
        (os.mkdir, lambda n: os.mkfifo(n + 'p'), lambda n: os.symlink('x', n), lambda n: os.close(os.open(n, os.O_CREAT | os.O_EXCL | os.O_WRONLY)), lambda n: os.link('first', n))[i % 5](f'n{i}')
    except OSError as e: last = e.errno
print(last)";
        let script = format!("{PRELUDE}\nopen('first', 'w')\n{calls}");
        assert_eq!(text(&world.run(&[PYTHON, "-c", &script])), libc::EDQUOT.to_string());
        assert_eq!(made(&world), 10, "as {:?}", world.who);
        // Removed names are given back, and work continues.
        let world = World { options: world.options.clone(), ..World::new(world.who) };
        let output = world.sh(
            "for i in $(seq 50); do echo x > t && mv t kept && mkdir d && rmdir d || exit 1; done",
        );
        assert!(output.status.success(), "{}", text(&output));
    });
}

#[test]
fn an_explicit_file_limit_is_counted_without_other_watches() {
    everyone(|world| {
        let world = world.option(&["--unprotected", "--limit", "files", "3"]);
        let output = world.sh("mkdir a b c d");
        assert!(text(&output).contains("Disk quota exceeded"), "{}", text(&output));
        assert_eq!(fs::read_dir(world.project()).unwrap().count(), 3);
    });
}

/// A directory of the session in the cage, as clash keeps it.
fn with_session(world: World) -> World {
    let session = world.path("state/sessions/one/tmp");
    fs::create_dir_all(&session).unwrap();
    for dir in session.ancestors().take(4) {
        chown(dir, world.who, world.who).unwrap();
    }
    fs::set_permissions(&session, fs::Permissions::from_mode(0o1700)).unwrap();
    fs::write(session.with_file_name("project"), "of clash").unwrap();
    let [session, state] = [session, world.path("state")].map(|path| path.display().to_string());
    world.option(&["--session-tmp", &session, "--rw", "$TMPDIR", "--cage", &state])
}

#[test]
fn the_sessions_directory_is_all_of_tmp_in_both_tiers() {
    in_both_tiers(|world| {
        let host = std::path::PathBuf::from(format!("/tmp/outlets-{}", std::process::id()));
        fs::write(&host, "of the host").unwrap();
        fs::set_permissions(&host, fs::Permissions::from_mode(0o666)).unwrap();
        let world = with_session(world);
        let session = world.path("state/sessions/one/tmp");
        let output = world.sh("echo kept > ${TMPDIR:-/tmp}/a && mkfifo ${TMPDIR:-/tmp}/p");
        assert!(output.status.success(), "as {:?}: {}", world.who, text(&output));
        assert_eq!(fs::read_to_string(session.join("a")).unwrap(), "kept\n");
        let again = world.sh(&format!("cat {}/a ${{TMPDIR:-/tmp}}/a", session.display()));
        assert_eq!(text(&again), "kept\nkept", "as {:?}", world.who);
        for attempt in [
            format!("cat {}", host.display()),
            format!("rm {}", host.display()),
            format!("cat {}/../project", session.display()),
            format!("mv {} {0}.away", session.display()),
            format!("echo x > {}/../x", session.display()),
        ] {
            let output = world.sh(&attempt);
            assert!(!output.status.success(), "{attempt}: {}", text(&output));
        }
        world.sh(&format!("echo over > {}", host.display()));
        assert_eq!(fs::read_to_string(&host).unwrap(), "of the host");
        fs::remove_file(&host).unwrap();
        // The project is in the host's /tmp and belongs to the host.
        world.sh("echo x > made");
        assert!(world.project().join("made").exists());
    });
}

#[test]
fn a_session_cannot_fill_a_home_below_tmp() {
    in_a_room(|world| {
        let world = with_session(world);
        let session = world.path("state/sessions/one/tmp");
        let below = world.path("home").strip_prefix("/tmp").unwrap().to_path_buf();
        let fake = session.join(below);
        let plant = format!("mkdir -p {0}; echo planted > {0}/.gitconfig", fake.display());
        world.sh(&plant);
        let home = world.path("home").display().to_string();
        let seen = world.sh(&format!("cat {home}/.gitconfig"));
        assert!(!text(&seen).contains("planted"), "{}", text(&seen));
        // A link cannot take the place of the mount point either.
        let top = session.join(world.path("").strip_prefix("/tmp").unwrap());
        world.sh(&format!(
            "rm -r {0}; ln -s / {0}",
            top.display().to_string().trim_end_matches('/')
        ));
        let output = world.sh("echo fine > made");
        assert!(output.status.success(), "{}", text(&output));
    });
}
