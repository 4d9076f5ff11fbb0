//! Changes policy files. Clash shows a change first, replaces each file in one step, and
//! records the change so that the user can undo it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::cmd::unless_closed;
use crate::dirs::{Dirs, write_private};
use crate::replace_file::replace;
use crate::ui::{CommandOutput, Failure, confirm};

/// The text of a file before and after a change. `None` stands for a missing file.
#[derive(Debug, Deserialize, Serialize)]
pub(in crate::cmd) struct FileChange {
    pub(in crate::cmd) file: PathBuf,
    pub(in crate::cmd) before: Option<String>,
    pub(in crate::cmd) after: Option<String>,
}

/// The changes of one command.
#[derive(Debug, Deserialize, Serialize)]
struct RecordedEdit {
    v: u32,
    changes: Vec<FileChange>,
}

const VERSION: u32 = 1;
/// The number of edits that the user can undo.
const MAX_RECORDED_EDITS: usize = 50;

/// The options of a command that changes policies.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(in crate::cmd) struct ChangeOptions {
    /// Do not ask
    #[arg(long, short)]
    pub(in crate::cmd) yes: bool,
    /// Show the change without making it
    #[arg(long, conflicts_with = "yes")]
    pub(in crate::cmd) dry_run: bool,
}

impl FileChange {
    /// Replaces the present text of a file.
    pub(in crate::cmd) fn replace(file: &Path, after: String) -> Result<Self, Failure> {
        let before = read(file)?;
        Ok(Self { file: file.to_path_buf(), before, after: Some(after) })
    }

    /// True if the text stays the same.
    pub(in crate::cmd) fn is_none(&self) -> bool {
        self.before == self.after
    }

    /// The change as a diff, with hidden characters made visible.
    pub(in crate::cmd) fn diff(&self) -> String {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let name = self.file.display().to_string();
        clash_policy::text::escape_hidden(&clash_syntax::diff(
            &text(&self.before),
            &text(&self.after),
            &name,
        ))
    }

    /// Replaces or removes the file in one step. Fails if another program has changed it
    /// meanwhile.
    fn apply(&self) -> io::Result<()> {
        let before = self.before.as_deref().unwrap_or_default();
        match &self.after {
            Some(after) => {
                if let Some(dir) = self.file.parent() {
                    fs::create_dir_all(dir)?;
                }
                replace(&self.file, before, after)
            }
            None if fs::read_to_string(&self.file)? == before => fs::remove_file(&self.file),
            None => Err(io::Error::other("another program changed it just now; try again")),
        }
    }
}

/// The text of a policy; `None` if the file does not exist.
pub(in crate::cmd) fn read(file: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::new(format!("cannot read {}: {error}", file.display()))),
    }
}

/// Shows changes, asks, makes them and records them. Returns `false` if there are none, or
/// after `--dry-run`. Fails if the user does not agree.
pub(in crate::cmd) fn carry_out(
    out: &mut CommandOutput,
    dirs: &Dirs,
    mut changes: Vec<FileChange>,
    how: ChangeOptions,
) -> Result<bool, Failure> {
    changes.retain(|change| !change.is_none());
    if changes.is_empty() {
        out.line("nothing to change")?;
        return Ok(false);
    }
    if !is_agreed(out, &changes, how)? {
        return Ok(false);
    }
    make_all(dirs, changes)?;
    Ok(true)
}

/// Makes changes that the user agreed to, and records them.
pub(in crate::cmd) fn make_all(dirs: &Dirs, changes: Vec<FileChange>) -> Result<(), Failure> {
    apply_all(&changes)?;
    remember(dirs, changes)
}

/// Shows the changes and asks. `false` after `--dry-run`; an error after a no.
fn is_agreed(
    out: &mut CommandOutput,
    changes: &[FileChange],
    how: ChangeOptions,
) -> Result<bool, Failure> {
    for change in changes {
        out.diff(&change.diff())?;
    }
    if how.dry_run {
        return Ok(false);
    }
    if !how.yes && !confirm("Make this change?")? {
        return Err(Failure::new("nothing was changed"));
    }
    Ok(true)
}

/// Makes the changes in order, and stops at the first failure. Earlier ones then stay.
fn apply_all(changes: &[FileChange]) -> Result<(), Failure> {
    changes.iter().try_for_each(|change| {
        change.apply().map_err(|error| {
            Failure::new(format!("cannot change {}: {error}", change.file.display()))
        })
    })
}

fn edits_dir(dirs: &Dirs) -> PathBuf {
    dirs.state.join("edits")
}

/// The records of all edits, oldest first. The name of each begins with its time.
fn recorded_edits(dirs: &Dirs) -> Vec<PathBuf> {
    let entries = fs::read_dir(edits_dir(dirs)).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    files
}

/// Records the changes for `clash policy undo`, and removes the oldest records beyond
/// [`MAX_RECORDED_EDITS`].
fn remember(dirs: &Dirs, changes: Vec<FileChange>) -> Result<(), Failure> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let name = format!("{:020}-{:010}.json", since.as_nanos(), std::process::id());
    let text = serde_json::to_vec(&RecordedEdit { v: VERSION, changes })?;
    write_private(&edits_dir(dirs).join(name), &text)?;
    let recorded = recorded_edits(dirs);
    let old = recorded.len().saturating_sub(MAX_RECORDED_EDITS);
    recorded.iter().take(old).try_for_each(fs::remove_file)?;
    Ok(())
}

/// Undo the last change of a policy
///
/// Undoes the change of the last `clash policy` command. Refuses if the file has changed
/// since then.
#[derive(Debug, clap::Args)]
pub(crate) struct UndoArgs {
    #[command(flatten)]
    how: ChangeOptions,
}

impl UndoArgs {
    /// Takes the newest recorded edit back, after a yes, and removes its record. Fails if a
    /// file has changed since.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let dirs = Dirs::from_env()?;
        let Some(file) = recorded_edits(&dirs).pop() else {
            return Err(Failure::new("there is no change to take back"));
        };
        let edit: RecordedEdit = serde_json::from_slice(&fs::read(&file)?)?;
        if edit.v != VERSION {
            return Err(Failure::new("the last change was made by another version of clash"));
        }
        let mut back = Vec::new();
        for FileChange { file, before, after } in edit.changes.into_iter().rev() {
            if read(&file)? != after {
                let message = format!("{} was changed since; edit it by hand", file.display());
                return Err(Failure::new(message));
            }
            back.push(FileChange { file, before: after, after: before });
        }
        if is_agreed(out, &back, self.how)? {
            apply_all(&back)?;
            fs::remove_file(&file)?;
            unless_closed(out.line("taken back"))?;
        }
        Ok(crate::exit::OK)
    }
}
