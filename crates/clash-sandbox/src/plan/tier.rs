//! Chooses the tier of a sandbox: Landlock alone, a room, or Landlock with the monitor.
//! Also chooses the calls to watch.
//!
//! The direct tier is cheaper and needs no extra process. The planner takes it where it
//! holds every rule: nothing is denied inside a granted tree, and nothing may be changed
//! at all. Then seccomp refuses every change of modes and times, which Landlock does not
//! see. Everything else gets a room, or the monitor where no namespaces can be made.
//!
//! The monitor cannot judge execution. It cannot call `execve` for another process, and the
//! file could be exchanged between its look and the kernel's.

use std::path::{Path, PathBuf};

use clash_policy::path::{LinkResolver, is_below};
use clash_policy::protect::entries;
use clash_policy::{Effect, FileCaps, PolicyPlaces, ProcessLifetime, ProtectSettings};

use super::network;
use super::overlap::{self, RuleRegion};
use super::rules::links_of;
use super::temporary;
use super::view::{LINKS, MountSources};
use super::{
    FoundPath, GrantReason, LANDLOCK_ABI_NEEDED, PathGrant, PlanError, PlanRequest, ResolvedRule,
    SandboxTier, ScratchPlan,
};
use crate::disk::Disk;
use crate::facts::{Facility, HostFacts, RoomSupport};
use crate::plan::report::{PlanReport, ReportLine};
use crate::plan::rights::SandboxRights;
use crate::plan::room::SharedPorts;
use crate::plan::sight::{TreeVisibility, VisiblePaths};
use crate::worktree;

/// The direct tier if Landlock and seccomp are enough, else a room, else the watched tier.
/// The tiers without a room need Landlock ABI 6, and fail with an older one.
pub(super) fn choose_tier(
    beyond_landlock: bool,
    host: &HostFacts,
) -> Result<SandboxTier, PlanError> {
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
    }) || rules.iter().any(|rule| rule.rule.effect == Effect::Allow && rule.is_partial())
        || overlap::denies_inside_baseline(request.disk, rules)
        || overlap::check_cage_for_landlock(request, grants).is_err()
        || limits.processes.is_some()
        || limits.wall_seconds.is_some()
        || request.sandbox.lifetime == Some(ProcessLifetime::Action)
        || temporary::wants_own_tmp(request)
}

/// True if nothing is denied or protected inside a tree that may be changed: there are only
/// allow rules for whole trees and single files, no persistence paths, and no cage inside. A
/// mount over a denied path is not enough: it moves along if a process outside renames the
/// directory.
pub(super) fn denies_nothing_inside(rights: &SandboxRights) -> bool {
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

/// True if the monitor of a room has to judge opens for reading. Rules about names need it,
/// because no mount can hold them. A denied path that does not exist needs no watch: no
/// process inside can make it.
pub(super) fn must_watch_reads(
    request: &PlanRequest<'_>,
    rules: &[ResolvedRule<'_>],
    grants: &[PathGrant],
) -> bool {
    let readable = |grant: &&PathGrant| grant.caps.contains(FileCaps::READ);
    let of_names =
        |rule: &&ResolvedRule<'_>| rule.rule.caps.contains(FileCaps::READ) && rule.is_partial();
    rules.iter().filter(of_names).any(|rule| match rule.rule.effect {
        Effect::Allow => matches!(rule.found, FoundPath::Directory | FoundPath::Other),
        _ => {
            grants.iter().filter(readable).any(|grant| overlap::takes_from(rule, grant))
                || overlap::denies_inside_baseline(request.disk, std::slice::from_ref(rule))
        }
    })
}

/// The refusal for a host without seccomp listeners, with the first rule that needs one.
pub(super) fn refuse_unwatched(
    request: &PlanRequest<'_>,
    rules: &[ResolvedRule<'_>],
    why: &str,
) -> PlanError {
    let taken = |rule: &&ResolvedRule<'_>| rule.rule.effect != Effect::Allow || rule.is_partial();
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

/// The temporary directory of a command in the watched tier: the session's, if the rules give
/// any right to it; else a new one below the host's. `None` if a rule already decides about
/// the host's temporary directory, or if this user cannot write there. Files of other
/// programs in that directory stay closed.
pub(super) fn plan_scratch(
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

/// The visible paths of the watched tier, as a room would show them. A denied path that does
/// not exist stays hidden when a process makes it.
pub(super) fn plan_visible_paths(sources: &MountSources<'_>) -> VisiblePaths {
    let mut sight = VisiblePaths::default();
    let mut mark = |path: &Path, file: bool| {
        sight.set_tree(path, TreeVisibility::for_caps(sources.caps(path, file)));
    };
    sources.rules.iter().filter(|rule| !rule.is_partial()).for_each(|rule| mark(&rule.real, false));
    let places = &sources.rights.places;
    let caged = sources.rights.cage.iter().filter(|path| !is_below(path, &places.project));
    caged.for_each(|path| mark(path, false));
    sources.collect_marks().iter().for_each(|(path, found)| mark(path, found.file));
    let devices = sources.baseline.iter().map(|(entry, _)| Path::new(entry.path));
    let devices = devices.filter(|path| path.starts_with("/dev"));
    devices.for_each(|path| sight.set_tree(path, TreeVisibility::Writable));
    // Each process has its own part of /proc, whatever the rules say.
    OWN_PATHS.map(Path::new).iter().for_each(|path| sight.set_tree(path, TreeVisibility::ReadOnly));
    let temporary = sources.request.disk.real(sources.request.temporary.host);
    let own = [Path::new("/tmp"), Path::new("/var/tmp"), &temporary, &places.home];
    let links = LINKS.map(Path::new).into_iter().filter(|path| path.is_symlink());
    own.into_iter().chain(links).for_each(|path| sight.show_way(path));
    let of_rules = links_of(sources.rules, sources.request.disk, sources.masks);
    of_rules.iter().for_each(|path| sight.show_way(path));
    let masked = sources.masks.keys();
    masked.for_each(|path| sight.set_tree(path, TreeVisibility::ReadOnly));
    sight
}

/// Paths that lead each process to its own files.
const OWN_PATHS: [&str; 5] = ["/proc", "/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr"];

/// True if the sandbox reaches ports of the host or other hosts. That needs a room, or the
/// monitor if the rules are about addresses and the loopback only. Without a room no port is served:
/// fails with `NoRoom` where none can be made, and with `NoGate` for host rules where no gate
/// can be made.
pub(super) fn ports_need_room(
    request: &PlanRequest<'_>,
    ports: &SharedPorts,
    host: &HostFacts,
) -> Result<bool, PlanError> {
    if ports.is_empty() {
        return Ok(false);
    }
    match &host.rooms {
        RoomSupport::Unprivileged | RoomSupport::Root => match &host.gate {
            Facility::Missing { why } if ports.gate.is_some() => {
                let span = request.sandbox.span.clone();
                Err(PlanError::NoGate { span, why: why.clone() })
            }
            _ => Ok(true),
        },
        // Without a room no server is published. That takes nothing from the command.
        RoomSupport::Impossible { .. } if ports.reached.is_empty() && ports.gate.is_none() => {
            Ok(false)
        }
        RoomSupport::Impossible { .. }
            if host.notify.works() && network::names_no_host(&request.sandbox.net) =>
        {
            Ok(true)
        }
        RoomSupport::Impossible { why } => {
            let span = request.sandbox.span.clone();
            let rule = match ports.reached.first() {
                Some(port) if ports.gate.is_none() => PlanError::Port { port: *port, span },
                _ => PlanError::Hosts { span },
            };
            Err(PlanError::NoRoom { rule: Box::new(rule), why: why.clone() })
        }
    }
}

/// Refuses a deny of execution inside a grant that may execute, if no mount can hold it: a
/// readable file could then be run. If the rule also denies reading, the plan stands, and the
/// report describes the gap: a program that already exists there could be started.
pub(super) fn check_execute_denies(
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
        let elsewhere = request.is_in_session_tmp(&deny.real);
        let mounted = room && !deny.is_partial() && deny.found != FoundPath::Missing && !elsewhere;
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
            RoomSupport::Impossible { why } if !deny.is_partial() => {
                PlanError::NoRoom { rule: Box::new(refusal), why: why.clone() }
            }
            _ => refusal,
        });
    }
    Ok(())
}

/// Files that git obeys besides the list of persistence paths: the directory of
/// `core.hooksPath` (unless the policy excepts it), the file `.git` of a linked worktree, and
/// the files that tie it to its repository. A command that may change the latter could put
/// another repository, with its own hooks, in its place.
pub(super) fn find_files_git_obeys(
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
    if let Some(hooks) = worktree::find_hooks_path(project, &places.home, &config)
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
