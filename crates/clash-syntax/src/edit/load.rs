//! Binds the sandboxes that an effect names: from the policy itself or from the library.

use super::EditError;
use crate::draft::{library_module, load_line, string_literal};
use crate::splice::{BracketItems, SourceLines, TextSplices};
use crate::tree::{Expression, ExpressionKind, LoadStatement, SourceStatement, StatementKind};

/// Loads the sandboxes that the file does not bind.
pub(super) fn bind(
    place: &SourceLines<'_>,
    sandboxes: &[String],
    out: &mut TextSplices,
) -> Result<(), EditError> {
    for name in sandboxes {
        if binds(place.file.statements(), name) {
            continue;
        }
        let unknown = || EditError::Sandbox { name: name.clone() };
        load(place, library_module(name).ok_or_else(unknown)?, name, out);
    }
    Ok(())
}

/// True if the statements, or those in their blocks, bind the name.
pub(crate) fn binds(statements: &[SourceStatement], name: &str) -> bool {
    statements.iter().any(|statement| match &statement.kind {
        StatementKind::Load(load) => load.symbols.iter().any(|s| s.bound() == Some(name)),
        StatementKind::Assign { target, .. } => names(target, name),
        StatementKind::Def { name: def, .. } => def.text == name,
        StatementKind::For { target, body, .. } => names(target, name) || binds(body, name),
        StatementKind::If(branches) => branches.iter().any(|branch| binds(&branch.body, name)),
        _ => false,
    })
}

/// True if the target of an assignment binds a name.
fn names(target: &Expression, name: &str) -> bool {
    match &target.kind {
        ExpressionKind::Name(given) => given == name,
        ExpressionKind::Tuple(items, _) | ExpressionKind::List(items, _) => {
            items.iter().any(|item| names(item, name))
        }
        ExpressionKind::Paren(inner) => names(inner, name),
        _ => false,
    }
}

/// Adds a name to the `load()` of its module, or a `load()` behind the others or at the
/// head of the file.
fn load(place: &SourceLines<'_>, module: &str, name: &str, out: &mut TextSplices) {
    let statements = place.file.statements();
    let loads = || {
        statements.iter().filter_map(|statement| match &statement.kind {
            StatementKind::Load(load) => Some((statement, load)),
            _ => None,
        })
    };
    if let Some((_, load)) = loads().find(|(_, load)| load.path() == Some(module)) {
        return extend(place, load, name, out);
    }
    let line = load_line(module, &[name]);
    if let Some((last, _)) = loads().next_back() {
        out.insert(place.line_end(last.span.end), format!("\n{line}"));
        return;
    }
    match statements.first() {
        Some(SourceStatement { kind: StatementKind::Expr(doc), span, .. })
            if doc.string().is_some() =>
        {
            out.insert(place.line_end(span.end), format!("\n\n{line}"));
        }
        Some(first) => {
            // A comment at the head of the file is about the file, so it stays first.
            let at = place.comments_above(first.span.start);
            out.insert(at, format!("{line}\n\n"));
        }
        None => out.insert_first(0, format!("{line}\n\n")),
    }
}

/// Adds a name to a `load()`, in alphabetical order.
fn extend(place: &SourceLines<'_>, load: &LoadStatement, name: &str, out: &mut TextSplices) {
    let symbols = load.symbols.iter().map(|symbol| symbol.span);
    let spans = [load.module.span].into_iter().chain(symbols).collect();
    let after = load.symbols.iter().position(|symbol| {
        symbol.local.is_some() || symbol.bound().is_some_and(|bound| bound > name)
    });
    let at = 1 + after.unwrap_or(load.symbols.len());
    place.put(&BracketItems { brackets: load.brackets, spans }, at, &string_literal(name), out);
}
