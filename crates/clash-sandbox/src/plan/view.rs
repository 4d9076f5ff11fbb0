//! What a room shows of the disk: rules become marks, marks become mounts.
//!
//! A mark is a path at which the rights change: where a rule, the baseline, the
//! cage or a persistence path begins. Its rights are what the judge of file
//! tools would say there (the longest key wins, per capability), so what the
//! kernel does and what the policy says have one source. Walking the marks from
//! the root down, each that differs from the one around it costs one mount.
//!
//! What mounts say is: not there, read, write, execute. Writing, creating and
//! deleting as separate rights are Landlock's, which adds up along a path and
//! cannot take away: a place that may be written but not created in, inside one
//! where both are allowed, is refused.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use clash_policy::path::Links;
use clash_policy::{Caps, Effect, Lifetime, PathPattern};

use super::overlap::is_below;
use super::{Found, Grant, Refusal, Request, Rule, Why};
use crate::baseline::Entry;
use crate::host::{Host, Rooms};
use crate::room::{Access, Room, Shown, Step};

/// Everything the view is made from.
pub(super) struct Sources<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) rules: &'a [Rule<'a>],
    pub(super) grants: &'a [Grant],
    pub(super) baseline: &'a [(&'static Entry, Caps)],
    /// Persistence paths, absolute, whether or not they exist.
    pub(super) protected: &'a [PathBuf],
}

/// A path at which the rights may change.
struct Mark {
    file: bool,
    /// The policy or the baseline speaks of it, so its socket files count.
    named: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Hidden,
    Seen(Access),
}

/// What is around a mark.
struct Outer {
    path: PathBuf,
    shape: Shape,
    /// The step that covers it, if it is hidden inside something seen.
    cover: Option<usize>,
}

pub(super) fn room(sources: &Sources<'_>, host: &Host, own_network: bool) -> Result<Room, Refusal> {
    let marks = sources.marks();
    let mut view = View::new(sources);
    for (path, mark) in &marks {
        view.mark(path, mark)?;
    }
    let unix_sockets = view.granted_socket
        && view.foreign_sockets.is_none()
        && (own_network || host.landlock_abi >= 6);
    Ok(Room {
        user_namespace: host.rooms != Rooms::Root,
        own_network,
        unix_sockets,
        lives_on: sources.request.sandbox.lifetime == Some(Lifetime::Detached),
        steps: view.finish(),
    })
}

impl Sources<'_> {
    fn marks(&self) -> BTreeMap<PathBuf, Mark> {
        let mut marks = BTreeMap::new();
        let mut add = |path: &Path, found: Found, named: bool| {
            let file = match found {
                Found::Directory => false,
                Found::Other => true,
                Found::Missing | Found::OutOfReach => return,
            };
            let mark = marks.entry(path.to_path_buf()).or_insert(Mark { file, named });
            mark.named |= named;
        };
        for rule in self.rules {
            add(&rule.real, rule.found, true);
        }
        for grant in self.grants.iter().filter(|grant| !matches!(grant.why, Why::Rule(_))) {
            add(&grant.path, look(&grant.path), true);
        }
        for (entry, _) in self.baseline {
            let path = Path::new(entry.path);
            if path.starts_with("/etc") {
                add(Path::new("/etc"), Found::Directory, false);
                if LINKED.contains(&entry.path) {
                    let real = self.request.disk.real(path);
                    if !real.starts_with("/etc") {
                        add(&real, look(&real), false);
                    }
                }
            } else if entry.directory && !OWN.iter().any(|own| path.starts_with(own)) {
                add(path, look(path), false);
            }
        }
        for caged in &self.request.cage.paths {
            add(caged, self.look_at_link(caged), false);
        }
        for path in self.protected {
            add(path, self.look_at_link(path), false);
        }
        marks
    }

    /// A link cannot be mounted on; whatever it leads to has a path of its own.
    fn look_at_link(&self, path: &Path) -> Found {
        // Most of what is caged or protected lies in few directories, and most of
        // those are not there.
        if !path.parent().is_some_and(|dir| self.request.disk.has(dir)) {
            return Found::Missing;
        }
        match fs::symlink_metadata(path) {
            Ok(meta) if meta.is_dir() => Found::Directory,
            Ok(meta) if meta.is_file() => Found::Other,
            _ => Found::Missing,
        }
    }

    /// What the sandbox may do at a path.
    pub(super) fn caps(&self, path: &Path, file: bool) -> Caps {
        let mut caps = Caps::NONE;
        for cap in Caps::each() {
            let rule = self.deciding(path, cap);
            let granted = match rule {
                Some(rule) => rule.rule.effect == Effect::Allow,
                None => self.in_baseline(path, cap),
            };
            if granted || self.given(path, cap, rule) {
                caps = caps.union(cap);
            }
        }
        if self.protected.iter().any(|held| is_below(path, held)) {
            caps = caps.without(Caps::CHANGE);
        }
        let own = |grant: &Grant| grant.why == Why::Launcher && is_below(path, &grant.path);
        if self.request.cage.paths.iter().any(|caged| is_below(path, caged))
            && !self.grants.iter().any(own)
        {
            let project = self.request.disk.real(&self.request.places.project);
            let local = is_below(path, &project) && path != project;
            caps = if local { caps.without(Caps::CHANGE) } else { Caps::NONE };
        }
        if file { caps.without(MAKING) } else { caps }
    }

    /// The rule that decides over a capability at a path, as the judge says it.
    fn deciding(&self, path: &Path, cap: Caps) -> Option<&Rule<'_>> {
        let length = |rule: &Rule<'_>| {
            let extra = usize::from(!matches!(rule.rule.pattern, PathPattern::Subpath { .. }));
            (rule.real.as_os_str().len() * 2 + extra, rule.rule.effect)
        };
        let matches = |rule: &&Rule<'_>| match rule.rule.pattern {
            PathPattern::Subpath { .. } => is_below(path, &rule.real),
            PathPattern::Literal(_) => path == rule.real,
            _ => false,
        };
        let about = self.rules.iter().filter(|rule| rule.rule.caps.contains(cap));
        about.filter(matches).max_by_key(|rule| length(rule))
    }

    fn in_baseline(&self, path: &Path, cap: Caps) -> bool {
        // Of /etc Landlock lets only the files of the baseline be read.
        if path == Path::new("/etc") {
            return cap == Caps::READ;
        }
        self.baseline.iter().any(|(entry, caps)| {
            caps.contains(cap)
                && (is_below(path, Path::new(entry.path))
                    || LINKED.contains(&entry.path)
                        && is_below(path, &self.request.disk.real(Path::new(entry.path))))
        })
    }

    /// What worktrees and the launcher need, unless a closer rule decides.
    fn given(&self, path: &Path, cap: Caps, rule: Option<&Rule<'_>>) -> bool {
        let longer = |grant: &Grant| {
            rule.is_none_or(|r| r.real.as_os_str().len() < grant.path.as_os_str().len())
        };
        self.grants.iter().any(|grant| {
            !matches!(grant.why, Why::Rule(_))
                && grant.caps.contains(cap)
                && is_below(path, &grant.path)
                && longer(grant)
        })
    }

    /// What Landlock gives at a path, which adds up from the root down.
    fn landlock(&self, path: &Path) -> Caps {
        let granted = self.grants.iter().filter(|grant| is_below(path, &grant.path));
        let caps = granted.fold(Caps::NONE, |caps, grant| caps.union(grant.caps));
        let entries =
            self.baseline.iter().filter(|(entry, _)| is_below(path, Path::new(entry.path)));
        entries.fold(caps, |caps, (_, more)| caps.union(*more))
    }
}

const MAKING: Caps = Caps::CREATE.union(Caps::DELETE);

/// Baseline paths that a room has of its own, or does without: what cgroups and
/// the kernel's settings say about the host is nobody's business in there.
const OWN: [&str; 4] = ["/proc", "/dev", "/sys/fs/cgroup", "/sys/kernel"];

/// Files of /etc that some systems keep elsewhere, behind a link.
const LINKED: [&str; 3] = ["/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs"];

fn look(path: &Path) -> Found {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Found::Directory,
        Ok(_) => Found::Other,
        Err(_) => Found::Missing,
    }
}

struct View<'a> {
    sources: &'a Sources<'a>,
    outer: Vec<Outer>,
    scratch: Vec<PathBuf>,
    /// A scratch place inside another, whose directories are fenced.
    nested: Vec<PathBuf>,
    /// Directories and files of the room's own root.
    skeleton: Vec<Step>,
    /// Top directories inside a scratch place that must not be scratch.
    fences: Vec<PathBuf>,
    steps: Vec<Step>,
    /// A place where sockets can be seen that the policy lets nobody write.
    foreign_sockets: Option<PathBuf>,
    /// A rule names a socket and lets it be written.
    granted_socket: bool,
}

impl<'a> View<'a> {
    fn new(sources: &'a Sources<'a>) -> Self {
        let mut view = Self {
            sources,
            outer: Vec::new(),
            scratch: Vec::new(),
            nested: Vec::new(),
            skeleton: Vec::new(),
            fences: Vec::new(),
            steps: Vec::with_capacity(32),
            foreign_sockets: None,
            granted_socket: false,
        };
        view.links();
        view.scratch();
        let home = sources.request.disk.real(&sources.request.places.home);
        view.directory(&home);
        view
    }

    /// /bin and its kin, where they lead into /usr.
    fn links(&mut self) {
        for name in ["/bin", "/sbin", "/lib", "/lib64", "/lib32"] {
            if let Ok(to) = fs::read_link(name) {
                self.skeleton.push(Step::Link { at: name.into(), to });
            }
        }
    }

    /// Temporary directories that the policy does not grant are the room's own.
    fn scratch(&mut self) {
        let tmp = self.sources.request.disk.real(&self.sources.request.places.tmp);
        for place in [Path::new("/tmp"), Path::new("/var/tmp"), &tmp] {
            if self.scratch.iter().any(|other| other == place)
                || !self.sources.caps(place, false).is_empty()
            {
                continue;
            }
            if self.scratch.iter().any(|other| is_below(place, other)) {
                self.directory(place);
                self.nested.push(place.to_path_buf());
                continue;
            }
            if let Some(parent) = place.parent() {
                self.directory(parent);
            }
            self.skeleton.push(Step::Scratch { at: place.to_path_buf() });
            self.scratch.push(place.to_path_buf());
        }
    }

    /// A directory on the room's own root, with those above it.
    fn directory(&mut self, path: &Path) {
        let mut missing: Vec<&Path> = path.ancestors().take_while(|dir| !self.has(dir)).collect();
        while let Some(dir) = missing.pop() {
            let fence = self.scratch.iter().any(|scratch| dir.parent() == Some(scratch));
            if fence {
                self.fences.push(dir.to_path_buf());
            }
            self.skeleton.push(Step::Directory { at: dir.to_path_buf() });
        }
    }

    fn has(&self, dir: &Path) -> bool {
        dir == Path::new("/")
            || self.skeleton.iter().any(|step| match step {
                Step::Directory { at } | Step::Scratch { at } | Step::Link { at, .. } => at == dir,
                _ => false,
            })
    }

    fn mark(&mut self, path: &Path, mark: &Mark) -> Result<(), Refusal> {
        while self.outer.last().is_some_and(|outer| !is_below(path, &outer.path)) {
            self.outer.pop();
        }
        let around = self.outer.last().map_or(Shape::Hidden, |outer| outer.shape);
        let caps = self.sources.caps(path, mark.file);
        let shape = self.shape(path, mark, caps)?;
        self.sockets(path, mark, shape);
        let mut cover = None;
        match (around, shape) {
            (Shape::Hidden, Shape::Hidden) => return Ok(()),
            (Shape::Seen(outer), Shape::Seen(inner)) if outer == inner => return Ok(()),
            (Shape::Hidden, Shape::Seen(access)) => {
                self.show(path, mark.file);
                self.steps.push(Step::Bind { path: path.to_path_buf(), access });
            }
            (Shape::Seen(outer), Shape::Seen(access)) => {
                self.pin_above(path);
                let wider = access.write && !outer.write || access.execute && !outer.execute;
                let path = path.to_path_buf();
                self.steps.push(if wider {
                    Step::Bind { path, access }
                } else {
                    Step::Rebind { path, access }
                });
            }
            (Shape::Seen(_), Shape::Hidden) => {
                self.pin_above(path);
                cover = Some(self.steps.len());
                let path = path.to_path_buf();
                self.steps.push(Step::Cover { path, file: mark.file, shows: Vec::new() });
            }
        }
        self.outer.push(Outer { path: path.to_path_buf(), shape, cover });
        Ok(())
    }

    /// What mounts can say about a mark, or why they cannot.
    fn shape(&self, path: &Path, mark: &Mark, caps: Caps) -> Result<Shape, Refusal> {
        if caps.is_empty() {
            return Ok(Shape::Hidden);
        }
        let access =
            Access { write: caps.intersects(Caps::CHANGE), execute: caps.contains(Caps::EXECUTE) };
        let mut through = Caps::READ;
        if access.write {
            through = through.union(Caps::CHANGE);
        }
        if access.execute {
            through = through.union(Caps::EXECUTE);
        }
        if mark.file {
            through = through.without(MAKING);
        }
        let mut landlock = self.sources.landlock(path);
        if self.scratch.iter().any(|scratch| is_below(path, scratch)) {
            landlock = Caps::ALL;
        }
        let more = landlock.intersect(through).without(caps);
        if !more.is_empty() && path != Path::new("/etc") {
            let rule = Caps::each()
                .filter(|cap| more.contains(*cap))
                .find_map(|cap| self.sources.deciding(path, cap));
            return Err(Refusal::Partial {
                path: path.to_path_buf(),
                rule: rule.map(|r| r.rule.pattern.to_string()),
                span: rule.map(|r| r.rule.span.clone()),
                denied: more,
                allowed: caps,
            });
        }
        Ok(Shape::Seen(access))
    }

    /// Makes the place for something that is shown where nothing is.
    fn show(&mut self, path: &Path, file: bool) {
        let cover = self.outer.last().and_then(|outer| outer.cover.map(|at| (at, &outer.path)));
        if let Some((at, covered)) = cover {
            if let (Ok(below), Some(Step::Cover { shows, .. })) =
                (path.strip_prefix(covered), self.steps.get_mut(at))
            {
                shows.push(Shown { below: below.to_path_buf(), file });
            }
            return;
        }
        if !file {
            return self.directory(path);
        }
        if let Some(parent) = path.parent() {
            self.directory(parent);
        }
        self.skeleton.push(Step::File { at: path.to_path_buf() });
    }

    /// Keeps every directory between a writable tree's root and a path inside it
    /// in its place: a mount sticks to a directory, not to its name, and a
    /// renamed parent would free the name.
    fn pin_above(&mut self, path: &Path) {
        let Some(Outer { path: root, shape: Shape::Seen(access), .. }) = self.outer.last() else {
            return;
        };
        if !access.write {
            return;
        }
        let (root, access) = (root.clone(), *access);
        let between = path.ancestors().skip(1).take_while(|dir| *dir != root);
        let mut between: Vec<PathBuf> = between.map(Path::to_path_buf).collect();
        while let Some(dir) = between.pop() {
            let step = Step::Rebind { path: dir, access };
            if !self.steps.contains(&step) {
                self.steps.push(step);
            }
        }
    }

    /// Notes sockets that a rule grants by name, and places where a socket of
    /// somebody else could be seen: a tree that is granted without the right to
    /// write, and a directory everybody shares.
    fn sockets(&mut self, path: &Path, mark: &Mark, shape: Shape) {
        let Shape::Seen(access) = shape else { return };
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

    fn finish(self) -> Vec<Step> {
        let mut steps = self.skeleton;
        let fence = |path| Step::Rebind { path, access: Access { write: false, execute: false } };
        steps.extend(self.fences.into_iter().map(fence));
        steps.extend(self.nested.into_iter().map(|at| Step::ScratchMount { at }));
        steps.extend(self.steps);
        steps.push(Step::Devices);
        steps.push(Step::Processes);
        let kallsyms = PathBuf::from("/proc/kallsyms");
        steps.push(Step::Cover { path: kallsyms, file: true, shows: Vec::new() });
        steps
    }
}
