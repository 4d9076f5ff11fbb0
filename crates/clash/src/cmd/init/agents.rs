//! The agents on this machine, for `clash init`. It wires them as `clash install` does.

use clash_agents::wiring::InstallScope;
use clash_agents::{AGENTS, find_agent};

use crate::cmd::install::{install_agent, is_here};
use crate::cmd::wiring::AgentWiring;
use crate::dirs::Dirs;
use crate::ui::{CommandOutput, Failure};

/// The names of all agents that clash knows.
pub(super) fn names() -> Vec<&'static str> {
    AGENTS.iter().map(|agent| agent.name).collect()
}

/// True if clash knows an agent of this name.
pub(super) fn is_known(agent: &str) -> bool {
    find_agent(agent).is_some()
}

/// The agents whose programs are on this machine.
pub(super) fn found() -> Vec<String> {
    let here = AGENTS.iter().filter(|agent| is_here(agent));
    here.map(|agent| agent.name.to_owned()).collect()
}

/// True if the user's settings of any agent have entries of clash.
pub(super) fn is_any_wired(dirs: &Dirs) -> bool {
    AGENTS.iter().any(|agent| AgentWiring::read(dirs, agent, &InstallScope::User).is_wired())
}

/// Wires an agent as `clash install --agent NAME` does. The failure says that the policy is
/// already written.
pub(super) fn wire(
    name: &str,
    yes: bool,
    asks: bool,
    out: &mut CommandOutput,
) -> Result<(), Failure> {
    let agent =
        find_agent(name).ok_or_else(|| Failure::new(format!("no agent `{name}` is known")))?;
    install_agent(agent, yes, asks, out).map_err(|failure| Failure {
        message: format!("the policy is written, but {name} is not wired: {}", failure.message),
        ..failure
    })
}
