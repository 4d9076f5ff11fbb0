//! Paths as policies write them: variables, lexical normalisation, and the question "is
//! this path below that one". This module does not touch the disk. Callers that need
//! real paths pass a [`LinkResolver`].

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::sandbox::ProtectSettings;

/// The directories that the variables of a policy stand for in one session. The binary
/// builds it once from the environment; every value is an absolute path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyPlaces {
    /// `$PWD`: the project root of the session. It never follows the agent's `cd`.
    pub project: PathBuf,
    pub home: PathBuf,
    pub tmp: PathBuf,
    /// Further variables by name without the dollar sign, for example `CARGO_HOME`.
    pub vars: Vec<(String, PathBuf)>,
}

/// Variables of policies besides `$PWD`, `$HOME` and `$TMPDIR`: the directories of
/// toolchains and desktops. If the environment does not set one, its documented default
/// is used: below the home, or below an earlier variable of this list.
pub const VARIABLE_DEFAULTS: &[(&str, &str)] = &[
    ("XDG_CACHE_HOME", ".cache"),
    ("XDG_CONFIG_HOME", ".config"),
    ("XDG_DATA_HOME", ".local/share"),
    ("XDG_STATE_HOME", ".local/state"),
    ("ASDF_DATA_DIR", ".asdf"),
    ("BUN_INSTALL", ".bun"),
    ("CARGO_HOME", ".cargo"),
    ("CCACHE_DIR", "$XDG_CACHE_HOME/ccache"),
    ("COMPOSER_CACHE_DIR", "$XDG_CACHE_HOME/composer"),
    ("COMPOSER_HOME", "$XDG_CONFIG_HOME/composer"),
    ("CONAN_HOME", ".conan2"),
    ("CONDA_PREFIX", ".conda"),
    ("COREPACK_HOME", "$XDG_CACHE_HOME/node/corepack"),
    ("COURSIER_CACHE", "$XDG_CACHE_HOME/coursier"),
    ("DENO_DIR", "$XDG_CACHE_HOME/deno"),
    ("DOTNET_ROOT", ".dotnet"),
    ("FNM_DIR", "$XDG_DATA_HOME/fnm"),
    ("GEM_HOME", ".gem"),
    ("GOPATH", "go"),
    ("GOCACHE", "$XDG_CACHE_HOME/go-build"),
    ("GOMODCACHE", "$GOPATH/pkg/mod"),
    ("GRADLE_USER_HOME", ".gradle"),
    ("HELM_CACHE_HOME", "$XDG_CACHE_HOME/helm"),
    ("HEX_HOME", ".hex"),
    ("JAVA_HOME", ".sdkman/candidates/java/current"),
    ("MISE_DATA_DIR", "$XDG_DATA_HOME/mise"),
    ("MIX_HOME", ".mix"),
    ("NPM_CONFIG_CACHE", ".npm"),
    ("NUGET_PACKAGES", ".nuget/packages"),
    ("NVM_DIR", ".nvm"),
    ("PIP_CACHE_DIR", "$XDG_CACHE_HOME/pip"),
    ("PLAYWRIGHT_BROWSERS_PATH", "$XDG_CACHE_HOME/ms-playwright"),
    ("PNPM_HOME", "$XDG_DATA_HOME/pnpm"),
    ("POETRY_CACHE_DIR", "$XDG_CACHE_HOME/pypoetry"),
    ("PYENV_ROOT", ".pyenv"),
    ("RBENV_ROOT", ".rbenv"),
    ("RUSTUP_HOME", ".rustup"),
    ("SCCACHE_DIR", "$XDG_CACHE_HOME/sccache"),
    ("SDKMAN_DIR", ".sdkman"),
    ("STACK_ROOT", ".stack"),
    ("TF_PLUGIN_CACHE_DIR", ".terraform.d/plugin-cache"),
    ("TRANSCRIPT_DIR", ".claude/projects"),
    ("UV_CACHE_DIR", "$XDG_CACHE_HOME/uv"),
    ("VOLTA_HOME", ".volta"),
    ("YARN_CACHE_FOLDER", "$XDG_CACHE_HOME/yarn"),
    ("ZIG_GLOBAL_CACHE_DIR", "$XDG_CACHE_HOME/zig"),
];

/// The names of all variables a path can start with.
pub fn variables() -> impl Iterator<Item = &'static str> {
    ["PWD", "HOME", "TMPDIR"].into_iter().chain(VARIABLE_DEFAULTS.iter().map(|(name, _)| *name))
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("unknown variable `${0}`")]
    UnknownVariable(String),
    #[error("`{0}` is not an absolute path and starts with no variable")]
    Relative(String),
    #[error("`{0}` leaves its starting point with `..`")]
    Escapes(String),
    #[error("project root `{0}` is the home directory or above it")]
    ProjectTooWide(String),
}

/// Resolves symlinks. The binary and the planner read the disk; tests use a table.
pub trait LinkResolver: std::fmt::Debug {
    /// The real path. Symlinks in the existing part are followed; the part that does
    /// not exist stays as written.
    fn real(&self, path: &Path) -> PathBuf;

    /// As [`Self::real`], without a copy if the path has no symlink.
    fn follow<'a>(&self, path: Cow<'a, Path>) -> Cow<'a, Path> {
        Cow::Owned(self.real(&path))
    }

    /// Why git, started in `dir`, may obey settings that a sandboxed command wrote;
    /// `None` if only the user's own files steer it. `subcommand` decides which
    /// hooks count.
    fn git_is_steered(&self, dir: &Path, project: &Path, subcommand: &str) -> Option<String>;

    /// The addresses of the remote that git uses in the project's repository: the remote that
    /// one of the words names, otherwise `origin` or the only one. Without an implementation
    /// there are none.
    fn remote_addresses(&self, _project: &Path, _words: &[&str]) -> Vec<String> {
        Vec::new()
    }

    /// Links with a name of the persistence list that lead to `path` or to a directory
    /// above it. Only links between `root` and `path` are searched; the list counts
    /// below `root`. Without an implementation there are none.
    fn aliases(
        &self,
        _path: &Path,
        _root: &Path,
        _protect: &ProtectSettings,
    ) -> Vec<ProtectedLink> {
        Vec::new()
    }
}

/// A link whose name is on the list of persistence paths, or begins an entry of it. The
/// target of the link is protected like the entry: `.vscode -> editor` protects
/// `editor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtectedLink {
    /// The link.
    pub at: PathBuf,
    /// The real path of its target, or another link on the way there.
    pub to: PathBuf,
}

/// A disk without symlinks.
#[derive(Clone, Copy, Debug)]
pub struct NoLinks;

impl LinkResolver for NoLinks {
    /// This disk has no repository.
    fn git_is_steered(&self, _: &Path, _: &Path, _: &str) -> Option<String> {
        None
    }

    fn real(&self, path: &Path) -> PathBuf {
        path.to_path_buf()
    }

    fn follow<'a>(&self, path: Cow<'a, Path>) -> Cow<'a, Path> {
        path
    }
}

impl PolicyPlaces {
    /// The directories of a project. `said` gives the value of a variable in the environment;
    /// variables without a value get their documented defaults.
    pub fn new(
        project: PathBuf,
        home: PathBuf,
        tmp: PathBuf,
        said: impl Fn(&str) -> Option<PathBuf>,
    ) -> Self {
        let mut places =
            Self { project, home, tmp, vars: Vec::with_capacity(VARIABLE_DEFAULTS.len()) };
        for (name, fallback) in VARIABLE_DEFAULTS {
            let documented = || {
                let below = fallback.strip_prefix('$').and_then(|rest| rest.split_once('/'));
                let base = below.and_then(|(name, rest)| Some((places.variable(name).ok()?, rest)));
                base.map_or_else(|| places.home.join(fallback), |(base, rest)| base.join(rest))
            };
            let path = said(name).unwrap_or_else(documented);
            places.vars.push(((*name).to_owned(), path));
        }
        places
    }

    /// The example machine of the documentation. Expectations and lints use it, so that
    /// they do not depend on the machine that compiles a policy.
    pub fn imagined() -> Self {
        let home = PathBuf::from("/home/user");
        Self::new(home.join("project"), home, "/tmp".into(), |_| None)
    }

    /// Fills in a leading variable (`$HOME/.cargo`, `~/.cargo`) and normalises. A relative
    /// path, an unknown variable and `..` that leads out of the variable are errors.
    pub fn expand(&self, text: &str) -> Result<PathBuf, PathError> {
        let (base, rest) = if let Some(named) = text.strip_prefix('$') {
            let end = named.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let (name, rest) = end.map_or((named, ""), |at| named.split_at(at));
            (self.variable(name)?, rest)
        } else if let Some(rest) =
            text.strip_prefix('~').filter(|r| r.is_empty() || r.starts_with('/'))
        {
            (self.home.as_path(), rest)
        } else if text.starts_with('/') {
            (Path::new("/"), text)
        } else {
            return Err(PathError::Relative(text.to_owned()));
        };
        let rest = rest.trim_start_matches('/');
        // `join("")` would append a slash.
        let path = if rest.is_empty() { base.to_path_buf() } else { base.join(rest) };
        let clean = normalise(&path);
        if !base.as_os_str().is_empty() && base != Path::new("/") && !is_below(&clean, base) {
            return Err(PathError::Escapes(text.to_owned()));
        }
        Ok(clean)
    }

    /// As [`Self::expand`], without a copy if the path has no variable. The rules of a plan
    /// have none, and the monitor checks them at every call.
    pub(crate) fn placed<'a>(&self, text: &'a str) -> Result<Cow<'a, Path>, PathError> {
        let path = Path::new(text);
        if is_normal(path) { Ok(Cow::Borrowed(path)) } else { self.expand(text).map(Cow::Owned) }
    }

    /// The directory of a variable. `$PWD` is an error if the project holds the home.
    fn variable(&self, name: &str) -> Result<&Path, PathError> {
        match name {
            "PWD" if self.project_too_wide() => {
                Err(PathError::ProjectTooWide(self.project.display().to_string()))
            }
            "PWD" => Ok(&self.project),
            "HOME" => Ok(&self.home),
            "TMPDIR" => Ok(&self.tmp),
            _ => self
                .vars
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, path)| path.as_path())
                .ok_or_else(|| PathError::UnknownVariable(name.to_owned())),
        }
    }

    /// True if the project is the home or a directory above it. A session there would give
    /// the whole home to every sandbox that grants `$PWD`.
    fn project_too_wide(&self) -> bool {
        is_below(&self.home, &self.project)
    }
}

/// Removes `.`, `..` and doubled slashes without asking the disk: `a/..` disappears even if
/// `a` is a link. `..` at the start disappears too.
pub fn normalise(path: &Path) -> PathBuf {
    if is_normal(path) {
        return path.to_path_buf();
    }
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                if !matches!(out.components().next_back(), None | Some(Component::RootDir)) {
                    out.pop();
                }
            }
            other => out.push(other),
        }
    }
    out
}

/// True if a path is absolute and has no `.`, `..`, doubled or final slash. The root `/`
/// ends in a slash, so it is not normal.
pub fn is_normal(path: &Path) -> bool {
    let mut parts = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
    parts.next() == Some(b"") && parts.all(|part| !matches!(part, b"" | b"." | b".."))
}

/// True if `path` is `base` or lies below it. Names are compared whole, so `/proj-evil` is
/// not below `/proj`. `.` and extra slashes are ignored, `..` is a name like any other. The
/// same as [`Path::starts_with`] for absolute paths, but faster: a plan asks some thousand
/// times.
pub fn is_below(path: &Path, base: &Path) -> bool {
    let (bytes, above) = (path.as_os_str().as_bytes(), base.as_os_str().as_bytes());
    let same = bytes.iter().zip(above).take_while(|(one, other)| one == other).count();
    let unclear = |text: &[u8]| may_be_redundant(text, same);
    match (bytes.get(same), above.get(same)) {
        (Some(b'/') | None, None) => true,
        // The names differ.
        _ if !unclear(bytes) && !unclear(above) => false,
        _ => by_names(path, base),
    }
}

/// True if the byte at `at` may belong to an extra separator or to `.`, which are no
/// part of a name.
fn may_be_redundant(text: &[u8], at: usize) -> bool {
    let begins = |end: usize| matches!(text.get(..end), Some([] | [.., b'/']));
    let dot =
        |at: usize| text.get(at) == Some(&b'.') && matches!(text.get(at + 1), None | Some(b'/'));
    match text.get(at) {
        None => begins(at) || at > 0 && begins(at - 1) && dot(at - 1),
        Some(b'/') => {
            begins(at)
                || at > 0 && begins(at - 1) && dot(at - 1)
                || matches!(text.get(at + 1), None | Some(b'/'))
                || dot(at + 1)
        }
        Some(_) => begins(at) && dot(at),
    }
}

/// The slow form of [`is_below`]. Every path is below an empty base.
fn by_names(path: &Path, base: &Path) -> bool {
    let mut names = names(path);
    (path.has_root() == base.has_root() || base.as_os_str().is_empty())
        && self::names(base).all(|name| names.next() == Some(name))
}

/// The names of a path without `.` and empty ones.
fn names(path: &Path) -> impl Iterator<Item = &[u8]> {
    let parts = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
    parts.filter(|part| !matches!(*part, b"" | b"."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> PolicyPlaces {
        PolicyPlaces {
            project: "/home/u/app".into(),
            home: "/home/u".into(),
            tmp: "/tmp".into(),
            vars: vec![("CARGO_HOME".into(), "/home/u/.cargo".into())],
        }
    }

    #[test]
    fn variables_are_filled_in() {
        let p = places();
        assert_eq!(p.expand("$HOME/.cargo"), Ok("/home/u/.cargo".into()));
        assert_eq!(p.expand("~/.cargo/"), Ok("/home/u/.cargo".into()));
        assert_eq!(p.expand("$PWD"), Ok("/home/u/app".into()));
        assert_eq!(p.expand("$CARGO_HOME/bin"), Ok("/home/u/.cargo/bin".into()));
        assert_eq!(p.expand("/etc//hosts"), Ok("/etc/hosts".into()));
    }

    #[test]
    fn a_place_follows_the_variable_it_is_documented_below() {
        let moved = |name: &str| (name == "XDG_CACHE_HOME").then(|| "/data/cache".into());
        let p = PolicyPlaces::new("/home/u/app".into(), "/home/u".into(), "/tmp".into(), moved);
        assert_eq!(p.expand("$GOCACHE"), Ok("/data/cache/go-build".into()));
        assert_eq!(p.expand("$GOMODCACHE"), Ok("/home/u/go/pkg/mod".into()));
        assert_eq!(p.expand("$CARGO_HOME"), Ok("/home/u/.cargo".into()));
        assert!(p.vars.iter().all(|(_, path)| !path.to_string_lossy().contains('$')), "{p:?}");
    }

    #[test]
    fn a_path_that_cannot_be_expanded_is_an_error() {
        let p = places();
        assert_eq!(p.expand("$NOPE/x"), Err(PathError::UnknownVariable("NOPE".into())));
        assert_eq!(p.expand("src"), Err(PathError::Relative("src".into())));
        assert_eq!(p.expand("$PWD/../other"), Err(PathError::Escapes("$PWD/../other".into())));
    }

    #[test]
    fn a_project_root_that_holds_the_home_is_refused() {
        for root in ["/", "/home", "/home/u"] {
            let p = PolicyPlaces { project: root.into(), ..places() };
            assert!(matches!(p.expand("$PWD"), Err(PathError::ProjectTooWide(_))), "{root}");
        }
    }

    #[test]
    fn is_below_compares_whole_names() {
        assert!(is_below(Path::new("/proj/a"), Path::new("/proj")));
        assert!(!is_below(Path::new("/proj-evil/a"), Path::new("/proj")));
        let paths = [
            "/", "/a", "/a/", "/a/b", "/a//b", "/a/./b/.", "/a/../b", "/ab", "/a/b/c", "a", "a/b",
            "",
        ];
        for (path, base) in paths.iter().flat_map(|a| paths.iter().map(move |b| (a, b))) {
            let expected = Path::new(path).starts_with(base);
            assert_eq!(is_below(path.as_ref(), base.as_ref()), expected, "{path} below {base}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(20_000))]

        #[test]
        fn is_below_agrees_with_the_standard_library(path in "/?[/.ab]{0,7}", base in "/?[/.ab]{0,5}") {
            let expected = by_names(path.as_ref(), base.as_ref());
            proptest::prop_assert_eq!(is_below(path.as_ref(), base.as_ref()), expected);
            if path.starts_with('/') && base.starts_with('/') {
                proptest::prop_assert_eq!(Path::new(&path).starts_with(&base), expected);
            }
        }
    }

    #[test]
    fn parent_of_the_root_is_the_root() {
        assert_eq!(normalise(Path::new("/../../etc/./x")), PathBuf::from("/etc/x"));
    }
}
