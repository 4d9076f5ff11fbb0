//! The file rules of a sandbox, with their paths on this disk.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clash_policy::path::LinkResolver;
use clash_policy::{Effect, FileCaps, FsRule, PathPattern};

use super::overlap::Region;
use super::{Refusal, Request};
use crate::disk::Disk;

/// A file rule with its paths on this disk.
pub(super) struct Rule<'a> {
    pub(super) rule: &'a FsRule,
    /// Variables filled in, links not followed.
    pub(super) written: PathBuf,
    /// Links followed as far as the path exists.
    pub(super) real: PathBuf,
    pub(super) found: Found,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Directory,
    Other,
    Missing,
    /// The user cannot reach the path, whether or not it exists.
    OutOfReach,
}

impl Rule<'_> {
    /// The rule in the policy's words, with its position.
    pub(super) fn text(&self) -> String {
        let FsRule { pattern, caps, span, .. } = self.rule;
        format!("{} {caps} {pattern} ({span})", self.rule.word())
    }

    pub(super) fn region(&self) -> Region {
        match self.rule.pattern {
            PathPattern::Subpath { .. } => Region::Below,
            PathPattern::Literal(_) => Region::Exactly,
            PathPattern::Children(_) => Region::Inside,
            PathPattern::Glob { .. } | PathPattern::Regex { .. } => Region::Anywhere,
        }
    }

    /// True if a grant from the fixed part downwards gives more than the rule.
    pub(super) fn wider(&self) -> bool {
        match self.region() {
            Region::Below => false,
            Region::Exactly => self.found == Found::Directory,
            Region::Inside | Region::Anywhere => true,
        }
    }

    /// The rights that an allow rule gives to Landlock.
    pub(super) fn granted(&self, rules: &[Rule<'_>]) -> FileCaps {
        if self.wider() {
            // The monitor cannot judge an `execve` before the kernel carries it out.
            return self.rule.caps.without(FileCaps::EXECUTE);
        }
        // On the same path the stricter rule wins, for each right.
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
            // Making and removing a name are rights over its directory.
            Found::Other => narrowed.without(FileCaps::CREATE.union(FileCaps::DELETE)),
            _ => narrowed,
        }
    }
}

pub(super) fn resolve<'a>(request: &Request<'a>) -> Result<Vec<Rule<'a>>, Refusal> {
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
    let rules = request.sandbox.fs.iter().filter(|rule| !request.is_about_own_tmp(rule));
    let mut rules = rules.map(resolve).collect::<Result<Vec<_>, Refusal>>()?;
    super::caches::place(request, &mut rules);
    Ok(rules)
}

/// The links on the way of the allow rules.
pub(super) fn links_of(rules: &[Rule<'_>], disk: &Disk) -> Vec<PathBuf> {
    let linked = |rule: &&Rule<'_>| {
        rule.rule.effect == Effect::Allow && rule.written.as_os_str() != rule.real.as_os_str()
    };
    rules.iter().filter(linked).flat_map(|rule| disk.links_on(&rule.written).0).collect()
}

/// Follows symlinks as far as the path exists, keeps the rest, and looks up the type.
pub(super) fn real(disk: &Disk, path: &Path) -> io::Result<(PathBuf, Found)> {
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
