//! Looks for settings of a project that work against clash, before anything runs there.
//!
//! For example, `.claude/settings.json` with `disableAllHooks` makes the client call no
//! hook, so the policy would judge nothing that it does.

use std::path::Path;

use clash_agents::{AGENTS, Agent, may_have_settings};

use crate::dirs::Dirs;

#[derive(Debug, thiserror::Error)]
#[error("settings of this project work against clash, so nothing runs here: {problem}")]
pub(crate) struct HostileSettingsError {
    problem: String,
}

impl HostileSettingsError {
    pub(crate) const HINT: &str =
        "look at that file, which came with the project, and remove the setting";
}

/// Fails if settings of the project switch clash off for the agent. Without an agent, for
/// example at a terminal, it looks at every agent that clash is installed for.
pub(crate) fn refuse_hostile_settings(
    dirs: &Dirs,
    project: &Path,
    agent: Option<&Agent>,
) -> Result<(), HostileSettingsError> {
    let user = dirs.for_agents();
    let problem = match agent {
        Some(agent) => (agent.hostile)(&user, project),
        None if !may_have_settings(project) => None,
        // Most projects have no such file, so the installation is looked at last.
        None => AGENTS.iter().find_map(|agent| {
            let problem = (agent.hostile)(&user, project)?;
            agent.is_wired(&user, project).then_some(problem)
        }),
    };
    problem.map_or(Ok(()), |problem| Err(HostileSettingsError { problem }))
}
