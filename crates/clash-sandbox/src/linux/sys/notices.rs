//! Seccomp user notifications (Linux 5.9): receive a call, answer it, and read the caller's
//! memory.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;

use libc::{c_int, c_long, c_void};
use rustix::io::Errno;

use super::check;

/// A call that the filter handed over: `struct seccomp_notif`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeccompNotice {
    pub(crate) id: u64,
    pub(crate) pid: libc::pid_t,
    pub(crate) number: c_long,
    pub(crate) args: [u64; 6],
}

#[repr(C)]
#[derive(Default)]
struct RawNotice {
    id: u64,
    pid: u32,
    flags: u32,
    number: i32,
    arch: u32,
    instruction: u64,
    args: [u64; 6],
}

#[repr(C)]
struct RawAnswer {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

#[repr(C)]
struct RawGift {
    id: u64,
    flags: u32,
    source: u32,
    target: u32,
    target_flags: u32,
}

const NOTICE_RECEIVE: libc::c_ulong = 0xc050_2100;
const NOTICE_SEND: libc::c_ulong = 0xc018_2101;
const NOTICE_SET_FLAGS: libc::c_ulong = 0x4008_2104;
const NOTICE_ID_VALID: libc::c_ulong = 0x4008_2102;
const NOTICE_ADD_FD: libc::c_ulong = 0x4018_2103;

/// `NEW_LISTENER` and `WAIT_KILLABLE_RECV`: once the listener has received a call, only a
/// deadly signal interrupts the caller.
pub(crate) const WITH_LISTENER: u64 = 1 << 3 | 1 << 5;

/// `SECCOMP_ADDFD_FLAG_SETFD`
const GIFT_REPLACES: u32 = 1;
/// `SECCOMP_ADDFD_FLAG_SEND`, Linux 5.14
const GIFT_IS_ANSWER: u32 = 2;

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`
const CONTINUE: u32 = 1;

type NoticeResult<T> = Result<T, Errno>;

fn raw(answer: c_long) -> NoticeResult<c_long> {
    check(answer).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Takes ownership of the listener with this number, which this process or one with the same
/// descriptors has just made. `None` for a number that cannot be one.
pub(crate) fn listener(number: c_long) -> Option<OwnedFd> {
    use std::os::fd::FromRawFd;
    let number = RawFd::try_from(number).ok().filter(|number| *number > 2)?;
    // SAFETY: the number is what the kernel answered to the request for a listener;
    // nothing else knows it.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Makes the kernel wake the listener, and later the caller, on the CPU of the waking
/// process, which is about to sleep. Waking another CPU costs more than the call. Since
/// Linux 6.6; without it everything works, only slower.
pub(crate) fn wake_on_same_cpu(listener: &OwnedFd) {
    /// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`
    const SYNC_WAKE_UP: u64 = 1;
    // SAFETY: takes an integer.
    unsafe { libc::ioctl(listener.as_raw_fd(), NOTICE_SET_FLAGS as _, SYNC_WAKE_UP) };
}

/// Waits for the next call.
pub(crate) fn next_notice(listener: &OwnedFd) -> NoticeResult<SeccompNotice> {
    let mut notice = RawNotice::default();
    // SAFETY: the kernel wants a zeroed `struct seccomp_notif` and fills it in.
    raw(c_long::from(unsafe {
        libc::ioctl(listener.as_raw_fd(), NOTICE_RECEIVE as _, ptr::from_mut(&mut notice))
    }))?;
    Ok(SeccompNotice {
        id: notice.id,
        pid: notice.pid.cast_signed(),
        number: notice.number.into(),
        args: notice.args,
    })
}

/// True if the caller still waits for its answer.
pub(crate) fn is_valid(listener: &OwnedFd, id: u64) -> bool {
    // SAFETY: the kernel reads one u64.
    unsafe { libc::ioctl(listener.as_raw_fd(), NOTICE_ID_VALID as _, ptr::from_ref(&id)) == 0 }
}

/// Answers a call with a value, or minus an error number. A caller that has ended needs no
/// answer.
pub(crate) fn answer(listener: &OwnedFd, id: u64, value: i64) {
    let error = i32::try_from(value.min(0)).unwrap_or(-libc::EIO);
    let answer = RawAnswer { id, value: value.max(0), error, flags: 0 };
    // SAFETY: the kernel reads a `struct seccomp_notif_resp`.
    unsafe { libc::ioctl(listener.as_raw_fd(), NOTICE_SEND as _, ptr::from_ref(&answer)) };
}

/// Lets the kernel carry out a call. The kernel reads the arguments again, so they may
/// differ from those that were seen. A caller that has ended needs no answer.
pub(crate) fn let_go_on(listener: RawFd, id: u64) -> NoticeResult<()> {
    let answer = RawAnswer { id, value: 0, error: 0, flags: CONTINUE };
    // SAFETY: the kernel reads a `struct seccomp_notif_resp`.
    let sent = unsafe { libc::ioctl(listener, NOTICE_SEND as _, ptr::from_ref(&answer)) };
    match raw(c_long::from(sent)) {
        Err(Errno::NOENT) => Ok(()),
        sent => sent.map(drop),
    }
}

/// Installs a descriptor in the caller and returns its number there.
pub(crate) fn give(
    listener: &OwnedFd,
    id: u64,
    fd: &OwnedFd,
    close_on_exec: bool,
) -> NoticeResult<c_int> {
    put(listener, id, fd, close_on_exec, 0, 0)
}

/// Puts a descriptor in the place of the caller's descriptor with this number, as `dup3` does.
pub(crate) fn replace_in_caller(
    listener: &OwnedFd,
    id: u64,
    fd: &OwnedFd,
    number: RawFd,
    close_on_exec: bool,
) -> NoticeResult<()> {
    put(listener, id, fd, close_on_exec, GIFT_REPLACES, number.cast_unsigned()).map(drop)
}

/// As [`give`], and answers the call with the number.
pub(crate) fn answer_with(
    listener: &OwnedFd,
    id: u64,
    fd: &OwnedFd,
    close_on_exec: bool,
) -> NoticeResult<()> {
    put(listener, id, fd, close_on_exec, GIFT_IS_ANSWER, 0).map(drop)
}

/// Installs a descriptor in the caller and returns its number there
/// (`SECCOMP_IOCTL_NOTIF_ADDFD`).
fn put(
    listener: &OwnedFd,
    id: u64,
    fd: &OwnedFd,
    close_on_exec: bool,
    flags: u32,
    target: u32,
) -> NoticeResult<c_int> {
    let gift = RawGift {
        id,
        flags,
        source: fd.as_raw_fd().cast_unsigned(),
        target,
        target_flags: if close_on_exec { libc::O_CLOEXEC.cast_unsigned() } else { 0 },
    };
    // SAFETY: the kernel reads a `struct seccomp_notif_addfd`.
    raw(c_long::from(unsafe {
        libc::ioctl(listener.as_raw_fd(), NOTICE_ADD_FD as _, ptr::from_ref(&gift))
    }))
    .map(|number| number as c_int)
}

/// Reads another process's memory. Returns fewer bytes if a later part is not mapped, and
/// fails if the first byte is not.
pub(crate) fn read_memory(pid: libc::pid_t, at: u64, to: &mut [u8]) -> NoticeResult<usize> {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: at as *mut c_void, iov_len: to.len() };
    // SAFETY: the kernel writes at most `to.len()` bytes to `to`; the other address
    // is the other process's and never used here.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    raw(read as c_long).map(|read| read as usize)
}

/// True if two processes have the same memory, as after `vfork`. `None` if the kernel does
/// not say it, for example because one of them has ended.
pub(crate) fn share_memory(first: libc::pid_t, second: libc::pid_t) -> Option<bool> {
    const KCMP_VM: c_int = 1;
    // SAFETY: takes integers.
    let compared = unsafe { libc::syscall(libc::SYS_kcmp, first, second, KCMP_VM, 0, 0) };
    (compared >= 0).then_some(compared == 0)
}

/// The soft and the hard limit of each resource of another process.
pub(crate) fn resource_limits<const COUNT: usize>(
    pid: libc::pid_t,
) -> NoticeResult<[(u64, u64); COUNT]> {
    let mut limits = [(0, 0); COUNT];
    for (resource, found) in (0..).zip(&mut limits) {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: nothing is set, and the kernel fills in one `rlimit`.
        raw(c_long::from(unsafe { libc::prlimit(pid, resource, ptr::null(), &raw mut limit) }))?;
        *found = (limit.rlim_cur, limit.rlim_max);
    }
    Ok(limits)
}

/// Sets the soft and hard limits of this process, except the number of processes. No hard
/// limit is raised: a soft limit above it is lowered to it.
pub(crate) fn set_resource_limits<const COUNT: usize>(
    limits: &[(u64, u64); COUNT],
) -> NoticeResult<()> {
    let own: [(u64, u64); COUNT] = resource_limits(0)?;
    for ((resource, wanted), own) in (0..).zip(limits).zip(&own) {
        // The kernel counts processes per user namespace, and the plan of the new room sets its
        // own limit.
        if wanted == own || resource == libc::RLIMIT_NPROC {
            continue;
        }
        let hard = wanted.1.min(own.1);
        let limit = libc::rlimit { rlim_cur: wanted.0.min(hard), rlim_max: hard };
        // SAFETY: the kernel reads one `rlimit`.
        raw(c_long::from(unsafe { libc::setrlimit(resource, &raw const limit) }))?;
    }
    Ok(())
}

/// The file size limit (`RLIMIT_FSIZE`) of another process; `None` if it has none.
pub(crate) fn file_size_limit(pid: libc::pid_t) -> NoticeResult<Option<u64>> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: nothing is set, and the kernel fills in one `rlimit`.
    raw(c_long::from(unsafe {
        libc::prlimit(pid, libc::RLIMIT_FSIZE, ptr::null(), &raw mut limit)
    }))?;
    Ok((limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur))
}
