//! Host lists of other tools. There, a plain name is that host alone; here a
//! plain name is the domain with everything below it. So an allow becomes
//! `exact("name")`, while a deny keeps the wider plain name.

use clash_syntax::draft::KeyDraft;

pub(crate) type OptionalPort = Option<u16>;

/// A host of a list, and its port if it names one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImportedHost {
    pub(crate) name: ImportedName,
    pub(crate) port: OptionalPort,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ImportedName {
    /// `*`
    All,
    /// One host.
    One(String),
    /// `*.name`
    Below(String),
    /// `**.name`: the host and all below it.
    Domain(String),
    Localhost,
    Address(String),
}

impl ImportedHost {
    /// Reads `name`, `name:port` or `name:*`, in any case. URLs and IPv6 addresses are
    /// errors.
    pub(crate) fn read(text: &str) -> Result<Self, &'static str> {
        let text = text.trim().to_ascii_lowercase();
        if text.contains("://") || text.contains('/') {
            return Err("it is an address of a page, not a host");
        }
        if text.starts_with('[') || text.matches(':').count() > 1 {
            return Err("rules for IPv6 hosts cannot be written");
        }
        let (name, port) = match text.rsplit_once(':') {
            Some((name, "*")) => (name, None),
            Some((name, port)) => match port.parse() {
                Ok(port) => (name, Some(port)),
                Err(_) => return Err("its port is not a number"),
            },
            None => (text.as_str(), None),
        };
        Ok(Self { name: ImportedName::read(name.trim_end_matches('.'))?, port })
    }

    /// A host without a port.
    pub(crate) fn one(name: &str) -> Result<Self, &'static str> {
        Ok(Self { name: ImportedName::read(name)?, port: None })
    }

    /// The port, if this is about one port of every host.
    pub(crate) fn port_of_all(&self) -> OptionalPort {
        self.port.filter(|_| self.name == ImportedName::All)
    }

    /// True if everything `other` stands for is part of this.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let inside = |name: &str, domain: &str| {
            name.strip_suffix(domain).is_some_and(|front| front.ends_with('.'))
        };
        let names = match (&self.name, &other.name) {
            (ImportedName::All, _) => true,
            (
                ImportedName::Domain(a),
                ImportedName::One(b) | ImportedName::Domain(b) | ImportedName::Below(b),
            ) => a == b || inside(b, a),
            (ImportedName::Below(a), ImportedName::One(b) | ImportedName::Domain(b)) => {
                inside(b, a)
            }
            (ImportedName::Below(a), ImportedName::Below(b)) => a == b || inside(b, a),
            (a, b) => a == b,
        };
        names && (self.port.is_none() || self.port == other.port)
    }

    /// Keys of an allow; `shut` are ports denied for every host. If there are some, a host
    /// without a port gets 443 and 80. Empty: there is no key for it, as for `*` and for
    /// this machine without a port.
    pub(crate) fn allowed(&self, shut: &[u16]) -> Vec<KeyDraft> {
        let ports: Vec<OptionalPort> = match self.port {
            Some(port) if shut.contains(&port) => vec![],
            Some(port) => vec![Some(port)],
            None if shut.is_empty() => vec![None],
            None => [443, 80].into_iter().filter(|port| !shut.contains(port)).map(Some).collect(),
        };
        let with = |name: &str, port: OptionalPort| match port {
            None => name.to_owned(),
            Some(port) => format!("{name}:{port}"),
        };
        ports
            .into_iter()
            .filter_map(|port| match &self.name {
                ImportedName::All => None,
                ImportedName::One(name) => Some(KeyDraft::exact(with(name, port))),
                ImportedName::Below(name) => Some(KeyDraft::text(with(&format!("*.{name}"), port))),
                ImportedName::Domain(name) | ImportedName::Address(name) => {
                    Some(KeyDraft::text(with(name, port)))
                }
                ImportedName::Localhost => port.map(|port| KeyDraft::Localhost(vec![port])),
            })
            .collect()
    }

    /// Keys of a deny or an ask, which also cover the hosts below a name. Empty for `*`:
    /// the default and the ports of every allow say that.
    pub(crate) fn restricted(&self) -> Vec<KeyDraft> {
        let with = |name: &str| match self.port {
            None => name.to_owned(),
            Some(port) => format!("{name}:{port}"),
        };
        match &self.name {
            // Said by the default and by the ports of every allow.
            ImportedName::All => vec![],
            ImportedName::One(name) | ImportedName::Domain(name) | ImportedName::Address(name) => {
                vec![KeyDraft::text(with(name))]
            }
            ImportedName::Below(name) => vec![KeyDraft::text(with(&format!("*.{name}")))],
            ImportedName::Localhost => {
                vec![KeyDraft::text(with("localhost")), KeyDraft::text(with("127.0.0.1"))]
            }
        }
    }
}

impl ImportedName {
    /// Reads a name, an IPv4 address, or a name behind `*.` or `**.`. A wildcard over a
    /// top-level domain is an error.
    fn read(text: &str) -> Result<Self, &'static str> {
        if text == "*" || text == "**" {
            return Ok(Self::All);
        }
        if text == "localhost" || text == "127.0.0.1" {
            return Ok(Self::Localhost);
        }
        if text.parse::<std::net::Ipv4Addr>().is_ok() {
            return Ok(Self::Address(text.to_owned()));
        }
        let (kind, name): (fn(String) -> Self, &str) = if let Some(name) = text.strip_prefix("**.")
        {
            (Self::Domain, name)
        } else if let Some(name) = text.strip_prefix("*.") {
            (Self::Below, name)
        } else {
            (Self::One, text)
        };
        let label = |label: &str| {
            !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_')
        };
        if name.is_empty() || name.len() > 253 || !name.split('.').all(label) {
            return Err("it is not a host name with `*.` at most in front");
        }
        if !matches!(kind(String::new()), Self::One(_)) && !name.contains('.') {
            return Err("a wildcard over a whole top-level domain is too wide");
        }
        Ok(kind(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys of an allow and of a restriction of this host, or the reason why it is
    /// none.
    fn keys(text: &str) -> (String, String) {
        let written = |keys: Vec<KeyDraft>| {
            keys.iter().map(|key| key.source("")).collect::<Vec<_>>().join(" ")
        };
        ImportedHost::read(text).map_or_else(
            |why| (why.to_owned(), String::new()),
            |host| (written(host.allowed(&[])), written(host.restricted())),
        )
    }

    #[test]
    fn an_allow_is_the_host_alone_and_a_deny_everything_below() {
        assert_eq!(keys("GitHub.com"), (r#"exact("github.com")"#.into(), r#""github.com""#.into()));
        assert_eq!(keys("*.github.com"), (r#""*.github.com""#.into(), r#""*.github.com""#.into()));
        assert_eq!(keys("x.org:8443").0, r#"exact("x.org:8443")"#);
        assert_eq!(keys("localhost:3000").0, "localhost(ports = [3000])");
        assert_eq!(keys("*").0, "");
    }

    #[test]
    fn a_text_that_is_no_host_is_an_error() {
        for text in
            ["https://x.org", "x.org/path", "*.com", "a*b.org", "", "[::1]", "::1", "a b", "x..y"]
        {
            assert!(ImportedHost::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_port_shut_for_all_is_not_opened_by_an_allow() {
        let host = ImportedHost::read("github.com").unwrap();
        let written: Vec<String> = host.allowed(&[22]).iter().map(|key| key.source("")).collect();
        assert_eq!(written, [r#"exact("github.com:443")"#, r#"exact("github.com:80")"#]);
        assert!(ImportedHost::read("x.org:22").unwrap().allowed(&[22]).is_empty());
    }

    #[test]
    fn a_wider_name_covers_a_narrower_one() {
        let covers = |a, b| ImportedHost::read(a).unwrap().covers(&ImportedHost::read(b).unwrap());
        assert!(covers("*.github.com", "api.github.com") && covers("*", "x.org"));
        assert!(covers("*.github.com", "*.api.github.com") && covers("x.org", "x.org:22"));
        assert!(!covers("*.github.com", "github.com") && !covers("x.org:22", "x.org"));
        assert!(!covers("hub.com", "github.com"));
    }
}
