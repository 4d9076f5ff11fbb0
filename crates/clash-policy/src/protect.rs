//! Persistence paths: files of a project that later run or steer a program outside
//! every sandbox, for example `.git/hooks`. A sandbox that may write the project may
//! not write these, unless its policy says so. The judge of file tools and the planner
//! both use this one list.
//!
//! The list names files that common tools load without asking. It does not name files
//! that run only on request, such as a Makefile or a build script: writing those is the
//! agent's work. Names count at any depth, even if the file does not exist, and in
//! upper or lower case. They count below the project, and below the home if a policy
//! grants all of it. They do not count in other trees that a policy grants, such as a
//! cache.

mod list;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::effect::FileCaps;
use crate::sandbox::ProtectSettings;

pub use list::STANDARD;
use list::{BY_GIT, BY_INSTRUCTIONS, BY_PIPELINE};

/// One path, relative to any directory, and the program that acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersistencePath<'a> {
    /// `*` within a name stands for any run of characters.
    pub path: &'a str,
    pub why: &'static str,
    pub keep: KeepMode,
    /// No file tool may change it, even if the policy or the user allows it: clash, or an
    /// agent that it confines, reads its own settings from it. For example `.clash`.
    pub caged: bool,
}

/// The changes that are refused for a persistence path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepMode {
    /// No command changes, creates or removes it, or anything below it.
    Always,
    /// A command may create it if it does not exist. After that it is not changed.
    Existing,
    /// Like `Existing` if the sandbox may make repositories, and with them linked
    /// worktrees. Otherwise like `Always`.
    OfWorktree,
    /// A command that created the directory may create it there once. It is never
    /// changed. It may be removed, and is then not created again. Only the monitor
    /// knows which command created the directory.
    WithDirectory,
    /// The name itself is not created, changed or removed. Files below it are not
    /// protected by this entry.
    Name,
    /// Like `Name`, but a command may create it if it does not exist.
    ExistingName,
    /// Like `Name`, but a command may create it as a directory. Only the monitor sees
    /// the type of a new file.
    Directory,
}

const POLICY: &str = "the policy protects it";

/// The name of a repository. `unprotect = [".git"]` lets commands create repositories
/// and change those they created. An existing one stays protected: a file of this name
/// tells git where its hooks are.
pub const REPOSITORY: &str = ".git";

/// Instructions and pipelines: git writes them when it checks out another commit.
pub fn carried_by_branches() -> impl Iterator<Item = &'static str> {
    let carried = |entry: &&PersistencePath<'_>| matches!(entry.why, BY_INSTRUCTIONS | BY_PIPELINE);
    STANDARD.iter().filter(carried).map(|entry| entry.path)
}

/// Directories with packages of other authors. Users do not open them as projects, and
/// packages contain the settings of their authors. Entries about repositories count
/// there too.
const PACKAGES: &[&str] = &["node_modules", "site-packages", "dist-packages", "vendor"];

/// The list after the `protect` and `unprotect` of one sandbox. `unprotect` removes an
/// entry, but of a [`KeepMode::Name`] entry it only lets commands create the name.
pub fn entries(protect: &ProtectSettings) -> impl Iterator<Item = PersistencePath<'_>> {
    let standard = STANDARD.iter().copied().filter(|_| protect.standard);
    let also = protect.also.iter().map(|path| PersistencePath {
        path,
        why: POLICY,
        keep: KeepMode::Always,
        caged: false,
    });
    let excepts = |path: &str| protect.except.iter().any(|except| except == path);
    let repositories = excepts(REPOSITORY);
    standard.chain(also).filter_map(move |entry| {
        let excepted = excepts(entry.path);
        match entry.keep {
            KeepMode::OfWorktree if !repositories && !excepted => {
                Some(PersistencePath { keep: KeepMode::Always, ..entry })
            }
            KeepMode::Name if excepted => {
                Some(PersistencePath { keep: KeepMode::ExistingName, ..entry })
            }
            _ => (!excepted).then_some(entry),
        }
    })
}

/// The entry that forbids a change of the path `below`, which is relative to a tree in
/// which the list counts. Entries that end within the first `named` names do not count: the
/// policy itself names them. `None` if `needs` has no capability that changes.
pub fn kept<'a>(
    protect: &'a ProtectSettings,
    below: &Path,
    named: usize,
    needs: FileCaps,
) -> Option<PersistencePath<'a>> {
    if !needs.intersects(FileCaps::CHANGE) {
        return None;
    }
    let names: Vec<&OsStr> = below.iter().collect();
    let begun: Vec<usize> = (0..names.len())
        .filter(|at| names.get(*at).is_some_and(|name| protect.may_begin(name)))
        .collect();
    if begun.is_empty() {
        return None;
    }
    kept_by_names(protect, &names, &begun, named, needs)
        .or_else(|| kept_in_submodule(protect, &names, named, needs))
}

/// The entry of `.git` that forbids a change in the repository of a submodule, for example
/// `.git/config` for `.git/modules/vendor/lib/config`. The name of a submodule has any number
/// of parts, so an entry counts behind each of them.
fn kept_in_submodule<'a>(
    protect: &'a ProtectSettings,
    names: &[&OsStr],
    named: usize,
    needs: FileCaps,
) -> Option<PersistencePath<'a>> {
    let at = submodules_at(names)?;
    let (above, inside) = (names.get(..at)?, names.get(at + 2..)?);
    (1..inside.len()).find_map(|skipped| {
        let rest = inside.get(skipped..)?;
        let above_rest = inside.get(1..skipped)?;
        // Histories of `HEAD`, and branches of remotes.
        let history = above_rest.iter().any(|name| *name == "logs") && rest == ["HEAD"];
        let remote = above_rest.last().is_some_and(|name| *name == "refs")
            && rest.first().is_some_and(|name| *name == "remotes");
        if history || remote {
            return None;
        }
        let repository = [OsStr::new(REPOSITORY)];
        let names: Vec<&OsStr> = above.iter().chain(&repository).chain(rest).copied().collect();
        kept_by_names(protect, &names, &[at], named, needs)
    })
}

/// The index of `.git` in `.git/modules/NAME`.
fn submodules_at(names: &[&OsStr]) -> Option<usize> {
    let is_start = |pair: &[&OsStr]| {
        matches!(pair, [one, two] if one.eq_ignore_ascii_case(REPOSITORY)
            && two.eq_ignore_ascii_case("modules"))
    };
    names.windows(2).position(is_start).filter(|at| names.len() > at + 2)
}

/// True if a path is the repository of a submodule, or in it.
pub fn is_in_submodule(path: &Path) -> bool {
    submodules_at(&path.iter().collect::<Vec<_>>()).is_some()
}

/// The first entry of the list that protects these names for these rights. `names` are those
/// of a path below a protected tree; an entry may begin at each index of `begun`, and must
/// reach beyond the first `named` names, which the caller has looked at before.
fn kept_by_names<'a>(
    protect: &'a ProtectSettings,
    names: &[&OsStr],
    begun: &[usize],
    named: usize,
    needs: FileCaps,
) -> Option<PersistencePath<'a>> {
    entries(protect).find(|entry| {
        let length = entry.path.split('/').count();
        let found = |start: usize| {
            let end = start + length;
            end > named
                && starts(entry.path, names.get(start..).unwrap_or_default(), length)
                && !in_packages(entry, names.get(..start).unwrap_or_default())
                && !is_worktree(entry, names.get(end))
                && match entry.keep {
                    KeepMode::Always => true,
                    KeepMode::Existing | KeepMode::OfWorktree => {
                        needs.intersects(FileCaps::WRITE.union(FileCaps::DELETE))
                    }
                    KeepMode::WithDirectory => {
                        needs.intersects(FileCaps::WRITE.union(FileCaps::CREATE))
                    }
                    KeepMode::Name | KeepMode::Directory => end == names.len(),
                    KeepMode::ExistingName => {
                        end == names.len()
                            && needs.intersects(FileCaps::WRITE.union(FileCaps::DELETE))
                    }
                }
        };
        begun.iter().copied().any(found)
    })
}

/// True if a path ends with the beginning of an entry, as `.git` is of `.git/hooks`. A link
/// of that name would protect its target. Only entries count whose mode `entry_counts`
/// accepts.
pub fn begins(
    protect: &ProtectSettings,
    below: &Path,
    entry_counts: impl Fn(KeepMode) -> bool,
) -> bool {
    let names: Vec<&OsStr> = below.iter().collect();
    if protect.standard && submodules_at(&names).is_some() {
        return true;
    }
    entries(protect).filter(|entry| entry_counts(entry.keep)).any(|entry| {
        (1..entry.path.split('/').count()).any(|begun| {
            let above = names.len().checked_sub(begun).and_then(|at| names.get(..at));
            ends(entry.path, &names, begun) && !in_packages(&entry, above.unwrap_or_default())
        })
    })
}

/// True if the list treats all files below the two directories alike: no entry has
/// begun in only one of them. A part of a repository is never alike: after a rename, a
/// command could create another file in its place.
pub fn alike_below(protect: &ProtectSettings, one: &Path, other: &Path) -> bool {
    let [one, other] = [one, other].map(|path| path.iter().collect::<Vec<&OsStr>>());
    let packages = |names: &[&OsStr]| names.iter().any(|name| is_package_directory(name));
    let submodule = [&one, &other].iter().any(|names| submodules_at(names).is_some());
    !(protect.standard && submodule)
        && packages(&one) == packages(&other)
        && entries(protect).all(|entry| {
            (1..entry.path.split('/').count()).all(|begun| {
                let [one, other] = [&one, &other].map(|names| ends(entry.path, names, begun));
                one == other && !(one && entry.why == BY_GIT)
            })
        })
}

/// True if a name begins an entry that no file tool may change. `next` is the name
/// behind it: `.claude/worktrees` is a project again.
pub(crate) fn is_caged(name: &OsStr, next: Option<&&OsStr>) -> bool {
    standard_may_begin(name.as_bytes())
        && STANDARD
            .iter()
            .any(|entry| entry.caged && name == entry.path && !is_worktree(entry, next))
}

/// True if a path is in a directory of packages, where most of the list does not count.
pub fn is_in_packages(path: &Path) -> bool {
    path.iter().any(is_package_directory)
}

/// True if an entry of the standard list may begin with a name of this length and first
/// letter. A fast filter: the monitor asks at most calls, and most names begin no
/// entry.
fn standard_may_begin(name: &[u8]) -> bool {
    let first = name.first().map_or(0, u8::to_ascii_lowercase);
    let lengths = LENGTHS.get(usize::from(first)).copied().unwrap_or(u64::MAX);
    let with_any = LENGTHS.get(usize::from(b'*')).copied().unwrap_or(u64::MAX);
    (lengths | with_any) & length_bit(name.len()) != 0
}

/// The bit for names of this length. One bit stands for all lengths from 63 on.
const fn length_bit(length: usize) -> u64 {
    if length > 63 { 1 << 63 } else { 1 << length }
}

/// For each first letter of an entry: the lengths that its first name may have.
static LENGTHS: [u64; 256] = lengths();

/// For each first letter, the lengths of the first names of the list as bits. A name of
/// another length or letter begins no entry; most names are ruled out by this alone.
#[expect(clippy::indexing_slicing, reason = "computed when this is compiled")]
const fn lengths() -> [u64; 256] {
    let mut lengths = [0; 256];
    let mut at = 0;
    while at < STANDARD.len() {
        let path = STANDARD[at].path.as_bytes();
        let (mut length, mut any) = (0, false);
        while length < path.len() && path[length] != b'/' {
            any |= path[length] == b'*';
            length += 1;
        }
        let fewest = length_bit(if any { length - 1 } else { length });
        let bits = if any { !(fewest - 1) } else { fewest };
        lengths[path[0].to_ascii_lowercase() as usize] |= bits;
        at += 1;
    }
    lengths
}

impl ProtectSettings {
    /// True if an entry of the list may begin with this name. True in cases of doubt.
    fn may_begin(&self, name: &OsStr) -> bool {
        let by_policy = |path: &String| {
            let first = path.split('/').next().unwrap_or_default();
            is_named(first, name)
        };
        self.standard && standard_may_begin(name.as_bytes()) || self.also.iter().any(by_policy)
    }
}

/// True if `names` starts with the first `count` names of an entry.
fn starts(entry: &str, names: &[&OsStr], count: usize) -> bool {
    names.len() >= count
        && entry.split('/').take(count).zip(names).all(|(part, name)| is_named(part, name))
}

/// True if `names` ends with the first `count` names of an entry.
fn ends(entry: &str, names: &[&OsStr], count: usize) -> bool {
    let from = names.len().checked_sub(count).and_then(|at| names.get(at..));
    from.is_some_and(|names| starts(entry, names, count))
}

/// True if one part of an entry matches a name, in upper or lower case. Only the first `*`
/// is a wildcard.
pub fn is_named(part: &str, name: &OsStr) -> bool {
    let name = name.as_bytes();
    match part.split_once('*') {
        None => name.eq_ignore_ascii_case(part.as_bytes()),
        Some((front, back)) => {
            let (front, back) = (front.as_bytes(), back.as_bytes());
            name.len() >= front.len() + back.len()
                && name.get(..front.len()).is_some_and(|n| n.eq_ignore_ascii_case(front))
                && name.get(name.len() - back.len()..).is_some_and(|n| n.eq_ignore_ascii_case(back))
        }
    }
}

/// True for a directory of [`PACKAGES`]; upper case counts as another name.
fn is_package_directory(name: &OsStr) -> bool {
    PACKAGES.iter().any(|package| name == *package)
}

/// True if an entry does not count, because `above` has a directory of packages. Entries
/// about git and entries of the policy count everywhere.
fn in_packages(entry: &PersistencePath<'_>, above: &[&OsStr]) -> bool {
    entry.why != BY_GIT
        && entry.why != POLICY
        && above.iter().any(|name| is_package_directory(name))
}

/// True if the entry is `.claude` and the next name `worktrees`: a worktree of the agent is
/// a project again.
fn is_worktree(entry: &PersistencePath<'_>, next: Option<&&OsStr>) -> bool {
    entry.path == ".claude" && next.is_some_and(|name| *name == "worktrees")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeps(path: &str, needs: &str) -> Option<&'static str> {
        keeps_with(&ProtectSettings::default(), path, needs)
    }

    /// The entry of the standard list that protects a path from these capabilities.
    fn keeps_with(protect: &ProtectSettings, path: &str, needs: &str) -> Option<&'static str> {
        let entry = kept(protect, Path::new(path), 0, FileCaps::parse(needs).unwrap())?;
        STANDARD.iter().find(|known| known.path == entry.path).map(|known| known.path)
    }

    #[test]
    fn no_entry_lies_in_one_that_is_always_kept() {
        for (at, entry) in STANDARD.iter().enumerate() {
            assert!(!entry.path.starts_with('/') && !entry.path.ends_with('/'));
            let whole = |other: &&PersistencePath<'_>| other.keep == KeepMode::Always;
            for other in STANDARD[..at].iter().chain(&STANDARD[at + 1..]).filter(whole) {
                assert!(!Path::new(entry.path).starts_with(other.path), "{}", entry.path);
            }
        }
    }

    #[test]
    fn a_submodules_repository_is_protected_like_the_projects() {
        let keeps = |path: &str| keeps(&format!("a/.git/modules/{path}"), "w");
        for dir in ["lib", "vendor/lib", "hooks/x"] {
            for name in ["config", "hooks/x", "info/attributes", "objects/info/alternates", "HEAD"]
            {
                assert!(keeps(&format!("{dir}/{name}")).is_some(), "{dir}/{name}");
            }
            for name in [
                "index",
                "logs/HEAD",
                "logs/refs/remotes/o/HEAD",
                "objects/ab/cd",
                "refs/heads/x",
                "refs/remotes/o/x",
            ] {
                assert_eq!(keeps(&format!("{dir}/{name}")), None, "{dir}/{name}");
            }
        }
    }

    #[test]
    fn file_tools_may_not_change_any_caged_name() {
        let caged: Vec<&str> = STANDARD.iter().filter(|it| it.caged).map(|it| it.path).collect();
        assert!(caged.contains(&".clash") && caged.contains(&".claude"));
        for name in caged {
            assert!(!name.contains(['/', '*']) && is_caged(OsStr::new(name), None), "{name}");
        }
        let next = OsStr::new("worktrees");
        assert!(!is_caged(OsStr::new(".claude"), Some(&next)));
        assert!(!is_caged(OsStr::new(".vscode"), None) && !is_caged(OsStr::new("src"), None));
    }

    #[test]
    fn the_fast_filter_skips_no_entry() {
        for entry in STANDARD {
            let first = entry.path.split('/').next().unwrap();
            for name in [first.replace('*', ""), first.replace('*', "x").to_uppercase()] {
                assert!(standard_may_begin(name.as_bytes()), "{name}");
            }
        }
        assert!(!standard_may_begin(b"src") && !standard_may_begin(b"main.rs"));
    }

    #[test]
    fn names_count_at_any_depth_and_with_everything_below() {
        for path in [".vscode", "a/.vscode/tasks.json", ".VSCode/x", "a/b/.git/hooks/pre-commit"] {
            assert!(keeps(path, "c").is_some() && keeps(path, "w").is_some(), "{path}");
        }
        assert_eq!(keeps("team.code-workspace", "c"), Some("*.code-workspace"));
        for path in ["src/main.rs", "vscode", ".git/index", ".git/objects/ab/cd", "hooks/x"] {
            assert_eq!(keeps(path, "wcd"), None, "{path}");
        }
        assert_eq!(keeps(".vscode/tasks.json", "rx"), None);
    }

    #[test]
    fn settings_inside_packages_are_not_protected() {
        assert_eq!(keeps("node_modules/dep/.vscode/settings.json", "c"), None);
        assert_eq!(keeps("node_modules/dep/.git/hooks/pre-commit", "c"), Some(".git/hooks"));
        assert_eq!(keeps(".claude/worktrees/one/src/main.rs", "wcd"), None);
        assert_eq!(keeps(".claude/worktrees/one/.mcp.json", "c"), Some(".mcp.json"));
    }

    #[test]
    fn an_activation_script_can_be_removed_and_not_changed() {
        assert_eq!(keeps(".venv/bin/activate", "c"), Some("bin/activate"));
        assert_eq!(keeps(".venv/bin/activate.fish", "w"), Some("bin/activate.*"));
        assert_eq!(keeps(".venv/bin/activate", "d"), None);
    }

    #[test]
    fn the_beginning_of_an_entry_is_found_at_any_depth() {
        let begins = |path: &str| {
            let always = |keep| keep == KeepMode::Always;
            begins(&ProtectSettings::default(), Path::new(path), always)
        };
        assert!(begins(".cargo") && begins("a/.github") && begins(".git/objects/info"));
        assert!(!begins(".vscode") && !begins("a") && !begins(".cargo/config.toml"));
        assert!(!begins(".venv/bin"), "what may be made there is no secret way in");
        assert!(!begins("node_modules/dep/.github") && begins("node_modules/dep/.git"));
    }

    #[test]
    fn an_unprotected_git_creates_repositories_and_changes_none() {
        assert_eq!(keeps("lib/.git", "c"), Some(".git"));
        assert_eq!(keeps("lib/.git", "w"), Some(".git"));
        let protect = ProtectSettings { except: vec![".git".into()], ..ProtectSettings::default() };
        assert_eq!(keeps_with(&protect, "lib/.git", "c"), None);
        assert_eq!(keeps_with(&protect, "lib/.git", "w"), Some(".git"));
        assert_eq!(keeps_with(&protect, "lib/.git", "d"), Some(".git"));
        assert_eq!(keeps_with(&protect, "lib/.git/index", "wcd"), None);
        assert_eq!(keeps_with(&protect, "lib/.git/hooks", "c"), Some(".git/hooks"));
        for name in ["commondir", "gitdir", "config.worktree"] {
            let path = format!(".git/worktrees/one/{name}");
            assert!(keeps(&path, "c").is_some() && keeps_with(&protect, &path, "c").is_none());
            assert!(keeps_with(&protect, &path, "w").is_some());
        }
    }

    #[test]
    fn paths_that_the_policy_names_are_not_protected() {
        let protect = ProtectSettings::default();
        let one = |named| kept(&protect, Path::new(".vscode/x"), named, FileCaps::WRITE).is_some();
        assert!(one(0) && !one(1));
    }

    #[test]
    fn directories_are_alike_if_no_entry_has_begun() {
        let alike =
            |a: &str, b: &str| alike_below(&ProtectSettings::default(), a.as_ref(), b.as_ref());
        assert!(alike("a", "b/c") && alike("a/bin", "bin"));
        assert!(!alike("x/.git", ".git") && !alike(".git/worktrees/a", ".git/worktrees/b"));
        assert!(!alike("a", ".git") && !alike(".git", "a") && !alike("venv/bin", "tools"));
        assert!(!alike("a", "node_modules/a"));
    }
}
