//! The monitor on the real kernel: names that appear while a command runs, races against
//! the monitor, and the calls that ordinary programs make. In rooms and without, as root
//! and as a plain user.
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
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::*;

#[test]
fn what_calls_mean_is_what_they_always_meant() {
    if python_is_missing() {
        return;
    }
    each_tier(|world| {
        let script = r"
import errno, fcntl, mmap, os, socket, stat, subprocess, sys, tempfile, threading
def refused(number, f, *args, **named):
    try: f(*args, **named)
    except OSError as e: assert e.errno == number, (e, number)
    else: raise AssertionError(f)
os.umask(0o027)
f = os.open('new', os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o666)
assert stat.S_IMODE(os.fstat(f).st_mode) == 0o640
assert not fcntl.fcntl(f, fcntl.F_GETFD) & 0 and os.get_inheritable(f) is False
assert os.write(f, b'text') == 4 and os.pread(f, 4, 0) == b'text'
refused(errno.EEXIST, os.open, 'new', os.O_CREAT | os.O_EXCL)
refused(errno.ENOENT, os.open, 'missing', os.O_WRONLY)
refused(errno.ENOENT, os.open, 'missing/x', os.O_WRONLY | os.O_CREAT)
refused(errno.ENOTDIR, os.open, 'new/x', os.O_WRONLY | os.O_CREAT)
refused(errno.EISDIR, os.open, '.', os.O_WRONLY)
os.mkdir('dir', 0o777)
assert stat.S_IMODE(os.stat('dir').st_mode) == 0o750
refused(errno.EEXIST, os.mkdir, 'dir')
refused(errno.EEXIST, os.mkdir, '/')
os.makedirs('dir/a/b'); os.makedirs('dir/a/b', exist_ok=True)
refused(errno.ENOTEMPTY, os.rmdir, 'dir')
refused(errno.ENOENT, os.unlink, 'missing')
refused(errno.EISDIR, os.unlink, 'dir')
refused(errno.ENOTDIR, os.rmdir, 'new')
os.symlink('new', 'link')
refused(errno.ELOOP, os.open, 'link', os.O_WRONLY | os.O_NOFOLLOW)
g = os.open('link', os.O_WRONLY | os.O_APPEND)
assert os.write(g, b'more') == 4 and os.stat('new').st_size == 8
os.symlink('made by link', 'dangling')
os.close(os.open('dangling', os.O_CREAT | os.O_WRONLY)); assert os.path.exists('made by link')
os.symlink('loop', 'loop'); refused(errno.ELOOP, os.open, 'loop', os.O_WRONLY)
d = os.open('dir', os.O_RDONLY | os.O_DIRECTORY)
os.close(os.open('at', os.O_CREAT | os.O_WRONLY, dir_fd=d)); assert os.path.exists('dir/at')
os.rename('at', 'at2', src_dir_fd=d, dst_dir_fd=d); os.unlink('at2', dir_fd=d)
os.link('new', 'hard'); assert os.stat('new').st_nlink == 2
os.replace('hard', 'dir/hard'); os.unlink('dir/hard')
os.truncate('new', 2); assert os.stat('new').st_size == 2
os.chmod('new', 0o600); os.fchmod(f, 0o644); os.utime('new', (5, 6)); os.utime(f)
assert os.stat('new').st_mtime > 6
refused(errno.EPERM, os.chmod, 'new', 0o4755)
t = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600)
os.write(t, b'unnamed')
os.link('/proc/self/fd/%d' % t, 'named', follow_symlinks=True)
assert open('named').read() == 'unnamed'
os.close(os.open('/dev/null', os.O_WRONLY));
with open('prog', 'wb') as p: p.write(open('/bin/true', 'rb').read())
os.chmod('prog', 0o755); subprocess.run(['./prog'], check=True)
for _ in range(50):
    with open('prog2', 'w') as p: p.write('#!/bin/sh\n')
    os.chmod('prog2', 0o755); subprocess.run(['./prog2'], check=True); os.unlink('prog2')
def work(n):
    for i in range(40):
        with open('t%d-%d' % (n, i), 'w') as h: h.write(str(i))
        os.rename('t%d-%d' % (n, i), 'r%d-%d' % (n, i)); os.unlink('r%d-%d' % (n, i))
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
for n in range(8):
    if os.fork() == 0: work(n); os._exit(0)
assert all(os.wait()[1] == 0 for n in range(8))
def nested(n):
    if n == 0: work(9); return 0
    pid = os.fork()
    if pid == 0: os._exit(nested(n - 1))
    return os.waitpid(pid, 0)[1]
assert nested(20) == 0
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
refused(errno.EMFILE, lambda: [os.open('new', os.O_WRONLY) for _ in range(40)])
print('fine')
";
        let output = world.run(&[PYTHON, "-c", script]);
        assert_eq!(text(&output), "fine", "{:?}", world.options);
    });
}

#[test]
fn a_fifo_blocks_no_other_call() {
    if python_is_missing() {
        return;
    }
    let script = r"
import os, signal, threading, time
d = os.environ['D']
os.mkfifo(d + '/pipe')
got = []
def write():
    with open(d + '/pipe', 'w') as p: p.write('through')
writers = threading.Thread(target=write); writers.start()
for i in range(20):
    with open('f%d' % i, 'w') as f: f.write('x')
    os.unlink('f%d' % i)
with open(d + '/pipe') as p: got.append(p.read())
writers.join()
# A waiting process can be killed.
pid = os.fork()
if pid == 0:
    os.open(d + '/pipe', os.O_WRONLY); os._exit(0)
time.sleep(0.2); os.kill(pid, signal.SIGKILL); assert os.waitpid(pid, 0)[1] == 9
try: os.open(d + '/pipe', os.O_WRONLY | os.O_NONBLOCK)
except OSError as e: got.append(e.errno)
os.unlink(d + '/pipe')
print(got)
";
    for who in identities() {
        let world = World::new(who).option(&["--simulate", "no-userns"]);
        let sticky = world.path("sticky");
        fs::create_dir(&sticky).unwrap();
        fs::set_permissions(&sticky, fs::Permissions::from_mode(0o1777)).unwrap();
        let sticky = sticky.display().to_string();
        let rooms = World::beside(&world);
        let script = script.replace("os.environ['D']", &format!("{sticky:?}"));
        for world in [world, rooms] {
            let world = world.option(&["--rw", &sticky]);
            let output = world.run(&[PYTHON, "-c", &script]);
            assert_eq!(text(&output), "['through', 6]", "{:?}", world.options);
        }
    }
}

#[test]
fn a_terminal_is_the_callers_own() {
    if python_is_missing() {
        return;
    }
    let outside = r"
import os, pty, sys
pid, fd = pty.fork()
if pid == 0: os.execv(sys.argv[1], sys.argv[1:])
out = b''
while True:
    try: piece = os.read(fd, 1000)
    except OSError: break
    if not piece: break
    out += piece
os.waitpid(pid, 0)
print(out.decode().replace('\r', ''), end='')
";
    let inside = "echo one > /dev/tty; echo two > /dev/stderr; \
         setsid -w sh -c 'echo three > /dev/tty' 2>/dev/null || echo none";
    each_tier(|world| {
        let mut argv = vec![PYTHON.to_owned(), "-c".to_owned(), outside.to_owned()];
        argv.extend(world.prefix());
        argv.extend(["/bin/sh", "-c", inside].map(str::to_owned));
        let output = world.bare(&argv.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(text(&output), "one\ntwo\nnone", "{:?}", world.options);
    });
}

#[test]
fn denied_names_hold_for_files_that_come_later() {
    each_tier(|world| {
        let app = world.project().display().to_string();
        let world = world.option(&["--deny-glob", "rwcd", &app, "**/.env"]);
        works(&world, "mkdir -p a/b; echo 1 > a/env");
        for attack in ["echo x > .env", "echo x > a/b/.env", "mv a/env a/.env", "ln a/env .env"] {
            fails(&world, attack);
        }
        // A process outside makes one while a command runs.
        let prefix = world.prefix();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).args([
            "sh",
            "-c",
            "while ! [ -e a/b/.env ]; do sleep 0.05; done; cat a/b/.env; cp a/b/.env x; \
             mv a/b/.env y; ln a/b/.env z; ln -s a/b/.env l; cat l; cat a/env",
        ]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let child = world.prepare(command).spawn().unwrap();
        let env = world.path("home/app/a/b/.env");
        fs::write(world.path("home/app/new"), "SECRET").unwrap();
        fs::set_permissions(world.path("home/app/new"), fs::Permissions::from_mode(0o666)).unwrap();
        fs::rename(world.path("home/app/new"), &env).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(text(&output), "1", "{:?}", world.options);
        assert_eq!(fs::read_to_string(&env).unwrap(), "SECRET");
    });
}

#[test]
fn rights_to_write_create_and_delete_are_apart() {
    each_tier(|world| {
        works(&world, "mkdir log keep && echo 1 > log/old && echo 1 > keep/old");
        let app = world.project().display().to_string();
        let world = world.option(&["--deny", "d", &format!("{app}/log")]);
        let world = world.option(&["--deny", "wc", &format!("{app}/keep")]);
        works(&world, "echo 2 >> log/old && echo 1 > log/new");
        for attack in ["rm log/old", "mv log/old log/x", "mv log l", "echo > keep/new"] {
            fails(&world, attack);
        }
        fails(&world, "echo 2 >> keep/old");
        fails(&world, "chmod 777 keep/old");
        works(&world, "rm keep/old");
    });
}

/// Exchanges a directory for a link to a protected one, from outside, because the link
/// cannot be made inside.
const SWAP: &str = r"
import os
os.makedirs('swap', exist_ok=True); os.symlink('.git/hooks', 'swap-link')
while True:
    try:
        os.rename('swap', 'swap-dir'); os.rename('swap-link', 'swap')
        os.rename('swap', 'swap-link'); os.rename('swap-dir', 'swap')
    except OSError: pass
";

/// Threads exchange the text of a path, and directories for links, while others use them. A
/// refused path is never reached.
#[test]
fn nothing_refused_is_reached_by_a_race() {
    if python_is_missing() {
        return;
    }
    let script = r"
import ctypes, os, threading, time
libc = ctypes.CDLL(None, use_errno=True)
stop = time.time() + 2
text = ctypes.create_string_buffer(b'okay/target_file', 64)
good, bad = b'okay/target_file\0', b'.git/hooks/target\0'
def flip():
    while time.time() < stop:
        ctypes.memmove(text, bad, len(bad)); ctypes.memmove(text, good, len(good))
os.makedirs('okay', exist_ok=True)
count = [0, 0]
def use():
    while time.time() < stop:
        for call in (
            lambda: libc.open(text, os.O_CREAT | os.O_WRONLY, 0o644),
            lambda: libc.openat(-100, text, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644),
            lambda: libc.truncate(text, ctypes.c_long(0)),
            lambda: libc.chmod(text, 0o777),
            lambda: libc.unlink(text),
            lambda: libc.open(b'swap/inner', os.O_CREAT | os.O_WRONLY, 0o644),
            lambda: libc.mkdir(b'swap/dir', 0o755),
            lambda: libc.rename(b'swap/inner', b'swap/moved'),
            lambda: libc.link(b'swap/moved', b'swap/linked'),
            lambda: libc.unlink(b'swap/linked'),
            lambda: libc.rmdir(b'swap/dir'),
        ):
            r = call(); count[r >= 0] += 1
            if r > 2: os.close(r)
threads = [threading.Thread(target=t) for t in (flip, flip, use, use, use)]
[t.start() for t in threads]; [t.join() for t in threads]
print(min(count[0], 1), min(count[1], 1))
";
    each_tier(|world| {
        let hooks = world.path("home/app/.git/hooks");
        fs::create_dir_all(&hooks).unwrap();
        fs::write(hooks.join("target"), "before").unwrap();
        fs::set_permissions(hooks.join("target"), fs::Permissions::from_mode(0o644)).unwrap();
        for path in ["home/app/.git", "home/app/.git/hooks", "home/app/.git/hooks/target"] {
            if world.who.is_some() {
                std::os::unix::fs::chown(world.path(path), world.who, world.who).unwrap();
            }
        }
        let mut swapping = Command::new(PYTHON);
        swapping.args(["-c", SWAP]);
        let mut swapping = world.prepare(swapping).spawn().unwrap();
        let output = world.run(&[PYTHON, "-c", script]);
        swapping.kill().unwrap();
        swapping.wait().unwrap();
        assert_eq!(text(&output), "1 1", "{:?}", world.options);
        assert_eq!(names(&hooks), ["target"], "{:?}", world.options);
        assert_eq!(fs::read_to_string(hooks.join("target")).unwrap(), "before");
        let mode = fs::metadata(hooks.join("target")).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o644);
    });
}

#[test]
fn a_killed_launcher_leaves_nothing_and_permits_nothing() {
    each_tier(|world| {
        for after in [0, 1, 2, 3, 5, 8, 13, 40, 80] {
            let prefix = world.prefix();
            let mut command = Command::new(&prefix[0]);
            let script = "trap '' HUP; mkdir .vscode; while :; do echo x > .envrc; done";
            command.args(&prefix[1..]).args(["sh", "-c", script]).stderr(Stdio::null());
            let mut launcher = world.prepare(command).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(after));
            launcher.kill().unwrap();
            launcher.wait().unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
        assert!(names(&world.project()).is_empty(), "{:?}", names(&world.project()));
    });
}

#[test]
fn without_a_room_orphans_end_with_the_command() {
    for who in identities() {
        let world = World::new(who).option(&["--simulate", "no-userns"]);
        let script = "for i in 1 2 3; do (setsid sh -c 'exec >/dev/null 2>&1 </dev/null; \
             while :; do echo x >> beat; sleep 0.05; done' &) ; done; \
             while ! [ -s beat ]; do sleep 0.02; done";
        works(&world, script);
        let size = || fs::metadata(world.path("home/app/beat")).unwrap().len();
        let before = size();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(size(), before);
        let world = world.option(&["--limit", "wall", "1"]);
        let start = Instant::now();
        assert_eq!(world.sh("sleep 60 & sleep 60").status.code(), Some(124));
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}

/// The monitor opens files for the command, and it is part of the launcher. Files that the
/// kernel shows only to the process itself must not become the launcher's.
#[test]
fn the_launcher_is_not_looked_into_through_its_own_monitor() {
    each_tier(|world| {
        let app = world.project().display().to_string();
        let world = world.option(&["--deny-glob", "r", &app, "**/.env"]);
        for name in ["environ", "mem", "maps", "auxv", "task/$PPID/environ", "fd/0", "cwd/plain"] {
            fails(&world, &format!("head -c 1 /proc/$PPID/{name}"));
        }
    });
}

/// Disables new user namespaces, as a container does, and executes the command.
const WITHOUT_NAMESPACES: &str = r"
import ctypes, os, sys
libc = ctypes.CDLL(None)
user, group = os.getuid(), os.getgid()
libc.prctl(4, 1, 0, 0, 0)
if libc.unshare(0x10000000) != 0: sys.exit(77)
for file, text in (('/proc/self/setgroups', 'deny'), ('/proc/self/uid_map', f'{user} {user} 1'),
                   ('/proc/self/gid_map', f'{group} {group} 1'),
                   ('/proc/sys/user/max_user_namespaces', '0')):
    with open(file, 'w') as f: f.write(text)
os.execv(sys.argv[1], sys.argv[1:])
";

#[test]
fn where_no_namespaces_can_be_made_the_same_holds() {
    if python_is_missing() {
        return;
    }
    for who in identities().into_iter().filter(Option::is_some) {
        let world = World::new(who);
        let (app, home) = (world.project(), world.path("home"));
        let places = ["--project", app.to_str().unwrap(), "--home", home.to_str().unwrap()];
        let world = world.option(&places);
        let inside = |script: &str| {
            let mut argv = vec![PYTHON.to_owned(), "-c".to_owned(), WITHOUT_NAMESPACES.to_owned()];
            argv.extend(world.prefix());
            argv.extend(["/bin/sh", "-c", script].map(str::to_owned));
            world.bare(&argv.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let output = inside("echo 1 > f && cat f");
        if output.status.code() == Some(77) {
            return eprintln!("SKIPPED (no user namespaces): a host without them");
        }
        assert_eq!(text(&output), "1");
        for attack in ["echo x > .envrc", "mkdir .vscode", "chmod 700 ..", "cat ../.ssh/*"] {
            assert!(!inside(attack).status.success(), "{attack}");
        }
    }
}

/// No file or directory gets a bit that changes the user or group.
#[test]
fn no_bit_that_changes_identity_can_be_set() {
    if python_is_missing() {
        return;
    }
    let script = r"
import errno, os, stat
def refused(f, *args):
    try: f(*args)
    except OSError as e: assert e.errno == errno.EPERM, (e, args)
    else: raise AssertionError(args)
open('f', 'w').close(); os.mkdir('d')
for mode in (0o2755, 0o4755, 0o6755, 0o1644):
    refused(os.chmod, 'f', mode)
    refused(os.open, 'new', os.O_CREAT | os.O_WRONLY, mode)
    refused(os.open, '.', os.O_TMPFILE | os.O_WRONLY, mode)
    refused(os.mknod, 'node', mode | stat.S_IFREG)
fd = os.open('f', os.O_RDONLY)
refused(os.fchmod, fd, 0o2755)
refused(os.chmod, 'd', 0o2755)
os.chmod('d', 0o1777); os.mkdir('sticky', 0o1777); os.mkdir('group', 0o2755)
assert not os.stat('group').st_mode & stat.S_ISGID
for kind in (stat.S_IFCHR, stat.S_IFBLK):
    try: os.mknod('device', kind | 0o600, os.makedev(1, 3))
    except OSError as e: assert e.errno in (errno.EPERM, errno.EACCES), e
    else: raise AssertionError(kind)
# A directory that has the bit from the one it is in keeps it.
os.mkdir('shared/in'); os.chmod('shared/in', 0o2775); os.chmod('shared', 0o2755)
assert os.stat('shared/in').st_mode & stat.S_ISGID
print('fine')
";
    each_tier(|world| {
        assert!(
            world.bare(&["/bin/sh", "-c", "mkdir shared && chmod 2755 shared"]).status.success()
        );
        assert_eq!(text(&world.run(&[PYTHON, "-c", script])), "fine", "{:?}", world.options);
    });
}

/// Without a room no `nodev` mount disables a device.
#[test]
fn a_device_in_the_project_is_not_opened() {
    each_tier(|world| {
        let mut made = Command::new("mknod");
        let node = world.project().join("zero");
        let made = made.arg(&node).args(["c", "1", "5"]).stderr(Stdio::null()).status();
        if !made.is_ok_and(|status| status.success()) {
            return eprintln!("SKIPPED (no right to make devices): a device in the project");
        }
        fs::set_permissions(&node, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(world.bare(&["head", "-c1", "zero"]).status.success(), "it is a device outside");
        for attack in
            ["head -c1 zero", "echo x > zero", "ln zero z && head -c1 z", "mv zero z; head -c1 z"]
        {
            fails(&world, attack);
        }
        works(&world, "echo x > /dev/null && head -c1 /dev/zero");
    });
}

/// The holder of the lease learns that another process waits, makes another watched call,
/// and only then releases the lease.
#[test]
fn a_lease_keeps_only_those_waiting_who_open_the_file() {
    const LEASE: &str = r"
import errno, fcntl, os, select, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
held = os.open('file', os.O_RDONLY)
try: fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_RDLCK)
except OSError as e:
    if e.errno != errno.EINVAL: raise
    print('none'); raise SystemExit
told, tells = os.pipe()
if os.fork() == 0:
    flags = fcntl.fcntl(os.open('file', os.O_WRONLY | os.O_APPEND), fcntl.F_GETFL)
    os.write(tells, b'%d' % (flags & (os.O_NONBLOCK | os.O_APPEND) == os.O_APPEND)); os._exit(0)
signal.sigwait([signal.SIGIO])
open('other', 'w').close()
early = select.select([told], [], [], 0)[0]
fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_UNLCK)
print('early' if early else 'late', os.read(told, 1).decode())
print(fcntl.fcntl(os.open('file', os.O_RDWR), fcntl.F_GETFL) & os.O_NONBLOCK)
";
    if python_is_missing() {
        return;
    }
    each_tier(|world| {
        let file = world.project().join("file");
        fs::write(&file, "").unwrap();
        std::os::unix::fs::chown(&file, world.who, world.who).unwrap();
        let told = text(&world.run(&[PYTHON, "-c", LEASE]));
        if told == "none" {
            return eprintln!("SKIPPED (no leases on this filesystem): whom they keep waiting");
        }
        assert_eq!(told, "late 1\n0", "{:?} as {:?}", world.options, world.who);
    });
}

/// The monitor remembers umasks, and changes open files without a judgement.
#[test]
fn umask_and_open_files_are_the_callers_own() {
    if python_is_missing() {
        return;
    }
    each_tier(|world| {
        let script = r"
import os, stat, threading, errno
def made(name): os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o666)); return stat.S_IMODE(os.stat(name).st_mode)
for n in range(200):
    mask = [0o077, 0o022, 0o002][n % 3]
    os.umask(mask)
    assert made('f%d' % n) == 0o666 & ~mask, n
os.umask(0o022)
if os.fork() == 0:
    os.umask(0)
    os._exit(0 if made('child') == 0o666 else 1)
assert os.wait()[1] == 0 and made('parent') == 0o644
done = []
def other():
    os.umask(0o027); done.append(made('thread'))
t = threading.Thread(target=other); t.start(); t.join()
assert done == [0o640] and made('after') == 0o640
f = os.open('new', os.O_CREAT | os.O_WRONLY, 0o600)
os.fchmod(f, 0o755); assert stat.S_IMODE(os.stat('new').st_mode) == 0o755
os.utime(f, (5, 6)); assert os.stat('new').st_mtime == 6
for mode in (0o4755, 0o2755, 0o1755):
    try: os.fchmod(f, mode); raise AssertionError(mode)
    except PermissionError: pass
r = os.open('/etc/passwd', os.O_RDONLY)
for change in (lambda: os.fchmod(r, 0o777), lambda: os.utime(r), lambda: os.fchown(r, -1, -1)):
    try: change(); raise AssertionError(change)
    except OSError: pass
print('fine')
";
        let output = world.run(&[PYTHON, "-c", script]);
        assert_eq!(text(&output), "fine", "{:?} {output:?}", world.options);
    });
}
