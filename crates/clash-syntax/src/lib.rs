//! Policy source as text. This crate knows Starlark's syntax without losing a
//! byte of it — comments, blank lines, how a string is spelled — and evaluates
//! nothing: what a policy *means* is only known to the evaluator.

mod diff;
pub mod draft;
pub mod edit;
mod error;
pub mod fmt;
mod layout;
mod lex;
mod parse;
mod splice;
mod string;
mod tree;
pub mod upgrade;

pub use diff::diff;
pub use error::{ParseError, SyntaxError};
pub use lex::{ByteSpan, SourceToken, TokenKind};
pub use parse::MAX_TREE_DEPTH;
pub use tree::*;
