//! Finds paths of this machine's toolchains that no variable of a policy names: caches
//! moved by a tool's own configuration, a build directory outside the project, programs
//! in a directory of their own. `clash init` writes these paths into the policy.

use std::path::{Path, PathBuf};

use clash_policy::path::is_below;
use clash_policy::{Effect, PathPattern, PolicyPlaces, Sandbox};
use clash_sandbox::baseline;

use super::Ecosystem;

/// A path that the sandboxes of a toolchain need in addition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutsidePath {
    pub(crate) path: PathBuf,
    pub(crate) use_: PathUse,
    /// The file or variable that names it, for the user.
    pub(crate) why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathUse {
    /// Programs: the sandbox reads and executes them, and does not change them.
    Programs,
    /// Fetched or built files: the project's changes stay in a cache of its own.
    Cache,
}

/// A setting in a file of `key=value` lines.
struct PathSetting {
    ecosystem: &'static str,
    file: &'static str,
    key: &'static str,
    use_: PathUse,
}

/// Settings of tools that name a directory.
const PATH_SETTINGS: &[PathSetting] = &[
    PathSetting { ecosystem: "node", file: "$HOME/.npmrc", key: "cache", use_: PathUse::Cache },
    PathSetting { ecosystem: "node", file: "$HOME/.npmrc", key: "prefix", use_: PathUse::Programs },
    PathSetting { ecosystem: "node", file: "$HOME/.npmrc", key: "store-dir", use_: PathUse::Cache },
    PathSetting {
        ecosystem: "node",
        file: "$XDG_CONFIG_HOME/pnpm/rc",
        key: "store-dir",
        use_: PathUse::Cache,
    },
    PathSetting {
        ecosystem: "go",
        file: "$XDG_CONFIG_HOME/go/env",
        key: "GOMODCACHE",
        use_: PathUse::Cache,
    },
    PathSetting {
        ecosystem: "go",
        file: "$XDG_CONFIG_HOME/go/env",
        key: "GOCACHE",
        use_: PathUse::Cache,
    },
    PathSetting {
        ecosystem: "python",
        file: "$XDG_CONFIG_HOME/pip/pip.conf",
        key: "cache-dir",
        use_: PathUse::Cache,
    },
    PathSetting {
        ecosystem: "rust",
        file: "$CARGO_HOME/config.toml",
        key: "target-dir",
        use_: PathUse::Cache,
    },
];

/// Variables that name the build directory of a toolchain.
const BUILD_DIRS: &[(&str, &str)] = &[("rust", "CARGO_TARGET_DIR")];

/// The paths that a toolchain needs and its sandbox does not grant: from tools' settings,
/// from the environment (`said`) and from programs on the search path. Leaves out paths below
/// another one.
pub(crate) fn find_outside_paths(
    ecosystem: &Ecosystem,
    sandbox: &Sandbox,
    places: &PolicyPlaces,
    said: &dyn Fn(&str) -> Option<PathBuf>,
    search: &[PathBuf],
) -> Vec<OutsidePath> {
    let mut found = Vec::new();
    for setting in PATH_SETTINGS.iter().filter(|setting| setting.ecosystem == ecosystem.name) {
        if let Some(path) = setting.value(places) {
            found.push(OutsidePath { path, use_: setting.use_, why: setting.file.to_owned() });
        }
    }
    let dirs = BUILD_DIRS.iter().filter(|(name, _)| *name == ecosystem.name);
    found.extend(dirs.filter_map(|(_, variable)| {
        let why = format!("the environment's {variable}");
        Some(OutsidePath { path: said(variable)?, use_: PathUse::Cache, why })
    }));
    for program in ecosystem.programs {
        found.extend(installation_dirs(program, search).into_iter().map(|path| OutsidePath {
            path,
            use_: PathUse::Programs,
            why: format!("{program} is installed there"),
        }));
    }
    found.retain(|it| is_sensible(&it.path, places) && !is_granted(sandbox, places, it));
    let mut kept: Vec<OutsidePath> = Vec::new();
    for it in found {
        if kept.iter().all(|known| !is_below(&it.path, &known.path)) {
            kept.push(it);
        }
    }
    kept
}

impl PathSetting {
    /// The path that the file gives for the key, with variables filled in. `None` if the file
    /// or the key is missing.
    fn value(&self, places: &PolicyPlaces) -> Option<PathBuf> {
        let text = std::fs::read_to_string(places.expand(self.file).ok()?).ok()?;
        let value = text.lines().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == self.key).then(|| value.trim().trim_matches(['"', '\'']).to_owned())
        })?;
        let value = value.replace("${HOME}", "$HOME");
        places.expand(&value).ok()
    }
}

/// The directories of the first such program on the search path: the one there, and the one
/// that links lead to. Empty if there is none.
fn installation_dirs(program: &str, search: &[PathBuf]) -> Vec<PathBuf> {
    let Some(first) = search.iter().map(|dir| dir.join(program)).find(|path| path.is_file()) else {
        return Vec::new();
    };
    let real = first.canonicalize().ok();
    let mut prefixes: Vec<PathBuf> = [Some(first), real]
        .into_iter()
        .flatten()
        .filter_map(|path| installation_prefix(&path))
        .collect();
    prefixes.dedup();
    prefixes
}

/// `/x/node-20` for `/x/node-20/bin/node` if there is a `lib` beside `bin`. Otherwise only
/// the directory of the program: other files beside it may be secrets, for example the
/// tokens in `~/.cargo`.
fn installation_prefix(program: &Path) -> Option<PathBuf> {
    let dir = program.parent()?;
    let above = dir.parent().filter(|above| {
        let name = dir.file_name().and_then(|name| name.to_str());
        name == Some("shims") || (name == Some("bin") && above.join("lib").is_dir())
    });
    Some(above.unwrap_or(dir).to_path_buf())
}

/// False for the home and the directories above it, for directories that all programs
/// share, and for the project, whose own programs are no toolchain.
fn is_sensible(path: &Path, places: &PolicyPlaces) -> bool {
    let shared = [".local", ".config", ".cache"].map(|name| places.home.join(name));
    path.is_absolute()
        && path.components().count() > 2
        && !is_below(&places.home, path)
        && !shared.iter().any(|dir| dir == path)
        && !is_below(path, &places.project)
        && !is_below(path, &places.tmp)
}

/// True if the sandbox or the baseline grants the path already. A preset that grants parts of
/// a variable's directory counts as granting it: it has left out the others on purpose.
fn is_granted(sandbox: &Sandbox, places: &PolicyPlaces, it: &OutsidePath) -> bool {
    let system =
        baseline::BASELINE_ENTRIES.iter().any(|entry| is_below(&it.path, Path::new(entry.path)));
    let real = it.path.canonicalize().unwrap_or_else(|_| it.path.clone());
    let by_rule = sandbox.fs.iter().filter(|rule| rule.effect == Effect::Allow).any(|rule| {
        let PathPattern::Subpath { path, .. } = &rule.pattern else { return false };
        let place = path.split('/').next().unwrap_or(path);
        let place = if place == "$HOME" { path } else { place };
        [path.as_str(), place].into_iter().filter_map(|text| places.expand(text).ok()).any(
            |known| {
                let known_real = known.canonicalize().unwrap_or_else(|_| known.clone());
                is_below(&it.path, &known) || is_below(&real, &known_real)
            },
        )
    });
    system || by_rule
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ecosystems::find_ecosystem;
    use clash_policy::WriteTarget;
    use clash_policy::{FileCaps, FsRule, PolicySpan};

    fn found(
        name: &str,
        grants: &[&str],
        set_up: impl Fn(&Path),
        search: &[&str],
    ) -> Vec<(String, PathUse)> {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let home = base.join("home");
        std::fs::create_dir_all(home.join("app")).unwrap();
        set_up(&base);
        let places = PolicyPlaces::new(home.join("app"), home, "/tmp/none".into(), |_| None);
        let rule = |path: &&str| FsRule {
            pattern: PathPattern::Subpath { path: (*path).to_owned(), follow_worktrees: false },
            effect: Effect::Allow,
            caps: FileCaps::READ,
            writes: WriteTarget::InPlace,
            span: PolicySpan::default(),
        };
        let sandbox = Sandbox { fs: grants.iter().map(rule).collect(), ..Sandbox::named("s") };
        let search: Vec<PathBuf> = search.iter().map(|dir| base.join(dir)).collect();
        let said = |name: &str| (name == "CARGO_TARGET_DIR").then(|| base.join("out/target"));
        let found =
            find_outside_paths(find_ecosystem(name).unwrap(), &sandbox, &places, &said, &search);
        let shown =
            |it: OutsidePath| (it.path.strip_prefix(&base).unwrap().display().to_string(), it.use_);
        found.into_iter().map(shown).collect()
    }

    fn program(at: &Path) {
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::write(at, "").unwrap();
    }

    #[test]
    fn caches_moved_by_configuration_are_found() {
        let npmrc = |base: &Path| {
            let text =
                format!("cache={}/data/npm\nprefix=${{HOME}}/.npm-packages\n", base.display());
            std::fs::write(base.join("home/.npmrc"), text).unwrap();
        };
        let expected = [
            ("data/npm".to_owned(), PathUse::Cache),
            ("home/.npm-packages".to_owned(), PathUse::Programs),
        ];
        assert_eq!(found("node", &[], npmrc, &[]), expected);
        assert_eq!(found("node", &["$HOME/.npm-packages"], npmrc, &[]), expected[..1]);
    }

    #[test]
    fn a_build_directory_outside_the_project_is_found() {
        assert_eq!(found("rust", &[], |_| (), &[]), [("out/target".to_owned(), PathUse::Cache)]);
    }

    #[test]
    fn a_linked_program_brings_the_target_of_its_link() {
        let node = |base: &Path| {
            program(&base.join("opt-node/v20/bin/node"));
            std::fs::create_dir_all(base.join("opt-node/v20/lib")).unwrap();
            std::fs::create_dir_all(base.join("home/links/bin")).unwrap();
            let link = base.join("home/links/bin/node");
            std::os::unix::fs::symlink(base.join("opt-node/v20/bin/node"), link).unwrap();
        };
        let expected = [
            ("home/links/bin".to_owned(), PathUse::Programs),
            ("opt-node/v20".to_owned(), PathUse::Programs),
        ];
        assert_eq!(found("node", &[], node, &["home/links/bin"]), expected);
        assert_eq!(found("node", &["$HOME/links"], node, &["home/links/bin"]), expected[1..]);
    }

    #[test]
    fn neither_the_home_nor_the_project_is_a_toolchain() {
        let everywhere = |base: &Path| {
            program(&base.join("home/bin/go"));
            program(&base.join("home/app/bin/gofmt"));
            program(&base.join("home/.local/bin/golangci-lint"));
        };
        let search = ["home/bin", "home/app/bin", "home/.local/bin"];
        let expected =
            ["home/bin", "home/.local/bin"].map(|dir| (dir.to_owned(), PathUse::Programs));
        assert_eq!(found("go", &[], everywhere, &search), expected);
    }
}
