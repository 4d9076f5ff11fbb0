//! Compiles a layer stack: policy files in, one flat image out.
//!
//! This is a program of its own for two reasons. Starlark registers some four
//! hundred things before `main`, which would cost every hook call a tenth of a
//! millisecond although hardly any of them compiles; and a policy is code that
//! may have come with a repository, so it is evaluated in a process that may be
//! killed by its own limits without taking the hook's answer along.
//!
//! Called by clash with `KIND TRUST FILE` for each layer that may exist, highest
//! precedence first; TRUST is `trusted`, `untrusted` or the directory with the
//! records of what the user trusts. After `--instead` standard input is a JSON
//! object of files and the texts to take for them: what somebody is about to
//! write is compiled before it is written. After `--claude USER PROJECT` come the
//! directories with Claude Code's settings, for policies that take them over.
//! Without `--warnings` nobody looks for what is probably not meant. Standard output is the image. Standard error
//! is JSON, one object a line: `{"compiling": FILE}` before each layer, so that
//! whoever has to stop this program can say where it was, and at the end the
//! report: mistakes, warnings, and what the project's policy consists of. With a
//! mistake there is no image and the exit status is 1.
//!
//! With `--docs [NAME]` standard output is what the language and its library offer,
//! as JSON, and a name that nothing has is a message on standard error. With
//! `--library` it is the library's modules and their sources, as a JSON object.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clash_import::{ImportFormat, ImportSource, KeptRules, SettingsBase, import_as, module};
use clash_lang::{BuilderDoc, Diagnostic, ModuleDoc, SandboxDoc, Sources};
use clash_policy::Span;
use clash_policy::ir::{self, Input};
use clash_policy::rule::{Layer, LayerKind, add_to_every_sandbox};
use clash_syntax::edit::RuleKey;
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};

#[path = "../stamp.rs"]
mod stamp;
#[path = "../trust.rs"]
mod trust;

/// musl gives every larger block back to the kernel as soon as it is free, which
/// was half of the time a policy took to compile.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    // Who wants these is a person at a terminal and no hook that has to answer.
    let patient = |arg: &OsString| arg == "--warnings" || arg == "--docs" || arg == "--library";
    bound(if args.iter().any(patient) { PATIENT } else { DEADLINE });
    report_panics();
    clash_lang::before_statements(|span| compiling(&span.to_string()));
    if args.first().is_some_and(|first| first == "--library") {
        return show_library();
    }
    if let [first, name @ ..] = args.as_slice()
        && first == "--docs"
    {
        return show_docs(name.first().and_then(|name| name.to_str()));
    }
    let mut stack = Stack::default();
    let Some(requests) = stack.watched.options(&args).and_then(requests) else {
        let _ = writeln!(io::stderr(), "clash-compile is called by clash with the policies");
        return ExitCode::from(2);
    };
    stack.compile(&requests);
    match stack.finish() {
        Ok(code) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Says what is being compiled, in case nothing else can be said. In one piece:
/// stderr has no buffer, and each piece is a system call here and one in clash.
fn compiling(what: &str) {
    let line = format!("{}\n", json!({"compiling": what}));
    let _ = io::stderr().write_all(line.as_bytes());
}

fn show_library() -> ExitCode {
    let sources: serde_json::Map<String, Value> =
        clash_lang::modules().map(|(name, text)| (name.to_owned(), text.into())).collect();
    match writeln!(io::stdout(), "{}", Value::Object(sources)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn show_docs(name: Option<&str>) -> ExitCode {
    let docs = match clash_lang::docs(name) {
        Ok(docs) => docs,
        Err(unknown) => {
            let said = json!({"message": unknown.to_string(), "nearest": unknown.nearest});
            let _ = writeln!(io::stderr(), "{said}");
            return ExitCode::FAILURE;
        }
    };
    let builder =
        |it: &BuilderDoc| json!({"name": it.name, "signature": it.signature, "doc": it.doc});
    let sandbox = |it: &SandboxDoc| json!({"name": it.name, "doc": it.doc, "grants": it.grants});
    let module = |it: &ModuleDoc| {
        let sandboxes: Vec<Value> = it.sandboxes.iter().map(sandbox).collect();
        json!({"name": it.name, "doc": it.doc, "sandboxes": sandboxes, "exports": it.exports})
    };
    let said = json!({
        "builders": docs.builders.iter().map(builder).collect::<Vec<_>>(),
        "modules": docs.modules.iter().map(module).collect::<Vec<_>>(),
    });
    match writeln!(io::stdout(), "{said}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// How much processor time a stack may take. Not time of the clock: on a busy
/// machine an honest policy would be called endless.
const DEADLINE: Duration = Duration::from_millis(1900);
const PATIENT: Duration = Duration::from_secs(10);
/// How long it may take although it does nothing.
const WAITING: Duration = Duration::from_secs(15);

/// A policy that never ends, or asks for ever more memory, ends here. The
/// evaluator has limits of its own but looks at them only now and then: a list
/// doubled in a loop outruns them.
fn bound(deadline: Duration) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let seconds = deadline.as_secs() + 1;
    for (resource, most) in [(Resource::As, 1 << 30), (Resource::Cpu, seconds)] {
        let before = getrlimit(resource);
        let limit = before.maximum.map_or(most, |limit: u64| limit.min(most));
        let _ = setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) });
    }
    // Without it there is still the limit of processor time.
    let _ = std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
        wait_for(deadline);
        let place = clash_lang::latest().map(|span| format!("{span}: ")).unwrap_or_default();
        let message = "the policy takes too long to evaluate";
        let hint = "a policy is a short program: look for a loop that does not end";
        let text = format!("{place}{message}");
        let stopped = json!({"kind": "mistake", "message": message, "text": text, "hint": hint});
        let report = json!({"mistakes": [stopped], "warnings": [], "project": null});
        let _ = writeln!(io::stderr(), "{report}");
        std::process::exit(1)
    });
}

fn wait_for(deadline: Duration) {
    use rustix::time::{ClockId, clock_gettime};
    let begun = Instant::now();
    while begun.elapsed() < WAITING {
        let spent = clock_gettime(ClockId::ProcessCPUTime);
        let spent = Duration::try_from(spent).unwrap_or(deadline);
        let Some(left) = deadline.checked_sub(spent).filter(|left| !left.is_zero()) else { return };
        // Two threads at the most use time at once.
        std::thread::sleep((left / 2).max(Duration::from_millis(5)));
    }
}

/// What asks for more memory than there is ends the process; it shall still be
/// known where that was.
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = clash_lang::evaluating().map(|span| format!("{span}: ")).unwrap_or_default();
        let why = panic.payload_as_str().unwrap_or("it cannot be evaluated");
        let message = format!("the policy does not compile: {place}{why}");
        let text = serde_json::json!({"message": message, "hint": null});
        let _ = writeln!(io::stderr(), "{text}");
    }));
}

/// A policy file that may exist.
struct Request {
    kind: LayerKind,
    trust: Trust,
    file: PathBuf,
}

enum Trust {
    Yes,
    No,
    /// As the records in this directory say.
    Recorded(PathBuf),
}

fn requests(args: &[OsString]) -> Option<Vec<Request>> {
    let (triples, rest) = args.as_chunks::<3>();
    let request = |[kind, trust, file]: &[OsString; 3]| {
        let kind = LayerKind::ALL.into_iter().find(|known| kind == known.word())?;
        let trust = match trust.to_str() {
            Some("trusted") => Trust::Yes,
            Some("untrusted") => Trust::No,
            _ => Trust::Recorded(trust.into()),
        };
        Some(Request { kind, trust, file: file.into() })
    };
    rest.is_empty().then(|| triples.iter().map(request).collect()).flatten()
}

/// The layers compiled so far, and what is to be said about them.
#[derive(Default)]
struct Stack {
    layers: Vec<Layer>,
    watched: Watched,
    mistakes: Vec<Value>,
    warnings: Vec<Value>,
    project: Value,
}

impl Stack {
    /// Every layer, also behind a mistake: who puts one right wants to know all.
    fn compile(&mut self, requests: &[Request]) {
        // A new compiler may read an old policy differently.
        let own = std::env::current_exe();
        if let Err(error) = own.and_then(|own| self.watched.note(&own)) {
            let text = format!("cannot find out where clash-compile itself is: {error}");
            self.mistakes.push(json!({"text": text, "message": text}));
        }
        let mut user = false;
        for request in requests {
            // Of two user policies the first one counts.
            let shadowed = user && request.kind == LayerKind::User;
            match self.layer(request, shadowed) {
                Ok(found) => user |= found && request.kind == LayerKind::User,
                Err(source) => {
                    let (file, layer) = (request.file.display().to_string(), request.kind.word());
                    let message = format!("cannot read the policy {file}: {source}");
                    self.mistakes.push(json!({
                        "kind": "unreadable", "layer": layer, "file": file, "text": message,
                        "message": message,
                    }));
                }
            }
        }
        let built_in = Request {
            kind: LayerKind::BuiltIn,
            trust: Trust::Yes,
            file: clash_lang::BUILT_IN.into(),
        };
        self.watched.inside(None);
        self.evaluate(&built_in);
        add_to_every_sandbox(&mut self.layers);
    }

    /// Compiles a layer; `false` if there is no such file.
    fn layer(&mut self, request: &Request, shadowed: bool) -> io::Result<bool> {
        let file = &request.file;
        let given = self.watched.instead.contains_key(file);
        if shadowed || (!given && stamp::of(file)?.is_none()) {
            self.watched.note(file)?;
            return Ok(false);
        }
        // What came with the repository must not make the compiler, which is in no
        // sandbox, read and quote a file from elsewhere.
        let project = (request.kind == LayerKind::Project).then(|| project_of(file)).flatten();
        self.watched.inside(project);
        if !given {
            self.watched.open(file)?;
        }
        self.evaluate(request);
        Ok(true)
    }

    fn evaluate(&mut self, Request { kind, trust, file }: &Request) {
        let file = file.to_string_lossy();
        compiling(&file);
        let compiled = clash_lang::compile(&file, *kind, true, &self.watched);
        let trusted = if *kind == LayerKind::Project { self.is_trusted(trust) } else { true };
        for (file, entry) in self.watched.not_enforced.take() {
            let message = format!("this restriction is not enforced: {entry}");
            let span = Span { file, line: 0, column: 0 };
            let shown = Diagnostic { message, span, line: None, hint: None };
            self.warnings.push(finding(*kind, "not-enforced", &shown));
        }
        match compiled {
            Ok(compiled) => {
                for warning in compiled.warnings {
                    let line = self.watched.line(&warning.span);
                    let (message, span, hint) = (warning.message, warning.span, warning.hint);
                    let shown = Diagnostic { message, span, line, hint };
                    self.warnings.push(finding(*kind, warning.kind, &shown));
                }
                self.layers.push(Layer { trusted, ..compiled.layer });
            }
            Err(diagnostic) => self.mistakes.push(finding(*kind, "mistake", &diagnostic)),
        }
    }

    /// Whether the user trusts the project's policy as it was just read.
    fn is_trusted(&mut self, trust: &Trust) -> bool {
        let Some(project) = self.watched.beneath.borrow().clone() else { return false };
        let real = project.canonicalize().unwrap_or(project);
        let sources = self.watched.sources.borrow();
        let digest = digest(&sources);
        let trusted = match trust {
            Trust::Yes => true,
            Trust::No => false,
            Trust::Recorded(dir) => {
                let file = trust::file_of(dir, &real);
                let noted = self.watched.note(&file);
                let record = noted.ok().and_then(|_| trust::read(&file, &real));
                record.is_some_and(|record| record.digest == digest)
            }
        };
        self.project = json!({"project": real, "digest": digest, "sources": &*sources});
        trusted
    }

    fn finish(self) -> io::Result<ExitCode> {
        let right = self.mistakes.is_empty();
        let report = json!({
            "mistakes": self.mistakes, "warnings": self.warnings, "project": self.project,
        });
        io::stderr().write_all(format!("{report}\n").as_bytes())?;
        if !right {
            return Ok(ExitCode::FAILURE);
        }
        let image = ir::encode(&self.layers, &self.watched.inputs.into_inner(), stamp::BUILD);
        io::stdout().write_all(&image)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn finding(layer: LayerKind, kind: &str, shown: &Diagnostic) -> Value {
    let Diagnostic { message, span, line, hint } = shown;
    json!({
        "kind": kind, "layer": layer.word(), "message": message, "file": span.file,
        "line": span.line, "column": span.column, "source": line, "hint": hint,
        "text": shown.to_string(),
    })
}

/// What a project's policy consists of, as one number. Lengths go in as well, so
/// that no file can pass for the end of another's name.
fn digest(sources: &[trust::Source]) -> String {
    let mut sorted: Vec<&trust::Source> = sources.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("clash project policy {}\n", trust::VERSION).as_bytes());
    for trust::Source { path, text } in sorted {
        for part in [path, text] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
    }
    hasher.finalize().to_hex().to_string()
}

/// Reads sources and remembers in which state they were.
#[derive(Default)]
struct Watched {
    inputs: RefCell<Vec<Input>>,
    /// The project whose own policy is read: only files in it, and no links.
    beneath: RefCell<Option<PathBuf>>,
    /// What the present layer was read from, relative to its project.
    sources: RefCell<Vec<trust::Source>>,
    /// Whether somebody reads the warnings.
    warnings: bool,
    /// Texts to take in place of files.
    instead: HashMap<PathBuf, String>,
    /// Restrictions of settings that are taken over and cannot be expressed.
    not_enforced: RefCell<Vec<(String, String)>>,
    /// Where Claude Code's settings are: the user's and the project's.
    claude: Option<(PathBuf, PathBuf)>,
}

/// The project of a `.clash/policy.star`.
fn project_of(file: &Path) -> Option<PathBuf> {
    file.parent().and_then(Path::parent).map(Path::to_path_buf)
}

impl Watched {
    /// Takes the options off the arguments.
    fn options<'x>(&mut self, args: &'x [OsString]) -> Option<&'x [OsString]> {
        match args {
            [option, rest @ ..] if option == "--instead" => {
                self.instead = serde_json::from_reader(io::stdin()).ok()?;
                self.options(rest)
            }
            [option, rest @ ..] if option == "--warnings" => {
                self.warnings = true;
                self.options(rest)
            }
            [option, user, project, rest @ ..] if option == "--claude" => {
                self.claude = Some((user.into(), project.into()));
                self.options(rest)
            }
            rest => Some(rest),
        }
    }

    /// Begins a layer: of a project, or of the user's own files.
    fn inside(&self, project: Option<PathBuf>) {
        self.beneath.replace(project);
        self.sources.take();
    }

    /// The line of a policy a span points at.
    fn line(&self, span: &Span) -> Option<String> {
        let path = self.relative(Path::new(&span.file));
        let sources = self.sources.borrow();
        let source = sources.iter().find(|source| source.path == path)?;
        let index = (span.line as usize).checked_sub(1)?;
        source.text.lines().nth(index).map(str::to_owned)
    }

    fn relative(&self, path: &Path) -> String {
        let beneath = self.beneath.borrow();
        let inside = beneath.as_ref().and_then(|project| path.strip_prefix(project).ok());
        inside.unwrap_or(path).to_string_lossy().into_owned()
    }

    fn text(&self, path: &Path) -> io::Result<String> {
        if let Some(text) = self.instead.get(path) {
            return Ok(text.clone());
        }
        // Before reading: a change in between then shows as a stale cache.
        if self.note(path)? > MAX_SOURCE {
            return Err(io::Error::other("it is larger than 1 MiB"));
        }
        let mut text = String::new();
        self.open(path)?.take(MAX_SOURCE).read_to_string(&mut text)?;
        Ok(text)
    }

    /// A file of Claude Code's settings as the policy that says the same.
    fn settings(
        &self,
        file: &Path,
        base: SettingsBase<'_>,
        keep: KeptRules,
    ) -> io::Result<Option<String>> {
        if self.note(file)? == 0 {
            return Ok(None);
        }
        let name = file.to_string_lossy();
        let text = self.read(file)?;
        let source = ImportSource { name: &name, bytes: text.as_bytes(), base };
        let imported = import_as(ImportFormat::Claude, &source).map_err(io::Error::other)?;
        let lost = imported.not_expressed.iter().filter(|entry| entry.restricts());
        let lost = lost.map(|entry| (name.clone().into_owned(), entry.to_string()));
        self.not_enforced.borrow_mut().extend(lost);
        // One name for each file, since sandboxes of a layer differ in theirs.
        let own = format!("claude_{:016x}", stamp::sum(name.as_bytes()));
        let made = module(&imported.source, &own, keep).map_err(io::Error::other)?;
        if made.denies_by_default {
            let text = "they deny by default; say settings(default = deny()) in the policy";
            return Err(io::Error::other(text));
        }
        Ok(Some(made.text))
    }

    fn note(&self, path: &Path) -> io::Result<u64> {
        let stamp = stamp::of(path)?;
        let path = path.to_string_lossy().into_owned();
        self.inputs.borrow_mut().push(Input { path, stamp });
        Ok(stamp.map_or(0, |stamp| stamp.size))
    }

    /// Opens a source; a pipe or a device would never end.
    fn open(&self, path: &Path) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file: File = match &*self.beneath.borrow() {
            None => rustix::fs::open(path, flags, Mode::empty())?.into(),
            Some(project) => open_beneath(project, path, flags)?,
        };
        let regular = file.metadata()?.is_file();
        regular.then_some(file).ok_or_else(|| io::Error::other("it is not a regular file"))
    }
}

/// Name by name and through no link; `openat2`, which could do it at once, is closed
/// in sandboxes.
#[cfg(target_os = "linux")]
fn open_beneath(project: &Path, path: &Path, flags: OFlags) -> io::Result<File> {
    use rustix::fs::{open, openat};
    use std::path::Component;
    let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
    let inside = path.strip_prefix(project).map_err(|_| denied())?;
    let hold = OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let mut here = open(project, hold, Mode::empty())?;
    let mut names = inside.components().peekable();
    while let Some(Component::Normal(name)) = names.next() {
        let further = if names.peek().is_some() { hold } else { flags };
        here = openat(here, name, further | OFlags::NOFOLLOW, Mode::empty())?;
        if names.peek().is_none() {
            return Ok(here.into());
        }
    }
    Err(denied())
}

#[cfg(not(target_os = "linux"))]
fn open_beneath(_: &Path, _: &Path, _: OFlags) -> io::Result<File> {
    Err(io::Error::other("a project's own policy cannot be read safely on this system"))
}

/// Longer files are no policies.
const MAX_SOURCE: u64 = 1 << 20;

impl Sources for Watched {
    fn wants_warnings(&self) -> bool {
        self.warnings
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        let text = self.text(path)?;
        let path = self.relative(path);
        let mut sources = self.sources.borrow_mut();
        // Read again only to be quoted: what was evaluated is the first.
        if sources.iter().all(|known| known.path != path) {
            sources.push(trust::Source { path, text: text.clone() });
        }
        Ok(text)
    }

    fn claude_settings(&self, user: bool, project: bool) -> Vec<(String, String)> {
        let Some((home, root)) = &self.claude else { return Vec::new() };
        let own = self.beneath.borrow().clone();
        let mut found = Vec::new();
        let mut add = |file: PathBuf, base, keep| {
            let name = file.to_string_lossy().into_owned();
            match self.settings(&file, base, keep) {
                Ok(text) => found.extend(text.map(|text| (name, text))),
                // Settings that cannot be read are no policy to go on with.
                Err(error) => {
                    let text = format!("cannot take over {name}: {error}");
                    found.push((name, format!("fail({})\n", RuleKey::str(text))));
                }
            }
        };
        // What came with the repository does not read the user's files, and its
        // allows count as little in the user's policy as they do in its own.
        let directory = home.to_string_lossy();
        if user && own.is_none() {
            add(
                home.join("settings.json"),
                SettingsBase::Directory(&directory),
                KeptRules::Everything,
            );
        }
        if project {
            let keep = if own.is_some() { KeptRules::Everything } else { KeptRules::Restrictions };
            self.beneath.replace(Some(root.clone()));
            for name in ["settings.json", "settings.local.json"] {
                add(root.join(".claude").join(name), SettingsBase::Project, keep);
            }
            self.beneath.replace(own);
        }
        found
    }
}
