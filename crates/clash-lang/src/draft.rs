//! A sandbox during the evaluation of a policy. It remembers which fields the policy has
//! set, because `extends` and `update()` fill in the others.

use clash_policy::{
    Effect, EnvRule, FsRule, NetworkAccess, PathPattern, ProtectSettings, ResourceLimits, Sandbox,
    WriteTarget,
};

/// A sandbox, and which of its fields the policy has set.
#[derive(Clone, Debug)]
pub(crate) struct SandboxDraft {
    pub(crate) sandbox: Sandbox,
    /// The fields that the policy has set.
    pub(crate) said: ExplicitFields,
}

/// True for each field that the policy has set. The other fields need no mark: unset they
/// are empty.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExplicitFields {
    pub(crate) default: bool,
    pub(crate) net: bool,
    pub(crate) protect: bool,
}

impl SandboxDraft {
    /// This sandbox with the fields that `over` has set on top. File rules, variables,
    /// ports and doors of both count; a rule of `over` about the same path or variable
    /// replaces the one of `self`. The name is that of `over`. The result is unrestricted
    /// if either is.
    pub(crate) fn overlaid(&self, over: &Self) -> Self {
        let (base, top) = (&self.sandbox, &over.sandbox);
        let pick = |said: bool| if said { top } else { base };
        let said = ExplicitFields {
            default: self.said.default || over.said.default,
            net: self.said.net || over.said.net,
            protect: self.said.protect || over.said.protect,
        };
        let default: Effect = pick(over.said.default).default;
        let net: NetworkAccess = pick(over.said.net).net.clone();
        let protect: ProtectSettings = pick(over.said.protect).protect.clone();
        let doc = if top.doc.is_empty() { base.doc.clone() } else { top.doc.clone() };
        let mut serve = base.serve.clone();
        serve.extend(top.serve.iter().filter(|port| !base.serve.contains(port)));
        let sandbox = Sandbox {
            name: top.name.clone(),
            unrestricted: base.unrestricted || top.unrestricted,
            default,
            fs: joined_fs(&base.fs, &top.fs),
            net,
            serve,
            env: joined_env(&base.env, &top.env),
            limits: joined_limits(base.limits, top.limits),
            lifetime: top.lifetime.or(base.lifetime),
            protect,
            doors: joined_names(&base.doors, &top.doors),
            doc,
            span: top.span.clone(),
        };
        Self { sandbox, said }
    }
}

/// A rule of `top` replaces one of `base` with the same paths and no further
/// capabilities.
fn joined_fs(base: &[FsRule], top: &[FsRule]) -> Vec<FsRule> {
    let replaced = |rule: &FsRule| {
        top.iter().any(|other| {
            let masks = other.writes == WriteTarget::Masked
                && other.pattern.fixed() == rule.pattern.fixed()
                && !matches!(rule.pattern, PathPattern::Glob { .. } | PathPattern::Regex { .. });
            masks || other.pattern == rule.pattern && other.caps.contains(rule.caps)
        })
    };
    base.iter().filter(|rule| !replaced(rule)).chain(top).cloned().collect()
}

/// The names of both, each once.
fn joined_names(base: &[String], top: &[String]) -> Vec<String> {
    base.iter().chain(top.iter().filter(|name| !base.contains(name))).cloned().collect()
}

/// The rules of both. A rule of `top` replaces one of `base` with the same name.
fn joined_env(base: &[EnvRule], top: &[EnvRule]) -> Vec<EnvRule> {
    let replaced = |rule: &EnvRule| top.iter().any(|other| other.name == rule.name);
    base.iter().filter(|rule| !replaced(rule)).chain(top).cloned().collect()
}

/// Each limit of `top`, or else of `base`.
fn joined_limits(base: ResourceLimits, top: ResourceLimits) -> ResourceLimits {
    ResourceLimits {
        memory_bytes: top.memory_bytes.or(base.memory_bytes),
        processes: top.processes.or(base.processes),
        cpu_seconds: top.cpu_seconds.or(base.cpu_seconds),
        wall_seconds: top.wall_seconds.or(base.wall_seconds),
        file_size_bytes: top.file_size_bytes.or(base.file_size_bytes),
        files: top.files.or(base.files),
    }
}
