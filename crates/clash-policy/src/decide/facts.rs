//! What the keys of a policy are compared with: one command, path, host or tool
//! input of an action.

use crate::action::{Action, Field, FileUse};
use crate::judge::World;
use crate::rule::Subject;
use clash_shell::{Command, Cwd, Word};

pub(super) struct Facts<'x> {
    pub(super) action: &'x Action,
    pub(super) world: &'x World<'x>,
    pub(super) words: &'x [Word],
    pub(super) opaque: bool,
    /// The command runs where the script starts, as far as relative names go.
    pub(super) at_start: bool,
    pub(super) host: Option<&'x str>,
    pub(super) file: Option<&'x FileUse>,
    pub(super) fields: &'x [Field],
}

impl<'x> Facts<'x> {
    pub(super) fn tool(action: &'x Action, world: &'x World<'x>) -> Self {
        Self {
            action,
            world,
            words: &[],
            opaque: false,
            at_start: true,
            host: None,
            file: None,
            fields: &[],
        }
    }

    pub(super) fn command(action: &'x Action, world: &'x World<'x>, command: &'x Command) -> Self {
        let opaque = command.opaque.is_some();
        let at_start = command.cwd == Cwd::Start;
        Self { words: &command.words, opaque, at_start, ..Self::tool(action, world) }
    }

    pub(super) fn text(&self, subject: Subject) -> Option<&str> {
        match subject {
            Subject::Tool => Some(&self.action.tool),
            Subject::Mode => Some(&self.action.mode),
            Subject::Agent => Some(&self.action.agent),
            _ => None,
        }
    }
}
