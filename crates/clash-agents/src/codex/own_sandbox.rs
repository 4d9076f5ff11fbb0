//! Codex's own sandbox, which `sandbox_mode` in `config.toml` sets.
//!
//! Seen with version 0.166: without the setting, `codex exec` runs every command on a
//! read-only file system. The hook runs outside of that sandbox. The launcher runs inside,
//! where it cannot take the approval, so no command runs. With `sandbox_mode =
//! "danger-full-access"` the launcher works: clash confines every command and judges every
//! other tool.
//!
//! The user's value stays on the line, in a comment behind clash's value.

use toml::de::{DeTable, DeValue};

use super::config::value_at;
use crate::wiring::text_edit::TextEdit;
use crate::wiring::toml_text::{TomlStatement, TomlStatementKind, TomlText, parse_table};
use crate::wiring::{OwnSandbox, SettingsError};

const KEY: &str = "sandbox_mode";
const OFF: &str = "danger-full-access";
const OFF_WRITTEN: &str = "\"danger-full-access\"";
const CHANGE: &str = "sandbox_mode = \"danger-full-access\"";
/// Between clash's value and the user's.
const KEPT: &str = " # clash keeps: ";
/// Behind clash's value, if the user had no setting.
const ADDED: &str = " # clash confines every command instead";

/// The sandbox that this text sets: the chosen profile comes first, then
/// `default_permissions`, then `sandbox_mode`; without any of them it is on. The command
/// line of Codex can set another.
pub(super) fn read_own_sandbox(text: &str) -> Result<OwnSandbox, SettingsError> {
    let data = parse_table(text)?;
    let fix = "start Codex with `--sandbox danger-full-access`, or remove the setting";
    let string = |path: &[&str]| match value_at(&data, path) {
        Some(DeValue::String(text)) => Some(text.to_string()),
        _ => None,
    };
    if let Some(profile) = string(&["profile"])
        && let Some(mode) = string(&["profiles", &profile, KEY])
    {
        let by = format!("`profiles.{profile}.{KEY}`");
        return Ok(if mode == OFF { OwnSandbox::Off } else { OwnSandbox::OnOtherwise { by, fix } });
    }
    if data.get("default_permissions").is_some() {
        let by = "`default_permissions`".to_owned();
        return Ok(OwnSandbox::OnOtherwise { by, fix });
    }
    Ok(match string(&[KEY]) {
        Some(mode) if mode == OFF => OwnSandbox::Off,
        mode => {
            let now = mode.map(|mode| format!("{KEY} = \"{mode}\""));
            OwnSandbox::On { now, change: CHANGE }
        }
    })
}

/// The line of `sandbox_mode` outside of any table.
fn setting<'t>(toml: &'t TomlText<'_>) -> Option<&'t TomlStatement> {
    let root = toml
        .statements()
        .iter()
        .take_while(|s| !matches!(s.kind, TomlStatementKind::Header { .. }));
    root.into_iter().find(|statement| statement.is_key(KEY))
}

/// The text with Codex's own sandbox off. A text in which it is off, or on by settings that
/// clash does not change, stays the same. A value over several lines is an error.
pub(super) fn switch_off(text: &str) -> Result<String, SettingsError> {
    if !matches!(read_own_sandbox(text)?, OwnSandbox::On { .. }) {
        return Ok(text.to_owned());
    }
    let text = restore(text)?;
    let toml = TomlText::parse(&text)?;
    if let Some(TomlStatement { kind: TomlStatementKind::Pair { value, .. }, .. }) = setting(&toml)
    {
        if toml.slice(value).contains('\n') {
            return Err(SettingsError::Taken(KEY.to_owned()));
        }
        let ours = format!("{OFF_WRITTEN}{KEPT}");
        return toml.apply(vec![TextEdit::insert(value.start, ours)]);
    }
    // The line goes behind the last key that belongs to no table.
    let statements = toml.statements();
    let root =
        statements.iter().take_while(|s| !matches!(s.kind, TomlStatementKind::Header { .. }));
    let last = root.filter(|s| matches!(s.kind, TomlStatementKind::Pair { .. })).last();
    let start = statements.first().map_or(text.len(), |first| first.range.start);
    let at = last.map_or(start, |pair| pair.range.end);
    let unended = last.is_some_and(|pair| !toml.slice(&pair.range).ends_with('\n'));
    let newline = toml.newline();
    let line = format!("{CHANGE}{ADDED}{newline}");
    let line = if unended { format!("{newline}{line}") } else { line };
    toml.apply(vec![TextEdit::insert(at, line)])
}

/// The text as it was before [`switch_off`]. If the value is no longer clash's, the user
/// has set it and it stays.
pub(super) fn restore(text: &str) -> Result<String, SettingsError> {
    let toml = TomlText::parse(text)?;
    let Some(statement) = setting(&toml) else { return Ok(text.to_owned()) };
    let TomlStatementKind::Pair { value, .. } = &statement.kind else { return Ok(text.to_owned()) };
    let behind = toml.slice(&(value.end..statement.range.end));
    let is_ours = toml.slice(value) == OFF_WRITTEN;
    let edit = if behind.starts_with(ADDED) {
        if is_ours {
            statement.removed()
        } else {
            TextEdit::remove(value.end..value.end + ADDED.len())
        }
    } else if let Some(kept) = behind.strip_prefix(KEPT) {
        let end = value.end + KEPT.len();
        if is_ours {
            TextEdit::remove(value.start..end)
        } else {
            TextEdit::remove(value.end..end + length_of_value(kept))
        }
    } else {
        return Ok(text.to_owned());
    };
    toml.apply(vec![edit])
}

/// The length in bytes of the TOML value at the start of this text; 0 if there is none.
fn length_of_value(text: &str) -> usize {
    const START: &str = "x = ";
    let line = format!("{START}{}", text.lines().next().unwrap_or_default());
    let end = DeTable::parse(&line).ok().and_then(|table| {
        table.get_ref().get("x").map(|value| value.span().end.saturating_sub(START.len()))
    });
    end.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_comes_back_byte_for_byte() {
        for text in [
            "",
            "# mine\n[x]\na = 1\n",
            "\u{feff}model = \"x\" # y\r\n\r\n[x]\r\n",
            "sandbox_mode = \"workspace-write\"\n",
            "sandbox_mode='read-only'# why\r\n[x]\r\nsandbox_mode = 1\r\n",
            " sandbox_mode  =  \"read-only\"  # a # b\nz = 1\n",
        ] {
            let off = switch_off(text).unwrap();
            assert_eq!(read_own_sandbox(&off), Ok(OwnSandbox::Off), "{off}");
            assert_eq!(switch_off(&off).unwrap(), off);
            assert_eq!(restore(&off).unwrap(), text);
            assert_eq!(restore(text).unwrap(), text);
        }
    }

    #[test]
    fn a_value_the_user_chose_later_stays() {
        let off = switch_off("sandbox_mode = \"workspace-write\" # mine\n").unwrap();
        let chosen = off.replacen(OFF_WRITTEN, "\"read-only\"", 1);
        assert_eq!(restore(&chosen).unwrap(), "sandbox_mode = \"read-only\" # mine\n");
        let again = switch_off(&chosen).unwrap();
        assert_eq!(restore(&again).unwrap(), "sandbox_mode = \"read-only\" # mine\n");
        let added = switch_off("a = 1\n").unwrap().replacen(OFF_WRITTEN, "\"read-only\"", 1);
        assert_eq!(restore(&added).unwrap(), "a = 1\nsandbox_mode = \"read-only\"\n");
    }

    #[test]
    fn settings_that_clash_does_not_change_are_named() {
        let users = "sandbox_mode = \"danger-full-access\"\n";
        assert_eq!(read_own_sandbox(users), Ok(OwnSandbox::Off));
        assert_eq!(switch_off(users).unwrap(), users);
        assert_eq!(restore(users).unwrap(), users);
        for text in [
            "default_permissions = \":workspace\"\n",
            "profile = \"p\"\n[profiles.p]\nsandbox_mode = \"read-only\"\n",
        ] {
            assert!(matches!(read_own_sandbox(text), Ok(OwnSandbox::OnOtherwise { .. })), "{text}");
            assert_eq!(switch_off(text).unwrap(), text);
        }
        assert_eq!(read_own_sandbox(""), Ok(OwnSandbox::On { now: None, change: CHANGE }));
    }
}
