//! Chooses the tier of a sandbox: Landlock alone, a room, or Landlock with the monitor.
//! Also chooses the calls to watch.
//!
//! The direct tier is cheaper and needs no extra process. The planner takes it where it
//! holds every rule: nothing is denied inside an allowed tree, and nothing may be changed
//! at all. Then seccomp refuses every change of modes and times, which Landlock does not
//! see. Everything else gets a room, or the monitor where no namespaces can be made.
//!
//! The monitor cannot judge execution. It cannot call `execve` for another process, and the
//! file could be exchanged between its look and the kernel's.

use std::path::{Path, PathBuf};

use clash_policy::path::{LinkResolver, is_below};
use clash_policy::protect::entries;
use clash_policy::{Effect, FileCaps, PolicyPlaces, ProcessLifetime, ProtectSettings};

use super::overlap::{self, RuleRegion};
use super::rules::links_of;
use super::temporary;
use super::view::{LINKS, MountSources};
use super::{
    FoundPath, GrantReason, LANDLOCK_ABI_NEEDED, PathGrant, PlanError, PlanRequest, ResolvedRule,
    SandboxTier, ScratchPlan,
};
use crate::disk::Disk;
use crate::facts::{HostFacts, RoomSupport};
use crate::plan::report::{PlanReport, ReportLine};
use crate::plan::rights::SandboxRights;
use crate::plan::room::SharedPorts;
use crate::plan::sight::{TreeVisibility, VisiblePaths};
use crate::worktree;

/// The direct tier if it is enough, else a room, else the watched tier. The tiers without a
/// room need a newer Landlock.
pub(super) fn choose(beyond_landlock: bool, host: &HostFacts) -> Result<SandboxTier, PlanError> {
    let tier = match (beyond_landlock, &host.rooms) {
        (true, RoomSupport::Unprivileged | RoomSupport::Root) => return Ok(SandboxTier::Room),
        (true, RoomSupport::Impossible { .. }) => SandboxTier::Watched,
        (false, _) => SandboxTier::Direct,
    };
    match host.landlock_abi {
        abi if abi < LANDLOCK_ABI_NEEDED => Err(PlanError::LandlockTooOld { abi }),
        _ => Ok(tier),
    }
}

/// True if the sandbox needs something that Landlock and seccomp cannot hold.
pub(super) fn beyond_landlock(
    request: &PlanRequest<'_>,
    rules: &[ResolvedRule<'_>],
    grants: &[PathGrant],
) -> bool {
    let limits = &request.sandbox.limits;
    grants.iter().any(|grant| {
        grant.caps.intersects(FileCaps::CHANGE)
            || rules.iter().any(|rule| overlap::takes_from(rule, grant))
    }) || rules.iter().any(|rule| rule.rule.effect == Effect::Allow && rule.wider())
        || overlap::inside_baseline(request.disk, rules)
        || overlap::cage(request, grants).is_err()
        || limits.processes.is_some()
        || limits.wall_seconds.is_some()
        || request.sandbox.lifetime == Some(ProcessLifetime::Action)
        || temporary::wants_own_tmp(request)
}

/// True if nothing is denied inside a tree that may be changed. A mount over a denied path
/// is not enough: it moves along if a process outside renames the directory.
pub(super) fn plain(rights: &SandboxRights) -> bool {
    use clash_policy::PathPattern::{Literal, Subpath};
    let sandbox = &rights.sandbox;
    let simple = |rule: &clash_policy::FsRule| {
        rule.effect == Effect::Allow && matches!(rule.pattern, Subpath { .. } | Literal(_))
    };
    let caged = |path: &PathBuf| {
        sandbox.fs.iter().any(|rule| is_below(path, Path::new(rule.pattern.fixed())))
    };
    entries(&sandbox.protect).next().is_none()
        && sandbox.default != Effect::Allow
        && sandbox.fs.iter().all(simple)
        && rights.held.is_empty()
        && !rights.cage.iter().any(caged)
}

/// True if a room has to watch opens for reading. Rules about names need it, because no
/// mount can hold them. A denied path that does not exist needs no watch: no process inside
/// can make it.
pub(super) fn reads(
    request: &PlanRequest<'_>,
    rules: &[ResolvedRule<'_>],
    grants: &[PathGrant],
) -> bool {
    let readable = |grant: &&PathGrant| grant.caps.contains(FileCaps::READ);
    let of_names =
        |rule: &&ResolvedRule<'_>| rule.rule.caps.contains(FileCaps::READ) && rule.wider();
    rules.iter().filter(of_names).any(|rule| match rule.rule.effect {
        Effect::Allow => matches!(rule.found, FoundPath::Directory | FoundPath::Other),
        _ => {
            grants.iter().filter(readable).any(|grant| overlap::takes_from(rule, grant))
                || overlap::inside_baseline(request.disk, std::slice::from_ref(rule))
        }
    })
}

/// The refusal for a host without seccomp listeners, with the first rule that needs one.
pub(super) fn unwatched(
    request: &PlanRequest<'_>,
    rules: &[ResolvedRule<'_>],
    why: &str,
) -> PlanError {
    let taken = |rule: &&ResolvedRule<'_>| rule.rule.effect != Effect::Allow || rule.wider();
    let (rule, span) = match rules.iter().find(taken) {
        Some(rule) => (rule.rule.pattern.to_string(), &rule.rule.span),
        None if request.sandbox.limits.files.is_some() => {
            ("limits = {\"files\": …}".to_owned(), &request.sandbox.span)
        }
        None if request.sandbox.protect.standard => {
            ("protect = True".to_owned(), &request.sandbox.span)
        }
        None => ("fs".to_owned(), &request.sandbox.span),
    };
    PlanError::NoMonitor { rule, span: span.clone(), why: why.to_owned() }
}

/// The command's own temporary directory without a room. It is below the user's, unless a
/// rule names that. Existing files there belong to other programs.
pub(super) fn scratch(
    request: &PlanRequest<'_>,
    rights: &SandboxRights,
    report: &mut PlanReport,
) -> Option<ScratchPlan> {
    use rustix::fs::{Access, access};
    if let Some(session) = request.temporary.session
        && !rights.caps(session).is_empty()
    {
        let why = "TMPDIR names the session's directory; /tmp stays closed";
        report.say(|| ReportLine::new("temporary files of the session", "landlock + monitor", why));
        return Some(ScratchPlan::Session(session.to_path_buf()));
    }
    let tmp = request.disk.real(request.temporary.host);
    let denied = |place: &Path| {
        let with = SandboxRights { own: vec![place.to_path_buf()], ..rights.clone() };
        !with.permits(place, FileCaps::ALL)
    };
    let by_rule = !rights.caps(&tmp).is_empty()
        || denied(&tmp)
        || request.temporary.session.is_some_and(denied);
    let (mechanism, why) = if by_rule {
        return None;
    } else if access(&tmp, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        (ReportLine::NOTHING, "there is none: this user cannot make it")
    } else {
        ("landlock + monitor", "TMPDIR names a directory of its own, removed when it ends")
    };
    report.say(|| ReportLine::new(format!("temporary files in {}", tmp.display()), mechanism, why));
    (mechanism != ReportLine::NOTHING).then_some(ScratchPlan::Below(tmp))
}

/// The visible paths, as a room would show them. A denied path that does not exist stays
/// hidden when a process makes it.
pub(super) fn sight(sources: &MountSources<'_>) -> VisiblePaths {
    let mut sight = VisiblePaths::default();
    let mut mark = |path: &Path, file: bool| {
        sight.tree(path, TreeVisibility::with(sources.caps(path, file)));
    };
    sources.rules.iter().filter(|rule| !rule.wider()).for_each(|rule| mark(&rule.real, false));
    let places = &sources.rights.places;
    let caged = sources.rights.cage.iter().filter(|path| !is_below(path, &places.project));
    caged.for_each(|path| mark(path, false));
    sources.marks().iter().for_each(|(path, found)| mark(path, found.file));
    let devices = sources.baseline.iter().map(|(entry, _)| Path::new(entry.path));
    let devices = devices.filter(|path| path.starts_with("/dev"));
    devices.for_each(|path| sight.tree(path, TreeVisibility::Writable));
    // Each process has its own part of /proc, whatever the rules say.
    OWN_PATHS.map(Path::new).iter().for_each(|path| sight.tree(path, TreeVisibility::ReadOnly));
    let temporary = sources.request.disk.real(sources.request.temporary.host);
    let own = [Path::new("/tmp"), Path::new("/var/tmp"), &temporary, &places.home];
    let links = LINKS.map(Path::new).into_iter().filter(|path| path.is_symlink());
    own.into_iter().chain(links).for_each(|path| sight.way(path));
    let of_rules = links_of(sources.rules, sources.request.disk);
    of_rules.iter().for_each(|path| sight.way(path));
    sight
}

/// Paths that lead each process to its own files.
const OWN_PATHS: [&str; 5] = ["/proc", "/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr"];

/// True if ports connect a network of the room's own with the host. That needs a room.
pub(super) fn crossing(
    request: &PlanRequest<'_>,
    ports: &SharedPorts,
    host: &HostFacts,
) -> Result<bool, PlanError> {
    let Some(port) = ports.reached.iter().chain(&ports.served).next() else { return Ok(false) };
    match &host.rooms {
        RoomSupport::Unprivileged | RoomSupport::Root => Ok(true),
        RoomSupport::Impossible { why } => {
            let rule = PlanError::Port { port: *port, span: request.sandbox.span.clone() };
            Err(PlanError::NoRoom { rule: Box::new(rule), why: why.clone() })
        }
    }
}

/// Refuses a rule that takes away only execution, where no mount can do it: a readable file
/// could then be run. If the rule also takes away reading, the report describes the gap: a
/// program that already exists there could be started.
pub(super) fn execute(
    request: &PlanRequest<'_>,
    rules: &[ResolvedRule<'_>],
    grants: &[PathGrant],
    host: &HostFacts,
    room: bool,
    report: &mut PlanReport,
) -> Result<(), PlanError> {
    let denies = rules.iter().filter(|rule| {
        rule.rule.effect != Effect::Allow && rule.rule.caps.contains(FileCaps::EXECUTE)
    });
    for deny in denies {
        let runs = |grant: &&PathGrant| grant.caps.contains(FileCaps::EXECUTE);
        let Some(outer) = grants.iter().filter(runs).find(|g| overlap::cuts(deny, &g.path)) else {
            continue;
        };
        // The mount is at another name of the session's temporary directory.
        let elsewhere = request.lends(&deny.real);
        let mounted = room && !deny.wider() && deny.found != FoundPath::Missing && !elsewhere;
        let never_made = deny.found == FoundPath::Missing
            && deny.region() != RuleRegion::Anywhere
            && deny.rule.caps.contains(FileCaps::CREATE);
        if mounted || never_made {
            continue;
        }
        if deny.rule.caps.contains(FileCaps::READ) {
            let why = "a file there cannot be read; one that is a program could still be started";
            report
                .say(|| ReportLine::new(format!("x of {}", deny.text()), ReportLine::NOTHING, why));
            continue;
        }
        let refusal = PlanError::Execute {
            effect: deny.rule.effect,
            rule: deny.rule.pattern.to_string(),
            span: deny.rule.span.clone(),
            outer: outer.path.clone(),
        };
        return Err(match &host.rooms {
            RoomSupport::Impossible { why } if !deny.wider() => {
                PlanError::NoRoom { rule: Box::new(refusal), why: why.clone() }
            }
            _ => refusal,
        });
    }
    Ok(())
}

/// Files that git obeys besides the list of persistence paths: hooks outside `.git`, and
/// files that tie a linked worktree to its repository. A command that may change the latter
/// could put another repository, with its own hooks, in its place.
pub(super) fn git_goes_by(
    places: &PolicyPlaces,
    grants: &[PathGrant],
    protect: &ProtectSettings,
    disk: &Disk,
) -> Vec<PathBuf> {
    let project = &places.project;
    let mut links = Vec::new();
    let common =
        grants.iter().find(|g| g.why == GrantReason::Worktree && g.path.ends_with("config"));
    let config = common.map_or_else(|| project.join(".git/config"), |grant| grant.path.clone());
    let excepted = |hooks: &Path| protect.except.iter().any(|path| project.join(path) == hooks);
    if let Some(hooks) = worktree::hooks(project, &places.home, &config)
        && !excepted(&hooks)
    {
        links.extend([disk.real(&hooks), hooks]);
    }
    let link = project.join(".git");
    if std::fs::symlink_metadata(&link).is_ok_and(|meta| meta.is_file()) {
        links.push(link);
    }
    let in_worktrees = |path: &Path| {
        path.parent().and_then(Path::file_name).is_some_and(|name| name == "worktrees")
    };
    let own = grants.iter().filter(|g| g.why == GrantReason::Worktree && in_worktrees(&g.path));
    for grant in own {
        links.extend(["commondir", "gitdir", "config.worktree"].map(|name| grant.path.join(name)));
    }
    links
}
