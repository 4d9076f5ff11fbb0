//! Attempts to use kernel facilities. Each attempt runs in a child process that is killed
//! afterwards, after two seconds at most.

mod listener;
mod namespaces;

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::probe::{ProbeItem, ProbeOutcome};
use super::surroundings;
use crate::facts::{Facility, RoomSupport};
use crate::linux::landlock;
use crate::linux::sys::{self, ForkSide};
use crate::plan::LANDLOCK_ABI_NEEDED;
pub(super) use listener::has_outer_listener;
use listener::{try_filter, try_listener};
pub(super) use namespaces::{DomainState, find_domain_state, try_process_numbers, try_rooms};
use namespaces::{
    gate_network, mount_namespace, overlay_mount, pid_namespace, room, user_namespace,
};

/// A step that failed in a child: its index in the attempt's list of steps, and the error
/// number.
struct FailedStep {
    step: u8,
    errno: i32,
}

/// Adds the index of a step to an error.
trait AtStep<T> {
    fn at(self, step: u8) -> Result<T, FailedStep>;
}

impl<T> AtStep<T> for io::Result<T> {
    fn at(self, step: u8) -> Result<T, FailedStep> {
        self.map_err(|e| FailedStep { step, errno: e.raw_os_error().unwrap_or(0) })
    }
}

impl<T> AtStep<T> for rustix::io::Result<T> {
    fn at(self, step: u8) -> Result<T, FailedStep> {
        self.map_err(|e| FailedStep { step, errno: e.raw_os_error() })
    }
}

/// One facility: its steps, its purpose, and the attempt. `run` is executed after a fork.
/// It uses system calls, and at most malloc, which glibc and musl (1.2.2) keep usable
/// there.
struct FacilityAttempt {
    name: &'static str,
    purpose: &'static str,
    steps: &'static [&'static str],
    /// How to get the facility, and the first step for which this helps. If a namespace is
    /// missing, the hint about rooms says more.
    hint: Option<(u8, &'static str)>,
    run: fn() -> Result<(), FailedStep>,
}

/// The hint about rooms, by the step and its error.
fn room_hint(step: u8, errno: i32) -> &'static str {
    match (step, errno) {
        (0, libc::ENOSPC) => {
            "raise `sysctl user.max_user_namespaces`, or ask the administrator who lowered it"
        }
        (0, libc::EPERM | libc::EACCES) => {
            "let this user make user namespaces: the container's security options, or \
             `sysctl kernel.unprivileged_userns_clone=1`"
        }
        (0, libc::ENOSYS | libc::EINVAL) => "use a kernel with user namespaces",
        (_, libc::EPERM | libc::EACCES) => {
            "a security module or an outer sandbox takes the rights of a new user namespace \
             away; on Ubuntu `clash doctor --fix` puts that right"
        }
        _ => "look into the kernel's log",
    }
}

/// The facilities that one child process each can try. Landlock and whole rooms have attempts
/// of their own.
const ATTEMPTS: &[FacilityAttempt] = &[
    FacilityAttempt {
        name: "seccomp filter",
        purpose: "network and kernel surface rules of every sandbox",
        steps: &["no_new_privs", "assemble the filter", "install the filter", "use it"],
        hint: Some((0, "let the container runtime permit the seccomp system call")),
        run: try_filter,
    },
    FacilityAttempt {
        name: "seccomp listener",
        purpose: "rules that mounts cannot hold, and all rules without namespaces",
        steps: &[
            "no_new_privs",
            "install a filter with a listener",
            "a process to listen to",
            "answer with a descriptor",
            "have the answer used",
            "read the memory of a call",
        ],
        hint: Some((
            0,
            "an outer sandbox with its own listener (one is allowed per process) blocks this",
        )),
        run: try_listener,
    },
    FacilityAttempt {
        name: "user namespace",
        purpose: "the namespaced tier",
        steps: &["unshare(NEWUSER)", "write setgroups", "write uid_map", "write gid_map"],
        hint: None,
        run: user_namespace,
    },
    FacilityAttempt {
        name: "mount namespace",
        purpose: "deny inside allow, hidden paths, private /tmp",
        steps: &[
            "unshare(NEWUSER)",
            "write setgroups",
            "write uid_map",
            "write gid_map",
            "unshare(NEWNS)",
            "make mounts private",
            "mount a tmpfs",
        ],
        hint: None,
        run: mount_namespace,
    },
    FacilityAttempt {
        name: "overlayfs",
        purpose: "copy-on-write sandboxes",
        steps: &[
            "unshare(NEWUSER)",
            "write setgroups",
            "write uid_map",
            "write gid_map",
            "unshare(NEWNS)",
            "make mounts private",
            "mount a tmpfs",
            "make directories",
            "mount overlay with userxattr",
        ],
        hint: Some((8, "needs Linux 5.11 with overlayfs as a module or built in")),
        run: overlay_mount,
    },
    FacilityAttempt {
        name: "gate network",
        purpose: "rules about hosts: two network namespaces and a link between them",
        steps: &[
            "unshare(NEWUSER)",
            "write setgroups",
            "write uid_map",
            "write gid_map",
            "make the namespaces and a veth link",
        ],
        hint: Some((4, "load the kernel module veth (`modprobe veth`)")),
        run: gate_network,
    },
    FacilityAttempt {
        name: "pid namespace",
        purpose: "hiding processes, ending a room as a whole",
        steps: &[
            "unshare(NEWUSER)",
            "write setgroups",
            "write uid_map",
            "write gid_map",
            "unshare(NEWPID)",
            "fork into it",
            "be process 1 there",
        ],
        hint: None,
        run: pid_namespace,
    },
];

/// Tries every facility, and describes each result for `clash doctor`.
pub(crate) fn try_all() -> Vec<ProbeItem> {
    let mut items = vec![landlock_item()];
    items.extend(ATTEMPTS.iter().map(run_attempt));
    items.push(room_item());
    items.extend(surroundings::describe_surroundings());
    items
}

/// An item of a facility that works.
pub(super) fn works(name: &'static str, detail: impl Into<String>) -> ProbeItem {
    ProbeItem { name, outcome: ProbeOutcome::Works, detail: detail.into() }
}

/// An item of a facility that does not work.
pub(super) fn missing(
    name: &'static str,
    what: impl Into<String>,
    hint: Option<&str>,
    detail: impl Into<String>,
) -> ProbeItem {
    let hint = hint.map(ToOwned::to_owned);
    let outcome = ProbeOutcome::Missing { what_happened: what.into(), hint };
    ProbeItem { name, outcome, detail: detail.into() }
}

/// The result for Landlock: its ABI, and an attempt to enter a domain if the ABI is new
/// enough.
fn landlock_item() -> ProbeItem {
    let name = "landlock";
    let abi = sys::landlock_abi();
    let errata = sys::landlock_errata().map_or("unknown".to_owned(), |bits| format!("{bits:#x}"));
    let detail = format!("ABI {abi}, fixed errata {errata}");
    match abi {
        0 => missing(
            name,
            "the kernel answers that there is no Landlock",
            Some("use Linux 6.12 or newer with `landlock` in the `lsm=` boot parameter"),
            detail,
        ),
        abi if abi < LANDLOCK_ABI_NEEDED => missing(
            name,
            format!("ABI {abi}, {LANDLOCK_ABI_NEEDED} is needed"),
            Some("use Linux 6.12 or newer"),
            detail,
        ),
        _ => match in_child(enter_landlock_domain) {
            Ok(Ok(())) => works(name, detail),
            Ok(Err(FailedStep { step, errno })) => {
                let steps = ["no_new_privs", "enter a domain", "be denied by it"];
                let step = steps.get(usize::from(step)).copied().unwrap_or("unknown step");
                let what = format!("{step}: {}", io::Error::from_raw_os_error(errno));
                missing(name, what, Some("sixteen nested domains are the kernel's limit"), detail)
            }
            Err(what) => missing(name, what, None, detail),
        },
    }
}

/// Enters a domain that grants nothing, and checks that it denies access.
fn enter_landlock_domain() -> Result<(), FailedStep> {
    rustix::thread::set_no_new_privs(true).at(0)?;
    landlock::enter_empty().map_err(|_| FailedStep { step: 1, errno: 0 })?;
    match openat(CWD, "/", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Err(rustix::io::Errno::ACCESS) => Ok(()),
        _ => Err(FailedStep { step: 2, errno: 0 }),
    }
}

/// Runs one attempt in a child and describes the result. A failure names its step.
fn run_attempt(attempt: &FacilityAttempt) -> ProbeItem {
    let name = attempt.name;
    let hint_at = |step: u8| attempt.hint.filter(|(from, _)| *from <= step).map(|(_, hint)| hint);
    match in_child(attempt.run) {
        Ok(Ok(())) => works(name, attempt.purpose),
        Ok(Err(FailedStep { step, errno })) => {
            let hint = hint_at(step);
            let step = attempt.steps.get(usize::from(step)).copied().unwrap_or("unknown step");
            let what = format!("{step}: {}", io::Error::from_raw_os_error(errno));
            missing(name, what, hint, attempt.purpose)
        }
        Err(what) => missing(name, what, hint_at(0), attempt.purpose),
    }
}

const MAX_ATTEMPT_TIME: Duration = Duration::from_secs(2);
/// An alarm ends a child whose parent has died.
const MAX_CHILD_SECONDS: u32 = 3;

/// Runs `job` in a child and waits for its answer, at most [`MAX_ATTEMPT_TIME`]. The child is
/// killed in any case. The outer error says that there was no answer; the inner one is the
/// step of `job` that failed.
fn in_child(job: fn() -> Result<(), FailedStep>) -> Result<Result<(), FailedStep>, String> {
    let (reader, writer) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|e| format!("cannot make a pipe: {e}"))?;
    match sys::fork().map_err(|e| format!("cannot fork: {e}"))? {
        ForkSide::Child => {
            // Ends the child even if the parent dies.
            sys::alarm(MAX_CHILD_SECONDS);
            let mut answer = [u8::MAX; 5];
            if let Err(FailedStep { step, errno }) = job() {
                let [a, b, c, d] = errno.to_le_bytes();
                answer = [step, a, b, c, d];
            }
            let written = rustix::io::write(&writer, &answer);
            sys::exit_now(i32::from(written.is_err()))
        }
        ForkSide::Parent(pid) => {
            drop(writer);
            let answer = read_answer(reader);
            if let Some(pid) = Pid::from_raw(pid) {
                // The child is killed whether it has answered or not.
                let _ = kill_process(pid, Signal::KILL);
                while matches!(
                    waitpid(Some(pid), WaitOptions::empty()),
                    Err(rustix::io::Errno::INTR)
                ) {}
            }
            match answer? {
                [u8::MAX, ..] => Ok(Ok(())),
                [step, a, b, c, d] => {
                    Ok(Err(FailedStep { step, errno: i32::from_le_bytes([a, b, c, d]) }))
                }
            }
        }
    }
}

/// The five bytes of the child's answer: `u8::MAX` first for success, else the step and the
/// error number.
fn read_answer(reader: OwnedFd) -> Result<[u8; 5], String> {
    let deadline = Instant::now() + MAX_ATTEMPT_TIME;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(&reader, PollFlags::IN)], timeout.as_ref()) {
            Ok(0) => return Err("no answer in time".to_owned()),
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(format!("cannot wait: {error}")),
        }
    }
    let mut answer = [0; 5];
    std::fs::File::from(reader)
        .read_exact(&mut answer)
        .map_err(|_| "the attempt ended the process that made it".to_owned())?;
    Ok(answer)
}

/// Tries a seccomp listener.
pub(crate) fn notify() -> Facility {
    try_facility("seccomp listener")
}

/// Tries an overlay in a user namespace.
pub(crate) fn overlay() -> Facility {
    try_facility("overlayfs")
}

/// Tries the network of a gate.
pub(crate) fn gate() -> Facility {
    try_facility("gate network")
}

/// The result of the named attempt, for the planner.
fn try_facility(name: &str) -> Facility {
    let item = ATTEMPTS.iter().find(|attempt| attempt.name == name).map(run_attempt);
    match item.map(|item| item.outcome) {
        Some(ProbeOutcome::Works) => Facility::Works,
        Some(ProbeOutcome::Missing { what_happened, .. }) => Facility::missing(what_happened),
        None => Facility::missing("this version has no trial for it"),
    }
}

/// Whether copies in this directory can share their blocks. Tries it with two files without
/// names, which leave nothing behind.
pub(crate) fn reflink(directory: &Path) -> Facility {
    let unnamed = || {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        openat(CWD, directory, flags, Mode::RUSR | Mode::WUSR)
    };
    let copy = || {
        let from = unnamed()?;
        rustix::io::write(&from, &[1; 4096])?;
        rustix::fs::ioctl_ficlone(unnamed()?, from)
    };
    match copy() {
        Ok(()) => Facility::Works,
        Err(error) => Facility::missing(format!("`{}`: {error}", directory.display())),
    }
}

/// Tries a whole room. If that fails, the hint depends on the step and its error.
fn room_item() -> ProbeItem {
    let name = "room";
    let purpose = "every sandbox that may write, or that denies inside what it allows";
    match try_rooms() {
        RoomSupport::Unprivileged => works(name, format!("{purpose}; in a user namespace")),
        RoomSupport::Root => works(name, format!("{purpose}; made by root")),
        RoomSupport::Impossible { why } => {
            let hint = in_child(room).ok().and_then(Result::err);
            let hint = hint.map(|FailedStep { step, errno }| room_hint(step, errno));
            missing(name, why, hint, purpose)
        }
    }
}
