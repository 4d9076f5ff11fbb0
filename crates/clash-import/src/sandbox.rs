//! A sandbox that an importer fills.
//!
//! In a sandbox of clash the longest matching path wins, for each capability. In other
//! tools a deny wins over any allow, or over some. So every deny that a longer allow would
//! hide is repeated below that allow. An allow that lies wholly inside such a deny stays
//! out. For example, with an allow of `src` a deny of `**/.env` also becomes a deny of
//! `src/**/.env`.
//!
//! An importer cannot compare paths with different roots (`$PWD`, `$HOME`, `/…`). It
//! assumes that `/`, `$HOME` and the usual directories of homes hold the project, and that
//! no other directory does.

use std::collections::BTreeMap;

use clash_policy::Effect;
use clash_syntax::draft::{
    EnvRuleDraft, FileEffect, FileRuleDraft, HostRuleDraft, KeyDraft, NetDraft, NetRules,
    SandboxBase, SandboxDraft,
};

use crate::draft::EntryOrigin;
use crate::hosts::ImportedHost;
use crate::paths::{ImportedPath, PathPart, PathReach, PathRoot, name_matches};
use crate::text::shown;
use crate::{ImportError, ImportResult};

/// Most denies that are repeated below allows. A file with more is an attack.
const MAX_REPEATED_DENIES: usize = 10_000;

/// A sandbox of the imported file.
#[derive(Debug, Default)]
pub(crate) struct ImportedSandbox {
    /// The name of the sandbox and of the variable that holds it.
    pub(crate) name: String,
    pub(crate) doc: String,
    /// True if the sandbox extends the library's `project`.
    pub(crate) on_project: bool,
    pub(crate) read: PathRights,
    pub(crate) write: PathRights,
    pub(crate) net: ImportedNet,
    pub(crate) env: Vec<(String, Effect, EntryOrigin)>,
}

/// The paths that may be read, or written.
#[derive(Debug, Default)]
pub(crate) struct PathRights {
    pub(crate) allow: Vec<(ImportedPath, EntryOrigin)>,
    pub(crate) deny: Vec<PathDenial>,
    /// Paths that the base of the sandbox already allows.
    pub(crate) inherited: Vec<ImportedPath>,
}

/// A denied path.
#[derive(Clone, Debug)]
pub(crate) struct PathDenial {
    pub(crate) pattern: ImportedPath,
    /// True if the deny also wins over longer allows.
    pub(crate) absolute: bool,
    pub(crate) origin: EntryOrigin,
}

/// The network of an imported sandbox.
#[derive(Debug, Default)]
pub(crate) enum ImportedNet {
    /// The network of the base, or none.
    #[default]
    Unsaid,
    Deny,
    Allow,
    Hosts(HostRules),
}

/// The hosts of an imported sandbox. `addresses` are denied ranges.
#[derive(Debug)]
pub(crate) struct HostRules {
    pub(crate) rules: Vec<(ImportedHost, Effect, EntryOrigin)>,
    pub(crate) addresses: Vec<(String, EntryOrigin)>,
    pub(crate) default: Effect,
}

type PathRule = (ImportedPath, Effect, EntryOrigin);

impl PathRights {
    /// Adds an allow of a path and everything below it.
    pub(crate) fn allow(&mut self, pattern: ImportedPath, origin: EntryOrigin) {
        self.allow.push((below(pattern), origin));
    }

    /// Adds a deny of a path and everything below it.
    pub(crate) fn deny(&mut self, pattern: ImportedPath, absolute: bool, origin: EntryOrigin) {
        self.deny.push(PathDenial { pattern: below(pattern), absolute, origin });
    }

    /// Rules among which the longest decides, and the origins of allows that stay out. Too
    /// many repeated denies are an error.
    fn resolve(&self) -> ImportResult<(Vec<PathRule>, Vec<EntryOrigin>)> {
        let (mut rules, mut lost) = (Vec::new(), Vec::new());
        let mut repeated = 0;
        let given = self.allow.iter().map(|(pattern, origin)| (pattern, Some(origin)));
        for (pattern, origin) in given.chain(self.inherited.iter().map(|p| (p, None))) {
            let mut covered = None;
            let mut repeats = Vec::new();
            for denial in &self.deny {
                match overlap(denial, pattern) {
                    PathOverlap::None => {}
                    PathOverlap::Covers => covered = Some(denial),
                    PathOverlap::Below(all) => {
                        repeats.extend(all.into_iter().map(|p| (p, denial.origin.clone())));
                    }
                }
            }
            match (covered, origin) {
                (Some(_), Some(origin)) => lost.push(origin.clone()),
                (Some(denial), None) => {
                    rules.push((pattern.clone(), Effect::Deny, denial.origin.clone()));
                }
                (None, origin) => {
                    if let Some(origin) = origin {
                        rules.push((pattern.clone(), Effect::Allow, origin.clone()));
                    }
                    repeated += repeats.len();
                    rules.extend(repeats.into_iter().map(|(p, o)| (p, Effect::Deny, o)));
                }
            }
            if repeated > MAX_REPEATED_DENIES {
                let what = "denies that overlap with allows";
                return Err(ImportError::TooMany { what, limit: MAX_REPEATED_DENIES });
            }
        }
        let denies = self.deny.iter().map(|d| (d.pattern.clone(), Effect::Deny, d.origin.clone()));
        rules.extend(denies);
        Ok((rules, lost))
    }
}

/// The pattern with everything below it.
fn below(pattern: ImportedPath) -> ImportedPath {
    ImportedPath { reach: PathReach::Below, ..pattern }
}

enum PathOverlap {
    None,
    /// Everything the allow grants is denied.
    Covers,
    /// The part of the deny inside the allow, as patterns that start there.
    Below(Vec<ImportedPath>),
}

/// The part of `allow` that `denial` takes away although `allow` is longer.
fn overlap(denial: &PathDenial, allow: &ImportedPath) -> PathOverlap {
    let deny = &denial.pattern;
    if deny == allow {
        return PathOverlap::Covers;
    }
    let rest = if deny.root == allow.root {
        residuals(&deny.parts, &allow.parts)
    } else if above(deny, allow.root) {
        // The fixed start of the deny holds all of the allow's root, so the rest of its
        // pattern begins behind the fixed start.
        let fixed = deny.parts.iter().take_while(|part| matches!(part, PathPart::Name(_))).count();
        let rest = deny.parts.get(fixed..).unwrap_or_default();
        match rest.first() {
            None => Some(vec![]),
            Some(PathPart::AnyDepth) => residuals(rest, &allow.parts),
            Some(_) => None,
        }
    } else {
        None
    };
    match rest {
        None => PathOverlap::None,
        Some(rest) if rest.is_empty() && (denial.absolute || deny.is_wild()) => PathOverlap::Covers,
        Some(rest) if rest.is_empty() => PathOverlap::None,
        // A wildcard of the allow may be anything, so its overlap has no name.
        Some(_) if allow.is_wild() => PathOverlap::Covers,
        Some(rest) if deny.is_wild() => PathOverlap::Below(
            rest.into_iter()
                .map(|parts| {
                    let parts = allow.parts.iter().cloned().chain(parts).collect();
                    ImportedPath { root: allow.root, parts, reach: PathReach::Below }
                })
                .filter(|pattern| pattern != deny)
                .collect(),
        ),
        // A plain path inside the allow is longer and wins by itself.
        Some(_) => PathOverlap::None,
    }
}

/// The rest of a pattern inside a directory. `None` if the pattern does not reach the
/// directory; an empty list if the directory matches or lies below a match.
fn residuals(pattern: &[PathPart], directory: &[PathPart]) -> Option<Vec<Vec<PathPart>>> {
    let mut states = vec![pattern];
    for name in directory {
        let mut next: Vec<&[PathPart]> = Vec::new();
        for state in opened(&states) {
            let Some((first, rest)) = state.split_first() else { return Some(vec![]) };
            if *first == PathPart::AnyDepth {
                next.push(state);
            } else if could_be(first, name) {
                next.push(rest);
            }
        }
        next.sort();
        next.dedup();
        states = next;
    }
    let states = opened(&states);
    if states.iter().any(|state| state.is_empty()) {
        return Some(vec![]);
    }
    // A state behind `**` is part of the one that still has it.
    let kept = |state: &&[PathPart]| {
        let with_depth: Vec<PathPart> =
            std::iter::once(PathPart::AnyDepth).chain(state.iter().cloned()).collect();
        !states.contains(&with_depth.as_slice())
    };
    let rest: Vec<Vec<PathPart>> = states.iter().filter(|s| kept(s)).map(|s| s.to_vec()).collect();
    (!rest.is_empty()).then_some(rest)
}

/// `**` also stands for no directory at all.
fn opened<'p>(states: &[&'p [PathPart]]) -> Vec<&'p [PathPart]> {
    let mut all = states.to_vec();
    for state in states {
        if let Some((PathPart::AnyDepth, rest)) = state.split_first() {
            all.push(rest);
        }
    }
    all.sort();
    all.dedup();
    all
}

/// True if two parts can stand for the same name. True in cases of doubt.
fn could_be(pattern: &PathPart, name: &PathPart) -> bool {
    match (pattern, name) {
        (PathPart::AnyDepth, _) | (_, PathPart::AnyDepth) => true,
        (PathPart::Name(a), PathPart::Name(b)) => a == b,
        (PathPart::Glob(glob), PathPart::Name(name))
        | (PathPart::Name(name), PathPart::Glob(glob)) => name_matches(glob, name),
        (PathPart::Glob(_), PathPart::Glob(_)) => true,
    }
}

/// True if the fixed start of `deny` is assumed to hold everything below `root`.
fn above(deny: &ImportedPath, root: PathRoot) -> bool {
    let fixed: Vec<&str> = deny
        .parts
        .iter()
        .map_while(|part| match part {
            PathPart::Name(name) => Some(name.as_str()),
            PathPart::Glob(_) | PathPart::AnyDepth => None,
        })
        .collect();
    matches!(
        (deny.root, root, fixed.as_slice()),
        (PathRoot::Slash, _, [])
            | (PathRoot::Slash, PathRoot::Tmp, ["tmp" | "var" | "private"])
            | (PathRoot::Slash, PathRoot::Project | PathRoot::Home, ["home" | "Users" | "root"])
            | (PathRoot::Slash, PathRoot::Project | PathRoot::Home, ["home" | "Users", _])
            | (PathRoot::Home, PathRoot::Project, [])
    )
}

/// The effects on one path, for reading and for writing.
#[derive(Default)]
struct PathEffects {
    read: Option<Effect>,
    write: Option<Effect>,
    notes: Vec<String>,
}

impl PathEffects {
    /// The stricter effect holds if there are several.
    fn add(&mut self, access: Access, effect: Effect, origin: &EntryOrigin) {
        let side = match access {
            Access::Read => &mut self.read,
            Access::Write => &mut self.write,
        };
        *side = Some(side.map_or(effect, |known| known.max(effect)));
        let note = shown(&origin.to_string());
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// The file rules for the path, none if it has no effect. One key has one effect: if
    /// reading is allowed and writing is not, a second spelling of the path has the second
    /// effect; under a wildcard only the denied part has a rule. If reading is not allowed,
    /// its effect holds for everything.
    fn rules(self, pattern: &ImportedPath) -> Vec<FileRuleDraft> {
        let rule = |key: KeyDraft, effect: Effect, caps: &str| FileRuleDraft {
            comment: Vec::new(),
            key,
            effect: FileEffect::Caps(effect, caps.to_owned()),
        };
        let key = pattern.key();
        let mut rules = match (self.read, self.write) {
            (Some(read), Some(write)) if read == write => vec![rule(key, read, "")],
            (Some(read), None) => vec![rule(key, read, "rx")],
            (None, Some(write)) => vec![rule(key, write, "wcd")],
            // A dict key has one effect, so the second effect takes another spelling of
            // the same path.
            (Some(Effect::Allow), Some(write)) if !pattern.is_wild() => {
                let subpath = KeyDraft::subpath(pattern.text());
                vec![rule(key, Effect::Allow, "rx"), rule(subpath, write, "wcd")]
            }
            (Some(Effect::Allow), Some(write)) => vec![rule(key, write, "wcd")],
            (Some(read), Some(_)) => vec![rule(key, read, "")],
            (None, None) => Vec::new(),
        };
        if let Some(first) = rules.first_mut() {
            first.comment = self.notes;
        }
        rules
    }
}

#[derive(Clone, Copy)]
enum Access {
    Read,
    Write,
}

/// The denials as file rules that hold in every sandbox.
pub(crate) fn file_denials(reads: &PathRights, writes: &PathRights) -> Vec<FileRuleDraft> {
    let mut paths: BTreeMap<&ImportedPath, PathEffects> = BTreeMap::new();
    for (rights, access) in [(reads, Access::Read), (writes, Access::Write)] {
        for PathDenial { pattern, origin, .. } in &rights.deny {
            paths.entry(pattern).or_default().add(access, Effect::Deny, origin);
        }
    }
    paths.into_iter().flat_map(|(pattern, effects)| effects.rules(pattern)).collect()
}

impl ImportedSandbox {
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// True if the sandbox has no rule of its own.
    pub(crate) fn is_empty(&self) -> bool {
        let none = |rights: &PathRights| rights.allow.is_empty() && rights.deny.is_empty();
        none(&self.read)
            && none(&self.write)
            && self.env.is_empty()
            && matches!(self.net, ImportedNet::Unsaid)
    }

    /// The sandbox as a draft, and the allows that lie inside a deny and stay out.
    pub(crate) fn draft(&self) -> ImportResult<(SandboxDraft, Vec<EntryOrigin>)> {
        let base = match self.on_project {
            true => SandboxBase::Extends("project".to_owned()),
            false => SandboxBase::Default(Effect::Deny),
        };
        let (fs, mut lost) = self.file_rules()?;
        let (net, lost_hosts) = self.net.draft();
        lost.extend(lost_hosts);
        let env = self.env_rules();
        let doc = self.doc.clone();
        Ok((SandboxDraft { doc, fs, net, env, ..SandboxDraft::new(&*self.name, base) }, lost))
    }

    /// The file rules of the sandbox, and the origins of allows that stay out.
    fn file_rules(&self) -> ImportResult<(Vec<FileRuleDraft>, Vec<EntryOrigin>)> {
        let (reads, mut lost) = self.read.resolve()?;
        let (writes, lost_writes) = self.write.resolve()?;
        lost.extend(lost_writes);
        let mut order: Vec<&ImportedPath> = Vec::new();
        let mut paths: BTreeMap<&ImportedPath, PathEffects> = BTreeMap::new();
        for (rules, access) in [(&reads, Access::Read), (&writes, Access::Write)] {
            for (pattern, effect, origin) in rules {
                let effects = paths.entry(pattern).or_insert_with(|| {
                    order.push(pattern);
                    PathEffects::default()
                });
                effects.add(access, *effect, origin);
            }
        }
        let rules = order.into_iter().filter_map(|pattern| Some((pattern, paths.remove(pattern)?)));
        let rules = rules.flat_map(|(pattern, effects)| effects.rules(pattern)).collect();
        Ok((rules, lost))
    }

    /// Each variable once: the first entry about it counts.
    fn env_rules(&self) -> Vec<EnvRuleDraft> {
        let mut rules: Vec<EnvRuleDraft> = Vec::new();
        for (variable, effect, origin) in &self.env {
            if rules.iter().all(|known| known.variable != *variable) {
                let (variable, effect) = (variable.clone(), *effect);
                rules.push(EnvRuleDraft { comment: vec![note(origin)], variable, effect });
            }
        }
        rules
    }
}

impl ImportedNet {
    /// The network as a draft, and the origins of allows that stay out. `None`: the base
    /// decides.
    fn draft(&self) -> (Option<NetDraft>, Vec<EntryOrigin>) {
        let (rules, lost) = match self {
            Self::Unsaid => return (None, Vec::new()),
            Self::Deny => (NetRules::Every(Effect::Deny), Vec::new()),
            Self::Allow => (NetRules::Every(Effect::Allow), Vec::new()),
            Self::Hosts(hosts) => {
                let (rules, lost) = hosts.resolve();
                let rules = rules.into_iter().map(|(key, effect, origins)| HostRuleDraft {
                    comment: origins.iter().map(note).collect(),
                    key,
                    effect,
                });
                (NetRules::Hosts { rules: rules.collect(), default: hosts.default }, lost)
            }
        };
        (Some(NetDraft { comment: Vec::new(), rules }), lost)
    }
}

type HostRule = (KeyDraft, Effect, Vec<EntryOrigin>);

impl HostRules {
    /// The rules by key, denied addresses last; and the origins of allows and asks that
    /// stay out: those that a stricter rule covers, however long they are, and allows
    /// without a key.
    fn resolve(&self) -> (Vec<HostRule>, Vec<EntryOrigin>) {
        let (mut rules, mut lost): (Vec<HostRule>, Vec<EntryOrigin>) = (Vec::new(), Vec::new());
        let restricted: Vec<(&ImportedHost, Effect)> = self
            .rules
            .iter()
            .filter(|(_, effect, _)| *effect > Effect::Allow)
            .map(|(host, effect, _)| (host, *effect))
            .collect();
        let shut: Vec<u16> = restricted.iter().filter_map(|(host, _)| host.port_of_all()).collect();
        for (host, effect, origin) in &self.rules {
            let stricter =
                |(other, theirs): &(&ImportedHost, Effect)| *theirs > *effect && other.covers(host);
            if *effect < Effect::Deny && restricted.iter().any(stricter) {
                lost.push(origin.clone());
                continue;
            }
            let keys =
                if *effect == Effect::Allow { host.allowed(&shut) } else { host.restricted() };
            if keys.is_empty() && *effect == Effect::Allow {
                lost.push(origin.clone());
            }
            for key in keys {
                add_host_rule(&mut rules, key, *effect, origin);
            }
        }
        for (address, origin) in &self.addresses {
            add_host_rule(&mut rules, KeyDraft::text(address.as_str()), Effect::Deny, origin);
        }
        (rules, lost)
    }
}

/// Adds a key; of two effects on it, the stricter holds.
fn add_host_rule(rules: &mut Vec<HostRule>, key: KeyDraft, effect: Effect, origin: &EntryOrigin) {
    match rules.iter_mut().find(|(known, ..)| *known == key) {
        Some((_, known, origins)) => {
            *known = effect.max(*known);
            origins.push(origin.clone());
        }
        None => rules.push((key, effect, vec![origin.clone()])),
    }
}

/// The comment that names the entry of a rule.
fn note(origin: &EntryOrigin) -> String {
    shown(&origin.to_string())
}

#[cfg(test)]
mod tests;
