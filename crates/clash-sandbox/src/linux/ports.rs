//! Ports across the wall of a room's own network.
//!
//! A room without network has a loopback of its own and nothing else. Where the
//! policy says `localhost(ports = …)`, each of these ports is listened on inside,
//! and a process that stayed in the host's network takes the connections and
//! makes one to the same port of the host's loopback for each. Where it says
//! `serve`, it is the other way round: the host's loopback is listened on, and a
//! process in the room's network, outside of its sandbox, connects. No other address
//! and no other port can be reached, because there is no way to anything else.
//!
//! Some hundred connections are carried at a time, fewer where the process may open
//! few files. More wait in the kernel's queue until one ends: what a room does with
//! its ports costs the host no more than that.
//!
//! A connection inside succeeds before the one outside is tried: a port on which
//! nobody listens is a connection that is reset, not one that is refused.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{Pid, Resource, Signal, WaitOptions, getrlimit, waitpid};

use super::sys::{self, Fork};
use crate::launch::LaunchError;
use crate::plan::room::Ports;

/// How long what was sent before a room ended may take to be delivered.
const PATIENCE: Duration = Duration::from_secs(2);
/// Connections that are carried at a time.
const MOST: usize = 256;
/// Descriptors that a process needs besides those of connections.
const BESIDES: u64 = 32;
/// How long to let be what cannot be taken now.
const PAUSE: Duration = Duration::from_millis(20);
/// A thread that copies needs little more than its buffer.
const STACK: usize = 128 * 1024;

/// Both ends of the ports.
#[derive(Debug)]
pub(crate) struct Crossing {
    /// In the host's network, for ports that are reached from inside.
    outside: Option<Forwarder>,
    /// In the room's network, for ports that are served.
    inside: Option<Forwarder>,
    served: Vec<TcpListener>,
}

impl Crossing {
    /// To be called in the host's network.
    pub(crate) fn start(ports: &Ports) -> Result<Self, LaunchError> {
        let mut served = Vec::new();
        for port in &ports.served {
            let listeners = listen(*port);
            served.extend(listeners.map_err(|source| LaunchError::Port { port: *port, source })?);
        }
        let outside = (!ports.reached.is_empty()).then(|| Forwarder::start(Vec::new()));
        Ok(Self { outside: outside.transpose()?, inside: None, served })
    }

    /// To be called in the room's network.
    pub(crate) fn listen(&self, ports: &Ports) -> Result<(), LaunchError> {
        let Some(outside) = &self.outside else { return Ok(()) };
        for port in &ports.reached {
            let failed = |source| LaunchError::Port { port: *port, source };
            for listener in listen(*port).map_err(failed)? {
                send(&outside.control, *port, &listener).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Takes connections to served ports. To be called in the room's network,
    /// when the room has its process 1.
    pub(crate) fn serve(&mut self) -> Result<(), LaunchError> {
        if !self.served.is_empty() {
            self.inside = Some(Forwarder::start(std::mem::take(&mut self.served))?);
        }
        Ok(())
    }

    /// Before the room is taken down: what its servers said last is delivered.
    pub(crate) fn end_inside(&mut self) {
        self.inside = None;
    }
}

/// A process that takes connections and makes others. Dropping it waits for it.
#[derive(Debug)]
struct Forwarder {
    pid: Pid,
    /// More listeners; closing it is the end.
    control: OwnedFd,
}

impl Forwarder {
    fn start(listeners: Vec<TcpListener>) -> Result<Self, LaunchError> {
        let failed = |error: io::Error| LaunchError::Forwarder(error);
        let (control, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|error| failed(error.into()))?;
        // What the terminal sends to our group is not for it, from the beginning.
        let mask = sys::hold_signals().map_err(failed)?;
        match sys::fork().map_err(failed)? {
            Fork::Parent(pid) => {
                sys::set_mask(&mask).map_err(failed)?;
                let pid = Pid::from_raw(pid).ok_or(LaunchError::Vanished)?;
                Ok(Self { pid, control })
            }
            Fork::Child => {
                drop(control);
                let _ = forward(&theirs, listeners);
                sys::exit_now(0)
            }
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
        while matches!(waitpid(Some(self.pid), WaitOptions::empty()), Err(Errno::INTR)) {}
    }
}

const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Listens on the loopback addresses; the second is missing on some machines.
fn listen(port: u16) -> io::Result<Vec<TcpListener>> {
    let [first, second] = LOOPBACK.map(|address| TcpListener::bind(SocketAddr::new(address, port)));
    Ok([Some(first?), second.ok()].into_iter().flatten().collect())
}

fn connect(port: u16) -> io::Result<TcpStream> {
    let [first, second] = LOOPBACK.map(|address| SocketAddr::new(address, port));
    TcpStream::connect(first).or_else(|error| TcpStream::connect(second).map_err(|_| error))
}

fn forward(control: &OwnedFd, listeners: Vec<TcpListener>) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // Whoever waits for the end of the command's output must not wait for us.
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    let taken = Arc::new(Taken::new());
    let mut all = Vec::new();
    let mut start = |port: u16, listener: TcpListener| {
        listener.set_nonblocking(true)?;
        let (again, taken) = (listener.try_clone()?, taken.clone());
        all.push((port, listener));
        thread().spawn(move || take(&again, port, &taken)).map(drop)
    };
    for listener in listeners {
        start(listener.local_addr()?.port(), listener)?;
    }
    while let Some((port, listener)) = receive(control)? {
        start(port, listener)?;
    }
    // Whoever connected last may not have been taken yet.
    for (port, listener) in &all {
        while taken.next(listener, *port).is_ok() {}
    }
    let end = Instant::now() + PATIENCE;
    while taken.active.load(Ordering::Acquire) > 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// The connections that were taken.
#[derive(Debug)]
struct Taken {
    active: AtomicUsize,
    most: usize,
    /// Held while one is taken, so that none is between being taken and counted.
    taking: Mutex<()>,
}

impl Taken {
    fn new() -> Self {
        let files = getrlimit(Resource::Nofile).current;
        // Each has two ends.
        let bearable = files.map_or(MOST as u64, |files| files.saturating_sub(BESIDES) / 2);
        let most = usize::try_from(bearable).unwrap_or(MOST).clamp(1, MOST);
        Self { active: AtomicUsize::new(0), most, taking: Mutex::new(()) }
    }

    /// Takes a connection, if one waits and there is room for it, and makes one to
    /// the same port of our loopback for it.
    fn next(self: &Arc<Self>, listener: &TcpListener, port: u16) -> io::Result<()> {
        let guard = self.taking.lock();
        if self.active.load(Ordering::Acquire) >= self.most {
            return Err(Errno::MFILE.into());
        }
        let (stream, _) = listener.accept()?;
        self.active.fetch_add(1, Ordering::AcqRel);
        drop(guard);
        let all = self.clone();
        let join = move || {
            let _ = join(stream, port);
            all.active.fetch_sub(1, Ordering::AcqRel);
        };
        if thread().spawn(join).is_err() {
            self.active.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(())
    }
}

fn thread() -> std::thread::Builder {
    std::thread::Builder::new().stack_size(STACK)
}

fn take(listener: &TcpListener, port: u16, taken: &Arc<Taken>) {
    loop {
        let mut waiting = [PollFd::new(listener, PollFlags::IN)];
        let polled = poll(&mut waiting, None).is_ok();
        match taken.next(listener, port) {
            // Who waited has gone.
            Err(error) if polled && error.kind() == io::ErrorKind::WouldBlock => {}
            // There is no room for more, or the machine has nothing left: asking
            // again at once would only take what others need.
            Err(_) => std::thread::sleep(PAUSE),
            Ok(()) => {}
        }
    }
}

fn join(taken: TcpStream, port: u16) -> io::Result<()> {
    let made = match connect(port) {
        Ok(made) => made,
        // Reset and not ended: nobody was there.
        Err(_) => {
            return Ok(rustix::net::sockopt::set_socket_linger(&taken, Some(Duration::ZERO))?);
        }
    };
    for stream in [&taken, &made] {
        stream.set_nodelay(true)?;
    }
    std::thread::scope(|both| {
        let back = thread().spawn_scoped(both, || copy(&made, &taken))?;
        copy(&taken, &made);
        let _ = back.join();
        Ok(())
    })
}

/// Copies until one side ends, and ends the other.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

fn send(control: &OwnedFd, port: u16, listener: &TcpListener) -> io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    let fds = [std::os::fd::AsFd::as_fd(listener)];
    with.push(SendAncillaryMessage::ScmRights(&fds));
    let port = port.to_ne_bytes();
    sendmsg(control, &[io::IoSlice::new(&port)], &mut with, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next listener; `None` when the room has ended.
fn receive(control: &OwnedFd) -> io::Result<Option<(u16, TcpListener)>> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let mut port = [0_u8; 2];
    let mut parts = [io::IoSliceMut::new(&mut port)];
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
        (2, Some(listener)) => Some((u16::from_ne_bytes(port), TcpListener::from(listener))),
        _ => None,
    })
}
