//! One thing an agent wants to do, in the same words for every agent.

use std::path::PathBuf;

use crate::effect::Caps;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// `claude`, `codex`, …
    pub agent: String,
    /// The tool's name as the policy writes it (`Bash`, `Read`, …).
    pub tool: String,
    pub mode: String,
    pub input: Input,
}

/// What the tool was asked to work on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A script for the shell; what it runs is found by [`crate::shell`].
    Script(String),
    /// A file or directory, with every symlink already resolved.
    File { path: PathBuf, needs: Caps },
    /// A host to talk to, already normalised.
    Host(String),
    /// A tool whose input says nothing a rule can look at yet.
    Other,
}

impl Action {
    pub fn script(agent: &str, mode: &str, script: &str) -> Self {
        Self {
            agent: agent.to_owned(),
            tool: "Bash".to_owned(),
            mode: mode.to_owned(),
            input: Input::Script(script.to_owned()),
        }
    }
}
