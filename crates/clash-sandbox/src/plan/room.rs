//! A room as data: what a command of the namespaced tier sees of the disk, and
//! which namespaces it gets.
//!
//! The planner writes the list, `linux/mounts.rs` carries it out in order; each
//! step is one thing that can fail, and the error names it. Nothing here is ever
//! made in a tree of the user: mount points inside a bound tree must exist
//! already, everything else lives on the room's own root, which is a tmpfs that
//! dies with the room.

use std::fmt;
use std::path::{Path, PathBuf};

use clash_policy::Caps;
use clash_policy::path::is_below;

/// How a command of the namespaced tier is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Mounts are made in a user namespace of the room's own. Root that may
    /// mount needs none.
    pub user_namespace: bool,
    /// An empty network namespace with a loopback; otherwise the host's network.
    pub own_network: bool,
    /// Ports across its wall.
    pub ports: Ports,
    /// Whether `socket(AF_UNIX)` works: only where a rule grants a socket by name
    /// and no other can be seen but in trees the policy lets be written.
    pub unix_sockets: bool,
    pub inside: Inside,
    /// Whether processes that the command leaves running live on.
    pub lives_on: bool,
    /// Files of the host in a directory that is replaced by the session's: the
    /// command writes one of the same name there, and the launcher copies its content
    /// to the host's file when the command has ended.
    pub returned: Vec<PathBuf>,
    /// In the order in which they are carried out.
    pub steps: Vec<Step>,
}

/// TCP ports of the loopback that a room with a network of its own shares with
/// the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// The host's, reached from inside.
    pub reached: Vec<u16>,
    /// The room's, reached from the host.
    pub served: Vec<u16>,
}

impl Ports {
    pub fn is_empty(&self) -> bool {
        self.reached.is_empty() && self.served.is_empty()
    }
}

impl Room {
    /// Places in the view that are the room's own, to be used as one likes.
    pub fn own(&self) -> Vec<PathBuf> {
        let mut own = Vec::new();
        for step in &self.steps {
            match step {
                Step::Scratch { at } | Step::ScratchMount { at } => own.push(at.clone()),
                Step::Devices => {
                    own.extend(["/dev/shm", "/dev/pts", "/dev/ptmx"].map(PathBuf::from));
                }
                _ => {}
            }
        }
        own
    }

    /// True if the room shows a cache of the project at a path. The host's own files
    /// are not there.
    pub(crate) fn has_cache_at(&self, path: &Path) -> bool {
        let mut caches = self.steps.iter().filter_map(|step| match step {
            Step::Cache { path, .. } => Some(path),
            _ => None,
        });
        let bound = |step: &Step| matches!(step, Step::Bind { path: at, .. } if at == path);
        caches.any(|cache| is_below(path, cache)) && !self.steps.iter().any(bound)
    }
}

/// What launchers of clash that work in a room find there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inside {
    /// Nothing is left to them: commands run here.
    #[default]
    Commands,
    /// The monitor a process can have, and the calls it works with.
    Monitors,
    /// These, namespaces and mounts. Mounts alone hold the file rules of such a
    /// room, because the kernel lets nobody in a Landlock domain with file rules
    /// mount anything.
    Rooms,
}

/// One operation on the room's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A directory on the room's own root.
    Directory { at: PathBuf },
    /// An empty file on the room's own root, to mount on.
    File { at: PathBuf },
    /// A symbolic link on the room's own root.
    Link { at: PathBuf, to: PathBuf },
    /// A directory on the room's own root that the command may use as it likes.
    Scratch { at: PathBuf },
    /// The same where the directories around it are not the command's to use: a
    /// mount of its own.
    ScratchMount { at: PathBuf },
    /// The session's temporary directory `from` under another name.
    Show { from: PathBuf, at: PathBuf, access: Access },
    /// A directory, or an empty file, in what is shown that way, to mount on.
    Point { at: PathBuf, file: bool },
    /// The host's `path` at the same place.
    Bind { path: PathBuf, access: Access },
    /// The project's own cache at the place of a shared one. `own` is the directory
    /// that keeps the changes.
    Cache { path: PathBuf, own: PathBuf, caps: Caps, overlay: bool },
    /// What can be seen at `path` already, once more with less access.
    Rebind { path: PathBuf, access: Access },
    /// Nothing, in the place of what can be seen at `path`. What later steps show
    /// below it is named here, because it needs directories to be shown in.
    Cover { path: PathBuf, file: bool, shows: Vec<Shown> },
    /// The harmless devices, own pseudo-terminals and shared memory on /dev.
    Devices,
    /// The room's own processes on /proc, read-only unless they are to write the
    /// maps of user namespaces of their own.
    Processes { maps: bool },
}

/// A place inside a covered directory, relative to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub below: PathBuf,
    pub file: bool,
}

/// What a mount lets through besides reading. Set-user-id bits and device nodes
/// never count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub write: bool,
    pub execute: bool,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.write, self.execute) {
            (false, false) => "read-only, noexec",
            (false, true) => "read-only",
            (true, false) => "writable, noexec",
            (true, true) => "writable",
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory { at } => write!(f, "directory {}", at.display()),
            Self::File { at } => write!(f, "file {}", at.display()),
            Self::Link { at, to } => write!(f, "link {} to {}", at.display(), to.display()),
            Self::Scratch { at } | Self::ScratchMount { at } => {
                write!(f, "scratch {}", at.display())
            }
            Self::Show { from, at, access } => {
                write!(f, "show {} at {} {access}", from.display(), at.display())
            }
            Self::Point { at, .. } => write!(f, "mount point {}", at.display()),
            Self::Bind { path, access } => write!(f, "bind {} {access}", path.display()),
            Self::Cache { path, own, .. } => {
                write!(f, "cache {} kept in {}", path.display(), own.display())
            }
            Self::Rebind { path, access } => write!(f, "rebind {} {access}", path.display()),
            Self::Cover { path, shows, .. } if shows.is_empty() => {
                write!(f, "cover {}", path.display())
            }
            Self::Cover { path, shows, .. } => {
                write!(f, "cover {} but for", path.display())?;
                shows.iter().try_for_each(|shown| write!(f, " {}", shown.below.display()))
            }
            Self::Devices => f.write_str("devices"),
            Self::Processes { maps: false } => f.write_str("processes"),
            Self::Processes { maps: true } => f.write_str("processes, writable"),
        }
    }
}
