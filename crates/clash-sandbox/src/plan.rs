//! The planner: turns a sandbox into a [`SandboxPlan`] that this host enforces to the last rule,
//! or into a [`PlanError`] that names the rule it cannot enforce.
//!
//! The planner reads the disk and the facts given to it. It starts no process, probes
//! nothing and reads no environment variable.
//!
//! Landlock only adds rights to a subtree. So the grants are the union of the policy's
//! allows, the needs of linked worktrees and the launcher, and the system baseline: never
//! less than the rules give. Mounts take rights away inside a grant, where a room can be
//! made and the path exists. Everywhere else the monitor does ([`WatchPlan`]). For the kernel
//! `ask` is `deny`: this crate asks no user.
//!
//! Paths are resolved here, once. A path that does not exist gets nothing, and the report
//! says so; the planner creates nothing. It refuses a rule with a link on its way that an
//! earlier command may have planted (`planted.rs`).

pub mod cache;
mod caches;
mod explain;
mod grants;
pub mod masks;
pub mod nesting;
mod network;
mod overlap;
mod refusal;
pub mod report;
pub mod rights;
pub mod room;
mod rules;
pub mod sight;
mod temporary;
mod tier;
mod view;

use std::io;
use std::path::{Path, PathBuf};

use clash_policy::path::{LinkResolver, is_below};
use clash_policy::{
    FileCaps, FsRule, NetworkAccess, PolicyPlaces, PolicySpan, ResourceLimits, Sandbox, WriteTarget,
};

use crate::baseline;
use crate::disk::Disk;
use crate::door::{DoorDirectory, PROJECT_DOORS};
use crate::facts::{Facility, HostFacts};
use crate::plan::cache::CacheRedirect;
use crate::plan::masks::MaskedFiles;
use crate::plan::report::PlanReport;
use crate::plan::rights::SandboxRights;
use crate::plan::room::{MountStep, RoomPlan, SharedPorts};
use crate::plan::sight::VisiblePaths;
use crate::planted::SandboxesInForce;
use grants::{
    add_default, add_doors, add_launcher_needs, add_worktrees, grants_of_allow_rules, join_grants,
    refuse_planted_links, remaining_baseline,
};
pub(crate) use network::{NetworkNeed, namespaces};
pub use refusal::PlanError;
use rules::{FoundPath, ResolvedRule, resolve_rules};
use view::MountSources;

/// clash's own state, policies and caches and the agents' settings: paths that no sandbox
/// may change, whatever a policy says. These are real paths, and links that must not be
/// replaced. The planner follows none of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CagePaths {
    pub paths: Vec<PathBuf>,
    /// The record of removed links, which the monitors of all rooms share.
    pub former_links: Option<PathBuf>,
}

/// All input of [`plan`] besides the facts about the host.
#[derive(Clone, Copy, Debug)]
pub struct PlanRequest<'a> {
    pub sandbox: &'a Sandbox,
    pub places: &'a PolicyPlaces,
    pub cage: &'a CagePaths,
    /// Remembers the paths that the caller has already resolved.
    pub disk: &'a Disk,
    /// Needs of the launcher itself, for example to read the agent's shell snapshot. They
    /// may lie strictly inside the cage.
    pub extra: &'a [PathGrant],
    /// Sandboxes whose commands may have written where this one reads.
    pub in_force: &'a dyn SandboxesInForce,
    pub temporary: TemporaryPaths<'a>,
    /// The directory of the project's own caches. Without one, shared caches are read-only.
    pub caches: Option<&'a Path>,
    /// Programs that run in sandboxes of their own.
    pub doors: &'a [DoorDirectory],
}

/// The meaning of `$TMPDIR`. It is never the host's own temporary directory.
#[derive(Clone, Copy, Debug)]
pub struct TemporaryPaths<'a> {
    /// The real path of the session's directory, which is `$TMPDIR` in [`PlanRequest::places`].
    /// Without a session the command gets a directory of its own, except in the direct tier.
    pub session: Option<&'a Path>,
    /// The host's temporary directory, under whose name the command finds its own.
    pub host: &'a Path,
}

impl PlanRequest<'_> {
    /// True if a path is in the session's temporary directory. It is the only part of the
    /// cage that commands may use.
    fn is_in_session_tmp(&self, path: &Path) -> bool {
        self.temporary.session.is_some_and(|session| is_below(path, session))
    }

    /// True if there is no session and a rule's path is `$TMPDIR` or below it, as written in
    /// the policy.
    fn is_about_own_tmp(&self, rule: &FsRule) -> bool {
        let below = rule.pattern.fixed().strip_prefix("$TMPDIR");
        self.temporary.session.is_none()
            && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Rights of a plan: `caps` on `path` and everything below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathGrant {
    pub path: PathBuf,
    pub caps: FileCaps,
    pub why: GrantReason,
}

/// The reason for a grant: a rule of the policy (with its line), a linked git worktree, or a
/// need of the launcher, for example the agent's shell snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantReason {
    Rule(PolicySpan),
    Worktree,
    Launcher,
}

impl std::fmt::Display for GrantReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rule(span) => write!(f, "{span}"),
            Self::Worktree => f.write_str("linked git worktree"),
            Self::Launcher => f.write_str("needed by the launcher"),
        }
    }
}

/// The instructions for [`crate::launch::run`]. Plain data; making one changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxPlan {
    pub sandbox: String,
    /// Sorted by path. No grant repeats the rights of one above it.
    pub grants: Vec<PathGrant>,
    /// Baseline entries that exist and that the policy does not deny.
    pub baseline: Vec<(&'static baseline::BaselineEntry, FileCaps)>,
    pub net: NetworkMode,
    pub limits: ResourceLimits,
    /// The cgroup in which the launcher makes one for the room. Without one, limits apply
    /// to each process.
    pub group: Option<PathBuf>,
    pub landlock_abi: u32,
    pub root: bool,
    /// The room; `None` in the direct and the watched tier.
    pub room: Option<RoomPlan>,
    pub watch: Option<WatchPlan>,
    /// The command's temporary directory, where no room shows one as /tmp.
    pub scratch: Option<ScratchPlan>,
    /// Variables that lead tools to the project's own caches, where none are mounted.
    pub redirects: Vec<CacheRedirect>,
}

/// A temporary directory outside a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScratchPlan {
    /// The launcher makes a directory below this one, and removes it when the command ends.
    Below(PathBuf),
    /// The session's directory, which stays.
    Session(PathBuf),
}

/// Calls that the monitor carries out: those that change names, and opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchPlan {
    pub rights: SandboxRights,
    /// Opens for reading are watched too, because no mount can hold the rules. Each open
    /// then costs about ten microseconds.
    pub reads: bool,
    pub processes: ProcView,
    /// The number of names that the command may make; removed names are given back.
    pub files: Option<u64>,
    /// The visible paths, where no mount hides the invisible ones. Every call that looks at
    /// a path is then watched too.
    pub sight: Option<VisiblePaths>,
    /// The record of removed links. Without it, no directory gets another parent.
    pub former_links: Option<PathBuf>,
    /// The project's programs that have a door
    /// ([`DoorDirectory::paths`](crate::door::DoorDirectory::paths)). If there are any, each
    /// `execve` is watched.
    pub door_paths: Vec<String>,
    /// The monitor opens these copies in the place of the files.
    pub masks: MaskedFiles,
    /// Without a room: the rules about addresses and the loopback by which the monitor judges
    /// each `connect`. All other networking is refused.
    pub connects: Option<NetworkAccess>,
}

/// The processes in the command's /proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcView {
    OfTheRoom,
    /// All processes of the host. Each process may read only its own entries, and `net`
    /// only if it may use the network.
    OfTheHost {
        net: bool,
    },
}

/// The network of a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkMode {
    Deny,
    Allow,
}

/// The Landlock ABI that the direct tier needs. Scopes for signals and abstract sockets
/// came with ABI 6, in Linux 6.12.
pub const LANDLOCK_ABI_NEEDED: u32 = 6;

/// In a room, namespaces replace the scopes of newer ABIs. ABI 3 added truncation.
const ROOM_LANDLOCK_ABI: u32 = 3;

/// Finds the mechanisms that enforce every rule of the sandbox on this host.
pub fn plan(request: &PlanRequest<'_>, host: &HostFacts) -> Result<SandboxPlan, PlanError> {
    plan_with_or_without_cache_mounts(request, host, &mut PlanReport::default())
}

/// As [`plan`], with a report of the mechanism that holds each rule.
pub fn plan_with_report(
    request: &PlanRequest<'_>,
    host: &HostFacts,
) -> Result<(SandboxPlan, PlanReport), PlanError> {
    let mut report = PlanReport::listening();
    plan_with_or_without_cache_mounts(request, host, &mut report).map(|plan| (plan, report))
}

/// The first rule of a sandbox that no host can enforce with this version.
pub fn unenforceable(sandbox: &Sandbox) -> Option<PlanError> {
    match network::plan_network(sandbox) {
        Ok(_) => refuse_unbuilt_features(sandbox).err(),
        Err(refusal) => Some(refusal),
    }
}

/// Plans the sandbox as it is, if rooms can mount its caches or it has none. Otherwise plans
/// it with read-only shared caches, and adds the variables for the project's own caches.
fn plan_with_or_without_cache_mounts(
    request: &PlanRequest<'_>,
    host: &HostFacts,
    report: &mut PlanReport,
) -> Result<SandboxPlan, PlanError> {
    let Some((sandbox, redirects)) = caches::replace_cache_mounts(request, host, report) else {
        return make_with_mounts(request, host, report);
    };
    let request = PlanRequest { sandbox: &sandbox, caches: None, ..*request };
    make_with_mounts(&request, host, report).map(|plan| SandboxPlan { redirects, ..plan })
}

/// The plan, with each `cache()` as a mount: gathers the grants, chooses the tier, and plans
/// its parts. Refuses rules that this host cannot enforce. Adds its remarks to `report`.
fn make_with_mounts(
    request: &PlanRequest<'_>,
    host: &HostFacts,
    report: &mut PlanReport,
) -> Result<SandboxPlan, PlanError> {
    let sandbox = request.sandbox;
    check_host(host)?;
    let (net, ports) = network::plan_network(sandbox)?;
    refuse_unbuilt_features(sandbox)?;
    let group = host.limits.cgroup.clone();
    let rules = resolve_rules(request)?;
    let mut grants = grants_of_allow_rules(&rules, request.caches, report);
    refuse_planted_links(request, &rules)?;
    add_worktrees(&rules, &mut grants, report);
    add_launcher_needs(request, &mut grants, report)?;
    add_doors(request, host, &mut grants);
    overlap::check_cage(request, &grants)?;
    add_default(request, &mut grants);
    let baseline = remaining_baseline(request.disk, &rules, report);
    let crossing = tier::ports_need_room(request, &ports, host)?;
    let beyond_landlock = crossing
        || !request.doors.is_empty()
        || masks::need_mechanism(&rules, host)
        || tier::beyond_landlock(request, &rules, &grants);
    let tier = tier::choose_tier(beyond_landlock, host)?;
    if host.root && sandbox.limits.processes.is_some() && group.is_none() {
        check_process_limit_for_root(tier, host)
            .map_err(|why| PlanError::Uncounted { why, span: sandbox.span.clone() })?;
    }
    tier::check_execute_denies(request, &rules, &grants, host, tier == SandboxTier::Room, report)?;
    let parts = PlanParts { request, rules: &rules, grants: &grants, baseline: &baseline };
    let TierParts { room, watch, scratch } = match tier {
        SandboxTier::Direct => TierParts::default(),
        SandboxTier::Watched => plan_watched_tier(&parts, net, crossing, report)?,
        SandboxTier::Room => plan_room_tier(&parts, host, net, ports, report)?,
    };
    temporary::report_own_tmp(request, room.as_ref(), watch.as_ref(), scratch.as_ref(), report);
    if watch.is_some()
        && let Facility::Missing { why } = &host.notify
    {
        return Err(tier::refuse_unwatched(request, &rules, why));
    }
    let group = group.filter(|_| tier != SandboxTier::Direct);
    explain::report_limits(report, &sandbox.limits, group.as_deref(), host.root);
    explain::report_files_limit(report, &sandbox.limits, watch.as_ref());
    explain::report_tier(report, &rules, watch.as_ref(), room.as_ref(), net, host);
    Ok(SandboxPlan {
        sandbox: sandbox.name.clone(),
        grants: join_grants(grants),
        baseline,
        net,
        limits: sandbox.limits,
        group,
        landlock_abi: host.landlock_abi,
        root: host.root,
        room,
        watch,
        scratch,
        redirects: Vec::new(),
    })
}

/// The resolved rules and grants, from which a tier is made.
struct PlanParts<'a> {
    request: &'a PlanRequest<'a>,
    rules: &'a [ResolvedRule<'a>],
    grants: &'a [PathGrant],
    baseline: &'a [(&'static baseline::BaselineEntry, FileCaps)],
}

/// The parts of a plan that differ between the tiers.
#[derive(Default)]
struct TierParts {
    room: Option<RoomPlan>,
    watch: Option<WatchPlan>,
    scratch: Option<ScratchPlan>,
}

/// The parts of a plan for a host without namespaces: the monitor, with the visible paths,
/// and a temporary directory.
fn plan_watched_tier(
    parts: &PlanParts<'_>,
    net: NetworkMode,
    crossing: bool,
    report: &mut PlanReport,
) -> Result<TierParts, PlanError> {
    let PlanParts { request, rules, grants, baseline } = *parts;
    let connects = crossing.then(|| request.sandbox.net.clone());
    let mut rights = collect_rights(request, rules, grants, baseline)?;
    rights.host_processes = true;
    let scratch = tier::plan_scratch(request, &rights, report);
    let processes = ProcView::OfTheHost { net: net == NetworkMode::Allow };
    let fixed = drop_rules_about_names(&rights, rules);
    let masks = masks::read_masked_files(rules, &rights, report);
    let sources = MountSources { request, rules, grants, baseline, rights: &fixed, masks: &masks };
    let sight = Some(tier::plan_visible_paths(&sources));
    let files = request.sandbox.limits.most_files();
    // The kernel cannot tell a process's own entries in /proc from others', so the monitor
    // sees every open.
    let former_links = request.cage.former_links.clone();
    let door_paths = Vec::new();
    let watch = WatchPlan {
        rights,
        reads: true,
        processes,
        files,
        sight,
        former_links,
        door_paths,
        masks,
        connects,
    };
    Ok(TierParts { room: None, watch: Some(watch), scratch })
}

/// The parts of a plan with a room. The monitor is one of them only if mounts do not hold
/// every rule.
fn plan_room_tier(
    parts: &PlanParts<'_>,
    host: &HostFacts,
    net: NetworkMode,
    ports: SharedPorts,
    report: &mut PlanReport,
) -> Result<TierParts, PlanError> {
    let PlanParts { request, rules, grants, baseline } = *parts;
    let rights = collect_rights(request, rules, grants, baseline)?;
    let fixed = drop_rules_about_names(&rights, rules);
    let masks = &masks::read_masked_files(rules, &rights, report);
    let sources = MountSources { request, rules, grants, baseline, rights: &fixed, masks };
    let (mut room, unreadable) = view::plan_room(&sources, host, net == NetworkMode::Deny, ports);
    let rights = temporary::repeat_tmp_rules(rights, request, &room);
    let watch = watch_beyond_mounts(&sources, host, rights, &room, unreadable);
    room.own_sockets = room.own_network && watch.is_some() && !room.unix_sockets;
    Ok(TierParts { room: Some(room), watch, scratch: None })
}

/// The mechanisms that hold a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SandboxTier {
    /// Landlock and seccomp alone.
    Direct,
    /// As `Direct`, with the monitor. For hosts without namespaces.
    Watched,
    Room,
}

/// The plan of the monitor beside a room, or `None` if mounts and Landlock hold every rule.
/// Needed for rules about names, doors, a limit on files, links, and changes in a tree with
/// protected paths.
fn watch_beyond_mounts(
    sources: &MountSources<'_>,
    host: &HostFacts,
    mut rights: SandboxRights,
    room: &RoomPlan,
    unreadable: bool,
) -> Option<WatchPlan> {
    let MountSources { request, rules, grants, .. } = sources;
    rights.own = room.own();
    // Landlock rights add up: inside the room's own places everything is granted. So it is
    // where the session's directory contains something of the host.
    let around = rights.own.iter().chain(room.steps.iter().filter_map(|step| match step {
        MountStep::Show { at, .. } => Some(at),
        _ => None,
    }));
    let around: Vec<&PathBuf> = around.collect();
    let lent = |grant: &PathGrant| request.is_in_session_tmp(&grant.path);
    let wider = |grant: &&PathGrant| {
        !lent(grant) && around.iter().any(|outer| is_below(&grant.path, outer))
    };
    let inside = grants.iter().filter(wider).map(|grant| grant.caps);
    let least = inside.fold(FileCaps::ALL, FileCaps::intersect);
    let reads = unreadable
        || !least.contains(FileCaps::READ)
        || tier::must_watch_reads(request, rules, grants);
    let changes = grants.iter().any(|grant| grant.caps.intersects(FileCaps::CHANGE));
    // No mount tells where a link leads. Without a monitor, Landlock permits no links.
    let links = grants.iter().any(|grant| grant.caps.contains(FileCaps::CREATE))
        && !matches!(host.notify, Facility::Missing { .. });
    let limits = &request.sandbox.limits;
    let counted = limits.files.is_some() && limits.most_files().is_some();
    let watched = reads
        || counted
        || !request.doors.is_empty()
        || links
        || !least.contains(FileCaps::CHANGE)
        || changes && !tier::denies_nothing_inside(&rights);
    let files = limits.most_files();
    let processes = ProcView::OfTheRoom;
    let former_links = request.cage.former_links.clone();
    let has_door = room
        .steps
        .iter()
        .any(|step| matches!(step, MountStep::Doors { at, .. } if at == Path::new(PROJECT_DOORS)));
    let door_paths = request.doors.iter().filter(|_| has_door).flat_map(|it| it.paths.clone());
    let door_paths = door_paths.collect();
    let sight = None;
    watched.then_some(WatchPlan {
        rights,
        reads,
        processes,
        files,
        sight,
        masks: sources.masks.clone(),
        former_links,
        door_paths,
        connects: None,
    })
}

/// A copy of the rights without the rules about names, for the mount tree: such a rule must
/// not hide the directory of the names.
fn drop_rules_about_names(rights: &SandboxRights, rules: &[ResolvedRule<'_>]) -> SandboxRights {
    let mut fixed = rights.clone();
    let mut whole = rules.iter().map(|rule| !rule.is_partial());
    fixed.sandbox.fs.retain(|_| whole.next().unwrap_or(false));
    fixed
}

/// The rules with their real paths, the cage, the baseline, the grants without a rule
/// (worktrees, launcher) and the files that git obeys. Fails if a rule's real path is not
/// UTF-8.
fn collect_rights(
    request: &PlanRequest<'_>,
    rules: &[ResolvedRule<'_>],
    grants: &[PathGrant],
    baseline: &[(&'static baseline::BaselineEntry, FileCaps)],
) -> Result<SandboxRights, PlanError> {
    let disk = request.disk;
    let mut sandbox = request.sandbox.clone();
    sandbox.fs.clear();
    for rule in rules {
        let text = rule.real.to_str().ok_or_else(|| PlanError::Unresolvable {
            rule: rule.rule.pattern.to_string(),
            span: rule.rule.span.clone(),
            source: io::Error::from(io::ErrorKind::InvalidFilename),
        })?;
        sandbox.fs.push(FsRule { pattern: rule.rule.pattern.at(text), ..rule.rule.clone() });
    }
    let [project, home] = [&request.places.project, &request.places.home].map(|p| disk.real(p));
    let cage = request.cage.paths.clone();
    let given = grants.iter().filter(|grant| !matches!(grant.why, GrantReason::Rule(_)));
    let given: Vec<PathGrant> = given.cloned().collect();
    let places = PolicyPlaces { project, home, ..request.places.clone() };
    let held = match request.sandbox.protect.standard {
        true => tier::find_files_git_obeys(&places, &given, &request.sandbox.protect, disk),
        false => Vec::new(),
    };
    let real = |(entry, caps): &(&'static baseline::BaselineEntry, FileCaps)| {
        let named = Path::new(entry.path);
        let linked = baseline::LINKED.contains(&entry.path);
        (if linked { disk.real(named) } else { named.to_path_buf() }, *caps)
    };
    Ok(SandboxRights {
        sandbox,
        places,
        cage,
        baseline: baseline.iter().map(real).collect(),
        given,
        held,
        own: Vec::new(),
        lent: request.temporary.session.map(Path::to_path_buf),
        tmp_names: Vec::new(),
        host_processes: false,
    })
}

/// Refuses `cow()` rules: this version cannot enforce them.
fn refuse_unbuilt_features(sandbox: &Sandbox) -> Result<(), PlanError> {
    match sandbox.fs.iter().find(|rule| rule.writes == WriteTarget::Session) {
        Some(rule) => Err(PlanError::NotYet {
            rule: format!("cow() on {}", rule.pattern),
            span: rule.span.clone(),
        }),
        None => Ok(()),
    }
}

/// Fails with the reason if a limit on processes cannot be held for root. Root's processes
/// can be counted only by the process numbers of a room's process namespace: the kernel's own
/// limit (`RLIMIT_NPROC`) leaves root out.
fn check_process_limit_for_root(tier: SandboxTier, host: &HostFacts) -> Result<(), String> {
    match &host.limits.process_numbers {
        _ if tier != SandboxTier::Room => Err("no process namespace can be made".to_owned()),
        Facility::Works => Ok(()),
        Facility::Missing { why } => Err(why.clone()),
    }
}

/// Fails if the host lacks a mechanism that every tier needs: Landlock from ABI 3 on, and
/// seccomp filters. Fails also below a seccomp listener of another sandbox.
fn check_host(host: &HostFacts) -> Result<(), PlanError> {
    match host.landlock_abi {
        // Checked first: inside such a sandbox Landlock may be missing too.
        _ if host.around.listener => Err(PlanError::OuterListener),
        0 => Err(PlanError::NoLandlock),
        abi if abi < ROOM_LANDLOCK_ABI => Err(PlanError::LandlockTooOld { abi }),
        _ if !host.seccomp => Err(PlanError::NoSeccomp),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod room_tests;
#[cfg(test)]
mod tests;
