//! Links that a sandboxed command may have planted.
//!
//! A rule names a path, and the kernel grants the place to which the path leads. A command
//! that may create names in a tree can put a link on the way of a rule. For example,
//! `~/.npm/_logs` becomes a link to `..`, and the next sandbox that may write
//! `~/.npm/_logs` could write the whole home. So the planner checks every link on the way
//! of a granted path. A link strictly below a tree in which any sandbox in force may create
//! names is suspect. A rule with a suspect link is refused, unless the sandbox has the same
//! rights at the target without that rule.
//!
//! Limits: a sandbox without confinement, or with a default of allow, does not count. Both
//! can reach more by themselves than a link could open. Only the present policy counts, not
//! an earlier one.

use std::fmt::{self, Debug};
use std::path::{Path, PathBuf};

use clash_policy::judge::{JudgeContext, judge};
use clash_policy::path::{LinkResolver, is_below};
use clash_policy::{
    Effect, FileCaps, FileUse, FsRule, PathPattern, PolicyPlaces, Sandbox, protect,
};

use crate::baseline;
use crate::disk::Disk;

/// The other sandboxes whose commands run in the same places. The planner asks only if it
/// meets a link, because the answer needs the whole policy.
pub trait SandboxesInForce: Debug {
    /// The trees in which their commands may create names, with variables filled in.
    /// `None`: they cannot be listed, and every link is suspect.
    fn trees(&self) -> Option<Vec<PathBuf>>;
}

/// No other sandbox is in force.
#[derive(Clone, Copy, Debug)]
pub struct NoOtherSandboxes;

impl SandboxesInForce for NoOtherSandboxes {
    fn trees(&self) -> Option<Vec<PathBuf>> {
        Some(Vec::new())
    }
}

/// The trees in which the rules let commands of a sandbox create names, with variables filled
/// in. A rule with an unknown variable is left out.
pub fn trees_of(sandbox: &Sandbox, places: &PolicyPlaces) -> Vec<PathBuf> {
    // A cache counts too, although a project writes its own: a link there may come from a
    // policy that let commands write the shared one.
    let creates =
        |rule: &&FsRule| rule.effect == Effect::Allow && rule.caps.contains(FileCaps::CREATE);
    let rules = sandbox.fs.iter().filter(creates);
    rules.filter_map(|rule| places.expand(rule.pattern.fixed()).ok()).collect()
}

/// A rule of a sandbox with its path on this disk.
#[derive(Clone, Copy, Debug)]
pub struct RuleOnDisk<'a> {
    pub rule: &'a FsRule,
    /// Variables filled in, links not followed.
    pub written: &'a Path,
    /// Links followed.
    pub real: &'a Path,
}

/// A rule that grants something through a suspect link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuspectLink {
    pub rule: FsRule,
    pub link: PathBuf,
    pub target: PathBuf,
    /// The tree in which a command may have made the link.
    pub tree: PathBuf,
}

impl fmt::Display for SuspectLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, link, target, tree } = self;
        let [link, target, tree] = [link, target, tree].map(|path| path.display());
        write!(
            f,
            "{}: `{}` leads to `{target}` by the link `{link}`; commands may write in `{tree}`, \
             and an earlier one may have planted the link",
            rule.span, rule.pattern
        )
    }
}

/// The surroundings in which the rules of a sandbox are checked.
#[derive(Clone, Copy, Debug)]
pub struct LinkCheck<'a> {
    pub sandbox: &'a Sandbox,
    pub places: &'a PolicyPlaces,
    pub disk: &'a Disk,
    pub in_force: &'a dyn SandboxesInForce,
}

impl LinkCheck<'_> {
    /// The first allow rule that gives more rights because of a suspect link. `None` if no
    /// rule has a link on its way; then the other sandboxes are not asked for.
    pub fn first_suspect(&self, rules: &[RuleOnDisk<'_>]) -> Option<SuspectLink> {
        let linked = |rule: &&RuleOnDisk<'_>| {
            rule.rule.effect == Effect::Allow && rule.written.as_os_str() != rule.real.as_os_str()
        };
        let mut linked = rules.iter().filter(linked).peekable();
        // Usually there is no link, and then nothing else is asked.
        linked.peek()?;
        let trees =
            WritableTrees::collect(self.places, self.disk, self.in_force, Some(self.sandbox));
        let suspect = |placed: &RuleOnDisk<'_>| {
            let (link, tree) = trees.link_on(placed.written, placed.real, self.disk)?;
            let target = placed.real.to_path_buf();
            Some(SuspectLink { rule: placed.rule.clone(), link, target, tree })
        };
        let suspects: Vec<SuspectLink> = linked.filter_map(suspect).collect();
        let mut trusted = self.sandbox.clone();
        trusted.fs.retain(|rule| suspects.iter().all(|suspect| suspect.rule != *rule));
        suspects.into_iter().find(|suspect| self.gains(suspect, &trusted))
    }

    /// True if the rule gives rights at its target that the trusted rules do not give, or
    /// that cannot be decided. A pattern always counts.
    fn gains(&self, suspect: &SuspectLink, trusted: &Sandbox) -> bool {
        let SuspectLink { rule, target, .. } = suspect;
        // Two names that no rule about names is likely to match.
        let [inside, deeper] = ["\u{1}clash", "\u{1}clash/\u{1}clash"].map(|n| target.join(n));
        let asked: &[&Path] = match rule.pattern {
            PathPattern::Literal(_) => &[target],
            PathPattern::Subpath { .. } => &[target, &inside, &deeper],
            // A pattern can take precedence over another pattern that denies.
            PathPattern::Children(_) | PathPattern::Glob { .. } | PathPattern::Regex { .. } => {
                return true;
            }
        };
        let [project, home] =
            [&self.places.project, &self.places.home].map(|path| self.disk.real(path));
        let root = if is_below(target, &project) { &project } else { &home };
        // A rule that names part of a persistence path lifts the protection there.
        let lifts = |below: &Path| protect::begins(&trusted.protect, below, |_| true);
        let changes = rule.caps.intersects(FileCaps::CHANGE);
        if changes && target.strip_prefix(root).is_ok_and(lifts) {
            return true;
        }
        let places =
            PolicyPlaces { project: project.clone(), home: home.clone(), ..self.places.clone() };
        let baseline: Vec<_> =
            baseline::BASELINE_ENTRIES.iter().map(|e| (e.path, e.caps)).collect();
        let cwd = &places.project;
        let world = JudgeContext {
            places: &places,
            cwd,
            links: self.disk,
            baseline: &baseline,
            cage: &[],
            lent: None,
        };
        asked.iter().any(|path| {
            let file = FileUse { path: path.to_path_buf(), needs: rule.caps, caseless: false };
            !judge(trusted, &file, &world).is_ok_and(|verdict| verdict.effect == Effect::Allow)
        })
    }
}

/// The trees in which commands may create names, each as written and as resolved.
#[derive(Debug)]
pub struct WritableTrees {
    trees: Vec<PathBuf>,
    /// The project was a directory when it was resolved. A link in its place was planted.
    project: PathBuf,
}

impl WritableTrees {
    /// Collects the trees of the sandboxes in force, of `sandbox`, the project and the
    /// temporary directory. If the sandboxes cannot be listed, the only tree is `/`: every
    /// link is suspect.
    pub fn collect(
        places: &PolicyPlaces,
        disk: &Disk,
        in_force: &dyn SandboxesInForce,
        sandbox: Option<&Sandbox>,
    ) -> Self {
        let Some(mut trees) = in_force.trees() else {
            return Self { trees: vec![PathBuf::from("/")], project: places.project.clone() };
        };
        trees.extend(sandbox.into_iter().flat_map(|sandbox| trees_of(sandbox, places)));
        trees.extend([places.project.clone(), places.tmp.clone()]);
        let real: Vec<PathBuf> = trees.iter().map(|tree| disk.real(tree)).collect();
        trees.extend(real);
        // The narrowest tree gives the best message.
        trees.sort_unstable_by(|a, b| b.as_os_str().len().cmp(&a.as_os_str().len()).then(a.cmp(b)));
        trees.dedup();
        Self { trees, project: places.project.clone() }
    }

    /// The first link on the way of a path that lies strictly below one of the trees, and
    /// that tree. The path itself if a second look finds another end: it is changing at this
    /// moment.
    pub fn link_on(&self, written: &Path, real: &Path, disk: &Disk) -> Option<(PathBuf, PathBuf)> {
        let (links, end) = disk.links_on(written);
        let inside = |link: &PathBuf| {
            let replaced = *link == self.project;
            let holds = |tree: &&PathBuf| is_below(link, tree) && (link != *tree || replaced);
            self.trees.iter().find(holds).map(|tree| (link.clone(), tree.clone()))
        };
        let moving = || (end != real).then(|| (written.into(), PathBuf::from("/")));
        links.iter().find_map(inside).or_else(moving)
    }
}

#[cfg(test)]
mod tests;
