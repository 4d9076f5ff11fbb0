//! Describes the abilities of this machine for `clash doctor`.
//!
//! The probe concludes nothing from a sysctl, a kernel version or a configuration file. It
//! uses each facility in a child process. A container, a security module or an outer
//! sandbox may still forbid it: for example, Ubuntu 24.04 lets `unshare` succeed and then
//! denies the mount. Each child has two seconds, and leaves nothing behind: its mounts are
//! in a namespace that ends with it.

/// The results, in the order in which `doctor` shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostProbe {
    pub items: Vec<ProbeItem>,
}

/// One line of `clash doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeItem {
    pub name: &'static str,
    pub outcome: ProbeOutcome,
    /// The purpose of the facility, or details of the result.
    pub detail: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    Works,
    Missing { what_happened: String, hint: Option<String> },
}

impl HostProbe {
    pub fn item(&self, name: &str) -> Option<&ProbeItem> {
        self.items.iter().find(|item| item.name == name)
    }

    /// True if the named facility worked.
    pub fn works(&self, name: &str) -> bool {
        self.item(name).is_some_and(|item| item.outcome == ProbeOutcome::Works)
    }
}

/// Tries every facility. Takes a few milliseconds; call it from a single thread.
#[cfg(target_os = "linux")]
pub fn probe() -> HostProbe {
    HostProbe { items: super::attempts::try_all() }
}

#[cfg(not(target_os = "linux"))]
pub fn probe() -> HostProbe {
    let what_happened = "clash has no sandbox for this system yet".to_owned();
    let outcome = ProbeOutcome::Missing { what_happened, hint: None };
    HostProbe { items: vec![ProbeItem { name: "sandbox", outcome, detail: String::new() }] }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn every_facility_is_answered_quickly_and_twice_the_same() {
        let start = Instant::now();
        let (first, second) = (probe(), probe());
        assert!(start.elapsed() < Duration::from_secs(20));
        assert_eq!(first, second);
        assert!(first.items.len() >= 10);
    }

    #[test]
    fn what_the_planner_needs_agrees_with_the_quick_look() {
        let host = crate::host::probe_facts();
        let probe = probe();
        assert_eq!(probe.works("landlock"), host.landlock_abi >= 6);
        assert_eq!(probe.works("seccomp filter"), host.seccomp);
    }

    #[test]
    fn a_missing_facility_says_what_happened() {
        for item in probe().items {
            if let ProbeOutcome::Missing { what_happened, .. } = item.outcome {
                assert!(!what_happened.is_empty(), "{}", item.name);
            }
        }
    }
}
