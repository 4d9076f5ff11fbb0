//! The reasons to refuse a plan: the rule, the missing facility, and a remedy.

use std::io;
use std::path::PathBuf;

use clash_policy::path::PathError;
use clash_policy::{Effect, FileCaps, PolicySpan};

use super::{GrantReason, LANDLOCK_ABI_NEEDED};
use crate::planted::SuspectLink;

/// The reasons why a sandbox cannot be planned on this host.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("this kernel offers no Landlock, which every sandbox needs for its file rules")]
    NoLandlock,
    #[error(
        "Landlock ABI {abi} is too old, {LANDLOCK_ABI_NEEDED} is needed: {}",
        unprotected(*.abi)
    )]
    LandlockTooOld { abi: u32 },
    #[error("this kernel offers no seccomp filters, which the network rule and io_uring need")]
    NoSeccomp,
    #[error(
        "a sandbox around this one answers for its system calls, and could carry out what an \
         inner one denies"
    )]
    OuterListener,
    #[error("{span}: `{rule}` cannot be enforced by this version")]
    NotYet { rule: String, span: PolicySpan },
    #[error("{span}: `{rule}` names no path here")]
    Path { rule: String, span: PolicySpan, source: PathError },
    #[error("{span}: `{rule}` cannot be resolved")]
    Unresolvable { rule: String, span: PolicySpan, source: io::Error },
    #[error("{rule}; holding that takes a room, and none can be made here: {why}")]
    NoRoom { rule: Box<PlanError>, why: String },
    #[error(
        "{span}: `{rule}` holds only if what the command does is watched, and that cannot be \
         done here: {why}"
    )]
    NoMonitor { rule: String, span: PolicySpan, why: String },
    #[error("{span}: the limit `processes` cannot be held for root here: {why}")]
    Uncounted { why: String, span: PolicySpan },
    #[error(
        "{span}: port {port} of localhost is to be the only way out of a network that is denied"
    )]
    Port { port: u16, span: PolicySpan },
    #[error("{span}: the sandbox may reach some hosts and no others")]
    Hosts { span: PolicySpan },
    #[error(
        "{span}: the sandbox may reach some hosts and no others; their gate cannot be made \
         here: {why}"
    )]
    NoGate { span: PolicySpan, why: String },
    #[error(
        "{span}: `{effect}` on `{rule}` takes away the right to execute inside `{}`, \
         where it is granted",
        outer.display()
    )]
    Execute { effect: Effect, rule: String, span: PolicySpan, outer: PathBuf },
    #[error("{0}")]
    PlantedLink(Box<SuspectLink>),
    #[error("`{}`, which the launcher made, is a link now", path.display())]
    Replaced { path: PathBuf },
    #[error("`{}`, which the launcher needs, cannot be resolved", path.display())]
    Extra { path: PathBuf, source: io::Error },
    #[error(
        "`{caps}` on `{}` ({why}) would reach `{}`, which no sandbox may touch",
        path.display(), cage.display()
    )]
    Caged { path: PathBuf, caps: FileCaps, why: GrantReason, cage: PathBuf },
}

/// The gap that a sandbox at this ABI would have, against the promise of the direct tier.
fn unprotected(abi: u32) -> &'static str {
    match abi {
        0 => "no file rule would hold",
        1 | 2 => "files could be truncated without the right to write them",
        3 => "TCP could not be denied",
        4 => "devices could be controlled without the right to write them",
        _ => "processes outside the sandbox could be signalled and abstract sockets reached",
    }
}

const NO_ROOM: &str = "let this user make namespaces: on Ubuntu an AppArmor profile for clash \
     with `userns,` (`clash doctor --fix`), elsewhere `sysctl user.max_user_namespaces` or the \
     container's security options";

impl From<SuspectLink> for PlanError {
    fn from(suspect: SuspectLink) -> Self {
        Self::PlantedLink(Box::new(suspect))
    }
}

impl PlanError {
    /// The remedy, as a sentence for `hint:`.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::NoLandlock => {
                "use Linux 6.12 or newer, and add `landlock` to the `lsm=` boot parameter if it \
                 is missing there; `clash doctor` shows what this kernel offers"
            }
            Self::LandlockTooOld { .. } => "use Linux 6.12 or newer",
            Self::OuterListener => {
                "what runs here is confined already: run it without clash, or start the agent \
                 outside of that sandbox; one of the two can confine it, not both"
            }
            Self::NoSeccomp => {
                "use a kernel with CONFIG_SECCOMP_FILTER, or let the container runtime permit \
                 the seccomp system call"
            }
            Self::NotYet { .. } => {
                "leave it out of the sandbox; until it can be enforced nothing runs in it"
            }
            Self::Path { source: PathError::ProjectTooWide(_), .. } => {
                "start the session in the project's own directory"
            }
            Self::Path { .. } => "write an absolute path, or start with `$PWD`, `$HOME` or `~`",
            Self::Unresolvable { .. } => "look at the path's links with `namei -l`",
            Self::NoRoom { rule, .. } if matches!(**rule, Self::Hosts { .. }) => {
                return Some(format!(
                    "{NO_ROOM}; or name only addresses (`\"10.0.0.0/8\"`) and \
                     `localhost(ports = …)`, which need no room"
                ));
            }
            Self::NoRoom { rule, .. } => {
                let other = rule.hint().unwrap_or_default();
                return Some(format!("{NO_ROOM}; or {other}"));
            }
            Self::Execute { .. } => {
                "deny reading there too, or allow the parts that may be executed one by one"
            }
            Self::NoMonitor { .. } => {
                "use Linux 5.19 or newer, or let the container runtime or the sandbox around this \
                 one permit seccomp listeners; `clash doctor` tries one"
            }
            Self::Uncounted { .. } => {
                "run as a plain user, whose processes every kernel counts, use Linux 6.14 or newer \
                 with a writable /proc/sys, or leave the limit out"
            }
            Self::NoGate { .. } => {
                "load the kernel module veth (`modprobe veth`), or deny the network; `clash doctor` \
                 tries a gate"
            }
            Self::Port { .. } | Self::Hosts { .. } => "deny the network, or allow all of it",
            Self::PlantedLink(suspect) => {
                return Some(format!(
                    "look at the link with `ls -l {}`; if you did not make it, remove it; if it \
                     is yours, allow `{}` by its own path",
                    suspect.link.display(),
                    suspect.target.display()
                ));
            }
            Self::Replaced { .. } => {
                "a command that still runs may be setting a trap: look at the process list"
            }
            Self::Extra { .. } => "look at the path's links with `namei -l`",
            Self::Caged { cage, .. } => {
                return Some(format!(
                    "allow the directories beside `{}` one by one",
                    cage.display()
                ));
            }
        };
        Some(text.to_owned())
    }

    /// The line of the policy that is refused. `None` if the host is the reason, or a path
    /// that the launcher itself needs.
    pub fn span(&self) -> Option<&PolicySpan> {
        match self {
            Self::NoLandlock
            | Self::LandlockTooOld { .. }
            | Self::NoSeccomp
            | Self::OuterListener
            | Self::Replaced { .. }
            | Self::Extra { .. } => None,
            Self::NoRoom { rule, .. } => rule.span(),
            Self::NotYet { span, .. }
            | Self::Execute { span, .. }
            | Self::Port { span, .. }
            | Self::Hosts { span }
            | Self::NoGate { span, .. }
            | Self::Uncounted { span, .. }
            | Self::NoMonitor { span, .. }
            | Self::Path { span, .. }
            | Self::Unresolvable { span, .. } => Some(span),
            Self::PlantedLink(suspect) => Some(&suspect.rule.span),
            Self::Caged { why, .. } => match why {
                GrantReason::Rule(span) => Some(span),
                GrantReason::Worktree | GrantReason::Launcher => None,
            },
        }
    }
}
