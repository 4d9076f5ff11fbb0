//! End-to-end tests: the built program against the real kernel, as a hook and
//! as a launcher.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod claude_client;
mod docs;
mod enforce;
mod exec;
mod explain;
mod hook;
mod init;
mod install;
mod never_widen;
mod policy;
mod policy_cache;
mod policy_edit;
mod probes;
mod push_forms;
mod shell;
mod support;
mod toolchains;
mod trace;
mod trust;
