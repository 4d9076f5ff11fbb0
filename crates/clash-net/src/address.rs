//! Kinds of addresses. Behind an allowed name, only a public address is dialled unless a rule
//! grants the address itself.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    Public,
    Loopback,
    Private,
    LinkLocal,
    /// The service from which programs on a cloud machine get credentials.
    Metadata,
    Multicast,
    /// Unspecified, broadcast, or not in use.
    Reserved,
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "a public address",
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "a metadata service",
            Self::Multicast => "a multicast address",
            Self::Reserved => "a reserved address",
        })
    }
}

/// Services of Azure and Oracle outside the link-local range, and of Alibaba.
const METADATA_V4: [Ipv4Addr; 4] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(100, 100, 100, 200),
];
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

impl AddressKind {
    /// The kind of an address. An address that carries an IPv4 address has the kind of that.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self::of_v4(v4),
            IpAddr::V6(v6) => Self::of_v6(v6),
        }
    }

    /// The kind of an IPv4 address. Addresses of cloud metadata services come first:
    /// 169.254.169.254 is `Metadata` and not `LinkLocal`.
    fn of_v4(address: Ipv4Addr) -> Self {
        let [a, b, c, _] = address.octets();
        match (a, b, c) {
            _ if METADATA_V4.contains(&address) => Self::Metadata,
            (127, ..) => Self::Loopback,
            (10, ..) | (172, 16..=31, _) | (192, 168, _) | (100, 64..=127, _) => Self::Private,
            (169, 254, _) => Self::LinkLocal,
            (224..=239, ..) => Self::Multicast,
            (0, ..) | (240..=255, ..) | (192, 0, 0) => Self::Reserved,
            // 198.18.0.0/15 is public here: some VPN clients answer with it for every name.
            _ => Self::Public,
        }
    }

    /// The kind of an IPv6 address. An address with an IPv4 address inside (mapped,
    /// compatible, NAT64, 6to4) has the kind of that IPv4 address. Teredo and every block
    /// that is not in use are `Reserved`.
    fn of_v6(address: Ipv6Addr) -> Self {
        let [a, b, c, d, _, _, g, h] = address.segments();
        let embedded = |high: u16, low: u16| {
            let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
            Self::of_v4(Ipv4Addr::new(a, b, c, d))
        };
        match (a, b) {
            _ if address == METADATA_V6 => Self::Metadata,
            _ if address.is_loopback() => Self::Loopback,
            _ if address.is_unspecified() => Self::Reserved,
            // IPv4-compatible, and NAT64 (RFC 6052, and the local prefix of RFC 8215).
            (0, 0) => embedded(g, h),
            (0x64, 0xff9b) if (c, d) == (0, 0) => embedded(g, h),
            (0x64, 0xff9b) => Self::Private,
            (0x2002, _) => embedded(b, c),
            (0x2001, 0) => Self::Reserved,
            (0xff00..=0xffff, _) => Self::Multicast,
            (0xfe80..=0xfebf, _) => Self::LinkLocal,
            (0xfc00..=0xfdff, _) | (0xfec0..=0xfeff, _) => Self::Private,
            (0x2000..=0x3fff, _) => Self::Public,
            _ => Self::Reserved,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_spelling_hides_a_private_address() {
        let kind = |text: &str| AddressKind::of(text.parse().unwrap());
        for text in
            ["93.184.216.34", "198.18.0.7", "2606:4700::1", "::ffff:8.8.8.8", "64:ff9b::808:808"]
        {
            assert_eq!(kind(text), AddressKind::Public, "{text}");
        }
        for text in
            ["127.0.0.2", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::7f00:1"]
        {
            assert_eq!(kind(text), AddressKind::Loopback, "{text}");
        }
        for text in [
            "10.0.0.1",
            "172.31.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "fd00::1",
            "64:ff9b:1::1",
            "2002:a00:1::",
        ] {
            assert_eq!(kind(text), AddressKind::Private, "{text}");
        }
        for text in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "168.63.129.16",
            "fd00:ec2::254",
            "64:ff9b::a9fe:a9fe",
        ] {
            assert_eq!(kind(text), AddressKind::Metadata, "{text}");
        }
        for text in
            ["0.0.0.0", "255.255.255.255", "240.0.0.1", "::", "2001::1", "4000::1", "192.0.0.1"]
        {
            assert_eq!(kind(text), AddressKind::Reserved, "{text}");
        }
        assert_eq!(kind("224.0.0.251"), AddressKind::Multicast);
        assert_eq!(kind("fe80::1"), AddressKind::LinkLocal);
    }
}
