//! One connection: from its first packet over the inspection and the dialling to its end.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_linger, set_tcp_nodelay, socket_error};
use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, connect, getsockname, recv, socket_with,
};

use super::flow::{Endpoint, Flow, FlowState};
use super::poll::{Token, TokenKind};
use super::{Gate, GateHost, GateQuestion, ListenerKind, ProgramSource};
use crate::http::{Authority, HttpError, RequestHead, RequestStream};
use crate::name::DomainName;
use crate::record::{ConnectionRecord, Denial, RecordOutcome};
use crate::rules::AddressVerdict;
use crate::tls::{ClientHello, read_client_hello};

/// The time in which a client has to say which name it wants.
const HELLO_TIME: Duration = Duration::from_secs(60);
const DIAL_TIME: Duration = Duration::from_secs(10);
const MAX_CANDIDATES: usize = 4;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Waits for the first bytes, which have to name an allowed host.
    Hello,
    /// A query by TCP to the room's resolver.
    NameStream,
    /// A request to the gate's proxy.
    ProxyHead,
    /// Waits for an address, or for the user.
    Waiting,
    Dialing,
    /// Waits for the answer of the user's proxy.
    Tunneling(Vec<u8>),
    Relaying,
    Closing,
}

/// How much of a connection the gate reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inspection {
    /// A rule is about the address.
    Nothing,
    Tls,
    Http,
    /// Reads TLS and HTTP if the client speaks them.
    Guess,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) client: Endpoint,
    pub(super) server: Option<Endpoint>,
    pub(super) up: Flow,
    pub(super) down: Flow,
    pub(super) stage: Stage,
    pub(super) inspection: Inspection,
    pub(super) peer: Option<SocketAddr>,
    pub(super) address: Option<IpAddr>,
    pub(super) port: u16,
    /// The names that the connection may ask for.
    pub(super) names: Vec<DomainName>,
    pub(super) name: Option<String>,
    /// The first bytes of the client.
    pub(super) early: Vec<u8>,
    pub(super) requests: Option<Box<RequestStream>>,
    /// A request to the gate's proxy may be followed by no other one.
    pub(super) heads_left: Option<u32>,
    candidates: VecDeque<SocketAddr>,
    through_proxy: bool,
    deadline: Option<Instant>,
    opened: Instant,
    program: Option<String>,
    pub(super) asked: bool,
}

/// The end of a connection that did not end by itself.
#[derive(Debug)]
pub(super) enum ConnectionFault {
    Denied(Denial),
    Broken,
    Unreachable(Errno),
}

impl From<Errno> for ConnectionFault {
    fn from(_: Errno) -> Self {
        Self::Broken
    }
}

impl From<Denial> for ConnectionFault {
    fn from(denial: Denial) -> Self {
        Self::Denied(denial)
    }
}

impl From<HttpError> for ConnectionFault {
    fn from(error: HttpError) -> Self {
        Self::Denied(error.into())
    }
}

pub(super) type StepResult = Result<FlowState, ConnectionFault>;

impl Connection {
    fn new(socket: OwnedFd, stage: Stage, peer: Option<SocketAddr>) -> Self {
        let _ = set_tcp_nodelay(&socket, true);
        Self {
            client: Endpoint::new(socket),
            server: None,
            up: Flow::default(),
            down: Flow::default(),
            stage,
            inspection: Inspection::Nothing,
            peer,
            address: None,
            port: 0,
            names: Vec::new(),
            name: None,
            early: Vec::new(),
            requests: None,
            heads_left: None,
            candidates: VecDeque::new(),
            through_proxy: false,
            deadline: None,
            opened: Instant::now(),
            program: None,
            asked: false,
        }
    }

    /// Reads more of the client's first bytes. Returns false if there are none now.
    pub(super) fn read_early(&mut self, most: usize) -> Result<bool, ConnectionFault> {
        if !self.client.readable || self.early.len() >= most {
            return Ok(false);
        }
        let mut buffer = [0; 4096];
        let Some(count) = self.up.read(&mut self.client, &mut buffer)? else { return Ok(false) };
        self.early.extend_from_slice(buffer.get(..count).unwrap_or_default());
        Ok(true)
    }

    /// Dials this address first.
    pub(super) fn dial_only(&mut self, address: IpAddr) {
        self.candidates = VecDeque::from([SocketAddr::new(address, self.port)]);
    }

    /// Chooses the inspection for a connection that names may use.
    pub(super) fn inspect_for(&mut self, names: Vec<DomainName>) {
        self.inspection = match self.port {
            443 => Inspection::Tls,
            80 => Inspection::Http,
            _ => Inspection::Guess,
        };
        self.name = names.first().map(ToString::to_string);
        self.names = names;
        self.stage = match self.inspection {
            Inspection::Guess | Inspection::Nothing => Stage::Dialing,
            _ => Stage::Hello,
        };
    }

    fn choose_name(&mut self, wanted: &str) -> Result<(), Denial> {
        match self.names.iter().any(|name| name.as_str() == wanted) {
            true => {
                self.name = Some(wanted.to_owned());
                Ok(())
            }
            false => Err(Denial::Foreign(wanted.to_owned())),
        }
    }

    /// Reads the first bytes. True if they name an allowed host.
    fn check_hello(&mut self) -> Result<bool, ConnectionFault> {
        match (self.inspection, read_client_hello(&self.early)) {
            (_, ClientHello::Partial) if self.early.is_empty() => Ok(false),
            (Inspection::Tls | Inspection::Guess, ClientHello::Partial) => Ok(false),
            (Inspection::Tls | Inspection::Guess, ClientHello::Named(name)) => {
                self.choose_name(name.as_str())?;
                Ok(true)
            }
            (Inspection::Tls, ClientHello::Nameless) => Err(Denial::Nameless.into()),
            (Inspection::Tls, ClientHello::NotTls) => Err(Denial::NotTls.into()),
            (Inspection::Guess, _) if !looks_like_http(&self.early) => Ok(true),
            (Inspection::Nothing, _) => Ok(true),
            (Inspection::Http | Inspection::Guess, _) => {
                let early = std::mem::take(&mut self.early);
                self.requests.get_or_insert_default();
                self.early = self.check_requests(&early)?;
                Ok(!self.early.is_empty())
            }
        }
    }

    /// Returns the bytes that may be passed on.
    pub(super) fn check_requests(&mut self, bytes: &[u8]) -> Result<Vec<u8>, ConnectionFault> {
        let Some(mut requests) = self.requests.take() else { return Ok(bytes.to_vec()) };
        let mut pass = Vec::new();
        let checked = requests.take(bytes, &mut pass, |head| self.check_head(head));
        self.requests = Some(requests).filter(|requests| !requests.is_other());
        checked.map(|()| pass)
    }

    fn check_head(&mut self, head: &RequestHead) -> Result<(), ConnectionFault> {
        if let Some(left) = &mut self.heads_left {
            *left = left.checked_sub(1).ok_or(HttpError::ProxyForm)?;
        }
        let host = head.host.as_ref().ok_or(HttpError::NoHost)?;
        let port = self.port;
        let fits = |authority: &Authority| authority.port.is_none_or(|named| named == port);
        if head.method == "CONNECT" {
            return Err(HttpError::ProxyForm.into());
        }
        if let Some((_, rest)) = head.target.split_once("://") {
            let target = rest.split(['/', '?', '#']).next().unwrap_or_default();
            if Authority::parse(target).as_ref() != Some(host) {
                return Err(HttpError::ProxyForm.into());
            }
        }
        if !fits(host) {
            return Err(Denial::Foreign(format!("{}:{}", host.host, host.port.unwrap_or(0))).into());
        }
        Ok(self.choose_name(&host.host)?)
    }

    /// Relays both directions.
    fn relay(&mut self, memory: &mut super::flow::RelayMemory) -> StepResult {
        let Some(mut server) = self.server.take() else { return Ok(FlowState::Done) };
        let result = self.relay_with(&mut server, memory);
        self.server = Some(server);
        result
    }

    fn relay_with(
        &mut self,
        server: &mut Endpoint,
        memory: &mut super::flow::RelayMemory,
    ) -> StepResult {
        let up = match (self.inspection, &self.requests) {
            (Inspection::Guess, None) => self.guess(server, memory)?,
            (_, Some(_)) => self.pump_requests(server, memory)?,
            _ => self.up.pump(&mut self.client, server, memory)?,
        };
        if self.requests.as_ref().is_some_and(|requests| requests.is_undecided()) {
            self.watch_switch(server, memory)?;
        }
        let down = self.down.pump(server, &mut self.client, memory)?;
        Ok(match (up, down) {
            (FlowState::Busy, _) | (_, FlowState::Busy) => FlowState::Busy,
            _ if self.up.is_done() && self.down.is_done() => FlowState::Done,
            _ => FlowState::Waiting,
        })
    }

    /// The first bytes on a port that is neither for TLS nor for HTTP.
    fn guess(
        &mut self,
        server: &mut Endpoint,
        memory: &mut super::flow::RelayMemory,
    ) -> Result<FlowState, ConnectionFault> {
        while self.read_early(crate::tls::MAX_HELLO_BYTES)? {}
        let is_checked = match self.early.is_empty() {
            true => self.up.has_ended(),
            false => self.check_hello()?,
        };
        match (is_checked, self.up.has_ended()) {
            (true, _) => {}
            (false, false) => return Ok(FlowState::Waiting),
            // The end of the stream, in the middle of what may be another host's name.
            (false, true) => return Err(Denial::Nameless.into()),
        }
        self.inspection = Inspection::Nothing;
        let early = std::mem::take(&mut self.early);
        self.up.hold(&early, memory)?;
        match self.requests.is_some() {
            true => self.pump_requests(server, memory),
            false => Ok(self.up.pump(&mut self.client, server, memory)?),
        }
    }

    /// As `pump`, with a look at every request.
    fn pump_requests(
        &mut self,
        server: &mut Endpoint,
        memory: &mut super::flow::RelayMemory,
    ) -> Result<FlowState, ConnectionFault> {
        const TURNS: usize = 16;
        for _ in 0..TURNS {
            if !self.up.flush(server, memory)? {
                return Ok(FlowState::Waiting);
            }
            if self.up.has_ended() {
                return Ok(self.up.end(server));
            }
            if !self.client.readable {
                return Ok(FlowState::Waiting);
            }
            let mut buffer = std::mem::take(&mut memory.buffer);
            let read = self.up.read(&mut self.client, &mut buffer[..]);
            let pass = match read {
                Ok(Some(count)) => self.check_requests(buffer.get(..count).unwrap_or_default()),
                Ok(None) => Ok(Vec::new()),
                Err(error) => Err(error.into()),
            };
            memory.buffer = buffer;
            self.up.hold(&pass?, memory)?;
        }
        Ok(FlowState::Busy)
    }

    /// Looks whether the server agrees to another protocol.
    fn watch_switch(
        &mut self,
        server: &mut Endpoint,
        memory: &mut super::flow::RelayMemory,
    ) -> Result<(), ConnectionFault> {
        let mut start = [0; 12];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let Ok((_, count)) = recv(&server.socket, &mut start[..], flags) else { return Ok(()) };
        let seen = start.get(..count).unwrap_or_default();
        let status = match seen {
            [b'H', b'T', b'T', b'P', b'/', b'1', b'.', _, b' ', status @ ..]
                if status.len() == 3 =>
            {
                status
            }
            _ => return Ok(()),
        };
        let Some(requests) = &mut self.requests else { return Ok(()) };
        let waited = match status {
            b"101" => requests.decide(true),
            [b'1', ..] => return Ok(()),
            _ => requests.decide(false),
        };
        let pass = self.check_requests(&waited)?;
        self.up.hold(&pass, memory)?;
        Ok(())
    }
}

/// True if the bytes begin as a request does: a method in capitals and a blank.
fn looks_like_http(bytes: &[u8]) -> bool {
    const METHODS: [&[u8]; 10] = [
        b"GET ",
        b"HEAD ",
        b"POST ",
        b"PUT ",
        b"DELETE ",
        b"OPTIONS ",
        b"PATCH ",
        b"TRACE ",
        b"CONNECT ",
        b"PRI * ",
    ];
    METHODS.iter().any(|method| bytes.starts_with(method))
}

impl<H: GateHost> Gate<H> {
    pub(super) fn take_connection(
        &mut self,
        listener: usize,
        socket: OwnedFd,
        peer: Option<SocketAddr>,
    ) {
        let Some(listener) = self.listeners.get(listener) else { return };
        let connection = match &listener.kind {
            ListenerKind::NameStream => Connection::new(socket, Stage::NameStream, peer),
            ListenerKind::Proxy => Connection::new(socket, Stage::ProxyHead, peer),
            ListenerKind::Loopback(port) => {
                let mut connection = Connection::new(socket, Stage::Dialing, peer);
                connection.port = *port;
                connection.name = Some("localhost".to_owned());
                for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
                    connection.candidates.push_back(SocketAddr::new(address, *port));
                }
                connection
            }
            ListenerKind::Outbound => {
                let local = getsockname(&socket).ok().and_then(|at| SocketAddr::try_from(at).ok());
                let Some(local) = local else { return };
                match self.judge_connection(socket, local, peer) {
                    Some(connection) => connection,
                    None => return,
                }
            }
        };
        let now = Instant::now();
        let is_dialing = connection.stage == Stage::Dialing;
        let (at, turn) = self.connections.add(Box::new(connection));
        let token = Token::new(TokenKind::Client, at, turn);
        let Some(mut connection) = self.connections.lift(at, turn) else { return };
        if self.queue.watch_stream(&connection.client.socket, token).is_err() {
            return self.connections.settle(at, None);
        }
        if let Some(peer) = peer {
            connection.program = self.program(ProgramSource::Stream(peer), false).map(|it| it.name);
        }
        self.set_deadline(&mut connection, token, Some(now + HELLO_TIME));
        let started =
            if is_dialing { self.dial(&mut connection, token) } else { Ok(FlowState::Waiting) };
        self.settle(token, connection, started);
    }

    /// Judges a connection to an outside address. A refused one is reset.
    fn judge_connection(
        &mut self,
        socket: OwnedFd,
        local: SocketAddr,
        peer: Option<SocketAddr>,
    ) -> Option<Connection> {
        let (address, port) = (local.ip().to_canonical(), local.port());
        let mut connection = Connection::new(socket, Stage::Dialing, peer);
        (connection.address, connection.port) = (Some(address), port);
        connection.candidates.push_back(SocketAddr::new(address, port));
        match self.rules.judge_address(address, port, self.pins.names(address)) {
            AddressVerdict::Granted => {
                connection.name = self.pins.names(address).first().map(ToString::to_string);
            }
            AddressVerdict::For(_) if self.own.contains(&address) => {
                self.refuse(connection, Denial::Own);
                return None;
            }
            AddressVerdict::For(names) => connection.inspect_for(names),
            AddressVerdict::Ask => {
                connection.name = Some(address.to_string());
                let program = peer.and_then(|peer| self.program(ProgramSource::Stream(peer), true));
                let program = program.map(|program| program.name);
                let host = address.to_string();
                if !self.ask(&GateQuestion { host, port: Some(port), program }) {
                    self.refuse(connection, Denial::NotApproved);
                    return None;
                }
                connection.stage = Stage::Waiting;
                connection.asked = true;
            }
            AddressVerdict::Denied(denial) => {
                connection.name = self.pins.names(address).first().map(ToString::to_string);
                self.refuse(connection, denial);
                return None;
            }
        }
        Some(connection)
    }

    pub(super) fn refuse(&mut self, mut connection: Connection, denial: Denial) {
        if let Some(peer) = connection.peer {
            let program = self.program(ProgramSource::Stream(peer), true);
            connection.program = program.map(|program| program.name);
        }
        self.finish(connection, Some(ConnectionFault::Denied(denial)));
    }

    pub(super) fn set_deadline(
        &mut self,
        connection: &mut Connection,
        token: Token,
        until: Option<Instant>,
    ) {
        let token = Token { kind: TokenKind::Client, ..token };
        if let Some(before) = connection.deadline.take() {
            self.timers.remove(&(before, token));
        }
        if let Some(until) = until {
            self.timers.insert((until, token));
        }
        connection.deadline = until;
    }

    pub(super) fn expire(&mut self, token: Token, now: Instant) {
        let Some(mut connection) = self.connections.lift(token.slot, token.turn) else { return };
        if connection.deadline.is_none_or(|until| until > now) {
            return self.connections.settle(token.slot, Some(connection));
        }
        connection.deadline = None;
        let result = match connection.stage {
            Stage::Dialing => self.try_next(&mut connection, token, Errno::TIMEDOUT),
            Stage::Relaying => Ok(FlowState::Waiting),
            Stage::Waiting => Err(Denial::NotApproved.into()),
            _ => Err(ConnectionFault::Broken),
        };
        self.settle(token, connection, result);
    }

    /// Continues a connection after an event.
    pub(super) fn advance(&mut self, token: Token, flags: EventFlags) {
        let Some(mut connection) = self.connections.lift(token.slot, token.turn) else { return };
        let end = match token.kind {
            TokenKind::Server => connection.server.as_mut(),
            _ => Some(&mut connection.client),
        };
        if let Some(end) = end {
            let broken = EventFlags::HUP | EventFlags::ERR;
            end.hung_up |= flags.intersects(broken | EventFlags::RDHUP);
            end.readable |= flags.intersects(broken | EventFlags::RDHUP | EventFlags::IN);
            end.writable |= flags.intersects(broken | EventFlags::OUT);
        }
        let result = self.step(&mut connection, token);
        self.settle(token, connection, result);
    }

    pub(super) fn step(&mut self, connection: &mut Connection, token: Token) -> StepResult {
        match &connection.stage {
            Stage::Hello => {
                while connection.read_early(crate::http::MAX_HEAD_BYTES)? {}
                if !connection.check_hello()? {
                    return match connection.up.has_ended() {
                        true => Ok(FlowState::Done),
                        false => Ok(FlowState::Waiting),
                    };
                }
                self.dial(connection, token)
            }
            Stage::NameStream => self.read_stream_query(connection, token),
            Stage::ProxyHead => self.read_proxy_head(connection, token),
            Stage::Waiting => Ok(FlowState::Waiting),
            Stage::Closing => {
                let is_sent = connection.down.flush(&mut connection.client, &mut self.memory)?;
                Ok(if is_sent { FlowState::Done } else { FlowState::Waiting })
            }
            Stage::Dialing => {
                let Some(server) = &connection.server else { return Ok(FlowState::Waiting) };
                if !server.writable && !server.hung_up {
                    return Ok(FlowState::Waiting);
                }
                match socket_error(&server.socket) {
                    Ok(Ok(())) => self.connected(connection, token),
                    Ok(Err(error)) | Err(error) => self.try_next(connection, token, error),
                }
            }
            Stage::Tunneling(_) => self.read_tunnel_answer(connection, token),
            Stage::Relaying => connection.relay(&mut self.memory),
        }
    }

    /// Dials the address, or the user's proxy. Other addresses of the same name are tried
    /// after it: the program has its connection already, and cannot try them itself.
    pub(super) fn dial(&mut self, connection: &mut Connection, token: Token) -> StepResult {
        connection.stage = Stage::Dialing;
        if let Some(name) = connection.name.as_deref().and_then(DomainName::parse) {
            let port = connection.port;
            let others =
                self.pins.addresses(&name).iter().map(|address| SocketAddr::new(*address, port));
            for other in others {
                if connection.candidates.len() < MAX_CANDIDATES
                    && !connection.candidates.contains(&other)
                {
                    connection.candidates.push_back(other);
                }
            }
            connection.asked |= self.asked.was_approved(Some(&name));
        }
        if connection.address.is_some() {
            let host = connection.name.clone().or(connection.address.map(|at| at.to_string()));
            if let Some(proxy) = self.proxy_for(host.as_deref().unwrap_or_default()) {
                connection.through_proxy = true;
                connection.candidates = proxy.into();
            }
        }
        self.try_next(connection, token, Errno::HOSTUNREACH)
    }

    fn try_next(&mut self, connection: &mut Connection, token: Token, error: Errno) -> StepResult {
        if let Some(old) = connection.server.take() {
            self.queue.forget(&old.socket);
        }
        let mut last = error;
        while let Some(to) = connection.candidates.pop_front() {
            match start_dialing(to) {
                Ok(socket) => {
                    let token = Token { kind: TokenKind::Server, ..token };
                    self.queue.watch_stream(&socket, token)?;
                    let mut server = Endpoint::new(socket);
                    server.writable = false;
                    connection.server = Some(server);
                    if connection.address.is_some() && !connection.through_proxy {
                        connection.address = Some(to.ip());
                    }
                    self.set_deadline(connection, token, Some(Instant::now() + DIAL_TIME));
                    return Ok(FlowState::Waiting);
                }
                Err(error) => last = error,
            }
        }
        Err(ConnectionFault::Unreachable(last))
    }

    fn connected(&mut self, connection: &mut Connection, token: Token) -> StepResult {
        if let Some(server) = &connection.server {
            let _ = set_tcp_nodelay(&server.socket, true);
        }
        connection.candidates.clear();
        if connection.through_proxy {
            return self.begin_tunnel(connection, token);
        }
        self.begin_relay(connection, token)
    }

    pub(super) fn begin_relay(&mut self, connection: &mut Connection, token: Token) -> StepResult {
        self.set_deadline(connection, token, None);
        connection.stage = Stage::Relaying;
        let early = match connection.inspection {
            Inspection::Guess => Vec::new(),
            _ => std::mem::take(&mut connection.early),
        };
        connection.up.hold(&early, &mut self.memory)?;
        connection.relay(&mut self.memory)
    }

    /// Puts a connection back after a step, or ends it.
    pub(super) fn settle(&mut self, token: Token, connection: Box<Connection>, result: StepResult) {
        let fault = match result {
            Ok(FlowState::Waiting) => return self.connections.settle(token.slot, Some(connection)),
            Ok(FlowState::Busy) => {
                self.busy.push(Token { kind: TokenKind::Extra, ..token });
                return self.connections.settle(token.slot, Some(connection));
            }
            Ok(FlowState::Done) => None,
            Err(fault) => Some(fault),
        };
        self.connections.settle(token.slot, None);
        let mut connection = *connection;
        self.set_deadline(&mut connection, token, None);
        match fault {
            Some(ConnectionFault::Denied(denial)) => self.refuse(connection, denial),
            fault => self.finish(connection, fault),
        }
        if self.is_full && self.connections.len() < super::MAX_CONNECTIONS {
            self.pause_listeners(false);
        }
    }

    /// Records a connection and closes it. After a fault the client gets a reset.
    pub(super) fn finish(&mut self, mut connection: Connection, fault: Option<ConnectionFault>) {
        connection.up.release(&mut self.memory);
        connection.down.release(&mut self.memory);
        if fault.is_some() {
            let _ = set_socket_linger(&connection.client.socket, Some(Duration::ZERO));
            if let Some(server) = &connection.server {
                let _ = set_socket_linger(&server.socket, Some(Duration::ZERO));
            }
        }
        let was_relaying = connection.stage == Stage::Relaying;
        let outcome = match fault {
            Some(ConnectionFault::Denied(denial)) => RecordOutcome::Denied(denial),
            Some(ConnectionFault::Unreachable(error)) => {
                RecordOutcome::Failed(std::io::Error::from(error).to_string())
            }
            // A query to the resolver, or a client that closed before it said anything.
            _ if !was_relaying => return,
            _ => RecordOutcome::Allowed,
        };
        let is_denied = matches!(outcome, RecordOutcome::Denied(_));
        let record = ConnectionRecord {
            program: connection.program,
            name: connection.name,
            address: connection.address,
            port: Some(connection.port),
            outcome,
            asked: connection.asked,
            sent: connection.up.bytes,
            received: connection.down.bytes,
            duration: connection.opened.elapsed(),
        };
        match is_denied {
            true => self.deny(record),
            false => self.host.record(&record),
        }
    }

    /// The user has answered a question about an address.
    pub(super) fn resume_connections(&mut self, host: &str) {
        for (at, turn) in self.connections.all() {
            let is_waiting = self.connections.get(at, turn).is_some_and(|connection| {
                connection.stage == Stage::Waiting
                    && connection.name.as_deref() == Some(host)
                    && connection.address.is_some()
            });
            if !is_waiting {
                continue;
            }
            let Some(mut connection) = self.connections.lift(at, turn) else { continue };
            let token = Token::new(TokenKind::Client, at, turn);
            let verdict = connection
                .address
                .map(|address| self.rules.judge_address(address, connection.port, &[]));
            let result = match verdict {
                Some(AddressVerdict::Granted) => self.dial(&mut connection, token),
                _ => Err(Denial::NotApproved.into()),
            };
            self.settle(token, connection, result);
        }
    }
}

fn start_dialing(to: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}
