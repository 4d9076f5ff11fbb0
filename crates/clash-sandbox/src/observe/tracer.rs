//! The observer. A seccomp filter hands the listed calls to this process, which reads their
//! arguments and lets the kernel carry them out.
//!
//! The command's process installs the filter itself and sends the number of the listener
//! through a pipe. The observer takes a copy of the listener. If the command cannot be
//! started, the same pipe carries the reason. The end of the pipe means that the command
//! has started.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use clash_policy::FileCaps;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, WaitOptions, pidfd_getfd, pidfd_open, waitpid,
};

use super::dns;
use super::{ObserveError, Observed, ObservedEnd};
use crate::launch::{self, LaunchCommand, LaunchError};
use crate::linux::bpf::{BpfAssembler, BpfError, BpfInstruction, BpfTest, JumpTarget};
use crate::linux::sys::{self, ForkSide, SeccompNotice};
use crate::linux::target::ExecTarget;
use crate::plan::SandboxPlan;

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e; // AUDIT_ARCH_X86_64
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7; // AUDIT_ARCH_AARCH64

const RET_ALLOW: u32 = 0x7fff_0000;
const RET_USER_NOTIF: u32 = 0x7fc0_0000;

/// The arguments in which a call names its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "elsewhere there are only the newer calls")
)]
enum CallSubject {
    /// The path is argument 0, the flags are argument 1.
    Open,
    OpenAt,
    OpenAt2,
    Create,
    /// A path in the argument with this index. If `at`, the argument before it is the
    /// directory.
    Path {
        argument: usize,
        at: bool,
        caps: FileCaps,
    },
    /// Two paths, the old and the new one.
    Rename {
        at: bool,
    },
    Connect,
    Bind,
    SendTo,
    SendMessage,
    SendMessages,
}

const RX: FileCaps = FileCaps::READ.union(FileCaps::EXECUTE);

const fn path(argument: usize, caps: FileCaps) -> CallSubject {
    CallSubject::Path { argument, at: false, caps }
}

const fn path_at(argument: usize, caps: FileCaps) -> CallSubject {
    CallSubject::Path { argument, at: true, caps }
}

/// The observed calls. The kernel carries out all others at once.
const CALLS: &[(libc::c_long, CallSubject)] = &[
    (libc::SYS_openat, CallSubject::OpenAt),
    (libc::SYS_openat2, CallSubject::OpenAt2),
    (libc::SYS_execve, path(0, RX)),
    (libc::SYS_execveat, path_at(1, RX)),
    (libc::SYS_unlinkat, path_at(1, FileCaps::DELETE)),
    (libc::SYS_renameat2, CallSubject::Rename { at: true }),
    (libc::SYS_renameat, CallSubject::Rename { at: true }),
    (libc::SYS_mkdirat, path_at(1, FileCaps::CREATE)),
    (libc::SYS_mknodat, path_at(1, FileCaps::CREATE)),
    (libc::SYS_symlinkat, path_at(2, FileCaps::CREATE)),
    (libc::SYS_linkat, path_at(3, FileCaps::CREATE)),
    (libc::SYS_truncate, path(0, FileCaps::WRITE)),
    (libc::SYS_connect, CallSubject::Connect),
    (libc::SYS_bind, CallSubject::Bind),
    (libc::SYS_sendto, CallSubject::SendTo),
    (libc::SYS_sendmsg, CallSubject::SendMessage),
    (libc::SYS_sendmmsg, CallSubject::SendMessages),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, CallSubject::Open),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, CallSubject::Create),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, path(0, FileCaps::DELETE)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rmdir, path(0, FileCaps::DELETE)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, CallSubject::Rename { at: false }),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, path(0, FileCaps::CREATE)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_symlink, path(1, FileCaps::CREATE)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_link, path(1, FileCaps::CREATE)),
];

/// A filter that hands the calls of the list to the listener and allows all others, also
/// those of a foreign architecture.
fn make_filter() -> Result<Vec<BpfInstruction>, BpfError> {
    let mut code = BpfAssembler::default();
    let (ask, go) = (code.label(), code.label());
    code.load(4);
    code.jump(BpfTest::Equal(ARCH), JumpTarget::Next, JumpTarget::Label(go));
    code.load(0);
    for (call, _) in CALLS {
        let number = u32::try_from(*call).unwrap_or(u32::MAX);
        code.jump(BpfTest::Equal(number), JumpTarget::Label(ask), JumpTarget::Next);
    }
    code.place(go);
    code.ret(RET_ALLOW);
    code.place(ask);
    code.ret(RET_USER_NOTIF);
    code.finish()
}

/// Starts the command in a child and observes it to its end. Its own calls before the command
/// starts are not reported.
pub(crate) fn run(
    plan: Option<&SandboxPlan>,
    command: &LaunchCommand,
    each: &mut dyn FnMut(Observed),
) -> Result<ObservedEnd, ObserveError> {
    // Work that allocates, or that can find an error in the request, comes first.
    let target = ExecTarget::new(command)?;
    let filter = make_filter().map_err(LaunchError::FilterAssembly)?;
    let pipe = || {
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|error| ObserveError::Process(error.into()))
    };
    let ((said, say), (ready, go)) = (pipe()?, pipe()?);
    match sys::fork().map_err(ObserveError::Process)? {
        ForkSide::Child => {
            drop((said, go));
            be_observed(plan, command, &target, &filter, say, ready)
        }
        ForkSide::Parent(child) => {
            drop((say, ready));
            let launcher = plan.and_then(|plan| plan.room.as_ref()).map(|_| child);
            observe_child(child, launcher, File::from(said), File::from(go), each)
        }
    }
}

/// Becomes the command, in the child: installs the filter, waits until the observer has the
/// listener, and executes. On failure writes the reason into the pipe and exits with 125, 126
/// (not executable) or 127 (not found).
fn be_observed(
    plan: Option<&SandboxPlan>,
    command: &LaunchCommand,
    target: &ExecTarget,
    filter: &[BpfInstruction],
    say: OwnedFd,
    ready: OwnedFd,
) -> ! {
    let mut say = File::from(say);
    let listener = rustix::thread::set_no_new_privs(true)
        .map_err(io::Error::from)
        .and_then(|()| sys::install_filter(filter, LISTENER));
    let number = match &listener {
        Ok(number) => i32::try_from(*number).unwrap_or(-1),
        Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
    };
    let told = say.write_all(&number.to_ne_bytes());
    let mut byte = [0];
    if number < 0 || told.is_err() || File::from(ready).read_exact(&mut byte).is_err() {
        sys::exit_now(125);
    }
    let error = match plan {
        Some(plan) => launch::run(plan, command, launch::LaunchHelper::default()),
        None => match sys::default_sigpipe() {
            Ok(()) => target.execute(),
            Err(error) => LaunchError::SignalReset(error),
        },
    };
    let status = match &error {
        LaunchError::NotFound { .. } => 127,
        LaunchError::NotExecutable { .. } => 126,
        _ => 125,
    };
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    let _ = say.write_all(text.as_bytes());
    sys::exit_now(status)
}

const LISTENER: u64 = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;

/// The observer's side: takes a copy of the listener from the child, lets it start, and
/// observes until it ends. Ignores Ctrl-C and Ctrl-\ meanwhile: they are for the command.
fn observe_child(
    child: libc::pid_t,
    launcher: Option<libc::pid_t>,
    mut said: File,
    mut go: File,
    each: &mut dyn FnMut(Observed),
) -> Result<ObservedEnd, ObserveError> {
    let pid = Pid::from_raw(child)
        .ok_or_else(|| ObserveError::Process(io::ErrorKind::NotFound.into()))?;
    let pidfd =
        pidfd_open(pid, PidfdFlags::empty()).map_err(|e| ObserveError::Process(e.into()))?;
    let mut number = [0; 4];
    said.read_exact(&mut number).map_err(ObserveError::Process)?;
    let number = i32::from_ne_bytes(number);
    if number < 0 {
        let _ = waitpid(Some(pid), WaitOptions::empty());
        return Err(ObserveError::Listener(io::Error::from_raw_os_error(-number)));
    }
    let listener = pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty())
        .map_err(|error| ObserveError::Listener(error.into()))?;
    sys::ignore(libc::SIGINT);
    sys::ignore(libc::SIGQUIT);
    go.write_all(&[0]).map_err(ObserveError::Process)?;
    drop(go);
    let mut observer =
        CommandObserver { listener, launcher, started: false, known: HashSet::new(), each };
    let end = observer.observe_until_end(pid, &pidfd)?;
    let mut message = String::new();
    // The process at the other end has become the command, or has ended.
    let _ = said.read_to_string(&mut message);
    match end {
        ObservedEnd::Exit(status) if !message.is_empty() => {
            Err(ObserveError::NotStarted { message, status })
        }
        end => {
            leave_answering_process(observer.listener);
            Ok(end)
        }
    }
}

/// Leaves a process that answers the calls of processes that still run. Otherwise these
/// calls would fail when the listener closes.
fn leave_answering_process(listener: OwnedFd) {
    let mut look = [PollFd::new(&listener, PollFlags::IN)];
    let idle = matches!(poll(&mut look, Some(&NO_TIME)), Ok(1..))
        && look.iter().all(|fd| fd.revents().contains(PollFlags::HUP));
    if idle {
        return;
    }
    if let Ok(ForkSide::Child) = sys::fork() {
        sys::close_all_but(listener.as_raw_fd());
        while wait_for_call(&listener, None).is_ok_and(|waits| waits) {
            let Ok(found) = next_call(&listener) else { break };
            if found.is_some_and(|found| sys::let_go_on(listener.as_raw_fd(), found.id).is_err()) {
                break;
            }
        }
        sys::exit_now(0);
    }
}

const NO_TIME: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };

/// Waits for a call. Returns false if no process with the filter is left, or the command has
/// ended.
fn wait_for_call(listener: &OwnedFd, command: Option<&OwnedFd>) -> io::Result<bool> {
    loop {
        let mut look = vec![PollFd::new(listener, PollFlags::IN)];
        look.extend(command.map(|pidfd| PollFd::new(pidfd, PollFlags::IN)));
        match poll(&mut look, None) {
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        let came = |at: usize| look.get(at).map_or(PollFlags::empty(), PollFd::revents);
        if came(0).contains(PollFlags::IN) {
            return Ok(true);
        }
        if came(0).intersects(PollFlags::HUP | PollFlags::ERR) || !came(1).is_empty() {
            return Ok(false);
        }
    }
}

struct CommandObserver<'a> {
    listener: OwnedFd,
    /// The launcher process of the room, which is no part of the command.
    launcher: Option<libc::pid_t>,
    /// True after the set-up, when a process has become the command.
    started: bool,
    known: HashSet<Observed>,
    each: &'a mut dyn FnMut(Observed),
}

/// The next waiting call; `None` if its caller has ended or a signal came instead.
fn next_call(listener: &OwnedFd) -> Result<Option<SeccompNotice>, Errno> {
    match sys::next_notice(listener) {
        Ok(notice) => Ok(Some(notice)),
        Err(Errno::NOENT | Errno::INTR) => Ok(None),
        Err(error) => Err(error),
    }
}

impl CommandObserver<'_> {
    /// Looks at every call and lets it go on, until the child ends. Then returns its exit
    /// status or signal.
    fn observe_until_end(
        &mut self,
        pid: Pid,
        pidfd: &OwnedFd,
    ) -> Result<ObservedEnd, ObserveError> {
        while wait_for_call(&self.listener, Some(pidfd)).map_err(ObserveError::Lost)? {
            let lost = |error: Errno| ObserveError::Lost(error.into());
            let Some(call) = next_call(&self.listener).map_err(lost)? else { continue };
            // A call whose arguments cannot be read continues like any other.
            let _ = self.report_call(&call);
            sys::let_go_on(self.listener.as_raw_fd(), call.id).map_err(lost)?;
        }
        loop {
            match waitpid(Some(pid), WaitOptions::empty()) {
                Ok(Some((_, status))) => {
                    let exit = status.exit_status().map(ObservedEnd::Exit);
                    let end = exit.or_else(|| status.terminating_signal().map(ObservedEnd::Signal));
                    if let Some(end) = end {
                        return Ok(end);
                    }
                }
                Ok(None) | Err(Errno::INTR) => {}
                Err(error) => return Err(ObserveError::Lost(error.into())),
            }
        }
    }

    /// Reports an observation unless it was reported before.
    fn report_once(&mut self, observed: Observed) {
        if self.known.insert(observed.clone()) {
            (self.each)(observed);
        }
    }

    /// Reports the objects of one call. Leaves out calls before the first `execve`, those of
    /// the room's launcher, connections to port 53 (a query names the host) and port 0. Fails
    /// if the caller's memory cannot be read.
    fn report_call(&mut self, call: &SeccompNotice) -> io::Result<()> {
        let Some((_, what)) = CALLS.iter().find(|(number, _)| *number == call.number) else {
            return Ok(());
        };
        let caller = ObservedCaller { thread: call.pid.cast_unsigned() };
        let [first, second, third, fourth, ..] = call.args;
        if !self.started {
            self.started = matches!(call.number, libc::SYS_execve | libc::SYS_execveat);
        }
        if !self.started || self.launcher == Some(call.pid) {
            return Ok(());
        }
        match *what {
            CallSubject::Open => self.report_open(caller.path(None, first)?, second),
            CallSubject::OpenAt => self.report_open(caller.path(Some(first), second)?, third),
            CallSubject::OpenAt2 => {
                let flags = dns::number(&caller.memory(third, 8)?, 0).unwrap_or(0);
                self.report_open(caller.path(Some(first), second)?, flags);
            }
            CallSubject::Create => self.report_open(caller.path(None, first)?, CREATE),
            CallSubject::Path { argument, at, caps } => {
                let directory = call.args.get(argument.wrapping_sub(1)).copied().filter(|_| at);
                let text = call.args.get(argument).copied().unwrap_or(0);
                self.report_file(caller.path(directory, text)?, caps);
            }
            CallSubject::Rename { at } => {
                let (from, to) = if at {
                    (caller.path(Some(first), second)?, caller.path(Some(third), fourth)?)
                } else {
                    (caller.path(None, first)?, caller.path(None, second)?)
                };
                self.report_file(from, FileCaps::DELETE);
                self.report_file(to, FileCaps::CREATE);
            }
            CallSubject::Connect => {
                match dns::parse_socket_address(&caller.memory(second, bounded_length(third))?) {
                    Some(dns::SocketTarget::Internet(address))
                        if !matches!(address.port(), 0 | 53) =>
                    {
                        self.report_once(Observed::Address(address));
                    }
                    Some(dns::SocketTarget::Unix(path)) => {
                        self.report_once(Observed::UnixSocket(path))
                    }
                    _ => {}
                }
            }
            CallSubject::Bind => {
                if let Some(dns::SocketTarget::Internet(address)) =
                    dns::parse_socket_address(&caller.memory(second, bounded_length(third))?)
                    && address.port() != 0
                {
                    self.report_once(Observed::Port(address.port()));
                }
            }
            CallSubject::SendTo => {
                self.report_query(&caller.memory(second, bounded_length(third))?)
            }
            CallSubject::SendMessage => self.report_message(&caller, second)?,
            CallSubject::SendMessages => {
                // A resolver asks for IPv4 and IPv6 addresses at once.
                for at in 0..third.min(4) {
                    self.report_message(&caller, second.wrapping_add(at.wrapping_mul(64)))?;
                }
            }
        }
        Ok(())
    }

    /// Reports the DNS name in the first buffer of a `msghdr`.
    fn report_message(&mut self, caller: &ObservedCaller, header: u64) -> io::Result<()> {
        let header = caller.memory(header, 32)?;
        let (Some(vector), Some(1..)) = (dns::number(&header, 16), dns::number(&header, 24)) else {
            return Ok(());
        };
        let vector = caller.memory(vector, 16)?;
        if let (Some(start), Some(size)) = (dns::number(&vector, 0), dns::number(&vector, 8)) {
            self.report_query(&caller.memory(start, bounded_length(size))?);
        }
        Ok(())
    }

    /// Reports the name if the bytes are a DNS query.
    fn report_query(&mut self, bytes: &[u8]) {
        if let Some(name) = dns::parse_dns_query(bytes) {
            self.report_once(Observed::Name(name));
        }
    }

    /// Reports an open with the rights that its flags need. `O_PATH` needs none and is left
    /// out.
    fn report_open(&mut self, path: PathBuf, flags: u64) {
        let flags = libc::c_int::try_from(flags & 0x7fff_ffff).unwrap_or(0);
        if flags & libc::O_PATH != 0 {
            return;
        }
        let mut caps = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => FileCaps::READ,
            libc::O_WRONLY => FileCaps::WRITE,
            _ => FileCaps::READ.union(FileCaps::WRITE),
        };
        if flags & libc::O_TRUNC != 0 {
            caps = caps.union(FileCaps::WRITE);
        }
        if flags & libc::O_CREAT != 0 && !path.exists()
            || flags & libc::O_TMPFILE == libc::O_TMPFILE
        {
            caps = caps.union(FileCaps::CREATE);
        }
        self.report_file(path, caps);
    }

    /// Reports a file by its real path if it exists, or if the call makes it. A call that
    /// makes or removes a name is about the name itself, not about the target of a link.
    fn report_file(&mut self, path: PathBuf, caps: FileCaps) {
        let makes = caps.contains(FileCaps::CREATE);
        let real = match (path.canonicalize(), path.parent(), path.file_name()) {
            (Ok(real), ..) if !caps.intersects(FileCaps::CREATE.union(FileCaps::DELETE)) => {
                Some(real)
            }
            (_, Some(dir), Some(name)) if makes || fs::symlink_metadata(&path).is_ok() => {
                dir.canonicalize().ok().map(|dir| dir.join(name))
            }
            _ => None,
        };
        if let Some(path) = real {
            self.report_once(Observed::File { path, caps });
        }
    }
}

const CREATE: u64 = (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC) as u64;

/// Cuts a length at 1024 bytes: no argument of interest is longer.
fn bounded_length(asked: u64) -> usize {
    usize::try_from(asked).unwrap_or(usize::MAX).min(1024)
}

/// The waiting thread, as `/proc` shows it.
struct ObservedCaller {
    thread: u32,
}

impl ObservedCaller {
    fn entry(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.thread))
    }

    /// At most this number of bytes of its memory; fewer if the mapping ends.
    fn memory(&self, at: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let read = File::open(self.entry("mem"))?.read_at(&mut bytes, at)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// The absolute path of a text in memory, below a directory argument or the working
    /// directory. An empty text means the directory itself. Fails if the text has no end
    /// within `PATH_MAX`.
    fn path(&self, directory: Option<u64>, text: u64) -> io::Result<PathBuf> {
        let bytes = self.memory(text, libc::PATH_MAX as usize)?;
        let end = bytes.iter().position(|byte| *byte == 0).ok_or(io::ErrorKind::InvalidData)?;
        let text = dns::path(bytes.get(..end).unwrap_or_default());
        if text.is_absolute() {
            return Ok(text);
        }
        let at_cwd = |number: RawFd| number == libc::AT_FDCWD;
        // The upper half of the register does not belong to the number.
        let number = directory.map(|number| (number as u32).cast_signed());
        let base = match number.filter(|number| !at_cwd(*number)) {
            Some(number) => fs::read_link(self.entry(&format!("fd/{number}")))?,
            None => fs::read_link(self.entry("cwd"))?,
        };
        Ok(if text == Path::new("") { base } else { base.join(text) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::bpf::interpret;

    #[test]
    fn only_calls_of_the_list_wait() {
        let filter = make_filter().unwrap();
        let asked = |number: u32, arch: u32| {
            let mut data = [0; 16];
            (data[0], data[1]) = (number, arch);
            interpret(&filter, &data) == RET_USER_NOTIF
        };
        for (call, _) in CALLS {
            assert!(asked(u32::try_from(*call).unwrap(), ARCH));
        }
        for call in [libc::SYS_read, libc::SYS_write, libc::SYS_exit_group, libc::SYS_ioctl] {
            assert!(!asked(u32::try_from(call).unwrap(), ARCH));
        }
        assert!(!asked(u32::try_from(libc::SYS_openat).unwrap(), 0x4000_0003));
    }
}
