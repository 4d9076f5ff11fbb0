//! Turns rules into marks, and marks into the mounts of a room.
//!
//! A mark is a path at which the rights change: where a rule, the baseline or the cage
//! begins. Its rights come from the same judge as for file tools (the longest key wins, for
//! each right), so the kernel and the policy agree. The planner walks the marks from the
//! root down. A mark whose rights differ from the mark around it costs one mount.
//!
//! Mounts can hide a path or restrict it to read, write and execute. The monitor holds the
//! rest: separate rights to write, create and delete, names that do not exist, and
//! patterns. It also prevents the rename of a directory with a mount inside. A pattern that
//! allows opens the tree from its fixed part downwards.

mod doors;
mod session_directory;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use clash_policy::path::{LinkResolver, is_below};
use clash_policy::{Effect, FileCaps, ProcessLifetime};

use self::session_directory::SessionPoint;
use super::rules::links_of;
use super::{FoundPath, GrantReason, PathGrant, PlanRequest, ResolvedRule};
use crate::baseline::{BaselineEntry, LINKED};
use crate::disk::Disk;
use crate::facts::{HostFacts, RoomSupport};
use crate::plan::cache::{directory_of, is_cache};
use crate::plan::masks::MaskedFiles;
use crate::plan::rights::SandboxRights;
use crate::plan::room::{
    CoveredPlace, MountAccess, MountStep, RoomInterior, RoomPlan, SharedPorts,
};

/// The sources of the mount tree.
pub(super) struct MountSources<'a> {
    pub(super) request: &'a PlanRequest<'a>,
    pub(super) rules: &'a [ResolvedRule<'a>],
    pub(super) grants: &'a [PathGrant],
    pub(super) baseline: &'a [(&'static BaselineEntry, FileCaps)],
    /// Without the rules about names.
    pub(super) rights: &'a SandboxRights,
    pub(super) masks: &'a MaskedFiles,
}

/// A path at which the rights may change.
pub(super) struct RightsMark {
    /// True for everything but a directory.
    pub(super) file: bool,
    /// True if the policy or the baseline names the path. Then its socket files count.
    named: bool,
    /// True if a rule keeps the changes in a cache of the project's own.
    cache: bool,
}

/// The form in which mounts can show a path: not at all, or with the access of one mount.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MountShape {
    Hidden,
    Seen(MountAccess),
}

/// A mark that contains the current one. The innermost one is last in
/// [`MountPlanner::outer`].
struct OuterMark {
    path: PathBuf,
    shape: MountShape,
    /// The index of the step that covers it, if it is hidden inside a visible tree.
    cover: Option<usize>,
    cache: bool,
}

/// Plans the mounts of a room. The second value is true if the monitor has to judge reads:
/// Landlock permits to read a visible path that the rules do not, or a rule is about a path
/// inside the session's directory, whose mount is at only one of its names.
pub(super) fn plan_room(
    sources: &MountSources<'_>,
    host: &HostFacts,
    own_network: bool,
    ports: SharedPorts,
) -> (RoomPlan, bool) {
    let marks = sources.collect_marks();
    let mut view = MountPlanner::new(sources, &marks, host);
    for (path, mark) in &marks {
        view.add_mark(path, mark);
    }
    view.add_doors();
    let cut = |rule: &ResolvedRule<'_>| {
        let session = sources.request.temporary.session;
        session.is_some_and(|session| is_below(&rule.real, session) && rule.real != session)
    };
    let unreadable = view.unreadable || sources.rules.iter().any(cut);
    let unix_sockets = view.granted_socket
        && view.foreign_sockets.is_none()
        && (own_network || host.landlock_abi >= 6);
    let user_namespace = host.rooms != RoomSupport::Root;
    let lives_on = sources.request.sandbox.lifetime != Some(ProcessLifetime::Action);
    let returned = std::mem::take(&mut view.returned);
    let mut steps = view.into_steps();
    if ports.gate.is_some() {
        add_resolver(&mut steps, sources);
    }
    let inside = RoomInterior::Commands;
    let room = RoomPlan {
        user_namespace,
        own_network,
        ports,
        unix_sockets,
        own_sockets: false,
        inside,
        lives_on,
        returned,
        steps,
    };
    (room, unreadable)
}

/// The room asks its gate for names. The file exists in the room if the baseline shows it.
fn add_resolver(steps: &mut Vec<MountStep>, sources: &MountSources<'_>) {
    const RESOLVER: &str = "/etc/resolv.conf";
    if !sources.baseline.iter().any(|(entry, _)| entry.path == RESOLVER) {
        return;
    }
    let at = sources.request.disk.real(Path::new(RESOLVER));
    let before = steps.iter().position(|step| matches!(step, MountStep::Processes { .. }));
    steps.insert(before.unwrap_or(steps.len()), MountStep::Resolver { at });
}

impl MountSources<'_> {
    /// The existing paths where the rights may change, in order: those of rules, grants
    /// without a rule, the baseline, the cage outside the project, and the root's directories
    /// under a default of allow. Reads the disk.
    pub(super) fn collect_marks(&self) -> BTreeMap<PathBuf, RightsMark> {
        let mut marks = BTreeMap::new();
        let mut add = |path: &Path, found: FoundPath, named: bool| {
            let file = match found {
                FoundPath::Directory => false,
                FoundPath::Other => true,
                FoundPath::Missing | FoundPath::OutOfReach => return,
            };
            let mark =
                marks.entry(path.to_path_buf()).or_insert(RightsMark { file, named, cache: false });
            mark.named |= named;
        };
        for rule in self.rules.iter().filter(|r| !r.is_partial() || r.rule.effect == Effect::Allow)
        {
            add(&rule.real, rule.found, true);
        }
        let caches = self.rules.iter().filter(|rule| is_cache(rule.rule));
        let caches: Vec<&PathBuf> = caches.map(|rule| &rule.real).collect();
        for grant in self.grants.iter().filter(|grant| !matches!(grant.why, GrantReason::Rule(_))) {
            add(&grant.path, look_up(&grant.path), true);
        }
        for (entry, _) in self.baseline {
            let path = Path::new(entry.path);
            if path.starts_with("/etc") {
                add(Path::new("/etc"), FoundPath::Directory, false);
                if LINKED.contains(&entry.path) {
                    let real = self.request.disk.real(path);
                    if !real.starts_with("/etc") {
                        add(&real, look_up(&real), false);
                    }
                }
            } else if entry.directory && !ROOM_OWN_PATHS.iter().any(|own| path.starts_with(own)) {
                let linked = LINKED.contains(&entry.path).then(|| self.request.disk.real(path));
                let path = linked.as_deref().unwrap_or(path);
                add(path, look_up(path), false);
            }
        }
        let project = &self.rights.places.project;
        for caged in self.request.cage.paths.iter().filter(|path| !is_below(path, project)) {
            add(caged, look_up_unless_link(self.request.disk, caged), false);
        }
        if self.request.sandbox.default == Effect::Allow {
            for grant in
                self.grants.iter().filter(|grant| grant.path.parent() == Some("/".as_ref()))
            {
                add(&grant.path, FoundPath::Directory, false);
            }
        }
        for cache in caches {
            if let Some(mark) = marks.get_mut(cache) {
                mark.cache = !mark.file;
            }
        }
        marks
    }

    /// The rights that the mounts must leave at a path: those of the rules, and those of
    /// every allow pattern above the path, unless the path is caged. /etc counts as readable
    /// if there is a baseline. Nothing can be created or deleted below a file.
    pub(super) fn caps(&self, path: &Path, file: bool) -> FileCaps {
        let mut caps = self.rights.caps(path);
        // The whole of /etc is visible. Landlock permits to read only the baseline's files there.
        if path == Path::new("/etc") && !self.baseline.is_empty() {
            caps = caps.union(FileCaps::READ);
        }
        let opened = |rule: &&ResolvedRule<'_>| {
            rule.rule.effect == Effect::Allow && rule.is_partial() && is_below(path, &rule.real)
        };
        let caged = self.request.cage.paths.iter().any(|caged| is_below(path, caged))
            && !self.request.is_in_session_tmp(path);
        if !caged {
            for rule in self.rules.iter().filter(opened) {
                caps = caps.union(rule.landlock_caps(self.rules));
            }
        }
        if file { caps.without(MAKING) } else { caps }
    }

    /// The rights that Landlock gives at a path. They add up from the root down.
    fn landlock_caps(&self, path: &Path) -> FileCaps {
        let granted = self.grants.iter().filter(|grant| is_below(path, &grant.path));
        let caps = granted.fold(FileCaps::NONE, |caps, grant| caps.union(grant.caps));
        let entries =
            self.baseline.iter().filter(|(entry, _)| is_below(path, Path::new(entry.path)));
        entries.fold(caps, |caps, (_, more)| caps.union(*more))
    }
}

const MAKING: FileCaps = FileCaps::CREATE.union(FileCaps::DELETE);

/// Top directories that are links on most systems, for example /bin to /usr/bin.
pub(super) const LINKS: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib64", "/lib32", "/opt"];

/// Baseline paths that a room has of its own, or lacks: cgroups and kernel settings would
/// tell about the host.
const ROOM_OWN_PATHS: [&str; 4] = ["/proc", "/dev", "/sys/fs/cgroup", "/sys/kernel"];

/// The type of a path on the disk, links followed. Every error counts as missing.
fn look_up(path: &Path) -> FoundPath {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => FoundPath::Directory,
        Ok(_) => FoundPath::Other,
        Err(_) => FoundPath::Missing,
    }
}

/// As [`look_up`], but a link counts as missing: nothing can be mounted on it, and its target
/// has a path of its own.
fn look_up_unless_link(disk: &Disk, path: &Path) -> FoundPath {
    // Most caged paths do not exist. A link that leads nowhere is no mark either.
    if !disk.has(path) {
        return FoundPath::Missing;
    }
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => FoundPath::Directory,
        Ok(meta) if meta.is_file() => FoundPath::Other,
        _ => FoundPath::Missing,
    }
}

/// Collects the steps of a room while the marks are walked from the root down.
struct MountPlanner<'a> {
    sources: &'a MountSources<'a>,
    outer: Vec<OuterMark>,
    scratch: Vec<PathBuf>,
    /// Scratch places inside others, whose directories are fenced.
    nested: Vec<PathBuf>,
    /// Directories, files and links on the room's own root, and the mounts of temporary directories.
    skeleton: Vec<MountStep>,
    /// Top directories inside a scratch place that must not be scratch.
    fences: Vec<PathBuf>,
    /// Other paths at which the room shows the session's temporary directory.
    session_at: Vec<PathBuf>,
    session_writable: bool,
    /// Paths of the host inside these directories, for example a project below /tmp.
    points: BTreeMap<PathBuf, SessionPoint>,
    /// The session's directory once more, if the host's `TMPDIR` is below /tmp.
    shown_inside: Option<MountStep>,
    /// See [`RoomPlan::returned`].
    returned: Vec<PathBuf>,
    steps: Vec<MountStep>,
    /// A visible place with sockets that the policy lets no command write.
    foreign_sockets: Option<PathBuf>,
    /// True if a rule names a socket and permits to write it.
    granted_socket: bool,
    /// True if something is visible that Landlock permits to read and the rules do not.
    unreadable: bool,
    /// False if this host has no overlays.
    overlay: bool,
}

impl<'a> MountPlanner<'a> {
    /// Starts with the parts that every room has: system links, temporary directories, the
    /// home as an empty directory, and links on the way of rules.
    fn new(
        sources: &'a MountSources<'a>,
        marks: &BTreeMap<PathBuf, RightsMark>,
        host: &HostFacts,
    ) -> Self {
        let mut view = Self {
            sources,
            outer: Vec::new(),
            scratch: Vec::new(),
            nested: Vec::new(),
            skeleton: Vec::new(),
            fences: Vec::new(),
            session_at: Vec::new(),
            session_writable: false,
            points: BTreeMap::new(),
            shown_inside: None,
            returned: Vec::new(),
            steps: Vec::with_capacity(32),
            foreign_sockets: None,
            granted_socket: false,
            unreadable: false,
            overlay: host.overlay.works(),
        };
        view.add_system_links();
        view.add_temporary_directories(marks);
        let home = sources.request.disk.real(&sources.request.places.home);
        view.add_directory(&home);
        view.add_links_of_rules();
        view
    }

    /// Repeats links of the user on the way of a rule, for example `~/.cargo`, which leads to
    /// `/data/cargo`. Only where no tree of the host shows them.
    fn add_links_of_rules(&mut self) {
        for at in links_of(self.sources.rules, self.sources.request.disk, self.sources.masks) {
            let (Some(dir), Ok(to)) = (at.parent(), fs::read_link(&at)) else { continue };
            if !self.skeleton_has(&at) && self.sources.caps(dir, false).is_empty() {
                self.add_directory(dir);
                self.skeleton.push(MountStep::Link { at, to });
            }
        }
    }

    /// Repeats those of [`LINKS`] that are links on the host, for example /bin to usr/bin.
    fn add_system_links(&mut self) {
        for name in LINKS {
            if let Ok(to) = fs::read_link(name) {
                self.skeleton.push(MountStep::Link { at: name.into(), to });
            }
        }
    }

    /// Makes a directory on the room's own root, with its parents. Inside the session's
    /// directory it becomes a mount point. The first directory below a scratch place is
    /// fenced: the command cannot write there.
    fn add_directory(&mut self, path: &Path) {
        if self.session_at.iter().any(|at| at == path) || self.add_session_point(path, false) {
            return;
        }
        let mut missing: Vec<&Path> =
            path.ancestors().take_while(|dir| !self.skeleton_has(dir)).collect();
        while let Some(dir) = missing.pop() {
            let fence = self.scratch.iter().any(|scratch| dir.parent() == Some(scratch));
            if fence {
                self.fences.push(dir.to_path_buf());
            }
            self.skeleton.push(MountStep::Directory { at: dir.to_path_buf() });
        }
    }

    /// True if the room's own root already has a directory or a link with this path.
    fn skeleton_has(&self, dir: &Path) -> bool {
        dir == Path::new("/")
            || self.skeleton.iter().any(|step| match step {
                MountStep::Directory { at }
                | MountStep::Scratch { at }
                | MountStep::Link { at, .. } => at == dir,
                _ => false,
            })
    }

    /// Adds the mount of one mark: none if it is as hidden or as accessible as the mark
    /// around it. The marks must come in order, outer before inner.
    fn add_mark(&mut self, path: &Path, mark: &RightsMark) {
        while self.outer.last().is_some_and(|outer| !is_below(path, &outer.path)) {
            self.outer.pop();
        }
        let around = self.outer.last().map_or(MountShape::Hidden, |outer| outer.shape);
        let caps = self.sources.caps(path, mark.file);
        let shape = self.shape_of(path, caps);
        self.note_sockets(path, mark, shape);
        if let Some(text) = self.sources.masks.get(path) {
            if around == MountShape::Hidden {
                self.add_mount_point(path, true);
            }
            self.steps.push(MountStep::Masked { at: path.to_path_buf(), text: text.clone() });
            return;
        }
        if self.is_returned(path, mark) {
            self.returned.push(path.to_path_buf());
            return;
        }
        let mut cover = None;
        let in_cache = self.outer.last().is_some_and(|outer| outer.cache);
        let own = mark.cache && !in_cache;
        match (around, shape) {
            (_, MountShape::Seen(MountAccess { write: true, .. })) if own => {
                if around == MountShape::Hidden {
                    self.add_mount_point(path, mark.file);
                }
                self.mount_cache(path, caps);
            }
            (MountShape::Hidden, MountShape::Hidden) => return,
            (MountShape::Seen(outer), MountShape::Seen(inner)) if outer == inner => return,
            (MountShape::Hidden, MountShape::Seen(access)) => {
                self.add_mount_point(path, mark.file);
                self.steps.push(MountStep::Bind { path: path.to_path_buf(), access });
            }
            (MountShape::Seen(outer), MountShape::Seen(access)) => {
                let wider = access.write && !outer.write || access.execute && !outer.execute;
                let path = path.to_path_buf();
                self.steps.push(if wider {
                    MountStep::Bind { path, access }
                } else {
                    MountStep::Rebind { path, access }
                });
            }
            (MountShape::Seen(_), MountShape::Hidden) => {
                cover = Some(self.steps.len());
                let path = path.to_path_buf();
                self.steps.push(MountStep::Cover { path, file: mark.file, shows: Vec::new() });
            }
        }
        let cache = own || in_cache;
        self.outer.push(OuterMark { path: path.to_path_buf(), shape, cover, cache });
    }

    /// Mounts the project's own cache over a shared one. Does nothing if the request has no
    /// directory for caches.
    fn mount_cache(&mut self, path: &Path, caps: FileCaps) {
        let request = self.sources.request;
        let Some(own) = request.caches.map(|own| directory_of(own, path)) else { return };
        let path = path.to_path_buf();
        self.steps.push(MountStep::Cache { path, own, caps, overlay: self.overlay });
    }

    /// True for a writable file of the launcher that lies directly in a directory which the
    /// session's directory replaces. See [`RoomPlan::returned`].
    fn is_returned(&self, path: &Path, mark: &RightsMark) -> bool {
        let launchers =
            |grant: &PathGrant| grant.why == GrantReason::Launcher && grant.path == path;
        mark.file
            && self.session_writable
            && self.session_at.iter().any(|at| path.parent() == Some(at))
            && self.sources.caps(path, true).contains(FileCaps::WRITE)
            && self.sources.grants.iter().any(launchers)
    }

    /// The form of a mark that mounts can express. They cannot take reading away from a path
    /// that may be used otherwise; such a path is noted in `unreadable`.
    fn shape_of(&mut self, path: &Path, caps: FileCaps) -> MountShape {
        if caps.is_empty() {
            return MountShape::Hidden;
        }
        let unreadable = !caps.contains(FileCaps::READ) && path != Path::new("/etc");
        self.unreadable |= unreadable && self.sources.landlock_caps(path).contains(FileCaps::READ);
        MountShape::Seen(MountAccess {
            write: caps.intersects(FileCaps::CHANGE),
            execute: caps.contains(FileCaps::EXECUTE),
        })
    }

    /// Plans the mount point for a path: in the covered directory around it, in the session's
    /// directory, or on the room's own root.
    fn add_mount_point(&mut self, path: &Path, file: bool) {
        let cover = self.outer.last().and_then(|outer| outer.cover.map(|at| (at, &outer.path)));
        if let Some((at, covered)) = cover {
            if let (Ok(below), Some(MountStep::Cover { shows, .. })) =
                (path.strip_prefix(covered), self.steps.get_mut(at))
            {
                shows.push(CoveredPlace { below: below.to_path_buf(), file });
            }
            return;
        }
        if !file {
            return self.add_directory(path);
        }
        if self.add_session_point(path, true) {
            return;
        }
        if let Some(parent) = path.parent() {
            self.add_directory(parent);
        }
        self.skeleton.push(MountStep::File { at: path.to_path_buf() });
    }

    /// Records a socket that a rule grants by name with the right to write. Records also
    /// visible places that may have foreign sockets: a named tree without the right to write,
    /// and a directory that all users share.
    fn note_sockets(&mut self, path: &Path, mark: &RightsMark, shape: MountShape) {
        let MountShape::Seen(access) = shape else { return };
        if !mark.named {
            return;
        }
        let Ok(meta) = fs::metadata(path) else { return };
        let socket = meta.file_type().is_socket();
        self.granted_socket |= socket && access.write;
        let shared = !mark.file && meta.mode() & 0o1002 == 0o1002;
        let readable = !access.write && (socket || !mark.file);
        if shared || readable {
            self.foreign_sockets = Some(path.to_path_buf());
        }
    }

    /// All steps in the order of execution. Devices and /proc come last, with a cover over
    /// /proc/kallsyms.
    fn into_steps(self) -> Vec<MountStep> {
        let mut steps = self.skeleton;
        let fence =
            |path| MountStep::Rebind { path, access: MountAccess { write: false, execute: false } };
        steps.extend(self.fences.into_iter().map(fence));
        steps.extend(self.nested.into_iter().map(|at| MountStep::ScratchMount { at }));
        let mut inner = self.shown_inside;
        // By path, so that a directory comes before its content.
        for (at, SessionPoint { file, shows }) in self.points {
            let is_inside = |step: &mut MountStep| matches!(step, MountStep::Show { at: outer, .. } if is_below(&at, outer) && at != *outer);
            steps.extend(inner.take_if(is_inside));
            steps.push(MountStep::Point { at: at.clone(), file });
            if !shows.is_empty() {
                steps.push(MountStep::Cover { path: at, file: false, shows });
            }
        }
        steps.extend(inner);
        steps.extend(self.steps);
        steps.push(MountStep::Devices);
        steps.push(MountStep::Processes { maps: false });
        let kallsyms = PathBuf::from("/proc/kallsyms");
        steps.push(MountStep::Cover { path: kallsyms, file: true, shows: Vec::new() });
        steps
    }
}
