//! Moves the paths of a file tool from /tmp to the session's directory, which commands
//! of the session see as /tmp.

use std::path::Path;

use clash_agents::{CallContext, HookMessage, tool_input};
use clash_policy::path::LinkResolver;
use clash_policy::{Action, ToolInput, tool};
use serde_json::{Map, Value};

use super::{HookCall, HookError};
use crate::held_path::HeldPaths;
use crate::temporary::{self, TmpMeaning, TmpNames};

/// A call of a file tool with other paths.
pub(super) struct MovedCall {
    pub(super) action: Action,
    pub(super) input: MovedInput,
}

/// The input that the file tool gets.
pub(super) enum MovedInput {
    AsGiven,
    Replaced(Map<String, Value>),
    /// The client does not take another input: the model has to use the other path.
    Refused,
}

impl HookCall<'_> {
    /// The call of a file tool about /tmp, moved to the session's directory.
    pub(super) fn move_to_session_tmp(
        &self,
        action: &Action,
    ) -> Result<Option<MovedCall>, HookError> {
        let ToolInput::Files(_) = &action.input else { return Ok(None) };
        let project = &self.session.project;
        let planned = temporary::session_tmp(&self.session.dir);
        let session = clash_sandbox::disk::Disk::default().real(&planned);
        let names = TmpNames { dirs: self.dirs, project, session: &session };
        match temporary::find_tmp_meaning(&names, self.session, &action.input) {
            None => Ok(None),
            Some(TmpMeaning::ClientsOwn(input)) => {
                let action = Action { input, ..action.clone() };
                Ok(Some(MovedCall { action, input: MovedInput::AsGiven }))
            }
            Some(TmpMeaning::InSession) => self.with_moved_paths(action, &names),
        }
    }

    /// The call with its paths below /tmp moved to the session's directory, which is created.
    /// Marked as refused if the client cannot take other paths. `None` if the new input is no
    /// action.
    fn with_moved_paths(
        &self,
        action: &Action,
        names: &TmpNames<'_>,
    ) -> Result<Option<MovedCall>, HookError> {
        temporary::hold(&self.session.dir).map_err(HookError::Temporary)?;
        let needs = tool::needs(&action.tool);
        let (cwd, home) = (Path::new(&self.message.cwd), self.dirs.home.as_path());
        let from = CallContext { cwd, home, paths: &HeldPaths };
        let input = tool_input::replace_paths(&self.message.input, &from, |path| {
            names.meaning_to_tools(path, needs)
        });
        let message = HookMessage { input: input.clone(), ..self.message.clone() };
        let Some(mut action) = self.agent.action(&message, &self.dirs.home, &HeldPaths)? else {
            return Ok(None);
        };
        // The paths of a patch, for example, are not in fields of their own.
        let kept = temporary::find_tmp_meaning(names, self.session, &action.input).is_some();
        // Only those: a link in the session's directory may lead to the host's /tmp, and
        // the tool would open the file there.
        if let (true, ToolInput::Files(files)) = (kept, &mut action.input) {
            for file in files {
                file.path = names.meaning(&file.path).unwrap_or(file.path.clone());
            }
        }
        let replaced = !kept && self.agent.abilities.moves_files;
        let input = if replaced { MovedInput::Replaced(input) } else { MovedInput::Refused };
        Ok(Some(MovedCall { action, input }))
    }
}

/// Tells the model to use the other path itself.
pub(super) fn use_instead(action: &Action) -> String {
    let paths = match &action.input {
        ToolInput::Files(files) => {
            files.iter().map(|file| file.path.display().to_string()).collect::<Vec<_>>().join(", ")
        }
        _ => String::new(),
    };
    format!(
        "clash: /tmp is a directory of this session here; use {paths} instead, which commands \
         find in /tmp"
    )
}
