//! Names an effect needs: what the policy binds, and where clash offers the rest.

use super::EditError;
use super::key::quote;
use crate::splice::{BracketItems, SourceLines, TextSplices};
use crate::tree::{Expression, ExpressionKind, LoadStatement, SourceStatement, StatementKind};

/// The sandboxes of the standard library and their modules. A test compares it
/// with the library.
const LIBRARY_SANDBOXES: &[(&str, &[&str])] = &[
    (
        "@clash//sandboxes.star",
        &["git_full", "git_safe", "online", "project", "readonly", "unrestricted", "workspace"],
    ),
    ("@clash//agent.star", &["agent"]),
    ("@clash//builtin.star", &["clashbox"]),
    ("@clash//bazel.star", &["bazel_full", "bazel_safe"]),
    ("@clash//c.star", &["c_full", "c_safe"]),
    ("@clash//databases.star", &["databases_full", "databases_safe"]),
    ("@clash//docker.star", &["docker_engine", "docker_full", "docker_safe"]),
    ("@clash//dotnet.star", &["dotnet_full", "dotnet_safe"]),
    ("@clash//elixir.star", &["elixir_full", "elixir_safe"]),
    ("@clash//git.star", &["git_checkout_safe", "git_rebase_safe"]),
    ("@clash//github.star", &["github_full", "github_safe"]),
    ("@clash//go.star", &["go_full", "go_safe"]),
    ("@clash//haskell.star", &["haskell_full", "haskell_safe"]),
    ("@clash//java.star", &["java_full", "java_safe"]),
    ("@clash//kubernetes.star", &["kubernetes_full", "kubernetes_safe"]),
    ("@clash//make.star", &["make_full", "make_safe"]),
    ("@clash//nix.star", &["nix_full", "nix_safe"]),
    ("@clash//node.star", &["node_full", "node_safe"]),
    ("@clash//php.star", &["php_full", "php_safe"]),
    ("@clash//python.star", &["python_full", "python_safe"]),
    ("@clash//ruby.star", &["ruby_full", "ruby_safe"]),
    ("@clash//rust.star", &["rust_full", "rust_safe"]),
    ("@clash//swift.star", &["swift_full", "swift_safe"]),
    ("@clash//terraform.star", &["terraform_full", "terraform_safe"]),
    ("@clash//zig.star", &["zig_full", "zig_safe"]),
];

/// The module of clash that offers a sandbox.
pub fn module_of(sandbox: &str) -> Option<&'static str> {
    LIBRARY_SANDBOXES.iter().find(|(_, names)| names.contains(&sandbox)).map(|(module, _)| *module)
}

/// Loads the sandboxes the file does not have.
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
        load(place, module_of(name).ok_or_else(unknown)?, name, out);
    }
    Ok(())
}

/// Whether the statements, or those in their blocks, give the name a meaning.
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
    let line = format!("load({}, {})", quote(module), quote(name));
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
            // A comment at the head of the file is about the file.
            let at = place.comments_above(first.span.start);
            out.insert(at, format!("{line}\n\n"));
        }
        None => out.insert_first(0, format!("{line}\n\n")),
    }
}

fn extend(place: &SourceLines<'_>, load: &LoadStatement, name: &str, out: &mut TextSplices) {
    let symbols = load.symbols.iter().map(|symbol| symbol.span);
    let spans = [load.module.span].into_iter().chain(symbols).collect();
    let after = load.symbols.iter().position(|symbol| {
        symbol.local.is_some() || symbol.bound().is_some_and(|bound| bound > name)
    });
    let at = 1 + after.unwrap_or(load.symbols.len());
    place.put(&BracketItems { brackets: load.brackets, spans }, at, &quote(name), out);
}

#[cfg(test)]
mod tests {
    use super::module_of;
    use crate::testing::library;
    use crate::{ExpressionKind, StatementKind, SyntaxTree};

    #[test]
    fn every_sandbox_of_the_library_can_be_loaded() {
        for source in &library() {
            let file = SyntaxTree::parse(source).unwrap();
            for statement in file.statements() {
                let StatementKind::Assign { target, value, .. } = &statement.kind else { continue };
                if let (ExpressionKind::Name(name), Some(call)) = (&target.kind, value.call())
                    && call.name() == Some("sandbox")
                {
                    assert!(module_of(name).is_some(), "{name}");
                }
            }
        }
    }
}
