//! What this machine can enforce.

use clash_sandbox::probe::{Outcome, probe};

use super::{Finding, Scene};

/// What every sandbox of this version stands on; the rest is for later tiers.
const NEEDED: &[&str] = &["landlock", "seccomp filter"];

pub(super) fn look(_: &Scene) -> Vec<Finding> {
    let finding = |item: clash_sandbox::probe::Item| match item.outcome {
        Outcome::Works => Finding::good(format!("{}: {}", item.name, item.detail)),
        Outcome::Missing { what_happened, hint } => {
            let what = format!("{}: {} ({what_happened})", item.name, item.detail);
            let missed = if NEEDED.contains(&item.name) { Finding::bad } else { Finding::note };
            missed(what).fix(hint)
        }
    };
    probe().items.into_iter().map(finding).collect()
}
