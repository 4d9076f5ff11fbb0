//! The hooks of clash in Codex's `config.toml`.
//!
//! Clash adds one hook to each event, and an entry that makes Codex trust it. Codex runs a
//! user's hook only if the settings have the digest of its definition, under the number of
//! its group. It skips any other hook without a message. Clash finds its tables by their
//! data: a hook that calls clash, and the trust entry of that hook. Markers would not work,
//! because Codex adds its own tables anywhere in the file.
//!
//! Older versions of clash wrote their tables between two comments. Clash removes those
//! comments and the empty lines of that block; every other table in it stays.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use toml::de::{DeTable, DeValue};

use super::{AGENT, EVENTS, own_sandbox};
use crate::wiring::hook_entries::calls_clash;
use crate::wiring::text_edit::TextEdit;
use crate::wiring::toml_text::{TomlStatementKind, TomlText, parse_table};
use crate::wiring::{HookCommand, OwnSandbox, SettingsEdit, SettingsError, WiringState};
use crate::{HookEvent, WiringProblem};

/// In every file that clash wrote whole, and at the start of the block of older versions.
pub(super) const MARK: &str =
    "# >>> clash: put here by `clash install`, goes with `clash uninstall`";
/// The end of the block of older versions.
const OLD_END: &str = "# <<< clash";
/// Behind [`MARK`] if the text before it had no line end.
const OLD_UNENDED: &str = " (the line before had no end)";
/// Behind clash's first header if the text before it had no line end.
const UNENDED: &str = " # clash: the line before had no end";
/// The guard's own limit is shorter. Codex's digest includes this number.
const HOOK_TIMEOUT_SECONDS: u32 = 30;

/// The hooks of clash while it is installed.
#[derive(Debug)]
pub(super) struct CodexHooks {
    /// The path of the file, which Codex's trust entries include.
    pub(super) file: PathBuf,
    pub(super) line: String,
}

impl SettingsEdit for CodexHooks {
    /// Adds the hooks with their trust entries at the end, in place of older ones of clash.
    fn install(&self, text: &str) -> Result<String, SettingsError> {
        let toml = TomlText::parse(text)?;
        if !is_old(&toml) && self.is_current(&toml) {
            return Ok(text.to_owned());
        }
        let without = self.without_hooks(text)?;
        self.append(&without)
    }

    fn uninstall(&self, text: &str) -> Result<String, SettingsError> {
        self.without_hooks(&own_sandbox::restore(text)?)
    }

    /// Problems are a switch that turns hooks off, and hooks that are not current or not
    /// trusted.
    fn state(&self, text: &str) -> Result<WiringState, SettingsError> {
        let toml = TomlText::parse(text)?;
        if own_hooks(&toml).is_empty() {
            return Ok(WiringState::Absent);
        }
        let mut wrong = Vec::new();
        if let Some(what) = off_switch(&parse_table(text)?) {
            wrong.push(WiringProblem { what, fix: Some("remove it".to_owned()) });
        }
        if is_old(&toml) || !self.is_current(&toml) {
            let what = "its hooks are not this clash's, or Codex does not trust them any more";
            let fix = Some(format!("clash install --agent {}", AGENT.name));
            wrong.push(WiringProblem { what: what.to_owned(), fix });
        }
        Ok(WiringState::Present(wrong))
    }

    fn commands(&self, text: &str) -> Result<Vec<HookCommand>, SettingsError> {
        commands(text)
    }

    fn own_sandbox(&self, text: &str) -> Result<OwnSandbox, SettingsError> {
        own_sandbox::read_own_sandbox(text)
    }

    fn without_own_sandbox(&self, text: &str) -> Result<String, SettingsError> {
        own_sandbox::switch_off(text)
    }
}

/// The event before a tool call.
const JUDGING: &str = "PreToolUse";

/// The lines of clash's hooks before a tool call.
pub(super) fn commands(text: &str) -> Result<Vec<HookCommand>, SettingsError> {
    let toml = TomlText::parse(text)?;
    let judging = own_hooks(&toml).into_iter().filter(|hook| hook.event == JUDGING);
    Ok(judging.map(|hook| HookCommand::Shell(hook.line)).collect())
}

/// A hook of clash in the file.
#[derive(Debug)]
struct OwnHook {
    event: String,
    /// The numbers of its group, and of the hook in the group.
    place: (usize, usize),
    line: String,
    /// The sections to remove with it.
    sections: Vec<usize>,
    /// True if its group has no other hook.
    whole_group: bool,
}

/// The hooks that call clash, with the numbers that Codex gives them.
fn own_hooks(toml: &TomlText<'_>) -> Vec<OwnHook> {
    let sections = toml.sections();
    let mut found: Vec<OwnHook> = Vec::new();
    // For each event: the section of the last group, the number of groups and of hooks in
    // it.
    let mut last: BTreeMap<&str, (usize, usize, usize)> = BTreeMap::new();
    let mut foreign: Vec<(String, usize)> = Vec::new();
    for (at, section) in sections.iter().enumerate().filter(|(_, section)| section.list) {
        match section.path {
            [hooks, event] if hooks == "hooks" => {
                let groups = last.get(event.as_str()).map_or(0, |(_, groups, _)| *groups);
                last.insert(event, (at, groups + 1, 0));
                if section.pairs.iter().any(|pair| pair.is_key("hooks")) {
                    foreign.push((event.clone(), groups));
                }
            }
            [hooks, event, inner] if hooks == "hooks" && inner == "hooks" => {
                let Some((group, groups, hook)) = last.get_mut(event.as_str()) else { continue };
                let place = (groups.saturating_sub(1), *hook);
                *hook += 1;
                match toml.string(section, "command") {
                    Some(line) if calls_clash(&line, AGENT.name) => found.push(OwnHook {
                        event: event.clone(),
                        place,
                        line,
                        sections: vec![*group, at],
                        whole_group: true,
                    }),
                    _ => foreign.push((event.clone(), place.0)),
                }
            }
            _ => {}
        }
    }
    for hook in &mut found {
        // A group with a hook of the user stays.
        if foreign.contains(&(hook.event.clone(), hook.place.0)) {
            hook.whole_group = false;
            hook.sections.remove(0);
        }
    }
    found
}

impl CodexHooks {
    /// The event and the place of the hook that a trust entry of this file is about.
    fn trusted(&self, path: &[String]) -> Option<(String, (usize, usize))> {
        let [hooks, state, key] = path else { return None };
        let rest = key.strip_prefix(&format!("{}:", self.file.display()))?;
        let mut parts = rest.rsplitn(3, ':');
        let hook = parts.next()?.parse().ok()?;
        let group = parts.next()?.parse().ok()?;
        let event = parts.next()?.to_owned();
        (hooks == "hooks" && state == "state").then_some((event, (group, hook)))
    }

    /// True if each event has the hook of clash once, as this version writes it, and Codex
    /// trusts it.
    fn is_current(&self, toml: &TomlText<'_>) -> bool {
        let own = own_hooks(toml);
        let sections = toml.sections();
        let is_trusted = |event: &str, place: (usize, usize)| {
            let entry = Some((snake(event), place));
            let mut entries = sections.iter().filter(|section| self.trusted(section.path) == entry);
            let digest = format!("sha256:{}", digest(event, &self.line));
            entries.any(|entry| toml.string(entry, "trusted_hash").as_ref() == Some(&digest))
        };
        let is_ours = |event: &str| match own
            .iter()
            .filter(|hook| hook.event == event)
            .collect::<Vec<_>>()
            .as_slice()
        {
            [hook] => hook.line == self.line && is_trusted(event, hook.place),
            _ => false,
        };
        own.len() == EVENTS.len() && EVENTS.iter().all(|(event, ..)| is_ours(event))
    }

    /// The text without clash's hooks and their trust entries. The user's hooks behind them
    /// get lower numbers, and so do their trust entries.
    fn without_hooks(&self, text: &str) -> Result<String, SettingsError> {
        let toml = TomlText::parse(text)?;
        let own = own_hooks(&toml);
        let sections = toml.sections();
        let mut edits = Vec::new();
        let mut gone: Vec<usize> = own.iter().flat_map(|hook| hook.sections.clone()).collect();
        for (at, section) in sections.iter().enumerate() {
            let Some((event, place)) = self.trusted(section.path) else { continue };
            let same = |hook: &&OwnHook| snake(&hook.event) == event;
            if own.iter().filter(same).any(|hook| hook.place == place) {
                gone.push(at);
                continue;
            }
            let before = |hook: &&OwnHook| hook.whole_group && hook.place.0 < place.0;
            let groups = own.iter().filter(same).filter(before).count();
            let beside = |hook: &&OwnHook| hook.place.0 == place.0 && hook.place.1 < place.1;
            let hooks = own.iter().filter(same).filter(beside).count();
            let now = (place.0.saturating_sub(groups), place.1.saturating_sub(hooks));
            if let Some(header) = section.header.filter(|_| now != place) {
                let ending = |(group, hook)| format!(":{event}:{group}:{hook}");
                let text = toml.slice(&header.range).replacen(&ending(place), &ending(now), 1);
                edits.push(TextEdit { range: header.range.clone(), text });
            }
        }
        let mut unended = false;
        for section in sections.iter().enumerate().filter(|(at, _)| gone.contains(at)) {
            for statement in section.1.header.iter().copied().chain(section.1.pairs.iter().copied())
            {
                unended |= toml.slice(&statement.range).contains(UNENDED);
                edits.push(statement.removed());
            }
        }
        unended |= old_block(&toml, &mut edits);
        let start = edits.iter().map(|edit| edit.range.start).min().unwrap_or_default();
        let mut without = toml.apply(edits)?;
        // Clash added the line end in front of its tables, if nothing follows it.
        if unended && without.len() == start {
            let end = without.strip_suffix("\r\n").or(without.strip_suffix('\n'));
            without.truncate(end.map_or(without.len(), str::len));
        }
        Ok(without)
    }

    /// The text with clash's hooks and their trust entries at the end. An error if the file
    /// writes its hooks inline.
    fn append(&self, without: &str) -> Result<String, SettingsError> {
        let others = parse_table(without)?;
        let toml = TomlText::parse(without)?;
        let sections = toml.sections();
        let mut new = hooks(&self.line);
        for (event, ..) in EVENTS {
            let groups = match value_at(&others, &["hooks", event]) {
                Some(DeValue::Array(groups)) => groups.len(),
                _ => 0,
            };
            let tables = sections.iter().filter(|section| section.path == ["hooks", event]).count();
            if groups != tables {
                return Err(SettingsError::Inline(format!("hooks.{event}")));
            }
            let key = format!("{}:{}:{groups}:0", self.file.display(), snake(event));
            new.push_str(&format!(
                "[hooks.state.{}]\ntrusted_hash = \"sha256:{}\"\n",
                quoted(&key),
                digest(event, &self.line)
            ));
        }
        let unended = !without.is_empty() && !without.ends_with('\n');
        if unended {
            new = format!("\n{}", new.replacen("]]\n", &format!("]]{UNENDED}\n"), 1));
        }
        let installed = format!("{without}{}", new.replace('\n', toml.newline()));
        // Codex ignores a file it cannot read and starts.
        parse_table(&installed).map_err(|_| SettingsError::Inline("hooks".to_owned()))?;
        Ok(installed)
    }
}

/// True if an older version of clash wrote its block into this text.
fn is_old(toml: &TomlText<'_>) -> bool {
    let lines =
        toml.statements().iter().filter(|statement| statement.kind == TomlStatementKind::Other);
    lines.into_iter().any(|line| toml.slice(&line.range).starts_with(MARK))
}

/// Removes the two comments of an older version and the empty lines before its headers.
/// True if the text before the block had no line end.
fn old_block(toml: &TomlText<'_>, edits: &mut Vec<TextEdit>) -> bool {
    let mut unended = false;
    let mut inside = false;
    let mut empty: Option<TextEdit> = None;
    let mut more = Vec::new();
    for statement in toml.statements() {
        let text = toml.slice(&statement.range);
        let is_comment = statement.kind == TomlStatementKind::Other;
        if is_comment && text.starts_with(MARK) {
            unended |= text.contains(OLD_UNENDED);
            inside = true;
            more.push(statement.removed());
        } else if is_comment && inside && text.trim_end() == OLD_END {
            inside = false;
            more.push(statement.removed());
        } else if inside && edits.iter().any(|edit| edit.range == statement.range) {
            more.extend(empty.take());
        }
        empty = (inside && text.trim().is_empty()).then(|| statement.removed());
    }
    edits.extend(more);
    unended
}

/// The tables of the hooks, without trust entries.
fn hooks(line: &str) -> String {
    let one = |(event, ..): &(&str, HookEvent, bool)| {
        format!(
            "[[hooks.{event}]]\n[[hooks.{event}.hooks]]\ntype = \"command\"\ncommand = {}\ntimeout = {HOOK_TIMEOUT_SECONDS}\n",
            quoted(line)
        )
    };
    EVENTS.iter().map(one).collect()
}

/// `/etc/codex/requirements.toml`: its hooks need no trust, and no project can switch them
/// off.
pub(super) fn requirements(line: &str, dir: &Path) -> String {
    let dir = quoted(&dir.to_string_lossy());
    format!("{MARK}\n[features]\nhooks = true\n\n[hooks]\nmanaged_dir = {dir}\n\n{}", hooks(line))
}

/// The digest of the definition in canonical form: sorted keys, with the default values.
fn digest(event: &str, line: &str) -> String {
    let hook = json!({"async": false, "command": line, "timeout": HOOK_TIMEOUT_SECONDS, "type": "command"});
    let identity = json!({"event_name": snake(event), "hooks": [hook]});
    let digest = Sha256::digest(identity.to_string());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `PreToolUse` as `pre_tool_use`.
fn snake(event: &str) -> String {
    let mut out = String::new();
    for c in event.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// A text as a TOML string, which has the same escapes as JSON.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The value at a path of tables.
pub(super) fn value_at<'t, 'i>(table: &'t DeTable<'i>, path: &[&str]) -> Option<&'t DeValue<'i>> {
    let (first, rest) = path.split_first()?;
    let value = table.get(*first)?.get_ref();
    match (value, rest) {
        (value, []) => Some(value),
        (DeValue::Table(inner), rest) => value_at(inner, rest),
        _ => None,
    }
}

/// A line about a feature switch that turns every hook off.
fn off_switch(table: &DeTable<'_>) -> Option<String> {
    ["hooks", "codex_hooks"]
        .iter()
        .find(|name| matches!(value_at(table, &["features", name]), Some(DeValue::Boolean(false))))
        .map(|name| format!("`features.{name}` switches every hook off"))
}

/// A line about a project's settings that switch hooks off, or that clash cannot read.
/// `None` if the file does not exist.
pub(super) fn against_clash(file: &Path) -> Option<String> {
    use std::io::ErrorKind;
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return None;
        }
        Err(error) => return Some(format!("clash cannot read it and the client may: {error}")),
    };
    match parse_table(&text) {
        Ok(table) => off_switch(&table),
        Err(error) => Some(format!("clash cannot read it and the client may: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit() -> CodexHooks {
        let line = "o=$('/s/bin/clash' hook codex) || { echo \"x\" >&2; exit 2; }".to_owned();
        CodexHooks { file: "/home/u/.codex/config.toml".into(), line }
    }

    #[test]
    fn every_file_comes_back_byte_for_byte() {
        for text in [
            "",
            "model = \"x\" # mine\n",
            "model = \"x\"",
            "\r\n# only a comment\r\n",
            "[hooks.state.\"/x:pre_tool_use:0:0\"]\ntrusted_hash = \"sha256:0\"\n",
            "[[hooks.PreToolUse]]\n[[hooks.PreToolUse.hooks]]\ntype = \"command\"\ncommand = \"lint\"\n",
            "[features]\nhooks = true\n\n\n",
            "\u{feff}a.b = 1\r\n[x] # y\r\na.c = 2",
            "# c\n[[p]]\na = {b = 1,c=[1,\n2]}\n\n# before q\n[q]\n[[p]]\n",
            "sandbox_mode = \"danger-full-access\"\n",
        ] {
            let installed = edit().install(text).unwrap();
            assert_eq!(edit().state(&installed), Ok(WiringState::Present(vec![])), "{installed}");
            assert_eq!(edit().install(&installed).unwrap(), installed);
            assert_eq!(edit().uninstall(&installed).unwrap(), text);
            assert_eq!(edit().uninstall(text).unwrap(), text);
        }
    }

    #[test]
    fn a_hook_of_the_user_before_ours_moves_its_number() {
        let user = "[[hooks.PreToolUse]]\n[[hooks.PreToolUse.hooks]]\ntype = \"command\"\ncommand = \"lint\"\n";
        let installed = edit().install(user).unwrap();
        assert!(installed.contains("/.codex/config.toml:pre_tool_use:1:0\""), "{installed}");
        assert!(installed.contains("/.codex/config.toml:post_tool_use:0:0\""), "{installed}");
        let moved = format!("{user}{}", edit().install("").unwrap());
        let WiringState::Present(wrong) = edit().state(&moved).unwrap() else { panic!("absent") };
        assert!(wrong[0].what.contains("does not trust"), "{wrong:?}");
    }

    #[test]
    fn tables_of_the_client_stay_in_any_place() {
        let installed = edit().install("a = 1").unwrap();
        let behind = format!("{installed}\n[mcp_servers.foo]\ncommand = \"echo\"\n");
        assert_eq!(edit().install(&behind).unwrap(), behind);
        let left = "a = 1\n\n[mcp_servers.foo]\ncommand = \"echo\"\n";
        assert_eq!(edit().uninstall(&behind).unwrap(), left);
        let among = installed.replacen(
            "[[hooks.PostToolUse]]\n",
            "# mine\n[projects.\"/p\"]\ntrust_level = \"trusted\"\n\n[[hooks.PostToolUse]]\n",
            1,
        );
        let left = "a = 1\n# mine\n[projects.\"/p\"]\ntrust_level = \"trusted\"\n\n";
        assert_eq!(edit().install(&among).unwrap(), among);
        assert_eq!(edit().uninstall(&among).unwrap(), left);
        let moved = CodexHooks { line: edit().line.replace("/s/", "/t/"), ..edit() };
        assert_eq!(moved.uninstall(&moved.install(&among).unwrap()).unwrap(), left);
    }

    /// As an older version of clash wrote it, with a table that `codex mcp add` put inside.
    fn old(before: &str, note: &str, inside: &str) -> String {
        let line = edit().line;
        let hook = |event: &str| {
            format!(
                "[[hooks.{event}]]\n[[hooks.{event}.hooks]]\ntype = \"command\"\ncommand = {}\ntimeout = 30\n",
                quoted(&line)
            )
        };
        let hooks: Vec<String> = EVENTS.iter().map(|(event, ..)| hook(event)).collect();
        let state = |event: &str| {
            format!(
                "\n[hooks.state.\"/home/u/.codex/config.toml:{}:0:0\"]\ntrusted_hash = \"sha256:{}\"\n",
                snake(event),
                digest(event, &line)
            )
        };
        let states: String = EVENTS.iter().map(|(event, ..)| state(event)).collect();
        format!("{before}{MARK}{note}\n{}{states}{inside}{OLD_END}\n", hooks.join("\n"))
    }

    #[test]
    fn the_old_block_goes_and_tables_of_the_client_stay() {
        let foo = "\n[mcp_servers.foo]\ncommand = \"echo\"\n";
        for (before, note, inside, left) in [
            ("", "", "", "".to_owned()),
            ("a = 1\n", "", "", "a = 1\n".to_owned()),
            ("a = 1\n", OLD_UNENDED, "", "a = 1".to_owned()),
            ("a = 1\n", OLD_UNENDED, foo, format!("a = 1\n{foo}")),
            ("", "", foo, foo.to_owned()),
        ] {
            let text = old(before, note, inside);
            let WiringState::Present(wrong) = edit().state(&text).unwrap() else {
                panic!("absent")
            };
            assert!(!wrong.is_empty());
            assert_eq!(edit().uninstall(&text).unwrap(), left);
            let upgraded = edit().install(&text).unwrap();
            assert!(!upgraded.contains(MARK) && !upgraded.contains(OLD_END), "{upgraded}");
            assert_eq!(edit().state(&upgraded), Ok(WiringState::Present(vec![])));
            assert_eq!(edit().uninstall(&upgraded).unwrap(), left);
        }
    }

    #[test]
    fn hooks_of_the_user_keep_their_trust_when_ours_go() {
        let user = "[[hooks.PreToolUse]]\n[[hooks.PreToolUse.hooks]]\ntype = \"command\"\ncommand = \"lint\"\n";
        let trust = |group: usize| {
            format!(
                "[hooks.state.\"/home/u/.codex/config.toml:pre_tool_use:{group}:0\"]\ntrusted_hash = \"sha256:1\"\n"
            )
        };
        let both = format!("{}{user}{}", edit().install("").unwrap(), trust(1));
        assert_eq!(edit().install(&both).unwrap(), both);
        assert_eq!(edit().uninstall(&both).unwrap(), format!("{user}{}", trust(0)));
        let beside = edit().install("").unwrap().replacen(
            "timeout = 30\n",
            "timeout = 30\n[[hooks.PreToolUse.hooks]]\ntype = \"command\"\ncommand = \"lint\"\n",
            1,
        );
        assert_eq!(edit().uninstall(&beside).unwrap(), user);
    }

    #[test]
    fn a_text_that_is_no_toml_or_leaves_no_room_is_left_alone() {
        for text in ["a = ", "hooks = {}\n", "hooks.PreToolUse = []\n"] {
            assert!(edit().install(text).is_err(), "{text}");
        }
        assert!(edit().state("features.hooks = false\n").is_ok());
        let off = edit().install("[features]\nhooks = false\n").unwrap();
        let WiringState::Present(wrong) = edit().state(&off).unwrap() else { panic!("absent") };
        assert!(wrong[0].what.contains("switches every hook off"), "{wrong:?}");
    }

    /// The real client accepts this digest. With another, it trusts no hook.
    #[test]
    fn the_digest_of_a_hook_is_the_one_codex_accepts() {
        assert_eq!(
            digest("PreToolUse", "/tmp/lab/log.sh"),
            "67d3c7bb9c4d0b3088762c7212f49b715b15df2762e0f4608dc5a89947b1e610"
        );
    }

    #[test]
    fn the_requirements_of_a_machine_are_toml() {
        let text = requirements("o=\"$(x)\"", Path::new("/s"));
        let parsed = parse_table(&text).unwrap();
        assert!(matches!(value_at(&parsed, &["features", "hooks"]), Some(DeValue::Boolean(true))));
        assert!(text.contains(r#"command = "o=\"$(x)\"""#), "{text}");
    }
}
