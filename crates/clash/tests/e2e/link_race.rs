//! A background command against the file tools of the real Claude Code: it exchanges a
//! directory and a link while the model reads: two hundred times with `CLASH_NIGHTLY=1`,
//! else fifty times, as a plain user and as root. The key must never reach the model.

use std::fs;

use serde_json::{Value, json};

use crate::claude_client::{CLAUDE, bash, in_background};
use crate::client::{Here, SECRET, records};
use crate::support::{Machine, Who, is_root, skipped};

const POLICY: &str = r#"
load("@clash//sandboxes.star", "project")
settings(default = ask(), default_sandbox = project)
when({
    "Bash": {("cat", "echo", "python3", "sleep"): allow()},
    "Read": allow(sandbox = project),
})
"#;

const READS_A_TURN: usize = 10;

/// Plants a link to the keys in every way that is known, and then exchanges it with a
/// harmless directory: whenever the directory is opened, and every few milliseconds.
const SWAP: &str = r#"
import ctypes, os, random, select, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
keys, tries = sys.argv[1], int(sys.argv[2])
EXCHANGE, OPENED = 2, 0x21

def exchange(a, b):
    return libc.renameat2(-100, a.encode(), -100, b.encode(), EXCHANGE) == 0

def harmless(directory):
    os.makedirs(directory, exist_ok=True)
    for number in range(tries):
        with open(f"{directory}/key{number}", "w") as file:
            file.write(f"harmless {number}\n")

def plainly():
    os.symlink(keys, "link0")
    return "link0"

def from_the_root():
    os.symlink("/", "link1")
    return "link1"

def behind_a_link():
    os.makedirs("sub", exist_ok=True)
    os.symlink("..", "sub/l")
    os.symlink("sub/l/../.ssh", "link2")
    return "link2"

def renamed_up():
    os.makedirs("a", exist_ok=True)
    os.symlink("../.ssh", "a/link3")
    os.rename("a/link3", "link3")
    return "link3"

def by_hard_link():
    os.makedirs("b", exist_ok=True)
    os.symlink("../.ssh", "b/link4")
    os.link("b/link4", "link4", follow_symlinks=False)
    return "link4"

def attack(place, directory, link):
    watch = libc.inotify_init1(0o4000)
    libc.inotify_add_watch(watch, directory.encode(), OPENED)
    while not os.path.exists("stop"):
        select.select([watch], [], [], random.choice([0.002, 0.005, 0.02]))
        try: os.read(watch, 65536)
        except OSError: pass
        if exchange(place, link):
            time.sleep(random.choice([0.0005, 0.002, 0.005, 0.02]))
            while not exchange(place, link): pass

planted = []
for number, way in enumerate([plainly, from_the_root, behind_a_link, renamed_up, by_hard_link]):
    place = f"d{number}"
    directory = place + keys if way is from_the_root else place
    harmless(directory)
    try:
        link = way()
        if os.path.exists(f"{link}{keys if way is from_the_root else ''}") or os.path.islink(link):
            planted.append(way.__name__)
            threading.Thread(target=attack, args=(place, directory, link), daemon=True).start()
    except OSError as error:
        print(way.__name__, error, flush=True)
with open("ready", "w") as file:
    file.write("ready: " + " ".join(planted) + "\n")
while not os.path.exists("stop"):
    time.sleep(0.05)
"#;

/// A machine with Claude Code wired, the keys and the attacking script.
fn installed_machine(who: Who, tries: usize) -> Machine {
    let m = Machine::new(who).policy(POLICY);
    m.clash(["install", "--agent", "claude"]).succeeds();
    for number in 0..tries {
        m.write(format!(".ssh/key{number}"), SECRET);
    }
    m.write("app/swap.py", SWAP);
    m
}

#[test]
fn an_exchanged_link_never_shows_the_key_to_the_model() {
    let Some(claude) = CLAUDE.here() else { return };
    let tries = if std::env::var_os("CLASH_NIGHTLY").is_some() { 200 } else { 50 };
    if !is_root() {
        skipped("the race of links as root, because the tests do not run as root");
        return race(&claude, &installed_machine(Who::Me, tries), tries);
    }
    race(&claude, &installed_machine(Who::Me, tries), tries);
    let m = installed_machine(Who::Nobody, tries);
    if m.command(&claude.program).arg("--version").output().is_ok_and(|o| o.status.success()) {
        race(&claude, &m, tries);
    } else {
        skipped("the race of links as a plain user, who cannot execute Claude Code here");
    }
}

/// Runs the attack in the background while the model reads. Fails if a key reached the model,
/// or if no read succeeded.
fn race(claude: &Here<'_>, m: &Machine, tries: usize) {
    let keys = m.home().join(".ssh").canonicalize().unwrap();
    let attack = format!("python3 swap.py {} {tries}", keys.display());
    let mut calls = vec![in_background(&attack), bash("until cat ready; do sleep 0.1; done")];
    let read = |number: usize| {
        let below = match number % 5 {
            1 => format!("d1{}", keys.display()),
            way => format!("d{way}"),
        };
        let path = m.project().join(below).join(format!("key{number}"));
        json!({"tool": "Read", "input": {"file_path": path}})
    };
    let numbers: Vec<usize> = (0..tries).collect();
    let turn = |turn: &[usize]| Value::Array(turn.iter().map(|n| read(*n)).collect());
    calls.extend(numbers.chunks(READS_A_TURN).map(turn));
    calls.push(bash("echo stop > stop"));
    let (talk, ran) = claude.attempt(m, &calls, &[]);
    let planted = fs::read_to_string(m.project().join("ready")).unwrap();
    let of = |text: &str| talk.results.iter().filter(|result| result.text.contains(text)).count();
    let (leaked, harmless) = (of(SECRET), of("harmless"));
    let told = format!("{planted}{leaked} leaked, {harmless} harmless");
    assert_eq!(talk.results.len(), tries + 3, "{told}: {ran:?}");
    assert_eq!(leaked, 0, "{told}; alarms: {}", records(m, "alarm").len());
    assert!(harmless > 0, "{told}");
}
