//! Attempts to use kernel facilities. Each attempt runs in a child process that is killed
//! afterwards.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::probe::{ProbeItem, ProbeOutcome};
use super::surroundings;
use crate::facts::{Facility, RoomSupport};
use crate::launch::error::LaunchError;
use crate::linux::bpf::{self, BpfInstruction};
use crate::linux::mounts::MountTree;
use crate::linux::sys::{self, ForkSide};
use crate::linux::{limits, namespaces, seccomp};
use crate::plan::LANDLOCK_ABI_NEEDED;
use crate::plan::room::{Ports, Room, Step};

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

const ATTEMPTS: &[FacilityAttempt] = &[
    FacilityAttempt {
        name: "seccomp filter",
        purpose: "network and kernel surface rules of every sandbox",
        steps: &["no_new_privs", "assemble the filter", "install the filter", "use it"],
        hint: Some((0, "let the container runtime permit the seccomp system call")),
        run: seccomp_filter,
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
        run: seccomp_listener,
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

pub(crate) fn all() -> Vec<ProbeItem> {
    let mut items = vec![landlock()];
    items.extend(ATTEMPTS.iter().map(attempt));
    items.push(room_item());
    items.extend(surroundings::items());
    items
}

pub(super) fn works(name: &'static str, detail: impl Into<String>) -> ProbeItem {
    ProbeItem { name, outcome: ProbeOutcome::Works, detail: detail.into() }
}

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

fn landlock() -> ProbeItem {
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
        _ => match in_child(landlock_domain) {
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
fn landlock_domain() -> Result<(), FailedStep> {
    rustix::thread::set_no_new_privs(true).at(0)?;
    crate::linux::landlock::enter_empty().map_err(|_| FailedStep { step: 1, errno: 0 })?;
    match openat(CWD, "/", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Err(rustix::io::Errno::ACCESS) => Ok(()),
        _ => Err(FailedStep { step: 2, errno: 0 }),
    }
}

fn attempt(attempt: &FacilityAttempt) -> ProbeItem {
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
const MAX_CHILD_SECONDS: u32 = 3;

/// Runs `job` in a child and waits for its five-byte answer, at most [`MAX_ATTEMPT_TIME`].
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
            let answer = wait_for(reader);
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

fn wait_for(reader: OwnedFd) -> Result<[u8; 5], String> {
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

fn seccomp_filter() -> Result<(), FailedStep> {
    rustix::thread::set_no_new_privs(true).at(0)?;
    let program = seccomp::filter(seccomp::FilterSurface::default())
        .map_err(|_| FailedStep { step: 1, errno: 0 })?;
    sys::install_filter(&program, 0).at(2)?;
    match sys::unshare(libc::CLONE_NEWUSER) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(()),
        _ => Err(FailedStep { step: 3, errno: 0 }),
    }
}

/// The trapped call. It is harmless, and nothing else here makes it.
const TRAPPED_CALL: libc::c_long = libc::SYS_getpriority;

/// Has the same address in a child.
static POINTED_AT: u8 = 1;

/// Answers a call of another process with a descriptor, as the monitor does.
fn seccomp_listener() -> Result<(), FailedStep> {
    rustix::thread::set_no_new_privs(true).at(0)?;
    let trap = [
        BpfInstruction { code: bpf::LOAD, jt: 0, jf: 0, k: 0 },
        BpfInstruction {
            code: bpf::JEQ,
            jt: 0,
            jf: 1,
            k: u32::try_from(TRAPPED_CALL).unwrap_or(u32::MAX),
        },
        BpfInstruction { code: bpf::RET, jt: 0, jf: 0, k: libc::SECCOMP_RET_USER_NOTIF },
        seccomp::ALLOW_ALL,
    ];
    let installed = sys::install_filter(&trap, sys::WITH_LISTENER).at(1)?;
    let listener = sys::listener(installed).ok_or(FailedStep { step: 1, errno: 0 })?;
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).at(2)?;
    match sys::fork().at(2)? {
        ForkSide::Child => {
            drop((listener, writer));
            let given = sys::trapped_call(TRAPPED_CALL);
            let told = given.is_ok_and(|fd| rustix::io::write(fd, b"!") == Ok(1));
            sys::exit_now(i32::from(!told))
        }
        ForkSide::Parent(pid) => {
            // The filter of an outer sandbox may permit the listener but not reading
            // memory.
            let read = sys::read_memory(pid, (&raw const POINTED_AT).addr() as u64, &mut [0]);
            let answered = sys::next_notice(&listener).and_then(|notice| {
                let number = sys::give(&listener, notice.id, &writer, true)?;
                sys::answer(&listener, notice.id, number.into());
                Ok(())
            });
            // Without a listener, the child no longer waits for an answer.
            drop((listener, writer));
            let mut said = [0; 1];
            let heard = rustix::io::read(&reader, &mut said);
            let _ = waitpid(Pid::from_raw(pid), WaitOptions::empty());
            read.at(5)?;
            answered.at(3)?;
            if heard == Ok(1) { Ok(()) } else { Err(FailedStep { step: 4, errno: 0 }) }
        }
    }
}

/// True if an outer listener receives the calls of this process. The kernel permits only
/// one and reports `EBUSY`.
pub(crate) fn listened_to() -> bool {
    let failed = in_child(seccomp_listener).ok().and_then(Result::err);
    failed.is_some_and(|FailedStep { step, errno }| step == 1 && errno == libc::EBUSY)
}

pub(crate) fn notify() -> Facility {
    facility("seccomp listener")
}

pub(crate) fn overlay() -> Facility {
    facility("overlayfs")
}

/// The result of one attempt, for the planner.
fn facility(name: &str) -> Facility {
    let item = ATTEMPTS.iter().find(|attempt| attempt.name == name).map(attempt);
    match item.map(|item| item.outcome) {
        Some(ProbeOutcome::Works) => Facility::Works,
        Some(ProbeOutcome::Missing { what_happened, .. }) => Facility::missing(what_happened),
        None => Facility::missing("this version has no trial for it"),
    }
}

/// Whether copies in this directory can share their blocks.
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

/// How rooms can be made, found by making one with its own network and processes.
pub(crate) fn rooms() -> RoomSupport {
    let root = rustix::process::geteuid().is_root();
    if root && matches!(in_child(room_of_root), Ok(Ok(()))) {
        return RoomSupport::Root;
    }
    let why = match in_child(room) {
        Ok(Ok(())) => return RoomSupport::Unprivileged,
        Ok(Err(FailedStep { step, errno })) => {
            let step = ROOM_STEPS.get(usize::from(step)).copied().unwrap_or("unknown step");
            format!("{step}: {}", io::Error::from_raw_os_error(errno))
        }
        Err(what) => what,
    };
    RoomSupport::Impossible { why }
}

fn room_item() -> ProbeItem {
    let name = "room";
    let purpose = "every sandbox that may write, or that denies inside what it allows";
    match rooms() {
        RoomSupport::Unprivileged => works(name, format!("{purpose}; in a user namespace")),
        RoomSupport::Root => works(name, format!("{purpose}; made by root")),
        RoomSupport::Impossible { why } => {
            let hint = in_child(room).ok().and_then(Result::err);
            let hint = hint.map(|FailedStep { step, errno }| room_hint(step, errno));
            missing(name, why, hint, purpose)
        }
    }
}

const ROOM_STEPS: [&str; 6] = [
    "new namespaces",
    "the user's identity in the new namespace",
    "the loopback interface",
    "a process of the room",
    "a root of the room's own",
    "devices and processes of the room",
];

fn room() -> Result<(), FailedStep> {
    make_room(true)
}

fn room_of_root() -> Result<(), FailedStep> {
    make_room(false)
}

fn make_room(user_namespace: bool) -> Result<(), FailedStep> {
    let room = Room {
        user_namespace,
        own_network: true,
        ports: Ports::default(),
        unix_sockets: false,
        inside: crate::plan::room::Inside::Commands,
        lives_on: false,
        returned: Vec::new(),
        steps: Vec::new(),
    };
    let left = namespaces::make_with_parts(&room);
    let rest = || {
        namespaces::make_network()
            .map_err(LaunchError::from)
            .and_then(|()| namespaces::own_processes())
    };
    let parts = left.and_then(|parts| rest().map(|()| parts)).map_err(|error| match error {
        LaunchError::Root(e) => FailedStep { step: 4, errno: e.raw_os_error().unwrap_or(0) },
        LaunchError::Identity(e) => FailedStep { step: 1, errno: e.raw_os_error().unwrap_or(0) },
        LaunchError::Loopback(e) => FailedStep { step: 2, errno: e.raw_os_error().unwrap_or(0) },
        LaunchError::Namespaces(e) => FailedStep { step: 0, errno: e.raw_os_error().unwrap_or(0) },
        _ => FailedStep { step: 0, errno: 0 },
    })?;
    match sys::fork().at(3)? {
        ForkSide::Child => {
            let steps = || -> Result<(), u8> {
                let steps = [Step::Devices, Step::Processes { maps: false }];
                let mut view = MountTree::new(parts, &steps).map_err(|_| 4)?;
                steps.iter().try_for_each(|step| view.step(step)).map_err(|_| 5)?;
                view.enter(crate::plan::room::Inside::Commands).map_err(|_| 4)
            };
            sys::exit_now(steps().err().map_or(0, i32::from))
        }
        ForkSide::Parent(pid) => {
            let status = waitpid(Pid::from_raw(pid), WaitOptions::empty()).at(3)?;
            match status.and_then(|(_, status)| status.exit_status()) {
                Some(0) => Ok(()),
                Some(step @ 4..=5) => {
                    Err(FailedStep { step: u8::try_from(step).unwrap_or(3), errno: libc::EPERM })
                }
                _ => Err(FailedStep { step: 3, errno: 0 }),
            }
        }
    }
}

/// Steps 0 to 3 of every attempt with a namespace.
fn user_namespace() -> Result<(), FailedStep> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    sys::unshare(libc::CLONE_NEWUSER).at(0)?;
    write_file("/proc/self/setgroups", b"deny").at(1)?;
    write_file("/proc/self/uid_map", IdMap::new(uid).text()).at(2)?;
    write_file("/proc/self/gid_map", IdMap::new(gid).text()).at(3)
}

fn mount_namespace() -> Result<(), FailedStep> {
    user_namespace()?;
    sys::unshare(libc::CLONE_NEWNS).at(4)?;
    sys::mount(c"none", c"/", None, libc::MS_REC | libc::MS_PRIVATE, None).at(5)?;
    sys::mount(c"none", c"/tmp", Some(c"tmpfs"), 0, None).at(6)
}

fn overlay_mount() -> Result<(), FailedStep> {
    mount_namespace()?;
    for name in [c"/tmp/l", c"/tmp/u", c"/tmp/w", c"/tmp/m"] {
        rustix::fs::mkdir(name, Mode::RWXU).at(7)?;
    }
    let options = c"userxattr,lowerdir=/tmp/l,upperdir=/tmp/u,workdir=/tmp/w";
    sys::mount(c"none", c"/tmp/m", Some(c"overlay"), 0, Some(options)).at(8)
}

fn pid_namespace() -> Result<(), FailedStep> {
    user_namespace()?;
    sys::unshare(libc::CLONE_NEWPID).at(4)?;
    match sys::fork().at(5)? {
        ForkSide::Child => {
            let first = rustix::process::getpid().as_raw_nonzero().get() == 1;
            sys::exit_now(i32::from(!first))
        }
        ForkSide::Parent(pid) => {
            let status = waitpid(Pid::from_raw(pid), WaitOptions::empty()).at(6)?;
            let good = status.is_some_and(|(_, s)| s.exit_status() == Some(0));
            if good { Ok(()) } else { Err(FailedStep { step: 6, errno: 0 }) }
        }
    }
}

/// Whether root's processes can be limited by the process numbers of a namespace.
pub(crate) fn process_numbers() -> Result<(), String> {
    match in_child(number_processes) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(FailedStep { step, errno })) => {
            let steps = ["unshare(NEWPID)", "fork into it", "limit its process numbers"];
            let step = steps.get(usize::from(step)).copied().unwrap_or("unknown step");
            Err(format!("{step}: {}", io::Error::from_raw_os_error(errno)))
        }
        Err(what) => Err(what),
    }
}

fn number_processes() -> Result<(), FailedStep> {
    if sys::unshare(libc::CLONE_NEWPID).is_err() {
        sys::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID).at(0)?;
    }
    match sys::fork().at(1)? {
        ForkSide::Child => {
            let numbered = limits::process_numbers()
                .and_then(|settings| limits::number_processes(&settings, 100));
            sys::exit_now(numbered.err().map_or(0, rustix::io::Errno::raw_os_error))
        }
        ForkSide::Parent(pid) => {
            let status = waitpid(Pid::from_raw(pid), WaitOptions::empty()).at(1)?;
            match status.and_then(|(_, status)| status.exit_status()) {
                Some(0) => Ok(()),
                errno => Err(FailedStep { step: 2, errno: errno.unwrap_or(0) }),
            }
        }
    }
}

fn write_file(path: &str, text: &[u8]) -> rustix::io::Result<()> {
    let fd = openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(fd.as_fd(), text).map(drop)
}

/// The text `ID ID 1`, made without allocating.
struct IdMap {
    text: [u8; 32],
    length: usize,
}

impl IdMap {
    fn new(id: u32) -> Self {
        let mut map = Self { text: [0; 32], length: 0 };
        for number in [id, id, 1] {
            map.number(number);
            map.push(b' ');
        }
        map
    }

    fn number(&mut self, number: u32) {
        if number >= 10 {
            self.number(number / 10);
        }
        self.push(b'0' + u8::try_from(number % 10).unwrap_or(0));
    }

    fn push(&mut self, byte: u8) {
        if let Some(slot) = self.text.get_mut(self.length) {
            *slot = byte;
            self.length += 1;
        }
    }

    fn text(&self) -> &[u8] {
        self.text.get(..self.length).unwrap_or_default()
    }
}

/// Whether this process is already in a Landlock domain.
pub(crate) enum DomainState {
    Inside,
    Outside,
    Unknown,
}

/// No call tells a process whether it is in a Landlock domain. But every domain denies
/// changes of mounts, even to root in a new user namespace. The error is EPERM where
/// `mount` itself is permitted.
pub(crate) fn domain() -> DomainState {
    match in_child(mount_namespace) {
        Ok(Ok(())) => DomainState::Outside,
        Ok(Err(FailedStep { step: 5, errno })) if errno == libc::EPERM => DomainState::Inside,
        _ => DomainState::Unknown,
    }
}
