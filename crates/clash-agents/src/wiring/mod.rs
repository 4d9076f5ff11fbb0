//! The settings files of an installation. Every edit takes a text and returns a text; the
//! caller reads and writes the files.

use std::path::PathBuf;

use serde_json::{Map, Value};

pub(crate) mod flat_hooks;
pub(crate) mod guard;
pub(crate) mod hook_entries;
pub(crate) mod json_edit;
mod json_items;
pub(crate) mod one_key;
pub(crate) mod text_edit;
pub(crate) mod toml_text;

use crate::{Agent, WiringProblem};
use hook_entries::{HookEntries, calls_clash};
pub use hook_entries::{JsonError, SettingsError};

/// For whom an installation is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstallScope {
    /// For every session of the user.
    User,
    /// For one project and every user who works in it.
    Project(PathBuf),
    /// For every user of this machine. Only its administrator can write there.
    Managed,
}

/// A file with entries of clash.
#[derive(Debug)]
pub struct WiredFile {
    pub file: PathBuf,
    pub edit: Box<dyn SettingsEdit>,
}

/// How clash adds its entries to a file and removes them. A file that does not exist is an
/// empty text. The caller removes a file that becomes empty (or `{}`) if clash made it.
pub trait SettingsEdit: std::fmt::Debug {
    /// The text with clash's entries. A second call changes nothing more.
    fn install(&self, text: &str) -> Result<String, SettingsError>;

    /// The text as it was before. A text without clash's entries stays the same.
    fn uninstall(&self, text: &str) -> Result<String, SettingsError>;

    /// The entries of clash in this text. Entries of another version are a problem.
    fn state(&self, text: &str) -> Result<WiringState, SettingsError>;

    /// The commands in this text that the client runs before a tool call.
    fn commands(&self, text: &str) -> Result<Vec<HookCommand>, SettingsError>;

    /// The program in this text through which the client starts its commands.
    fn launcher(&self, _text: &str) -> Result<Option<PathBuf>, SettingsError> {
        Ok(None)
    }

    /// The client's own sandbox, as this text sets it.
    fn own_sandbox(&self, _text: &str) -> Result<OwnSandbox, SettingsError> {
        Ok(OwnSandbox::Off)
    }

    /// The text with the client's own sandbox off. `uninstall` restores the previous value.
    fn without_own_sandbox(&self, text: &str) -> Result<String, SettingsError> {
        Ok(text.to_owned())
    }
}

/// A command of a hook in the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookCommand {
    /// The client gives this line to a shell.
    Shell(String),
    /// The client starts this program with these arguments.
    Argv(Vec<String>),
}

/// The sandbox of the client itself. Clash cannot start a command in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnSandbox {
    Off,
    /// On, and one setting switches it off: its present value (`None`: the client's
    /// default), and the line that clash would write.
    On {
        now: Option<String>,
        change: &'static str,
    },
    /// On, by settings that clash does not change: which ones, and the remedy.
    OnOtherwise {
        by: String,
        fix: &'static str,
    },
}

impl OwnSandbox {
    /// The problem in words, with its remedy; `None` if the sandbox is off.
    pub fn problem(&self, agent: &Agent) -> Option<WiringProblem> {
        let install = || format!("clash install --agent {}", agent.name);
        let (by, fix) = match self {
            Self::On { now: None, change } => {
                let key = change.split(' ').next().unwrap_or_default();
                (format!("`{key}` is not set"), install())
            }
            Self::On { now: Some(now), .. } => (format!("it is `{now}`"), install()),
            Self::OnOtherwise { by, fix } => (by.clone(), (*fix).to_owned()),
            Self::Off => return None,
        };
        let what =
            format!("{}'s own sandbox is on ({by}): no command can start in it", agent.title);
        Some(WiringProblem { what, fix: Some(fix) })
    }
}

/// The entries of clash in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WiringState {
    Absent,
    /// The file has entries, with these problems.
    Present(Vec<WiringProblem>),
}

/// A file that clash writes whole.
#[derive(Debug)]
pub(crate) struct WholeFile {
    pub(crate) agent: &'static str,
    pub(crate) text: String,
    /// A text in every version of this file and in no other file.
    pub(crate) mark: &'static str,
    pub(crate) calls: ClashCall,
}

/// How such a file calls clash.
#[derive(Debug)]
pub(crate) enum ClashCall {
    /// Command lines in JSON.
    Json,
    Toml,
    /// The program in its line `const CLASH = …`.
    Plugin,
    /// The client runs the file itself.
    Itself(PathBuf),
}

impl WholeFile {
    /// The settings for all users of a machine: clash's hooks, and the members that keep
    /// them on.
    pub(crate) fn managed(wiring: &HookEntries, members: Value) -> Self {
        let entries = wiring.install("").unwrap_or_default();
        let mut settings: Map<String, Value> = serde_json::from_str(&entries).unwrap_or_default();
        settings.extend(members.as_object().cloned().unwrap_or_default());
        let text = serde_json::to_string_pretty(&settings).unwrap_or_default();
        // JSON has no comments, so the command line marks the file.
        Self {
            agent: wiring.format.agent,
            text: format!("{text}\n"),
            mark: "clash' hook ",
            calls: ClashCall::Json,
        }
    }
}

impl SettingsEdit for WholeFile {
    /// Fills an empty file, replaces a file of clash, and refuses any other.
    fn install(&self, text: &str) -> Result<String, SettingsError> {
        if text.trim().is_empty() || text.contains(self.mark) {
            return Ok(self.text.clone());
        }
        Err(SettingsError::Taken("the file".to_owned()))
    }

    /// Empties a file of clash, also one that the user has changed; any other stays.
    fn uninstall(&self, text: &str) -> Result<String, SettingsError> {
        Ok(if text.contains(self.mark) { String::new() } else { text.to_owned() })
    }

    /// A file of clash with another text, for example of an earlier version, is a problem.
    fn state(&self, text: &str) -> Result<WiringState, SettingsError> {
        if !text.contains(self.mark) {
            return Ok(WiringState::Absent);
        }
        if text == self.text {
            return Ok(WiringState::Present(Vec::new()));
        }
        let fix = Some(format!("clash install --agent {}", self.agent));
        let what = "is not what this clash writes".to_owned();
        Ok(WiringState::Present(vec![WiringProblem { what, fix }]))
    }

    /// The commands in the text. A file that the client runs itself is the command,
    /// whatever the text.
    fn commands(&self, text: &str) -> Result<Vec<HookCommand>, SettingsError> {
        let mut found = Vec::new();
        match &self.calls {
            ClashCall::Json => {
                let document = serde_json::from_str(text).map_err(|error| {
                    SettingsError::Json(JsonError::Syntax { message: error.to_string() })
                })?;
                collect_lines(&document, self.agent, &mut found);
            }
            ClashCall::Toml => found.extend(crate::codex::commands(text)?),
            ClashCall::Plugin => {
                let line = text.lines().find_map(|line| line.strip_prefix("const CLASH = "));
                let program = line.and_then(|line| serde_json::from_str::<String>(line).ok());
                let argv = |program| vec![program, "hook".to_owned(), self.agent.to_owned()];
                found.extend(program.map(argv).map(HookCommand::Argv));
            }
            ClashCall::Itself(file) => {
                found.push(HookCommand::Argv(vec![file.to_string_lossy().into_owned()]));
            }
        }
        found.dedup();
        Ok(found)
    }
}

/// Collects every command line in a document that calls clash.
fn collect_lines(value: &Value, agent: &str, found: &mut Vec<HookCommand>) {
    match value {
        Value::Object(members) => {
            let words = |key: &str| members.get(key).and_then(Value::as_array);
            let program = members.get("command").and_then(Value::as_str);
            if let (Some(program), Some(words)) = (program, words("args")) {
                let words = words.iter().filter_map(Value::as_str).map(str::to_owned);
                let argv: Vec<String> = std::iter::once(program.to_owned()).chain(words).collect();
                if argv.iter().any(|word| calls_clash(word, agent)) {
                    found.push(HookCommand::Argv(argv));
                }
                return;
            }
            members.values().for_each(|member| collect_lines(member, agent, found));
        }
        Value::Array(values) => values.iter().for_each(|value| collect_lines(value, agent, found)),
        Value::String(text) if calls_clash(text, agent) => {
            found.push(HookCommand::Shell(text.clone()));
        }
        _ => {}
    }
}
