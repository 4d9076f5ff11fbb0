//! The syntax tree of a script, before any expansion.

use std::cell::OnceCell;
use std::rc::Rc;

/// A text with its tree. Positions in the tree count bytes from the start of the text.
#[derive(Debug)]
pub(super) struct ScriptTree {
    pub(super) text: Rc<str>,
    pub(super) list: CommandList,
    /// A plain POSIX shell reads a part of it differently.
    pub(super) bash_only: bool,
}

/// Commands separated by `;`, `&` or newlines; empty for an empty text.
#[derive(Debug, Default)]
pub(super) struct CommandList {
    pub(super) chains: Vec<AndOrList>,
}

impl CommandList {
    /// The pipeline, if the list is exactly one.
    pub(super) fn only_pipeline(&self) -> Option<&PipelineNode> {
        match self.chains.as_slice() {
            [AndOrList { links, .. }] => match links.as_slice() {
                [(_, pipeline)] => Some(pipeline),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Pipelines joined by `&&` and `||`, of which the first has the operator `First`.
#[derive(Debug)]
pub(super) struct AndOrList {
    pub(super) links: Vec<(ListOperator, PipelineNode)>,
    pub(super) background: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListOperator {
    First,
    And,
    Or,
}

/// Commands joined by `|`; none for `!` or `time` alone.
#[derive(Debug, Default)]
pub(super) struct PipelineNode {
    pub(super) nodes: Vec<ScriptNode>,
}

/// One command of a pipeline.
#[derive(Debug)]
pub(super) enum ScriptNode {
    Simple(SimpleCommand),
    Compound { kind: CompoundCommand, redirs: Vec<RedirNode>, start: usize, end: usize },
    Function { name: String, body: Rc<ScriptNode> },
    Coproc { name: String, body: Box<ScriptNode> },
}

/// Assignments, words and redirections. `start` and `end` are its place in the text.
#[derive(Debug, Default)]
pub(super) struct SimpleCommand {
    pub(super) assigns: Vec<AssignNode>,
    pub(super) words: Vec<RawWord>,
    pub(super) redirs: Vec<RedirNode>,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// A command with other commands in it. `Loop` is `while` and `until`; `For` is also
/// `select`, and without `words` it takes the positional parameters. `Test` is `[[ … ]]`,
/// `Arith` is `((…))`.
#[derive(Debug)]
pub(super) enum CompoundCommand {
    Subshell(CommandList),
    Group(CommandList),
    If { arms: Vec<(CommandList, CommandList)>, otherwise: Option<CommandList> },
    Loop { condition: CommandList, body: CommandList },
    For { name: String, words: Option<Vec<RawWord>>, body: CommandList },
    ArithFor { head: Vec<WordPart>, body: CommandList },
    Case { word: RawWord, arms: Vec<(Vec<RawWord>, CommandList)> },
    Test(Vec<RawWord>),
    Arith(Vec<WordPart>),
}

/// `name=value`, `name[subscript]=value`, or with `+=` if it appends.
#[derive(Debug)]
pub(super) struct AssignNode {
    pub(super) name: String,
    pub(super) subscript: Option<Vec<WordPart>>,
    pub(super) append: bool,
    pub(super) value: AssignedValue,
}

#[derive(Debug)]
pub(super) enum AssignedValue {
    Word(RawWord),
    Array(Vec<RawWord>),
}

/// A redirection as written. Without a number, `fd` is the descriptor that the operator
/// changes; `None` for `&>` and for a number that the shell chooses.
#[derive(Debug)]
pub(super) struct RedirNode {
    pub(super) fd: Option<u32>,
    pub(super) kind: RedirOperator,
    pub(super) target: RawWord,
    /// The text of a here-document, filled in once its lines are reached.
    pub(super) body: Option<Rc<OnceCell<Vec<WordPart>>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedirOperator {
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

/// A word before expansion, with its place in the text.
#[derive(Debug, Default)]
pub(super) struct RawWord {
    pub(super) parts: Vec<WordPart>,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl RawWord {
    /// The word if nothing in it is quoted or expanded.
    pub(super) fn bare(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [WordPart::Text(text)] => Some(text),
            _ => None,
        }
    }
}

/// A part of a word: text, quoted text, or an expansion.
#[derive(Debug)]
pub(super) enum WordPart {
    /// Unquoted: the shell expands patterns, braces and a tilde in it.
    Text(String),
    Quoted(String),
    Param {
        name: String,
        quoted: bool,
    },
    Expansion(Box<ParameterExpansion>),
    Command {
        body: SubstitutionBody,
        quoted: bool,
    },
    Process(CommandList),
    Arith {
        parts: Vec<WordPart>,
    },
    /// `(…)` given to a declaration.
    Array(Vec<RawWord>),
    /// `@(a|b)`: only the expansions in it matter.
    Pattern(Vec<WordPart>),
}

#[derive(Debug)]
pub(super) enum SubstitutionBody {
    /// `$(…)`, parsed in place.
    Here(CommandList),
    /// Between backticks: the parser removes backslashes first.
    Unescaped(Box<ScriptTree>),
}

/// `${…}` with more than a name in it.
#[derive(Debug)]
pub(super) struct ParameterExpansion {
    pub(super) name: String,
    pub(super) quoted: bool,
    pub(super) subscript: Option<Vec<WordPart>>,
    pub(super) operation: ExpansionOperation,
}

#[derive(Debug)]
pub(super) enum ExpansionOperation {
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
        word: Vec<WordPart>,
    },
    /// `=`, `:=`
    Assign {
        word: Vec<WordPart>,
    },
    /// `#`, `%`, `/`, `^`, `,`
    Edit(Vec<WordPart>),
    /// `:offset:length`
    Slice(Vec<WordPart>),
    /// `@Q` and kin
    Transform(u8),
}
