//! The sandbox that is being written.
//!
//! In a sandbox the longest matching path wins, per capability. Other tools let
//! a deny win over any allow, or over some. So before it is written, every deny
//! that such an allow would hide is repeated below that allow, and an allow that
//! lies wholly inside such a deny is left out.
//!
//! Paths with different roots (`$PWD`, `$HOME`, `/…`) cannot be compared here.
//! `/`, `$HOME` and the usual directories of homes are taken to hold the
//! project; any other directory is taken not to.

use std::collections::BTreeMap;

use crate::draft::EntryOrigin;
use crate::hosts::ImportedHost;
use crate::paths::{ImportedPath, PathPart, PathReach, PathRoot, name_matches};
use crate::text::{literal, shown};
use crate::tree::Key;
use crate::{Effect, ImportError, ImportResult};

/// Denies repeated below allows; more than this is an attack on the writer.
const MAX_REPEATED_DENIES: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct ImportedSandbox {
    /// Both the sandbox's name and the variable that holds it.
    pub(crate) name: String,
    pub(crate) doc: String,
    /// Based on clash's own sandbox for a project, which this one adds to.
    pub(crate) on_project: bool,
    pub(crate) read: PathRights,
    pub(crate) write: PathRights,
    pub(crate) net: ImportedNet,
    pub(crate) env: Vec<(String, Effect, EntryOrigin)>,
}

#[derive(Debug, Default)]
pub(crate) struct PathRights {
    pub(crate) allow: Vec<(ImportedPath, EntryOrigin)>,
    pub(crate) deny: Vec<PathDenial>,
    /// What the base of the sandbox already allows.
    pub(crate) inherited: Vec<ImportedPath>,
}

#[derive(Clone, Debug)]
pub(crate) struct PathDenial {
    pub(crate) pattern: ImportedPath,
    /// Wins over every allow, also over a longer one.
    pub(crate) absolute: bool,
    pub(crate) origin: EntryOrigin,
}

#[derive(Debug, Default)]
pub(crate) enum ImportedNet {
    /// As the base has it, or none.
    #[default]
    Unsaid,
    Deny,
    Allow,
    Hosts(HostRules),
}

#[derive(Debug)]
pub(crate) struct HostRules {
    pub(crate) rules: Vec<(ImportedHost, Effect, EntryOrigin)>,
    pub(crate) addresses: Vec<(String, EntryOrigin)>,
    pub(crate) default: Effect,
}

type PathRule = (ImportedPath, Effect, EntryOrigin);

impl PathRights {
    pub(crate) fn allow(&mut self, pattern: ImportedPath, origin: EntryOrigin) {
        self.allow.push((below(pattern), origin));
    }

    pub(crate) fn deny(&mut self, pattern: ImportedPath, absolute: bool, origin: EntryOrigin) {
        self.deny.push(PathDenial { pattern: below(pattern), absolute, origin });
    }

    /// Rules among which the longest may decide, and the allows that had to go.
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
                let what = "denies that lie across allows";
                return Err(ImportError::TooMany { what, limit: MAX_REPEATED_DENIES });
            }
        }
        let denies = self.deny.iter().map(|d| (d.pattern.clone(), Effect::Deny, d.origin.clone()));
        rules.extend(denies);
        Ok((rules, lost))
    }
}

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

/// What of `allow` is taken away by `denial` although `allow` is longer.
fn overlap(denial: &PathDenial, allow: &ImportedPath) -> PathOverlap {
    let deny = &denial.pattern;
    if deny == allow {
        return PathOverlap::Covers;
    }
    let rest = if deny.root == allow.root {
        residuals(&deny.parts, &allow.parts)
    } else if above(deny, allow.root) {
        // The start of the deny holds all of the allow's root: what is left of
        // its pattern is what follows the fixed part.
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

/// What is left of a pattern inside a directory: `None` if it does not reach
/// there, an empty list if the directory itself matches or lies below a match.
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

fn could_be(pattern: &PathPart, name: &PathPart) -> bool {
    match (pattern, name) {
        (PathPart::AnyDepth, _) | (_, PathPart::AnyDepth) => true,
        (PathPart::Name(a), PathPart::Name(b)) => a == b,
        (PathPart::Glob(glob), PathPart::Name(name))
        | (PathPart::Name(name), PathPart::Glob(glob)) => name_matches(glob, name),
        (PathPart::Glob(_), PathPart::Glob(_)) => true,
    }
}

/// Whether the fixed part of `deny` is taken to hold everything below `root`.
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

/// What one path of the sandbox is given.
#[derive(Default)]
struct PathEffects {
    read: Option<Effect>,
    write: Option<Effect>,
    notes: Vec<String>,
}

/// Denials of paths that hold in every sandbox, as text; empty if there are none.
pub(crate) fn everywhere(rights: &[&PathRights; 2]) -> String {
    let [reads, writes] = rights;
    let mut paths: BTreeMap<&ImportedPath, PathEffects> = BTreeMap::new();
    for (denials, is_read) in [(&reads.deny, true), (&writes.deny, false)] {
        for PathDenial { pattern, origin, .. } in denials {
            let both = paths.entry(pattern).or_default();
            let side = if is_read { &mut both.read } else { &mut both.write };
            *side = Some(Effect::Deny);
            let note = origin.to_string();
            if !both.notes.contains(&note) {
                both.notes.push(note);
            }
        }
    }
    let mut out = String::new();
    for (pattern, both) in &paths {
        write_path(pattern, both, &mut out);
    }
    if out.is_empty() { out } else { format!("everywhere(\n    fs = {{\n{out}    }},\n)\n") }
}

impl ImportedSandbox {
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Nothing of its own: not worth writing.
    pub(crate) fn is_empty(&self) -> bool {
        let none = |rights: &PathRights| rights.allow.is_empty() && rights.deny.is_empty();
        none(&self.read)
            && none(&self.write)
            && self.env.is_empty()
            && matches!(self.net, ImportedNet::Unsaid)
    }

    /// Its text, and the allows that lie inside a deny and were left out.
    pub(crate) fn write(&self) -> ImportResult<(String, Vec<EntryOrigin>)> {
        let (reads, mut lost) = self.read.resolve()?;
        let (writes, lost_writes) = self.write.resolve()?;
        lost.extend(lost_writes);
        let mut order: Vec<&ImportedPath> = Vec::new();
        let mut paths: BTreeMap<&ImportedPath, PathEffects> = BTreeMap::new();
        let sides = [(&reads, true), (&writes, false)];
        for (rules, is_read) in sides {
            for (pattern, effect, origin) in rules {
                let both = paths.entry(pattern).or_insert_with(|| {
                    order.push(pattern);
                    PathEffects::default()
                });
                let side = if is_read { &mut both.read } else { &mut both.write };
                *side = Some(side.map_or(*effect, |known| known.max(*effect)));
                let note = origin.to_string();
                if !both.notes.contains(&note) {
                    both.notes.push(note);
                }
            }
        }
        let mut out = format!("{} = sandbox(\n    name = {},\n", self.name, literal(&self.name));
        if self.on_project {
            out.push_str("    extends = project,\n");
        } else {
            out.push_str("    default = deny(),\n");
        }
        if !order.is_empty() {
            out.push_str("    fs = {\n");
            for pattern in order {
                if let Some(both) = paths.get(pattern) {
                    write_path(pattern, both, &mut out);
                }
            }
            out.push_str("    },\n");
        }
        lost.extend(self.write_net(&mut out));
        if !self.env.is_empty() {
            out.push_str("    env = {\n");
            let mut known: Vec<&str> = Vec::new();
            for (name, effect, origin) in &self.env {
                if known.contains(&name.as_str()) {
                    continue;
                }
                known.push(name);
                note(origin, &mut out);
                out.push_str(&format!("        {}: {}(),\n", literal(name), effect.word()));
            }
            out.push_str("    },\n");
        }
        if !self.doc.is_empty() {
            out.push_str(&format!("    doc = {},\n", literal(&self.doc)));
        }
        out.push_str(")\n");
        Ok((out, lost))
    }

    fn write_net(&self, out: &mut String) -> Vec<EntryOrigin> {
        let hosts = match &self.net {
            ImportedNet::Unsaid => return Vec::new(),
            ImportedNet::Deny => {
                out.push_str("    net = deny(),\n");
                return Vec::new();
            }
            ImportedNet::Allow => {
                out.push_str("    net = allow(),\n");
                return Vec::new();
            }
            ImportedNet::Hosts(hosts) => hosts,
        };
        let (rules, lost) = hosts.resolve();
        out.push_str("    net = {\n");
        for (key, effect, origins) in rules {
            for origin in origins {
                note(&origin, out);
            }
            out.push_str(&format!("        {}: {}(),\n", key.written(), effect.word()));
        }
        out.push_str(&format!("        default(): {}(),\n    }},\n", hosts.default.word()));
        lost
    }
}

type HostRule = (Key, Effect, Vec<EntryOrigin>);

impl HostRules {
    /// A name that a deny covers is not allowed, however long it is.
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
                add(&mut rules, key, *effect, origin);
            }
        }
        for (address, origin) in &self.addresses {
            add(&mut rules, Key::text(address.as_str()), Effect::Deny, origin);
        }
        (rules, lost)
    }
}

fn add(rules: &mut Vec<HostRule>, key: Key, effect: Effect, origin: &EntryOrigin) {
    match rules.iter_mut().find(|(known, ..)| *known == key) {
        Some((_, known, origins)) => {
            *known = effect.max(*known);
            origins.push(origin.clone());
        }
        None => rules.push((key, effect, vec![origin.clone()])),
    }
}

fn note(origin: &EntryOrigin, out: &mut String) {
    out.push_str(&format!("        # {}\n", shown(&origin.to_string())));
}

fn write_path(pattern: &ImportedPath, both: &PathEffects, out: &mut String) {
    for note in &both.notes {
        out.push_str(&format!("        # {}\n", shown(note)));
    }
    let mut line = |key: Key, effect: Effect, caps: &str| {
        let caps = if caps.is_empty() { String::new() } else { literal(caps) };
        out.push_str(&format!("        {}: {}({caps}),\n", key.written(), effect.word()));
    };
    let key = pattern.key();
    match (both.read, both.write) {
        (Some(read), Some(write)) if read == write => line(key, read, ""),
        (Some(read), None) => line(key, read, "rx"),
        (None, Some(write)) => line(key, write, "wcd"),
        // One key holds one effect, and both of these name the same tree.
        (Some(Effect::Allow), Some(write)) if !pattern.is_wild() => {
            line(key, Effect::Allow, "rx");
            line(Key::Subpath(pattern.text()), write, "wcd");
        }
        (Some(Effect::Allow), Some(write)) => line(key, write, "wcd"),
        (Some(read), Some(_)) => line(key, read, ""),
        (None, None) => {}
    }
}

#[cfg(test)]
mod tests;
