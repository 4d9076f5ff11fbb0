//! The values of a policy besides Starlark's own: effects, keys and sandboxes. They
//! contain plain data, so freezing a module changes nothing.
#![expect(
    unsafe_code,
    reason = "Starlark's derives implement its unsafe marker trait; none is written by hand"
)]
#![expect(unused_qualifications, clippy::panic, reason = "likewise in derived code")]

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use allocative::Allocative;
use clash_policy::{Effect, FileCaps, PolicySpan, WriteTarget};
use starlark::collections::StarlarkHasher;
use starlark::environment::Methods;
use starlark::starlark_simple_value;
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, starlark_value,
};

use crate::draft::SandboxDraft;

/// `allow(…)`, `deny(…)`, `ask(…)`, `cow()`, `cache()`.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
#[allocative(skip)]
pub(crate) struct EffectValue {
    pub(crate) effect: Effect,
    pub(crate) writes: WriteTarget,
    /// `None` if the policy names none, which means all.
    pub(crate) caps: Option<FileCaps>,
    pub(crate) sandbox: Option<SandboxUse>,
    pub(crate) reason: Option<String>,
    pub(crate) span: PolicySpan,
}
starlark_simple_value!(EffectValue);

impl EffectValue {
    /// The effect without capabilities, sandbox and reason, for changes in place.
    pub(crate) fn bare(effect: Effect, span: &PolicySpan) -> Self {
        let span = span.clone();
        Self { effect, writes: WriteTarget::InPlace, caps: None, sandbox: None, reason: None, span }
    }
}

#[starlark_value(type = "effect")]
impl<'v> StarlarkValue<'v> for EffectValue {}

impl fmt::Display for EffectValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.writes {
            WriteTarget::InPlace => write!(f, "{}()", self.effect),
            WriteTarget::Session => f.write_str("cow()"),
            WriteTarget::Project => f.write_str("cache()"),
            WriteTarget::Masked => f.write_str("masked()"),
        }
    }
}

/// The sandbox of a rule: a value, or the name of a sandbox that the file defines.
#[derive(Clone, Debug)]
pub(crate) enum SandboxUse {
    Value(Arc<SandboxDraft>),
    Named(String),
}

impl SandboxUse {
    /// The name, whether or not a sandbox of this name exists.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Value(draft) => &draft.sandbox.name,
            Self::Named(name) => name,
        }
    }
}

/// A text or pattern, as the policy gave it to a builder of keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Allocative)]
pub(crate) enum TextPattern {
    Literal(String),
    Glob(String),
    Regex(String),
    Any,
}

impl fmt::Display for TextPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(text) => write!(f, "\"{text}\""),
            Self::Glob(pattern) => write!(f, "glob(\"{pattern}\")"),
            Self::Regex(pattern) => write!(f, "regex(\"{pattern}\")"),
            Self::Any => Ok(()),
        }
    }
}

/// A key of a tree or of a sandbox that is not a string.
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    Hash,
    ProvidesStaticType,
    NoSerialize,
    StarlarkPagablePanic,
    Allocative,
)]
pub(crate) enum KeyValue {
    Tool(Vec<TextPattern>),
    Mode(String),
    Agent(String),
    Default,
    /// The end of a command.
    End,
    Glob {
        pattern: String,
        follow_worktrees: bool,
    },
    Regex(String),
    Literal(String),
    Subpath {
        path: String,
        follow_worktrees: bool,
    },
    Domain(String),
    Exact(String),
    Localhost(Vec<u16>),
    Network,
}
starlark_simple_value!(KeyValue);

starlark::methods_static!(KEY_METHODS = crate::older::key_methods);

#[starlark_value(type = "key")]
impl<'v> StarlarkValue<'v> for KeyValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(KEY_METHODS.methods())
    }

    fn write_hash(&self, hasher: &mut StarlarkHasher) -> starlark::Result<()> {
        self.hash(hasher);
        Ok(())
    }

    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        Ok(Self::from_value(other) == Some(self))
    }
}

impl fmt::Display for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let follow = |on: &bool| if *on { ", follow_worktrees = True" } else { "" };
        match self {
            Self::Tool(names) => match names.as_slice() {
                [one] => write!(f, "tool({one})"),
                several => {
                    let names: Vec<String> = several.iter().map(TextPattern::to_string).collect();
                    write!(f, "tool(({}))", names.join(", "))
                }
            },
            Self::Mode(name) => write!(f, "mode(\"{name}\")"),
            Self::Agent(name) => write!(f, "agent(\"{name}\")"),
            Self::Default => f.write_str("default()"),
            Self::End => f.write_str("end()"),
            Self::Glob { pattern, follow_worktrees } => {
                write!(f, "glob(\"{pattern}\"{})", follow(follow_worktrees))
            }
            Self::Regex(pattern) => write!(f, "regex(\"{pattern}\")"),
            Self::Literal(text) => write!(f, "literal(\"{text}\")"),
            Self::Subpath { path, follow_worktrees } => {
                write!(f, "subpath(\"{path}\"{})", follow(follow_worktrees))
            }
            Self::Domain(name) => write!(f, "domain(\"{name}\")"),
            Self::Exact(name) => write!(f, "exact(\"{name}\")"),
            Self::Localhost(ports) => write!(f, "localhost(ports = {ports:?})"),
            Self::Network => f.write_str("network()"),
        }
    }
}

/// The value of `sandbox(…)`.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
#[allocative(skip)]
pub(crate) struct SandboxValue(pub(crate) Arc<SandboxDraft>);
starlark_simple_value!(SandboxValue);

starlark::methods_static!(SANDBOX_METHODS = crate::builders::sandbox_methods);

#[starlark_value(type = "sandbox")]
impl<'v> StarlarkValue<'v> for SandboxValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(SANDBOX_METHODS.methods())
    }
}

impl fmt::Display for SandboxValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sandbox(name = \"{}\")", self.0.sandbox.name)
    }
}
