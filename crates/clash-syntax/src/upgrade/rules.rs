//! Rules in builder form: `exe("git", args = ["push"]).deny()`.

use super::{RewriteResult, UpgradePass};
use crate::tree::{ArgumentKind, CallExpression, Expression, ExpressionKind, Identifier};

/// `base(…).a(…).b(…)`: the call at the base, and the calls on it in order.
pub(super) struct BuilderChain<'a> {
    pub(super) base: &'a CallExpression,
    pub(super) calls: Vec<(&'a Identifier, &'a CallExpression)>,
}

/// The calls of a chain; `None` if it does not begin with a plain name.
pub(super) fn chain(expr: &Expression) -> Option<BuilderChain<'_>> {
    let mut calls = Vec::new();
    let mut call = expr.call()?;
    while let ExpressionKind::Dot { object, name } = &call.callee.kind {
        calls.push((name, call));
        call = object.call()?;
    }
    call.name()?;
    calls.reverse();
    Some(BuilderChain { base: call, calls })
}

/// True if a statement is a rule in builder form.
pub(super) fn is_chain(expr: &Expression) -> bool {
    chain(expr).is_some_and(|chain| {
        matches!(chain.base.name(), Some("exe" | "tool" | "Tool")) && !chain.calls.is_empty()
    })
}

/// The names given to `tool`, as expressions; `None` if one is not written out.
pub(super) fn tool_names(call: &CallExpression) -> Option<Vec<&Expression>> {
    let [arg] = call.args.as_slice() else { return None };
    if arg.kind != ArgumentKind::Positional {
        return None;
    }
    alternatives(&arg.value)
}

/// A string, or the strings of a list; `None` if one is not written out.
fn alternatives(expr: &Expression) -> Option<Vec<&Expression>> {
    let names: Vec<&Expression> = match &expr.kind {
        ExpressionKind::String(_) => vec![expr],
        ExpressionKind::List(items, _) | ExpressionKind::Tuple(items, _) => items.iter().collect(),
        _ => return None,
    };
    let all = !names.is_empty() && names.iter().all(|name| name.string().is_some());
    all.then_some(names)
}

impl<'a> UpgradePass<'a> {
    pub(super) fn tool_key(&mut self, call: &'a CallExpression) -> RewriteResult {
        let names = tool_names(call).ok_or("a tool that is computed")?;
        Ok(self.key(&names))
    }

    /// One key, or a tuple of several.
    fn key(&self, names: &[&Expression]) -> String {
        let texts: Vec<String> = names.iter().map(|name| self.source(name)).collect();
        match texts.as_slice() {
            [only] => only.clone(),
            _ => format!("({})", texts.join(", ")),
        }
    }

    /// `when({…})` for a rule in builder form.
    pub(super) fn rule(&mut self, expr: &'a Expression) -> RewriteResult {
        let place = crate::splice::SourceLines { file: self.file };
        if place.has_comments(expr.span) {
            return Err(super::COMMENT);
        }
        let BuilderChain { base, calls } = chain(expr).ok_or("a rule that is computed")?;
        let ((effect, call), before) = calls.split_last().ok_or("a rule without an effect")?;
        if !matches!(effect.text.as_str(), "allow" | "deny" | "ask") {
            return Err("a rule that does not end in an effect");
        }
        let sandbox = match before {
            [] => None,
            [(name, call)] if name.text == "sandbox" => match call.args.as_slice() {
                [arg] if arg.kind == ArgumentKind::Positional => Some(&arg.value),
                _ => return Err("`sandbox` takes one sandbox"),
            },
            _ => return Err("an unknown builder"),
        };
        let mut text = self.effect(call, sandbox)?;
        for key in self.keys(base)?.iter().rev() {
            text = format!("{{{key}: {text}}}");
        }
        Ok(format!("when({text})"))
    }

    /// The keys of the tree for `exe(…)` or `tool(…)`.
    fn keys(&mut self, base: &'a CallExpression) -> Result<Vec<String>, &'static str> {
        if base.name() != Some("exe") {
            let names = tool_names(base).ok_or("a tool without a name")?;
            return Ok(vec![self.key(&names)]);
        }
        let mut keys = vec!["\"Bash\"".to_owned()];
        let mut programs = base.positional();
        let named = programs.next().and_then(alternatives);
        keys.push(self.key(&named.ok_or("a program without a name")?));
        if programs.next().is_some() {
            return Err("a program with positional arguments");
        }
        for arg in &base.args {
            match &arg.kind {
                ArgumentKind::Positional => {}
                ArgumentKind::Named(name) if name.text == "args" => {
                    let ExpressionKind::List(items, _) = &arg.value.kind else {
                        return Err("arguments that are computed");
                    };
                    for item in items {
                        let words = alternatives(item).ok_or("an argument that is not a word")?;
                        keys.push(self.key(&words));
                    }
                }
                _ => return Err("an unknown option of `exe`"),
            }
        }
        Ok(keys)
    }
}
