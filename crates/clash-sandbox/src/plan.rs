//! The planner: a Sandbox becomes what this host enforces to the last rule, or a
//! [`Refusal`] that names the rule it cannot.
//!
//! Landlock only ever adds rights to a subtree. So the grants are the union of
//! what the policy allows, what linked worktrees and the launcher need, and the
//! system baseline: never less than the rules give. What the rules take away
//! inside that is taken away by mounts, where a room can be made and the path is
//! there, and by the monitor ([`Watch`]) everywhere else. `ask` is `deny` to the
//! kernel: who asks the user is not this crate's business.
//!
//! Paths are resolved here, once. A path that does not exist gets nothing and
//! the report says so; nothing is created for the sake of a grant. A symlink
//! that leads out of a tree which the sandbox itself may change is refused: an
//! earlier command may have planted it to have its target granted now.

pub mod nesting;
mod overlap;
mod refusal;
mod report;
mod tier;
mod view;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clash_policy::path::{Links, is_below};
use clash_policy::{
    Caps, Effect, FsRule, HostPattern, Lifetime, Limits, Net, NetRule, PathPattern, Places,
    Sandbox, Span,
};

use crate::baseline;
use crate::disk::Disk;
use crate::host::{Facility, Host};
use crate::report::{Line, Report};
use crate::rights::Rights;
use crate::room::{Ports, Room};
use crate::worktree::{self, Worktree};
use overlap::Region;
pub use refusal::Refusal;
use view::Sources;

/// clash's own state, policies and caches and the agents' settings: paths that
/// no sandbox may change, whatever a policy says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cage {
    pub paths: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub sandbox: &'a Sandbox,
    pub places: &'a Places,
    pub cage: &'a Cage,
    /// Remembers what the caller has resolved already.
    pub disk: &'a Disk,
    /// What the launcher itself needs, for example to read the agent's shell
    /// snapshot. Allowed strictly inside the cage.
    pub extra: &'a [Grant],
}

/// A right that the plan gives: `caps` on `path` and everything below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub path: PathBuf,
    pub caps: Caps,
    pub why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    Rule(Span),
    Worktree,
    Launcher,
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rule(span) => write!(f, "{span}"),
            Self::Worktree => f.write_str("linked git worktree"),
            Self::Launcher => f.write_str("needed by the launcher"),
        }
    }
}

/// What [`crate::launch::run`] will do. Plain data; making one changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub sandbox: String,
    /// Sorted by path; no grant repeats what one above it already gives.
    pub grants: Vec<Grant>,
    /// What every sandbox gets, as far as it exists and the policy leaves it.
    pub baseline: Vec<(&'static baseline::Entry, Caps)>,
    pub net: Network,
    pub limits: Limits,
    /// The cgroup in which a room gets one of its own; without one, limits are
    /// those of each process.
    pub group: Option<PathBuf>,
    pub landlock_abi: u32,
    pub root: bool,
    /// The namespaced tier; `None` is the direct one.
    pub room: Option<Room>,
    pub watch: Option<Watch>,
    /// Where a temporary directory of the command's own is to be made, which goes
    /// when it ends. A room has its own without that.
    pub scratch: Option<PathBuf>,
}

/// What the monitor answers for: the calls that change names, and opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    pub rights: Rights,
    /// Opens for reading are watched too, because no mount can take away what the
    /// rules do. Every open then costs some ten microseconds.
    pub reads: bool,
    pub processes: Processes,
}

/// Whose processes /proc shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processes {
    OfTheRoom,
    /// Everybody's: each process may look at its own entries alone, and at what
    /// they say about the host's network only if it may use that.
    OfTheHost {
        net: bool,
    },
}

#[cfg(target_os = "linux")]
impl Plan {
    pub(crate) fn surface(&self) -> crate::linux::seccomp::Surface {
        use crate::linux::seccomp::Watched;
        let room = self.room.as_ref();
        crate::linux::seccomp::Surface {
            internet: self.net == Network::Allow || room.is_some_and(|room| room.own_network),
            unix: room.is_some_and(|room| room.unix_sockets),
            own_ipc: room.is_some(),
            inside: room.map_or_else(Default::default, |room| room.inside),
            watched: self
                .watch
                .as_ref()
                .map(|watch| if watch.reads { Watched::Opens } else { Watched::Changes }),
            frozen: room.is_none()
                && !self.grants.iter().any(|grant| grant.caps.intersects(Caps::CHANGE)),
        }
    }
}

/// The network of a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    Deny,
    Allow,
}

/// The Landlock ABI the direct tier stands on: signal and abstract socket
/// scopes came with 6, in Linux 6.12.
pub const LANDLOCK_ABI_NEEDED: u32 = 6;

/// In a room namespaces stand for what came later; truncating came with 3.
const LANDLOCK_ABI_OF_ROOMS: u32 = 3;

/// Finds the mechanisms that enforce every rule of the sandbox on this host.
pub fn plan(request: &Request<'_>, host: &Host) -> Result<Plan, Refusal> {
    make(request, host, &mut Report::default())
}

/// The same, with what holds each rule and why.
pub fn plan_with_report(request: &Request<'_>, host: &Host) -> Result<(Plan, Report), Refusal> {
    let mut report = Report::listening();
    make(request, host, &mut report).map(|plan| (plan, report))
}

fn make(request: &Request<'_>, host: &Host, report: &mut Report) -> Result<Plan, Refusal> {
    let sandbox = request.sandbox;
    check_host(host)?;
    let (net, ports) = network(sandbox)?;
    not_yet(sandbox, &ports)?;
    let group = group(sandbox, host);
    let rules = resolve(request)?;
    let mut grants = allowed(&rules, report);
    no_planted_links(request, &rules)?;
    add_worktrees(&rules, &mut grants, report);
    add_extra(request, &mut grants, report)?;
    overlap::inside_cage(request, &grants)?;
    add_default(request, &mut grants);
    let baseline = baseline_left(request.disk, &rules, report);
    let crossing = tier::crossing(request, &ports, host)?;
    let tier = tier::choose(crossing || tier::beyond_landlock(request, &rules, &grants), host)?;
    if host.root && sandbox.limits.processes.is_some() && group.is_none() {
        countable(tier).map_err(|why| Refusal::Uncounted { why, span: sandbox.span.clone() })?;
    }
    tier::execute(&rules, &grants, host, tier == Tier::Room, report)?;
    let mut scratch = None;
    let (room, watch) = match tier {
        Tier::Direct => (None, None),
        Tier::Watched => {
            let mut rights = rights(request, &rules, &grants, &baseline)?;
            rights.host_processes = true;
            scratch = tier::scratch(request, &rights, report);
            let processes = Processes::OfTheHost { net: net == Network::Allow };
            // The kernel cannot tell a process's own entries in /proc from others'.
            (None, Some(Watch { rights, reads: true, processes }))
        }
        Tier::Room => {
            let rights = rights(request, &rules, &grants, &baseline)?;
            // Mounts are about trees and files; what is said of names alone must not
            // hide the tree they are in.
            let mut fixed = rights.clone();
            let mut whole = rules.iter().map(|rule| !rule.wider());
            fixed.sandbox.fs.retain(|_| whole.next().unwrap_or(false));
            let (rules, grants, baseline) = (&rules, &grants, &baseline);
            let sources = Sources { request, rules, grants, baseline, rights: &fixed };
            let (room, unreadable) = view::room(&sources, host, net == Network::Deny, ports);
            let watch = beyond_mounts(&sources, rights, &room, unreadable);
            (Some(room), watch)
        }
    };
    if watch.is_some() && sandbox.lifetime == Some(Lifetime::Detached) {
        // Nobody is left to answer for it.
        let rule = "lifetime: detached, where calls are watched".to_owned();
        return Err(Refusal::NotYet { rule, span: sandbox.span.clone() });
    }
    if watch.is_some()
        && let Facility::Missing { why } = &host.notify
    {
        return Err(tier::unwatched(request, &rules, why));
    }
    // Nobody is left to remove the group of what lives on.
    let detached = sandbox.lifetime == Some(Lifetime::Detached);
    let group = group.filter(|_| tier != Tier::Direct && !detached);
    report::limits(report, &sandbox.limits, group.as_deref(), host.root);
    report::tier(report, &rules, watch.as_ref(), room.as_ref(), net, host);
    Ok(Plan {
        sandbox: sandbox.name.clone(),
        grants: reduce(grants),
        baseline,
        net,
        limits: sandbox.limits,
        group,
        landlock_abi: host.landlock_abi,
        root: host.root,
        room,
        watch,
        scratch,
    })
}

/// Which mechanisms hold a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tier {
    /// Landlock and seccomp alone.
    Direct,
    /// The same with the monitor: no namespaces can be made.
    Watched,
    Room,
}

/// What the mounts of a room do not hold.
fn beyond_mounts(
    sources: &Sources<'_>,
    mut rights: Rights,
    room: &Room,
    unreadable: bool,
) -> Option<Watch> {
    let Sources { request, rules, grants, .. } = sources;
    rights.own = room.own();
    // Landlock adds up: inside a place of the room's own everything is given.
    let wider = |grant: &&Grant| rights.own.iter().any(|own| is_below(&grant.path, own));
    let inside = grants.iter().filter(wider).map(|grant| grant.caps);
    let least = inside.fold(Caps::ALL, Caps::intersect);
    let reads = unreadable || !least.contains(Caps::READ) || tier::reads(request, rules, grants);
    let changes = grants.iter().any(|grant| grant.caps.intersects(Caps::CHANGE));
    let watched = reads || !least.contains(Caps::CHANGE) || changes && !tier::plain(&rights);
    watched.then_some(Watch { rights, reads, processes: Processes::OfTheRoom })
}

/// The rules with their paths on this disk, and everything else that decides.
fn rights(
    request: &Request<'_>,
    rules: &[Rule<'_>],
    grants: &[Grant],
    baseline: &[(&'static baseline::Entry, Caps)],
) -> Result<Rights, Refusal> {
    let disk = request.disk;
    let mut sandbox = request.sandbox.clone();
    sandbox.fs.clear();
    for rule in rules {
        let text = rule.real.to_str().ok_or_else(|| Refusal::Unresolvable {
            rule: rule.rule.pattern.to_string(),
            span: rule.rule.span.clone(),
            source: io::Error::from(io::ErrorKind::InvalidFilename),
        })?;
        sandbox.fs.push(FsRule { pattern: rule.rule.pattern.at(text), ..rule.rule.clone() });
    }
    let [project, home] = [&request.places.project, &request.places.home].map(|p| disk.real(p));
    // Both spellings: the link itself must not be replaced either.
    let caged = request.cage.paths.iter().flat_map(|path| [path.clone(), disk.real(path)]);
    let mut cage: Vec<PathBuf> = caged.collect();
    cage.dedup();
    let given = grants.iter().filter(|grant| !matches!(grant.why, Why::Rule(_)));
    let given: Vec<Grant> = given.cloned().collect();
    let places = Places { project, home, ..request.places.clone() };
    let held = match request.sandbox.protect.standard {
        true => tier::git_goes_by(&places, &given, &request.sandbox.protect, disk),
        false => Vec::new(),
    };
    let real = |(entry, caps): &(&'static baseline::Entry, Caps)| {
        let named = Path::new(entry.path);
        let linked = baseline::LINKED.contains(&entry.path);
        (if linked { disk.real(named) } else { named.to_path_buf() }, *caps)
    };
    Ok(Rights {
        sandbox,
        places,
        cage,
        baseline: baseline.iter().map(real).collect(),
        given,
        held,
        own: Vec::new(),
        host_processes: false,
    })
}

/// Where the default allows, everything that lies in the root directory is
/// granted, but for what a room has of its own and the kernel's settings.
fn add_default(request: &Request<'_>, grants: &mut Vec<Grant>) {
    if request.sandbox.default != Effect::Allow || request.sandbox.unrestricted {
        return;
    }
    let Ok(entries) = fs::read_dir("/") else { return };
    let kept = ["/proc", "/sys", "/dev"].map(Path::new);
    for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
        let real_directory = fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir());
        if real_directory && !kept.contains(&path.as_path()) {
            let why = Why::Rule(request.sandbox.span.clone());
            grants.push(Grant { path, caps: Caps::ALL, why });
        }
    }
}

/// The network, and which of the host's ports lead out of one that is denied.
fn network(sandbox: &Sandbox) -> Result<(Network, Ports), Refusal> {
    let served = sandbox.serve.clone();
    let rule = match &sandbox.net {
        Net::Deny => return Ok((Network::Deny, Ports { reached: Vec::new(), served })),
        // With the host's network what listens inside listens on the host.
        Net::Allow => return Ok((Network::Allow, Ports::default())),
        Net::Ask => "net = ask()".to_owned(),
        Net::Hosts { rules, default } => {
            let allowed = || rules.iter().filter(|rule| rule.effect == Effect::Allow);
            let by_port =
                |rule: &NetRule| rule.host == HostPattern::Localhost && !rule.ports.is_empty();
            if *default != Effect::Allow && allowed().all(by_port) {
                let judged = |port: &u16| sandbox.net.judge("localhost", *port).0 == Effect::Allow;
                let mut reached: Vec<u16> =
                    allowed().flat_map(|rule| rule.ports.iter().copied()).filter(judged).collect();
                reached.sort_unstable();
                reached.dedup();
                return Ok((Network::Deny, Ports { reached, served }));
            }
            let hosts: Vec<String> = rules.iter().map(NetRule::to_string).collect();
            format!("net: {}", hosts.join(", "))
        }
    };
    Err(Refusal::NotYet { rule, span: sandbox.span.clone() })
}

/// What the language can say and this version cannot hold.
fn not_yet(sandbox: &Sandbox, ports: &Ports) -> Result<(), Refusal> {
    let detached = sandbox.lifetime == Some(Lifetime::Detached);
    let said = [
        // Nobody is left to look at the clock, or to carry what is said.
        (detached && sandbox.limits.wall_seconds.is_some())
            .then(|| ("lifetime: detached, with a wall limit".to_owned(), &sandbox.span)),
        (detached && *ports != Ports::default())
            .then(|| ("lifetime: detached, with ports".to_owned(), &sandbox.span)),
        sandbox.fs.iter().find(|r| r.cow).map(|r| (format!("cow() on {}", r.pattern), &r.span)),
    ];
    match said.into_iter().flatten().next() {
        Some((rule, span)) => Err(Refusal::NotYet { rule, span: span.clone() }),
        None => Ok(()),
    }
}

/// Where the command can have a cgroup, if a limit asks for one and the host was
/// seen to have them. Without one the limits are those of each process.
#[cfg(target_os = "linux")]
fn group(sandbox: &Sandbox, host: &Host) -> Option<PathBuf> {
    let limits = &sandbox.limits;
    let wanted = limits.memory_bytes.is_some() || limits.processes.is_some();
    let home = || crate::linux::cgroup::home(limits);
    (wanted && host.cgroup.here().works()).then(home).flatten()
}

#[cfg(not(target_os = "linux"))]
fn group(_: &Sandbox, _: &Host) -> Option<PathBuf> {
    None
}

/// Whether the processes of root can be counted, which the kernel's own count
/// leaves out. Tried, and only where it matters: it costs two processes.
#[cfg(target_os = "linux")]
fn countable(tier: Tier) -> Result<(), String> {
    if tier != Tier::Room {
        return Err("no process namespace can be made".to_owned());
    }
    crate::linux::attempts::process_numbers()
}

#[cfg(not(target_os = "linux"))]
fn countable(_: Tier) -> Result<(), String> {
    Err("not Linux".to_owned())
}

fn check_host(host: &Host) -> Result<(), Refusal> {
    match host.landlock_abi {
        // First: inside such a sandbox there is no Landlock either.
        _ if host.around.listener => Err(Refusal::OuterListener),
        0 => Err(Refusal::NoLandlock),
        abi if abi < LANDLOCK_ABI_OF_ROOMS => Err(Refusal::LandlockTooOld { abi }),
        _ if !host.seccomp => Err(Refusal::NoSeccomp),
        _ => Ok(()),
    }
}

/// A file rule with its paths on this disk.
struct Rule<'a> {
    rule: &'a FsRule,
    /// Variables filled in, links not followed.
    written: PathBuf,
    /// Links followed as far as the path exists.
    real: PathBuf,
    found: Found,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Directory,
    Other,
    Missing,
    /// Exists or not: this user cannot get there.
    OutOfReach,
}

impl Rule<'_> {
    /// The rule as a policy's author would say it, with its place.
    fn text(&self) -> String {
        let FsRule { pattern, effect, caps, span, .. } = self.rule;
        format!("{effect} {caps} {pattern} ({span})")
    }

    fn region(&self) -> Region {
        match self.rule.pattern {
            PathPattern::Subpath { .. } => Region::Below,
            PathPattern::Literal(_) => Region::Exactly,
            PathPattern::Children(_) => Region::Inside,
            PathPattern::Glob { .. } | PathPattern::Regex { .. } => Region::Anywhere,
        }
    }

    /// Whether a grant from the fixed part downwards is more than the rule says.
    fn wider(&self) -> bool {
        match self.region() {
            Region::Below => false,
            Region::Exactly => self.found == Found::Directory,
            Region::Inside | Region::Anywhere => true,
        }
    }

    /// What an allow gives to Landlock.
    fn granted(&self, rules: &[Rule<'_>]) -> Caps {
        if self.wider() {
            // Nobody can look at what is executed before the kernel does.
            return self.rule.caps.without(Caps::EXECUTE);
        }
        // On the very same path the stricter rule wins per capability.
        let narrowed = rules
            .iter()
            .filter(|r| r.rule.effect != Effect::Allow && r.real == self.real)
            .filter(|r| match r.region() {
                Region::Below => true,
                Region::Exactly => self.found == Found::Other,
                Region::Inside | Region::Anywhere => false,
            })
            .fold(self.rule.caps, |caps, r| caps.without(r.rule.caps));
        match self.found {
            // Making and removing a name is a right over its directory.
            Found::Other => narrowed.without(Caps::CREATE.union(Caps::DELETE)),
            _ => narrowed,
        }
    }
}

fn resolve<'a>(request: &Request<'a>) -> Result<Vec<Rule<'a>>, Refusal> {
    let resolve = |rule: &'a FsRule| {
        let written = request.places.expand(rule.pattern.fixed()).map_err(|source| {
            Refusal::Path { rule: rule.pattern.to_string(), span: rule.span.clone(), source }
        })?;
        let (real, found) =
            real(request.disk, &written).map_err(|source| Refusal::Unresolvable {
                rule: rule.pattern.to_string(),
                span: rule.span.clone(),
                source,
            })?;
        Ok(Rule { rule, written, real, found })
    };
    request.sandbox.fs.iter().map(resolve).collect()
}

/// Follows symlinks as far as the path exists, keeps the rest as it is, and
/// looks at what is there.
fn real(disk: &Disk, path: &Path) -> io::Result<(PathBuf, Found)> {
    let real = disk.real(path);
    let found = match fs::metadata(&real) {
        Ok(meta) if meta.is_dir() => Found::Directory,
        Ok(_) => Found::Other,
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Found::Missing,
            io::ErrorKind::PermissionDenied => Found::OutOfReach,
            _ => return Err(error),
        },
    };
    Ok((real, found))
}

/// What Landlock is to grant: for each rule that allows, its rights from its
/// fixed part downwards, which for a pattern is more than it says.
fn allowed(rules: &[Rule<'_>], report: &mut Report) -> Vec<Grant> {
    let mut grants = Vec::with_capacity(rules.len() + baseline::ENTRIES.len() + 16);
    for allow in rules.iter().filter(|r| r.rule.effect == Effect::Allow) {
        let nothing = match allow.found {
            Found::Directory | Found::Other => None,
            Found::Missing => Some("does not exist now; nothing granted"),
            Found::OutOfReach => Some("this user cannot reach it; nothing granted"),
        };
        if let Some(why) = nothing {
            report.say(|| Line::new(allow.text(), Line::NOTHING, why));
            continue;
        }
        let caps = allow.granted(rules);
        report.say(|| {
            let place = allow.real.display();
            match (allow.wider(), caps == allow.rule.caps) {
                (true, true) => Line::new(
                    allow.text(),
                    "landlock + monitor",
                    format!("a rule on `{place}`, and each use below it is looked at"),
                ),
                (true, false) => Line::new(
                    allow.text(),
                    "landlock + monitor",
                    format!(
                        "only `{caps}` below `{place}`: the right to execute cannot be given to \
                         names, and another rule may take the rest"
                    ),
                ),
                (false, true) => Line::new(
                    allow.text(),
                    "landlock",
                    format!("a rule on `{place}` gives these rights there and nowhere else"),
                ),
                (false, false) => Line::new(
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
            grants.push(Grant { path, caps, why: Why::Rule(allow.rule.span.clone()) });
        }
    }
    grants
}

/// Refuses a rule whose path runs through a symlink that an earlier command
/// could have made: inside the project, the temporary directory, or whatever
/// this sandbox may create files in.
fn no_planted_links(request: &Request<'_>, rules: &[Rule<'_>]) -> Result<(), Refusal> {
    let granted = |r: &&Rule<'_>| {
        r.rule.effect == Effect::Allow && matches!(r.found, Found::Directory | Found::Other)
    };
    let linked = |r: &&Rule<'_>| r.written != r.real;
    let mut trees = Vec::new();
    for allow in rules.iter().filter(granted).filter(linked) {
        if trees.is_empty() {
            for place in [&request.places.project, &request.places.tmp] {
                trees.push((place.clone(), request.disk.real(place)));
            }
            let changing = rules
                .iter()
                .filter(|r| r.rule.effect == Effect::Allow && r.rule.caps.contains(Caps::CREATE));
            trees.extend(changing.map(|r| (r.written.clone(), r.real.clone())));
        }
        for (written, real) in &trees {
            // A tree's own root may be spelled either way.
            let inside = [written, real]
                .into_iter()
                .any(|root| is_below(&allow.written, root) && allow.written != *root);
            if inside && !is_below(&allow.real, real) {
                return Err(Refusal::LeavesTree {
                    rule: allow.rule.pattern.to_string(),
                    span: allow.rule.span.clone(),
                    target: allow.real.clone(),
                    tree: real.clone(),
                });
            }
        }
    }
    Ok(())
}

fn add_worktrees(rules: &[Rule<'_>], grants: &mut Vec<Grant>, report: &mut Report) {
    for rule in rules.iter().filter(|r| r.rule.effect == Effect::Allow) {
        let PathPattern::Subpath { follow_worktrees: true, .. } = rule.rule.pattern else {
            continue;
        };
        if rule.found != Found::Directory {
            continue;
        }
        match worktree::look(&rule.real) {
            Worktree::Plain => {}
            Worktree::Disbelieved(why) => {
                let why = format!("{why}; nothing granted");
                report.say(|| {
                    Line::new(format!("git worktree of {}", rule.text()), Line::NOTHING, why)
                });
            }
            Worktree::Linked(found) => {
                report.say(|| {
                    Line::new(
                        format!("git worktree of {}", rule.text()),
                        "landlock",
                        "its git directory and the repository's objects, refs and logs; \
                     hooks and config stay read-only",
                    )
                });
                // Never more than the rule itself gives, so that a read-only
                // project has a read-only repository.
                grants.extend(found.into_iter().map(|(path, caps)| {
                    let caps = caps.intersect(rule.rule.caps);
                    Grant { path, caps, why: Why::Worktree }
                }));
            }
        }
    }
    grants.retain(|grant| !grant.caps.is_empty());
}

/// What the launcher needs. Its files lie in places a command may write and have
/// names that can be guessed: one that has become a link since the launcher made
/// it is somebody's trap.
fn add_extra(
    request: &Request<'_>,
    grants: &mut Vec<Grant>,
    report: &mut Report,
) -> Result<(), Refusal> {
    for grant in request.extra {
        let name = || format!("{} {}", grant.caps, grant.path.display());
        // Asked anew: what was resolved earlier may be what was replaced.
        let disk = Disk::default();
        let (path, found) = real(&disk, &grant.path)
            .map_err(|source| Refusal::Extra { path: grant.path.clone(), source })?;
        let leaf = grant.path.file_name().unwrap_or_default();
        let expected = grant.path.parent().map(|dir| disk.real(dir).join(leaf));
        if expected.as_ref() != Some(&path) {
            return Err(Refusal::Replaced { path: grant.path.clone() });
        }
        match found {
            Found::Directory | Found::Other => {
                report.say(|| Line::new(name(), "landlock", grant.why.to_string()));
                grants.push(Grant { path, ..grant.clone() });
            }
            Found::Missing | Found::OutOfReach => report
                .say(|| Line::new(name(), Line::NOTHING, "does not exist now; nothing granted")),
        }
    }
    Ok(())
}

fn baseline_left(
    disk: &Disk,
    rules: &[Rule<'_>],
    report: &mut Report,
) -> Vec<(&'static baseline::Entry, Caps)> {
    let mut dropped = Vec::new();
    let mut left = Vec::with_capacity(baseline::ENTRIES.len());
    // What an entry resolves to matters only to a rule that takes something
    // away. Without one the launcher finds out by opening it: looking at each
    // entry here as well would cost a hundred microseconds per launch.
    let look = rules.iter().any(|r| r.rule.effect != Effect::Allow);
    for entry in baseline::ENTRIES {
        let named = Path::new(entry.path);
        if merged_into_usr(disk, named) {
            continue;
        }
        let caps = if look {
            overlap::baseline_caps(rules, entry, named, &disk.real(named)).0
        } else {
            entry.caps
        };
        if caps != entry.caps {
            dropped.push(entry.path);
        }
        if !caps.is_empty() {
            left.push((entry, caps));
        }
    }
    report.say(|| {
        Line::new(
            "system baseline",
            "landlock",
            format!(
                "{} paths as far as they exist: programs, libraries, certificates, locale, \
             basic devices, /proc",
                left.len()
            ),
        )
    });
    if !dropped.is_empty() {
        let why = format!("denied by the policy: {}", dropped.join(", "));
        report.say(|| Line::new("system baseline", "landlock", why));
    }
    left
}

/// /bin and its kin are links into /usr nearly everywhere, and /usr is granted:
/// reading the link saves a rule.
fn merged_into_usr(disk: &Disk, path: &Path) -> bool {
    matches!(path.to_str(), Some("/bin" | "/sbin" | "/lib" | "/lib64"))
        && disk.real(path).starts_with("/usr")
}

fn covered(grants: &[Grant], path: &Path, caps: Caps) -> bool {
    grants.iter().any(|g| is_below(path, &g.path) && g.caps.contains(caps))
}

/// Joins grants on one path and drops those that one above already gives: every
/// rule costs microseconds at every launch.
fn reduce(mut grants: Vec<Grant>) -> Vec<Grant> {
    // By bytes: a directory still comes before what is in it. Stable: on one
    // path the policy's own grant stays before the baseline's and gives the reason.
    grants.sort_by(|a, b| a.path.as_os_str().cmp(b.path.as_os_str()));
    let mut kept: Vec<Grant> = Vec::with_capacity(grants.len());
    for grant in grants {
        if covered(&kept, &grant.path, grant.caps) {
            continue;
        }
        match kept.last_mut().filter(|last| last.path.as_os_str() == grant.path.as_os_str()) {
            Some(last) => last.caps = last.caps.union(grant.caps),
            None => kept.push(grant),
        }
    }
    kept
}

#[cfg(test)]
mod room_tests;
#[cfg(test)]
mod tests;
