//! The program `clash`: it hands its arguments to the library and exits with the
//! status that the library returns.

use std::ffi::OsString;
use std::process::ExitCode;

/// musl's own allocator is slow with many small blocks, for example those of a long
/// script or of a comparison of policies.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    ExitCode::from(clash::run(&args))
}
