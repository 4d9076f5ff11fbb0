//! A policy as a module that another policy loads.
//!
//! A stack of policy files has one `settings()` call and one sandbox of each name. So a
//! module has no settings of its own: each rule names its sandbox, and each sandbox has
//! the module's name in front.

use super::string_literal;
use crate::error::SyntaxError;
use crate::fmt::format;
use crate::splice::TextSplices;
use crate::tree::{
    CallExpression, Expression, ExpressionKind, SourceStatement, StatementKind, SyntaxTree,
};

/// The name that a module exports, because `load()` has to name something.
pub const MODULE_EXPORT: &str = "imported";

/// The text of a module, and whether the policy it was made from denies by default.
#[derive(Clone, Debug)]
pub struct PolicyModule {
    pub text: String,
    pub denies_by_default: bool,
}

/// Turns a policy that stands on its own into the module `name`: without settings, with
/// renamed sandboxes, and with the default sandbox at each rule of a `policy()`. The
/// `policy()` call named `dropped` stays out. Rules in `when()` stay as they are.
pub fn make_module(
    source: &str,
    name: &str,
    dropped: Option<&str>,
) -> Result<PolicyModule, SyntaxError> {
    let file = SyntaxTree::parse(source)?;
    let mut maker = ModuleMaker {
        name,
        sandboxes: Vec::new(),
        default_sandbox: None,
        denies_by_default: false,
        splices: TextSplices::default(),
    };
    file.statements().iter().for_each(|statement| maker.take_settings(statement));
    file.statements().iter().for_each(|statement| maker.rename_in(statement, dropped));
    let text = maker.splices.apply(source);
    let text = format(&format!("{}\n\n{MODULE_EXPORT} = True\n", text.trim_end()))?;
    Ok(PolicyModule { text, denies_by_default: maker.denies_by_default })
}

/// A policy with one more module loaded: behind its other loads, else at its head. A policy
/// that loads it already stays as it is.
pub fn load_module(policy: &str, name: &str) -> Result<String, SyntaxError> {
    let module = string_literal(&format!("{name}.star"));
    let line = format!("load({module}, {name} = {})", string_literal(MODULE_EXPORT));
    if policy.lines().any(|known| known.trim() == line) {
        return Ok(policy.to_owned());
    }
    let file = SyntaxTree::parse(policy)?;
    let mut loads = file.statements().iter().filter(|it| matches!(it.kind, StatementKind::Load(_)));
    let last = loads.next_back().map(|statement| file.position(statement.span.end).0);
    let mut lines: Vec<&str> = policy.lines().collect();
    let at = last.map_or(0, |line| line.min(lines.len()));
    lines.insert(at, &line);
    if at == 0 && lines.len() > 1 {
        lines.insert(1, "");
    }
    Ok(format!("{}\n", lines.join("\n")))
}

struct ModuleMaker<'a> {
    name: &'a str,
    /// The sandboxes that the policy defines.
    sandboxes: Vec<String>,
    /// The sandbox of rules that name none.
    default_sandbox: Option<String>,
    denies_by_default: bool,
    splices: TextSplices,
}

impl ModuleMaker<'_> {
    /// Notes the sandboxes and the settings, and removes the settings.
    fn take_settings(&mut self, statement: &SourceStatement) {
        match &statement.kind {
            StatementKind::Assign { target, value, .. } => {
                let defines = value.call().is_some_and(|call| call.name() == Some("sandbox"));
                self.sandboxes.extend(target.name().filter(|_| defines).map(str::to_owned));
            }
            StatementKind::Expr(expr) => {
                let settings = expr.call().filter(|call| call.name() == Some("settings"));
                let Some(call) = settings else { return };
                let sandbox = call.named("default_sandbox").and_then(Expression::name);
                self.default_sandbox = sandbox.map(str::to_owned);
                let default = call.named("default").and_then(Expression::call);
                self.denies_by_default = default.and_then(CallExpression::name) == Some("deny");
                self.splices.replace(statement.span, "");
            }
            _ => {}
        }
    }

    /// Renames the sandboxes and policies in a statement.
    fn rename_in(&mut self, statement: &SourceStatement, dropped: Option<&str>) {
        match &statement.kind {
            StatementKind::Assign { target, value, .. } => {
                self.rename_variables(target);
                self.rename_variables(value);
                self.rename_sandbox(value);
            }
            StatementKind::Expr(expr) => {
                let policy = expr.call().filter(|call| call.name() == Some("policy"));
                let Some(call) = policy else { return };
                let name = call.positional().next().and_then(Expression::string);
                if dropped.is_some() && name == dropped {
                    self.splices.replace(statement.span, "");
                    return;
                }
                self.rename_policy(call);
                self.rename_variables(expr);
                self.name_default_sandbox(expr);
            }
            _ => {}
        }
    }

    /// The name of one of the policy's sandboxes in the module; `None` for other names.
    fn renamed(&self, sandbox: &str) -> Option<String> {
        self.sandboxes.iter().any(|known| known == sandbox).then(|| match sandbox {
            "imported" => format!("{}_sandbox", self.name),
            other => format!("{}_{other}", self.name),
        })
    }

    /// Renames every use of a sandbox in an expression.
    fn rename_variables(&mut self, expr: &Expression) {
        if let Some(renamed) = expr.name().and_then(|name| self.renamed(name)) {
            self.splices.replace(expr.span, renamed);
        }
        expr.children().into_iter().for_each(|child| self.rename_variables(child));
    }

    /// Renames the `name` of a `sandbox()`.
    fn rename_sandbox(&mut self, value: &Expression) {
        let name = value.call().and_then(|call| call.named("name"));
        let Some(name) = name else { return };
        if let Some(renamed) = name.string().and_then(|name| self.renamed(name)) {
            self.splices.replace(name.span, string_literal(&renamed));
        }
    }

    /// Puts the name of the module in the place of `imported` in the name of a `policy()`.
    fn rename_policy(&mut self, call: &CallExpression) {
        if let Some(first) = call.positional().next()
            && let Some(name) = first.string()
        {
            let name = name.replacen("imported", self.name, 1);
            self.splices.replace(first.span, string_literal(&name));
        }
    }

    /// Names the default sandbox at every rule that leaves the sandbox to the settings.
    fn name_default_sandbox(&mut self, expr: &Expression) {
        let sandbox = self.default_sandbox.as_ref();
        let sandbox = sandbox.map(|name| self.renamed(name).unwrap_or(name.clone()));
        if let (ExpressionKind::Call(call), Some(sandbox)) = (&expr.kind, sandbox)
            && matches!(call.name(), Some("allow" | "ask"))
            && call.named("sandbox").is_none()
        {
            let comma = if call.args.is_empty() { "" } else { ", " };
            let text = format!("sandbox = {sandbox}{comma}");
            self.splices.insert(call.brackets.inner.start, text);
        }
        expr.children().into_iter().for_each(|child| self.name_default_sandbox(child));
    }
}
