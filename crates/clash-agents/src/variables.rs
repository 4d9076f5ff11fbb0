//! Every environment variable of an agent that clash looks at, once, with its meaning.

/// Where Claude Code keeps its settings; default `~/.claude`.
pub const CLAUDE_CONFIG_DIR: &str = "CLAUDE_CONFIG_DIR";
/// Set by Claude Code for hooks and servers: the project of the session.
pub const CLAUDE_PROJECT_DIR: &str = "CLAUDE_PROJECT_DIR";
/// Set by Claude Code for everything it starts: the session.
pub const CLAUDE_CODE_SESSION_ID: &str = "CLAUDE_CODE_SESSION_ID";
/// A file of shell lines that Claude Code runs before every command, if the user has one.
pub const CLAUDE_ENV_FILE: &str = "CLAUDE_ENV_FILE";
/// The program that Claude Code puts in front of its shell.
pub const CLAUDE_CODE_SHELL_PREFIX: &str = "CLAUDE_CODE_SHELL_PREFIX";
/// The program of Claude Code itself, which its shell functions `grep`, `rg` and `find` run.
pub const CLAUDE_CODE_EXECPATH: &str = "CLAUDE_CODE_EXECPATH";
/// Set by Claude Code: ends in `_agent` for commands of the agent, and in `_harness` for
/// commands from settings (hooks, servers). A project cannot change it.
pub const AI_AGENT: &str = "AI_AGENT";
/// Set by Claude Code for commands in its own sandbox.
pub const SANDBOX_RUNTIME: &str = "SANDBOX_RUNTIME";

/// Where Codex keeps its settings and history; default `~/.codex`.
pub const CODEX_HOME: &str = "CODEX_HOME";

/// The directory in which Gemini CLI looks for `.gemini`; default the home.
pub const GEMINI_CLI_HOME: &str = "GEMINI_CLI_HOME";
/// Set by Gemini CLI for hooks: the project of the session.
pub const GEMINI_PROJECT_DIR: &str = "GEMINI_PROJECT_DIR";

/// Where Qwen Code keeps its settings; default `~/.qwen`.
pub const QWEN_HOME: &str = "QWEN_HOME";
/// Set by Qwen Code for hooks: the project of the session.
pub const QWEN_PROJECT_DIR: &str = "QWEN_PROJECT_DIR";

/// The directory in which Droid looks for `.factory`; default the home.
pub const FACTORY_HOME_OVERRIDE: &str = "FACTORY_HOME_OVERRIDE";
/// Set by Droid for hooks: the project of the session.
pub const FACTORY_PROJECT_DIR: &str = "FACTORY_PROJECT_DIR";

/// Where OpenCode and Kilo keep their settings, in a directory each; default `~/.config`.
pub const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";
/// Where OpenCode keeps its history; default `~/.local/share`.
pub const XDG_DATA_HOME: &str = "XDG_DATA_HOME";

/// Where Copilot CLI keeps its settings; default `~/.copilot`.
pub const COPILOT_HOME: &str = "COPILOT_HOME";
/// Set by Copilot CLI for hooks: the project of the session.
pub const COPILOT_PROJECT_DIR: &str = "COPILOT_PROJECT_DIR";

/// Where Cline keeps its settings; default `~/.cline`.
pub const CLINE_DIR: &str = "CLINE_DIR";

/// Where pi keeps its settings; default `~/.pi/agent`.
pub const PI_CODING_AGENT_DIR: &str = "PI_CODING_AGENT_DIR";

/// Set by the plugins that clash writes, for the hook: the project of the session.
pub const CLASH_PROJECT: &str = "CLASH_PROJECT";
/// Set by the plugins that clash writes, for the commands of an agent: the session.
pub const CLASH_SESSION: &str = "CLASH_SESSION";
