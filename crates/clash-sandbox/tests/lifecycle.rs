//! A launch from its first instant to its last, on the real kernel, as root and as a plain
//! user. Nothing is left behind whenever the launcher dies, signals and the exit status pass
//! through, and a launch reads no directory of the user.
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::process::{Pid, Signal, kill_process_group};
use support::*;

/// Starts a launcher without output, and waits for its exit status.
#[track_caller]
fn end_of(mut room: Command) -> Option<i32> {
    let mut room = room.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut end = None;
    eventually("the launcher ends", || {
        end = room.try_wait().unwrap();
        end.is_some()
    });
    end.and_then(|end| end.code())
}

/// The processes with a word on their command line.
fn processes(word: &str) -> Vec<String> {
    let named = |pid: &String| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|arg| arg == word.as_bytes())
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    pids.filter(|name| name.bytes().all(|b| b.is_ascii_digit())).filter(named).collect()
}

/// Waits without sleeping, which would be too coarse.
fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
fn killing_the_launcher_at_any_instant_leaves_no_process() {
    each_way(|world| {
        let word = format!("instant-{}", world.path("x").display());
        // A launch takes some milliseconds, so the kills hit every phase.
        for round in 0..150 {
            let mut launcher =
                world.command(&["sh", "-c", "while :; do sleep 60; done", &word]).spawn().unwrap();
            spin(Duration::from_micros(60 * round));
            launcher.kill().unwrap();
            launcher.wait().unwrap();
        }
        eventually("every process of every room is gone", || processes(&word).is_empty());
    });
}

#[test]
fn interrupting_the_group_leaves_no_temporary_directory() {
    recorded(|world| {
        let tmp = world.path("tmp");
        fs::create_dir(&tmp).unwrap();
        fs::set_permissions(&tmp, fs::Permissions::from_mode(0o1777)).unwrap();
        let of_its_own = ["--simulate", "no-userns", "--tmp", tmp.to_str().unwrap()];
        let world = world.option(&of_its_own);
        assert!(world.sh("test -d $TMPDIR && test $TMPDIR != /tmp").status.success());
        for round in 0..150 {
            let mut launcher = world.command(&["sleep", "60"]).process_group(0).spawn().unwrap();
            spin(Duration::from_micros(60 * round));
            let group = Pid::from_child(&launcher);
            kill_process_group(group, Signal::INT).unwrap();
            launcher.wait().unwrap();
        }
        eventually("all are removed", || fs::read_dir(&tmp).unwrap().count() == 0);
    });
}

#[test]
fn killing_the_launcher_ends_the_running_command() {
    each_way(|world| {
        let word = format!("running-{}", world.path("x").display());
        let script = "setsid sleep 600 & (setsid sh -c 'sleep 600 & sleep 600' &) ; echo up; wait";
        let mut launcher =
            world.command(&["sh", "-c", script, &word]).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(launcher.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(processes(&word).len() >= 2, "launcher and command");
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        // Every process of the room holds this pipe.
        assert_eq!(output.read_to_string(&mut line).unwrap(), 0);
        eventually("the room is gone", || processes(&word).is_empty());
    });
}

/// Without a room, a process could kill the guard to which orphans are given.
#[test]
fn killing_the_guard_leaves_no_process() {
    let children = |pid: &str| -> Vec<String> {
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        list.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    };
    recorded(|world| {
        let world = world.option(&["--simulate", "no-userns"]);
        let word = format!("between-{}", world.path("x").display());
        let script = "(setsid sleep 600 &); echo up; sleep 600";
        let mut launcher =
            world.command(&["sh", "-c", script, &word]).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(launcher.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let below = children(&launcher.id().to_string());
        let between = below.iter().find(|pid| !children(pid).is_empty()).unwrap();
        assert!(Command::new("kill").args(["-KILL", between]).status().unwrap().success());
        let end = launcher.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&end), Some(9));
        assert_eq!(output.read_to_string(&mut line).unwrap(), 0);
        eventually("every process is gone", || processes(&word).is_empty());
    });
}

/// Kernel objects that would pile up if launches left something behind.
fn piles(world: &World) -> BTreeMap<String, usize> {
    let count = |path: &Path| fs::read_dir(path).map_or(0, Iterator::count);
    let lines = |path: &str| fs::read_to_string(path).map_or(0, |text| text.lines().count());
    let mut piles = BTreeMap::from([
        ("mounts".to_owned(), lines("/proc/self/mountinfo")),
        ("own descriptors".to_owned(), count(Path::new("/proc/self/fd"))),
        ("files of the project".to_owned(), count(&world.project())),
        ("files of the home".to_owned(), count(&world.path("home"))),
        ("files beside it".to_owned(), count(&world.path(""))),
        ("control groups".to_owned(), count_cgroups(Path::new("/sys/fs/cgroup"))),
    ]);
    // Only root may read how many of them the kernel has.
    let slabs = fs::read_to_string("/proc/slabinfo").unwrap_or_default();
    for kind in ["pid_namespace", "user_namespace", "net_namespace", "mnt_cache"] {
        let line = slabs.lines().find(|line| line.split(' ').next() == Some(kind));
        let active = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        piles.extend(active.map(|active: usize| (format!("{kind} in the kernel"), active)));
    }
    piles
}

/// The number of cgroups below a directory.
fn count_cgroups(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    below.map(|entry| 1 + count_cgroups(&entry.path())).sum()
}

/// `CLASH_TEST_LAUNCHES=10000` runs the promised number.
#[test]
fn many_launches_at_once_leave_nothing_behind() {
    const AT_ONCE: usize = 16;
    let launches: usize =
        std::env::var("CLASH_TEST_LAUNCHES").map_or(256, |number| number.parse().unwrap());
    each_way(|world| {
        let word = format!("many-{}", world.path("x").display());
        let launch = |launches: usize| {
            for _ in 0..launches.div_ceil(AT_ONCE) {
                let start = |_| world.command(&["sh", "-c", "exit 3", &word]).spawn().unwrap();
                let batch: Vec<Child> = (0..AT_ONCE).map(start).collect();
                for mut launcher in batch {
                    assert_eq!(launcher.wait().unwrap().code(), Some(3));
                }
            }
        };
        // The kernel counts free objects on a processor's own list as used. Fill these lists.
        launch(launches / 4);
        let before = piles(&world);
        if before.len() < 8 {
            eprintln!("SKIPPED (not root): how many namespaces the kernel keeps");
        }
        launch(launches);
        eventually("every process is gone", || processes(&word).is_empty());
        // Other processes make namespaces meanwhile, and the kernel frees them late. But a
        // leak would leave one object per launch, and about twenty mounts per launch.
        let patience = Instant::now();
        loop {
            let now = piles(&world);
            let most =
                |what: &str| launches * if what.starts_with("mnt_cache") { 10 } else { 1 } * 3 / 4;
            let grew = |(what, count): &(&String, &usize)| now[*what] > **count + most(what);
            let Some(left) = before.iter().find(grew) else { break };
            assert!(patience.elapsed() < Duration::from_secs(60), "{left:?} became {now:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
        let (now, exact) = (piles(&world), ["mounts", "files of the project", "files of the home"]);
        exact.iter().for_each(|what| assert_eq!(now[*what], before[*what], "{what}"));
    });
}

/// An inotify watch that sees every read of a directory.
struct Watch(OwnedFd);

impl Watch {
    fn of(dirs: &[PathBuf]) -> Self {
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        for dir in dirs {
            inotify::add_watch(&watch, dir, WatchFlags::ACCESS).unwrap();
        }
        Self(watch)
    }

    /// The number of reads since the last call.
    fn count_reads(&self) -> usize {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.0, &mut buffer);
        let mut seen = 0;
        while let Ok(event) = reader.next() {
            seen += usize::from(event.events().contains(ReadFlags::ACCESS));
        }
        seen
    }
}

#[test]
fn launching_reads_no_directory_of_the_user() {
    recorded(|world| {
        let mut dirs = vec![world.project(), world.path("home")];
        for name in ["src", "src/deep", ".git", ".git/hooks", "node_modules", ".claude"] {
            dirs.push(world.project().join(name));
            fs::create_dir(dirs.last().unwrap()).unwrap();
            fs::write(dirs.last().unwrap().join("file"), "").unwrap();
        }
        let watch = Watch::of(&dirs);
        assert!(world.sh("true").status.success());
        assert_eq!(watch.count_reads(), 0, "as {:?}", world.who);
        assert!(world.sh("ls src").status.success());
        assert_ne!(watch.count_reads(), 0, "what the command reads is seen");
    });
}

#[test]
fn every_signal_that_can_be_caught_is_passed_on() {
    each_way(|world| {
        for signal in ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "WINCH", "CONT"] {
            let script = format!(
                "trap 'echo got {signal}; exit 9' {signal}; echo up; while :; do sleep 0.05; done"
            );
            let mut launcher =
                world.command(&["bash", "-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
            let mut output = BufReader::new(launcher.stdout.take().unwrap());
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            assert_eq!(line, "up\n");
            let pid = launcher.id().to_string();
            assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
            let mut rest = String::new();
            output.read_to_string(&mut rest).unwrap();
            assert_eq!(rest, format!("got {signal}\n"));
            assert_eq!(launcher.wait().unwrap().code(), Some(9));
        }
    });
}

#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    each_way(|world| {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' INT; exec \"$@\"", "sh"]).args(world.prefix());
        command.args(["sh", "-c", "kill -INT $$; echo alive"]);
        let output = world.prepare(command).output().unwrap();
        assert_eq!(text(&output), "alive");
    });
}

#[test]
fn a_caller_that_ignores_sigchld_sees_the_exit_status() {
    each_way(|world| {
        let run = |prefix: &[String], argv: &[&str]| {
            let mut command = Command::new("sh");
            command.args(["-c", "trap '' CHLD; exec \"$@\"", "sh"]).args(prefix).args(argv);
            world.prepare(command).output().unwrap()
        };
        let output = run(&world.prefix(), &["sh", "-c", "exit 7"]);
        assert_eq!(output.status.code(), Some(7), "{}", text(&output));
        let ignored = ["grep", "SigIgn", "/proc/self/status"];
        assert_eq!(text(&run(&world.prefix(), &ignored)), text(&run(&[], &ignored)));
    });
}

#[test]
fn detached_processes_live_on_and_stay_confined() {
    each_way(|world| {
        let word = format!("detached-{}", world.path("x").display());
        // Both tiers have one project.
        for name in ["stop", "ended", "leaked"] {
            let _ = fs::remove_file(world.project().join(name));
        }
        let key = world.path("home/.ssh/id_ed25519").display().to_string();
        let script = format!(
            "setsid sh -c 'until test -e stop; do sleep 0.05; done; cat {key} > leaked; touch ended' \
             \"$0\" >/dev/null 2>&1 & exit 4"
        );
        for (lifetime, word) in [("action", "ends"), ("detached", word.as_str())] {
            let before: Vec<&str> = world.options.iter().map(String::as_str).collect();
            let world = World::beside(&world).option(&before).option(&["--lifetime", lifetime]);
            let output = world.run(&["sh", "-c", &script, word]);
            assert_eq!(output.status.code(), Some(4), "{}", text(&output));
            // A process that is just being replaced by another program shows no words.
            match lifetime {
                "action" => assert_eq!(processes(word), Vec::<String>::new()),
                _ => eventually("it lives on", || !processes(word).is_empty()),
            }
        }
        fs::write(world.project().join("stop"), "").unwrap();
        eventually("the room is gone", || processes(&word).is_empty());
        assert!(world.project().join("ended").exists());
        assert_eq!(fs::read_to_string(world.project().join("leaked")).unwrap(), "");
    });
}

#[test]
fn what_lives_on_is_gone_when_the_launcher_is_killed() {
    recorded(|world| {
        let word = format!("released-{}", world.path("x").display());
        let world = world.option(&["--lifetime", "detached", "--unprotected"]);
        let script = "sleep 600 & echo up; sleep 600";
        let mut launcher =
            world.command(&["sh", "-c", script, &word]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(launcher.stdout.take().unwrap()).read_line(&mut line).unwrap();
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        eventually("the room is gone", || processes(&word).is_empty());
    });
}

#[test]
fn a_command_that_ran_out_of_time_is_ended_with_a_message() {
    each_way(|world| {
        let word = format!("late-{}", world.path("x").display());
        let world = world.option(&["--limit", "wall", "1"]);
        let output = world.run(&["sh", "-c", "trap '' TERM; sleep 600 & wait; sleep 600", &word]);
        assert_eq!(output.status.code(), Some(124));
        assert_eq!(text(&output), "room: the command was ended after 1 s, the sandbox's limit");
        eventually("the room is gone", || processes(&word).is_empty());
    });
}

#[test]
fn time_runs_out_for_a_command_that_has_stopped_too() {
    each_way(|world| {
        let word = format!("stopped-{}", world.path("x").display());
        let world = world.option(&["--limit", "wall", "1"]);
        let room = world.command(&["sh", "-c", "sleep 600 & kill -STOP $$; sleep 600", &word]);
        assert_eq!(end_of(room), Some(124));
        eventually("the room is gone", || processes(&word).is_empty());
    });
}

/// A sibling of the command is a child of the launcher. The launcher has to reap it before
/// the room can end, in whatever process group it is.
#[test]
fn a_room_ends_despite_clone_parent_children() {
    if python_is_missing() {
        return;
    }
    const CLONE_PARENT: &str = "0x8000";
    let script = format!(
        "import ctypes, os, signal
made = ctypes.CDLL(None).syscall(56 if os.uname().machine == 'x86_64' else 220,
    ctypes.c_long({CLONE_PARENT} | signal.SIGCHLD), 0, 0, 0, 0)
if made == 0: os.setsid()
if made == 0 or os.fork() == 0: signal.pause()
os._exit(3 if made > 0 else 1)"
    );
    each_way(|world| {
        let word = format!("sibling-{}", world.path("x").display());
        // The test waits for the end of the output, and must not wait for a process that
        // hangs.
        let room = world.command(&[PYTHON, "-c", &script, &word]);
        assert_eq!(end_of(room), Some(3));
        eventually("the room is gone", || processes(&word).is_empty());
    });
}

/// A process with a lock has not ended: neither a sibling of the command that was not
/// killed yet, nor one whose memory the kernel still frees.
#[test]
fn no_process_of_the_room_outlives_the_launcher() {
    if python_is_missing() {
        return;
    }
    let script = "import ctypes, fcntl, mmap, os, signal, sys
CLONE_PARENT = 0x8000
ready, said = os.pipe()
sibling = sys.argv[1] == 'sibling'
child = ctypes.CDLL(None).syscall(56 if os.uname().machine == 'x86_64' else 220,
    ctypes.c_long((CLONE_PARENT if sibling else 0) | signal.SIGCHLD), 0, 0, 0, 0)
if child == 0:
    lock = open('lock', 'w')
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not sibling:
        memory = mmap.mmap(-1, 200 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(0, len(memory), mmap.PAGESIZE): memory[page] = 1
    os.write(said, b'1')
    while True: signal.pause()
os.read(ready, 1)
if not sibling: os.kill(child, signal.SIGKILL)
os._exit(7)";
    recorded(|world| {
        for who in ["sibling", "dying", "sibling", "dying", "sibling", "dying"] {
            // The test waits for the end of the output, which every process of the room
            // holds.
            let mut room = world.command(&[PYTHON, "-c", script, who]);
            room.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            assert_eq!(room.status().unwrap().code(), Some(7), "{who}");
            let lock = fs::File::open(world.project().join("lock")).unwrap();
            assert!(lock.try_lock().is_ok(), "{who}");
        }
    });
}

/// The launcher does not wait for a helper that a wrong record made it start.
#[test]
fn a_useless_helper_does_not_delay_the_command() {
    each_way(|world| {
        for net in ["deny", "allow"] {
            let before: Vec<&str> = world.options.iter().map(String::as_str).collect();
            let world = World::beside(&world).option(&before).option(&["--ahead", "--net", net]);
            let output = world.sh("exec cat /etc/passwd");
            assert!(output.status.success(), "{net}: {}", text(&output));
        }
    });
}
