//! An imagined machine, so that expectations and warnings depend on the policy alone.

use clash_policy::JudgeContext;
use clash_policy::path::{NoLinks, PolicyPlaces};

/// A world with these directories, without links and without a baseline.
pub(crate) fn imagined_world(places: &PolicyPlaces) -> JudgeContext<'_> {
    JudgeContext {
        places,
        cwd: &places.project,
        links: &NoLinks,
        baseline: &[],
        cage: &[],
        lent: None,
    }
}
