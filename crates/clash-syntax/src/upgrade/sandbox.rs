//! Sandboxes in older forms: paths as builder chains, and the tree form.

use super::rules::{BuilderChain, chain};
use super::{ExpressionRole, RewriteResult, UpgradePass};
use crate::draft::string_literal;
use crate::lex::{ByteSpan, TokenKind};
use crate::tree::{
    ArgumentKind, BracketRange, CallExpression, DictEntry, Expression, ExpressionKind,
};

/// The name and tree of `sandbox("n", {default(): …, path(p): …})`.
pub(super) fn tree_form(call: &CallExpression) -> Option<(&Expression, &Expression)> {
    let mut positional = call.positional();
    let (name, tree) = (positional.next()?, positional.next()?);
    positional.next().is_none().then_some((name, tree))
}

impl<'a> UpgradePass<'a> {
    /// The key for `path(…)` in file rules.
    pub(super) fn path_key(&mut self, call: &'a CallExpression) -> RewriteResult {
        const ODD: &str = "`path` with more than one plain string";
        match call.args.as_slice() {
            [path] if path.value.string().is_some() && path.kind == ArgumentKind::Positional => {
                Ok(self.source(&path.value))
            }
            [path, option] if path.value.string().is_some() => {
                match (&option.kind, option.value.name()) {
                    (ArgumentKind::Named(name), Some("True")) if name.text == "worktree" => Ok(
                        format!("subpath({}, follow_worktrees = True)", self.source(&path.value)),
                    ),
                    _ => Err(ODD),
                }
            }
            _ => Err(ODD),
        }
    }

    /// The comments before each item on lines of their own, the one behind it,
    /// and those at the end.
    fn around(&self, inner: ByteSpan, spans: &[ByteSpan]) -> (Vec<(String, String)>, String) {
        let mut around = vec![(String::new(), String::new()); spans.len()];
        let mut end = String::new();
        let mut alone = false;
        let tokens = self.file.tokens();
        let first = tokens.partition_point(|token| token.span.start < inner.start);
        let inside = tokens.get(first..).unwrap_or_default();
        for token in inside.iter().take_while(|token| token.span.start < inner.end) {
            if spans.iter().any(|span| span.contains(token.span)) {
                alone = false;
                continue;
            }
            match token.kind {
                TokenKind::Comment => {
                    let text = self.file.text(token.span).trim_end();
                    let next = spans.partition_point(|span| span.start < token.span.start);
                    let before = next.checked_sub(1).and_then(|at| around.get_mut(at));
                    match before {
                        Some((_, behind)) if !alone && behind.is_empty() => {
                            behind.push_str(&format!("  {text}"));
                        }
                        _ => match around.get_mut(next) {
                            Some((above, _)) => above.push_str(&format!("{text}\n")),
                            None => end.push_str(&format!("{text}\n")),
                        },
                    }
                }
                TokenKind::Break => alone = true,
                TokenKind::Space => {}
                _ => alone = false,
            }
        }
        (around, end)
    }

    /// File rules as a list of builder chains, as a dict.
    pub(super) fn fs_list(
        &mut self,
        items: &'a [Expression],
        brackets: BracketRange,
    ) -> RewriteResult {
        let spans: Vec<ByteSpan> = items.iter().map(|item| item.span).collect();
        let (around, end) = self.around(brackets.inner, &spans);
        let mut keys: Vec<String> = Vec::new();
        let mut text = "{\n".to_owned();
        for (item, (above, behind)) in items.iter().zip(around) {
            if (crate::splice::SourceLines { file: self.file }).has_comments(item.span) {
                return Err(super::COMMENT);
            }
            let (key, effect) = self.fs_chain(item)?;
            if keys.contains(&key) {
                return Err("two rules for the same path");
            }
            text.push_str(&format!("{above}{key}: {effect},{behind}\n"));
            keys.push(key);
        }
        Ok(format!("{text}{end}}}"))
    }

    /// The key and the effect of a file rule such as `home().child(".ssh").deny()`.
    fn fs_chain(&mut self, expr: &'a Expression) -> Result<(String, String), &'static str> {
        let BuilderChain { base, calls } = chain(expr).ok_or("a file rule that is computed")?;
        let mut path = match base.name() {
            Some("cwd") => "$PWD".to_owned(),
            Some("home") => "$HOME".to_owned(),
            Some("tempdir") => "$TMPDIR".to_owned(),
            _ => return Err("a file rule that does not begin with a known directory"),
        };
        let worktrees = match base.args.as_slice() {
            [] => false,
            [arg] => match (&arg.kind, arg.value.name()) {
                (ArgumentKind::Named(name), Some(value @ ("True" | "False")))
                    if name.text == "follow_worktrees" =>
                {
                    value == "True"
                }
                _ => return Err("an unknown option of the directory"),
            },
            _ => return Err("unknown options of the directory"),
        };
        let ((effect, call), steps) = calls.split_last().ok_or("a path without an effect")?;
        if !matches!(effect.text.as_str(), "allow" | "deny" | "ask") {
            return Err("a file rule that does not end in an effect");
        }
        let mut kind = None;
        for (step, call) in steps {
            if kind.is_some() {
                return Err("a step behind the end of a path");
            }
            let arg = match call.args.as_slice() {
                [] => None,
                [arg] if arg.kind == ArgumentKind::Positional => {
                    Some(arg.value.string().ok_or("a path that is computed")?)
                }
                _ => return Err("a path that is computed"),
            };
            match (step.text.as_str(), arg) {
                ("child", Some(name)) => join(&mut path, name)?,
                ("child", None) => kind = Some("children"),
                ("recurse", None) => kind = Some("below"),
                ("file", name) => {
                    join(&mut path, name.unwrap_or_default())?;
                    kind = Some("file");
                }
                // A pattern may or may not start below the directory. Only one that names
                // the whole path is certain.
                ("match", Some(pattern)) if pattern.starts_with('/') => {
                    path = pattern.to_owned();
                    kind = Some("match");
                }
                ("match", _) => return Err("a pattern that does not name the whole path"),
                _ => return Err("an unknown step of the path"),
            }
        }
        let joined = steps.iter().any(|(step, _)| step.text == "child");
        let key = match kind {
            Some("below") if worktrees => {
                format!("subpath({}, follow_worktrees = True)", string_literal(&path))
            }
            _ if worktrees => return Err("`worktrees` on a path that is not a whole directory"),
            Some("below") => format!("subpath({})", string_literal(&path)),
            Some("file") => format!("literal({})", string_literal(&path)),
            Some("match") => format!("regex({})", string_literal(&path)),
            Some(_) => format!("glob({})", string_literal(&format!("{path}/*"))),
            None if joined => format!("glob({})", string_literal(&format!("{path}/*"))),
            None => return Err("a directory without `child`, `recurse`, `file` or `match`"),
        };
        Ok((key, self.effect(call, None)?))
    }

    /// The tree form with keyword arguments.
    pub(super) fn sandbox(
        &mut self,
        call: &'a CallExpression,
        form: (&'a Expression, &'a Expression),
    ) -> RewriteResult {
        let (name, tree) = form;
        let ExpressionKind::Dict(entries, brackets) = &tree.kind else {
            return Err("a sandbox whose tree is computed");
        };
        let place = crate::splice::SourceLines { file: self.file };
        let inner = call.brackets.inner;
        if place.has_comments(ByteSpan::new(inner.start, tree.span.start))
            || place.has_comments(ByteSpan::new(tree.span.end, inner.end))
        {
            return Err(super::COMMENT);
        }
        let spans: Vec<ByteSpan> = entries.iter().map(|entry| entry.span).collect();
        let (around, end) = self.around(brackets.inner, &spans);
        let (mut fs, mut net) = (String::new(), String::new());
        let (mut default, mut network) = (None, None);
        for (entry, (above, behind)) in entries.iter().zip(around) {
            let line = |text: String| format!("{above}{text},{behind}\n");
            match entry.key.call().map(|call| (call.name(), call.args.len())) {
                Some((Some("default"), 0)) => {
                    let text =
                        format!("default = {}", self.text(&entry.value, ExpressionRole::Plain));
                    default = Some(line(text));
                }
                Some((Some("network"), 0)) => {
                    let value = self.text(&entry.value, ExpressionRole::Plain);
                    network =
                        Some((line(format!("net = {value}")), line(format!("default(): {value}"))));
                }
                Some((Some("domain" | "localhost"), _)) => {
                    net.push_str(&line(self.host(entry)?));
                }
                _ => fs.push_str(&line(self.file_rule(entry)?)),
            }
        }
        let mut args = format!("name = {},\n{}", self.source(name), default.unwrap_or_default());
        if !fs.is_empty() || !end.is_empty() {
            args.push_str(&format!("fs = {{\n{fs}{end}}},\n"));
        }
        match network {
            Some((alone, _)) if net.is_empty() => args.push_str(&alone),
            Some((_, rest)) => args.push_str(&format!("net = {{\n{net}{rest}}},\n")),
            None if net.is_empty() => {}
            None => args.push_str(&format!("net = {{\n{net}}},\n")),
        }
        for arg in call.args.iter().filter(|arg| arg.kind != ArgumentKind::Positional) {
            match &arg.kind {
                ArgumentKind::Named(given) if given.text == "doc" => {
                    args.push_str(&format!(
                        "doc = {},\n",
                        self.text(&arg.value, ExpressionRole::Plain)
                    ));
                }
                _ => return Err("a sandbox as a tree that has more arguments"),
            }
        }
        Ok(format!("sandbox(\n{args})"))
    }

    /// An entry of `net` for a `domain` or `localhost` key.
    fn host(&mut self, entry: &'a DictEntry) -> RewriteResult {
        let value = self.text(&entry.value, ExpressionRole::Plain);
        let call = entry.key.call().ok_or("a host that is computed")?;
        let key = match (call.name(), call.args.as_slice()) {
            (Some("domain"), [arg]) if arg.value.string().is_some() => self.source(&arg.value),
            (Some("localhost"), _) => self.source(&entry.key),
            _ => return Err("a host that is computed"),
        };
        Ok(format!("{key}: {value}"))
    }

    /// An entry of `fs`. A key that is neither a path nor a pattern is an error.
    fn file_rule(&mut self, entry: &'a DictEntry) -> RewriteResult {
        let known = |key: &Expression| {
            let name = key.call().and_then(CallExpression::name);
            let plain = key.call().is_some_and(|call| call.args.len() == 1);
            key.string().is_some()
                || matches!(name, Some("path" | "subpath"))
                || plain && matches!(name, Some("glob" | "literal" | "regex"))
        };
        let all = match &entry.key.kind {
            ExpressionKind::Tuple(items, _) => items.iter().all(known),
            _ => known(&entry.key),
        };
        if !all {
            return Err("a key that is neither a path nor a host");
        }
        let key = match entry.key.call() {
            Some(call) if call.name() == Some("path") => self.path_key(call)?,
            _ => self.text(&entry.key, ExpressionRole::FsKey),
        };
        let role = match entry.value.kind {
            ExpressionKind::Dict(..) => ExpressionRole::Fs,
            _ => ExpressionRole::Plain,
        };
        Ok(format!("{key}: {}", self.text(&entry.value, role)))
    }
}

/// Appends a name to a path. A name that is absolute, has a variable or `..` is an error.
fn join(path: &mut String, name: &str) -> Result<(), &'static str> {
    if name.starts_with('/') || name.contains('$') || name.split('/').any(|part| part == "..") {
        return Err("a path that leaves its directory");
    }
    if !name.is_empty() {
        path.push('/');
        path.push_str(name.trim_matches('/'));
    }
    Ok(())
}
