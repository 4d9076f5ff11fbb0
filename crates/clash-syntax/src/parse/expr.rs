//! Expressions: precedence climbing for binary operators, recursive descent for the rest.

use super::{ParseResult, SourceParser};
use crate::error::{ParseError, UnlocatedError};
use crate::lex::{ByteSpan, TokenKind};
use crate::string::{QuoteStyle, decode};
use crate::tree::{
    ArgumentKind, BracketRange, CallArgument, CallExpression, ComprehensionClause,
    ComprehensionElement, DictEntry, Expression, ExpressionKind, Identifier,
};

/// `not` binds looser than comparisons and tighter than `and`.
const NOT_BINDING: usize = 4;

impl SourceParser<'_> {
    /// `a` or the bare tuple `a, b`.
    pub(super) fn expr_list(&mut self) -> ParseResult<Expression> {
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

    /// The targets of a `for`, which never hold an `in` test.
    pub(super) fn targets(&mut self) -> ParseResult<Expression> {
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

    /// Reads an expression, with `lambda` and `a if b else c`.
    pub(super) fn expr(&mut self) -> ParseResult<Expression> {
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

    /// The binding strength of the binary operator here, and its number of tokens.
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

    /// Reads operands and binary operators that bind stronger than `above`.
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

    /// An operand with the signs before it.
    fn unary(&mut self) -> ParseResult<Expression> {
        let start = self.start();
        if !self.sees_any(&["+", "-", "~"]) {
            return self.postfix();
        }
        let operator = self.bump();
        let operand = Box::new(self.deeper(Self::unary)?);
        self.node(ExpressionKind::Unary { operator, operand }, start)
    }

    /// Reads an operand with its calls, attributes and subscripts.
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

    /// Reads an index or a slice behind `[`.
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

    /// Reads the arguments of a call behind `(`, with the closing bracket.
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

    /// A name; an error for any other token.
    pub(super) fn name(&mut self) -> ParseResult<Identifier> {
        if !self.is(TokenKind::Name) {
            return self.expected("a name");
        }
        let span = self.bump();
        Ok(Identifier { text: span.text_in(self.source).to_owned(), span })
    }

    /// Reads a name, number, string or bracket.
    pub(super) fn atom(&mut self) -> ParseResult<Expression> {
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

    /// The value of the string here; `None` for format and byte strings.
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

    /// Reads a tuple, or an expression in brackets.
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

    /// A list or a list comprehension.
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

    /// A dict or a dict comprehension.
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

    /// Reads the clauses of a comprehension behind its element.
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
