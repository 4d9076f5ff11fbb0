//! The values that the keys of a policy are compared with: one command, path, host or
//! tool input of an action.

use crate::action::{Action, FileUse, InputField};
use crate::judge::JudgeContext;
use crate::rule::KeySubject;
use clash_shell::{CommandDirectory, ShellCommand, ShellWord};

/// The values of one command, path, host or tool input. Parts that do not apply are empty.
pub(super) struct MatchFacts<'x> {
    pub(super) action: &'x Action,
    pub(super) context: &'x JudgeContext<'x>,
    pub(super) words: &'x [ShellWord],
    pub(super) opaque: bool,
    /// The command runs in the directory in which the script starts.
    pub(super) at_start: bool,
    pub(super) host: Option<&'x str>,
    pub(super) file: Option<&'x FileUse>,
    pub(super) fields: &'x [InputField],
}

impl<'x> MatchFacts<'x> {
    /// Facts without a command, file, host or field.
    pub(super) fn tool(action: &'x Action, context: &'x JudgeContext<'x>) -> Self {
        Self {
            action,
            context,
            words: &[],
            opaque: false,
            at_start: true,
            host: None,
            file: None,
            fields: &[],
        }
    }

    /// Facts about one command of a script.
    pub(super) fn command(
        action: &'x Action,
        context: &'x JudgeContext<'x>,
        command: &'x ShellCommand,
    ) -> Self {
        let opaque = command.opaque.is_some();
        let at_start = command.cwd == CommandDirectory::Start;
        Self { words: &command.words, opaque, at_start, ..Self::tool(action, context) }
    }

    /// The text that root keys are compared with; `None` for every other subject.
    pub(super) fn text(&self, subject: KeySubject) -> Option<&str> {
        match subject {
            KeySubject::Tool => Some(&self.action.tool),
            KeySubject::Mode => Some(&self.action.mode),
            KeySubject::Agent => Some(&self.action.agent),
            _ => None,
        }
    }
}
