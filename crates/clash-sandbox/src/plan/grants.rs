//! Collects the grants for Landlock: allow rules, needs of worktrees and the launcher, the
//! system baseline, and the effects of a default of allow.

use std::fs;
use std::path::Path;

use clash_policy::path::{LinkResolver, is_below};
use clash_policy::{Effect, FileCaps, PathPattern};

use super::rules::{FoundPath, ResolvedRule, resolve_path};
use super::view::LINKS;
use super::{GrantReason, PathGrant, PlanError, PlanRequest, overlap};
use crate::baseline;
use crate::disk::Disk;
use crate::facts::{HostFacts, RoomSupport};
use crate::plan::cache::{directory_of, is_cache};
use crate::plan::report::{PlanReport, ReportLine};
use crate::planted::{LinkCheck, RuleOnDisk};
use crate::worktree::{self, WorktreeState};

/// The grant of each allow rule, from its fixed part downwards. For a pattern this is more
/// than the rule says. A missing or unreachable path gets no grant, only a line in the
/// report.
pub(super) fn grants_of_allow_rules(
    rules: &[ResolvedRule<'_>],
    caches: Option<&Path>,
    report: &mut PlanReport,
) -> Vec<PathGrant> {
    let mut grants = Vec::with_capacity(rules.len() + baseline::BASELINE_ENTRIES.len() + 16);
    for allow in rules.iter().filter(|r| r.rule.effect == Effect::Allow) {
        let nothing = match allow.found {
            FoundPath::Directory | FoundPath::Other => None,
            FoundPath::Missing if is_cache(allow.rule) => {
                Some("nothing was fetched, and nothing can be without the network")
            }
            FoundPath::Missing => Some("does not exist now; nothing granted"),
            FoundPath::OutOfReach => Some("this user cannot reach it; nothing granted"),
        };
        if let Some(why) = nothing {
            report.say(|| ReportLine::new(allow.text(), ReportLine::NOTHING, why));
            continue;
        }
        let caps = allow.landlock_caps(rules);
        report.say(|| {
            let place = allow.real.display();
            if let Some(own) = caches.filter(|_| is_cache(allow.rule)) {
                let own = directory_of(own, &allow.real);
                let why = "reads see the shared cache; changes stay in this project's own:";
                let why = format!("{why} {}", own.display());
                return ReportLine::new(allow.text(), "mount + landlock", why);
            }
            match (allow.is_partial(), caps == allow.rule.caps) {
                (true, true) => ReportLine::new(
                    allow.text(),
                    "landlock + monitor",
                    format!("a rule on `{place}`, and each use below it is looked at"),
                ),
                (true, false) => ReportLine::new(
                    allow.text(),
                    "landlock + monitor",
                    format!(
                        "only `{caps}` below `{place}`: the right to execute cannot be given to \
                         names, and another rule may take the rest"
                    ),
                ),
                (false, true) => ReportLine::new(
                    allow.text(),
                    "landlock",
                    format!("a rule on `{place}` gives these rights there and nowhere else"),
                ),
                (false, false) => ReportLine::new(
                    allow.text(),
                    "landlock",
                    format!(
                        "only `{caps}` on `{place}`: another rule takes the rest, or it is a \
                         single file, which Landlock cannot let be created or deleted"
                    ),
                ),
            }
        });
        if !caps.is_empty() {
            let path = allow.real.clone();
            grants.push(PathGrant { path, caps, why: GrantReason::Rule(allow.rule.span.clone()) });
        }
    }
    grants
}

/// Refuses a rule whose path has a link on its way that an earlier command may have
/// planted, whatever its sandbox.
pub(super) fn refuse_planted_links(
    request: &PlanRequest<'_>,
    rules: &[ResolvedRule<'_>],
) -> Result<(), PlanError> {
    let PlanRequest { sandbox, places, disk, in_force, .. } = *request;
    let placed: Vec<RuleOnDisk<'_>> = rules
        .iter()
        .filter(|rule| rule.written.as_os_str() != rule.real.as_os_str())
        .map(|rule| RuleOnDisk { rule: rule.rule, written: &rule.written, real: &rule.real })
        .collect();
    match (LinkCheck { sandbox, places, disk, in_force }).first_suspect(&placed) {
        Some(suspect) => Err(suspect.into()),
        None => Ok(()),
    }
}

/// Adds the git directories of a linked worktree to the grants, for each allow rule with
/// `follow_worktrees` whose directory is one, never with more rights than the rule. A
/// worktree that git does not confirm gets only a line in the report. Drops every grant
/// without rights.
pub(super) fn add_worktrees(
    rules: &[ResolvedRule<'_>],
    grants: &mut Vec<PathGrant>,
    report: &mut PlanReport,
) {
    for rule in rules.iter().filter(|r| r.rule.effect == Effect::Allow) {
        let PathPattern::Subpath { follow_worktrees: true, .. } = rule.rule.pattern else {
            continue;
        };
        if rule.found != FoundPath::Directory {
            continue;
        }
        match worktree::check_git_file(&rule.real) {
            WorktreeState::Plain => {}
            WorktreeState::Disbelieved(why) => {
                let why = format!("{why}; nothing granted");
                report.say(|| {
                    ReportLine::new(
                        format!("git worktree of {}", rule.text()),
                        ReportLine::NOTHING,
                        why,
                    )
                });
            }
            WorktreeState::Linked(found) => {
                report.say(|| {
                    ReportLine::new(
                        format!("git worktree of {}", rule.text()),
                        "landlock",
                        "its git directory and the repository's objects, refs and logs; \
                     hooks and config stay read-only",
                    )
                });
                // Never more than the rule itself gives, so that a read-only project has a
                // read-only repository.
                grants.extend(found.into_iter().map(|(path, caps)| {
                    let caps = caps.intersect(rule.rule.caps);
                    PathGrant { path, caps, why: GrantReason::Worktree }
                }));
            }
        }
    }
    grants.retain(|grant| !grant.caps.is_empty());
}

/// Adds the needs of the launcher. Its files are in places that a command may write, and have
/// predictable names. Fails with `Replaced` if one is a link now: a command has set a trap. A
/// missing file gets no grant.
pub(super) fn add_launcher_needs(
    request: &PlanRequest<'_>,
    grants: &mut Vec<PathGrant>,
    report: &mut PlanReport,
) -> Result<(), PlanError> {
    for grant in request.extra {
        let name = || format!("{} {}", grant.caps, grant.path.display());
        // Resolved again: an earlier result may describe the file before it was replaced.
        let disk = Disk::default();
        let (path, found) = resolve_path(&disk, &grant.path)
            .map_err(|source| PlanError::Extra { path: grant.path.clone(), source })?;
        let leaf = grant.path.file_name().unwrap_or_default();
        let expected = grant.path.parent().map(|dir| disk.real(dir).join(leaf));
        if expected.as_ref() != Some(&path) {
            return Err(PlanError::Replaced { path: grant.path.clone() });
        }
        match found {
            FoundPath::Directory | FoundPath::Other => {
                report.say(|| ReportLine::new(name(), "landlock", grant.why.to_string()));
                grants.push(PathGrant { path, ..grant.clone() });
            }
            FoundPath::Missing | FoundPath::OutOfReach => report.say(|| {
                ReportLine::new(name(), ReportLine::NOTHING, "does not exist now; nothing granted")
            }),
        }
    }
    Ok(())
}

/// Lets the command start the doors on its search path, where no room can have them in the
/// place of programs.
pub(super) fn add_doors(request: &PlanRequest<'_>, host: &HostFacts, grants: &mut Vec<PathGrant>) {
    if !matches!(host.rooms, RoomSupport::Impossible { .. }) {
        return;
    }
    grants.extend(request.doors.iter().map(|directory| PathGrant {
        path: request.disk.real(&directory.on_path),
        caps: FileCaps::READ.union(FileCaps::EXECUTE),
        why: GrantReason::Launcher,
    }));
}

/// The baseline entries that exist, with the rights that no rule takes from them. Leaves out
/// /bin and similar if they are links into /usr.
pub(super) fn remaining_baseline(
    disk: &Disk,
    rules: &[ResolvedRule<'_>],
    report: &mut PlanReport,
) -> Vec<(&'static baseline::BaselineEntry, FileCaps)> {
    let mut dropped = Vec::new();
    let mut left = Vec::with_capacity(baseline::BASELINE_ENTRIES.len());
    let taken = rules.iter().any(|r| r.rule.effect != Effect::Allow);
    for (entry, real) in disk.baseline() {
        if is_merged(entry.path, real) {
            continue;
        }
        let caps = if taken { overlap::baseline_caps(rules, entry, real).0 } else { entry.caps };
        if caps != entry.caps {
            dropped.push(entry.path);
        }
        if !caps.is_empty() {
            left.push((entry, caps));
        }
    }
    report.say(|| {
        ReportLine::new(
            "system baseline",
            "landlock",
            format!(
                "{} paths: programs, libraries, certificates, locale, \
             basic devices, /proc",
                left.len()
            ),
        )
    });
    if !dropped.is_empty() {
        let why = format!("denied by the policy: {}", dropped.join(", "));
        report.say(|| ReportLine::new("system baseline", "landlock", why));
    }
    left
}

/// True for /bin and similar where they are links into /usr, which is granted. The room
/// repeats the link, so nothing can be mounted there.
fn is_merged(path: &str, real: &Path) -> bool {
    LINKS.contains(&path) && is_below(real, Path::new("/usr"))
}

/// True if one grant alone gives all these rights at the path.
pub(super) fn is_covered(grants: &[PathGrant], path: &Path, caps: FileCaps) -> bool {
    grants.iter().any(|g| is_below(path, &g.path) && g.caps.contains(caps))
}

/// Sorts the grants by path, joins those on one path, and drops those that a grant above
/// already includes. Each rule costs microseconds per launch.
pub(super) fn join_grants(mut grants: Vec<PathGrant>) -> Vec<PathGrant> {
    // Sorted by bytes: a directory still comes before its content. Stable: on one path the
    // policy's own grant stays before the baseline's and gives the reason.
    grants.sort_by(|a, b| a.path.as_os_str().cmp(b.path.as_os_str()));
    let mut kept: Vec<PathGrant> = Vec::with_capacity(grants.len());
    for grant in grants {
        if is_covered(&kept, &grant.path, grant.caps) {
            continue;
        }
        match kept.last_mut().filter(|last| last.path.as_os_str() == grant.path.as_os_str()) {
            Some(last) => last.caps = last.caps.union(grant.caps),
            None => kept.push(grant),
        }
    }
    kept
}

/// With a default of allow, grants every real directory in the root except /proc, /sys and
/// /dev. Does nothing for an unrestricted sandbox.
pub(super) fn add_default(request: &PlanRequest<'_>, grants: &mut Vec<PathGrant>) {
    if request.sandbox.default != Effect::Allow || request.sandbox.unrestricted {
        return;
    }
    let Ok(entries) = fs::read_dir("/") else { return };
    let kept = ["/proc", "/sys", "/dev"].map(Path::new);
    for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
        let real_directory = fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir());
        if real_directory && !kept.contains(&path.as_path()) {
            let why = GrantReason::Rule(request.sandbox.span.clone());
            grants.push(PathGrant { path, caps: FileCaps::ALL, why });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_into_usr_is_left_to_its_target() {
        for link in LINKS {
            assert!(
                is_merged(link, &Path::new("/usr").join(link.trim_start_matches('/'))),
                "{link}"
            );
            assert!(!is_merged(link, Path::new(link)), "{link} as a directory");
        }
        assert!(!is_merged("/etc/localtime", Path::new("/usr/share/zoneinfo/UTC")));
    }
}
