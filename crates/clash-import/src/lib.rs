//! Turns the permission settings of other tools into a clash policy.
//!
//! The import is a pure function of bytes: it opens no file and reads no variable. One
//! rule stands above all others: **an import never widens**. An allow that a policy cannot
//! express exactly becomes narrower or stays out. A deny or an ask that it cannot express
//! exactly becomes wider. For example, a deny of `git * main` becomes a deny of `git`. The
//! report lists both, and first the restrictions that the policy does not express at all.
//!
//! In other tools the strictest or first matching rule wins, however long it is. Inside
//! one tree of a clash policy the most specific key wins. So denies, asks and allows
//! become three independent `policy()` calls, and among those the strictest wins again.
#![forbid(unsafe_code)]

mod claude;
mod codex_config;
mod codex_rules;
mod draft;
mod hosts;
mod json;
mod module;
mod paths;
mod sandbox;
mod srt;
mod text;
mod toolchains;
mod tree;
mod words;

use std::fmt;

use clash_policy::Effect;
use clash_syntax::draft::DraftError;

pub use clash_syntax::draft::PolicyModule;
pub use module::{KeptRules, module};

/// The formats that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportFormat {
    /// `settings.json` of Claude Code: `permissions` and `sandbox`.
    Claude,
    /// `srt-settings.json`, and the files of fence and greywall that share its shape.
    Srt,
    /// codex `*.rules`: calls of `prefix_rule`, `network_rule`, `host_executable`.
    CodexRules,
    /// codex `config.toml`: permission profiles and the older `sandbox_mode`.
    CodexConfig,
}

/// The tools whose settings can be imported, as `clash policy import --from` names them.
pub const TOOL_NAMES: [&str; 3] = ["claude", "srt", "codex"];

impl ImportFormat {
    /// The tool of this format, one of [`TOOL_NAMES`].
    pub const fn tool_name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Srt => "srt",
            Self::CodexRules | Self::CodexConfig => "codex",
        }
    }

    /// The name in the text "imported from FILE (…)".
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Claude => "Claude Code settings",
            Self::Srt => "sandbox runtime settings",
            Self::CodexRules => "codex rules",
            Self::CodexConfig => "codex configuration",
        }
    }
}

/// The directory that a path such as `/src` in the settings starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsBase<'a> {
    /// Settings of a project: its root.
    Project,
    /// Settings below the home directory, by the path from there: `.claude`.
    Home(&'a str),
    /// Settings elsewhere, by an absolute path.
    Directory(&'a str),
}

/// One file to import.
#[derive(Clone, Copy, Debug)]
pub struct ImportSource<'a> {
    /// The file's name in the text and the report.
    pub name: &'a str,
    pub bytes: &'a [u8],
    pub base: SettingsBase<'a>,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportEntry {
    /// The entry as it was written.
    pub what: String,
    /// Where: `permissions.deny[3]`, `line 12`.
    pub where_: String,
    pub why: String,
    /// The effect of the entry; `None` for a setting that has none.
    pub effect: Option<Effect>,
}

impl ReportEntry {
    /// True if the entry restricts: without it, the policy permits more.
    pub fn restricts(&self) -> bool {
        matches!(self.effect, Some(Effect::Deny | Effect::Ask))
    }
}

impl fmt::Display for ReportEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}`: {}", self.where_, text::shown(&self.what), text::shown(&self.why))
    }
}

/// A policy as text, and the report about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedPolicy {
    /// The policy. A comment at each rule names the entry that it came from.
    pub source: String,
    /// Entries that the policy does not express. Restrictions, which are then **not
    /// enforced**, come first; the head of the text names each of them.
    pub not_expressed: Vec<ReportEntry>,
    /// Entries that the policy expresses more strictly: an allow that covers less, a deny
    /// or an ask that covers more.
    pub narrowed: Vec<ReportEntry>,
}

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("`{name}` has no format that clash can import")]
    Unknown { name: String },
    #[error("the file is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("the file holds more than {limit} {what}")]
    TooMany { what: &'static str, limit: usize },
    #[error("the file is not UTF-8 text")]
    NotText,
    #[error("not JSON: {0}")]
    Json(serde_json::Error),
    #[error("not TOML, line {line}: {message}")]
    Toml { line: usize, message: String },
    #[error("not Starlark, line {line}: {message}")]
    Starlark { line: usize, message: String },
    #[error("{at}: expected {expected}")]
    Shape { at: String, expected: &'static str },
    #[error(transparent)]
    Draft(#[from] DraftError),
    #[error("line {line}: the rule's own example `{example}` contradicts it")]
    Example { line: usize, example: String },
}

pub(crate) type ImportResult<T> = Result<T, ImportError>;

/// A larger file is an attack on the reader.
const MAX_SETTINGS_BYTES: usize = 1 << 20;

/// The format of a file by its content. The name decides only where the content fits
/// several formats, or none. `None` also for a file that is too large or no text.
pub fn detect(name: &str, bytes: &[u8]) -> Option<ImportFormat> {
    let source = content(bytes).ok()?;
    let name = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let ends = |suffix: &str| name.to_ascii_lowercase().ends_with(suffix);
    if let Ok(value) = serde_json::from_str::<serde_json::Value>(source) {
        return json_format(&value, name);
    }
    if !ends(".rules") && codex_config::recognises(source) {
        return Some(ImportFormat::CodexConfig);
    }
    (ends(".rules") || codex_rules::recognises(source)).then_some(ImportFormat::CodexRules)
}

/// The format of a JSON file by its keys, or by the file names of Claude Code.
fn json_format(value: &serde_json::Value, name: &str) -> Option<ImportFormat> {
    let object = value.as_object()?;
    let has = |key: &str| object.contains_key(key);
    if has("permissions") || has("sandbox") {
        return Some(ImportFormat::Claude);
    }
    if has("network") || has("filesystem") || has("command") {
        return Some(ImportFormat::Srt);
    }
    matches!(name, "settings.json" | "settings.local.json" | "managed-settings.json")
        .then_some(ImportFormat::Claude)
}

/// Imports a file. Its content tells the format; an unknown one is an error.
pub fn import(source: &ImportSource<'_>) -> ImportResult<ImportedPolicy> {
    let format = detect(source.name, source.bytes);
    match format {
        Some(format) => import_as(format, source),
        None => {
            content(source.bytes)?;
            Err(ImportError::Unknown { name: source.name.to_owned() })
        }
    }
}

/// Imports a file of a known format. A file that does not fit the format is an error, and
/// nothing of it is imported.
pub fn import_as(format: ImportFormat, source: &ImportSource<'_>) -> ImportResult<ImportedPolicy> {
    let content = content(source.bytes)?;
    let draft = match format {
        ImportFormat::Claude => claude::read(content, source.base)?,
        ImportFormat::Srt => srt::read(content)?,
        ImportFormat::CodexRules => codex_rules::read(content)?,
        ImportFormat::CodexConfig => codex_config::read(content)?,
    };
    draft.finish(source.name, format)
}

/// The text of a file without its byte order mark. More than [`MAX_SETTINGS_BYTES`], or
/// bytes that are no UTF-8, are errors.
fn content(bytes: &[u8]) -> ImportResult<&str> {
    if bytes.len() > MAX_SETTINGS_BYTES {
        return Err(ImportError::TooLarge { limit: MAX_SETTINGS_BYTES });
    }
    let text = std::str::from_utf8(bytes).map_err(|_| ImportError::NotText)?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

#[cfg(test)]
mod tests;
