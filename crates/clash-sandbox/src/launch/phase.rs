//! The phases of a launch, in order. `docs/launch.md` describes each of them.

use std::fmt;

/// A part of a launch. Every [`super::LaunchError`] belongs to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchPhase {
    /// With the rights of the caller, in the host's namespaces.
    Prepare,
    /// Leaves the host's namespaces.
    Isolate,
    /// Builds the mount tree and enters it.
    Mount,
    /// Leaves the host's network.
    Connect,
    /// Starts process 1 or the guard, and the command's process.
    Spawn,
    /// Restricts the command's process and calls `execve`.
    Restrict,
    /// Waits for the command and repeats its end.
    Attend,
}

impl LaunchPhase {
    pub const ALL: [Self; 7] = [
        Self::Prepare,
        Self::Isolate,
        Self::Mount,
        Self::Connect,
        Self::Spawn,
        Self::Restrict,
        Self::Attend,
    ];

    /// The name in messages, in `docs/launch.md` and of the file with the code.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Isolate => "isolate",
            Self::Mount => "mount",
            Self::Connect => "connect",
            Self::Spawn => "spawn",
            Self::Restrict => "restrict",
            Self::Attend => "attend",
        }
    }
}

impl fmt::Display for LaunchPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
