//! Finds the hosts from which a project's toolchains fetch. Their lock files, caches and
//! configuration name these hosts, so mirrors are found and no registry is assumed. Only
//! the host names are read: not the user names, passwords and paths of an address, and in
//! files with tokens only the lines about fetching.
//!
//! The files of the user and of the machine count. An agent writes the project's files, and a
//! repository may come from a stranger, so the hosts that only they name are proposals.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clash_policy::PolicyPlaces;

use super::DetectedToolchain;
use super::address::{hosts_in_line, ssh_aliases};
use super::defaults::default_hosts;

/// A host and the file that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FetchHost {
    pub(crate) ecosystem: &'static str,
    /// As a policy writes it: `npm.example`, `npm.example:8443`, `localhost:4873`.
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) origin: HostOrigin,
}

/// The owner of the file that names a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HostOrigin {
    /// The user's or the machine's configuration, which suffices for fetching.
    Registry,
    /// The same owners, but further hosts are usually needed.
    Machine,
    /// The remotes of the project's own repository. No clone brings them.
    Remote,
    /// Files of the project. A stranger or an agent may have written them.
    Project,
}

impl HostOrigin {
    /// The word in `--json`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Registry | Self::Machine => "machine",
            Self::Remote => "remote",
            Self::Project => "project",
        }
    }
}

/// The files in which a toolchain names its hosts.
struct HostSource {
    ecosystem: &'static str,
    /// Files beside those that show the toolchain.
    beside: &'static [&'static str],
    /// Files of the user and of the machine, written like paths in a policy.
    of_user: &'static [&'static str],
    /// Words of the lines to read. Without words, all lines are read.
    lines: &'static [&'static str],
    /// The user's files name all hosts for fetching if one of these words is in them; also
    /// if the list is empty.
    suffices_with: &'static [&'static str],
}

/// A word that no file contains: the hosts never suffice.
const NEVER: &[&str] = &["\0"];

const HOST_SOURCES: &[HostSource] = &[
    HostSource {
        ecosystem: "rust",
        beside: &["Cargo.lock", ".cargo/config.toml"],
        of_user: &[
            "$CARGO_HOME/config.toml",
            "$CARGO_HOME/config",
            "$CARGO_HOME/registry/index/*/config.json",
        ],
        lines: &["source", "registry", "index", "git", "\"dl\""],
        suffices_with: &[],
    },
    HostSource {
        ecosystem: "go",
        beside: &[],
        of_user: &["$XDG_CONFIG_HOME/go/env"],
        lines: &["GOPROXY", "GOSUMDB"],
        suffices_with: &[],
    },
    HostSource {
        ecosystem: "python",
        beside: &[
            "uv.lock",
            "poetry.lock",
            "Pipfile",
            "pyproject.toml",
            "requirements.txt",
            "uv.toml",
        ],
        of_user: &[
            "$XDG_CONFIG_HOME/pip/pip.conf",
            "$HOME/.pip/pip.conf",
            "/etc/pip.conf",
            "$XDG_CONFIG_HOME/uv/uv.toml",
        ],
        lines: &["index", "registry", "source", "find-links", "url ="],
        suffices_with: &[],
    },
    HostSource {
        ecosystem: "node",
        beside: &[
            "package-lock.json",
            "pnpm-lock.yaml",
            "yarn.lock",
            "bun.lock",
            ".npmrc",
            ".yarnrc.yml",
        ],
        of_user: &[
            "$HOME/.npmrc",
            "$HOME/.yarnrc.yml",
            "$XDG_CONFIG_HOME/pnpm/rc",
            "$HOME/.bunfig.toml",
            "/etc/npmrc",
        ],
        lines: &["resolved", "registry", "Registry", "tarball"],
        suffices_with: &[],
    },
    HostSource {
        ecosystem: "ruby",
        beside: &["Gemfile", "Gemfile.lock", ".bundle/config"],
        of_user: &["$HOME/.bundle/config"],
        lines: &["remote:", "source", "MIRROR"],
        suffices_with: &[],
    },
    HostSource {
        ecosystem: "java",
        beside: &[
            "pom.xml",
            "build.gradle",
            "build.gradle.kts",
            "settings.gradle",
            "settings.gradle.kts",
            "gradle/wrapper/gradle-wrapper.properties",
        ],
        of_user: &[
            "$HOME/.m2/settings.xml",
            "$GRADLE_USER_HOME/init.gradle",
            "/etc/maven/settings.xml",
        ],
        lines: &["<url>", "url =", "url(", "uri(", "distributionUrl"],
        suffices_with: &["<mirrorOf>"],
    },
    HostSource {
        ecosystem: "dotnet",
        beside: &["nuget.config", "NuGet.Config"],
        of_user: &["$HOME/.nuget/NuGet/NuGet.Config", "$XDG_CONFIG_HOME/NuGet/NuGet.Config"],
        lines: &["<add "],
        suffices_with: &[],
    },
    HostSource {
        ecosystem: "php",
        beside: &["composer.json", "composer.lock"],
        of_user: &["$COMPOSER_HOME/config.json"],
        lines: &["\"url\""],
        suffices_with: &[],
    },
    HostSource {
        ecosystem: "elixir",
        beside: &["mix.exs"],
        of_user: &[],
        lines: &["repo", "git:"],
        suffices_with: NEVER,
    },
    HostSource {
        ecosystem: "swift",
        beside: &["Package.resolved"],
        of_user: &[],
        lines: &["location", "repositoryURL"],
        suffices_with: NEVER,
    },
    HostSource {
        ecosystem: "zig",
        beside: &["build.zig.zon"],
        of_user: &[],
        lines: &[".url"],
        suffices_with: NEVER,
    },
    HostSource {
        ecosystem: "bazel",
        beside: &["MODULE.bazel.lock", ".bazelrc"],
        of_user: &[],
        lines: &["registry", "https"],
        suffices_with: NEVER,
    },
    HostSource {
        ecosystem: "nix",
        beside: &["flake.lock"],
        of_user: &["/etc/nix/nix.conf", "$XDG_CONFIG_HOME/nix/nix.conf"],
        lines: &["url", "substituters"],
        suffices_with: NEVER,
    },
    HostSource {
        ecosystem: "git",
        beside: &[".git/config", ".gitmodules"],
        of_user: &[
            "$HOME/.gitconfig",
            "$XDG_CONFIG_HOME/git/config",
            "$XDG_CONFIG_HOME/gh/hosts.yml",
        ],
        lines: &["url", GH_HOST],
        suffices_with: &[],
    },
    HostSource {
        ecosystem: "rust",
        beside: &[],
        of_user: &["$RUSTUP_HOME/toolchains/*/lib/rustlib/multirust-channel-manifest.toml"],
        lines: &["url"],
        suffices_with: NEVER,
    },
    HostSource {
        ecosystem: "haskell",
        beside: &["cabal.project", "stack.yaml"],
        of_user: &["$HOME/.cabal/config", "$XDG_CONFIG_HOME/cabal/config"],
        lines: &["url:"],
        suffices_with: &[],
    },
    HostSource {
        ecosystem: "github",
        beside: &[],
        of_user: &["$XDG_CONFIG_HOME/gh/hosts.yml"],
        lines: &[GH_HOST],
        suffices_with: &[],
    },
];

/// A marker for files of gh: their unindented keys are hosts.
const GH_HOST: &str = "\0gh";

/// Only this much of a file is read.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Only this many hosts of a toolchain are kept, the machine's first.
const MAX_HOSTS: usize = 24;
/// Only this many files match a pattern.
const MAX_FILES: usize = 24;

/// The hosts of the detected toolchains, at most 24 of each: first those of the machine, then
/// those of the project, the most often named first. Opens no connection. `said` gives
/// variables of the environment, `search` is the search path.
pub(crate) fn find_hosts(
    root: &Path,
    places: &PolicyPlaces,
    detected: &[DetectedToolchain],
    said: &dyn Fn(&str) -> Option<String>,
    search: &[PathBuf],
) -> Vec<FetchHost> {
    let aliases = ssh_aliases(&read(&places.home.join(".ssh/config")));
    let mut all = Vec::new();
    for found in detected {
        let name = found.ecosystem.name;
        let mut hosts = FoundHosts::default();
        for book in HOST_SOURCES.iter().filter(|book| book.ecosystem == name) {
            for (shown, file, is_own) in files_to_read(root, places, found, book) {
                let text = read(&file);
                let origin = match is_own {
                    true if shown == ".git/config" => HostOrigin::Remote,
                    true => HostOrigin::Project,
                    false if book.suffices(&text) => HostOrigin::Registry,
                    false => HostOrigin::Machine,
                };
                if !is_own {
                    hosts.configuration.push_str(&text);
                    hosts.configuration.push('\n');
                }
                if book.lines.contains(&GH_HOST) && shown.ends_with("hosts.yml") {
                    gh_hosts(&text).for_each(|host| hosts.note(host, &shown, origin));
                    continue;
                }
                let text = without_comments(&text);
                for line in text.lines().filter(|line| book.concerns(line)) {
                    for host in hosts_in_line(line, &aliases) {
                        hosts.note(host, &shown, origin);
                    }
                }
            }
        }
        for variable in SAID_HOSTS.iter().filter(|(owner, _)| *owner == name).map(|it| it.1) {
            let Some(value) = said(variable) else { continue };
            hosts.configuration.push_str(&format!("{variable}={value}\n"));
            for host in hosts_in_line(&value, &aliases) {
                hosts.note(host, &format!("${variable}"), HostOrigin::Registry);
            }
        }
        for (host, shown, origin) in default_hosts(name, places, root, search, &hosts.configuration)
        {
            hosts.note(host, &shown, origin);
        }
        all.extend(hosts.sorted(name));
    }
    all
}

/// Variables of the environment that name registries, with their toolchain.
const SAID_HOSTS: &[(&str, &str)] = &[
    ("go", "GOPROXY"),
    ("node", "npm_config_registry"),
    ("node", "NPM_CONFIG_REGISTRY"),
    ("python", "PIP_INDEX_URL"),
    ("python", "PIP_EXTRA_INDEX_URL"),
    ("python", "UV_DEFAULT_INDEX"),
    ("python", "UV_INDEX_URL"),
];

/// The hosts of one toolchain.
#[derive(Default)]
struct FoundHosts {
    /// For each host: the strongest origin, the number of lines, and the first file.
    hosts: BTreeMap<String, (HostOrigin, usize, String)>,
    /// The text of the user's files, from which secrets are never printed.
    configuration: String,
}

impl FoundHosts {
    fn note(&mut self, host: String, file: &str, origin: HostOrigin) {
        let entry = self.hosts.entry(host).or_insert_with(|| (origin, 0, file.to_owned()));
        entry.1 += 1;
        if origin < entry.0 {
            entry.0 = origin;
            file.clone_into(&mut entry.2);
        }
    }

    fn sorted(self, ecosystem: &'static str) -> Vec<FetchHost> {
        let mut hosts: Vec<(String, (HostOrigin, usize, String))> =
            self.hosts.into_iter().collect();
        let of_project = |origin| matches!(origin, HostOrigin::Project);
        hosts.sort_by(|(a, (of_a, times_a, _)), (b, (of_b, times_b, _))| {
            let owners = of_project(*of_a).cmp(&of_project(*of_b));
            owners.then(times_b.cmp(times_a)).then_with(|| a.cmp(b))
        });
        hosts.truncate(MAX_HOSTS);
        let each = |(name, (origin, _, file))| FetchHost { ecosystem, name, file, origin };
        hosts.into_iter().map(each).collect()
    }
}

impl HostSource {
    /// True if a line has one of the source's words anywhere (or the source has none), and no
    /// word of secrets such as `_auth` or `password`: `registry=…`, but not
    /// `//host/:_authToken=…`.
    fn concerns(&self, line: &str) -> bool {
        let secret =
            ["_auth", "password", "Token", "username"].iter().any(|word| line.contains(word));
        !secret && (self.lines.is_empty() || self.lines.iter().any(|word| line.contains(word)))
    }

    /// True if a file of the user names every host that fetching needs.
    fn suffices(&self, text: &str) -> bool {
        self.suffices_with.is_empty() || self.suffices_with.iter().any(|word| text.contains(word))
    }
}

/// The text without the comments of XML, and without lines that are comments in other files.
/// They contain examples, for example the hosts in `/etc/maven/settings.xml`, which belong to
/// strangers.
fn without_comments(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("<!--") {
        kept.push_str(before);
        rest = comment.split_once("-->").map_or("", |(_, after)| after);
    }
    kept.push_str(rest);
    let is_comment = |line: &str| line.trim_start().starts_with(['#', ';']);
    kept.lines().filter(|line| !is_comment(line)).flat_map(|line| [line, "\n"]).collect()
}

/// The hosts of gh's logins: the unindented keys of its file.
fn gh_hosts(text: &str) -> impl Iterator<Item = String> {
    let plain = |name: &&str| {
        name.contains('.') && name.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c))
    };
    text.lines().filter_map(|line| line.strip_suffix(':')).filter(plain).map(str::to_lowercase)
}

/// The files of a toolchain: the name for the user, the path, and whether it is the project's
/// own. They need not exist. Of the files that show the toolchain, the directories of the
/// first 20 count.
fn files_to_read(
    root: &Path,
    places: &PolicyPlaces,
    found: &DetectedToolchain,
    book: &HostSource,
) -> Vec<(String, PathBuf, bool)> {
    let mut dirs: Vec<PathBuf> = found
        .files
        .iter()
        .take(20)
        .filter_map(|file| file.parent())
        .map(Path::to_path_buf)
        .collect();
    dirs.push(PathBuf::new());
    dirs.sort();
    dirs.dedup();
    let beside = dirs.iter().flat_map(|dir| book.beside.iter().map(move |name| dir.join(name)));
    let mut files: Vec<(String, PathBuf, bool)> =
        beside.map(|path| (path.display().to_string(), root.join(path), true)).collect();
    if book.beside.contains(&".git/config")
        && let Some(shared) = shared_git_config(root)
    {
        files.push((".git/config".to_owned(), shared, true));
    }
    for text in book.of_user {
        for path in matching(places, text) {
            // A configuration may be a link into the project, for example with `stow`.
            let is_own = path.canonicalize().is_ok_and(|real| real.starts_with(root));
            files.push(((*text).to_owned(), path, is_own));
        }
    }
    files
}

/// The configuration of the repository to which a linked worktree belongs. `None` if `.git`
/// is not a file.
fn shared_git_config(root: &Path) -> Option<PathBuf> {
    let pointer = root.join(".git");
    if !pointer.is_file() {
        return None;
    }
    let text = read(&pointer);
    let dir = root.join(text.trim().strip_prefix("gitdir:")?.trim());
    let common = read(&dir.join("commondir"));
    Some(dir.join(common.trim()).join("config"))
}

/// The paths of a text such as `$RUSTUP_HOME/toolchains/*/bin/cargo`. A part of the path may
/// have one `*`. At most 24, in order.
pub(super) fn matching(places: &PolicyPlaces, text: &str) -> Vec<PathBuf> {
    let Ok(path) = places.expand(text) else { return Vec::new() };
    let mut found = vec![PathBuf::new()];
    for part in path.components() {
        let part = part.as_os_str();
        let Some((before, after)) = part.to_str().and_then(|text| text.split_once('*')) else {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        };
        let mut next = Vec::new();
        for dir in &found {
            let names = std::fs::read_dir(dir).into_iter().flatten().flatten();
            let fits = |name: &str| {
                name.len() >= before.len() + after.len()
                    && name.starts_with(before)
                    && name.ends_with(after)
            };
            let names = names.filter_map(|entry| entry.file_name().into_string().ok());
            let mut names: Vec<String> = names.filter(|name| fits(name)).take(1000).collect();
            names.sort();
            next.extend(names.into_iter().map(|name| dir.join(name)));
        }
        next.truncate(MAX_FILES);
        found = next;
    }
    found
}

/// The first [`MAX_FILE_BYTES`] of a regular file; empty if it cannot be read.
fn read(file: &Path) -> String {
    let mut bytes = Vec::new();
    let plain = std::fs::metadata(file).is_ok_and(|meta| meta.is_file());
    if let Some(open) = File::open(file).ok().filter(|_| plain) {
        let _ = open.take(MAX_FILE_BYTES).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ecosystems::detect;

    fn learned(files: &[(&str, &str)]) -> Vec<(String, String)> {
        let dir = tempfile::tempdir().unwrap();
        let (root, home) = (dir.path().join("app"), dir.path().join("home"));
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let places = PolicyPlaces::new(root.clone(), home, "/tmp".into(), |_| None);
        let found = detect(&root);
        let each = |host: FetchHost| (format!("{} {}", host.ecosystem, host.name), host.file);
        find_hosts(&root, &places, &found.ecosystems, &|_| None, &[])
            .into_iter()
            .map(each)
            .collect()
    }

    #[test]
    fn lock_files_and_configuration_name_the_mirrors_in_use() {
        let found = learned(&[
            ("app/Cargo.toml", ""),
            (
                "app/Cargo.lock",
                "source = \"registry+https://crates.example/index\"\nsource = \"git+ssh://git@forge.example:22/x\"\n",
            ),
            (
                "home/.cargo/config.toml",
                "[source.m]\nregistry = \"sparse+https://mirror.example/\"\n",
            ),
            ("app/.git/config", "[remote \"origin\"]\n\turl = git@code.example:me/app.git\n"),
            ("app/web/package.json", ""),
            (
                "app/web/package-lock.json",
                "\"resolved\": \"https://npm.example/x.tgz\",\n\"homepage\": \"https://other.example\"\n",
            ),
        ]);
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "rust mirror.example",
                "rust crates.example",
                "rust forge.example",
                "node npm.example",
                "git code.example:22"
            ]
        );
        assert_eq!(found[0].1, "$CARGO_HOME/config.toml");
    }

    #[test]
    fn examples_in_comments_name_no_hosts() {
        let found = learned(&[
            ("app/pom.xml", ""),
            ("app/package.json", ""),
            (
                "home/.m2/settings.xml",
                "<!-- <mirror>\n<url>http://stranger.example/</url>\n</mirror> -->\n<url>https://mirror.example/</url><!-- <mirrorOf>\n",
            ),
            (
                "home/.npmrc",
                "; registry=https://old.example/\n # registry=https://o2.example/\nregistry=https://npm.example/\n",
            ),
        ]);
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["node npm.example", "java mirror.example"]);
    }

    #[test]
    fn no_secret_of_an_address_or_a_token_file_gets_out() {
        let found = learned(&[
            ("app/package.json", ""),
            (
                "home/.npmrc",
                "registry=https://user:hunter2@npm.example/\n//npm.example/:_authToken=s3cr3t://x.y\n",
            ),
            (
                "app/pyproject.toml",
                "[[tool.uv.index]]\nurl = \"https://tok3n@pypi.example/simple\"\n",
            ),
        ]);
        let all = format!("{found:?}");
        assert!(all.contains("npm.example") && all.contains("pypi.example"), "{all}");
        for secret in ["hunter2", "s3cr3t", "tok3n", "user"] {
            assert!(!all.contains(secret), "{secret}: {all}");
        }
    }
}
