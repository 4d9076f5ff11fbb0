//! One text member at the top of a JSON settings file, for example the shell of an agent.
//! The user's value stays in a comment behind clash's and comes back unchanged. If the
//! client accepts no comments, clash does not replace a value of the user.

use std::path::PathBuf;

use super::json_edit::{
    DuplicateKeyAt, ItemRemoval, JsonDocument, JsonNode, JsonSyntax, NewItem, NewValue,
};
use super::{HookCommand, SettingsEdit, SettingsError, WiringState};
use crate::WiringProblem;

/// The member while clash is installed.
#[derive(Debug)]
pub(crate) struct OneKey {
    pub(crate) agent: &'static str,
    pub(crate) key: &'static str,
    pub(crate) value: String,
    /// The end of every value of clash, in any version.
    pub(crate) ours: &'static str,
    /// True if the value is the program that the client starts commands with.
    pub(crate) starts_commands: bool,
    pub(crate) syntax: JsonSyntax,
}

impl OneKey {
    /// The text as a JSON object; an empty text is an empty object, any other text an
    /// error.
    fn document<'a>(&self, text: &'a str) -> Result<JsonDocument<'a>, SettingsError> {
        let text = if text.trim().is_empty() { "{}" } else { text };
        let document = JsonDocument::parse(text, self.syntax)?;
        if document.root.is_object() {
            return Ok(document);
        }
        let line = document.line(document.root.offset());
        Err(SettingsError::WrongType { what: "the file".into(), expected: "an object", line })
    }

    /// The index of the member and its value. An error if the key is there twice.
    fn find<'d>(
        &self,
        document: &'d JsonDocument<'_>,
    ) -> Result<Option<(usize, &'d JsonNode)>, SettingsError> {
        document.root.get(self.key).map_err(|DuplicateKeyAt { offset }| {
            SettingsError::DuplicateKey { what: self.key.to_owned(), line: document.line(offset) }
        })?;
        let members = document.root.members().iter().enumerate();
        Ok(members
            .filter(|(_, member)| member.key == self.key)
            .map(|(at, member)| (at, &member.value))
            .next())
    }

    fn takes_comments(&self) -> bool {
        self.syntax != JsonSyntax::Strict
    }

    /// True if a value ends as every value of clash does.
    fn is_ours(&self, value: &JsonNode) -> bool {
        value.as_str().is_some_and(|text| text.ends_with(self.ours))
    }
}

/// The value that clash replaced is in a comment behind it.
const KEPT: (&str, &str) = (" /* clash keeps ", " */");

/// The user's value as it was written, and the length of the comment; `None` if there is no
/// such comment.
fn kept<'a>(document: &JsonDocument<'a>, value: &JsonNode) -> Option<(&'a str, usize)> {
    let (_, behind) = document.written(value);
    let (kept, _) = behind.strip_prefix(KEPT.0)?.split_once(KEPT.1)?;
    let text = serde_json::from_str::<String>(kept).is_ok();
    text.then_some((kept, KEPT.0.len() + kept.len() + KEPT.1.len()))
}

impl SettingsEdit for OneKey {
    /// Sets the key. A value of the user moves into a comment behind it. An error where
    /// comments are not allowed, if the user's value is no text, and if it contains the end
    /// of a comment. Once installed, the text stays the same.
    fn install(&self, text: &str) -> Result<String, SettingsError> {
        let found = self.document(text)?;
        if let Some((_, value)) = self.find(&found)?
            && value.as_str() == Some(&self.value)
        {
            return Ok(text.to_owned());
        }
        let without = self.uninstall(text)?;
        let document = self.document(&without)?;
        if let Some((_, value)) = self.find(&document)? {
            let (users, _) = document.written(value);
            if !self.takes_comments()
                || value.as_str().is_none()
                || users.contains(KEPT.1.trim_start())
            {
                return Err(SettingsError::Taken(self.key.to_owned()));
            }
            let ours = serde_json::Value::from(self.value.as_str());
            let text = format!("{ours}{}{users}{}", KEPT.0, KEPT.1);
            return document.apply(vec![document.replace(value, 0, text)]);
        }
        let item = NewItem { key: Some(self.key), value: NewValue::String(self.value.clone()) };
        let filled = document.apply(document.append(&document.root, &[item]))?;
        // A new file has nothing of the user: no mark behind the bracket.
        let fresh = without.trim().is_empty();
        Ok(if fresh { format!("{}\n", filled.replacen("{ ", "{", 1)) } else { filled })
    }

    /// Puts the user's value back, or removes the key. A value that is not clash's stays.
    fn uninstall(&self, text: &str) -> Result<String, SettingsError> {
        let document = self.document(text)?;
        let Some((at, value)) = self.find(&document)?.filter(|(_, value)| self.is_ours(value))
        else {
            return Ok(text.to_owned());
        };
        if let Some((users, length)) = kept(&document, value).filter(|_| self.takes_comments()) {
            let edit = document.replace(value, length, users.to_owned());
            return document.apply(vec![edit]);
        }
        match document.remove(&document.root, &[at]) {
            ItemRemoval::Edits(edits) => document.apply(edits),
            ItemRemoval::All => Ok(String::new()),
        }
    }

    fn commands(&self, _text: &str) -> Result<Vec<HookCommand>, SettingsError> {
        Ok(Vec::new())
    }

    /// The value of the key, also one of the user, if it names the program that starts commands.
    fn launcher(&self, text: &str) -> Result<Option<PathBuf>, SettingsError> {
        let document = self.document(text)?;
        let value = self.find(&document)?.and_then(|(_, value)| value.as_str());
        Ok(value.filter(|_| self.starts_commands).map(PathBuf::from))
    }

    /// A value of another clash is a problem; a value of the user is no wiring.
    fn state(&self, text: &str) -> Result<WiringState, SettingsError> {
        let document = self.document(text)?;
        let install = || Some(format!("clash install --agent {}", self.agent));
        Ok(match self.find(&document)? {
            Some((_, value)) if value.as_str() == Some(&self.value) => {
                WiringState::Present(Vec::new())
            }
            Some((_, value)) if self.is_ours(value) => {
                let what = format!("`{}` is not this clash's", self.key);
                WiringState::Present(vec![WiringProblem { what, fix: install() }])
            }
            _ => WiringState::Absent,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key `shell` of opencode, in a file with or without comments.
    fn shell(value: &str, comments: bool) -> OneKey {
        let value = value.to_owned();
        let starts_commands = true;
        let syntax = if comments { JsonSyntax::Jsonc } else { JsonSyntax::Strict };
        OneKey {
            agent: "opencode",
            key: "shell",
            value,
            ours: "/clash-sh",
            starts_commands,
            syntax,
        }
    }

    #[test]
    fn a_value_of_the_user_comes_back_as_it_was() {
        for text in [
            r#"{"shell": "/bin/zsh"}"#,
            "{\n  // mine\n  \"shell\" : \"\\/bin/zsh\" /* fast */ ,\n  \"a\": 1\n}\n",
            r#"{"shell":"/x /* y","a":{}}"#,
            "{\n  \"shell\": \"/bin/zsh\", // mine\n  \"a\": [1, 2, ],\n}\n",
        ] {
            let installed = shell("/s/clash-sh", true).install(text).unwrap();
            assert!(installed.contains("\"/s/clash-sh\" /* clash keeps \""), "{installed}");
            let edit = shell("/s/clash-sh", true);
            assert_eq!(edit.install(&installed).unwrap(), installed);
            assert_eq!(edit.state(&installed), Ok(WiringState::Present(Vec::new())));
            assert_eq!(edit.uninstall(&installed).unwrap(), text);
            let moved = shell("/t/clash-sh", true).install(&installed).unwrap();
            assert_eq!(moved, installed.replace("/s/clash-sh", "/t/clash-sh"));
        }
    }

    /// Seen with OpenCode 1.18.33 and Kilo 7.7.7, which read such files.
    #[test]
    fn comments_and_trailing_commas_stay() {
        for text in [
            "{\n  \"a\": 1, // one\n}\n",
            "{\"a\": [1,], /* b */ }",
            "// only\n{ // a comment\n}\n",
            "{\"a\": \",}\",}",
        ] {
            let edit = shell("/s/clash-sh", true);
            let installed = edit.install(text).unwrap();
            assert_eq!(edit.state(&installed), Ok(WiringState::Present(Vec::new())), "{installed}");
            assert_eq!(edit.uninstall(&installed).unwrap(), text);
        }
        for text in ["{,}", "{\"a\": [,]}", "{\"a\": 1,,}", "{\"a\" 1,}"] {
            assert!(shell("/s/clash-sh", true).install(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_value_that_cannot_be_kept_is_left_alone() {
        for (text, comments) in [
            (r#"{"shell": "/bin/zsh"}"#, false),
            (r#"{"shell": ["/bin/zsh"]}"#, true),
            (r#"{"shell": "/x */ y"}"#, true),
        ] {
            let taken = shell("/s/clash-sh", comments).install(text);
            assert_eq!(taken, Err(SettingsError::Taken("shell".to_owned())), "{text}");
        }
    }
}
