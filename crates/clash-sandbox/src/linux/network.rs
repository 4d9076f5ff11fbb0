//! The two network namespaces of a room with host rules.
//!
//! The room has a loopback and a link to the *gate namespace*. There, every address is local,
//! so the kernel delivers each connection of the room to a socket of the gate, or refuses it
//! at once if the gate does not listen on that address and port. The gate namespace has no
//! other link: no packet of the room leaves the machine.

use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use clash_net::GateSockets;
use rustix::io::Errno;
use rustix::net::sockopt::{set_ip_freebind, set_socket_reuseaddr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, SendAncillaryBuffer,
    SendAncillaryMessage, SocketFlags, SocketType, bind, listen, socket_with,
};

use super::netlink::{GATE_V4, join_networks, packet_protocol, route_socket};
use super::sys;

/// The resolver, its streams, the proxy and the packet socket.
const FIXED_SOCKETS: usize = 4;
/// The most unbound sockets of each family.
const SPARE_V4: usize = 64;
const SPARE_V6: usize = 32;
/// The unbound sockets beside one for each port. A socket costs several microseconds at the
/// start, and without a free one the gate listens on all addresses of a port.
const FREE_V4: usize = 16;
const FREE_V6: usize = 8;
const MAX_GATE_SOCKETS: usize = FIXED_SOCKETS + SPARE_V4 + 1 + SPARE_V6;

pub(crate) const PROXY_PORT: u16 = 3128;
const ETHERTYPE_V4: u16 = 0x0800;
const ETHERTYPE_V6: u16 = 0x86dd;

/// The sockets of a gate that have to be made in its namespace.
#[derive(Debug)]
pub(crate) struct GateDescriptors {
    all: [Option<OwnedFd>; MAX_GATE_SOCKETS],
}

/// Makes the two namespaces for the calling process, which is in the room's afterwards. The
/// rules allow this number of ports. Does not allocate.
pub(crate) fn make_gated_network(ports: usize) -> Result<GateDescriptors, Errno> {
    let io = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL);
    sys::unshare(libc::CLONE_NEWNET).map_err(io)?;
    sys::loopback_up().map_err(io)?;
    let gate = route_socket()?;
    let gate_namespace = sys::namespace_of_socket(&gate).map_err(io)?;
    let sockets = GateDescriptors::make(ports)?;
    sys::unshare(libc::CLONE_NEWNET).map_err(io)?;
    sys::loopback_up().map_err(io)?;
    let room = route_socket()?;
    join_networks(&room, &gate, &gate_namespace)?;
    Ok(sockets)
}

impl GateDescriptors {
    /// Makes the gate's sockets, some for each of this number of ports, in the present network namespace: resolver and proxy are
    /// bound, and listen. The two packet sockets, and everything of IPv6, may be missing.
    /// Allocates nothing, because the helper process calls it.
    fn make(ports: usize) -> Result<Self, Errno> {
        let mut all = [const { None }; MAX_GATE_SOCKETS];
        let flags = SocketFlags::CLOEXEC;
        let mut places = all.iter_mut();
        let (v4, v6) = (AddressFamily::INET, AddressFamily::INET6);
        let fixed =
            [(SocketType::DGRAM, 53), (SocketType::STREAM, 53), (SocketType::STREAM, PROXY_PORT)];
        for (kind, port) in fixed {
            let socket = socket_with(v4, kind, flags, None)?;
            set_ip_freebind(&socket, true)?;
            set_socket_reuseaddr(&socket, true)?;
            bind(&socket, &SocketAddr::new(GATE_V4.into(), port))?;
            if kind == SocketType::STREAM {
                listen(&socket, 128)?;
            }
            places.next().map(|place| place.replace(socket));
        }
        let sighting = |protocol, v6| {
            let packets = AddressFamily::PACKET;
            let socket = socket_with(packets, SocketType::DGRAM, flags, packet_protocol(protocol))?;
            sys::only_first_packets(&socket, v6)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))?;
            Ok::<_, Errno>(socket)
        };
        // Without it, refused connections are not recorded.
        let first = sighting(ETHERTYPE_V4, false).ok();
        places.next().map(|place| std::mem::replace(place, first));
        for number in 0..SPARE_V4 {
            let Some(place) = places.next() else { continue };
            if number < FREE_V4 + ports {
                *place = Some(socket_with(v4, SocketType::STREAM, flags, None)?);
            }
        }
        // A machine may have no IPv6.
        let first = sighting(ETHERTYPE_V6, true).ok();
        places.next().map(|place| std::mem::replace(place, first));
        for place in places.take(FREE_V6 + ports) {
            *place = socket_with(v6, SocketType::STREAM, flags, None).ok();
        }
        Ok(Self { all })
    }

    /// Sends the sockets. The message says which there are.
    pub(crate) fn send(&self, to: BorrowedFd<'_>, word: [u8; 2]) -> Result<(), Errno> {
        let mut message = [0; 2 + MAX_GATE_SOCKETS];
        let (start, there) = message.split_at_mut(2);
        start.copy_from_slice(&word);
        let mut fds = [to; MAX_GATE_SOCKETS];
        let mut count = 0;
        for (socket, mark) in self.all.iter().zip(there) {
            if let (Some(socket), Some(place)) = (socket, fds.get_mut(count)) {
                *mark = 1;
                *place = socket.as_fd();
                count += 1;
            }
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_GATE_SOCKETS))];
        let mut with = SendAncillaryBuffer::new(&mut space);
        let fds = fds.get(..count).unwrap_or_default();
        if !with.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Errno::MSGSIZE);
        }
        sys::send(std::os::fd::AsRawFd::as_raw_fd(&to), &message, &mut with).map(drop)
    }

    /// Receives sockets that [`GateDescriptors::send`] has sent with this word. `None` if the
    /// other side has closed or sent anything else.
    pub(crate) fn receive(from: BorrowedFd<'_>, word: [u8; 2]) -> Option<Self> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_GATE_SOCKETS))];
        let mut with = RecvAncillaryBuffer::new(&mut space);
        let mut message = [0; 2 + MAX_GATE_SOCKETS];
        let from = std::os::fd::AsRawFd::as_raw_fd(&from);
        let length = sys::receive(from, &mut message, &mut with).ok()?;
        let (start, there) = message.split_at_checked(2)?;
        if length != message.len() || start != word {
            return None;
        }
        let mut fds = with.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })?;
        let mut all = [const { None }; MAX_GATE_SOCKETS];
        for (place, mark) in all.iter_mut().zip(there) {
            if *mark == 1 {
                *place = Some(fds.next()?);
            }
        }
        Some(Self { all })
    }

    /// The sockets as the gate takes them. `None` without those of the resolver.
    pub(crate) fn into_sockets(self, loopback: Vec<(u16, TcpListener)>) -> Option<GateSockets> {
        let mut all = self.all.into_iter();
        let mut next = || all.next().flatten();
        let names = UdpSocket::from(next()?);
        let name_streams = TcpListener::from(next()?);
        let proxy = next().map(TcpListener::from);
        let first_v4 = next();
        let spare_v4: Vec<OwnedFd> = (0..SPARE_V4).filter_map(|_| next()).collect();
        let first_v6 = next();
        let spare_v6 = all.flatten().collect();
        let sightings = [first_v4, first_v6].into_iter().flatten().collect();
        let orders = None;
        Some(GateSockets {
            names,
            name_streams,
            proxy,
            loopback,
            spare_v4,
            spare_v6,
            sightings,
            orders,
        })
    }
}

/// The resolver of a room, as its programs read it.
pub(crate) fn resolver_text() -> String {
    let gate: Ipv4Addr = GATE_V4;
    format!(
        "# The names of this sandbox are resolved by clash.\nnameserver {gate}\noptions timeout:30\n"
    )
}
