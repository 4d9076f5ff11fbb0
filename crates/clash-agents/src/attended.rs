//! Finds the client among the ancestors of a hook, and whether a user sits at its terminal.
//!
//! Some clients wait for an answer for ever, so clash may only let them ask where a user
//! can answer. If this module cannot find out, it assumes that no user is there.

use std::fs;
use std::path::PathBuf;

/// How far up the hook looks for the client: one or two shells are between them.
const MAX_ANCESTORS: usize = 8;

/// True if the nearest ancestor with this program has a terminal as input and output, and
/// has more than one prompt. False if there is none within eight ancestors.
pub fn is_attended(program: &str) -> bool {
    let mut pid = std::os::unix::process::parent_id();
    for _ in 0..MAX_ANCESTORS {
        let Some(process) = AncestorProcess::read(pid) else { return false };
        if process.runs(program) {
            return process.has_terminal() && !process.has_one_prompt();
        }
        pid = process.parent;
    }
    false
}

/// The arguments of the nearest ancestor with this program; `None` if there is none within
/// eight ancestors.
pub(crate) fn ancestor_arguments(program: &str) -> Option<Vec<String>> {
    let mut pid = std::os::unix::process::parent_id();
    for _ in 0..MAX_ANCESTORS {
        let process = AncestorProcess::read(pid)?;
        if process.runs(program) {
            return Some(process.args);
        }
        pid = process.parent;
    }
    None
}

/// A process above this one, as `/proc` shows it.
struct AncestorProcess {
    dir: PathBuf,
    parent: u32,
    args: Vec<String>,
}

impl AncestorProcess {
    /// `None` if the process is gone.
    fn read(pid: u32) -> Option<Self> {
        let dir = PathBuf::from(format!("/proc/{pid}"));
        // `stat` has the name in brackets, and the name may hold any byte.
        let stat = fs::read(dir.join("stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        let line = fs::read(dir.join("cmdline")).ok()?;
        let args = line.split(|byte| *byte == 0).map(|arg| String::from_utf8_lossy(arg).into());
        Some(Self { dir, parent, args: args.collect() })
    }

    /// True if the process is this program, or an interpreter that runs a script of that
    /// name: one of its first six arguments ends in it.
    fn runs(&self, program: &str) -> bool {
        let name = |arg: &String| arg.rsplit('/').next() == Some(program);
        self.args.iter().take(6).any(name)
    }

    /// True if standard input and output are terminals.
    fn has_terminal(&self) -> bool {
        ["fd/0", "fd/1"].iter().all(|fd| {
            let target = fs::read_link(self.dir.join(fd)).unwrap_or_default();
            target.starts_with("/dev/pts") || target.starts_with("/dev/tty")
        })
    }

    /// True if the client got its only prompt as an argument (`-p`).
    fn has_one_prompt(&self) -> bool {
        let one = |arg: &String| arg == "-p" || arg == "--prompt" || arg.starts_with("--prompt=");
        self.args.iter().skip(1).any(one)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_with_any_name_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join(OsStr::from_bytes(b"a) \xff b"));
        fs::copy("/bin/sleep", &program).unwrap();
        let mut child = Command::new(&program).arg("60").spawn().unwrap();
        let process = AncestorProcess::read(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(process.unwrap().parent, std::process::id());
    }
}
