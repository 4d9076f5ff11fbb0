//! Job control on a terminal, as without a sandbox: stops, continues, ^C, and the terminal's
//! settings afterwards. On the real kernel, as root and as a plain user.
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
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use support::*;

/// A shell with job control on a terminal of its own.
struct Terminal {
    keys: fs::File,
    screen: std::sync::mpsc::Receiver<Vec<u8>>,
    seen: String,
    shell: Child,
}

impl Terminal {
    /// Starts a bash on a new pseudo-terminal and waits for its prompt.
    fn open(world: &World) -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let path = Path::new(name.to_str().unwrap()).to_path_buf();
        if world.who.is_some() {
            std::os::unix::fs::chown(&path, world.who, world.who).unwrap();
        }
        let end = fs::File::options().read(true).write(true).open(&path).unwrap();
        let mut shell = Command::new("setsid");
        shell.args(["--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"]);
        let mut shell = world.prepare(shell);
        shell.env("PS1", "READY> ").env("TERM", "dumb");
        shell.stdin(end.try_clone().unwrap()).stdout(end.try_clone().unwrap()).stderr(end);
        let shell = shell.spawn().unwrap();
        let keys = fs::File::from(master);
        let mut output = keys.try_clone().unwrap();
        let (send, screen) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut buffer) {
                if send.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut terminal = Self { keys, screen, seen: String::new(), shell };
        terminal.shows("READY> ");
        terminal
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the program on the terminal answers a line.
    #[track_caller]
    fn answers(&mut self) {
        self.types("ping\n");
        self.shows("ping-ping");
    }

    /// Waits for a text and forgets everything before it.
    #[track_caller]
    fn shows(&mut self, text: &str) {
        let start = Instant::now();
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            let left = Duration::from_secs(30).saturating_sub(start.elapsed());
            match self.screen.recv_timeout(left) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("no `{text}` in {:?}", self.seen),
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// A shell function `room` that runs its arguments in the sandbox.
fn room_function(world: &World) -> String {
    let quoted: Vec<String> = world.prefix().iter().map(|word| format!("'{word}'")).collect();
    format!("room() {{ {} \"$@\"; }}\n", quoted.join(" "))
}

#[test]
fn job_control_on_a_terminal_is_as_without_a_sandbox() {
    if !Path::new("/usr/bin/setsid").exists() {
        return eprintln!("SKIPPED (no setsid): job control on a terminal");
    }
    each_way(|world| {
        let mut terminal = Terminal::open(&world);
        terminal.types(&room_function(&world));
        // One process that answers. A shell that is about to start another process
        // sometimes misses a key, with and without a sandbox.
        let echo = "room sed -u 's/ping/&-&/'";
        // ^C ends it, and the rest of the line with it.
        terminal.types(&format!("{echo}; echo not reached\n"));
        terminal.answers();
        terminal.types("\x03");
        terminal.shows("READY> ");
        terminal.types("echo status $?\n");
        terminal.shows("status 130");
        terminal.types(&format!("{echo}; echo status $?\n"));
        terminal.answers();
        terminal.types("\x1c");
        terminal.shows("status 131");
        // ^Z stops it, fg brings it back; ^D is the end of its input.
        terminal.types(&format!("{echo}\n"));
        terminal.answers();
        terminal.types("\x1a");
        terminal.shows("Stopped");
        terminal.types("fg; echo status $?\n");
        terminal.answers();
        terminal.types("\x04");
        terminal.shows("status 0");
        // In the background it runs, and what it reads waits for the foreground.
        terminal.types("room sleep 600 &\n");
        terminal
            .types("kill -STOP %%; until jobs -s | grep -q .; do sleep 0.1; done; bg; jobs -r\n");
        terminal.shows("Running");
        terminal.types("kill %%; wait %%; echo status $?\n");
        terminal.shows("status 143");
        terminal.types("room sh -c 'read line; exit 5' &\n");
        terminal.shows("[1] ");
        terminal.shows("READY> ");
        terminal.types("fg; echo status $?\n");
        terminal.shows("read line");
        terminal.types("now\n");
        terminal.shows("status 5");
    });
}

#[test]
fn a_command_ends_with_its_terminal() {
    const PYTHON: &str = "/usr/bin/python3";
    if !Path::new(PYTHON).exists() {
        return eprintln!("SKIPPED (no python3): a terminal that is hung up");
    }
    let hang_up = "
import os, pty, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)
pid, fd = pty.fork()
if pid == 0: os.execvp(sys.argv[1], sys.argv[1:])
seen = b''
while b'ready' not in seen: seen += os.read(fd, 1000)
os.close(fd)
print(os.WTERMSIG(os.waitpid(pid, 0)[1]))";
    each_way(|world| {
        let mut command = Command::new(PYTHON);
        command.args(["-c", hang_up]).args(world.prefix());
        command.args(["sh", "-c", "echo ready; sleep 600"]);
        let output = world.prepare(command).output().unwrap();
        assert_eq!(text(&output).trim(), "1", "{:?}", world.who);
    });
}

#[test]
fn the_terminal_is_left_as_it_was_found() {
    if !Path::new("/usr/bin/setsid").exists() {
        return eprintln!("SKIPPED (no setsid): the settings of a terminal");
    }
    each_way(|world| {
        let mut terminal = Terminal::open(&world);
        terminal.types(&room_function(&world));
        terminal.types("before=$(stty -g); room sh -c 'stty raw -echo; kill -KILL $$'\n");
        terminal.shows("Killed");
        terminal.types("test \"$before\" = \"$(stty -g)\" && echo the sa''me\n");
        terminal.shows("the same");
        terminal
            .types("room sh -c 'test -t 0 && test -t 1 && test -t 2 && echo on a ter''minal'\n");
        terminal.shows("on a terminal");
    });
}
