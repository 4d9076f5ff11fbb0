//! Reading, formatting, editing, upgrading and writing of policy text.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod draft;
mod edit;
mod format;
mod support;
mod tree;
mod upgrade;
