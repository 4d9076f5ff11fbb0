//! Policy source as text: reading, formatting, editing, upgrading and writing.
//!
//! The syntax tree keeps every byte of the source, for example comments, blank lines
//! and the quotes of a string. Nothing is evaluated: only `clash-lang` knows the meaning
//! of a policy.
//!
//! Lexer and parser are hand-written, because the parser of the `starlark_syntax` crate
//! drops comments and layout, which formatting and editing in place must keep. It
//! also depends on 119 packages, 93 of which `clash` does not link (`cargo tree`).

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
