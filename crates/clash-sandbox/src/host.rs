//! What the planner has to know of this machine. [`crate::probe`] is the
//! thorough sibling that people read.
//!
//! Landlock and seccomp are asked for at every launch: two system calls. Whether
//! a room can be made is found out by making one, as this very user, which takes
//! milliseconds; [`Host::remembered`] keeps the answer for as long as nothing
//! that could change it has changed: the boot, the user, the user namespace and
//! what an outer sandbox has done to this process.

use std::path::Path;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The kernel's Landlock ABI; 0 means there is none.
    pub landlock_abi: u32,
    /// Whether seccomp filters that answer with an error number can be installed.
    pub seccomp: bool,
    /// Whether the effective user is root.
    pub root: bool,
    pub rooms: Rooms,
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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no host that can be simulated")]
pub struct UnknownHost(pub String);

impl Host {
    /// Tries everything now.
    #[cfg(target_os = "linux")]
    pub fn quick() -> Self {
        let rooms = crate::linux::attempts::rooms();
        Self { rooms, ..Self::ask() }
    }

    /// What one system call each can tell.
    #[cfg(target_os = "linux")]
    fn ask() -> Self {
        Self {
            landlock_abi: crate::linux::sys::landlock_abi(),
            seccomp: crate::linux::sys::seccomp_errno_available(),
            root: rustix::process::geteuid().is_root(),
            rooms: Rooms::Impossible { why: "not tried".to_owned() },
        }
    }

    /// Nothing is enforced elsewhere yet, so the planner will refuse.
    #[cfg(not(target_os = "linux"))]
    pub fn quick() -> Self {
        let rooms = Rooms::Impossible { why: "not Linux".to_owned() };
        Self { landlock_abi: 0, seccomp: false, root: false, rooms }
    }

    /// As [`Host::quick`], with what is costly to try kept in `file`, which must
    /// be out of reach of every sandbox. A file that cannot be read or written
    /// only costs time.
    #[cfg(target_os = "linux")]
    pub fn remembered(file: &Path) -> Self {
        let Some(key) = key() else { return Self::quick() };
        let known = std::fs::read_to_string(file).ok();
        if let Some(rooms) = known.and_then(|text| Rooms::read(&text, &key)) {
            return Self { rooms, ..Self::ask() };
        }
        let host = Self::quick();
        let fresh = file.with_extension(format!("{}.new", std::process::id()));
        let written = std::fs::write(&fresh, host.rooms.write(&key));
        if written.and_then(|()| std::fs::rename(&fresh, file)).is_err() {
            let _ = std::fs::remove_file(&fresh);
        }
        host
    }

    #[cfg(not(target_os = "linux"))]
    pub fn remembered(_: &Path) -> Self {
        Self::quick()
    }

    /// Another host: `no-userns`, `abi=N`, `container` (no namespaces, as under
    /// the usual runtimes) or `root`.
    pub fn simulate(&mut self, what: &str) -> Result<(), UnknownHost> {
        let abi = what.strip_prefix("abi=").and_then(|n| n.parse().ok()).filter(|n| *n < 100);
        match (what, abi) {
            (_, Some(abi)) => self.landlock_abi = abi,
            ("no-userns", _) => {
                self.rooms = Rooms::Impossible { why: "no user namespaces (simulated)".to_owned() };
            }
            ("container", _) => {
                self.rooms = Rooms::Impossible {
                    why: "the container's filter denies new namespaces (simulated)".to_owned(),
                };
            }
            ("root", _) => (self.root, self.rooms) = (true, Rooms::Root),
            _ => return Err(UnknownHost(what.to_owned())),
        }
        Ok(())
    }
}

const FORMAT: &str = "clash host 1";

impl Rooms {
    fn write(&self, key: &str) -> String {
        let answer = match self {
            Self::Unprivileged => "unprivileged".to_owned(),
            Self::Root => "root".to_owned(),
            Self::Impossible { why } => format!("impossible {why}"),
        };
        format!("{FORMAT}\n{key}\n{answer}\n")
    }

    fn read(text: &str, key: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next() != Some(FORMAT) || lines.next() != Some(key) {
            return None;
        }
        match lines.next()? {
            "unprivileged" => Some(Self::Unprivileged),
            "root" => Some(Self::Root),
            other => {
                other.strip_prefix("impossible ").map(|why| Self::Impossible { why: why.into() })
            }
        }
    }
}

/// Everything on which the answer depends, on one line.
#[cfg(target_os = "linux")]
fn key() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/user").ok()?;
    let filtered = rustix::thread::secure_computing_mode().ok()?;
    let no_new_privs = rustix::thread::no_new_privs().ok()?;
    let user = rustix::process::geteuid().as_raw();
    let namespace = namespace.display();
    Some(format!("{} {user} {namespace} {filtered:?} {no_new_privs}", boot.trim()))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_quick_look_is_repeatable() {
        assert_eq!(Host::quick(), Host::quick());
    }

    #[test]
    fn what_was_found_is_remembered_until_something_changes() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("host");
        let host = Host::remembered(&file);
        assert_eq!(host, Host::quick());
        let kept = std::fs::read_to_string(&file).unwrap();
        let other = Rooms::Impossible { why: "so it says".into() };
        std::fs::write(&file, other.write(&key().unwrap())).unwrap();
        assert_eq!(Host::remembered(&file).rooms, other);
        std::fs::write(&file, other.write("another boot")).unwrap();
        assert_eq!(Host::remembered(&file), host);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), kept);
        std::fs::write(&file, "junk").unwrap();
        assert_eq!(Host::remembered(&file), host);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn other_hosts_can_be_played() {
        let mut host = Host::quick();
        host.simulate("abi=3").unwrap();
        host.simulate("no-userns").unwrap();
        assert_eq!(host.landlock_abi, 3);
        assert!(matches!(host.rooms, Rooms::Impossible { .. }));
        host.simulate("root").unwrap();
        assert_eq!((host.root, &host.rooms), (true, &Rooms::Root));
        assert_eq!(host.simulate("abi=x"), Err(UnknownHost("abi=x".into())));
        assert!(host.simulate("windows").is_err());
    }
}
