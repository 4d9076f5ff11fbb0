//! Carries a plan out on this very process and replaces it with the command.
//!
//! The steps, in this order; `docs/launch.md` says the same and why, and each
//! has its own error variant so that a failure names its step:
//!
//! 1. change to the working directory
//! 2. take directories off stdin, stdout and stderr; open every granted path and
//!    build the Landlock ruleset
//! 3. mark every descriptor from 3 on close-on-exec
//! 4. set no_new_privs
//! 5. enter the Landlock domain
//! 6. drop capabilities
//! 7. install the seccomp filter
//! 8. give SIGPIPE its default back and `execve`
//!
//! Nothing is undone on failure: the process is then partly restricted and good
//! for nothing but reporting the error and exiting.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use crate::plan::Plan;

#[cfg(target_os = "linux")]
pub use crate::linux::bpf::BpfError;

/// What to run. `env` is the whole environment, already scrubbed.
#[derive(Clone, Debug, Default)]
pub struct Command {
    /// Searched for in the `PATH` of `env` unless it has a slash.
    pub program: OsString,
    /// Without the program itself.
    pub args: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub cwd: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("`{}` has a NUL byte in it", .0.to_string_lossy())]
    NulByte(OsString),
    #[error("step 1, working directory `{}`", path.display())]
    WorkingDirectory { path: PathBuf, source: io::Error },
    #[error("step 2, opening the granted path `{}`", path.display())]
    Grant { path: PathBuf, source: io::Error },
    #[cfg(target_os = "linux")]
    #[error("step 2, building the Landlock ruleset")]
    Ruleset(#[source] landlock::RulesetError),
    #[error("step 3, closing inherited descriptors")]
    Descriptors(#[source] io::Error),
    #[error("step 4, no_new_privs")]
    NoNewPrivs(#[source] io::Error),
    #[cfg(target_os = "linux")]
    #[error("step 5, entering the Landlock domain")]
    Landlock(#[source] landlock::RulesetError),
    #[error("step 5, the kernel does not enforce the whole Landlock domain")]
    NotFullyEnforced,
    #[error("step 6, dropping capabilities")]
    Capabilities(#[source] io::Error),
    #[cfg(target_os = "linux")]
    #[error("step 7, assembling the seccomp filter")]
    Filter(#[source] BpfError),
    #[error("step 7, installing the seccomp filter")]
    Seccomp(#[source] io::Error),
    #[error("step 8, resetting SIGPIPE")]
    Signals(#[source] io::Error),
    /// Shells report this as 127.
    #[error("`{}` not found", program.to_string_lossy())]
    NotFound { program: OsString },
    /// Shells report this as 126.
    #[error("`{}` cannot be executed", program.to_string_lossy())]
    NotExecutable { program: OsString, source: io::Error },
    #[error("this system has no sandbox that clash can use")]
    Unsupported,
}

/// Runs the command inside the plan. Returns only on failure.
pub fn run(plan: &Plan, command: &Command) -> LaunchError {
    match steps(plan, command) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

#[cfg(not(target_os = "linux"))]
fn steps(_: &Plan, _: &Command) -> Result<std::convert::Infallible, LaunchError> {
    Err(LaunchError::Unsupported)
}

#[cfg(target_os = "linux")]
fn steps(plan: &Plan, command: &Command) -> Result<std::convert::Infallible, LaunchError> {
    use crate::linux::target::Target;
    use crate::linux::{caps, landlock, seccomp, sys};

    // Everything that allocates or can be wrong in the request comes first.
    let target = Target::new(command)?;
    let filter = seccomp::filter(plan.net).map_err(LaunchError::Filter)?;

    if let Some(cwd) = &command.cwd {
        rustix::process::chdir(cwd).map_err(|source| LaunchError::WorkingDirectory {
            path: cwd.clone(),
            source: source.into(),
        })?;
    }
    // A directory on stdio must be gone before its descriptor could be granted.
    landlock::no_directory_as_stdio().map_err(|e| LaunchError::Descriptors(e.into()))?;
    let ruleset = landlock::ruleset(plan)?;
    sys::close_on_exec_from_3().map_err(LaunchError::Descriptors)?;
    rustix::thread::set_no_new_privs(true).map_err(|e| LaunchError::NoNewPrivs(e.into()))?;
    landlock::enter(ruleset)?;
    caps::drop_all(plan.root).map_err(|e| LaunchError::Capabilities(e.into()))?;
    sys::install_filter(&filter, 0).map_err(LaunchError::Seccomp)?;
    sys::default_sigpipe().map_err(LaunchError::Signals)?;
    Err(target.execute())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Step 2 fails before anything is restricted, so this can run in the test
    /// process itself.
    #[test]
    fn a_directory_swapped_for_a_link_after_planning_is_not_granted() {
        use crate::plan::{Grant, Network, Why};
        use clash_policy::{Caps, Span};

        let dir = tempfile::tempdir().unwrap();
        let path = std::fs::canonicalize(dir.path()).unwrap().join("public");
        std::os::unix::fs::symlink("/etc", &path).unwrap();
        let grant = Grant { path: path.clone(), caps: Caps::READ, why: Why::Rule(Span::default()) };
        let plan = Plan {
            sandbox: "t".into(),
            baseline: Vec::new(),
            grants: vec![grant],
            net: Network::Deny,
            landlock_abi: crate::host::Host::quick().landlock_abi,
            root: false,
        };
        let error = run(&plan, &Command { program: "true".into(), ..Command::default() });
        assert!(matches!(error, LaunchError::Grant { path: p, .. } if p == path));
    }
}
