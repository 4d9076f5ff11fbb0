//! The policy language from outside: texts in, layers, errors and warnings out.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod compile;
mod library;
mod lint;
mod mistakes;
mod older_forms;
mod older_lists;
mod support;
