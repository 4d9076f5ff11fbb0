//! The entries of clash in a settings file that lists hooks right below their events, such
//! as Cursor's: `{"version": 1, "hooks": {EVENT: [{"command": …}]}}`.
//!
//! Every byte of the user stays, as in [`super::json_edit`]. Clash wrote a `version` behind
//! its own `hooks` and removes it with them.

use super::hook_entries::calls_clash;
use super::json_edit::{
    DuplicateKeyAt, ItemRemoval, JsonDocument, JsonNode, JsonSyntax, NewItem, NewValue,
};
use super::{HookCommand, SettingsEdit, SettingsError, WiringState};
use crate::WiringProblem;

/// The hooks while clash is installed.
#[derive(Debug)]
pub(crate) struct FlatHooks {
    pub(crate) agent: &'static str,
    pub(crate) events: &'static [&'static str],
    /// The shell line of every hook.
    pub(crate) line: String,
    /// In seconds.
    pub(crate) timeout: u32,
}

const HOOKS: &str = "hooks";
const VERSION: &str = "version";

impl FlatHooks {
    /// The entry of clash for one event.
    fn hook(&self) -> NewValue {
        NewValue::Object(vec![
            ("command", NewValue::String(self.line.clone())),
            ("failClosed", NewValue::True),
            ("timeout", NewValue::Number(self.timeout)),
        ])
    }

    fn list(&self) -> NewValue {
        NewValue::Array(vec![self.hook()])
    }

    /// The line of a hook that calls clash; `None` for other hooks.
    fn line_of<'n>(&self, hook: &'n JsonNode) -> Option<&'n str> {
        let line = hook.get("command").ok().flatten().and_then(JsonNode::as_str)?;
        calls_clash(line, self.agent).then_some(line)
    }

    /// True if every event has the hook of this clash, and no other of clash.
    fn is_current(&self, hooks: Option<&JsonNode>) -> bool {
        let lines = |event: &str| -> Vec<&str> {
            let list = hooks.and_then(|hooks| hooks.get(event).ok().flatten());
            let elements = list.map(JsonNode::elements).unwrap_or_default();
            elements.iter().filter_map(|hook| self.line_of(hook)).collect()
        };
        self.events.iter().all(|event| lines(event) == [self.line.as_str()])
    }

    /// True if a hook of any event calls clash.
    fn has_any(&self, hooks: Option<&JsonNode>) -> bool {
        let lists = hooks.map(JsonNode::members).unwrap_or_default().iter();
        lists.flat_map(|list| list.value.elements()).any(|hook| self.line_of(hook).is_some())
    }
}

impl SettingsEdit for FlatHooks {
    /// Adds clash's entry to each event, behind those of the user. A list of another type
    /// is an error.
    fn install(&self, text: &str) -> Result<String, SettingsError> {
        let (found, _) = parse(text)?;
        if self.is_current(found.hooks()?) {
            return Ok(text.to_owned());
        }
        let without = self.uninstall(text)?;
        let (parsed, fresh) = parse(&without)?;
        let document = &parsed.0;
        let (mut edits, mut events) = (Vec::new(), Vec::new());
        let hooks = parsed.hooks()?;
        for event in self.events {
            let list = hooks.map_or(Ok(None), |hooks| parsed.get(hooks, event))?;
            match list {
                Some(list) if list.is_array() => {
                    let item = NewItem { key: None, value: self.hook() };
                    edits.extend(document.append(list, &[item]));
                }
                Some(list) => return Err(parsed.not(list, event, "an array")),
                None => events.push((*event, self.list())),
            }
        }
        match hooks {
            Some(hooks) => {
                let items =
                    events.into_iter().map(|(key, value)| NewItem { key: Some(key), value });
                let items: Vec<NewItem> = items.collect();
                if !items.is_empty() {
                    edits.extend(document.append(hooks, &items));
                }
            }
            None => {
                let mut items = vec![NewItem { key: Some(HOOKS), value: NewValue::Object(events) }];
                if parsed.get(&document.root, VERSION)?.is_none() {
                    items.push(NewItem { key: Some(VERSION), value: NewValue::Number(1) });
                }
                edits.extend(document.append(&document.root, &items));
            }
        }
        let filled = document.apply(edits)?;
        // A new file has nothing of the user: no mark behind the bracket.
        Ok(if fresh { format!("{}\n", filled.replacen("{ ", "{", 1)) } else { filled })
    }

    /// Removes clash's entries, and the lists and the file if nothing else is in them.
    fn uninstall(&self, text: &str) -> Result<String, SettingsError> {
        let (parsed, fresh) = parse(text)?;
        let document = &parsed.0;
        let Some(hooks) = parsed.hooks()?.filter(|_| !fresh) else { return Ok(text.to_owned()) };
        let (mut edits, mut events) = (Vec::new(), Vec::new());
        for (index, event) in hooks.members().iter().enumerate() {
            let list = event.value.elements().iter().enumerate();
            let own = list.filter(|(_, hook)| self.line_of(hook).is_some()).map(|(at, _)| at);
            match document.remove(&event.value, &own.collect::<Vec<_>>()) {
                ItemRemoval::Edits(inner) => edits.extend(inner),
                ItemRemoval::All => events.push(index),
            }
        }
        match document.remove(hooks, &events) {
            ItemRemoval::Edits(inner) => edits.extend(inner),
            ItemRemoval::All => match document.remove(&document.root, &parsed.ours()) {
                ItemRemoval::Edits(root) => edits = root,
                ItemRemoval::All => return Ok(String::new()),
            },
        }
        document.apply(edits)
    }

    /// Every line that calls clash, of all events.
    fn commands(&self, text: &str) -> Result<Vec<HookCommand>, SettingsError> {
        let (parsed, _) = parse(text)?;
        let lists = parsed.hooks()?.map(JsonNode::members).unwrap_or_default().iter();
        let hooks = lists.flat_map(|list| list.value.elements());
        let lines = hooks.filter_map(|hook| self.line_of(hook));
        let mut found: Vec<HookCommand> =
            lines.map(|line| HookCommand::Shell(line.to_owned())).collect();
        found.dedup();
        Ok(found)
    }

    /// Entries of another clash, or of some events only, are a problem.
    fn state(&self, text: &str) -> Result<WiringState, SettingsError> {
        let (parsed, _) = parse(text)?;
        let hooks = parsed.hooks()?;
        if !self.has_any(hooks) {
            return Ok(WiringState::Absent);
        }
        if self.is_current(hooks) {
            return Ok(WiringState::Present(Vec::new()));
        }
        let fix = Some(format!("clash install --agent {}", self.agent));
        let what = "its hooks are not what this clash writes".to_owned();
        Ok(WiringState::Present(vec![WiringProblem { what, fix }]))
    }
}

/// The text as a JSON object, and true if the text was empty. Any other text is an error.
fn parse(text: &str) -> Result<(FlatSettings<'_>, bool), SettingsError> {
    let fresh = text.trim().is_empty();
    let parsed =
        FlatSettings(JsonDocument::parse(if fresh { "{}" } else { text }, JsonSyntax::Strict)?);
    let root = &parsed.0.root;
    if root.is_object() {
        Ok((parsed, fresh))
    } else {
        Err(parsed.not(root, "the file", "an object"))
    }
}

/// A settings file whose root is an object.
struct FlatSettings<'a>(JsonDocument<'a>);

impl FlatSettings<'_> {
    /// The value of a key; a key that stands twice is an error.
    fn get<'n>(
        &self,
        node: &'n JsonNode,
        key: &str,
    ) -> Result<Option<&'n JsonNode>, SettingsError> {
        node.get(key).map_err(|DuplicateKeyAt { offset }| SettingsError::DuplicateKey {
            what: key.to_owned(),
            line: self.0.line(offset),
        })
    }

    /// The member `hooks`, which must be an object.
    fn hooks(&self) -> Result<Option<&JsonNode>, SettingsError> {
        match self.get(&self.0.root, HOOKS)? {
            Some(hooks) if !hooks.is_object() => Err(self.not(hooks, HOOKS, "an object")),
            hooks => Ok(hooks),
        }
    }

    /// The error for a value of another type.
    fn not(&self, node: &JsonNode, what: &str, expected: &'static str) -> SettingsError {
        let line = self.0.line(node.offset());
        SettingsError::WrongType { what: what.to_owned(), expected, line }
    }

    /// The indices of clash's `hooks` in the root, and of the `version` that clash wrote
    /// with them.
    fn ours(&self) -> Vec<usize> {
        let members = self.0.root.members();
        let Some(at) = members.iter().position(|member| member.key == HOOKS) else {
            return Vec::new();
        };
        let last = members.get(at + 1..).unwrap_or_default();
        if matches!(last, [version] if version.key == VERSION) {
            vec![at, at + 1]
        } else {
            vec![at]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The entries of a clash in this directory.
    fn edit(path: &str) -> FlatHooks {
        let line = format!("o=$('{path}/clash' hook cursor) || exit 2");
        FlatHooks {
            agent: "cursor",
            events: &["beforeShellExecution", "preToolUse"],
            line,
            timeout: 30,
        }
    }

    #[test]
    fn every_file_comes_back_byte_for_byte() {
        for text in [
            "",
            "{}",
            "{\n}\n",
            "{\"version\": 1}",
            "{\n\t\"version\": 1,\n\t\"hooks\": {}\n}\n",
            "{\"hooks\":{},\"version\":1}",
            "{\"hooks\":{\"preToolUse\":[]},\"version\":1}",
            "{\n  \"version\": 1,\n  \"hooks\": {\n    \"preToolUse\": [\n      { \"command\": \"./lint.sh\" }\n    ],\n    \"stop\": [{\"command\": \"say done\"}]\n  }\n}\n",
            "{\"theme\":\"dark\"}\r\n",
        ] {
            let installed = edit("/s/bin").install(text).unwrap();
            let parsed: serde_json::Value = serde_json::from_str(&installed).unwrap();
            assert_eq!(parsed["version"], 1, "{installed}");
            assert!(installed.contains("\"failClosed\""), "{installed}");
            assert_eq!(
                edit("/s/bin").state(&installed),
                Ok(WiringState::Present(vec![])),
                "{installed}"
            );
            assert_eq!(edit("/s/bin").install(&installed).unwrap(), installed);
            assert_eq!(edit("/s/bin").uninstall(&installed).unwrap(), text);
            assert_eq!(edit("/s/bin").uninstall(text).unwrap(), text);
            assert_eq!(edit("/s/bin").state(text), Ok(WiringState::Absent));
            // Another version of clash finds the entries of this one.
            assert!(
                matches!(edit("/t").state(&installed), Ok(WiringState::Present(wrong)) if wrong.len() == 1)
            );
            let moved = edit("/t").install(&installed).unwrap();
            assert_eq!(moved, installed.replace("/s/bin/", "/t/"));
        }
    }

    proptest::proptest! {
        /// Any other content, in any layout.
        #[test]
        fn only_our_hooks_come_and_go(
            names in proptest::collection::vec("[a-z]{1,6}|preToolUse|version|hooks|beforeShellExecution", 0..5),
            gaps in proptest::collection::vec("[ \n\t]{0,3}", 4),
            nested in proptest::prelude::any::<bool>(),
        ) {
            let [a, b, c, d] = gaps.as_slice() else { unreachable!() };
            let lists = |name: &String| {
                format!("{a}\"{name}\"{b}:{c}[{d}{{\"command\":{a}\"own\"}}{b}]{c}")
            };
            let mut known: Vec<String> = names.clone();
            known.sort();
            known.dedup();
            let inner = format!("{{{}{d}}}", known.iter().map(lists).collect::<Vec<_>>().join(","));
            let text = if nested {
                format!("{{{a}\"hooks\"{b}:{c}{inner}{d},{a}\"version\":{c}1{b}}}{d}")
            } else {
                format!("{a}{inner}{b}")
            };
            if let Ok(installed) = edit("/s").install(&text) {
                proptest::prop_assert_eq!(edit("/s").uninstall(&installed).unwrap(), text);
                proptest::prop_assert_eq!(edit("/s").install(&installed).unwrap(), installed.clone());
                proptest::prop_assert_eq!(edit("/s").state(&installed), Ok(WiringState::Present(vec![])));
            }
        }
    }

    #[test]
    fn a_file_of_another_form_is_left_alone() {
        for text in [
            "[]",
            "{\"hooks\": []}",
            "{\"hooks\": {\"preToolUse\": {}}}",
            "{",
            "{\"hooks\": {}, \"hooks\": {}}",
        ] {
            assert!(edit("/s").install(text).is_err(), "{text}");
        }
    }
}
