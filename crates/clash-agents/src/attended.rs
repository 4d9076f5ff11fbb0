//! Whether somebody sits in front of the agent that called this hook.
//!
//! A client that waits for an answer for ever must only be made to ask where one
//! can come. What cannot be found out counts as nobody.

use std::fs;
use std::path::PathBuf;

/// How far up a hook looks for the client: a shell or two stand between.
const GENERATIONS: usize = 8;

/// Whether the nearest ancestor that is this program has a terminal on both ends
/// and was not started for one prompt only.
pub fn is_attended(program: &str) -> bool {
    let mut pid = std::os::unix::process::parent_id();
    for _ in 0..GENERATIONS {
        let Some(process) = Process::of(pid) else { return false };
        if process.is(program) {
            return process.has_terminal() && !process.has_one_prompt();
        }
        pid = process.parent;
    }
    false
}

/// The arguments with which the nearest ancestor that is this program was started.
pub fn arguments(program: &str) -> Option<Vec<String>> {
    let mut pid = std::os::unix::process::parent_id();
    for _ in 0..GENERATIONS {
        let process = Process::of(pid)?;
        if process.is(program) {
            return Some(process.args);
        }
        pid = process.parent;
    }
    None
}

struct Process {
    dir: PathBuf,
    parent: u32,
    args: Vec<String>,
}

impl Process {
    fn of(pid: u32) -> Option<Self> {
        let dir = PathBuf::from(format!("/proc/{pid}"));
        let stat = fs::read_to_string(dir.join("stat")).ok()?;
        // The name in brackets may hold anything.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        let line = fs::read(dir.join("cmdline")).ok()?;
        let args = line.split(|byte| *byte == 0).map(|arg| String::from_utf8_lossy(arg).into());
        Some(Self { dir, parent, args: args.collect() })
    }

    /// Started as this program, or as a script of that name by an interpreter.
    fn is(&self, program: &str) -> bool {
        let name = |arg: &String| arg.rsplit('/').next() == Some(program);
        self.args.iter().take(6).any(name)
    }

    fn has_terminal(&self) -> bool {
        ["fd/0", "fd/1"].iter().all(|fd| {
            let target = fs::read_link(self.dir.join(fd)).unwrap_or_default();
            target.starts_with("/dev/pts") || target.starts_with("/dev/tty")
        })
    }

    fn has_one_prompt(&self) -> bool {
        let one = |arg: &String| arg == "-p" || arg == "--prompt" || arg.starts_with("--prompt=");
        self.args.iter().skip(1).any(one)
    }
}
