//! A script as bash reads it, before anything is expanded.

use std::cell::OnceCell;
use std::rc::Rc;

/// A text with its tree. Places in the tree count from the start of the text.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: Rc<str>,
    pub(super) list: List,
    /// Something in it means another thing to a plain POSIX shell.
    pub(super) bash_only: bool,
}

#[derive(Debug, Default)]
pub(super) struct List {
    pub(super) chains: Vec<Chain>,
}

impl List {
    /// The pipeline the list is, if it is no more than that.
    pub(super) fn only_pipeline(&self) -> Option<&Pipeline> {
        match self.chains.as_slice() {
            [Chain { links, .. }] => match links.as_slice() {
                [(_, pipeline)] => Some(pipeline),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Pipelines joined by `&&` and `||`.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) links: Vec<(Join, Pipeline)>,
    pub(super) background: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    First,
    And,
    Or,
}

#[derive(Debug, Default)]
pub(super) struct Pipeline {
    pub(super) nodes: Vec<Node>,
}

#[derive(Debug)]
pub(super) enum Node {
    Simple(Simple),
    Compound { kind: Compound, redirs: Vec<Redir>, start: usize, end: usize },
    Function { name: String, body: Rc<Node> },
    Coproc { name: String, body: Box<Node> },
}

#[derive(Debug, Default)]
pub(super) struct Simple {
    pub(super) assigns: Vec<Assign>,
    pub(super) words: Vec<Raw>,
    pub(super) redirs: Vec<Redir>,
    pub(super) start: usize,
    pub(super) end: usize,
}

#[derive(Debug)]
pub(super) enum Compound {
    Subshell(List),
    Group(List),
    If { arms: Vec<(List, List)>, otherwise: Option<List> },
    Loop { condition: List, body: List },
    For { name: String, words: Option<Vec<Raw>>, body: List },
    ArithFor { head: Vec<Part>, body: List },
    Case { word: Raw, arms: Vec<(Vec<Raw>, List)> },
    Test(Vec<Raw>),
    Arith(Vec<Part>),
}

#[derive(Debug)]
pub(super) struct Assign {
    pub(super) name: String,
    pub(super) subscript: Option<Vec<Part>>,
    pub(super) append: bool,
    pub(super) value: AssignValue,
}

#[derive(Debug)]
pub(super) enum AssignValue {
    Word(Raw),
    Array(Vec<Raw>),
}

#[derive(Debug)]
pub(super) struct Redir {
    pub(super) fd: Option<u32>,
    pub(super) kind: RedirKind,
    pub(super) target: Raw,
    /// The text of a here-document, filled in once its lines are reached.
    pub(super) body: Option<Rc<OnceCell<Vec<Part>>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedirKind {
    Read,
    Write,
    Append,
    Clobber,
    ReadWrite,
    /// `>&` and `<&`: a descriptor, or for `>&` maybe a file.
    DupOut,
    DupIn,
    HereDocument,
    HereString,
}

#[derive(Debug, Default)]
pub(super) struct Raw {
    pub(super) parts: Vec<Part>,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Raw {
    /// The word if nothing in it is quoted or expanded.
    pub(super) fn bare(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(super) enum Part {
    /// Unquoted: patterns, braces and a tilde in it mean something.
    Text(String),
    Quoted(String),
    Param {
        name: String,
        quoted: bool,
    },
    Expansion(Box<Expansion>),
    Command {
        body: Body,
        quoted: bool,
    },
    Process(List),
    Arith {
        parts: Vec<Part>,
    },
    /// `(…)` given to a declaration.
    Array(Vec<Raw>),
    /// `@(a|b)`: only what is expanded in it matters.
    Pattern(Vec<Part>),
}

#[derive(Debug)]
pub(super) enum Body {
    /// Parsed where it stands.
    Here(List),
    /// Between backticks, where backslashes had to be taken off first.
    Unescaped(Box<Script>),
}

/// `${…}` with anything but a name in it.
#[derive(Debug)]
pub(super) struct Expansion {
    pub(super) name: String,
    pub(super) quoted: bool,
    pub(super) subscript: Option<Vec<Part>>,
    pub(super) operation: Operation,
}

#[derive(Debug)]
pub(super) enum Operation {
    /// `${a[1]}`
    None,
    Length,
    /// `${!x}`: the value is a name, and may evaluate a subscript.
    Indirect,
    /// `${!x@}`, `${!x[@]}`: names and keys.
    Names,
    /// `-`, `:-`, `+`, `:+`, `?`, `:?`
    Default {
        test: u8,
        empty_too: bool,
        word: Vec<Part>,
    },
    /// `=`, `:=`
    Assign {
        word: Vec<Part>,
    },
    /// `#`, `%`, `/`, `^`, `,`
    Edit(Vec<Part>),
    /// `:offset:length`
    Slice(Vec<Part>),
    /// `@Q` and kin
    Transform(u8),
}
