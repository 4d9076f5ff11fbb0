//! Connections that the gate does not carry: a program gets the socket itself.
//!
//! Where the rules need no look at the bytes, the launcher's monitor asks the gate before a
//! program connects. The gate judges the address and gives a socket of the host's network.
//! The monitor connects it, puts it in the place of the program's own socket, and reports the
//! result. Both ends of the line are in processes outside the room.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg,
    socket_with,
};

/// A message from the monitor to the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoverMessage {
    pub purpose: HandoverPurpose,
    /// The address as the program dialled it; an IPv6 socket may dial a mapped one.
    pub address: IpAddr,
    pub port: u16,
    /// The process that connects.
    pub process: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoverPurpose {
    /// Asks for a socket; the gate answers.
    Order,
    /// The connection was made, or failed with this error number. No answer.
    Report { error: i32, millis: u32 },
}

/// The answer of the gate to an order.
#[derive(Debug)]
pub enum HandoverAnswer {
    /// The gate has to carry the connection, or to refuse it.
    Relay,
    /// Not connected, and of the host's network.
    Socket(OwnedFd),
}

const MESSAGE_BYTES: usize = 32;
const RELAY: u8 = b'r';
const SOCKET: u8 = b's';

impl HandoverMessage {
    fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let (report, error, millis) = match self.purpose {
            HandoverPurpose::Order => (0_u8, 0, 0),
            HandoverPurpose::Report { error, millis } => (1, error, millis),
        };
        let address = match self.address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let mut message = [0; MESSAGE_BYTES];
        let parts: [&[u8]; 7] = [
            &[report],
            &[u8::from(self.address.is_ipv6())],
            &self.port.to_ne_bytes(),
            &self.process.to_ne_bytes(),
            &error.to_ne_bytes(),
            &millis.to_ne_bytes(),
            &address.octets(),
        ];
        for (to, from) in message.iter_mut().zip(parts.concat()) {
            *to = from;
        }
        message
    }

    fn decode(message: &[u8; MESSAGE_BYTES]) -> Option<Self> {
        let part = |at: usize| message.get(at..at + 4)?.try_into().ok();
        let octets: [u8; 16] = message.get(16..32)?.try_into().ok()?;
        let v6 = Ipv6Addr::from(octets);
        let address = match message.get(1)? {
            0 => IpAddr::V4(v6.to_ipv4_mapped()?),
            _ => IpAddr::V6(v6),
        };
        let purpose = match message.first()? {
            0 => HandoverPurpose::Order,
            _ => HandoverPurpose::Report {
                error: i32::from_ne_bytes(part(8)?),
                millis: u32::from_ne_bytes(part(12)?),
            },
        };
        let port = u16::from_ne_bytes(message.get(2..4)?.try_into().ok()?);
        Some(Self { purpose, address, port, process: i32::from_ne_bytes(part(4)?) })
    }

    /// Sends an order and waits for its answer, which repeats it. An answer to another order
    /// is dropped: the process that sent that order did not live to take it.
    pub fn ask(&self, line: &OwnedFd) -> Result<HandoverAnswer, Errno> {
        self.send(line)?;
        loop {
            if let Some(answer) = self.receive_answer(line)? {
                return Ok(answer);
            }
        }
    }

    /// Waits for one answer of the gate. `None` if it answers another order. An answer
    /// without a socket means `Relay`; `EPIPE` at the end of the line.
    fn receive_answer(&self, line: &OwnedFd) -> Result<Option<HandoverAnswer>, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut with = RecvAncillaryBuffer::new(&mut space);
        let mut word = [0; 1];
        let mut order = [0; MESSAGE_BYTES];
        loop {
            let parts = &mut [IoSliceMut::new(&mut word), IoSliceMut::new(&mut order)];
            match recvmsg(line, parts, &mut with, RecvFlags::CMSG_CLOEXEC) {
                Ok(message) if message.bytes == 1 + MESSAGE_BYTES => break,
                Ok(_) => return Err(Errno::PIPE),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        let socket = with.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let answer = match (word, socket) {
            ([SOCKET], Some(socket)) => HandoverAnswer::Socket(socket),
            _ => HandoverAnswer::Relay,
        };
        Ok((order == self.encode()).then_some(answer))
    }

    /// Sends a message without waiting for an answer.
    pub fn send(&self, line: &OwnedFd) -> Result<(), Errno> {
        send(line, &self.encode(), SendFlags::NOSIGNAL).map(drop)
    }

    /// The next message of the monitor. `None` at the end of the line.
    pub fn receive(line: &OwnedFd, flags: RecvFlags) -> Result<Option<Self>, Errno> {
        let mut message = [0; MESSAGE_BYTES];
        match recv(line, &mut message[..], flags)? {
            (_, 0) => Ok(None),
            _ => Self::decode(&message).map(Some).ok_or(Errno::BADMSG),
        }
    }

    /// A new socket for this order.
    pub fn new_socket(&self) -> Result<OwnedFd, Errno> {
        let family = match self.address {
            IpAddr::V4(_) => AddressFamily::INET,
            IpAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socket_with(family, SocketType::STREAM, flags, None)
    }
}

impl HandoverAnswer {
    /// Answers an order.
    pub fn send(&self, order: &HandoverMessage, line: &OwnedFd) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut with = SendAncillaryBuffer::new(&mut space);
        let word = match self {
            Self::Relay => RELAY,
            Self::Socket(_) => SOCKET,
        };
        let fds: [BorrowedFd<'_>; 1];
        if let Self::Socket(socket) = self {
            fds = [socket.as_fd()];
            if !with.push(SendAncillaryMessage::ScmRights(&fds)) {
                return Err(Errno::MSGSIZE);
            }
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let order = order.encode();
        let parts = [IoSlice::new(std::slice::from_ref(&word)), IoSlice::new(&order)];
        sendmsg(line, &parts, &mut with, flags).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_another_order_is_dropped() {
        use rustix::net::{SocketFlags, SocketType, socketpair};
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let order = |port| HandoverMessage {
            purpose: HandoverPurpose::Order,
            address: "10.1.2.3".parse().unwrap(),
            port,
            process: 7,
        };
        let socket = order(22).new_socket().unwrap();
        HandoverAnswer::Socket(socket).send(&order(22), &theirs).unwrap();
        HandoverAnswer::Relay.send(&order(23), &theirs).unwrap();
        assert!(matches!(order(23).ask(&ours), Ok(HandoverAnswer::Relay)));
    }

    #[test]
    fn a_message_survives_its_encoding() {
        let report = HandoverPurpose::Report { error: 111, millis: 70_000 };
        for (purpose, address) in [
            (HandoverPurpose::Order, "10.1.2.3"),
            (HandoverPurpose::Order, "::ffff:10.1.2.3"),
            (report, "fd00::1"),
        ] {
            let address = address.parse().unwrap();
            let message = HandoverMessage { purpose, address, port: 5432, process: 70_000 };
            assert_eq!(HandoverMessage::decode(&message.encode()), Some(message));
        }
    }
}
