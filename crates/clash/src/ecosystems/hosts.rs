//! Finds the hosts from which a project's toolchains fetch. Their lock files, caches and
//! configuration name these hosts, so mirrors are found and no registry is assumed. Only
//! the host names are read: not the user names, passwords and paths of an address, and in
//! files with tokens only the lines about fetching.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clash_policy::PolicyPlaces;

use super::DetectedToolchain;

/// A host and the file that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FetchHost {
    pub(crate) ecosystem: &'static str,
    pub(crate) name: String,
    pub(crate) file: String,
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
}

const HOST_SOURCES: &[HostSource] = &[
    HostSource {
        ecosystem: "rust",
        beside: &["Cargo.lock", ".cargo/config.toml"],
        of_user: &["$CARGO_HOME/config.toml", "$CARGO_HOME/config"],
        lines: &["source", "registry", "index", "git"],
    },
    HostSource {
        ecosystem: "go",
        beside: &[],
        of_user: &["$XDG_CONFIG_HOME/go/env"],
        lines: &["GOPROXY", "GOSUMDB"],
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
        of_user: &["$HOME/.npmrc", "$HOME/.yarnrc.yml", "$XDG_CONFIG_HOME/pnpm/rc"],
        lines: &["resolved", "registry", "Registry", "tarball"],
    },
    HostSource {
        ecosystem: "ruby",
        beside: &["Gemfile.lock", ".bundle/config"],
        of_user: &["$HOME/.bundle/config"],
        lines: &["remote:", "MIRROR"],
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
    },
    HostSource {
        ecosystem: "dotnet",
        beside: &["nuget.config", "NuGet.Config"],
        of_user: &["$HOME/.nuget/NuGet/NuGet.Config"],
        lines: &["<add "],
    },
    HostSource {
        ecosystem: "php",
        beside: &["composer.lock"],
        of_user: &["$COMPOSER_HOME/config.json"],
        lines: &["\"url\""],
    },
    HostSource {
        ecosystem: "elixir",
        beside: &["mix.exs"],
        of_user: &[],
        lines: &["repo", "git:"],
    },
    HostSource {
        ecosystem: "swift",
        beside: &["Package.resolved"],
        of_user: &[],
        lines: &["location", "repositoryURL"],
    },
    HostSource { ecosystem: "zig", beside: &["build.zig.zon"], of_user: &[], lines: &[".url"] },
    HostSource {
        ecosystem: "bazel",
        beside: &["MODULE.bazel.lock", ".bazelrc"],
        of_user: &[],
        lines: &["registry", "https"],
    },
    HostSource {
        ecosystem: "nix",
        beside: &["flake.lock"],
        of_user: &["/etc/nix/nix.conf", "$XDG_CONFIG_HOME/nix/nix.conf"],
        lines: &["url", "substituters"],
    },
    HostSource {
        ecosystem: "git",
        beside: &[".git/config", ".gitmodules"],
        of_user: &[],
        lines: &["url"],
    },
];

/// Only this much of a file is read.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Only this many hosts of a toolchain are kept.
const MAX_HOSTS: usize = 12;

/// The hosts of the detected toolchains, at most 12 of each, the most often named first.
/// Opens no connection.
pub(crate) fn find_hosts(
    root: &Path,
    places: &PolicyPlaces,
    detected: &[DetectedToolchain],
) -> Vec<FetchHost> {
    let mut all = Vec::new();
    for found in detected {
        let Some(book) = HOST_SOURCES.iter().find(|book| book.ecosystem == found.ecosystem.name)
        else {
            continue;
        };
        let mut counts: BTreeMap<String, (usize, String)> = BTreeMap::new();
        for (shown, file) in files_to_read(root, places, found, book) {
            for host in
                read(&file).lines().filter(|line| book.concerns(line)).flat_map(hosts_in_line)
            {
                counts.entry(host).or_insert_with(|| (0, shown.clone())).0 += 1;
            }
        }
        let mut counts: Vec<(String, (usize, String))> = counts.into_iter().collect();
        counts.sort_by(|a, b| b.1.0.cmp(&a.1.0).then_with(|| a.0.cmp(&b.0)));
        counts.truncate(MAX_HOSTS);
        all.extend(counts.into_iter().map(|(name, (_, file))| FetchHost {
            ecosystem: book.ecosystem,
            name,
            file,
        }));
    }
    all
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
}

/// The files of a toolchain: the name for the user, and the path. They need not exist. Of the
/// files that show the toolchain, the directories of the first 20 count.
fn files_to_read(
    root: &Path,
    places: &PolicyPlaces,
    found: &DetectedToolchain,
    book: &HostSource,
) -> Vec<(String, PathBuf)> {
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
    let mut files: Vec<(String, PathBuf)> =
        beside.map(|path| (path.display().to_string(), root.join(path))).collect();
    let of_user = book
        .of_user
        .iter()
        .filter_map(|text| Some(((*text).to_owned(), places.expand(text).ok()?)));
    files.extend(of_user);
    files
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

/// The hosts of the addresses in a line (`scheme://…`). Without one, the host of git's own
/// form `user@host:path`.
fn hosts_in_line(line: &str) -> Vec<String> {
    let mut hosts: Vec<String> = line.split("://").skip(1).filter_map(parse_host).collect();
    // git's own form: user@host:path
    if hosts.is_empty()
        && let Some((_, rest)) = line.split_once('@')
        && let Some((name, _)) = rest.split_once(':')
    {
        hosts.extend(parse_host(name));
    }
    hosts
}

/// The host at the start of the text after `://`, in lower case. `None` without a dot in it,
/// for example for `localhost`, and for unusual characters.
fn parse_host(rest: &str) -> Option<String> {
    let authority =
        rest.split(|c: char| c.is_whitespace() || "/?#\"'<>,|)]}\\".contains(c)).next()?;
    let name = authority.rsplit('@').next()?;
    let name = name.split(':').next()?.to_ascii_lowercase();
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.');
    let named = name.contains('.') && !name.starts_with('.') && !name.ends_with('.');
    (plain && named && name.len() < 254).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ecosystems::detect;
    use proptest::prelude::*;

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
        find_hosts(&root, &places, &found.ecosystems).into_iter().map(each).collect()
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
                "rust crates.example",
                "rust forge.example",
                "rust mirror.example",
                "node npm.example",
                "git code.example"
            ]
        );
        assert_eq!(found[2].1, "$CARGO_HOME/config.toml");
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

    #[test]
    fn texts_without_a_host_give_none() {
        for text in [
            "https://",
            "https://localhost/x",
            "https://-\u{7f}.x",
            "file:///etc/passwd",
            "https://a..",
            "x@y",
        ] {
            assert_eq!(hosts_in_line(text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(
            hosts_in_line("a https://A.example:8443/x and http://b.example"),
            ["a.example", "b.example"]
        );
    }

    proptest! {
        #[test]
        fn of_an_address_only_the_host_is_taken(
            before in "[a-z =\"'+]{0,10}",
            scheme in "(https|http|ssh|git\\+https|sparse\\+https)",
            user in "(|[A-Z0-9]{6,12}@|[A-Z0-9]{6,12}:[A-Z0-9%!$]{6,12}@)",
            host in "[a-z0-9]{1,8}(\\.[a-z0-9-]{1,8}[a-z]){1,3}",
            port in "(|:[0-9]{2,4})",
            path in "(|/|/[A-Z0-9@:]{0,12}|\\?[A-Z]{3,6}|\"|'|,)",
        ) {
            let line = format!("{before}{scheme}://{user}{host}{port}{path}");
            prop_assert_eq!(hosts_in_line(&line), [host], "{}", line);
        }

        #[test]
        fn of_any_line_only_names_of_hosts_are_taken(line: String) {
            for name in hosts_in_line(&line) {
                let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
                prop_assert!(name.chars().all(plain) && name.contains('.'), "{}", name);
            }
        }
    }
}
