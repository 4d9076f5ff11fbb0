//! Addresses of allowed names, from the hosts file and the name servers of the host.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
};

use super::poll::{Token, TokenKind};
use super::{Gate, GateHost};
use crate::dns::{
    DnsAnswer, DnsQuery, MAX_MESSAGE_BYTES, RecordKind, ServerAnswer, read_answer, write_query,
};
use crate::name::DomainName;
use crate::record::{ConnectionRecord, DenialError};

const TRY_TIME: Duration = Duration::from_millis(2500);
const ROUNDS: usize = 2;
const MAX_LIFE_SECONDS: u32 = 60;
const FAILURE_LIFE: Duration = Duration::from_secs(2);
const MAX_CACHED: usize = 2048;
/// Lookups that wait for a server. A room that asks for more gets no answer for a while.
const MAX_OPEN: usize = 256;

/// The party that waits for an answer.
#[derive(Clone, Debug)]
pub(super) enum LookupWaiter {
    Datagram {
        peer: SocketAddr,
        query: DnsQuery,
    },
    Stream {
        connection: (u32, u16),
        query: DnsQuery,
    },
    Proxy {
        connection: (u32, u16),
    },
    /// The gate itself, at its start.
    Nobody,
}

#[derive(Debug)]
pub(super) struct Lookup {
    name: DomainName,
    kind: RecordKind,
    id: u16,
    servers: Vec<SocketAddr>,
    tries: usize,
    socket: Option<OwnedFd>,
    /// The bytes of an answer by TCP.
    stream: Option<Vec<u8>>,
    until: Instant,
    waiters: Vec<LookupWaiter>,
}

type CachedAnswer = (Instant, DnsAnswer);

#[derive(Debug, Default)]
pub(super) struct LookupCache {
    answers: HashMap<(DomainName, RecordKind), CachedAnswer>,
    open: HashMap<(DomainName, RecordKind), (u32, u16)>,
}

/// True if this machine has the address: only then can a socket be bound to it.
pub(super) fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind(SocketAddr::new(address, 0)).is_ok()
}

/// True if this machine has a way to the address. No packet is sent.
fn has_route(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    UdpSocket::bind(SocketAddr::new(any, 0))
        .is_ok_and(|socket| socket.connect(SocketAddr::new(address, 53)).is_ok())
}

fn random_id() -> u16 {
    let mut bytes = [0; 2];
    let _ = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    u16::from_ne_bytes(bytes)
}

impl<H: GateHost> Gate<H> {
    /// Finds the addresses of an allowed name, and answers `waiter` now or later: from the
    /// cache, from the host's hosts file, or from a name server. Equal lookups share one
    /// query. With `MAX_OPEN` lookups the answer is `ServerFailure`.
    pub(super) fn look_up(&mut self, name: &DomainName, kind: RecordKind, waiter: LookupWaiter) {
        let key = (name.clone(), kind);
        if let Some((until, answer)) = self.cache.answers.get(&key)
            && *until > Instant::now()
        {
            let answer = answer.clone();
            return self.deliver(name, waiter, &answer);
        }
        let written = self.upstream.hosts().into_iter().filter(|(_, known)| known == name);
        let written: Vec<IpAddr> = written.map(|(address, _)| address).collect();
        if !written.is_empty() {
            let fits = |address: &IpAddr| address.is_ipv4() == (kind == RecordKind::V4);
            let addresses: Vec<IpAddr> = written.into_iter().filter(fits).collect();
            let answer = match addresses.is_empty() {
                true => DnsAnswer::NoData,
                false => DnsAnswer::Addresses { addresses, seconds: 5 },
            };
            let answer = self.accept_answer(name, answer);
            return self.deliver(name, waiter, &answer);
        }
        if let Some((at, turn)) = self.cache.open.get(&key)
            && let Some(lookup) = self.lookups.get(*at, *turn)
        {
            lookup.waiters.push(waiter);
            return;
        }
        if self.lookups.len() >= MAX_OPEN {
            return self.deliver(name, waiter, &DnsAnswer::ServerFailure);
        }
        let lookup = Lookup {
            name: name.clone(),
            kind,
            id: random_id(),
            servers: self.upstream.servers(),
            tries: 0,
            socket: None,
            stream: None,
            until: Instant::now(),
            waiters: vec![waiter],
        };
        let (at, turn) = self.lookups.add(lookup);
        self.cache.open.insert(key, (at, turn));
        self.send_query(Token::new(TokenKind::Lookup, at, turn), false);
    }

    /// Sends the query to the next name server, or by TCP (`by_stream`) to the server that
    /// was asked last. Skips servers that cannot be reached at once. After `ROUNDS` rounds
    /// over all servers the lookup ends with `ServerFailure`.
    fn send_query(&mut self, token: Token, by_stream: bool) {
        let Some(lookup) = self.lookups.get(token.slot, token.turn) else { return };
        loop {
            if let Some(old) = lookup.socket.take() {
                self.queue.forget(&old);
            }
            let count = lookup.servers.len().max(1);
            if lookup.tries >= count * ROUNDS {
                return self.end_lookup(token, DnsAnswer::ServerFailure);
            }
            let at = if by_stream { lookup.tries.saturating_sub(1) } else { lookup.tries };
            let server = lookup.servers.get(at % count).copied();
            lookup.tries += usize::from(!by_stream);
            let Some(server) = server else {
                return self.end_lookup(token, DnsAnswer::ServerFailure);
            };
            let Ok(socket) = query_socket(server, by_stream) else {
                if by_stream {
                    return self.end_lookup(token, DnsAnswer::ServerFailure);
                }
                continue;
            };
            let message = write_query(lookup.id, &lookup.name, lookup.kind);
            let sent = if by_stream {
                lookup.stream = Some(Vec::new());
                self.queue.watch_stream(&socket, token)
            } else {
                lookup.stream = None;
                let sent = send(&socket, &message, SendFlags::NOSIGNAL).map(drop);
                sent.and_then(|()| self.queue.watch(&socket, token))
            };
            if sent.is_err() {
                continue;
            }
            lookup.socket = Some(socket);
            self.timers.remove(&(lookup.until, token));
            lookup.until = Instant::now() + TRY_TIME;
            self.timers.insert((lookup.until, token));
            return;
        }
    }

    pub(super) fn retry_lookup(&mut self, token: Token) {
        self.send_query(token, false);
    }

    /// Reads the answer of a name server. Bytes that do not answer this query are dropped,
    /// and the lookup waits on. A truncated answer is asked for again by TCP. A failure or a
    /// closed port leads to the next server.
    pub(super) fn continue_lookup(&mut self, token: Token) {
        let Some(lookup) = self.lookups.get(token.slot, token.turn) else { return };
        let Some(socket) = &lookup.socket else { return };
        let mut buffer = [0; MAX_MESSAGE_BYTES];
        let message = match &mut lookup.stream {
            None => match recv(socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((length, _)) => buffer.get(..length).map(<[u8]>::to_vec),
                Err(Errno::AGAIN | Errno::INTR) => return,
                // Refused: no server is there.
                Err(_) => return self.send_query(token, false),
            },
            Some(stream) => match read_stream(socket, lookup.id, &lookup.name, lookup.kind, stream)
            {
                Ok(None) => return,
                Ok(message) => message,
                Err(_) => return self.end_lookup(token, DnsAnswer::ServerFailure),
            },
        };
        let message = message.unwrap_or_default();
        match read_answer(&message, lookup.id, &lookup.name, lookup.kind) {
            // Not the answer: go on waiting.
            None => {}
            Some(ServerAnswer::Truncated) if lookup.stream.is_none() => {
                self.send_query(token, true)
            }
            Some(ServerAnswer::Truncated) => self.end_lookup(token, DnsAnswer::ServerFailure),
            Some(ServerAnswer::Final(DnsAnswer::ServerFailure)) if lookup.stream.is_none() => {
                self.send_query(token, false);
            }
            Some(ServerAnswer::Final(answer)) => self.end_lookup(token, answer),
        }
    }

    /// Ends a lookup: judges the addresses, keeps the answer in the cache for its time, and
    /// gives it to all that wait for it. A full cache is emptied first.
    fn end_lookup(&mut self, token: Token, answer: DnsAnswer) {
        let Some(lookup) = self.lookups.take(token.slot, token.turn) else { return };
        self.timers.remove(&(lookup.until, token));
        if let Some(socket) = &lookup.socket {
            self.queue.forget(socket);
        }
        let key = (lookup.name.clone(), lookup.kind);
        self.cache.open.remove(&key);
        let answer = self.accept_answer(&lookup.name, answer);
        let life = match &answer {
            DnsAnswer::Addresses { seconds, .. } => Duration::from_secs(u64::from(*seconds)),
            _ => FAILURE_LIFE,
        };
        if self.cache.answers.len() >= MAX_CACHED {
            self.cache.answers.clear();
        }
        self.cache.answers.insert(key, (Instant::now() + life, answer.clone()));
        for waiter in lookup.waiters {
            self.deliver(&lookup.name, waiter, &answer);
        }
    }

    /// Keeps the addresses that may be dialled and have a route, and pins them. Without one
    /// the answer is empty, and a refused address is recorded. The answer lives at most
    /// `MAX_LIFE_SECONDS`.
    fn accept_answer(&mut self, name: &DomainName, answer: DnsAnswer) -> DnsAnswer {
        let DnsAnswer::Addresses { addresses, seconds } = answer else { return answer };
        let mut kept = Vec::new();
        let mut refused = None;
        for address in addresses {
            match self.check_address(address) {
                Ok(()) if has_route(address) => kept.push(address),
                Ok(()) => {}
                Err(denial) => refused = Some((address, denial)),
            }
        }
        for address in &kept {
            self.pin(name, *address);
        }
        if kept.is_empty() {
            if let Some((address, denial)) = refused {
                self.record_refused(name, address, denial);
            }
            return DnsAnswer::NoData;
        }
        DnsAnswer::Addresses { addresses: kept, seconds: seconds.min(MAX_LIFE_SECONDS) }
    }

    /// Records an address of a name server's answer that must not be dialled.
    fn record_refused(&mut self, name: &DomainName, address: IpAddr, denial: DenialError) {
        let program = self.last_program.as_ref().and_then(|(_, program)| program.clone());
        self.deny(ConnectionRecord {
            program: program.map(|program| program.name),
            name: Some(name.to_string()),
            address: Some(address),
            ..ConnectionRecord::denied(denial)
        });
    }
}

/// A socket to a name server that never blocks. The connection of a stream may not be
/// complete.
fn query_socket(server: SocketAddr, by_stream: bool) -> Result<OwnedFd, Errno> {
    let family = if server.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let kind = if by_stream { SocketType::STREAM } else { SocketType::DGRAM };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Connected, so that the kernel drops answers of other senders.
    let socket = socket_with(family, kind, flags, None)?;
    match connect(&socket, &server) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Writes the query when the stream is connected, and reads the answer. `None` if it is not
/// complete.
fn read_stream(
    socket: &OwnedFd,
    id: u16,
    name: &DomainName,
    kind: RecordKind,
    stream: &mut Vec<u8>,
) -> Result<Option<Vec<u8>>, Errno> {
    const ASKED: u8 = 0xff;
    if stream.is_empty() {
        let query = write_query(id, name, kind);
        let length = u16::try_from(query.len()).unwrap_or(0).to_be_bytes();
        match send(socket, &[&length[..], &query].concat(), SendFlags::NOSIGNAL) {
            Ok(_) => stream.push(ASKED),
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    loop {
        let mut buffer = [0; 2048];
        match recv(socket, &mut buffer[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(Errno::PIPE),
            Ok((count, _)) => stream.extend(buffer.get(..count).unwrap_or_default()),
            Err(Errno::AGAIN | Errno::INTR) => break,
            Err(error) => return Err(error),
        }
        if stream.len() > usize::from(u16::MAX) {
            return Err(Errno::MSGSIZE);
        }
    }
    let [_, high, low, message @ ..] = stream.as_slice() else { return Ok(None) };
    let length = usize::from(*high) << 8 | usize::from(*low);
    Ok(message.get(..length).map(<[u8]>::to_vec))
}
