//! What the planner has to know of this machine, as typed facts. [`crate::probe`]
//! is the same in words, for people.
//!
//! Nothing is concluded from a sysctl, a kernel version or a file's mere
//! presence: what clash uses is used once, as this very user, which takes some
//! milliseconds. [`Host::remembered`] keeps the answers for as long as nothing
//! that could change them has changed (`host/record.rs`). Landlock and
//! seccomp are asked for at every launch: two system calls.

#[cfg(target_os = "linux")]
mod record;

use std::path::Path;

use crate::present::Present;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The kernel's Landlock ABI; 0 means there is none.
    pub landlock_abi: u32,
    /// Bit mask of Landlock bugs this kernel says it has fixed; 0 where it says
    /// nothing (before Linux 6.15).
    pub landlock_errata: u32,
    /// Whether seccomp filters that answer with an error number can be installed.
    pub seccomp: bool,
    /// A seccomp listener that is told of a call and answers with a descriptor.
    pub notify: Facility,
    /// Whether the effective user is root.
    pub root: bool,
    pub rooms: Rooms,
    /// Overlays in a user namespace, for copy-on-write.
    pub overlay: Facility,
    pub cgroup: Cgroup,
    /// Copies that share their blocks, in the directory of the record.
    pub reflink: Facility,
    pub around: Around,
    /// What it has of the system baseline, if that is known.
    pub present: Option<Present>,
}

/// Whether something was seen working.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Facility {
    Works,
    /// And which step failed.
    Missing {
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

/// Whether namespaces with mounts of their own can be made here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rooms {
    /// In a user namespace.
    Unprivileged,
    /// Root may mount without one, and keeps its rights over other users' files.
    Root,
    /// And which step failed.
    Impossible { why: String },
}

/// Whether cgroups with limits can be made below the one this process is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// The cgroup it was tried in, as `/proc/self/cgroup` names it.
    pub within: String,
    pub delegated: Facility,
}

impl Cgroup {
    /// None where this process is.
    fn none(why: &str) -> Self {
        #[cfg(target_os = "linux")]
        let within = crate::linux::around::own_cgroup().unwrap_or_default();
        #[cfg(not(target_os = "linux"))]
        let within = String::new();
        Self { within, delegated: Facility::missing(why) }
    }

    /// The answer for this process. Terminals and services have cgroups of their
    /// own, so in another one it is tried again.
    #[cfg(target_os = "linux")]
    pub fn here(&self) -> Facility {
        match crate::linux::around::own_cgroup() {
            Ok(own) if own == self.within => self.delegated.clone(),
            _ => crate::linux::around::cgroup().delegated,
        }
    }
}

/// What this process runs inside of. For messages, and for what an outer sandbox
/// makes impossible; nothing is permitted because of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Around {
    pub container: bool,
    /// `None`: cannot be told without namespaces.
    pub landlock: Option<bool>,
    /// Somebody outside is told of this process's system calls. He may carry them
    /// out in its place, with rights of his own: no sandbox made here could hold
    /// against that.
    pub listener: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no host that can be simulated")]
pub struct UnknownHost(pub String);

impl UnknownHost {
    pub const KNOWN: &'static str =
        "no-userns, no-overlay, no-notify, no-cgroup, container, root, abi=0 to abi=9";
}

const NOT_TRIED: &str = "not tried";

impl Host {
    /// A host that can do nothing, for others to be made of.
    pub fn bare() -> Self {
        let not_tried = || Facility::missing(NOT_TRIED);
        Self {
            landlock_abi: 0,
            landlock_errata: 0,
            seccomp: false,
            notify: not_tried(),
            root: false,
            rooms: Rooms::Impossible { why: NOT_TRIED.to_owned() },
            overlay: not_tried(),
            cgroup: Cgroup { within: String::new(), delegated: not_tried() },
            reflink: not_tried(),
            around: Around::default(),
            present: None,
        }
    }

    /// Tries everything now, but reflinks, which are a matter of the directory.
    #[cfg(target_os = "linux")]
    pub fn quick() -> Self {
        use crate::linux::{around, attempts};
        Self {
            rooms: attempts::rooms(),
            notify: attempts::notify(),
            overlay: attempts::overlay(),
            cgroup: around::cgroup(),
            around: around::look(),
            ..Self::ask()
        }
    }

    /// What one system call each can tell.
    #[cfg(target_os = "linux")]
    fn ask() -> Self {
        Self {
            landlock_abi: crate::linux::sys::landlock_abi(),
            seccomp: crate::linux::sys::seccomp_errno_available(),
            root: rustix::process::geteuid().is_root(),
            ..Self::bare()
        }
    }

    /// Nothing is enforced elsewhere yet, so the planner will refuse.
    #[cfg(not(target_os = "linux"))]
    pub fn quick() -> Self {
        Self { rooms: Rooms::Impossible { why: "not Linux".to_owned() }, ..Self::bare() }
    }

    /// As [`Host::quick`], with what is costly to try kept in `file`, whose
    /// directory is made for the owner alone and must be out of reach of every sandbox. A file that cannot be read or written
    /// only costs time.
    pub fn remembered(file: &Path) -> Self {
        Recorded::read(file).host()
    }

    /// Tries everything now and puts it on record.
    #[cfg(target_os = "linux")]
    pub fn afresh(file: &Path) -> Self {
        use crate::linux::{attempts, sys};
        use std::os::unix::fs::DirBuilderExt;
        let directory = file.parent().unwrap_or(Path::new("/"));
        // Without the directory it is found out every time.
        let _ = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        let host = Self {
            reflink: attempts::reflink(directory),
            landlock_errata: sys::landlock_errata().unwrap_or(0),
            present: Present::look(),
            ..Self::quick()
        };
        if let Some(key) = record::key() {
            record::write(file, &key, &host);
        }
        host
    }

    /// What is on record and still true, without trying anything.
    #[cfg(target_os = "linux")]
    pub fn on_record(file: &Path) -> Option<Self> {
        record::find(&record::text(file)?, &record::key()?)
    }

    #[cfg(not(target_os = "linux"))]
    pub fn afresh(_: &Path) -> Self {
        Self::quick()
    }

    #[cfg(not(target_os = "linux"))]
    pub fn on_record(_: &Path) -> Option<Self> {
        None
    }

    /// Another host: `no-userns`, `no-overlay`, `no-notify` (no seccomp listener),
    /// `no-cgroup`, `abi=N`, `container` (no namespaces, as under the usual runtimes) or `root`.
    pub fn simulate(&mut self, what: &str) -> Result<(), UnknownHost> {
        let abi = what.strip_prefix("abi=").and_then(|n| n.parse().ok()).filter(|n| *n < 10);
        match (what, abi) {
            (_, Some(abi)) => self.landlock_abi = abi,
            ("no-userns", _) => {
                self.without_namespaces("no user namespaces (simulated)");
            }
            ("container", _) => {
                self.without_namespaces("the container's filter denies new namespaces (simulated)");
                self.around.container = true;
            }
            ("no-notify", _) => self.notify = Facility::missing("no listener (simulated)"),
            ("no-cgroup", _) => self.cgroup = Cgroup::none("no cgroups (simulated)"),
            ("no-overlay", _) => self.overlay = Facility::missing("no overlays (simulated)"),
            ("root", _) => (self.root, self.rooms) = (true, Rooms::Root),
            _ => return Err(UnknownHost(what.to_owned())),
        }
        Ok(())
    }

    fn without_namespaces(&mut self, why: &str) {
        self.rooms = Rooms::Impossible { why: why.to_owned() };
        self.overlay = Facility::missing(why);
    }
}

/// What was found out before, not yet compared with how it is now.
#[derive(Debug)]
pub struct Recorded<'a> {
    file: &'a Path,
    #[cfg(target_os = "linux")]
    text: Option<String>,
}

#[cfg(target_os = "linux")]
impl<'a> Recorded<'a> {
    pub fn read(file: &'a Path) -> Self {
        Self { file, text: record::text(file) }
    }

    /// Whether user namespaces are likely to work, if that is all one wants to know.
    pub fn promises_rooms(&self) -> bool {
        self.text.as_deref().is_some_and(record::has_rooms)
    }

    pub fn host(self) -> Host {
        let Some(key) = record::key() else { return Host::quick() };
        let known = self.text.as_deref().and_then(|text| record::find(text, &key));
        let Some(mut known) = known else { return Host::afresh(self.file) };
        if !known.present.as_ref().is_some_and(Present::is_still_so) {
            known.present = Present::look();
            if known.present.is_some() {
                record::write(self.file, &key, &known);
            }
        }
        let Host { landlock_abi, seccomp, root, .. } = Host::ask();
        Host { landlock_abi, seccomp, root, ..known }
    }
}

#[cfg(not(target_os = "linux"))]
impl<'a> Recorded<'a> {
    pub fn read(file: &'a Path) -> Self {
        Self { file }
    }

    pub fn promises_rooms(&self) -> bool {
        false
    }

    pub fn host(self) -> Host {
        Host::afresh(self.file)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_quick_look_is_repeatable() {
        assert_eq!(Host::quick(), Host::quick());
    }

    #[test]
    fn a_cgroup_other_than_the_one_tried_is_tried_again() {
        let elsewhere = Cgroup { within: "/nowhere".into(), delegated: Facility::Works };
        assert_eq!(elsewhere.here(), crate::linux::around::cgroup().delegated);
    }

    #[test]
    fn other_hosts_can_be_played() {
        let mut host = Host::quick();
        host.simulate("abi=3").unwrap();
        host.simulate("no-userns").unwrap();
        assert_eq!(host.landlock_abi, 3);
        assert!(matches!(host.rooms, Rooms::Impossible { .. }));
        assert!(!host.overlay.works());
        host.simulate("no-notify").unwrap();
        host.simulate("no-cgroup").unwrap();
        assert!(!host.notify.works() && !host.cgroup.here().works());
        host.simulate("root").unwrap();
        assert_eq!((host.root, &host.rooms), (true, &Rooms::Root));
        host.simulate("container").unwrap();
        assert!(host.around.container && matches!(host.rooms, Rooms::Impossible { .. }));
        for junk in ["abi=x", "abi=10", "abi=", "windows", ""] {
            assert_eq!(host.simulate(junk), Err(UnknownHost(junk.into())));
        }
    }
}
