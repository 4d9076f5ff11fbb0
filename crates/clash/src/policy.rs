//! The policy in force for a project: the compiled layer stack, from the cache
//! when nothing changed and from the compiler otherwise.
//!
//! The cache file carries the state of every file that went into it, including
//! those that did not exist; a warm start compares them and runs no Starlark.
//! A cold start calls `clash-compile`, which lies beside clash.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use clash_policy::ir::{Checked, Ir, IrError, SandboxRef};
use clash_policy::rule::LayerKind;
use clash_sandbox::mapped::MappedFile;
use serde::{Deserialize, Serialize};

use crate::dirs::{Dirs, MANAGED_POLICY, write_private};
use crate::stamp;
use crate::trust::Source;

/// An opened compiled policy.
#[derive(Debug)]
pub(crate) struct Policy {
    image: Checked<Image>,
}

/// A compiled policy as it came from the compiler, or as it lies in the cache.
#[derive(Debug)]
enum Image {
    Made(Vec<u8>),
    Cached(MappedFile),
}

impl AsRef<[u8]> for Image {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Made(bytes) => bytes,
            Self::Cached(mapped) => mapped.bytes(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    /// What the compiler said, with its place.
    #[error("{message}")]
    Mistake { message: String, hint: Option<String> },
    #[error(
        "the policy took too long or too much memory to evaluate and was stopped at {file} or just after ({status})"
    )]
    Stopped { file: String, status: std::process::ExitStatus },
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
            Self::Stopped { .. } | Self::Ir(_) => None,
        }
    }
}

/// What the compiler has to say.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Report {
    pub(crate) mistakes: Vec<Finding>,
    pub(crate) warnings: Vec<Finding>,
    pub(crate) project: Option<ProjectPolicy>,
}

/// Something wrong, or probably wrong, with a policy.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Finding {
    /// A short name for scripts; `mistake` for what does not compile.
    #[serde(default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) layer: String,
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) file: String,
    /// From one; zero where there is no particular line.
    #[serde(default)]
    pub(crate) line: u32,
    #[serde(default)]
    pub(crate) column: u32,
    #[serde(default)]
    pub(crate) hint: Option<String>,
    /// All of it as people read it.
    #[serde(skip_serializing)]
    pub(crate) text: String,
}

/// What a project's own policy consists of.
#[derive(Debug, Deserialize)]
pub(crate) struct ProjectPolicy {
    /// With every link resolved.
    pub(crate) project: PathBuf,
    pub(crate) digest: String,
    pub(crate) sources: Vec<Source>,
}

/// A file changed this shortly before it was compiled could change again
/// without its time stamp moving on kernels before 6.13, so it is not cached.
const SETTLED: Duration = Duration::from_millis(100);

impl Policy {
    /// The policy for sessions in `project`; `session` is the session's own
    /// directory, where it has one.
    pub(crate) fn load(
        dirs: &Dirs,
        project: &Path,
        session: Option<&Path>,
    ) -> Result<Self, PolicyError> {
        let files = Files::of(dirs, project, session);
        let cached = files.cache_file(dirs);
        if let Some(policy) = Self::warm(&cached, &files) {
            return Ok(policy);
        }
        let started = SystemTime::now();
        let policy = files.compile()?;
        if settled(policy.ir(), started)? {
            // A cache that cannot be written costs time and nothing else.
            let _ = write_private(&cached, policy.image.bytes());
        }
        Ok(policy)
    }

    pub(crate) fn ir(&self) -> Ir<'_> {
        self.image.ir()
    }

    /// The sandboxes that can be named, highest layer first. One that came with
    /// the repository cannot: it could take the name of a preset and grant more.
    pub(crate) fn sandboxes(&self) -> Result<Vec<SandboxRef<'_>>, IrError> {
        let mut known: Vec<SandboxRef<'_>> = Vec::new();
        for layer in self.ir().layers() {
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
        let image = Image::Cached(MappedFile::open(cached).ok()?);
        let image = Checked::new(image, stamp::BUILD).ok()?;
        let mut seen = 0;
        for input in image.ir().inputs() {
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
pub(crate) struct Files {
    candidates: Vec<(LayerKind, PathBuf)>,
    trust: Trust,
    /// Texts to take in place of files: what somebody is about to write.
    instead: BTreeMap<PathBuf, String>,
    /// The directories with Claude Code's settings: the user's and the project.
    claude: Option<(PathBuf, PathBuf)>,
}

/// Whether what came with the repository is somebody's word.
enum Trust {
    /// As the records in this directory say.
    Recorded(PathBuf),
    /// As if it were, to see what it would permit.
    Assumed,
}

/// One line of what the compiler says.
#[derive(Deserialize)]
struct Progress {
    compiling: String,
}

impl Files {
    /// Everything that holds for a session in `project`.
    pub(crate) fn of(dirs: &Dirs, project: &Path, session: Option<&Path>) -> Self {
        let mut candidates = vec![(LayerKind::Managed, PathBuf::from(MANAGED_POLICY))];
        // Asked here and not left to the compiler, so that sessions without a
        // policy of their own share what was compiled.
        let session = session.map(|dir| dir.join(SESSION_POLICY)).filter(|path| path.exists());
        candidates.extend(session.map(|path| (LayerKind::Session, path)));
        candidates.extend(dirs.project_policy(project).map(|path| (LayerKind::Project, path)));
        candidates.extend(dirs.user_policies.iter().map(|path| (LayerKind::User, path.clone())));
        let trust = Trust::Recorded(dirs.trust());
        let claude = Some((dirs.claude.clone(), project.to_path_buf()));
        Self { candidates, trust, instead: BTreeMap::new(), claude }
    }

    /// One file on its own, as if it were the user's.
    pub(crate) fn only(file: &Path) -> Self {
        let candidates = vec![(LayerKind::User, file.to_path_buf())];
        Self { candidates, trust: Trust::Assumed, instead: BTreeMap::new(), claude: None }
    }

    /// As if the user had trusted the project.
    pub(crate) fn trusting(self) -> Self {
        Self { trust: Trust::Assumed, ..self }
    }

    /// As if a file held this text.
    pub(crate) fn with_text(mut self, file: &Path, text: &str) -> Self {
        self.instead.insert(file.to_path_buf(), text.to_owned());
        self
    }

    /// With the policy of a session, which need not exist yet.
    pub(crate) fn with_session(mut self, file: &Path) -> Self {
        if self.candidates.iter().all(|(_, known)| known != file) {
            self.candidates.insert(1, (LayerKind::Session, file.to_path_buf()));
        }
        self
    }

    fn cache_file(&self, dirs: &Dirs) -> PathBuf {
        let mut names = Vec::new();
        let settings = self.claude.iter().map(|(user, _)| user);
        for path in self.candidates.iter().map(|(_, path)| path).chain(settings) {
            names.extend(path.as_os_str().as_encoded_bytes());
            names.push(0);
        }
        dirs.cache.join(format!("policy/{:016x}.ir", stamp::sum(&names)))
    }

    pub(crate) fn compile(&self) -> Result<Policy, PolicyError> {
        let (policy, report) = self.run(false)?;
        match policy {
            Some(policy) => Ok(policy),
            None => Err(report.mistakes.into_iter().next().map_or_else(
                || PolicyError::Ir(IrError::NotIr),
                |Finding { kind, text, hint, .. }| {
                    let prefix =
                        if kind == "mistake" { "the policy does not compile: " } else { "" };
                    PolicyError::Mistake { message: format!("{prefix}{text}"), hint }
                },
            )),
        }
    }

    /// Compiles without the cache and looks for what is probably not meant; with
    /// mistakes there is no policy.
    pub(crate) fn check(&self) -> Result<(Option<Policy>, Report), PolicyError> {
        self.run(true)
    }

    fn run(&self, warnings: bool) -> Result<(Option<Policy>, Report), PolicyError> {
        let compiler = compiler();
        let mut command = Command::new(&compiler);
        if warnings {
            command.arg("--warnings");
        }
        if !self.instead.is_empty() {
            command.arg("--instead");
        }
        if let Some((user, project)) = &self.claude {
            command.arg("--claude").args([user, project]);
        }
        for (kind, path) in &self.candidates {
            command.arg(kind.word());
            match &self.trust {
                Trust::Recorded(dir) if *kind == LayerKind::Project => command.arg(dir),
                _ => command.arg("trusted"),
            };
            command.arg(path);
        }
        // What a policy means must not depend on who calls for it.
        let output = fed(command.env_clear(), &self.instead);
        let output = output.map_err(|source| PolicyError::NoCompiler { path: compiler, source })?;
        let said = String::from_utf8_lossy(&output.stderr);
        match said.lines().last().map(serde_json::from_str::<Report>) {
            Some(Ok(report)) if !report.mistakes.is_empty() => Ok((None, report)),
            Some(Ok(report)) if output.status.success() => {
                let image = Checked::new(Image::Made(output.stdout), stamp::BUILD)?;
                Ok((Some(Policy { image }), report))
            }
            _ => {
                let mut progress =
                    said.lines().rev().filter_map(|line| serde_json::from_str(line).ok());
                let file = progress.next().map_or_else(String::new, |p: Progress| p.compiling);
                Err(PolicyError::Stopped { file, status: output.status })
            }
        }
    }
}

/// The program that knows the language lies beside this one.
pub(crate) fn compiler() -> PathBuf {
    let beside = |own: PathBuf| own.with_file_name("clash-compile");
    std::env::current_exe().map(beside).unwrap_or_default()
}

/// Runs the compiler with the texts on its standard input.
fn fed(command: &mut Command, texts: &BTreeMap<PathBuf, String>) -> io::Result<Output> {
    if texts.is_empty() {
        return command.stdin(Stdio::null()).output();
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    // It reads everything before it writes anything.
    if let Some(mut input) = child.stdin.take() {
        input.write_all(&serde_json::to_vec(texts)?)?;
    }
    child.wait_with_output()
}

/// A session's own policy, in its directory.
pub(crate) const SESSION_POLICY: &str = "policy.star";

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
