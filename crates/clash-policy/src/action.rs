//! One action of an agent, in the same words for every agent.

use std::path::PathBuf;

use crate::effect::FileCaps;

/// One request of an agent: a tool, its input, and the agent that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// `claude`, `codex`, …
    pub agent: String,
    /// The tool's name as the policy writes it (`Bash`, `Read`, …).
    pub tool: String,
    /// The permission mode of the agent, for example `plan` or `default`.
    pub mode: String,
    pub input: ToolInput,
}

/// The input of a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolInput {
    /// A script for the shell. [`clash_shell::find_commands`] finds its commands.
    Script(String),
    /// Files or directories; each is judged and the strictest answer holds.
    Files(Vec<FileUse>),
    /// Hosts to connect to; empty for a search, which names no host.
    Hosts(Vec<HostUse>),
    /// The input of any other tool.
    Fields(Vec<InputField>),
}

/// A path a tool works on, with every symlink already resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileUse {
    pub path: PathBuf,
    pub needs: FileCaps,
    /// The volume takes `A` and `a` for the same name.
    pub caseless: bool,
}

/// A host a tool talks to, its name already normalised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostUse {
    pub host: String,
    pub port: u16,
}

/// A field of a tool's input by its dotted name. The elements of a list are
/// several values of one field; numbers and truth values are their JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputField {
    pub name: String,
    pub values: Vec<String>,
}

impl Action {
    /// A call of the shell tool, which policies name `Bash`.
    pub fn script(agent: &str, mode: &str, script: &str) -> Self {
        Self {
            agent: agent.to_owned(),
            tool: "Bash".to_owned(),
            mode: mode.to_owned(),
            input: ToolInput::Script(script.to_owned()),
        }
    }
}
