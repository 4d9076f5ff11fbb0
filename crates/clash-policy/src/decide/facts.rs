//! What the keys of a policy are compared with: one command, path, host or tool
//! input of an action.

use crate::action::{Action, Field, FileUse};
use crate::judge::World;
use crate::rule::Subject;
use crate::shell::{Command, Word};

pub(super) struct Facts<'x> {
    pub(super) action: &'x Action,
    pub(super) world: &'x World<'x>,
    pub(super) words: &'x [Word],
    pub(super) opaque: bool,
    pub(super) host: Option<&'x str>,
    pub(super) file: Option<&'x FileUse>,
    pub(super) fields: &'x [Field],
}

impl<'x> Facts<'x> {
    pub(super) fn tool(action: &'x Action, world: &'x World<'x>) -> Self {
        Self { action, world, words: &[], opaque: false, host: None, file: None, fields: &[] }
    }

    pub(super) fn command(action: &'x Action, world: &'x World<'x>, command: &'x Command) -> Self {
        let opaque = command.opaque.is_some();
        Self { words: &command.words, opaque, ..Self::tool(action, world) }
    }

    pub(super) fn text(&self, subject: Subject) -> Option<&str> {
        match subject {
            Subject::Tool => Some(&self.action.tool),
            Subject::Mode => Some(&self.action.mode),
            Subject::Agent => Some(&self.action.agent),
            _ => None,
        }
    }

    /// Whether a key could match that does not certainly match.
    pub(super) fn doubtful(&self) -> bool {
        let program = self.words.first().and_then(Word::known);
        let words = program.is_some_and(|p| p.contains('/'))
            || self.words.iter().any(|w| w.known().is_none_or(|w| w.starts_with(['-', '+'])));
        words || self.file.is_some() || self.fields.iter().any(|field| field.values.len() > 1)
    }
}
