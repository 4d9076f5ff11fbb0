//! Rewrites the forms of Clash 0.5 to 0.7 into the present language.
//!
//! The upgrade rewrites a form only if all of it is written out. A computed form, or one
//! that could mean more than its new form, stays and is reported. No comment is lost: a
//! form with a comment in an odd place stays too.
//!
//! The forms end with the version in [`OLDER_FORMS_END_VERSION`].

use crate::edit::binds;
use crate::error::SyntaxError;
use crate::fmt::format;
use crate::lex::ByteSpan;
use crate::splice::{SourceLines, TextSplices};
use crate::tree::{
    ArgumentKind, CallExpression, Expression, ExpressionKind, SourceStatement, StatementKind,
    SyntaxTree,
};

mod rules;
mod sandbox;

/// The version of clash that no longer reads the forms of Clash 0.5 to 0.7. Then this
/// module and `older` of clash-lang go. `clash fmt --upgrade` rewrites the forms before.
pub const OLDER_FORMS_END_VERSION: &str = "1.0.0";

/// A policy in the present language, except for the forms in `left`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradedSource {
    /// Formatted if anything changed, otherwise unchanged.
    pub source: String,
    pub changes: Vec<UpgradeChange>,
    pub left: Vec<RemainingForm>,
}

/// A rewritten form, with its line in the old source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradeChange {
    pub line: usize,
    pub what: &'static str,
}

/// An older form that stays, with its line in the new source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemainingForm {
    pub line: usize,
    pub why: &'static str,
}

/// Rewrites all older forms of a policy that can be rewritten with certainty.
pub fn upgrade(source: &str) -> Result<UpgradedSource, SyntaxError> {
    let (new, changes, left) = rewrite_forms(source)?;
    if changes.is_empty() {
        return Ok(UpgradedSource { source: source.to_owned(), changes, left });
    }
    let new = format(&new)?;
    let (_, _, left) = rewrite_forms(&new)?;
    Ok(UpgradedSource { source: new, changes, left })
}

/// One pass: the new text, the changes, and the forms that stay.
fn rewrite_forms(
    source: &str,
) -> Result<(String, Vec<UpgradeChange>, Vec<RemainingForm>), SyntaxError> {
    let file = SyntaxTree::parse(source)?;
    let own = OLDER_NAMES.iter().copied().filter(|name| binds(file.statements(), name)).collect();
    let mut pass = UpgradePass { file: &file, own, changes: Vec::new(), left: Vec::new() };
    let mut out = TextSplices::default();
    pass.statements(file.statements(), &mut out);
    let UpgradePass { mut changes, mut left, .. } = pass;
    changes.sort_by_key(|change| change.line);
    left.sort_by_key(|left| left.line);
    left.dedup();
    Ok((out.apply(source), changes, left))
}

/// The place of an expression, which decides the meaning of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpressionRole {
    Plain,
    /// The tree of a policy, whose keys are tools.
    Tree,
    TreeKey,
    /// The file rules of a sandbox, whose keys are paths.
    Fs,
    FsKey,
    Net,
    Callee,
}

/// One pass over a policy.
struct UpgradePass<'a> {
    file: &'a SyntaxTree,
    /// Names of older forms that the policy binds itself.
    own: Vec<&'static str>,
    changes: Vec<UpgradeChange>,
    left: Vec<RemainingForm>,
}

const OLDER_NAMES: &[&str] = &[
    "Mode", "Tool", "allow", "ask", "deny", "domains", "match", "path", "policy", "sandbox", "tool",
];

/// The new text, or the reason why the old one stays.
type RewriteResult = Result<String, &'static str>;

const COMMENT: &str = "a comment stands inside it";

impl<'a> UpgradePass<'a> {
    fn line(&self, span: ByteSpan) -> usize {
        self.file.position(span.start).0
    }

    fn source(&self, expr: &Expression) -> String {
        self.file.text(expr.span).to_owned()
    }

    /// Rewrites the forms in these statements and in their blocks.
    fn statements(&mut self, statements: &'a [SourceStatement], out: &mut TextSplices) {
        for statement in statements {
            match &statement.kind {
                StatementKind::Expr(expr) => {
                    let new = match rules::is_chain(expr) {
                        true => self.attempt(expr, "a rule in builder form", |p| p.rule(expr)),
                        false => None,
                    };
                    let new = new.unwrap_or_else(|| self.text(expr, ExpressionRole::Plain));
                    self.splice(expr, new, out);
                }
                StatementKind::Assign { value, .. } | StatementKind::Return(Some(value)) => {
                    let new = self.text(value, ExpressionRole::Plain);
                    self.splice(value, new, out);
                }
                StatementKind::Def { body, .. } | StatementKind::For { body, .. } => {
                    self.statements(body, out);
                }
                StatementKind::If(branches) => {
                    branches.iter().for_each(|branch| self.statements(&branch.body, out));
                }
                _ => {}
            }
        }
    }

    /// Replaces an expression, unless its text stays.
    fn splice(&self, expr: &Expression, new: String, out: &mut TextSplices) {
        if new != self.file.text(expr.span) {
            out.replace(expr.span, new);
        }
    }

    /// Rewrites a form. If that fails, notes the reason and forgets the changes inside it.
    fn attempt(
        &mut self,
        expr: &Expression,
        what: &'static str,
        rewrite: impl FnOnce(&mut Self) -> RewriteResult,
    ) -> Option<String> {
        let (changes, left) = (self.changes.len(), self.left.len());
        let line = self.line(expr.span);
        self.changes.push(UpgradeChange { line, what });
        match rewrite(self) {
            Ok(text) => Some(text),
            Err(why) => {
                self.changes.truncate(changes);
                self.left.truncate(left);
                self.left.push(RemainingForm { line, why });
                None
            }
        }
    }

    /// Like [`Self::attempt`], for forms that would drop a comment in them.
    fn whole(
        &mut self,
        expr: &Expression,
        what: &'static str,
        rewrite: impl FnOnce(&mut Self) -> RewriteResult,
    ) -> Option<String> {
        let commented = SourceLines { file: self.file }.has_comments(expr.span);
        self.attempt(expr, what, |p| if commented { Err(COMMENT) } else { rewrite(p) })
    }

    /// The expression with everything older in it rewritten.
    fn text(&mut self, expr: &'a Expression, role: ExpressionRole) -> String {
        if let Some(new) = self.rewritten(expr, role) {
            return new;
        }
        let mut text = String::new();
        let mut end = expr.span.start;
        for (part, role) in parts(expr, role) {
            text.push_str(ByteSpan::new(end, part.span.start).text_in(self.file.source()));
            text.push_str(&self.text(part, role));
            end = part.span.end;
        }
        text.push_str(ByteSpan::new(end, expr.span.end).text_in(self.file.source()));
        text
    }

    /// The new text of an expression; `None` if it is no older form or stays.
    fn rewritten(&mut self, expr: &'a Expression, role: ExpressionRole) -> Option<String> {
        match (&expr.kind, role) {
            (ExpressionKind::Name(name), ExpressionRole::Callee) => match name.as_str() {
                "Tool" => self.attempt(expr, "`Tool` is `tool`", |_| Ok("tool".to_owned())),
                "Mode" => self.attempt(expr, "`Mode` is `mode`", |_| Ok("mode".to_owned())),
                "exe" | "cwd" | "home" | "tempdir" => {
                    let line = self.line(expr.span);
                    let why = "an older builder that clash cannot rewrite";
                    if self.left.iter().all(|left| left.line != line) {
                        self.left.push(RemainingForm { line, why });
                    }
                    None
                }
                _ => None,
            },
            (ExpressionKind::List(items, brackets), ExpressionRole::Fs) => {
                let what = "file rules as a list are a dict";
                self.attempt(expr, what, |p| p.fs_list(items, *brackets))
            }
            (ExpressionKind::Call(call), _) => self.call(expr, call, role),
            _ => None,
        }
    }

    /// The new text of a call; `None` if it is no older form or stays. Functions that the
    /// policy defines itself are no older forms.
    fn call(
        &mut self,
        expr: &'a Expression,
        call: &'a CallExpression,
        role: ExpressionRole,
    ) -> Option<String> {
        let one_dict = match call.args.as_slice() {
            [arg] if arg.kind == ArgumentKind::Positional => {
                matches!(arg.value.kind, ExpressionKind::Dict(..)).then_some(&arg.value)
            }
            _ => None,
        };
        let no_comment_around = |p: &Self, dict: &Expression| {
            let place = SourceLines { file: p.file };
            !place.has_comments(ByteSpan::new(expr.span.start, dict.span.start))
                && !place.has_comments(ByteSpan::new(dict.span.end, expr.span.end))
        };
        let name = call.name().filter(|name| !self.own.contains(name))?;
        match (name, role) {
            ("tool" | "Tool", ExpressionRole::TreeKey) => {
                rules::tool_names(call)?;
                self.whole(expr, "`tool(…)` at the root is the bare name", |p| p.tool_key(call))
            }
            ("allow" | "deny" | "ask", _) => {
                let older = |arg: &crate::tree::CallArgument| matches!(&arg.kind, ArgumentKind::Named(name) if capability(&name.text).is_some());
                call.args.iter().any(older).then_some(())?;
                self.whole(expr, "capabilities are letters", |p| p.effect(call, None))
            }
            ("match", _) => self.attempt(expr, "`match({…})` is the dict", |p| match one_dict {
                Some(dict) if no_comment_around(p, dict) => Ok(p.text(dict, role)),
                Some(_) => Err(COMMENT),
                None => Err("`match` with an argument that is not a plain dict"),
            }),
            ("domains", _) => self.attempt(expr, "`domains({…})` is the dict", |p| match one_dict
            {
                Some(dict) if role == ExpressionRole::Net && no_comment_around(p, dict) => {
                    Ok(p.text(dict, ExpressionRole::Plain))
                }
                Some(_) if role == ExpressionRole::Net => Err(COMMENT),
                _ => Err("`domains` as a part of a network rule"),
            }),
            ("path", ExpressionRole::FsKey) => {
                self.whole(expr, "`path(…)` in file rules is the bare string", |p| {
                    p.path_key(call)
                })
            }
            ("sandbox", _) => {
                let tree = sandbox::tree_form(call)?;
                let what = "a sandbox as a tree has keyword arguments";
                self.attempt(expr, what, |p| p.sandbox(call, tree))
            }
            ("policy", _) if call.named("rules").is_some() => {
                let line = self.line(expr.span);
                let why = "a list of rules has an order, and a tree has none";
                self.left.push(RemainingForm { line, why });
                None
            }
            _ => None,
        }
    }

    /// An effect with its capabilities as letters, and the sandbox of a builder.
    fn effect(
        &mut self,
        call: &'a CallExpression,
        sandbox: Option<&'a Expression>,
    ) -> RewriteResult {
        let name = match &call.callee.kind {
            ExpressionKind::Name(name) => name,
            ExpressionKind::Dot { name, .. } => &name.text,
            _ => return Err("an effect that is computed"),
        };
        let mut letters = Vec::new();
        let mut args = Vec::new();
        let mut given = false;
        for arg in &call.args {
            match &arg.kind {
                ArgumentKind::Named(keyword) if let Some(letter) = capability(&keyword.text) => {
                    given = true;
                    match arg.value.name() {
                        Some("True") => letters.push(letter),
                        Some("False") => {}
                        _ => return Err("a capability that is computed"),
                    }
                }
                ArgumentKind::Named(keyword) => {
                    let value = self.text(&arg.value, ExpressionRole::Plain);
                    args.push(format!("{} = {value}", keyword.text));
                }
                ArgumentKind::Positional if args.is_empty() => {
                    args.push(self.text(&arg.value, ExpressionRole::Plain));
                }
                _ => return Err("an effect whose arguments are computed"),
            }
        }
        if given {
            if letters.is_empty() || call.positional().next().is_some() {
                return Err("capabilities that are given twice or not at all");
            }
            letters.sort_by_key(|letter| "rwcdx".find(*letter));
            letters.dedup();
            args.insert(0, format!("\"{}\"", String::from_iter(letters)));
        }
        if let Some(sandbox) = sandbox {
            args.push(format!("sandbox = {}", self.text(sandbox, ExpressionRole::Plain)));
        }
        Ok(format!("{name}({})", args.join(", ")))
    }
}

/// The letter of a capability that older policies write as a keyword.
fn capability(keyword: &str) -> Option<char> {
    match keyword {
        "read" => Some('r'),
        "write" => Some('w'),
        "create" => Some('c'),
        "delete" => Some('d'),
        "execute" => Some('x'),
        _ => None,
    }
}

/// The expressions below one, in source order, each with its role.
fn parts(expr: &Expression, role: ExpressionRole) -> Vec<(&Expression, ExpressionRole)> {
    match (&expr.kind, role) {
        (ExpressionKind::Dict(entries, _), ExpressionRole::Tree) => {
            let value = |key: &Expression| match key.call().and_then(CallExpression::name) {
                Some("mode" | "Mode" | "agent") => ExpressionRole::Tree,
                _ => ExpressionRole::Plain,
            };
            let both = |e: &'_ crate::tree::DictEntry| value(&e.key);
            entries
                .iter()
                .flat_map(|e| [(&e.key, ExpressionRole::TreeKey), (&e.value, both(e))])
                .collect()
        }
        (ExpressionKind::Dict(entries, _), ExpressionRole::Fs) => {
            let value = |value: &Expression| match value.kind {
                ExpressionKind::Dict(..) => ExpressionRole::Fs,
                _ => ExpressionRole::Plain,
            };
            entries
                .iter()
                .flat_map(|e| [(&e.key, ExpressionRole::FsKey), (&e.value, value(&e.value))])
                .collect()
        }
        (ExpressionKind::Tuple(items, _), ExpressionRole::TreeKey | ExpressionRole::FsKey) => {
            items.iter().map(|item| (item, role)).collect()
        }
        (ExpressionKind::Call(call), _) => {
            let name = call.name();
            let mut position = 0;
            let args = call.args.iter().map(|arg| {
                let place = position;
                position += usize::from(arg.kind == ArgumentKind::Positional);
                let named = match &arg.kind {
                    ArgumentKind::Named(keyword) => keyword.text.as_str(),
                    ArgumentKind::Positional => "",
                    _ => return (&arg.value, ExpressionRole::Plain),
                };
                let role = match (name, named, place) {
                    (Some("when"), "", 0) | (Some("policy"), "", 1) => ExpressionRole::Tree,
                    (Some("when" | "policy"), "tree", _) => ExpressionRole::Tree,
                    (Some("merge"), "", _) if role == ExpressionRole::Tree => ExpressionRole::Tree,
                    (Some("sandbox"), "fs", _) => ExpressionRole::Fs,
                    (Some("sandbox"), "net", _) => ExpressionRole::Net,
                    _ => ExpressionRole::Plain,
                };
                (&arg.value, role)
            });
            [(call.callee.as_ref(), ExpressionRole::Callee)].into_iter().chain(args).collect()
        }
        _ => expr.children().into_iter().map(|child| (child, ExpressionRole::Plain)).collect(),
    }
}
