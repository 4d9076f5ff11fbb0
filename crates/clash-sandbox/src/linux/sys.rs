//! Every raw system call of the crate, each behind a safe function. Callers pass owned or
//! borrowed values, never pointers.
#![expect(unsafe_code, reason = "the one place where system calls without a safe wrapper are made")]

mod metadata;
mod notices;
mod processes;
mod signals;
mod sockets;

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::io::Errno;
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::bpf::BpfInstruction;
pub(crate) use metadata::*;
pub(crate) use notices::*;
pub(crate) use processes::*;
pub(crate) use signals::*;
pub(crate) use sockets::*;

const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;
const LANDLOCK_CREATE_RULESET_ERRATA: u32 = 2;
const CLOSE_RANGE_CLOEXEC: u32 = 4;

/// The kernel's Landlock ABI; 0 if Landlock is missing or switched off.
pub(crate) fn landlock_abi() -> u32 {
    landlock_query(LANDLOCK_CREATE_RULESET_VERSION).unwrap_or(0)
}

/// Bit mask of fixed Landlock bugs; `None` before Linux 6.15.
pub(crate) fn landlock_errata() -> Option<u32> {
    landlock_query(LANDLOCK_CREATE_RULESET_ERRATA)
}

/// The kernel's answer to a question about Landlock; `None` if it does not know the flag.
fn landlock_query(flag: u32) -> Option<u32> {
    // SAFETY: with one of the query flags the kernel wants no attribute and
    // reads no memory.
    let answer = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0_usize, flag)
    };
    u32::try_from(answer).ok()
}

/// `struct landlock_ruleset_attr`. An older kernel accepts unknown fields if they are zero.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct HandledRights {
    pub(crate) files: u64,
    pub(crate) network: u64,
    pub(crate) scopes: u64,
}

/// Makes a ruleset that handles these rights. An unknown right is an error.
pub(crate) fn landlock_ruleset(handled: &HandledRights) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads one `HandledRights`, whose size is passed.
    let fd = check(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::from_ref(handled),
            size_of::<HandledRights>(),
            0_u32,
        )
    })?;
    // SAFETY: the kernel has just made this descriptor, and no other value owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Adds a rule with these rights for a place and everything below it (`landlock_add_rule`).
/// Rights that the ruleset does not handle are `EINVAL`.
pub(crate) fn landlock_rule(
    ruleset: BorrowedFd<'_>,
    place: BorrowedFd<'_>,
    rights: u64,
) -> rustix::io::Result<()> {
    /// `struct landlock_path_beneath_attr`
    #[repr(C, packed)]
    struct PathBeneath {
        rights: u64,
        place: RawFd,
    }
    const PATH_BENEATH: u32 = 1;
    let rule = PathBeneath { rights, place: place.as_raw_fd() };
    // SAFETY: the kernel reads one `PathBeneath`, which lives until the call returns.
    check(unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            PATH_BENEATH,
            ptr::from_ref(&rule),
            0_u32,
        )
    })
    .map(drop)
    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
}

/// Restricts the calling thread. no_new_privs must be set.
pub(crate) fn landlock_enter(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes integers.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0_u32) })
        .map(drop)
}

/// True if a filter can answer with an error number.
pub(crate) fn seccomp_errno_available() -> bool {
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the kernel reads one u32, which lives until the call returns.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0_u32,
            ptr::from_ref(&action),
        )
    };
    answer == 0
}

/// A negative answer becomes the error in `errno`.
fn check(answer: c_long) -> io::Result<c_long> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// Marks every descriptor from 3 on close-on-exec (Linux 5.11).
pub(crate) fn close_on_exec_from_3() -> io::Result<()> {
    // SAFETY: takes three integers; no descriptor is closed now, so none that
    // Rust owns becomes invalid.
    check(unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, CLOSE_RANGE_CLOEXEC) })
        .map(drop)
}

/// Writes the label of the security module that confines this process into the buffer, and
/// returns its length: 0 if there is no such module. `None` if the kernel cannot tell (before
/// Linux 6.8), or if the label is too long.
pub(crate) fn confined_by(label: &mut [u8; 512]) -> Option<usize> {
    const LSM_GET_SELF_ATTR: c_long = 459;
    const CURRENT: c_long = 100;
    let mut size = 512_u32;
    // SAFETY: the kernel writes at most `size` bytes into the buffer, and the size
    // it needed; both live until the call returns.
    let answer = unsafe {
        libc::syscall(LSM_GET_SELF_ATTR, CURRENT, label.as_mut_ptr(), &raw mut size, 0_u32)
    };
    match check(answer) {
        Ok(_) => usize::try_from(size).ok(),
        Err(error) => (error.raw_os_error() == Some(libc::EOPNOTSUPP)).then_some(0),
    }
}

/// Installs a seccomp filter on the calling thread. no_new_privs must be set. Returns the
/// kernel's answer, which is a descriptor if the flags ask for a listener.
pub(crate) fn install_filter(program: &[BpfInstruction], flags: u64) -> io::Result<c_long> {
    let mut code: Vec<libc::sock_filter> = program
        .iter()
        .map(|i| libc::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k })
        .collect();
    let length =
        u16::try_from(code.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    let prog = libc::sock_fprog { len: length, filter: code.as_mut_ptr() };
    // SAFETY: `prog` points at `length` instructions; both live until the call
    // returns and the kernel copies them.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, ptr::from_ref(&prog))
    })
}

/// Makes a call that a listener answers with a descriptor.
pub(crate) fn trapped_call(number: c_long) -> io::Result<OwnedFd> {
    // SAFETY: the arguments are integers; without a listener the call only asks
    // for this process's priority.
    let fd = check(unsafe { libc::syscall(number, 0, 0, 0) })?;
    let fd = RawFd::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    if fd < 3 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: a number above the standard three that a listener answered with is a
    // descriptor it has just put into our table; see [`give`].
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets SIGPIPE to its default. Rust's start-up code ignores it, and an ignored signal
/// stays ignored after `execve`. The signal mask is inherited unchanged.
pub(crate) fn default_sigpipe() -> io::Result<()> {
    // SAFETY: SIG_DFL installs no handler, so no code of ours can run in one.
    let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A list of C strings with the null-terminated pointer array `execve` wants.
#[derive(Debug)]
pub(crate) struct CStringArray {
    pointers: Vec<*const c_char>,
    _owned: Vec<CString>,
}

impl CStringArray {
    pub(crate) fn new(owned: Vec<CString>) -> Self {
        let pointers = owned.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect();
        Self { pointers, _owned: owned }
    }
}

/// Replaces the process. Returns only on failure.
pub(crate) fn execve(path: &CStr, args: &CStringArray, env: &CStringArray) -> io::Error {
    // SAFETY: `path` ends in NUL; both arrays end in null and their strings are
    // owned by the same value, whose heap buffers do not move.
    unsafe {
        libc::syscall(
            libc::SYS_execve,
            path.as_ptr(),
            args.pointers.as_ptr(),
            env.pointers.as_ptr(),
            0,
            0,
            // The monitor cannot answer yet: it gets its listener when this call is over.
            clash_door::EXECUTE_MARK,
        )
    };
    io::Error::last_os_error()
}

/// As [`execve`], for an open file.
pub(crate) fn execute_file(
    file: BorrowedFd<'_>,
    args: &CStringArray,
    env: &CStringArray,
) -> io::Error {
    let (file, empty, flags) = (file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH);
    let (args, env) = (args.pointers.as_ptr(), env.pointers.as_ptr());
    // SAFETY: as above; the descriptor is open, and the path ends in NUL.
    unsafe { libc::syscall(libc::SYS_execveat, file, empty, args, env, flags) };
    io::Error::last_os_error()
}

/// The side of a fork.
#[derive(Debug)]
pub(crate) enum ForkSide {
    Parent(libc::pid_t),
    Child,
}

/// Forks the process. The child must not return into the caller's code: it does its work
/// and ends in [`exit_now`].
pub(crate) fn fork() -> io::Result<ForkSide> {
    // SAFETY: the child makes system calls and at most allocates, which glibc
    // and musl keep usable after a fork from a threaded process; no other lock
    // that a lost thread may hold is taken (see attempts.rs).
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(ForkSide::Child),
        pid => Ok(ForkSide::Parent(pid)),
    }
}

/// Ends the process without running destructors or exit handlers.
pub(crate) fn exit_now(code: c_int) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Makes new namespaces for the calling process. Does not use `errno`: a process that
/// shares memory with another calls this, and it may fail.
pub(crate) fn unshare(flags: c_int) -> io::Result<()> {
    let flags = UnshareFlags::from_bits_retain(flags.cast_unsigned());
    // SAFETY: CLONE_FILES is never passed, so Rust's view of its descriptors stays right.
    Ok(unsafe { unshare_unsafe(flags) }?)
}

/// `mount(2)`; `None` passes null.
pub(crate) fn mount(
    source: &CStr,
    target: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
    data: Option<&CStr>,
) -> io::Result<()> {
    let raw = |s: Option<&CStr>| s.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: all pointers are null or NUL-terminated strings that outlive the
    // call.
    check(c_long::from(unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), raw(kind), flags, raw(data).cast())
    }))
    .map(drop)
}

/// Ends the calling process after this time by SIGALRM, whatever it is doing.
pub(crate) fn alarm(seconds: u32) {
    // SAFETY: takes an integer; SIGALRM has its default action here.
    unsafe { libc::alarm(seconds) };
}

pub(crate) const ATTR_RDONLY: u64 = 1;
pub(crate) const ATTR_NOSUID: u64 = 2;
pub(crate) const ATTR_NODEV: u64 = 4;
pub(crate) const ATTR_NOEXEC: u64 = 8;

/// `struct mount_attr`, Linux 5.12.
#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// `mount_setattr` on a tree with all mounts below it.
fn mount_setattr(dir: RawFd, path: &CStr, flags: c_int, attr: &MountAttr) -> io::Result<()> {
    // SAFETY: `path` ends in NUL and `attr` is a whole `struct mount_attr` whose
    // size is passed; both outlive the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir,
            path.as_ptr(),
            flags | libc::AT_RECURSIVE,
            ptr::from_ref(attr),
            size_of::<MountAttr>(),
        )
    })
    .map(drop)
}

/// Makes the mounts below `path` private: no mount or unmount passes between here and the
/// outside.
pub(crate) fn make_private(path: &CStr) -> io::Result<()> {
    let attr = MountAttr { set: 0, clear: 0, propagation: libc::MS_PRIVATE, userns: 0 };
    mount_setattr(libc::AT_FDCWD, path, 0, &attr)
}

/// Sets these attributes on every mount of a tree, and makes the mounts private. Takes no
/// attribute away.
pub(crate) fn set_mount(tree: &OwnedFd, set: u64) -> io::Result<()> {
    let attr = MountAttr { set, clear: 0, propagation: libc::MS_PRIVATE, userns: 0 };
    mount_setattr(tree.as_raw_fd(), c"", libc::AT_EMPTY_PATH, &attr)
}

/// Ignores SIGCHLD, so that the kernel reaps children by itself.
pub(crate) fn forget_children() {
    // SAFETY: SIG_IGN installs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Sets SIGCHLD to its default. Returns true if it was ignored before.
pub(crate) fn notice_children() -> bool {
    // SAFETY: SIG_DFL installs no handler.
    let before = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    before == libc::SIG_IGN
}

/// Hides the memory and environment of this process from every process without
/// CAP_SYS_PTRACE.
pub(crate) fn undumpable() -> io::Result<()> {
    // SAFETY: takes integers.
    check(c_long::from(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) })).map(drop)
}

/// Switches on the loopback interface of this network namespace.
pub(crate) fn loopback_up() -> io::Result<()> {
    // SAFETY: plain integers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    check(c_long::from(socket))?;
    // SAFETY: all zeroes is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(*b"lo") {
        *to = c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    // SAFETY: SIOCSIFFLAGS reads an `ifreq`, which lives until the call returns;
    // the descriptor is ours and closed once.
    unsafe {
        let answer = libc::ioctl(socket, libc::SIOCSIFFLAGS as _, ptr::from_ref(&request));
        let error = io::Error::last_os_error();
        libc::close(socket);
        if answer < 0 { Err(error) } else { Ok(()) }
    }
}

/// The network namespace of a socket. Needs CAP_NET_ADMIN there.
pub(crate) fn namespace_of_socket(socket: &OwnedFd) -> io::Result<OwnedFd> {
    const SIOCGSKNS: c_long = 0x894c;
    // SAFETY: the request takes no argument and returns a new descriptor.
    let fd = check(c_long::from(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSKNS as _) }))?;
    // SAFETY: the kernel has just made this descriptor, and no other value owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Lets a packet socket see only the first packet of each TCP connection.
pub(crate) fn only_first_packets(socket: &OwnedFd, v6: bool) -> io::Result<()> {
    const TCP: u32 = 6;
    /// SYN without ACK.
    const FLAGS: u32 = 0x12;
    const SYN: u32 = 0x02;
    const FLAGS_AT: u32 = 13;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let (load_byte, header_length, load_byte_after, and) = (0x30, 0xb1, 0x50, 0x54);
    let (equal, answer, most) = (0x15, 0x06, 0xffff);
    let v4_filter = [
        step(load_byte, 0, 0, 9),
        step(equal, 0, 5, TCP),
        step(header_length, 0, 0, 0),
        step(load_byte_after, 0, 0, FLAGS_AT),
        step(and, 0, 0, FLAGS),
        step(equal, 0, 1, SYN),
        step(answer, 0, 0, most),
        step(answer, 0, 0, 0),
    ];
    let v6_filter = [
        step(load_byte, 0, 0, 6),
        step(equal, 0, 4, TCP),
        step(load_byte, 0, 0, 40 + FLAGS_AT),
        step(and, 0, 0, FLAGS),
        step(equal, 0, 1, SYN),
        step(answer, 0, 0, most),
        step(answer, 0, 0, 0),
    ];
    let filter: &[libc::sock_filter] = if v6 { &v6_filter } else { &v4_filter };
    /// `struct sock_fprog`
    #[repr(C)]
    struct FilterProgram {
        length: u16,
        steps: *const libc::sock_filter,
    }
    let program = FilterProgram { length: filter.len() as u16, steps: filter.as_ptr() };
    // SAFETY: the kernel reads the program and its steps, which live until the call returns.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            ptr::from_ref(&program).cast::<c_void>(),
            size_of::<FilterProgram>() as libc::socklen_t,
        )
    };
    check(c_long::from(answer)).map(drop)
}

/// Sends a signal to a child. A child that has ended needs none. Numbers below 1 name process
/// groups and get none: the group of the launcher is that of its caller.
pub(crate) fn kill(pid: libc::pid_t, signal: c_int) {
    if pid > 0 {
        // SAFETY: takes integers; the child is not reaped yet, so the id is its own.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Ends the calling process when its parent ends.
pub(crate) fn die_with_parent() -> io::Result<()> {
    // SAFETY: takes integers.
    check(c_long::from(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) }))
        .map(drop)
}

/// Lets the calling process outlive its parent.
pub(crate) fn outlive_parent() -> io::Result<()> {
    // SAFETY: takes integers.
    check(c_long::from(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0, 0, 0, 0) })).map(drop)
}

/// Prevents a second core file when this process dies by the command's signal.
pub(crate) fn no_core_dump() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads one `rlimit`.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
}

/// A file mapped for reading.
#[derive(Debug)]
pub(crate) struct FileMapping {
    start: *mut c_void,
    length: usize,
}

/// Maps a file that is only replaced and never written to. If a process truncates it
/// nevertheless, an access beyond its end is a SIGBUS. The hook then dies, and a dead hook
/// blocks the agent.
pub(crate) fn map(file: &std::fs::File, length: usize) -> io::Result<FileMapping> {
    if length == 0 {
        return Ok(FileMapping { start: ptr::null_mut(), length });
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_POPULATE;
    // SAFETY: a new mapping at a place of the kernel's choice touches no memory of
    // ours; the descriptor is open for the length of the call, and the mapping
    // outlives it.
    let start =
        unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
    if start == libc::MAP_FAILED {
        Err(io::Error::last_os_error())
    } else {
        Ok(FileMapping { start, length })
    }
}

impl FileMapping {
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: `length` bytes from `start` are mapped for reading until drop. The
        // mapping is private and no process writes to the file, so the bytes do not change.
        unsafe { std::slice::from_raw_parts(self.start.cast::<u8>(), self.length) }
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: the mapping is this value's own, and no slice of it outlives it.
            unsafe { libc::munmap(self.start, self.length) };
        }
    }
}

/// Ignores a signal.
pub(crate) fn ignore(signal: c_int) {
    // SAFETY: SIG_IGN installs no handler.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_that_cannot_be_made_leave_errno_to_others() {
        // SAFETY: no descriptor has this number.
        assert_eq!(unsafe { libc::close(-1) }, -1);
        assert_eq!(unshare(1).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
    }
}
