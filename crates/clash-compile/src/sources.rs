//! The files that policies are read from. The compiler records the state of each, so
//! that `clash` notices a change.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clash_import::{ImportFormat, ImportSource, KeptRules, SettingsBase, import_as, module};
use clash_lang::SourceReader;
use clash_policy::PolicySpan;
use clash_policy::fnv::fnv_hash;
use clash_policy::ir::SourceFile;
use clash_protocol::request::{ClaudeSettingsDirs, ReplacedText};
use clash_protocol::stamp::stamp_file;
use clash_protocol::trust::PolicySource;
use clash_syntax::edit::RuleKey;
use rustix::fs::{Mode, OFlags};

const MAX_SOURCE_BYTES: u64 = 1 << 20;

/// Reads the sources of one layer after the other.
pub(crate) struct PolicySources {
    inputs: RefCell<Vec<SourceFile>>,
    /// The project whose own policy is being read: then only files in it, and no links.
    beneath: RefCell<Option<PathBuf>>,
    /// The sources of the present layer, relative to its project.
    layer_sources: RefCell<Vec<PolicySource>>,
    replaced_texts: HashMap<PathBuf, String>,
    claude_settings: Option<ClaudeSettingsDirs>,
    warnings: bool,
    /// Restrictions in agents' settings that a policy cannot express: file and entry.
    unenforced: RefCell<Vec<(String, String)>>,
}

impl PolicySources {
    /// The files of one compilation, none read yet. A text of `replaced_texts` is used
    /// instead of the file at its path.
    pub(crate) fn new(
        replaced_texts: Vec<ReplacedText>,
        claude_settings: Option<ClaudeSettingsDirs>,
        warnings: bool,
    ) -> Self {
        Self {
            inputs: RefCell::default(),
            beneath: RefCell::default(),
            layer_sources: RefCell::default(),
            replaced_texts: replaced_texts.into_iter().map(|it| (it.path, it.text)).collect(),
            claude_settings,
            warnings,
            unenforced: RefCell::default(),
        }
    }

    /// Begins a layer: of this project, or of the user's own files.
    pub(crate) fn begin_layer(&self, project: Option<PathBuf>) {
        self.beneath.replace(project);
        self.layer_sources.take();
    }

    /// The project whose own policy is the present layer.
    pub(crate) fn project(&self) -> Option<PathBuf> {
        self.beneath.borrow().clone()
    }

    /// The sources of the present layer that were read so far.
    pub(crate) fn layer_sources(&self) -> Vec<PolicySource> {
        self.layer_sources.borrow().clone()
    }

    /// The restrictions that were found since the last call: file and entry.
    pub(crate) fn take_unenforced(&self) -> Vec<(String, String)> {
        self.unenforced.take()
    }

    pub(crate) fn into_inputs(self) -> Vec<SourceFile> {
        self.inputs.into_inner()
    }

    /// True if the request has a text to compile in place of this file.
    pub(crate) fn is_replaced(&self, path: &Path) -> bool {
        self.replaced_texts.contains_key(path)
    }

    /// The line of the present layer that a span points at.
    pub(crate) fn line_at(&self, span: &PolicySpan) -> Option<String> {
        let path = self.relative(Path::new(&span.file));
        let sources = self.layer_sources.borrow();
        let source = sources.iter().find(|source| source.path == path)?;
        let index = (span.line as usize).checked_sub(1)?;
        source.text.lines().nth(index).map(str::to_owned)
    }

    /// The path relative to the project of the present layer, if it lies in it.
    fn relative(&self, path: &Path) -> String {
        let beneath = self.beneath.borrow();
        let inside = beneath.as_ref().and_then(|project| path.strip_prefix(project).ok());
        inside.unwrap_or(path).to_string_lossy().into_owned()
    }

    /// Records the state of a file as an input of the image, and returns its size; 0 if it
    /// does not exist.
    pub(crate) fn record_input(&self, path: &Path) -> io::Result<u64> {
        let stamp = stamp_file(path)?;
        let path = path.to_string_lossy().into_owned();
        self.inputs.borrow_mut().push(SourceFile { path, stamp });
        Ok(stamp.map_or(0, |stamp| stamp.size))
    }

    /// Opens a source. Only regular files: a pipe or a device may never end. In a project's
    /// own layer only files below the project, and no links.
    pub(crate) fn open(&self, path: &Path) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file: File = match &*self.beneath.borrow() {
            None => rustix::fs::open(path, flags, Mode::empty())?.into(),
            Some(project) => open_beneath(project, path, flags)?,
        };
        let regular = file.metadata()?.is_file();
        regular.then_some(file).ok_or_else(|| io::Error::other("it is not a regular file"))
    }

    /// The text of a source, or the text in its place. More than 1 MiB is an error.
    fn text(&self, path: &Path) -> io::Result<String> {
        if let Some(text) = self.replaced_texts.get(path) {
            return Ok(text.clone());
        }
        // Recorded before it is read: a change in between makes the cache stale.
        if self.record_input(path)? > MAX_SOURCE_BYTES {
            return Err(io::Error::other("it is larger than 1 MiB"));
        }
        let mut text = String::new();
        self.open(path)?.take(MAX_SOURCE_BYTES).read_to_string(&mut text)?;
        Ok(text)
    }

    /// A file of Claude Code's settings as a policy module with the same meaning; `None` if
    /// the file is absent or empty. An error if it cannot be imported, or if it denies by
    /// default, which no module can express.
    fn import_settings(
        &self,
        file: &Path,
        base: SettingsBase<'_>,
        keep: KeptRules,
    ) -> io::Result<Option<String>> {
        if self.record_input(file)? == 0 {
            return Ok(None);
        }
        let name = file.to_string_lossy();
        let text = self.read(file)?;
        let source = ImportSource { name: &name, bytes: text.as_bytes(), base };
        let imported = import_as(ImportFormat::Claude, &source).map_err(io::Error::other)?;
        let lost = imported.not_expressed.iter().filter(|entry| entry.restricts());
        let lost = lost.map(|entry| (name.clone().into_owned(), entry.to_string()));
        self.unenforced.borrow_mut().extend(lost);
        // One name for each file, because the sandboxes of a layer need different names.
        let own = format!("claude_{:016x}", fnv_hash(name.as_bytes()));
        let made = module(&imported.source, &own, keep).map_err(io::Error::other)?;
        if made.denies_by_default {
            let text = "they deny by default; say settings(default = deny()) in the policy";
            return Err(io::Error::other(text));
        }
        Ok(Some(made.text))
    }
}

/// Opens a file below the project name by name and follows no link. `openat2` could do that
/// in one call, but clash's own seccomp filter refuses it in sandboxes.
#[cfg(target_os = "linux")]
fn open_beneath(project: &Path, path: &Path, flags: OFlags) -> io::Result<File> {
    use rustix::fs::{open, openat};
    use std::path::Component;
    let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
    let inside = path.strip_prefix(project).map_err(|_| denied())?;
    let hold = OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let mut directory = open(project, hold, Mode::empty())?;
    let mut names = inside.components().peekable();
    while let Some(Component::Normal(name)) = names.next() {
        let further = if names.peek().is_some() { hold } else { flags };
        directory = openat(directory, name, further | OFlags::NOFOLLOW, Mode::empty())?;
        if names.peek().is_none() {
            return Ok(directory.into());
        }
    }
    Err(denied())
}

#[cfg(not(target_os = "linux"))]
fn open_beneath(_: &Path, _: &Path, _: OFlags) -> io::Result<File> {
    Err(io::Error::other("a project's own policy cannot be read safely on this system"))
}

impl SourceReader for PolicySources {
    fn wants_warnings(&self) -> bool {
        self.warnings
    }

    /// Reads a source and keeps its first text for the report. A project's policy reads
    /// only files of the project.
    fn read(&self, path: &Path) -> io::Result<String> {
        let text = self.text(path)?;
        let path = self.relative(path);
        let mut sources = self.layer_sources.borrow_mut();
        // A second read is only for a quotation: the compiler evaluated the first.
        if sources.iter().all(|known| known.path != path) {
            sources.push(PolicySource { path, text: text.clone() });
        }
        Ok(text)
    }

    /// The settings that the present layer may take over: a project's policy gets only
    /// those of the project, and in the user's policy those of the project can only
    /// restrict. Settings that cannot be read become a policy that fails.
    fn claude_settings(&self, user: bool, project: bool) -> Vec<(String, String)> {
        let Some(ClaudeSettingsDirs { user: home, project: root }) = &self.claude_settings else {
            return Vec::new();
        };
        let own = self.beneath.borrow().clone();
        let mut found = Vec::new();
        let mut add = |file: PathBuf, base, keep| {
            let name = file.to_string_lossy().into_owned();
            match self.import_settings(&file, base, keep) {
                Ok(text) => found.extend(text.map(|text| (name, text))),
                // Without the settings' restrictions the policy would permit more, so it
                // must not compile.
                Err(error) => {
                    let text = format!("cannot take over {name}: {error}");
                    found.push((name, format!("fail({})\n", RuleKey::str(text))));
                }
            }
        };
        // A policy of a repository does not read the user's files. And in the user's
        // policy the allows of the repository's settings count as little as in its own.
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
