//! The host of a URL in the one form that rules are compared with: lower case, no trailing
//! dot, no port, no credentials, addresses in canonical form.

use std::net::{Ipv4Addr, Ipv6Addr};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostNameError {
    #[error("`{0}` is not an http or https URL")]
    NotHttp(String),
    #[error("the URL names no host")]
    NoHost,
    #[error("`{0}` is not a host name or an address")]
    BadHost(String),
    #[error("the URL carries credentials before the host")]
    Credentials,
}

/// The normalised host of an http(s) URL.
pub fn host_of_url(url: &str) -> Result<String, HostNameError> {
    host_and_port_of_url(url).map(|(host, _)| host)
}

/// The normalised host of an http(s) URL, and its port: 80 or 443 if the URL names none. A
/// URL with credentials is an error.
pub fn host_and_port_of_url(url: &str) -> Result<(String, u16), HostNameError> {
    let trimmed = url.trim();
    let (scheme, rest) =
        trimmed.split_once("://").ok_or_else(|| HostNameError::NotHttp(url.to_owned()))?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(HostNameError::NotHttp(url.to_owned()));
    }
    // Browsers read a backslash as a slash here, so the authority ends at it.
    let authority = rest.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(HostNameError::Credentials);
    }
    let host = host(authority)?;
    let port = authority.rsplit_once(':').map(|(_, port)| port).filter(|port| is_port(port));
    let usual = if scheme.eq_ignore_ascii_case("http") { 80 } else { 443 };
    Ok((host, port.and_then(|port| port.parse().ok()).unwrap_or(usual)))
}

/// Normalises `host`, `host:port` or `[v6]:port`. A name with characters outside of ASCII,
/// and an address in an old spelling such as `0x7f.1`, are errors.
fn host(authority: &str) -> Result<String, HostNameError> {
    let bad = || HostNameError::BadHost(authority.to_owned());
    if let Some(inner) = authority.strip_prefix('[') {
        let (address, port) = inner.split_once(']').ok_or_else(bad)?;
        if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
            return Err(bad());
        }
        let address: Ipv6Addr = address.parse().map_err(|_| bad())?;
        return Ok(match address.to_ipv4_mapped() {
            Some(v4) => v4.to_string(),
            None => format!("[{address}]"),
        });
    }
    let name = match authority.split_once(':') {
        Some((name, port)) if is_port(port) => name,
        Some(_) => return Err(bad()),
        None => authority,
    };
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    if name.is_empty() {
        return Err(HostNameError::NoHost);
    }
    if let Ok(address) = name.parse::<Ipv4Addr>() {
        return Ok(address.to_string());
    }
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    // A last label of digits is an old spelling of an address (0x7f.1, 2130706433), and
    // resolvers disagree about it.
    let numeric = name
        .rsplit('.')
        .next()
        .is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x"));
    if name.len() > 253 || numeric || !name.split('.').all(label) {
        return Err(bad());
    }
    Ok(name)
}

/// True for a number from 0 to 65535.
fn is_port(text: &str) -> bool {
    !text.is_empty() && text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_spelling_for_every_host() {
        for url in [
            "https://docs.rs/serde",
            "HTTPS://Docs.RS./serde",
            "http://docs.rs:8080?x#y",
            " https://docs.rs\\@evil.test/",
        ] {
            assert_eq!(host_of_url(url).as_deref(), Ok("docs.rs"), "{url}");
        }
        assert_eq!(host_of_url("http://[::1]:80/").as_deref(), Ok("[::1]"));
        assert_eq!(host_of_url("http://[::ffff:127.0.0.1]/").as_deref(), Ok("127.0.0.1"));
        assert_eq!(host_of_url("http://127.0.0.1:3000").as_deref(), Ok("127.0.0.1"));
    }

    #[test]
    fn an_ambiguous_url_is_refused() {
        for url in [
            "https://docs.rs@evil.test/",
            "file:///etc/passwd",
            "docs.rs",
            "https:///x",
            "http://0x7f.1/",
            "http://2130706433/",
            "http://127.1/",
            "https://döcs.rs/",
            "https://docs.rs%2eevil.test/",
            "https://docs..rs/",
            "http://[::1",
            "http://x:99999/",
        ] {
            assert!(host_of_url(url).is_err(), "{url}");
        }
    }

    proptest! {
        #[test]
        fn a_normalised_host_is_stable(url in "https?://[a-zA-Z0-9.:@\\[\\]-]{0,30}/?") {
            if let Ok(host) = host_of_url(&url) {
                prop_assert_eq!(host_of_url(&format!("https://{host}/")), Ok(host));
            }
        }

        #[test]
        fn any_text_is_judged_without_a_panic(url in ".{0,60}") {
            let _ = host_of_url(&url);
        }
    }
}
