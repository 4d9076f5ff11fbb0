//! Limits on all processes of a room together, by a cgroup of version 2.
//!
//! Without a cgroup, the only memory limit is on address space. It applies to each process,
//! and it stops programs that reserve more memory than they use. [`crate::host`] finds a
//! cgroup in which this user can make others.
//!
//! The launcher removes the cgroup when the room has ended. If the launcher was killed, its
//! cgroup is empty, and the next launcher removes it.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use clash_policy::ResourceLimits;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, unlinkat};

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};

use super::sys::{self, ForkSide};

const CGROUP_PREFIX: &str = "clash-";

/// True if this user can make a cgroup with these limits in `dir` and put a process into it.
/// Tries it with a child, and leaves nothing behind.
pub(crate) fn takes_a_process(dir: &Path, limits: &ResourceLimits) -> bool {
    let Ok(group) = RoomCgroup::new(dir, limits) else { return false };
    match sys::fork() {
        Ok(ForkSide::Child) => sys::exit_now(i32::from(group.join().is_err())),
        Ok(ForkSide::Parent(pid)) => loop {
            match waitpid(Pid::from_raw(pid), WaitOptions::empty()) {
                Err(Errno::INTR) => {}
                other => {
                    let status = other.ok().flatten().and_then(|(_, status)| status.exit_status());
                    return status == Some(0);
                }
            }
        },
        Err(_) => false,
    }
}

/// A name that no other thread or process uses for a cgroup.
pub(crate) fn unused_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{CGROUP_PREFIX}{}-{}", sys::own_pid(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The cgroup of one room. Dropping it removes the cgroup.
#[derive(Debug)]
pub(crate) struct RoomCgroup {
    parent: OwnedFd,
    name: String,
    processes: OwnedFd,
}

impl RoomCgroup {
    /// Makes a cgroup with these limits on memory and processes below `parent`, and removes
    /// those of ended launchers there. If a limit cannot be set, no cgroup stays.
    pub(crate) fn new(parent: &Path, limits: &ResourceLimits) -> io::Result<Self> {
        remove_abandoned(parent);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, parent, flags, Mode::empty())?;
        let name = unused_name();
        mkdirat(&dir, &name, Mode::from_raw_mode(0o755))?;
        let made = || -> io::Result<OwnedFd> {
            let at = parent.join(&name);
            if let Some(bytes) = limits.memory_bytes {
                fs::write(at.join("memory.max"), bytes.to_string())?;
                // Without this, processes could use swap beyond the memory limit.
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

    /// Moves the calling process into the cgroup.
    pub(crate) fn join(&self) -> rustix::io::Result<()> {
        rustix::io::write(&self.processes, b"0").map(drop)
    }
}

impl Drop for RoomCgroup {
    fn drop(&mut self) {
        let _ = unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR);
    }
}

/// Removes the cgroups of clash in `parent` whose launcher has ended, by the process number
/// in their name. The kernel refuses to remove a cgroup that is in use. Errors are ignored.
pub(crate) fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let launcher = name.to_str().and_then(|name| name.strip_prefix(CGROUP_PREFIX));
        let launcher = launcher.and_then(|name| name.split('-').next());
        if let Some(pid) = launcher.filter(|pid| !pid.is_empty())
            && pid.bytes().all(|byte| byte.is_ascii_digit())
            && !Path::new("/proc").join(pid).exists()
        {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// True if within a minute this process has no cgroup here. Other tests make theirs at the
/// same time.
#[cfg(test)]
pub(crate) fn nothing_is_left(parent: &Path) -> bool {
    let own = format!("{CGROUP_PREFIX}{}-", sys::own_pid());
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
            (kind == "cgroup2").then(|| std::path::PathBuf::from(at))
        });
        let Some(parent) = mount.filter(|at| takes_a_process(at, &ResourceLimits::default()))
        else {
            use std::io::Write;
            let _ = writeln!(io::stderr(), "SKIPPED: no cgroup can be made here");
            return;
        };
        // No process and no other test has such a number.
        let left = parent.join(format!("{CGROUP_PREFIX}{}-0", 4_194_304 + sys::own_pid()));
        fs::create_dir(&left).unwrap();
        let group = RoomCgroup::new(&parent, &ResourceLimits::default()).unwrap();
        assert!(!left.exists(), "what a dead launcher left is swept");
        let own = parent.join(&group.name);
        assert!(own.exists());
        drop(group);
        assert!(!own.exists());
        // Without the controller, the limit is an error; no cgroup without the limit is
        // made.
        let limits = ResourceLimits { memory_bytes: Some(1 << 30), ..ResourceLimits::default() };
        if !parent.join("cgroup.subtree_control").exists()
            || !fs::read_to_string(parent.join("cgroup.subtree_control"))
                .unwrap()
                .contains("memory")
        {
            assert!(RoomCgroup::new(&parent, &limits).is_err());
        }
        assert!(nothing_is_left(&parent));
    }
}
