//! Carries a plan out and lets the command take over.
//!
//! The steps, in this order (`launch/steps.rs`); `docs/launch.md` says the same and
//! why, and each has its own error variant so that a failure names its step:
//!
//!  1. take a terminal of one's own if the user's is on stdin, stdout or stderr;
//!     change to the working directory; make a temporary directory   (watched only);
//!     put pipes in the place of files on stdout and stderr
//!  2. take directories off stdin, stdout and stderr; make the Landlock ruleset;
//!     open every granted path and put it in, with a parent during steps 4 and 5
//!     and with the help of another process
//!  3. mark every descriptor from 3 on close-on-exec
//!  4. leave the host's namespaces                      (rooms only)
//!     as far as they were made ahead by joining those; the network after step 5
//!  5. build the room's view of the disk and enter it   (rooms only)
//!  6. start the room's process 1                       (rooms only)
//!     and the command's own                            (rooms, or watched)
//!  7. set limits
//!  8. set no_new_privs
//!  9. enter the Landlock domain
//! 10. drop capabilities
//! 11. install the seccomp filter, with a listener if the plan is watched
//! 12. give signals back their meaning and `execve`
//! 13. answer for the command                           (if watched)
//!
//! Without a room or a monitor all of it happens to the calling process, which
//! becomes the command. With either, the steps from 7 to 12 are the command's own
//! process, and the caller stays as its parent until it ends, and ends the same
//! way.
//!
//! Nothing is undone on failure: the process is then partly restricted and good
//! for nothing but reporting the error and exiting.

pub(crate) mod command;
pub(crate) mod error;
#[cfg(target_os = "linux")]
mod helper;
#[cfg(target_os = "linux")]
mod steps;

use std::io;

use clash_policy::Sandbox;

pub use command::Command;
pub use error::LaunchError;

use crate::plan::Plan;

/// What is begun before there is a plan.
#[derive(Debug, Default)]
pub struct Ahead {
    #[cfg(target_os = "linux")]
    helper: Option<helper::Ahead>,
}

impl Ahead {
    /// To be called as soon as the sandbox is known, and before any thread is made,
    /// where user namespaces are likely to work.
    #[cfg(target_os = "linux")]
    pub fn start(sandbox: &Sandbox) -> Self {
        let own_network = crate::plan::namespaces(sandbox);
        Self { helper: own_network.and_then(helper::Ahead::start) }
    }

    #[cfg(not(target_os = "linux"))]
    pub fn start(_: &Sandbox) -> Self {
        Self::default()
    }
}

/// Removes a directory that commands have written, whatever modes they left in it,
/// and follows no link.
#[cfg(target_os = "linux")]
pub fn remove_tree(path: &std::path::Path) -> io::Result<()> {
    crate::linux::scratch::remove_tree(path)
}

#[cfg(not(target_os = "linux"))]
pub fn remove_tree(path: &std::path::Path) -> io::Result<()> {
    std::fs::remove_dir_all(path)
}

/// Removes one cache of a project, a directory of the project's. `false` if a running
/// command uses it.
#[cfg(target_os = "linux")]
pub fn clear_cache(own: &std::path::Path) -> io::Result<bool> {
    crate::linux::overlay::clear(own)
}

#[cfg(not(target_os = "linux"))]
pub fn clear_cache(own: &std::path::Path) -> io::Result<bool> {
    std::fs::remove_dir_all(own).map(|()| true)
}

/// Runs the command inside the plan. Returns only on failure.
#[cfg(target_os = "linux")]
pub fn run(plan: &Plan, command: &Command, ahead: Ahead) -> LaunchError {
    match steps::run(plan, command, ahead.helper) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

#[cfg(not(target_os = "linux"))]
pub fn run(_: &Plan, _: &Command, _: Ahead) -> LaunchError {
    LaunchError::Unsupported
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Step 2 fails before anything is restricted, so this can run in the test
    /// process itself.
    #[test]
    fn a_directory_replaced_by_a_link_is_not_granted() {
        use crate::plan::{Grant, Network, Why};
        use clash_policy::{FileCaps, PolicySpan};

        let dir = tempfile::tempdir().unwrap();
        let path = std::fs::canonicalize(dir.path()).unwrap().join("public");
        std::os::unix::fs::symlink("/etc", &path).unwrap();
        let grant = Grant {
            path: path.clone(),
            caps: FileCaps::READ,
            why: Why::Rule(PolicySpan::default()),
        };
        let plan = Plan {
            sandbox: "t".into(),
            baseline: Vec::new(),
            grants: vec![grant],
            net: Network::Deny,
            landlock_abi: crate::linux::sys::landlock_abi(),
            root: false,
            room: None,
            watch: None,
            limits: clash_policy::ResourceLimits::default(),
            group: None,
            scratch: None,
            redirects: Vec::new(),
        };
        let command = Command { program: "true".into(), ..Command::default() };
        let error = run(&plan, &command, Ahead::default());
        assert!(matches!(error, LaunchError::Grant { path: p, .. } if p == path));
    }
}
