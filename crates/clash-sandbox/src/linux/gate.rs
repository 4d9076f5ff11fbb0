//! The process of a room's gate: it waits for the sockets of the gate's namespace, and then
//! carries the room's connections until the launcher lets it go.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use clash_net::gate::{ControlEvent, GateQuestion, ProgramSource, RoomProgram};
use clash_net::{ConnectionRecord, Gate, GateHost, HostRules};
use clash_policy::NetworkAccess;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Resource, Rlimit, WaitOptions, getppid, getrlimit, setrlimit, waitpid};

use super::network::GateDescriptors;
use super::sys::{self, ForkSide};
use crate::gate::{GateService, Upstream};
use crate::launch::error::LaunchError;

const SOCKETS: [u8; 2] = *b"gs";
/// The gate has delivered and recorded everything.
const DONE: &[u8] = b"d";

/// A letter and the number of a process.
const KEEPER_MESSAGE_BYTES: usize = 5;

/// The gate's process. Dropping it waits until the last data is delivered and recorded.
#[derive(Debug)]
pub(crate) struct GateProcess {
    pid: Pid,
    /// Carries the sockets. Closing it ends the process.
    control: OwnedFd,
}

impl GateProcess {
    /// Forks the gate's process, which waits for its sockets (see [`GateProcess::give`]).
    /// Call this in the host's network, which the process keeps. The process blocks signals
    /// of the terminal.
    pub(crate) fn start(
        net: &NetworkAccess,
        service: Option<&dyn GateService>,
        orders: Option<OwnedFd>,
    ) -> Result<Self, LaunchError> {
        let (control, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|error| LaunchError::Gate(error.into()))?;
        // Signals of the terminal to this process group must never reach the new process.
        let mask = sys::hold_signals().map_err(LaunchError::Gate)?;
        match sys::fork().map_err(LaunchError::Gate)? {
            ForkSide::Parent(pid) => {
                sys::set_mask(&mask).map_err(LaunchError::Gate)?;
                let pid =
                    Pid::from_raw(pid).ok_or_else(|| LaunchError::Gate(Errno::SRCH.into()))?;
                Ok(Self { pid, control })
            }
            ForkSide::Child => {
                drop(control);
                let _ = serve(&theirs, net, service, orders);
                sys::exit_now(0)
            }
        }
    }

    /// The process of the gate.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Tells the gate that a keeper takes the launcher's place, and from which process the
    /// room's processes descend.
    pub(crate) fn keep(&self, first: libc::pid_t) {
        let mut message = [b'k'; KEEPER_MESSAGE_BYTES];
        for (to, from) in message.iter_mut().skip(1).zip(first.to_le_bytes()) {
            *to = from;
        }
        let flags = rustix::net::SendFlags::NOSIGNAL;
        let _ = rustix::net::send(&self.control, &message, flags);
    }

    /// Sends the sockets of the gate's namespace to the process, which begins with them.
    pub(crate) fn give(&self, sockets: &GateDescriptors) -> Result<(), LaunchError> {
        sockets.send(self.control.as_fd(), SOCKETS).map_err(|e| LaunchError::Gate(e.into()))
    }
}

impl Drop for GateProcess {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Write);
        // The process itself ends later: closing a packet socket takes the kernel (6.18) as
        // long as a whole launch. The launcher ends first, so no zombie stays.
        let mut done = [0; 1];
        while matches!(recv(&self.control, &mut done[..], RecvFlags::empty()), Err(Errno::INTR)) {}
        let _ = waitpid(Some(self.pid), WaitOptions::NOHANG);
    }
}

/// The life of the gate's process. It gives up standard input, output and its working
/// directory, and takes as many descriptors as the hard limit permits. It waits for the
/// gate's sockets on `control`; without them it ends. Then it carries connections until the
/// launcher shuts `control` down, gives up standard error, and reports that everything is
/// delivered. Without a `service` it records and asks nothing, and dials directly.
fn serve(
    control: &OwnedFd,
    net: &NetworkAccess,
    service: Option<&dyn GateService>,
    orders: Option<OwnedFd>,
) -> io::Result<()> {
    // The caller of the launcher may wait for the end of its output, so this process must
    // not hold it. It keeps standard error for its refusals, and ends before the launcher.
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::process::chdir("/")?;
    let most = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
    let Some(sockets) = GateDescriptors::receive(control.as_fd(), SOCKETS) else { return Ok(()) };
    let Some(mut sockets) = sockets.into_sockets(Vec::new()) else { return Ok(()) };
    sockets.orders = orders;
    let upstream = service.map_or_else(Upstream::default, |service| service.upstream());
    let host = OutsideHost { control: control.as_fd(), service, launcher: getppid() };
    let mut gate = Gate::new(host, HostRules::new(net.clone()), upstream, sockets)?;
    let ended = gate.run(control);
    // The caller of the launcher may wait for the end of standard error.
    let _ = rustix::stdio::dup2_stderr(&null);
    let _ = rustix::net::send(control, DONE, rustix::net::SendFlags::NOSIGNAL);
    Ok(ended?)
}

/// The host's side of the gate.
struct OutsideHost<'a> {
    control: std::os::fd::BorrowedFd<'a>,
    service: Option<&'a dyn GateService>,
    /// The room's processes descend from it.
    launcher: Option<Pid>,
}

impl GateHost for OutsideHost<'_> {
    fn record(&mut self, record: &ConnectionRecord) {
        if let Some(service) = self.service {
            service.record(record);
        }
    }

    fn program(&mut self, source: ProgramSource) -> Option<RoomProgram> {
        find_program(self.launcher?, source)
    }

    /// Asks the user in a child process, while the gate goes on. The pipe returned gets `y`
    /// or `n`; it closes without a byte if the child fails. `None` if there is no user to
    /// ask.
    fn ask(&mut self, question: &GateQuestion) -> Option<OwnedFd> {
        let service = self.service.filter(|service| service.can_ask())?;
        let (answer, told) = pipe_with(PipeFlags::CLOEXEC).ok()?;
        // The gate goes on while the user thinks.
        match sys::fork().ok()? {
            ForkSide::Parent(_) => Some(answer),
            ForkSide::Child => {
                drop(answer);
                let word: &[u8] = if service.ask(question) { b"y" } else { b"n" };
                let _ = rustix::io::write(&told, word);
                sys::exit_now(0)
            }
        }
    }

    /// Reads one message of the launcher or keeper, and reaps children that asked the user.
    /// `End` if the launcher or the keeper has shut its side down.
    fn control(&mut self) -> ControlEvent {
        // Children that asked the user.
        while matches!(rustix::process::wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        let mut message = [0; 16];
        match recv(self.control, &mut message[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => ControlEvent::End,
            Ok((_, length)) if length == KEEPER_MESSAGE_BYTES => {
                let [_, first @ ..] = message.first_chunk().copied().unwrap_or([0; 5]);
                self.serve_keeper(Pid::from_raw(i32::from_le_bytes(first)));
                ControlEvent::Nothing
            }
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => ControlEvent::Nothing,
            Err(_) => ControlEvent::End,
        }
    }
}

impl OutsideHost<'_> {
    /// A keeper has taken the launcher's place. The caller of the launcher may wait for the
    /// end of its standard error.
    fn serve_keeper(&mut self, first: Option<Pid>) {
        use rustix::fs::{Mode, OFlags, open};
        self.launcher = first;
        if let Ok(null) = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
            let _ = rustix::stdio::dup2_stderr(&null);
        }
    }
}

/// Descendants that are searched for a socket.
const MAX_PROCESSES: usize = 512;

/// Finds the program that has a socket, among the descendants of the launcher.
fn find_program(launcher: Pid, source: ProgramSource) -> Option<RoomProgram> {
    let processes = descendants(launcher.as_raw_nonzero().get());
    let (table, at) = match source {
        ProgramSource::Process(pid) => return describe_program(pid),
        ProgramSource::Stream(at) => ("tcp", at),
        ProgramSource::Datagram(at) => ("udp", at),
    };
    // Every process of the room has the room's network.
    let inode = processes.iter().rev().find_map(|pid| {
        ["", "6"].iter().find_map(|version| {
            let text = fs::read_to_string(format!("/proc/{pid}/net/{table}{version}")).ok()?;
            socket_inode(&text, at)
        })
    })?;
    let socket = format!("socket:[{inode}]");
    let has_socket = |pid: &&i32| {
        let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        open.flatten().any(|fd| {
            fs::read_link(fd.path()).is_ok_and(|link| link.as_os_str() == socket.as_str())
        })
    };
    describe_program(*processes.iter().rev().find(has_socket)?)
}

/// The name and the first 64 arguments of a process, from /proc. `None` if it has ended.
fn describe_program(pid: i32) -> Option<RoomProgram> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<String> = line
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .filter(|word| !word.is_empty())
        .take(64)
        .collect();
    let name = words.first().map(Path::new).and_then(Path::file_name);
    let name = name.map(|name| name.to_string_lossy().into_owned());
    let short =
        || fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|text| text.trim().to_owned());
    Some(RoomProgram { name: name.or_else(short)?, words })
}

/// The processes that descend from `first`, read from /proc, without `first` itself. At most
/// `MAX_PROCESSES` are followed. A process that ends meanwhile is left out with its children.
fn descendants(first: i32) -> Vec<i32> {
    let (mut found, mut seen) = (vec![first], HashSet::from([first]));
    let mut at = 0;
    while let Some(pid) = found.get(at).copied().filter(|_| found.len() < MAX_PROCESSES) {
        at += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            let children = children.split_whitespace().filter_map(|word| word.parse::<i32>().ok());
            found.extend(children.filter(|child| seen.insert(*child)));
        }
    }
    found.remove(0);
    found
}

/// The inode of a socket with this local port, in the text of /proc/net/tcp and its like.
fn socket_inode(table: &str, at: SocketAddr) -> Option<u64> {
    let port = format!(":{:04X}", at.port());
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace();
        let local = words.nth(1)?;
        let inode = words.nth(7)?;
        let inode = inode.parse::<u64>().ok().filter(|inode| *inode > 0);
        inode.filter(|_| local.ends_with(&port))
    })
}
