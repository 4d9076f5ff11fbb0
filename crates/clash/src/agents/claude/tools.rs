//! Claude Code's tools as actions.

use std::path::Path;

use clash_policy::Action;

use super::Message;
use crate::tool_input::{self, From, ToolError};

/// Tools that are themselves a question to the user and touch nothing.
const PROMPTS: &[&str] = &["AskUserQuestion", "EnterPlanMode", "ExitPlanMode"];

pub(crate) fn is_prompt(tool: &str) -> bool {
    PROMPTS.contains(&tool)
}

/// What the tool call wants.
pub(crate) fn action(message: &Message, home: &Path) -> Result<Action, ToolError> {
    let from = From { cwd: Path::new(&message.cwd), home };
    let (tool, input) = tool_input::read(&message.tool_name, &message.tool_input, &from)?;
    let mode = message.permission_mode.clone();
    Ok(Action { agent: "claude".to_owned(), tool, mode, input })
}
