//! The syntax tree. Each node has its range in the source, and the tokens hold the text
//! between the nodes, so the tree loses nothing.
//!
//! Nothing is evaluated: [`Expression::literal`] reads values that are written out, and
//! returns `None` for all others.

use crate::error::{SyntaxError, position};
use crate::lex::{ByteSpan, SourceToken, lex};
use crate::parse::parse;

/// A parsed file.
#[derive(Debug, Clone)]
pub struct SyntaxTree {
    source: String,
    tokens: Vec<SourceToken>,
    statements: Vec<SourceStatement>,
}

impl SyntaxTree {
    /// Reads a whole file; the error is the first place that is not Starlark.
    pub fn parse(source: &str) -> Result<Self, SyntaxError> {
        let tokens = lex(source).map_err(|fault| fault.locate(source))?;
        let statements = parse(source, &tokens).map_err(|fault| fault.locate(source))?;
        Ok(Self { source: source.to_owned(), tokens, statements })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// Every token, with spaces and comments. Their texts in order are the source.
    pub fn tokens(&self) -> &[SourceToken] {
        &self.tokens
    }

    pub fn statements(&self) -> &[SourceStatement] {
        &self.statements
    }

    pub fn text(&self, span: ByteSpan) -> &str {
        span.text_in(&self.source)
    }

    /// Line and column of a byte offset, both from one.
    pub fn position(&self, at: usize) -> (usize, usize) {
        position(&self.source, at)
    }

    /// The calls that are statements of their own at the top level, in order.
    pub fn calls(&self) -> impl Iterator<Item = (&SourceStatement, &CallExpression)> {
        self.statements.iter().filter_map(|statement| match &statement.kind {
            StatementKind::Expr(Expression { kind: ExpressionKind::Call(call), .. }) => {
                Some((statement, call))
            }
            _ => None,
        })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct SourceStatement {
    pub kind: StatementKind,
    pub span: ByteSpan,
    /// A semicolon follows, and maybe another statement on the same line.
    pub semicolon: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum StatementKind {
    Expr(Expression),
    Assign {
        target: Expression,
        operator: ByteSpan,
        value: Expression,
    },
    Load(LoadStatement),
    Def {
        name: Identifier,
        params: Vec<FunctionParameter>,
        brackets: BracketRange,
        body: Vec<SourceStatement>,
    },
    /// `if`, then every `elif`; a branch without condition is the `else`.
    If(Vec<IfBranch>),
    For {
        target: Expression,
        iterable: Expression,
        body: Vec<SourceStatement>,
    },
    Return(Option<Expression>),
    Break,
    Continue,
    Pass,
}

#[derive(Debug, Clone, PartialEq)]
pub struct IfBranch {
    /// The word `if`, `elif` or `else`.
    pub keyword: ByteSpan,
    pub condition: Option<Expression>,
    pub body: Vec<SourceStatement>,
}

/// `load("module", "name", local = "name")`
#[derive(Debug, Clone, PartialEq)]
pub struct LoadStatement {
    pub module: Expression,
    pub symbols: Vec<LoadedSymbol>,
    pub brackets: BracketRange,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LoadedSymbol {
    /// The other name that this file gives it, if it does.
    pub local: Option<Identifier>,
    pub name: Expression,
    pub span: ByteSpan,
}

impl LoadedSymbol {
    /// The name this file binds; `None` if it is no plain string.
    pub fn bound(&self) -> Option<&str> {
        match &self.local {
            Some(local) => Some(&local.text),
            None => self.name.string(),
        }
    }
}

impl LoadStatement {
    /// The loaded module, if it is a plain string.
    pub fn path(&self) -> Option<&str> {
        self.module.string()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identifier {
    pub text: String,
    pub span: ByteSpan,
}

#[derive(Debug, Clone, PartialEq)]
pub struct FunctionParameter {
    pub kind: ParameterKind,
    pub name: Option<Identifier>,
    pub default: Option<Expression>,
    pub span: ByteSpan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterKind {
    Plain,
    Star,
    DoubleStar,
}

/// The range between an opening bracket and its closing bracket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BracketRange {
    pub inner: ByteSpan,
    /// True if a comma follows the last item.
    pub trailing_comma: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    pub kind: ExpressionKind,
    pub span: ByteSpan,
    /// Levels of the tree from this node down. The parser bounds them, so that walking
    /// and dropping the tree cannot exhaust the stack.
    pub(crate) height: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ExpressionKind {
    Name(String),
    Number,
    /// The value of a plain or raw string; `None` for format and byte strings.
    String(Option<String>),
    List(Vec<Expression>, BracketRange),
    /// Without brackets where Starlark allows a bare `a, b`.
    Tuple(Vec<Expression>, Option<BracketRange>),
    Paren(Box<Expression>),
    Dict(Vec<DictEntry>, BracketRange),
    Comprehension {
        element: Box<ComprehensionElement>,
        clauses: Vec<ComprehensionClause>,
    },
    Call(CallExpression),
    Dot {
        object: Box<Expression>,
        name: Identifier,
    },
    Index {
        object: Box<Expression>,
        index: Box<Expression>,
    },
    Slice {
        object: Box<Expression>,
        bounds: Vec<Option<Expression>>,
    },
    Unary {
        operator: ByteSpan,
        operand: Box<Expression>,
    },
    Binary {
        left: Box<Expression>,
        operator: ByteSpan,
        right: Box<Expression>,
    },
    Conditional {
        value: Box<Expression>,
        condition: Box<Expression>,
        otherwise: Box<Expression>,
    },
    Lambda {
        params: Vec<FunctionParameter>,
        body: Box<Expression>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct DictEntry {
    pub key: Expression,
    pub value: Expression,
    pub span: ByteSpan,
}

/// An element of a comprehension: a value of a list or an entry of a dict.
#[derive(Debug, Clone, PartialEq)]
pub enum ComprehensionElement {
    Value(Expression),
    Entry(DictEntry),
}

#[derive(Debug, Clone, PartialEq)]
pub enum ComprehensionClause {
    For { target: Expression, iterable: Expression, span: ByteSpan },
    If { condition: Expression, span: ByteSpan },
}

impl ComprehensionClause {
    pub fn span(&self) -> ByteSpan {
        match self {
            Self::For { span, .. } | Self::If { span, .. } => *span,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct CallExpression {
    pub callee: Box<Expression>,
    pub args: Vec<CallArgument>,
    pub brackets: BracketRange,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CallArgument {
    pub kind: ArgumentKind,
    pub value: Expression,
    pub span: ByteSpan,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgumentKind {
    Positional,
    Named(Identifier),
    Star,
    DoubleStar,
}

impl CallExpression {
    /// The name of the function, when it is called by a plain name.
    pub fn name(&self) -> Option<&str> {
        self.callee.name()
    }

    /// The value given as `name = value`.
    pub fn named(&self, name: &str) -> Option<&Expression> {
        self.args.iter().find_map(|arg| match &arg.kind {
            ArgumentKind::Named(given) if given.text == name => Some(&arg.value),
            _ => None,
        })
    }

    pub fn positional(&self) -> impl Iterator<Item = &Expression> {
        self.args.iter().filter(|arg| arg.kind == ArgumentKind::Positional).map(|arg| &arg.value)
    }
}

/// A value written out in the source.
#[derive(Debug, Clone, PartialEq)]
pub enum LiteralValue {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    String(String),
    List(Vec<LiteralValue>),
    Tuple(Vec<LiteralValue>),
    Dict(Vec<(LiteralValue, LiteralValue)>),
}

impl Expression {
    /// The name, if the expression is a plain name.
    pub fn name(&self) -> Option<&str> {
        match &self.kind {
            ExpressionKind::Name(name) => Some(name),
            _ => None,
        }
    }

    /// The value of a string literal, also in brackets.
    pub fn string(&self) -> Option<&str> {
        match &self.kind {
            ExpressionKind::String(value) => value.as_deref(),
            ExpressionKind::Paren(inner) => inner.string(),
            _ => None,
        }
    }

    pub fn call(&self) -> Option<&CallExpression> {
        match &self.kind {
            ExpressionKind::Call(call) => Some(call),
            _ => None,
        }
    }

    /// The value, if it is written out and nothing has to be evaluated. A number that does
    /// not fit in 64 bits has none.
    pub fn literal(&self, source: &str) -> Option<LiteralValue> {
        let all =
            |items: &[Expression]| items.iter().map(|i| i.literal(source)).collect::<Option<_>>();
        match &self.kind {
            ExpressionKind::Name(name) => match name.as_str() {
                "None" => Some(LiteralValue::None),
                "True" => Some(LiteralValue::Bool(true)),
                "False" => Some(LiteralValue::Bool(false)),
                _ => None,
            },
            ExpressionKind::Number => number(self.span.text_in(source)),
            ExpressionKind::String(value) => value.clone().map(LiteralValue::String),
            ExpressionKind::List(items, _) => all(items).map(LiteralValue::List),
            ExpressionKind::Tuple(items, _) => all(items).map(LiteralValue::Tuple),
            ExpressionKind::Paren(inner) => inner.literal(source),
            ExpressionKind::Dict(entries, _) => entries
                .iter()
                .map(|entry| Some((entry.key.literal(source)?, entry.value.literal(source)?)))
                .collect::<Option<_>>()
                .map(LiteralValue::Dict),
            ExpressionKind::Unary { operator, operand } => {
                match (operator.text_in(source), &operand.kind) {
                    ("-", ExpressionKind::Number) => match operand.literal(source)? {
                        LiteralValue::Int(value) => value.checked_neg().map(LiteralValue::Int),
                        LiteralValue::Float(value) => Some(LiteralValue::Float(-value)),
                        _ => None,
                    },
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The expressions directly below this one, in source order.
    pub fn children(&self) -> Vec<&Expression> {
        match &self.kind {
            ExpressionKind::Name(_) | ExpressionKind::Number | ExpressionKind::String(_) => {
                Vec::new()
            }
            ExpressionKind::List(items, _) | ExpressionKind::Tuple(items, _) => {
                items.iter().collect()
            }
            ExpressionKind::Paren(inner) => vec![inner],
            ExpressionKind::Dict(entries, _) => {
                entries.iter().flat_map(|e| [&e.key, &e.value]).collect()
            }
            ExpressionKind::Comprehension { element, clauses } => {
                let mut below = match element.as_ref() {
                    ComprehensionElement::Value(value) => vec![value],
                    ComprehensionElement::Entry(entry) => vec![&entry.key, &entry.value],
                };
                for clause in clauses {
                    match clause {
                        ComprehensionClause::For { target, iterable, .. } => {
                            below.extend([target, iterable])
                        }
                        ComprehensionClause::If { condition, .. } => below.push(condition),
                    }
                }
                below
            }
            ExpressionKind::Call(call) => [call.callee.as_ref()]
                .into_iter()
                .chain(call.args.iter().map(|a| &a.value))
                .collect(),
            ExpressionKind::Dot { object, .. } => vec![object],
            ExpressionKind::Index { object, index } => vec![object, index],
            ExpressionKind::Slice { object, bounds } => {
                [object.as_ref()].into_iter().chain(bounds.iter().flatten()).collect()
            }
            ExpressionKind::Unary { operand, .. } => vec![operand],
            ExpressionKind::Binary { left, right, .. } => vec![left, right],
            ExpressionKind::Conditional { value, condition, otherwise } => {
                vec![value, condition, otherwise]
            }
            ExpressionKind::Lambda { params, body } => {
                params.iter().filter_map(|p| p.default.as_ref()).chain([body.as_ref()]).collect()
            }
        }
    }
}

/// The value of a number; `None` if it does not fit.
fn number(text: &str) -> Option<LiteralValue> {
    let lower = text.to_ascii_lowercase();
    let radix = match lower.get(..2) {
        Some("0x") => 16,
        Some("0o") => 8,
        Some("0b") => 2,
        _ if lower.bytes().all(|b| b.is_ascii_digit()) => 10,
        _ => return lower.parse().ok().map(LiteralValue::Float),
    };
    let digits = if radix == 10 { Some(lower.as_str()) } else { lower.get(2..) };
    i64::from_str_radix(digits?, radix).ok().map(LiteralValue::Int)
}
