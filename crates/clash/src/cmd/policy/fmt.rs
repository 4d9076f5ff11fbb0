//! `clash policy fmt`: gives policies one layout, and rewrites older forms in the present
//! language.

use std::path::{Path, PathBuf};

use clash_policy::compare::PolicyComparison;
use clash_syntax::upgrade::{UpgradedSource, upgrade};

use super::absolute_path;
use super::change::{ChangeOptions, FileChange, carry_out, read};
use super::diff::{self, differences};
use crate::cmd::dirs_and_project;
use crate::dirs::Dirs;
use crate::exit;
use crate::policy::PolicyFiles;
use crate::ui::{CommandOutput, Failure};

/// Format policies, or rewrite older ones in the present language
///
/// Keeps comments, blank lines between paragraphs and the order of rules.
///
/// With `--upgrade`, clash also rewrites older forms of the language. It leaves and lists the
/// forms whose meaning might change. It writes nothing if an action would become more
/// permitted. Exit status with `--check`: 0 if nothing would change, 1 otherwise.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The policies; the user's and the project's if not given
    files: Vec<PathBuf>,
    /// Name the files that would change, and change none
    #[arg(long)]
    check: bool,
    /// Rewrite older forms into the present language, after showing the change
    #[arg(long)]
    upgrade: bool,
    /// Do not ask before upgrading
    #[arg(long, short, requires = "upgrade")]
    yes: bool,
}

impl Args {
    /// Formats the files. Asks only before an upgrade. With `--check`, changes nothing.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let (dirs, project) = dirs_and_project(None)?;
        let files = if self.files.is_empty() {
            existing_policies(&dirs, &project)
        } else {
            self.files.iter().map(|file| absolute_path(file)).collect::<Result<_, _>>()?
        };
        let mut changes = Vec::new();
        for file in &files {
            changes.extend(self.change(out, file)?);
        }
        if self.check {
            for change in &changes {
                out.verbatim(change.file.display().to_string())?;
            }
            return Ok(if changes.is_empty() { exit::OK } else { exit::FAILED });
        }
        if changes.is_empty() {
            return Ok(exit::OK);
        }
        // A new layout changes no decision, so clash does not ask.
        let how = ChangeOptions { yes: self.yes || !self.upgrade, dry_run: false };
        carry_out(out, &dirs, changes, how)?;
        Ok(exit::OK)
    }

    /// The formatted text of one policy; `None` if nothing changes. With `--upgrade`, also
    /// rewrites older forms, and prints those that stay. Fails if there is no such policy, or
    /// if the new text permits more.
    fn change(&self, out: &mut CommandOutput, file: &Path) -> Result<Option<FileChange>, Failure> {
        let name = file.display();
        let Some(before) = read(file)? else {
            return Err(Failure::new(format!("there is no policy {name}")));
        };
        let wrong = |error| Failure::new(format!("{name} cannot be formatted: {error}"));
        let mut after = before.clone();
        if self.upgrade {
            let UpgradedSource { source, left, .. } = upgrade(&before).map_err(wrong)?;
            for left in left {
                out.line(format!("{name}:{} stays: {}", left.line, left.why))?;
            }
            if source != before {
                refuse_widening(out, file, &before, &source)?;
            }
            after = source;
        }
        let after = clash_syntax::fmt::format(&after).map_err(wrong)?;
        Ok((after != before).then(|| FileChange {
            file: file.to_path_buf(),
            before: Some(before),
            after: Some(after),
        }))
    }
}

/// Compiles both texts and compares their decisions. Fails, and prints the differences, if
/// the new one permits more.
fn refuse_widening(
    out: &mut CommandOutput,
    file: &Path,
    old: &str,
    new: &str,
) -> Result<(), Failure> {
    let compiled = |text| PolicyFiles::single(file).with_text(file, text).compile();
    let found: PolicyComparison = differences(&compiled(old)?, &compiled(new)?)?;
    if found.widens() {
        diff::print_comparison(out, &found)?;
        let message = format!("{} would permit more, so it stays as it is", file.display());
        return Err(Failure::new(message));
    }
    Ok(())
}

/// The user's policy and the project's, if they exist.
fn existing_policies(dirs: &Dirs, project: &Path) -> Vec<PathBuf> {
    let user = dirs.user_policies.iter().find(|path| path.exists()).cloned();
    let project = dirs.project_policy(project).filter(|path| path.exists());
    user.into_iter().chain(project).collect()
}
