//! Compiles a layer stack: policy files in, one flat image out.
//!
//! This is a program of its own for two reasons. Starlark registers some four
//! hundred things before `main`, which would cost every hook call a tenth of a
//! millisecond although hardly any of them compiles; and a policy is code that
//! may have come with a repository, so it is evaluated in a process that may be
//! killed by its own limits without taking the hook's answer along.
//!
//! Called by clash with `KIND TRUSTED|UNTRUSTED FILE` for each layer that may
//! exist, highest precedence first. Standard output is the image; a mistake is
//! one JSON object on standard error and exit status 1.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clash_lang::{Diagnostic, Sources};
use clash_policy::ir::{self, Input};
use clash_policy::rule::{Layer, LayerKind};
use rustix::fs::{Mode, OFlags};

#[path = "../stamp.rs"]
mod stamp;

fn main() -> ExitCode {
    bound();
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let compiled = requests(&args).and_then(|requests| image(&requests));
    let written = match compiled {
        Ok(image) => io::stdout().write_all(&image).map(|()| ExitCode::SUCCESS),
        Err(mistake) => {
            let text = serde_json::json!({"message": mistake.to_string(), "hint": mistake.hint()});
            writeln!(io::stderr(), "{text}").map(|()| ExitCode::FAILURE)
        }
    };
    written.unwrap_or(ExitCode::FAILURE)
}

/// A policy that never ends, or asks for ever more memory, ends here. The
/// evaluator has limits of its own but looks at them only now and then: a list
/// doubled in a loop outruns them.
fn bound() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    for (resource, most) in [(Resource::As, 1 << 30), (Resource::Cpu, 2)] {
        let before = getrlimit(resource);
        let limit = before.maximum.map_or(most, |limit: u64| limit.min(most));
        let _ = setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) });
    }
}

/// A policy file that may exist.
struct Request {
    kind: LayerKind,
    trusted: bool,
    file: PathBuf,
}

fn requests(args: &[OsString]) -> Result<Vec<Request>, Mistake> {
    let (triples, rest) = args.as_chunks::<3>();
    let usage = || Mistake::Usage;
    if !rest.is_empty() {
        return Err(usage());
    }
    triples
        .iter()
        .map(|[kind, trust, file]| {
            let kind = LayerKind::ALL.into_iter().find(|known| kind == known.word());
            Ok(Request {
                kind: kind.ok_or_else(usage)?,
                trusted: trust == "trusted",
                file: file.into(),
            })
        })
        .collect()
}

#[derive(Debug, thiserror::Error)]
enum Mistake {
    #[error("clash-compile is called by clash with the policy files to compile")]
    Usage,
    #[error("cannot read the policy {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the policy does not compile: {0}")]
    Policy(Diagnostic),
    #[error("cannot find out where clash-compile itself is: {0}")]
    OwnPath(io::Error),
}

impl Mistake {
    fn hint(&self) -> Option<&str> {
        match self {
            Self::Policy(diagnostic) => diagnostic.hint.as_deref(),
            _ => None,
        }
    }
}

fn image(requests: &[Request]) -> Result<Vec<u8>, Mistake> {
    let watched = Watched::default();
    // A new compiler may read an old policy differently.
    let own = std::env::current_exe().map_err(Mistake::OwnPath)?;
    watched.note(&own).map_err(Mistake::OwnPath)?;
    let mut layers: Vec<Layer> = Vec::new();
    for Request { kind, trusted, file } in requests {
        let unreadable = |source| Mistake::Unreadable { path: file.clone(), source };
        // Of two user policies the first one counts.
        let shadowed = *kind == LayerKind::User && layers.iter().any(|layer| layer.kind == *kind);
        if shadowed || stamp::of(file).map_err(unreadable)?.is_none() {
            watched.note(file).map_err(unreadable)?;
            continue;
        }
        // What came with the repository must not make the compiler, which is in no
        // sandbox, read and quote a file from elsewhere.
        watched.beneath.replace(if *trusted { None } else { project_of(file) });
        watched.open(file).map_err(unreadable)?;
        let compiled = clash_lang::compile(&file.to_string_lossy(), *kind, *trusted, &watched);
        layers.push(compiled.map_err(Mistake::Policy)?.layer);
    }
    watched.beneath.replace(None);
    let built_in = clash_lang::compile(clash_lang::BUILT_IN, LayerKind::BuiltIn, true, &watched);
    layers.push(built_in.map_err(Mistake::Policy)?.layer);
    Ok(ir::encode(&layers, &watched.inputs.into_inner(), stamp::BUILD))
}

/// Reads sources and remembers in which state they were.
#[derive(Default)]
struct Watched {
    inputs: RefCell<Vec<Input>>,
    /// The project whose own policy is read: only files in it, and no links.
    beneath: RefCell<Option<PathBuf>>,
}

/// The project of a `.clash/policy.star`.
fn project_of(file: &Path) -> Option<PathBuf> {
    file.parent().and_then(Path::parent).map(Path::to_path_buf)
}

impl Watched {
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

#[cfg(target_os = "linux")]
fn open_beneath(project: &Path, path: &Path, flags: OFlags) -> io::Result<File> {
    use rustix::fs::{ResolveFlags, open, openat2};
    let inside = path.strip_prefix(project).map_err(|_| io::ErrorKind::PermissionDenied)?;
    let directory = open(project, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(directory, inside, flags, Mode::empty(), resolve)?.into())
}

#[cfg(not(target_os = "linux"))]
fn open_beneath(_: &Path, _: &Path, _: OFlags) -> io::Result<File> {
    Err(io::Error::other("a project's own policy cannot be read safely on this system"))
}

/// Longer files are no policies.
const MAX_SOURCE: u64 = 1 << 20;

impl Sources for Watched {
    fn read(&self, path: &Path) -> io::Result<String> {
        // Before reading: a change in between then shows as a stale cache.
        if self.note(path)? > MAX_SOURCE {
            return Err(io::Error::other("it is larger than 1 MiB"));
        }
        let mut text = String::new();
        self.open(path)?.take(MAX_SOURCE).read_to_string(&mut text)?;
        Ok(text)
    }
}
