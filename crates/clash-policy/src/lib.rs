//! What an agent wants and what the policy says about it.
//!
//! This crate is a pure function: the same [`action`] and the same compiled
//! policy give the same decision, with no I/O, no environment and no clock.
//! Everything that can be fooled by a clever agent is read here, so it forbids
//! `unsafe` and is fuzzable end to end.
//!
//! It informs; it does not enforce. Rights come only from the sandbox a process
//! really runs in.
#![forbid(unsafe_code)]

pub mod action;
pub mod compare;
pub mod credentials;
pub mod decide;
pub mod effect;
pub mod fnv;
pub mod ir;
pub mod judge;
pub mod nearest;
pub mod net;
pub mod path;
pub mod pattern;
pub mod protect;
pub mod regex;
pub mod rule;
pub mod sandbox;
pub mod span;
pub mod steering;
pub mod tool;
pub mod witness;

pub use action::{Action, FileUse, HostUse, InputField, ToolInput};
pub use decide::{Decision, decide};
pub use effect::{Effect, FileCaps};
pub use judge::JudgeContext;
pub use net::{HostPattern, NetRule, NetworkAccess};
pub use path::{LinkResolver, PolicyPlaces};
pub use regex::PolicyRegex;
pub use sandbox::{
    EnvRule, FsRule, PathPattern, ProcessLifetime, ProtectSettings, ResourceLimits, Sandbox,
    WriteTarget,
};
pub use span::PolicySpan;
