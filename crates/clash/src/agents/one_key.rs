//! One text member at the top of a JSON settings file, such as the shell an agent
//! starts its commands with.

use super::Problem;
use super::json_edit::{Document, Item, New, Node, Removal, Twice};
use super::wired::{SettingsEdit, SettingsError, State};

/// What stands there while clash is installed.
#[derive(Debug)]
pub(crate) struct OneKey {
    pub(crate) agent: &'static str,
    pub(crate) key: &'static str,
    pub(crate) value: String,
    /// How a value of clash ends, whichever version wrote it.
    pub(crate) ours: &'static str,
    /// Whether the client takes comments.
    pub(crate) comments: bool,
}

impl OneKey {
    fn document<'a>(&self, text: &'a str) -> Result<Document<'a>, SettingsError> {
        let text = if text.trim().is_empty() { "{}" } else { text };
        let document = Document::parse(text, self.comments)?;
        if document.root.is_object() {
            return Ok(document);
        }
        let line = document.line(document.root.offset());
        Err(SettingsError::WrongType { what: "the file".into(), expected: "an object", line })
    }

    /// The member's value, and where it is among the members.
    fn find<'d>(
        &self,
        document: &'d Document<'_>,
    ) -> Result<Option<(usize, &'d Node)>, SettingsError> {
        document.root.get(self.key).map_err(|Twice { offset }| SettingsError::DuplicateKey {
            what: self.key.to_owned(),
            line: document.line(offset),
        })?;
        let members = document.root.members().iter().enumerate();
        Ok(members
            .filter(|(_, member)| member.key == self.key)
            .map(|(at, member)| (at, &member.value))
            .next())
    }

    fn is_ours(&self, value: &Node) -> bool {
        value.as_str().is_some_and(|text| text.ends_with(self.ours))
    }
}

impl SettingsEdit for OneKey {
    fn install(&self, text: &str) -> Result<String, SettingsError> {
        let found = self.document(text)?;
        match self.find(&found)? {
            Some((_, value)) if value.as_str() == Some(&self.value) => return Ok(text.to_owned()),
            Some((_, value)) if !self.is_ours(value) => {
                return Err(SettingsError::Taken(self.key.to_owned()));
            }
            _ => {}
        }
        let without = self.uninstall(text)?;
        let document = self.document(&without)?;
        let item = Item { key: Some(self.key), value: New::String(self.value.clone()) };
        let filled = document.apply(document.append(&document.root, &[item]));
        // Nothing of the user's to keep: no mark behind the bracket.
        let fresh = without.trim().is_empty();
        Ok(if fresh { format!("{}\n", filled.replacen("{ ", "{", 1)) } else { filled })
    }

    fn uninstall(&self, text: &str) -> Result<String, SettingsError> {
        let document = self.document(text)?;
        match self.find(&document)? {
            Some((at, value)) if self.is_ours(value) => {
                Ok(match document.remove(&document.root, &[at]) {
                    Removal::Edits(edits) => document.apply(edits),
                    Removal::All => String::new(),
                })
            }
            _ => Ok(text.to_owned()),
        }
    }

    fn state(&self, text: &str) -> Result<State, SettingsError> {
        let document = self.document(text)?;
        let install = || Some(format!("clash install --agent {}", self.agent));
        Ok(match self.find(&document)? {
            Some((_, value)) if value.as_str() == Some(&self.value) => State::Present(Vec::new()),
            Some((_, value)) if self.is_ours(value) => {
                let what = format!("`{}` is not this clash's", self.key);
                State::Present(vec![Problem { what, fix: install() }])
            }
            _ => State::Absent,
        })
    }
}
