//! Where rules meet: denies inside allows, the baseline and the cage.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clash_policy::path::Links;
use clash_policy::{Caps, Effect};

use super::{Grant, Refusal, Request, Rule, Why};
use crate::baseline::Entry;
use crate::report::{Line, Report};

/// Whether `path` is `base` or inside it. For paths that are already normal, as
/// all are here; by bytes, because walking components made this the better half
/// of the time a plan took.
pub(super) fn is_below(path: &Path, base: &Path) -> bool {
    let (path, base) = (path.as_os_str().as_bytes(), base.as_os_str().as_bytes());
    match path.strip_prefix(base) {
        Some([] | [b'/', ..]) => true,
        Some(_) => base.ends_with(b"/"), // the root
        None => false,
    }
}

/// Which paths a rule is about, relative to its fixed part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    /// The path and everything below it.
    Below,
    Exactly,
    /// What is in the directory, not the directory.
    Inside,
    /// Names anywhere below it.
    Anywhere,
}

/// Whether a rule about `region` of `fixed` takes something away that a grant on
/// the subtree `granted` gives. An allow below a deny is more specific and wins.
fn cuts_into(region: Region, fixed: &Path, granted: &Path) -> bool {
    match region {
        Region::Below | Region::Exactly => is_below(fixed, granted) && fixed != granted,
        Region::Inside => is_below(fixed, granted),
        Region::Anywhere => is_below(fixed, granted) || is_below(granted, fixed),
    }
}

/// Refuses if a deny or ask takes away part of what the grant gives.
pub(super) fn expressible(rules: &[Rule<'_>], grant: &Grant) -> Result<(), Refusal> {
    for deny in rules.iter().filter(|r| r.rule.effect != Effect::Allow) {
        if !deny.rule.caps.intersects(grant.caps) {
            continue;
        }
        let cut = [&deny.real, &deny.written]
            .into_iter()
            .any(|fixed| cuts_into(deny.region(), fixed, &grant.path));
        // A rule about one directory but not its content, on the grant's root.
        let root_only = deny.region() == Region::Exactly
            && deny.real == grant.path
            && deny.found == super::Found::Directory;
        // A policy's own allow has been narrowed by a rule on the same path; what
        // worktrees and the launcher ask for has not.
        let denied_outright = !matches!(grant.why, Why::Rule(_))
            && matches!(deny.region(), Region::Below | Region::Exactly)
            && deny.real == grant.path;
        if cut || root_only || denied_outright {
            return Err(Refusal::Narrower {
                effect: deny.rule.effect,
                rule: deny.rule.pattern.to_string(),
                span: deny.rule.span.clone(),
                outer: grant.path.clone(),
                why: grant.why.clone(),
            });
        }
    }
    Ok(())
}

/// What remains of a baseline entry under the policy's denies: all of it, part,
/// or nothing when the deny names the entry or a directory above it.
pub(super) fn baseline_caps(
    rules: &[Rule<'_>],
    entry: &Entry,
    named: &Path,
    path: &Path,
) -> Result<Caps, Refusal> {
    let mut caps = entry.caps;
    for deny in rules.iter().filter(|r| r.rule.effect != Effect::Allow) {
        if !deny.rule.caps.intersects(entry.caps) {
            continue;
        }
        let region = deny.region();
        let fixed = [&deny.real, &deny.written];
        let whole = fixed.iter().any(|f| match region {
            Region::Below => is_below(path, f) || is_below(named, f),
            Region::Exactly => (path == **f || named == **f) && !path.is_dir(),
            Region::Inside => is_below(path, f) && path != **f,
            Region::Anywhere => false,
        });
        if whole {
            caps = caps.without(deny.rule.caps);
            continue;
        }
        let cut = fixed.iter().any(|f| {
            cuts_into(region, f, path)
                || cuts_into(region, f, named)
                || (region == Region::Exactly && path == **f)
        });
        if cut {
            return Err(Refusal::InsideBaseline {
                effect: deny.rule.effect,
                rule: deny.rule.pattern.to_string(),
                span: deny.rule.span.clone(),
                entry: entry.path,
            });
        }
    }
    Ok(caps)
}

/// Keeps grants away from what clash and the agents live on.
///
/// Settings inside the project cannot be kept apart from it in this tier: the
/// project is one subtree. The report says so, and only a grant that names such
/// a path itself is refused.
pub(super) fn cage(
    request: &Request<'_>,
    grants: &[Grant],
    report: &mut Report,
) -> Result<(), Refusal> {
    let project = request.disk.real(&request.places.project);
    for caged in &request.cage.paths {
        let place = request.disk.real(caged);
        // Both spellings: the link itself must not be replaced either.
        for place in [&place, caged] {
            let local = is_below(place, &project) && *place != project;
            for grant in grants {
                let above = is_below(place, &grant.path);
                let inside = is_below(&grant.path, place);
                if !above && !inside {
                    continue;
                }
                let within = inside && !above;
                let permitted = (grant.why == Why::Launcher && within)
                    || (local && (above && !inside || !grant.caps.intersects(Caps::CHANGE)));
                if !permitted {
                    return Err(Refusal::Caged {
                        path: grant.path.clone(),
                        caps: grant.caps,
                        why: grant.why.clone(),
                        cage: caged.clone(),
                    });
                }
            }
        }
        if is_below(&place, &project) && grants.iter().any(|g| is_below(&place, &g.path)) {
            report.say(|| {
                Line::new(
                    caged.display().to_string(),
                    Line::NOTHING,
                    "not protected in the direct tier: it lies inside the granted project tree",
                )
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_is_by_component() {
        let below = |path: &str, base: &str| is_below(Path::new(path), Path::new(base));
        assert!(below("/a/b", "/a") && below("/a", "/a") && below("/a", "/") && below("/", "/"));
        assert!(!below("/ab", "/a") && !below("/a", "/a/b") && !below("/", "/a"));
    }
}
