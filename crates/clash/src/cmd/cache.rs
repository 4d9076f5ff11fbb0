//! `clash cache`: the caches that projects have of their own.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use clash_sandbox::disk::Disk;
use clash_sandbox::plan::cache::path_of;
use serde_json::json;

use super::{dirs_and_project, unless_closed};
use crate::dirs::Dirs;
use crate::exit;
use crate::ui::{CommandOutput, Failure, TextTone};

/// List or remove the caches that projects have of their own
///
/// A build reads the caches that all projects share, such as `~/.cargo/registry`. The files
/// that it adds or changes there stay in a cache of the project, so that no project changes
/// code that another one runs. You can remove these caches at any time: the next build
/// fetches the files again.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: CacheVerb,
}

#[derive(Debug, Subcommand)]
enum CacheVerb {
    /// List the projects with caches of their own, and the size of each cache
    List {
        #[arg(long)]
        json: bool,
    },
    /// Remove the caches of a project
    ///
    /// A cache that a running command uses is left. Exit status: 0 if all were
    /// removed, 1 if one was left.
    Clear {
        /// The project; found from the working directory if not given
        #[arg(long, value_name = "DIR")]
        project: Option<PathBuf>,
        /// The caches of all projects
        #[arg(long, conflicts_with = "project")]
        all: bool,
        #[arg(long)]
        json: bool,
    },
}

impl Args {
    /// Lists the caches, or removes those of one project or of all.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        match self.what {
            CacheVerb::List { json } => run_list(out, &Dirs::from_env()?, json),
            CacheVerb::Clear { project: given, all, json } => {
                let (dirs, project) = dirs_and_project(given)?;
                let owners = match all {
                    true => subdirectories(&dirs.project_caches()),
                    false => vec![dirs.caches_of(&project, &Disk::default())],
                };
                run_clear(out, &owners, json)
            }
        }
    }
}

/// One cache of a project.
struct ProjectCache {
    dir: PathBuf,
    /// The shared cache, or the variable that leads a tool to this one.
    of: String,
}

/// The directories in a directory, sorted; empty if it cannot be read. Links to directories
/// count.
fn subdirectories(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.retain(|path| path.is_dir());
    found.sort();
    found
}

/// The caches in a project's directory: those with a mount, and those with a variable.
fn caches_of_project(project: &Path) -> Vec<ProjectCache> {
    let mut found = Vec::new();
    for dir in subdirectories(project) {
        let name = dir.file_name().unwrap_or_default().to_owned();
        if name.as_encoded_bytes().starts_with(b"%") {
            found.push(ProjectCache { of: path_of(&name).display().to_string(), dir });
            continue;
        }
        for dir in subdirectories(&dir) {
            let variable = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.push(ProjectCache { of: format!("${variable}"), dir });
        }
    }
    found
}

/// The bytes that a tree takes on the disk. Files that cannot be looked at count as 0.
fn disk_usage(path: &Path) -> u64 {
    let Ok(meta) = fs::symlink_metadata(path) else { return 0 };
    let own = meta.blocks().saturating_mul(512);
    if !meta.is_dir() {
        return own;
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| disk_usage(&entry.path())).fold(own, u64::saturating_add)
}

/// Prints every project with caches, and the size of each cache.
fn run_list(out: &mut CommandOutput, dirs: &Dirs, json: bool) -> Result<u8, Failure> {
    let mut projects = Vec::new();
    for dir in subdirectories(&dirs.project_caches()) {
        let project = path_of(dir.file_name().unwrap_or_default());
        let mut sized = Vec::new();
        for cache in caches_of_project(&dir) {
            let bytes = disk_usage(&cache.dir);
            sized.push((cache, bytes));
        }
        projects.push((project, sized));
    }
    if json {
        let one = |(cache, bytes): &(ProjectCache, u64)| json!({"of": cache.of, "directory": cache.dir, "bytes": bytes});
        let projects = projects.iter().map(|(project, caches)| {
            json!({"project": project, "caches": caches.iter().map(one).collect::<Vec<_>>()})
        });
        let projects: Vec<_> = projects.collect();
        return unless_closed(out.json(&json!({"projects": projects})));
    }
    unless_closed(print_list(out, &projects))
}

/// Prints the projects and their caches as a table.
fn print_list(
    out: &mut CommandOutput,
    projects: &[(PathBuf, Vec<(ProjectCache, u64)>)],
) -> std::io::Result<()> {
    if projects.is_empty() {
        return out.line("no project has caches of its own");
    }
    for (project, caches) in projects {
        let all = caches.iter().map(|(_, bytes)| bytes).sum();
        let name = project.display().to_string();
        out.line(format!("{}  {}", out.tone(TextTone::Strong, &name), readable(all)))?;
        for (cache, bytes) in caches {
            out.line(format!("  {:>9}  {}", readable(*bytes), cache.of))?;
        }
    }
    Ok(())
}

/// The bytes in the largest fitting unit, rounded down, for example `3 MiB`.
fn readable(bytes: u64) -> String {
    let mut value = bytes;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB"] {
        if value < 1024 {
            break;
        }
        (value, unit) = (value / 1024, next);
    }
    format!("{value} {unit}")
}

/// Removes the caches of these projects, except those that a running command uses. Exit
/// status 1 if any is left.
fn run_clear(out: &mut CommandOutput, owners: &[PathBuf], json: bool) -> Result<u8, Failure> {
    let (mut removed, mut left) = (Vec::new(), Vec::new());
    for owner in owners {
        for ProjectCache { dir, of } in caches_of_project(owner) {
            let gone = clash_sandbox::launch::clear_cache(&dir).unwrap_or(false);
            if gone { removed.push(of) } else { left.push(of) }
        }
        // This removes only empty directories.
        let _ = fs::remove_dir(owner.join("variables"));
        let _ = fs::remove_dir(owner);
    }
    let all = left.is_empty();
    let said = if json {
        out.json(&json!({"removed": removed, "left": left}))
    } else {
        print_cleared(out, &removed, &left)
    };
    unless_closed(said)?;
    Ok(if all { exit::OK } else { exit::FAILED })
}

/// Prints the removed caches and those that are left.
fn print_cleared(
    out: &mut CommandOutput,
    removed: &[String],
    left: &[String],
) -> std::io::Result<()> {
    for of in removed {
        out.line(format!("removed the project's own part of {of}"))?;
    }
    for of in left {
        out.line(format!("left the project's own part of {of}: a running command uses it"))?;
    }
    if removed.is_empty() && left.is_empty() {
        out.line("there is no cache to remove")?;
    }
    Ok(())
}
