//! Keys of a draft: the left side of a dict entry.

use super::string_literal;
use crate::edit::RuleKey;
use crate::layout::MAX_LINE_COLUMNS;

/// One key of a dict. Several alternatives become a tuple.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyDraft {
    /// Words of a command, names of tools. A long list is split over several entries.
    Words(Vec<String>),
    /// Keys of any kind, for example `glob("*.env")`. They stay in one entry.
    AnyOf(Vec<RuleKey>),
    /// `localhost(ports = […])`
    Localhost(Vec<u16>),
    /// Everything else: `glob("**")` among words, `default()` among paths and hosts.
    Rest,
}

impl KeyDraft {
    pub fn text(text: impl Into<String>) -> Self {
        Self::AnyOf(vec![RuleKey::str(text)])
    }

    pub fn glob(pattern: impl Into<String>) -> Self {
        Self::AnyOf(vec![RuleKey::call("glob", pattern)])
    }

    pub fn regex(pattern: impl Into<String>) -> Self {
        Self::AnyOf(vec![RuleKey::call("regex", pattern)])
    }

    /// The host alone, without the hosts below it.
    pub fn exact(host: impl Into<String>) -> Self {
        Self::AnyOf(vec![RuleKey::call("exact", host)])
    }

    pub fn subpath(path: impl Into<String>) -> Self {
        Self::AnyOf(vec![RuleKey::call("subpath", path)])
    }

    /// The path alone, without the paths below it.
    pub fn literal(path: impl Into<String>) -> Self {
        Self::AnyOf(vec![RuleKey::call("literal", path)])
    }

    pub fn mode(name: impl Into<String>) -> Self {
        Self::AnyOf(vec![RuleKey::call("mode", name)])
    }

    /// `end()`: no further word of a command.
    pub fn end() -> Self {
        Self::AnyOf(vec![RuleKey::Call { name: "end".to_owned(), arg: None }])
    }

    /// One of several names, which stay in one entry.
    pub fn names(names: &[&str]) -> Self {
        Self::AnyOf(names.iter().map(|name| RuleKey::str(*name)).collect())
    }

    /// The alternatives of all keys, each once. `Localhost` and `Rest` have none and are
    /// left out.
    pub fn any_of(keys: impl IntoIterator<Item = Self>) -> Self {
        let mut all: Vec<RuleKey> = Vec::new();
        for key in keys {
            let alternatives = match key {
                Self::AnyOf(alternatives) => alternatives,
                Self::Words(words) => words.into_iter().map(RuleKey::Str).collect(),
                Self::Localhost(_) | Self::Rest => continue,
            };
            for alternative in alternatives {
                if !all.contains(&alternative) {
                    all.push(alternative);
                }
            }
        }
        Self::AnyOf(all)
    }

    /// The only alternative, if it is a plain string.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::AnyOf(keys) => match keys.as_slice() {
                [RuleKey::Str(text)] => Some(text),
                _ => None,
            },
            Self::Words(words) => match words.as_slice() {
                [word] => Some(word),
                _ => None,
            },
            Self::Localhost(_) | Self::Rest => None,
        }
    }

    /// The key as a policy writes it. `rest` is the spelling of [`KeyDraft::Rest`] at
    /// this place.
    pub fn source(&self, rest: &str) -> String {
        let tuple = |items: Vec<String>| match items.as_slice() {
            [one] => one.clone(),
            several => format!("({})", several.join(", ")),
        };
        match self {
            Self::Words(words) => tuple(words.iter().map(|word| string_literal(word)).collect()),
            Self::AnyOf(keys) => tuple(keys.iter().map(ToString::to_string).collect()),
            Self::Localhost(ports) => localhost(ports),
            Self::Rest => rest.to_owned(),
        }
    }

    /// A long list of words as several keys, in as few lines as possible. Each key
    /// stands on one line with the `effect` behind it. If that takes too many lines, the
    /// key alone fills its line, and the formatter breaks the entry into four lines.
    pub(super) fn split_over_lines(&self, indent: usize, effect: &str) -> Vec<Self> {
        let Self::Words(words) = self else { return vec![self.clone()] };
        let beside = packed(words, MAX_LINE_COLUMNS.saturating_sub(indent + effect.len() + 3));
        let above = packed(words, MAX_LINE_COLUMNS.saturating_sub(indent + "(): ask(".len()));
        if beside.len() <= above.len() * 4 { beside } else { above }
    }
}

/// `localhost(ports = [80, 443])`
pub(super) fn localhost(ports: &[u16]) -> String {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    format!("localhost(ports = [{}])", ports.join(", "))
}

/// Words as tuples of at most `columns` columns. A longer word has a tuple of its own.
fn packed(words: &[String], columns: usize) -> Vec<KeyDraft> {
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut used = usize::MAX;
    for word in words {
        let width = word.chars().count() + 4;
        match lines.last_mut() {
            Some(line) if used.saturating_add(width) <= columns => {
                line.push(word.clone());
                used += width;
            }
            _ => {
                lines.push(vec![word.clone()]);
                used = width;
            }
        }
    }
    lines.into_iter().map(KeyDraft::Words).collect()
}
