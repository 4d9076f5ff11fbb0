//! Every exit status of clash.

/// The command succeeded.
pub(crate) const OK: u8 = 0;
/// A command of clash itself failed; the message says why. For `policy check`,
/// `policy test` and `fmt --check`: they found a problem.
pub(crate) const FAILED: u8 = 1;
/// The arguments are wrong.
pub(crate) const USAGE: u8 = 2;
/// The hook blocks the action; the reason is on standard error. Every agent that clash
/// knows obeys this.
pub(crate) const BLOCKED: u8 = 2;
/// The command ran longer than its sandbox allows, and the launcher ended it.
pub(crate) const OUT_OF_TIME: u8 = 124;
/// The launcher could not set up the sandbox, so it did not start the command.
pub(crate) const NO_SANDBOX: u8 = 125;
/// The policy refused the command, or the program cannot be executed.
pub(crate) const REFUSED: u8 = 126;
/// The program was not found.
pub(crate) const NOT_FOUND: u8 = 127;
