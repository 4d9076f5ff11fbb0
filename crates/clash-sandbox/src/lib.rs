//! From a sandbox declaration to kernel state.
//!
//! [`plan`] turns a policy's `Sandbox` into a [`plan::Plan`] that this host can
//! enforce to the last rule, or refuses and names the rule and the facility
//! that is missing. [`launch`] carries a plan out on the calling process and
//! replaces it with the command. [`probe`] finds out, by trying, what the host
//! can do. This is the only crate that may say `unsafe`, fork or exec, and the
//! raw calls are all in `linux/sys.rs`.
//!
//! What exists is the *direct tier*: Landlock, seccomp, no_new_privs, dropped
//! capabilities, closed descriptors and a scrubbed environment, put on by the
//! launcher itself before `execve`. No extra process stays, so exit status,
//! signals and job control are the command's own.
//!
//! What the direct tier does not do, by design of the kernel parts it uses:
//! - deny inside allow, patterns over names: the planner refuses those;
//! - metadata: `stat`, `chmod`, `chown`, `utimes` and `inotify` on paths
//!   outside every grant are not mediated by Landlock (Linux 6.18);
//! - other processes' command lines stay visible through /proc;
//! - lifetime: a background process outlives the command, and no limit is put
//!   on processes, memory or disk;
//! - a file handed over as stdin, stdout or stderr can be changed through that
//!   descriptor (`fchmod`, `ftruncate`) whatever the grants say.
//!
//! Each of these is a line of the plan's [`report::Report`] as well.

pub mod baseline;
pub mod disk;
pub mod environment;
pub mod host;
pub mod launch;
pub mod plan;
pub mod probe;
pub mod protect;
pub mod report;
pub mod room;
mod worktree;

#[cfg(target_os = "linux")]
mod linux;
