//! Finds a cgroup in which the launcher can make one with limits.
//!
//! Reading `cgroup.subtree_control` is not enough: a security module or the owner of the
//! directory may still refuse. So the search makes a cgroup, puts a process into it and
//! removes both.

use std::fs;
use std::path::{Path, PathBuf};

use clash_policy::ResourceLimits;

use crate::linux::cgroup::takes_a_process;

const CGROUP_MOUNT: &str = "/sys/fs/cgroup";

/// The cgroup of this process or the nearest one above it in which one with these limits can
/// be made. `None` if there is none, or if neither memory nor processes are limited. Makes
/// and removes a cgroup to find out.
pub(crate) fn find_limit_parent(limits: &ResourceLimits) -> Option<PathBuf> {
    if limits.memory_bytes.is_none() && limits.processes.is_none() {
        return None;
    }
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mount = Path::new(CGROUP_MOUNT);
    candidates(mount, &mount.join(own), limits).into_iter().find(|dir| takes_a_process(dir, limits))
}

/// The cgroups from that of this process upwards that pass on the needed controllers,
/// nearest first.
fn candidates(mount: &Path, own: &Path, limits: &ResourceLimits) -> Vec<PathBuf> {
    let memory = limits.memory_bytes.map(|_| "memory");
    let wanted: Vec<&str> = memory.into_iter().chain(limits.processes.map(|_| "pids")).collect();
    let controlled = |dir: &&Path| {
        fs::read_to_string(dir.join("cgroup.subtree_control"))
            .is_ok_and(|text| wanted.iter().all(|c| text.split_whitespace().any(|has| has == *c)))
    };
    let above = own.ancestors().take_while(|dir| dir.starts_with(mount));
    above.filter(controlled).map(Path::to_path_buf).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_group_with_the_controllers_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("user.slice/user-1000.slice/app.slice/term.scope");
        fs::create_dir_all(&own).unwrap();
        let control = |below: &str, text: &str| {
            fs::write(dir.path().join(below).join("cgroup.subtree_control"), text).unwrap();
        };
        let both = ResourceLimits {
            memory_bytes: Some(1),
            processes: Some(1),
            ..ResourceLimits::default()
        };
        assert!(candidates(dir.path(), &own, &both).is_empty());
        control("", "cpu memory pids\n");
        control("user.slice", "memory\n");
        control("user.slice/user-1000.slice/app.slice", "cpu pids memory\n");
        control("user.slice/user-1000.slice/app.slice/term.scope", "\n");
        let app = dir.path().join("user.slice/user-1000.slice/app.slice");
        let all = dir.path().to_path_buf();
        assert_eq!(candidates(dir.path(), &own, &both), [app.clone(), all.clone()]);
        let memory = ResourceLimits { memory_bytes: Some(1), ..ResourceLimits::default() };
        let slice = dir.path().join("user.slice");
        assert_eq!(candidates(dir.path(), &own, &memory), [app, slice, all]);
    }
}
