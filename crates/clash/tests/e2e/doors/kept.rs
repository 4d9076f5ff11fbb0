//! Rooms that are kept for further commands behind doors.
//!
//! One command after the other gets the room, and only if the earlier one has left nothing in
//! it. The process number tells: a new room gives its first command the number 2.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use super::{SAME_AS_OUTSIDE, SYSTEM_PATH, exec_script, with_secrets};
use crate::support::{Machine, Ran, as_each_user, clash, copy_program, eventually};

/// `perl` and `python3.11` have a sandbox of their own, and `python3` has no rule. A file of
/// the project is denied, whether it exists or not.
const KEPT_POLICY: &str = r#"
load("@clash//sandboxes.star", "project")
settings(default = allow(), default_sandbox = project)
_own = {subpath("$PWD"): allow(FULL), "$TMPDIR": allow(FULL)}
tools = sandbox(
    name = "tools",
    default = deny(),
    fs = _own | {literal("$PWD/denied"): deny(), literal("$HOME/secret"): allow("r")},
)
when({"Bash": {("perl", "python3.11"): allow(sandbox = tools)}})
"#;

fn kept_machine(m: Machine) -> Machine {
    let m = m.policy(KEPT_POLICY);
    m.write("secret", "first\n");
    m
}

/// Runs a script whose shell has another sandbox than `perl`.
fn mixed(m: &Machine, text: &str) -> Ran {
    exec_script(m, &format!("cat /dev/null; {text}; cat /dev/null"))
}

/// A command that writes its process number.
const NUMBER: &str = "perl -e 'print \"$$\\n\"'";

fn numbers_of(ran: &Ran) -> Vec<u32> {
    ran.stdout.lines().filter_map(|line| line.parse().ok()).collect()
}

#[test]
fn further_commands_behind_a_door_share_a_room() {
    as_each_user(|m| {
        let m = kept_machine(m);
        // On a busy machine a room may not be ready in time for the next command.
        let (most, ran) = (0..10)
            .map(|_| {
                let ran = mixed(&m, &format!("{NUMBER}; {NUMBER}; (cd /; {NUMBER}); {NUMBER}"));
                (numbers_of(&ran).into_iter().max().unwrap_or_default(), ran)
            })
            .max_by_key(|(most, _)| *most)
            .unwrap();
        assert_eq!(most, 5, "{ran:?}");
        // Commands at the same time have rooms of their own.
        let ran = mixed(&m, &format!("{NUMBER}; {NUMBER} | perl -e 'print <STDIN>, \"$$\\n\"'"));
        assert!(numbers_of(&ran).iter().filter(|number| **number == 2).count() >= 2, "{ran:?}");
        // The streams of a room with a file belong to one command.
        let ran = mixed(&m, &format!("{NUMBER}; {NUMBER} > out; cat out"));
        assert_eq!(ran.stdout, "2\n2\n", "{ran:?}");
        // The caller's limits are those of the room's launcher too.
        let ran = mixed(&m, &format!("{NUMBER}; ulimit -n 64; {NUMBER}"));
        assert_eq!(ran.stdout, "2\n2\n", "{ran:?}");
    });
}

#[test]
fn a_further_command_behaves_as_outside() {
    as_each_user(|m| {
        let m = with_secrets(m);
        let earlier = "python3 -c ''\nhead -n 0 /dev/null\nprintenv NONE";
        for script_text in SAME_AS_OUTSIDE {
            let text = format!("{earlier}\n{script_text}\ncat /dev/null");
            let outside = Ran::of(m.command("bash").env("PATH", SYSTEM_PATH).args(["-c", &text]));
            let inside = exec_script(&m, &text);
            assert_eq!(
                (&inside.stdout, inside.code),
                (&outside.stdout, outside.code),
                "{script_text}\n{inside:?}\n{outside:?}"
            );
        }
    });
}

/// Commands after which the room is given up, each with a second command that would notice.
const LEFT_BEHIND: [(&str, &str); 7] = [
    (
        "fork or do { close STDOUT; close STDERR; sleep 2 }",
        "print 'gone' unless grep { m,(\\d+)$, && $1 != 1 && $1 != $$ } glob '/proc/[0-9]*'",
    ),
    ("open F, \">\", \"/dev/shm/x\"", "-e '/dev/shm/x' or print 'gone'"),
    (
        "mkdir '/dev/shm/d'; rmdir '/dev/shm/d'; chmod 0700, '/dev/shm'",
        "print 'gone' if ((stat '/dev/shm')[2] & 07777) != 0700",
    ),
    (
        "open F, \">\", \"/var/tmp/x\"; open F, \">\", \"/tmp/x\"",
        "-e '/tmp/x' or -e '/var/tmp/x' or print 'gone'",
    ),
    ("shmget 7, 4096, 01600 or die", "print 'gone' unless defined shmget 7, 4096, 0600"),
    ("msgget 7, 01600 // die", "print 'gone' unless defined msgget 7, 0600"),
    ("semget 7, 1, 01600 // die", "print 'gone' unless defined semget 7, 1, 0600"),
];

#[test]
fn a_further_command_finds_nothing_of_the_earlier() {
    as_each_user(|m| {
        let m = kept_machine(m);
        for (first, second) in LEFT_BEHIND {
            // The second and the third command could both be in a kept room.
            let text = format!(
                "perl -e ''; TMPDIR=/nowhere perl -e '{}'; perl -e '{}'; rm -rf /tmp/x",
                first.replace('\'', "\""),
                second.replace('\'', "\"")
            );
            let ran = mixed(&m, &text);
            assert_eq!(ran.stdout, "gone", "{text}: {ran:?}");
        }
    });
}

/// Passes a listening socket out of the room of the first command. The second command must not
/// reach it: the room's network would then belong to both.
const SMUGGLE: &str = r#"
import array, os, socket, subprocess as s, sys
outer, inner = socket.socketpair()
os.set_inheritable(inner.fileno(), True)
first = """
import array, socket, sys
l = socket.socket(); l.bind(('127.0.0.1', 4321)); l.listen()
o = socket.socket(fileno=int(sys.argv[1]))
o.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [l.fileno()]))])
"""
second = """
import os, socket
c = socket.socket(); c.settimeout(2)
print(os.getpid(), c.connect_ex(('127.0.0.1', 4321)) != 0, flush=True)
"""
door = '/usr/bin/python3.11'
s.run([door, '-c', '1'])
s.run([door, '-c', first, str(inner.fileno())], close_fds=False)
message, data, _, _ = outer.recvmsg(1, 64)
held = array.array('i', data[0][2])
s.run([door, '-c', second])
print(len(held))
"#;

#[test]
fn a_socket_that_left_the_room_ends_it() {
    as_each_user(|m| {
        let m = kept_machine(m);
        m.write("app/smuggle.py", SMUGGLE);
        // A copy has no door.
        copy_program("/usr/bin/python3.11", m.project().join("py"));
        let ran = mixed(&m, "./py smuggle.py");
        assert_eq!(ran.stdout, "2 True\n1\n", "{ran:?}");
    });
}

#[test]
fn a_kept_room_shows_the_files_of_now() {
    as_each_user(|m| {
        let m = kept_machine(m);
        // A denied file that did not exist when the room was made.
        let look = "perl -e 'print open(F, \"<denied\") ? \"open\\n\" : \"closed\\n\"'";
        let ran = mixed(&m, &format!("{look}; echo x > denied; cat denied; {look}"));
        assert_eq!(ran.stdout, "closed\nx\nclosed\n", "{ran:?}");
        // A granted file that is replaced.
        let show = "perl -pe '' ~/secret";
        let script =
            format!("{show}; touch up; until test -e go; do sleep 0.05; done; {show}; true");
        let mut command = m.command(clash());
        command.env("PATH", SYSTEM_PATH).args(["exec", "--", "bash", "-c", &script]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        eventually("the script runs", || m.project().join("up").exists());
        let new = m.write("new", "second\n");
        fs::rename(new, m.home().join("secret")).unwrap();
        m.write("app/go", "");
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!(ran.stdout, "first\nsecond\n", "{ran:?}");
    });
}

#[test]
fn the_monitor_forgets_what_an_earlier_command_made() {
    as_each_user(|m| {
        let m = kept_machine(m);
        // The command that makes an environment may write its scripts, and no other may.
        let text = "perl -e 'mkdir \"v\"; mkdir \"v/bin\"; open F, \">v/pyvenv.cfg\"; \
                    open F, \">v/bin/activate\" or die; print F \"1\"; close F; \
                    open F, \">>v/bin/activate\" or die; print \"own\\n\"'; \
                    perl -e 'open F, \">>v/bin/activate\" or print \"closed $$\\n\"'";
        let ran = mixed(&m, text);
        assert!(ran.stdout.starts_with("own\nclosed"), "{ran:?}");
    });
}

/// Attacks of one command on the process that keeps the room. Each must leave the next command
/// as it would be.
const ATTACKS_ON_THE_KEEPER: [&str; 8] = [
    "kill 9, 1; kill 9, -1; kill 19, -1",
    "kill 9, 0",
    "kill 19, 1",
    "for (1..400) { kill 9, $_ if $_ != $$ }",
    // ptrace(PTRACE_SEIZE) of every process
    "for (0..400) { syscall 101, 0x4206, $_, 0, 0 }",
    "for (glob \"/proc/[0-9]*/mem\") { open F, \"+<\", $_ and !m,/$$/, and print \"open $_\" }",
    "for (glob \"/proc/1/fd/*\") { open F, \"<\", $_ and print \"open $_\" }",
    "setpgrp; fork or exit; open F, \"<\", \"/proc/1/root/etc/passwd\" and print \"root\"",
];

#[test]
fn no_command_reaches_the_keeper_of_its_room() {
    as_each_user(|m| {
        let m = kept_machine(m);
        for attack in ATTACKS_ON_THE_KEEPER {
            let text =
                format!("perl -e ''; perl -e '{attack}' 2>/dev/null; perl -e 'print \"next\\n\"'");
            let ran = mixed(&m, &text);
            assert_eq!(ran.stdout, "next\n", "{attack}: {ran:?}");
        }
    });
}

/// The processes of clash below a launcher, with the number of their descriptors.
fn clash_descriptors(launcher: u32) -> Vec<usize> {
    let children = |pid: u32| -> Vec<u32> {
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        list.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    };
    let is_clash = |pid: &u32| {
        fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("clash"))
    };
    let (mut all, mut left) = (Vec::new(), vec![launcher]);
    while let Some(pid) = left.pop() {
        all.push(pid);
        left.extend(children(pid).into_iter().filter(is_clash));
    }
    let count = |pid: &u32| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    let mut counts: Vec<usize> = all.iter().map(count).collect();
    counts.sort_unstable();
    counts
}

#[test]
fn a_kept_room_collects_no_descriptors() {
    as_each_user(|m| {
        let m = kept_machine(m);
        let door = "perl -e 'open F, \">x\"; unlink \"x\"' | cat";
        let script = format!(
            "for i in $(seq 70); do {door}; done; touch up; \
             until test -e go; do sleep 0.05; done; \
             for i in $(seq 100); do {door}; done; touch over; \
             until test -e end; do sleep 0.05; done"
        );
        let mut command = m.command(clash());
        command.env("PATH", SYSTEM_PATH).args(["exec", "--", "bash", "-c", &script]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let reached = |name: &str| -> PathBuf { m.project().join(name) };
        let settled = || {
            let counts = clash_descriptors(child.id());
            std::thread::sleep(std::time::Duration::from_millis(300));
            (counts == clash_descriptors(child.id())).then_some(counts)
        };
        eventually("the first part ends", || reached("up").exists());
        let before = std::iter::repeat_with(settled).take(50).flatten().next().unwrap();
        m.write("app/go", "");
        eventually("the second part ends", || reached("over").exists());
        let after = std::iter::repeat_with(settled).take(50).flatten().next().unwrap();
        m.write("app/end", "");
        assert!(child.wait().unwrap().success());
        // The launcher of the script also remembers callers, a limited number.
        let ([before @ .., _], [after @ .., launcher]) = (&*before, &*after) else { panic!() };
        assert!(before == after && *launcher < 120, "{before:?} {after:?} {launcher}");
    });
}

#[test]
fn a_room_with_a_killed_keeper_is_replaced() {
    as_each_user(|m| {
        let m = with_secrets(m);
        m.write("app/Makefile", "all:\n\t@head -n 1 $(HOME)/secret\n");
        let script = "head -n 1 ~/secret; touch up; until test -e go; do sleep 0.05; done; make -s";
        let mut command = m.command(clash());
        command.env("PATH", SYSTEM_PATH).args(["exec", "--", "bash", "-c", script]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        eventually("the script runs", || m.project().join("up").exists());
        let broker = super::boundary::broker_of(child.id()).unwrap();
        let kept = fs::read_to_string(format!("/proc/{broker}/task/{broker}/children")).unwrap();
        for pid in kept.split_whitespace() {
            Ran::of(std::process::Command::new("kill").args(["-9", pid])).succeeds();
        }
        assert!(!kept.trim().is_empty(), "no room was kept");
        m.write("app/go", "");
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!(ran.stdout, "hidden\nhidden\n", "{ran:?}");
    });
}

#[test]
fn a_later_command_may_leave_a_process() {
    as_each_user(|m| {
        let m = kept_machine(m);
        let leave =
            "perl -e 'fork and exit 3; close STDOUT; close STDERR; sleep 2; open F, \">late\"'";
        let ran = mixed(&m, &format!("{NUMBER}; {leave}; echo $?; {NUMBER}"));
        // A room in which a process is left takes no other command.
        assert_eq!(ran.stdout, "2\n3\n2\n", "{ran:?}");
        let listed = m.clash(["ps", "--json"]).succeeds();
        assert!(listed.stdout.contains("fork and exit 3"), "{listed:?}");
        eventually("the process goes on", || m.project().join("late").exists());
        eventually("its room ends", || m.clash(["ps", "--json"]).stdout.trim() == "[]");
    });
}
