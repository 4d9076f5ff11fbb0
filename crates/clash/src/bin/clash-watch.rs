//! The program `clash-watch`: the screen of `clash watch`. It is a program of its own, so
//! that the hooks and launches of agents do not load a terminal library.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(clash::show_dashboard())
}
