//! The tree of keys and effects that `when()` and `policy()` take.

use clash_policy::HostPattern;
use clash_policy::rule::{KeyPattern, KeySubject, MatchBranch, MatchKey, MatchNode, ONLY_HOST};
use clash_policy::tool::{self, ToolKind};
use starlark::values::Value;
use starlark::values::dict::DictRef;

use super::fs::{path_pattern, string_pattern};
use super::net::host_pattern;
use super::{LoweringScope, alternatives, dict_entries, rule};
use crate::diagnostic::PolicyWarning;
use crate::language_error::{LanguageError, LanguageResult};
use crate::merge;
use crate::names;
use crate::value::{KeyValue, TextPattern};
use clash_policy::nearest::nearest;

/// The meaning of the keys at one depth of a tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyPosition {
    /// Tools, modes and agents.
    Top,
    /// Below `Bash`: the words of a command.
    Words,
    /// Below `WebFetch`: host names.
    Hosts,
    /// Below `Read`, `Write`, …: paths.
    Paths,
    /// Below any other tool: the fields of its input.
    Fields,
    /// Below a field: its values.
    Values,
    /// Below a host or a path: no further key can stand here.
    Nothing,
}

impl KeyPosition {
    /// The meaning of the keys below a tool of this kind.
    fn below(kind: ToolKind) -> Self {
        match kind {
            ToolKind::Shell => Self::Words,
            ToolKind::File => Self::Paths,
            ToolKind::Host => Self::Hosts,
            ToolKind::Other => Self::Fields,
        }
    }
}

/// The keys of one entry, outermost first, and the position below them.
struct KeyPath {
    keys: Vec<MatchKey>,
    below: KeyPosition,
}

impl KeyPath {
    /// A path of one key with one pattern.
    fn one(subject: KeySubject, pattern: KeyPattern, below: KeyPosition) -> Self {
        Self { keys: vec![MatchKey { subject, patterns: vec![pattern] }], below }
    }
}

/// Reads a whole tree. `default()` at its root is no rule but the policy's default.
pub(crate) fn tree(
    value: Value<'_>,
    scope: &LoweringScope<'_>,
) -> LanguageResult<Vec<MatchBranch>> {
    let mut out = Vec::new();
    for (key, then) in dict_entries(value, "a dict of keys and effects")? {
        let is_default = matches!(KeyValue::from_value(key), Some(KeyValue::Default));
        if is_default && DictRef::from_value(then).is_none() {
            scope.collected.fall_back_to(super::default_rule(then, scope)?);
        } else {
            entry(key, then, KeyPosition::Top, scope, &mut out)?;
        }
    }
    Ok(out)
}

/// Hosts in a list of rules are about the agent's own `WebFetch`. A `WebSearch` has no
/// host, so only the key for every host applies to it.
pub(super) fn host_rules(
    value: Value<'_>,
    scope: &LoweringScope<'_>,
) -> LanguageResult<Vec<MatchBranch>> {
    let mut hosts = Vec::new();
    let mut search = Vec::new();
    for (key, then) in dict_entries(value, "a dict of hosts and effects")? {
        if matches!(KeyValue::from_value(key), Some(KeyValue::Network)) {
            let rest = KeyPath::one(KeySubject::Host, KeyPattern::Any, KeyPosition::Nothing);
            hosts.push(nest(rest.keys, MatchNode::Rule(rule(then, scope)?))?);
            let tool = KeyPath::one(
                KeySubject::Tool,
                KeyPattern::Literal("WebSearch".to_owned()),
                KeyPosition::Nothing,
            );
            search.push(nest(tool.keys, MatchNode::Rule(rule(then, scope)?))?);
        } else {
            entry(key, then, KeyPosition::Hosts, scope, &mut hosts)?;
        }
    }
    let tool = KeyPath::one(
        KeySubject::Tool,
        KeyPattern::Literal("WebFetch".to_owned()),
        KeyPosition::Hosts,
    );
    search.insert(0, nest(tool.keys, MatchNode::Tree(hosts))?);
    Ok(search)
}

/// Reads a dict whose keys stand at a position.
fn branches(
    value: Value<'_>,
    at: KeyPosition,
    scope: &LoweringScope<'_>,
) -> LanguageResult<Vec<MatchBranch>> {
    let mut out = Vec::new();
    for (key, then) in dict_entries(value, "a dict of keys and effects")? {
        entry(key, then, at, scope, &mut out)?;
    }
    Ok(out)
}

/// Reads one key with its effect or dict, and merges it into `out`. An empty dict is an
/// error.
fn entry(
    key: Value<'_>,
    then: Value<'_>,
    at: KeyPosition,
    scope: &LoweringScope<'_>,
    out: &mut Vec<MatchBranch>,
) -> LanguageResult<()> {
    for KeyPath { keys, below } in paths(key, at, scope)? {
        let then = if let Some(dict) = DictRef::from_value(then) {
            if dict.iter().next().is_none() {
                return Err(LanguageError::new(format!(
                    "the dict below `{}` is empty",
                    key.to_str()
                ))
                .hint("give an effect, or keys and their effects")
                .near(key.to_str()));
            }
            MatchNode::Tree(branches(then, below, scope)?)
        } else {
            MatchNode::Rule(rule(then, scope)?)
        };
        let known = std::mem::take(out);
        let warn = |warning| scope.collected.warn(warning);
        *out = merge::branches(known, vec![nest(keys, then)?], &warn);
    }
    Ok(())
}

/// Wraps a node in its keys, the last key innermost. No key is an error.
fn nest(keys: Vec<MatchKey>, then: MatchNode) -> LanguageResult<MatchBranch> {
    let mut keys = keys.into_iter().rev();
    let last = keys.next().ok_or_else(|| LanguageError::new("a key is empty"))?;
    let inner = MatchBranch { key: last, then };
    Ok(keys.fold(inner, |below, key| MatchBranch { key, then: MatchNode::Tree(vec![below]) }))
}

/// The paths of one key. A string with spaces is several keys deep. A tuple of such
/// strings is several paths; a tuple of single words stays one key with alternatives.
fn paths(
    key: Value<'_>,
    at: KeyPosition,
    scope: &LoweringScope<'_>,
) -> LanguageResult<Vec<KeyPath>> {
    let mut together: Vec<KeyPath> = Vec::new();
    for alternative in alternatives(key)? {
        for path in path(alternative, at, scope)? {
            let alike = |known: &&mut KeyPath| match (known.keys.as_slice(), path.keys.as_slice()) {
                ([known_key], [key]) => {
                    known_key.subject == key.subject && known.below == path.below
                }
                _ => false,
            };
            match together.iter_mut().find(alike) {
                Some(known) => {
                    for (known, key) in known.keys.iter_mut().zip(path.keys) {
                        known.patterns.extend(key.patterns);
                    }
                }
                None => together.push(path),
            }
        }
    }
    Ok(together)
}

/// The paths of one key that is no tuple. `mode()` and `agent()` can stand anywhere; any
/// other key fails where it has no meaning.
fn path(
    key: Value<'_>,
    at: KeyPosition,
    scope: &LoweringScope<'_>,
) -> LanguageResult<Vec<KeyPath>> {
    if let Some(text) = key.unpack_str() {
        return string_path(text, at, scope).map(|path| vec![path]);
    }
    let Some(named) = KeyValue::from_value(key) else {
        return Err(LanguageError::new(format!("`{}` cannot be a key here", key.to_str()))
            .hint(
                "keys are strings, tuples of strings, tool(), mode(), agent(), glob(), regex(), \
                 default()",
            )
            .near(key.to_str()));
    };
    let one = |subject, pattern, below| Ok(vec![KeyPath::one(subject, pattern, below)]);
    match (named, at) {
        (KeyValue::Mode(name), _) => mode(name, at, scope),
        (KeyValue::Agent(name), _) => one(KeySubject::Agent, agent(name, scope), at),
        (KeyValue::Tool(names), KeyPosition::Top) => {
            names.iter().map(|name| tool_key(name, scope)).collect()
        }
        (KeyValue::Tool(_), _) => Err(LanguageError::new("tool() is a key of the root of a tree")),
        (KeyValue::Default, _) => one(rest_of(at)?, KeyPattern::Any, at),
        (KeyValue::Glob { pattern, .. }, _) if pattern == "**" => {
            one(rest_of(at)?, KeyPattern::Any, at)
        }
        (KeyValue::Glob { pattern, .. }, KeyPosition::Top) => {
            tool_key(&TextPattern::Glob(pattern.clone()), scope).map(|path| vec![path])
        }
        (KeyValue::Regex(pattern), KeyPosition::Top) => {
            tool_key(&TextPattern::Regex(pattern.clone()), scope).map(|path| vec![path])
        }
        (KeyValue::Literal(name), KeyPosition::Top) => {
            tool_key(&TextPattern::Literal(name.clone()), scope).map(|path| vec![path])
        }
        _ => path_below_tool(key, named, at),
    }
}

/// The path of a key below a tool: a word, a host, a file or a value. A key that has no
/// meaning there is an error.
fn path_below_tool(
    key: Value<'_>,
    named: &KeyValue,
    at: KeyPosition,
) -> LanguageResult<Vec<KeyPath>> {
    let one = |subject, pattern, below| Ok(vec![KeyPath::one(subject, pattern, below)]);
    match (named, at) {
        (KeyValue::End, KeyPosition::Words) => {
            one(KeySubject::End, KeyPattern::Literal(String::new()), KeyPosition::Nothing)
        }
        (KeyValue::Glob { pattern, .. }, KeyPosition::Words) => {
            one(word_subject(pattern), wildcard(pattern)?, at)
        }
        (KeyValue::Regex(pattern), KeyPosition::Words) => {
            one(word_subject(pattern), KeyPattern::Regex(crate::regex::compile(pattern)?), at)
        }
        (KeyValue::Literal(text), KeyPosition::Words) => {
            one(word_subject(text), KeyPattern::Literal(text.clone()), at)
        }
        (KeyValue::Domain(name), KeyPosition::Hosts) => {
            one(KeySubject::Host, host(name, false)?, KeyPosition::Nothing)
        }
        (KeyValue::Exact(name) | KeyValue::Literal(name), KeyPosition::Hosts) => {
            one(KeySubject::Host, host(name, true)?, KeyPosition::Nothing)
        }
        (KeyValue::Glob { pattern, .. }, KeyPosition::Hosts) => {
            one(KeySubject::Host, wildcard(&pattern.to_ascii_lowercase())?, KeyPosition::Nothing)
        }
        (KeyValue::Regex(pattern), KeyPosition::Hosts) => one(
            KeySubject::Host,
            KeyPattern::Regex(crate::regex::compile(pattern)?),
            KeyPosition::Nothing,
        ),
        (KeyValue::Localhost(ports), KeyPosition::Hosts) if ports.is_empty() => {
            one(KeySubject::Host, KeyPattern::Host(HostPattern::Localhost), KeyPosition::Nothing)
        }
        (
            KeyValue::Subpath { .. }
            | KeyValue::Literal(_)
            | KeyValue::Glob { .. }
            | KeyValue::Regex(_),
            KeyPosition::Paths,
        ) => one(KeySubject::Path, KeyPattern::Path(path_pattern(key, "")?), KeyPosition::Nothing),
        (KeyValue::Glob { pattern, .. }, KeyPosition::Values) => {
            one(KeySubject::Value, wildcard(pattern)?, KeyPosition::Fields)
        }
        (KeyValue::Regex(pattern), KeyPosition::Values) => one(
            KeySubject::Value,
            KeyPattern::Regex(crate::regex::compile(pattern)?),
            KeyPosition::Fields,
        ),
        (KeyValue::Literal(text), KeyPosition::Values) => {
            one(KeySubject::Value, KeyPattern::Literal(text.clone()), KeyPosition::Fields)
        }
        (key, _) => Err(misplaced(&key.to_string(), at)),
    }
}

/// The subject of `default()` and `glob("**")` at a position; an error where no key can
/// stand.
fn rest_of(at: KeyPosition) -> LanguageResult<KeySubject> {
    match at {
        KeyPosition::Top => Ok(KeySubject::Tool),
        KeyPosition::Words => Ok(KeySubject::Word),
        KeyPosition::Hosts => Ok(KeySubject::Host),
        KeyPosition::Paths => Ok(KeySubject::Path),
        KeyPosition::Fields => Ok(KeySubject::Field),
        KeyPosition::Values => Ok(KeySubject::Value),
        KeyPosition::Nothing => {
            Err(LanguageError::new("no further key can stand here: give an effect"))
        }
    }
}

/// The error for a key where it has no meaning, with a hint about the keys that have one.
fn misplaced(key: &str, at: KeyPosition) -> LanguageError {
    let hint = match at {
        KeyPosition::Top => "keys at the root of a tree are tools, mode() and agent()",
        KeyPosition::Words => {
            "keys below Bash are words of commands: strings, glob(), regex(), end()"
        }
        KeyPosition::Hosts => {
            "keys below WebFetch are hosts: strings, exact(), domain(), localhost()"
        }
        KeyPosition::Paths => {
            "keys below a file tool are paths: strings, subpath(), literal(), glob()"
        }
        KeyPosition::Fields => "keys below this tool are the names of the fields of its input",
        KeyPosition::Values => "keys below a field are its values: strings, glob(), regex()",
        KeyPosition::Nothing => "no further key can stand here: give an effect",
    };
    LanguageError::new(format!("`{key}` cannot be a key here")).hint(hint).near(key)
}

/// The path of a plain string. An empty one is an error, except as the value of a field.
fn string_path(text: &str, at: KeyPosition, scope: &LoweringScope<'_>) -> LanguageResult<KeyPath> {
    let one = |subject, pattern, below| Ok(KeyPath::one(subject, pattern, below));
    if text.trim().is_empty() && at != KeyPosition::Values {
        return Err(LanguageError::new("a key is empty"));
    }
    match at {
        KeyPosition::Top => tool_key(&TextPattern::Literal(text.to_owned()), scope),
        KeyPosition::Words => words(text),
        KeyPosition::Hosts => one(KeySubject::Host, host(text, false)?, KeyPosition::Nothing),
        KeyPosition::Paths => {
            one(KeySubject::Path, KeyPattern::Path(string_pattern(text, "")?), KeyPosition::Nothing)
        }
        KeyPosition::Fields => {
            one(KeySubject::Field, KeyPattern::Literal(text.to_owned()), KeyPosition::Values)
        }
        KeyPosition::Values => one(KeySubject::Value, wildcard(text)?, KeyPosition::Fields),
        KeyPosition::Nothing => Err(misplaced(text, at)),
    }
}

/// A key of several words, each one level deeper. An operator of the shell, and a program
/// with a directory and without a `*`, are errors.
fn words(text: &str) -> LanguageResult<KeyPath> {
    let mut keys = Vec::new();
    for (at, word) in text.split_whitespace().enumerate() {
        if let Some(operator) = ["&&", "||", ";", "|", "&", ">", "<"].iter().find(|o| **o == word) {
            return Err(LanguageError::new(format!("`{operator}` in `{text}` joins commands"))
                .hint(
                    "a key matches one command; clash decides each command of a script on its own",
                )
                .near(text));
        }
        if at == 0 && word.contains('/') && !word.contains('*') {
            let name = word.rsplit('/').next().unwrap_or(word);
            return Err(LanguageError::new(format!("`{word}` can match no command"))
                .hint(format!("a program is matched by its name: \"{name}\""))
                .near(text));
        }
        let pattern = match word {
            "**" => KeyPattern::Any,
            _ => wildcard(word)?,
        };
        keys.push(MatchKey { subject: word_subject(word), patterns: vec![pattern] });
    }
    Ok(KeyPath { keys, below: KeyPosition::Words })
}

/// An option if the word begins with `-` and is longer; otherwise a word.
fn word_subject(word: &str) -> KeySubject {
    if word.starts_with('-') && word.len() > 1 { KeySubject::Option } else { KeySubject::Word }
}

/// A glob if the text contains `*` or `?`, otherwise a literal. `**` within a text is an
/// error.
fn wildcard(text: &str) -> LanguageResult<KeyPattern> {
    if text.contains("**") {
        return Err(LanguageError::new(format!("`{text}` contains `**`, which must stand alone"))
            .hint("use `*` within a word, or glob(\"**\") for all remaining words")
            .near(text));
    }
    Ok(if text.contains(['*', '?']) {
        KeyPattern::Glob(text.to_owned())
    } else {
        KeyPattern::Literal(text.to_owned())
    })
}

/// The pattern of a host below `WebFetch`. `only` leaves out its subdomains. A port is an
/// error.
fn host(name: &str, only: bool) -> LanguageResult<KeyPattern> {
    if name.contains(':') && !name.starts_with('[') && !name.contains("://") {
        return Err(LanguageError::new(format!("`{name}` names a port"))
            .hint("a rule for WebFetch matches the host; ports belong to net = {…}")
            .near(name));
    }
    Ok(match host_pattern(name, name)? {
        HostPattern::Name(name) if only => KeyPattern::Literal(format!("{ONLY_HOST}{name}")),
        HostPattern::Name(name) => KeyPattern::Literal(name),
        other => KeyPattern::Host(other),
    })
}

/// The key of a tool by its canonical name, and the position below it: nothing below any
/// tool, fields below a pattern. A name near a known one gets a warning; a name with spaces
/// is an error.
fn tool_key(name: &TextPattern, scope: &LoweringScope<'_>) -> LanguageResult<KeyPath> {
    let one = |pattern, below| Ok(KeyPath::one(KeySubject::Tool, pattern, below));
    match name {
        TextPattern::Any => one(KeyPattern::Any, KeyPosition::Nothing),
        TextPattern::Glob(pattern) if pattern == "*" => one(KeyPattern::Any, KeyPosition::Nothing),
        TextPattern::Glob(pattern) => one(wildcard(pattern)?, KeyPosition::Fields),
        TextPattern::Regex(pattern) => {
            one(KeyPattern::Regex(crate::regex::compile(pattern)?), KeyPosition::Fields)
        }
        TextPattern::Literal(text) if text.contains(['*', '?']) => {
            one(wildcard(text)?, KeyPosition::Fields)
        }
        TextPattern::Literal(text) => {
            if text.contains(char::is_whitespace) {
                return Err(LanguageError::new(format!("`{text}` is no tool"))
                    .hint(format!("a command stands below Bash: {{\"Bash\": {{\"{text}\": …}}}}"))
                    .near(text));
            }
            let (name, kind) = tool::canonical(text);
            // The name of an MCP server's tool is no misspelling of ours.
            if kind == ToolKind::Other
                && !text.starts_with("mcp__")
                && let Some(near) = nearest(text, tool::known())
            {
                let message = format!("`{text}` is a tool clash does not know");
                scope.collected.warn(
                    PolicyWarning::new("unknown-tool", message, scope.span)
                        .hint(format!("did you mean `{near}`?")),
                );
            }
            one(KeyPattern::Literal(name.to_owned()), KeyPosition::below(kind))
        }
    }
}

/// The key of a mode; an unknown mode gets a warning.
fn mode(name: &str, at: KeyPosition, scope: &LoweringScope<'_>) -> LanguageResult<Vec<KeyPath>> {
    if !names::known_modes().any(|known| known == name) {
        let warning = PolicyWarning::new(
            "unknown-mode",
            format!("no agent that clash knows has a mode `{name}`"),
            scope.span,
        );
        scope.collected.warn(match nearest(name, names::known_modes()) {
            Some(near) => warning.hint(format!("did you mean `{near}`?")),
            None => warning,
        });
    }
    let patterns = names::modes(name).into_iter().map(|name| KeyPattern::Literal(name.to_owned()));
    let key = MatchKey { subject: KeySubject::Mode, patterns: patterns.collect() };
    Ok(vec![KeyPath { keys: vec![key], below: at }])
}

/// The pattern of an agent's name; an unknown name gets a warning.
fn agent(name: &str, scope: &LoweringScope<'_>) -> KeyPattern {
    if !names::AGENT_NAMES.contains(&name) {
        let warning = PolicyWarning::new(
            "unknown-agent",
            format!("clash knows no agent `{name}`"),
            scope.span,
        );
        scope.collected.warn(match nearest(name, names::AGENT_NAMES.iter().copied()) {
            Some(near) => warning.hint(format!("did you mean `{near}`?")),
            None => warning.hint(format!("known are {}", names::AGENT_NAMES.join(", "))),
        });
    }
    KeyPattern::Literal(name.to_owned())
}
