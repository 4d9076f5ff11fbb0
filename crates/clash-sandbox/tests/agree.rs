//! The policy's judge and the kernel agree. Random sandboxes with every form of rule, and
//! random operations on files: the judge of file tools against a room, and against a host
//! without namespaces.
//!
//! The seed is fixed; `CLASH_TEST_SEED=n` sets another.
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
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use clash_policy::judge::{JudgeContext as Judged, alike_below, judge};
use clash_policy::{
    Effect, FileCaps, FileUse, FsRule, PathPattern, PolicyPlaces, PolicySpan, Sandbox, WriteTarget,
};
use support::*;

const DIRS: [&str; 7] = ["a", "a/b", "a/b/c", "a/b/c/d", "a/e", "a/e/f", "g"];
const SANDBOXES: usize = 32;
const OPERATIONS: usize = 48;

/// Carries out each line of its input and prints whether it worked.
const SCRIPT: &str = r"
import os, subprocess, sys
def op(kind, a, b):
    if kind == 'list':
        # A directory on the way to what is granted is the room's own.
        if 'there' not in os.listdir(a): raise OSError
    elif kind == 'read': open(a).read()
    elif kind == 'write': os.close(os.open(a, os.O_WRONLY))
    elif kind == 'both': os.close(os.open(a, os.O_RDWR))
    elif kind == 'empty': os.close(os.open(a, os.O_WRONLY | os.O_TRUNC))
    elif kind == 'truncate': os.truncate(a, 1)
    elif kind == 'cut': os.close(os.open(a, os.O_RDONLY | os.O_TRUNC))
    elif kind == 'create': os.close(os.open(a, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    elif kind == 'make': os.close(os.open(a, os.O_CREAT | os.O_RDONLY, 0o600))
    elif kind == 'mkdir': os.mkdir(a)
    elif kind == 'unlink': os.unlink(a)
    elif kind == 'rmdir': os.rmdir(a)
    elif kind == 'symlink': os.symlink('x', a)
    elif kind == 'chmod': os.chmod(a, 0o640)
    elif kind == 'utime': os.utime(a, (1, 1))
    elif kind == 'rename': os.rename(a, b)
    elif kind == 'link': os.link(a, b)
    elif kind == 'execute': subprocess.run([a], check=True)
    elif kind == 'again':
        held = os.open(a, os.O_PATH)
        os.close(os.open('/proc/self/fd/%d' % held, os.O_WRONLY))
    elif kind == 'inside':
        held = os.open(a, os.O_PATH)
        os.close(os.open('/proc/self/fd/%d/%s' % (held, b), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    else: sys.exit('unknown ' + kind)
for line in sys.stdin:
    try: op(*line.rstrip('\n').split('\t')); print('1', end='')
    except (OSError, subprocess.CalledProcessError): print('0', end='')
";

/// A small random generator: the same seed gives the same sandboxes.
struct Random(u64);

impl Random {
    /// A number from 0 up to, not including, `end`.
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// One rule, and the options of the example for it.
fn rule(random: &mut Random, base: &Path, in_a_room: bool) -> (FsRule, Vec<String>) {
    let dir = base.join(random.of(&DIRS)).display().to_string();
    let deny = random.below(5) < 2;
    let form = random.below(8);
    let trees = ["r", "rx", "rwcdx", "rwcd", "rw", "rc", "rd", "w", "rwc"];
    let mut caps = match (deny, form) {
        (false, 0..=3) => random.of(&trees),
        (false, _) => random.of(&["r", "rw", "rwcd", "wc"]),
        (true, 0..=3) => random.of(&["rwcdx", "wcd", "w", "c", "d", "r", "wcdx", "x"]),
        (true, _) => random.of(&["r", "w", "wcd", "rwcd", "d", "c"]),
    };
    if deny && !in_a_room {
        // Without mounts the right to execute cannot be taken away.
        caps = caps.strip_suffix('x').filter(|caps| !caps.is_empty()).unwrap_or("wcd");
    }
    let (word, pattern, more) = match form {
        0..=3 => {
            let path = dir.clone();
            ("", PathPattern::Subpath { path, follow_worktrees: false }, None)
        }
        4 => ("literal", PathPattern::Literal(format!("{dir}/lit")), None),
        5 => ("children", PathPattern::Children(dir.clone()), None),
        6 => {
            let pattern = random.of(&["**/*.key", "*.key", "**/.env*", "**/k*", "*/k*", "b/**"]);
            let (prefix, pattern) = (dir.clone(), pattern.to_owned());
            ("glob", PathPattern::Glob { prefix, pattern: pattern.clone() }, Some(pattern))
        }
        _ => {
            let pattern = random.of(&[".*[.]key", "[^/]*", ".*/k[0-9]+", "(b|c)/.*"]).to_owned();
            let regex = regex(&pattern);
            ("regex", PathPattern::Regex { prefix: dir.clone(), regex }, Some(pattern))
        }
    };
    let flag = match (deny, word) {
        (false, "") => "--allow".to_owned(),
        (true, "") => "--deny".to_owned(),
        (false, word) => format!("--{word}"),
        (true, word) => format!("--deny-{word}"),
    };
    let path = if word == "literal" { format!("{dir}/lit") } else { dir };
    let mut options = vec![flag, caps.to_owned(), path];
    options.extend(more);
    let effect = if deny { Effect::Deny } else { Effect::Allow };
    let caps = FileCaps::parse(caps).unwrap();
    (
        FsRule { pattern, effect, caps, writes: WriteTarget::InPlace, span: PolicySpan::default() },
        options,
    )
}

/// The judge's answers about a tree.
struct Oracle {
    sandbox: Sandbox,
    places: PolicyPlaces,
    /// Without a room a path can be held only with the right to read it.
    in_a_room: bool,
}

impl Oracle {
    fn world(&self) -> Judged<'_> {
        Judged::without_disk(&self.places)
    }

    fn caps(&self, path: &Path) -> FileCaps {
        let may = |cap: &FileCaps| {
            let file = FileUse { path: path.to_path_buf(), needs: *cap, caseless: false };
            judge(&self.sandbox, &file, &self.world()).unwrap().effect == Effect::Allow
        };
        FileCaps::each().filter(may).fold(FileCaps::NONE, FileCaps::union)
    }

    fn may(&self, path: &Path, caps: &str) -> bool {
        self.caps(path).contains(FileCaps::parse(caps).unwrap())
    }

    /// True if a file under another name has no more rights to read, write and execute.
    fn no_gain(&self, from: &Path, to: &Path) -> bool {
        let content = FileCaps::parse("rwx").unwrap();
        self.caps(to).intersect(content).without(self.caps(from)).is_empty()
    }
}

/// An operation, the judge's answer, and whether the kernel may be stricter. A rename or
/// link may fail at another mount, or by Landlock's own rule for other directories.
struct Operation {
    line: String,
    allowed: bool,
    at_most: bool,
}

/// The path of an operation: a new name in one directory of the tree.
struct OperationPlace<'a> {
    world: &'a World,
    oracle: &'a Oracle,
    base: &'a Path,
    dir: PathBuf,
    at: PathBuf,
    number: usize,
}

fn operation_line(kind: &str, a: &Path, b: &Path) -> String {
    format!("{kind}\t{}\t{}", a.display(), b.display())
}

/// A new file name, sometimes one that patterns of the rules match.
fn random_name(random: &mut Random, number: usize, extra: &str) -> String {
    let (front, back) = random.of(&[("f", ""), ("f", ".key"), ("k", ""), (".env", "")]);
    format!("{front}{number}{extra}{back}")
}

/// Makes the files that an operation needs, and computes the expected result.
fn operation(
    random: &mut Random,
    world: &World,
    oracle: &Oracle,
    base: &Path,
    number: usize,
) -> Operation {
    let dir = base.join(random.of(&DIRS));
    let at = dir.join(random_name(random, number, ""));
    let place = OperationPlace { world, oracle, base, dir, at, number };
    let OperationPlace { dir, at, .. } = &place;
    match random.below(21) {
        0 => place.simple("list", dir, "r"),
        kind @ 1..=8 => place.change_file(random, kind),
        9 => place.simple("create", at, "wc"),
        10 => place.simple("make", at, "rc"),
        11 => place.simple("mkdir", at, "c"),
        12 => place.simple("symlink", at, "c"),
        13 => {
            place.make_file(at);
            place.simple("unlink", at, "d")
        }
        14 => {
            place.make_dir(at);
            place.simple("rmdir", at, "d")
        }
        15 => {
            place.make_file(at);
            place.simple("again", at, if oracle.in_a_room { "w" } else { "rw" })
        }
        16 => {
            let held = oracle.in_a_room || oracle.may(dir, "r");
            let allowed = held && oracle.may(at, "wc");
            let leaf = Path::new(at.file_name().unwrap());
            Operation { line: operation_line("inside", dir, leaf), allowed, at_most: false }
        }
        17 => {
            fs::hard_link(base.join("prog"), at).unwrap();
            place.simple("execute", at, "x")
        }
        kind => place.rename_or_link(random, kind),
    }
}

impl OperationPlace<'_> {
    fn own(&self, path: &Path) {
        if self.world.who.is_some() {
            chown(path, self.world.who, self.world.who).unwrap();
        }
    }

    fn make_file(&self, path: &Path) {
        fs::write(path, "text").unwrap();
        self.own(path);
    }

    fn make_dir(&self, path: &Path) {
        fs::create_dir(path).unwrap();
        self.own(path);
    }

    /// An operation on one path that needs these rights.
    fn simple(&self, kind: &str, path: &Path, caps: &str) -> Operation {
        Operation {
            line: operation_line(kind, path, Path::new("-")),
            allowed: self.oracle.may(path, caps),
            at_most: false,
        }
    }

    /// Reads or changes a file. Sometimes it is the file that rules name, and sometimes the
    /// operation follows a link.
    fn change_file(&self, random: &mut Random, kind: usize) -> Operation {
        let at = if random.below(4) == 0 { self.dir.join("lit") } else { self.at.clone() };
        if !at.exists() {
            self.make_file(&at);
        }
        let (word, caps) = [
            ("read", "r"),
            ("write", "w"),
            ("both", "rw"),
            ("empty", "w"),
            ("truncate", "w"),
            ("cut", "rw"),
            ("chmod", "w"),
            ("utime", "w"),
        ][kind - 1];
        let mut made = self.simple(word, &at, caps);
        if random.below(3) == 0 {
            let link = self.base.join("links").join(self.number.to_string());
            symlink(&at, &link).unwrap();
            made.line = operation_line(word, &link, Path::new("-"));
        }
        made
    }

    /// Gives a file or a directory another name, in the same or another directory.
    fn rename_or_link(&self, random: &mut Random, kind: usize) -> Operation {
        let (oracle, at) = (self.oracle, &self.at);
        let same = random.below(2) == 0;
        let target = if same { self.dir.clone() } else { self.base.join(random.of(&DIRS)) };
        let to = target.join(random_name(random, self.number, "to"));
        let directory = kind == 18;
        if directory {
            self.make_dir(at);
        } else {
            self.make_file(at);
        }
        let over = kind == 19 && random.below(2) == 0;
        if over {
            self.make_file(&to);
        }
        let word = if kind == 20 { "link" } else { "rename" };
        let alike = alike_below(&oracle.sandbox, at, &to, &oracle.world()).unwrap();
        let allowed = (word == "link" || oracle.may(at, "d"))
            && oracle.may(&to, if over { "cd" } else { "c" })
            && oracle.no_gain(at, &to)
            && (!directory || alike);
        Operation { line: operation_line(word, at, &to), allowed, at_most: target != self.dir }
    }
}

/// The last operation of a round renames a directory of the tree itself.
fn rename_ancestor(random: &mut Random, oracle: &Oracle, base: &Path) -> Operation {
    let from = base.join(random.of(&["a/b", "a/b/c", "a/e"]));
    let to = from.with_file_name("renamed");
    let alike = alike_below(&oracle.sandbox, &from, &to, &oracle.world()).unwrap();
    let allowed = oracle.may(&from, "d") && oracle.may(&to, "c") && oracle.no_gain(&from, &to);
    let line = format!("rename\t{}\t{}", from.display(), to.display());
    Operation { line, allowed: allowed && alike, at_most: false }
}

/// Makes the directories and files of one round.
fn tree(world: &World, base: &Path) {
    let own = |path: &Path| chown(path, world.who, world.who).unwrap();
    for dir in ["", "links"].iter().chain(&DIRS) {
        let dir = base.join(dir);
        fs::create_dir(&dir).unwrap();
        own(&dir);
        for name in ["lit", "there"] {
            fs::write(dir.join(name), name).unwrap();
            own(&dir.join(name));
        }
    }
    // Copied by another process: a child that another thread forks would inherit the
    // descriptor for writing, and the file could not be executed meanwhile.
    let copied = Command::new("cp").arg("/bin/true").arg(base.join("prog")).status();
    assert!(copied.unwrap().success());
}

/// A sandbox with random rules, and the options of the test program for it.
fn random_sandbox(random: &mut Random, base: &Path, in_a_room: bool) -> (Sandbox, Vec<String>) {
    let links = base.join("links").display().to_string();
    let mut options = vec!["--allow".to_owned(), "r".to_owned(), links.clone()];
    let mut sandbox = Sandbox::named("room");
    let path = PathPattern::Subpath { path: links, follow_worktrees: false };
    let (effect, caps) = (Effect::Allow, FileCaps::READ);
    let span = PolicySpan::default();
    sandbox.fs.push(FsRule { pattern: path, effect, caps, writes: WriteTarget::InPlace, span });
    if random.below(8) == 0 {
        sandbox.default = Effect::Allow;
        options.push("--default-allow".to_owned());
    }
    let wide = random.below(2) == 0;
    for number in 0..1 + random.below(6) {
        let (mut rule, mut words) = rule(random, base, in_a_room);
        if number == 0 && wide {
            let path = base.join("a").display().to_string();
            words = vec!["--allow".to_owned(), "rwcdx".to_owned(), path.clone()];
            rule.pattern = PathPattern::Subpath { path, follow_worktrees: false };
            (rule.effect, rule.caps) = (Effect::Allow, FileCaps::ALL);
        }
        sandbox.fs.push(rule);
        options.extend(words);
    }
    if !in_a_room {
        options.extend(["--simulate".to_owned(), "no-userns".to_owned()]);
    }
    (sandbox, options)
}

#[test]
fn the_kernel_does_what_the_judge_says() {
    if python_is_missing() {
        return;
    }
    let seed = std::env::var("CLASH_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(20_261_116);
    eprintln!("CLASH_TEST_SEED={seed}");
    for who in identities() {
        for in_a_room in [true, false] {
            let mut random = Random(seed);
            let (mut agreed, mut permitted, mut refused) = (0, 0, 0);
            let world = World::new(who);
            for round in 0..SANDBOXES {
                let base = world.path(&format!("tree{round}"));
                tree(&world, &base);
                let (sandbox, options) = random_sandbox(&mut random, &base, in_a_room);
                let places = PolicyPlaces {
                    project: "/nonexistent/project".into(),
                    home: "/nonexistent/home".into(),
                    tmp: "/tmp".into(),
                    vars: vec![],
                };
                let oracle = Oracle { sandbox, places, in_a_room };
                let mut operations: Vec<Operation> = (0..OPERATIONS)
                    .map(|number| operation(&mut random, &world, &oracle, &base, number))
                    .collect();
                operations.push(rename_ancestor(&mut random, &oracle, &base));
                let input: String = operations.iter().map(|o| format!("{}\n", o.line)).collect();
                let options: Vec<&str> = options.iter().map(String::as_str).collect();
                let world = World::beside(&world).option(&options);
                let output = world.run_with_input(&[PYTHON, "-c", SCRIPT], &input);
                if output.status.code() == Some(3) {
                    refused += 1;
                    continue;
                }
                let answers = text(&output);
                assert_eq!(answers.len(), operations.len(), "{answers} {options:?}");
                for (operation, answer) in operations.iter().zip(answers.chars()) {
                    let done = answer == '1';
                    let agree = done == operation.allowed
                        || operation.at_most && operation.allowed && !done;
                    assert!(
                        agree,
                        "seed {seed}, round {round}, as {who:?}, room {in_a_room}: \
                         {} is {answer}, {}\n{options:?}",
                        operation.line, operation.allowed
                    );
                    permitted += usize::from(done);
                }
                agreed += operations.len();
            }
            eprintln!(
                "{agreed} operations agreed as {who:?}, {}, {permitted} of them permitted; \
                 {refused} sandboxes were refused",
                if in_a_room { "in rooms" } else { "without" }
            );
            assert!(refused * 4 < SANDBOXES, "hardly anything can be planned: {refused}");
            assert!(permitted * 8 > agreed, "hardly anything is permitted: {permitted}");
        }
    }
}
