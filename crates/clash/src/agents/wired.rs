//! The files an installation consists of, as text in and text out.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::Problem;
pub(crate) use super::hook_entries::SettingsError;
use super::hook_entries::Wiring;

/// Where an installation holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// For everything the user does.
    User,
    /// For one project, whoever works in it.
    Project(PathBuf),
    /// For everybody on this machine; only its administrator can write there.
    Managed,
}

/// One file clash has entries in.
#[derive(Debug)]
pub(crate) struct Wired {
    pub(crate) file: PathBuf,
    pub(crate) edit: Box<dyn SettingsEdit>,
}

/// How clash comes into a file and out of it again. A file that does not exist
/// is empty, and one that becomes empty (or `{}`) where there was none goes.
pub(crate) trait SettingsEdit: std::fmt::Debug {
    /// The text with clash's entries; doing it twice changes nothing more.
    fn install(&self, text: &str) -> Result<String, SettingsError>;

    /// The text as it was before; without clash's entries, the same.
    fn uninstall(&self, text: &str) -> Result<String, SettingsError>;

    fn state(&self, text: &str) -> Result<State, SettingsError>;
}

/// What a file has of clash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
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
}

impl WholeFile {
    /// The settings of a machine: our hooks, and what keeps them on.
    pub(crate) fn managed(wiring: &Wiring, members: Value) -> Self {
        let entries = wiring.install("").unwrap_or_default();
        let mut settings: Map<String, Value> = serde_json::from_str(&entries).unwrap_or_default();
        settings.extend(members.as_object().cloned().unwrap_or_default());
        let text = serde_json::to_string_pretty(&settings).unwrap_or_default();
        // JSON has no comments: the command line is what tells.
        Self { agent: wiring.shape.agent, text: format!("{text}\n"), mark: "clash' hook " }
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
}
