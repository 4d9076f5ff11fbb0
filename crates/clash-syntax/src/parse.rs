//! Tokens to tree: recursive descent for statements, precedence climbing for
//! operators. Depth is bounded both on the way down and in the tree built, so no
//! text can exhaust the stack here or in whoever walks the tree.

use crate::error::{ParseError, UnlocatedError};
use crate::lex::{ByteSpan, SourceToken, TokenKind};
use crate::string::{QuoteStyle, decode};
use crate::tree::{
    ArgumentKind, BracketRange, CallArgument, CallExpression, ComprehensionClause,
    ComprehensionElement, DictEntry, Expression, ExpressionKind, FunctionParameter, Identifier,
    IfBranch, LoadStatement, LoadedSymbol, ParameterKind, SourceStatement, StatementKind,
};

/// Far above what people write, far below what a thread's stack holds.
pub const MAX_TREE_DEPTH: usize = 100;

type ParseResult<T> = Result<T, UnlocatedError>;

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
    /// Where the last consumed token ended.
    end: usize,
}

const NO_TOKEN: SourceToken =
    SourceToken { kind: TokenKind::End, span: ByteSpan { start: 0, end: 0 } };

impl SourceParser<'_> {
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

    fn bump(&mut self) -> ByteSpan {
        let span = self.token().span;
        self.at += 1;
        self.end = span.end;
        span
    }

    fn take(&mut self, text: &str) -> Option<ByteSpan> {
        self.sees(text).then(|| self.bump())
    }

    fn need(&mut self, text: &'static str, expected: &'static str) -> ParseResult<ByteSpan> {
        self.take(text).map_or_else(|| self.expected(expected), Ok)
    }

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

    fn node(&self, kind: ExpressionKind, start: usize) -> ParseResult<Expression> {
        let mut expr = Expression { kind, span: ByteSpan::new(start, self.end), height: 0 };
        expr.height = 1 + expr.children().iter().map(|child| child.height).max().unwrap_or(0);
        if expr.height > MAX_TREE_DEPTH {
            return Err(UnlocatedError { at: start, problem: ParseError::TooDeep(MAX_TREE_DEPTH) });
        }
        Ok(expr)
    }

    // Statements.

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

    // Expressions.

    /// `a` or the bare tuple `a, b`.
    fn expr_list(&mut self) -> ParseResult<Expression> {
        let start = self.start();
        let first = self.expr()?;
        if !self.sees(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.take(",").is_some() {
            let ends = matches!(self.token().kind, TokenKind::Newline | TokenKind::End)
                || self.sees_any(&["=", ")", "]", ":", ";"]);
            if ends {
                break;
            }
            items.push(self.expr()?);
        }
        self.node(ExpressionKind::Tuple(items, None), start)
    }

    /// What a `for` binds: never an `in` test.
    fn targets(&mut self) -> ParseResult<Expression> {
        let start = self.start();
        let first = self.deeper(Self::postfix)?;
        if !self.sees(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.take(",").is_some() && !self.sees("in") {
            items.push(self.deeper(Self::postfix)?);
        }
        self.node(ExpressionKind::Tuple(items, None), start)
    }

    fn expr(&mut self) -> ParseResult<Expression> {
        self.deeper(|p| {
            let start = p.start();
            if p.take("lambda").is_some() {
                let (params, _) = p.params(":")?;
                p.need(":", "`:`")?;
                let body = Box::new(p.expr()?);
                return p.node(ExpressionKind::Lambda { params, body }, start);
            }
            let value = p.operators(0)?;
            if p.take("if").is_none() {
                return Ok(value);
            }
            let condition = Box::new(p.operators(0)?);
            p.need("else", "`else`")?;
            let otherwise = Box::new(p.expr()?);
            let value = Box::new(value);
            p.node(ExpressionKind::Conditional { value, condition, otherwise }, start)
        })
    }

    /// How tightly the binary operator here binds, and how many tokens it has.
    fn binding(&self) -> Option<(usize, usize)> {
        let token = self.token();
        if !matches!(token.kind, TokenKind::Mark | TokenKind::Keyword) {
            return None;
        }
        let level = match token.span.text_in(self.source) {
            "or" => 1,
            "and" => 2,
            "==" | "!=" | "<" | ">" | "<=" | ">=" | "in" => NOT_BINDING,
            "not" if self.spelled(self.ahead(1), "in") => return Some((NOT_BINDING, 2)),
            "|" => 5,
            "^" => 6,
            "&" => 7,
            "<<" | ">>" => 8,
            "+" | "-" => 9,
            "*" | "/" | "//" | "%" => 10,
            _ => return None,
        };
        Some((level, 1))
    }

    fn operators(&mut self, above: usize) -> ParseResult<Expression> {
        let start = self.start();
        let mut left = if above < NOT_BINDING && self.sees("not") {
            let operator = self.bump();
            let operand = Box::new(self.deeper(|p| p.operators(NOT_BINDING - 1))?);
            self.node(ExpressionKind::Unary { operator, operand }, start)?
        } else {
            self.unary()?
        };
        while let Some((level, length)) = self.binding().filter(|(level, _)| *level > above) {
            let mut operator = self.bump();
            if length == 2 {
                operator.end = self.bump().end;
            }
            let right = Box::new(self.deeper(|p| p.operators(level))?);
            left =
                self.node(ExpressionKind::Binary { left: Box::new(left), operator, right }, start)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> ParseResult<Expression> {
        let start = self.start();
        if !self.sees_any(&["+", "-", "~"]) {
            return self.postfix();
        }
        let operator = self.bump();
        let operand = Box::new(self.deeper(Self::unary)?);
        self.node(ExpressionKind::Unary { operator, operand }, start)
    }

    fn postfix(&mut self) -> ParseResult<Expression> {
        let start = self.start();
        let mut expr = self.atom()?;
        loop {
            if self.take(".").is_some() {
                let name = self.name()?;
                expr = self.node(ExpressionKind::Dot { object: Box::new(expr), name }, start)?;
            } else if self.take("(").is_some() {
                let (args, brackets) = self.args()?;
                let call = CallExpression { callee: Box::new(expr), args, brackets };
                expr = self.node(ExpressionKind::Call(call), start)?;
            } else if self.take("[").is_some() {
                expr = self.subscript(expr, start)?;
            } else {
                return Ok(expr);
            }
        }
    }

    fn subscript(&mut self, object: Expression, start: usize) -> ParseResult<Expression> {
        let object = Box::new(object);
        let mut bounds = Vec::new();
        loop {
            let empty = self.sees_any(&[":", "]"]);
            bounds.push(if empty { None } else { Some(self.expr_list()?) });
            if bounds.len() == 3 || self.take(":").is_none() {
                break;
            }
        }
        let close = self.need("]", "`]`");
        if bounds.len() > 1 {
            close?;
            return self.node(ExpressionKind::Slice { object, bounds }, start);
        }
        match bounds.pop().flatten() {
            Some(index) => {
                close?;
                self.node(ExpressionKind::Index { object, index: Box::new(index) }, start)
            }
            None => self.expected("an index"),
        }
    }

    fn args(&mut self) -> ParseResult<(Vec<CallArgument>, BracketRange)> {
        let inner = self.end;
        let mut args = Vec::new();
        let mut trailing_comma = false;
        while !self.sees(")") {
            let start = self.start();
            let kind = if self.take("**").is_some() {
                ArgumentKind::DoubleStar
            } else if self.take("*").is_some() {
                ArgumentKind::Star
            } else if self.is(TokenKind::Name) && self.spelled(self.ahead(1), "=") {
                let name = self.name()?;
                self.bump();
                ArgumentKind::Named(name)
            } else {
                ArgumentKind::Positional
            };
            let value = self.expr()?;
            args.push(CallArgument { kind, value, span: ByteSpan::new(start, self.end) });
            trailing_comma = self.take(",").is_some();
            if !trailing_comma {
                break;
            }
        }
        let inner = ByteSpan::new(inner, self.start());
        self.need(")", "`,` or `)`")?;
        Ok((args, BracketRange { inner, trailing_comma }))
    }

    fn name(&mut self) -> ParseResult<Identifier> {
        if !self.is(TokenKind::Name) {
            return self.expected("a name");
        }
        let span = self.bump();
        Ok(Identifier { text: span.text_in(self.source).to_owned(), span })
    }

    fn atom(&mut self) -> ParseResult<Expression> {
        let start = self.start();
        match self.token().kind {
            TokenKind::Name => {
                let name = self.name()?;
                self.node(ExpressionKind::Name(name.text), start)
            }
            TokenKind::Number => {
                self.bump();
                self.node(ExpressionKind::Number, start)
            }
            TokenKind::String => {
                let value = self.string_value()?;
                self.bump();
                self.node(ExpressionKind::String(value), start)
            }
            _ if self.sees("(") => self.parens(),
            _ if self.sees("[") => self.list(),
            _ if self.sees("{") => self.dict(),
            _ => self.expected("an expression"),
        }
    }

    fn string_value(&self) -> ParseResult<Option<String>> {
        let span = self.token().span;
        let Some(quote) = QuoteStyle::at(self.source, span.start) else { return Ok(None) };
        let inside = ByteSpan::new(span.start + quote.opening, span.end - quote.length());
        if quote.bytes || quote.format {
            return Ok(None);
        }
        let value = decode(inside.text_in(self.source), quote.raw);
        value.map(Some).ok_or(UnlocatedError { at: span.start, problem: ParseError::Escape })
    }

    fn parens(&mut self) -> ParseResult<Expression> {
        let start = self.bump().start;
        let inner = self.end;
        let mut items = Vec::new();
        let mut trailing_comma = false;
        while !self.sees(")") {
            items.push(self.expr()?);
            trailing_comma = self.take(",").is_some();
            if !trailing_comma {
                break;
            }
        }
        let inner = ByteSpan::new(inner, self.start());
        self.need(")", "`,` or `)`")?;
        if items.len() == 1 && !trailing_comma {
            let kind = items.pop().map(|item| ExpressionKind::Paren(Box::new(item)));
            return self.node(kind.unwrap_or(ExpressionKind::Tuple(Vec::new(), None)), start);
        }
        self.node(ExpressionKind::Tuple(items, Some(BracketRange { inner, trailing_comma })), start)
    }

    fn list(&mut self) -> ParseResult<Expression> {
        let start = self.bump().start;
        let inner = self.end;
        let mut items = Vec::new();
        let mut trailing_comma = false;
        while !self.sees("]") {
            let item = self.expr()?;
            if items.is_empty() && self.sees("for") {
                return self.comprehension(ComprehensionElement::Value(item), "]", start);
            }
            items.push(item);
            trailing_comma = self.take(",").is_some();
            if !trailing_comma {
                break;
            }
        }
        let inner = ByteSpan::new(inner, self.start());
        self.need("]", "`,` or `]`")?;
        self.node(ExpressionKind::List(items, BracketRange { inner, trailing_comma }), start)
    }

    fn dict(&mut self) -> ParseResult<Expression> {
        let start = self.bump().start;
        let inner = self.end;
        let mut entries = Vec::new();
        let mut trailing_comma = false;
        while !self.sees("}") {
            let key = self.expr()?;
            self.need(":", "`:` and a value")?;
            let value = self.expr()?;
            let span = ByteSpan::new(key.span.start, self.end);
            let entry = DictEntry { key, value, span };
            if entries.is_empty() && self.sees("for") {
                return self.comprehension(ComprehensionElement::Entry(entry), "}", start);
            }
            entries.push(entry);
            trailing_comma = self.take(",").is_some();
            if !trailing_comma {
                break;
            }
        }
        let inner = ByteSpan::new(inner, self.start());
        self.need("}", "`,` or `}`")?;
        self.node(ExpressionKind::Dict(entries, BracketRange { inner, trailing_comma }), start)
    }

    fn comprehension(
        &mut self,
        element: ComprehensionElement,
        close: &'static str,
        start: usize,
    ) -> ParseResult<Expression> {
        let mut clauses = Vec::new();
        loop {
            let from = self.start();
            if self.take("for").is_some() {
                let target = self.targets()?;
                self.need("in", "`in`")?;
                let iterable = self.deeper(|p| p.operators(0))?;
                clauses.push(ComprehensionClause::For {
                    target,
                    iterable,
                    span: ByteSpan::new(from, self.end),
                });
            } else if self.take("if").is_some() {
                let condition = self.deeper(|p| p.operators(0))?;
                clauses.push(ComprehensionClause::If {
                    condition,
                    span: ByteSpan::new(from, self.end),
                });
            } else {
                break;
            }
        }
        self.need(close, "`for`, `if` or the closing bracket")?;
        self.node(ExpressionKind::Comprehension { element: Box::new(element), clauses }, start)
    }
}

/// `not` binds looser than comparisons and tighter than `and`.
const NOT_BINDING: usize = 4;

/// Where the last statement of a block ends: the block's own end would take the
/// line end with it.
fn last_end(kind: &StatementKind) -> Option<usize> {
    let body = match kind {
        StatementKind::Def { body, .. } | StatementKind::For { body, .. } => body,
        StatementKind::If(branches) => &branches.last()?.body,
        _ => return None,
    };
    body.last().map(|statement| statement.span.end)
}
