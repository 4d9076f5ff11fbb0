//! Every exit status of clash, once.

/// It worked.
pub(crate) const OK: u8 = 0;
/// A command of clash itself failed; the message says why. For `policy check`,
/// `policy test` and `fmt --check`: what they look for was found.
pub(crate) const FAILED: u8 = 1;
/// The command line was not understood. For a hook: the action is blocked and
/// the reason is on standard error, which every agent we know honours.
pub(crate) const USAGE: u8 = 2;
pub(crate) const BLOCKED: u8 = 2;
/// The command ran longer than its sandbox allows, and was ended.
pub(crate) const OUT_OF_TIME: u8 = 124;
/// The sandbox could not be set up, so the command was not started.
pub(crate) const NO_SANDBOX: u8 = 125;
/// The policy refused the command, or the program cannot be executed.
pub(crate) const REFUSED: u8 = 126;
/// The program was not found.
pub(crate) const NOT_FOUND: u8 = 127;
