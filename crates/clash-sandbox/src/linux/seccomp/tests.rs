//! The filter is data, so these tests run it in a BPF interpreter. `tests/enforce.rs`
//! checks the same on the real kernel.

use super::super::bpf::interpret;
use super::table::SYS_FCHMODAT2;
use super::*;
use proptest::prelude::*;

fn ask(surface: FilterSurface, number: i64, args: [u64; 6]) -> u32 {
    ask_arch(surface, ARCH, u32::try_from(number).unwrap(), args)
}

/// The filter's answer to a call of an architecture.
fn ask_arch(surface: FilterSurface, arch: u32, number: u32, args: [u64; 6]) -> u32 {
    let mut data = [0u32; 16];
    data[0] = number;
    data[1] = arch;
    for (at, arg) in args.iter().enumerate() {
        data[4 + 2 * at] = *arg as u32;
        data[5 + 2 * at] = (*arg >> 32) as u32;
    }
    interpret(&filter(surface).unwrap(), &data)
}

fn errno(number: i32) -> u32 {
    RET_ERRNO | number as u32
}

const CLOSED: FilterSurface = FilterSurface {
    internet: false,
    unix: UnixFamily::None,
    in_room: false,
    frozen: false,
    inside: RoomInterior::Commands,
    watched: None,
    handover: false,
    streams: false,
    starts: false,
};
const INTERNET: FilterSurface = FilterSurface { internet: true, ..CLOSED };
const ROOM: FilterSurface =
    FilterSurface { internet: true, unix: UnixFamily::Any, in_room: true, ..CLOSED };
const NESTING: FilterSurface = FilterSurface { inside: RoomInterior::Rooms, ..ROOM };
const MONITORS: FilterSurface = FilterSurface { inside: RoomInterior::Monitors, ..ROOM };
const LOOKS: FilterSurface = FilterSurface { watched: Some(WatchedCalls::Looks), ..CLOSED };
const WATCHED: FilterSurface = FilterSurface { watched: Some(WatchedCalls::Changes), ..ROOM };
const STARTS: FilterSurface = FilterSurface { starts: true, ..WATCHED };
const SURFACES: [FilterSurface; 13] = [
    STARTS,
    NESTING,
    MONITORS,
    CLOSED,
    INTERNET,
    ROOM,
    FilterSurface { internet: false, ..ROOM },
    FilterSurface { frozen: true, ..CLOSED },
    WATCHED,
    FilterSurface { watched: Some(WatchedCalls::Opens), ..CLOSED },
    FilterSurface { watched: Some(WatchedCalls::Opens), frozen: true, ..CLOSED },
    LOOKS,
    FilterSurface { frozen: true, ..LOOKS },
];

#[test]
fn every_row_gets_its_answer_and_no_number_is_listed_twice() {
    for surface in SURFACES {
        let rows = table(surface);
        for (number, name, answer) in &rows {
            let twins = rows.iter().filter(|(other, ..)| other == number).count();
            assert_eq!(twins, 1, "{name}");
            let expected = match answer {
                CallAnswer::Eperm => errno(libc::EPERM),
                CallAnswer::Enosys => errno(libc::ENOSYS),
                CallAnswer::Eacces => errno(libc::EACCES),
                CallAnswer::Enotsup => errno(libc::EOPNOTSUPP),
                CallAnswer::Watch => RET_USER_NOTIF,
                _ => continue, // by arguments, below
            };
            assert_eq!(ask(surface, *number, [0; 6]), expected, "{name}");
        }
    }
}

#[test]
fn the_filter_stays_small() {
    for surface in SURFACES {
        let size = filter(surface).unwrap().len();
        assert!(size < 200, "{size} instructions");
    }
}

#[test]
fn a_foreign_architecture_kills_and_x32_does_not_exist() {
    for arch in [0x4000_0003, 0xc000_00b7 ^ ARCH, 0] {
        assert_eq!(ask_arch(CLOSED, arch, 1, [0; 6]), RET_KILL_PROCESS);
    }
    if cfg!(target_arch = "x86_64") {
        for number in [X32, X32 + 41, X32 + 512, u32::MAX] {
            assert_eq!(ask_arch(CLOSED, ARCH, number, [0; 6]), errno(libc::ENOSYS));
        }
    }
}

#[test]
fn new_namespaces_are_refused_and_threads_are_not() {
    let thread = 0x3d0f00; // what pthread_create passes
    let fork = 0x0120_0011; // what fork passes
    assert_eq!(ask(CLOSED, libc::SYS_clone, [thread, 0, 0, 0, 0, 0]), RET_ALLOW);
    assert_eq!(ask(CLOSED, libc::SYS_clone, [fork, 0, 0, 0, 0, 0]), RET_ALLOW);
    for bit in [0x20000u64, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000] {
        let clone = ask(CLOSED, libc::SYS_clone, [fork | bit, 0, 0, 0, 0, 0]);
        let unshare = ask(CLOSED, libc::SYS_unshare, [bit, 0, 0, 0, 0, 0]);
        assert_eq!((clone, unshare), (errno(libc::EPERM), errno(libc::EPERM)), "{bit:#x}");
    }
    assert_eq!(ask(CLOSED, libc::SYS_unshare, [0x80, 0, 0, 0, 0, 0]), errno(libc::EPERM));
    assert_eq!(ask(CLOSED, libc::SYS_unshare, [0x400, 0, 0, 0, 0, 0]), RET_ALLOW);
    assert_eq!(ask(INTERNET, libc::SYS_clone3, [0; 6]), errno(libc::ENOSYS));
}

#[test]
fn ioctls_that_change_files_are_refused_and_copying_is_not() {
    const WRITE: u32 = 1;
    const READ: u32 = 2;
    let number = |direction: u32, kind: u8, of: u32, size: u32| {
        u64::from(direction << 30 | size << 16 | u32::from(kind) << 8 | of)
    };
    let ask = |request| ask(ROOM, libc::SYS_ioctl, [3, request, 0, 0, 0, 0]);
    let subvolumes = [1, 14, 15, 23, 24, 63].map(|of| number(WRITE, 0x94, of, 4096));
    let attributes = [
        number(WRITE, b'f', 2, 8),
        number(WRITE, b'X', 32, 28),
        number(WRITE, b'f', 133, 128),
        number(READ, b'f', 19, 12),
        number(WRITE, 0x94, 26, 8),
    ];
    for request in subvolumes.into_iter().chain(attributes) {
        assert_eq!(ask(request), errno(libc::EPERM), "{request:#x}");
    }
    let copies = [
        number(WRITE, 0x94, 9, 4),
        number(WRITE, 0x94, 13, 32),
        number(READ | WRITE, 0x94, 54, 24),
    ];
    let looks = [number(READ, b'f', 1, 8), number(READ, b'X', 31, 28)];
    for request in copies.into_iter().chain(looks) {
        assert_eq!(ask(request), RET_ALLOW, "{request:#x}");
    }
}

#[test]
fn terminal_ioctls_are_compared_on_the_low_half() {
    for request in [0x5412u64, 0x541c, 0x5423, 0x1_0000_5412, 0xffff_ffff_0000_541c] {
        let answer = ask(CLOSED, libc::SYS_ioctl, [0, request, 0, 0, 0, 0]);
        assert_eq!(answer, errno(libc::EPERM), "{request:#x}");
    }
    for request in [0x5401u64, 0x5402, 0x5413, 0x5414, 0x5421, 0x540f] {
        let answer = ask(CLOSED, libc::SYS_ioctl, [0, request, 0, 0, 0, 0]);
        assert_eq!(answer, RET_ALLOW, "{request:#x}");
    }
}

#[test]
fn limits_and_priorities_only_of_the_caller() {
    let [deny, allow] = [errno(libc::EPERM), RET_ALLOW];
    let ask = |number, a, b| ask(CLOSED, number, [a, b, 0, 0, 0, 0]);
    assert_eq!(ask(libc::SYS_prlimit64, 0, 7), allow);
    assert_eq!(ask(libc::SYS_prlimit64, 1, 7), deny);
    assert_eq!(ask(libc::SYS_setpriority, 0, 0), allow);
    assert_eq!(ask(libc::SYS_setpriority, 0, 1), deny);
    assert_eq!(ask(libc::SYS_setpriority, 1, 0), deny, "the process group");
    assert_eq!(ask(libc::SYS_setpriority, 2, 0), deny, "the whole user");
    assert_eq!(ask(libc::SYS_ioprio_set, 1, 0), allow);
    assert_eq!(ask(libc::SYS_ioprio_set, 1, 1), deny);
    assert_eq!(ask(libc::SYS_ioprio_set, 3, 0), deny);
}

#[test]
fn personality_cannot_make_data_executable() {
    let ask = |persona| ask(CLOSED, libc::SYS_personality, [persona, 0, 0, 0, 0, 0]);
    assert_eq!(ask(0xffff_ffff), RET_ALLOW);
    assert_eq!(ask(0x0040000), RET_ALLOW); // setarch -R, debuggers
    assert_eq!(ask(0x0400000), errno(libc::EPERM));
}

#[test]
fn memory_becomes_no_program() {
    let ask = |flags| ask(CLOSED, libc::SYS_memfd_create, [0, flags, 0, 0, 0, 0]);
    for flags in [0, 1, 2, 3, 0x10, 0x11] {
        assert_eq!(ask(flags), errno(libc::ENOSYS), "{flags:#x}");
    }
    // With both flags the kernel itself refuses.
    assert_eq!((ask(8), ask(9)), (RET_ALLOW, RET_ALLOW));
}

#[test]
fn no_bit_that_changes_identity_can_be_set() {
    for (number, at) in [(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (SYS_FCHMODAT2, 2)] {
        let mut args = [0u64; 6];
        for mode in [0o4755, 0o2775, 0o6711] {
            args[at] = mode;
            assert_eq!(ask(CLOSED, number, args), errno(libc::EPERM));
        }
        args[at] = 0o1777;
        assert_eq!(ask(CLOSED, number, args), RET_ALLOW);
    }
}

/// Sockets (family, type, protocol) that are allowed with the network.
const SOCKETS: [(i32, i32, i32); 9] = [
    (2, 1, 0),
    (2, 1, 6),
    (2, 2, 0),
    (2, 2, 17),
    (10, 1, 0),
    (10, 1, 6),
    (10, 2, 17),
    (16, 3, 0),
    (16, 2, 0),
];

#[test]
fn sockets_when_the_network_is_allowed() {
    let ask = |f: i32, t: i32, p: i32| {
        ask(INTERNET, libc::SYS_socket, [f as u64, t as u64, p as u64, 0, 0, 0])
    };
    for (family, kind, protocol) in SOCKETS {
        assert_eq!(ask(family, kind, protocol), RET_ALLOW, "{family} {kind} {protocol}");
        assert_eq!(ask(family, kind | 0o2004000, protocol), RET_ALLOW, "with flags");
    }
    for (family, kind, protocol, what) in [
        (1, 1, 0, "unix"),
        (2, 3, 255, "raw"),
        (2, 1, 262, "mptcp"),
        (2, 1, 132, "sctp"),
        (2, 5, 132, "sctp seqpacket"),
        (2, 2, 1, "ping"),
        (2, 2, 136, "udplite"),
        (10, 1, 262, "mptcp 6"),
        (16, 3, 12, "netfilter"),
        (16, 3, 15, "uevent"),
        (17, 3, 0, "packet"),
        (38, 5, 0, "alg"),
        (40, 1, 0, "vsock"),
        (43, 1, 0, "smc"),
        (44, 2, 0, "xdp"),
    ] {
        assert_eq!(ask(family, kind, protocol), errno(libc::EACCES), "{what}");
    }
}

#[test]
fn datagram_pairs_could_reach_pathname_sockets() {
    let ask = |f: u64, t: u64| ask(CLOSED, libc::SYS_socketpair, [f, t, 0, 0, 0, 0]);
    assert_eq!(ask(1, 1), RET_ALLOW);
    assert_eq!(ask(1, 1 | 0o2000000), RET_ALLOW);
    assert_eq!(ask(1, 5), RET_ALLOW);
    assert_eq!(ask(1, 2), errno(libc::EACCES));
    assert_eq!(ask(1, 3), errno(libc::EACCES));
    assert_eq!(ask(2, 1), errno(libc::EACCES));
}

proptest! {
    #[test]
    fn what_is_not_listed_is_allowed(number in 0u32..1000, args: [u64; 6]) {
        for surface in SURFACES {
            if !table(surface).iter().any(|(listed, ..)| *listed == i64::from(number)) {
                prop_assert_eq!(ask_arch(surface, ARCH, number, args), RET_ALLOW);
            }
        }
    }

    #[test]
    fn without_network_no_arguments_make_a_socket(args: [u64; 6]) {
        prop_assert_eq!(ask(CLOSED, libc::SYS_socket, args), errno(libc::EACCES));
    }

    #[test]
    fn with_network_only_the_listed_triples_make_a_socket(f in 0i32..50, t in 0i32..12, p in 0i32..300) {
        let answer = ask(INTERNET, libc::SYS_socket, [f as u64, t as u64, p as u64, 0, 0, 0]);
        let listed = SOCKETS.contains(&(f, t, p)) || (f, t, p) == (10, 2, 0)
            || (f == 16 && p == 0); // any netlink type: the kernel takes two and refuses the rest
        prop_assert_eq!(answer == RET_ALLOW, listed);
    }
}

#[test]
fn a_room_with_rooms_inside_may_make_but_not_join_namespaces() {
    let new_user = [0x1000_0000, 0, 0, 0, 0, 0];
    for call in [
        libc::SYS_unshare,
        libc::SYS_clone,
        libc::SYS_mount,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
    ] {
        assert_eq!(ask(NESTING, call, new_user), RET_ALLOW, "{call}");
        assert_ne!(ask(ROOM, call, new_user), RET_ALLOW, "{call}");
        assert_ne!(ask(MONITORS, call, new_user), RET_ALLOW, "{call}");
    }
    for call in [libc::SYS_setns, libc::SYS_bpf, libc::SYS_setxattr] {
        assert_ne!(ask(NESTING, call, [0; 6]), RET_ALLOW, "{call}");
    }
    for call in [libc::SYS_pidfd_getfd, libc::SYS_process_vm_readv] {
        assert_eq!(ask(MONITORS, call, [0; 6]), RET_ALLOW, "{call}");
    }
}

#[test]
fn only_opens_that_may_change_something_are_watched() {
    let open = |surface, flags: i32| ask(surface, libc::SYS_openat, [0, 0, flags as u64, 0, 0, 0]);
    for flags in [libc::O_RDONLY, libc::O_CLOEXEC | libc::O_DIRECTORY, libc::O_PATH | libc::O_RDWR]
    {
        assert_eq!(open(WATCHED, flags), RET_ALLOW, "{flags:o}");
        assert_eq!(open(ROOM, flags | libc::O_WRONLY), RET_ALLOW, "{flags:o}");
    }
    for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC, libc::O_TMPFILE, 3] {
        assert_eq!(open(WATCHED, flags), RET_USER_NOTIF, "{flags:o}");
    }
    let all = FilterSurface { watched: Some(WatchedCalls::Opens), ..CLOSED };
    assert_eq!(open(all, libc::O_RDONLY), RET_USER_NOTIF);
    assert_eq!(open(all, libc::O_PATH), RET_ALLOW);
    assert_eq!(ask(WATCHED, libc::SYS_openat2, [0; 6]), errno(libc::ENOSYS));
    assert_eq!(ask(WATCHED, libc::SYS_landlock_restrict_self, [0; 6]), errno(libc::ENOSYS));
    assert_eq!(ask(ROOM, libc::SYS_landlock_restrict_self, [0; 6]), RET_ALLOW);
}

#[test]
fn every_look_at_a_path_is_watched_and_none_at_a_descriptor() {
    let path = 0x7fff_0000_1000;
    let empty = u64::from(libc::AT_EMPTY_PATH.cast_unsigned());
    for (number, at) in [(libc::SYS_newfstatat, 1), (libc::SYS_statx, 1)] {
        // A path that is not null is in memory, whatever the flags say about an empty path.
        for path in [path, 1, 1 << 32] {
            let mut args = [3, 0, empty, empty, 0, 0];
            args[at] = path;
            assert_eq!(ask(LOOKS, number, args), RET_USER_NOTIF, "{number} {path:#x}");
        }
        assert_eq!(ask(LOOKS, number, [3, 0, empty, empty, 0, 0]), RET_ALLOW);
    }
    for number in [libc::SYS_fstat, libc::SYS_fstatfs, libc::SYS_fgetxattr, libc::SYS_fchdir] {
        assert_eq!(ask(LOOKS, number, [path; 6]), RET_ALLOW);
    }
    let flags = u64::from((libc::O_PATH | libc::O_NOFOLLOW).cast_unsigned());
    assert_eq!(ask(LOOKS, libc::SYS_openat, [3, path, flags, 0, 0, 0]), RET_USER_NOTIF);
    for surface in [WATCHED, FilterSurface { watched: Some(WatchedCalls::Opens), ..CLOSED }] {
        assert_eq!(ask(surface, libc::SYS_newfstatat, [path; 6]), RET_ALLOW);
        assert_eq!(ask(surface, libc::SYS_statx, [path; 6]), RET_ALLOW);
    }
}

#[test]
fn only_doors_of_the_project_send_execve_to_the_monitor() {
    let marked = [0, 0, 0, 0, 0, u64::from(clash_door::EXECUTE_MARK)];
    assert_eq!(ask(WATCHED, libc::SYS_execve, [0; 6]), RET_ALLOW);
    assert_eq!(ask(STARTS, libc::SYS_execve, [0; 6]), RET_USER_NOTIF);
    assert_eq!(ask(STARTS, libc::SYS_execve, marked), RET_ALLOW);
}

/// Landlock confines tracers to their own domain.
#[test]
fn processes_are_traced_except_where_launchers_run() {
    for surface in [CLOSED, ROOM, WATCHED, LOOKS] {
        assert_eq!(ask(surface, libc::SYS_ptrace, [0; 6]), RET_ALLOW);
        assert_eq!(ask(surface, libc::SYS_process_vm_readv, [0; 6]), RET_ALLOW);
        assert_eq!(ask(surface, libc::SYS_kcmp, [0; 6]), errno(libc::EPERM));
    }
    for surface in [MONITORS, NESTING] {
        assert_eq!(ask(surface, libc::SYS_ptrace, [0; 6]), errno(libc::EPERM));
    }
}

#[test]
fn own_unix_sockets_are_connected_by_the_monitor() {
    const OWN: FilterSurface = FilterSurface { unix: UnixFamily::Connected, ..ROOM };
    let socket = |kind: u64| ask(OWN, libc::SYS_socket, [1, kind, 0, 0, 0, 0]);
    assert_eq!([socket(1), socket(5), socket(0o2_004_001)], [RET_ALLOW; 3]);
    assert_eq!([socket(2), socket(3)], [errno(libc::EACCES); 2]);
    assert_eq!(ask(OWN, libc::SYS_connect, [0; 6]), RET_USER_NOTIF);
    assert_eq!(ask(ROOM, libc::SYS_connect, [0; 6]), RET_ALLOW);
    let pair = |kind: u64| ask(OWN, libc::SYS_socketpair, [1, kind, 0, 0, 0, 0]);
    assert_eq!([pair(1), pair(2)], [RET_ALLOW, errno(libc::EACCES)]);
}

#[test]
fn without_a_room_only_the_monitor_connects() {
    const STREAMS: FilterSurface = FilterSurface { streams: true, ..LOOKS };
    let socket = |family: i32, kind: u64, protocol: u64| {
        ask(STREAMS, libc::SYS_socket, [family as u64, kind, protocol, 0, 0, 0])
    };
    for family in [libc::AF_INET, libc::AF_INET6] {
        assert_eq!([socket(family, 1, 0), socket(family, 0o2_000_001, 6)], [RET_ALLOW; 2]);
        let refused = errno(libc::EACCES);
        assert_eq!([socket(family, 2, 0), socket(family, 3, 6)], [refused; 2]);
        assert_eq!([socket(family, 1, 262), socket(family, 1, 132)], [refused; 2]);
    }
    for family in [libc::AF_UNIX, libc::AF_NETLINK, libc::AF_VSOCK, libc::AF_PACKET] {
        assert_eq!(socket(family, 1, 0), errno(libc::EACCES));
    }
    assert_eq!(ask(STREAMS, libc::SYS_connect, [0; 6]), RET_USER_NOTIF);
    let refused = errno(libc::EACCES);
    assert_eq!(
        [libc::SYS_bind, libc::SYS_listen].map(|call| ask(STREAMS, call, [0; 6])),
        [refused; 2]
    );
    let fast = [0, 0, 0, 0x2000_0000, 0, 0];
    assert_eq!(ask(STREAMS, libc::SYS_sendto, fast), errno(libc::EOPNOTSUPP));
}

#[test]
fn a_handed_over_socket_is_not_connected_again() {
    const HANDS: FilterSurface =
        FilterSurface { unix: UnixFamily::Connected, handover: true, ..ROOM };
    let fast = 0x2000_0000;
    let refused = errno(libc::EOPNOTSUPP);
    for (number, at) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        let mut args = [0; 6];
        assert_eq!(ask(HANDS, number, args), RET_ALLOW);
        args[at] = fast | libc::MSG_NOSIGNAL as u64;
        assert_eq!([ask(HANDS, number, args), ask(ROOM, number, args)], [refused, RET_ALLOW]);
    }
    let option =
        |level: i32, name: u64| ask(HANDS, libc::SYS_setsockopt, [3, level as u64, name, 0, 0, 0]);
    let refused = errno(libc::EPERM);
    assert_eq!(option(libc::IPPROTO_IP, 4), refused);
    assert_eq!([5, 6, 57].map(|name| option(libc::IPPROTO_IPV6, name)), [refused; 3]);
    for allowed in [(libc::IPPROTO_TCP, 4), (libc::IPPROTO_IP, 1), (libc::IPPROTO_IPV6, 26)] {
        assert_eq!(option(allowed.0, allowed.1), RET_ALLOW);
    }
}

#[test]
fn where_nothing_is_written_no_call_cuts_a_file_short() {
    const FROZEN: FilterSurface = FilterSurface { frozen: true, ..CLOSED };
    let refused = errno(libc::EACCES);
    let open = |surface, flags: i32| ask(surface, libc::SYS_openat, [0, 0, flags as u64, 0, 0, 0]);
    for flags in [libc::O_RDONLY, libc::O_CREAT, libc::O_ACCMODE, libc::O_CLOEXEC | libc::O_APPEND]
    {
        assert_eq!(open(FROZEN, flags), RET_ALLOW, "{flags:o}");
        assert_eq!(open(FROZEN, flags | libc::O_TRUNC), refused, "{flags:o}");
        assert_eq!(open(CLOSED, flags | libc::O_TRUNC), RET_ALLOW, "{flags:o}");
    }
    // These opens write, so Landlock decides.
    for flags in [libc::O_WRONLY, libc::O_RDWR] {
        assert_eq!(open(FROZEN, flags | libc::O_CREAT | libc::O_TRUNC), RET_ALLOW, "{flags:o}");
    }
    assert_eq!(ask(FROZEN, libc::SYS_truncate, [0; 6]), refused);
    assert_eq!(ask(FROZEN, libc::SYS_openat2, [0; 6]), errno(libc::ENOSYS));
    #[cfg(target_arch = "x86_64")]
    assert_eq!(ask(FROZEN, libc::SYS_open, [0, libc::O_TRUNC as u64, 0, 0, 0, 0]), refused);
}
