//! The policy in force for a project: the compiled layer stack, from the cache or from
//! the compiler.
//!
//! The cache file contains the stamp of every input file, also of files that did not
//! exist. A warm start compares the stamps and runs no Starlark. If one differs, a cold
//! start runs `clash-compile`.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clash_agents::settings_for_policies;
use clash_policy::Sandbox;
use clash_policy::fnv::fnv_hash;
use clash_policy::ir::{CheckedImage, IrError, IrImage, SandboxRef};
use clash_policy::rule::LayerKind;
use clash_protocol::report::{CompileReport, MISTAKE_KIND, PolicyFinding};
use clash_protocol::request::{
    ClaudeSettingsDirs, CompileRequest, CompilerRequest, LayerFile, ReplacedText, TrustSource,
};
use clash_protocol::stamp::{BUILD_STAMP, stamp_file};
use clash_sandbox::mapped::MappedFile;

use crate::compiler::{CompilerAnswer, CompilerError, ask_compiler};
use crate::dirs::{Dirs, MANAGED_POLICY, write_private};

/// An opened compiled policy.
#[derive(Debug)]
pub(crate) struct LoadedPolicy {
    image: CheckedImage<PolicyImage>,
}

/// A compiled policy: from the compiler, or mapped from the cache file.
#[derive(Debug)]
enum PolicyImage {
    Made(Vec<u8>),
    Cached(MappedFile),
}

impl AsRef<[u8]> for PolicyImage {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Made(bytes) => bytes,
            Self::Cached(mapped) => mapped.bytes(),
        }
    }
}

/// There is no policy in force, so every action is denied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    /// The compiler's words, with the place.
    #[error("{message}")]
    Mistake { message: String, hint: Option<String> },
    #[error(transparent)]
    Compiler(#[from] CompilerError),
    #[error("the compiled policy cannot be used: {0}")]
    Ir(#[from] IrError),
}

impl PolicyError {
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Mistake { hint, .. } => hint.clone(),
            Self::Compiler(error) => error.hint().map(str::to_owned),
            Self::Ir(_) => None,
        }
    }
}

/// Before kernel 6.13 a file can change twice within one tick of its time stamp. So a
/// policy with a file that changed this shortly before the compilation is not cached.
const SETTLE_TIME: Duration = Duration::from_millis(100);

impl LoadedPolicy {
    /// The policy for sessions in `project`. `session` is the directory of the session, which
    /// may have a policy of its own. Comes from the cache if no input has changed; otherwise
    /// runs the compiler and writes the cache. Fails if a policy does not compile.
    pub(crate) fn load(
        dirs: &Dirs,
        project: &Path,
        session: Option<&Path>,
    ) -> Result<Self, PolicyError> {
        let files = PolicyFiles::in_force(dirs, project, session);
        let cached = files.cache_file(dirs);
        if let Some(policy) = Self::open_cached(&cached, &files) {
            return Ok(policy);
        }
        let started = SystemTime::now();
        let policy = files.compile()?;
        if is_settled(policy.ir(), started)? {
            // Without a cache the next start only takes longer.
            let _ = write_private(&cached, policy.image.bytes());
        }
        Ok(policy)
    }

    pub(crate) fn ir(&self) -> IrImage<'_> {
        self.image.ir()
    }

    /// The sandboxes that a command line can name, highest layer first. A sandbox of an
    /// untrusted project is left out: it could take the name of a preset and grant more.
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

    /// The sandboxes of [`Self::sandboxes`] in their owned form, in the same order.
    pub(crate) fn owned_sandboxes(&self) -> Result<Vec<Sandbox>, IrError> {
        self.sandboxes()?.into_iter().map(|sandbox| sandbox.to_sandbox()).collect()
    }

    /// The cached image, if it is intact, no input has changed, and it was made from exactly
    /// these files.
    fn open_cached(cached: &Path, files: &PolicyFiles) -> Option<Self> {
        let image = PolicyImage::Cached(MappedFile::open(cached).ok()?);
        let image = CheckedImage::new(image, BUILD_STAMP).ok()?;
        let mut seen = 0;
        for input in image.ir().inputs() {
            let input = input.ok()?;
            let path = Path::new(input.path().ok()?);
            if input.stamp().ok()? != stamp_file(path).ok()? {
                return None;
            }
            seen += usize::from(files.candidates.iter().any(|(_, known)| known == path));
        }
        (seen == files.candidates.len()).then_some(Self { image })
    }
}

/// The policy files that may exist, highest precedence first.
#[derive(Clone)]
pub(crate) struct PolicyFiles {
    candidates: Vec<(LayerKind, PathBuf)>,
    /// About the project's policy; every other file is trusted.
    trust: TrustSource,
    /// Texts to compile in place of files, before a command writes them.
    replaced_texts: Vec<ReplacedText>,
    claude_settings: Option<ClaudeSettingsDirs>,
}

/// The beginning of a message about a mistake in a policy.
const DOES_NOT_COMPILE: &str = "the policy does not compile: ";

impl PolicyFiles {
    /// The policies in force for a session in `project`.
    pub(crate) fn in_force(dirs: &Dirs, project: &Path, session: Option<&Path>) -> Self {
        let mut candidates = vec![(LayerKind::Managed, PathBuf::from(MANAGED_POLICY))];
        // Not left to the compiler: so sessions without a policy of their own share one
        // cache file. If the file may exist, the compiler reads it or fails.
        let may_exist = |path: &PathBuf| path.try_exists().unwrap_or(true);
        let session = session.map(|dir| dir.join(SESSION_POLICY)).filter(may_exist);
        candidates.extend(session.map(|path| (LayerKind::Session, path)));
        candidates.extend(dirs.project_policy(project).map(|path| (LayerKind::Project, path)));
        candidates.extend(dirs.user_policies.iter().map(|path| (LayerKind::User, path.clone())));
        let trust = TrustSource::Records(dirs.trust());
        let (user, project) = (settings_for_policies(&dirs.for_agents()), project.to_path_buf());
        let claude_settings = Some(ClaudeSettingsDirs { user, project });
        Self { candidates, trust, replaced_texts: Vec::new(), claude_settings }
    }

    /// One file alone, as if it were the user's policy.
    pub(crate) fn single(file: &Path) -> Self {
        let candidates = vec![(LayerKind::User, file.to_path_buf())];
        let trust = TrustSource::Assumed;
        Self { candidates, trust, replaced_texts: Vec::new(), claude_settings: None }
    }

    /// The same files, as if the user trusted the project.
    pub(crate) fn trusting(self) -> Self {
        Self { trust: TrustSource::Assumed, ..self }
    }

    /// The same files, as if `file` contained this text.
    pub(crate) fn with_text(mut self, file: &Path, text: &str) -> Self {
        self.replaced_texts.retain(|replaced| replaced.path != file);
        self.replaced_texts.push(ReplacedText { path: file.into(), text: text.to_owned() });
        self
    }

    /// The same files and the policy of a session, which need not exist yet.
    pub(crate) fn with_session(mut self, file: &Path) -> Self {
        if self.candidates.iter().all(|(_, known)| known != file) {
            self.candidates.insert(1, (LayerKind::Session, file.to_path_buf()));
        }
        self
    }

    /// The file of the compiled policy, named after the paths of its inputs.
    fn cache_file(&self, dirs: &Dirs) -> PathBuf {
        let mut names = Vec::new();
        let settings = self.claude_settings.iter().map(|dirs| &dirs.user);
        for path in self.candidates.iter().map(|(_, path)| path).chain(settings) {
            names.extend(path.as_os_str().as_encoded_bytes());
            names.push(0);
        }
        dirs.cache.join(format!("policy/{:016x}.ir", fnv_hash(&names)))
    }

    /// Compiles without the cache. Fails with the first mistake.
    pub(crate) fn compile(&self) -> Result<LoadedPolicy, PolicyError> {
        let (policy, report) = self.run_compiler(false)?;
        match policy {
            Some(policy) => Ok(policy),
            None => Err(report.mistakes.into_iter().next().map_or_else(
                || PolicyError::Ir(IrError::NotIr),
                |PolicyFinding { kind, text, hint, .. }| {
                    let prefix = if kind == MISTAKE_KIND { DOES_NOT_COMPILE } else { "" };
                    PolicyError::Mistake { message: format!("{prefix}{text}"), hint }
                },
            )),
        }
    }

    /// Compiles without the cache and looks for probable mistakes as well. With a
    /// mistake there is no policy.
    pub(crate) fn check(&self) -> Result<(Option<LoadedPolicy>, CompileReport), PolicyError> {
        match self.run_compiler(true) {
            Err(PolicyError::Compiler(error)) => {
                let finding = limit_finding(&error).ok_or(error)?;
                Ok((None, CompileReport { mistakes: vec![finding], ..Default::default() }))
            }
            other => other,
        }
    }

    /// Starts `clash-compile` for these files and waits for it. With a mistake there is no
    /// policy, only the report. Stores nothing. Only the trust of the project's own policy is
    /// checked.
    fn run_compiler(
        &self,
        warnings: bool,
    ) -> Result<(Option<LoadedPolicy>, CompileReport), PolicyError> {
        let trust = |kind| match &self.trust {
            TrustSource::Records(_) if kind != LayerKind::Project => TrustSource::Assumed,
            trust => trust.clone(),
        };
        let candidates = self.candidates.iter();
        let request = CompilerRequest::Compile(CompileRequest {
            layers: candidates
                .map(|(layer, path)| LayerFile {
                    layer: *layer,
                    trust: trust(*layer),
                    path: path.clone(),
                })
                .collect(),
            replaced_texts: self.replaced_texts.clone(),
            claude_settings: self.claude_settings.clone(),
            warnings,
        });
        match ask_compiler(&request)? {
            CompilerAnswer::Image { image, report } => {
                let image = CheckedImage::new(PolicyImage::Made(image), BUILD_STAMP)?;
                Ok((Some(LoadedPolicy { image }), report))
            }
            CompilerAnswer::Mistakes(report) => Ok((None, report)),
            CompilerAnswer::Product(_) | CompilerAnswer::UnknownName { .. } => {
                Err(CompilerError::WrongAnswer.into())
            }
        }
    }
}

/// A time or memory limit that the policy has hit, as a mistake in the policy; `None` for
/// other failures.
fn limit_finding(error: &CompilerError) -> Option<PolicyFinding> {
    let (CompilerError::TimeLimit { .. } | CompilerError::MemoryLimit { .. }) = error else {
        return None;
    };
    let text = error.to_string();
    let text = text.strip_prefix(DOES_NOT_COMPILE).unwrap_or(&text).to_owned();
    Some(PolicyFinding {
        kind: MISTAKE_KIND.to_owned(),
        message: text.clone(),
        hint: error.hint().map(str::to_owned),
        text,
        ..Default::default()
    })
}

/// The name of a session's own policy in the session's directory.
pub(crate) const SESSION_POLICY: &str = "policy.star";

/// True if no input of the image changed shortly before the compilation.
fn is_settled(ir: IrImage<'_>, started: SystemTime) -> Result<bool, IrError> {
    let now = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let limit = u64::try_from(now.saturating_sub(SETTLE_TIME).as_nanos()).unwrap_or(0);
    for input in ir.inputs() {
        let stamp = input?.stamp()?;
        if stamp.is_some_and(|stamp| stamp.changed_ns.max(stamp.modified_ns) >= limit) {
            return Ok(false);
        }
    }
    Ok(true)
}
