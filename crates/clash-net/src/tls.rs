//! The server name in the first message of a TLS client. Every length comes from a hostile
//! program and is checked before use.

use crate::name::DomainName;

/// The start of a stream that may be TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientHello {
    /// The message is not complete yet.
    Partial,
    /// The name of the server that the client asks for.
    Named(DomainName),
    /// TLS without a server name.
    Nameless,
    NotTls,
}

/// Real clients send less than 4 KiB; post-quantum keys need the most.
pub const MAX_HELLO_BYTES: usize = 18 * 1024;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// Reads the records at the start of a stream, and the server name in them. `Partial` if more
/// bytes may change the answer; a hello that is too long is no TLS.
pub fn read_client_hello(stream: &[u8]) -> ClientHello {
    let mut message = Vec::new();
    let mut rest = Bytes(stream);
    loop {
        if rest.0.is_empty() {
            return ClientHello::Partial;
        }
        match rest.0 {
            [HANDSHAKE, 3, 0..=4, ..] | [HANDSHAKE] | [HANDSHAKE, 3] => {}
            _ => return ClientHello::NotTls,
        }
        let Some(record) = rest.skip(3).and_then(|()| rest.number(2)).map(|n| (n, rest.take(n)))
        else {
            return too_long(stream);
        };
        match record {
            (0, _) => return ClientHello::NotTls,
            (_, Some(part)) => message.extend_from_slice(part),
            (_, None) => return too_long(stream),
        }
        match message.as_slice() {
            [CLIENT_HELLO, a, b, c, body @ ..] => {
                let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
                if length > MAX_HELLO_BYTES {
                    return ClientHello::NotTls;
                }
                if let Some(body) = body.get(..length) {
                    return server_name(body);
                }
            }
            [CLIENT_HELLO, ..] => {}
            _ => return ClientHello::NotTls,
        }
    }
}

fn too_long(stream: &[u8]) -> ClientHello {
    if stream.len() > MAX_HELLO_BYTES { ClientHello::NotTls } else { ClientHello::Partial }
}

fn server_name(body: &[u8]) -> ClientHello {
    match extensions(body).map(find_name) {
        Some(Some(Ok(name))) => ClientHello::Named(name),
        Some(Some(Err(()))) | None => ClientHello::NotTls,
        Some(None) => ClientHello::Nameless,
    }
}

/// The extensions; empty if the message has none, `None` if it is malformed.
fn extensions(body: &[u8]) -> Option<&[u8]> {
    let mut body = Bytes(body);
    body.skip(2 + 32)?;
    let session = body.number(1)?;
    body.skip(session)?;
    let ciphers = body.number(2)?;
    body.skip(ciphers)?;
    let compression = body.number(1)?;
    body.skip(compression)?;
    if body.0.is_empty() {
        return Some(&[]);
    }
    let length = body.number(2)?;
    body.take(length).filter(|_| body.0.is_empty())
}

/// The server name, if there is one. Two of them, or a malformed one, is an error: the gate
/// and the server could choose different ones.
fn find_name(extensions: &[u8]) -> Option<Result<DomainName, ()>> {
    let mut rest = Bytes(extensions);
    let mut found = None;
    while !rest.0.is_empty() {
        let (Some(kind), Some(length)) = (rest.number(2), rest.number(2)) else {
            return Some(Err(()));
        };
        let Some(content) = rest.take(length) else { return Some(Err(())) };
        if kind == usize::from(SERVER_NAME) {
            if found.is_some() {
                return Some(Err(()));
            }
            found = Some(one_name(content).ok_or(()));
        }
    }
    found
}

/// The host name of a `server_name` extension, if it has exactly one name, and that is a
/// permitted one.
fn one_name(content: &[u8]) -> Option<DomainName> {
    let mut list = Bytes(content);
    let length = list.number(2)?;
    let mut entry = Bytes(list.take(length).filter(|_| list.0.is_empty())?);
    let kind = entry.number(1)?;
    let length = entry.number(2)?;
    let name = entry.take(length).filter(|_| entry.0.is_empty())?;
    let name = std::str::from_utf8(name).ok().filter(|_| kind == usize::from(HOST_NAME))?;
    DomainName::parse(name)
}

/// The rest of a message.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.take(count).map(drop)
    }

    /// A number of at most four bytes.
    fn number(&mut self, bytes: usize) -> Option<usize> {
        let bytes = self.take(bytes)?;
        Some(bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with_length(bytes: &[u8], width: usize) -> Vec<u8> {
        let length = bytes.len().to_be_bytes();
        [length.get(8 - width..).unwrap(), bytes].concat()
    }

    fn name_extension(name: &[u8]) -> Vec<u8> {
        let entry = [&[0][..], &with_length(name, 2)].concat();
        [&[0, 0][..], &with_length(&with_length(&entry, 2), 2)].concat()
    }

    /// The handshake message with these extensions.
    fn message(extensions: &[u8]) -> Vec<u8> {
        let body =
            [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0], &with_length(extensions, 2)];
        [&[1][..], &with_length(&body.concat(), 3)].concat()
    }

    fn records(message: &[u8], size: usize) -> Vec<u8> {
        let record = |part: &[u8]| [&[22, 3, 1][..], &with_length(part, 2)].concat();
        message.chunks(size).flat_map(record).collect()
    }

    pub(crate) fn hello(name: &str) -> Vec<u8> {
        records(&message(&name_extension(name.as_bytes())), 16000)
    }

    #[test]
    fn the_server_name_is_read() {
        let named = |name: &str| ClientHello::Named(DomainName::parse(name).unwrap());
        assert_eq!(read_client_hello(&hello("Example.org")), named("example.org"));
        let other = [&[0, 10, 0, 1, 7][..], &name_extension(b"a.test")].concat();
        assert_eq!(read_client_hello(&records(&message(&other), 5)), named("a.test"));
        assert_eq!(read_client_hello(&records(&message(&[]), 99)), ClientHello::Nameless);
    }

    #[test]
    fn doubtful_messages_are_no_tls() {
        let twice = [name_extension(b"a.test"), name_extension(b"b.test")].concat();
        for extensions in [twice, name_extension(b"a.test\0b"), name_extension(b"127.0.0.1")] {
            assert_eq!(
                read_client_hello(&records(&message(&extensions), 999)),
                ClientHello::NotTls
            );
        }
        assert_eq!(read_client_hello(b"SSH-2.0-x\r\n"), ClientHello::NotTls);
        assert_eq!(read_client_hello(b"\x16\x03\x01\0\0"), ClientHello::NotTls);
        assert_eq!(read_client_hello(b"\x16\x03\x01\xff\xff\x02"), ClientHello::Partial);
    }

    proptest! {
        #[test]
        fn every_prefix_is_partial(size in 1_usize..90) {
            let whole = records(&message(&name_extension(b"a.test")), size);
            for end in 0..whole.len() {
                prop_assert_eq!(read_client_hello(whole.get(..end).unwrap()), ClientHello::Partial);
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let _ = read_client_hello(&bytes);
            let _ = read_client_hello(&records(&message(&bytes), 100));
        }
    }
}
