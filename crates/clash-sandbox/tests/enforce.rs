//! Sandboxes on the real kernel, as root and as a plain user: cases in rooms, and cases in the
//! watched tier, without a room. More about rooms is in `tests/rooms.rs`.
//!
//! Every refusal has a twin: the same script first runs without the sandbox. If it does not
//! succeed there, the test proves nothing and fails. Needs /usr/bin/python3 for raw system
//! calls; without it these tests report that they were skipped.
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
use std::process::Command;

use support::*;

#[test]
fn the_project_can_be_written_and_programs_run() {
    everyone(|world| {
        let output = world
            .sh("echo hello > new && cat new | tr a-z A-Z && mkdir d && mv new d/x && rm -r d");
        assert_eq!(text(&output), "HELLO");
        let output = world.sh("printf '#!/bin/sh\\necho ran\\n' > t && chmod +x t && ./t");
        assert_eq!(text(&output), "ran");
    });
}

#[test]
fn exit_status_and_signals_pass_through() {
    everyone(|world| {
        assert_eq!(world.sh("exit 7").status.code(), Some(7));
        assert_eq!(world.sh("kill -KILL $$").status.signal(), Some(9));
        assert_eq!(world.sh("kill -TERM $$").status.signal(), Some(15));
    });
}

#[test]
fn a_broken_pipe_ends_the_writer() {
    if !Path::new("/bin/bash").exists() {
        return eprintln!("SKIPPED (no bash): PIPESTATUS");
    }
    everyone(|world| {
        let output = world.run(&["bash", "-c", "yes | head -n1 >/dev/null; echo ${PIPESTATUS[0]}"]);
        assert_eq!(text(&output), "141");
    });
}

#[test]
fn a_missing_program_and_one_that_may_not_run_differ() {
    without_a_room(|world| {
        assert_eq!(world.run(&["no-such-program"]).status.code(), Some(127));
        assert_eq!(world.run(&["./no-such-program"]).status.code(), Some(127));
        fs::write(world.path("home/app/data"), "").unwrap();
        assert_eq!(world.run(&["./data"]).status.code(), Some(126));
        let outside = world.path("room").display().to_string();
        assert_eq!(world.run(&[&outside]).status.code(), Some(126), "no execute right");
    });
}

#[test]
fn files_outside_the_grants_cannot_be_read_or_written() {
    without_a_room(|world| {
        let key = world.path("home/.ssh/id_ed25519").display().to_string();
        let home = world.path("home").display().to_string();
        for script in [
            format!("cat {key}"),
            format!("ls {home}"),
            format!("echo x >> {key}"),
            format!("touch {home}/new"),
            format!("rm {key}"),
            format!("mv {key} {home}/app/key"),
            format!("ln {key} {home}/app/key"),
            format!("ln -s {key} link; cat link"),
            "cat /proc/self/cwd/../.ssh/id_ed25519".to_owned(),
        ] {
            let output = world.sh(&script);
            assert!(!output.status.success(), "{script}: {}", text(&output));
            assert!(!text(&output).contains("SECRET"), "{script}");
        }
        assert_eq!(fs::read_to_string(&key).unwrap(), "SECRET");
        assert_eq!(text(&world.bare(&["cat", &key])), "SECRET");
        assert!(!world.sh("cat /etc/shadow").status.success());
    });
}

#[test]
fn inherited_descriptors_are_closed() {
    everyone(|world| {
        let script = "exec 7<../.ssh/id_ed25519; exec \"$@\"";
        let mut argv = vec!["/bin/sh".to_owned(), "-c".into(), script.into(), "sh".into()];
        let bare = [argv.clone(), vec!["/bin/sh".into(), "-c".into(), "cat <&7".into()]].concat();
        argv.extend(world.prefix());
        argv.extend(["/bin/sh".into(), "-c".into(), "cat <&7".into()]);
        let run =
            |argv: Vec<String>| world.bare(&argv.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(text(&run(bare)), "SECRET");
        let inside = run(argv);
        assert!(!inside.status.success() && !text(&inside).contains("SECRET"));
    });
}

#[test]
fn a_directory_as_stdin_is_taken_away() {
    everyone(|world| {
        let script = "exec \"$@\" <../.ssh";
        let mut argv = vec!["/bin/sh".to_owned(), "-c".into(), script.into(), "sh".into()];
        argv.extend(world.prefix());
        argv.extend(["ls".into(), "-l".into(), "/proc/self/fd/0".into()]);
        let output = world.bare(&argv.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(text(&output).contains("/dev/null"), "{}", text(&output));
    });
}

#[test]
fn stdio_reopens_only_with_its_own_access() {
    everyone(|world| {
        let notes = world.path("home/notes");
        fs::write(&notes, "notes").unwrap();
        chown(&notes, world.who, world.who).unwrap();
        let redirected = |redirect: &str, inner: &str| {
            let script = format!("exec \"$@\" {redirect}");
            let mut argv = vec!["/bin/sh".to_owned(), "-c".into(), script, "sh".into()];
            argv.extend(world.prefix());
            argv.extend(["/bin/sh".into(), "-c".into(), inner.into()]);
            world.bare(&argv.iter().map(String::as_str).collect::<Vec<_>>())
        };
        assert!(!redirected("<../notes", "echo x > /proc/self/fd/0").status.success());
        assert_eq!(fs::read_to_string(&notes).unwrap(), "notes");
        assert!(redirected(">../notes", "echo y > /dev/stdout").status.success());
        assert_eq!(fs::read_to_string(&notes).unwrap(), "y\n");
    });
}

#[test]
fn a_memfd_as_stdin_is_no_obstacle() {
    if python_is_missing() {
        return;
    }
    everyone(|world| {
        let script = "import os, sys; f = os.memfd_create('x'); os.write(f, b'given'); \
            os.lseek(f, 0, 0); os.dup2(f, 0); os.execv(sys.argv[1], sys.argv[1:])";
        let mut argv = vec![PYTHON.to_owned(), "-c".into(), script.into()];
        argv.extend(world.prefix());
        argv.push("cat".into());
        let output = world.bare(&argv.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(text(&output), "given");
    });
}

#[test]
fn processes_outside_are_out_of_reach() {
    if python_is_missing() {
        return;
    }
    without_a_room(|world| {
        let mut sleeper = Command::new("/bin/sleep");
        sleeper.arg("60").env("TOKEN", "SECRET");
        let mut sleeper = world.prepare(sleeper).spawn().unwrap();
        let pid = sleeper.id();
        refused(&world, &format!("os.kill({pid}, 0)"), EPERM);
        refused(&world, &format!("os.kill({pid}, signal.SIGCONT)"), EPERM);
        refused(&world, &format!("open('/proc/{pid}/environ').read() and 0"), ENOENT);
        refused(&world, &format!("os.open('/proc/{pid}/mem', 0)"), ENOENT);
        refused(&world, &format!("sc(438, sc(434, {pid}, 0), 0, 0)"), EPERM); // pidfd_getfd
        refused(
            &world,
            &format!("sc(302, {pid}, 7, None, ctypes.create_string_buffer(16))"),
            EPERM,
        );
        refused(&world, &format!("call(libc.setpriority, 0, {pid}, 19)"), EPERM);
        refused(
            &world,
            &format!("child(lambda: call(libc.ptrace, 0x4206, {pid}, 0, 0))"), // SEIZE
            EPERM,
        );
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    });
}

#[test]
fn own_children_can_be_signalled_and_traced() {
    if python_is_missing() {
        return;
    }
    everyone(|world| {
        let script =
            "(lambda p: (os.kill(p, 9), os.waitpid(p, 0)[1])[1])(os.fork() or signal.pause())";
        assert_eq!(python(&world, script, true), 9);
        assert_eq!(python(&world, "child(lambda: call(libc.ptrace, 0, 0, 0, 0))", true), 0);
        // Process 1 shares the launcher's memory.
        let first = "child(lambda: call(libc.ptrace, 0x4206, 1, 0, 0))";
        assert_ne!(python(&world, first, true), 0);
    });
}

#[test]
fn no_sockets_without_network() {
    if python_is_missing() {
        return;
    }
    without_a_room(|world| {
        for (family, kind, protocol) in [(2, 1, 0), (2, 2, 0), (10, 1, 0), (16, 3, 0), (1, 1, 0)] {
            let make = format!("sc({}, {family}, {kind}, {protocol})", libc_number("socket"));
            refused(&world, &make, EACCES);
        }
        refused_inside(&world, "socket.socket(40, 1, 0).fileno()", EACCES); // vsock
        refused_inside(&world, "socket.socket(2, 1, 262).fileno()", EACCES); // mptcp
        let pair =
            |kind: &str| format!("socket.socketpair(socket.AF_UNIX, socket.{kind})[0].fileno()");
        assert!(python(&world, &pair("SOCK_STREAM"), true) >= 0);
        refused(&world, &pair("SOCK_DGRAM"), EACCES);
    });
}

#[test]
fn with_network_tcp_works_and_the_rest_does_not() {
    if python_is_missing() {
        return;
    }
    without_a_room(|world| {
        let world = world.option(&["--net", "allow"]);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connect = format!("socket.create_connection(('127.0.0.1', {port})).fileno()");
        assert!(python(&world, &connect, true) >= 0);
        assert!(python(&world, "socket.socket(2, 2, 0).fileno()", true) >= 0);
        for refused in ["2, 1, 262", "2, 3, 255", "40, 1, 0", "16, 3, 15", "17, 3, 0", "1, 1, 0"] {
            refused_inside(&world, &format!("socket.socket({refused}).fileno()"), EACCES);
        }
    });
}

#[test]
fn a_unix_socket_in_the_project_cannot_be_reached() {
    if python_is_missing() {
        return;
    }
    without_a_room(|world| {
        let _listener = std::os::unix::net::UnixListener::bind(world.path("home/app/s")).unwrap();
        fs::set_permissions(world.path("home/app/s"), fs::Permissions::from_mode(0o777)).unwrap();
        refused(&world, "socket.socket(socket.AF_UNIX).connect('s')", EACCES);
    });
}

/// The number of a system call on this architecture.
fn libc_number(name: &str) -> i64 {
    let x86 = cfg!(target_arch = "x86_64");
    match name {
        "socket" => {
            if x86 {
                41
            } else {
                198
            }
        }
        "keyctl" => {
            if x86 {
                250
            } else {
                219
            }
        }
        "unshare" => {
            if x86 {
                272
            } else {
                97
            }
        }
        "personality" => {
            if x86 {
                135
            } else {
                92
            }
        }
        "shmget" => {
            if x86 {
                29
            } else {
                194
            }
        }
        "userfaultfd" => {
            if x86 {
                323
            } else {
                282
            }
        }
        "chroot" => {
            if x86 {
                161
            } else {
                51
            }
        }
        "mount" => {
            if x86 {
                165
            } else {
                40
            }
        }
        "bpf" => {
            if x86 {
                321
            } else {
                280
            }
        }
        other => panic!("no number for {other}"),
    }
}

#[test]
fn the_kernel_surface_is_closed() {
    if python_is_missing() {
        return;
    }
    without_a_room(|world| {
        let n = libc_number;
        refused(&world, &format!("child(lambda: sc({}, 0x10000000))", n("unshare")), EPERM);
        refused(&world, &format!("child(lambda: sc({}, 0x50020000))", n("unshare")), EPERM);
        refused(&world, "sc(425, 4, ctypes.create_string_buffer(256))", ENOSYS); // io_uring_setup
        // The number of the session keyring may be any 32 bits, so only its sign counts.
        refused(&world, &format!("min(0, sc({}, 0, -3, 0))", n("keyctl")), EPERM);
        refused(&world, &format!("sc({}, 0, 4096, 0o1600)", n("shmget")), EPERM);
        refused(&world, &format!("sc({}, 0x0400000)", n("personality")), EPERM);
        refused_inside(&world, &format!("sc({}, 1)", n("userfaultfd")), EPERM);
        refused_inside(&world, &format!("sc({}, b'/')", n("chroot")), EPERM);
        refused_inside(
            &world,
            &format!("sc({}, b'x', b'/tmp', b'tmpfs', 0, 0)", n("mount")),
            EPERM,
        );
        refused_inside(&world, &format!("sc({}, 0, 0, 0)", n("bpf")), EPERM);
        // clone3 with CLONE_NEWUSER, whose flags no filter can see.
        let clone3 = "sc(435, struct.pack('8Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0), 64)";
        refused_inside(&world, clone3, ENOSYS);
    });
}

#[test]
fn metadata_that_outlives_the_run_cannot_be_planted() {
    if python_is_missing() {
        return;
    }
    everyone(|world| {
        fs::write(world.path("home/app/f"), "").unwrap();
        chown(world.path("home/app/f"), world.who, world.who).unwrap();
        refused(&world, "os.chmod('f', 0o4755)", EPERM);
        assert_eq!(python(&world, "os.chmod('f', 0o755)", true), 0);
        refused_inside(&world, "os.setxattr('f', 'user.overlay.opaque', b'y')", EOPNOTSUPP);
        refused_inside(&world, "os.mknod('w', 0o20600, 0)", EACCES); // an overlay whiteout
    });
}

#[test]
fn nothing_can_be_typed_into_the_terminal() {
    if python_is_missing() {
        return;
    }
    everyone(|world| {
        let inner =
            format!("{PRELUDE}\nshow(lambda: call(libc.ioctl, 0, ctypes.c_ulong(REQUEST), b'x'))");
        let spawn = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
        for request in ["0x5412", "0x100005412"] {
            let inner = inner.replace("REQUEST", request);
            let mut argv = vec![PYTHON.to_owned(), "-c".into(), spawn.into()];
            argv.extend(world.prefix());
            argv.extend([PYTHON.into(), "-c".into(), inner]);
            let output = world.bare(&argv.iter().map(String::as_str).collect::<Vec<_>>());
            assert!(text(&output).contains("-1"), "{}", text(&output));
        }
        // The terminal itself works.
        let mut argv = vec![PYTHON.to_owned(), "-c".into(), spawn.into()];
        argv.extend(world.prefix());
        argv.extend([
            "/bin/sh".into(),
            "-c".into(),
            "test -t 0 && stty size && echo fine > /dev/stdout".into(),
        ]);
        let output = world.bare(&argv.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(text(&output).contains("fine"), "{}", text(&output));
    });
}

#[test]
fn foreign_system_calls_do_not_get_past_the_filter() {
    if python_is_missing() || !cfg!(target_arch = "x86_64") {
        return;
    }
    everyone(|world| {
        refused_inside(&world, "sc(0x40000000 + 39)", ENOSYS); // x32 getpid
        // mov eax, 20; int 0x80; ret: getpid of i386
        let script = "import ctypes, mmap\n\
            m = mmap.mmap(-1, 4096, prot=7)\n\
            m.write(bytes.fromhex('b814000000cd80c3'))\n\
            print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))())";
        let output = world.run(&[PYTHON, "-c", script]);
        assert_eq!(output.status.signal(), Some(31), "{}", text(&output)); // SIGSYS
    });
}

#[test]
fn root_keeps_one_capability_and_a_user_none() {
    everyone(|world| {
        let status = text(&world.sh("cat /proc/self/status"));
        let line = |name: &str| {
            let line = status.lines().find(|l| l.starts_with(name)).unwrap_or_default();
            line.split_whitespace().last().unwrap_or_default().to_owned()
        };
        let root = world.who.is_none() && identities().len() == 2;
        let kept = if root { "0000000000000002" } else { "0000000000000000" };
        for set in ["CapPrm", "CapEff"] {
            assert_eq!(line(set), kept, "{set} as {:?}", world.who);
        }
        assert_eq!(line("CapInh"), kept);
        for set in ["CapAmb", "CapBnd"] {
            assert_eq!(line(set), "0000000000000000", "{set}");
        }
        assert_eq!((line("NoNewPrivs").as_str(), line("Seccomp:").as_str()), ("1", "2"));
    });
}

#[test]
fn secrets_in_the_environment_stay_outside() {
    everyone(|world| {
        let prefix = world.prefix();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).args(["env"]).env("GITHUB_TOKEN", "SECRET").env("KEPT", "yes");
        command.env("LD_PRELOAD_X", "SECRET");
        let output = text(&world.prepare(command).output().unwrap());
        assert!(output.contains("KEPT=yes") && !output.contains("SECRET"), "{output}");
    });
}

#[test]
fn git_commits_in_the_project_and_in_a_linked_worktree() {
    if !Path::new("/usr/bin/git").exists() {
        return eprintln!("SKIPPED (no git): commits");
    }
    everyone(|world| {
        let commit =
            "git -c user.name=a -c user.email=a@b commit -qm x && git log --oneline | wc -l";
        let output = world.sh(&format!("git init -q . && echo 1 > f && git add f && {commit}"));
        assert_eq!(text(&output).lines().last(), Some("1"), "{}", text(&output));

        let worktree = world.path("wt").display().to_string();
        let added = world.bare(&["git", "worktree", "add", "-q", &worktree]);
        assert!(added.status.success(), "{}", text(&added));
        // The same room around the worktree, not around the main repository.
        let script = format!(
            "cd {worktree} && echo 2 > g && git add g && {commit}; \
             echo x > ../home/app/.git/hooks/pre-commit || echo no hook; \
             echo x >> ../home/app/.git/config || echo no config"
        );
        let mut command = Command::new(world.path("room"));
        command.args(["--rw", &worktree, "--", "/bin/sh", "-c", &script]);
        let output = text(&world.prepare(command).output().unwrap());
        assert!(output.contains("no hook") && output.contains("no config"), "{output}");
        assert!(output.lines().any(|l| l == "2"), "{output}");
    });
}

/// The monitor of the outer room would carry out calls that an inner room denies.
#[test]
fn a_room_inside_one_with_a_monitor_is_refused() {
    everyone(|world| {
        let base = world.dir.path().display().to_string();
        let world = world.option(&["--rx", &base]);
        // Read-only rooms stack.
        let app = format!("{base}/home/app");
        fs::write(format!("{app}/f"), "deep").unwrap();
        let mut command = Command::new(world.path("room"));
        command.args(["--rx", &base, "--", &format!("{base}/room"), "--rx", &app, "--"]);
        command.args(["cat", &format!("{app}/f")]);
        assert_eq!(text(&world.prepare(command).output().unwrap()), "deep");
        // Inside a watched room, a second one would not restrict the monitor, so it is
        // refused.
        for inner in ["--rx", "--rw"] {
            let output = world.sh(&format!("{base}/room {inner} {app} -- touch {app}/x"));
            assert_eq!(output.status.code(), Some(3), "{}", text(&output));
            assert!(
                text(&output).contains("a sandbox around this one answers"),
                "{}",
                text(&output)
            );
        }
    });
}
