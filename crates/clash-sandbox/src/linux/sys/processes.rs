//! Processes that share this process's memory: starting them, scheduling them, and messages
//! between them.

use std::ffi::{c_int, c_long, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::thread::futex;

use super::check;

/// The upper end of a new stack for a process that shares this memory; it grows downwards and
/// has no guard page. Never freed, because the process may outlive the value that started it.
/// Mapped directly: an allocator that zeroes memory would touch every page.
fn stack(bytes: usize) -> io::Result<*mut c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at a place of the kernel's choice touches no memory of
    // ours.
    let start = unsafe { libc::mmap(ptr::null_mut(), bytes, rights, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: one past the end of the mapping.
    Ok(unsafe { start.byte_add(bytes) })
}

/// Runs `job` in a new process with the same memory and descriptors, and waits until it has
/// ended or called `execve`. Memory that `job` writes and files that it opens are visible
/// here. The executed program gets a copy of the descriptors.
pub(crate) fn run_until_exec(mut job: impl FnMut()) -> io::Result<libc::pid_t> {
    let pid = run_and_wait(stack(512 * 1024)?, &mut job);
    check(c_long::from(pid)).map(|_| pid)
}

/// A stack for one process after the other.
#[derive(Debug)]
pub(crate) struct ProcessStack(*mut c_void);

impl ProcessStack {
    pub(crate) fn new() -> io::Result<Self> {
        stack(512 * 1024).map(Self)
    }

    /// As [`run_until_exec`], on this stack.
    pub(crate) fn run_until_exec(&mut self, mut job: impl FnMut()) -> io::Result<libc::pid_t> {
        let pid = run_and_wait(self.0, &mut job);
        check(c_long::from(pid)).map(|_| pid)
    }
}

/// Gives this process a descriptor table of its own, if it shares one.
pub(crate) fn own_descriptors() -> io::Result<()> {
    const CLOSE_RANGE_UNSHARE: libc::c_uint = 2;
    // SAFETY: takes integers, and no descriptor has a number in this range.
    let done =
        unsafe { libc::syscall(libc::SYS_close_range, u32::MAX, u32::MAX, CLOSE_RANGE_UNSHARE) };
    check(done).map(drop)
}

/// As `run_until_exec`, on a given stack. Returns the kernel's answer.
fn run_and_wait(stack: *mut c_void, mut job: &mut dyn FnMut()) -> libc::pid_t {
    extern "C" fn start(job: *mut c_void) -> c_int {
        // SAFETY: `job` is the pointer passed below; its target lives in the
        // frame of the process that waits for this one.
        let job = unsafe { &mut *job.cast::<&mut dyn FnMut()>() };
        job();
        // SAFETY: _exit has no preconditions; nothing of the parent's memory is
        // torn down.
        unsafe { libc::_exit(126) }
    }
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::SIGCHLD;
    // SAFETY: the child runs on a stack of its own while this thread, the only
    // one, stands still, so no memory is used by both at a time.
    unsafe { libc::clone(start, stack, flags, ptr::from_mut(&mut job).cast()) }
}

/// As [`run_until_exec`], but `job` runs in a child of another new process, which has the
/// same memory and descriptors too. That process first asks `settle` whether to continue.
/// Afterwards it runs `stay` concurrently, under the contract of [`run_beside`]. Returns the
/// number of that process and of the job's process. `EAGAIN` if `settle` refuses or the job
/// cannot be started, `ECHILD` if the process between is killed before.
pub(crate) fn run_behind<T: Sync + 'static>(
    mut job: impl FnMut(),
    with: &'static T,
    settle: fn(&T) -> bool,
    stay: fn(&T, libc::pid_t),
) -> io::Result<(libc::pid_t, libc::pid_t)> {
    struct GuardStart<'a, T: 'static> {
        job: &'a mut dyn FnMut(),
        stack: *mut c_void,
        with: &'static T,
        settle: fn(&T) -> bool,
        stay: fn(&T, libc::pid_t),
        /// The id of the job's process; -1 if `settle` refused.
        child: &'a AtomicU32,
    }
    /// The process between the caller and the job. Settles itself, starts the job and waits
    /// until it has left this memory, stores the job's process number (-1 if it failed) and
    /// wakes the caller. Then it stays as the job's parent. It never returns.
    extern "C" fn between<T: Sync + 'static>(start: *mut c_void) -> c_int {
        // SAFETY: the pointer passed below; its target lives in the frame of the
        // process that waits until `child` is set, and is not used after that.
        let start = unsafe { &mut *start.cast::<GuardStart<'_, T>>() };
        let (with, stay) = (start.with, start.stay);
        // This process and the one that shares its memory both wait meanwhile.
        let child = if (start.settle)(with) { run_and_wait(start.stack, start.job) } else { -1 };
        start.child.store(child.cast_unsigned(), Ordering::Release);
        let _ = futex::wake(start.child, futex::Flags::empty(), 1);
        if child > 0 {
            stay(with, child);
        }
        // SAFETY: _exit has no preconditions.
        unsafe { libc::_exit(0) }
    }
    const WAITING: u32 = 0;
    let child = AtomicU32::new(WAITING);
    let (stack_of_job, stack_between) = (stack(512 * 1024)?, stack(64 * 1024)?);
    let mut start =
        GuardStart { job: &mut job, stack: stack_of_job, with, settle, stay, child: &child };
    let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::SIGCHLD;
    // SAFETY: the new process has its own stack, and this thread, the only one whose
    // memory it uses, stands still below until it is done with that.
    let pid = unsafe {
        libc::clone(between::<T>, stack_between, flags, ptr::from_mut(&mut start).cast())
    };
    check(c_long::from(pid))?;
    // Does not use `errno`, which the new process shares.
    let a_while = rustix::fs::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    let options = rustix::process::WaitOptions::NOHANG;
    while child.load(Ordering::Acquire) == WAITING {
        let _ = futex::wait(&child, futex::Flags::empty(), WAITING, Some(&a_while));
        let ended = rustix::process::waitpid(rustix::process::Pid::from_raw(pid), options);
        if matches!(ended, Ok(Some(_))) && child.load(Ordering::Acquire) == WAITING {
            return Err(io::Error::from_raw_os_error(libc::ECHILD));
        }
    }
    match child.load(Ordering::Acquire).cast_signed() {
        child if child > 0 => Ok((pid, child)),
        _ => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
    }
}

/// Starts a process that shares this memory and runs concurrently. `job` may use only
/// system calls, its own stack and its argument. It shares the thread-local storage, so it
/// must not allocate. It may set `errno` only on a failure after which it ends.
pub(crate) fn run_beside<T: Sync + 'static>(
    job: fn(&T),
    with: &'static T,
) -> io::Result<libc::pid_t> {
    struct BesideStart<T: 'static>(fn(&T), &'static T);
    extern "C" fn start<T: Sync + 'static>(start: *mut c_void) -> c_int {
        // SAFETY: `start` was leaked below and is never written again.
        let BesideStart(job, with) = unsafe { &*start.cast::<BesideStart<T>>() };
        job(with);
        // SAFETY: _exit has no preconditions.
        unsafe { libc::_exit(0) }
    }
    let job = Box::leak(Box::new(BesideStart(job, with)));
    let stack = stack(64 * 1024)?;
    // SAFETY: the child has its own stack and, by the contract above, writes no
    // memory of ours; what it reads was leaked and is shared between threads.
    let pid = unsafe {
        libc::clone(start::<T>, stack, libc::CLONE_VM | libc::SIGCHLD, ptr::from_mut(job).cast())
    };
    check(c_long::from(pid)).map(|_| pid)
}

/// Runs `start` with the batch scheduling policy: a process that it starts does not preempt
/// others, nor this one, when it is new or woken. It keeps that policy; this thread gets its
/// old one back. If the policy cannot be changed, `start` runs all the same.
pub(crate) fn with_batch_scheduling<T>(start: impl FnOnce() -> T) -> T {
    let patient = use_batch_scheduling();
    let started = start();
    if patient {
        schedule(libc::SCHED_BATCH, libc::SCHED_OTHER);
    }
    started
}

/// Changes the policy of this thread from normal to batch. Returns false if it was not
/// normal or cannot be changed.
pub(crate) fn use_batch_scheduling() -> bool {
    schedule(libc::SCHED_OTHER, libc::SCHED_BATCH)
}

/// Changes the scheduling policy of this thread. Returns false, and changes nothing, if the
/// present policy is not `from`, or if the kernel refuses.
fn schedule(from: c_int, to: c_int) -> bool {
    // SAFETY: all zeroes is a valid `sched_param`.
    let none: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: take integers and a struct that lives until the call returns. Raw calls:
    // the functions of this name do nothing in musl.
    unsafe {
        libc::syscall(libc::SYS_sched_getscheduler, 0) == c_long::from(from)
            && libc::syscall(libc::SYS_sched_setscheduler, 0, to, &raw const none) == 0
    }
}

/// Closes every descriptor except one. Does not use `errno`.
pub(crate) fn close_all_but(fd: RawFd) {
    let fd = fd.cast_unsigned();
    for (first, last) in [(0, fd.saturating_sub(1)), (fd.saturating_add(1), u32::MAX)] {
        // SAFETY: takes integers. Only called in a process that shares its descriptors with
        // no other; a raw call, so that no thread-local memory is touched on success.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0_u32) };
    }
}

/// Closes every descriptor except these. Only for a process that has nothing else to do.
pub(crate) fn close_all_but_these(kept: &mut [RawFd]) {
    kept.sort_unstable();
    let mut first = 0;
    for fd in kept.iter().map(|fd| fd.cast_unsigned()) {
        if fd > first {
            // SAFETY: takes integers; the descriptors in between belong to nothing that
            // this process still uses.
            unsafe { libc::syscall(libc::SYS_close_range, first, fd - 1, 0_u32) };
        }
        first = fd.saturating_add(1);
    }
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0_u32) };
}

/// Gives each descriptor the wanted number, open across `execve`, and closes all others but
/// those of `extra`, which get new numbers above. Only for a process that uses none of the
/// others.
pub(crate) fn place_descriptors(
    given: &[(RawFd, std::os::fd::OwnedFd)],
    extra: Vec<std::os::fd::OwnedFd>,
) -> io::Result<Vec<std::os::fd::OwnedFd>> {
    let above = given.iter().map(|(number, _)| *number).fold(2, RawFd::max).saturating_add(1);
    let kept: Vec<std::os::fd::OwnedFd> = extra
        .iter()
        .map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, above))
        .collect::<Result<_, _>>()?;
    // Their numbers may be in use again soon.
    std::mem::forget(extra);
    let given: Vec<(RawFd, RawFd)> =
        given.iter().map(|(number, fd)| (*number, fd.as_raw_fd())).collect();
    let numbers: Vec<RawFd> = kept.iter().map(AsRawFd::as_raw_fd).collect();
    place_numbers(&given, above, &numbers)?;
    Ok(kept)
}

/// Copies each descriptor to the wanted number, open across `execve`, and closes all others
/// but `kept`, whose numbers are `above` or higher, as no wanted number is.
pub(crate) fn place_numbers(
    given: &[(RawFd, RawFd)],
    above: RawFd,
    kept: &[RawFd],
) -> io::Result<()> {
    let mut moved = Vec::with_capacity(given.len());
    for (number, fd) in given {
        // SAFETY: takes integers; the copy is used below only.
        let high = unsafe { libc::fcntl(*fd, libc::F_DUPFD_CLOEXEC, above) };
        check(c_long::from(high))?;
        moved.push((*number, high));
    }
    let mut open: Vec<RawFd> = moved.iter().map(|(_, high)| *high).collect();
    open.extend(kept);
    close_all_but_these(&mut open);
    for (number, high) in moved {
        // SAFETY: takes integers. The number belongs to no value that this process uses.
        check(c_long::from(unsafe { libc::dup2(high, number) }))?;
        // SAFETY: the descriptor was made above, and no value owns it.
        unsafe { libc::close(high) };
    }
    Ok(())
}

/// Keeps a descriptor open across `execve`. A closed one is skipped.
pub(crate) fn keep_across_exec(fd: RawFd) {
    // SAFETY: takes integers and changes a flag only.
    unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
}

/// True if two descriptors share one file position, and also if the kernel cannot tell.
pub(crate) fn is_same_description(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    const KCMP_FILE: c_int = 0;
    let own = std::process::id();
    let (one, other) = (one.as_raw_fd(), other.as_raw_fd());
    // SAFETY: takes integers and changes nothing.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, own, own, KCMP_FILE, one, other) };
    order == 0 || order == -1
}

/// Sends a short message and descriptors. Only this process uses the socket.
pub(crate) fn send(
    fd: RawFd,
    word: &[u8],
    with: &mut rustix::net::SendAncillaryBuffer<'_, '_, '_>,
) -> rustix::io::Result<()> {
    // SAFETY: the descriptor stays open for the whole call, since this process
    // does nothing else.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = rustix::net::SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[io::IoSlice::new(word)], with, flags).map(drop)
}

/// Lends a descriptor that another value owns and keeps open meanwhile.
pub(crate) fn with_descriptor<T>(fd: RawFd, job: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
    // SAFETY: the caller's process keeps the descriptor open for the whole call.
    job(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Receives a short message and descriptors. Returns the length of the message.
pub(crate) fn receive(
    fd: RawFd,
    word: &mut [u8],
    with: &mut rustix::net::RecvAncillaryBuffer<'_>,
) -> rustix::io::Result<usize> {
    // SAFETY: as above.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = rustix::net::RecvFlags::CMSG_CLOEXEC;
    loop {
        match rustix::net::recvmsg(socket, &mut [io::IoSliceMut::new(word)], with, flags) {
            Err(Errno::INTR) => {}
            received => return received.map(|received| received.bytes),
        }
    }
}

/// Waits for a byte from a pipe. Returns true if one came, false if the other end was closed
/// first.
pub(crate) fn was_released(fd: RawFd) -> bool {
    // SAFETY: the descriptor stays open for the whole call, since this process
    // does nothing else.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let mut byte = [0_u8; 1];
    loop {
        match rustix::io::read(fd, &mut byte) {
            Err(Errno::INTR) => {}
            read => return read == Ok(1),
        }
    }
}

/// The number that a process of another process namespace has in that of the caller
/// (Linux 6.11).
pub(crate) fn number_of_process(
    namespace: BorrowedFd<'_>,
    inside: libc::pid_t,
) -> Option<libc::pid_t> {
    const NS_GET_PID_FROM_PIDNS: u64 = 0x8004_b706;
    // SAFETY: the argument is an integer, not a pointer.
    let pid = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_PID_FROM_PIDNS as _, inside) };
    (pid > 0).then_some(pid)
}

/// Puts a descriptor in the place of an open one.
pub(crate) fn replace_descriptor(old: BorrowedFd<'_>, new: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes integers. The owner of `old` keeps a valid descriptor.
    let made = unsafe { libc::dup3(new.as_raw_fd(), old.as_raw_fd(), libc::O_CLOEXEC) };
    check(c_long::from(made)).map(drop)
}

/// Closes descriptors that values of lost threads own. Only for a new process that has no
/// other thread and uses none of those values.
pub(crate) fn close_descriptors(numbers: &[RawFd]) {
    for number in numbers {
        // SAFETY: takes an integer; no value that this process uses owns it.
        unsafe { libc::close(*number) };
    }
}

/// Numbers in memory that this process shares with the processes that it forks.
pub(crate) fn shared_numbers() -> io::Result<&'static [std::sync::atomic::AtomicI32; 1024]> {
    let (rights, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping of one page, zeroed by the kernel and never unmapped.
    let page = unsafe { libc::mmap(ptr::null_mut(), 4096, rights, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the page holds 1024 aligned numbers, and all processes use them as atomics.
    Ok(unsafe { &*page.cast() })
}

/// Waits until the other end of a pipe is closed, or a signal arrives. True if the pipe has
/// ended.
pub(crate) fn ends_or_signals(pipe: RawFd, signals: &std::os::fd::OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    // SAFETY: the descriptor stays open for the whole call, since this process does nothing
    // else.
    let pipe = unsafe { BorrowedFd::borrow_raw(pipe) };
    let mut ends = [PollFd::new(&pipe, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
    let _ = poll(&mut ends, None);
    let [pipe, _] = ends.map(|end| end.revents());
    pipe.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}
