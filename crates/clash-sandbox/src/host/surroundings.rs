//! Finds out whether this process is in a container, in a Landlock domain, and in which
//! cgroup.

use std::fs;
use std::path::PathBuf;

use clash_policy::ResourceLimits;

use super::attempts::{self, DomainState, missing, works};
use super::cgroups;
use super::probe::ProbeItem;
use crate::facts::{CgroupFacts, Facility, Surroundings};
use crate::linux::{caps, cgroup as groups};

/// Whether this process is in a container, in a Landlock domain, and below a seccomp
/// listener. The latter two are found by attempts in child processes.
pub(crate) fn look_around() -> Surroundings {
    let landlock = match attempts::find_domain_state() {
        DomainState::Outside => Some(false),
        DomainState::Inside => Some(true),
        DomainState::Unknown => None,
    };
    Surroundings {
        container: container_mark().is_some(),
        landlock,
        listener: attempts::has_outer_listener(),
    }
}

/// The mark of a container that was found: a file that a runtime leaves, or a process
/// namespace that is not the machine's first one, whose number is always the same. `None`
/// proves nothing.
pub(crate) fn container_mark() -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
    let marks = ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"];
    if let Some(mark) = marks.iter().find(|mark| fs::exists(mark).unwrap_or(false)) {
        return Some(format!("`{mark}` exists"));
    }
    let own = fs::metadata("/proc/self/ns/pid").map(|meta| meta.ino());
    let other = own.is_ok_and(|own| own != FIRST_PID_NAMESPACE);
    other.then(|| "the process list is not the machine's".to_owned())
}

/// The path of this process's cgroup below the root of version 2, for example
/// `/user.slice/…`. Fails with the reason if there is none.
pub(crate) fn own_cgroup() -> Result<String, String> {
    let text = fs::read_to_string("/proc/self/cgroup")
        .map_err(|error| format!("/proc/self/cgroup cannot be read: {error}"))?;
    text.lines()
        .find_map(|line| line.strip_prefix("0::"))
        .map(str::to_owned)
        .ok_or_else(|| "this process is in no cgroup of version 2".to_owned())
}

/// Whether a cgroup with a memory or a process limit can be made here. One of the two is
/// enough.
pub(crate) fn try_cgroup() -> CgroupFacts {
    match own_cgroup() {
        Ok(within) => {
            let memory =
                ResourceLimits { memory_bytes: Some(1 << 40), ..ResourceLimits::default() };
            let processes = ResourceLimits { processes: Some(1), ..ResourceLimits::default() };
            let delegated = match [memory, processes].iter().find_map(cgroups::find_limit_parent) {
                Some(_) => Facility::Works,
                None => Facility::Missing { why: why_undelegated(&within) },
            };
            CgroupFacts { within, delegated }
        }
        Err(why) => CgroupFacts { within: String::new(), delegated: Facility::Missing { why } },
    }
}

/// The likely reason why no cgroup with limits can be made. Removes leftover cgroups, and
/// makes and removes one without limits to find out.
fn why_undelegated(within: &str) -> String {
    let made = || -> Result<(), String> {
        let own = cgroup_root()?.join(within.trim_start_matches('/'));
        groups::remove_abandoned(&own);
        let trial = own.join(groups::unused_name());
        fs::create_dir(&trial)
            .map_err(|error| format!("cannot make one in `{}`: {error}", own.display()))?;
        fs::remove_dir(&trial).map_err(|error| format!("cannot remove a cgroup: {error}"))
    };
    let no_controllers = "no cgroup around this one passes on the memory or the pids controller";
    made().err().unwrap_or_else(|| no_controllers.to_owned())
}

/// The mount point of cgroup version 2, which differs between systems.
fn cgroup_root() -> Result<PathBuf, String> {
    let text = fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| format!("/proc/self/mountinfo cannot be read: {error}"))?;
    let mounted = text.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        kind.starts_with("cgroup2 ").then(|| place.split(' ').nth(4)).flatten()
    });
    mounted.map(PathBuf::from).ok_or_else(|| "no cgroups of version 2 are mounted".to_owned())
}

/// The lines about the surroundings for `clash doctor`.
pub(crate) fn describe_surroundings() -> [ProbeItem; 5] {
    [cgroup_item(), not_in_container(), not_in_landlock(), no_new_privs(), plain_user()]
}

/// Whether cgroups with limits can be made.
fn cgroup_item() -> ProbeItem {
    let name = "cgroup delegation";
    let purpose = "memory and process limits of a whole room";
    match try_cgroup().delegated {
        Facility::Works => works(name, purpose),
        Facility::Missing { why } => {
            let hint = "start the agent with `systemd-run --user --scope -p Delegate=yes`";
            missing(name, why, Some(hint), purpose)
        }
    }
}

/// Whether a container's mark was found.
fn not_in_container() -> ProbeItem {
    let name = "not in a container";
    match container_mark() {
        Some(mark) => missing(
            name,
            mark,
            Some("the container's own limits decide what works; see the lines above"),
            "more may be forbidden than on the machine itself",
        ),
        None => works(name, "no container runtime left its mark"),
    }
}

/// Whether this process is in a Landlock domain.
fn not_in_landlock() -> ProbeItem {
    let name = "not in a Landlock domain";
    let detail = "a sandbox inside a sandbox works, only mounts do not";
    match attempts::find_domain_state() {
        DomainState::Outside => works(name, detail),
        DomainState::Inside => missing(
            name,
            "mounts are denied in a namespace of our own",
            Some("start the agent outside other sandboxes for the namespaced tier"),
            detail,
        ),
        DomainState::Unknown => {
            missing(name, "cannot be told without user namespaces and mounts", None, detail)
        }
    }
}

/// Whether an outer sandbox has set no_new_privs.
fn no_new_privs() -> ProbeItem {
    let name = "no_new_privs unset";
    match rustix::thread::no_new_privs() {
        Ok(false) => works(name, "set-user-id programs work outside sandboxes"),
        Ok(true) => missing(
            name,
            "already set when clash started",
            None,
            "an outer sandbox or service manager set it; sandboxes work all the same",
        ),
        Err(error) => missing(name, error.to_string(), None, ""),
    }
}

/// Whether root runs clash, and how many capabilities it has.
fn plain_user() -> ProbeItem {
    let name = "plain user";
    if !rustix::process::geteuid().is_root() {
        return works(name, "no capabilities to drop");
    }
    let held =
        caps::count_permitted().map_or_else(|e| e.to_string(), |n| format!("{n} capabilities"));
    missing(
        name,
        "running as root",
        Some("run agents as a plain user where possible"),
        format!("{held}; sandboxes keep CAP_DAC_OVERRIDE only"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trying_a_cgroup_leaves_none_behind() {
        let first = try_cgroup();
        assert_eq!(first, try_cgroup());
        if let (Ok(root), Ok(own)) = (cgroup_root(), own_cgroup()) {
            let own = root.join(own.trim_start_matches('/'));
            assert!(crate::linux::cgroup::nothing_is_left(&own));
        }
    }
}
