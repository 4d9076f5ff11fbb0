//! Finds the repository that git obeys in a directory, and whether an agent can have
//! written its settings.
//!
//! No record says which process made a repository: an earlier session may have run `git
//! init` in the present project. So the content decides. A repository is harmless if its
//! settings name no program and none of its hooks runs for the command. Its settings cannot
//! change between this check and the command: every sandbox protects them
//! (`clash_policy::protect`).
//!
//! A nested repository below the project is never harmless: the command that makes a
//! repository may write its settings as long as it runs.

mod bare;
mod config;
mod config_change;
mod hooks;
mod index;

use std::fs;
use std::path::{Path, PathBuf};

use clash_policy::path::is_below;

use crate::worktree;

pub use bare::completes_bare_repository;
pub(crate) use bare::is_complete;
pub(crate) use config_change::{judge_config_change, judge_submodule_list, judge_worktree_config};

/// A longer file is not read.
const MAX_GIT_FILE_BYTES: u64 = 1 << 20;

/// The reason why git, started in `dir`, may run code that an agent chose; `None` if the
/// nearest repository is harmless or there is none. Both paths are real paths. A directory
/// outside the project, a nested repository and an unreadable file all count as steering.
pub(crate) fn find_steering(dir: &Path, project: &Path, subcommand: &str) -> Option<String> {
    if !is_below(dir, project) {
        return Some(format!("it runs in {}, outside the project", dir.display()));
    }
    for place in dir.ancestors() {
        let below = place != project && is_below(place, project);
        let (link, here) = (place.join(".git"), place.display());
        let meta = fs::symlink_metadata(&link);
        // Git uses it if `.git` is not valid.
        let found = if is_bare(place) {
            if is_below(place, project) {
                return Some(format!("{here} can be taken for a repository without a work tree"));
            }
            GitRepository { settings: place.to_path_buf(), own: place.to_path_buf() }
        } else if meta.as_ref().is_ok_and(|meta| meta.is_file()) {
            match linked_repository(place, project) {
                Some(found) => found,
                None => return Some(format!("{here}/.git leads to another repository")),
            }
        } else if meta.as_ref().is_ok_and(|meta| meta.is_dir() && !below) {
            GitRepository { settings: link.clone(), own: link }
        } else if meta.is_ok() {
            return Some(format!("{here} is a repository of its own"));
        } else {
            continue;
        };
        return found.find_steering(place, subcommand);
    }
    None
}

/// The addresses of the remote that git uses in the project: the remote that one of the words
/// names, otherwise `origin` or the only one. Empty if the settings cannot be read.
pub(crate) fn remote_addresses(project: &Path, words: &[&str]) -> Vec<String> {
    let linked = worktree::linked(project).map(|(_, common)| common);
    let settings = linked.unwrap_or_else(|| project.join(".git")).join("config");
    let text = read(&settings).unwrap_or_default();
    let settings = config::parse_settings(&text).unwrap_or_default();
    let is_address =
        |it: &&config::GitSetting| it.section == "remote" && matches!(&*it.name, "url" | "pushurl");
    let remotes: Vec<(&str, &str)> = settings
        .iter()
        .filter(is_address)
        .filter_map(|it| Some((it.middle.as_deref()?, it.value.as_str())))
        .collect();
    let named = |name: &str| remotes.iter().any(|(remote, _)| *remote == name);
    let chosen = words.iter().copied().find(|word| named(word));
    let only = remotes.first().map(|(name, _)| *name);
    let only = only.filter(|only| remotes.iter().all(|(name, _)| name == only));
    let chosen = chosen.or(named("origin").then_some("origin")).or(only);
    let of_chosen = remotes.iter().filter(|(name, _)| Some(*name) == chosen);
    of_chosen.map(|(_, address)| (*address).to_owned()).collect()
}

/// True if git would take the directory for a repository without a work tree.
fn is_bare(dir: &Path) -> bool {
    is_complete(|name| fs::symlink_metadata(dir.join(name)).is_ok())
}

/// A repository that git would use.
struct GitRepository {
    /// The directory with `config` and `hooks`.
    settings: PathBuf,
    /// The directory of this worktree.
    own: PathBuf,
}

/// The repository of a linked worktree, if both sides agree. `None` for anything else with a
/// `.git` file, for example a submodule, and for a worktree below the project that does not
/// belong to the project's own repository.
fn linked_repository(place: &Path, project: &Path) -> Option<GitRepository> {
    let (own, common) = worktree::linked(place)?;
    if place != project && is_below(place, project) && common != project.join(".git") {
        return None;
    }
    Some(GitRepository { settings: common, own })
}

impl GitRepository {
    /// The reason why the settings, the hooks or a submodule of this repository may run code.
    /// A missing settings file is harmless; one that cannot be read is not.
    fn find_steering(&self, place: &Path, subcommand: &str) -> Option<String> {
        let mut hooks = self.settings.join("hooks");
        for file in [self.settings.join("config"), self.own.join("config.worktree")] {
            let text = match read(&file) {
                Ok(text) => text,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(_) => return Some(format!("{} cannot be read", file.display())),
            };
            match config::check_settings(&text) {
                Ok(None) => {}
                Ok(Some(named)) if Path::new(&named).starts_with("~") => {
                    return Some(format!("core.hookspath in {} is set", file.display()));
                }
                Ok(Some(named)) => hooks = place.join(named),
                Err(setting) => {
                    return Some(format!("{setting} in {} can name a program", file.display()));
                }
            }
        }
        hooks::find_active_hook(&hooks, subcommand)
            .or_else(|| self.find_steering_submodule(place, subcommand))
    }

    /// The reason why a submodule may run code, for commands that enter submodules: they obey
    /// the settings of each. Also if the index cannot be read, or a submodule has its
    /// repository outside `modules`. `None` for other commands and for submodules without a
    /// `.git`.
    fn find_steering_submodule(&self, place: &Path, subcommand: &str) -> Option<String> {
        let goes_there = matches!(subcommand, "fetch" | "pull" | "submodule" | "remote");
        if !goes_there {
            return None;
        }
        let settings = read(&self.settings.join("config")).unwrap_or_default();
        let formats = config::values(&settings, "extensions", "objectformat");
        let hash_bytes = if formats.iter().any(|format| format != "sha1") { 32 } else { 20 };
        let Some(links) = index::gitlinks(&self.own, hash_bytes) else {
            return Some(format!("{} cannot be read", self.own.join("index").display()));
        };
        for path in links {
            let module = place.join(&path);
            let path = path.display();
            let link = module.join(".git");
            let Ok(meta) = fs::symlink_metadata(&link) else { continue };
            let own = meta.is_file().then(|| worktree::submodule(&module)).flatten();
            let Some(own) = own.filter(|own| is_below(own, &self.settings.join("modules"))) else {
                return Some(format!("{} is a repository of its own", module.display()));
            };
            let settings = read(&own.join("config")).unwrap_or_else(|_| "?".to_owned());
            if let Err(setting) = config::check_submodule(&settings) {
                return Some(format!("{setting} of the submodule {path} can name a program"));
            }
            if let Some(hook) = hooks::find_active_hook(&own.join("hooks"), "pull") {
                return Some(hook);
            }
        }
        None
    }
}

/// The text of a regular file of at most [`MAX_GIT_FILE_BYTES`]. A link is an error.
fn read(path: &Path) -> std::io::Result<String> {
    let meta = fs::symlink_metadata(path)?;
    if !meta.is_file() || meta.len() > MAX_GIT_FILE_BYTES {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    fs::read_to_string(path)
}

#[cfg(test)]
mod tests;
