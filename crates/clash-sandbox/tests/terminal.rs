//! Commands on a terminal, in both tiers, as root and as a plain user: the output that
//! reaches the terminal, and job control. A small shell in Python owns the terminal, as a
//! user's shell would.
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

use support::*;

/// Runs a command as a shell's foreground job on a new terminal. `steps` are pairs: a text
/// to wait for, and keys to type then. Prints the terminal's output and the shell's view of
/// the job.
const SHELL: &str = r"
import os, pty, sys, signal, select, termios, struct, fcntl, json
steps = json.loads(sys.argv[1])
argv = sys.argv[2:]
def shell():
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    before = termios.tcgetattr(0)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execv(argv[0], argv)
    while True:
        _, status = os.waitpid(job, os.WUNTRACED)
        os.tcsetpgrp(0, os.getpgrp())
        if os.WIFSTOPPED(status):
            cooked = termios.tcgetattr(0) == before
            os.write(1, b'[stopped by %d, cooked %d]\n' % (os.WSTOPSIG(status), cooked))
            os.tcsetpgrp(0, job)
            os.kill(-job, signal.SIGCONT)
            continue
        same = termios.tcgetattr(0) == before
        end = os.waitstatus_to_exitcode(status)
        os.write(1, b'[ended with %d, settings kept %d]\n' % (end, same))
        os._exit(0)
pid, master = pty.fork()
if pid == 0:
    shell()
fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack('4H', 24, 77, 0, 0))
seen = b''
while True:
    if steps and steps[0][0].encode() in seen:
        what = steps.pop(0)[1]
        if what == 'RESIZE':
            fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack('4H', 30, 99, 0, 0))
        else:
            os.write(master, what.encode())
        continue
    ready, _, _ = select.select([master], [], [], 60)
    if not ready:
        os.write(1, seen + b'[nothing came]')
        os._exit(1)
    try:
        data = os.read(master, 65536)
    except OSError:
        break
    if not data:
        break
    seen += data
os.write(1, seen)
";

/// Runs a command in the sandbox by [`SHELL`], and returns what that prints.
fn on_terminal(world: &World, steps: &[(&str, &str)], argv: &[&str]) -> String {
    let key = |c: char| match c {
        '\0'..' ' => format!("\\u{:04x}", c as u32),
        _ => c.to_string(),
    };
    let quote = |text: &str| format!("\"{}\"", text.chars().map(key).collect::<String>());
    let steps: Vec<String> =
        steps.iter().map(|(seen, typed)| format!("[{},{}]", quote(seen), quote(typed))).collect();
    let steps = format!("[{}]", steps.join(","));
    let mut all = vec![PYTHON.to_owned(), "-c".into(), SHELL.into(), steps];
    all.extend(world.prefix());
    all.extend(argv.iter().map(ToString::to_string));
    text(&world.bare(&all.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// In a room and without one.
fn in_both_tiers(case: impl Fn(World)) {
    if python_is_missing() {
        return;
    }
    everyone(&case);
    without_a_room(case);
}

#[test]
fn what_steers_the_users_terminal_does_not_reach_it() {
    in_both_tiers(|world| {
        let script = r#"printf 'a\033]52;c;ZXZpbA==\007b\033]0;title\007\033[21tc\033[5i'
            printf 'real\033[1A\033[2K\033[8mhidden\033[0m \033[31mred\033[m\n'"#;

        let seen = on_terminal(&world, &[], &["/bin/sh", "-c", script]);
        for gone in ["\x1b]", "52;c", "title", "21t", "\x1b[1A", "\x1b[8m", "\x1b[5i"] {
            assert!(!seen.contains(gone), "{gone:?} in {seen:?}");
        }
        assert!(seen.contains("\x1b[31mred\x1b[m"), "{seen:?}");
        assert!(seen.contains("[ended with 0, settings kept 1]"), "{seen:?}");
    });
}

#[test]
fn dev_tty_and_standard_error_are_filtered_too() {
    in_both_tiers(|world| {
        let script =
            r#"printf '\033]52;c;ZXZpbA==\007one' > /dev/tty; printf '\033]52;c;two\007three' >&2"#;

        let seen = on_terminal(&world, &[], &["/bin/sh", "-c", script]);
        assert!(seen.contains("one") && seen.contains("three"), "{seen:?}");
        assert!(!seen.contains("52;c"), "{seen:?}");
    });
}

#[test]
fn the_pseudo_terminal_has_the_users_size_and_keys() {
    in_both_tiers(|world| {
        let script = "test -t 0 && test -t 1 && test -t 2 && stty size && echo ready && \
            read line && echo \"got <$line>\" && trap 'stty size; exit 5' WINCH && echo again && \
            while :; do sleep 0.1; done";
        let steps = [("ready", "hello\r"), ("again", "RESIZE")];
        let seen = on_terminal(&world, &steps, &["/bin/sh", "-c", script]);
        assert!(seen.contains("24 77"), "{seen:?}");
        assert!(seen.contains("got <hello>"), "{seen:?}");
        assert!(seen.contains("30 99"), "{seen:?}");
        assert!(seen.contains("[ended with 5, settings kept 1]"), "{seen:?}");
    });
}

#[test]
fn a_job_can_be_interrupted_stopped_and_brought_back() {
    in_both_tiers(|world| {
        // Not a shell that starts others: a process that is stopped between vfork and exec
        // keeps its parent from stopping, with or without a sandbox.
        let script = "
import signal, sys
def caught(*_): print('caught', flush=True); sys.exit(3)
signal.signal(signal.SIGINT, caught)
signal.signal(signal.SIGCONT, lambda *_: print('resumed', flush=True))
print('ready', flush=True)
while True: signal.pause()";
        let steps = [("ready", "\u{1a}"), ("resumed", "\u{3}")];
        let seen = on_terminal(&world, &steps, &[PYTHON, "-c", script]);
        assert!(seen.contains("[stopped by 20, cooked 1]"), "{seen:?}");
        assert!(seen.contains("caught"), "{seen:?}");
        assert!(seen.contains("[ended with 3, settings kept 1]"), "{seen:?}");
        let seen = on_terminal(
            &world,
            &[("ready", "\u{3}")],
            &["/bin/sh", "-c", "echo ready; exec sleep 60"],
        );
        assert!(seen.contains("[ended with -2, settings kept 1]"), "{seen:?}");
    });
}

#[test]
fn raw_mode_gets_every_key_and_is_reset() {
    in_both_tiers(|world| {
        let script = "import os, tty; tty.setraw(0); os.write(1, b'\\x1b[?1049h\\x1b[?25lready'); \
            k = os.read(0, 9); os.write(1, b'keys ' + repr(k).encode())";
        let seen = on_terminal(&world, &[("ready", "\u{3}")], &[PYTHON, "-c", script]);
        assert!(seen.contains(r"keys b'\x03'"), "{seen:?}");
        assert!(seen.contains("\x1b[?1049l"), "left on the alternate screen: {seen:?}");
        assert!(seen.contains("\x1b[?25h"), "left without a cursor: {seen:?}");
        assert!(seen.contains("[ended with 0, settings kept 1]"), "{seen:?}");
    });
}

#[test]
fn pipes_are_passed_on_untouched() {
    in_both_tiers(|world| {
        let output = world.sh(r"printf 'a\033]52;c;x\007\233b'; test -t 1 || echo pipe");
        assert_eq!(output.stdout, b"a\x1b]52;c;x\x07\x9bbpipe\n");
    });
}

#[test]
fn nothing_is_left_when_the_terminal_goes_away() {
    in_both_tiers(|world| {
        let mark = world.project().join("alive").display().to_string();
        let script = format!("trap '' HUP; while :; do date +%N > {mark}; sleep 0.1; done");
        let mut argv = vec![PYTHON.to_owned(), "-c".into()];
        argv.push(
            "import os, pty, sys, time\n\
             pid, master = pty.fork()\n\
             if pid == 0: os.execv(sys.argv[2], sys.argv[2:])\n\
             while not os.path.exists(sys.argv[1]): time.sleep(0.05)\n\
             os.kill(pid, 9); os.waitpid(pid, 0)"
                .into(),
        );
        argv.push(mark.clone());
        argv.extend(world.prefix());
        argv.extend(["/bin/sh".into(), "-c".into(), script]);
        let output = world.bare(&argv.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(output.status.success(), "{}", text(&output));
        let quiet = (0..100).any(|_| {
            let before = std::fs::read(&mark).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(400));
            before == std::fs::read(&mark).unwrap()
        });
        assert!(quiet, "still running as {:?}", world.who);
    });
}

/// Runs a shell line on a new terminal, with the prefix of the sandbox in place of `IN`.
fn line_on_terminal(world: &World, steps: &[(&str, &str)], prefix: &str, line: &str) -> String {
    let bare = World::beside(world);
    let line = line.replace("IN", prefix);
    let quote = |text: &str| {
        let key = |c: char| match c {
            '\0'..' ' => format!("\\u{:04x}", c as u32),
            _ => c.to_string(),
        };
        format!("\"{}\"", text.chars().map(key).collect::<String>())
    };
    let steps: Vec<String> =
        steps.iter().map(|(seen, typed)| format!("[{},{}]", quote(seen), quote(typed))).collect();
    let steps = format!("[{}]", steps.join(","));
    text(&bare.bare(&[PYTHON, "-c", SHELL, &steps, "/bin/sh", "-c", &line]))
}

#[test]
fn behind_redirections_the_users_terminal_is_out_of_reach() {
    let attack = "import os, fcntl, termios
for path in ('/dev/tty', '/dev/console', '/dev/pts/0', '/proc/self/fd/0', os.ctermid()):
    for flags in (os.O_RDWR, os.O_WRONLY, os.O_RDONLY):
        try: fd = os.open(path, flags)
        except OSError: continue
        try: os.write(fd, b'\\033]52;c;ZXZpbA==\\007REACHED')
        except OSError: pass
        try: fcntl.ioctl(fd, termios.TIOCSCTTY, 1)
        except OSError: pass
print('done')";
    in_each_tier(|world, prefix| {
        let line = format!("IN {PYTHON} -c \"{attack}\" < /dev/null 2>&1 | cat");
        let seen = line_on_terminal(world, &[], prefix, &line);
        assert!(seen.contains("done"), "{prefix}: {seen:?}");
        assert!(!seen.contains("REACHED") && !seen.contains("52;c"), "{prefix}: {seen:?}");
        // Without a sandbox the terminal is reached. /dev/pts/0 may be the terminal of a test
        // that runs at the same time, so this run leaves it alone.
        let native = line_on_terminal(world, &[], "", &line.replace("'/dev/pts/0', ", ""));
        assert!(native.contains("REACHED"), "{native:?}");
    });
}

#[test]
fn keys_still_interrupt_a_command_behind_redirections() {
    in_each_tier(|world, prefix| {
        let line = "IN /bin/sh -c 'echo up; while :; do sleep 0.1; done' < /dev/null 2>&1 | cat; \
                    echo after";
        let seen = line_on_terminal(world, &[("up", "\u{3}")], prefix, line);
        assert!(seen.contains("up") && seen.contains("[ended with -2"), "{prefix}: {seen:?}");
        // Standard input is no longer the terminal, so the shell handles a stop.
        let line = "IN /bin/sh -c 'echo up; sleep 0.5; echo on' < /dev/null 2>&1 | cat";
        let seen = line_on_terminal(world, &[("up", "\u{1a}")], prefix, line);
        assert!(seen.contains("[stopped by") && seen.contains("on"), "{prefix}: {seen:?}");
    });
}
