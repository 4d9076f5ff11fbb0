//! One policy file, with everything it loads, to one layer.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use clash_policy::Span;
use clash_policy::rule::{Layer, LayerKind};
use starlark::environment::{FrozenModule, Globals, GlobalsBuilder, LibraryExtension, Module};
use starlark::eval::{Evaluator, FileLoader};
use starlark::syntax::{AstModule, Dialect};
use starlark::values::FrozenHeapName;

use crate::builders::{names, span_of};
use crate::diagnostic::Diagnostic;
use crate::library;
use crate::lower::Mistake;
use crate::value::Collected;

/// Where policy files come from. The caller learns from it which files a
/// policy depends on.
pub trait Sources {
    fn read(&self, path: &Path) -> io::Result<String>;
}

/// A policy is short; these stop one that is not meant to end. A tick is about
/// one loop round or call.
const MAX_TICKS: u64 = 2_000_000;
const MAX_HEAP: usize = 64 << 20;
const MAX_LOAD_DEPTH: usize = 16;

/// Compiles a policy file (or a library module by its `@clash//` name).
pub fn compile(
    file: &str,
    kind: LayerKind,
    trusted: bool,
    sources: &dyn Sources,
) -> Result<Layer, Diagnostic> {
    let collected = Collected::default();
    let compiler = Compiler {
        globals: globals(),
        sources,
        collected: &collected,
        loaded: RefCell::default(),
        loading: RefCell::default(),
    };
    compiler.module(file).map_err(|error| compiler.diagnostic(file, &error))?;
    Ok(Layer {
        kind,
        origin: file.to_owned(),
        trusted,
        settings: collected.settings.take(),
        branches: collected.branches.take(),
        sandboxes: collected.sandboxes.take().iter().map(|sandbox| (**sandbox).clone()).collect(),
    })
}

fn globals() -> Globals {
    GlobalsBuilder::extended_by(&[LibraryExtension::StructType]).with(names).build()
}

struct Compiler<'a> {
    globals: Globals,
    sources: &'a dyn Sources,
    collected: &'a Collected,
    loaded: RefCell<HashMap<String, FrozenModule>>,
    loading: RefCell<Vec<String>>,
}

impl Compiler<'_> {
    fn source(&self, name: &str) -> starlark::Result<String> {
        if name.starts_with('@') {
            let found = library::source(name).map(str::to_owned);
            return found.ok_or_else(|| unknown_module(name).into());
        }
        self.sources
            .read(Path::new(name))
            .map_err(|error| Mistake::new(format!("cannot read `{name}`: {error}")).into())
    }

    fn module(&self, name: &str) -> starlark::Result<FrozenModule> {
        if let Some(known) = self.loaded.borrow().get(name) {
            return Ok(known.clone());
        }
        self.enter(name)?;
        let ast = AstModule::parse(name, self.source(name)?, &dialect())?;
        let loader = Relative { compiler: self, base: Path::new(name).parent() };
        let module = Module::with_temp_heap(|module| {
            {
                let mut eval = Evaluator::new(&module);
                let limits = eval
                    .set_max_tick_count(MAX_TICKS)
                    .and_then(|()| eval.set_max_heap_size(MAX_HEAP));
                limits.map_err(starlark::Error::new_other)?;
                eval.extra = Some(self.collected);
                eval.set_loader(&loader);
                eval.eval_module(ast, &self.globals)?;
            }
            let heap = FrozenHeapName::User(Box::new(name.to_owned()));
            module
                .freeze_named(heap)
                .map_err(|error| starlark::Error::new_other(Mistake::new(format!("{error:?}"))))
        })?;
        self.loading.borrow_mut().pop();
        self.loaded.borrow_mut().insert(name.to_owned(), module.clone());
        Ok(module)
    }

    fn enter(&self, name: &str) -> starlark::Result<()> {
        let mut loading = self.loading.borrow_mut();
        if loading.iter().any(|known| known == name) {
            return Err(Mistake::new(format!("`{name}` loads itself")).into());
        }
        if loading.len() >= MAX_LOAD_DEPTH {
            return Err(
                Mistake::new(format!("`{name}` is loaded {MAX_LOAD_DEPTH} files deep")).into()
            );
        }
        loading.push(name.to_owned());
        Ok(())
    }

    /// Finds the best place and the hint in whatever went wrong.
    fn diagnostic(&self, file: &str, error: &starlark::Error) -> Diagnostic {
        let mistake = find_mistake(error);
        let place = mistake.and_then(|m| m.span.clone()).or_else(|| error.span().map(span_of));
        let span = place.unwrap_or_else(|| Span { file: file.to_owned(), line: 0, column: 0 });
        let message = match mistake {
            Some(mistake) => mistake.message.clone(),
            None => tidy(&error.without_diagnostic().to_string()),
        };
        let line = self.source(&span.file).ok().and_then(|text| {
            let index = (span.line as usize).checked_sub(1)?;
            text.lines().nth(index).map(str::to_owned)
        });
        let hint = mistake.and_then(|m| m.hint.clone());
        Diagnostic { message, span, line, hint }
    }
}

fn dialect() -> Dialect {
    Dialect { enable_top_level_stmt: true, enable_f_strings: true, ..Dialect::Standard }
}

fn find_mistake(error: &starlark::Error) -> Option<&Mistake> {
    use starlark::ErrorKind;
    match error.kind() {
        ErrorKind::Other(inner) | ErrorKind::Native(inner) | ErrorKind::Fail(inner) => {
            inner.downcast_ref::<Mistake>()
        }
        _ => None,
    }
}

/// One line, lower case, no trailing full stop, as all our messages are.
fn tidy(message: &str) -> String {
    let first =
        message.lines().find(|line| !line.trim().is_empty()).unwrap_or("it does not compile");
    let mut chars = first.trim().trim_end_matches('.').chars();
    chars.next().map_or_else(String::new, |c| c.to_lowercase().chain(chars).collect())
}

fn unknown_module(name: &str) -> Mistake {
    let known: Vec<&str> = library::modules().map(|(name, _)| name).collect();
    Mistake::new(format!("there is no module `{name}`"))
        .hint(format!("known are {}", known.join(", ")))
}

/// Resolves `load()` paths against the file that holds them.
struct Relative<'a, 'b> {
    compiler: &'a Compiler<'b>,
    base: Option<&'a Path>,
}

impl FileLoader for Relative<'_, '_> {
    fn load(&self, path: &str) -> starlark::Result<FrozenModule> {
        if path.starts_with('@') {
            return self.compiler.module(path);
        }
        let path = Path::new(path);
        let plain = path.is_relative()
            && path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if !plain || self.base.is_none_or(|base| base.as_os_str().is_empty()) {
            return Err(Mistake::new(format!("`{}` cannot be loaded", path.display()))
                .hint("load \"@clash//…\" or a file beside the policy by its relative path")
                .into());
        }
        let full: PathBuf = self.base.map(|base| base.join(path)).unwrap_or_default();
        self.compiler.module(&full.to_string_lossy())
    }
}

#[cfg(test)]
mod tests;
