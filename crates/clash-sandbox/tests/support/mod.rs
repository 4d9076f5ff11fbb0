//! Support for tests on the real kernel: a home with a key and a project, as root and as a
//! plain user.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub(crate) const PYTHON: &str = "/usr/bin/python3";
pub(crate) const NOBODY: u32 = 65534;

/// The users of a case. `None` is the user who runs the tests.
pub(crate) fn identities() -> Vec<Option<u32>> {
    match fs::metadata("/proc/self").unwrap().uid() {
        0 => vec![None, Some(NOBODY)],
        _ => {
            eprintln!("SKIPPED (not root): the half of each case that runs as root");
            vec![None]
        }
    }
}

/// True if Python is missing. Prints then that the case is skipped.
pub(crate) fn python_is_missing() -> bool {
    let missing = !Path::new(PYTHON).exists();
    if missing {
        eprintln!("SKIPPED (no {PYTHON}): raw system calls");
    }
    missing
}

/// As [`everyone`], for cases that need Python, for example for raw system calls.
pub(crate) fn in_a_room(case: impl Fn(World)) {
    if !python_is_missing() {
        everyone(case);
    }
}

/// As [`in_a_room`], and also in the watched tier.
pub(crate) fn in_both_tiers(case: impl Fn(World)) {
    if !python_is_missing() {
        everyone(&case);
        without_a_room(case);
    }
}

/// The example `room`, built if the test runner did not.
pub(crate) fn room() -> &'static Path {
    static ROOM: OnceLock<PathBuf> = OnceLock::new();
    ROOM.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let room = test.parent().unwrap().parent().unwrap().join("examples/room");
        if !room.exists() {
            let build = ["build", "-q", "-p", "clash-sandbox", "--example", "room"];
            assert!(Command::new(env!("CARGO")).args(build).status().unwrap().success());
        }
        room
    })
}

/// A home with a key and a project, owned by the user of the case.
pub(crate) struct World {
    pub(crate) dir: Rc<tempfile::TempDir>,
    pub(crate) who: Option<u32>,
    pub(crate) options: Vec<String>,
}

impl World {
    /// Makes the home, the key, the project and a copy of the example `room`.
    pub(crate) fn new(who: Option<u32>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let world = Self { dir: Rc::new(dir), who, options: Vec::new() };
        for sub in ["home", "home/.ssh", "home/app"] {
            fs::create_dir(world.path(sub)).unwrap();
        }
        fs::write(world.path("home/.ssh/id_ed25519"), "SECRET").unwrap();
        // Copied by another process: a child that a test forks meanwhile would inherit the
        // descriptor for writing, and the file could not be executed.
        let copied = Command::new("cp").arg(room()).arg(world.path("room")).status();
        assert!(copied.unwrap().success());
        for sub in ["", "home", "home/.ssh", "home/app", "home/.ssh/id_ed25519"] {
            if who.is_some() {
                chown(world.path(sub), who, who).unwrap();
            }
        }
        world
    }

    /// The same files, for other options.
    pub(crate) fn beside(world: &Self) -> Self {
        Self { dir: world.dir.clone(), who: world.who, options: Vec::new() }
    }

    /// Adds options of the example `room`.
    pub(crate) fn option(mut self, option: &[&str]) -> Self {
        self.options.extend(option.iter().map(ToString::to_string));
        self
    }

    /// A path in the world's directory.
    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.path("home/app")
    }

    /// Names the project and the home to the sandbox, so that persistence paths count.
    pub(crate) fn with_places(self) -> Self {
        let (app, home) = (self.project(), self.path("home"));
        self.option(&["--project", app.to_str().unwrap(), "--home", home.to_str().unwrap()])
    }

    /// The command as the case's user, in the project, with a fixed environment and no input.
    /// Adds no sandbox.
    pub(crate) fn prepare(&self, mut command: Command) -> Command {
        command.current_dir(self.project()).stdin(Stdio::null());
        command.env("HOME", self.path("home")).env("GIT_CONFIG_GLOBAL", "/dev/null");
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        if let Some(id) = self.who {
            command.uid(id).gid(id);
        }
        command
    }

    /// The words before the command that put it into the sandbox.
    pub(crate) fn prefix(&self) -> Vec<String> {
        let text = |p: PathBuf| p.display().to_string();
        let mut words = vec![text(self.path("room")), "--rw".into(), text(self.project())];
        words.extend(["--former-links".into(), text(self.path("former-links"))]);
        words.extend(self.options.iter().cloned());
        words.push("--".into());
        words
    }

    /// The command in the sandbox, not yet started.
    pub(crate) fn command(&self, argv: &[&str]) -> Command {
        let prefix = self.prefix();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).args(argv);
        self.prepare(command)
    }

    /// Runs a command in the sandbox to its end.
    pub(crate) fn run(&self, argv: &[&str]) -> Output {
        self.command(argv).output().unwrap()
    }

    /// As `run`, with an input.
    pub(crate) fn run_with_input(&self, argv: &[&str], input: &str) -> Output {
        use std::io::Write;
        let mut command = self.command(argv);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        child.wait_with_output().unwrap()
    }

    /// As [`Self::run`], without the sandbox.
    pub(crate) fn bare(&self, argv: &[&str]) -> Output {
        let mut command = Command::new(argv[0]);
        command.args(&argv[1..]);
        self.prepare(command).output().unwrap()
    }

    /// Runs a shell script in the sandbox to its end.
    pub(crate) fn sh(&self, script: &str) -> Output {
        self.run(&["/bin/sh", "-c", script])
    }
}

/// Runs a script in the sandbox, which has to succeed, and returns its output.
#[track_caller]
pub(crate) fn works(world: &World, script: &str) -> String {
    let output = world.sh(script);
    assert!(
        output.status.success(),
        "{script} {:?} as {:?}: {}",
        world.options,
        world.who,
        text(&output)
    );
    text(&output)
}

/// Runs a script in the sandbox, which has to fail.
#[track_caller]
pub(crate) fn fails(world: &World, script: &str) {
    let output = world.sh(script);
    assert!(
        !output.status.success(),
        "{script} {:?} as {:?}: {}",
        world.options,
        world.who,
        text(&output)
    );
}

/// Runs a script without the sandbox, which has to succeed, and returns its output.
#[track_caller]
pub(crate) fn bare(world: &World, script: &str) -> String {
    let output = world.bare(&["/bin/sh", "-c", script]);
    assert!(output.status.success(), "{script}: {}", text(&output));
    text(&output)
}

/// The sorted names in a directory.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Writes a file of the case's user, with its directories, and returns its path.
pub(crate) fn write(world: &World, path: &str, text: &str) -> String {
    let path = world.path(path);
    for dir in path.parent().unwrap().ancestors().collect::<Vec<_>>().into_iter().rev() {
        if !dir.exists() {
            fs::create_dir(dir).unwrap();
            own(world, dir);
        }
    }
    fs::write(&path, text).unwrap();
    own(world, &path);
    path.display().to_string()
}

/// Gives a file to the case's user.
pub(crate) fn own(world: &World, path: &Path) {
    if world.who.is_some() {
        chown(path, world.who, world.who).unwrap();
    }
}

/// Waits until a condition is true, at most half a minute.
#[track_caller]
pub(crate) fn eventually(what: &str, mut test: impl FnMut() -> bool) {
    let start = Instant::now();
    while !test() {
        assert!(start.elapsed() < Duration::from_secs(30), "never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// True if git is installed. Prints otherwise that the case is skipped.
pub(crate) fn has_git() -> bool {
    let found = ["/usr/bin/git", "/usr/local/bin/git"].iter().any(|git| Path::new(git).exists());
    if !found {
        eprintln!("SKIPPED (no git): the behaviour of git");
    }
    found
}

/// Runs a case on a repository with two commits, as each user, in a room and in the watched
/// tier, with these options.
pub(crate) fn each_repository(options: &[&str], case: impl Fn(World)) {
    if !has_git() {
        return;
    }
    for who in identities() {
        for tier in [&[][..], &["--simulate", "no-userns"]] {
            let world = World::new(who);
            bare(
                &world,
                "git init -q -b main . && git config user.name a && git config user.email a@b &&
                 echo 1 > f && git add -A && git commit -qm one && git branch other &&
                 echo 2 > f && git commit -qam two",
            );
            case(world.with_places().option(tier).option(options));
        }
    }
}

/// Runs a case on the project of a world, as each user.
pub(crate) fn project(case: impl Fn(World)) {
    everyone(|world| case(world.with_places()));
}

/// As [`project`], in a room and in the watched tier.
pub(crate) fn each_tier(case: impl Fn(World)) {
    for who in identities() {
        for tier in [&[][..], &["--simulate", "no-userns"]] {
            case(World::new(who).with_places().option(tier));
        }
    }
}

/// As [`project`], with a record of the host, so that no further launch probes.
pub(crate) fn recorded(case: impl Fn(World)) {
    everyone(|world| {
        let host = world.path("host").display().to_string();
        let world = world.with_places().option(&["--host", &host]);
        assert!(world.sh("true").status.success());
        case(world);
    });
}

/// As [`recorded`], in a room and in the watched tier.
pub(crate) fn each_way(case: impl Fn(World)) {
    recorded(|world| {
        let before: Vec<&str> = world.options.iter().map(String::as_str).collect();
        case(World::beside(&world).option(&before).option(&["--simulate", "no-userns"]));
        case(world);
    });
}

/// Runs a case as each user in each of the three tiers, with the words before the command: a
/// room, watched without one, and direct, where nothing may be written. Needs Python.
pub(crate) fn in_each_tier(case: impl Fn(&World, &str)) {
    if python_is_missing() {
        return;
    }
    everyone(|world| {
        let (room, project) = (world.path("room"), world.project());
        let (room, project) = (room.display(), project.display());
        for options in [
            format!("--rw {project}"),
            format!("--simulate no-userns --unprotected --rw {project}"),
            format!("--r {project}"),
        ] {
            case(&world, &format!("{room} {options} --"));
        }
    });
}

/// A regular expression as policies have them.
pub(crate) fn regex(pattern: &str) -> clash_policy::PolicyRegex {
    use regex_automata::dfa::{StartKind, dense};
    let anchored = dense::Config::new().start_kind(StartKind::Anchored);
    let whole = format!(r"\A(?:{pattern})\z");
    let dfa = dense::Builder::new().configure(anchored).build(&whole).unwrap();
    let automaton = dfa.to_sparse().unwrap().to_bytes_native_endian();
    clash_policy::PolicyRegex { pattern: pattern.to_owned(), automaton }
}

/// Standard output and then standard error, without space around.
pub(crate) fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|b| String::from_utf8_lossy(b));
    format!("{out}{err}").trim().to_owned()
}

/// Runs a case in a room, as each user.
pub(crate) fn everyone(case: impl Fn(World)) {
    for who in identities() {
        case(World::new(who));
    }
}

/// Runs a case as each user in the watched tier, as on a host without namespaces, and without
/// protected persistence paths.
pub(crate) fn without_a_room(case: impl Fn(World)) {
    everyone(|world| case(world.option(&["--simulate", "no-userns", "--unprotected"])));
}

/// Prints the value of an expression, or minus the error number.
pub(crate) const PRELUDE: &str = r"
import os, sys, ctypes, socket, struct, fcntl, signal
libc = ctypes.CDLL(None, use_errno=True)
def sc(*a):
    r = libc.syscall(*[ctypes.c_long(x) if isinstance(x, int) else x for x in a])
    return r if r >= 0 else -ctypes.get_errno()
def call(f, *a):
    r = f(*a)
    return r if r >= 0 else -ctypes.get_errno()
def child(f):
    r, w = os.pipe()
    if os.fork() == 0:
        os.write(w, str(f()).encode()); os._exit(0)
    os.wait()
    return int(os.read(r, 20))
def show(f):
    try: v = f()
    except OSError as e: v = -e.errno
    print(v if isinstance(v, int) else 0, flush=True)
";

pub(crate) const EPERM: i32 = -1;
pub(crate) const ENOENT: i32 = -2;
pub(crate) const EACCES: i32 = -13;
pub(crate) const ENOSYS: i32 = -38;
pub(crate) const EOPNOTSUPP: i32 = -95;

/// The value of a Python expression inside or outside the sandbox, or minus the error number.
pub(crate) fn python(world: &World, expression: &str, inside: bool) -> i32 {
    let script = format!("{PRELUDE}\nshow(lambda: {expression})");
    let argv = [PYTHON, "-c", script.as_str()];
    let output = if inside { world.run(&argv) } else { world.bare(&argv) };
    text(&output).parse().unwrap_or_else(|_| panic!("{expression}: {}", text(&output)))
}

/// The call fails with `errno` inside and works outside.
pub(crate) fn refused(world: &World, expression: &str, errno: i32) {
    let outside = python(world, expression, false);
    assert!(outside >= 0, "does not work without a sandbox either: {expression}: {outside}");
    assert_eq!(python(world, expression, true), errno, "{expression} as {:?}", world.who);
}

/// The call fails with `errno` inside, whatever happens outside (some calls need root).
pub(crate) fn refused_inside(world: &World, expression: &str, errno: i32) {
    assert_eq!(python(world, expression, true), errno, "{expression} as {:?}", world.who);
}
