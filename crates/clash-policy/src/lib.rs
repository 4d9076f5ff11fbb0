//! Actions of agents, and the decisions of a policy about them.
//!
//! This crate is a pure function: the same [`action`], the same compiled policy and the
//! same [`JudgeContext`] give the same decision. It has no I/O of its own, no environment
//! and no clock. The caller passes a [`LinkResolver`], which may read links and settings of
//! git. The crate reads input that a hostile agent can write, so it forbids `unsafe`, and
//! fuzzers can run all of it.
//!
//! It informs and does not enforce: a process has only the rights of the sandbox it runs
//! in.
#![forbid(unsafe_code)]

pub mod action;
pub mod compare;
pub mod credentials;
pub mod decide;
pub mod doors;
pub mod effect;
pub mod fnv;
pub mod ir;
pub mod judge;
pub mod mask;
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
pub mod text;
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
