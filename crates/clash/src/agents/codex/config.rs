//! Clash's block in Codex's `config.toml`.
//!
//! The hooks and the entries that make Codex trust them stand together between
//! two comments at the end of the file, so that everything else stays as it is,
//! byte for byte. Codex runs a hook of the user only when the digest of its
//! definition is on record; a hook it does not trust it skips without a word. So
//! the digest is written along, and the block is checked against what the file
//! says around it: a hook the user adds before ours moves our number.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toml::de::{DeTable, DeValue};

use super::super::wired::{SettingsEdit, SettingsError, State};
use super::super::{Event, Problem};
use super::{AGENT, EVENTS, sha256};

/// Stands in the block and in files that are clash's altogether.
pub(super) const MARK: &str =
    "# >>> clash: put here by `clash install`, goes with `clash uninstall`";
const END: &str = "# <<< clash";
/// Behind [`MARK`] where the text before did not end its last line.
const UNENDED: &str = " (the line before had no end)";
/// Seconds; the guard's own limit is shorter. It is part of the digest.
const TIMEOUT: u32 = 30;

#[derive(Debug)]
pub(super) struct Hooks {
    /// Where the text is going to be, which is part of what Codex trusts.
    pub(super) file: PathBuf,
    pub(super) line: String,
}

impl SettingsEdit for Hooks {
    fn install(&self, text: &str) -> Result<String, SettingsError> {
        let without = self.uninstall(text)?;
        let unended = !without.is_empty() && !without.ends_with('\n');
        let (start, note) = if unended { ("\n", UNENDED) } else { ("", "") };
        let block = self.block(&without)?;
        let installed = format!("{without}{start}{MARK}{note}\n{block}{END}\n");
        // What Codex cannot read it starts without.
        table(&installed)?;
        Ok(installed)
    }

    fn uninstall(&self, text: &str) -> Result<String, SettingsError> {
        let Some((before, rest)) = text.split_once(MARK) else { return Ok(text.to_owned()) };
        let end = format!("{END}\n");
        let (_, after) =
            rest.split_once(&end).ok_or_else(|| SettingsError::Toml(format!("no `{END}`")))?;
        let unended = rest.starts_with(UNENDED);
        let before = before.strip_suffix('\n').filter(|_| unended).unwrap_or(before);
        // What was added behind the block needs the line end.
        let joint = if unended && !after.is_empty() { "\n" } else { "" };
        Ok(format!("{before}{joint}{after}"))
    }

    fn state(&self, text: &str) -> Result<State, SettingsError> {
        if !text.contains(MARK) {
            table(text)?;
            return Ok(State::Absent);
        }
        let mut wrong = Vec::new();
        let install = || Some(format!("clash install --agent {}", AGENT.name));
        if let Some(what) = off_switch(&table(text)?) {
            wrong.push(Problem { what, fix: Some("remove it".to_owned()) });
        }
        let block = self.block(&self.uninstall(text)?)?;
        if !text.contains(&format!("{block}{END}\n")) {
            let what = "its hooks are not this clash's, or Codex does not trust them any more";
            wrong.push(Problem { what: what.to_owned(), fix: install() });
        }
        Ok(State::Present(wrong))
    }
}

impl Hooks {
    /// Hooks and trust, for a file whose other text is this.
    fn block(&self, without: &str) -> Result<String, SettingsError> {
        let others = table(without)?;
        let mut block = hooks(&self.line);
        for (event, ..) in EVENTS {
            let group = match at(&others, &["hooks", event]) {
                Some(DeValue::Array(groups)) => groups.len(),
                _ => 0,
            };
            let key = format!("{}:{}:{group}:0", self.file.display(), snake(event));
            block.push_str(&format!(
                "\n[hooks.state.{}]\ntrusted_hash = \"sha256:{}\"\n",
                quoted(&key),
                digest(event, &self.line)
            ));
        }
        Ok(block)
    }
}

/// The tables every file with our hooks has.
fn hooks(line: &str) -> String {
    let one = |(event, ..): &(&str, Event, bool)| {
        format!(
            "[[hooks.{event}]]\n[[hooks.{event}.hooks]]\ntype = \"command\"\ncommand = {}\ntimeout = {TIMEOUT}\n",
            quoted(line)
        )
    };
    EVENTS.iter().map(one).collect::<Vec<_>>().join("\n")
}

/// `/etc/codex/requirements.toml`: hooks that need no trust, and that no project
/// switches off.
pub(super) fn requirements(line: &str, dir: &Path) -> String {
    let dir = quoted(&dir.to_string_lossy());
    format!("{MARK}\n[features]\nhooks = true\n\n[hooks]\nmanaged_dir = {dir}\n\n{}", hooks(line))
}

/// Over the definition in a canonical form: sorted keys, defaults filled in.
fn digest(event: &str, line: &str) -> String {
    let hook = json!({"async": false, "command": line, "timeout": TIMEOUT, "type": "command"});
    let identity = json!({"event_name": snake(event), "hooks": [hook]});
    sha256::hex(identity.to_string().as_bytes())
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

/// JSON's escapes are TOML's.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn table(text: &str) -> Result<DeTable<'_>, SettingsError> {
    let parsed = DeTable::parse(text);
    parsed
        .map(toml::Spanned::into_inner)
        .map_err(|error| SettingsError::Toml(error.message().to_owned()))
}

fn at<'t, 'i>(table: &'t DeTable<'i>, path: &[&str]) -> Option<&'t DeValue<'i>> {
    let (first, rest) = path.split_first()?;
    let value = table.get(*first)?.get_ref();
    match (value, rest) {
        (value, []) => Some(value),
        (DeValue::Table(inner), rest) => at(inner, rest),
        _ => None,
    }
}

fn off_switch(table: &DeTable<'_>) -> Option<String> {
    ["hooks", "codex_hooks"]
        .iter()
        .find(|name| matches!(at(table, &["features", name]), Some(DeValue::Boolean(false))))
        .map(|name| format!("`features.{name}` switches every hook off"))
}

/// What a project's settings do against clash.
pub(super) fn against_clash(file: &Path) -> Option<String> {
    use std::io::ErrorKind;
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return None;
        }
        Err(error) => return Some(format!("clash cannot read it and the client may: {error}")),
    };
    match table(&text) {
        Ok(table) => off_switch(&table),
        Err(error) => Some(format!("clash cannot read it and the client may: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit() -> Hooks {
        let line = "o=$('/s/bin/clash' hook codex) || { echo \"x\" >&2; exit 2; }".to_owned();
        Hooks { file: "/home/u/.codex/config.toml".into(), line }
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
        ] {
            let installed = edit().install(text).unwrap();
            assert_eq!(edit().state(&installed), Ok(State::Present(vec![])), "{installed}");
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
        let State::Present(wrong) = edit().state(&moved).unwrap() else { panic!("absent") };
        assert!(wrong[0].what.contains("does not trust"), "{wrong:?}");
    }

    #[test]
    fn what_stands_behind_the_block_stays() {
        let installed = edit().install("a = 1").unwrap() + "[projects.\"/p\"]\n";
        assert_eq!(edit().uninstall(&installed).unwrap(), "a = 1\n[projects.\"/p\"]\n");
    }

    #[test]
    fn a_text_that_is_no_toml_or_leaves_no_room_is_left_alone() {
        for text in ["a = ", "hooks = {}\n", "hooks.PreToolUse = []\n"] {
            assert!(edit().install(text).is_err(), "{text}");
        }
        assert!(edit().state("features.hooks = false\n").is_ok());
        let off = edit().install("[features]\nhooks = false\n").unwrap();
        let State::Present(wrong) = edit().state(&off).unwrap() else { panic!("absent") };
        assert!(wrong[0].what.contains("switches every hook off"), "{wrong:?}");
    }

    /// Accepted by the real client; a change of it makes every hook untrusted.
    #[test]
    fn the_digest_is_the_client_s() {
        assert_eq!(
            digest("PreToolUse", "/tmp/lab/log.sh"),
            "67d3c7bb9c4d0b3088762c7212f49b715b15df2762e0f4608dc5a89947b1e610"
        );
    }

    #[test]
    fn a_machine_s_requirements_are_toml() {
        let text = requirements("o=\"$(x)\"", Path::new("/s"));
        let parsed = table(&text).unwrap();
        assert!(matches!(at(&parsed, &["features", "hooks"]), Some(DeValue::Boolean(true))));
        assert!(text.contains(r#"command = "o=\"$(x)\"""#), "{text}");
    }
}
