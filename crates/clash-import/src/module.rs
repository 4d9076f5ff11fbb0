//! An imported policy as a module that another policy loads. A stack of files has
//! one `settings()` and one sandbox of each name, so the module has none of its
//! own settings and says at each rule what they said.

use std::ops::Range;

use clash_syntax::{
    ByteSpan, CallExpression, Expression, ExpressionKind, StatementKind, SyntaxError, SyntaxTree,
};

/// What of a policy goes into the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptRules {
    Everything,
    /// Denies and asks: for settings that are nobody's word.
    Restrictions,
}

/// The text of a module, and whether what it was made from denies by default.
#[derive(Clone, Debug)]
pub struct ImportedModule {
    pub text: String,
    pub denies_by_default: bool,
}

/// What the policy that loads the module gets from it; a `load()` has to name
/// something.
pub const MODULE_EXPORT: &str = "imported";

/// Turns a policy that stands on its own into the module `name`.
pub fn module(source: &str, name: &str, keep: KeptRules) -> Result<ImportedModule, SyntaxError> {
    let file = SyntaxTree::parse(source)?;
    let mut edits = ModuleEdits { name, sandboxes: Vec::new(), room: None, edits: Vec::new() };
    let mut denies_by_default = false;
    for statement in file.statements() {
        match &statement.kind {
            StatementKind::Assign { target, value, .. } => {
                let defines = value.call().is_some_and(|call| call.name() == Some("sandbox"));
                edits.sandboxes.extend(target.name().filter(|_| defines).map(str::to_owned));
            }
            StatementKind::Expr(expr) => {
                let Some(call) = expr.call().filter(|call| call.name() == Some("settings")) else {
                    continue;
                };
                edits.room =
                    call.named("default_sandbox").and_then(Expression::name).map(str::to_owned);
                let default =
                    call.named("default").and_then(Expression::call).and_then(CallExpression::name);
                denies_by_default = default == Some("deny");
                edits.replace(statement.span, String::new());
            }
            _ => {}
        }
    }
    for statement in file.statements() {
        match &statement.kind {
            StatementKind::Assign { target, value, .. } => {
                edits.names(target);
                edits.names(value);
                edits.sandbox_name(value);
            }
            StatementKind::Expr(expr) => match expr.call() {
                Some(call)
                    if call.name() == Some("policy")
                        && keep == KeptRules::Restrictions
                        && is_allows(call) =>
                {
                    edits.replace(statement.span, String::new());
                }
                Some(call) if call.name() == Some("policy") => {
                    edits.policy_name(call);
                    edits.names(expr);
                    edits.rules(expr);
                }
                _ => {}
            },
            _ => {}
        }
    }
    let text = edits.apply(source);
    let text =
        clash_syntax::fmt::format(&format!("{}\n\n{MODULE_EXPORT} = True\n", text.trim_end()))?;
    Ok(ImportedModule { text, denies_by_default })
}

/// The importers put every allow into one policy.
fn is_allows(call: &CallExpression) -> bool {
    let name = call.positional().next().and_then(Expression::string);
    name == Some(crate::draft::ALLOWS)
}

struct ModuleEdits<'a> {
    name: &'a str,
    sandboxes: Vec<String>,
    /// The sandbox of what names none.
    room: Option<String>,
    edits: Vec<(Range<usize>, String)>,
}

impl ModuleEdits<'_> {
    fn replace(&mut self, span: ByteSpan, by: String) {
        self.edits.push((span.start..span.end, by));
    }

    /// What a sandbox of the original is called here.
    fn renamed(&self, sandbox: &str) -> Option<String> {
        self.sandboxes.iter().any(|known| known == sandbox).then(|| match sandbox {
            "imported" => format!("{}_sandbox", self.name),
            other => format!("{}_{other}", self.name),
        })
    }

    fn names(&mut self, expr: &Expression) {
        if let Some(renamed) = expr.name().and_then(|name| self.renamed(name)) {
            self.replace(expr.span, renamed);
        }
        expr.children().into_iter().for_each(|child| self.names(child));
    }

    fn sandbox_name(&mut self, value: &Expression) {
        let name = value.call().and_then(|call| call.named("name"));
        let Some(name) = name else { return };
        if let Some(renamed) = name.string().and_then(|name| self.renamed(name)) {
            self.replace(name.span, format!("\"{renamed}\""));
        }
    }

    fn policy_name(&mut self, call: &CallExpression) {
        if let Some(first) = call.positional().next()
            && let Some(name) = first.string()
        {
            let name = name.replacen("imported", self.name, 1);
            self.replace(first.span, format!("\"{name}\""));
        }
    }

    /// Names the sandbox at every rule that leaves it to the settings.
    fn rules(&mut self, expr: &Expression) {
        let room = self.room.as_ref().map(|room| self.renamed(room).unwrap_or(room.clone()));
        if let (ExpressionKind::Call(call), Some(room)) = (&expr.kind, room)
            && matches!(call.name(), Some("allow" | "ask"))
            && call.named("sandbox").is_none()
        {
            let comma = if call.args.is_empty() { "" } else { ", " };
            let at = call.brackets.inner.start;
            self.edits.push((at..at, format!("sandbox = {room}{comma}")));
        }
        expr.children().into_iter().for_each(|child| self.rules(child));
    }

    fn apply(mut self, source: &str) -> String {
        self.edits.sort_by_key(|(span, _)| span.start);
        let (mut out, mut end) = (String::new(), 0);
        for (span, text) in self.edits {
            out.push_str(source.get(end..span.start).unwrap_or_default());
            out.push_str(&text);
            end = span.end;
        }
        out.push_str(source.get(end..).unwrap_or_default());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_said_at_each_rule_and_names_are_the_module_s_own() {
        let source = r#"# Imported from f.

imported = sandbox(name = "imported", fs = {"$PWD": allow("rx")})

settings(default = deny(), default_sandbox = imported)

policy("imported allows", {
    # permissions.allow[0]
    "Bash": allow(),
    "Read": ask(reason = "x"),
    "Write": allow(sandbox = imported),
    "Edit": deny(),
})
"#;
        let ImportedModule { text, denies_by_default } =
            module(source, "imported_claude", KeptRules::Everything).unwrap();
        assert!(denies_by_default);
        insta::assert_snapshot!(text, @r#"
        # Imported from f.

        imported_claude_sandbox = sandbox(name = "imported_claude_sandbox", fs = {"$PWD": allow("rx")})

        policy("imported_claude allows", {
            # permissions.allow[0]
            "Bash": allow(sandbox = imported_claude_sandbox),
            "Read": ask(sandbox = imported_claude_sandbox, reason = "x"),
            "Write": allow(sandbox = imported_claude_sandbox),
            "Edit": deny(),
        })

        imported = True
        "#);
        let restrictions = module(source, "x", KeptRules::Restrictions).unwrap().text;
        assert!(!restrictions.contains("policy("), "{restrictions}");
    }
}
