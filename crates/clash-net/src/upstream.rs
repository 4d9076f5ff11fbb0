//! The host's side of the gate: its name servers, its hosts file and its proxy.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::http::Authority;
use crate::name::DomainName;

/// A file of the host that is larger is not read.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;
const MAX_SERVERS: usize = 3;

/// Where the gate finds addresses, and the proxy through which it dials.
#[derive(Clone, Debug)]
pub struct Upstream {
    pub resolver_file: PathBuf,
    pub hosts_file: PathBuf,
    pub proxy: Option<UpstreamProxy>,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            resolver_file: "/etc/resolv.conf".into(),
            hosts_file: "/etc/hosts".into(),
            proxy: None,
        }
    }
}

/// The proxy of the user's environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamProxy {
    pub at: Authority,
    /// `user:password` in base64, as the header wants it.
    pub credentials: Option<String>,
    /// Names and addresses that are dialled directly.
    pub except: Vec<String>,
}

impl UpstreamProxy {
    /// Reads the values of `HTTPS_PROXY` and `NO_PROXY`. Only HTTP proxies are known.
    pub fn parse(proxy: &str, except: &str) -> Option<Self> {
        let rest = match proxy.split_once("://") {
            Some(("http", rest)) => rest,
            Some(_) => return None,
            None => proxy,
        };
        let rest = rest.split('/').next().unwrap_or_default();
        let (credentials, at) = match rest.rsplit_once('@') {
            Some((credentials, at)) => (Some(base64(&unescape(credentials))), at),
            None => (None, rest),
        };
        let mut at = Authority::parse(at)?;
        at.port.get_or_insert(80);
        let except = except.split(',').map(|part| part.trim().to_ascii_lowercase());
        let except = except.filter(|part| !part.is_empty()).collect();
        Some(Self { at, credentials, except })
    }

    /// True if this host is reached through the proxy.
    pub(crate) fn covers(&self, host: &str) -> bool {
        !self.except.iter().any(|entry| {
            let entry = entry.split(':').next().unwrap_or_default();
            let bare = entry.strip_prefix("*.").or(entry.strip_prefix('.')).unwrap_or(entry);
            entry == "*"
                || host == bare
                || host.strip_suffix(bare).is_some_and(|front| front.ends_with('.'))
        })
    }
}

/// Decodes `%XX` in the credentials of a proxy's URL. A `%` without two digits behind it
/// stays as it is.
fn unescape(text: &str) -> Vec<u8> {
    let mut rest = text.as_bytes();
    let mut plain = Vec::new();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
    while let [first, after @ ..] = rest {
        rest = after;
        plain.push(match after {
            [high, low, behind @ ..] if *first == b'%' => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => {
                    rest = behind;
                    high << 4 | low
                }
                _ => b'%',
            },
            _ => *first,
        });
    }
    plain
}

/// Base64 with padding (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let byte = |at: usize| u32::from(part.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4_usize {
            let digit = bits >> (18 - 6 * at) & 63;
            let digit = DIGITS.get(digit as usize).copied().unwrap_or(b'=');
            text.push(if at <= part.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

fn read(path: &PathBuf) -> Option<String> {
    let size = std::fs::metadata(path).ok()?.len();
    let text = (size <= MAX_FILE_BYTES).then(|| std::fs::read(path).ok()).flatten()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

impl Upstream {
    /// The name servers of the host; its loopback if it names none, as the C library does.
    pub(crate) fn servers(&self) -> Vec<SocketAddr> {
        let text = read(&self.resolver_file).unwrap_or_default();
        let mut servers: Vec<SocketAddr> = text
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                (words.next() == Some("nameserver")).then(|| words.next()).flatten()
            })
            .filter_map(|text| text.parse::<IpAddr>().ok())
            .map(|address| SocketAddr::new(address, 53))
            .take(MAX_SERVERS)
            .collect();
        if servers.is_empty() {
            servers.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 53));
        }
        servers
    }

    /// The pairs of the hosts file, one for each name of a line. Skips lines without an
    /// address, and names that [`DomainName`] refuses. Empty if the file cannot be read.
    pub(crate) fn hosts(&self) -> Vec<(IpAddr, DomainName)> {
        let text = read(&self.hosts_file).unwrap_or_default();
        let mut found = Vec::new();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(address) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else {
                continue;
            };
            found.extend(words.filter_map(DomainName::parse).map(|name| (address, name)));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_read_with_their_exceptions() {
        let proxy = UpstreamProxy::parse(
            "http://u%40x:p@Proxy.test:3128/",
            "localhost, .corp.test,a.test:80",
        );
        let proxy = proxy.unwrap();
        assert_eq!(proxy.at, Authority { host: "proxy.test".into(), port: Some(3128) });
        assert_eq!(proxy.credentials.as_deref(), Some("dUB4OnA="));
        assert!(proxy.covers("github.com") && proxy.covers("notcorp.test"));
        assert!(
            !proxy.covers("x.corp.test") && !proxy.covers("corp.test") && !proxy.covers("a.test")
        );
        assert_eq!(UpstreamProxy::parse("socks5://x:1", ""), None);
        assert!(!UpstreamProxy::parse("x:1", "*").unwrap().covers("a"));
        assert_eq!(unescape("50%x%4"), b"50%x%4");
        assert_eq!(base64(b"a"), "YQ==");
        assert_eq!(base64(b"ab"), "YWI=");
    }
}
