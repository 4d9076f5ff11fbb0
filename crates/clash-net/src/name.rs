//! Host names as DNS queries, TLS and HTTP write them.

use std::fmt;

/// A name in lower case, without a trailing dot. Every label has only letters, digits, `-` and
/// `_`, so no name can be taken for another one, or for an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DomainName(String);

const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

impl DomainName {
    /// `None` if the text is no name. A name whose last label is a number is none: programs
    /// read `127.1` and `0x7f.1` as addresses.
    pub fn parse(text: &str) -> Option<Self> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let label = |label: &str| {
            !label.is_empty()
                && label.len() <= MAX_LABEL_BYTES
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_number = last.bytes().next().is_some_and(|b| b.is_ascii_digit())
            && (last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x"));
        let fits = name.len() <= MAX_NAME_BYTES && name.split('.').all(label) && !is_number;
        fits.then_some(Self(name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_one_form_only() {
        assert_eq!(DomainName::parse("GitHub.COM.").unwrap().as_str(), "github.com");
        for text in [
            "",
            ".",
            "a..b",
            "127.0.0.1",
            "2130706433",
            "0x7f000001",
            "127.1",
            "0177.0.0.1",
            "[::1]",
            "evil.test\0.allowed.test",
            "a b",
            "a@b",
            "a%00b",
            "a#b",
            "bücher.de",
            "fe80::1%eth0",
        ] {
            assert_eq!(DomainName::parse(text), None, "{text:?}");
        }
        assert_eq!(DomainName::parse(&format!("{}.test", "a".repeat(64))), None);
        assert!(DomainName::parse("_dmarc.example.org").is_some());
        assert!(DomainName::parse("1.pool.ntp.org").is_some());
    }
}
