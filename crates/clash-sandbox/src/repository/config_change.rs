//! Judges a change of a repository's settings by the settings that change.
//!
//! A command may add remotes, track branches, and change settings that name no program, no
//! directory and no place to send to. It may not redirect a remote, nor a branch that follows
//! one. A branch that follows none may follow a new remote; SECURITY.md names this limit.

use clash_shell::is_plain_git_setting;

use super::config::{GitSetting, parse_settings};

/// Names of `branch.NAME.…` that only say what a branch tracks.
const TRACKING: &[&str] = &["description", "gh-merge-base", "merge", "rebase", "remote"];
/// Names of a remote, besides `url` and `fetch`.
const REMOTE: &[&str] = &["followremotehead", "gh-resolved", "prune", "prunetags", "tagopt"];
/// Settings that name no program and nothing outside the repository, in lower case.
#[rustfmt::skip]
const HARMLESS: &[&str] = &[
    "branch.autosetupmerge", "branch.autosetuprebase", "branch.sort", "commit.verbose",
    "core.abbrev", "core.autocrlf", "core.bigfilethreshold", "core.checkstat", "core.commitgraph",
    "core.eol", "core.filemode", "core.ignorecase", "core.logallrefupdates", "core.longpaths",
    "core.precomposeunicode", "core.preloadindex", "core.quotepath", "core.safecrlf",
    "core.sparsecheckout", "core.sparsecheckoutcone", "core.splitindex", "core.trustctime",
    "core.untrackedcache", "core.whitespace", "diff.algorithm", "diff.colormoved", "diff.renames",
    "extensions.worktreeconfig", "fetch.prune", "fetch.prunetags", "fetch.writecommitgraph",
    "gc.auto", "index.sparse", "index.threads", "index.version", "init.defaultbranch",
    "lfs.repositoryformatversion", "log.date", "maintenance.auto", "maintenance.strategy",
    "merge.conflictstyle", "merge.ff", "merge.log", "merge.renames", "merge.stat", "pull.ff",
    "pull.rebase", "push.autosetupremote", "push.followtags", "rebase.autosquash",
    "rebase.autostash", "rebase.updaterefs", "rerere.autoupdate", "rerere.enabled",
    "status.showuntrackedfiles", "tag.sort", "user.email", "user.name",
];
/// Settings that `git lfs install --local` writes, with exactly these values.
const LFS: &[(&str, &str)] = &[
    ("filter.lfs.clean", "git-lfs clean -- %f"),
    ("filter.lfs.process", "git-lfs filter-process"),
    ("filter.lfs.required", "true"),
    ("filter.lfs.smudge", "git-lfs smudge -- %f"),
];

/// Settings of `config.worktree` that `git sparse-checkout` writes.
const OF_WORKTREE: &[&str] = &["core.sparsecheckout", "core.sparsecheckoutcone", "index.sparse"];

/// Fails with the first change of `config.worktree` that is not harmless.
pub(crate) fn judge_worktree_config(old: &str, new: &str) -> Result<(), String> {
    judge_each(old, new, |setting| OF_WORKTREE.contains(&setting.full_name().as_str()))
}

/// Fails with the first change of `.gitmodules` that is not harmless. The path and the branch
/// of a submodule may change, its address may not.
pub(crate) fn judge_submodule_list(old: &str, new: &str) -> Result<(), String> {
    let known = parse_settings(old).unwrap_or_default();
    judge_each(old, new, |setting| {
        let listed = |old: &GitSetting| old.full_name() == setting.full_name();
        setting.section == "submodule"
            && setting.middle.is_some()
            && (is_submodule_setting(setting) || is_submodule_path(setting))
            && (setting.name != "url" || !known.iter().any(|old| listed(old) && old != setting))
    })
}

/// Fails with the first setting that is added or removed and not harmless, and also if either
/// text is not certainly understood or settings that stay have another order.
fn judge_each(
    old: &str,
    new: &str,
    is_harmless: impl Fn(&GitSetting) -> bool,
) -> Result<(), String> {
    let no_setting = || "a line that is no setting".to_owned();
    let old = parse_settings(old).ok_or_else(no_setting)?;
    let new = parse_settings(new).ok_or_else(no_setting)?;
    let ((kept, removed), (kept_in_new, added)) = (split_by(&old, &new), split_by(&new, &old));
    if kept != kept_in_new {
        return Err("the order of settings".to_owned());
    }
    let refused = removed.into_iter().chain(added).find(|setting| !is_harmless(setting));
    refused.map_or(Ok(()), |setting| Err(setting.full_name()))
}

/// True for settings of a submodule that name no program and lead to no transport but git's
/// own.
fn is_submodule_setting(setting: &GitSetting) -> bool {
    let value = setting.value.as_str();
    match setting.name.as_str() {
        "url" => is_submodule_place(value),
        "update" => matches!(value, "checkout" | "merge" | "none" | "rebase"),
        "branch" => !value.starts_with('-'),
        "active" | "fetchrecursesubmodules" | "ignore" | "shallow" => true,
        _ => false,
    }
}

/// `submodule.NAME.path`: a place in the work tree.
fn is_submodule_path(setting: &GitSetting) -> bool {
    setting.name == "path"
        && !setting.value.starts_with(['-', '/'])
        && setting.value.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// True for the address of another machine, and for a path. Git does not run the hooks of a
/// repository that it only fetches from.
fn is_submodule_place(url: &str) -> bool {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '`' | '$' | '\\');
    let is_path = url.starts_with(['/', '.']) && url.chars().all(plain) && !url.contains("::");
    is_path || is_remote_place(url)
}

/// Fails with the first setting whose change is not harmless. `has_branch` tells whether a
/// branch exists.
pub(crate) fn judge_config_change(
    old: &str,
    new: &str,
    has_branch: impl Fn(&str) -> bool,
) -> Result<(), String> {
    let no_setting = || "a line that is no setting".to_owned();
    let old = parse_settings(old).ok_or_else(no_setting)?;
    let new = parse_settings(new).ok_or_else(no_setting)?;
    let (kept, removed) = split_by(&old, &new);
    let (kept_in_new, added) = split_by(&new, &old);
    // The last of several values counts, so their order matters.
    if kept != kept_in_new {
        return Err("the order of settings".to_owned());
    }
    for setting in removed {
        let goes = match (setting.section.as_str(), &setting.middle) {
            // Git removes the old value before it adds the new one.
            ("branch", Some(branch)) => !has_branch(branch) || says_no_place(setting),
            ("remote", _) => false,
            ("submodule", Some(_)) => is_submodule_setting(setting),
            _ => is_harmless(setting),
        };
        if !goes {
            return Err(setting.full_name());
        }
    }
    let refused = added.into_iter().find(|setting| !may_be_added(setting, &old));
    refused.map_or(Ok(()), |setting| Err(setting.full_name()))
}

/// The settings that are also in `other`, and those that are not. Each counts as often as it
/// is there.
fn split_by<'a>(
    settings: &'a [GitSetting],
    other: &[GitSetting],
) -> (Vec<&'a GitSetting>, Vec<&'a GitSetting>) {
    let mut left: Vec<&GitSetting> = other.iter().collect();
    settings.iter().partition(|setting| {
        let found = left.iter().position(|known| known == setting);
        found.map(|at| left.swap_remove(at)).is_some()
    })
}

/// True for a setting of a branch that does not say to which remote a push goes.
fn says_no_place(setting: &GitSetting) -> bool {
    matches!(setting.name.as_str(), "description" | "gh-merge-base" | "merge" | "rebase")
}

fn may_be_added(setting: &GitSetting, old: &[GitSetting]) -> bool {
    let (name, value) = (setting.name.as_str(), setting.value.as_str());
    let known = |names: &dyn Fn(&GitSetting) -> bool| old.iter().any(names);
    match (setting.section.as_str(), &setting.middle) {
        ("branch", Some(branch)) => {
            let tracked = |old: &GitSetting| {
                old.section == "branch"
                    && old.name == "remote"
                    && old.middle.as_ref() == Some(branch)
            };
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            TRACKING.contains(&name)
                && (name != "remote" || value.chars().all(plain) && !known(&tracked))
                && (name != "rebase" || matches!(value, "true" | "false" | "merges"))
        }
        ("remote", Some(remote)) => {
            let has_url = |old: &GitSetting| {
                old.section == "remote" && old.middle.as_ref() == Some(remote) && old.name == "url"
            };
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
            // `.` is the repository itself, and `..` the directory above it.
            let is_name = |part: &str| !matches!(part, "" | "." | "..");
            if !remote.chars().all(plain) || !remote.split('/').all(is_name) {
                return false;
            }
            match name {
                // Git writes a new remote setting by setting, `url` first.
                "url" => !known(&has_url) && is_remote_place(value),
                "fetch" => value.split_once(':').is_some_and(|(from, to)| {
                    from.trim_start_matches('+').starts_with("refs/")
                        && to.starts_with(&format!("refs/remotes/{remote}/"))
                }),
                _ => REMOTE.contains(&name),
            }
        }
        ("submodule", Some(_)) => is_submodule_setting(setting),
        _ => is_harmless(setting),
    }
}

/// True if a change of this setting passes, so its presence steers no program.
pub(super) fn is_judged_harmless(setting: &GitSetting) -> bool {
    setting.section != "remote" && setting.section != "branch" && is_harmless(setting)
}

fn is_harmless(setting: &GitSetting) -> bool {
    let full = setting.full_name();
    HARMLESS.contains(&full.as_str())
        || LFS.iter().any(|(name, value)| *name == full && *value == setting.value)
        || matches!(setting.section.as_str(), "advice" | "color" | "column")
            && setting.middle.is_none()
            && is_plain_git_setting(&full)
}

/// True for the address of another machine: `https://…`, `ssh://…`, `git@host:path`. Not for
/// a path of this machine, and not for `ext::program`.
fn is_remote_place(url: &str) -> bool {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '`' | '$' | '\\');
    if url.contains("::") || !url.chars().all(plain) {
        return false;
    }
    let begins = |host: &str| host.starts_with(|c: char| c.is_ascii_alphanumeric());
    let schemes = ["https://", "http://", "ssh://", "git+ssh://", "git://"];
    if let Some(rest) = schemes.iter().find_map(|scheme| url.strip_prefix(scheme)) {
        return begins(rest);
    }
    // `user@host:path`. A slash before the colon means a path of this machine.
    let Some((host, path)) = url.split_once(':') else { return false };
    begins(host)
        && host.contains('@')
        && !host.contains('/')
        && !path.starts_with('/')
        && !path.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://a.test/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n";

    fn judge(new: &str) -> Result<(), String> {
        judge_config_change(OLD, new, |branch| branch == "main")
    }

    #[test]
    fn tracking_remotes_and_names_pass() {
        for more in [
            "[branch \"x\"]\n\tremote = origin\n\tmerge = refs/heads/y\n",
            "[remote \"fork\"]\n\turl = git@host.test:me/x.git\n\tfetch = +refs/heads/*:refs/remotes/fork/*\n",
            "[user]\n\temail = a@b.test\n\tname = A B\n",
            "[pull]\n\trebase = true\n[maintenance]\n\tauto = false\n\tstrategy = incremental\n",
            "[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\trequired = true\n",
            "# a comment\n",
        ] {
            assert_eq!(judge(&format!("{OLD}{more}")), Ok(()), "{more}");
        }
    }

    #[test]
    fn programs_places_and_redirections_do_not() {
        for more in [
            "[core]\n\tsshCommand = evil\n",
            "[core]\n\thooksPath = .husky\n",
            "[remote \".\"]\n\turl = https://evil.test/x\n",
            "[remote \"a/../b\"]\n\turl = https://evil.test/x\n",
            "[core]\n\tfsmonitor = ./evil\n",
            "[core]\n\tworktree = /\n",
            "[include]\n\tpath = ../evil\n",
            "[includeIf \"gitdir:/\"]\n\tpath = evil\n",
            "[alias]\n\tst = !evil\n",
            "[filter \"x\"]\n\tclean = evil\n",
            "[filter \"lfs\"]\n\tclean = evil\n",
            "[diff \"x\"]\n\ttextconv = evil\n",
            "[merge \"x\"]\n\tdriver = evil\n",
            "[credential]\n\thelper = !evil\n",
            "[url \"https://evil.test/\"]\n\tinsteadOf = https://a.test/\n",
            "[http]\n\tproxy = http://evil.test\n",
            "[remote \"origin\"]\n\turl = https://evil.test/\n",
            "[remote \"origin\"]\n\tpushurl = https://evil.test/\n",
            "[remote \"x\"]\n\turl = ext::evil\n",
            "[remote \"x\"]\n\turl = file:///etc\n",
            "[remote \"x\"]\n\turl = /etc\n",
            "[remote \"x\"]\n\turl = ../y\n",
            "[remote \"x\"]\n\turl = -oProxyCommand=evil@h:x\n",
            "[remote \"x\"]\n\tvcs = evil\n",
            "[remote \"x\"]\n\tuploadpack = evil\n",
            "[remote \"x\"]\n\tfetch = +refs/heads/*:refs/heads/*\n",
            "[remote]\n\tpushDefault = x\n",
            "[branch \"main\"]\n\tremote = fork\n",
            "[branch \"main\"]\n\tpushRemote = fork\n",
            "[branch \"x\"]\n\tremote = https://evil.test/\n",
            "[branch \"x\"]\n\tmergeOptions = -s evil\n",
            "[gpg]\n\tprogram = evil\n",
            "[maintenance]\n\trepo = /x\n",
            "[unknown]\n\tsetting = 1\n",
            "no setting\n",
        ] {
            assert!(judge(&format!("{OLD}{more}")).is_err(), "{more}");
        }
        for changed in [
            OLD.replace("a.test", "evil.test"),
            OLD.replace("[remote \"origin\"]\n\turl = https://a.test/x.git\n", ""),
            OLD.replace("\tremote = origin\n", ""),
            OLD.replace("\tremote = origin\n", "\tremote = fork\n"),
            OLD.replace("bare = false", "bare = true"),
            String::new(),
        ] {
            assert!(judge(&changed).is_err(), "{changed}");
        }
    }

    #[test]
    fn an_upstream_moves_within_its_remote() {
        let other = OLD.replace("refs/heads/main", "refs/heads/other");
        assert_eq!(judge(&other), Ok(()));
        assert_eq!(judge(&OLD.replace("\tmerge = refs/heads/main\n", "")), Ok(()));
    }

    #[test]
    fn sparse_checkout_has_settings_of_its_own() {
        let judge = |new: &str| judge_worktree_config("", new);
        assert_eq!(judge("[core]\n\tsparseCheckout = true\n\tsparseCheckoutCone = true\n"), Ok(()));
        for refused in
            ["[core]\n\tworktree = /\n", "[core]\n\tfsmonitor = ./x\n", "[alias]\n\tst = !x\n"]
        {
            assert!(judge(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn submodules_come_from_places_and_run_nothing() {
        let listed = "[submodule \"lib\"]\n\tpath = lib\n\turl = https://a.test/lib.git\n";
        let judge = |new: &str| judge_submodule_list(listed, new);
        let more =
            |name: &str, value: &str| format!("{listed}[submodule \"b\"]\n\t{name} = {value}\n");
        for (name, value) in [
            ("path", "vendor/b"),
            ("url", "../b.git"),
            ("url", "git@host.test:b.git"),
            ("branch", "main"),
            ("update", "rebase"),
        ] {
            assert_eq!(judge(&more(name, value)), Ok(()), "{name} {value}");
        }
        for (name, value) in [
            ("url", "ext::sh -c evil"),
            ("url", "ext::evil"),
            ("url", "--upload-pack=evil"),
            ("url", "file:///etc"),
            ("path", "../b"),
            ("path", "/b"),
            ("path", ".git/../../b"),
            ("update", "!evil"),
            ("hooks", "x"),
        ] {
            assert!(judge(&more(name, value)).is_err(), "{name} {value}");
        }
        assert!(judge(&listed.replace("a.test", "evil.test")).is_err());
        assert!(judge(&format!("{listed}[core]\n\tfsmonitor = x\n")).is_err());
        assert_eq!(judge(""), Ok(()));
        let settings = "[submodule \"lib\"]\n\tactive = true\n\turl = ext::evil\n";
        assert!(judge_config_change("", settings, |_| true).is_err());
        assert_eq!(judge_config_change("", &settings.replace("ext::evil", "/b"), |_| true), Ok(()));
    }

    #[test]
    fn settings_that_pass_steer_no_program() {
        for name in HARMLESS {
            let (section, key) = name.split_once('.').unwrap();
            let text = format!("[{section}]\n\t{key} = true\n");
            assert_eq!(super::super::config::check_settings(&text).err(), None, "{name}");
        }
    }

    #[test]
    fn settings_of_a_removed_branch_go() {
        let gone = OLD.split("[branch").next().unwrap();
        assert!(judge(gone).is_err());
        assert_eq!(judge_config_change(OLD, gone, |_| false), Ok(()));
    }
}
