//! The seccomp filter of every sandbox. It refuses calls that attackers use and commands do
//! not need, and it holds the parts of a policy that Landlock cannot express.
//!
//! It is a deny list. An unknown syscall number is allowed: a kernel newer than this table
//! must not break programs, and Landlock, not this filter, holds the file rules. Two
//! families of calls could bypass the list. They get `ENOSYS`, so that libraries use older
//! calls: `clone3`, whose flags are behind a pointer, and io_uring, whose operations no
//! filter sees.
//!
//! Structure: architecture check, x32 check, then a binary tree over the syscall number
//! with up to three comparisons per leaf, then the argument checks. Since Linux 5.11 the
//! kernel runs the filter once per syscall number at installation and remembers which are
//! always allowed. So only the depth of the tree costs time.
//!
//! Decisions:
//! - `ptrace` is allowed. Landlock confines it to the processes of the same domain, which
//!   have the same rights. Since Linux 4.8 a tracer cannot change a call after the filter,
//!   and the kernel does not stop a process that waits for the monitor. Process 1 of a room,
//!   the guard and the launcher are in no domain of the command. In the room of a whole agent
//!   it is refused: launchers run there.
//! - `memfd_create` needs `MFD_NOEXEC_SEAL`: Landlock permits the execution of files
//!   without a path, whatever the policy says. Otherwise `ENOSYS`, and libraries use files.
//! - `socketpair` gives only connected stream and seqpacket pairs. A datagram pair could
//!   `sendto` any pathname socket, past the refused `socket(AF_UNIX)`.
//! - `MSG_FASTOPEN` needs no check in most rooms. Without the right to make an internet socket
//!   there is none to send on. With that right, connecting is allowed. Where programs get
//!   connected sockets of the host's network, it is refused: it could connect such a socket
//!   again, past the monitor. There the filter also refuses source routes (`IP_OPTIONS`,
//!   `IPV6_RTHDR`), with which packets of an allowed connection go to another host first, and
//!   `listen` on such a socket fails because it is connected.
//! - Extended attributes cannot be set (`EOPNOTSUPP`, as on a file system without them):
//!   Landlock does not restrict `setxattr` by path.
//! - The `chmod` family cannot set the set-user-id and set-group-id bits. This keeps honest
//!   copies clean and is no promise: without a monitor `openat2` can still create such a
//!   file.
//! - Where nothing may be written and there is no monitor, the filter refuses truncation,
//!   and Landlock does not handle it. Landlock would search every directory up to the root
//!   for that right at every open.
//! - `sched_setaffinity` and similar calls stay: they take thread ids, so a filter cannot
//!   tell the caller's own threads from those of another process.

mod table;

use clash_policy::FileCaps;

use crate::plan::room::{RoomInterior, RoomPlan};
use crate::plan::{NetworkMode, SandboxPlan, WatchPlan};

pub(crate) use table::UnixFamily;
use table::{CallAnswer, CallSpan, spans, table};

use super::bpf::{BpfAssembler, BpfError, BpfInstruction, BpfLabel, BpfTest, JumpTarget};

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e; // AUDIT_ARCH_X86_64
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7; // AUDIT_ARCH_AARCH64
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the seccomp filter has tables for x86_64 and aarch64 only");

/// Syscall numbers from here on belong to the x32 ABI of x86_64.
const X32: u32 = 0x4000_0000;

const RET_ALLOW: u32 = 0x7fff_0000;
const RET_KILL_PROCESS: u32 = 0x8000_0000;
const RET_ERRNO: u32 = 0x0005_0000;
const RET_USER_NOTIF: u32 = 0x7fc0_0000;

/// A filter of one instruction that allows every call.
pub(crate) const ALLOW_ALL: BpfInstruction =
    BpfInstruction { code: super::bpf::RET, jt: 0, jf: 0, k: RET_ALLOW };

/// Every namespace flag of `clone`: NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER,
/// NEWPID, NEWNET. `unshare` also has NEWTIME, a bit that is part of the signal
/// number in `clone`.
const CLONE_NEW: u32 = 0x7e02_0000;
const CLONE_NEWTIME: u32 = 0x80;
const READ_IMPLIES_EXEC: u32 = 0x0040_0000;
/// The set-user-id and set-group-id bits.
const SET_ID: u32 = 0o6000;
const MFD_NOEXEC_SEAL: u32 = 8;
/// TIOCSTI, TIOCLINUX, TIOCSETD and TIOCCONS: type into the terminal, paste the console's
/// selection, change the line discipline, take the console's output. The numbers are the
/// same on x86_64 and aarch64.
const TERMINAL_IOCTLS: [u32; 4] = [0x5412, 0x541c, 0x5423, 0x541d];

/// Changes of files through a descriptor for reading, which neither Landlock nor the
/// monitor can refuse: change attributes (SETFLAGS, FSSETXATTR), make a file unchangeable
/// (ENABLE_VERITY), encrypt a directory. On btrfs: make, copy, remove and unlock
/// subvolumes, in the old and the new form. These make names, and copy whole trees with
/// their hidden files.
const FILE_IOCTLS: [u32; 11] = [
    0x4008_6602,
    0x401c_5820,
    0x4080_6685,
    0x800c_6613,
    0x5000_940e,
    0x5000_9418,
    0x5000_9401,
    0x5000_9417,
    0x5000_940f,
    0x5000_943f,
    0x4008_941a,
];

/// The differences between sandboxes that matter to the filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilterSurface {
    /// TCP, UDP and routing sockets are allowed.
    pub(crate) internet: bool,
    /// Unix sockets are allowed.
    pub(crate) unix: UnixFamily,
    /// The command runs in a room, which has its own System V objects and its own mounts.
    pub(crate) in_room: bool,
    /// The command may change nothing. Then the filter also refuses changes of modes,
    /// owners and times, which Landlock does not restrict.
    pub(crate) frozen: bool,
    /// The calls that launchers inside the room need.
    pub(crate) inside: RoomInterior,
    /// The calls that the monitor carries out.
    pub(crate) watched: Option<WatchedCalls>,
    /// Programs get connected sockets of the host's network.
    pub(crate) handover: bool,
    /// Without a room: TCP sockets, which only the monitor connects.
    pub(crate) streams: bool,
    /// The monitor sees each `execve` without [`clash_door::EXECUTE_MARK`].
    pub(crate) starts: bool,
}

impl FilterSurface {
    /// True if the filter prevents the truncation of read-only files. For files that can be
    /// opened for writing, Landlock decides.
    pub(crate) fn holds_truncation(&self) -> bool {
        self.frozen && self.watched.is_none()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchedCalls {
    /// Opens for writing, and calls that change names, modes, owners and times.
    Changes,
    /// Also every other open.
    Opens,
    /// Also every call that looks at a path.
    Looks,
}

/// Open flags that may change something.
const WRITING: u32 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | TMPFILE).cast_unsigned();
/// `O_TMPFILE` without the `O_DIRECTORY` bit that it contains.
const TMPFILE: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;

impl FilterSurface {
    /// The calls that the command of a plan needs.
    pub(crate) fn from_plan(plan: &SandboxPlan) -> Self {
        let room = plan.room.as_ref();
        Self {
            internet: plan.net == NetworkMode::Allow || room.is_some_and(|room| room.own_network),
            unix: match room {
                Some(room) if room.unix_sockets => UnixFamily::Any,
                Some(room) if room.own_sockets => UnixFamily::Connected,
                _ => UnixFamily::None,
            },
            in_room: room.is_some(),
            inside: room.map_or_else(Default::default, |room| room.inside),
            watched: plan.watch.as_ref().map(|watch| match watch {
                WatchPlan { sight: Some(_), .. } => WatchedCalls::Looks,
                WatchPlan { reads: true, .. } => WatchedCalls::Opens,
                WatchPlan { reads: false, .. } => WatchedCalls::Changes,
            }),
            handover: room.is_some_and(RoomPlan::hands_over),
            streams: plan.watch.as_ref().is_some_and(|watch| watch.connects.is_some()),
            starts: plan.watch.as_ref().is_some_and(|watch| !watch.door_paths.is_empty()),
            frozen: room.is_none()
                && !plan.grants.iter().any(|grant| grant.caps.intersects(FileCaps::CHANGE)),
        }
    }
}

/// Builds the filter for a sandbox. Pure: installs nothing. An error if a jump is too far,
/// which no surface leads to.
pub(crate) fn filter(surface: FilterSurface) -> Result<Vec<BpfInstruction>, BpfError> {
    let spans = spans(table(surface));
    let mut asm = BpfAssembler::default();
    let mut exits = FilterExits::new(&mut asm);
    asm.load(data::ARCH);
    asm.jump(BpfTest::Equal(ARCH), JumpTarget::Next, JumpTarget::Label(exits.kill));
    asm.load(data::NUMBER);
    if cfg!(target_arch = "x86_64") {
        asm.jump(BpfTest::AtLeast(X32), JumpTarget::Label(exits.enosys), JumpTarget::Next);
    }
    tree(&mut asm, &mut exits, &spans);
    for (answer, label) in exits.checks.clone() {
        asm.place(label);
        check(&mut asm, &exits, answer);
    }
    exits.emit(&mut asm);
    asm.finish()
}

/// Offsets into `struct seccomp_data`.
mod data {
    pub(super) const NUMBER: u32 = 0;
    pub(super) const ARCH: u32 = 4;

    /// The low half of an argument. The kernel reads only this half of the arguments that
    /// are checked here. Both supported architectures are little endian.
    pub(super) const fn low(argument: u32) -> u32 {
        16 + 8 * argument
    }

    /// The high half of an argument.
    pub(super) const fn high(argument: u32) -> u32 {
        low(argument) + 4
    }
}

/// The exits of the program, and the argument checks in use.
struct FilterExits {
    allow: BpfLabel,
    eperm: BpfLabel,
    enosys: BpfLabel,
    eacces: BpfLabel,
    enotsup: BpfLabel,
    watch: BpfLabel,
    kill: BpfLabel,
    checks: Vec<(CallAnswer, BpfLabel)>,
}

impl FilterExits {
    fn new(asm: &mut BpfAssembler) -> Self {
        Self {
            allow: asm.label(),
            eperm: asm.label(),
            enosys: asm.label(),
            eacces: asm.label(),
            enotsup: asm.label(),
            watch: asm.label(),
            kill: asm.label(),
            checks: Vec::with_capacity(12),
        }
    }

    /// The label that gives this answer. The first use of an argument check makes a label for
    /// it.
    fn exit_for(&mut self, asm: &mut BpfAssembler, answer: CallAnswer) -> JumpTarget {
        JumpTarget::Label(match answer {
            CallAnswer::Eperm => self.eperm,
            CallAnswer::Enosys => self.enosys,
            CallAnswer::Eacces => self.eacces,
            CallAnswer::Enotsup => self.enotsup,
            CallAnswer::Watch => self.watch,
            _ => match self.checks.iter().find(|(known, _)| *known == answer) {
                Some((_, label)) => *label,
                None => {
                    let label = asm.label();
                    self.checks.push((answer, label));
                    label
                }
            },
        })
    }

    /// Emits a return instruction for each plain answer, and places its label there.
    fn emit(&self, asm: &mut BpfAssembler) {
        let errno = |number: i32| RET_ERRNO | number.cast_unsigned();
        for (label, value) in [
            (self.allow, RET_ALLOW),
            (self.eperm, errno(libc::EPERM)),
            (self.enosys, errno(libc::ENOSYS)),
            (self.eacces, errno(libc::EACCES)),
            (self.enotsup, errno(libc::EOPNOTSUPP)),
            (self.watch, RET_USER_NOTIF),
            (self.kill, RET_KILL_PROCESS),
        ] {
            asm.place(label);
            asm.ret(value);
        }
    }
}

/// Emits the search over `spans`. Every path ends in a jump.
fn tree(asm: &mut BpfAssembler, exits: &mut FilterExits, spans: &[CallSpan]) {
    const LEAF: usize = 3;
    if spans.len() > LEAF {
        let (low, high) = spans.split_at(spans.len() / 2);
        if let Some(first) = high.first() {
            let right = asm.label();
            asm.jump(BpfTest::AtLeast(first.first), JumpTarget::Label(right), JumpTarget::Next);
            tree(asm, exits, low);
            asm.place(right);
            tree(asm, exits, high);
            return;
        }
    }
    let allow = JumpTarget::Label(exits.allow);
    for (at, span) in spans.iter().enumerate() {
        let miss = if at + 1 == spans.len() { allow } else { JumpTarget::Next };
        let hit = exits.exit_for(asm, span.answer);
        if span.first == span.last {
            asm.jump(BpfTest::Equal(span.first), hit, miss);
        } else {
            // Spans are sorted: a number below this one is in none of the later ones.
            asm.jump(BpfTest::AtLeast(span.first), JumpTarget::Next, allow);
            asm.jump(BpfTest::Above(span.last), miss, hit);
        }
    }
}

/// Emits one argument check. Every path ends in a jump. Nothing for an answer without a
/// check.
fn check(asm: &mut BpfAssembler, exits: &FilterExits, answer: CallAnswer) {
    let [allow, eperm, eacces, watch] =
        [exits.allow, exits.eperm, exits.eacces, exits.watch].map(JumpTarget::Label);
    let mut if_any_bit = |argument: u32, bits: u32| {
        asm.load(data::low(argument));
        asm.jump(BpfTest::AnyBit(bits), eperm, allow);
    };
    match answer {
        CallAnswer::Eperm
        | CallAnswer::Enosys
        | CallAnswer::Eacces
        | CallAnswer::Enotsup
        | CallAnswer::Watch => {}
        CallAnswer::WatchWriting(argument) => {
            asm.load(data::low(argument));
            asm.jump(BpfTest::AnyBit(libc::O_PATH.cast_unsigned()), allow, JumpTarget::Next);
            asm.jump(BpfTest::AnyBit(WRITING), watch, allow);
        }
        CallAnswer::WatchOpens(argument) => {
            asm.load(data::low(argument));
            asm.jump(BpfTest::AnyBit(libc::O_PATH.cast_unsigned()), allow, watch);
        }
        CallAnswer::Uncut(argument) => {
            asm.load(data::low(argument));
            asm.jump(BpfTest::AnyBit(libc::O_TRUNC.cast_unsigned()), JumpTarget::Next, allow);
            // Access mode 3 permits neither reading nor writing.
            asm.and(libc::O_ACCMODE.cast_unsigned());
            asm.jump(BpfTest::Equal(libc::O_WRONLY.cast_unsigned()), allow, JumpTarget::Next);
            asm.jump(BpfTest::Equal(libc::O_RDWR.cast_unsigned()), allow, eacces);
        }
        // Without a path the call is about a descriptor.
        CallAnswer::WatchPath(argument) => {
            asm.load(data::low(argument));
            asm.jump(BpfTest::Equal(0), JumpTarget::Next, watch);
            asm.load(data::high(argument));
            asm.jump(BpfTest::Equal(0), allow, watch);
        }
        CallAnswer::WatchUnmarked => {
            asm.load(data::low(5));
            asm.jump(BpfTest::Equal(clash_door::EXECUTE_MARK), allow, watch);
        }
        CallAnswer::Clone => if_any_bit(0, CLONE_NEW),
        CallAnswer::Unshare => if_any_bit(0, CLONE_NEW | CLONE_NEWTIME),
        CallAnswer::Mode(argument) => if_any_bit(argument, SET_ID),
        CallAnswer::Memory => {
            asm.load(data::low(1));
            asm.jump(BpfTest::AnyBit(MFD_NOEXEC_SEAL), allow, JumpTarget::Label(exits.enosys));
        }
        CallAnswer::OwnPid => {
            asm.load(data::low(0));
            asm.jump(BpfTest::Equal(0), allow, eperm);
        }
        // PRIO_PROCESS is 0, IOPRIO_WHO_PROCESS is 1. Zero means the caller only with
        // these. With the other values it means its process group or its user.
        CallAnswer::OwnPriority | CallAnswer::OwnIoPriority => {
            asm.load(data::low(0));
            let process = u32::from(answer == CallAnswer::OwnIoPriority);
            asm.jump(BpfTest::Equal(process), JumpTarget::Next, eperm);
            asm.load(data::low(1));
            asm.jump(BpfTest::Equal(0), allow, eperm);
        }
        CallAnswer::Send(argument) => {
            asm.load(data::low(argument));
            let refuse = JumpTarget::Label(exits.enotsup);
            asm.jump(BpfTest::AnyBit(MSG_FASTOPEN), refuse, allow);
        }
        CallAnswer::StreamSocket => stream_socket(asm, allow, eacces),
        CallAnswer::SocketOption => source_routes(asm, allow, eperm),
        CallAnswer::Personality => {
            asm.load(data::low(0));
            asm.jump(BpfTest::Equal(u32::MAX), allow, JumpTarget::Next); // only asks
            asm.jump(BpfTest::AnyBit(READ_IMPLIES_EXEC), eperm, allow);
        }
        CallAnswer::Ioctl => ioctl_request(asm, allow, eperm),
        CallAnswer::SocketpairUnix | CallAnswer::Socketpair => {
            socket_pair(asm, answer == CallAnswer::SocketpairUnix, allow, eacces);
        }
        CallAnswer::Socket { internet, unix } => socket(asm, internet, unix, allow, eacces),
    }
}

/// Refuses the requests of `ioctl` that type into a terminal or change a file.
fn ioctl_request(asm: &mut BpfAssembler, allow: JumpTarget, refuse: JumpTarget) {
    asm.load(data::low(1));
    let mut left = TERMINAL_IOCTLS.len() + FILE_IOCTLS.len();
    for request in TERMINAL_IOCTLS.into_iter().chain(FILE_IOCTLS) {
        left -= 1;
        let other = if left == 0 { allow } else { JumpTarget::Next };
        asm.jump(BpfTest::Equal(request), refuse, other);
    }
}

const MSG_FASTOPEN: u32 = 0x2000_0000;
const IP_OPTIONS: u32 = 4;
/// `IPV6_2292RTHDR`, `IPV6_2292PKTOPTIONS` and `IPV6_RTHDR`.
const V6_ROUTES: [u32; 3] = [5, 6, 57];

/// Refuses options with which the caller chooses the way of packets.
fn source_routes(asm: &mut BpfAssembler, allow: JumpTarget, refuse: JumpTarget) {
    let [v4, v6] = [asm.label(), asm.label()];
    asm.load(data::low(1));
    let level = |level: i32| BpfTest::Equal(level.cast_unsigned());
    asm.jump(level(libc::IPPROTO_IP), JumpTarget::Label(v4), JumpTarget::Next);
    asm.jump(level(libc::IPPROTO_IPV6), JumpTarget::Label(v6), allow);
    asm.place(v4);
    asm.load(data::low(2));
    asm.jump(BpfTest::Equal(IP_OPTIONS), refuse, allow);
    asm.place(v6);
    asm.load(data::low(2));
    let mut left = V6_ROUTES.len();
    for name in V6_ROUTES {
        left -= 1;
        asm.jump(BpfTest::Equal(name), refuse, if left == 0 { allow } else { JumpTarget::Next });
    }
}

/// Allows TCP sockets and nothing else.
fn stream_socket(asm: &mut BpfAssembler, allow: JumpTarget, refuse: JumpTarget) {
    let [kind, protocol] = [asm.label(), asm.label()];
    asm.load(data::low(0));
    let family = |family: i32| BpfTest::Equal(family.cast_unsigned());
    asm.jump(family(libc::AF_INET), JumpTarget::Label(kind), JumpTarget::Next);
    asm.jump(family(libc::AF_INET6), JumpTarget::Label(kind), refuse);
    asm.place(kind);
    asm.load(data::low(1));
    asm.and(SOCK_TYPE_MASK);
    let stream = BpfTest::Equal(libc::SOCK_STREAM.cast_unsigned());
    asm.jump(stream, JumpTarget::Label(protocol), refuse);
    asm.place(protocol);
    asm.load(data::low(2));
    asm.jump(BpfTest::Equal(0), allow, JumpTarget::Next);
    asm.jump(BpfTest::Equal(libc::IPPROTO_TCP.cast_unsigned()), allow, refuse);
}

/// The socket type without SOCK_NONBLOCK and SOCK_CLOEXEC.
const SOCK_TYPE_MASK: u32 = 0xf;

/// Allows unix pairs of every type, or only connected stream and seqpacket pairs.
fn socket_pair(asm: &mut BpfAssembler, any_type: bool, allow: JumpTarget, refuse: JumpTarget) {
    let unix = BpfTest::Equal(libc::AF_UNIX.cast_unsigned());
    asm.load(data::low(0));
    if any_type {
        return asm.jump(unix, allow, refuse);
    }
    asm.jump(unix, JumpTarget::Next, refuse);
    connected_types(asm, allow, refuse);
}

/// Allows streams and packets, which reach only the socket they are connected with.
fn connected_types(asm: &mut BpfAssembler, allow: JumpTarget, refuse: JumpTarget) {
    asm.load(data::low(1));
    asm.and(SOCK_TYPE_MASK);
    asm.jump(BpfTest::Equal(libc::SOCK_STREAM.cast_unsigned()), allow, JumpTarget::Next);
    asm.jump(BpfTest::Equal(libc::SOCK_SEQPACKET.cast_unsigned()), allow, refuse);
}

/// Allows TCP, UDP and the routing netlink socket that name lookup needs. MPTCP, SCTP and
/// SMC are refused, because Landlock's TCP rights do not cover them. Raw sockets are
/// refused, because commands do not need them. AF_UNIX is allowed only in a room that shows
/// no foreign socket. A pathname socket (docker, ssh agent, session bus, X11) has the
/// rights of its server, and Landlock cannot restrict `connect` to it before ABI 9 (Linux
/// 7.1).
fn socket(
    asm: &mut BpfAssembler,
    with_internet: bool,
    unix: UnixFamily,
    allow: JumpTarget,
    refuse: JumpTarget,
) {
    let [internet, datagram, netlink] = [asm.label(), asm.label(), asm.label()];
    let local = asm.label();
    asm.load(data::low(0));
    let other = if with_internet { JumpTarget::Next } else { refuse };
    let family = BpfTest::Equal(libc::AF_UNIX.cast_unsigned());
    match unix {
        UnixFamily::None => {}
        UnixFamily::Connected => asm.jump(family, JumpTarget::Label(local), other),
        UnixFamily::Any => asm.jump(family, allow, other),
    }
    let local_types = |asm: &mut BpfAssembler| {
        if unix == UnixFamily::Connected {
            asm.place(local);
            connected_types(asm, allow, refuse);
        }
    };
    if !with_internet {
        return local_types(asm);
    }
    asm.jump(
        BpfTest::Equal(libc::AF_INET.cast_unsigned()),
        JumpTarget::Label(internet),
        JumpTarget::Next,
    );
    asm.jump(
        BpfTest::Equal(libc::AF_INET6.cast_unsigned()),
        JumpTarget::Label(internet),
        JumpTarget::Next,
    );
    asm.jump(BpfTest::Equal(libc::AF_NETLINK.cast_unsigned()), JumpTarget::Label(netlink), refuse);
    asm.place(internet);
    asm.load(data::low(1));
    asm.and(SOCK_TYPE_MASK);
    asm.jump(
        BpfTest::Equal(libc::SOCK_DGRAM.cast_unsigned()),
        JumpTarget::Label(datagram),
        JumpTarget::Next,
    );
    asm.jump(BpfTest::Equal(libc::SOCK_STREAM.cast_unsigned()), JumpTarget::Next, refuse);
    asm.load(data::low(2));
    asm.jump(BpfTest::Equal(0), allow, JumpTarget::Next);
    asm.jump(BpfTest::Equal(libc::IPPROTO_TCP.cast_unsigned()), allow, refuse);
    asm.place(datagram);
    asm.load(data::low(2));
    asm.jump(BpfTest::Equal(0), allow, JumpTarget::Next);
    asm.jump(BpfTest::Equal(libc::IPPROTO_UDP.cast_unsigned()), allow, refuse);
    asm.place(netlink);
    asm.load(data::low(2));
    asm.jump(BpfTest::Equal(libc::NETLINK_ROUTE.cast_unsigned()), allow, refuse);
    local_types(asm);
}

#[cfg(test)]
mod tests;
