//! From Starlark values to rules: which key means what in which place.

use std::sync::Arc;

use clash_policy::rule::{Branch, Key, Node, Pattern, Rule, Subject};
use clash_policy::{Caps, Effect, FsRule, Net, PathPattern, Sandbox, Span};
use starlark::values::Value;
use starlark::values::dict::DictRef;
use starlark::values::tuple::TupleRef;

use crate::value::{EffectValue, KeyValue, SandboxValue};

/// Something a person wrote that cannot mean anything here.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Mistake {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// Where it is, when that is known better than by the running call.
    pub(crate) span: Option<Span>,
}

impl Mistake {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, span: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn at(mut self, span: &Span) -> Self {
        self.span = Some(span.clone());
        self
    }
}

impl From<Mistake> for starlark::Error {
    fn from(mistake: Mistake) -> Self {
        Self::new_other(mistake)
    }
}

type Result<T> = std::result::Result<T, Mistake>;

/// An effect, called (`allow()`) or as the bare name (`allow`).
pub(crate) fn effect(value: Value<'_>, place: &Span) -> Result<EffectValue> {
    if let Some(effect) = EffectValue::from_value(value) {
        return Ok(effect.clone());
    }
    let effect = match value.to_str().as_str() {
        "allow" => Effect::Allow,
        "ask" => Effect::Ask,
        "deny" => Effect::Deny,
        _ => return Err(not_an_effect(value)),
    };
    if value.get_type() == "function" {
        let span = place.clone();
        return Ok(EffectValue { effect, caps: None, sandbox: None, reason: None, span });
    }
    Err(not_an_effect(value))
}

fn not_an_effect(value: Value<'_>) -> Mistake {
    Mistake::new(format!("expected an effect, found {} `{}`", value.get_type(), value.to_str()))
        .hint("an effect is allow(…), deny(…) or ask(…)")
}

pub(crate) fn sandbox_arg(value: Value<'_>) -> Result<Arc<Sandbox>> {
    SandboxValue::from_value(value).map(|sandbox| sandbox.0.clone()).ok_or_else(|| {
        let mistake =
            Mistake::new(format!("expected a sandbox, found {} `{}`", value.get_type(), value.to_str()));
        match value.unpack_str() {
            Some(name) => mistake.hint(format!(
                "without quotes, after load(\"@clash//sandboxes.star\", \"{name}\") or {name} = sandbox(…)"
            )),
            None => mistake,
        }
    })
}

pub(crate) fn net(value: Value<'_>, place: &Span) -> Result<Net> {
    let value = effect(value, place).map_err(|_| {
        Mistake::new(format!("expected net = allow() or net = deny(), found `{}`", value.to_str()))
            .hint("rules for single hosts cannot be enforced by this version, so they cannot be written")
    })?;
    match value.effect {
        Effect::Allow => Ok(Net::Allow),
        Effect::Deny => Ok(Net::Deny),
        Effect::Ask => Err(Mistake::new("net = ask() cannot be enforced by this version")
            .at(&value.span)
            .hint("use net = deny(), or ask() for the command: ask(sandbox = …)")),
    }
}

/// What the keys of a tree are compared with at one depth.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Tools, modes and agents.
    Top,
    /// Below `Bash`: the words of a command.
    Words,
    /// Below `WebFetch`: host names.
    Hosts,
    /// Below a tool whose input has nothing to compare yet.
    Nothing,
}

impl Place {
    fn below_tool(name: &str) -> Self {
        match name {
            "Bash" => Self::Words,
            "WebFetch" => Self::Hosts,
            _ => Self::Nothing,
        }
    }
}

/// The tree given to `when()`.
pub(crate) fn tree(value: Value<'_>, place: &Span) -> Result<Vec<Branch>> {
    branches(value, Place::Top, place)
}

fn dict_entries<'v>(value: Value<'v>, what: &str) -> Result<Vec<(Value<'v>, Value<'v>)>> {
    let dict = DictRef::from_value(value).ok_or_else(|| {
        Mistake::new(format!("expected {what}, found {} `{}`", value.get_type(), value.to_str()))
    })?;
    Ok(dict.iter().collect())
}

fn branches(value: Value<'_>, at: Place, place: &Span) -> Result<Vec<Branch>> {
    let mut out = Vec::new();
    for (key, then) in dict_entries(value, "a dict of keys and effects")? {
        for (path, below) in paths(key, at)? {
            let then = node(then, below, place)?;
            out = crate::merge::branches(out, vec![nest(path, then)?]);
        }
    }
    Ok(out)
}

/// Wraps a node in its keys, innermost last.
fn nest(path: Vec<Key>, then: Node) -> Result<Branch> {
    let mut keys = path.into_iter().rev();
    let last = keys.next().ok_or_else(|| Mistake::new("a key is empty"))?;
    let inner = Branch { key: last, then };
    Ok(keys.fold(inner, |below, key| Branch { key, then: Node::Tree(vec![below]) }))
}

fn node(value: Value<'_>, at: Place, place: &Span) -> Result<Node> {
    if DictRef::from_value(value).is_some() {
        return branches(value, at, place).map(Node::Tree);
    }
    let effect = effect(value, place)?;
    if effect.caps.is_some() {
        return Err(Mistake::new(
            "capabilities belong to the file rules of a sandbox, not to a rule",
        )
        .at(&effect.span)
        .hint("write allow(sandbox = …) here and allow(\"rx\") inside sandbox(fs = {…})"));
    }
    Ok(Node::Rule(Rule {
        effect: effect.effect,
        sandbox: effect.sandbox.map(|sandbox| sandbox.name.clone()),
        reason: effect.reason,
        span: effect.span,
    }))
}

/// The keys one entry stands for: a string with spaces is several keys deep,
/// and a tuple of such strings is several entries.
fn paths(key: Value<'_>, at: Place) -> Result<Vec<(Vec<Key>, Place)>> {
    let Some(tuple) = TupleRef::from_value(key) else {
        let (path, below) = path(key, at)?;
        return Ok(vec![(path, below)]);
    };
    let mut together: Vec<(Key, Place)> = Vec::new();
    let mut out = Vec::new();
    for alternative in tuple.iter() {
        let (mut path, below) = path(alternative, at)?;
        let single = if path.len() == 1 { path.pop() } else { None };
        let Some(single) = single else {
            out.push((path, below));
            continue;
        };
        match together
            .iter_mut()
            .find(|(key, place)| key.subject == single.subject && *place == below)
        {
            Some((key, _)) => key.patterns.extend(single.patterns),
            None => together.push((single, below)),
        }
    }
    out.extend(together.into_iter().map(|(key, below)| (vec![key], below)));
    if out.is_empty() {
        return Err(Mistake::new("an empty tuple matches nothing"));
    }
    Ok(out)
}

fn one(subject: Subject, pattern: Pattern) -> Key {
    Key { subject, patterns: vec![pattern] }
}

fn path(key: Value<'_>, at: Place) -> Result<(Vec<Key>, Place)> {
    if let Some(text) = key.unpack_str() {
        return string_path(text, at);
    }
    let Some(key) = KeyValue::from_value(key) else {
        return Err(Mistake::new(format!("`{}` cannot be a key here", key.to_str())).hint(
            "keys are strings, tuples of strings, tool(), mode(), agent(), glob(), default()",
        ));
    };
    let named = |subject, name: &str| (vec![one(subject, wildcard(name))], Place::Top);
    match (key, at) {
        (KeyValue::Tool(name), Place::Top) => {
            Ok((vec![one(Subject::Tool, wildcard(name))], Place::below_tool(name)))
        }
        (KeyValue::Mode(name), Place::Top) => Ok(named(Subject::Mode, name)),
        (KeyValue::Agent(name), Place::Top) => Ok(named(Subject::Agent, name)),
        (KeyValue::Default, Place::Top) => {
            Ok((vec![one(Subject::Tool, Pattern::Any)], Place::Nothing))
        }
        (KeyValue::Glob(pattern), Place::Top) => {
            Ok((vec![one(Subject::Tool, wildcard(pattern))], Place::Nothing))
        }
        (KeyValue::Default, Place::Words) => Ok((vec![one(Subject::Word, Pattern::Any)], at)),
        (KeyValue::Glob(pattern), Place::Words) => {
            Ok((vec![one(Subject::Word, wildcard(pattern))], at))
        }
        (KeyValue::Literal(text), Place::Words) => {
            Ok((vec![one(word_subject(text), Pattern::Literal(text.clone()))], at))
        }
        (KeyValue::Default, Place::Hosts) => Ok((vec![one(Subject::Host, Pattern::Any)], at)),
        (KeyValue::Glob(pattern), Place::Hosts) if pattern == "**" => {
            Ok((vec![one(Subject::Host, Pattern::Any)], at))
        }
        _ => Err(Mistake::new(format!("`{}` cannot be a key here", key.shown()))),
    }
}

fn string_path(text: &str, at: Place) -> Result<(Vec<Key>, Place)> {
    if text.trim().is_empty() {
        return Err(Mistake::new("a key is empty"));
    }
    match at {
        Place::Top => Ok((vec![one(Subject::Tool, wildcard(text))], Place::below_tool(text))),
        Place::Words => {
            let keys = text.split_whitespace().map(|word| {
                let pattern = match word {
                    "*" | "**" => Pattern::Any,
                    _ => Pattern::Literal(word.to_owned()),
                };
                one(word_subject(word), pattern)
            });
            Ok((keys.collect(), at))
        }
        Place::Hosts => {
            let host = text.trim_end_matches('.').to_ascii_lowercase();
            let wild = host.strip_prefix("*.").unwrap_or(&host);
            if wild.contains(['*', '/', ':', ' ']) {
                return Err(Mistake::new(format!("`{text}` is not a host name"))
                    .hint("write \"github.com\" for a name and its subdomains, \"*.github.com\" for only those"));
            }
            Ok((vec![one(Subject::Host, Pattern::Literal(host))], at))
        }
        Place::Nothing => Err(Mistake::new(format!("nothing can be matched below this tool (`{text}`)"))
            .hint("give the tool an effect; a sandbox's file rules judge the path of Read, Write and Edit")),
    }
}

fn word_subject(word: &str) -> Subject {
    if word.starts_with('-') && word.len() > 1 { Subject::Option } else { Subject::Word }
}

fn wildcard(text: &str) -> Pattern {
    match text {
        "*" | "**" => Pattern::Any,
        _ if text.contains(['*', '?']) => Pattern::Glob(text.to_owned()),
        _ => Pattern::Literal(text.to_owned()),
    }
}

/// The `fs` of a sandbox.
pub(crate) fn fs_rules(value: Value<'_>, place: &Span) -> Result<Vec<FsRule>> {
    let mut rules = Vec::new();
    fs_below(value, "", place, &mut rules)?;
    Ok(rules)
}

fn fs_below(value: Value<'_>, base: &str, place: &Span, rules: &mut Vec<FsRule>) -> Result<()> {
    for (key, then) in dict_entries(value, "a dict of paths and effects")? {
        let keys: Vec<Value<'_>> = match TupleRef::from_value(key) {
            Some(tuple) => tuple.iter().collect(),
            None => vec![key],
        };
        for key in keys {
            if DictRef::from_value(then).is_some() {
                let inner = key.unpack_str().ok_or_else(|| {
                    Mistake::new(format!("`{}` cannot have paths below it", key.to_str()))
                        .hint("only a plain path can: \"$HOME\": {…}")
                })?;
                fs_below(then, &join(base, inner)?, place, rules)?;
                continue;
            }
            let effect = effect(then, place)?;
            if effect.sandbox.is_some() {
                return Err(Mistake::new("a file rule has no sandbox of its own").at(&effect.span));
            }
            let caps = effect.caps.unwrap_or(Caps::ALL);
            let pattern = path_pattern(key, base)?;
            rules.push(FsRule { pattern, effect: effect.effect, caps, span: effect.span });
        }
    }
    Ok(())
}

fn join(base: &str, path: &str) -> Result<String> {
    let rooted = path.starts_with(['/', '$', '~']);
    match (base.is_empty(), rooted) {
        (true, true) if path.trim_end_matches('/').is_empty() => Ok("/".to_owned()),
        (true, true) => Ok(path.trim_end_matches('/').to_owned()),
        (false, false) => {
            Ok(format!("{}/{}", base.trim_end_matches('/'), path.trim_end_matches('/')))
        }
        (true, false) => Err(Mistake::new(format!("`{path}` is a relative path"))
            .hint(format!("start it with $PWD, $HOME, $TMPDIR or /: \"$PWD/{path}\""))),
        (false, true) => {
            Err(Mistake::new(format!("`{path}` is absolute, but it is written below `{base}`")))
        }
    }
}

fn path_pattern(key: Value<'_>, base: &str) -> Result<PathPattern> {
    if let Some(path) = key.unpack_str() {
        if path.contains('*') {
            return Err(Mistake::new(format!("`{path}` holds a wildcard but is a plain string"))
                .hint(format!("write glob(\"{path}\")")));
        }
        return Ok(PathPattern::Subpath { path: join(base, path)?, follow_worktrees: false });
    }
    match KeyValue::from_value(key) {
        Some(KeyValue::Subpath { path, follow_worktrees }) => Ok(PathPattern::Subpath {
            path: join(base, path)?,
            follow_worktrees: *follow_worktrees,
        }),
        Some(KeyValue::Literal(path)) => Ok(PathPattern::Literal(join(base, path)?)),
        Some(KeyValue::Glob(pattern)) => glob_pattern(pattern, base),
        _ => Err(Mistake::new(format!("`{}` cannot be a path key", key.to_str()))
            .hint("path keys are strings, subpath(), literal() and glob()")),
    }
}

/// `x/**` is the subtree, `x/*` the children; anything else stays a pattern
/// below its last fixed directory.
fn glob_pattern(pattern: &str, base: &str) -> Result<PathPattern> {
    let subtree =
        |path: &str| Ok(PathPattern::Subpath { path: join(base, path)?, follow_worktrees: false });
    if pattern == "**" && !base.is_empty() {
        return Ok(PathPattern::Subpath { path: base.to_owned(), follow_worktrees: false });
    }
    if pattern == "*" && !base.is_empty() {
        return Ok(PathPattern::Children(base.to_owned()));
    }
    let wild = |text: &str| text.contains(['*', '?', '[']);
    match pattern.rsplit_once('/') {
        Some((dir, "**")) if !wild(dir) => return subtree(dir),
        Some((dir, "*")) if !wild(dir) => return Ok(PathPattern::Children(join(base, dir)?)),
        _ if !wild(pattern) => return Ok(PathPattern::Literal(join(base, pattern)?)),
        _ => {}
    }
    let mut fixed: Vec<&str> = Vec::new();
    let mut rest = pattern;
    while let Some((first, tail)) = rest.split_once('/')
        && !wild(first)
    {
        fixed.push(first);
        rest = tail;
    }
    let fixed = fixed.join("/");
    let prefix =
        if fixed.is_empty() && !base.is_empty() { base.to_owned() } else { join(base, &fixed)? };
    Ok(PathPattern::Glob { prefix, pattern: rest.to_owned() })
}
