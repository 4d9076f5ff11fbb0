//! Limits on all of a room together, where this user may make cgroups.
//!
//! A limit on address space, the only one without cgroups, is per process and
//! hits programs that reserve more than they use. Where a cgroup of version 2 can
//! be made beside or above the one this process is in, with the controllers of
//! memory and processes, the room gets one for itself. That is tried, not read
//! off: a group is made, a process put into it, and both are gone again.
//!
//! The group is removed when the room has ended. One that stayed because its
//! launcher was killed is empty, and the next launcher removes it.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use clash_policy::Limits;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, unlinkat};

use super::sys;

const PREFIX: &str = "clash-";

/// The name of a group that nobody else makes: threads of one process may each try.
pub(crate) fn unused_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{PREFIX}{}-{}", sys::own_pid(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A group of a room's own; dropping it removes it.
#[derive(Debug)]
pub(crate) struct Group {
    parent: OwnedFd,
    name: String,
    processes: OwnedFd,
}

impl Group {
    pub(crate) fn new(parent: &Path, limits: &Limits) -> io::Result<Self> {
        sweep(parent);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, parent, flags, Mode::empty())?;
        let name = unused_name();
        mkdirat(&dir, &name, Mode::from_raw_mode(0o755))?;
        let made = || -> io::Result<OwnedFd> {
            let at = parent.join(&name);
            if let Some(bytes) = limits.memory_bytes {
                fs::write(at.join("memory.max"), bytes.to_string())?;
                // Where there is swap it is no way around the limit.
                match fs::write(at.join("memory.swap.max"), "0") {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            if let Some(most) = limits.processes {
                fs::write(at.join("pids.max"), most.to_string())?;
            }
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            Ok(openat(CWD, at.join("cgroup.procs"), flags, Mode::empty())?)
        };
        match made() {
            Ok(processes) => Ok(Self { parent: dir, name, processes }),
            Err(error) => {
                let _ = unlinkat(&dir, &name, AtFlags::REMOVEDIR);
                Err(error)
            }
        }
    }

    /// Puts the calling process into the group.
    pub(crate) fn join(&self) -> rustix::io::Result<()> {
        rustix::io::write(&self.processes, b"0").map(drop)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR);
    }
}

/// Removes groups whose launcher is gone; one that is in use cannot be removed.
pub(crate) fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let launcher = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let launcher = launcher.and_then(|name| name.split('-').next());
        if let Some(pid) = launcher.filter(|pid| !pid.is_empty())
            && pid.bytes().all(|byte| byte.is_ascii_digit())
            && !Path::new("/proc").join(pid).exists()
        {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Whether there comes a moment with no group of this process: other tests try
/// theirs at the same time.
#[cfg(test)]
pub(crate) fn nothing_is_left(parent: &Path) -> bool {
    let own = format!("{PREFIX}{}-", sys::own_pid());
    (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let mut names = fs::read_dir(parent).into_iter().flatten().flatten();
        !names.any(|entry| entry.file_name().to_string_lossy().starts_with(&own))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_takes_a_process_and_leaves_nothing_behind() {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mount = mounts.lines().find_map(|line| {
            let mut words = line.split(' ');
            let (_, at, kind) = (words.next()?, words.next()?, words.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(at))
        });
        let Some(parent) = mount.filter(|at| works(at, &Limits::default())) else {
            use std::io::Write;
            let _ = writeln!(io::stderr(), "SKIPPED: no cgroup can be made here");
            return;
        };
        // No process has such a number, and no other test.
        let left = parent.join(format!("{PREFIX}{}-0", 4_194_304 + sys::own_pid()));
        fs::create_dir(&left).unwrap();
        let group = Group::new(&parent, &Limits::default()).unwrap();
        assert!(!left.exists(), "what a dead launcher left is swept");
        let own = parent.join(&group.name);
        assert!(own.exists());
        drop(group);
        assert!(!own.exists());
        // A limit that no controller holds is an error, not a group without it.
        let limits = Limits { memory_bytes: Some(1 << 30), ..Limits::default() };
        if !parent.join("cgroup.subtree_control").exists()
            || !fs::read_to_string(parent.join("cgroup.subtree_control"))
                .unwrap()
                .contains("memory")
        {
            assert!(Group::new(&parent, &limits).is_err());
        }
        assert!(nothing_is_left(&parent));
    }
}
