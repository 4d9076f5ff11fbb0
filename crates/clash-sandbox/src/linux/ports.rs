//! TCP ports between a room's own network and the host.
//!
//! A room without network has only its own loopback. For `localhost(ports = …)` the
//! launcher listens on each port inside. A process in the host's network takes the
//! connections, and connects to the same port of the host's loopback for each. For `serve`
//! it is the other way round: a process in the room's network, outside its sandbox, listens
//! on the host's loopback as soon as a server listens in the room (`served.rs`), and connects
//! to it. No other address or port can be reached, because no other way exists.
//!
//! A served port on which another room of the session has a server is reached like a port of
//! `localhost`, through that room's unix socket.
//!
//! The process carries at most [`MAX_CONNECTIONS`] at a time, fewer if it may open few
//! files. Further connections wait in the kernel's queue, so a room cannot use up the host.
//!
//! A connection inside succeeds before the process tries the one outside. If no server
//! listens there, the connection is reset, not refused.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clash_net::gate::serve_loopback_orders;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{Pid, Resource, WaitOptions, getrlimit, waitpid};

use super::gate::GateProcess;
use super::monitor::HandoverLine;
use super::network::GateDescriptors;
use super::served::{ServedSockets, ServerExchange, ServerWatch};
use super::sys::{self, ForkSide};
use crate::gate::GateService;
use crate::launch::error::LaunchError;
use crate::plan::room::{RoomPlan, SharedPorts};

/// The time to deliver the remaining data after a room has ended.
const MAX_DELIVERY_TIME: Duration = Duration::from_secs(2);
/// The number of connections that one process carries at a time.
const MAX_CONNECTIONS: usize = 256;
/// Descriptors that the process needs for other purposes.
const OTHER_DESCRIPTORS: u64 = 32;
/// The pause after a connection that cannot be taken now.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// A copying thread needs little more than its buffer.
const THREAD_STACK_BYTES: usize = 128 * 1024;

/// The processes on both sides.
#[derive(Debug)]
pub(crate) struct PortCrossing {
    /// The process in the host's network, for ports that the room reaches.
    outside: Option<PortForwarder>,
    /// The process in the room's network, for ports that the room serves.
    inside: Option<PortForwarder>,
    served: Option<ServedSockets>,
    /// Served ports on which another room of the session has a server.
    of_session: Vec<u16>,
    /// The process that judges connections to other hosts.
    gate: Option<GateProcess>,
    /// The monitor's end of the line on which it orders sockets.
    line: Option<HandoverLine>,
}

impl PortCrossing {
    /// Makes sockets for the served ports, and starts the processes that the room's network
    /// needs: a forwarder for reached ports, the gate for host rules. Call this in the host's
    /// network, which the processes keep. `servers` is the directory in which the rooms of the
    /// session find each other's servers.
    pub(crate) fn start(
        room: &RoomPlan,
        service: Option<&dyn GateService>,
        servers: Option<&Path>,
    ) -> Result<Self, LaunchError> {
        let ports = &room.ports;
        // Without the directory, rooms do not reach each other; the command runs.
        let exchange = || servers.and_then(|path| ServerExchange::open(path).ok());
        let exchange = if ports.served.is_empty() { None } else { exchange() };
        let is_other = |port: &u16| !ports.reached.contains(port);
        let mut of_session = exchange.as_ref().map(|it| it.live(&ports.served)).unwrap_or_default();
        of_session.retain(is_other);
        let mut own = ports.served.clone();
        own.retain(|port| is_other(port) && !of_session.contains(port));
        let (line, orders) = HandoverLine::new(room).unzip();
        let (mut for_forwarder, mut for_gate) = (None, None);
        match &ports.gate {
            Some(_) => for_gate = orders,
            None => for_forwarder = orders.map(|line| (line, ports.reached.clone())),
        }
        let reaches = !ports.reached.is_empty() || !of_session.is_empty();
        let run = |control: &OwnedFd| forward(control, exchange.as_ref(), for_forwarder);
        let outside = reaches.then(|| PortForwarder::start(run)).transpose()?;
        let served = (!own.is_empty()).then(|| ServedSockets::make(&own, exchange));
        let served = served.transpose().map_err(|source| LaunchError::ServedPort { source })?;
        let gate = ports.gate.as_ref().map(|net| GateProcess::start(net, service, for_gate));
        Ok(Self { outside, inside: None, served, of_session, gate: gate.transpose()?, line })
    }

    /// The line for the monitor; `None` if programs get no sockets, or at the second call.
    pub(crate) fn take_line(&mut self) -> Option<HandoverLine> {
        self.line.take()
    }

    /// Call this in the room's network.
    pub(crate) fn listen(&self, ports: &SharedPorts) -> Result<(), LaunchError> {
        let Some(outside) = &self.outside else { return Ok(()) };
        let host = ports.reached.iter().map(|port| (port, PortTarget::Loopback));
        let session = self.of_session.iter().map(|port| (port, PortTarget::Session));
        for (port, target) in host.chain(session) {
            let failed = |source| LaunchError::ReachedPort { port: *port, source };
            for listener in listen(*port).map_err(failed)? {
                send(&outside.control, *port, target, &listener).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Gives the sockets of the gate's namespace to the gate.
    pub(crate) fn open_gate(&self, sockets: &GateDescriptors) -> Result<(), LaunchError> {
        self.gate.as_ref().map_or(Ok(()), |gate| gate.give(sockets))
    }

    /// Takes connections to served ports. Call this in the room's network, when process 1
    /// exists.
    pub(crate) fn serve(&mut self) -> Result<(), LaunchError> {
        if let Some(sockets) = self.served.take() {
            let mut given = Some(sockets);
            let run = |control: &OwnedFd| given.take().map_or(Ok(()), |it| serve(control, it));
            self.inside = Some(PortForwarder::start(run)?);
        }
        Ok(())
    }

    /// True if a process in the room's network serves ports.
    pub(crate) fn is_inside(&self) -> bool {
        self.inside.is_some()
    }

    /// The numbers of the forwarding processes.
    pub(crate) fn processes(&self) -> impl Iterator<Item = libc::pid_t> {
        let both = [&self.outside, &self.inside].into_iter().flatten();
        let all = both.map(|forwarder| forwarder.pid).chain(self.gate.iter().map(GateProcess::pid));
        all.map(|pid| pid.as_raw_nonzero().get())
    }

    /// Tells the gate and the process in the room that a keeper takes the launcher's place.
    pub(crate) fn keep(&self, first: libc::pid_t) {
        if let Some(inside) = &self.inside {
            let _ = rustix::net::send(&inside.control, KEEPER_TAKES_OVER, SendFlags::NOSIGNAL);
        }
        if let Some(gate) = &self.gate {
            gate.keep(first);
        }
    }

    /// Delivers the last data of the room's servers, before the room ends.
    pub(crate) fn end_inside(&mut self) {
        self.inside = None;
    }
}

/// A process that takes connections and forwards them. Dropping it waits for its end.
#[derive(Debug)]
struct PortForwarder {
    pid: Pid,
    /// Carries new listeners. Closing it ends the process.
    control: OwnedFd,
}

impl PortForwarder {
    /// Forks a process that runs `job` with its end of the control socket. It ends with the
    /// launcher. It blocks signals of the terminal.
    fn start(job: impl FnOnce(&OwnedFd) -> io::Result<()>) -> Result<Self, LaunchError> {
        let failed = |error: io::Error| LaunchError::Forwarder(error);
        let (control, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|error| failed(error.into()))?;
        // Signals of the terminal to this process group must never reach the new process.
        let mask = sys::hold_signals().map_err(failed)?;
        match sys::fork().map_err(failed)? {
            ForkSide::Parent(pid) => {
                sys::set_mask(&mask).map_err(failed)?;
                let pid = Pid::from_raw(pid).ok_or_else(|| failed(Errno::SRCH.into()))?;
                Ok(Self { pid, control })
            }
            ForkSide::Child => {
                drop(control);
                let _ = job(&theirs);
                sys::exit_now(0)
            }
        }
    }
}

impl Drop for PortForwarder {
    fn drop(&mut self) {
        let _ = rustix::net::send(&self.control, ORDERLY_END, SendFlags::NOSIGNAL);
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
        while matches!(waitpid(Some(self.pid), WaitOptions::empty()), Err(Errno::INTR)) {}
    }
}

const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Listens on the IPv4 and IPv6 loopback. Some machines have no IPv6.
fn listen(port: u16) -> io::Result<Vec<TcpListener>> {
    let [first, second] = LOOPBACK.map(|address| TcpListener::bind(SocketAddr::new(address, port)));
    Ok([Some(first?), second.ok()].into_iter().flatten().collect())
}

/// Connects to a port of the loopback, IPv4 first, then IPv6.
fn connect(port: u16) -> io::Result<TcpStream> {
    let [first, second] = LOOPBACK.map(|address| SocketAddr::new(address, port));
    TcpStream::connect(first).or_else(|error| TcpStream::connect(second).map_err(|_| error))
}

/// The other end of a port.
#[derive(Clone, Copy, Debug)]
enum PortTarget {
    /// The same port of the own loopback.
    Loopback,
    /// The unix socket of the session with this number, in the working directory.
    Session,
}

/// Takes connections of listeners that arrive, until the launcher closes `control`. Then
/// delivers those that wait, within [`MAX_DELIVERY_TIME`].
fn forward(
    control: &OwnedFd,
    exchange: Option<&ServerExchange>,
    orders: Option<(OwnedFd, Vec<u16>)>,
) -> io::Result<()> {
    let of_orders = orders.iter().map(|(line, _)| line.as_raw_fd());
    let held = exchange.map(ServerExchange::descriptor).into_iter().chain(of_orders);
    hold_only(held.collect::<Vec<RawFd>>().into_iter(), control, true)?;
    if let Some((line, ports)) = orders {
        thread().spawn(move || serve_loopback_orders(&line, &ports))?;
    }
    if let Some(exchange) = exchange {
        let _ = exchange.enter();
    }
    let mut doors = TakenPorts::new();
    loop {
        match receive(control)? {
            ForwarderMessage::Listener(port, target, listener) => {
                doors.start(port, target, listener)?;
            }
            ForwarderMessage::Keep => {}
            ForwarderMessage::End { is_orderly } => {
                if is_orderly {
                    doors.deliver();
                }
                return Ok(());
            }
        }
    }
}

/// Publishes the servers of the room while it exists, and takes connections for them.
fn serve(control: &OwnedFd, sockets: ServedSockets) -> io::Result<()> {
    // It holds a directory of the host. Processes of the room do not find it in /proc, because
    // the launcher has made itself undumpable.
    hold_only(sockets.descriptors(), control, false)?;
    let mut watch = ServerWatch::new(sockets);
    let mut doors = TakenPorts::new();
    loop {
        let pause = watch.pause();
        let pause = rustix::thread::Timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos().into() };
        let mut waiting = [PollFd::new(control, PollFlags::IN)];
        if poll(&mut waiting, Some(&pause)).is_ok_and(|ready| ready > 0) {
            match receive(control)? {
                ForwarderMessage::Listener(..) => {}
                // The caller of the launcher may wait for the end of its output.
                ForwarderMessage::Keep => leave_stdio(true)?,
                ForwarderMessage::End { is_orderly } => {
                    watch.end();
                    if is_orderly {
                        doors.deliver();
                    }
                    return Ok(());
                }
            }
        }
        for (port, listener) in watch.look() {
            doors.start(port, PortTarget::Loopback, listener)?;
        }
    }
}

/// Closes every descriptor but these. The process ends with the socket, and not with its
/// parent: a keeper may take over the socket.
fn hold_only(
    held: impl Iterator<Item = RawFd>,
    control: &OwnedFd,
    with_errors: bool,
) -> io::Result<()> {
    leave_stdio(with_errors)?;
    let mut kept: Vec<RawFd> = held.chain([0, 1, 2, control.as_raw_fd()]).collect();
    sys::close_all_but_these(&mut kept);
    Ok(())
}

/// Lets go of the caller's stdin and stdout, and of standard error on request. The caller of
/// the launcher may wait for the end of its output.
fn leave_stdio(with_errors: bool) -> io::Result<()> {
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    if with_errors {
        rustix::stdio::dup2_stderr(&null)?;
    }
    Ok(())
}

/// The listeners of this process, each with a thread.
struct TakenPorts {
    taken: Arc<TakenConnections>,
    all: Vec<(u16, PortTarget, OwnedFd)>,
}

impl TakenPorts {
    fn new() -> Self {
        Self { taken: Arc::new(TakenConnections::new()), all: Vec::new() }
    }

    fn start(&mut self, port: u16, target: PortTarget, listener: OwnedFd) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&listener, true)?;
        let (again, taken) = (listener.try_clone()?, self.taken.clone());
        self.all.push((port, target, listener));
        thread().spawn(move || take(&again, port, target, &taken)).map(drop)
    }

    /// Takes the last connections, which may still be in the queue, and delivers their data.
    fn deliver(&self) {
        for (port, target, listener) in &self.all {
            while self.taken.next(listener, *port, *target).is_ok() {}
        }
        let end = Instant::now() + MAX_DELIVERY_TIME;
        while self.taken.active.load(Ordering::Acquire) > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The connections that this process carries.
#[derive(Debug)]
struct TakenConnections {
    active: AtomicUsize,
    most: usize,
    /// Locked while a connection is taken, so that every taken connection is counted.
    taking: Mutex<()>,
}

impl TakenConnections {
    fn new() -> Self {
        let files = getrlimit(Resource::Nofile).current;
        // Each connection needs two descriptors.
        let bearable = files
            .map_or(MAX_CONNECTIONS as u64, |files| files.saturating_sub(OTHER_DESCRIPTORS) / 2);
        let most = usize::try_from(bearable).unwrap_or(MAX_CONNECTIONS).clamp(1, MAX_CONNECTIONS);
        Self { active: AtomicUsize::new(0), most, taking: Mutex::new(()) }
    }

    /// Takes a waiting connection, if there is capacity, and connects it to the target.
    fn next(self: &Arc<Self>, listener: &OwnedFd, port: u16, target: PortTarget) -> io::Result<()> {
        let guard = self.taking.lock();
        if self.active.load(Ordering::Acquire) >= self.most {
            return Err(Errno::MFILE.into());
        }
        // Also for unix sockets, whose addresses the standard library would not understand.
        let stream = rustix::net::accept_with(listener, SocketFlags::CLOEXEC)?;
        let stream = TcpStream::from(stream);
        self.active.fetch_add(1, Ordering::AcqRel);
        drop(guard);
        let all = self.clone();
        let join = move || {
            let _ = join(stream, port, target);
            all.active.fetch_sub(1, Ordering::AcqRel);
        };
        if thread().spawn(join).is_err() {
            self.active.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(())
    }
}

fn thread() -> std::thread::Builder {
    std::thread::Builder::new().stack_size(THREAD_STACK_BYTES)
}

/// Takes connections of one listener for ever. Pauses after an error.
fn take(listener: &OwnedFd, port: u16, target: PortTarget, taken: &Arc<TakenConnections>) {
    loop {
        let mut waiting = [PollFd::new(listener, PollFlags::IN)];
        let polled = poll(&mut waiting, None).is_ok();
        match taken.next(listener, port, target) {
            // The client has closed the connection meanwhile.
            Err(error) if polled && error.kind() == io::ErrorKind::WouldBlock => {}
            // No capacity is left, here or in the kernel. An immediate retry would only
            // waste CPU time.
            Err(_) => std::thread::sleep(RETRY_PAUSE),
            Ok(()) => {}
        }
    }
}

/// Connects to the target and copies both ways until both sides have closed. Resets the taken
/// connection if no server listens there.
fn join(taken: TcpStream, port: u16, target: PortTarget) -> io::Result<()> {
    let made = match target {
        PortTarget::Loopback => connect(port),
        // Only reads, writes and shutdowns follow, which unix sockets have too.
        PortTarget::Session => {
            UnixStream::connect(port.to_string()).map(|made| TcpStream::from(OwnedFd::from(made)))
        }
    };
    let made = match made {
        Ok(made) => made,
        // Resets the connection: no server listens there.
        Err(_) => {
            return Ok(rustix::net::sockopt::set_socket_linger(&taken, Some(Duration::ZERO))?);
        }
    };
    for stream in [&taken, &made] {
        // Unix sockets have no such option.
        let _ = stream.set_nodelay(true);
    }
    std::thread::scope(|both| {
        let back = thread().spawn_scoped(both, || copy(&made, &taken))?;
        copy(&taken, &made);
        let _ = back.join();
        Ok(())
    })
}

/// Copies until one side closes, then closes the other.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

/// Sends a port, its target and its listener to the forwarding process.
fn send(
    control: &OwnedFd,
    port: u16,
    target: PortTarget,
    listener: &TcpListener,
) -> io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    let fds = [std::os::fd::AsFd::as_fd(listener)];
    with.push(SendAncillaryMessage::ScmRights(&fds));
    let [high, low] = port.to_be_bytes();
    let message = [high, low, u8::from(matches!(target, PortTarget::Session))];
    sendmsg(control, &[io::IoSlice::new(&message)], &mut with, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The message before the end of the room.
const ORDERLY_END: &[u8] = b"e";
/// The message when a keeper takes the launcher's place.
const KEEPER_TAKES_OVER: &[u8] = b"ke";

/// A message to a forwarder.
enum ForwarderMessage {
    Listener(u16, PortTarget, OwnedFd),
    Keep,
    End { is_orderly: bool },
}

/// Waits for one message of the launcher: a listener with its port, or the end. An end
/// without a word is the launcher's death.
fn receive(control: &OwnedFd) -> io::Result<ForwarderMessage> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let mut text = [0_u8; 3];
    let mut parts = [io::IoSliceMut::new(&mut text)];
    let length = loop {
        match recvmsg(control, &mut parts, &mut with, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) => break message.bytes,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let listener = with.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(match (length, listener) {
        (3, Some(listener)) => {
            let [high, low, session] = text;
            let target = if session == 1 { PortTarget::Session } else { PortTarget::Loopback };
            ForwarderMessage::Listener(u16::from_be_bytes([high, low]), target, listener)
        }
        (length, _) if length == KEEPER_TAKES_OVER.len() => ForwarderMessage::Keep,
        (length, _) => ForwarderMessage::End { is_orderly: length == ORDERLY_END.len() },
    })
}
