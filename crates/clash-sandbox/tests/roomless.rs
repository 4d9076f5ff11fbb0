//! The watched tier, where no namespaces can be made: Landlock, seccomp and the monitor.
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

use support::{World, text, without_a_room};

/// The world, with a temporary directory beside the project.
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
    without_a_room(|world| {
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
    without_a_room(|world| {
        let world = with_tmp(world);
        let kept = world.path("tmp/another's");
        fs::write(&kept, "x").unwrap();
        let script = format!(
            "set -e; echo x > $TMPDIR/f; mkdir -p $TMPDIR/a/b; chmod 0 $TMPDIR/a/b $TMPDIR/a
             mktemp > /dev/null; echo $TMPDIR; ! echo y > {0}/other; ! cat \"{0}/another's\"; exit 7",
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
fn a_killed_launcher_leaves_no_temporary_directory() {
    without_a_room(|world| {
        let world = with_tmp(world);
        let prefix = world.prefix();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).args([
            "/bin/sh",
            "-c",
            "echo x > $TMPDIR/f; echo up; read -r line",
        ]);
        let mut command = world.prepare(command);
        // The shell itself waits, because a process that it started would outlive the
        // launcher.
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
fn inotify_reports_nothing_without_a_grant() {
    if support::python_is_missing() {
        return;
    }
    without_a_room(|world| {
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

/// A denied path that did not exist when the command started. Here the monitor sees every
/// open. A room without rules about names leaves reading to its mounts, and so shows a file
/// that a process outside makes meanwhile.
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
    without_a_room(|world| {
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

/// Prints the type or the error for every path of its arguments and every way to look at
/// it.
const LOOK: &str = r"
import os, stat, sys, ctypes
libc = ctypes.CDLL(None, use_errno=True)
def at_most(f, *a):
    if f(*a) < 0: raise OSError(ctypes.get_errno(), '')
def xattr(path):
    try: os.getxattr(path, 'user.none')
    except OSError as e:
        if e.errno not in (61, 95): raise
# What takes a file's place in a room is a device.
def kind(m): return 'dir' if stat.S_ISDIR(m.st_mode) else 'link' if stat.S_ISLNK(m.st_mode) else ''
# Elsewhere a room has something of its own, which is writable by its modes.
shared = ('/usr', '/etc', '/bin/', '/proc/', '/dev/', 'plain', 'to-', 'secret/deep/shown')
buffer = ctypes.create_string_buffer(512)
ways = {
    'stat': lambda p: kind(os.stat(p)),
    'lstat': lambda p: kind(os.lstat(p)),
    'statx': lambda p: at_most(libc.statx, -100, p.encode(), 0, 0x7ff, buffer),
    'access': lambda p: at_most(libc.access, p.encode(), 0),
    'writable': lambda p: at_most(libc.access, p.encode(), 2) if p.startswith(shared) else None,
    'effective': lambda p: at_most(libc.faccessat, -100, p.encode(), 0, 0x200),
    'readlink': os.readlink,
    'statvfs': lambda p: os.statvfs(p) and None,
    'xattr': xattr,
    'xattrs': lambda p: os.listxattr(p) and None,
}
for path in sys.argv[1:]:
    for name, way in ways.items():
        try: said = way(path)
        except OSError as e: said = os.strerror(e.errno)
        print(path, name, said)
";

/// A world with a denied path inside the project, an allowed path in that, and links from
/// each to each.
fn with_secrets(who: Option<u32>) -> World {
    use std::os::unix::fs::symlink;
    let world = World::new(who);
    let app = world.project();
    for dir in ["secret", "secret/deep", "secret/deep/shown", "plain"] {
        fs::create_dir(app.join(dir)).unwrap();
    }
    for file in ["secret/key", "secret/deep/shown/x", "plain/x", ".env"] {
        fs::write(app.join(file), "SECRET").unwrap();
    }
    symlink("../.ssh/id_ed25519", app.join("to-key")).unwrap();
    symlink("plain/x", app.join("to-plain")).unwrap();
    symlink("to-plain", app.join("to-to-plain")).unwrap();
    symlink(&app, world.path("home/.ssh/to-app")).unwrap();
    let text = |path: &str| app.join(path).display().to_string();
    let (secret, shown, env) = (text("secret"), text("secret/deep/shown"), text(".env"));
    let home = world.path("home").display().to_string();
    world
        .option(&["--home", &home, "--project", &text(""), "--unprotected"])
        .option(&["--deny", "rwcdx", &secret, "--allow", "r", &shown])
        .option(&["--deny-literal", "rwcdx", &env])
}

/// Paths that exist, that are missing and that are hidden, in many spellings.
const LOOKED_AT: &[&str] = &[
    "/",
    "/usr",
    "/usr/bin/env",
    "/bin",
    "/bin/sh",
    "/bin/../etc/passwd",
    "/etc/passwd",
    "/etc/none",
    "/etc/passwd/x",
    "/home",
    "/var/log",
    "/var/tmp",
    "/tmp",
    "/boot",
    "/sys",
    "/sys/kernel",
    "/sys/fs/cgroup",
    "/dev",
    "/dev/null",
    "/dev/kmsg",
    "/dev/stdin/x",
    "/proc",
    "/proc/self/status",
    "/proc/self/exe",
    "/proc/self/fd/none",
    "/proc/1/none",
    "/proc/sys/kernel/osrelease",
    "",
    ".",
    "..",
    "../..",
    "../.ssh",
    "../.ssh/id_ed25519",
    "../.ssh/none",
    "../.ssh/id_ed25519/x",
    "../.ssh/../app",
    "../none/../app",
    "../.ssh/to-app",
    "../.ssh/to-app/plain",
    "plain",
    "plain/",
    "plain/x",
    "plain/x/",
    "plain/none",
    "plain/../plain/x",
    "to-key",
    "to-plain",
    "to-to-plain",
    "to-plain/",
    "to-plain/../plain",
    "secret",
    "secret/",
    "secret/key",
    "secret/none",
    "secret/key/none",
    "secret/deep",
    "secret/deep/none",
    "secret/deep/shown",
    "secret/deep/shown/x",
    "secret/../plain/x",
    ".env",
    ".env/x",
];

#[test]
fn what_can_be_seen_is_what_a_room_would_show() {
    if support::python_is_missing() {
        return;
    }
    for who in support::identities() {
        let world = with_secrets(who);
        let above = world.dir.path().display().to_string();
        let mut paths: Vec<String> = LOOKED_AT.iter().map(|&path| path.to_owned()).collect();
        paths
            .extend(["", "/home", "/home/app/plain/x", "/room"].map(|below| above.clone() + below));
        let mut argv = vec![support::PYTHON, "-c", LOOK];
        argv.extend(paths.iter().map(String::as_str));
        let in_a_room = text(&world.run(&argv));
        let without = text(&world.option(&["--simulate", "no-userns"]).run(&argv));
        let differ: Vec<_> =
            in_a_room.lines().zip(without.lines()).filter(|(one, other)| one != other).collect();
        assert!(differ.is_empty(), "as {who:?}: {differ:#?}");
        assert_eq!(in_a_room.lines().count(), paths.len() * 10, "{in_a_room}");
        assert_eq!(without.lines().count(), paths.len() * 10, "{without}");
    }
}

/// The files that programs hold do not reveal hidden files.
#[test]
fn nothing_that_is_hidden_can_be_looked_at_by_another_way() {
    if support::python_is_missing() {
        return;
    }
    for who in support::identities() {
        let world = with_secrets(who).option(&["--simulate", "no-userns"]);
        let ssh = world.path("home/.ssh").display().to_string();
        for (way, errno) in [
            // Held with `O_PATH`, and by magic links.
            ("os.open('SSH', os.O_PATH)", support::ENOENT),
            ("os.open('SSH/id_ed25519', os.O_PATH)", support::ENOENT),
            ("os.open('.env', os.O_PATH)", support::EACCES),
            ("os.open('to-key', os.O_PATH | os.O_NOFOLLOW)", -40),
            ("os.open('/', os.O_PATH)", support::EACCES),
            // From a working directory that `chdir` could enter unwatched.
            ("(os.chdir('SSH'), os.stat('id_ed25519'))[1]", support::ENOENT),
            ("(os.chdir('SSH'), os.stat('.'))[1]", support::ENOENT),
            ("(os.chdir('SSH'), os.stat('/proc/self/cwd'))[1]", support::ENOENT),
            ("(os.chdir('SSH'), os.stat('/proc/self/cwd/id_ed25519'))[1]", support::ENOENT),
            ("(os.chdir('SSH'), os.stat('../.ssh/id_ed25519'))[1]", support::ENOENT),
            ("(os.chdir('SSH'), os.listdir('.'))[1]", support::ENOENT),
            (
                "(os.chdir('SSH'), sc(262, -100, b'', ctypes.create_string_buffer(256), 0x1000))[1]",
                support::ENOENT,
            ),
            // By calls that change names, whatever exists.
            ("os.mkdir('SSH')", support::EACCES),
            ("os.mkdir('SSH-none')", support::EACCES),
            ("os.mkdir('SSH/none')", support::ENOENT),
            ("os.open('SSH/id_ed25519', os.O_WRONLY)", support::ENOENT),
            ("os.open('SSH', os.O_CREAT | os.O_WRONLY)", support::EACCES),
            ("os.unlink('SSH/id_ed25519')", support::ENOENT),
            ("os.rename('SSH/id_ed25519', 'stolen')", support::ENOENT),
            ("os.link('SSH/id_ed25519', 'stolen')", support::ENOENT),
            ("os.chmod('SSH/id_ed25519', 0o777)", support::ENOENT),
            ("call(libc.inotify_add_watch, libc.inotify_init(), b'SSH', 0xfff)", support::ENOENT),
            // Calls that programs do not need.
            (
                "sc(303, -100, b'plain/x', ctypes.create_string_buffer(256), \
               ctypes.create_string_buffer(8), 0)",
                support::EOPNOTSUPP,
            ),
            ("sc(464, -100, b'plain/x', 0, b'user.x', 0, 0)", support::ENOSYS),
        ] {
            let numbered = way.starts_with("sc(") || way.contains(" sc(");
            if numbered && cfg!(not(target_arch = "x86_64")) {
                continue;
            }
            let way = way.replace("SSH", &ssh);
            assert_eq!(support::python(&world, &way, true), errno, "{way} as {who:?}");
        }
        // The cover over a denied name reveals nothing about the file.
        let seen =
            support::python(&world, "os.stat('.env').st_size + os.stat('.env').st_mtime_ns", true);
        assert_eq!(seen, 0);
        let held = "os.fstat(os.open('plain/x', os.O_PATH)).st_size";
        assert_eq!(support::python(&world, held, true), 6);
        assert_eq!(support::python(&world, "os.lstat('to-plain').st_size", true), 7);
        assert_eq!(
            support::python(&world, "int(os.readlink('/proc/self')) - os.getpid()", true),
            0
        );
        assert_eq!(
            support::python(&world, "os.fstat(0).st_rdev - os.stat('/dev/null').st_rdev", true),
            0
        );
    }
}

/// Looks at a file whose name other threads keep exchanging for a hidden one.
const EXCHANGE: &str = r"
import ctypes, threading, time
libc = ctypes.CDLL(None, use_errno=True)
stop = time.time() + 1
text = ctypes.create_string_buffer(64)
good, bad = (ctypes.create_string_buffer(name, 64) for name in (b'plain/x', b'../.ssh/id_ed25519'))
sizes = set()
def flip():
    while time.time() < stop or not sizes:
        ctypes.memmove(text, bad, 64); ctypes.memmove(text, good, 64)
def look():
    seen = ctypes.create_string_buffer(256)
    while time.time() < stop or not sizes:
        if libc.statx(-100, text, 0, 0x7ff, seen) == 0: sizes.add(seen.raw[40])
threads = [threading.Thread(target=t) for t in (flip, flip, look, look)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sizes)
";

#[test]
fn exchanging_a_name_reveals_no_hidden_file() {
    if support::python_is_missing() {
        return;
    }
    for who in support::identities() {
        let world = with_secrets(who).option(&["--simulate", "no-userns"]);
        fs::write(world.path("home/.ssh/id_ed25519"), "a longer secret").unwrap();
        let output = world.run(&[support::PYTHON, "-c", EXCHANGE]);
        assert_eq!(text(&output), "{6}", "as {who:?}");
    }
}
