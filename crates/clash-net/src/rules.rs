//! The host rules of one room, as the gate asks them.

use std::collections::HashMap;
use std::net::IpAddr;

use clash_policy::{Effect, HostPattern, NetRule, NetworkAccess};

use crate::address::AddressKind;
use crate::name::DomainName;
use crate::record::DenialError;

/// The ports of a rule that names none.
const USUAL_PORTS: [u16; 3] = [443, 80, 22];

/// Ports of protocols that never begin with TLS or HTTP: ssh, MySQL, PostgreSQL and Redis.
const NATIVE_PORTS: [u16; 4] = [22, 3306, 5432, 6379];

#[derive(Clone, Debug)]
pub struct HostRules {
    net: NetworkAccess,
    ports: Vec<u16>,
    /// Answers of the user to questions about names and addresses.
    answers: HashMap<String, bool>,
}

/// The judgement about an address that a program has dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressVerdict {
    /// A rule is about this address: nothing has to be inspected.
    Granted,
    /// Allowed for these names, if the connection asks for one of them.
    For(Vec<DomainName>),
    /// The user has to be asked about the address itself.
    Ask,
    Denied(DenialError),
}

impl HostRules {
    /// The rules of `net`, and the ports on which the gate must listen: those of every rule
    /// that allows or asks, and the usual ports for a rule or a default without ports. Rules
    /// about `localhost` need no port here.
    pub fn new(net: NetworkAccess) -> Self {
        let (rules, default): (&[NetRule], Effect) = match &net {
            NetworkAccess::Hosts { rules, default } => (rules, *default),
            NetworkAccess::Deny => (&[], Effect::Deny),
            NetworkAccess::Allow => (&[], Effect::Allow),
            NetworkAccess::Ask => (&[], Effect::Ask),
        };
        let open =
            |rule: &&NetRule| rule.effect != Effect::Deny && rule.host != HostPattern::Localhost;
        let mut ports: Vec<u16> = Vec::new();
        for rule in rules.iter().filter(open) {
            match rule.ports.is_empty() {
                true => ports.extend(USUAL_PORTS),
                false => ports.extend(&rule.ports),
            }
        }
        if default != Effect::Deny {
            ports.extend(USUAL_PORTS);
        }
        ports.sort_unstable();
        ports.dedup();
        Self { net, ports, answers: HashMap::new() }
    }

    /// Every port on which a connection may be allowed.
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// True if addresses that no name leads to may be allowed on this port, so that the gate
    /// has to listen on all addresses.
    pub fn takes_any_address(&self, port: u16) -> bool {
        let NetworkAccess::Hosts { rules, default } = &self.net else {
            return self.net != NetworkAccess::Deny;
        };
        let by_address = |rule: &NetRule| {
            rule.effect != Effect::Deny
                && matches!(rule.host, HostPattern::Addresses { .. })
                && match rule.ports.as_slice() {
                    [] => USUAL_PORTS.contains(&port),
                    ports => ports.contains(&port),
                }
        };
        (*default != Effect::Deny && USUAL_PORTS.contains(&port)) || rules.iter().any(by_address)
    }

    /// True if a connection to an allowed name on this port has nothing to inspect.
    pub fn is_native_port(port: u16) -> bool {
        NATIVE_PORTS.contains(&port)
    }

    /// The ports on which a program may get the socket itself.
    pub fn handover_ports(&self) -> Vec<u16> {
        let may = |port: &u16| Self::is_native_port(*port) || self.takes_any_address(*port);
        self.ports.iter().copied().filter(may).collect()
    }

    /// True if `localhost(ports)` allows this port.
    pub fn reaches_loopback(&self, port: u16) -> bool {
        self.net.judge("localhost", port).0 == Effect::Allow
    }

    /// Remembers the answer of the user.
    pub fn remember(&mut self, host: &str, allowed: bool) {
        self.answers.insert(host.to_owned(), allowed);
    }

    fn effect(&self, host: &str, port: u16) -> Effect {
        match (self.net.judge(host, port).0, self.answers.get(host)) {
            (Effect::Ask, Some(true)) => Effect::Allow,
            (Effect::Ask, Some(false)) => Effect::Deny,
            (effect, _) => effect,
        }
    }

    pub fn judge_name(&self, name: &DomainName, port: u16) -> Effect {
        self.effect(name.as_str(), port)
    }

    /// The most that a name may get on any port. The gate resolves names before it knows the
    /// port.
    pub fn judge_lookup(&self, name: &DomainName) -> Effect {
        let effects = self.ports.iter().map(|port| self.judge_name(name, *port));
        effects.min().unwrap_or(Effect::Deny)
    }

    /// The names that rules allow, without those that stand only for subdomains.
    pub fn allowed_names(&self) -> Vec<DomainName> {
        let NetworkAccess::Hosts { rules, .. } = &self.net else { return Vec::new() };
        let names = rules.iter().filter(|rule| rule.effect == Effect::Allow);
        let names = names.filter_map(|rule| match &rule.host {
            HostPattern::Name(name) | HostPattern::Exact(name) => DomainName::parse(name),
            _ => None,
        });
        names.filter(|name| self.judge_lookup(name) == Effect::Allow).collect()
    }

    /// True if a rule is about exactly this name, and not about its subdomains.
    pub fn is_named(&self, name: &DomainName) -> bool {
        let NetworkAccess::Hosts { rules, .. } = &self.net else { return false };
        rules.iter().any(|rule| match &rule.host {
            HostPattern::Name(known) | HostPattern::Exact(known) => known == name.as_str(),
            _ => false,
        })
    }

    /// True if a rule allows something below this name. The answer that the name does not
    /// exist would then be wrong for the names below it (RFC 8020).
    pub fn allows_below(&self, name: &DomainName) -> bool {
        let NetworkAccess::Hosts { rules, .. } = &self.net else { return false };
        let suffix = format!(".{name}");
        rules.iter().any(|rule| match &rule.host {
            HostPattern::Name(known) | HostPattern::Exact(known) => known.ends_with(&suffix),
            _ => false,
        })
    }

    /// The effect of a rule about the address itself, if there is one.
    fn by_address(&self, address: IpAddr, port: u16) -> Option<Effect> {
        let text = address.to_canonical().to_string();
        let (effect, rule) = self.net.judge(&text, port);
        rule.map(|_| effect)
    }

    /// True if an address may stand behind an allowed name, on any port.
    pub fn check_address(&self, address: IpAddr, is_own: bool) -> Result<(), DenialError> {
        let effects = self.ports.iter().filter_map(|port| self.by_address(address, *port));
        match effects.min() {
            Some(Effect::Allow) => return Ok(()),
            Some(_) => return Err(DenialError::Address),
            None => {}
        }
        match AddressKind::of(address) {
            AddressKind::Public if is_own => Err(DenialError::Own),
            AddressKind::Public => Ok(()),
            kind => Err(DenialError::Kind(kind)),
        }
    }

    /// True if names may use an address on this port: a public one always, any other one only
    /// if a rule grants the address itself.
    pub fn opens_to_names(&self, address: IpAddr, port: u16, is_own: bool) -> bool {
        match self.by_address(address, port) {
            Some(effect) => effect == Effect::Allow,
            None => AddressKind::of(address) == AddressKind::Public && !is_own,
        }
    }

    /// Judges a dialled address. `names` are the names that led to it in this room. A rule
    /// about the address counts first, then the rules about the names, for which the address
    /// must be public. Without a name, the default decides, on the usual ports and those of
    /// rules only.
    pub fn judge_address(
        &self,
        address: IpAddr,
        port: u16,
        names: &[DomainName],
    ) -> AddressVerdict {
        match self.by_address(address, port) {
            Some(Effect::Allow) => return AddressVerdict::Granted,
            Some(Effect::Deny) => return AddressVerdict::Denied(DenialError::Address),
            Some(Effect::Ask) | None => {}
        }
        let allowed = |name: &&DomainName| self.judge_name(name, port) == Effect::Allow;
        let allowed: Vec<DomainName> = names.iter().filter(allowed).cloned().collect();
        if !allowed.is_empty() {
            return match AddressKind::of(address) {
                AddressKind::Public => AddressVerdict::For(allowed),
                kind => AddressVerdict::Denied(DenialError::Kind(kind)),
            };
        }
        if !names.is_empty() {
            return AddressVerdict::Denied(DenialError::Port);
        }
        let text = address.to_canonical().to_string();
        let usual = USUAL_PORTS.contains(&port) || self.ports.contains(&port);
        match (AddressKind::of(address), self.effect(&text, port)) {
            (_, Effect::Deny) => AddressVerdict::Denied(DenialError::Unpinned),
            _ if !usual => AddressVerdict::Denied(DenialError::Port),
            (AddressKind::Public, Effect::Allow) => AddressVerdict::Granted,
            (AddressKind::Public, Effect::Ask) => AddressVerdict::Ask,
            (kind, _) => AddressVerdict::Denied(DenialError::Kind(kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clash_policy::PolicySpan;

    fn rule(host: HostPattern, ports: &[u16], effect: Effect) -> NetRule {
        NetRule { host, ports: ports.to_vec(), effect, span: PolicySpan::default() }
    }

    fn name(text: &str) -> DomainName {
        DomainName::parse(text).unwrap()
    }

    fn addresses(base: &str, bits: u8) -> HostPattern {
        HostPattern::Addresses { base: base.parse().unwrap(), bits }
    }

    #[test]
    fn an_address_needs_a_name_a_port_and_a_kind() {
        let rules = HostRules::new(NetworkAccess::Hosts {
            rules: vec![
                rule(HostPattern::Name("a.test".into()), &[], Effect::Allow),
                rule(HostPattern::Exact("db.test".into()), &[5432], Effect::Allow),
                rule(addresses("10.1.0.0", 16), &[443], Effect::Allow),
                rule(addresses("203.0.113.0", 24), &[], Effect::Deny),
            ],
            default: Effect::Deny,
        });
        assert_eq!(rules.ports(), [22, 80, 443, 5432]);
        let judge = |address: &str, port, names: &[&str]| {
            let names: Vec<DomainName> = names.iter().map(|text| name(text)).collect();
            rules.judge_address(address.parse().unwrap(), port, &names)
        };
        let allowed = AddressVerdict::For(vec![name("a.test")]);
        assert_eq!(judge("93.184.216.34", 443, &["a.test", "b.test"]), allowed);
        assert_eq!(
            judge("93.184.216.34", 5432, &["a.test"]),
            AddressVerdict::Denied(DenialError::Port)
        );
        assert_eq!(judge("93.184.216.34", 443, &[]), AddressVerdict::Denied(DenialError::Unpinned));
        assert_eq!(judge("10.1.2.3", 443, &[]), AddressVerdict::Granted);
        assert_eq!(judge("::ffff:10.1.2.3", 443, &[]), AddressVerdict::Granted);
        assert_eq!(judge("10.1.2.3", 22, &[]), AddressVerdict::Denied(DenialError::Unpinned));
        // The rule about addresses grants another port.
        let private = AddressVerdict::Denied(DenialError::Kind(AddressKind::Private));
        assert_eq!(judge("10.1.2.3", 80, &["a.test"]), private);
        assert_eq!(
            judge("203.0.113.9", 443, &["a.test"]),
            AddressVerdict::Denied(DenialError::Address)
        );
        let check = |text: &str| rules.check_address(text.parse().unwrap(), false);
        assert_eq!(check("10.1.2.3"), Ok(()));
        assert_eq!(check("10.2.2.3"), Err(DenialError::Kind(AddressKind::Private)));
        assert_eq!(check("203.0.113.9"), Err(DenialError::Address));
        assert_eq!(rules.check_address("8.8.8.8".parse().unwrap(), true), Err(DenialError::Own));
    }

    #[test]
    fn a_default_opens_the_usual_ports_of_public_addresses() {
        let rules = HostRules::new(NetworkAccess::Hosts {
            rules: vec![rule(HostPattern::Name("evil.test".into()), &[], Effect::Deny)],
            default: Effect::Allow,
        });
        let judge = |address: &str, port| rules.judge_address(address.parse().unwrap(), port, &[]);
        assert_eq!(judge("8.8.8.8", 443), AddressVerdict::Granted);
        assert!(matches!(judge("10.0.0.1", 443), AddressVerdict::Denied(_)));
        assert!(matches!(judge("8.8.8.8", 25), AddressVerdict::Denied(_)));
        assert_eq!(rules.judge_lookup(&name("x.evil.test")), Effect::Deny);
        assert_eq!(rules.judge_lookup(&name("good.test")), Effect::Allow);
    }

    #[test]
    fn an_answer_of_the_user_holds_for_one_name() {
        let mut rules = HostRules::new(NetworkAccess::Ask);
        assert_eq!(rules.judge_lookup(&name("a.test")), Effect::Ask);
        rules.remember("a.test", true);
        rules.remember("b.test", false);
        assert_eq!(rules.judge_lookup(&name("a.test")), Effect::Allow);
        assert_eq!(rules.judge_lookup(&name("b.test")), Effect::Deny);
        assert_eq!(rules.judge_lookup(&name("x.a.test")), Effect::Ask);
    }
}
