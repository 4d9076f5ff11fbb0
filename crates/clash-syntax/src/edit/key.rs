//! Keys of a policy's tree, as an edit names them and as a policy writes them.

use std::fmt;

use crate::lex::Span;
use crate::splice::Items;
use crate::tree::{Expr, ExprKind};

/// One step of the path to a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// `"git"`
    Str(String),
    /// `glob("**")`, `mode("plan")`, or without argument `default()`
    Call { name: String, arg: Option<String> },
}

impl Key {
    pub fn str(text: impl Into<String>) -> Self {
        Self::Str(text.into())
    }

    pub fn call(name: impl Into<String>, arg: impl Into<String>) -> Self {
        Self::Call { name: name.into(), arg: Some(arg.into()) }
    }

    /// `glob("**")`: whatever remains.
    pub fn wildcard() -> Self {
        Self::call("glob", "**")
    }

    pub(super) fn is_wildcard(&self) -> bool {
        *self == Self::wildcard()
    }
}

/// As it is written in a policy.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Str(text) => f.write_str(&quote(text)),
            Self::Call { name, arg: None } => write!(f, "{name}()"),
            Self::Call { name, arg: Some(arg) } => write!(f, "{name}({})", quote(arg)),
        }
    }
}

pub(super) fn spell(path: &[Key]) -> String {
    let keys: Vec<String> = path.iter().map(|key| format!("`{key}`")).collect();
    keys.join(" → ")
}

/// A string literal that says `text`.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => quoted.push_str(&format!("\\U{:08x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// How keys are read at a place of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Context {
    /// Tools, modes, agents: `tool("Bash")` is `"Bash"`.
    Root,
    /// Words of a command: `"git push"` is two.
    Command,
    Other,
}

/// One of the things a key stands for.
pub(super) struct Alternative {
    pub(super) keys: Vec<Key>,
    pub(super) span: Span,
}

/// What a key expression says.
pub(super) struct Reading {
    pub(super) alternatives: Vec<Alternative>,
    /// The list the alternatives stand in, and its span if that is the whole key.
    pub(super) list: Option<(Option<Span>, Items)>,
    /// A part that is computed, so it could be anything.
    pub(super) computed: Option<Span>,
}

pub(super) fn read(key: &Expr, context: Context) -> Reading {
    let mut reading = Reading { alternatives: Vec::new(), list: None, computed: None };
    let (exprs, brackets, whole) = match &key.kind {
        ExprKind::Tuple(items, Some(brackets)) => (items, brackets, Some(key.span)),
        _ => match tools(key, context) {
            Some((items, brackets)) => (items, brackets, None),
            None => {
                reading.add(key, context);
                return reading;
            }
        },
    };
    for expr in exprs {
        reading.add(expr, context);
    }
    let spans = exprs.iter().map(|expr| expr.span).collect();
    reading.list = Some((whole, Items { brackets: *brackets, spans }));
    reading
}

/// The names in `tool(["A", "B"])`.
fn tools(key: &Expr, context: Context) -> Option<(&Vec<Expr>, &crate::tree::Brackets)> {
    let call = key.call().filter(|_| context == Context::Root)?;
    let [arg] = call.args.as_slice() else { return None };
    match &arg.value.kind {
        ExprKind::List(items, brackets) | ExprKind::Tuple(items, Some(brackets))
            if matches!(call.name(), Some("tool" | "Tool")) =>
        {
            Some((items, brackets))
        }
        _ => None,
    }
}

impl Reading {
    fn add(&mut self, expr: &Expr, context: Context) {
        match single(expr, context) {
            Some(keys) => self.alternatives.push(Alternative { keys, span: expr.span }),
            None => self.computed = self.computed.or(Some(expr.span)),
        }
    }
}

fn single(expr: &Expr, context: Context) -> Option<Vec<Key>> {
    if let Some(text) = expr.string() {
        return Some(match context {
            Context::Command if text.contains(' ') => {
                text.split_whitespace().map(Key::str).collect()
            }
            _ => vec![Key::str(text)],
        });
    }
    let call = expr.call()?;
    let name = call.name()?;
    let name = match name {
        "Tool" | "Mode" => name.to_ascii_lowercase(),
        _ => name.to_owned(),
    };
    let arg = match call.args.as_slice() {
        [] => None,
        [arg] if arg.kind == crate::tree::ArgKind::Positional => {
            Some(arg.value.string()?.to_owned())
        }
        // A key with options is not one an edit can name, but it is not computed.
        _ => return known(&name).then(Vec::new),
    };
    match arg {
        Some(tool) if name == "tool" && context == Context::Root => Some(vec![Key::Str(tool)]),
        arg => known(&name).then(|| vec![Key::Call { name, arg }]),
    }
}

/// Functions that make keys. Others may return anything.
fn known(name: &str) -> bool {
    matches!(
        name,
        "tool"
            | "mode"
            | "agent"
            | "default"
            | "glob"
            | "regex"
            | "literal"
            | "path"
            | "subpath"
            | "domain"
            | "exact"
            | "localhost"
            | "network"
    )
}
