//! Hooks that git runs by itself.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Hooks of every command that writes a reference.
const ALWAYS: &[&str] = &["pre-auto-gc", "reference-transaction"];

/// Hooks that a pull never runs.
#[rustfmt::skip]
const NOT_ON_PULL: &[&str] = &[
    "applypatch-msg", "fsmonitor-watchman", "p4-changelist", "p4-post-changelist",
    "p4-pre-submit", "p4-prepare-changelist", "post-applypatch", "post-receive", "post-update",
    "pre-applypatch", "pre-commit", "pre-push", "pre-receive", "proc-receive", "push-to-checkout",
    "sendemail-validate", "update",
];

/// The message about a hook in the directory that the subcommand can run, or about a
/// directory that cannot be read. `None` if there is none: no such directory, only samples,
/// or only hooks of git-lfs.
pub(super) fn find_active_hook(dir: &Path, subcommand: &str) -> Option<String> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(_) => return Some(format!("{} cannot be read", dir.display())),
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let runs = name.to_str().is_some_and(|name| {
            !name.ends_with(".sample") && is_hook(name) && can_run(name, subcommand)
        });
        let path = entry.path();
        let executable =
            fs::metadata(&path).is_ok_and(|meta| meta.permissions().mode() & 0o111 != 0);
        if runs && executable && !is_of_lfs(&path) {
            return Some(format!("git runs the hook {}", path.display()));
        }
    }
    None
}

/// True if a file name can be a hook's: it has a dash and no dot, or is `update`. `.husky/_`
/// also has other files.
fn is_hook(name: &str) -> bool {
    name.contains('-') && !name.contains('.') || name == "update"
}

/// True if the subcommand can run this hook. An unknown subcommand can run every hook.
fn can_run(hook: &str, subcommand: &str) -> bool {
    match subcommand {
        // `gh` only queries git.
        "" | "clone" | "fetch" | "ls-remote" | "remote" => ALWAYS.contains(&hook),
        "push" => ALWAYS.contains(&hook) || hook == "pre-push",
        "pull" => !NOT_ON_PULL.contains(&hook),
        _ => true,
    }
}

/// True for the hooks of git-lfs: one line that runs `git lfs`, and one that reports a
/// missing git-lfs.
fn is_of_lfs(path: &Path) -> bool {
    let Some(hook) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let Ok(text) = fs::read_to_string(path) else { return false };
    let own = format!("git lfs {hook} \"$@\"");
    let complaint = |line: &str| {
        line.starts_with("command -v git-lfs >/dev/null 2>&1 || { ")
            && line.ends_with("exit 2; }")
            && !line.contains(['$', '`'])
            && line.matches('|').count() == 2
            && line.matches('&').count() == 2
            && line.matches('>').count() == 3
            && line.matches(';').count() == 2
            && (line.contains("{ echo >&2 ") || line.contains("{ printf >&2 "))
    };
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.next() == Some("#!/bin/sh") && lines.all(|line| line == own || complaint(line))
}
