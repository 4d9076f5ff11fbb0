//! The registries that a tool uses without any configuration. No registry is written down
//! here: the installed tool itself names them, in its program or in its own files.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clash_policy::PolicyPlaces;
use memchr::memmem;

use super::hosts::{HostOrigin, matching};

/// A place where a tool names its registry.
struct ToolDefault {
    ecosystem: &'static str,
    /// A program on the search path. Its own file is searched, and `beside` it.
    program: &'static str,
    /// Files seen from the directory of the program's real file.
    beside: &'static [&'static str],
    /// Files of the machine, written like paths in a policy.
    files: &'static [&'static str],
    /// The text in front of the host, and the text behind it.
    around: (&'static str, &'static str),
    /// The tool does not use its default if a line of the user's configuration begins so.
    replaced_by: &'static [&'static str],
    origin: HostOrigin,
}

const NOTHING: ToolDefault = ToolDefault {
    ecosystem: "",
    program: "",
    beside: &[],
    files: &[],
    around: ("", ""),
    replaced_by: &[],
    origin: HostOrigin::Registry,
};

const PIP_INDEX: &[&str] = &[
    "/usr/lib/python3/dist-packages/pip/_internal/models/index.py",
    "/usr/lib/python3*/site-packages/pip/_internal/models/index.py",
    "/usr/local/lib/python3*/site-packages/pip/_internal/models/index.py",
    "/usr/local/lib/python3*/dist-packages/pip/_internal/models/index.py",
    "$HOME/.pyenv/versions/*/lib/python3*/site-packages/pip/_internal/models/index.py",
];
const PIP_BESIDE: &[&str] = &["../lib/python3*/site-packages/pip/_internal/models/index.py"];
const PYTHON_CONFIGURED: &[&str] = &[
    "index-url",
    "index_url",
    "default-index",
    "PIP_INDEX_URL",
    "UV_DEFAULT_INDEX",
    "UV_INDEX_URL",
];
const NODE_CONFIGURED: &[&str] =
    &["registry", "npmRegistryServer", "npm_config_registry", "NPM_CONFIG_REGISTRY"];

const TOOL_DEFAULTS: &[ToolDefault] = &[
    ToolDefault {
        ecosystem: "rust",
        program: "cargo",
        files: &["$RUSTUP_HOME/toolchains/*/bin/cargo"],
        around: ("sparse+https://", "/"),
        replaced_by: &["replace-with"],
        ..NOTHING
    },
    ToolDefault {
        ecosystem: "node",
        program: "npm",
        beside: &[
            "../node_modules/@npmcli/config/lib/definitions/definitions.js",
            "../../@npmcli/config/lib/definitions/definitions.js",
        ],
        around: ("default: 'https://", ""),
        replaced_by: NODE_CONFIGURED,
        ..NOTHING
    },
    ToolDefault {
        ecosystem: "node",
        program: "pnpm",
        beside: &["../dist/pnpm.cjs"],
        around: ("registry: \"https://", "/"),
        replaced_by: NODE_CONFIGURED,
        ..NOTHING
    },
    ToolDefault {
        ecosystem: "node",
        program: "yarn",
        beside: &["../lib/cli.js"],
        around: ("_REGISTRY = 'https://", ""),
        replaced_by: NODE_CONFIGURED,
        ..NOTHING
    },
    ToolDefault {
        ecosystem: "python",
        program: "python3",
        beside: PIP_BESIDE,
        files: PIP_INDEX,
        around: ("\nPyPI = PackageIndex(\"https://", "/"),
        replaced_by: PYTHON_CONFIGURED,
        ..NOTHING
    },
    ToolDefault {
        ecosystem: "python",
        program: "python3",
        beside: PIP_BESIDE,
        files: PIP_INDEX,
        around: ("file_storage_domain=\"", "\""),
        replaced_by: PYTHON_CONFIGURED,
        ..NOTHING
    },
    // The index alone: the packages are on another host.
    ToolDefault {
        ecosystem: "python",
        program: "uv",
        around: ("https://", "/simple"),
        replaced_by: PYTHON_CONFIGURED,
        origin: HostOrigin::Machine,
        ..NOTHING
    },
    ToolDefault {
        ecosystem: "python",
        files: &["$UV_CACHE_DIR/simple-v*/*/*.rkyv"],
        around: ("https://", "/packages/"),
        replaced_by: PYTHON_CONFIGURED,
        ..NOTHING
    },
    ToolDefault {
        ecosystem: "go",
        program: "go",
        beside: &["../go.env"],
        around: ("https://", ",direct"),
        replaced_by: &["GOPROXY"],
        ..NOTHING
    },
    ToolDefault {
        ecosystem: "ruby",
        program: "ruby",
        beside: &["../lib/ruby/*/rubygems/defaults.rb"],
        files: &["/usr/lib/ruby/*/rubygems/defaults.rb"],
        around: ("DEFAULT_HOST = \"https://", "\""),
        ..NOTHING
    },
    // The list of packages alone: the packages are on other hosts.
    ToolDefault {
        ecosystem: "php",
        program: "composer",
        files: &["/usr/share/php/Composer/Config.php"],
        around: ("'url' => 'https://", "'"),
        origin: HostOrigin::Machine,
        ..NOTHING
    },
    ToolDefault {
        ecosystem: "php",
        files: &["$XDG_CACHE_HOME/composer/repo/*/provider-*.json"],
        around: ("\"dist\":{\"url\":\"https://", "/"),
        ..NOTHING
    },
];

/// The end of a program on the disk is not searched beyond this.
const MAX_SEARCHED_BYTES: u64 = 128 << 20;
/// The first hosts of a file count. Further ones are examples in texts, or test registries.
const MOST_IN_A_FILE: usize = 1;

/// The default hosts of a toolchain's installed tools, each with the file that names it, for
/// example `/usr/bin/cargo`. Leaves out tools that the user's configuration points elsewhere.
/// Reads no program below the project, where an agent may have put it.
pub(super) fn default_hosts(
    ecosystem: &str,
    places: &PolicyPlaces,
    root: &Path,
    search: &[PathBuf],
    configuration: &str,
) -> Vec<(String, String, HostOrigin)> {
    let begins = |word: &&str| {
        configuration.lines().any(|line| {
            let rest = line.trim_start().strip_prefix(*word);
            rest.is_some_and(|rest| rest.trim_start().starts_with(['=', ':']))
        })
    };
    let mut found = Vec::new();
    for tool in TOOL_DEFAULTS.iter().filter(|tool| tool.ecosystem == ecosystem) {
        if tool.replaced_by.iter().any(begins) {
            continue;
        }
        for file in tool.files_to_search(places, search) {
            let Ok(real) = file.canonicalize() else { continue };
            if real.starts_with(root) || real.starts_with(&places.tmp) {
                continue;
            }
            let hosts = hosts_between(&real, tool.around);
            let some = !hosts.is_empty();
            found.extend(hosts.into_iter().map(|host| {
                (without_service(&host).to_owned(), real.display().to_string(), tool.origin)
            }));
            if some {
                break;
            }
        }
    }
    found
}

impl ToolDefault {
    /// The files that may name the registry: beside the program, of the machine, and the
    /// program itself.
    fn files_to_search(&self, places: &PolicyPlaces, search: &[PathBuf]) -> Vec<PathBuf> {
        let named = search.iter().map(|dir| dir.join(self.program));
        let program = match self.program {
            "" => None,
            _ => named.filter(|path| path.is_file()).find_map(|path| path.canonicalize().ok()),
        };
        let mut files = Vec::new();
        if let Some(dir) = program.as_deref().and_then(Path::parent).and_then(Path::to_str) {
            files.extend(
                self.beside.iter().flat_map(|name| matching(places, &format!("{dir}/{name}"))),
            );
        }
        files.extend(self.files.iter().flat_map(|text| matching(places, text)));
        files.extend(program);
        files
    }
}

/// The first host in a file that stands between two texts.
fn hosts_between(file: &Path, (before, after): (&str, &str)) -> Vec<String> {
    let mut bytes = Vec::new();
    let plain = std::fs::metadata(file).is_ok_and(|meta| meta.is_file());
    let Some(open) = File::open(file).ok().filter(|_| plain) else { return Vec::new() };
    if open.take(MAX_SEARCHED_BYTES).read_to_end(&mut bytes).is_err() {
        return Vec::new();
    }
    let mut found: Vec<String> = Vec::new();
    for at in memmem::find_iter(&bytes, before.as_bytes()) {
        let rest = bytes.get(at + before.len()..).unwrap_or_default();
        let is_host = |byte: &u8| byte.is_ascii_alphanumeric() || b"-.".contains(byte);
        let length = rest.iter().take(254).take_while(|byte| is_host(byte)).count();
        let (host, behind) = rest.split_at_checked(length).unwrap_or_default();
        let Ok(host) = std::str::from_utf8(host).map(str::to_ascii_lowercase) else { continue };
        let named = host.contains('.') && !host.starts_with('.') && !host.ends_with('.');
        if named && behind.starts_with(after.as_bytes()) && !found.contains(&host) {
            found.push(host);
        }
        if found.len() == MOST_IN_A_FILE {
            break;
        }
    }
    found
}

/// The domain of a registry whose first label names a service of it: the index and the
/// downloads of one registry are often at two names of one domain, for example
/// `index.example.org` and `static.example.org`.
fn without_service(host: &str) -> &str {
    match host.split_once('.') {
        Some(("index" | "registry" | "repo" | "proxy" | "api", domain)) if domain.contains('.') => {
            domain
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with these files; the project is `app`, programs are in `bin`.
    fn defaults(ecosystem: &str, files: &[(&str, &str)], configuration: &str) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap();
        for (name, text) in files {
            let path = at.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = at.join("app");
        let places = PolicyPlaces::new(root.clone(), at.join("home"), "/nowhere".into(), |_| None);
        let search = [at.join("bin"), root.join("bin")];
        let found = default_hosts(ecosystem, &places, &root, &search, configuration);
        found.into_iter().map(|(host, ..)| host).collect()
    }

    #[test]
    fn an_installed_tool_names_its_registry() {
        let cargo = [("bin/cargo", "\u{1}sparse+https://index.crates.test/\u{0}https://x.test/")];
        assert_eq!(defaults("rust", &cargo, ""), ["crates.test"]);
        assert_eq!(
            defaults("go", &[("bin/go", ": %vhttps://proxy.go.test,directx")], ""),
            ["go.test"]
        );
        let pip = "x\nPyPI = PackageIndex(\"https://pypi.test/\", file_storage_domain=\"files.test.example\")\nTestPyPI = PackageIndex(\n    \"https://t.test/\", file_storage_domain=\"t2.test\")\n";
        let pip = [
            ("bin/python3", ""),
            ("lib/python3.11/site-packages/pip/_internal/models/index.py", pip),
        ];
        assert_eq!(defaults("python", &pip, "").first().map(String::as_str), Some("pypi.test"));
    }

    #[test]
    fn a_mirror_of_the_user_replaces_the_default() {
        let cargo = [("bin/cargo", "sparse+https://index.crates.test/")];
        assert!(defaults("rust", &cargo, "[source.crates-io]\nreplace-with = \"m\"\n").is_empty());
        let npm = [
            ("bin/npm", ""),
            (
                "node_modules/@npmcli/config/lib/definitions/definitions.js",
                "default: 'https://registry.npm.test/',",
            ),
        ];
        assert_eq!(defaults("node", &npm, "@scope:registry=https://m.test\n"), ["npm.test"]);
        assert!(defaults("node", &npm, "registry=https://m.test\n").is_empty());
    }

    #[test]
    fn a_program_of_the_project_names_nothing() {
        let cargo = [("app/bin/cargo", "sparse+https://index.evil.test/")];
        assert!(defaults("rust", &cargo, "").is_empty());
    }
}
