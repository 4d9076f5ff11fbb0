//! The agents on this machine, for `clash init`: which there are, and wiring them
//! as `clash install` does.

use std::process::Command;

use crate::cmd::install::is_here;
use crate::ui::Failure;
use clash_agents::{AGENTS, find_agent};

/// The agents clash can be put in front of.
pub(super) fn names() -> Vec<&'static str> {
    AGENTS.iter().map(|agent| agent.name).collect()
}

pub(super) fn is_known(agent: &str) -> bool {
    find_agent(agent).is_some()
}

/// The agents whose programs are here.
pub(super) fn found() -> Vec<String> {
    let here = AGENTS.iter().filter(|agent| is_here(agent));
    here.map(|agent| agent.name.to_owned()).collect()
}

/// Runs `clash install --agent NAME` and gives its output. At a terminal it asks its
/// own question and writes there itself.
pub(super) fn wire(agent: &str, yes: bool, asks: bool) -> Result<String, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["install", "--agent", agent]).args(yes.then_some("--yes"));
    if asks {
        let status = command.status()?;
        let failed = || format!("the policy is written, but {agent} is not wired");
        return status.success().then(String::new).ok_or_else(|| Failure::new(failed()));
    }
    let output = command.output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = said.trim().strip_prefix("clash: ").unwrap_or(said.trim());
    let (message, hint) = said.split_once("\n\nhint: ").unwrap_or((said, ""));
    let failure =
        Failure::new(format!("the policy is written, but {agent} is not wired: {message}"));
    Err(if hint.is_empty() { failure } else { failure.hint(hint) })
}
