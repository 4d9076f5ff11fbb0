//! Gives a program a connected socket of the host's network, so that no process has to carry
//! the bytes.
//!
//! The gate or the port forwarder outside judges the address and makes the socket
//! (`clash_net::handover`). The monitor connects it and puts it in the place of the program's
//! own one, with the same options. The program cannot use it for anything else: each
//! `connect` goes to the monitor, which refuses a socket of another network; the filter
//! refuses the other ways to connect (`MSG_FASTOPEN`) and source routes; `listen` fails on a
//! socket that the kernel counts as connected, and it stays so after a disconnection.
//!
//! A descriptor is replaced, not the socket behind it. So the monitor keeps to the way through
//! the gate if the program has the socket twice, waits for it with epoll, or has bound it. It
//! looks at the descriptors of the calling process only: a child that got a copy of the
//! unconnected socket before keeps that one.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clash_net::HostRules;
use clash_net::handover::{HandoverAnswer, HandoverMessage, HandoverPurpose};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Dir, Mode, OFlags, fcntl_setfl, fstat, openat, readlinkat};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, getsockname, socketpair};

use super::super::sys;
use super::MonitorState;
use crate::plan::room::RoomPlan;

/// The time to connect for a program that waits for it.
const DIAL_TIME: Duration = Duration::from_secs(10);
/// The time for a program that wants no wait. After it the gate connects.
const SHORT_DIAL_TIME: Duration = Duration::from_millis(500);
/// A process with more descriptors is not searched.
const MAX_SEARCHED: usize = 1024;

/// The monitor's end of the line, and the addresses for which an order makes sense.
#[derive(Debug)]
pub(crate) struct HandoverLine {
    line: Mutex<OwnedFd>,
    /// Ports of the host's loopback.
    reached: Vec<u16>,
    /// Ports of other hosts.
    ports: Vec<u16>,
}

impl HandoverLine {
    /// The two ends of a line, if programs of this room get sockets.
    pub(crate) fn new(room: &RoomPlan) -> Option<(Self, OwnedFd)> {
        if !room.hands_over() {
            return None;
        }
        let reached = room.ports.reached.clone();
        let rules = room.ports.gate.as_ref().map(|net| HostRules::new(net.clone()));
        let ports = rules.map(|rules| rules.handover_ports()).unwrap_or_default();
        if reached.is_empty() && ports.is_empty() {
            return None;
        }
        let kind = SocketType::SEQPACKET;
        let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let (line, orders) = pair.ok()?;
        Some((Self { line: Mutex::new(line), reached, ports }, orders))
    }

    fn wants(&self, address: IpAddr, port: u16) -> bool {
        let canonical = address.to_canonical();
        if canonical.is_loopback() {
            let is_first = matches!(canonical, IpAddr::V4(v4) if v4.octets() == [127, 0, 0, 1]);
            return (is_first || canonical.is_ipv6()) && self.reached.contains(&port);
        }
        !canonical.is_unspecified() && self.ports.contains(&port)
    }
}

/// A connection that may get a socket of the host's network.
#[derive(Debug)]
pub(super) struct HandoverAttempt {
    message: HandoverMessage,
    /// The caller's number of the descriptor.
    number: i32,
}

impl HandoverAttempt {
    /// `None` if this address always takes the way through the gate.
    pub(super) fn new(
        shared: &MonitorState,
        process: i32,
        number: i32,
        domain: i32,
        address: &[u8],
    ) -> Option<Self> {
        let line = shared.handover.as_ref()?;
        let to = read_address(domain, address)?;
        let (address, port) = (to.ip(), to.port());
        let message = HandoverMessage { purpose: HandoverPurpose::Order, address, port, process };
        line.wants(address, port).then_some(Self { message, number })
    }

    /// Connects a socket of the host's network and puts it in the place of `socket`. `None` if
    /// the connection takes the way through the gate, otherwise the result of the call.
    pub(super) fn carry_out(
        &self,
        shared: &MonitorState,
        id: u64,
        socket: &OwnedFd,
    ) -> Option<Result<(), Errno>> {
        let flags = self.plain_socket_flags(shared, socket)?;
        let line = shared.handover.as_ref()?.line.lock().ok()?;
        let HandoverAnswer::Socket(given) = self.message.ask(&line).ok()? else { return None };
        drop(line);
        copy_options(socket, &given);
        let start = Instant::now();
        let is_patient = !flags.contains(OFlags::NONBLOCK);
        let dialled = self.dial(&given, if is_patient { DIAL_TIME } else { SHORT_DIAL_TIME });
        match dialled {
            Ok(()) => {}
            // The forwarder also tries the other family.
            Err(Errno::CONNREFUSED) if self.message.address.to_canonical().is_loopback() => {
                return None;
            }
            Err(Errno::TIMEDOUT) if !is_patient => return None,
            Err(error) => {
                self.report(shared, error.raw_os_error(), start);
                return Some(Err(error));
            }
        }
        let given_flags = if is_patient { OFlags::empty() } else { OFlags::NONBLOCK };
        if fcntl_setfl(&given, given_flags).is_err() || !sys::is_valid(&shared.listener, id) {
            return Some(Err(Errno::SRCH));
        }
        let closes = flags.contains(OFlags::CLOEXEC);
        let put = sys::replace_in_caller(&shared.listener, id, &given, self.number, closes);
        drop(given);
        if put.is_ok() {
            self.report(shared, 0, start);
        }
        Some(put)
    }

    /// The flags of the caller's descriptor. `None` unless it is the only one for a TCP socket
    /// that is neither bound nor connected nor waited for.
    fn plain_socket_flags(&self, shared: &MonitorState, socket: &OwnedFd) -> Option<OFlags> {
        if sockopt::socket_type(socket).ok()? != SocketType::STREAM {
            return None;
        }
        let bound = SocketAddr::try_from(getsockname(socket).ok()?).ok()?;
        if bound.port() != 0 || !bound.ip().is_unspecified() {
            return None;
        }
        let inode = fstat(socket).ok()?.st_ino;
        let process = self.message.process;
        let open = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fds = openat(&shared.processes, format!("{process}/fd"), open, Mode::empty()).ok()?;
        let own = format!("socket:[{inode}]");
        let mut found = 0;
        for (seen, entry) in Dir::read_from(&fds).ok()?.enumerate() {
            let name = entry.ok()?.file_name().to_owned();
            let Ok(link) = readlinkat(&fds, &name, Vec::new()) else { continue };
            if seen >= MAX_SEARCHED {
                return None;
            }
            found += usize::from(link.as_bytes() == own.as_bytes());
            if link.as_bytes() == b"anon_inode:[eventpoll]" {
                let text = self.descriptor_info(shared, name.to_str().ok()?)?;
                let watched = format!("tfd: {:8} ", self.number);
                if text.lines().any(|line| line.starts_with(&watched)) {
                    return None;
                }
            }
        }
        let text = self.descriptor_info(shared, &self.number.to_string())?;
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = u32::from_str_radix(flags.trim(), 8).ok()?;
        (found == 1).then(|| OFlags::from_bits_retain(flags))
    }

    /// The text of `/proc/PID/fdinfo/NUMBER` of the caller.
    fn descriptor_info(&self, shared: &MonitorState, number: &str) -> Option<String> {
        use std::io::Read;
        let path = format!("{}/fdinfo/{number}", self.message.process);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = openat(&shared.processes, path, flags, Mode::empty()).ok()?;
        let mut text = String::new();
        std::fs::File::from(file).read_to_string(&mut text).ok()?;
        Some(text)
    }

    /// Connects within this time. The second `connect` tells the kernel that the result was
    /// taken: only then does the socket count as connected for ever.
    fn dial(&self, given: &OwnedFd, most: Duration) -> Result<(), Errno> {
        let to = SocketAddr::new(self.message.address, self.message.port);
        match connect(given, &to) {
            Ok(()) => return Ok(()),
            Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let end = Instant::now() + most;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let left =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(given, PollFlags::OUT)], Some(&left)) {
                Ok(0) => return Err(Errno::TIMEDOUT),
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        sockopt::socket_error(given)??;
        connect(given, &to)
    }

    fn report(&self, shared: &MonitorState, error: i32, start: Instant) {
        let millis = u32::try_from(start.elapsed().as_millis()).unwrap_or(u32::MAX);
        let purpose = HandoverPurpose::Report { error, millis };
        let line = shared.handover.as_ref().and_then(|line| line.line.lock().ok());
        if let Some(line) = line {
            let _ = HandoverMessage { purpose, ..self.message }.send(&line);
        }
    }
}

/// The internet address that a caller gave for a socket of this domain.
pub(super) fn read_address(domain: i32, bytes: &[u8]) -> Option<SocketAddr> {
    let part = |at: usize| bytes.get(at..at + 2)?.try_into().ok();
    let family = i32::from(u16::from_ne_bytes(part(0)?));
    let port = u16::from_be_bytes(part(2)?);
    let address: IpAddr = match (domain, family) {
        (libc::AF_INET, libc::AF_INET) if bytes.len() >= 16 => {
            <[u8; 4]>::try_from(bytes.get(4..8)?).ok()?.into()
        }
        // A scope is for addresses of a link, which no rule grants.
        (libc::AF_INET6, libc::AF_INET6) if bytes.len() >= 28 && bytes.get(24..28)? == [0; 4] => {
            <[u8; 16]>::try_from(bytes.get(8..24)?).ok()?.into()
        }
        _ => return None,
    };
    (port != 0).then(|| SocketAddr::new(address, port))
}

/// Sets the options that the program may have set before it connects. A new socket that has
/// the same value already is left alone: setting a buffer size fixes it.
fn copy_options(from: &OwnedFd, to: &OwnedFd) {
    macro_rules! copy {
        ($($get:ident $set:ident $change:expr;)*) => {$(
            if let (Ok(wanted), Ok(present)) = (sockopt::$get(from), sockopt::$get(to))
                && wanted != present
            {
                let _ = sockopt::$set(to, $change(wanted));
            }
        )*};
    }
    copy! {
        tcp_nodelay set_tcp_nodelay std::convert::identity;
        socket_keepalive set_socket_keepalive std::convert::identity;
        socket_oobinline set_socket_oobinline std::convert::identity;
        tcp_keepidle set_tcp_keepidle std::convert::identity;
        tcp_keepintvl set_tcp_keepintvl std::convert::identity;
        tcp_keepcnt set_tcp_keepcnt std::convert::identity;
        tcp_user_timeout set_tcp_user_timeout std::convert::identity;
        socket_linger set_socket_linger std::convert::identity;
        // The kernel reports twice the size that was set.
        socket_recv_buffer_size set_socket_recv_buffer_size |size| size / 2;
        socket_send_buffer_size set_socket_send_buffer_size |size| size / 2;
    }
    if sockopt::socket_domain(from) == Ok(AddressFamily::INET) {
        copy! { ip_tos set_ip_tos std::convert::identity; }
    } else {
        copy! { ipv6_v6only set_ipv6_v6only std::convert::identity; }
    }
    for timeout in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
        if let Ok(Some(time)) = sockopt::socket_timeout(from, timeout) {
            let _ = sockopt::set_socket_timeout(to, timeout, Some(time));
        }
    }
}
