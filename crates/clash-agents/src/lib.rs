//! The agents clash knows, and everything that depends on which agent it is.
//!
//! For each agent this crate has one file with one [`Agent`]: the messages its hooks
//! send, the replies it honours, its tools, its settings files and its directories. No
//! other crate names an agent, except the readers of histories and of settings to import.
//!
//! The crate parses JSON and TOML that a hostile project or a misled model can write.
//! It prints nothing and reads no environment variable: [`UserContext`] has the paths and
//! the variables, [`RealPaths`] resolves paths. An adapter that does not understand a
//! message returns an error, and the hook blocks the call.
#![forbid(unsafe_code)]

mod agent;
mod amazon_q;
pub mod attended;
mod claude;
mod claude_like;
mod cline;
mod codex;
mod context;
mod copilot;
mod cursor;
mod droid;
mod gemini;
pub mod homes;
mod message;
mod opencode;
pub mod own_rules;
mod patch;
mod pi;
mod plugin;
mod project_settings;
#[cfg(test)]
mod properties;
mod qwen;
mod shell_wrapper;
#[cfg(test)]
mod test_support;
pub mod tool_input;
pub mod url;
pub mod variables;
pub mod wiring;

pub use agent::{
    AGENTS, Agent, AgentAbilities, AgentExtras, ConfinementMethod, DEFAULT_AGENT, QuestionSupport,
    ToolUseResult, WiringProblem, agent_with_shell_wrapper, find_agent, find_agent_by_program,
    settings_for_policies, steering_paths,
};
pub use context::{AGENTS_SHELL, SHELL_LAUNCHER, UserContext, may_have_settings};
pub use message::{
    HookAnswer, HookEvent, HookMessage, HookReply, MessageError, ParsedMessage, SampleCall,
};
pub use shell_wrapper::{ShellWrapper, WrappedCommand};
pub use tool_input::{CallContext, PathLookupError, RealPaths, ToolError};
