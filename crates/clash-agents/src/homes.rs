//! Where agents keep their own state. `clash run` lets a whole agent write it, except the
//! settings in it that steer the agent.
//!
//! `~/.claude.json` is both: Claude Code keeps its state there, and settings of the user, for
//! example MCP servers. So it stays writable.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::context::UserContext;
use crate::variables;

/// The state of an agent, by the name of its program.
#[derive(Debug)]
pub struct AgentHome {
    pub program: &'static str,
    /// Paths below the home directory, unless a variable names another path.
    state: &'static [StateEntry],
}

/// A file or directory of an agent's state.
#[derive(Debug)]
struct StateEntry {
    path: &'static str,
    /// The variable that names another path for it.
    variable: Option<&'static str>,
    /// The files and directories in it that steer the agent.
    settings: &'static [&'static str],
    is_file: bool,
}

/// A directory with the paths in it that steer the agent.
const fn directory(path: &'static str, settings: &'static [&'static str]) -> StateEntry {
    StateEntry { path, variable: None, settings, is_file: false }
}

/// A directory with the paths in it that steer the agent, which a variable may move
/// elsewhere.
const fn movable_directory(
    path: &'static str,
    variable: &'static str,
    settings: &'static [&'static str],
) -> StateEntry {
    StateEntry { path, variable: Some(variable), settings, is_file: false }
}

const fn file(path: &'static str) -> StateEntry {
    StateEntry { path, variable: None, settings: &[], is_file: true }
}

const fn home(program: &'static str, state: &'static [StateEntry]) -> AgentHome {
    AgentHome { program, state }
}

const OPENCODE: &[&str] = &[
    "agent",
    "agents",
    "command",
    "commands",
    "config.json",
    "kilo.json",
    "kilo.jsonc",
    "opencode.json",
    "opencode.jsonc",
    "plugin",
    "plugins",
    "tool",
    "tools",
];
const GEMINI: &[&str] =
    &["agents", "commands", "extensions", "hooks", "policies", "settings.json", "skills"];

const HOMES: &[AgentHome] = &[
    home("aider", &[directory(".aider", &[])]),
    home(
        "amp",
        &[directory(".config/amp", &["settings.json"]), directory(".local/share/amp", &[])],
    ),
    home("auggie", &[directory(".augment", &["settings.json"])]),
    home(
        "claude",
        &[
            movable_directory(
                ".claude",
                variables::CLAUDE_CONFIG_DIR,
                &[
                    "agents",
                    "commands",
                    "hooks",
                    "plugins",
                    "settings.json",
                    "settings.local.json",
                    "skills",
                ],
            ),
            file(".claude.json"),
        ],
    ),
    home("cline", &[directory(".cline", &["hooks", "plugins", "rules", "skills", "workflows"])]),
    home("cn", &[directory(".continue", &["config.json", "config.ts", "config.yaml"])]),
    home(
        "codex",
        &[movable_directory(
            ".codex",
            variables::CODEX_HOME,
            &["config.toml", "hooks", "hooks.json", "prompts", "rules", "skills"],
        )],
    ),
    home(
        "copilot",
        &[directory(".copilot", &["hooks", "mcp-config.json"]), directory(".cache/copilot", &[])],
    ),
    home(
        "crush",
        &[directory(".config/crush", &["crush.json"]), directory(".local/share/crush", &[])],
    ),
    home("cursor-agent", &[directory(".cursor", &["hooks", "hooks.json", "mcp.json", "rules"])]),
    home(
        "droid",
        &[directory(".factory", &["commands", "droids", "hooks", "mcp.json", "settings.json"])],
    ),
    home("gemini", &[directory(".gemini", GEMINI)]),
    home(
        "goose",
        &[
            directory(".config/goose", &["config.yaml"]),
            directory(".local/share/goose", &[]),
            directory(".local/state/goose", &[]),
        ],
    ),
    home(
        "kilo",
        &[
            directory(".config/kilo", OPENCODE),
            directory(".local/share/kilo", &[]),
            directory(".local/state/kilo", &[]),
            directory(".cache/kilo", &[]),
        ],
    ),
    home("kiro-cli", &[directory(".kiro", &["agents", "hooks", "settings"])]),
    home(
        "opencode",
        &[
            directory(".config/opencode", OPENCODE),
            directory(".local/share/opencode", &[]),
            directory(".local/state/opencode", &[]),
            directory(".cache/opencode", &[]),
        ],
    ),
    home(
        "pi",
        &[directory(".pi", &["agent/extensions", "agent/models.json", "agent/settings.json"])],
    ),
    home("q", &[directory(".aws/amazonq", &["cli-agents", "mcp.json"])]),
    home("qwen", &[directory(".qwen", GEMINI)]),
];

/// The state of the agent with this program, by its file name.
pub fn find_home(program: &OsStr) -> Option<&'static AgentHome> {
    let name = Path::new(program).file_name()?;
    HOMES.iter().find(|home| name == home.program)
}

impl AgentHome {
    /// The state on this machine, whether it exists or not.
    pub fn places(&self, user: &UserContext) -> Vec<StatePlace> {
        let place = |state: &StateEntry| {
            let moved = state.variable.and_then(|name| user.path_variable(name));
            let path = moved.unwrap_or_else(|| user.home.join(state.path));
            let settings = state.settings.iter().map(|name| path.join(name)).collect();
            StatePlace { path, settings, is_file: state.is_file }
        };
        self.state.iter().map(place).collect()
    }
}

/// A file or directory of an agent's state on this machine.
#[derive(Debug)]
pub struct StatePlace {
    pub path: PathBuf,
    /// The paths in it that steer the agent.
    pub settings: Vec<PathBuf>,
    /// True if it is a file and not a directory.
    pub is_file: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_known_by_the_name_of_its_program() {
        assert_eq!(find_home(OsStr::new("/opt/x/claude")).map(|home| home.program), Some("claude"));
        assert!(
            find_home(OsStr::new("claude-code")).is_none() && find_home(OsStr::new("/")).is_none()
        );
    }

    #[test]
    fn every_agent_that_asks_clash_has_a_place() {
        for agent in crate::AGENTS {
            assert!(find_home(OsStr::new(agent.abilities.program)).is_some(), "{}", agent.name);
        }
    }

    #[test]
    fn the_table_is_sorted_and_says_every_path_from_the_home() {
        assert!(HOMES.is_sorted_by_key(|home| home.program));
        for state in HOMES.iter().flat_map(|home| home.state) {
            let paths = std::iter::once(&state.path).chain(state.settings);
            assert!(paths.into_iter().all(|path| Path::new(path).is_relative()), "{state:?}");
        }
    }
}
