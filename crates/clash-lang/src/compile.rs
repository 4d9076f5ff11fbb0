//! Compiles one policy file, with the files it loads, to one layer.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use clash_policy::rule::{Layer, LayerKind};
use clash_policy::{PolicySpan, Sandbox};
use starlark::docs::{DocItem, DocMember};
use starlark::environment::{FrozenModule, Globals, Module};
use starlark::eval::{Evaluator, FileLoader};
use starlark::syntax::{AstModule, Dialect};
use starlark::values::FrozenHeapName;

use crate::bounds;
use crate::builders::span_of;
use crate::collected::CollectedPolicy;
use crate::diagnostic::{CompileError, PolicyWarning};
use crate::language_error::LanguageError;
use crate::{expect, library, lint};
use clash_policy::nearest::nearest;

/// Reads policy files for the compiler, which has no access to files itself. So the
/// caller knows the files that a policy depends on.
pub trait SourceReader {
    /// True if the compiler shall look for all warnings. That takes longer than
    /// compiling.
    fn wants_warnings(&self) -> bool {
        true
    }

    /// The text of a policy file, or of a file that it loads.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// The Claude Code settings as policies: for each file its name, as messages show
    /// it, and a policy with the same meaning.
    fn claude_settings(&self, user: bool, project: bool) -> Vec<(String, String)> {
        let _ = (user, project);
        Vec::new()
    }
}

const MAX_LOAD_DEPTH: usize = 16;

/// A policy that compiles, and its probable mistakes.
#[derive(Clone, Debug)]
pub struct CompiledLayer {
    pub layer: Layer,
    pub warnings: Vec<PolicyWarning>,
    /// Calls of `expect()` that were checked.
    pub expectations: usize,
}

/// Evaluates a module of the library on its own; an error for an unknown name.
pub(crate) fn library_module(name: &str) -> Result<FrozenModule, CompileError> {
    let collected = CollectedPolicy::default();
    let compiler = ModuleCompiler::new(name, &LibraryOnly, &collected);
    compiler.module(name).map_err(|error| compiler.diagnostic(name, &error))
}

/// The reader for the documentation of the library: it finds no file.
struct LibraryOnly;

impl SourceReader for LibraryOnly {
    fn read(&self, _: &Path) -> io::Result<String> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// Compiles a policy file (or a library module by its `@clash//` name) with the files it
/// loads. The error is the first mistake found. `trusted` is only copied into the layer.
pub fn compile(
    file: &str,
    kind: LayerKind,
    trusted: bool,
    sources: &dyn SourceReader,
) -> Result<CompiledLayer, CompileError> {
    let collected = CollectedPolicy::default();
    let compiler = ModuleCompiler::new(file, sources, &collected);
    compiler.layer(file, kind, trusted).map_err(|error| compiler.diagnostic(file, &error))
}

/// One compilation: evaluates files, each once, and collects what they record.
struct ModuleCompiler<'a> {
    globals: Globals,
    /// The policy file itself.
    root: &'a str,
    /// Sources without a file: policies made from settings.
    texts: RefCell<HashMap<String, String>>,
    sources: &'a dyn SourceReader,
    collected: &'a CollectedPolicy,
    loaded: RefCell<HashMap<String, FrozenModule>>,
    loading: RefCell<Vec<String>>,
}

impl<'a> ModuleCompiler<'a> {
    /// A compilation that has read no file yet.
    fn new(root: &'a str, sources: &'a dyn SourceReader, collected: &'a CollectedPolicy) -> Self {
        bounds::forget();
        Self {
            globals: library::globals(),
            root,
            texts: RefCell::default(),
            sources,
            collected,
            loaded: RefCell::default(),
            loading: RefCell::default(),
        }
    }

    /// Evaluates the file and its imports and checks its expectations. Looks for warnings
    /// only if the reader wants them.
    fn layer(&self, file: &str, kind: LayerKind, trusted: bool) -> starlark::Result<CompiledLayer> {
        self.module(file)?;
        self.imports()?;
        let collected = self.collected;
        let mut sandboxes = collected.sandboxes()?;
        sandboxes.iter_mut().for_each(Sandbox::lift_masks);
        let layer = Layer {
            kind,
            origin: file.to_owned(),
            trusted,
            settings: collected.settings(),
            groups: collected.groups(),
            sandboxes,
        };
        let expectations = collected.expectations.take();
        if !expectations.is_empty() {
            let built_in = match kind {
                LayerKind::BuiltIn => None,
                _ => Some(self.built_in()?),
            };
            let stricter = expect::check(&expectations, &layer, built_in.as_ref())?;
            stricter.into_iter().for_each(|warning| collected.warn(warning));
        }
        let mut warnings = collected.warnings.take();
        if kind != LayerKind::BuiltIn && self.sources.wants_warnings() {
            warnings.extend(lint::warnings(&layer, &collected.used(file)));
        }
        // Warnings are for policies that users wrote, not for the library or for
        // policies made from settings.
        let texts = self.texts.borrow();
        warnings.retain(|w| !w.span.file.starts_with('@') && !texts.contains_key(&w.span.file));
        drop(texts);
        Ok(CompiledLayer { layer, warnings, expectations: expectations.len() })
    }

    /// The built-in layer, compiled apart from this one.
    fn built_in(&self) -> starlark::Result<Layer> {
        compile(library::BUILT_IN, LayerKind::BuiltIn, true, self.sources)
            .map(|compiled| compiled.layer)
            .map_err(|diagnostic| LanguageError::new(diagnostic.to_string()).into())
    }

    /// Evaluates the policies that `from_claude_settings()` stands for, each as a policy of
    /// its own.
    fn imports(&self) -> starlark::Result<()> {
        for import in self.collected.imports.take() {
            for (origin, text) in self.sources.claude_settings(import.user, import.project) {
                self.texts.borrow_mut().insert(origin.clone(), text);
                let before = self.collected.set_aside();
                self.module(&origin)?;
                self.collected.close_import(&origin, before);
            }
        }
        Ok(())
    }

    /// The text of an import, a library module or a file of the reader; an error if there
    /// is none.
    fn source(&self, name: &str) -> starlark::Result<String> {
        if let Some(text) = self.texts.borrow().get(name) {
            return Ok(text.clone());
        }
        if name.starts_with('@') {
            let found = library::source(name).map(str::to_owned);
            return found.ok_or_else(|| unknown_module(name).into());
        }
        self.sources
            .read(Path::new(name))
            .map_err(|error| LanguageError::new(format!("cannot read `{name}`: {error}")).into())
    }

    /// Evaluates a file, or returns it if it was evaluated before. A policy file that gave
    /// no rules may have a function `main`, which is then called.
    fn module(&self, name: &str) -> starlark::Result<FrozenModule> {
        if let Some(known) = self.loaded.borrow().get(name) {
            return Ok(known.clone());
        }
        if let Some(module) = library::native(name) {
            return module.map_err(|error| {
                starlark::Error::new_other(LanguageError::new(format!("{error:?}")))
            });
        }
        self.enter(name)?;
        let ast = AstModule::parse(name, self.source(name)?, &dialect())?;
        let loader = RelativeLoader { compiler: self, base: Path::new(name).parent() };
        let module = Module::with_temp_heap(|module| {
            {
                let mut eval = Evaluator::new(&module);
                bounds::set_limits(&mut eval)?;
                eval.extra = Some(self.collected);
                eval.set_loader(&loader);
                eval.eval_module(ast, &self.globals)?;
                bounds::check_size(&eval)?;
                // Until Clash 0.7 a policy file could be a function `main`.
                if name == self.root
                    && !self.collected.heard_from(name)
                    && let Some(main) = module.get("main")
                    && main.get_type() == "function"
                {
                    eval.eval_function(main, &[], &[])?;
                }
            }
            let heap = FrozenHeapName::User(Box::new(name.to_owned()));
            module.freeze_named(heap).map_err(|error| {
                starlark::Error::new_other(LanguageError::new(format!("{error:?}")))
            })
        })?;
        self.loading.borrow_mut().pop();
        self.loaded.borrow_mut().insert(name.to_owned(), module.clone());
        Ok(module)
    }

    /// Notes that a file is being loaded. It is an error if it loads itself, also by way of
    /// others, or if 16 files are being loaded already.
    fn enter(&self, name: &str) -> starlark::Result<()> {
        let mut loading = self.loading.borrow_mut();
        if loading.iter().any(|known| known == name) {
            let through = match loading.last().filter(|last| *last != name) {
                Some(last) => format!(" by way of `{last}`"),
                None => String::new(),
            };
            return Err(LanguageError::new(format!("`{name}` loads itself{through}")).into());
        }
        if loading.len() >= MAX_LOAD_DEPTH {
            return Err(LanguageError::new(format!(
                "`{name}` is loaded {MAX_LOAD_DEPTH} files deep"
            ))
            .into());
        }
        loading.push(name.to_owned());
        Ok(())
    }

    /// Starlark's error about an unknown argument of a builder, in the words of this
    /// crate.
    fn unknown_argument(&self, said: &str) -> Option<LanguageError> {
        let (names, function) = said
            .trim()
            .strip_prefix("Found `")?
            .split_once("` extra named parameter(s) for call to ")?;
        let name = names.split(['`', ' ', ',']).next()?;
        let mistake = LanguageError::new(format!("{function}() takes no `{name}`")).near(name);
        let documentation = self.globals.documentation();
        let DocItem::Member(DocMember::Function(known)) = documentation.members.get(function)?
        else {
            return Some(mistake);
        };
        let known: Vec<&str> = known.params.regular_params().map(|p| p.name.as_str()).collect();
        Some(match nearest(name, known.iter().copied()) {
            Some(near) => mistake.hint(format!("did you mean `{near}`?")),
            None => mistake.hint(format!("it takes {}", known.join(", "))),
        })
    }

    /// Finds the best place, message and hint in an error of the evaluation.
    fn diagnostic(&self, file: &str, error: &starlark::Error) -> CompileError {
        let said = error.without_diagnostic().to_string();
        let reworded = bounds::exceeded(&said).or_else(|| self.unknown_argument(&said));
        let mistake = find_mistake(error).or(reworded.as_ref());
        let place = mistake
            .and_then(|m| m.span.clone())
            .or_else(|| error.span().map(span_of))
            .or_else(bounds::evaluating);
        let span =
            place.unwrap_or_else(|| PolicySpan { file: file.to_owned(), line: 0, column: 0 });
        let source = self.source(&span.file).unwrap_or_default();
        let near = mistake.filter(|m| m.span.is_none()).and_then(|m| m.near.as_deref());
        let span = near.and_then(|text| found_after(&source, &span, text)).unwrap_or(span);
        let message = match mistake {
            Some(mistake) => mistake.message.clone(),
            None => tidy(&said),
        };
        let index = (span.line as usize).checked_sub(1);
        let line = index.and_then(|index| source.lines().nth(index)).map(str::to_owned);
        let hint = match mistake {
            Some(mistake) => mistake.hint.clone(),
            None => foreign_syntax(&message).map(str::to_owned),
        };
        CompileError { message, span, line, hint }
    }
}

/// The place of a string in the source, at the running call or after it. The call may
/// begin many lines above the string.
fn found_after(source: &str, from: &PolicySpan, text: &str) -> Option<PolicySpan> {
    let skipped = (from.line as usize).checked_sub(1)?;
    source.lines().enumerate().skip(skipped).find_map(|(at, line)| {
        let start = if at == skipped { (from.column as usize).saturating_sub(1) } else { 0 };
        let rest: String = line.chars().skip(start).collect();
        let found = rest.find(&format!("\"{text}\"")).or_else(|| rest.find(text))?;
        let column = start + rest.get(..found)?.chars().count() + 1;
        Some(PolicySpan {
            file: from.file.clone(),
            line: u32::try_from(at + 1).ok()?,
            column: u32::try_from(column).ok()?,
        })
    })
}

/// Standard Starlark with statements outside functions and with f-strings.
fn dialect() -> Dialect {
    Dialect { enable_top_level_stmt: true, enable_f_strings: true, ..Dialect::Standard }
}

/// The error of a builder inside an error of the evaluator; `None` if the evaluator found
/// the mistake itself.
fn find_mistake(error: &starlark::Error) -> Option<&LanguageError> {
    use starlark::ErrorKind;
    match error.kind() {
        ErrorKind::Other(inner) | ErrorKind::Native(inner) | ErrorKind::Fail(inner) => {
            inner.downcast_ref::<LanguageError>()
        }
        _ => None,
    }
}

/// A hint for syntax that Python has and Starlark has not.
fn foreign_syntax(message: &str) -> Option<&'static str> {
    let found = message.strip_prefix("parse error: unexpected ")?;
    found.starts_with("symbol '*'").then_some("lists are joined with +: rules = common + […]")
}

/// Starlark's message in the form of ours: one line, lower case, no full stop.
fn tidy(message: &str) -> String {
    let first =
        message.lines().find(|line| !line.trim().is_empty()).unwrap_or("it does not compile");
    let mut chars = first.trim().trim_end_matches('.').chars();
    chars.next().map_or_else(String::new, |c| c.to_lowercase().chain(chars).collect())
}

/// The error for a library module that does not exist, with the nearest name or all names.
fn unknown_module(name: &str) -> LanguageError {
    let mistake = LanguageError::new(format!("there is no module `{name}`"));
    match nearest(name, library::names()) {
        Some(near) => mistake.hint(format!("did you mean `{near}`?")),
        None => {
            let known: Vec<&str> = library::names().collect();
            mistake.hint(format!("known are {}", known.join(", ")))
        }
    }
}

/// Resolves `load()` paths against the file that holds them.
struct RelativeLoader<'a, 'b> {
    compiler: &'a ModuleCompiler<'b>,
    base: Option<&'a Path>,
}

impl FileLoader for RelativeLoader<'_, '_> {
    fn load(&self, path: &str) -> starlark::Result<FrozenModule> {
        if path.starts_with('@') {
            return self.compiler.module(path);
        }
        let path = Path::new(path);
        let plain = path.is_relative()
            && path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if !plain || self.base.is_none_or(|base| base.as_os_str().is_empty()) {
            return Err(LanguageError::new(format!("`{}` cannot be loaded", path.display()))
                .hint("load \"@clash//…\" or a file beside the policy by its relative path")
                .into());
        }
        let full: PathBuf = self.base.map(|base| base.join(path)).unwrap_or_default();
        self.compiler.module(&full.to_string_lossy())
    }
}
