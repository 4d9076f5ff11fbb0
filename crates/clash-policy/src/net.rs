//! A sandbox's network: nothing, everything, or rules about hosts. This module judges
//! tools that run in the agent's own process.

use std::fmt;
use std::net::IpAddr;

use crate::effect::Effect;
use crate::pattern::host_matches;
use crate::span::PolicySpan;

/// The hosts that a sandbox may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkAccess {
    Deny,
    Allow,
    /// The user is asked about every new host.
    Ask,
    Hosts {
        rules: Vec<NetRule>,
        /// For hosts that no rule matches.
        default: Effect,
    },
}

/// One line of a sandbox's `net`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetRule {
    pub host: HostPattern,
    /// Empty: for an allow 443 and 80, and 22 of a git host and of addresses; for a deny, an
    /// ask and `localhost()` every port.
    pub ports: Vec<u16>,
    pub effect: Effect,
    pub span: PolicySpan,
}

/// The hosts of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// The name and its subdomains; `*.name` for the subdomains only.
    Name(String),
    /// Only this name.
    Exact(String),
    /// Addresses, written `10.0.0.0/8` or as one address.
    Addresses { base: IpAddr, bits: u8 },
    /// The machine itself.
    Localhost,
}

impl HostPattern {
    /// True if a host matches. The host is a lower-case name without a final dot, or an
    /// address with or without brackets. No name is resolved.
    pub fn matches(&self, host: &str) -> bool {
        let address = || host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        match self {
            Self::Name(pattern) => host_matches(pattern, host),
            Self::Exact(name) => name == host,
            Self::Addresses { base, bits } => {
                address().is_some_and(|address| within(address, *base, *bits))
            }
            Self::Localhost => {
                host == "localhost"
                    || host.ends_with(".localhost")
                    || address().is_some_and(|address| address.to_canonical().is_loopback())
            }
        }
    }

    /// A longer name is more specific; an exact name is more specific than one with its
    /// subdomains. `localhost` comes before every other pattern.
    fn specificity(&self) -> usize {
        match self {
            Self::Name(name) => name.len() * 2,
            Self::Exact(name) => name.len() * 2 + 1,
            Self::Addresses { bits, .. } => usize::from(*bits),
            Self::Localhost => usize::MAX,
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Exact(name) => write!(f, "exactly {name}"),
            Self::Addresses { base, bits } => write!(f, "{base}/{bits}"),
            Self::Localhost => f.write_str("localhost"),
        }
    }
}

impl fmt::Display for NetRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.host)?;
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        if ports.is_empty() { Ok(()) } else { write!(f, ":{}", ports.join(",")) }
    }
}

/// True if the first `bits` bits of two addresses of the same family are equal. An IPv4
/// address in IPv6 form counts as IPv4.
fn within(address: IpAddr, base: IpAddr, bits: u8) -> bool {
    let number = |address: IpAddr| match address {
        IpAddr::V4(v4) => (32_u32, u128::from(v4.to_bits())),
        IpAddr::V6(v6) => (128, v6.to_bits()),
    };
    let ((width, address), (base_width, base)) =
        (number(address.to_canonical()), number(base.to_canonical()));
    let ignored = width.saturating_sub(u32::from(bits));
    // With 0 bits, `checked_shr` by the whole width gives `None` on both sides.
    width == base_width && address.checked_shr(ignored) == base.checked_shr(ignored)
}

/// Words that name git services. Only these hosts get port 22 without saying so.
const GIT_SERVICES: [&str; 7] =
    ["git", "bitbucket", "codeberg", "sourcehut", "forge", "gerrit", "vs-ssh"];

/// True if the name looks like a git service, for example `github.com` or `git.example.org`.
pub fn is_git_host(host: &str) -> bool {
    host.split('.').any(|label| GIT_SERVICES.iter().any(|word| label.contains(word)))
        || host == "sr.ht"
        || host.ends_with(".sr.ht")
        || host == "ssh.dev.azure.com"
}

impl NetworkAccess {
    /// The effect for a host and port, and the rule that decided; `None` if no rule covers
    /// both. The longest name wins. Of two rules with the same name, the stricter wins.
    pub fn judge(&self, host: &str, port: u16) -> (Effect, Option<&NetRule>) {
        let (rules, default) = match self {
            Self::Deny => return (Effect::Deny, None),
            Self::Allow => return (Effect::Allow, None),
            Self::Ask => return (Effect::Ask, None),
            Self::Hosts { rules, default } => (rules, default),
        };
        // A deny or ask without ports covers every port.
        let covers = |rule: &NetRule| match rule.ports.as_slice() {
            [] if rule.effect > Effect::Allow || rule.host == HostPattern::Localhost => true,
            [] => match (port, &rule.host) {
                (80 | 443, _) | (22, HostPattern::Addresses { .. }) => true,
                (22, _) => is_git_host(host),
                _ => false,
            },
            ports => ports.contains(&port),
        };
        let best = rules
            .iter()
            .filter(|rule| rule.host.matches(host) && covers(rule))
            .max_by_key(|rule| (rule.host.specificity(), rule.effect));
        best.map_or((*default, None), |rule| (rule.effect, Some(rule)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(host: HostPattern, ports: &[u16], effect: Effect) -> NetRule {
        NetRule { host, ports: ports.to_vec(), effect, span: PolicySpan::default() }
    }

    #[test]
    fn the_longest_name_wins_and_deny_beats_allow() {
        let name = |text: &str| HostPattern::Name(text.into());
        let net = NetworkAccess::Hosts {
            rules: vec![
                rule(name("github.com"), &[], Effect::Allow),
                rule(name("evil.github.com"), &[], Effect::Deny),
                rule(HostPattern::Exact("example.io".into()), &[443], Effect::Allow),
                rule(name("both.test"), &[], Effect::Allow),
                rule(name("both.test"), &[], Effect::Deny),
            ],
            default: Effect::Ask,
        };
        let effect = |host, port| net.judge(host, port).0;
        assert_eq!(effect("api.github.com", 443), Effect::Allow);
        assert_eq!(effect("api.github.com", 8443), Effect::Ask);
        assert_eq!(effect("github.com", 22), Effect::Allow);
        assert_eq!(effect("example.io", 22), Effect::Ask);
        assert_eq!(effect("x.evil.github.com", 8443), Effect::Deny);
        assert_eq!(effect("example.io", 443), Effect::Allow);
        assert_eq!(effect("example.io", 80), Effect::Ask);
        assert_eq!(effect("static.example.io", 443), Effect::Ask);
        assert_eq!(effect("both.test", 443), Effect::Deny);
    }

    #[test]
    fn addresses_match_by_prefix_in_every_spelling() {
        let ten = HostPattern::Addresses { base: "10.0.0.0".parse().unwrap(), bits: 8 };
        assert!(ten.matches("10.1.2.3") && ten.matches("[::ffff:10.1.2.3]"));
        assert!(!ten.matches("11.1.2.3") && !ten.matches("10.example"));
        let all = HostPattern::Addresses { base: "0.0.0.0".parse().unwrap(), bits: 0 };
        assert!(all.matches("8.8.8.8") && !all.matches("::1"));
        assert!(HostPattern::Localhost.matches("127.0.0.2"));
        assert!(HostPattern::Localhost.matches("[::1]"));
        assert!(!HostPattern::Localhost.matches("localhost.evil.test"));
    }
}
