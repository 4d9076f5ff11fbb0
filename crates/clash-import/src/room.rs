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

use crate::draft::Origin;
use crate::hosts::Host;
use crate::paths::{Part, PathPattern, Reach, Root, name_matches};
use crate::text::{literal, shown};
use crate::tree::Key;
use crate::{Effect, ImportError, Result};

/// Denies repeated below allows; more than this is an attack on the writer.
const MOST_REPEATED: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Both the sandbox's name and the variable that holds it.
    pub(crate) name: String,
    pub(crate) doc: String,
    /// Based on clash's own sandbox for a project, which this one adds to.
    pub(crate) on_project: bool,
    pub(crate) read: Rights,
    pub(crate) write: Rights,
    pub(crate) net: Net,
    pub(crate) env: Vec<(String, Effect, Origin)>,
}

#[derive(Debug, Default)]
pub(crate) struct Rights {
    pub(crate) allow: Vec<(PathPattern, Origin)>,
    pub(crate) deny: Vec<Denial>,
    /// What the base of the sandbox already allows.
    pub(crate) inherited: Vec<PathPattern>,
}

#[derive(Clone, Debug)]
pub(crate) struct Denial {
    pub(crate) pattern: PathPattern,
    /// Wins over every allow, also over a longer one.
    pub(crate) absolute: bool,
    pub(crate) origin: Origin,
}

#[derive(Debug, Default)]
pub(crate) enum Net {
    /// As the base has it, or none.
    #[default]
    Unsaid,
    Deny,
    Allow,
    Hosts(Hosts),
}

#[derive(Debug)]
pub(crate) struct Hosts {
    pub(crate) rules: Vec<(Host, Effect, Origin)>,
    pub(crate) addresses: Vec<(String, Origin)>,
    pub(crate) default: Effect,
}

type PathRule = (PathPattern, Effect, Origin);

impl Rights {
    pub(crate) fn allow(&mut self, pattern: PathPattern, origin: Origin) {
        self.allow.push((below(pattern), origin));
    }

    pub(crate) fn deny(&mut self, pattern: PathPattern, absolute: bool, origin: Origin) {
        self.deny.push(Denial { pattern: below(pattern), absolute, origin });
    }

    /// Rules among which the longest may decide, and the allows that had to go.
    fn resolve(&self) -> Result<(Vec<PathRule>, Vec<Origin>)> {
        let (mut rules, mut lost) = (Vec::new(), Vec::new());
        let mut repeated = 0;
        let given = self.allow.iter().map(|(pattern, origin)| (pattern, Some(origin)));
        for (pattern, origin) in given.chain(self.inherited.iter().map(|p| (p, None))) {
            let mut covered = None;
            let mut repeats = Vec::new();
            for denial in &self.deny {
                match overlap(denial, pattern) {
                    Overlap::None => {}
                    Overlap::Covers => covered = Some(denial),
                    Overlap::Below(all) => {
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
            if repeated > MOST_REPEATED {
                let what = "denies that lie across allows";
                return Err(ImportError::TooMany { what, limit: MOST_REPEATED });
            }
        }
        let denies = self.deny.iter().map(|d| (d.pattern.clone(), Effect::Deny, d.origin.clone()));
        rules.extend(denies);
        Ok((rules, lost))
    }
}

fn below(pattern: PathPattern) -> PathPattern {
    PathPattern { reach: Reach::Below, ..pattern }
}

enum Overlap {
    None,
    /// Everything the allow grants is denied.
    Covers,
    /// The part of the deny inside the allow, as patterns that start there.
    Below(Vec<PathPattern>),
}

/// What of `allow` is taken away by `denial` although `allow` is longer.
fn overlap(denial: &Denial, allow: &PathPattern) -> Overlap {
    let deny = &denial.pattern;
    if deny == allow {
        return Overlap::Covers;
    }
    let rest = if deny.root == allow.root {
        residuals(&deny.parts, &allow.parts)
    } else if above(deny, allow.root) {
        // The start of the deny holds all of the allow's root: what is left of
        // its pattern is what follows the fixed part.
        let fixed = deny.parts.iter().take_while(|part| matches!(part, Part::Name(_))).count();
        let rest = deny.parts.get(fixed..).unwrap_or_default();
        match rest.first() {
            None => Some(vec![]),
            Some(Part::AnyDepth) => residuals(rest, &allow.parts),
            Some(_) => None,
        }
    } else {
        None
    };
    match rest {
        None => Overlap::None,
        Some(rest) if rest.is_empty() && (denial.absolute || deny.is_wild()) => Overlap::Covers,
        Some(rest) if rest.is_empty() => Overlap::None,
        // A wildcard of the allow may be anything, so its overlap has no name.
        Some(_) if allow.is_wild() => Overlap::Covers,
        Some(rest) if deny.is_wild() => Overlap::Below(
            rest.into_iter()
                .map(|parts| {
                    let parts = allow.parts.iter().cloned().chain(parts).collect();
                    PathPattern { root: allow.root, parts, reach: Reach::Below }
                })
                .filter(|pattern| pattern != deny)
                .collect(),
        ),
        // A plain path inside the allow is longer and wins by itself.
        Some(_) => Overlap::None,
    }
}

/// What is left of a pattern inside a directory: `None` if it does not reach
/// there, an empty list if the directory itself matches or lies below a match.
fn residuals(pattern: &[Part], directory: &[Part]) -> Option<Vec<Vec<Part>>> {
    let mut states = vec![pattern];
    for name in directory {
        let mut next: Vec<&[Part]> = Vec::new();
        for state in opened(&states) {
            let Some((first, rest)) = state.split_first() else { return Some(vec![]) };
            if *first == Part::AnyDepth {
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
    let kept = |state: &&[Part]| {
        let with_depth: Vec<Part> =
            std::iter::once(Part::AnyDepth).chain(state.iter().cloned()).collect();
        !states.contains(&with_depth.as_slice())
    };
    let rest: Vec<Vec<Part>> = states.iter().filter(|s| kept(s)).map(|s| s.to_vec()).collect();
    (!rest.is_empty()).then_some(rest)
}

/// `**` also stands for no directory at all.
fn opened<'p>(states: &[&'p [Part]]) -> Vec<&'p [Part]> {
    let mut all = states.to_vec();
    for state in states {
        if let Some((Part::AnyDepth, rest)) = state.split_first() {
            all.push(rest);
        }
    }
    all.sort();
    all.dedup();
    all
}

fn could_be(pattern: &Part, name: &Part) -> bool {
    match (pattern, name) {
        (Part::AnyDepth, _) | (_, Part::AnyDepth) => true,
        (Part::Name(a), Part::Name(b)) => a == b,
        (Part::Glob(glob), Part::Name(name)) | (Part::Name(name), Part::Glob(glob)) => {
            name_matches(glob, name)
        }
        (Part::Glob(_), Part::Glob(_)) => true,
    }
}

/// Whether the fixed part of `deny` is taken to hold everything below `root`.
fn above(deny: &PathPattern, root: Root) -> bool {
    let fixed: Vec<&str> = deny
        .parts
        .iter()
        .map_while(|part| match part {
            Part::Name(name) => Some(name.as_str()),
            Part::Glob(_) | Part::AnyDepth => None,
        })
        .collect();
    matches!(
        (deny.root, root, fixed.as_slice()),
        (Root::Slash, _, [])
            | (Root::Slash, Root::Tmp, ["tmp" | "var" | "private"])
            | (Root::Slash, Root::Project | Root::Home, ["home" | "Users" | "root"])
            | (Root::Slash, Root::Project | Root::Home, ["home" | "Users", _])
            | (Root::Home, Root::Project, [])
    )
}

/// What one path of the sandbox is given.
#[derive(Default)]
struct Both {
    read: Option<Effect>,
    write: Option<Effect>,
    notes: Vec<String>,
}

/// Denials of paths that hold in every sandbox, as text; empty if there are none.
pub(crate) fn everywhere(rights: &[&Rights; 2]) -> String {
    let [reads, writes] = rights;
    let mut paths: BTreeMap<&PathPattern, Both> = BTreeMap::new();
    for (denials, is_read) in [(&reads.deny, true), (&writes.deny, false)] {
        for Denial { pattern, origin, .. } in denials {
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

impl Room {
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Nothing of its own: not worth writing.
    pub(crate) fn is_empty(&self) -> bool {
        let none = |rights: &Rights| rights.allow.is_empty() && rights.deny.is_empty();
        none(&self.read)
            && none(&self.write)
            && self.env.is_empty()
            && matches!(self.net, Net::Unsaid)
    }

    /// Its text, and the allows that lie inside a deny and were left out.
    pub(crate) fn write(&self) -> Result<(String, Vec<Origin>)> {
        let (reads, mut lost) = self.read.resolve()?;
        let (writes, lost_writes) = self.write.resolve()?;
        lost.extend(lost_writes);
        let mut order: Vec<&PathPattern> = Vec::new();
        let mut paths: BTreeMap<&PathPattern, Both> = BTreeMap::new();
        let sides = [(&reads, true), (&writes, false)];
        for (rules, is_read) in sides {
            for (pattern, effect, origin) in rules {
                let both = paths.entry(pattern).or_insert_with(|| {
                    order.push(pattern);
                    Both::default()
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

    fn write_net(&self, out: &mut String) -> Vec<Origin> {
        let hosts = match &self.net {
            Net::Unsaid => return Vec::new(),
            Net::Deny => {
                out.push_str("    net = deny(),\n");
                return Vec::new();
            }
            Net::Allow => {
                out.push_str("    net = allow(),\n");
                return Vec::new();
            }
            Net::Hosts(hosts) => hosts,
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

type HostRule = (Key, Effect, Vec<Origin>);

impl Hosts {
    /// A name that a deny covers is not allowed, however long it is.
    fn resolve(&self) -> (Vec<HostRule>, Vec<Origin>) {
        let (mut rules, mut lost): (Vec<HostRule>, Vec<Origin>) = (Vec::new(), Vec::new());
        let restricted: Vec<(&Host, Effect)> = self
            .rules
            .iter()
            .filter(|(_, effect, _)| *effect > Effect::Allow)
            .map(|(host, effect, _)| (host, *effect))
            .collect();
        let shut: Vec<u16> = restricted.iter().filter_map(|(host, _)| host.port_of_all()).collect();
        for (host, effect, origin) in &self.rules {
            let stricter =
                |(other, theirs): &(&Host, Effect)| *theirs > *effect && other.covers(host);
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

fn add(rules: &mut Vec<HostRule>, key: Key, effect: Effect, origin: &Origin) {
    match rules.iter_mut().find(|(known, ..)| *known == key) {
        Some((_, known, origins)) => {
            *known = effect.max(*known);
            origins.push(origin.clone());
        }
        None => rules.push((key, effect, vec![origin.clone()])),
    }
}

fn note(origin: &Origin, out: &mut String) {
    out.push_str(&format!("        # {}\n", shown(&origin.to_string())));
}

fn write_path(pattern: &PathPattern, both: &Both, out: &mut String) {
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
