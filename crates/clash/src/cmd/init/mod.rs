//! `clash init`: from nothing to a policy that knows the project.

mod from_trace;

use std::path::PathBuf;

use crate::cmd::project;
use crate::ui::{Failure, Out};

/// Makes a policy of what agents did.
///
/// Reads clash's own traces and the histories that Claude Code, Codex, Gemini CLI
/// and OpenCode keep. Only what ran counts. What looks, builds and tests is allowed
/// in a sandbox; what destroys, publishes, fetches or runs any code it is given is
/// asked about; what touches credentials is denied. Each rule says how often and when
/// something like it was seen. The policy goes to standard output, what it would have
/// decided to standard error.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// `latest`, a history, or a directory with histories
    #[arg(long, value_name = "HISTORY", required = true)]
    from_trace: String,
    /// The project; found from the working directory if not given
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
}

impl Args {
    pub(crate) fn run(self, out: &mut Out) -> Result<u8, Failure> {
        let (dirs, here) = project(self.project)?;
        from_trace::run(out, &dirs, &here, &self.from_trace)
    }
}
