//! A Sandbox: the named, host-independent declaration of what a command may
//! touch. Paths keep their variables (`$PWD`, `$HOME`); [`crate::path::Places`]
//! fills them in when a sandbox is judged or planned.

use crate::effect::{Caps, Effect};
use crate::span::Span;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    pub name: String,
    /// What holds for a path that no key of `fs` matches. The system baseline
    /// stays readable whatever this says.
    pub default: Effect,
    pub fs: Vec<FsRule>,
    pub net: Net,
    pub doc: String,
    pub span: Span,
}

/// One line of a sandbox's `fs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsRule {
    pub pattern: PathPattern,
    pub effect: Effect,
    pub caps: Caps,
    pub span: Span,
}

/// Which paths a file rule is about. Text is as written, variables unexpanded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PathPattern {
    /// The path and everything below it.
    Subpath { path: String, follow_worktrees: bool },
    /// Exactly this path.
    Literal(String),
    /// Everything directly inside this directory.
    Children(String),
    /// Names matched anywhere under a fixed prefix, also files created later.
    Glob { prefix: String, pattern: String },
}

impl PathPattern {
    /// The part of the path that is fixed, before any wildcard.
    pub fn fixed(&self) -> &str {
        match self {
            Self::Subpath { path, .. } | Self::Literal(path) | Self::Children(path) => path,
            Self::Glob { prefix, .. } => prefix,
        }
    }
}

impl std::fmt::Display for PathPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Subpath { path, .. } => write!(f, "{path}/**"),
            Self::Literal(path) => write!(f, "{path}"),
            Self::Children(path) => write!(f, "{path}/*"),
            Self::Glob { prefix, pattern } => write!(f, "{prefix}/{pattern}"),
        }
    }
}

/// A sandbox's network. Host rules will be a further variant; until they can be
/// enforced there is no way to write them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Net {
    Deny,
    Allow,
}
