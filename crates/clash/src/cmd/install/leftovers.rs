//! The files of clash that remain after the last agent is uninstalled.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{cannot_write, remove_if_there};
use crate::dirs::Dirs;
use crate::remedy::Remedy;
use crate::ui::{CommandOutput, Failure, confirm};
use clash_agents::AGENTS;
use clash_agents::wiring::InstallScope;

/// The ending of the copy that older versions kept beside a settings file.
const OLD_BACKUP: &str = ".clash-backup";

/// A file or directory of clash that remains.
struct Leftover {
    path: PathBuf,
    what: &'static str,
    kind: LeftoverKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LeftoverKind {
    /// Clash wrote it, and `--purge` removes it.
    Own,
    /// The user wrote it, so clash asks first.
    Policy,
    /// Only root can remove it.
    Machine,
}

/// The files of clash that exist: policies, state, cache, old copies of settings, and the
/// AppArmor profile.
fn find_leftovers(dirs: &Dirs) -> Vec<Leftover> {
    let mut left = Vec::new();
    let mut add = |path: PathBuf, what, kind| {
        if fs::symlink_metadata(&path).is_ok() {
            left.push(Leftover { path, what, kind });
        }
    };
    for policy in &dirs.user_policies {
        if let Some(dir) = policy.parent() {
            add(dir.to_path_buf(), "your policy", LeftoverKind::Policy);
        }
    }
    add(dirs.state.clone(), "sessions, trust, copies of settings", LeftoverKind::Own);
    add(dirs.cache.clone(), "compiled policies", LeftoverKind::Own);
    for file in
        AGENTS.iter().flat_map(|agent| (agent.files)(&dirs.for_agents(), &InstallScope::User))
    {
        add(old_backup(&file.file), "a copy of settings", LeftoverKind::Own);
    }
    add("/etc/apparmor.d/clash".into(), "the AppArmor profile", LeftoverKind::Machine);
    left
}

/// Prints the leftovers with their sizes. Prints nothing if there are none.
pub(super) fn print_leftovers(dirs: &Dirs, out: &mut CommandOutput) -> Result<(), Failure> {
    let left = find_leftovers(dirs);
    if left.is_empty() {
        return Ok(());
    }
    out.line("\nleft on this machine:")?;
    for Leftover { path, what, kind } in &left {
        let root = if *kind == LeftoverKind::Machine { ", which only root can remove" } else { "" };
        out.line(format!("  {}  {} ({what}{root})", size_of(path), path.display()))?;
    }
    Ok(out.line(format!("`{}` removes it, and asks about your policy.", Remedy::UninstallPurge))?)
}

/// Removes all files of clash, except the AppArmor profile, which only root can remove.
/// Removes the policy only if the user agrees; without a terminal it stays, unless `yes`.
pub(super) fn purge(dirs: &Dirs, yes: bool, out: &mut CommandOutput) -> Result<(), Failure> {
    for Leftover { path, what, kind } in find_leftovers(dirs) {
        let size = size_of(&path);
        let shown = format!("{} ({what}, {})", path.display(), size.trim());
        let goes = match kind {
            LeftoverKind::Own => true,
            LeftoverKind::Policy if yes => true,
            LeftoverKind::Policy => {
                confirm(&format!("Remove {shown}? It is not kept.")).unwrap_or(false)
            }
            LeftoverKind::Machine => false,
        };
        if !goes {
            let by = if kind == LeftoverKind::Machine { "; only root can remove it" } else { "" };
            out.line(format!("kept {shown}{by}"))?;
            continue;
        }
        remove(&path).map_err(|error| cannot_write(&path, &error))?;
        out.line(format!("removed {shown}"))?;
    }
    Ok(())
}

/// Removes a file, or a directory whatever modes are in it.
fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        // The cache of a project has a directory of mode 0, which overlayfs makes.
        clash_sandbox::launch::remove_tree(path)
    } else {
        fs::remove_file(path)
    }
}

/// Removes the copy of an older version if the settings file has the same text again, as
/// before the first installation.
pub(super) fn remove_old_backup(file: &Path, after: &str) -> Result<(), Failure> {
    let backup = old_backup(file);
    if fs::read_to_string(&backup).is_ok_and(|saved| saved == after) {
        remove_if_there(&backup)?;
    }
    Ok(())
}

fn old_backup(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(OLD_BACKUP);
    PathBuf::from(name)
}

/// The size as a column of ten letters.
fn size_of(path: &Path) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let mut size = sum_lengths(path) as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0);
    format!("{:>10}", format!("{size:.digits$} {}", UNITS.get(unit).unwrap_or(&"")))
}

/// The sum of the file lengths below a path. Files that cannot be looked at count as 0.
fn sum_lengths(path: &Path) -> u64 {
    let Ok(meta) = fs::symlink_metadata(path) else { return 0 };
    if !meta.is_dir() {
        return meta.len();
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| sum_lengths(&entry.path())).sum()
}
