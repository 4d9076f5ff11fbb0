//! Calls that have no safe form: signals, `execveat`, and the entry of the program.

use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::attend::{CommandLine, run};

/// The entry. Without the runtime of Rust: it would ignore SIGPIPE, and the command would
/// inherit that.
#[unsafe(no_mangle)]
extern "C" fn main(_: c_int, argv: *const *const c_char) -> c_int {
    run(CommandLine(argv))
}

/// The signals that the caller had blocked.
pub(super) struct SignalMask(libc::sigset_t);

impl SignalMask {
    /// One bit for each signal; the lowest is signal 1.
    pub(super) fn bits(&self) -> u64 {
        // SAFETY: the set is initialised, and 1 to 64 are signals.
        let is_member =
            |signal: c_int| unsafe { libc::sigismember(&raw const self.0, signal) == 1 };
        (1..=64)
            .filter(|signal| is_member(*signal))
            .fold(0, |bits, signal| bits | 1 << (signal - 1))
    }
}

impl SignalMask {
    /// True for SIGHUP, SIGINT, SIGQUIT and SIGTERM, unless the caller blocked or ignored
    /// the signal.
    pub(super) fn is_deadly(&self, signal: c_int) -> bool {
        let ends = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM].contains(&signal);
        let mut now = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: both values are initialised, and the call only reads the action.
        unsafe {
            ends && libc::sigismember(&raw const self.0, signal) == 0
                && libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) == 0
                && now.assume_init().sa_sigaction != libc::SIG_IGN
        }
    }
}

/// Sends a signal to this process. It stays pending while it is blocked.
pub(super) fn raise(signal: c_int) {
    // SAFETY: takes an integer.
    unsafe { libc::raise(signal) };
}

/// Blocks every signal. Returns the mask of the caller.
pub(super) fn block_signals() -> SignalMask {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: both sets belong to this function, and the calls initialise them.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        SignalMask(before.assume_init())
    }
}

/// Blocks the signals that the caller had blocked, and no others.
pub(super) fn restore_signals(mask: &SignalMask) {
    // SAFETY: the set is initialised.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const mask.0, std::ptr::null_mut()) };
}

/// A descriptor that reports blocked signals.
pub(super) fn signal_descriptor() -> Option<OwnedFd> {
    let mut all = MaybeUninit::uninit();
    // SAFETY: the set belongs to this function; a descriptor that the kernel returns is new.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        let fd = libc::signalfd(-1, all.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
    }
}

/// A received signal.
pub(super) struct ReceivedSignal {
    pub(super) number: i32,
    /// True if the kernel sent it, for example for Ctrl-C at a terminal.
    pub(super) from_kernel: bool,
}

/// The next received signal; `None` if there is none.
pub(super) fn next_signal(fd: &OwnedFd) -> Option<ReceivedSignal> {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the kernel writes at most `size` bytes, and all zeroes is a valid value.
    let info = unsafe {
        let read = libc::read(fd.as_raw_fd(), info.as_mut_ptr().cast(), size);
        if usize::try_from(read) != Ok(size) {
            return None;
        }
        info.assume_init()
    };
    let from_kernel = info.ssi_code == libc::SI_KERNEL;
    Some(ReceivedSignal { number: info.ssi_signo.cast_signed(), from_kernel })
}

/// Stops this process until it is continued.
pub(super) fn stop() {
    raise(libc::SIGSTOP);
}

/// Ends this process by a signal, as the command ended, without a core dump. Gives the
/// shell's status for the signal if that does not end it.
pub(super) fn end_by(signal: c_int) -> c_int {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: no handler stays, the default action is set, and the sets are this function's.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::signal(signal, libc::SIG_DFL);
        let mut only = MaybeUninit::uninit();
        libc::sigemptyset(only.as_mut_ptr());
        libc::sigaddset(only.as_mut_ptr(), signal);
        libc::raise(signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, only.as_ptr(), std::ptr::null_mut());
    }
    128 + signal
}

/// Executes the file with the arguments and the environment of this process. Returns only
/// on failure.
pub(super) fn execute(file: BorrowedFd<'_>, line: &CommandLine) -> std::io::Error {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: the kernel made both arrays when this process began; nothing changed them.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            file.as_raw_fd(),
            c"".as_ptr(),
            line.0,
            environ,
            libc::AT_EMPTY_PATH,
        );
    }
    std::io::Error::last_os_error()
}

/// Executes the program at a path, with the arguments and the environment of this process.
/// A first argument that is the path of this program becomes the path of that one: the caller
/// gave one text for both. Runs a script without a first line that names its interpreter with
/// the shell, as `execvp` does. Returns only on failure.
pub(super) fn execute_path(path: &CStr, line: &CommandLine) -> std::io::Error {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    let own = std::fs::read_link("/proc/self/exe").ok();
    let is_own = own.is_some_and(|own| own.as_os_str() == own_name(line).as_str());
    // SAFETY: the array of arguments ends with a null pointer, each argument with NUL, and
    // nothing has changed them since this process began. The path outlives the calls.
    unsafe {
        let mut words: Vec<*const c_char> = Vec::new();
        let mut at = line.0;
        while !(*at).is_null() {
            words.push(*at);
            at = at.add(1);
        }
        words.push(std::ptr::null());
        let is_own = is_own && words.len() > 1;
        if let Some(first) = words.first_mut().filter(|_| is_own) {
            *first = path.as_ptr();
        }
        let mark = libc::c_long::from(clash_door::EXECUTE_MARK);
        libc::syscall(libc::SYS_execve, path.as_ptr(), words.as_ptr(), environ, 0, 0, mark);
        let error = std::io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::ENOEXEC) && words.len() > 1 {
            words.splice(..1, [c"sh".as_ptr(), path.as_ptr()]);
            libc::execve(c"/bin/sh".as_ptr(), words.as_ptr(), environ);
        }
        error
    }
}

/// The name that this process was started under.
pub(super) fn own_name(line: &CommandLine) -> String {
    // SAFETY: the array of arguments ends with a null pointer, and each argument with NUL.
    unsafe {
        match (*line.0).is_null() {
            true => String::new(),
            false => CStr::from_ptr(*line.0).to_string_lossy().into_owned(),
        }
    }
}

/// Borrows an open descriptor by its number. No code of this process closes a descriptor
/// that it has not opened, before [`close_range`].
pub(super) fn borrow(fd: c_int) -> BorrowedFd<'static> {
    // SAFETY: the number comes from the kernel's list of open descriptors.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Closes the descriptors with these numbers, both ends included.
pub(super) fn close_range(first: c_int, last: c_int) {
    // SAFETY: takes integers. The caller keeps the descriptors that this process still uses.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}
