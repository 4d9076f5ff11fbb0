//! pi: an extension judges every tool call and puts clash in front of commands.
//!
//! Seen with pi 0.73.1. It fails closed: it blocks a call if an extension throws, and ends
//! if one does not load. It asks the user where it has a screen; elsewhere a question is a
//! no.
//!
//! Limits: clash does not see `!command`, which the user types. `--no-extensions` leaves
//! clash out.

use std::path::{Path, PathBuf};

use super::wiring::{ClashCall, InstallScope, WholeFile, WiredFile};
use super::{
    Agent, AgentAbilities, AgentExtras, ConfinementMethod, HookMessage, QuestionSupport,
    ToolUseResult, claude_like, plugin,
};
use crate::context::UserContext;
use crate::tool_input::CallContext;
use crate::variables;

pub(crate) static AGENT: Agent = Agent {
    name: "pi",
    title: "pi",
    abilities: AgentAbilities {
        program: "pi",
        oldest: [0, 73, 0],
        asks: QuestionSupport::Yes,
        confines: ConfinementMethod::Rewrite,
        project: Some(plugin::PROJECT),
        session: None,
        moves_files: true,
        openings: plugin::OPENINGS,
    },
    parse: plugin::parse,
    sample: plugin::sample,
    call,
    rewrite: claude_like::rewrite,
    reply: plugin::reply,
    files,
    steers,
    hostile: |_, _| None,
    extras: AgentExtras::NONE,
};

/// A tool of another extension with a `command` is judged like a shell.
fn call(message: &HookMessage, context: &CallContext<'_>) -> ToolUseResult {
    let (tool, input) = (message.tool.as_str(), &message.input);
    match tool {
        "bash" => plugin::read_renamed("Bash", input, &[], context),
        "find" => plugin::read_renamed("Glob", input, &[], context),
        "edit" | "grep" | "ls" | "read" | "write" => {
            let renamed: &[_] = if tool == "grep" { &[] } else { &[("path", "file_path")] };
            plugin::read_renamed(tool, input, renamed, context)
        }
        // A tool of another extension. A tool with a command runs it.
        _ => plugin::read_renamed(tool, input, &[], context),
    }
}

/// The directory of the client's settings.
fn home(user: &UserContext) -> PathBuf {
    user.path_variable(variables::PI_CODING_AGENT_DIR)
        .unwrap_or_else(|| user.home.join(".pi/agent"))
}

/// The extension, for the user only.
fn files(user: &UserContext, scope: &InstallScope) -> Vec<WiredFile> {
    if *scope != InstallScope::User {
        return Vec::new();
    }
    let text = plugin::plugin_text(include_str!("pi/clash.js"), user, AGENT.name);
    let edit = WholeFile { agent: AGENT.name, text, mark: plugin::MARK, calls: ClashCall::Plugin };
    vec![WiredFile { file: home(user).join("extensions/clash.ts"), edit: Box::new(edit) }]
}

/// The directories with the client's settings.
fn steers(user: &UserContext, project: &Path) -> Vec<PathBuf> {
    vec![home(user), project.join(".pi")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::tool_uses;

    #[test]
    fn every_recorded_call_is_understood() {
        let recorded = include_str!("../tests/fixtures/pi/calls.jsonl");
        assert_eq!(
            tool_uses(&AGENT, recorded),
            [
                "Bash echo hi > out.txt; cat out.txt",
                "Write /work/app/w.txt wc",
                "Read /work/app/w.txt r",
                "Edit /work/app/w.txt rw",
            ]
        );
    }
}
