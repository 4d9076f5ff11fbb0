//! The builders of keys, for example `tool("Read")` or `glob("*.rs")`.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::list::ListRef;
use starlark::values::none::NoneOr;
use starlark::values::tuple::TupleRef;

use crate::language_error::{LanguageError, LanguageResult};
use crate::lower::port;
use crate::value::{KeyValue, TextPattern};

/// The texts of one name or pattern, or of a tuple or list of them; any text for `None`. An
/// empty tuple or list is an error.
pub(crate) fn texts(value: Value<'_>) -> LanguageResult<Vec<TextPattern>> {
    if value.is_none() {
        return Ok(vec![TextPattern::Any]);
    }
    let several: Option<Vec<Value<'_>>> = TupleRef::from_value(value)
        .map(|tuple| tuple.iter().collect())
        .or_else(|| ListRef::from_value(value).map(|list| list.iter().collect()));
    let one = |value: Value<'_>| match (value.unpack_str(), KeyValue::from_value(value)) {
        (Some(name), _) => Ok(TextPattern::Literal(name.to_owned())),
        (_, Some(KeyValue::Glob { pattern, .. })) => Ok(TextPattern::Glob(pattern.clone())),
        (_, Some(KeyValue::Regex(pattern))) => Ok(TextPattern::Regex(pattern.clone())),
        _ => Err(LanguageError::new(format!(
            "expected a name or a pattern, found {} `{}`",
            value.get_type(),
            value.to_str()
        ))),
    };
    match several {
        Some(several) if several.is_empty() => Err(LanguageError::new("no name is given")),
        Some(several) => several.into_iter().map(one).collect(),
        None => Ok(vec![one(value)?]),
    }
}

/// The ports of `localhost()`: one port, several, or an empty list for all.
fn ports(value: NoneOr<Value<'_>>) -> LanguageResult<Vec<u16>> {
    let NoneOr::Other(value) = value else { return Ok(Vec::new()) };
    match ListRef::from_value(value) {
        Some(list) => list.iter().map(port).collect(),
        None => match TupleRef::from_value(value) {
            Some(tuple) => tuple.iter().map(port).collect(),
            None => Ok(vec![port(value)?]),
        },
    }
}

/// The key of a mode, known or not.
fn mode_key(name: &str) -> KeyValue {
    KeyValue::Mode(name.to_owned())
}

/// The key of `tool()`; without a name it matches any tool.
fn tool_key(name: NoneOr<Value<'_>>) -> LanguageResult<KeyValue> {
    Ok(KeyValue::Tool(match name {
        NoneOr::None => vec![TextPattern::Any],
        NoneOr::Other(value) => texts(value)?,
    }))
}

/// Registers the builders of keys as globals of every policy. Each checks its arguments,
/// returns a `KeyValue` and records nothing.
#[starlark_module]
pub(super) fn names(builder: &mut GlobalsBuilder) {
    /// A tool by its name, by several names or by a pattern; without a name any
    /// tool. At the root of a tree a plain string means the same.
    fn tool<'v>(
        #[starlark(default = NoneOr::None)] name: NoneOr<Value<'v>>,
    ) -> starlark::Result<KeyValue> {
        Ok(tool_key(name)?)
    }

    /// Another word for `tool()`.
    fn Tool<'v>(
        #[starlark(default = NoneOr::None)] name: NoneOr<Value<'v>>,
    ) -> starlark::Result<KeyValue> {
        Ok(tool_key(name)?)
    }

    /// A permission mode of the agent, for example `plan`.
    fn mode(name: &str) -> starlark::Result<KeyValue> {
        Ok(mode_key(name))
    }

    /// Another word for `mode()`.
    fn Mode(name: &str) -> starlark::Result<KeyValue> {
        Ok(mode_key(name))
    }

    /// An agent by its name, for example `claude` or `codex`.
    fn agent(name: &str) -> starlark::Result<KeyValue> {
        Ok(KeyValue::Agent(name.to_owned()))
    }

    /// Everything that no other key matches.
    fn default() -> starlark::Result<KeyValue> {
        Ok(KeyValue::Default)
    }

    /// The end of a command: no further word follows.
    fn end() -> starlark::Result<KeyValue> {
        Ok(KeyValue::End)
    }

    /// A pattern. Among words, `*` is any part of one word and `glob("**")` is
    /// all remaining words. In a path, `*` is any part of one name and `**` is any
    /// number of directories. It also matches files created later.
    fn glob(
        pattern: &str,
        #[starlark(require = named, default = false)] follow_worktrees: bool,
        #[starlark(require = named, default = false)] worktree: bool,
    ) -> starlark::Result<KeyValue> {
        let follow_worktrees = follow_worktrees || worktree;
        Ok(KeyValue::Glob { pattern: pattern.to_owned(), follow_worktrees })
    }

    /// A regular expression that must match the whole word, or the whole rest of
    /// the path.
    fn regex(pattern: &str) -> starlark::Result<KeyValue> {
        crate::regex::compile(pattern)?;
        Ok(KeyValue::Regex(pattern.to_owned()))
    }

    /// Exactly this word or path: `*` and `?` are plain characters.
    fn literal(text: &str) -> starlark::Result<KeyValue> {
        Ok(KeyValue::Literal(text.to_owned()))
    }

    /// A path and everything below it. `follow_worktrees` adds the directories
    /// that git keeps elsewhere for a linked worktree.
    fn subpath(
        path: &str,
        #[starlark(require = named, default = false)] follow_worktrees: bool,
    ) -> starlark::Result<KeyValue> {
        Ok(KeyValue::Subpath { path: path.to_owned(), follow_worktrees })
    }

    /// A path and everything below it, like a plain string. `env` names a
    /// variable instead: `path(env = "CARGO_HOME")` is `path("$CARGO_HOME")`.
    fn path<'v>(
        #[starlark(default = NoneOr::None)] path: NoneOr<&'v str>,
        #[starlark(require = named, default = false)] worktree: bool,
        #[starlark(require = named, default = NoneOr::None)] env: NoneOr<&'v str>,
    ) -> starlark::Result<KeyValue> {
        let path = match (path, env) {
            (NoneOr::Other(path), NoneOr::None) => path.to_owned(),
            (NoneOr::None, NoneOr::Other(name)) => format!("${name}"),
            _ => {
                return Err(
                    LanguageError::new("path() takes a path, or env = and a variable").into()
                );
            }
        };
        Ok(KeyValue::Subpath { path, follow_worktrees: worktree })
    }

    /// A host and its subdomains.
    fn domain(name: &str) -> starlark::Result<KeyValue> {
        Ok(KeyValue::Domain(name.to_owned()))
    }

    /// This host and none of its subdomains.
    fn exact(host: &str) -> starlark::Result<KeyValue> {
        Ok(KeyValue::Exact(host.to_owned()))
    }

    /// This machine, on the given ports or on any.
    fn localhost<'v>(
        #[starlark(default = NoneOr::None)] ports: NoneOr<Value<'v>>,
    ) -> starlark::Result<KeyValue> {
        Ok(KeyValue::Localhost(self::ports(ports)?))
    }

    /// Inside the tree form of a sandbox: every host that no other key matches.
    fn network() -> starlark::Result<KeyValue> {
        Ok(KeyValue::Network)
    }
}
