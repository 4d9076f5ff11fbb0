//! Rooms on the real kernel, as root and as a plain user. Every refusal has a twin: a grant
//! beside it works, or the same works without the room.
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
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::*;

#[test]
fn a_denied_entry_of_a_grants_root_cannot_be_read_or_moved() {
    project(|world| {
        let app = world.project().display().to_string();
        write(&world, "home/app/private/key", "SECRET");
        write(&world, "home/app/token", "SECRET");
        write(&world, "home/app/open/key", "public");
        let world = ["private", "token"].into_iter().fold(world, |world, name| {
            world.option(&["--deny", "rwcdx", &format!("{app}/{name}")])
        });
        let world = world.option(&["--unprotected"]);
        for name in ["private", "token"] {
            for attempt in [
                format!("cat {name} {name}/key"),
                format!("mv {name} moved"),
                format!("rm -rf {name}"),
                format!("ln {name} linked"),
                format!("mv -T open {name}"),
                "cd .. && mv app other".to_owned(),
                format!("chmod 777 {name}"),
                format!(
                    "python3 -c \"import ctypes, sys; sys.exit(ctypes.CDLL(None).renameat2(-100, b'open', -100, b'{name}', 2) != 0)\""
                ),
            ] {
                fails(&world, &attempt);
            }
        }
        assert_eq!(works(&world, "mv open moved && cat moved/key && mv moved open"), "public");
        assert_eq!(fs::read_to_string(world.path("home/app/private/key")).unwrap(), "SECRET");
        assert_eq!(fs::read_to_string(world.path("home/app/token")).unwrap(), "SECRET");
    });
}

#[test]
fn a_denied_file_replaced_from_outside_stays_protected() {
    project(|world| {
        let token = write(&world, "home/app/token", "SECRET");
        let world = world.option(&["--unprotected", "--deny", "rwcdx", &token]);
        let script = "echo up; read go; echo bad > token; mv token moved; rm -f token; echo done";
        let prefix = world.prefix();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).args(["sh", "-c", script]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut launcher = world.prepare(command).stdin(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(launcher.stdout.take().unwrap()).lines();
        assert_eq!(output.next().unwrap().unwrap(), "up");
        let fresh = write(&world, "home/app/.token.swp", "NEW");
        fs::rename(fresh, &token).unwrap();
        launcher.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert_eq!(output.next().unwrap().unwrap(), "done");
        launcher.wait().unwrap();
        assert_eq!(fs::read_to_string(token).unwrap(), "NEW");
    });
}

#[test]
fn what_is_not_granted_is_not_there() {
    project(|world| {
        let key = world.path("home/.ssh/id_ed25519").display().to_string();
        assert!(world.bare(&["stat", &key]).status.success());
        for attempt in ["stat", "cat", "ls -d", "chmod 777", "touch"] {
            fails(&world, &format!("{attempt} {key}"));
        }
        fails(&world, "ls ../.ssh");
        assert_eq!(works(&world, "ls .."), "app");
        assert_eq!(fs::read_to_string(&key).unwrap(), "SECRET");
    });
}

/// The helper mounts it before the plan is known.
#[test]
fn a_denied_shared_tree_is_not_mounted() {
    project(|world| {
        let mounts = "cut -d' ' -f5,6 /proc/self/mountinfo | grep -E '^/(usr|etc|opt|sys)' || true";
        let as_usual = works(&world, mounts);
        assert!(as_usual.contains("/usr ro") && as_usual.contains("/etc ro"), "{as_usual}");
        let opt = Path::new("/opt").is_dir();
        assert_eq!(as_usual.contains("/opt ro"), opt, "{as_usual}");
        let denied = World::beside(&world).option(&["--deny", "rwcdx", "/opt"]);
        let denied = denied.option(&["--deny", "rwcdx", "/sys/devices/system"]);
        let shown = works(&denied, mounts);
        assert!(!shown.contains("/opt") && !shown.contains("/sys"), "{shown}");
        fails(&denied, "stat /opt");
        fails(&denied, "stat /sys/devices");
        if opt {
            let writable = World::beside(&world).option(&["--rw", "/opt"]);
            let shown = works(&writable, mounts);
            assert!(shown.contains("/opt rw") && !shown.contains("/opt ro"), "{shown}");
        }
    });
}

#[test]
fn no_way_leads_back_to_the_hosts_root() {
    project(|world| {
        let key = world.path("home/.ssh/id_ed25519").display().to_string();
        for way in [
            "/proc/1/root",
            "/proc/1/cwd/../../../..",
            "/proc/self/root/..",
            "/.covers/host",
            "/.covers/host/../host",
            "/..",
            "../../../../../..",
        ] {
            fails(&world, &format!("cat {way}{key}"));
            fails(&world, &format!("cat {way}/etc/shadow"));
        }
        fails(&world, "umount /.covers/host");
        fails(&world, "for f in /proc/1/fd/*; do readlink $f; done | grep .");
        assert_eq!(works(&world, "cd /proc/self/fd && echo *"), "0 1 2 3");
    });
}

#[test]
fn rules_nest_to_any_depth() {
    project(|world| {
        let app = world.project().display().to_string();
        write(&world, "home/app/a/top", "seen");
        write(&world, "home/app/a/b/hidden", "HIDDEN");
        write(&world, "home/app/a/b/c/shown", "shown");
        write(&world, "home/app/a/b/c/d/gone", "HIDDEN");
        write(&world, "home/app/a/b/c/d/file", "one file");
        let world = world.option(&["--deny", "rwcdx", &format!("{app}/a/b")]);
        let world = world.option(&["--allow", "rwcdx", &format!("{app}/a/b/c")]);
        let world = world.option(&["--deny", "rwcdx", &format!("{app}/a/b/c/d")]);
        let world = world.option(&["--literal", "r", &format!("{app}/a/b/c/d/file")]);
        assert_eq!(works(&world, "cat a/top a/b/c/shown a/b/c/d/file"), "seenshownone file");
        assert_eq!(works(&world, "echo new > a/b/c/new; cat a/b/c/new"), "new");
        fails(&world, "cat a/b/hidden");
        fails(&world, "cat a/b/c/d/gone");
        fails(&world, "echo x > a/b/c/d/file");
        fails(&world, "echo x > a/b/new");
        fails(&world, "mv a z");
        fails(&world, "rm -r a/b");
        assert_eq!(fs::read_to_string(world.path("home/app/a/b/hidden")).unwrap(), "HIDDEN");
        let mut names: Vec<_> = fs::read_dir(world.path("home/app/a/b"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["c", "hidden"], "nothing may be left behind");
    });
}

#[test]
fn a_read_only_tree_keeps_modes_times_and_owners() {
    if python_is_missing() {
        return;
    }
    project(|world| {
        let file = write(&world, "home/lib/file", "text");
        let lib = world.path("home/lib").display().to_string();
        let world = world.option(&["--r", &lib]);
        assert_eq!(works(&world, &format!("cat {file}")), "text");
        let before = fs::metadata(&file).unwrap();
        for change in [
            "os.chmod(f, 0o777)",
            "os.utime(f, (1, 1))",
            "os.chown(f, os.getuid(), -1)",
            "os.truncate(f, 0)",
        ] {
            let script = format!("import os; f = {file:?}; {change}");
            let output = world.run(&[PYTHON, "-c", &script]);
            assert!(!output.status.success(), "{change} as {:?}", world.who);
        }
        let after = fs::metadata(&file).unwrap();
        assert_eq!(before.permissions(), after.permissions());
        assert_eq!(before.modified().unwrap(), after.modified().unwrap());
    });
}

#[test]
fn no_execute_right_stops_execve_and_the_loader() {
    project(|world| {
        write(&world, "home/lib/prog", "");
        let prog = world.path("home/lib/prog").display().to_string();
        assert!(Command::new("cp").args(["/bin/true", &prog]).status().unwrap().success());
        fs::set_permissions(&prog, fs::Permissions::from_mode(0o755)).unwrap();
        let loader = "/lib64/ld-linux-x86-64.so.2";
        let lib = world.path("home/lib").display().to_string();
        let readable = world.option(&["--r", &lib]);
        fails(&readable, &prog);
        if Path::new(loader).exists() {
            fails(&readable, &format!("{loader} {prog}"));
        }
        let runnable = readable.option(&["--rx", &lib]);
        works(&runnable, &prog);
    });
}

#[test]
fn persistence_paths_stay_and_git_still_works() {
    if !Path::new("/usr/bin/git").exists() && !Path::new("/usr/local/bin/git").exists() {
        return eprintln!("SKIPPED (no git): persistence paths");
    }
    project(|world| {
        let init = world.bare(&["git", "init", "-q", "."]);
        assert!(init.status.success(), "{}", text(&init));
        write(&world, "home/app/.envrc", "echo mine");
        write(&world, "home/app/.vscode/tasks.json", "{}");
        for attack in [
            "echo x > .git/hooks/pre-commit",
            "git config core.fsmonitor evil",
            "echo x >> .git/info/exclude",
            "mv .git .git2",
            "rm -rf .git/hooks",
            "mv .git/hooks .git/h2",
            "echo x > .envrc",
            "rm .envrc",
            "mv .envrc other",
            "ln -sf /etc/passwd .envrc",
            "chmod 777 .envrc",
            "echo x > .vscode/tasks.json",
            "rm -r .vscode",
            "mv .vscode v",
        ] {
            fails(&world, attack);
        }
        assert_eq!(fs::read_to_string(world.path("home/app/.envrc")).unwrap(), "echo mine");
        let commit = "git -c user.name=a -c user.email=a@b commit -qm";
        works(&world, &format!("echo 1 > f && git add f && {commit} one && git branch side"));
        let made = "git worktree add -q sub/wt side && cd sub/wt && echo 2 > g && git add g";
        fails(&world, made);
        let world = world.option(&["--unprotect", ".git"]);
        works(&world, &format!("git worktree prune; {made}"));
        works(
            &world,
            &format!("echo 3 > f && git stash -q && git stash pop -q && {commit} two -a"),
        );
        assert_eq!(works(&world, "git log --oneline | wc -l"), "2");
        let status = world.bare(&["git", "status", "--short"]);
        let mut lines: Vec<String> = text(&status).lines().map(str::to_owned).collect();
        lines.sort();
        assert_eq!(lines, ["?? .envrc", "?? .vscode/", "?? sub/"], "nothing may be left behind");
    });
}

#[test]
fn a_linked_worktree_stays_linked_to_its_repository() {
    if !Path::new("/usr/bin/git").exists() && !Path::new("/usr/local/bin/git").exists() {
        return eprintln!("SKIPPED (no git): worktrees");
    }
    everyone(|world| {
        let commit = "git -c user.name=a -c user.email=a@b commit -qm x --allow-empty";
        let worktree = world.path("wt").display().to_string();
        let script = format!("git init -q . && {commit} && git worktree add -q {worktree}");
        let made = world.bare(&["/bin/sh", "-c", &script]);
        assert!(made.status.success(), "{}", text(&made));
        let inside = |script: &str| {
            let mut command = Command::new(world.path("room"));
            let script = format!("cd {worktree} && {script}");
            command.args(["--rw", &worktree, "--project", &worktree, "--cwd", &worktree]);
            command.args(["--", "/bin/sh", "-c", &script]);
            world.prepare(command).output().unwrap()
        };
        let output = inside(&format!("echo 2 > g && git add g && {commit}"));
        assert!(output.status.success(), "{}", text(&output));
        let own = world.path("home/app/.git/worktrees/wt").display().to_string();
        for attack in [
            "echo gitdir: /tmp > .git",
            "mv .git x",
            "rm .git",
            &format!("echo /tmp > {own}/commondir"),
            &format!("rm {own}/commondir"),
            &format!("mv {own} {own}2"),
            &format!("echo x > {own}/../../hooks/pre-commit"),
            &format!("echo x >> {own}/../../config"),
        ] {
            let output = inside(attack);
            assert!(!output.status.success(), "{attack}: {}", text(&output));
        }
    });
}

#[test]
fn an_unprotected_sandbox_may_write_persistence_paths() {
    project(|world| {
        write(&world, "home/app/.envrc", "echo mine");
        let world = world.option(&["--unprotected"]);
        works(&world, "echo x > .envrc");
    });
}

#[test]
fn the_cage_is_hidden_inside_a_granted_tree() {
    project(|world| {
        write(&world, "home/.local/state/clash/secret", "CAGED");
        write(&world, "home/notes", "notes");
        write(&world, "home/app/.claude/settings.json", "{}");
        let home = world.path("home").display().to_string();
        let cage = format!("{home}/.local/state/clash");
        let settings = format!("{home}/app/.claude/settings.json");
        let world = world.option(&["--r", &home, "--cage", &cage, "--cage", &settings]);
        assert_eq!(works(&world, "cat ../notes"), "notes");
        fails(&world, "cat ../.local/state/clash/secret");
        assert_eq!(works(&world, "cat .claude/settings.json"), "{}");
        fails(&world, "echo x > .claude/settings.json");
        fails(&world, "mv .claude c");
    });
}

#[test]
fn a_room_has_its_own_devices_shm_and_tmp() {
    project(|world| {
        works(&world, "head -c4 /dev/urandom > /dev/null && : < /dev/zero && echo x > /dev/shm/f");
        works(
            &world,
            "d=$(mktemp -d) && mkfifo $d/p && echo '#!/bin/sh' > $d/x && chmod +x $d/x && $d/x",
        );
        for name in ["/dev/kmsg", "/dev/kvm", "/dev/vda", "/dev/fuse", "/sys/kernel", "/run"] {
            fails(&world, &format!("test -e {name}"));
        }
        fails(&world, "mknod /tmp/null c 1 3");
        fails(&world, "chmod 600 /dev/null");
        let tmp = world.path("tmp").display().to_string();
        let world = world.option(&["--tmp", &tmp]);
        works(&world, &format!("echo x > {tmp}/f && cat {tmp}/f"));
        assert!(!Path::new(&tmp).exists());
        let name = format!("/tmp/room-test-{}", std::process::id());
        works(&world, &format!("echo x > {name}"));
        assert!(!Path::new(&name).exists());
    });
}

#[test]
fn the_network_is_empty_but_for_its_own_loopback() {
    if python_is_missing() {
        return;
    }
    project(|world| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connect = format!("socket.create_connection(('127.0.0.1', {port})).fileno()");
        assert!(python(&world, &connect, false) >= 0);
        assert_eq!(python(&world, &connect, true), -111);
        let own = "(lambda s: (s.bind(('127.0.0.1', 0)), s.listen(), \
            socket.create_connection(s.getsockname()).fileno())[2])(socket.socket())";
        assert!(python(&world, own, true) >= 0);
        for refused in ["2, 1, 262", "2, 3, 255", "40, 1, 0", "16, 3, 15", "17, 3, 0"] {
            assert_eq!(python(&world, &format!("socket.socket({refused}).fileno()"), true), EACCES);
        }
        let allowed = world.option(&["--net", "allow"]);
        assert!(python(&allowed, &connect, true) >= 0);
    });
}

#[test]
fn a_unix_socket_is_reached_where_a_rule_names_it() {
    if python_is_missing() {
        return;
    }
    project(|world| {
        let listen = |path: &str| {
            let path = world.path(path);
            let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
            (socket, path.display().to_string())
        };
        let connect = |path: &str| format!("socket.socket(socket.AF_UNIX).connect({path:?})");
        let (_own, own) = listen("home/app/s");
        let (_other, other) = listen("home/agent.sock");
        assert_eq!(python(&world, &connect(&other), false), 0);
        assert_eq!(python(&world, &connect(&own), true), EACCES, "no rule names a socket");
        let app = world.project().display().to_string();
        let named = world.option(&["--literal", "rw", &other]);
        assert_eq!(python(&named, &connect(&other), true), 0);
        assert_eq!(python(&named, &connect("/run/docker.sock"), true), -2);
        let lib = named.option(&["--deny", "wcd", &app]);
        assert_eq!(python(&lib, &connect(&other), true), EACCES, "others could be seen");
    });
}

#[test]
fn a_file_on_standard_input_can_be_read_and_not_changed() {
    if python_is_missing() {
        return;
    }
    project(|world| {
        let notes = write(&world, "home/notes", "one\ntwo\nthree\n");
        let redirected = |inner: &str, after: &str| {
            let script = format!("{{ \"$@\"; {after}; }} < {notes}");
            let mut argv = vec!["/bin/bash".to_owned(), "-c".into(), script, "bash".into()];
            argv.extend(world.prefix());
            argv.extend(["/bin/bash".into(), "-c".into(), inner.into()]);
            world.bare(&argv.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let output = redirected("read a; echo \"[$a]\"", "cat");
        assert_eq!(text(&output), "[one]\ntwo\nthree");
        let change = format!("{PYTHON} -c 'import os; os.fchmod(0, 0o777)'");
        assert!(!redirected(&change, "false").status.success());
        assert_ne!(fs::metadata(&notes).unwrap().permissions().mode() & 0o777, 0o777);
        redirected("chmod 777 /proc/self/fd/0", "true");
        assert_ne!(fs::metadata(&notes).unwrap().permissions().mode() & 0o777, 0o777);
    });
}

#[test]
fn a_link_before_a_persistence_path_leads_nowhere() {
    project(|world| {
        write(&world, "home/other/file", "other");
        symlink(world.path("home/other"), world.path("home/app/.vscode")).unwrap();
        fails(&world, "echo x > .vscode/file");
        assert_eq!(fs::read_to_string(world.path("home/other/file")).unwrap(), "other");
    });
}

#[test]
fn nothing_outlives_the_command() {
    project(|world| {
        let script = "for i in 1 2 3; do setsid sh -c 'exec >/dev/null 2>&1 </dev/null; while :; do echo x >> beat; sleep 0.05; done' & done; sleep 0.3";
        works(&world, script);
        let size = || fs::metadata(world.path("home/app/beat")).unwrap().len();
        let before = size();
        assert!(before > 0);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(size(), before);
    });
}

#[test]
fn a_host_without_rooms_holds_the_same_rules() {
    project(|world| {
        write(&world, "home/app/secret/key", "SECRET");
        let secret = world.path("home/app/secret").display().to_string();
        let world = world.option(&["--simulate", "no-userns", "--deny", "rwcdx", &secret]);
        works(&world, "touch ran && mkdir d && mv ran d/ran && rm -r d && touch ran");
        assert!(world.path("home/app/ran").exists());
        let key = world.path("home/.ssh/id_ed25519").display().to_string();
        for attack in [
            "cat secret/key",
            "mv secret s",
            "ln secret/key k",
            "echo x > .envrc",
            "mkdir -p sub/.vscode",
            "git init -q sub",
            &format!("chmod 777 {key}"),
            &format!("touch {key}"),
            &format!("cat {key}"),
        ] {
            fails(&world, attack);
        }
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o644);
    });
}
