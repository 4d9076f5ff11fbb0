//! Linked git worktrees. If `.git` of a project is a file, `git commit` needs directories
//! outside the project.
//!
//! `.git` names the worktree's own directory in the main repository
//! (`<common>/worktrees/<name>`), which is granted whole. In the common directory, only
//! objects, refs and logs are writable, which a commit writes. Hooks and config are
//! readable, never writable: they run or steer programs outside any sandbox.
//!
//! The `.git` file is in the project, where a sandboxed command may have written it. So it
//! is believed only if git's own back link agrees: the directory must really be
//! `<common>/worktrees/<name>` of a repository, and its `gitdir` file must name this
//! project's `.git`. A command can fake this only inside directories that it may already
//! write.
//!
//! Limits: no `git gc`, no deletion of packed branches, no `git config`, no submodules of
//! worktrees (their directories are not granted). A command can change the worktree's own
//! directory as a whole, and with it its `commondir`, just as it can replace the project's
//! `.git` file: the direct tier cannot protect names inside a writable directory.

use std::fs;
use std::path::{Path, PathBuf};

use clash_policy::FileCaps;
use clash_policy::path::{is_below, normalise};

const RWCD: FileCaps = FileCaps::READ.union(FileCaps::CHANGE);
const R: FileCaps = FileCaps::READ;
const RX: FileCaps = FileCaps::READ.union(FileCaps::EXECUTE);

/// Paths in the common directory that are granted if they exist.
const COMMON: &[(&str, FileCaps)] = &[
    ("objects", RWCD),
    ("refs", RWCD),
    ("logs", RWCD),
    ("HEAD", R),
    ("config", R),
    ("packed-refs", R),
    ("shallow", R),
    ("info", R),
    ("hooks", RX),
];

/// The result of checking `.git` of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WorktreeState {
    /// A directory or nothing: needs no grants.
    Plain,
    /// Grants, already resolved.
    Linked(Vec<(PathBuf, FileCaps)>),
    /// A `.git` file that is not believed, and the reason.
    Disbelieved(String),
}

/// Checks whether `.git` of a project is a file of a linked worktree, and whether to believe
/// it.
pub(crate) fn check_git_file(project: &Path) -> WorktreeState {
    let link = project.join(".git");
    match fs::symlink_metadata(&link) {
        Ok(meta) if meta.is_file() => {}
        _ => return WorktreeState::Plain,
    }
    match check_both_sides(project, &link) {
        Ok(grants) => WorktreeState::Linked(grants),
        Err(why) => WorktreeState::Disbelieved(why.to_owned()),
    }
}

/// The grants of a linked worktree: its own directory, and the existing parts of the common
/// directory. Fails with the reason if git's back link does not agree.
fn check_both_sides(project: &Path, link: &Path) -> Result<Vec<(PathBuf, FileCaps)>, &'static str> {
    let text = only_line(link).ok_or("`.git` cannot be read")?;
    let target = text.strip_prefix("gitdir:").ok_or("`.git` does not name a git directory")?.trim();
    let own =
        fs::canonicalize(project.join(target)).map_err(|_| "`.git` names nothing that exists")?;
    let worktrees = own
        .parent()
        .filter(|dir| dir.file_name().is_some_and(|n| n == "worktrees"))
        .ok_or("`.git` does not name a worktree of a repository")?;
    let common = worktrees.parent().ok_or("`.git` does not name a worktree of a repository")?;
    let claimed = only_line(&own.join("commondir")).ok_or("the worktree has no `commondir`")?;
    if fs::canonicalize(own.join(claimed)).ok().as_deref() != Some(common) {
        return Err("the worktree's `commondir` leads elsewhere");
    }
    if !(common.join("HEAD").is_file() && common.join("objects").is_dir()) {
        return Err("the main repository is not one");
    }
    let back = only_line(&own.join("gitdir")).ok_or("the worktree has no `gitdir`")?;
    if fs::canonicalize(own.join(back)).ok() != fs::canonicalize(link).ok() {
        return Err("the repository's worktree belongs to another directory");
    }
    let mut grants = vec![(own.clone(), RWCD)];
    // A link there gets no grant: earlier commands may have been allowed to write there.
    grants.extend(
        COMMON
            .iter()
            .map(|(name, caps)| (common.join(name), *caps))
            .filter(|(path, _)| fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_symlink())),
    );
    Ok(grants)
}

/// The own directory and the common directory of a linked worktree, if both sides agree.
pub(crate) fn linked(dir: &Path) -> Option<(PathBuf, PathBuf)> {
    let WorktreeState::Linked(grants) = check_git_file(dir) else { return None };
    let own = grants.first().map(|(path, _)| path.clone())?;
    let common = own.parent()?.parent()?.to_path_buf();
    Some((own, common))
}

/// The directory that the `.git` file of a submodule names, resolved. Nothing is checked: the
/// caller must compare it with the repository's `modules`.
pub(crate) fn submodule(dir: &Path) -> Option<PathBuf> {
    let text = only_line(&dir.join(".git"))?;
    fs::canonicalize(dir.join(text.strip_prefix("gitdir:")?.trim())).ok()
}

/// True if a directory is a linked worktree with its own part below `worktrees`, and both
/// sides agree.
pub(crate) fn belongs(dir: &Path, worktrees: &Path) -> bool {
    match check_git_file(dir) {
        WorktreeState::Linked(grants) => grants.iter().any(|(path, _)| is_below(path, worktrees)),
        WorktreeState::Plain | WorktreeState::Disbelieved(_) => false,
    }
}

/// True if a worktree directory of a repository belongs to a worktree in this project that
/// is gone. Worktrees elsewhere may exist where a room does not show them.
pub(crate) fn is_abandoned(own: &Path, project: &Path) -> bool {
    let link = only_line(&own.join("gitdir")).map(|back| normalise(&own.join(back)));
    link.is_some_and(|link| {
        let missing = |error: std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        is_below(&link, project) && fs::symlink_metadata(link).is_err_and(missing)
    })
}

/// The hooks directory of a project, if the file `config` names one in `core.hooksPath`.
/// `None` for the project itself or a directory above it, which would protect everything.
/// Files that `config` includes are not read.
pub(crate) fn find_hooks_path(project: &Path, home: &Path, config: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(config).ok()?;
    let mut in_core = false;
    let mut named = None;
    for line in text.lines().map(str::trim) {
        // A variable may follow its section on the same line.
        let line = match line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((section, rest)) => {
                in_core = section.trim().eq_ignore_ascii_case("core");
                rest.trim()
            }
            None => line,
        };
        let Some((name, value)) = line.split_once('=').filter(|_| in_core) else { continue };
        if name.trim().eq_ignore_ascii_case("hookspath") {
            named = Some(plain_value(value));
        }
    }
    let named = named.filter(|named| !named.is_empty())?;
    let hooks = match named.strip_prefix("~/") {
        Some(below) => home.join(below),
        None => normalise(&project.join(named)),
    };
    (!is_below(project, &hooks)).then_some(hooks)
}

/// A value of git's settings without quotes, escapes and comment. An escape stands for the
/// character itself (`\n` for `n`).
fn plain_value(value: &str) -> String {
    let mut quoted = false;
    let mut plain = String::with_capacity(value.len());
    let mut rest = value.trim().chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => quoted = !quoted,
            '\\' => plain.extend(rest.next()),
            '#' | ';' if !quoted => break,
            c => plain.push(c),
        }
    }
    plain.truncate(plain.trim_end().len());
    plain
}

/// The only line of a small file. `None` if the file is missing, longer than 8 KiB, empty or
/// has several lines.
fn only_line(path: &Path) -> Option<String> {
    let meta = fs::metadata(path).ok().filter(|m| m.is_file() && m.len() <= 8192)?;
    let mut text = fs::read_to_string(path).ok().filter(|t| t.len() as u64 <= meta.len().max(1))?;
    text.truncate(text.trim_end().len());
    (!text.is_empty() && !text.contains('\n')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The `.git` of a main repository and the project of a linked worktree, as `git worktree
    /// add` makes them.
    fn pair() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        let (common, project) = (base.join("main/.git"), base.join("wt"));
        let own = common.join("worktrees/wt");
        for sub in ["objects", "refs", "logs", "hooks", "info"] {
            fs::create_dir_all(common.join(sub)).unwrap();
        }
        fs::create_dir_all(&own).unwrap();
        fs::create_dir_all(&project).unwrap();
        fs::write(common.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(common.join("config"), "").unwrap();
        fs::write(own.join("commondir"), "../..\n").unwrap();
        fs::write(own.join("gitdir"), format!("{}\n", project.join(".git").display())).unwrap();
        fs::write(project.join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
        (dir, common, project)
    }

    #[test]
    fn a_commit_can_be_written_and_hooks_and_config_only_read() {
        let (_dir, common, project) = pair();
        let WorktreeState::Linked(grants) = check_git_file(&project) else { panic!("not linked") };
        let caps = |name: &str| grants.iter().find(|g| g.0 == common.join(name)).map(|g| g.1);
        assert_eq!(caps("worktrees/wt"), Some(RWCD));
        assert_eq!(caps("objects"), Some(RWCD));
        assert_eq!(caps("hooks"), Some(RX));
        assert_eq!(caps("config"), Some(R));
        assert_eq!(caps(""), None);
        assert_eq!(caps("worktrees"), None);
    }

    #[test]
    fn a_git_file_written_by_a_sandbox_opens_nothing() {
        let (dir, common, project) = pair();
        let victim = dir.path().join("ssh");
        fs::create_dir_all(&victim).unwrap();
        let claim = |text: &str| fs::write(project.join(".git"), text).unwrap();

        claim(&format!("gitdir: {}\n", victim.display()));
        assert!(matches!(check_git_file(&project), WorktreeState::Disbelieved(_)));
        claim(&format!("gitdir: {}\n", common.display()));
        assert!(matches!(check_git_file(&project), WorktreeState::Disbelieved(_)));
        claim("nonsense");
        assert!(matches!(check_git_file(&project), WorktreeState::Disbelieved(_)));

        // A forged worktree in the project, whose common directory is elsewhere.
        let fake = project.join("x/worktrees/y");
        fs::create_dir_all(&fake).unwrap();
        fs::write(fake.join("commondir"), format!("{}\n", victim.display())).unwrap();
        fs::write(fake.join("gitdir"), format!("{}\n", project.join(".git").display())).unwrap();
        claim(&format!("gitdir: {}\n", fake.display()));
        assert!(matches!(check_git_file(&project), WorktreeState::Disbelieved(_)));
    }

    #[test]
    fn a_worktree_of_another_repository_is_refused() {
        let (dir, _common, project) = pair();
        let other = dir.path().join("other");
        fs::create_dir_all(&other).unwrap();
        fs::copy(project.join(".git"), other.join(".git")).unwrap();
        assert!(matches!(check_git_file(&other), WorktreeState::Disbelieved(_)));
    }

    #[test]
    fn both_sides_agree_on_a_worktree_and_on_its_end() {
        let (_dir, common, project) = pair();
        assert!(belongs(&project, &common.join("worktrees")));
        assert!(!belongs(&project, &project.join("worktrees")));
        assert!(!belongs(&common, &common.join("worktrees")));
        let own = common.join("worktrees/wt");
        assert!(!is_abandoned(&own, &project));
        fs::remove_file(project.join(".git")).unwrap();
        assert!(is_abandoned(&own, &project) && !belongs(&project, &common.join("worktrees")));
        assert!(!is_abandoned(&own, &common), "it is somewhere else");
        fs::remove_file(own.join("gitdir")).unwrap();
        assert!(!is_abandoned(&own, &project), "nothing is known of it");
    }

    #[test]
    fn hooks_are_where_the_configuration_says() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config");
        let hooks = |text: &str| {
            fs::write(&config, text).unwrap();
            find_hooks_path(Path::new("/p"), Path::new("/h"), &config)
        };
        for (text, found) in [
            ("[core]\n\tbare = false\n\thooksPath = tools/hooks\n", "/p/tools/hooks"),
            ("[user]\nname = x\n[Core] HOOKSPATH=./a/../hooks ; mine", "/p/hooks"),
            ("[core]\nhooksPath = \"with space # in\" # not in", "/p/with space # in"),
            ("[core]\nhooksPath = one\n[core]\nhooksPath = /p/two", "/p/two"),
            ("[core]\nhooksPath = ~/hooks", "/h/hooks"),
        ] {
            assert_eq!(hooks(text), Some(PathBuf::from(found)), "{text}");
        }
        for text in [
            "",
            "[core]\nbare = true",
            "[other]\nhooksPath = x",
            "[core \"sub\"]\nhooksPath = x",
            "[core]\nhooksPath =",
            "[core]\nhooksPath = .",
            "[core]\nhooksPath = /",
        ] {
            assert_eq!(hooks(text), None, "{text}");
        }
    }

    #[test]
    fn a_plain_repository_needs_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(check_git_file(dir.path()), WorktreeState::Plain);
        fs::create_dir(dir.path().join(".git")).unwrap();
        assert_eq!(check_git_file(dir.path()), WorktreeState::Plain);
    }
}
