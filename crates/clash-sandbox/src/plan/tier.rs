//! Which tier holds a sandbox: Landlock alone, or a room.
//!
//! The direct tier is cheaper and keeps no process, so it is taken where it
//! holds every rule: where nothing is denied inside what is allowed, nothing
//! needs protecting, and nothing may be changed at all, so that the calls which
//! change modes and times, and which Landlock does not see, can be refused
//! outright. Everything else gets a room.
//!
//! A host without namespaces still gets the direct tier for a sandbox that may
//! write, if its file rules can be held there; the report then says that
//! metadata outside the grants is not.

use std::path::{Path, PathBuf};

use clash_policy::path::Links;
use clash_policy::{Caps, Effect, Lifetime};

use super::overlap::{self, Region, is_below};
use super::{Found, Grant, LANDLOCK_ABI_NEEDED, Refusal, Request, Rule, Why};
use crate::host::{Host, Rooms};
use crate::protect::STANDARD;

/// Why Landlock alone is not enough.
#[derive(Debug)]
pub(super) enum Need {
    /// A rule it cannot express, a persistence path, or a limit.
    Rule(Refusal),
    /// Modes and times of files outside the grants.
    Metadata,
}

/// `None`: the direct tier.
pub(super) fn choose(need: Option<Need>, host: &Host) -> Result<Option<Need>, Refusal> {
    match (need, &host.rooms) {
        (Some(Need::Rule(refusal)), Rooms::Impossible { why }) => {
            Err(Refusal::NoRoom { rule: Box::new(refusal), why: why.clone() })
        }
        (Some(Need::Metadata), Rooms::Impossible { .. }) | (None, _) => match host.landlock_abi {
            abi if abi < LANDLOCK_ABI_NEEDED => Err(Refusal::LandlockTooOld { abi }),
            _ => Ok(None),
        },
        (need, _) => Ok(need),
    }
}

/// What the direct tier cannot hold.
pub(super) fn need(
    request: &Request<'_>,
    rules: &[Rule<'_>],
    grants: &[Grant],
    protected: &[PathBuf],
) -> Option<Need> {
    let inexpressible = grants.iter().find_map(|grant| overlap::expressible(rules, grant).err());
    if let Some(refusal) = inexpressible {
        return Some(Need::Rule(refusal));
    }
    if let Some(refusal) = overlap::inside_baseline(request.disk, rules) {
        return Some(Need::Rule(refusal));
    }
    if let Err(refusal) = overlap::cage(request, grants) {
        return Some(Need::Rule(refusal));
    }
    if let Some(path) = protected.first() {
        return Some(Need::Rule(Refusal::Unprotected { path: path.clone() }));
    }
    let limits = &request.sandbox.limits;
    for (name, said) in [
        ("processes", limits.processes.is_some()),
        ("wall", limits.wall_seconds.is_some()),
        ("lifetime", request.sandbox.lifetime == Some(Lifetime::Action)),
    ] {
        if said {
            let span = request.sandbox.span.clone();
            return Some(Need::Rule(Refusal::Limit { name, span }));
        }
    }
    let changes = grants.iter().any(|grant| grant.caps.intersects(Caps::CHANGE));
    changes.then_some(Need::Metadata)
}

/// The persistence paths that this sandbox could otherwise write.
pub(super) fn protected(request: &Request<'_>, grants: &[Grant]) -> Vec<PathBuf> {
    let protect = &request.sandbox.protect;
    let project = request.disk.real(&request.places.project);
    let standard = STANDARD.iter().map(|entry| entry.path).filter(|_| protect.standard);
    let excepted = |path: &&str| !protect.except.iter().any(|except| except == path);
    let named = standard.chain(protect.also.iter().map(String::as_str)).filter(excepted);
    let writable = |path: &PathBuf| {
        grants.iter().any(|g| g.caps.intersects(Caps::CHANGE) && is_below(path, &g.path))
    };
    let mut paths: Vec<PathBuf> = named.map(|name| project.join(name)).collect();
    if protect.standard {
        paths.extend(links_of_worktrees(&project, grants));
    }
    paths.retain(writable);
    paths
}

/// What ties a linked worktree to its repository: whoever may change that may
/// put another repository, with hooks of its own, in its place.
fn links_of_worktrees(project: &Path, grants: &[Grant]) -> Vec<PathBuf> {
    let mut links = Vec::new();
    let link = project.join(".git");
    if std::fs::symlink_metadata(&link).is_ok_and(|meta| meta.is_file()) {
        links.push(link);
    }
    let in_worktrees = |path: &Path| {
        path.parent().and_then(Path::file_name).is_some_and(|name| name == "worktrees")
    };
    let own = grants.iter().filter(|g| g.why == Why::Worktree && in_worktrees(&g.path));
    for grant in own {
        links.extend(["commondir", "gitdir", "config.worktree"].map(|name| grant.path.join(name)));
    }
    links
}

/// Refuses what a room cannot hold either: rules about names that may be made
/// later, and a directory without its content.
pub(super) fn holds(rules: &[Rule<'_>], grants: &[Grant]) -> Result<(), Refusal> {
    let denies = rules.iter().filter(|rule| rule.rule.effect != Effect::Allow);
    for deny in denies {
        let reach = |grant: &&Grant| {
            grant.caps.intersects(deny.rule.caps)
                && (is_below(&deny.real, &grant.path) || is_below(&grant.path, &deny.real))
        };
        let Some(outer) = grants.iter().find(reach) else { continue };
        let refusal = || Refusal::Names {
            effect: deny.rule.effect,
            rule: deny.rule.pattern.to_string(),
            span: deny.rule.span.clone(),
            outer: outer.path.clone(),
        };
        let inside = is_below(&deny.real, &outer.path);
        match (deny.region(), deny.found) {
            (Region::Inside | Region::Anywhere, _) => return Err(refusal()),
            (Region::Exactly, Found::Directory) if inside => return Err(refusal()),
            // A name that is not there can be made where making is allowed.
            (_, Found::Missing) if inside && outer.caps.intersects(Caps::CREATE) => {
                return Err(refusal());
            }
            _ => {}
        }
    }
    Ok(())
}
