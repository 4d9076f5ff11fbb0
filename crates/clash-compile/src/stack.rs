//! The stack of layers: each policy file compiled in its turn, and one report.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clash_lang::CompileError;
use clash_policy::PolicySpan;
use clash_policy::ir;
use clash_policy::rule::{Layer, LayerKind, add_grants, add_to_every_sandbox};
use clash_protocol::report::{
    CompileReport, CompilerEvent, MISTAKE_KIND, PolicyFinding, ProjectPolicy, UNREADABLE_KIND,
};
use clash_protocol::request::{CompileRequest, LayerFile, TrustSource};
use clash_protocol::stamp::{BUILD_STAMP, stamp_file};
use clash_protocol::trust::{PolicySource, TRUST_RECORD_VERSION, read_record, record_path};

use crate::answer::send_event;
use crate::sources::PolicySources;

/// The layers compiled so far, their inputs and the findings about them.
pub(crate) struct LayerStack {
    layers: Vec<Layer>,
    sources: PolicySources,
    report: CompileReport,
}

impl LayerStack {
    /// Compiles every layer. A mistake does not stop it: the user wants to see all
    /// mistakes at once.
    pub(crate) fn compile(request: CompileRequest) -> Self {
        let CompileRequest { layers, replaced_texts, claude_settings, warnings } = request;
        let sources = PolicySources::new(replaced_texts, claude_settings, warnings);
        let mut stack = Self { layers: Vec::new(), sources, report: CompileReport::default() };
        stack.record_compiler();
        let mut has_user_policy = false;
        for file in &layers {
            // Of two user policies the first one counts.
            let is_user = file.layer == LayerKind::User;
            match stack.compile_file(file, is_user && has_user_policy) {
                Ok(found) => has_user_policy |= found && is_user,
                Err(error) => stack.report.mistakes.push(unreadable(file, &error)),
            }
        }
        stack.sources.begin_layer(None);
        stack.evaluate(&LayerFile {
            layer: LayerKind::BuiltIn,
            trust: TrustSource::Assumed,
            path: clash_lang::BUILT_IN.into(),
        });
        for grant in add_grants(&mut stack.layers) {
            let message = format!("there is no sandbox `{}` to grant this to", grant.sandbox);
            let line = stack.sources.line_at(&grant.span);
            let shown = CompileError { message, span: grant.span, line, hint: None };
            stack.report.warnings.push(finding(LayerKind::User, "unused-grant", &shown));
        }
        add_to_every_sandbox(&mut stack.layers);
        stack
    }

    /// Records this program as an input: a new compiler may read an old policy
    /// differently.
    fn record_compiler(&mut self) {
        let own = std::env::current_exe();
        if let Err(error) = own.and_then(|own| self.sources.record_input(&own)) {
            let message = format!("cannot find out where clash-compile itself is: {error}");
            let text = message.clone();
            self.report.mistakes.push(PolicyFinding { message, text, ..Default::default() });
        }
    }

    /// Compiles a layer; `false` if there is no such file, or if another file shadows it.
    /// The image records the file in either case.
    fn compile_file(&mut self, file: &LayerFile, shadowed: bool) -> io::Result<bool> {
        let path = &file.path;
        let replaced = self.sources.is_replaced(path);
        if shadowed || (!replaced && stamp_file(path)?.is_none()) {
            self.sources.record_input(path)?;
            return Ok(false);
        }
        // A policy of a repository must not make the compiler, which is in no sandbox,
        // read and quote a file outside the project.
        let project = (file.layer == LayerKind::Project).then(|| project_of(path)).flatten();
        self.sources.begin_layer(project);
        if !replaced {
            self.sources.open(path)?;
        }
        self.evaluate(file);
        Ok(true)
    }

    /// Evaluates one layer and adds it to the stack, or adds its mistake to the report. A
    /// project's layer is added also if the user does not trust it; decisions then use it
    /// only to be stricter.
    fn evaluate(&mut self, LayerFile { layer, trust, path }: &LayerFile) {
        let file = path.to_string_lossy();
        send_event(&CompilerEvent::Evaluating { place: file.clone().into_owned() });
        let compiled = clash_lang::compile(&file, *layer, true, &self.sources);
        let trusted = *layer != LayerKind::Project || self.is_trusted(trust);
        for (file, entry) in self.sources.take_unenforced() {
            let message = format!("this restriction is not enforced: {entry}");
            let span = PolicySpan { file, line: 0, column: 0 };
            let shown = CompileError { message, span, line: None, hint: None };
            self.report.warnings.push(finding(*layer, "not-enforced", &shown));
        }
        match compiled {
            Ok(compiled) => {
                self.report.expectations += compiled.expectations;
                for warning in compiled.warnings {
                    let line = self.sources.line_at(&warning.span);
                    let (message, span, hint) = (warning.message, warning.span, warning.hint);
                    let shown = CompileError { message, span, line, hint };
                    self.report.warnings.push(finding(*layer, warning.kind, &shown));
                }
                self.layers.push(Layer { trusted, ..compiled.layer });
            }
            Err(diagnostic) => {
                self.report.mistakes.push(finding(*layer, MISTAKE_KIND, &diagnostic));
            }
        }
    }

    /// True if the user trusts the project's policy as the compiler has just read it. Also
    /// puts the sources and their digest into the report.
    fn is_trusted(&mut self, trust: &TrustSource) -> bool {
        let Some(project) = self.sources.project() else { return false };
        let project = project.canonicalize().unwrap_or(project);
        let sources = self.sources.layer_sources();
        let digest = digest(&sources);
        let trusted = match trust {
            TrustSource::Assumed => true,
            TrustSource::Records(records) => {
                let file = record_path(records, &project);
                let recorded = self.sources.record_input(&file);
                let record = recorded.ok().and_then(|_| read_record(&file, &project));
                record.is_some_and(|record| record.digest == digest)
            }
        };
        self.report.project = Some(ProjectPolicy { project, digest, sources });
        trusted
    }

    /// Sends the report and, without mistakes, the image; `false` if there is no image.
    pub(crate) fn send(self) -> io::Result<bool> {
        let compiles = self.report.mistakes.is_empty();
        send_event(&CompilerEvent::Compiled(self.report));
        if compiles {
            let image = ir::encode(&self.layers, &self.sources.into_inputs(), BUILD_STAMP);
            io::stdout().write_all(&image)?;
        }
        Ok(compiles)
    }
}

/// The project of a `.clash/policy.star`.
fn project_of(file: &Path) -> Option<PathBuf> {
    file.parent().and_then(Path::parent).map(Path::to_path_buf)
}

/// The finding about a policy file that cannot be read.
fn unreadable(LayerFile { layer, path, .. }: &LayerFile, error: &io::Error) -> PolicyFinding {
    let file = path.display().to_string();
    let message = format!("cannot read the policy {file}: {error}");
    PolicyFinding {
        kind: UNREADABLE_KIND.to_owned(),
        layer: layer.word().to_owned(),
        text: message.clone(),
        message,
        file,
        ..Default::default()
    }
}

/// The finding about a mistake or a warning.
fn finding(layer: LayerKind, kind: &str, shown: &CompileError) -> PolicyFinding {
    let CompileError { message, span, hint, .. } = shown;
    PolicyFinding {
        kind: kind.to_owned(),
        layer: layer.word().to_owned(),
        message: message.clone(),
        file: span.file.clone(),
        line: span.line,
        column: span.column,
        hint: hint.clone(),
        text: shown.to_string(),
    }
}

/// The digest of a project's policy. It covers the lengths as well, so that no text can
/// pass for the end of a file's name.
fn digest(sources: &[PolicySource]) -> String {
    let mut sorted: Vec<&PolicySource> = sources.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("clash project policy {TRUST_RECORD_VERSION}\n").as_bytes());
    for PolicySource { path, text } in sorted {
        for part in [path, text] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
    }
    hasher.finalize().to_hex().to_string()
}
