//! The network of a sandbox: the host's, none, or one with a gate.

use clash_net::HostRules;
use clash_policy::{Effect, FileCaps, FsRule, HostPattern, NetRule, NetworkAccess, Sandbox};

use super::{NetworkMode, PlanError};
use crate::plan::room::SharedPorts;

/// The network that a launch has to prepare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetworkNeed {
    Host,
    /// A loopback and nothing else.
    Closed,
    /// A loopback and a gate, whose rules allow this number of ports.
    Gated {
        ports: usize,
    },
}

/// Predicts the namespaces of a plan from the rules alone, without the disk. `None` if no
/// rule needs a room or the network rule is refused: then the launcher need not prepare any.
/// A wrong guess costs time only.
pub(crate) fn namespaces(sandbox: &Sandbox) -> Option<NetworkNeed> {
    let changes =
        |rule: &FsRule| rule.effect == Effect::Allow && rule.caps.intersects(FileCaps::CHANGE);
    let need = match plan_network(sandbox).ok()? {
        (NetworkMode::Allow, _) => NetworkNeed::Host,
        (NetworkMode::Deny, SharedPorts { gate: Some(net), .. }) => {
            NetworkNeed::Gated { ports: HostRules::new(net).ports().len() }
        }
        (NetworkMode::Deny, _) => NetworkNeed::Closed,
    };
    (matches!(need, NetworkNeed::Gated { .. }) || sandbox.fs.iter().any(changes)).then_some(need)
}

/// True if all rules are about addresses or the loopback, allow or deny, and the default is
/// deny. The monitor can then judge each `connect` by its address alone.
pub(super) fn names_no_host(net: &NetworkAccess) -> bool {
    let NetworkAccess::Hosts { rules, default: Effect::Deny } = net else { return false };
    let by_address = |rule: &NetRule| match rule.host {
        HostPattern::Localhost | HostPattern::Addresses { .. } => rule.effect != Effect::Ask,
        _ => rule.effect == Effect::Deny,
    };
    rules.iter().all(by_address)
}

/// The network mode, and the ways to the host that a room of its own has: ports of the
/// loopback, and the gate for rules about other hosts.
pub(super) fn plan_network(sandbox: &Sandbox) -> Result<(NetworkMode, SharedPorts), PlanError> {
    let served = sandbox.serve.clone();
    let (rules, default): (&[NetRule], Effect) = match &sandbox.net {
        // On the host's network, a server inside listens on the host.
        NetworkAccess::Allow => return Ok((NetworkMode::Allow, SharedPorts::default())),
        NetworkAccess::Deny => (&[], Effect::Deny),
        NetworkAccess::Ask => (&[], Effect::Ask),
        NetworkAccess::Hosts { rules, default } => (rules, *default),
    };
    let is_local = |rule: &&NetRule| rule.host == HostPattern::Localhost;
    let open = || rules.iter().filter(|rule| rule.effect != Effect::Deny);
    if let Some(rule) = open().filter(is_local).find(|rule| rule.ports.is_empty()) {
        let rule = format!("net: {rule} without ports");
        return Err(PlanError::NotYet { rule, span: sandbox.span.clone() });
    }
    let judged = |port: &u16| sandbox.net.judge("localhost", *port).0 == Effect::Allow;
    let ports = open().filter(is_local).flat_map(|rule| rule.ports.iter().copied());
    let mut reached: Vec<u16> = ports.filter(judged).collect();
    reached.sort_unstable();
    reached.dedup();
    let needs_gate = default != Effect::Deny || open().any(|rule| !is_local(&rule));
    let gate = needs_gate.then(|| sandbox.net.clone());
    Ok((NetworkMode::Deny, SharedPorts { reached, served, gate }))
}
