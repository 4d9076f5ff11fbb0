//! The rules, sandboxes and settings that the evaluation of a policy and of the files
//! it loads has collected so far.
#![expect(
    unsafe_code,
    reason = "Starlark's derive implements its unsafe marker trait; none is written by hand"
)]
#![expect(unused_qualifications, reason = "likewise in derived code")]

use std::cell::RefCell;
use std::sync::Arc;

use clash_policy::rule::{LayerGroup, LayerSettings, MatchBranch, PolicyRule, SandboxGrant};
use clash_policy::{FsRule, PolicySpan};
use starlark::eval::Evaluator;
use starlark::values::ProvidesStaticType;

use crate::diagnostic::PolicyWarning;
use crate::draft::SandboxDraft;
use crate::expect::Expectation;
use crate::language_error::{LanguageError, LanguageResult};
use crate::merge;
use crate::value::SandboxUse;
use clash_policy::nearest::nearest;

/// What the builders have recorded so far. One value serves a policy file, the files it
/// loads and its imports.
#[derive(Debug, Default, ProvidesStaticType)]
pub(crate) struct CollectedPolicy {
    /// The `when()` calls, as one tree.
    pub(crate) when: RefCell<LayerGroup>,
    pub(crate) policies: RefCell<Vec<LayerGroup>>,
    pub(crate) settings: RefCell<LayerSettings>,
    /// The file rules of `everywhere()`.
    pub(crate) everywhere: RefCell<Vec<FsRule>>,
    /// The rights of `grant()`.
    pub(crate) grants: RefCell<Vec<SandboxGrant>>,
    /// The default of trees and policies. It comes before the one of `settings()`.
    tree_default: RefCell<Option<PolicyRule>>,
    pub(crate) settings_at: RefCell<Option<PolicySpan>>,
    sandboxes: RefCell<Vec<Arc<SandboxDraft>>>,
    uses: RefCell<Vec<(SandboxUse, PolicySpan)>>,
    bases: RefCell<Vec<String>>,
    /// The files that have given rules.
    heard: RefCell<Vec<String>>,
    pub(crate) imports: RefCell<Vec<SettingsImport>>,
    pub(crate) expectations: RefCell<Vec<Expectation>>,
    pub(crate) warnings: RefCell<Vec<PolicyWarning>>,
}

/// A call of `from_claude_settings()`.
#[derive(Debug)]
pub(crate) struct SettingsImport {
    pub(crate) user: bool,
    pub(crate) project: bool,
}

/// The rules and settings from before an import, while the import is evaluated.
pub(crate) struct SuspendedRules {
    when: LayerGroup,
    settings: LayerSettings,
    tree_default: Option<PolicyRule>,
    settings_at: Option<PolicySpan>,
}

impl CollectedPolicy {
    /// The policy that the running evaluation belongs to.
    pub(crate) fn from_evaluator<'a>(eval: &Evaluator<'_, 'a, '_>) -> LanguageResult<&'a Self> {
        eval.extra
            .and_then(|extra| extra.downcast_ref::<Self>())
            .ok_or_else(|| LanguageError::new("only a policy can call this"))
    }

    pub(crate) fn warn(&self, warning: PolicyWarning) {
        self.warnings.borrow_mut().push(warning);
    }

    /// Records a new sandbox. A second one of the same name is an error.
    pub(crate) fn define(&self, draft: &Arc<SandboxDraft>) -> LanguageResult<()> {
        let mut known = self.sandboxes.borrow_mut();
        let name = &draft.sandbox.name;
        if let Some(first) = known.iter().find(|s| s.sandbox.name == *name) {
            return Err(LanguageError::new(format!("sandbox `{name}` is defined twice"))
                .hint(format!("it was first defined at {}", first.sandbox.span)));
        }
        known.push(draft.clone());
        Ok(())
    }

    /// Replaces the sandbox of the same name, after `update()`.
    pub(crate) fn redefine(&self, draft: &Arc<SandboxDraft>) {
        let mut known = self.sandboxes.borrow_mut();
        known.retain(|other| other.sandbox.name != draft.sandbox.name);
        known.push(draft.clone());
    }

    /// Records that a rule uses a sandbox, and returns the sandbox's name.
    pub(crate) fn using(&self, sandbox: &SandboxUse, span: &PolicySpan) -> String {
        self.uses.borrow_mut().push((sandbox.clone(), span.clone()));
        sandbox.name().to_owned()
    }

    /// Records that another sandbox is made from this one.
    pub(crate) fn building_on(&self, sandbox: &Arc<SandboxDraft>) {
        self.bases.borrow_mut().push(sandbox.sandbox.name.clone());
    }

    /// Records that rights are added to the sandbox of this name.
    pub(crate) fn building_on_name(&self, name: &str) {
        self.bases.borrow_mut().push(name.to_owned());
    }

    /// The sandboxes that a rule or another sandbox uses. A file without rules is a
    /// library for other files, so all of its sandboxes count.
    pub(crate) fn used(&self, file: &str) -> Vec<String> {
        let rules = self.uses.borrow();
        let named = rules.iter().map(|(sandbox, _)| sandbox.name().to_owned());
        let known = self.sandboxes.borrow();
        let silent = !self.heard_from(file) && self.settings_at.borrow().is_none();
        let all = known.iter().filter(|_| silent).map(|s| s.sandbox.name.clone());
        named.chain(self.bases.borrow().iter().cloned()).chain(all).collect()
    }

    /// Records the default of a tree or policy. Of several defaults the strictest counts.
    pub(crate) fn fall_back_to(&self, rule: PolicyRule) {
        let mut known = self.tree_default.borrow_mut();
        if known.as_ref().is_none_or(|known| rule.effect > known.effect) {
            *known = Some(rule);
        }
    }

    /// Takes the settings out. The default of a tree comes before the one of `settings()`.
    pub(crate) fn settings(&self) -> LayerSettings {
        let settings = self.settings.take();
        LayerSettings {
            default: self.tree_default.take().or(settings.default),
            everywhere: self.everywhere.take(),
            grants: self.grants.take(),
            ..settings
        }
    }

    /// Merges branches into the one tree of the `when()` calls, with a warning where two
    /// rules differ.
    pub(crate) fn add_when(&self, branches: Vec<MatchBranch>) {
        let known = std::mem::take(&mut self.when.borrow_mut().branches);
        let merged = merge::branches(known, branches, &|warning| self.warn(warning));
        self.when.borrow_mut().branches = merged;
    }

    /// Records that the file of this place has given rules.
    pub(crate) fn hear(&self, span: &PolicySpan) {
        self.heard.borrow_mut().push(span.file.clone());
    }

    /// True if a file has given rules.
    pub(crate) fn heard_from(&self, file: &str) -> bool {
        self.heard.borrow().iter().any(|known| known == file)
    }

    /// Takes the rules and settings out, so that an import begins with none.
    /// [`Self::close_import`] puts them back.
    pub(crate) fn set_aside(&self) -> SuspendedRules {
        SuspendedRules {
            when: self.when.take(),
            settings: self.settings.take(),
            tree_default: self.tree_default.take(),
            settings_at: self.settings_at.take(),
        }
    }

    /// Makes the `when()` rules of an import a policy of their own, and puts the rules and
    /// settings from before it back. The settings of the import do not count.
    pub(crate) fn close_import(&self, origin: &str, before: SuspendedRules) {
        let rules = self.when.replace(before.when);
        if !rules.branches.is_empty() {
            self.policies.borrow_mut().push(LayerGroup { name: origin.to_owned(), ..rules });
        }
        self.settings.replace(before.settings);
        self.tree_default.replace(before.tree_default);
        self.settings_at.replace(before.settings_at);
    }

    /// Takes all rules out: the tree of the `when()` calls first, unless it is empty, then
    /// each policy of its own.
    pub(crate) fn groups(&self) -> Vec<LayerGroup> {
        let when = self.when.take();
        let mut groups = self.policies.take();
        if !when.branches.is_empty() {
            groups.insert(0, when);
        }
        groups
    }

    /// The sandboxes of the layer. Fails if a rule uses a sandbox that is not defined,
    /// or one that `update()` has changed since.
    pub(crate) fn sandboxes(&self) -> LanguageResult<Vec<clash_policy::Sandbox>> {
        let known = self.sandboxes.borrow();
        for (used, span) in self.uses.borrow().iter() {
            let name = used.name();
            let defined = known.iter().find(|draft| draft.sandbox.name == name);
            let same = match (used, defined) {
                (_, None) => {
                    let names = known.iter().map(|draft| draft.sandbox.name.as_str());
                    let hint = match nearest(name, names) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => format!(
                            "load(\"@clash//sandboxes.star\", \"{name}\") or {name} = sandbox(…)"
                        ),
                    };
                    return Err(LanguageError::new(format!("there is no sandbox `{name}`"))
                        .hint(hint)
                        .at(span));
                }
                (SandboxUse::Named(_), Some(_)) => true,
                (SandboxUse::Value(used), Some(defined)) => Arc::ptr_eq(used, defined),
            };
            if !same {
                return Err(LanguageError::new(format!(
                    "update() changed sandbox `{name}` after this rule used it"
                ))
                .hint("use the sandbox that update() returns everywhere, or give it a new name")
                .at(span));
            }
        }
        Ok(known.iter().map(|draft| draft.sandbox.clone()).collect())
    }
}
