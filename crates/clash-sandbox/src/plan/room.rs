//! A room as data: its mounts and its namespaces.
//!
//! The planner writes the list of steps, and `linux/mounts.rs` carries it out in order.
//! Each step is one thing that can fail, and the error names it. No step makes anything in
//! a tree of the user. Mount points inside a bound tree must already exist. Everything else
//! is on the room's own root, a tmpfs that ends with the room.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clash_policy::path::is_below;
use clash_policy::{FileCaps, NetworkAccess};

/// The namespaces and mounts of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomPlan {
    /// The mounts are made in a user namespace of the room. Root that may mount needs none.
    pub user_namespace: bool,
    /// An empty network namespace with a loopback; otherwise the host's network.
    pub own_network: bool,
    /// Ports that connect this network with the host.
    pub ports: SharedPorts,
    /// True if `socket(AF_UNIX)` works. A rule must grant a socket by name, and the room
    /// must show no other socket except in writable trees.
    pub unix_sockets: bool,
    /// True if the room's processes have unix sockets among themselves. The monitor connects
    /// them, so the room needs one, and a network of its own.
    pub own_sockets: bool,
    pub inside: RoomInterior,
    /// True if processes that the command leaves running live on.
    pub lives_on: bool,
    /// Files of the host in a directory that the session's directory replaces. The command
    /// writes a file of the same name there, and at the end the launcher copies its content
    /// to the host's file.
    pub returned: Vec<PathBuf>,
    /// In the order of execution.
    pub steps: Vec<MountStep>,
}

/// The ways between a room with its own network and the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedPorts {
    /// Ports of the host that the room reaches.
    pub reached: Vec<u16>,
    /// Ports of the room that the host reaches.
    pub served: Vec<u16>,
    /// The host rules by which the room's gate judges. Without them there is no gate.
    pub gate: Option<NetworkAccess>,
}

impl SharedPorts {
    pub fn is_empty(&self) -> bool {
        self.reached.is_empty() && self.served.is_empty() && self.gate.is_none()
    }
}

impl RoomPlan {
    /// True if a program may get the connected socket itself. The monitor has to connect in
    /// its place: a second `connect` on such a socket must not reach the kernel.
    pub(crate) fn hands_over(&self) -> bool {
        self.own_sockets
            && self.inside == RoomInterior::Commands
            && (self.ports.gate.is_some() || !self.ports.reached.is_empty())
    }

    /// The room's own places, which the command may use freely: scratch directories, and
    /// /dev/shm and the pseudo-terminals. The session's directory is not one of them.
    pub fn own(&self) -> Vec<PathBuf> {
        let mut own = Vec::new();
        for step in &self.steps {
            match step {
                MountStep::Scratch { at } | MountStep::ScratchMount { at } => own.push(at.clone()),
                MountStep::Devices => {
                    own.extend(["/dev/shm", "/dev/pts", "/dev/ptmx"].map(PathBuf::from));
                }
                _ => {}
            }
        }
        own
    }

    /// True if the room shows a cache of the project at a path. False if the host's own files
    /// are bound at exactly this path.
    pub(crate) fn has_cache_at(&self, path: &Path) -> bool {
        let mut caches = self.steps.iter().filter_map(|step| match step {
            MountStep::Cache { path, .. } => Some(path),
            _ => None,
        });
        let bound =
            |step: &MountStep| matches!(step, MountStep::Bind { path: at, .. } if at == path);
        caches.any(|cache| is_below(path, cache)) && !self.steps.iter().any(bound)
    }
}

/// The facilities that launchers of clash find inside a room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RoomInterior {
    /// None: commands run here.
    #[default]
    Commands,
    /// A monitor, and the calls that it needs.
    Monitors,
    /// Also namespaces and mounts. Mounts alone hold the file rules of such a room, because
    /// the kernel permits no mounts inside a Landlock domain with file rules.
    Rooms,
}

/// One operation on the room's mount tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountStep {
    /// A directory on the room's own root.
    Directory { at: PathBuf },
    /// An empty file on the room's own root, to mount on.
    File { at: PathBuf },
    /// A symbolic link on the room's own root.
    Link { at: PathBuf, to: PathBuf },
    /// A directory on the room's own root that the command may use freely.
    Scratch { at: PathBuf },
    /// As `Scratch`, where the command may not use the directories around it: a mount of
    /// its own.
    ScratchMount { at: PathBuf },
    /// The session's temporary directory `from` under another name.
    Show { from: PathBuf, at: PathBuf, access: MountAccess },
    /// A directory or an empty file to mount on, inside the session's directory that `Show`
    /// shows.
    Point { at: PathBuf, file: bool },
    /// The host's `path` at the same place.
    Bind { path: PathBuf, access: MountAccess },
    /// The project's own cache in place of a shared one. `own` is the directory for the
    /// changes.
    Cache { path: PathBuf, own: PathBuf, caps: FileCaps, overlay: bool },
    /// Doors in the place of programs of the directory `at`. `over` is true if the room shows
    /// the directory: its other programs stay.
    Doors { at: PathBuf, doors: PathBuf, names: Vec<String>, over: bool, overlay: bool },
    /// The tree at `path` once more, with less access.
    Rebind { path: PathBuf, access: MountAccess },
    /// An empty file or directory over `path`. `shows` names the places that later steps
    /// show below it, which need directories.
    Cover { path: PathBuf, file: bool, shows: Vec<CoveredPlace> },
    /// A file with the address of the room's resolver over the host's `at`.
    Resolver { at: PathBuf },
    /// A file with this text over the host's `at`: a copy without secrets.
    Masked { at: PathBuf, text: Arc<[u8]> },
    /// The harmless devices, and the room's own pseudo-terminals and shared memory, on
    /// /dev.
    Devices,
    /// The room's own processes on /proc. Writable only if inner user namespaces need to
    /// write their maps.
    Processes { maps: bool },
}

/// A place inside a covered directory, relative to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoveredPlace {
    pub below: PathBuf,
    pub file: bool,
}

/// The access of a mount besides reading. Set-user-id bits and device nodes never have an
/// effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountAccess {
    pub write: bool,
    pub execute: bool,
}

impl fmt::Display for MountAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.write, self.execute) {
            (false, false) => "read-only, noexec",
            (false, true) => "read-only",
            (true, false) => "writable, noexec",
            (true, true) => "writable",
        })
    }
}

impl fmt::Display for MountStep {
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
            Self::Doors { at, names, .. } => {
                write!(f, "{} doors in {}", names.len(), at.display())
            }
            Self::Rebind { path, access } => write!(f, "rebind {} {access}", path.display()),
            Self::Cover { path, shows, .. } if shows.is_empty() => {
                write!(f, "cover {}", path.display())
            }
            Self::Cover { path, shows, .. } => {
                write!(f, "cover {} but for", path.display())?;
                shows.iter().try_for_each(|shown| write!(f, " {}", shown.below.display()))
            }
            Self::Resolver { at } => write!(f, "resolver {}", at.display()),
            Self::Masked { at, .. } => write!(f, "masked copy {}", at.display()),
            Self::Devices => f.write_str("devices"),
            Self::Processes { maps: false } => f.write_str("processes"),
            Self::Processes { maps: true } => f.write_str("processes, writable"),
        }
    }
}
