//! Checks git's setting against directories that only look like a repository.

use std::process::Command;

use super::{DoctorContext, DoctorFinding};

const SETTING: &str = "safe.bareRepository";

/// A note if git takes a directory without `.git` for a repository (`safe.bareRepository`).
/// Asks git from the root directory, where git reads no settings of a repository. No finding
/// without git.
pub(super) fn look(_: &DoctorContext) -> Vec<DoctorFinding> {
    let asked = Command::new("git").args(["config", "--get", SETTING]).current_dir("/").output();
    let Ok(asked) = asked else { return Vec::new() };
    let explicit = String::from_utf8_lossy(&asked.stdout).trim().eq_ignore_ascii_case("explicit");
    vec![if explicit {
        DoctorFinding::good(format!(
            "{SETTING} is explicit: git obeys only repositories with a work tree"
        ))
    } else {
        let what = "git takes a directory with `HEAD`, `objects` and `refs` for a repository, and \
                    runs programs that its `config` names";
        DoctorFinding::note(what).fix(format!("git config --global {SETTING} explicit"))
    }]
}
