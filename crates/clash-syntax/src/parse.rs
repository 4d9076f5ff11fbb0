//! From tokens to a tree: recursive descent for statements, precedence climbing for
//! operators. The parser bounds its own depth and the height of the tree, so no text can
//! exhaust the stack of the parser or of code that walks the tree.
//!
//! A method is named after the part of the grammar that it reads. It begins at the current
//! token and leaves the parser behind that part.

use crate::error::{ParseError, UnlocatedError};
use crate::lex::{ByteSpan, SourceToken, TokenKind};
use crate::tree::{
    BracketRange, Expression, ExpressionKind, FunctionParameter, IfBranch, LoadStatement,
    LoadedSymbol, ParameterKind, SourceStatement, StatementKind,
};

mod expr;

/// Far more levels than a policy has, and far fewer than the stack of a thread holds.
pub const MAX_TREE_DEPTH: usize = 100;

type ParseResult<T> = Result<T, UnlocatedError>;

/// The statements of a file. The first token that does not fit is the error.
pub(crate) fn parse(source: &str, tokens: &[SourceToken]) -> ParseResult<Vec<SourceStatement>> {
    let tokens: Vec<SourceToken> = tokens.iter().filter(|t| !t.kind.is_trivia()).copied().collect();
    let mut parser = SourceParser { source, tokens, at: 0, depth: 0, end: 0 };
    let mut statements = Vec::new();
    while !parser.is(TokenKind::End) {
        parser.statement(&mut statements)?;
    }
    Ok(statements)
}

struct SourceParser<'a> {
    source: &'a str,
    tokens: Vec<SourceToken>,
    at: usize,
    depth: usize,
    /// The end of the last consumed token.
    end: usize,
}

const NO_TOKEN: SourceToken =
    SourceToken { kind: TokenKind::End, span: ByteSpan { start: 0, end: 0 } };

impl SourceParser<'_> {
    /// A token behind the current one; the last token if there are no more.
    fn ahead(&self, by: usize) -> SourceToken {
        let last = self.tokens.last().copied().unwrap_or(NO_TOKEN);
        self.tokens.get(self.at + by).copied().unwrap_or(last)
    }

    fn token(&self) -> SourceToken {
        self.ahead(0)
    }

    fn start(&self) -> usize {
        self.token().span.start
    }

    fn is(&self, kind: TokenKind) -> bool {
        self.token().kind == kind
    }

    /// True if a token is this mark or keyword.
    fn spelled(&self, token: SourceToken, text: &str) -> bool {
        matches!(token.kind, TokenKind::Mark | TokenKind::Keyword)
            && token.span.text_in(self.source) == text
    }

    fn sees(&self, text: &str) -> bool {
        self.spelled(self.token(), text)
    }

    fn sees_any(&self, texts: &[&str]) -> bool {
        texts.iter().any(|text| self.sees(text))
    }

    /// Takes the current token.
    fn bump(&mut self) -> ByteSpan {
        let span = self.token().span;
        self.at += 1;
        self.end = span.end;
        span
    }

    /// Takes the current token if it is this mark or keyword.
    fn take(&mut self, text: &str) -> Option<ByteSpan> {
        self.sees(text).then(|| self.bump())
    }

    /// As [`Self::take`]; an error if another token comes next.
    fn need(&mut self, text: &'static str, expected: &'static str) -> ParseResult<ByteSpan> {
        self.take(text).map_or_else(|| self.expected(expected), Ok)
    }

    /// The error for the current token.
    fn expected<T>(&self, expected: &'static str) -> ParseResult<T> {
        let token = self.token();
        let found = match token.kind {
            TokenKind::End => "the end of the file".to_owned(),
            TokenKind::Newline if token.span.start == self.source.len() => {
                "the end of the file".to_owned()
            }
            TokenKind::Newline => "the end of the line".to_owned(),
            TokenKind::Indent => "an indented line".to_owned(),
            TokenKind::Dedent => "the end of the block".to_owned(),
            _ => {
                let text = token.span.text_in(self.source);
                format!("`{}`", text.lines().next().unwrap_or_default())
            }
        };
        Err(UnlocatedError {
            at: token.span.start,
            problem: ParseError::Expected { expected, found },
        })
    }

    /// Reads one level deeper; an error beyond [`MAX_TREE_DEPTH`].
    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        if self.depth >= MAX_TREE_DEPTH {
            return Err(UnlocatedError {
                at: self.start(),
                problem: ParseError::TooDeep(MAX_TREE_DEPTH),
            });
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// A node from `start` to the last token. An error if the tree below is too high.
    fn node(&self, kind: ExpressionKind, start: usize) -> ParseResult<Expression> {
        let mut expr = Expression { kind, span: ByteSpan::new(start, self.end), height: 0 };
        expr.height = 1 + expr.children().iter().map(|child| child.height).max().unwrap_or(0);
        if expr.height > MAX_TREE_DEPTH {
            return Err(UnlocatedError { at: start, problem: ParseError::TooDeep(MAX_TREE_DEPTH) });
        }
        Ok(expr)
    }

    // Statements.

    /// Reads a block statement, or all statements of a line.
    fn statement(&mut self, into: &mut Vec<SourceStatement>) -> ParseResult<()> {
        let start = self.start();
        let kind = if self.sees("def") {
            self.def()?
        } else if self.sees("if") {
            self.branches()?
        } else if self.sees("for") {
            self.bump();
            let target = self.targets()?;
            self.need("in", "`in`")?;
            let iterable = self.expr_list()?;
            StatementKind::For { target, iterable, body: self.body()? }
        } else {
            return self.simple_line(into);
        };
        let end = last_end(&kind).unwrap_or(self.end);
        into.push(SourceStatement { kind, span: ByteSpan::new(start, end), semicolon: false });
        Ok(())
    }

    /// Reads statements without a block, separated by semicolons, up to the end of the
    /// line.
    fn simple_line(&mut self, into: &mut Vec<SourceStatement>) -> ParseResult<()> {
        loop {
            let start = self.start();
            let kind = self.simple()?;
            let span = ByteSpan::new(start, self.end);
            let semicolon = self.take(";").is_some();
            into.push(SourceStatement { kind, span, semicolon });
            if self.is(TokenKind::Newline) {
                self.bump();
                return Ok(());
            }
            if !semicolon {
                return self.expected("the end of the line");
            }
        }
    }

    /// A statement without a block: `return`, `pass`, a `load()`, an assignment or an
    /// expression.
    fn simple(&mut self) -> ParseResult<StatementKind> {
        if self.take("return").is_some() {
            let nothing = self.is(TokenKind::Newline) || self.sees(";");
            return Ok(StatementKind::Return(match nothing {
                true => None,
                false => Some(self.expr_list()?),
            }));
        }
        for (word, kind) in [
            ("break", StatementKind::Break),
            ("continue", StatementKind::Continue),
            ("pass", StatementKind::Pass),
        ] {
            if self.take(word).is_some() {
                return Ok(kind);
            }
        }
        let is_load = self.is(TokenKind::Name)
            && self.token().span.text_in(self.source) == "load"
            && self.spelled(self.ahead(1), "(");
        if is_load {
            return self.load();
        }
        let target = self.expr_list()?;
        let assigns = self
            .sees_any(&["=", "+=", "-=", "*=", "/=", "//=", "%=", "&=", "|=", "^=", "<<=", ">>="]);
        if assigns {
            let operator = self.bump();
            let value = self.expr_list()?;
            return Ok(StatementKind::Assign { target, operator, value });
        }
        Ok(StatementKind::Expr(target))
    }

    /// A `load()`: the module, then names, each perhaps bound to another.
    fn load(&mut self) -> ParseResult<StatementKind> {
        self.bump();
        self.bump();
        let inner = self.end;
        let module = self.string_literal()?;
        let mut symbols = Vec::new();
        let mut trailing_comma = self.take(",").is_some();
        while trailing_comma && !self.sees(")") {
            let start = self.start();
            let local = match self.is(TokenKind::Name) {
                true => {
                    let name = self.name()?;
                    self.need("=", "`=` and the name to load")?;
                    Some(name)
                }
                false => None,
            };
            let name = self.string_literal()?;
            symbols.push(LoadedSymbol { local, name, span: ByteSpan::new(start, self.end) });
            trailing_comma = self.take(",").is_some();
        }
        let inner = ByteSpan::new(inner, self.start());
        self.need(")", "`,` or `)`")?;
        Ok(StatementKind::Load(LoadStatement {
            module,
            symbols,
            brackets: BracketRange { inner, trailing_comma },
        }))
    }

    fn string_literal(&mut self) -> ParseResult<Expression> {
        if self.is(TokenKind::String) { self.atom() } else { self.expected("a string") }
    }

    /// A `def` with its parameters and body.
    fn def(&mut self) -> ParseResult<StatementKind> {
        self.bump();
        let name = self.name()?;
        self.need("(", "`(`")?;
        let inner = self.end;
        let (params, trailing_comma) = self.params(")")?;
        let inner = ByteSpan::new(inner, self.start());
        self.need(")", "`,` or `)`")?;
        let body = self.body()?;
        Ok(StatementKind::Def {
            name,
            params,
            brackets: BracketRange { inner, trailing_comma },
            body,
        })
    }

    /// Reads parameters up to `close`, which stays. True if a comma follows the last one.
    fn params(&mut self, close: &str) -> ParseResult<(Vec<FunctionParameter>, bool)> {
        let mut params = Vec::new();
        let mut comma = false;
        while !self.sees(close) {
            let start = self.start();
            let kind = if self.take("**").is_some() {
                ParameterKind::DoubleStar
            } else if self.take("*").is_some() {
                ParameterKind::Star
            } else {
                ParameterKind::Plain
            };
            let bare = kind == ParameterKind::Star && !self.is(TokenKind::Name);
            let name = if bare { None } else { Some(self.name()?) };
            let default = match kind == ParameterKind::Plain && self.take("=").is_some() {
                true => Some(self.expr()?),
                false => None,
            };
            params.push(FunctionParameter {
                kind,
                name,
                default,
                span: ByteSpan::new(start, self.end),
            });
            comma = self.take(",").is_some();
            if !comma {
                break;
            }
        }
        Ok((params, comma))
    }

    /// An `if` with all its `elif` and its `else`.
    fn branches(&mut self) -> ParseResult<StatementKind> {
        let mut branches = Vec::new();
        loop {
            let word = self.bump();
            let condition =
                if word.text_in(self.source) == "else" { None } else { Some(self.expr()?) };
            let last = condition.is_none();
            branches.push(IfBranch { keyword: word, condition, body: self.body()? });
            if last || !self.sees_any(&["elif", "else"]) {
                return Ok(StatementKind::If(branches));
            }
        }
    }

    /// Reads `:` and a block, or the statements on the same line.
    fn body(&mut self) -> ParseResult<Vec<SourceStatement>> {
        self.need(":", "`:`")?;
        let mut body = Vec::new();
        if !self.is(TokenKind::Newline) {
            self.simple_line(&mut body)?;
            return Ok(body);
        }
        self.bump();
        if !self.is(TokenKind::Indent) {
            return self.expected("an indented block");
        }
        self.bump();
        while !self.is(TokenKind::Dedent) {
            self.deeper(|p| p.statement(&mut body))?;
        }
        self.at += 1;
        Ok(body)
    }
}

/// The end of the last statement of a block. The end of the block itself would include
/// the line end.
fn last_end(kind: &StatementKind) -> Option<usize> {
    let body = match kind {
        StatementKind::Def { body, .. } | StatementKind::For { body, .. } => body,
        StatementKind::If(branches) => &branches.last()?.body,
        _ => return None,
    };
    body.last().map(|statement| statement.span.end)
}
