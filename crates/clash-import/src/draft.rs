//! A policy in the making: what every importer fills and what becomes text.

use std::fmt;

use std::collections::{BTreeMap, BTreeSet};

use crate::room::{ImportedSandbox, PathRights, everywhere};
use crate::text::shown;
use crate::toolchains::{ToolchainSandbox, sandbox_of};
use crate::tree::{ImportedRule, Key, RuleTree};
use crate::{Effect, ImportFormat, ImportResult, ImportedPolicy, ReportEntry};

/// An entry of the imported file: what it says and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryOrigin {
    pub(crate) what: String,
    pub(crate) at: String,
}

impl EntryOrigin {
    pub(crate) fn new(at: impl Into<String>, what: impl Into<String>) -> Self {
        Self { what: what.into(), at: at.into() }
    }

    fn entry(&self, effect: Option<Effect>, why: impl Into<String>) -> ReportEntry {
        ReportEntry { what: self.what.clone(), where_: self.at.clone(), why: why.into(), effect }
    }
}

impl fmt::Display for EntryOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

/// The policy that holds every allow.
pub(crate) const ALLOWS: &str = "imported allows";

#[derive(Debug, Default)]
pub(crate) struct ImportDraft {
    denies: RuleTree,
    asks: RuleTree,
    allows: RuleTree,
    pub(crate) rooms: Vec<ImportedSandbox>,
    /// The sandbox for whatever names none.
    pub(crate) default_room: Option<String>,
    /// What happens where no rule matches; ask unless the file is stricter.
    pub(crate) deny_by_default: bool,
    /// Denials of paths that hold in every sandbox.
    pub(crate) reads: PathRights,
    pub(crate) writes: PathRights,
    /// Commands run in the sandboxes of their toolchains: the file has none of its own.
    pub(crate) by_toolchain: bool,
    /// What is taken from the library, by module.
    loads: BTreeMap<&'static str, BTreeSet<&'static str>>,
    not_expressed: Vec<ReportEntry>,
    narrowed: Vec<ReportEntry>,
}

impl ImportDraft {
    pub(crate) fn rule(&mut self, effect: Effect, path: &[Key], mut leaf: ImportedRule) {
        if self.by_toolchain && effect == Effect::Allow && leaf.sandbox.is_none() {
            leaf.sandbox = self.toolchain_sandbox(path);
        }
        let tree = match effect {
            Effect::Deny => &mut self.denies,
            Effect::Ask => &mut self.asks,
            Effect::Allow => &mut self.allows,
        };
        tree.insert(path, leaf);
    }

    /// The library's sandbox for an allowed command.
    fn toolchain_sandbox(&mut self, path: &[Key]) -> Option<String> {
        let [Key::Text(tool), Key::Text(program), rest @ ..] = path else { return None };
        let next = match rest {
            [Key::Text(word), ..] => Some(word.as_str()),
            _ => None,
        };
        let ToolchainSandbox { module, sandbox } =
            (tool == "Bash").then(|| sandbox_of(program, next)).flatten()?;
        self.loads.entry(module).or_default().insert(sandbox);
        Some(sandbox.to_owned())
    }

    /// The entry has no place in the policy.
    pub(crate) fn left_out(
        &mut self,
        origin: &EntryOrigin,
        effect: Option<Effect>,
        why: impl Into<String>,
    ) {
        self.not_expressed.push(origin.entry(effect, why));
    }

    /// The entry is in the policy, but stricter.
    pub(crate) fn stricter(
        &mut self,
        origin: &EntryOrigin,
        effect: Option<Effect>,
        why: impl Into<String>,
    ) {
        self.narrowed.push(origin.entry(effect, why));
    }

    pub(crate) fn finish(
        mut self,
        name: &str,
        format: ImportFormat,
    ) -> ImportResult<ImportedPolicy> {
        let mut rooms = String::new();
        for room in &self.rooms {
            let (text, lost) = room.write()?;
            rooms.push_str(&text);
            rooms.push('\n');
            for origin in lost {
                let why = "a deny covers it, which wins here whatever its length";
                self.narrowed.push(origin.entry(Some(Effect::Allow), why));
            }
        }
        // Restrictions that are missing first: that is what has to be read.
        self.not_expressed.sort_by_key(|entry| !entry.restricts());
        let mut out = format!("# Imported from {} ({}).\n", shown(name), format.describe());
        self.head(&mut out);
        out.push('\n');
        if self.rooms.iter().any(|room| room.on_project) {
            self.loads.entry("sandboxes").or_default().insert("project");
        }
        for (module, names) in &self.loads {
            let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
            out.push_str(&format!("load(\"@clash//{module}.star\", {})\n", names.join(", ")));
        }
        if !self.loads.is_empty() {
            out.push('\n');
        }
        out.push_str(&rooms);
        let denials = everywhere(&[&self.reads, &self.writes]);
        if !denials.is_empty() {
            out.push_str(&format!("# These hold in every sandbox.\n{denials}\n"));
        }
        let default = if self.deny_by_default { Effect::Deny } else { Effect::Ask };
        let sandbox = self.default_room.as_ref();
        let sandbox = sandbox.map_or(String::new(), |name| format!(", default_sandbox = {name}"));
        out.push_str(&format!("settings(default = {}(){sandbox})\n", default.word()));
        let trees = [
            ("imported denies", &self.denies, Effect::Deny),
            ("imported asks", &self.asks, Effect::Ask),
            (ALLOWS, &self.allows, Effect::Allow),
        ];
        for (name, tree, effect) in trees.into_iter().filter(|(_, tree, _)| !tree.is_empty()) {
            out.push_str(&format!("\npolicy(\"{name}\", {{\n"));
            tree.write(effect, 1, &mut out);
            out.push_str("})\n");
        }
        Ok(ImportedPolicy {
            source: out,
            not_expressed: self.not_expressed,
            narrowed: self.narrowed,
        })
    }

    fn head(&self, out: &mut String) {
        let list = |out: &mut String, title: &str, entries: &[&ReportEntry]| {
            if !entries.is_empty() {
                out.push_str(&format!("#\n# {title}\n"));
                for entry in entries {
                    out.push_str(&format!("#   {}\n", shown(&entry.to_string())));
                }
            }
        };
        let (restrictions, others): (Vec<&ReportEntry>, Vec<&ReportEntry>) =
            self.not_expressed.iter().partition(|entry| entry.restricts());
        list(out, "NOT ENFORCED: these restrictions could not be expressed.", &restrictions);
        list(out, "Left out:", &others);
        let narrowed: Vec<&ReportEntry> = self.narrowed.iter().collect();
        list(out, "Stricter than the original:", &narrowed);
    }
}
