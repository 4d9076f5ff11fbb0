//! Signals that are blocked, waited for and passed on.

use std::ffi::{c_int, c_long};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use super::check;

/// An earlier signal mask.
#[derive(Clone, Copy)]
pub(crate) struct SignalMask(libc::sigset_t);

impl std::fmt::Debug for SignalMask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignalMask")
    }
}

/// Signals that the kernel sends because of the program's own instructions.
const SYNCHRONOUS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Every signal except those of [`SYNCHRONOUS`].
fn supervised() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the set; sigdelset changes an initialised one.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        for signal in SYNCHRONOUS {
            libc::sigdelset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Blocks every signal that can be waited for, and returns the mask before.
pub(crate) fn hold_signals() -> io::Result<SignalMask> {
    let set = supervised();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both point at signal sets; the kernel fills in the second.
    check(c_long::from(unsafe {
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, before.as_mut_ptr())
    }))?;
    // SAFETY: filled in by the call that succeeded.
    Ok(SignalMask(unsafe { before.assume_init() }))
}

/// Sets the signal mask of this thread.
pub(crate) fn set_mask(mask: &SignalMask) -> io::Result<()> {
    // SAFETY: points at an initialised set; nothing is written back.
    check(c_long::from(unsafe {
        libc::sigprocmask(libc::SIG_SETMASK, &raw const mask.0, ptr::null_mut())
    }))
    .map(drop)
}

/// Blocks exactly the signals of these bits: bit 0 is signal 1.
pub(crate) fn set_blocked_signals(bits: u64) -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set before it is changed.
    let set = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in (1..=64).filter(|signal| bits & (1 << (signal - 1)) != 0) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    };
    set_mask(&SignalMask(set))
}

/// Ignores exactly the signals of these bits, and gives all others their default action.
pub(crate) fn set_ignored_signals(bits: u64) {
    for signal in (1..=64).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal)) {
        let is_ignored = bits & (1 << (signal - 1)) != 0 && signal != libc::SIGCHLD;
        let action = if is_ignored { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: neither action is a handler.
        unsafe { libc::signal(signal, action) };
    }
}

/// Delivers the pending signals under this mask, and blocks again.
pub(crate) fn let_through(mask: &SignalMask) -> io::Result<()> {
    set_mask(mask)?;
    hold_signals().map(drop)
}

/// Removes one pending stop signal (`SIGTSTP`, `SIGTTIN`, `SIGTTOU`) and returns it; `None`
/// if there is none.
pub(crate) fn held_stop() -> Option<c_int> {
    let mut stops = MaybeUninit::<libc::sigset_t>::uninit();
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: sigemptyset initialises the set before it is changed and read; nothing
    // is to be told of the signal but its number.
    let signal = unsafe {
        libc::sigemptyset(stops.as_mut_ptr());
        for signal in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
            libc::sigaddset(stops.as_mut_ptr(), signal);
        }
        libc::sigtimedwait(stops.as_ptr(), ptr::null_mut(), &raw const now)
    };
    (signal > 0).then_some(signal)
}

/// A signal that was pending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivedSignal {
    pub(crate) signal: c_int,
    /// A process sent it with `kill`. Otherwise the kernel or the terminal sent it, and to
    /// the whole process group.
    pub(crate) from_process: bool,
    /// This process sent it.
    pub(crate) from_self: bool,
}

impl ArrivedSignal {
    fn new(signal: c_int, code: c_int, pid: libc::pid_t) -> Self {
        let from_process = code == libc::SI_USER || code == libc::SI_QUEUE || code == SI_TKILL;
        Self { signal, from_process, from_self: from_process && pid == own_pid() }
    }
}

pub(crate) fn own_pid() -> libc::pid_t {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// The process group of this process. It is 0 if the group belongs to an outer process
/// namespace, which a `Pid` cannot express.
pub(crate) fn own_group() -> libc::pid_t {
    // SAFETY: takes and changes nothing.
    unsafe { libc::getpgrp() }
}

/// The session of a process. It is 0 if the session belongs to an outer process namespace.
pub(crate) fn session_of(pid: libc::pid_t) -> io::Result<libc::pid_t> {
    // SAFETY: takes an integer.
    let session = unsafe { libc::getsid(pid) };
    check(c_long::from(session)).map(|_| session)
}

/// A signalfd for the blocked signals, which never waits.
pub(crate) fn signals() -> io::Result<OwnedFd> {
    let set = supervised();
    // SAFETY: the set is initialised; -1 asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    check(c_long::from(fd))?;
    // SAFETY: the descriptor is new, and no other value owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The next pending signal of a signalfd; `None` if there is none.
pub(crate) fn held_signal(signals: &OwnedFd) -> io::Result<Option<ArrivedSignal>> {
    let mut info = [0_u8; size_of::<libc::signalfd_siginfo>()];
    match rustix::io::read(signals, &mut info) {
        Ok(length) if length == info.len() => {}
        Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    // SAFETY: plain integers, all of which the kernel has written.
    let info: libc::signalfd_siginfo = unsafe { std::mem::transmute(info) };
    let signal = info.ssi_signo.cast_signed();
    Ok(Some(ArrivedSignal::new(signal, info.ssi_code, info.ssi_pid.cast_signed())))
}

/// Waits for the next blocked signal; `None` when the time is up.
pub(crate) fn next_signal(timeout: Option<Duration>) -> io::Result<Option<ArrivedSignal>> {
    let set = supervised();
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let timeout = timeout.map(|left| libc::timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    loop {
        // SAFETY: the set is initialised, `info` has room for the answer and the
        // timeout is null or lives until the call returns.
        let signal = unsafe { libc::sigtimedwait(&raw const set, info.as_mut_ptr(), timeout) };
        if signal >= 0 {
            // SAFETY: zeroed to begin with and filled in by the kernel.
            let info = unsafe { info.assume_init_ref() };
            // SAFETY: read only where the code says that a process sent it, and
            // otherwise bytes that were zeroed or written by the kernel.
            let pid = unsafe { info.si_pid() };
            return Ok(Some(ArrivedSignal::new(signal, info.si_code, pid)));
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(None),
            error if error.raw_os_error() == Some(libc::EINTR) => {}
            error => return Err(error),
        }
    }
}

const SI_TKILL: c_int = -6;

/// Sends this process a signal with its default action and unblocks it: ends or stops the
/// process as if the signal had never been blocked.
pub(crate) fn take(signal: c_int) {
    take_unless(signal, || false);
}

/// As `take`, for a stop from which other processes of the group may have continued
/// meanwhile. The new stop signal removes a pending SIGCONT, so `over` is asked after that.
/// A later SIGCONT removes the stop signal.
pub(crate) fn take_unless(signal: c_int, over: impl Fn() -> bool) {
    // SIGSTOP cannot be blocked.
    if signal == libc::SIGSTOP && over() {
        return;
    }
    let mut only = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: SIG_DFL installs no handler; the sets are initialised by
    // sigemptyset and sigprocmask before they are read.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::sigemptyset(only.as_mut_ptr());
        libc::sigaddset(only.as_mut_ptr(), signal);
        libc::raise(signal);
    }
    if signal != libc::SIGSTOP && over() {
        held_stop();
        return;
    }
    // SAFETY: as above.
    unsafe {
        libc::sigprocmask(libc::SIG_UNBLOCK, only.as_ptr(), before.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
    }
}

/// Sends this process `SIGCONT` after this time, and then every second, so that a stop ends.
/// A stopped process cannot look at the clock.
pub(crate) fn continue_after(time: Duration) -> io::Result<()> {
    // SAFETY: all zeroes is a valid `sigevent`.
    let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
    event.sigev_notify = libc::SIGEV_SIGNAL;
    event.sigev_signo = libc::SIGCONT;
    let mut timer = ptr::null_mut();
    let value =
        libc::timespec { tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: 1 };
    let again = libc::timespec { tv_sec: 1, tv_nsec: 0 };
    let when = libc::itimerspec { it_interval: again, it_value: value };
    // SAFETY: both structures live until the calls return; the timer is the one
    // that was just made and goes with the process.
    unsafe {
        let clock = libc::CLOCK_MONOTONIC;
        check(c_long::from(libc::timer_create(clock, &raw mut event, &raw mut timer)))?;
        check(c_long::from(libc::timer_settime(timer, 0, &raw const when, ptr::null_mut())))?;
    }
    Ok(())
}

/// The signal that interrupts a waiting thread. Its default action is to be ignored.
const WAKE_SIGNAL: c_int = libc::SIGURG;

/// Lets [`interrupt_thread`] interrupt calls of this thread.
pub(crate) fn accept_interrupts() -> io::Result<()> {
    let mut only = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set before it is used.
    check(c_long::from(unsafe {
        libc::sigemptyset(only.as_mut_ptr());
        libc::sigaddset(only.as_mut_ptr(), WAKE_SIGNAL);
        libc::sigprocmask(libc::SIG_UNBLOCK, only.as_ptr(), ptr::null_mut())
    }))
    .map(drop)
}

/// Installs the handler for [`interrupt_thread`]. Call this when no command is started any
/// more, because a command would inherit another disposition of the signal.
pub(crate) fn handle_interrupts() -> io::Result<()> {
    extern "C" fn nothing(_: c_int) {}
    // SAFETY: all zeroes is a valid `sigaction`: no flags, so calls are not restarted.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(c_int) as libc::sighandler_t;
    // SAFETY: the handler does nothing, and the structure lives until the call returns.
    check(c_long::from(unsafe { libc::sigaction(WAKE_SIGNAL, &raw const action, ptr::null_mut()) }))
        .map(drop)
}

/// Interrupts the present system call of a thread of this process.
pub(crate) fn interrupt_thread(thread: libc::pid_t) {
    // SAFETY: takes integers.
    unsafe { libc::syscall(libc::SYS_tgkill, own_pid(), thread, WAKE_SIGNAL) };
}
