//! The layout of expressions and of the items in brackets.

use super::SourceFormatter;
use crate::layout::LayoutDoc;
use crate::lex::{ByteSpan, TokenKind};
use crate::string::QuoteStyle;
use crate::tree::{
    ArgumentKind, BracketRange, CallArgument, CallExpression, ComprehensionClause,
    ComprehensionElement, DictEntry, Expression, ExpressionKind, FunctionParameter, LoadStatement,
    ParameterKind, SourceStatement, StatementKind,
};

/// One item in brackets.
struct BracketItem {
    span: ByteSpan,
    doc: LayoutDoc,
}

/// The layout of the items in a pair of brackets.
struct BracketStyle {
    open: &'static str,
    close: &'static str,
    separator: &'static str,
    last: TrailingComma,
}

/// The end of the last item.
#[derive(Clone, Copy)]
enum TrailingComma {
    Nothing,
    Comma,
    CommaIfBroken,
    /// Each item on its own line, because the author ended the last line with a comma.
    CommaAndBreak,
}

impl SourceFormatter<'_> {
    /// Lays out a range. If a comment in it has no place in the style, the range stays as
    /// written.
    pub(super) fn item(
        &mut self,
        span: ByteSpan,
        build: impl FnOnce(&mut Self) -> LayoutDoc,
    ) -> LayoutDoc {
        let placed = self.placed;
        let all = self.between(span.start, span.end).len();
        let doc = build(self);
        if self.placed == placed + all {
            return doc;
        }
        self.placed = placed + all;
        self.as_written(span)
    }

    /// The text of a range as it stands in the source. Only tabs and spaces at line ends
    /// change.
    fn as_written(&self, span: ByteSpan) -> LayoutDoc {
        let tokens = self.file.tokens();
        let first = tokens.partition_point(|token| token.span.start < span.start);
        let tokens = tokens.get(first..).unwrap_or_default();
        let mut text = String::new();
        for token in tokens.iter().take_while(|token| token.span.end <= span.end) {
            let piece = self.file.text(token.span);
            match token.kind {
                TokenKind::Break => {
                    text.truncate(text.trim_end_matches([' ', '\t']).len());
                    text.push('\n');
                }
                TokenKind::Comment => text.push_str(piece.trim_end()),
                TokenKind::Space => text.push_str(&piece.replace('\t', "    ")),
                _ => text.push_str(piece),
            }
        }
        LayoutDoc::Text(text)
    }

    /// The layout of a statement without a block.
    pub(super) fn simple(&mut self, statement: &SourceStatement) -> LayoutDoc {
        match &statement.kind {
            StatementKind::Expr(value) => self.expr(value),
            StatementKind::Assign { target, operator, value } => {
                let operator = format!(" {} ", self.file.text(*operator));
                LayoutDoc::Concat(vec![
                    self.expr(target),
                    LayoutDoc::Text(operator),
                    self.expr(value),
                ])
            }
            StatementKind::Return(Some(value)) => {
                LayoutDoc::Concat(vec![LayoutDoc::text("return "), self.expr(value)])
            }
            StatementKind::Load(load) => self.load(load),
            _ => self.as_written(statement.span),
        }
    }

    /// The layout of a `load()`. Its names are sorted, unless there is a comment among
    /// them.
    fn load(&mut self, load: &LoadStatement) -> LayoutDoc {
        let inner = load.brackets.inner;
        let module = BracketItem { span: load.module.span, doc: self.expr(&load.module) };
        let mut symbols: Vec<_> = load.symbols.iter().collect();
        if self.between(inner.start, inner.end).is_empty() {
            symbols.sort_by_key(|symbol| (symbol.local.is_some(), symbol.bound()));
        }
        let mut items = vec![module];
        for (symbol, place) in symbols.into_iter().zip(&load.symbols) {
            let name = self.expr(&symbol.name);
            let doc = match &symbol.local {
                Some(local) => {
                    LayoutDoc::Concat(vec![LayoutDoc::Text(format!("{} = ", local.text)), name])
                }
                None => name,
            };
            items.push(BracketItem { span: place.span, doc });
        }
        let last = self.last(load.brackets, &items);
        self.bracketed(
            BracketStyle { open: "load(", close: ")", separator: ",", last },
            items,
            inner,
        )
    }

    /// The layout of the parameters of a `def`, with their brackets.
    pub(super) fn params(
        &mut self,
        params: &[FunctionParameter],
        brackets: BracketRange,
    ) -> LayoutDoc {
        self.brackets += 1;
        let mut items = Vec::new();
        for param in params {
            let doc = self.item(param.span, |f| f.param(param));
            items.push(BracketItem { span: param.span, doc });
        }
        self.brackets -= 1;
        let starred = params.last().is_some_and(|param| param.kind != ParameterKind::Plain);
        let last = self.last_unless(starred, brackets, &items);
        self.bracketed(
            BracketStyle { open: "(", close: ")", separator: ",", last },
            items,
            brackets.inner,
        )
    }

    /// A parameter with its stars and its default.
    fn param(&mut self, param: &FunctionParameter) -> LayoutDoc {
        let stars = match param.kind {
            ParameterKind::Plain => "",
            ParameterKind::Star => "*",
            ParameterKind::DoubleStar => "**",
        };
        let name = param.name.as_ref().map_or("", |name| name.text.as_str());
        let head = LayoutDoc::Text(format!("{stars}{name}"));
        match &param.default {
            Some(default) => {
                LayoutDoc::Concat(vec![head, LayoutDoc::text(" = "), self.expr(default)])
            }
            None => head,
        }
    }

    /// The trailing comma. If the author wrote one before a line end, each item gets its
    /// own line.
    fn last(&self, brackets: BracketRange, items: &[BracketItem]) -> TrailingComma {
        let end = items.last().map_or(brackets.inner.start, |item| item.span.end);
        let rest = ByteSpan::new(end, brackets.inner.end).text_in(self.file.source());
        if brackets.trailing_comma && rest.contains('\n') {
            TrailingComma::CommaAndBreak
        } else {
            TrailingComma::CommaIfBroken
        }
    }

    /// Adds no comma after `*args`, because not every reader of Starlark accepts one there.
    fn last_unless(
        &self,
        starred: bool,
        brackets: BracketRange,
        items: &[BracketItem],
    ) -> TrailingComma {
        if starred && !brackets.trailing_comma {
            TrailingComma::Nothing
        } else {
            self.last(brackets, items)
        }
    }

    /// The comment on the line that ends at `end`, and the comments on lines of their own
    /// before `next`.
    fn gap(
        &mut self,
        end: usize,
        next: usize,
        trailing: &mut Vec<LayoutDoc>,
        lines: &mut Vec<LayoutDoc>,
    ) {
        for at in self.between(end, next) {
            let Some(comment) = self.comments.get(at) else { continue };
            let text = self.file.text(comment.span).trim_end().to_owned();
            let blank = self.blank_before(comment.span.start);
            self.placed += 1;
            if trailing.is_empty() && lines.is_empty() && !comment.alone {
                trailing.push(LayoutDoc::Comment(text));
            } else {
                lines.extend([LayoutDoc::Hard { blank }, LayoutDoc::Text(text)]);
            }
        }
    }

    /// The layout of brackets: on one line if it fits, otherwise one item on each line.
    /// Comments keep their places between the items.
    fn bracketed(
        &mut self,
        style: BracketStyle,
        items: Vec<BracketItem>,
        inner: ByteSpan,
    ) -> LayoutDoc {
        let mut docs = vec![LayoutDoc::text(style.open)];
        let mut inside = Vec::new();
        let mut end = inner.start;
        let count = items.len();
        for (at, item) in items.into_iter().enumerate() {
            let (mut trailing, mut lines) = (Vec::new(), Vec::new());
            self.gap(end, item.span.start, &mut trailing, &mut lines);
            end = item.span.end;
            if at == 0 {
                docs.append(&mut trailing);
                suppress_blank(&mut lines);
            } else {
                inside.push(LayoutDoc::text(style.separator));
                inside.append(&mut trailing);
            }
            let blank = (at > 0 || !lines.is_empty()) && self.blank_before(item.span.start);
            inside.append(&mut lines);
            inside.push(LayoutDoc::Line { flat: if at == 0 { "" } else { " " }, blank });
            inside.push(item.doc);
        }
        match style.last {
            TrailingComma::Comma => inside.push(LayoutDoc::text(",")),
            TrailingComma::CommaIfBroken | TrailingComma::CommaAndBreak if count > 0 => {
                inside.push(LayoutDoc::WhenBroken(","));
            }
            _ => {}
        }
        let (mut trailing, mut lines) = (Vec::new(), Vec::new());
        self.gap(end, inner.end, &mut trailing, &mut lines);
        if count == 0 {
            docs.append(&mut trailing);
            suppress_blank(&mut lines);
        }
        inside.append(&mut trailing);
        inside.append(&mut lines);
        if !inside.is_empty() {
            docs.push(LayoutDoc::Indent(inside));
            docs.push(LayoutDoc::soft());
        } else if docs.len() > 1 {
            docs.push(LayoutDoc::soft());
        }
        docs.push(LayoutDoc::text(style.close));
        match (LayoutDoc::group(docs), style.last) {
            (LayoutDoc::Group { docs, .. }, TrailingComma::CommaAndBreak) => {
                LayoutDoc::Group { docs, broken: true }
            }
            (group, _) => group,
        }
    }

    /// Builds a layout inside a bracket, where a line may break.
    fn inside<T>(&mut self, build: impl FnOnce(&mut Self) -> T) -> T {
        self.brackets += 1;
        let built = build(self);
        self.brackets -= 1;
        built
    }

    /// The layouts of the items in a bracket.
    fn exprs(&mut self, exprs: &[Expression]) -> Vec<BracketItem> {
        let mut items = Vec::new();
        for expr in exprs {
            let doc = self.inside(|f| f.item(expr.span, |f| f.expr(expr)));
            items.push(BracketItem { span: expr.span, doc });
        }
        items
    }

    /// The layouts of the entries of a dict, each with its comments.
    fn entries(&mut self, entries: &[DictEntry]) -> Vec<BracketItem> {
        let mut items = Vec::new();
        for entry in entries {
            let doc = self.inside(|f| f.item(entry.span, |f| f.entry(entry)));
            items.push(BracketItem { span: entry.span, doc });
        }
        items
    }

    /// The layout of any expression.
    pub(super) fn expr(&mut self, expr: &Expression) -> LayoutDoc {
        match &expr.kind {
            ExpressionKind::Name(name) => LayoutDoc::text(name),
            ExpressionKind::Number => LayoutDoc::text(self.file.text(expr.span)),
            ExpressionKind::String(_) => LayoutDoc::Text(quoted(self.file.text(expr.span))),
            ExpressionKind::List(items, brackets) => {
                let items = self.exprs(items);
                let last = self.last(*brackets, &items);
                let style = BracketStyle { open: "[", close: "]", separator: ",", last };
                self.bracketed(style, items, brackets.inner)
            }
            ExpressionKind::Tuple(items, Some(brackets)) => {
                let items = self.exprs(items);
                let last = match (items.len(), self.last(*brackets, &items)) {
                    (1, _) => TrailingComma::Comma,
                    (_, last) => last,
                };
                let style = BracketStyle { open: "(", close: ")", separator: ",", last };
                self.bracketed(style, items, brackets.inner)
            }
            ExpressionKind::Tuple(items, None) => self.bare_tuple(expr, items),
            ExpressionKind::Paren(inner) => {
                let items = self.exprs(std::slice::from_ref(inner));
                let within = ByteSpan::new(expr.span.start + 1, expr.span.end - 1);
                let style = BracketStyle {
                    open: "(",
                    close: ")",
                    separator: "",
                    last: TrailingComma::Nothing,
                };
                self.bracketed(style, items, within)
            }
            ExpressionKind::Dict(entries, brackets) => {
                let items = self.entries(entries);
                let last = self.last(*brackets, &items);
                let style = BracketStyle { open: "{", close: "}", separator: ",", last };
                self.bracketed(style, items, brackets.inner)
            }
            ExpressionKind::Comprehension { element, clauses } => {
                self.comprehension(expr, element, clauses)
            }
            ExpressionKind::Call(call) => self.call(call),
            ExpressionKind::Dot { object, name } => LayoutDoc::Concat(vec![
                self.expr(object),
                LayoutDoc::Text(format!(".{}", name.text)),
            ]),
            ExpressionKind::Index { object, index } => {
                let mut docs = vec![self.expr(object), LayoutDoc::text("[")];
                docs.push(self.inside(|f| f.expr(index)));
                docs.push(LayoutDoc::text("]"));
                LayoutDoc::Concat(docs)
            }
            ExpressionKind::Slice { object, bounds } => self.slice(object, bounds),
            ExpressionKind::Unary { operator, operand } => {
                let operator = match self.file.text(*operator) {
                    "not" => "not ".to_owned(),
                    sign => sign.to_owned(),
                };
                LayoutDoc::Concat(vec![LayoutDoc::Text(operator), self.expr(operand)])
            }
            ExpressionKind::Binary { .. } => {
                let mut docs = Vec::new();
                self.operands(expr, &mut docs);
                LayoutDoc::group(docs)
            }
            ExpressionKind::Conditional { value, condition, otherwise } => LayoutDoc::group(vec![
                self.expr(value),
                self.space(),
                LayoutDoc::text("if "),
                self.expr(condition),
                self.space(),
                LayoutDoc::text("else "),
                self.expr(otherwise),
            ]),
            ExpressionKind::Lambda { params, body } => self.lambda(params, body),
        }
    }

    /// `a[b:c]`; it never breaks at the colons.
    fn slice(&mut self, object: &Expression, bounds: &[Option<Expression>]) -> LayoutDoc {
        let mut docs = vec![self.expr(object)];
        for (at, bound) in bounds.iter().enumerate() {
            docs.push(LayoutDoc::text(if at == 0 { "[" } else { ":" }));
            if let Some(bound) = bound {
                docs.push(self.inside(|f| f.expr(bound)));
            }
        }
        docs.push(LayoutDoc::text("]"));
        LayoutDoc::Concat(docs)
    }

    /// `lambda a, b: c` on one line, unless a bracket in it breaks.
    fn lambda(&mut self, params: &[FunctionParameter], body: &Expression) -> LayoutDoc {
        let mut docs = vec![LayoutDoc::text("lambda")];
        for (at, param) in params.iter().enumerate() {
            docs.push(LayoutDoc::text(if at == 0 { " " } else { ", " }));
            docs.push(self.param(param));
        }
        docs.push(LayoutDoc::text(": "));
        docs.push(self.expr(body));
        LayoutDoc::Concat(docs)
    }

    /// A space at which the line may be broken, if a bracket is open.
    fn space(&self) -> LayoutDoc {
        match self.brackets {
            0 => LayoutDoc::text(" "),
            _ => LayoutDoc::Line { flat: " ", blank: false },
        }
    }

    /// The layout of `a, b` without brackets; it never breaks.
    fn bare_tuple(&mut self, whole: &Expression, items: &[Expression]) -> LayoutDoc {
        let mut docs = Vec::new();
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                docs.push(LayoutDoc::text(", "));
            }
            docs.push(self.expr(item));
        }
        let end = items.last().map_or(whole.span.end, |item| item.span.end);
        if end < whole.span.end {
            docs.push(LayoutDoc::text(","));
        }
        LayoutDoc::Concat(docs)
    }

    /// `key: value`
    fn entry(&mut self, entry: &DictEntry) -> LayoutDoc {
        LayoutDoc::Concat(vec![
            self.expr(&entry.key),
            LayoutDoc::text(": "),
            self.expr(&entry.value),
        ])
    }

    /// A comprehension: if it breaks, the element and each clause have a line.
    fn comprehension(
        &mut self,
        whole: &Expression,
        element: &ComprehensionElement,
        clauses: &[ComprehensionClause],
    ) -> LayoutDoc {
        let mut items = Vec::new();
        let (open, close, span) = match element {
            ComprehensionElement::Value(value) => ("[", "]", value.span),
            ComprehensionElement::Entry(entry) => ("{", "}", entry.span),
        };
        let doc = self.inside(|f| {
            f.item(span, |f| match element {
                ComprehensionElement::Value(value) => f.expr(value),
                ComprehensionElement::Entry(entry) => f.entry(entry),
            })
        });
        items.push(BracketItem { span, doc });
        for clause in clauses {
            let doc = self.inside(|f| f.item(clause.span(), |f| f.clause(clause)));
            items.push(BracketItem { span: clause.span(), doc });
        }
        let style = BracketStyle { open, close, separator: "", last: TrailingComma::Nothing };
        self.bracketed(style, items, ByteSpan::new(whole.span.start + 1, whole.span.end - 1))
    }

    /// `for x in y` or `if x`
    fn clause(&mut self, clause: &ComprehensionClause) -> LayoutDoc {
        LayoutDoc::Concat(match clause {
            ComprehensionClause::For { target, iterable, .. } => {
                vec![
                    LayoutDoc::text("for "),
                    self.expr(target),
                    LayoutDoc::text(" in "),
                    self.expr(iterable),
                ]
            }
            ComprehensionClause::If { condition, .. } => {
                vec![LayoutDoc::text("if "), self.expr(condition)]
            }
        })
    }

    /// `a + b + c` as one chain, so that it breaks at all of its operators.
    fn operands(&mut self, expr: &Expression, docs: &mut Vec<LayoutDoc>) {
        let ExpressionKind::Binary { left, operator, right } = &expr.kind else { return };
        let text = self.file.text(*operator);
        let same = matches!(&left.kind, ExpressionKind::Binary { operator, .. }
            if self.file.text(*operator) == text);
        if same {
            self.operands(left, docs);
        } else {
            docs.push(self.expr(left));
        }
        // Spaces and line ends may stand between the two words.
        let text = if text.starts_with("not") { "not in" } else { text };
        docs.push(LayoutDoc::Text(format!(" {text}")));
        let (mut trailing, mut lines) = (Vec::new(), Vec::new());
        self.gap(left.span.end, right.span.start, &mut trailing, &mut lines);
        docs.append(&mut trailing);
        docs.append(&mut lines);
        docs.push(self.space());
        docs.push(self.expr(right));
    }

    /// A call: the last dict or list may hug the brackets, otherwise its arguments break
    /// like the items of a list.
    fn call(&mut self, call: &CallExpression) -> LayoutDoc {
        let callee = self.expr(&call.callee);
        let inner = call.brackets.inner;
        if let Some(args) = self.hugged(call) {
            return LayoutDoc::Concat(vec![callee, args]);
        }
        let mut items = Vec::new();
        for arg in &call.args {
            let doc = self.inside(|f| f.item(arg.span, |f| f.arg(arg)));
            items.push(BracketItem { span: arg.span, doc });
        }
        let starred = call
            .args
            .last()
            .is_some_and(|arg| matches!(arg.kind, ArgumentKind::Star | ArgumentKind::DoubleStar));
        let last = self.last_unless(starred, call.brackets, &items);
        let style = BracketStyle { open: "(", close: ")", separator: ",", last };
        let args = self.bracketed(style, items, inner);
        LayoutDoc::Concat(vec![callee, args])
    }

    /// `when({` … `})`: the brackets of a last dict or list join those of the call.
    fn hugged(&mut self, call: &CallExpression) -> Option<LayoutDoc> {
        let (last, before) = call.args.split_last()?;
        let bracket = matches!(
            last.value.kind,
            ExpressionKind::Dict(..)
                | ExpressionKind::List(..)
                | ExpressionKind::Comprehension { .. }
        );
        let simple = before.iter().all(|arg| {
            arg.kind == ArgumentKind::Positional
                && matches!(
                    arg.value.kind,
                    ExpressionKind::Name(_) | ExpressionKind::Number | ExpressionKind::String(_)
                )
        });
        let inner = call.brackets.inner;
        let around = self.between(inner.start, last.span.start).len()
            + self.between(last.span.end, inner.end).len();
        if !bracket || !simple || last.kind != ArgumentKind::Positional || around > 0 {
            return None;
        }
        let mut docs = vec![LayoutDoc::text("(")];
        for arg in before {
            docs.push(self.expr(&arg.value));
            docs.push(LayoutDoc::text(", "));
        }
        docs.push(self.inside(|f| f.item(last.span, |f| f.expr(&last.value))));
        docs.push(LayoutDoc::text(")"));
        Some(LayoutDoc::Concat(docs))
    }

    /// An argument with its name or stars.
    fn arg(&mut self, arg: &CallArgument) -> LayoutDoc {
        let before = match &arg.kind {
            ArgumentKind::Positional => String::new(),
            ArgumentKind::Named(name) => format!("{} = ", name.text),
            ArgumentKind::Star => "*".to_owned(),
            ArgumentKind::DoubleStar => "**".to_owned(),
        };
        LayoutDoc::Concat(vec![LayoutDoc::Text(before), self.expr(&arg.value)])
    }
}

/// Drops the empty line before the first comment in a bracket.
fn suppress_blank(lines: &mut [LayoutDoc]) {
    if let Some(LayoutDoc::Hard { blank }) = lines.first_mut() {
        *blank = false;
    }
}

/// A string literal as written, with `"` for `'` and `"""` for `'''`. Raw, bytes and format
/// strings, and strings with a `"` inside, stay as they are. Nothing between the quotes
/// changes.
fn quoted(text: &str) -> String {
    let plain = QuoteStyle::at(text, 0).filter(|quote| quote.mark == '\'' && !quote.raw);
    match plain {
        Some(quote) if !quote.bytes && !quote.format && !text.contains('"') => {
            let marks = "\"".repeat(quote.length());
            let inside = text.get(quote.opening..text.len() - quote.length());
            format!("{marks}{}{marks}", inside.unwrap_or_default())
        }
        _ => text.to_owned(),
    }
}
