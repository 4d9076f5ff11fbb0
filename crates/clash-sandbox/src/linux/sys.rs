//! Every raw system call of the crate, each behind a safe function that cannot
//! be misused: callers pass owned or borrowed values, never pointers.
#![expect(unsafe_code, reason = "the one place where system calls without a safe wrapper are made")]

use std::ffi::{CStr, CString, c_char, c_int, c_long};
use std::io::{Error, Result};
use std::ptr;

use super::bpf::Insn;

const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;
const LANDLOCK_CREATE_RULESET_ERRATA: u32 = 2;
const CLOSE_RANGE_CLOEXEC: u32 = 4;

/// The kernel's Landlock ABI, 0 when it has none or it is switched off.
pub(crate) fn landlock_abi() -> u32 {
    landlock_query(LANDLOCK_CREATE_RULESET_VERSION).unwrap_or(0)
}

/// Bit mask of fixed Landlock bugs; `None` before Linux 6.15.
pub(crate) fn landlock_errata() -> Option<u32> {
    landlock_query(LANDLOCK_CREATE_RULESET_ERRATA)
}

fn landlock_query(flag: u32) -> Option<u32> {
    // SAFETY: with one of the query flags the kernel wants no attribute and
    // reads no memory.
    let answer = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0_usize, flag)
    };
    u32::try_from(answer).ok()
}

/// Whether a filter may answer with an error number.
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

fn check(answer: c_long) -> Result<c_long> {
    if answer < 0 { Err(Error::last_os_error()) } else { Ok(answer) }
}

/// Marks every descriptor from 3 on close-on-exec (Linux 5.11).
pub(crate) fn close_on_exec_from_3() -> Result<()> {
    // SAFETY: takes three integers; no descriptor is closed now, so none that
    // Rust owns becomes invalid.
    check(unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, CLOSE_RANGE_CLOEXEC) })
        .map(drop)
}

/// Installs a seccomp filter on the calling thread; needs no_new_privs. Returns
/// the kernel's answer, which is a descriptor if the flags ask for a listener.
pub(crate) fn install_filter(program: &[Insn], flags: u64) -> Result<c_long> {
    let mut code: Vec<libc::sock_filter> = program
        .iter()
        .map(|i| libc::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k })
        .collect();
    let length = u16::try_from(code.len()).map_err(|_| Error::from_raw_os_error(libc::E2BIG))?;
    let prog = libc::sock_fprog { len: length, filter: code.as_mut_ptr() };
    // SAFETY: `prog` points at `length` instructions; both live until the call
    // returns and the kernel copies them.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, ptr::from_ref(&prog))
    })
}

/// Gives SIGPIPE its default back: Rust's start-up ignores it, and an ignored
/// signal survives `execve`. The signal mask is inherited untouched, because
/// nothing in this process changes it.
pub(crate) fn default_sigpipe() -> Result<()> {
    // SAFETY: SIG_DFL installs no handler, so no code of ours can run in one.
    let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    if before == libc::SIG_ERR { Err(Error::last_os_error()) } else { Ok(()) }
}

/// A list of C strings with the null-terminated pointer array `execve` wants.
#[derive(Debug)]
pub(crate) struct Strings {
    pointers: Vec<*const c_char>,
    _owned: Vec<CString>,
}

impl Strings {
    pub(crate) fn new(owned: Vec<CString>) -> Self {
        let pointers = owned.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect();
        Self { pointers, _owned: owned }
    }
}

/// Replaces the process; returns only the reason why that failed.
pub(crate) fn execve(path: &CStr, args: &Strings, env: &Strings) -> Error {
    // SAFETY: `path` ends in NUL; both arrays end in null and their strings are
    // owned by the same value, whose heap buffers do not move.
    unsafe { libc::execve(path.as_ptr(), args.pointers.as_ptr(), env.pointers.as_ptr()) };
    Error::last_os_error()
}

/// Which side of a fork this is.
#[derive(Debug)]
pub(crate) enum Fork {
    Parent(libc::pid_t),
    Child,
}

/// Duplicates the process. The child must not return into the caller's code:
/// it does its work and ends in [`exit_now`].
pub(crate) fn fork() -> Result<Fork> {
    // SAFETY: the child makes system calls and at most allocates, which glibc
    // and musl keep usable after a fork from a threaded process; no other lock
    // that a lost thread may hold is taken (see attempts.rs).
    match unsafe { libc::fork() } {
        -1 => Err(Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid)),
    }
}

/// Ends the process without running destructors or exit handlers.
pub(crate) fn exit_now(code: c_int) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Makes new namespaces for the calling process.
pub(crate) fn unshare(flags: c_int) -> Result<()> {
    // SAFETY: takes an integer. CLONE_FILES is never passed, so Rust's view of
    // its descriptors stays right.
    check(c_long::from(unsafe { libc::unshare(flags) })).map(drop)
}

/// `mount(2)`; `None` passes null.
pub(crate) fn mount(
    source: &CStr,
    target: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
    data: Option<&CStr>,
) -> Result<()> {
    let raw = |s: Option<&CStr>| s.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: all pointers are null or NUL-terminated strings that outlive the
    // call.
    check(c_long::from(unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), raw(kind), flags, raw(data).cast())
    }))
    .map(drop)
}

/// Ends the calling process after this many seconds, whatever it is doing.
pub(crate) fn alarm(seconds: u32) {
    // SAFETY: takes an integer; SIGALRM has its default action here.
    unsafe { libc::alarm(seconds) };
}
