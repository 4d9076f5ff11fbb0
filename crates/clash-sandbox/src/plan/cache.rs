//! The caches of a project: their directories, and the variables that lead tools there.
//!
//! A rule with `cache()` lets a command read a cache that all projects share. The command's
//! writes go to a directory of this project. So code of one project cannot change files
//! that the user or another project runs later.
//!
//! In a room, the project's directory is mounted over the shared one (`linux/overlay.rs`).
//! Without a room, the tool's own variable names it, and the shared cache is read-only. A
//! tool without such a variable gets the shared cache read-only.
//!
//! The directory of a project is `projects/NAME` below clash's cache, and NAME is the
//! project's path with `%` for `/`. For example, `projects/%home%u%app/%home%u%.cargo%git`
//! belongs to `~/.cargo/git`. The user can remove it at any time.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use clash_policy::{FsRule, NetworkAccess, PolicyPlaces, Sandbox, WriteTarget};

use clash_policy::fnv::fnv_hash;

/// The name of the directory with the caches of all projects, below clash's own cache.
pub const PROJECTS: &str = "projects";

/// Below a project's directory: one directory for each variable, without a room.
pub(crate) const VARIABLES: &str = "variables";

/// A longer name is cut and gets a sum. File systems permit 255 bytes.
const MAX_NAME_BYTES: usize = 200;

/// The directory in `parent` that belongs to a path: its name is the path with `%` for `/`.
/// Different paths have different names. A long name is cut and gets a hash.
pub fn directory_of(parent: &Path, path: &Path) -> PathBuf {
    let mut name = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' => name.push(b'%'),
            b'%' => name.extend(b"=1"),
            b'=' => name.extend(b"=2"),
            other => name.push(*other),
        }
    }
    if name.len() > MAX_NAME_BYTES {
        let sum = fnv_hash(&name);
        name.truncate(MAX_NAME_BYTES);
        name.extend(format!("…{sum:016x}").bytes());
    }
    parent.join(OsString::from_vec(name))
}

/// The path to which a directory's name belongs: the reverse of [`directory_of`]. A long path
/// was cut, so its end is missing.
pub fn path_of(name: &OsStr) -> PathBuf {
    let mut path = Vec::new();
    let mut bytes = name.as_bytes().iter().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => path.push(b'/'),
            b'=' if bytes.next_if(|next| **next == b'1').is_some() => path.push(b'%'),
            b'=' if bytes.next_if(|next| **next == b'2').is_some() => path.push(b'='),
            other => path.push(*other),
        }
    }
    PathBuf::from(OsString::from_vec(path))
}

/// True if a rule of the sandbox writes to a cache of the project's own.
pub fn has_caches(sandbox: &Sandbox) -> bool {
    sandbox.fs.iter().any(is_cache)
}

/// True if changes below the rule's path stay in a cache of the project's own.
pub(crate) fn is_cache(rule: &FsRule) -> bool {
    rule.writes == WriteTarget::Project
}

/// A variable that leads a tool to the project's own cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheRedirect {
    pub variable: &'static str,
    /// Text before the path, for a variable that holds options, such as `MAVEN_OPTS`.
    pub option: &'static str,
    pub to: PathBuf,
    /// Files of the shared directory that the tool needs besides its cache. The launcher
    /// copies them.
    pub carried: Vec<PathBuf>,
}

/// How a tool finds a cache.
#[derive(Clone, Copy, Debug)]
struct KnownCache {
    /// The path as a rule writes it. A rule about a path below it counts as well.
    at: &'static str,
    variable: &'static str,
    option: &'static str,
    carried: &'static [&'static str],
    /// True if the tool needs downloaded content. Otherwise it can compute the content, as
    /// Go does with its build cache.
    fetched: bool,
}

/// An entry without options and carried files.
const fn known(at: &'static str, variable: &'static str, fetched: bool) -> KnownCache {
    KnownCache { at, variable, option: "", carried: &[], fetched }
}

/// A cache with downloaded content: without network, an empty one is useless.
const fn fetched(at: &'static str, variable: &'static str) -> KnownCache {
    known(at, variable, true)
}

/// A cache whose content the tool can compute anew.
const fn computed(at: &'static str, variable: &'static str) -> KnownCache {
    known(at, variable, false)
}

/// The caches that a variable can move. A tool without an entry has no such variable.
const KNOWN_CACHES: &[KnownCache] = &[
    KnownCache { carried: &["config.toml", "config"], ..fetched("$CARGO_HOME", "CARGO_HOME") },
    KnownCache { carried: &["config"], ..fetched("$HOME/.cabal", "CABAL_DIR") },
    KnownCache { option: "-Dmaven.repo.local=", ..fetched("$HOME/.m2/repository", "MAVEN_OPTS") },
    KnownCache { carried: &["config.yaml"], ..fetched("$STACK_ROOT", "STACK_ROOT") },
    fetched("$BUN_INSTALL/install/cache", "BUN_INSTALL_CACHE_DIR"),
    computed("$CCACHE_DIR", "CCACHE_DIR"),
    fetched("$COMPOSER_CACHE_DIR", "COMPOSER_CACHE_DIR"),
    fetched("$COREPACK_HOME", "COREPACK_HOME"),
    fetched("$COURSIER_CACHE", "COURSIER_CACHE"),
    fetched("$DENO_DIR", "DENO_DIR"),
    fetched("$GEM_HOME", "GEM_HOME"),
    computed("$GOCACHE", "GOCACHE"),
    fetched("$GOMODCACHE", "GOMODCACHE"),
    fetched("$GOPATH/pkg/sumdb", "GOPATH"),
    fetched("$GRADLE_USER_HOME", "GRADLE_USER_HOME"),
    computed("$HELM_CACHE_HOME", "HELM_CACHE_HOME"),
    fetched("$HEX_HOME", "HEX_HOME"),
    fetched("$HOME/.konan", "KONAN_DATA_DIR"),
    computed("$HOME/.kube/cache", "KUBECACHEDIR"),
    fetched("$HOME/.yarn/berry", "YARN_GLOBAL_FOLDER"),
    computed("$NPM_CONFIG_CACHE", "npm_config_cache"),
    fetched("$NUGET_PACKAGES", "NUGET_PACKAGES"),
    fetched("$PIP_CACHE_DIR", "PIP_CACHE_DIR"),
    fetched("$PLAYWRIGHT_BROWSERS_PATH", "PLAYWRIGHT_BROWSERS_PATH"),
    fetched("$PNPM_HOME/store", "npm_config_store_dir"),
    fetched("$POETRY_CACHE_DIR", "POETRY_CACHE_DIR"),
    computed("$SCCACHE_DIR", "SCCACHE_DIR"),
    fetched("$TF_PLUGIN_CACHE_DIR", "TF_PLUGIN_CACHE_DIR"),
    computed("$UV_CACHE_DIR", "UV_CACHE_DIR"),
    fetched("$XDG_CACHE_HOME/bazelisk", "BAZELISK_HOME"),
    computed("$XDG_CACHE_HOME/black", "BLACK_CACHE_DIR"),
    fetched("$XDG_CACHE_HOME/elixir_make", "ELIXIR_MAKE_CACHE_DIR"),
    computed("$XDG_CACHE_HOME/golangci-lint", "GOLANGCI_LINT_CACHE"),
    computed("$XDG_CACHE_HOME/nix", "NIX_CACHE_HOME"),
    fetched("$XDG_CACHE_HOME/node-gyp", "npm_config_devdir"),
    computed("$XDG_CACHE_HOME/pip-tools", "PIP_TOOLS_CACHE_DIR"),
    computed("$XDG_CACHE_HOME/pipenv", "PIPENV_CACHE_DIR"),
    fetched("$XDG_CACHE_HOME/pre-commit", "PRE_COMMIT_HOME"),
    computed("$XDG_CACHE_HOME/pylint", "PYLINTHOME"),
    fetched("$XDG_CACHE_HOME/rebar3", "REBAR_CACHE_DIR"),
    computed("$XDG_CACHE_HOME/rubocop_cache", "RUBOCOP_CACHE_ROOT"),
    computed("$XDG_CACHE_HOME/staticcheck", "STATICCHECK_CACHE"),
    fetched("$XDG_CACHE_HOME/vcpkg", "VCPKG_DEFAULT_BINARY_CACHE"),
    computed("$XDG_CACHE_HOME/virtualenv", "VIRTUALENV_OVERRIDE_APP_DATA"),
    computed("$XDG_DATA_HOME/NuGet", "NUGET_HTTP_CACHE_PATH"),
    fetched("$XDG_DATA_HOME/virtualenvs", "WORKON_HOME"),
    fetched("$YARN_CACHE_FOLDER", "YARN_CACHE_FOLDER"),
    fetched("$ZIG_GLOBAL_CACHE_DIR", "ZIG_GLOBAL_CACHE_DIR"),
];

/// The entry of the table for the rule's path or a directory above it, as the policy writes
/// it.
fn known_cache_of(rule: &FsRule) -> Option<&'static KnownCache> {
    let written = rule.pattern.fixed();
    KNOWN_CACHES.iter().find(|known| {
        let below = written.strip_prefix(known.at);
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// True if the tool could not fill an empty cache: its content is downloaded, and the sandbox
/// denies the network.
fn is_useless_when_empty(rule: &FsRule, sandbox: &Sandbox) -> bool {
    sandbox.net == NetworkAccess::Deny && known_cache_of(rule).is_some_and(|known| known.fetched)
}

/// True if a directory has no entries or is missing. One that cannot be read counts as not
/// empty.
pub(crate) fn is_empty_directory(dir: &Path) -> bool {
    match std::fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// True if a room need not mount a cache: the shared and the project's own are empty, and
/// nothing can fill them.
pub(crate) fn is_unused(rule: &FsRule, sandbox: &Sandbox, shared: &Path, own: &Path) -> bool {
    is_useless_when_empty(rule, sandbox)
        && is_empty_directory(shared)
        && is_empty_directory(&own.join("upper"))
}

/// The variable that leads a tool to the project's own cache. `None` if the tool has no such
/// variable, or if its options cannot hold the path (a space). `None` also without network,
/// if the content is downloaded and the project has no cache of its own yet: the tool then
/// reads the shared one.
pub(crate) fn find_redirect(
    rule: &FsRule,
    sandbox: &Sandbox,
    places: &PolicyPlaces,
    project: &Path,
) -> Option<CacheRedirect> {
    let KnownCache { at, variable, option, carried, .. } = known_cache_of(rule)?;
    let to = project.join(VARIABLES).join(variable);
    if is_useless_when_empty(rule, sandbox) && !to.exists() {
        return None;
    }
    // Tools split these options at spaces.
    let splits = !option.is_empty() && to.as_os_str().as_bytes().contains(&b' ');
    let shared = places.expand(at).ok().filter(|_| !splits)?;
    let carried = carried.iter().map(|name| shared.join(name)).collect();
    Some(CacheRedirect { variable, option, to, carried })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_name_stands_for_one_path() {
        let paths = ["/", "/home/u/app", "/a%b/c", "/a/%b", "/a%/b", "/a=/b", "/a=1", "/a%1", "/%"];
        let mut names = Vec::new();
        for path in paths {
            let dir = directory_of(Path::new("/c"), Path::new(path));
            assert_eq!(dir.parent(), Some(Path::new("/c")), "{path}");
            assert!(!names.contains(&dir), "{path}");
            assert_eq!(path_of(dir.file_name().unwrap()), Path::new(path));
            names.push(dir);
        }
        let name = directory_of(Path::new("/c"), Path::new("/home/u/app"));
        assert_eq!(name, Path::new("/c/%home%u%app"));
        assert_eq!(path_of(name.file_name().unwrap()), Path::new("/home/u/app"));
    }

    #[test]
    fn long_paths_have_names_that_fit_and_differ() {
        let long = |end: &str| PathBuf::from(format!("/{}/{end}", "x".repeat(300)));
        let [one, other] = ["a", "b"].map(|end| directory_of(Path::new("/c"), &long(end)));
        assert_ne!(one, other);
        assert!(one.file_name().unwrap().len() < 255);
    }

    #[test]
    fn every_variable_of_the_table_belongs_to_one_path() {
        let mut seen = Vec::new();
        for KnownCache { at, variable, .. } in KNOWN_CACHES {
            assert!(!seen.contains(variable), "{variable}");
            seen.push(variable);
            assert!(PolicyPlaces::imagined().expand(at).is_ok(), "{at}");
        }
    }
}
