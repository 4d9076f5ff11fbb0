//! Keys of a policy's tree: those an edit names, and those a policy writes.

use std::fmt;

use crate::draft::string_literal;
use crate::lex::ByteSpan;
use crate::splice::BracketItems;
use crate::tree::{Expression, ExpressionKind};

/// One step of the path to a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleKey {
    /// `"git"`
    Str(String),
    /// `glob("**")`, `mode("plan")`, or without argument `default()`
    Call { name: String, arg: Option<String> },
}

impl RuleKey {
    pub fn str(text: impl Into<String>) -> Self {
        Self::Str(text.into())
    }

    pub fn call(name: impl Into<String>, arg: impl Into<String>) -> Self {
        Self::Call { name: name.into(), arg: Some(arg.into()) }
    }

    /// `glob("**")`: everything else.
    pub fn wildcard() -> Self {
        Self::call("glob", "**")
    }

    pub(super) fn is_wildcard(&self) -> bool {
        *self == Self::wildcard()
    }
}

/// The key as a policy writes it.
impl fmt::Display for RuleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Str(text) => f.write_str(&string_literal(text)),
            Self::Call { name, arg: None } => write!(f, "{name}()"),
            Self::Call { name, arg: Some(arg) } => write!(f, "{name}({})", string_literal(arg)),
        }
    }
}

/// The path for people: `"Bash"` → `"git"`.
pub(super) fn spell(path: &[RuleKey]) -> String {
    let keys: Vec<String> = path.iter().map(|key| format!("`{key}`")).collect();
    keys.join(" → ")
}

/// The place of a key in the tree, which decides how it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyContext {
    /// Tools, modes, agents: `tool("Bash")` is `"Bash"`.
    Root,
    /// Words of a command: `"git push"` is two.
    Command,
    Other,
}

/// One alternative of a key.
pub(super) struct KeyAlternative {
    pub(super) keys: Vec<RuleKey>,
    pub(super) span: ByteSpan,
}

/// A key expression as keys.
pub(super) struct KeyReading {
    pub(super) alternatives: Vec<KeyAlternative>,
    /// The list the alternatives stand in, and its span if that is the whole key.
    pub(super) list: Option<(Option<ByteSpan>, BracketItems)>,
    /// A computed part, which could be any key.
    pub(super) computed: Option<ByteSpan>,
}

/// Reads the alternatives of a key: of a tuple, of `tool([…])`, or one.
pub(super) fn read(key: &Expression, context: KeyContext) -> KeyReading {
    let mut reading = KeyReading { alternatives: Vec::new(), list: None, computed: None };
    let (exprs, brackets, whole) = match &key.kind {
        ExpressionKind::Tuple(items, Some(brackets)) => (items, brackets, Some(key.span)),
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
    reading.list = Some((whole, BracketItems { brackets: *brackets, spans }));
    reading
}

/// The names in `tool(["A", "B"])`.
fn tools(
    key: &Expression,
    context: KeyContext,
) -> Option<(&Vec<Expression>, &crate::tree::BracketRange)> {
    let call = key.call().filter(|_| context == KeyContext::Root)?;
    let [arg] = call.args.as_slice() else { return None };
    match &arg.value.kind {
        ExpressionKind::List(items, brackets) | ExpressionKind::Tuple(items, Some(brackets))
            if matches!(call.name(), Some("tool" | "Tool")) =>
        {
            Some((items, brackets))
        }
        _ => None,
    }
}

impl KeyReading {
    /// Adds an alternative, or notes that it is computed.
    fn add(&mut self, expr: &Expression, context: KeyContext) {
        match single(expr, context) {
            Some(keys) => self.alternatives.push(KeyAlternative { keys, span: expr.span }),
            None => self.computed = self.computed.or(Some(expr.span)),
        }
    }
}

/// The keys of one alternative; `None` if it is computed. Among the words of a command, a
/// string with blanks is several keys. A key with options, for example `localhost(ports =
/// …)`, has no keys.
fn single(expr: &Expression, context: KeyContext) -> Option<Vec<RuleKey>> {
    if let Some(text) = expr.string() {
        return Some(match context {
            KeyContext::Command if text.contains(' ') => {
                text.split_whitespace().map(RuleKey::str).collect()
            }
            _ => vec![RuleKey::str(text)],
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
        [arg] if arg.kind == crate::tree::ArgumentKind::Positional => {
            Some(arg.value.string()?.to_owned())
        }
        // A key with options is not computed, but no edit can name it.
        _ => return known(&name).then(Vec::new),
    };
    match arg {
        Some(tool) if name == "tool" && context == KeyContext::Root => {
            Some(vec![RuleKey::Str(tool)])
        }
        arg => known(&name).then(|| vec![RuleKey::Call { name, arg }]),
    }
}

/// True for functions that make keys. Other functions may return anything.
fn known(name: &str) -> bool {
    matches!(
        name,
        "tool"
            | "mode"
            | "agent"
            | "default"
            | "end"
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
