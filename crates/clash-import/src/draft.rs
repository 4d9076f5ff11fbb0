//! The policy that an importer fills, and its way into a [`PolicyDraft`].

use std::fmt;

use clash_policy::Effect;
use clash_syntax::draft::{KeyDraft, NamedPolicy, PolicyDraft, SettingsDraft};

use crate::sandbox::{ImportedSandbox, PathRights, file_denials};
use crate::text::shown;
use crate::toolchains::sandbox_of;
use crate::tree::{ImportedRule, RuleTree};
use crate::{ImportFormat, ImportResult, ImportedPolicy, ReportEntry};

/// An entry of the imported file: its text and its place.
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

/// The name of the policy that holds every allow.
pub(crate) const ALLOWS_POLICY: &str = "imported allows";

/// The rules, sandboxes and reports of one file.
#[derive(Debug, Default)]
pub(crate) struct ImportDraft {
    denies: RuleTree,
    asks: RuleTree,
    allows: RuleTree,
    pub(crate) sandboxes: Vec<ImportedSandbox>,
    /// The sandbox of rules that name none.
    pub(crate) default_sandbox: Option<String>,
    /// True if the file denies where no rule matches. Otherwise the policy asks.
    pub(crate) deny_by_default: bool,
    /// Denials of paths that hold in every sandbox.
    pub(crate) reads: PathRights,
    pub(crate) writes: PathRights,
    /// True if the file has no sandbox of its own. Each allowed command then runs in
    /// the library's sandbox for its toolchain.
    pub(crate) by_toolchain: bool,
    not_expressed: Vec<ReportEntry>,
    narrowed: Vec<ReportEntry>,
}

impl ImportDraft {
    /// Adds a rule below these keys. An allow without a sandbox gets the one of its
    /// toolchain, if the file has no sandbox of its own.
    pub(crate) fn rule(&mut self, effect: Effect, path: &[KeyDraft], mut rule: ImportedRule) {
        if self.by_toolchain && effect == Effect::Allow && rule.sandbox.is_none() {
            rule.sandbox = toolchain_sandbox(path).map(str::to_owned);
        }
        let tree = match effect {
            Effect::Deny => &mut self.denies,
            Effect::Ask => &mut self.asks,
            Effect::Allow => &mut self.allows,
        };
        tree.insert(path, rule);
    }

    /// A rule about the command that the keys name.
    pub(crate) fn command_rule(
        &mut self,
        effect: Effect,
        command: Vec<KeyDraft>,
        rule: ImportedRule,
    ) {
        let path: Vec<KeyDraft> = std::iter::once(KeyDraft::text("Bash")).chain(command).collect();
        self.rule(effect, &path, rule);
    }

    /// Reports an entry that the policy does not express.
    pub(crate) fn left_out(
        &mut self,
        origin: &EntryOrigin,
        effect: Option<Effect>,
        why: impl Into<String>,
    ) {
        self.not_expressed.push(origin.entry(effect, why));
    }

    /// Reports an entry that the policy expresses more strictly.
    pub(crate) fn stricter(
        &mut self,
        origin: &EntryOrigin,
        effect: Option<Effect>,
        why: impl Into<String>,
    ) {
        self.narrowed.push(origin.entry(effect, why));
    }

    /// The policy as text, with the report in its head.
    pub(crate) fn finish(
        mut self,
        name: &str,
        format: ImportFormat,
    ) -> ImportResult<ImportedPolicy> {
        let mut sandboxes = Vec::new();
        for sandbox in &self.sandboxes {
            let (draft, lost) = sandbox.draft()?;
            sandboxes.push(draft);
            for origin in lost {
                let why =
                    "a deny rule covers it, and in clash the deny wins even over a longer path";
                self.narrowed.push(origin.entry(Some(Effect::Allow), why));
            }
        }
        // The user has to read the missing restrictions, so they come first.
        self.not_expressed.sort_by_key(|entry| !entry.restricts());
        let trees = [
            ("imported denies", &self.denies, Effect::Deny),
            ("imported asks", &self.asks, Effect::Ask),
            (ALLOWS_POLICY, &self.allows, Effect::Allow),
        ];
        let policies = trees
            .into_iter()
            .filter(|(_, tree, _)| !tree.is_empty())
            .map(|(name, tree, effect)| NamedPolicy {
                name: name.to_owned(),
                rules: tree.rules(effect),
            })
            .collect();
        let draft = PolicyDraft {
            head: self.head(name, format),
            sandboxes,
            everywhere: file_denials(&self.reads, &self.writes),
            settings: Some(SettingsDraft {
                comment: Vec::new(),
                default: if self.deny_by_default { Effect::Deny } else { Effect::Ask },
                sandbox: self.default_sandbox.clone(),
            }),
            policies,
            ..PolicyDraft::default()
        };
        Ok(ImportedPolicy {
            source: draft.text()?,
            not_expressed: self.not_expressed,
            narrowed: self.narrowed,
        })
    }

    /// The comment at the head: the file, and the report.
    fn head(&self, name: &str, format: ImportFormat) -> Vec<String> {
        let mut lines = vec![format!("Imported from {} ({}).", shown(name), format.describe())];
        let (restrictions, others): (Vec<&ReportEntry>, Vec<&ReportEntry>) =
            self.not_expressed.iter().partition(|entry| entry.restricts());
        let narrowed: Vec<&ReportEntry> = self.narrowed.iter().collect();
        for (title, entries) in [
            ("NOT ENFORCED: these restrictions could not be expressed.", restrictions),
            ("Left out:", others),
            ("Stricter than the original:", narrowed),
        ] {
            if !entries.is_empty() {
                lines.extend([String::new(), title.to_owned()]);
                lines.extend(entries.iter().map(|it| format!("  {}", shown(&it.to_string()))));
            }
        }
        lines
    }
}

/// The library's sandbox for an allowed command; `None` for other tools and programs.
fn toolchain_sandbox(path: &[KeyDraft]) -> Option<&'static str> {
    let [tool, program, rest @ ..] = path else { return None };
    let (tool, program) = (tool.as_text()?, program.as_text()?);
    let next = rest.first().and_then(KeyDraft::as_text);
    if tool == "Bash" { sandbox_of(program, next) } else { None }
}
