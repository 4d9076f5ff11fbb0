//! clash: every action a coding agent takes runs in its own sandbox.
//!
//! [`run`] is the whole program: `main.rs` calls it. [`show_dashboard`] is `clash-watch`. An
//! agent calls `hook`, `exec` and `sandbox exec` for every action, so [`run`] looks for
//! these words before it builds the command line parser. The parser alone takes as long
//! as the rest of a hook call.

mod approval;
mod blocks;
mod caches;
mod caseless;
mod cmd;
mod compiler;
mod dashboard;
mod decision;
mod dirs;
mod doors;
mod ecosystems;
mod env;
mod exit;
mod foresee;
mod held_path;
mod history;
mod hook;
mod in_force;
mod judged;
mod launcher;
mod observed;
mod permit;
mod policy;
mod project_root;
mod questions;
mod remedy;
mod replace_file;
mod rights;
mod rooms;
mod say;
mod session;
mod settings_backup;
mod ssh_agent;
mod story;
mod tell;
mod temporary;
mod trace;
mod ui;
mod watch;

use std::ffi::OsString;
use std::path::Path;

/// Runs clash with the arguments of its process, the program's name first, and returns
/// the exit status. A launch does not return: the process becomes the command.
#[must_use]
pub fn run(args: &[OsString]) -> u8 {
    let called_as = args.first().map(Path::new).and_then(Path::file_name);
    match args {
        [_, rest @ ..] if called_as.is_some_and(|name| name == "clash-shell") => {
            launcher::shell_main(rest)
        }
        [_, rest @ ..] if called_as.is_some_and(|name| name == "clash-sh") => {
            launcher::sh_main(rest)
        }
        [_, verb, rest @ ..] if verb == "hook" && !asks_for_help(rest) => hook::main(rest),
        [_, verb, rest @ ..] if verb == "exec" && !asks_for_help(rest) => launcher::exec_main(rest),
        [_, verb, what, rest @ ..] if verb == "sandbox" && what == "exec" => {
            launcher::sandbox_main(rest).unwrap_or_else(|| cmd::main(args))
        }
        [_, verb] if verb == ssh_agent::filter::VERB => ssh_agent::filter::main(),
        _ => cmd::main(args),
    }
}

/// Runs the screen of `clash watch` until the user closes it, and returns the exit status.
#[must_use]
pub fn show_dashboard() -> u8 {
    dashboard::main()
}

/// True without arguments too: then the parser explains the command.
fn asks_for_help(rest: &[OsString]) -> bool {
    rest.first().is_none_or(|first| first == "--help" || first == "-h")
}
