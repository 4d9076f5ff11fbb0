//! One connection: its state, the inspection of its bytes and their relay. Its way through the
//! gate is in `steps.rs`.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{RecvFlags, recv};

use super::flow::{Endpoint, Flow, FlowState, RelayMemory};
use crate::http::{Authority, HttpError, RequestHead, RequestStream};
use crate::name::DomainName;
use crate::record::DenialError;
use crate::tls::{ClientHello, read_client_hello};

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
    pub(super) candidates: VecDeque<SocketAddr>,
    pub(super) through_proxy: bool,
    pub(super) deadline: Option<Instant>,
    pub(super) opened: Instant,
    pub(super) program: Option<String>,
    pub(super) asked: bool,
}

/// The end of a connection that did not end by itself.
#[derive(Debug)]
pub(super) enum ConnectionFault {
    Denied(DenialError),
    Broken,
    Unreachable(Errno),
}

impl From<Errno> for ConnectionFault {
    fn from(_: Errno) -> Self {
        Self::Broken
    }
}

impl From<DenialError> for ConnectionFault {
    fn from(denial: DenialError) -> Self {
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
    /// A connection of the room without a server, a name or a deadline. Switches Nagle's
    /// algorithm off for the socket.
    pub(super) fn new(socket: OwnedFd, stage: Stage, peer: Option<SocketAddr>) -> Self {
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

    /// Takes a name for the connection. An error if no permitted name is that one.
    fn choose_name(&mut self, wanted: &str) -> Result<(), DenialError> {
        match self.names.iter().any(|name| name.as_str() == wanted) {
            true => {
                self.name = Some(wanted.to_owned());
                Ok(())
            }
            false => Err(DenialError::Foreign(wanted.to_owned())),
        }
    }

    /// Reads the first bytes. True if they name an allowed host.
    pub(super) fn check_hello(&mut self) -> Result<bool, ConnectionFault> {
        match (self.inspection, read_client_hello(&self.early)) {
            (_, ClientHello::Partial) if self.early.is_empty() => Ok(false),
            (Inspection::Tls | Inspection::Guess, ClientHello::Partial) => Ok(false),
            (Inspection::Tls | Inspection::Guess, ClientHello::Named(name)) => {
                self.choose_name(name.as_str())?;
                Ok(true)
            }
            (Inspection::Tls, ClientHello::Nameless) => Err(DenialError::Nameless.into()),
            (Inspection::Tls, ClientHello::NotTls) => Err(DenialError::NotTls.into()),
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

    /// Checks the head of one HTTP request, and takes its host as the connection's name if
    /// the address was pinned for it. An error without a host, with `CONNECT`, with a full
    /// URL of another host, with another port than the connection's, with a host that has no
    /// pin for this address, and after the last head that `heads_left` permits.
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
            return Err(
                DenialError::Foreign(format!("{}:{}", host.host, host.port.unwrap_or(0))).into()
            );
        }
        Ok(self.choose_name(&host.host)?)
    }

    /// Relays both directions.
    pub(super) fn relay(&mut self, memory: &mut RelayMemory) -> StepResult {
        let Some(mut server) = self.server.take() else { return Ok(FlowState::Done) };
        let result = self.relay_with(&mut server, memory);
        self.server = Some(server);
        result
    }

    /// Moves bytes in both directions once. Towards the server, requests pass only after
    /// their check. `Busy`: there may be more to move at once. `Done`: both directions have
    /// ended.
    fn relay_with(&mut self, server: &mut Endpoint, memory: &mut RelayMemory) -> StepResult {
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

    /// Relays a connection on a port that is neither for TLS nor for HTTP. If the client
    /// speaks first, looks at its first bytes: those of TLS or HTTP must name a permitted
    /// host, others pass unseen. Waits while the bytes could become either. The server may
    /// speak first meanwhile.
    fn guess(
        &mut self,
        server: &mut Endpoint,
        memory: &mut RelayMemory,
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
            (false, true) => return Err(DenialError::Nameless.into()),
        }
        self.inspection = Inspection::Nothing;
        let early = std::mem::take(&mut self.early);
        self.up.hold(&early, memory)?;
        match self.requests.is_some() {
            true => self.pump_requests(server, memory),
            false => Ok(self.up.pump(&mut self.client, server, memory)?),
        }
    }

    /// Moves bytes from the client to the server like `pump`. Reads every request on the way
    /// and passes only bytes that belong to checked ones. A forbidden request is an error;
    /// its bytes never reach the server.
    fn pump_requests(
        &mut self,
        server: &mut Endpoint,
        memory: &mut RelayMemory,
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

    /// Looks, without taking them, at the first bytes of the server's answer after a request
    /// for another protocol. With status 101, the client's bytes are no longer read as
    /// requests; with another final status they are. Then the bytes that waited go to the server first. If the
    /// first 12 bytes are not there yet, are no HTTP/1 status line or have another status 1xx,
    /// or if the socket fails, nothing is decided and the bytes go on waiting. The only errors:
    /// the bytes that waited are refused as a request, or the memory for held bytes is full.
    fn watch_switch(
        &mut self,
        server: &mut Endpoint,
        memory: &mut RelayMemory,
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
