//! The files an installation consists of, as text in and text out.

use std::path::PathBuf;

use serde_json::{Map, Value};

pub(crate) mod flat_hooks;
pub(crate) mod guard;
pub(crate) mod hook_entries;
pub(crate) mod json_edit;
pub(crate) mod one_key;
pub(crate) mod toml_text;

use crate::{Agent, Problem};
pub use hook_entries::{JsonError, SettingsError};
use hook_entries::{Wiring, calls_clash};

/// Where an installation holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// For everything the user does.
    User,
    /// For one project, whoever works in it.
    Project(PathBuf),
    /// For everybody on this machine; only its administrator can write there.
    Managed,
}

/// One file clash has entries in.
#[derive(Debug)]
pub struct Wired {
    pub file: PathBuf,
    pub edit: Box<dyn SettingsEdit>,
}

/// How clash comes into a file and out of it again. A file that does not exist
/// is empty, and one that becomes empty (or `{}`) where there was none goes.
pub trait SettingsEdit: std::fmt::Debug {
    /// The text with clash's entries; doing it twice changes nothing more.
    fn install(&self, text: &str) -> Result<String, SettingsError>;

    /// The text as it was before; without clash's entries, the same.
    fn uninstall(&self, text: &str) -> Result<String, SettingsError>;

    fn state(&self, text: &str) -> Result<State, SettingsError>;

    /// The commands in this text that the client runs before a tool call.
    fn commands(&self, text: &str) -> Result<Vec<HookCommand>, SettingsError>;

    /// The program in this text through which the client starts its commands.
    fn launcher(&self, _text: &str) -> Result<Option<PathBuf>, SettingsError> {
        Ok(None)
    }

    /// The client's own sandbox, by this text.
    fn own_sandbox(&self, _text: &str) -> Result<OwnSandbox, SettingsError> {
        Ok(OwnSandbox::Off)
    }

    /// The text with the client's own sandbox off. `uninstall` puts back the
    /// previous value.
    fn without_own_sandbox(&self, text: &str) -> Result<String, SettingsError> {
        Ok(text.to_owned())
    }
}

/// A command of a hook, as it stands in the settings.
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
    /// On, and one setting switches it off: the setting as it is now (`None`: the
    /// client's default), and as clash would write it.
    On {
        now: Option<String>,
        change: &'static str,
    },
    /// On, by settings that clash does not change: which, and the way out.
    OnOtherwise {
        by: String,
        fix: &'static str,
    },
}

impl OwnSandbox {
    /// In words, with what to do.
    pub fn problem(&self, agent: &Agent) -> Option<Problem> {
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
        Some(Problem { what, fix: Some(fix) })
    }
}

/// What a file has of clash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Absent,
    /// There, with what is wrong about it.
    Present(Vec<Problem>),
}

/// A file that is clash's from the first byte to the last.
#[derive(Debug)]
pub(crate) struct WholeFile {
    pub(crate) agent: &'static str,
    pub(crate) text: String,
    /// Stands in every version of it and in no other file.
    pub(crate) mark: &'static str,
    pub(crate) calls: Calls,
}

/// How a file that is clash's calls clash.
#[derive(Debug)]
pub(crate) enum Calls {
    /// By the command lines in it.
    Json,
    Toml,
    /// By the program in its `CLASH`.
    Plugin,
    /// It is the program that the client runs.
    Itself(PathBuf),
}

impl WholeFile {
    /// The settings of a machine: our hooks, and what keeps them on.
    pub(crate) fn managed(wiring: &Wiring, members: Value) -> Self {
        let entries = wiring.install("").unwrap_or_default();
        let mut settings: Map<String, Value> = serde_json::from_str(&entries).unwrap_or_default();
        settings.extend(members.as_object().cloned().unwrap_or_default());
        let text = serde_json::to_string_pretty(&settings).unwrap_or_default();
        // JSON has no comments: the command line is what tells.
        Self {
            agent: wiring.shape.agent,
            text: format!("{text}\n"),
            mark: "clash' hook ",
            calls: Calls::Json,
        }
    }
}

impl SettingsEdit for WholeFile {
    fn install(&self, text: &str) -> Result<String, SettingsError> {
        if text.trim().is_empty() || text.contains(self.mark) {
            return Ok(self.text.clone());
        }
        Err(SettingsError::Taken("the file".to_owned()))
    }

    fn uninstall(&self, text: &str) -> Result<String, SettingsError> {
        Ok(if text.contains(self.mark) { String::new() } else { text.to_owned() })
    }

    fn state(&self, text: &str) -> Result<State, SettingsError> {
        if !text.contains(self.mark) {
            return Ok(State::Absent);
        }
        if text == self.text {
            return Ok(State::Present(Vec::new()));
        }
        let fix = Some(format!("clash install --agent {}", self.agent));
        let what = "is not what this clash writes".to_owned();
        Ok(State::Present(vec![Problem { what, fix }]))
    }

    fn commands(&self, text: &str) -> Result<Vec<HookCommand>, SettingsError> {
        let mut found = Vec::new();
        match &self.calls {
            Calls::Json => {
                let document = serde_json::from_str(text).map_err(|error| {
                    SettingsError::Json(JsonError::Syntax { message: error.to_string() })
                })?;
                lines(&document, self.agent, &mut found);
            }
            Calls::Toml => found.extend(crate::codex::commands(text)?),
            Calls::Plugin => {
                let line = text.lines().find_map(|line| line.strip_prefix("const CLASH = "));
                let program = line.and_then(|line| serde_json::from_str::<String>(line).ok());
                let argv = |program| vec![program, "hook".to_owned(), self.agent.to_owned()];
                found.extend(program.map(argv).map(HookCommand::Argv));
            }
            Calls::Itself(file) => {
                found.push(HookCommand::Argv(vec![file.to_string_lossy().into_owned()]));
            }
        }
        found.dedup();
        Ok(found)
    }
}

/// Every command line in a document that calls clash.
fn lines(value: &Value, agent: &str, found: &mut Vec<HookCommand>) {
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
            members.values().for_each(|member| lines(member, agent, found));
        }
        Value::Array(values) => values.iter().for_each(|value| lines(value, agent, found)),
        Value::String(text) if calls_clash(text, agent) => {
            found.push(HookCommand::Shell(text.clone()));
        }
        _ => {}
    }
}
