//! Known gaps of kernel facilities and holes of other sandboxes, each as a case that has to
//! stay closed. Runs as root and as a plain user, in a room and, where it can hold, without
//! one. The network has `tests/network.rs`.
//!
//! Every refusal has a twin: the same works without the sandbox, or beside it. Needs
//! /usr/bin/python3 for raw system calls.
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
use std::process::{Command, Output};

use support::*;

/// Runs a Python script inside and returns its output.
fn script(world: &World, body: &str) -> String {
    text(&world.run(&[PYTHON, "-c", &format!("{PRELUDE}\n{body}")]))
}

/// Runs a command line to its end, without adding a sandbox.
fn run_bare(world: &World, argv: &[String]) -> Output {
    world.bare(&argv.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn the_process_that_keeps_the_room_tells_nothing() {
    in_a_room(|world| {
        let body = "
for f in ('environ', 'mem', 'maps', 'auxv'):
    try: open(f'/proc/1/{f}', 'rb').read(1); print('READ', f)
    except OSError: pass
for f in ('root', 'cwd'):
    try: os.listdir(f'/proc/1/{f}'); print('READ', f)
    except OSError: pass
show(lambda: os.kill(1, 9))
print([p for p in os.listdir('/proc') if p.isdigit()])";
        let seen = script(&world, body);
        assert!(!seen.contains("READ"), "as {:?}: {seen}", world.who);
        let own = seen.lines().last().unwrap().matches('\'').count() / 2;
        assert!(own <= 3, "processes of the host: {seen}");
    });
}

#[test]
fn no_user_can_change_kernel_settings() {
    in_both_tiers(|world| {
        for file in [
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/pid_max",
            "/proc/sys/kernel/ns_last_pid",
            "/proc/sys/vm/overcommit_memory",
            "/proc/sysrq-trigger",
            "/proc/self/oom_score_adj",
            "/proc/self/uid_map",
            "/proc/self/setgroups",
            "/proc/self/mem",
            "/sys/kernel/uevent_helper",
            "/sys/fs/cgroup/cgroup.procs",
        ] {
            let open = format!("os.open('{file}', os.O_WRONLY)");
            assert!(python(&world, &open, true) < 0, "{file} as {:?}", world.who);
        }
        assert!(python(&world, "os.open('/proc/self/oom_score_adj', os.O_WRONLY)", false) >= 0);
    });
}

#[test]
fn no_namespace_by_any_call() {
    in_both_tiers(|world| {
        // Mount, cgroup, host name, ipc, user, process, network.
        for bit in [17, 25, 26, 27, 28, 29, 30] {
            let unshare = format!("child(lambda: call(libc.unshare, 1 << {bit}))");
            assert_eq!(python(&world, &unshare, true), EPERM, "{bit} as {:?}", world.who);
            let clone3 =
                format!("sc(435, struct.pack('8Q', 1 << {bit}, 0, 0, 0, 17, 0, 0, 0), 64)");
            assert_eq!(python(&world, &clone3, true), ENOSYS, "{bit} as {:?}", world.who);
        }
        // Where opens are watched, it cannot be opened at all.
        let join = "call(libc.setns, os.open('/proc/self/ns/mnt', 0), 0)";
        assert!([EPERM, EACCES].contains(&python(&world, join, true)));
        assert_eq!(python(&world, "call(libc.setns, 0, 0)", true), EPERM);
    });
}

#[test]
fn a_program_without_a_path_does_not_run() {
    in_both_tiers(|world| {
        let make = "os.memfd_create('x')";
        refused(&world, make, ENOSYS);
        let run = "
f = sc(319 if os.uname().machine == 'x86_64' else 279, b'x', FLAGS)
os.write(f, open('/bin/true', 'rb').read())
p = os.fork()
if p == 0:
    try: os.execve(f, ['true'], {})
    except OSError as e: os._exit(e.errno)
print(os.waitstatus_to_exitcode(os.wait()[1]))";
        let outside = format!("{PRELUDE}\n{}", run.replace("FLAGS", "0"));
        assert_eq!(text(&world.bare(&[PYTHON, "-c", &outside])), "0");
        // With the seal, the memfd can be made but not executed. With both flags, the
        // kernel itself refuses.
        assert_eq!(script(&world, &run.replace("FLAGS", "8")), "13", "as {:?}", world.who);
    });
}

#[test]
fn what_may_only_be_read_runs_by_no_way() {
    in_a_room(|world| {
        let lib = world.path("lib");
        fs::create_dir(&lib).unwrap();
        let program = lib.join("prog");
        let copied = Command::new("cp").arg("/bin/true").arg(&program).status();
        assert!(copied.unwrap().success());
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let world = world.option(&["--r", lib.to_str().unwrap()]);
        let program = program.display().to_string();
        assert!(world.bare(&[&program]).status.success());
        assert_eq!(world.run(&[&program]).status.code(), Some(126));
        let map = format!(
            "__import__('mmap').mmap(os.open('{program}', 0), 4096, prot=5, flags=2) and 0"
        );
        refused(&world, &map, EPERM);
        let loader = "/lib64/ld-linux-x86-64.so.2";
        if Path::new(loader).exists() {
            assert!(world.bare(&[loader, &program]).status.success());
            assert!(!world.run(&[loader, &program]).status.success());
        }
    });
}

#[test]
fn what_may_only_be_read_keeps_its_metadata_by_every_call() {
    in_a_room(|world| {
        let lib = world.path("lib");
        fs::create_dir(&lib).unwrap();
        let file = lib.join("file");
        fs::write(&file, "text").unwrap();
        for path in [&lib, &file] {
            chown(path, world.who, world.who).unwrap();
        }
        let world = world.option(&["--r", lib.to_str().unwrap()]);
        let before = fs::metadata(&file).unwrap();
        let f = file.display();
        assert_eq!(python(&world, &format!("os.chmod('{f}', 0o644)"), false), 0);
        for change in [
            format!("os.chmod('{f}', 0o777)"),
            format!("os.fchmod(os.open('{f}', 0), 0o777)"),
            format!("sc(452, -100, b'{f}', 0o777, 0)"), // fchmodat2
            format!("sc(452, os.open('{f}', 0), b'', 0o777, 0x1000)"),
            format!("os.chown('{f}', os.getuid(), os.getgid())"),
            format!("os.utime('{f}', (1, 1))"),
            format!("os.utime(os.open('{f}', 0), (1, 1))"),
            format!("os.setxattr('{f}', 'user.x', b'y')"),
            format!("os.truncate('{f}', 0)"),
            format!("os.open('/proc/self/fd/' + str(os.open('{f}', 0)), 1)"),
            format!("os.link('{f}', 'mine')"),
            format!("os.rename('{f}', 'mine')"),
            format!("os.rename('{}', 'mine')", lib.display()),
            format!("os.remove('{f}')"),
        ] {
            assert!(python(&world, &change, true) < 0, "{change} as {:?}", world.who);
        }
        let after = fs::metadata(&file).unwrap();
        assert_eq!(before.permissions(), after.permissions());
        assert_eq!(before.modified().unwrap(), after.modified().unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    });
}

#[test]
fn what_may_only_be_read_cannot_be_cut_short_in_any_tier() {
    let mut cuts = vec![
        "os.truncate(f, 0)",
        "os.open(f, os.O_RDONLY | os.O_TRUNC)",
        "os.open(f, 3 | os.O_TRUNC)",
        "os.open(f, os.O_WRONLY | os.O_TRUNC)",
        "os.open(f, os.O_CREAT | os.O_TRUNC)",
        "os.open('/proc/self/fd/' + str(os.open(f, 0)), os.O_TRUNC)",
        "sc(437, -100, f.encode(), struct.pack('QQQ', os.O_TRUNC, 0, 0), 24)", // openat2
    ];
    if cfg!(target_arch = "x86_64") {
        cuts.push("sc(2, f.encode(), os.O_TRUNC, 0)"); // open
        cuts.push("sc(85, f.encode(), 0o600)"); // creat
    }
    in_a_room(|world| {
        let lib = world.path("lib");
        fs::create_dir(&lib).unwrap();
        chown(&lib, world.who, world.who).unwrap();
        let files: Vec<_> = (0..cuts.len()).map(|n| lib.join(n.to_string())).collect();
        let tries = files
            .iter()
            .zip(&cuts)
            .map(|(file, cut)| format!("f = {file:?}\nshow(lambda: {cut})\n"));
        let script = format!("{PRELUDE}\n{}", tries.collect::<String>());
        let cut = |tier: &str, prefix: &[&str], works: bool| {
            for file in &files {
                fs::write(file, "text").unwrap();
                chown(file, world.who, world.who).unwrap();
            }
            let output = text(&world.bare(&[prefix, &[PYTHON, "-c", &script]].concat()));
            assert_eq!(output.lines().count(), cuts.len(), "{tier}: {output}");
            for ((cut, file), answer) in cuts.iter().zip(&files).zip(output.lines()) {
                let left = fs::read_to_string(file).unwrap();
                let says = format!("{tier}, {cut} as {:?}: {answer}", world.who);
                assert_eq!((!answer.starts_with('-'), left.is_empty()), (works, works), "{says}");
            }
        };
        cut("without a sandbox", &[], true);
        let [app, home, lib, room] =
            ["home/app", "home", "lib", "room"].map(|path| world.path(path).display().to_string());
        let roomless = ["--simulate", "no-userns", "--unprotected"];
        let tiers: [(&str, &[&str]); 6] = [
            ("watched_tier", &["--rx", &app]),
            ("room", &["--rw", &app, "--unprotected"]),
            ("watched room", &["--rw", &app, "--project", &app, "--home", &home]),
            (
                "room where files may be made",
                &["--rx", &app, "--unprotected", "--allow", "rc", &lib],
            ),
            ("no room", &[&["--rw", &app], &roomless[..]].concat()),
            (
                "no room, where files may be made",
                &[&["--rx", &app, "--allow", "rc", &lib], &roomless[..]].concat(),
            ),
        ];
        for (tier, options) in tiers {
            cut(tier, &[&[room.as_str()], options, &["--r", &lib, "--"]].concat(), false);
        }
    });
}

#[test]
fn what_is_denied_stays_denied_when_its_parents_move() {
    in_a_room(|world| {
        let dir = world.project().join("a/secret");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("key"), "KEY").unwrap();
        for path in ["home/app/a", "home/app/a/secret", "home/app/a/secret/key"] {
            chown(world.path(path), world.who, world.who).unwrap();
        }
        assert_eq!(text(&world.sh("cat a/secret/key")), "KEY");
        let world = world.option(&["--deny", "rwcdx", dir.to_str().unwrap()]);
        for attempt in [
            "cat a/secret/key",
            "mv a b; cat b/secret/key",
            "mv a/secret s; cat s/key",
            "ln a/secret/key k; cat k",
            "ln -s a/secret s; cat s/key",
            "cd a/secret && cat key",
            "cat /proc/self/cwd/a/secret/key",
            "cat /proc/1/cwd/a/secret/key",
        ] {
            let seen = text(&world.sh(attempt));
            assert!(!seen.contains("KEY"), "{attempt} as {:?}: {seen}", world.who);
        }
        assert_eq!(fs::read_to_string(dir.join("key")).unwrap(), "KEY");
        let left: Vec<_> =
            fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["key"], "nothing may be left behind");
    });
}

/// A project with protected persistence paths, so that the monitor watches.
fn watched(world: World) -> World {
    let (app, home) = (world.project(), world.path("home"));
    world.option(&["--project", app.to_str().unwrap(), "--home", home.to_str().unwrap()])
}

#[test]
fn names_made_to_be_misread_cannot_be_made() {
    in_a_room(|world| {
        let world = watched(world);
        for name in ["invoice\\u202egpj.sh", "a\\x1b]52;c;eA==\\x07b\\nc", "\\u0440ackage.json"] {
            for make in
                ["open(n, 'w') and 0", "os.mkdir(n)", "os.symlink('x', n)", "os.rename('f', n)"]
            {
                let make = format!("[open('f', 'w'), (lambda n: {make})('{name}')][1]");
                assert_eq!(python(&world, &make, true), -84, "{make} as {:?}", world.who);
            }
        }
        for name in ["файл.txt", "grüße", "a b"] {
            let make = format!("open('{name}', 'w') and 0");
            assert_eq!(python(&world, &make, true), 0, "{name} as {:?}", world.who);
        }
        let in_own = "open('/tmp/two\\nlines', 'w') and 0";
        assert_eq!(python(&world, in_own, true), 0, "the room's own as {:?}", world.who);
    });
}

#[test]
fn no_link_to_a_hidden_path_is_left_behind() {
    in_a_room(|world| {
        let world = watched(world);
        // Not the key of this home, which is below /tmp: that is the room's own.
        for target in ["/home/u/.ssh/id_ed25519", "../../../../etc/shadow", "/root", "/run/x"] {
            let output = world.sh(&format!("ln -s {target} link"));
            assert!(!output.status.success(), "{target} as {:?}", world.who);
        }
        for target in ["/usr/bin/env", "not-there-yet", "../app/f", "/dev/null", "."] {
            let output = world.sh(&format!("ln -s {target} link && rm link"));
            assert!(output.status.success(), "{target}: {}", text(&output));
        }
    });
}

#[test]
fn a_file_handle_opens_nothing() {
    in_both_tiers(|world| {
        let number = if cfg!(target_arch = "x86_64") { 304 } else { 265 };
        let open = format!("sc({number}, os.open('.', 0), ctypes.create_string_buffer(64), 0)");
        assert_eq!(python(&world, &open, true), EPERM);
    });
}

#[test]
fn a_limit_on_processes_holds_for_root_too() {
    in_a_room(|world| {
        let world = world.option(&["--limit", "processes", "60"]);
        let fork = "
n = []
try:
    for i in range(200):
        p = os.fork()
        if p == 0: signal.pause()
        n.append(p)
except OSError: pass
print(len(n), flush=True)
[os.kill(p, 9) for p in n]";
        let seen = script(&world, fork);
        let made: usize = seen.parse().unwrap_or_else(|_| panic!("{seen}"));
        assert!((50..=60).contains(&made), "{made} as {:?}", world.who);
        // Process numbers are given back when processes end.
        let many = world.sh("i=0; while [ $i -lt 300 ]; do /bin/true || exit 1; i=$((i+1)); done");
        assert!(many.status.success(), "{}", text(&many));
    });
}

#[test]
fn limits_on_files_memory_and_time_hold() {
    in_both_tiers(|world| {
        let world = world
            .option(&["--limit", "memory", "2000000000"])
            .option(&["--limit", "file_size", "100000"])
            .option(&["--limit", "cpu", "1"]);
        let grow = "
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
show(lambda: os.ftruncate(os.open('big', os.O_CREAT | os.O_RDWR), 1 << 20))";
        assert_eq!(script(&world, grow), "-27", "file size as {:?}", world.who);
        let map = "show(lambda: len(__import__('mmap').mmap(-1, 3 << 30)) and 0)";
        assert_eq!(script(&world, map), "-12", "memory as {:?}", world.who);
        let output = world.run(&[PYTHON, "-c", "while True: pass"]);
        assert!(matches!(output.status.signal(), Some(9 | 24)), "{output:?}");
    });
}

/// Runs a shell script in the world's sandbox, started by a Python program that confines
/// itself.
fn run_inside(world: &World, outer: &str, script: &str) -> Output {
    let mut argv = vec![PYTHON.to_owned(), "-c".into(), outer.into()];
    argv.extend(world.prefix());
    argv.extend(["/bin/sh".into(), "-c".into(), script.into()]);
    run_bare(world, &argv)
}

/// Checks a sandbox inside a Python program that confines itself so that no namespace can be
/// made. The watched tier still protects the key. Clash refuses a sandbox that needs a room
/// (for the name of a host), and this function returns that refusal.
#[track_caller]
fn stacks_or_refuses(world: &World, outer: &str) -> String {
    let key = world.path("home/.ssh/id_ed25519").display().to_string();
    let watched_tier = World::beside(world).option(&["--unprotected"]);
    let seen = text(&run_inside(&watched_tier, outer, &format!("echo in > f; cat f {key}")));
    assert!(seen.starts_with("in") && !seen.contains("SECRET"), "{seen}");
    let crossing = watched_tier.option(&["--host-rule", "allow host.test"]);
    let output = run_inside(&crossing, outer, "echo RAN");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    text(&output)
}

#[test]
fn inside_an_outer_landlock_domain_it_stacks_or_refuses() {
    in_a_room(|world| {
        // A domain that handles writing and grants it everywhere.
        let domain = "
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)
fd = libc.syscall(ctypes.c_long(444), struct.pack('Q', 2), ctypes.c_long(8), ctypes.c_long(0))
rule = struct.pack('=Qi', 2, os.open('/', os.O_PATH))
assert libc.syscall(ctypes.c_long(445), fd, 1, rule, 0) == 0
assert libc.syscall(ctypes.c_long(446), fd, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])";
        let refusal = stacks_or_refuses(&world, domain);
        assert!(refusal.contains("none can be made here"), "{refusal}");
    });
}

#[test]
fn under_a_filter_without_namespaces_it_stacks_or_refuses() {
    in_a_room(|world| {
        // As container runtimes do: unshare is EPERM, clone3 is ENOSYS.
        let (unshare, arch) =
            if cfg!(target_arch = "x86_64") { (272, 0xc000_003e_u32) } else { (97, 0xc000_00b7) };
        let filter = format!(
            "
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)
code = [(0x20, 0, 0, 4), (0x15, 0, 3, {arch}), (0x20, 0, 0, 0), (0x15, 2, 0, {unshare}),
    (0x15, 2, 0, 435), (6, 0, 0, 0x7fff0000), (6, 0, 0, 0x50001), (6, 0, 0, 0x50026)]
text = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *insn) for insn in code))
prog = struct.pack('HxxxxxxQ', len(code), ctypes.addressof(text))
assert libc.prctl(22, 2, prog) == 0
os.execv(sys.argv[1], sys.argv[1:])"
        );
        stacks_or_refuses(&world, &filter);
    });
}

#[test]
fn inside_bubblewrap_it_stacks() {
    let installed = ["/usr/bin/bwrap", "/usr/local/bin/bwrap"];
    let Some(bwrap) = installed.into_iter().find(|path| Path::new(path).exists()) else {
        return eprintln!("SKIPPED (no bwrap): a room inside bubblewrap");
    };
    everyone(|world| {
        let options = ["--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--"];
        let mut argv = vec![bwrap.to_owned()];
        argv.extend(options.map(String::from));
        let works = run_bare(&world, &[argv.clone(), vec!["true".into()]].concat());
        if !works.status.success() {
            return eprintln!("SKIPPED (bwrap does not run): {}", text(&works));
        }
        let key = world.path("home/.ssh/id_ed25519").display().to_string();
        argv.extend(world.prefix());
        argv.extend(["/bin/sh".into(), "-c".into(), format!("echo in > f; cat f; cat {key}")]);
        let seen = text(&run_bare(&world, &argv));
        assert!(seen.starts_with("in") && !seen.contains("SECRET"), "{seen}");
    });
}
