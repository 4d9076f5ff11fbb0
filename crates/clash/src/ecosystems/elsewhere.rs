//! What the toolchains of this machine keep where no variable of a policy points:
//! caches moved in a tool's own configuration, a build directory outside the
//! project, programs installed in a place of their own. `clash init` writes these
//! paths into the policy as they are.

use std::path::{Path, PathBuf};

use clash_policy::path::is_below;
use clash_policy::{Effect, PathPattern, Places, Sandbox};
use clash_sandbox::baseline;

use super::Ecosystem;

/// A path the sandboxes of a toolchain need besides their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    pub(crate) path: PathBuf,
    pub(crate) use_: Use,
    /// Who says so, for people.
    pub(crate) why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Programs: read and executed, never changed.
    Programs,
    /// What was fetched or built: the project's changes stay in a cache of its own.
    Cache,
}

/// A setting in a file of `key=value` lines.
struct Setting {
    ecosystem: &'static str,
    file: &'static str,
    key: &'static str,
    use_: Use,
}

const SETTINGS: &[Setting] = &[
    Setting { ecosystem: "node", file: "$HOME/.npmrc", key: "cache", use_: Use::Cache },
    Setting { ecosystem: "node", file: "$HOME/.npmrc", key: "prefix", use_: Use::Programs },
    Setting { ecosystem: "node", file: "$HOME/.npmrc", key: "store-dir", use_: Use::Cache },
    Setting {
        ecosystem: "node",
        file: "$XDG_CONFIG_HOME/pnpm/rc",
        key: "store-dir",
        use_: Use::Cache,
    },
    Setting {
        ecosystem: "go",
        file: "$XDG_CONFIG_HOME/go/env",
        key: "GOMODCACHE",
        use_: Use::Cache,
    },
    Setting { ecosystem: "go", file: "$XDG_CONFIG_HOME/go/env", key: "GOCACHE", use_: Use::Cache },
    Setting {
        ecosystem: "python",
        file: "$XDG_CONFIG_HOME/pip/pip.conf",
        key: "cache-dir",
        use_: Use::Cache,
    },
    Setting {
        ecosystem: "rust",
        file: "$CARGO_HOME/config.toml",
        key: "target-dir",
        use_: Use::Cache,
    },
];

/// Variables that name a directory for one toolchain's output.
const BUILD_DIRS: &[(&str, &str)] = &[("rust", "CARGO_TARGET_DIR")];

/// What a toolchain needs besides what its sandbox grants.
pub(crate) fn elsewhere(
    ecosystem: &Ecosystem,
    sandbox: &Sandbox,
    places: &Places,
    said: &dyn Fn(&str) -> Option<PathBuf>,
    search: &[PathBuf],
) -> Vec<Elsewhere> {
    let mut found = Vec::new();
    for setting in SETTINGS.iter().filter(|setting| setting.ecosystem == ecosystem.name) {
        if let Some(path) = setting.value(places) {
            found.push(Elsewhere { path, use_: setting.use_, why: setting.file.to_owned() });
        }
    }
    let dirs = BUILD_DIRS.iter().filter(|(name, _)| *name == ecosystem.name);
    found.extend(dirs.filter_map(|(_, variable)| {
        let why = format!("the environment's {variable}");
        Some(Elsewhere { path: said(variable)?, use_: Use::Cache, why })
    }));
    for program in ecosystem.programs {
        found.extend(installed(program, search).into_iter().map(|path| Elsewhere {
            path,
            use_: Use::Programs,
            why: format!("{program} is installed there"),
        }));
    }
    found.retain(|it| is_sensible(&it.path, places) && !granted(sandbox, places, it));
    let mut kept: Vec<Elsewhere> = Vec::new();
    for it in found {
        if kept.iter().all(|known| !is_below(&it.path, &known.path)) {
            kept.push(it);
        }
    }
    kept
}

impl Setting {
    fn value(&self, places: &Places) -> Option<PathBuf> {
        let text = std::fs::read_to_string(places.expand(self.file).ok()?).ok()?;
        let value = text.lines().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == self.key).then(|| value.trim().trim_matches(['"', '\'']).to_owned())
        })?;
        let value = value.replace("${HOME}", "$HOME");
        places.expand(&value).ok()
    }
}

/// The directories a program lies in: where the search finds it, and where links
/// lead from there.
fn installed(program: &str, search: &[PathBuf]) -> Vec<PathBuf> {
    let Some(first) = search.iter().map(|dir| dir.join(program)).find(|path| path.is_file()) else {
        return Vec::new();
    };
    let real = first.canonicalize().ok();
    let mut prefixes: Vec<PathBuf> =
        [Some(first), real].into_iter().flatten().filter_map(|path| prefix(&path)).collect();
    prefixes.dedup();
    prefixes
}

/// `/x/node-20` for `/x/node-20/bin/node` where that is an installation of its own,
/// which has a `lib` beside its `bin`; else only the program's own directory: what
/// lies beside it may be anything, `~/.cargo` holds tokens.
fn prefix(program: &Path) -> Option<PathBuf> {
    let dir = program.parent()?;
    let above = dir.parent().filter(|above| {
        let name = dir.file_name().and_then(|name| name.to_str());
        name == Some("shims") || (name == Some("bin") && above.join("lib").is_dir())
    });
    Some(above.unwrap_or(dir).to_path_buf())
}

/// Never the home or what holds it, a directory every program shares, or the
/// project, whose own programs are no toolchain.
fn is_sensible(path: &Path, places: &Places) -> bool {
    let shared = [".local", ".config", ".cache"].map(|name| places.home.join(name));
    path.is_absolute()
        && path.components().count() > 2
        && !is_below(&places.home, path)
        && !shared.iter().any(|dir| dir == path)
        && !is_below(path, &places.project)
        && !is_below(path, &places.tmp)
}

/// Whether the sandbox, or what every sandbox has, grants it already.
fn granted(sandbox: &Sandbox, places: &Places, it: &Elsewhere) -> bool {
    let system =
        baseline::BASELINE_ENTRIES.iter().any(|entry| is_below(&it.path, Path::new(entry.path)));
    let real = it.path.canonicalize().unwrap_or_else(|_| it.path.clone());
    let by_rule = sandbox.fs.iter().filter(|rule| rule.effect == Effect::Allow).any(|rule| {
        let PathPattern::Subpath { path, .. } = &rule.pattern else { return false };
        // A preset that grants parts of a place has drawn its line there.
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
    use crate::ecosystems::named;
    use clash_policy::Writes;
    use clash_policy::{Caps, FsRule, Span};

    fn found(
        name: &str,
        grants: &[&str],
        set_up: impl Fn(&Path),
        search: &[&str],
    ) -> Vec<(String, Use)> {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let home = base.join("home");
        std::fs::create_dir_all(home.join("app")).unwrap();
        set_up(&base);
        let places = Places::of(home.join("app"), home, "/tmp/none".into(), |_| None);
        let rule = |path: &&str| FsRule {
            pattern: PathPattern::Subpath { path: (*path).to_owned(), follow_worktrees: false },
            effect: Effect::Allow,
            caps: Caps::READ,
            writes: Writes::InPlace,
            span: Span::default(),
        };
        let sandbox = Sandbox { fs: grants.iter().map(rule).collect(), ..Sandbox::named("s") };
        let search: Vec<PathBuf> = search.iter().map(|dir| base.join(dir)).collect();
        let said = |name: &str| (name == "CARGO_TARGET_DIR").then(|| base.join("out/target"));
        let found = elsewhere(named(name).unwrap(), &sandbox, &places, &said, &search);
        let shown =
            |it: Elsewhere| (it.path.strip_prefix(&base).unwrap().display().to_string(), it.use_);
        found.into_iter().map(shown).collect()
    }

    fn program(at: &Path) {
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::write(at, "").unwrap();
    }

    #[test]
    fn what_a_tool_s_own_configuration_moved_is_found() {
        let npmrc = |base: &Path| {
            let text =
                format!("cache={}/data/npm\nprefix=${{HOME}}/.npm-packages\n", base.display());
            std::fs::write(base.join("home/.npmrc"), text).unwrap();
        };
        let expected =
            [("data/npm".to_owned(), Use::Cache), ("home/.npm-packages".to_owned(), Use::Programs)];
        assert_eq!(found("node", &[], npmrc, &[]), expected);
        assert_eq!(found("node", &["$HOME/.npm-packages"], npmrc, &[]), expected[..1]);
    }

    #[test]
    fn a_build_directory_outside_the_project_is_found() {
        assert_eq!(found("rust", &[], |_| (), &[]), [("out/target".to_owned(), Use::Cache)]);
    }

    #[test]
    fn a_program_in_a_place_of_its_own_brings_what_links_lead_to() {
        let node = |base: &Path| {
            program(&base.join("opt-node/v20/bin/node"));
            std::fs::create_dir_all(base.join("opt-node/v20/lib")).unwrap();
            std::fs::create_dir_all(base.join("home/links/bin")).unwrap();
            let link = base.join("home/links/bin/node");
            std::os::unix::fs::symlink(base.join("opt-node/v20/bin/node"), link).unwrap();
        };
        let expected = [
            ("home/links/bin".to_owned(), Use::Programs),
            ("opt-node/v20".to_owned(), Use::Programs),
        ];
        assert_eq!(found("node", &[], node, &["home/links/bin"]), expected);
        assert_eq!(found("node", &["$HOME/links"], node, &["home/links/bin"]), expected[1..]);
    }

    #[test]
    fn neither_the_home_nor_the_project_is_ever_a_toolchain() {
        let everywhere = |base: &Path| {
            program(&base.join("home/bin/go"));
            program(&base.join("home/app/bin/gofmt"));
            program(&base.join("home/.local/bin/golangci-lint"));
        };
        let search = ["home/bin", "home/app/bin", "home/.local/bin"];
        let expected = ["home/bin", "home/.local/bin"].map(|dir| (dir.to_owned(), Use::Programs));
        assert_eq!(found("go", &[], everywhere, &search), expected);
    }
}
