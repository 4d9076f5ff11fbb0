//! Servers in a room: the ports on which other commands of the session, and the user's
//! browser, reach them.
//!
//! Nothing listens outside before a server listens in the room, so a port that is taken fails
//! no command. The launcher makes unbound sockets in the host's network. The process in the
//! room's network looks every 100 ms for new servers. When a server listens on a served port,
//! the process binds a socket of the host's loopback to this port, and a unix socket in the
//! session's directory. Rooms of the same session that start later reach the unix socket
//! under the same port of their own loopback. No other port of the host becomes reachable.
//!
//! | name in the directory | |
//! |---|---|
//! | `3000` | the unix socket |
//! | `3000.lock` | locked by the process that serves the port |

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, mkdirat, openat};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// The longest time between two looks at the room's servers, in the first minute.
const LOOK_PAUSE: Duration = Duration::from_millis(40);
/// The same after the first minute.
const LATER_LOOK_PAUSE: Duration = Duration::from_millis(250);
const LOCK_PAUSE: Duration = Duration::from_millis(5);
const FIRST_TIME: Duration = Duration::from_secs(60);
/// A server on a port that is not served is reported after this time. Tests open many.
const REPORT_AFTER: Duration = Duration::from_secs(2);
/// Ports from here on are chosen by the kernel, so no user expects to reach them.
const FIRST_CHOSEN_PORT: u16 = 32768;
const MOST_REPORTS: usize = 3;
/// The part of the kernel's list of sockets that is read.
const MAX_LIST_BYTES: u64 = 64 * 1024;
/// Connections that wait in the kernel.
const BACKLOG: i32 = 128;

/// The directory of the session in which its rooms find each other's servers.
pub(crate) struct ServerExchange(OwnedFd);

impl std::fmt::Debug for ServerExchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ServerExchange({})", self.0.as_raw_fd())
    }
}

impl ServerExchange {
    /// Opens the directory, and makes it if it is missing.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(CWD, path, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => {
                mkdirat(CWD, path, Mode::RWXU)?;
                Ok(Self(openat(CWD, path, flags, Mode::empty())?))
            }
            opened => Ok(Self(opened?)),
        }
    }

    /// Those of the ports on which a server of the session listens now.
    pub(crate) fn live(&self, ports: &[u16]) -> Vec<u16> {
        let is_live = |port: &&u16| {
            let name = format!("{port}.lock");
            let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let lock = openat(&self.0, name, flags, Mode::empty());
            lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared).is_err())
        };
        ports.iter().filter(is_live).copied().collect()
    }

    /// Makes the directory the working directory of this process, for names of sockets: the
    /// kernel limits their length, and the path may lead out of the room.
    pub(super) fn enter(&self) -> io::Result<()> {
        Ok(rustix::process::fchdir(&self.0)?)
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// The sockets of the host's network, not yet bound.
#[derive(Debug)]
pub(crate) struct ServedSockets {
    sockets: BTreeMap<u16, Vec<OwnedFd>>,
    exchange: Option<ServerExchange>,
}

impl ServedSockets {
    /// Makes a socket for each port and version of IP. Call this in the host's network.
    pub(crate) fn make(ports: &[u16], exchange: Option<ServerExchange>) -> io::Result<Self> {
        let mut sockets = BTreeMap::new();
        for port in ports {
            let make = |family| {
                let made = rustix::net::socket_with(
                    family,
                    SocketType::STREAM,
                    SocketFlags::CLOEXEC,
                    None,
                )?;
                sockopt::set_socket_reuseaddr(&made, true)?;
                Ok::<OwnedFd, rustix::io::Errno>(made)
            };
            let second = make(AddressFamily::INET6).and_then(|made| {
                sockopt::set_ipv6_v6only(&made, true)?;
                Ok(made)
            });
            // Some machines have no IPv6.
            let both = [Some(make(AddressFamily::INET)?), second.ok()];
            sockets.insert(*port, both.into_iter().flatten().collect());
        }
        Ok(Self { sockets, exchange })
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let sockets = self.sockets.values().flatten().map(AsRawFd::as_raw_fd);
        sockets.chain(self.exchange.iter().map(ServerExchange::descriptor))
    }
}

/// Looks for servers in the room and publishes them.
pub(super) struct ServerWatch {
    waiting: BTreeMap<u16, Vec<OwnedFd>>,
    exchange: Option<ServerExchange>,
    /// The locks of published ports. The kernel releases them with the process.
    locks: Vec<OwnedFd>,
    published: BTreeSet<u16>,
    started: Instant,
    /// Servers on ports that are not served, and the time of their first sight.
    others: BTreeMap<u16, Instant>,
    reported: usize,
}

/// A listening socket, and the port of the room that it leads to.
pub(super) type PublishedListener = (u16, OwnedFd);

impl ServerWatch {
    pub(super) fn new(ServedSockets { sockets, exchange }: ServedSockets) -> Self {
        if let Some(exchange) = &exchange {
            let _ = exchange.enter();
        }
        Self {
            waiting: sockets,
            exchange,
            locks: Vec::new(),
            published: BTreeSet::new(),
            started: Instant::now(),
            others: BTreeMap::new(),
            reported: 0,
        }
    }

    /// The time until the next look.
    pub(super) fn pause(&self) -> Duration {
        if self.started.elapsed() < FIRST_TIME { LOOK_PAUSE } else { LATER_LOOK_PAUSE }
    }

    /// Publishes the servers that listen since the last look. Says on standard error if a
    /// port is taken on this machine, or if a server's port is not served.
    pub(super) fn look(&mut self) -> Vec<PublishedListener> {
        let listening = listening_ports();
        let mut made = Vec::new();
        for port in &listening {
            match self.waiting.remove(port) {
                Some(sockets) => made.extend(self.publish(*port, sockets)),
                None if self.published.contains(port) => {}
                None => self.note_other(*port),
            }
        }
        self.others.retain(|port, _| listening.contains(port));
        made
    }

    fn publish(&mut self, port: u16, sockets: Vec<OwnedFd>) -> Vec<PublishedListener> {
        self.published.insert(port);
        let mut made = Vec::new();
        match self.share(port) {
            Ok(listener) => made.extend(listener.map(|listener| (port, listener))),
            Err(_) => {
                say(&format!("port {port} is served by another command of this session already"))
            }
        }
        let is_shared = !made.is_empty();
        let addresses = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let mut is_taken = false;
        for (socket, address) in sockets.into_iter().zip(addresses) {
            let bound = rustix::net::bind(&socket, &SocketAddr::new(address, port))
                .and_then(|()| rustix::net::listen(&socket, BACKLOG));
            match bound {
                Ok(()) => made.push((port, socket)),
                Err(rustix::io::Errno::ADDRNOTAVAIL | rustix::io::Errno::AFNOSUPPORT) => {}
                Err(_) => is_taken = true,
            }
        }
        if is_taken {
            let others = if is_shared { "; other commands of this session do" } else { "" };
            say(&format!(
                "port {port} of this machine is taken: your browser does not reach this server{others}"
            ));
        }
        made
    }

    /// Listens on the unix socket of the session. `None` without a session.
    fn share(&mut self, port: u16) -> io::Result<Option<OwnedFd>> {
        let Some(exchange) = &self.exchange else { return Ok(None) };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = openat(&exchange.0, format!("{port}.lock"), flags, Mode::RUSR | Mode::WUSR)?;
        // A launcher that looks at the port holds the lock for a moment.
        let try_lock = || flock(&lock, FlockOperation::NonBlockingLockExclusive);
        if try_lock().is_err() {
            std::thread::sleep(LOCK_PAUSE);
            try_lock()?;
        }
        let name = port.to_string();
        match std::fs::remove_file(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&name)?;
        self.locks.push(lock);
        Ok(Some(listener.into()))
    }

    fn note_other(&mut self, port: u16) {
        let since = self.others.entry(port).or_insert_with(Instant::now);
        if port >= FIRST_CHOSEN_PORT || since.elapsed() < REPORT_AFTER {
            return;
        }
        self.published.insert(port);
        if self.reported < MOST_REPORTS {
            self.reported += 1;
            say(&format!(
                "port {port} is not served: only this command reaches the server. \
                 `serve = [{port}]` in its sandbox changes that"
            ));
        }
    }

    /// Removes the sockets of the session. The locks end with the process.
    pub(super) fn end(&self) {
        if self.exchange.is_some() && !self.locks.is_empty() {
            for port in &self.published {
                let _ = std::fs::remove_file(port.to_string());
            }
        }
    }
}

/// Writes a line to standard error, which is the command's own until it ends.
fn say(text: &str) {
    let _ = io::stderr().write_all(format!("clash: {text}\n").as_bytes());
}

/// The ports of the room's loopback on which servers listen.
fn listening_ports() -> BTreeSet<u16> {
    let mut found = BTreeSet::new();
    for list in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        let mut text = String::new();
        let opened = std::fs::File::open(list);
        if opened.and_then(|file| file.take(MAX_LIST_BYTES).read_to_string(&mut text)).is_ok() {
            found.extend(text.lines().filter_map(listening_port));
        }
    }
    found
}

/// The port in a line of the kernel's list, if it is a server on the loopback or on every
/// address: `0: 0100007F:0BB8 00000000:0000 0A …`.
fn listening_port(line: &str) -> Option<u16> {
    const LISTENING: &str = "0A";
    let mut words = line.split_whitespace();
    let local = words.nth(1)?;
    if words.nth(1)? != LISTENING {
        return None;
    }
    let (address, port) = local.split_once(':')?;
    let is_any = address.bytes().all(|byte| byte == b'0');
    let is_loopback = match address.len() {
        8 => address.ends_with("7F"),
        _ => address == "00000000000000000000000001000000" || address.ends_with("FFFF00000100007F"),
    };
    (is_any || is_loopback).then(|| u16::from_str_radix(port, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_the_loopback_are_found_in_the_list() {
        let line = |local: &str, state: &str| {
            listening_port(&format!("   0: {local} 00000000:0000 {state} 00000000:00000000 00:0"))
        };
        assert_eq!(line("0100007F:0BB8", "0A"), Some(3000));
        assert_eq!(line("00000000:1F90", "0A"), Some(8080));
        assert_eq!(line("00000000000000000000000001000000:1435", "0A"), Some(5173));
        assert_eq!(line("00000000000000000000000000000000:1435", "0A"), Some(5173));
        assert_eq!(line("0100007F:0BB8", "01"), None);
        assert_eq!(line("0100000A:0BB8", "0A"), None);
        assert_eq!(line("sl", "st"), None);
    }

    #[test]
    fn a_port_is_live_only_while_its_process_holds_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("served");
        let exchange = ServerExchange::open(&path).unwrap();
        assert_eq!(exchange.live(&[3000, 8080]), [] as [u16; 0]);
        let lock = std::fs::File::create(path.join("3000.lock")).unwrap();
        assert_eq!(exchange.live(&[3000, 8080]), [] as [u16; 0]);
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(ServerExchange::open(&path).unwrap().live(&[3000, 8080]), [3000]);
        drop(lock);
        assert_eq!(exchange.live(&[3000]), [] as [u16; 0]);
    }
}
