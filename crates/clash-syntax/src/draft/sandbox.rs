//! Sandboxes of a draft.

use std::fmt::Write;

use clash_policy::Effect;

use super::key::localhost;
use super::quote::comment;
use super::{KeyDraft, string_literal};

/// A sandbox that a policy defines: `name = sandbox(…)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxDraft {
    pub comment: Vec<String>,
    /// The name of the sandbox, and of the variable that holds it.
    pub name: String,
    pub doc: String,
    pub base: SandboxBase,
    pub fs: Vec<FileRuleDraft>,
    pub net: Option<NetDraft>,
    pub env: Vec<EnvRuleDraft>,
}

/// The rights that a sandbox starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxBase {
    /// The rights of another sandbox.
    Extends(String),
    /// The effect for paths that no rule names.
    Default(Effect),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRuleDraft {
    pub comment: Vec<String>,
    pub key: KeyDraft,
    pub effect: FileEffect,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileEffect {
    /// An effect on capabilities such as `rx`; an empty string stands for all.
    Caps(Effect, String),
    /// `allow(RO)`
    ReadOnly,
    /// `cache()`
    Cache,
}

/// The network of a sandbox, and a comment above it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetDraft {
    pub comment: Vec<String>,
    pub rules: NetRules,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetRules {
    /// The same effect for every host.
    Every(Effect),
    /// Ports of this machine.
    Localhost(Vec<u16>),
    Hosts {
        rules: Vec<HostRuleDraft>,
        default: Effect,
    },
    /// The hosts of a list with a name of its own, which stands above the sandbox. Other
    /// hosts are asked about.
    Listed(HostListDraft),
}

/// `name = ["docs.rs", …]`: hosts that a user can edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostListDraft {
    pub comment: Vec<String>,
    pub name: String,
    pub hosts: Vec<KeyDraft>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRuleDraft {
    pub comment: Vec<String>,
    pub key: KeyDraft,
    pub effect: Effect,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvRuleDraft {
    pub comment: Vec<String>,
    pub variable: String,
    pub effect: Effect,
}

impl SandboxDraft {
    /// A sandbox with nothing but a name and a base.
    pub fn new(name: impl Into<String>, base: SandboxBase) -> Self {
        Self {
            comment: Vec::new(),
            name: name.into(),
            doc: String::new(),
            base,
            fs: Vec::new(),
            net: None,
            env: Vec::new(),
        }
    }

    /// The formatted statement that defines the sandbox.
    pub fn source(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        crate::fmt::format(&out).unwrap_or(out)
    }

    /// Appends the sandbox before formatting. Empty parts are left out.
    pub(super) fn write(&self, out: &mut String) {
        if let Some(NetDraft { rules: NetRules::Listed(list), .. }) = &self.net {
            list.write(out);
        }
        comment(out, &self.comment, "");
        let _ = writeln!(out, "{} = sandbox(", self.name);
        let _ = writeln!(out, "    name = {},", string_literal(&self.name));
        if !self.doc.is_empty() {
            let _ = writeln!(out, "    doc = {},", string_literal(&self.doc));
        }
        let _ = match &self.base {
            SandboxBase::Extends(base) => writeln!(out, "    extends = {base},"),
            SandboxBase::Default(effect) => writeln!(out, "    default = {effect}(),"),
        };
        if !self.fs.is_empty() {
            let _ = writeln!(out, "    fs = {},", file_rules(&self.fs));
        }
        if let Some(net) = &self.net {
            comment(out, &net.comment, "    ");
            let _ = writeln!(out, "    net = {},", net.rules.source());
        }
        if !self.env.is_empty() {
            out.push_str("    env = {\n");
            for EnvRuleDraft { comment: why, variable, effect } in &self.env {
                comment(out, why, "        ");
                let _ = writeln!(out, "        {}: {effect}(),", string_literal(variable));
            }
            out.push_str("    },\n");
        }
        out.push_str(")\n");
    }
}

/// The dict of file rules. Without comments it is one line, which the formatter breaks
/// if it is too long.
pub(super) fn file_rules(rules: &[FileRuleDraft]) -> String {
    let entry = |rule: &FileRuleDraft| {
        format!("{}: {}", rule.key.source("default()"), rule.effect.source())
    };
    if rules.iter().all(|rule| rule.comment.is_empty()) {
        let entries: Vec<String> = rules.iter().map(entry).collect();
        return format!("{{{}}}", entries.join(", "));
    }
    let mut out = String::from("{\n");
    for rule in rules {
        comment(&mut out, &rule.comment, "        ");
        let _ = writeln!(out, "        {},", entry(rule));
    }
    out.push_str("    }");
    out
}

impl HostListDraft {
    /// Appends the list before formatting, one host a line.
    fn write(&self, out: &mut String) {
        comment(out, &self.comment, "");
        let _ = writeln!(out, "{} = [", self.name);
        for host in &self.hosts {
            let _ = writeln!(out, "    {},", host.source("default()"));
        }
        out.push_str("]\n\n");
    }
}

impl FileEffect {
    /// The effect as a policy writes it.
    fn source(&self) -> String {
        match self {
            Self::Caps(effect, caps) if caps.is_empty() => format!("{effect}()"),
            Self::Caps(effect, caps) => format!("{effect}({})", string_literal(caps)),
            Self::ReadOnly => "allow(RO)".to_owned(),
            Self::Cache => "cache()".to_owned(),
        }
    }
}

impl NetRules {
    /// The value of `net` as a policy writes it.
    pub fn source(&self) -> String {
        let (rules, default) = match self {
            Self::Every(effect) => return format!("{effect}()"),
            Self::Localhost(ports) => return localhost(ports),
            Self::Hosts { rules, default } => (rules, default),
            Self::Listed(list) => return format!("{} + [{{default(): ask()}}]", list.name),
        };
        let mut out = String::from("{\n");
        for HostRuleDraft { comment: why, key, effect } in rules {
            comment(&mut out, why, "        ");
            let _ = writeln!(out, "        {}: {effect}(),", key.source("default()"));
        }
        let _ = write!(out, "        default(): {default}(),\n    }}");
        out
    }
}
