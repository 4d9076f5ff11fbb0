//! The `net` of a sandbox in all its forms, and host names as policies write them.

use std::net::IpAddr;

use clash_policy::{Effect, HostPattern, NetRule, NetworkAccess, PolicySpan};
use starlark::values::Value;
use starlark::values::dict::DictRef;
use starlark::values::list::ListRef;

use super::{alternatives, dict_entries, effect, loose_effect};
use crate::draft::SandboxDraft;
use crate::language_error::{LanguageError, LanguageResult};
use crate::value::KeyValue;

const NET_FORMS: &str = "net is allow(), deny(), ask(), localhost(ports = [8080]), or hosts: \
                      [\"github.com\"] or {\"github.com\": allow(), default(): ask()}";

/// Any form of `net`: an effect, a host, a list or a dict of hosts. Hosts that a list or
/// dict does not name are denied, unless `default()` says otherwise.
pub(crate) fn net(value: Value<'_>, place: &PolicySpan) -> LanguageResult<NetworkAccess> {
    if DictRef::from_value(value).is_some() {
        return hosts(value, place);
    }
    if let Some(list) = ListRef::from_value(value) {
        let mut rules = Vec::new();
        let mut default = Effect::Deny;
        for item in list.iter() {
            if DictRef::from_value(item).is_some() {
                let NetworkAccess::Hosts { rules: more, default: other } = hosts(item, place)?
                else {
                    continue;
                };
                rules.extend(more);
                default = if other == Effect::Deny { default } else { other };
            } else {
                rules.push(net_rule(item, Effect::Allow, place)?);
            }
        }
        return Ok(NetworkAccess::Hosts { rules, default });
    }
    let named = value.unpack_str().is_some_and(|text| !matches!(text, "allow" | "ask" | "deny"));
    if KeyValue::from_value(value).is_some() || named {
        let rules = vec![net_rule(value, Effect::Allow, place).map_err(|m| m.hint(NET_FORMS))?];
        return Ok(NetworkAccess::Hosts { rules, default: Effect::Deny });
    }
    let effect = loose_effect(value, place).map_err(|_| {
        LanguageError::new(format!("`{}` is not a form of net", value.to_str())).hint(NET_FORMS)
    })?;
    Ok(match effect.effect {
        Effect::Allow => NetworkAccess::Allow,
        Effect::Ask => NetworkAccess::Ask,
        Effect::Deny => NetworkAccess::Deny,
    })
}

/// The rules of a dict of hosts and effects.
fn hosts(value: Value<'_>, place: &PolicySpan) -> LanguageResult<NetworkAccess> {
    let mut rules = Vec::new();
    let mut default = Effect::Deny;
    for (key, then) in dict_entries(value, "a dict of hosts and effects")? {
        let then = effect(then, place)?;
        for key in alternatives(key)? {
            if is_rest(key) {
                default = then.effect;
            } else {
                rules.push(net_rule(key, then.effect, &then.span)?);
            }
        }
    }
    Ok(NetworkAccess::Hosts { rules, default })
}

/// True if a key means every host that no other key matches.
fn is_rest(key: Value<'_>) -> bool {
    match KeyValue::from_value(key) {
        Some(KeyValue::Default | KeyValue::Network) => true,
        Some(KeyValue::Glob { pattern, .. }) => pattern == "**" || pattern == "*",
        _ => false,
    }
}

/// One entry of the tree form of a sandbox that is about the network; `false`
/// if the key is about something else.
pub(super) fn tree_entry(
    key: Value<'_>,
    then: Value<'_>,
    place: &PolicySpan,
    draft: &mut SandboxDraft,
) -> LanguageResult<bool> {
    let about_hosts = matches!(
        KeyValue::from_value(key),
        Some(KeyValue::Domain(_) | KeyValue::Exact(_) | KeyValue::Localhost(_) | KeyValue::Network)
    );
    if !about_hosts {
        return Ok(false);
    }
    let then = effect(then, place)?;
    let net = std::mem::replace(&mut draft.sandbox.net, NetworkAccess::Deny);
    let (mut rules, mut default) = match net {
        NetworkAccess::Hosts { rules, default } => (rules, default),
        NetworkAccess::Allow => (Vec::new(), Effect::Allow),
        NetworkAccess::Ask => (Vec::new(), Effect::Ask),
        NetworkAccess::Deny => (Vec::new(), Effect::Deny),
    };
    if is_rest(key) {
        default = then.effect;
    } else {
        rules.push(net_rule(key, then.effect, &then.span)?);
    }
    draft.said.net = true;
    draft.sandbox.net = match (rules.is_empty(), default) {
        (true, Effect::Allow) => NetworkAccess::Allow,
        (true, Effect::Ask) => NetworkAccess::Ask,
        (true, Effect::Deny) => NetworkAccess::Deny,
        (false, default) => NetworkAccess::Hosts { rules, default },
    };
    Ok(true)
}

/// The rule for one host, with its port if it has one. A key that is no host is an error.
fn net_rule(key: Value<'_>, effect: Effect, span: &PolicySpan) -> LanguageResult<NetRule> {
    let (host, ports) = match (key.unpack_str(), KeyValue::from_value(key)) {
        (Some(text), _) => host_and_port(text)?,
        (_, Some(KeyValue::Domain(name))) => host_and_port(name)?,
        (_, Some(KeyValue::Exact(name))) => {
            let (host, ports) = host_and_port(name)?;
            match host {
                HostPattern::Name(name) if !name.starts_with("*.") => {
                    (HostPattern::Exact(name), ports)
                }
                HostPattern::Name(name) => {
                    return Err(
                        LanguageError::new(format!("`{name}` is not one exact host")).near(name)
                    );
                }
                address => (address, ports),
            }
        }
        (_, Some(KeyValue::Localhost(ports))) => (HostPattern::Localhost, ports.clone()),
        _ => {
            return Err(
                LanguageError::new(format!("`{}` is no host", key.to_str())).hint(NET_FORMS)
            );
        }
    };
    Ok(NetRule { host, ports, effect, span: span.clone() })
}

/// A number from 1 to 65535; anything else is an error.
pub(crate) fn port(value: Value<'_>) -> LanguageResult<u16> {
    let number = value.unpack_i32().and_then(|number| u16::try_from(number).ok());
    number.filter(|port| *port > 0).ok_or_else(|| {
        LanguageError::new(format!("`{}` is no port", value.to_str()))
            .hint("a port is a number from 1 to 65535")
            .near(value.to_str())
    })
}

/// `name`, `*.name`, an address or a range of them, each with or without a port. Another
/// text, for example a URL, is an error.
fn host_and_port(text: &str) -> LanguageResult<(HostPattern, Vec<u16>)> {
    let (host, port) = match text.rsplit_once(':') {
        // In an IPv6 address without brackets no colon separates a port.
        Some((front, _)) if front.contains(':') && !front.ends_with(']') => (text, None),
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let ports = match port {
        None => Vec::new(),
        Some(port) => match port.parse::<u16>() {
            Ok(port) if port > 0 => vec![port],
            _ if text.contains("://") => return Err(wrong_host(text)),
            _ => {
                return Err(
                    LanguageError::new(format!("`{port}` in `{text}` is no port")).near(text)
                );
            }
        },
    };
    Ok((host_pattern(host, text)?, ports))
}

/// A host as a key of a rule or of `net`, in lower case. A text that is no host is an
/// error, which shows `text`.
pub(super) fn host_pattern(host: &str, text: &str) -> LanguageResult<HostPattern> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let (address, bits) = match bare.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (bare, None),
    };
    if let Ok(base) = address.parse::<IpAddr>() {
        let width: u8 = if base.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(width), str::parse::<u8>);
        return match bits {
            Ok(bits) if bits <= width => Ok(HostPattern::Addresses { base, bits }),
            _ => Err(LanguageError::new(format!("`{text}` is no range of addresses"))
                .hint("a range is written \"10.0.0.0/8\"")
                .near(text)),
        };
    }
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    if name == "localhost" {
        return Ok(HostPattern::Localhost);
    }
    let plain = name.strip_prefix("*.").unwrap_or(&name);
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    if !plain.split('.').all(label) || name.len() > 253 {
        return Err(wrong_host(text));
    }
    Ok(HostPattern::Name(name))
}

/// The error for a text that is no host, with a hint for URLs, paths, stars and foreign
/// letters.
fn wrong_host(text: &str) -> LanguageError {
    let mistake = LanguageError::new(format!("`{text}` is no host name")).near(text);
    if let Some((_, rest)) = text.split_once("://") {
        let host = rest.split(['/', ':']).next().unwrap_or(rest);
        return mistake.hint(format!("write the name alone: \"{host}\""));
    }
    match text {
        "*" | "**" => mistake.hint("every host is default()"),
        _ if text.contains('/') => mistake.hint("rules are about hosts, not about paths on them"),
        _ if text.contains('*') => {
            mistake.hint("a star stands only for all subdomains: \"*.github.com\"")
        }
        _ if !text.is_ascii() => mistake.hint("write a name with other letters in its xn-- form"),
        _ => mistake,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The host and ports of a text, or the error with its hint.
    fn read(text: &str) -> String {
        match host_and_port(text) {
            Ok((host, ports)) => format!("{host:?} {ports:?}"),
            Err(mistake) => format!("{} / {}", mistake.message, mistake.hint.unwrap_or_default()),
        }
    }

    #[test]
    fn hosts_are_read_in_every_form() {
        insta::assert_snapshot!(
            ["GitHub.com.", "*.example.io:443", "10.0.0.0/8", "::1", "[::1]:80", "localhost:8080",
             "https://x.test/a", "x.test/a", "*", "a*b.test", "x.test:0", "bücher.de", "10.0.0.0/99"]
                .map(read).join("\n"),
            @r#"
        Name("github.com") []
        Name("*.example.io") [443]
        Addresses { base: 10.0.0.0, bits: 8 } []
        Addresses { base: ::1, bits: 128 } []
        Addresses { base: ::1, bits: 128 } [80]
        Localhost [8080]
        `https://x.test/a` is no host name / write the name alone: "x.test"
        `x.test/a` is no host name / rules are about hosts, not about paths on them
        `*` is no host name / every host is default()
        `a*b.test` is no host name / a star stands only for all subdomains: "*.github.com"
        `0` in `x.test:0` is no port / 
        `bücher.de` is no host name / write a name with other letters in its xn-- form
        `10.0.0.0/99` is no range of addresses / a range is written "10.0.0.0/8"
        "#
        );
    }
}
