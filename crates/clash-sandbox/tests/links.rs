//! Symbolic links on the real kernel: no path in a tree that a room may change ever leads
//! to a file that the sandbox may not read. In rooms and without, as root and as a plain
//! user.
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
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::*;

/// Runs each attack, and then checks whether a path below the project leads out.
#[track_caller]
fn each_fails(world: &World, attacks: &[&str]) {
    for attack in attacks {
        let output = world.sh(attack);
        assert!(!output.status.success(), "{attack} {:?} {:?}", world.options, world.who);
        let app = fs::canonicalize(world.project()).unwrap();
        assert_eq!(leading_out(&app, &app), [""; 0], "after {attack} {:?}", world.options);
    }
}

/// The links below a directory that lead out of the project.
fn leading_out(dir: &Path, app: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_symlink() {
            let real = fs::canonicalize(entry.path());
            if real.is_ok_and(|real| !real.starts_with(app) && !real.starts_with("/usr")) {
                found.push(entry.path().display().to_string());
            }
        } else if kind.is_dir() {
            found.extend(leading_out(&entry.path(), app));
        }
    }
    found
}

#[test]
fn no_link_leads_above_the_granted_tree() {
    each_tier(|world| {
        bare(&world, "mkdir -p a/b/c d && echo 1 > a/f");
        let home = world.path("home").display().to_string();
        let key = format!("ln -s {home}/.ssh/id_ed25519 L");
        let home = format!("ln -s {home} L");
        each_fails(
            &world,
            &[
                "ln -s / L",
                "ln -s .. L",
                "ln -s ../.. a/L",
                "ln -s a/../.. L",
                "ln -s ./.. L",
                "ln -s ../.ssh L",
                "ln -s ../app2 L",
                "ln -s /proc/self/cwd L",
                "ln -s /dev/fd/0 L",
                &home,
                &key,
                // After a link of the command's own, `..` is another directory.
                "rm -rf l1 L; ln -s a/b l1 && ln -s l1/../../../.ssh L",
                "rm -rf l2 L; mkdir -p x/y && ln -s ../../d x/y/l2 && ln -s x/y/l2/../../.ssh L",
                "rm -rf L M; mkdir -p p/q && ln -s p/q/../../.. L",
            ],
        );
    });
}

#[test]
fn a_link_is_judged_again_where_it_is_renamed_to() {
    each_tier(|world| {
        bare(&world, "mkdir -p a/b/c d && ln -s ../../d a/b/deep && ln -s ../.. a/b/c/two");
        each_fails(
            &world,
            &[
                "mv a/b/deep L",
                "mv a/b/deep a/L",
                "ln a/b/deep L",
                "ln -P a/b/deep L",
                "mv a/b/c/two L",
                "cp -P a/b/c/two L",
                "ln -s ../../../d a/b/c/n && mv a/b/c/n L",
            ],
        );
        works(&world, "mv a/b/deep a/b/deeper && mv a/b/deeper a/b/c/ && rm a/b/c/deeper");
    });
}

#[test]
fn a_directory_with_a_climbing_link_is_not_moved_up() {
    const EXCHANGE: &str = "import ctypes, os, sys\n\
        r = ctypes.CDLL(None).renameat2(-100, sys.argv[1].encode(), -100, sys.argv[2].encode(), 2)\n\
        sys.exit(r != 0)";
    each_tier(|world| {
        bare(
            &world,
            "mkdir -p a/b/c/d e && ln -s ../../../../.ssh a/b/c/gone; rm a/b/c/gone;
             ln -s ../../../e a/b/c/up && ln -s ../../.. a/b/c/root",
        );
        let exchanges = [("a/b/c", "e"), ("e", "a/b/c"), ("a/b/c/up", "e")]
            .map(|(one, other)| format!("{PYTHON} -c '{EXCHANGE}' {one} {other}"));
        let mut attacks = vec![
            "mv a/b/c c",
            "mv a/b/c a/c",
            "mkdir -p z && mv -T a/b/c z",
            "mv a/b b && mv b/c c",
            "rmdir e && mv a/b/c e",
        ];
        if !python_is_missing() {
            attacks.extend(exchanges.iter().map(String::as_str));
        }
        each_fails(&world, &attacks);
        works(&world, "mkdir -p e && mv a/b/c a/b/c2 && mkdir -p a/x && mv a/b/c2 a/x/c");
        works(&world, "mkdir -p p/q/r && ln -s ../f p/q/r/in && mv p/q/r r && mv r p/");
    });
}

/// Existing links that lead out do not become a way to another name.
#[test]
fn a_link_that_was_there_takes_no_other_name() {
    each_tier(|world| {
        bare(
            &world,
            "mkdir -p a/in src && ln -s ../../.ssh a/out && ln -s ../.ssh out && touch a/f",
        );
        for attack in ["mv out src/x", "mv out L", "mv a L", "mv a src/a", "ln out L", "ln a/out L"]
        {
            let output = world.sh(attack);
            assert!(!output.status.success(), "{attack} {:?}", world.options);
            bare(&world, "rm -rf L src/a src/x; test -L out || ln -s ../.ssh out");
            bare(&world, "mkdir -p a/in; touch a/f; test -L a/out || ln -s ../../.ssh a/out");
        }
        works(&world, "rm out a/out && mv a L");
    });
}

#[test]
fn a_link_shows_nothing_that_is_denied_or_protected() {
    each_tier(|world| {
        bare(
            &world,
            "mkdir -p secret/in conf .git/hooks .vscode vendor/fe front && echo 1 > secret/in/key &&
             echo 1 > .git/config && mkdir -p node_modules/p",
        );
        let app = world.project().display().to_string();
        let world = world.option(&["--deny", "rwcdx", &format!("{app}/secret")]);
        let world = world.option(&["--deny-glob", "rw", &format!("{app}/conf"), "*.key"]);
        each_fails(
            &world,
            &[
                "ln -s secret L",
                "ln -s secret/in/key L",
                "ln -s . L",
                "ln -s .. front/L",
                "ln -s conf L",
                "ln -s .git L",
                "ln -s .git/hooks L",
                "ln -s .vscode L",
                "ln -s .envrc L",
                "mv front old && ln -s vendor/fe front",
                "ln -s node_modules/p L",
            ],
        );
        works(
            &world,
            "test -e front || mv old front; ln -s ../front node_modules/w && rm node_modules/w",
        );
    });
}

/// Files below `vendor` are protected under the name that a link gives them.
#[test]
fn a_link_to_packages_makes_their_names_count() {
    each_tier(|world| {
        bare(&world, "mkdir -p vendor/fe vendor/other && ln -s vendor/fe front");
        for attack in [
            "echo x > vendor/fe/.envrc",
            "mkdir vendor/fe/.vscode",
            "echo x > front/.envrc",
            "mkdir vendor/n && echo x > vendor/n/.envrc && mv vendor/n back",
        ] {
            let output = world.sh(attack);
            assert!(!output.status.success(), "{attack} {:?}", world.options);
        }
        works(&world, "echo x > vendor/other/.envrc && mkdir vendor/other/.vscode");
    });
}

#[test]
fn everyday_links_are_made() {
    each_tier(|world| {
        let lib = world.path("home/lib").display().to_string();
        bare(&world, &format!("mkdir -p {lib}/bin && echo 1 > {lib}/bin/python"));
        let world = world.option(&["--rx", &lib]);
        for link in [
            "mkdir -p node_modules/.bin node_modules/p && ln -s ../p/bin.js node_modules/.bin/p",
            "mkdir -p node_modules/.pnpm/a/node_modules/a && ln -s .pnpm/a/node_modules/a node_modules/a",
            "mkdir -p packages/w && ln -s ../packages/w node_modules/w",
            "mkdir -p v/bin v/lib && ln -s /usr/bin/python3 v/bin/python3 && ln -s lib v/lib64",
            "ln -s python3 v/bin/python && ln -s v/bin tools",
            "ln -s nowhere dangling && ln -s ./also/nowhere dangling2",
            "ln -s host.123:456 .#lock",
            "ln -s /dev/null null && ln -s /bin/sh sh && ln -s /etc/hosts hosts",
            "ln -s . self && ln -s ../.. node_modules/p/up",
            "mkdir -p a/b/c && ln -s ../../../packages a/b/c/p && ls a/b/c/p/",
            "ln -s loop loop && ln -sfn v/lib lib && ln -sfn packages lib && mv lib lib2",
            "mkdir -p new/deep && ln -s ../x new/deep/l && mv new newer && mv newer/deep . && mv deep newer/",
        ] {
            works(&world, link);
        }
        works(&world, &format!("ln -s {lib}/bin/python mine && cat mine"));
        works(&world, "ln -s $PWD/packages abs && ls abs/ && cp -a packages copy && rm -rf copy");
    });
}

/// A room without a monitor can neither make nor rename links.
#[test]
fn a_room_without_a_monitor_makes_no_links() {
    everyone(|world| {
        bare(&world, "mkdir -p a/b && ln -s ../../../.ssh a/out");
        for options in [&["--unprotected"][..], &["--unprotected", "--lifetime", "detached"]] {
            let world = World::beside(&world).option(options);
            for attack in ["ln -s / L", "ln -s .. L", "mv a/out L", "mv a/out a/b/L", "ln a/out L"]
            {
                let output = world.sh(attack);
                assert!(!output.status.success(), "{attack} {:?}", world.options);
            }
            works(&world, "echo 1 > f && mv f g && rm g && mkdir n && mv n m && rmdir m");
        }
    });
}

/// One rename of a directory. Exits with the error number.
const RENAME: &str = "import os, sys\n\
    try: os.rename(sys.argv[1], sys.argv[2])\n\
    except OSError as e: sys.exit(e.errno)";
const EXDEV: Option<i32> = Some(18);

/// The kernel may still follow a link that a room has removed. So the link holds its
/// directory for a while, and every directory to which its `..` has led.
#[test]
fn a_removed_link_keeps_its_directory_from_moving_up() {
    if python_is_missing() {
        return;
    }
    let exchange = "import ctypes\n\
        assert ctypes.CDLL(None).renameat2(-100, b'a/b/c/l', -100, b'a/x/d/f', 2) == 0";
    let exchange = format!("touch a/x/d/f && {PYTHON} -c \"{exchange}\"");
    let cases = [
        ("rm a/b/c/l", "a/b/c", "c"),
        ("rm a/b/c/l", "a/b", "b"),
        ("rm -r a/b/c", "a/b", "b"),
        ("echo 1 > g && mv g a/b/c/l && rm a/b/c/l", "a/b/c", "a/c"),
        ("ln -sfn . a/b/c/l", "a/b/c", "c"),
        ("mv a/b/c/l a/x/d/l", "a/b/c", "c"),
        (&exchange, "a/b/c", "c"),
        // The link is still there, but in another place.
        ("mv a/b/c a/x/c", "a/b", "b"),
        ("rm a/b/c/l && mv a/b/c a/x/c", "a/x/c", "c"),
        ("rm a/b/c/l && mv a/b/c a/x/c && rmdir a/x/c a/x/d", "a/x", "x"),
    ];
    each_tier(|world| {
        for (change, from, to) in cases {
            // The record goes too: inodes of the previous case may return.
            bare(&world, "rm -rf * ../../former-links && mkdir -p a/b/c a/x/d e");
            bare(&world, "ln -s ../../../e a/b/c/l");
            works(&world, change);
            let moved = world.run(&[PYTHON, "-c", RENAME, from, to]);
            let case = format!("{change}; {from} to {to}, {:?} {:?}", world.options, world.who);
            assert_eq!(moved.status.code(), EXDEV, "{case} {}", text(&moved));
        }
    });
}

#[test]
fn a_removed_link_that_would_stay_inside_holds_nothing() {
    if python_is_missing() {
        return;
    }
    let cases = [
        ("rm -r a/b/c/d/near", "a/b/c", "c"),
        ("rm -r a/b/c/d", "a/b/c", "c"),
        ("rm a/b/c/l && rm -r a/b/c/d", "a/b/c", "a/x/c"),
        ("rm a/b/c/l", "a/b", "x/b"),
        ("rm -r a/b/c", "e", "x/e"),
        ("rm -r a/b/c", "x/y", "y"),
        ("mv a/b/c/l a/b/c/m && rm a/b/c/d/near", "a/b/c", "a/b/c2"),
    ];
    each_tier(|world| {
        for (change, from, to) in cases {
            bare(
                &world,
                "rm -rf * ../../former-links && mkdir -p a/b/c/d a/x e x/y &&
                 ln -s ../../../e a/b/c/l && ln -s ../../f a/b/c/d/near",
            );
            if from == "a/b/c" && to == "c" {
                bare(&world, "rm a/b/c/l");
            }
            works(&world, change);
            let moved = world.run(&[PYTHON, "-c", RENAME, from, to]);
            let case = format!("{change}; {from} to {to}, {:?} {:?}", world.options, world.who);
            assert_eq!(moved.status.code(), Some(0), "{case} {}", text(&moved));
        }
    });
}

/// Without the shared record, a monitor does not know which links others have removed.
#[test]
fn without_the_record_no_directory_gets_another_parent() {
    if python_is_missing() {
        return;
    }
    each_tier(|world| {
        bare(&world, "mkdir -p a/b c");
        let world = world.option(&["--former-links", "/proc/record"]);
        let renames = |from, to| world.run(&[PYTHON, "-c", RENAME, from, to]).status.code();
        assert_eq!([renames("a/b", "b"), renames("c", "a/c")], [EXDEV; 2]);
        assert_eq!([renames("a/b", "a/d"), renames("c", "e")], [Some(0); 2]);
        works(&world, "mv a/d up && rmdir up && rm -rf a e");
    });
}

/// One room makes and removes links that climb, the other moves their directory. Other
/// processes take the CPU from the kernel while it follows the links.
#[test]
fn two_rooms_never_show_a_way_out_together() {
    // The kernel needs a while for the many names before `..`.
    const MAKES: &str = r"
import os, time
LONG = './' * 2000
end = time.time() + 4; made = 0
while time.time() < end:
    for up in ('../../../e', '../../e', '../e', LONG + '../../..', '../../..', '../../../..'):
        for at in ('a/b/c/l', 'a/e/c/l', 'c/l', 'a/c/l', 'x/l'):
            try: os.close(os.open(at, os.O_CREAT | os.O_EXCL | os.O_WRONLY)); os.unlink(at)
            except OSError: pass
            try: os.symlink(up, at); made += 1
            except OSError: pass
            try: os.unlink(at)
            except OSError: pass
print(min(made, 1))
";
    const MOVES: &str = r"
import os, time
end = time.time() + 4; moved = 0
while time.time() < end:
    for one, other in (('a/b/c/l', 'x/l'), ('a/b/c/l', 'c/l'), ('a/b/c', 'c'), ('c', 'a/c'), ('a/c', 'a/b/c'), ('a/b/c', 'x'), ('x', 'a/b/c'), ('a/b/c', 'a/e/c'), ('a/e', 'e2'), ('e2', 'a/e'), ('a/e/c', 'a/b/c')):
        try: os.rename(one, other); moved += 1
        except OSError: pass
print(min(moved, 1))
";
    /// Checks whether a path leads out, as the agent's file tools would follow it. Behind
    /// `/proc/self/cwd` the kernel does not notice that a directory moves.
    const LOOKS: &str = r"
import os, sys, time
app = os.getcwd(); end = time.time() + 4.5; out = set(); looks = 0
while time.time() < end:
    for d in ('a/b/c/l', 'a/e/c/l', 'c/l', 'a/c/l', 'x/l'):
        try: fd = os.open('/proc/self/cwd/' + d, os.O_PATH)
        except OSError: continue
        real = os.readlink('/proc/self/fd/%d' % fd); os.close(fd); looks += 1
        if not (real + '/').startswith(app + '/'): out.add(d + ' -> ' + real)
print(sorted(out), min(looks, 1))
";
    if python_is_missing() {
        return;
    }
    each_tier(|world| {
        bare(&world, "mkdir -p a/b/c a/e e");
        let room = |script: &str| -> Child {
            let prefix = world.prefix();
            let mut command = Command::new(&prefix[0]);
            command.args(&prefix[1..]).args([PYTHON, "-c", script]);
            let mut command = world.prepare(command);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let rooms = [room(MAKES), room(MOVES), room(MAKES)];
        let load = [(); 4].map(|()| {
            let mut busy = Command::new("/bin/sh");
            busy.args(["-c", "while :; do :; done"]);
            world.prepare(busy).spawn().unwrap()
        });
        let looked = world.bare(&[PYTHON, "-c", LOOKS]);
        load.into_iter().for_each(kill);
        let said: Vec<String> = rooms.map(|room| text(&room.wait_with_output().unwrap())).to_vec();
        assert_eq!(said, ["1", "1", "1"], "{:?}", world.options);
        assert_eq!(text(&looked), "[] 1", "{:?} {:?}", world.options, world.who);
    });
}

fn kill(mut process: Child) {
    process.kill().unwrap();
    process.wait().unwrap();
}
