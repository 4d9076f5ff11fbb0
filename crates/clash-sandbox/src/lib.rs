//! From a sandbox declaration to kernel state.
//!
//! [`plan`] turns a policy's `Sandbox` into a [`plan::SandboxPlan`] that this host can
//! enforce to the last rule, or refuses and names the rule and the facility
//! that is missing. [`launch`] carries a plan out on the calling process and
//! replaces it with the command. [`host`] finds out, by trying, what the host
//! can do. This is the only crate that may say `unsafe`, fork or exec, and the
//! raw calls are all in `linux/sys`.
//!
//! There are three tiers. *Direct*: Landlock, seccomp, no_new_privs, dropped
//! capabilities, closed descriptors and a scrubbed environment, put on by the
//! launcher itself before `execve`. No extra process stays, so exit status,
//! signals and job control are the command's own. A *room* ([`plan::room`]) adds
//! namespaces: a view of the disk in which what is not granted is not there,
//! processes, devices, temporary files and, where the policy denies it, a network
//! of its own. The launcher stays as the parent and ends as the command ended.
//! *Watched* is the direct tier with such a parent, where no namespaces can be
//! made.
//!
//! In a room and in the watched tier the launcher is also the monitor: it carries
//! out, in the command's place, the calls that change names and the opens that a
//! rule might refuse, so that rules hold for names that do not exist yet.
//!
//! The planner takes the direct tier where it holds every rule, a room where one
//! can be made, and refuses what cannot be held. What is not held is a line of
//! the plan's [`plan::report::PlanReport`].
#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "nothing is enforced elsewhere yet")
)]

mod aliases;
pub mod baseline;
mod below;
pub mod caseless;
pub mod disk;
pub mod door;
pub mod environment;
pub mod facts;
pub mod gate;
pub mod host;
pub mod launch;
pub mod mapped;
pub mod observe;
pub mod plan;
pub mod planted;
pub mod repository;
pub mod room_ledger;
pub mod visit;
pub mod witness;
mod worktree;

#[cfg(target_os = "linux")]
mod linux;
