//! Adds, changes and removes rules in a policy's text. Only the lines of the rule
//! change; the rest of the text keeps its comments, spelling and order.
//!
//! The editor reads the dicts that are written out in `when({…})` and
//! `policy(name, {…})`. It does not see computed rules, for example those of a loop. In
//! such a policy it adds a `when` of its own. Asked to remove a rule, it names the line
//! that computes rules.

use crate::diff::{ChangedLines, changed_lines};
use crate::error::SyntaxError;
use crate::fmt::format;
use crate::lex::{ByteSpan, TokenKind};
use crate::splice::{BracketItems, SourceLines, TextSplices};
use crate::tree::{
    DictEntry, Expression, ExpressionKind, SourceStatement, StatementKind, SyntaxTree,
};

mod find;
mod key;
mod load;
mod statements;

use find::{LocationEnd, PolicyTrees, RuleLocation, TreeStep};
pub use key::RuleKey;
pub(crate) use load::binds;
pub use statements::{define, names_sandbox, without_questions};

/// A policy's source after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditedSource {
    pub source: String,
    /// Lines of the new source that are new or different, from one.
    pub added: Vec<usize>,
    /// Lines of the old source that are gone or different, from one.
    pub removed: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error("the policy does not parse: {0}")]
    Policy(#[source] SyntaxError),
    #[error("`{effect}` is not an effect like `allow()` or `deny(reason = \"…\")`")]
    Effect { effect: String },
    #[error("a rule needs at least a tool")]
    NoPath,
    #[error("the sandbox `{name}` is not defined in this policy, and no module of clash offers it")]
    Sandbox { name: String },
    #[error("there is no rule for {rule}")]
    NotFound { rule: String },
    #[error("line {line}: {rule} has no rule of its own, only rules below it")]
    OnlyBelow { rule: String, line: usize },
    #[error("line {line}: this rule is shared with others; edit it by hand")]
    Shared { line: usize },
    #[error("line {line}: `{what}` is computed, so {rule} may come from there; edit it by hand")]
    Computed { rule: String, what: String, line: usize },
    #[error("the change would leave a policy that does not parse: {0}")]
    Result(#[source] SyntaxError),
}

/// Gives the rule at `path` the effect, in place of its old one. A rule that is written
/// several times changes everywhere. A new rule goes into the tree that has most of its
/// keys; if no tree can take it, a `when({…})` of its own is appended.
///
/// The effect is source text like `deny(reason = "…")`. If it names a sandbox that the
/// policy does not bind, the policy loads it from the library.
pub fn set(source: &str, path: &[RuleKey], effect: &str) -> Result<EditedSource, EditError> {
    let path = without_wildcards(path)?;
    let effect = EffectText::parse(effect)?;
    let file = SyntaxTree::parse(source).map_err(EditError::Policy)?;
    let place = SourceLines { file: &file };
    let trees = PolicyTrees::find(&file);
    let mut out = TextSplices::default();
    let found: Vec<RuleLocation<'_>> = trees.visible.iter().map(|tree| tree.find(path)).collect();
    let exact: Vec<_> = found.iter().filter(|found| found.is_exact()).collect();
    if exact.is_empty() {
        let best = found.iter().filter(|found| !found.is_closed(&place)).max_by_key(|f| f.score());
        match best {
            Some(found) => put(&place, found, path, &effect.text, &mut out),
            None => append(&place, path, &effect.text, &mut out),
        }
    } else {
        exact.into_iter().for_each(|found| put(&place, found, path, &effect.text, &mut out));
    }
    if !out.is_empty() {
        load::bind(&place, &effect.sandboxes, &mut out)?;
    }
    finish(source, out)
}

/// Removes the rule at `path` wherever it is written, and the dicts and statements that
/// this leaves empty. It is an error if there is no such rule, if a key above it also
/// stands for other rules, or if a computed tree may hold it.
pub fn remove(source: &str, path: &[RuleKey]) -> Result<EditedSource, EditError> {
    let path = without_wildcards(path)?;
    let file = SyntaxTree::parse(source).map_err(EditError::Policy)?;
    let place = SourceLines { file: &file };
    let trees = PolicyTrees::find(&file);
    let line = |span: ByteSpan| file.position(span.start).0;
    let mut leaves = Vec::new();
    for tree in &trees.visible {
        tree.leaves(path, &mut leaves);
    }
    if let Some(shared) = leaves.iter().find_map(|leaf| leaf.shared()) {
        return Err(EditError::Shared { line: line(shared) });
    }
    let mut out = TextSplices::default();
    for leaf in &leaves {
        take(&place, &leaf.steps, leaf.statement, &mut out);
    }
    if !leaves.is_empty() {
        return finish(source, out);
    }
    let rule = key::spell(path);
    let found: Vec<_> = trees.visible.iter().map(|tree| tree.find(path)).collect();
    let computed = found.iter().filter_map(|found| found.computed());
    if let Some(span) = trees.computed.iter().copied().chain(computed).min() {
        let text = file.text(span);
        let what = text.lines().next().unwrap_or_default().trim_end().to_owned();
        return Err(EditError::Computed { rule, what, line: line(span) });
    }
    let below = found.iter().find_map(|found| match found.end {
        LocationEnd::Branch(dict) => Some(dict.span),
        _ => None,
    });
    Err(match below {
        Some(span) => EditError::OnlyBelow { rule, line: line(span) },
        None => EditError::NotFound { rule },
    })
}

/// The path without trailing `glob("**")` keys: `"git"` and `"git", glob("**")` are the
/// same rule. An empty path is an error.
fn without_wildcards(path: &[RuleKey]) -> Result<&[RuleKey], EditError> {
    match path {
        [] => Err(EditError::NoPath),
        [before @ .., last] if last.is_wildcard() && !before.is_empty() => {
            without_wildcards(before)
        }
        _ => Ok(path),
    }
}

/// An effect as source text, and the sandbox it names.
struct EffectText {
    text: String,
    sandboxes: Vec<String>,
}

impl EffectText {
    /// Reads one effect, formatted and on one line. Everything else is an error: a comment,
    /// a second statement, or another function.
    fn parse(text: &str) -> Result<Self, EditError> {
        let wrong = || EditError::Effect { effect: text.to_owned() };
        let text = format(text).map_err(|_| wrong())?;
        let text = text.trim_end();
        let file = SyntaxTree::parse(text).map_err(|_| wrong())?;
        let commented = file.tokens().iter().any(|token| token.kind == TokenKind::Comment);
        match file.statements() {
            [SourceStatement { kind: StatementKind::Expr(expr), semicolon: false, .. }]
                if find::is_effect(expr) && !commented && !text.contains('\n') =>
            {
                let named = expr.call().and_then(|call| call.named("sandbox"));
                let sandboxes = named.and_then(Expression::name).map(str::to_owned);
                Ok(Self { text: text.to_owned(), sandboxes: sandboxes.into_iter().collect() })
            }
            _ => Err(wrong()),
        }
    }
}

/// Applies the changes. A result that does not parse is an error.
fn finish(source: &str, out: TextSplices) -> Result<EditedSource, EditError> {
    let new = out.apply(source);
    SyntaxTree::parse(&new).map_err(EditError::Result)?;
    let ChangedLines { added, removed } = changed_lines(source, &new);
    Ok(EditedSource { source: new, added, removed })
}

/// An entry of a dict, nested as deep as it has keys: `"git": {"push": deny()}`.
fn entry(keys: &[RuleKey], effect: &str) -> String {
    match keys {
        [] => effect.to_owned(),
        [last] => format!("{last}: {effect}"),
        [first, rest @ ..] => format!("{first}: {{{}}}", entry(rest, effect)),
    }
}

/// The entries of a dict with their brackets; `None` for other expressions.
fn items(entries: &[DictEntry], dict: &Expression) -> Option<BracketItems> {
    match &dict.kind {
        ExpressionKind::Dict(_, brackets) => {
            let spans = entries.iter().map(|entry| entry.span).collect();
            Some(BracketItems { brackets: *brackets, spans })
        }
        _ => None,
    }
}

/// Writes the effect at a place: a new entry, a new value, or a branch that keeps the old
/// value for everything else.
fn put(
    place: &SourceLines<'_>,
    found: &RuleLocation<'_>,
    path: &[RuleKey],
    effect: &str,
    out: &mut TextSplices,
) {
    let rest = path.get(found.consumed..).unwrap_or_default();
    match &found.end {
        LocationEnd::Insert(dict) => put_entry(place, dict, &entry(rest, effect), out),
        LocationEnd::Branch(dict) => match find::wildcard(dict) {
            Some(old) => replace(place, &old.value, effect, out),
            None => put_entry(place, dict, &format!("{}: {effect}", RuleKey::wildcard()), out),
        },
        LocationEnd::Leaf(value) if rest.is_empty() => match found.steps.last() {
            Some(step) if step.alternatives > 1 => split(place, step, value, effect, out),
            _ => replace(place, value, effect, out),
        },
        LocationEnd::Leaf(value) => {
            let old = place.file.text(value.span);
            let both = format!("{{{}, {}: {old}}}", entry(rest, effect), RuleKey::wildcard());
            out.replace(value.span, both);
        }
        LocationEnd::Computed(_) => {}
    }
}

/// Replaces a value, unless it has this text already.
fn replace(place: &SourceLines<'_>, value: &Expression, effect: &str, out: &mut TextSplices) {
    if place.file.text(value.span) != effect {
        out.replace(value.span, effect);
    }
}

/// Puts an entry before the rule for everything else, which people expect last.
fn put_entry(place: &SourceLines<'_>, dict: &Expression, text: &str, out: &mut TextSplices) {
    let ExpressionKind::Dict(entries, _) = &dict.kind else { return };
    let Some(items) = items(entries, dict) else { return };
    let ends_general = entries.last().is_some_and(|entry| find::is_general(&entry.key));
    let at = entries.len() - usize::from(ends_general);
    place.put(&items, at, text, out);
}

/// Gives one alternative of a tuple an entry of its own.
fn split(
    place: &SourceLines<'_>,
    step: &TreeStep<'_>,
    value: &Expression,
    effect: &str,
    out: &mut TextSplices,
) {
    if place.file.text(value.span) == effect {
        return;
    }
    let Some(items) = items(step.entries, step.dict) else { return };
    let text = format!("{}: {effect}", place.file.text(step.alternative));
    place.put(&items, step.entry, &text, out);
    take_alternative(place, step, out);
}

/// Removes one alternative of a tuple; of two, the other one becomes the key.
fn take_alternative(place: &SourceLines<'_>, step: &TreeStep<'_>, out: &mut TextSplices) {
    let Some((key, list)) = &step.list else { return };
    let at = list.spans.iter().position(|span| *span == step.alternative);
    let other = list.spans.iter().find(|span| **span != step.alternative);
    match (list.spans.len(), other, key) {
        (2, Some(other), Some(tuple)) if !place.has_comments(*tuple) => {
            out.replace(*tuple, place.file.text(*other));
        }
        _ => place.take(list, at.unwrap_or(usize::MAX), out),
    }
}

/// Removes the innermost entry, or the outermost one that would be left empty.
fn take(
    place: &SourceLines<'_>,
    steps: &[TreeStep<'_>],
    statement: &SourceStatement,
    out: &mut TextSplices,
) {
    let Some((step, outer)) = steps.split_last() else { return };
    if step.alternatives > 1 {
        return take_alternative(place, step, out);
    }
    let Some(items) = items(step.entries, step.dict) else { return };
    let inner = items.brackets.inner;
    let kept = step.entries.len() - 1;
    // A comment that is not the entry's own keeps the dict.
    let first = place.comments_above(inner.start.max(step.alternative.start));
    let stays = place.has_comments(ByteSpan::new(inner.start, first.max(inner.start)))
        || place.has_comments(ByteSpan::new(place.line_end(items.last_end()), inner.end));
    if kept == 0 && !stays && (!outer.is_empty() || step.removable) {
        return match outer.is_empty() {
            true => take_statement(place, statement, out),
            false => take(place, outer, statement, out),
        };
    }
    let other = step.entries.iter().enumerate().find(|(at, _)| *at != step.entry);
    match other {
        Some((_, other))
            if kept == 1
                && !outer.is_empty()
                && find::is_wildcard(&other.key)
                && !place.has_comments(inner) =>
        {
            out.replace(step.dict.span, place.file.text(other.value.span));
        }
        _ => place.take(&items, step.entry, out),
    }
}

/// Removes a statement with the comments right above it, and one of two empty lines around
/// it.
fn take_statement(place: &SourceLines<'_>, statement: &SourceStatement, out: &mut TextSplices) {
    let from = place.comments_above(statement.span.start);
    let to = place.next_line(statement.span.end);
    let above = place.line_start(from.saturating_sub(1));
    let blank = |at: usize| {
        ByteSpan::new(at, place.line_end(at)).text_in(place.file.source()).trim().is_empty()
    };
    let from = if from > 0 && blank(above) && blank(to) { above } else { from };
    out.replace(ByteSpan::new(from, to), "");
}

/// Appends `when({…})` with the rule at the end of the file.
fn append(place: &SourceLines<'_>, path: &[RuleKey], effect: &str, out: &mut TextSplices) {
    let source = place.file.source();
    let call = format!("when({{\n{},\n}})\n", entry(path, effect));
    let call = format(&call).unwrap_or(call);
    let before = match source {
        "" => "",
        _ if source.ends_with("\n\n") => "",
        _ if source.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    out.insert(source.len(), format!("{before}{call}"));
}
