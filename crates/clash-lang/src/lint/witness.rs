//! An action that a path of keys is about, for each alternative of its keys.

use std::path::PathBuf;

use clash_policy::path::Places;
use clash_policy::rule::{Key, ONLY_HOST, Pattern, Subject};
use clash_policy::tool::{self, Kind};
use clash_policy::{Action, Caps, Field, FileUse, HostPattern, HostUse, Input, PathPattern};

/// A name nobody has a rule for.
const UNUSED_NAME: &str = "zzqx";

/// The alternatives tried per key; more would multiply.
const MAX_ALTERNATIVES: usize = 64;

#[derive(Clone, Debug, Default)]
struct WitnessParts {
    tool: Option<String>,
    mode: Option<String>,
    agent: Option<String>,
    words: Vec<String>,
    host: Option<String>,
    path: Option<PathBuf>,
    fields: Vec<Field>,
}

/// Actions that the keys match, or `None` if none can be made up.
pub(super) fn actions<'a>(
    keys: &[&Key],
    places: &'a Places,
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
    fn with(
        mut self,
        subject: Subject,
        pattern: &Pattern,
        last: bool,
        places: &Places,
    ) -> Option<Self> {
        match subject {
            Subject::Tool => self.tool = Some(text(pattern)?),
            Subject::Mode => self.mode = Some(text(pattern)?),
            Subject::Agent => self.agent = Some(text(pattern)?),
            // What stands below whatever-is-there is matched in more ways than one.
            Subject::Word | Subject::Option => match pattern {
                Pattern::Any if !last => return None,
                _ => self.words.push(text(pattern)?),
            },
            Subject::End => {}
            Subject::Host => self.host = Some(host(pattern)?),
            Subject::Path => self.path = Some(path(pattern, places)?),
            Subject::Field => {
                self.fields.push(Field { name: text(pattern)?, values: Vec::new() });
            }
            Subject::Value => self.fields.last_mut()?.values.push(text(pattern)?),
        }
        Some(self)
    }

    fn action(self) -> Action {
        let tool = self.tool.unwrap_or_else(|| UNUSED_NAME.to_owned());
        let input = match tool::canonical(&tool).1 {
            Kind::Shell if self.words.is_empty() => Input::Script(UNUSED_NAME.to_owned()),
            Kind::Shell => {
                let words: Vec<String> = self.words.iter().map(|word| quoted(word)).collect();
                Input::Script(words.join(" "))
            }
            Kind::File => {
                let path = self.path.unwrap_or_else(|| PathBuf::from("/").join(UNUSED_NAME));
                let needs = match tool.as_str() {
                    "Read" | "Glob" | "Grep" | "LS" => Caps::READ,
                    _ => Caps::READ.union(Caps::WRITE),
                };
                Input::Files(vec![FileUse { path, needs, caseless: false }])
            }
            Kind::Host => {
                let host = self.host.unwrap_or_else(|| format!("{UNUSED_NAME}.example"));
                Input::Hosts(vec![HostUse { host, port: 443 }])
            }
            Kind::Other => Input::Fields(self.fields),
        };
        let mode = self.mode.unwrap_or_else(|| UNUSED_NAME.to_owned());
        let agent = self.agent.unwrap_or_else(|| UNUSED_NAME.to_owned());
        Action { agent, tool, mode, input }
    }
}

fn text(pattern: &Pattern) -> Option<String> {
    match pattern {
        Pattern::Literal(text) => Some(text.clone()),
        Pattern::Glob(text) => Some(filled(text)),
        Pattern::Any => Some(UNUSED_NAME.to_owned()),
        Pattern::Regex(_) | Pattern::Path(_) | Pattern::Host(_) => None,
    }
}

/// A text that a glob matches.
fn filled(glob: &str) -> String {
    glob.replace("**", UNUSED_NAME).replace('*', UNUSED_NAME).replace('?', "q")
}

fn host(pattern: &Pattern) -> Option<String> {
    match pattern {
        Pattern::Literal(name) => {
            let name = name.strip_prefix(ONLY_HOST).unwrap_or(name);
            Some(name.replace('*', UNUSED_NAME))
        }
        Pattern::Host(HostPattern::Localhost) => Some("localhost".to_owned()),
        Pattern::Host(HostPattern::Addresses { base, .. }) => Some(base.to_string()),
        Pattern::Host(HostPattern::Name(name) | HostPattern::Exact(name)) => {
            Some(name.replace('*', UNUSED_NAME))
        }
        Pattern::Any => Some(format!("{UNUSED_NAME}.example")),
        other => text(other),
    }
}

fn path(pattern: &Pattern, places: &Places) -> Option<PathBuf> {
    let pattern = match pattern {
        Pattern::Path(pattern) => pattern,
        Pattern::Any => return Some(PathBuf::from("/").join(UNUSED_NAME)),
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

/// A word as the shell would have to read it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
