//! The way of a connection through the gate: from its first packet over the dialling to its end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_linger, set_tcp_nodelay, socket_error};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, getsockname, socket_with};

use super::connection::{Connection, ConnectionFault, Inspection, Stage, StepResult};
use super::flow::{Endpoint, FlowState};
use super::poll::{Token, TokenKind};
use super::{Gate, GateHost, GateQuestion, ListenerKind, ProgramSource};
use crate::name::DomainName;
use crate::record::{ConnectionRecord, DenialError, RecordOutcome};
use crate::rules::AddressVerdict;

/// The time in which a client has to say which name it wants.
const HELLO_TIME: Duration = Duration::from_secs(60);
const DIAL_TIME: Duration = Duration::from_secs(10);
const MAX_CANDIDATES: usize = 4;

impl<H: GateHost> Gate<H> {
    /// Begins a connection that a listener has accepted: for the resolver, the proxy, a port
    /// of the host's loopback, or an address outside. The last kind is judged by the rules
    /// first, and closed if they refuse it. The client then has `HELLO_TIME` for its first
    /// bytes.
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

    /// Judges a connection to an outside address by the address, the port and the names that
    /// led there. `None` if it is refused: it is then recorded and reset. Asks the user if
    /// the rules say so; the connection waits.
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
                self.refuse(connection, DenialError::Own);
                return None;
            }
            AddressVerdict::For(names) => connection.inspect_for(names),
            AddressVerdict::Ask => {
                connection.name = Some(address.to_string());
                let program = peer.and_then(|peer| self.program(ProgramSource::Stream(peer), true));
                let program = program.map(|program| program.name);
                let host = address.to_string();
                if !self.ask(&GateQuestion { host, port: Some(port), program }) {
                    self.refuse(connection, DenialError::NotApproved);
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

    pub(super) fn refuse(&mut self, mut connection: Connection, denial: DenialError) {
        if let Some(peer) = connection.peer {
            let program = self.program(ProgramSource::Stream(peer), true);
            connection.program = program.map(|program| program.name);
        }
        self.finish(connection, Some(ConnectionFault::Denied(denial)));
    }

    /// Replaces the connection's deadline and its timer. `None`: it may wait without an end.
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

    /// Handles the end of a connection's time: dials its next address, refuses it if it
    /// waited for the user, and ends it if the client or the server said nothing in time. A
    /// connection that is being relayed goes on.
    pub(super) fn expire(&mut self, token: Token, now: Instant) {
        let Some(mut connection) = self.connections.lift(token.slot, token.turn) else { return };
        if connection.deadline.is_none_or(|until| until > now) {
            return self.connections.settle(token.slot, Some(connection));
        }
        connection.deadline = None;
        let result = match connection.stage {
            Stage::Dialing => self.try_next(&mut connection, token, Errno::TIMEDOUT),
            Stage::Relaying => Ok(FlowState::Waiting),
            Stage::Waiting => Err(DenialError::NotApproved.into()),
            _ => Err(ConnectionFault::Broken),
        };
        self.settle(token, connection, result);
    }

    /// Continues a connection after an event of its client or its server, and ends it if it
    /// is done or broken.
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

    /// Does the work of the connection's stage as far as it goes without waiting. `Done` ends
    /// the connection; an error ends it with a record.
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

    /// Closes the socket to the server, and dials the next candidate address without waiting.
    /// Without one the connection fails with the last error.
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

    /// The server has accepted the connection: begins the tunnel through the user's proxy, or
    /// the relay.
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

    /// Begins the relay without a deadline. Bytes of the client that were inspected go to the
    /// server first.
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

    /// Records a connection and closes it. After a fault the client gets a reset. Not
    /// recorded: queries to the resolver, and clients that closed before their connection was
    /// relayed.
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
            handed_over: false,
            sent: connection.up.bytes,
            received: connection.down.bytes,
            duration: connection.opened.elapsed(),
        };
        match is_denied {
            true => self.deny(record),
            false => self.host.record(&record),
        }
    }

    /// Continues the connections to an address that waited for the user: dials, or refuses.
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
                _ => Err(DenialError::NotApproved.into()),
            };
            self.settle(token, connection, result);
        }
    }
}

/// A socket that is being connected to this address. Never blocks.
fn start_dialing(to: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}
