//! The shared part of the end-to-end tests: a machine of their own (home, project,
//! temporary directory) and functions that start clash and check its output.
//!
//! Every test of enforcement runs as root and as a plain user. If the tests do not run as
//! root, the root half is skipped with a line that begins with `SKIPPED`; `.ci/run` counts
//! these lines.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};

/// The user who runs the sandboxed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The user the tests run as.
    Me,
    /// An unprivileged user; only root can become one.
    Nobody,
}

const NOBODY: u32 = 65_534;

/// Prints that something was not tested, past the test runner's capture.
pub(crate) fn skipped(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

/// Runs a test as root and as a plain user.
pub(crate) fn as_each_user(test: impl Fn(Machine)) {
    if is_root() {
        test(Machine::new(Who::Nobody));
        test(Machine::new(Who::Me));
    } else {
        test(Machine::new(Who::Me));
        skipped("the root half of an enforcement test, because the tests do not run as root");
    }
}

/// A file below `tests` of the workspace, for example `shell/push-forms.txt`.
pub(crate) fn test_file(below: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(below)
}

/// True if the tests run as root.
pub(crate) fn is_root() -> bool {
    let probe = tempfile::tempdir().unwrap();
    std::os::unix::fs::MetadataExt::uid(&fs::metadata(probe.path()).unwrap()) == 0
}

/// A copy of the program under test that every user can execute.
pub(crate) fn clash() -> &'static Path {
    static PROGRAM: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = PROGRAM.get_or_init(|| {
        let dir = tempfile::Builder::new().prefix("clash-bin-").tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["clash", "clash-compile", "clash-door"] {
            let built = Path::new(env!("CARGO_BIN_EXE_clash")).with_file_name(name);
            assert!(built.exists(), "{} is missing: run `cargo build -p {name}`", built.display());
            let path = dir.path().join(name);
            if fs::hard_link(&built, &path).is_err() {
                copy_program(&built, &path);
            }
        }
        copy_program(env!("CARGO_BIN_EXE_clash-watch"), dir.path().join("clash-watch"));
        let path = dir.path().join("clash");
        (dir, path)
    });
    path
}

/// A home, a project and a temporary directory that belong to one user.
pub(crate) struct Machine {
    dir: tempfile::TempDir,
    pub(crate) who: Who,
}

impl Machine {
    /// Makes the directories. There is no policy yet.
    pub(crate) fn new(who: Who) -> Self {
        let dir = tempfile::Builder::new().prefix("clash-e2e-").tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let machine = Self { dir, who };
        for path in [machine.home(), machine.project(), machine.tmp(), machine.outside()] {
            machine.make_dir(path);
        }
        machine
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.home().join("app")
    }

    pub(crate) fn tmp(&self) -> PathBuf {
        self.dir.path().join("tmp")
    }

    /// A directory of the same user that no sandbox grants.
    pub(crate) fn outside(&self) -> PathBuf {
        self.home().join("other")
    }

    /// Gives a file to the machine's user.
    fn own(&self, path: &Path) {
        if self.who == Who::Nobody {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    /// Creates a directory and its parents, all owned by the user.
    pub(crate) fn make_dir(&self, path: impl AsRef<Path>) {
        let ancestors = path.as_ref().ancestors();
        let mut missing: Vec<&Path> = ancestors.take_while(|dir| !dir.exists()).collect();
        while let Some(dir) = missing.pop() {
            fs::create_dir(dir).unwrap();
            self.own(dir);
        }
    }

    /// Writes a file below the home and creates its directories, all owned by the user.
    pub(crate) fn write(&self, path: impl AsRef<Path>, text: &str) -> PathBuf {
        let path = self.home().join(path);
        let mut missing: Vec<&Path> =
            path.ancestors().skip(1).take_while(|dir| !dir.exists()).collect();
        while let Some(dir) = missing.pop() {
            self.make_dir(dir);
        }
        fs::write(&path, text).unwrap();
        self.own(&path);
        path
    }

    /// Writes the user's policy.
    pub(crate) fn policy(self, text: &str) -> Self {
        self.write(".clash/policy.star", text);
        self
    }

    /// Waits until the policy and the compiler, which was just linked, are old enough for
    /// the cache.
    pub(crate) fn settled(self) -> Self {
        let _ = clash();
        std::thread::sleep(std::time::Duration::from_millis(150));
        self
    }

    /// Changes the record of this machine's facts, so that clash makes no rooms.
    pub(crate) fn without_rooms(self) -> Self {
        self.clash(["status"]);
        let record = self.state().join("host");
        let text = fs::read_to_string(&record).unwrap();
        let rooms = text.lines().find(|line| line.starts_with("rooms ")).unwrap();
        let text = text.replace(rooms, "rooms impossible as the test says");
        // Written in place, so that it keeps its owner.
        fs::write(record, text).unwrap();
        self
    }

    /// A command in the project as this machine's user. Of the test's environment it has
    /// only the search path.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home())
            .env("TMPDIR", self.tmp())
            .env("LANG", "C.UTF-8")
            .current_dir(self.project())
            .stdin(Stdio::null());
        if self.who == Who::Nobody {
            command.uid(NOBODY).gid(NOBODY).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        }
        command
    }

    /// Runs clash with these arguments in the project, to its end.
    pub(crate) fn clash<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ran {
        Ran::of(self.command(clash()).args(args))
    }

    /// Runs a shell script in a named sandbox.
    pub(crate) fn inside(&self, sandbox: &str, script: &str) -> Ran {
        self.clash(["sandbox", "exec", sandbox, "--", "sh", "-c", script])
    }

    /// Starts `clash hook claude` with this input.
    pub(crate) fn start_hook(&self, input: &[u8]) -> Child {
        let mut command = self.command(clash());
        command.args(["hook", "claude"]);
        feed(command, input)
    }

    /// As [`Self::start_hook`], to its end.
    pub(crate) fn hook_raw(&self, input: &[u8]) -> Ran {
        Ran::from(self.start_hook(input).wait_with_output().unwrap())
    }

    /// One hook message of Claude Code.
    pub(crate) fn message(&self, event: &str, tool: &str, input: Value) -> Value {
        json!({
            "session_id": "test-session", "transcript_path": "/dev/null", "cwd": self.project(),
            "permission_mode": "default", "hook_event_name": event, "tool_name": tool,
            "tool_input": input, "tool_use_id": "toolu_1",
        })
    }

    /// Runs `clash hook claude` with this message.
    pub(crate) fn hook(&self, message: &Value) -> Ran {
        self.hook_raw(message.to_string().as_bytes())
    }

    /// The hook's answer to a tool call.
    pub(crate) fn asks(&self, tool: &str, input: Value) -> Answer {
        Answer::of(&self.hook(&self.message("PreToolUse", tool, input)))
    }

    /// The hook's answer to a shell script.
    pub(crate) fn bash(&self, script: &str) -> Answer {
        self.asks("Bash", json!({"command": script}))
    }

    /// All records of the machine's sessions, as `clash log` prints them.
    pub(crate) fn trace(&self) -> Vec<Value> {
        let log = self.clash(["log", "--records", "--json"]);
        log.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The directory of clash's own state.
    pub(crate) fn state(&self) -> PathBuf {
        self.home().join(".local/state/clash")
    }
}

/// The backups of settings, in order.
pub(crate) fn backups(m: &Machine) -> Vec<String> {
    let mut files = Vec::new();
    for dir in fs::read_dir(m.state().join("backups")).into_iter().flatten() {
        let copies = fs::read_dir(dir.unwrap().path()).unwrap();
        files.extend(copies.map(|copy| copy.unwrap().path()));
    }
    files.sort();
    files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
}

/// Writes a script that can be executed. Another process writes it: a process that another
/// test starts at this moment would inherit the file open for writing, and the kernel
/// executes no such file (`ETXTBSY`).
pub(crate) fn program(path: impl AsRef<Path>, text: &str) {
    let write = r#"rm -f "$0" && printf %s "$1" > "$0" && chmod 755 "$0""#;
    let status = Command::new("sh").args(["-c", write]).arg(path.as_ref()).arg(text).status();
    assert!(status.unwrap().success(), "{}", path.as_ref().display());
}

/// Copies a program, for the same reason in another process.
pub(crate) fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let status = Command::new("cp").arg(from.as_ref()).arg(to.as_ref()).status();
    assert!(status.unwrap().success(), "{}", to.as_ref().display());
}

/// Starts a program with pipes for its three standard streams and writes its input.
pub(crate) fn feed(mut command: Command, input: &[u8]) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A hook may refuse before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input);
    child
}

/// The output and the status of a program that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        use std::os::unix::process::ExitStatusExt;
        Self {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            code: output.status.code(),
            signal: output.status.signal(),
        }
    }
}

impl Ran {
    /// Runs a command to its end.
    pub(crate) fn of(command: &mut Command) -> Self {
        Self::from(command.output().unwrap())
    }

    #[track_caller]
    pub(crate) fn succeeds(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn fails(self) -> Self {
        assert_ne!(self.code, Some(0), "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// Checks that a text is on standard output or standard error.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(
            self.stdout.contains(text) || self.stderr.contains(text),
            "no `{text}` in {self:?}"
        );
        self
    }
}

/// A hook's answer, as the client reads it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) effect: String,
    pub(crate) reason: String,
    pub(crate) updated: Option<Value>,
}

impl Answer {
    /// Exit status 2 with a text blocks. Exit status 0 with one document decides. Anything
    /// else would let the tool run.
    #[track_caller]
    pub(crate) fn of(ran: &Ran) -> Self {
        if ran.code == Some(2) {
            assert!(!ran.stderr.trim().is_empty() && ran.stdout.is_empty(), "{ran:?}");
            return Self { effect: "deny".into(), reason: ran.stderr.clone(), updated: None };
        }
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let value: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
        let output = &value["hookSpecificOutput"];
        assert_eq!(output["hookEventName"], "PreToolUse", "{ran:?}");
        Self {
            effect: output["permissionDecision"].as_str().unwrap().to_owned(),
            reason: output["permissionDecisionReason"].as_str().unwrap().to_owned(),
            updated: output.get("updatedInput").cloned(),
        }
    }

    /// Checks the effect, and that the reason contains a text.
    #[track_caller]
    pub(crate) fn is(self, effect: &str, reason: &str) -> Self {
        assert_eq!(self.effect, effect, "{self:?}");
        assert!(self.reason.contains(reason), "no `{reason}` in {self:?}");
        self
    }
}

/// Waits until a test succeeds, for at most a minute.
pub(crate) fn eventually(what: &str, test: impl Fn() -> bool) {
    for _ in 0..1200 {
        if test() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("never happened: {what}");
}
