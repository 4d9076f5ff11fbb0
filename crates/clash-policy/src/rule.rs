//! A policy as the compiler builds it: layers of match trees whose leaves are
//! rules. This is the owned form; decisions are made on its flat image in
//! [`crate::ir`].

use std::fmt;

use crate::effect::Effect;
use crate::net::{HostPattern, NetRule, NetworkAccess};
use crate::regex::PolicyRegex;
use crate::sandbox::{FsRule, PathPattern, Sandbox};
use crate::span::PolicySpan;

/// The origin of a policy, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LayerKind {
    Managed,
    Session,
    Project,
    User,
    BuiltIn,
}

impl LayerKind {
    pub const ALL: [Self; 5] =
        [Self::Managed, Self::Session, Self::Project, Self::User, Self::BuiltIn];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Managed => "managed",
            Self::Session => "session",
            Self::Project => "project",
            Self::User => "user",
            Self::BuiltIn => "built-in",
        }
    }
}

/// One compiled policy file with everything it loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    pub kind: LayerKind,
    /// The file, as shown to people.
    pub origin: String,
    /// Only a project layer can be untrusted: it arrived with the repository.
    /// Its allows count as ask and its sandboxes are not used.
    pub trusted: bool,
    pub settings: LayerSettings,
    /// Independent of each other: every group that matches counts, and the strictest
    /// holds.
    pub groups: Vec<LayerGroup>,
    pub sandboxes: Vec<Sandbox>,
}

/// All `when()` calls of a file together, or one `policy()` call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerGroup {
    /// Empty for the `when()` calls.
    pub name: String,
    pub doc: String,
    /// Keys about tools, modes and agents are independent of each other as well.
    pub branches: Vec<MatchBranch>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerSettings {
    /// The rule for actions that no rule of any layer matches.
    pub default: Option<PolicyRule>,
    /// The name of a sandbox of the same layer.
    pub default_sandbox: Option<String>,
    pub on_sandbox_violation: Option<OnViolation>,
    /// `Some(false)` switches the built-in layer's rules off.
    pub harness_defaults: Option<bool>,
    /// File rules of `everywhere()`. [`add_to_every_sandbox`] copies them into the
    /// sandboxes.
    pub everywhere: Vec<FsRule>,
    /// Rights of `grant()`. [`add_grants`] copies them into the sandboxes.
    pub grants: Vec<SandboxGrant>,
}

/// Rights that a policy adds to a sandbox, for example to one of the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxGrant {
    /// The name of the sandbox, in any layer.
    pub sandbox: String,
    pub fs: Vec<FsRule>,
    pub net: Vec<NetRule>,
    /// Entries that leave the list of persistence paths.
    pub unprotect: Vec<String>,
    pub span: PolicySpan,
}

/// Adds the rights of `grant()` to the sandboxes that they name, and returns the grants
/// that name no sandbox. A project's policy adds rights only to its own sandboxes, and no
/// other policy adds rights to those.
pub fn add_grants(layers: &mut [Layer]) -> Vec<SandboxGrant> {
    let mut unused = Vec::new();
    for from in 0..layers.len() {
        let Some(giver) = layers.get_mut(from) else { continue };
        let of_project = giver.kind == LayerKind::Project;
        for grant in std::mem::take(&mut giver.settings.grants) {
            let mut is_used = false;
            for (at, layer) in layers.iter_mut().enumerate() {
                let reaches =
                    if of_project { at == from } else { layer.kind != LayerKind::Project };
                let named = |sandbox: &&mut Sandbox| sandbox.name == grant.sandbox;
                for sandbox in layer.sandboxes.iter_mut().filter(named).filter(|_| reaches) {
                    is_used = true;
                    grant.add_to(sandbox);
                }
            }
            if !is_used {
                unused.push(grant);
            }
        }
    }
    unused
}

impl SandboxGrant {
    /// Adds these rights to a sandbox.
    pub fn add_to(&self, sandbox: &mut Sandbox) {
        sandbox.fs.extend(self.fs.iter().cloned());
        sandbox.lift_masks();
        sandbox.protect.except.extend(self.unprotect.iter().cloned());
        if self.net.is_empty() {
            return;
        }
        let (mut rules, default) = match std::mem::replace(&mut sandbox.net, NetworkAccess::Deny) {
            NetworkAccess::Allow => {
                sandbox.net = NetworkAccess::Allow;
                return;
            }
            NetworkAccess::Deny => (Vec::new(), Effect::Deny),
            NetworkAccess::Ask => (Vec::new(), Effect::Ask),
            NetworkAccess::Hosts { rules, default } => (rules, default),
        };
        rules.extend(self.net.iter().cloned());
        sandbox.net = NetworkAccess::Hosts { rules, default };
    }
}

/// Moves the file rules that a layer wants everywhere to the sandboxes of all layers,
/// except `unrestricted`. They only deny or ask, so an untrusted layer may have some too.
pub fn add_to_every_sandbox(layers: &mut [Layer]) {
    let rules: Vec<FsRule> = layers
        .iter_mut()
        .flat_map(|layer| std::mem::take(&mut layer.settings.everywhere))
        .collect();
    let confined = |sandbox: &&mut Sandbox| !sandbox.unrestricted;
    for sandbox in layers.iter_mut().flat_map(|layer| &mut layer.sandboxes).filter(confined) {
        sandbox.fs.extend(rules.iter().cloned());
    }
}

/// The advice to an agent whose command was blocked by the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnViolation {
    Stop,
    Workaround,
    Smart,
}

impl OnViolation {
    pub const ALL: [Self; 3] = [Self::Stop, Self::Workaround, Self::Smart];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Workaround => "workaround",
            Self::Smart => "smart",
        }
    }
}

/// One key of a match tree and the subtree below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchBranch {
    pub key: MatchKey,
    pub then: MatchNode,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatchNode {
    Rule(PolicyRule),
    Tree(Vec<MatchBranch>),
}

/// A leaf: it applies if all keys above it match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRule {
    pub effect: Effect,
    /// The name of a sandbox of the same layer; `None` for the default sandbox of the
    /// layer stack.
    pub sandbox: Option<String>,
    pub reason: Option<String>,
    pub span: PolicySpan,
}

/// The part of an action that a key is compared with, and the alternatives it accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchKey {
    pub subject: KeySubject,
    /// More than one only for a tuple key such as `("push", "fetch")`, which is less
    /// specific than a single literal.
    pub patterns: Vec<KeyPattern>,
}

/// The part of an action a key is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeySubject {
    Tool,
    Mode,
    Agent,
    /// The next significant word of a command.
    Word,
    /// An option anywhere among the remaining words of a command.
    Option,
    /// The end of a command: no word remains.
    End,
    /// The host of a fetched URL.
    Host,
    /// The path a file tool works on.
    Path,
    /// A field of any other tool's input, by its dotted name.
    Field,
    /// The value of the field above it.
    Value,
}

impl KeySubject {
    pub const ALL: [Self; 10] = [
        Self::Tool,
        Self::Mode,
        Self::Agent,
        Self::Word,
        Self::Option,
        Self::End,
        Self::Host,
        Self::Path,
        Self::Field,
        Self::Value,
    ];

    /// The subjects of keys at the root of a tree.
    pub const ROOT: [Self; 3] = [Self::Tool, Self::Mode, Self::Agent];
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPattern {
    /// A host literal covers subdomains, unless it starts with [`ONLY_HOST`].
    Literal(String),
    /// `*` stands for any run of characters, `?` for one.
    Glob(String),
    Regex(PolicyRegex),
    Path(PathPattern),
    Host(HostPattern),
    /// `glob("**")` and `default()`: any text, also none.
    Any,
}

/// Marks a literal host that does not cover its subdomains.
pub const ONLY_HOST: char = '=';

impl fmt::Display for KeyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(text) | Self::Glob(text) => f.write_str(text),
            Self::Regex(regex) => write!(f, "{regex}"),
            Self::Path(path) => write!(f, "{path}"),
            Self::Host(host) => write!(f, "{host}"),
            Self::Any => f.write_str("**"),
        }
    }
}
