//! What the policy says and what the kernel does are the same: random sandboxes,
//! every operation in every directory, the judge of file tools against a room.
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
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use clash_policy::judge::{World as Judged, judge};
use clash_policy::path::NoLinks;
use clash_policy::{Caps, Effect, FileUse, FsRule, PathPattern, Places, Sandbox, Span};
use support::*;

const DIRS: [&str; 7] = ["a", "a/b", "a/b/c", "a/b/c/d", "a/e", "a/e/f", "g"];
const SANDBOXES: usize = 130;

/// Prints one line per directory: list, read, write, create, delete.
const SCRIPT: &str = r"
import os, sys
def tries(f):
    try: f(); return '1'
    except OSError: return '0'
def shown(d):
    # A directory on the way to what is granted is the room's own.
    if 'read' not in os.listdir(d): raise OSError
for d in sys.argv[1:]:
    print(tries(lambda: shown(d))
        + tries(lambda: open(d + '/read').read())
        + tries(lambda: os.close(os.open(d + '/write', os.O_WRONLY)))
        + tries(lambda: os.close(os.open(d + '/new', os.O_CREAT | os.O_EXCL | os.O_RDONLY)))
        + tries(lambda: os.unlink(d + '/delete')))
";

/// A small generator: the same seed gives the same sandboxes.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

fn rules(random: &mut Random) -> Vec<(Effect, &'static str, &'static str)> {
    (0..1 + random.below(5))
        .map(|_| {
            let dir = DIRS[random.below(DIRS.len())];
            match random.below(3) {
                0 => (Effect::Deny, ["rwcdx", "wcd", "wcdx", "x"][random.below(4)], dir),
                _ => {
                    (Effect::Allow, ["r", "rx", "rwcdx", "rwcd", "rw", "rc"][random.below(6)], dir)
                }
            }
        })
        .collect()
}

/// What the judge says, as the script would print it.
fn expected(sandbox: &Sandbox, base: &Path) -> Vec<String> {
    let places = Places {
        project: "/nonexistent/project".into(),
        home: "/nonexistent/home".into(),
        tmp: "/tmp".into(),
        vars: vec![],
    };
    let world =
        Judged { places: &places, cwd: &places.project, links: &NoLinks, baseline: &[], cage: &[] };
    let ask = |path: PathBuf, needs| {
        let file = FileUse { path, needs, caseless: false };
        let allowed = judge(sandbox, &file, &world).unwrap().effect == Effect::Allow;
        if allowed { '1' } else { '0' }
    };
    let line = |dir: &&str| {
        let dir = base.join(dir);
        [
            ask(dir.clone(), Caps::READ),
            ask(dir.join("read"), Caps::READ),
            ask(dir.join("write"), Caps::WRITE),
            // Making a file opens it for reading here.
            match (ask(dir.join("new"), Caps::CREATE), ask(dir.join("new"), Caps::READ)) {
                ('1', '1') => '1',
                _ => '0',
            },
            ask(dir.join("delete"), Caps::DELETE),
        ]
        .iter()
        .collect()
    };
    DIRS.iter().map(line).collect()
}

#[test]
fn the_kernel_does_what_the_judge_says() {
    if python_is_missing() {
        return;
    }
    let seed = std::env::var("CLASH_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("CLASH_TEST_SEED={seed}");
    for who in identities() {
        let mut random = Random(seed);
        let (mut agreed, mut refused) = (0, 0);
        let world = World::new(who);
        for round in 0..SANDBOXES {
            let base = world.path(&format!("tree{round}"));
            fs::create_dir(&base).unwrap();
            for dir in DIRS {
                let dir = base.join(dir);
                fs::create_dir(&dir).unwrap();
                chown(&dir, who, who).unwrap();
                for name in ["read", "write", "delete"] {
                    fs::write(dir.join(name), "").unwrap();
                    chown(dir.join(name), who, who).unwrap();
                }
            }
            let rules = rules(&mut random);
            let mut options = Vec::new();
            let mut sandbox = Sandbox::named("room");
            for (effect, caps, dir) in &rules {
                let path = base.join(dir).display().to_string();
                let flag = if *effect == Effect::Allow { "--allow" } else { "--deny" };
                options.extend([flag.to_owned(), (*caps).to_owned(), path.clone()]);
                sandbox.fs.push(FsRule {
                    pattern: PathPattern::Subpath { path, follow_worktrees: false },
                    effect: *effect,
                    caps: Caps::parse(caps).unwrap(),
                    cow: false,
                    span: Span::default(),
                });
            }
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            let world = World::beside(&world).option(&options);
            let dirs: Vec<String> =
                DIRS.iter().map(|dir| base.join(dir).display().to_string()).collect();
            let mut argv = vec![PYTHON, "-c", SCRIPT];
            argv.extend(dirs.iter().map(String::as_str));
            let output = world.run(&argv);
            if output.status.code() == Some(3) {
                refused += 1;
                continue;
            }
            let lines: Vec<String> = text(&output).lines().map(str::to_owned).collect();
            let wanted = expected(&sandbox, &base);
            assert_eq!(lines, wanted, "seed {seed}, round {round}, as {who:?}: {rules:?}");
            agreed += wanted.iter().map(String::len).sum::<usize>();
        }
        eprintln!("{agreed} operations agreed as {who:?}, {refused} sandboxes were refused");
        assert!(refused * 2 < SANDBOXES, "hardly anything can be planned: {refused}");
    }
}
