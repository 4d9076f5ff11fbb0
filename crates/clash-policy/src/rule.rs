//! A policy as the compiler builds it: layers of match trees whose leaves are
//! rules. This is the owned form; decisions are made on its flat image in
//! [`crate::ir`].

use crate::effect::Effect;
use crate::sandbox::Sandbox;
use crate::span::Span;

/// Where a policy came from, in order of precedence.
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
    pub settings: Settings,
    /// Root branches: each that matches has its say, and the strictest holds.
    pub branches: Vec<Branch>,
    pub sandboxes: Vec<Sandbox>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub default: Option<(Effect, Span)>,
    /// The name of a sandbox of the same layer.
    pub default_sandbox: Option<String>,
}

/// One key of a match tree and what is below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    pub key: Key,
    pub then: Node,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    Rule(Rule),
    Tree(Vec<Branch>),
}

/// A leaf: what holds when the whole path of keys above it matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub effect: Effect,
    /// The name of a sandbox of the same layer; without one the layer stack's
    /// default sandbox is meant.
    pub sandbox: Option<String>,
    pub reason: Option<String>,
    pub span: Span,
}

/// What a key looks at, and the alternatives it accepts there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub subject: Subject,
    /// More than one only for a tuple key, which is less specific than a
    /// single literal.
    pub patterns: Vec<Pattern>,
}

/// The part of an action a key is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Tool,
    Mode,
    Agent,
    /// The next significant word of a command.
    Word,
    /// An option anywhere among the remaining words of a command.
    Option,
    /// The host of a fetched URL.
    Host,
}

impl Subject {
    pub const ALL: [Self; 6] =
        [Self::Tool, Self::Mode, Self::Agent, Self::Word, Self::Option, Self::Host];
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    Literal(String),
    /// `*` stands for any run of characters, `?` for one.
    Glob(String),
    /// `glob("**")` and `default()`: whatever is there, including nothing.
    Any,
}
