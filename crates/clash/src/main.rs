//! clash: every action a coding agent takes runs in its own sandbox.
//!
//! `hook`, `exec` and `sandbox exec` are called for every action, so they are
//! told apart before anything else is built; every other command goes through
//! the parser, which alone would cost as much as the rest of a hook call.

mod agents;
mod approval;
mod caches;
mod caseless;
mod cmd;
mod decision;
mod dirs;
mod ecosystems;
mod env;
mod exec;
mod exit;
mod held_path;
mod history;
mod hook;
mod in_force;
mod judged;
mod policy;
mod project_root;
mod replace_file;
mod say;
mod session;
mod settings_backup;
mod shell_quoted;
mod ssh_agent;
mod stamp;
mod tell;
mod temporary;
mod tool_input;
mod trace;
mod trust;
mod ui;
mod watch;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// musl's own allocator is slow with many small blocks, which a long script or a
/// comparison of policies makes.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    ExitCode::from(run(&args))
}

fn run(args: &[OsString]) -> u8 {
    let called_as = args.first().map(Path::new).and_then(Path::file_name);
    match args {
        [_, rest @ ..] if called_as.is_some_and(|name| name == "clash-shell") => {
            exec::shell_main(rest)
        }
        [_, rest @ ..] if called_as.is_some_and(|name| name == "clash-sh") => exec::sh_main(rest),
        [_, verb, rest @ ..] if verb == "hook" && !asks_for_help(rest) => hook::main(rest),
        [_, verb, rest @ ..] if verb == "exec" && !asks_for_help(rest) => exec::main(rest),
        [_, verb, what, rest @ ..] if verb == "sandbox" && what == "exec" => {
            exec::sandbox_main(rest).unwrap_or_else(|| cmd::main(args))
        }
        [_, verb] if verb == ssh_agent::filter::VERB => ssh_agent::filter::main(),
        _ => cmd::main(args),
    }
}

fn asks_for_help(rest: &[OsString]) -> bool {
    rest.first().is_none_or(|first| first == "--help" || first == "-h")
}
