//! Attempts with namespaces: a whole room, and each kind alone.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{Pid, WaitOptions, waitpid};

use super::{AtStep, FailedStep, in_child};
use crate::facts::RoomSupport;
use crate::launch::error::LaunchError;
use crate::linux::mounts::MountTree;
use crate::linux::network::make_gated_network;
use crate::linux::sys::{self, ForkSide};
use crate::linux::{limits, namespaces};
use crate::plan::room::{MountStep, RoomPlan, SharedPorts};

/// How rooms can be made, found by making one with its own network and processes. Root tries
/// first without a user namespace.
pub(crate) fn try_rooms() -> RoomSupport {
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

/// The steps of [`make_room`], by their index.
const ROOM_STEPS: [&str; 6] = [
    "new namespaces",
    "the user's identity in the new namespace",
    "the loopback interface",
    "a process of the room",
    "a root of the room's own",
    "devices and processes of the room",
];

pub(super) fn room() -> Result<(), FailedStep> {
    make_room(true)
}

pub(super) fn room_of_root() -> Result<(), FailedStep> {
    make_room(false)
}

/// Makes a room with devices and /proc in it, as the launcher does. The room ends with this
/// process.
pub(super) fn make_room(user_namespace: bool) -> Result<(), FailedStep> {
    let room = RoomPlan {
        user_namespace,
        own_network: true,
        ports: SharedPorts::default(),
        unix_sockets: false,
        own_sockets: false,
        inside: crate::plan::room::RoomInterior::Commands,
        lives_on: false,
        returned: Vec::new(),
        steps: Vec::new(),
    };
    let left = namespaces::make_with_parts(&room);
    let rest =
        || namespaces::make_network_namespace().and_then(|()| namespaces::make_process_namespace());
    let parts = left.and_then(|parts| rest().map(|()| parts)).map_err(|error| match error {
        LaunchError::RoomRoot(e) => FailedStep { step: 4, errno: e.raw_os_error().unwrap_or(0) },
        LaunchError::UserMap(e) => FailedStep { step: 1, errno: e.raw_os_error().unwrap_or(0) },
        LaunchError::Loopback(e) => FailedStep { step: 2, errno: e.raw_os_error().unwrap_or(0) },
        LaunchError::Namespaces(e)
        | LaunchError::NetworkNamespace(e)
        | LaunchError::ProcessNamespace(e) => {
            FailedStep { step: 0, errno: e.raw_os_error().unwrap_or(0) }
        }
        _ => FailedStep { step: 0, errno: 0 },
    })?;
    match sys::fork().at(3)? {
        ForkSide::Child => {
            let steps = || -> Result<(), u8> {
                let steps = [MountStep::Devices, MountStep::Processes { maps: false }];
                let mut view = MountTree::new(parts, &steps).map_err(|_| 4)?;
                steps.iter().try_for_each(|step| view.do_step(step)).map_err(|_| 5)?;
                view.enter(crate::plan::room::RoomInterior::Commands).map_err(|_| 4)
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

/// Makes a user namespace with the user's own id: steps 0 to 3 of every attempt with a
/// namespace.
pub(super) fn user_namespace() -> Result<(), FailedStep> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    sys::unshare(libc::CLONE_NEWUSER).at(0)?;
    write_file("/proc/self/setgroups", b"deny").at(1)?;
    write_file("/proc/self/uid_map", IdMap::new(uid).text()).at(2)?;
    write_file("/proc/self/gid_map", IdMap::new(gid).text()).at(3)
}

/// Mounts a tmpfs on /tmp in a new mount namespace.
pub(super) fn mount_namespace() -> Result<(), FailedStep> {
    user_namespace()?;
    sys::unshare(libc::CLONE_NEWNS).at(4)?;
    sys::mount(c"none", c"/", None, libc::MS_REC | libc::MS_PRIVATE, None).at(5)?;
    sys::mount(c"none", c"/tmp", Some(c"tmpfs"), 0, None).at(6)
}

/// Mounts an overlay on that tmpfs.
pub(super) fn overlay_mount() -> Result<(), FailedStep> {
    mount_namespace()?;
    for name in [c"/tmp/l", c"/tmp/u", c"/tmp/w", c"/tmp/m"] {
        rustix::fs::mkdir(name, Mode::RWXU).at(7)?;
    }
    let options = c"userxattr,lowerdir=/tmp/l,upperdir=/tmp/u,workdir=/tmp/w";
    sys::mount(c"none", c"/tmp/m", Some(c"overlay"), 0, Some(options)).at(8)
}

/// Checks that the first process of a new process namespace has the number 1.
pub(super) fn pid_namespace() -> Result<(), FailedStep> {
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

/// Makes the two networks of a room with host rules. Root needs no user namespace.
pub(super) fn gate_network() -> Result<(), FailedStep> {
    if make_gated_network(1).is_ok() {
        return Ok(());
    }
    user_namespace()?;
    make_gated_network(1).map(drop).at(4)
}

/// Checks that the process numbers of a namespace can be limited, for limits on root's
/// processes. Fails with the step and its error.
pub(crate) fn try_process_numbers() -> Result<(), String> {
    match in_child(limit_process_numbers) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(FailedStep { step, errno })) => {
            let steps = ["unshare(NEWPID)", "fork into it", "limit its process numbers"];
            let step = steps.get(usize::from(step)).copied().unwrap_or("unknown step");
            Err(format!("{step}: {}", io::Error::from_raw_os_error(errno)))
        }
        Err(what) => Err(what),
    }
}

/// Limits the process numbers of a new namespace to 100, from inside it.
pub(super) fn limit_process_numbers() -> Result<(), FailedStep> {
    if sys::unshare(libc::CLONE_NEWPID).is_err() {
        sys::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID).at(0)?;
    }
    match sys::fork().at(1)? {
        ForkSide::Child => {
            let numbered = limits::open_number_settings()
                .and_then(|settings| limits::limit_process_numbers(&settings, 100));
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

/// Writes to an existing file in one call.
pub(super) fn write_file(path: &str, text: &[u8]) -> rustix::io::Result<()> {
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

/// Finds out whether this process is in a Landlock domain. No call tells it. But every domain
/// denies changes of mounts, even to root in a new user namespace. The error is EPERM where
/// `mount` itself is permitted.
pub(crate) fn find_domain_state() -> DomainState {
    match in_child(mount_namespace) {
        Ok(Ok(())) => DomainState::Outside,
        Ok(Err(FailedStep { step: 5, errno })) if errno == libc::EPERM => DomainState::Inside,
        _ => DomainState::Unknown,
    }
}
