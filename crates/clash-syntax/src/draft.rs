//! The one writer of policies. `clash init`, `clash learn`, `clash policy import` and
//! the rules learned from histories all fill a [`PolicyDraft`] or a [`SandboxDraft`].
//! Only this module turns them into Starlark text, in the style of [`crate::fmt`].
//!
//! Text from outside, for example a name in another tool's settings, goes through
//! [`string_literal`] or [`one_line`], so it can never become code.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use clash_policy::Effect;

use crate::error::SyntaxError;
use crate::fmt::format;
use crate::tree::{SourceStatement, StatementKind, SyntaxTree};

mod key;
mod library;
mod module;
mod quote;
mod rule;
mod sandbox;

pub use key::KeyDraft;
pub use library::{library_module, load_line};
pub use module::{MODULE_EXPORT, PolicyModule, load_module, make_module};
pub use quote::{one_line, string_literal};
pub use rule::{EffectDraft, RuleBody, RuleDraft, RuleGroup};
pub use sandbox::{
    EnvRuleDraft, FileEffect, FileRuleDraft, HostListDraft, HostRuleDraft, NetDraft, NetRules,
    SandboxBase, SandboxDraft,
};

/// A policy that is not text yet. Its parts are written in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyDraft {
    /// Lines of the comment at the head of the file.
    pub head: Vec<String>,
    pub sandboxes: Vec<SandboxDraft>,
    /// Rules about files that hold in every sandbox: `everywhere(fs = {…})`.
    pub everywhere: Vec<FileRuleDraft>,
    pub settings: Option<SettingsDraft>,
    /// Rules of the standard library that the policy takes over unchanged.
    pub library_rules: Vec<LibraryRules>,
    /// Rules about commands, below `"Bash"` of the `when(…)`.
    pub commands: Vec<RuleGroup>,
    /// Rules about other tools in the same `when(…)`; their keys begin with the tool.
    pub tools: Vec<RuleGroup>,
    /// Independent trees: `policy("name", {…})`.
    pub policies: Vec<NamedPolicy>,
    /// Commands with the effect that the compiler must find for them.
    pub expectations: Vec<(Effect, String)>,
}

/// `settings(default = …, default_sandbox = …)`, and the comment above it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsDraft {
    pub comment: Vec<String>,
    /// The effect where no rule matches.
    pub default: Effect,
    pub sandbox: Option<String>,
}

/// The rules of a library module under the module's own name: `when(files)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryRules {
    pub comment: Vec<String>,
    pub module: &'static str,
}

/// `policy("name", {…})`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPolicy {
    pub name: String,
    pub rules: Vec<RuleDraft>,
}

#[derive(Debug, thiserror::Error)]
pub enum DraftError {
    #[error("no module offers the sandbox `{0}`")]
    UnknownSandbox(String),
    #[error("the generated policy does not parse: {0}")]
    Syntax(#[from] SyntaxError),
}

impl PolicyDraft {
    /// The policy as formatted text. An error if a rule names a sandbox that neither the
    /// draft nor the library has.
    pub fn text(&self) -> Result<String, DraftError> {
        let mut out = String::new();
        quote::comment(&mut out, &self.head, "");
        if !self.head.is_empty() {
            out.push('\n');
        }
        out.push_str(&self.load_lines(&BTreeSet::new())?);
        out.push_str(&self.body());
        Ok(format(&out)?)
    }

    /// An existing policy with the rules of this draft at its end. Loads go behind the
    /// loads of the existing policy, except for names that it already binds.
    pub fn append_to(
        &self,
        existing: &str,
        bound: &BTreeSet<String>,
    ) -> Result<String, DraftError> {
        let file = SyntaxTree::parse(existing)?;
        let is_load = |it: &&SourceStatement| matches!(it.kind, StatementKind::Load(_));
        let end = file.statements().iter().filter(is_load).map(|it| it.span.end).max();
        let (before, after) = existing.split_at_checked(end.unwrap_or(0)).unwrap_or((existing, ""));
        let loads = self.load_lines(bound)?;
        let before = if before.is_empty() { loads } else { format!("{before}\n{loads}") };
        Ok(format(&format!("{before}\n{after}\n{}", self.body()))?)
    }

    /// The `load()` lines of the draft, without names in `bound`.
    fn load_lines(&self, bound: &BTreeSet<String>) -> Result<String, DraftError> {
        let mut out = String::new();
        for (module, names) in self.loads()? {
            let names: Vec<&str> =
                names.iter().filter(|it| !bound.contains(*it)).map(String::as_str).collect();
            if !names.is_empty() {
                let _ = writeln!(out, "{}", load_line(&module, &names));
            }
        }
        Ok(out)
    }

    /// Everything but the head and the loads, before formatting.
    fn body(&self) -> String {
        let mut out = String::new();
        for sandbox in &self.sandboxes {
            out.push('\n');
            sandbox.write(&mut out);
        }
        if !self.everywhere.is_empty() {
            let rules = sandbox::file_rules(&self.everywhere);
            let _ = write!(
                out,
                "\n# These hold in every sandbox.\neverywhere(\n    fs = {rules},\n)\n"
            );
        }
        if let Some(SettingsDraft { comment, default, sandbox }) = &self.settings {
            out.push('\n');
            quote::comment(&mut out, comment, "");
            let sandbox = sandbox.as_ref().map(|name| format!(", default_sandbox = {name}"));
            let sandbox = sandbox.unwrap_or_default();
            let _ = writeln!(out, "settings(default = {default}(){sandbox})");
        }
        for LibraryRules { comment, module } in &self.library_rules {
            out.push('\n');
            quote::comment(&mut out, comment, "");
            let _ = writeln!(out, "when({module})");
        }
        if !self.commands.is_empty() || !self.tools.is_empty() {
            out.push_str("\nwhen({\n");
            if !self.commands.is_empty() {
                out.push_str("    \"Bash\": {\n");
                rule::write_groups(&mut out, &self.commands, "        ", "glob(\"**\")");
                out.push_str("    },\n");
            }
            rule::write_groups(&mut out, &self.tools, "    ", "default()");
            out.push_str("})\n");
        }
        for NamedPolicy { name, rules } in &self.policies {
            let _ = writeln!(out, "\npolicy({}, {{", string_literal(name));
            rules.iter().for_each(|it| rule::write_rule(&mut out, it, "    ", "default()"));
            out.push_str("})\n");
        }
        for (at, (effect, command)) in self.expectations.iter().enumerate() {
            out.push_str(if at == 0 { "\n" } else { "" });
            let _ = writeln!(out, "expect({effect}, {})", string_literal(command));
        }
        out
    }

    /// The library modules that the draft needs, with the names from each. A sandbox that
    /// no module offers is an error.
    fn loads(&self) -> Result<BTreeMap<String, Vec<String>>, DraftError> {
        let mut named = BTreeSet::new();
        named.extend(self.settings.iter().filter_map(|settings| settings.sandbox.clone()));
        let groups = self.commands.iter().chain(&self.tools).flat_map(|group| &group.rules);
        let rules = groups.chain(self.policies.iter().flat_map(|policy| &policy.rules));
        rules.for_each(|it| rule::sandboxes_in(it, &mut named));
        for own in &self.sandboxes {
            named.remove(&own.name);
        }
        named.extend(self.sandboxes.iter().filter_map(|own| match &own.base {
            SandboxBase::Extends(base) => Some(base.clone()),
            SandboxBase::Default(_) => None,
        }));
        let mut loads: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for LibraryRules { module, .. } in &self.library_rules {
            loads.insert(format!("@clash//{module}.star"), vec![(*module).to_owned()]);
        }
        for name in named {
            let unknown = || DraftError::UnknownSandbox(name.clone());
            let module = library_module(&name).ok_or_else(unknown)?;
            loads.entry(module.to_owned()).or_default().push(name);
        }
        Ok(loads)
    }
}

impl SandboxDraft {
    /// The sandbox alone as formatted text, below these comment lines.
    pub fn text(&self, head: &[String]) -> Result<String, SyntaxError> {
        let mut out = String::new();
        quote::comment(&mut out, head, "");
        self.write(&mut out);
        format(&out)
    }
}
