//! The sandbox of a new rule whose words do not name one, so that the allowed command also
//! works: the sandbox of the rule before it, or one that reaches the hosts in its words.

use clash_policy::Effect;
use clash_policy::decide::{Decision, DecisionCause};
use clash_policy::net::HostPattern;
use clash_syntax::draft::{HostRuleDraft, KeyDraft, NetDraft, NetRules, SandboxBase, SandboxDraft};

use crate::foresee::hosts_named;

/// The sandbox of a new rule.
#[derive(Debug)]
pub(super) enum RuleSandbox {
    /// The sandbox of the rule that decided before.
    Kept(String),
    /// A sandbox that the policy does not define yet.
    Made(Box<SandboxDraft>),
}

/// The sandbox for a rule about a command. `before` is the decision about the command without
/// the rule, `usual` the default sandbox. `None` for a command without hosts in its words
/// that the default sandbox would run.
pub(super) fn choose(line: &str, before: &Decision, usual: Option<&str>) -> Option<RuleSandbox> {
    let usual = usual?;
    let hosts = hosts_named(line);
    if !hosts.is_empty() {
        return Some(RuleSandbox::Made(Box::new(reaching(usual, &hosts))));
    }
    let part = before.decisive()?;
    let by_rule = matches!(part.cause, DecisionCause::Rule { .. });
    let kept = part.sandbox.clone().filter(|name| by_rule && name != usual)?;
    Some(RuleSandbox::Kept(kept))
}

/// The default sandbox with a network of these hosts alone.
fn reaching(usual: &str, hosts: &[(String, u16)]) -> SandboxDraft {
    let is_local = |host: &str| HostPattern::Localhost.matches(host);
    let mut name = usual.to_owned();
    for (host, port) in hosts {
        let host = if is_local(host) { "localhost" } else { host };
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        name.push('_');
        name.extend(host.chars().map(plain));
        if host == "localhost" || !matches!(port, 80 | 443) {
            name.push_str(&format!("_{port}"));
        }
    }
    let mut sandbox = SandboxDraft::new(name, SandboxBase::Extends(usual.to_owned()));
    let rules = if hosts.iter().all(|(host, _)| is_local(host)) {
        let mut ports: Vec<u16> = hosts.iter().map(|(_, port)| *port).collect();
        ports.sort_unstable();
        ports.dedup();
        NetRules::Localhost(ports)
    } else {
        let rule = |(host, port): &(String, u16)| {
            let key = match (is_local(host), *port) {
                (true, port) => KeyDraft::Localhost(vec![port]),
                (false, 80 | 443) => KeyDraft::text(host),
                (false, port) => KeyDraft::text(format!("{host}:{port}")),
            };
            HostRuleDraft { comment: Vec::new(), key, effect: Effect::Allow }
        };
        NetRules::Hosts { rules: hosts.iter().map(rule).collect(), default: Effect::Deny }
    };
    sandbox.net = Some(NetDraft { comment: Vec::new(), rules });
    sandbox
}
