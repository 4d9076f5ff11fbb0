//! The gate as a proxy for programs of the room, the way through the user's own proxy, and the
//! room's resolver by TCP.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use clash_policy::Effect;
use rustix::io::Errno;

use super::connection::{Connection, ConnectionFault, Stage, StepResult};
use super::flow::FlowState;
use super::lookup::LookupWaiter;
use super::poll::{Token, TokenKind};
use super::{Gate, GateHost, ProgramSource};
use crate::dns::{DnsAnswer, MAX_MESSAGE_BYTES, RecordKind, read_query};
use crate::http::{
    Authority, BodyFraming, HttpError, MAX_HEAD_BYTES, RequestHead, RequestStream, read_head,
};
use crate::name::DomainName;
use crate::record::{ConnectionRecord, DenialError};
use crate::rules::AddressVerdict;

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

impl<H: GateHost> Gate<H> {
    /// Reads a query that arrives by TCP, after the last answer has left. The query is
    /// answered later, outside this step. A message that is too long or no query ends the
    /// connection.
    pub(super) fn read_stream_query(
        &mut self,
        connection: &mut Connection,
        token: Token,
    ) -> StepResult {
        while connection.read_early(MAX_MESSAGE_BYTES)? {}
        let is_sent = connection.down.flush(&mut connection.client, &mut self.memory)?;
        let [high, low, rest @ ..] = connection.early.as_slice() else {
            return Ok(end_or_wait(connection));
        };
        let length = usize::from(*high) << 8 | usize::from(*low);
        if length > MAX_MESSAGE_BYTES - 2 {
            return Err(ConnectionFault::Broken);
        }
        let Some(message) = rest.get(..length).filter(|_| is_sent) else {
            return Ok(end_or_wait(connection));
        };
        let query = read_query(message).ok_or(ConnectionFault::Broken)?;
        connection.early.drain(..length + 2);
        let Some(peer) = connection.peer else { return Ok(FlowState::Done) };
        self.later.push((token, query, peer));
        Ok(FlowState::Waiting)
    }

    /// Resolves the queries that arrived by TCP, when their connections are in the table again.
    pub(super) fn run_later(&mut self) {
        for (token, query, peer) in std::mem::take(&mut self.later) {
            let waiter =
                LookupWaiter::Stream { connection: (token.slot, token.turn), query: query.clone() };
            self.resolve(&query, waiter, ProgramSource::Stream(peer));
        }
        for (token, name) in std::mem::take(&mut self.later_proxy) {
            let waiter = LookupWaiter::Proxy { connection: (token.slot, token.turn) };
            let Some(peer) =
                self.connections.get(token.slot, token.turn).and_then(|connection| connection.peer)
            else {
                continue;
            };
            self.resolve_name(&name, RecordKind::V4, waiter, ProgramSource::Stream(peer));
        }
    }

    /// Sends an answer of the resolver by TCP, and reads the client's next query.
    pub(super) fn answer_stream(&mut self, at: (u32, u16), answer: &[u8]) {
        let Some(mut connection) = self.connections.lift(at.0, at.1) else { return };
        let token = Token::new(TokenKind::Client, at.0, at.1);
        let length = u16::try_from(answer.len()).unwrap_or(0).to_be_bytes();
        let message = [&length[..], answer].concat();
        let result =
            connection.down.hold(&message, &mut self.memory).map_err(ConnectionFault::from);
        let result = result.and_then(|()| self.read_stream_query(&mut connection, token));
        self.settle(token, connection, result);
    }

    /// Reads a request of a program that uses the gate as its proxy, and judges its target by
    /// the rules. An allowed address is dialled at once; a name is looked up after this step,
    /// or asked about. A refusal is an HTTP answer.
    pub(super) fn read_proxy_head(
        &mut self,
        connection: &mut Connection,
        token: Token,
    ) -> StepResult {
        while connection.read_early(MAX_HEAD_BYTES)? {}
        let head = match read_head(&connection.early) {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(end_or_wait(connection)),
            Err(_) => return self.reply(connection, "400 Bad Request", "no HTTP/1 request"),
        };
        let Some(to) = proxy_target(&head) else {
            return self.reply(connection, "400 Bad Request", "no proxy request");
        };
        connection.port = to.port.unwrap_or(80);
        connection.name = Some(to.host.clone());
        if head.method == "CONNECT" {
            connection.early.drain(..head.bytes);
        } else if let Err(why) = rewrite(connection, &head, &to) {
            return self.refuse_proxy(connection, DenialError::Http(why));
        }
        if let Ok(address) = to.host.parse::<IpAddr>() {
            return match self.rules.judge_address(address, connection.port, &[]) {
                AddressVerdict::Granted => {
                    connection.address = Some(address);
                    connection.dial_only(address);
                    if connection.requests.is_none() {
                        connection.down.hold(ESTABLISHED, &mut self.memory)?;
                    }
                    self.dial(connection, token)
                }
                AddressVerdict::Denied(denial) => self.refuse_proxy(connection, denial),
                _ => self.refuse_proxy(connection, DenialError::Unpinned),
            };
        }
        let Some(name) = DomainName::parse(&to.host) else {
            return self.refuse_proxy(connection, DenialError::Name);
        };
        match self.rules.judge_name(&name, connection.port) {
            Effect::Deny if self.rules.judge_lookup(&name) != Effect::Deny => {
                self.refuse_proxy(connection, DenialError::Port)
            }
            Effect::Deny => self.refuse_proxy(connection, DenialError::Name),
            _ => {
                connection.stage = Stage::Waiting;
                self.later_proxy.push((token, name));
                Ok(FlowState::Waiting)
            }
        }
    }

    /// The gate has, or has not, found the address for a program that uses it as a proxy.
    pub(super) fn continue_proxy(&mut self, at: (u32, u16), name: &DomainName, answer: &DnsAnswer) {
        let Some(mut connection) = self.connections.lift(at.0, at.1) else { return };
        let token = Token::new(TokenKind::Client, at.0, at.1);
        let result = match (self.rules.judge_name(name, connection.port), answer) {
            (Effect::Allow, DnsAnswer::Addresses { addresses, .. }) => {
                self.start_proxied(&mut connection, token, name, addresses)
            }
            (Effect::Allow, _) => {
                let known = self.pins.addresses(name).to_vec();
                match known.is_empty() {
                    true => {
                        self.reply(&mut connection, "502 Bad Gateway", "the name has no address")
                    }
                    false => self.start_proxied(&mut connection, token, name, &known),
                }
            }
            _ => self.reply_refused(&mut connection, &DenialError::NotApproved),
        };
        self.settle(token, connection, result);
    }

    /// Dials the first address of a name for a client of the proxy. After `CONNECT` it tells
    /// the client that the tunnel is there, and reads the name inside (TLS or HTTP) before it
    /// dials.
    fn start_proxied(
        &mut self,
        connection: &mut Connection,
        token: Token,
        name: &DomainName,
        addresses: &[IpAddr],
    ) -> StepResult {
        let Some(first) = addresses.first().copied() else {
            return Err(ConnectionFault::Unreachable(Errno::HOSTUNREACH));
        };
        connection.address = Some(first);
        connection.dial_only(first);
        if connection.requests.is_some() {
            connection.names = vec![name.clone()];
            let early = std::mem::take(&mut connection.early);
            connection.early = connection.check_requests(&early)?;
            return self.dial(connection, token);
        }
        connection.inspect_for(vec![name.clone()]);
        connection.down.hold(ESTABLISHED, &mut self.memory)?;
        connection.down.flush(&mut connection.client, &mut self.memory)?;
        match connection.stage {
            Stage::Dialing => self.dial(connection, token),
            _ => self.step(connection, token),
        }
    }

    /// Records a refused request of the proxy, and answers it with 403 and the reason.
    fn refuse_proxy(&mut self, connection: &mut Connection, denial: DenialError) -> StepResult {
        let peer = connection.peer;
        let program = peer.and_then(|peer| self.program(ProgramSource::Stream(peer), true));
        self.deny(ConnectionRecord {
            program: program.map(|program| program.name),
            name: connection.name.clone(),
            port: Some(connection.port),
            ..ConnectionRecord::denied(denial.clone())
        });
        self.reply_refused(connection, &denial)
    }

    fn reply_refused(&mut self, connection: &mut Connection, denial: &DenialError) -> StepResult {
        let host = connection.name.clone().unwrap_or_default();
        let why = format!("clash: {host}:{} is refused: {denial}", connection.port);
        self.reply(connection, "403 Forbidden", &why)
    }

    /// Answers a request of the proxy itself, and closes the connection when the answer is
    /// sent.
    fn reply(&mut self, connection: &mut Connection, status: &str, why: &str) -> StepResult {
        let text = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{why}\n",
            why.len() + 1
        );
        connection.down.hold(text.as_bytes(), &mut self.memory)?;
        connection.stage = Stage::Closing;
        let is_sent = connection.down.flush(&mut connection.client, &mut self.memory)?;
        Ok(if is_sent { FlowState::Done } else { FlowState::Waiting })
    }

    /// The addresses of the user's proxy, if this host is reached through it.
    pub(super) fn proxy_for(&mut self, host: &str) -> Option<Vec<SocketAddr>> {
        let proxy = self.upstream.proxy.as_ref().filter(|proxy| proxy.covers(host))?;
        let at = (proxy.at.host.as_str(), proxy.at.port.unwrap_or(80));
        // The gate waits for this lookup, once. A proxy is near.
        let found = self
            .proxy_addresses
            .get_or_insert_with(|| at.to_socket_addrs().map(Iterator::collect).unwrap_or_default());
        Some(found.clone())
    }

    /// Asks the user's own proxy for a tunnel to the connection's name or address, with the
    /// proxy's credentials, and reads its answer.
    pub(super) fn begin_tunnel(&mut self, connection: &mut Connection, token: Token) -> StepResult {
        let host = match (&connection.name, connection.address) {
            (Some(name), _) => name.clone(),
            (None, Some(IpAddr::V6(address))) => format!("[{address}]"),
            (None, address) => address.map(|address| address.to_string()).unwrap_or_default(),
        };
        let to = format!("{host}:{}", connection.port);
        let credentials = self.upstream.proxy.as_ref().and_then(|proxy| proxy.credentials.as_ref());
        let credentials = credentials
            .map(|text| format!("Proxy-Authorization: Basic {text}\r\n"))
            .unwrap_or_default();
        let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{credentials}\r\n");
        connection.stage = Stage::Tunneling(Vec::new());
        let Some(server) = &mut connection.server else { return Ok(FlowState::Done) };
        let mut ask = super::flow::Flow::default();
        ask.hold(request.as_bytes(), &mut self.memory)?;
        if !ask.flush(server, &mut self.memory)? {
            ask.release(&mut self.memory);
            return Err(ConnectionFault::Unreachable(Errno::AGAIN));
        }
        self.read_tunnel_answer(connection, token)
    }

    /// Reads the answer of the user's own proxy up to the empty line. A status of 2xx begins
    /// the relay; any other answer, or more than 16 KiB, counts as an unreachable host.
    pub(super) fn read_tunnel_answer(
        &mut self,
        connection: &mut Connection,
        token: Token,
    ) -> StepResult {
        const MAX_ANSWER_BYTES: usize = 16 * 1024;
        let Stage::Tunneling(answer) = &mut connection.stage else { return Ok(FlowState::Done) };
        let Some(server) = &mut connection.server else { return Ok(FlowState::Done) };
        // Byte by byte: the bytes after the head belong to the program.
        loop {
            let mut byte = [0];
            match rustix::io::read(&server.socket, &mut byte[..]) {
                Ok(0) => return Err(ConnectionFault::Unreachable(Errno::CONNRESET)),
                Ok(_) => answer.extend(byte),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(FlowState::Waiting),
                Err(error) => return Err(ConnectionFault::Unreachable(error)),
            }
            if answer.ends_with(b"\r\n\r\n") {
                break;
            }
            if answer.len() > MAX_ANSWER_BYTES {
                return Err(ConnectionFault::Unreachable(Errno::PROTO));
            }
        }
        let is_agreed = answer.starts_with(b"HTTP/1.") && answer.get(9) == Some(&b'2');
        server.readable = true;
        match is_agreed {
            true => self.begin_relay(connection, token),
            false => Err(ConnectionFault::Unreachable(Errno::CONNREFUSED)),
        }
    }
}

fn end_or_wait(connection: &Connection) -> FlowState {
    if connection.up.has_ended() { FlowState::Done } else { FlowState::Waiting }
}

/// The host of a proxy request. The name in the line and the `Host` must be the same.
fn proxy_target(head: &RequestHead) -> Option<Authority> {
    if head.method == "CONNECT" {
        return Authority::parse(&head.target).filter(|to| to.port.is_some());
    }
    let rest = head.target.strip_prefix("http://")?;
    Authority::parse(rest.split(['/', '?', '#']).next()?)
}

/// Replaces the head of a proxy request by the one that the server gets, which ends the
/// connection after one answer.
fn rewrite(
    connection: &mut Connection,
    head: &RequestHead,
    to: &Authority,
) -> Result<(), HttpError> {
    let host = head.host.as_ref().ok_or(HttpError::NoHost)?;
    if (&host.host, host.port.unwrap_or(80)) != (&to.host, to.port.unwrap_or(80)) || head.upgrade {
        return Err(HttpError::ProxyForm);
    }
    let text = connection.early.get(..head.bytes).unwrap_or_default();
    let text = std::str::from_utf8(text).map_err(|_| HttpError::Malformed)?;
    let rest = head.target.strip_prefix("http://").unwrap_or_default();
    let path = rest.find(['/', '?']).and_then(|at| rest.get(at..)).unwrap_or("/");
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut plain = format!("{} {slash}{path} HTTP/1.1\r\n", head.method);
    for line in text.split("\r\n").skip(1).filter(|line| !line.is_empty()) {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        if !matches!(name.as_str(), "connection" | "keep-alive") && !name.starts_with("proxy-") {
            plain.push_str(line);
            plain.push_str("\r\n");
        }
    }
    plain.push_str("Connection: close\r\n\r\n");
    let body = connection.early.get(head.bytes..).unwrap_or_default();
    // Bytes after the request would be a second one, for another host.
    let body = match head.body {
        BodyFraming::Length(0) => &[],
        _ => body,
    };
    connection.early = [plain.as_bytes(), body].concat();
    connection.requests = Some(Box::new(RequestStream::default()));
    connection.heads_left = Some(1);
    Ok(())
}
