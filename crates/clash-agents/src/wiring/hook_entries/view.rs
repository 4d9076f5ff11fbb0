//! The parts of a settings document that clash reads, and clash's own entries in them.

use std::path::{Path, PathBuf};

use super::problems::{SettingsError, SettingsProblem};
use super::{CommandForm, HookFormat, PREFIX, SHELL};
use crate::wiring::json_edit::{DuplicateKeyAt, JsonDocument, JsonKind, JsonNode};

/// The parts of a settings document that clash reads.
pub(super) struct SettingsView<'a> {
    pub(super) document: &'a JsonDocument<'a>,
    pub(super) format: &'a HookFormat,
    pub(super) env: Option<&'a JsonNode>,
    pub(super) hooks: Option<&'a JsonNode>,
}

impl<'a> SettingsView<'a> {
    /// The parts of a document. `env` or `hooks` of another type is an error, and so is one
    /// that stands twice.
    pub(super) fn new(
        document: &'a JsonDocument<'a>,
        format: &'a HookFormat,
    ) -> Result<Self, SettingsError> {
        let mut view = Self { document, format, env: None, hooks: None };
        view.require(&document.root, JsonNode::is_object, "settings", "an object")?;
        if format.prefix {
            view.env = view.get(&document.root, "env")?;
        }
        view.hooks = view.get(&document.root, "hooks")?;
        for (node, what) in [(view.env, "env"), (view.hooks, "hooks")] {
            if let Some(node) = node {
                view.require(node, JsonNode::is_object, what, "an object")?;
            }
        }
        Ok(view)
    }

    /// The value of a key; a key that stands twice is an error.
    pub(super) fn get(
        &self,
        node: &'a JsonNode,
        key: &str,
    ) -> Result<Option<&'a JsonNode>, SettingsError> {
        node.get(key).map_err(|DuplicateKeyAt { offset }| SettingsError::DuplicateKey {
            what: key.to_owned(),
            line: self.document.line(offset),
        })
    }

    /// An error if a value does not fit.
    pub(super) fn require(
        &self,
        node: &JsonNode,
        fits: impl Fn(&JsonNode) -> bool,
        what: &str,
        expected: &'static str,
    ) -> Result<(), SettingsError> {
        if fits(node) {
            return Ok(());
        }
        let line = self.document.line(node.offset());
        Err(SettingsError::WrongType { what: what.to_owned(), expected, line })
    }

    /// Fails unless every event is a list of groups with a list of hooks.
    pub(super) fn require_valid_hooks(&self) -> Result<(), SettingsError> {
        for event in self.hooks.map(JsonNode::members).unwrap_or_default() {
            let key = event.key.as_str();
            if let Some(hooks) = self.hooks {
                self.get(hooks, key)?;
            }
            self.require(&event.value, JsonNode::is_array, &format!("hooks.{key}"), "an array")?;
            for group in event.value.elements() {
                self.require(group, JsonNode::is_object, &format!("hooks.{key}[]"), "an object")?;
                let what = format!("hooks.{key}[].hooks");
                match self.get(group, "hooks")? {
                    Some(hooks) => self.require(hooks, JsonNode::is_array, &what, "an array")?,
                    None => self.require(group, |_| false, &what, "there")?,
                }
            }
        }
        Ok(())
    }

    /// The settings that switch clash's hooks off: switches of the format, and lists of
    /// names with `clash` in one.
    pub(super) fn off_switches(&self) -> Result<Vec<SettingsProblem>, SettingsError> {
        let mut found = Vec::new();
        for (path, off) in self.format.off {
            let value = if *off { JsonKind::True } else { JsonKind::False };
            if let Some(node) = self.value_at(path)?.filter(|node| node.kind == value) {
                found.push(self.disabled(path, node));
            }
        }
        for path in self.format.off_lists {
            let names = self.value_at(path)?.map(JsonNode::elements).unwrap_or_default();
            let ours = |node: &&JsonNode| node.as_str().is_some_and(|name| name.contains("clash"));
            found.extend(names.iter().find(ours).map(|node| self.disabled(path, node)));
        }
        Ok(found)
    }

    /// The problem that a setting switches hooks off.
    pub(super) fn disabled(&self, path: &[&str], node: &JsonNode) -> SettingsProblem {
        SettingsProblem::HooksDisabled {
            key: path.join("."),
            line: self.document.line(node.offset()),
        }
    }

    /// The value at a path of keys.
    pub(super) fn value_at(&self, path: &[&str]) -> Result<Option<&'a JsonNode>, SettingsError> {
        let mut node = Some(&self.document.root);
        for key in path {
            node = match node {
                Some(node) => self.get(node, key)?,
                None => None,
            };
        }
        Ok(node)
    }

    /// The shell prefix in `env`.
    pub(super) fn prefix(&self) -> Result<Option<&'a JsonNode>, SettingsError> {
        self.env.map_or(Ok(None), |env| self.get(env, PREFIX))
    }

    /// The shell prefix and its line, if it is no program of clash; `None` without a
    /// prefix. A prefix that is no string is an error.
    pub(super) fn foreign_prefix(&self) -> Result<Option<(String, usize)>, SettingsError> {
        let Some(node) = self.prefix()? else { return Ok(None) };
        self.require(node, |node| node.as_str().is_some(), PREFIX, "a string")?;
        let value = node.as_str().unwrap_or_default().to_owned();
        Ok((!is_own_prefix(node)).then(|| (value, self.document.line(node.offset()))))
    }

    /// True if no event has two hooks of clash.
    pub(super) fn is_single(&self) -> Result<bool, SettingsError> {
        for event in self.hooks.map(JsonNode::members).unwrap_or_default() {
            let mut own = 0;
            for group in event.value.elements() {
                let hooks = self.get(group, "hooks")?.map(JsonNode::elements).unwrap_or_default();
                own += hooks.iter().filter(|hook| own_line(hook, self.format).is_some()).count();
            }
            if own > 1 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The shell line of a hook entry that clash wrote.
pub(super) fn own_line<'a>(hook: &'a JsonNode, format: &HookFormat) -> Option<&'a str> {
    let text = |key| hook.get(key).ok().flatten().and_then(JsonNode::as_str);
    if text("type") != Some("command") {
        return None;
    }
    let line = match format.form {
        CommandForm::Shell => text("command")?,
        CommandForm::Exec => {
            let [option, line] = hook.get("args").ok().flatten()?.elements() else { return None };
            let ours = text("command") == Some(SHELL) && option.as_str() == Some("-c");
            line.as_str().filter(|_| ours)?
        }
    };
    calls_clash(line, format.agent).then_some(line)
}

/// True if the line has `…/clash hook AGENT`, the path bare or quoted, and not as part of a
/// longer word.
pub(crate) fn calls_clash(line: &str, agent: &str) -> bool {
    ["", "'", "\""].iter().any(|quote| {
        let call = format!("clash{quote} hook {agent}");
        line.match_indices(&call).any(|(at, found)| {
            let before = line.get(..at).unwrap_or_default();
            let after = line.get(at + found.len()..).unwrap_or_default();
            before.ends_with('/') && (after.is_empty() || after.starts_with([' ', ')', ';']))
        })
    })
}

/// True if a value is the path of a program of clash.
pub(super) fn is_own_prefix(node: &JsonNode) -> bool {
    node.as_str().is_some_and(|value| is_own_path(Path::new(value)))
}

/// True for an absolute path to `clash` or `clash-…`. The client splits a path with ` -`,
/// so that is none.
pub(super) fn is_own_path(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let split = path.to_str().is_none_or(|path| path.contains(" -"));
    path.is_absolute() && !split && (name == "clash" || name.starts_with("clash-"))
}

pub(super) fn path_value(node: &JsonNode) -> Option<PathBuf> {
    node.as_str().map(PathBuf::from)
}
