//! The agents on this machine, for `clash init`: which there are, and wiring them
//! as `clash install` does.

use std::process::Command;

use crate::dirs::Dirs;
use crate::ui::Failure;

/// The agents clash can be put in front of.
pub(super) fn names() -> Vec<&'static str> {
    vec!["claude"]
}

pub(super) fn is_known(agent: &str) -> bool {
    names().contains(&agent)
}

/// The agents that show themselves: by settings or by a program.
pub(super) fn found(dirs: &Dirs) -> Vec<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = std::env::split_paths(&path).any(|dir| dir.join("claude").is_file());
    let there = program || dirs.claude.is_dir();
    there.then(|| "claude".to_owned()).into_iter().collect()
}

/// Runs `clash install --agent NAME` and gives what it says.
pub(super) fn wire(agent: &str) -> Result<String, Failure> {
    let output =
        Command::new(std::env::current_exe()?).args(["install", "--agent", agent]).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = said.trim().strip_prefix("clash: ").unwrap_or(said.trim());
    let (message, hint) = said.split_once("\n\nhint: ").unwrap_or((said, ""));
    let failure =
        Failure::new(format!("the policy is written, but {agent} is not wired: {message}"));
    Err(if hint.is_empty() { failure } else { failure.hint(hint) })
}
