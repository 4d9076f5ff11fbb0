//! The files of clash that are left when no agent asks it any more.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{cannot_write, remove_if_there};
use crate::dirs::Dirs;
use crate::ui::{CommandOutput, Failure, confirm};
use clash_agents::AGENTS;
use clash_agents::wiring::InstallScope;

/// Older versions kept a copy beside the settings file, under this ending.
const OLD_BACKUP: &str = ".clash-backup";

/// Something that is left, and who removes it.
struct Leftover {
    path: PathBuf,
    what: &'static str,
    kind: LeftoverKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LeftoverKind {
    /// Clash's own, which `--purge` removes.
    Own,
    /// Written by the user, so a question comes first.
    Policy,
    /// Only root can remove it.
    Machine,
}

fn found(dirs: &Dirs) -> Vec<Leftover> {
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

pub(super) fn list(dirs: &Dirs, out: &mut CommandOutput) -> Result<(), Failure> {
    let left = found(dirs);
    if left.is_empty() {
        return Ok(());
    }
    out.line("\nleft on this machine:")?;
    for Leftover { path, what, kind } in &left {
        let root = if *kind == LeftoverKind::Machine { ", which only root can remove" } else { "" };
        out.line(format!("  {}  {} ({what}{root})", size_of(path), path.display()))?;
    }
    Ok(out.line("`clash uninstall --purge` removes it, and asks about your policy.")?)
}

/// Removes everything of clash. The policy goes only if the user says so.
pub(super) fn purge(dirs: &Dirs, yes: bool, out: &mut CommandOutput) -> Result<(), Failure> {
    for Leftover { path, what, kind } in found(dirs) {
        let size = size_of(&path);
        let shown = format!("{} ({what}, {})", path.display(), size.trim());
        let goes = match kind {
            LeftoverKind::Own => true,
            LeftoverKind::Policy if yes => true,
            // Without a terminal there is no answer, and the policy stays.
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

fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        // The kernel leaves a directory without any mode in the cache of a project.
        clash_sandbox::launch::remove_tree(path)
    } else {
        fs::remove_file(path)
    }
}

/// The copy of an older version goes when it has done its work: the file is as it
/// was before clash came.
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

/// In a column of its own.
fn size_of(path: &Path) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let mut size = bytes(path) as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0);
    format!("{:>10}", format!("{size:.digits$} {}", UNITS.get(unit).unwrap_or(&"")))
}

fn bytes(path: &Path) -> u64 {
    let Ok(meta) = fs::symlink_metadata(path) else { return 0 };
    if !meta.is_dir() {
        return meta.len();
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| bytes(&entry.path())).sum()
}
