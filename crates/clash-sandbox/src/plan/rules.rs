//! The file rules of a sandbox, with their paths on this disk.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clash_policy::path::LinkResolver;
use clash_policy::{Effect, FileCaps, FsRule, PathPattern};

use super::masks::{MaskedFiles, is_masked};
use super::overlap::RuleRegion;
use super::{PlanError, PlanRequest};
use crate::disk::Disk;

/// A file rule with its paths on this disk.
pub(super) struct ResolvedRule<'a> {
    pub(super) rule: &'a FsRule,
    /// Variables filled in, links not followed.
    pub(super) written: PathBuf,
    /// Links followed as far as the path exists.
    pub(super) real: PathBuf,
    pub(super) found: FoundPath,
}

/// The type of a rule's path on this disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FoundPath {
    Directory,
    Other,
    Missing,
    /// The user cannot reach the path, whether or not it exists.
    OutOfReach,
}

impl ResolvedRule<'_> {
    /// The rule in the policy's words, with its position.
    pub(super) fn text(&self) -> String {
        let FsRule { pattern, caps, span, .. } = self.rule;
        format!("{} {caps} {pattern} ({span})", self.rule.word())
    }

    /// The paths that the rule is about, relative to the fixed part of its pattern.
    pub(super) fn region(&self) -> RuleRegion {
        match self.rule.pattern {
            PathPattern::Subpath { .. } => RuleRegion::Below,
            PathPattern::Literal(_) => RuleRegion::Exactly,
            PathPattern::Children(_) => RuleRegion::Inside,
            PathPattern::Glob { .. } | PathPattern::Regex { .. } => RuleRegion::Anywhere,
        }
    }

    /// True if the rule applies only to part of its tree: a pattern, the entries of a
    /// directory, or a directory without its content. A grant from the fixed part downwards
    /// then gives more than the rule.
    pub(super) fn is_partial(&self) -> bool {
        match self.region() {
            RuleRegion::Below => false,
            RuleRegion::Exactly => self.found == FoundPath::Directory,
            RuleRegion::Inside | RuleRegion::Anywhere => true,
        }
    }

    /// The rights that an allow rule gives to Landlock: without execution if the rule is
    /// partial, without those that a deny on the same path takes, and for a file without
    /// create and delete.
    pub(super) fn landlock_caps(&self, rules: &[ResolvedRule<'_>]) -> FileCaps {
        if self.is_partial() {
            // The monitor cannot judge an `execve` before the kernel carries it out.
            return self.rule.caps.without(FileCaps::EXECUTE);
        }
        // On the same path the stricter rule wins, for each right.
        let narrowed = rules
            .iter()
            // A mask gives way to a rule that allows the file itself.
            .filter(|r| r.rule.effect != Effect::Allow && !is_masked(r.rule))
            .filter(|r| r.real == self.real)
            .filter(|r| match r.region() {
                RuleRegion::Below => true,
                RuleRegion::Exactly => self.found == FoundPath::Other,
                RuleRegion::Inside | RuleRegion::Anywhere => false,
            })
            .fold(self.rule.caps, |caps, r| caps.without(r.rule.caps));
        match self.found {
            // Making and removing a name are rights over its directory.
            FoundPath::Other => narrowed.without(FileCaps::CREATE.union(FileCaps::DELETE)),
            _ => narrowed,
        }
    }
}

/// Looks up the path of each rule on this disk, except rules about `$TMPDIR` without a
/// session. Fails for an unknown variable, and for a path that cannot be resolved. A missing
/// path is no error.
pub(super) fn resolve_rules<'a>(
    request: &PlanRequest<'a>,
) -> Result<Vec<ResolvedRule<'a>>, PlanError> {
    let resolve = |rule: &'a FsRule| {
        let written = request.places.expand(rule.pattern.fixed()).map_err(|source| {
            PlanError::Path { rule: rule.pattern.to_string(), span: rule.span.clone(), source }
        })?;
        let (real, found) =
            resolve_path(request.disk, &written).map_err(|source| PlanError::Unresolvable {
                rule: rule.pattern.to_string(),
                span: rule.span.clone(),
                source,
            })?;
        Ok(ResolvedRule { rule, written, real, found })
    };
    let rules = request.sandbox.fs.iter().filter(|rule| !request.is_about_own_tmp(rule));
    let mut rules = rules.map(resolve).collect::<Result<Vec<_>, PlanError>>()?;
    super::caches::place_caches(request, &mut rules);
    Ok(rules)
}

/// The links on the way of the allow rules and of masked files, from the written to the real path.
pub(super) fn links_of(
    rules: &[ResolvedRule<'_>],
    disk: &Disk,
    masks: &MaskedFiles,
) -> Vec<PathBuf> {
    let linked = |rule: &&ResolvedRule<'_>| {
        let is_shown = rule.rule.effect == Effect::Allow
            || is_masked(rule.rule) && masks.contains_key(&rule.real);
        is_shown && rule.written.as_os_str() != rule.real.as_os_str()
    };
    rules.iter().filter(linked).flat_map(|rule| disk.links_on(&rule.written).0).collect()
}

/// Follows symlinks as far as the path exists, keeps the names behind that, and looks up the
/// type. A missing or unreachable path is no error.
pub(super) fn resolve_path(disk: &Disk, path: &Path) -> io::Result<(PathBuf, FoundPath)> {
    let real = disk.real(path);
    let found = match fs::metadata(&real) {
        Ok(meta) if meta.is_dir() => FoundPath::Directory,
        Ok(_) => FoundPath::Other,
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FoundPath::Missing,
            io::ErrorKind::PermissionDenied => FoundPath::OutOfReach,
            _ => return Err(error),
        },
    };
    Ok((real, found))
}
