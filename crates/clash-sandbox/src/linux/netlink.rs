//! Messages to the kernel's routing socket: the link between a room and its gate, its
//! addresses and routes. Messages are built on the stack, because the helper process must not
//! allocate.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// The address of the gate, which is also the room's resolver, and that of the room. The
/// range belongs to a transition technology (RFC 7335), so no host on the network has it.
pub(crate) const GATE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 1);
const ROOM_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 2);
const GATE_V6: Ipv6Addr = Ipv6Addr::new(0xfd9e, 0x6a7e, 0, 0, 0, 0, 0, 1);
const ROOM_V6: Ipv6Addr = Ipv6Addr::new(0xfd9e, 0x6a7e, 0, 0, 0, 0, 0, 2);
const V4_BITS: u8 = 30;
const V6_BITS: u8 = 64;

/// The number of the link in both namespaces. Some kernels make tunnels with low numbers in
/// every new namespace.
const LINK: i32 = 1000;
const LOOPBACK: i32 = 1;
/// The largest packets that the kernel permits on such a link: fewer of them carry more.
const LINK_MTU: u32 = 65535;

/// A socket to the routing tables of the calling process's network namespace.
pub(crate) fn route_socket() -> Result<OwnedFd, Errno> {
    // The routing protocol is number 0, the default.
    socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)
}

/// The protocol number of a packet socket.
pub(crate) fn packet_protocol(number: u16) -> Option<Protocol> {
    std::num::NonZeroU32::new(u32::from(number.to_be())).map(Protocol::from_raw)
}

/// Joins the namespaces of two routing sockets: `gate` gets all addresses but those of the
/// room, and the room reaches every address through it.
pub(crate) fn join_networks(
    room: &OwnedFd,
    gate: &OwnedFd,
    gate_namespace: &OwnedFd,
) -> Result<(), Errno> {
    // Kernels before 6.3 know no such packets.
    make_link(room, gate_namespace, true).or_else(|_| make_link(room, gate_namespace, false))?;
    for (socket, v4, v6) in [(room, ROOM_V4, ROOM_V6), (gate, GATE_V4, GATE_V6)] {
        add_address(socket, v4.into(), V4_BITS)?;
        // A machine without IPv6 has none here either.
        let _ = add_address(socket, v6.into(), V6_BITS);
        set_link_up(socket)?;
    }
    add_route(room, RouteKind::Through(GATE_V4.into()))?;
    add_route(gate, RouteKind::Local(false))?;
    let _ = add_route(room, RouteKind::Through(GATE_V6.into()));
    let _ = add_route(gate, RouteKind::Local(true));
    Ok(())
}

/// Makes the veth link: `net0` in the room, whose routing socket this is, and `gate` in the
/// gate's namespace. Neither end is up yet. `big` lets the kernel pass several packets as one.
fn make_link(room: &OwnedFd, gate_namespace: &OwnedFd, big: bool) -> Result<(), Errno> {
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let mut message = RouteMessage::new(libc::RTM_NEWLINK, flags);
    message.link_header(0);
    message.attribute(libc::IFLA_IFNAME, b"net0\0");
    message.attribute(libc::IFLA_MTU, &LINK_MTU.to_ne_bytes());
    message.packet_sizes(big);
    let info = message.begin(libc::IFLA_LINKINFO);
    message.attribute(libc::IFLA_INFO_KIND, b"veth");
    let data = message.begin(libc::IFLA_INFO_DATA);
    const VETH_INFO_PEER: u16 = 1;
    let peer = message.begin(VETH_INFO_PEER);
    message.link_header(0);
    message.attribute(libc::IFLA_IFNAME, b"gate\0");
    message.attribute(libc::IFLA_MTU, &LINK_MTU.to_ne_bytes());
    message.packet_sizes(big);
    message.attribute(libc::IFLA_NET_NS_FD, &gate_namespace.as_raw_fd().to_ne_bytes());
    for start in [peer, data, info] {
        message.end(start);
    }
    message.exchange(room)
}

fn set_link_up(socket: &OwnedFd) -> Result<(), Errno> {
    let mut message = RouteMessage::new(libc::RTM_NEWLINK, 0);
    message.link_header(libc::IFF_UP as u32);
    message.exchange(socket)
}

/// Adds an address to a link. An address that is there already is an error.
fn add_address(socket: &OwnedFd, address: IpAddr, bits: u8) -> Result<(), Errno> {
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let mut message = RouteMessage::new(libc::RTM_NEWADDR, flags);
    // Nothing else is on the link, so no check for duplicates delays the address.
    const NO_DUPLICATE_CHECK: u8 = 0x02;
    message.push(&[family(address), bits, NO_DUPLICATE_CHECK, 0]);
    message.push(&LINK.to_ne_bytes());
    message.address(libc::IFA_LOCAL, address);
    message.address(libc::IFA_ADDRESS, address);
    message.exchange(socket)
}

enum RouteKind {
    /// Every address is reached through this one.
    Through(IpAddr),
    /// Every address is one of this namespace; of IPv6 if true.
    Local(bool),
}

/// Adds one route to the main table: the default route through an address, or the rule that
/// every address is local.
fn add_route(socket: &OwnedFd, kind: RouteKind) -> Result<(), Errno> {
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let mut message = RouteMessage::new(libc::RTM_NEWROUTE, flags);
    let (family, scope, what) = match kind {
        RouteKind::Through(to) => (family(to), libc::RT_SCOPE_UNIVERSE, libc::RTN_UNICAST),
        RouteKind::Local(true) => (libc::AF_INET6 as u8, libc::RT_SCOPE_HOST, libc::RTN_LOCAL),
        RouteKind::Local(false) => (libc::AF_INET as u8, libc::RT_SCOPE_HOST, libc::RTN_LOCAL),
    };
    // In the main table: in the local one the room's own address would be local too, and the
    // kernel would drop its packets.
    message.push(&[family, 0, 0, 0, libc::RT_TABLE_MAIN, libc::RTPROT_BOOT, scope, what]);
    message.push(&0_u32.to_ne_bytes());
    let link = match kind {
        RouteKind::Through(to) => {
            message.address(libc::RTA_GATEWAY, to);
            LINK
        }
        RouteKind::Local(_) => LOOPBACK,
    };
    message.attribute(libc::RTA_OIF, &link.to_ne_bytes());
    message.exchange(socket)
}

fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

const MAX_MESSAGE_BYTES: usize = 256;
const HEADER_BYTES: usize = 16;

/// A message under construction.
struct RouteMessage {
    bytes: [u8; MAX_MESSAGE_BYTES],
    length: usize,
}

impl RouteMessage {
    fn new(kind: u16, flags: i32) -> Self {
        let mut message = Self { bytes: [0; MAX_MESSAGE_BYTES], length: HEADER_BYTES };
        let flags = (flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        message.put(4, &kind.to_ne_bytes());
        message.put(6, &flags.to_ne_bytes());
        message
    }

    fn put(&mut self, at: usize, value: &[u8]) {
        if let Some(place) = self.bytes.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    }

    fn push(&mut self, value: &[u8]) {
        self.put(self.length, value);
        self.length = (self.length + value.len()).next_multiple_of(4);
    }

    /// `struct ifinfomsg` of the link.
    fn link_header(&mut self, up: u32) {
        self.push(&[0; 4]);
        self.push(&LINK.to_ne_bytes());
        self.push(&up.to_ne_bytes());
        self.push(&up.to_ne_bytes());
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = u16::try_from(4 + value.len()).unwrap_or(4);
        self.put(self.length, &length.to_ne_bytes());
        self.put(self.length + 2, &kind.to_ne_bytes());
        self.length += 4;
        self.push(value);
    }

    fn packet_sizes(&mut self, big: bool) {
        const GSO_MAX_SIZE: u16 = 41;
        const GSO_MAX_SIZE_V4: u16 = 63;
        const PACKET_BYTES: u32 = 192 * 1024;
        for kind in [GSO_MAX_SIZE, GSO_MAX_SIZE_V4] {
            if big {
                self.attribute(kind, &PACKET_BYTES.to_ne_bytes());
            }
        }
    }

    fn address(&mut self, kind: u16, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => self.attribute(kind, &v4.octets()),
            IpAddr::V6(v6) => self.attribute(kind, &v6.octets()),
        }
    }

    /// Begins an attribute that contains others.
    fn begin(&mut self, kind: u16) -> usize {
        let start = self.length;
        self.attribute(kind, &[]);
        start
    }

    fn end(&mut self, start: usize) {
        let length = u16::try_from(self.length - start).unwrap_or(0);
        self.put(start, &length.to_ne_bytes());
    }

    /// Sends the message and waits for the kernel's answer. The error is the one that the
    /// kernel reports.
    fn exchange(mut self, socket: &OwnedFd) -> Result<(), Errno> {
        let length = u32::try_from(self.length).unwrap_or(0);
        self.put(0, &length.to_ne_bytes());
        let message = self.bytes.get(..self.length).ok_or(Errno::MSGSIZE)?;
        send(socket, message, SendFlags::empty())?;
        let mut answer = [0_u8; 1024];
        let (_, count) = recv(socket, &mut answer[..], RecvFlags::empty())?;
        let code = answer.get(HEADER_BYTES..HEADER_BYTES + 4).filter(|_| count >= HEADER_BYTES + 4);
        let code = code.and_then(|code| <[u8; 4]>::try_from(code).ok()).ok_or(Errno::BADMSG)?;
        match i32::from_ne_bytes(code) {
            0 => Ok(()),
            code => Err(Errno::from_raw_os_error(code.saturating_neg())),
        }
    }
}
