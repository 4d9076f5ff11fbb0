//! The meaning of `cache()` on this host: mounts in a room, or read-only caches and variables.

use std::path::PathBuf;

use clash_policy::path::is_below;
use clash_policy::{Effect, FileCaps, Sandbox, WriteTarget};

use super::PlanRequest;
use super::rules::{FoundPath, ResolvedRule};
use crate::facts::{HostFacts, RoomSupport};
use crate::plan::cache::{self, CacheRedirect, directory_of, is_cache};
use crate::plan::report::{PlanReport, ReportLine};

/// The sandbox for a host or a request without cache mounts. The shared caches are read-only,
/// and variables lead the tools to the project's own caches, if the request has a directory
/// for them. `None` if the sandbox has no caches or a room mounts them.
pub(super) fn replace_cache_mounts(
    request: &PlanRequest<'_>,
    host: &HostFacts,
    report: &mut PlanReport,
) -> Option<(Sandbox, Vec<CacheRedirect>)> {
    let rooms = !matches!(host.rooms, RoomSupport::Impossible { .. });
    if !cache::has_caches(request.sandbox) || rooms && request.caches.is_some() {
        return None;
    }
    let mut sandbox = request.sandbox.clone();
    let mut redirects: Vec<CacheRedirect> = Vec::new();
    for rule in sandbox.fs.iter_mut().filter(|rule| is_cache(rule)) {
        let own = request
            .caches
            .and_then(|own| cache::find_redirect(rule, request.sandbox, request.places, own));
        report.say(|| line_of_cache(rule, own.as_ref()));
        rule.caps = rule.caps.intersect(FileCaps::READ.union(FileCaps::EXECUTE));
        rule.writes = WriteTarget::InPlace;
        redirects.extend(own.filter(|own| !redirects.contains(own)));
    }
    Some((sandbox, redirects))
}

/// Decides which caches the room mounts, by setting `found`. A useless empty cache counts as
/// missing. A missing cache counts as a directory, because the room's own root gets one to
/// mount on, unless the room shows the host's directory around it. Does nothing if the
/// request has no directory for caches.
pub(super) fn place_caches(request: &PlanRequest<'_>, rules: &mut [ResolvedRule<'_>]) {
    let Some(own) = request.caches else { return };
    let shown = |rule: &&ResolvedRule<'_>| {
        rule.rule.effect == Effect::Allow
            && !is_cache(rule.rule)
            && rule.found == FoundPath::Directory
    };
    let shown: Vec<PathBuf> = rules.iter().filter(shown).map(|rule| rule.real.clone()).collect();
    let everything = request.sandbox.default == Effect::Allow;
    for rule in rules.iter_mut().filter(|rule| is_cache(rule.rule)) {
        let own = directory_of(own, &rule.real);
        if cache::is_unused(rule.rule, request.sandbox, &rule.real, &own) {
            rule.found = FoundPath::Missing;
        } else if rule.found == FoundPath::Missing
            && !everything
            && !shown.iter().any(|shown| is_below(&rule.real, shown))
        {
            rule.found = FoundPath::Directory;
        }
    }
}

/// The line of the report about a cache without a mount.
fn line_of_cache(rule: &clash_policy::FsRule, own: Option<&CacheRedirect>) -> ReportLine {
    let text = format!("cache {} ({})", rule.pattern, rule.span);
    match own {
        Some(CacheRedirect { variable, to, .. }) => ReportLine::new(
            text,
            "landlock + variable",
            format!("the shared cache is read-only; {variable} names {}", to.display()),
        ),
        None => ReportLine::new(
            text,
            "landlock",
            "the shared cache is read-only: a variable names no other place to this tool, or \
             nothing was fetched for this project yet",
        ),
    }
}
