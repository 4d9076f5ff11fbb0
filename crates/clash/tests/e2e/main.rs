//! End-to-end tests: they run the built program as a hook and as a launcher on the real
//! kernel.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod abilities;
mod agents;
mod caches;
mod claude_blocks;
mod claude_client;
mod client;
mod client_settings;
mod codex_client;
mod codex_sandbox;
mod compiler;
mod contracts;
mod docs;
mod doctor;
mod doors;
mod droid_client;
mod enforce;
mod everyday;
mod exec;
mod explain;
mod file_links;
mod gemini_client;
mod history;
mod hook;
mod hostile_settings;
mod init;
mod init_hosts;
mod install;
mod install_agents;
mod link_race;
mod managed;
mod masks;
mod persistence;
mod picture;
mod planted;
mod plugin_clients;
mod policy;
mod policy_cache;
mod policy_edit;
mod postures;
mod probes;
mod push_forms;
mod qwen_client;
mod remedies;
mod rooms;
mod run;
mod sandboxes;
mod screens;
mod servers;
mod session_root;
mod session_tmp;
mod shell;
mod status;
mod steering;
mod support;
mod toolchains;
mod trace;
mod trust;
mod trust_lines;
mod uninstall;
mod upgrade;
mod watch;
mod wiring;
