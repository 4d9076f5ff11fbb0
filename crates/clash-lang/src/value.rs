//! The values a policy handles besides Starlark's own: effects, keys and
//! sandboxes. They hold plain data, so freezing a module changes nothing.
#![expect(
    unsafe_code,
    reason = "Starlark's derives implement its unsafe marker trait; none is written by hand"
)]
#![expect(unused_qualifications, clippy::panic, reason = "likewise in derived code")]

use std::cell::RefCell;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use allocative::Allocative;
use clash_policy::rule::{Branch, Settings};
use clash_policy::{Caps, Effect, Sandbox, Span};
use starlark::collections::StarlarkHasher;
use starlark::starlark_simple_value;
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, starlark_value,
};

/// `allow(…)`, `deny(…)`, `ask(…)`.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
#[allocative(skip)]
pub(crate) struct EffectValue {
    pub(crate) effect: Effect,
    /// `None`: not said, which means all.
    pub(crate) caps: Option<Caps>,
    pub(crate) sandbox: Option<Arc<Sandbox>>,
    pub(crate) reason: Option<String>,
    pub(crate) span: Span,
}
starlark_simple_value!(EffectValue);

#[starlark_value(type = "effect")]
impl<'v> StarlarkValue<'v> for EffectValue {}

impl fmt::Display for EffectValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}()", self.effect)
    }
}

/// A key of a match tree or of a sandbox's `fs` that is more than a string.
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
    Tool(String),
    Mode(String),
    Agent(String),
    Default,
    Glob(String),
    Literal(String),
    Subpath { path: String, follow_worktrees: bool },
}
starlark_simple_value!(KeyValue);

#[starlark_value(type = "key")]
impl<'v> StarlarkValue<'v> for KeyValue {
    fn write_hash(&self, hasher: &mut StarlarkHasher) -> starlark::Result<()> {
        self.hash(hasher);
        Ok(())
    }

    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        Ok(Self::from_value(other) == Some(self))
    }
}

impl KeyValue {
    /// As it is written in a policy.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Tool(name) => format!("tool(\"{name}\")"),
            Self::Mode(name) => format!("mode(\"{name}\")"),
            Self::Agent(name) => format!("agent(\"{name}\")"),
            Self::Default => "default()".to_owned(),
            Self::Glob(pattern) => format!("glob(\"{pattern}\")"),
            Self::Literal(text) => format!("literal(\"{text}\")"),
            Self::Subpath { path, .. } => format!("subpath(\"{path}\")"),
        }
    }
}

impl fmt::Display for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

/// What `sandbox(…)` returns.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
#[allocative(skip)]
pub(crate) struct SandboxValue(pub(crate) Arc<Sandbox>);
starlark_simple_value!(SandboxValue);

#[starlark_value(type = "sandbox")]
impl<'v> StarlarkValue<'v> for SandboxValue {}

impl fmt::Display for SandboxValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sandbox(name = \"{}\")", self.0.name)
    }
}

/// What evaluating a policy and everything it loads has said so far.
#[derive(Debug, Default, ProvidesStaticType)]
pub(crate) struct Collected {
    pub(crate) branches: RefCell<Vec<Branch>>,
    pub(crate) settings: RefCell<Settings>,
    pub(crate) sandboxes: RefCell<Vec<Arc<Sandbox>>>,
}
