//! Errors and problems of a settings file, with their remedies.

use std::path::PathBuf;

use super::{JsonError, PREFIX};

/// Why clash does not change a settings file. Lines count from one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error(transparent)]
    Json(#[from] JsonError),
    #[error("`{what}` in line {line} is not {expected}")]
    WrongType { what: String, expected: &'static str, line: usize },
    #[error("`{what}` stands twice, again in line {line}")]
    DuplicateKey { what: String, line: usize },
    #[error("`{PREFIX}` in line {line} is already set to `{value}`")]
    ForeignPrefix { value: String, line: usize },
    #[error("not TOML: {0}")]
    Toml(String),
    #[error("`{0}` is already there, and is not clash's")]
    Taken(String),
    #[error("`{0}` is written inline, and TOML allows no further table there")]
    Inline(String),
    #[error("hook command `{0}` could not be recognised again")]
    UnknownHookCommand(String),
    #[error("shell prefix `{}` could not be recognised again", .0.display())]
    UnknownPrefix(PathBuf),
    #[error("clash's changes could lose text of this file, so it stays as it is")]
    UnsafeEdits,
}

impl SettingsError {
    /// The remedy for the user; `None` if it is a defect of clash.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Json(JsonError::Comment { .. } | JsonError::TrailingComma { .. }) => {
                Some("the client cannot read the file like this: remove it and try again")
            }
            Self::Json(_) | Self::Toml(_) => {
                Some("correct the file, or move it away, and try again")
            }
            Self::WrongType { .. } => Some(
                "the client ignores its hooks when one of them is malformed: correct it and try again",
            ),
            Self::DuplicateKey { .. } => {
                Some("the client uses only the last one: keep one and try again")
            }
            Self::ForeignPrefix { .. } => {
                Some("the client has room for one shell prefix: remove it from `env` and try again")
            }
            Self::Taken(_) => Some("move it away and try again"),
            Self::Inline(_) => {
                Some("write it as tables, such as [[hooks.PreToolUse]], and try again")
            }
            Self::UnknownHookCommand(_) | Self::UnknownPrefix(_) | Self::UnsafeEdits => None,
        }
    }
}

/// A setting that weakens or breaks the wiring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SettingsProblem {
    /// A setting switches every hook off, or clash's.
    HooksDisabled { key: String, line: usize },
    /// Another program is the prefix, or the prefix is empty.
    ForeignPrefix { value: String, line: usize },
    /// The file sets a variable that runs code or moves directories.
    GroundInEnv { name: String, line: usize },
    /// These events have no hook of clash, and others have.
    MissingEvents(Vec<&'static str>),
    /// The file has the hooks and not the prefix.
    MissingPrefix,
    /// The client rejects this entry, and with it every hook of the file.
    Malformed(SettingsError),
}

impl SettingsProblem {
    /// True if users may do this in their own settings: they may set their own environment.
    pub(crate) fn is_users_own(&self) -> bool {
        matches!(self, Self::GroundInEnv { .. })
    }

    /// The remedy, if a new installation does not suffice.
    pub(super) fn fix(&self) -> Option<String> {
        match self {
            Self::HooksDisabled { key, .. } => Some(format!("remove `{key}`")),
            Self::ForeignPrefix { .. } => Some(format!("remove `{PREFIX}` from `env`")),
            Self::GroundInEnv { name, .. } => Some(format!("remove `{name}` from `env`")),
            Self::MissingEvents(_) | Self::MissingPrefix => None,
            Self::Malformed(error) => error.hint().map(str::to_owned),
        }
    }

    /// True if a project with this setting works against clash. Other problems only break
    /// the project's own hooks.
    pub(crate) fn is_hostile(&self) -> bool {
        match self {
            Self::HooksDisabled { .. } | Self::ForeignPrefix { .. } | Self::GroundInEnv { .. } => {
                true
            }
            Self::MissingEvents(_) | Self::MissingPrefix | Self::Malformed(_) => false,
        }
    }
}

/// The problem in words that follow the file's name.
pub(crate) fn describe(problem: &SettingsProblem) -> String {
    match problem {
        SettingsProblem::HooksDisabled { line, .. } => {
            format!("line {line} switches every hook off")
        }
        SettingsProblem::ForeignPrefix { value, line } if value.is_empty() => {
            format!("line {line} takes the shell prefix away")
        }
        SettingsProblem::ForeignPrefix { value, line } => {
            format!("line {line} replaces the shell prefix with `{value}`")
        }
        SettingsProblem::GroundInEnv { name, line } => {
            format!("line {line} sets `{name}`, which moves the ground sandboxes stand on")
        }
        SettingsProblem::MissingEvents(events) => format!("has no hook for {}", events.join(", ")),
        SettingsProblem::MissingPrefix => "has hooks but not the shell prefix".to_owned(),
        SettingsProblem::Malformed(error) => error.to_string(),
    }
}

/// True if a project must not set this variable. Either it runs code in the client's shell
/// before the prefix or in the hook before clash (seen for `BASH_ENV`, `CLAUDE_CODE_SHELL`,
/// `LD_PRELOAD`, `PATH` and `SHELL`). Or it moves directories that policies and clash rely
/// on (seen for `CARGO_HOME` and `CLAUDE_ENV_FILE`). Or it names the proxy through which the
/// gate of a room dials.
pub(super) fn is_ground(name: &str) -> bool {
    const GROUND_NAMES: [&str; 17] = [
        "AI_AGENT",
        "BUN_OPTIONS",
        "CLAUDE_CODE_EXECPATH",
        "CLAUDE_CODE_SESSION_ID",
        "CLAUDE_CODE_SHELL",
        "CLAUDE_CODE_TMPDIR",
        "CLAUDE_CONFIG_DIR",
        "CLAUDE_ENV_FILE",
        "ENV",
        "GCONV_PATH",
        "HOME",
        "LOCPATH",
        "PATH",
        "PS4",
        "SHELL",
        "SHELLOPTS",
        "TMPDIR",
    ];
    const GROUND_PREFIXES: [&str; 6] = ["BASH", "DYLD_", "GLIBC_", "LD_", "XDG_", "ZDOTDIR"];
    let place = clash_policy::path::VARIABLE_DEFAULTS.iter().any(|(place, _)| *place == name);
    let proxy = name.to_ascii_lowercase().ends_with("_proxy");
    place
        || proxy
        || GROUND_NAMES.contains(&name)
        || GROUND_PREFIXES.iter().any(|start| name.starts_with(start))
}
