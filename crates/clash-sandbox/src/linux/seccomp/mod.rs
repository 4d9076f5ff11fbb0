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
//! - `ptrace` is refused. Landlock confines it to the sandbox's own processes, and since
//!   Linux 4.8 a tracer cannot change a call after the filter. But debuggers are rare, and
//!   a compromised tool that changes other processes is a real risk.
//! - `memfd_create` needs `MFD_NOEXEC_SEAL`: Landlock permits the execution of files
//!   without a path, whatever the policy says. Otherwise `ENOSYS`, and libraries use files.
//! - `socketpair` gives only connected stream and seqpacket pairs. A datagram pair could
//!   `sendto` any pathname socket, past the refused `socket(AF_UNIX)`.
//! - `MSG_FASTOPEN` needs no check. Without the right to make an internet socket there is
//!   none to send on. With that right, connecting is allowed.
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

use clash_policy::FileCaps;

use crate::plan::room::Inside;
use crate::plan::{Network, Plan, Watch};

use super::bpf::{BpfAssembler, BpfError, BpfInstruction, BpfLabel, BpfTest, JumpTarget};

// Newer calls, which the libc crate does not name on every target. Their numbers are the
// same on all architectures.
const SYS_FCHMODAT2: i64 = 452;
const SYS_SETXATTRAT: i64 = 463;
const SYS_GETXATTRAT: i64 = 464;
const SYS_LISTXATTRAT: i64 = 465;
const SYS_REMOVEXATTRAT: i64 = 466;
const SYS_OPEN_TREE_ATTR: i64 = 467;
const SYS_FILE_GETATTR: i64 = 468;
const SYS_FILE_SETATTR: i64 = 469;

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
    pub(crate) unix: bool,
    /// The room has its own System V objects.
    pub(crate) own_ipc: bool,
    /// The command may change nothing. Then the filter also refuses changes of modes,
    /// owners and times, which Landlock does not restrict.
    pub(crate) frozen: bool,
    /// The calls that launchers inside the room need.
    pub(crate) inside: Inside,
    /// The calls that the monitor carries out.
    pub(crate) watched: Option<WatchedCalls>,
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

/// The answer to a listed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CallAnswer {
    Eperm,
    Enosys,
    Eacces,
    Enotsup,
    /// The monitor answers.
    Watch,
    /// The monitor answers if the flags in this argument ask for more than reading. With
    /// O_PATH they ask for nothing.
    WatchWriting(u32),
    /// The monitor answers, unless the flags in this argument have O_PATH.
    WatchOpens(u32),
    /// Allowed unless the flags in this argument truncate a file that is not opened for
    /// writing.
    Uncut(u32),
    /// The monitor answers, unless this argument is null.
    WatchPath(u32),
    /// Allowed unless argument 0 has namespace flags.
    Clone,
    Unshare,
    Ioctl,
    /// Allowed for the calling process only: argument 0 is zero.
    OwnPid,
    /// Allowed for the calling process only: `PRIO_PROCESS` and zero.
    OwnPriority,
    OwnIoPriority,
    Personality,
    /// Allowed for memory that can never be executed.
    Memory,
    /// Allowed without a set-user-id or set-group-id bit in the mode, which is the argument
    /// with this index.
    Mode(u32),
    /// The allowed socket families; at least one.
    Socket {
        internet: bool,
        unix: bool,
    },
    Socketpair,
    SocketpairUnix,
}

/// One line of the table: number, name, answer.
type CallRow = (i64, &'static str, CallAnswer);

macro_rules! rows {
    ($answer:expr; $($name:ident)*) => {
        [$((libc::$name as i64, stringify!($name), $answer)),*]
    };
}

fn table(surface: FilterSurface) -> Vec<CallRow> {
    use CallAnswer::*;
    let mut rows: Vec<CallRow> = Vec::with_capacity(128);
    // A new user namespace gives its maker all capabilities over it, and with them most of
    // the kernel's attack surface.
    if surface.inside != Inside::Rooms {
        rows.push((libc::SYS_clone, "SYS_clone", Clone));
        rows.push((libc::SYS_unshare, "SYS_unshare", Unshare));
        rows.extend(rows![Eperm; SYS_pivot_root SYS_chroot]);
    }
    rows.extend(rows![Eperm; SYS_setns]);
    rows.extend(
        rows![Enosys; SYS_clone3 SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register],
    );
    // The mount family, old and new.
    if surface.inside != Inside::Rooms {
        rows.extend(rows![Eperm; SYS_mount SYS_umount2 SYS_open_tree SYS_move_mount SYS_fsopen
            SYS_fsconfig SYS_fsmount SYS_fspick SYS_mount_setattr]);
        rows.push((SYS_OPEN_TREE_ATTR, "SYS_open_tree_attr", Eperm));
    }
    // Kernel interfaces that often had security bugs.
    rows.extend(rows![Eperm; SYS_bpf SYS_perf_event_open SYS_userfaultfd SYS_add_key
        SYS_request_key SYS_keyctl SYS_fanotify_init SYS_open_by_handle_at SYS_memfd_secret
        SYS_lookup_dcookie SYS_nfsservctl SYS_vhangup]);
    // Calls on other processes. Landlock already stops most of them between domains, but
    // not kcmp and the advice calls. Tracers work without process_vm_*.
    if surface.inside == Inside::Commands {
        rows.extend(rows![Enosys; SYS_process_vm_readv SYS_process_vm_writev]);
        rows.extend(rows![Eperm; SYS_pidfd_getfd]);
    }
    rows.extend(rows![Eperm; SYS_ptrace SYS_process_madvise SYS_process_mrelease SYS_kcmp SYS_migrate_pages]);
    rows.push((libc::SYS_prlimit64, "SYS_prlimit64", OwnPid));
    rows.push((libc::SYS_setpriority, "SYS_setpriority", OwnPriority));
    rows.push((libc::SYS_ioprio_set, "SYS_ioprio_set", OwnIoPriority));
    // Calls that change the machine.
    rows.extend(rows![Eperm; SYS_kexec_load SYS_init_module SYS_finit_module
        SYS_delete_module SYS_reboot SYS_swapon SYS_swapoff SYS_acct SYS_quotactl SYS_quotactl_fd
        SYS_settimeofday SYS_clock_settime SYS_adjtimex SYS_clock_adjtime SYS_syslog]);
    // All processes of a user share System V objects, and these have no path. So no other
    // mechanism can restrict them.
    if !surface.own_ipc {
        rows.extend(rows![Eperm; SYS_shmget SYS_shmat SYS_shmctl SYS_shmdt SYS_semget SYS_semop
            SYS_semctl SYS_semtimedop SYS_msgget SYS_msgsnd SYS_msgrcv SYS_msgctl]);
    }
    rows.extend(rows![Enotsup; SYS_setxattr SYS_lsetxattr SYS_fsetxattr SYS_removexattr
        SYS_lremovexattr SYS_fremovexattr]);
    rows.push((SYS_SETXATTRAT, "SYS_setxattrat", Enotsup));
    rows.push((SYS_REMOVEXATTRAT, "SYS_removexattrat", Enotsup));
    rows.push((SYS_FILE_SETATTR, "SYS_file_setattr", Enotsup));
    let mode = |argument| match surface {
        FilterSurface { frozen: true, .. } => Eperm,
        FilterSurface { watched: Some(_), .. } => Watch,
        _ => Mode(argument),
    };
    if surface.holds_truncation() {
        rows.extend(rows![Eacces; SYS_truncate]);
        // Its flags are in memory, where a filter cannot read them.
        rows.extend(rows![Enosys; SYS_openat2]);
        rows.push((libc::SYS_openat, "SYS_openat", Uncut(2)));
        #[cfg(target_arch = "x86_64")]
        rows.push((libc::SYS_open, "SYS_open", Uncut(1)));
    }
    if let Some(watched) = surface.watched {
        // Its flags are in memory, where a filter cannot read them. Programs that use it
        // must also work on older kernels.
        rows.extend(rows![Enosys; SYS_openat2]);
        // The monitor acts by the rules of this sandbox. A Landlock domain that the command
        // enters itself would not restrict the monitor. So the command cannot enter one.
        rows.extend(rows![Enosys; SYS_landlock_create_ruleset SYS_landlock_add_rule
            SYS_landlock_restrict_self]);
        let opens = match watched {
            WatchedCalls::Changes => WatchWriting,
            WatchedCalls::Opens => WatchOpens,
            WatchedCalls::Looks => |_| Watch,
        };
        if watched == WatchedCalls::Looks {
            rows.extend(looks());
        }
        rows.push((libc::SYS_openat, "SYS_openat", opens(2)));
        rows.extend(rows![Watch; SYS_mkdirat SYS_mknodat SYS_unlinkat SYS_renameat SYS_renameat2
            SYS_linkat SYS_symlinkat SYS_truncate]);
        #[cfg(target_arch = "x86_64")]
        {
            rows.push((libc::SYS_open, "SYS_open", opens(1)));
            rows.extend(rows![Watch; SYS_creat SYS_mkdir SYS_mknod SYS_unlink SYS_rmdir SYS_rename
                SYS_link SYS_symlink]);
        }
        // Without a room, no mount hides files from inotify.
        if !surface.own_ipc {
            rows.extend(rows![Watch; SYS_inotify_add_watch]);
        }
        if !surface.frozen {
            rows.extend(rows![Watch; SYS_fchown SYS_fchownat SYS_utimensat]);
            #[cfg(target_arch = "x86_64")]
            rows.extend(rows![Watch; SYS_chmod SYS_chown SYS_lchown SYS_utime SYS_utimes
                SYS_futimesat]);
        }
    }
    rows.push((libc::SYS_fchmod, "SYS_fchmod", mode(1)));
    rows.push((libc::SYS_fchmodat, "SYS_fchmodat", mode(2)));
    rows.push((SYS_FCHMODAT2, "SYS_fchmodat2", mode(2)));
    if surface.frozen {
        rows.extend(rows![Eperm; SYS_fchown SYS_fchownat SYS_utimensat]);
    }
    rows.push((libc::SYS_ioctl, "SYS_ioctl", Ioctl));
    rows.push((libc::SYS_personality, "SYS_personality", Personality));
    rows.push((libc::SYS_memfd_create, "SYS_memfd_create", Memory));
    let pair = if surface.unix { SocketpairUnix } else { Socketpair };
    rows.push((libc::SYS_socketpair, "SYS_socketpair", pair));
    let socket = match surface {
        FilterSurface { internet: false, unix: false, .. } => Eacces,
        FilterSurface { internet, unix, .. } => Socket { internet, unix },
    };
    rows.push((libc::SYS_socket, "SYS_socket", socket));
    rows.extend(only_here(surface));
    rows
}

/// Calls that look at a path. Of calls with a newer form that programs do not need, only
/// the older form is listed.
fn looks() -> Vec<CallRow> {
    use CallAnswer::*;
    let mut rows = Vec::with_capacity(20);
    rows.extend(rows![WatchPath(1); SYS_newfstatat SYS_statx]);
    rows.extend(rows![Watch; SYS_statfs SYS_faccessat SYS_faccessat2 SYS_readlinkat SYS_getxattr
        SYS_lgetxattr SYS_listxattr SYS_llistxattr]);
    #[cfg(target_arch = "x86_64")]
    rows.extend(rows![Watch; SYS_stat SYS_lstat SYS_access SYS_readlink]);
    rows.extend(rows![Enotsup; SYS_name_to_handle_at]);
    rows.push((SYS_GETXATTRAT, "SYS_getxattrat", Enosys));
    rows.push((SYS_LISTXATTRAT, "SYS_listxattrat", Enosys));
    rows.push((SYS_FILE_GETATTR, "SYS_file_getattr", Enosys));
    rows
}

#[cfg(target_arch = "x86_64")]
fn only_here(surface: FilterSurface) -> Vec<CallRow> {
    use CallAnswer::*;
    let mut rows = Vec::with_capacity(12);
    rows.extend(rows![Eperm; SYS_iopl SYS_ioperm SYS_modify_ldt SYS_uselib]);
    rows.push((320, "SYS_kexec_file_load", Eperm));
    if surface.frozen {
        rows.extend(rows![Eperm; SYS_chmod SYS_chown SYS_lchown SYS_utime SYS_utimes
            SYS_futimesat]);
    } else if surface.watched.is_none() {
        rows.push((libc::SYS_chmod, "SYS_chmod", Mode(1)));
    }
    rows
}

#[cfg(target_arch = "aarch64")]
fn only_here(_: FilterSurface) -> Vec<CallRow> {
    vec![(294, "SYS_kexec_file_load", CallAnswer::Eperm)]
}

/// Neighbouring syscall numbers with the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CallSpan {
    first: u32,
    last: u32,
    answer: CallAnswer,
}

fn spans(mut rows: Vec<CallRow>) -> Vec<CallSpan> {
    rows.sort_unstable_by_key(|(number, ..)| *number);
    let mut spans: Vec<CallSpan> = Vec::with_capacity(rows.len());
    for (number, _, answer) in rows {
        let Ok(number) = u32::try_from(number) else { continue };
        match spans.last_mut() {
            Some(span) if span.answer == answer && span.last + 1 == number => span.last = number,
            _ => spans.push(CallSpan { first: number, last: number, answer }),
        }
    }
    spans
}

impl FilterSurface {
    /// The calls that the command of a plan needs.
    pub(crate) fn from_plan(plan: &Plan) -> Self {
        let room = plan.room.as_ref();
        Self {
            internet: plan.net == Network::Allow || room.is_some_and(|room| room.own_network),
            unix: room.is_some_and(|room| room.unix_sockets),
            own_ipc: room.is_some(),
            inside: room.map_or_else(Default::default, |room| room.inside),
            watched: plan.watch.as_ref().map(|watch| match watch {
                Watch { sight: Some(_), .. } => WatchedCalls::Looks,
                Watch { reads: true, .. } => WatchedCalls::Opens,
                Watch { reads: false, .. } => WatchedCalls::Changes,
            }),
            frozen: room.is_none()
                && !plan.grants.iter().any(|grant| grant.caps.intersects(FileCaps::CHANGE)),
        }
    }
}

/// Builds the filter for a sandbox.
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

/// Emits one argument check. Every path ends in a jump.
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
        CallAnswer::Personality => {
            asm.load(data::low(0));
            asm.jump(BpfTest::Equal(u32::MAX), allow, JumpTarget::Next); // only asks
            asm.jump(BpfTest::AnyBit(READ_IMPLIES_EXEC), eperm, allow);
        }
        CallAnswer::Ioctl => {
            asm.load(data::low(1));
            let mut left = TERMINAL_IOCTLS.len() + FILE_IOCTLS.len();
            for request in TERMINAL_IOCTLS.into_iter().chain(FILE_IOCTLS) {
                left -= 1;
                asm.jump(
                    BpfTest::Equal(request),
                    eperm,
                    if left == 0 { allow } else { JumpTarget::Next },
                );
            }
        }
        CallAnswer::SocketpairUnix => {
            asm.load(data::low(0));
            asm.jump(BpfTest::Equal(libc::AF_UNIX.cast_unsigned()), allow, eacces);
        }
        CallAnswer::Socketpair => {
            asm.load(data::low(0));
            asm.jump(BpfTest::Equal(libc::AF_UNIX.cast_unsigned()), JumpTarget::Next, eacces);
            asm.load(data::low(1));
            asm.and(SOCK_TYPE_MASK);
            asm.jump(BpfTest::Equal(libc::SOCK_STREAM.cast_unsigned()), allow, JumpTarget::Next);
            asm.jump(BpfTest::Equal(libc::SOCK_SEQPACKET.cast_unsigned()), allow, eacces);
        }
        CallAnswer::Socket { internet, unix } => socket(asm, internet, unix, allow, eacces),
    }
}

/// The socket type without SOCK_NONBLOCK and SOCK_CLOEXEC.
const SOCK_TYPE_MASK: u32 = 0xf;

/// Allows TCP, UDP and the routing netlink socket that name lookup needs. MPTCP, SCTP and
/// SMC are refused, because Landlock's TCP rights do not cover them. Raw sockets are
/// refused, because commands do not need them. AF_UNIX is allowed only in a room that shows
/// no foreign socket. A pathname socket (docker, ssh agent, session bus, X11) has the
/// rights of its server, and Landlock cannot restrict `connect` to it before ABI 9 (Linux
/// 7.1).
fn socket(
    asm: &mut BpfAssembler,
    with_internet: bool,
    unix: bool,
    allow: JumpTarget,
    refuse: JumpTarget,
) {
    let [internet, datagram, netlink] = [asm.label(), asm.label(), asm.label()];
    asm.load(data::low(0));
    if unix {
        let other = if with_internet { JumpTarget::Next } else { refuse };
        asm.jump(BpfTest::Equal(libc::AF_UNIX.cast_unsigned()), allow, other);
    }
    if !with_internet {
        return;
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
}

#[cfg(test)]
mod tests;
