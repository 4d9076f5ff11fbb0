//! Checks the abilities of this machine.

use clash_sandbox::facts::{Facility, RoomSupport};
use clash_sandbox::host::probe::{ProbeItem, ProbeOutcome, probe};

use super::apparmor::AppArmorSystem;
use super::{DoctorContext, DoctorFinding};
use crate::env;
use crate::remedy::Remedy;

/// The mechanisms that every sandbox needs.
const NEEDED: &[&str] = &["landlock", "seccomp filter"];

/// Probes every facility in child processes. A missing one that every sandbox needs is bad;
/// others are notes. Also notes that this runs inside clash.
pub(super) fn look(scene: &DoctorContext) -> Vec<DoctorFinding> {
    let blamed = AppArmorSystem::own().explains(&scene.host);
    let finding = |item: ProbeItem| match item.outcome {
        ProbeOutcome::Works => DoctorFinding::good(format!("{}: {}", item.name, item.detail)),
        ProbeOutcome::Missing { what_happened, hint } => {
            let name = opposite(item.name, &what_happened);
            let what = format!("{name}: {} ({what_happened})", item.detail);
            let missed =
                if NEEDED.contains(&item.name) { DoctorFinding::bad } else { DoctorFinding::note };
            let by_apparmor = blamed && item.name == "room";
            missed(what).fix(if by_apparmor {
                Some(format!("AppArmor forbids it; `{}` permits it to clash", Remedy::DoctorFix))
            } else {
                hint
            })
        }
    };
    let mut findings = vec![kernel(), tier(&scene.host.rooms)];
    findings.extend(probe().items.into_iter().map(finding));
    findings.push(reflink(&scene.host.reflink));
    findings.extend(env::inside_clash().map(|sandbox| {
        let what = format!("this runs inside clash, in sandbox {sandbox}");
        DoctorFinding::note(what).fix("run it in a terminal of your own".to_owned())
    }));
    findings
}

/// The name for a failed item. Some items are named after an absence, for example
/// `not in a Landlock domain`; if it fails, the line says the opposite.
fn opposite<'n>(name: &'n str, what_happened: &str) -> &'n str {
    match name {
        "not in a Landlock domain" if what_happened.starts_with("cannot be told") => {
            "a Landlock domain around this process"
        }
        "plain user" => "root",
        "no_new_privs unset" => "no_new_privs set",
        name => name.strip_prefix("not ").unwrap_or(name),
    }
}

/// Whether copies can share their blocks.
fn reflink(found: &Facility) -> DoctorFinding {
    let what = "reflink: copies of what is about to change cost no space";
    match found {
        Facility::Works => DoctorFinding::good(what),
        Facility::Missing { why } => DoctorFinding::note(format!("{what} ({why})")),
    }
}

/// The system, its release and the machine.
fn kernel() -> DoctorFinding {
    let system = rustix::system::uname();
    let words = [system.sysname(), system.release(), system.machine()];
    DoctorFinding::good(words.map(|word| word.to_string_lossy().into_owned()).join(" "))
}

/// Whether sandboxes get rooms.
fn tier(rooms: &RoomSupport) -> DoctorFinding {
    match rooms {
        RoomSupport::Unprivileged | RoomSupport::Root => {
            DoctorFinding::good("sandboxes get rooms of their own where they need one")
        }
        RoomSupport::Impossible { .. } => {
            DoctorFinding::note("without rooms: what needs one is refused, nothing is weakened")
        }
    }
}
