//! Finds out what this machine can do, and records it.
//!
//! clash concludes nothing from a sysctl, a kernel version or the presence of a file. It
//! uses each facility once, as the same user, which takes some milliseconds.
//! [`load_facts`] reads the answers from a record (`host/record.rs`) as long as nothing
//! has changed that they depend on. Landlock and seccomp are asked for at every launch:
//! two system calls.

#[cfg(target_os = "linux")]
mod attempts;
#[cfg(target_os = "linux")]
mod cgroups;
pub mod probe;
#[cfg(target_os = "linux")]
mod record;
#[cfg(target_os = "linux")]
mod surroundings;

use std::path::Path;

use clash_policy::ResourceLimits;

#[cfg(target_os = "linux")]
use crate::facts::BaselinePlaces;
use crate::facts::{CgroupFacts, Facility, HostFacts, LimitFacts, RoomSupport};

/// Tries every facility now, in child processes, except reflinks, which depend on the directory,
/// and the places of the baseline.
#[cfg(target_os = "linux")]
pub fn probe_facts() -> HostFacts {
    HostFacts {
        rooms: attempts::try_rooms(),
        notify: attempts::notify(),
        overlay: attempts::overlay(),
        gate: attempts::gate(),
        cgroup: surroundings::try_cgroup(),
        around: surroundings::look_around(),
        ..ask_kernel()
    }
}

/// The Landlock ABI, seccomp filters and the effective user: one system call each. All other
/// facts are empty.
#[cfg(target_os = "linux")]
fn ask_kernel() -> HostFacts {
    HostFacts {
        landlock_abi: crate::linux::sys::landlock_abi(),
        seccomp: crate::linux::sys::seccomp_errno_available(),
        root: rustix::process::geteuid().is_root(),
        ..HostFacts::bare()
    }
}

/// clash has no sandbox for other systems yet, so the planner will refuse.
#[cfg(not(target_os = "linux"))]
pub fn probe_facts() -> HostFacts {
    HostFacts {
        rooms: RoomSupport::Impossible { why: "not Linux".to_owned() },
        ..HostFacts::bare()
    }
}

/// As [`probe_and_record`], but takes the costly facts from the record in `file` if it was
/// written under the present conditions. A file that cannot be read or written only costs
/// time: every launch then probes again.
pub fn load_facts(file: &Path) -> HostFacts {
    HostRecord::read(file).facts()
}

/// Tries every facility now and writes the record. Makes the directory of `file` for the
/// owner alone. A failure to write is ignored.
#[cfg(target_os = "linux")]
pub fn probe_and_record(file: &Path) -> HostFacts {
    use std::os::unix::fs::DirBuilderExt;
    let directory = file.parent().unwrap_or(Path::new("/"));
    // Without the directory every launch probes again.
    let _ = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    let facts = HostFacts {
        reflink: attempts::reflink(directory),
        landlock_errata: crate::linux::sys::landlock_errata().unwrap_or(0),
        present: BaselinePlaces::look(),
        ..probe_facts()
    };
    if let Some(key) = record::key() {
        record::write(file, &key, &facts);
    }
    facts
}

/// The facts of the record that was written under the present conditions, else `None`. Tries
/// nothing, so a fact may have changed since. Landlock ABI, seccomp and user are not in the
/// record.
#[cfg(target_os = "linux")]
pub fn read_recorded(file: &Path) -> Option<HostFacts> {
    record::find_record(&record::read_text(file)?, &record::key()?)
}

#[cfg(not(target_os = "linux"))]
pub fn probe_and_record(_: &Path) -> HostFacts {
    probe_facts()
}

#[cfg(not(target_os = "linux"))]
pub fn read_recorded(_: &Path) -> Option<HostFacts> {
    None
}

/// Adds the ways in which this host can hold these limits on memory and processes. Tries a
/// cgroup and, for root, process numbers. Without such limits this costs nothing.
#[cfg(target_os = "linux")]
pub fn with_limit_facts(facts: HostFacts, limits: &ResourceLimits) -> HostFacts {
    let wanted = limits.memory_bytes.is_some() || limits.processes.is_some();
    let delegated = wanted && cgroup_support(&facts.cgroup).works();
    let cgroup = delegated.then(|| cgroups::find_limit_parent(limits)).flatten();
    let by_number = facts.root && limits.processes.is_some() && cgroup.is_none();
    let process_numbers = match by_number.then(attempts::try_process_numbers) {
        Some(Ok(())) => Facility::Works,
        Some(Err(why)) => Facility::Missing { why },
        None => LimitFacts::default().process_numbers,
    };
    HostFacts { limits: LimitFacts { cgroup, process_numbers }, ..facts }
}

#[cfg(not(target_os = "linux"))]
pub fn with_limit_facts(facts: HostFacts, _: &ResourceLimits) -> HostFacts {
    facts
}

/// Whether this process can make cgroups with limits. Terminals and services have cgroups of
/// their own, so a process in another cgroup than the recorded one tries again.
#[cfg(target_os = "linux")]
fn cgroup_support(recorded: &CgroupFacts) -> Facility {
    match surroundings::own_cgroup() {
        Ok(own) if own == recorded.within => recorded.delegated.clone(),
        _ => surroundings::try_cgroup().delegated,
    }
}

/// The name is none of [`Self::KNOWN`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no host that can be simulated")]
pub struct UnknownHostError(pub String);

impl UnknownHostError {
    pub const KNOWN: &'static str =
        "no-userns, no-overlay, no-gate, no-notify, no-cgroup, container, root, abi=0 to abi=9";
}

/// Changes the facts to those of another host: `no-userns`, `no-overlay`, `no-gate` (no
/// network for a gate), `no-notify` (no seccomp listener), `no-cgroup`, `abi=0` to `abi=9`, `container` (no namespaces, as under
/// the usual runtimes) or `root`. Changes nothing if the name is unknown.
pub fn simulate(facts: &mut HostFacts, host: &str) -> Result<(), UnknownHostError> {
    let abi = host.strip_prefix("abi=").and_then(|n| n.parse().ok()).filter(|n| *n < 10);
    match (host, abi) {
        (_, Some(abi)) => facts.landlock_abi = abi,
        ("no-userns", _) => {
            remove_namespaces(facts, "no user namespaces (simulated)");
        }
        ("container", _) => {
            remove_namespaces(facts, "the container's filter denies new namespaces (simulated)");
            facts.around.container = true;
        }
        ("no-notify", _) => facts.notify = Facility::missing("no listener (simulated)"),
        ("no-cgroup", _) => facts.cgroup = no_cgroups("no cgroups (simulated)"),
        ("no-gate", _) => facts.gate = Facility::missing("no veth links (simulated)"),
        ("no-overlay", _) => facts.overlay = Facility::missing("no overlays (simulated)"),
        ("root", _) => (facts.root, facts.rooms) = (true, RoomSupport::Root),
        _ => return Err(UnknownHostError(host.to_owned())),
    }
    Ok(())
}

/// Without namespaces there are neither rooms nor overlays.
fn remove_namespaces(facts: &mut HostFacts, why: &str) {
    facts.rooms = RoomSupport::Impossible { why: why.to_owned() };
    facts.overlay = Facility::missing(why);
    facts.gate = Facility::missing(why);
}

/// The facts of a process that cannot make cgroups in its present cgroup.
fn no_cgroups(why: &str) -> CgroupFacts {
    #[cfg(target_os = "linux")]
    let within = surroundings::own_cgroup().unwrap_or_default();
    #[cfg(not(target_os = "linux"))]
    let within = String::new();
    CgroupFacts { within, delegated: Facility::missing(why) }
}

/// The text of the record, not yet compared with the present state of the machine.
#[derive(Debug)]
pub struct HostRecord<'a> {
    file: &'a Path,
    #[cfg(target_os = "linux")]
    text: Option<String>,
}

#[cfg(target_os = "linux")]
impl<'a> HostRecord<'a> {
    /// Reads the file. One that is missing, too large or of another user counts as empty.
    pub fn read(file: &'a Path) -> Self {
        Self { file, text: record::read_text(file) }
    }

    /// True if user namespaces worked when the newest record was written. They are then
    /// likely to work now.
    pub fn promises_rooms(&self) -> bool {
        self.text.as_deref().is_some_and(record::has_rooms)
    }

    /// The facts of the record, if it was written under the present conditions; otherwise
    /// tries every facility and writes a new record. Landlock, seccomp and the user are
    /// asked for anew. If a directory of the baseline has changed, looks for its entries
    /// again. Tries everything and records nothing if the conditions cannot be found out.
    pub fn facts(self) -> HostFacts {
        let Some(key) = record::key() else { return probe_facts() };
        let known = self.text.as_deref().and_then(|text| record::find_record(text, &key));
        let Some(mut known) = known else { return probe_and_record(self.file) };
        if !known.present.as_ref().is_some_and(BaselinePlaces::is_unchanged) {
            known.present = BaselinePlaces::look();
            if known.present.is_some() {
                record::write(self.file, &key, &known);
            }
        }
        let HostFacts { landlock_abi, seccomp, root, .. } = ask_kernel();
        HostFacts { landlock_abi, seccomp, root, ..known }
    }
}

#[cfg(not(target_os = "linux"))]
impl<'a> HostRecord<'a> {
    pub fn read(file: &'a Path) -> Self {
        Self { file }
    }

    pub fn promises_rooms(&self) -> bool {
        false
    }

    pub fn facts(self) -> HostFacts {
        probe_and_record(self.file)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn probing_twice_gives_the_same_facts() {
        assert_eq!(probe_facts(), probe_facts());
    }

    #[test]
    fn another_cgroup_than_the_recorded_one_is_tried_again() {
        let elsewhere = CgroupFacts { within: "/nowhere".into(), delegated: Facility::Works };
        assert_eq!(cgroup_support(&elsewhere), surroundings::try_cgroup().delegated);
    }

    #[test]
    fn other_hosts_can_be_simulated() {
        let mut host = probe_facts();
        simulate(&mut host, "abi=3").unwrap();
        simulate(&mut host, "no-userns").unwrap();
        assert_eq!(host.landlock_abi, 3);
        assert!(matches!(host.rooms, RoomSupport::Impossible { .. }));
        assert!(!host.overlay.works());
        simulate(&mut host, "no-gate").unwrap();
        assert!(!host.gate.works());
        simulate(&mut host, "no-notify").unwrap();
        simulate(&mut host, "no-cgroup").unwrap();
        assert!(!host.notify.works() && !cgroup_support(&host.cgroup).works());
        simulate(&mut host, "root").unwrap();
        assert_eq!((host.root, &host.rooms), (true, &RoomSupport::Root));
        simulate(&mut host, "container").unwrap();
        assert!(host.around.container && matches!(host.rooms, RoomSupport::Impossible { .. }));
        for junk in ["abi=x", "abi=10", "abi=", "windows", ""] {
            assert_eq!(simulate(&mut host, junk), Err(UnknownHostError(junk.into())));
        }
    }
}
