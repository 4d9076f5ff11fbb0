//! Example actions that a path of keys matches, one for each alternative of its keys.

use std::path::PathBuf;

use clash_policy::path::PolicyPlaces;
use clash_policy::rule::{KeyPattern, KeySubject, MatchKey, ONLY_HOST};
use clash_policy::tool::{self, ToolKind};
use clash_policy::{
    Action, FileCaps, FileUse, HostPattern, HostUse, InputField, PathPattern, ToolInput,
};
use clash_shell::quoted_argument;

/// A name that no policy uses.
const UNUSED_NAME: &str = "zzqx";

/// The example actions that are kept after each key. Without a limit, the alternatives
/// of all keys would multiply.
const MAX_ALTERNATIVES: usize = 64;

/// The parts of an example action that the keys so far determine.
#[derive(Clone, Debug, Default)]
struct WitnessParts {
    tool: Option<String>,
    mode: Option<String>,
    agent: Option<String>,
    words: Vec<String>,
    host: Option<String>,
    path: Option<PathBuf>,
    fields: Vec<InputField>,
}

/// Actions that the keys match; `None` if this module cannot make up one, for example
/// for a regular expression.
pub(super) fn actions<'a>(
    keys: &[&MatchKey],
    places: &'a PolicyPlaces,
) -> Option<impl Iterator<Item = Action> + use<'a>> {
    let mut drafts = vec![WitnessParts::default()];
    for (at, key) in keys.iter().enumerate() {
        let last = at + 1 == keys.len();
        let mut next = Vec::new();
        for parts in &drafts {
            for pattern in &key.patterns {
                next.push(parts.clone().with(key.subject, pattern, last, places)?);
            }
        }
        next.truncate(MAX_ALTERNATIVES);
        drafts = next;
    }
    Some(drafts.into_iter().map(WitnessParts::action))
}

impl WitnessParts {
    /// Adds the part that one more key demands; `None` if this module cannot make one up.
    /// `last` says that no key follows.
    fn with(
        mut self,
        subject: KeySubject,
        pattern: &KeyPattern,
        last: bool,
        places: &PolicyPlaces,
    ) -> Option<Self> {
        match subject {
            KeySubject::Tool => self.tool = Some(text(pattern)?),
            KeySubject::Mode => self.mode = Some(text(pattern)?),
            KeySubject::Agent => self.agent = Some(text(pattern)?),
            // A key below `glob("**")` can match at several depths.
            KeySubject::Word | KeySubject::Option => match pattern {
                KeyPattern::Any if !last => return None,
                _ => self.words.push(text(pattern)?),
            },
            KeySubject::End => {}
            KeySubject::Host => self.host = Some(host(pattern)?),
            KeySubject::Path => self.path = Some(path(pattern, places)?),
            KeySubject::Field => {
                self.fields.push(InputField { name: text(pattern)?, values: Vec::new() });
            }
            KeySubject::Value => self.fields.last_mut()?.values.push(text(pattern)?),
        }
        Some(self)
    }

    /// The action with unused names for the parts that no key determines.
    fn action(self) -> Action {
        let tool = self.tool.unwrap_or_else(|| UNUSED_NAME.to_owned());
        let input = match tool::canonical(&tool).1 {
            ToolKind::Shell if self.words.is_empty() => ToolInput::Script(UNUSED_NAME.to_owned()),
            ToolKind::Shell => {
                let words = self.words.iter().map(|word| quoted_argument(word));
                ToolInput::Script(words.collect::<Vec<String>>().join(" "))
            }
            ToolKind::File => {
                let path = self.path.unwrap_or_else(|| PathBuf::from("/").join(UNUSED_NAME));
                let needs = match tool.as_str() {
                    "Read" | "Glob" | "Grep" | "LS" => FileCaps::READ,
                    _ => FileCaps::READ.union(FileCaps::WRITE),
                };
                ToolInput::Files(vec![FileUse { path, needs, caseless: false }])
            }
            ToolKind::Host => {
                let host = self.host.unwrap_or_else(|| format!("{UNUSED_NAME}.example"));
                ToolInput::Hosts(vec![HostUse { host, port: 443 }])
            }
            ToolKind::Other => ToolInput::Fields(self.fields),
        };
        let mode = self.mode.unwrap_or_else(|| UNUSED_NAME.to_owned());
        let agent = self.agent.unwrap_or_else(|| UNUSED_NAME.to_owned());
        Action { agent, tool, mode, input }
    }
}

/// A text that the pattern matches; `None` for regular expressions, paths and hosts.
fn text(pattern: &KeyPattern) -> Option<String> {
    match pattern {
        KeyPattern::Literal(text) => Some(text.clone()),
        KeyPattern::Glob(text) => Some(filled(text)),
        KeyPattern::Any => Some(UNUSED_NAME.to_owned()),
        KeyPattern::Regex(_) | KeyPattern::Path(_) | KeyPattern::Host(_) => None,
    }
}

/// A text that a glob matches.
fn filled(glob: &str) -> String {
    glob.replace("**", UNUSED_NAME).replace('*', UNUSED_NAME).replace('?', "q")
}

/// A host that the pattern matches; `None` for a regular expression.
fn host(pattern: &KeyPattern) -> Option<String> {
    match pattern {
        KeyPattern::Literal(name) => {
            let name = name.strip_prefix(ONLY_HOST).unwrap_or(name);
            Some(name.replace('*', UNUSED_NAME))
        }
        KeyPattern::Host(HostPattern::Localhost) => Some("localhost".to_owned()),
        KeyPattern::Host(HostPattern::Addresses { base, .. }) => Some(base.to_string()),
        KeyPattern::Host(HostPattern::Name(name) | HostPattern::Exact(name)) => {
            Some(name.replace('*', UNUSED_NAME))
        }
        KeyPattern::Any => Some(format!("{UNUSED_NAME}.example")),
        other => text(other),
    }
}

/// A path that the pattern matches in the imagined directories; `None` for a regular
/// expression or a pattern that is no path.
fn path(pattern: &KeyPattern, places: &PolicyPlaces) -> Option<PathBuf> {
    let pattern = match pattern {
        KeyPattern::Path(pattern) => pattern,
        KeyPattern::Any => return Some(PathBuf::from("/").join(UNUSED_NAME)),
        _ => return None,
    };
    let fixed = places.expand(pattern.fixed()).ok()?;
    match pattern {
        PathPattern::Literal(_) => Some(fixed),
        PathPattern::Subpath { .. } | PathPattern::Children(_) => Some(fixed.join(UNUSED_NAME)),
        PathPattern::Glob { pattern, .. } => Some(fixed.join(filled(pattern))),
        PathPattern::Regex { .. } => None,
    }
}
