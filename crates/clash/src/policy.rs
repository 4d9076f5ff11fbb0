//! The policy in force for a project: the compiled layer stack, from the cache
//! when nothing changed and from the compiler otherwise.
//!
//! The cache file carries the state of every file that went into it, including
//! those that did not exist; a warm start compares them and runs no Starlark.
//! A cold start calls `clash-compile`, which lies beside clash.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use clash_policy::ir::{Ir, IrError, SandboxRef};
use clash_policy::rule::LayerKind;
use serde::Deserialize;

use crate::dirs::{Dirs, MANAGED_POLICY, create_private};
use crate::stamp;

/// An opened compiled policy.
#[derive(Debug)]
pub(crate) struct Policy {
    image: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    /// What the compiler said, with its place.
    #[error("{message}")]
    Mistake { message: String, hint: Option<String> },
    #[error("the policy took too long or too much memory to evaluate and was stopped ({0})")]
    Stopped(std::process::ExitStatus),
    #[error("cannot run the policy compiler {}: {source}", path.display())]
    NoCompiler { path: PathBuf, source: io::Error },
    #[error("the compiled policy cannot be used: {0}")]
    Ir(#[from] IrError),
}

impl PolicyError {
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Mistake { hint, .. } => hint.clone(),
            Self::NoCompiler { .. } => Some(
                "clash and clash-compile belong in one directory; install clash again".to_owned(),
            ),
            Self::Stopped(_) | Self::Ir(_) => None,
        }
    }
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
        let policy = files.compile()?;
        if settled(policy.ir()?, started)? {
            // A cache that cannot be written costs time and nothing else.
            let _ = store(&cached, &policy.image);
        }
        Ok(policy)
    }

    /// Compiles anew, without the cache; for commands that show mistakes.
    pub(crate) fn compile_now(dirs: &Dirs, project: &Path) -> Result<Self, PolicyError> {
        Files::of(dirs, project).compile()
    }

    pub(crate) fn ir(&self) -> Result<Ir<'_>, IrError> {
        Ir::open(&self.image, stamp::BUILD)
    }

    /// The sandboxes that can be named, highest layer first. One that came with
    /// the repository cannot: it could take the name of a preset and grant more.
    pub(crate) fn sandboxes(&self) -> Result<Vec<SandboxRef<'_>>, IrError> {
        let mut known: Vec<SandboxRef<'_>> = Vec::new();
        for layer in self.ir()?.layers() {
            let layer = layer?;
            if !layer.trusted()? {
                continue;
            }
            for sandbox in layer.sandboxes()? {
                let (sandbox, mut taken) = (sandbox?, false);
                for other in &known {
                    taken |= other.name()? == sandbox.name()?;
                }
                if !taken {
                    known.push(sandbox);
                }
            }
        }
        Ok(known)
    }

    /// The cached image, if it is intact and every input is as it was.
    fn warm(cached: &Path, files: &Files) -> Option<Self> {
        let image = fs::read(cached).ok()?;
        let ir = Ir::open(&image, stamp::BUILD).ok()?;
        let mut seen = 0;
        for input in ir.inputs() {
            let input = input.ok()?;
            let path = Path::new(input.path().ok()?);
            if input.stamp().ok()? != stamp::of(path).ok()? {
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

/// A mistake as the compiler reports it.
#[derive(Deserialize)]
struct Report {
    message: String,
    hint: Option<String>,
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
        self.candidates.iter().for_each(|(_, path)| path.as_os_str().hash(&mut hasher));
        dirs.cache.join(format!("policy/{:016x}.ir", hasher.finish()))
    }

    fn compile(&self) -> Result<Policy, PolicyError> {
        let beside = |own: PathBuf| own.with_file_name("clash-compile");
        let compiler = std::env::current_exe().map(beside).unwrap_or_default();
        let failed = |source| PolicyError::NoCompiler { path: compiler.clone(), source };
        let mut command = Command::new(&compiler);
        for (kind, path) in &self.candidates {
            // A policy that arrived with the repository is nobody's word yet.
            let trust = if *kind == LayerKind::Project { "untrusted" } else { "trusted" };
            command.arg(kind.word()).arg(trust).arg(path);
        }
        let output = command.stdin(Stdio::null()).output().map_err(failed)?;
        if output.status.success() {
            let policy = Policy { image: output.stdout };
            policy.ir()?;
            return Ok(policy);
        }
        match serde_json::from_slice(&output.stderr) {
            Ok(Report { message, hint }) => Err(PolicyError::Mistake { message, hint }),
            Err(_) => Err(PolicyError::Stopped(output.status)),
        }
    }
}

fn settled(ir: Ir<'_>, started: SystemTime) -> Result<bool, IrError> {
    let now = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let limit = u64::try_from(now.saturating_sub(SETTLED).as_nanos()).unwrap_or(0);
    for input in ir.inputs() {
        let stamp = input?.stamp()?;
        if stamp.is_some_and(|stamp| stamp.changed_ns.max(stamp.modified_ns) >= limit) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn store(cached: &Path, image: &[u8]) -> io::Result<()> {
    let dir = cached.parent().ok_or(io::ErrorKind::InvalidInput)?;
    create_private(dir)?;
    let temp = cached.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&temp, image)?;
    fs::rename(&temp, cached)
}
