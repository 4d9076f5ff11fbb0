//! `clash policy import`: the permissions of other tools as a policy, with a report of
//! those that a policy cannot express.

use std::path::{Path, PathBuf};

use clash_agents::AGENTS;
use clash_import::{
    ImportFormat, ImportSource, ImportedPolicy, KeptRules, PolicyModule, ReportEntry, SettingsBase,
    TOOL_NAMES, detect, import_as, module,
};
use clash_syntax::SyntaxTree;
use clash_syntax::draft::load_module;
use serde_json::{Value, json};

use super::change::{ChangeOptions, FileChange, carry_out, read};
use crate::cmd::{dirs_and_project, unless_closed};
use crate::dirs::Dirs;
use crate::exit;
use crate::policy::PolicyFiles;
use crate::ui::{CommandOutput, Failure, TextTone};

/// Turn the permissions of other tools into a policy
///
/// Prints the policy and the permissions that it does not express.
///
/// An import never permits more than the original. A permission that a policy cannot express
/// exactly becomes stricter or is left out, and clash reports both. Without a file, clash
/// imports the agents' settings in the home directory and in the project.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file; clash finds the format from its content
    file: Option<PathBuf>,
    /// Import only the settings of this tool: claude, srt or codex
    #[arg(long, value_name = "TOOL", value_parser = TOOL_NAMES)]
    from: Option<String>,
    /// Write the import beside the policy and load it there, after showing the change
    #[arg(long)]
    write: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "write")]
    json: bool,
    /// The project; found from the working directory if not given
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    #[command(flatten)]
    how: ChangeOptions,
}

/// One imported file.
pub(in crate::cmd) struct ImportedFile {
    pub(in crate::cmd) file: PathBuf,
    format: ImportFormat,
    of_project: bool,
    pub(in crate::cmd) imported: ImportedPolicy,
}

impl Args {
    /// Imports the file, or the settings of all tools, and prints or, with `--write`, writes
    /// the policies. Fails if there is nothing to import.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let (dirs, project) = dirs_and_project(self.project.clone())?;
        let mut imports = Vec::new();
        match &self.file {
            Some(file) => {
                let found = import_file(file, self.from.as_deref(), &dirs, &project)?;
                imports.extend(found);
                if imports.is_empty() {
                    let name = file.display();
                    return Err(Failure::new(format!(
                        "`{name}` has no format that clash can import"
                    )));
                }
            }
            None => {
                for file in candidates(&dirs, &project) {
                    imports.extend(import_file(&file, self.from.as_deref(), &dirs, &project)?);
                }
            }
        }
        if imports.is_empty() {
            return Err(Failure::new("there are no settings to import")
                .hint("name the file with the settings"));
        }
        if self.write {
            return self.write(out, &dirs, &project, imports);
        }
        unless_closed(if self.json {
            out.json(&Value::Array(imports.iter().map(as_json).collect()))
        } else {
            imports.iter().try_for_each(|import| print_import(out, import))
        })
    }

    /// Prints the reports, and writes the imports beside their policies after a yes. Fails,
    /// and changes nothing, if the policies would not compile.
    fn write(
        &self,
        out: &mut CommandOutput,
        dirs: &Dirs,
        project: &Path,
        imports: Vec<ImportedFile>,
    ) -> Result<u8, Failure> {
        for import in &imports {
            print_losses(out, import)?;
        }
        let mut policies = Vec::new();
        let mut changes = plan_modules(&imports, dirs, project, &mut policies)?;
        for (policy, text) in policies {
            changes.push(FileChange::replace(&policy, text)?);
        }
        let mut files = PolicyFiles::in_force(dirs, project, None).trusting();
        for change in &changes {
            files = files.with_text(&change.file, change.after.as_deref().unwrap_or_default());
        }
        files
            .compile()
            .map_err(|error| Failure::new(format!("nothing was changed, because then {error}")))?;
        carry_out(out, dirs, changes, self.how)?;
        Ok(exit::OK)
    }
}

/// Imports the permissions in the user's own settings of agents, and leaves out files
/// without rules. The settings of a project came with its repository, so they do not count.
pub(in crate::cmd) fn import_users_settings(
    dirs: &Dirs,
    project: &Path,
) -> Result<Vec<ImportedFile>, Failure> {
    let mut imports = Vec::new();
    for file in candidates(dirs, project).iter().filter(|file| !file.starts_with(project)) {
        imports.extend(import_file(file, None, dirs, project)?);
    }
    imports.retain(|import| !import.of_project && import.imported.source.contains("policy("));
    Ok(imports)
}

/// The changes that add the modules of imports. Also adds the policies to `policies`, with
/// lines that load the modules. Fails if an import denies by default and its policy does not.
pub(in crate::cmd) fn plan_modules(
    imports: &[ImportedFile],
    dirs: &Dirs,
    project: &Path,
    policies: &mut Vec<(PathBuf, String)>,
) -> Result<Vec<FileChange>, Failure> {
    let mut changes: Vec<FileChange> = Vec::new();
    for import in imports {
        let policy = policy_of(import, dirs, project);
        if policies.iter().all(|(known, _)| *known != policy) {
            policies.push((policy.clone(), read(&policy)?.unwrap_or_default()));
        }
        let name = free_name(&policy, import, &changes);
        let PolicyModule { text, denies_by_default } =
            module(&import.imported.source, &name, KeptRules::Everything)?;
        for (_, policy_text) in policies.iter_mut().filter(|(known, _)| *known == policy) {
            if denies_by_default && !says_default_deny(policy_text)? {
                let message = format!("{} denies by default", import.file.display());
                return Err(Failure::new(message).hint(format!(
                    "say settings(default = deny()) in {} first",
                    policy.display()
                )));
            }
            *policy_text = load_module(policy_text, &name)?;
        }
        changes.push(FileChange::replace(&policy.with_file_name(format!("{name}.star")), text)?);
    }
    Ok(changes)
}

/// Imports one file; `None` if its format is unknown or belongs to another tool than `from`.
fn import_file(
    file: &Path,
    from: Option<&str>,
    dirs: &Dirs,
    project: &Path,
) -> Result<Option<ImportedFile>, Failure> {
    let name = file.display().to_string();
    let unreadable = |error| Failure::new(format!("cannot read {name}: {error}"));
    let bytes = std::fs::read(file).map_err(unreadable)?;
    let format = detect(&name, &bytes).filter(|it| from.is_none_or(|from| from == it.tool_name()));
    let Some(format) = format else { return Ok(None) };
    let whole = file.canonicalize()?;
    let (home, root) = (dirs.home.canonicalize()?, project.canonicalize()?);
    let dir = whole.parent().unwrap_or(&whole);
    let of_project = whole.starts_with(&root);
    let directory = dir.to_string_lossy().into_owned();
    let below_home = dir.strip_prefix(&home).map(|dir| dir.to_string_lossy().into_owned());
    let base = match &below_home {
        _ if of_project => SettingsBase::Project,
        Ok(below) => SettingsBase::Home(below),
        Err(_) => SettingsBase::Directory(&directory),
    };
    let source = ImportSource { name: &name, bytes: &bytes, base };
    let imported = import_as(format, &source)
        .map_err(|error| Failure::new(format!("cannot import {name}: {error}")))?;
    Ok(Some(ImportedFile { file: file.to_path_buf(), format, of_project, imported }))
}

/// The settings files of the tools that exist.
fn candidates(dirs: &Dirs, project: &Path) -> Vec<PathBuf> {
    let user = dirs.for_agents();
    let files = AGENTS.iter().flat_map(|agent| (agent.extras.importable)(&user, project));
    files.filter(|file| file.is_file()).collect()
}

/// The policy that loads an import: that of the project for settings of the project,
/// otherwise the user's, which need not exist.
fn policy_of(import: &ImportedFile, dirs: &Dirs, project: &Path) -> PathBuf {
    let [first, _] = &dirs.user_policies;
    let user = dirs.user_policies.iter().find(|path| path.exists()).unwrap_or(first);
    let own = dirs.project_policy(project).filter(|_| import.of_project);
    own.unwrap_or_else(|| user.clone())
}

/// A name for the module that no other import of this call has.
fn free_name(policy: &Path, import: &ImportedFile, changes: &[FileChange]) -> String {
    let base = format!("imported_{}", import.format.tool_name());
    let taken = |name: &String| {
        let file = policy.with_file_name(format!("{name}.star"));
        changes.iter().any(|change| change.file == file)
    };
    let numbered = (2..).map(|number| format!("{base}_{number}"));
    [base.clone()].into_iter().chain(numbered).find(|name| !taken(name)).unwrap_or(base)
}

/// True if the policy says `settings(default = deny())`.
fn says_default_deny(policy: &str) -> Result<bool, Failure> {
    let file = SyntaxTree::parse(policy)?;
    let default = file.calls().filter(|(_, call)| call.name() == Some("settings"));
    let mut default = default.filter_map(|(_, call)| call.named("default"));
    Ok(default.any(|value| value.call().and_then(|call| call.name()) == Some("deny")))
}

fn print_import(out: &mut CommandOutput, import: &ImportedFile) -> std::io::Result<()> {
    out.verbatim(clash_policy::text::escape_hidden(&import.imported.source))?;
    print_losses(out, import)
}

/// Prints the entries that the policy does not express, or expresses more strictly.
fn print_losses(
    out: &mut CommandOutput,
    ImportedFile { file, format, imported, .. }: &ImportedFile,
) -> std::io::Result<()> {
    let name = file.display();
    let ImportedPolicy { not_expressed, narrowed, .. } = imported;
    let (lost, left): (Vec<&ReportEntry>, Vec<&ReportEntry>) =
        not_expressed.iter().partition(|entry| entry.restricts());
    out.line(format!(
        "# {name} ({}): {} not enforced, {} left out, {} stricter",
        format.describe(),
        lost.len(),
        left.len(),
        narrowed.len()
    ))?;
    let narrowed: Vec<&ReportEntry> = narrowed.iter().collect();
    for (title, tone, entries) in [
        ("NOT ENFORCED", TextTone::Bad, lost),
        ("left out", TextTone::Care, left),
        ("stricter", TextTone::Faint, narrowed),
    ] {
        for entry in entries {
            out.line(format!("#   {}: {entry}", out.tone(tone, title)))?;
        }
    }
    Ok(())
}

/// The fields of `--json` for one imported file.
fn as_json(ImportedFile { file, format, imported, .. }: &ImportedFile) -> Value {
    let entries = |entries: &[ReportEntry]| -> Vec<Value> {
        let entry = |it: &ReportEntry| {
            let effect = it.effect.map(|effect| effect.word());
            json!({"what": it.what, "where": it.where_, "why": it.why, "effect": effect})
        };
        entries.iter().map(entry).collect()
    };
    json!({
        "file": file, "from": format.tool_name(), "policy": imported.source,
        "not_expressed": entries(&imported.not_expressed), "narrowed": entries(&imported.narrowed),
    })
}
