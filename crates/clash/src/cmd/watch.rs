//! `clash watch`: starts the screen, which is the program `clash-watch` beside clash.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::ui::Failure;

/// Watch running sessions on a screen, and answer their questions
///
/// Shows actions as they happen, rooms, connections and blocks. While it runs, a running command can ask you, for example about a host; `?` lists the
/// keys. It needs a terminal of 40 columns and 12 rows, also over ssh, and no colours.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

impl Args {
    /// Becomes the program `clash-watch`. Returns only if that fails.
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let program = std::env::current_exe()?.with_file_name("clash-watch");
        let error = Command::new(&program).exec();
        let what = match error.kind() {
            io::ErrorKind::NotFound => format!("the program {} is missing", program.display()),
            _ => format!("cannot run {}: {error}", program.display()),
        };
        Err(Failure::new(what)
            .hint("clash and clash-watch belong in one directory; install clash again"))
    }
}
