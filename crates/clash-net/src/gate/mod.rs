//! The gate of one room: one process, one event loop, no thread.
//!
//! A connection needs four things: a name that led to its address in this room, a port and an
//! address that the rules allow, and, for TLS and HTTP, the same name inside. Nothing is
//! resolved twice, and only addresses of the pins are dialled.

mod connection;
mod flow;
mod handover;
mod lookup;
mod names;
mod poll;
mod proxy;
mod slots;
mod steps;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_ip_freebind, set_ipv6_freebind, set_ipv6_v6only, set_socket_reuseaddr, set_socket_reuseport,
};
use rustix::net::{RecvFlags, SocketFlags, acceptfrom_with, bind, listen, recv};

use crate::dns::{DnsQuery, RecordKind};
use crate::name::DomainName;
use crate::pins::Pins;
use crate::record::{ConnectionRecord, DenialError};
use crate::rules::HostRules;
use crate::upstream::Upstream;
use connection::Connection;
use flow::RelayMemory;
use lookup::{Lookup, LookupCache, LookupWaiter};
use names::AskedNames;
use poll::{EventQueue, Token, TokenKind};
use slots::Slots;

pub use handover::serve_loopback_orders;

/// The sockets of a gate, in the network namespace between the room and the host.
#[derive(Debug)]
pub struct GateSockets {
    /// The room's resolver.
    pub names: UdpSocket,
    pub name_streams: TcpListener,
    /// For programs that use a proxy.
    pub proxy: Option<TcpListener>,
    /// Listeners in the room for ports of the host's loopback.
    pub loopback: Vec<(u16, TcpListener)>,
    /// Stream sockets that are not bound yet.
    pub spare_v4: Vec<OwnedFd>,
    pub spare_v6: Vec<OwnedFd>,
    /// Packet sockets that see the first packet of every connection.
    pub sightings: Vec<OwnedFd>,
    /// The line on which the monitor orders sockets.
    pub orders: Option<OwnedFd>,
}

/// The socket of a program in the room, as the gate sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramSource {
    Stream(SocketAddr),
    Datagram(SocketAddr),
    /// The number of its process or of one of its threads.
    Process(i32),
}

/// A program in the room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomProgram {
    pub name: String,
    /// Its arguments, for the port that it wants.
    pub words: Vec<String>,
}

/// A question about a host that the rules ask about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateQuestion {
    pub host: String,
    pub port: Option<u16>,
    pub program: Option<String>,
}

#[derive(Debug)]
pub enum ControlEvent {
    Nothing,
    End,
}

/// The process around a gate.
pub trait GateHost {
    fn record(&mut self, record: &ConnectionRecord);
    /// The program that has this socket.
    fn program(&mut self, source: ProgramSource) -> Option<RoomProgram>;
    /// Asks the user. The descriptor gets one byte, `y` or `n`; its end means no. `None` if no
    /// user can be asked.
    fn ask(&mut self, question: &GateQuestion) -> Option<OwnedFd>;
    /// Called when the control descriptor is readable.
    fn control(&mut self) -> ControlEvent;
}

/// Connections that a gate carries at a time. Further ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 16 * 1024;
/// Connections taken in one go, so that others get their turn.
const MAX_ACCEPTED: usize = 64;
const BACKLOG: i32 = 4096;
/// The time to deliver the remaining data after the room has ended.
const DELIVERY_TIME: Duration = Duration::from_secs(2);
/// The user answers within this time, or the answer is no.
const QUESTION_TIME: Duration = Duration::from_secs(120);
/// A room's refused attempts are recorded this often. A loop must not fill the disk.
const MAX_DENIALS: u64 = 2000;
/// The search for a program reads many files; it is not made more often than this.
const PROGRAM_PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug)]
enum ListenerKind {
    /// Connections to outside addresses.
    Outbound,
    Loopback(u16),
    NameStream,
    Proxy,
}

#[derive(Debug)]
struct GateListener {
    socket: OwnedFd,
    kind: ListenerKind,
}

#[derive(Debug)]
struct OpenQuestion {
    host: String,
    answer: OwnedFd,
    until: Instant,
}

#[derive(Debug)]
pub struct Gate<H> {
    host: H,
    rules: HostRules,
    upstream: Upstream,
    queue: EventQueue,
    pins: Pins,
    cache: LookupCache,
    asked: AskedNames,
    listeners: Vec<GateListener>,
    /// The addresses and ports with a listener, and the ports with one on all addresses.
    open: HashSet<SocketAddr>,
    wide: HashSet<u16>,
    /// Addresses of this machine that names led to.
    own: HashSet<IpAddr>,
    spare_v4: Vec<OwnedFd>,
    spare_v6: Vec<OwnedFd>,
    sightings: Vec<OwnedFd>,
    orders: Option<OwnedFd>,
    names: UdpSocket,
    connections: Slots<Box<Connection>>,
    lookups: Slots<Lookup>,
    questions: Slots<OpenQuestion>,
    memory: RelayMemory,
    /// Connections whose turn was over before their work.
    busy: Vec<Token>,
    timers: std::collections::BTreeSet<(Instant, Token)>,
    is_ending: bool,
    is_full: bool,
    denials: u64,
    seen: HashMap<(IpAddr, u16), Instant>,
    last_program: Option<(Instant, Option<RoomProgram>)>,
    proxy_addresses: Option<Vec<SocketAddr>>,
    /// Lookups for connections that are being handled.
    later: Vec<(Token, DnsQuery, SocketAddr)>,
    later_proxy: Vec<(Token, DomainName)>,
}

impl<H: GateHost> Gate<H> {
    /// A gate with its listeners, idle until [`Gate::run`]. Pins the names of the hosts file.
    pub fn new(
        host: H,
        rules: HostRules,
        upstream: Upstream,
        sockets: GateSockets,
    ) -> Result<Self, Errno> {
        let GateSockets { names, name_streams, proxy, loopback, spare_v4, spare_v6, .. } = sockets;
        let GateSockets { sightings, orders, .. } = sockets;
        let mut gate = Self {
            host,
            rules,
            upstream,
            queue: EventQueue::new()?,
            pins: Pins::default(),
            cache: LookupCache::default(),
            asked: AskedNames::default(),
            listeners: Vec::new(),
            open: HashSet::new(),
            wide: HashSet::new(),
            own: HashSet::new(),
            spare_v4,
            spare_v6,
            sightings,
            orders,
            names,
            connections: Slots::default(),
            lookups: Slots::default(),
            questions: Slots::default(),
            memory: RelayMemory::new(),
            busy: Vec::new(),
            timers: std::collections::BTreeSet::new(),
            is_ending: false,
            is_full: false,
            denials: 0,
            seen: HashMap::new(),
            last_program: None,
            proxy_addresses: None,
            later: Vec::new(),
            later_proxy: Vec::new(),
        };
        gate.names.set_nonblocking(true).map_err(|_| Errno::INVAL)?;
        gate.queue.watch(&gate.names, Token::new(TokenKind::Names, 0, 0))?;
        gate.add_listener(name_streams.into(), ListenerKind::NameStream)?;
        if let Some(proxy) = proxy {
            gate.add_listener(proxy.into(), ListenerKind::Proxy)?;
        }
        for (port, listener) in loopback {
            gate.add_listener(listener.into(), ListenerKind::Loopback(port))?;
        }
        for (at, socket) in gate.sightings.iter().enumerate() {
            let token = Token::new(TokenKind::Sighting, u32::try_from(at).unwrap_or(0), 0);
            gate.queue.watch(socket, token)?;
        }
        if let Some(orders) = &gate.orders {
            gate.queue.watch(orders, Token::new(TokenKind::Orders, 0, 0))?;
        }
        for port in gate.rules.ports().to_vec() {
            if gate.rules.takes_any_address(port) {
                gate.listen_everywhere(port);
            }
        }
        gate.pin_hosts_file();
        Ok(gate)
    }

    /// Carries connections until the launcher or the keeper lets the gate go, and then for at
    /// most `DELIVERY_TIME`. Records all of them.
    pub fn run(&mut self, control: impl AsFd) -> Result<(), Errno> {
        self.queue.watch(control.as_fd(), Token::new(TokenKind::Control, 0, 0))?;
        self.pin_few_names();
        let mut events = Vec::new();
        let mut last = None;
        loop {
            let now = Instant::now();
            if self.is_ending {
                let last = *last.get_or_insert(now + DELIVERY_TIME);
                if self.connections.len() == 0 || now >= last {
                    break;
                }
            }
            self.run_timers(now);
            let until = match (self.busy.is_empty(), self.timers.first()) {
                (false, _) => Some(now),
                (true, first) => first.map(|(when, _)| *when).into_iter().chain(last).min(),
            };
            self.queue.wait(until, &mut events)?;
            for (token, flags) in &events {
                self.handle(*token, *flags, control.as_fd());
            }
            for token in std::mem::take(&mut self.busy) {
                self.advance(token, EventFlags::empty());
            }
            self.run_later();
        }
        for (at, turn) in self.connections.all() {
            if let Some(connection) = self.connections.take(at, turn) {
                self.finish(*connection, None);
            }
        }
        Ok(())
    }

    /// Passes one event to the part that its token names. The end of `control` begins the
    /// gate's.
    fn handle(&mut self, token: Token, flags: EventFlags, control: std::os::fd::BorrowedFd<'_>) {
        match token.kind {
            TokenKind::Control => match self.host.control() {
                ControlEvent::Nothing => {}
                ControlEvent::End => {
                    self.queue.forget(control);
                    self.begin_end();
                }
            },
            // Only of connections in `busy`, which the kernel does not name.
            TokenKind::Extra => {}
            TokenKind::Orders => self.take_orders(),
            TokenKind::Names => self.answer_datagrams(),
            TokenKind::Listener => self.accept(token.slot as usize),
            TokenKind::Sighting => self.look(token.slot as usize),
            TokenKind::Client | TokenKind::Server => self.advance(token, flags),
            TokenKind::Lookup => self.continue_lookup(token),
            TokenKind::Question => self.take_answer(token, false),
        }
    }

    /// The room has ended. The last connections may still be in the queues.
    fn begin_end(&mut self) {
        self.is_ending = true;
        for at in 0..self.listeners.len() {
            self.accept(at);
        }
        for at in 0..self.sightings.len() {
            self.look(at);
        }
        self.answer_datagrams();
    }

    /// Ends every wait whose time has come: of connections, lookups and questions.
    fn run_timers(&mut self, now: Instant) {
        while let Some((when, token)) = self.timers.first().copied() {
            if when > now {
                return;
            }
            self.timers.remove(&(when, token));
            match token.kind {
                TokenKind::Client => self.expire(token, now),
                TokenKind::Lookup => self.retry_lookup(token),
                TokenKind::Question => self.take_answer(token, true),
                _ => {}
            }
        }
    }

    fn add_listener(&mut self, socket: OwnedFd, kind: ListenerKind) -> Result<(), Errno> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let at = u32::try_from(self.listeners.len()).unwrap_or(0);
        self.queue.watch(&socket, Token::new(TokenKind::Listener, at, 0))?;
        self.listeners.push(GateListener { socket, kind });
        Ok(())
    }

    /// Listens for connections to one address, or to all of a family.
    fn listen_on(&mut self, at: SocketAddr) -> Result<(), Errno> {
        let spare = if at.is_ipv4() { &mut self.spare_v4 } else { &mut self.spare_v6 };
        let socket = spare.pop().ok_or(Errno::MFILE)?;
        set_socket_reuseaddr(&socket, true)?;
        set_socket_reuseport(&socket, true)?;
        match at {
            SocketAddr::V4(_) => set_ip_freebind(&socket, true)?,
            SocketAddr::V6(_) => {
                set_ipv6_v6only(&socket, true)?;
                set_ipv6_freebind(&socket, true)?;
            }
        }
        bind(&socket, &at)?;
        listen(&socket, BACKLOG)?;
        self.add_listener(socket, ListenerKind::Outbound)
    }

    fn listen_everywhere(&mut self, port: u16) {
        if self.wide.insert(port) {
            let _ = self.listen_on(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port));
            let _ = self.listen_on(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port));
        }
    }

    /// Listens on the ports that a name may use at a new address. Other addresses and ports
    /// have no listener, so the kernel refuses them at once.
    fn open_address(&mut self, name: &DomainName, address: IpAddr) {
        for port in self.rules.ports().to_vec() {
            let at = SocketAddr::new(address, port);
            let is_open = self.wide.contains(&port) || self.open.contains(&at);
            let is_own = self.own.contains(&address);
            if is_open
                || !self.rules.opens_to_names(address, port, is_own)
                || self.rules.judge_name(name, port) == clash_policy::Effect::Deny
            {
                continue;
            }
            let spare = if at.is_ipv4() { self.spare_v4.len() } else { self.spare_v6.len() };
            // The last sockets are for listeners on all addresses.
            if spare <= self.rules.ports().len() {
                self.listen_everywhere(port);
            } else if self.listen_on(at).is_ok() {
                self.open.insert(at);
            }
        }
    }

    /// Programs also read the hosts file themselves, so its addresses are pinned at the start.
    fn pin_hosts_file(&mut self) {
        const MAX_LINES: usize = 20_000;
        for (address, name) in self.upstream.hosts().into_iter().take(MAX_LINES) {
            if self.rules.judge_lookup(&name) == clash_policy::Effect::Allow
                && self.check_address(address).is_ok()
            {
                self.pin(&name, address);
            }
        }
    }

    /// Checks an address that a name leads to, and remembers whether this machine has it.
    fn check_address(&mut self, address: IpAddr) -> Result<(), DenialError> {
        let is_own = lookup::is_own(address);
        if is_own {
            self.own.insert(address.to_canonical());
        }
        self.rules.check_address(address, is_own)
    }

    /// Resolves the names of a sandbox with few hosts at the start, so that programs which
    /// know their addresses already can dial them.
    fn pin_few_names(&mut self) {
        const MAX_EAGER_NAMES: usize = 3;
        let names = self.rules.allowed_names();
        if names.len() <= MAX_EAGER_NAMES {
            for name in names {
                for kind in [RecordKind::V4, RecordKind::V6] {
                    self.look_up(&name, kind, LookupWaiter::Nobody);
                }
            }
        }
    }

    fn pin(&mut self, name: &DomainName, address: IpAddr) {
        if self.pins.add(name, address) {
            self.open_address(name, address);
        }
    }

    /// Accepts at most `MAX_ACCEPTED` connections. At `MAX_CONNECTIONS`, or without free
    /// descriptors, all listeners pause: further connections wait in the kernel's queue.
    fn accept(&mut self, at: usize) {
        for _ in 0..MAX_ACCEPTED {
            if self.connections.len() >= MAX_CONNECTIONS {
                return self.pause_listeners(true);
            }
            let Some(listener) = self.listeners.get(at) else { return };
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match acceptfrom_with(&listener.socket, flags) {
                Ok((socket, peer)) => {
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                    self.take_connection(at, socket, peer);
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // Without a free descriptor the connection waits until another one ends.
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    return self.pause_listeners(true);
                }
                Err(_) => return,
            }
        }
    }

    fn pause_listeners(&mut self, paused: bool) {
        if self.is_full != paused {
            self.is_full = paused;
            for (at, listener) in self.listeners.iter().enumerate() {
                let token = Token::new(TokenKind::Listener, u32::try_from(at).unwrap_or(0), 0);
                self.queue.pause(&listener.socket, token, paused);
            }
        }
    }

    /// Looks at the first packets of connections. Those without a listener were refused by the
    /// kernel, and are recorded here.
    fn look(&mut self, at: usize) {
        const REPEAT_PAUSE: Duration = Duration::from_secs(1);
        let mut packet = [0; 80];
        loop {
            let Some(socket) = self.sightings.get(at) else { return };
            let length = match recv(socket, &mut packet[..], RecvFlags::DONTWAIT) {
                Ok((length, _)) => length,
                Err(Errno::INTR) => continue,
                Err(_) => return,
            };
            let Some(packet) = packet.get(..length) else { continue };
            let Some((from, to)) = first_packet(packet) else { continue };
            if self.wide.contains(&to.port()) || self.open.contains(&to) {
                continue;
            }
            let now = Instant::now();
            let key = (to.ip(), to.port());
            let is_repeated = self
                .seen
                .get(&key)
                .is_some_and(|before| now.duration_since(*before) < REPEAT_PAUSE);
            if is_repeated || is_gates_own(to.ip()) {
                continue;
            }
            if self.seen.len() > 4096 {
                self.seen.clear();
            }
            self.seen.insert(key, now);
            let name = self.pins.names(to.ip()).first().map(ToString::to_string);
            let denial = if name.is_some() { DenialError::Port } else { DenialError::Unpinned };
            let program = self.program(ProgramSource::Stream(from), true);
            self.deny(ConnectionRecord {
                program: program.map(|program| program.name),
                name,
                address: Some(to.ip()),
                port: Some(to.port()),
                ..ConnectionRecord::denied(denial)
            });
        }
    }

    /// The program behind a socket. The search reads many files, so it is left out for some of
    /// many allowed connections.
    fn program(&mut self, source: ProgramSource, always: bool) -> Option<RoomProgram> {
        if let Some((when, _)) = &self.last_program
            && !always
            && when.elapsed() < PROGRAM_PAUSE
        {
            return None;
        }
        let program = self.host.program(source);
        self.last_program = Some((Instant::now(), program.clone()));
        program
    }

    fn deny(&mut self, record: ConnectionRecord) {
        self.denials += 1;
        if self.denials <= MAX_DENIALS {
            self.host.record(&record);
        }
    }

    /// Asks the user about a host, unless the question is already open.
    fn ask(&mut self, question: &GateQuestion) -> bool {
        let open = self.questions.all();
        let is_open = |(at, turn): &(u32, u16)| {
            self.questions.get(*at, *turn).is_some_and(|asked| asked.host == question.host)
        };
        if open.iter().any(is_open) {
            return true;
        }
        let Some(answer) = self.host.ask(question) else { return false };
        let until = Instant::now() + QUESTION_TIME;
        let host = question.host.clone();
        let (at, turn) = self.questions.add(OpenQuestion { host, answer, until });
        let token = Token::new(TokenKind::Question, at, turn);
        if let Some(question) = self.questions.get(at, turn) {
            let _ = self.queue.watch(&question.answer, token);
        }
        self.timers.insert((until, token));
        true
    }

    /// Reads the user's answer about a host, and continues all that waited for it. Only `y`
    /// in time allows. The answer holds for the room.
    fn take_answer(&mut self, token: Token, too_late: bool) {
        let Some(question) = self.questions.take(token.slot, token.turn) else { return };
        self.queue.forget(&question.answer);
        self.timers.remove(&(question.until, token));
        let mut byte = [0];
        let allowed = !too_late
            && rustix::io::read(&question.answer, &mut byte[..]) == Ok(1)
            && byte == [b'y'];
        self.rules.remember(&question.host, allowed);
        self.resume_after_answer(&question.host);
        self.resume_connections(&question.host);
    }
}

/// The addresses of a packet that begins a TCP connection, without its link header.
fn first_packet(packet: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let port = |bytes: &[u8]| Some(u16::from_be_bytes(<[u8; 2]>::try_from(bytes).ok()?));
    let (from, to, tcp): (IpAddr, IpAddr, &[u8]) = match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet.first()? & 0xf) * 4;
            let from = <[u8; 4]>::try_from(packet.get(12..16)?).ok()?;
            let to = <[u8; 4]>::try_from(packet.get(16..20)?).ok()?;
            (from.into(), to.into(), packet.get(header..)?)
        }
        6 => {
            let from = <[u8; 16]>::try_from(packet.get(8..24)?).ok()?;
            let to = <[u8; 16]>::try_from(packet.get(24..40)?).ok()?;
            (from.into(), to.into(), packet.get(40..)?)
        }
        _ => return None,
    };
    let (from_port, to_port) = (port(tcp.get(..2)?)?, port(tcp.get(2..4)?)?);
    Some((SocketAddr::new(from, from_port), SocketAddr::new(to, to_port)))
}

/// The network between the room and the gate.
fn is_gates_own(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(v4) if v4.octets().starts_with(&[192, 0, 0]))
}
