//! How expressions and the things in brackets are written.

use super::Formatter;
use crate::layout::Doc;
use crate::lex::{Span, TokenKind};
use crate::string::Quote;
use crate::tree::{
    Arg, ArgKind, Brackets, Call, Clause, Element, Entry, Expr, ExprKind, Load, Param, ParamKind,
    Statement, StatementKind,
};

/// One thing in brackets.
struct Item {
    span: Span,
    doc: Doc,
}

/// How the things in a pair of brackets are written.
struct Style {
    open: &'static str,
    close: &'static str,
    separator: &'static str,
    last: Last,
}

/// What stands after the last item.
#[derive(Clone, Copy)]
enum Last {
    Nothing,
    Comma,
    CommaIfBroken,
    /// Every item on its own line, because the author's comma says so.
    CommaAndBreak,
}

impl Formatter<'_> {
    /// Builds the text for a range; as it was written, if a comment in it found
    /// no place.
    pub(super) fn item(&mut self, span: Span, build: impl FnOnce(&mut Self) -> Doc) -> Doc {
        let placed = self.placed;
        let all = self.between(span.start, span.end).len();
        let doc = build(self);
        if self.placed == placed + all {
            return doc;
        }
        self.placed = placed + all;
        self.as_written(span)
    }

    fn as_written(&self, span: Span) -> Doc {
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
        Doc::Text(text)
    }

    pub(super) fn simple(&mut self, statement: &Statement) -> Doc {
        match &statement.kind {
            StatementKind::Expr(value) => self.expr(value),
            StatementKind::Assign { target, operator, value } => {
                let operator = format!(" {} ", self.file.text(*operator));
                Doc::Concat(vec![self.expr(target), Doc::Text(operator), self.expr(value)])
            }
            StatementKind::Return(Some(value)) => {
                Doc::Concat(vec![Doc::text("return "), self.expr(value)])
            }
            StatementKind::Load(load) => self.load(load),
            _ => self.as_written(statement.span),
        }
    }

    fn load(&mut self, load: &Load) -> Doc {
        let inner = load.brackets.inner;
        let module = Item { span: load.module.span, doc: self.expr(&load.module) };
        let mut symbols: Vec<_> = load.symbols.iter().collect();
        if self.between(inner.start, inner.end).is_empty() {
            symbols.sort_by_key(|symbol| (symbol.local.is_some(), symbol.bound()));
        }
        let mut items = vec![module];
        for (symbol, place) in symbols.into_iter().zip(&load.symbols) {
            let name = self.expr(&symbol.name);
            let doc = match &symbol.local {
                Some(local) => Doc::Concat(vec![Doc::Text(format!("{} = ", local.text)), name]),
                None => name,
            };
            items.push(Item { span: place.span, doc });
        }
        let last = self.last(load.brackets, &items);
        self.bracketed(Style { open: "load(", close: ")", separator: ",", last }, items, inner)
    }

    pub(super) fn params(&mut self, params: &[Param], brackets: Brackets) -> Doc {
        self.brackets += 1;
        let mut items = Vec::new();
        for param in params {
            let doc = self.item(param.span, |f| f.param(param));
            items.push(Item { span: param.span, doc });
        }
        self.brackets -= 1;
        let starred = params.last().is_some_and(|param| param.kind != ParamKind::Plain);
        let last = self.last_unless(starred, brackets, &items);
        self.bracketed(Style { open: "(", close: ")", separator: ",", last }, items, brackets.inner)
    }

    fn param(&mut self, param: &Param) -> Doc {
        let stars = match param.kind {
            ParamKind::Plain => "",
            ParamKind::Star => "*",
            ParamKind::DoubleStar => "**",
        };
        let name = param.name.as_ref().map_or("", |name| name.text.as_str());
        let head = Doc::Text(format!("{stars}{name}"));
        match &param.default {
            Some(default) => Doc::Concat(vec![head, Doc::text(" = "), self.expr(default)]),
            None => head,
        }
    }

    /// Whether the author's trailing comma asks for one item per line.
    fn last(&self, brackets: Brackets, items: &[Item]) -> Last {
        let end = items.last().map_or(brackets.inner.start, |item| item.span.end);
        let rest = Span::new(end, brackets.inner.end).of(self.file.source());
        if brackets.trailing_comma && rest.contains('\n') {
            Last::CommaAndBreak
        } else {
            Last::CommaIfBroken
        }
    }

    /// Not every reader takes a comma after `*args`: none is added there.
    fn last_unless(&self, starred: bool, brackets: Brackets, items: &[Item]) -> Last {
        if starred && !brackets.trailing_comma { Last::Nothing } else { self.last(brackets, items) }
    }

    /// The comment on the line of what ended at `end`, and those on lines of their
    /// own before `next`.
    fn gap(&mut self, end: usize, next: usize, trailing: &mut Vec<Doc>, lines: &mut Vec<Doc>) {
        for at in self.between(end, next) {
            let Some(comment) = self.comments.get(at) else { continue };
            let text = self.file.text(comment.span).trim_end().to_owned();
            let blank = self.blank_before(comment.span.start);
            self.placed += 1;
            if trailing.is_empty() && lines.is_empty() && !comment.alone {
                trailing.push(Doc::Comment(text));
            } else {
                lines.extend([Doc::Hard { blank }, Doc::Text(text)]);
            }
        }
    }

    fn bracketed(&mut self, style: Style, items: Vec<Item>, inner: Span) -> Doc {
        let mut docs = vec![Doc::text(style.open)];
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
                inside.push(Doc::text(style.separator));
                inside.append(&mut trailing);
            }
            let blank = (at > 0 || !lines.is_empty()) && self.blank_before(item.span.start);
            inside.append(&mut lines);
            inside.push(Doc::Line { flat: if at == 0 { "" } else { " " }, blank });
            inside.push(item.doc);
        }
        match style.last {
            Last::Comma => inside.push(Doc::text(",")),
            Last::CommaIfBroken | Last::CommaAndBreak if count > 0 => {
                inside.push(Doc::WhenBroken(","));
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
            docs.push(Doc::Indent(inside));
            docs.push(Doc::soft());
        } else if docs.len() > 1 {
            docs.push(Doc::soft());
        }
        docs.push(Doc::text(style.close));
        match (Doc::group(docs), style.last) {
            (Doc::Group { docs, .. }, Last::CommaAndBreak) => Doc::Group { docs, broken: true },
            (group, _) => group,
        }
    }

    fn inside<T>(&mut self, build: impl FnOnce(&mut Self) -> T) -> T {
        self.brackets += 1;
        let built = build(self);
        self.brackets -= 1;
        built
    }

    fn exprs(&mut self, exprs: &[Expr]) -> Vec<Item> {
        let mut items = Vec::new();
        for expr in exprs {
            let doc = self.inside(|f| f.item(expr.span, |f| f.expr(expr)));
            items.push(Item { span: expr.span, doc });
        }
        items
    }

    pub(super) fn expr(&mut self, expr: &Expr) -> Doc {
        match &expr.kind {
            ExprKind::Name(name) => Doc::text(name),
            ExprKind::Number => Doc::text(self.file.text(expr.span)),
            ExprKind::String(_) => Doc::Text(quoted(self.file.text(expr.span))),
            ExprKind::List(items, brackets) => {
                let items = self.exprs(items);
                let last = self.last(*brackets, &items);
                let style = Style { open: "[", close: "]", separator: ",", last };
                self.bracketed(style, items, brackets.inner)
            }
            ExprKind::Tuple(items, Some(brackets)) => {
                let items = self.exprs(items);
                let last = match (items.len(), self.last(*brackets, &items)) {
                    (1, _) => Last::Comma,
                    (_, last) => last,
                };
                let style = Style { open: "(", close: ")", separator: ",", last };
                self.bracketed(style, items, brackets.inner)
            }
            ExprKind::Tuple(items, None) => self.bare_tuple(expr, items),
            ExprKind::Paren(inner) => {
                let items = self.exprs(std::slice::from_ref(inner));
                let within = Span::new(expr.span.start + 1, expr.span.end - 1);
                let style = Style { open: "(", close: ")", separator: "", last: Last::Nothing };
                self.bracketed(style, items, within)
            }
            ExprKind::Dict(entries, brackets) => {
                let mut items = Vec::new();
                for entry in entries {
                    let doc = self.inside(|f| f.item(entry.span, |f| f.entry(entry)));
                    items.push(Item { span: entry.span, doc });
                }
                let last = self.last(*brackets, &items);
                let style = Style { open: "{", close: "}", separator: ",", last };
                self.bracketed(style, items, brackets.inner)
            }
            ExprKind::Comprehension { element, clauses } => {
                self.comprehension(expr, element, clauses)
            }
            ExprKind::Call(call) => self.call(call),
            ExprKind::Dot { object, name } => {
                Doc::Concat(vec![self.expr(object), Doc::Text(format!(".{}", name.text))])
            }
            ExprKind::Index { object, index } => {
                let mut docs = vec![self.expr(object), Doc::text("[")];
                docs.push(self.inside(|f| f.expr(index)));
                docs.push(Doc::text("]"));
                Doc::Concat(docs)
            }
            ExprKind::Slice { object, bounds } => {
                let mut docs = vec![self.expr(object)];
                for (at, bound) in bounds.iter().enumerate() {
                    docs.push(Doc::text(if at == 0 { "[" } else { ":" }));
                    if let Some(bound) = bound {
                        docs.push(self.inside(|f| f.expr(bound)));
                    }
                }
                docs.push(Doc::text("]"));
                Doc::Concat(docs)
            }
            ExprKind::Unary { operator, operand } => {
                let operator = match self.file.text(*operator) {
                    "not" => "not ".to_owned(),
                    sign => sign.to_owned(),
                };
                Doc::Concat(vec![Doc::Text(operator), self.expr(operand)])
            }
            ExprKind::Binary { .. } => {
                let mut docs = Vec::new();
                self.operands(expr, &mut docs);
                Doc::group(docs)
            }
            ExprKind::Conditional { value, condition, otherwise } => Doc::group(vec![
                self.expr(value),
                self.space(),
                Doc::text("if "),
                self.expr(condition),
                self.space(),
                Doc::text("else "),
                self.expr(otherwise),
            ]),
            ExprKind::Lambda { params, body } => {
                let mut docs = vec![Doc::text("lambda")];
                for (at, param) in params.iter().enumerate() {
                    docs.push(Doc::text(if at == 0 { " " } else { ", " }));
                    docs.push(self.param(param));
                }
                docs.push(Doc::text(": "));
                docs.push(self.expr(body));
                Doc::Concat(docs)
            }
        }
    }

    /// A space at which the line may be broken, if a bracket is open.
    fn space(&self) -> Doc {
        match self.brackets {
            0 => Doc::text(" "),
            _ => Doc::Line { flat: " ", blank: false },
        }
    }

    fn bare_tuple(&mut self, whole: &Expr, items: &[Expr]) -> Doc {
        let mut docs = Vec::new();
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                docs.push(Doc::text(", "));
            }
            docs.push(self.expr(item));
        }
        let end = items.last().map_or(whole.span.end, |item| item.span.end);
        if end < whole.span.end {
            docs.push(Doc::text(","));
        }
        Doc::Concat(docs)
    }

    fn entry(&mut self, entry: &Entry) -> Doc {
        Doc::Concat(vec![self.expr(&entry.key), Doc::text(": "), self.expr(&entry.value)])
    }

    fn comprehension(&mut self, whole: &Expr, element: &Element, clauses: &[Clause]) -> Doc {
        let mut items = Vec::new();
        let (open, close, span) = match element {
            Element::Value(value) => ("[", "]", value.span),
            Element::Entry(entry) => ("{", "}", entry.span),
        };
        let doc = self.inside(|f| {
            f.item(span, |f| match element {
                Element::Value(value) => f.expr(value),
                Element::Entry(entry) => f.entry(entry),
            })
        });
        items.push(Item { span, doc });
        for clause in clauses {
            let doc = self.inside(|f| f.item(clause.span(), |f| f.clause(clause)));
            items.push(Item { span: clause.span(), doc });
        }
        let style = Style { open, close, separator: "", last: Last::Nothing };
        self.bracketed(style, items, Span::new(whole.span.start + 1, whole.span.end - 1))
    }

    fn clause(&mut self, clause: &Clause) -> Doc {
        Doc::Concat(match clause {
            Clause::For { target, iterable, .. } => {
                vec![Doc::text("for "), self.expr(target), Doc::text(" in "), self.expr(iterable)]
            }
            Clause::If { condition, .. } => vec![Doc::text("if "), self.expr(condition)],
        })
    }

    /// `a + b + c` as one chain, so that it breaks at all of its operators.
    fn operands(&mut self, expr: &Expr, docs: &mut Vec<Doc>) {
        let ExprKind::Binary { left, operator, right } = &expr.kind else { return };
        let text = self.file.text(*operator);
        let same = matches!(&left.kind, ExprKind::Binary { operator, .. }
            if self.file.text(*operator) == text);
        if same {
            self.operands(left, docs);
        } else {
            docs.push(self.expr(left));
        }
        // The two words may stand apart, with anything between them.
        let text = if text.starts_with("not") { "not in" } else { text };
        docs.push(Doc::Text(format!(" {text}")));
        let (mut trailing, mut lines) = (Vec::new(), Vec::new());
        self.gap(left.span.end, right.span.start, &mut trailing, &mut lines);
        docs.append(&mut trailing);
        docs.append(&mut lines);
        docs.push(self.space());
        docs.push(self.expr(right));
    }

    fn call(&mut self, call: &Call) -> Doc {
        let callee = self.expr(&call.callee);
        let inner = call.brackets.inner;
        if let Some(args) = self.hugged(call) {
            return Doc::Concat(vec![callee, args]);
        }
        let mut items = Vec::new();
        for arg in &call.args {
            let doc = self.inside(|f| f.item(arg.span, |f| f.arg(arg)));
            items.push(Item { span: arg.span, doc });
        }
        let starred = call
            .args
            .last()
            .is_some_and(|arg| matches!(arg.kind, ArgKind::Star | ArgKind::DoubleStar));
        let last = self.last_unless(starred, call.brackets, &items);
        let style = Style { open: "(", close: ")", separator: ",", last };
        let args = self.bracketed(style, items, inner);
        Doc::Concat(vec![callee, args])
    }

    /// `when({` … `})`: the brackets of a last dict or list are the call's own.
    fn hugged(&mut self, call: &Call) -> Option<Doc> {
        let (last, before) = call.args.split_last()?;
        let bracket = matches!(
            last.value.kind,
            ExprKind::Dict(..) | ExprKind::List(..) | ExprKind::Comprehension { .. }
        );
        let simple = before.iter().all(|arg| {
            arg.kind == ArgKind::Positional
                && matches!(
                    arg.value.kind,
                    ExprKind::Name(_) | ExprKind::Number | ExprKind::String(_)
                )
        });
        let inner = call.brackets.inner;
        let around = self.between(inner.start, last.span.start).len()
            + self.between(last.span.end, inner.end).len();
        if !bracket || !simple || last.kind != ArgKind::Positional || around > 0 {
            return None;
        }
        let mut docs = vec![Doc::text("(")];
        for arg in before {
            docs.push(self.expr(&arg.value));
            docs.push(Doc::text(", "));
        }
        docs.push(self.inside(|f| f.item(last.span, |f| f.expr(&last.value))));
        docs.push(Doc::text(")"));
        Some(Doc::Concat(docs))
    }

    fn arg(&mut self, arg: &Arg) -> Doc {
        let before = match &arg.kind {
            ArgKind::Positional => String::new(),
            ArgKind::Named(name) => format!("{} = ", name.text),
            ArgKind::Star => "*".to_owned(),
            ArgKind::DoubleStar => "**".to_owned(),
        };
        Doc::Concat(vec![Doc::Text(before), self.expr(&arg.value)])
    }
}

fn suppress_blank(lines: &mut [Doc]) {
    if let Some(Doc::Hard { blank }) = lines.first_mut() {
        *blank = false;
    }
}

/// Plain strings get double quotes, unless that would need more escapes.
fn quoted(text: &str) -> String {
    let plain = Quote::at(text, 0).filter(|quote| quote.mark == '\'' && !quote.raw);
    match plain {
        Some(quote) if !quote.bytes && !quote.format && !text.contains('"') => {
            let marks = "\"".repeat(quote.length());
            let inside = text.get(quote.opening..text.len() - quote.length());
            format!("{marks}{}{marks}", inside.unwrap_or_default())
        }
        _ => text.to_owned(),
    }
}
