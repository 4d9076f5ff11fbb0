//! The description of an agent, and the list of all agents.
//!
//! A description is data and pure functions, one file for each agent. The hook, the
//! launcher, `clash install` and `clash doctor` use only the description. Example: a
//! client that cannot ask the user says so in its [`AgentAbilities`]; the hook then
//! denies the call and tells the model to ask the user.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clash_policy::{Action, ToolInput};
use serde_json::{Map, Value};

use crate::context::UserContext;
use crate::message::{HookAnswer, HookEvent, HookMessage, HookReply, ParsedMessage, SampleCall};
use crate::own_rules::ClientRule;
use crate::shell_wrapper::ShellWrapper;
use crate::tool_input::{CallContext, RealPaths, ToolError};
use crate::wiring::{InstallScope, WiredFile, WiringState};
use crate::{amazon_q, claude, cline, codex, copilot, cursor, droid, gemini, opencode, pi, qwen};

/// Every agent clash knows.
pub static AGENTS: &[&Agent] = &[
    &claude::AGENT,
    &codex::AGENT,
    &gemini::AGENT,
    &qwen::AGENT,
    &droid::AGENT,
    &opencode::OPENCODE,
    &opencode::KILO,
    &copilot::AGENT,
    &cline::AGENT,
    &pi::AGENT,
    &amazon_q::Q,
    &amazon_q::KIRO,
    &cursor::AGENT,
];

/// The agent that commands of clash assume where the user names none, for example
/// `clash explain`.
pub const DEFAULT_AGENT: &str = "claude";

/// The agent of this name, as in `clash hook NAME`.
pub fn find_agent(name: &str) -> Option<&'static Agent> {
    AGENTS.iter().copied().find(|agent| agent.name == name)
}

/// The agent with this program, by its file name in any directory.
pub fn find_agent_by_program(program: &OsStr) -> Option<&'static Agent> {
    let name = Path::new(program).file_name()?;
    AGENTS.iter().copied().find(|agent| name == agent.abilities.program)
}

/// The agent that starts its shells through `clash-shell`.
pub fn agent_with_shell_wrapper() -> Option<(&'static Agent, &'static ShellWrapper)> {
    AGENTS.iter().find_map(|agent| Some((*agent, agent.extras.shell_wrapper?)))
}

/// The tool's name in policies and its input. `None`: the tool is a question to the
/// user and touches nothing.
pub type ToolUseResult = Result<Option<(String, ToolInput)>, ToolError>;

/// One agent: its abilities, and the functions that translate for it.
#[derive(Debug)]
pub struct Agent {
    /// As in `clash hook NAME` and `--agent NAME`.
    pub name: &'static str,
    /// The name in messages to people.
    pub title: &'static str,
    pub abilities: AgentAbilities,
    /// Reads a message of the client. A message it does not understand is an error, and
    /// the hook blocks the call.
    pub parse: fn(&[u8]) -> ParsedMessage,
    /// A message about a command, as the client would send it.
    pub sample: fn(&SampleCall<'_>) -> Value,
    /// The tool use of a message, in the words of policies. A tool that clash does not
    /// know is judged by its fields; a missing field is an error, and the hook blocks.
    pub call: fn(&HookMessage, &CallContext<'_>) -> ToolUseResult,
    /// The tool's input with another command in it. `None`: the client takes no other.
    pub rewrite: fn(&HookMessage, &str) -> Option<Map<String, Value>>,
    /// The answer in the words of the client.
    pub reply: fn(HookEvent, HookAnswer) -> HookReply,
    /// The files of an installation.
    pub files: fn(&UserContext, &InstallScope) -> Vec<WiredFile>,
    /// The files and directories that steer this agent in a project. No sandbox and no
    /// tool may change them.
    pub steers: fn(&UserContext, &Path) -> Vec<PathBuf>,
    /// One line about a file of the project that works against clash, for example one
    /// that switches hooks off. Reads those files; a file that clash cannot read counts too.
    pub hostile: fn(&UserContext, &Path) -> Option<String>,
    pub extras: AgentExtras,
}

/// The parts of a description that only some agents have.
#[derive(Debug)]
pub struct AgentExtras {
    /// How the client starts its shells through `clash-shell`.
    pub shell_wrapper: Option<&'static ShellWrapper>,
    /// The client's own rules about commands, which do not see a rewritten command.
    pub(crate) command_rules: fn(&UserContext, &Path) -> Vec<ClientRule>,
    /// Why the client must not use settings that changed during a session. The text is
    /// the client's word for the kind of settings.
    pub refuse_settings_change: fn(&UserContext, &str) -> Option<String>,
    /// The directory with the client's history of sessions, if clash can read it.
    pub history: Option<fn(&UserContext) -> PathBuf>,
    /// The settings files whose rules `clash policy import` can read.
    pub importable: fn(&UserContext, &Path) -> Vec<PathBuf>,
}

impl AgentExtras {
    pub(crate) const NONE: Self = Self {
        shell_wrapper: None,
        command_rules: |_, _| Vec::new(),
        refuse_settings_change: |_, _| {
            Some("settings come into force with the next session".to_owned())
        },
        history: None,
        importable: |_, _| Vec::new(),
    };
}

impl Agent {
    /// Reads a message of the client, also whether its command runs in the background.
    pub fn read_message(&self, bytes: &[u8]) -> ParsedMessage {
        let (event, mut message) = (self.parse)(bytes)?;
        message.runs_in_background = message.starts_background_command();
        Ok((event, message))
    }

    /// The action that a tool call asks for. `None`: the call is itself a question to the
    /// user.
    pub fn action(
        &self,
        message: &HookMessage,
        home: &Path,
        paths: &dyn RealPaths,
    ) -> Result<Option<Action>, ToolError> {
        let context = CallContext { cwd: Path::new(&message.cwd), home, paths };
        let call = (self.call)(message, &context)?;
        Ok(call.map(|(tool, input)| Action {
            agent: self.name.to_owned(),
            tool,
            mode: message.mode.clone(),
            input,
        }))
    }

    /// True if one of the settings files this agent reads in a project has an entry of
    /// clash: of the user, of the project or of the machine. A file that cannot be read has
    /// none.
    pub fn is_wired(&self, user: &UserContext, project: &Path) -> bool {
        let machine = user.for_machine();
        let project = InstallScope::Project(project.to_path_buf());
        let scopes =
            [(user, InstallScope::User), (user, project), (&machine, InstallScope::Managed)];
        let mut files = scopes.iter().flat_map(|(user, scope)| (self.files)(user, scope));
        files.any(|wired| {
            let text = std::fs::read_to_string(&wired.file).unwrap_or_default();
            matches!(wired.edit.state(&text), Ok(WiringState::Present(_)))
        })
    }

    /// The agent's own sandbox, if the user's settings leave it on. `None` also if they
    /// cannot be read.
    pub fn own_sandbox(&self, user: &UserContext) -> Option<WiringProblem> {
        (self.files)(user, &InstallScope::User).iter().find_map(|wired| {
            let text = std::fs::read_to_string(&wired.file).ok()?;
            wired.edit.own_sandbox(&text).ok()?.problem(self)
        })
    }

    /// A line about settings that work against clash, in the project or in the directory
    /// where the agent starts. Clients read the settings of one of them or of both.
    pub fn against(&self, user: &UserContext, project: &Path, cwd: &Path) -> Option<String> {
        [project, cwd].into_iter().find_map(|dir| (self.hostile)(user, dir))
    }

    /// True if the client starts its shells through the launcher by itself, so that the
    /// hook leaves the command as it is.
    pub fn starts_launcher(&self, user: &UserContext) -> bool {
        match (self.abilities.confines, self.extras.shell_wrapper) {
            (ConfinementMethod::Shell, _) => true,
            (ConfinementMethod::ShellPrefix, Some(wrapper)) => user
                .path_variable(wrapper.prefix_variable)
                .is_some_and(|prefix| user.is_shell_launcher(&prefix)),
            _ => false,
        }
    }
}

/// The abilities of a client, as seen by running it. `docs/agents.md` shows them.
#[derive(Debug)]
pub struct AgentAbilities {
    /// The name of its program on the search path.
    pub program: &'static str,
    /// The first version these facts hold for.
    pub oldest: [u32; 3],
    pub asks: QuestionSupport,
    pub confines: ConfinementMethod,
    /// The variable that tells hooks the project of the session.
    pub project: Option<&'static str>,
    /// The variable that tells commands their session.
    pub session: Option<&'static str>,
    /// True if the client honours another path in the input of a file tool.
    pub moves_files: bool,
    /// The beginnings of valid answers on standard output. The guard blocks every other
    /// output.
    pub openings: &'static [&'static str],
}

impl AgentAbilities {
    /// A client with the fewest abilities. Its description sets the others.
    pub(crate) const MINIMAL: Self = Self {
        program: "",
        oldest: [0, 0, 0],
        asks: QuestionSupport::No,
        confines: ConfinementMethod::Instruct,
        project: None,
        session: None,
        moves_files: false,
        openings: &[],
    };
}

/// Whether the client can put a question of clash to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionSupport {
    /// It asks, and takes a question that no user can answer for a no.
    Yes,
    /// It asks, and waits for ever where no user sits at a terminal. There the hook must
    /// not ask.
    Attended,
    /// It does not ask, and would run the tool.
    No,
}

/// How a command gets into its sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfinementMethod {
    /// The client starts every shell through clash.
    ShellPrefix,
    /// Clash is the shell that the client is set to.
    Shell,
    /// The hook puts clash in front of the command.
    Rewrite,
    /// Like [`Self::Rewrite`]. A refusal would end the client's task, so the hook replaces
    /// a refused command by one that prints the reason for the model.
    RewriteAlways,
    /// The client ignores a rewritten command. The hook refuses the bare command and
    /// tells the model the line to run instead.
    Instruct,
}

/// A weakness of an installation, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WiringProblem {
    pub what: String,
    pub fix: Option<String>,
}

/// The files and directories that steer any agent in a project. A session of one agent
/// must not prepare a session of another.
pub fn steering_paths(user: &UserContext, project: &Path) -> Vec<PathBuf> {
    AGENTS.iter().flat_map(|agent| (agent.steers)(user, project)).collect()
}

/// The directory of the user's settings that policies can take over, with
/// `claude_settings()`.
pub fn settings_for_policies(user: &UserContext) -> PathBuf {
    claude::home(user)
}
