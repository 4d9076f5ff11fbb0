//! The program in the place of a command: it asks the launcher to run the command in the
//! command's own sandbox, and ends as the command ends.
//!
//! It has no rights of its own and trusts nothing. A room can replace or imitate it, and
//! gains nothing by that.

#![cfg_attr(target_os = "linux", no_main)]

#[cfg(target_os = "linux")]
mod attend;
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "signals and execveat, each with its reason")]
mod sys;

/// Rooms exist on Linux only.
#[cfg(not(target_os = "linux"))]
fn main() {
    std::process::exit(clash_door::REFUSED_STATUS);
}
