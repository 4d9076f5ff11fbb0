//! The helper process, which works while the launcher plans.
//!
//! Namespaces take as long to make as a plan, and the sandbox alone tells which are needed.
//! The helper shares the launcher's memory and makes them, on another CPU if there is one. It
//! stays until the launcher has joined them. If the plan needs none, they end with the helper.
//! Afterwards the helper adds grants to the Landlock ruleset.
//!
//! Only for user namespaces. Joining a mount namespace leads to its root, out of a `chroot`
//! that the launcher may be in; a process in a `chroot` cannot make user namespaces.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clash_net::HostRules;
use clash_policy::NetworkAccess;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, SendAncillaryBuffer,
    SendAncillaryMessage, Shutdown, SocketFlags, SocketType, shutdown, socketpair,
};
use rustix::process::{Pid, PidfdFlags, WaitOptions, getpid, pidfd_open, waitpid};
use rustix::thread::{
    ThreadNameSpaceType, move_into_thread_name_spaces, sched_getaffinity, sched_getcpu,
    sched_setaffinity,
};

use crate::linux::landlock::{LandlockRuleset, MissedGrant, PendingGrants};
use crate::linux::mounts::{CopiedTree, ROOM_DEVICES, RoomParts, SHARED_TREES};
use crate::linux::namespaces::{IdentityMap, make, make_network_namespace, make_with_parts};
use crate::linux::network::{GateDescriptors, make_gated_network};
use crate::linux::sys;
use crate::plan::room::RoomPlan;

use super::LaunchError;

#[derive(Debug)]
pub(crate) struct HelperProcess {
    maker: Pid,
    /// The process that shares its memory.
    launcher: Pid,
    task: &'static HelperTask,
    /// The helper sends its descriptors here, and stays until this socket is shut down.
    answer: OwnedFd,
}

#[derive(Debug)]
struct HelperTask {
    identity: IdentityMap,
    network: HelperNetwork,
    answer: RawFd,
    /// The grants for the ruleset that arrives through the socket.
    given: OnceLock<&'static PendingGrants>,
    missed: OnceLock<MissedGrant>,
    /// True when the launcher has sent the ruleset.
    sent: AtomicBool,
}

/// A message of the helper. Each has its own text, so that one is not taken for another.
type HelperMessage = [u8; 2];
const NETWORK: HelperMessage = *b"nw";
const GATED: HelperMessage = *b"gn";
const RULES: HelperMessage = *b"ru";

impl HelperProcess {
    /// Starts the helper on another CPU. `None` if it cannot be started; the launcher then
    /// does its work, which only costs time.
    pub(crate) fn start(network: HelperNetwork) -> Option<Self> {
        let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
        let (answer, told) = socketpair(unix, stream, SocketFlags::CLOEXEC, None).ok()?;
        let task: &'static HelperTask = Box::leak(Box::new(HelperTask {
            identity: IdentityMap::own(),
            network,
            answer: told.as_raw_fd(),
            given: OnceLock::new(),
            missed: OnceLock::new(),
            sent: AtomicBool::new(false),
        }));
        // The kernel often starts a new process on its parent's CPU, and before the parent,
        // although another CPU is idle (Linux 6.18 as a guest: four times in five).
        let maker = sys::with_batch_scheduling(|| {
            let maker = Pid::from_raw(sys::run_beside(run, task).ok()?)?;
            if let Ok(mut others) = sched_getaffinity(None) {
                others.unset(sched_getcpu());
                let _ = sched_setaffinity(Some(maker), &others);
            }
            Some(maker)
        });
        Some(Self { maker: maker?, launcher: getpid(), task, answer })
    }

    /// Joins the namespaces except the network, if the helper has made them, and takes over
    /// the parts of the mount tree.
    pub(crate) fn join(&self) -> Option<RoomParts> {
        let kinds = ThreadNameSpaceType::USER
            | ThreadNameSpaceType::MOUNT
            | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION;
        receive(&self.answer).filter(|_| self.enter(kinds).is_ok())
    }

    /// Joins the network, which takes longest to make and is needed last.
    pub(crate) fn join_network(&self) -> bool {
        self.task.network == HelperNetwork::Closed
            && self.says(NETWORK)
            && self.enter(ThreadNameSpaceType::NETWORK).is_ok()
    }

    /// Joins the room's network and takes over the sockets of its gate.
    fn join_gated_network(&self) -> Option<GateDescriptors> {
        if !matches!(self.task.network, HelperNetwork::Gated { .. }) {
            return None;
        }
        GateDescriptors::receive(self.answer.as_fd(), GATED)
            .filter(|_| self.enter(ThreadNameSpaceType::NETWORK).is_ok())
    }

    /// Lets the helper add grants, while the launcher does the same. Returns false if the
    /// helper cannot: a launcher behind a pseudo-terminal is a fork without shared memory.
    pub(crate) fn hand_over(
        &self,
        given: &'static PendingGrants,
        ruleset: &LandlockRuleset,
    ) -> bool {
        if getpid() != self.launcher {
            return false;
        }
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut with = SendAncillaryBuffer::new(&mut space);
        let fds = [ruleset.as_fd()];
        let sent = self.task.given.set(given).is_ok()
            && with.push(SendAncillaryMessage::ScmRights(&fds))
            && sys::send(self.answer.as_raw_fd(), &RULES, &mut with).is_ok();
        self.task.sent.store(sent, Ordering::Release);
        sent
    }

    /// Waits until the helper has added its grants. `None` if the helper ended before.
    pub(crate) fn taken(&self) -> Option<Result<(), MissedGrant>> {
        self.says(RULES).then(|| self.task.missed.get().map_or(Ok(()), |missed| Err(*missed)))
    }

    /// Waits for the helper's next message. True if it is this word; false at the end of the
    /// helper.
    fn says(&self, word: HelperMessage) -> bool {
        let mut said = HelperMessage::default();
        loop {
            match rustix::io::read(&self.answer, &mut said[..]) {
                Err(Errno::INTR) => {}
                read => break read == Ok(said.len()) && said == word,
            }
        }
    }

    /// Moves this thread into namespaces of the helper.
    fn enter(&self, kinds: ThreadNameSpaceType) -> Result<(), Errno> {
        let maker = pidfd_open(self.maker, PidfdFlags::empty())?;
        move_into_thread_name_spaces(maker.as_fd(), kinds)
    }

    /// Lets the helper end. The socket is shut down and not only closed, because processes
    /// started meanwhile have it too.
    pub(crate) fn let_go(&self) {
        let _ = shutdown(&self.answer, Shutdown::Both);
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        self.let_go();
        while matches!(waitpid(Some(self.maker), WaitOptions::empty()), Err(Errno::INTR)) {}
    }
}

/// Leaves the host's namespaces, except those of processes and the network. Joins those
/// of the helper, or makes them.
pub(super) fn leave_host(
    room: &RoomPlan,
    helper: Option<&HelperProcess>,
) -> Result<RoomParts, LaunchError> {
    match helper.and_then(HelperProcess::join) {
        Some(parts) => Ok(parts),
        None => make_with_parts(room),
    }
}

/// Leaves the host's network for a network of the room: an empty one, or one with a link to
/// the gate, whose sockets this returns.
pub(super) fn own_network(
    helper: Option<&HelperProcess>,
    gate: Option<&NetworkAccess>,
) -> Result<Option<GateDescriptors>, LaunchError> {
    if let Some(net) = gate {
        let joined = helper.and_then(HelperProcess::join_gated_network);
        return match joined {
            Some(sockets) => Ok(Some(sockets)),
            None => make_gated_network(HostRules::new(net.clone()).ports().len())
                .map(Some)
                .map_err(|error| LaunchError::NetworkNamespace(error.into())),
        };
    }
    if helper.is_some_and(HelperProcess::join_network) {
        return Ok(None);
    }
    make_network_namespace().map(|()| None)
}

/// The network that the helper makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelperNetwork {
    /// None: the command has the host's.
    Host,
    Closed,
    /// With a gate, whose rules allow this number of ports.
    Gated {
        ports: usize,
    },
}

/// Makes the network and tells the launcher. False if that failed.
fn make_network_of(task: &HelperTask) -> bool {
    let say = |word: HelperMessage| {
        sys::send(task.answer, &word, &mut SendAncillaryBuffer::default()).is_ok()
    };
    match task.network {
        HelperNetwork::Host => true,
        HelperNetwork::Closed => make_network_namespace().is_ok() && say(NETWORK),
        HelperNetwork::Gated { ports } => make_gated_network(ports).is_ok_and(|sockets| {
            sys::with_descriptor(task.answer, |to| sockets.send(to, GATED).is_ok())
        }),
    }
}

/// The helper process. It closes its descriptors, because the caller of the launcher may wait
/// for the end of its output. It blocks signals to the process group: stopped by ^Z, it would
/// block a launcher that has signals blocked itself.
fn run(task: &HelperTask) {
    let _ = sys::hold_signals();
    sys::close_all_but(task.answer);
    let say = |word: HelperMessage| {
        sys::send(task.answer, &word, &mut SendAncillaryBuffer::default()).is_ok()
    };
    if make(Some(&task.identity)).is_ok()
        && let Ok(parts) = RoomParts::make()
        && send(task.answer, &parts)
        && make_network_of(task)
        && let Some(ruleset) = receive_ruleset(task)
        && let Some(given) = task.given.get()
    {
        if let Err(missed) = given.add_to_ruleset(ruleset) {
            let _ = task.missed.set(missed);
        }
        if say(RULES) {
            sys::was_released(task.answer);
        }
    }
}

/// The next message usually comes soon, and waking a CPU takes as long as part of the work.
const SPIN_TIME: Duration = Duration::from_micros(150);

/// Waits for the Landlock ruleset of the launcher, first in a loop, because it comes soon.
/// `None` if the launcher sends none.
fn receive_ruleset(task: &HelperTask) -> Option<OwnedFd> {
    let start = Instant::now();
    while !task.sent.load(Ordering::Acquire) && start.elapsed() < SPIN_TIME {
        rustix::thread::sched_yield();
    }
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let mut said = [0_u8; 2];
    sys::receive(task.answer, &mut said, &mut with).ok()?;
    match with.drain().next() {
        Some(RecvAncillaryMessage::ScmRights(mut fds)) => fds.next(),
        _ => None,
    }
}

/// Devices, terminals and copied trees. For copied trees the message also says which are
/// already attached.
const OPTIONAL_PARTS: usize = ROOM_DEVICES.len() + 1 + SHARED_TREES.len();
const MAX_PARTS: usize = 1 + OPTIONAL_PARTS;
const IN_PLACE: usize = OPTIONAL_PARTS;
const _: () = assert!(IN_PLACE + SHARED_TREES.len() <= u16::BITS as usize);

/// Sends the parts. The message is a bit mask of the optional parts that exist.
fn send(to: RawFd, parts: &RoomParts) -> bool {
    let mut there = 0_u16;
    let mut fds = [parts.root.as_fd(); MAX_PARTS];
    let mut count = 0;
    let RoomParts { root, devices, terminals, shown } = parts;
    for (at, copied) in shown.iter().enumerate() {
        there |= u16::from(matches!(copied, CopiedTree::InPlace)) << (IN_PLACE + at);
    }
    let loose = shown.iter().map(|copied| match copied {
        CopiedTree::Loose(tree) => Some(tree),
        CopiedTree::Missing | CopiedTree::InPlace => None,
    });
    let all = devices.iter().chain([terminals]).map(Option::as_ref).chain(loose);
    let all = all.enumerate().filter_map(|(at, part)| {
        let part = part?;
        there |= 1 << at;
        Some(part)
    });
    for (slot, fd) in fds.iter_mut().zip([root].into_iter().chain(all)) {
        *slot = fd.as_fd();
        count += 1;
    }
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_PARTS))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    let fds = fds.get(..count).unwrap_or_default();
    with.push(SendAncillaryMessage::ScmRights(fds))
        && sys::send(to, &there.to_ne_bytes(), &mut with).is_ok()
}

/// Receives the parts of a room in one message: two bytes with a bit for each part, and the
/// descriptors. `None` if anything is missing.
fn receive(from: &OwnedFd) -> Option<RoomParts> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_PARTS))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let mut there = [0_u8; 2];
    if sys::receive(from.as_raw_fd(), &mut there, &mut with) != Ok(2) {
        return None;
    }
    let mut fds = with.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let mut fds = fds.next()?;
    let root = fds.next()?;
    let there = u16::from_ne_bytes(there);
    let has = |at: usize| there & (1 << at) != 0;
    let (mut devices, mut terminals) = ([const { None }; ROOM_DEVICES.len()], None);
    for (at, part) in devices.iter_mut().chain([&mut terminals]).enumerate() {
        if has(at) {
            *part = Some(fds.next()?);
        }
    }
    let mut shown = [const { CopiedTree::Missing }; SHARED_TREES.len()];
    for (at, copied) in shown.iter_mut().enumerate() {
        if has(IN_PLACE + at) {
            *copied = CopiedTree::InPlace;
        } else if has(ROOM_DEVICES.len() + 1 + at) {
            *copied = CopiedTree::Loose(fds.next()?);
        }
    }
    Some(RoomParts { root, devices, terminals, shown })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{WaitId, WaitIdOptions, waitid};

    #[test]
    fn signals_to_the_process_group_do_not_reach_the_maker() {
        let ahead = HelperProcess::start(HelperNetwork::Closed).unwrap();
        if receive(&ahead.answer).is_none() {
            eprintln!("SKIPPED (no user namespaces): a maker and its signals");
            return;
        }
        for signal in [libc::SIGTSTP, libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            sys::kill(ahead.maker.as_raw_nonzero().get(), signal);
        }
        assert!(ahead.says(NETWORK));
        ahead.let_go();
        let (_, end) = waitpid(Some(ahead.maker), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(end.exit_status(), Some(0));
    }

    #[test]
    fn a_maker_that_is_killed_is_noticed() {
        let ahead = HelperProcess::start(HelperNetwork::Closed).unwrap();
        sys::kill(ahead.maker.as_raw_nonzero().get(), libc::SIGKILL);
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(ahead.maker), ended).unwrap();
        let parts = receive(&ahead.answer);
        assert!(parts.is_none() || !ahead.join_network());
    }
}
