//! The syntax tree. Nodes say where they stand in the source; whatever lies
//! between them is found in the tokens, so the tree loses nothing.
//!
//! Nothing is evaluated: [`Expr::literal`] reads values that are written out and
//! gives up on everything else.

use crate::error::{SyntaxError, position};
use crate::lex::{Span, Token, lex};
use crate::parse::parse;

/// A parsed file.
#[derive(Debug, Clone)]
pub struct File {
    source: String,
    tokens: Vec<Token>,
    statements: Vec<Statement>,
}

impl File {
    pub fn parse(source: &str) -> Result<Self, SyntaxError> {
        let tokens = lex(source).map_err(|fault| fault.locate(source))?;
        let statements = parse(source, &tokens).map_err(|fault| fault.locate(source))?;
        Ok(Self { source: source.to_owned(), tokens, statements })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// Every token, spaces and comments included: together they are the source.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    pub fn statements(&self) -> &[Statement] {
        &self.statements
    }

    pub fn text(&self, span: Span) -> &str {
        span.of(&self.source)
    }

    /// Line and column of a byte offset, both from one.
    pub fn position(&self, at: usize) -> (usize, usize) {
        position(&self.source, at)
    }

    /// The calls that stand alone as statements at the top level, in order.
    pub fn calls(&self) -> impl Iterator<Item = (&Statement, &Call)> {
        self.statements.iter().filter_map(|statement| match &statement.kind {
            StatementKind::Expr(Expr { kind: ExprKind::Call(call), .. }) => Some((statement, call)),
            _ => None,
        })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    pub kind: StatementKind,
    pub span: Span,
    /// A semicolon follows, and maybe another statement on the same line.
    pub semicolon: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum StatementKind {
    Expr(Expr),
    Assign {
        target: Expr,
        operator: Span,
        value: Expr,
    },
    Load(Load),
    Def {
        name: Name,
        params: Vec<Param>,
        brackets: Brackets,
        body: Vec<Statement>,
    },
    /// `if`, then every `elif`; a branch without condition is the `else`.
    If(Vec<Branch>),
    For {
        target: Expr,
        iterable: Expr,
        body: Vec<Statement>,
    },
    Return(Option<Expr>),
    Break,
    Continue,
    Pass,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Branch {
    /// The word `if`, `elif` or `else`.
    pub keyword: Span,
    pub condition: Option<Expr>,
    pub body: Vec<Statement>,
}

/// `load("module", "name", local = "name")`
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    pub module: Expr,
    pub symbols: Vec<Symbol>,
    pub brackets: Brackets,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Symbol {
    /// What the name is called in this file, if that is written.
    pub local: Option<Name>,
    pub name: Expr,
    pub span: Span,
}

impl Symbol {
    /// The name this file binds.
    pub fn bound(&self) -> Option<&str> {
        match &self.local {
            Some(local) => Some(&local.text),
            None => self.name.string(),
        }
    }
}

impl Load {
    pub fn path(&self) -> Option<&str> {
        self.module.string()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    pub text: String,
    pub span: Span,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Param {
    pub kind: ParamKind,
    pub name: Option<Name>,
    pub default: Option<Expr>,
    pub span: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamKind {
    Plain,
    Star,
    DoubleStar,
}

/// What lies between an opening and its closing bracket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Brackets {
    pub inner: Span,
    /// Whether the last item is followed by a comma.
    pub trailing_comma: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    pub kind: ExprKind,
    pub span: Span,
    /// Levels of the tree below and including this node; bounded, so that
    /// walking and dropping it cannot exhaust the stack.
    pub(crate) height: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    Name(String),
    Number,
    /// What a plain or raw string says; nothing for format and byte strings.
    String(Option<String>),
    List(Vec<Expr>, Brackets),
    /// Without brackets where Starlark allows a bare `a, b`.
    Tuple(Vec<Expr>, Option<Brackets>),
    Paren(Box<Expr>),
    Dict(Vec<Entry>, Brackets),
    Comprehension {
        element: Box<Element>,
        clauses: Vec<Clause>,
    },
    Call(Call),
    Dot {
        object: Box<Expr>,
        name: Name,
    },
    Index {
        object: Box<Expr>,
        index: Box<Expr>,
    },
    Slice {
        object: Box<Expr>,
        bounds: Vec<Option<Expr>>,
    },
    Unary {
        operator: Span,
        operand: Box<Expr>,
    },
    Binary {
        left: Box<Expr>,
        operator: Span,
        right: Box<Expr>,
    },
    Conditional {
        value: Box<Expr>,
        condition: Box<Expr>,
        otherwise: Box<Expr>,
    },
    Lambda {
        params: Vec<Param>,
        body: Box<Expr>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub key: Expr,
    pub value: Expr,
    pub span: Span,
}

/// What a comprehension collects: values in a list or entries in a dict.
#[derive(Debug, Clone, PartialEq)]
pub enum Element {
    Value(Expr),
    Entry(Entry),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Clause {
    For { target: Expr, iterable: Expr, span: Span },
    If { condition: Expr, span: Span },
}

impl Clause {
    pub fn span(&self) -> Span {
        match self {
            Self::For { span, .. } | Self::If { span, .. } => *span,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub callee: Box<Expr>,
    pub args: Vec<Arg>,
    pub brackets: Brackets,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Arg {
    pub kind: ArgKind,
    pub value: Expr,
    pub span: Span,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgKind {
    Positional,
    Named(Name),
    Star,
    DoubleStar,
}

impl Call {
    /// The name of the function, when it is called by a plain name.
    pub fn name(&self) -> Option<&str> {
        self.callee.name()
    }

    /// The value given as `name = value`.
    pub fn named(&self, name: &str) -> Option<&Expr> {
        self.args.iter().find_map(|arg| match &arg.kind {
            ArgKind::Named(given) if given.text == name => Some(&arg.value),
            _ => None,
        })
    }

    pub fn positional(&self) -> impl Iterator<Item = &Expr> {
        self.args.iter().filter(|arg| arg.kind == ArgKind::Positional).map(|arg| &arg.value)
    }
}

/// A value written out in the source.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    String(String),
    List(Vec<Literal>),
    Tuple(Vec<Literal>),
    Dict(Vec<(Literal, Literal)>),
}

impl Expr {
    pub fn name(&self) -> Option<&str> {
        match &self.kind {
            ExprKind::Name(name) => Some(name),
            _ => None,
        }
    }

    /// What a string literal says.
    pub fn string(&self) -> Option<&str> {
        match &self.kind {
            ExprKind::String(value) => value.as_deref(),
            ExprKind::Paren(inner) => inner.string(),
            _ => None,
        }
    }

    pub fn call(&self) -> Option<&Call> {
        match &self.kind {
            ExprKind::Call(call) => Some(call),
            _ => None,
        }
    }

    /// The value, if it is written out with nothing to evaluate.
    pub fn literal(&self, source: &str) -> Option<Literal> {
        let all = |items: &[Expr]| items.iter().map(|i| i.literal(source)).collect::<Option<_>>();
        match &self.kind {
            ExprKind::Name(name) => match name.as_str() {
                "None" => Some(Literal::None),
                "True" => Some(Literal::Bool(true)),
                "False" => Some(Literal::Bool(false)),
                _ => None,
            },
            ExprKind::Number => number(self.span.of(source)),
            ExprKind::String(value) => value.clone().map(Literal::String),
            ExprKind::List(items, _) => all(items).map(Literal::List),
            ExprKind::Tuple(items, _) => all(items).map(Literal::Tuple),
            ExprKind::Paren(inner) => inner.literal(source),
            ExprKind::Dict(entries, _) => entries
                .iter()
                .map(|entry| Some((entry.key.literal(source)?, entry.value.literal(source)?)))
                .collect::<Option<_>>()
                .map(Literal::Dict),
            ExprKind::Unary { operator, operand } => match (operator.of(source), &operand.kind) {
                ("-", ExprKind::Number) => match operand.literal(source)? {
                    Literal::Int(value) => value.checked_neg().map(Literal::Int),
                    Literal::Float(value) => Some(Literal::Float(-value)),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        }
    }

    /// The expressions directly below this one, in source order.
    pub fn children(&self) -> Vec<&Expr> {
        match &self.kind {
            ExprKind::Name(_) | ExprKind::Number | ExprKind::String(_) => Vec::new(),
            ExprKind::List(items, _) | ExprKind::Tuple(items, _) => items.iter().collect(),
            ExprKind::Paren(inner) => vec![inner],
            ExprKind::Dict(entries, _) => entries.iter().flat_map(|e| [&e.key, &e.value]).collect(),
            ExprKind::Comprehension { element, clauses } => {
                let mut below = match element.as_ref() {
                    Element::Value(value) => vec![value],
                    Element::Entry(entry) => vec![&entry.key, &entry.value],
                };
                for clause in clauses {
                    match clause {
                        Clause::For { target, iterable, .. } => below.extend([target, iterable]),
                        Clause::If { condition, .. } => below.push(condition),
                    }
                }
                below
            }
            ExprKind::Call(call) => [call.callee.as_ref()]
                .into_iter()
                .chain(call.args.iter().map(|a| &a.value))
                .collect(),
            ExprKind::Dot { object, .. } => vec![object],
            ExprKind::Index { object, index } => vec![object, index],
            ExprKind::Slice { object, bounds } => {
                [object.as_ref()].into_iter().chain(bounds.iter().flatten()).collect()
            }
            ExprKind::Unary { operand, .. } => vec![operand],
            ExprKind::Binary { left, right, .. } => vec![left, right],
            ExprKind::Conditional { value, condition, otherwise } => {
                vec![value, condition, otherwise]
            }
            ExprKind::Lambda { params, body } => {
                params.iter().filter_map(|p| p.default.as_ref()).chain([body.as_ref()]).collect()
            }
        }
    }
}

fn number(text: &str) -> Option<Literal> {
    let lower = text.to_ascii_lowercase();
    let radix = match lower.get(..2) {
        Some("0x") => 16,
        Some("0o") => 8,
        Some("0b") => 2,
        _ if lower.bytes().all(|b| b.is_ascii_digit()) => 10,
        _ => return lower.parse().ok().map(Literal::Float),
    };
    let digits = if radix == 10 { Some(lower.as_str()) } else { lower.get(2..) };
    i64::from_str_radix(digits?, radix).ok().map(Literal::Int)
}
