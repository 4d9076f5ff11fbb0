//! The rights of a sandbox at any path of this disk. They combine the policy's rules, the
//! needs of the launcher and linked worktrees, the system baseline, the cage and the
//! persistence paths. The mount tree of a room is made from them, the monitor decides by
//! them, and they use the same judge as the hook.
//!
//! Every path in them was resolved when the plan was made, so later changes on the disk do
//! not change the meaning of a rule. Callers ask about real paths: without links and `..`.

use std::path::{Path, PathBuf};

use clash_policy::credentials::credential;
use clash_policy::judge::{
    JudgeContext, PathVerdict, alike_below, denies_below, each_by_rules, kept, kept_by_link,
    opens_way,
};
use clash_policy::path::{LinkResolver, NoLinks, PathError, is_below};
use clash_policy::protect::{self, KeepMode, PersistencePath, REPOSITORY};
use clash_policy::{Effect, FileCaps, FileUse, FsRule, PolicyPlaces, Sandbox};

use crate::caseless::folded;
use crate::plan::{GrantReason, PathGrant};

/// The rules of one sandbox with their real paths, and everything else that gives or takes
/// rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxRights {
    /// The rules have their paths on this disk.
    pub(crate) sandbox: Sandbox,
    /// The real paths of the project and the home.
    pub(crate) places: PolicyPlaces,
    pub(crate) cage: Vec<PathBuf>,
    pub(crate) baseline: Vec<(PathBuf, FileCaps)>,
    /// Needs of worktrees and the launcher.
    pub(crate) given: Vec<PathGrant>,
    /// Files that tie a linked worktree to its repository, and hooks outside `.git`.
    pub(crate) held: Vec<PathBuf>,
    /// The room's own places, which the command may use freely.
    pub(crate) own: Vec<PathBuf>,
    /// The session's temporary directory. It lies in the cage but does not count as part of
    /// it.
    pub(crate) lent: Option<PathBuf>,
    /// Other names under which a room shows the session's temporary directory. Outside the
    /// room these are the host's.
    pub(crate) tmp_names: Vec<PathBuf>,
    /// /proc shows the host's processes, which are hidden whatever the rules say. The
    /// monitor asks about a caller's own entries as `/proc/self`.
    pub(crate) host_processes: bool,
}

impl SandboxRights {
    /// All rights at a path, after the cage, the held files and the persistence paths. `HEAD`
    /// of the project's linked worktree has none.
    pub fn caps(&self, path: &Path) -> FileCaps {
        let caged = self.caged(path);
        let may = |verdict: &PathVerdict| {
            self.permits_one(path, verdict, caged, true)
                && !self.keeps_by(verdict.rule, path, verdict.caps)
        };
        let may = self.verdicts(path, FileCaps::ALL).into_iter().filter(may);
        may.fold(FileCaps::NONE, |caps, verdict| caps.union(verdict.caps))
    }

    /// True if the rules, the baseline and the cage permit all of `needs`; false if this
    /// cannot be decided. Persistence paths do not count here: see [`Self::kept`].
    pub fn permits(&self, path: &Path, needs: FileCaps) -> bool {
        self.permits_where(path, needs, true)
    }

    /// As `permits`. The room's own places count only if `own`, because outside the room
    /// something else is there.
    fn permits_where(&self, path: &Path, needs: FileCaps, own: bool) -> bool {
        let caged = self.caged(path);
        let verdicts = self.verdicts(path, needs);
        let told = !verdicts.is_empty() || needs.is_empty();
        told && verdicts.iter().all(|one| self.permits_one(path, one, caged, own))
    }

    /// The mode of the persistence path that forbids a change, under the path's own name or
    /// one that a link gives it. `None` if none does, or if `needs` contains no change.
    /// `Always` if it cannot be decided.
    pub fn kept(&self, path: &Path, needs: FileCaps, links: &dyn LinkResolver) -> Option<KeepMode> {
        if !needs.intersects(FileCaps::CHANGE) {
            return None;
        }
        if self.is_head_of_worktree(path)
            && needs.intersects(FileCaps::WRITE.union(FileCaps::DELETE))
        {
            return Some(KeepMode::Existing);
        }
        let world = JudgeContext { links, ..self.world() };
        let rule = self.rule_of(path, needs.intersect(FileCaps::CHANGE));
        keep_mode_or_always(kept(&self.sandbox, rule, path, needs, &world))
    }

    /// As [`Self::kept`], but only under names that a link gives the path, not under its own.
    pub fn kept_by_link(
        &self,
        path: &Path,
        needs: FileCaps,
        links: &dyn LinkResolver,
    ) -> Option<KeepMode> {
        let world = JudgeContext { links, ..self.world() };
        let rule = self.rule_of(path, needs.intersect(FileCaps::CHANGE));
        keep_mode_or_always(kept_by_link(&self.sandbox, rule, path, needs, &world))
    }

    /// True if a use is refused on a volume that ignores case, because another spelling of
    /// the name is denied, caged, held or a persistence path. `kept` holds the rights to
    /// compare with the persistence paths. A name that cannot be folded is refused if `kept`
    /// contains a change.
    pub(crate) fn refuses_folded(&self, path: &Path, needs: FileCaps, kept: FileCaps) -> bool {
        let Some(name) = folded(path) else { return kept.intersects(FileCaps::CHANGE) };
        let file = FileUse { path: path.to_path_buf(), needs, caseless: true };
        let denied =
            |verdict: &PathVerdict| verdict.rule.is_some() && verdict.effect != Effect::Allow;
        let verdicts = each_by_rules(&self.sandbox, &file, &self.world());
        if verdicts.is_ok_and(|verdicts| verdicts.iter().any(denied)) {
            return true;
        }
        let places = self.cage.iter().chain(&self.held);
        let below = |place: &Path| folded(place).is_none_or(|place| is_below(&name, &place));
        let held = needs.intersects(FileCaps::CHANGE) && { places }.any(|place| below(place));
        let roots = [&self.places.project, &self.places.home];
        let listed = roots.iter().filter(|root| is_below(path, root)).any(|root| {
            let count = root.iter().count();
            let rest: PathBuf = name.iter().skip(count).collect();
            let by_project = is_below(path, &self.places.project);
            let counts = *root == &self.places.project || !by_project && self.permits(root, kept);
            counts && protect::kept(&self.sandbox.protect, &rest, 0, kept).is_some()
        });
        held || listed
    }

    /// True if a persistence path forbids the use, given the rule that applies.
    fn keeps_by(&self, rule: Option<usize>, path: &Path, needs: FileCaps) -> bool {
        self.is_head_of_worktree(path)
            || keep_mode_or_always(kept(&self.sandbox, rule, path, needs, &self.world())).is_some()
    }

    /// True if a path is `HEAD` of the project's own linked worktree. It is in the main
    /// repository, where the list does not apply.
    fn is_head_of_worktree(&self, path: &Path) -> bool {
        path.file_name().is_some_and(|name| name.eq_ignore_ascii_case("HEAD"))
            && self.given.iter().any(|grant| {
                grant.why == GrantReason::Worktree
                    && grant.path.parent().is_some_and(|dir| dir.ends_with("worktrees"))
                    && path.parent() == Some(&grant.path)
            })
    }

    /// True if a link with this name would bypass the persistence paths, or if this cannot be
    /// decided.
    pub fn opens_way(&self, path: &Path) -> bool {
        let rule = self.rule_of(path, FileCaps::CREATE);
        opens_way(&self.sandbox, rule, path, &self.world()).unwrap_or(true)
    }

    /// True if a link at one path may lead to another. The target must be readable, no
    /// credential and not protected, and nothing below it may be denied. If `covered`, the
    /// target is in a repository that the command itself made, where persistence paths do not
    /// count.
    pub(crate) fn may_lead(
        &self,
        at: &Path,
        to: &Path,
        covered: bool,
        links: &dyn LinkResolver,
    ) -> bool {
        let refused = |verdict: &PathVerdict| {
            verdict.rule.is_some() && !self.permits_one(to, verdict, self.caged(to), true)
        };
        let kept = || {
            self.kept(to, FileCaps::WRITE.union(FileCaps::CREATE), links).is_some()
                || self.opens_way(to)
        };
        // File tools follow the link with the user's rights, not with those of the command
        // that made it.
        let secret = || credential(to, &self.places.home).is_some();
        self.permits_where(to, FileCaps::READ, self.is_own(at))
            && !secret()
            && !self.verdicts(to, FileCaps::WRITE).iter().any(refused)
            && (covered || !kept())
            && !self.hides_below(to)
            && !denies_below(&self.sandbox, at, to, &self.world()).unwrap_or(true)
            && !self.enters_packages(at, to)
    }

    /// The name of a temporary directory, for example /tmp, through which a path leads to the
    /// session's directory. `None` for paths in the project, the home, and grants without a
    /// rule.
    pub(crate) fn tmp_name(&self, path: &Path) -> Option<&Path> {
        let hosts = [&self.places.project, &self.places.home];
        let given = self.given.iter().map(|grant| &grant.path);
        if hosts.into_iter().chain(given).any(|host| is_below(path, host)) {
            return None;
        }
        self.tmp_names.iter().find(|name| is_below(path, name)).map(PathBuf::as_path)
    }

    /// The text of a link that leads to the same file inside and outside the room: the
    /// session's own directory instead of /tmp. `None` if the text does not lead through a
    /// name of the session's directory.
    pub(crate) fn text_for_outside(&self, text: &Path) -> Option<PathBuf> {
        let below = text.strip_prefix(self.tmp_name(text)?).ok()?;
        let session = self.lent.as_ref()?;
        Some(if below.as_os_str().is_empty() { session.clone() } else { session.join(below) })
    }

    /// True if the path lies in the cage or in a held file, or contains one that its name
    /// alone would not protect. False in the session's directory.
    fn hides_below(&self, path: &Path) -> bool {
        if self.lent.as_deref().is_some_and(|lent| is_below(path, lent)) {
            return false;
        }
        self.cage.iter().chain(&self.held).any(|place| {
            let by_name = |below: &Path| {
                protect::kept(&self.sandbox.protect, below, 0, FileCaps::WRITE).is_some()
            };
            is_below(path, place) || place.strip_prefix(path).is_ok_and(|below| !by_name(below))
        })
    }

    /// True if a link leads from a path of the project where the list of persistence paths
    /// applies into a package directory, where it does not, for example `vendor`.
    fn enters_packages(&self, at: &Path, to: &Path) -> bool {
        let [at, to] = [at, to].map(|path| path.strip_prefix(&self.places.project));
        let (Ok(at), Ok(to)) = (at, to) else { return false };
        self.sandbox.protect.standard && protect::is_in_packages(to) && !protect::is_in_packages(at)
    }

    /// True if a path is in the system baseline, whatever its rights there.
    pub(crate) fn in_baseline(&self, path: &Path) -> bool {
        self.baseline.iter().any(|(base, _)| is_below(path, base))
    }

    /// True if commands may make repositories of their own.
    pub fn new_repositories(&self) -> bool {
        self.sandbox.protect.except.iter().any(|except| except == REPOSITORY)
    }

    /// True if a directory can take the other's name without any change of rights below it.
    /// False if this cannot be decided.
    pub fn alike_below(&self, one: &Path, other: &Path) -> bool {
        let places = self.cage.iter().chain(&self.held).chain(&self.own);
        let mut places = places.chain(self.given.iter().map(|grant| &grant.path));
        let alike = |place: &PathBuf| {
            let inside = |dir: &Path| place != dir && is_below(place, dir);
            !inside(one) && !inside(other) && is_below(one, place) == is_below(other, place)
        };
        places.all(alike) && alike_below(&self.sandbox, one, other, &self.world()).unwrap_or(false)
    }

    /// The context of the judge: paths are real, so no links are followed. The cage and the
    /// baseline are left out, because [`Self::permits_one`] looks at them.
    fn world(&self) -> JudgeContext<'_> {
        JudgeContext {
            places: &self.places,
            cwd: &self.places.project,
            links: &NoLinks,
            baseline: &[],
            cage: &[],
            lent: None,
        }
    }

    /// The rules' verdict for each right; empty if it cannot be decided.
    fn verdicts(&self, path: &Path, needs: FileCaps) -> Vec<PathVerdict> {
        let file = FileUse { path: path.to_path_buf(), needs, caseless: false };
        each_by_rules(&self.sandbox, &file, &self.world()).unwrap_or_default()
    }

    /// The rule that decides about one of these rights at a path. `None` if none does.
    pub(crate) fn deciding_rule(&self, path: &Path, needs: FileCaps) -> Option<&FsRule> {
        self.sandbox.fs.get(self.rule_of(path, needs)?)
    }

    /// The index of the first rule that decides about one of these rights at a path.
    fn rule_of(&self, path: &Path, needs: FileCaps) -> Option<usize> {
        self.verdicts(path, needs).iter().find_map(|verdict| verdict.rule)
    }

    /// True if a path is the room's own, and no part of the host is shown there.
    pub(crate) fn is_own(&self, path: &Path) -> bool {
        let rules = self.sandbox.fs.iter().map(|rule| Path::new(rule.pattern.fixed()));
        let mut shown = rules.chain(self.given.iter().map(|grant| grant.path.as_path()));
        self.own.iter().any(|own| is_below(path, own))
            && !shown.any(|shown| {
                is_below(path, shown) && self.own.iter().any(|own| is_below(shown, own))
            })
    }

    /// True if a path belongs to clash or an agent, and the launcher has not lent it.
    fn caged(&self, path: &Path) -> bool {
        let launchers =
            |grant: &PathGrant| grant.why == GrantReason::Launcher && is_below(path, &grant.path);
        self.cage.iter().any(|caged| is_below(path, caged))
            && !self.lent.as_deref().is_some_and(|lent| is_below(path, lent))
            && !self.given.iter().any(launchers)
    }

    /// True if one verdict of the rules permits its right. First the host's processes, held
    /// files and the cage forbid; then an allow rule permits. Without a rule, the baseline
    /// and (if `own`) the room's own places permit. Needs of the launcher and worktrees
    /// permit unless a closer rule decided.
    fn permits_one(&self, path: &Path, verdict: &PathVerdict, caged: bool, own: bool) -> bool {
        let cap = verdict.caps;
        let changes = cap.intersects(FileCaps::CHANGE);
        if self.host_processes && tells_of_the_host(path) {
            return false;
        }
        if changes && self.held.iter().any(|held| is_below(path, held)) {
            return false;
        }
        let project = &self.places.project;
        if caged && (changes || path == project || !is_below(path, project)) {
            return false;
        }
        let rule = verdict.rule.and_then(|at| self.sandbox.fs.get(at));
        let fixed = rule.map(|rule| rule.pattern.fixed());
        if verdict.effect == Effect::Allow {
            return true;
        }
        let in_baseline =
            |(base, caps): &(PathBuf, FileCaps)| caps.contains(cap) && is_below(path, base);
        if fixed.is_none() && (self.baseline.iter().any(in_baseline) || own && self.is_own(path)) {
            return true;
        }
        // A need is met unless a closer rule says otherwise.
        self.given.iter().any(|grant| {
            grant.caps.contains(cap)
                && is_below(path, &grant.path)
                && fixed.is_none_or(|fixed| fixed.len() < grant.path.as_os_str().len())
        })
    }
}

/// The mode of an entry. If the list cannot decide, the path is protected: `Always`.
fn keep_mode_or_always(entry: Result<Option<PersistencePath<'_>>, PathError>) -> Option<KeepMode> {
    entry.map_or(Some(KeepMode::Always), |entry| entry.map(|entry| entry.keep))
}

/// True for the list of processes, entries of other processes, and the kernel's symbols.
fn tells_of_the_host(path: &Path) -> bool {
    let Ok(below) = path.strip_prefix("/proc") else { return false };
    let Some(first) = below.iter().next() else { return true };
    first == "kallsyms" || first.as_encoded_bytes().iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights() -> SandboxRights {
        use clash_policy::{PathPattern, PolicySpan, WriteTarget};
        let rule = |path: &str, effect, caps| FsRule {
            pattern: PathPattern::Subpath { path: path.to_owned(), follow_worktrees: false },
            effect,
            caps,
            writes: WriteTarget::InPlace,
            span: PolicySpan::default(),
        };
        let rules = vec![
            rule("/home/u/app", Effect::Allow, FileCaps::ALL),
            rule("/home/u/app/Secret", Effect::Deny, FileCaps::ALL),
            rule("/home/u/lib", Effect::Allow, FileCaps::READ),
        ];
        SandboxRights {
            sandbox: Sandbox { default: Effect::Deny, fs: rules, ..Sandbox::named("s") },
            places: PolicyPlaces {
                project: "/home/u/app".into(),
                home: "/home/u".into(),
                tmp: "/tmp".into(),
                vars: Vec::new(),
            },
            cage: Vec::new(),
            baseline: vec![("/usr".into(), FileCaps::READ)],
            given: Vec::new(),
            held: Vec::new(),
            tmp_names: Vec::new(),
            own: vec!["/tmp".into()],
            lent: None,
            host_processes: false,
        }
    }

    #[test]
    fn names_are_refused_as_the_volume_takes_them() {
        let rights = rights();
        let change = FileCaps::CREATE.union(FileCaps::WRITE);
        let refused = |name: &str| {
            rights.refuses_folded(&Path::new("/home/u/app").join(name), change, change)
        };
        for name in
            [".ENVRC", ".git/con\u{fb01}g", ".g\u{200c}it", ".v\u{17f}code/x", "GIT~1", ".envrc."]
        {
            assert!(refused(name), "{name}");
        }
        for name in ["secret/x", "SECRET", "sub/.Envrc"] {
            assert!(refused(name), "{name}");
        }
        for name in ["Src/Main.rs", "README.MD", "a~b", "Secrets/x"] {
            assert!(!refused(name), "{name}");
        }
    }

    #[test]
    fn a_link_leads_only_to_what_may_be_read_and_hides_nothing() {
        let rights = rights();
        let may = |at: &str, to: &str| {
            let at = Path::new("/home/u/app").join(at);
            rights.may_lead(&at, Path::new(to), false, &NoLinks)
        };
        for to in ["/home/u/app/src", "/home/u/app/missing/x", "/home/u/lib/y", "/usr/bin/sh"] {
            assert!(may("L", to), "{to}");
        }
        for to in ["/", "/home", "/home/u", "/home/u/.ssh/key", "/home/u/app/Secret/x", "/tmp/x"] {
            assert!(!may("L", to), "{to}");
        }
        for to in
            ["/home/u/app", "/home/u/app/.git", "/home/u/app/.git/hooks", "/home/u/app/.envrc"]
        {
            assert!(!may("sub/L", to), "{to}");
        }
        assert!(!may("L", "/home/u/app/vendor/x") && may("vendor/L", "/home/u/app/vendor/x"));
        assert!(may("node_modules/w", "/home/u/app/packages/w"));
    }

    #[test]
    fn only_the_callers_own_process_is_readable_in_proc() {
        for hidden in ["/proc", "/proc/1", "/proc/4711/cmdline", "/proc/kallsyms"] {
            assert!(tells_of_the_host(Path::new(hidden)), "{hidden}");
        }
        for shown in ["/proc/self", "/proc/cpuinfo", "/proc/sys/kernel/osrelease", "/", "/process"]
        {
            assert!(!tells_of_the_host(Path::new(shown)), "{shown}");
        }
    }
}
