//! The policy in force for a project: the compiled layer stack, from the cache
//! when nothing changed and from the sources otherwise.
//!
//! The cache file carries the state of every file that went into it, including
//! those that did not exist; a warm start compares them and runs no Starlark.

use std::cell::RefCell;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clash_lang::{Diagnostic, Sources};
use clash_policy::ir::{self, Input, Ir, IrError, Stamp};
use clash_policy::rule::LayerKind;

use crate::dirs::{Dirs, MANAGED_POLICY, create_private};

/// An opened compiled policy.
#[derive(Debug)]
pub(crate) struct Policy {
    image: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    #[error("cannot read the policy {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the policy does not compile: {0}")]
    Mistake(Diagnostic),
    #[error("the compiled policy cannot be used: {0}")]
    Ir(#[from] IrError),
}

/// A file changed this shortly before it was compiled could change again
/// without its time stamp moving on kernels before 6.13, so it is not cached.
const SETTLED: Duration = Duration::from_millis(100);

impl Policy {
    /// The policy for sessions in `project`.
    pub(crate) fn load(dirs: &Dirs, project: &Path) -> Result<Self, PolicyError> {
        let files = Files::of(dirs, project);
        let cached = files.cache_file(dirs);
        if let Some(policy) = Self::warm(&cached, &files) {
            return Ok(policy);
        }
        let started = SystemTime::now();
        let (image, inputs) = compile(&files)?;
        if settled(&inputs, started) {
            // A cache that cannot be written costs time and nothing else.
            let _ = store(&cached, &image);
        }
        let policy = Self { image };
        policy.ir()?;
        Ok(policy)
    }

    /// Compiles anew, without the cache; for commands that show mistakes.
    pub(crate) fn compile_now(dirs: &Dirs, project: &Path) -> Result<Self, PolicyError> {
        compile(&Files::of(dirs, project)).map(|(image, _)| Self { image })
    }

    pub(crate) fn ir(&self) -> Result<Ir<'_>, IrError> {
        Ir::open(&self.image, build())
    }

    /// The cached image, if it is intact and every input is as it was.
    fn warm(cached: &Path, files: &Files) -> Option<Self> {
        let image = fs::read(cached).ok()?;
        let ir = Ir::open(&image, build()).ok()?;
        let mut seen = 0;
        for input in ir.inputs() {
            let input = input.ok()?;
            let path = Path::new(input.path().ok()?);
            if input.stamp().ok()? != stamp(path).ok()? {
                return None;
            }
            seen += usize::from(files.candidates.iter().any(|(_, known)| known == path));
        }
        (seen == files.candidates.len()).then_some(Self { image })
    }
}

/// The policy files that may exist, highest precedence first.
struct Files {
    candidates: Vec<(LayerKind, PathBuf)>,
}

impl Files {
    fn of(dirs: &Dirs, project: &Path) -> Self {
        let mut candidates = vec![(LayerKind::Managed, PathBuf::from(MANAGED_POLICY))];
        candidates.extend(dirs.project_policy(project).map(|path| (LayerKind::Project, path)));
        candidates.extend(dirs.user_policies.iter().map(|path| (LayerKind::User, path.clone())));
        Self { candidates }
    }

    fn cache_file(&self, dirs: &Dirs) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        self.candidates.iter().for_each(|(_, path)| path.hash(&mut hasher));
        dirs.cache.join(format!("policy/{:016x}.ir", hasher.finish()))
    }
}

/// What tells images of different builds apart: the version and every preset.
fn build() -> u64 {
    const fn mix(mut sum: u64, text: &str) -> u64 {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            #[expect(
                clippy::indexing_slicing,
                reason = "bounded by the loop, evaluated when compiled"
            )]
            let byte = bytes[at];
            sum = (sum ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3);
            at += 1;
        }
        sum
    }
    const BUILD: u64 =
        mix(mix(0xcbf2_9ce4_8422_2325, env!("CARGO_PKG_VERSION")), clash_lang::LIBRARY_TEXT);
    BUILD
}

fn stamp(path: &Path) -> io::Result<Option<Stamp>> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some(Stamp {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified_ns: nanoseconds(meta.mtime(), meta.mtime_nsec()),
            changed_ns: nanoseconds(meta.ctime(), meta.ctime_nsec()),
        })),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn nanoseconds(seconds: i64, rest: i64) -> u64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest) as u64
}

/// Reads sources and remembers in which state they were.
#[derive(Default)]
struct Watched {
    inputs: RefCell<Vec<Input>>,
}

impl Watched {
    fn note(&self, path: &Path) -> io::Result<Option<Stamp>> {
        let stamp = stamp(path)?;
        self.inputs.borrow_mut().push(Input { path: path.to_string_lossy().into_owned(), stamp });
        Ok(stamp)
    }
}

/// Longer files are no policies.
const MAX_SOURCE: u64 = 1 << 20;

impl Sources for Watched {
    fn read(&self, path: &Path) -> io::Result<String> {
        // Before reading: a change in between then shows as a stale cache.
        if self.note(path)?.is_some_and(|stamp| stamp.size > MAX_SOURCE) {
            return Err(io::Error::other("it is larger than 1 MiB"));
        }
        fs::read_to_string(path)
    }
}

fn compile(files: &Files) -> Result<(Vec<u8>, Vec<Input>), PolicyError> {
    let _bounded = BoundedMemory::enter();
    let watched = Watched::default();
    let mut layers = Vec::new();
    let mut have_user = false;
    for (kind, path) in &files.candidates {
        let unreadable = |source| PolicyError::Unreadable { path: path.clone(), source };
        let present = stamp(path).map_err(unreadable)?.is_some();
        if !present || (*kind == LayerKind::User && have_user) {
            watched.note(path).map_err(unreadable)?;
            continue;
        }
        have_user |= *kind == LayerKind::User;
        // A policy that arrived with the repository is nobody's word yet.
        let trusted = *kind != LayerKind::Project;
        fs::File::open(path).map_err(unreadable)?;
        let layer = clash_lang::compile(&path.to_string_lossy(), *kind, trusted, &watched);
        layers.push(layer.map_err(PolicyError::Mistake)?);
    }
    let built_in = clash_lang::compile(clash_lang::BUILT_IN, LayerKind::BuiltIn, true, &watched);
    layers.push(built_in.map_err(PolicyError::Mistake)?);
    let inputs = watched.inputs.into_inner();
    Ok((ir::encode(&layers, &inputs, build()), inputs))
}

fn settled(inputs: &[Input], started: SystemTime) -> bool {
    let now = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let limit = u64::try_from(now.saturating_sub(SETTLED).as_nanos()).unwrap_or(0);
    inputs.iter().filter_map(|input| input.stamp).all(|s| s.changed_ns.max(s.modified_ns) < limit)
}

fn store(cached: &Path, image: &[u8]) -> io::Result<()> {
    let dir = cached.parent().ok_or(io::ErrorKind::InvalidInput)?;
    create_private(dir)?;
    let temp = cached.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&temp, image)?;
    fs::rename(&temp, cached)
}

/// While a policy is evaluated, memory is bounded: the evaluator looks at its
/// heap only now and then, and a list doubled in a loop outruns it. Running
/// into the bound ends the process, which every guard reads as a block.
struct BoundedMemory(rustix::process::Rlimit);

const MAX_MEMORY: u64 = 1 << 30;

impl BoundedMemory {
    fn enter() -> Self {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let before = getrlimit(Resource::As);
        let bound = before.current.map_or(MAX_MEMORY, |limit| limit.min(MAX_MEMORY));
        let _ = setrlimit(Resource::As, Rlimit { current: Some(bound), maximum: before.maximum });
        Self(before)
    }
}

impl Drop for BoundedMemory {
    fn drop(&mut self) {
        use rustix::process::{Resource, setrlimit};
        let _ = setrlimit(Resource::As, self.0.clone());
    }
}
