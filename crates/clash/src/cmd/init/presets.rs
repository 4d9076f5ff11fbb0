//! The rules of the library's modules as typed data, read from their sources. A module
//! defines them under its own name, for example `rust = {"Bash": {…}}` in
//! `@clash//rust.star`.

use std::collections::BTreeMap;

use clash_policy::Effect;
use clash_protocol::request::CompilerRequest;
use clash_syntax::draft::{EffectDraft, KeyDraft, RuleBody, RuleDraft};
use clash_syntax::{
    CallExpression, DictEntry, Expression, ExpressionKind, StatementKind, SyntaxTree,
};

use crate::compiler::{CompilerAnswer, CompilerError, ask_compiler};
use crate::ui::Failure;

/// The library's modules and their sources.
#[derive(Debug)]
pub(crate) struct PolicyLibrary(BTreeMap<String, String>);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LibraryError {
    #[error("the library has no module `{0}`")]
    NoModule(String),
    #[error("the rules of the library's `{module}` cannot be read: {what}")]
    Unreadable { module: String, what: String },
}

impl PolicyLibrary {
    /// Asks the compiler for the sources of the library that it contains. Starts the
    /// compiler.
    pub(crate) fn ask() -> Result<Self, Failure> {
        match ask_compiler(&CompilerRequest::Library)? {
            CompilerAnswer::Product(json) => Ok(Self(serde_json::from_slice(&json)?)),
            _ => Err(CompilerError::WrongAnswer.into()),
        }
    }

    /// The rules about commands that a module defines under its own name.
    pub(crate) fn rules(&self, module: &str) -> Result<Vec<RuleDraft>, LibraryError> {
        let source = self.0.get(&format!("@clash//{module}.star"));
        let source = source.ok_or_else(|| LibraryError::NoModule(module.to_owned()))?;
        read_rules(source, module)
            .map_err(|what| LibraryError::Unreadable { module: module.to_owned(), what })
    }
}

/// The rules that a module's source assigns to its own name. Fails if any part is not
/// understood, or if they are about more than commands.
fn read_rules(source: &str, name: &str) -> Result<Vec<RuleDraft>, String> {
    let file = SyntaxTree::parse(source).map_err(|error| error.to_string())?;
    let tree = file.statements().iter().find_map(|statement| match &statement.kind {
        StatementKind::Assign { target, value, .. } if target.name() == Some(name) => Some(value),
        _ => None,
    });
    let tree = tree.ok_or_else(|| format!("nothing is called `{name}`"))?;
    match entries(tree)? {
        [DictEntry { key, value, .. }] if key.string() == Some("Bash") => read_dict(value),
        _ => Err("they are about more than commands".to_owned()),
    }
}

/// The entries of a dict; an error for any other expression.
fn entries(expr: &Expression) -> Result<&[DictEntry], String> {
    match &expr.kind {
        ExpressionKind::Dict(entries, _) => Ok(entries),
        _ => Err("a dict was expected".to_owned()),
    }
}

/// The rules of a dict. An entry with a call ends in an effect; any other has rules below it.
fn read_dict(expr: &Expression) -> Result<Vec<RuleDraft>, String> {
    let each = |entry: &DictEntry| {
        let body = match entry.value.call() {
            Some(call) => RuleBody::Effect(read_effect(call)?),
            None => RuleBody::Below(read_dict(&entry.value)?),
        };
        Ok(RuleDraft { comment: Vec::new(), key: read_key(&entry.key)?, body })
    };
    entries(expr)?.iter().map(each).collect()
}

/// A key of one or several words, or of globs. An error for anything else.
fn read_key(expr: &Expression) -> Result<KeyDraft, String> {
    let word = |item: &Expression| item.string().map(str::to_owned);
    let words =
        |items: &[Expression]| items.iter().map(word).collect::<Option<_>>().map(KeyDraft::Words);
    let globs = |items: &[Expression]| {
        let patterns = items.iter().map(read_glob).collect::<Option<Vec<_>>>();
        patterns.map(|patterns| KeyDraft::any_of(patterns.into_iter().map(KeyDraft::glob)))
    };
    let found = match &expr.kind {
        ExpressionKind::Tuple(items, _) => words(items).or_else(|| globs(items)),
        _ => match (word(expr), read_glob(expr)) {
            (Some(word), _) => Some(KeyDraft::Words(vec![word])),
            (None, Some(pattern)) if pattern == "**" => Some(KeyDraft::Rest),
            (None, pattern) => pattern.map(KeyDraft::glob),
        },
    };
    found.ok_or_else(|| "a key is neither words nor globs".to_owned())
}

/// The pattern of `glob("…")`; `None` for anything else.
fn read_glob(expr: &Expression) -> Option<String> {
    let call = expr.call().filter(|call| call.name() == Some("glob"))?;
    call.positional().next().and_then(Expression::string).map(str::to_owned)
}

/// The effect of `allow(…)`, `ask(…)` or `deny(…)`. An error for anything else.
fn read_effect(call: &CallExpression) -> Result<EffectDraft, String> {
    let effect = match call.name() {
        Some("allow") => Effect::Allow,
        Some("ask") => Effect::Ask,
        Some("deny") => Effect::Deny,
        _ => return Err("a rule ends in no effect".to_owned()),
    };
    let sandbox = call.named("sandbox").map(|value| value.name().ok_or("a sandbox has no name"));
    Ok(EffectDraft {
        effect,
        sandbox: sandbox.transpose()?.map(str::to_owned),
        reason: call.named("reason").and_then(Expression::string).map(str::to_owned),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ecosystems::ECOSYSTEMS;

    /// The library in the repository.
    pub(in crate::cmd::init) fn library() -> PolicyLibrary {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../clash-lang/std");
        let each = |entry: std::io::Result<std::fs::DirEntry>| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (format!("@clash//{name}"), std::fs::read_to_string(path).unwrap())
        };
        PolicyLibrary(std::fs::read_dir(dir).unwrap().map(each).collect())
    }

    #[test]
    fn every_toolchain_has_rules_for_the_programs_it_is_known_by() {
        let library = library();
        for ecosystem in ECOSYSTEMS {
            let rules = library.rules(ecosystem.name).unwrap();
            let programs: Vec<&String> = rules.iter().flat_map(words).collect();
            for program in ecosystem.programs {
                assert!(programs.iter().any(|known| known == program), "{program}");
            }
        }
    }

    #[test]
    fn no_program_belongs_to_two_toolchains() {
        let library = library();
        let mut seen: BTreeMap<String, &str> = BTreeMap::new();
        for name in ECOSYSTEMS.iter().map(|it| it.name).chain(["files", "removal"]) {
            for program in library.rules(name).unwrap().iter().flat_map(words) {
                if let Some(other) = seen.insert(program.clone(), name) {
                    panic!("{program} is in {other} and {name}");
                }
            }
        }
    }

    /// The words of a rule's key.
    fn words(rule: &RuleDraft) -> &[String] {
        match &rule.key {
            KeyDraft::Words(words) => words,
            _ => &[],
        }
    }

    #[test]
    fn what_is_not_understood_is_an_error_and_never_left_out() {
        for wrong in [
            "x = {\"Bash\": {\"a\": allow(sandbox = f())}}",
            "x = {\"Bash\": {regex(\"a\"): allow()}}",
            "x = {\"Bash\": {\"a\": b}}",
            "x = {\"Bash\": {\"a\": alow()}}",
            "x = {\"Read\": allow(), \"Bash\": {}}",
            "y = {}",
            "x = {",
        ] {
            assert!(read_rules(wrong, "x").is_err(), "{wrong}");
        }
        assert_eq!(library().rules("cobol").unwrap_err(), LibraryError::NoModule("cobol".into()));
    }
}
