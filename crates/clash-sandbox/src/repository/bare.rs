//! Files that would make git take a directory for a repository.
//!
//! Git takes a directory with `HEAD`, `objects` and `refs`, or with `HEAD` and `commondir`,
//! for a bare repository, and obeys its `config`. The monitor prevents commands from
//! completing one. This module answers the same question for the agent's own file tools,
//! which run outside the rooms.

use std::ffi::OsStr;
use std::path::Path;

/// Entries of a repository that git obeys or looks for.
const REPOSITORY_ENTRIES: [&str; 8] =
    ["HEAD", "commondir", "config", "config.worktree", "hooks", "info", "objects", "refs"];

/// True if writing a file below the project changes or completes a bare repository there.
/// False for paths in `.git`, which is on the list of persistence paths, and for paths
/// outside the project. Names are compared without case.
pub fn completes_bare_repository(path: &Path, project: &Path) -> bool {
    let Ok(below) = path.strip_prefix(project) else { return false };
    let mut dir = project.to_path_buf();
    below.iter().any(|name| {
        let entry = REPOSITORY_ENTRIES.iter().find(|entry| name.eq_ignore_ascii_case(entry));
        let found = entry.is_some_and(|entry| is_bare_with(&dir, entry));
        dir.push(name);
        found
    })
}

/// True if the directory, together with this entry, is a bare repository. `.git` itself does
/// not count.
fn is_bare_with(dir: &Path, entry: &str) -> bool {
    if dir.file_name().is_some_and(|name| name.eq_ignore_ascii_case(OsStr::new(".git"))) {
        return false;
    }
    is_complete(|part| part == entry || dir.join(part).symlink_metadata().is_ok())
}

/// True if git takes a directory with these entries for a repository. With `commondir` git
/// looks for `objects` and `refs` in another directory.
pub(crate) fn is_complete(has: impl Fn(&str) -> bool) -> bool {
    has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn names_that_complete_or_change_a_repository_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path();
        fs::create_dir_all(project.join("a/objects")).unwrap();
        fs::create_dir_all(project.join("a/refs")).unwrap();
        fs::create_dir_all(project.join("b")).unwrap();
        fs::write(project.join("b/commondir"), "").unwrap();
        let completes_bare_repository =
            |path: &str| completes_bare_repository(&project.join(path), project);
        assert!(
            completes_bare_repository("a/HEAD")
                && completes_bare_repository("a/head")
                && completes_bare_repository("b/HEAD")
        );
        assert!(
            !completes_bare_repository("a/config")
                && !completes_bare_repository("a/x")
                && !completes_bare_repository("c/HEAD")
        );
        fs::write(project.join("a/HEAD"), "").unwrap();
        assert!(
            completes_bare_repository("a/config")
                && completes_bare_repository("a/hooks/pre-commit")
        );
        assert!(!completes_bare_repository("a/README") && !completes_bare_repository("src/config"));
    }
}
