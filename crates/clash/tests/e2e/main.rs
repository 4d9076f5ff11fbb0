//! End-to-end tests: the built program against the real kernel, as a hook and
//! as a launcher.

mod claude_client;
mod enforce;
mod exec;
mod explain;
mod hook;
mod install;
mod probes;
mod support;
mod trace;
