//! Calls on the sockets of a command.

use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, OwnedFd};

use libc::{c_int, c_long, socklen_t};
use rustix::io::Errno;

use super::check;

/// The network namespace of a socket, Linux 5.14.
const SO_NETNS_COOKIE: c_int = 71;
const NETLINK_SOCK_DIAG: c_int = 4;
/// `SOCK_DIAG_BY_FAMILY`
const DIAG_BY_FAMILY: u16 = 20;
const HEADER_BYTES: usize = 16;
const DIAG_BYTES: usize = 16;
/// `UDIAG_SHOW_VFS`, and the attribute with its answer.
const SHOW_FILE: u32 = 2;
const ATTRIBUTE_FILE: u16 = 1;

type SocketResult<T> = Result<T, Errno>;

fn raw(answer: c_int) -> SocketResult<c_int> {
    check(c_long::from(answer))
        .map(|_| answer)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// `getsockopt` at the level `SOL_SOCKET`, for an option whose value is an integer.
fn option<T: Copy>(socket: &OwnedFd, name: c_int) -> SocketResult<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `value`.
    raw(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    })?;
    // SAFETY: all bytes are initialised, and `T` is an integer here.
    Ok(unsafe { value.assume_init() })
}

/// The family and the network namespace of a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketFacts {
    pub(crate) domain: c_int,
    network: u64,
}

impl SocketFacts {
    pub(crate) fn of(socket: &OwnedFd) -> SocketResult<Self> {
        let domain = option::<c_int>(socket, libc::SO_DOMAIN)?;
        Ok(Self { domain, network: option::<u64>(socket, SO_NETNS_COOKIE)? })
    }
}

/// True if a descriptor is an internet socket of the calling thread's network namespace.
pub(crate) fn is_internet_socket_here(fd: &OwnedFd) -> bool {
    let Ok(facts) = SocketFacts::of(fd) else { return false };
    // Where the own network cannot be told, every internet socket counts.
    matches!(facts.domain, libc::AF_INET | libc::AF_INET6)
        && SocketDiagnosis::new().map_or(true, |own| own.is_of_same_network(&facts))
}

/// Connects a socket to an address as the caller gave it.
pub(crate) fn connect_to(socket: &OwnedFd, address: &[u8]) -> SocketResult<()> {
    let length = address.len() as socklen_t;
    // SAFETY: the kernel reads `length` bytes of the address.
    raw(unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), length) }).map(drop)
}

/// Connects a unix socket to a path.
pub(crate) fn connect_to_path(socket: &OwnedFd, path: &[u8]) -> SocketResult<()> {
    let family = (libc::AF_UNIX as libc::sa_family_t).to_ne_bytes();
    connect_to(socket, &[&family[..], path, &[0]].concat())
}

/// Gives the calling thread a working directory of its own.
pub(crate) fn use_own_directory() -> SocketResult<()> {
    // SAFETY: takes an integer, and changes only the calling thread.
    raw(unsafe { libc::unshare(libc::CLONE_FS) }).map(drop)
}

/// Lists the unix sockets of the network namespace in which it was made.
#[derive(Debug)]
pub(crate) struct SocketDiagnosis {
    socket: OwnedFd,
    network: u64,
}

impl SocketDiagnosis {
    /// For the network namespace of the calling thread.
    pub(crate) fn new() -> SocketResult<Self> {
        use std::os::fd::FromRawFd;
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: takes integers.
        let fd = raw(unsafe { libc::socket(libc::AF_NETLINK, kind, NETLINK_SOCK_DIAG) })?;
        // SAFETY: the kernel has just made this descriptor.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let network = SocketFacts::of(&socket)?.network;
        Ok(Self { socket, network })
    }

    pub(crate) fn is_of_same_network(&self, facts: &SocketFacts) -> bool {
        facts.network == self.network
    }

    /// True if a socket of this network namespace is bound to the file with this device and
    /// inode. The kernel reports the lower 32 bits of the inode.
    pub(crate) fn has_socket(&self, device: u64, inode: u64) -> SocketResult<bool> {
        let device = libc::major(device) << 20 | libc::minor(device);
        self.ask()?;
        let mut found = false;
        let mut buffer = vec![0_u8; 32 * 1024];
        loop {
            // SAFETY: the kernel writes at most `buffer.len()` bytes.
            let length = unsafe {
                libc::recv(self.socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0)
            };
            let length = usize::try_from(length).map_err(|_| Errno::IO)?;
            let mut messages = buffer.get(..length).ok_or(Errno::IO)?;
            while let Some((kind, body, rest)) = split_message(messages) {
                match c_int::from(kind) {
                    libc::NLMSG_DONE => return Ok(found),
                    libc::NLMSG_ERROR => return Err(Errno::ACCESS),
                    _ => found |= bound_file(body) == Some((inode as u32, device)),
                }
                messages = rest;
            }
        }
    }

    /// Asks the kernel (`sock_diag`) for all unix sockets of the network namespace, in any
    /// state, with the inodes of their files. The answers are read afterwards.
    fn ask(&self) -> SocketResult<()> {
        const REQUEST_AND_DUMP: u16 = 0x301;
        let mut request = Vec::with_capacity(40);
        request.extend(40_u32.to_ne_bytes());
        request.extend(DIAG_BY_FAMILY.to_ne_bytes());
        request.extend(REQUEST_AND_DUMP.to_ne_bytes());
        request.extend([0; 8]);
        request.extend([libc::AF_UNIX as u8, 0, 0, 0]);
        for word in [u32::MAX, 0, SHOW_FILE, 0, 0] {
            request.extend(word.to_ne_bytes());
        }
        // SAFETY: the kernel reads the request.
        let sent = unsafe {
            libc::send(self.socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0)
        };
        if usize::try_from(sent) == Ok(request.len()) { Ok(()) } else { Err(Errno::ACCESS) }
    }
}

fn word_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// The type and body of the first netlink message, and the messages behind it. `None` if it
/// is cut short.
fn split_message(messages: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(word_at(messages, 0)?) as usize;
    let kind = u16::from_ne_bytes(word_at(messages, 4)?);
    let body = messages.get(HEADER_BYTES..length)?;
    Some((kind, body, messages.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// The inode and device of the file to which a socket is bound.
fn bound_file(body: &[u8]) -> Option<(u32, u32)> {
    let mut attributes = body.get(DIAG_BYTES..)?;
    loop {
        let length = usize::from(u16::from_ne_bytes(word_at(attributes, 0)?));
        let kind = u16::from_ne_bytes(word_at(attributes, 2)?);
        if kind == ATTRIBUTE_FILE {
            let inode = u32::from_ne_bytes(word_at(attributes, 4)?);
            return Some((inode, u32::from_ne_bytes(word_at(attributes, 8)?)));
        }
        if length < 4 {
            return None;
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}
