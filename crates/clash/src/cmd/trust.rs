//! `clash trust`: the user trusts a policy that came with a repository.
//!
//! The record has the digest of the text that clash showed to the user, so a text that
//! changes in between is not trusted. No sandbox can write the records: an agent cannot
//! trust a policy.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clash_protocol::report::ProjectPolicy;
use clash_protocol::trust::{
    PolicySource, TRUST_RECORD_VERSION, TrustRecord, read_record, record_path,
};
use serde_json::{Value, json};

use super::policy::diff;
use super::{dirs_and_project, unless_closed};
use crate::dirs::{Dirs, write_private};
use crate::exit;
use crate::policy::{LoadedPolicy, PolicyFiles};
use crate::remedy::Remedy;
use crate::say;
use crate::ui::{CommandOutput, Failure, TextTone, confirm};

/// Trust the policy that comes with a project, or list the trusted ones
///
/// Until you trust it, a project's policy can deny and ask, but its allows count as ask and
/// its sandboxes are not used. You trust the present text of the policy and of the files that
/// it loads: a change of any of them ends the trust.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The project; found from the working directory if not given
    dir: Option<PathBuf>,
    /// End the trust in the project's policy
    #[arg(long, conflicts_with_all = ["list", "yes"])]
    revoke: bool,
    /// List the trusted projects
    #[arg(long, conflicts_with_all = ["dir", "yes"])]
    list: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Print the list as JSON
    #[arg(long, requires = "list")]
    json: bool,
}

impl Args {
    /// Shows the policy and its effect, asks, and records the trust in the text that was
    /// shown. Does nothing if this text is trusted already. With `--list` or `--revoke`, does
    /// that instead.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        if self.list {
            return run_list(out, &Dirs::from_env()?, self.json);
        }
        if self.revoke {
            return run_revoke(out, self.dir);
        }
        let (dirs, project) = dirs_and_project(self.dir)?;
        let project = project.canonicalize()?;
        let (policy, trusted, now) = load_policies(&dirs, &project)?;
        let file = record_path(&dirs.trust(), &policy.project);
        let before = read_record(&file, &policy.project);
        if before.as_ref().is_some_and(|before| before.digest == policy.digest) {
            return unless_closed(out.line(format!("{} is trusted already", project.display())));
        }
        print_policy(out, &policy, before.as_ref())?;
        print_effect(out, &now, &trusted)?;
        if !self.yes && !confirm(&format!("Trust this policy for {}?", project.display()))? {
            return Err(Failure::new("nothing was trusted"));
        }
        let record = TrustRecord {
            v: TRUST_RECORD_VERSION,
            project: policy.project.to_string_lossy().into_owned(),
            digest: policy.digest,
            time: now_ms(),
            sources: policy.sources,
        };
        write_private(&file, &serde_json::to_vec(&record)?).map_err(|error| {
            Failure::new(format!("cannot write {}: {error}", file.display())).hint(format!(
                "no command in a sandbox can do this; run `{}` in your own terminal",
                Remedy::Trust
            ))
        })?;
        unless_closed(out.line(format!("{} is trusted", project.display())))
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The project's policy, the compiled policies in force with it trusted, and those in force
/// now. Fails if there is none, or if they do not compile.
fn load_policies(
    dirs: &Dirs,
    project: &Path,
) -> Result<(ProjectPolicy, LoadedPolicy, LoadedPolicy), Failure> {
    let Some(file) = dirs.project_policy(project) else {
        return Err(Failure::new("the policy in the home directory is the user's own"));
    };
    if std::fs::symlink_metadata(&file).is_err() {
        return Err(Failure::new(format!("there is no policy {}", file.display()))
            .hint("only the policy that comes with a project needs trust"));
    }
    let (trusted, report) = PolicyFiles::in_force(dirs, project, None).trusting().check()?;
    match (trusted, report.project) {
        (Some(trusted), Some(policy)) => {
            // The stricter rules of a project's policy hold without trust.
            let now = PolicyFiles::in_force(dirs, project, None).compile()?;
            Ok((policy, trusted, now))
        }
        _ => {
            let text = report.mistakes.first().map_or("", |mistake| &mistake.text);
            Err(Failure::new(format!("this policy cannot be trusted: {text}")))
        }
    }
}

/// Shows the policy, or its differences from the text that the user trusted before.
fn print_policy(
    out: &mut CommandOutput,
    policy: &ProjectPolicy,
    before: Option<&TrustRecord>,
) -> Result<(), Failure> {
    let old = |path: &str| {
        let sources = before.iter().flat_map(|before| &before.sources);
        sources.into_iter().find(|source| source.path == path).map(|source| source.text.as_str())
    };
    let gone = before
        .iter()
        .flat_map(|before| &before.sources)
        .filter(|old| policy.sources.iter().all(|source| source.path != old.path));
    for PolicySource { path, text } in &policy.sources {
        let (old, path) = (old(path), say::brief(path));
        let shown = match old {
            Some(old) if old == text => continue,
            Some(old) => clash_syntax::diff(old, text, &path),
            None => {
                out.line(out.tone(TextTone::Strong, &format!("{path}:")))?;
                text.lines().map(|line| format!("  {line}\n")).collect()
            }
        };
        out.verbatim(clash_policy::text::escape_hidden(&shown))?;
    }
    gone.into_iter()
        .try_for_each(|source| out.line(format!("{} is gone\n", say::brief(&source.path))))?;
    Ok(())
}

/// Prints the actions that trust would permit more or less.
fn print_effect(
    out: &mut CommandOutput,
    now: &LoadedPolicy,
    trusted: &LoadedPolicy,
) -> Result<(), Failure> {
    let found = diff::differences(now, trusted)?;
    if found.is_empty() && found.complete {
        out.line("Trusted, it would change nothing.")?;
    } else if found.is_empty() {
        out.line("No change was found, and not every action was compared.")?;
    } else {
        out.line("Trusted, it would change what is permitted:")?;
        diff::print_comparison(out, &found)?;
    }
    out.line("")?;
    Ok(())
}

/// Removes the record of trust. Fails if the project is not trusted. The project itself may
/// have been removed.
fn run_revoke(out: &mut CommandOutput, dir: Option<PathBuf>) -> Result<u8, Failure> {
    let dirs = Dirs::from_env()?;
    let project = match dir {
        Some(dir) => dir.canonicalize().or_else(|_| std::path::absolute(&dir))?,
        None => dirs_and_project(None)?.1.canonicalize()?,
    };
    match std::fs::remove_file(record_path(&dirs.trust(), &project)) {
        Ok(()) => unless_closed(out.line(format!("{} is no longer trusted", project.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Failure::new(format!("{} is not trusted", project.display())))
        }
        Err(error) => Err(error.into()),
    }
}

/// Lists all records of trust that this version can read, each with the present state of its
/// policy.
fn run_list(out: &mut CommandOutput, dirs: &Dirs, json: bool) -> Result<u8, Failure> {
    let mut records = Vec::new();
    for entry in std::fs::read_dir(dirs.trust()).into_iter().flatten().flatten() {
        let text = std::fs::read(entry.path()).unwrap_or_default();
        if let Ok(record) = serde_json::from_slice::<TrustRecord>(&text)
            && record.v == TRUST_RECORD_VERSION
        {
            records.push(record);
        }
    }
    records.sort_by(|a, b| a.project.cmp(&b.project));
    let states: Vec<(&TrustRecord, &str)> =
        records.iter().map(|one| (one, trust_state(dirs, one))).collect();
    let as_json = |(record, state): &(&TrustRecord, &str)| {
        let files: Vec<&str> = record.sources.iter().map(|source| source.path.as_str()).collect();
        json!({
            "project": record.project, "digest": record.digest, "time": record.time,
            "files": files, "state": state,
        })
    };
    if json {
        return unless_closed(out.json(&Value::Array(states.iter().map(as_json).collect())));
    }
    if states.is_empty() {
        return unless_closed(out.line("no project is trusted"));
    }
    for (record, state) in states {
        let tone = if state == "trusted" { TextTone::Good } else { TextTone::Care };
        let state = out.tone(tone, &format!("{state:<8}"));
        out.line(format!(
            "{state}  {}  {}",
            clash_history::day_and_time(record.time),
            say::brief(&record.project)
        ))?;
    }
    Ok(exit::OK)
}

/// The state of a trusted policy: `trusted`, `changed` (or it no longer compiles) or `gone`.
fn trust_state(dirs: &Dirs, record: &TrustRecord) -> &'static str {
    let project = Path::new(&record.project);
    let present = dirs.project_policy(project).is_some_and(|file| file.exists());
    if !present {
        return "gone";
    }
    let report =
        PolicyFiles::in_force(dirs, project, None).check().map(|(_, report)| report.project);
    match report {
        Ok(Some(policy)) if policy.digest == record.digest => "trusted",
        _ => "changed",
    }
}
