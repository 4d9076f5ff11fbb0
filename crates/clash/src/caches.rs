//! Creates the directories that a sandbox of the library may fill and that do not exist.
//!
//! A grant needs an existing directory. Without this, the first build on a new machine
//! could not write `~/.cache/go-build`, and a grant on its parent would open every other
//! cache. The sandbox has the right to create the directory; the launcher creates it
//! empty, for the user alone, before it plans the sandbox.
//!
//! It does so for rules of the library and for caches only. For another path it cannot
//! know whether the user means a file or a directory. It creates nothing inside the
//! project, and nothing through a link that a command may have planted.

use std::path::Path;

use clash_policy::path::{LinkResolver, is_below};
use clash_policy::{Effect, FileCaps, FsRule, PathPattern, PolicyPlaces, Sandbox, WriteTarget};
use clash_sandbox::disk::Disk;
use clash_sandbox::planted::{LinkCheck, RuleOnDisk, SandboxesInForce};

use crate::dirs::create_private;

/// Creates the missing directories of library rules and caches that may create files, if they
/// belong to the user and no planted link leads there. Errors are ignored: a directory that
/// cannot be created gets no grant, and the plan says so.
pub(crate) fn make_missing(
    sandbox: &Sandbox,
    places: &PolicyPlaces,
    disk: &Disk,
    in_force: &dyn SandboxesInForce,
) {
    // The room mounts a project's cache on a directory of its own, unless a rule shows
    // the host's directory around the cache.
    let needs_none = |rule: &FsRule, path: &Path| {
        let around = |other: &FsRule| {
            let dir = places.expand(other.pattern.fixed());
            let shown = other.effect == Effect::Allow && other.writes == WriteTarget::InPlace;
            shown && dir.is_ok_and(|dir| is_below(path, &dir) && dir.is_dir())
        };
        rule.writes == WriteTarget::Project && !sandbox.fs.iter().any(around)
    };
    for rule in &sandbox.fs {
        let PathPattern::Subpath { path, .. } = &rule.pattern else { continue };
        let fills = rule.effect == Effect::Allow && rule.caps.contains(FileCaps::CREATE);
        let library = rule.span.file.starts_with("@clash//") || rule.writes == WriteTarget::Project;
        if !fills || !library {
            continue;
        }
        let Ok(written) = places.expand(path) else { continue };
        if needs_none(rule, &written) {
            continue;
        }
        let path = disk.real(&written);
        if disk.has(&path) || !is_users_own(&path, places, disk) {
            continue;
        }
        let placed = RuleOnDisk { rule, written: &written, real: &path };
        if (LinkCheck { sandbox, places, disk, in_force }).first_suspect(&[placed]).is_none() {
            let _ = create_private(&path);
        }
    }
}

/// True for a path below the home that is neither in the project nor in `$TMPDIR`.
fn is_users_own(path: &Path, places: &PolicyPlaces, disk: &Disk) -> bool {
    is_below(path, &places.home)
        && path != places.home
        && !is_below(path, &places.project)
        && !is_below(path, &disk.real(&places.tmp))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clash_policy::PolicySpan;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    fn rule(path: &str, caps: FileCaps, file: &str) -> FsRule {
        FsRule {
            pattern: PathPattern::Subpath { path: path.to_owned(), follow_worktrees: false },
            effect: Effect::Allow,
            caps,
            writes: WriteTarget::InPlace,
            span: PolicySpan { file: file.to_owned(), ..PolicySpan::default() },
        }
    }

    fn made(rules: Vec<FsRule>) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap().join("home");
        std::fs::create_dir_all(home.join("app")).unwrap();
        std::fs::create_dir(home.join("real")).unwrap();
        std::os::unix::fs::symlink(home.join("real"), home.join("linked")).unwrap();
        let tmp = home.join("tmp");
        let places = PolicyPlaces::new(home.join("app"), home.clone(), tmp, |_| None);
        let sandbox = Sandbox { fs: rules, ..Sandbox::named("s") };
        make_missing(
            &sandbox,
            &places,
            &Disk::default(),
            &clash_sandbox::planted::NoOtherSandboxes,
        );
        (dir, home)
    }

    #[test]
    fn a_cache_of_the_library_is_created_for_its_owner_alone() {
        let (_dir, home) = made(vec![rule("$GOCACHE", FileCaps::ALL, "@clash//go.star")]);
        let mode = std::fs::metadata(home.join(".cache/go-build")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn other_directories_are_not_created() {
        let library = "@clash//x.star";
        let read = FileCaps::READ.union(FileCaps::EXECUTE);
        let (_dir, home) = made(vec![
            rule("$HOME/readable", read, library),
            rule("$HOME/own", FileCaps::ALL, "/home/u/.clash/policy.star"),
            rule("$PWD/target", FileCaps::ALL, library),
            rule("$TMPDIR/x", FileCaps::ALL, library),
        ]);
        for path in ["readable", "own", "app/target", "tmp"] {
            assert!(!home.join(path).exists(), "{path}");
        }
    }

    #[test]
    fn a_link_is_followed_unless_a_command_may_have_planted_it() {
        let library = "@clash//x.star";
        let (_dir, home) = made(vec![rule("$HOME/linked/x", FileCaps::ALL, library)]);
        assert!(home.join("real/x").exists());
        let planted = vec![
            rule("$HOME/linked/x", FileCaps::ALL, library),
            rule("$HOME", FileCaps::ALL, "/home/u/.clash/policy.star"),
            rule("$HOME/real", FileCaps::READ, library),
        ];
        let denied = FsRule { effect: Effect::Deny, ..rule("$HOME/real", FileCaps::ALL, library) };
        let (_dir, home) = made([planted, vec![denied]].concat());
        assert!(!home.join("real/x").exists());
    }
}
