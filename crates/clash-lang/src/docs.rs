//! The documentation of the language and its library, as data for `clash policy docs`.
//! The texts are the doc comments of the builders and the doc strings of the modules.

use clash_policy::{Effect, NetworkAccess, Sandbox};
use clash_protocol::report::{BuilderDoc, LanguageDocs, ModuleDoc, SandboxDoc};
use starlark::docs::{DocFunction, DocItem, DocMember, DocParam, DocString};

use crate::compile::library_module;
use crate::library;
use crate::value::SandboxValue;
use clash_policy::nearest::nearest;

/// No builder, module or sandbox has this name. `nearest` is the most similar name, if any
/// is near.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing is called `{name}`")]
pub struct UnknownNameError {
    pub name: String,
    pub nearest: Option<String>,
}

/// The documentation of everything, or of a builder, module or sandbox by name.
/// A module can be named `rust`, `rust.star` or as `load()` takes it.
pub fn docs(name: Option<&str>) -> Result<LanguageDocs, UnknownNameError> {
    let all = LanguageDocs { builders: builders(), modules: modules() };
    let Some(name) = name else { return Ok(all) };
    let exact = |module: &ModuleDoc| module.name == name || short(&module.name) == name;
    let found = LanguageDocs {
        builders: all.builders.iter().filter(|builder| builder.name == name).cloned().collect(),
        modules: all
            .modules
            .iter()
            .filter_map(|module| about(module, name, exact(module)))
            .collect(),
    };
    if found != LanguageDocs::default() {
        return Ok(found);
    }
    let known = all.builders.iter().map(|builder| builder.name.as_str());
    let known = known.chain(all.modules.iter().flat_map(|module| {
        let sandboxes = module.sandboxes.iter().map(|sandbox| sandbox.name.as_str());
        sandboxes.chain([short(&module.name).trim_end_matches(".star")])
    }));
    let nearest = nearest(name, known.collect::<Vec<_>>()).map(str::to_owned);
    Err(UnknownNameError { name: name.to_owned(), nearest })
}

/// The name of a module without `@clash//`.
fn short(module: &str) -> &str {
    module.strip_prefix("@clash//").unwrap_or(module)
}

/// The documentation of a name in a module: the whole module, or one of its sandboxes.
fn about(module: &ModuleDoc, name: &str, exact: bool) -> Option<ModuleDoc> {
    if exact || short(&module.name).strip_suffix(".star") == Some(name) {
        return Some(module.clone());
    }
    let named = module.sandboxes.iter().filter(|sandbox| sandbox.name == name);
    let sandboxes: Vec<SandboxDoc> = named.cloned().collect();
    (!sandboxes.is_empty()).then(|| ModuleDoc { sandboxes, ..module.clone() })
}

/// All names of clash that need no `load()`, by name, without those of Starlark itself.
fn builders() -> Vec<BuilderDoc> {
    let globals = library::globals();
    let ours = library::native("@clash//std.star").and_then(Result::ok);
    let is_ours = |name: &str| ours.as_ref().is_some_and(|module| module.get(name).is_ok());
    let documentation = globals.documentation();
    let mut builders: Vec<BuilderDoc> = globals
        .iter()
        .filter(|(name, _)| is_ours(name))
        .map(|(name, value)| {
            let item = documentation.members.get(name);
            let signature = match item {
                Some(DocItem::Member(DocMember::Function(function))) => call(name, function),
                _ => format!("{name} = {}", value.to_value().to_repr()),
            };
            let doc = item.and_then(DocItem::get_doc_string).map(text).unwrap_or_default();
            BuilderDoc { name: name.to_owned(), signature, doc }
        })
        .collect();
    builders.sort_by(|a, b| a.name.cmp(&b.name));
    builders
}

/// The signature of a function, for example `glob(pattern, follow_worktrees = False)`.
fn call(name: &str, function: &DocFunction) -> String {
    let params = &function.params;
    let several = params.args.iter().map(|param| format!("*{}", param.name));
    let before = params.pos_only.iter().chain(&params.pos_or_named).map(argument);
    let shown: Vec<String> =
        before.chain(several).chain(params.named_only.iter().map(argument)).collect();
    format!("{name}({})", shown.join(", "))
}

/// A parameter with its default. A default that is left out or `None` is shown as `…`.
fn argument(param: &DocParam) -> String {
    match &param.default_value {
        None => param.name.clone(),
        Some(value) if matches!(value.as_str(), "_" | "..." | "None") => {
            format!("{} = …", param.name)
        }
        Some(value) => format!("{} = {value}", param.name),
    }
}

/// The first line of a doc string and, after an empty line, the rest.
fn text(doc: &DocString) -> String {
    let details = doc.details.iter().map(String::as_str);
    [doc.summary.as_str()].into_iter().chain(details).collect::<Vec<_>>().join("\n\n")
}

/// Every module of the library by name.
fn modules() -> Vec<ModuleDoc> {
    let mut modules: Vec<ModuleDoc> = library::names().filter_map(module).collect();
    modules.sort_by(|a, b| a.name.cmp(&b.name));
    modules
}

/// The documentation of a module; `None` for one that does not compile.
fn module(name: &str) -> Option<ModuleDoc> {
    let module = library_module(name).ok()?;
    let documentation = module.documentation();
    let mut exports: Vec<String> = documentation.members.keys().cloned().collect();
    exports.sort();
    let sandbox = |export: &String| {
        let value = module.get(export).ok()?;
        SandboxValue::from_value(value.value()).map(|sandbox| described(&sandbox.0.sandbox))
    };
    Some(ModuleDoc {
        name: name.to_owned(),
        doc: documentation.docs.as_ref().map(text).unwrap_or_default(),
        sandboxes: exports.iter().filter_map(sandbox).collect(),
        exports,
    })
}

/// The file and network rights of a sandbox, one line each. Its variables, limits, ports
/// and doors are left out.
fn described(sandbox: &Sandbox) -> SandboxDoc {
    let mut grants: Vec<String> = sandbox
        .fs
        .iter()
        .map(|rule| {
            let effect = rule.word();
            format!("{effect} {} {}", rule.caps, rule.pattern)
        })
        .collect();
    let rest = if sandbox.unrestricted { Effect::Allow } else { sandbox.default };
    grants.push(format!("{rest} every other path"));
    match &sandbox.net {
        NetworkAccess::Deny => grants.push("deny network".to_owned()),
        NetworkAccess::Allow => grants.push("allow network".to_owned()),
        NetworkAccess::Ask => grants.push("ask network".to_owned()),
        NetworkAccess::Hosts { rules, default } => {
            grants.extend(rules.iter().map(|rule| format!("{} network {rule}", rule.effect)));
            grants.push(format!("{default} every other host"));
        }
    }
    SandboxDoc { name: sandbox.name.clone(), doc: sandbox.doc.clone(), grants }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_builder_and_module_has_a_doc_string() {
        let all = docs(None).unwrap();
        assert!(all.builders.len() >= 40 && all.modules.len() == library::names().count());
        for builder in &all.builders {
            let constant = builder.signature.contains(" = \"") && !builder.signature.contains('(');
            assert!(constant || !builder.doc.is_empty(), "{}", builder.name);
        }
        for module in &all.modules {
            assert!(!module.doc.is_empty(), "{}", module.name);
            for sandbox in &module.sandboxes {
                assert!(!sandbox.doc.is_empty(), "{} {}", module.name, sandbox.name);
            }
        }
    }

    #[test]
    fn a_name_finds_its_builder_module_or_sandbox() {
        let when = docs(Some("when")).unwrap().builders;
        assert_eq!(when[0].signature, "when(tree)");
        assert_eq!(
            when[0].doc,
            "Rules: a tree of keys that ends in effects. Several calls are one tree."
        );
        let glob = &docs(Some("glob")).unwrap().builders[0];
        assert_eq!(glob.signature, "glob(pattern, follow_worktrees = False, worktree = False)");
        let rust = docs(Some("rust")).unwrap().modules;
        assert_eq!(rust[0].exports, ["rust", "rust_full", "rust_global", "rust_safe"]);
        assert_eq!(docs(Some("@clash//rust.star")).unwrap().modules, rust);
        let git = docs(Some("readonly")).unwrap().modules;
        assert_eq!(
            git[0].sandboxes[0].grants,
            [
                "allow rx $PWD/**",
                "allow r $HOME/.gitconfig",
                "allow r $HOME/.config/git/attributes",
                "allow r $HOME/.config/git/config",
                "allow r $HOME/.config/git/ignore",
                "deny every other path",
                "deny network",
            ]
        );
        assert_eq!(docs(Some("FULL")).unwrap().builders[0].signature, "FULL = \"rwcdx\"");
        assert_eq!(docs(Some("rst_full")).unwrap_err().nearest.as_deref(), Some("rust_full"));
    }
}
