//! Facts about this machine, as plain data for the planner.
//!
//! [`crate::host`] finds them out and records them. The planner only reads them, so a
//! test can plan for any machine. [`crate::host::probe`] says the same in words, for
//! `clash doctor`.

mod present;

use std::path::PathBuf;

use crate::disk::Disk;
pub use present::BaselinePlaces;

/// The abilities of this machine for this user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    /// The kernel's Landlock ABI; 0 means that the kernel has no Landlock.
    pub landlock_abi: u32,
    /// Bit mask of the Landlock bugs that this kernel reports as fixed. 0 before
    /// Linux 6.15, which cannot report them.
    pub landlock_errata: u32,
    /// True if a seccomp filter can answer a call with an error number.
    pub seccomp: bool,
    /// A seccomp listener that receives a call and answers it with a descriptor.
    pub notify: Facility,
    /// True if the effective user is root.
    pub root: bool,
    pub rooms: RoomSupport,
    /// Overlays in a user namespace, for copy-on-write.
    pub overlay: Facility,
    /// A second network namespace and a link to it, for the gate of host rules.
    pub gate: Facility,
    pub cgroup: CgroupFacts,
    /// Copies that share their blocks, in the directory of the record.
    pub reflink: Facility,
    pub around: Surroundings,
    /// Where the entries of the system baseline are, if known.
    pub present: Option<BaselinePlaces>,
    /// Ways to hold the limits of one sandbox. [`crate::host::with_limit_facts`] fills
    /// them in.
    pub limits: LimitFacts,
}

/// The result of trying a kernel facility.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Facility {
    Works,
    Missing {
        /// The step that failed, and its error.
        why: String,
    },
}

impl Facility {
    pub fn works(&self) -> bool {
        *self == Self::Works
    }

    pub(crate) fn missing(why: impl Into<String>) -> Self {
        Self::Missing { why: why.into() }
    }
}

/// How this user can make a room: namespaces with mounts of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoomSupport {
    /// In a user namespace.
    Unprivileged,
    /// Root may mount without a user namespace, and keeps its rights over other users'
    /// files.
    Root,
    Impossible {
        /// The step that failed, and its error.
        why: String,
    },
}

/// Whether this user can make cgroups with limits below the cgroup of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupFacts {
    /// The cgroup of the trial, as `/proc/self/cgroup` names it.
    pub within: String,
    pub delegated: Facility,
}

/// Ways to hold the limits of one sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitFacts {
    /// The cgroup in which a cgroup with these limits can be made.
    pub cgroup: Option<PathBuf>,
    /// Whether the process numbers of a process namespace can be limited. The kernel's
    /// own limit does not count root's processes.
    pub process_numbers: Facility,
}

impl Default for LimitFacts {
    fn default() -> Self {
        Self { cgroup: None, process_numbers: Facility::missing(NOT_TRIED) }
    }
}

/// The sandboxes and containers around this process. Messages name them, and the
/// planner refuses a plan that an outer sandbox makes useless. They permit nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    pub container: bool,
    /// `None`: only a trial with namespaces could tell, and they cannot be made.
    pub landlock: Option<bool>,
    /// A seccomp listener of an outer sandbox receives the calls of this process. It may
    /// carry them out with its own rights, so no sandbox made here could hold.
    pub listener: bool,
}

const NOT_TRIED: &str = "not tried";

impl HostFacts {
    /// A host without any facility: everything is missing, with the reason `not tried`. A
    /// base for others.
    pub fn bare() -> Self {
        let not_tried = || Facility::missing(NOT_TRIED);
        Self {
            landlock_abi: 0,
            landlock_errata: 0,
            seccomp: false,
            notify: not_tried(),
            root: false,
            rooms: RoomSupport::Impossible { why: NOT_TRIED.to_owned() },
            overlay: not_tried(),
            gate: not_tried(),
            cgroup: CgroupFacts { within: String::new(), delegated: not_tried() },
            reflink: not_tried(),
            around: Surroundings::default(),
            present: None,
            limits: LimitFacts::default(),
        }
    }

    /// The disk of this host. It knows the places of the baseline already, if the facts
    /// have them.
    pub fn disk(&self) -> Disk {
        match &self.present {
            Some(present) => Disk::with_baseline(present.places().to_vec()),
            None => Disk::default(),
        }
    }
}
