//! Where rules meet: denies inside allows, the baseline and the cage.

use std::path::Path;

use clash_policy::path::{LinkResolver as _, is_below};
use clash_policy::{Effect, FileCaps};

use super::{GrantReason, PathGrant, PlanError, PlanRequest, ResolvedRule};
use crate::baseline::BaselineEntry;
use crate::disk::Disk;

/// The paths to which a rule applies, relative to its fixed part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleRegion {
    /// The path and everything below it.
    Below,
    Exactly,
    /// The entries of the directory, not the directory itself.
    Inside,
    /// Names anywhere below it.
    Anywhere,
}

/// True if a rule about `region` of `fixed` takes away rights that a grant on the subtree
/// `granted` gives. An allow below a deny is more specific and wins.
fn cuts_into(region: RuleRegion, fixed: &Path, granted: &Path) -> bool {
    match region {
        RuleRegion::Below | RuleRegion::Exactly => is_below(fixed, granted) && fixed != granted,
        RuleRegion::Inside => is_below(fixed, granted),
        RuleRegion::Anywhere => is_below(fixed, granted) || is_below(granted, fixed),
    }
}

/// True if a rule applies to part of a granted tree, by its real path or as the policy writes
/// it. A rule about a directory without its content also cuts a grant on that directory.
pub(super) fn cuts(rule: &ResolvedRule<'_>, granted: &Path) -> bool {
    let fixed = [&rule.real, &rule.written];
    fixed.into_iter().any(|fixed| cuts_into(rule.region(), fixed, granted))
        // A rule about a directory but not its content, on the root of the grant.
        || rule.region() == RuleRegion::Exactly
            && rule.real == granted
            && rule.found == super::FoundPath::Directory
}

/// True if a deny or ask takes away part of the rights of a grant.
pub(super) fn takes_from(rule: &ResolvedRule<'_>, grant: &PathGrant) -> bool {
    if rule.rule.effect == Effect::Allow || !rule.rule.caps.intersects(grant.caps) {
        return false;
    }
    // A rule on the same path has already narrowed a policy's own allow. It has not
    // narrowed the needs of worktrees and the launcher.
    let outright = !matches!(grant.why, GrantReason::Rule(_))
        && matches!(rule.region(), RuleRegion::Below | RuleRegion::Exactly)
        && rule.real == grant.path;
    outright || cuts(rule, &grant.path)
}

/// True if a rule denies or asks for something inside an entry of the baseline. The entry
/// itself does not count.
pub(super) fn denies_inside_baseline(disk: &Disk, rules: &[ResolvedRule<'_>]) -> bool {
    rules.iter().any(|rule| rule.rule.effect != Effect::Allow)
        && disk.baseline().any(|(entry, real)| baseline_caps(rules, entry, real).1)
}

/// The rights that the policy's denies leave of a baseline entry: all, some, or none if the
/// deny names the entry or a directory above it. A deny inside the entry takes nothing from
/// the entry itself; the second value says whether there is one.
pub(super) fn baseline_caps(
    rules: &[ResolvedRule<'_>],
    entry: &BaselineEntry,
    path: &Path,
) -> (FileCaps, bool) {
    let named = Path::new(entry.path);
    let mut caps = entry.caps;
    let mut inside = false;
    for deny in rules.iter().filter(|r| r.rule.effect != Effect::Allow) {
        if !deny.rule.caps.intersects(entry.caps) {
            continue;
        }
        let region = deny.region();
        let fixed = [&deny.real, &deny.written];
        let whole = fixed.iter().any(|f| match region {
            RuleRegion::Below => is_below(path, f) || is_below(named, f),
            RuleRegion::Exactly => (path == **f || named == **f) && !path.is_dir(),
            RuleRegion::Inside => is_below(path, f) && path != **f,
            RuleRegion::Anywhere => false,
        });
        if whole {
            caps = caps.without(deny.rule.caps);
            continue;
        }
        let cut = fixed.iter().any(|f| {
            cuts_into(region, f, path)
                || cuts_into(region, f, named)
                || (region == RuleRegion::Exactly && path == **f)
        });
        inside |= cut;
    }
    (caps, inside)
}

/// Fails if a grant touches the cage and only Landlock were to hold the sandbox, because
/// Landlock cannot take rights out of a granted tree. Permitted: grants of the launcher and
/// in the session's directory strictly inside the cage, grants around settings in the project
/// (the list of persistence paths protects them), and reading those settings.
pub(super) fn check_cage_for_landlock(
    request: &PlanRequest<'_>,
    grants: &[PathGrant],
) -> Result<(), PlanError> {
    check_each_caged(request, grants, |local, above, within| within || local && above)
}

/// As [`check_cage_for_landlock`], but a grant may also be around a caged path: mounts or the
/// monitor then protect it.
pub(super) fn check_cage(request: &PlanRequest<'_>, grants: &[PathGrant]) -> Result<(), PlanError> {
    check_each_caged(request, grants, |_, above, within| within || above)
}

/// Fails with `Caged` for the first grant that touches a caged path and that `permitted` does
/// not permit. The arguments of `permitted`: the path is in the project; the grant is
/// strictly around it; the grant is lent by the launcher and strictly inside it. Reading
/// caged files of the project is always permitted.
fn check_each_caged(
    request: &PlanRequest<'_>,
    grants: &[PathGrant],
    permitted: impl Fn(bool, bool, bool) -> bool,
) -> Result<(), PlanError> {
    let project = request.disk.real(&request.places.project);
    for caged in &request.cage.paths {
        let local = is_below(caged, &project) && caged.as_os_str() != project.as_os_str();
        for grant in grants {
            let above = is_below(caged, &grant.path);
            let inside = is_below(&grant.path, caged);
            if !above && !inside {
                continue;
            }
            let lent = grant.why == GrantReason::Launcher || request.is_in_session_tmp(&grant.path);
            let within = lent && inside && !above;
            let reads = local && !grant.caps.intersects(FileCaps::CHANGE);
            if !reads && !permitted(local, above && !inside, within) {
                return Err(PlanError::Caged {
                    path: grant.path.clone(),
                    caps: grant.caps,
                    why: grant.why.clone(),
                    cage: caged.clone(),
                });
            }
        }
    }
    Ok(())
}
