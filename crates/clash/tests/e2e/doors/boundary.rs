//! The broker as a boundary: attacks by a hand-made client in place of the door.
//!
//! The client is python, which runs in the room itself. So its program is no door, and the
//! broker must refuse it, whatever it sends. To speak in the name of a door, the client
//! opens the door, keeps the socket, and executes a door.

use std::fs;
use std::process::Stdio;

use super::{POLICY, SYSTEM_PATH, exec_script, with_secrets};
use crate::support::{Machine, Ran, as_each_user, clash, eventually};

/// The machine of the other tests, but python has no rule: the room runs it itself.
fn machine(m: Machine) -> Machine {
    let m = with_secrets(m);
    m.policy(&POLICY.replace("\"python3\": allow(sandbox = tools),", ""))
}

/// Functions of the client.
const CLIENT: &str = r#"
import array, os, socket, struct, sys, time, signal

def visit():
    """Opens the door: a socket to the process that answers this visit."""
    return socket.socket(fileno=os.open("/run/clash/door", os.O_RDWR | os.O_CLOEXEC))

def message(numbers=(), last=1, mask=0):
    return b"D" + bytes([last]) + struct.pack("<Q", mask) + b"".join(struct.pack("<i", n) for n in numbers)

def give(door, data, files=()):
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    door.sendmsg([data], rights)

def answer(door, seconds=30):
    """The next message of the broker; empty if it closed the socket."""
    door.settimeout(seconds)
    try:
        return door.recv(64)
    except ConnectionResetError:
        return b""

def closed(door):
    said = answer(door)
    assert said in (b"", b"X\x7e"), said
"#;

/// Runs python code in the room of the script, with the functions of [`CLIENT`], and then a
/// door: the broker must still answer.
fn attack(m: &Machine, code: &str) {
    attack_that_says(m, code, "");
}

/// As [`attack`], with this output of the code.
fn attack_that_says(m: &Machine, code: &str, says: &str) {
    m.write("app/client.py", &format!("{CLIENT}\n{code}\nprint('over')\n"));
    let ran = exec_script(m, "python3 client.py; head -n 1 ~/secret");
    assert_eq!(ran.stdout, format!("{says}over\nhidden\n"), "{code}: {ran:?}");
}

#[test]
fn a_client_that_is_no_door_is_refused() {
    as_each_user(|m| {
        let m = machine(m);
        for code in [
            // Well-formed, but the kernel says that the caller is no door.
            "d = visit(); give(d, message([0, 1, 2]), [0, 1, 2]); assert answer(d) == b'X\\x7e'",
            // The name in its arguments is no proof.
            "p = os.fork()\n\
             if p == 0:\n    os.execv('/usr/bin/python3', ['/usr/bin/head', '-c', open('client.py').read().split('p = os')[0] + \
             '''\nd = visit(); give(d, message([0, 1, 2]), [0, 1, 2]); assert answer(d) == b\"X\\\\x7e\"'''])\n\
             assert os.waitpid(p, 0)[1] == 0",
            // A signal before anything else, and one to a command that never started.
            "d = visit(); give(d, b'S' + struct.pack('<i', 9)); closed(d)",
            // The door answers each visit once.
            "d = visit(); give(d, message()); closed(d)\n\
             try:\n    give(d, message()); closed(d)\nexcept OSError: pass",
        ] {
            attack(&m, code);
        }
    });
}

#[test]
fn malformed_and_oversized_messages_are_refused() {
    as_each_user(|m| {
        let m = machine(m);
        attack(
            &m,
            "null = os.open('/dev/null', os.O_RDWR)\n\
             cases = [(b'', []), (b'X', []), (b'D', []), (b'D\\x02' + bytes(8), []), (b'S123', []),\n\
             \x20   (message()[:-1], []), (message() + b'x', []), (os.urandom(64), []),\n\
             \x20   (b'D\\x01' + b'a' * 60000, []), (message([1] * 5000), []),\n\
             \x20   (message([0, 1]), [null]), (message([0]), [null, null]), (message([-1]), [null]),\n\
             \x20   (message([0] * 253), [null] * 253), (message([0] * 200), [null] * 253)]\n\
             for data, files in cases:\n\
             \x20   d = visit(); give(d, data, files); closed(d)\n\
             # A number that no table of descriptors has.\n\
             d = visit(); give(d, message([2**31 - 1, 2**20]), [null, null]); closed(d)\n\
             # More descriptors than one process may have.\n\
             d = visit()\n\
             try:\n\
             \x20   for i in range(100): give(d, message(range(200), 0), [null] * 200)\n\
             except OSError: pass\n\
             closed(d)\n",
        );
    });
}

#[test]
fn messages_without_an_end_are_cut_off() {
    as_each_user(|m| {
        let m = machine(m);
        attack(
            &m,
            "d = visit(); start = time.time()\n\
             try:\n\
             \x20   while time.time() - start < 8: give(d, message((), 0))\n\
             except OSError: pass\n\
             assert time.time() - start < 8\n",
        );
    });
}

#[test]
fn descriptors_of_odd_kinds_do_no_harm() {
    as_each_user(|m| {
        let m = machine(m);
        // The socket of another visit, a directory, a file without rights, a pipe that
        // nothing reads, and a socket whose queue is full.
        attack(
            &m,
            "other = visit(); r, w = os.pipe(); os.set_blocking(w, False)\n\
             try:\n\
             \x20   while True: os.write(w, b'x' * 4096)\n\
             except OSError: pass\n\
             a, b = socket.socketpair(); a.setblocking(False)\n\
             try:\n\
             \x20   while True: a.send(b'x' * 4096)\n\
             except OSError: pass\n\
             os.set_blocking(w, True); a.setblocking(True)\n\
             for fd in [other.fileno(), os.open('.', os.O_RDONLY), os.open('/etc/passwd', os.O_PATH), w, a.fileno(), r]:\n\
             \x20   d = visit(); give(d, message([2]), [fd]); closed(d)\n",
        );
    });
}

#[test]
fn a_socket_of_an_earlier_visit_gives_a_door_nothing() {
    as_each_user(|m| {
        let m = machine(m);
        // The client executes a door whose own visit is another one. The replayed message on
        // the earlier socket can only end that visit.
        let code = "d = visit(); os.set_inheritable(d.fileno(), True)\n\
             p = os.fork()\n\
             if p == 0: os.execv('/usr/bin/head', ['head', '-n', '1', os.environ['HOME'] + '/.aws/credentials'])\n\
             give(d, message([0, 1, 2]), [0, 1, 2]); said = answer(d); assert said == b'X\\x7e', said\n\
             assert os.waitpid(p, 0)[1] != 0\n\
             # A door sends descriptors once. A second list ends the command.\n\
             p = os.fork()\n\
             if p == 0:\n\
             \x20   d = visit(); os.set_inheritable(d.fileno(), True); q = os.fork()\n\
             \x20   if q: os.execv('/usr/bin/head', ['head', '-n', '1', os.environ['HOME'] + '/.aws/credentials'])\n\
             \x20   time.sleep(0.3)\n\
             \x20   try: give(d, message([0, 1, 2]), [0, 1, 2]); give(d, message([0, 1, 2]), [0, 1, 2])\n\
             \x20   except OSError: pass\n\
             \x20   os._exit(0)\n\
             os.waitpid(p, 0)\n";
        attack(&m, code);
    });
}

#[test]
fn a_flood_neither_starves_nor_ends_the_broker() {
    as_each_user(|m| {
        let m = machine(m);
        attack_that_says(
            &m,
            "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)\n\
             refused = 0\n\
             # Visits that end at once.\n\
             for i in range(2000):\n\
             \x20   try: visit().close()\n\
             \x20   except OSError: refused += 1\n\
             # Half-open visits of one process, which stay open.\n\
             held = []\n\
             for i in range(3000):\n\
             \x20   try: held.append(visit())\n\
             \x20   except OSError: refused += 1\n\
             # A door of the same room still opens.\n\
             p = os.fork()\n\
             if p == 0: os.execv('/usr/bin/head', ['head', '-n', '1', os.environ['HOME'] + '/secret'])\n\
             assert os.waitpid(p, 0)[1] == 0\n\
             # Half-open visits of many processes.\n\
             others = []\n\
             for i in range(100):\n\
             \x20   p = os.fork(); others.append(p)\n\
             \x20   if p == 0: d = visit(); time.sleep(60)\n\
             p = os.fork()\n\
             if p == 0: os.execv('/usr/bin/head', ['head', '-n', '1', os.environ['HOME'] + '/secret'])\n\
             assert os.waitpid(p, 0)[1] == 0\n\
             for p in others: os.kill(p, 9)\n",
            "hidden\nhidden\n",
        );
    });
}

/// The children of a process that are clash itself and stand in the root directory: the
/// broker.
pub(super) fn broker_of(launcher: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children"));
    let children = children.unwrap_or_default();
    let mut children = children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok());
    children.find(|pid| {
        let link = |name: &str| fs::read_link(format!("/proc/{pid}/{name}")).unwrap_or_default();
        link("exe").ends_with("clash") && link("cwd") == std::path::Path::new("/")
    })
}

#[test]
fn without_its_broker_a_door_stays_closed() {
    as_each_user(|m| {
        let m = machine(m);
        let script = "touch up; until test -e go; do sleep 0.05; done; head -n 1 ~/secret; \
                      echo $?; make -s; cat Makefile";
        m.write("app/Makefile", "all:\n\t@git push; echo $$?\n");
        let mut command = m.command(clash());
        command.env("PATH", SYSTEM_PATH).args(["exec", "--", "bash", "-c", script]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        eventually("the script runs", || m.project().join("up").exists());
        let broker = broker_of(child.id()).unwrap();
        Ran::of(std::process::Command::new("kill").args(["-9", &broker.to_string()])).succeeds();
        m.write("app/go", "");
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!(ran.stdout, "126\n126\nall:\n\t@git push; echo $$?\n", "{ran:?}");
        assert!(ran.stderr.contains("was not run"), "{ran:?}");
    });
}

#[test]
fn the_path_of_a_door_leads_nowhere_outside_its_room() {
    as_each_user(|m| {
        let m = machine(m);
        let outside = Ran::of(m.command("python3").args(["-c", "open('/run/clash/door')"]));
        assert!(outside.stderr.contains("FileNotFoundError"), "{outside:?}");
        // A sandbox in which no program has a door.
        let none = "load(\"@clash//sandboxes.star\", \"project\")\n\
                    settings(default = allow(), default_sandbox = project)\n";
        let m = m.policy(none);
        let ran = exec_script(&m, "python3 -c \"open('/run/clash/door', 'r+')\"");
        assert!(ran.stderr.contains("Error") && ran.code == Some(1), "{ran:?}");
    });
}

#[test]
fn other_ways_to_the_socket_of_the_broker_are_closed() {
    as_each_user(|m| {
        let m = machine(m);
        // Only `open` leads to the broker, and the room shows no process of clash but its
        // first one.
        attack(
            &m,
            "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
             for path in ['/run/clash/door', '\\0/run/clash/door']:\n\
             \x20   try: s.connect(path); assert False, path\n\
             \x20   except OSError: pass\n\
             for pid in os.listdir('/proc'):\n\
             \x20   if not pid.isdigit(): continue\n\
             \x20   name = open(f'/proc/{pid}/comm').read()\n\
             \x20   assert not name.startswith('clash') or pid == '1', name\n",
        );
    });
}

#[test]
fn a_door_is_no_way_around_limits() {
    as_each_user(|m| {
        let m = machine(m);
        // Limits of the caller hold behind the door, and the caller cannot raise them again.
        let policy = POLICY.replace(
            "keys = sandbox",
            "small = sandbox(name = \"small\", \
             default = deny(), fs = _own, limits = {\"file_size\": \"1M\"})\nkeys = sandbox",
        );
        let policy =
            policy.replace("\"wc\": ask(),", "\"wc\": ask(), \"perl\": allow(sandbox = small),");
        let m = m.policy(&policy);
        let write = |bytes: u32| {
            format!(
                "perl -e '$SIG{{XFSZ}} = \"IGNORE\"; open F, \">\", \"big\"; syswrite F, \"x\" x {bytes}; close F'"
            )
        };
        // The limit of the sandbox behind the door.
        let ran =
            exec_script(&m, &format!("{}; stat -c %s big; head -n 1 ~/secret", write(3_000_000)));
        assert_eq!(ran.stdout, "1048576\nhidden\n", "{ran:?}");
        // A stricter limit of the caller.
        let ran = exec_script(
            &m,
            &format!("(ulimit -f 4; {}); stat -c %s big; head -n 1 ~/secret", write(3_000_000)),
        );
        assert_eq!(ran.stdout, "4096\nhidden\n", "{ran:?}");
        // A larger one of the caller does not widen that of the sandbox.
        let ran = exec_script(
            &m,
            &format!(
                "ulimit -f unlimited; {}; stat -c %s big; head -n 1 ~/secret",
                write(3_000_000)
            ),
        );
        assert_eq!(ran.stdout, "1048576\nhidden\n", "{ran:?}");
    });
}
