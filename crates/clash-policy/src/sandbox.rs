//! A Sandbox: the named, host-independent declaration of the files, hosts and resources
//! that a command may use. Paths keep their variables (`$PWD`, `$HOME`);
//! [`crate::path::PolicyPlaces`] fills them in when a sandbox is judged or planned.

use crate::effect::{Effect, FileCaps};
use crate::net::NetworkAccess;
use crate::regex::PolicyRegex;
use crate::span::PolicySpan;

/// The rights of a command, as one `sandbox()` of a policy declares them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    pub name: String,
    /// No confinement at all: the sandbox `unrestricted`, which a rule has to name.
    pub unrestricted: bool,
    /// The effect for a path that no key of `fs` matches. The system baseline stays
    /// readable even with `deny`.
    pub default: Effect,
    pub fs: Vec<FsRule>,
    pub net: NetworkAccess,
    /// Ports of the room that the host may connect to.
    pub serve: Vec<u16>,
    pub env: Vec<EnvRule>,
    pub limits: ResourceLimits,
    /// The fate of processes that the command leaves running. `None` is `Detached`.
    pub lifetime: Option<ProcessLifetime>,
    pub protect: ProtectSettings,
    /// Programs that run in the sandboxes of their own rules when a command of this sandbox
    /// starts them. The default sandbox of a policy opens all.
    pub doors: Vec<String>,
    pub doc: String,
    pub span: PolicySpan,
}

impl Sandbox {
    /// A sandbox that grants nothing.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            unrestricted: false,
            default: Effect::Deny,
            fs: Vec::new(),
            net: NetworkAccess::Deny,
            serve: Vec::new(),
            env: Vec::new(),
            limits: ResourceLimits::default(),
            lifetime: None,
            protect: ProtectSettings::default(),
            doors: Vec::new(),
            doc: String::new(),
            span: PolicySpan::default(),
        }
    }

    /// Drops each mask over a file that another rule allows to read by the same path:
    /// `allow("r")` for the file itself gives the real one.
    pub fn lift_masks(&mut self) {
        let named = |rule: &FsRule| match &rule.pattern {
            PathPattern::Literal(path) | PathPattern::Subpath { path, .. } => Some(path.clone()),
            _ => None,
        };
        let gives =
            |rule: &&FsRule| rule.effect == Effect::Allow && rule.caps.contains(FileCaps::READ);
        let given: Vec<String> = self.fs.iter().filter(gives).filter_map(named).collect();
        self.fs.retain(|rule| {
            rule.writes != WriteTarget::Masked || named(rule).is_none_or(|it| !given.contains(&it))
        });
    }
}

/// One line of a sandbox's `fs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsRule {
    pub pattern: PathPattern,
    pub effect: Effect,
    pub caps: FileCaps,
    pub writes: WriteTarget,
    pub span: PolicySpan,
}

impl FsRule {
    /// The effect as a policy writes it.
    pub fn word(&self) -> &'static str {
        match self.writes {
            WriteTarget::InPlace => self.effect.word(),
            WriteTarget::Session => "cow",
            WriteTarget::Project => "cache",
            WriteTarget::Masked => "masked",
        }
    }
}

/// The target of writes below a file rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteTarget {
    /// In the files that the rule names.
    #[default]
    InPlace,
    /// `cow()`: in an overlay of the session.
    Session,
    /// `cache()`: in a cache of the project. Commands read the files that the rule
    /// names and the files that earlier commands of the same project wrote.
    Project,
    /// `masked()`: nowhere. The rule denies the file, and a command reads a copy without its
    /// secrets instead ([`crate::mask`]). So every reader of rules that does not know masks
    /// refuses the file.
    Masked,
}

/// The paths of a file rule, as written: variables are not expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathPattern {
    /// The path and everything below it.
    Subpath { path: String, follow_worktrees: bool },
    /// Exactly this path.
    Literal(String),
    /// The direct children of this directory.
    Children(String),
    /// A glob for the path below a fixed prefix, also for files created later.
    Glob { prefix: String, pattern: String },
    /// As `Glob`, but with a regular expression.
    Regex { prefix: String, regex: PolicyRegex },
}

impl PathPattern {
    /// The fixed part of the path, before any wildcard.
    pub fn fixed(&self) -> &str {
        match self {
            Self::Subpath { path, .. } | Self::Literal(path) | Self::Children(path) => path,
            Self::Glob { prefix, .. } | Self::Regex { prefix, .. } => prefix,
        }
    }

    /// The same pattern with another fixed part.
    pub fn at(&self, fixed: &str) -> Self {
        let mut pattern = self.clone();
        match &mut pattern {
            Self::Subpath { path, .. } | Self::Literal(path) | Self::Children(path) => path,
            Self::Glob { prefix, .. } | Self::Regex { prefix, .. } => prefix,
        }
        .replace_range(.., fixed);
        pattern
    }
}

impl std::fmt::Display for PathPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The root already ends in a slash.
        let base = |path: &str| if path == "/" { String::new() } else { path.to_owned() };
        match self {
            Self::Subpath { path, .. } => write!(f, "{}/**", base(path)),
            Self::Literal(path) => write!(f, "{path}"),
            Self::Children(path) => write!(f, "{}/*", base(path)),
            Self::Glob { prefix, pattern } => write!(f, "{}/{pattern}", base(prefix)),
            Self::Regex { prefix, regex } => write!(f, "{}/{regex}", base(prefix)),
        }
    }
}

/// One line of a sandbox's `env`: the name of a variable, in which `*` stands for any
/// run of characters. The longest matching name wins, and overrides the built-in list
/// of secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvRule {
    pub name: String,
    pub effect: Effect,
    pub span: PolicySpan,
}

/// The resources that a room may use; `None` if the policy sets no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceLimits {
    pub memory_bytes: Option<u64>,
    pub processes: Option<u64>,
    pub cpu_seconds: Option<u64>,
    pub wall_seconds: Option<u64>,
    pub file_size_bytes: Option<u64>,
    /// New names of files; [`ResourceLimits::UNLIMITED`] removes the standard limit.
    pub files: Option<u64>,
}

impl ResourceLimits {
    /// Far more than any known build or installation creates.
    pub const STANDARD_FILES: u64 = 1_000_000;
    pub const UNLIMITED: u64 = u64::MAX;

    /// The number of names that a room may create; `None` for any number.
    pub fn most_files(&self) -> Option<u64> {
        let most = self.files.unwrap_or(Self::STANDARD_FILES);
        (most != Self::UNLIMITED).then_some(most)
    }

    /// A limit as a policy writes it.
    pub fn shown(limit: u64) -> String {
        if limit == Self::UNLIMITED { "unlimited".to_owned() } else { limit.to_string() }
    }

    /// The limits by the names a policy gives them.
    pub fn named(&self) -> [(&'static str, Option<u64>); 6] {
        [
            ("memory", self.memory_bytes),
            ("processes", self.processes),
            ("cpu", self.cpu_seconds),
            ("wall", self.wall_seconds),
            ("file_size", self.file_size_bytes),
            ("files", self.files),
        ]
    }

    pub fn is_empty(&self) -> bool {
        self.named().iter().all(|(_, limit)| limit.is_none())
    }
}

/// The lifetime of the processes of a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessLifetime {
    /// Until the command ends: `detach = False`.
    Action,
    /// Until they end or are stopped, still confined: `detach = True`, the default.
    Detached,
}

impl ProcessLifetime {
    pub const ALL: [Self; 2] = [Self::Action, Self::Detached];

    /// As a policy writes it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Action => "action",
            Self::Detached => "detached",
        }
    }
}

/// The persistence paths that stay read-only inside writable trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtectSettings {
    /// The built-in list, `protect = True`.
    pub standard: bool,
    /// Further paths or patterns, relative to a writable tree.
    pub also: Vec<String>,
    /// Entries removed from the built-in list.
    pub except: Vec<String>,
}

impl Default for ProtectSettings {
    fn default() -> Self {
        Self { standard: true, also: Vec::new(), except: Vec::new() }
    }
}
