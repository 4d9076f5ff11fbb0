//! The policy language: Starlark source in, compiled layer out.
//!
//! A policy is ordinary Starlark that calls builders, for example `when()`. The
//! evaluation collects rules and sandboxes, and [`compile`] returns them as a
//! [`clash_policy::rule::Layer`]. Only the program `clash-compile` links this crate: it
//! carries the one heavy dependency. It reads no files and no environment itself:
//! a [`SourceReader`] gives it the sources.

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
