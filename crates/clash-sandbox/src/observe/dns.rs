//! Decodes socket addresses and DNS queries of an observed program. Its memory can contain
//! any bytes.

use std::ffi::OsString;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The address of a socket: an internet address, or the path of a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SocketTarget {
    Internet(SocketAddr),
    Unix(PathBuf),
}

pub(crate) fn path(bytes: &[u8]) -> PathBuf {
    OsString::from_vec(bytes.to_vec()).into()
}

/// The eight bytes from `at` on as a number in native byte order. `None` if there are fewer.
pub(crate) fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Decodes a `sockaddr`. `None` for other families, an abstract or unnamed Unix socket, and
/// too few bytes.
pub(crate) fn parse_socket_address(bytes: &[u8]) -> Option<SocketTarget> {
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = || Some(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?));
    match i32::from(family) {
        libc::AF_INET => {
            let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(SocketTarget::Internet((Ipv4Addr::from(ip), port()?).into()))
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            Some(SocketTarget::Internet((Ipv6Addr::from(ip).to_canonical(), port()?).into()))
        }
        libc::AF_UNIX => {
            let name = bytes.get(2..)?;
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            // An abstract name is no file.
            (end > 0).then(|| SocketTarget::Unix(path(name.get(..end).unwrap_or_default())))
        }
        _ => None,
    }
}

/// The name whose address a DNS query asks for, in lower case. `None` for everything else,
/// for a name of one label, and for one with unusual characters.
pub(crate) fn parse_dns_query(bytes: &[u8]) -> Option<String> {
    const ADDRESSES: [u16; 3] = [1, 28, 65]; // A, AAAA, HTTPS
    let short = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    // A standard query with one question and no answers.
    if short(2)? & 0xf80f != 0 || short(4)? != 1 || short(6)? != 0 || short(8)? != 0 {
        return None;
    }
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        let label = bytes.get(at..at + length).filter(|_| length < 64)?;
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !label.iter().all(plain) {
            return None;
        }
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += length;
    }
    let of_addresses = ADDRESSES.contains(&short(at)?) && short(at + 2)? == 1;
    (of_addresses && labels.len() > 1).then(|| labels.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn query(name: &str) -> Vec<u8> {
        let mut bytes = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            bytes.push(u8::try_from(label.len()).unwrap());
            bytes.extend(label.as_bytes());
        }
        bytes.extend([0, 0, 1, 0, 1]);
        bytes
    }

    #[test]
    fn a_query_names_a_host() {
        assert_eq!(
            parse_dns_query(&query("Index.Example.test")).as_deref(),
            Some("index.example.test")
        );
        assert_eq!(parse_dns_query(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"), None);
        assert_eq!(parse_dns_query(&query("a.b")[..14]), None);
    }

    #[test]
    fn addresses_are_read_as_the_kernel_reads_them() {
        let mut v4 = u16::try_from(libc::AF_INET).unwrap().to_ne_bytes().to_vec();
        v4.extend([1, 187, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            parse_socket_address(&v4),
            Some(SocketTarget::Internet("127.0.0.1:443".parse().unwrap()))
        );
        let mut unix = u16::try_from(libc::AF_UNIX).unwrap().to_ne_bytes().to_vec();
        unix.extend(b"/run/x\0junk");
        assert_eq!(parse_socket_address(&unix), Some(SocketTarget::Unix("/run/x".into())));
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_looked_at(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = (parse_socket_address(&bytes), parse_dns_query(&bytes), number(&bytes, 70));
        }
    }
}
