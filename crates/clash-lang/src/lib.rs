//! The policy language: Starlark source in, compiled layer out.
//!
//! A policy is ordinary Starlark that calls a few builders. Evaluating it
//! collects rules and sandboxes; [`compile`] hands them on as a
//! [`clash_policy::rule::Layer`]. This crate carries the one heavy dependency
//! and is never called while a hook has a warm cache. It reads no file and no
//! environment itself: sources come through [`SourceReader`].

mod bounds;
mod builders;
mod collected;
mod compile;
mod diagnostic;
mod docs;
mod draft;
mod expect;
mod language_error;
mod leaves;
mod library;
mod lint;
mod lower;
mod merge;
mod names;
mod older;
mod override_dict;
mod regex;
mod value;

pub use bounds::{before_statements, evaluating, latest};
pub use compile::{CompiledLayer, SourceReader, compile};
pub use diagnostic::{CompileError, PolicyWarning};
pub use docs::{UnknownNameError, docs};
pub use library::{BUILT_IN, modules};
