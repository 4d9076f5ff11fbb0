//! The entries that clash writes, as JSON values.

use super::problems::SettingsError;
use super::view::{calls_clash, is_own_path};
use super::{CommandForm, HookEntries, PREFIX, SHELL};
use crate::wiring::json_edit::{NewItem, NewValue};

/// Fails if clash would not recognise these entries as its own later.
pub(super) fn check(wiring: &HookEntries) -> Result<(), SettingsError> {
    if !calls_clash(&wiring.hook_command, wiring.format.agent) {
        return Err(SettingsError::UnknownHookCommand(wiring.hook_command.clone()));
    }
    match &wiring.prefix {
        Some(prefix) if !is_own_path(prefix) => Err(SettingsError::UnknownPrefix(prefix.clone())),
        _ => Ok(()),
    }
}

/// The shell prefix as a member of `env`.
pub(super) fn prefix_item(wiring: &HookEntries) -> Option<NewItem> {
    let path = wiring.prefix.as_ref()?.to_string_lossy().into_owned();
    Some(NewItem { key: Some(PREFIX), value: NewValue::String(path) })
}

/// `env` with the shell prefix; `None` if the format has none.
pub(super) fn env_item(wiring: &HookEntries) -> Option<NewItem> {
    let prefix = prefix_item(wiring)?;
    Some(NewItem { key: Some("env"), value: NewValue::Object(vec![(PREFIX, prefix.value)]) })
}

/// `hooks` with the group of clash in every event.
pub(super) fn hooks_item(wiring: &HookEntries) -> NewItem {
    let events = wiring.format.events.iter();
    let events =
        events.map(|(event, _, matcher)| (*event, NewValue::Array(vec![group(wiring, *matcher)])));
    NewItem { key: Some("hooks"), value: NewValue::Object(events.collect()) }
}

/// An event with the group of clash.
pub(super) fn event_item(wiring: &HookEntries, event: &'static str, matcher: bool) -> NewItem {
    NewItem { key: Some(event), value: NewValue::Array(vec![group(wiring, matcher)]) }
}

/// A group with the hook of clash. `matcher`: the event takes one, and it matches every
/// tool.
pub(super) fn group(wiring: &HookEntries, matcher: bool) -> NewValue {
    let text = |text: &str| NewValue::String(text.to_owned());
    let mut hook = vec![("type", text("command"))];
    match wiring.format.form {
        CommandForm::Shell => hook.push(("command", text(&wiring.hook_command))),
        CommandForm::Exec => hook.extend([
            ("command", text(SHELL)),
            ("args", NewValue::Array(vec![text("-c"), text(&wiring.hook_command)])),
        ]),
    }
    hook.push(("timeout", NewValue::Number(wiring.format.timeout)));
    hook.extend(wiring.format.members.iter().map(|(key, value)| (*key, text(value))));
    let mut members = vec![("hooks", NewValue::Array(vec![NewValue::Object(hook)]))];
    if matcher {
        members.insert(0, ("matcher", text("*")));
    }
    NewValue::Object(members)
}
