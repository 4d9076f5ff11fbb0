//! HTTP/1 requests: the host that each one asks for, on connections and at the proxy. Every
//! request of a kept connection is read, so that none can ask for another host.

use crate::name::DomainName;

/// The largest head of a request that the gate reads.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;
const MAX_HEADERS: usize = 128;
const MAX_CHUNK_LINE_BYTES: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    #[error("this is no HTTP/1 request")]
    Malformed,
    #[error("the request has no `Host`")]
    NoHost,
    #[error("the request has several `Host`s, or lengths that contradict each other")]
    Ambiguous,
    #[error("the request names a proxy target")]
    ProxyForm,
}

/// A host and a port, as HTTP writes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// A name, or the text of an address without brackets.
    pub host: String,
    pub port: Option<u16>,
}

impl Authority {
    /// Reads `name`, `name:port`, `1.2.3.4:port` or `[::1]:port`. `None` if the host is
    /// neither an address nor a permitted name, or the port is no number.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix('[') {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            let port = match port.strip_prefix(':') {
                Some(port) => Some(parse_port(port)?),
                None if port.is_empty() => None,
                None => return None,
            };
            return Some(Self { host: host.to_owned(), port });
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(parse_port(port)?)),
            None => (text, None),
        };
        if host.parse::<std::net::Ipv4Addr>().is_ok() {
            return Some(Self { host: host.to_owned(), port });
        }
        let name = DomainName::parse(host)?;
        Some(Self { host: name.as_str().to_owned(), port })
    }
}

fn parse_port(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port > 0)
}

/// The head of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead {
    pub method: String,
    pub target: String,
    pub host: Option<Authority>,
    pub body: BodyFraming,
    /// True if the client wants to leave HTTP/1, for example for a WebSocket.
    pub upgrade: bool,
    /// The length of the head.
    pub bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    Length(u64),
    Chunked,
}

/// Reads the head of a request. `Ok(None)` if it is not complete.
pub fn read_head(stream: &[u8]) -> Result<Option<RequestHead>, HttpError> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let bytes = match request.parse(stream).map_err(|_| HttpError::Malformed)? {
        httparse::Status::Complete(bytes) => bytes,
        httparse::Status::Partial if stream.len() > MAX_HEAD_BYTES => {
            return Err(HttpError::Malformed);
        }
        httparse::Status::Partial => return Ok(None),
    };
    let (Some(method), Some(target)) = (request.method, request.path) else {
        return Err(HttpError::Malformed);
    };
    let mut head = RequestHead {
        method: method.to_owned(),
        target: target.to_owned(),
        host: None,
        body: BodyFraming::Length(0),
        upgrade: false,
        bytes,
    };
    let (mut length, mut chunked) = (None, false);
    for header in request.headers.iter() {
        let value = std::str::from_utf8(header.value).map(str::trim);
        match header.name.to_ascii_lowercase().as_str() {
            "host" => {
                let host = value.ok().and_then(Authority::parse).ok_or(HttpError::NoHost)?;
                if head.host.replace(host).is_some() {
                    return Err(HttpError::Ambiguous);
                }
            }
            "content-length" => {
                let text = value.map_err(|_| HttpError::Malformed)?;
                let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
                let number = text.parse::<u64>().ok().filter(|_| digits);
                let number = number.ok_or(HttpError::Malformed)?;
                if length.replace(number).is_some() {
                    return Err(HttpError::Ambiguous);
                }
            }
            "transfer-encoding" => {
                if chunked || !value.is_ok_and(|value| value.eq_ignore_ascii_case("chunked")) {
                    return Err(HttpError::Ambiguous);
                }
                chunked = true;
            }
            "upgrade" => head.upgrade = true,
            _ => {}
        }
    }
    head.body = match (length, chunked) {
        (Some(_), true) => return Err(HttpError::Ambiguous),
        (None, true) => BodyFraming::Chunked,
        (length, false) => BodyFraming::Length(length.unwrap_or(0)),
    };
    Ok(Some(head))
}

/// Follows the requests of one connection.
#[derive(Debug, Default)]
pub struct RequestStream {
    state: StreamState,
    /// The part of a head or of a chunk line that has arrived.
    partial: Vec<u8>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum StreamState {
    #[default]
    Head,
    Body(u64),
    ChunkLine,
    /// The data of a chunk and the line end after it.
    Chunk(u64),
    Trailer,
    /// After a request that wants to leave HTTP/1, until the server has answered.
    Undecided,
    /// No longer HTTP/1.
    Other,
}

impl RequestStream {
    /// Takes bytes of the client. `pass` gets the bytes that may be passed on; the bytes of a
    /// head are among them after the caller has judged it with `judge`.
    pub fn take<E: From<HttpError>>(
        &mut self,
        bytes: &[u8],
        pass: &mut Vec<u8>,
        mut judge: impl FnMut(&RequestHead) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match &mut self.state {
                StreamState::Other => {
                    pass.extend_from_slice(rest);
                    return Ok(());
                }
                StreamState::Undecided => {
                    // A client waits for the answer before it speaks another protocol.
                    self.partial.extend_from_slice(rest);
                    return match self.partial.len() > MAX_HEAD_BYTES {
                        true => Err(HttpError::Malformed.into()),
                        false => Ok(()),
                    };
                }
                StreamState::Body(left) | StreamState::Chunk(left) => {
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    let (body, after) = rest.split_at_checked(count).unwrap_or((rest, &[]));
                    pass.extend_from_slice(body);
                    *left -= count as u64;
                    rest = after;
                    if *left == 0 {
                        self.state = match self.state {
                            StreamState::Body(_) => StreamState::Head,
                            _ => StreamState::ChunkLine,
                        };
                    }
                }
                StreamState::Head => {
                    self.partial.extend_from_slice(rest);
                    let Some(head) = read_head(&self.partial)? else { return Ok(()) };
                    judge(&head)?;
                    rest = self.end_head(&head, rest, pass);
                }
                StreamState::ChunkLine | StreamState::Trailer => {
                    let end = rest.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
                    let count = end.unwrap_or(rest.len());
                    let (line, after) = rest.split_at_checked(count).unwrap_or((rest, &[]));
                    self.partial.extend_from_slice(line);
                    pass.extend_from_slice(line);
                    rest = after;
                    if self.partial.len() > MAX_CHUNK_LINE_BYTES {
                        return Err(HttpError::Malformed.into());
                    }
                    if end.is_some() {
                        let line = std::mem::take(&mut self.partial);
                        self.end_line(&line)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Passes on a judged head. Returns the bytes after it.
    fn end_head<'a>(&mut self, head: &RequestHead, rest: &'a [u8], pass: &mut Vec<u8>) -> &'a [u8] {
        let before = self.partial.len() - rest.len();
        let (passed, _) = self.partial.split_at_checked(head.bytes).unwrap_or((&[], &[]));
        pass.extend_from_slice(passed);
        self.partial.clear();
        self.state = match (head.upgrade, head.body) {
            (true, BodyFraming::Length(0)) => StreamState::Undecided,
            (_, BodyFraming::Length(0)) => StreamState::Head,
            (_, BodyFraming::Length(length)) => StreamState::Body(length),
            (_, BodyFraming::Chunked) => StreamState::ChunkLine,
        };
        rest.get(head.bytes.saturating_sub(before)..).unwrap_or_default()
    }

    /// Takes one whole line of a body in chunks: the length of the next chunk, or a line of
    /// the trailer, whose end lets the next request begin.
    fn end_line(&mut self, line: &[u8]) -> Result<(), HttpError> {
        let text = std::str::from_utf8(line).map_err(|_| HttpError::Malformed)?;
        let text = text.strip_suffix("\r\n").ok_or(HttpError::Malformed)?;
        if self.state == StreamState::Trailer {
            if text.is_empty() {
                self.state = StreamState::Head;
            }
            return Ok(());
        }
        let digits = text.split(';').next().unwrap_or_default();
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let length = u64::from_str_radix(digits, 16).ok().filter(|_| is_number);
        self.state = match length.ok_or(HttpError::Malformed)? {
            0 => StreamState::Trailer,
            length => StreamState::Chunk(length.checked_add(2).ok_or(HttpError::Malformed)?),
        };
        Ok(())
    }

    /// True while the gate waits for the server's answer to a request that leaves HTTP/1.
    pub fn is_undecided(&self) -> bool {
        self.state == StreamState::Undecided
    }

    /// The server has answered such a request. Returns the bytes that waited.
    pub fn decide(&mut self, switched: bool) -> Vec<u8> {
        self.state = if switched { StreamState::Other } else { StreamState::Head };
        std::mem::take(&mut self.partial)
    }

    /// True if the rest of the connection needs no reading.
    pub fn is_other(&self) -> bool {
        self.state == StreamState::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The hosts of all requests, and the passed bytes.
    fn follow(stream: &[u8], piece: usize) -> Result<(Vec<String>, Vec<u8>), HttpError> {
        let (mut requests, mut hosts, mut pass) =
            (RequestStream::default(), Vec::new(), Vec::new());
        for part in stream.chunks(piece) {
            requests.take(part, &mut pass, |head| {
                hosts.push(head.host.clone().ok_or(HttpError::NoHost)?.host);
                Ok(())
            })?;
        }
        Ok((hosts, pass))
    }

    const THREE: &[u8] = b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello\
        POST / HTTP/1.1\r\nHost: b.test:80\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: v\r\n\r\n\
        GET /c HTTP/1.1\r\nHost: C.test.\r\n\r\n";

    #[test]
    fn every_request_of_a_connection_is_seen_in_any_pieces() {
        for piece in 1..THREE.len() {
            let (hosts, pass) = follow(THREE, piece).unwrap();
            assert_eq!(hosts, ["a.test", "b.test", "c.test"], "{piece}");
            assert_eq!(pass, THREE);
        }
    }

    #[test]
    fn nothing_of_a_refused_request_is_passed() {
        let mut requests = RequestStream::default();
        let mut pass = Vec::new();
        let refuse = |head: &RequestHead| match head.host.as_ref().map(|host| host.host.as_str()) {
            Some("a.test") => Ok(()),
            _ => Err(HttpError::NoHost),
        };
        let end = requests.take(THREE, &mut pass, refuse);
        assert_eq!(end, Err(HttpError::NoHost));
        assert!(pass.ends_with(b"hello"), "{}", String::from_utf8_lossy(&pass));
    }

    #[test]
    fn doubtful_requests_are_refused() {
        for (head, error) in [
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", HttpError::Ambiguous),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
                HttpError::Ambiguous,
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
                HttpError::Ambiguous,
            ),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\n", HttpError::Malformed),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
                HttpError::Ambiguous,
            ),
            ("GET / HTTP/1.1\r\n\r\n", HttpError::NoHost),
            ("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", HttpError::NoHost),
            ("SSH-2.0-x\r\n\r\n", HttpError::Malformed),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HttpError::Malformed),
        ] {
            assert_eq!(follow(head.as_bytes(), 7), Err(error), "{head}");
        }
        let bad = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n";
        assert_eq!(follow(bad, 9), Err(HttpError::Malformed));
    }

    #[test]
    fn another_protocol_begins_only_when_the_server_agrees() {
        let mut requests = RequestStream::default();
        let ask = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n";
        let evil = b"GET / HTTP/1.1\r\nHost: evil\r\n\r\n";
        let judge = |head: &RequestHead| match &head.host {
            Some(host) if host.host == "a" => Ok(()),
            _ => Err(HttpError::NoHost),
        };
        let mut pass = Vec::new();
        requests.take(&[&ask[..], evil].concat(), &mut pass, judge).unwrap();
        assert!(requests.is_undecided());
        assert_eq!(pass, ask);
        let waited = requests.decide(false);
        assert_eq!(requests.take(&waited, &mut pass, judge), Err(HttpError::NoHost));
    }

    #[test]
    fn authorities_are_read_in_one_form_only() {
        let read = |text: &str| Authority::parse(text).map(|found| (found.host, found.port));
        assert_eq!(read("A.test:443"), Some(("a.test".into(), Some(443))));
        assert_eq!(read("[::1]:80"), Some(("::1".into(), Some(80))));
        assert_eq!(read("10.0.0.1"), Some(("10.0.0.1".into(), None)));
        for text in [
            "", ":80", "a:", "a:0", "a:+1", "a:99999", "[::1", "[x]", "u@a", "0x7f.1", "a b", "a/b",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, piece in 1_usize..50) {
            let _ = follow(&bytes, piece);
            let _ = follow(&[&b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"[..], &bytes].concat(), piece);
        }
    }
}
