//! `clash policy`: shows, checks, tests, compares and changes policies.

pub(super) mod backtest;
pub(super) mod change;
mod check;
pub(super) mod diff;
mod docs;
pub(crate) mod edit;
pub(super) mod fmt;
pub(super) mod import;
mod rule_sandbox;
mod show;
mod test;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use clash_policy::Effect;
use clash_policy::rule::LayerKind;

use super::explain;
use crate::policy::PolicyFiles;
use crate::ui::{CommandOutput, Failure};

/// Check, show, test, compare and change policies
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: PolicyVerb,
}

#[derive(Debug, Subcommand)]
enum PolicyVerb {
    Check(check::Args),
    Show(show::Args),
    Test(test::Args),
    Diff(diff::Args),
    Backtest(backtest::Args),
    #[command(about = "Allow an action: add a rule to a policy, or change its rule")]
    Allow(edit::AllowArgs),
    Deny(edit::DenyArgs),
    #[command(about = "Ask before an action")]
    Ask(edit::AllowArgs),
    Remove(edit::RemoveArgs),
    Undo(change::UndoArgs),
    Fmt(fmt::Args),
    Import(import::Args),
    Docs(docs::Args),
    Explain(explain::Args),
}

impl Args {
    /// Runs the verb, and returns the exit status.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        match self.what {
            PolicyVerb::Check(args) => args.run(out),
            PolicyVerb::Show(args) => args.run(out),
            PolicyVerb::Test(args) => args.run(out),
            PolicyVerb::Allow(args) => args.run(Effect::Allow, out),
            PolicyVerb::Deny(args) => args.run(out),
            PolicyVerb::Ask(args) => args.run(Effect::Ask, out),
            PolicyVerb::Remove(args) => args.run(out),
            PolicyVerb::Undo(args) => args.run(out),
            PolicyVerb::Fmt(args) => args.run(out),
            PolicyVerb::Import(args) => args.run(out),
            PolicyVerb::Docs(args) => args.run(out),
            PolicyVerb::Diff(args) => args.run(out),
            PolicyVerb::Backtest(args) => args.run(out),
            PolicyVerb::Explain(args) => args.run(out),
        }
    }
}

/// A single policy file from the command line, by its whole path, which messages and `load()`
/// need. Fails if it does not exist.
fn single_file(file: &Path) -> Result<PolicyFiles, Failure> {
    let unreadable =
        |error| Failure::new(format!("cannot read the policy {}: {error}", file.display()));
    std::fs::metadata(file).map_err(unreadable)?;
    Ok(PolicyFiles::single(&absolute_path(file).map_err(unreadable)?))
}

/// The path with its directory resolved. If the file itself is a link, it stays a link.
fn absolute_path(file: &Path) -> std::io::Result<PathBuf> {
    let whole = std::path::absolute(file)?;
    match (whole.parent(), whole.file_name()) {
        (Some(dir), Some(name)) => Ok(dir.canonicalize()?.join(name)),
        _ => Ok(whole),
    }
}

/// The policies in force for a project, or one file alone.
fn files(file: Option<&Path>, project: Option<PathBuf>) -> Result<PolicyFiles, Failure> {
    match file {
        Some(file) => single_file(file),
        None => {
            let (dirs, project) = super::dirs_and_project(project)?;
            Ok(PolicyFiles::in_force(&dirs, &project, None))
        }
    }
}

/// The layer of this name; otherwise the list of names.
fn layer_kind(word: &str) -> Result<LayerKind, String> {
    let known = LayerKind::ALL.into_iter().find(|kind| kind.word() == word);
    known.ok_or_else(|| {
        let words: Vec<&str> = LayerKind::ALL.iter().map(|kind| kind.word()).collect();
        format!("layers are {}", words.join(", "))
    })
}
