//! The table of calls that the filter does not simply allow, with their answers.

use crate::plan::room::RoomInterior;

use super::{FilterSurface, WatchedCalls};

// Newer calls, which the libc crate does not name on every target. Their numbers are the
// same on all architectures.
pub(super) const SYS_FCHMODAT2: i64 = 452;
const SYS_SETXATTRAT: i64 = 463;
const SYS_GETXATTRAT: i64 = 464;
const SYS_LISTXATTRAT: i64 = 465;
const SYS_REMOVEXATTRAT: i64 = 466;
const SYS_OPEN_TREE_ATTR: i64 = 467;
const SYS_FILE_GETATTR: i64 = 468;
const SYS_FILE_SETATTR: i64 = 469;

/// The answer to a listed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CallAnswer {
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
    /// The monitor answers, unless argument 5 is [`clash_door::EXECUTE_MARK`].
    WatchUnmarked,
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
        unix: UnixFamily,
    },
    Socketpair,
    SocketpairUnix,
    /// Allowed unless the flags in this argument connect a socket.
    Send(u32),
    /// Allowed unless it sets a source route.
    SocketOption,
    /// Allowed for TCP.
    StreamSocket,
}

/// The unix sockets that a command may make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UnixFamily {
    #[default]
    None,
    /// Streams and packets. The monitor connects them.
    Connected,
    /// Also datagrams, and the kernel connects them.
    Any,
}

/// One line of the table: number, name, answer.
pub(super) type CallRow = (i64, &'static str, CallAnswer);

macro_rules! rows {
    ($answer:expr; $($name:ident)*) => {
        [$((libc::$name as i64, stringify!($name), $answer)),*]
    };
}

/// The calls with another answer than a plain yes, in no order.
pub(super) fn table(surface: FilterSurface) -> Vec<CallRow> {
    use CallAnswer::*;
    let mut rows: Vec<CallRow> = Vec::with_capacity(128);
    rows.extend(kernel_surface(surface));
    // All processes of a user share System V objects, and these have no path. So no other
    // mechanism can restrict them.
    if !surface.in_room {
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
        rows.extend(watched_calls(surface, watched));
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
    let pair = if surface.unix == UnixFamily::Any { SocketpairUnix } else { Socketpair };
    rows.push((libc::SYS_socketpair, "SYS_socketpair", pair));
    let socket = match surface {
        FilterSurface { streams: true, .. } => StreamSocket,
        FilterSurface { internet: false, unix: UnixFamily::None, .. } => Eacces,
        FilterSurface { internet, unix, .. } => Socket { internet, unix },
    };
    rows.push((libc::SYS_socket, "SYS_socket", socket));
    if surface.unix == UnixFamily::Connected {
        rows.push((libc::SYS_connect, "SYS_connect", Watch));
    }
    if surface.streams {
        rows.extend(rows![Watch; SYS_connect]);
        rows.extend(rows![Eacces; SYS_bind SYS_listen]);
    }
    if surface.handover || surface.streams {
        rows.push((libc::SYS_sendto, "SYS_sendto", Send(3)));
        rows.push((libc::SYS_sendmsg, "SYS_sendmsg", Send(2)));
        rows.push((libc::SYS_sendmmsg, "SYS_sendmmsg", Send(3)));
        rows.push((libc::SYS_setsockopt, "SYS_setsockopt", SocketOption));
    }
    if surface.starts {
        rows.push((libc::SYS_execve, "SYS_execve", WatchUnmarked));
    }
    rows.extend(only_here(surface));
    rows
}

/// Calls that commands do not need and attackers use: namespaces, mounts, kernel interfaces, other
/// processes and the machine.
fn kernel_surface(surface: FilterSurface) -> Vec<CallRow> {
    use CallAnswer::*;
    let mut rows: Vec<CallRow> = Vec::with_capacity(64);
    // A new user namespace gives its maker all capabilities over it, and with them most of
    // the kernel's attack surface.
    if surface.inside != RoomInterior::Rooms {
        rows.push((libc::SYS_clone, "SYS_clone", Clone));
        rows.push((libc::SYS_unshare, "SYS_unshare", Unshare));
        rows.extend(rows![Eperm; SYS_pivot_root SYS_chroot]);
    }
    rows.extend(rows![Eperm; SYS_setns]);
    rows.extend(
        rows![Enosys; SYS_clone3 SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register],
    );
    // The mount family, old and new.
    if surface.inside != RoomInterior::Rooms {
        rows.extend(rows![Eperm; SYS_mount SYS_umount2 SYS_open_tree SYS_move_mount SYS_fsopen
            SYS_fsconfig SYS_fsmount SYS_fspick SYS_mount_setattr]);
        rows.push((SYS_OPEN_TREE_ATTR, "SYS_open_tree_attr", Eperm));
    }
    // Kernel interfaces that often had security bugs.
    rows.extend(rows![Eperm; SYS_bpf SYS_perf_event_open SYS_userfaultfd SYS_add_key
        SYS_request_key SYS_keyctl SYS_fanotify_init SYS_open_by_handle_at SYS_memfd_secret
        SYS_lookup_dcookie SYS_nfsservctl SYS_vhangup]);
    // Calls on other processes. Landlock stops tracing and the calls that need the same right
    // between domains, but not kcmp and the advice calls.
    if surface.inside != RoomInterior::Commands {
        rows.extend(rows![Eperm; SYS_ptrace]);
    }
    rows.extend(rows![Eperm; SYS_process_madvise SYS_process_mrelease SYS_kcmp SYS_migrate_pages]);
    rows.push((libc::SYS_prlimit64, "SYS_prlimit64", OwnPid));
    rows.push((libc::SYS_setpriority, "SYS_setpriority", OwnPriority));
    rows.push((libc::SYS_ioprio_set, "SYS_ioprio_set", OwnIoPriority));
    // Calls that change the machine.
    rows.extend(rows![Eperm; SYS_kexec_load SYS_init_module SYS_finit_module
        SYS_delete_module SYS_reboot SYS_swapon SYS_swapoff SYS_acct SYS_quotactl SYS_quotactl_fd
        SYS_settimeofday SYS_clock_settime SYS_adjtimex SYS_clock_adjtime SYS_syslog]);
    rows
}

/// Calls that the monitor carries out, except the `fchmod` family, which [`table`] adds. Also
/// calls that must fail beside a monitor: `openat2` and Landlock.
fn watched_calls(surface: FilterSurface, watched: WatchedCalls) -> Vec<CallRow> {
    use CallAnswer::*;
    let mut rows = Vec::with_capacity(48);
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
    // The monitor remembers umasks, so it has to know when one changes.
    rows.extend(rows![Watch; SYS_umask]);
    rows.extend(rows![Watch; SYS_mkdirat SYS_mknodat SYS_unlinkat SYS_renameat SYS_renameat2
        SYS_linkat SYS_symlinkat SYS_truncate]);
    #[cfg(target_arch = "x86_64")]
    {
        rows.push((libc::SYS_open, "SYS_open", opens(1)));
        rows.extend(rows![Watch; SYS_creat SYS_mkdir SYS_mknod SYS_unlink SYS_rmdir SYS_rename
            SYS_link SYS_symlink]);
    }
    // Without a room, no mount hides files from inotify.
    if !surface.in_room {
        rows.extend(rows![Watch; SYS_inotify_add_watch]);
    }
    if !surface.frozen {
        rows.extend(rows![Watch; SYS_fchown SYS_fchownat SYS_utimensat]);
        #[cfg(target_arch = "x86_64")]
        rows.extend(rows![Watch; SYS_chmod SYS_chown SYS_lchown SYS_utime SYS_utimes
            SYS_futimesat]);
    }
    rows
}

/// Calls that look at a path. If programs do not need the newer form of a call, the monitor
/// carries out only the older one, and the newer one fails.
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

/// The rows of calls that exist only on this machine's kind of processor.
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
pub(super) struct CallSpan {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) answer: CallAnswer,
}

/// Sorts the rows by number, and joins consecutive numbers with the same answer. Numbers
/// without a row are in no span: the filter allows them.
pub(super) fn spans(mut rows: Vec<CallRow>) -> Vec<CallSpan> {
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
